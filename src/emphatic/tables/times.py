"""Time columns: found by their type and values, and only then by their name, and given in seconds.

Dates are seconds since 1970-01-01. Without a zone they count as UTC, so that the time of day is the one
that is written. A numeric column keeps its own unit, unless its values are dates written as digits (20240301000500) or
Unix time in s, ms, µs or ns.
"""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt
from numpy.typing import NDArray

from emphatic.tables import columns, fields
from emphatic.tables.fields import PLAIN, NumberStyle
from emphatic.tables.table_errors import TableError

__all__ = ["FoundTime", "TimeColumn", "clock_format", "date_format", "find", "unix_units"]

FloatArray = NDArray[np.float64]

_DATES = (
    "%d/%m/%Y", "%m/%d/%Y", "%Y/%m/%d", "%d.%m.%Y", "%d-%m-%Y", "%m-%d-%Y", "%d/%m/%y", "%m/%d/%y", "%d.%m.%y",
    "%d-%b-%Y", "%d %b %Y", "%d/%b/%Y", "%b %d %Y", "%b %d, %Y", "%d-%b-%y", "%Y.%m.%d", "%Y-%b-%d",
)  # fmt: skip
_CLOCKS = ("%H:%M:%S", "%H:%M", "%I:%M:%S %p", "%I:%M %p")
_ALL = sorted(
    (f"{date}{clock}" for clock in ("", *(f" {clock}" for clock in _CLOCKS)) for date in _DATES),
    key=lambda form: form.endswith("%p") and not form.startswith("%m"),  # AM and PM: the month comes first
)
#: Dates written as digits, and what to divide by to get the year.
_DIGITS = {"%Y%m%d%H%M%S": 1e10, "%Y%m%d%H%M": 1e8, "%Y%m%d": 1e4}
_DAY = 86400.0
#: A column of this name may hold a time that is only a count; one like the other may hold Unix time.
_NAME = re.compile(
    r"(t|ts|time|time[ _]?stamps?|date|date[ _]?time|epoch|unix|unix[ _]?time)"
    r"([ _]?[\[(]?(n|u|µ|m)?(s|sec|seconds)[\])]?)?"
)
_LIKE = re.compile(r"time|date|stamp|epoch|when|_at$|(^|_)ts(_|$)")
_EARLIEST, _LATEST = datetime(2001, 1, 1, tzinfo=UTC).timestamp(), datetime(2100, 1, 1, tzinfo=UTC).timestamp()
#: Dates may go back this often, and numbers that the user says are times: clocks are put back, loggers start again.
_BACKWARDS = 0.01
_ZONE = r":[0-9]{2}(?:[.,][0-9]+)? *(?P<zone>Z|[-+][0-9]{2}(?::?[0-9]{2})?)$"


@dataclass(frozen=True)
class TimeColumn:
    """Where the time stands: one column, or a date and a time of day; how each is written; its unit and its zone.

    A format is one of ``fields.time``; typed columns have the one that their text would have. ``zone`` is the one that
    all stamps have, UTC if they have several, None if they have none.
    """

    names: tuple[str, ...]
    formats: tuple[str | None, ...]
    a_second: float = 1.0
    dated: bool = True
    style: NumberStyle = PLAIN
    zone: str | None = None

    @property
    def name(self) -> str:
        return "+".join(self.names)

    @property
    def format(self) -> str:
        """How it is written, in words."""
        units = {1.0: "s", 1e3: "ms", 1e6: "µs", 1e9: "ns"}
        if self.formats == (None,):
            return f"Unix time in {units.get(self.a_second, '?')}" if self.dated else "a number"
        return " ".join("ISO 8601" if form == "iso" else (form or "").removeprefix("clock ") for form in self.formats)

    def seconds(self, batch: Any) -> FloatArray:
        """The time of each row of an Arrow table, NaN where missing or unreadable."""
        parts = [
            _seconds(columns.plain(batch.column(name)), form, self.style)
            for name, form in zip(self.names, self.formats, strict=True)
        ]
        time = np.sum(parts, axis=0) / self.a_second
        return np.where(np.isfinite(time), time, np.nan)

    def parse(self, texts: Sequence[str | None]) -> float:
        """The same of one row, from the text of each column."""
        parts = (fields.time(text, form, self.style) for text, form in zip(texts, self.formats, strict=True))
        time = sum(parts) / self.a_second
        return time if math.isfinite(time) else math.nan


class FoundTime(NamedTuple):
    """The time column, if there is one, or why there is none; and what is wrong with the order of its rows."""

    column: TimeColumn | None
    why: str = ""
    disorder: TableError | None = None


