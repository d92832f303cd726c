"""Input validation: user input becomes arrays that engines can trust, or raises ``ValueError``.

The functions are for engines on the host; ``TensorInputs`` has the same for an engine on a device.

Every message has one form: the parameter and the function, what it must be, what was given instead, and where.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache, lru_cache, partial
from operator import index
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, TypeGuard

import numpy as np
from numpy.typing import ArrayLike, NDArray

from emphatic.common.names import refusal, show
from emphatic.engines.base import Arrays, Features, Flags, Probe, Rows, block, once, survey
from emphatic.rules import RANGES, AnyRule

if TYPE_CHECKING:
    import torch

__all__ = [
    "Active",
    "SequenceWarning",
    "TensorInputs",
    "features",
    "mask",
    "parameters",
    "probe",
    "real_array",
    "refusal",
    "series",
    "whole",
]


class SupportsDLPack(Protocol):
    """An array of any library, in memory that others can read."""

    def __dlpack__(self, *args: Any, **options: Any) -> Any: ...


class SequenceWarning(UserWarning):
    """φ' of a step is not φ of the next step and γ' is not 0, but ``run`` was not told where sequences begin."""


class CompressedRows(Protocol):
    """A scipy CSR array."""

    indptr: NDArray[Any]
    indices: NDArray[Any]
    data: NDArray[Any]
    shape: tuple[int, ...]


#: Converts a parameter, given its name and value; multiplies two converted parameters.
Reader = Callable[[str, Any], Any]
Product = Callable[[Any, Any], Any]

_GREEK = {"beta": "β"}
LARGEST = float(np.finfo(np.float64).max)
#: Every whole number below this is a float64.
_EXACT = 1 << 53

#: A log shorter than this may well lie within one episode, whose end is in the next call.
EPISODE = 10
#: DLPack's numbers for memory that NumPy can read: the host's, and the host's as CUDA and ROCm pin it.
_HOST = (1, 3, 11)

#: How many dimensions φ may have: one step, many, or either.
_NDIMS = {"learn": (1,), "run": (2,), "predict": (1, 2)}
#: Up to here, comparing all pairs is quicker than any table.
_FEW = 128
#: Components of φ' compared with the next φ at a time: few enough for a cache.
_COMPARED = 1 << 14
#: With fewer components than this, they are compared without a kernel.
_FEW_COMPARED = 4096
_INT64 = np.dtype(np.int64)


class Active:
    """The active features of one φ, shape (k,), or of one φ per row, shape (T, k).

    Indexing works as on an array, without a copy: ``Phi[a:b]`` is ``Active`` too, and ``Phi[t]`` is one φ.

    >>> Active([3, 7])
    Active([3, 7])
    >>> Phi = Active([[3, 7], [4, -1], [5, 6]])
    >>> Phi.shape, Phi[1:].shape, Phi[-1]
    ((3, 2), (2, 2), Active([5, 6]))
    >>> Active([[3, 7], [4, -1]], values=[[0.5, 0.5], [1.0, 0.0]])[0]
    Active([3, 7], [0.5, 0.5])

    Args:
        indices: The indices of the active features, each at most once in one φ; −1 means "none", so that rows of
            different lengths fit one array.
        values: The values of these features, in the same shape; 1 unless given.
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
        array = indices if type(indices) is np.ndarray else _regular("indices", indices)
        if array.dtype.kind not in "iu" and array.size:
            raise refusal("indices", "Active", "be integers", f"an array of {array.dtype}")
        if array.dtype.kind == "u" and array.size and array.max() >= 1 << 63:
            raise refusal("indices", "Active", "be below 2**63", str(array.max()))
        if array.ndim not in (1, 2):
            wanted = "have shape (k,) for one step or (T, k) for many"
            raise refusal("indices", "Active", wanted, f"shape {array.shape}")
        # One step is copied (it is small, and callers reuse their buffers); a log is not, where it need not be.
        array = np.array(array, np.int64) if array.ndim == 1 else np.ascontiguousarray(array, np.int64)
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
    active = Active.__new__(Active)
    active.indices, active.values, active.top = indices, values, top
    return active


@cache
def _of_few() -> Callable[[NDArray[np.int64]], int]:
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


def _regular(name: str, value: object) -> NDArray[Any]:
    """An array without masked values."""
    try:
        array = np.asarray(value)
    except Exception:  # whatever an object's own way of becoming an array raises
        raise refusal(name, "Active", "be a regular array", show(value)) from None
    if isinstance(value, np.ma.MaskedArray) and np.ma.is_masked(value):
        raise refusal(name, "Active", "have no masked value", show(value))
    return array


