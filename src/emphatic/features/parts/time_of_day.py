"""The time of day."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from emphatic.features.parts._cycle import DAY, CyclicPart

__all__ = ["TimeOfDay"]


@dataclass(frozen=True, repr=False)
class TimeOfDay(CyclicPart):
    """Soft bins around the day: the first centre is at midnight, and follows the last."""

    kind: ClassVar[str] = "time_of_day"
    period: ClassVar[float] = DAY

    def day(self, number: int) -> str:
        return "day"
