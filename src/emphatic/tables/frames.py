"""Tables that Arrow holds: Parquet and Arrow files, frames and arrays in memory; and tables in another arrangement.

Rows are sorted by time, and long format (time, sensor, value) is made wide, in memory.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.dataset
import pyarrow.ipc
import pyarrow.parquet as pq
from numpy.typing import ArrayLike, NDArray

from emphatic.common.names import refusal
from emphatic.tables import fields
from emphatic.tables.fields import PLAIN, NumberStyle, TimeColumn
from emphatic.tables.files import AFTER_DROP, LOOK_ROWS, ROW, DroppedRows, File, Format, Source
from emphatic.tables.table import CALLER, Caller, TableError

__all__ = ["ARROW", "ARROW_STREAM", "PARQUET", "Arrow", "ArrowStream", "Frame", "Parquet", "find_long", "pivot", "sort"]

#: Names of columns that say which sensor a value is of, and of columns of values.
_KEY = re.compile(
    r"(sensor|tag|variable|channel|metric|measurement|point|signal|param|parameter|item|entity|topic|field|key|series|"
    r"device|probe|station|node|name|id)[ _]?(id|name|no|nr|number)?"
)
_VALUE = re.compile(r"(value|val|reading|state|data|measurement|y)s?")


# ---------------------------------------------------------------------- files


class Parquet:
    """A Parquet file, a row group after the other."""

    style = PLAIN

    def __init__(self, name: str) -> None:
        self.dropped = DroppedRows()
        # Read in parts of a row group: a file may be one single group.
        self._file = pq.ParquetFile(name, buffer_size=1 << 20, pre_buffer=False, page_checksum_verification=True)
        self.rows = int(self._file.metadata.num_rows)

    def look(self) -> pa.Table:
        batch = next(self._file.iter_batches(LOOK_ROWS, use_threads=False), None)
        return self._file.schema_arrow.empty_table() if batch is None else pa.Table.from_batches([batch])

    def batches(self, names: tuple[str, ...], start: int) -> Iterator[pa.RecordBatch]:
        groups = list(range(self._file.num_row_groups))
        while groups and start >= self._file.metadata.row_group(groups[0]).num_rows:
            start -= self._file.metadata.row_group(groups.pop(0)).num_rows
        if groups:
            yield from _skip_rows(self._file.iter_batches(LOOK_ROWS, groups, list(names), use_threads=False), start)


class Arrow:
    """An Arrow (IPC, Feather) file, a record batch after the other, mapped into memory."""

    style = PLAIN

    def __init__(self, name: str) -> None:
        self.dropped = DroppedRows()
        self._file = pa.ipc.open_file(pa.memory_map(name))
        self._batches = self._file.num_record_batches
        # Counted from the metadata of the batches: no value is read.
        self.rows = int(pyarrow.dataset.dataset(name, format="ipc").count_rows())

    def look(self) -> pa.Table:
        batch = self._file.get_batch(0).slice(0, LOOK_ROWS) if self._batches else None
        return self._file.schema.empty_table() if batch is None else pa.Table.from_batches([batch])

    def batches(self, names: tuple[str, ...], start: int) -> Iterator[pa.RecordBatch]:
        return _skip_rows((self._file.get_batch(i).select(list(names)) for i in range(self._batches)), start)


class ArrowStream:
    """An Arrow stream in a file, perhaps compressed."""

    rows = None
    style = PLAIN

    def __init__(self, file: File) -> None:
        self.dropped = DroppedRows()
        self._file = file

    def look(self) -> pa.Table:
        with self._file.open() as stream:
            reader = pa.ipc.open_stream(stream)
            batch = next(iter(reader), None)
            return reader.schema.empty_table() if batch is None else pa.Table.from_batches([batch.slice(0, LOOK_ROWS)])

    def batches(self, names: tuple[str, ...], start: int) -> Iterator[pa.RecordBatch]:
        with self._file.open() as stream:
            yield from _skip_rows((batch.select(list(names)) for batch in pa.ipc.open_stream(stream)), start)


def _skip_rows(batches: Iterator[pa.RecordBatch], start: int) -> Iterator[pa.RecordBatch]:
    """The batches without their first ``start`` rows."""
    for batch in batches:
        yield batch.slice(min(start, len(batch)))
        start = max(0, start - len(batch))


def _is_stream(file: File) -> bool:
    return file.head.startswith(b"\xff\xff\xff\xff")


PARQUET = Format("Parquet", lambda file: file.start.startswith(b"PAR1"), lambda file, options: Parquet(file.name))
ARROW = Format("Arrow", lambda file: file.start.startswith(b"ARROW1"), lambda file, options: Arrow(file.name))
#: A stream may be compressed, as text may.
ARROW_STREAM = Format("Arrow stream", _is_stream, lambda file, options: ArrowStream(file), text=True)


# ---------------------------------------------------------------------- frames in memory


class Frame:
    """A table in memory: pyarrow, pandas, polars or any other frame with ``__arrow_c_stream__``; a dict of
    arrays; a NumPy structured array; a plain array (T, C) or (T,)."""

    style = PLAIN
    delimiter: str | None = None
    nested: tuple[str, ...] = ()
    unnamed: tuple[str, ...] = ()

    def __init__(self, source: object, names: Sequence[str] | None = None, caller: Caller = CALLER) -> None:
        self.dropped = DroppedRows()
        self.rare: dict[str, str] = {}  # names beside the columns, and why they are no columns
        try:
            self._table = _table(source, names, caller)
        except (pa.ArrowException, TypeError, OverflowError) as error:
            raise TableError(f"the table cannot be read as columns of one type each: {error}") from None
        self.rows = int(self._table.num_rows)

    def look(self) -> pa.Table:
        columns = [i for i, name in enumerate(self._table.column_names) if name not in (ROW, AFTER_DROP)]
        return self._table.select(columns).slice(0, LOOK_ROWS)

    def batches(self, names: tuple[str, ...], start: int) -> Iterator[pa.RecordBatch]:
        numbers = [name for name in (ROW, AFTER_DROP) if name in self._table.column_names]
        return iter(self._table.select([*names, *numbers]).slice(start).to_batches(max_chunksize=LOOK_ROWS))


def _table(source: object, names: Sequence[str] | None, caller: Caller) -> pa.Table:
    if isinstance(source, Mapping):
        source = {name: _unmasked(values) for name, values in source.items()}
    elif isinstance(source, np.ndarray) and source.dtype.names:
        source = {name: source[name] for name in source.dtype.names}
    elif isinstance(source, np.ndarray) and source.ndim in (1, 2):
        grid = source if source.ndim == 2 else source[:, None]
        names = [f"column_{i}" for i in range(1, grid.shape[1] + 1)] if names is None else list(names)
        if len(names) != grid.shape[1]:
            raise refusal("names", caller.function, f"name all {grid.shape[1]} columns", f"{len(names)} names")
        return pa.Table.from_arrays([pa.array(column) for column in grid.T], names)
    if names is not None:
        raise refusal("names", caller.function, "be left out where the source has names", repr(list(names)))
    if isinstance(source, dict):
        return pa.Table.from_arrays([_array(values) for values in source.values()], [str(name) for name in source])
    if hasattr(source, "__arrow_c_stream__"):
        table = pa.table(source)
    elif type(source).__module__.startswith("pandas"):  # before 2.2
        table = pa.Table.from_pandas(source)
    else:
        wanted = "be a path, a frame, an array (T, C) or a dict of arrays"
        raise refusal(caller.source, caller.function, wanted, type(source).__name__)
    # A pandas index without a name is called ``index``.
    return table.rename_columns([name.replace("__index_level_0__", "index") for name in table.column_names])


def _unmasked(values: ArrayLike) -> NDArray[Any]:
    """An array; NaN, or None among words, where a masked one has no value."""
    if not isinstance(values, np.ma.MaskedArray):
        return np.asarray(values)
    if values.dtype.kind in "biuf":
        return np.asarray(np.ma.filled(values.astype(np.float64), np.nan))
    return np.asarray(np.ma.filled(values.astype(object), None))


def _array(values: NDArray[Any]) -> pa.Array:
    if values.ndim != 1:
        raise TypeError(f"an array of shape {values.shape} where (T,) is needed")
    return pa.array(values, from_pandas=True)  # NaN among words is a missing word


# ---------------------------------------------------------------------- sorted and pivoted


def sort(source: Source, names: Sequence[str], when: TimeColumn) -> Frame:
    """All rows in the order of time. One without a time stays behind the row that it followed."""
    table = _read(source, names)
    if ROW not in table.column_names:
        table = table.append_column(ROW, pa.array(np.arange(table.num_rows)))
    time = when.seconds(table)
    # The last row with a time, for each row; -1 before the first.
    known = np.maximum.accumulate(np.where(np.isfinite(time), np.arange(len(time)), -1))
    time = np.where(known >= 0, time[known], -np.inf)
    frame = Frame(table.take(pa.array(np.argsort(time, kind="stable"))))
    for name in ("style", "delimiter", "nested", "unnamed", "dropped", "units", "rare"):
        if hasattr(source, name):
            setattr(frame, name, getattr(source, name))
    return frame


def find_long(
    look: pa.Table, kinds: dict[str, str], when: TimeColumn | None, style: NumberStyle
) -> tuple[str, str] | None:
    """The columns of sensors and values, if the first rows of a table are in long format.

    They are if the same time comes with several sensors, and with each of them once; or by their names, if there is
    one column of values.
    """
    candidates = [name for name in kinds if when is None or name not in when.names]
    numeric = [name for name in candidates if kinds[name] in ("number", "percent")]
    if when is None or look.num_rows < 4:
        return None
    time = when.seconds(look)
    for key in candidates:
        values = [name for name in numeric if name != key]
        named = _KEY.fullmatch(key.strip().lower()) is not None
        if not values or not (kinds[key] == "text" or (named and kinds[key] == "number")):
            continue
        words = _labels(look, key)
        sensors = len(set(words) - {None})
        if not 2 <= sensors <= look.num_rows / 2:
            continue
        moments, pairs = len(np.unique(time)), len(set(zip(time.tolist(), words, strict=True)))
        several = 1.5 * moments <= look.num_rows and pairs >= 0.99 * look.num_rows
        if several or (named and kinds[key] == "text" and len(values) == 1 and _VALUE.fullmatch(values[0].lower())):
            return key, values[0]
    return None


def pivot(name: str, source: Source, chosen: Sequence[str], time: str | bool | None) -> Frame:
    """A column for each sensor, from a table with a row for each reading: ``chosen`` are its sensor and value columns.

    With several columns of values, a column's name is that of the sensor and of the value.
    """
    look, style = source.look(), source.style
    kinds = {c: fields.find_kind(fields.as_plain(look.column(c)), style) for c in look.column_names}
    key, *values = chosen
    for column in chosen:
        if column not in kinds:
            raise TableError(f"{name}: there is no column {column!r} to pivot. It has: {', '.join(map(repr, kinds))}.")
    for column in values:
        if kinds[column] not in ("number", "percent", "switch"):
            raise TableError(f"{name}: column {column!r} holds no numbers, so it cannot be the value to pivot.")
    candidates = {column: kind for column, kind in kinds.items() if column not in chosen}
    when, why, _ = fields.find_time(name, look, candidates, time, style)
    if when is None:
        raise TableError(f"{name}: a pivot needs a time column, and {why}. Name it: time=…")
    table = _read(source, (*chosen, *when.names))
    seconds, words = when.seconds(table), _labels(table, key)
    usable = np.isfinite(seconds) & np.array([word is not None for word in words], np.bool_)
    if not usable.any():
        raise TableError(f"{name}: no row has both a time and a {key!r}.")
    moments, row = np.unique(seconds[usable], return_inverse=True)
    place = {word: i for i, word in enumerate(dict.fromkeys(w for w, use in zip(words, usable, strict=True) if use))}
    at = np.array([place[word] for word, use in zip(words, usable, strict=True) if use])
    cells = row * len(place) + at  # the places of the readings in the wide table, row by row
    dropped = source.dropped
    _count(dropped, f"no time or no {key!r}", ~usable)
    # Of several readings for a cell the last counts: unique gives the first, so the order is reversed.
    _, latest = np.unique(cells[::-1], return_index=True)
    superseded = np.ones(len(cells), np.bool_)
    superseded[len(cells) - 1 - latest] = False
    _count(dropped, f"another reading of the same {key!r} at the same time follows", superseded)
    wide: dict[str, pa.Array | NDArray[np.float64]] = {when.name: _stamps(moments, when)}
    for value in values:
        column_style = replace(style, switch=kinds[value] == "switch", percent=kinds[value] == "percent")
        floats, _ = fields.as_floats(fields.as_plain(table.column(value)), column_style)
        grid = np.full(len(moments) * len(place), np.nan)
        grid[cells[~superseded]] = floats[usable][~superseded]
        for word, i in place.items():
            wide[f"{word} {value}" if len(values) > 1 else str(word)] = grid[i :: len(place)]
    frame = Frame(pa.table(wide))
    frame.dropped = dropped
    return frame


def _read(source: Source, names: Sequence[str]) -> pa.Table:
    """All rows, as one Arrow table. A column that is text in some batches and numbers in others becomes text."""
    batches = list(source.batches(tuple(names), 0))
    columns = {}
    for i, column in enumerate(batches[0].schema.names):
        arrays = [fields.as_plain(batch.column(i)) for batch in batches]
        if len({array.type for array in arrays}) > 1:
            arrays = [array.cast(pa.string()) for array in arrays]
        columns[column] = pa.chunked_array(arrays)
    return pa.table(columns)


def _labels(table: pa.Table, column: str) -> list[str | None]:
    array = fields.as_plain(table.column(column))
    if not fields.is_text(array):
        values = fields.as_floats(array)[0]
        return [None if np.isnan(value) else f"{value:g}" for value in values.tolist()]
    labels: list[str | None] = fields.parse_labels(array).tolist()
    return labels


def _stamps(seconds: NDArray[np.float64], when: TimeColumn) -> pa.Array:
    if not when.dated:
        return pa.array(seconds)
    return pa.array(np.round(seconds * 1e6).astype(np.int64)).cast(pa.timestamp("us", when.zone))


def _count(dropped: DroppedRows, why: str, rows: NDArray[np.bool_]) -> None:
    if rows.any():
        dropped.add(why, int(np.argmax(rows)) + 1, int(rows.sum()))
