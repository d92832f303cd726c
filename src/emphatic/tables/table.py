"""Tables: rows of readings, from a file of any size or a frame in memory, as blocks of numbers."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from emphatic.learning.inputs import refusal, whole
from emphatic.tables.block import Block
from emphatic.tables.clock import Clock
from emphatic.tables.table_errors import CALLER, TableError, reading

if TYPE_CHECKING:
    from emphatic.tables.dropped_rows import DroppedRows
    from emphatic.tables.files import File, Source
    from emphatic.tables.notation import Notation

__all__ = ["Block", "Table", "open_table"]

#: The kinds of column that are signals.
NUMERIC = ("number", "percent", "switch")
_IGNORED = {"date": "another date", "clock": "a time of day", "other": "neither numbers nor text"}


class Table:
    """A table of readings; ``open_table`` makes it.

    - ``names``: the signals, all columns of numbers (True is 1) but the time, in their order;
    - ``categories``: the columns of text;
    - ``time``: the time column, or both of a date and a time of day as ``Date+Time``, or None; ``zone`` is that of its
      stamps, if they have one;
    - ``dated``: whether times are seconds since 1970, so that there is a time of day;
    - ``a_second``: how many units of a time column of numbers make a second;
    - ``ignored``: the columns that are not used, each with the reason;
    - ``rows``: how many rows there are, where that is known without reading them, or None;
    - ``broken``: malformed lines of text, skipped in the last pass; ``dropped``: the same by reason;
    - ``notation``: how its text is written.
    """

    def __init__(
        self, name: str, source: Source, file: File | None, time: str | bool | None, sort: bool = False,
        long: bool = False, ordered: bool = True, words: Collection[str] = (),
    ) -> None:  # fmt: skip
        from emphatic.tables import arrangement, columns, times

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
        kinds = {column: columns.kind(array, source.style) for column, array in first.items()}
        kinds |= {column: "text" for column in words if kinds.get(column) in ("switch", "percent")}
        when, self._no_time, disorder = times.find(name, look, kinds, time, source.style)
        found = None if long or time is False else arrangement.find_long(look, kinds, when, source.style)
        if found is not None:
            raise TableError(
                f"{name}: this is long format, with a row for each reading: {found[0]!r} names the sensor, "
                f'{found[1]!r} has its value. Give each sensor a column: pivot="{found[0]},{found[1]}"; or pass '
                "pivot=False to take the rows as they are."
            )
        if sort:
            if when is None:
                raise TableError(f"{name}: there is no time to sort by: {self._no_time}. Name the column: time=…")
            self._source = source = arrangement.sort(source, look.column_names, when)
            look = source.look()
        elif disorder is not None and ordered:
            raise disorder
        self._header = tuple(look.column_names)
        self._when = when
        self.time = when.name if when else None
        self.zone = when.zone if when else None
        self.dated = bool(when and when.dated)
        self.a_second = when.a_second if when else 1.0
        self.ignored = dict.fromkeys(getattr(source, "nested", ()), "nested") | getattr(source, "rare", {})
        for column, kind in kinds.items():
            if when and column in when.names:
                continue
            if kind in _IGNORED:
                self.ignored[column] = _IGNORED[kind]
            elif kind == "number" and column in getattr(source, "unnamed", ()) and _idle(first[column]):
                self.ignored[column] = "without a name, and empty or a count of rows"
        kept = [c for c in kinds if c not in self.ignored and not (when and c in when.names)]
        self.names = tuple(column for column in kept if kinds[column] in NUMERIC)
        self._switches, self._percents = (
            tuple(column for column in self.names if kinds[column] == kind) for kind in ("switch", "percent")
        )
        self._styles = [self.notation.style_of(column) for column in self.names]
        self.categories = tuple(column for column in kept if kinds[column] == "text")
        if not self.names:
            what = ", ".join(f"{c!r} ({'the time' if when and c in when.names else kinds[c]})" for c in list(kinds)[:8])
            raise TableError(f"{name}: no column holds numbers, so there is no signal to learn from. It has: {what}.")
        self.rows = source.rows
        self._first_times = when.seconds(look) if when else None

    @property
    def broken(self) -> int:
        return self.dropped.count

    @property
    def dropped(self) -> DroppedRows:
        """The rows that the last pass could not use, by reason."""
        return self._source.dropped

    @property
    def notation(self) -> Notation:
        """How its text is written, for reading more of the same line by line."""
        from emphatic.tables.notation import Notation

        delimiter = getattr(self._source, "delimiter", None)
        header = () if delimiter is None else self._header
        return Notation(delimiter, self._source.style, self._when, self._switches, header, self._percents)

    def facts(self) -> dict[str, Any]:
        """What was found in the table and how it is written, as JSON can hold it, as of the last pass.

        ``time`` has the columns, their format and zone, or ``why`` there is none; ``rows_dropped`` and
        ``columns_left_out`` say why; ``rows_short`` counts rows whose last fields were absent; ``percent`` are the
        columns whose numbers have a percent sign, which is left out (50% is 50).
        """
        when, style = self._when, self._source.style
        time = {"why": self._no_time} if when is None else {
            "columns": list(when.names), "format": when.format, "zone": when.zone,
        }  # fmt: skip
        return {
            "time": time,
            "rows_dropped": self.dropped.facts(),
            "rows_short": self.dropped.short,
            "columns_left_out": [{"name": name, "why": why} for name, why in self.ignored.items()],
            "delimiter": getattr(self._source, "delimiter", None),
            "decimal": "," if style.comma else ".",
            "thousands": style.thousands,
            "units": dict(getattr(self._source, "units", {})),
            "percent": list(self._percents),
        }

    def __repr__(self) -> str:
        counts = f"signals={len(self.names)}, categories={len(self.categories)}"
        return f"Table({self.name!r}, {counts}, time={self.time!r}, rows={self.rows})"

    def blocks(self, rows: int = 65536, start: int = 0, clock: Clock | None = None) -> Iterator[Block]:
        """The rows from row number ``start`` on, in blocks of ``rows`` (the last may be shorter).

        What a row gives does not depend on ``rows`` or ``start``. Only a few blocks are in memory at any time.
        ``clock`` finds the gaps, and must stand at row ``start``; by default it is a new one, ``Table.clock``.
        """
        rows = whole("rows", rows, "blocks")
        if isinstance(start, bool) or not isinstance(start, int | np.integer) or start < 0:
            raise refusal("start", "blocks", "be a whole number of 0 or more", repr(start))
        return self._blocks(rows, int(start), self.clock() if clock is None else clock)

    def lengths(self) -> Iterator[int]:
        """How many rows the parts of the table have, read through for their number alone (one column, not parsed)."""
        batches = self._source.batches(self.names[:1], 0)
        while True:
            with reading(self.name, self._find_line):
                batch = next(batches, None)
            if batch is None:
                return
            yield len(batch)

    def _blocks(self, rows: int, row: int, clock: Clock | None) -> Iterator[Block]:
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
                block.gap = block.find_gaps(clock)
                yield block
                row += len(block)
            if batch is None:
                return

    def _block(self, row: int, parts: list[Any]) -> Block:
        """Parts are converted one by one: their types may differ (text, where a part did not keep to its type)."""
        from emphatic.tables import columns, fields
        from emphatic.tables.dropped_rows import AFTER_DROP, ROW

        C, B = len(self.names), sum(len(part) for part in parts)
        values = np.empty((B, C))
        unreadable, infinite = np.zeros(C, np.int64), np.zeros(C, np.int64)
        at = 0
        for part in parts:
            for j, name in enumerate(self.names):
                column, bad = columns.numbers(columns.plain(part.column(name)), self._styles[j])
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
        numbers, after_drop = np.arange(row, row + B), np.zeros(B, np.bool_)
        if ROW in parts[0].schema.names:
            numbers = np.concatenate([part.column(ROW).to_numpy() for part in parts])
        if AFTER_DROP in parts[0].schema.names:
            after_drop = np.concatenate([part.column(AFTER_DROP).to_numpy(zero_copy_only=False) for part in parts])
        return Block(row, values, time, labels, unreadable, infinite, numbers, after_drop)

    def clock(self) -> Clock | None:
        """A clock that knows this table's usual step from its first rows, or None without a time column."""
        joined = getattr(self._source, "joined", False)
        return None if self._first_times is None else Clock(self._first_times, joined)


