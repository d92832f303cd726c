"""From the list of parts to flat arrays that one kernel call reads: sources, scales and units.

A source is a signal, its trace or its change. A scale is a source over increasing knots: the centres of soft bins or
the edges of tiles. A unit is one part of one source, or of a few jointly; it owns some features and slots of a row.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from emphatic.features.parts import Change, Missing, OneHot, Part, SoftBins, Tiles, TimeOfDay, TimeOfWeek, Trace
from emphatic.learning.inputs import refusal

__all__ = ["Plan", "Scale", "Source", "Unit", "plan"]

#: What a source makes of its signal.
READING, TRACE, CHANGE = 0, 1, 2
#: What a unit does. (The kernels hold copies of these numbers: after a change here, touch their file too.)
BIAS, SOFT, EXACT, HASHED, CYCLE, CODE = 0, 1, 2, 3, 4, 5

DAY = 86_400.0
#: 1970-01-05 was a Monday.
_CYCLES: dict[type[Part], tuple[float, float]] = {TimeOfDay: (DAY, 0.0), TimeOfWeek: (7 * DAY, 4 * DAY)}


@dataclass(frozen=True)
class Source:
    kind: int
    column: int
    steps: float


@dataclass(frozen=True)
class Scale:
    source: int
    knots: int
    range: tuple[float, float] | None
    spacing: str


@dataclass(frozen=True)
class Unit:
    part: Part
    kind: int
    members: tuple[int, ...] = ()
    tilings: int = 1
    size: int = 1
    real: tuple[float, float] = (1.0, 0.0)

    @property
    def slots(self) -> int:
        """How many features can be active at once."""
        return {SOFT: 2, CYCLE: 2, EXACT: self.tilings, HASHED: self.tilings}.get(self.kind, 1)

    @property
    def features(self) -> int:
        return self.tilings * self.size ** len(self.members) if self.kind == EXACT else self.size


@dataclass
class Plan:
    """What the parts mean for signals of these names. A column of codes is of a part and a name."""

    names: tuple[str, ...]
    sources: dict[Source, int] = field(default_factory=dict)
    scales: dict[Scale, int] = field(default_factory=dict)
    codes: list[tuple[Part, str]] = field(default_factory=list)
    units: list[Unit] = field(default_factory=list)

    @property
    def n(self) -> int:
        return sum(unit.features for unit in self.units)

    @property
    def active(self) -> int:
        return sum(unit.slots for unit in self.units)

    @property
    def most(self) -> float:
        """φ·φ where nothing is missing and each unit's is 1, the most for all but hashed tiles that fall together."""
        return float(sum(not isinstance(unit.part, Missing) for unit in self.units))

    def source_arrays(self) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """(source, rate), as ``kernels.sense`` takes them."""
        source = np.array([(s.kind, s.column) for s in self.sources], np.int64).reshape(-1, 2)
        return source, np.array([1.0 / s.steps for s in self.sources], np.float64)

    def unit_arrays(
        self, knots: Sequence[NDArray[np.float64]]
    ) -> tuple[NDArray[np.int64], NDArray[np.float64], NDArray[np.int64], NDArray[np.float64], NDArray[np.int64]]:
        """(scale, knots, unit, real, member), as ``kernels.activate`` takes them."""
        ends = np.cumsum([0, *map(len, knots)])
        scale = [(s.source, start, s.knots) for s, start in zip(self.scales, ends[:-1], strict=True)]
        slot = first = begin = 0
        rows = []
        for u in self.units:
            rows.append((u.kind, slot, first, begin, len(u.members), u.tilings, u.size))
            slot, first, begin = slot + u.slots, first + u.features, begin + len(u.members)
        return (
            np.array(scale, np.int64).reshape(-1, 3),
            np.concatenate([np.empty(0), *knots]),
            np.array(rows, np.int64).reshape(-1, 7),
            np.array([u.real for u in self.units], np.float64).reshape(-1, 2),
            np.array([m for u in self.units for m in u.members], np.int64),
        )


def plan(parts: Sequence[Part], names: Sequence[str], categories: dict[str, list[Any]]) -> Plan:
    """The plan for signals of these names; ``categories`` are those of each ``OneHot``, given or found."""
    made = Plan(tuple(names))
    for part in parts:
        made.units += _units(part, made, categories)
    if made.n >= 1 << 48:
        raise refusal("parts", "Features", "make fewer than 2**48 features; use hashed tiles", f"{made.n} features")
    return made


def _units(part: Part, made: Plan, categories: dict[str, list[Any]]) -> list[Unit]:
    if isinstance(part, SoftBins):
        scales = _scales(part, part.bins, made)
        return [Unit(part, SOFT, (scale,), size=part.bins) for scale in scales]
    if isinstance(part, Tiles):
        scales = _scales(part, part.tiles + 1, made)
        groups = [tuple(scales)] if isinstance(part.of, tuple) else [(scale,) for scale in scales]
        kind, size = (HASHED, part.hashed) if part.hashed else (EXACT, part.tiles + (part.tilings > 1))
        value = part.tilings**-0.5
        return [Unit(part, kind, group, part.tilings, size, (value, 0.0)) for group in groups]
    if isinstance(part, TimeOfDay | TimeOfWeek):
        return [Unit(part, CYCLE, size=part.bins, real=_CYCLES[type(part)])]
    if isinstance(part, OneHot):
        return [Unit(part, CODE, (_code(part, part.of, made),), size=len(categories[part.of]) + 1)]
    if isinstance(part, Missing):
        return [Unit(part, CODE, (_code(part, made.names[c], made),)) for c in _columns(part.of, made)]
    return [Unit(part, BIAS)]


def _scales(part: SoftBins | Tiles, knots: int, made: Plan) -> list[int]:
    sources = _all_sources(part.of, made)
    ranges = part.ranges(len(sources))
    if len(ranges) != len(sources):
        raise refusal("range", type(part).__name__, f"be one or {len(sources)}, as many as sources", f"{len(ranges)}")
    scales = []
    for source, span in zip(sources, ranges, strict=True):
        at = made.sources.setdefault(source, len(made.sources))
        scales.append(made.scales.setdefault(Scale(at, knots, span, part.spacing), len(made.scales)))
    return scales


def _code(part: Part, name: str, made: Plan) -> int:
    made.codes.append((part, name))
    return len(made.codes) - 1


def _all_sources(of: Any, made: Plan) -> list[Source]:
    if isinstance(of, tuple):
        return [source for one in of for source in _all_sources(one, made)]
    if not isinstance(of, Trace | Change):
        return [Source(READING, column, 1.0) for column in _columns(of, made)]
    kind = TRACE if isinstance(of, Trace) else CHANGE
    steps = of.steps if isinstance(of.steps, tuple) else (of.steps,)
    return [Source(kind, column, float(s)) for column in _columns(of.of, made) for s in steps]


def _columns(of: Any, made: Plan) -> list[int]:
    if of == "*":
        return list(range(len(made.names)))
    wanted = of if isinstance(of, tuple) else (of,)
    for name in wanted:
        if name not in made.names:
            raise refusal("names", "warm_up", f"have all signals that the parts name, {name!r} too", repr(made.names))
    return [made.names.index(name) for name in wanted]
