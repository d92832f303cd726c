"""Time: the usual step, and where one row does not follow on the one before it."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["Clock"]

_LONGEST = 10  # gaps kept for the report
_COUNTS = ("rows", "gaps", "backwards", "repeats", "irregular", "missing")


class Clock:
    """Watches the times of a log, block after block, for gaps.

    The usual step s is the median of the steps forward among the log's first times. A log is regular if nine
    of ten steps are within a tenth of s. A row does not follow on the one before it if

    - the step is longer than ``limit``: 1.5 s in a regular log, in others max(5 s, 3 q) where q is the step that one
      in twenty exceeds (steps that arrive at random then pass once in some ten thousand);
    - or time goes backwards;
    - or a row between the two was dropped.

    A time that repeats is counted, and no gap. Where most times repeat, time stamps are coarser than rows, and ``step``
    is the mean step; so it is in an irregular log that was ``joined`` from several, whose rows may come in bursts. Rows
    without a time follow on; the step over them is shared among the rows it took. The first row of all has nothing to
    follow, and is no gap.

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
        steps = np.diff(first[np.isfinite(first)])
        forward = steps[steps > 0]
        usual = float(np.median(forward)) if len(forward) else np.nan
        repeats = int((steps == 0).sum())
        self.regular = bool(len(forward)) and bool(np.mean(np.abs(forward - usual) <= 0.1 * usual) >= 0.9)
        q = float(np.quantile(forward, 0.95)) if len(forward) else np.nan
        #: The usual step; NaN if no time was ever seen to go forward, and then no step is too long.
        self.step = usual
        self.limit = 1.5 * usual if self.regular else max(5.0 * usual, 3.0 * q)
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
        """For each of the next rows, whether it does not follow on the one before it.

        ``after_drop`` marks rows before which one was dropped.
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
            before = np.concatenate([[self._last], time[known[:-1]]])
            rows = np.diff(known, prepend=-1 - self._since)
            step = (time[known] - before) / rows
            back = step < 0  # NaN, before the first time of all, is neither
            far = step > self.limit
            self.gaps += int(((back | far) & ~gap[known]).sum())
            gap[known] |= back | far
            self.backwards += int(back.sum())
            self.repeats += int((step == 0).sum())
            self.irregular += int((np.abs(step - self.step) > 0.1 * self.step)[step > 0].sum())
            found = [(self.rows + int(known[i]), float(before[i]), float(time[known[i]])) for i in np.flatnonzero(far)]
            # Sorting is stable: of equal gaps the earlier stays, however the rows are cut in blocks.
            self.longest = sorted(self.longest + found, key=lambda g: g[1] - g[2])[:_LONGEST]
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
        before = self._last
        step = (time - before) / (1 + self._since)
        if step > 0:
            self.irregular += abs(step - self.step) > 0.1 * self.step
            if step > self.limit:
                gap = True
                self.longest = sorted([*self.longest, (row, before, time)], key=lambda g: g[1] - g[2])[:_LONGEST]
        elif step < 0:  # NaN, before the first time of all, is neither
            gap = True
            self.backwards += 1
        elif step == 0:
            self.repeats += 1
        self.gaps += gap
        self._last, self._since = time, 0
        return gap

    def copy(self) -> Clock:
        """A clock at the same place, which goes on by itself."""
        clock = Clock.__new__(Clock)
        clock.__dict__.update(self.__dict__)  # ``longest`` is replaced and never changed in place
        return clock

    def state(self) -> dict[str, Any]:
        """All of it, as JSON can hold it."""
        numbers = {name: _or_none(getattr(self, name)) for name in ("step", "limit", "_last")}
        counts = {name: getattr(self, name) for name in (*_COUNTS, "_since", "regular")}
        return {**numbers, **counts, "longest": [list(gap) for gap in self.longest]}

    @classmethod
    def restore(cls, state: dict[str, Any]) -> Clock:
        """The same again, to go on where it stood."""
        clock = cls(np.empty(0))
        for name in ("step", "limit", "_last"):
            setattr(clock, name, np.nan if state[name] is None else float(state[name]))
        for name in (*_COUNTS, "_since", "regular"):
            setattr(clock, name, state[name])
        clock.longest = [(int(row), float(a), float(b)) for row, a, b in state["longest"]]
        return clock


def _or_none(value: float) -> float | None:
    return None if np.isnan(value) else float(value)
