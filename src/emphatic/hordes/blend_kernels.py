"""The loop of ``blend``.  Compiled without fast mathematics: the bits do not depend on how rows are cut into blocks."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
from numba import types
from numba.extending import register_jitable

from emphatic.engines.compiled import jit_for
from emphatic.questions.gvf import REACHED

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

_f1, _f2, _f3 = (types.Array(types.float64, ndim, "C") for ndim in (1, 2, 3))
_b1 = types.Array(types.boolean, 1, "C")

_b3 = types.Array(types.boolean, 3, "C")

# What a question carries; NOISE and ABOVE in ``blend`` only, those from FLOOR on in ``combine`` only.
SEEN, MEAN, TRACE, LOWEST, HIGHEST, LAST, LEARNED, NOISE, BEFORE, ABOVE = range(10)
FLOOR, ROOF, TRACE_LOWEST, TRACE_HIGHEST, OPEN_WEIGHT = range(10, 15)
# What each answer of a question carries in ``combine``: see ``add_errors`` and ``doubt``.
OPEN_ERROR, ERROR, RECENT, USUAL, FARTHEST, HIGHEST_RECENT, REPEATS, LONGEST, AGE, TRUST, PREVIOUS = range(11)
# What each of the three mixtures carries.
SHARE, SQUARE, OPEN_OWN, OWN = range(4)
#: What is beyond is no number to count with: a square would not be finite.
LARGEST = 1e100

#: The largest power of errors in the weights, and the power for each horizon that was learned from.
STEEPEST, STEEPER = 8.0, 1.0
#: The horizons' worth of evidence that the convex weights, the free weights and the prior of these two count for.
CONVEX_PRIOR, FREE_PRIOR, MIXTURE_PRIOR = 60.0, 20.0, 200.0
#: Answers count as one where the mean square of their difference is below this share of the error of the better one.
ALIKE = 0.003
#: e to the power of less than −FAR_APART is 0 in float64.
FAR_APART = 750.0
#: An answer that is no further from the reading than this share of the readings' range may repeat itself.
EQUAL = 1e-6
#: How far beyond the range of the trace answers may lie, in its width.
ROOM = 0.5
#: What an answer may deviate in one row and recently, squared and in terms of its usual deviation. What it deviates
#: more counts the less the further it is.
FAR, FAR_RECENTLY = 9.0, 6.0
#: How fast the largest deviation so far grows, once exceeded.
GROWTH = 4.0
#: The rows after which an answer's usual deviation is known, and the fewest rows of a recent one.
WARM, FEWEST = 32.0, 4.0
#: The largest and the least weight of an answer in what others are compared with.
WEIGHTIEST, LIGHTEST = 0.1, 0.02
#: The safe answers: reading, trace and mean.
SAFE = 3


@register_jitable
def solve(A: Floats, size: int, sides: Floats) -> None:
    """A w = b for each row b of ``sides``, in place: the first ``size`` numbers, 0 where that fails.

    A is small, symmetric and positive definite. Cholesky's factor of it takes its place.
    """
    sound = True
    for i in range(size):
        for j in range(i + 1):
            s = A[i, j]
            for k in range(j):
                s -= A[i, k] * A[j, k]
            if i != j:
                A[i, j] = s / A[j, j]
            elif s > 0.0:
                A[i, i] = math.sqrt(s)
            else:
                sound = False
                break
        if not sound:
            break
    for w in sides:
        finite = sound
        if sound:
            for i in range(size):
                for k in range(i):
                    w[i] -= A[i, k] * w[k]
                w[i] /= A[i, i]
            for i in range(size - 1, -1, -1):
                for k in range(i + 1, size):
                    w[i] -= A[k, i] * w[k]
                w[i] /= A[i, i]
                finite = finite and math.isfinite(w[i])
        if not finite:
            for i in range(size):
                w[i] = 0.0


@register_jitable
def total_of(w: Floats, size: int) -> float:
    """The sum of the first ``size`` numbers, in their order."""
    total = 0.0
    for i in range(size):
        total += w[i]
    return total


@register_jitable
def within(v: float, low: float, high: float, mean: float) -> float:
    """v, or the nearer end; the mean for NaN."""
    return low if v < low else high if v > high else v if v == v else mean


@register_jitable
def add_reading(s: Floats, x: float, known: bool, h: float) -> tuple[float, float, float]:
    """Add a reading to a question's mean, trace and range; returns it, or the last one, and the bounds of answers."""
    if not known:
        x = s[LAST]
    if s[SEEN] == 0.0:
        s[TRACE] = s[LOWEST] = s[HIGHEST] = x
    s[LAST] = x
    if known:
        s[SEEN] += 1.0
        s[MEAN] += (x - s[MEAN]) / s[SEEN]
    s[TRACE] += (x - s[TRACE]) / h
    s[LOWEST], s[HIGHEST] = min(s[LOWEST], x), max(s[HIGHEST], x)
    room = 0.5 * (s[HIGHEST] - s[LOWEST])
    return x, s[LOWEST] - room, s[HIGHEST] + room


