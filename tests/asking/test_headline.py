"""The headline: values at each horizon and means up to it of every signal, on tables and saved."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from emphatic import nexting
from emphatic.answers.periods import find_periods
from emphatic.answers.timing import Timing
from emphatic.asking.answers import Asked
from emphatic.asking.headline import Headline, headline_questions
from emphatic.nexting import learning
from emphatic.nexting.runner import forecast_lines
from emphatic.nexting.settings import Settings
from emphatic.scores.measures import ErrorBlocks
from tests.asking.test_nexting import table

Array = NDArray[np.float64]
HOURLY = Timing(3600.0, True, 5400.0, True)


def signals(rows: int, seed: int = 0) -> Array:
    rng = np.random.default_rng(seed)
    t = np.arange(rows)
    noise = 0.3 * rng.normal(size=(rows, 3))
    return np.column_stack([np.sin(t / 4), np.cos(t / 12) * 5, np.where(t % 24 < 8, 2.0, 0.0)]) + noise


def headline(rows: int | None, horizons: Any = ("2h", "1d"), timing: Timing = HOURLY, names: str = "abc") -> Headline:
    return Headline(list(names), horizons, list(names), timing, rows=rows)


def test_values_and_means_are_named_as_the_language_writes_them() -> None:
    texts = [q.text for pair in headline_questions(["x", "side 1", "a`b"], [8, "1h"], 60.0).values() for q in pair]
    assert texts[:4] == ["x at +8", "mean of x over 8", "x at +1h", "mean of x over 1h"]
    assert texts[4:6] == ["`side 1` at +8", "mean of `side 1` over 8"]
    assert len(texts) == 8  # (a backtick cannot be quoted)
    assert not headline_questions(["x"], [2.5, "10s"], 60.0)


def in_blocks(blocks: ErrorBlocks, name: str, length: int) -> Array:
    """The sums of a column in blocks of that length."""
    joined = length // blocks.length
    sums: Array = blocks.sums(name)[:, 0].reshape(-1, joined).sum(axis=1)
    return np.append(sums, np.zeros(64 - len(sums)))


@pytest.mark.parametrize("timing", [HOURLY, Timing(None), Timing(3600.0, False, 5400.0, True)])
@pytest.mark.parametrize("missing", [0.0, 0.2])
def test_labels_are_those_of_questions_that_are_asked(timing: Timing, missing: float) -> None:
    x = signals(400)
    rng = np.random.default_rng(1)
    x[1:-1][rng.random((398, 3)) < missing] = np.nan
    gap = rng.random(400) < 0.02
    time = np.cumsum(3600.0 * (1.0 + 5 * gap)) if timing.step else None
    horizons = (3, 24)
    questions = [q.text for pair in headline_questions("abc", horizons, timing.step).values() for q in pair]
    asked = Asked(questions, list("abc"), timing, rows=400)
    asked(x, x, gap, time)
    both = Asked([], list("abc"), timing, rows=400, headline=headline(400, horizons, timing))
    both(x, x, gap, time)
    assert both.headline is not None
    for q, (ours, theirs) in enumerate(zip(both.scores(), asked.summary(), strict=True)):
        mine, answerer = both.headline._scored(q), asked._answerers[q]
        for name, power in (("persistence", 2), ("label", 1), ("label_square", 2)):
            length = max(mine._blocks.length, answerer._blocks.length)
            sums = in_blocks(answerer._blocks, name, length) * answerer.scale**power
            np.testing.assert_allclose(in_blocks(mine._blocks, name, length), sums, rtol=1e-9, atol=1e-9)
        assert ours["verdict"] in ("better", "no better", "too short")
        for key in ("text", "kind", "horizon", "scored", "dropped_windows", "usual_by"):
            assert ours[key] == theirs[key], key
        for name in ("persistence", "mean"):
            assert ours["baselines"][name]["rmse"] == pytest.approx(theirs["baselines"][name]["rmse"])
        if timing.regular and ours["mase"] is not None and theirs["mase"] is not None:
            assert ours["mase"] / ours["mae"] == pytest.approx(theirs["mase"] / theirs["mae"])


def test_neither_the_future_nor_blocks_change_an_answer() -> None:
    x = signals(500)
    when = 3600.0 * np.arange(500, dtype=np.float64)
    forecasts = np.repeat(x, 2, axis=1)
    whole = headline(500)(x, x, when, forecasts)
    cut = headline(500)
    pieces = [cut(x[i : i + 7], x[i : i + 7], when[i : i + 7], forecasts[i : i + 7]) for i in range(0, 500, 7)]
    np.testing.assert_array_equal(whole, np.concatenate(pieces))
    other = x.copy()
    other[300:] += 100.0
    np.testing.assert_array_equal(whole[:300], headline(500)(other, other, when, forecasts)[:300])


def test_a_state_that_does_not_fit_is_refused() -> None:
    first = headline(None)
    first(signals(300), signals(300), 3600.0 * np.arange(300, dtype=np.float64), None)
    broken = first.arrays()
    broken["P"] = broken["P"][:, :3]
    with pytest.raises(ValueError, match="does not fit: P"):
        headline(None).restore(broken)


def test_after_many_rows_that_every_second_is_learned_from_does_not_depend_on_blocks_either() -> None:
    x = signals(33_106)[:, :1].copy()
    when = 3600.0 * np.arange(33_106, dtype=np.float64)
    whole, cut, again = (headline(None, ("2h",), names="a") for _ in range(3))
    expected = whole(x, x, when, None)
    for begin, end in ((0, 32_767), (32_767, 32_783), (32_783, 33_000)):
        cut(x[begin:end], x[begin:end], when[begin:end], None)
    again.restore(cut.arrays())
    np.testing.assert_array_equal(again(x[33_000:], x[33_000:], when[33_000:], None), expected[33_000:])
    places = whole.arrays()["places"]  # (of a horizon: the first row that is stored, the end of those with a label)
    assert (places[:, 3] - places[:, 2]).max() >= 8, "every row was learned from at once"


def test_a_stream_is_judged_as_a_log_of_its_rows() -> None:
    # (whole blocks, so that halves begin at the same row)
    x, time = signals(2048), 3600.0 * np.arange(2048, dtype=np.float64)
    log, stream = headline(1536), headline(None)
    for one in (log, stream):
        one(x[:1536], x[:1536], time[:1536], None)
    for of_log, live in zip(log.about_values(), stream.about_values(), strict=True):
        best, judged = of_log.verdict().best_baseline, live.verdict()
        assert judged.best_baseline == best
        assert judged.skill_best == pytest.approx(of_log.verdict().skill_best)
        assert live.judged_errors(best) == pytest.approx(of_log.judged_errors(best))
        scores = of_log.summary()  # which are those of the second half
        assert live.judged_errors("last_day")["baseline_rmse"] == pytest.approx(scores["baselines"]["last_day"]["rmse"])
        assert live.judged_errors("mean")["baseline_rmse"] == pytest.approx(scores["baselines"]["mean"]["rmse"])
    # A stream that goes on from the model of a log is judged by the second half of all rows.
    model = headline(None)
    model.restore(log.arrays())
    assert model.about_values()[0].verdict() == log.about_values()[0].verdict()
    for one in (stream, model):
        one(x[1536:], x[1536:], time[1536:], None)
        judged_errors = one.about_values()[0].judged_errors("last_day")
        assert judged_errors == pytest.approx(stream.about_values()[0].judged_errors("last_day"))


def test_baselines_of_the_last_row_are_known_also_after_a_restart() -> None:
    x, time = signals(200), 3600.0 * np.arange(200, dtype=np.float64)
    one, again = headline(None, ("2h", "1d"), HOURLY), headline(None, ("2h", "1d"), HOURLY)
    assert one.baselines("b at +2h") == {}
    one(x, x, time, None)
    again.restore(one.arrays())
    for horizon, ahead in (("2h", 2), ("1d", 24)):
        baselines = again.baselines(f"b at +{horizon}")
        assert baselines == one.baselines(f"b at +{horizon}")
        assert baselines["persistence"] == x[-1, 1]
        assert baselines["last_day"] == x[199 + ahead - 24, 1]
        assert baselines["last_week"] == x[199 + ahead - 168, 1]
    assert again.baselines("nothing at +2h") == {}


def test_a_bound_that_readings_have_reached_ten_times_is_never_passed() -> None:
    x, time = np.clip(signals(1500), -0.7, 0.7), 3600.0 * np.arange(1500, dtype=np.float64)
    reached = int(np.flatnonzero(np.cumsum(x == 0.7, axis=0).min(axis=1) >= 10)[0])
    answers = headline(1500)(x, x, time, None)
    assert np.nanmax(answers[: reached - 10]) > 0.7
    assert np.nanmax(answers[reached:]) <= 0.7
    assert np.nanmin(answers[400:, :8]) >= -0.7  # (the third signal is seldom that low)


def test_answers_are_no_worse_than_simple_ones_and_intervals_hold() -> None:
    x = signals(3000)
    asked = headline(3000, ("3h", "1d"))
    asked(x, x, 3600.0 * np.arange(3000, dtype=np.float64), None)
    for score in asked.summary():
        simple = [score["baselines"][name] for name in ("persistence", "last_day", "climatology")]
        assert score["mae"] <= 1.02 * min(baseline["mae"] for baseline in simple), score["text"]
        assert score["variance_explained"] >= max(b["variance_explained"] for b in simple) - 0.01, score["text"]
        assert 0.7 < score["coverage"] < 0.9, score["text"]


@pytest.mark.parametrize("timing", [Timing(None), Timing(60.0, True, 90.0, True)])
def test_a_period_of_the_readings_is_repeated_and_is_a_baseline(timing: Timing) -> None:
    """Also where the log has dates but no day or week: bit for bit, however rows are cut, and after a gap."""
    t = np.delete(np.arange(700), slice(500, 520)) if timing.step else np.arange(700)
    x = np.column_stack([(t % 17).astype(float), np.random.default_rng(0).normal(size=len(t))])
    when = np.asarray(t * (timing.step or 1.0), np.float64)

    def make() -> Headline:
        return Headline(list("ab"), [5, 20], list("ab"), timing, rows=len(t), find_periods=find_periods)

    whole, cut = make(), make()
    answers = whole(x, x, when, None)
    pieces, begin = [], 0
    for length in (1, 1, 37, 1, 3, 200, 7, 350, len(t)):
        pieces.append(cut(x[begin : begin + length], x[begin : begin + length], when[begin : begin + length], None))
        begin += length
        again = make()
        again.restore(cut.arrays())
        cut = again
    assert np.array_equal(np.concatenate(pieces), answers, equal_nan=True)
    for name, array in whole.arrays().items():
        assert np.array_equal(cut.arrays()[name], array, equal_nan=True), name
    periodic, noise = whole.summary()[0], whole.summary()[4]
    assert periodic["baselines"]["last_period"]["rmse"] < 1e-9
    assert periodic["rmse"] < 0.3 < periodic["baselines"]["mean"]["rmse"]
    assert "last_period" not in noise["baselines"]
    assert not {"last_day", "last_week"} & {*noise["baselines"]}  # there was no day before


def test_a_day_is_found_by_the_calendar_and_not_by_its_period() -> None:
    x, time = signals(600), 3600.0 * np.arange(600, dtype=np.float64)
    log = Headline(list("abc"), ["2h"], list("abc"), HOURLY, rows=600, find_periods=find_periods)
    log(x, x, time, None)
    assert "last_day" in log.summary()[4]["baselines"]
    assert "last_period" not in log.summary()[4]["baselines"]
    assert "last_period" in log.summary()[0]["baselines"]  # every 25 rows


def test_a_horizon_between_two_rows_is_that_of_the_nearest_reading() -> None:
    assert headline(None, ("90min", "2h", "100min")).between_rows() == {"90min": "1 h", "100min": "2 h"}


@pytest.mark.parametrize("hostile", ["constant", "huge", "jump", "empty", "back"])
def test_hostile_readings_leave_finite_answers(hostile: str) -> None:
    x = signals(300)
    when = 3600.0 * np.arange(300, dtype=np.float64)
    if hostile == "constant":
        x[:] = 7.0
    elif hostile == "huge":
        x[::17] = 1e99
    elif hostile == "jump":
        x[:150], x[150:] = 0.0, 1e12
    elif hostile == "empty":
        x[:, 1] = np.nan
    else:
        when[150:] -= 100 * 3600.0
    out = headline(300)(x, np.nan_to_num(x), when, None)
    empty = np.isnan(x).all(0).repeat(4)
    assert np.isfinite(out[:, ~empty, 0]).all()
    assert np.isnan(out[:, empty, 0]).all()
    if hostile == "constant":
        np.testing.assert_allclose(out[:, :, 0], 7.0)


def test_another_signal_that_is_missing_leaves_the_labels_of_the_others() -> None:
    x = signals(300)
    x[100:200, 1] = np.nan
    asked = headline(300, (2,))
    asked(x, np.nan_to_num(x), 3600.0 * np.arange(300, dtype=np.float64), None)
    known = {score["text"]: score["known"] for score in asked.summary()}
    assert known["a at +2"] == known["c at +2"] == 298
    assert known["b at +2"] == 198


def run(**options: Any) -> nexting.NextingResult:
    arguments: dict[str, Any] = {"horizons": [2, "6h"], "offline": False} | options
    return nexting.run(table(), **arguments)


@pytest.mark.usefixtures("headline")
def test_a_run_without_further_words_has_the_headline(tmp_path: Path) -> None:
    result = run(out=tmp_path / "out", ask="x at +6h")
    plain = run(exponential_only=True)
    columns = result.predictions.column_names
    for text in ("x at +2", "mean of x over 6h", "`the x` at +6h", "mean of `the x` over 2"):
        assert {text, f"{text}.low", f"{text}.high", f"{text}.usual"} <= set(columns)
    assert columns.count("x at +6h") == 1  # (asked: it is not in the headline as well)
    for name in plain.predictions.column_names:
        np.testing.assert_array_equal(result.predictions.column(name).to_numpy(), plain.predictions.column(name))
    summary = json.loads((tmp_path / "out" / "summary.json").read_text("utf-8"))
    exponential, headlines = summary[:4], summary[4:-1]
    of_values, of_means = exponential[0].pop("signals"), plain.summary[0].pop("signals")
    assert [{**score, "reading": 0} for score in exponential] == [{**score, "reading": 0} for score in plain.summary]
    assert ({row["kind"] for row in of_values}, {row["kind"] for row in of_means}) == ({"value"}, {"mean"})
    page = (tmp_path / "out" / "report.html").read_text("utf-8")
    assert all(row["sentence"] in page for row in of_values)  # decided once: terminal, result and report say the same
    assert len(headlines) == 7
    assert all(score["headline"] and score["signal"] in ("x", "the x") for score in headlines)
    assert {"text", "kind", "horizon", "known", "dropped_windows", "answer", "low", "high", "usual"} <= set(
        headlines[0]
    )
    assert {"mae", "mase", "variance_explained", "coverage", "coverage_by_hour", "interval_score"} <= set(headlines[0])
    assert {"persistence", "climatology", "last_day", "last_week"} <= set(headlines[0]["baselines"])
    assert summary[-1]["text"] == "x at +6h"
    assert "headline" not in summary[-1]
    assert np.float32(headlines[0]["answer"]) == result.predictions.column(headlines[0]["text"]).to_numpy()[-1]
    title, of_x, of_the_x = forecast_lines(summary, 0.8)  # (on the terminal; what was asked is printed as a sentence)
    assert title == "Forecast from the last row, with 80% intervals:"
    assert of_x.startswith("  x: ")
    assert of_the_x.endswith(" at +6h")


@pytest.mark.usefixtures("headline")
def test_very_many_signals_have_no_headline_unless_it_is_asked_for() -> None:
    names = tuple(f"s{i}" for i in range(80))
    settings = Settings(predict=names, horizons=(2,))
    assert learning.make_headline(settings, names, Timing(None)) is None
    (note,) = learning.describe_headline(settings, None)
    assert "ask for one with 'ask'" in note
    wanted = Settings(predict=names, horizons=(2,), exponential_only=False)
    every = learning.make_headline(wanted, names, Timing(None))
    assert every is not None
    assert every.features == 0  # each sees only itself
    x = np.random.default_rng(0).normal(size=(120, 80))
    assert np.isfinite(every(x, x, np.arange(120.0), None)[:, :, 0]).all()
    few = learning.make_headline(Settings(predict=("s0",), horizons=(2,)), names, Timing(None))
    assert learning.describe_headline(settings, few) == []
