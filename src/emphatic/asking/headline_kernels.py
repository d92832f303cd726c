"""The loop over the rows for the values and means of all signals at all horizons: one matrix a horizon for all signals.

At a row, ``OWN`` features are made of each signal. A selection of those of all signals, with the calendar and readings
of others, are the features of the shared matrix, of which there is one a horizon. Its right-hand sides are all labels
of that horizon: they close at the same row, so that one gain serves all. Beside it stands a small matrix of each
signal. Rows are gone through one by one, so that bits do not depend on how a stream is cut into blocks.

What is done for every signal is done for eight of them at a time (``engines.lanes``). So signals lie side by side in
the last axis of an array, which is padded to L, a multiple of eight; the numbers beyond the signals mean nothing. A
target is the value (kind 0) or the mean (kind 1) of a signal, that of signal s at kind · L + s.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
from numba import types
from numba.extending import register_jitable

from emphatic.asking.layout import (
    ABS,
    BASELINE_ABS,
    BASELINE_COUNT,
    BASELINE_SQUARE,
    BINS_A,
    BINS_B,
    CONSTANTS,
    COUNT,
    COVERAGE,
    CYCLES,
    HALF,
    HOURS,
    INSIDE,
    INTERVAL_SCORE,
    INTERVALS,
    LABEL,
    LABEL_SQUARE,
    LAGS,
    LIMIT,
    MARGIN,
    MOST_POWER,
    NEARLY,
    NUMBER_HINGES,
    OFFSET_A,
    OFFSET_B,
    PERIOD_A,
    PERIOD_B,
    POWER,
    POWER_WINDOW,
    RECENT,
    REGULAR,
    SEASON_RATE,
    SHARE,
    SHARE_WINDOWS,
    SHIFT,
    SIMPLE_POWER,
    SIMPLE_POWER_WINDOW,
    SLACK,
    SLOTS_A,
    SLOTS_B,
    SQUARE,
    STEP,
    SUMS,
    TRACES,
    UNSCALED,
    WEEKLY,
)  # fmt: skip
from emphatic.engines.compiled import jit_for
from emphatic.engines.lanes import (
    WIDTH,
    every,
    larger,
    load,
    load_row,
    mirror,
    power,
    root,
    select,
    smaller,
    store,
    store_row,
    tally,
    total,
)  # fmt: skip
from emphatic.questions.gvf import REACHED

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from emphatic.engines.lanes import Numbers, Truths

    Floats = NDArray[np.float64]
    Places = NDArray[np.int64]

_f1, _f2, _f3, _f4 = (types.Array(types.float64, ndim, "C") for ndim in (1, 2, 3, 4))
_r1, _r2, _r3 = (types.Array(types.float64, ndim, "C", readonly=True) for ndim in (1, 2, 3))
_i1 = types.Array(types.int64, 1, "C", readonly=True)

# What is fixed, after the constants of a question: features of a signal and of the shared matrix, those of it that are
# not of a signal that is predicted, and the rows between two readings that the scale of errors is made of.
OWN, SHARED, EXTRA, DAY_STRIDE = range(CONSTANTS, CONSTANTS + 4)
ALL_CONSTANTS = CONSTANTS + 4
# What is fixed for a horizon: its length in time and rows, how often a row is scored and learned from, where its
# answers and features wait and how many there is room for, the points of a window at which the season is looked up,
# and the rows between two that are remembered for plots.
(
    SPAN, ROWS, KEEP, STRIDE, RECORD_AT, RECORD_ROOM, STORED_AT, STORED_ROOM, LOOK_BEGIN, LOOK_COUNT, LOOK_STRIDE,
    FADING, PLOT_STRIDE,
) = range(13)  # fmt: skip
HORIZON = 13
# What is carried from row to row: by the stream, by a horizon.
ROW, LAST_TIME, FIRST_ROW = range(3)
FIRST_RECORD, END_RECORD, FIRST_STORED, END_LABELLED, END_STORED, BEGIN_AT, BEGIN_MEAN, BLOCK_ROWS = range(8)
# What waits for a label: the row, then what was answered and the simple answers, each of all targets.
R_TIME, R_ROW, R_HOUR, R_STORED = range(4)
RECORD = 4
R_ANSWER, R_LOW, R_HIGH, R_NOW, R_MEAN, R_USUAL, R_LAST_A, R_LAST_B, R_CENTRE, R_SIGMA = range(10)
RECORD_FIELDS = 10
#: The component answers of a target: two of the shared matrix, two of the signal's own, now, the last of the long cycle
#: and of the short one (or of the period that was found), the usual answer, the mean so far, the exponential mean of
#: the same horizon.
MEMBERS = 10
#: What may be answered in the end: the combination, the median by a quarter, a half, three quarters and in full,
#: halfway to now, now, the usual answer. They are remembered after the component answers.
CHOICES = 8
ENTRIES = MEMBERS + CHOICES
# The state of a target.
(
    LABELS, DROPPED, LABEL_SUM, ERROR, SIZE, RATIOS, LEVEL_LOW, LEVEL_HIGH, Q_LOW, Q_MIDDLE, Q_HIGH, SQUARES,
) = range(12)  # fmt: skip
#: Mean squared and absolute errors of the choices, and absolute ones of the last of either cycle.
CHOICE_SQUARES = SQUARES + MEMBERS
CHOICE_ABS = CHOICE_SQUARES + CHOICES
LAST_ABS = CHOICE_ABS + CHOICES
#: The weights of the component answers, and the choice; −1 for the combination itself.
WEIGHTS = LAST_ABS + 2
CHOICE = WEIGHTS + MEMBERS
#: The weights of all component answers and of the simple ones alone, of which those are mixed, and how far the one
#: combination goes beyond the other and how far it should.
EVERY = CHOICE + 1
SIMPLE = EVERY + MEMBERS
ALONG, AROUND = SIMPLE + MEMBERS, SIMPLE + MEMBERS + 1
TARGET = AROUND + 1
#: Features of a signal: itself, its past, hinges, sizes, the exponential mean; those of the season.
PLAIN, PAST, SEASONAL = 11, 20, 18
FORECAST = 19
#: Rows whose sums are remembered, so that a long window is summed quickly and a far reading leaves no trace.
BLOCK = 64
#: Readings that are remembered for lags and the deviation.
REMEMBERED = 13
#: The ridge of the shared matrix, that of a signal for each row of its window, forgetting, labels before which the
#: present value is answered, and rows that errors are averaged over.
SHARED_RIDGE, OWN_RIDGE, FORGET, UNLEARNED, ERROR_ROWS = 30.0, 10.0, 1.0 - 1.0 / 4000.0, 20.0, 4000.0
#: Rows that the matrices learn from together, and after how many each of the first batches is longer by one.
BATCH, GROWS = 8, 64
#: The features of a matrix are padded with zeros to a multiple of eight, so that loops have no remainder. A row of a
#: batch has room for so many: that it is the same for all matrices lets a loop read several rows at once.
WIDE = 160
#: Room for a batch: its rows, their products with a matrix, and three small matrices.
BATCH_SCRATCH = 3 * BATCH * WIDE + 3 * BATCH * BATCH
#: Labelled rows of a horizon after which its matrices learn from one in so many, which then counts as all of them.
MANY, THIN = 32768, 2
#: Slow quantities (deviations, weights of component answers) are found anew at each row, or label, of the first so
#: many, and then at one in so many.
PROMPT, SELDOM = 256, 8
#: Ratios of errors to their expected size that are remembered, and where they are in order, infinite where there are
#: none yet. The last of each few of these are beside each other once more, so that one is found quickly.
REMEMBERED_RATIOS = ORDERED = 400
LASTS, APART, RATIO_ROOM = 2 * REMEMBERED_RATIOS, 2 * WIDTH, 2 * REMEMBERED_RATIOS + 4 * WIDTH
#: Labels before which the combination itself is answered, and what it costs to be worse than a simple answer.
UNCHOSEN, WORSE = 50.0, 20.0
#: Windows before which the combination itself is answered.
ENOUGH = 10.0
#: Sums of a block of rows for the verdict: rows, the answer, labels and their squares, the baselines.
BLOCK_SUMS = 4 + BASELINE_COUNT
#: Rows that are remembered for plots.
PLOTTED = 256
#: The most that a target may be, in standard deviations of its signal, and that a standardised feature may be.
FARTHEST, CLIP = 50.0, 5.0
#: Rows that periods are found in, and the points of a period at which it is looked up.
PERIOD_ROWS, PERIOD_POINTS = 8192, 12


def scratch_size(signals: int, width: int, extra: int) -> int:
    """Room for intermediate results, for so many features of a signal and others."""
    L = -(-signals // WIDTH) * WIDTH
    matrices = BATCH_SCRATCH + BATCH * (4 * signals + 6) + WIDE
    return matrices + L * (width + 26) + 4 * signals + signals * width + extra + 6 * WIDTH


#: LLVM makes these functions a part of ``advance``: called as they are, a process that has just compiled it would use
#: other copies of them, with other last bits, than one that reads it from the disk.
_inner = register_jitable(forceinline=True)


@_inner
def _within(value: Numbers, most: float) -> Numbers:
    return smaller(most, larger(-most, value))


@_inner
def _slot(time: float, period: float, offset: float, shift: float, slots: float) -> int:
    phase = (time + offset) / period
    slot = int((phase - math.floor(phase)) * slots + shift)
    return slot - int(slots) if slot >= slots else slot


@_inner
def _multiply(P: Floats, X: Floats, G: Floats) -> None:
    """The rows X P, of a symmetric matrix P, into ``G``; in ``X`` the rows lie side by side."""
    for j in range(0, len(P), WIDTH):
        a = b = c = d = e = f = g = h = every(0.0)
        for i in range(len(P)):
            row, at = load_row(P, i, j), BATCH * i
            a, b, c, d = a + X[at] * row, b + X[at + 1] * row, c + X[at + 2] * row, d + X[at + 3] * row
            e, f, g, h = e + X[at + 4] * row, f + X[at + 5] * row, g + X[at + 6] * row, h + X[at + 7] * row
        store(G, j, a)
        store(G, WIDE + j, b)
        store(G, 2 * WIDE + j, c)
        store(G, 3 * WIDE + j, d)
        store(G, 4 * WIDE + j, e)
        store(G, 5 * WIDE + j, f)
        store(G, 6 * WIDE + j, g)
        store(G, 7 * WIDE + j, h)


@_inner
def _subtract_products(
    rows: Floats, scale: float, L: Floats, step: int, stride: int, R: Floats, is_symmetric: bool
) -> None:
    """rows ← scale · rows − L R, where L[i, r] lies at i · ``step`` + r · ``stride``.

    Of a result that ``is_symmetric``, half is computed.
    """
    for j in range(0, rows.shape[1], WIDTH):
        a, b, c, d = load(R, j), load(R, WIDE + j), load(R, 2 * WIDE + j), load(R, 3 * WIDE + j)
        e, f, g, h = load(R, 4 * WIDE + j), load(R, 5 * WIDE + j), load(R, 6 * WIDE + j), load(R, 7 * WIDE + j)
        for i in range(j + WIDTH if is_symmetric else len(rows)):
            at = i * step
            row = scale * load_row(rows, i, j) - L[at] * a - L[at + stride] * b
            row = row - L[at + 2 * stride] * c - L[at + 3 * stride] * d - L[at + 4 * stride] * e
            row = row - L[at + 5 * stride] * f - L[at + 6 * stride] * g - L[at + 7 * stride] * h
            store_row(rows, i, j, row)
        if is_symmetric:
            for i in range(0, j, WIDTH):
                mirror(rows, i, j)


@_inner
def _dot_rows(rows: Floats, stride: int, count: int, n: int, X: Floats, out: Floats) -> None:
    """The products of rows, of which the number is even, with the eight rows of X, which lie side by side."""
    for m in range(0, count, 2):
        a = b = c = d = every(0.0)
        p, q = m * stride, (m + 1) * stride
        for j in range(0, n, 2):
            x, y = load(X, BATCH * j), load(X, BATCH * j + BATCH)
            a, b = a + rows[p + j] * x, b + rows[p + j + 1] * y
            c, d = c + rows[q + j] * x, d + rows[q + j + 1] * y
        store(out, BATCH * m, a + b)
        store(out, BATCH * m + BATCH, c + d)


@_inner
def _learn_all(
    P: Floats,
    W: Floats,
    features: int,
    ridge: float,
    forget: float,
    weight: int,
    count: int,
    batch: Floats,
    errors: Floats,
) -> None:
    """Recursive least squares of all targets from ``count`` rows at once.

    With the rows X, their errors E before the step (0 to skip), A = (f / w) 1 + X P Xᵀ = L Lᵀ and H = L⁻¹ X P:
    W ← W + (L⁻¹ E)ᵀ H and P ← (P − Hᵀ H) / f, which for one row is the usual step. A row counts as w, its ``weight``.
    ``batch`` begins with the rows X, side by side, which are 0 beyond the ``features`` and beyond ``count``. ``errors``
    are those of the first target, of the second, …
    """
    targets, n = W.shape
    X, G, H = batch[: BATCH * WIDE], batch[BATCH * WIDE : 2 * BATCH * WIDE], batch[2 * BATCH * WIDE :]
    A, M, columns = batch[3 * BATCH * WIDE :], batch[3 * BATCH * WIDE + 64 :], batch[3 * BATCH * WIDE + 128 :]
    trace = 0.0
    for i in range(features):
        trace += P[i, i]
    f = forget ** (count * weight) if trace < features / ridge else 1.0
    noise = f / weight
    is_sound = trace < 1e12
    _multiply(P, X, G)
    _dot_rows(G, WIDE, BATCH, n, X, A)
    # A becomes L, by columns, but for the diagonal, of which the reciprocals are found. Rows beyond ``count`` are 0.
    for q in range(BATCH):
        column = load(A, BATCH * q)
        for i in range(q):
            column = column - A[BATCH * i + q] * load(A, BATCH * i)
        store(A, BATCH * q, column)
        along = A[BATCH * q + q] + noise
        is_sound = is_sound and along >= 0.5 * noise
        along = 1.0 / math.sqrt(max(along, 0.5 * noise))
        store(A, BATCH * q, along * column)
        A[BATCH * q + q] = along
    if not is_sound:
        # Rounding errors have made the matrix useless: begin it again, and keep the weights.
        for i in range(features):
            for j in range(features):
                P[i, j] = 0.0
            P[i, i] = 1.0 / ridge
        return
    # The rows of M = L⁻¹.
    for r in range(BATCH):
        row = every(0.0)
        for i in range(r):
            row = row - A[BATCH * i + r] * load(M, BATCH * i)
        store(M, BATCH * r, A[BATCH * r + r] * row)
        M[BATCH * r + r] = A[BATCH * r + r]
    # H is divided by the root of f, so that P stays symmetric: its change is a product of H with itself.
    scale = math.sqrt(1.0 / f)
    for j in range(0, n, WIDTH):
        for r in range(BATCH):
            row = every(0.0)
            for q in range(r + 1):
                row = row + M[BATCH * r + q] * load(G, WIDE * q + j)
            store(H, WIDE * r + j, scale * row)
    for r in range(BATCH):
        for q in range(BATCH):
            columns[BATCH * q + r] = M[BATCH * r + q]
    for m in range(targets):
        row = every(0.0)
        for q in range(BATCH):
            row = row - errors[BATCH * m + q] * load(columns, BATCH * q)
        store(errors, BATCH * m, row / scale)
    _subtract_products(W, 1.0, errors, BATCH, 1, H, False)
    _subtract_products(P, 1.0 / f, H, 1, WIDE, H, True)


@_inner
def _predict_all(W: Floats, x: Floats, out: Floats) -> None:
    """What the weights ``W`` (targets, n) answer; the number of targets is even."""
    for m in range(0, len(W), 2):
        a = b = every(0.0)
        for i in range(0, W.shape[1], WIDTH):
            features = load(x, i)
            a, b = a + load_row(W, m, i) * features, b + load_row(W, m + 1, i) * features
        out[m], out[m + 1] = total(a), total(b)


@_inner
def _standardise(value: Numbers, moments: Floats, n: int, i: int, share: float, is_due: bool) -> Numbers:
    """Values by the mean and deviation so far, to which they are added with their ``share``, 1 / (rows so far).

    The rows of ``moments`` are the mean, the variance and 1 / the deviation of each feature; this is found anew where
    it ``is_due``.
    """
    mean, variance = load_row(moments, 3 * n, i), load_row(moments, 3 * n + 1, i)
    change = value - mean
    mean = mean + change * share
    off = value - mean
    variance = variance + share * (change * off - variance)
    store_row(moments, 3 * n, i, mean)
    store_row(moments, 3 * n + 1, i, variance)
    if is_due:
        deviation = root(larger(variance, 0.0))
        is_known = deviation > 1e-12 * (1.0 + abs(mean))
        store_row(moments, 3 * n + 2, i, select(is_known, 1.0 / deviation, 0.0))
    return _within(off * load_row(moments, 3 * n + 2, i), CLIP)


@_inner
def _find_labels(
    constants: Floats, horizon: Floats, place: Floats, readings: Floats, sums: Floats, end: int, record: Floats,
    y: Floats,
) -> None:  # fmt: skip
    """The labels of a row, of all signals: the values at the horizon, then the means up to it; NaN where not known."""
    step, span, near, start = constants[STEP], horizon[SPAN], 1e-6 * constants[STEP], record[R_TIME]
    room, L = len(readings), readings.shape[1] - 2
    nearby = int(place[BEGIN_AT])
    while nearby < end and readings[nearby % room, 0] <= start + span - 0.5 * step - near:
        nearby += 1
    place[BEGIN_AT] = nearby
    begin = int(place[BEGIN_MEAN])
    while begin < end and readings[begin % room, 0] <= start + near:
        begin += 1
    place[BEGIN_MEAN] = begin
    stop = end
    while stop > begin and readings[(stop - 1) % room, 0] > start + span + constants[SLACK]:
        stop -= 1
    for i in range(0, L, WIDTH):
        nearest, distance = every(np.nan), every(0.5 * step + near)
        for row in range(nearby, end):
            at = row % room
            if readings[at, 0] > start + near:
                off, value = abs(readings[at, 0] - start - span), load_row(readings, at, 2 + i)
                is_nearer = (value == value) & (distance > off)
                nearest, distance = select(is_nearer, value, nearest), select(is_nearer, off, distance)
        store(y, i, nearest)
        # The rows of the window, whole blocks of them at once: rows left out, readings and how many there are.
        missing, summed, known = 0.0, every(0.0), every(0.0)
        row = begin
        while row < stop:
            if row % BLOCK == 0 and row + BLOCK <= stop:
                at = (row // BLOCK) % len(sums)
                missing += sums[at, 0]
                summed = summed + load_row(sums, at, 1 + i)
                known = known + load_row(sums, at, 1 + L + i)
                row += BLOCK
                continue
            at = row % room
            value = load_row(readings, at, 2 + i)
            missing += readings[at, 1]
            summed = summed + select(value == value, value, 0.0)
            known = known + select(value == value, 1.0, 0.0)
            row += 1
        expected = horizon[ROWS]
        if constants[REGULAR] == 0.0:
            previous = readings[(stop - 1) % room, 0] if stop > begin else start
            if start + span - previous > constants[LIMIT]:
                missing += (start + span - previous) / step - 1.0
            expected = stop - begin + missing
        is_enough = (known > 0.0) & (known >= 0.9 * expected - 1e-9)
        store(y, L + i, select(is_enough, summed / known, np.nan))


@_inner
def _make_past(
    u: Floats, seen: float, is_due: bool, recent: Floats, traces: Floats, moments: Floats, features: Floats,
    units: Floats,
) -> None:  # fmt: skip
    """The features of each signal that do not depend on a horizon: ``features`` (OWN, L) up to the exponential mean."""
    filled, share = int(min(seen, REMEMBERED)), 1.0 / seen
    few = min(filled, 8)
    for i in range(0, len(u), WIDTH):
        value = load(u, i)
        for k in range(filled - 1, 0, -1):
            store_row(recent, k, i, load_row(recent, k - 1, i))
        store_row(recent, 0, i, value)
        store_row(features, 0, i, every(1.0))
        store_row(features, 1, i, _standardise(value, moments, 0, i, share, is_due))
        n = 1
        for lag in LAGS:
            change = value - load_row(recent, lag if lag < filled else 0, i)
            store_row(features, 1 + n, i, _standardise(change, moments, n, i, share, is_due))
            n += 1
        for m in range(4):
            trace = load_row(traces, m, i)
            trace = trace + max(1.0 / TRACES[m], share) * (value - trace)
            store_row(traces, m, i, trace)
            store_row(features, 1 + n, i, _standardise(trace, moments, n, i, share, is_due))
            n += 1
        mean, square = every(0.0), every(0.0)
        for k in range(few):
            mean = mean + load_row(recent, k, i)
        mean = mean / float(few)
        for k in range(few):
            off = load_row(recent, k, i) - mean
            square = square + off * off
        store_row(features, 1 + n, i, _standardise(root(square / float(few)), moments, n, i, share, is_due))
        store(units, i, larger(root(load_row(moments, 1, i)), 1e-12) if seen > UNSCALED else every(np.nan))
        n = 1 + PLAIN
        for edge in NUMBER_HINGES:
            store_row(features, n, i, larger(load_row(features, 1, i) - edge, 0.0))
            n += 1
        for k in range(4):
            store_row(features, n + k, i, abs(load_row(features, 1 + k, i)))


@_inner
def _make_others(
    others: Floats, seen: float, is_due: bool, other_memory: Floats, other_moments: Floats, padded: Floats,
    common: Floats,
) -> None:  # fmt: skip
    """The features of signals that are not predicted, of which there are at most eight."""
    share = 1.0 / seen
    for m in range(len(others)):
        padded[m] = others[m]
    other, trace = load(padded, 0), load_row(other_memory, 4, 0)
    trace = trace + max(1.0 / 16.0, share) * (other - trace)
    store_row(other_memory, 4, 0, trace)
    previous = load_row(other_memory, int(min(seen - 1.0, 3.0)) - 1, 0) if seen > 1.0 else other
    change = other - previous
    for lag in range(3, 0, -1):
        store_row(other_memory, lag, 0, load_row(other_memory, lag - 1, 0))
    store_row(other_memory, 0, 0, other)
    for k in range(3):
        value = other if k == 0 else trace if k == 1 else change
        store(padded, 0, _standardise(value, other_moments, k, 0, share, is_due))
        for m in range(len(others)):
            common[3 * m + k] = padded[m]


@_inner
def _remember_season(constants: Floats, u: Floats, time: float, memory: Floats, offs: Floats, waves: Floats) -> int:
    """Take in the season of the present row; ``offs`` are the deviations from what was usual. Returns the hour."""
    slots_a, slots_b = constants[SLOTS_A], constants[SLOTS_B]
    a = _slot(time, constants[PERIOD_A], constants[OFFSET_A], constants[SHIFT], slots_a)
    b = _slot(time, constants[PERIOD_B], constants[OFFSET_B], constants[SHIFT], slots_b)
    for i in range(0, len(u), WIDTH):
        value, mean_a, mean_b = load(u, i), load_row(memory, 4 * a + 1, i), load_row(memory, 4 * b + 3, i)
        off = select(mean_a == mean_a, value - mean_a, 0.0)
        store(offs, i, select(mean_b == mean_b, value - mean_b, off))
        store_row(memory, 4 * a, i, value)
        store_row(memory, 4 * b + 2, i, value)
        store_row(memory, 4 * a + 1, i, select(mean_a == mean_a, mean_a + SEASON_RATE * (value - mean_a), value))
        store_row(memory, 4 * b + 3, i, select(mean_b == mean_b, mean_b + SEASON_RATE * (value - mean_b), value))
    bin_a = _slot(time, constants[PERIOD_A], constants[OFFSET_A], NEARLY, constants[BINS_A])
    bin_b = _slot(time, constants[PERIOD_B], constants[OFFSET_B], NEARLY, constants[BINS_B])
    phase = 2.0 * math.pi * a / slots_a
    for k in range(3):
        waves[2 * k], waves[2 * k + 1] = math.sin((k + 1) * phase), math.cos((k + 1) * phase)
    waves[6] = 1.0 if constants[WEEKLY] > 0.0 and bin_b >= 5 else 0.0
    waves[7] = float(bin_b)
    return bin_a


@_inner
def _look_ahead(
    constants: Floats, horizon: Floats, time: float, u: Floats, memory: Floats, offs: Floats, seasons: Floats
) -> None:
    """What the seasons say of the row at the horizon, and of the rows up to it: ``seasons`` (9, L)."""
    count = int(horizon[LOOK_COUNT])
    for i in range(0, len(u), WIDTH):
        value, off = load(u, i), load(offs, i)
        usual, total_a, total_b = every(0.0), every(0.0), every(0.0)
        for k in range(count + 1):
            ahead = horizon[LOOK_BEGIN] + k * horizon[LOOK_STRIDE] if k < count else horizon[ROWS]
            future = time + ahead * constants[STEP]
            a = 4 * _slot(future, constants[PERIOD_A], constants[OFFSET_A], constants[SHIFT], constants[SLOTS_A])
            b = 4 * _slot(future, constants[PERIOD_B], constants[OFFSET_B], constants[SHIFT], constants[SLOTS_B])
            last_a, mean_a = load_row(memory, a, i), load_row(memory, a + 1, i)
            last_b, mean_b = load_row(memory, b + 2, i), load_row(memory, b + 3, i)
            last_a, mean_a = select(last_a == last_a, last_a, value), select(mean_a == mean_a, mean_a, value)
            last_b, mean_b = select(last_b == last_b, last_b, last_a), select(mean_b == mean_b, mean_b, mean_a)
            if k < count:
                usual, total_a, total_b = usual + mean_b, total_a + last_a, total_b + last_b
            else:
                store_row(seasons, 0, i, last_a)
                store_row(seasons, 1, i, mean_a)
                store_row(seasons, 2, i, mean_b)
                store_row(seasons, 3, i, mean_b + horizon[FADING] * off)
                store_row(seasons, 4, i, last_b)
                store_row(seasons, 5, i, off)
        store_row(seasons, 6, i, usual / float(count))
        store_row(seasons, 7, i, total_a / float(count))
        store_row(seasons, 8, i, total_b / float(count))


@_inner
def _remember_period(u: Floats, skipped: int, past: Floats, cycle: Floats) -> None:
    """Take in the readings of the present row, after rows that are missing in time: these are as one period ago."""
    S, room = past.shape
    count = int(cycle[S])
    for k in range(skipped + 1):
        for s in range(S):
            back = max(1, int(cycle[s]))
            past[s, count % room] = u[s] if k == skipped else past[s, (count - back) % room]
        count += 1
    cycle[S] = count


@_inner
def _repeat_periods(past: Floats, cycle: Floats, rows: int, repeated: Floats) -> None:
    """The values after so many rows and the means up to it, if the last periods repeat themselves; NaN without one."""
    S, room = past.shape
    for s in range(S):
        period = int(cycle[s])
        repeated[0, s] = repeated[1, s] = np.nan
        if period > 0:
            end, length = int(cycle[S]) - 1 - period, min(rows, period)
            between = (length + PERIOD_POINTS - 1) // PERIOD_POINTS
            total, points = 0.0, 0
            for k in range(between, length + 1, between):
                total += past[s, (end + k) % room]
                points += 1
            repeated[0, s] = past[s, (end + 1 + (rows - 1) % period) % room]
            repeated[1, s] = total / points


@_inner
def _weigh(target: Floats, j: int, is_due: Truths, cycles: bool, is_repeated: Truths, windows: Numbers) -> None:
    """The weights of the component answers of targets that are due, and their choice, after so many ``windows``.

    The simple answers get the share that would have had the least squared error so far.
    """
    best = best_simple = every(np.inf)
    for m in range(MEMBERS):
        if m != 5 or cycles:
            square = load_row(target, SQUARES + m, j)
            square = select(is_repeated, square, np.inf) if m == 6 else square
            best = smaller(best, square)
            if 4 <= m < 9:
                best_simple = smaller(best_simple, square)
    best, best_simple = larger(best, 1e-30), larger(best_simple, 1e-30)
    exponent = smaller(MOST_POWER, POWER + POWER_WINDOW * windows)
    simple_exponent = smaller(MOST_POWER, SIMPLE_POWER + SIMPLE_POWER_WINDOW * windows)
    total = total_simple = every(0.0)
    for m in range(MEMBERS):
        full = simple = every(0.0)
        if m != 5 or cycles:
            square = larger(load_row(target, SQUARES + m, j), 1e-30)
            full = power(best / square, exponent)
            if 4 <= m < 9:
                simple = power(best_simple / square, simple_exponent)
            if m == 6:
                full, simple = select(is_repeated, full, 0.0), select(is_repeated, simple, 0.0)
        store_row(target, EVERY + m, j, select(is_due, full, load_row(target, EVERY + m, j)))
        store_row(target, SIMPLE + m, j, select(is_due, simple, load_row(target, SIMPLE + m, j)))
        total, total_simple = total + full, total_simple + simple
    total, total_simple = select(is_due, total, 1.0), select(is_due, total_simple, 1.0)
    around = load_row(target, AROUND, j)
    share = load_row(target, ALONG, j) / around * windows + SHARE * SHARE_WINDOWS
    share = smaller(1.0, larger(0.0, share / (windows + SHARE_WINDOWS)))
    share = select(around > 0.0, share, SHARE)
    for m in range(MEMBERS):
        full = load_row(target, EVERY + m, j) / total
        simple = load_row(target, SIMPLE + m, j) / total_simple
        store_row(target, EVERY + m, j, full)
        store_row(target, SIMPLE + m, j, simple)
        weight = share * full + (1.0 - share) * simple
        store_row(target, WEIGHTS + m, j, select(is_due, weight, load_row(target, WEIGHTS + m, j)))
    is_chosen = (load_row(target, RATIOS, j) > UNCHOSEN) & (windows > ENOUGH)
    choice = select(is_chosen, _choose(target, j, cycles, is_repeated, MARGIN / root(windows)), -1.0)
    store_row(target, CHOICE, j, select(is_due, choice, load_row(target, CHOICE, j)))


@_inner
def _choose(target: Floats, j: int, cycles: bool, is_repeated: Truths, margin: Numbers) -> Numbers:
    """The choice that is no worse than the simple answers by mean absolute and by mean squared error, as far as can be.

    The median has the least absolute error and the mean the least squared one; of a signal that mostly stays as it is,
    the value now has the former. To move that far must be better by the ``margin``.
    """
    square = smaller(load_row(target, SQUARES + 4, j), load_row(target, SQUARES + 7, j))
    size = smaller(load_row(target, CHOICE_ABS + 6, j), load_row(target, CHOICE_ABS + 7, j))
    if cycles:
        square, size = smaller(square, load_row(target, SQUARES + 5, j)), smaller(size, load_row(target, LAST_ABS, j))
    square = select(is_repeated, smaller(square, load_row(target, SQUARES + 6, j)), square)
    size = select(is_repeated, smaller(size, load_row(target, LAST_ABS + 1, j)), size)
    square, size = larger(square, 1e-30), larger(size, 1e-30)
    variance = larger(load_row(target, SQUARES + 8, j), 1e-30)
    best, least = every(0.0), every(np.inf)
    for c in range(CHOICES):
        off, squared = load_row(target, CHOICE_ABS + c, j) / size, load_row(target, CHOICE_SQUARES + c, j)
        worse = larger(0.0, off - 1.0) + larger(0.0, (squared - square) / variance)
        cost = off + root(squared / square) + WORSE * worse
        cost = cost + margin if 0 < c < CHOICES - 1 else cost
        best, least = select(cost < least, float(c), best), smaller(least, cost)
    return best


@_inner
def _answer(
    target: Floats, answered: Floats, predicted: Floats, bounds: Floats, usual: Floats, unit: Numbers,
    forecast: Numbers, kind: int, i: int, cycles: bool, S: int, members: Floats, record: Floats, is_shared: bool,
) -> None:  # fmt: skip
    """The combined answers of eight targets and their intervals, into ``record``; ``usual`` is known of their hours.

    ``answered`` and ``predicted`` are what the shared matrix, if there is one, and the small ones say.
    """
    T, L = target.shape[1], bounds.shape[1]
    j = kind * L + i
    least, most = load_row(bounds, 0, i), load_row(bounds, 1, i)
    is_read = least <= most
    room = 0.1 * (most - least)
    lowest = select(least < 0.0, least - room, larger(0.0, least - room))
    highest = select(most > 0.0, most + room, smaller(0.0, most + room))
    lowest = select(is_read, select(load_row(bounds, 2, i) >= REACHED, least, lowest), -np.inf)
    highest = select(is_read, select(load_row(bounds, 3, i) >= REACHED, most, highest), np.inf)
    value, mean = load(record, RECORD + R_NOW * T + j), load(record, RECORD + R_MEAN * T + j)
    season_base = load(record, RECORD + R_LAST_B * T + j) if cycles else mean
    for b in range(2):
        base = season_base if b else value
        of_signal = base + unit * load_row(predicted, 2 * kind + b, i)
        of_all = base + unit * load(answered, (2 * kind + b) * S + i) if is_shared else of_signal
        store(members, b * T + j, of_all)
        store(members, (2 + b) * T + j, of_signal)
    store(members, 4 * T + j, value)
    store(members, 5 * T + j, season_base)
    store(members, 6 * T + j, load(record, RECORD + R_LAST_A * T + j))
    store(members, 7 * T + j, load(record, RECORD + R_USUAL * T + j))
    store(members, 8 * T + j, mean)
    store(members, 9 * T + j, forecast)
    answer = every(0.0)
    for m in range(MEMBERS):
        member = smaller(highest, larger(lowest, load(members, m * T + j)))
        store(members, m * T + j, member)
        answer = answer + load_row(target, WEIGHTS + m, j) * member
    value, ratios, error = load(members, 4 * T + j), load_row(target, RATIOS, j), load_row(target, ERROR, j)
    answer = select(ratios <= UNLEARNED, value, answer)
    sigma = larger(load_row(predicted, 4 + kind, i) * load_row(target, SIZE, j), larger(0.2 * error, 1e-12))
    sigma = select(error > 0.0, sigma, 1.0)
    store(record, RECORD + R_CENTRE * T + j, answer)
    store(record, RECORD + R_SIGMA * T + j, sigma)
    below = load_row(target, Q_LOW, j) - load_row(target, LEVEL_LOW, j) - load_row(usual, 2, j)
    above = load_row(target, Q_HIGH, j) + load_row(target, LEVEL_HIGH, j) + load_row(usual, 3, j)
    low = select(ratios > 20.0, larger(lowest, answer + sigma * below), np.nan)
    high = select(ratios > 20.0, smaller(highest, answer + sigma * above), np.nan)
    centre, off, choice = answer, sigma * load_row(target, Q_MIDDLE, j), load_row(target, CHOICE, j)
    for c in range(CHOICES):
        option = smaller(highest, larger(lowest, centre + 0.25 * c * off))
        if c == 5:
            option = 0.5 * (centre + value)
        elif c > 5:
            option = value if c == 6 else load(members, 7 * T + j)
        store(members, (MEMBERS + c) * T + j, option)
        answer = select(choice == float(c), option, answer)
    answer = select(is_read, answer, np.nan)
    store(record, RECORD + R_ANSWER * T + j, answer)
    store(record, RECORD + R_LOW * T + j, smaller(low, answer))
    store(record, RECORD + R_HIGH * T + j, larger(high, answer))


@_inner
def _count_below(ratios: Floats, value: float) -> int:
    """How many of the ratios are smaller, by the last of each few, and then by those few.

    A search by halves takes longer: the processor cannot foresee its steps.
    """
    few = 0
    for i in range(LASTS, LASTS + 4 * WIDTH, WIDTH):
        few += tally(load(ratios, i) < value)
    place = APART * min(few, REMEMBERED_RATIOS // APART - 1)
    at = ORDERED + place
    return place + tally(load(ratios, at) < value) + tally(load(ratios, at + WIDTH) < value)


@_inner
def _insert(ratios: Floats, counted: int, value: float) -> int:
    """Put a ratio in the place of the oldest, and in order among all of them; returns how many there are."""
    at, place = counted % REMEMBERED_RATIOS, _count_below(ratios, value)
    # The place that becomes free is that of the oldest, or the one behind all.
    free = counted if counted < REMEMBERED_RATIOS else _count_below(ratios, ratios[at])
    ratios[at] = value
    ordered, lasts = ratios[ORDERED:], ratios[LASTS:]
    if place > free:
        place -= 1
        for i in range(free, place - WIDTH + 1, WIDTH):
            store(ordered, i, load(ordered, i + 1))
        for i in range(place - (place - free) % WIDTH, place):
            ordered[i] = ordered[i + 1]
    else:
        for i in range(free - WIDTH, place - 1, -WIDTH):
            store(ordered, i + 1, load(ordered, i))
        for i in range(place + (free - place) % WIDTH, place, -1):
            ordered[i] = ordered[i - 1]
    ordered[place] = value
    for few in range(min(place, free) // APART, max(place, free) // APART + 1):
        lasts[few] = ordered[APART * few + APART - 1]
    return min(counted + 1, REMEMBERED_RATIOS)


@_inner
def _note(features: Floats, begin: int, end: int, S: int, noted: Floats) -> None:
    """Some of the features, of which each is of all signals, as all of each signal, which the matrices are of."""
    width = len(features)
    for s in range(S):
        for n in range(begin, end):
            noted[s * width + n] = features[n, s]


@_inner
def _assemble(noted: Floats, S: int, own: int, extra: int, picks: Places, phi: Floats) -> None:
    """The features of the shared matrix that are of signals, after those that they share, from all that were noted."""
    n = extra
    for s in range(S):
        for p in range(len(picks)):
            phi[n] = noted[s * own + picks[p]]
            n += 1


@_inner
def _follow(target: Floats, field: int, j: int, is_known: Truths, rate: Numbers, value: Numbers) -> Numbers:
    """Move a mean by the rate towards a value, where this is known; returns the mean."""
    mean = load_row(target, field, j)
    mean = select(is_known, mean + rate * (value - mean), mean)
    store_row(target, field, j, mean)
    return mean


@_inner
def _label_row(
    constants: Floats, horizon: Floats, waiting: Floats, record: Floats, y: Floats, S: int, target: Floats,
    ratios: Floats, usual: Floats, repeats: Floats, paces: Floats, due: Floats,
) -> None:  # fmt: skip
    """Compare the answers of a row with its labels at one horizon, and note what the matrices are to learn from it.

    ``usual`` is what is known of the hour of the row.
    """
    T = target.shape[1]
    L, begin = T // 2, S * int(constants[OWN]) + int(constants[EXTRA])
    units, members, wanted = waiting[begin:], waiting[begin + L :], waiting[begin + L + T * ENTRIES :]
    cycles, tail = constants[CYCLES] > 0.0, 0.5 * (1.0 - constants[COVERAGE])
    for j in range(0, T, WIDTH):
        kind, i = j // L, j % L
        label, unit = load(y, j), load(units, i)
        is_known = (label == label) & (unit == unit)
        for b in range(2):
            off = _within((label - load(members, (4 + b) * T + j)) / unit, FARTHEST)
            store(wanted, (2 * kind + b) * L + i, select(is_known, off, np.nan))
        counted = load_row(target, RATIOS, j)
        rate = larger(1.0 / ERROR_ROWS, RECENT / (counted + RECENT))
        full = simple = every(0.0)
        for m in range(MEMBERS):
            member = load(members, m * T + j)
            full = full + load_row(target, EVERY + m, j) * member
            simple = simple + load_row(target, SIMPLE + m, j) * member
            off = member - label
            _follow(target, SQUARES + m, j, is_known, rate, off * off)
            if 5 <= m <= 6:
                _follow(target, LAST_ABS + m - 5, j, is_known, rate, abs(off))
        beyond = full - simple
        _follow(target, ALONG, j, is_known, rate, beyond * (label - simple))
        _follow(target, AROUND, j, is_known, rate, beyond * beyond)
        for m in range(CHOICES):
            off = load(members, (MEMBERS + m) * T + j) - label
            _follow(target, CHOICE_SQUARES + m, j, is_known, rate, off * off)
            _follow(target, CHOICE_ABS + m, j, is_known, rate, abs(off))
        # The size of errors and their quantiles.
        off, low = label - load(record, RECORD + R_CENTRE * T + j), load(record, RECORD + R_LOW * T + j)
        error = load_row(target, ERROR, j)
        pace = select(error <= 0.0, 1.0, larger(1.0 / 500.0, 1.0 / (counted + 1.0)))
        error = _follow(target, ERROR, j, is_known, pace, abs(off))
        size = load_row(target, SIZE, j)
        is_first = is_known & (size <= 0.0) & (counted >= UNLEARNED)
        size = select(is_first, larger(error, 1e-12), size)
        store_row(target, SIZE, j, size)
        off_size = select(is_known & (size > 0.0), smaller(FARTHEST, abs(off) / size), np.nan)
        store(wanted, (4 + kind) * L + i, off_size)
        is_inside = is_known & (low == low)
        below = select(is_inside & (label < low), 1.0, 0.0) - select(is_inside, tail, 0.0)
        above = select(is_inside & (label > load(record, RECORD + R_HIGH * T + j)), 1.0, 0.0)
        above = above - select(is_inside, tail, 0.0)
        store_row(target, LEVEL_LOW, j, load_row(target, LEVEL_LOW, j) + paces[0] * below)
        store_row(target, LEVEL_HIGH, j, load_row(target, LEVEL_HIGH, j) + paces[0] * above)
        store_row(usual, 2, j, load_row(usual, 2, j) + paces[1] * below)
        store_row(usual, 3, j, load_row(usual, 3, j) + paces[1] * above)
    for kind in range(2):
        for s in range(S):
            j = kind * L + s
            due[j] = 0.0
            if y[j] != y[j] or units[s] != units[s]:
                continue
            ratio = (y[j] - record[RECORD + R_CENTRE * T + j]) / max(record[RECORD + R_SIGMA * T + j], 1e-12)
            counted, of_target = int(target[RATIOS, j]), ratios[kind * S + s]
            known = _insert(of_target, counted, ratio)
            target[Q_LOW, j] = of_target[ORDERED + int(tail * (known - 1))]
            target[Q_MIDDLE, j] = of_target[ORDERED + known // 2]
            target[Q_HIGH, j] = of_target[ORDERED + math.ceil((1.0 - tail) * (known - 1))]
            target[RATIOS, j] = counted + 1.0
            due[j] = 1.0 if counted + 1 < PROMPT or (counted + 1) % SELDOM == 0 else 0.0
    for j in range(0, T, WIDTH):
        is_due = load(due, j) > 0.0
        if tally(is_due) > 0:
            windows = load_row(target, RATIOS, j) * (horizon[STRIDE] / horizon[ROWS])
            _weigh(target, j, is_due, cycles, load(repeats, j % L) > 0.0, windows)


@_inner
def _find_spacing(place: Floats) -> int:
    """One in how many labelled rows the matrices of a horizon learn from."""
    return THIN if place[FIRST_STORED] >= MANY else 1


@_inner
def _learn_rows(
    constants: Floats, horizon: Floats, place: Floats, stored: Floats, L: int, S: int, picks: Places, P: Floats,
    W: Floats, own_P: Floats, own_W: Floats, batch: Floats, errors: Floats, phi: Floats,
) -> None:  # fmt: skip
    """Learn from the rows of one horizon that have their labels: all signals at once, then the small matrix of each."""
    X = batch[: BATCH * WIDE]
    own, extra, shared = int(constants[OWN]), int(constants[EXTRA]), int(constants[SHARED])
    first, spacing = int(place[FIRST_STORED]), _find_spacing(place)
    count = (int(place[END_LABELLED]) - first + spacing - 1) // spacing
    begin, room = int(horizon[STORED_AT]), int(horizon[STORED_ROOM])
    at = S * own + extra + L + 2 * L * ENTRIES
    for s in range(-1, S):
        # (−1 is all signals)
        if s < 0 and shared == 0:
            continue
        width = shared if s < 0 else own
        weights, matrix = W if s < 0 else own_W[s], P if s < 0 else own_P[s]
        for n in range(BATCH * weights.shape[1]):
            X[n] = 0.0
        for r in range(count):
            waiting = stored[begin + (first + r * spacing) % room]
            if s < 0:
                _assemble(waiting, S, own, extra, picks, phi)
                for n in range(shared):
                    X[BATCH * n + r] = waiting[S * own + n] if n < extra else phi[n]
            elif waiting[at + s] == waiting[at + s] or waiting[at + 2 * L + s] == waiting[at + 2 * L + s]:
                for n in range(own):
                    X[BATCH * n + r] = waiting[s * own + n]
        _dot_rows(weights.reshape(weights.size), weights.shape[1], len(weights), weights.shape[1], X, errors)
        for r in range(BATCH):
            wanted = stored[begin + (first + min(r, count - 1) * spacing) % room, at:]
            for m in range(len(weights)):
                # (in the order of a kind, a difference and all signals)
                value = wanted[m // S * L + m % S if s < 0 else m * L + s]
                is_learned = r < count and value == value
                errors[BATCH * m + r] = value - errors[BATCH * m + r] if is_learned else 0.0
        ridge = SHARED_RIDGE if s < 0 else OWN_RIDGE * horizon[ROWS] / horizon[STRIDE]
        _learn_all(matrix, weights, width, ridge, FORGET if s < 0 else 1.0, spacing, count, batch, errors)
    place[FIRST_STORED] = place[END_LABELLED]


@_inner
def _make_block(place: Floats, blocks: Floats, row: float) -> int:
    """The block of a scored row: when there is none left, blocks merge pairwise, as in ``scores.measures``."""
    count = len(blocks) // BLOCK_SUMS
    while row >= count * place[BLOCK_ROWS]:
        for b in range(count):
            for m in range(BLOCK_SUMS):
                for j in range(blocks.shape[1]):
                    pair = 2 * b * BLOCK_SUMS + m
                    both = blocks[pair, j] + blocks[pair + BLOCK_SUMS, j] if 2 * b < count else 0.0
                    blocks[b * BLOCK_SUMS + m, j] = both
        place[BLOCK_ROWS] *= 2.0
    return int(row / place[BLOCK_ROWS])


@_inner
def _add(sums: Floats, row: int, j: int, is_known: Truths, value: Numbers) -> None:
    """Add to sums where the value is known."""
    store_row(sums, row, j, load_row(sums, row, j) + select(is_known, value, 0.0))


@_inner
def _follow_naive(
    shifted: Floats, row: int, i: int, y: Numbers, is_known: Truths, sums: Floats, at: int, j: int
) -> None:
    """Sum |y − the y of one day before| (of the row before, where rows are no parts of a day), the scale of MASE."""
    day = len(shifted) // 2
    place = row % day
    previous, of_row = load_row(shifted, place, i), load_row(shifted, day + place, i)
    is_scaled = is_known & (of_row == float(row - day))
    _add(sums, at, j, is_scaled, every(1.0))
    _add(sums, at + 1, j, is_scaled, abs(y - previous))
    store_row(shifted, place, i, select(is_known, y, previous))
    store_row(shifted, day + place, i, select(is_known, float(row), of_row))


@_inner
def _score(
    constants: Floats, record: Floats, y: Floats, target: Floats, climate: Floats, sums: Floats, blocks: Floats,
    block: int, mean_shifted: Floats, plot: Floats,
) -> None:  # fmt: skip
    """Score what was answered at a row whose labels are known now, as questions that are asked are scored."""
    T, row, hour, day = len(y), record[R_ROW], int(record[R_HOUR]), int(constants[DAY_STRIDE])
    L, half, is_plotted = T // 2, 0 if row < constants[HALF] else 1, plot[0] == row
    for j in range(0, T, WIDTH):
        label, answer = load(y, j), load(record, RECORD + R_ANSWER * T + j)
        is_known = (label == label) & (answer == answer)  # (there was no answer before the first reading)
        label = select(is_known, label, np.nan)
        store(y, j, label)
        store_row(target, DROPPED, j, load_row(target, DROPPED, j) + select(is_known, 0.0, 1.0))
        at, square, unit = half * SUMS, (answer - label) * (answer - label), every(1.0)
        _add(sums, at + COUNT, j, is_known, unit)
        _add(sums, at + LABEL, j, is_known, label)
        _add(sums, at + LABEL_SQUARE, j, is_known, label * label)
        _add(sums, at + SQUARE, j, is_known, square)
        _add(sums, at + ABS, j, is_known, abs(answer - label))
        if half:  # (for the verdict)
            _add(blocks, block, j, is_known, unit)
            _add(blocks, block + 1, j, is_known, square)
            _add(blocks, block + 2, j, is_known, label)
            _add(blocks, block + 3, j, is_known, label * label)
        for b in range(5):  # (in the order of the baselines)
            off = load(record, RECORD + (R_NOW + b) * T + j) - label
            _add(sums, at + BASELINE_SQUARE + b, j, is_known, off * off)
            _add(sums, at + BASELINE_ABS + b, j, is_known, abs(off))
            if half:
                _add(blocks, block + 4 + b, j, is_known, off * off)
        low, high = load(record, RECORD + R_LOW * T + j), load(record, RECORD + R_HIGH * T + j)
        has_interval, inside = is_known & (low == low), select((low <= label) & (label <= high), 1.0, 0.0)
        outside = larger(0.0, low - label) + larger(0.0, label - high)
        _add(sums, at + INTERVALS, j, has_interval, unit)
        _add(sums, at + INSIDE, j, has_interval, inside)
        _add(sums, at + INTERVAL_SCORE, j, has_interval, high - low + 2.0 / (1.0 - constants[COVERAGE]) * outside)
        _add(sums, at + HOURS + 2 * hour, j, has_interval, unit)
        _add(sums, at + HOURS + 2 * hour + 1, j, has_interval, inside)
        if j >= L and int(row) % day == 0:
            _follow_naive(mean_shifted, int(row) // day, j - L, label, is_known, sums, (2 + half) * SUMS, j)
        if is_plotted:
            store(plot, 2 + L + 4 * T + j, label)
        _add(target, LABELS, j, is_known, unit)
        _add(target, LABEL_SUM, j, is_known, label)
        _add(climate, 4 * hour, j, is_known, label)
        _add(climate, 4 * hour + 1, j, is_known, unit)


@_inner
def _close(
    constants: Floats, horizon: Floats, place: Floats, now: float, is_read: bool, end: int, S: int, readings: Floats,
    sums: Floats, records: Floats, stored: Floats, picks: Places, P: Floats, W: Floats, own_P: Floats, own_W: Floats,
    targets: Floats, ratios: Floats, climate: Floats, scores: Floats, blocks: Floats, mean_shifted: Floats,
    plotted: Floats, repeats: Floats, paces: Floats, batch: Floats, errors: Floats, phi: Floats,
    y: Floats, due: Floats,
) -> None:  # fmt: skip
    """Score and learn from the rows whose windows have closed at one horizon."""
    head, tail, L = int(place[FIRST_RECORD]), int(place[END_RECORD]), len(y) // 2
    while head < tail:
        record = records[int(horizon[RECORD_AT]) + head % int(horizon[RECORD_ROOM])]
        closes = record[R_TIME] + horizon[SPAN]
        if now < closes - constants[SLACK]:
            break
        if not is_read and now <= closes + (0.5 + 1e-6) * constants[STEP]:
            # A reading nearer than half a step may still come.
            break
        _find_labels(constants, horizon, place, readings, sums, end, record, y)
        row, hour = record[R_ROW], int(record[R_HOUR])
        block = BLOCK_SUMS * _make_block(place, blocks, row - constants[HALF]) if row >= constants[HALF] else 0
        plot = plotted[int(row / horizon[PLOT_STRIDE]) % PLOTTED]
        _score(constants, record, y, targets, climate, scores, blocks, block, mean_shifted, plot)
        head += 1
        if record[R_STORED] > 0.0:
            waiting = stored[int(horizon[STORED_AT]) + int(place[END_LABELLED]) % int(horizon[STORED_ROOM])]
            place[END_LABELLED] += 1.0
            usual = climate[4 * hour : 4 * hour + 4]
            _label_row(constants, horizon, waiting, record, y, S, targets, ratios, usual, repeats, paces, due)
            batch_rows = min(BATCH, 1 + int(place[FIRST_STORED]) // GROWS) * _find_spacing(place)
            if place[END_LABELLED] - place[FIRST_STORED] >= batch_rows:
                _learn_rows(constants, horizon, place, stored, L, S, picks, P, W, own_P, own_W, batch, errors, phi)
    place[FIRST_RECORD] = head


@_inner
def _forget_windows(
    constants: Floats, horizon: Floats, place: Floats, row: int, S: int, stored: Floats, picks: Places, P: Floats,
    W: Floats, own_P: Floats, own_W: Floats, targets: Floats, mean_shifted: Floats, batch: Floats, errors: Floats,
    phi: Floats,
) -> None:  # fmt: skip
    """Leave the windows of one horizon that are open: time went back, and what follows does not belong to them."""
    L = targets.shape[1] // 2
    for j in range(2 * L):
        targets[DROPPED, j] += place[END_RECORD] - place[FIRST_RECORD]
    if place[END_LABELLED] > place[FIRST_STORED]:
        _learn_rows(constants, horizon, place, stored, L, S, picks, P, W, own_P, own_W, batch, errors, phi)
    place[FIRST_RECORD], place[FIRST_STORED] = place[END_RECORD], place[END_STORED]
    place[END_LABELLED] = place[END_STORED]
    place[BEGIN_AT] = place[BEGIN_MEAN] = row
    _forget_days(mean_shifted)


@_inner
def _forget_days(shifted: Floats) -> None:
    for place in range(len(shifted) // 2, len(shifted)):
        for i in range(shifted.shape[1]):
            shifted[place, i] = -np.inf


@_inner
def _take_in(
    constants: Floats, values: Floats, row: int, left_out: float, reading: Floats, sums: Floats, bounds: Floats,
    shifted: Floats, scores: Floats,
) -> bool:  # fmt: skip
    """Remember the readings of a row, with their extremes and how often these were reached; whether there are all."""
    S, L, step, day = len(values), bounds.shape[1], constants[STEP], int(constants[DAY_STRIDE])
    at = (row // BLOCK) % len(sums)
    if row % BLOCK == 0:
        for n in range(sums.shape[1]):
            sums[at, n] = 0.0
    reading[1] = left_out / step - 1.0 if constants[LIMIT] < left_out < np.inf else 0.0
    sums[at, 0] += reading[1]
    is_complete = True
    for s in range(S):
        reading[2 + s] = values[s]
        is_complete = is_complete and values[s] == values[s]
    for i in range(0, L, WIDTH):
        value, least, most = load(reading, 2 + i), load_row(bounds, 0, i), load_row(bounds, 1, i)
        is_known, unit = value == value, every(1.0)
        _add(sums, at, 1 + i, is_known, value)
        _add(sums, at, 1 + L + i, is_known, unit)
        times_least = select(value < least, 1.0, load_row(bounds, 2, i) + select(value == least, 1.0, 0.0))
        times_most = select(value > most, 1.0, load_row(bounds, 3, i) + select(value == most, 1.0, 0.0))
        store_row(bounds, 2, i, times_least)
        store_row(bounds, 3, i, times_most)
        store_row(bounds, 0, i, smaller(least, value))
        store_row(bounds, 1, i, larger(most, value))
        if row % day == 0:
            at_scale = (2 if row < constants[HALF] else 3) * SUMS
            _follow_naive(shifted, row // day, i, value, is_known, scores, at_scale, i)
    return is_complete


@_inner
def _make_common(constants: Floats, waves: Floats, hour: int, begin: int, common: Floats) -> None:
    """The calendar among the features that signals share, after those that are of no cycle."""
    bins_a, bins_b = int(constants[BINS_A]), int(constants[BINS_B])
    for n in range(bins_a + bins_b):
        common[begin + n] = 0.0
    common[begin + hour] = common[begin + bins_a + int(waves[7])] = 1.0
    n = begin + bins_a + bins_b
    for k in range(7):
        common[n + k] = waves[k]
    for k in range(6):
        common[n + 7 + k] = waves[6] * waves[k]


@_inner
def _answer_horizon(
    constants: Floats, horizon: Floats, u: Floats, forecasts: Floats, share: float, is_due: bool, hour: int, S: int,
    picks: Places, noted: Floats, features: Floats, seasons: Floats, repeated: Floats, units: Floats,
    ahead_moments: Floats, bounds: Floats, climate: Floats, W: Floats, own_W: Floats, targets: Floats, phi: Floats,
    answered: Floats, of_signal: Floats, predicted: Floats, record: Floats, waiting: Floats,
) -> None:  # fmt: skip
    """Answer at one horizon. ``noted`` are all ``features`` of each signal, and then those that they share."""
    L, T, own, extra = len(u), targets.shape[1], int(constants[OWN]), int(constants[EXTRA])
    cycles, is_shared = constants[CYCLES] > 0.0, constants[SHARED] > 0.0
    usual_here = climate[4 * hour : 4 * hour + 4]
    for i in range(0, L, WIDTH):
        value, forecast = load(u, i), load(forecasts, i)
        forecast = select(abs(forecast) < 1e100, forecast, value)
        store(forecasts, i, forecast)
        store_row(features, FORECAST, i, _standardise(forecast, ahead_moments, 0, i, share, is_due))
        for kind in range(2):
            j, labels = kind * L + i, load_row(targets, LABELS, kind * L + i)
            mean = select(labels > 0.0, load_row(targets, LABEL_SUM, j) / labels, value)
            usual = (load_row(usual_here, 0, j) + 5.0 * mean) / (load_row(usual_here, 1, j) + 5.0)
            last_a = last_b = value
            if cycles:
                last_a, last_b = load_row(seasons, 7 * kind, i), load_row(seasons, 4 + 4 * kind, i)
                of_usual = _standardise(usual, ahead_moments, 10 + kind, i, share, is_due)
                store_row(features, PAST + 9 + kind, i, of_usual)
            period = load_row(repeated, kind, i)
            store(record, RECORD + R_NOW * T + j, value)
            store(record, RECORD + R_MEAN * T + j, mean)
            store(record, RECORD + R_USUAL * T + j, usual)
            store(record, RECORD + R_LAST_A * T + j, select(period == period, period, last_a))
            store(record, RECORD + R_LAST_B * T + j, last_b)
        if cycles:
            for k in range(9):
                season = _standardise(load_row(seasons, k, i), ahead_moments, 1 + k, i, share, is_due)
                store_row(features, PAST + k, i, season)
    _note(features, FORECAST, min(own, PAST + 11), S, noted)
    if is_shared:
        _assemble(noted, S, own, extra, picks, phi)
        _predict_all(W, phi, answered)
    for s in range(S):
        _predict_all(own_W[s], noted[s * own :], of_signal)
        for m in range(6):
            predicted[m, s] = of_signal[m]
    begin = S * own + extra
    if record[R_STORED] > 0.0:
        for n in range(begin):
            waiting[n] = noted[n]
        for i in range(L):
            waiting[begin + i] = units[i]
    members = waiting[begin + L :]
    for i in range(0, L, WIDTH):
        unit, forecast = load(units, i), load(forecasts, i)
        unit = select(unit == unit, unit, 0.0)
        for kind in range(2):
            _answer(
                targets, answered, predicted, bounds, usual_here, unit, forecast, kind, i, cycles, S, members, record,
                is_shared,
            )  # fmt: skip


@jit_for(
    (
        _r1, _r2, _r2, _i1, _r2, _r2, _r2, _r1, _r3, _f1, _f1, _f2, _f2, _f2, _f2, _f2, _f2, _f2, _f2, _f2, _f2, _f2,
        _f3, _f2, _f3, _f4, _f3, _f4, _f3, _f3, _f3, _f3, _f3, _f2, _f3, _f3, _f2, _f1, _f3,
    ),
    allocates=False,
)  # fmt: skip
def advance(
    constants: Floats, horizons: Floats, paces: Floats, picks: Places, values: Floats, held: Floats, others: Floats,
    time: Floats, forecasts: Floats, scratch: Floats, state: Floats, places: Floats, readings: Floats, sums: Floats,
    records: Floats, stored: Floats, recent: Floats, traces: Floats, bounds: Floats, moments: Floats,
    other_memory: Floats, other_moments: Floats, ahead_moments: Floats, memory: Floats, climate: Floats, own_P: Floats,
    P: Floats, own_W: Floats, W: Floats, targets: Floats, ratios: Floats, scores: Floats, blocks: Floats,
    value_shifted: Floats, mean_shifted: Floats, plotted: Floats, past: Floats, cycle: Floats, out: Floats,
) -> int:  # fmt: skip
    """Answer at B rows and learn from the windows that they close; returns for how many of the rows there was room.

    ``values`` (B, S) are readings for labels, NaN where missing; ``held`` those for features; ``others`` (B, O) of
    signals that are not predicted; ``forecasts`` (B, S, H) exponential means. ``out`` (B, S·H·2, 4) takes answer, low,
    high and usual of the value and the mean of each signal at each horizon. ``cycle`` has the period of each signal in
    rows, 0 for none, and how many rows ``past`` has taken in. ``paces`` (H, 2) say how far a label moves the ends of
    intervals, and of those of an hour. ``scratch`` is as long as ``scratch_size`` says, and 0 at first.
    """
    S, H, O, L = values.shape[1], len(horizons), others.shape[1], bounds.shape[1]
    T, own, extra, cycles = 2 * L, int(constants[OWN]), int(constants[EXTRA]), constants[CYCLES] > 0.0
    batch, scratch = scratch[:BATCH_SCRATCH], scratch[BATCH_SCRATCH:]
    errors, scratch = scratch[: BATCH * (4 * S + 6)], scratch[BATCH * (4 * S + 6) :]
    phi, scratch = scratch[:WIDE], scratch[WIDE:]
    features, scratch = scratch[: own * L].reshape((own, L)), scratch[own * L :]
    seasons = scratch[: 9 * L].reshape((9, L))
    predicted, repeated = scratch[9 * L : 15 * L].reshape((6, L)), scratch[15 * L : 17 * L].reshape((2, L))
    u, units, offs, ahead = scratch[17 * L : 18 * L], scratch[18 * L :], scratch[19 * L :], scratch[20 * L :]
    y, due, repeats, scratch = scratch[21 * L : 23 * L], scratch[23 * L :], scratch[25 * L :], scratch[26 * L :]
    waves, padded, of_signal = scratch[:WIDTH], scratch[WIDTH:], scratch[2 * WIDTH :]
    answered, noted = scratch[3 * WIDTH :], scratch[4 * S + 4 * WIDTH :]
    common = noted[S * own :]
    room, near = len(readings), 1e-6 * constants[STEP]
    for s in range(S):
        repeats[s] = 1.0 if cycles or cycle[s] > 0.0 else 0.0
    for t in range(len(values)):
        now, row = time[t], int(state[ROW])
        for h in range(H):
            place, horizon = places[h], horizons[h]
            waits = place[END_RECORD] - place[FIRST_RECORD] < horizon[RECORD_ROOM]
            waits = waits and place[END_STORED] - place[FIRST_STORED] < horizon[STORED_ROOM]
            if not waits or row - place[BEGIN_MEAN] + 2 * BLOCK > room:
                return t
        if now < state[LAST_TIME] - near:
            for h in range(H):
                _forget_windows(
                    constants, horizons[h], places[h], row, S, stored, picks, P[h], W[h], own_P[h], own_W[h],
                    targets[h], mean_shifted[h], batch, errors, phi,
                )  # fmt: skip
            _forget_days(value_shifted)
        left_out = now - state[LAST_TIME]
        reading = readings[row % room]
        reading[0] = state[LAST_TIME] = now
        is_read = _take_in(constants, values[t], row, left_out, reading, sums, bounds, value_shifted, scores[0])
        for h in range(H):
            _close(
                constants, horizons[h], places[h], now, is_read, row + 1, S, readings, sums, records, stored, picks,
                P[h], W[h], own_P[h], own_W[h], targets[h], ratios[h], climate[h], scores[h], blocks[h],
                mean_shifted[h], plotted[h], repeats, paces[h], batch, errors, phi, y, due,
            )  # fmt: skip
        seen = row + 1.0
        for s in range(S):
            u[s] = held[t, s]
        skipped = 0
        if constants[REGULAR] > 0.0 and constants[LIMIT] < left_out < np.inf:
            skipped = int(min(PERIOD_ROWS, max(0.0, np.rint(left_out / constants[STEP]) - 1.0)))
        _remember_period(u, skipped, past, cycle)
        is_due = seen < PROMPT or row % SELDOM == 0
        _make_past(u, seen, is_due, recent, traces, moments, features, units)
        if extra > 0:
            common[0] = 1.0
            if O > 0:
                _make_others(others[t], seen, is_due, other_memory, other_moments, padded, common[1:])
        hour = 0
        if cycles:
            hour = _remember_season(constants, u, now, memory, offs, waves)
            if extra > 0:
                _make_common(constants, waves, hour, 1 + 3 * O, common)
            for k in range(7):
                for i in range(L):
                    features[PAST + 11 + k, i] = waves[k]
            _note(features, PAST + 11, own, S, noted)
        _note(features, 0, FORECAST, S, noted)
        for n in range(extra):
            phi[n] = common[n]
        for h in range(H):
            horizon, place = horizons[h], places[h]
            is_kept, is_stored = row % int(horizon[KEEP]) == 0, row % int(horizon[STRIDE]) == 0
            record = records[int(horizon[RECORD_AT]) + int(place[END_RECORD]) % int(horizon[RECORD_ROOM])]
            waiting = stored[int(horizon[STORED_AT]) + int(place[END_STORED]) % int(horizon[STORED_ROOM])]
            record[R_TIME], record[R_ROW], record[R_HOUR], record[R_STORED] = now, row, hour, 1.0 if is_stored else 0.0
            if cycles:
                _look_ahead(constants, horizon, now, u, memory, offs, seasons)
            _repeat_periods(past, cycle, int(horizon[ROWS]), repeated)
            for s in range(S):
                ahead[s] = forecasts[t, s, h]
            _answer_horizon(
                constants, horizon, u, ahead, 1.0 / seen, is_due, hour, S, picks, noted, features, seasons, repeated,
                units, ahead_moments[h], bounds, climate[h], W[h], own_W[h], targets[h], phi, answered, of_signal,
                predicted, record, waiting,
            )  # fmt: skip
            fields = record[RECORD:]
            for s in range(S):
                for kind in range(2):
                    j, answers = kind * L + s, out[t, (s * H + h) * 2 + kind]
                    answers[0], answers[1] = fields[R_ANSWER * T + j], fields[R_LOW * T + j]
                    answers[2], answers[3] = fields[R_HIGH * T + j], fields[R_USUAL * T + j]
            # (a row that takes the place of another before the last is not looked at)
            if row % int(horizon[PLOT_STRIDE]) == 0 and t + PLOTTED * horizon[PLOT_STRIDE] >= len(values):
                plot = plotted[h, int(row / horizon[PLOT_STRIDE]) % PLOTTED]
                plot[0], plot[1] = row, now
                for i in range(L):
                    plot[2 + i] = u[i]
                for j in range(T):
                    plot[2 + L + j], plot[2 + L + T + j] = fields[R_ANSWER * T + j], fields[R_LOW * T + j]
                    plot[2 + L + 2 * T + j], plot[2 + L + 3 * T + j] = fields[R_HIGH * T + j], fields[R_USUAL * T + j]
                    plot[2 + L + 4 * T + j] = np.nan
            if is_kept:
                place[END_RECORD] += 1.0
                if is_stored:
                    place[END_STORED] += 1.0
        state[ROW] = row + 1.0
    return len(values)