def find(name: str, look: Any, kinds: dict[str, str], wanted: str | bool | None, style: NumberStyle) -> FoundTime:
    """The time column of a table, from its first rows: the one that is wanted, or the obvious one."""
    if wanted is False:
        return FoundTime(None, "it was left out on request")
    if isinstance(wanted, str):
        column = _wanted(name, look, kinds, wanted, style)
        steps = _steps(column.seconds(look))
        # A few numbers of no date may be what someone tries out.
        disorder = _disorder(name, column, steps, _BACKWARDS) if column.dated or len(steps) >= 10 else None
        return FoundTime(column, "", disorder)
    unsorted, why = None, "no column reads as a time"
    for column, rank in _candidates(look, kinds, style):
        time = column.seconds(look)
        steps = _steps(time)
        if len(steps) and not np.any(steps):
            why = f"column {column.name!r} never changes"
            continue
        is_date = kinds[column.names[0]] == "date"
        disorder = _disorder(name, column, steps, _BACKWARDS if is_date else 0.0)
        # A column whose name says nothing must come first, or go in even steps: it may count something else.
        likely = rank < 2 or column.names[0] == next(iter(kinds)) or _regular(steps)
        if disorder is None and (is_date or (len(steps) and likely)):
            return FoundTime(column)
        # Of a name that may mean a duration, times are only those that would go in even steps if they were sorted.
        if disorder is not None and column.dated and rank < 2 and (rank == 0 or _regular(_steps(np.sort(time)))):
            unsorted = unsorted or FoundTime(column, "", disorder)
        elif disorder is not None and rank < 2:
            why = f"column {column.name!r} goes backwards"
    return unsorted or FoundTime(None, why)


def _candidates(look: Any, kinds: dict[str, str], style: NumberStyle) -> list[tuple[TimeColumn, int]]:
    """Columns that may hold the time, with a rank: 0 by type or name, 1 if the name is like one, else 2."""
    clocks = [c for c in kinds if kinds[c] == "clock"]
    found = []
    for date in sorted((c for c in kinds if kinds[c] == "date"), key=lambda c: _rank(c)):
        column = _column(look, kinds, (date,))
        if clocks and not np.any(np.nan_to_num(column.seconds(look)) % _DAY):
            column = _column(look, kinds, (date, clocks[0]))
        found.append((column, 0))
    for number in sorted((c for c in kinds if kinds[c] == "number"), key=lambda c: _rank(c)):
        rank = _rank(number)
        if rank and not _is_large(look.column(number), style):
            continue
        column = _column(look, kinds, (number,), style)
        day = column.formats == ("%Y%m%d",)
        if day and clocks:
            pair = _column(look, kinds, (number, clocks[0]), style)
            found.append((pair, min(rank, 1)))
        elif (column.dated and not (day and rank == 2)) or rank == 0:
            found.append((column, rank))
    return found


def _is_large(column: Any, style: NumberStyle) -> bool:
    """Whether some of the first numbers may be a date: most columns hold none, and there may be very many."""
    first = columns.numbers(columns.plain(column.slice(0, 50)), style)[0]
    return bool(np.any(first >= 1970 * min(_DIGITS.values())))


def _wanted(name: str, look: Any, kinds: dict[str, str], wanted: str, style: NumberStyle) -> TimeColumn:
    names = (wanted,) if wanted in kinds else tuple(part.strip() for part in wanted.split("+"))
    unknown = [column for column in names if column not in kinds]
    if unknown:
        raise TableError(f"{name}: there is no column {unknown[0]!r} to take the time from. It has: {_list(kinds)}.")
    have = tuple(kinds[column] for column in names)
    if have not in (("date",), ("number",), ("date", "clock"), ("number", "clock")):
        raise TableError(
            f"{name}: column {wanted!r} does not read as a time (it is {' and '.join(have)}). A time column holds "
            "numbers, ISO dates such as 2007-02-01 17:24:00, or is a date and a time of day as 'Date+Time'."
        )
    return _column(look, kinds, names, style)


def _disorder(name: str, column: TimeColumn, steps: FloatArray, allowed: float) -> TableError | None:
    """What is wrong with the order of the rows, if more than this share of the steps go back."""
    back = int((steps < 0).sum())
    if back <= allowed * len(steps):
        return None
    remedy = "or pass time=False to take the rows as they come."
    if np.mean(steps <= 0) >= 0.9:
        how = f"its rows run from the newest to the oldest by column {column.name!r}."
    else:
        how = f"its rows are not sorted by time: column {column.name!r} goes back {back:,} times."
    return TableError(f"{name}: {how} Sort them by time, with sort=True if they fit in memory; {remedy}")


def _column(look: Any, kinds: dict[str, str], names: tuple[str, ...], style: NumberStyle = PLAIN) -> TimeColumn:
    first = columns.plain(look.column(names[0]))
    formats: list[str | None] = []
    if kinds[names[0]] == "number":
        values = columns.numbers(first, style)[0]
        middle = float(np.median(values[np.isfinite(values)])) if np.isfinite(values).any() else 0.0
        form = _digits(first, values, middle, style)
        if form is None:
            units = unix_units(middle)
            return TimeColumn(names[:1], (None,), units or 1.0, units is not None, style)
        formats.append(form)
    else:
        formats.append(date_format(first) or "iso")
    formats += [clock_format(columns.plain(look.column(n))) or "clock %H:%M:%S" for n in names[1:]]
    return TimeColumn(names, tuple(formats), style=style, zone=_zone(first))


