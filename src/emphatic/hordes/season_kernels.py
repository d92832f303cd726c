"""The loop over the rows of ``seasons``.  Compiled without fast mathematics: the bits do not depend on blocks."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
from numba import types
from numba.extending import register_jitable

from emphatic.engines.compiled import jit_for
from emphatic.engines.lanes import WIDTH, any_of, below, every, get, larger, put, root, select, smaller

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from emphatic.engines.lanes import Numbers, Truths

    Floats = NDArray[np.float64]
    Integers = NDArray[np.int64]
    Flags = NDArray[np.bool_]

_f1, _f2, _f3, _f4 = (types.Array(types.float64, ndim, "C") for ndim in (1, 2, 3, 4))
_r1, _r2, _r4 = (types.Array(types.float64, ndim, "C", readonly=True) for ndim in (1, 2, 4))
_i1, _i2 = (types.Array(types.int64, ndim, "C", readonly=True) for ndim in (1, 2))
_w1, _w2 = (types.Array(types.int64, ndim, "C") for ndim in (1, 2))
_u2 = types.Array(types.uint8, 2, "C")
_b1, _b2 = (types.Array(types.boolean, ndim, "C", readonly=True) for ndim in (1, 2))
_flags = types.Array(types.boolean, 3, "C")

#: The memories of the traces, in rows, and the lags whose differences from the reading are features of the regression.
TRACES = (4.0, 16.0, 64.0, 256.0, 1024.0)
LAGS = (1, 2)
#: Seasons of a signal. Features that all questions of a signal share are a constant, the differences from traces and
#: lags, and of each season the change since one period ago and the rise; a question's own are the paths of the seasons.
SEASONS = 2
FIRST_SEASON = 1 + len(TRACES) + len(LAGS)
SHARED = FIRST_SEASON + 2 * SEASONS
FEATURES = SHARED + SEASONS
# What a signal carries: its last reading, the rows learned from, the same when solved, whether there was a row before,
# the rise of each season, and its traces.
LAST, LEARNED, SOLVED, OPEN, RISE = range(5)
TRACE = RISE + SEASONS
# What a question carries: the prediction at the last row, whether the sums over its paths have to be found anew, and by
# what the traces of its cells are to be multiplied, and what these, times their sums, are to be added by.
BEFORE, STALE, SCALE, OWED = range(4)
# What a cell of the calendar carries for a question: the sum of returns, its trace, and what it was owed at last.
RETURNS, CELL_TRACE, SETTLED = range(3)
# Of a season and a question: the rows of its path, γ to their number less one, what the sum over a path is multiplied
# by, and the rise.
PATH, LEAVING, NORM, RISING = range(4)
#: A feature is kept within so many times its root mean square, a mean over so many rows.
WITHIN, MEMORY = 5.0, 256.0
#: Rows before the first solution, the share by which they grow before the next, and how many there are at most and at
#: least between two.
FEWEST, GROWTH, MOST, LEAST = 32.0, 0.15, 1000.0, 8.0
#: The evidence, in rows, that the regression's prior counts for besides its strength.
PRIOR_ROWS = 10.0
#: A reading beyond this is not used.
LARGEST = 1e100
#: The traces of cells are brought up to date when they have decayed so far.
DECAYED = 1e-3


@register_jitable
def sum_path(ring: Floats, n: int, period: int, g: float, rows: int) -> float:
    """Σ γᵏ x of so many rows that follow the row one period ago; n rows have been read."""
    total, weight, mask = 0.0, 1.0, len(ring) - 1
    for k in range(rows):
        total += weight * ring[(n - period + k) & mask]
        weight *= g
    return total


@register_jitable
def cholesky(A: Floats, b: Floats) -> Truths:
    """A x = b for a small symmetric positive definite A, in place; returns where that succeeds."""
    n, sound = len(b), ~below(0)
    for i in range(n):
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
    for i in range(n):
        entry, row = get(b, i), A[i]
        for k in range(i):
            entry = entry - get(row, k) * get(b, k)
        put(b, i, entry / get(row, i))
    for i in range(n - 1, -1, -1):
        entry = get(b, i)
        for k in range(i + 1, n):
            entry = entry - get(A[k], i) * get(b, k)
        entry = entry / get(A[i], i)
        put(b, i, entry)
        sound = sound & (abs(entry) < math.inf)
    return sound


@register_jitable
def solve(
    A: Floats, path_products: Floats, b: Floats, cross: Floats, path_cross: Floats, weights: Floats, cells: Floats,
    strengths: Floats, rows: float, prior: Floats, theta: Floats, effect: Floats, questions: Integers, room: Floats,
) -> None:  # fmt: skip
    """θ of each strength, and the effect of each cell of the calendar, which is eliminated: its matrix is diagonal.

    Of the ``questions`` in the lanes.
    """
    F, M = len(b), len(weights)
    C, x, y, cell = room[:F], room[F], room[F + 1], room[F + 2]
    for s in range(len(strengths)):
        strength = strengths[s] + PRIOR_ROWS / rows
        for i in range(F):
            for j in range(i + 1):
                put(C[i], j, every(A[i, j]) if i < SHARED else get(path_products[i - SHARED], j))
            square = get(C[i], i)
            ridge = select(square > 1e-300, strength * square, 1.0)
            put(C[i], i, square + ridge)
            put(y, i, get(b, i) + ridge * get(prior, i))
        cell_ridge = strength * A[0, 0] / max(M, 1) + 1e-300
        for c in range(M):
            if weights[c] > 0.0:
                inverse = 1.0 / (weights[c] + cell_ridge)
                look_at_cell(c, cross, path_cross, cells, questions, x, cell)
                returns = get(cell, 0)
                for i in range(F):
                    share, row = get(x, i) * inverse, C[i]
                    put(y, i, get(y, i) - share * returns)
                    for j in range(i + 1):
                        put(row, j, get(row, j) - share * get(x, j))
        for i in range(F):
            put(C[i], i, get(C[i], i) * (1.0 + 1e-10))
        sound = cholesky(C, y)
        for i in range(F):
            put(theta[s], i, select(sound, get(y, i), get(theta[s], i)))
        put(cell, 1, select(sound, every(1.0), 0.0))
        for c in range(M):
            look_at_cell(c, cross, path_cross, cells, questions, x, cell)
            total = get(cell, 0)
            for i in range(F):
                total = total - get(x, i) * get(y, i)
            put(cell, 0, total / (weights[c] + cell_ridge))
            for lane in range(len(questions)):
                if cell[1, lane] > 0.0:
                    effect[questions[lane], s, c] = cell[0, lane] if weights[c] > 0.0 else 0.0


@register_jitable
def look_at_cell(
    c: int, cross: Floats, path_cross: Floats, cells: Floats, questions: Integers, x: Floats, cell: Floats
) -> None:
    """The sums of features x of a cell of the calendar, and in ``cell[0]`` the sum of its returns."""
    for i in range(SHARED):
        put(x, i, every(cross[i, c]))
    for lane in range(len(questions)):
        q = questions[lane]
        cell[0, lane] = cells[q, RETURNS, c]
        for i in range(SEASONS):
            x[SHARED + i, lane] = path_cross[q, i, c]


@register_jitable
def add_to_signal(s: Floats, ring: Floats, n: int, x: float, period: Integers) -> None:
    """Add row n to what a signal carries: its ring, traces and rises."""
    mask = len(ring) - 1
    if n == 0:
        for k in range(len(TRACES)):
            s[TRACE + k] = x
    s[LAST] = x
    ring[n & mask] = x
    for k in range(len(TRACES)):
        s[TRACE + k] += (x - s[TRACE + k]) / min(TRACES[k], n + 1.0)
    for i in range(SEASONS):
        P = period[i]
        if 0 < P <= n:
            s[RISE + i] += (x - ring[(n - P) & mask] - s[RISE + i]) / min(2.0 * P, n - P + 1.0)


@register_jitable
def stand_in(last: float, ring: Floats, flags: Integers, n: int, period: int) -> float:
    """What stands in the place of a missing reading, row n: the last one, with the change of one period ago.

    Held, the peak of a season would stand for what follows it. What stood in one period ago is repeated as it is: its
    level would rise, or fall, with each period.
    """
    if not 0 < period < n:
        return last
    mask = len(ring) - 1
    before = float(ring[(n - period) & mask])
    return before if flags[(n - period) & mask] == 0 else last + before - float(ring[(n - 1 - period) & mask])


@register_jitable
def fill_before(s: Floats, ring: Floats, n: int, x: float) -> None:
    """Let the first reading stand in for all n rows before it: 0 would be a jump."""
    for k in range(min(n, len(ring))):
        ring[k] = x
    for k in range(len(TRACES)):
        s[TRACE + k] = x


@register_jitable
def look(s: Floats, ring: Floats, n: int, period: Integers, features: Floats) -> None:
    """The features that all questions of a signal share, after n rows."""
    mask, x, f = len(ring) - 1, s[LAST], 1
    features[0] = 1.0
    for k in range(len(TRACES)):
        features[f] = x - s[TRACE + k]
        f += 1
    for lag in LAGS:
        features[f] = x - ring[(n - 1 - min(lag, n - 1)) & mask]
        f += 1
    for i in range(SEASONS):
        P = period[i]
        features[f] = features[f + 1] = 0.0
        if 0 < P < n and (i == 0 or period[0] != P):
            features[f], features[f + 1] = x - ring[(n - 1 - P) & mask], s[RISE + i]
        f += 2


@register_jitable
def clip(features: Floats, squares: Floats, begin: int, n: int, learns: bool) -> None:
    """Keep features within bounds, which follow their mean squares."""
    for k in range(len(squares)):
        v = features[begin + k]
        if squares[k] == 0.0:
            squares[k] = v * v
        bound = WITHIN * math.sqrt(squares[k])
        features[begin + k] = min(max(v, -bound), bound)
        if learns:
            squares[k] += (v * v - squares[k]) / min(float(n), MEMORY)


@register_jitable
def clip_paths(features: Floats, squares: Floats, period: Integers, n: int, learns: bool) -> None:
    """``clip`` of the paths of a signal's questions; where there never was a season, they are all 0."""
    for i in range(SEASONS):
        square = get(squares, i)
        if period[i] > 0 or any_of(square > 0.0):
            v = get(features, i)
            square = select(square == 0.0, v * v, square)
            bound = WITHIN * root(square)
            put(features, i, smaller(larger(v, -1.0 * bound), bound))
            put(squares, i, square + (v * v - square) / min(float(n), MEMORY) if learns else square)


