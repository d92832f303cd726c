"""The sparse engine's steps for an elementwise rule, of any number of learners, each with columns of its own.

X = C·H as in ``sparse_kernels``, whose functions stand before these: C moves what is not active, by the rule's A. The
active columns, those of φ and φ', are read (C H), moved by the rule, and written back (C⁻¹ X). An EAGER rule moves all
columns that have a trace: they are listed in ``live``, C stays 1, and a column leaves the list with its trace.

A step has two halves, so that no learner moves before all have been found to stay finite: ``find`` leaves what the
active columns will be in ``work``, and ``move`` puts them there. Functions that are not defined here belong to the
rule: see ``rule_functions``, ``unrolled`` and ``elementwise_sparse``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from emphatic.engines.compiled import inner

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from emphatic.engines.unrolled import (
        ADAPTS, CHANGE, adapt, add_terms, are_finite, bounds_of, component, decide_all, excesses, linear, no_terms,
        signals,
    )  # fmt: skip
    from emphatic.engines.rule_functions import (
        COUNTER, HUGE, LIMIT, TRACES, VECTORS, WEIGHTS, all_within, is_acceptable, is_small, larger, load, magnitudes,
        step_at, store, zeros,
    )  # fmt: skip
    from emphatic.engines.sparse.elementwise_sparse import (
        EAGER, decay_of, decisions, drop_of, held, keep_decisions, put, set_held, set_z, z_at,
    )  # fmt: skip
    from emphatic.engines.sparse import HIGH, LOW, NEAR_THE_END, advance, at_least_one, epochs, place, present
    from emphatic.engines.sparse.sparse_kernels import are_sound, close_epoch, is_over, settle, start_over, value_of
    from emphatic.rules import Scalars

    Columns = NDArray[np.void]
    Floats = NDArray[np.float64]
    Integers = NDArray[np.int64]
    Flags = NDArray[np.bool_]


@inner
def gather(
    columns: Columns, live: Integers, counts: Integers, k: int, index: Integers, value: Floats, begin: int, end: int,
    index_next: Integers, value_next: Floats, begin_next: int, end_next: int, active: Integers, phi: Floats,
) -> int:  # fmt: skip
    """The columns that are to move, once each, with the components of φ and φ' there; how many there are.

    A column is marked with its place in this list, from 1 on; live columns always are.
    """
    n, count = columns.shape[0], 0
    if EAGER:
        count = counts[k]
        for a in range(count):
            active[a], phi[0, a], phi[1, a] = live[k, a], 0.0, 0.0
    for a in range(begin, end):
        i = index[a]
        if 0 <= i < n:
            if columns[i]["Q"] == 0:
                active[count], phi[1, count] = i, 0.0
                count += 1
                columns[i]["Q"] = count
            phi[0, columns[i]["Q"] - 1] = value[a]
    for a in range(begin_next, end_next):
        i = index_next[a]
        if 0 <= i < n:
            if columns[i]["Q"] == 0:
                active[count], phi[0, count] = i, 0.0
                count += 1
                columns[i]["Q"] = count
            phi[1, columns[i]["Q"] - 1] = value_next[a]
    return count


@inner
def release(columns: Columns, counts: Integers, k: int, active: Integers, count: int) -> None:
    """Remove the marks of the active columns that are not live."""
    for a in range(counts[k], count):
        columns[active[a]]["Q"] = 0


@inner
def find(
    columns: Columns, scale: Floats, epoch: Integers, table: Floats, scalars: Floats, k: int, step: Scalars,
    frozen: bool, active: Integers, phi: Floats, count: int, work: Floats, made: Floats,
) -> tuple[bool, float, float]:  # fmt: skip
    """What learner k will be after the step: whether it stays finite, δ and θ·φ. No column has changed.

    In ``work`` a vector's active components lie side by side, so that long loops become vector instructions.
    """
    e = epochs(epoch)
    memory, size = load(scalars, k)
    for a in range(count):
        column = columns[active[a]]
        set_z(work, a, held(column) if EAGER else present(column, scale, e, table))
    v, v_next, change, amiss = 0.0, 0.0, 0.0, 0.0
    sums = no_terms()
    for a in range(count):
        z, p, q = z_at(work, a), phi[0, a], phi[1, a]
        v += z[0] * p
        v_next += z[0] * q
        if not ADAPTS:
            sums = add_terms(sums, z, p, q)
    delta = step[5] + step[4] * v_next - v
    if frozen or not (abs(delta) <= HUGE and abs(v) <= LIMIT and abs(v_next) <= LIMIT):
        return False, delta, v
    if ADAPTS:
        u = signals(step, memory, delta)
        for a in range(count):
            p, q = phi[0, a], phi[1, a]
            z = adapt(u, z_at(work, a), p)
            set_z(work, a, z)
            sums = add_terms(sums, z, p, q)
    c, s, memory = decide_all(step, memory, delta, sums)
    for a in range(count):
        z, p, q = z_at(work, a), phi[0, a], phi[1, a]
        z_next = component(s, z, p, q)
        change += (z_next[0] - z[0]) * q
        amiss += excesses(z_next)
        set_z(work, a, z_next)
    if amiss > 0.0 or not (are_finite(delta, memory, s, c) and abs(change) <= HUGE):
        return False, delta, v
    if not EAGER:
        size = bounds_of(c, at_least_one(size))
        for a in range(count):
            size = larger(size, magnitudes(z_at(work, a)))
    keep_decisions(made, k, memory, size, c)
    if CHANGE >= 0:
        made[k, CHANGE] = change
    return True, delta, v


@inner
def stays_within(columns: Columns, scale: Floats, epoch: Integers, table: Floats, c: Scalars) -> tuple[bool, Scalars]:
    """Whether A X is finite, in every column; and max |X_r| then."""
    e, size, fine = epochs(epoch), zeros(), True
    for i in range(columns.shape[0]):
        size_i = magnitudes(linear(c, present(columns[i], scale, e, table)))
        size = larger(size, size_i)
        if not all_within(size_i):
            fine = False
    return fine, size


@inner
def move(
    columns: Columns, scale: Floats, epoch: Integers, table: Floats, scalars: Floats, live: Integers, counts: Integers,
    k: int, active: Integers, phi: Floats, count: int, work: Floats, made: Floats,
) -> None:  # fmt: skip
    """C ← A C, epochs closed where that is due, and the active columns as ``find`` left them."""
    memory, size, c = decisions(made, k)
    if EAGER:
        left, decay, drop = 0, decay_of(c), drop_of(memory)
        for a in range(count):
            column = columns[active[a]]
            column["L"] = 1.0 if phi[0, a] != 0.0 else min(column["L"] * decay, LIMIT)
            if column["L"] > drop:
                live[k, left] = active[a]
                left += 1
                column["Q"] = left
            else:
                for r in range(WEIGHTS, VECTORS):
                    work[r, a] = 0.0
                column["Q"] = 0
            set_held(column, z_at(work, a))
        counts[k] = left
    else:
        if is_small(c, size, NEAR_THE_END):
            advance(scale, c)
            for r in range(WEIGHTS):
                if not LOW < abs(scale[r]) < HIGH:
                    settle(columns, scale, epoch, table)
            for trace in range(TRACES):
                if is_over(scale, trace):
                    if epoch[2 * trace] + 1 < table.shape[1]:
                        close_epoch(scale, epoch, table, trace)
                    else:
                        settle(columns, scale, epoch, table)
        else:
            e = epochs(epoch)
            for i in range(columns.shape[0]):
                place(columns[i], linear(c, present(columns[i], scale, e, table)))
            start_over(scale, epoch)
        e = epochs(epoch)
        for a in range(count):
            put(columns[active[a]], scale, e, z_at(work, a))
        release(columns, counts, k, active, count)
    store(scalars, k, memory, size)
    scalars[k, COUNTER] += 1.0


@inner
def take_step(
    columns: Columns, scale: Floats, epoch: Integers, table: Floats, scalars: Floats, live: Integers, counts: Integers,
    made: Floats, last_delta: Floats, frozen: Flags, freeze: bool, parameters: Any, t: int, predictions: Any,
    index: Integers, value: Floats, begin: int, end: int, index_next: Integers, value_next: Floats, begin_next: int,
    end_next: int, active: Integers, phi: Floats, work: Floats, found: Integers,
) -> int:  # fmt: skip
    """One step of all learners; −1, or the first that would diverge and must not freeze; then none has moved."""
    K = columns.shape[0]
    for k in range(K):
        count = gather(
            columns[k], live, counts, k, index, value, begin, end, index_next, value_next, begin_next, end_next,
            active[k], phi[k],
        )  # fmt: skip
        was_frozen = frozen[k]
        fine, delta, v = find(
            columns[k], scale[k], epoch[k], table[k], scalars, k, step_at(parameters, t, k), was_frozen, active[k],
            phi[k], count, work[k], made,
        )  # fmt: skip
        if fine and not EAGER:
            memory, size, c = decisions(made, k)
            if not is_small(c, size, NEAR_THE_END):
                fine, size_all = stays_within(columns[k], scale[k], epoch[k], table[k], c)
                settle(columns[k], scale[k], epoch[k], table[k])  # C has grown, even if no column has
                for a in range(count):
                    size_all = larger(size_all, magnitudes(z_at(work[k], a)))
                keep_decisions(made, k, memory, size_all, c)
        found[k] = count if fine else -1
        if not fine:
            release(columns[k], counts, k, active[k], count)
        if not fine and not was_frozen:
            if not freeze:
                for earlier in range(k):
                    if found[earlier] >= 0:
                        release(columns[earlier], counts, earlier, active[earlier], found[earlier])
                return k
            frozen[k] = True
        last_delta[k] = delta
        if predictions.shape[0] > 0:
            predictions[t, k] = v
    for k in range(K):
        if found[k] >= 0:
            move(
                columns[k], scale[k], epoch[k], table[k], scalars, live, counts, k, active[k], phi[k], found[k],
                work[k], made,
            )  # fmt: skip
    return -1


def run_many(
    columns: Columns, scale: Floats, epoch: Integers, table: Floats, scalars: Floats, live: Integers, counts: Integers,
    made: Floats, active: Integers, phi: Floats, work: Floats, found: Integers, last_delta: Floats, frozen: Flags,
    freeze: bool, start: Integers, index: Integers, value: Floats, start_next: Integers, index_next: Integers,
    value_next: Floats, parameters: Any, predictions: Any,
) -> int:  # fmt: skip
    """T steps; −1, or t·K + k if learner k would diverge at step t and must not freeze."""
    for t in range(start.shape[0] - 1):
        k = take_step(
            columns, scale, epoch, table, scalars, live, counts, made, last_delta, frozen, freeze, parameters, t,
            predictions, index, value, start[t], start[t + 1], index_next, value_next, start_next[t], start_next[t + 1],
            active, phi, work, found,
        )  # fmt: skip
        if k >= 0:
            return int(t * columns.shape[0] + k)
    return -1


@inner
def learn_step(
    columns: Columns, scale: Floats, epoch: Integers, table: Floats, scalars: Floats, live: Integers, counts: Integers,
    made: Floats, active: Integers, phi: Floats, work: Floats, index: Integers, value: Floats, index_next: Integers,
    value_next: Floats, step: Scalars,
) -> float:  # fmt: skip
    """One step of one learner; its TD error, or NaN if the step was refused and nothing has changed."""
    n = columns.shape[1]
    if not (is_acceptable(step) and are_sound(n, index, value) and are_sound(n, index_next, value_next)):
        return np.nan
    if min(n, index.shape[0] + index_next.shape[0]) > active.shape[1]:
        return np.nan
    count = gather(
        columns[0], live, counts, 0, index, value, 0, index.shape[0], index_next, value_next, 0, index_next.shape[0],
        active[0], phi[0],
    )  # fmt: skip
    fine, delta, _ = find(
        columns[0], scale[0], epoch[0], table[0], scalars, 0, step, False, active[0], phi[0], count, work[0], made
    )
    if fine and not EAGER:
        _, size, c = decisions(made, 0)
        fine = is_small(c, size, NEAR_THE_END)  # otherwise ``run_many`` checks every column
    if not fine:
        release(columns[0], counts, 0, active[0], count)
        return np.nan
    move(columns[0], scale[0], epoch[0], table[0], scalars, live, counts, 0, active[0], phi[0], count, work[0], made)
    return delta


def settle_learner(columns: Columns, scale: Floats, epoch: Integers, table: Floats) -> None:
    """``settle``, for every learner."""
    for k in range(columns.shape[0]):
        settle(columns[k], scale[k], epoch[k], table[k])


def predict_many(
    columns: Columns, scale: Floats, epoch: Integers, table: Floats, start: Integers, index: Integers, value: Floats,
    out: Floats,
) -> None:  # fmt: skip
    """θ·φ for every row and learner."""
    for t in range(start.shape[0] - 1):
        for k in range(columns.shape[0]):
            out[t, k] = value_of(columns[k], scale[k], epoch[k], table[k], index, value, start[t], start[t + 1])