def _digits(array: Any, values: FloatArray, middle: float, style: NumberStyle) -> str | None:
    """The format of dates that are written as digits only."""
    for form, a_year in _DIGITS.items():
        if 1970 <= middle / a_year < 2100:
            present = np.isfinite(values)
            return form if np.isfinite(_seconds(array, form, style)[present]).mean() >= 0.9 else None
    return None


def _zone(array: Any) -> str | None:
    """The zone of an array of dates: that which all have, UTC if they have several, None if some have none."""
    if pt.is_timestamp(array.type):
        return str(array.type.tz) if array.type.tz else None
    if not columns.is_text(array):
        return None
    texts = pc.utf8_trim_whitespace(array.slice(0, 10_000))
    present = texts.filter(pc.invert(pc.is_in(texts, pa.array(fields.MISSING)))).drop_null()
    zones = set(pc.extract_regex(present, _ZONE).field("zone").to_pylist())
    if not zones or zones & {None, ""}:
        return None
    whole = {"+00:00" if zone == "Z" else f"{zone[:3]}:{zone[3:].removeprefix(':') or '00'}" for zone in zones}
    return "UTC" if len(whole) > 1 or whole == {"+00:00"} else whole.pop()


def unix_units(time: float) -> float | None:
    """How many units of a number make a second, if it looks like Unix time (of 2001 to 2099) in s, ms, µs or ns."""
    return next((units for units in fields.UNITS_PER_SECOND.values() if _EARLIEST <= time / units < _LATEST), None)


def _rank(column: str) -> int:
    name = column.strip().lower()
    return 0 if _NAME.fullmatch(name) else 1 if _LIKE.search(name) else 2


def _steps(time: FloatArray) -> FloatArray:
    return np.diff(time[np.isfinite(time)])


def _regular(steps: FloatArray) -> bool:
    usual = np.median(steps) if len(steps) else 0.0
    return bool(usual > 0 and np.mean(np.abs(steps - usual) <= 0.1 * usual) >= 0.9)


def _list(kinds: dict[str, str]) -> str:
    names = [repr(column) for column in kinds]
    return ", ".join(names[:20]) + (f" and {len(names) - 20} more" if len(names) > 20 else "")


def date_format(array: Any) -> str | None:
    """How a column of text writes its dates, if more than half of it are dates. Whether 1/2 is the first of February
    or the second of January the data decide: by which of them time goes back less often, then by which the rows are
    closer together."""
    return _format(array, ("iso", *_ALL))


def clock_format(array: Any) -> str | None:
    """How a column of text writes the time of day, if more than half of it are such."""
    return _format(array, tuple(f"clock {c}" for c in _CLOCKS))


def _format(array: Any, formats: tuple[str, ...]) -> str | None:
    if not columns.is_text(array):
        return None
    present = array.filter(pc.invert(pc.is_in(pc.utf8_trim_whitespace(array), pa.array(fields.MISSING)))).drop_null()
    best: tuple[tuple[float, ...], str] | None = None
    for form in _likely(tuple(present.slice(0, 50).to_pylist()), formats):
        time = fields.times(present, form)
        time = time[np.isfinite(time)]
        if 2 * len(time) > len(present):
            steps = np.diff(time)
            score = (len(time), -int((steps < 0).sum()), -float(np.ptp(time)))
            best = max(best or (score, form), (score, form), key=lambda found: found[0])
    return best[1] if best else None


@functools.lru_cache(64)  # a table's kinds of columns, its time and a pipe's warm-up ask again and again
def _likely(texts: tuple[str, ...], formats: tuple[str, ...]) -> tuple[str, ...]:
    """The formats by which more than half of these texts can be read."""
    few = pa.array(texts, pa.string())
    return tuple(form for form in formats if texts and 2 * np.isfinite(fields.times(few, form)).sum() > len(few))


def _seconds(array: Any, form: str | None, style: NumberStyle = PLAIN) -> FloatArray:
    """Seconds since 1970 (of the day, for a time of day), NaN where missing or written otherwise."""
    of = array.type
    if pt.is_timestamp(of) or pt.is_time(of):
        return fields.timestamps(array)
    if pt.is_date(of):
        return fields.timestamps(array.cast(pa.timestamp("ms")))
    if columns.is_text(array):
        return fields.times(array, form, style)
    values = columns.numbers(array)[0]
    if form is None:
        return values
    whole = pa.array(np.where(np.abs(values) < 1e15, values, np.nan), from_pandas=True)
    return fields.times(whole.cast(pa.int64(), safe=False).cast(pa.string()), form)
