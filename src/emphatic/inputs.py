"""The checks at the door: whatever a user passes, as arrays that engines can trust, or a ``ValueError``.

Every message has one form: the parameter and the function, what it must be, what was got and where.
"""

from __future__ import annotations

import functools
import importlib
import math
import sys
from typing import Any

import numpy as np
from numpy.typing import NDArray

from emphatic.active import Active
from emphatic.engines.base import Arrays, Features
from emphatic.engines.probe import Probe
from emphatic.engines.rows import Rows, survey
from emphatic.engines.watching import strides
from emphatic.rules import RANGES, Rule

__all__ = ["features", "numbers", "parameters", "probe", "whole"]

#: How many dimensions φ may have: one step, many, or either.
_NDIMS = {"learn": (1,), "run": (2,), "predict": (1, 2)}


def refusal(name: str, function: str, wanted: str, got: str) -> ValueError:
    """The one sentence for every bad parameter."""
    return ValueError(f"The '{name}' parameter of {function} must {wanted}. Got {got} instead.")


def whole(name: str, value: Any, function: str = "Learner") -> int:
    """A whole number of 1 or more, and not beyond any machine."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or not 1 <= value < 1 << 48:
        raise refusal(name, function, "be a whole number of 1 or more", _shown(value))
    return int(value)


def numbers(name: str, value: Any, function: str) -> NDArray[Any]:
    """Real numbers in a regular array."""
    try:
        array = np.asarray(value)
    except (ValueError, TypeError):  # (a tensor on a device, for an engine that is not there)
        raise refusal(name, function, "be real numbers in a regular array", _shown(value)) from None
    if array.dtype.kind not in "fiub":
        raise refusal(name, function, "be real numbers", _shown(value))
    if isinstance(value, np.ma.MaskedArray) and np.ma.is_masked(value):  # asarray shows what the mask hides
        raise refusal(name, function, "have no masked value", _shown(value))
    return array


def features(
    name: str, value: Any, function: str, n: int, dtype: str, *, look_over: bool = True, tensors: bool = False
) -> tuple[Features, float]:
    """φ, one row a step: an array (T, n) in the dtype, or compressed rows; and its largest |component|.

    Without ``look_over`` an array's numbers are not looked at, and the largest is not known (NaN). With ``tensors``
    the array is a torch tensor, and stays on its device.
    """
    if isinstance(value, Active):
        return _active(name, value, function, n, dtype)
    if getattr(value, "format", None) == "csr":
        return _compressed(name, value, function, n, dtype)
    ndims = _NDIMS[function]
    array: Any = value if tensors and _is_tensor(value) else numbers(name, value, function)
    if array.ndim not in ndims or array.shape[-1] != n:
        shapes = " or ".join({1: f"({n},)", 2: f"(T, {n})"}[d] for d in ndims)
        raise refusal(name, function, f"have shape {shapes}, or be Active", f"shape {tuple(array.shape)}")
    given = array.reshape(-1, n)
    if _is_tensor(given):
        cast = given.to(dtype=getattr(_torch(), dtype)).contiguous()
    else:
        with np.errstate(over="ignore"):
            cast = np.ascontiguousarray(given, dtype)
    top = math.nan if not look_over else _extent(cast) if tensors else _largest(cast)
    if look_over and not math.isfinite(top):
        t, i = np.argwhere(~np.isfinite(np.asarray(cast.cpu() if _is_tensor(cast) else cast)))[0]
        where = f"feature {i}" if array.ndim == 1 else f"step {t}, feature {i}"
        raise refusal(name, function, f"be finite in {dtype}", f"{given[t, i]} at {where}")
    return cast, top


def parameters(
    rule: Rule, function: str, T: int, K: int | None, values: tuple[Any, ...], extra: dict[str, Any],
    *, tensors: bool = False,
) -> Arrays:  # fmt: skip
    """Every parameter of the rule as a (T, K) array that takes no memory where it is constant.

    With ``tensors``, torch tensors stay what and where they are, and numbers in single precision as they are.
    """
    names = tuple(rule.extra) + ("eta",) * ("eta" in rule.defaults.values())
    for name in extra:
        if name not in names:
            known = f" Its extra parameters are: {', '.join(names)}." if names else ""
            raise ValueError(f"The '{name}' parameter of {function} is not one of rule {rule.name!r}.{known}")
    if "eta" in extra and "beta" in extra:
        raise ValueError(f"The 'eta' parameter of {function} must not be given beside 'beta': β = eta·α unless given.")
    own = rule.parameters[: len(values)]
    series = functools.partial(_series, function, T=T, K=K, rule=rule, tensors=tensors)
    found = {name: series(name, value) for name, value in zip(own, values, strict=True)}
    for name in rule.extra:
        default = rule.defaults.get(name)
        if name in extra:
            found[name] = series(name, extra[name])
        elif default == "eta":
            eta = series("eta", extra.get("eta", 1.0))
            found[name] = found["alpha"] if "eta" not in extra else _product(eta, found["alpha"])
        elif isinstance(default, str):
            found[name] = found[default]
        elif default is not None:
            found[name] = series(name, default)
        else:
            raise ValueError(f"The '{name}' parameter of {function} is required by rule {rule.name!r}.")
    return tuple(found.values())


def _product(a: Any, b: Any) -> Any:
    """a·b without expanding an axis along which both are constant."""
    axes = tuple(slice(None) if strides(a)[axis] or strides(b)[axis] else slice(0, 1) for axis in (0, 1))
    if _is_tensor(a) or _is_tensor(b):
        device = (a if _is_tensor(a) else b).device
        one, other = (
            _torch().as_tensor(p[axes] if _is_tensor(p) else np.array(p[axes]), device=device) for p in (a, b)
        )
        return (one.double() * other.double()).expand(a.shape)
    return np.broadcast_to(a[axes] * b[axes], a.shape)


def series(name: str, value: Any, T: int, K: int | None, rule: Rule, *, tensors: bool) -> NDArray[np.float64]:
    """A number a step and learner for ``run``, as a parameter is given."""
    return _series("run", name, value, T=T, K=K, rule=rule, tensors=tensors)


def least(p: Any) -> Any:
    """What ``warn_if_never_terminating`` need look at: of a tensor each learner's least value."""
    return p.amin(0, keepdim=True).cpu() if _is_tensor(p) and 0 not in p.shape else p


