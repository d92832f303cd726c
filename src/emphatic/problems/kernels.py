"""The walk: one uniform number a step, two look-ups, and everything that is known of the step."""

from __future__ import annotations

from typing import TYPE_CHECKING

from numba import types

from emphatic.engines.compiled import jit_for

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    Integers = NDArray[np.int64]

_f1, _f2 = (types.Array(types.float64, ndim, "C", readonly=True) for ndim in (1, 2))
_i1 = types.Array(types.int64, 1, "C", readonly=True)
_out_f1, _out_f2, _out_i1 = types.float64[::1], types.float64[:, ::1], types.int64[::1]


@jit_for((_f1, _i1, _f1, _i1, _i1, _i1, _f2, _out_i1, _out_i1, _out_i1, _out_f2), fastmath=False)
def walk(
    u: Floats, first: Integers, share: Floats, other: Integers, following: Integers, action: Integers, features: Floats,
    outcomes: Integers, states: Integers, actions: Integers, Phi: Floats,
) -> None:  # fmt: skip
    """From the state before the first, follow ``u``, one number a step.

    The outcomes of state s are first[s] … first[s+1] − 1, equally likely to be looked at; outcome k is then kept
    with probability share[k] and otherwise replaced by other[k] (Walker's alias method). Row S holds the ways to start.
    """
    S = features.shape[0]
    n = features.shape[1]
    s: int = S
    for t in range(u.shape[0]):
        begin = first[s]
        x = u[t] * (first[s + 1] - begin)
        k = int(x)
        x -= k
        k += begin
        if x >= share[k]:
            k = other[k]
        s = following[k]
        if t > 0:
            outcomes[t - 1] = k
            actions[t - 1] = action[k]
        states[t] = s
        for i in range(n):
            Phi[t, i] = features[s, i]