@register_jitable
def td_error(s: Floats, x: float, p: float, g: float) -> tuple[float, float]:
    """d of the step to a row with the reading x and the prediction p, and the weight of that step in the averages."""
    d = (1.0 - g) * x + g * p - s[BEFORE]
    s[LEARNED] += 1.0
    a = 2.0 / (s[LEARNED] + 1.0)
    s[NOISE] += a * (d * d - s[NOISE])
    return d, a


@register_jitable
def add_to_range(s: Floats, x: float, known: bool, h: float) -> tuple[float, float, float]:
    """As ``add_reading``, with bounds from the range of the trace: a return is a mean of readings, as the trace is."""
    if not known:
        x = s[LAST]
    if s[SEEN] == 0.0:
        s[TRACE] = s[LOWEST] = s[HIGHEST] = s[TRACE_LOWEST] = s[TRACE_HIGHEST] = x
    s[LAST] = x
    if known:
        s[SEEN] += 1.0
        s[MEAN] += (x - s[MEAN]) / s[SEEN]
        if x <= s[LOWEST]:
            s[FLOOR] = s[FLOOR] + 1.0 if x == s[LOWEST] else 1.0
        if x >= s[HIGHEST]:
            s[ROOF] = s[ROOF] + 1.0 if x == s[HIGHEST] else 1.0
        s[LOWEST], s[HIGHEST] = min(s[LOWEST], x), max(s[HIGHEST], x)
    s[TRACE] += (x - s[TRACE]) / h
    trace = s[TRACE]
    s[TRACE_LOWEST], s[TRACE_HIGHEST] = min(s[TRACE_LOWEST], trace), max(s[TRACE_HIGHEST], trace)
    room = ROOM * (s[TRACE_HIGHEST] - s[TRACE_LOWEST])
    low, high = min(s[TRACE_LOWEST] - room, x), max(s[TRACE_HIGHEST] + room, x)
    if s[FLOOR] >= REACHED:
        low = max(low, s[LOWEST])
    if s[ROOF] >= REACHED:
        high = min(high, s[HIGHEST])
    return x, low, high


@register_jitable
def renew(i: int, a: Floats, W: Floats, R: Floats) -> None:
    """Answer i is another one from here on: take over what is known of the second best of the others.

    Its own weight goes to that one. The best may not stay so: its few errors would let the new answer outweigh all
    others for long.
    """
    N = len(R)
    best = second = -1
    for j in range(N):
        if j == i:
            continue
        if best < 0 or R[j, j] < R[best, best]:
            best, second = j, best
        elif second < 0 or R[j, j] < R[second, second]:
            second = j
    for j in range(N):
        R[max(i, j), min(i, j)] = R[max(second, j), min(second, j)]
    R[i, i] = R[second, second]
    for k in range(len(a)):  # OPEN_ERROR and ERROR are those of the second best
        a[k, i] = a[k, second] if k <= ERROR else 1.0 if k == TRUST else 0.0
    for k in range(len(W)):
        W[k, second] += W[k, i]
        W[k, i] = 0.0


@register_jitable
def pull_doubted(v: Floats, trust: Floats, weights: Floats, used: Floats) -> None:
    """Pull the answers v that are not trusted towards the others; the result is in ``used``.

    These stand in as their errors weigh them: an answer that was much better than all others may have left them weights
    near 0.
    """
    total, value = 0.0, 0.0
    for i in range(len(v)):
        if trust[i] == 1.0:
            total += weights[i] + 1e-250
            value += (weights[i] + 1e-250) * v[i]
    for i in range(len(v)):
        if trust[i] < 1.0:
            used[i] = value / total + trust[i] * (v[i] - value / total)


