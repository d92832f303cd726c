"""Files: recognised by their first bytes, not by their names."""

from __future__ import annotations

import codecs
import lzma
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.dataset
import pyarrow.ipc
import pyarrow.parquet as pq

from emphatic.tables.delimited import Delimited
from emphatic.tables.dropped_rows import DroppedRows
from emphatic.tables.fields import PLAIN, NumberStyle
from emphatic.tables.jsonlines import JsonLines
from emphatic.tables.recordings import MAGIC, is_bag
from emphatic.tables.table_errors import TableError, reading

__all__ = ["File", "Source", "open_file"]

#: How much of a text file is looked at to decide on delimiter, names and kinds of columns.
LOOK = 1 << 22
#: The same for typed files, in rows.
LOOK_ROWS = 1 << 16

_COMPRESSED = {b"\x1f\x8b": "gzip", b"\x28\xb5\x2f\xfd": "zstd", b"BZh": "bz2", b"\xfd7zXZ": "xz"}
_FOREIGN = {
    b"PK\x03\x04": "a zip archive or a spreadsheet: unpack it, or export it as CSV",
    b"\x89HDF": "an HDF5 file: write its table as Parquet or CSV",
    b"SQLite": "a database: export its table as CSV (a ROS 2 bag's ends in .db3)",
    b"#ROSBAG": "a ROS 1 bag: make it a ROS 2 bag, rosbags-convert --src FILE --dst FOLDER",
    b"FEA1": "Feather of version 1: write it again as version 2",
    b"\xff\xfe": "UTF-16: convert it to UTF-8, iconv -f utf-16 -t utf-8",
    b"\xfe\xff": "UTF-16: convert it to UTF-8, iconv -f utf-16 -t utf-8",
}


class Source(Protocol):
    """What a table is read from: its first rows to look at, then all of them in parts, from any row on."""

    @property
    def rows(self) -> int | None: ...
    @property
    def style(self) -> NumberStyle: ...
    @property
    def dropped(self) -> DroppedRows: ...
    def look(self) -> Any: ...
    def batches(self, names: tuple[str, ...], start: int) -> Iterator[Any]: ...


class File:
    """A file of text, perhaps compressed: its first part, and a way to read it from the start."""

    def __init__(self, name: str, path: Path, compression: str | None) -> None:
        self.name, self._path, self._compression = name, path, compression
        with self.open() as stream:
            parts = [stream.read(LOOK)]
            while parts[-1] and sum(map(len, parts)) < LOOK:
                parts.append(stream.read(LOOK - sum(map(len, parts))))
        self.head = b"".join(parts)
        if len(self.head) == LOOK:
            self.head = self.head[: self.head.rfind(b"\n") + 1] or self.head[: self.head.rfind(b"\r") + 1]

    def open(self) -> Any:
        """The bytes of its text from the start."""
        if self._compression == "xz":
            return lzma.open(self._path)
        return pa.input_stream(str(self._path), compression=self._compression)

    def not_utf8(self) -> int | None:
        """The first line that is not UTF-8."""
        decoder, line = codecs.getincrementaldecoder("utf-8")(), 1
        with self.open() as stream:
            while part := stream.read(1 << 16):
                try:
                    line += decoder.decode(part).count("\n")
                except UnicodeDecodeError as error:
                    return line + error.object[: error.start].count(b"\n")
        return None


def open_file(name: str, delimiter: str | None, topics: Collection[str] | None = None) -> tuple[Source, File | None]:
    """The source a file is, and the file itself where it is text. ``topics`` are those of a robot log to read."""
    path = Path(name)
    if path.is_dir() and not is_bag(path):
        raise TableError(f"{name}: this is a folder, and no ROS 2 bag. Name one file in it.")
    if path.is_dir():
        return _robot_log(path, topics), None
    if path.exists() and not path.is_file():
        raise TableError(f"{name}: this is a pipe or a device, and a table is read more than once. Save it as a file.")
    with path.open("rb") as raw:
        start = raw.read(8)
    if not start:
        raise TableError(f"{name}: the file is empty.")
    if start == MAGIC or (start.startswith(b"SQLite") and path.suffix == ".db3"):
        return _robot_log(path, topics), None
    if path.suffix == ".mcap":
        raise TableError(f"{name}: this is not an MCAP file, whatever its name: its first bytes are others.")
    if topics is not None:
        raise TableError(f"{name}: this is no robot log (an MCAP file or the folder of a ROS 2 bag): it has no topics.")
    if start.startswith(b"PAR1"):
        return Parquet(name), None
    if start.startswith(b"ARROW1"):
        return Arrow(name), None
    compression = next((how for magic, how in _COMPRESSED.items() if start.startswith(magic)), None)
    file = File(name, path, compression)
    with reading(name, file.not_utf8):
        return _text(file, delimiter), file


