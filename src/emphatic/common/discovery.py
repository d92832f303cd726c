"""Discovery: the members of a registry are the files of one package and the entry points of one group.

A rule, a step-size method, a table format, … is one file of its package, and nothing else is edited to add it. Another
distribution adds one by an entry point, whose name is the name of the member:

    [project.entry-points."emphatic.stepsizes"]
    harmonic = "my_package.harmonic:Harmonic"

Its value is the object itself, or a module that has the object, as the files of the library do.
"""

from __future__ import annotations

import functools
import importlib
import pkgutil
from collections.abc import Callable, Iterator, Mapping
from importlib.util import find_spec
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

__all__ = ["Plugins", "discover"]


class Plugins(Mapping[str, Any]):
    """The files of a package and the entry points of a group by name; a module or an object is loaded when looked up.

    A broken entry point raises an error that names it, and only where that entry point is looked up.
    """

    def __init__(self, package: str, group: str) -> None:
        spec = find_spec(package)
        paths = (spec and spec.submodule_search_locations) or ()
        self.package, self.group = package, group
        names = sorted(info.name for info in pkgutil.iter_modules(paths))
        #: The modules of the package whose names do not begin with an underscore. Kernels hold nothing to be found, and
        #: import numba, which takes a quarter of a second.
        self.files = tuple(name for name in names if name[0] != "_" and not name.endswith("kernels"))
        self._loaded: dict[str, Any] = {}

    @functools.cached_property
    def entry_points(self) -> dict[str, EntryPoint]:
        """The entry points of the group by name.

        Raises:
            ValueError: if the name of an entry point is that of a file of the package, or of another entry point.
        """
        # Imported and scanned on first use: both take some 10 ms, which looking up a file's name does not need.
        from importlib.metadata import entry_points

        points: dict[str, EntryPoint] = {}
        for point in sorted(entry_points(group=self.group), key=lambda point: (point.name, point.value)):
            rival = points.setdefault(point.name, point)
            if point.name in self.files or rival.value != point.value:
                owner = f"file {self.package}.{point.name}" if point.name in self.files else _describe(rival)
                raise ValueError(f"The {_describe(point)} has the name of the {owner}.")
        return points

    def __getitem__(self, name: str) -> Any:
        if name not in self._loaded:
            if name in self.files:
                self._loaded[name] = importlib.import_module(f"{self.package}.{name}")
            else:
                self._loaded[name] = _load(self.entry_points[name])
        return self._loaded[name]

    def __contains__(self, name: object) -> bool:
        return name in self.files or name in self.entry_points

    def __iter__(self) -> Iterator[str]:
        yield from self.files
        yield from self.entry_points

    def __len__(self) -> int:
        return len(self.files) + len(self.entry_points)

    def objects(self, name: str, accepts: Callable[[Any], bool], wanted: str) -> tuple[Any, ...]:
        """The registered objects of a file or an entry point.

        Args:
            name: a file of the package or an entry point.
            accepts: whether an object is of the registry's kind.
            wanted: that kind in words, for the message; "a step-size method".

        Returns:
            The accepted ones of a module's public objects, in the order of ``__all__`` if it has that; or the object of
            the entry point. None is an error for an entry point, but not for a file of the package, which may serve
            others.

        Raises:
            TypeError: if an entry point has no such object.
        """
        value = self[name]
        accepted = tuple(member for member in _public_objects(value) if accepts(member))
        if not accepted and name not in self.files:
            raise TypeError(f"The {_describe(self.entry_points[name])} must be {wanted}. Got {value!r} instead.")
        return accepted


@functools.cache
def discover(package: str, group: str) -> Plugins:
    """The files of a package, and the entry points of a group that are installed; each call returns the same object.

    Args:
        package: the package whose files are found, such as ``"emphatic.rules"``.
        group: the group of entry points; by custom the same name.

    >>> "true_online_etd" in discover("emphatic.rules", "emphatic.rules")
    True
    """
    return Plugins(package, group)


def _load(point: EntryPoint) -> Any:
    try:
        return point.load()
    except Exception as error:  # whatever a module of somebody else raises while it is imported
        raise ImportError(f"The {_describe(point)} cannot be loaded. {type(error).__name__}: {error}") from error


def _describe(point: EntryPoint) -> str:
    owner = f" of {point.dist.name}" if point.dist else ""
    return f"entry point '{point.name} = {point.value}'{owner} (group {point.group!r})"


def _public_objects(value: object) -> list[Any]:
    if not isinstance(value, ModuleType):
        return [value]
    return [getattr(value, name) for name in getattr(value, "__all__", vars(value)) if not name.startswith("_")]
