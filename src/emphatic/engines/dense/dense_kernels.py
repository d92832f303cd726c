"""The dense engine's steps: ``learn_step`` and ``run`` for one learner, ``learn_many`` and ``run_many`` for several.

Functions that are not defined here belong to the rule: see ``rule_functions``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from emphatic.engines.compiled import inner, small
from emphatic.engines.intrinsics import address, prefetch

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from emphatic.engines.rule_functions import (
        COUNTER, FORGOTTEN, HUGE, LIMIT, VECTORS, WEIGHTS, add_common, add_lengths, add_own, add_products, all_within,
        bounds, decide, is_acceptable, is_finite, is_small, keep, kept, larger, load, magnitudes, move, no_common,
        no_lengths, no_own, no_products, read, real, rounded, split_common, split_lengths, split_own, split_products,
        step_at, store, update, write, zeros,
    )  # fmt: skip
    from emphatic.rules import Scalars

    Array = NDArray[Any]
    Floats = NDArray[np.float64]
    Integers = NDArray[np.int64]
    Flags = NDArray[np.bool_]
    Parameters = tuple[Floats, ...]

#: Returned by a run if some features are not finite: it stopped somewhere, and its state is not valid.
UNFIT = -2
#: How many components of φ are checked ahead of the steps: half of a common second-level cache.
AHEAD = 1 << 16
#: From this many features on ``learn`` prefetches what follows φ' in memory: in a log, the next step's φ'.
FAR = 256


@inner
def try_step(X: Array, k: int, c: Scalars, phi: Array, phi_next: Array) -> tuple[bool, Scalars]:
    """Whether learner k is finite after the step, tried on X itself; and max |X_r| then."""
    size, fine = zeros(), True
    for i in range(X.shape[2]):
        size_i = magnitudes(update(c, read(X, k, i), phi[i], phi_next[i]))
        if not all_within(size_i):
            fine = False
        size = larger(size, size_i)
    return fine, size


@inner
def start_sequence(X: Array, scalars: Floats, k: int) -> None:
    """The traces of learner k and what it remembers, except what persists, become 0."""
    for r in range(WEIGHTS, VECTORS):
        for i in range(X.shape[2]):
            X[r, k, i] = real(0)
    for i in range(FORGOTTEN):
        scalars[k, i] = 0.0


@small
def learn_step(X: Array, scalars: Floats, phi: Array, phi_next: Array, step: Scalars) -> float:
    """One step of one learner; its TD error, or NaN if the step was refused and nothing has changed."""
    n = X.shape[2]
    if phi.shape[0] != n or phi_next.shape[0] != n or not is_acceptable(step):
        return np.nan
    if (address(phi) | address(phi_next)) % phi.itemsize != 0:
        return np.nan
    sums, norm = no_products(), real(0)
    for i in range(n):
        p, q = phi[i], phi_next[i]
        sums = add_products(sums, read(X, 0, i), p, q)
        norm += p * p + q * q
    x, x_next, g = split_products(sums)
    top = 1.0 + np.float64(norm)
    memory, size = load(scalars, 0)
    delta, c64, memory = decide(step, memory, x, x_next, g)
    size = bounds(c64, size, top, top)
    if not is_finite(delta, memory):
        return np.nan
    c = rounded(c64)
    if not is_small(c64, size, LIMIT):
        fine, size = try_step(X, 0, c, phi, phi_next)
        if not fine:
            return np.nan
    if n >= FAR:
        for offset in range(n * phi.itemsize, 2 * n * phi.itemsize, 64):
            prefetch(phi_next, offset)
    for i in range(n):
        write(X, 0, i, update(c, read(X, 0, i), phi[i], phi_next[i]))
    store(scalars, 0, memory, size)
    scalars[0, COUNTER] += 1.0
    return float(delta)


def run(
    X: Array, scalars: Floats, Phi: Array, Phi_next: Array, first: Flags, parameters: Parameters, predictions: Array,
    last_delta: Floats,
) -> int:  # fmt: skip
    """T steps of one learner; −1, or t where it would diverge at step t.

    One pass over memory per step: the update, and the next step's products. The lengths of φ and φ' bound their
    components; if a component is not finite, neither is δ. The first products of a sequence are summed on their own, as
    those of a run are: in the order that a run which begins there has.
    """
    n, T = X.shape[2], Phi.shape[0]
    keeps, is_broken = predictions.shape[0] > 0, first.shape[0] > 0
    status = -1
    delta = 0.0
    memory, size = load(scalars, 0)
    sums = no_lengths()
    for t in range(T):
        begins = is_broken and first[t]
        if begins:
            store(scalars, 0, memory, size)
            start_sequence(X, scalars, 0)
            memory, size = load(scalars, 0)
        if t == 0 or begins:
            sums = no_lengths()
            for i in range(n):
                sums = add_lengths(sums, read(X, 0, i), Phi[t, i], Phi_next[t, i])
        x, x_next, g = split_lengths(sums)
        delta, c64, memory_next = decide(step_at(parameters, t, 0), memory, x, x_next, g)
        size_next = bounds(c64, size, 1.0 + g[0], 1.0 + g[2])
        fine = is_finite(delta, memory_next)
        c = rounded(c64)
        if fine and not is_small(c64, size_next, LIMIT):
            fine, size_next = try_step(X, 0, c, Phi[t], Phi_next[t])
        if not fine:
            status = t
            break
        if keeps:
            predictions[t, 0] = x[0]
        s = min(t + 1, T - 1)
        sums = no_lengths()
        for i in range(n):
            z = update(c, read(X, 0, i), Phi[t, i], Phi_next[t, i])
            write(X, 0, i, z)
            sums = add_lengths(sums, z, Phi[s, i], Phi_next[s, i])
        memory, size = memory_next, size_next
        scalars[0, COUNTER] += 1.0
    store(scalars, 0, memory, size)
    last_delta[0] = delta
    return status


@inner
def largest_bits(bits: Array, bits_next: Array, begin: int, end: int, one_log: bool) -> Any:
    """The bits of the largest |component| of these steps' φ and φ', beyond infinity's if one is NaN.

    Without its sign, a float's bits are in the order of its value. In one log the φ' of a step is the φ of the next.
    """
    mask = ~(bits.dtype.type(1) << (8 * bits.itemsize - 1))
    most = bits[begin, 0] & mask
    for s in range(begin, end):
        if s == 0 or not one_log:
            for i in range(bits.shape[1]):
                most = max(most, bits[s, i] & mask)
        for i in range(bits.shape[1]):
            most = max(most, bits_next[s, i] & mask)
    return most


def run_wide(
    X: Array, scalars: Floats, Phi: Array, Phi_next: Array, bits: Array, bits_next: Array, one_log: bool, first: Flags,
    parameters: Parameters, predictions: Array, last_delta: Floats,
) -> int:  # fmt: skip
    """``run`` for many features; UNFIT if one of them is not finite.

    Features are checked a block ahead, with their bits read as integers: this brings them into the cache, faster than
    the products would.
    """
    n, T = X.shape[2], Phi.shape[0]
    keeps, is_broken = predictions.shape[0] > 0, first.shape[0] > 0
    status, seen, top = -1, 0, 0.0
    delta = 0.0
    memory, size = load(scalars, 0)
    word = np.empty(1, bits.dtype)
    sums = no_products()
    for t in range(T):
        if t == seen:
            seen = min(t + max(1, AHEAD // n), T)
            word[0] = largest_bits(bits, bits_next, t, seen, one_log)
            top = np.float64(word.view(Phi.dtype)[0])
            if not top <= LIMIT:
                status = UNFIT
                break
        begins = is_broken and first[t]
        if begins:
            store(scalars, 0, memory, size)
            start_sequence(X, scalars, 0)
            memory, size = load(scalars, 0)
        if t == 0 or begins:
            sums = no_products()
            for i in range(n):
                sums = add_products(sums, read(X, 0, i), Phi[t, i], Phi_next[t, i])
        x, x_next, g = split_products(sums)
        delta, c64, memory_next = decide(step_at(parameters, t, 0), memory, x, x_next, g)
        size_next = bounds(c64, size, top, top)
        fine = is_finite(delta, memory_next)
        c = rounded(c64)
        if fine and not is_small(c64, size_next, LIMIT):
            fine, size_next = try_step(X, 0, c, Phi[t], Phi_next[t])
        if not fine:
            status = t
            break
        if keeps:
            predictions[t, 0] = x[0]
        s = min(t + 1, T - 1)
        sums = no_products()
        for i in range(n):
            z = update(c, read(X, 0, i), Phi[t, i], Phi_next[t, i])
            write(X, 0, i, z)
            sums = add_products(sums, z, Phi[s, i], Phi_next[s, i])
        memory, size = memory_next, size_next
        scalars[0, COUNTER] += 1.0
    store(scalars, 0, memory, size)
    last_delta[0] = delta
    return status


@inner
def value_error(goal: Floats, theta: Array) -> float:
    """The root mean square value error of one learner: see ``Probe``."""
    n = theta.shape[0]
    square = 0.0
    for i in range(goal.shape[0]):
        row = goal[i]
        h = -row[n]
        for j in range(n - i):
            h += row[i + j] * theta[i + j]
        square += h * h
    return np.sqrt(square) if square <= HUGE else np.inf


@small
def step_learners(
    X: Array, scalars: Floats, last_delta: Floats, learners: Integers, frozen: Flags, freeze: bool, phi: Array,
    phi_next: Array, top: float, parameters: Parameters, t: int, predictions: Array, work: Floats,
) -> int:  # fmt: skip
    """One step of these learners; −1, or the first that would diverge and must not freeze; then none has moved.

    Those that may freeze move as soon as they have decided, the others when all have. A frozen learner has a TD error
    and a prediction, and does not move.
    """
    keeps = predictions.shape[0] > 0
    common = no_common()
    for i in range(X.shape[2]):
        common = add_common(common, (), phi[i], phi_next[i])
    _, _, g = split_common(common)
    for k in learners:
        own = no_own()
        for i in range(X.shape[2]):
            own = add_own(own, read(X, k, i), phi[i], phi_next[i])
        x, x_next, _ = split_own(own)
        if keeps:
            predictions[t, k] = x[0]
        memory, size = load(scalars, k)
        delta, c64, memory = decide(step_at(parameters, t, k), memory, x, x_next, g)
        if not frozen[k]:
            size = bounds(c64, size, top, top)
            fine = is_finite(delta, memory)
            c = rounded(c64)
            if fine and not is_small(c64, size, LIMIT):
                fine, size = try_step(X, k, c, phi, phi_next)
            if not fine:
                if not freeze:
                    return int(k)
                frozen[k] = True
            elif freeze:
                move(X, k, c, phi, phi_next)
                store(scalars, k, memory, size)
                scalars[k, COUNTER] += 1.0
            else:
                keep(work, k, memory, size, c)
        last_delta[k] = delta
    if not freeze:
        for k in learners:
            if not frozen[k]:
                memory, size, c = kept(work, k)
                move(X, k, c, phi, phi_next)
                store(scalars, k, memory, size)
                scalars[k, COUNTER] += 1.0
    return -1


def run_many(
    X: Array, scalars: Floats, last_delta: Floats, learners: Integers, frozen: Flags, freeze: bool, Phi: Array,
    Phi_next: Array, first: Flags, top: float, t0: int, t1: int, parameters: Parameters, predictions: Array,
    goal: Floats, errors: Floats, every: int, begin: int, work: Floats,
) -> int:  # fmt: skip
    """Steps t0 … t1 − 1 of these learners; −1, or t·K + k if learner k would diverge at step t and must not freeze.

    Before step ``begin`` and every ``every``-th after it the learners' errors are recorded, if there is a goal, or one
    for each learner.
    """
    is_broken = first.shape[0] > 0
    for t in range(t0, t1):
        if is_broken and first[t]:
            for k in learners:
                start_sequence(X, scalars, k)
        if goal.shape[0] > 0 and t >= begin and (t - begin) % every == 0:
            for k in learners:
                errors[(t - begin) // every, k] = value_error(goal[min(k, goal.shape[0] - 1)], X[0, k])
        k = step_learners(
            X, scalars, last_delta, learners, frozen, freeze, Phi[t], Phi_next[t], top, parameters, t, predictions, work
        )
        if k >= 0:
            return int(t * X.shape[1] + k)
    return -1


def learn_many(
    X: Array, scalars: Floats, last_delta: Floats, learners: Integers, frozen: Flags, phi: Array, phi_next: Array,
    parameters: Parameters, none: Array, work: Floats,
) -> bool:  # fmt: skip
    """One step of all learners, which sets their TD errors; False if it was refused and nothing changed."""
    n = X.shape[2]
    if phi.shape[0] != n or phi_next.shape[0] != n:
        return False
    if (address(phi) | address(phi_next)) % phi.itemsize != 0:
        return False
    norm = real(0)
    for i in range(n):
        norm += phi[i] * phi[i] + phi_next[i] * phi_next[i]
    top = 1.0 + np.float64(norm)
    if not top <= HUGE:
        return False
    for k in learners:
        if not is_acceptable(step_at(parameters, 0, k)):
            return False
    return (
        step_learners(X, scalars, last_delta, learners, frozen, False, phi, phi_next, top, parameters, 0, none, work)
        < 0
    )
