"""Compiling with numba: kernels made for one rule, kept on disk so that a second start is quick.

A kernel's source is text made for one rule and one dtype, with the rule's own source inside. It is written to a
file named after the hash of that text, so an edited rule or engine never meets an old kernel, and numba keeps its
machine code beside it. Where no folder can be written the kernels are compiled in memory: slower to start,
otherwise the same.
"""

from __future__ import annotations

import functools
import os
import types
from collections.abc import Callable
from typing import Any

import numba.core.config

from emphatic.engines import generated
from emphatic.engines.generated import cache_folder

__all__ = ["FASTMATH", "cache_folder", "jit", "kernel", "module"]

#: What LLVM may assume: sums in any order, but NaN and infinity stay what they are.
FASTMATH = {"reassoc", "contract", "nsz", "arcp", "afn"}

#: How every function is compiled.
OPTIONS: dict[str, Any] = {"fastmath": FASTMATH, "error_model": "numpy", "nogil": True}


@functools.cache
def module(name: str, source: str) -> types.ModuleType:
    """The module that ``source`` makes, in a file beside which numba keeps its machine code."""
    return generated.module(name, source, numba.__version__)


def kernel(module: types.ModuleType, name: str, *signature: Any) -> Any:
    """One function of a generated module, compiled for exactly these argument types and never again for others."""
    function = getattr(module, name)
    on_disk = bool(module.__file__) and os.path.exists(str(module.__file__))
    made = _compiled(function, on_disk, signature)
    if not numba.core.config.DISABLE_JIT:  # type: ignore[attr-defined]
        made.disable_compile()
    return made


@functools.cache
def _pools() -> Any:
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()


def blas_threads(count: int) -> Any:
    """A context in which NumPy's matrix products use so many threads."""
    return _pools().limit(limits=count, user_api="blas")


def jit(function: Callable[..., Any]) -> Any:
    """``numba.njit`` with this library's options and a disk cache if one can be had."""
    return _compiled(function, True, ())


def jit_for(*signatures: tuple[Any, ...], fastmath: bool = True) -> Callable[[Callable[..., Any]], Any]:
    """The same for exactly these argument types, compiled or read from the disk at once.

    Without ``fastmath`` every operation is rounded as it stands, so that bits do not depend on how a loop is compiled.
    """

    def made(function: Callable[..., Any]) -> Any:
        out = _compiled(function, True, list(signatures), OPTIONS if fastmath else OPTIONS | {"fastmath": False})
        if not numba.core.config.DISABLE_JIT:  # type: ignore[attr-defined]
            out.disable_compile()
        return out

    return made


def _compiled(function: Callable[..., Any], cache: bool, signature: Any, options: dict[str, Any] = OPTIONS) -> Any:
    njit: Any = numba.njit
    given = (signature,) if signature else ()
    if cache:
        try:
            return njit(*given, cache=True, **options)(function)
        except Exception:  # no folder to write to, a full disk, or a damaged file there: numba lets anything through
            pass
    return njit(*given, **options)(function)