def squares(made: NDArray[Any], aim: Any) -> NDArray[np.float64]:
    """Each learner's sum of squared errors."""
    goal = np.asarray(aim.cpu() if _is_tensor(aim) else aim, np.float64)
    return np.asarray(np.square(made - goal).sum(axis=0))


def probe(given: Any, n: int) -> Probe:
    """(Phi_s, v, d) as what finds the root mean square value error of any θ."""
    try:
        Phi_s, v, d = (np.asarray(numbers("probe", part, "run"), np.float64) for part in given)
        fine = Phi_s.ndim == 2 and Phi_s.shape[1] == n and v.shape == d.shape == Phi_s.shape[:1]
        fine = fine and all(np.isfinite(part).all() for part in (Phi_s, v, d)) and bool((d >= 0).all()) and d.sum() > 0
    except (TypeError, ValueError):
        fine = False
    if not fine:
        wanted = (
            f"be (Phi_s, v, d) of shapes (S, {n}), (S,) and (S,), all finite, with weights d of 0 or more, not all 0"
        )
        raise refusal("probe", "run", wanted, _shown(given))
    return Probe.of(Phi_s, v, d)


def _active(name: str, value: Active, function: str, n: int, dtype: str) -> tuple[Features, float]:
    ndims = _NDIMS[function]
    if value.indices.ndim not in ndims:
        shapes = " or ".join({1: "(k,)", 2: "(T, k)"}[d] for d in ndims)
        raise refusal(name, function, f"be Active of shape {shapes}", f"shape {value.shape}")
    # (of rows taken from others, ``top`` is that of all the others)
    if value.top >= n and len(above := np.argwhere(value.indices >= n)):
        first = above[0]
        at = f" at step {first[0]}" if value.indices.ndim == 2 else ""
        raise refusal(name, function, f"have indices below n = {n}", f"{value.indices[tuple(first)]}{at}")
    rows = value.rows
    return rows, 1.0 if value.values.strides[0] == 0 else _held(name, function, rows, dtype)


def _held(name: str, function: str, rows: Rows, dtype: str) -> float:
    """The largest |value|, if the dtype can hold them all."""
    top = float(np.abs(rows.value).max(initial=0.0))
    limit = float(np.finfo(dtype).max)
    if not top <= limit:
        at = int(np.argmax(~(np.abs(rows.value) <= limit)))
        t = int(np.searchsorted(rows.start, at, side="right")) - 1
        raise refusal(name, function, f"be finite in {dtype}", f"{rows.value[at]} at step {t}")
    return top


def _compressed(name: str, csr: Any, function: str, n: int, dtype: str) -> tuple[Features, float]:
    """The rows of a scipy CSR array."""
    if 2 not in _NDIMS[function] or len(csr.shape) != 2 or csr.shape[1] != n:
        raise refusal(
            name, function, f"have {n} columns and be given to run or predict", f"a CSR array of shape {csr.shape}"
        )
    numbers(name, csr.data, function)
    start, index = (np.ascontiguousarray(part, np.int64) for part in (csr.indptr, csr.indices))
    rows = Rows(start, index, np.ascontiguousarray(csr.data, np.float64))
    ends = len(start) == csr.shape[0] + 1 and start[0] == 0 and start[-1] <= len(index) == len(rows.value)
    if not (ends and (np.diff(start) >= 0).all()):
        raise refusal(name, function, "be a sound CSR array", "row starts that do not fit its columns and values")
    top = _held(name, function, rows, dtype)
    t, repeated, i = survey(index, start)
    if t < 0 and index[: start[-1]].min(initial=0) < 0:
        i = -1  # "none" in an Active, an error here
    if t >= 0 or (not 0 <= i < n and start[-1]):
        got = f"column {i} more than once at step {t}; call its sum_duplicates()" if repeated else f"column {i}"
        raise refusal(name, function, f"have each of {n} columns at most once a row", got)
    return rows, top


