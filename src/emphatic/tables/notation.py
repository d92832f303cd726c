"""Notation: how the text of a table is written, and one row of it read as a file's rows are."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from emphatic.tables import fields
from emphatic.tables.fields import PLAIN, NumberStyle
from emphatic.tables.times import TimeColumn, unix_units

__all__ = ["Notation", "ParsedRow", "RowParser", "shorten"]


@dataclass(frozen=True)
class Notation:
    """How the text of a table is written: the delimiter of CSV (None of others) and its columns in their order, the
    style of numbers, the columns that are switches or have percent signs, and the time."""

    delimiter: str | None = None
    style: NumberStyle = PLAIN
    time: TimeColumn | None = None
    switches: tuple[str, ...] = ()
    header: tuple[str, ...] = ()
    percents: tuple[str, ...] = ()

    def style_of(self, column: str) -> NumberStyle:
        """How the numbers of a column are written."""
        return replace(self.style, switch=column in self.switches, percent=column in self.percents)

    def config(self) -> dict[str, Any]:
        """As JSON can hold it."""
        time = self.time and {
            "columns": list(self.time.names),
            "formats": list(self.time.formats),
            "units_per_second": self.time.a_second,
            "dated": self.time.dated,
            "zone": self.time.zone,
        }
        own: dict[str, Any] = {
            "delimiter": self.delimiter,
            "decimal_comma": self.style.comma,
            "thousands": self.style.thousands,
        }
        own |= {"switches": list(self.switches), "percents": list(self.percents)}
        return own | {"header": list(self.header), "time": time}

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> Notation:
        """The notation of which this is the ``config``; entries that it lacks have their defaults."""
        try:
            delimiter, time, thousands = config["delimiter"], config["time"], config.get("thousands")
            style = NumberStyle(bool(config["decimal_comma"]), thousands)
            names = ("switches", "header", "percents")
            switches, header, percents = (tuple(map(str, config.get(name, ()))) for name in names)
            if time is not None:
                formats, units, zone = tuple(time["formats"]), float(time["units_per_second"]), time.get("zone")
                time = TimeColumn(tuple(map(str, time["columns"])), formats, units, bool(time["dated"]), style, zone)
                valid = all(isinstance(form, str | None) for form in (*formats, zone)) and units > 0
                if not valid or len(formats) not in (1, len(time.names)):
                    raise ValueError
            for sign in (delimiter, thousands):
                if sign is not None and (not isinstance(sign, str) or len(sign) != 1):
                    raise ValueError
        except (KeyError, TypeError, ValueError):
            raise ValueError(f"the model's notation is damaged: {config!r:.200}. Learn the model again.") from None
        return cls(delimiter, style, time, switches, header, percents)


class ParsedRow(NamedTuple):
    """One row: its readings (NaN missing), labels (None missing), time in seconds and as it was written.

    ``problems`` are what was there but could not be read, and so counts as missing: {what is wrong: the text}.
    ``readable`` is whether anything was there that could, or nothing was wrong but that values are missing.
    """

    values: list[float]
    labels: dict[str, str | None]
    time: float
    time_text: Any
    problems: dict[str, str]
    readable: bool


class RowParser:
    """Reads rows, {column: text or JSON value}, as the file reader would in a table of these columns.

    Times are read in the table's own format. Where the first time of all is written otherwise, ISO and (for dates) Unix
    time are tried, and the one that reads it is the format from then on.
    """

    def __init__(self, names: Sequence[str], categories: Sequence[str], notation: Notation) -> None:
        self.names, self.categories, self.notation = tuple(names), tuple(categories), notation
        self._styles = [notation.style_of(name) for name in self.names]
        self._time_is_known = False

    @property
    def columns(self) -> tuple[str, ...]:
        """All columns that a row may have."""
        time = self.notation.time
        return (*self.names, *self.categories, *((time.name, *time.names) if time else ()))

    def parse(self, row: Mapping[str, Any]) -> ParsedRow:
        """One row."""
        problems: dict[str, str] = {}
        values = []
        for name, style in zip(self.names, self._styles, strict=True):
            given = row.get(name)
            if given.__class__ is float and given - given == 0.0:  # finite, which is the most common and quickest case
                values.append(given)
                continue
            value, could = _number(given, style)
            if not could:
                problems[f"{name!r} is not a number"] = shorten(row[name])
            elif math.isinf(value):
                problems[f"{name!r} is not finite"] = shorten(row[name])
                value = math.nan
            values.append(value)
        labels = {name: fields.label(fields.as_text(row.get(name))) for name in self.categories}
        time, time_text, problem = self._time(row)
        present = any(name in row for name in (*self.names, *self.categories))
        found = any(map(math.isfinite, values)) or any(labels.values()) or math.isfinite(time)
        readable = present and (found or not problems)
        return ParsedRow(values, labels, time, time_text, problems | problem, readable)

    def _time(self, row: Mapping[str, Any]) -> tuple[float, Any, dict[str, str]]:
        """The time in seconds, NaN if there is none; as it was written; and what was wrong with it."""
        column = self.notation.time
        if column is None:
            return math.nan, None, {}
        names = (column.name,) if column.name in row else column.names  # a date and a time of day may come as one
        given = [row[name] for name in names if name in row]
        if not given:
            return math.nan, None, {f"the time {column.name!r} is absent": "no such column"}
        written = given[0] if len(names) == 1 else " ".join(map(str, given))
        if (
            self._time_is_known
            and column.formats == (None,)
            and written.__class__ is float
            and written - written == 0.0
        ):
            return written / column.a_second, written, {}
        texts = [fields.as_text(value) for value in given]
        if any(fields.is_missing(text) for text in texts):
            return math.nan, written if isinstance(written, str) else None, {}
        joined = " ".join(text or "" for text in texts)
        for tried in (column,) if self._time_is_known else _formats(column, joined):
            parts = texts if len(texts) == len(tried.formats) else [joined]
            time = tried.parse(parts) if len(parts) == len(tried.formats) else math.nan
            if math.isfinite(time):
                if not self._time_is_known:
                    self._time_is_known, self.notation = True, replace(self.notation, time=tried)
                return time, written, {}
        return math.nan, None, {f"the time {column.name!r} cannot be read": shorten(written)}


def _formats(column: TimeColumn, text: str) -> Iterator[TimeColumn]:
    """The format of a time column, and others that may read this text."""
    yield column
    yield replace(column, formats=("iso",), a_second=1.0)
    units = unix_units(fields.number(text)[0]) if column.dated else None
    if units is not None:
        yield replace(column, formats=(None,), a_second=units)


def _number(value: Any, style: NumberStyle) -> tuple[float, bool]:
    if isinstance(value, bool | int | float):
        try:
            return float(value), True
        except OverflowError:
            return math.inf, True
    return fields.number(fields.as_text(value), style)


def shorten(value: Any) -> str:
    """A value as a message can hold it."""
    text = repr(value[:50] if isinstance(value, str) else value)
    return text if len(text) <= 40 else text[:37] + "..."
