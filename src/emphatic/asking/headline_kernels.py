"""The loop over the rows for the values and means of all signals at all horizons: one matrix a horizon for all signals.

At a row, ``OWN`` features are made of each signal. A selection of those of all signals, with the calendar and readings
of others, are the features of the shared matrix, of which there is one a horizon. Its right-hand sides are all labels
of that horizon: they close at the same row, so that one gain serves all. Beside it stands a small matrix of each
signal. Rows are gone through one by one, so that bits do not depend on how a stream is cut into blocks.
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
    TRACES,
    UNSCALED,
    WEEKLY,
)  # fmt: skip
from emphatic.engines.compiled import jit_for
from emphatic.questions.gvf import REACHED

if TYPE_CHECKING:
    from numpy.typing import NDArray

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
# What waits for a label: the row, then for each target what was answered and the simple answers.
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
#: The features of a matrix are padded with zeros to a multiple of this, so that loops have no remainder. A row of a
#: batch has room for so many: that it is the same for all matrices lets a loop read several rows at once.
LANES, WIDE = 8, 160
#: Room for a batch: its rows, their products with a matrix, and two small matrices.
BATCH_SCRATCH = 3 * BATCH * WIDE + 2 * BATCH * BATCH
#: Labelled rows of a horizon after which its matrices learn from one in so many, which then counts as all of them.
MANY, THIN = 32768, 2
#: Slow quantities (deviations, weights of component answers) are found anew at each row, or label, of the first so
#: many, and then at one in so many.
PROMPT, SELDOM = 256, 8
#: Ratios of errors to their expected size that are remembered.
REMEMBERED_RATIOS = 400
#: Labels before which the combination itself is answered, and what it costs to be worse than a simple answer.
UNCHOSEN, WORSE = 50.0, 20.0
#: Windows before which the combination itself is answered.
ENOUGH = 10.0
#: Rows that are remembered for plots.
PLOTTED = 256
#: The most that a target may be, in standard deviations of its signal, and that a standardised feature may be.
FARTHEST, CLIP = 50.0, 5.0
#: Rows that periods are found in, and the points of a period at which it is looked up.
PERIOD_ROWS, PERIOD_POINTS = 8192, 12


def scratch_size(signals: int, padded: int, extra: int) -> int:
    """Room for intermediate results, for features of a signal that are padded to so many."""
    return BATCH_SCRATCH + 2 * BATCH * (4 * signals + 6) + WIDE + signals * (padded + 19) + 1 + PLAIN + 14 + extra


@register_jitable
def _within(value: float, most: float) -> float:
    return min(most, max(-most, value))


@register_jitable
def _slot(time: float, period: float, offset: float, shift: float, slots: float) -> int:
    phase = (time + offset) / period
    return int((phase - math.floor(phase)) * slots + shift) % int(slots)


@register_jitable
def _multiply(P: Floats, X: Floats, count: int, G: Floats) -> None:
    """The rows X P, of a symmetric matrix P, into ``G``."""
    n = len(P) // LANES * LANES
    for j in range(BATCH * WIDE):
        G[j] = 0.0
    for r in range(0, count, 4):
        x, g = X[r * WIDE :], G[r * WIDE :]
        for i in range(0, n, 4):
            p0, p1, p2, p3 = P[i], P[i + 1], P[i + 2], P[i + 3]
            a0, a1, a2, a3 = x[i], x[i + 1], x[i + 2], x[i + 3]
            b0, b1, b2, b3 = x[WIDE + i], x[WIDE + i + 1], x[WIDE + i + 2], x[WIDE + i + 3]
            c0, c1, c2, c3 = x[2 * WIDE + i], x[2 * WIDE + i + 1], x[2 * WIDE + i + 2], x[2 * WIDE + i + 3]
            d0, d1, d2, d3 = x[3 * WIDE + i], x[3 * WIDE + i + 1], x[3 * WIDE + i + 2], x[3 * WIDE + i + 3]
            for j in range(n):
                u, v, w, z = p0[j], p1[j], p2[j], p3[j]
                g[j] += a0 * u + a1 * v + a2 * w + a3 * z
                g[WIDE + j] += b0 * u + b1 * v + b2 * w + b3 * z
                g[2 * WIDE + j] += c0 * u + c1 * v + c2 * w + c3 * z
                g[3 * WIDE + j] += d0 * u + d1 * v + d2 * w + d3 * z


@register_jitable
def _add_products(rows: Floats, scale: float, L: Floats, step: int, stride: int, sign: float, R: Floats) -> None:
    """rows ← scale · rows + sign · L R; the number of rows is even. L[i, r] lies at i · ``step`` + r · ``stride``."""
    n = rows.shape[1] // LANES * LANES
    for i in range(0, len(rows), 2):
        p, q, x, y = rows[i], rows[i + 1], L[i * step :], L[(i + 1) * step :]
        a0, b0, c0, d0 = sign * x[0], sign * x[stride], sign * x[2 * stride], sign * x[3 * stride]
        e0, f0, g0, h0 = sign * x[4 * stride], sign * x[5 * stride], sign * x[6 * stride], sign * x[7 * stride]
        a1, b1, c1, d1 = sign * y[0], sign * y[stride], sign * y[2 * stride], sign * y[3 * stride]
        e1, f1, g1, h1 = sign * y[4 * stride], sign * y[5 * stride], sign * y[6 * stride], sign * y[7 * stride]
        for j in range(n):
            a, b, c, d = R[j], R[WIDE + j], R[2 * WIDE + j], R[3 * WIDE + j]
            e, f, g, h = R[4 * WIDE + j], R[5 * WIDE + j], R[6 * WIDE + j], R[7 * WIDE + j]
            p[j] = scale * p[j] + (a0 * a + b0 * b + c0 * c + d0 * d + e0 * e + f0 * f + g0 * g + h0 * h)
            q[j] = scale * q[j] + (a1 * a + b1 * b + c1 * c + d1 * d + e1 * e + f1 * f + g1 * g + h1 * h)


@register_jitable
def _combine(M: Floats, scale: float, G: Floats, n: int, H: Floats) -> None:
    """The rows scale · M G into ``H``, for a lower triangle M that is 0 beyond the rows that are used."""
    n = n // LANES * LANES
    for r in range(BATCH):
        m, h = M[r], H[r * WIDE :]
        m0, m1, m2, m3 = scale * m[0], scale * m[1], scale * m[2], scale * m[3]
        m4, m5, m6, m7 = scale * m[4], scale * m[5], scale * m[6], scale * m[7]
        for j in range(n):
            first = m0 * G[j] + m1 * G[WIDE + j] + m2 * G[2 * WIDE + j] + m3 * G[3 * WIDE + j]
            h[j] = first + m4 * G[4 * WIDE + j] + m5 * G[5 * WIDE + j] + m6 * G[6 * WIDE + j] + m7 * G[7 * WIDE + j]


@register_jitable
def _dot_rows(x: Floats, X: Floats, out: Floats) -> None:
    """The products of ``x`` with each of the rows X."""
    n = len(x) // LANES * LANES
    a = b = c = d = e = f = g = h = 0.0
    for j in range(n):
        value = x[j]
        a += value * X[j]
        b += value * X[WIDE + j]
        c += value * X[2 * WIDE + j]
        d += value * X[3 * WIDE + j]
        e += value * X[4 * WIDE + j]
        f += value * X[5 * WIDE + j]
        g += value * X[6 * WIDE + j]
        h += value * X[7 * WIDE + j]
    out[0], out[1], out[2], out[3], out[4], out[5], out[6], out[7] = a, b, c, d, e, f, g, h


@register_jitable
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
    ``batch`` begins with the rows X, which are 0 beyond the ``features`` and beyond ``count``. ``errors`` are those of
    the first target, of the second, …
    """
    targets, n = W.shape
    X, G, H = batch[: BATCH * WIDE], batch[BATCH * WIDE : 2 * BATCH * WIDE], batch[2 * BATCH * WIDE :]
    squares = batch[3 * BATCH * WIDE :]
    A, M = squares[: BATCH * BATCH].reshape((BATCH, BATCH)), squares[BATCH * BATCH :].reshape((BATCH, BATCH))
    E, D = errors, errors[targets * BATCH :]
    trace = 0.0
    for i in range(features):
        trace += P[i, i]
    f = forget ** (count * weight) if trace < features / ridge else 1.0
    noise = f / weight
    is_sound = trace < 1e12
    _multiply(P, X, count, G)
    for r in range(count):
        _dot_rows(G[r * WIDE : r * WIDE + n], X, A[r])
        for q in range(r + 1):
            along = A[r, q] + noise if q == r else A[r, q]
            for i in range(q):
                along -= A[r, i] * A[q, i]
            if q == r:
                is_sound = is_sound and along >= 0.5 * noise
                A[r, r] = 1.0 / math.sqrt(max(along, 0.5 * noise))  # (only this is needed of the diagonal)
            else:
                A[r, q] = along * A[q, q]
    if not is_sound:
        # Rounding errors have made the matrix useless: begin it again, and keep the weights.
        for i in range(features):
            for j in range(features):
                P[i, j] = 0.0
            P[i, i] = 1.0 / ridge
        return
    for r in range(BATCH):
        for q in range(BATCH):
            M[r, q] = 0.0
    for r in range(count):
        M[r, r] = A[r, r]
        for q in range(r):
            along = 0.0
            for i in range(q, r):
                along += A[r, i] * M[i, q]
            M[r, q] = -along * A[r, r]
    # H is divided by the root of f, so that P stays symmetric: its change is a product of H with itself.
    scale = math.sqrt(1.0 / f)
    _combine(M, scale, G, n, H)
    for m in range(targets):
        for r in range(BATCH):
            along = 0.0
            for q in range(BATCH):
                along += M[r, q] * E[m * BATCH + q]
            D[m * BATCH + r] = along
    _add_products(W, 1.0, D, BATCH, 1, 1.0 / scale, H)
    _add_products(P, 1.0 / f, H, 1, WIDE, -1.0, H)


