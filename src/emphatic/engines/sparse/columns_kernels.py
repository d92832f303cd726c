"""What the sparse engine does to the columns of many learners. Derived in SPARSE.md.

A feature is a column, in which all learners' values lie side by side: K of each weight, then K of each trace. So every
long loop here is over learners, or over a whole column. ``H[i]`` is column i. ``since`` is as long as a column: one
that was last touched before that time has no trace left, whatever H holds there (0 for weights, which always count).
``scale`` holds C, a number a learner in each row. All that is known of a column for its own sake is when it was last
touched, and all columns are logged in that order.

Functions that are not defined here belong to the rule: see ``rule_functions`` and ``sparse_many_functions``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from emphatic.engines.compiled import exact, inner

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from emphatic.engines.rule_functions import LIMIT, TRACES, VECTORS, WEIGHTS, real
    from emphatic.engines.sparse.sparse_many_functions import HIGH, LEFT, LOW, PEAK, SHRUNK, TAKE, feeds

    Array = NDArray[Any]
    Floats = NDArray[np.float64]
    Integers = NDArray[np.int64]
    Times = NDArray[np.int32]

#: Learners that fold together: what one of them visits is then in the cache for its neighbours.
LANES = 64
#: A trace that has decayed to less than this counts as 0: each power of ten costs visits to older columns.
DEAD = 1e-40
#: Where columns are visited anyway, a trace is closed if it has shrunk to this part of its peak.
EARLY = 0.3
#: Later than any time.
NEVER = 2**31 - 1

#: The rows of ``places``: when a column was last touched, and which entry of the log is its own.
TOUCH, WHERE = 0, 1
#: The rows of ``spans``: the first of some neighbouring learners, the last and one more, and how far back they fold.
FIRST, LAST, REACH = 0, 1, 2


@inner
def look(
    H: Array, scale: Floats, since: Times, places: Times, active: Times, count: int, phi: Floats, out: Floats
) -> None:
    """X·φ of every vector and learner: H·φ with four columns in one pass over the sums, and then C."""
    size, K = H.shape[1], scale.shape[1]
    for k in range(size):
        out[k] = 0.0
    fours = count - count % 4
    for a in range(0, fours, 4):
        i0, i1, i2, i3 = active[a], active[a + 1], active[a + 2], active[a + 3]
        v0, v1, v2, v3 = phi[i0], phi[i1], phi[i2], phi[i3]
        t0, t1, t2, t3 = places[TOUCH, i0], places[TOUCH, i1], places[TOUCH, i2], places[TOUCH, i3]
        for k in range(size):
            h0 = v0 * H[i0, k] if t0 >= since[k] else 0.0
            h1 = v1 * H[i1, k] if t1 >= since[k] else 0.0
            h2 = v2 * H[i2, k] if t2 >= since[k] else 0.0
            h3 = v3 * H[i3, k] if t3 >= since[k] else 0.0
            out[k] += (h0 + h1) + (h2 + h3)
    for a in range(fours, count):
        i = active[a]
        v, touched = phi[i], places[TOUCH, i]
        for k in range(size):
            out[k] += v * H[i, k] if touched >= since[k] else 0.0
    for r in range(size // K):
        x = out[r * K : r * K + K]
        for k in range(K):
            x[k] *= scale[r, k]
        for j in range(TRACES if r < WEIGHTS else 0):
            e = out[(WEIGHTS + j) * K : (WEIGHTS + j) * K + K]
            for k in range(K):
                x[k] += scale[TAKE + r * TRACES + j, k] * e[k]


@inner
def add(
    H: Array, since: Times, places: Times, log: Times, clock: Integers, draws: Array, active: Times, count: int,
    phi: Floats,
) -> None:  # fmt: skip
    """H += C⁻¹B φ, which touches the active columns."""
    if clock[1] + count > log.shape[0]:
        compact(places, log, clock)
    for a in range(count):
        i = active[a]
        v, touched = real(phi[i]), places[TOUCH, i]
        for k in range(H.shape[1]):
            h = H[i, k] if touched >= since[k] else real(0)
            H[i, k] = h + v * draws[k]
        places[TOUCH, i], places[WHERE, i], log[clock[1]] = clock[0], clock[1], i
        clock[1] += 1


@inner
def compact(places: Times, log: Times, clock: Integers) -> None:
    """Drop from the log what no longer counts."""
    length = 0
    for at in range(clock[1]):
        i = log[at]
        if places[WHERE, i] == at:
            log[length] = i
            places[WHERE, i] = length
            length += 1
    clock[1] = length


@exact
def scale_left(scale: Floats, j: int, k: int, factor: float) -> None:
    """What is left of trace j of old columns, times the factor; at most LIMIT, above which no finite trace is."""
    left = scale[LEFT + j, k] * abs(factor)
    scale[LEFT + j, k] = left if left <= LIMIT else LIMIT


@exact
def settle(H: Array, scale: Floats, since: Times, places: Times, first: int, last: int) -> None:
    """C ← 1 for learners first … last−1: their H is their X, to the bits that reading it gives."""
    K = scale.shape[1]
    for i in range(H.shape[0]):
        touched = places[TOUCH, i]
        for r in range(H.shape[1] // K):
            for k in range(first, last):
                h = H[i, r * K + k] if touched >= since[r * K + k] else real(0)
                z = scale[r, k] * h
                for j in range(TRACES if r < WEIGHTS else 0):
                    if touched >= since[(WEIGHTS + j) * K + k]:
                        z += scale[TAKE + r * TRACES + j, k] * H[i, (WEIGHTS + j) * K + k]
                H[i, r * K + k] = z
    for k in range(first, last):
        for j in range(TRACES):
            scale_left(scale, j, k, scale[WEIGHTS + j, k])
            scale[PEAK + j, k] = 1.0
        for row in range(PEAK):
            scale[row, k] = 1.0 if row < VECTORS else 0.0


@inner
def settle_weights(H: Array, scale: Floats, since: Times, places: Times) -> None:
    """Settle learners with a weight whose own scale leaves its bounds."""
    K = scale.shape[1]
    first, last = K, 0
    for r in range(WEIGHTS):
        for k in range(K):
            if not LOW < abs(scale[r, k]) < HIGH:
                first = k if k < first else first
                last = k + 1 if k >= last else last
    if first < last:
        settle(H, scale, since, places, first, last)


@inner
def close(
    scale: Floats, since: Times, marks: Times, later: Times, shares: Array, spans: Times, closing: Times, j: int,
    now: Any,
) -> bool:  # fmt: skip
    """Close trace j of every learner whose scale has shrunk: from then on its decay is in the columns, not in C.

    Returns whether any column has to be updated. If so, ``shares`` are what H_r takes of H_j, and last what H_j keeps;
    ``later`` is ``since`` after that; and ``spans`` say how far back each block of learners must go.
    """
    K, own = scale.shape[1], (WEIGHTS + j) * scale.shape[1]
    least = 0.0
    for r in range(WEIGHTS):
        if feeds(r, j):
            least = SHRUNK
    shrunk, visit = False, False
    for k in range(K):
        size, peak = abs(scale[WEIGHTS + j, k]), scale[PEAK + j, k]
        peak = size if size > peak else peak
        scale[PEAK + j, k] = peak
        closing[k] = not (LOW <= size <= HIGH and size >= least * peak)
        shrunk |= closing[k] > 0
    if not shrunk:
        return False
    for b in range(spans.shape[1]):
        spans[REACH, b] = NEVER
    for k in range(K):
        owes = scale[WEIGHTS + j, k] != 0.0
        for r in range(WEIGHTS):
            owes = owes or scale[TAKE + r * TRACES + j, k] != 0.0
        if closing[k] and owes:
            visit = True
            if since[own + k] < spans[REACH, k // LANES]:
                spans[REACH, k // LANES] = since[own + k]
    for k in range(K):
        scaled, here = scale[WEIGHTS + j, k], since[own + k]
        # If its columns are visited anyway, a trace that has shrunk a little is closed too: the next visit is later.
        if least > 0.0 and abs(scaled) < EARLY * scale[PEAK + j, k] and here >= spans[REACH, k // LANES]:
            closing[k] = True
        later[k], shares[WEIGHTS, k] = here, scaled if closing[k] else 1.0
        for r in range(WEIGHTS):
            shares[r, k] = scale[TAKE + r * TRACES + j, k] / scale[r, k] if closing[k] else 0.0
        if closing[k]:
            for r in range(WEIGHTS):
                scale[TAKE + r * TRACES + j, k] = 0.0
            scale[WEIGHTS + j, k] = scale[PEAK + j, k] = 1.0
            scale_left(scale, j, k, scaled)
            if scale[LEFT + j, k] < DEAD:
                later[k] = now if scaled == 0.0 else marks[j, k]
                marks[j, k], scale[LEFT + j, k] = now, 1.0
        if not visit:
            since[own + k] = later[k]
    return visit


@inner
def fold(
    H: Array, since: Times, places: Times, log: Times, clock: Integers, later: Times, shares: Array, spans: Times,
    j: int,
) -> None:  # fmt: skip
    """Bring the columns that still have trace j up to date, for the blocks of learners in which it was closed."""
    K = later.shape[0]
    count = merge(spans, K)
    oldest = NEVER
    for b in range(count):
        oldest = spans[REACH, b] if spans[REACH, b] < oldest else oldest
    own = (WEIGHTS + j) * K
    for at in range(clock[1] - 1, -1, -1):
        i = log[at]
        if places[WHERE, i] != at:
            continue
        touched = places[TOUCH, i]
        if touched < oldest:
            break
        for b in range(count):
            if touched >= spans[REACH, b]:
                first, last = spans[FIRST, b], spans[LAST, b]
                e, begin = H[i, own + first : own + last], since[own + first : own + last]
                for r in range(WEIGHTS):
                    if feeds(r, j):
                        x, share = H[i, r * K + first : r * K + last], shares[r, first:last]
                        for k in range(len(begin)):
                            x[k] += share[k] * (e[k] if touched >= begin[k] else real(0))
                share = shares[WEIGHTS, first:last]
                for k in range(len(begin)):
                    e[k] = share[k] * (e[k] if touched >= begin[k] else real(0))
    for k in range(K):
        since[own + k] = later[k]


@inner
def merge(spans: Times, K: int) -> int:
    """Merge neighbouring blocks of learners that must go back equally far; returns how many there are then."""
    count = 0
    for b in range(spans.shape[1]):
        reach = spans[REACH, b]
        if reach < NEVER:
            if count == 0 or spans[LAST, count - 1] != b * LANES or spans[REACH, count - 1] != reach:
                spans[FIRST, count], spans[REACH, count] = b * LANES, reach
                count += 1
            spans[LAST, count - 1] = b * LANES + LANES if b * LANES + LANES < K else K
    return count
