"""Engines: HOW vectors move.  One file an engine; each runs any rule."""

from __future__ import annotations

import importlib.util
import os
from typing import TYPE_CHECKING

from emphatic.rules import ElementwiseRule

if TYPE_CHECKING:
    from emphatic.engines.base import Engine
    from emphatic.rules import AnyRule

__all__ = ["available", "choose", "make"]


def available() -> tuple[str, ...]:
    """The engines that can be had here.

    >>> available()[:4]
    ('reference', 'dense', 'sparse', 'chunked')

    "cuda" comes last where there is a GPU beside torch and triton, or where Triton interprets (TRITON_INTERPRET=1).
    """
    return ("reference", "dense", "sparse", "chunked") + ("cuda",) * (_has_cuda() and _has_gpu())


def known(name: object) -> bool:
    """Whether this is an engine's name, be it for this machine or not."""
    return isinstance(name, str) and name in ("reference", "dense", "sparse", "chunked", "cuda", "cuda-tf32")


def _has_cuda() -> bool:
    return all(importlib.util.find_spec(name) is not None for name in ("torch", "triton"))


def _has_gpu() -> bool:
    """Whether a driver is there: a look that does not import torch."""
    devices = ("/dev/nvidiactl", "/dev/dxg")
    return os.environ.get("TRITON_INTERPRET") == "1" or any(os.path.exists(path) for path in devices)


def choose(n: int, K: int | None, T: int, active: float | None, *, elementwise: bool = False) -> str:
    """The engine for ``engine="auto"``, from the first call's n, K, T and active features a step (None: all of them).

    Elementwise rules are for dense and sparse alone, whichever the features are.

    One learner (K=None), and a horde that goes a step at a time, take features that are given by index as they are. For
    a horde and a log, what a step costs a learner, in units of one feature of the dense engine:

    - chunked: a third a feature and half a step of the chunk; and, shared by all learners, the products of the
      features with each other.
    - sparse: 4 an active feature, besides a fixed 150; and one for each feature whose trace is still alive, which is
      visited when some learner's traces have faded: those of the last 200 steps, as far as the call goes.

    Both take longer than the dense engine to set up a call.
    """
    if K is None or T <= 1 or elementwise:
        return "dense" if active is None else "sparse"
    cost, call = {"dense": float(n)}, 100_000 / T
    if T >= 16:
        cost["chunked"] = n / 3 + min(T, 127) / 2 + (10 * n + 3_000 + call) / K
    if active is not None:
        alive = min(n, active * min(T, 200))
        cost["sparse"] = 150 + 4 * active + alive + (40 * alive + call) / K
    return min(cost, key=lambda name: cost[name])


def make(name: str, rule: AnyRule, n: int, K: int | None, dtype: str, threads: int = 1) -> Engine:
    """An engine with all vectors and memory 0, for a horde of K learners or, K=None, for one learner.

    "cuda-tf32" is "cuda" with products of float32 in TF32: faster, and with errors of 1e-3 in place of 1e-7.
    """
    if not known(name):
        names = ", ".join(available())
        raise ValueError(f"The 'engine' parameter must be 'auto' or one of {names}. Got {name!r} instead.")
    if isinstance(rule, ElementwiseRule):
        return _elementwise(name, rule, n, K, dtype)
    if name.startswith("cuda"):
        if not _has_cuda():
            raise ValueError(
                f"The 'engine' parameter must be one that is installed. Got {name!r} instead, which needs "
                "pip install 'emphatic[cuda]'."
            )
        from emphatic.engines.cuda.engine import Cuda

        return Cuda(rule, n, K or 1, dtype, exact=name == "cuda")
    if name == "reference":
        from emphatic.engines.reference import Reference

        return Reference(rule, n, K or 1, dtype)
    if name == "dense":
        from emphatic.engines.dense.engine import Dense

        return Dense(rule, n, K or 1, dtype)
    if name == "chunked":
        from emphatic.engines.chunked.engine import Chunked

        return Chunked(rule, n, K or 1, dtype, threads)
    if K is None:
        from emphatic.engines.sparse.engine import Sparse

        return Sparse(rule, n, 1, dtype)
    from emphatic.engines.sparse.sparse_many import SparseMany

    return SparseMany(rule, n, K, dtype)


def _elementwise(name: str, rule: ElementwiseRule, n: int, K: int | None, dtype: str) -> Engine:
    """The same for a rule with a step size for each weight."""
    if name == "reference":
        from emphatic.engines.reference_elementwise import ReferenceElementwise

        return ReferenceElementwise(rule, n, K or 1, dtype)
    if name == "dense":
        from emphatic.engines.dense.elementwise import DenseElementwise

        return DenseElementwise(rule, n, K or 1, dtype)
    if name == "sparse":
        from emphatic.engines.sparse.elementwise_sparse import SparseElementwise

        return SparseElementwise(rule, n, K or 1, dtype)
    raise ValueError(
        f"The 'engine' parameter must be 'auto', 'reference', 'dense' or 'sparse' for rule {rule.name!r}, which has "
        f"a step size for each weight. Got {name!r} instead."
    )
