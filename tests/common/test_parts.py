"""Parts of a run: what was written is read back, however many columns it has."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from emphatic.common.parts import PartStore, open_writer


def columns(count: int, rows: int) -> dict[str, object]:
    rng = np.random.default_rng(count)
    words = pa.DictionaryArray.from_arrays(pa.array([0, None, 1] * rows, pa.int8())[:rows], pa.array(["up", "down"]))
    numbers = {f"n{i}": rng.normal(size=rows) for i in range(count)}
    return {"row": np.arange(rows), **numbers, "flag": rng.random(rows) < 0.5, "why": words}


@pytest.mark.parametrize("count", [3, 900])
def test_columns_come_back_as_they_were(tmp_path: Path, count: int) -> None:
    store, written = PartStore(tmp_path, "this"), columns(count, 7)
    store.write("predictions", 20, written)
    table = store.read("predictions", 20)
    assert table.column_names == list(written)
    assert table.equals(pa.table(written))
    store.drop(25, "predictions")
    assert store.read("predictions", 20).equals(pa.table(written).slice(0, 5))
    with pytest.raises(ValueError, match="written by another run"):
        PartStore(tmp_path, "another").read("predictions", 20)


def test_many_columns_are_written_as_one_value(tmp_path: Path) -> None:
    store = PartStore(tmp_path)
    store.write("predictions", 0, columns(900, 7))
    assert pq.read_metadata(store.path("predictions", 0)).num_columns == 1


def test_a_damaged_part_of_many_columns_is_not_read(tmp_path: Path) -> None:
    store = PartStore(tmp_path)
    store.write("predictions", 0, columns(900, 50))
    path = store.path("predictions", 0)
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0xFF
    path.write_bytes(data)
    with pytest.raises(OSError, match=r"(?i)crc|corrupt"):
        store.read("predictions", 0)


def test_a_wide_part_of_many_pages_is_read_as_it_was_written(tmp_path: Path) -> None:
    """Of more than 500 columns and of several pages, from the first row or from within; and one of a single page."""
    rng = np.random.default_rng(0)
    store = PartStore(tmp_path, "run")
    for start, rows in ((0, 700), (700, 3)):
        columns = {f"c{i}": rng.normal(size=rows) for i in range(501)}
        store.write("wide", start, columns)
        table = store.read("wide", start)
        assert table.num_rows == rows
        assert all(np.array_equal(table.column(name).to_numpy(), values) for name, values in columns.items())
    store.drop(600, "wide")
    assert store.starts("wide") == [0]
    assert store.read("wide", 0).num_rows == 600


def test_numbers_that_repeat_are_a_dictionary_and_others_streams_of_bytes(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    columns = {"bound": np.repeat(rng.normal(size=100), 9).astype(np.float32), "prediction": rng.normal(size=900)}
    table = pa.table(columns | {"why": pa.array(["stuck", None, "missing"] * 300).dictionary_encode()})
    with open_writer(tmp_path / "file", table) as writer:
        writer.write_table(table)
    assert pq.read_table(tmp_path / "file", page_checksum_verification=True).equals(table)
    group = pq.ParquetFile(tmp_path / "file").metadata.row_group(0)
    bound, prediction, why = ("".join(group.column(i).encodings) for i in range(3))
    assert "RLE_DICTIONARY" in bound
    assert "RLE_DICTIONARY" in why
    assert "BYTE_STREAM_SPLIT" in prediction
    assert "DICTIONARY" not in prediction