@register_jitable
def doubt(
    v: Floats, raw: Floats, a: Floats, weights: Floats, x: float, equal: float, known: bool, h: float, error: float,
    used: Floats,
) -> None:  # fmt: skip
    """The answers v as they are used: one that is suddenly far from all others is pulled towards those.

    An answer's deviation from the mean of the others is compared with what is usual for it, in this row and on average
    over half a horizon. What is within the error of the prediction does not matter. An answer that repeats itself
    exactly, for longer than twice what it did before, is stuck; rows without a reading do not count, nor those where it
    is within ``equal`` of the reading. One that is no number is left out at once.
    """
    N = len(v)
    total, value, doubted = 0.0, 0.0, False
    for i in range(N):
        weight = min(weights[i], WEIGHTIEST) + LIGHTEST
        total += weight
        value += weight * v[i]
        used[i] = v[i]
        doubted = doubted or a[TRUST, i] < 1.0
    if doubted:  # in the row before: without stand-ins the mean of the others would jump, and all would seem far
        pull_doubted(v, a[TRUST], weights, used)
        value, doubted = 0.0, False
        for i in range(N):
            value += (min(weights[i], WEIGHTIEST) + LIGHTEST) * used[i]
    for i in range(N - SAFE):
        trust, weight = 1.0, min(weights[i], WEIGHTIEST) + LIGHTEST
        deviation = v[i] - (value - weight * used[i]) / (total - weight)
        square = deviation * deviation
        limit = max(FAR * a[USUAL, i], max(a[FARTHEST, i], error))
        limit_recently = max(FAR_RECENTLY * a[USUAL, i], max(a[HIGHEST_RECENT, i], error))
        exact = min(max(raw[i], -LARGEST), LARGEST) if raw[i] == raw[i] else LARGEST
        if exact != a[PREVIOUS, i]:
            a[LONGEST, i] = max(a[LONGEST, i], a[REPEATS, i])
            a[REPEATS, i] = 0.0
        elif known and abs(v[i] - x) > equal:
            a[REPEATS, i] += 1.0
        a[PREVIOUS, i] = exact
        warm = a[AGE, i] >= WARM
        if known:
            a[RECENT, i] += (square - a[RECENT, i]) / min(max(FEWEST, 0.5 * h), a[AGE, i] + 1.0)
        far, far_recently = warm and square > limit, warm and a[RECENT, i] > limit_recently
        if (warm and a[REPEATS, i] > 2.0 * a[LONGEST, i]) or not abs(raw[i]) <= LARGEST:
            trust = 0.0
        else:
            if far:
                trust = (limit / square) ** 2
            if far_recently:
                trust *= (limit_recently / a[RECENT, i]) ** 2
        if known:
            step = 2.0 / (a[AGE, i] + 2.0)
            a[USUAL, i] += step * ((limit if far else square) - a[USUAL, i])
            a[AGE, i] += 1.0
            # A limit grows once for each time that it is exceeded, not for each row: what stays far stays doubted.
            if not far:
                a[FARTHEST, i] = max(a[FARTHEST, i] * (1.0 - 0.25 * step), square)
            elif a[TRUST, i] == 1.0:
                a[FARTHEST, i] = GROWTH * limit
            if not far_recently:
                a[HIGHEST_RECENT, i] = max(a[HIGHEST_RECENT, i] * (1.0 - 0.25 * step), a[RECENT, i])
            elif a[TRUST, i] == 1.0:
                a[HIGHEST_RECENT, i] = GROWTH * limit_recently
        used[i], a[TRUST, i] = v[i], trust
        doubted = doubted or trust < 1.0
    if doubted:
        pull_doubted(v, a[TRUST], weights, used)


