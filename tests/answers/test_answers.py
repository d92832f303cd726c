"""Answers to questions: no row sees what follows, blocks and saving change no bit, and what is known is found."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from emphatic.nexting.answers.answers import Answers
from emphatic.nexting.answers.timing import Timing
from emphatic.nexting.tables import Block, ReadingGuard

Array = NDArray[np.float64]
HOURLY = Timing(3600.0, True, 5400.0, True)
IRREGULAR = Timing(60.0, False, 600.0, True)
PLAIN = Timing(None)
ALL = (
    "x at +3", "mean of x over 24", "x@6", "sum of y over 5", "integral of y over 30 in s", "max of x within 7",
    "min of y within 20", "share of time x > 0.3 over 24", "P(x > 0.8 within 6)", "P(y < x at +2)",
    "time until x > 1 up to 40", "x - y at +4", "y at +90",
)  # fmt: skip
TIMINGS = pytest.mark.parametrize("timing", [HOURLY, IRREGULAR, PLAIN], ids=["hourly", "irregular", "rows"])


def rows(count: int, seed: int = 0) -> Array:
    """Two signals, one of which leads the other; some readings are missing."""
    rng, t = np.random.default_rng(seed), np.arange(count + 2)
    x = np.sin(t / 24 * 2 * np.pi) + 0.3 * np.sin(t / 7) + 0.2 * rng.normal(size=count + 2)
    values = np.column_stack([x[:count], 0.5 * x[2:] + 0.1 * rng.normal(size=count)])
    values[rng.random(values.shape) < 0.02] = np.nan
    return values


def times(count: int, timing: Timing, seed: int = 0) -> Array | None:
    """Times of rows: with a few gaps, and once going back; irregular ones come at random."""
    if timing.step is None:
        return None
    rng = np.random.default_rng(seed)
    steps = np.ones(count) if timing.regular else rng.exponential(1.0, count)
    steps[rng.random(count) < 0.01] += rng.integers(2, 30)
    steps[count // 3] = -50.0
    when: Array = 1.6e9 + timing.step * np.cumsum(steps)
    return when


def blocks(values: Array, timing: Timing, size: int, when: Array | None = None) -> list[Block]:
    """The rows in blocks of a size, with their gaps."""
    gap = np.zeros(len(values), bool)
    if when is None:
        gap[len(values) // 2] = True
    else:
        step = np.diff(when, prepend=when[0])
        gap = (step > timing.limit) | (step < 0.0)
    guard = ReadingGuard(values.shape[1]).warm_up(values[:100])
    cut = range(0, len(values), size)
    return [
        guard.mark(
            Block(a, values[a : a + size], None if when is None else when[a : a + size], {}, gap=gap[a : a + size])
        )
        for a in cut
    ]


def run(answers: Answers, values: Array, timing: Timing, size: int, when: Array | None = None) -> Array:
    """The answers at all rows."""
    return np.concatenate([answers(block) for block in blocks(values, timing, size, when)])


def answered(values: Array, timing: Timing, size: int, questions: Sequence[str] = ALL, **options: Any) -> Array:
    """The answers at all rows of a new stream."""
    when = times(len(values), timing)
    return run(Answers(["x", "y"], questions, timing, **options), values, timing, size, when)


@TIMINGS
def test_no_row_sees_what_follows(timing: Timing) -> None:
    values = rows(900)
    expected = answered(values, timing, 300)
    assert np.isfinite(expected[40:, :, 0]).all()
    assert np.ptp(expected[600:, :, 0], axis=0).min() > 0.0
    for row in (401, 640):
        noise = values.copy()
        noise[row:] = np.random.default_rng(1).normal(size=noise[row:].shape)
        np.testing.assert_array_equal(answered(noise, timing, 300)[:row], expected[:row])


@TIMINGS
@pytest.mark.parametrize("size", [1, 7, 64])
def test_blocks_change_no_bit(timing: Timing, size: int) -> None:
    values = rows(700)
    np.testing.assert_array_equal(answered(values, timing, size), answered(values, timing, 4096))


@TIMINGS
def test_a_stream_continues_from_what_was_saved(timing: Timing) -> None:
    values, when = rows(800), times(800, timing)
    expected = run(Answers(["x", "y"], ALL, timing), values, timing, 800, when)
    cut = blocks(values, timing, 450, when)
    first = Answers(["x", "y"], ALL, timing)
    first(cut[0])
    state = first.state()
    assert all(array.dtype.names is None for array in state.values() if isinstance(array, np.ndarray))
    second = Answers(["x", "y"], ALL, timing)
    second.restore(state)
    first(cut[1])  # (what was saved is a copy)
    np.testing.assert_array_equal(second(cut[1]), expected[450:])
    assert second.summary() == first.summary()
    with pytest.raises(ValueError, match="other questions"):
        Answers(["x", "y"], ALL[:3], timing).restore(state)


def label(kind: str, y: Array, when: Array, t: int, h: float, timing: Timing, wait: float) -> float:
    """The label of row t by the rows of (t, t + h], one by one; NaN if it is not known ``wait`` after the window."""
    step, slack = timing.step or 1.0, 0.1 if timing.regular else 1e-6
    start = when[t]
    backwards = t + 1 + np.flatnonzero(np.diff(when[t:]) < 0.0)
    back = int(backwards[0]) if len(backwards) else len(when)
    if when[back - 1] < start + h + wait - slack * step:  # time goes back, or the log ends, before that
        return np.nan
    after = np.arange(t + 1, back)
    if kind == "at":
        near = [k for k in after if abs(when[k] - start - h) <= (0.5 + 1e-6) * step and not np.isnan(y[k])]
        return float(y[min(near, key=lambda k: abs(when[k] - start - h))]) if near else np.nan
    window = after[when[after] <= start + h + slack * step]
    if timing.regular:
        expected = float(np.floor(h / step + slack))
    else:
        steps = np.diff(np.append(when[[t, *window]], start + h))
        expected = len(window) + sum(s / step - 1.0 for s in steps if s > timing.limit)
    read = window[~np.isnan(y[window])]
    if not len(read) or len(read) < 0.9 * expected - 1e-9:
        return np.nan
    if kind == "until":
        hits = read[y[read] > 0.0]
        return float(min((when[hits[0]] - start) / h, 1.0)) if len(hits) else 1.0
    if kind == "mean":
        return float(np.mean(y[read]))
    extreme = np.min(y[read]) if kind == "min" else np.max(y[read])
    return float(extreme > 0.0) if kind == "any" else float(extreme)


@TIMINGS
def test_labels_are_those_of_the_definitions(timing: Timing) -> None:
    values, count = rows(700), 700
    when = times(count, timing)
    x, y = values.T
    questions = {
        "x at +3": ("at", x, 3, 1.0), "mean of x over 24": ("mean", x, 24, 1.0), "sum of y over 5": ("mean", y, 5, 5.0),
        "max of x within 7": ("max", x, 7, 1.0), "min of y within 20": ("min", y, 20, 1.0),
        "share of time x > 0.3 over 24": ("mean", x > 0.3, 24, 1.0), "P(x > 0.8 within 6)": ("any", x > 0.8, 6, 1.0),
        "P(y < x at +2)": ("at", y < x, 2, 1.0), "x - y at +4": ("at", x - y, 4, 1.0),
        "time until x > 1 up to 30": ("until", x > 1.0, 30, 30.0 * (timing.step or 1.0)),
    }  # fmt: skip
    answers = Answers(["x", "y"], list(questions), timing, rows=count)
    out = run(answers, values, timing, 100, when)
    step = timing.step or 1.0
    if when is None:  # (a gap leaves out one row)
        when = np.arange(count) + (np.arange(count) >= count // 2) * 1.0
    ahead = np.rint(np.diff(when, prepend=when[0] - step) / step)
    places = np.cumsum(np.maximum(ahead, 1.0)) - 1.0 if timing.regular else np.arange(count)  # with rows that lack
    for q, (summary, (kind, reading, h, scale)) in enumerate(zip(answers.summary(), questions.values(), strict=True)):
        names = set(re.findall(r"\b[xy]\b", summary["text"]))
        missing = np.isnan(values[:, ["xy".index(name) for name in names]]).any(axis=1)
        reading = np.where(missing, np.nan, reading)
        # (a reading half a step later may be nearer to the end of a window: values and means wait for it together)
        wait = 0.5 * step if not timing.regular and summary["kind"] in ("at", "event_at", "mean", "sum") else 0.0
        labels = np.array([label(kind, reading, when, t, h * step, timing, wait) for t in range(count)]) * scale
        use = ~np.isnan(labels) & (places >= 20)
        half = use & (np.arange(count) >= count // 2)
        assert summary["known"] == use.sum(), summary["text"]
        error = out[half, q, 0] - labels[half]
        assert summary["rmse"] == pytest.approx(np.sqrt(np.mean(error**2)), rel=1e-9), summary["text"]
        assert summary["mae"] == pytest.approx(np.mean(np.abs(error)), rel=1e-9)
        assert summary["variance_explained"] == pytest.approx(1.0 - np.mean(error**2) / np.var(labels[half]), rel=1e-6)
        if summary["kind"] not in ("event", "event_at"):
            inside = (out[half, q, 1] <= labels[half] + 1e-12) & (labels[half] <= out[half, q, 2] + 1e-12)
            assert summary["coverage"] == pytest.approx(inside.mean(), abs=1e-9)
            # (where nothing happens for long, the time is known)
            assert 0.65 < summary["coverage"] < (0.95 if kind != "until" else 1.0)
