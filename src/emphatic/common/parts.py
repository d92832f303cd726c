"""Results in parts: what a run writes as it goes, and the point from which a stopped run resumes.

A run writes its results in parts, each a complete file that is numbered by the first row (or task) in it. Now and then
it saves a resume point: how many rows are done, and the state to go on with. Parts are on the disk before the point
that counts them. A run that is killed at any moment therefore resumes from its last point: ``PartStore.drop`` removes
the rows that were written after it, and they are learned and written again.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray

from emphatic.common.files import atomic_file
from emphatic.common.locks import LOCK

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq

__all__ = ["PartStore", "open_writer"]

#: The entry of a part's metadata that holds the id of its run.
_RUN = b"emphatic.run"
#: A part of more columns than this is written as one column: for each column Parquet takes more time and memory
#: than a few rows do.
_COLUMNS = 500
#: The entry of the metadata of such a part.
_WIDE = b"emphatic.packed"
#: Bytes of a value of such a part, and of what is read of a file at a time.
_PAGE = 1 << 20
#: Rows that tell whether the numbers of a column repeat.
_LOOKED_AT = 8192


class PartStore:
    """Parts of one run in a folder. Each is named by its kind and by the number of its first row.

    Args:
        folder: Where the parts lie. A lock file in it is left alone.
        run: The id of the run, which every table carries: parts of another run are refused.
    """

    def __init__(self, folder: Path, run: str = "") -> None:
        self.folder, self.run = folder, run

    def path(self, kind: str, number: int, suffix: str = "parquet") -> Path:
        """The file of a part."""
        return self.folder / f"{kind}-{number:012d}.{suffix}"

    def starts(self, kind: str, suffix: str = "parquet") -> list[int]:
        """The numbers of the first rows of all parts of a kind, in order."""
        return sorted(int(path.stem.rpartition("-")[2]) for path in self.folder.glob(f"{kind}-*.{suffix}"))

    def clear(self) -> None:
        """Empty the folder."""
        for path in self.folder.iterdir():
            if path.name == LOCK:
                continue
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink()

    # ------------------------------------------------------------------ tables

    def write(self, kind: str, number: int, columns: Mapping[str, Any], compress: bool = True) -> None:
        """Write rows as a part.

        Args:
            kind: What the rows are, such as "predictions".
            number: The number of the first row.
            columns: The columns by name, arrays of one length.
            compress: Whether to compress them, which noise does not repay.
        """
        import pyarrow as pa
        import pyarrow.parquet as pq

        table, path = pa.table(dict(columns)), self.path(kind, number)
        metadata: dict[bytes, Any] = {_RUN: self.run}
        is_wide = table.num_columns > _COLUMNS
        if is_wide:
            table, metadata[_WIDE] = _pack(table), "packed"
        table = table.replace_schema_metadata(metadata)
        options: dict[str, Any] = {"write_page_checksum": True}
        options["compression"] = (
            "lz4" if compress else "none"
        )  # parts do not last: half the time counts more than a tenth
        if is_wide:
            options["write_batch_size"] = 1  # a page is full after so many values
        with atomic_file(path) as file:
            texts = [] if is_wide else _other_than_floats(table.schema)
            pq.write_table(table, file, use_dictionary=texts, write_statistics=False, **options)
        if is_wide:
            del table
            pa.default_memory_pool().release_unused()

    def read(self, kind: str, number: int) -> pa.Table:
        """The rows of a part; ValueError if another run wrote it."""
        import pyarrow.parquet as pq

        path = self.path(kind, number)
        with pq.ParquetFile(path, page_checksum_verification=True, pre_buffer=False, buffer_size=_PAGE) as file:
            metadata = file.schema_arrow.metadata or {}
            if metadata.get(_RUN, b"").decode() != self.run:
                raise ValueError(f"{path}: this part was written by another run. Start again.")
            table = file.read(use_threads=False).replace_schema_metadata(None)
        return _unpack(table) if _WIDE in metadata else table

    def drop(self, rows: int, *kinds: str) -> None:
        """Remove the rows from number ``rows`` on, which were written after the resume point."""
        for kind in kinds:
            for number in self.starts(kind):
                if number >= rows:
                    self.path(kind, number).unlink()
            for number in self.starts(kind)[-1:]:
                table = self.read(kind, number)
                if number + table.num_rows > rows:
                    shorter = table.slice(0, rows - number)
                    self.write(kind, number, {name: shorter.column(name) for name in shorter.column_names})

    # ------------------------------------------------------------------ arrays

    def write_arrays(self, kind: str, number: int, arrays: Mapping[str, Any]) -> None:
        """Write arrays of any shape as a part."""
        with atomic_file(self.path(kind, number, "npz")) as file:
            np.savez(file, **arrays)

    def read_arrays(self, kind: str, number: int) -> dict[str, NDArray[Any]] | None:
        """The arrays of a part; None if its file is damaged."""
        try:
            path = self.path(kind, number, "npz")
            with path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
                return {name: arrays[name] for name in arrays.files}
        except (OSError, ValueError, KeyError, EOFError, BadZipFile):
            return None


def open_writer(file: Path | IO[bytes], rows: pa.Table) -> pq.ParquetWriter:
    """A writer of predictions, which encodes each column as it is smaller.

    Numbers that repeat, as the bounds of intervals do, are kept as a dictionary. Others are nearly all different: they
    are split into streams of their bytes.

    Args:
        file: The file, or its path.
        rows: The first rows. Their schema is that of the file, and what repeats is found from them.
    """
    import pyarrow.parquet as pq

    repeating = _other_than_floats(rows.schema)
    middle = rows.slice(max(0, rows.num_rows - _LOOKED_AT) // 2, _LOOKED_AT)
    different = [name for name in rows.column_names if name not in repeating]
    repeating += [name for name in different if _repeats(middle.column(name))]
    return pq.ParquetWriter(
        file,
        rows.schema,
        compression="zstd",
        compression_level=1,
        write_page_checksum=True,
        use_dictionary=repeating,
        column_encoding={name: "BYTE_STREAM_SPLIT" for name in rows.column_names if name not in repeating},
    )


def _repeats(column: pa.ChunkedArray) -> bool:
    """Whether at most half of the numbers of a column are different."""
    import pyarrow.compute as pc

    return 2 * int(pc.count_distinct(column).as_py()) <= len(column)


def _other_than_floats(schema: pa.Schema) -> list[str]:
    """The columns that are neither floats nor lists of them."""
    import pyarrow as pa

    kinds = pa.types
    return [field.name for field in schema if not (kinds.is_floating(field.type) or kinds.is_nested(field.type))]


def _pack(table: pa.Table) -> pa.Table:
    """A table as a few values, one after the other: its columns as Arrow streams them.

    A value is no longer than a page, for Parquet holds a page in memory, twice.
    """
    import pyarrow as pa

    size = pa.MockOutputStream()
    _stream(table, size)
    data = pa.allocate_buffer(size.size())
    _stream(table, pa.FixedSizeBufferWriter(data))
    ends = np.append(np.arange(0, data.size, _PAGE), data.size)
    buffers = [None, pa.py_buffer(ends), data]
    return pa.table({"stream": pa.Array.from_buffers(pa.large_binary(), len(ends) - 1, buffers)})


def _stream(table: pa.Table, sink: pa.NativeFile) -> None:
    import pyarrow as pa

    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)


def _unpack(table: pa.Table) -> pa.Table:
    """The table that ``_pack`` was called with."""
    import pyarrow as pa

    pa.default_memory_pool().release_unused()  # pages that were unpacked
    values = table.column("stream").combine_chunks()
    _, ends, data = values.buffers()
    begin = int(np.frombuffer(ends, np.int64)[values.offset])
    with pa.ipc.open_stream(data.slice(begin)) as reader:
        return reader.read_all()
