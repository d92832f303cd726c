"""Kernel source generated for one rule: a module from text, stored in a file named after its content.

Compilers need the file to find a function's source, and store their output next to it. An edited rule or engine never
uses an old kernel. Where no folder can be written the text is kept in memory.

Two processes that need a kernel at the same time do not both compile it (``compiled``). So a second process can compile
ahead what will be needed last (``compile_in_background``).
"""

from __future__ import annotations

import functools
import hashlib
import importlib
import linecache
import os
import re
import subprocess
import sys
import tempfile
import types
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from importlib.machinery import SourceFileLoader
from pathlib import Path
from typing import Any

from emphatic.common.files import atomic_file
from emphatic.common.locks import count_cores

__all__ = ["PREFIX", "cache_folder", "compile_in_background", "module"]

#: How the name of every generated module begins.
PREFIX = "emphatic_"
#: When every generated file was written, as it says (1980). The name tells the content, and a compiler remembers the
#: time: it must be the same whichever of several processes wrote the file, and survive a copy that keeps whole seconds.
_WRITTEN = 315_532_800


def cache_folder() -> Path | None:
    """The folder for generated kernels: $EMPHATIC_CACHE_DIR or the user's cache folder; None if it cannot be used.

    Code is loaded from there, so it must belong to this user or to root, and nobody else may write to it: otherwise
    there is one warning, and kernels are compiled in memory. A folder that was filled and is now read-only, as in an
    image, is read from.
    """
    try:
        folder = _find_folder()
        machine_code = folder / "__pycache__"  # where numba puts it
        try:
            folder.mkdir(mode=0o755, parents=True, exist_ok=True)
            machine_code.mkdir(mode=0o755, exist_ok=True)
            with tempfile.TemporaryFile(dir=folder):
                pass
        except OSError:
            if not machine_code.is_dir():
                return None
        for path in (folder, folder / "__pycache__"):
            if why := _find_fault(path):
                _warn(f"{path} {why}, and code is loaded from there: kernels are compiled in memory instead. {_REMEDY}")
                return None
    except (OSError, RuntimeError):  # (RuntimeError: this user has no home)
        return None
    return folder


_REMEDY = "Set EMPHATIC_CACHE_DIR to a folder of your own to which others cannot write (chmod go-w)."


def _find_folder() -> Path:
    if chosen := os.environ.get("EMPHATIC_CACHE_DIR"):
        return Path(chosen).expanduser()
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local") / "emphatic"
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "emphatic"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "emphatic"


def _find_fault(folder: Path) -> str | None:
    """Why code from this folder cannot be trusted; empty if it can."""
    if sys.platform == "win32":  # where permissions are not of this kind
        return None
    status = folder.stat()
    if status.st_uid not in (os.geteuid(), 0):
        return f"belongs to user {status.st_uid} and not to you ({os.geteuid()})"
    return "can be written to by others" if status.st_mode & 0o022 else None


@functools.cache
def _warn(message: str) -> None:
    """Once."""
    warnings.warn(message, RuntimeWarning, stacklevel=2)


def module(name: str, source: str, version: str, **given: object) -> types.ModuleType:
    """The module that ``source`` makes, from a file in the cache folder if that can be had.

    ``version`` is the compiler's; ``given`` are names that the source finds in its module.
    """
    digest = hashlib.sha256(f"{version}\n{source}".encode()).hexdigest()[:16]
    stem = f"{PREFIX}{re.sub(r'[^A-Za-z0-9_]', '_', name)[:60]}_{digest}"
    folder = cache_folder()
    path = folder / f"{stem}.py" if folder and _written(folder / f"{stem}.py", source) else None
    module = types.ModuleType(stem)
    module.__file__ = str(path) if path else f"<{stem}>"
    module.__dict__.update(given)
    linecache.cache[module.__file__] = (len(source), None, source.splitlines(keepends=True), module.__file__)
    sys.modules[stem] = module  # a cached kernel's module is looked up by name
    exec(_bytecode(stem, path, source), module.__dict__)
    return module


def _bytecode(stem: str, path: Path | None, source: str) -> types.CodeType:
    """The code of a module: as Python has kept it beside the file, if it has, which takes a tenth of the time."""
    if path is not None:
        with suppress(Exception):  # a damaged file there: marshal lets anything through
            if (code := SourceFileLoader(stem, str(path)).get_code(stem)) is not None:
                return code
    return compile(source, f"<{stem}>" if path is None else str(path), "exec")


def _written(path: Path, source: str) -> bool:
    """Write the source unless it exists already; atomically, even if another process does the same."""
    try:
        if not path.exists() or path.read_bytes() != source.encode():
            with atomic_file(path) as file:
                file.write(source.encode())
            os.utime(path, (_WRITTEN, _WRITTEN))
        return True
    except OSError:
        return False


@contextmanager
def compile_in_background(names: Sequence[str]) -> Iterator[None]:
    """While this process compiles what it needs first, a second process on a second core compiles what it needs last.

    Args:
        names: The kernels that are needed last, those that take longest first: "nexting.answers.kernels.advance".
    """
    process = None
    several = count_cores() > 1 and sys.executable
    missing = [name for name in names if several and not getattr(_find_kernel(name), "is_compiled", True)]
    if missing:
        command = f"from emphatic.engines import generated; generated.compile_missing({missing!r})"
        nowhere = subprocess.DEVNULL
        process = subprocess.Popen([sys.executable, "-c", command], stdin=nowhere, stdout=nowhere, stderr=nowhere)
    try:
        yield
    finally:
        if process is not None:
            process.kill()
            process.wait()


def compile_missing(names: Sequence[str]) -> None:
    """Compile kernels by name, except those that another process is compiling.

    Args:
        names: As of ``compile_in_background``.
    """
    for name in names:
        _find_kernel(name).compile(wait=False)


def _find_kernel(name: str) -> Any:
    package, _, function = name.rpartition(".")
    return getattr(importlib.import_module(f"emphatic.{package}"), function)
