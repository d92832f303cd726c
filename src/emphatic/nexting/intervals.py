"""Intervals around predictions, by online conformal prediction: as many returns as wanted fall inside.

A prediction p of a return G at horizon h = 1 / (1 − γ) has the interval

    p ± z exp(ℓ) E √(½ + ½ v)

z is the half-width that a standard normal distribution needs for the coverage. E is the running error and v the
variance expected now, as a multiple of its mean: both may be wrong. ℓ corrects them: each time a return becomes known,

    ℓ ← ℓ + η ((1 if G was outside its interval, else 0) − (1 − coverage))

so that in the long run the share of returns outside comes to 1 − coverage whatever the signal does (Gibbs & Candès
2021; Angelopoulos, Candès & Tibshirani 2023). A return is known only D rows later. With a larger step than half of one
over the returns that are not known yet, ℓ would be driven on by misses that it has long corrected for. That is η, but
at most 0.02, and falling with the square root of the number of delays after the first 30, to a tenth.

The return of a row is taken as known after D rows, when 0.95 of its weight has been read; for the rest stands the
prediction there, corrected by the mean error so far; neither may lead out of the range of the readings.
Readings that are missing are left out; across a gap no return is known. For a long horizon only every k-th row's return
is looked at, at most 256 in D rows, so that memory does not grow with the horizon: it is 8 (7 · 256 + 80) bytes a
question at most.

E is √(π/2) times the mean absolute error of the last quarter of all rows, or of the last 20 D. Before a return is known
it is the standard deviation of the readings. For normal, Laplace and uniform errors alike, z E is the right width at a
coverage of 0.8 to within 1%.

v is the answer to a GVF whose cumulant is the squared TD error, d² / avg d² with d = (1 − γ) x' + γ p' − p, and its
discount γ² (Sherstan et al. 2018: if TD errors are uncorrelated, it is the variance of the return around p). It is
linear in five features: 1, two traces of the cumulant, (x − p)² and (x − trace of x)². Its weights are found by least
squares, as ``emphatic.hordes.blend`` finds its own.

Both ends are rounded to three digits of half the width: more mean nothing, and would take six times as much of a file.
An interval ends where the readings so far end (the least and the largest, and a millionth of their distance beyond), as
long as returns hardly ever lie beyond: less than a twentieth of the share that may fall outside. A power that was never
negative gets no negative interval, unless it is predicted to be negative; a signal that keeps rising is not held back.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["Intervals"]

Array = NDArray[np.float64]

#: The share of its weight that a return may lack to be taken as known.
REST = 0.05
#: Rows of a question whose returns are waited for at a time, at most.
WAITING = 256
#: The state of a question, features of its variance, and what is kept of a row: see the kernel.
_SCALARS, _FEATURES, _KEPT = 30, 5, 7
#: Horizons' worth of known returns from which on coverage can be told: with fewer its own error exceeds 0.04.
ENOUGH = 100.0


class Intervals:
    """The intervals of Q questions, and their state from row to row.

    ``signals`` are the places of their signals among the readings, ``gamma`` their discounts, below 1.

    >>> rng = np.random.default_rng(0)
    >>> x = rng.normal(size=(5000, 1))  # to be predicted by its mean, one step ahead
    >>> low, high = Intervals([0], np.zeros(1), 0.8)(np.zeros((5000, 1)), x, np.zeros(5000, bool))
    >>> inside = (low[:-1] <= x[1:]) & (x[1:] <= high[:-1])
    >>> round(float(inside.mean()), 2)
    0.8
    """

    def __init__(self, signals: Sequence[int], gamma: Array, coverage: float) -> None:
        self.signals, self.gamma = np.asarray(signals, np.int64), np.ascontiguousarray(gamma, np.float64)
        self.coverage = coverage
        Q, delays = len(self.gamma), [_delay(g) for g in self.gamma.tolist()]
        self._every = np.array([-(-delay // WAITING) for delay in delays], np.int64)
        self._count = -(-np.array(delays, np.int64) // np.maximum(self._every, 1))
        self._first = np.cumsum(self._count) - self._count
        self._settings = np.array([1.0 - coverage, NormalDist().inv_cdf(0.5 + 0.5 * coverage)])
        self.scalars = np.zeros((Q, _SCALARS))
        #: Weights, features of the row before, their trace, b, and features of the row, of each question's variance.
        self.vectors = np.zeros((Q, 5, _FEATURES))
        self.vectors[:, 0, 0] = 1.0
        self.products = np.zeros((Q, _FEATURES, _FEATURES))
        self.kept = np.zeros((int(self._count.sum()), _KEPT))

    def __call__(self, predictions: Array, readings: Array, gap: NDArray[np.bool_]) -> tuple[Array, Array]:
        """The lower and upper ends, (B, Q) each, of the next B rows: NaN before a signal's first reading.

        ``predictions`` (B, Q); ``readings`` (B, S) of all signals, NaN where missing; ``gap`` (B,) marks the rows that
        do not follow the row before.
        """
        from emphatic.nexting import interval_kernels

        low, high = np.empty(predictions.shape), np.empty(predictions.shape)
        interval_kernels.intervals(
            np.ascontiguousarray(predictions), np.ascontiguousarray(readings), np.ascontiguousarray(gap), self.signals,
            self.gamma, self._settings, self._first, self._count, self._every, self.kept, self.scalars, self.vectors,
            self.products, low, high,
        )  # fmt: skip
        return low, high

    @property
    def calibrated(self) -> NDArray[np.bool_]:
        """Which questions' intervals have proved right: the returns of 100 horizons are known, and of the later ones
        about as many fell inside as wanted (to a quarter of the share that may fall outside), or there was no error."""
        from emphatic.nexting.interval_kernels import COVERED, ERROR, LABELS

        enough = self.scalars[:, LABELS] * self._every >= ENOUGH / (1.0 - self.gamma)
        close = np.abs(self.scalars[:, COVERED] - self.coverage) <= 0.25 * (1.0 - self.coverage)
        calibrated: NDArray[np.bool_] = enough & (close | (self.scalars[:, ERROR] == 0.0))
        return calibrated

    def arrays(self) -> dict[str, NDArray[Any]]:
        """The state, by name."""
        return {"scalars": self.scalars, "vectors": self.vectors, "products": self.products, "kept": self.kept}

    def restore(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Restore what ``arrays`` returned; ValueError if it does not fit."""
        for name, own in self.arrays().items():
            stored = np.asarray(arrays.get(name))
            if stored.shape != own.shape or stored.dtype != own.dtype or not np.isfinite(stored).all():
                raise ValueError(f"the array {name!r} of the intervals does not fit")
            own[:] = stored


def _delay(gamma: float) -> int:
    """The rows after which a return is taken as known: γᵏ ≤ ``REST``."""
    return 1 if gamma <= REST else math.ceil(math.log(REST) / math.log(gamma) - 1e-9)
