"""Tables of predictions, compared to the last bit: where nothing is known yet, they have NaN."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

__all__ = ["assert_same_table"]


def assert_same_table(table: pa.Table, other: pa.Table) -> None:
    """The same columns, of the same types, with the same cells: NaN is NaN."""
    assert table.schema.equals(other.schema)
    for name in table.column_names:
        np.testing.assert_array_equal(_cells(table.column(name)), _cells(other.column(name)), name)


def _cells(column: pa.ChunkedArray) -> Any:
    is_words = pa.types.is_dictionary(column.type) or pa.types.is_string(column.type)
    return np.array(column.to_pylist(), object) if is_words else column.to_numpy()
