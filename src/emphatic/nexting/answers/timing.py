"""What is known of the times of a log, and what the time of a row says: its place in the day, the week and the year."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from emphatic.gvfs import durations
from emphatic.nexting.answers.records import CALENDAR, HOURS, PERIODS
from emphatic.nexting.tables import Clock

__all__ = ["CalendarPeriod", "LogCalendar", "Timing"]

Array = NDArray[np.float64]
_HOUR, _DAY, _WEEK, _YEAR = 3600.0, 86_400.0, 604_800.0, 365.2425 * 86_400.0
#: The first Monday after the epoch, less a week: weeks begin on Mondays.
_MONDAY = 3 * _DAY
#: The share of a step by which rows of a regular log may come late.
_SLACK = 0.1
#: The most slots of a day; a longer period has an hour or a week in a slot. The most rows of a period that are
#: remembered.
_MOST_SLOTS, _MOST_ROWS = 96, 20_000
#: The most rows of a window, which no log has.
_MOST_AHEAD = 1 << 40
_NONE = np.zeros((1, 3 + PERIODS), np.int64)


class Timing(NamedTuple):
    """What is known of the times of a log.

    Args:
        step: The usual step; None without times.
        regular: Whether rows come at regular times.
        limit: The longest step that is no gap.
        dated: Whether times are seconds since 1970.
    """

    step: float | None
    regular: bool = True
    limit: float = math.inf
    dated: bool = False

    def rows(self, span: float) -> int:
        """The rows of a window: those that come within it, where rows of a regular log may come a tenth late."""
        return min(max(1, math.floor(span / (self.step or 1.0) + self.slack)), _MOST_AHEAD)

    def window(self, horizon: float | str) -> int:
        """The rows of the window of a horizon: a number of rows, or a duration.

        >>> Timing(600.0).window("1h"), Timing(None).window(3)
        (6, 3)
        """
        return self.rows(durations.seconds(horizon) if isinstance(horizon, str) else horizon * (self.step or 1.0))

    @property
    def slack(self) -> float:
        """The share of a step by which a row may come late and still count."""
        return _SLACK if self.regular else 1e-6

    @classmethod
    def of(cls, clock: Clock | None, dated: bool) -> Timing:
        """That of a log with this clock."""
        if clock is None or not clock.step > 0.0:
            return cls(None)
        return cls(float(clock.step), bool(clock.regular), float(clock.limit), dated)


class CalendarPeriod(NamedTuple):
    """A period of the calendar.

    Args:
        name: What it is called.
        seconds: How long it is.
        rows: How many rows it has; 0 if they are too many to remember.
        slots: The slots by which means are remembered.
        offset: When one begins.
    """

    name: str
    seconds: float
    rows: int
    slots: int
    offset: float = 0.0

    def slot(self, time: Array) -> NDArray[np.int64]:
        """The slot of each time."""
        phase = (time + self.offset) / self.seconds
        slots = np.floor((phase - np.floor(phase)) * self.slots + 1e-6).astype(np.int64)
        return slots % self.slots


class LogCalendar:
    """The periods of a log whose times are dates, and what they say of each row; none without dates.

    Args:
        timing: What is known of the times.
        many: Whether there are so many questions that effects are of the hour of the day, not of the week.
    """

    def __init__(self, timing: Timing, many: bool = False) -> None:
        step = timing.step
        self.cycles: tuple[CalendarPeriod, ...] = ()
        #: The cells of the calendar that have an effect of their own.
        self.cell = CalendarPeriod("", 1.0, 1, 1)
        self._waves, self._weekly, self._hourly = _YEAR, False, False
        if not timing.dated or step is None or step > 0.5 * _YEAR:
            return
        year = CalendarPeriod("year", _YEAR, round(_YEAR / step), min(53, round(_YEAR / step)))
        week = CalendarPeriod("week", _WEEK, round(_WEEK / step), round(_WEEK / step), _MONDAY)
        if step <= 0.5 * _DAY:
            rows = round(_DAY / step)
            day = CalendarPeriod("day", _DAY, rows, min(_MOST_SLOTS, rows))
            self.cycles = (day, week._replace(slots=min(week.rows, 7 * rows if rows <= 48 else 168)))
            self._waves, self._hourly = _DAY, True
            self.cell = day._replace(slots=min(24, rows)) if many else week._replace(slots=min(168, week.rows))
        elif step <= 0.5 * _WEEK:
            self.cycles = (week, year)
            self.cell = week
        else:
            self.cycles = (year,)
            self.cell = year
        self._weekly = step <= _DAY
        self.cycles = tuple(cycle._replace(rows=cycle.rows * (cycle.rows <= _MOST_ROWS)) for cycle in self.cycles)

    @property
    def word(self) -> str | None:
        """At what answers are usual: the slot of the longest period; None without dates."""
        words = {"day": "hour", "week": "hour of the week" if self._hourly else "day of the week"}
        return words.get(self.cycles[-1].name, "time of year") if self.cycles else None

    def clock(self, time: Array) -> NDArray[np.int64]:
        """The cell, the hour of the day and the slots of both periods at each time, and 0, (B, 5)."""
        if not self.cycles:
            return np.repeat(_NONE, len(time), axis=0)
        clock = np.zeros((len(time), 3 + PERIODS), np.int64)
        clock[:, 0] = self.cell.slot(time)
        if self._hourly:
            clock[:, 1] = time % _DAY // (_DAY / HOURS)
        for p, cycle in enumerate(self.cycles):
            clock[:, 2 + p] = cycle.slot(time)
        return clock

    def features(self, time: Array) -> Array:
        """Waves of the day (or the year), these at weekends, and the day of the week, (B, CALENDAR)."""
        F = np.zeros((len(time), CALENDAR))
        if not self.cycles:
            return F
        angle = 2.0 * math.pi / self._waves * (time % self._waves)
        for k in range(4):
            F[:, 2 * k], F[:, 2 * k + 1] = np.sin((k + 1) * angle), np.cos((k + 1) * angle)
        if self._weekly:
            weekday = (time // _DAY + 3.0).astype(np.int64) % 7
            F[:, 8:14] = F[:, :6] * (weekday >= 5)[:, None]
            F[:, 14:] = weekday[:, None] == np.arange(1, 7)
        return F
