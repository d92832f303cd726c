"""The loop over the rows of a question: labels of windows that have closed, features, learning and answers.

Rows are gone through one by one, so that bits do not depend on how a stream is cut into blocks, and nothing at a row
depends on a later one.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
from numba import types
from numba.extending import register_jitable

from emphatic.asking.layout import (  # noqa: F401
    ABS,
    ABSOLUTE,
    ALIKE,
    ALONG,
    ANSWER,
    ANY,
    AROUND,
    AT,
    AT_ROW,
    AT_TIME,
    BASE_NOW,
    BASE_SEASON,
    BASELINE_ABS,
    BASELINE_COUNT,
    BASELINE_SQUARE,
    BASELINES,
    BINS,
    BINS_A,
    BINS_B,
    CALIBRATION_PRIOR,
    CALIBRATION_WINDOWS,
    CENTRE,
    CHOICE,
    CHOICE_ABS,
    CHOICE_LABELS,
    CHOICE_SQUARE,
    CHOICES,
    CLIMATOLOGY,
    CLIP,
    COMPONENT_COUNT,
    COMPONENTS,
    CONDITION,
    CONSTANTS,
    COUNT,
    COVERAGE,
    CUTS,
    CYCLES,
    DECAY,
    DROPPED,
    END_PENDING,
    END_READING,
    ENOUGH,
    ERROR,
    ERROR_LABELS,
    EVENT,
    EVENT_RIDGES,
    EVIDENCE,
    FARTHEST,
    FEATURES,
    FIRST,
    FIRST_PENDING,
    FIRST_READING,
    FORGET,
    FULL,
    HALF,
    HIGH,
    HIGHEST,
    HINGES,
    HOUR_PACE,
    HOUR_RATE,
    HOURS,
    INSIDE,
    INTERVAL_SCORE,
    INTERVALS,
    KEY_HOUR,
    KEY_NOW,
    KEY_WEEK,
    KIND,
    KNOTS,
    LABEL,
    LABEL_SQUARE,
    LABELS,
    LAGS,
    LAST_A,
    LAST_B,
    LAST_MEMBER,
    LAST_TIME,
    LEAST,
    LEAST_KNOT,
    LEVEL_HIGH,
    LEVEL_LOW,
    LIMIT,
    LOOKED_UP,
    LOW,
    LOWEST,
    MARGIN,
    MAX,
    MEAN,
    MEAN_MEMBER,
    MEDIAN_WINDOWS,
    MEMBERS,
    MIN,
    MOST,
    MOST_POWER,
    NEARLY,
    NOW_MEMBER,
    NUMBER_HINGES,
    NUMBER_RIDGES,
    OFFSET_A,
    OFFSET_B,
    OTHERS,
    OUTCOME,
    PAST_MEAN,
    PERIOD_A,
    PERIOD_B,
    PERSISTENCE,
    PLAIN,
    POWER,
    POWER_WINDOW,
    Q_HIGH,
    Q_LOW,
    Q_MIDDLE,
    RATES,
    RATIO_TICKS,
    RATIOS,
    RECENT,
    REGULAR,
    REMEMBERED,
    REMEMBERED_RATIOS,
    ROW,
    ROWS,
    SCALE_ROWS,
    SCALE_SUM,
    SEASON_HINGES,
    SEASON_MEMBER,
    SEASON_RATE,
    SEASONAL,
    SEEN,
    SHARE,
    SHARE_WINDOWS,
    SHIFT,
    SIGMA,
    SIMPLE_ABS,
    SIMPLE_POWER,
    SIMPLE_POWER_WINDOW,
    SINCE,
    SIZE,
    SIZE_RIDGE,
    SLACK,
    SLOTS_A,
    SLOTS_B,
    SMALL,
    SPAN,
    SQUARE,
    STATE,
    STEP,
    STRIDE,
    SUMS,
    SURE,
    TD_MEMBER,
    TD_MEMBERS,
    TD_OPEN,
    TD_SQUARE,
    TIMES_LEAST,
    TIMES_MOST,
    TOP_FORGET,
    TOP_RIDGE,
    TRACE_DECAY,
    TRACES,
    UNCHOSEN,
    UNCORRECTED,
    UNIT,
    UNLEARNED,
    UNLEARNED_NUMBER,
    UNSCALED,
    USUAL,
    USUAL_MEMBER,
    WEEKLY,
    WORSE,
)  # fmt: skip
from emphatic.engines.compiled import jit_for
from emphatic.questions.gvf import REACHED

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    Flags = NDArray[np.bool_]

_f1, _f2, _f3 = (types.Array(types.float64, ndim, "C") for ndim in (1, 2, 3))
_r1, _r2 = (types.Array(types.float64, ndim, "C", readonly=True) for ndim in (1, 2))
_b1 = types.Array(types.boolean, 1, "C", readonly=True)


@register_jitable
def _dot(x: Floats, y: Floats, n: int) -> float:
    total = 0.0
    for i in range(n):
        total += x[i] * y[i]
    return total


@register_jitable
def _logistic(z: float) -> float:
    return 1.0 / (1.0 + math.exp(-min(30.0, max(-30.0, z))))


@register_jitable
def _log_odds(p: float, margin: float) -> float:
    p = min(1.0 - margin, max(margin, p))
    return math.log(p / (1.0 - p))


@register_jitable
def _learn(
    P: Floats, w: Floats, targets: int, x: Floats, y: Floats, n: int, forget: float, link: bool, ridge: float, g: Floats
) -> None:
    """One step of recursive least squares, or of logistic regression by Newton's method where ``link`` is set.

    ``w`` (targets, n) are the weights on the first n features of ``x`` for each of the targets ``y``.
    """
    v = 1.0
    p = 0.0
    if link:
        p = _logistic(_dot(w[0], x, n))
        v = max(p * (1.0 - p), 0.02)
    trace = 0.0
    along = 0.0
    for i in range(n):
        total = 0.0
        row = P[i]
        for j in range(n):
            total += row[j] * x[j]
        g[i] = total
        along += total * x[i]
        trace += row[i]
    if not (along >= 0.0 and trace < 1e12):
        # Rounding errors have made the matrix useless: begin it again, and keep the weights.
        for i in range(n):
            for j in range(n):
                P[i, j] = 0.0
            P[i, i] = 1.0 / ridge
        return
    f = forget if trace < n / ridge else 1.0
    c = 1.0 / (f / v + along)
    for m in range(targets):
        error = y[m] - (p if link else _dot(w[m], x, n))
        size = error * c / v
        row = w[m]
        for i in range(n):
            row[i] += size * g[i]
    inverse = 1.0 / f
    for i in range(n):
        row = P[i]
        gc = g[i] * c
        for j in range(n):
            row[j] = (row[j] - gc * g[j]) * inverse


@register_jitable
def _label(constants: Floats, when: Floats, reading: Floats, begin: int, end: int, start: float) -> float:
    """The label of the window after time ``start``, of the rows from ``begin`` to ``end``; NaN if it is not known."""
    kind, step = int(constants[KIND]), constants[STEP]
    span, near = constants[SPAN], 1e-6 * constants[STEP]
    if kind == AT:
        nearest, distance = np.nan, 0.5 * step + near
        for i in range(begin, end):
            off = abs(when[i] - start - span)
            if reading[i] == reading[i] and when[i] > start + near and off < distance:
                nearest, distance = reading[i], off
        return nearest
    known, rows, missing = 0, 0, 0.0
    total, highest, lowest, hit = 0.0, -np.inf, np.inf, -1.0
    previous = start
    for i in range(begin, end):
        if when[i] <= start + near:
            continue
        if when[i] > start + span + constants[SLACK]:
            break
        rows += 1
        if when[i] - previous > constants[LIMIT]:
            missing += (when[i] - previous) / step - 1.0
        previous = when[i]
        value = reading[i]
        if value == value:
            known += 1
            total += value
            highest = max(highest, value)
            lowest = min(lowest, value)
            if hit < 0.0 and value > 0.0:
                hit = when[i] - start
    expected = constants[ROWS]
    if constants[REGULAR] == 0.0:
        # Rows come when they come: what is missing are readings of rows, and rows where none came for long.
        if start + span - previous > constants[LIMIT]:
            missing += (start + span - previous) / step - 1.0
        expected = rows + missing
    if known == 0 or known < 0.9 * expected - 1e-9:
        return np.nan
    if kind == ANY:
        return 1.0 if highest > 0.0 else 0.0
    if kind == FIRST:
        return min(hit / span, 1.0) if hit >= 0.0 else 1.0
    if kind == MEAN:
        return total / known
    return highest if kind == MAX else lowest


@register_jitable
def _slot(time: float, period: float, offset: float, shift: float, slots: int) -> int:
    phase = (time + offset) / period
    return int((phase - math.floor(phase)) * slots + shift) % int(slots)


@register_jitable
def _hinges(phi: Floats, n: int, value: float, edges: tuple[float, ...]) -> int:
    for edge in edges:
        phi[n] = max(value - edge, 0.0)
        n += 1
    return n


@register_jitable
def _within(value: float, most: float) -> float:
    return min(most, max(-most, value))


@register_jitable
def _look_up(
    constants: Floats,
    memory: Floats,
    time: float,
    u: float,
    deviation: float,
    deviation_b: float,
    seasons: Floats,
    hits: Floats,
) -> None:
    """What the seasons say of the window after ``time``: aggregated into ``seasons``, and when they first hold.

    ``memory`` (slots, 4): the last reading and the mean reading of each slot of either cycle. ``seasons``: the last of
    the short cycle, the mean of it, the mean of the long cycle, both means with the present deviation fading, the
    mean of the long one over the window, that deviation, and the last of the long cycle.
    """
    kind, step = int(constants[KIND]), constants[STEP]
    rows = constants[ROWS]
    slots_a, slots_b = int(constants[SLOTS_A]), int(constants[SLOTS_B])
    if kind == AT:
        begin, count, stride = rows, 1, 1.0
    else:
        # A window of more than one long cycle is looked up for one of them.
        length = min(rows, max(1.0, constants[PERIOD_B] / step))
        stride = max(1.0, math.ceil(length / LOOKED_UP))
        begin, count = stride if stride < length else length, max(1, int(length / stride))
    for s in range(8):
        seasons[s] = -np.inf if kind in (ANY, MAX) else (np.inf if kind == MIN else 0.0)
    plain = 0.0
    hits[0] = hits[1] = hits[2] = 1.0
    for j in range(count):
        ahead = begin + j * stride
        future = time + ahead * step
        a = _slot(future, constants[PERIOD_A], constants[OFFSET_A], constants[SHIFT], slots_a)
        b = _slot(future, constants[PERIOD_B], constants[OFFSET_B], constants[SHIFT], slots_b)
        last_a = memory[a, 0] if memory[a, 0] == memory[a, 0] else u
        mean_a = memory[a, 1] if memory[a, 1] == memory[a, 1] else u
        mean_b = memory[b, 3] if memory[b, 3] == memory[b, 3] else mean_a
        last_b = memory[b, 2] if memory[b, 2] == memory[b, 2] else last_a
        fading = math.exp(-ahead * constants[DECAY])
        values = (last_a, mean_a, mean_b, mean_b + fading * deviation_b, mean_a + fading * deviation, last_b)
        plain += mean_b
        for s in range(6):
            if kind in (ANY, MAX):
                seasons[s] = max(seasons[s], values[s])
            elif kind == MIN:
                seasons[s] = min(seasons[s], values[s])
            else:
                seasons[s] += values[s] / count
        if kind == FIRST:
            share = min(1.0, ahead / rows)
            if last_a > 0.0 and share < hits[0]:
                hits[0] = share
            if last_b > 0.0 and share < hits[1]:
                hits[1] = share
            if values[3] > 0.0 and share < hits[2]:
                hits[2] = share
    seasons[6], seasons[7] = plain / count, deviation_b


@register_jitable
def _make_features(
    constants: Floats,
    state: Floats,
    u: float,
    holds: float,
    time: float,
    others: Floats,
    recent: Floats,
    traces: Floats,
    other_memory: Floats,
    memory: Floats,
    moments: Floats,
    climate: Floats,
    phi: Floats,
    item: Floats,
    raw: Floats,
    seasons: Floats,
    hits: Floats,
) -> int:
    """The features of a row, of which the first ``SMALL`` are the small set; baselines and keys go to ``item``."""
    event, condition = constants[EVENT] > 0.0, constants[CONDITION] > 0.0
    cycles, count_others = constants[CYCLES] > 0.0, int(constants[OTHERS])
    seen = state[SEEN] + 1.0
    state[SEEN] = seen
    # The latest reading comes first in ``recent``.
    filled = int(min(seen, REMEMBERED))
    for i in range(filled - 1, 0, -1):
        recent[i] = recent[i - 1]
    recent[0] = u
    raw[0] = u
    n = 1
    for lag in LAGS:
        raw[n] = u - recent[lag] if lag < filled else 0.0
        n += 1
    for m in range(4):
        traces[0, m] += max(1.0 / TRACES[m], 1.0 / seen) * (u - traces[0, m])
        traces[1, m] += max(1.0 / TRACES[m], 1.0 / seen) * (holds - traces[1, m])
        raw[n] = traces[0, m]
        n += 1
    few = min(filled, 8)
    mean = 0.0
    for i in range(few):
        mean += recent[i] / few
    square = 0.0
    highest, lowest = u, u
    for i in range(filled):
        if i < few:
            square += (recent[i] - mean) ** 2 / few
        highest, lowest = max(highest, recent[i]), min(lowest, recent[i])
    raw[n], raw[n + 1], raw[n + 2] = math.sqrt(square), highest, lowest
    n += 3
    bin_a = bin_b = 0
    phase, weekend = 0.0, 0.0
    item[BASELINES + PERSISTENCE] = u
    if cycles:
        slots_a, slots_b = int(constants[SLOTS_A]), int(constants[SLOTS_B])
        a = _slot(time, constants[PERIOD_A], constants[OFFSET_A], constants[SHIFT], slots_a)
        b = _slot(time, constants[PERIOD_B], constants[OFFSET_B], constants[SHIFT], slots_b)
        bin_a = _slot(time, constants[PERIOD_A], constants[OFFSET_A], NEARLY, constants[BINS_A])
        bin_b = _slot(time, constants[PERIOD_B], constants[OFFSET_B], NEARLY, constants[BINS_B])
        phase = 2.0 * math.pi * a / slots_a
        weekend = 1.0 if constants[WEEKLY] > 0.0 and bin_b >= 5 else 0.0
        # The deviation is from what was usual before this row; then the row is remembered.
        off_a = u - memory[a, 1] if memory[a, 1] == memory[a, 1] else 0.0
        off_b = u - memory[b, 3] if memory[b, 3] == memory[b, 3] else off_a
        memory[a, 0], memory[b, 2] = u, u
        memory[a, 1] = u if memory[a, 1] != memory[a, 1] else memory[a, 1] + SEASON_RATE * (u - memory[a, 1])
        memory[b, 3] = u if memory[b, 3] != memory[b, 3] else memory[b, 3] + SEASON_RATE * (u - memory[b, 3])
        _look_up(constants, memory, time, u, off_a, off_b, seasons, hits)
        for s in range(8):
            raw[n + s] = seasons[s]
        raw[n + 8], raw[n + 9] = hits[0], hits[2]
        n += SEASONAL
        item[BASELINES + LAST_A], item[BASELINES + LAST_B] = seasons[0], seasons[5]
    for m in range(count_others):
        other = others[m]
        other_memory[4, m] += max(1.0 / 16.0, 1.0 / seen) * (other - other_memory[4, m])
        raw[n], raw[n + 1] = other, other_memory[4, m]
        raw[n + 2] = other - other_memory[int(min(seen - 1.0, 3.0)) - 1, m] if seen > 1.0 else 0.0
        for lag in range(3, 0, -1):
            other_memory[lag, m] = other_memory[lag - 1, m]
        other_memory[0, m] = other
        # (the value three rows ago, or the first)
        n += 3
    total = n
    # Standardised by what was read so far.
    deviation = 1.0
    for i in range(total):
        change = raw[i] - moments[0, i]
        moments[0, i] += change / seen
        moments[1, i] += change * (raw[i] - moments[0, i])
        spread = math.sqrt(moments[1, i] / seen)
        if i == 0:
            deviation = max(spread, 1e-12)
        raw[i] = (
            _within((raw[i] - moments[0, i]) / spread, CLIP) if spread > 1e-12 * (1.0 + abs(moments[0, i])) else 0.0
        )
    item[UNIT] = deviation if seen > UNSCALED else np.nan
    item[KEY_HOUR], item[KEY_WEEK] = float(bin_a), float(bin_b * 24 + bin_a)
    item[KEY_NOW] = float((24 if holds > 0.0 else 0) + bin_a)
    # The small set.
    phi[0] = 1.0
    n = 1
    for i in range(11):
        phi[n] = raw[i]
        n += 1
    if condition:
        phi[n] = holds
        n += 1
    waves = n
    if cycles:
        for s in range(SEASONAL):
            phi[n] = raw[PLAIN + s]
            n += 1
        waves = n
        for k in range(1, 4):
            phi[n], phi[n + 1] = math.sin(k * phase), math.cos(k * phase)
            n += 2
    if event:
        keys = (0, int(item[KEY_HOUR]), int(item[KEY_WEEK]), int(item[KEY_NOW]))
        for c in range(4):
            phi[n] = 0.5 * _log_odds(_usual(climate, c, keys[c], True), 0.001)
            n += 1
    # What only the full set has.
    phi[n], phi[n + 1] = raw[11], raw[12]
    n += 2
    first = PLAIN + (SEASONAL if cycles else 0)
    for i in range(first, total):
        phi[n] = raw[i]
        n += 1
    distance = raw[0]
    if condition:
        distance = _within(u / deviation, CLIP)
        phi[n] = distance
        phi[n + 1] = math.log1p(min(state[SINCE], 1000.0)) / 3.0
        n += 2
        for m in range(4):
            phi[n] = traces[1, m]
            n += 1
        n = _hinges(phi, n, distance, HINGES)
        if cycles:
            for s in (0, 2, 3, 4):
                margin = _within(seasons[s] / deviation, CLIP)
                n = _hinges(phi, n, margin, SEASON_HINGES)
                phi[n], phi[n + 1], phi[n + 2] = margin, margin * distance / 3.0, 1.0 if margin > 0.0 else 0.0
                n += 3
    else:
        n = _hinges(phi, n, distance, NUMBER_HINGES)
    if cycles:
        for i in range(int(constants[BINS_A]) + int(constants[BINS_B])):
            phi[n + i] = 0.0
        phi[n + bin_a] = 1.0
        phi[n + int(constants[BINS_A]) + bin_b] = 1.0
        n += int(constants[BINS_A]) + int(constants[BINS_B])
        phi[n] = weekend
        n += 1
        for i in range(6):
            phi[n] = weekend * phi[waves + i]
            n += 1
        for i in range(4):
            phi[n] = distance * phi[waves + i] / 2.0
            n += 1
        if condition:
            for i in range(4):
                phi[n] = holds * phi[waves + i]
                n += 1
    return n


@register_jitable
def _usual(climate: Floats, which: int, key: int, event: bool) -> float:
    """The mean label by a key, shrunk towards the mean of all by so many rows."""
    half = 0.5 if event else 0.0
    mean = (climate[0, 0, 0] + half) / max(1.0, climate[0, 0, 1] + 2.0 * half)
    prior = 1.0 if which == 0 else (3.0 if which == 2 else 5.0)
    usual: float = (climate[which, key, 0] + prior * mean) / (climate[which, key, 1] + prior)
    return usual


@register_jitable
def _td(
    constants: Floats,
    state: Floats,
    u: float,
    reading: float,
    phi: Floats,
    td_phi: Floats,
    td_w: Floats,
    td_z: Floats,
    n: int,
    out: Floats,
) -> None:
    """One step of TD(λ) at each rate from the row before to this one, and the predictions at this one.

    An event ends the prediction (γ = 0 there), and time ends it with probability 1/h: survival by a geometric deadline.
    """
    kind = int(constants[KIND])
    going_on = 1.0 - 1.0 / max(2.0, constants[ROWS])
    condition = constants[CONDITION] > 0.0
    open_before = state[TD_OPEN] > 0.0
    if reading == reading and open_before:
        if kind == ANY:
            cumulant, gamma = reading, going_on * (1.0 - reading)
        elif kind == FIRST:
            cumulant, gamma = 1.0 / constants[ROWS], going_on * (1.0 - reading)
        elif condition:
            cumulant, gamma = (1.0 - going_on) * reading, going_on
        else:
            unit = max(math.sqrt(state[TD_SQUARE]), 1e-12)
            cumulant, gamma = (1.0 - going_on) * (reading - state[ABSOLUTE]) / unit, going_on
        size = 0.0
        for i in range(n):
            size += td_phi[i] * td_phi[i]
        for r in range(3):
            w, z = td_w[r], td_z[r]
            error = cumulant + gamma * _dot(w, phi, n) - _dot(w, td_phi, n)
            rate = RATES[r] / max(size, 1.0)
            for i in range(n):
                z[i] = gamma * TRACE_DECAY * z[i] + td_phi[i]
                w[i] += rate * _within(error, 10.0) * z[i]
    elif open_before:
        for r in range(3):
            for i in range(n):
                td_z[r, i] = 0.0
    for i in range(n):
        td_phi[i] = phi[i]
    state[TD_OPEN] = 1.0
    for r in range(3):
        out[r] = _dot(td_w[r], phi, n)


@register_jitable
def _knot(p: float) -> tuple[int, float]:
    """The knot below a probability, and how far it is from there to the next."""
    place = min(KNOTS - 1.001, max(0.0, _log_odds(p, 1e-6) - LEAST_KNOT))
    return int(place), place - int(place)


@register_jitable
def _correct(p: float, calibration: Floats) -> float:
    """A probability plus the mean error of such probabilities so far; ``calibration``: sums of errors, and windows."""
    if not SURE < p < 1.0 - SURE:
        return p
    below, share = _knot(p)
    first: float = calibration[0, below] / (calibration[1, below] + CALIBRATION_PRIOR)
    second: float = calibration[0, below + 1] / (calibration[1, below + 1] + CALIBRATION_PRIOR)
    return p + (1.0 - share) * first + share * second


@register_jitable
def _calibrate(p: float, y: float, weight: float, calibration: Floats) -> None:
    """Take in the error of a probability before its correction; ``weight`` is the part of a window that a label is."""
    below, share = _knot(p)
    for i in range(2):
        part = weight * (share if i else 1.0 - share)
        fading = 1.0 - part / CALIBRATION_WINDOWS
        calibration[0, below + i] = calibration[0, below + i] * fading + part * (y - p)
        calibration[1, below + i] = calibration[1, below + i] * fading + part


@register_jitable
def _answer_event(
    constants: Floats,
    state: Floats,
    item: Floats,
    phi: Floats,
    P: Floats,
    W: Floats,
    top_w: Floats,
    top_x: Floats,
    climate: Floats,
    td: Floats,
    calibration: Floats,
) -> None:
    full, small = int(constants[FULL]), int(constants[SMALL])
    labels = state[LABELS]
    usual = _usual(climate, 1, int(item[KEY_HOUR]), True)
    item[USUAL] = usual
    item[BASELINES + PAST_MEAN], item[BASELINES + CLIMATOLOGY] = _usual(climate, 0, 0, True), usual
    floor = 0.5 / (labels + 2.0)
    top_x[0] = 1.0
    low, high = 1.0, 0.0
    for m in range(4):
        n = small if m >= 2 else full
        z = _dot(W[m, 0], phi, n)
        p = min(1.0, max(0.0, z)) if m == 3 else _logistic(z)
        low, high = min(low, p), max(high, p)
        top_x[1 + m] = _log_odds(p, 0.005)
    p = min(1.0, max(0.0, (td[0] + td[1] + td[2]) / 3.0))
    item[COMPONENTS + 4] = p
    top_x[5] = _log_odds(p, 0.005)
    p = _logistic(_dot(top_w[0], top_x, 6))
    item[UNCORRECTED] = p
    p = _correct(p, calibration)
    if labels <= UNLEARNED:
        p = low = high = item[UNCORRECTED] = usual
    p = min(1.0 - floor, max(floor, p))
    item[ANSWER] = p
    item[LOW], item[HIGH] = min(p, max(low, 0.0)), max(p, min(high, 1.0))
    for m in range(6):
        # The combination learns from the components as they were; the fourth place is TD's own answer.
        item[COMPONENTS + 6 + m] = top_x[m]


@register_jitable
def _member(item: Floats, m: int) -> float:
    """One of the answers that a number is combined of."""
    if m == MEAN_MEMBER:
        value: float = item[BASELINES + PAST_MEAN]
    elif m == LAST_MEMBER:
        value = item[BASELINES + LAST_A]
    else:
        value = item[COMPONENTS + m]
    return value


@register_jitable
def _weigh(constants: Floats, squares: Floats, choices: Floats, windows: float, weights: Floats) -> None:
    """The weights of the members after so many ``windows``: of the answer, of all members, and of the simple ones.

    The simple ones get the share that would have had the least squared error so far.
    """
    kind, cycles = int(constants[KIND]), constants[CYCLES] > 0.0
    best = best_simple = np.inf
    for m in range(MEMBERS):
        is_simple = m in (NOW_MEMBER, SEASON_MEMBER, USUAL_MEMBER) or m >= MEAN_MEMBER
        is_left_out = (not cycles and m in (SEASON_MEMBER, LAST_MEMBER)) or (
            TD_MEMBERS <= m < MEAN_MEMBER and kind in (MAX, MIN, AT)
        )
        weights[1, m] = 0.0 if is_left_out else 1.0
        weights[2, m] = 1.0 if is_simple and not is_left_out else 0.0
        if not is_left_out:
            best = min(best, squares[m])
            if is_simple:
                best_simple = min(best_simple, squares[m])
    best, best_simple = max(best, 1e-30), max(best_simple, 1e-30)
    power = min(MOST_POWER, POWER + POWER_WINDOW * windows)
    simple_power = min(MOST_POWER, SIMPLE_POWER + SIMPLE_POWER_WINDOW * windows)
    total = total_simple = 0.0
    for m in range(MEMBERS):
        square = max(squares[m], 1e-30)
        if weights[1, m] > 0.0:
            weights[1, m] = (best / square) ** power
            total += weights[1, m]
        if weights[2, m] > 0.0:
            weights[2, m] = (best_simple / square) ** simple_power
            total_simple += weights[2, m]
    share = SHARE
    if choices[AROUND] > 0.0:
        share = (choices[ALONG] / choices[AROUND] * windows + SHARE * SHARE_WINDOWS) / (windows + SHARE_WINDOWS)
        share = min(1.0, max(0.0, share))
    for m in range(MEMBERS):
        weights[1, m] /= total
        weights[2, m] /= total_simple
        weights[0, m] = share * weights[1, m] + (1.0 - share) * weights[2, m]


@register_jitable
def _choice(choice: int, centre: float, off: float, now: float, lowest: float, highest: float) -> float:
    """What is answered by a choice: the combination moved by quarters of ``off``, halfway to now, or now."""
    answer = centre
    if choice == CHOICES - 1:
        answer = now
    elif choice == CHOICES - 2:
        answer = 0.5 * (centre + now)
    elif choice > 0:
        answer = centre + 0.25 * choice * off
    return min(highest, max(lowest, answer))


@register_jitable
def _choose(constants: Floats, squares: Floats, choices: Floats, margin: float) -> int:
    """The choice that is no worse than the simple answers by mean absolute and by mean squared error, as far as can be.

    The median has the least absolute error and the mean the least squared one; of what mostly stays as it is, the value
    now has the former. To move that far must be better by the ``margin``.
    """
    square = min(squares[NOW_MEMBER], squares[USUAL_MEMBER], squares[MEAN_MEMBER])
    size = min(choices[SIMPLE_ABS + PERSISTENCE], choices[SIMPLE_ABS + CLIMATOLOGY], choices[SIMPLE_ABS + PAST_MEAN])
    if constants[CYCLES] > 0.0:
        square = min(square, squares[SEASON_MEMBER], squares[LAST_MEMBER])
        size = min(size, choices[SIMPLE_ABS + LAST_A], choices[SIMPLE_ABS + LAST_B])
    square, size, variance = max(square, 1e-30), max(size, 1e-30), max(squares[MEAN_MEMBER], 1e-30)
    best, least = 0, np.inf
    for c in range(CHOICES if int(constants[KIND]) == AT else CHOICES - 1):
        off = choices[CHOICE_ABS + c] / size
        worse = max(0.0, off - 1.0) + max(0.0, (choices[CHOICE_SQUARE + c] - square) / variance)
        cost = off + math.sqrt(choices[CHOICE_SQUARE + c] / square) + WORSE * worse
        if c > 0:
            cost += margin
        if cost < least:
            best, least = c, cost
    return best


@register_jitable
def _follow_members(
    constants: Floats, state: Floats, item: Floats, y: float, off: float, squares: Floats, choices: Floats,
    weights: Floats,
) -> None:  # fmt: skip
    """Compare what each member and each choice answered with the label that is known now."""
    most = constants[ERROR_LABELS]
    rate = max(1.0 / most, RECENT / (state[LABELS] + RECENT))
    for m in range(MEMBERS):
        error = _member(item, m) - y
        squares[m] += rate * (error * error - squares[m])
    count = choices[CHOICE_LABELS]
    rate = max(1.0 / most, RECENT / (count + RECENT))
    for c in range(CHOICES):
        error = _choice(c, item[CENTRE], off, item[COMPONENTS + NOW_MEMBER], -np.inf, np.inf) - y
        choices[CHOICE_SQUARE + c] += rate * (error * error - choices[CHOICE_SQUARE + c])
        choices[CHOICE_ABS + c] += rate * (abs(error) - choices[CHOICE_ABS + c])
    for b in range(BASELINE_COUNT):
        choices[SIMPLE_ABS + b] += rate * (abs(item[BASELINES + b] - y) - choices[SIMPLE_ABS + b])
    choices[CHOICE_LABELS] = count + 1.0
    windows = min(count, most) * constants[STRIDE] / constants[ROWS]
    if state[LABELS] > UNLEARNED_NUMBER:
        _weigh(constants, squares, choices, windows, weights)
        every = simple = 0.0
        for m in range(MEMBERS):
            every += weights[1, m] * _member(item, m)
            simple += weights[2, m] * _member(item, m)
        choices[ALONG] += rate * ((every - simple) * (y - simple) - choices[ALONG])
        choices[AROUND] += rate * ((every - simple) ** 2 - choices[AROUND])
    if count > UNCHOSEN and windows > ENOUGH:
        choices[CHOICE] = float(_choose(constants, squares, choices, MARGIN / math.sqrt(windows)))


@register_jitable
def _answer_number(
    constants: Floats,
    state: Floats,
    item: Floats,
    phi: Floats,
    W: Floats,
    size_w: Floats,
    size_x: Floats,
    climate: Floats,
    squares: Floats,
    choices: Floats,
    weights: Floats,
    td: Floats,
    holds: float,
    seasons: Floats,
    hits: Floats,
    levels: Floats,
) -> None:
    full, small = int(constants[FULL]), int(constants[SMALL])
    kind, condition, cycles = int(constants[KIND]), constants[CONDITION] > 0.0, constants[CYCLES] > 0.0
    labels = state[LABELS]
    now = item[BASELINES + PERSISTENCE]
    if condition:
        now = holds
        if kind == FIRST:
            now = 1.0 / constants[ROWS] if holds > 0.0 else 1.0
            if cycles:
                item[BASELINES + LAST_A], item[BASELINES + LAST_B] = hits[0], hits[1]
        item[BASELINES + PERSISTENCE] = now
    mean = _usual(climate, 0, 0, False) if labels > 0.0 else now
    usual = _usual(climate, 1, int(item[KEY_HOUR]), False) if labels > 0.0 else now
    item[USUAL] = usual
    item[BASELINES + PAST_MEAN], item[BASELINES + CLIMATOLOGY] = mean, usual
    if not cycles:
        item[BASELINES + LAST_A] = item[BASELINES + LAST_B] = now
    if condition and kind != FIRST and cycles:
        # (margins of the seasons are no shares: whether they hold is)
        item[BASELINES + LAST_A] = 1.0 if seasons[0] > 0.0 else 0.0
        item[BASELINES + LAST_B] = 1.0 if seasons[5] > 0.0 else 0.0
    base_now, base_season = now, item[BASELINES + LAST_B] if cycles else mean
    if condition:
        base_now = base_season = usual
        item[UNIT] = 1.0 if item[UNIT] == item[UNIT] else np.nan
    item[BASE_NOW], item[BASE_SEASON] = base_now, base_season
    unit = item[UNIT] if item[UNIT] == item[UNIT] else 0.0
    lowest, highest = constants[LOWEST], constants[HIGHEST]
    if not condition:
        room = 0.1 * (state[MOST] - state[LEAST])
        lowest = state[LEAST] - room if state[LEAST] < 0.0 else max(0.0, state[LEAST] - room)
        highest = state[MOST] + room if state[MOST] > 0.0 else min(0.0, state[MOST] + room)
        if state[TIMES_LEAST] >= REACHED:
            lowest = state[LEAST]
        if state[TIMES_MOST] >= REACHED:
            highest = state[MOST]
    for m in range(3):
        n = small if m == 2 else full
        item[COMPONENTS + 2 * m] = base_now + unit * _dot(W[m, 0], phi, n)
        item[COMPONENTS + 2 * m + 1] = base_season + unit * _dot(W[m, 1], phi, n)
    simple = item[BASELINES + LAST_B] if cycles else mean
    item[COMPONENTS + NOW_MEMBER], item[COMPONENTS + SEASON_MEMBER] = now, simple
    item[COMPONENTS + USUAL_MEMBER] = usual
    for r in range(3):
        if kind in (MAX, MIN, AT):
            item[COMPONENTS + TD_MEMBERS + r] = usual
        elif condition:
            item[COMPONENTS + TD_MEMBERS + r] = td[r]
        else:
            item[COMPONENTS + TD_MEMBERS + r] = state[ABSOLUTE] + math.sqrt(state[TD_SQUARE]) * td[r]
    for m in range(COMPONENT_COUNT):
        item[COMPONENTS + m] = min(highest, max(lowest, item[COMPONENTS + m]))
    answer = base_now
    if labels > UNLEARNED_NUMBER:
        windows = min(labels, constants[ERROR_LABELS]) * constants[STRIDE] / constants[ROWS]
        _weigh(constants, squares, choices, windows, weights)
        answer = 0.0
        for m in range(MEMBERS):
            answer += weights[0, m] * _member(item, m)
    answer = min(highest, max(lowest, answer))
    for i in range(small):
        size_x[i] = phi[i]
    for i in range(4):
        size_x[small + i] = abs(phi[1 + i])
    sigma = 1.0
    if state[ERROR] > 0.0:
        sigma = max(_dot(size_w[0], size_x, small + 4) * state[SIZE], 0.2 * state[ERROR], 1e-12)
    item[SIGMA], item[CENTRE] = sigma, answer
    # Errors of less than a few windows do not tell where the median is. (It waits there until the label is known.)
    known = min(state[RATIOS], REMEMBERED_RATIOS) * constants[STRIDE] / constants[ROWS]
    item[OUTCOME] = off = sigma * state[Q_MIDDLE] * known / (known + MEDIAN_WINDOWS)
    low = high = np.nan
    if state[RATIOS] > 50.0:
        hour = int(item[KEY_HOUR])
        low = max(lowest, answer + sigma * (state[Q_LOW] - state[LEVEL_LOW] - levels[hour, 0]))
        high = min(highest, answer + sigma * (state[Q_HIGH] + state[LEVEL_HIGH] + levels[hour, 1]))
        answer = _choice(int(choices[CHOICE]), answer, off, now, lowest, highest)
        low, high = min(low, answer), max(high, answer)
    item[ANSWER], item[LOW], item[HIGH] = answer, low, high


@register_jitable
def _add_scores(constants: Floats, item: Floats, y: float, sums: Floats) -> None:
    """Score what was answered at a row whose label is known now."""
    event = constants[EVENT] > 0.0
    p = item[ANSWER]
    sums[COUNT] += 1.0
    sums[LABEL] += y
    sums[LABEL_SQUARE] += y * y
    sums[SQUARE] += (p - y) ** 2
    sums[ABS] += abs(p - y)
    for b in range(BASELINE_COUNT):
        sums[BASELINE_SQUARE + b] += (item[BASELINES + b] - y) ** 2
        sums[BASELINE_ABS + b] += abs(item[BASELINES + b] - y)
    member = item[COMPONENTS + 4] if event else item[COMPONENTS + 10]
    sums[TD_MEMBER] += (member - y) ** 2
    if event:
        place = 0
        for cut in CUTS:
            if p >= cut:
                place += 1
        sums[BINS + 3 * place] += 1.0
        sums[BINS + 3 * place + 1] += p
        sums[BINS + 3 * place + 2] += y
    elif item[LOW] == item[LOW]:
        hour = int(item[KEY_HOUR])
        inside = 1.0 if item[LOW] <= y <= item[HIGH] else 0.0
        sums[INTERVALS] += 1.0
        sums[INSIDE] += inside
        outside = max(0.0, item[LOW] - y) + max(0.0, y - item[HIGH])
        sums[INTERVAL_SCORE] += item[HIGH] - item[LOW] + 2.0 / (1.0 - constants[COVERAGE]) * outside
        sums[HOURS + 2 * hour] += 1.0
        sums[HOURS + 2 * hour + 1] += inside


@register_jitable
def _learn_label(
    constants: Floats,
    state: Floats,
    item: Floats,
    y: float,
    off: float,
    P: Floats,
    W: Floats,
    top_P: Floats,
    top_w: Floats,
    size_P: Floats,
    size_w: Floats,
    size_x: Floats,
    climate: Floats,
    squares: Floats,
    choices: Floats,
    weights: Floats,
    ratios: Floats,
    g: Floats,
    targets: Floats,
    levels: Floats,
    calibration: Floats,
) -> None:
    """Learn from the label of a row: ``item`` holds what was known at that row, ``off`` how far the median was then."""
    full, small = int(constants[FULL]), int(constants[SMALL])
    phi = item[FEATURES:]
    event = constants[EVENT] > 0.0
    rows, evidence = constants[ROWS], constants[EVIDENCE]
    if event:
        targets[0] = y
        if item[UNCORRECTED] == item[UNCORRECTED]:
            _calibrate(item[UNCORRECTED], y, constants[STRIDE] / rows, calibration)
        _learn(top_P, top_w, 1, item[COMPONENTS + 6 :], targets, 6, TOP_FORGET, True, TOP_RIDGE * evidence, g)
        _learn(P[0], W[0], 1, phi, targets, full, 1.0, True, EVENT_RIDGES[0] * evidence, g)
        _learn(P[1], W[1], 1, phi, targets, full, FORGET, True, EVENT_RIDGES[1] * evidence, g)
        _learn(P[2], W[2], 1, phi, targets, small, 1.0, True, EVENT_RIDGES[2] * evidence, g)
        _learn(P[3], W[3], 1, phi, targets, small, 1.0, False, EVENT_RIDGES[3] * evidence, g)
    else:
        unit = item[UNIT]
        if unit != unit:
            return
        # (the deviation of what was constant until now is no measure)
        targets[0] = _within((y - item[BASE_NOW]) / unit, FARTHEST)
        targets[1] = _within((y - item[BASE_SEASON]) / unit, FARTHEST)
        _learn(P[0], W[0], 2, phi, targets, full, FORGET, False, NUMBER_RIDGES[0], g)
        _learn(P[1], W[1], 2, phi, targets, full, 1.0, False, NUMBER_RIDGES[1] * rows, g)
        _learn(P[2], W[2], 2, phi, targets, small, 1.0, False, NUMBER_RIDGES[2] * rows, g)
        _follow_members(constants, state, item, y, off, squares, choices, weights)
        size = abs(y - item[CENTRE])
        counted = state[RATIOS]
        state[ERROR] = (
            size
            if state[ERROR] <= 0.0
            else state[ERROR] + max(1.0 / 500.0, 1.0 / (counted + 1.0)) * (size - state[ERROR])
        )
        if state[SIZE] <= 0.0 and counted >= 20.0:
            state[SIZE] = max(state[ERROR], 1e-12)
        if state[SIZE] > 0.0:
            for i in range(small):
                size_x[i] = phi[i]
            for i in range(4):
                size_x[small + i] = abs(phi[1 + i])
            targets[0] = size / state[SIZE]
            _learn(size_P, size_w, 1, size_x, targets, small + 4, FORGET, False, SIZE_RIDGE, g)
        ratios[int(counted) % REMEMBERED_RATIOS] = (y - item[CENTRE]) / max(item[SIGMA], 1e-12)
        state[RATIOS] = counted + 1.0
        if counted >= 50.0 and int(counted) % RATIO_TICKS == 0:
            kept = np.sort(ratios[: int(min(counted + 1.0, REMEMBERED_RATIOS))])
            tail = 0.5 * (1.0 - constants[COVERAGE])
            state[Q_LOW] = kept[int(tail * (len(kept) - 1))]
            state[Q_MIDDLE] = kept[len(kept) // 2]
            state[Q_HIGH] = kept[math.ceil((1.0 - tail) * (len(kept) - 1))]
        if item[LOW] == item[LOW]:
            pace, tail = min(0.02, 0.5 / rows), 0.5 * (1.0 - constants[COVERAGE])
            state[LEVEL_LOW] += pace * ((1.0 if y < item[LOW] else 0.0) - tail)
            state[LEVEL_HIGH] += pace * ((1.0 if y > item[HIGH] else 0.0) - tail)
            hour, pace = int(item[KEY_HOUR]), constants[HOUR_PACE]
            levels[hour, 0] += pace * ((1.0 if y < item[LOW] else 0.0) - tail)
            levels[hour, 1] += pace * ((1.0 if y > item[HIGH] else 0.0) - tail)
    keys = (0, int(item[KEY_HOUR]), int(item[KEY_WEEK]), int(item[KEY_NOW]))
    for c in range(4):
        climate[c, keys[c], 0] += y
        climate[c, keys[c], 1] += 1.0
    state[LABELS] += 1.0


@register_jitable
def _follow_naive(shifted: Floats, row: float, y: float, sums: Floats, part: int) -> None:
    """Sum |y − the y of one day before| (of the row before, where rows are no parts of a day), the scale of MASE.

    A day is a number of rows here; ``shifted`` holds the y of each of the last ones, and the number of its row.
    """
    day = len(shifted[0])
    place = int(row) % day
    if shifted[1, place] == row - day:
        sums[2 + part, 0] += 1.0
        sums[2 + part, 1] += abs(y - shifted[0, place])
    shifted[0, place], shifted[1, place] = y, row


@jit_for((
    _r1, _f1, _r1, _r1, _r1, _b1, _r1, _r2, _f1, _f1, _f2, _f1, _f2, _f2, _f2, _f2, _f3, _f3, _f3, _f2, _f2, _f2, _f2,
    _f1, _f1, _f1, _f2, _f2, _f2, _f2, _f2, _f1, _f2, _f2,
))  # fmt: skip
def advance(
    constants: Floats, state: Floats, value: Floats, held: Floats, holds: Floats, gap: Flags, time: Floats,
    others: Floats, when: Floats, reading: Floats, pending: Floats, recent: Floats, traces: Floats,
    other_memory: Floats, memory: Floats, moments: Floats, climate: Floats, P: Floats, W: Floats, top_P: Floats,
    top_w: Floats, size_P: Floats, size_w: Floats, squares: Floats, ratios: Floats, td_phi: Floats, td_w: Floats,
    td_z: Floats, shifted: Floats, sums: Floats, levels: Floats, choices: Floats,
    calibration: Floats, out: Floats,
) -> int:  # fmt: skip
    """Answer at B rows and learn from the windows that they close.

    ``value`` (B,) are readings for labels, NaN where missing; ``held`` values or margins for features; ``holds``
    whether the condition is true now. ``when``, ``reading`` and ``pending`` have room for B more rows. ``out`` (B, 4)
    takes answer, low, high and usual. What waited and has closed stays in ``pending``, with its label as ``OUTCOME``.
    """
    full = int(constants[FULL])
    phi, g = np.zeros(full), np.zeros(full + 8)
    raw, seasons, hits = np.zeros(PLAIN + SEASONAL + 32), np.zeros(8), np.zeros(3)
    size_x, top_x, targets, td = np.zeros(full + 8), np.zeros(6), np.zeros(2), np.zeros(3)
    weights = np.zeros((3, MEMBERS))
    near = 1e-6 * constants[STEP]
    step, span, kind = constants[STEP], constants[SPAN], int(constants[KIND])
    event, condition = constants[EVENT] > 0.0, constants[CONDITION] > 0.0
    half = constants[HALF]
    for t in range(len(value)):
        now, row = time[t], state[ROW]
        begin, end = int(state[FIRST_READING]), int(state[END_READING])
        head, tail = int(state[FIRST_PENDING]), int(state[END_PENDING])
        if now < state[LAST_TIME] - near:
            # Time went back: what follows does not belong to the windows before.
            state[DROPPED] += tail - head
            for i in range(head, tail):
                pending[i, OUTCOME] = np.nan
            begin, head = end, tail
            for i in range(len(shifted[1])):
                shifted[1, i] = -np.inf
        if gap[t]:
            state[TD_OPEN] = 0.0
            for r in range(3):
                for i in range(full):
                    td_z[r, i] = 0.0
        state[LAST_TIME] = now
        when[end], reading[end] = now, value[t]
        end += 1
        if not condition and value[t] == value[t]:
            state[TIMES_LEAST] = 1.0 if value[t] < state[LEAST] else state[TIMES_LEAST] + (value[t] == state[LEAST])
            state[TIMES_MOST] = 1.0 if value[t] > state[MOST] else state[TIMES_MOST] + (value[t] == state[MOST])
            state[LEAST], state[MOST] = min(state[LEAST], value[t]), max(state[MOST], value[t])
            if kind == MEAN:
                state[SCALE_ROWS] += 1.0
                change = value[t] - state[ABSOLUTE]
                state[ABSOLUTE] += change / state[SCALE_ROWS]
                state[SCALE_SUM] += change * (value[t] - state[ABSOLUTE])
                state[TD_SQUARE] = state[SCALE_SUM] / state[SCALE_ROWS]
        if kind == AT and not event and value[t] == value[t]:
            _follow_naive(shifted, row, value[t], sums, 0 if row < half else 1)
        while head < tail:
            item = pending[head]
            due = item[AT_TIME] + span
            if now < due - constants[SLACK]:
                break
            if kind == AT and value[t] != value[t] and now <= due + 0.5 * step + near:
                # A reading nearer than half a step may still come.
                break
            while begin < end and when[begin] <= item[AT_TIME] + (near if kind != AT else span - 0.5 * step - near):
                begin += 1
            y = _label(constants, when, reading, begin, end, item[AT_TIME])
            part = 0 if item[AT_ROW] < half else 1
            off, item[OUTCOME] = item[OUTCOME], y
            if y == y:
                if kind != AT and not event:
                    _follow_naive(shifted, item[AT_ROW], y, sums, part)
                _add_scores(constants, item, y, sums[part])
                _learn_label(
                    constants, state, item, y, off, P, W, top_P, top_w, size_P, size_w, size_x, climate, squares,
                    choices, weights, ratios, g, targets, levels, calibration,
                )  # fmt: skip
            else:
                state[DROPPED] += 1.0
            head += 1
        u = held[t]
        state[SINCE] = 0.0 if holds[t] > 0.0 else state[SINCE] + 1.0
        item = pending[tail]
        item[AT_TIME], item[AT_ROW], item[OUTCOME] = now, row, np.nan
        _make_features(
            constants, state, u, holds[t], now, others[t], recent, traces, other_memory, memory, moments, climate, phi,
            item, raw, seasons, hits,
        )  # fmt: skip
        if kind in (ANY, FIRST, MEAN):
            _td(constants, state, u, value[t], phi, td_phi, td_w, td_z, full, td)
        if event:
            item[BASELINES + PERSISTENCE] = holds[t]
            _answer_event(constants, state, item, phi, P, W, top_w, top_x, climate, td, calibration)
        else:
            _answer_number(
                constants, state, item, phi, W, size_w, size_x, climate, squares, choices, weights, td, holds[t],
                seasons, hits, levels,
            )  # fmt: skip
        for i in range(full):
            item[FEATURES + i] = phi[i]
        out[t, 0], out[t, 1], out[t, 2], out[t, 3] = item[ANSWER], item[LOW], item[HIGH], item[USUAL]
        if row % constants[STRIDE] == 0.0:
            tail += 1
        state[ROW] = row + 1.0
        state[FIRST_READING], state[END_READING] = begin, end
        state[FIRST_PENDING], state[END_PENDING] = head, tail
    return 0
