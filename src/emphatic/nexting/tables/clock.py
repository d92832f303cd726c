"""What is carried from block to block: the time, by which gaps are found, and the last value of each signal."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from emphatic.common.settings import MONTH

__all__ = ["Clock", "Hold"]

#: Gaps that the report lists.
_LONGEST = 10
#: Months of the calendar, and several together, differ from so many mean months by less than this.
_CALENDAR = 3.5 * 86400.0
_COUNTS = ("rows", "gaps", "backwards", "repeats", "irregular", "missing")


class Clock:
    """Finds the gaps in the times of a log, block after block.

    Args:
        first: The times of the log's first rows, from which the typical step is computed.
        joined: Whether the log was joined from several, so that rows may come in bursts.

    The typical step s is the median of the steps forward among the log's first times. A log is regular if nine
    of ten steps are within a tenth of s. There is a gap before a row if

    - the step is longer than ``limit``: 1.5 s in a regular log, in others max(5 s, 3 q) where q is the step that one
      in twenty exceeds (steps that arrive at random then pass once in some ten thousand);
    - or time goes backwards;
    - or a row between the two was dropped.

    If rows are months, quarters or years of the calendar, which differ in length, ``step`` is the mean one. A time that
    repeats is counted, and is not a gap. If most times repeat, time stamps are coarser than rows, and ``step`` is the
    mean step. The same holds for an irregular log that was ``joined`` from several, whose rows may come in bursts.
    There is no gap before a row without a time; the step over such rows is divided among them. There is no gap before
    the first row.

    ``rows``, ``gaps`` (with the ``backwards`` among them), ``repeats``, ``irregular`` (forward steps other than s by
    more than a tenth) and ``missing`` are counted; ``longest`` keeps the longest gaps as (row, time before, after).

    >>> clock = Clock(np.arange(10.0))
    >>> clock.step, clock.regular, clock.limit
    (1.0, True, 1.5)
    >>> clock.find_gaps(np.array([0.0, 1.0, 2.0, 7.0])).tolist()
    [False, False, False, True]
    >>> clock.find_gaps(np.array([8.0, np.nan, 10.0, 3.0])).tolist()
    [False, False, False, True]
    >>> clock.gaps, clock.backwards, clock.longest
    (2, 1, [(3, 2.0, 7.0)])
    """

    def __init__(self, first: NDArray[np.float64], joined: bool = False) -> None:
        # Steps back and repeats tell nothing about the sampling rate.
        steps = np.diff(first[np.isfinite(first)])
        forward = steps[steps > 0]
        usual = float(np.median(forward)) if len(forward) else np.nan
        repeats = int((steps == 0).sum())
        self.regular = bool(len(forward)) and bool(np.mean(np.abs(forward - usual) <= 0.1 * usual) >= 0.9)
        q = float(np.quantile(forward, 0.95)) if len(forward) else np.nan
        #: The usual step; NaN if no time was ever seen to go forward, and then no step is too long.
        self.step = usual
        # Where a row is missing, the step of a regular log is twice as long. Random arrivals have exponential steps, of
        # which 0.05³, about one in ten thousand, are longer than three times the 0.95 quantile.
        self.limit = 1.5 * usual if self.regular else max(5.0 * usual, 3.0 * q)
        months = round(usual / MONTH) if usual >= 0.9 * MONTH else 0
        if months and self.regular and np.ptp(forward) > 0.0 and np.all(np.abs(forward - months * MONTH) < _CALENDAR):
            self.step = months * MONTH
        if repeats > len(forward) or (joined and len(forward) and not self.regular):
            within = forward[forward <= self.limit]
            self.step = float(within.sum() / (len(within) + repeats))
            self.regular = False
        self.rows = self.gaps = self.backwards = self.repeats = self.irregular = self.missing = 0
        self.longest: list[tuple[int, float, float]] = []
        self._last = np.nan
        self._since = 0  # rows since the last one that had a time

    @property
    def last(self) -> float:
        """The last time; NaN before the first."""
        return self._last

    def find_gaps(self, time: NDArray[np.float64], after_drop: NDArray[np.bool_] | None = None) -> NDArray[np.bool_]:
        """For each of the next rows, whether there is a gap before it.

        Args:
            time: The times of the rows (B,), NaN where missing.
            after_drop: The rows (B,) before which a row was dropped.
        """
        if len(time) == 1:
            return np.array([self.find_gap(float(time[0]), after_drop is not None and bool(after_drop[0]))])
        known = np.flatnonzero(np.isfinite(time))
        gap = np.zeros(len(time), bool)
        if after_drop is not None:
            gap |= after_drop
        self.gaps += int(gap.sum())
        self.missing += len(time) - len(known)
        if len(known):
            previous = np.concatenate([[self._last], time[known[:-1]]])
            # Rows from one known time to the next: the step over rows without a time is shared among them.
            rows = np.diff(known, prepend=-1 - self._since)
            step = (time[known] - previous) / rows
            back = step < 0  # NaN, before the first time of all, is neither
            far = step > self.limit
            self.gaps += int(((back | far) & ~gap[known]).sum())
            gap[known] |= back | far
            self.backwards += int(back.sum())
            self.repeats += int((step == 0).sum())
            self.irregular += int((np.abs(step - self.step) > 0.1 * self.step)[step > 0].sum())
            jumps = [
                (self.rows + int(known[i]), float(previous[i]), float(time[known[i]])) for i in np.flatnonzero(far)
            ]
            # Sorting is stable: of equal gaps the earlier stays, however the rows are cut in blocks.
            self.longest = sorted(self.longest + jumps, key=lambda g: g[1] - g[2])[:_LONGEST]
            self._last = float(time[known[-1]])
        self._since = len(time) - 1 - int(known[-1]) if len(known) else self._since + len(time)
        self.rows += len(time)
        return gap

    def find_gap(self, time: float, after_drop: bool = False) -> bool:
        """``find_gaps`` of one row, by the same floating-point operations without arrays: a live reading takes 1 µs.

        Args:
            time: The time of the next row, NaN where it is missing.
            after_drop: Whether a row before it was dropped.
        """
        row = self.rows
        self.rows = row + 1
        gap = after_drop
        if not math.isfinite(time):
            self.missing += 1
            self._since += 1
            self.gaps += gap
            return gap
        previous = self._last
        step = (time - previous) / (1 + self._since)
        if step > 0:
            self.irregular += abs(step - self.step) > 0.1 * self.step
            if step > self.limit:
                gap = True
                self.longest = sorted([*self.longest, (row, previous, time)], key=lambda g: g[1] - g[2])[:_LONGEST]
        elif step < 0:  # NaN, before the first time of all, is neither
            gap = True
            self.backwards += 1
        elif step == 0:
            self.repeats += 1
        self.gaps += gap
        self._last, self._since = time, 0
        return gap

    def copy(self) -> Clock:
        """An independent copy of the clock, in the same state."""
        clock = Clock.__new__(Clock)
        clock.__dict__.update(self.__dict__)  # ``longest`` is replaced and never changed in place
        return clock

    def state(self) -> dict[str, Any]:
        """The whole state, as JSON can hold it."""
        numbers = {name: _or_none(getattr(self, name)) for name in ("step", "limit", "_last")}
        counts = {name: getattr(self, name) for name in (*_COUNTS, "_since", "regular")}
        return {**numbers, **counts, "longest": [list(gap) for gap in self.longest]}

    @classmethod
    def restore(cls, state: dict[str, Any]) -> Clock:
        """The clock of which this is the state.

        Args:
            state: As ``state`` returns it.
        """
        clock = cls(np.empty(0))
        for name in ("step", "limit", "_last"):
            setattr(clock, name, np.nan if state[name] is None else float(state[name]))
        for name in (*_COUNTS, "_since", "regular"):
            setattr(clock, name, state[name])
        clock.longest = [(int(row), float(a), float(b)) for row, a, b in state["longest"]]
        return clock


class Hold:
    """Fills missing values with the last value of the same signal, block after block.

    Args:
        C: The number of signals.

    Before a signal's first value there is nothing to hold, and NaN stays. ``missing`` counts the missing values
    of each signal, ``longest`` is its longest run of them, ``last`` its last value; ``rows`` counts rows.

    >>> hold = Hold(2)
    >>> filled, missing = hold.fill(np.array([[1.0, np.nan], [np.nan, 5.0]]))
    >>> filled.tolist(), missing.tolist()
    ([[1.0, nan], [1.0, 5.0]], [[False, True], [True, False]])
    >>> hold.fill(np.array([[np.nan, np.nan]]))[0].tolist()
    [[1.0, 5.0]]
    >>> hold.missing.tolist(), hold.longest.tolist()
    ([2, 2], [2, 1])
    """

    def __init__(self, C: int) -> None:
        self.rows = 0
        self.last = np.full(C, np.nan)
        self.missing = np.zeros(C, np.int64)
        self.longest = np.zeros(C, np.int64)
        self._run = self._no_run = np.zeros(C, np.int64)

    def fill(self, values: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
        """Fill the next rows.

        Args:
            values: The rows (B, C), NaN where a value is missing.

        Returns:
            The values (B, C) without missing ones after a signal's first, and which values were missing (B, C).
        """
        missing = np.isnan(values)
        rows = len(values)
        if not rows:
            return values.copy(), missing
        if rows == 1:  # a reading at a time: in a fourth of the time
            filled = np.where(missing, self.last, values)
            self._run = np.where(missing[0], self._run + 1, 0)
            self.longest, self.missing = np.maximum(self.longest, self._run), self.missing + missing[0]
            self.last = filled[0].copy()
            self.rows += 1
            return filled, missing
        # Row 0 has the last values before this block; a missing value takes the nearest value above it.
        above = np.vstack([self.last, values])
        source = np.where(missing, 0, np.arange(1, rows + 1)[:, None])
        np.maximum.accumulate(source, axis=0, out=source)
        filled = np.take_along_axis(above, source, axis=0)
        run = np.arange(1, rows + 1)[:, None] - source + np.where(source == 0, self._run, 0)
        self.longest = np.maximum(self.longest, run.max(axis=0))
        self._run = run[-1]
        self.missing = self.missing + missing.sum(axis=0)
        self.last = filled[-1].copy()
        self.rows += rows
        return filled, missing

    def follow(self, row: NDArray[np.float64]) -> None:
        """Advance by one row in which no value is missing.

        Args:
            row: The row (C,).
        """
        self.last, self._run = row, self._no_run
        self.rows += 1

    def copy(self) -> Hold:
        """An independent copy of the hold, in the same state."""
        hold = Hold.__new__(Hold)
        hold.__dict__.update(self.__dict__)  # arrays are replaced and never changed in place
        return hold

    def state(self) -> dict[str, Any]:
        """The whole state, as JSON can hold it."""
        counts = {name: getattr(self, name).tolist() for name in ("missing", "longest", "_run")}
        return {"rows": self.rows, "last": [_or_none(value) for value in self.last], **counts}

    @classmethod
    def restore(cls, state: dict[str, Any]) -> Hold:
        """The hold of which this is the state.

        Args:
            state: As ``state`` returns it.
        """
        hold = cls(len(state["last"]))
        hold.rows = int(state["rows"])
        hold.last = np.array([np.nan if value is None else value for value in state["last"]], np.float64)
        for name in ("missing", "longest", "_run"):
            setattr(hold, name, np.array(state[name], np.int64))
        return hold


def _or_none(value: float) -> float | None:
    return None if np.isnan(value) else float(value)
