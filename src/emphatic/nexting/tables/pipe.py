"""Readings in lines of text, JSON or CSV, whatever comes and in bounded memory; and one of them as a row of a table."""

from __future__ import annotations

import csv
import math
import os
import select
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, NamedTuple

import pyarrow as pa

from emphatic.nexting.tables import fields
from emphatic.nexting.tables import text as files_of_text
from emphatic.nexting.tables.fields import Notation, NumberStyle, TimeColumn, unix_units
from emphatic.nexting.tables.frames import Frame
from emphatic.nexting.tables.table import Malformed, ReadingOptions, Table, TableError, table_of
from emphatic.nexting.tables.text import Header, find_units, is_blank, read_header, read_object, split_fields

__all__ = ["Malformed", "Notation", "ParsedRow", "ReadingOptions", "Readings", "RowParser", "collect"]
__all__ += ["collect_readings", "line_blocks"]

#: A longer line is skipped, and never in memory as a whole.
LONGEST = 1 << 23
_CHUNK = 1 << 16
#: The most readings that are learned from at once.
BLOCK = 256

Reading = dict[str, Any]


# ---------------------------------------------------------------------- lines


class TextForm(NamedTuple):
    """The form of readings: the delimiter of CSV (None of JSON), and its columns that have no name."""

    delimiter: str | None = None
    unnamed: tuple[str, ...] = ()


JSON = TextForm()


def line_blocks(fd: int, wake: int | None = None) -> Iterator[list[bytes | None]]:
    """The lines of a pipe as they come, at most ``BLOCK`` of the waiting lines at a time; None for a line too long.

    Args:
        fd: The descriptor to read from.
        wake: A descriptor that ends the iteration as soon as it can be read; otherwise it ends with the pipe.
    """
    for lines in _chunks(fd, wake):
        for begin in range(0, len(lines), BLOCK):
            yield lines[begin : begin + BLOCK]


def _chunks(fd: int, wake: int | None) -> Iterator[list[bytes | None]]:
    """All the lines that end in each chunk that is read."""
    tail, skipping = b"", False  # the beginning of a line; whether that line is too long and its end is awaited
    watched = [fd] if wake is None else [fd, wake]  # reading alone would block a thread that is to end
    while True:
        ready, _, _ = select.select(watched, [], [])
        if wake in ready:
            return
        chunk = os.read(fd, _CHUNK)
        *lines, tail = (tail + chunk).split(b"\n")
        yield [None if (skipping and i == 0) or len(line) > LONGEST else line for i, line in enumerate(lines)]
        skipping = skipping and not lines
        if len(tail) > LONGEST:
            tail, skipping = b"", True
        if not chunk:
            if tail.strip() or skipping:
                yield [None if skipping else tail]
            return


