"""Validation of an ``MDP``: read-only float64 arrays of full shape, or a ``ValueError`` that names the place."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from emphatic.learning.inputs import real_array, refusal

__all__ = [
    "FloatArray",
    "features",
    "kept",
    "per_state",
    "policy",
    "rewards",
    "seeds",
    "start_states",
    "state_numbers",
    "transitions",
    "weights",
]

FloatArray = NDArray[np.float64]

#: How far from 1 the sum of a row of probabilities may be.
TOLERANCE = 1e-8


def transitions(P: Any) -> FloatArray:
    """(S, A, S+1): the last column is the end of an episode."""
    found = _numbers("P", P)
    if found.ndim != 3 or 0 in found.shape or found.shape[2] - found.shape[0] not in (0, 1):
        raise refusal("P", "MDP", "have shape (S, A, S) or (S, A, S+1)", f"shape {found.shape}")
    found = _distributions("P", found, ("state", "action", "next state"))
    S, A, columns = found.shape
    return kept(found if columns == S + 1 else np.concatenate([found, np.zeros((S, A, 1))], axis=2))


def rewards(R: Any, shape: tuple[int, ...], given: tuple[int, ...]) -> FloatArray:
    """(S, A, S+1) from a number, (S,), (S, A) or the shape that P was given in; it takes no more memory than that."""
    found = _numbers("R", R)
    if found.shape not in ((), given[:1], given[:2], given, shape):
        S, A, columns = given
        wanted = f"be a number or have shape ({S},), ({S}, {A}) or ({S}, {A}, {columns})"
        raise refusal("R", "MDP", wanted, f"shape {found.shape}")
    _within("R", found, -math.inf, math.inf, ("state", "action", "next state"))
    if found.ndim == 3 and found.shape != shape:
        found = np.concatenate([found, np.zeros((*given[:2], 1))], axis=2)
    return kept(np.broadcast_to(found.reshape(found.shape + (1,) * (3 - found.ndim)), shape))


def policy(name: str, value: Any, S: int, A: int, optional: NDArray[np.bool_] | None = None) -> FloatArray:
    """(S, A) from (A,), the same in every state, or (S, A).

    In states that are ``optional`` a row of zeros or NaN leaves the policy undefined, and is kept as zeros.
    """
    found = _numbers(name, value)
    if found.shape not in ((A,), (S, A)):
        raise refusal(name, "MDP", f"have shape ({A},) or ({S}, {A})", f"shape {found.shape}")
    if optional is None or found.ndim == 1:
        return kept(np.broadcast_to(_distributions(name, found, ("state", "action")[-found.ndim :]), (S, A)))
    undefined = optional & ((found == 0.0) | np.isnan(found)).all(axis=1)
    found[undefined] = 1.0 / A
    found = _distributions(name, found, ("state", "action"))
    found[undefined] = 0.0
    return kept(found)


def features(Phi: Any, S: int) -> FloatArray:
    """(S, n), one row per state; the identity if not given."""
    if Phi is None:
        return kept(np.eye(S))
    found = _numbers("Phi", Phi)
    if found.ndim != 2 or len(found) != S or found.shape[1] == 0:
        raise refusal("Phi", "MDP", f"have shape ({S}, n)", f"shape {found.shape}")
    _within("Phi", found, -math.inf, math.inf, ("state", "feature"))
    return kept(found)


def per_state(name: str, value: Any, S: int, least: float, most: float, function: str = "MDP") -> FloatArray:
    """(S,) from a number or (S,), between ``least`` and ``most``."""
    found = _numbers(name, value, function)
    if found.shape not in ((), (S,)):
        raise refusal(name, function, f"be a number or have shape ({S},)", f"shape {found.shape}")
    _within(name, found, least, most, ("state",)[: found.ndim], function)
    return kept(np.broadcast_to(found, (S,)))


def state_numbers(cells: Any, S: int) -> NDArray[np.int64]:
    """(S,) whole numbers, each once; 0 … S−1 where none are given."""
    found = np.arange(S) if cells is None else real_array("cells", cells, "MDP")
    if found.shape != (S,) or found.dtype.kind not in "iu" or len(np.unique(found)) < S:
        raise refusal("cells", "MDP", f"be {S} different whole numbers", repr(cells))
    found = found.astype(np.int64)
    found.flags.writeable = False
    return found


def start_states(start: Any, S: int) -> FloatArray:
    """(S,) probabilities; uniform where none are given."""
    if start is None:
        return kept(np.full(S, 1.0 / S))
    found = _numbers("start", start)
    if found.shape != (S,):
        raise refusal("start", "MDP", f"have shape ({S},)", f"shape {found.shape}")
    return kept(_distributions("start", found, ("state",)))


def weights(theta: Any, n: int, function: str) -> FloatArray:
    """θ (…, n). It need not be finite: the error of diverged weights is a valid result."""
    found = _numbers("theta", theta, function)
    if found.ndim == 0 or found.shape[-1] != n:
        raise refusal("theta", function, f"have shape (…, {n})", f"shape {found.shape}")
    return found


def seeds(seed: Any, function: str) -> tuple[int, ...]:
    """The whole numbers of a seed, one or several."""
    parts = tuple(seed) if isinstance(seed, Sequence | np.ndarray) and not isinstance(seed, str) else (seed,)
    if not parts or not all(isinstance(part, int | np.integer) and part >= 0 for part in parts):
        raise refusal("seed", function, "be a whole number of 0 or more, or several", repr(seed))
    return tuple(int(part) for part in parts)


def _numbers(name: str, value: Any, function: str = "MDP") -> FloatArray:
    return real_array(name, value, function).astype(np.float64)


def kept(array: FloatArray) -> FloatArray:
    """The same array, made read-only."""
    array.flags.writeable = False
    return array


def _within(
    name: str, found: FloatArray, least: float, most: float, axes: tuple[str, ...], function: str = "MDP"
) -> None:
    bad = ~((found >= least) & (found <= most) & np.isfinite(found))
    if bad.any():
        at = tuple(np.argwhere(bad)[0])
        bounds = f"{least:g} or more" if math.isinf(most) else f"between {least:g} and {most:g}"
        wanted = "be finite" if math.isinf(least) else f"be {bounds}, and finite"
        raise refusal(name, function, wanted, f"{found[at]}{_place(axes, at)}")


def _distributions(name: str, found: FloatArray, axes: tuple[str, ...]) -> FloatArray:
    """Probabilities that sum to 1 along the last axis, to the last digit."""
    _within(name, found, 0.0, 1.0 + TOLERANCE, axes)
    total = np.asarray(found.sum(axis=-1))
    bad = np.abs(total - 1.0) > TOLERANCE
    if bad.any():
        at = tuple(np.argwhere(bad)[0])
        each = "sum to 1" if found.ndim == 1 else f"sum to 1 over {axes[-1]}s"
        raise refusal(name, "MDP", each, f"{total[at]}{_place(axes, at)}")
    return np.asarray(found / total[..., None])


def _place(axes: tuple[str, ...], at: tuple[Any, ...]) -> str:
    named = ", ".join(f"{axis} {i}" for axis, i in zip(axes, at, strict=False))
    return f" for {named}" if named else ""
