"""The time of the week."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from emphatic.features.parts._cycle import DAY, CyclicPart

__all__ = ["TimeOfWeek"]

_DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")


@dataclass(frozen=True, repr=False)
class TimeOfWeek(CyclicPart):
    """Soft bins around the week, which starts at midnight before Monday."""

    kind: ClassVar[str] = "time_of_week"
    period: ClassVar[float] = 7 * DAY
    origin: ClassVar[float] = 4 * DAY  # 1970-01-05 was a Monday
    bins: int = field(default=28, kw_only=True)

    def day(self, number: int) -> str:
        return f"week {_DAYS[number]}"
