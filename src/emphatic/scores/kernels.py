"""The loops over rows: returns backwards in time; traces, seasons and climatology forwards; and sums over the active
features of each row."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
from numba import types

from emphatic.engines.compiled import jit_for

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    Integers = NDArray[np.int64]
    Flags = NDArray[np.bool_]

_f1, _f2 = (types.Array(types.float64, ndim, "C", readonly=True) for ndim in (1, 2))
_b1, _b2 = (types.Array(types.boolean, ndim, "C", readonly=True) for ndim in (1, 2))
_i1, _i2 = (types.Array(types.int64, ndim, "C", readonly=True) for ndim in (1, 2))
_out_f1, _out_f2, _out_f3, _out_b1 = (
    types.float64[::1],
    types.float64[:, ::1],
    types.float64[:, :, ::1],
    types.boolean[::1],
)

#: A sum over a path is computed anew when rounding errors have grown by e to the power of this.
RENEWED = 4.0
#: The rows for which the mean of all counts beside those of a bin.
PRIOR_ROWS = 5.0


@jit_for((_f1, _b1, _b1, *[types.float64] * 4, _out_f1, _out_f1, _out_b1), fastmath=False)
def backward(
    x: Floats, missing: Flags, gap: Flags, gamma: float, centre: float, reached: float, seen: float, state: Floats,
    G: Floats, known: Flags,
) -> None:  # fmt: skip
    """The mean of what followed each row, and whether it is known; x is summed as x − centre.

    ``reached`` is the share of the weight that must lie before the log's end or a gap, ``seen`` the share of readings.
    ``state`` is the sum of values, the weight seen and the weight reached that follow the last of these rows (0 at the
    log's end); it is left as they follow the row before the first.
    """
    value, weight, reach = state[0], state[1], state[2]
    for t in range(x.shape[0] - 1, -1, -1):
        G[t] = centre + value / weight if weight > 0.0 else math.nan
        known[t] = reach >= reached and weight >= seen
        if gap[t]:
            value = weight = reach = 0.0
        else:
            value *= gamma
            weight *= gamma
            reach = gamma * reach + (1.0 - gamma)
            if not missing[t]:
                value += (1.0 - gamma) * (x[t] - centre)
                weight += 1.0 - gamma
            elif weight < 1e-100:  # before it is a slow denormal number
                value = weight = 0.0
    state[0], state[1], state[2] = value, weight, reach


@jit_for((_f1, types.float64, _out_f1, _out_f1), fastmath=False)
def forward(x: Floats, gamma: float, state: Floats, trace: Floats) -> None:
    """The trace of x, s ← s + (1 − γ)(x − s), from its first value on; NaN before. ``state`` is s before these rows."""
    s = state[0]
    for t in range(x.shape[0]):
        s = x[t] if math.isnan(s) else s + (1.0 - gamma) * (x[t] - s)
        trace[t] = s
    state[0] = s


@jit_for((_f2, _i1, types.int64, types.int64, _f1, _i1, types.int64, _out_f2, _out_f2, _out_f2), fastmath=False)
def repeat_path(
    x: Floats, place: Integers, latest: int, period: int, gammas: Floats, paths: Integers, filled: int, ring: Floats,
    sums: Floats, out: Floats,
) -> int:  # fmt: skip
    """What follows each row if the last period repeats, for C signals at H discounts, (C·H, B); NaN before there was a
    period.

        Σ_{k<L} γᵏ x_{m+1+k−P} · (1 − γ) / (1 − γᴸ),   m the row's place on a regular grid

    Args:
        x: The readings (B, C), the last one held where one is missing.
        place: The place of each row, not descending. Places without a row take the reading of one period before.
        latest: The place of the last row before these, −1 if there was none.
        period: P, in places.
        gammas: γ of each horizon.
        paths: L of each horizon, at most P.
        filled: How many places came before these rows.
        ring: The readings of the last ``len(ring)`` places, more than P, (places, C).
        sums: Σ γᵏ x of each horizon at the row before, (H, C).
        out: The answers.

    Returns:
        How many places have come with these rows.
    """
    (size, C), H = ring.shape, len(gammas)
    every, last, whole = np.empty(H, np.int64), np.empty(H), np.empty(H)
    for h in range(H):
        g, length = gammas[h], paths[h]
        every[h] = max(1, int(RENEWED / -math.log(max(g, 1e-300))))  # errors grow by 1/γ a row (each row, if γ is 0)
        last[h], whole[h] = g ** (length - 1), 1.0 - g**length
    for t in range(len(x)):
        moved = place[t] - latest
        for m in range(max(latest + 1, place[t] - size), place[t]):
            for c in range(C):
                ring[m % size, c] = ring[(m - period) % size, c] if filled > period else x[t, c]
        filled += moved
        latest = place[t]
        present, leaving = latest % size, (latest - period) % size
        for c in range(C):
            ring[present, c] = x[t, c]
        for h in range(H):
            g, length = gammas[h], paths[h]
            entering = leaving + length if leaving + length < size else leaving + length - size
            is_new = moved != 1 or filled % every[h] == 0 or filled == period + 1
            for c in range(C):
                if filled <= period:
                    out[c * H + h, t] = math.nan
                    continue
                if is_new:
                    total, weight, at = 0.0, 1.0, leaving
                    for _ in range(length):
                        at = at + 1 if at + 1 < size else 0
                        total += weight * ring[at, c]
                        weight *= g
                    sums[h, c] = total
                else:
                    sums[h, c] = (sums[h, c] - ring[leaving, c]) / g + last[h] * ring[entering, c]
                out[c * H + h, t] = sums[h, c] * (1.0 - g) / whole[h]
    return filled


@jit_for((_f2, _b2, _f1, _f1, types.float64, _out_f3, _out_f2), fastmath=False)
def follow_climate(
    x: Floats, missing: Flags, phase: Floats, gammas: Floats, width: float, climate: Floats, out: Floats
) -> None:
    """The usual mean of what follows each row, for C signals at H discounts, (C·H, B): of each bin of a cycle its mean
    so far.

    Args:
        x: The readings, (B, C).
        missing: Where they are missing, (B, C).
        phase: Where in the cycle each row lies, in bins from 0 to their number; NaN where it is not known.
        gammas: γ of each horizon.
        width: The rows of a bin.
        climate: Sums and counts of readings of each bin, (C, 2, bins + 1), the last of all bins.
        out: The answers; NaN before the first reading.
    """
    C, H, bins = x.shape[1], len(gammas), climate.shape[2] - 1
    step, cycle = np.empty(H), np.empty(H)
    # Of the bins in the order in which they follow; the first is also the last.
    means, shares = np.empty(2 * bins), np.empty((H, bins + 1))
    for h in range(H):
        step[h], cycle[h] = gammas[h] ** width, gammas[h] ** (bins * width)
    for t in range(len(x)):
        known = phase[t] == phase[t]
        at = min(int(phase[t]), bins - 1) if known else 0
        left = max(0.0, math.ceil((at + 1.0 - phase[t]) * width - 1e-5) - 1.0) if known else 0.0
        for h in range(H):
            begin = gammas[h] ** left
            shares[h, 0] = 1.0 - begin
            for k in range(1, bins):
                end = begin * step[h]
                shares[h, k] = begin - end
                begin = end
            shares[h, bins] = begin - cycle[h]
        for c in range(C):
            if not missing[t, c]:
                climate[c, 0, bins] += x[t, c]
                climate[c, 1, bins] += 1.0
                if known:
                    climate[c, 0, at] += x[t, c]
                    climate[c, 1, at] += 1.0
            level = climate[c, 0, bins] / climate[c, 1, bins] if climate[c, 1, bins] > 0.0 else math.nan
            for b in range(bins):  # twice, so that they follow one another from any bin on
                means[b] = means[bins + b] = (climate[c, 0, b] + PRIOR_ROWS * level) / (climate[c, 1, b] + PRIOR_ROWS)
            for h in range(H):
                total = shares[h, 0] * means[at]
                for k in range(1, bins + 1):
                    total += shares[h, k] * means[at + k]
                out[c * H + h, t] = total / (1.0 - cycle[h]) if known else level


@jit_for((_i2, _f2, _b2, _out_f3))
def gram(index: Integers, value: Floats, use: Flags, A: Floats) -> None:
    """A_u += Σ φφᵀ over the rows where use[:, u]. Each pair of features is put on one side of the diagonal only."""
    for t in range(index.shape[0]):
        for u in range(use.shape[1]):
            if not use[t, u]:
                continue
            for a in range(index.shape[1]):
                i = index[t, a]
                if i < 0:
                    continue
                v = value[t, a]
                for b in range(a + 1):
                    j = index[t, b]
                    if j >= 0:
                        A[u, i, j] += v * value[t, b]


@jit_for((_i2, _f2, _f2, _out_f2))
def project(index: Integers, value: Floats, Y: Floats, out: Floats) -> None:
    """out += Φᵀ Y"""
    for t in range(index.shape[0]):
        for a in range(index.shape[1]):
            i = index[t, a]
            if i >= 0:
                for q in range(Y.shape[1]):
                    out[i, q] += value[t, a] * Y[t, q]


@jit_for((_i2, _f2, _f2, _out_f2))
def apply(index: Integers, value: Floats, W: Floats, out: Floats) -> None:
    """out += Φ W"""
    for t in range(index.shape[0]):
        for a in range(index.shape[1]):
            i = index[t, a]
            if i >= 0:
                for q in range(W.shape[1]):
                    out[t, q] += value[t, a] * W[i, q]


@jit_for((_out_f2, types.float64, _out_f2), fastmath=False)
def invert_factor(A: Floats, r: float, inverse: Floats) -> bool:
    """L⁻¹ of A + r 𝟙 = LLᵀ, in place of zeros; False if there is none.

    A is symmetric. The upper half of its first columns is read, and Lᵀ takes its place.
    """
    for k in range(len(inverse)):
        pivot = A[k, k] + r
        if not pivot > 0.0:
            return False
        A[k, k] = math.sqrt(pivot)
        for j in range(k + 1, len(inverse)):
            A[k, j] /= A[k, k]
        for i in range(k + 1, len(inverse)):
            for j in range(i, len(inverse)):
                A[i, j] -= A[k, i] * A[k, j]
        for i in range(k):
            for j in range(i + 1):
                inverse[k, j] -= A[i, k] * inverse[i, j]
        inverse[k, k] = 1.0
        for j in range(k + 1):
            inverse[k, j] /= A[k, k]
    return True
