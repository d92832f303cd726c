"""What parts and sources have in common: plain frozen records, checked when they are made."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

from emphatic.learning.inputs import refusal, whole


class Record:
    """Written as it is made: the first field by place, the others by name where they are not the default."""

    def __post_init__(self) -> None:
        for item in dataclasses.fields(self):  # type: ignore[arg-type]
            object.__setattr__(self, item.name, _python(getattr(self, item.name)))
        self.check()

    def check(self) -> None:
        """Refuse what cannot be."""

    def config(self) -> dict[str, Any]:
        """The record as a table of a TOML file."""
        raise NotImplementedError

    def given(self) -> dict[str, Any]:
        """The fields that are not the default."""
        items = [(item, getattr(self, item.name)) for item in dataclasses.fields(self)]  # type: ignore[arg-type]
        return {item.name: value for item, value in items if value != item.default}

    def __repr__(self) -> str:
        shown = [f"{name}={plain(v)!r}" if name != "of" else repr(plain(v)) for name, v in self.given().items()]
        return f"{type(self).__name__}({', '.join(shown)})"


def _python(value: Any) -> Any:
    """Without NumPy's types, and with tuples for lists, so that records can be compared and kept in JSON."""
    value = value.tolist() if hasattr(value, "tolist") else value
    return tuple(_python(one) for one in value) if isinstance(value, list | tuple) else value


def listed(of: Any) -> tuple[Any, ...]:
    return of if isinstance(of, tuple) else (of,)


def plain(value: Any, deep: bool = False) -> Any:
    """Without tuples, and with ``deep`` without records: as JSON and TOML have it."""
    if isinstance(value, tuple):
        return [plain(one, deep) for one in value]
    return value.config() if deep and isinstance(value, Record) else value


def check_names(of: Any, what: str) -> None:
    names = listed(of)
    if not names or not all(isinstance(one, str) for one in names):
        raise refusal("of", what, "be a signal's name, several names or '*'", repr(of))


def at_least_two(name: str, value: Any, what: str) -> None:
    if whole(name, value, what) < 2:
        raise refusal(name, what, "be 2 or more", repr(value))


def is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