class Readings:
    """The readings in lines of text, each with the number of its line; ``Malformed`` in place of any other line.

    Iterating reads all ``lines``; ``feed`` reads those that are given to it, and ``finish`` what is still held back.
    The lines are JSON objects, or CSV as in files: names may be quoted or absent, and before them may come a byte order
    mark, comments and blank lines; units below them are skipped, and so are the names when they come again. A row of
    CSV is one line; fields at its end may be absent. ``known`` are the columns of a model, if there is one: the first
    line must have some of them, or be a row of the columns ``header`` that the model's own log had. ``delimiter`` is
    the first that is tried. Without a model, CSV is held back until ``look`` lines tell how it is written. A first line
    that is not text, or names a column twice, is a ``TableError``.

    >>> list(Readings([b"time;power", b"0;1,5", b"1;2;3"], look=2))
    [(2, {'time': '0', 'power': '1,5'}), (3, Malformed('3 fields, where the header has 2'))]
    """

    def __init__(
        self,
        lines: Iterable[bytes | None] = (),
        known: Collection[str] = (),
        delimiter: str | None = None,
        look: int = files_of_text.LOOK_LINES,
        header: Sequence[str] = (),
    ) -> None:
        self._lines, self._known, self._preferred, self._look = lines, dict.fromkeys(known), delimiter, look
        self._model_header = Header(tuple(header), (), False)
        self._number = 0
        self._waiting: list[tuple[int, str]] = []
        #: That of CSV, once it is known.
        self.delimiter: str | None = None
        self._header: Header | None = None
        self._json = False

    @property
    def form(self) -> TextForm:
        """How the readings are written, as far as is known."""
        return TextForm(self.delimiter, self._header.unnamed if self._header else ())

    def __iter__(self) -> Iterator[tuple[int, Reading | Malformed]]:
        yield from self.feed(self._lines)
        yield from self.finish()

    def feed(self, lines: Iterable[bytes | None]) -> Iterator[tuple[int, Reading | Malformed]]:
        """The readings in the next lines."""
        for number, line in enumerate(lines, start=self._number + 1):
            self._number = number
            try:
                text = _text(line)
            except Malformed as error:
                if line is not None and not (self._json or self._header or self._waiting or b"{" in line):
                    remedy = "Convert them: iconv -f latin1 -t utf-8"
                    raise TableError(f"line {number} of the readings is {error}. {remedy}") from None
                yield number, error
                continue
            if self._json or self._header:
                yield from self._read(number, text)
            elif self._waiting or not (text.startswith("#") or not text.strip()):
                self._waiting.append((number, text))
                if self._known or _is_json(self._waiting[0][1]) or len(self._waiting) >= self._look:
                    yield from self.finish()

    def finish(self) -> Iterator[tuple[int, Reading | Malformed]]:
        """The readings in lines that were held back, which were the last or enough to tell how all are written."""
        waiting, self._waiting = self._waiting, []
        if waiting:
            yield from self._begin(waiting)

    def _begin(self, waiting: Sequence[tuple[int, str]]) -> Iterator[tuple[int, Reading | Malformed]]:
        """The first lines, now that they tell how all are written."""
        self._json = 2 * sum(_is_json(text) for _, text in waiting) > len(waiting)
        units = -1
        for i, (number, text) in enumerate(waiting):
            if not self._json and self._header is None:
                texts = [text for _, text in waiting[i:]]
                try:
                    self.delimiter, self._header = self._find_header(texts)
                except (csv.Error, Malformed) as error:
                    yield number, Malformed(str(error))
                    continue
                if self._header.present:
                    units = i + 1 if self._has_units(texts[1:]) else -1
                    continue
            if i == units:
                yield number, Malformed(files_of_text.UNITS)
            else:
                yield from self._read(number, text)

    def _has_units(self, texts: Sequence[str]) -> bool:
        """Whether the first of the rows below a header holds units, as in a file."""
        assert self._header is not None
        assert self.delimiter is not None
        rows = [row for text in texts for _, row in self._read(0, text) if isinstance(row, dict)]
        if len(rows) < 3 or not texts[0].strip():
            return False
        table = pa.table({name: pa.array([row[name] for row in rows], pa.string()) for name in self._header.names})
        return bool(find_units(table, fields.find_style([c.combine_chunks() for c in table.columns], self.delimiter)))

    def _read(self, number: int, text: str) -> Iterator[tuple[int, Reading | Malformed]]:
        """The reading in a line; none in a blank one."""
        header = self._header
        if not text.strip() if header is None else is_blank(text, self.delimiter or ",", len(header.names)):
            return
        try:
            yield number, _json(text) if header is None else self._csv(text, header)
        except Malformed as error:
            yield number, error

    def _find_header(self, texts: Sequence[str]) -> tuple[str, Header]:
        line = texts[0]
        if self._known:
            headers = {}
            for delimiter in (self._preferred or ",", *files_of_text.DELIMITERS):
                with suppress(csv.Error):  # a quoted field that is too long
                    headers[delimiter] = read_header(line, delimiter, self._known)
            delimiter = max(headers, key=lambda d: len(self._known.keys() & headers[d].names), default=",")
            header = headers.get(delimiter, Header((), (), False))
            if not self._known.keys() & header.names:
                if self._preferred and len(split_fields(line, self._preferred)[0]) == len(self._model_header.names) > 1:
                    return self._preferred, self._model_header
                columns = ", ".join(list(self._known)[:6])
                raise Malformed(f"{shorten(line)} is neither JSON nor a header of CSV with one of {columns}")
        else:
            delimiter = self._preferred or files_of_text.find_delimiter(texts)
            header = read_header(line, delimiter)
            usual, lines = Counter(len(split_fields(text, delimiter)[0]) for text in texts).most_common(1)[0]
            if len(header.names) < usual and lines > len(texts) / 2:
                have = files_of_text.count_fields(len(header.names))
                raise Malformed(f"{have}, where the lines that follow have {usual}")
        repeated = files_of_text.find_repeated(header.names)
        if repeated is not None:
            raise TableError(f"the header has more than one column {repeated!r}. Give each its own name.")
        return delimiter, header

    def _csv(self, text: str, header: Header) -> Reading:
        assert self.delimiter is not None
        names = header.names
        try:
            values, closed = split_fields(text, self.delimiter)
        except csv.Error as error:
            raise Malformed(f"not CSV: {error}") from None
        if not closed:
            raise Malformed(files_of_text.QUOTE)
        if len(values) != len(names) and text.startswith("#"):
            raise Malformed(files_of_text.COMMENT)
        if len(values) > len(names):
            raise Malformed(files_of_text.too_many(len(values), len(names)))
        repeats = header.present and names[0] in (values[0], values[0].strip())
        if repeats and read_header(text, self.delimiter, names).names == names:
            raise Malformed(files_of_text.HEADER_AGAIN)
        return dict(zip(names, values + [""] * (len(names) - len(values)), strict=True))


