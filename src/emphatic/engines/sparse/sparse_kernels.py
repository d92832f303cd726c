"""The sparse engine's steps for one learner: ``learn_step`` and ``run``; and what reads and settles its columns.

X = C·H: ``columns`` are those of H, with a value for each vector and a stamp for each trace, and ``scale`` is C.
SPARSE.md derives what is done here. Functions that are not defined here belong to the rule: see ``rule_functions`` and
the engine.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from emphatic.engines.compiled import exact, inner, small

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from emphatic.engines.rule_functions import (
        COUNTER, FORGOTTEN, HUGE, LIMIT, TRACES, VECTORS, WEIGHTS, all_within, bounds, decide, is_acceptable, is_finite,
        is_small, larger, load, magnitudes, step_at, store, update_plain, zeros,
    )  # fmt: skip
    from emphatic.engines.sparse import (
        HIGH, LOW, NEAR_THE_END, PEAKS, PERIOD, SHRUNK, add_held, add_phi, add_phi_next, advance, at_least_one, combine,
        epochs, fetch, increments, mark, marked, place, present, slot,
    )  # fmt: skip
    from emphatic.rules import Scalars

    Columns = NDArray[np.void]
    Floats = NDArray[np.float64]
    Integers = NDArray[np.int64]
    Flags = NDArray[np.bool_]

#: What an epoch's columns keep of a trace counts as 0 below this.
DEAD = 1e-100


@inner
def start_over(scale: Floats, epoch: Integers) -> None:
    """C ← 1, in the first epoch of every trace."""
    for i in range(scale.shape[0]):
        scale[i] = 0.0 if VECTORS <= i < PEAKS else 1.0
    for i in range(epoch.shape[0]):
        epoch[i] = 0


@inner
def settle(columns: Columns, scale: Floats, epoch: Integers, table: Floats) -> None:
    """Bring every column up to date and make C the identity: H is X."""
    e = epochs(epoch)
    for i in range(columns.shape[0]):
        place(columns[i], present(columns[i], scale, e, table))
    start_over(scale, epoch)


@inner
def is_over(scale: Floats, trace: int) -> bool:
    """Whether the epoch of a trace is to be closed: its scale has shrunk, if a weight takes it, or is out of bounds."""
    size = abs(scale[WEIGHTS + trace])
    if size > scale[PEAKS + trace]:
        scale[PEAKS + trace] = size
    feeds = False
    for r in range(WEIGHTS):
        feeds = feeds or slot(r, trace) >= 0
    return not LOW <= size <= HIGH or (feeds and size < SHRUNK * scale[PEAKS + trace])


@exact  # so that a trace that is forgotten leaves weights that are read with the same bits
def close_epoch(scale: Floats, epoch: Integers, table: Floats, trace: int) -> None:
    """Record in the table what the columns still owe of a trace, as C has it, and start its scale at 1."""
    now, live = epoch[2 * trace], epoch[2 * trace + 1]
    for r in range(WEIGHTS):
        table[trace, now, r] = 0.0
    table[trace, now, WEIGHTS] = 1.0
    for r in range(WEIGHTS):
        i = slot(r, trace)
        if i >= 0:
            share = scale[i] / scale[r]
            scale[i] = 0.0
            for s in range(live, now + 1):
                table[trace, s, r] += share * table[trace, s, WEIGHTS]
    for s in range(live, now + 1):
        left = scale[WEIGHTS + trace] * table[trace, s, WEIGHTS]
        table[trace, s, WEIGHTS] = left if abs(left) > DEAD else 0.0
    while live <= now and table[trace, live, WEIGHTS] == 0.0:
        live += 1
    epoch[2 * trace] = now + 1
    epoch[2 * trace + 1] = live
    scale[WEIGHTS + trace] = 1.0
    scale[PEAKS + trace] = 1.0


@inner
def forget(columns: Columns, scale: Floats, epoch: Integers, table: Floats) -> None:
    """Every trace becomes 0: its epoch is closed with nothing left of it, and what weights owe stays in the table."""
    for trace in range(TRACES):
        scale[WEIGHTS + trace] = 0.0
        if epoch[2 * trace] + 1 < table.shape[1]:
            close_epoch(scale, epoch, table, trace)
        else:
            settle(columns, scale, epoch, table)


@small
def products(
    columns: Columns, scale: Floats, epoch: Integers, table: Floats, index: Integers, value: Floats, begin: int,
    end: int, index_next: Integers, value_next: Floats, begin_next: int, end_next: int,
) -> tuple[Scalars, Scalars, Scalars]:  # fmt: skip
    """X·φ, X·φ' and (φ·φ, φ·φ', φ'·φ'). The active columns are up to date then.

    For φ·φ', a column of φ bears its position there as a mark: a negative number in the place of a stamp, which says
    nothing while the column is up to date.
    """
    n, e = columns.shape[0], epochs(epoch)
    h, h_next = zeros(), zeros()
    pp, pq, qq = 0.0, 0.0, 0.0
    for a in range(begin, end):
        i = index[a]
        if 0 <= i < n and marked(columns[i]) >= 0:
            fetch(columns[i], e, table)
            mark(columns[i], -1 - (a - begin) % PERIOD)
            pp += value[a] * value[a]
            h = add_held(h, columns[i], value[a])
    for a in range(begin_next, end_next):
        i = index_next[a]
        if 0 <= i < n:
            if marked(columns[i]) < 0:
                b = begin - 1 - marked(columns[i])
                while index[b] != i:
                    b += PERIOD
                pq += value[b] * value_next[a]
            else:
                fetch(columns[i], e, table)
            qq += value_next[a] * value_next[a]
            h_next = add_held(h_next, columns[i], value_next[a])
    for a in range(begin, end):
        if 0 <= index[a] < n:
            mark(columns[index[a]], e[0])
    return combine(scale, h), combine(scale, h_next), (pp, pq, qq)


@small
def move(
    columns: Columns, scale: Floats, epoch: Integers, table: Floats, c: Scalars, index: Integers, value: Floats,
    begin: int, end: int, index_next: Integers, value_next: Floats, begin_next: int, end_next: int,
) -> None:  # fmt: skip
    """C ← A C, epochs closed where that is due, and C⁻¹B [φ; φ'] added to the active columns."""
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
    n, e = columns.shape[0], epochs(epoch)
    u, u_next = increments(scale, c)
    for a in range(begin, end):
        i = index[a]
        if 0 <= i < n:
            fetch(columns[i], e, table)
            add_phi(columns[i], u, value[a])
    if len(u_next) > 0:
        for a in range(begin_next, end_next):
            i = index_next[a]
            if 0 <= i < n:
                fetch(columns[i], e, table)
                add_phi_next(columns[i], u_next, value_next[a])


@inner
def component_of(index: Integers, value: Floats, begin: int, end: int, i: int) -> float:
    """φ_i, by a look at every active feature: no kernel that an agent calls may allocate memory."""
    component = 0.0
    for a in range(begin, end):
        if index[a] == i:
            component = value[a]
    return component


@inner
def move_plain(
    columns: Columns, scale: Floats, epoch: Integers, table: Floats, c: Scalars, index: Integers, value: Floats,
    begin: int, end: int, index_next: Integers, value_next: Floats, begin_next: int, end_next: int,
) -> tuple[bool, Scalars]:  # fmt: skip
    """The same on X itself, which is H then, if it is finite after the step; whether it is, and max |X_r| then.

    C and H may be beyond the end of the number range where X is not.
    """
    n, e, size = columns.shape[0], epochs(epoch), zeros()
    for is_trial in (True, False):
        for i in range(n):
            p, q = (
                component_of(index, value, begin, end, i),
                component_of(index_next, value_next, begin_next, end_next, i),
            )
            z = update_plain(c, present(columns[i], scale, e, table), p, q)
            if is_trial:
                size_i = magnitudes(z)
                size = larger(size, size_i)
                if not all_within(size_i):
                    return False, size
            else:
                place(columns[i], z)
    start_over(scale, epoch)
    return True, size


@inner
def take_step(
    columns: Columns, scale: Floats, epoch: Integers, table: Floats, scalars: Floats, step: Scalars, index: Integers,
    value: Floats, begin: int, end: int, index_next: Integers, value_next: Floats, begin_next: int, end_next: int,
) -> tuple[float, float]:  # fmt: skip
    """One step; δ and θ·φ. δ is NaN if the learner would diverge, and it has not moved then."""
    x, x_next, g = products(
        columns, scale, epoch, table, index, value, begin, end, index_next, value_next, begin_next, end_next
    )
    memory, size = load(scalars, 0)
    delta, c, memory = decide(step, memory, x, x_next, g)
    size = bounds(c, at_least_one(size), 1.0 + g[0], 1.0 + g[2])
    # The sums are float64; what a prediction in the learner's dtype could not hold has diverged.
    if not (is_finite(delta, memory) and abs(x[0]) <= LIMIT and abs(x_next[0]) <= LIMIT):
        return np.nan, x[0]
    if is_small(c, size, NEAR_THE_END):
        move(columns, scale, epoch, table, c, index, value, begin, end, index_next, value_next, begin_next, end_next)
    else:
        fine, size = move_plain(
            columns, scale, epoch, table, c, index, value, begin, end, index_next, value_next, begin_next, end_next
        )
        if not fine:
            return np.nan, x[0]
    store(scalars, 0, memory, size)
    scalars[0, COUNTER] += 1.0
    return delta, x[0]


@inner
def are_sound(n: int, index: Integers, value: Floats) -> bool:
    """Whether these are features of n: a value for each index, −1 for none."""
    fine = value.shape[0] == index.shape[0]
    for a in range(index.shape[0]):
        fine = fine and -1 <= index[a] < n
    return bool(fine)


@inner
def learn_step(
    columns: Columns, scale: Floats, epoch: Integers, table: Floats, scalars: Floats, index: Integers, value: Floats,
    index_next: Integers, value_next: Floats, step: Scalars,
) -> float:  # fmt: skip
    """One step; its TD error, or NaN if the step was refused and nothing has changed."""
    n = columns.shape[0]
    if not (is_acceptable(step) and are_sound(n, index, value) and are_sound(n, index_next, value_next)):
        return np.nan
    delta, _ = take_step(
        columns, scale, epoch, table, scalars, step, index, value, 0, index.shape[0], index_next, value_next, 0,
        index_next.shape[0],
    )  # fmt: skip
    return delta


def run(
    columns: Columns, scale: Floats, epoch: Integers, table: Floats, scalars: Floats, start: Integers, index: Integers,
    value: Floats, start_next: Integers, index_next: Integers, value_next: Floats, first: Flags,
    parameters: tuple[Floats, ...], predictions: NDArray[Any], last_delta: Floats,
) -> int:  # fmt: skip
    """T steps; −1, or t where the learner would diverge at step t."""
    keeps, is_broken = predictions.shape[0] > 0, first.shape[0] > 0
    for t in range(start.shape[0] - 1):
        if is_broken and first[t]:
            forget(columns, scale, epoch, table)
            for i in range(FORGOTTEN):
                scalars[0, i] = 0.0
        delta, v = take_step(
            columns, scale, epoch, table, scalars, step_at(parameters, t, 0), index, value, start[t], start[t + 1],
            index_next, value_next, start_next[t], start_next[t + 1],
        )  # fmt: skip
        if not abs(delta) <= HUGE:
            return t
        if keeps:
            predictions[t, 0] = v
        last_delta[0] = delta
    return -1


def settle_all(columns: Columns, scale: Floats, epoch: Integers, table: Floats) -> None:
    """``settle``, as a function of its own."""
    settle(columns, scale, epoch, table)


def forget_all(columns: Columns, scale: Floats, epoch: Integers, table: Floats) -> None:
    """``forget``, as a function of its own."""
    forget(columns, scale, epoch, table)


@inner
def value_of(
    columns: Columns,
    scale: Floats,
    epoch: Integers,
    table: Floats,
    index: Integers,
    value: Floats,
    begin: int,
    end: int,
) -> float:
    """θ·φ, changing nothing."""
    total, e = 0.0, epochs(epoch)
    for a in range(begin, end):
        if 0 <= index[a] < columns.shape[0]:
            total += value[a] * present(columns[index[a]], scale, e, table)[0]
    return total


def predict_one(
    columns: Columns, scale: Floats, epoch: Integers, table: Floats, index: Integers, value: Floats
) -> float:
    """θ·φ; NaN if these are not features of n."""
    if not are_sound(columns.shape[0], index, value):
        return np.nan
    return value_of(columns, scale, epoch, table, index, value, 0, index.shape[0])


def predict_rows(
    columns: Columns, scale: Floats, epoch: Integers, table: Floats, index: Integers, value: Floats, out: Floats
) -> bool:
    """θ·φ for every row of ``index`` and ``value``; False if these are not features of n, or θ·φ is not finite."""
    fine = value.shape == index.shape
    for t in range(out.shape[0]):
        for a in range(index.shape[1]):
            fine = fine and -1 <= index[t, a] < columns.shape[0] and abs(value[t, a]) <= LIMIT
        if not fine:
            return False
        out[t] = value_of(columns, scale, epoch, table, index[t], value[t], 0, index.shape[1])
        fine = abs(out[t]) <= LIMIT
    return bool(fine)


def predict(
    columns: Columns, scale: Floats, epoch: Integers, table: Floats, start: Integers, index: Integers, value: Floats,
    out: Floats,
) -> None:  # fmt: skip
    """θ·φ for every row."""
    for t in range(start.shape[0] - 1):
        out[t, 0] = value_of(columns, scale, epoch, table, index, value, start[t], start[t + 1])