def _checked(values: ArrayLike, indices: NDArray[np.int64]) -> NDArray[np.float64]:
    array = _regular("values", values)
    if array.dtype.kind not in "fiub":
        raise refusal("values", "Active", "be real numbers", repr(values))
    with np.errstate(over="ignore"):
        weight = np.array(array, np.float64)
    if weight.shape != indices.shape:
        wanted = f"have the shape of 'indices', {indices.shape}"
        raise refusal("values", "Active", wanted, f"shape {weight.shape}")
    bad = np.argwhere(~np.isfinite(weight))
    if len(bad):
        at = f" at step {bad[0][0]}" if indices.ndim == 2 else f" at position {bad[0][0]}"
        raise refusal("values", "Active", "be finite", f"{weight[tuple(bad[0])]}{at}")
    return weight


@lru_cache(maxsize=256)
def _one_row(width: int) -> NDArray[np.float64]:
    ones = np.ones(width)
    ones.flags.writeable = False
    return ones


def _ones(shape: tuple[int, ...]) -> NDArray[np.float64]:
    return _one_row(shape[0]) if len(shape) == 1 else np.broadcast_to(_one_row(1), shape)


@lru_cache(maxsize=256)
def _start(width: int) -> NDArray[np.int64]:
    return np.array([0, width], np.int64)


def _starts(shape: tuple[int, ...]) -> NDArray[np.int64]:
    return np.arange(shape[0] + 1, dtype=np.int64) * shape[1]


#: What users may pass as numbers, and as features.
Numbers = ArrayLike | SupportsDLPack
FeaturesLike = Numbers | Active | CompressedRows
#: Numbers of a run on the host, or on a device.
Values: TypeAlias = "NDArray[Any] | torch.Tensor"

# ------------------------------------------------------------------------------------------------ checks


