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
    ('reference', 'dense', 'sparse')
    """
    return ("reference", "dense", "sparse")


def choose(active: bool) -> str:
    """The engine for ``engine="auto"``: sparse if the first features seen are ``Active`` or CSR, else dense."""
    return "sparse" if active else "dense"


def make(name: str, rule: Rule, n: int, K: int, dtype: str) -> Engine:
    """An engine with all vectors and memory 0."""
    if not isinstance(name, str) or name not in available():
        known = ", ".join(available())
        raise ValueError(f"The 'engine' parameter must be 'auto' or one of {known}. Got {name!r} instead.")
    if name == "reference":
        from emphatic.engines.reference import Reference

        return Reference(rule, n, K, dtype)
    if name == "dense":
        from emphatic.engines.dense import Dense

        return Dense(rule, n, K, dtype)
    from emphatic.engines.sparse import Sparse

    return Sparse(rule, n, K, dtype)
