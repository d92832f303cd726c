"""The loop of ``blend``.  Compiled without fast mathematics: the bits do not depend on how rows are cut into blocks."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
from numba import types
from numba.extending import register_jitable

from emphatic.engines.compiled import jit_for
from emphatic.engines.lanes import (
    WIDTH,
    any_of,
    below,
    every,
    fetch,
    gather,
    get,
    larger,
    put,
    root,
    scatter,
    select,
    smaller,
)  # fmt: skip
from emphatic.questions.gvf import REACHED

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from emphatic.engines.lanes import Numbers, Truths

    Floats = NDArray[np.float64]
    Flags = NDArray[np.bool_]

_f1, _f2, _f3, _f4 = (types.Array(types.float64, ndim, "C") for ndim in (1, 2, 3, 4))
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
#: So many rows ahead answers are fetched.
AHEAD = 4
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
def nearest(v: Numbers, low: Numbers, high: Numbers, mean: Numbers) -> Numbers:
    """``within`` of lanes."""
    return select(v < low, low, select(v > high, high, select(v == v, v, mean)))


@register_jitable
def begin(begins: Truths, x: Numbers, s: Floats, a: Floats, W: Floats, mixture: Floats) -> None:
    """The first reading of a question: all answers weigh the same, and none is doubted."""
    K, N = len(W), W.shape[1]
    for k in (TRACE, LOWEST, HIGHEST, TRACE_LOWEST, TRACE_HIGHEST):
        put(s, k, select(begins, x, get(s, k)))
    for k in range(K):
        put(mixture[SHARE], k, select(begins, 1.0 / K, get(mixture[SHARE], k)))
        for i in range(N):
            put(W[k], i, select(begins, 1.0 / N, get(W[k], i)))
    for i in range(N):
        put(a[TRUST], i, select(begins, 1.0, get(a[TRUST], i)))


@register_jitable
def add_to_range(s: Floats, x: Numbers, known: Truths, h: Numbers) -> tuple[Numbers, Numbers]:
    """As ``add_reading``, with bounds from the range of the trace: a return is a mean of readings, as the trace is."""
    put(s, LAST, x)
    seen, mean, lowest, highest = get(s, SEEN), get(s, MEAN), get(s, LOWEST), get(s, HIGHEST)
    seen = select(known, seen + 1.0, seen)
    put(s, SEEN, seen)
    put(s, MEAN, select(known, mean + (x - mean) / seen, mean))
    floor, roof = get(s, FLOOR), get(s, ROOF)
    floor = select(known & (x <= lowest), select(x == lowest, floor + 1.0, 1.0), floor)
    roof = select(known & (x >= highest), select(x == highest, roof + 1.0, 1.0), roof)
    lowest, highest = select(known, smaller(lowest, x), lowest), select(known, larger(highest, x), highest)
    put(s, FLOOR, floor)
    put(s, ROOF, roof)
    put(s, LOWEST, lowest)
    put(s, HIGHEST, highest)
    trace = get(s, TRACE)
    trace = trace + (x - trace) / h
    trace_lowest, trace_highest = smaller(get(s, TRACE_LOWEST), trace), larger(get(s, TRACE_HIGHEST), trace)
    put(s, TRACE, trace)
    put(s, TRACE_LOWEST, trace_lowest)
    put(s, TRACE_HIGHEST, trace_highest)
    room = ROOM * (trace_highest - trace_lowest)
    low, high = smaller(trace_lowest - room, x), larger(trace_highest + room, x)
    low = select(floor >= REACHED, larger(low, lowest), low)
    high = select(roof >= REACHED, smaller(high, highest), high)
    return low, high


@register_jitable
def renew(i: int, lane: int, a: Floats, W: Floats, R: Floats) -> None:
    """Answer i is another one from here on: take over what is known of the second best of the others.

    Its own weight goes to that one. The best may not stay so: its few errors would let the new answer outweigh all
    others for long.
    """
    N = len(R)
    best = second = -1
    for j in range(N):
        if j == i:
            continue
        if best < 0 or R[j, j, lane] < R[best, best, lane]:
            best, second = j, best
        elif second < 0 or R[j, j, lane] < R[second, second, lane]:
            second = j
    for j in range(N):
        R[max(i, j), min(i, j), lane] = R[max(second, j), min(second, j), lane]
    R[i, i, lane] = R[second, second, lane]
    for k in range(len(a)):  # OPEN_ERROR and ERROR are those of the second best
        a[k, i, lane] = a[k, second, lane] if k <= ERROR else 1.0 if k == TRUST else 0.0
    for k in range(len(W)):
        W[k, second, lane] += W[k, i, lane]
        W[k, i, lane] = 0.0


@register_jitable
def pull_doubted(v: Floats, trust: Floats, weights: Floats, pulled: Floats) -> None:
    """Pull the answers v that are not trusted towards the others; the result is in ``pulled``.

    These stand in as their errors weigh them: an answer that was much better than all others may have left them weights
    near 0.
    """
    total = value = every(0.0)
    for i in range(len(v)):
        trusted, weight = get(trust, i) == 1.0, get(weights, i) + 1e-250
        total = total + select(trusted, weight, 0.0)
        value = value + select(trusted, weight * get(v, i), 0.0)
    mean = value / total
    for i in range(len(v)):
        closer = mean + get(trust, i) * (get(v, i) - mean)
        put(pulled, i, select(get(trust, i) < 1.0, closer, get(v, i)))


@register_jitable
def doubt(
    v: Floats, raw: Floats, a: Floats, weights: Floats, x: Numbers, equal: Numbers, known: Truths, active: Truths,
    memory: Numbers, error: Numbers, pulled: Floats,
) -> Floats:  # fmt: skip
    """The answers v as they are used: one that is suddenly far from all others is pulled towards those.

    An answer's deviation from the mean of the others is compared with what is usual for it, in this row and on average
    over half a horizon, its ``memory``. What is within the error of the prediction does not matter. An answer that
    repeats itself exactly, for longer than twice what it did before, is stuck; rows without a reading do not count, nor
    those where it is within ``equal`` of the reading. One that is no number is left out at once.
    """
    N, trust, answers = len(v), a[TRUST], v
    total = value = every(0.0)
    doubted = below(0)
    for i in range(N):
        weight = smaller(get(weights, i), WEIGHTIEST) + LIGHTEST
        total = total + weight
        value = value + weight * get(v, i)
        doubted = doubted | (get(trust, i) < 1.0)
    if any_of(doubted & active):  # in the row before: without stand-ins the mean of the others would jump, and all
        pull_doubted(v, trust, weights, pulled)  # would seem far
        answers, value = pulled, every(0.0)
        for i in range(N):
            value = value + (smaller(get(weights, i), WEIGHTIEST) + LIGHTEST) * get(pulled, i)
    doubted = below(0)
    for i in range(N - SAFE):
        answer, exact, weight = get(v, i), get(raw, i), smaller(get(weights, i), WEIGHTIEST) + LIGHTEST
        deviation = answer - (value - weight * get(answers, i)) / (total - weight)
        square = deviation * deviation
        usual, farthest, highest_recent = get(a[USUAL], i), get(a[FARTHEST], i), get(a[HIGHEST_RECENT], i)
        limit = larger(FAR * usual, larger(farthest, error))
        limit_recently = larger(FAR_RECENTLY * usual, larger(highest_recent, error))
        repeats, age, recent, trusted = get(a[REPEATS], i), get(a[AGE], i), get(a[RECENT], i), get(trust, i)
        warm, stuck = age >= WARM, ~(abs(exact) <= LARGEST)
        exact = select(exact == exact, smaller(larger(exact, -LARGEST), LARGEST), LARGEST)
        differs = exact != get(a[PREVIOUS], i)
        if any_of(~differs | (repeats > 0.0)):
            longest = select(differs, larger(get(a[LONGEST], i), repeats), get(a[LONGEST], i))
            repeats = select(differs, 0.0, select(known & (abs(answer - x) > equal), repeats + 1.0, repeats))
            put(a[LONGEST], i, longest)
            put(a[REPEATS], i, repeats)
            stuck = stuck | (warm & (repeats > 2.0 * longest))
        put(a[PREVIOUS], i, select(active, exact, get(a[PREVIOUS], i)))
        recent = select(known, recent + (square - recent) / smaller(memory, age + 1.0), recent)
        put(a[RECENT], i, recent)
        far, far_recently = warm & (square > limit), warm & (recent > limit_recently)
        trust_now = select(stuck, 0.0, every(1.0))
        if any_of(~stuck & (far | far_recently)):
            share, share_recently = limit / square, limit_recently / recent
            share = select(far, share * share, 1.0)
            trust_now = select(stuck, 0.0, select(far_recently, share * (share_recently * share_recently), share))
        put(trust, i, select(active, trust_now, trusted))
        doubted = doubted | (trust_now < 1.0)
        step = 2.0 / (age + 2.0)
        put(a[USUAL], i, select(known, usual + step * (select(far, limit, square) - usual), usual))
        put(a[AGE], i, select(known, age + 1.0, age))
        # A limit grows once for each time that it is exceeded, not for each row: what stays far stays doubted.
        shrink = 1.0 - 0.25 * step
        grown = select(trusted == 1.0, GROWTH * limit, farthest)
        grown_recently = select(trusted == 1.0, GROWTH * limit_recently, highest_recent)
        farthest_now = select(far, grown, larger(farthest * shrink, square))
        highest_now = select(far_recently, grown_recently, larger(highest_recent * shrink, recent))
        put(a[FARTHEST], i, select(known, farthest_now, farthest))
        put(a[HIGHEST_RECENT], i, select(known, highest_now, highest_recent))
    if any_of(doubted & active):
        pull_doubted(v, trust, weights, pulled)
        return pulled
    return v


@register_jitable
def add_errors(
    s: Floats, a: Floats, R: Floats, mixture: Floats, moves: Floats, d: Numbers, g: Numbers, learns: Truths
) -> None:
    """Add the row before to the mean products R of errors, and d, which moves the returns of all rows before.

    The return of a row that is j rows older moves by γʲ d. The sums of errors and of weights, discounted by γʲ and by
    γ²ʲ (OPEN_ERROR, OPEN_WEIGHT), are all that R needs to follow.
    """
    learned, weight = get(s, LEARNED), get(s, OPEN_WEIGHT)
    step = 2.0 / (learned + 1.0 + 1.0)
    keep = 1.0 - step
    weight = keep * g * g * weight + step
    put(s, LEARNED, select(learns, learned + 1.0, learned))
    put(s, OPEN_WEIGHT, select(learns, weight, get(s, OPEN_WEIGHT)))
    y, e, discount, moved = a[OPEN_ERROR], a[ERROR], keep * g, d * weight
    for i in range(len(R)):
        error, open_error, row = get(e, i), get(y, i), R[i]
        open_now = discount * open_error + step * error
        put(y, i, select(learns, open_now + moved, open_error))
        put(moves, i, d * open_now)
        error, both = step * error, d * (open_now + moved)
        for j in range(i + 1):
            product = get(row, j)
            put(row, j, select(learns, keep * product + error * get(e, j) + (both + get(moves, j)), product))
    squares, open_own = mixture[SQUARE], mixture[OPEN_OWN]
    for k in range(len(squares)):
        error, open_error, square = get(mixture[OWN], k), get(open_own, k), get(squares, k)
        open_now = discount * open_error + step * error
        moved_square = keep * square + step * error * error + 2.0 * d * open_now + d * moved
        put(squares, k, select(learns, moved_square, square))
        put(open_own, k, select(learns, open_now + moved, open_error))


@register_jitable
def solve_lanes(A: Floats, sides: Floats) -> None:
    """``solve`` of lanes: A w = b for each b of ``sides``, in place."""
    size, sound = len(A), ~below(0)
    for i in range(size):
        row = A[i]
        for j in range(i + 1):
            entry, pivots = get(row, j), A[j]
            for k in range(j):
                entry = entry - get(row, k) * get(pivots, k)
            if i == j:
                sound = sound & (entry > 0.0)
                put(row, i, root(entry))
            else:
                put(row, j, entry / get(pivots, j))
    for w in sides:
        for i in range(size):
            entry, row = get(w, i), A[i]
            for k in range(i):
                entry = entry - get(row, k) * get(w, k)
            put(w, i, entry / get(row, i))
        finite = sound
        for i in range(size - 1, -1, -1):
            entry = get(w, i)
            for k in range(i + 1, size):
                entry = entry - get(A[k], i) * get(w, k)
            entry = entry / get(A[i], i)
            put(w, i, entry)
            finite = finite & (abs(entry) < math.inf)
        for i in range(size):
            put(w, i, select(finite, get(w, i), 0.0))


@register_jitable
def sum_of(w: Floats) -> Numbers:
    """The sum of all numbers of each lane, in their order."""
    total = every(0.0)
    for i in range(len(w)):
        total = total + get(w, i)
    return total


@register_jitable
def least_convex(A: Floats, b: Floats, w: Floats, searches: Truths, B: Floats, sides: Floats, member: Floats) -> None:
    """argmin wᵀAw − 2 bᵀw, w ≥ 0, Σ w = 1, by an active set that starts at the answers that have weight.

    It is solved to rounding: what is left of a search that ends early would depend on the last bits of A. An answer
    outside of the set has a row of zeros, and 1 on the diagonal.
    """
    N, towards_one, towards_b = len(w), sides[0], sides[1]
    for i in range(N):
        put(member, i, select(get(w, i) > 0.0, 1.0, 0.0))
    for _ in range(4 * N):
        for i in range(N):
            inside = get(member, i) > 0.0
            put(towards_one, i, get(member, i))
            put(towards_b, i, select(inside, get(b, i), 0.0))
            for j in range(i):
                put(B[i], j, select(inside & (get(member, j) > 0.0), get(A[i], j), 0.0))
            put(B[i], i, select(inside, get(A[i], i), 1.0))
        solve_lanes(B, sides)
        total = sum_of(towards_one)
        searches = searches & (total > 0.0)
        force = (1.0 - sum_of(towards_b)) / total
        # As far towards the solution on these answers as all weights stay positive.
        part, blocked = every(1.0), every(-1.0)
        for i in range(N):
            target, weight = get(towards_b, i) + force * get(towards_one, i), get(w, i)
            put(towards_b, i, target)
            share = weight / (weight - target)
            blocks = (get(member, i) > 0.0) & (target < 0.0) & (share < part)
            part, blocked = select(blocks, share, part), select(blocks, float(i), blocked)
        for i in range(N):
            weight, moves = get(w, i), searches & (get(member, i) > 0.0)
            weight = select(moves, weight + part * (get(towards_b, i) - weight), weight)
            leaves = searches & (blocked == float(i))
            put(w, i, select(leaves, 0.0, weight))
            put(member, i, select(leaves, 0.0, get(member, i)))
        steepest, lowest = every(-1.0), every(0.0)
        for i in range(N):
            slope = -1.0 * get(b, i) - force
            for j in range(N):
                slope = slope + select(get(member, j) > 0.0, get(A[i], j) * get(w, j), 0.0)
            is_steeper = (get(member, i) == 0.0) & (slope < lowest - 1e-9 * get(A[i], i))
            steepest, lowest = select(is_steeper, float(i), steepest), select(is_steeper, slope, lowest)
        stays = blocked < 0.0
        searches = searches & ~(stays & (steepest < 0.0))
        if not any_of(searches):
            return
        for i in range(N):
            put(member, i, select(stays & (steepest == float(i)), 1.0, get(member, i)))


@register_jitable
def powers(errors: Floats, power: Floats, due: Floats, shares: Floats, room: Floats) -> Numbers:
    """shares ∝ errors^−power, where they are ``due``; returns the least error."""
    N = len(errors)
    least = every(1e300)
    for i in range(N):
        least = smaller(least, get(errors, i))
    least = larger(least, 1e-250)
    for i in range(N):
        put(room, i, least / larger(get(errors, i), least))
    for lane in range(WIDTH):  # a power takes as long as hundreds of products
        if due[lane] > 0.0:
            for i in range(N):
                room[i, lane] = room[i, lane] ** power[lane]
    total = every(0.0)
    for i in range(N):
        total = total + get(room, i)
    for i in range(N):
        put(shares, i, get(room, i) / total)
    return least


@register_jitable
def share_among_alike(A: Floats, w: Floats, due: Floats, alike: Floats) -> None:
    """Divide each weight by the number of answers that are alike, so that several copies weigh as much as one.

    Where there is no season, copies of other answers stand in for those of the seasons; and ridges of several strengths
    often say the same.
    """
    N = len(w)
    for i in range(N):
        error = get(A[i], i)
        for j in range(i):
            scale = larger(ALIKE * smaller(error, get(A[j], j)), 1e-250)
            put(alike[i], j, larger(error + get(A[j], j) - 2.0 * get(A[i], j), 0.0) / scale)
    for lane in range(WIDTH):
        if due[lane] > 0.0:
            for i in range(N):
                for j in range(i):
                    apart = alike[i, j, lane]
                    alike[i, j, lane] = alike[j, i, lane] = math.exp(-apart) if apart < FAR_APART else 0.0
                alike[i, i, lane] = 1.0
    total = every(0.0)
    for i in range(N):
        weight = get(w, i) / sum_of(alike[i])
        put(w, i, weight)
        total = total + weight
    for i in range(N):
        put(w, i, get(w, i) / total)


@register_jitable
def weigh(s: Floats, R: Floats, W: Floats, mixture: Floats, h: Numbers, due: Floats, room: Floats) -> None:
    """The three weights of the answers, W, and the shares of the three mixtures, in the lanes where they are due.

    These are not 0 in ``due[0]``, and ``due[1]`` takes the power of errors in the weights.
    """
    N, K, is_due = len(R), len(W), get(due, 0) > 0.0
    A, B, sides, b, shares = room[:N], room[N : 2 * N], room[2 * N : 2 * N + 2], room[2 * N + 2], room[2 * N + 3]
    evidence = get(s, LEARNED) / h
    put(due, 1, smaller(STEEPEST, STEEPER * evidence))
    for i in range(N):
        put(b, i, get(R[i], i))
        for j in range(i + 1):
            put(A[i], j, get(R[i], j))
            put(A[j], i, get(R[i], j))
    least = powers(b, due[1], due[0], shares, B[0])
    share_among_alike(A, shares, due[0], B)
    ridge = least * CONVEX_PRIOR / evidence
    for i in range(N):
        put(W[0], i, select(is_due, get(shares, i), get(W[0], i)))
        put(A[i], i, get(A[i], i) + ridge)
        put(b, i, ridge * get(W[0], i))
    least_convex(A, b, W[1], is_due, B, sides, shares)
    ridge = least * (FREE_PRIOR / evidence + 1e-10)
    for i in range(N):
        put(A[i], i, get(R[i], i))
        slope = every(0.0)
        for j in range(N):
            slope = slope + get(A[i], j) * get(W[1], j)
        put(sides[0], i, every(1.0))
        put(sides[1], i, slope)
    for i in range(N):
        put(A[i], i, get(A[i], i) + ridge)
    solve_lanes(A, sides)
    towards_one, fall = sides[0], sides[1]
    total = sum_of(towards_one)
    force = sum_of(fall) / total
    for i in range(N):
        free = get(W[1], i) + select(total > 0.0, force * get(towards_one, i) - get(fall, i), 0.0)
        put(W[2], i, select(is_due, free, get(W[2], i)))
    powers(mixture[SQUARE], due[1], due[0], shares[:K], B[0])
    total = get(shares, 0)
    for k in range(1, K):  # the first needs least evidence
        put(shares, k, get(shares, k) * (evidence / (evidence + MIXTURE_PRIOR)))
        total = total + get(shares, k)
    for k in range(K):
        put(mixture[SHARE], k, select(is_due, get(shares, k) / total, get(mixture[SHARE], k)))


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


@register_jitable
def next_weights(learned: float, h: float) -> float:
    """The number of rows learned from, after ``learned``, at which the weights are found again."""
    row = learned + 1.0
    while True:
        rows, change = float(rows_between_weights(row, h)), 32.0
        while change <= row:  # the rows between change at powers of 2
            change *= 2.0
        due = math.ceil(row / rows) * rows
        if due < change:
            return due
        row = change


@register_jitable
def find_due(learned: Floats, gamma: Floats, due_rows: Floats, due: Floats) -> None:
    """Set ``due`` to 1 for questions whose weights are found in this row, to 0 for others."""
    for lane in range(WIDTH):
        rows, h = learned[lane], 1.0 / (1.0 - gamma[lane])
        due[lane] = 0.0
        if rows > 0.0 and rows >= due_rows[lane]:
            if int(rows) % rows_between_weights(rows, h) == 0:
                due[lane] = 1.0
            due_rows[lane] = next_weights(rows, h)


@jit_for(
    (_f3, _b3, _b1, types.int64, _f2, _b1, _f2, _f2, _f3, _f4, _f4, _f4, _f4, _f2, _f3, _f3),
    fastmath=False,
    allocates=False,
)
def combine(
    V: Floats, fresh: Flags, renewed: Flags, optional: int, X: Floats, follows: Flags, gamma: Floats,
    due_rows: Floats, scalars: Floats, vectors: Floats, weights: Floats, mixtures: Floats, errors: Floats, out: Floats,
    single: Floats, room: Floats,
) -> None:  # fmt: skip
    """p of each row, and the E + 2 single answers, of all questions.

    See ``Combination``. A bundle is WIDTH questions, each in a lane; lanes without a question never have a reading.
    Answers from ``optional`` on may be NaN: the first such is replaced by the last answer before these, the next by the
    one before that. In rows that are ``renewed`` an answer is ``fresh``. Weights may have to be found once ``due_rows``
    rows were learned from.
    """
    Q, E, N, K = V.shape[1], V.shape[2], errors.shape[1], weights.shape[1]
    v, pulled, raw, mixed, due = room[0], room[1], room[2], room[3], room[4]
    for bundle in range(len(gamma)):  # all rows of a bundle before the next: what it carries stays at hand
        s, R, W, a, mixture = scalars[bundle], errors[bundle], weights[bundle], vectors[bundle], mixtures[bundle]
        q = bundle * WIDTH
        size = min(WIDTH, Q - q)
        has_question, g = below(size), get(gamma, bundle)
        h = 1.0 / (1.0 - g)
        memory = larger(FEWEST, 0.5 * h)
        for t in range(V.shape[0]):
            at = t * Q + q
            for lane in range(size):  # a question's answers lie on one cache line, or two
                fetch(V, (at + AHEAD * Q + lane) * E)
                fetch(single, (at + AHEAD * Q + lane) * (E + 2))
            x = gather(X, at, 1, size)
            known, is_first = (abs(x) <= LARGEST) & has_question, get(s, SEEN) == 0.0
            x = select(known, x, get(s, LAST))
            active = known | ~is_first  # of the others nothing was ever read: all that they carry stays 0
            if any_of(known & is_first):
                begin(known & is_first, x, s, a, W, mixture)
            low, high = add_to_range(s, x, known, h)
            mean, trace = get(s, MEAN), get(s, TRACE)
            for i in range(E):
                answer = gather(V, at * E + i, E, size)
                if i >= optional:
                    answer = select(answer == answer, answer, get(raw, max(0, 2 * optional - 1 - i)))
                put(raw, i, answer)
                answer = nearest(answer, low, high, mean)
                put(v, i, answer)
                scatter(single, at * (E + 2) + i, E + 2, size, answer)
            put(v, E, x)
            put(v, E + 1, trace)
            put(v, E + 2, mean)
            scatter(single, at * (E + 2) + E, E + 2, size, x)
            scatter(single, at * (E + 2) + E + 1, E + 2, size, trace)
            if renewed[t]:
                for lane in range(size):
                    for i in range(E):
                        if fresh[t, q + lane, i] and s[SEEN, lane] > 0.0:
                            renew(i, lane, a, W, R)
            squares, error = mixture[SQUARE], get(mixture[SQUARE], 0)
            for k in range(1, K):
                error = smaller(error, get(squares, k))
            equal = EQUAL * (get(s, HIGHEST) - get(s, LOWEST))
            answers = doubt(v, raw, a, W[0], x, equal, known, active, memory, error, pulled)
            p = every(0.0)
            for k in range(K):
                value = every(0.0)
                for i in range(N):
                    value = value + get(W[k], i) * get(answers, i)
                if k == K - 1:  # the free weights
                    least = most = get(answers, 0)
                    for i in range(1, N):
                        least, most = smaller(least, get(answers, i)), larger(most, get(answers, i))
                    value = smaller(larger(value, least), most)
                value = nearest(value, low, high, mean)
                put(mixed, k, value)
                p = p + get(mixture[SHARE], k) * value
            p = nearest(p, low, high, mean)
            scatter(out, at, 1, size, p)
            continues = known if follows[t] else below(0)
            if any_of(active & ~continues):
                for i in range(N):
                    put(a[OPEN_ERROR], i, select(continues, get(a[OPEN_ERROR], i), 0.0))
                for k in range(K):
                    put(mixture[OPEN_OWN], k, select(continues, get(mixture[OPEN_OWN], k), 0.0))
                put(s, OPEN_WEIGHT, select(continues, get(s, OPEN_WEIGHT), 0.0))
            learns = continues & ~is_first
            if any_of(learns):  # ERROR, OWN and BEFORE are still those of the row before
                add_errors(s, a, R, mixture, room[5], (1.0 - g) * x + g * p - get(s, BEFORE), g, learns)
                if any_of(learns & (get(s, LEARNED) >= get(due_rows, bundle))):
                    find_due(s[LEARNED], gamma[bundle], due_rows[bundle], due[0])
                    weigh(s, R, W, mixture, h, due, room[5:])
            for i in range(N):
                put(a[ERROR], i, p - get(v, i))
            for k in range(K):
                put(mixture[OWN], k, p - get(mixed, k))
            put(s, BEFORE, p)
            if any_of(has_question & ~active):
                for lane in range(size):
                    if s[SEEN, lane] == 0.0:
                        middle = raw[E // 2, lane]
                        out[t, q + lane] = middle if abs(middle) <= LARGEST else 0.0
                        for i in range(E + 2):
                            single[t, q + lane, i] = out[t, q + lane]


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