@register_jitable
def add_path(
    sums: Floats, scales: Floats, ring: Floats, n: int, period: int, gamma: Floats, renewed: Floats, size: int
) -> None:
    """Move the paths of a season on by one row, or find the sums over them anew."""
    mask = len(ring) - 1
    for lane in range(size):
        g, length = gamma[lane], int(scales[PATH, lane])
        if renewed[lane] > 0.0 or n == period + 1:
            sums[lane] = sum_path(ring, n, period, g, length)
        else:
            leaves, enters = ring[(n - 1 - period) & mask], ring[(n - 1 - period + length) & mask]
            sums[lane] = (sums[lane] - leaves) / g + scales[LEAVING, lane] * enters


@register_jitable
def regress(x: float, features: Floats, paths: Floats, theta: Floats) -> Numbers:
    """x + θ·f."""
    p = every(x)
    for j in range(len(features)):
        p = p + get(theta, j) * features[j]
    for i in range(SEASONS):
        p = p + get(theta, SHARED + i) * get(paths, i)
    return p


@register_jitable
def add_products(
    w: float, y: Numbers, features: Floats, paths: Floats, b: Floats, z: Floats, path_products: Floats
) -> None:
    """Add a row of weight w, with the return y times w, to the sums over rows."""
    for k in range(len(features)):
        put(b, k, get(b, k) + y * features[k])
        put(z, k, get(z, k) + w * features[k])
    for i in range(SEASONS):
        v, products = get(paths, i), path_products[i]
        if any_of(v != 0.0):
            put(b, SHARED + i, get(b, SHARED + i) + y * v)
            put(z, SHARED + i, get(z, SHARED + i) + w * v)
            for j in range(len(features)):
                put(products, j, get(products, j) + w * v * features[j])
            for j in range(i + 1):
                put(products, SHARED + j, get(products, SHARED + j) + w * v * get(paths, j))


