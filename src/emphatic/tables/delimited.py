"""CSV and its kin: text with one row a line, its fields parted by a comma, semicolon, tab, bar or blank.

Every column is read as text, and turned into numbers afterwards: a reader that guesses types from the first rows
stops at the first later value that is of another type.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.csv as pcsv

from emphatic.tables import columns, fields
from emphatic.tables.table_errors import TableError

if TYPE_CHECKING:
    from emphatic.tables.files import File

__all__ = ["Delimited"]

_DELIMITERS = {",": "comma", ";": "semicolon", "\t": "tab", "|": "bar", " ": "blank"}
_BLOCK = 1 << 19  # the reader keeps some thirty of these ahead


class Delimited:
    """The rows of a delimited text file. ``broken`` counts lines left out for their number of fields."""

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
        text = [line.decode() for line in lines[:200]]
        self.delimiter = delimiter or _sniffed(text)
        first = [field.strip() for field in next(csv.reader(text[:1], delimiter=self.delimiter), [])]
        header = _is_header(first)
        if header:
            self._drop(lines[0])
        self.names = tuple((header and name) or f"column_{i}" for i, name in enumerate(first, 1))
        #: Columns that the header passes over, as frames write their row numbers.
        self.unnamed = tuple(
            own for own, name in zip(self.names, first, strict=True) if header and (not name or name == "Unnamed: 0")
        )
        self.comma = False
        self.broken = 0

    def _drop(self, line: bytes) -> None:
        self._skip += len(line)
        self._line += 1

    def look(self) -> Any:
        """The first rows."""
        name = self.file.name
        repeated = sorted({n for n in self.names if self.names.count(n) > 1})
        if repeated:
            raise TableError(
                f"{name}: line {self._line - 1} names more than one column {repeated[0]!r}. Give each its own name."
            )
        start = self.file.head[self._skip :]
        wrong: list[Any] = []
        options = self._options(self.names, wrong.append)
        table = pcsv.read_csv(pa.BufferReader(start), *options) if start.strip() else self._none()
        if len(wrong) > table.num_rows:
            row = wrong[0]
            raise TableError(
                f"{name}: line {self._line + (row.number or 1) - 1} has {row.actual_columns} fields where the first "
                f"has {row.expected_columns} (parted by {_shown(self.delimiter)}). "
                "If that is not what parts them, pass delimiter=…; else mend these lines."
            )
        if table.num_rows == 0:
            raise TableError(f"{name}: the file has a header but no rows.")
        self.comma = self.delimiter != "," and fields.decimal_comma([c.combine_chunks() for c in table.columns])
        if len(self.names) == 1 and columns.kind(columns.plain(table.column(0)), self.comma) == "text":
            raise TableError(
                f"{name}: the file has one column of text, {self.names[0][:60]!r}, when parted by "
                f"{_shown(self.delimiter)}. If something else parts its fields, pass it: delimiter=…"
            )
        return table

    def batches(self, names: tuple[str, ...], start: int) -> Iterator[Any]:
        """All rows from ``start`` on, in parts of no fixed length."""
        self.broken = 0

        def count(_: Any) -> None:
            self.broken += 1

        with self.file.open() as stream:
            stream.read(self._skip)
            for batch in pcsv.open_csv(stream, *self._options(names, count)):
                yield batch.slice(min(start, len(batch)))
                start = max(0, start - len(batch))

    def _options(self, names: tuple[str, ...], wrong: Any) -> tuple[Any, Any, Any]:
        def leave_out(row: Any) -> str:
            wrong(row)
            return "skip"

        return (
            pcsv.ReadOptions(column_names=list(self.names), use_threads=False, block_size=_BLOCK),
            pcsv.ParseOptions(delimiter=self.delimiter, newlines_in_values=True, invalid_row_handler=leave_out),
            pcsv.ConvertOptions(
                column_types=dict.fromkeys(self.names, pa.string()),
                include_columns=list(names),
                null_values=fields.MISSING,
                strings_can_be_null=True,
            ),
        )

    def _none(self) -> Any:
        return pa.table({name: pa.array([], pa.string()) for name in self.names})


def _sniffed(lines: list[str]) -> str:
    """The delimiter that parts the first lines in the same number of fields, and in the most."""

    def score(delimiter: str) -> tuple[float, int]:
        counts = [len(row) for row in csv.reader(lines, delimiter=delimiter) if row]
        width = counts[0] if counts else 1
        return (counts.count(width) / len(counts), width) if width > 1 else (0.0, 1)

    return max(_DELIMITERS, key=score)


def _is_header(first: list[str]) -> bool:
    """Names, not values: at most half of the fields are numbers, or they only count the columns (0, 1, 2, …)."""
    numbers, unreadable = fields.numbers(pa.array(first, pa.string()))
    if 2 * unreadable >= len(first):
        return True
    steps = {float(b - a) for a, b in pairwise(numbers)}
    return len(first) > 2 and steps == {1.0} and numbers[0] in (0.0, 1.0)


def _shown(delimiter: str) -> str:
    return f"a {_DELIMITERS[delimiter]}" if delimiter in _DELIMITERS else repr(delimiter)
