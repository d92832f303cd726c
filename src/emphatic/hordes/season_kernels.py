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

_f2, _f3 = (types.Array(types.float64, ndim, "C") for ndim in (2, 3))
_r1, _r2, _r3 = (types.Array(types.float64, ndim, "C", readonly=True) for ndim in (1, 2, 3))
_i1, _i2 = (types.Array(types.int64, ndim, "C", readonly=True) for ndim in (1, 2))
_w1, _w2 = (types.Array(types.int64, ndim, "C") for ndim in (1, 2))
_u2 = types.Array(types.uint8, 2, "C")
_b1, _b2 = (types.Array(types.boolean, ndim, "C", readonly=True) for ndim in (1, 2))
_flags = types.Array(types.boolean, 3, "C")

#: The memories of the traces, in rows, and the lags whose differences from the reading are features of the regression.
TRACES = (4.0, 16.0, 64.0, 256.0, 1024.0)
LAGS = (1, 2)
#: Seasons of a signal. Features that all questions of a signal share are a constant, the differences from traces and
#: lags, and of each season the change since one period ago and the rise; a question's own are the paths of the seasons.
SEASONS = 2
FIRST_SEASON = 1 + len(TRACES) + len(LAGS)
SHARED = FIRST_SEASON + 2 * SEASONS
FEATURES = SHARED + SEASONS
# What a signal carries: its last reading, the rows learned from, the same when solved, whether there was a row before,
# the rise of each season, and its traces.
LAST, LEARNED, SOLVED, OPEN, RISE = range(5)
TRACE = RISE + SEASONS
# What a question carries: the prediction at the last row, whether the sums over its paths have to be found anew, and by
# what the traces of its cells are to be multiplied, and what these, times their sums, are to be added by.
BEFORE, STALE, SCALE, OWED = range(4)
# What a cell of the calendar carries for a question: the sum of returns, its trace, and what it was owed at last.
RETURNS, CELL_TRACE, SETTLED = range(3)
# Of a season and a question: the rows of its path, γ to their number less one, what the sum over a path is multiplied
# by, and the rise.
PATH, LEAVING, NORM, RISING = range(4)
#: A sum over a path is found anew when rounding errors have grown by e to the power of this.
RENEWED = 4.0
#: A feature is kept within so many times its root mean square, a mean over so many rows.
WITHIN, MEMORY = 5.0, 256.0
#: Rows before the first solution, the share by which they grow before the next, and how many there are at most and at
#: least between two.
FEWEST, GROWTH, MOST, LEAST = 32.0, 0.15, 1000.0, 8.0
#: The evidence, in rows, that the regression's prior counts for besides its strength.
PRIOR_ROWS = 10.0
#: A reading beyond this is not used.
LARGEST = 1e100
#: The traces of cells are brought up to date when they have decayed so far.
DECAYED = 1e-3


@register_jitable
def sum_path(ring: Floats, n: int, period: int, g: float, rows: int) -> float:
    """Σ γᵏ x of so many rows that follow the row one period ago; n rows have been read."""
    total, weight, mask = 0.0, 1.0, len(ring) - 1
    for k in range(rows):
        total += weight * ring[(n - period + k) & mask]
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
    A: Floats, path_products: Floats, b: Floats, cross: Floats, path_cross: Floats, weights: Floats, cells: Floats,
    strengths: Floats, rows: float, prior: Floats, theta: Floats, effect: Floats,
) -> None:  # fmt: skip
    """θ of each strength, and the effect of each cell of the calendar, which is eliminated: its matrix is diagonal."""
    F, M = len(b), len(weights)
    C, x = np.empty((F, F)), np.empty(F)
    for s in range(len(strengths)):
        strength, y = strengths[s] + PRIOR_ROWS / rows, b.copy()
        for i in range(F):
            for j in range(i + 1):
                C[i, j] = A[i, j] if i < SHARED else path_products[i - SHARED, j]
            ridge = strength * C[i, i] if C[i, i] > 1e-300 else 1.0
            C[i, i] += ridge
            y[i] += ridge * prior[i]
        ridge = strength * A[0, 0] / max(M, 1) + 1e-300
        for c in range(M):
            if weights[c] > 0.0:
                inverse = 1.0 / (weights[c] + ridge)
                for i in range(F):
                    x[i] = cross[i, c] if i < SHARED else path_cross[i - SHARED, c]
                for i in range(F):
                    y[i] -= x[i] * inverse * cells[RETURNS, c]
                    for j in range(i + 1):
                        C[i, j] -= x[i] * inverse * x[j]
        for i in range(F):
            C[i, i] *= 1.0 + 1e-10
        if not cholesky(C, y):
            continue
        for i in range(F):
            theta[s, i] = y[i]
        for c in range(M):
            total = cells[RETURNS, c]
            for i in range(F):
                total -= (cross[i, c] if i < SHARED else path_cross[i - SHARED, c]) * y[i]
            effect[s, c] = total / (weights[c] + ridge) if weights[c] > 0.0 else 0.0


