"""The loops that make features: readings to sources, and sources to active features.

They are compiled without fast mathematics: the bits do not depend on how rows are cut into blocks.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from numba import types
from numba.extending import register_jitable

from emphatic.engines.compiled import jit_for
from emphatic.features.plan import CODE, CONSTANT, CYCLE, EDGE, EXACT, GIVEN, READING, SOFT, TRACE

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    Integers = NDArray[np.int64]

#: Of recent readings: so many beyond an end, and fewer at the other, are a level that has moved; so many are too many.
SLIDES, UNUSED, TOO_MANY = 0.02, 0.005, 0.5
#: How far a range moves for each reading in a row beyond it, by its width; and after how many it grows faster.
STEP, MANY = 0.01, 100.0

_f1, _f2 = (types.Array(types.float64, ndim, "C", readonly=True) for ndim in (1, 2))
_i1, _i2 = (types.Array(types.int64, ndim, "C", readonly=True) for ndim in (1, 2))
_out_f1, _out_f2, _out_i2 = types.float64[::1], types.float64[:, ::1], types.int64[:, ::1]


@register_jitable
def _sense_row(readings: Floats, t: int, source: Integers, rate: Floats, z: Floats, sensed: Floats, row: int) -> None:
    """Each source at row t: the reading x, its trace z ← z + rate(x − z), or its change x − z from the trace before.

    z is NaN before the first reading: a trace starts there, and a change is not known yet (NaN). Where x is missing,
    z stays.
    """
    for s in range(source.shape[0]):
        x = readings[t, source[s, 1]]
        op = source[s, 0]
        known = math.isfinite(x)
        if op == READING:
            sensed[row, s] = x if known else math.nan
            continue
        before = z[s]
        if known:
            after = before + rate[s] * (x - before)
            # The first reading; a trace of one step, which must be the reading itself; readings near 1e308.
            z[s] = after if rate[s] < 1.0 and math.isfinite(after) else x
        if op == TRACE:
            sensed[row, s] = z[s]
        else:
            sensed[row, s] = x - before if known else math.nan


@jit_for((_f2, _i2, _f1, _out_f1, _out_f2), fastmath=False)
def sense(readings: Floats, source: Integers, rate: Floats, z: Floats, sensed: Floats) -> None:
    """Every source at every row, (B, sources)."""
    for t in range(readings.shape[0]):
        _sense_row(readings, t, source, rate, z, sensed, t)


@register_jitable
def _place(x: float, knots: Floats, start: int, count: int) -> float:
    """Where x lies among increasing knots, 0 … count − 1, linear between them."""
    if x <= knots[start]:
        return 0.0
    if x >= knots[start + count - 1]:
        return count - 1.0
    low, high = 0, count - 1
    while high - low > 1:
        middle = (low + high) // 2
        if knots[start + middle] <= x:
            low = middle
        else:
            high = middle
    left: float = knots[start + low]
    right: float = knots[start + high]
    return low + (x - left) / (right - left)


@register_jitable
def _follow(x: float, k: int, scale: Integers, knots: Floats, recent: Floats, moves: Integers) -> None:
    """Count a reading of the source of scale k; move its range where recent readings have left it (``maker``)."""
    start, end = scale[k, 1], scale[k, 1] + scale[k, 2]
    low, high = knots[start], knots[end - 1]
    width = high - low
    share = 1.0 / recent[k, 0]
    for part in range(1, 5):
        recent[k, part] *= 1.0 - share
    if low <= x <= high:
        recent[k, 5] = 0.0
        if x < low + EDGE * width:
            recent[k, 2] += share
        elif x > high - EDGE * width:
            recent[k, 3] += share
        return
    above = x > high
    side = 4 if above else 1
    recent[k, side] += share
    recent[k, 5] = max(recent[k, 5], 0.0) + 1.0 if above else min(recent[k, 5], 0.0) - 1.0
    unused = (recent[k, 1] + recent[k, 2] if above else recent[k, 3] + recent[k, 4]) < UNUSED
    leads = scale[k, 4] == k
    moved = unused and leads and recent[k, side] >= SLIDES
    if not (moved or recent[k, 1] + recent[k, 4] >= TOO_MANY) or abs(x) > 1e300:
        return
    slides = unused or (x - high if above else low - x) > width
    far = max(1.0, abs(recent[k, 5]) / MANY)
    step = STEP * recent[k, 5] * far * far * width
    move = min(x - high, step) if above else max(x - low, step)
    stretch = 1.0 if slides else 1.0 + abs(move) / width
    for other in range(scale.shape[0]):
        if scale[other, 3] == k or (slides and leads and scale[other, 4] == k):
            start, end = scale[other, 1], scale[other, 1] + scale[other, 2]
            fits = True  # beside large numbers, knots that are close together would become the same
            for j in range(start, end - 1 if slides else start):
                fits &= knots[j] + move < knots[j + 1] + move
            for j in range(start, end if fits else start):
                if slides:
                    knots[j] += move
                elif above:
                    knots[j] = low + (knots[j] - low) * stretch
                else:
                    knots[j] = high - (high - knots[j]) * stretch
            moves[other, 1 if above else 0] += fits


@register_jitable
def _mixed(h: int) -> int:
    """32 bits, thoroughly mixed; every product stays below 2⁶³."""
    h = ((h ^ (h >> 16)) * 0x45D9F3B) & 0xFFFFFFFF
    h = ((h ^ (h >> 16)) * 0x45D9F3B) & 0xFFFFFFFF
    return h ^ (h >> 16)


@jit_for(
    (
        _f2, _f1, _i2, _f2, _i2, _f1, _i2, _i2, _f2, _i1, _out_f1, _out_f1, _out_f2, _out_i2, _out_i2, _out_f2, _out_f1,
        _out_i2, _out_f2,
    ),
    fastmath=False,
    allocates=False,
)  # fmt: skip
def activate(
    readings: Floats, time: Floats, code: Integers, given: Floats, source: Integers, rate: Floats, scale: Integers,
    unit: Integers, real: Floats, member: Integers, z: Floats, knots: Floats, recent: Floats, moves: Integers,
    clipped: Integers, sensed: Floats, place: Floats, index: Integers, value: Floats,
) -> int:  # fmt: skip
    """The active features of each row; returns the largest index.

    A unit is (op, first slot, first feature, first member, members, tilings, size), and in ``real`` a tile's value
    or a cycle's (period, origin); its members are scales, or a column of ``code`` or the first of ``given``. A scale is
    (source, first knot, knots, the scale that is watched for it, the one that it follows). ``sensed`` (1, sources) and
    ``place`` are room to work in.
    """
    top = -1
    for t in range(readings.shape[0]):
        _sense_row(readings, t, source, rate, z, sensed, 0)
        for k in range(scale.shape[0]):
            x = sensed[0, scale[k, 0]]
            if recent[k, 0] > 0.0 and not math.isnan(x):
                _follow(x, k, scale, knots, recent, moves)
        for k in range(scale.shape[0]):
            x = sensed[0, scale[k, 0]]
            start, count = scale[k, 1], scale[k, 2]
            if math.isnan(x):
                place[k] = math.nan
                continue
            place[k] = _place(x, knots, start, count)
            clipped[k, 0] += x < knots[start]
            clipped[k, 1] += x > knots[start + count - 1]
        for u in range(unit.shape[0]):
            op, slot, first, begin = unit[u, 0], unit[u, 1], unit[u, 2], unit[u, 3]
            size = unit[u, 6]
            if op == CONSTANT:
                index[t, slot] = first
                value[t, slot] = 1.0
                top = max(top, first)
            elif op in (SOFT, CYCLE):
                p = place[member[begin]] if op == SOFT else (time[t] - real[u, 1]) % real[u, 0] / real[u, 0] * size
                index[t, slot] = index[t, slot + 1] = -1
                value[t, slot] = value[t, slot + 1] = 0.0
                if math.isfinite(p):
                    left = math.floor(p)
                    right = (left + 1) % size
                    share = p - left
                    left %= size
                    index[t, slot] = first + left
                    value[t, slot] = 1.0 - share
                    top = max(top, first + left)
                    if share > 0.0:
                        index[t, slot + 1] = first + right
                        value[t, slot + 1] = share
                        top = max(top, first + right)
            elif op == CODE:
                i = code[t, member[begin]]
                index[t, slot] = first + i if i >= 0 else -1
                value[t, slot] = 1.0 if i >= 0 else 0.0
                top = max(top, index[t, slot])
            elif op == GIVEN:
                for i in range(size):
                    x = given[t, member[begin] + i]
                    active = not math.isnan(x) and x != 0.0
                    index[t, slot + i] = first + i if active else -1
                    value[t, slot + i] = x if active else 0.0
                    top = max(top, index[t, slot + i])
            else:
                dimensions, tilings = unit[u, 4], unit[u, 5]
                known = True
                for d in range(dimensions):
                    known &= not math.isnan(place[member[begin + d]])
                for tiling in range(tilings):
                    index[t, slot + tiling] = (tiling if op == EXACT else _mixed(tiling)) if known else -1
                    value[t, slot + tiling] = 0.0
                if not known:
                    continue
                for d in range(dimensions):
                    k = member[begin + d]
                    last = scale[k, 2] - 2
                    cell = min(int(place[k]), last)
                    fine = min(int(place[k] * tilings), (last + 1) * tilings - 1) - cell * tilings
                    shift, offset = (2 * d + 1) % tilings, 0  # of tiling k it is k·(2d + 1) mod tilings
                    for tiling in range(tilings):
                        i, tile = index[t, slot + tiling], cell + (fine + offset >= tilings)
                        i = i * size + tile if op == EXACT else _mixed((31 * i + tile + 1) & 0xFFFFFFFF)
                        index[t, slot + tiling] = i
                        offset += shift
                        offset -= tilings if offset >= tilings else 0
                for tiling in range(tilings):
                    if op == EXACT:
                        index[t, slot + tiling] += first
                        value[t, slot + tiling] = real[u, 0]
                        top = max(top, index[t, slot + tiling])
                        continue
                    i = first + index[t, slot + tiling] % size
                    index[t, slot + tiling] = -1
                    at = slot  # tiles that fall together are added
                    while index[t, at] != i and at < slot + tiling:
                        at += 1
                    index[t, at] = i
                    value[t, at] += real[u, 0]
                    top = max(top, i)
    return top
