"""The loop over the rows of ``ridges``.  Compiled without fast mathematics: the bits do not depend on blocks."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numba import types
from numba.extending import register_jitable

from emphatic.engines.compiled import jit_for

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    Integers = NDArray[np.int64]

_f1, _f2, _f3 = (types.Array(types.float64, ndim, "C") for ndim in (1, 2, 3))
_r1, _r2 = (types.Array(types.float64, ndim, "C", readonly=True) for ndim in (1, 2))
_i1, _i2 = (types.Array(types.int64, ndim, "C", readonly=True) for ndim in (1, 2))
_w1, _w2 = (types.Array(types.int64, ndim, "C") for ndim in (1, 2))
_b1 = types.Array(types.boolean, 1, "C", readonly=True)

# What is counted: rows, those of them that wait, Σ w, the squares of active values, their number, and rows when solved.
ROWS, WAITING, WEIGHT, SQUARES, ACTIVE, SOLVED = range(6)
# Of each question: the prediction at the last row, the mean reading before the first solution, Σ w G, and the return of
# the rows that wait.
BEFORE, MEAN, RETURNS, AHEAD = range(4)
#: A reading beyond this is not used.
LARGEST = 1e100


@register_jitable
def pack(index: Integers, value: Floats, n: int) -> tuple[Integers, Floats]:
    """The features (k,) that are active in some of L rows, in rising order, and their values in each row, (L, k)."""
    L, m = index.shape
    place, k = np.full(n, -1), 0
    for t in range(L):
        for a in range(m):
            if index[t, a] >= 0:
                place[index[t, a]] = 0
    for i in range(n):
        if place[i] == 0:
            place[i] = k
            k += 1
    active, Phi = np.empty(k, np.int64), np.zeros((L, k))
    for t in range(L):
        for a in range(m):
            i = index[t, a]
            if i >= 0:
                active[place[i]] = i
                Phi[t, place[i]] += value[t, a]
    return active, Phi


@register_jitable
def weigh(Phi: Floats, k: int, t: int, last: float) -> float:
    """The k-th feature of row t, times the number of that row."""
    return float((last - (len(Phi) - 1 - t)) * Phi[t, k])


@register_jitable
def add_waiting(
    gamma: Floats, horizon: Integers, counts: Floats, each: Floats, sums: Floats, A: Floats, z: Floats,
    weights: Floats, b: Floats, index: Integers, value: Floats, steps: Floats,
) -> None:  # fmt: skip
    """Add the rows that wait to the sums.

    Returns are summed backwards, as far as they are known, and take the place of ``steps``. All rows are added to one
    row of A before the next: its columns that they share are gathered and scattered once, and added to side by side.
    """
    n, Q, H = A.shape[0], b.shape[1], len(gamma)
    L, m = index.shape
    last = counts[ROWS]
    for q in range(Q):
        each[AHEAD, q] = 0.0
    for h in range(H):
        weights[h + H] = 1.0  # by how much what comes before a row counts at the last one
    recent = np.empty((L, H))  # the weight of each row in z
    squares, actives = counts[SQUARES], counts[ACTIVE]
    for t in range(L - 1, -1, -1):
        w = last - (L - 1 - t)
        counts[WEIGHT] += w
        for a in range(m):
            if index[t, a] >= 0:
                squares += value[t, a] * value[t, a]
                actives += 1.0
        follows = steps[t, Q] > 0.0
        for q in range(Q):
            known = each[AHEAD, q]
            each[RETURNS, q] += w * known
            each[AHEAD, q] = steps[t, q] + (gamma[horizon[q]] * known if follows else 0.0)
            steps[t, q] = known
        for h in range(H):
            recent[t, h] = weights[h + H] * w
            weights[h + H] *= gamma[h] if follows else 0.0
    counts[SQUARES], counts[ACTIVE] = squares, actives
    active, Phi = pack(index, value, n)
    own = np.empty(len(active))
    for k in range(len(active)):
        i = active[k]
        for c in range(k + 1):
            own[c] = A[i, active[c]]
        for t in range(L - 1, -1, -4):  # four rows in one pass over the sums, one row after the other
            t1, t2, t3 = t - 1, t - 2, t - 3
            w0, w1 = weigh(Phi, k, t, last), weigh(Phi, k, t1, last)
            w2, w3 = weigh(Phi, k, t2, last), weigh(Phi, k, t3, last)
            sums[i] = sums[i] + w0 + w1 + w2 + w3
            for q in range(Q):
                b[i, q] = b[i, q] + w0 * steps[t, q] + w1 * steps[t1, q] + w2 * steps[t2, q] + w3 * steps[t3, q]
            for c in range(k + 1):
                own[c] = own[c] + w0 * Phi[t, c] + w1 * Phi[t1, c] + w2 * Phi[t2, c] + w3 * Phi[t3, c]
        for c in range(k + 1):
            A[i, active[c]] = own[c]
    for i in range(n):  # the rows before these
        for q in range(Q):
            b[i, q] += each[AHEAD, q] * z[i, horizon[q]]
        for h in range(H):
            z[i, h] *= weights[h + H]
    for h in range(H):
        for k in range(len(active)):
            own[k] = z[active[k], h]
        for t in range(L - 1, -1, -1):
            for k in range(len(active)):
                own[k] += recent[t, h] * Phi[t, k]
        for k in range(len(active)):
            z[active[k], h] = own[k]
    for q in range(Q):
        each[RETURNS, q] += each[AHEAD, q] * weights[horizon[q]]
    for h in range(H):
        weights[h] *= weights[h + H]
        for t in range(L - 1, -1, -1):
            weights[h] += recent[t, h]


@jit_for((_f2, _w1, _f1, types.float64, _f2), fastmath=False)
def gather(A: Floats, active: Integers, mean: Floats, N: float, system: Floats) -> None:
    """The upper half of A − N m mᵀ of the active features, from the lower half of A."""
    for i in range(len(active)):
        row, weight = active[i], N * mean[i]
        for j in range(i + 1):
            system[j, i] = A[row, active[j]] - weight * mean[j]


@jit_for((
    _i2, _r2, _r2, _b1, _f3, types.int64, types.int64, types.int64, types.boolean, _r1, _r1, _i1, _f2, _f1, _f1, _f2,
    _f1, _f2, _f2, _f1, _f2, _w2, _f2, _f2,
), fastmath=False)  # fmt: skip
def rows(
    index: Integers, value: Floats, X: Floats, follows: NDArray[np.bool_], answers: Floats, place: int, begin: int,
    due: int, learn: bool, base: Floats, gamma: Floats, horizon: Integers, theta: Floats, intercept: Floats,
    counts: Floats, each: Floats, sums: Floats, A: Floats, z: Floats, weights: Floats, b: Floats, waiting: Integers,
    values: Floats, steps: Floats,
) -> int:  # fmt: skip
    """Predict at rows from ``begin`` on, and learn from them; returns the next row.

    The predictions of S strengths go into ``answers`` (B, Q, …) from ``place`` on. All is learned less ``base``.
    Rows are active features (B, m) and readings (B, Q), NaN where missing. They wait until there are enough of them to
    be added to the sums; when these then hold ``due`` rows or more the loop ends, so that they can be solved. What a
    row adds to the returns of those before it is in ``steps`` (·, Q + 1), and last whether it follows them.
    """
    B, m = index.shape
    Q, S = X.shape[1], len(intercept) // X.shape[1]
    out, active, phi = np.empty(Q * S), np.empty(m + 3, np.int64), np.empty(m + 3)
    for t in range(begin, B):
        solved = counts[SOLVED] > 0.0
        for q in range(Q):
            x = X[t, q] - base[q]
            if learn and not solved and abs(x) <= LARGEST:
                each[MEAN, q] += (x - each[MEAN, q]) / (counts[ROWS] + 1.0)
            for s in range(S):
                out[q * S + s] = intercept[q * S + s] if solved else each[MEAN, q]
        if solved:
            count = 0
            for a in range(m):
                if index[t, a] >= 0:
                    active[count], phi[count] = index[t, a], value[t, a]
                    count += 1
            for a in range(count, count + 3):
                active[a], phi[a] = 0, 0.0
            for a in range(0, count, 4):  # four features in one pass over the sums, one feature after the other
                i0, i1, i2, i3 = active[a], active[a + 1], active[a + 2], active[a + 3]
                v0, v1, v2, v3 = phi[a], phi[a + 1], phi[a + 2], phi[a + 3]
                for k in range(Q * S):
                    out[k] = out[k] + v0 * theta[i0, k] + v1 * theta[i1, k] + v2 * theta[i2, k] + v3 * theta[i3, k]
        for q in range(Q):
            for s in range(S):
                answers[t, q, place + s] = out[q * S + s] + base[q]
        if not learn:
            continue
        k = int(counts[WAITING])
        steps[k, Q] = 1.0 if follows[t] else 0.0
        for q in range(Q):
            p, x, g = out[q * S + S // 2], X[t, q] - base[q], gamma[horizon[q]]
            if not follows[t]:
                steps[k, q] = each[BEFORE, q]
            elif abs(x) <= LARGEST:
                steps[k, q] = (1.0 - g) * x
            else:
                steps[k, q] = each[BEFORE, q] - g * p
            each[BEFORE, q] = p
        for a in range(m):
            waiting[k, a], values[k, a] = index[t, a], value[t, a]
        counts[ROWS] += 1.0
        counts[WAITING] += 1.0
        if k + 1 == len(waiting):
            add_waiting(gamma, horizon, counts, each, sums, A, z, weights, b, waiting, values, steps)
            counts[WAITING] = 0.0
            if counts[ROWS] >= due:
                return t + 1
    return int(B)
