"""Least squares from sums of products, with an effect of each hour of the week.

With rows (1, f) of features, right-hand sides y, and the hour c of a row, the weights w and the effects e minimise

    Σ (y − e_c − f·w)² + λ Σ (s_j w_j)² + (λ/H + 1) Σ e_c²,    s_j the standard deviation of feature j.

The part of the matrix that belongs to the hours is diagonal, so that a Schur complement takes them out.

Where there are more other signals than features have room for, ``Relations`` finds those that tell most of a series.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["Relations", "solve"]

Array = NDArray[np.float64]
#: The rows over which a signal's change is a feature, and rows before the first choice, which then double.
_LAG, _FIRST = 3, 64


def solve(gram: Array, hours: Array, d: int, strength: float) -> tuple[Array, Array, Array, Array]:
    """The weights (d, sides), the effects (hours, sides), and the means and deviations of the features (d,).

    Args:
        gram: Sums of products of features and right-hand sides, (d + sides, d + sides); the first feature is 1.
        hours: Sums of features and right-hand sides by hour, (hours, d + sides).
        d: The number of features.
        strength: λ, in rows.

    >>> x = np.arange(8.0)
    >>> rows = np.stack([np.ones(8), x, 3.0 * x + 2.0], axis=1)
    >>> w, effects, mean, deviation = solve(rows.T @ rows, rows.sum(axis=0)[None], 2, 1e-9)
    >>> w.round(3).ravel().tolist(), mean.tolist()
    ([2.0, 3.0], [1.0, 3.5])
    """
    n, mean = gram[0, 0], gram[0] / gram[0, 0]
    C = gram[:d] - n * np.outer(mean[:d], mean)
    N = hours - np.outer(hours[:, 0], mean)
    variance = C.diagonal() / n
    live = variance > 1e-10 * (mean[:d] ** 2 + 1e-30)
    live[0] = False
    s = np.zeros(d)
    s[live] = variance[live] ** -0.5
    C[:, :d] *= s
    C *= s[:, None]
    N[:, :d] *= s
    g = 1.0 / (hours[:, :1] + strength / len(hours) + 1.0)
    C -= (N[:, :d] * g).T @ N
    C[np.arange(d), np.arange(d)] += strength + 1e-8 * n + n * ~live
    w = np.linalg.solve(C[:, :d], C[:, d:])
    effects = (N[:, d:] - N[:, :d] @ w) * g
    w *= s[:, None]
    w[0] = mean[d:] - mean[:d] @ w
    return w, effects, mean[:d], np.sqrt(np.maximum(variance, 0.0))


class Relations:
    """Correlations of each signal, and of its change, with the next change of each series.

    Args:
        signals: The number of signals, which are the first series.
        series: The number of series.
    """

    def __init__(self, signals: int, series: int) -> None:
        self._signals = signals
        #: Sums: rows, of signals and of their changes, of squares, of next changes and their squares, and of products.
        self.arrays = {
            "rows": np.zeros(1),
            "first": np.zeros((2, signals)),
            "squares": np.zeros((2, signals)),
            "next": np.zeros(series),
            "next_squares": np.zeros(series),
            "products": np.zeros((2, signals, series)),
            # rows that were added, and rows before the next choice
            "row": np.array([float(_LAG), float(_FIRST)]),
        }

    def add(self, x: Array, row: int) -> None:
        """Add all rows before ``row``, whose next change is known.

        Args:
            x: The ring of remembered rows (series, 2R).
            row: The rows so far.
        """
        sums, R = self.arrays, x.shape[1] // 2
        begin = max(int(sums["row"][0]), row - R + _LAG + 1)
        rows = np.arange(begin, row - 1)
        if not len(rows):
            return
        sums["row"][0] = row - 1
        level = x[: self._signals, rows % R]
        seen = np.stack([level, level - x[: self._signals, (rows - _LAG) % R]])
        change = x[:, (rows + 1) % R] - x[:, rows % R]
        sums["rows"] += len(rows)
        sums["first"] += seen.sum(axis=2)
        sums["squares"] += (seen**2).sum(axis=2)
        sums["next"] += change.sum(axis=1)
        sums["next_squares"] += (change**2).sum(axis=1)
        sums["products"] += seen @ change.T

    def is_due(self, row: int) -> bool:
        """Whether to choose again, which happens whenever the rows have doubled."""
        due = row >= self.arrays["row"][1]
        if due:
            self.arrays["row"][1] *= 2.0
        return bool(due)

    def choose(self, series: int, present: NDArray[np.int64]) -> NDArray[np.int64]:
        """The signals with the highest correlations: those of ``present`` that are among them stay at their places.

        Args:
            series: The series that they are to tell of.
            present: The signals so far.
        """
        sums, n = self.arrays, self.arrays["rows"]
        mean, of_next = sums["first"] / n, sums["next"][series] / n
        covariance = sums["products"][:, :, series] / n - mean * of_next
        variances = (sums["squares"] / n - mean**2) * (sums["next_squares"][series] / n - of_next**2)
        with np.errstate(all="ignore"):
            strength = np.where(variances > 0.0, covariance**2 / variances, 0.0).max(axis=0)
        strength[series : series + 1] = -1.0  # (a signal tells of itself by its own features)
        best = np.argsort(-strength, kind="stable")[: len(present)]
        new = iter([signal for signal in best if signal not in present])
        return np.array([signal if signal in best else next(new) for signal in present], np.int64)
