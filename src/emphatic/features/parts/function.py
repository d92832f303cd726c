"""Features of your own: a Python function of a row."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from emphatic.features.parts._part import Part
from emphatic.features.plan import GIVEN, FeaturePlan, Unit
from emphatic.features.readings import Array, CheckedReadings
from emphatic.learning.inputs import refusal, whole

__all__ = ["FeatureRow", "Function"]


class FeatureRow(dict[str, Any]):
    """Readings and labels by name, NaN or None where missing; ``time`` is in seconds since 1970, or None."""

    time: float | None = None


@dataclass(frozen=True, repr=False)
class Function(Part):
    """``size`` features that a Python function makes of each row: it returns as many numbers, or one.

    It is called with {name: reading} of all signals and labels, whose attribute ``time`` is in seconds since 1970 (None
    where rows have no time), and must depend on nothing else. A feature is active where its number is not 0; None, NaN
    and infinity make none active. Numbers should be of the order of 1, as φ·φ of the other parts is.

    ``name`` is the function's own unless given. A file cannot hold a function: a saved maker refers to it by name, and
    it must be supplied again (``Features.provide``).

    >>> Function(lambda row: row["x"] > row["y"], name="x above y")
    Function('x above y')
    """

    kind: ClassVar[str] = "function"
    function: Callable[[FeatureRow], Any] | None = None
    size: int = field(default=1, kw_only=True)
    name: str | None = field(default=None, kw_only=True)

    def check(self) -> None:
        if self.function is not None and not callable(self.function):
            raise refusal("function", "Function", "be a function of a row", repr(self.function))
        whole("size", self.size, "Function")
        name = getattr(self.function, "__name__", None) if self.name is None else self.name
        if not isinstance(name, str) or not name or name == "<lambda>":
            raise refusal("name", "Function", "be given, where the function has no name of its own", repr(self.name))
        object.__setattr__(self, "name", name)

    def units(self, plan: FeaturePlan) -> list[Unit]:
        first = plan.given(self.size, self._values)
        names = [f"{self.name}"] if self.size == 1 else [f"{self.name} {i}" for i in range(self.size)]
        return [Unit(GIVEN, lambda knots: names, (first,), size=self.size, norm=float(self.size))]

    def functions(self) -> tuple[str, ...]:
        return (str(self.name),)

    def provide(self, functions: Mapping[str, Callable[..., Any]]) -> Part:
        return dataclasses.replace(self, function=functions.get(str(self.name), self.function))

    def config(self) -> dict[str, Any]:
        return {"kind": self.kind, "name": self.name} | ({} if self.size == 1 else {"size": self.size})

    def __repr__(self) -> str:
        return f"Function({self.name!r}{'' if self.size == 1 else f', size={self.size}'})"

    def _values(self, rows: CheckedReadings) -> Array:
        """The numbers of each row, (B, size)."""
        if self.function is None:
            raise ValueError(
                f"The feature {self.name!r} is a Python function, which a file cannot hold. Give it again: "
                f"features.provide({{{self.name!r}: …}})."
            )
        labels = {name: rows.column(name) for name in rows.labels or () if name not in rows.names}
        values = np.where(rows.missing, np.nan, rows.values)
        columns = zip(*values.T.tolist(), *labels.values(), strict=True)
        names = (*rows.names, *labels)
        made = np.empty((len(rows.values), self.size))
        for t, readings in enumerate(columns):
            row = FeatureRow(zip(names, readings, strict=True))
            row.time = None if rows.time is None else float(rows.seconds[t])
            made[t] = self._numbers(self.function(row), t)
        return np.where(np.isfinite(made), made, np.nan)

    def _numbers(self, returned: Any, t: int) -> list[float]:
        """What the function returned, as ``size`` numbers."""
        several = returned.tolist() if hasattr(returned, "tolist") else returned
        if several is None:
            return [math.nan] * self.size
        several = list(several) if isinstance(several, list | tuple) else [several]
        if len(several) != self.size or not all(isinstance(one, int | float | None) for one in several):
            wants = "a number" if self.size == 1 else f"{self.size} numbers"
            what = f"The function of the feature {self.name!r} must return {wants} or None"
            raise ValueError(f"{what}. Got {returned!r} instead, at row {t} of the call.")
        return [math.nan if one is None else float(one) for one in several]
