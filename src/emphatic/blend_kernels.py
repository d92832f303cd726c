"""The loop of ``blend``.  Compiled without fast mathematics: the bits do not depend on how rows are cut into blocks."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import types
from numba.extending import register_jitable

from emphatic.engines.compiled import jit_for

_f1, _f2, _f3 = (types.Array(types.float64, ndim, "C") for ndim in (1, 2, 3))
_b1, _b2 = (types.Array(types.boolean, ndim, "C") for ndim in (1, 2))

# What a question carries.
SEEN, MEAN, TRACE, LOWEST, HIGHEST, LEARNED, NOISE, BEFORE, ABOVE = range(9)


@register_jitable
def solve(A: Any, b: Any) -> Any:
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


@jit_for((_f3, _f2, _b2, _b1, _f1, types.float64, _f2, _f3, _f3, _f2), fastmath=False)
def blend(V, X, present, follows, gamma, kappa, scalars, vectors, products, out):
    """p of each row and question; see ``blend``."""
    E = V.shape[2]
    for t in range(V.shape[0]):
        for q in range(V.shape[1]):
            g, x, s, C = gamma[q], X[t, q], scalars[q], products[q]
            w, u, z, b = vectors[q, 0], vectors[q, 1], vectors[q, 2], vectors[q, 3]
            if not math.isfinite(x):  # nothing was ever read
                out[t, q] = math.nan
                continue
            h = 1.0 / (1.0 - g)
            first = s[SEEN] == 0.0
            if first:
                s[TRACE] = s[LOWEST] = s[HIGHEST] = x
            if first or present[t, q]:
                s[SEEN] += 1.0
                s[MEAN] += (x - s[MEAN]) / s[SEEN]
            s[TRACE] += (x - s[TRACE]) / h
            s[LOWEST], s[HIGHEST] = min(s[LOWEST], x), max(s[HIGHEST], x)
            mean = s[MEAN]
            p = mean + w[E] * (x - mean) + w[E + 1] * (s[TRACE] - mean)
            for i in range(E):
                p += w[i] * (V[t, q, i] - mean)
            room = 0.5 * (s[HIGHEST] - s[LOWEST])
            p = min(max(p, s[LOWEST] - room), s[HIGHEST] + room)
            if not math.isfinite(p):
                p = mean
            out[t, q] = p
            if not first and not (present[t, q] and follows[t]):
                z[:] = 0.0
            elif not first:  # u, BEFORE and ABOVE are still those of the row before
                d = (1.0 - g) * x + g * p - s[BEFORE]
                s[LEARNED] += 1.0
                a = 2.0 / (s[LEARNED] + 1.0)
                s[NOISE] += a * (d * d - s[NOISE])
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
                u[i] = V[t, q, i] - mean
            u[E], u[E + 1], s[BEFORE], s[ABOVE] = x - mean, s[TRACE] - mean, p, p - mean
