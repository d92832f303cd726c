"""The versions of what took part in a result."""

from __future__ import annotations

import platform
from importlib.metadata import version

__all__ = ["versions"]


def versions(*packages: str) -> dict[str, str]:
    """Of Python, of this library, of NumPy and numba, and of these packages besides."""
    return {"python": platform.python_version()} | {
        name: version(name) for name in ("emphatic", "numpy", "numba", *packages)
    }
