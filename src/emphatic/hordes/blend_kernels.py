"""The loop of ``blend``.  Compiled without fast mathematics: the bits do not depend on how rows are cut into blocks."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
from numba import types
from numba.extending import register_jitable

from emphatic.engines.compiled import jit_for

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

_f1, _f2, _f3 = (types.Array(types.float64, ndim, "C") for ndim in (1, 2, 3))
_b1 = types.Array(types.boolean, 1, "C")

# What a question carries; the last two in ``combine`` only.
SEEN, MEAN, TRACE, LOWEST, HIGHEST, LAST, LEARNED, NOISE, BEFORE, ABOVE, OWN_TRACE, OWN_GAIN = range(12)
#: What is beyond is no number to count with: a square would not be finite.
LARGEST = 1e100


@register_jitable
def solve(A: Floats, b: Floats) -> Floats:
    """A w = b for a small symmetric positive definite A, by Cholesky, in place; 0 where that fails."""
    E = len(b)
    w = b.copy()
    for i in range(E):
        for j in range(i + 1):
            s = A[i, j]
            for k in range(j):
                s -= A[i, k] * A[j, k]
            if i == j:
                if not s > 0.0:
                    return np.zeros(E)
                A[i, i] = math.sqrt(s)
            else:
                A[i, j] = s / A[j, j]
    for i in range(E):
        for k in range(i):
            w[i] -= A[i, k] * w[k]
        w[i] /= A[i, i]
    for i in range(E - 1, -1, -1):
        for k in range(i + 1, E):
            w[i] -= A[k, i] * w[k]
        w[i] /= A[i, i]
    for i in range(E):
        if not math.isfinite(w[i]):
            return np.zeros(E)
    return w


@register_jitable
def within(v: float, low: float, high: float, mean: float) -> float:
    """v, or the nearer end; the mean for NaN."""
    return low if v < low else high if v > high else v if v == v else mean


@register_jitable
def add_reading(s: Floats, x: float, known: bool, h: float) -> tuple[float, float, float]:
    """Add a reading to a question's mean, trace and range; returns it, or the last one, and the bounds of answers."""
    if not known:
        x = s[LAST]
    if s[SEEN] == 0.0:
        s[TRACE] = s[LOWEST] = s[HIGHEST] = x
    s[LAST] = x
    if known:
        s[SEEN] += 1.0
        s[MEAN] += (x - s[MEAN]) / s[SEEN]
    s[TRACE] += (x - s[TRACE]) / h
    s[LOWEST], s[HIGHEST] = min(s[LOWEST], x), max(s[HIGHEST], x)
    room = 0.5 * (s[HIGHEST] - s[LOWEST])
    return x, s[LOWEST] - room, s[HIGHEST] + room


@register_jitable
def td_error(s: Floats, x: float, p: float, g: float) -> tuple[float, float]:
    """d of the step to a row with the reading x and the prediction p, and the weight of that step in the averages."""
    d = (1.0 - g) * x + g * p - s[BEFORE]
    s[LEARNED] += 1.0
    a = 2.0 / (s[LEARNED] + 1.0)
    s[NOISE] += a * (d * d - s[NOISE])
    return d, a


@register_jitable
def shrink_towards(C: Floats, b: Floats, weights: Floats, ridge: float) -> Floats:
    """argmin wᵀCw − 2 bᵀw + ridge |w − weights|², of a symmetric C whose lower half is read."""
    E = len(b)
    A, rest = C.copy(), b.copy()
    for i in range(E):
        A[i, i] += ridge
        for j in range(E):
            rest[i] -= (C[i, j] if j <= i else C[j, i]) * weights[j]
    return weights + solve(A, rest)


@register_jitable
def weigh(
    s: Floats, share: Floats, b: Floats, square: Floats, C: Floats, W: Floats, g: float, h: float, constants: Floats
) -> None:
    """The shares of the answers, and the weights of the blends among them."""
    (J, E), steepest, steeper, least = W.shape, constants[0], constants[1], constants[2]
    error = s[NOISE] / (1.0 - g * g) + 1e-250  # E (G − p)²
    evidence = s[LEARNED] / h
    power = min(steepest, steeper * evidence)
    # E (G − v)² = E (G − p)² + what p gains over the mean − what v gains over it
    of_mean = max(error + s[OWN_GAIN], least * error)
    lowest = of_mean
    for i in range(E + J):
        share[i] = max(error + s[OWN_GAIN] + square[i] - 2.0 * b[i], least * error)
        lowest = min(lowest, share[i])
    total = (lowest / of_mean) ** power
    for i in range(E + J):
        share[i] = (lowest / share[i]) ** power
        total += share[i]
    alone, trace = 0.0, 0.0
    for i in range(E + J):
        share[i] /= total
        if i < E:
            alone += share[i]
            trace += C[i, i]
    for j in range(J):
        ridge = constants[3 + j] * error / evidence + 1e-9 * trace + 1e-200
        W[j] = shrink_towards(C, b[:E], share[:E] / max(alone, 1e-9), ridge)


