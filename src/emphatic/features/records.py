"""The base of parts and sources: plain frozen records, checked when created, in Python and in TOML."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any, TypeVar

from emphatic.common.names import show
from emphatic.learning.inputs import refusal, whole

R = TypeVar("R", bound="Record")


class Record:
    """Its repr is the call that creates it: the first field by position, others by name if they are not the default."""

    def __post_init__(self) -> None:
        for item in dataclasses.fields(self):  # type: ignore[arg-type]
            try:
                object.__setattr__(self, item.name, _python(getattr(self, item.name)))
            except RecursionError:
                raise refusal(item.name, type(self).__name__, "not be nested so deeply", "a list in lists") from None
        self.check()

    def check(self) -> None:
        """Raise if the fields are invalid."""

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


def from_fields(record: type[R], name: str, values: Mapping[str, Any]) -> R:
    """The record with these fields; ``name`` is what a TOML file calls it."""
    fields = {item.name: item for item in dataclasses.fields(record)}  # type: ignore[arg-type]
    for key in values:
        if key not in fields:
            raise ValueError(f"The '{key}' parameter of {name} is not one of its parameters: {', '.join(fields)}.")
    for key, item in fields.items():
        if item.default is dataclasses.MISSING and key not in values:
            raise ValueError(f"The '{key}' parameter of {name} is required.")
    return record(**values)


def _python(value: Any) -> Any:
    """Without NumPy types, and with tuples for lists, so that records can be compared and stored as JSON."""
    value = value.tolist() if hasattr(value, "tolist") else value
    return tuple(_python(one) for one in value) if isinstance(value, list | tuple) else value


def as_tuple(of: Any) -> tuple[Any, ...]:
    """One or several, as several."""
    return of if isinstance(of, tuple) else (of,)


def plain(value: Any, deep: bool = False) -> Any:
    """Without tuples, and with ``deep`` without records: as JSON and TOML have it."""
    if isinstance(value, tuple):
        return [plain(one, deep) for one in value]
    return value.config() if deep and isinstance(value, Record) else value


def check_names(of: Any, owner: str) -> None:
    """Raise unless it is one or several signal names."""
    names = as_tuple(of)
    if not names or not all(isinstance(one, str) for one in names):
        raise refusal("of", owner, "be a signal's name, several names or '*'", show(of))


def check_at_least_two(name: str, value: Any, owner: str) -> None:
    """Raise unless it is a whole number of 2 or more."""
    if whole(name, value, owner) < 2:
        raise refusal(name, owner, "be 2 or more", repr(value))


def is_number(value: Any) -> bool:
    """Whether it is a finite number, and not True or False."""
    if not isinstance(value, int | float) or isinstance(value, bool):
        return False
    try:
        return math.isfinite(value)
    except OverflowError:  # an integer beyond the range of floats
        return False
