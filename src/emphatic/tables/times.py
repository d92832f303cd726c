"""Time columns: found by type, by how their text reads or by their name, and given in seconds.

Dates are seconds since 1970-01-01. Without a zone they count as UTC, so that the time of day is the one
that is written. A numeric column keeps its own unit, unless its size says that it is Unix time in s, ms, µs or ns.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt
from numpy.typing import NDArray

from emphatic.tables import columns, fields
from emphatic.tables.table_errors import TableError

__all__ = ["TimeColumn", "clock_format", "date_format", "find", "unix_units"]

FloatArray = NDArray[np.float64]

_DATES = ("%d/%m/%Y", "%m/%d/%Y", "%Y/%m/%d", "%d.%m.%Y", "%d-%m-%Y", "%m-%d-%Y", "%d/%m/%y", "%m/%d/%y", "%d.%m.%y")
_CLOCKS = ("%H:%M:%S", "%H:%M", "%I:%M:%S %p", "%I:%M %p")
_ALL = sorted(
    (f"{date}{clock}" for clock in ("", *(f" {clock}" for clock in _CLOCKS)) for date in _DATES),
    key=lambda form: form.endswith("%p") and not form.startswith("%m"),  # AM and PM: the month comes first
)
_DAY = 86400.0
_NAME = re.compile(
    r"(t|ts|time|time[ _]?stamps?|date|date[ _]?time|epoch|unix|unix[ _]?time)"
    r"([ _]?[\[(]?(n|u|µ|m)?(s|sec|seconds)[\])]?)?"
)
_EARLIEST, _LATEST = datetime(2001, 1, 1, tzinfo=UTC).timestamp(), datetime(2100, 1, 1, tzinfo=UTC).timestamp()


@dataclass(frozen=True)
class TimeColumn:
    """Where the time stands: one column, or a date and a time of day; how each is written; and its unit.

    A format is one of ``fields.time``; typed columns have the one that their text would have.
    """

    names: tuple[str, ...]
    formats: tuple[str | None, ...]
    a_second: float = 1.0
    dated: bool = True
    comma: bool = False

    @property
    def name(self) -> str:
        return "+".join(self.names)

    def seconds(self, batch: Any) -> FloatArray:
        """The time of each row of an Arrow table, NaN where missing or unreadable."""
        parts = [
            _seconds(columns.plain(batch.column(name)), form, self.comma)
            for name, form in zip(self.names, self.formats, strict=True)
        ]
        time = np.sum(parts, axis=0) / self.a_second
        return np.where(np.isfinite(time), time, np.nan)

    def parse(self, texts: Sequence[str | None]) -> float:
        """The same of one row, from the text of each column."""
        parts = (fields.time(text, form, self.comma) for text, form in zip(texts, self.formats, strict=True))
        time = sum(parts) / self.a_second
        return time if math.isfinite(time) else math.nan


def find(name: str, look: Any, kinds: dict[str, str], wanted: str | bool | None, comma: bool) -> TimeColumn | None:
    """The time column of a table, from its first rows: the one that is wanted, or the obvious one."""
    if wanted is False:
        return None
    if isinstance(wanted, str):
        return _wanted(name, look, kinds, wanted, comma)
    dates = sorted((c for c in kinds if kinds[c] == "date"), key=lambda c: not _named(c))
    for date in dates:
        clocks = [c for c in kinds if kinds[c] == "clock"]
        candidate = _column(look, kinds, (date,))
        if clocks and not np.any(np.nan_to_num(candidate.seconds(look)) % _DAY):
            candidate = _column(look, kinds, (date, clocks[0]))
        steps = _steps(candidate.seconds(look))
        _refuse_newest_first(name, candidate, steps)
        if not len(steps) or (np.mean(steps >= 0) >= 0.9 and np.any(steps > 0)):
            return candidate
    for column in kinds:
        if kinds[column] == "number" and _named(column):
            candidate = _column(look, kinds, (column,), comma)
            steps = _steps(candidate.seconds(look))
            if len(steps) and np.mean(steps >= 0) >= 0.95 and steps.sum() > 0:
                return candidate
    return None


def _wanted(name: str, look: Any, kinds: dict[str, str], wanted: str, comma: bool) -> TimeColumn:
    names = (wanted,) if wanted in kinds else tuple(part.strip() for part in wanted.split("+"))
    unknown = [column for column in names if column not in kinds]
    if unknown:
        raise TableError(f"{name}: there is no column {unknown[0]!r} to take the time from. It has: {_list(kinds)}.")
    have = tuple(kinds[column] for column in names)
    if have not in (("date",), ("number",), ("date", "clock")):
        raise TableError(
            f"{name}: column {wanted!r} does not read as a time (it is {' and '.join(have)}). A time column holds "
            "numbers, ISO dates such as 2007-02-01 17:24:00, or is a date and a time of day as 'Date+Time'."
        )
    found = _column(look, kinds, names, comma)
    _refuse_newest_first(name, found, _steps(found.seconds(look)))
    return found


def _refuse_newest_first(name: str, column: TimeColumn, steps: FloatArray) -> None:
    if column.dated and np.any(steps < 0) and np.mean(steps <= 0) >= 0.9:
        raise TableError(
            f"{name}: its rows run from the newest to the oldest by column {column.name!r}. "
            "Sort them by time; or pass time=False to take the rows as they come."
        )


def _column(look: Any, kinds: dict[str, str], names: tuple[str, ...], comma: bool = False) -> TimeColumn:
    if kinds[names[0]] == "number":
        first = columns.numbers(columns.plain(look.column(names[0])), comma)[0]
        middle = float(np.median(first[np.isfinite(first)])) if np.isfinite(first).any() else 0.0
        units = unix_units(middle)
        return TimeColumn(names, (None,), units or 1.0, units is not None, comma)
    find_format = {"date": date_format, "clock": clock_format}
    typed = {"date": "iso", "clock": "clock %H:%M:%S"}
    return TimeColumn(
        names, tuple(find_format[kinds[n]](columns.plain(look.column(n))) or typed[kinds[n]] for n in names)
    )


def unix_units(time: float) -> float | None:
    """How many units of a number make a second, if it looks like Unix time (of 2001 to 2099) in s, ms, µs or ns."""
    return next((units for units in fields.UNITS_PER_SECOND.values() if _EARLIEST <= time / units < _LATEST), None)


def _named(column: str) -> bool:
    return _NAME.fullmatch(column.strip().lower()) is not None


def _steps(time: FloatArray) -> FloatArray:
    return np.diff(time[np.isfinite(time)])


def _list(kinds: dict[str, str]) -> str:
    names = [repr(column) for column in kinds]
    return ", ".join(names[:20]) + (f" and {len(names) - 20} more" if len(names) > 20 else "")


def date_format(array: Any) -> str | None:
    """How a column of text writes its dates, if more than half of it are dates. Between 1/2 as the first of
    February and the second of January the reading decides that keeps the rows closer together."""
    return _format(array, ("iso", *_ALL))


def clock_format(array: Any) -> str | None:
    """How a column of text writes the time of day, if more than half of it are such."""
    return _format(array, tuple(f"clock {c}" for c in _CLOCKS))


def _format(array: Any, formats: tuple[str, ...]) -> str | None:
    if not columns.is_text(array):
        return None
    present = array.filter(pc.invert(pc.is_in(pc.utf8_trim_whitespace(array), pa.array(fields.MISSING)))).drop_null()
    few = present.slice(0, 50)
    likely = [f for f in formats if len(few) and 2 * np.isfinite(fields.times(few, f)).sum() > len(few)]
    best: tuple[int, float, str] | None = None
    for form in likely:
        time = fields.times(present, form)
        time = time[np.isfinite(time)]
        if 2 * len(time) > len(present) and (best is None or (len(time), -np.ptp(time)) > best[:2]):
            best = (len(time), -float(np.ptp(time)), form)
    return best[2] if best else None


def _seconds(array: Any, form: str | None, comma: bool = False) -> FloatArray:
    """Seconds since 1970 (of the day, for a time of day), NaN where missing or written otherwise."""
    of = array.type
    if pt.is_timestamp(of) or pt.is_time(of):
        return fields.timestamps(array)
    if pt.is_date(of):
        return fields.timestamps(array.cast(pa.timestamp("ms")))
    return fields.times(array, form, comma) if columns.is_text(array) else columns.numbers(array)[0]
