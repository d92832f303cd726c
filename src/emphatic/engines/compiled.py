"""Compiling with numba: kernels made for one rule, kept on disk so that a second start is quick.

A kernel's source is text made for one rule and one dtype, with the rule's own source inside. It is written to a
file named after the hash of that text, so an edited rule or engine never meets an old kernel, and numba keeps its
machine code beside it. Where no folder can be written the kernels are compiled in memory: slower to start,
otherwise the same.
"""

from __future__ import annotations

import functools
import hashlib
import linecache
import os
import secrets
import sys
import tempfile
import types
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numba.core.config

__all__ = ["FASTMATH", "cache_folder", "jit", "kernel", "module"]

#: What LLVM may assume: sums in any order, but NaN and infinity stay what they are.
FASTMATH = {"reassoc", "contract", "nsz", "arcp", "afn"}

#: How every function is compiled.
OPTIONS: dict[str, Any] = {"fastmath": FASTMATH, "error_model": "numpy", "nogil": True}


def cache_folder() -> Path | None:
    """Where generated kernels go: $EMPHATIC_CACHE_DIR or the user's cache folder; None if it cannot be written."""
    if given := os.environ.get("EMPHATIC_CACHE_DIR"):
        folder = Path(given)
    elif sys.platform == "win32":
        folder = Path(os.environ.get("LOCALAPPDATA", Path.home() / "AppData" / "Local")) / "emphatic"
    elif sys.platform == "darwin":
        folder = Path.home() / "Library" / "Caches" / "emphatic"
    else:
        folder = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "emphatic"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            return folder
    except OSError:
        return None


@functools.cache
def module(name: str, source: str) -> types.ModuleType:
    """The module that ``source`` makes, from a file in the cache folder if that can be had."""
    digest = hashlib.sha256(f"{numba.__version__}\n{source}".encode()).hexdigest()[:16]
    stem = f"emphatic_{name}_{digest}"
    folder = cache_folder()
    path = folder / f"{stem}.py" if folder else None
    if path is not None and not _written(path, source):
        path = None
    made = types.ModuleType(stem)
    made.__file__ = str(path) if path else f"<{stem}>"
    linecache.cache[made.__file__] = (len(source), None, source.splitlines(keepends=True), made.__file__)
    sys.modules[stem] = made  # numba looks a cached kernel's module up by name
    exec(compile(source, made.__file__, "exec"), made.__dict__)
    return made


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


def _written(path: Path, source: str) -> bool:
    """Put the source there unless it is there already; whole or not at all, whoever else does the same."""
    partial = path.with_name(f"{path.name}.{secrets.token_hex(4)}.tmp")
    try:
        if path.exists() and path.read_bytes() == source.encode():
            return True
        partial.write_bytes(source.encode())
        os.replace(partial, path)
        return True
    except OSError:
        with suppress(OSError):
            partial.unlink()
        return False
