"""Engines: HOW vectors move.  One file per engine; each runs any rule."""

from __future__ import annotations

import importlib.util
import os
from typing import TYPE_CHECKING

from emphatic.rules import ElementwiseRule

if TYPE_CHECKING:
    from collections.abc import Sequence

    from emphatic.engines.base import Engine
    from emphatic.rules import AnyRule

__all__ = ["available", "choose", "make"]

#: Up to this many features the dense engine runs learners side by side (``lanes``).
_FEW = 16


def available() -> tuple[str, ...]:
    """The engines that can be used on this machine.

    >>> available()[:4]
    ('reference', 'dense', 'sparse', 'chunked')

    "cuda" comes last if there is a GPU, torch and triton, or if Triton interprets (TRITON_INTERPRET=1).
    """
    return ("reference", "dense", "sparse", "chunked") + ("cuda",) * (_has_cuda() and _has_gpu())


def known(name: object) -> bool:
    """Whether this is an engine's name, available on this machine or not."""
    return isinstance(name, str) and name in ("reference", "dense", "sparse", "chunked", "cuda", "cuda-tf32")


def missing(name: str) -> str:
    """What this machine lacks for an engine; empty if it is available."""
    if not name.startswith("cuda"):
        return ""
    return "" if _has_cuda() and _has_gpu() else "a GPU" if _has_cuda() else "pip install 'emphatic[cuda]'"


def _has_cuda() -> bool:
    return all(importlib.util.find_spec(name) is not None for name in ("torch", "triton"))


def _has_gpu() -> bool:
    """Whether there is a GPU driver, found without importing torch."""
    devices = ("/dev/nvidiactl", "/dev/dxg")
    return os.environ.get("TRITON_INTERPRET") == "1" or any(os.path.exists(path) for path in devices)


def choose(n: int, K: int | None, T: int, active: float | None, rule: AnyRule | None = None) -> str:
    """The engine for ``engine="auto"``, from the first call's n, K, T and active features per step (None: all of them).

    Args:
        n: the number of features.
        K: the number of learners; None for a single learner.
        T: the number of steps.
        active: active features per step, if they are given by index; None for arrays.
        rule: the rule, if it may be an elementwise one: that uses dense, or sparse if it is lazy and features are given
            by index.

    A single learner (K=None), and a horde that runs one step at a time, use features given by index as they are. For a
    horde and a log, these are the costs per step and learner, in units of 0.65 ns, the time of one feature in the dense
    engine, fitted to the times in benchmarks/results/hordes.md ("auto" and "growth", true_online_etd):

    - dense: 1 per feature, and 30 if there are too many features for learners to run side by side.
    - chunked, with L steps per chunk: the products with the chunk, a quarter per feature, and 4/L for reading and
      writing the weights; L/8 and 20 for the steps within; and, shared by all learners, the products of the features
      with each other, and the setup of a step and of a call.
    - sparse: 3 per active feature, and a fixed 100 (30 as measured: the rest leaves small problems to the dense
      engine, which compiles sooner); and 0.8 for each feature with a live trace, which is visited when some learner's
      traces have decayed: those of the last 200 steps, as far as the call goes.

    For the other engines, features given by index are first expanded, once for all learners.
    """
    if rule is not None and not rule.is_lazy:
        return "dense"
    if K is None or T <= 1 or isinstance(rule, ElementwiseRule):
        return "dense" if active is None else "sparse"
    L = min(T, 127)
    cost = {"dense": float(n if n <= _FEW else n + 30)}
    if T >= 16:
        cost["chunked"] = 20 + L / 8 + n / 4 + 4 * n / L + (1_400 + n * L / 15 + 45_000 / T) / K
    if active is not None:
        expansion = (2 * n + 70_000 / T) / K
        cost = {name: cost_of_steps + expansion for name, cost_of_steps in cost.items()}
        alive = min(n, active * min(T, 200))
        cost["sparse"] = 100 + 3 * active + 0.8 * alive + (450 + 8 * alive) / K
    return min(cost, key=lambda name: cost[name])


def make(
    name: str, rule: AnyRule, n: int, K: int | None, dtype: str, threads: int = 1, devices: Sequence[int] | None = None
) -> Engine:
    """An engine with all vectors and memory 0, for a horde of K learners or, K=None, for one learner.

    Args:
        name: one of ``available()``, or "cuda-tf32": "cuda" with products of float32 in TF32, which is faster, with
            errors of 1e-3 in place of 1e-7.
        rule: what is learned.
        n: the number of features.
        K: the number of learners; None for one.
        dtype: "float64" or "float32".
        threads: how many threads the chunked engine uses.
        devices: the GPUs, by number, among which the cuda engine divides the learners; the current one by default.

    Raises:
        ValueError: if there is no such engine, or this machine or this rule cannot use it.
    """
    if not known(name):
        names = ", ".join(available())
        raise ValueError(f"The 'engine' parameter must be 'auto' or one of {names}. Got {name!r} instead.")
    if isinstance(rule, ElementwiseRule):
        _check_elementwise(name, rule)
    elif lacking := missing(name):
        which = "for this machine" if _has_cuda() else "that is installed"
        raise ValueError(f"The 'engine' parameter must be one {which}. Got {name!r} instead, which needs {lacking}.")
    kind = "elementwise " * isinstance(rule, ElementwiseRule) + name
    home, cls = _CLASSES["many " + kind if kind == "sparse" and K is not None else kind]
    options = {"threads": threads} if name == "chunked" else {"devices": devices} if name.startswith("cuda") else {}
    engine: Engine = getattr(importlib.import_module(f"emphatic.engines.{home}"), cls)(
        rule, n, K or 1, dtype, **options
    )
    return engine


#: The module and the class of each engine, which is imported when it is first used.
_CLASSES = {
    "reference": ("reference", "Reference"),
    "dense": ("dense", "Dense"),
    "sparse": ("sparse", "Sparse"),
    "many sparse": ("sparse.sparse_many", "SparseMany"),
    "chunked": ("chunked", "Chunked"),
    "cuda": ("cuda.engine", "Cuda"),
    "cuda-tf32": ("cuda.engine", "CudaTF32"),
    "elementwise reference": ("reference", "ReferenceElementwise"),
    "elementwise dense": ("dense", "DenseElementwise"),
    "elementwise sparse": ("sparse.elementwise_sparse", "SparseElementwise"),
}


def _check_elementwise(name: str, rule: ElementwiseRule) -> None:
    if name == "sparse" and not rule.is_lazy:
        raise ValueError(
            f"The 'engine' parameter must be 'auto', 'reference' or 'dense' for rule {rule.name!r}. Got 'sparse' "
            f"instead, which visits only active components: {rule.not_lazy_because}."
        )
    if name not in ("reference", "dense", "sparse"):
        raise ValueError(
            f"The 'engine' parameter must be 'auto', 'reference', 'dense' or 'sparse' for rule {rule.name!r}, which is "
            f"elementwise. Got {name!r} instead."
        )
