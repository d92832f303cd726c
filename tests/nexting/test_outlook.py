"""What opens the report: recent readings, forecasts at the right times with the best baseline, and verdicts."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from emphatic.nexting.answers.asked import Asked
from emphatic.nexting.answers.timing import Timing
from emphatic.nexting.runs.outlook import make_outlook, read_forecasts, read_verdict, unit_of
from emphatic.nexting.scores.verdicts import Verdict, judge_signal
from emphatic.nexting.tables import Block

DAY = 86_400.0
#: Midnight of a Monday.
MONDAY = 1_483_315_200.0
HOURLY = Timing(3600.0, dated=True)


def answer(text: str, value: float | None, **keys: Any) -> dict[str, Any]:
    signal = text.split(" ")[0] if text[:5] in ("x at ", "y at ") else None
    score = {"text": text, "kind": "at", "signal": signal, "answer": value, "low": None, "high": None, "known": 500}
    return score | {"scored": 200} | keys


def asked_of(rows: int, timing: Timing = HOURLY, texts: tuple[str, ...] = ("x at +6h", "x at +1d")) -> Asked:
    """A day's wave in x, and y, which stands still, after so many rows."""
    time = MONDAY + 3600.0 * np.arange(rows)
    values = np.column_stack([10.0 + np.sin(time / DAY * 2 * np.pi), np.ones(rows)])
    values[5:8, 0] = np.nan
    asked = Asked(texts, ["x", "y"], timing, rows=rows)
    asked(Block(0, values, None if timing.step is None else time, {}))
    return asked


def test_forecasts_are_values_at_a_time_of_one_signal() -> None:
    summary = [
        answer("x at +1d", 2.0, low=1.0, high=3.0, best_baseline="last_day", baselines={"last_day": {"answer": 2.5}}),
        answer("x at +1h", 1.0),
        answer("`a b` at +2 rows", 5.0, signal="a b"),
        answer("x + y at +1h", 9.0, signal=None),
        answer("mean of x over 1h", 8.0, kind="mean", signal="x"),
        answer("x@1h", 8.0, kind="weighted", signal="x"),
        answer("P(x > 1 at +1h)", 0.5, kind="event_at"),
        answer("y at +1h", None),
    ]
    forecasts = read_forecasts(summary, MONDAY, 3600.0)
    plain = {name: [(f.horizon, f.time - MONDAY, f.mean) for f in several] for name, several in forecasts.items()}
    assert plain == {"x": [("1h", 3600.0, 1.0), ("1d", DAY, 2.0)], "a b": [(2, 7200.0, 5.0)]}
    assert forecasts["x"][1][4:] == (1.0, 3.0, 2.5)
    assert forecasts["x"][0].baseline is None


def test_an_outlook_has_the_readings_the_forecasts_and_the_baseline_at_each() -> None:
    asked = asked_of(24 * 28)
    summary, judged = asked.summary(), asked.judge_signals()["x"]
    outlook = make_outlook(asked, summary, "x", judged, "kW")
    assert (outlook.signal, outlook.dated, outlook.unit) == ("x", True, "kW")
    assert (outlook.verdict.kind, outlook.verdict.baseline) == (judged["verdict"], judged["best_baseline"])
    last = MONDAY + 3600.0 * (24 * 28 - 1)
    np.testing.assert_array_equal(outlook.time, last - 3600.0 * np.arange(len(outlook.time))[::-1])
    np.testing.assert_allclose(outlook.reading, 10.0 + np.sin(outlook.time / DAY * 2 * np.pi))
    assert outlook.latest == outlook.reading[-1]
    assert len(outlook.time) >= 60
    scores = {score["text"]: score for score in summary}
    of_both = [scores[text] for text in ("x at +6h", "x at +1d")]
    time, value, low, high = outlook.path  # from the last reading on
    np.testing.assert_array_equal(time, [last, last + 6 * 3600.0, last + DAY])
    for line, name in ((value, "answer"), (low, "low"), (high, "high")):
        np.testing.assert_array_equal(line, [outlook.reading[-1], *(score[name] for score in of_both)])
    time, value = outlook.baseline
    best = [score["baselines"][score["best_baseline"]]["answer"] for score in of_both]
    np.testing.assert_array_equal(value, [outlook.reading[-1], *best])
    assert [forecast.baseline for forecast in outlook.forecasts] == best


def test_readings_that_are_missing_are_drawn_as_such_and_no_line_begins_there() -> None:
    asked = asked_of(8)
    outlook = make_outlook(asked, asked.summary(), "x", None)
    assert np.isnan(outlook.reading).tolist() == [False] * 5 + [True] * 3
    assert outlook.latest == outlook.reading[4]
    assert outlook.path[0].tolist() == [outlook.time[-1] + 6 * 3600.0, outlook.time[-1] + DAY]


def test_a_long_horizon_draws_no_more_rows_than_can_be_seen() -> None:
    rows, minutes = 9 * 1440, Timing(60.0, dated=True)
    asked = Asked(["x at +5d"], ["x"], minutes)
    time = MONDAY + 60.0 * np.arange(rows)
    asked(Block(0, np.sin(time / DAY)[:, None], time, {}))
    outlook = make_outlook(asked, asked.summary(), "x", None)
    assert 1000 < len(outlook.time) < 3000
    assert outlook.time[-1] == time[-1]
    assert outlook.time[0] < time[-1] - 7 * DAY


def test_a_verdict_travels_as_it_was_decided_with_the_errors_behind_it() -> None:
    judged = judge_signal("x", {"1d": Verdict("better", "last_week", 0.36, 0.2, 0.5)})
    verdict = read_verdict([], "x", judged | {"rmse": 3.0, "baseline_rmse": 4.0})
    assert [*verdict] == [judged["sentence"], "better", "last_week", 0.36, 0.2, 0.5, "1d", 3.0, 4.0]
    assert verdict.baseline_words == "the week before"
    assert read_verdict([], "y", None).sentence == ""
    assert "37 of 100" in read_verdict([answer("x at +1h", 1.0, known=37)], "x", None).sentence


@pytest.mark.parametrize(("name", "unit"), [("p (kW)", "kW"), ("q", ""), ("r [°C]", "°C")])
def test_a_unit_may_stand_in_the_name(name: str, unit: str) -> None:
    assert unit_of(name) == unit


def test_hostile_readings_give_an_outlook() -> None:
    """Constant, huge, missing and single readings, with and without forecasts."""
    columns = {"huge": 1e300, "still": 3.0, "missing": np.nan, "infinite": np.inf}
    for rows, timing in itertools.product((0, 1, 300), (Timing(None), HOURLY)):
        for texts in ([], [f"{signal} at +3 rows" for signal in columns]):
            asked = Asked(texts, list(columns), timing)
            values = np.tile(list(columns.values()), (rows, 1))
            time = None if timing.step is None else MONDAY + 3600.0 * np.arange(rows)
            asked(Block(0, values, time, {}))
            for signal in columns:
                outlook = make_outlook(asked, asked.summary(), signal, None)
                assert len(outlook.time) == len(outlook.reading)
                assert len(outlook.path[0]) == len(outlook.path[1])
