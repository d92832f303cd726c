"""Sparse features: the nonzero components of φ."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from operator import index
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from emphatic.common.names import refusal, show
from emphatic.engines.base import Rows, survey

__all__ = ["Active"]

#: Up to here, comparing all pairs is quicker than any table.
_FEW = 128
_INT64 = np.dtype(np.int64)


class Active:
    """The active features of one φ, shape (k,), or of one φ per row, shape (T, k).

    ``values`` are 1 unless given. An index of −1 means "none", so that rows of different lengths fit one array. An
    index may not be repeated within one φ. Indexing works as on an array, without a copy: ``Phi[a:b]`` is ``Active``
    too, and ``Phi[t]`` is one φ.

    >>> Active([3, 7])
    Active([3, 7])
    >>> Phi = Active([[3, 7], [4, -1], [5, 6]])
    >>> Phi.shape, Phi[1:].shape, Phi[-1]
    ((3, 2), (2, 2), Active([5, 6]))
    >>> Active([[3, 7], [4, -1]], values=[[0.5, 0.5], [1.0, 0.0]])[0]
    Active([3, 7], [0.5, 0.5])
    """

    __slots__ = ("indices", "top", "values")

    def __init__(self, indices: ArrayLike, values: ArrayLike | None = None) -> None:
        if (
            values is None
            and type(indices) is np.ndarray
            and indices.dtype is _INT64
            and indices.ndim == 1
            and len(indices) <= _FEW
        ):
            # The common case, one step at a time; errors are reported below.
            self.indices: NDArray[np.int64] = indices.copy()
            self.values: NDArray[np.float64] = _one_row(len(indices))
            #: The largest index (−1 if there is none), so that a learner need not check every index again; for rows
            #: sliced from another ``Active``, the largest index of that one.
            self.top: int = _of_few()(self.indices)
            if self.top >= -1:
                return
        given = indices if type(indices) is np.ndarray else _regular("indices", indices)
        if given.dtype.kind not in "iu" and given.size:
            raise refusal("indices", "Active", "be integers", f"an array of {given.dtype}")
        if given.dtype.kind == "u" and given.size and given.max() >= 1 << 63:
            raise refusal("indices", "Active", "be below 2**63", str(given.max()))
        if given.ndim not in (1, 2):
            wanted = "have shape (k,) for one step or (T, k) for many"
            raise refusal("indices", "Active", wanted, f"shape {given.shape}")
        # One step is copied (it is small, and callers reuse their buffers); a log is not, where it need not be.
        array = np.array(given, np.int64) if given.ndim == 1 else np.ascontiguousarray(given, np.int64)
        self.indices = array
        self.values = _ones(array.shape) if values is None else _checked(values, array)
        self.top = highest(array)

    @property
    def shape(self) -> tuple[int, ...]:
        """(k,) or (T, k)"""
        return self.indices.shape

    @property
    def rows(self) -> Rows:
        """One compressed row per step."""
        if self.indices.ndim == 1:
            return Rows(_start(self.indices.shape[0]), self.indices, self.values)
        constant = self.values.strides == (0, 0)  # reshape would make a full array of ones of it
        flat = np.broadcast_to(self.values.flat[:1], self.indices.size) if constant else self.values.reshape(-1)
        return Rows(_starts(self.indices.shape), self.indices.reshape(-1), flat)

    def __len__(self) -> int:
        self._require_rows("has no length")
        return len(self.indices)

    def __bool__(self) -> bool:
        return True  # whatever its length

    def __getitem__(self, rows: Any) -> Active:
        self._require_rows("has no rows to take")
        if isinstance(rows, slice):
            return make_unchecked(self.indices[rows], self.values[rows], self.top)
        try:
            t = index(rows)
        except TypeError:
            raise TypeError(f"Active is indexed by a slice or an integer. Got {rows!r} instead.") from None
        constant = self.values.strides == (0, 0)
        return make_unchecked(self.indices[t], _one_row(self.shape[1]) if constant else self.values[t], self.top)

    def __iter__(self) -> Iterator[Active]:
        return (self[t] for t in range(len(self)))

    def _require_rows(self, but: str) -> None:
        if self.indices.ndim == 1:
            raise TypeError(f"Active of shape {self.shape} is one φ and {but}; only (T, k) does.")

    def __repr__(self) -> str:
        if self.indices.ndim == 1 and self.indices.size <= 16:
            binary = bool((self.values == 1.0).all())
            return f"Active({self.indices.tolist()}{'' if binary else f', {self.values.tolist()}'})"
        return f"<Active features of shape {self.shape}>"


def make_unchecked(indices: NDArray[np.int64], values: NDArray[np.float64], top: int) -> Active:
    """Without checks, for data known to be valid; ``top`` is at least the largest index."""
    made = Active.__new__(Active)
    made.indices, made.values, made.top = indices, values, top
    return made


@functools.cache
def _of_few() -> Any:
    from emphatic.engines import scan  # late: numba is imported with the first Active

    return scan.highest_of_few


def highest(indices: NDArray[np.int64]) -> int:
    """The largest index; raises if an index is not allowed."""
    start = _start(indices.shape[0]) if indices.ndim == 1 else _starts(indices.shape)
    row, repeated, top = survey(indices.reshape(-1), start)
    if row < 0:
        return top
    at = f" at step {row}" if indices.ndim == 2 else ""
    if repeated:
        got, remedy = f"{top} more than once{at}", "Merge the repeated features and pad with -1."
        raise refusal("indices", "Active", "be all different within one step", got, remedy)
    raise refusal("indices", "Active", "be 0 or more, or -1 for none", f"{top}{at}")


def _regular(name: str, value: Any) -> NDArray[Any]:
    """An array without masked values."""
    try:
        array = np.asarray(value)
    except Exception:  # whatever an object's own way of becoming an array raises
        raise refusal(name, "Active", "be a regular array", show(value)) from None
    if isinstance(value, np.ma.MaskedArray) and np.ma.is_masked(value):
        raise refusal(name, "Active", "have no masked value", show(value))
    return array


def _checked(values: ArrayLike, indices: NDArray[np.int64]) -> NDArray[np.float64]:
    given = _regular("values", values)
    if given.dtype.kind not in "fiub":
        raise refusal("values", "Active", "be real numbers", repr(values))
    with np.errstate(over="ignore"):
        weight = np.array(given, np.float64)
    if weight.shape != indices.shape:
        wanted = f"have the shape of 'indices', {indices.shape}"
        raise refusal("values", "Active", wanted, f"shape {weight.shape}")
    bad = np.argwhere(~np.isfinite(weight))
    if len(bad):
        at = f" at step {bad[0][0]}" if indices.ndim == 2 else f" at position {bad[0][0]}"
        raise refusal("values", "Active", "be finite", f"{weight[tuple(bad[0])]}{at}")
    return weight


@functools.lru_cache(maxsize=256)
def _one_row(width: int) -> NDArray[np.float64]:
    ones = np.ones(width)
    ones.flags.writeable = False
    return ones


def _ones(shape: tuple[int, ...]) -> NDArray[np.float64]:
    return _one_row(shape[0]) if len(shape) == 1 else np.broadcast_to(_one_row(1), shape)


@functools.lru_cache(maxsize=256)
def _start(width: int) -> NDArray[np.int64]:
    return np.array([0, width], np.int64)


def _starts(shape: tuple[int, ...]) -> NDArray[np.int64]:
    return np.arange(shape[0] + 1, dtype=np.int64) * shape[1]
