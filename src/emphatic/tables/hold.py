"""Missing values: the last value is held."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["Hold"]


class Hold:
    """Fills what is missing with the last value of the same signal, block after block.

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
        """The values (B, C) without holes, and where the holes were."""
        missing = np.isnan(values)
        rows = len(values)
        if not rows:
            return values.copy(), missing
        # Row 0 stands for what came before this block; each hole takes the nearest row above it that has a value.
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
        """Go on by one row (C,) without a hole."""
        self.last, self._run = row, self._no_run
        self.rows += 1

    def copy(self) -> Hold:
        """Another, at the same place."""
        other = Hold.__new__(Hold)
        other.rows, other.last, other.missing = self.rows, self.last, self.missing
        other.longest, other._run, other._no_run = self.longest, self._run, self._no_run
        return other

    def state(self) -> dict[str, Any]:
        """All of it, as JSON can hold it."""
        last = [None if np.isnan(value) else float(value) for value in self.last]
        counts = {name: getattr(self, name).tolist() for name in ("missing", "longest", "_run")}
        return {"rows": self.rows, "last": last, **counts}

    @classmethod
    def restore(cls, state: dict[str, Any]) -> Hold:
        """The same again, to go on where it stood."""
        hold = cls(len(state["last"]))
        hold.rows = int(state["rows"])
        hold.last = np.array([np.nan if value is None else value for value in state["last"]], np.float64)
        for name in ("missing", "longest", "_run"):
            setattr(hold, name, np.array(state[name], np.int64))
        return hold
