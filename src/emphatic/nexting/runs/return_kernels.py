"""The loops that follow the returns of general value functions row by row until nothing is missing of them.

The return of a row is Σ (γ_{t+1} … γ_{t+k}) R_{t+k+1}. Each step of a sequence multiplies the weight of all rows that
are open by the same γ, so that the oldest is closed first. When too many are open, every other one is given up, and
from then on only every other row is followed.
"""

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
    Flags = NDArray[np.bool_]

_f1, _f2 = (types.Array(types.float64, ndim, "C") for ndim in (1, 2))
_r1 = types.Array(types.float64, 1, "C", readonly=True)
_b1 = types.Array(types.boolean, 1, "C", readonly=True)

#: Rows of a question that are open at a time, at most.
OPEN_ROWS = 512
#: What a question carries: the place of its oldest open row and their number, rows so far, how many rows apart those
#: are that are followed, and the returns that are known.
HEAD, OPEN, ROW, STRIDE, CLOSED = range(5)
#: What an open row carries: its weight, its return so far, and the weight of what was read of it.
WEIGHT, RETURN, SEEN = range(3)

#: The weight below which nothing is missing of a return, and of one that is a weighted mean.
NOTHING, MEAN_NOTHING = 1e-3, 0.01

# Scores: what a question carries besides, and what each of its open rows does.
(
    DROPPED,
    LENGTH,
    ERROR,
    LEVEL_LOW,
    LEVEL_HIGH,
    Q_LOW,
    Q_HIGH,
    LEAST,
    MOST,
    LAST_RETURN,
) = range(5, 15)
QUESTION = 15
AT_ROW, HOUR, ANSWER, LOW, HIGH, USUAL, PAST_MEAN, NOW, SIZE = range(3, 12)
FIELDS = 12
#: What is fixed: whether the return is a weighted mean, the weight below which nothing is missing, the share of returns
#: inside their intervals, and the first row that is scored.
MEAN_OF_WEIGHTS, ENOUGH, COVERAGE, HALF = range(4)
FIXED = 4
#: Errors that are remembered, and how often their quantiles are looked up.
REMEMBERED, TICKS = 1000, 20
#: Sums of either half: rows, returns, squares, errors, those of the baselines (persistence, past mean, climatology),
#: and of intervals; then rows and hits of each hour.
COUNT, TOTAL, SQUARES, SQUARE, ABSOLUTE, BASELINES, BASELINES_ABSOLUTE = 0, 1, 2, 3, 4, 5, 8
COVERED_ROWS, COVERED, INTERVAL_SCORE, HOURS = 11, 12, 13, 14
SUMS = HOURS + 48


