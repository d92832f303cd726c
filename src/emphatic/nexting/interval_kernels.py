"""The loop of ``Intervals``, without fast mathematics: the bits do not depend on how rows are cut into blocks.

Eight questions are followed side by side, as the lanes of a vector: what a question carries is a row of eight numbers,
``s[ROW + l]`` for lane l. A loop over the lanes in which a condition only chooses between numbers becomes vector
instructions. Where lanes look at different places of memory, or call a function of the C library, a loop of its own
copies numbers into rows, or out of them.
"""

from __future__ import annotations

import math
from itertools import count, islice
from typing import TYPE_CHECKING

import numpy as np
from numba import types
from numba.extending import register_jitable

from emphatic.engines.compiled import jit_for
from emphatic.engines.intrinsics import tail
from emphatic.questions.gvf import LARGEST, REACHED

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    Integers = NDArray[np.int64]

_f1, _b1, _i1 = (types.Array(kind, 1, "C") for kind in (types.float64, types.boolean, types.int64))
_f2, _i2 = (types.Array(kind, 2, "C") for kind in (types.float64, types.int64))

#: Questions side by side.
LANES = 8
#: Features of the variance, and products of two of them.
FEATURES, PAIRS = 5, 15
#: Bins by the size of the prediction; groupings: all rows, phases of a short and of a long cycle, sizes; and ways of
#: scaling: 2i and 2i + 1 are by the bins of grouping i, alike to both sides and each side by itself; way 0 is plain.
SIZES, GROUPINGS, WAYS = 8, 4, 8

