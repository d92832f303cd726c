"""What parts of time have in common."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from emphatic.features.parts._part import Part
from emphatic.features.plan import CYCLE, FeaturePlan, Unit
from emphatic.features.records import check_at_least_two

__all__ = ["DAY", "CyclicPart"]

#: In seconds.
DAY = 86_400.0


@dataclass(frozen=True, repr=False)
class CyclicPart(Part):
    """Soft bins around a circle of ``period`` seconds, the first centre ``origin`` seconds after 1970 began."""

    period: ClassVar[float]
    origin: ClassVar[float] = 0.0
    bins: int = field(default=24, kw_only=True)

    def check(self) -> None:
        check_at_least_two("bins", self.bins, type(self).__name__)

    def units(self, plan: FeaturePlan) -> list[Unit]:
        minutes = [round(self.period / 60 * bin / self.bins) for bin in range(self.bins)]
        names = [f"time of {self.day(m // 1440)} {m // 60 % 24:02d}:{m % 60:02d}" for m in minutes]
        return [Unit(CYCLE, lambda knots: names, size=self.bins, real=(self.period, self.origin))]

    def day(self, number: int) -> str:
        """The name of a day of the cycle."""
        raise NotImplementedError
