"""The classes that the modules of a package define: a new kind is a new file."""

from __future__ import annotations

import importlib
import pkgutil
from types import ModuleType
from typing import TypeVar

C = TypeVar("C")

__all__ = ["classes"]


def classes(package: ModuleType, base: type[C]) -> dict[str, type[C]]:
    """The class of each module of a package by the module's name; those of a name with an underscore are not kinds."""
    found: dict[str, type[C]] = {}
    for module in pkgutil.iter_modules(package.__path__):
        if not module.name.startswith("_"):
            loaded = importlib.import_module(f"{package.__name__}.{module.name}")
            (found[module.name],) = (
                one
                for one in vars(loaded).values()
                if isinstance(one, type) and issubclass(one, base) and one.__module__ == loaded.__name__
            )
    return found
