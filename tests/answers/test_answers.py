"""Answers to questions: no row sees what follows, blocks and saving change no bit, and what is known is found."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from emphatic.answers import Answers
from emphatic.asking.answers import Timing
from emphatic.tables import Block, Clock, ReadingGuard

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
        guard.mark(Block(a, values[a : a + size], None if when is None else when[a : a + size], {}, gap=gap[a : a + size]))
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
