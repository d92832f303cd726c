"""Frames and arrays in memory, by the Arrow interface."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from emphatic.learning.inputs import refusal
from emphatic.tables.dropped_rows import AFTER_DROP, ROW, DroppedRows
from emphatic.tables.fields import PLAIN
from emphatic.tables.files import LOOK_ROWS
from emphatic.tables.table_errors import CALLER, Caller, TableError

__all__ = ["Frame"]


class Frame:
    """A table in memory: pyarrow, pandas, polars or any other frame with ``__arrow_c_stream__``; a dict of
    arrays; a NumPy structured array; a plain array (T, C) or (T,)."""

    style = PLAIN
    delimiter: str | None = None
    nested: tuple[str, ...] = ()
    unnamed: tuple[str, ...] = ()

    def __init__(self, source: Any, names: Sequence[str] | None = None, caller: Caller = CALLER) -> None:
        self.dropped = DroppedRows()
        self.rare: dict[str, str] = {}  # what was found beside the columns, and why it is none of them
        try:
            self._table = _table(source, names, caller)
        except (pa.ArrowException, TypeError, OverflowError) as error:
            raise TableError(f"the table cannot be read as columns of one type each: {error}") from None
        self.rows = int(self._table.num_rows)

    def look(self) -> Any:
        own = [i for i, name in enumerate(self._table.column_names) if name not in (ROW, AFTER_DROP)]
        return self._table.select(own).slice(0, LOOK_ROWS)

    def batches(self, names: tuple[str, ...], start: int) -> Iterator[Any]:
        numbers = [name for name in (ROW, AFTER_DROP) if name in self._table.column_names]
        return iter(self._table.select([*names, *numbers]).slice(start).to_batches(max_chunksize=LOOK_ROWS))


def _table(source: Any, names: Sequence[str] | None, caller: Caller) -> Any:
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
        raise refusal(
            caller.source,
            caller.function,
            "be a path, a frame, an array (T, C) or a dict of arrays",
            type(source).__name__,
        )
    return table.rename_columns([_own_name(name) for name in table.column_names])


def _unmasked(values: Any) -> Any:
    """An array; NaN, or None among words, where a masked one has no value."""
    if not isinstance(values, np.ma.MaskedArray):
        return np.asarray(values)
    if values.dtype.kind in "biuf":
        return np.ma.filled(values.astype(np.float64), np.nan)
    return np.ma.filled(values.astype(object), None)


def _array(values: Any) -> Any:
    if values.ndim != 1:
        raise TypeError(f"an array of shape {values.shape} where (T,) is needed")
    return pa.array(values, from_pandas=True)  # NaN among words is a missing word


def _own_name(name: str) -> str:
    """A pandas index without a name is called ``index``."""
    return name.replace("__index_level_0__", "index")
