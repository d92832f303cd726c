"""The loop over the rows of ``seasons``.  Compiled without fast mathematics: the bits do not depend on blocks."""

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
    Integers = NDArray[np.int64]
    Flags = NDArray[np.bool_]

_f2, _f3, _f4 = (types.Array(types.float64, ndim, "C") for ndim in (2, 3, 4))
_r1, _r2 = (types.Array(types.float64, ndim, "C", readonly=True) for ndim in (1, 2))
_i1, _i2 = (types.Array(types.int64, ndim, "C", readonly=True) for ndim in (1, 2))
_w1, _w2 = (types.Array(types.int64, ndim, "C") for ndim in (1, 2))
_u2 = types.Array(types.uint8, 2, "C")
_b1, _b2 = (types.Array(types.boolean, ndim, "C", readonly=True) for ndim in (1, 2))
_flags = types.Array(types.boolean, 3, "C")

#: The memories of the traces, in rows, and the lags whose differences from the reading are features of the regression.
TRACES = (4.0, 16.0, 64.0, 256.0, 1024.0)
LAGS = (1, 2)
#: Seasons of a signal, and the features of each: its path, the change since one period ago, and the rise of a period.
SEASONS, OF_SEASON = 2, 3
#: The first feature of the first season, and the number of features.
FIRST_SEASON = 1 + len(TRACES) + len(LAGS)
FEATURES = FIRST_SEASON + SEASONS * OF_SEASON
# What a signal carries: its last reading, the rise of each season, and its traces.
LAST, RISE = 0, 1
TRACE = RISE + SEASONS
# What a question carries: rows learned from, the same when solved, the prediction at the last row, whether there is
# one, and whether the sums over its paths have to be found anew.
LEARNED, SOLVED, BEFORE, OPEN, STALE = range(5)
#: Weights of a path below this times the first are left out; a sum over a path is found anew when rounding errors have
#: grown by e to the power of ``RENEWED``.
HORIZONS, RENEWED = 37.0, 4.0
#: A feature is kept within so many times its root mean square, a mean over so many rows.
WITHIN, MEMORY = 5.0, 256.0
#: Rows before the first solution, the share by which they grow before the next, and how many there are at most and at
#: least between two.
FEWEST, GROWTH, MOST, LEAST = 32.0, 0.15, 1000.0, 8.0
#: The evidence, in rows, that the regression's prior counts for besides its strength.
PRIOR_ROWS = 3.0


@register_jitable
def sum_path(ring: Floats, n: int, period: int, g: float, K: int) -> float:
    """Σ γᵏ x of the K rows that follow the row one period ago; n rows have been read."""
    total, weight, size = 0.0, 1.0, len(ring)
    for k in range(K):
        total += weight * ring[(n - period + k) % size]
        weight *= g
    return total


@register_jitable
def cholesky(A: Floats, b: Floats) -> bool:
    """A x = b for a small symmetric positive definite A, in place; False where that fails."""
    n = len(b)
    for i in range(n):
        for j in range(i + 1):
            s = A[i, j]
            for k in range(j):
                s -= A[i, k] * A[j, k]
            if i == j:
                if not s > 0.0:
                    return False
                A[i, i] = math.sqrt(s)
            else:
                A[i, j] = s / A[j, j]
    for i in range(n):
        for k in range(i):
            b[i] -= A[i, k] * b[k]
        b[i] /= A[i, i]
    for i in range(n - 1, -1, -1):
        for k in range(i + 1, n):
            b[i] -= A[k, i] * b[k]
        b[i] /= A[i, i]
        if not math.isfinite(b[i]):
            return False
    return True