def open_table(
    source: Any,
    *,
    time: str | bool | None = None,
    delimiter: str | None = None,
    names: Sequence[str] | None = None,
    sort: bool = False,
    pivot: str | Sequence[str] | bool | None = None,
    words: Collection[str] = (),
    topics: str | Sequence[str] | None = None,
) -> Table:
    """Open a table of readings: a row a moment, a column a signal.

    ``source`` is the path of a CSV, Parquet, Arrow/Feather or JSON lines file (text also with gzip, zstd, xz or
    bz2; recognised by its content), of an MCAP file or a ROS 2 bag's folder, or in memory a pyarrow, pandas or polars
    frame, a dict of arrays, a NumPy structured array, or an array (T, C) with ``names``. ``time`` names the time
    column (``"Date+Time"`` for a pair); by default it is the one that is obviously so, and False is none. ``delimiter``
    is that of CSV; by default it is found.

    Rows must be in the order of time; ``sort`` sorts them, in memory. A table in long format, with a row for each
    reading, is refused unless ``pivot``, "sensor,value", names its columns of sensors and values: then each sensor
    becomes a column, in memory. (``pivot=False`` takes the rows as they are.)

    Of a robot log (MCAP, ROS 2 bag) each number in a topic's messages is a column, ``topic.field``, and each time at
    which a message was logged a row, with the last value of every column; ``topics`` names the topics to read.

    A column of ON and OFF (yes and no, open and closed) is one of numbers, 1 and 0, and so is one of percentages (50%
    is 50), unless ``words`` names it.
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
    from emphatic.tables.opening import open_source

    return open_source(
        source, CALLER, time=time, delimiter=delimiter, names=names, sort=sort, pivot=pivot, words=words, topics=topics
    )


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
