"""The steps of the sparse engine for K learners: ``run``, and ``predict`` and ``settle_all`` beside it.

In each step all learners decide before any moves. ``form`` then holds A and B of every learner, in rows like those of
``scale``; a learner that is not to move has A = 1 and B = 0. Functions that are not here are those of the columns,
``columns_kernels``, and of the rule: see ``rule_functions`` and ``sparse_many_functions``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from emphatic.engines.compiled import inner

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from emphatic.engines.rule_functions import (
        COUNTER,
        LIMIT,
        MEMORY,
        TRACES,
        VECTORS,
        WEIGHTS,
        bounds,
        decide,
        is_acceptable,
        is_finite,
        is_small,
        load,
        real,
        step_at,
        store,
    )
    from emphatic.engines.sparse.columns_kernels import add, close, fold, look, scale_left, settle, settle_weights
    from emphatic.engines.sparse.sparse_many_functions import (
        NEAR_THE_END,
        NEXT,
        OWN_SCALES,
        PEAK,
        PHI,
        PHI_NEXT,
        TAKE,
        products,
        put_form,
    )
    from emphatic.rules import Scalars

    Array = NDArray[Any]
    Floats = NDArray[np.float64]
    Integers = NDArray[np.int64]
    Times = NDArray[np.int32]
    Flags = NDArray[np.bool_]
    Parameters = tuple[Floats, ...]

#: Returned by a run that refuses its input, with nothing changed; and by one that is complete.
REFUSED, FINE = -2, -1
#: The verdict on a learner's step: fine; too near the end of the number range for C and H; not finite.
LAZY, NEAR, STUCK = 0, 1, 2


def run(
    H: Array, scale: Floats, since: Times, places: Times, marks: Times, log: Times, clock: Integers, scalars: Floats,
    last_delta: Floats, active: Times, phi: Floats, x: Floats, active_next: Times, phi_next: Floats, x_next: Floats,
    form: Floats, after: Floats, verdict: Times, draws: Array, draws_next: Array, shares: Array, later: Times,
    spans: Times, frozen: Flags, freeze: bool, start: Integers, index: Integers, value: Floats, start_next: Integers,
    index_next: Integers, value_next: Floats, top: float, checked: bool, parameters: Parameters, predictions: Array,
) -> int:  # fmt: skip
    """T steps of all learners; −1, or t·K + k if learner k would diverge at step t and must not freeze.

    If ``predictions`` has a row more than there are steps, the last is θ·φ' after them, of products that are there
    anyway: X φ' becomes A X φ' + B [φ·φ'; φ'·φ']. Input that is not ``checked`` is one step, which is checked here
    and may be REFUSED; then no bound ``top`` on φ is needed.
    """
    n, K, T = H.shape[0], scale.shape[1], start.shape[0] - 1
    if not checked and not (fits(index, value, n) and fits(index_next, value_next, n)):
        return REFUSED
    for t in range(T):
        count = gather(index, value, start[t], start[t + 1], active, phi)
        count_next = gather(index_next, value_next, start_next[t], start_next[t + 1], active_next, phi_next)
        look(H, scale, since, places, active, count, phi, x)
        look(H, scale, since, places, active_next, count_next, phi_next, x_next)
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
            add(H, since, places, log, clock, draws, active, count, phi)
            if NEXT > 0:
                add_next(H, draws_next, active_next, count_next, phi_next)
        clear(active, count, phi)
        clear(active_next, count_next, phi_next)
        if status != FINE:
            return status if status == REFUSED else t * K + status
    return FINE


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
    if r < WEIGHTS:
        z += form[PHI_NEXT + r, k] * q
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


@inner
def add_next(H: Array, draws: Array, active: Times, count: int, phi: Floats) -> None:
    """H += C⁻¹B φ', of weights only: it touches no trace."""
    for a in range(count):
        i = active[a]
        v = real(phi[i])
        for k in range(draws.shape[0]):
            H[i, k] += v * draws[k]


def predict(
    H: Array, scale: Floats, since: Times, places: Times, active: Times, phi: Floats, x: Floats, start: Integers,
    index: Integers, value: Floats, out: Floats,
) -> None:  # fmt: skip
    """θ·φ for every row and learner, changing nothing."""
    for t in range(start.shape[0] - 1):
        count = gather(index, value, start[t], start[t + 1], active, phi)
        look(H, scale, since, places, active, count, phi, x)
        clear(active, count, phi)
        for k in range(scale.shape[1]):
            out[t, k] = x[k]


def settle_some(H: Array, scale: Floats, since: Times, places: Times, first: int, last: int) -> None:
    """C ← 1 for learners first … last−1."""
    settle(H, scale, since, places, first, last)