@register_jitable
def add_to_signal(s: Floats, ring: Floats, n: int, x: float, period: Integers) -> None:
    """Add row n to what a signal carries: its ring, traces and rises."""
    mask = len(ring) - 1
    if n == 0:
        for k in range(len(TRACES)):
            s[TRACE + k] = x
    s[LAST] = x
    ring[n & mask] = x
    for k in range(len(TRACES)):
        s[TRACE + k] += (x - s[TRACE + k]) / min(TRACES[k], n + 1.0)
    for i in range(SEASONS):
        P = period[i]
        if 0 < P <= n:
            s[RISE + i] += (x - ring[(n - P) & mask] - s[RISE + i]) / min(2.0 * P, n - P + 1.0)


@register_jitable
def stand_in(last: float, ring: Floats, flags: Integers, n: int, period: int) -> float:
    """What stands in the place of a missing reading, row n: the last one, with the change of one period ago.

    Held, the peak of a season would stand for what follows it. What stood in one period ago is repeated as it is: its
    level would rise, or fall, with each period.
    """
    if not 0 < period < n:
        return last
    mask = len(ring) - 1
    before = float(ring[(n - period) & mask])
    return before if flags[(n - period) & mask] == 0 else last + before - float(ring[(n - 1 - period) & mask])


@register_jitable
def fill_before(s: Floats, ring: Floats, n: int, x: float) -> None:
    """Let the first reading stand in for all n rows before it: 0 would be a jump."""
    for k in range(min(n, len(ring))):
        ring[k] = x
    for k in range(len(TRACES)):
        s[TRACE + k] = x


@register_jitable
def look(s: Floats, ring: Floats, n: int, period: Integers, features: Floats) -> None:
    """The features that all questions of a signal share, after n rows."""
    mask, x, f = len(ring) - 1, s[LAST], 1
    features[0] = 1.0
    for k in range(len(TRACES)):
        features[f] = x - s[TRACE + k]
        f += 1
    for lag in LAGS:
        features[f] = x - ring[(n - 1 - min(lag, n - 1)) & mask]
        f += 1
    for i in range(SEASONS):
        P = period[i]
        features[f] = features[f + 1] = 0.0
        if 0 < P < n and (i == 0 or period[0] != P):
            features[f], features[f + 1] = x - ring[(n - 1 - P) & mask], s[RISE + i]
        f += 2


@register_jitable
def clip(features: Floats, squares: Floats, begin: int, n: int, learns: bool) -> None:
    """Keep features within bounds, which follow their mean squares."""
    for k in range(len(squares)):
        v = features[begin + k]
        if squares[k] == 0.0:
            squares[k] = v * v
        bound = WITHIN * math.sqrt(squares[k])
        features[begin + k] = min(max(v, -bound), bound)
        if learns:
            squares[k] += (v * v - squares[k]) / min(float(n), MEMORY)


@register_jitable
def settle(state: Floats, cells: Floats, begin: int, end: int) -> None:
    """Bring cells of a question up to date."""
    for c in range(begin, end):
        cells[RETURNS, c] += (state[OWED] - cells[SETTLED, c]) * cells[CELL_TRACE, c]
        cells[SETTLED, c] = state[OWED]


