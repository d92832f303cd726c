"""What opens the report: forecasts at the right times, lines along the season, and verdicts."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from emphatic.answers.timing import Timing
from emphatic.nexting.outlook import (
    DAY,
    WEEK,
    History,
    SignalVerdict,
    make_outlook,
    read_forecasts,
    read_verdict,
)
from emphatic.scores.verdicts import Verdict, judge_signal

Numbers = NDArray[Any]
#: Midnight of a Monday.
MONDAY = 1_483_315_200.0
HOURLY = Timing(3600.0, dated=True)


def shape(time: Numbers) -> Numbers:
    """Higher at noon, and on Mondays."""
    values: Numbers = np.sin((time % DAY) / DAY * 2 * math.pi) + 2.0 * ((time - MONDAY) % WEEK < DAY)
    return values


def log_of(days: int, timing: Timing = HOURLY, block: int = 100) -> History:
    step = timing.step or 1.0
    time = MONDAY + step * np.arange(int(days * DAY / step))
    history = History(["x", "y"], timing)
    for begin in range(0, len(time), block):
        rows = slice(begin, begin + block)
        history.add(time[rows], np.column_stack([shape(time[rows]), np.ones(len(time[rows]))]))
    return history


def answer(text: str, value: float | None, **keys: Any) -> dict[str, Any]:
    return {"text": text, "answer": value, "low": None, "high": None, "known": 500, "scored": 200} | keys


def judged(baseline: str) -> SignalVerdict:
    verdict = Verdict("better", baseline, 0.5, 0.4, 0.6)
    return read_verdict([], "x", {"x": judge_signal("x", {"1d": verdict}, "value")})


@pytest.mark.parametrize("block", [7, 5000])
@pytest.mark.parametrize("step", [600.0, 3600.0, 3 * 3600.0])
def test_seasons_are_those_of_the_readings(step: float, block: int) -> None:
    history = log_of(28, Timing(step, dated=True), block)
    seasons = history.seasons(0)
    times = MONDAY + 28 * DAY + step * np.arange(60)
    assert list(seasons) == [DAY, WEEK]
    if step >= 3600:  # a slot for each row: exact
        np.testing.assert_allclose(seasons[WEEK](times), shape(times), atol=1e-9)
    mean_of_mondays = 2.0 / 7.0
    np.testing.assert_allclose(
        seasons[DAY](times), np.sin(times % DAY / DAY * 2 * math.pi) + mean_of_mondays, atol=0.05
    )


def test_a_line_follows_only_a_profile_that_explains_something() -> None:
    rng = np.random.default_rng(0)
    time = MONDAY + 3600.0 * np.arange(24 * 28)
    history = History(["noise", "wave"], HOURLY)
    wave = 1e6 + np.sin(time / DAY * 2 * math.pi) + rng.normal(size=len(time)) * math.sqrt(0.5)
    wave += 30.0 * np.sin(time / (40 * DAY))  # a slow drift does not hide the day
    history.add(time, np.column_stack([rng.normal(size=len(time)), wave]))
    assert max(season.strength for season in history.seasons(0).values()) < 0.1
    assert history.seasons(1)[DAY].strength == pytest.approx(0.5, abs=0.1)
    summary = [answer("noise at +1d", 0.0), answer("wave at +1d", 1e6)]
    forecasts = read_forecasts(summary, float(time[-1]), 3600.0)
    straight, curved = (make_outlook(history, n, forecasts[n], read_verdict([], n)).path[1] for n in ("noise", "wave"))
    np.testing.assert_allclose(np.diff(straight, 2), 0.0, atol=1e-9)
    assert np.ptp(curved) > 1.5


def test_no_season_from_too_few_days_or_without_dates() -> None:
    assert log_of(1).seasons(0) == {}
    assert list(log_of(5).seasons(0)) == [DAY]
    rows = History(["x"], Timing(None))
    rows.add(None, np.arange(500.0)[:, None])
    assert rows.seasons(0) == {}
    assert rows.rows[0][-1] == 499.0


def test_a_history_keeps_the_last_rows_and_forgets_missing_ones() -> None:
    history = History(["x"], Timing(1.0))
    for begin in range(0, 40_000, 999):
        history.add(np.arange(begin, begin + 999.0), np.full((999, 1), np.nan if begin % 2 else 3.0))
    time, values = history.rows
    assert len(time) == 30_000
    assert time[-1] == 40 * 999 + 998
    assert history.mean(0) == 3.0
    history.add(np.array([np.nan]), np.array([[7.0]]))
    assert history.rows[0][-1] == time[-1]
    assert values.shape == (30_000, 1)


def test_forecasts_are_values_at_a_time_of_one_signal() -> None:
    summary = [
        {"signal": "x", "horizon": "1h", "variance_explained": 0.9},  # an exponential mean: no value at t + h
        answer("x at +1d", 2.0, low=1.0, high=3.0),
        answer("x at +1h", 1.0),
        answer("`a b` at +2 rows", 5.0),
        answer("x + y at +1h", 9.0),
        answer("mean of x over 1h", 8.0),
        answer("P(x > 1 at +1h)", 0.5),
        answer("y at +1h", None),
        answer("z at +1h", 4.0, signal="z", headline=True),
    ]
    forecasts = read_forecasts(summary, MONDAY, 3600.0)
    plain = {name: [(f.horizon, f.time - MONDAY, f.mean) for f in several] for name, several in forecasts.items()}
    expected = {"x": [("1h", 3600.0, 1.0), ("1d", DAY, 2.0)], "a b": [(2, 7200.0, 5.0)], "z": [("1h", 3600.0, 4.0)]}
    assert plain == expected
    assert forecasts["x"][1].low == 1.0


def test_the_line_meets_readings_and_forecasts_and_follows_the_season_between() -> None:
    history = log_of(28)
    time, values = history.rows
    origin = float(time[-1])
    offset = 10.0  # forecasts deviate from the season by this, and by twice this a day later
    summary = [
        answer("x at +6h", float(shape(np.array([origin + 6 * 3600.0]))[0]) + offset, low=0.0, high=30.0),
        answer("x at +1d", float(shape(np.array([origin + DAY]))[0]) + 2 * offset),
    ]
    forecasts = read_forecasts(summary, origin, 3600.0)["x"]
    outlook = make_outlook(history, "x", forecasts, read_verdict(summary, "x"))
    path_time, path, low, high = outlook.path
    assert path_time[0] == origin
    assert path[0] == values[-1, 0]
    for forecast in forecasts:
        (place,) = np.flatnonzero(path_time == forecast.time)
        assert path[place] == pytest.approx(forecast.mean)
    deviation = path - history.seasons(0)[WEEK](path_time)
    expected = np.interp(path_time, [origin, origin + 6 * 3600.0, origin + DAY], [0.0, offset, 2 * offset])
    np.testing.assert_allclose(deviation, expected, atol=1e-9)
    at_six = np.flatnonzero(path_time == origin + 6 * 3600.0)[0]
    assert (low[at_six], high[at_six]) == (pytest.approx(0.0), pytest.approx(30.0))
    assert np.isnan(low[-1])  # the interval of the last is unknown


@pytest.mark.parametrize(
    ("baseline", "expected"),
    [
        ("persistence", lambda time, origin: np.full(len(time), shape(np.array([origin]))[0])),
        ("last_day", lambda time, origin: shape(time - DAY)),
        ("last_week", lambda time, origin: shape(time - WEEK)),
        ("last_period", lambda time, origin: shape(time - 2 * DAY)),
    ],
)
def test_the_best_baseline_is_drawn_beyond_the_last_row(baseline: str, expected: Any) -> None:
    history = log_of(28)
    origin = float(history.rows[0][-1])
    forecasts = read_forecasts([answer("x at +1d", 1.0)], origin, 3600.0)["x"]
    outlook = make_outlook(history, "x", forecasts, judged(baseline), period=2 * DAY)
    time, values = outlook.baseline
    hours = np.isin(np.round((time - origin) / 3600.0, 9), np.arange(25))
    assert time[0] == origin
    assert time[-1] == origin + DAY
    np.testing.assert_allclose(values[hours], expected(time[hours], origin), atol=1e-9)
    assert outlook.forecasts[0].baseline == pytest.approx(values[-1])


def test_a_long_horizon_draws_no_more_rows_than_can_be_seen() -> None:
    minutes = log_of(9, Timing(60.0, dated=True), block=5000)
    time = minutes.rows[0]
    forecasts = read_forecasts([answer("x at +5d", 1.0)], float(time[-1]), 60.0)["x"]
    outlook = make_outlook(minutes, "x", forecasts, read_verdict([], "x"))
    assert 1000 < len(outlook.time) < 3000
    assert outlook.time[-1] == time[-1]
    assert outlook.time[0] < time[-1] - 7 * DAY


def test_an_unknown_baseline_or_one_before_the_log_is_left_out() -> None:
    history = log_of(3)
    origin = float(history.rows[0][-1])
    for baseline in ("last_week", "something_new", ""):
        forecasts = read_forecasts([answer("x at +1h", 1.0)], origin, 3600.0)["x"]
        outlook = make_outlook(history, "x", forecasts, judged(baseline))
        assert len(outlook.baseline[0]) == 0
        assert outlook.forecasts[0].baseline is None


def test_a_verdict_travels_as_it_was_decided_with_the_errors_behind_it() -> None:
    row: dict[str, Any] = {
        "signal": "x",
        "horizon": "1d",
        "verdict": "better",
        "sentence": "So it is.",
        "best_baseline": "last_week",
    }
    row |= {"skill_best": 0.36, "skill_best_low": 0.2, "skill_best_high": 0.5}
    of_mean = {"signal": "x", "horizon": "1d", "rmse": 1.0, "baselines": {"last_week": {"rmse": 2.0}}}
    of_value = answer("x at +1d", 1.0, rmse=3.0, baselines={"last_week": {"rmse": 4.0}})
    of_value |= {"horizon": "1d"}
    for kind, errors in (("value", (3.0, 4.0)), ("mean", (1.0, 2.0))):
        verdict = read_verdict([of_mean | {"signals": [row | {"kind": kind}]}, of_value], "x")
        assert verdict[:7] == ("So it is.", "better", "last_week", 0.36, 0.2, 0.5, "1d")
        assert (verdict.rmse, verdict.baseline_rmse) == errors
        assert verdict.of_mean == (kind == "mean")
    assert read_verdict([of_value], "x", {"x": row | {"kind": "value"}}).rmse == 3.0  # that of a service
    assert read_verdict([of_mean], "y").sentence == ""
    assert "37 of 100" in read_verdict([answer("x at +1h", 1.0, known=37)], "x").sentence


def test_hostile_readings_give_an_outlook() -> None:
    """Constant, huge, missing and single readings, with and without forecasts."""
    columns = {"huge": 1e300, "still": 3.0, "missing": np.nan, "infinite": np.inf}
    for rows, timing in itertools.product((0, 1, 300), (Timing(None), HOURLY)):
        history = History(list(columns), timing)
        values = np.tile(list(columns.values()), (rows, 1))
        history.add(None if timing.step is None else MONDAY + 3600.0 * np.arange(rows), values)
        for signal in columns:
            origin = float(history.rows[0][-1]) if rows else 0.0
            forecasts = read_forecasts([answer(f"{signal} at +3 rows", 1.0)], origin, timing.step)[signal]
            for several in ([], forecasts):
                outlook = make_outlook(history, signal, several, read_verdict([], signal))
                assert len(outlook.time) == len(outlook.reading)
