"""The loop of ``alarms``. Compiled without fast mathematics: the bits do not depend on how rows are cut into blocks."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
from numba import types
from numba.extending import register_jitable

from emphatic.engines.compiled import jit_for
from emphatic.gvfs.gvf import LARGEST

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    Integers = NDArray[np.int64]

_f1, _f2, _f3 = (types.Array(types.float64, ndim, "C") for ndim in (1, 2, 3))
_b1, _c2 = types.Array(types.boolean, 1, "C"), types.Array(types.int8, 2, "C")
_i1, _i2 = (types.Array(types.int64, ndim, "C") for ndim in (1, 2))

# What a signal carries: rows that were judged, the last reading and how often it has come again, the usual size of an
# error and that of late.
JUDGED, READ, LAST, RUN, USUAL, LATE = range(6)
# What a question carries: the prediction before and whether there was one, the mean TD error, and its usual size.
BEFORE, THERE, MEAN, SIZE = range(4)
# And beside: the sums of errors to either side, for how many rows the reading has been missing, and the row that was
# judged from which on errors are learned, counted from 1, or 0 while the reading has never changed.
SUM_OVER, SUM_UNDER, MISSED, CHANGED = range(4)
# What the tail of a statistic is known by: its beginning, the means of the excess and of its square, the share of
# exceedances before which there was none, and for how many rows, up to the one before, there has been one.
BEGIN, EXCESS, SQUARE, FIRST, ABOVE = range(5)

# The statistics whose tails are in ``tails``, before those of the horizons; and those in ``further_tails``.
DISTANCE, REPEATS, HORIZONS = range(3)
UNREST, DRIFT, ABSENCE = range(3)
# Why there is an alarm: places in ``emphatic.nexting.runs.alarms.WHY``, counted from 1.
TOO_HIGH, TOO_LOW, STUCK, DRIFTING, MISSING = range(1, 6)

#: The share of rows in the tail, and −log₁₀ of it; and the natural logarithm of 10.
TAIL, AT_TAIL, TEN = 0.02, -math.log10(0.02), math.log(10.0)
#: Rows that count: older ones are forgotten.
MEMORY = 1e5
#: Rows over which the size of late errors is the mean.
RECENT = 30.0
#: An error counts as at most so many times its usual size, an excess as at most so many times its mean, and in the mean
#: of squares as at most so many times.
FAR, BEYOND, BEYOND_SQUARE = 20.0, 4.0, 6.0
#: The means of min(y, BEYOND), and half of that of min(y, BEYOND_SQUARE)², for an exponential y of mean 1.
CUT, CUT_SQUARE = 1.0 - math.exp(-BEYOND), 1.0 - (1.0 + BEYOND_SQUARE) * math.exp(-BEYOND_SQUARE)
#: What an error counts as at most in the sums, in units of the usual size; what it must exceed to add to them; and the
#: share of them that remains from row to row.
CLEAR, SLACK, REMAINS = 4.0, 0.5, 0.99
#: The least mean excess, for readings in whole numbers fall on few values: of errors, and of runs.
LEAST, LEAST_RUN = 0.12, 0.25
#: Exceedances that the prior, a tail like a power, counts for; and the least shape, for a tail that ends is a guess.
PRIOR, SHORTEST = 100.0, -0.1
#: How much rows in alarm count for the tails.
LIGHT = 0.05
#: Exceedances in a row after which more of them count for as little.
LONG = 60.0
#: Before so many rows a tail is not known.
START = 200.0
#: A signal counts as constant so far if its last run is longer than this share of all rows.
NEARLY_ALL = 0.9
#: How many times rarer than estimated alarms are to be: tails are not known exactly.
MARGIN = 1.5
#: The highest score; and scores have three decimals.
MOST, DIGITS = 16.0, 1000.0
#: Statistics are ratios; this is added before the logarithm, and none is above the other.
SMALL, LARGE = 0.01, 1e9


@register_jitable
def ratio(a: float, b: float) -> float:
    """a / b, within bounds."""
    if b > 0.0:
        return min(a / b, LARGE)
    return LARGE if a > 0.0 else 0.0


@register_jitable
def begin_tail(tail: Floats) -> None:
    """The tail of a statistic of errors, until more is known."""
    tail[BEGIN], tail[EXCESS], tail[SQUARE], tail[FIRST], tail[ABOVE] = math.log(3.0), 0.5, 0.5, 1.0, 0.0


@register_jitable
def compare(tail: Floats, value: float, n: float, margin: float) -> float:
    """The score of a statistic: −log₁₀ of how often it rises to this value, per row, less a margin; see ``Alarms``."""
    y, mean, first = value - tail[BEGIN], tail[EXCESS], tail[FIRST]
    # With −log₁₀ x ≤ (1/x − 1) / log 10 and exp(−x) ≤ 1 / (1 + x), most rows are seen to have the score 0 before any
    # logarithm is computed.
    most = (first * AT_TAIL + (1.0 - first) / TEN) * mean
    if y <= 0.0 and most < 0.999 * margin * first * (mean - y):
        return 0.0
    at = -math.log10(TAIL * first)
    if y <= 0.0:
        rarity = at * math.exp(max(y / mean, -50.0))
    else:
        k = min(n, MEMORY) * TAIL * first  # clusters of exceedances so far
        light = min(1.0 - 0.5 / (1.0 - mean * mean / tail[SQUARE]), 0.0) * k / (k + PRIOR)
        shape = max(mean + light, SHORTEST)
        q = (math.exp(min(y, 50.0)) - 1.0) / (mean * (1.0 - light))
        beyond = 1.0 + shape * q
        if abs(shape) < 1e-3:
            rarity = at + q / TEN
        else:
            rarity = at + math.log10(beyond) / shape if beyond > 1e-9 else MOST + 1.0
    return min(max(rarity - margin, 0.0), MOST)


@register_jitable
def learn_tail(tail: Floats, value: float, weight: float, n: float, least: float) -> None:
    """A row of the statistic: the tail begins where TAIL of all rows are above."""
    y = value - tail[BEGIN]
    above = 1.0 if y > 0.0 else 0.0
    if tail[ABOVE] >= LONG:  # what may be a fault must not become usual while it lasts
        weight *= LIGHT
    k = min(n, MEMORY) * TAIL  # exceedances so far
    tail[BEGIN] += weight * tail[EXCESS] * (above - TAIL) / (1.0 + 0.25 * k)
    if above > 0.0:
        a, mean = weight / (1.0 + k), tail[EXCESS]
        tail[EXCESS] = max(mean + a * (min(y, BEYOND * mean) / CUT - mean), least)
        cut = min(y, BEYOND_SQUARE * mean)
        tail[SQUARE] += a * (cut * cut / CUT_SQUARE - tail[SQUARE])
        tail[SQUARE] = max(tail[SQUARE], 1.05 * (tail[EXCESS] * tail[EXCESS]))
        tail[FIRST] = max(tail[FIRST] + a * (1.0 - min(tail[ABOVE], 1.0) - tail[FIRST]), 1e-3)
    tail[ABOVE] = tail[ABOVE] + 1.0 if above > 0.0 else 0.0


@jit_for(
    (_f2, _f2, _b1, _i1, _i2, _i1, _f1, _f1, _f2, _f3, _f3, _f2, _f3, _f1, _f1, _f2, _c2),
    fastmath=False,
    allocates=False,
)
def alarms(
    P: Floats, X: Floats, gap: NDArray[np.bool_], signal: Integers, question: Integers, count: Integers, gamma: Floats,
    threshold: Floats, scalars: Floats, errors: Floats, tails: Floats, further: Floats, further_tails: Floats,
    values: Floats, further_values: Floats, anomaly: Floats, why: NDArray[np.int8],
) -> None:  # fmt: skip
    """``anomaly`` of each row and signal, and ``why`` there is an alarm, 0 where there is none; see ``Alarms``.

    ``question`` (S, H) are the places of a signal's questions, ``count`` (S,) how many it has, the shortest first;
    ``gamma`` (Q,) their discounts. ``values`` and ``further_values`` are for the statistics of a row, one a tail.
    """
    for c in range(len(signal)):
        s, sums, H = scalars[c], further[c], count[c]
        margin = math.log10(MARGIN * (H + HORIZONS + 2))
        for t in range(P.shape[0]):
            x = X[t, signal[c]]
            anomaly[t, c], why[t, c] = 0.0, 0
            known = abs(x) <= LARGEST
            if gap[t]:
                s[RUN] = s[READ] = sums[MISSED] = 0.0
                for h in range(H):
                    errors[c, h, THERE] = 0.0
            n = s[JUDGED]
            sums[MISSED] = 0.0 if known else sums[MISSED] + 1.0
            absent = 0.0 if known else math.log(1.0 + sums[MISSED])
            if not known and n >= START:
                score = compare(further_tails[c, ABSENCE], absent, n, margin)
                score = math.floor(score * DIGITS) / DIGITS
                anomaly[t, c] = score
                why[t, c] = MISSING if score > threshold[0] else 0
            if n > 0.0:
                learn_tail(further_tails[c, ABSENCE], absent, LIGHT if why[t, c] > 0 else 1.0, n, LEAST_RUN)
            judged = known
            for h in range(H):
                judged = judged and errors[c, h, THERE] > 0.0 and abs(P[t, question[c, h]]) <= LARGEST
            if judged:
                s[JUDGED] += 1.0
                all_rows = s[JUDGED]
                # Errors are learned anew from the first change on, and from one that ends a run of nearly all rows.
                is_new = s[READ] > 0.0 and x != s[LAST] and (sums[CHANGED] == 0.0 or s[RUN] > NEARLY_ALL * all_rows)
                if is_new:
                    sums[CHANGED], sums[SUM_OVER], sums[SUM_UNDER] = all_rows, 0.0, 0.0
                    begin_tail(tails[c, DISTANCE])
                    begin_tail(further_tails[c, UNREST])
                    begin_tail(further_tails[c, DRIFT])
                    for h in range(H):
                        begin_tail(tails[c, HORIZONS + h])
                # How often the reading has come again.
                s[RUN] = s[RUN] + 1.0 if s[READ] > 0.0 and x == s[LAST] else 0.0
                values[REPEATS] = math.log(1.0 + s[RUN]) if s[RUN] > 0.0 else 0.0
                repeats = compare(tails[c, REPEATS], values[REPEATS], all_rows, margin) if all_rows >= START else 0.0
                highest, reason, n = 0.0, 0, 0.0
            if judged and sums[CHANGED] > 0.0:  # (before, there are no errors to learn from)
                n = all_rows - sums[CHANGED] + 1.0
                a = max(2.0 / (n + 1.0), 1.0 / MEMORY)
                # How far the reading is from what was predicted.
                off = x - errors[c, 0, BEFORE]
                e = abs(off)
                if n == 1.0:
                    s[USUAL] = s[LATE] = e
                usual = 0.5 * s[USUAL] + 0.5 * s[LATE]
                values[DISTANCE] = math.log(ratio(e, usual) + SMALL)
                # How much errors have come to lie to one side.
                clear = min(ratio(e, s[USUAL]), CLEAR) * (1.0 if off > 0.0 else -1.0)
                sums[SUM_OVER] = max(REMAINS * sums[SUM_OVER] + clear - SLACK, 0.0)
                sums[SUM_UNDER] = max(REMAINS * sums[SUM_UNDER] - clear - SLACK, 0.0)
                further_values[DRIFT] = math.log(max(sums[SUM_OVER], sums[SUM_UNDER]) + SMALL)
                # How large they are of late.
                e = min(e, FAR * usual) if usual > 0.0 else e
                s[USUAL] += a * (e - s[USUAL])
                s[LATE] += max(a, 1.0 / RECENT) * (e - s[LATE])
                further_values[UNREST] = math.log(ratio(s[LATE], s[USUAL]) + SMALL)
                # How much TD errors lie to one side. One reading that is far off counts at its own row, and must not
                # stay in their means.
                reach = FAR * usual if usual > 0.0 else abs(off)
                near = errors[c, 0, BEFORE] + min(max(off, -reach), reach)
                for h in range(H):
                    o, g, p = errors[c, h], gamma[question[c, h]], P[t, question[c, h]]
                    rate = max(1.0 / n, min(1.0 - g, 0.25))
                    d = (1.0 - g) * x + g * p - o[BEFORE]
                    e = abs(o[MEAN] + rate * (d - o[MEAN]))
                    o[MEAN] += rate * (d - (1.0 - g) * (x - near) - o[MEAN])
                    if n == 1.0:
                        o[SIZE] = e
                    values[HORIZONS + h] = math.log(ratio(e, o[SIZE]) + SMALL)
                    o[SIZE] += a * ((min(e, FAR * o[SIZE]) if o[SIZE] > 0.0 else e) - o[SIZE])
                side = TOO_HIGH if off > 0.0 else TOO_LOW
                if n >= START:
                    distance = compare(tails[c, DISTANCE], values[DISTANCE], n, margin)
                    highest, reason = distance, side
                    unrest = compare(further_tails[c, UNREST], further_values[UNREST], n, margin)
                    highest = max(highest, unrest)
                    for h in range(H):
                        score = compare(tails[c, HORIZONS + h], values[HORIZONS + h], n, margin)
                        if score > highest:
                            highest, reason = score, DRIFTING
                    score = compare(further_tails[c, DRIFT], further_values[DRIFT], n, margin)
                    if score > highest:
                        highest, reason = score, DRIFTING
                    if distance > threshold[0]:  # one reading that is off is reason enough, whatever else it moves
                        reason = side
                elif is_new and all_rows >= START:
                    highest, reason = MOST, side
            if judged:
                if repeats > highest:
                    highest, reason = repeats, STUCK
                score = math.floor(highest * DIGITS) / DIGITS
                anomaly[t, c] = score
                why[t, c] = reason if score > threshold[0] else 0
                weight = LIGHT if why[t, c] > 0 else 1.0
                learn_tail(tails[c, REPEATS], values[REPEATS], weight, all_rows, LEAST_RUN)
                if n > 0.0:
                    learn_tail(tails[c, DISTANCE], values[DISTANCE], weight, n, LEAST)
                    for h in range(H):
                        learn_tail(tails[c, HORIZONS + h], values[HORIZONS + h], weight, n, LEAST)
                    learn_tail(further_tails[c, UNREST], further_values[UNREST], weight, n, LEAST)
                    learn_tail(further_tails[c, DRIFT], further_values[DRIFT], weight, n, LEAST)
            if known:
                s[LAST], s[READ] = x, 1.0
            for h in range(H):
                p = P[t, question[c, h]]
                errors[c, h, BEFORE] = p if abs(p) <= LARGEST else 0.0
                errors[c, h, THERE] = 1.0 if abs(p) <= LARGEST else 0.0