@register_jitable
def settle(owed: float, cells: Floats) -> None:
    """Bring all cells of a question up to date."""
    for c in range(cells.shape[1]):
        cells[RETURNS, c] += (owed - cells[SETTLED, c]) * cells[CELL_TRACE, c]
        cells[SETTLED, c] = owed


@register_jitable
def settle_all(state: Floats, cells: Floats, questions: Integers, ends: bool) -> None:
    """Bring the cells of questions up to date, and their traces: to 0 if a sequence ``ends``, or where they decayed."""
    for lane in range(len(questions)):
        scale = state[SCALE, lane]
        if ends or scale < DECAYED:
            of_question = cells[questions[lane]]
            settle(state[OWED, lane], of_question)
            for c in range(of_question.shape[1]):
                of_question[CELL_TRACE, c] *= 0.0 if ends else scale
                of_question[SETTLED, c] = 0.0
            state[SCALE, lane], state[OWED, lane] = 1.0, 0.0


@register_jitable
def add_to_cells(
    state: Floats, cells: Floats, path_cross: Floats, questions: Integers, at: int, w: float, y: Floats, paths: Floats
) -> None:
    """Add a row of weight w, with the return y times w, to a cell of the calendar."""
    for lane in range(len(questions)):
        q, owed = questions[lane], state[OWED, lane]
        for i in range(SEASONS):
            path_cross[q, i, at] += w * paths[i, lane]
        cells[q, RETURNS, at] += (owed - cells[q, SETTLED, at]) * cells[q, CELL_TRACE, at]
        cells[q, SETTLED, at] = owed
        cells[q, RETURNS, at] += y[lane]
        cells[q, CELL_TRACE, at] += w / state[SCALE, lane]


