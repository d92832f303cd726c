"""Tables: rows of readings, from a file of any size or a frame in memory, as blocks of numbers."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from emphatic.learning.inputs import refusal, whole
from emphatic.tables.clock import Clock
from emphatic.tables.table_errors import TableError, reading

if TYPE_CHECKING:
    from emphatic.tables.files import File, Source
    from emphatic.tables.notation import Notation
    from emphatic.tables.times import TimeColumn

__all__ = ["Block", "Table", "open_table", "table_of"]

_IGNORED = {"date": "another date", "clock": "a time of day", "other": "no number or text"}


@dataclass(frozen=True, eq=False)
class Block:
    """Some rows of a table, the first of them row number ``row``.

    ``values`` is (B, C) with NaN where missing; ``time`` is (B,) in seconds since the epoch or in the time column's own
    unit, NaN where missing, or None without a time column; ``labels`` has each text column, None where missing.
    ``unreadable`` and ``infinite`` count, for each signal, the values that were there but no number, or not finite:
    both are missing in ``values``.
    """

    row: int
    values: NDArray[np.float64]
    time: NDArray[np.float64] | None
    labels: dict[str, NDArray[np.object_]]
    unreadable: NDArray[np.int64] = field(repr=False)
    infinite: NDArray[np.int64] = field(repr=False)

    def __len__(self) -> int:
        return len(self.values)


class Table:
    """A table of readings; ``open_table`` makes it.

    - ``names``: the signals, all columns of numbers (True is 1) but the time, in their order;
    - ``categories``: the columns of text;
    - ``time``: the time column, or both of a date and a time of day as ``Date+Time``, or None;
    - ``dated``: whether times are seconds since 1970, so that there is a time of day;
    - ``a_second``: how many units of a time column of numbers make a second;
    - ``ignored``: the columns that are not used, each with the reason;
    - ``rows``: how many rows there are, where that is known without reading them, or None;
    - ``broken``: malformed lines of text, skipped in the last pass;
    - ``notation``: how its text is written.
    """

    def __init__(self, name: str, source: Source, file: File | None, time: str | bool | None) -> None:
        from emphatic.tables import columns, times

        self.name = name
        self._source = source
        self._find_line = file.not_utf8 if file else lambda: None
        look = source.look()
        first = {column: columns.plain(look.column(i)) for i, column in enumerate(look.column_names)}
        if len(first) < len(look.column_names):
            repeated = next(c for c in look.column_names if look.column_names.count(c) > 1)
            raise TableError(f"{name}: more than one column is named {repeated!r}. Give each its own name.")
        if not first:
            raise TableError(f"{name}: the table has no columns.")
        if look.num_rows == 0:
            raise TableError(f"{name}: the table has columns but no rows.")
        kinds = {column: columns.kind(array, source.comma) for column, array in first.items()}
        when: TimeColumn | None = times.find(name, look, kinds, time, source.comma)
        self._when = when
        self.time = when.name if when else None
        self.dated = bool(when and when.dated)
        self.a_second = when.a_second if when else 1.0
        self.ignored = dict.fromkeys(getattr(source, "nested", ()), "nested")
        for column, kind in kinds.items():
            if when and column in when.names:
                continue
            if kind in _IGNORED:
                self.ignored[column] = _IGNORED[kind]
            elif kind == "number" and column in getattr(source, "unnamed", ()) and _idle(first[column]):
                self.ignored[column] = "without a name, and empty or a count of rows"
        kept = [c for c in kinds if c not in self.ignored and not (when and c in when.names)]
        self.names = tuple(column for column in kept if kinds[column] == "number")
        self.categories = tuple(column for column in kept if kinds[column] == "text")
        if not self.names:
            what = ", ".join(f"{c!r} ({'the time' if when and c in when.names else kinds[c]})" for c in list(kinds)[:8])
            raise TableError(f"{name}: no column holds numbers, so there is no signal to learn from. It has: {what}.")
        self.rows = source.rows
        self._first_times = when.seconds(look) if when else None

    @property
    def broken(self) -> int:
        return self._source.broken

    @property
    def notation(self) -> Notation:
        """How its text is written, for reading more of the same line by line."""
        from emphatic.tables.notation import Notation

        return Notation(getattr(self._source, "delimiter", None), self._source.comma, self._when)

    def __repr__(self) -> str:
        counts = f"signals={len(self.names)}, categories={len(self.categories)}"
        return f"Table({self.name!r}, {counts}, time={self.time!r}, rows={self.rows})"

    def blocks(self, rows: int = 65536, start: int = 0) -> Iterator[Block]:
        """The rows from row number ``start`` on, in blocks of ``rows`` (the last may be shorter).

        What a row gives does not depend on ``rows`` or ``start``. Only a few blocks are in memory at any time.
        """
        rows = whole("rows", rows, "blocks")
        if isinstance(start, bool) or not isinstance(start, int | np.integer) or start < 0:
            raise refusal("start", "blocks", "be a whole number of 0 or more", repr(start))
        return self._blocks(rows, int(start))

    def lengths(self) -> Iterator[int]:
        """How many rows the parts of the table have, read through for their number alone (one column, not parsed)."""
        batches = self._source.batches(self.names[:1], 0)
        while True:
            with reading(self.name, self._find_line):
                batch = next(batches, None)
            if batch is None:
                return
            yield len(batch)

    def _blocks(self, rows: int, row: int) -> Iterator[Block]:
        names = (*self.names, *self.categories, *(self._when.names if self._when else ()))
        waiting: list[Any] = []
        have = 0
        batches = self._source.batches(names, row)
        while True:
            with reading(self.name, self._find_line):
                batch = next(batches, None)
            if batch:  # one without rows would keep the rows it was cut from in memory
                waiting.append(batch)
                have += len(batch)
            while have >= rows or (batch is None and have):
                parts = _split_off(waiting, min(rows, have))
                have -= sum(len(part) for part in parts)
                with reading(self.name, self._find_line):
                    block = self._block(row, parts)
                yield block
                row += len(block)
            if batch is None:
                return

    def _block(self, row: int, parts: list[Any]) -> Block:
        """Parts are converted one by one: their types may differ (text, where a part did not keep to its type)."""
        from emphatic.tables import columns, fields

        C, B = len(self.names), sum(len(part) for part in parts)
        values = np.empty((B, C))
        unreadable, infinite = np.zeros(C, np.int64), np.zeros(C, np.int64)
        at = 0
        for part in parts:
            for j, name in enumerate(self.names):
                column, bad = columns.numbers(columns.plain(part.column(name)), self._source.comma)
                values[at : at + len(part), j] = column
                unreadable[j] += bad
            at += len(part)
        endless = np.isinf(values)
        if endless.any():
            infinite += endless.sum(axis=0)
            values[endless] = np.nan
        time = np.concatenate([self._when.seconds(part) for part in parts]) if self._when else None
        labels = {
            name: np.concatenate([fields.labels(columns.plain(part.column(name))) for part in parts])
            for name in self.categories
        }
        return Block(row, values, time, labels, unreadable, infinite)

    def clock(self) -> Clock | None:
        """A clock that knows this table's usual step from its first rows, or None without a time column."""
        return None if self._first_times is None else Clock(self._first_times)


