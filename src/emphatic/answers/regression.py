"""Least squares from sums of products, with an effect of each hour of the week.

With rows (1, f) of features, right-hand sides y, and the hour c of a row, the weights w and the effects e minimise

    Σ (y − e_c − f·w)² + λ Σ (s_j w_j)² + (λ/H + 1) Σ e_c²,    s_j the standard deviation of feature j.

The part of the matrix that belongs to the hours is diagonal, so that a Schur complement takes them out.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["solve"]

Array = NDArray[np.float64]


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