@register_jitable
def _predict_all(W: Floats, x: Floats, out: Floats) -> None:
    """What the weights ``W`` (targets, n) answer; the number of targets is even."""
    n = W.shape[1] // LANES * LANES
    for m in range(0, len(W), 2):
        p, q, a, b = W[m], W[m + 1], 0.0, 0.0
        for i in range(n):
            a += p[i] * x[i]
            b += q[i] * x[i]
        out[m], out[m + 1] = a, b


@register_jitable
def _standardise(value: float, moments: Floats, share: float, is_due: bool) -> float:
    """The value by the mean and deviation so far, to which it is added with its ``share``, 1 / (rows so far).

    ``moments`` are the mean, the variance and 1 / the deviation, which is found anew where it ``is_due``.
    """
    change = value - moments[0]
    moments[0] += change * share
    off = value - moments[0]
    moments[1] += share * (change * off - moments[1])
    if is_due:
        spread = math.sqrt(max(moments[1], 0.0))
        moments[2] = 1.0 / spread if spread > 1e-12 * (1.0 + abs(moments[0])) else 0.0
    return _within(off * moments[2], CLIP)


@register_jitable
def _sum_window(readings: Floats, sums: Floats, begin: int, end: int, S: int, total: Floats) -> None:
    """Sums over the rows from ``begin`` to ``end``: rows left out, readings and how many there are, of each signal."""
    room, width = len(readings), 1 + 2 * S
    for i in range(width):
        total[i] = 0.0
    row = begin
    while row < end:
        if row % BLOCK == 0 and row + BLOCK <= end:
            block = sums[(row // BLOCK) % len(sums)]
            for i in range(width):
                total[i] += block[i]
            row += BLOCK
            continue
        reading = readings[row % room]
        total[0] += reading[1]
        for s in range(S):
            value = reading[2 + s]
            if value == value:
                total[1 + s] += value
                total[1 + S + s] += 1.0
        row += 1


@register_jitable
def _find_labels(
    constants: Floats, horizon: Floats, place: Floats, readings: Floats, sums: Floats, end: int, record: Floats, S: int,
    total: Floats, y: Floats,
) -> None:  # fmt: skip
    """The labels of a row, of all signals: the values at the horizon, then the means up to it; NaN where not known."""
    step, span, near, start = constants[STEP], horizon[SPAN], 1e-6 * constants[STEP], record[R_TIME]
    room = len(readings)
    begin = int(place[BEGIN_AT])
    while begin < end and readings[begin % room, 0] <= start + span - 0.5 * step - near:
        begin += 1
    place[BEGIN_AT] = begin
    for s in range(S):
        nearest, distance = np.nan, 0.5 * step + near
        for i in range(begin, end):
            reading = readings[i % room]
            off = abs(reading[0] - start - span)
            if reading[2 + s] == reading[2 + s] and reading[0] > start + near and off < distance:
                nearest, distance = reading[2 + s], off
        y[s] = nearest
    begin = int(place[BEGIN_MEAN])
    while begin < end and readings[begin % room, 0] <= start + near:
        begin += 1
    place[BEGIN_MEAN] = begin
    stop = end
    while stop > begin and readings[(stop - 1) % room, 0] > start + span + constants[SLACK]:
        stop -= 1
    _sum_window(readings, sums, begin, stop, S, total)
    expected = horizon[ROWS]
    if constants[REGULAR] == 0.0:
        previous = readings[(stop - 1) % room, 0] if stop > begin else start
        missing = total[0]
        if start + span - previous > constants[LIMIT]:
            missing += (start + span - previous) / step - 1.0
        expected = stop - begin + missing
    for s in range(S):
        known = total[1 + S + s]
        y[S + s] = total[1 + s] / known if known > 0.0 and known >= 0.9 * expected - 1e-9 else np.nan


@register_jitable
def _make_past(
    u: Floats, seen: float, is_due: bool, recent: Floats, traces: Floats, moments: Floats, raw: Floats, own: Floats,
    units: Floats,
) -> None:  # fmt: skip
    """The features of each signal that do not depend on a horizon: ``own`` (S, OWN) up to the exponential mean."""
    filled, share = int(min(seen, REMEMBERED)), 1.0 / seen
    few = min(filled, 8)
    for s in range(len(u)):
        past, value = recent[s], u[s]
        for i in range(filled - 1, 0, -1):
            past[i] = past[i - 1]
        past[0] = value
        raw[0] = value
        n = 1
        for lag in LAGS:
            raw[n] = value - past[lag] if lag < filled else 0.0
            n += 1
        for m in range(4):
            traces[s, m] += max(1.0 / TRACES[m], share) * (value - traces[s, m])
            raw[n] = traces[s, m]
            n += 1
        mean, square = 0.0, 0.0
        for i in range(few):
            mean += past[i]
        mean /= few
        for i in range(few):
            square += (past[i] - mean) * (past[i] - mean)
        raw[n] = math.sqrt(square / few)
        phi = own[s]
        phi[0] = 1.0
        for i in range(PLAIN):
            phi[1 + i] = _standardise(raw[i], moments[s, i], share, is_due)
        units[s] = max(math.sqrt(moments[s, 0, 1]), 1e-12) if seen > UNSCALED else np.nan
        n = 1 + PLAIN
        for edge in NUMBER_HINGES:
            phi[n] = max(phi[1] - edge, 0.0)
            n += 1
        for i in range(4):
            phi[n + i] = abs(phi[1 + i])


@register_jitable
def _remember_season(constants: Floats, u: Floats, time: float, memory: Floats, offs: Floats, waves: Floats) -> int:
    """Take in the season of the present row; ``offs`` are the deviations from what was usual. Returns the hour."""
    slots_a, slots_b = int(constants[SLOTS_A]), int(constants[SLOTS_B])
    a = _slot(time, constants[PERIOD_A], constants[OFFSET_A], constants[SHIFT], slots_a)
    b = _slot(time, constants[PERIOD_B], constants[OFFSET_B], constants[SHIFT], slots_b)
    for s in range(len(u)):
        slots, value = memory[s], u[s]
        off = value - slots[a, 1] if slots[a, 1] == slots[a, 1] else 0.0
        offs[s] = value - slots[b, 3] if slots[b, 3] == slots[b, 3] else off
        slots[a, 0], slots[b, 2] = value, value
        slots[a, 1] = value if slots[a, 1] != slots[a, 1] else slots[a, 1] + SEASON_RATE * (value - slots[a, 1])
        slots[b, 3] = value if slots[b, 3] != slots[b, 3] else slots[b, 3] + SEASON_RATE * (value - slots[b, 3])
    bin_a = _slot(time, constants[PERIOD_A], constants[OFFSET_A], NEARLY, constants[BINS_A])
    bin_b = _slot(time, constants[PERIOD_B], constants[OFFSET_B], NEARLY, constants[BINS_B])
    phase = 2.0 * math.pi * a / slots_a
    for k in range(3):
        waves[2 * k], waves[2 * k + 1] = math.sin((k + 1) * phase), math.cos((k + 1) * phase)
    waves[6] = 1.0 if constants[WEEKLY] > 0.0 and bin_b >= 5 else 0.0
    waves[7] = float(bin_b)
    return bin_a


@register_jitable
def _look_ahead(
    constants: Floats, horizon: Floats, time: float, u: Floats, memory: Floats, offs: Floats, seasons: Floats
) -> None:
    """What the seasons say of the row at the horizon, and of the rows up to it: ``seasons`` (S, 9)."""
    step, fading = constants[STEP], horizon[FADING]
    slots_a, slots_b = int(constants[SLOTS_A]), int(constants[SLOTS_B])
    count = int(horizon[LOOK_COUNT])
    for s in range(len(u)):
        seasons[s, 6] = seasons[s, 7] = seasons[s, 8] = 0.0
    for j in range(count + 1):
        ahead = horizon[LOOK_BEGIN] + j * horizon[LOOK_STRIDE] if j < count else horizon[ROWS]
        future = time + ahead * step
        a = _slot(future, constants[PERIOD_A], constants[OFFSET_A], constants[SHIFT], slots_a)
        b = _slot(future, constants[PERIOD_B], constants[OFFSET_B], constants[SHIFT], slots_b)
        for s in range(len(u)):
            slots, value, out = memory[s], u[s], seasons[s]
            last_a = slots[a, 0] if slots[a, 0] == slots[a, 0] else value
            mean_a = slots[a, 1] if slots[a, 1] == slots[a, 1] else value
            mean_b = slots[b, 3] if slots[b, 3] == slots[b, 3] else mean_a
            last_b = slots[b, 2] if slots[b, 2] == slots[b, 2] else last_a
            if j < count:
                out[6] += mean_b / count
                out[7] += last_a / count
                out[8] += last_b / count
            else:
                out[0], out[1], out[2], out[3] = last_a, mean_a, mean_b, mean_b + fading * offs[s]
                out[4], out[5] = last_b, offs[s]


@register_jitable
def _remember_period(u: Floats, skipped: int, past: Floats, cycle: Floats) -> None:
    """Take in the readings of the present row, after rows that are missing in time: these are as one period ago."""
    S, room = len(u), past.shape[1]
    count = int(cycle[S])
    for k in range(skipped + 1):
        for s in range(S):
            back = max(1, int(cycle[s]))
            past[s, count % room] = u[s] if k == skipped else past[s, (count - back) % room]
        count += 1
    cycle[S] = count


@register_jitable
def _repeat_period(past: Floats, count: int, period: int, rows: int) -> tuple[float, float]:
    """The value after so many rows and the mean up to it, if the last period repeats itself."""
    room, end = len(past), count - 1 - period
    length = min(rows, period)
    between = (length + PERIOD_POINTS - 1) // PERIOD_POINTS
    total, points = 0.0, 0
    for k in range(between, length + 1, between):
        total += past[(end + k) % room]
        points += 1
    return past[(end + 1 + (rows - 1) % period) % room], total / points


@register_jitable
def _weigh(target: Floats, cycles: bool, repeats: bool, windows: float) -> None:
    """The weights of the component answers of a target and its choice, after labels of so many ``windows``.

    The simple answers get the share that would have had the least squared error so far.
    """
    best = best_simple = np.inf
    for m in range(MEMBERS):
        if (m != 5 or cycles) and (m != 6 or repeats):
            best = min(best, target[SQUARES + m])
            if 4 <= m < 9:
                best_simple = min(best_simple, target[SQUARES + m])
    best, best_simple = max(best, 1e-30), max(best_simple, 1e-30)
    power = min(MOST_POWER, POWER + POWER_WINDOW * windows)
    simple_power = min(MOST_POWER, SIMPLE_POWER + SIMPLE_POWER_WINDOW * windows)
    total = total_simple = 0.0
    for m in range(MEMBERS):
        square, is_used = max(target[SQUARES + m], 1e-30), (m != 5 or cycles) and (m != 6 or repeats)
        target[EVERY + m] = (best / square) ** power if is_used else 0.0
        target[SIMPLE + m] = (best_simple / square) ** simple_power if is_used and 4 <= m < 9 else 0.0
        total += target[EVERY + m]
        total_simple += target[SIMPLE + m]
    share = SHARE
    if target[AROUND] > 0.0:
        share = (target[ALONG] / target[AROUND] * windows + SHARE * SHARE_WINDOWS) / (windows + SHARE_WINDOWS)
        share = min(1.0, max(0.0, share))
    for m in range(MEMBERS):
        target[EVERY + m] /= total
        target[SIMPLE + m] /= total_simple
        target[WEIGHTS + m] = share * target[EVERY + m] + (1.0 - share) * target[SIMPLE + m]
    target[CHOICE] = -1.0
    if target[RATIOS] > UNCHOSEN and windows > ENOUGH:
        target[CHOICE] = float(_choose(target, cycles, repeats, MARGIN / math.sqrt(windows)))


@register_jitable
def _extend(bounds: Floats, value: float) -> None:
    """The least and the largest value so far, and how often each was reached."""
    bounds[2] = 1.0 if value < bounds[0] else bounds[2] + (value == bounds[0])
    bounds[3] = 1.0 if value > bounds[1] else bounds[3] + (value == bounds[1])
    bounds[0], bounds[1] = min(bounds[0], value), max(bounds[1], value)


@register_jitable
def _answer(target: Floats, members: Floats, record: Floats, sigma: float, bounds: Floats, usual: Floats) -> None:
    """The combined answer of a target and its interval, into ``record``; ``usual`` is what is known of its hour."""
    least, most = bounds[0], bounds[1]
    room = 0.1 * (most - least)
    lowest = least - room if least < 0.0 else max(0.0, least - room)
    highest = most + room if most > 0.0 else min(0.0, most + room)
    if bounds[2] >= REACHED:
        lowest = least
    if bounds[3] >= REACHED:
        highest = most
    if least > most:
        lowest, highest = -np.inf, np.inf
    answer = 0.0
    for m in range(MEMBERS):
        members[m] = min(highest, max(lowest, members[m]))
        answer += target[WEIGHTS + m] * members[m]
    if target[RATIOS] <= UNLEARNED:
        answer = members[4]
    record[R_CENTRE] = answer
    sigma = max(sigma * target[SIZE], max(0.2 * target[ERROR], 1e-12)) if target[ERROR] > 0.0 else 1.0
    record[R_SIGMA] = sigma
    low = high = np.nan
    if target[RATIOS] > 20.0:
        low = max(lowest, answer + sigma * (target[Q_LOW] - target[LEVEL_LOW] - usual[2]))
        high = min(highest, answer + sigma * (target[Q_HIGH] + target[LEVEL_HIGH] + usual[3]))
    choices = members[MEMBERS:]
    off = sigma * target[Q_MIDDLE]
    for c in range(5):
        choices[c] = min(highest, max(lowest, answer + 0.25 * c * off))
    choices[5], choices[6], choices[7] = 0.5 * (answer + members[4]), members[4], members[7]
    if target[CHOICE] >= 0.0:
        answer = choices[int(target[CHOICE])]
    if least > most:  # nothing was read yet
        answer = np.nan
    record[R_ANSWER], record[R_LOW], record[R_HIGH] = answer, min(low, answer), max(high, answer)


@register_jitable
def _choose(target: Floats, cycles: bool, repeats: bool, margin: float) -> int:
    """The choice that is no worse than the simple answers by mean absolute and by mean squared error, as far as can be.

    The median has the least absolute error and the mean the least squared one; of a signal that mostly stays as it is,
    the value now has the former. To move that far must be better by the ``margin``.
    """
    square, size = min(target[SQUARES + 4], target[SQUARES + 7]), min(target[CHOICE_ABS + 6], target[CHOICE_ABS + 7])
    if cycles:
        square, size = min(square, target[SQUARES + 5]), min(size, target[LAST_ABS])
    if repeats:
        square, size = min(square, target[SQUARES + 6]), min(size, target[LAST_ABS + 1])
    square, size = max(square, 1e-30), max(size, 1e-30)
    variance = max(target[SQUARES + 8], 1e-30)
    best, least = 0, np.inf
    for c in range(CHOICES):
        off = target[CHOICE_ABS + c] / size
        worse = max(0.0, off - 1.0) + max(0.0, (target[CHOICE_SQUARES + c] - square) / variance)
        cost = off + math.sqrt(target[CHOICE_SQUARES + c] / square) + WORSE * worse
        if 0 < c < CHOICES - 1:
            cost += margin
        if cost < least:
            best, least = c, cost
    return best


@register_jitable
def _insert(ratios: Floats, counted: int, value: float) -> int:
    """Put a ratio in the place of the oldest, and in order among all of them, which follow; returns how many."""
    count = min(counted, REMEMBERED_RATIOS)
    ordered, oldest = ratios[REMEMBERED_RATIOS:], ratios[counted % REMEMBERED_RATIOS]
    # How many are smaller: to count them all is quicker than a search, which the processor cannot foresee. The place
    # that becomes free is that of the oldest, or the one behind all.
    free = place = 0
    for i in range(count):
        free += 1 if ordered[i] < oldest else 0
        place += 1 if ordered[i] < value else 0
    if count < REMEMBERED_RATIOS:
        free = count
    ratios[counted % REMEMBERED_RATIOS] = value
    if place > free:
        place -= 1
        between = ordered[free:]
        for i in range(place - free):
            between[i] = between[i + 1]
    else:
        between = ordered[place:]
        for i in range(free - place, 0, -1):
            between[i] = between[i - 1]
    ordered[place] = value
    return min(count + 1, REMEMBERED_RATIOS)


@register_jitable
def _follow_errors(
    constants: Floats, target: Floats, record: Floats, y: float, paces: Floats, ratios: Floats, usual: Floats
) -> None:
    """Learn the size of errors and their quantiles from a label that is known now."""
    size = abs(y - record[R_CENTRE])
    counted = target[RATIOS]
    if target[ERROR] <= 0.0:
        target[ERROR] = size
    else:
        target[ERROR] += max(1.0 / 500.0, 1.0 / (counted + 1.0)) * (size - target[ERROR])
    if target[SIZE] <= 0.0 and counted >= UNLEARNED:
        target[SIZE] = max(target[ERROR], 1e-12)
    tail = 0.5 * (1.0 - constants[COVERAGE])
    count = _insert(ratios, int(counted), (y - record[R_CENTRE]) / max(record[R_SIGMA], 1e-12))
    target[RATIOS] = counted + 1.0
    ordered = ratios[REMEMBERED_RATIOS:]
    target[Q_LOW], target[Q_HIGH] = ordered[int(tail * (count - 1))], ordered[math.ceil((1.0 - tail) * (count - 1))]
    target[Q_MIDDLE] = ordered[count // 2]
    if record[R_LOW] == record[R_LOW]:
        below, above = (1.0 if y < record[R_LOW] else 0.0) - tail, (1.0 if y > record[R_HIGH] else 0.0) - tail
        target[LEVEL_LOW] += paces[0] * below
        target[LEVEL_HIGH] += paces[0] * above
        usual[2] += paces[1] * below
        usual[3] += paces[1] * above


@register_jitable
def _assemble(waiting: Floats, S: int, own: int, extra: int, picks: Places, phi: Floats) -> None:
    """The features of the shared matrix, from what waits for a label."""
    begin = S * own
    for i in range(extra):
        phi[i] = waiting[begin + i]
    n = extra
    for s in range(S):
        for p in range(len(picks)):
            phi[n] = waiting[s * own + picks[p]]
            n += 1


@register_jitable
def _label_row(
    constants: Floats, horizon: Floats, waiting: Floats, record: Floats, y: Floats, S: int, targets: Floats,
    ratios: Floats, climate: Floats, cycle: Floats, paces: Floats,
) -> None:  # fmt: skip
    """Compare the answers of a row with its labels at one horizon, and note what the matrices are to learn from it."""
    begin = S * int(constants[OWN]) + int(constants[EXTRA])
    units, members, wanted = waiting[begin:], waiting[begin + S :], waiting[begin + S + 2 * S * ENTRIES :]
    for s in range(S):
        for kind in range(2):
            j = kind * S + s
            label, base, target = y[j], ENTRIES * j, targets[j]
            place = 6 * s + 2 * kind
            wanted[place] = wanted[place + 1] = wanted[6 * s + 4 + kind] = np.nan
            if label != label or units[s] != units[s]:
                continue
            for b in range(2):
                wanted[place + b] = _within((label - members[base + 4 + b]) / units[s], FARTHEST)
            fields = record[RECORD + RECORD_FIELDS * j :]
            rate = max(1.0 / ERROR_ROWS, RECENT / (target[RATIOS] + RECENT))
            every = simple = 0.0
            for m in range(MEMBERS):
                every += target[EVERY + m] * members[base + m]
                simple += target[SIMPLE + m] * members[base + m]
            target[ALONG] += rate * ((every - simple) * (label - simple) - target[ALONG])
            target[AROUND] += rate * ((every - simple) * (every - simple) - target[AROUND])
            for m in range(MEMBERS):
                off = members[base + m] - label
                target[SQUARES + m] += rate * (off * off - target[SQUARES + m])
                if 5 <= m <= 6:
                    target[LAST_ABS + m - 5] += rate * (abs(off) - target[LAST_ABS + m - 5])
            for m in range(CHOICES):
                off = members[base + MEMBERS + m] - label
                target[CHOICE_SQUARES + m] += rate * (off * off - target[CHOICE_SQUARES + m])
                target[CHOICE_ABS + m] += rate * (abs(off) - target[CHOICE_ABS + m])
            _follow_errors(constants, target, fields, label, paces, ratios[j], climate[j, int(record[R_HOUR])])
            if target[RATIOS] < PROMPT or int(target[RATIOS]) % SELDOM == 0:
                cycles, windows = constants[CYCLES] > 0.0, target[RATIOS] * horizon[STRIDE] / horizon[ROWS]
                _weigh(target, cycles, cycles or cycle[s] > 0.0, windows)
            if target[SIZE] > 0.0:
                wanted[6 * s + 4 + kind] = min(FARTHEST, abs(label - fields[R_CENTRE]) / target[SIZE])


@register_jitable
def _find_spacing(place: Floats) -> int:
    """One in how many labelled rows the matrices of a horizon learn from."""
    return THIN if place[FIRST_STORED] >= MANY else 1


@register_jitable
def _learn_rows(
    constants: Floats, horizon: Floats, place: Floats, stored: Floats, S: int, picks: Places, P: Floats, W: Floats,
    own_P: Floats, own_W: Floats, batch: Floats, errors: Floats,
) -> None:  # fmt: skip
    """Learn from the rows of one horizon that have their labels: all signals at once, then the small matrix of each."""
    X = batch[: BATCH * WIDE]
    own, extra, shared = int(constants[OWN]), int(constants[EXTRA]), int(constants[SHARED])
    first, every = int(place[FIRST_STORED]), _find_spacing(place)
    count = (int(place[END_LABELLED]) - first + every - 1) // every
    begin, room = int(horizon[STORED_AT]), int(horizon[STORED_ROOM])
    at = S * own + extra + S + 2 * S * ENTRIES
    for s in range(-1, S):
        # (−1 is all signals)
        if s < 0 and shared == 0:
            continue
        width = shared if s < 0 else own
        weights, matrix = W if s < 0 else own_W[s], P if s < 0 else own_P[s]
        for r in range(BATCH):
            x = X[r * WIDE : (r + 1) * WIDE]
            for i in range(WIDE):
                x[i] = 0.0
            if r >= count:
                continue
            waiting = stored[begin + (first + r * every) % room]
            if s < 0:
                _assemble(waiting, S, own, extra, picks, x)
            elif waiting[at + 6 * s] == waiting[at + 6 * s] or waiting[at + 6 * s + 2] == waiting[at + 6 * s + 2]:
                for i in range(own):
                    x[i] = waiting[s * own + i]
        for m in range(len(weights)):
            error, wanted = errors[m * BATCH : (m + 1) * BATCH], at + 6 * (m // 4) + m % 4 if s < 0 else at + 6 * s + m
            _dot_rows(weights[m], X, error)
            for r in range(BATCH):
                value = stored[begin + (first + r * every) % room, wanted] if r < count else np.nan
                error[r] = value - error[r] if value == value else 0.0
        ridge = SHARED_RIDGE if s < 0 else OWN_RIDGE * horizon[ROWS] / horizon[STRIDE]
        _learn_all(matrix, weights, width, ridge, FORGET if s < 0 else 1.0, every, count, batch, errors)
    place[FIRST_STORED] = place[END_LABELLED]


@register_jitable
def _score(fields: Floats, y: float, hour: int, coverage: float, sums: Floats) -> None:
    """Score what was answered at a row whose label is known now, as questions that are asked are scored."""
    sums[COUNT] += 1.0
    sums[LABEL] += y
    sums[LABEL_SQUARE] += y * y
    error = fields[R_ANSWER] - y
    sums[SQUARE] += error * error
    sums[ABS] += abs(error)
    # (in the order of the baselines)
    for b in range(5):
        error = fields[R_NOW + b] - y
        sums[BASELINE_SQUARE + b] += error * error
        sums[BASELINE_ABS + b] += abs(error)
    low, high = fields[R_LOW], fields[R_HIGH]
    if low == low:
        inside = 1.0 if low <= y <= high else 0.0
        sums[INTERVALS] += 1.0
        sums[INSIDE] += inside
        outside = max(0.0, low - y) + max(0.0, y - high)
        sums[INTERVAL_SCORE] += high - low + 2.0 / (1.0 - coverage) * outside
        sums[HOURS + 2 * hour] += 1.0
        sums[HOURS + 2 * hour + 1] += inside


@register_jitable
def _make_block(place: Floats, blocks: Floats, row: float) -> int:
    """The block of a scored row: when there is none left, blocks merge pairwise, as in ``scores.measures``."""
    count = blocks.shape[1]
    while row >= count * place[BLOCK_ROWS]:
        for j in range(len(blocks)):
            for i in range(count):
                for m in range(blocks.shape[2]):
                    both = blocks[j, 2 * i, m] + blocks[j, 2 * i + 1, m] if 2 * i < count else 0.0
                    blocks[j, i, m] = both
        place[BLOCK_ROWS] *= 2.0
    return int(row / place[BLOCK_ROWS])


@register_jitable
def _add_errors(fields: Floats, y: float, block: Floats) -> None:
    """Sum squared errors for the verdict: rows, the answer, labels and their squares, the baselines."""
    block[0] += 1.0
    block[1] += (fields[R_ANSWER] - y) ** 2
    block[2] += y
    block[3] += y * y
    for b in range(5):
        block[4 + b] += (fields[R_NOW + b] - y) ** 2


@register_jitable
def _follow_naive(shifted: Floats, row: int, y: float, sums: Floats, part: int) -> None:
    """Sum |y − the y of one day before| (of the row before, where rows are no parts of a day), the scale of MASE."""
    day = len(shifted[0])
    place = row % day
    if shifted[1, place] == row - day:
        sums[2 + part, 0] += 1.0
        sums[2 + part, 1] += abs(y - shifted[0, place])
    shifted[0, place], shifted[1, place] = y, row


@register_jitable
def _close(
    constants: Floats, horizon: Floats, place: Floats, now: float, is_read: bool, end: int, S: int, readings: Floats,
    sums: Floats, records: Floats, stored: Floats, picks: Places, P: Floats, W: Floats, own_P: Floats, own_W: Floats,
    targets: Floats, ratios: Floats, climate: Floats, scores: Floats, blocks: Floats, mean_shifted: Floats,
    plotted: Floats, cycle: Floats, h: int, paces: Floats, batch: Floats, errors: Floats, total: Floats, y: Floats,
) -> None:  # fmt: skip
    """Score and learn from the rows whose windows have closed at one horizon."""
    head, tail, step = int(place[FIRST_RECORD]), int(place[END_RECORD]), constants[STEP]
    while head < tail:
        record = records[int(horizon[RECORD_AT]) + head % int(horizon[RECORD_ROOM])]
        due = record[R_TIME] + horizon[SPAN]
        if now < due - constants[SLACK]:
            break
        if not is_read and now <= due + (0.5 + 1e-6) * step:
            # A reading nearer than half a step may still come.
            break
        _find_labels(constants, horizon, place, readings, sums, end, record, S, total, y)
        row, hour, day = record[R_ROW], int(record[R_HOUR]), int(constants[DAY_STRIDE])
        is_daily, slot = int(row) % day == 0, int(row) // day
        part = 0 if row < constants[HALF] else 1
        plot = plotted[h, int(row / horizon[PLOT_STRIDE]) % PLOTTED]
        is_plotted = plot[0] == row
        block = _make_block(place, blocks, row - constants[HALF]) if part else 0
        for j in range(2 * S):
            label, target = y[j], targets[j]
            fields = record[RECORD + RECORD_FIELDS * j :]
            if label != label or fields[R_ANSWER] != fields[R_ANSWER]:
                # (there was no answer before the first reading)
                target[DROPPED] += 1.0
                y[j] = np.nan
                continue
            _score(fields, label, hour, constants[COVERAGE], scores[j, part])
            if part:
                _add_errors(fields, label, blocks[j, block])
            if j >= S and is_daily:
                _follow_naive(mean_shifted[h * S + j - S], slot, label, scores[j], part)
            if is_plotted:
                plot[2 + S + 5 * j + 4] = label
        if record[R_STORED] > 0.0:
            waiting = stored[int(horizon[STORED_AT]) + int(place[END_LABELLED]) % int(horizon[STORED_ROOM])]
            place[END_LABELLED] += 1.0
            _label_row(constants, horizon, waiting, record, y, S, targets, ratios, climate, cycle, paces)
            batch_rows = min(BATCH, 1 + int(place[FIRST_STORED]) // GROWS) * _find_spacing(place)
            if place[END_LABELLED] - place[FIRST_STORED] >= batch_rows:
                _learn_rows(constants, horizon, place, stored, S, picks, P, W, own_P, own_W, batch, errors)
        for j in range(2 * S):
            if y[j] == y[j]:
                targets[j, LABELS] += 1.0
                targets[j, LABEL_SUM] += y[j]
                climate[j, hour, 0] += y[j]
                climate[j, hour, 1] += 1.0
        head += 1
    place[FIRST_RECORD] = head


@jit_for(
    (
        _r1, _r2, _r2, _i1, _r2, _r2, _r2, _r1, _r3, _f1, _f1, _f2, _f2, _f2, _f2, _f2, _f2, _f2, _f2, _f3, _f2, _f2,
        _f4, _f3, _f4, _f4, _f3, _f4, _f3, _f3, _f3, _f4, _f4, _f3, _f3, _f3, _f2, _f1, _f3,
    ),
    allocates=False,
    as_one=True,
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
    S, H, O = values.shape[1], len(horizons), others.shape[1]
    own, extra, shared = int(constants[OWN]), int(constants[EXTRA]), int(constants[SHARED])
    cycles, bins_a, bins_b = constants[CYCLES] > 0.0, int(constants[BINS_A]), int(constants[BINS_B])
    padded = own_P.shape[2]
    batch, scratch = scratch[:BATCH_SCRATCH], scratch[BATCH_SCRATCH:]
    errors, scratch = scratch[: 2 * BATCH * (4 * S + 6)], scratch[2 * BATCH * (4 * S + 6) :]
    phi, scratch = scratch[:WIDE], scratch[WIDE:]
    features, scratch = scratch[: S * padded].reshape((S, padded)), scratch[S * padded :]
    seasons, scratch = scratch[: 9 * S].reshape((S, 9)), scratch[9 * S :]
    answered, units, offs = scratch[: 4 * S], scratch[4 * S : 5 * S], scratch[5 * S : 6 * S]
    total, y, scratch = scratch[6 * S : 8 * S + 1], scratch[8 * S + 1 : 10 * S + 1], scratch[10 * S + 1 :]
    raw, predicted, waves, common = scratch[:PLAIN], scratch[PLAIN:], scratch[PLAIN + 6 :], scratch[PLAIN + 14 :]
    room, near, day = len(readings), 1e-6 * constants[STEP], int(constants[DAY_STRIDE])
    for t in range(len(values)):
        now, row = time[t], int(state[ROW])
        for h in range(H):
            place, horizon = places[h], horizons[h]
            waits = place[END_RECORD] - place[FIRST_RECORD] < horizon[RECORD_ROOM]
            waits = waits and place[END_STORED] - place[FIRST_STORED] < horizon[STORED_ROOM]
            if not waits or row - place[BEGIN_MEAN] + 2 * BLOCK > room:
                return t
        if now < state[LAST_TIME] - near:
            # Time went back: what follows does not belong to the windows before.
            for h in range(H):
                for j in range(2 * S):
                    targets[h, j, DROPPED] += places[h, END_RECORD] - places[h, FIRST_RECORD]
                if places[h, END_LABELLED] > places[h, FIRST_STORED]:
                    _learn_rows(
                        constants, horizons[h], places[h], stored, S, picks, P[h], W[h], own_P[h], own_W[h], batch,
                        errors,
                    )  # fmt: skip
                places[h, FIRST_RECORD], places[h, FIRST_STORED] = places[h, END_RECORD], places[h, END_STORED]
                places[h, END_LABELLED] = places[h, END_STORED]
                places[h, BEGIN_AT] = places[h, BEGIN_MEAN] = row
            for i in range(value_shifted.shape[2]):
                for s in range(S):
                    value_shifted[s, 1, i] = -np.inf
                for s in range(H * S):
                    mean_shifted[s, 1, i] = -np.inf
        reading, block = readings[row % room], sums[(row // BLOCK) % len(sums)]
        if row % BLOCK == 0:
            for i in range(1 + 2 * S):
                block[i] = 0.0
        left_out = now - state[LAST_TIME]
        reading[0], reading[1] = now, left_out / constants[STEP] - 1.0 if constants[LIMIT] < left_out < np.inf else 0.0
        block[0] += reading[1]
        state[LAST_TIME] = now
        is_read = True
        for s in range(S):
            value = values[t, s]
            reading[2 + s] = value
            if value != value:
                is_read = False
                continue
            block[1 + s] += value
            block[1 + S + s] += 1.0
            _extend(bounds[s], value)
            if row % day == 0:
                part = 0 if row < constants[HALF] else 1
                _follow_naive(value_shifted[s], row // day, value, scores[0, s], part)
        for h in range(H):
            _close(
                constants, horizons[h], places[h], now, is_read, row + 1, S, readings, sums, records, stored, picks,
                P[h], W[h], own_P[h], own_W[h], targets[h], ratios[h], climate[h], scores[h], blocks[h],
                mean_shifted, plotted, cycle, h, paces[h], batch, errors, total, y,
            )  # fmt: skip
        seen = row + 1.0
        u = held[t]
        skipped = 0
        if constants[REGULAR] > 0.0 and constants[LIMIT] < left_out < np.inf:
            skipped = int(min(PERIOD_ROWS, max(0.0, np.rint(left_out / constants[STEP]) - 1.0)))
        _remember_period(u, skipped, past, cycle)
        share, is_due = 1.0 / seen, seen < PROMPT or row % SELDOM == 0
        _make_past(u, seen, is_due, recent, traces, moments, raw, features, units)
        n = 1
        if extra > 0:
            common[0] = 1.0
        for m in range(O):
            other = others[t, m]
            other_memory[4, m] += max(1.0 / 16.0, share) * (other - other_memory[4, m])
            change = other - other_memory[int(min(seen - 1.0, 3.0)) - 1, m] if seen > 1.0 else 0.0
            for lag in range(3, 0, -1):
                other_memory[lag, m] = other_memory[lag - 1, m]
            other_memory[0, m] = other
            common[n] = _standardise(other, other_moments[3 * m], share, is_due)
            common[n + 1] = _standardise(other_memory[4, m], other_moments[3 * m + 1], share, is_due)
            common[n + 2] = _standardise(change, other_moments[3 * m + 2], share, is_due)
            n += 3
        hour = 0
        if cycles:
            hour = _remember_season(constants, u, now, memory, offs, waves)
            if extra > 0:
                for i in range(bins_a + bins_b):
                    common[n + i] = 0.0
                common[n + hour] = 1.0
                common[n + bins_a + int(waves[7])] = 1.0
                n += bins_a + bins_b
                for i in range(7):
                    common[n + i] = waves[i]
                for i in range(6):
                    common[n + 7 + i] = waves[6] * waves[i]
        for h in range(H):
            horizon, place = horizons[h], places[h]
            keep, store = row % int(horizon[KEEP]) == 0, row % int(horizon[STRIDE]) == 0
            record = records[int(horizon[RECORD_AT]) + int(place[END_RECORD]) % int(horizon[RECORD_ROOM])]
            waiting = stored[int(horizon[STORED_AT]) + int(place[END_STORED]) % int(horizon[STORED_ROOM])]
            record[R_TIME], record[R_ROW], record[R_HOUR], record[R_STORED] = now, row, hour, 1.0 if store else 0.0
            if cycles:
                _look_ahead(constants, horizon, now, u, memory, offs, seasons)
            for s in range(S):
                x, value = features[s], u[s]
                forecast = forecasts[t, s, h]
                if not abs(forecast) < 1e100:
                    forecast = value
                x[FORECAST] = _standardise(forecast, ahead_moments[h, s, 0], share, is_due)
                period, repeated = int(cycle[s]), (value, value)
                if period > 0:
                    repeated = _repeat_period(past[s], int(cycle[S]), period, int(horizon[ROWS]))
                for kind in range(2):
                    target, j = targets[h, kind * S + s], kind * S + s
                    mean = target[LABEL_SUM] / target[LABELS] if target[LABELS] > 0.0 else value
                    usual = (climate[h, j, hour, 0] + 5.0 * mean) / (climate[h, j, hour, 1] + 5.0)
                    fields = record[RECORD + RECORD_FIELDS * j :]
                    fields[R_USUAL], fields[R_MEAN], fields[R_NOW] = usual, mean, value
                    fields[R_LAST_A], fields[R_LAST_B] = value, value
                    if cycles:
                        fields[R_LAST_A] = seasons[s, 7] if kind else seasons[s, 0]
                        fields[R_LAST_B] = seasons[s, 8] if kind else seasons[s, 4]
                        x[PAST + 9 + kind] = _standardise(usual, ahead_moments[h, s, 10 + kind], share, is_due)
                    if period > 0:
                        fields[R_LAST_A] = repeated[1] if kind else repeated[0]
                if cycles:
                    for i in range(9):
                        x[PAST + i] = _standardise(seasons[s, i], ahead_moments[h, s, 1 + i], share, is_due)
                    for i in range(7):
                        x[PAST + 11 + i] = waves[i]
                for i in range(own):
                    waiting[s * own + i] = x[i]
                waiting[S * own + extra + s] = units[s]
            for i in range(extra):
                waiting[S * own + i] = common[i]
            if shared > 0:
                _assemble(waiting, S, own, extra, picks, phi)
                _predict_all(W[h], phi, answered)
            for s in range(S):
                _predict_all(own_W[h, s], features[s], predicted)
                unit = units[s] if units[s] == units[s] else 0.0
                for kind in range(2):
                    j = kind * S + s
                    fields = record[RECORD + RECORD_FIELDS * j :]
                    members = waiting[S * own + extra + S + ENTRIES * j :]
                    members[4], members[7], members[8] = fields[R_NOW], fields[R_USUAL], fields[R_MEAN]
                    members[5], members[6] = fields[R_LAST_B] if cycles else fields[R_MEAN], fields[R_LAST_A]
                    members[9] = forecasts[t, s, h] if abs(forecasts[t, s, h]) < 1e100 else u[s]
                    for b in range(2):
                        members[2 + b] = members[4 + b] + unit * predicted[2 * kind + b]
                        members[b] = (
                            members[4 + b] + unit * answered[4 * s + 2 * kind + b] if shared > 0 else members[2 + b]
                        )
                    expected, usually = predicted[4 + kind], climate[h, j, hour]
                    _answer(targets[h, j], members, fields, expected, bounds[s], usually)
                    answers = out[t, (s * H + h) * 2 + kind]
                    answers[0], answers[1] = fields[R_ANSWER], fields[R_LOW]
                    answers[2], answers[3] = fields[R_HIGH], fields[R_USUAL]
            if row % int(horizon[PLOT_STRIDE]) == 0:
                plot = plotted[h, int(row / horizon[PLOT_STRIDE]) % PLOTTED]
                plot[0], plot[1] = row, now
                for s in range(S):
                    plot[2 + s] = u[s]
                for j in range(2 * S):
                    answers = out[t, ((j % S) * H + h) * 2 + j // S]
                    for i in range(4):
                        plot[2 + S + 5 * j + i] = answers[i]
                    plot[2 + S + 5 * j + 4] = np.nan
            if keep:
                place[END_RECORD] += 1.0
                if store:
                    place[END_STORED] += 1.0
        state[ROW] = row + 1.0
    return len(values)
