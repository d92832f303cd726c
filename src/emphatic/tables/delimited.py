"""CSV and its kin: text with one row a line, its fields separated by a comma, semicolon, tab, bar or blank.

Every column is read as text, and turned into numbers afterwards: a reader that guesses types from the first rows
stops at the first later value that is of another type.
"""

from __future__ import annotations

import csv
import re
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pcsv

from emphatic.tables import columns, fields
from emphatic.tables.csv_records import Records, split_fields
from emphatic.tables.dropped_rows import ReadingPass
from emphatic.tables.table_errors import TableError

if TYPE_CHECKING:
    from emphatic.tables.files import File

__all__ = [
    "DELIMITERS", "LOOK_LINES", "UNITS", "Delimited", "Header", "find_delimiter", "find_repeated", "find_units",
    "read_header",
]  # fmt: skip

#: How many lines decide on the delimiter.
LOOK_LINES = 200
DELIMITERS = {",": "comma", ";": "semicolon", "\t": "tab", "|": "bar", " ": "blank"}
#: A first line that names the delimiter, as spreadsheets write and read it.
_NAMED = re.compile(rb'"?sep=([,;\t| ])"?\s*', re.IGNORECASE)
#: Why the row below the header is dropped that has the units.
UNITS = "units below the header"
_BLOCK, _LONGEST = 1 << 19, 1 << 26


class Delimited:
    """The rows of a delimited text file. ``dropped`` counts those of the last pass that could not be used.

    Arrow reads a part of the file where each of its lines is one row; else the part is read once more line by line.
    """

    rows = None

    def __init__(self, file: File, delimiter: str | None) -> None:
        self.file = file
        head = file.head
        self._skip = 3 if head.startswith(b"\xef\xbb\xbf") else 0
        self._line = 1
        lines = head[self._skip :].splitlines(keepends=True)
        while lines and (not lines[0].strip() or lines[0].startswith(b"#")):
            self._pass(lines.pop(0))
        if not lines:
            raise TableError(f"{file.name}: the file holds no rows, only comments or blank lines.")
        named = _NAMED.fullmatch(lines[0])
        if named and len(lines) > 1:
            delimiter = delimiter or named[1].decode()
            self._pass(lines.pop(0))
        text = [line.decode() for line in lines[:LOOK_LINES]]
        self.delimiter = delimiter or find_delimiter(text)
        header = read_header(text[0], self.delimiter)
        self._header = lines[0].strip(b"\r\n") if header.present else None
        if header.present:
            self._pass(lines[0])
        self._block = max(_BLOCK, 4 * len(lines[0]))
        self.names, self.unnamed = header.names, header.unnamed
        self.style = fields.PLAIN
        self.units: dict[str, str] = {}
        self.dropped = ReadingPass(self._line).dropped

    def _pass(self, line: bytes) -> None:
        self._skip += len(line)
        self._line += 1

    def _start(self) -> ReadingPass:
        begun = ReadingPass(self._line)
        self.dropped = begun.dropped
        return begun

    def look(self) -> Any:
        """The first rows."""
        name, start = self.file.name, self.file.head[self._skip :]
        repeated = find_repeated(self.names)
        if repeated is not None:
            raise TableError(
                f"{name}: line {self._line - 1} names more than one column {repeated!r}. Give each its own name."
            )
        table = pa.Table.from_batches([self._batch(start, self.names, True, self._start())[0]])
        if 2 * (self.dropped.count + self.dropped.short) > table.num_rows:
            self._check_fields(start)
        if table.num_rows == 0:
            raise TableError(f"{name}: the file has a header but no rows.")
        table = table.select(list(self.names))
        self.style = fields.find_style([columns.plain(c) for c in table.columns], self.delimiter)
        if len(self.names) == 1 and columns.kind(columns.plain(table.column(0)), self.style) == "text":
            raise TableError(
                f"{name}: the file has one column of text, {self.names[0][:60]!r}, when separated by "
                f"{_name(self.delimiter)}. If something else separates its fields, pass it: delimiter=…"
            )
        if self._header is not None:
            self.units = find_units(table, self.style)
        return table.slice(bool(self.units))

    def _check_fields(self, start: bytes) -> None:
        """Refuse a file most of whose lines have more fields than there are names, or one field for several names."""
        width, lines = len(self.names), start.splitlines()
        fields_in = [len(split_fields(line.decode(), self.delimiter)[0]) if line else 0 for line in lines]
        wrong = [i for i, have in enumerate(fields_in) if have > width or have == 1 < width]
        if 2 * len(wrong) > sum(map(bool, fields_in)):
            raise TableError(
                f"{self.file.name}: line {self._line + wrong[0]} has {fields_in[wrong[0]]} fields where the first has "
                f"{width} (separated by {_name(self.delimiter)}). "
                "If that is not the delimiter, pass delimiter=…; otherwise correct these lines."
            )

    def batches(self, names: tuple[str, ...], start: int) -> Iterator[Any]:
        """All rows from ``start`` on, in batches of any length."""
        now = self._start()
        with self.file.open() as stream:
            stream.read(self._skip)
            held, end, units = b"", False, bool(self.units)
            if units:
                now.dropped.add(UNITS, self._line)
            while not end:
                more = stream.read(self._block)
                end = not more
                text, held = (held, b"") if end else _whole_lines(held + more)
                if len(held) > _LONGEST:
                    raise TableError(f"{self.file.name}: line {now.line} is longer than {_LONGEST >> 20} MB.")
                if text:
                    batch, rest = self._batch(text, names, end, now)
                    held = rest + held
                    if units and len(batch):
                        units, batch = False, batch.slice(1)
                    yield batch.slice(min(start, len(batch)))
                    start = max(0, start - len(batch))

    def _batch(self, text: bytes, names: tuple[str, ...], end: bool, now: ReadingPass) -> tuple[Any, bytes]:
        """The rows of some lines, and the last of these lines if they are not complete."""
        batch = self._by_arrow(text, names)
        if batch is not None:
            now.line += text.count(b"\n") or text.count(b"\r")
            return now.number_rows(batch), b""
        lines = text.splitlines()
        records = Records.read(lines, self.delimiter, len(self.names), self._header, now.dropped, now.line, end)
        at = [self.names.index(name) for name in names]
        batch = pa.record_batch([pa.array([r[i] for r in records.fields], pa.string()) for i in at], list(names))
        rest = records.rest and records.rest + b"\n"
        now.line += len(lines) - rest.count(b"\n")
        return now.number_rows(batch, records.kept, records.rows), rest

    def _by_arrow(self, text: bytes, names: tuple[str, ...]) -> Any:
        """The rows of some lines, or None where a line is not one row of as many fields as there are names."""
        wrong: list[Any] = []

        def skip(row: Any) -> str:
            wrong.append(row)
            return "skip"

        if self._header is not None and (text.startswith(self._header) or b"\n" + self._header in text):
            return None
        last = text.rstrip(b"\r\n")[-_BLOCK:].rpartition(b"\n")[2]
        try:
            if b'"' in last and not split_fields(last.decode(), self.delimiter)[1]:
                return None
            table = pcsv.read_csv(
                pa.BufferReader(text),
                pcsv.ReadOptions(column_names=list(self.names), use_threads=False, block_size=len(text) + 1),
                pcsv.ParseOptions(delimiter=self.delimiter, newlines_in_values=True, invalid_row_handler=skip),
                pcsv.ConvertOptions(
                    column_types=dict.fromkeys(self.names, pa.string()),
                    include_columns=list(names),
                    null_values=fields.MISSING,
                    strings_can_be_null=True,
                ),
            )
        except (pa.ArrowInvalid, ValueError):
            return None
        lines = text.count(b"\n") + (not text.endswith(b"\n"))
        if wrong or (table.num_rows != lines and table.num_rows != sum(map(bool, text.splitlines()))):
            return None
        return table.combine_chunks().to_batches()[0]


