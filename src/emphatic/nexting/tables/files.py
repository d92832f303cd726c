"""Files: what a table is read from, recognised by its first bytes and not by its name.

A format is one ``Format`` in a file of this package, or an entry point of the group ``emphatic.formats``; nothing else
lists formats. Formats of the library that have a signature are asked first, then those of other distributions, then
text: any text is CSV.
"""

from __future__ import annotations

import functools
import logging
import lzma
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np
import pyarrow as pa

from emphatic.common.discovery import discover
from emphatic.nexting.tables.fields import NumberStyle
from emphatic.nexting.tables.table import TableError, reading

if TYPE_CHECKING:
    from emphatic.nexting.tables.stores import Request

__all__ = ["DroppedRows", "File", "Format", "OpenOptions", "ReadingPass", "Source", "formats", "open_file"]

logger = logging.getLogger("emphatic.nexting.tables")

#: How much of a text file is looked at to decide on delimiter, names and kinds of columns.
LOOK = 1 << 22
#: The same for typed files, in rows.
LOOK_ROWS = 1 << 16

#: The first bytes of compressed files.
_COMPRESSED = {b"\x1f\x8b": "gzip", b"\x28\xb5\x2f\xfd": "zstd", b"BZh": "bz2", b"\xfd7zXZ": "xz"}
#: The first bytes of text in UTF-16, as Windows writes it.
_UTF16 = (b"\xff\xfe", b"\xfe\xff")
#: Beginnings of XML and of pages of the web.
_MARKUP = (b"<?xml", b"<gpx", b"<!DOCTYPE", b"<html")
#: The formats that fit many files: those that fit fewer are asked before them.
_LAST = {"JSON document": 1, "CSV": 2, "JSON lines": 2}
#: Columns that the batches of a file of text have beside its own: the number of each row in the file, from 0 on, and
#: whether a row was dropped since the one before it.
ROW, AFTER_DROP = "\x1erow", "\x1eafter drop"