@register_jitable
def add_errors(s: Floats, a: Floats, R: Floats, mixture: Floats, d: float, g: float) -> None:
    """Add the row before to the mean products R of errors, and d, which moves the returns of all rows before.

    The return of a row that is j rows older moves by γʲ d. The sums of errors and of weights, discounted by γʲ and by
    γ²ʲ (OPEN_ERROR, OPEN_WEIGHT), are all that R needs to follow.
    """
    s[LEARNED] += 1.0
    step = 2.0 / (s[LEARNED] + 1.0)
    keep = 1.0 - step
    s[OPEN_WEIGHT] = keep * g * g * s[OPEN_WEIGHT] + step
    moved = d * s[OPEN_WEIGHT]
    y, e = a[OPEN_ERROR], a[ERROR]
    for i in range(len(R)):
        y[i] = keep * g * y[i] + step * e[i]
    for i in range(len(R)):
        error, both = step * e[i], d * (y[i] + moved)
        for j in range(i + 1):
            R[i, j] = keep * R[i, j] + error * e[j] + (both + d * y[j])
    for i in range(len(R)):
        y[i] += moved
    for k in range(mixture.shape[1]):
        own = mixture[OWN, k]
        mixture[OPEN_OWN, k] = keep * g * mixture[OPEN_OWN, k] + step * own
        mixture[SQUARE, k] = keep * mixture[SQUARE, k] + step * own * own + 2.0 * d * mixture[OPEN_OWN, k] + d * moved
        mixture[OPEN_OWN, k] += moved


@register_jitable
def least_convex(A: Floats, b: Floats, w: Floats) -> None:
    """argmin wᵀAw − 2 bᵀw, w ≥ 0, Σ w = 1, by an active set that starts at the answers that have weight.

    It is solved to rounding: what is left of a search that ends early would depend on the last bits of A.
    """
    N = len(w)
    member, at, B, sides = np.empty(N, np.bool_), np.empty(N, np.int64), np.empty((N, N)), np.empty((2, N))
    towards_one, towards_b = sides[0], sides[1]
    for i in range(N):
        member[i] = w[i] > 0.0
    for _ in range(4 * N):
        size = 0
        for i in range(N):
            if member[i]:
                at[size] = i
                size += 1
        for i in range(size):
            towards_one[i], towards_b[i] = 1.0, b[at[i]]
            for j in range(i + 1):
                B[i, j] = A[at[i], at[j]]
        solve(B, size, sides)
        total = total_of(towards_one, size)
        if not total > 0.0:
            return
        force = (1.0 - total_of(towards_b, size)) / total
        # As far towards the solution on these answers as all weights stay positive.
        part, blocked = 1.0, -1
        for i in range(size):
            target = towards_b[i] + force * towards_one[i]
            if target < 0.0 and w[at[i]] / (w[at[i]] - target) < part:
                part, blocked = w[at[i]] / (w[at[i]] - target), at[i]
        for i in range(size):
            w[at[i]] += part * (towards_b[i] + force * towards_one[i] - w[at[i]])
        if blocked >= 0:
            member[blocked] = False
            w[blocked] = 0.0
            continue
        steepest, lowest = -1, 0.0
        for i in range(N):
            if not member[i]:
                slope = -b[i] - force
                for j in range(size):
                    slope += A[i, at[j]] * w[at[j]]
                if slope < lowest - 1e-9 * A[i, i]:
                    steepest, lowest = i, slope
        if steepest < 0:
            return
        member[steepest] = True


@register_jitable
def powers(errors: Floats, power: float, shares: Floats) -> float:
    """shares ∝ errors^−power; returns the least error."""
    least = 1e300
    for i in range(len(errors)):
        least = min(least, errors[i])
    least = max(least, 1e-250)
    total = 0.0
    for i in range(len(errors)):
        shares[i] = (least / max(errors[i], least)) ** power
        total += shares[i]
    for i in range(len(errors)):
        shares[i] /= total
    return least


@register_jitable
def share_among_alike(A: Floats, w: Floats) -> None:
    """Divide each weight by the number of answers that are alike, so that several copies weigh as much as one.

    Where there is no season, copies of other answers stand in for those of the seasons; and ridges of several strengths
    often say the same.
    """
    N, total = len(w), 0.0
    alike = np.empty((N, N))
    for i in range(N):
        for j in range(i):
            scale = max(ALIKE * min(A[i, i], A[j, j]), 1e-250)
            apart = max(A[i, i] + A[j, j] - 2.0 * A[i, j], 0.0) / scale
            alike[i, j] = alike[j, i] = math.exp(-apart) if apart < FAR_APART else 0.0
        alike[i, i] = 1.0
    for i in range(N):
        w[i] /= total_of(alike[i], N)
        total += w[i]
    for i in range(N):
        w[i] /= total


