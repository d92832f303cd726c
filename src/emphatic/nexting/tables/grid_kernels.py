"""The loop of ``Grid``: one record after the other, the same for a whole file and for a single reading of a pipe."""

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

_f1, _f2 = types.Array(types.float64, 1, "C"), types.Array(types.float64, 2, "C")
_r1 = types.Array(types.float64, 1, "C", readonly=True)
_i1 = types.Array(types.int64, 1, "C", readonly=True)

# What a column carries: what its values in the open step come to, how many they are, its last value, the time of that,
# how long it is held, and whether it is a state, of which the last value counts and not the mean.
SUM, COUNT, HELD, STAMP, LIMIT, IS_STATE = range(6)
WIDTH = 6
# What all columns share: the number of the open step, the latest time of all, the longest limit, records that came
# after their step, those without a time, and how often time began anew.
STEP, LATEST, LONGEST, LATE, TIMELESS, RESTARTS = range(6)
HEAD = 6
#: A time belongs to a step if it is after its end by less than this share of it: stamps are rounded.
SLACK = 1e-3
#: Numbers of steps from which on floats are not exact: no time of a log is so far from 0.
MOST_STEPS = 9e15


@register_jitable
def end_of(number: float, step: float) -> float:
    """The time at which a step ends; without a step, each time is one."""
    return number * step if step > 0.0 else number


@register_jitable
def write(state: Floats, head: Floats, step: float, row_times: Floats, rows: Floats, row: int) -> None:
    """Write the row of the open step, which is complete."""
    time = end_of(head[STEP], step)
    row_times[row] = time
    for c in range(len(state)):
        if state[c, COUNT] > 0.0:
            rows[row, c] = state[c, SUM] / state[c, COUNT]
        elif time - state[c, STAMP] <= state[c, LIMIT]:
            rows[row, c] = state[c, HELD]
        else:
            rows[row, c] = math.nan
        state[c, SUM] = state[c, COUNT] = 0.0


@jit_for((_r1, _i1, _r1, types.int64, types.float64, _f2, _f1, _f1, _f2), fastmath=False)
def advance(
    times: Floats, columns: NDArray[np.int64], values: Floats, begin: int, step: float, state: Floats, head: Floats,
    row_times: Floats, rows: Floats,
) -> tuple[int, int]:  # fmt: skip
    """Take the records from ``begin`` on, and write the rows of steps that they complete.

    It ends where there is no room for a further row. Returns the number of the next record, and how many rows there
    are. A record with a column below 0 only lets time pass.
    """
    count = 0
    for i in range(begin, len(times)):
        t = times[i]
        k = t / step - SLACK if step > 0.0 else t
        if not abs(k) < MOST_STEPS:
            head[TIMELESS] += 1.0
            continue
        k = np.ceil(k) if step > 0.0 else k
        if math.isnan(head[STEP]):
            head[STEP], head[LATEST] = k, t
        if k < head[STEP]:
            if head[LATEST] - t <= head[LONGEST]:
                head[LATE] += 1.0
                continue
            # The clock was put back by so much that this is another sequence: what is held is of the former one.
            if count == len(row_times):
                return i, count
            write(state, head, step, row_times, rows, count)
            count += 1
            for c in range(len(state)):
                state[c, HELD] = math.nan
            head[STEP], head[LATEST] = k, t
            head[RESTARTS] += 1.0
        while k > head[STEP]:
            if count == len(row_times):
                return i, count
            write(state, head, step, row_times, rows, count)
            count += 1
            head[STEP] = head[STEP] + 1.0 if step > 0.0 else k
            if head[STEP] * step > head[LATEST] + head[LONGEST]:
                head[STEP] = k  # nothing was read for so long that nothing is held: a gap
        head[LATEST] = max(head[LATEST], t)
        c = columns[i]
        if c < 0:
            continue
        v = values[i]
        state[c, HELD], state[c, STAMP] = v, t
        if math.isnan(v):  # the sensor says that it has no value
            continue
        if state[c, COUNT] == 0.0 or state[c, IS_STATE] > 0.0:
            state[c, SUM], state[c, COUNT] = v, 1.0
        else:
            state[c, SUM] += v
            state[c, COUNT] += 1.0
    return len(times), count
