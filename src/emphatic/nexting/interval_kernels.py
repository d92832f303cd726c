"""The loop of ``Intervals``, without fast mathematics: the bits do not depend on how rows are cut into blocks."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
from numba import types
from numba.extending import register_jitable

from emphatic.engines.compiled import jit_for
from emphatic.questions.gvf import LARGEST, REACHED

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    Integers = NDArray[np.int64]

_f1, _f2, _f3 = (types.Array(types.float64, ndim, "C") for ndim in (1, 2, 3))
_b1, _i1 = (types.Array(kind, 1, "C") for kind in (types.boolean, types.int64))
_i2 = types.Array(types.int64, 2, "C")

# What a question carries: of its signal,
SEEN, CENTRE, LAST, MEAN, SQUARES, TRACE, LOWEST, HIGHEST = range(8)
# of the sums that its returns are computed from,
POSITION, POWER, VALUE, WEIGHT, WHOLE_VALUE, WHOLE_WEIGHT, FULL = range(8, 15)
# of its TD errors and their variance,
BEFORE, LEARNED, NOISE, QUICK, SLOW, AWAY, OFF, EXPECTED = range(15, 23)
# of its errors and the width of its intervals.
LABELS, ERROR, BIAS, LEVEL, COVERED, BELOW, ABOVE = range(23, 30)
#: What is kept of a row until its return is known: the prediction, the sums, the ends, and the readings' range.
PREDICTION, VALUE_THEN, WEIGHT_THEN, LOW, HIGH, LOWEST_THEN, HIGHEST_THEN = range(7)
#: Features of the variance.
FEATURES = 5
# What a question carries beside: how often the least and the largest reading were reached; predictions, their mean and
# mean distance from it; the mean interval score; and, from LATEST on, the bin of the latest return in each grouping.
REACHED_LOWEST, REACHED_HIGHEST, PREDICTED, CENTRE_OF_PREDICTIONS, SPREAD_OF_PREDICTIONS, SCORE, LATEST = range(7)
# What a bin of rows carries: visits, returns, the sums of errors to either side (as multiples of the running scale),
# the correction of the level, and the mean error, and twice that to either side.
VISITS, RETURNS, UNDER, OVER, CORRECTION, MEAN_ERROR, MEAN_UNDER, MEAN_OVER = range(8)
# What a way of scaling carries: the factor that makes its coverage right, its interval score as a multiple of the
# usual, and its share.
OWN_WIDTH, LOSS, SHARE = range(3)
#: What is kept of a row for its bins: the running scale; then the bin of each grouping.
SCALE_THEN, BINS_THEN = 0, 1
#: Bins by the size of the prediction; and groupings: all rows, phases of a short and of a long cycle, sizes.
SIZES, GROUPINGS = 8, 4

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
_RATE, _REMEMBERED, _PLAIN, _WORST = 0.5, 60.0, 0.3, 20.0
#: Returns of a horizon that ways of scaling are scored on, about: those of neighbouring rows say much the same.
_SCORED = 8.0


@register_jitable
def solve(A: Floats, b: Floats) -> Floats:
    """A w = b for a small symmetric positive definite A, of which the lower half is given; both are overwritten."""
    for i in range(FEATURES):
        for j in range(i + 1, FEATURES):
            ratio = A[j, i] / A[i, i]
            for k in range(j, FEATURES):
                A[k, j] -= ratio * A[k, i]
            b[j] -= ratio * b[i]
    for i in range(FEATURES - 1, -1, -1):
        for k in range(i + 1, FEATURES):
            b[i] -= A[k, i] * b[k]
        b[i] /= A[i, i]
    return b


@register_jitable
def rounded(low: float, high: float, half: float) -> tuple[float, float]:
    """Both ends to three digits of half the width."""
    digits = 2.0 - math.floor(math.log10(half)) if half > 0.0 else 400.0
    if not -300.0 < digits < 300.0:
        return low, high
    if digits < 0.0:
        unit = 10.0**-digits
        return math.floor(low / unit + 0.5) * unit, math.floor(high / unit + 0.5) * unit
    scale = 10.0**digits
    if abs(low) * scale < _DIGITS:
        low = math.floor(low * scale + 0.5) / scale
    if abs(high) * scale < _DIGITS:
        high = math.floor(high * scale + 0.5) / scale
    return low, high


@register_jitable
def expect(s: Floats, w: Floats, f: Floats, x: float, p: float) -> float:
    """The features f of a row; the variance expected there, as a multiple of its mean."""
    a = 2.0 / (s[SEEN] + 1.0)
    away, off = (x - p) * (x - p), (x - s[TRACE]) * (x - s[TRACE])
    s[AWAY] += a * (away - s[AWAY])
    s[OFF] += a * (off - s[OFF])
    f[0], f[1], f[2] = 1.0, s[QUICK], s[SLOW]
    f[3] = min(away / s[AWAY], _FAR) if s[AWAY] > 0.0 else 0.0
    f[4] = min(off / s[OFF], _FAR) if s[OFF] > 0.0 else 0.0
    v = 0.0
    for i in range(FEATURES):
        v += w[i] * f[i]
    return min(max(v, _LEAST), _MOST)


@register_jitable
def learn_variance(s: Floats, vectors: Floats, products: Floats, c: float, v: float, g: float) -> None:
    """A step of the variance's GVF, with cumulant c and γ²; v is the answer where the step leads to."""
    w, f, z, b = vectors[0], vectors[1], vectors[2], vectors[3]
    g2, n = g * g, s[LEARNED]
    a = 2.0 / (n + 1.0)
    error = (1.0 - g2) * c + g2 * v - s[EXPECTED]
    for i in range(FEATURES):
        z[i] = g2 * z[i] + f[i]
        b[i] += a * (error * z[i] + s[EXPECTED] * f[i] - b[i])
        for j in range(i + 1):
            products[i, j] += a * (f[i] * f[j] - products[i, j])
    if int(n) % _AGAIN == 0:
        A = products.copy()
        for i in range(FEATURES):
            A[i, i] += 1e-9 if i == 0 else A[i, i] * _KAPPA / ((1.0 - g) * n) + 1e-9
        solution = solve(A, b.copy())
        for i in range(FEATURES):
            w[i] = solution[i]