@register_jitable
def settle_all(state: Floats, cells: Floats, factor: float) -> None:
    """Bring all cells of a question up to date, and multiply their traces by a factor."""
    settle(state, cells, 0, cells.shape[1])
    for c in range(cells.shape[1]):
        cells[CELL_TRACE, c] *= factor
        cells[SETTLED, c] = 0.0
    state[SCALE], state[OWED] = 1.0, 0.0


@jit_for((
    _r2, _b2, _b1, _i1, _i1, _f3, _flags, types.int64, types.int64, types.int64, types.int64, types.int64, _i1, _i1,
    _i1, _r1, _r1, _i2, _r3, _w2, _f2, _u2, _w1, _f2, _f2, _f3, _f3, _f2, _f2, _f2, _f2, _f3, _f2, _f2, _f3, _f3, _f3,
    _f3,
), fastmath=False)  # fmt: skip
def rows(
    X: Floats, sound: Flags, follows: Flags, cell: Integers, skipped: Integers, out: Floats, fresh: Flags, place: int,
    begin: int, end: int, count: int, earlier: int, leaders: Integers, members: Integers, starts: Integers,
    gamma: Floats, strengths: Floats, period: Integers, scales: Floats, changed: Integers, ring: Floats,
    flags: Integers, codes: Integers, signals: Floats, squares: Floats, A: Floats, cross: Floats, weights: Floats,
    questions: Floats, path_squares: Floats, sums: Floats, path_products: Floats, b: Floats, z: Floats,
    path_cross: Floats, cells: Floats, theta: Floats, effect: Floats,
) -> int:  # fmt: skip
    """Answer at rows from ``begin`` to ``end``, and learn from them; returns the number of all rows.

    The answers, SEASONS + strengths, go into ``out`` (B, Q, …) from ``place`` on; ``fresh`` is set where a season is a
    new one. Rows are readings (B, …) in the columns ``leaders`` of the signals, which are learned from where they are
    ``sound`` (B, C), the ``cell`` of the calendar (−1 for none) and how many rows were ``skipped`` before. See
    ``stand_in`` for missing readings. ``count`` rows, with those skipped, came before, and ``earlier`` ones that
    the ring no longer has. The questions of signal c are ``members`` from ``starts[c]`` on. A ring has the last
    readings of a signal, ``flags`` whether they were known, and ``codes`` 2 · (cell + 1) + whether the row follows.
    """
    C, mask, M, S = len(leaders), ring.shape[1] - 1, weights.shape[1], len(strengths)
    v, prior, answers, n = np.zeros(FEATURES), np.zeros(FEATURES), np.zeros(SEASONS), count
    every = np.empty(len(gamma), np.int64)  # rows after which a sum over a path is found anew: errors grow by 1/γ a row
    for q in range(len(gamma)):
        every[q] = max(1, int(RENEWED / -math.log(max(gamma[q], 1e-300))))
    for c in range(C):
        s, P, n = signals[c], period[c], count
        for t in range(begin, end):
            for _ in range(skipped[t] if n > 0 else 0):  # as one period ago, so that the phase is right
                longest = max(P[0], P[1])
                ring[c, n & mask] = ring[c, (n - longest) & mask] if 0 < longest <= n else s[LAST]
                flags[c, n & mask] = 0
                codes[n & mask] = 0
                n += 1
            x, at = X[t, leaders[c]], cell[t]
            learns = sound[t, c] and abs(x) <= LARGEST
            if learns and n > 0 and s[LEARNED] == s[LAST] == s[TRACE] == 0.0:  # the first reading of all
                fill_before(s, ring[c], n, x)
            if not abs(x) <= LARGEST:
                x = stand_in(s[LAST], ring[c], flags[c], n, max(P[0], P[1]))
            add_to_signal(s, ring[c], n, x, P)
            flags[c, n & mask] = learns
            codes[n & mask] = 2 * (at + 1) + follows[t]
            n += 1
            w = float(earlier + n)
            look(s, ring[c], n, P, v)
            clip(v, squares[c], 1, n, learns)
            solved, solves = s[SOLVED], False
            if learns:
                for k in range(SHARED):
                    for j in range(k + 1):
                        A[c, k, j] += w * v[k] * v[j]
                    if at >= 0:
                        cross[c, k, at] += w * v[k]
                if at >= 0:
                    weights[c, at] += w
                s[LEARNED] += 1.0
                solves = s[LEARNED] >= max(FEWEST, solved + max(LEAST, min(MOST, GROWTH * solved)))
            for q in members[starts[c] : starts[c + 1]]:
                g, state = gamma[q], questions[q]
                renew = state[STALE] > 0.0 or skipped[t] > 0 or n % every[q] == 0
                state[STALE] = 0.0
                for i in range(SEASONS):
                    answers[i] = math.nan
                    v[SHARED + i] = 0.0
                    if 0 < P[i] < n:
                        length = int(scales[q, i, PATH])
                        if renew or n == P[i] + 1:
                            sums[q, i] = sum_path(ring[c], n, P[i], g, length)
                        else:  # the path moves on by one row
                            leaves, enters = ring[c, (n - 1 - P[i]) & mask], ring[c, (n - 1 - P[i] + length) & mask]
                            sums[q, i] = (sums[q, i] - leaves) / g + scales[q, i, LEAVING] * enters
                        answers[i] = sums[q, i] * scales[q, i, NORM]
                        if i == 0 or P[0] != P[1]:
                            v[SHARED + i] = answers[i] - x
                            answers[i] += s[RISE + i] * scales[q, i, RISING]
                clip(v, path_squares[q], SHARED, n, learns)
                for k in range(S):
                    p = answers[1] if P[1] > P[0] else answers[0]
                    if solved > 0.0 or math.isnan(p):
                        p = x
                        for j in range(FEATURES):
                            p += theta[q, k, j] * v[j]
                        if at >= 0:
                            p += effect[q, k, at]
                    out[t, q, place + SEASONS + k] = p
                p = out[t, q, place + SEASONS + S // 2]
                for i in range(SEASONS):
                    out[t, q, place + i] = answers[i]
                    if changed[c, i] > 0:
                        fresh[t, q, i] = True
                if not (learns and follows[t]):
                    z[q] = 0.0
                    settle_all(state, cells[q], 0.0)
                elif s[OPEN] > 0.0:  # what is known of earlier returns now
                    d = (1.0 - g) * x + g * p - state[BEFORE]
                    for k in range(FEATURES):
                        b[q, k] += d * z[q, k]
                        z[q, k] *= g
                    state[OWED] += d * state[SCALE]
                    state[SCALE] *= g
                    if state[SCALE] < DECAYED:
                        settle_all(state, cells[q], state[SCALE])
                state[BEFORE] = p
                if not learns:
                    continue
                y = w * (p - x)
                for k in range(FEATURES):
                    b[q, k] += y * v[k]
                    z[q, k] += w * v[k]
                for i in range(SEASONS):
                    wv = w * v[SHARED + i]
                    for j in range(SHARED + i + 1):
                        path_products[q, i, j] += wv * v[j]
                    if at >= 0:
                        path_cross[q, i, at] += wv
                if at >= 0:
                    settle(state, cells[q], at, at + 1)
                    cells[q, RETURNS, at] += y
                    cells[q, CELL_TRACE, at] += w / state[SCALE]
                if solves:
                    settle(state, cells[q], 0, M)
                    for k in range(FEATURES):
                        prior[k] = 0.0
                    i = 1 if P[1] > P[0] else 0
                    if P[i] > 0:  # as the season answers: its path, and its rise
                        prior[SHARED + i] = 1.0
                        prior[FIRST_SEASON + 2 * i + 1] = scales[q, i, RISING]
                    solve(
                        A[c], path_products[q], b[q], cross[c], path_cross[q], weights[c], cells[q], strengths,
                        s[LEARNED], prior, theta[q], effect[q],
                    )  # fmt: skip
            s[OPEN] = 1.0
            if solves:
                s[SOLVED] = s[LEARNED]
            changed[c] = 0
    return n
