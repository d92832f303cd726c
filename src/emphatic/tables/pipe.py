"""Readings in lines of text: JSON, or CSV; whatever comes, in bounded memory."""

from __future__ import annotations

import csv
import os
import select
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

import pyarrow as pa

from emphatic.tables import fields
from emphatic.tables.csv_records import COMMENT, HEADER_AGAIN, QUOTE, is_blank, split_fields, too_many
from emphatic.tables.delimited import (
    DELIMITERS,
    LOOK_LINES,
    UNITS,
    Header,
    find_delimiter,
    find_repeated,
    find_units,
    read_header,
)  # fmt: skip
from emphatic.tables.frames import Frame
from emphatic.tables.jsonlines import find_nested, read_object
from emphatic.tables.notation import shorten
from emphatic.tables.opening import table_of
from emphatic.tables.table import Table
from emphatic.tables.table_errors import Malformed, TableError

__all__ = [
    "BLOCK", "JSON", "Malformed", "Reading", "Readings", "TextForm", "collect", "collect_readings", "line_blocks",
]  # fmt: skip

#: A longer line is skipped, without being held.
LONGEST = 1 << 23
_CHUNK = 1 << 16
#: The most readings that are learned from at once.
BLOCK = 256

Reading = dict[str, Any]


class TextForm(NamedTuple):
    """The form of readings: the delimiter of CSV (None of JSON), and its columns that have no name."""

    delimiter: str | None = None
    unnamed: tuple[str, ...] = ()


JSON = TextForm()


def line_blocks(fd: int, wake: int | None = None) -> Iterator[list[bytes | None]]:
    """The lines of a pipe as they come, at most ``BLOCK`` of those that wait at a time; None for one too long.

    Ends with the pipe, or when ``wake`` can be read.
    """
    for lines in _chunks(fd, wake):
        for begin in range(0, len(lines), BLOCK):
            yield lines[begin : begin + BLOCK]


def _chunks(fd: int, wake: int | None) -> Iterator[list[bytes | None]]:
    """All the lines that end in each chunk that is read."""
    held, skipping = b"", False
    watched = [fd] if wake is None else [fd, wake]
    while True:
        ready, _, _ = select.select(watched, [], [])
        if wake in ready:
            return
        chunk = os.read(fd, _CHUNK)
        *whole, rest = (held + chunk).split(b"\n")
        yield [None if (skipping and i == 0) or len(line) > LONGEST else line for i, line in enumerate(whole)]
        skipping = skipping and not whole
        held = rest
        if len(held) > LONGEST:
            held, skipping = b"", True
        if not chunk:
            if held.strip() or skipping:
                yield [None if skipping else held]
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
        look: int = LOOK_LINES,
        header: Sequence[str] = (),
    ) -> None:
        self._lines, self._known, self._given, self._look = lines, dict.fromkeys(known), delimiter, look
        self._own = Header(tuple(header), (), False)
        self._number = 0
        self._held: list[tuple[int, str]] = []
        #: Of CSV, once it is found.
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
            if line is not None and not (self._json or self._header or self._held):
                _refuse_encoding(line, number)
            try:
                text = _text(line, number)
            except Malformed as error:
                yield number, error
                continue
            if self._json or self._header:
                yield from self._read(number, text)
            elif self._held or not (text.startswith("#") or not text.strip()):
                self._held.append((number, text))
                if self._known or _is_json(self._held[0][1]) or len(self._held) >= self._look:
                    yield from self.finish()

    def finish(self) -> Iterator[tuple[int, Reading | Malformed]]:
        """The readings in lines that were held back, which were the last or enough to tell how all are written."""
        held, self._held = self._held, []
        if held:
            yield from self._begin(held)

    def _begin(self, held: Sequence[tuple[int, str]]) -> Iterator[tuple[int, Reading | Malformed]]:
        """The first lines, now that they tell how all are written."""
        self._json = 2 * sum(_is_json(text) for _, text in held) > len(held)
        units = -1
        for i, (number, text) in enumerate(held):
            if not self._json and self._header is None:
                texts = [text for _, text in held[i:]]
                try:
                    self.delimiter, self._header = self._find_header(texts)
                except (csv.Error, Malformed) as error:
                    yield number, Malformed(str(error))
                    continue
                if self._header.present:
                    units = i + 1 if self._has_units(texts[1:]) else -1
                    continue
            if i == units:
                yield number, Malformed(UNITS)
            else:
                yield from self._read(number, text)

    def _has_units(self, texts: Sequence[str]) -> bool:
        """Whether the first of the rows below a header holds units, as in a file."""
        assert self._header is not None
        assert self.delimiter is not None
        found = [r for _, r in (each for text in texts for each in self._read(0, text)) if isinstance(r, dict)]
        if len(found) < 3 or not texts[0].strip():
            return False
        table = pa.table({name: pa.array([row[name] for row in found], pa.string()) for name in self._header.names})
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
        first = texts[0]
        if self._known:
            tried = {}
            for delimiter in (self._given or ",", *DELIMITERS):
                with suppress(csv.Error):  # a quoted field that is too long
                    tried[delimiter] = read_header(first, delimiter, self._known)
            delimiter = max(tried, key=lambda d: len(self._known.keys() & tried[d].names), default=",")
            header = tried.get(delimiter, Header((), (), False))
            if not self._known.keys() & header.names:
                if self._given and len(split_fields(first, self._given)[0]) == len(self._own.names) > 1:
                    return self._given, self._own
                some = ", ".join(list(self._known)[:6])
                raise Malformed(f"{shorten(first)} is neither JSON nor a header of CSV with one of {some}")
        else:
            delimiter = self._given or find_delimiter(texts)
            header = read_header(first, delimiter)
            usual, lines = Counter(len(split_fields(text, delimiter)[0]) for text in texts).most_common(1)[0]
            if len(header.names) < usual and lines > len(texts) / 2:
                raise Malformed(f"{len(header.names)} fields, where the lines that follow have {usual}")
        repeated = find_repeated(header.names)
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
            raise Malformed(QUOTE)
        if len(values) != len(names) and text.startswith("#"):
            raise Malformed(COMMENT)
        if len(values) > len(names):
            raise Malformed(too_many(len(values), len(names)))
        if header.present and names[0] in (values[0], values[0].strip()):
            again = read_header(text, self.delimiter, names)
            if again.names == names:
                raise Malformed(HEADER_AGAIN)
        return dict(zip(names, values + [""] * (len(names) - len(values)), strict=True))