@register_jitable
def level_step(s: Floats, g: float, count: float, every: float) -> float:
    """How far a return moves the level; carefully while the running error is largely the prior's."""
    n = s[LABELS]
    slower = max(min(1.0, math.sqrt(_SETTLED * count / n)), _LAST)
    horizons = n * every * (1.0 - g)
    step: float = min(_STEP, slower * _DELAYED / count) * horizons / (horizons + _CAUTION)
    return step


@register_jitable
def learn_error(
    s: Floats, G: float, row: Floats, g: float, outside: float, count: float, every: float
) -> tuple[float, float]:  # fmt: skip
    """The return G is known at last, of a row of which this was kept.

    Returns 1 if it was outside its interval, else 0, and the step of the level.
    """
    n = s[LABELS]
    s[LABELS] += 1.0
    # The prior, from the readings, counts for a horizon.
    a = max(_RECENT / (n + _RECENT + _RECENT / ((1.0 - g) * every)), 1.0 / (_DELAYS * count + 1.0))
    s[ERROR] += a * (_NORMAL * abs(G - row[PREDICTION]) - s[ERROR])
    s[BIAS] += a * (G - row[PREDICTION] - s[BIAS])
    s[BELOW] += a * ((1.0 if row[LOWEST_THEN] > G else 0.0) - s[BELOW])
    s[ABOVE] += a * ((1.0 if row[HIGHEST_THEN] < G else 0.0) - s[ABOVE])
    miss = 1.0 if row[LOW] > G or row[HIGH] < G else 0.0
    step = level_step(s, g, count, every)
    level = s[LEVEL] + step * (miss - outside)
    s[LEVEL] = min(max(level, -_LIMIT), _LIMIT)
    s[COVERED] += 2.0 / (n + 2.0) * (1.0 - miss - s[COVERED])
    return miss, step


