"""What parts over a range have in common."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from emphatic.features import sources
from emphatic.features.parts._part import Part
from emphatic.features.plan import FeaturePlan, SensedSource
from emphatic.features.records import as_tuple, check_names, is_number
from emphatic.features.sources import Smoothed
from emphatic.learning.inputs import refusal

__all__ = ["ScaledPart"]

Source = str | Smoothed


@dataclass(frozen=True, repr=False)
class ScaledPart(Part):
    """A part over a range, given or found by the warm-up; then the spacing can follow half-way the readings' quantiles.

    ``range`` is (low, high); where the part is of several sources it may be a list, one for each.
    """

    of: Source | Sequence[Source]
    range: tuple[float, float] | Sequence[tuple[float, float]] | None = field(default=None, kw_only=True)
    spacing: str = field(default="quantile", kw_only=True)

    def check(self) -> None:
        owner = type(self).__name__
        for source in as_tuple(self.of) or (None,):
            if not isinstance(source, Smoothed):
                check_names(source, owner)
        if self.spacing not in ("equal", "quantile"):
            raise refusal("spacing", owner, "be 'equal' or 'quantile'", repr(self.spacing))
        if self.range is not None:
            for pair in self._ranges(0) or ((),):
                fine = isinstance(pair, tuple) and len(pair) == 2 and all(map(is_number, pair))
                if not (fine and -1e300 <= pair[0] < pair[1] <= 1e300):
                    raise refusal("range", owner, "be (low, high) with low < high, both finite", repr(self.range))

    @classmethod
    def from_config(cls, table: Mapping[str, Any]) -> Part:
        values = dict(table)
        if "of" in values:
            of = values["of"]
            values["of"] = [sources.from_config(one) for one in of] if isinstance(of, list) else sources.from_config(of)
        return super().from_config(values)

    def scales(self, plan: FeaturePlan, knots: int) -> list[tuple[int, str]]:
        """The scale of each source and the source's name."""
        found = [source for of in as_tuple(self.of) for source in _sources(of, plan)]
        ranges = self._ranges(len(found))
        if len(ranges) != len(found):
            wants = f"be one or {len(found)}, as many as sources"
            raise refusal("range", type(self).__name__, wants, f"{len(ranges)}")
        return [
            (plan.scale(source, knots, span, self.spacing), source.name)
            for source, span in zip(found, ranges, strict=True)
        ]

    def _ranges(self, sources: int) -> tuple[Any, ...]:
        """The range of each of the sources; as many as are given where each has its own."""
        own = isinstance(self.range, tuple) and len(self.range) > 0 and isinstance(self.range[0], tuple)
        return tuple(self.range) if own else (self.range,) * max(1, sources)  # type: ignore[arg-type]


def _sources(of: Source, plan: FeaturePlan) -> list[SensedSource]:
    return of.sources(plan) if isinstance(of, Smoothed) else plan.readings(of)