def collect(
    rows: Sequence[Mapping[str, Any]],
    delimiter: str | None = None,
    unnamed: Sequence[str] = (),
    time: str | bool | None = None,
    words: Collection[str] = (),
) -> Table:
    """A table of readings, as if they had been read from a file: of JSON lines, or of CSV with that delimiter.

    Names that only a few stray readings have are no columns.
    """
    nested = find_nested(rows)
    rare = _stray(rows)
    names = [n for n in dict.fromkeys(name for row in rows for name in row) if n not in nested and n not in rare]
    columns = [pa.array([fields.as_text(row.get(name)) for row in rows], pa.string()) for name in names]
    frame = Frame(pa.Table.from_arrays(columns, names))
    if delimiter is not None:
        frame.style = fields.find_style(columns, delimiter)
    frame.delimiter, frame.nested, frame.unnamed, frame.rare = delimiter, nested, tuple(unnamed), rare
    return table_of("the readings", frame, time, pivot=(), ordered=False, words=words)


def collect_readings(
    numbered: Sequence[tuple[int, Reading]],
    form: TextForm = JSON,
    time: str | bool | None = None,
    words: Collection[str] = (),
) -> tuple[Table, set[int]]:
    """The table of numbered readings, and the lines of stray ones: those that have none of its columns but the time."""
    rows = [row for _, row in numbered]
    table = collect(rows, *form, time, words)
    columns = {*table.names, *table.categories}
    stray = {line for line, row in numbered if not columns & row.keys()}
    if stray:
        rows = [row for line, row in numbered if line not in stray]
        table = collect(rows, *form, time, words)
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
    return read_object(text)


def _text(line: bytes | None, number: int) -> str:
    if line is None:
        raise Malformed(f"longer than {LONGEST >> 20} MiB")
    try:
        text = line.decode("utf-8").strip("\r\n")
    except UnicodeDecodeError:
        raise Malformed("not UTF-8 text") from None
    return text.removeprefix("\ufeff") if number == 1 else text


def _refuse_encoding(line: bytes, number: int) -> None:
    """An error, as of a file, if the first line is not text: then neither are those that follow."""
    if line.lstrip().startswith(b"{"):
        return
    if line.startswith((b"\xff\xfe", b"\xfe\xff")) or b"\0" in line:
        raise TableError(f"line {number} of the readings is UTF-16 or binary. Convert them: iconv -f utf-16 -t utf-8")
    try:
        line.decode("utf-8")
    except UnicodeDecodeError:
        raise TableError(
            f"line {number} of the readings is not UTF-8. Convert them: iconv -f latin1 -t utf-8"
        ) from None
