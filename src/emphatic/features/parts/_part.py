"""The base class of parts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from emphatic.features.plan import FeaturePlan, Unit
from emphatic.features.readings import CheckedReadings
from emphatic.features.records import Record, from_fields, plain

__all__ = ["Part"]


class Part(Record):
    """One entry of the list that ``Features`` is given.

    A kind of part is a frozen dataclass with the method ``units``. It checks its fields in ``check``. A kind that ships
    with the library is a module of this package, and has as its ``kind`` the module's name, by which TOML files and
    saved models find it.
    """

    kind: ClassVar[str]

    def units(self, plan: FeaturePlan) -> list[Unit]:
        """The blocks of features that it makes of the signals of the plan."""
        raise NotImplementedError

    def found_under(self) -> str | None:
        """The name under which the maker stores the result of ``find``; None where there is nothing to find."""
        return None

    def find(self, rows: CheckedReadings) -> list[Any]:
        """Find what is not given from the rows of the warm-up; returns anything that JSON can hold."""
        raise NotImplementedError

    def functions(self) -> tuple[str, ...]:
        """The names of the Python functions that it needs, and that a file cannot hold."""
        return ()

    def provide(self, functions: Mapping[str, Callable[..., Any]]) -> Part:
        """The same part with these functions, by name."""
        return self

    def config(self) -> dict[str, Any]:
        """The part as a table of a TOML file."""
        return {"kind": self.kind, **{name: plain(value, True) for name, value in self.given().items()}}

    @classmethod
    def from_config(cls, table: Mapping[str, Any]) -> Part:
        """The part that such a table describes, without its ``kind``."""
        return from_fields(cls, cls.kind, table)