_row = count(0, LANES)
# What a question carries, and is saved: of its signal,
SEEN, CENTRE, LAST, MEAN, SQUARES, TRACE, LOWEST, HIGHEST = islice(_row, 8)
# of the sums that its returns are computed from,
POSITION, POWER, VALUE, WEIGHT, WHOLE_VALUE, WHOLE_WEIGHT, FULL = islice(_row, 7)
# of its TD errors and their variance,
BEFORE, LEARNED, NOISE, QUICK, SLOW, AWAY, OFF, EXPECTED = islice(_row, 8)
# of its errors and the width of its intervals;
LABELS, ERROR, BIAS, LEVEL, COVERED, BELOW, ABOVE = islice(_row, 7)
# how often the least and the largest reading were reached; predictions, their mean and mean distance from it; the mean
# interval score; and the bin of the latest return in each grouping, counted from 1;
REACHED_LOWEST, REACHED_HIGHEST, PREDICTED, CENTRE_OF_PREDICTIONS, SPREAD_OF_PREDICTIONS, SCORE = islice(_row, 6)
LATEST, *_ = islice(_row, GROUPINGS)
# of its variance: the weights, the features of the row before, their trace, b, and the products of features;
WEIGHTS, *_ = islice(_row, FEATURES)
FEATURES_THEN, *_ = islice(_row, FEATURES)
TRACES, *_ = islice(_row, FEATURES)
TARGETS, *_ = islice(_row, FEATURES)
PRODUCTS, *_ = islice(_row, PAIRS)
# and of each way of scaling: the factor that makes its coverage right, its interval score as a multiple of the usual,
# and its share.
WIDTHS, *_ = islice(_row, WAYS)
LOSSES, *_ = islice(_row, WAYS)
SHARES, *_ = islice(_row, WAYS)
SAVED = SHARES + WAYS * LANES
# What a question is: γ, its horizon 1 / (1 − γ), the rows D after which a return is known, γᴰ, how many rows are waited
# for at a time, every how many there is one, and the slot of the first; every how many returns ways of scaling are
# scored on; and the returns that make a visit of all rows.
GAMMA, HORIZON, DELAY, BEYOND, COUNT, EVERY, FIRST, SPACING, PERIOD = islice(_row, 9)
# What follows from the state, and is not computed in each row: the remainder of the returns by PERIOD; a level and its
# exponential; and the half-widths that are rounded like the latest, and to which unit.
REMAINDER, EXPONENT, EXPONENTIAL, NARROW, WIDE, UNIT, IS_COARSE = islice(_row, 7)
# What there is of a row: the prediction, the reading, the standard deviation of the readings, the slot, or −1, the bin
# by size, the running scale, half of the width, the ends, and the range of the readings.
P, X, IS_IDLE, DEVIATION, SLOT, SIZE, SCALE, HALF, BOTTOM, TOP, LEAST, MOST = islice(_row, 12)
# Of the row D rows ago: what was kept of it; and of its return: whether it is known, the return, whether it was outside
# its interval, whether ways of scaling are scored on it, the step of the level, and by what widths grow and shrink.
PREDICTION, VALUE_THEN, WEIGHT_THEN, LOW, HIGH, LOWEST_THEN, HIGHEST_THEN = islice(_row, 7)
SCALE_THEN, PLACES, *_ = islice(_row, 1 + GROUPINGS)
KEPT_OF_A_ROW = 8 + GROUPINGS
IS_KNOWN, RETURN, MISS, IS_SCORED, STEP, GROWTH, SHRINKAGE, REMAINDER_THEN, IS_SOLVED = islice(_row, 9)
# The interval scores by each way of scaling.
SCORES, *_ = islice(_row, WAYS)
# What a bin of rows carries, here for the bin of each grouping: visits, returns, the sums of errors to either side (as
# multiples of the running scale), the correction of the level, and the mean error, and twice that to either side.
BIN = 8
NEXT_BIN = BIN * LANES
VISITS, RETURNS, UNDER, OVER, CORRECTION, MEAN_ERROR, MEAN_UNDER, MEAN_OVER, *_ = islice(_row, GROUPINGS * BIN)
# What questions carried before the row, for those that turn out to have none; and a matrix.
THEN, *_ = islice(_row, SAVED // LANES)
MATRIX, *_ = islice(_row, FEATURES * FEATURES)
#: How many numbers eight questions take.
ROWS = next(_row)

#: A squared TD error counts as at most so many times their mean: one of them must not outweigh all others.
_MOST = 25.0
#: The same of the features that are squared distances.
_FAR = 9.0
#: The variance expected is at least this share of its mean.
_LEAST = 0.05
#: TD errors after which the weights of the features are solved for again.
_AGAIN = 64
#: How many horizons' worth of evidence the prior, that the variance is always the same, counts for.
_KAPPA = 5.0
#: The step of the level is at most this, and at most this divided by the returns that are not known yet.
_STEP, _DELAYED = 0.02, 0.5
#: After so many delays it falls with the square root of their number, to this share of it.
_SETTLED, _LAST = 30.0, 0.1
#: The running error is that of the last quarter of all rows, or of the last so many delays.
_RECENT, _DELAYS = 4.0, 20.0
#: The level stays within so much of 0: factors of 1/55 and 55.
_LIMIT = 4.0
_NARROWEST, _WIDEST = math.exp(-_LIMIT), math.exp(_LIMIT)
#: √(π/2), the ratio of a normal distribution's standard deviation and mean absolute error.
_NORMAL = 1.2533141373155003
#: Larger numbers have no digit after the point to round.
_DIGITS = 1e15
#: Intervals end at the range of the readings where a smaller share of the misses than this lies beyond it.
_BEYOND = 0.05
#: The range is wider by this share of itself: rounding must not put a return outside.
_ROOM = 1e-6
#: A return counts as known if so much of its weight was seen.
_SEEN = 0.5
#: Horizons' worth of returns at which the level moves half as fast as it will, and at which bins count for half.
_CAUTION, _EVIDENCE = 3.0, 30.0
#: While little is known the running error counts as up to 1 + this / (1 + n) times itself, after n horizons; but the
#: larger error is at most so many standard deviations of the readings.
_DOUBT, _SPREAD = 1.8, 1.1
#: Visits after which a bin counts for half of its mean, its parent for the other half; and visits that are remembered.
_HALFWAY, _VISITS = 5.0, 60.0
#: An error counts as at most so many times the running scale; the mean of a bin is at least this share of it.
_FAR_ERROR, _LEAST_MEAN = 8.0, 0.02
#: The step of a bin's correction is at most this, it forgets this share of a step, and stays within so much of 0.
_BIN_STEP, _BIN_LEAK, _BIN_LIMIT = 0.05, 0.02, 1.0
#: How fast shares follow scores, the horizons that scores are remembered for, the share of the plain scale at first,
#: and a score counts as at most so many times the usual.
_RATE, _REMEMBERED, PLAIN, _WORST = 0.5, 60.0, 0.3, 20.0
#: Returns of a horizon that ways of scaling are scored on, about: those of neighbouring rows say much the same.
SCORED = 8.0


#: Half-widths within a power of ten, and not so near to its ends that their logarithm might be rounded to the next.
_WITHIN = 1e-9
#: Sizes of predictions at which the next bin begins: floor(1.5 asinh(1.5 size) + 4), as rounded.
_ENDS = (
    -2.4179069385646796, -1.1766902521891505, -0.47810564067402817, -9.868649107779171e-17,
    0.47810564067402767, 1.17669025218915, 2.4179069385646788,
)  # fmt: skip


@register_jitable
def follow(s: Floats, gap: bool) -> None:
    """A row: what is known of the signals, the variance expected and what is learned of it, and the sums of returns."""
    for l in range(LANES):
        q = tail(s, l)
        g, p, x = q[GAMMA], q[P], q[X]
        known, begins = abs(x) <= LARGEST, q[SEEN] == 0.0
        follows = not (begins | gap | (q[POSITION] < 0.0))
        learned = known & follows
        # The signal.
        x = x if known else q[LAST]
        lowest, highest = (x if begins else q[LOWEST]), (x if begins else q[HIGHEST])
        centre, trace = (x if begins else q[CENTRE]), (x if begins else q[TRACE])
        seen, mean, squares = q[SEEN], (x if begins else q[MEAN]), q[SQUARES]
        at_lowest, at_highest = q[REACHED_LOWEST], q[REACHED_HIGHEST]
        if known:
            seen += 1.0
            distance = x - mean
            mean += distance / seen
            squares += distance * (x - mean)
            at_lowest = 1.0 if x < lowest else at_lowest + (x == lowest)
            at_highest = 1.0 if x > highest else at_highest + (x == highest)
            lowest, highest = min(lowest, x), max(highest, x)
        trace += (x - trace) / q[HORIZON]
        q[SEEN], q[LAST] = seen, x
        q[MEAN], q[SQUARES] = mean, squares
        q[CENTRE], q[TRACE] = centre, trace
        q[LOWEST], q[HIGHEST] = lowest, highest
        q[REACHED_LOWEST], q[REACHED_HIGHEST] = at_lowest, at_highest
        q[DEVIATION] = math.sqrt(squares / seen)
        q[BELOW] = 1.0 if begins else q[BELOW]
        q[ABOVE] = 1.0 if begins else q[ABOVE]
        # The variance of the error: expected, then learned from the TD error.
        n, noise, quick = q[LEARNED], q[NOISE], q[QUICK]
        slow, c = q[SLOW], 0.0
        if learned:
            n += 1.0
            d = (1.0 - g) * x + g * p - q[BEFORE]
            noise += 2.0 / (n + 1.0) * (d * d - noise)
            c = min(d * d / noise, _MOST) if noise > 0.0 else 0.0
            quick += max(1.0 / n, 1.0 - g * g) * (c - quick)
            slow += max(1.0 / n, (1.0 - g) / 4.0) * (c - slow)
        q[LEARNED], q[NOISE] = n, noise
        q[QUICK], q[SLOW] = quick, slow
        rate, mean_away, mean_off = 2.0 / (seen + 1.0), q[AWAY], q[OFF]
        square_away, square_off = (x - p) * (x - p), (x - trace) * (x - trace)
        mean_away += rate * (square_away - mean_away)
        mean_off += rate * (square_off - mean_off)
        away = min(square_away / mean_away, _FAR) if mean_away > 0.0 else 0.0
        off = min(square_off / mean_off, _FAR) if mean_off > 0.0 else 0.0
        w = tail(q, WEIGHTS)
        sum_of_three = w[0] + w[LANES] * quick + w[2 * LANES] * slow
        v = min(max(sum_of_three + w[3 * LANES] * away + w[4 * LANES] * off, _LEAST), _MOST)
        # A step of the variance's GVF, with cumulant c and γ².
        g2, a, expected = g * g, 2.0 / (n + 1.0), q[EXPECTED]
        error = (1.0 - g2) * c + g2 * v - expected
        pair = PRODUCTS
        for i in range(FEATURES):
            feature = tail(q, i * LANES)
            f, b = feature[FEATURES_THEN], feature[TARGETS]
            z = g2 * feature[TRACES] + f
            feature[TRACES] = z if learned else 0.0
            feature[TARGETS] = b + a * (error * z + expected * f - b) if learned else b
            for j in range(i + 1):
                product = q[pair]
                q[pair] = product + a * (f * q[FEATURES_THEN + j * LANES] - product) if learned else product
                pair += LANES
        features = tail(q, FEATURES_THEN)
        features[0], features[LANES], features[2 * LANES] = 1.0, quick, slow
        features[3 * LANES], features[4 * LANES] = away, off
        q[AWAY], q[OFF] = mean_away, mean_off
        q[EXPECTED], q[BEFORE] = v, p
        q[IS_SOLVED] = 1.0 if learned & (np.floor(n / _AGAIN) * _AGAIN == n) else 0.0
        # The sums of the returns, over blocks of D rows.
        position, power = q[POSITION] + 1.0, q[POWER] * g
        value, weight = q[VALUE], q[WEIGHT]
        is_whole = follows & (position == q[DELAY])
        q[WHOLE_VALUE] = value if is_whole else q[WHOLE_VALUE]
        q[WHOLE_WEIGHT] = weight if is_whole else q[WHOLE_WEIGHT]
        full = 1.0 if is_whole else q[FULL]
        q[FULL] = full if follows else 0.0
        if is_whole | (not follows):
            position, power = 0.0, 1.0
            value, weight = 0.0, 0.0
        q[POSITION], q[POWER] = position, power
        q[VALUE] = value + (1.0 - g) * power * (x - centre) if known else value
        q[WEIGHT] = weight + (1.0 - g) * power if known else weight
        # The bin by the size of the prediction.
        predicted, spread = q[PREDICTED] + 1.0, q[SPREAD_OF_PREDICTIONS]
        middle, change = (p if predicted == 1.0 else q[CENTRE_OF_PREDICTIONS]), max(2.0 / (predicted + 1.0), 1e-4)
        spread += change * (abs(p - middle) - spread)
        middle += change * (p - middle)
        size, place = ((p - middle) / spread if spread > 0.0 else 0.0), 0.0
        for k in range(SIZES - 1):
            place += 1.0 if size >= _ENDS[k] else 0.0
        q[PREDICTED], q[CENTRE_OF_PREDICTIONS], q[SPREAD_OF_PREDICTIONS] = predicted, middle, spread
        q[SIZE] = place
        # The slot for the row, if its return is waited for.
        every = q[EVERY]
        slot = np.floor(position / every)
        q[SLOT] = q[FIRST] + slot if slot * every == position else -1.0


@register_jitable
def solve(q: Floats) -> None:
    """The weights w of a question's variance, of A w = b: A is the products, with a prior that they are 1, 0, 0, …."""
    A, b, pair = tail(q, MATRIX), tail(q, WEIGHTS), PRODUCTS
    for i in range(FEATURES):
        b[i * LANES] = q[TARGETS + i * LANES]
        for j in range(i + 1):
            A[(i * FEATURES + j) * LANES] = q[pair]
            pair += LANES
        ridge = q[pair - LANES] * _KAPPA / ((1.0 - q[GAMMA]) * q[LEARNED]) + 1e-9
        A[i * (FEATURES + 1) * LANES] += 1e-9 if i == 0 else ridge
    for i in range(FEATURES):
        for j in range(i + 1, FEATURES):
            ratio = A[(j * FEATURES + i) * LANES] / A[i * (FEATURES + 1) * LANES]
            for k in range(j, FEATURES):
                A[(k * FEATURES + j) * LANES] -= ratio * A[(k * FEATURES + i) * LANES]
            b[j * LANES] -= ratio * b[i * LANES]
    for i in range(FEATURES - 1, -1, -1):
        for k in range(i + 1, FEATURES):
            b[i * LANES] -= A[(k * FEATURES + i) * LANES] * b[k * LANES]
        b[i * LANES] /= A[i * (FEATURES + 1) * LANES]


@register_jitable
def learn_error(s: Floats, outside: float) -> None:
    """The returns of the rows D rows ago, where they are known at last, and the levels that follow them.

    The level moves carefully while the running error is largely the prior's.
    """
    for l in range(LANES):
        q = tail(s, l)
        g, p, beyond = q[GAMMA], q[P], q[BEYOND]
        every, count = q[EVERY], q[COUNT]
        lowest, highest, power = q[LOWEST], q[HIGHEST], q[POWER] * g
        position, delay, centre = q[POSITION] + 1.0, q[DELAY], q[CENTRE]
        remains = 1.0 if position == delay else beyond / power
        ahead = min(max(p, lowest), highest)  # what it stands for does not leave the range
        value = remains * q[VALUE] + beyond * (ahead - centre)
        weight = remains * q[WEIGHT] + beyond
        if position < delay:
            value += (q[WHOLE_VALUE] - q[VALUE_THEN]) / power
            weight += (q[WHOLE_WEIGHT] - q[WEIGHT_THEN]) / power
        is_known = (q[IS_KNOWN] > 0.0) & (weight >= _SEEN)
        n, error, bias = q[LABELS], q[ERROR], q[BIAS]
        G = min(max(centre + (value + beyond * bias) / weight, lowest), highest)
        below, above = q[BELOW], q[ABOVE]
        level, covered = q[LEVEL], q[COVERED]
        step = miss = 0.0
        if is_known:
            error = q[DEVIATION] if n == 0.0 else error
            # The prior, from the readings, counts for a horizon.
            a = max(_RECENT / (n + _RECENT + _RECENT / ((1.0 - g) * every)), 1.0 / (_DELAYS * count + 1.0))
            off = G - q[PREDICTION]
            error += a * (_NORMAL * abs(off) - error)
            bias += a * (off - bias)
            below += a * ((1.0 if q[LOWEST_THEN] > G else 0.0) - below)
            above += a * ((1.0 if q[HIGHEST_THEN] < G else 0.0) - above)
            miss = 1.0 if (q[LOW] > G) | (q[HIGH] < G) else 0.0
            covered += 2.0 / (n + 2.0) * (1.0 - miss - covered)
            n += 1.0
            slower = max(min(1.0, math.sqrt(_SETTLED * count / n)), _LAST)
            horizons = n * every * (1.0 - g)
            step = min(_STEP, slower * _DELAYED / count) * horizons / (horizons + _CAUTION)
            level = min(max(level + step * (miss - outside), -_LIMIT), _LIMIT)
        q[LABELS], q[ERROR], q[BIAS] = n, error, bias
        q[BELOW], q[ABOVE] = below, above
        q[LEVEL], q[COVERED], q[RETURN] = level, covered, G
        q[MISS], q[STEP] = miss, step
        is_sized, spacing = is_known & (q[SCALE_THEN] > 0.0), q[SPACING]
        q[IS_KNOWN] = 1.0 if is_sized else 0.0
        q[IS_SCORED] = 1.0 if is_sized & (np.floor(n / spacing) * spacing == n) else 0.0
        # The remainder of the returns by the period, exactly: neither sum is rounded.
        remainder, longest = q[REMAINDER], q[PERIOD] - 1.0
        q[REMAINDER_THEN] = remainder
        moved = remainder + 1.0 if remainder < longest else remainder - longest
        q[REMAINDER] = moved if is_known else remainder


@register_jitable
def learn_scales(s: Floats, outside: float, z: float) -> None:
    """Score every way of scaling on a return, and move the shares towards those with the best scores."""
    latest, growth, shrinkage = 0.0, 1.0, 1.0
    for l in range(LANES):
        q = tail(s, l)
        step = q[SPACING] * q[STEP]
        if q[IS_SCORED] > 0.0 and step != latest:  # (it is the same for many questions)
            latest, growth, shrinkage = step, math.exp(step * (1.0 - outside)), math.exp(-step * outside)
        q[GROWTH], q[SHRINKAGE] = growth, shrinkage
    for l in range(LANES):
        q = tail(s, l)
        is_scored, p = q[IS_SCORED] > 0.0, q[PREDICTION]
        G, scale = q[RETURN], q[SCALE_THEN]
        floor = min(q[LOWEST_THEN], p) if q[BELOW] < _BEYOND * outside else -math.inf
        roof = max(q[HIGHEST_THEN], p) if q[ABOVE] < _BEYOND * outside else math.inf
        for k in range(WAYS):
            way, means = tail(q, k * LANES), tail(q, (k >> 1) * NEXT_BIN)
            under = over = 1.0
            if k & 1:
                under, over = means[MEAN_UNDER], means[MEAN_OVER]
            elif k:
                under = over = means[MEAN_ERROR]
            width = way[WIDTHS]
            half = z * width * scale
            bottom, top = max(p - half * under, floor), min(p + half * over, roof)
            misses = max(bottom - G, 0.0) + max(G - top, 0.0)
            way[SCORES] = top - bottom + 2.0 / outside * misses
            moved = width * (q[GROWTH] if misses > 0.0 else q[SHRINKAGE])
            way[WIDTHS] = min(max(moved, _NARROWEST), _WIDEST) if is_scored else width
    for l in range(LANES):
        q = tail(s, l)
        is_scored, n, spacing = q[IS_SCORED] > 0.0, q[LABELS], q[SPACING]
        a = max(spacing / n, spacing / (_DELAYS * q[COUNT] + spacing))
        usual = q[SCORE]
        usual = usual + a * (q[SCORES] - usual) if is_scored else usual
        q[SCORE] = usual
        evidence = min(n * q[EVERY] * (1.0 - q[GAMMA]), _REMEMBERED)
        for k in range(WAYS):
            way = tail(q, k * LANES)
            loss = way[LOSSES]
            moved = loss + a * (min(way[SCORES] / usual, _WORST) - loss)
            way[LOSSES] = moved if is_scored & (usual > 0.0) else loss
            gain = _RATE * evidence * (q[LOSSES] - way[LOSSES])
            way[SCORES] = min(max(gain, -50.0), 50.0)
    for l in range(LANES):
        q = tail(s, l)
        if q[IS_SCORED] > 0.0:
            q[SHARES] = PLAIN
            for k in range(1, WAYS):
                q[SHARES + k * LANES] = (1.0 - PLAIN) / (WAYS - 1.0) * math.exp(q[SCORES + k * LANES])


@register_jitable
def learn_bins(s: Floats, outside: float) -> None:
    """A return's error, in each bin that its row was in; and the shares of the ways of scaling add up to 1 again."""
    for l in range(LANES):
        q = tail(s, l)
        total = 0.0
        for k in range(WAYS):
            total += q[SHARES + k * LANES]
        total = total if q[IS_SCORED] > 0.0 else 1.0
        for k in range(WAYS):
            q[SHARES + k * LANES] /= total
        error, scale = q[RETURN] - q[PREDICTION], q[SCALE_THEN]
        horizons = q[LABELS] * q[EVERY] * (1.0 - q[GAMMA])
        size = min(abs(error) * _NORMAL / scale, _FAR_ERROR)
        for grouping in range(GROUPINGS):
            of_grouping, b = tail(q, grouping * LANES), tail(q, grouping * NEXT_BIN)
            place, latest = of_grouping[PLACES], of_grouping[LATEST]
            # Returns of all rows make a visit of each horizon.
            is_visit = ((grouping == 0) & (q[REMAINDER_THEN] < 1.0)) | (latest != place + 1.0)
            of_grouping[LATEST] = place + 1.0 if (q[IS_KNOWN] > 0.0) & (place >= 0.0) else latest
            visits, returns = b[VISITS], b[RETURNS]
            under, over = b[UNDER], b[OVER]
            if is_visit:
                visits += 1.0
                if visits > _VISITS:
                    visits = _VISITS
                    returns *= 1.0 - 1.0 / _VISITS
                    under *= 1.0 - 1.0 / _VISITS
                    over *= 1.0 - 1.0 / _VISITS
            returns += 1.0
            under, over = (under + size if error < 0.0 else under), (over if error < 0.0 else over + size)
            b[VISITS], b[RETURNS] = visits, returns
            b[UNDER], b[OVER] = under, over
            evidence = min(visits, horizons)  # returns that overlap are one piece of evidence
            known = evidence / (evidence + _HALFWAY)
            # The long cycle leans on the short one; all others on all rows.
            mean, mean_under, mean_over = q[MEAN_ERROR], q[MEAN_UNDER], q[MEAN_OVER]
            if grouping == 0:
                mean = mean_under = mean_over = 1.0
            elif grouping == 2:
                short, has_short = tail(q, NEXT_BIN), q[PLACES + LANES] >= 0.0
                mean = short[MEAN_ERROR] if has_short else mean
                mean_under = short[MEAN_UNDER] if has_short else mean_under
                mean_over = short[MEAN_OVER] if has_short else mean_over
            b[MEAN_ERROR] = max(known * (under + over) / returns + (1.0 - known) * mean, _LEAST_MEAN)
            b[MEAN_UNDER] = max(known * (2.0 * under) / returns + (1.0 - known) * mean_under, _LEAST_MEAN)
            b[MEAN_OVER] = max(known * (2.0 * over) / returns + (1.0 - known) * mean_over, _LEAST_MEAN)
            if grouping == 1:
                step = min(_BIN_STEP, _DELAYED / q[COUNT]) * horizons / (horizons + _EVIDENCE)
                correction = (1.0 - _BIN_LEAK * step) * b[CORRECTION] + step * (q[MISS] - outside)
                b[CORRECTION] = min(max(correction, -_BIN_LIMIT), _BIN_LIMIT)


@register_jitable
def get_bins(s: Floats, bins: Floats) -> None:
    """Get the bin of each lane in each grouping; without a bin, that of all rows."""
    for grouping in range(GROUPINGS):
        row, places = VISITS + grouping * NEXT_BIN, PLACES + grouping * LANES
        for l in range(LANES):
            place = s[places + l]
            begin = np.int64(place if place > 0.0 else 0.0) * NEXT_BIN + l
            for i in range(0, NEXT_BIN, LANES):
                s[row + l + i] = bins[begin + i]


@register_jitable
def put_bins(s: Floats, bins: Floats) -> None:
    """Put back the bins that a return was learned in."""
    for grouping in range(GROUPINGS):
        row, places = VISITS + grouping * NEXT_BIN, PLACES + grouping * LANES
        for l in range(LANES):
            if s[IS_KNOWN + l] > 0.0 and s[places + l] >= 0.0:
                begin = np.int64(s[places + l]) * NEXT_BIN + l
                for i in range(0, NEXT_BIN, LANES):
                    bins[begin + i] = s[row + l + i]


@register_jitable
def find_unit(q: Floats) -> None:
    """To which unit ends are rounded: to three digits of half the width."""
    half = q[HALF]
    digits = 2.0 - np.floor(math.log10(half)) if half > 0.0 else 400.0
    if not -300.0 < digits < 300.0:
        q[NARROW] = q[WIDE] = q[UNIT] = 0.0
        return
    q[NARROW], q[WIDE] = 10.0 ** (2.0 - digits) * (1.0 + _WITHIN), 10.0 ** (3.0 - digits) * (1.0 - _WITHIN)
    q[UNIT], q[IS_COARSE] = 10.0 ** abs(digits), (1.0 if digits < 0.0 else 0.0)


@register_jitable
def find_widths(s: Floats, z: float) -> None:
    """The running scale, the ends, and half of the width."""
    for l in range(LANES):
        q = tail(s, l)
        p, deviation = q[P], q[DEVIATION]
        labels, h = q[LABELS], q[HORIZON]
        error = q[ERROR] if labels > 0.0 else deviation
        scale = error * math.sqrt(0.5 + 0.5 * q[EXPECTED])
        under = over = q[SHARES]
        for k in range(1, WAYS):
            means, share = tail(q, (k >> 1) * NEXT_BIN), q[SHARES + k * LANES]
            if k & 1:
                under += share * means[MEAN_UNDER]
                over += share * means[MEAN_OVER]
            else:
                under += share * means[MEAN_ERROR]
                over += share * means[MEAN_ERROR]
        horizons = labels * q[EVERY] / h
        trust, spread = horizons / (horizons + _EVIDENCE), _SPREAD * deviation
        doubt = max(min(1.0 + _DOUBT / (1.0 + q[SEEN] / h), spread / error), 1.0) if error > 0.0 else 1.0
        half = z * q[EXPONENTIAL] * scale * doubt
        under, over = half * (1.0 + trust * (under - 1.0)), half * (1.0 + trust * (over - 1.0))
        q[SCALE], q[HALF] = scale, 0.5 * (under + over)
        q[BOTTOM], q[TOP] = p - under, p + over


@register_jitable
def rounded(end: float, unit: float, is_coarse: bool) -> float:
    """The nearest multiple of a unit if that is coarse, and of one over it otherwise; with no unit as it is."""
    scaled = end / unit if is_coarse else end * unit
    whole = np.floor(scaled + 0.5)
    multiple = whole * unit if is_coarse else whole / unit
    return multiple if (unit > 0.0) & (is_coarse | (abs(scaled) < _DIGITS)) else end


@register_jitable
def find_ends(s: Floats, outside: float) -> None:
    """The ends, rounded, and within the range of the readings where returns are."""
    for l in range(LANES):
        q = tail(s, l)
        p, unit, is_coarse = q[P], q[UNIT], q[IS_COARSE] > 0.0
        bottom, top = rounded(q[BOTTOM], unit, is_coarse), rounded(q[TOP], unit, is_coarse)
        lowest, highest = q[LOWEST], q[HIGHEST]
        room = _ROOM * (highest - lowest)
        least, most = lowest - room, highest + room
        bottom = max(bottom, min(least, p)) if q[BELOW] < _BEYOND * outside else bottom
        top = min(top, max(most, p)) if q[ABOVE] < _BEYOND * outside else top
        if q[REACHED_LOWEST] >= REACHED:
            bottom = max(bottom, lowest)
            top = max(top, bottom)
        if q[REACHED_HIGHEST] >= REACHED:
            top = min(top, highest)
            bottom = min(bottom, top)
        q[BOTTOM], q[TOP] = bottom, top
        q[LEAST], q[MOST] = least, most


@jit_for((_f2, _f2, _b1, _i2, _i1, _i1, _i1, _f1, _f2, _f2, _f2, _f2, _f2), fastmath=False, allocates=False)
def intervals(
    predictions: Floats, readings: Floats, gap: NDArray[np.bool_], phase: Integers, question: Integers,
    signal: Integers, offsets: Integers, settings: Floats, state: Floats, kept: Floats, bins: Floats, low: Floats,
    high: Floats,
) -> None:  # fmt: skip
    """``low`` and ``high`` of each row and question; see ``Intervals``.

    ``question`` and ``signal`` (Q,) are the places of each lane's prediction and reading; ``settings``: 1 − coverage,
    and the width of a standard normal distribution's interval.
    """
    outside, z = settings[0], settings[1]
    for block in range(len(state)):
        s, bins_of_all, begin = state[block], bins[block], block * LANES
        count = LANES if begin + LANES <= len(question) else len(question) - begin
        for t in range(len(predictions)):
            idle = False
            for l in range(count):
                q = tail(s, l)
                p, x = predictions[t, question[begin + l]], readings[t, signal[begin + l]]
                q[P], q[X] = p, x
                is_idle = not abs(p) <= LARGEST or (q[SEEN] == 0.0 and not abs(x) <= LARGEST)
                q[IS_IDLE] = 1.0 if is_idle else 0.0
                idle = idle or is_idle
            if idle:
                for i in range(SAVED):
                    s[THEN + i] = s[i]
            follow(s, gap[t])
            known = False
            for l in range(count):
                q = tail(s, l)
                if q[IS_SOLVED] > 0.0:
                    solve(q)
                q[IS_KNOWN] = 0.0
                if q[FULL] > 0.0 and q[SLOT] >= 0.0 and q[IS_IDLE] == 0.0:
                    q[IS_KNOWN], slot, known = 1.0, np.int64(q[SLOT]), True
                    for i in range(KEPT_OF_A_ROW):
                        q[PREDICTION + i * LANES] = kept[slot, i]
            if known:
                get_bins(s, bins_of_all)
                learn_error(s, outside)
                learn_scales(s, outside, z)
                learn_bins(s, outside)
                put_bins(s, bins_of_all)
            short = offsets[1] + phase[t, 0] if 0 <= phase[t, 0] < offsets[2] - offsets[1] else -1
            long = offsets[2] + phase[t, 1] if 0 <= phase[t, 1] < offsets[3] - offsets[2] else -1
            short_bin, long_bin = (short * NEXT_BIN if short > 0 else 0), (long * NEXT_BIN if long > 0 else 0)
            for i in range(NEXT_BIN):
                s[VISITS + i] = bins_of_all[i]
                s[VISITS + NEXT_BIN + i] = bins_of_all[short_bin + i]
                s[VISITS + 2 * NEXT_BIN + i] = bins_of_all[long_bin + i]
            for l in range(count):
                q = tail(s, l)
                place = (offsets[3] + np.int64(q[SIZE])) * NEXT_BIN + l
                for i in range(MEAN_ERROR - VISITS, NEXT_BIN, LANES):
                    q[VISITS + 3 * NEXT_BIN + i] = bins_of_all[place + i]
                level = q[LEVEL] + (q[CORRECTION + NEXT_BIN] if short >= 0 else 0.0)
                if level != q[EXPONENT]:
                    q[EXPONENT], q[EXPONENTIAL] = level, math.exp(level)
            find_widths(s, z)
            for l in range(count):
                q = tail(s, l)
                if not q[NARROW] <= q[HALF] < q[WIDE]:
                    find_unit(q)
            find_ends(s, outside)
            for l in range(count):
                q, column = tail(s, l), question[begin + l]
                if q[IS_IDLE] > 0.0:
                    for i in range(0, SAVED, LANES):
                        q[i] = q[THEN + i]
                    q[POSITION] = -1.0  # what comes after does not follow
                    low[t, column] = high[t, column] = math.nan
                    continue
                low[t, column], high[t, column] = q[BOTTOM], q[TOP]
                if q[SLOT] >= 0.0:
                    k = kept[np.int64(q[SLOT])]
                    k[0], k[1], k[2] = q[P], q[VALUE], q[WEIGHT]
                    k[3], k[4] = q[BOTTOM], q[TOP]
                    k[5], k[6] = q[LEAST], q[MOST]
                    k[7], k[8] = q[SCALE], 0.0
                    k[9], k[10], k[11] = float(short), float(long), float(offsets[3]) + q[SIZE]
