"""The steps of the sparse engine for K learners: ``run``, and ``predict`` and ``settle_all`` beside it.

In each step all learners decide before any moves. ``form`` then holds A and B of every learner, in rows like those of
``scale``; a learner that is not to move has A = 1 and B = 0.

A feature is a column, in which all learners' values lie side by side: K of each weight, then K of each trace. So every
long loop here is over learners, or over a whole column. ``H[i]`` is column i. ``since`` is as long as a column: one
that was last touched before that time has no trace left, whatever H holds there (0 for weights, which always count).
``scale`` holds C, a number a learner in each row. All that is known of a column for its own sake is when it was last
touched, and all columns are logged in that order.

SPARSE.md derives all this. Functions that are not defined here belong to the rule: see ``rule_functions`` and
``sparse_many``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from emphatic.engines.compiled import exact, inner
from emphatic.engines.intrinsics import get_apart, put_apart

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from emphatic.engines.rule_functions import (
        COUNTER, FORGOTTEN, LIMIT, MEMORY, TRACES, VECTORS, WEIGHTS, bounds, decide, is_acceptable, is_finite, is_small,
        load, real, step_at, store,
    )  # fmt: skip
    from emphatic.engines.sparse.sparse_many import (
        HIGH, LEFT, LOW, NEAR_THE_END, NEXT, OWN_SCALES, PEAK, PHI, PHI_NEXT, SHRUNK, TAKE, feeds, products, put_form,
    )  # fmt: skip
    from emphatic.rules import Scalars

    Array = NDArray[Any]
    Floats = NDArray[np.float64]
    Integers = NDArray[np.int64]
    Times = NDArray[np.int32]
    Flags = NDArray[np.bool_]
    Parameters = tuple[Floats, ...]

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

#: Returned by a run that refuses its input, with nothing changed; and by one that is complete.
REFUSED, FINE = -2, -1
#: The verdict on a learner's step: fine; too near the end of the number range for C and H; not finite.
LAZY, NEAR, STUCK = 0, 1, 2


# ---------------------------------------------------------------------------------------------------- columns


@exact
def look_at(
    H: Array, since: Times, places: Times, latest: int, active: Times, begin: int, count: int, phi: Floats, out: Floats
) -> None:
    """Add H·φ of the next four active columns to the sums of every vector and learner, one column after the other.

    ``latest`` is the latest time in ``since``: a column that was touched since then has all of its traces.
    """
    if begin + 4 <= count:
        i0, i1, i2, i3 = active[begin], active[begin + 1], active[begin + 2], active[begin + 3]
        v0, v1, v2, v3 = phi[i0], phi[i1], phi[i2], phi[i3]
        t0, t1, t2, t3 = places[TOUCH, i0], places[TOUCH, i1], places[TOUCH, i2], places[TOUCH, i3]
        h0, h1, h2, h3 = H[i0], H[i1], H[i2], H[i3]
        if t0 >= latest and t1 >= latest and t2 >= latest and t3 >= latest:
            for k in range(out.shape[0]):
                z = get_apart(out, k, 0) + v0 * get_apart(h0, k, 1) + v1 * get_apart(h1, k, 1)
                put_apart(out, k, 0, z + v2 * get_apart(h2, k, 1) + v3 * get_apart(h3, k, 1))
            return
    for a in range(begin, min(begin + 4, count)):
        i = active[a]
        v, touched, h = phi[i], places[TOUCH, i], H[i]
        for k in range(out.shape[0]):
            z = v * get_apart(h, k, 1) if touched >= get_apart(since, k, 2) else 0.0
            put_apart(out, k, 0, get_apart(out, k, 0) + z)


@exact
def scale_products(scale: Floats, out: Floats) -> None:
    """X·φ = C (H·φ) of every vector and learner, in the place of H·φ."""
    K = scale.shape[1]
    for r in range(out.shape[0] // K):
        x = out[r * K : r * K + K]
        for k in range(K):
            x[k] *= scale[r, k]
        for j in range(TRACES if r < WEIGHTS else 0):
            e = out[(WEIGHTS + j) * K : (WEIGHTS + j) * K + K]
            for k in range(K):
                x[k] += scale[TAKE + r * TRACES + j, k] * e[k]


@exact
def last_time(since: Times) -> Any:
    """The latest of these times."""
    latest = since[0]
    for k in range(since.shape[0]):
        latest = since[k] if since[k] > latest else latest
    return latest


@exact
def add(H: Array, since: Times, places: Times, draws: Array, i: int, v: float) -> None:
    """H += C⁻¹B φ in column i."""
    touched, h = places[TOUCH, i], H[i]
    for k in range(h.shape[0]):
        z = get_apart(h, k, 1) if touched >= get_apart(since, k, 2) else real(0)
        put_apart(h, k, 1, z + v * get_apart(draws, k, 0))


@exact
def touch(places: Times, log: Times, clock: Integers, due: Floats, i: int) -> None:
    """Column i has moved now."""
    places[TOUCH, i], places[WHERE, i], log[clock[1]] = clock[0], clock[1], i
    clock[1] += 1
    due[i] = 0.0


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
def settle_column(H: Array, scale: Floats, since: Times, places: Times, i: int, first: int, last: int) -> None:
    """Column i of X in the place of that of H, for learners first … last−1."""
    K, touched = scale.shape[1], places[TOUCH, i]
    for r in range(H.shape[1] // K):
        for k in range(first, last):
            h = H[i, r * K + k] if touched >= since[r * K + k] else real(0)
            z = scale[r, k] * h
            for j in range(TRACES if r < WEIGHTS else 0):
                if touched >= since[(WEIGHTS + j) * K + k]:
                    z += scale[TAKE + r * TRACES + j, k] * H[i, (WEIGHTS + j) * K + k]
            H[i, r * K + k] = z


@exact
def settle(H: Array, scale: Floats, since: Times, places: Times, first: int, last: int) -> None:
    """C ← 1 for learners first … last−1: their H is their X, to the bits that reading it gives."""
    for i in range(H.shape[0]):
        settle_column(H, scale, since, places, i, first, last)
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
    begin, end = K, 0
    for r in range(WEIGHTS):
        for k in range(K):
            if not LOW < abs(scale[r, k]) < HIGH:
                begin = k if k < begin else begin
                end = k + 1 if k >= end else end
    if begin < end:
        settle(H, scale, since, places, begin, end)


@inner
def close(
    scale: Floats, since: Times, marks: Times, later: Times, shares: Array, spans: Times, closing: Times, j: int,
    now: Any,
) -> bool:  # fmt: skip
    """Close trace j of every learner whose scale has shrunk: from then on its decay is in the columns, not in C.

    Returns whether any column has to be updated. If so, ``shares`` are what H_r takes of H_j, and last what H_j keeps;
    ``later`` is ``since`` after that; and ``spans`` say how far back each block of learners must go.
    """
    K, offset = scale.shape[1], (WEIGHTS + j) * scale.shape[1]
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
            if since[offset + k] < spans[REACH, k // LANES]:
                spans[REACH, k // LANES] = since[offset + k]
    for k in range(K):
        scaled, here = scale[WEIGHTS + j, k], since[offset + k]
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
            since[offset + k] = later[k]
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
    offset = (WEIGHTS + j) * K
    for at in range(clock[1] - 1, -1, -1):
        i = log[at]
        if places[WHERE, i] != at:
            continue
        touched = places[TOUCH, i]
        if touched < oldest:
            break
        for b in range(count):
            if touched >= spans[REACH, b]:
                left, right = spans[FIRST, b], spans[LAST, b]
                e, begin = H[i, offset + left : offset + right], since[offset + left : offset + right]
                for r in range(WEIGHTS):
                    if feeds(r, j):
                        x, share = H[i, r * K + left : r * K + right], shares[r, left:right]
                        for k in range(len(begin)):
                            x[k] += share[k] * (e[k] if touched >= begin[k] else real(0))
                share = shares[WEIGHTS, left:right]
                for k in range(len(begin)):
                    e[k] = share[k] * (e[k] if touched >= begin[k] else real(0))
    for k in range(K):
        since[offset + k] = later[k]


@inner
def forget(H: Array, scale: Floats, since: Times, places: Times, marks: Times, log: Times, clock: Integers) -> None:
    """Every trace becomes 0, and weights are read with the same bits as before: columns with a trace are settled.

    Where no weight scales itself, H of all other columns is X already.
    """
    K, oldest = scale.shape[1], np.int32(NEVER)
    for k in range(WEIGHTS * K, VECTORS * K):
        oldest = min(oldest, since[k])
    if OWN_SCALES:
        settle(H, scale, since, places, 0, K)
    else:
        for at in range(clock[1] - 1, -1, -1):
            i = log[at]
            if places[WHERE, i] == at:
                if places[TOUCH, i] < oldest:
                    break
                settle_column(H, scale, since, places, i, 0, K)
    clock[0] += 1  # later than any column was touched
    for k in range(K):
        for row in range(PEAK):
            scale[row, k] = 1.0 if row < VECTORS else 0.0
        for j in range(TRACES):
            scale[PEAK + j, k] = scale[LEFT + j, k] = 1.0
            marks[j, k] = since[(WEIGHTS + j) * K + k] = np.int32(clock[0])


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


# ---------------------------------------------------------------------------------------------------- steps


def run(
    H: Array, scale: Floats, since: Times, places: Times, marks: Times, log: Times, clock: Integers, scalars: Floats,
    last_delta: Floats, active: Times, phi: Floats, x: Floats, active_next: Times, phi_next: Floats, x_next: Floats,
    moving: Times, due: Floats, moving_next: Times, due_next: Floats, form: Floats, after: Floats, verdict: Times,
    draws: Array, draws_next: Array, shares: Array, later: Times, spans: Times, frozen: Flags, freeze: bool,
    start: Integers, index: Integers, value: Floats, start_next: Integers, index_next: Integers, value_next: Floats,
    first: Flags, top: float, checked: bool, parameters: Parameters, predictions: Array,
) -> int:  # fmt: skip
    """T steps of all learners; −1, or t·K + k if learner k would diverge at step t and must not freeze.

    A step's columns move when the next step looks at them: each is then brought from memory once, not three times.
    ``due`` is φ of the columns that have not moved yet, which are among those listed in ``moving``.

    If ``predictions`` has a row more than there are steps, the last is θ·φ' after them, of products that are there
    anyway: X φ' becomes A X φ' + B [φ·φ'; φ'·φ']. Input that is not ``checked`` is one step, which is checked here
    and may be REFUSED; then no bound ``top`` on φ is needed.
    """
    n, K, T = H.shape[0], scale.shape[1], start.shape[0] - 1
    if not checked and not (fits(index, value, n) and fits(index_next, value_next, n)):
        return REFUSED
    is_broken, status, moved, moved_next = first.shape[0] > 0, FINE, 0, 0
    for t in range(T):
        if is_broken and first[t]:
            forget(H, scale, since, places, marks, log, clock)
            for k in range(K):
                for i in range(FORGOTTEN):
                    scalars[k, i] = 0.0
        count = gather(index, value, start[t], start[t + 1], active, phi)
        count_next = gather(index_next, value_next, start_next[t], start_next[t + 1], active_next, phi_next)
        look(
            H, since, places, log, clock, active, count, phi, x, active_next, count_next, phi_next, x_next, draws,
            draws_next, due, due_next,
        )  # fmt: skip
        move_all(H, since, places, log, clock, draws, draws_next, moving, moved, due, moving_next, moved_next, due_next)
        scale_products(scale, x)
        scale_products(scale, x_next)
        g = lengths(active, count, phi, active_next, count_next, phi_next)
        status = decide_all(
            scalars, last_delta, x, x_next, form, after, verdict, frozen, g, top, checked, parameters, t, predictions
        )
        if status >= 0:
            status = judge(H, scale, since, places, phi, phi_next, form, after, verdict, frozen, freeze)
        if status == FINE:
            if t + 1 == T and predictions.shape[0] > T:
                for k in range(K):
                    predictions[t + 1, k] = component(x_next, form, 0, k, K, g[1], g[2])
            advance(H, scale, since, places, scalars, phi, phi_next, form, after, verdict, frozen)
            clock[0] += 1
            for j in range(TRACES):
                if close(scale, since, marks, later, shares, spans, verdict, j, np.int32(clock[0])):
                    fold(H, since, places, log, clock, later, shares, spans, j)
            draw(scale, form, draws, draws_next)
            if clock[1] + count + count_next > log.shape[0]:
                compact(places, log, clock)
            active, phi, moving, due, moved = moving, due, active, phi, count
            if NEXT > 0:
                active_next, phi_next, moving_next, due_next = moving_next, due_next, active_next, phi_next
                moved_next = count_next
            else:
                clear(active_next, count_next, phi_next)
        else:
            clear(active, count, phi)
            clear(active_next, count_next, phi_next)
            return status if status == REFUSED else t * K + status
        if t + 1 == T or (is_broken and first[t + 1]):
            move_all(
                H, since, places, log, clock, draws, draws_next, moving, moved, due, moving_next, moved_next,
                due_next,
            )  # fmt: skip
    return FINE


@inner
def look(
    H: Array, since: Times, places: Times, log: Times, clock: Integers, active: Times, count: int, phi: Floats,
    x: Floats, active_next: Times, count_next: int, phi_next: Floats, x_next: Floats, draws: Array, draws_next: Array,
    due: Floats, due_next: Floats,
) -> None:  # fmt: skip
    """H·φ and H·φ' of every vector and learner; columns that have not moved yet move first.

    Each sum is over its own columns in their order. Most columns are in φ, in φ' and in φ of the step before, so that
    four of them move and are added to both sums at a time.
    """
    latest = last_time(since)
    for k in range(x.shape[0]):
        x[k] = x_next[k] = 0.0
    a, b = 0, 0
    while a < count or b < count_next:
        is_shared = a + 4 <= count and b + 4 <= count_next
        for c in range(4 if is_shared else 0):
            i = active[a + c]
            is_shared = is_shared and i == active_next[b + c] and due[i] != 0.0 and due_next[i] == 0.0
        if is_shared:
            move_four(H, since, places, log, clock, draws, due, active, a, phi, phi_next, x, x_next)
            a, b = a + 4, b + 4
            continue
        # A column that only one of them has is looked at alone, so that others are at the same place again.
        only_next = a < count and b + 1 < count_next and active[a] == active_next[b + 1]
        only_this = b < count_next and a + 1 < count and active[a + 1] == active_next[b] and not only_next
        if a < count and not only_next:
            move(H, since, places, log, clock, draws, draws_next, due, due_next, active[a])
            look_at(H, since, places, latest, active, a, a + 1, phi, x)
            a += 1
        if b < count_next and not only_this:
            move(H, since, places, log, clock, draws, draws_next, due, due_next, active_next[b])
            look_at(H, since, places, latest, active_next, b, b + 1, phi_next, x_next)
            b += 1


@exact
def move_four(
    H: Array, since: Times, places: Times, log: Times, clock: Integers, draws: Array, due: Floats, active: Times,
    a: int, phi: Floats, phi_next: Floats, x: Floats, x_next: Floats,
) -> None:  # fmt: skip
    """``add`` and ``look_at`` of the next four active columns, for φ and φ'."""
    i0, i1, i2, i3 = active[a], active[a + 1], active[a + 2], active[a + 3]
    u0, u1, u2, u3 = real(due[i0]), real(due[i1]), real(due[i2]), real(due[i3])
    v0, v1, v2, v3 = phi[i0], phi[i1], phi[i2], phi[i3]
    w0, w1, w2, w3 = phi_next[i0], phi_next[i1], phi_next[i2], phi_next[i3]
    t0, t1, t2, t3 = places[TOUCH, i0], places[TOUCH, i1], places[TOUCH, i2], places[TOUCH, i3]
    h0, h1, h2, h3 = H[i0], H[i1], H[i2], H[i3]
    for k in range(x.shape[0]):
        begin, u = get_apart(since, k, 2), get_apart(draws, k, 0)
        z0 = real((get_apart(h0, k, 1) if t0 >= begin else real(0)) + u0 * u)
        z1 = real((get_apart(h1, k, 5) if t1 >= begin else real(0)) + u1 * u)
        z2 = real((get_apart(h2, k, 6) if t2 >= begin else real(0)) + u2 * u)
        z3 = real((get_apart(h3, k, 7) if t3 >= begin else real(0)) + u3 * u)
        put_apart(h0, k, 1, z0)
        put_apart(h1, k, 5, z1)
        put_apart(h2, k, 6, z2)
        put_apart(h3, k, 7, z3)
        put_apart(x, k, 3, get_apart(x, k, 3) + v0 * z0 + v1 * z1 + v2 * z2 + v3 * z3)
        put_apart(x_next, k, 4, get_apart(x_next, k, 4) + w0 * z0 + w1 * z1 + w2 * z2 + w3 * z3)
    for c in range(a, a + 4):
        touch(places, log, clock, due, active[c])


@inner
def move_all(
    H: Array, since: Times, places: Times, log: Times, clock: Integers, draws: Array, draws_next: Array, moving: Times,
    count: int, due: Floats, moving_next: Times, count_next: int, due_next: Floats,
) -> None:  # fmt: skip
    """Move all columns that have not moved yet."""
    for a in range(count):
        move(H, since, places, log, clock, draws, draws_next, due, due_next, moving[a])
    for a in range(count_next):
        move(H, since, places, log, clock, draws, draws_next, due, due_next, moving_next[a])


@inner
def move(
    H: Array, since: Times, places: Times, log: Times, clock: Integers, draws: Array, draws_next: Array, due: Floats,
    due_next: Floats, i: int,
) -> None:  # fmt: skip
    """Let column i take what it has not taken yet of φ and φ' of the step before."""
    if due[i] != 0.0:
        add(H, since, places, draws, i, real(due[i]))
        touch(places, log, clock, due, i)
    if NEXT > 0 and due_next[i] != 0.0:
        if NEXT > WEIGHTS:  # a trace takes φ', and must be touched
            add(H, since, places, draws_next, i, real(due_next[i]))
            touch(places, log, clock, due_next, i)
        else:
            add_next(H, draws_next, i, real(due_next[i]))
            due_next[i] = 0.0


@inner
def fits(index: Integers, value: Floats, n: int) -> bool:
    """Whether these features exist, with a value each."""
    fine = value.shape[0] == index.shape[0]
    for a in range(index.shape[0]):
        fine = fine and -1 <= index[a] < n
    return bool(fine)


@inner
def gather(index: Integers, value: Floats, begin: int, end: int, active: Times, phi: Floats) -> int:
    """The features that there are, and φ as an array; how many there are."""
    count = 0
    for a in range(begin, end):
        i = index[a]
        if 0 <= i < active.shape[0] and count < active.shape[0]:
            active[count] = i
            phi[i] = value[a]
            count += 1
    return count


@inner
def clear(active: Times, count: int, phi: Floats) -> None:
    """Set the array to 0 again."""
    for a in range(count):
        phi[active[a]] = 0.0


@inner
def lengths(active: Times, count: int, phi: Floats, active_next: Times, count_next: int, phi_next: Floats) -> Scalars:
    """φ·φ, φ·φ', φ'·φ'."""
    pp, pq, qq = 0.0, 0.0, 0.0
    for a in range(count):
        i = active[a]
        pp += phi[i] * phi[i]
        pq += phi[i] * phi_next[i]
    for a in range(count_next):
        i = active_next[a]
        qq += phi_next[i] * phi_next[i]
    return pp, pq, qq


@inner
def decide_all(
    scalars: Floats, last_delta: Floats, x: Floats, x_next: Floats, form: Floats, after: Floats, verdict: Times,
    frozen: Flags, g: Scalars, top: float, checked: bool, parameters: Parameters, t: int, predictions: Array,
) -> int:  # fmt: skip
    """A, B and the new scalars of every learner; FINE, REFUSED, or how many are frozen or not LAZY."""
    K, special = last_delta.shape[0], 0
    if not checked:
        top = 1.0 + g[0] + g[2]
        if not top <= LIMIT:
            return REFUSED
    for k in range(K):
        step = step_at(parameters, t, k)
        if not checked and not is_acceptable(step):
            return REFUSED
        memory, size = load(scalars, k)
        delta, c, memory = decide(step, memory, products(x, k, K), products(x_next, k, K), g)
        size = bounds(c, size, top, top)
        last_delta[k] = delta
        if t < predictions.shape[0]:
            predictions[t, k] = x[k]
        put_form(form, k, c)
        store(after, k, memory, size)
        verdict[k] = LAZY
        # Sums are in float64 here; what a prediction in the dtype could not hold has diverged.
        if not (is_finite(delta, memory) and abs(x[k]) <= LIMIT and abs(x_next[k]) <= LIMIT):
            verdict[k] = STUCK
        elif not is_small(c, size, NEAR_THE_END):
            verdict[k] = NEAR
        if frozen[k] or verdict[k] != LAZY:
            special += 1
    return special if special > 0 else FINE


@inner
def judge(
    H: Array, scale: Floats, since: Times, places: Times, phi: Floats, phi_next: Floats, form: Floats, after: Floats,
    verdict: Times, frozen: Flags, freeze: bool,
) -> int:  # fmt: skip
    """FINE, or the first learner that would diverge and may not freeze. Frozen learners get A = 1, B = 0.

    C is 1 then for those that are frozen or NEAR, and nothing that comes later changes a bit of the former.
    """
    K = scale.shape[1]
    for k in range(K):
        if not frozen[k] and verdict[k] == LAZY:
            continue
        if not frozen[k] or not is_plain(scale, k):
            settle(H, scale, since, places, k, k + 1)
        if not frozen[k] and (verdict[k] == STUCK or not try_step(H, since, phi, phi_next, form, after, k, K)):
            if not freeze:
                return k
            frozen[k] = True
        if frozen[k]:
            verdict[k] = LAZY
            stand_still(form, k)
    return FINE


@inner
def is_plain(scale: Floats, k: int) -> bool:
    """Whether C = 1 for learner k."""
    plain = True
    for row in range(PEAK):
        plain = plain and bool(scale[row, k] == (1.0 if row < VECTORS else 0.0))
    return plain


@inner
def stand_still(form: Floats, k: int) -> None:
    """A = 1, B = 0 for learner k."""
    for row in range(form.shape[0]):
        form[row, k] = 1.0 if row < VECTORS else 0.0


@inner
def component(X: Array, form: Floats, r: int, k: int, K: int, p: float, q: float) -> float:
    """A X + B [p; q] in row r, of learner k."""
    z = form[r, k] * X[r * K + k] + form[PHI + r, k] * p
    if r < WEIGHTS or r < NEXT:
        z += form[PHI_NEXT + r, k] * q
    if r < WEIGHTS:
        for j in range(TRACES):
            z += form[TAKE + r * TRACES + j, k] * X[(WEIGHTS + j) * K + k]
    return float(z)


@inner
def try_step(
    H: Array, since: Times, phi: Floats, phi_next: Floats, form: Floats, after: Floats, k: int, K: int
) -> bool:
    """Whether learner k is finite after the step, tried on plain columns (C = 1); its bounds become max |X_r|."""
    fine = True
    for r in range(VECTORS):
        since[r * K + k] = 0
        after[k, MEMORY + r] = 0.0
        for i in range(H.shape[0]):
            size = abs(np.float64(real(component(H[i], form, r, k, K, phi[i], phi_next[i]))))
            fine = fine and bool(size <= LIMIT)
            if size > after[k, MEMORY + r]:
                after[k, MEMORY + r] = size
    return fine


@inner
def advance(
    H: Array, scale: Floats, since: Times, places: Times, scalars: Floats, phi: Floats, phi_next: Floats, form: Floats,
    after: Floats, verdict: Times, frozen: Flags,
) -> None:  # fmt: skip
    """C ← A C, and the new scalars; learners near the end of the number range move their columns themselves."""
    K = scale.shape[1]
    for k in range(K):
        if verdict[k] == NEAR:
            for i in range(H.shape[0]):
                for r in range(VECTORS):  # weights first: they use the traces from before the step
                    H[i, r * K + k] = component(H[i], form, r, k, K, phi[i], phi_next[i])
            for j in range(TRACES):
                scale_left(scale, j, k, form[WEIGHTS + j, k])
            stand_still(form, k)
        if not frozen[k]:
            for i in range(COUNTER):
                scalars[k, i] = after[k, i]
            scalars[k, COUNTER] += 1.0
    for r in range(WEIGHTS):
        for j in range(TRACES):
            row = TAKE + r * TRACES + j
            for k in range(K):
                scale[row, k] = form[r, k] * scale[row, k] + form[row, k] * scale[WEIGHTS + j, k]
    for r in range(H.shape[1] // K):
        for k in range(K):
            scale[r, k] *= form[r, k]
    if OWN_SCALES:
        settle_weights(H, scale, since, places)


@inner
def draw(scale: Floats, form: Floats, draws: Array, draws_next: Array) -> None:
    """C⁻¹B: what H takes of φ, and of φ'."""
    K = scale.shape[1]
    for r in range(draws.shape[0] // K - 1, -1, -1):  # traces first: weights need their values
        u = draws[r * K : r * K + K]
        for k in range(K):
            more = form[PHI + r, k]
            for j in range(TRACES if r < WEIGHTS else 0):
                more -= scale[TAKE + r * TRACES + j, k] * form[PHI + WEIGHTS + j, k]
            form[PHI + r, k] = u[k] = more / scale[r, k]
    for r in range(draws_next.shape[0] // K):
        u = draws_next[r * K : r * K + K]
        for k in range(K):
            u[k] = form[PHI_NEXT + r, k] / scale[r, k]


@exact
def add_next(H: Array, draws: Array, i: int, v: float) -> None:
    """H += C⁻¹B φ' in column i, of weights only: it touches no trace."""
    for k in range(draws.shape[0]):
        H[i, k] += v * draws[k]


def predict(
    H: Array, scale: Floats, since: Times, places: Times, active: Times, phi: Floats, x: Floats, start: Integers,
    index: Integers, value: Floats, out: Floats,
) -> None:  # fmt: skip
    """θ·φ for every row and learner, changing nothing."""
    latest = last_time(since)
    for t in range(start.shape[0] - 1):
        count = gather(index, value, start[t], start[t + 1], active, phi)
        for k in range(x.shape[0]):
            x[k] = 0.0
        for begin in range(0, count, 4):
            look_at(H, since, places, latest, active, begin, count, phi, x)
        scale_products(scale, x)
        clear(active, count, phi)
        for k in range(scale.shape[1]):
            out[t, k] = x[k]


def settle_some(H: Array, scale: Floats, since: Times, places: Times, first: int, last: int) -> None:
    """C ← 1 for learners first … last−1."""
    settle(H, scale, since, places, first, last)


def forget_all(H: Array, scale: Floats, since: Times, places: Times, marks: Times, log: Times, clock: Integers) -> None:
    """``forget``, as a function of its own."""
    forget(H, scale, since, places, marks, log, clock)