@register_jitable
def solve(
    A: Floats, b: Floats, cross: Floats, cells: Floats, strengths: Floats, rows: float, prior: Floats, theta: Floats,
    effect: Floats,
) -> None:  # fmt: skip
    """θ of each strength, and the effect of each cell of the calendar, which is eliminated: its matrix is diagonal."""
    F, M = len(b), cells.shape[1]
    for s in range(len(strengths)):
        strength = strengths[s] + PRIOR_ROWS / rows
        C, y = A.copy(), b.copy()
        for i in range(F):
            ridge = strength * A[i, i] if A[i, i] > 1e-300 else 1.0
            C[i, i] += ridge
            y[i] += ridge * prior[i]
        ridge = strength * A[0, 0] / max(M, 1) + 1e-300
        for c in range(M):
            if cells[0, c] > 0.0:
                inverse = 1.0 / (cells[0, c] + ridge)
                for i in range(F):
                    y[i] -= cross[i, c] * inverse * cells[1, c]
                    for j in range(i + 1):
                        C[i, j] -= cross[i, c] * inverse * cross[j, c]
        for i in range(F):
            C[i, i] *= 1.0 + 1e-10
        if not cholesky(C, y):
            continue
        for i in range(F):
            theta[s, i] = y[i]
        for c in range(M):
            total = cells[1, c]
            for i in range(F):
                total -= cross[i, c] * y[i]
            effect[s, c] = total / (cells[0, c] + ridge) if cells[0, c] > 0.0 else 0.0


@register_jitable
def add_to_signal(s: Floats, ring: Floats, n: int, x: float, period: Integers) -> None:
    """Add row n to what a signal carries: its ring, traces and rises."""
    size = len(ring)
    if n == 0:
        for k in range(len(TRACES)):
            s[TRACE + k] = x
    s[LAST] = x
    ring[n % size] = x
    for k in range(len(TRACES)):
        s[TRACE + k] += (x - s[TRACE + k]) / min(TRACES[k], n + 1.0)
    for i in range(SEASONS):
        P = period[i]
        if 0 < P <= n:
            s[RISE + i] += (x - ring[(n - P) % size] - s[RISE + i]) / min(2.0 * P, n - P + 1.0)


@register_jitable
def look(
    s: Floats, ring: Floats, n: int, period: Integers, g: float, sums: Floats, renew: bool, features: Floats,
    answers: Floats,
) -> None:  # fmt: skip
    """The features of one question after n rows, and the answers of its seasons, NaN where there is none."""
    size, x, h, f = len(ring), s[LAST], 1.0 / (1.0 - g), 1
    features[0] = 1.0
    for k in range(len(TRACES)):
        features[f] = x - s[TRACE + k]
        f += 1
    for lag in LAGS:
        features[f] = x - ring[(n - 1 - min(lag, n - 1)) % size]
        f += 1
    for i in range(SEASONS):
        P = period[i]
        answers[i] = math.nan
        features[f] = features[f + 1] = features[f + 2] = 0.0
        if 0 < P < n:
            K = min(P, int(HORIZONS * h) + 1)
            if renew or n == P + 1:
                sums[i] = sum_path(ring, n, P, g, K)
            else:  # the path moves on by one row
                sums[i] = (sums[i] - ring[(n - 1 - P) % size]) / g + g ** (K - 1) * ring[(n - 1 - P + K) % size]
            path = sums[i] * (1.0 - g) / (1.0 - g**K)
            answers[i] = path
            if i == 0 or period[0] != P:
                features[f], features[f + 1], features[f + 2] = path - x, x - ring[(n - 1 - P) % size], s[RISE + i]
                answers[i] += s[RISE + i] / (1.0 - g**P)
        f += OF_SEASON


