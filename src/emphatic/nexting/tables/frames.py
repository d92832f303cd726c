"""Tables that Arrow holds: Parquet and Arrow files, frames and arrays in memory; and tables that are sorted.

Rows are sorted by time in memory.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pyarrow.ipc
from numpy.typing import ArrayLike, NDArray

from emphatic.common.names import refusal
from emphatic.nexting.tables import fields
from emphatic.nexting.tables.fields import PLAIN, TimeColumn
from emphatic.nexting.tables.files import AFTER_DROP, LOOK_ROWS, ROW, DroppedRows, Format, Source
from emphatic.nexting.tables.table import CALLER, Caller, TableError

__all__ = ["ARROW", "PARQUET", "Arrow", "Frame", "Parquet", "sort"]

# ---------------------------------------------------------------------- files


class Parquet:
    """A Parquet file, a row group after the other."""

    style = PLAIN

    def __init__(self, name: str) -> None:
        import pyarrow.parquet as pq  # late: other files are opened without it

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
        from pyarrow.dataset import dataset  # late, like Parquet

        self.dropped = DroppedRows()
        self._file = pa.ipc.open_file(pa.memory_map(name))
        self._batches = self._file.num_record_batches
        # Counted from the metadata of the batches: no value is read.
        self.rows = int(dataset(name, format="ipc").count_rows())

    def look(self) -> pa.Table:
        batch = self._file.get_batch(0).slice(0, LOOK_ROWS) if self._batches else None
        return self._file.schema.empty_table() if batch is None else pa.Table.from_batches([batch])

    def batches(self, names: tuple[str, ...], start: int) -> Iterator[pa.RecordBatch]:
        return _skip_rows((self._file.get_batch(i).select(list(names)) for i in range(self._batches)), start)


def _skip_rows(batches: Iterator[pa.RecordBatch], start: int) -> Iterator[pa.RecordBatch]:
    """The batches without their first ``start`` rows."""
    for batch in batches:
        yield batch.slice(min(start, len(batch)))
        start = max(0, start - len(batch))


PARQUET = Format("Parquet", lambda file: file.start.startswith(b"PAR1"), lambda file, options: Parquet(file.name))
ARROW = Format("Arrow", lambda file: file.start.startswith(b"ARROW1"), lambda file, options: Arrow(file.name))


# ---------------------------------------------------------------------- frames in memory


class Frame:
    """A table in memory: pyarrow, pandas, polars or any other frame with ``__arrow_c_stream__``; a series; a dict of
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
    source = _as_frame(source)
    if isinstance(source, Mapping):
        source = {name: _unmasked(values) for name, values in source.items()}
    elif isinstance(source, np.ndarray) and source.dtype.names:
        source = {name: _unmasked(source[name]) for name in source.dtype.names}
    elif isinstance(source, np.ndarray) and source.ndim in (1, 2):
        grid = source if source.ndim == 2 else source[:, None]
        names = [f"column_{i}" for i in range(1, grid.shape[1] + 1)] if names is None else list(names)
        if len(names) != grid.shape[1]:
            raise refusal("names", caller.function, f"name all {grid.shape[1]} columns", f"{len(names)} names")
        columns = zip(names, grid.T, strict=True)
        return pa.Table.from_arrays([_array(name, column, from_pandas=False) for name, column in columns], names)
    if names is not None:
        raise refusal("names", caller.function, "be left out where the source has names", repr(list(names)))
    if isinstance(source, dict):
        return pa.Table.from_arrays([_array(*column) for column in source.items()], [str(name) for name in source])
    if hasattr(source, "__arrow_c_stream__"):
        table = pa.table(source)
    else:
        wanted = "be a path, a frame, a series, an array (T, C) or a dict of arrays"
        raise refusal(caller.source, caller.function, wanted, type(source).__name__)
    # A pandas index without a name is called ``index``.
    return table.rename_columns([name.replace("__index_level_0__", "index") for name in table.column_names])


def _as_frame(source: object) -> Any:
    """A series of pandas or polars as a frame with one column, ``value`` if it has no name; others as they are."""
    frame = cast("Any", source)
    if type(source).__name__ == "Series" and hasattr(source, "to_frame"):
        name = frame.name
        frame = frame.to_frame("value" if name in (None, "") else str(name))
    if type(frame).__module__.startswith("pandas") and type(frame.index).__name__ == "PeriodIndex":
        frame = frame.set_axis(frame.index.to_timestamp(), axis=0)
    return frame


def _unmasked(values: ArrayLike) -> NDArray[Any]:
    """An array; NaN, or None among words, where a masked one has no value."""
    if not isinstance(values, np.ma.MaskedArray):
        array = np.asarray(values)
        # Arrow has no minutes, hours, weeks, months and years.
        coarse = array.dtype.kind == "M" and np.datetime_data(array.dtype)[0] in ("m", "h", "W", "M", "Y")
        return array.astype("datetime64[s]") if coarse else array
    if values.dtype.kind in "biuf":
        return np.asarray(np.ma.filled(values.astype(np.float64), np.nan))
    return np.asarray(np.ma.filled(values.astype(object), None))


def _array(name: object, values: NDArray[Any], from_pandas: bool = True) -> pa.Array:
    """A column as Arrow holds it; ``from_pandas`` where NaN among words is a missing word."""
    if values.ndim != 1:
        raise TypeError(f"{name!r} is an array of shape {values.shape} where (T,) is needed")
    if values.dtype.kind == "f" and values.dtype.itemsize > 8:
        values = values.astype(np.float64)
    try:  # Arrow has only this machine's order of bytes
        return pa.array(values.astype(values.dtype.newbyteorder("="), copy=False), from_pandas=from_pandas)
    except pa.ArrowNotImplementedError:
        raise TypeError(f"{name!r} is an array of {values.dtype}, not of real numbers, times or words") from None


# ---------------------------------------------------------------------- sorted


def sort(source: Source, names: Sequence[str], when: TimeColumn) -> Frame:
    """All rows in the order of time. One without a time stays behind the row that it followed."""
    table = read_all(source, names)
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


def read_all(source: Source, names: Sequence[str]) -> pa.Table:
    """All rows, as one Arrow table. A column that is text in some batches and numbers in others becomes text."""
    batches = list(source.batches(tuple(names), 0))
    columns = {}
    for i, column in enumerate(batches[0].schema.names):
        arrays = [fields.as_plain(batch.column(i)) for batch in batches]
        if len({array.type for array in arrays}) > 1:
            arrays = [array.cast(pa.string()) for array in arrays]
        columns[column] = pa.chunked_array(arrays)
    return pa.table(columns)


def as_stamps(seconds: NDArray[np.float64], when: TimeColumn) -> pa.Array:
    if not when.dated:
        return pa.array(seconds)
    return pa.array(np.round(seconds * 1e6).astype(np.int64)).cast(pa.timestamp("us", when.zone))


def count_rows(dropped: DroppedRows, why: str, rows: NDArray[np.bool_]) -> None:
    if rows.any():
        dropped.add(why, int(np.argmax(rows)) + 1, int(rows.sum()))