def _whole_lines(text: bytes) -> tuple[bytes, bytes]:
    """Up to the last end of a line, and the rest. A carriage return at the very end may be half of one."""
    cut = text.rfind(b"\n") + 1 or text.rfind(b"\r", 0, -1) + 1
    return text[:cut], text[cut:]


def find_units(table: Any, style: fields.NumberStyle) -> dict[str, str]:
    """The units that the first row gives for columns of numbers, if it holds units: no number or time in it.

    >>> find_units(pa.table({"t": ["", "0", "1"], "power": ["kW", "1.5", "2"]}), fields.PLAIN)
    {'power': 'kW'}
    """
    first = {
        name: fields.label(columns.plain(table.column(name).slice(0, 1))[0].as_py()) for name in table.column_names
    }
    words = {name: word for name, word in first.items() if word is not None}
    if table.num_rows < 3 or any(fields.number(word, style)[1] for word in words.values()):
        return {}
    units = {}
    for name, word in words.items():
        column = columns.plain(table.column(name))
        if columns.kind(column.slice(0, 1), style) in ("date", "clock"):
            return {}
        rest = column.slice(1)
        if columns.kind(rest, style) == "number" and not np.isnan(columns.numbers(rest, style)[0]).all():
            units[name] = word
    return units


@dataclass(frozen=True)
class Header:
    """The columns' names; those that the first line has no name for; and whether it is a header at all.

    Without a header, or a name in it, a column is ``column_1``, ``column_2`` … by its place.
    """

    names: tuple[str, ...]
    unnamed: tuple[str, ...]
    present: bool


def read_header(line: str, delimiter: str, known: Collection[str] = ()) -> Header:
    """What the first line says of the columns. It is a header for certain if it has one of the ``known`` names."""
    first = [field.strip() for field in split_fields(line.strip("\r\n"), delimiter)[0]]
    present = any(field in known for field in first) or _is_header(first)
    names = tuple((present and name) or f"column_{i}" for i, name in enumerate(first, 1))
    # Frames write their row numbers without a name.
    unnamed = tuple(n for n, name in zip(names, first, strict=True) if present and (not name or name == "Unnamed: 0"))
    return Header(names, unnamed, present)


def find_repeated(names: Sequence[str]) -> str | None:
    """A name that is there more than once."""
    counts = Counter(names)
    return next((name for name in names if counts[name] > 1), None)


def _is_header(first: Sequence[str]) -> bool:
    """Names, not values: at most half of the fields are numbers, or they only count the columns (0, 1, 2, …)."""
    numbers, unreadable = fields.numbers(pa.array(first, pa.string()))
    if 2 * unreadable >= len(first):
        return True
    steps = {float(b - a) for a, b in pairwise(numbers)}
    return len(first) > 2 and steps == {1.0} and numbers[0] in (0.0, 1.0)


def find_delimiter(lines: Sequence[str]) -> str:
    """The delimiter that separates the first lines into the same number of fields, and into the most."""

    def score(delimiter: str) -> tuple[float, int]:
        try:
            counts = [len(row) for row in csv.reader(lines, delimiter=delimiter) if row]
        except csv.Error:  # a field that is too long, because nothing separates it
            return 0.0, 0
        width = counts[0] if counts else 1
        return (counts.count(width) / len(counts), width) if width > 1 else (0.0, 1)

    return max(DELIMITERS, key=score)


def _name(delimiter: str) -> str:
    return f"a {DELIMITERS[delimiter]}" if delimiter in DELIMITERS else repr(delimiter)
