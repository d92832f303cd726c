"""The loops over rows: features and answers, labels of windows that have closed, and what is learned from them.

Every operation is rounded as it stands, and what is learned changes at fixed rows only: bits do not depend on how rows
are cut into blocks. ``advance`` reads rows, the one at hand and those before it. ``close`` learns from rows whose
windows have ended.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

import numba
import numpy as np
from numba import types
from numba.extending import register_jitable

from emphatic.engines.compiled import inner, jit_for
from emphatic.gvfs.gvf import REACHED
from emphatic.nexting.answers import records
from emphatic.nexting.answers.records import (
    AGO,
    ANSWERS,
    ANY,
    AT,
    BREAK,
    CALENDAR,
    CHOICES,
    COMMON,
    CUTS,
    DEPARTURES,
    DRIFT,
    EDGES,
    FIRST,
    HELD,
    LAGS,
    LEVEL,
    MAX,
    MEAN_OF,
    MIN,
    MOVES,
    NOW,
    OTHER,
    OWN,
    PAST,
    PAST_INPUTS,
    PERIODS,
    RATIOS,
    REST,
    SCALES,
    SIMPLE,
    SPANS,
    TARGETS,
    TD,
    TRACE,
    WEIGHTED,
    Memory,
)  # fmt: skip

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    Integers = NDArray[np.int64]
    Record = Any

#: Places among the answers: what is usual by the longest period, and the regressions.
LAST_USUAL = SIMPLE - 1
RIDGE_NOW, RIDGE_USUAL, OWN_NOW, OWN_USUAL = range(SIMPLE, SIMPLE + 4)
#: Places among the features: the mean departure over the most rows; then what answers need of the row.
DEPARTURE = OWN + LEVEL - 1
LEAST, MOST, MOVE, FRACTIONS, BETWEEN, RISES = range(COMMON, COMMON + 6)
#: Rows over which a condition's greatest margin is known.
LATE = 24
#: The least weight of a new reading in what is usual, and the most that it is for labels of few rows; rows in which a
#: series' mean and deviation are found, which say where hinges lie.
RATE, MOST_RATE, SETTLING = 0.05, 0.2, 4000.0
#: Periods over which the rise from one to the next is averaged.
RISING = 2.0
#: Rows that are not learned from at first, learned rows before the combination, and the answer's size in deviations.
FIRST_ROWS, ENOUGH, LONGEST = 20, 30.0, 6
#: Windows after which a weight counts as much as what speaks for it, and by how many windows' errors an answer that
#: follows the signal must be better than the mean; the floor of a scale, as a share of the mean error.
SHRINK, SIMPLER, FLOOR = 40.0, 4.0, 0.2
#: Weight is moved so often at a time, at most.
MOVED = 80
#: Windows before there is a choice; what the mean squared error counts beside the absolute one, and what it costs to be
#: worse than a simple answer, and to leave the combination.
WINDOWS, SQUARED, WORSE, LEAVING = 30.0, 2.0, 20.0, 0.3
#: Slots of a window that are looked up; the share of the present departure that lasts; the most deviations of a margin.
LOOKED_UP, LASTING, FAR = 12, 0.7, 5.0
#: Log odds lie within this; the least weight p (1 − p) of a row; the least usual probability; the most rows ago.
MOST_ODDS, LEAST_WEIGHT, LEAST_USUAL, LONGEST_AGO = 6.0, 0.02, 0.001, 1000.0
#: The rate of errors by hour, and of the interval scores.
HOURLY, SCORING = 0.03, 0.0005


class RowBatch(NamedTuple):
    """Rows that are answered together, and room for what is made of them.

    Args:
        reading: Readings as labels know them (B, S), NaN where missing.
        present: The same, held (B, S).
        feature: Readings for features, held (B, S).
        learned: What TD predicts (B, L), NaN where it does not.
        calendar: Features of the calendar (B, CALENDAR).
        expected: How many rows there should have been up to each (B,).
        time: The time of each (B,).
        clock: What the clock says at each, as ``Memory.clock`` (B, 3 + PERIODS).
        common: Features of each series, and what answers need (S, B, KNOWN).
        margins: Margins of the conditions of each group, in deviations, and their past (G, B, 3 + PAST_INPUTS).
        out: Answer, low, high, and usual of each target (B, T, 4).
    """

    reading: Floats
    present: Floats
    feature: Floats
    learned: Floats
    calendar: Floats
    expected: Floats
    time: Floats
    clock: Integers
    common: Floats
    margins: Floats
    out: Floats


def _records(dtype: np.dtype[np.void], ndim: int) -> types.Type:
    return types.Array(numba.from_dtype(dtype), ndim, "C")


_f1, _f2, _f3 = (types.Array(types.float64, ndim, "C") for ndim in (1, 2, 3))
_i2 = types.Array(types.int64, 2, "C")
_memory = types.NamedTuple(  # type: ignore[no-untyped-call]
    (
        *(_records(getattr(records, name), 1) for name in ("Stream", "Series", "Group", "Target", "Arrival")),
        *(
            _f2,
            _records(records.Pending, 2),
            _f2,
            _f2,
            _f2,
            _f2,
            _f1,
            _f1,
            _i2,
            _records(records.Mean, 3),
            _records(records.Mean, 3),
        ),
        *(_f3, _f3, _f3, _f3, _f3, _records(records.Scored, 2), _i2, _f2, _records(records.Recent, 2)),
    ),
    Memory,
)
_rows = types.NamedTuple((*[_f2] * 5, _f1, _f1, _i2, _f3, _f3, _f3), RowBatch)  # type: ignore[no-untyped-call]


#: LLVM makes these functions a part of their callers: to hand all arrays over takes longer than most of them.
_inner = register_jitable(forceinline=True)


@_inner
def _average(mean: Record, v: float, rate: float) -> None:
    mean.n += 1.0
    mean.value += max(1.0 / mean.n, rate) * (v - mean.value)


@inner
def _dot(x: Floats, y: Floats, begin: int, count: int) -> float:
    """Σ x[k] y[begin + k], k < count."""
    total = 0.0
    for k in range(count):
        total += x[k] * y[begin + k]
    return total


@_inner
def _slot(s: Record, clock: NDArray[np.int64], p: int, n: int) -> int:
    """The slot of row n in a period, by the clock or by counting; −1 without one."""
    if s.slots[p] == 0:
        return -1
    return int(clock[2 + p] if s.dated[p] else n % s.slots[p])


# ------------------------------------------------------------------ labels


@_inner
def _label(memory: Memory, i: int, kind: int, n: int, e: int, h: float) -> float:
    """The label of series i over rows (n, e], NaN if it is not known.

    90% of the rows must have been read, of a weighted mean half of them: it is a mean of readings as they are held.
    """
    M = len(memory.expected) // 2 - 1
    z, reads, sums = memory.z[i], memory.reads[i], memory.sums[i]
    begin, end = n & M, e & M
    count, expected = reads[end] - reads[begin], memory.expected[end] - memory.expected[begin]
    if e <= n or count < 1.0 or expected >= BREAK:
        return np.nan
    if kind == AT:
        return z[end] if reads[end] > reads[(e - 1) & M] else np.nan
    if count < (0.5 if kind == WEIGHTED else 0.9) * expected - 1e-9:
        return np.nan
    if kind in (MEAN_OF, WEIGHTED):
        return float((sums[end] - sums[begin]) / count + memory.series[i].origin)
    if kind == ANY:
        return 1.0 if sums[end] - sums[begin] > 0.5 else 0.0
    extreme = np.inf if kind == MIN else -np.inf
    for k in range(begin + 1, begin + 1 + e - n):
        if reads[k] > reads[k - 1]:
            if kind == FIRST and z[k] > 0.0:
                return float(min((memory.time[k] - memory.time[begin]) / h, 1.0))
            extreme = min(extreme, z[k]) if kind == MIN else max(extreme, z[k])
    return 1.0 if kind == FIRST else extreme


@_inner
def _value_at(memory: Memory, i: int, n: int, e: int, end: int, o: Record) -> float:
    """The reading nearest to the end of the window of row n, at most half a step off, of rows that come when they come.

    Row e is the last of the window; rows before ``end`` have come.
    """
    M, stream = len(memory.expected) // 2 - 1, memory.stream[0]
    due, distance, nearest = memory.time[n & M] + o.span, 0.5 * stream.step * (1.0 + 1e-6), np.nan
    while e + 1 < end and memory.time[(e + 1) & M] < due + distance:
        e += 1
    for k in range(e, n, -1):
        off = abs(memory.time[k & M] - due)
        if memory.expected[k & M] - memory.expected[n & M] >= BREAK:
            continue
        if memory.time[k & M] < due and off > distance:
            break
        if off < distance and memory.reads[i, k & M] > memory.reads[i, (k - 1) & M]:
            nearest, distance = memory.z[i, k & M], off
    return nearest


@_inner
def _is_read(memory: Memory, n: int, e: int, o: Record) -> bool:
    """Whether the rows of a window up to row e, that come when they come, are not followed by a long gap."""
    M, stream = len(memory.expected) // 2 - 1, memory.stream[0]
    beyond = memory.time[n & M] + o.span - memory.time[e & M]
    if beyond <= stream.limit:
        return True
    count = memory.reads[o.series, e & M] - memory.reads[o.series, n & M]
    expected = memory.expected[e & M] - memory.expected[n & M] + beyond / stream.step - 1.0
    return bool(count >= 0.9 * expected - 1e-9)


# ------------------------------------------------------------------ features


@_inner
def _hold(s: Record, v: float, known: bool) -> None:
    """Count a reading, and its part in the range, the mean and the variance."""
    if not known:
        return
    s.readings += 1.0
    if s.readings == 1.0:
        s.lowest = s.highest = v
        s.latest = v
    s.fractions += v != np.floor(v)
    if v < s.lowest or v > s.highest:  # what was an end lies between the ends now
        s.between += (v < s.lowest < s.highest) + (v > s.highest > s.lowest)
    else:
        s.between += s.lowest < v < s.highest
    s.times_lowest = 1.0 if v < s.lowest else s.times_lowest + (v == s.lowest)
    s.times_highest = 1.0 if v > s.highest else s.times_highest + (v == s.highest)
    s.lowest, s.highest = min(s.lowest, v), max(s.highest, v)
    if s.readings <= SETTLING:
        s.mean += (v - s.mean) / s.readings
        s.variance += ((v - s.mean) ** 2 - s.variance) / s.readings


@_inner
def _remember_holding(s: Record, holds: bool) -> None:
    """How long ago a condition held, and how often."""
    s.since = 0.0 if holds else s.since + 1.0
    for k in range(len(HELD)):
        s.held[k] += ((1.0 if holds else 0.0) - s.held[k]) / min(float(HELD[k]), max(s.readings, 1.0))


@_inner
def _look_ahead(memory: Memory, o: Record, v: float, clock: NDArray[np.int64], n: int, margins: Floats) -> None:
    """The margin of a condition now, the usual one of the window, without and with the present departure, its past."""
    s, kind = memory.series[o.series], memory.targets[o.target].kind
    deviation = max(math.sqrt(s.variance), 1e-12)
    usual, departure = v, 0.0
    for p in range(PERIODS):
        slot = _slot(s, clock, p, n)
        if slot < 0 or memory.usual[o.series, p, slot].n == 0.0:
            continue
        departure = v - memory.usual[o.series, p, slot].value
        rows = s.periods[p] if s.periods[p] > 0 else s.slots[p]
        length = 1 if kind == AT else min(o.h, rows)
        stride = max(1, length // LOOKED_UP)
        total, count, most = 0.0, 0.0, -np.inf
        for k in range(o.h if kind == AT else stride, (o.h if kind == AT else length) + 1, stride):
            mean = memory.usual[o.series, p, (slot + int(k * s.slots[p] / rows)) % s.slots[p]]
            if mean.n > 0.0:
                total, count, most = total + mean.value, count + 1.0, max(most, mean.value)
        if count > 0.0:
            usual = total / count if kind == MEAN_OF else most
    margins[0] = v / deviation
    margins[1] = usual / deviation
    margins[2] = (usual + LASTING * departure) / deviation
    M, most = len(memory.expected) // 2 - 1, v
    for k in range(min(n + 1, LATE)):
        most = max(most, memory.x[o.series, (n - k) & M])
    margins[3] = most / deviation
    for j in range(4):
        margins[j] = min(max(margins[j], -FAR), FAR)
    margins[4] = math.log1p(min(s.since, LONGEST_AGO)) / 3.0
    for k in range(len(HELD)):
        margins[5 + k] = s.held[k]


@_inner
def _sense(memory: Memory, i: int, t: int, n: int, rows: RowBatch) -> None:
    """Series i at row n: its past, and its features."""
    M = len(memory.expected) // 2 - 1
    s, w, f = memory.series[i], n & M, rows.common[i, t]
    x, z, clock = memory.x[i], memory.z[i], memory.clock[w]
    v, present, reading = rows.feature[t, i], rows.present[t, i], rows.reading[t, i]
    known, previous = reading == reading, (n - 1) & M
    _hold(s, v, known)
    if s.readings == 1.0 and known and not s.is_condition:
        s.origin = reading
    total, count = (memory.sums[i, previous], memory.reads[i, previous]) if n > 0 else (0.0, 0.0)
    total, count = total + ((reading - s.origin) if known else 0.0), count + (1.0 if known else 0.0)
    for k in (w, w + M + 1):
        x[k], z[k], memory.sums[i, k], memory.reads[i, k] = v, present, total, count
    seen = max(s.readings, 1.0)
    for k in range(len(SPANS)):
        s.traces[k] += (v - s.traces[k]) / min(float(SPANS[k]), seen)
        f[k] = v - s.traces[k]
    for k in range(len(LAGS)):
        f[len(SPANS) + k] = v - x[max(n - LAGS[k], 0) & M]
    usual = v
    f[OWN] = v
    for p in range(PERIODS):
        f[OWN - PERIODS + p], f[OWN + 1 + p] = v - x[max(n - s.periods[p], 0) & M], 0.0
        if 0 < s.periods[p] <= n:
            s.rises[p] += (f[OWN - PERIODS + p] - s.rises[p]) / min(RISING * s.periods[p], n - s.periods[p] + 1.0)
        slot = _slot(s, clock, p, n)
        if slot >= 0:
            mean = memory.usual[i, p, slot]
            if mean.n > 0.0:
                usual = mean.value
                f[OWN + 1 + p] = v - usual
            if known:
                _average(mean, v, RATE * s.pace[p])
    for k in range(len(DEPARTURES)):
        s.departures[k] += (v - usual - s.departures[k]) / min(float(DEPARTURES[k]), seen)
        f[OWN + 1 + PERIODS + k] = s.departures[k]
    beyond = OWN + LEVEL
    for k in range(len(MOVES)):
        s.moves[k] += (abs(v - s.latest) - s.moves[k]) / min(float(MOVES[k]), seen)
        f[beyond + k] = s.moves[k]
    deviation = math.sqrt(s.variance)
    for k in range(3):
        f[beyond + 2 + k] = max(v - s.mean - (k - 1) * deviation, 0.0)
    for k in range(4):
        f[beyond + 5 + k] = (v - s.mean) * rows.calendar[t, k]
    for k in range(CALENDAR):
        f[beyond + REST + k] = rows.calendar[t, k]
    s.latest = v
    room = 0.1 * (s.highest - s.lowest)  # a bound that was reached ten times is one
    f[LEAST] = s.lowest - (room if s.times_lowest < REACHED else 0.0)
    f[MOST] = s.highest + (room if s.times_highest < REACHED else 0.0)
    if s.is_condition:
        f[LEAST], f[MOST] = 0.0, 1.0
        _remember_holding(s, present > 0.0)
    f[MOVE], f[FRACTIONS], f[BETWEEN] = s.moves[len(MOVES) - 1], s.fractions, s.between
    for p in range(PERIODS):
        f[RISES + p] = s.rises[p]


# ------------------------------------------------------------------ answers


@_inner
def _answer_simply(
    memory: Memory, o: Record, k: int, n: int, slots: NDArray[np.int64], known: Floats, answers: Floats
) -> None:
    """The answers that need no regression, at row n, of which ``known`` are the features of the series."""
    kind = memory.targets[o.target + k].kind
    M, i, h = len(memory.expected) // 2 - 1, o.series, o.h
    s, z = memory.series[i], memory.z[i]
    present, trace, past = z[n & M], o.trace, memory.targets[o.target + k].mean.value
    if kind in (MAX, MIN, ANY, FIRST):
        previous = _label(memory, i, kind, n - h, n, o.span) if n >= h else np.nan
        trace = previous if previous == previous else past
    if kind == FIRST:
        present = 1.0 / h if present > 0.0 else 1.0
    answers[NOW], answers[PAST], answers[TRACE], answers[DRIFT], usual = present, past, trace, present, past
    for p in range(PERIODS):
        period, ago = s.periods[p], present
        if 0 < period <= n:
            begin = n - period
            if kind == AT:
                ago = z[(begin + 1 + (h - 1) % period) & M]
            elif kind == WEIGHTED:
                length = min(period, LONGEST * h)
                fade = memory.fade[o.fade]
                share = 1.0 - (1.0 - 1.0 / h) ** length
                ago = _dot(fade, z, (begin + 1) & M, length) / (h * share)
            elif kind == MEAN_OF and h > period:
                periods, remainder = h // period, h % period
                of_period = _label(memory, i, kind, begin, n, o.span)
                of_part = _label(memory, i, kind, begin, begin + remainder, o.span) if remainder else 0.0
                ago = (periods * period * of_period + remainder * of_part) / h
            else:
                ago = _label(memory, i, kind, begin, begin + min(h, period), o.span)
            ago = ago if ago == ago else present
            risen = 1.0 if h <= period else (h + period - 1) // period if kind == AT else 0.5 * (1.0 + h / period)
            if kind == WEIGHTED:
                risen = 1.0 / (1.0 - (1.0 - 1.0 / h) ** period)
            answers[DRIFT] = ago if s.is_condition else ago + risen * known[RISES + p]
        if slots[p] >= 0:
            mean = memory.labels[o.target + k, p, slots[p]]
            usual = mean.value if mean.n > 0.0 else usual
            if p + 1 == PERIODS and mean.n > 0.0 and not s.is_condition:
                usual += known[DEPARTURE]
        answers[AGO + 2 * p], answers[AGO + 2 * p + 1] = ago, usual


@_inner
def _chosen(c: int, centre: float, off: float, present: float) -> float:
    return centre + 0.25 * c * off if c < 5 else present + 0.5 * (6 - c) * (centre - present)


@_inner
def _log_odds(p: float) -> float:
    p = min(max(p, LEAST_USUAL), 1.0 - LEAST_USUAL)
    return math.log(p / (1.0 - p))


@_inner
def _make_features(memory: Memory, o: Record, g: int, t: int, present: float, j: int, rows: RowBatch) -> None:
    """The features of a group at a row, clipped, whose simple answers are known."""
    f, K, i = memory.features[j], o.targets, o.series
    f[0], f[1], m = 1.0, present - o.trace, 2
    for k in range(K):
        answers = memory.pending[j, k].answers
        for a in range(DRIFT, SIMPLE):
            f[m] = answers[a] - answers[NOW]
            m += 1
    if memory.series[i].is_condition:
        for a in range(3):
            margin = rows.margins[g, t, a]
            f[m] = margin
            m += 1
            for edge in EDGES:
                f[m] = max(margin - edge, 0.0)
                m += 1
        f[m] = rows.margins[g, t, 0] * rows.margins[g, t, 1] / 3.0
        f[m + 1] = rows.margins[g, t, 0] * rows.margins[g, t, 2] / 3.0
        m += 2
        for a in range(3, 3 + PAST_INPUTS):
            f[m] = rows.margins[g, t, a]
            m += 1
        answers = memory.pending[j, 0].answers
        for p in range(1 + PERIODS):
            odds = _log_odds(answers[PAST if p == PERIODS else AGO + 2 * p + 1])
            f[m] = 0.5 * odds if o.is_event else 0.0
            m += 1
    for c in range(COMMON):
        f[m + c] = rows.common[i, t, c]
    m += COMMON
    for signal in memory.related[i, : (o.features - m) // len(OTHER)]:
        for c in OTHER:
            f[m] = rows.common[signal, t, c]
            m += 1
    for m in range(o.features):
        f[m] = min(max(f[m], memory.clip[g, 0, m]), memory.clip[g, 1, m])


@_inner
def _combine(answers: Floats, weights: Floats, least: float, most: float) -> float:
    centre = 0.0
    for a in range(ANSWERS):
        answers[a] = min(max(answers[a], least), most)
        centre += weights[a] * answers[a]
    return min(max(centre, least), most)


@_inner
def _answer_number(
    memory: Memory, o: Record, k: int, item: Record, size: float, hour: int, known: Floats, out: Floats
) -> None:
    """Combine the answers to a question about a number, choose, and set the band."""
    target, h = memory.targets[o.target + k], o.h
    least, most = known[LEAST], known[MOST]
    centre = _combine(item.answers, target.weights, least, most)
    mean = target.absolute[SIMPLE]
    item.scale[0], item.scale[1] = mean, 0.5 * (mean + target.hourly[hour])
    item.scale[2], item.scale[3] = 0.5 * (mean + size), known[MOVE]
    for b in range(SCALES):
        item.scale[b] = max(item.scale[b], FLOOR * mean, 1e-12)
    off = min(item.scale[2], mean) * target.middle * o.rows / (o.rows + 2.0 * h / o.stride)
    final = min(max(_chosen(target.choice, centre, off, item.answers[NOW]), least), most)
    is_reading = target.kind in (AT, MAX, MIN)
    for b in range(SCALES):
        low = min(centre + item.scale[b] * (target.low[b] - target.moved[b, 0]), final)
        high = max(centre + item.scale[b] * (target.high[b] + target.moved[b, 1]), final)
        item.low[b], item.high[b] = max(low, least), min(high, most)
        if is_reading and known[FRACTIONS] == 0.0:
            item.low[b], item.high[b] = np.floor(item.low[b]), np.ceil(item.high[b])
    item.centre, item.off, item.final = centre, off, final
    out[0], out[1], out[2], out[3] = final, item.low[target.scale], item.high[target.scale], item.answers[LAST_USUAL]
    if target.kind == WEIGHTED:  # (errors of labels lack those of the answer at the end of the window)
        wide = (1.0 - (1.0 - 1.0 / h) ** (2.0 * h)) ** -0.5
        out[1] = max(final + wide * (out[1] - final), least)
        out[2] = min(final + wide * (out[2] - final), most)
    # (of two values, the answer says how likely each)
    if o.solved_at == 0.0 or target.mean.n < ENOUGH or (is_reading and known[BETWEEN] == 0.0):
        out[1] = out[2] = np.nan
    item.ends[0], item.ends[1] = out[1], out[2]


@_inner
def _answer_event(memory: Memory, o: Record, item: Record, out: Floats) -> None:
    """Combine the probabilities of an event."""
    target, margin = memory.targets[o.target], 0.5 / (o.rows + 2.0)
    centre = _combine(item.answers, target.weights, margin, 1.0 - margin)
    item.centre = item.final = centre
    out[0], out[1], out[2], out[3] = centre, np.nan, np.nan, item.answers[LAST_USUAL]


@_inner
def _note(memory: Memory, target: int, n: int, is_read: bool, out: Floats) -> None:
    """Remember what was answered at row n: nothing before the first reading."""
    if not is_read:
        out[:] = np.nan
    row = memory.recent[target, n % memory.recent.shape[1]]
    row.row, row.answer, row.low, row.high, row.usual, row.label = float(n), out[0], out[1], out[2], out[3], np.nan


@_inner
def _answer(memory: Memory, g: int, t: int, n: int, rows: RowBatch, said: Floats) -> None:
    """The answers of group g at row n."""
    M, o = len(memory.expected) // 2 - 1, memory.groups[g]
    i, clock, w = o.series, memory.clock[n & M], memory.weights[g]
    z = memory.z[i, n & M]
    j = o.begin + (n // o.stride % o.room if n % o.stride == 0 else o.room)
    at = memory.arrivals[j]
    at.cell, at.hour = clock[0], clock[1]
    is_read = memory.reads[i, n & M] > 0.0
    at.is_there = clock[2 + PERIODS] if is_read else 0
    for p in range(PERIODS):
        at.slots[p] = _slot(memory.series[i], clock, p, n)
    o.trace += (z - o.trace) / min(float(o.h), n + 1.0)
    for k in range(o.targets):
        _answer_simply(memory, o, k, n, at.slots, rows.common[i, t], memory.pending[j, k].answers)
    _make_features(memory, o, g, t, z, j, rows)
    f = memory.features[j]
    for side in range(5):
        for k in range(side * TARGETS, side * TARGETS + o.targets):
            said[k] = memory.effects[g, at.cell, k] + _dot(w[k], f, 0, o.features if side < 3 else o.own)
    if o.is_event:
        item = memory.pending[j, 0]
        at.odds = min(max(said[0], -MOST_ODDS), MOST_ODDS)
        by_own = min(max(said[3 * TARGETS], -MOST_ODDS), MOST_ODDS)
        item.answers[TD] = item.answers[PAST]
        for a in range(RIDGE_NOW, TD):
            odds = at.odds if a < OWN_NOW else by_own
            item.answers[a] = 1.0 / (1.0 + math.exp(-odds)) if o.solved_at > 0.0 else item.answers[PAST]
        _answer_event(memory, o, item, rows.out[t, o.target])
        _note(memory, o.target, n, is_read, rows.out[t, o.target])
        return
    for k in range(o.targets):
        item = memory.pending[j, k]
        item.answers[RIDGE_NOW] = item.answers[NOW] + said[k]
        item.answers[RIDGE_USUAL] = item.answers[LAST_USUAL] + said[TARGETS + k]
        item.answers[OWN_NOW] = item.answers[NOW] + said[3 * TARGETS + k]
        learned = rows.learned[t, o.learner] if o.learner >= 0 else np.nan
        item.answers[TD] = learned if learned == learned else item.answers[PAST]
        item.answers[OWN_USUAL] = item.answers[LAST_USUAL] + said[4 * TARGETS + k]
        _answer_number(memory, o, k, item, said[2 * TARGETS + k], at.hour, rows.common[i, t], rows.out[t, o.target + k])
        _note(memory, o.target + k, n, is_read, rows.out[t, o.target + k])


@jit_for((_memory, types.int64, _rows, _f1), fastmath=False, allocates=False)
def advance(memory: Memory, row: int, rows: RowBatch, said: Floats) -> int:
    """Answer at rows, the first of which is number ``row``; nothing is learned but what is usual.

    ``said`` has room for what a regression says.
    """
    M, g = len(memory.expected) // 2 - 1, 0
    for t in range(len(rows.out)):
        for k in ((row + t) & M, ((row + t) & M) + M + 1):
            memory.expected[k], memory.time[k] = rows.expected[t], rows.time[t]
            for c in range(rows.clock.shape[1]):
                memory.clock[k, c] = rows.clock[t, c]
    for i in range(len(memory.series)):
        begin = g
        for t in range(len(rows.out)):
            n = row + t
            _sense(memory, i, t, n, rows)
            g = begin
            while g < len(memory.groups) and memory.groups[g].series == i:
                if memory.series[i].is_condition:
                    v = rows.feature[t, i]
                    _look_ahead(memory, memory.groups[g], v, memory.clock[n & M], n, rows.margins[g, t])
                g += 1
    for g in range(len(memory.groups)):
        for t in range(len(rows.out)):
            _answer(memory, g, t, row + t, rows, said)
    return 0


# ------------------------------------------------------------------ learning


@_inner
def _add_score(memory: Memory, o: Record, k: int, n: int, y: float, hour: int, item: Record) -> None:
    """Score what was answered at row n."""
    stream, target = memory.stream[0], memory.targets[o.target + k]
    row = memory.recent[o.target + k, n % memory.recent.shape[1]]
    if row.row == n:
        row.label = y
    block = 0 if n < stream.half else 1 + (n - stream.half) // stream.block
    sums = memory.scores[o.target + k, block]
    error = item.final - y
    sums.rows += 1.0
    sums.label += y
    sums.label_square += y * y
    sums.square += error * error
    sums.absolute += abs(error)
    sums.td_square += (item.answers[TD] - y) * (item.answers[TD] - y)
    for a in range(SIMPLE):
        off = item.answers[a] - y
        sums.baseline_square[a] += off * off
        sums.baseline_absolute[a] += abs(off)
    if o.is_event and block > 0:
        c = 0
        while c < len(CUTS) and item.final > CUTS[c]:
            c += 1
        target.cuts[c, 0] += 1.0
        target.cuts[c, 1] += item.final
        target.cuts[c, 2] += y
    low, high = item.ends[0], item.ends[1]
    if o.is_event or low != low:
        return
    outside = max(0.0, low - y) + max(0.0, y - high)
    sums.intervals += 1.0
    sums.inside += 1.0 if outside == 0.0 else 0.0
    sums.interval_score += high - low + 2.0 / (1.0 - stream.coverage) * outside
    if block > 0:
        target.bands[hour, 0] += 1.0
        target.bands[hour, 1] += 1.0 if outside == 0.0 else 0.0


@_inner
def _score_returns(memory: Memory, o: Record, end: int) -> None:
    """Score a weighted mean where the readings of .99 of the weights have come before row ``end``."""
    M, i, fade = len(memory.expected) // 2 - 1, o.series, memory.fade[o.fade]
    while o.scored + o.far < end and o.scored < o.closed and o.far < len(fade):
        n, j = o.scored, o.begin + o.scored // o.stride % o.room
        o.scored += o.stride
        mean, at = _label(memory, i, WEIGHTED, n, n + o.far, o.span), memory.arrivals[j]
        if at.is_there and n >= FIRST_ROWS and mean == mean:
            label = _dot(fade, memory.z[i], (n + 1) & M, o.far) / (o.h * (1.0 - fade[o.far]))
            _add_score(memory, o, 0, n, label, at.hour, memory.pending[j, 0])


@_inner
def _follow(memory: Memory, o: Record, k: int, y: float, hour: int, item: Record) -> None:
    """Errors of all answers and choices, sizes of errors, ratios, misses of the bands."""
    target, ratios = memory.targets[o.target + k], memory.ratios[o.target + k]
    errors, answers = target.errors, item.answers
    rows = target.mean.n
    weight, rate = rows * rows, 2.0 / (rows + 1.0)
    for a in range(ANSWERS):
        for b in range(a + 1):
            errors[a, b] += weight * (answers[a] - y) * (answers[b] - y)
    for c in range(SIMPLE + CHOICES):
        e = answers[c] - y if c < SIMPLE else _chosen(c - SIMPLE, item.centre, item.off, answers[NOW]) - y
        target.absolute[c] += rate * (abs(e) - target.absolute[c])
        target.squares[c] += rate * (e * e - target.squares[c])
    size = abs(y - item.centre)
    target.hourly[hour] += (HOURLY if target.hourly[hour] > 0.0 else 1.0) * (size - target.hourly[hour])
    if o.is_event:
        return
    place, tail = int(rows - 1.0) % RATIOS, 0.5 * (1.0 - memory.stream[0].coverage)
    step = min(0.02, 0.5 * o.stride / o.h)
    for b in range(SCALES):
        ratios[b, place] = (y - item.centre) / item.scale[b] if item.scale[b] > 0.0 else 0.0
        if o.solved_at > 0.0:
            low, high = item.low[b], item.high[b]
            target.moved[b, 0] += step * ((1.0 if y < low else 0.0) - tail)
            target.moved[b, 1] += step * ((1.0 if y > high else 0.0) - tail)
            score = high - low + (max(low - y, 0.0) + max(y - high, 0.0)) / tail
            target.interval[b] += max(SCORING, rate) * (score - target.interval[b])


@_inner
def _regress(memory: Memory, o: Record, g: int, j: int, labels: Floats, row: Floats) -> float:
    """Features and right-hand sides of a row, for the sums of their products; returns what it is multiplied by."""
    d, K, at = o.features, o.targets, memory.arrivals[j]
    weight = math.sqrt(o.rows)  # row n counts n
    if o.is_event:  # logistic regression: working responses, weighted by p (1 − p)
        p = 1.0 / (1.0 + math.exp(-at.odds))
        v = max(p * (1.0 - p), LEAST_WEIGHT)
        weight *= math.sqrt(v)
        row[d] = at.odds + (labels[0] - p) / v
    else:
        for k in range(K):
            item = memory.pending[j, k]
            row[d + k] = labels[k] - item.answers[NOW]
            row[d + K + k] = labels[k] - item.answers[LAST_USUAL]
            row[d + 2 * K + k] = abs(labels[k] - item.centre)
    for m in range(d):
        row[m] = memory.features[j, m]
    sums = memory.hours[g, at.cell]
    for m in range(len(row)):
        row[m] *= weight
        sums[m] += weight * row[m]
    return float(weight)


@_inner
def _then(memory: Memory, o: Record, n: int, e: int) -> int:
    """The last row in the window (n, e] that waits for a label itself."""
    return int(min(e, n + len(memory.fade[o.fade]) - 1) // o.stride * o.stride)


@_inner
def _window_end(memory: Memory, o: Record, n: int, end: int) -> int:
    """The last row of the window of row n, −1 if it has not closed before row ``end``."""
    stream = memory.stream[0]
    if stream.regular:
        return n + o.h if n + o.h < end else -1
    M, e = len(memory.expected) // 2 - 1, max(o.end, n)
    if memory.expected[n & M] - memory.expected[max(n - o.stride, 0) & M] >= BREAK:
        e = n  # (time went back)
    latest = memory.time[n & M] + o.span + stream.slack
    while e + 1 < end and memory.time[(e + 1) & M] <= latest:
        e += 1
    o.end = e
    over = 0.5 * stream.step if memory.targets[o.target].kind == AT else 0.0
    return e if e + 1 < end and memory.time[(end - 1) & M] > latest + over else -1


@_inner
def _read_labels(memory: Memory, o: Record, n: int, e: int, end: int, labels: Floats) -> bool:
    """The labels of row n, whose window ends with row e; False if none is known."""
    M, i, known = len(memory.expected) // 2 - 1, o.series, False
    regular = memory.stream[0].regular
    for k in range(o.targets):
        kind = memory.targets[o.target + k].kind
        labels[k] = (
            _value_at(memory, i, n, e, end, o) if kind == AT and not regular else _label(memory, i, kind, n, e, o.span)
        )
        if not regular and kind != AT and not _is_read(memory, n, e, o):
            labels[k] = np.nan
        if kind == WEIGHTED and labels[k] == labels[k]:
            # readings up to a row whose answer is known, and from there that answer
            then = _then(memory, o, n, e)
            fade, lead = memory.fade[o.fade], then - n
            beyond = memory.pending[o.begin + then // o.stride % o.room, k].centre
            labels[k] = _dot(fade, memory.z[i], (n + 1) & M, lead) / o.h + fade[lead] * beyond
        known = known or labels[k] == labels[k]
    return known


@_inner
def _convex(R: Floats, windows: float, w: Floats, A: Floats, slope: Floats) -> None:
    """argmin wᵀ(R + ridge · diag R) w, w ≥ 0, Σ w = 1: weight moves pair by pair; R is a lower triangle.

    ``A`` becomes that matrix, and ``slope`` its product with w.
    """
    least = np.inf
    for a in range(len(w)):
        least = min(least, R[a, a])
    for a in range(len(w)):
        for b in range(a + 1):
            A[a, b] = A[b, a] = R[a, b]
        A[a, a] += SHRINK / windows * (A[a, a] - least) + (SIMPLER / windows * A[a, a] if a > PAST else 0.0)
    for a in range(len(w)):
        slope[a] = 0.0
        for b in range(len(w)):
            slope[a] += A[a, b] * w[b]
    for _ in range(MOVED):
        a, b = 0, -1
        for j in range(len(w)):
            if slope[j] < slope[a]:
                a = j
            if w[j] > 1e-9 and (b < 0 or slope[j] > slope[b]):
                b = j
        if slope[b] - slope[a] <= 1e-9 * abs(slope[a]):
            break
        s = min(w[b], (slope[b] - slope[a]) / max(A[a, a] + A[b, b] - 2.0 * A[a, b], 1e-300))
        w[a] += s
        w[b] -= s
        for j in range(len(w)):
            slope[j] += s * (A[j, a] - A[j, b])


@jit_for((_memory, types.int64, types.int64, _f2, _f1, _f2, _f1), fastmath=False, allocates=False)
def close(memory: Memory, g: int, end: int, Z: Floats, labels: Floats, A: Floats, slope: Floats) -> int:
    """Learn from the rows of group g whose windows closed before row ``end``, and put them into Z; returns how many.

    Z (rows, d + right-hand sides) has room for those that may have closed; ``labels``, ``A`` and ``slope`` for the
    labels of a row, and what weights are found with.
    """
    o, used = memory.groups[g], 0
    n = o.closed
    while used < len(Z):
        e = _window_end(memory, o, n, end)
        if e < 0:
            break
        j = o.begin + n // o.stride % o.room
        at = memory.arrivals[j]
        known = at.is_there and _read_labels(memory, o, n, e, end, labels)
        if known and n >= FIRST_ROWS:
            o.rows += 1.0
            for k in range(o.targets):
                item, target = memory.pending[j, k], memory.targets[o.target + k]
                if labels[k] != labels[k]:  # (the regression is told that the answer was right)
                    labels[k] = item.centre
                    target.dropped += 1.0
                    continue
                if target.kind != WEIGHTED:
                    _add_score(memory, o, k, n, labels[k], at.hour, item)
                _average(target.mean, labels[k], 0.0)
                _follow(memory, o, k, labels[k], at.hour, item)
                for p in range(PERIODS):
                    pace = min(RATE * memory.series[o.series].pace[p] * o.stride, MOST_RATE)
                    if at.slots[p] >= 0:
                        _average(memory.labels[o.target + k, p, at.slots[p]], labels[k], pace)
            _regress(memory, o, g, j, labels, Z[used])
            used += 1
        elif at.is_there and not known:
            for k in range(o.targets):
                memory.targets[o.target + k].dropped += 1.0
        n += o.stride
    o.closed = n
    if memory.targets[o.target].kind == WEIGHTED:
        _score_returns(memory, o, end)
    else:
        o.scored = n
    if o.rows >= ENOUGH and used:
        for k in range(o.targets):
            target = memory.targets[o.target + k]
            if target.mean.n >= ENOUGH:
                _convex(target.errors, target.mean.n * o.stride / o.h, target.weights, A, slope)
    return used


@jit_for((_memory, types.int64), fastmath=False)
def decide(memory: Memory, g: int) -> int:
    """Quantiles of error / scale, the best scale, and the choice that is no worse than the simple answers."""
    o = memory.groups[g]
    tail = 0.5 * (1.0 - memory.stream[0].coverage)
    if o.is_event:
        return 0
    for k in range(o.targets):
        target = memory.targets[o.target + k]
        count, windows = min(int(target.mean.n), RATIOS), target.mean.n * o.stride / o.h
        if count == 0:
            continue
        for b in range(SCALES):
            ratios = np.sort(memory.ratios[o.target + k, b, :count])
            target.low[b] = ratios[int(tail * (count - 1))]
            target.high[b] = ratios[math.ceil((1.0 - tail) * (count - 1))]
            if b == 2:
                target.middle = ratios[count // 2]
            if o.solved_at > 0.0 and target.interval[b] < target.interval[target.scale]:
                target.scale = b
        square = size = np.inf
        for a in range(SIMPLE):
            square, size = min(square, target.squares[a]), min(size, target.absolute[a])
        square, size, least = max(square, 1e-30), max(size, 1e-30), np.inf
        variance = max(target.squares[PAST], 1e-30)
        choices = 1 if windows <= WINDOWS or target.kind == WEIGHTED else CHOICES if target.kind == AT else CHOICES - 1
        for c in range(choices):
            off, squared = target.absolute[SIMPLE + c] / size, target.squares[SIMPLE + c]
            worse = max(0.0, off - 1.0) + max(0.0, (squared - square) / variance)
            cost = (
                off
                + SQUARED * math.sqrt(squared / square)
                + WORSE * worse
                + (LEAVING / math.sqrt(windows) if c else 0.0)
            )
            if cost < least:
                target.choice, least = c, cost
    return 0
