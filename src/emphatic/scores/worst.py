"""The rows with the largest prediction errors."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["WorstErrors"]

Array = NDArray[np.float64]


class WorstErrors:
    """The row of the largest error of each of Q questions, from row ``first`` on; blocks of rows come in order."""

    def __init__(self, Q: int, first: int) -> None:
        self._first = first
        self.row = np.full(Q, -1)
        self.time, self.prediction, self.actual = (np.full(Q, np.nan) for _ in range(3))
        self._error = np.full(Q, -1.0)

    def add(
        self, start: int, predictions: NDArray[Any], G: Array, known: NDArray[np.bool_], time: Array | None
    ) -> None:
        """The next B rows, from ``start`` on: predictions (B, Q), returns and where known (Q, B), and times (B,)."""
        skip = max(0, self._first - start)
        if skip >= len(predictions):
            return
        ours = np.asarray(predictions, np.float64).T
        with np.errstate(invalid="ignore", over="ignore"):
            error = np.where(known, np.abs(ours - G), -1.0)
        error = np.nan_to_num(error[:, skip:], nan=-1.0, posinf=-1.0)
        at = np.argmax(error, axis=1)
        every = np.arange(len(at))
        new = error[every, at] > self._error
        at, every = at[new] + skip, every[new]
        self._error[new] = error[every, at - skip]
        self.row[new] = start + at
        self.prediction[new], self.actual[new] = ours[every, at], G[every, at]
        if time is not None:
            self.time[new] = time[at]