@register_jitable
def weigh(learned: float, R: Floats, W: Floats, mixture: Floats, h: float) -> None:
    """The three weights of the answers, W, and the shares of the three mixtures."""
    N = len(R)
    evidence = learned / h
    power = min(STEEPEST, STEEPER * evidence)
    A, b, sides = np.empty((N, N)), np.empty(N), np.empty((2, N))
    for i in range(N):
        b[i] = R[i, i]
        for j in range(i + 1):
            A[i, j] = A[j, i] = R[i, j]
    least = powers(b, power, W[0])
    share_among_alike(A, W[0])
    ridge = least * CONVEX_PRIOR / evidence
    for i in range(N):
        A[i, i] += ridge
        b[i] = ridge * W[0, i]
    least_convex(A, b, W[1])
    ridge = least * (FREE_PRIOR / evidence + 1e-10)
    for i in range(N):
        sides[0, i], sides[1, i] = 1.0, 0.0
        A[i, i] = R[i, i]
        for j in range(N):
            sides[1, i] += A[i, j] * W[1, j]
    for i in range(N):
        A[i, i] += ridge
    solve(A, N, sides)
    towards_one, fall = sides[0], sides[1]
    total = total_of(towards_one, N)
    for i in range(N):
        W[2, i] = W[1, i]
    if total > 0.0:
        force = total_of(fall, N) / total
        for i in range(N):
            W[2, i] += force * towards_one[i] - fall[i]
    powers(mixture[SQUARE], power, mixture[SHARE])
    total = mixture[SHARE, 0]
    for k in range(1, len(W)):  # the first needs least evidence
        mixture[SHARE, k] *= evidence / (evidence + MIXTURE_PRIOR)
        total += mixture[SHARE, k]
    for k in range(len(W)):
        mixture[SHARE, k] /= total


@register_jitable
def rows_between_weights(learned: float, h: float) -> int:
    """After how many rows the weights are found again: at least 16, h/8, and 1/512 to 1/1,024 of the rows so far.

    Means over all rows so far change little in so few, and finding weights costs more than a row does. The first 256
    rows change them more: there it is 1/16 to 1/32 of the rows so far, or h/8.
    """
    few, share = 1, 1
    while few < 16 and 32.0 * few <= learned:
        few *= 2
    while 1024.0 * share <= learned:
        share *= 2
    return max(few, int(h / 8.0), share)