def _robot_log(path: Path, topics: Collection[str] | None) -> Source:
    from emphatic.tables.robot_logs import RobotLog

    return RobotLog(path, topics)


def _text(file: File, delimiter: str | None) -> Source:
    head = file.head
    if head.startswith(b"\xff\xff\xff\xff"):
        return ArrowStream(file)
    for magic, what in _FOREIGN.items():
        if head.startswith(magic):
            raise TableError(f"{file.name}: this is {what}.")
    if head.startswith((b"PAR1", b"ARROW1")):
        raise TableError(
            f"{file.name}: a compressed Parquet or Arrow file. Unpack it; these compress their own columns."
        )
    if b"\0" in head:
        raise TableError(f"{file.name}: this is a binary file that is not Parquet or Arrow. Export its table as CSV.")
    if not head:
        raise TableError(f"{file.name}: the file is empty, or its first line is longer than {LOOK >> 20} MB.")
    head.decode()
    begin = head.lstrip(b"\xef\xbb\xbf \t\r\n")[:1]
    if begin == b"[":
        raise TableError(f"{file.name}: one JSON array. Write one object a line instead: jq -c '.[]' FILE > FILE.jsonl")
    return JsonLines(file) if begin == b"{" else Delimited(file, delimiter)


class Parquet:
    """A Parquet file, a row group after the other."""

    style = PLAIN

    def __init__(self, name: str) -> None:
        self.dropped = DroppedRows()
        # Read in parts of a row group: a file may be one single group.
        self._file = pq.ParquetFile(name, buffer_size=1 << 20, pre_buffer=False, page_checksum_verification=True)
        self.rows = int(self._file.metadata.num_rows)

    def look(self) -> Any:
        first = next(self._file.iter_batches(LOOK_ROWS, use_threads=False), None)
        return self._file.schema_arrow.empty_table() if first is None else pa.Table.from_batches([first])

    def batches(self, names: tuple[str, ...], start: int) -> Iterator[Any]:
        groups = list(range(self._file.num_row_groups))
        while groups and start >= self._file.metadata.row_group(groups[0]).num_rows:
            start -= self._file.metadata.row_group(groups.pop(0)).num_rows
        if groups:
            yield from _after(self._file.iter_batches(LOOK_ROWS, groups, list(names), use_threads=False), start)


class Arrow:
    """An Arrow (IPC, Feather) file, a record batch after the other, mapped into memory."""

    style = PLAIN

    def __init__(self, name: str) -> None:
        self.dropped = DroppedRows()
        self._file = pa.ipc.open_file(pa.memory_map(name))
        self._parts = self._file.num_record_batches
        self.rows = int(pyarrow.dataset.dataset(name, format="ipc").count_rows())  # from what stands around the values

    def look(self) -> Any:
        first = self._file.get_batch(0).slice(0, LOOK_ROWS) if self._parts else None
        return self._file.schema.empty_table() if first is None else pa.Table.from_batches([first])

    def batches(self, names: tuple[str, ...], start: int) -> Iterator[Any]:
        return _after((self._file.get_batch(i).select(list(names)) for i in range(self._parts)), start)


class ArrowStream:
    """An Arrow stream in a file, perhaps compressed."""

    rows = None
    style = PLAIN

    def __init__(self, file: File) -> None:
        self.dropped = DroppedRows()
        self._file = file

    def look(self) -> Any:
        with self._file.open() as stream:
            reader = pa.ipc.open_stream(stream)
            first = next(iter(reader), None)
            return reader.schema.empty_table() if first is None else pa.Table.from_batches([first.slice(0, LOOK_ROWS)])

    def batches(self, names: tuple[str, ...], start: int) -> Iterator[Any]:
        with self._file.open() as stream:
            yield from _after((batch.select(list(names)) for batch in pa.ipc.open_stream(stream)), start)


def _after(batches: Iterator[Any], start: int) -> Iterator[Any]:
    for batch in batches:
        yield batch.slice(min(start, len(batch)))
        start = max(0, start - len(batch))
