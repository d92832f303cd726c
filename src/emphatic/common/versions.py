"""The versions of the software behind a result."""

from __future__ import annotations

import platform
from importlib.metadata import version

__all__ = ["versions"]


def versions(*packages: str) -> dict[str, str]:
    """The versions of Python, this library, NumPy, numba and the given packages."""
    return {"python": platform.python_version()} | {
        name: version(name) for name in ("emphatic", "numpy", "numba", *packages)
    }