@jit_for((_f3, _f2, _b1, _f1, _f1, _f2, _f3, _f3, _f3, _f2, _f3), fastmath=False)
def combine(
    V: Floats, X: Floats, follows: NDArray[np.bool_], gamma: Floats, constants: Floats, scalars: Floats,
    vectors: Floats, blends: Floats, products: Floats, out: Floats, single: Floats,
) -> None:  # fmt: skip
    """p of each row and question, and the E single answers, E − 2 of them from V; see ``combination``."""
    E, J = products.shape[1], blends.shape[1]
    new = np.empty(E + J)
    for t in range(V.shape[0]):
        for q in range(V.shape[1]):
            g, x, s, C, W = gamma[q], X[t, q], scalars[q], products[q], blends[q]
            share, u, z, b, square = vectors[q, 0], vectors[q, 1], vectors[q, 2], vectors[q, 3], vectors[q, 4]
            h = 1.0 / (1.0 - g)
            known = abs(x) <= LARGEST
            first = s[SEEN] == 0.0
            if first and not known:  # nothing was ever read
                p = V[t, q, (E - 2) // 2]
                out[t, q] = p if abs(p) <= LARGEST else 0.0
                single[t, q] = out[t, q]
                continue
            x, low, high = add_reading(s, x, known, h)
            mean = s[MEAN]
            p = mean
            for i in range(E):
                v = x if i == E - 2 else s[TRACE] if i == E - 1 else within(V[t, q, i], low, high, mean)
                single[t, q, i] = v
                new[i] = v - mean
                p += share[i] * new[i]
            for j in range(J):
                v = mean
                for i in range(E):
                    v += W[j, i] * new[i]
                new[E + j] = within(v, low, high, mean) - mean
                p += share[E + j] * new[E + j]
            p = within(p, low, high, mean)
            out[t, q] = p
            if not (known and follows[t]):
                z[:] = 0.0
                s[OWN_TRACE] = 0.0
            elif not first:  # u, BEFORE and ABOVE are still those of the row before
                d, a = td_error(s, x, p, g)
                for i in range(E + J):
                    z[i] = g * z[i] + u[i]
                    b[i] += a * (d * z[i] + s[ABOVE] * u[i] - b[i])
                    square[i] += a * (u[i] * u[i] - square[i])
                for i in range(E):
                    for j in range(i + 1):
                        C[i, j] += a * (u[i] * u[j] - C[i, j])
                s[OWN_TRACE] = g * s[OWN_TRACE] + s[ABOVE]
                gain = s[ABOVE] * s[ABOVE] + 2.0 * d * s[OWN_TRACE]
                s[OWN_GAIN] += a * (gain - s[OWN_GAIN])
                if s[LEARNED] % max(16.0, math.floor(h / 8.0)) == 0.0:
                    weigh(s, share, b, square, C, W, g, h, constants)
            for i in range(E + J):
                u[i] = new[i]
            s[BEFORE], s[ABOVE] = p, p - mean


@jit_for((_f3, _f2, _b1, _b1, _f1, types.float64, _f2, _f3, _f3, _f2), fastmath=False)
def blend(
    V: Floats, X: Floats, follows: NDArray[np.bool_], ends: NDArray[np.bool_], gamma: Floats, kappa: float,
    scalars: Floats, vectors: Floats, products: Floats, out: Floats,
) -> None:  # fmt: skip
    """p of each row and question; see ``blend``."""
    E = V.shape[2]
    for t in range(V.shape[0]):
        for q in range(V.shape[1]):
            g, x, s, C = gamma[q], X[t, q], scalars[q], products[q]
            w, u, z, b = vectors[q, 0], vectors[q, 1], vectors[q, 2], vectors[q, 3]
            h = 1.0 / (1.0 - g)
            known = abs(x) <= LARGEST
            first = s[SEEN] == 0.0
            if first and not known:  # nothing was ever read
                p = V[t, q, E // 2]
                out[t, q] = p if abs(p) <= LARGEST else 0.0
                continue
            x, low, high = add_reading(s, x, known, h)
            mean = s[MEAN]
            p = mean + w[E] * (x - mean) + w[E + 1] * (s[TRACE] - mean)
            for i in range(E):
                p += w[i] * (within(V[t, q, i], low, high, mean) - mean)
            p = 0.0 if ends[t] else within(p, low, high, mean)
            out[t, q] = p
            if not (known and follows[t]):
                z[:] = 0.0
            elif not first:  # u, BEFORE and ABOVE are still those of the row before
                d, a = td_error(s, x, p, g)
                for i in range(E + 2):
                    z[i] = g * z[i] + u[i]
                    b[i] += a * (d * z[i] + s[ABOVE] * u[i] - b[i])
                    for j in range(i + 1):
                        C[i, j] += a * (u[i] * u[j] - C[i, j])
                if s[LEARNED] % max(16.0, math.floor(h / 8.0)) == 0.0:
                    A = C.copy()
                    trace = 0.0
                    for i in range(E + 2):
                        trace += C[i, i]
                    for i in range(E + 2):
                        A[i, i] += kappa * s[NOISE] / (1.0 - g * g) * h / s[LEARNED] + 1e-9 * trace + 1e-200
                    w[:] = solve(A, b)
            for i in range(E):
                u[i] = within(V[t, q, i], low, high, mean) - mean
            u[E], u[E + 1], s[BEFORE], s[ABOVE] = x - mean, s[TRACE] - mean, p, p - mean
