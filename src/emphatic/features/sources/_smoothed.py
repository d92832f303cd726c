"""What a trace and a change have in common."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from emphatic.features.plan import FeaturePlan, SensedSource
from emphatic.features.records import Record, as_tuple, check_names, is_number, plain
from emphatic.learning.inputs import refusal

__all__ = ["Names", "Smoothed"]

#: A signal's name, several, or "*".
Names = str | Sequence[str]


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
        given = self.given()
        return {self.name(): plain(given.pop("of")), **{key: plain(value) for key, value in given.items()}}

    def sources(self, plan: FeaturePlan) -> list[SensedSource]:
        """One for each signal and each of the ``steps``."""
        return [
            SensedSource(self.op, column, float(steps), f"{self.name()}({plan.names[column]}, {steps:g})")
            for column in plan.columns(self.of)
            for steps in as_tuple(self.steps)
        ]
