"""Files: what a table is read from, recognised by its first bytes and not by its name."""

from __future__ import annotations

import codecs
import lzma
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import numpy as np
import pyarrow as pa

from emphatic.tables.fields import NumberStyle
from emphatic.tables.table import TableError, reading

__all__ = ["DroppedRows", "File", "ReadingPass", "Source", "open_file"]

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
#: Columns that the batches of a file of text have beside its own: the number of each row in the file, from 0 on, and
#: whether a row was dropped since the one before it.
ROW, AFTER_DROP = "\x1erow", "\x1eafter drop"


class Source(Protocol):
    """What a table is read from: its first rows to look at, then all of them in batches, from any row on.

    A source may also have: ``delimiter`` (of CSV), ``units`` (of columns), ``unnamed`` (columns without a name),
    ``nested`` (names whose values are objects or lists), ``rare`` (other names that are no columns, and why) and
    ``joined`` (whether its rows were joined from several streams, and so may come in bursts).
    """

    @property
    def rows(self) -> int | None:
        """The number of rows, where it is known without reading them."""

    @property
    def style(self) -> NumberStyle:
        """How numbers are written in columns of text."""

    @property
    def dropped(self) -> DroppedRows:
        """The rows that the last pass could not use."""

    def look(self) -> pa.Table:
        """The first rows, which decide on the kinds of columns."""

    def batches(self, names: tuple[str, ...], start: int) -> Iterator[pa.RecordBatch]:
        """These columns of all rows from row number ``start`` on, in batches of any length."""


class File:
    """A file of text, perhaps compressed: ``head`` is its beginning, in complete lines."""

    def __init__(self, name: str, path: Path, compression: str | None) -> None:
        self.name, self._path, self._compression = name, path, compression
        with self.open() as stream:
            chunks = [stream.read(LOOK)]
            while chunks[-1] and sum(map(len, chunks)) < LOOK:
                chunks.append(stream.read(LOOK - sum(map(len, chunks))))
        self.head = b"".join(chunks)
        if len(self.head) == LOOK:
            self.head = self.head[: self.head.rfind(b"\n") + 1] or self.head[: self.head.rfind(b"\r") + 1]

    def open(self) -> pa.NativeFile | lzma.LZMAFile:
        """The bytes of its text from the start."""
        if self._compression == "xz":
            return lzma.open(self._path)
        return pa.input_stream(str(self._path), compression=self._compression)

    def not_utf8(self) -> int | None:
        """The first line that is not UTF-8."""
        decoder, line = codecs.getincrementaldecoder("utf-8")(), 1
        with self.open() as stream:
            while chunk := stream.read(1 << 16):
                try:
                    line += decoder.decode(chunk).count("\n")
                except UnicodeDecodeError as error:
                    return line + error.object[: error.start].count(b"\n")
        return None


@dataclass
class DroppedRows:
    """Counts by reason, with the line (of a frame: the row) of the first of each; and rows that were filled up."""

    reasons: dict[str, tuple[int, int]] = field(default_factory=dict)
    short: int = 0

    def add(self, why: str, line: int, count: int = 1) -> None:
        """Count ``count`` rows, the first of them at this line."""
        total, earliest = self.reasons.get(why, (0, line))
        self.reasons[why] = total + count, earliest

    @property
    def count(self) -> int:
        """How many there are, for any reason."""
        return sum(count for count, _ in self.reasons.values())

    def facts(self) -> list[dict[str, str | int]]:
        """As JSON can hold it."""
        return [{"why": why, "count": count, "first": line} for why, (count, line) in self.reasons.items()]


class ReadingPass:
    """One pass over the lines of a file: the number of the next line, and of the next row, dropped ones included."""

    def __init__(self, line: int) -> None:
        self.dropped = DroppedRows()
        self.line = line
        self._row = 0
        self._last: int | None = None

    def number_rows(self, batch: pa.RecordBatch, places: Sequence[int] | None = None, rows: int = 0) -> pa.RecordBatch:
        """A batch with the columns ``ROW`` and ``AFTER_DROP``.

        Args:
            batch: The rows.
            places: The place of each of them among the next ``rows`` rows of the file; None if none was dropped.
            rows: The rows of the file, dropped ones included.
        """
        at = np.arange(len(batch)) if places is None else np.array(places, np.int64)
        numbers = self._row + at
        self._row += len(batch) if places is None else rows
        after_drop = np.zeros(len(at), np.bool_)
        if len(at):
            # The first row of all has nothing before it to be cut from.
            after_drop = np.diff(numbers, prepend=numbers[0] - 1 if self._last is None else self._last) > 1
            self._last = int(numbers[-1])
        return batch.append_column(ROW, pa.array(numbers)).append_column(AFTER_DROP, pa.array(after_drop))


def open_file(name: str, delimiter: str | None, topics: Collection[str] | None = None) -> tuple[Source, File | None]:
    """The source a file is, and the file itself where it is text. ``topics`` are those of a robot log to read."""
    from emphatic.tables.frames import Arrow, Parquet
    from emphatic.tables.robot_logs import MAGIC, RobotLog, is_bag

    path = Path(name)
    if path.is_dir() and not is_bag(path):
        raise TableError(f"{name}: this is a folder, and no ROS 2 bag. Name one file in it.")
    if path.is_dir():
        return RobotLog(path, topics), None
    if path.exists() and not path.is_file():
        raise TableError(f"{name}: this is a pipe or a device, and a table is read more than once. Save it as a file.")
    with path.open("rb") as raw:
        start = raw.read(8)
    if not start:
        raise TableError(f"{name}: the file is empty.")
    if start == MAGIC or (start.startswith(b"SQLite") and path.suffix == ".db3"):
        return RobotLog(path, topics), None
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


def _text(file: File, delimiter: str | None) -> Source:
    from emphatic.tables.frames import ArrowStream
    from emphatic.tables.text import Delimited, JsonLines

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