@jit_for((
    _r2, _b2, _b1, _i1, _i1, _f3, _flags, types.int64, types.int64, types.int64, types.int64, types.int64, _i1, _i1,
    _i1, _i1, _r2, _r2, _r1, _i2, _r4, _w2, _f2, _u2, _w1, _f2, _f2, _f3, _f3, _f2, _f3, _f3, _f3, _f4, _f3, _f3, _f4,
    _f3, _f3, _f3, _f1, _f3,
), fastmath=False, allocates=False)  # fmt: skip
def rows(
    X: Floats, sound: Flags, follows: Flags, cell: Integers, skipped: Integers, out: Floats, fresh: Flags, place: int,
    begin: int, end: int, count: int, earlier: int, leaders: Integers, members: Integers, starts: Integers,
    bundles: Integers, gamma: Floats, renewals: Floats, strengths: Floats, period: Integers, scales: Floats,
    changed: Integers, ring: Floats, flags: Integers, codes: Integers, signals: Floats, squares: Floats, A: Floats,
    cross: Floats, weights: Floats, questions: Floats, path_squares: Floats, sums: Floats, path_products: Floats,
    b: Floats, z: Floats, theta: Floats, path_cross: Floats, cells: Floats, effect: Floats, v: Floats, room: Floats,
) -> int:  # fmt: skip
    """Answer at rows from ``begin`` to ``end``, and learn from them; returns the number of all rows.

    The answers, SEASONS + strengths, go into ``out`` (B, Q, …) from ``place`` on; ``fresh`` is set where a season is a
    new one. Rows are readings (B, …) in the columns ``leaders`` of the signals, which are learned from where they are
    ``sound`` (B, C), the ``cell`` of the calendar (−1 for none) and how many rows were ``skipped`` before. See
    ``stand_in`` for missing readings. ``count`` rows, with those skipped, came before, and ``earlier`` ones that
    the ring no longer has. The questions of signal c are ``members`` from ``starts[c]`` on; WIDTH at a time, each in a
    lane, are its ``bundles`` from ``bundles[c]`` on. Sums over paths are found anew after ``renewals`` rows: errors
    grow by 1/γ a row. A ring has the last readings of a signal, ``flags`` whether they were known, and ``codes``
    2 · (cell + 1) + whether the row follows. ``v`` is room for the features that questions share.
    """
    C, mask, S, n = len(leaders), ring.shape[1] - 1, len(strengths), count
    paths, answers, prior, renewed, features = room[0], room[1], room[2], room[3], len(v)
    for c in range(C):
        s, P, past, known, n = signals[c], period[c], ring[c], flags[c], count
        longest, longer = max(P[0], P[1]), 1 if P[1] > P[0] else 0
        for t in range(begin, end):
            for _ in range(skipped[t] if n > 0 else 0):  # as one period ago, so that the phase is right
                past[n & mask] = past[(n - longest) & mask] if 0 < longest <= n else s[LAST]
                known[n & mask] = 0
                codes[n & mask] = 0
                n += 1
            x, at = X[t, leaders[c]], cell[t]
            learns = sound[t, c] and abs(x) <= LARGEST
            if learns and n > 0 and s[LEARNED] == s[LAST] == s[TRACE] == 0.0:  # the first reading of all
                fill_before(s, past, n, x)
            if not abs(x) <= LARGEST:
                x = stand_in(s[LAST], past, known, n, longest)
            add_to_signal(s, past, n, x, P)
            known[n & mask] = learns
            codes[n & mask] = 2 * (at + 1) + follows[t]
            n += 1
            w = float(earlier + n)
            look(s, past, n, P, v)
            clip(v, squares[c], 1, n, learns)
            solved, solves = s[SOLVED], False
            if learns:
                for k in range(features):
                    row, weighted = A[c, k], w * v[k]
                    for j in range(k + 1):
                        row[j] += weighted * v[j]
                    if at >= 0:
                        cross[c, k, at] += weighted
                if at >= 0:
                    weights[c, at] += w
                s[LEARNED] += 1.0
                solves = s[LEARNED] >= max(FEWEST, solved + max(LEAST, min(MOST, GROWTH * solved)))
            for bundle in range(bundles[c], bundles[c + 1]):
                start = starts[c] + (bundle - bundles[c]) * WIDTH
                asked = members[start : min(start + WIDTH, starts[c + 1])]
                state, scale, sum_of, trace, size = questions[bundle], scales[bundle], b[bundle], z[bundle], len(asked)
                if longest > 0:
                    for lane in range(size):
                        is_due = state[STALE, lane] > 0.0 or skipped[t] > 0 or n % int(renewals[bundle, lane]) == 0
                        renewed[0, lane] = 1.0 if is_due else 0.0
                put(state, STALE, every(0.0))
                for i in range(SEASONS):
                    put(answers, i, every(math.nan))
                    put(paths, i, every(0.0))
                    if 0 < P[i] < n:
                        add_path(sums[bundle, i], scale[i], past, n, P[i], gamma[bundle], renewed[0], size)
                        answer = get(sums[bundle], i) * get(scale[i], NORM)
                        if i == 0 or P[0] != P[1]:
                            put(paths, i, answer - x)
                            answer = answer + s[RISE + i] * get(scale[i], RISING)
                        put(answers, i, answer)
                clip_paths(paths, path_squares[bundle], P, n, learns)
                season, g = get(answers, longer), get(gamma, bundle)
                for k in range(S):
                    p = season
                    if solved > 0.0 or any_of(p != p):
                        p = regress(x, v, paths, theta[bundle, k])
                        if at >= 0:
                            for lane in range(size):
                                renewed[1, lane] = effect[asked[lane], k, at]
                            p = p + get(renewed, 1)
                        if not solved > 0.0:
                            p = select(season == season, season, p)
                    put(answers, SEASONS + k, p)
                p = get(answers, SEASONS + S // 2)
                for lane in range(size):
                    for i in range(SEASONS + S):
                        out[t, asked[lane], place + i] = answers[i, lane]
                    for i in range(SEASONS):
                        if changed[c, i] > 0:
                            fresh[t, asked[lane], i] = True
                if not (learns and follows[t]):
                    if any_of(get(trace, 0) != 0.0):  # otherwise nothing was learned since all was forgotten
                        for k in range(len(trace)):
                            put(trace, k, every(0.0))
                        settle_all(state, cells, asked, True)
                elif s[OPEN] > 0.0:  # what is known of earlier returns now
                    d, decay = (1.0 - g) * x + g * p - get(state, BEFORE), get(state, SCALE)
                    for k in range(len(trace)):
                        put(sum_of, k, get(sum_of, k) + d * get(trace, k))
                        put(trace, k, get(trace, k) * g)
                    put(state, OWED, get(state, OWED) + d * decay)
                    put(state, SCALE, decay * g)
                    if any_of(decay * g < DECAYED):
                        settle_all(state, cells, asked, False)
                put(state, BEFORE, p)
                if not learns:
                    continue
                y = w * (p - x)
                add_products(w, y, v, paths, sum_of, trace, path_products[bundle])
                if at >= 0:
                    put(answers, 0, y)
                    add_to_cells(state, cells, path_cross, asked, at, w, answers[0], paths)
                if solves:
                    for lane in range(size):
                        settle(state[OWED, lane], cells[asked[lane]])
                    for k in range(len(prior)):
                        put(prior, k, every(0.0))
                    if longest > 0:  # as the season answers: its path, and its rise
                        put(prior, SHARED + longer, every(1.0))
                        put(prior, FIRST_SEASON + 2 * longer + 1, get(scale[longer], RISING))
                    solve(
                        A[c], path_products[bundle], sum_of, cross[c], path_cross, weights[c], cells, strengths,
                        s[LEARNED], prior, theta[bundle], effect, asked, room[4:],
                    )  # fmt: skip
            s[OPEN] = 1.0
            if solves:
                s[SOLVED] = s[LEARNED]
            changed[c] = 0
    return n