@register_jitable
def _thin(state: Floats, rows: Floats) -> None:
    """Give up every other open row, and follow half as many from now on."""
    head, size = int(state[HEAD]), len(rows)
    count = int(state[OPEN])
    left = np.empty(((count + 1) // 2, rows.shape[1]))
    for i in range(0, count, 2):
        left[i // 2] = rows[(head + i) % size]
    rows[: len(left)] = left
    state[HEAD], state[OPEN], state[STRIDE] = 0.0, float(len(left)), 2.0 * state[STRIDE]


@register_jitable
def _opens(state: Floats, rows: Floats) -> int:
    """The place of the present row among those that are open; −1 if it is not followed."""
    stride = max(1.0, state[STRIDE])
    state[STRIDE] = stride
    row = state[ROW]
    state[ROW] = row + 1.0
    if row % stride != 0.0:
        return -1
    if int(state[OPEN]) == len(rows):
        _thin(state, rows)
        if row % state[STRIDE] != 0.0:
            return -1
    place = int(state[HEAD] + state[OPEN]) % len(rows)
    state[OPEN] += 1.0
    return place


@register_jitable
def _add_scores(fixed: Floats, row: Floats, y: float, sums: Floats) -> None:
    """Score what was predicted at a row whose return is known now."""
    off = row[ANSWER] - y
    sums[COUNT] += 1.0
    sums[TOTAL] += y
    sums[SQUARES] += y * y
    sums[SQUARE] += off * off
    sums[ABSOLUTE] += abs(off)
    simple = (row[NOW], row[PAST_MEAN], row[USUAL])
    for b in range(3):
        sums[BASELINES + b] += (simple[b] - y) ** 2
        sums[BASELINES_ABSOLUTE + b] += abs(simple[b] - y)
    if row[LOW] == row[LOW]:
        inside = 1.0 if row[LOW] <= y <= row[HIGH] else 0.0
        outside = max(0.0, row[LOW] - y) + max(0.0, y - row[HIGH])
        sums[COVERED_ROWS] += 1.0
        sums[COVERED] += inside
        sums[INTERVAL_SCORE] += row[HIGH] - row[LOW] + 2.0 / (1.0 - fixed[COVERAGE]) * outside
        sums[HOURS + 2 * int(row[HOUR])] += 1.0
        sums[HOURS + 2 * int(row[HOUR]) + 1] += inside


@register_jitable
def _learn_return(fixed: Floats, carried: Floats, row: Floats, y: float, climate: Floats, ratios: Floats) -> None:
    """Learn intervals and what is usual from a return that is known now."""
    closed, hour = carried[CLOSED], int(row[HOUR])
    error = abs(y - row[ANSWER])
    ratios[int(closed) % REMEMBERED] = (y - row[ANSWER]) / max(row[SIZE], 1e-300)
    carried[ERROR] += max(1.0 / 500.0, 1.0 / (closed + 1.0)) * (error - carried[ERROR])
    climate[hour, 0] += 1.0
    climate[hour, 1] += y
    climate[hour, 2] += max(1.0 / 200.0, 1.0 / climate[hour, 0]) * (error - climate[hour, 2])
    climate[24, 0] += 1.0
    climate[24, 1] += y
    if not fixed[MEAN_OF_WEIGHTS] > 0.0:
        carried[LEAST], carried[MOST] = min(carried[LEAST], y), max(carried[MOST], y)
    carried[LAST_RETURN] = y
    carried[CLOSED] = closed + 1.0
    tail = 0.5 * (1.0 - fixed[COVERAGE])
    if closed >= 50.0 and int(closed) % TICKS == 0:
        ordered = np.sort(ratios[: int(min(closed + 1.0, REMEMBERED))])
        carried[Q_LOW] = ordered[int(tail * (len(ordered) - 1))]
        carried[Q_HIGH] = ordered[math.ceil((1.0 - tail) * (len(ordered) - 1))]
    if row[LOW] == row[LOW]:
        pace = min(0.02, 0.5 / max(carried[LENGTH], 1.0))
        carried[LEVEL_LOW] += pace * ((1.0 if y < row[LOW] else 0.0) - tail)
        carried[LEVEL_HIGH] += pace * ((1.0 if y > row[HIGH] else 0.0) - tail)


@jit_for((_r1, _f1, _f2, _f2, _f1, _f2, _r1, _r1, _b1, _b1, _r1, _r1, _r1, _f2, _f2))
def follow_returns(
    fixed: Floats, carried: Floats, rows: Floats, climate: Floats, ratios: Floats, sums: Floats, R: Floats,
    gamma: Floats, taken: Flags, follows: Flags, now: Floats, hour: Floats, answer: Floats, out: Floats,
    closed: Floats,
) -> int:  # fmt: skip
    """Follow the returns of one question over B rows: intervals and the usual return at each, and scores.

    ``R``, ``gamma``, ``taken`` and ``follows`` (B,) are of the steps that end in the rows, R NaN where it is missing;
    ``now`` is the present cumulant, NaN to compare with the last return. ``out`` (B, 3) takes low, high and usual. The
    returns that become known go to ``closed``, an open row each, with the return as ``RETURN``; their number is
    returned.
    """
    size, count_closed = len(rows), 0
    is_mean = fixed[MEAN_OF_WEIGHTS] > 0.0
    for t in range(len(R)):
        broken = not follows[t] or not taken[t] or not math.isfinite(gamma[t])
        if broken or (not is_mean and R[t] != R[t]):
            carried[DROPPED] += carried[OPEN]
            carried[OPEN] = 0.0
        if is_mean and R[t] == R[t]:
            carried[LEAST], carried[MOST] = min(carried[LEAST], R[t]), max(carried[MOST], R[t])
        head, count = int(carried[HEAD]), int(carried[OPEN])
        for i in range(count):
            row = rows[(head + i) % size]
            if R[t] == R[t]:
                row[RETURN] += row[WEIGHT] * R[t]
                row[SEEN] += row[WEIGHT]
            row[WEIGHT] *= gamma[t]
        while count > 0 and rows[head, WEIGHT] <= fixed[ENOUGH]:
            row = rows[head]
            y = row[RETURN]
            if is_mean:
                # (the weights of a mean add up to 1 / (1 − γ), those that were seen to less)
                y = row[RETURN] / row[SEEN] if row[SEEN] * (1.0 - gamma[t]) >= 0.5 * (1.0 - row[WEIGHT]) else np.nan
            if y == y:
                row[RETURN] = y
                closed[count_closed] = row
                count_closed += 1
                passed = carried[ROW] - row[AT_ROW]
                carried[LENGTH] += max(1.0 / 1000.0, 1.0 / (carried[CLOSED] + 1.0)) * (passed - carried[LENGTH])
                _add_scores(fixed, row, y, sums[0 if row[AT_ROW] < fixed[HALF] else 1])
                _learn_return(fixed, carried, row, y, climate, ratios)
            else:
                carried[DROPPED] += 1.0
            head, count = (head + 1) % size, count - 1
        carried[HEAD], carried[OPEN] = head, count
        h, known = int(hour[t]), carried[CLOSED]
        mean = climate[24, 1] / climate[24, 0] if known > 0.0 else answer[t]
        usual = (climate[h, 1] + 5.0 * mean) / (climate[h, 0] + 5.0)
        spread = (climate[h, 0] * climate[h, 2] + 20.0 * carried[ERROR]) / (climate[h, 0] + 20.0)
        spread = max(spread, 0.2 * carried[ERROR], 1e-300)
        below = above = np.nan
        if known > 50.0 and math.isfinite(answer[t]):
            # (a weighted mean of cumulants lies between them)
            room = 0.0 if is_mean else 0.1 * (carried[MOST] - carried[LEAST])
            lowest = carried[LEAST] - room if carried[LEAST] < 0.0 else max(0.0, carried[LEAST] - room)
            highest = carried[MOST] + room if carried[MOST] > 0.0 else min(0.0, carried[MOST] + room)
            below = min(highest, max(lowest, answer[t] + spread * (carried[Q_LOW] - carried[LEVEL_LOW])))
            above = max(lowest, min(highest, answer[t] + spread * (carried[Q_HIGH] + carried[LEVEL_HIGH])))
            below, above = min(below, answer[t]), max(above, answer[t])
        out[t, 0], out[t, 1], out[t, 2] = below, above, usual
        at_row = carried[ROW]
        place = _opens(carried, rows)
        if place >= 0:
            row = rows[place]
            row[WEIGHT], row[RETURN], row[SEEN], row[AT_ROW], row[HOUR] = 1.0, 0.0, 0.0, at_row, float(h)
            row[ANSWER], row[LOW], row[HIGH], row[USUAL] = answer[t], below, above, usual
            row[PAST_MEAN] = mean
            row[NOW] = now[t] if now[t] == now[t] else (carried[LAST_RETURN] if known > 0.0 else answer[t])
            row[SIZE] = spread
    return count_closed
