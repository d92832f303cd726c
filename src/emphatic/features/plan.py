"""The plan of a list of parts for given signals: sources, scales, columns and units, in plain numbers.

A *source* is a signal's reading, or something computed from it and its trace. A *scale* places knots over a source, and
locates its value among them. A *unit* is a block of consecutive features that one operation of the kernels
makes, of scales or of columns: codes (a small integer a row, −1 for none) or given values (numbers).

Parts fill the plan (``Part.units``); it depends on no kind of part.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from emphatic.features.readings import Array, CheckedReadings
from emphatic.learning.inputs import refusal

if TYPE_CHECKING:
    from emphatic.features.parts import Part

__all__ = ["FeaturePlan", "Scale", "SensedSource", "Unit", "make_plan"]

#: The operations of sources.
READING, TRACE, CHANGE = 0, 1, 2
#: The operations of units. (The kernels hold copies of these numbers: after a change here, touch their file too.)
CONSTANT, SOFT, EXACT, HASHED, CYCLE, CODE, GIVEN = 0, 1, 2, 3, 4, 5, 6


@dataclass(frozen=True)
class SensedSource:
    """An operation on a column of readings."""

    op: int
    column: int
    steps: float
    name: str


@dataclass(frozen=True)
class Scale:
    """Knots over a source; where ``range`` is None it is to be found."""

    source: int
    knots: int
    range: tuple[float, float] | None
    spacing: str


@dataclass(frozen=True)
class Unit:
    """Features that one operation makes.

    ``names`` gives the name of each, from the knots of its members. ``members`` are scales, or a column. ``norm`` is
    φ·φ of the unit where nothing is missing.
    """

    op: int
    names: Callable[[Sequence[Array]], Iterable[str]]
    members: tuple[int, ...] = ()
    tilings: int = 1
    size: int = 1
    real: tuple[float, float] = (1.0, 0.0)
    norm: float = 1.0

    @property
    def slots(self) -> int:
        """How many features can be active at once."""
        return {SOFT: 2, CYCLE: 2, EXACT: self.tilings, HASHED: self.tilings, GIVEN: self.size}.get(self.op, 1)

    @property
    def features(self) -> int:
        """How many features there are."""
        return self.tilings * self.size ** len(self.members) if self.op == EXACT else self.size


@dataclass
class Columns:
    """Consecutive columns that a function makes of the rows of a call, (B, count)."""

    first: int
    count: int
    function: Callable[[CheckedReadings], NDArray[Any]]


@dataclass
class FeaturePlan:
    """The plan of parts for these signals; ``found`` is what the parts found in the warm-up, by name."""

    names: tuple[str, ...]
    found: dict[str, list[Any]]
    sources: dict[SensedSource, int] = field(default_factory=dict)
    scales: dict[Scale, int] = field(default_factory=dict)
    codes: list[Columns] = field(default_factory=list)
    numbers: list[Columns] = field(default_factory=list)
    units: list[Unit] = field(default_factory=list)

    # ------------------------------------------------------------------ for parts

    def columns(self, of: Any) -> list[int]:
        """The signals of these names, or all for "*"."""
        if of == "*":
            return list(range(len(self.names)))
        wanted = of if isinstance(of, tuple) else (of,)
        for name in wanted:
            if name not in self.names:
                wants = f"have all signals that the parts name, {name!r} too"
                raise refusal("names", "warm_up", wants, repr(self.names))
        return [self.names.index(name) for name in wanted]

    def readings(self, of: Any) -> list[SensedSource]:
        """The signals themselves as sources."""
        return [SensedSource(READING, column, 1.0, self.names[column]) for column in self.columns(of)]

    def scale(self, source: SensedSource, knots: int, span: tuple[float, float] | None, spacing: str) -> int:
        """The number of this scale, which parts share where they can."""
        at = self.sources.setdefault(source, len(self.sources))
        return self.scales.setdefault(Scale(at, knots, span, spacing), len(self.scales))

    def code(self, count: int, function: Callable[[CheckedReadings], NDArray[np.int64]]) -> int:
        """The number of the first of ``count`` new columns of codes, which ``function`` makes of the rows of a call."""
        self.codes.append(Columns(_width(self.codes), count, function))
        return self.codes[-1].first

    def given(self, count: int, function: Callable[[CheckedReadings], Array]) -> int:
        """The same with numbers, which are the values of features as they are; NaN for none."""
        self.numbers.append(Columns(_width(self.numbers), count, function))
        return self.numbers[-1].first

    # ------------------------------------------------------------------ for the maker

    @property
    def n(self) -> int:
        return sum(unit.features for unit in self.units)

    @property
    def active(self) -> int:
        return sum(unit.slots for unit in self.units)

    @property
    def timed(self) -> bool:
        """Whether it needs times."""
        return any(unit.op == CYCLE for unit in self.units)

    @property
    def norm(self) -> float:
        """φ·φ where nothing is missing, the most for all but hashed tiles that fall together."""
        return float(sum(unit.norm for unit in self.units))

    def source_arrays(self) -> tuple[NDArray[np.int64], Array]:
        """(source, rate), as ``kernels.sense`` takes them."""
        source = np.array([(s.op, s.column) for s in self.sources], np.int64).reshape(-1, 2)
        return source, np.array([1.0 / s.steps for s in self.sources], np.float64)

    def unit_arrays(
        self, watched: Sequence[int], followed: Sequence[int]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64], Array, NDArray[np.int64]]:
        """(scale, unit, real, member), as ``kernels.activate`` takes them."""
        starts = np.cumsum([0, *(s.knots for s in self.scales)])[:-1]
        scale = [
            (s.source, start, s.knots, *leaders)
            for s, start, *leaders in zip(self.scales, starts, watched, followed, strict=True)
        ]
        slot = first = begin = 0
        rows = []
        for u in self.units:
            rows.append((u.op, slot, first, begin, len(u.members), u.tilings, u.size))
            slot, first, begin = slot + u.slots, first + u.features, begin + len(u.members)
        return (
            np.array(scale, np.int64).reshape(-1, 5),
            np.array(rows, np.int64).reshape(-1, 7),
            np.array([u.real for u in self.units], np.float64).reshape(-1, 2),
            np.array([m for u in self.units for m in u.members], np.int64),
        )

    def make_columns(self, rows: CheckedReadings) -> tuple[NDArray[np.int64], Array]:
        """The codes and the given numbers of each row, (B, columns)."""
        B = len(rows.values)
        codes, numbers = np.empty((B, _width(self.codes)), np.int64), np.empty((B, _width(self.numbers)))
        for some in self.codes:
            codes[:, some.first : some.first + some.count] = some.function(rows)
        for some in self.numbers:
            numbers[:, some.first : some.first + some.count] = some.function(rows)
        return codes, numbers

    def feature_names(self, knots: Sequence[Array]) -> list[str]:
        """A name for each of the n features, in order."""
        return [name for u in self.units for name in u.names([knots[m] for m in u.members] if _scaled(u) else ())]


def make_plan(parts: Sequence[Part], names: Sequence[str], found: dict[str, list[Any]]) -> FeaturePlan:
    """The plan for signals of these names; ``found`` is what the parts found in the warm-up."""
    plan = FeaturePlan(tuple(names), found)
    for part in parts:
        plan.units += part.units(plan)
    if plan.n >= 1 << 48:
        raise refusal("parts", "Features", "make fewer than 2**48 features; use hashed tiles", f"{plan.n} features")
    return plan


def _scaled(unit: Unit) -> bool:
    """Whether its members are scales."""
    return unit.op in (SOFT, EXACT, HASHED)


def _width(columns: list[Columns]) -> int:
    return columns[-1].first + columns[-1].count if columns else 0
