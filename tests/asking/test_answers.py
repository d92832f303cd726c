"""Labels against a plain loop, and answers: causal, bounded, calibrated, the same however the rows are cut."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from emphatic.answers.timing import Timing
from emphatic.asking.answers import Asked

Array = NDArray[np.float64]
QUESTIONS = (
    "P(x > 0.3 within 4 rows)",
    "P(x > 0.3 at +3 rows)",
    "x at +4 rows",
    "time until x > 0.3 up to 5 rows",
    "sum of x over 4 rows",
    "mean of x over 12 rows",
    "integral of x over 4 rows in h",
    "share of time x > 0.3 over 4 rows",
    "max of x within 4 rows",
    "min of x within 12 rows",
)


def run(
    texts: Sequence[str],
    x: Array,
    time: Array | None,
    timing: Timing,
    cuts: Sequence[int] = (),
    rows: int | None = None,
) -> tuple[Asked, dict[str, Array]]:
    asked = Asked(texts, ["x"], timing, rows=len(x) if rows is None else rows)
    gap = np.zeros(len(x), bool)
    edges = [0, *cuts, len(x)]
    blocks = []
    for begin, end in pairwise(edges):
        values = x[begin:end, None]
        blocks.append(asked(values, values, gap[begin:end], None if time is None else time[begin:end]))
    return asked, {kind: np.concatenate([block[kind] for block in blocks]) for kind in blocks[0]}


def plain_label(kind: str, t: int, x: Array, time: Array, span: float, timing: Timing) -> float:
    """The definition, by plain lists; NaN if the label is not known.

    Where rows come when they come, those that are expected are those that came, and of each gap those that would have.
    """
    step, end = timing.step or 1.0, time[t] + span
    later = list(range(t + 1, len(x)))
    if not any(time[i] >= end for i in later):
        return math.nan
    if kind.endswith("at"):
        near = [(abs(time[i] - end), i) for i in later if not math.isnan(x[i]) and abs(time[i] - end) <= 0.5 * step]
        if not near:
            return math.nan
        nearest = float(x[min(near)[1]])
        return float(nearest > 0.3) if kind == "event_at" else nearest
    window = [i for i in later if time[i] <= end]
    edges = [float(time[t]), *(float(time[i]) for i in window), end]
    lost = sum((b - a) / step - 1.0 for a, b in pairwise(edges) if b - a > timing.limit)
    expected = round(span / step) if timing.regular else len(window) + lost
    values = [float(x[i]) for i in window if not math.isnan(x[i])]
    if not values or len(values) < 0.9 * expected:
        return math.nan
    hits = [float(time[i] - time[t]) for i in window if x[i] > 0.3]
    mean = sum(values) / len(values)
    labels: dict[str, float] = {
        "event": float(bool(hits)),
        "until": hits[0] if hits else span,
        "sum": mean * (expected if timing.regular else span / step),
        "mean": mean,
        "integral": mean * span / 3600.0,
        "share": sum(value > 0.3 for value in values) / len(values),
        "max": max(values),
        "min": min(values),
    }
    return labels[kind]


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10**6), st.sampled_from([0.0, 0.02, 0.2]), st.sampled_from([0.0, 0.05]), st.booleans())
def test_labels_are_those_of_the_definition(seed: int, missing: float, gaps: float, timed: bool) -> None:
    rng = np.random.default_rng(seed)
    T, step = 80, 60.0 if timed else 1.0
    x = np.where(rng.random(T) < missing, np.nan, rng.normal(size=T))
    time = step * np.cumsum(1.0 + rng.integers(1, 6, T) * (timed & (rng.random(T) < gaps)))
    timing = Timing(step, True, 1.5 * step) if timed else Timing(None)
    asked, _ = run(QUESTIONS, x, time if timed else None, timing)
    for q, question in enumerate(asked.questions):
        span = question.span(step if timed else None)
        labels = asked.recent(q)["label"]
        for t in range(T):
            label = plain_label(question.kind, t, x, time, span, timing)
            assert labels[t] == pytest.approx(label, rel=1e-12, abs=1e-12, nan_ok=True), (question.text, t)
        score = asked.summary()[q]
        assert score["known"] <= np.isfinite(labels).sum()


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10**6), st.sampled_from([0.0, 0.05]), st.sampled_from([0.0, 0.05]), st.booleans())
def test_labels_on_irregular_stamps_are_those_of_the_definition(
    seed: int, missing: float, gaps: float, again: bool
) -> None:
    rng = np.random.default_rng(seed)
    T, timing = 120, Timing(60.0, False, 400.0)
    steps = rng.exponential(60.0, T) * np.where(rng.random(T) < gaps, 30.0, 1.0)
    steps[rng.random(T) < 0.05 * again] = 0.0  # (the same stamp twice)
    time = 1e6 + np.cumsum(steps)
    x = np.where(rng.random(T) < missing, np.nan, rng.normal(size=T))
    texts = [text.replace("12 rows", "7.3min").replace("5 rows", "11min") for text in QUESTIONS]
    asked, _ = run(texts, x, time, timing)
    for q, question in enumerate(asked.questions):
        labels, span = asked.recent(q)["label"], question.span(60.0)
        for t in range(T):
            if again and sum(time == time[t]) > 1:
                continue  # (whether a row of the same stamp comes later is not defined)
            label = plain_label(question.kind, t, x, time, span, timing)
            assert labels[t] == pytest.approx(label, rel=1e-9, abs=1e-9, nan_ok=True), (question.text, t)


def test_one_absurd_reading_spoils_no_later_answer() -> None:
    x, time = wave(1200)
    guarded = x.copy()
    x[300], guarded[300] = 1e5, 9.0
    texts = ["x at +2h", "mean of x over 6h", "max of x within 3h", "P(x > 100 within 2h)"]
    asked = Asked(texts, ["x"], HOURLY, rows=1200)
    asked(x[:, None], guarded[:, None], np.zeros(1200, bool), time)
    for score in asked.summary()[:3]:
        assert score["variance_explained"] > 0.5, score["text"]
    assert asked.recent(3)["label"][299] == 1.0  # (a condition is about what was read)


def test_a_signal_that_was_constant_at_first_is_learned() -> None:
    x = np.r_[np.zeros(200), np.sin(np.arange(1000) / 9)]
    asked, _ = run(["x at +5", "mean of x over 12"], x, None, Timing(None))
    for score in asked.summary():
        assert score["variance_explained"] > 0.9, score["text"]


@pytest.mark.parametrize("best", ["persistence", "past_mean"])
def test_a_number_is_hardly_worse_than_the_best_simple_answer(best: str) -> None:
    x = np.random.default_rng(3).normal(size=3000)
    x = np.cumsum(x) if best == "persistence" else x
    asked, _ = run(["x at +12", "mean of x over 24", "max of x within 6"], x, None, Timing(None))
    for score in asked.summary():
        simple = score["baselines"][best]
        assert score["mae"] <= 1.03 * simple["mae"], score["text"]
        assert score["rmse"] <= 1.03 * simple["rmse"], score["text"]


def test_a_bound_that_values_have_reached_ten_times_is_never_passed() -> None:
    x = np.clip(2.0 * np.sin(np.arange(800) / 20.0) + np.random.default_rng(0).normal(size=800), -1.0, 1.0)
    _, derived = run(["x at +4 rows", "max of x within 4 rows", "min of x within 4 rows"], x, None, Timing(None))
    ends = np.concatenate([derived[kind][400:] for kind in ("answer", "low", "high")])
    assert (np.nanmin(ends), np.nanmax(ends)) == (-1.0, 1.0)


def test_intervals_of_a_signal_that_is_mostly_off_hold_at_every_hour() -> None:
    rng = np.random.default_rng(2)
    _, time = wave(6000)
    hour = (time // 3600) % 24
    chance = np.where((hour > 14) & (hour < 20), 0.3, 0.02)
    x = np.where(rng.random(6000) < chance, rng.exponential(size=6000), 0.0)
    asked, _ = run(["x at +3h", "mean of x over 6h"], x, time, HOURLY)
    for score in asked.summary():
        assert len(score["coverage_by_hour"]) == 24
        assert min(score["coverage_by_hour"]) > 0.55, score["text"]


def test_times_that_are_a_little_off_close_windows_all_the_same() -> None:
    rng = np.random.default_rng(4)
    time = 3600.0 * np.arange(300.0) + rng.uniform(-100.0, 100.0, 300)
    x = rng.normal(size=300)
    texts = ["mean of x over 3h", "P(x > 0.3 within 1h)", "x at +2h", "max of x within 90min"]
    asked, _ = run(texts, x, time, Timing(3600.0, True, 5400.0))
    for q, ahead in enumerate((3, 1, 2, 2)):
        labels = asked.recent(q)["label"]
        assert np.isfinite(labels[: 300 - ahead]).all()
        assert labels[5] == pytest.approx((x[6:9].mean(), float(x[6] > 0.3), x[7], x[6])[q])


def test_time_that_goes_back_closes_no_window() -> None:
    time = np.concatenate([np.arange(50.0), np.arange(50.0)])
    x = np.arange(100.0)
    asked, _ = run(["x at +3"], x, time, Timing(1.0, True, 1.5))
    labels = asked.recent(0)["label"]
    assert labels[46] == 49.0
    assert np.isnan(labels[47:50]).all()
    assert labels[50] == 53.0
    assert asked.summary()[0]["dropped_windows"] == 3


def wave(T: int, seed: int = 0) -> tuple[Array, Array]:
    rng = np.random.default_rng(seed)
    time: Array = 1.7e9 // 3600 * 3600 + 3600.0 * np.arange(T, dtype=np.float64)
    noise = np.zeros(T)
    for t in range(1, T):
        noise[t] = 0.9 * noise[t - 1] + rng.normal()
    return np.sin(time / 86400 * 2 * np.pi) * 4 + noise, time


HOURLY = Timing(3600.0, True, 5400.0, True)
ASKED = (
    "P(x > 3 within 3h)",
    "P(x > 3 at +2h)",
    "x at +6h",
    "time until x > 3 up to 1d",
    "sum of x over 6h",
    "share of time x > 3 over 6h",
    "max of x within 6h",
)


def test_answers_do_not_depend_on_the_future_or_on_blocks() -> None:
    x, time = wave(700)
    x[100:104] = np.nan
    asked, answers = run(ASKED, x, time, HOURLY)
    _, cut = run(ASKED, x, time, HOURLY, cuts=[1, 2, 77, 400, 401])
    other, _ = wave(700, seed=1)
    _, future = run(ASKED, np.concatenate([x[:500], other[500:]]), time, HOURLY)
    for kind, values in answers.items():
        np.testing.assert_array_equal(values, cut[kind])
        np.testing.assert_array_equal(values[:500], future[kind][:500])
    assert len(asked.names) == 4 * len(ASKED)


def test_a_saved_state_goes_on_bit_for_bit() -> None:
    x, time = wave(500)
    whole, answers = run(ASKED, x, time, HOURLY)
    half = Asked(ASKED, ["x"], HOURLY, rows=500)
    half(x[:300, None], x[:300, None], np.zeros(300, bool), time[:300])
    resumed = Asked(ASKED, ["x"], HOURLY, rows=500)
    resumed.restore(half.state())
    after = resumed(x[300:, None], x[300:, None], np.zeros(200, bool), time[300:])
    for kind, values in answers.items():
        np.testing.assert_array_equal(values[300:], after[kind])
    for name, array in whole.state().items():  # what is saved does not tell when it was loaded
        np.testing.assert_array_equal(array, resumed.state()[name], err_msg=name)
    damaged = half.state() | {"asked.0.P": np.zeros((1, 2, 2))}
    with pytest.raises(ValueError, match="does not fit"):
        Asked(ASKED, ["x"], HOURLY).restore(damaged)


def test_a_question_comes_and_goes_without_a_trace_in_the_others() -> None:
    x, time = wave(400)
    gap = np.zeros(400, bool)
    _, answers = run(ASKED[:2], x, time, HOURLY)
    asked = Asked(ASKED[:2], ["x"], HOURLY, rows=400)
    asked(x[:100, None], x[:100, None], gap[:100], time[:100])
    asked.add("x at +1h")
    added = asked(x[100:200, None], x[100:200, None], gap[100:200], time[100:200])["answer"]
    fresh = Asked(["x at +1h"], ["x"], HOURLY)  # (it has learned nothing of the rows before)
    alone = fresh(x[100:200, None], x[100:200, None], gap[100:200], time[100:200])["answer"]
    np.testing.assert_array_equal(added[:, 2], alone[:, 0])
    assert 0 < asked.summary()[2]["known"] < 100
    asked.remove("x at +1h")
    after = asked(x[200:, None], x[200:, None], gap[200:], time[200:])
    for kind, values in answers.items():
        np.testing.assert_array_equal(values[200:], after[kind])
    with pytest.raises(ValueError, match="is not among the questions"):
        asked.remove("x at +1h")


@pytest.mark.parametrize(
    "x", [np.zeros(300), np.full(300, np.nan), np.full(300, 1e99), np.r_[np.zeros(150), np.full(150, 1e12)]]
)
def test_answers_stay_within_what_is_possible(x: Array) -> None:
    rng = np.random.default_rng(0)
    for values in (x, np.where(rng.random(300) < 0.5, x, rng.normal(size=300))):
        _, answers = run(ASKED, values, HOURLY_TIMES[:300], HOURLY)
        answer = answers["answer"]
        assert np.isfinite(answer[:, [0, 1, 3, 5]]).all()
        for q, most in ((0, 1.0), (1, 1.0), (3, 86400.0), (5, 1.0)):
            assert answer[:, q].min() >= 0.0
            assert answer[:, q].max() <= most
        low, high = answers["low"], answers["high"]
        assert not (low > answer).any()
        assert not (answer > high).any()


HOURLY_TIMES: Array = 1.7e9 // 3600 * 3600 + 3600.0 * np.arange(4000, dtype=np.float64)


def test_probabilities_are_calibrated_and_numbers_beat_simple_answers() -> None:
    x, time = wave(4000)
    asked, answers = run(ASKED, x, time, HOURLY)
    scores: dict[str, dict[str, Any]] = {score["text"]: score for score in asked.summary()}
    for text in ASKED[:2]:
        score = scores[text]
        assert score["ece"] < 0.03
        assert min(score["skill"].values()) > 0.1
        assert set(score["skill"]) == {"rate", "climatology", "so_now"}
    for text in ASKED[2:]:
        score = scores[text]
        assert set(score["skill"]) == {"persistence", "mean", "past_mean", "climatology", "last_day", "last_week"}
        assert min(score["skill"].values()) > 0.0, text
        assert 0.7 < score["coverage"] < 0.9
        assert len(score["coverage_by_hour"]) == 24
    # The scores are those of the answers.
    labels = asked.recent(2)["label"]
    inside = np.isfinite(labels)
    error = np.abs(answers["answer"][2000:, 2] - labels)[inside]
    assert scores["x at +6h"]["mae"] == pytest.approx(error.mean(), rel=1e-9)
    naive = np.abs(x[24:2000] - x[: 2000 - 24]).mean()
    assert scores["x at +6h"]["mase"] == pytest.approx(error.mean() / naive, rel=1e-9)
    assert scores["time until x > 3 up to 1d"]["td"]["variance_explained"] > 0.0
