"""The loop that makes returns: a recursion from the last step to the first."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from numba import types

from emphatic.engines.compiled import jit_for

_FLOATS, _FLAGS = (types.Array(kind, 2, "C") for kind in (types.float64, types.boolean))


@jit_for((_FLOATS, _FLOATS, _FLOATS, _FLAGS, types.float64))
def accumulate(
    b: npt.NDArray[np.float64], a: npt.NDArray[np.float64], x: npt.NDArray[np.float64], known: npt.NDArray[np.bool_],
    tolerance: float,
) -> None:  # fmt: skip
    """x_t = b_t + a_t x_{t+1} from x_T = 0, and where the weight Π a of x_T is at most ``tolerance``."""
    T, K = b.shape
    last, weight = np.zeros(K), np.ones(K)
    for t in range(T - 1, -1, -1):
        for k in range(K):
            last[k] = b[t, k] + a[t, k] * last[k]
            if weight[k] > tolerance:  # it can only shrink, and need not shrink to a slow denormal
                weight[k] *= a[t, k]
            x[t, k] = last[k]
            known[t, k] = weight[k] <= tolerance