def whole(name: str, value: object, function: str = "Learner") -> int:
    """An integer of at least 1, below 2**48."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or not 1 <= value < 1 << 48:
        raise refusal(name, function, "be a whole number of 1 or more", show(value))
    return int(value)


def real_array(name: str, value: object, function: str) -> NDArray[Any]:
    """The value as an array of real numbers."""
    if type(value) is np.ndarray:
        array = value
    else:
        try:
            array = np.asarray(import_array(name, value, function))
        except Exception:  # whatever the object's own conversion raises
            raise _unreadable(name, value, function) from None
    if array.dtype.kind not in "fiub":
        raise refusal(name, function, "be real numbers", show(value))
    # (asarray would expose the masked values)
    if array is not value and isinstance(value, np.ma.MaskedArray) and np.ma.is_masked(value):
        raise refusal(name, function, "have no masked values", show(value))
    return array


def import_array(name: str, value: object, function: str) -> Any:
    """An array of another library that NumPy does not read by itself, as a NumPy array; anything else unchanged."""
    if hasattr(value, "detach"):  # a torch tensor, which may belong to a graph of gradients
        return value.detach()
    if hasattr(value, "__array__") or not hasattr(value, "__dlpack__"):
        return value
    try:
        return np.from_dlpack(value)
    except Exception:  # of whatever kind the other library has for it
        raise _unreadable(name, value, function) from None


def _unreadable(name: str, value: object, function: str) -> ValueError:
    try:
        elsewhere = getattr(value, "__dlpack_device__")()[0] not in _HOST  # noqa: B009
    except Exception:  # it has no such method, or one that does not answer
        elsewhere = False
    if elsewhere:
        wanted = "be on the host, or the engine 'cuda', which takes arrays on its device"
        return refusal(name, function, wanted, f"{type(value).__name__} on another device")
    return refusal(name, function, "be an array of real numbers, with rows of equal length", show(value))


def features(
    name: str, value: FeaturesLike, function: str, n: int, dtype: str, *, look_over: bool = True
) -> tuple[Features, float]:
    """φ, one row per step: an array (T, n) in the dtype, or compressed rows; and its largest |component|.

    Without ``look_over`` the values of an array are not checked, and the largest is unknown (NaN).
    """
    if isinstance(value, Active):
        return _active(name, value, function, n, dtype)
    if _is_compressed(value):
        return _compressed(name, value, function, n, dtype)
    array = real_array(name, value, function)
    check_shape(name, array.shape, function, n)
    rows = cast = array if array.ndim == 2 else array.reshape(-1, n)
    flags = rows.flags
    if rows.dtype != dtype or not (flags.c_contiguous and flags.aligned):  # compiled code reads whole words in order
        with np.errstate(over="ignore"):
            cast = np.array(rows, dtype, order="C")
    top = _largest(cast) if look_over else math.nan
    if look_over and not math.isfinite(top):
        raise not_finite(name, function, dtype, rows, cast, array.ndim)
    return cast, top


def _is_compressed(value: object) -> TypeGuard[CompressedRows]:
    return getattr(value, "format", None) == "csr"


def check_shape(name: str, shape: tuple[int, ...], function: str, n: int) -> None:
    """Raise if φ, or rows of φ, have another shape."""
    ndims = _NDIMS[function]
    if len(shape) not in ndims or shape[-1] != n:
        shapes = " or ".join({1: f"({n},)", 2: f"(T, {n})"}[d] for d in ndims)
        raise refusal(name, function, f"have shape {shapes}, or be Active", f"shape {tuple(shape)}")


def not_finite(name: str, function: str, dtype: str, rows: Values, cast: NDArray[Any], ndim: int) -> ValueError:
    """The error for features that are not all finite; it names the first such value."""
    t, i = np.argwhere(~np.isfinite(cast))[0]
    where = f"feature {i}" if ndim == 1 else f"step {t}, feature {i}"
    return refusal(name, function, f"be finite in {dtype}", f"{rows[t, i]} at {where}")


def parameters(
    rule: AnyRule, function: str, T: int, K: int | None, values: Sequence[Any], extra: Mapping[str, Any]
) -> Arrays:
    """Every parameter of the rule as a (T, K) array that takes no memory where it is constant."""
    if not rule.extra and not extra:  # (as ``resolve`` would, quicker: this is a part of every short run)
        return tuple(
            [series(function, T, K, rule, name, value) for name, value in zip(rule.parameters, values, strict=False)]
        )
    resolved = tuple(resolve(rule, function, values, extra, partial(series, function, T, K, rule), product))
    check_order(rule, function, resolved, once)
    return resolved


def resolve(
    rule: AnyRule, function: str, values: Sequence[Any], extra: Mapping[str, Any], read: Reader, product: Product
) -> list[Any]:
    """Every parameter of the rule as ``read`` converts it; those not given have their defaults."""
    resolved = [read(name, value) for name, value in zip(rule.parameters, values, strict=False)]
    if not rule.extra and not extra:
        return resolved
    of_eta = [name for name in rule.extra if rule.defaults.get(name) == "eta"]
    names = (*rule.extra, "eta") if of_eta else rule.extra
    for name in extra:
        if name not in names:
            known = f" Its extra parameters are: {', '.join(names)}." if names else ""
            raise ValueError(f"The '{name}' parameter of {function} does not belong to rule {rule.name!r}.{known}")
    if "eta" in extra and of_eta and all(name in extra for name in of_eta):
        parameter = of_eta[0]
        raise ValueError(
            f"The 'eta' parameter of {function} must not be given together with '{parameter}': without the latter, "
            f"{_GREEK.get(parameter, parameter)} = eta·α."
        )
    for name in rule.extra:
        default = rule.defaults.get(name)
        if name in extra:
            value = extra[name]
            is_default = value.__class__ is float and value == default
            resolved.append(read(name, limited(value) if is_default else value))
        elif default == "eta":
            resolved.append(product(read("eta", extra["eta"]), resolved[0]) if "eta" in extra else resolved[0])
        elif isinstance(default, str):
            resolved.append(resolved[rule.parameters.index(default)])
        elif default is not None:
            resolved.append(read(name, limited(default)))
        else:
            raise ValueError(f"The '{name}' parameter of {function} is required by rule {rule.name!r}.")
    return resolved


def as_given(name: str, value: ArrayLike) -> ArrayLike:
    """A parameter unchanged: the kernel checks its range, except that of eta, which it never sees (β = eta·α)."""
    if name == "eta" and not np.all(np.isfinite(value) & (np.asarray(value) >= 0.0)):
        raise ValueError("eta is out of range")
    return value


def product(a: NDArray[np.float64], b: NDArray[np.float64]) -> NDArray[np.float64]:
    """a·b without expanding an axis along which both are constant."""
    return np.broadcast_to(once(a) * once(b), a.shape)


def least_rows(p: NDArray[np.float64]) -> NDArray[np.float64]:
    """The rows that ``warn_if_never_terminating`` has to check."""
    return p


def sum_squares(predictions: NDArray[Any], aim: NDArray[np.float64]) -> NDArray[np.float64]:
    """Each learner's sum of squared errors."""
    return np.asarray(np.square(predictions - aim).sum(axis=0))