ANY_READINGS = ReadingOptions()


def collect(
    rows: Sequence[Mapping[str, Any]],
    delimiter: str | None = None,
    unnamed: Sequence[str] = (),
    options: ReadingOptions = ANY_READINGS,
) -> Table:
    """A table of readings, as if they had been read from a file of JSON lines or CSV, to which more will come.

    Names that only a few stray readings have are no columns.

    Args:
        rows: The readings.
        delimiter: That of CSV; None for JSON.
        unnamed: The columns of CSV without a name.
        options: What the user says about them.
    """
    objects = files_of_text.find_nested(rows)
    rare = _stray(rows)
    names = [n for n in dict.fromkeys(name for row in rows for name in row) if n not in objects and n not in rare]
    columns = [pa.array([fields.as_text(row.get(name)) for row in rows], pa.string()) for name in names]
    frame = Frame(pa.Table.from_arrays(columns, names))
    nested = tuple(name for name in objects if not any(column.startswith(f"{name}.") for column in names))
    if delimiter is not None:
        frame.style = fields.find_style(columns, delimiter)
    frame.delimiter, frame.nested, frame.unnamed, frame.rare = delimiter, nested, tuple(unnamed), rare
    return table_of("the readings", frame, options._replace(ordered=False, is_complete=False))


def collect_readings(
    numbered: Sequence[tuple[int, Reading]], form: TextForm = JSON, options: ReadingOptions = ANY_READINGS
) -> tuple[Table, set[int]]:
    """The table of numbered readings, and the lines of stray ones: those that have none of its columns but the time."""
    rows = [row for _, row in numbered]
    table = collect(rows, *form, options)
    columns = {*table.names, *table.categories} if table.pivoted is None else {*table.pivoted.keys}
    stray = {line for line, row in numbered if not columns & row.keys()}
    if stray:
        rows = [row for line, row in numbered if line not in stray]
        table = collect(rows, *form, options)
    return table, stray


