"""What the sparse engine does to the columns of many learners: the same for every rule, and compiled once for all.

Derived in SPARSE.md.

One feature is one contiguous run of all learners' values, so every loop here ends in a loop over learners. All that
is known of a column for its own sake is the time it was last touched, and all columns are logged in that order.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from emphatic.engines.calling import function_at
from emphatic.engines.compiled import jit
from emphatic.engines.sparse_text import HIGH, LOW, SHRUNK

__all__ = ["LANES", "NEVER", "Columns", "predict", "run", "settle_all"]

#: Learners that fold together: what one of them visits is at hand for its neighbours.
LANES = 64
#: What is left of a trace counts as nothing below this: each power of ten costs visits to older columns.
DEAD = 1e-40
#: Where columns are visited anyway, a trace is closed if it has shrunk to this part of its peak.
EARLY = 0.3
#: A time that never comes.
NEVER = np.iinfo(np.int32).max


class Columns(NamedTuple):
    """X = C·H for K learners of m vectors, the first w of them weights, the other q traces."""

    H: NDArray[np.floating]  # (n, m, K)
    diag: NDArray[np.float64]  # (m, K): C_rr
    take: NDArray[np.float64]  # (w, q, K): C_rj
    feeds: NDArray[np.bool_]  # (w, q): whether weight r takes trace j at all
    takes_next: NDArray[np.bool_]  # (w,): whether weight r takes φ'
    peak: NDArray[np.float64]  # (q, K): the largest |C_jj| since it was closed
    since: NDArray[np.int32]  # (q, K): a column last touched before this has no trace left
    mark: NDArray[np.int32]  # (q, K): a time, and
    left: NDArray[np.float64]  # (q, K): what is left of the trace of a column last touched before it
    touch: NDArray[np.int32]  # (n,): when a column was last touched
    log: NDArray[np.int32]  # (3 n,): columns in the order of their touches; an entry counts if
    where: NDArray[np.int32]  # (n,): the column's own place in the log is that entry
    clock: NDArray[np.int64]  # (2,): the time, and the length of the log
    # what only lives within a step
    A: NDArray[np.float64]  # (m, m, K)
    B: NDArray[np.float64]  # (m, 2, K)
    x: NDArray[np.float64]  # (m, K): X·φ
    y: NDArray[np.float64]  # (m, K): X·φ'
    u: NDArray[np.floating]  # (m, K): what H takes of φ
    v: NDArray[np.floating]  # (w, K): and of φ'
    pay: NDArray[np.floating]  # (w, q, K): what H_r takes of H_j in a fold
    keep: NDArray[np.floating]  # (q, K): and what H_j keeps
    later: NDArray[np.int32]  # (q, K): ``since`` after the fold
    reach: NDArray[np.int32]  # (blocks of LANES,): how far back a fold must go
    near: NDArray[np.bool_]  # (K,): too near the end of the number range for C and H
    place: NDArray[np.int32]  # (n,): where in φ, or −1


def run(
    at, c, scalars, after, delta, parameters, start, index, value, start_next, index_next, value_next, top, limits,
    predictions,
):  # fmt: skip
    """T steps of all learners; −1, or t·K + k if learner k would diverge at step t, before which all then stand.

    ``at`` is where the rule's ``decide`` is: A, B and the new scalars of every learner from the inner products. If
    ``predictions`` has a row more than there are steps, the last is θ·φ' after them, of products that are there
    anyway: X φ' becomes A X φ' + B [φ·φ'; φ'·φ'].
    """
    n, m, K = c.H.shape
    decide = function_at(at)
    M = scalars.shape[1] - m - 1
    dense, scattered = np.zeros((2, 0)), -1
    for t in range(start.shape[0] - 1):
        begin, end, begin_next, end_next = start[t], start[t + 1], start_next[t], start_next[t + 1]
        squares = products(c, index, value, begin, end, index_next, value_next, begin_next, end_next)
        if predictions.shape[0] > 0:
            for k in range(K):
                predictions[t, k] = c.x[0, k]
        k = decide(t, parameters, c.x, c.y, squares, top, limits, scalars, c.A, c.B, after, delta, c.near)
        for near in range(K if k < 0 else k):
            if c.near[near]:
                if scattered < t:
                    dense, scattered = (
                        scatter(n, index, value, begin, end, index_next, value_next, begin_next, end_next),
                        t,
                    )
                if not try_out(c, near, dense, limits[0], after[near, M : M + m]):
                    k = near
                    break
        if k >= 0:
            c.near[:] = False
            return t * K + k
        if t + 2 == min(start.shape[0], predictions.shape[0]):
            for k in range(K):
                v = c.B[0, 0, k] * squares[1] + c.B[0, 1, k] * squares[2]
                for r in range(m):
                    v += c.A[0, r, k] * c.y[r, k]
                predictions[t + 1, k] = v
        move(c, dense, index, value, begin, end, index_next, value_next, begin_next, end_next)
        for k in range(K):
            for i in range(M + m):
                scalars[k, i] = after[k, i]
            scalars[k, M + m] += 1.0
    return -1


@jit
def scatter(n, index, value, begin, end, index_next, value_next, begin_next, end_next):
    """φ and φ' as arrays."""
    dense = np.zeros((2, n))
    for a in range(begin, end):
        if 0 <= index[a] < n:
            dense[0, index[a]] = value[a]
    for a in range(begin_next, end_next):
        if 0 <= index_next[a] < n:
            dense[1, index_next[a]] = value_next[a]
    return dense


@jit
def products(c, index, value, begin, end, index_next, value_next, begin_next, end_next):
    """X·φ and X·φ' into c.x and c.y; returns φ·φ, φ·φ', φ'·φ'."""
    n = c.H.shape[0]
    pp, pq, qq = 0.0, 0.0, 0.0
    for a in range(begin, end):
        if 0 <= index[a] < n:
            c.place[index[a]] = a - begin
            pp += value[a] * value[a]
    for a in range(begin_next, end_next):
        if 0 <= index_next[a] < n:
            qq += value_next[a] * value_next[a]
            if c.place[index_next[a]] >= 0:
                pq += value[begin + c.place[index_next[a]]] * value_next[a]
    for a in range(begin, end):
        if 0 <= index[a] < n:
            c.place[index[a]] = -1
    look(c, index, value, begin, end, c.x)
    look(c, index_next, value_next, begin_next, end_next, c.y)
    return pp, pq, qq


@jit
def look(c, index, value, begin, end, out):
    """X·φ of every learner and vector: H·φ over the active columns, then C."""
    n, m, K = c.H.shape
    w, q = c.feeds.shape
    four_i, four_v, held = np.zeros(4, np.int64), np.zeros(4), 0
    out[:] = 0.0
    for a in range(begin, end):
        i, v = index[a], value[a]
        if not 0 <= i < n:
            continue
        four_i[held], four_v[held], held = i, v, held + 1
        if held == 4:
            held = 0
            i0, i1, i2, i3 = four_i[0], four_i[1], four_i[2], four_i[3]
            v0, v1, v2, v3 = four_v[0], four_v[1], four_v[2], four_v[3]
            t0, t1, t2, t3 = c.touch[i0], c.touch[i1], c.touch[i2], c.touch[i3]
            for r in range(m):
                total, x0, x1, x2, x3 = out[r], c.H[i0, r], c.H[i1, r], c.H[i2, r], c.H[i3, r]
                if r < w:
                    for k in range(K):
                        total[k] += (v0 * x0[k] + v1 * x1[k]) + (v2 * x2[k] + v3 * x3[k])
                else:
                    s = c.since[r - w]
                    for k in range(K):
                        h0 = v0 * x0[k] if t0 >= s[k] else 0.0
                        h1 = v1 * x1[k] if t1 >= s[k] else 0.0
                        h2 = v2 * x2[k] if t2 >= s[k] else 0.0
                        h3 = v3 * x3[k] if t3 >= s[k] else 0.0
                        total[k] += (h0 + h1) + (h2 + h3)
    for b in range(held):
        i, v = four_i[b], four_v[b]
        for r in range(m):
            total, x = out[r], c.H[i, r]
            if r < w:
                for k in range(K):
                    total[k] += v * x[k]
            else:
                touched, s = c.touch[i], c.since[r - w]
                for k in range(K):
                    total[k] += v * x[k] if touched >= s[k] else 0.0
    for r in range(w):
        for k in range(K):
            out[r, k] *= c.diag[r, k]
        for j in range(q):
            if c.feeds[r, j]:
                for k in range(K):
                    out[r, k] += c.take[r, j, k] * out[w + j, k]
    for j in range(w, m):
        for k in range(K):
            out[j, k] *= c.diag[j, k]


def predict(c, start, index, value, out):
    """θ·φ for every row and learner, changing nothing."""
    for t in range(start.shape[0] - 1):
        look(c, index, value, start[t], start[t + 1], c.x)
        out[t] = c.x[0]


@jit
def settle(c, first, last):
    """C ← 1 for learners first … last−1: their H is their X."""
    n, m, K = c.H.shape
    w, q = c.feeds.shape
    for i in range(n):
        for j in range(q):
            for k in range(first, last):
                if c.touch[i] < c.since[j, k]:
                    c.H[i, w + j, k] = 0.0
        for r in range(w):
            for k in range(first, last):
                z = c.diag[r, k] * c.H[i, r, k]
                for j in range(q):
                    z += c.take[r, j, k] * c.H[i, w + j, k]
                c.H[i, r, k] = z
        for r in range(w, m):
            for k in range(first, last):
                c.H[i, r, k] = c.diag[r, k] * c.H[i, r, k]
    for k in range(first, last):
        unit(c, k)


def settle_all(c):
    """The same for all."""
    settle(c, 0, c.H.shape[2])


@jit
def unit(c, k):
    """C ← 1 for learner k."""
    c.diag[:, k] = 1.0
    c.take[:, :, k] = 0.0
    c.peak[:, k] = 1.0


@jit
def try_out(c, k, dense, limit, bounds):
    """Whether learner k's next X is finite, on plain columns; puts max |X_r| into ``bounds``."""
    n, m, K = c.H.shape
    settle(c, k, k + 1)
    c.since[:, k] = 0
    c.later[:, k] = 0
    c.near[k] = True
    for r in range(m):
        bounds[r] = 0.0
        for i in range(n):
            size = abs(np.float64(c.H.dtype.type(component(c, dense, i, r, k))))
            if not size <= limit:
                return False
            bounds[r] = max(bounds[r], size)
    return True


@jit
def component(c, dense, i, r, k):
    """Component i of row r of A X + B [φ; φ'], where C = 1."""
    z = c.B[r, 0, k] * dense[0, i] + c.B[r, 1, k] * dense[1, i]
    for s in range(c.H.shape[1]):
        z += c.A[r, s, k] * c.H[i, s, k]
    return z


@jit
def move(c, dense, index, value, begin, end, index_next, value_next, begin_next, end_next):
    """X ← A X + B [φ; φ'] for every learner."""
    n, m, K = c.H.shape
    w, q = c.feeds.shape
    for k in range(K):
        if c.near[k]:
            for i in range(n):
                for r in range(m):
                    c.x[r, k] = component(c, dense, i, r, k)
                for r in range(m):
                    c.H[i, r, k] = c.x[r, k]
    for r in range(w):
        for j in range(q):
            if c.feeds[r, j]:
                for k in range(K):
                    c.take[r, j, k] = c.A[r, r, k] * c.take[r, j, k] + c.A[r, w + j, k] * c.diag[w + j, k]
    for r in range(m):
        for k in range(K):
            c.diag[r, k] *= c.A[r, r, k]
    for k in range(K):
        if c.near[k]:
            unit(c, k)
    c.clock[0] += 1
    if close(c):
        fold(c)
    for j in range(w, m):
        for k in range(K):
            c.u[j, k] = c.B[j, 0, k] / c.diag[j, k]
    for r in range(w):
        for k in range(K):
            more = c.B[r, 0, k]
            for j in range(q):
                more -= c.take[r, j, k] * (c.B[w + j, 0, k] / c.diag[w + j, k])
            c.u[r, k] = more / c.diag[r, k]
            c.v[r, k] = c.B[r, 1, k] / c.diag[r, k]
    for k in range(K):
        if c.near[k]:
            c.u[:, k] = 0.0
            c.v[:, k] = 0.0
            c.near[k] = False
    add(c, index, value, begin, end)
    for r in range(w):
        if c.takes_next[r]:
            for a in range(begin_next, end_next):
                i = index_next[a]
                if 0 <= i < n:
                    v, x, u = c.H.dtype.type(value_next[a]), c.H[i, r], c.v[r]
                    for k in range(K):
                        x[k] += v * u[k]


@jit
def close(c):
    """Close every trace whose scale has shrunk; whether any column must be visited for it."""
    m, K = c.diag.shape
    w, q = c.feeds.shape
    for r in range(w):
        first, last = K, 0
        for k in range(K):
            if not LOW < abs(c.diag[r, k]) < HIGH:
                first, last = min(first, k), k + 1
        if first < last:
            settle(c, first, last)
    visit = False
    for j in range(q):
        shrunk = SHRUNK if c.feeds[:, j].any() else 0.0
        for k in range(K):
            size = abs(c.diag[w + j, k])
            c.peak[j, k] = max(size, c.peak[j, k])
            if not (LOW <= size <= HIGH and size >= shrunk * c.peak[j, k]):
                reach = c.since[j, k]
                if shut(c, j, k):
                    visit = True
                    c.reach[k // LANES] = min(c.reach[k // LANES], reach)
    if visit:
        # Whoever has shrunk a little goes along, if its columns are visited anyway: the next visit is later then.
        for j in range(q):
            for k in range(K):
                if (
                    c.later[j, k] == c.since[j, k] >= c.reach[k // LANES]
                    and abs(c.diag[w + j, k]) < EARLY * c.peak[j, k]
                    and c.feeds[:, j].any()
                ):
                    shut(c, j, k)
    return visit


@jit
def shut(c, j, k):
    """Close trace j of learner k: C says no more of it, the columns must. False if no column has anything to pay."""
    w = c.feeds.shape[0]
    now = np.int32(c.clock[0])
    scale = c.diag[w + j, k]
    owes = scale != 0.0
    for r in range(w):
        c.pay[r, j, k] = c.take[r, j, k] / c.diag[r, k]
        owes = owes or c.take[r, j, k] != 0.0
        c.take[r, j, k] = 0.0
    c.keep[j, k] = scale if owes else 1.0
    c.diag[w + j, k] = 1.0
    c.peak[j, k] = 1.0
    c.left[j, k] *= abs(scale)
    if c.left[j, k] < DEAD:
        c.later[j, k] = now if scale == 0.0 else c.mark[j, k]
        c.mark[j, k] = now
        c.left[j, k] = 1.0
        if not owes:
            c.since[j, k] = c.later[j, k]
    return owes


@jit
def fold(c):
    """Bring the columns that still have a trace up to date, for the blocks of learners in which one was closed."""
    w, q = c.feeds.shape
    zero = c.H.dtype.type(0.0)
    spans, reach = spans_to_fold(c)
    oldest = reach.min()
    at = c.clock[1] - 1
    while at >= 0:
        i = c.log[at]
        touched = c.touch[i]
        if c.where[i] == at:
            if touched < oldest:
                break
            for b in range(len(reach)):
                if touched < reach[b]:
                    continue
                first, last = spans[b, 0], spans[b, 1]
                for j in range(q):
                    e, s = c.H[i, w + j, first:last], c.since[j, first:last]
                    for r in range(w):
                        if c.feeds[r, j]:
                            x, pay = c.H[i, r, first:last], c.pay[r, j, first:last]
                            for k in range(len(s)):
                                h = e[k] if touched >= s[k] else zero
                                x[k] += pay[k] * h
                    keep = c.keep[j, first:last]
                    for k in range(len(s)):
                        h = e[k] if touched >= s[k] else zero
                        e[k] = keep[k] * h
        at -= 1
    for b in range(len(reach)):
        first, last = spans[b, 0], spans[b, 1]
        c.pay[:, :, first:last] = 0.0
        c.keep[:, first:last] = 1.0
        c.since[:, first:last] = c.later[:, first:last]
    c.reach[:] = NEVER


@jit
def spans_to_fold(c):
    """Neighbouring blocks of learners that must go back equally far, together."""
    blocks = len(c.reach)
    spans, reach, length = np.zeros((blocks, 2), np.int64), np.full(blocks, NEVER, np.int32), 0
    for b in range(blocks):
        if c.reach[b] == NEVER:
            continue
        if length == 0 or spans[length - 1, 1] != b * LANES or reach[length - 1] != c.reach[b]:
            spans[length, 0], reach[length] = b * LANES, c.reach[b]
            length += 1
        spans[length - 1, 1] = min(b * LANES + LANES, c.H.shape[2])
    return spans[:length], reach[:length]


@jit
def add(c, index, value, begin, end):
    """H += u φ, which touches the active columns."""
    n, m, K = c.H.shape
    w, q = c.feeds.shape
    zero = c.H.dtype.type(0.0)
    now = np.int32(c.clock[0])
    if c.clock[1] + (end - begin) > c.log.shape[0]:
        compact(c)
    at = c.clock[1]
    for a in range(begin, end):
        i = index[a]
        if not 0 <= i < n:
            continue
        v = c.H.dtype.type(value[a])
        for r in range(w):
            x, u = c.H[i, r], c.u[r]
            for k in range(K):
                x[k] += v * u[k]
        touched = c.touch[i]
        for j in range(q):
            e, u, s = c.H[i, w + j], c.u[w + j], c.since[j]
            for k in range(K):
                h = e[k] if touched >= s[k] else zero
                e[k] = h + v * u[k]
        c.touch[i], c.where[i], c.log[at] = now, at, i
        at += 1
    c.clock[1] = at


@jit
def compact(c):
    """Drop what no longer counts from the log."""
    length = 0
    for at in range(c.clock[1]):
        i = c.log[at]
        if c.where[i] == at:
            c.log[length] = i
            c.where[i] = length
            length += 1
    c.clock[1] = length