def log_features(
    read: Callable[[str, FeaturesLike], tuple[Features, float]], Phi: FeaturesLike, Phi_next: FeaturesLike | None
) -> tuple[Features, Features, float]:
    """φ and φ' of every step of ``run``, as ``read`` converts them, and the largest |component|."""
    phi, top = read("Phi", Phi)
    if Phi_next is None:
        T = len(phi) - 1
        if T < 0:
            raise refusal("Phi", "run", "have T + 1 rows for T steps, so at least one", "none")
        return block(phi, 0, T), block(phi, 1, T + 1), top
    phi_next, top_next = read("Phi_next", Phi_next)
    if len(phi_next) != len(phi):
        raise refusal("Phi_next", "run", f"have as many rows as 'Phi', {len(phi)}", str(len(phi_next)))
    return phi, phi_next, max(top, top_next)


def mask(name: str, value: object, function: str, T: int, of: str = "step") -> Flags:
    """One truth value per step, or per whatever it is a mask ``of``, (T,), on the host."""
    if hasattr(value, "detach"):  # a torch tensor, perhaps on a device
        value = value.detach().cpu()
    array = real_array(name, value, function)
    if array.shape != (T,):
        raise refusal(name, function, f"be a mask of shape ({T},), one entry per {of}", f"shape {array.shape}")
    if array.dtype != np.bool_ and array.size and not ((array == 0) | (array == 1)).all():
        raise refusal(name, function, "be a mask of True and False", show(value))
    return np.ascontiguousarray(array, np.bool_)


