"""Kernels' source made for one rule: a module from text, kept in a file that is named after its content.

The file is what compilers need that look for a function's source, and where they keep what they made of it. An edited
rule or engine never meets an old kernel. Where no folder can be written the text is kept in memory.
"""

from __future__ import annotations

import hashlib
import linecache
import os
import re
import sys
import tempfile
import types
from pathlib import Path
from typing import Any

from emphatic.common.files import atomic_file

__all__ = ["PREFIX", "cache_folder", "module"]

#: How the name of every generated module begins.
PREFIX = "emphatic_"


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


def module(name: str, source: str, version: str, **given: Any) -> types.ModuleType:
    """The module that ``source`` makes, from a file in the cache folder if that can be had.

    ``version`` is the compiler's; ``given`` are names that the source finds in its module.
    """
    digest = hashlib.sha256(f"{version}\n{source}".encode()).hexdigest()[:16]
    stem = f"{PREFIX}{re.sub(r'[^A-Za-z0-9_]', '_', name)[:60]}_{digest}"
    folder = cache_folder()
    path = folder / f"{stem}.py" if folder else None
    if path is not None and not _written(path, source):
        path = None
    made = types.ModuleType(stem)
    made.__file__ = str(path) if path else f"<{stem}>"
    made.__dict__.update(given)
    linecache.cache[made.__file__] = (len(source), None, source.splitlines(keepends=True), made.__file__)
    sys.modules[stem] = made  # a cached kernel's module is looked up by name
    exec(compile(source, made.__file__, "exec"), made.__dict__)
    return made


def _written(path: Path, source: str) -> bool:
    """Put the source there unless it is there already; whole or not at all, whoever else does the same."""
    try:
        if not path.exists() or path.read_bytes() != source.encode():
            with atomic_file(path) as file:
                file.write(source.encode())
        return True
    except OSError:
        return False
