"""Engines: HOW vectors move.  One file an engine; each runs any rule."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from emphatic.engines.base import Engine
    from emphatic.rules import Rule

__all__ = ["available", "choose", "make"]


def available() -> tuple[str, ...]:
    """The engines that can be had here.

    >>> available()
    ('reference', 'dense', 'sparse', 'chunked')
    """
    return ("reference", "dense", "sparse", "chunked")


def choose(n: int, K: int | None, T: int, active: float | None) -> str:
    """The engine for ``engine="auto"``, from the first call's n, K, T and active features a step (None: all of them).

    One learner (K=None), and a horde that goes a step at a time, take features that are given by index as they are. For
    a horde and a log, what a step costs a learner, in units of one feature of the dense engine:

    - chunked: a third a feature and half a step of the chunk; and, shared by all learners, the products of the
      features with each other.
    - sparse: 4 an active feature, besides a fixed 150; and one for each feature whose trace is still alive, which is
      visited when some learner's traces have faded: those of the last 200 steps, as far as the call goes.

    Both take longer than the dense engine to set up a call.
    """
    if K is None or T <= 1:
        return "dense" if active is None else "sparse"
    cost, call = {"dense": float(n)}, 100_000 / T
    if T >= 16:
        cost["chunked"] = n / 3 + min(T, 127) / 2 + (10 * n + 3_000 + call) / K
    if active is not None:
        alive = min(n, active * min(T, 200))
        cost["sparse"] = 150 + 4 * active + alive + (40 * alive + call) / K
    return min(cost, key=lambda name: cost[name])


def make(name: str, rule: Rule, n: int, K: int | None, dtype: str, threads: int = 1) -> Engine:
    """An engine with all vectors and memory 0, for a horde of K learners or, K=None, for one learner."""
    if not isinstance(name, str) or name not in available():
        known = ", ".join(available())
        raise ValueError(f"The 'engine' parameter must be 'auto' or one of {known}. Got {name!r} instead.")
    if name == "reference":
        from emphatic.engines.reference import Reference

        return Reference(rule, n, K or 1, dtype)
    if name == "dense":
        from emphatic.engines.dense import Dense

        return Dense(rule, n, K or 1, dtype)
    if name == "chunked":
        from emphatic.engines.chunked import Chunked

        return Chunked(rule, n, K or 1, dtype, threads)
    if K is None:
        from emphatic.engines.sparse import Sparse

        return Sparse(rule, n, 1, dtype)
    from emphatic.engines.sparse_many import SparseMany

    return SparseMany(rule, n, K, dtype)
