"""CSV and its kin: text with one row a line, its fields separated by a comma, semicolon, tab, bar or blank.

Every column is read as text, and turned into numbers afterwards: a reader that guesses types from the first rows
stops at the first later value that is of another type.
"""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.csv as pcsv

from emphatic.tables import columns, fields
from emphatic.tables.table_errors import TableError

if TYPE_CHECKING:
    from emphatic.tables.files import File

__all__ = ["DELIMITERS", "LOOK_LINES", "Delimited", "Header", "find_delimiter", "find_repeated", "read_header"]

#: How many lines decide on the delimiter.
LOOK_LINES = 200
DELIMITERS = {",": "comma", ";": "semicolon", "\t": "tab", "|": "bar", " ": "blank"}
_BLOCK = 1 << 19  # the reader keeps some thirty of these ahead


class Delimited:
    """The rows of a delimited text file. ``broken`` counts lines skipped for their number of fields."""

    rows = None

    def __init__(self, file: File, delimiter: str | None) -> None:
        self.file = file
        head = file.head
        self._skip = 3 if head.startswith(b"\xef\xbb\xbf") else 0
        self._line = 1
        lines = head[self._skip :].splitlines(keepends=True)
        while lines and (not lines[0].strip() or lines[0].startswith(b"#")):
            self._drop(lines.pop(0))
        if not lines:
            raise TableError(f"{file.name}: the file holds no rows, only comments or blank lines.")
        text = [line.decode() for line in lines[:LOOK_LINES]]
        self.delimiter = delimiter or find_delimiter(text)
        header = read_header(text[0], self.delimiter)
        if header.present:
            self._drop(lines[0])
        self.names, self.unnamed = header.names, header.unnamed
        self.comma = False
        self.broken = 0

    def _drop(self, line: bytes) -> None:
        self._skip += len(line)
        self._line += 1

    def look(self) -> Any:
        """The first rows."""
        name = self.file.name
        repeated = find_repeated(self.names)
        if repeated is not None:
            raise TableError(
                f"{name}: line {self._line - 1} names more than one column {repeated!r}. Give each its own name."
            )
        start = self.file.head[self._skip :]
        malformed: list[Any] = []
        options = self._options(self.names, malformed.append)
        table = pcsv.read_csv(pa.BufferReader(start), *options) if start.strip() else self._no_rows()
        if len(malformed) > table.num_rows:
            row = malformed[0]
            raise TableError(
                f"{name}: line {self._line + (row.number or 1) - 1} has {row.actual_columns} fields where the first "
                f"has {row.expected_columns} (separated by {_name(self.delimiter)}). "
                "If that is not the delimiter, pass delimiter=…; otherwise correct these lines."
            )
        if table.num_rows == 0:
            raise TableError(f"{name}: the file has a header but no rows.")
        self.comma = self.delimiter != "," and fields.decimal_comma([c.combine_chunks() for c in table.columns])
        if len(self.names) == 1 and columns.kind(columns.plain(table.column(0)), self.comma) == "text":
            raise TableError(
                f"{name}: the file has one column of text, {self.names[0][:60]!r}, when separated by "
                f"{_name(self.delimiter)}. If something else separates its fields, pass it: delimiter=…"
            )
        return table

    def batches(self, names: tuple[str, ...], start: int) -> Iterator[Any]:
        """All rows from ``start`` on, in batches of any length."""
        self.broken = 0

        def count(_: Any) -> None:
            self.broken += 1

        with self.file.open() as stream:
            stream.read(self._skip)
            for batch in pcsv.open_csv(stream, *self._options(names, count)):
                yield batch.slice(min(start, len(batch)))
                start = max(0, start - len(batch))

    def _options(self, names: tuple[str, ...], report: Any) -> tuple[Any, Any, Any]:
        def skip(row: Any) -> str:
            report(row)
            return "skip"

        return (
            pcsv.ReadOptions(column_names=list(self.names), use_threads=False, block_size=_BLOCK),
            pcsv.ParseOptions(delimiter=self.delimiter, newlines_in_values=True, invalid_row_handler=skip),
            pcsv.ConvertOptions(
                column_types=dict.fromkeys(self.names, pa.string()),
                include_columns=list(names),
                null_values=fields.MISSING,
                strings_can_be_null=True,
            ),
        )

    def _no_rows(self) -> Any:
        return pa.table({name: pa.array([], pa.string()) for name in self.names})


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
    first = [field.strip() for field in next(csv.reader([line], delimiter=delimiter), [])]
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
