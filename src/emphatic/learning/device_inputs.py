"""Input validation for an engine on a device: arrays of other libraries become torch tensors and stay where they are.

Single-precision numbers stay single precision: half the bytes take half the time to copy to a device.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch

from emphatic.engines.cuda.engine import tensor_of
from emphatic.learning import inputs
from emphatic.rules import AnyRule

__all__ = ["features", "import_array", "parameters", "series"]


def import_array(name: str, value: object, function: str) -> Any:
    """Anything with ``__dlpack__`` as a torch tensor in the same memory; NumPy arrays and anything else unchanged."""
    if isinstance(value, torch.Tensor):
        tensor = value.detach()
    elif isinstance(value, np.ndarray) or not hasattr(value, "__dlpack__"):
        return value
    else:
        try:
            tensor = torch.from_dlpack(value)
        except Exception as error:  # of whatever kind either library has for it
            raise inputs.refusal(name, function, "be an array that torch can read", str(error)) from None
    if tensor.is_complex():
        raise inputs.refusal(name, function, "be real numbers", str(tensor.dtype))
    return tensor


def features(name: str, value: Any, function: str, n: int, dtype: str, *, look_over: bool = True) -> tuple[Any, float]:
    """``inputs.features``; a tensor gives a tensor of the dtype on the same device."""
    value = import_array(name, value, function)
    if not isinstance(value, torch.Tensor):
        return inputs.features(name, value, function, n, dtype, look_over=look_over)
    inputs.check_shape(name, value.shape, function, n)
    rows = value.reshape(-1, n)
    cast = rows.to(dtype=getattr(torch, dtype)).contiguous()
    least, most = (float(end) for end in cast.aminmax()) if cast.numel() else (0.0, 0.0)
    if not (math.isfinite(least) and math.isfinite(most)):
        raise inputs.not_finite(name, function, dtype, rows, cast.cpu().numpy(), value.ndim)
    return cast, max(-least, most)


def parameters(
    rule: AnyRule, function: str, T: int, K: int | None, values: Sequence[Any], extra: Mapping[str, Any]
) -> tuple[Any, ...]:
    """Every parameter of the rule as a (T, K) array or tensor that takes no memory where it is constant."""
    read = partial(series, function, T, K, rule)
    return tuple(inputs.resolve(rule, function, values, extra, read, _product))


def series(function: str, T: int, K: int | None, rule: AnyRule, name: str, value: Any) -> Any:
    """A number a step and learner: ``inputs.series``, where tensors and single precision stay what they are."""
    value = import_array(name, value, function)
    single = isinstance(value, np.ndarray) and value.dtype == np.float32
    if not isinstance(value, torch.Tensor) and not single:
        return inputs.series(function, T, K, rule, name, value)
    tensor = tensor_of(inputs.real_array(name, value, function)) if single else value
    view = tensor.reshape(inputs.shape_of(name, tuple(value.shape), function, T, K))
    view = view if view.is_floating_point() else view.double()
    if view.numel():
        low, high = inputs.bounds(rule, name)
        least, most = (float(end) for end in view.aminmax())
        if not (low <= least and most <= high and math.isfinite(least) and math.isfinite(most)):
            raise inputs.out_of_range(name, function, rule, view.cpu().numpy().astype(np.float64))
    return view.expand(T, K or 1)


def least_rows(p: Any) -> Any:
    """What ``warn_if_never_terminating`` needs to check: each learner's least value, as if it were that of every step.

    Where none is 1, one learner represents all, so that little is copied.
    """
    if not isinstance(p, torch.Tensor) or not p.numel():
        return p
    constant = p.stride(0) == 0
    least = (p[:1] if constant else p).amin(0)
    least = least if bool((least >= 1.0).any()) else least[:1]
    steps = len(p) if constant or len(p) >= inputs.EPISODE else 1
    return np.broadcast_to(least.cpu().numpy(), (steps, len(least)))


def sum_squares(made: Any, aim: Any) -> Any:
    """Each learner's sum of squared errors."""
    goal = np.asarray(aim.cpu() if isinstance(aim, torch.Tensor) else aim, np.float64)
    return np.square(made - goal).sum(axis=0)


def _product(a: Any, b: Any) -> Any:
    """a·b without expanding an axis along which both are constant."""
    if not (isinstance(a, torch.Tensor) or isinstance(b, torch.Tensor)):
        return inputs.product(a, b)
    device = (a if isinstance(a, torch.Tensor) else b).device
    factor, factor_of_b = (_reduced(p, device) for p in (a, b))
    return (factor * factor_of_b).expand(a.shape)


def _reduced(p: Any, device: torch.device) -> torch.Tensor:
    """Without repeated entries, in double precision."""
    tensor = p if isinstance(p, torch.Tensor) else torch.from_numpy(np.array(p[: 1 if p.strides[0] == 0 else None]))
    tensor = tensor[:1] if tensor.stride(0) == 0 else tensor
    return (tensor[:, :1] if tensor.stride(1) == 0 else tensor).to(device).double()