def open_table(
    source: Any,
    *,
    time: str | bool | None = None,
    delimiter: str | None = None,
    names: Sequence[str] | None = None,
) -> Table:
    """Open a table of readings: a row a moment, a column a signal.

    ``source`` is the path of a CSV, Parquet, Arrow/Feather or JSON lines file (text also with gzip, zstd or bz2;
    recognised by its content), or in memory a pyarrow, pandas or polars frame, a dict of arrays, a NumPy structured
    array, or an array (T, C) with ``names``. ``time`` names the time column (``"Date+Time"`` for a pair); by default it
    is the one that is obviously so, and False is none. ``delimiter`` is that of CSV; by default it is found.

    A column of text counts as numbers if most of its first values are; what is later not a number is missing, and
    counted. A bad table raises a ``TableError``.

    >>> table = open_table({"time": [0.0, 1.0, 2.0], "power": [4.2, None, 5.4], "door": ["open", "shut", "shut"]})
    >>> table.names, table.categories, table.time, table.rows
    (('power',), ('door',), 'time', 3)
    >>> for block in table.blocks(rows=2):
    ...     print(block.row, block.time.tolist(), block.values.tolist(), block.labels["door"].tolist())
    0 [0.0, 1.0] [[4.2], [nan]] ['open', 'shut']
    2 [2.0] [[5.4]] ['shut']
    """
    if time is True or not isinstance(time, str | bool | None):
        raise refusal("time", "open_table", "be the name of a column, False or None", repr(time))
    if delimiter is not None and (
        not isinstance(delimiter, str) or len(delimiter) != 1 or not delimiter.isascii() or delimiter in '"\r\n\0'
    ):
        raise refusal("delimiter", "open_table", "be one ASCII character, not a quote or a line's end", repr(delimiter))
    if not isinstance(source, str | os.PathLike):
        from emphatic.tables.frames import Frame

        return table_of("the table", Frame(source, names), time)
    if names is not None:
        raise refusal("names", "open_table", "be left out for a file", repr(list(names)))
    from emphatic.tables.files import open_file

    name = os.fspath(source)
    with reading(name):
        opened, file = open_file(name, delimiter)
    return table_of(name, opened, time, file)


def table_of(name: str, source: Source, time: str | bool | None = None, file: File | None = None) -> Table:
    """The table that a source holds."""
    with reading(name, file.not_utf8 if file else lambda: None):
        return Table(name, source, file, time)


def _idle(array: Any) -> bool:
    """A column of nothing, or of row numbers."""
    from emphatic.tables import columns

    values, _ = columns.numbers(array)
    return bool(np.isnan(values).all() or (len(values) > 1 and (np.diff(values) == 1).all()))


def _split_off(waiting: list[Any], rows: int) -> list[Any]:
    """Remove the first rows from the batches that wait, and return them."""
    parts = []
    while rows:
        batch = waiting.pop(0)
        parts.append(batch.slice(0, rows))
        if len(batch) > rows:
            waiting.insert(0, batch.slice(rows))
        rows -= len(parts[-1])
    return parts
