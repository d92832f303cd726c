"""The decorators of ``compiled`` for kernels that allocate no memory: references to arrays are not counted.

A row of an array is a reference to it, and counting one takes an atomic instruction: in a step of an agent these took
three times as long as all else. The caller holds the arrays during a call, so that nothing needs to be counted. A
kernel that allocates memory cannot be compiled so, and says so when it is compiled.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from emphatic.engines.compiled import INNER, LEAN, OPTIONS, STRICT, njit

__all__ = ["exact", "inner", "small", "strict"]

F = TypeVar("F", bound=Callable[..., Any])


def small(function: F) -> F:
    """A function that becomes a part of whatever calls it."""
    return njit(function, inline="always", **OPTIONS, **INNER, **LEAN)


def strict(function: F) -> F:
    """A function that keeps its own order of operations, in whatever calls it."""
    return njit(function, forceinline=True, **STRICT, **INNER, **LEAN)


def inner(function: F) -> F:
    """A function that kernels call."""
    return njit(function, forceinline=True, **OPTIONS, **INNER, **LEAN)


def exact(function: F) -> F:
    """A function that kernels call, in which every operation is rounded as it stands."""
    return njit(function, forceinline=True, **OPTIONS | {"fastmath": False}, **INNER, **LEAN)