def first_discontinuity(phi: Features, phi_next: Features, gamma: NDArray[np.float64], n: int) -> int:
    """The first step whose φ' is not φ of the next step although its γ' is not 0; −1 if there is none.

    No step after that one is compared.
    """
    T = len(phi)
    if T < 2:
        return -1
    rows, following = block(phi_next, 0, T - 1), block(phi, 1, T)
    if isinstance(rows, Rows) and isinstance(following, Rows):
        from emphatic.engines import scan

        pair = (rows.start, rows.index, rows.value, following.start, following.index, following.value)
        return scan.first_sparse_discontinuity(*pair, gamma)
    if isinstance(rows, Rows) or isinstance(following, Rows):
        size = max(1, _COMPARED // n)
        for begin in range(0, T - 1, size):
            end = min(begin + size, T - 1)
            blocks = (block(p, begin, end) for p in (rows, following))
            row, row_next = (p.dense(n, np.float64) if isinstance(p, Rows) else p for p in blocks)
            t = _first_different_row(row, row_next, gamma[begin:end])
            if t >= 0:
                return begin + t
        return -1
    if rows.ctypes.data == following.ctypes.data:
        return -1  # one log
    if rows.size < _FEW_COMPARED:
        return _first_different_row(rows, following, gamma)
    from emphatic.engines import scan

    return scan.first_discontinuity(rows.reshape(-1), following.reshape(-1), n, gamma)


def _first_different_row(rows: NDArray[Any], following: NDArray[Any], gamma: NDArray[np.float64]) -> int:
    """The first row that differs where some γ' is not 0; −1 if there is none."""
    differ = (rows != following).any(axis=1) & gamma[: len(rows)].any(axis=1)
    return int(np.argmax(differ)) if differ.any() else -1


def warn_of_sequences(t: int, rule: AnyRule, stacklevel: int) -> None:
    """Warn that φ' of step t is not φ of the next step, and say what to do."""
    message = (
        f"'Phi_next' of step {t} is not 'Phi' of step {t + 1}, and 'gamma_next' is not 0 there: if another sequence "
        f"begins at step {t + 1}, the traces of this one run on into it. Pass first=, a mask that is True where a step "
        "begins a sequence, or all False if none does."
    )
    if rule.change:
        message += (
            f" Within a sequence, rule {rule.name!r} uses φ' of the step before in the place of φ beside θ − θ⁻; with "
            "separate_next=True a learner uses φ."
        )
    warnings.warn(message, SequenceWarning, stacklevel=stacklevel)


def probe(given: tuple[ArrayLike, ArrayLike, ArrayLike], n: int, K: int | None) -> Probe:
    """The probe for (Phi_s, v, d), which computes the root mean square value error of any θ.

    v and d may be one per learner, (K, S).
    """
    try:
        Phi_s, v, d = (np.asarray(real_array("probe", array, "run"), np.float64) for array in given)
        shapes = (Phi_s.shape[:1],) if K is None else (Phi_s.shape[:1], (K, *Phi_s.shape[:1]))
        fine = Phi_s.ndim == 2 and Phi_s.shape[1] == n and v.shape in shapes and d.shape in shapes
        fine = fine and all(np.isfinite(array).all() for array in (Phi_s, v, d))
        fine = fine and bool((d >= 0).all()) and bool((d.sum(axis=-1) > 0).all())
    except (TypeError, ValueError):
        fine = False
    if not fine:
        shape = "(S,)" if K is None else f"(S,) or ({K}, S)"
        wanted = (
            f"be (Phi_s, v, d), Phi_s of shape (S, {n}) and v and d of shape {shape}, all finite, with weights d that "
            "are not negative and not all 0"
        )
        raise refusal("probe", "run", wanted, show(given))
    return Probe.of(Phi_s, v, d)


def _active(name: str, value: Active, function: str, n: int, dtype: str) -> tuple[Features, float]:
    ndims = _NDIMS[function]
    if value.indices.ndim not in ndims:
        shapes = " or ".join({1: "(k,)", 2: "(T, k)"}[d] for d in ndims)
        raise refusal(name, function, f"be Active of shape {shapes}", f"shape {value.shape}")
    # (for slices, ``top`` is that of the whole array)
    if value.top >= n and len(above := np.argwhere(value.indices >= n)):
        place = above[0]
        at = f" at step {place[0]}" if value.indices.ndim == 2 else ""
        raise refusal(name, function, f"have indices below n = {n}", f"{value.indices[tuple(place)]}{at}")
    rows = value.rows
    return rows, 1.0 if value.values.strides[0] == 0 else _held(name, function, rows, dtype)


def _held(name: str, function: str, rows: Rows, dtype: str) -> float:
    """The largest |value|; raises for values that are not finite in the dtype."""
    top = float(np.abs(rows.value).max(initial=0.0))
    limit = float(np.finfo(dtype).max)
    if not top <= limit:
        at = int(np.argmax(~(np.abs(rows.value) <= limit)))
        t = int(np.searchsorted(rows.start, at, side="right")) - 1
        raise refusal(name, function, f"be finite in {dtype}", f"{rows.value[at]} at step {t}")
    return top


def _compressed(name: str, csr: CompressedRows, function: str, n: int, dtype: str) -> tuple[Features, float]:
    """The rows of a scipy CSR array."""
    if 2 not in _NDIMS[function] or len(csr.shape) != 2 or csr.shape[1] != n:
        raise refusal(
            name, function, f"have {n} columns and be given to run or predict", f"a CSR array of shape {csr.shape}"
        )
    real_array(name, csr.data, function)
    start, index = (np.ascontiguousarray(array, np.int64) for array in (csr.indptr, csr.indices))
    rows = Rows(start, index, np.ascontiguousarray(csr.data, np.float64))
    ends = len(start) == csr.shape[0] + 1 and start[0] == 0 and start[-1] <= len(index) == len(rows.value)
    if not (ends and (np.diff(start) >= 0).all()):
        raise refusal(name, function, "be a valid CSR array", "row pointers that do not match its columns and values")
    top = _held(name, function, rows, dtype)
    t, repeated, i = survey(index, start)
    if t < 0 and index[: start[-1]].min(initial=0) < 0:
        i = -1  # "none" in an Active, an error here
    if t >= 0 or (not 0 <= i < n and start[-1]):
        got = f"column {i} more than once at step {t}; call its sum_duplicates()" if repeated else f"column {i}"
        raise refusal(name, function, f"have columns below {n}, each at most once per row", got)
    return rows, top


def series(function: str, T: int, K: int | None, rule: AnyRule, name: str, value: object) -> NDArray[np.float64]:
    """One number per step and learner, (T, K), from a number, (T,), (K,) or (T, K)."""
    if type(value) is float or (type(value) is int and -_EXACT < value < _EXACT):
        low, high = bounds(rule, name)
        if not (low <= value <= high and -LARGEST <= value <= LARGEST):
            raise out_of_range(name, function, rule, np.full((1, 1), value, np.float64))
        return _constant(T, K or 1, value)
    array = real_array(name, value, function)
    view = array.reshape(shape_of(name, array.shape, function, T, K))
    if view.dtype != np.float64 or not view.flags.aligned:
        with np.errstate(over="ignore"):
            view = view.astype(np.float64)
    if view.size and not _within(view, *bounds(rule, name)):
        if endless := infinity(rule, name):
            view = np.where(view == endless, limited(endless), view)
        if not _within(view, *bounds(rule, name)):
            raise out_of_range(name, function, rule, view)
    return view if view.shape == (T, K or 1) else np.broadcast_to(view, (T, K or 1))


@lru_cache(256)
def _constant(T: int, K: int, value: float) -> NDArray[np.float64]:
    """(T, K) of one number, stored once; cached, as the constants of a stream recur in every call."""
    return np.ndarray((T, K), np.float64, np.float64(value), strides=(0, 0))


def shape_of(name: str, shape: tuple[int, ...], function: str, T: int, K: int | None) -> tuple[int, int]:
    """How a parameter of this shape is read: as (1, 1), (T, 1), (1, K) or (T, K)."""
    if not shape:
        return 1, 1
    if function == "learn" and K is not None and shape == (K,):
        return 1, K
    if function == "run" and shape == (T,) and (K != T or T == 1):
        return T, 1
    if function == "run" and K is not None and shape == (K,) and K != T:
        return 1, K
    if function == "run" and K is not None and shape in ((T, K), (T, 1), (1, K)):
        return shape[0], shape[1]
    raise refusal(name, function, _forms(function, shape, T, K), f"shape {shape}")


def bounds(rule: AnyRule, name: str) -> tuple[float, float]:
    """The least and the largest value of this parameter."""
    return rule.ranges.get(name) or RANGES.get(name, (-math.inf, math.inf))


def infinity(rule: AnyRule, name: str) -> float:
    """The infinite number that this parameter may be, its default; 0 if it must be finite."""
    default = rule.defaults.get(name)
    return default if isinstance(default, float) and math.isinf(default) else 0.0


def limited(value: float) -> float:
    """For engines, which take finite numbers: the largest float64 in place of ∞, and the least in place of −∞."""
    return min(max(value, -LARGEST), LARGEST)


def out_of_range(name: str, function: str, rule: AnyRule, view: NDArray[np.float64]) -> ValueError:
    """The error for a parameter outside its range; it names the first such number."""
    low, high = bounds(rule, name)
    place = np.argwhere(~(np.isfinite(view) & (view >= low) & (view <= high)))[0]
    wanted = f"between {low:g} and {high:g}"
    if low == high:
        wanted = f"{low:g} for rule {rule.name!r}"
    elif low == math.ulp(0.0):
        wanted = f"greater than 0 and at most {high:g}"
    elif low == -math.inf:
        wanted = f"finite or {infinity(rule, name)}" if infinity(rule, name) else "finite"
    elif high == math.inf:
        wanted = f"{low:g} or more" + ("" if infinity(rule, name) else ", and finite")
    return refusal(name, function, f"be {wanted}", f"{view[tuple(place)]}{describe_place(view.shape, place)}")


def describe_place(shape: tuple[int, ...], place: Sequence[int]) -> str:
    """Which step and which learner an entry of a (T, K) array belongs to, in words; one of several is named."""
    where = [f"{of} {i}" for of, size, i in zip(("step", "learner"), shape, place, strict=True) if size > 1]
    return f"{' at ' if where else ''}{', '.join(where)}"


def check_order(rule: AnyRule, function: str, values: Sequence[Any], once: Callable[[Any], NDArray[Any]]) -> None:
    """ValueError if a parameter is above the one that it must never be above; it names the first such step.

    ``once`` gives the numbers of a parameter without those repeated along an axis.
    """
    if not rule.ordered:
        return
    lower, upper = (once(values[rule.parameters.index(name)]) for name in rule.ordered)
    above = lower > upper
    if above.any():
        place, (name, other) = tuple(np.argwhere(above)[0]), rule.ordered
        low, high = (np.broadcast_to(array, above.shape)[place] for array in (lower, upper))
        got = f"{low} with '{other}' = {high}{describe_place(above.shape, place)}"
        raise refusal(name, function, f"be at most '{other}'", got, "Exchange the two, or leave one out.")


def _within(view: NDArray[np.float64], low: float, high: float) -> bool:
    """Whether every number is finite and within the range."""
    if view.size == 1:
        return low <= view.item() <= high and math.isfinite(view.item())
    if low == 0.0 and view.flags.c_contiguous:
        # As unsigned integers, floats from 0 on are in order, and negative ones, infinity and NaN come after them.
        limit = np.nextafter(high, 0.0) if high == math.inf else high
        if int(view.view(np.uint64).max()) <= int(np.float64(limit).view(np.uint64)):
            return True
    least, most = float(view.min()), float(view.max())
    return low <= least and most <= high and math.isfinite(least) and math.isfinite(most)


def _forms(function: str, shape: tuple[int, ...], T: int, K: int | None) -> str:
    """The shapes that a parameter may have, in words."""
    if function == "learn":
        return "be a number" if K is None else f"be a number or have shape ({K},)"
    if K is None:
        return f"be a number or have shape ({T},)"
    if shape == (T,):
        return f"have shape ({T}, 1) for one value per step, or (1, {K}) for one per learner, as T = K = {K}"
    return f"be a number or have shape ({T},), ({K},) or ({T}, {K})"


def _largest(array: NDArray[Any]) -> float:
    """max |x|, or infinity or NaN if not all are finite, at memory speed."""
    if array.size < 4096:
        return float(np.abs(array).max(initial=0.0))
    from emphatic.engines import magnitude

    integer = np.dtype(f"i{array.itemsize}").type
    top = magnitude.largest(array.reshape(-1).view(integer), np.iinfo(integer).max)
    return float(integer(top).view(array.dtype.type))


# ------------------------------------------------------------------------------------------------ on a device


class TensorInputs:
    """The functions of this module for an engine on a device: arrays become torch tensors, and stay where they are.

    Single-precision numbers stay single precision: half the bytes take half the time to copy to a device.
    """

    def __init__(self, place: Callable[[NDArray[Any]], Any]) -> None:
        import torch  # late: only engines on a device need it

        self._torch, self._place = torch, place

    def import_array(self, name: str, value: object, function: str) -> Any:
        """Anything with ``__dlpack__`` as a torch tensor in the same memory; NumPy arrays and others unchanged."""
        if isinstance(value, self._torch.Tensor):
            tensor = value.detach()
        elif isinstance(value, np.ndarray) or not hasattr(value, "__dlpack__"):
            return value
        else:
            try:
                tensor = self._torch.from_dlpack(value)
            except Exception as error:  # of whatever kind either library has for it
                raise refusal(name, function, "be an array that torch can read", str(error)) from None
        if tensor.is_complex():
            raise refusal(name, function, "be real numbers", str(tensor.dtype))
        return tensor

    def features(
        self, name: str, value: FeaturesLike, function: str, n: int, dtype: str, *, look_over: bool = True
    ) -> tuple[Features | torch.Tensor, float]:
        """``features``; a tensor gives a tensor of the dtype on the same device. Rows of ``run`` may be sent to it."""
        value = self.import_array(name, value, function)
        if not isinstance(value, self._torch.Tensor):
            read, top = features(name, value, function, n, dtype, look_over=False)
            if isinstance(read, Rows) or not look_over:
                return read, top
            from emphatic.engines.cuda.engine import tensor_of

            placed = self._place(read) if function == "run" else read
            top = self._largest(tensor_of(placed))  # (on the device, or on all cores: a device waits for it)
            if not math.isfinite(top):
                given = real_array(name, value, function)
                raise not_finite(name, function, dtype, given.reshape(-1, n), read, given.ndim)
            return placed, top
        check_shape(name, value.shape, function, n)
        rows = value.reshape(-1, n)
        cast = rows.to(dtype=getattr(self._torch, dtype)).contiguous()
        top = self._largest(cast)
        if not math.isfinite(top):
            raise not_finite(name, function, dtype, rows, cast.cpu().numpy(), value.ndim)
        return cast, top

    def _largest(self, tensor: torch.Tensor) -> float:
        """max |x|, or infinity or NaN if not all are finite."""
        least, most = (float(end) for end in tensor.aminmax()) if tensor.numel() else (0.0, 0.0)
        return max(-least, most) if math.isfinite(least) else abs(least)

    def parameters(
        self, rule: AnyRule, function: str, T: int, K: int | None, values: Sequence[Any], extra: Mapping[str, Any]
    ) -> tuple[Values, ...]:
        """Every parameter of the rule as a (T, K) array or tensor that takes no memory where it is constant."""
        read = partial(self.series, function, T, K, rule)
        resolved = tuple(resolve(rule, function, values, extra, read, self._product))
        check_order(rule, function, resolved, lambda p: self._reduced(p, "cpu").numpy())
        return resolved

    def series(self, function: str, T: int, K: int | None, rule: AnyRule, name: str, value: object) -> Values:
        """A number a step and learner: ``series``, where tensors and single precision stay what they are."""
        value = self.import_array(name, value, function)
        single = isinstance(value, np.ndarray) and value.dtype == np.float32
        if not isinstance(value, self._torch.Tensor) and not single:
            return series(function, T, K, rule, name, value)
        from emphatic.engines.cuda.engine import tensor_of

        tensor = tensor_of(self._place(real_array(name, value, function)) if single else value)
        view = tensor.reshape(shape_of(name, tuple(tensor.shape), function, T, K))
        view = view if view.is_floating_point() else view.double()
        if view.numel():
            low, high = bounds(rule, name)
            least, most = (float(end) for end in view.aminmax())
            endless = infinity(rule, name)
            if endless and endless in (least, most):
                view = self._torch.where(view == endless, limited(endless), view.double())
                least, most = (float(end) for end in view.aminmax())
            if not (low <= least and most <= high and math.isfinite(least) and math.isfinite(most)):
                raise out_of_range(name, function, rule, view.cpu().numpy().astype(np.float64))
        return view.expand(T, K or 1)

    def least_rows(self, p: Values) -> NDArray[Any]:
        """What ``warn_if_never_terminating`` needs to check: each learner's least value, as if of every step.

        Where none is 1, one learner represents all, so that little is copied.
        """
        if isinstance(p, np.ndarray):
            return p
        if not p.numel():
            return np.empty(tuple(p.shape))
        constant = p.stride(0) == 0
        least = (p[:1] if constant else p).amin(0)
        least = least if bool((least >= 1.0).any()) else least[:1]
        steps = len(p) if constant or len(p) >= EPISODE else 1
        return np.broadcast_to(least.cpu().numpy(), (steps, len(least)))

    def first_discontinuity(self, phi: Any, phi_next: Any, gamma: Values, n: int) -> int:
        """``first_discontinuity``, compared where the tensors are."""
        if not any(isinstance(p, self._torch.Tensor) for p in (phi, phi_next, gamma)):
            return first_discontinuity(phi, phi_next, gamma, n)
        from emphatic.engines.cuda.engine import tensor_of

        rows, following, discount = (
            tensor_of(p.dense(n, np.float64) if isinstance(p, Rows) else p) for p in (phi_next, phi, gamma)
        )
        size = max(1, _COMPARED // n)
        for begin in range(0, len(rows) - 1, size):
            end = min(begin + size, len(rows) - 1)
            differ = (rows[begin:end] != following[begin + 1 : end + 1].to(rows.device)).any(1)
            differ &= (discount[begin:end] != 0).any(1).to(rows.device)
            if bool(differ.any()):
                return begin + int(differ.int().argmax())
        return -1

    def sum_squares(self, predictions: NDArray[Any], aim: Values) -> NDArray[np.float64]:
        """Each learner's sum of squared errors."""
        goal = np.asarray(aim if isinstance(aim, np.ndarray) else aim.cpu(), np.float64)
        return np.asarray(np.square(predictions - goal).sum(axis=0))

    def _product(self, a: Values, b: Values) -> Values:
        """a·b without expanding an axis along which both are constant."""
        if isinstance(a, np.ndarray) and isinstance(b, np.ndarray):
            return product(a, b)
        device = b.device if isinstance(a, np.ndarray) else a.device
        factor, factor_of_b = (self._reduced(p, device) for p in (a, b))
        return (factor * factor_of_b).expand(a.shape)

    def _reduced(self, p: Values, device: torch.device | str) -> torch.Tensor:
        """Without repeated entries, in double precision."""
        if isinstance(p, np.ndarray):
            p = self._torch.from_numpy(np.array(p[: 1 if p.strides[0] == 0 else None]))
        tensor = p[:1] if p.stride(0) == 0 else p
        return (tensor[:, :1] if tensor.stride(1) == 0 else tensor).to(device).double()