@jit_for(
    (_f3, _b3, types.int64, _f2, _b1, _f1, _f2, _f3, _f3, _f3, _f3, _f2, _f3, types.int64, types.int64), fastmath=False
)
def combine(
    V: Floats, fresh: NDArray[np.bool_], optional: int, X: Floats, follows: NDArray[np.bool_], gamma: Floats,
    scalars: Floats, vectors: Floats, weights: Floats, mixtures: Floats, errors: Floats, out: Floats, single: Floats,
    begin: int, end: int,
) -> None:  # fmt: skip
    """p of each row, and the E + 2 single answers, of questions ``begin`` to ``end``; see ``Combination``.

    Answers from ``optional`` on may be NaN: the first such is replaced by the last answer before these, the next by the
    one before that.
    """
    E, N, K = V.shape[2], errors.shape[1], weights.shape[1]
    v, used, mixed = np.empty(N), np.empty(N), np.empty(K)
    for q in range(begin, end):  # all rows of a question before the next: what it carries stays at hand
        g, s, R, W, a, mixture = gamma[q], scalars[q], errors[q], weights[q], vectors[q], mixtures[q]
        h = 1.0 / (1.0 - g)
        for t in range(V.shape[0]):
            x = X[t, q]
            known = abs(x) <= LARGEST
            first = s[SEEN] == 0.0
            for i in range(optional, E):
                if math.isnan(V[t, q, i]):
                    V[t, q, i] = V[t, q, max(0, 2 * optional - 1 - i)]
            if first and not known:  # nothing was ever read
                p = V[t, q, E // 2]
                out[t, q] = p if abs(p) <= LARGEST else 0.0
                for i in range(E + 2):
                    single[t, q, i] = out[t, q]
                continue
            x, low, high = add_to_range(s, x, known, h)
            if first:
                for k in range(K):
                    mixture[SHARE, k] = 1.0 / K
                    for i in range(N):
                        W[k, i] = 1.0 / N
                for i in range(a.shape[1]):
                    a[TRUST, i] = 1.0
            for i in range(E):
                v[i] = within(V[t, q, i], low, high, s[MEAN])
            v[E], v[E + 1], v[E + 2] = x, s[TRACE], s[MEAN]
            for i in range(E + 2):
                single[t, q, i] = v[i]
            for i in range(fresh.shape[2]):
                if fresh[t, q, i]:
                    renew(i, a, W, R)
            error = mixture[SQUARE, 0]
            for k in range(1, K):
                error = min(error, mixture[SQUARE, k])
            doubt(v, V[t, q], a, W[0], x, EQUAL * (s[HIGHEST] - s[LOWEST]), known, h, error, used)
            p = 0.0
            for k in range(K):
                mixed[k] = 0.0
                for i in range(N):
                    mixed[k] += W[k, i] * used[i]
                if k == K - 1:  # the free weights
                    least = most = used[0]
                    for i in range(1, N):
                        least, most = min(least, used[i]), max(most, used[i])
                    mixed[k] = min(max(mixed[k], least), most)
                mixed[k] = within(mixed[k], low, high, s[MEAN])
                p += mixture[SHARE, k] * mixed[k]
            p = within(p, low, high, s[MEAN])
            out[t, q] = p
            if not (known and follows[t]):
                for i in range(a.shape[1]):
                    a[OPEN_ERROR, i] = 0.0
                for k in range(mixture.shape[1]):
                    mixture[OPEN_OWN, k] = 0.0
                s[OPEN_WEIGHT] = 0.0
            elif not first:  # ERROR, OWN and BEFORE are still those of the row before
                add_errors(s, a, R, mixture, (1.0 - g) * x + g * p - s[BEFORE], g)
                if int(s[LEARNED]) % rows_between_weights(s[LEARNED], h) == 0:  # (of floats it takes longer)
                    weigh(s[LEARNED], R, W, mixture, h)
            for i in range(N):
                a[ERROR, i] = p - v[i]
            for k in range(K):
                mixture[OWN, k] = p - mixed[k]
            s[BEFORE] = p


@jit_for((_f3, _f2, _b1, _b1, _f1, types.float64, _f2, _f3, _f3, _f2), fastmath=False)
def blend(
    V: Floats, X: Floats, follows: NDArray[np.bool_], ends: NDArray[np.bool_], gamma: Floats, kappa: float,
    scalars: Floats, vectors: Floats, products: Floats, out: Floats,
) -> None:  # fmt: skip
    """p of each row and question; see ``blend``."""
    E = V.shape[2]
    for t in range(V.shape[0]):
        for q in range(V.shape[1]):
            g, x, s, C = gamma[q], X[t, q], scalars[q], products[q]
            w, u, z, b = vectors[q, 0], vectors[q, 1], vectors[q, 2], vectors[q, 3]
            h = 1.0 / (1.0 - g)
            known = abs(x) <= LARGEST
            first = s[SEEN] == 0.0
            if first and not known:  # nothing was ever read
                p = V[t, q, E // 2]
                out[t, q] = p if abs(p) <= LARGEST else 0.0
                continue
            x, low, high = add_reading(s, x, known, h)
            mean = s[MEAN]
            p = mean + w[E] * (x - mean) + w[E + 1] * (s[TRACE] - mean)
            for i in range(E):
                p += w[i] * (within(V[t, q, i], low, high, mean) - mean)
            p = 0.0 if ends[t] else within(p, low, high, mean)
            out[t, q] = p
            if not (known and follows[t]):
                z[:] = 0.0
            elif not first:  # u, BEFORE and ABOVE are still those of the row before
                d, a = td_error(s, x, p, g)
                for i in range(E + 2):
                    z[i] = g * z[i] + u[i]
                    b[i] += a * (d * z[i] + s[ABOVE] * u[i] - b[i])
                    for j in range(i + 1):
                        C[i, j] += a * (u[i] * u[j] - C[i, j])
                if int(s[LEARNED]) % max(16, int(h / 8.0)) == 0:
                    A = C.copy()
                    trace = 0.0
                    for i in range(E + 2):
                        trace += C[i, i]
                    for i in range(E + 2):
                        A[i, i] += kappa * s[NOISE] / (1.0 - g * g) * h / s[LEARNED] + 1e-9 * trace + 1e-200
                    w[:] = b
                    solve(A, E + 2, vectors[q, :1])
            for i in range(E):
                u[i] = within(V[t, q, i], low, high, mean) - mean
            u[E], u[E + 1], s[BEFORE], s[ABOVE] = x - mean, s[TRACE] - mean, p, p - mean
