"""A readable name for each feature."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from emphatic.features.parts import Missing, TimeOfWeek
from emphatic.features.plan import BIAS, CODE, CYCLE, EXACT, HASHED, READING, SOFT, TRACE, Plan, Source, Unit

__all__ = ["feature_names", "source_name"]

_WEEK = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")


def source_name(source: Source, names: Sequence[str]) -> str:
    """S1, trace(S1, 30) or change(S1, 1)"""
    name = names[source.column]
    if source.kind == READING:
        return name
    return f"{'trace' if source.kind == TRACE else 'change'}({name}, {source.steps:g})"


def feature_names(plan: Plan, knots: Sequence[NDArray[np.float64]], categories: dict[str, list[Any]]) -> list[str]:
    """One for each of the n features, in order."""
    return [name for unit in plan.units for name in _names(unit, plan, knots, categories)]


def _names(
    unit: Unit, plan: Plan, knots: Sequence[NDArray[np.float64]], categories: dict[str, list[Any]]
) -> Iterator[str]:
    part: Any = unit.part
    if unit.kind == BIAS:
        yield "bias"
    elif unit.kind == CYCLE:
        for bin in range(unit.size):
            minutes = round(unit.real[0] / 60 * bin / unit.size)
            day = f"week {_WEEK[minutes // 1440]}" if isinstance(part, TimeOfWeek) else "day"
            yield f"time of {day} {minutes // 60 % 24:02d}:{minutes % 60:02d}"
    elif unit.kind == CODE and isinstance(part, Missing):
        yield f"{plan.codes[unit.members[0]][1]} missing"
    elif unit.kind == CODE:
        yield from (f"{part.of} = {category}" for category in categories[part.of])
        yield f"{part.of} = other"
    else:
        scales = list(plan.scales)
        sources = list(plan.sources)
        of = ", ".join(source_name(sources[scales[m].source], plan.names) for m in unit.members)
        if unit.kind == SOFT:
            yield from (f"{of} ≈ {centre:.6g}" for centre in knots[unit.members[0]])
        elif unit.kind == HASHED:
            yield from (f"tiles({of}) #{i}" for i in range(unit.size))
        elif unit.kind == EXACT:
            for tiling in range(unit.tilings):
                for at in itertools.product(range(unit.size), repeat=len(unit.members)):
                    yield f"tiles({of}) {tiling}: {', '.join(map(str, at))}"
