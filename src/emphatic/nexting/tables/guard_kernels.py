"""The loop of ``ReadingGuard``, without fast mathematics: the bits do not depend on how rows are cut into blocks."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numba import types
from numba.extending import register_jitable

from emphatic.engines.compiled import jit_for

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

_f1 = types.Array(types.float64, 1, "C")
_f2 = types.Array(types.float64, 2, "C")
_r2 = types.Array(types.float64, 2, "C", readonly=True)
_u2 = types.Array(types.uint8, 2, "C")

# What a signal carries: the range of what was let through, the ends beyond which a reading is far, and the last number
# that was learned from,
LOW, HIGH, FLOOR, ROOF, LAST = range(5)
# readings let through, up to ``SETTLED``; far readings in a row, below 0 if they are too low; how often in a row the
# last of them came; that one; and the place in the memory for the next far reading,
SEEN, RUN, SAME, LATEST, PLACE = range(5, 10)
# how many readings were pulled in and taken for missing; and whether the signal is left as it is.
PULLED, LOST, EXEMPT = range(10, 13)
#: How many different readings, of the lowest and of the highest, are known, and how many far ones are remembered.
EXTREMES, REMEMBERED = 8, 8
BOTTOM, TOP = 13, 13 + EXTREMES
MEMORY = 13 + 2 * EXTREMES
WIDTH = MEMORY + REMEMBERED

#: What becomes of a reading.
READ, PULLED_IN, MISSING = range(3)

#: A reading is far beyond the range by more than this share of the range,
REACH = 0.5
#: and by more than so many times the mean distance of the eight extremes from the least of them: a heavy tail reaches
#: further than its range so far.
TAIL = 10.0
#: Few readings do not show the range: both are larger by the factor 1 + FEW / readings.
FEW = 30.0
#: Readings that are not few any more.
SETTLED = 512.0
#: A far reading that is pulled in, except the first of all, widens the range by this share of the distance to the end
#: beyond which it is far.
WIDENING = 0.25
#: One that came before is taken for missing where it is further beyond that end than so many such distances.
REMOTE = 1.0
#: A code is taken for missing where it is outside the range by more than this share of it, and by more than so many
#: times the distance between the eight extremes.
APART, SPREADS = 0.02, 3.0
#: Far readings in a row, not all the same, from which on the range follows them.
CONFIRMED = 3
#: Far readings in a row that are a level, whatever they are.
LEVEL = 15
#: The share of the first readings, on either side, that may be unsound; and the share of all from which on different
#: ones beyond a gap are sound as well.
CORE, SOUND = 0.1, 0.01
#: The largest number: an end that no reading passes.
ENDLESS = 1.7e308
#: Numbers that stand for a missing reading, where they lie far from all others: nines, the largest numbers of
#: registers, also with one or two decimal places, and the fillers of file formats. Either sign counts.
CODES = (
    999.0, 9999.0, 99999.0, 999999.0, 9999999.0, 99999999.0, 999999999.0, 999.9, 9999.9, 99999.9, 999.99, 9999.99,
    32767.0, 32768.0, 65534.0, 65535.0, 8388607.0, 8388608.0, 16777215.0, 2147483647.0, 2147483648.0, 4294967295.0,
    3276.7, 3276.8, 6553.5, 327.67, 327.68, 655.35, 9223372036854775807.0, 18446744073709551615.0,
    1e10, 1e12, 1e15, 1e16, 1e18, 1e20, 1e24, 1e25, 1e28, 1e30, 1e32, 1e33, 1e34, 1e35, 1e36, 1e37, 1e38, 1e99,
    9.969209968386869e36, 3.4028234663852886e38,
)  # fmt: skip
#: Those that count below 0 only.
NEGATIVE_CODES = (99.0, 99.9, 99.99)
#: A code that was stored with 24 bits differs from the number by less than this share of it.
ROUNDING = 1e-7


@register_jitable
def is_code(v: float) -> bool:
    """Whether a number looks like a code for a missing reading."""
    size = abs(v)
    for code in CODES:
        if abs(size - code) <= ROUNDING * code:
            return True
    if v < 0.0:
        for code in NEGATIVE_CODES:
            if abs(size - code) <= ROUNDING * code:
                return True
    return False


@register_jitable
def set_ends(s: Floats) -> None:
    """Find the ends beyond which a reading is far: without a range, there are none."""
    low, high = s[LOW], s[HIGH]
    reach_down = reach_up = ENDLESS
    if high - low > 0.0:
        down = up = 0.0
        for i in range(EXTREMES):  # (the lowest first; the highest last)
            down += s[BOTTOM + EXTREMES - 1] - s[BOTTOM + i]
            up += s[TOP + i] - s[TOP]
        few = 1.0 + FEW / s[SEEN]
        reach_down = min(few * max(REACH * (high - low), TAIL * down / EXTREMES), ENDLESS)
        reach_up = min(few * max(REACH * (high - low), TAIL * up / EXTREMES), ENDLESS)
    s[FLOOR], s[ROOF] = max(low - reach_down, -ENDLESS), min(high + reach_up, ENDLESS)


@register_jitable
def is_among(s: Floats, begin: int, count: int, v: float) -> bool:
    """Whether v is one of s[begin : begin + count]."""
    for i in range(begin, begin + count):  # noqa: SIM110 (numba has no any)
        if s[i] == v:
            return True
    return False


@register_jitable
def is_bound_elsewhere(state: Floats, c: int, v: float) -> bool:
    """Whether v is among the lowest or the highest readings of another signal of the kind of c.

    Sensors of a kind share the ends of their scale: the range of a sonar is the range of all. Of a kind are signals
    whose ranges overlap. 0 shows nothing: it is the end of many scales, and what a broken sensor reads.
    """
    low, high = state[c, LOW], state[c, HIGH]
    for k in range(state.shape[0]):
        s = state[k]
        if k != c and v != 0.0 and max(low, s[LOW]) < min(high, s[HIGH]) and is_among(s, BOTTOM, 2 * EXTREMES, v):
            return True
    return False


@register_jitable
def widen(s: Floats, v: float) -> None:
    """Let the range reach v, and remember v among the extremes where it is one that is not known yet."""
    changed = s[SEEN] < SETTLED  # (the ends then depend on the number of readings)
    if v > s[TOP] and not is_among(s, TOP, EXTREMES, v):
        changed = True
        i = 1
        while i < EXTREMES and s[TOP + i] < v:
            s[TOP + i - 1] = s[TOP + i]
            i += 1
        s[TOP + i - 1] = v
        s[HIGH] = max(s[HIGH], v)
    if v < s[BOTTOM + EXTREMES - 1] and not is_among(s, BOTTOM, EXTREMES, v):
        changed = True
        i = EXTREMES - 2
        while i >= 0 and s[BOTTOM + i] > v:
            s[BOTTOM + i + 1] = s[BOTTOM + i]
            i -= 1
        s[BOTTOM + i + 1] = v
        s[LOW] = min(s[LOW], v)
    if changed:
        set_ends(s)


@register_jitable
def let_through(s: Floats, v: float) -> None:
    """Count a reading, which the range then includes."""
    if s[SEEN] == 0.0:
        s[LOW] = s[HIGH] = v
        for i in range(BOTTOM, TOP + EXTREMES):
            s[i] = v
    s[SEEN], s[LAST] = min(s[SEEN] + 1.0, SETTLED), v
    widen(s, v)


@register_jitable
def lies_apart(s: Floats, v: float) -> bool:
    """Whether a number is so far outside the range that no reading led up to it."""
    if v > s[HIGH]:
        spread, distance = s[TOP + EXTREMES - 1] - s[TOP], v - s[HIGH]
    else:
        spread, distance = s[BOTTOM + EXTREMES - 1] - s[BOTTOM], s[LOW] - v
    return bool(distance > max(APART * (s[HIGH] - s[LOW]), SPREADS * spread))


@register_jitable
def remember(s: Floats, v: float) -> None:
    """Remember a far reading, in the place of the oldest."""
    if not is_among(s, MEMORY, REMEMBERED, v):
        s[MEMORY + np.int64(s[PLACE])] = v
        s[PLACE] = s[PLACE] + 1.0 if s[PLACE] + 1.0 < REMEMBERED else 0.0


@register_jitable
def judge(state: Floats, c: int, v: float) -> tuple[int, float]:
    """What becomes of a reading of signal c, and the number to learn from."""
    s = state[c]
    # (a code that lay apart once is one for good, wherever readings go that are not beyond it)
    is_outside = s[SEEN] > 0.0 and not s[LOW] <= v <= s[HIGH]
    if is_outside and is_code(v) and (lies_apart(s, v) or is_among(s, MEMORY, REMEMBERED, v)):
        remember(s, v)
        return MISSING, np.nan
    # (the ends may have been moved beyond what they kept out in the row before)
    repeats = s[RUN] != 0.0 and v == s[LATEST] and not s[LOW] <= v <= s[HIGH]
    is_near = s[FLOOR] <= v <= s[ROOF] and not repeats
    if s[SEEN] == 0.0 or is_near or is_bound_elsewhere(state, c, v):
        s[RUN] = 0.0
        let_through(s, v)
        return READ, v
    side = 1.0 if v > s[HIGH] else -1.0
    end = s[ROOF] if v > s[HIGH] else s[FLOOR]
    reach = end - s[HIGH] if v > s[HIGH] else s[LOW] - end
    if s[RUN] * side > 0.0:
        s[RUN] += side
        s[SAME] = s[SAME] + 1.0 if v == s[LATEST] else 1.0
    else:
        s[RUN], s[SAME] = side, 1.0
    s[LATEST] = v
    run = abs(s[RUN])
    if run >= LEVEL:
        let_through(s, v)
        return READ, v
    known = is_among(s, MEMORY, REMEMBERED, v)
    constant = s[SAME] == run
    if constant and (run > 1.0 or (known and abs(v - end) > REMOTE * reach)):
        return MISSING, np.nan
    if run >= CONFIRMED and not constant:
        step = 2.0 ** (run - CONFIRMED + 1.0) * (s[HIGH] - s[LOW])
        y = min(v, s[HIGH] + step) if side > 0.0 else max(v, s[LOW] - step)
        let_through(s, y)
        return (READ if y == v else PULLED_IN), y
    remember(s, v)
    edge = s[HIGH] if side > 0.0 else s[LOW]
    if run == 1.0 and s[PULLED] > 0.0:
        widen(s, edge + side * WIDENING * reach)
    # The further it is beyond the range, the less it moves: what is 1,000 standard deviations off tells nothing.
    share = reach / (v - edge)
    s[LAST] += (edge - s[LAST]) * (share * share)
    return PULLED_IN, s[LAST]


@register_jitable
def is_sound(s: Floats, x: Floats, i: int, begin: int, end: int) -> bool:
    """Whether the range of the first readings may reach x[i], of those beyond it, x[begin:end], which are sorted."""
    if s[FLOOR] <= x[i] <= s[ROOF]:
        return True
    different = 1
    for k in range(begin + 1, end):
        different += x[k] != x[k - 1]
    return different >= max(SOUND * len(x), 3.0)


@jit_for((_f1, _f1), fastmath=False, allocates=False)
def find_range(x: Floats, s: Floats) -> None:
    """Set the state of a signal by the sound ones among its first readings x, which are sorted; x is overwritten."""
    n = 0
    for i in range(len(x)):
        if not is_code(x[i]):
            x[n] = x[i]
            n += 1
    if n == 0:
        return
    x = x[:n]
    below, above = int(CORE * (n - 1)), n - int(CORE * (n - 1))  # x[below:above] is known to be sound
    s[SEEN], s[LAST] = min(float(n), SETTLED), x[n // 2]
    s[LOW] = s[HIGH] = x[n // 2]
    for i in range(BOTTOM, TOP + EXTREMES):
        s[i] = x[n // 2]
    set_ends(s)
    for i in range(below, above):
        widen(s, x[i])
    moved = True
    while moved:
        moved = False
        if above < n and is_sound(s, x, above, above, n):
            widen(s, x[above])
            above, moved = above + 1, True
        if below > 0 and is_sound(s, x, below - 1, 0, below):
            widen(s, x[below - 1])
            below, moved = below - 1, True


@jit_for((_r2, _f2, _f2, _u2), fastmath=False, allocates=False)
def guard(values: Floats, state: Floats, guarded: Floats, verdicts: NDArray[np.uint8]) -> int:
    """``guarded`` and ``verdicts`` of each row and signal, NaN where a reading is missing; how many are not as read."""
    count = 0
    for t in range(values.shape[0]):
        for c in range(values.shape[1]):
            v, s = values[t, c], state[c]
            guarded[t, c], verdicts[t, c] = v, READ
            if s[FLOOR] <= v <= s[ROOF] and s[SEEN] >= SETTLED and s[BOTTOM + EXTREMES - 1] <= v <= s[TOP]:
                s[RUN], s[LAST] = 0.0, v  # nothing else changes: nearly every reading
                continue
            if not abs(v) <= ENDLESS or s[EXEMPT] > 0.0:
                continue
            verdict, y = judge(state, c, v)
            if verdict != READ:
                guarded[t, c], verdicts[t, c] = y, verdict
                s[PULLED if verdict == PULLED_IN else LOST] += 1.0
                count += 1
    return count