def _stray(rows: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """Names in fewer than one reading of twenty, and why they are left out; where nine of ten readings have none."""
    counts = Counter(name for row in rows for name in row)
    rare = {name: count for name, count in counts.items() if 20 * count < len(rows)}
    with_rare = sum(any(name in rare for name in row) for row in rows)
    if 10 * with_rare > len(rows):
        return {}
    return {name: f"in only {count} of the first {len(rows)} readings" for name, count in rare.items()}


def _is_json(text: str) -> bool:
    return text.lstrip().startswith("{")


def _json(text: str) -> Reading:
    if not _is_json(text):
        raise Malformed(f"{shorten(text)} is not an object of names and readings")
    row = read_object(text)
    return row | files_of_text.expand(row) if "{" in text[1:] else row


def _text(line: bytes | None) -> str:
    """A line as text, without the byte order mark, with which each of several joined files may begin."""
    if line is None:
        raise Malformed(f"longer than {LONGEST >> 20} MiB")
    try:
        text = line.decode("utf-8").strip("\r\n")
    except UnicodeDecodeError:
        raise Malformed("not UTF-8 text") from None
    return text.removeprefix("\ufeff")


# ---------------------------------------------------------------------- rows


#: The type of nearly all readings.
_FLOATS = frozenset({float})


class ParsedRow(NamedTuple):
    """One row: its readings (NaN missing), labels (None missing), time in seconds and as it was written.

    ``problems`` are what was there but could not be read, and so counts as missing: {what is wrong: the text}.
    ``readable`` is whether anything was there that could, or nothing was wrong but that values are missing.
    """

    values: list[float]
    labels: dict[str, str | None]
    time: float
    time_text: object
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
        time, long = self.notation.time, self.notation.long
        signals = (*self.names, *self.categories) if long is None else (*long.keys, *long.values)
        return (*signals, *((time.name, *time.names) if time else ()))

    def reported(self, row: Mapping[str, Any]) -> list[str] | None:
        """The columns that a row in long format reports, also where it says that they have no value; None of others."""
        if self.notation.long is None:
            return None
        spread = self.notation.long.spread(row, self.notation.style) or {}
        return [name for name in (*self.names, *self.categories) if name in spread]

    def parse(self, row: Mapping[str, Any]) -> ParsedRow:
        """One row."""
        if self.notation.long is not None:
            row = self.notation.long.spread(row, self.notation.style) or {}
        values: list[Any] = list(map(row.get, self.names))
        # Finite floats alone are the most common case, and are recognised without a call for each of them.
        if values and _FLOATS.issuperset(map(type, values)) and math.isfinite(sum(values)):
            time, time_text, problems = self._time(row)
            return ParsedRow(values, self._labels(row) if self.categories else {}, time, time_text, problems, True)
        problems = {}
        values = []
        for name, style in zip(self.names, self._styles, strict=True):
            value, readable = _as_float(row.get(name), style)
            if not readable:
                problems[f"{name!r} is not a number"] = shorten(row[name])
            elif math.isinf(value):
                problems[f"{name!r} is not finite"] = shorten(row[name])
                value = math.nan
            values.append(value)
        labels = self._labels(row)
        time, time_text, problem = self._time(row)
        present = any(name in row for name in (*self.names, *self.categories))
        usable = any(map(math.isfinite, values)) or any(labels.values()) or math.isfinite(time)
        readable = present and (usable or not problems)
        return ParsedRow(values, labels, time, time_text, problems | problem, readable)

    def _labels(self, row: Mapping[str, Any]) -> dict[str, str | None]:
        return {name: fields.parse_label(fields.as_text(row.get(name))) for name in self.categories}

    def _time(self, row: Mapping[str, Any]) -> tuple[float, object, dict[str, str]]:
        """The time in seconds, NaN if there is none; as it was written; and what was wrong with it."""
        column = self.notation.time
        if column is None:
            return math.nan, None, {}
        names = (column.name,) if column.name in row else column.names  # a date and a time of day may come as one
        cells = [row[name] for name in names if name in row]
        if not cells:
            return math.nan, None, {f"the time {column.name!r} is absent": "no such column"}
        written = cells[0] if len(names) == 1 else " ".join(map(str, cells))
        if (
            self._time_is_known
            and column.formats == (None,)
            and written.__class__ is float
            and written - written == 0.0
        ):
            return written / column.a_second, written, {}
        texts = [fields.as_text(value) for value in cells]
        if any(fields.is_missing(text) for text in texts):
            return math.nan, written if isinstance(written, str) else None, {}
        joined = " ".join(text or "" for text in texts)
        for tried in (column,) if self._time_is_known else _formats(column, joined):
            stamps = texts if len(texts) == len(tried.formats) else [joined]
            time = tried.parse(stamps) if len(stamps) == len(tried.formats) else math.nan
            if math.isfinite(time):
                if not self._time_is_known:
                    self._time_is_known, self.notation = True, replace(self.notation, time=tried)
                return time, written, {}
        return math.nan, None, {f"the time {column.name!r} cannot be read": shorten(written)}


def _formats(column: TimeColumn, text: str) -> Iterator[TimeColumn]:
    """The format of a time column, and others that may read this text."""
    yield column
    yield replace(column, formats=("iso",), a_second=1.0)
    units = unix_units(fields.parse_number(text)[0]) if column.dated else None
    if units is not None:
        yield replace(column, formats=(None,), a_second=units)


def _as_float(value: object, style: NumberStyle) -> tuple[float, bool]:
    if isinstance(value, bool | int | float):
        try:
            return float(value), True
        except OverflowError:
            return math.inf, True
    return fields.parse_number(fields.as_text(value), style)


def shorten(value: object) -> str:
    """A value as a message can hold it."""
    text = repr(value[:50] if isinstance(value, str) else value)
    return text if len(text) <= 40 else text[:37] + "..."
