"""The loops over rows: returns backwards in time, traces forwards, and sums over the active features of each row."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from numba import types

from emphatic.engines.compiled import jit_for

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    Integers = NDArray[np.int64]
    Flags = NDArray[np.bool_]

_f1, _f2 = (types.Array(types.float64, ndim, "C", readonly=True) for ndim in (1, 2))
_b1, _b2 = (types.Array(types.boolean, ndim, "C", readonly=True) for ndim in (1, 2))
_i2 = types.Array(types.int64, 2, "C", readonly=True)
_out_f1, _out_f2, _out_f3, _out_b1 = (
    types.float64[::1],
    types.float64[:, ::1],
    types.float64[:, :, ::1],
    types.boolean[::1],
)


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