def _series(
    function: str, name: str, value: Any, *, T: int, K: int | None, rule: Rule, tensors: bool = False
) -> NDArray[np.float64]:
    array: Any = value if tensors and _is_tensor(value) else numbers(name, value, function)
    view: Any
    shape = tuple(array.shape)
    if array.ndim == 0:
        view = array.reshape(1, 1)
    elif function == "learn" and K is not None and shape == (K,):
        view = array[None, :]
    elif function == "run" and shape == (T,) and (K != T or T == 1):
        view = array[:, None]
    elif function == "run" and K is not None and shape == (K,) and K != T:
        view = array[None, :]
    elif function == "run" and K is not None and shape in ((T, K), (T, 1), (1, K)):
        view = array
    else:
        raise refusal(name, function, _forms(function, shape, T, K), f"shape {shape}")
    if _is_tensor(view):
        view = view if view.is_floating_point() else view.double()
    elif not tensors or view.dtype != np.float32:
        with np.errstate(over="ignore"):
            view = np.asarray(view, np.float64)
    low, high = rule.ranges.get(name, RANGES.get(name, (-math.inf, math.inf)))
    if 0 not in view.shape and not _within(view, low, high):
        view = np.asarray(view.cpu() if _is_tensor(view) else view, np.float64)
        t, k = (int(i) for i in np.argwhere(~(np.isfinite(view) & (view >= low) & (view <= high)))[0])
        where = [f"step {t}"] * (view.shape[0] > 1) + [f"learner {k}"] * (view.shape[1] > 1)
        bounds = "0 or more, and finite" if high == math.inf else f"between {low:g} and {high:g}"
        if low == math.ulp(0.0):
            bounds = f"greater than 0 and at most {high:g}"
        if low == high:
            bounds = f"{low:g} for rule {rule.name!r}"
        wanted = f"be {'finite' if low == -math.inf else bounds}"
        raise refusal(name, function, wanted, f"{view[t, k]}{' at ' if where else ''}{', '.join(where)}")
    return view.expand(T, K or 1) if _is_tensor(view) else np.broadcast_to(view, (T, K or 1))


def _is_tensor(value: Any) -> bool:
    """Whether this is a torch tensor, without importing torch for what is none."""
    return "torch" in sys.modules and isinstance(value, _torch().Tensor)


def _torch() -> Any:
    return importlib.import_module("torch")


def _extent(array: Any) -> float:
    """``_largest`` by torch: on the device where it is one, and without numba."""
    if 0 in array.shape:
        return 0.0
    tensor = array if _is_tensor(array) else _torch().as_tensor(array)
    least, most = tensor.aminmax()
    return max(-float(least), float(most)) if float(least) == float(least) else math.nan


def _within(view: Any, low: float, high: float) -> bool:
    """Whether every number is finite and in the range."""
    if not _is_tensor(view) and low == 0.0 and view.flags.c_contiguous and view.dtype == np.float64:
        # As unsigned integers, floats from 0 on are in order, and negative ones, infinity and NaN come after them.
        limit = np.nextafter(high, 0.0) if high == math.inf else high
        if int(view.view(np.uint64).max()) <= int(np.float64(limit).view(np.uint64)):
            return True
    least, most = (float(end) for end in (view.aminmax() if _is_tensor(view) else (view.min(), view.max())))
    return low <= least and most <= high and math.isfinite(least) and math.isfinite(most)


def _forms(function: str, shape: tuple[int, ...], T: int, K: int | None) -> str:
    """What shapes a parameter may have."""
    if function == "learn":
        return "be a number" if K is None else f"be a number or have shape ({K},)"
    if K is None:
        return f"be a number or have shape ({T},)"
    if shape == (T,):
        return f"have shape ({T}, 1) if it is a value a step or (1, {K}) if a value a learner, where T = K = {K}"
    return f"be a number or have shape ({T},), ({K},) or ({T}, {K})"


def _largest(array: NDArray[Any]) -> float:
    """max |x|, or infinity or NaN if not all are finite, at memory speed."""
    if array.size < 4096:
        return float(np.abs(array).max(initial=0.0))
    from emphatic.engines import scan

    integer = np.dtype(f"i{array.itemsize}").type
    top = scan.largest(array.reshape(-1).view(integer), np.iinfo(integer).max)
    return float(integer(top).view(array.dtype.type))


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{type(value).__name__} {text[:50]}…"
