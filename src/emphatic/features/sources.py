"""Sources of parts other than the readings themselves, and the records that sources and parts both are.

A record is a frozen dataclass that is checked when it is created. It can be written in Python and in TOML. A source is
a record with ``of`` and ``steps`` and an operation ``op`` of the loop over rows (``kernels.sense``); TOML has it as
{ name = …, steps = … }.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, TypeGuard, TypeVar

import numpy as np

from emphatic.common.names import show
from emphatic.features.plan import CHANGE, TRACE, FeaturePlan, SensedSource
from emphatic.learning.inputs import refusal, whole

__all__ = ["KINDS", "Change", "Names", "Record", "Smoothed", "Trace", "from_config"]

#: A signal's name, several, or "*".
Names = str | Sequence[str]

R = TypeVar("R", bound="Record")


class Record:
    """Its repr is the call that creates it: the first field by position, others by name if they are not the default."""

    def __post_init__(self) -> None:
        for item in dataclasses.fields(self):  # type: ignore[arg-type]
            try:
                object.__setattr__(self, item.name, _without_numpy(getattr(self, item.name)))
            except RecursionError:
                raise refusal(item.name, type(self).__name__, "not be nested as deeply", "a list in lists") from None
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


def _without_numpy(value: object) -> object:
    """Without NumPy types, and with tuples for lists, so that records can be compared and stored as JSON."""
    value = value.tolist() if hasattr(value, "tolist") else value
    return tuple(_without_numpy(item) for item in value) if isinstance(value, list | tuple) else value


def as_tuple(of: object) -> tuple[Any, ...]:
    """One or several, as several."""
    return of if isinstance(of, tuple) else (of,)


def plain(value: object, deep: bool = False) -> Any:
    """Without tuples, and with ``deep`` without records: as JSON and TOML have it."""
    if isinstance(value, tuple):
        return [plain(item, deep) for item in value]
    return value.config() if deep and isinstance(value, Record) else value


def check_names(of: object, owner: str) -> None:
    """Raise unless it is one or several signal names."""
    names = as_tuple(of)
    if not names or not all(isinstance(name, str) for name in names):
        raise refusal("of", owner, "be a signal's name, several names or '*'", show(of))


def check_at_least_two(name: str, value: object, owner: str) -> None:
    """Raise unless it is a whole number of 2 or more."""
    if whole(name, value, owner) < 2:
        raise refusal(name, owner, "be 2 or more", repr(value))


def is_number(value: object) -> TypeGuard[float]:
    """Whether it is a finite number, and not True or False."""
    if not isinstance(value, int | float | np.floating | np.integer) or isinstance(value, bool):
        return False
    try:
        return math.isfinite(value)
    except OverflowError:  # an integer beyond the range of floats
        return False


@dataclass(frozen=True, repr=False)
class Smoothed(Record):
    """A source that is computed from a signal and its trace."""

    op: ClassVar[int]
    of: Names
    steps: float | Sequence[float] = field(default=1, kw_only=True)

    @classmethod
    def name(cls) -> str:
        """As TOML and the names of features have it."""
        return cls.__name__.lower()

    def check(self) -> None:
        owner = type(self).__name__
        check_names(self.of, owner)
        for steps in as_tuple(self.steps) or (None,):
            if not (is_number(steps) and 1 <= steps < math.inf):
                raise refusal("steps", owner, "be a number of 1 or more, or several", repr(steps))

    def config(self) -> dict[str, Any]:
        fields = self.given()
        return {self.name(): plain(fields.pop("of")), **{key: plain(value) for key, value in fields.items()}}

    def sources(self, plan: FeaturePlan) -> list[SensedSource]:
        """One for each signal and each of the ``steps``.

        Args:
            plan: The plan for the signals that there are.
        """
        return [
            SensedSource(self.op, column, float(steps), f"{self.name()}({plan.names[column]}, {steps:g})")
            for column in plan.columns(self.of)
            for steps in as_tuple(self.steps)
        ]


@dataclass(frozen=True, repr=False)
class Trace(Smoothed):
    """The exponential trace z of a signal x, an average of the past with a memory of about ``steps`` steps.

        z_t = z_{t−1} + (x_t − z_{t−1})/steps

    It starts at the first value, and does not change where a value is missing.

    Args:
        of: A signal's name, several names, or "*" for all signals.
        steps: The memory in steps, 1 or more; several make a trace each.

    >>> Trace("*", steps=[4, 16])
    Trace('*', steps=[4, 16])
    """

    op: ClassVar[int] = TRACE
    steps: float | Sequence[float] = field(kw_only=True)


@dataclass(frozen=True, repr=False)
class Change(Smoothed):
    """The difference of a signal x from its previous trace z: x_t − z_{t−1}.

    With ``steps=1`` that is x_t − x_{t−1}. It is not known at the first value and where a value is missing; none of its
    features is active there.

    Args:
        of: A signal's name, several names, or "*" for all signals.
        steps: The memory of the trace in steps, 1 or more; several make a source each.
    """

    op: ClassVar[int] = CHANGE


#: The kinds by their names in TOML.
KINDS: dict[str, type[Smoothed]] = {kind.name(): kind for kind in (Change, Trace)}


def from_config(table: object) -> Any:
    """The source that a table of a TOML file describes; names are as they are."""
    if not isinstance(table, dict):
        return table
    for name, kind in KINDS.items():
        if name in table:
            return from_fields(kind, name, {"of" if key == name else key: value for key, value in table.items()})
    tables = " or ".join(f"{{ {name} = …, steps = … }}" for name in KINDS)
    raise refusal("of", "a feature", f"be a name, {tables}", show(table))
