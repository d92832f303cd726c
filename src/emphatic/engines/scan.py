"""Features looked over at memory speed before a run starts: their indices, and whether each φ' is the next φ."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numba import types

from emphatic.engines.compiled import jit_for

if TYPE_CHECKING:
    from numpy.typing import NDArray

_i8 = types.Array(types.int64, 1, "C", readonly=True)
_f8 = types.Array(types.float64, 1, "A", readonly=True)
_reals = [types.Array(real, 1, "C", readonly=True) for real in (types.float64, types.float32)]
_gamma = types.Array(types.float64, 2, "A", readonly=True)

#: Numbers that are compared without a look at the result in between.
COMPARED = 1024


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


@jit_for((_reals[0], _reals[0], types.int64, _gamma), (_reals[1], _reals[1], types.int64, _gamma))
def first_discontinuity(rows: NDArray[Any], following: NDArray[Any], n: int, gamma: NDArray[np.float64]) -> int:
    """The first row of n numbers that differs from the one that follows where some γ' is not 0; −1 if there is none.

    Both are flat: long loops without a branch are compared at memory speed.
    """
    begin, size = 0, rows.shape[0]
    while begin < size:
        row, row_next = rows[begin : begin + COMPARED], following[begin : begin + COMPARED]
        count = 0
        for i in range(row.shape[0]):
            count += row[i] != row_next[i]
        begin += row.shape[0]
        if count > 0:
            i = 0
            while row[i] == row_next[i]:
                i += 1
            t = (begin - row.shape[0] + i) // n
            for k in range(gamma.shape[1]):
                if gamma[t, k] != 0.0:
                    return int(t)
            begin = (t + 1) * n
    return -1


@jit_for((_i8, _i8, _f8, _i8, _i8, _f8, _gamma))
def first_sparse_discontinuity(
    start: NDArray[np.int64],
    index: NDArray[np.int64],
    value: NDArray[np.float64],
    start_next: NDArray[np.int64],
    index_next: NDArray[np.int64],
    value_next: NDArray[np.float64],
    gamma: NDArray[np.float64],
) -> int:
    """The same of compressed rows, features in any order, −1 and a value of 0 being none."""
    for t in range(start.shape[0] - 1):
        begin, end, begin_next, end_next = start[t], start[t + 1], start_next[t], start_next[t + 1]
        same = end - begin == end_next - begin_next
        if same:
            for a in range(end - begin):
                same &= index[begin + a] == index_next[begin_next + a]
                same &= value[begin + a] == value_next[begin_next + a]
        if same:
            continue
        balance = 0
        for a in range(begin, end):
            balance += index[a] >= 0 and value[a] != 0.0
        for b in range(begin_next, end_next):
            balance -= index_next[b] >= 0 and value_next[b] != 0.0
        same = balance == 0
        for a in range(begin, end):
            if same and index[a] >= 0 and value[a] != 0.0:
                matches = 0
                for b in range(begin_next, end_next):
                    matches += index_next[b] == index[a] and value_next[b] == value[a]
                same = matches > 0
        if not same:
            for k in range(gamma.shape[1]):
                if gamma[t, k] != 0.0:
                    return int(t)
    return -1
