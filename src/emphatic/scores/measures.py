"""How far predictions were from what then happened, and the running mean as a prediction."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["Measures", "measures", "running_mean"]

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
        return {"rmse": None, "variance_explained": None}
    with np.errstate(over="ignore", invalid="ignore"):
        error = float(np.mean((prediction[use] - outcome) ** 2))
        variance = float(np.var(outcome))
        explained = 1 - error / variance if variance > _NEGLIGIBLE * float(np.mean(outcome**2)) else math.nan
    return {"rmse": finite(math.sqrt(error)), "variance_explained": finite(explained)}


def finite(number: float) -> float | None:
    """None for what JSON cannot hold."""
    return number if math.isfinite(number) else None


def running_mean(x: NDArray[np.float64], missing: NDArray[np.bool_]) -> NDArray[np.float64]:
    """The mean of the readings up to and including each row; NaN before the first.

    >>> running_mean(np.array([1.0, 9.0, 3.0]), np.array([False, True, False])).tolist()
    [1.0, 1.0, 2.0]
    """
    if missing.all():
        return np.full(len(x), np.nan)
    centre = x[np.argmin(missing)]  # a signal far from 0 would lose digits in long sums
    with np.errstate(invalid="ignore"):
        mean: NDArray[np.float64] = centre + np.cumsum(np.where(missing, 0.0, x - centre)) / np.cumsum(~missing)
    return mean