@jit_for((
    _r2, _b2, _b1, _i1, _i1, types.int64, types.int64, types.int64, types.int64, _i1, _i1, _r1, _r1, _i2, _f2, _u2, _w1,
    _f2, _f2, _f2, _f2, _f3, _f2, _f2, _f3, _f3, _f3, _f3, _w2, _f3, _flags,
), fastmath=False)  # fmt: skip
def rows(
    X: Floats, known: Flags, follows: Flags, cell: Integers, skipped: Integers, begin: int, end: int, count: int,
    earlier: int, members: Integers, starts: Integers, gamma: Floats, strengths: Floats, period: Integers, ring: Floats,
    flags: Integers, codes: Integers, signals: Floats, questions: Floats, squares: Floats, sums: Floats, A: Floats,
    b: Floats, z: Floats, cross: Floats, cells: Floats, theta: Floats, effect: Floats, changed: Integers, out: Floats,
    fresh: Flags,
) -> int:  # fmt: skip
    """Answer at rows from ``begin`` to ``end``, (B, Q, SEASONS + strengths), and learn from them; returns all rows.

    Rows are readings (B, C), the last one held where one is not ``known``, the ``cell`` of the calendar (−1 for none)
    and how many rows were ``skipped`` before. ``count`` rows, with those skipped, came before, and ``earlier`` ones
    that the ring no longer has. The questions of signal c are ``members`` from ``starts[c]`` on. A ring has the last
    readings of a signal, ``flags`` whether they were known, and ``codes`` 2 · (cell + 1) + whether the row follows.
    """
    C, size, M, S = X.shape[1], ring.shape[1], cells.shape[2], len(strengths)
    v, prior, answers, n = np.zeros(FEATURES), np.zeros(FEATURES), np.zeros(SEASONS), count
    for c in range(C):
        s, P, n = signals[c], period[c], count
        for t in range(begin, end):
            for _ in range(skipped[t] if n > 0 else 0):  # as one period ago, so that the phase is right
                longest = max(P[0], P[1])
                ring[c, n % size] = ring[c, (n - longest) % size] if 0 < longest <= n else s[LAST]
                flags[c, n % size] = 0
                codes[n % size] = 0
                n += 1
            x, learns = X[t, c], known[t, c]
            add_to_signal(s, ring[c], n, x, P)
            flags[c, n % size] = learns
            codes[n % size] = 2 * (cell[t] + 1) + follows[t]
            n += 1
            for q in members[starts[c] : starts[c + 1]]:
                g, state = gamma[q], questions[q]
                renew = state[STALE] > 0.0 or skipped[t] > 0 or n % max(1, int(RENEWED / (1.0 - g))) == 0
                state[STALE] = 0.0
                look(s, ring[c], n, P, g, sums[q], renew, v, answers)
                for k in range(1, FEATURES):
                    square = v[k] * v[k]
                    if squares[q, k] == 0.0:
                        squares[q, k] = square
                    bound = WITHIN * math.sqrt(squares[q, k])
                    v[k] = min(max(v[k], -bound), bound)
                    if learns:
                        squares[q, k] += (square - squares[q, k]) / min(float(n), MEMORY)
                for k in range(S):
                    p = answers[1] if P[1] > P[0] else answers[0]
                    if state[SOLVED] > 0.0 or math.isnan(p):
                        p = x
                        for j in range(FEATURES):
                            p += theta[q, k, j] * v[j]
                        if cell[t] >= 0:
                            p += effect[q, k, cell[t]]
                    out[t, q, SEASONS + k] = p
                p = out[t, q, SEASONS + S // 2]
                for i in range(SEASONS):
                    out[t, q, i] = p if math.isnan(answers[i]) else answers[i]
                    fresh[t, q, i] = changed[c, i] > 0
                if not (learns and follows[t]):
                    z[q] = 0.0
                    cells[q, 2] = 0.0
                elif state[OPEN] > 0.0:  # what is known of earlier returns now
                    d = (1.0 - g) * x + g * p - state[BEFORE]
                    for k in range(FEATURES):
                        b[q, k] += d * z[q, k]
                        z[q, k] *= g
                    for k in range(M):
                        cells[q, 1, k] += d * cells[q, 2, k]
                        cells[q, 2, k] *= g
                state[BEFORE], state[OPEN] = p, 1.0
                if not learns:
                    continue
                state[LEARNED] += 1.0
                w = float(earlier + n)
                y = w * (p - x)
                for k in range(FEATURES):
                    wv = w * v[k]
                    b[q, k] += y * v[k]
                    z[q, k] += wv
                    for j in range(k + 1):
                        A[q, k, j] += wv * v[j]
                if cell[t] >= 0:
                    cells[q, 0, cell[t]] += w
                    cells[q, 1, cell[t]] += y
                    cells[q, 2, cell[t]] += w
                    for k in range(FEATURES):
                        cross[q, k, cell[t]] += w * v[k]
                solved = state[SOLVED]
                if state[LEARNED] >= max(FEWEST, solved + max(LEAST, min(MOST, GROWTH * solved))):
                    prior[:] = 0.0
                    i = 1 if P[1] > P[0] else 0
                    if P[i] > 0:  # as the season answers: its path, and its rise
                        prior[FIRST_SEASON + OF_SEASON * i] = 1.0
                        prior[FIRST_SEASON + OF_SEASON * i + 2] = 1.0 / (1.0 - g ** P[i])
                    solve(A[q], b[q], cross[q], cells[q], strengths, state[LEARNED], prior, theta[q], effect[q])
                    state[SOLVED] = state[LEARNED]
            changed[c] = 0
    return n