class Source(Protocol):
    """What a table is read from: its first rows to look at, then all of them in batches, from any row on.

    A source may also have: ``delimiter`` (of CSV), ``units`` (of columns), ``unnamed`` (columns without a name),
    ``nested`` (names whose values are objects or lists), ``rare`` (other names that are no columns, and why) and
    ``joined`` (whether its rows were joined from several streams, and so may come in bursts); and, of a query,
    ``facts`` (what was decided about it) and ``extent`` (what a run that resumes reads again).
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
    """A file or a folder, and what formats recognise it by.

    Args:
        name: The path as the user wrote it, for messages.

    ``path`` is its path and ``start`` its first bytes, none of a folder. ``head`` is the beginning of its text, and
    ``open`` reads its text from the start; both unpack gzip, zstd, xz and bz2.
    """

    def __init__(self, name: str) -> None:
        self.name, self.path, self.start = name, Path(name), b""
        if self.path.exists() and not (self.path.is_dir() or self.path.is_file()):
            raise TableError(
                f"{name}: this is a pipe or a device, and a table is read more than once. Save it as a file."
            )
        if not self.path.is_dir():
            with self.path.open("rb") as raw:
                self.start = raw.read(16)
            if not self.start:
                raise TableError(f"{name}: the file is empty.")
        self._compression = next((how for magic, how in _COMPRESSED.items() if self.start.startswith(magic)), None)

    @functools.cached_property
    def head(self) -> bytes:
        """The beginning of its text, in complete lines."""
        with self.open() as stream:
            chunks = [stream.read(LOOK)]
            # A stream that unpacks may return less than it was asked for, long before its end.
            while chunks[-1] and sum(map(len, chunks)) < LOOK:
                chunks.append(stream.read(LOOK - sum(map(len, chunks))))
        head = b"".join(chunks)
        if len(head) == LOOK:
            head = head[: head.rfind(b"\n") + 1] or head[: head.rfind(b"\r") + 1]
        return head

    @functools.cached_property
    def obstacle(self) -> str | None:
        """Why it cannot be read as CSV or JSON lines; None if it can. A file that is not UTF-8 is an error."""
        if self.head.removeprefix(b"\xef\xbb\xbf").startswith(_MARKUP):
            return "this is XML or a page of the web. Export its table as CSV."
        if b"\0" in self.head:  # which no text has, but a log may have after a power failure
            return "this is a binary file that is not Parquet or Arrow, or has null bytes. Export its table as CSV."
        if not self.head:
            return f"the file is empty, or its first line is longer than {LOOK >> 20} MB."
        self.head.decode()
        return None

    @property
    def first_sign(self) -> bytes:
        """The first byte of its text that is not blank."""
        return self.head.lstrip(b"\xef\xbb\xbf \t\r\n")[:1]

    def open(self) -> pa.NativeFile | lzma.LZMAFile:
        """The bytes of its text from the start."""
        if self._compression == "xz":  # the only one that Arrow does not unpack
            return lzma.open(self.path)
        stream = pa.input_stream(str(self.path), compression=self._compression)
        return pa.transcoding_input_stream(stream, "utf-16", "utf-8") if self.start.startswith(_UTF16) else stream


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
        #: The fields of the last record that was read line by line.
        self.last_record: list[str] | None = None

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


class OpenOptions(NamedTuple):
    """What a user may say about a file: the delimiter of CSV, the topics of a robot log to read, the lines to skip,
    the line of the header after them (0 for none) or the names of the columns, and the query of a database."""

    delimiter: str | None = None
    topics: Collection[str] | None = None
    skip_lines: int = 0
    header: int | tuple[str, ...] | None = None
    request: Request | None = None


@dataclass(frozen=True)
class Format:
    """A format of files.

    Args:
        name: The name of the format.
        recognise: Whether a file has this format: by ``File.start``, its first bytes; ``File.path``, its suffix or what
            is in a folder; or ``File.head``, its text. It may raise a ``TableError`` that says what is wrong.
        open: Opens such a file as a ``Source``.
        text: Whether the file is text, perhaps compressed. Formats of text are asked after all others.
        topics: Whether the option ``topics`` applies.
        request: Whether the option ``request`` applies.
    """

    name: str
    recognise: Callable[[File], bool]
    open: Callable[[File, OpenOptions], Source]
    text: bool = False
    topics: bool = False
    request: bool = False


@functools.cache
def formats() -> tuple[Format, ...]:
    """All formats: first those of the library, then those of other distributions.

    An entry point that is no format is reported once and left out, so that it keeps nobody from reading other files.
    """
    plugins = discover("emphatic.nexting.tables", "emphatic.formats")
    known: list[Format] = []
    for name in plugins:
        try:
            known += plugins.objects(
                name, lambda value: isinstance(value, Format), "an emphatic.nexting.tables.files.Format"
            )
        except (ImportError, TypeError) as error:
            logger.warning("%s", error)
    return tuple(known)


def open_file(name: str, options: OpenOptions) -> Source:
    """Open a file in the format that it has.

    Args:
        name: The path.
        options: What the user says about it.
    """
    file, request = File(name), options.request
    format = next((format for format in formats() if not format.text and format.recognise(file)), None)
    if format is None and file.path.is_dir():
        raise TableError(f"{name}: this folder is not a ROS 2 bag. Give the path of a file.")
    if options.topics is not None and not (format and format.topics):
        raise TableError(
            f"{name}: this is not a robot log (an MCAP file or the folder of a ROS 2 bag), so it has no topics."
        )
    if request is not None and request.named and not (format and format.request):
        raise TableError(f"{name}: this is not a database, so {request.named[0]}=… does not apply. Leave it out.")
    if format is not None:
        return format.open(file, options)
    with reading(name):
        # Any text is CSV: formats of other distributions come before those of the library, which stand first. A user
        # who says where the header is knows that it is CSV.
        known = [format for format in reversed(formats()) if format.text]
        known.sort(key=lambda format: _LAST.get(format.name, 0))
        if options.skip_lines or options.header is not None:
            known = [format for format in known if format.name == "CSV"]
        format = next((format for format in known if format.recognise(file)), None)
        if format is None:
            raise TableError(f"{name}: {file.obstacle}")
        return format.open(file, options)
