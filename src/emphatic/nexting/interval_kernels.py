"""The loop of ``Intervals``, without fast mathematics: the bits do not depend on how rows are cut into blocks."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
from numba import types
from numba.extending import register_jitable

from emphatic.engines.compiled import jit_for
from emphatic.questions.gvf import LARGEST

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    Integers = NDArray[np.int64]

_f1, _f2, _f3 = (types.Array(types.float64, ndim, "C") for ndim in (1, 2, 3))
_b1, _i1 = (types.Array(kind, 1, "C") for kind in (types.boolean, types.int64))

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

#: A squared TD error counts as at most so many times their mean: one of them must not outweigh all others.
_MOST = 25.0
#: The same of the features that are squared distances.
_FAR = 9.0
#: The variance expected is at least this share of its mean.
_LEAST = 0.05
#: TD errors after which the weights of the features are solved for again.
_AGAIN = 64.0
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
def rounded(x: float, half: float) -> float:
    """x to three digits of half the width."""
    digits = 2.0 - math.floor(math.log10(half)) if half > 0.0 else 400.0
    if not -300.0 < digits < 300.0:
        return x
    if digits < 0.0:
        unit: float = 10.0**-digits
        return math.floor(x / unit + 0.5) * unit
    scale: float = 10.0**digits
    return math.floor(x * scale + 0.5) / scale if abs(x) * scale < _DIGITS else x


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
    if n % _AGAIN == 0.0:
        A = products.copy()
        for i in range(FEATURES):
            A[i, i] += 1e-9 if i == 0 else A[i, i] * _KAPPA / ((1.0 - g) * n) + 1e-9
        w[:] = solve(A, b.copy())


@register_jitable
def learn_error(s: Floats, G: float, row: Floats, g: float, outside: float, count: float, every: float) -> None:
    """The return G is known at last, of a row of which this was kept."""
    n = s[LABELS]
    s[LABELS] += 1.0
    # The prior, from the readings, counts for a quarter of a horizon.
    a = max(_RECENT / (n + _RECENT + 1.0 / ((1.0 - g) * every)), 1.0 / (_DELAYS * count + 1.0))
    s[ERROR] += a * (_NORMAL * abs(G - row[PREDICTION]) - s[ERROR])
    s[BIAS] += a * (G - row[PREDICTION] - s[BIAS])
    s[BELOW] += a * ((1.0 if row[LOWEST_THEN] > G else 0.0) - s[BELOW])
    s[ABOVE] += a * ((1.0 if row[HIGHEST_THEN] < G else 0.0) - s[ABOVE])
    miss = 1.0 if row[LOW] > G or row[HIGH] < G else 0.0
    slower = max(min(1.0, math.sqrt(_SETTLED * count / (n + 1.0))), _LAST)
    level = s[LEVEL] + min(_STEP, slower * _DELAYED / count) * (miss - outside)
    s[LEVEL] = min(max(level, -_LIMIT), _LIMIT)
    s[COVERED] += 2.0 / (n + 2.0) * (1.0 - miss - s[COVERED])


@jit_for((_f2, _f2, _b1, _i1, _f1, _f1, _i1, _i1, _i1, _f2, _f2, _f3, _f3, _f2, _f2), fastmath=False)
def intervals(
    P: Floats, X: Floats, gap: NDArray[np.bool_], signal: Integers, gamma: Floats, settings: Floats, first: Integers,
    count: Integers, every: Integers, kept: Floats, scalars: Floats, vectors: Floats, products: Floats, low: Floats,
    high: Floats,
) -> None:  # fmt: skip
    """``low`` and ``high`` of each row and question; see ``Intervals``. ``settings``: 1 − coverage, and the width of a
    standard normal distribution's interval."""
    for q in range(P.shape[1]):
        g, s, f, D = gamma[q], scalars[q], vectors[q, 4], count[q] * every[q]
        h, beyond = 1.0 / (1.0 - g), g**D
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
            else:
                vectors[q, 2, :] = 0.0
            vectors[q, 1, :] = f
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
            if s[POSITION] % every[q] == 0.0:
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
                    learn_error(s, G, one, g, settings[0], float(count[q]), float(every[q]))
            error = s[ERROR] if s[LABELS] > 0.0 else math.sqrt(s[SQUARES] / s[SEEN])
            half = settings[1] * math.exp(s[LEVEL]) * error * math.sqrt(0.5 + 0.5 * v)
            bottom, top = rounded(p - half, half), rounded(p + half, half)
            room = _ROOM * (s[HIGHEST] - s[LOWEST])
            lowest, highest = s[LOWEST] - room, s[HIGHEST] + room
            if s[BELOW] < _BEYOND * settings[0]:
                bottom = max(bottom, min(lowest, p))
            if s[ABOVE] < _BEYOND * settings[0]:
                top = min(top, max(highest, p))
            low[t, q], high[t, q] = bottom, top
            if slot >= 0:
                kept[slot, PREDICTION], kept[slot, VALUE_THEN], kept[slot, WEIGHT_THEN] = p, s[VALUE], s[WEIGHT]
                kept[slot, LOW], kept[slot, HIGH] = bottom, top
                kept[slot, LOWEST_THEN], kept[slot, HIGHEST_THEN] = lowest, highest
