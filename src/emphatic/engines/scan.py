"""Indices looked over at memory speed before a run starts."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numba import types

from emphatic.engines.compiled import jit_for

if TYPE_CHECKING:
    from numpy.typing import NDArray

_i8 = types.Array(types.int64, 1, "C", readonly=True)


@jit_for((_i8, _i8))
def survey(index: NDArray[np.int64], start: NDArray[np.int64]) -> tuple[int, bool, int]:
    """See ``rows.survey``: a small hash table, whose slots are stamped with the row so that none is ever cleared."""
    widest = 1
    for t in range(start.shape[0] - 1):
        widest = max(widest, start[t + 1] - start[t])
    size = 2
    while size < 2 * widest:
        size *= 2
    key = np.empty(size, np.int64)
    seen = np.full(size, -1, np.int64)
    top = -1
    for t in range(start.shape[0] - 1):
        for a in range(start[t], start[t + 1]):
            i = index[a]
            if i < -1:
                return t, False, i
            if i < 0:
                continue
            top = max(top, i)
            slot = ((i * 0x9E3779B1) >> 15) & (size - 1)
            while seen[slot] == t:
                if key[slot] == i:
                    return t, True, i
                slot = (slot + 1) & (size - 1)
            seen[slot] = t
            key[slot] = i
    return -1, False, top


@jit_for((_i8,))
def highest_of_few(index: NDArray[np.int64]) -> int:
    """The largest of a few indices, −1 if there is none; −2 if one is below −1 or repeated."""
    top = -1
    for a in range(index.shape[0]):
        i = index[a]
        if i < -1:
            return -2
        same = 0
        for b in range(a):
            same += index[b] == i
        if same > 0 and i >= 0:
            return -2
        top = max(top, i)
    return top
