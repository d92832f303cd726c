"""Utilities for every package: atomic files, locks, messages for unknown names; and ``versions``."""

from __future__ import annotations

from functools import cache

__all__ = ["versions"]


@cache
def versions(*packages: str) -> dict[str, str]:
    """The versions of Python, this library, NumPy, numba and the given packages.

    >>> sorted(versions())
    ['emphatic', 'numba', 'numpy', 'python']
    """
    import platform  # late: every import of the library runs this module
    from importlib.metadata import version

    names = ("emphatic", "numpy", "numba", *packages)
    return {"python": platform.python_version()} | {name: version(name) for name in names}
