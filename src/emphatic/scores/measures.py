"""Errors of predictions against the actual returns, and the running mean as a prediction."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["Measures", "RunningMean", "finite", "from_moments", "measures", "running_mean"]

Measures = dict[str, float | None]

#: Returns that vary less than this, against their mean square, do not vary.
_NEGLIGIBLE = 1e-12


def measures(prediction: NDArray[Any], G: NDArray[Any], use: Any = slice(None)) -> Measures:
    """The root mean square error, and the share of the return's variance that was explained, over the rows ``use``.

        rmse = √MSE,   variance_explained = 1 − MSE / Var(G)

    None where undefined: without rows; variance explained also where the return does not vary.

    >>> measures(np.array([1.0, 2.0]), np.array([1.0, 3.0]), np.array([True, True]))
    {'rmse': 0.7071067811865476, 'variance_explained': 0.5}
    >>> measures(np.array([1.0]), np.array([1.0]), np.array([False]))
    {'rmse': None, 'variance_explained': None}
    """
    outcome = np.asarray(G[use], np.float64)
    if not len(outcome):
        return from_moments(0, math.nan, math.nan, math.nan)
    with np.errstate(over="ignore", invalid="ignore"):
        error = np.mean((prediction[use] - outcome) ** 2)
        return from_moments(len(outcome), float(error), float(np.var(outcome)), float(np.mean(outcome**2)))


def from_moments(rows: int, error: float, variance: float, square: float) -> Measures:
    """The measures of so many rows from the mean squared error, and the return's variance and mean square."""
    if not rows:
        return {"rmse": None, "variance_explained": None}
    explained = 1 - error / variance if variance > _NEGLIGIBLE * square else math.nan
    return {"rmse": finite(math.sqrt(error)), "variance_explained": finite(explained)}


def finite(number: float) -> float | None:
    """None for what JSON cannot hold."""
    return number if math.isfinite(number) else None


class RunningMean:
    """The mean of the readings of C signals so far, one block of rows after the other."""

    def __init__(self, C: int) -> None:
        self._centre = np.full(C, np.nan)  # a signal far from 0 would lose digits in long sums
        self._total, self._count = np.zeros(C), np.zeros(C, np.int64)

    def __call__(self, values: NDArray[np.float64], missing: NDArray[np.bool_]) -> NDArray[np.float64]:
        """For each of the next rows (B, C) the mean up to and including it; NaN before the first reading."""
        if not len(values):
            return np.empty(values.shape)
        first = np.take_along_axis(values, np.argmin(missing, axis=0)[None], axis=0)[0]
        self._centre = np.where((self._count == 0) & ~missing.all(axis=0), first, self._centre)
        departures = np.where(missing, 0.0, values - self._centre)
        total = np.cumsum(np.vstack([self._total, departures]), axis=0)[1:]
        count = self._count + np.cumsum(~missing, axis=0)
        self._total, self._count = total[-1], count[-1]
        with np.errstate(invalid="ignore", divide="ignore"):
            mean: NDArray[np.float64] = self._centre + total / count
        return mean


def running_mean(x: NDArray[np.float64], missing: NDArray[np.bool_]) -> NDArray[np.float64]:
    """The mean of the readings up to and including each row; NaN before the first.

    >>> running_mean(np.array([1.0, 9.0, 3.0]), np.array([False, True, False])).tolist()
    [1.0, 1.0, 2.0]
    """
    return RunningMean(1)(np.asarray(x, np.float64)[:, None], missing[:, None])[:, 0]