@register_jitable
def factor(way: int, bins: Floats, places: Floats, side: int) -> float:
    """How many times the running scale a half-width is to one side, ``MEAN_UNDER`` or ``MEAN_OVER``.

    Ways 2i and 2i + 1 are by the bins of grouping i, alike to both sides and each side by itself; way 0 is plain.
    """
    if way == 0:
        return 1.0
    place = int(places[way // 2])
    mean: float = bins[place if place >= 0 else 0, MEAN_ERROR if way % 2 == 0 else side]  # without a bin: all rows
    return mean


@register_jitable
def learn_scales(
    s: Floats, more: Floats, scales: Floats, bins: Floats, row: Floats, marks: Floats, G: float, g: float,
    level: float, outside: float, z: float, count: float, every: float,
) -> None:  # fmt: skip
    """Score every way of scaling on a return, and move the shares towards those with the best scores.

    ``level`` is the step of the level.
    """
    n, p, K, places = s[LABELS], row[PREDICTION], len(scales), marks[BINS_THEN:]
    apart = max(math.floor(1.0 / ((1.0 - g) * every * _SCORED)), 1.0)
    if apart > 1.0 and n % apart != 0.0:
        return
    step, a = apart * level, max(apart / n, apart / (_DELAYS * count + apart))
    wider, narrower = math.exp(step * (1.0 - outside)), math.exp(-step * outside)
    for k in range(K):
        half = z * scales[k, OWN_WIDTH] * marks[SCALE_THEN]
        bottom = p - half * factor(k, bins, places, MEAN_UNDER)
        top = p + half * factor(k, bins, places, MEAN_OVER)
        if s[BELOW] < _BEYOND * outside:
            bottom = max(bottom, min(row[LOWEST_THEN], p))
        if s[ABOVE] < _BEYOND * outside:
            top = min(top, max(row[HIGHEST_THEN], p))
        beyond = max(bottom - G, 0.0) + max(G - top, 0.0)
        score = top - bottom + 2.0 / outside * beyond
        width = scales[k, OWN_WIDTH] * (wider if beyond > 0.0 else narrower)
        scales[k, OWN_WIDTH] = min(max(width, _NARROWEST), _WIDEST)
        if k == 0:
            more[SCORE] += a * (score - more[SCORE])
        if more[SCORE] > 0.0:
            scales[k, LOSS] += a * (min(score / more[SCORE], _WORST) - scales[k, LOSS])
    evidence, total = min(n * every * (1.0 - g), _REMEMBERED), 0.0
    for k in range(K):
        prior = _PLAIN if k == 0 else (1.0 - _PLAIN) / (K - 1.0)
        gain = _RATE * evidence * (scales[0, LOSS] - scales[k, LOSS])
        scales[k, SHARE] = prior * math.exp(min(max(gain, -50.0), 50.0))
        total += scales[k, SHARE]
    for k in range(K):
        scales[k, SHARE] /= total


@register_jitable
def learn_bins(
    s: Floats, more: Floats, bins: Floats, marks: Floats, error: float, miss: float, g: float, outside: float,
    count: float, every: float,
) -> None:  # fmt: skip
    """A return's error, in each bin that its row was in."""
    horizons = s[LABELS] * every * (1.0 - g)
    size = min(abs(error) * _NORMAL / marks[SCALE_THEN], _FAR_ERROR)
    for grouping in range(len(marks) - BINS_THEN):
        place = int(marks[BINS_THEN + grouping])
        if place < 0:
            continue
        b = bins[place]
        # Returns of all rows make a visit of each horizon.
        again = grouping == 0 and (s[LABELS] - 1.0) % max(1.0 / (every * (1.0 - g)), 1.0) < 1.0
        if again or more[LATEST + grouping] != place + 1.0:
            more[LATEST + grouping] = place + 1.0
            b[VISITS] += 1.0
            if b[VISITS] > _VISITS:
                b[VISITS] = _VISITS
                for k in (RETURNS, UNDER, OVER):
                    b[k] *= 1.0 - 1.0 / _VISITS
        b[RETURNS] += 1.0
        b[UNDER if error < 0.0 else OVER] += size
        visits = min(b[VISITS], horizons)  # returns that overlap are one piece of evidence
        known = visits / (visits + _HALFWAY)
        short = int(marks[BINS_THEN + 1])
        for k in range(MEAN_ERROR, MEAN_OVER + 1):
            parent = 1.0
            if grouping > 0:  # the long cycle leans on the short one; all others on all rows
                parent = bins[short if grouping == 2 and short >= 0 else 0, k]
            total = b[UNDER] + b[OVER] if k == MEAN_ERROR else 2.0 * b[UNDER if k == MEAN_UNDER else OVER]
            b[k] = max(known * total / b[RETURNS] + (1.0 - known) * parent, _LEAST_MEAN)
        if grouping == 1:
            step = min(_BIN_STEP, _DELAYED / count) * horizons / (horizons + _EVIDENCE)
            correction = (1.0 - _BIN_LEAK * step) * b[CORRECTION] + step * (miss - outside)
            b[CORRECTION] = min(max(correction, -_BIN_LIMIT), _BIN_LIMIT)


@register_jitable
def find_bins(more: Floats, p: float, phase: Integers, offsets: Integers, places: Floats) -> None:
    """The bin of a row in each grouping: all rows, the phases of its cycles, the size of the prediction."""
    more[PREDICTED] += 1.0
    if more[PREDICTED] == 1.0:
        more[CENTRE_OF_PREDICTIONS] = p
    a = max(2.0 / (more[PREDICTED] + 1.0), 1e-4)
    off = p - more[CENTRE_OF_PREDICTIONS]
    more[SPREAD_OF_PREDICTIONS] += a * (abs(off) - more[SPREAD_OF_PREDICTIONS])
    more[CENTRE_OF_PREDICTIONS] += a * off
    off = p - more[CENTRE_OF_PREDICTIONS]
    size = 0.0
    if more[SPREAD_OF_PREDICTIONS] > 0.0:
        size = min(max(off / more[SPREAD_OF_PREDICTIONS], -1e3), 1e3)
    places[0] = 0.0
    for k in range(len(phase)):
        inside = 0 <= phase[k] < offsets[k + 2] - offsets[k + 1]
        places[k + 1] = float(offsets[k + 1] + phase[k]) if inside else -1.0
    step = math.floor(1.5 * math.asinh(1.5 * size) + 0.5 * SIZES)
    places[len(phase) + 1] = offsets[len(phase) + 1] + min(max(step, 0.0), SIZES - 1.0)


_TYPES = (
    *(_f2, _f2, _b1, _i2),
    *(_i1, _f1, _f1, _i1, _i1, _i1, _i1),
    *(_f2, _f2, _f3, _f3, _f2, _f3, _f3, _f2),
    *(_f2, _f2),
)


@jit_for(_TYPES, fastmath=False)
def intervals(
    P: Floats, X: Floats, gap: NDArray[np.bool_], phase: Integers, signal: Integers, gamma: Floats, settings: Floats,
    first: Integers, count: Integers, every: Integers, offsets: Integers, kept: Floats, scalars: Floats,
    vectors: Floats, products: Floats, further: Floats, scales: Floats, bins: Floats, marks: Floats, low: Floats,
    high: Floats,
) -> None:  # fmt: skip
    """``low`` and ``high`` of each row and question; see ``Intervals``. ``settings``: 1 − coverage, and the width of a
    standard normal distribution's interval."""
    for q in range(P.shape[1]):
        g, s, f, D = gamma[q], scalars[q], vectors[q, 4], count[q] * every[q]
        h, beyond, more, each = 1.0 / (1.0 - g), g**D, further[q], float(every[q])
        places = np.empty(len(offsets))
        for t in range(P.shape[0]):
            p, x = P[t, q], X[t, signal[q]]
            known = abs(x) <= LARGEST
            begins = s[SEEN] == 0.0
            if (begins and not known) or not abs(p) <= LARGEST:
                low[t, q] = high[t, q] = math.nan
                s[POSITION] = -1.0  # what comes after does not follow
                continue
            if begins:
                s[CENTRE] = s[MEAN] = s[TRACE] = s[LOWEST] = s[HIGHEST] = x
                s[BELOW] = s[ABOVE] = 1.0
            if known:
                s[SEEN] += 1.0
                s[LAST], off = x, x - s[MEAN]
                s[MEAN] += off / s[SEEN]
                s[SQUARES] += off * (x - s[MEAN])
                more[REACHED_LOWEST] = 1.0 if x < s[LOWEST] else more[REACHED_LOWEST] + (x == s[LOWEST])
                more[REACHED_HIGHEST] = 1.0 if x > s[HIGHEST] else more[REACHED_HIGHEST] + (x == s[HIGHEST])
                s[LOWEST], s[HIGHEST] = min(s[LOWEST], x), max(s[HIGHEST], x)
            else:
                x = s[LAST]
            s[TRACE] += (x - s[TRACE]) / h
            follows = not (begins or gap[t] or s[POSITION] < 0.0)
            # The variance of the error: expected, then learned from the TD error.
            learned = known and follows
            if learned:
                d = (1.0 - g) * x + g * p - s[BEFORE]
                s[LEARNED] += 1.0
                n = s[LEARNED]
                s[NOISE] += 2.0 / (n + 1.0) * (d * d - s[NOISE])
                c = min(d * d / s[NOISE], _MOST) if s[NOISE] > 0.0 else 0.0
                s[QUICK] += max(1.0 / n, 1.0 - g * g) * (c - s[QUICK])
                s[SLOW] += max(1.0 / n, (1.0 - g) / 4.0) * (c - s[SLOW])
            v = expect(s, vectors[q, 0], f, x, p)
            if learned:
                learn_variance(s, vectors[q], products[q], c, v, g)
            for i in range(FEATURES):
                vectors[q, 1, i] = f[i]
                if not learned:
                    vectors[q, 2, i] = 0.0
            s[EXPECTED], s[BEFORE] = v, p
            # The sums of the returns, over blocks of D rows.
            if not follows:
                s[POSITION] = s[FULL] = s[VALUE] = s[WEIGHT] = 0.0
                s[POWER] = 1.0
            else:
                s[POSITION] += 1.0
                s[POWER] *= g
                if s[POSITION] == D:
                    s[WHOLE_VALUE], s[WHOLE_WEIGHT], s[FULL], s[POWER] = s[VALUE], s[WEIGHT], 1.0, 1.0
                    s[POSITION] = s[VALUE] = s[WEIGHT] = 0.0
            if known:
                s[VALUE] += (1.0 - g) * s[POWER] * (x - s[CENTRE])
                s[WEIGHT] += (1.0 - g) * s[POWER]
            slot = -1
            if every[q] == 1 or int(s[POSITION]) % every[q] == 0:  # (a remainder of floats takes longer)
                slot = first[q] + int(s[POSITION]) // every[q]
            if slot >= 0 and s[FULL] > 0.0:  # the return of the row D rows ago is known
                one = kept[slot]
                rest = 1.0 if s[POSITION] + 1.0 == D else beyond / (s[POWER] * g)
                ahead = min(max(p, s[LOWEST]), s[HIGHEST])  # what it stands for does not leave the range
                value = rest * s[VALUE] + beyond * (ahead - s[CENTRE])
                weight = rest * s[WEIGHT] + beyond
                if s[POSITION] + 1.0 < D:
                    value += (s[WHOLE_VALUE] - one[VALUE_THEN]) / (s[POWER] * g)
                    weight += (s[WHOLE_WEIGHT] - one[WEIGHT_THEN]) / (s[POWER] * g)
                if weight >= _SEEN:
                    if s[LABELS] == 0.0:
                        s[ERROR] = math.sqrt(s[SQUARES] / s[SEEN])
                    G = s[CENTRE] + (value + beyond * s[BIAS]) / weight
                    G = min(max(G, s[LOWEST]), s[HIGHEST])
                    miss, level = learn_error(s, G, one, g, settings[0], float(count[q]), each)
                    if marks[slot, SCALE_THEN] > 0.0:  # a model of an earlier version kept none
                        learn_scales(
                            s, more, scales[q], bins[q], one, marks[slot], G, g, level, settings[0],
                            settings[1], float(count[q]), each,
                        )  # fmt: skip
                        off = G - one[PREDICTION]
                        learn_bins(s, more, bins[q], marks[slot], off, miss, g, settings[0], float(count[q]), each)
            find_bins(more, p, phase[t], offsets, places)
            error = s[ERROR] if s[LABELS] > 0.0 else math.sqrt(s[SQUARES] / s[SEEN])
            scale = error * math.sqrt(0.5 + 0.5 * v)
            horizons = s[LABELS] * each / h
            trust, under, over = horizons / (horizons + _EVIDENCE), 0.0, 0.0
            for k in range(scales.shape[1]):
                under += scales[q, k, SHARE] * factor(k, bins[q], places, MEAN_UNDER)
                over += scales[q, k, SHARE] * factor(k, bins[q], places, MEAN_OVER)
            level = s[LEVEL]
            if places[1] >= 0.0:
                level += bins[q, int(places[1]), CORRECTION]
            spread = _SPREAD * math.sqrt(s[SQUARES] / s[SEEN])
            doubt = max(min(1.0 + _DOUBT / (1.0 + s[SEEN] / h), spread / error), 1.0) if error > 0.0 else 1.0
            half = settings[1] * math.exp(level) * scale * doubt
            under, over = half * (1.0 + trust * (under - 1.0)), half * (1.0 + trust * (over - 1.0))
            half = 0.5 * (under + over)
            bottom, top = rounded(p - under, p + over, half)
            room = _ROOM * (s[HIGHEST] - s[LOWEST])
            lowest, highest = s[LOWEST] - room, s[HIGHEST] + room
            if s[BELOW] < _BEYOND * settings[0]:
                bottom = max(bottom, min(lowest, p))
            if s[ABOVE] < _BEYOND * settings[0]:
                top = min(top, max(highest, p))
            if more[REACHED_LOWEST] >= REACHED:
                bottom = max(bottom, s[LOWEST])
                top = max(top, bottom)
            if more[REACHED_HIGHEST] >= REACHED:
                top = min(top, s[HIGHEST])
                bottom = min(bottom, top)
            low[t, q], high[t, q] = bottom, top
            if slot >= 0:
                kept[slot, PREDICTION], kept[slot, VALUE_THEN], kept[slot, WEIGHT_THEN] = p, s[VALUE], s[WEIGHT]
                kept[slot, LOW], kept[slot, HIGH] = bottom, top
                kept[slot, LOWEST_THEN], kept[slot, HIGHEST_THEN] = lowest, highest
                marks[slot, SCALE_THEN] = scale
                for i in range(len(places)):
                    marks[slot, BINS_THEN + i] = places[i]
