"""The journal: readings on the disk, from the last save of the model on.

MQTT and HTTP cannot be asked for a reading again. So each reading is written here before it is acknowledged, and after
a crash the model goes on from its last save through what the journal holds: the same bits as if nothing had happened.

A journal is a folder of segments, files of JSON lines named after the number of their first reading. A line is a
reading, or, where its source keeps a position of its own or writes CSV, a list of that and the reading. A file ``id``
beside them says whose they are: a model is saved with the id of its journal.
"""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from emphatic.common.files import atomic_file
from emphatic.tables.pipe import Reading
from emphatic.tables.table import Malformed
from emphatic.tables.text import read_object

__all__ = ["Entry", "Journal"]

_sync = getattr(os, "fdatasync", os.fsync)
#: The readings of a segment, about; a longer one is continued in another.
_SEGMENT = 100_000


class Entry(NamedTuple):
    """A reading in the journal: its number, and where it came from, if that is worth knowing."""

    number: int
    reading: Reading
    origin: dict[str, Any] | None


class Journal:
    """Readings numbered from 1. ``append`` keeps them in memory; ``sync`` writes all of them to the disk, or none.

    >>> import tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> journal = Journal(Path(folder.name))
    >>> journal.append({"x": 1.5}), journal.append({"x": 2}, origin={"redis": "7-0"})
    (1, 2)
    >>> journal.sync()
    >>> [entry.reading for entry in Journal(Path(folder.name)).entries()]
    [{'x': 1.5}, {'x': 2}]
    >>> journal.close()
    >>> folder.cleanup()
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self._pending: list[bytes] = []
        self._file = -1
        self._size = self._in_segment = 0
        segments = self._segments()
        #: The number of the first reading that is kept; one more than ``last`` if there is none.
        self.first = segments[0][0] if segments else 1
        #: The number of the last reading.
        self.last = self.first - 1
        for number, path in segments:
            if number != self.last + 1:
                raise ValueError(
                    f"{folder}: readings {self.last + 1} to {number - 1} are missing from the journal. "
                    f"Move {path.name} and later files elsewhere to go on without them."
                )
            self.last += _count_whole_lines(path)

    @property
    def pending(self) -> int:
        """The readings that are not on the disk yet."""
        return len(self._pending)

    @property
    def id(self) -> str | None:
        """Whose readings these are; None if nothing says so."""
        path = self.folder / "id"
        return path.read_text("ascii", "replace").strip() if path.exists() else None

    def mark(self, id: str | None) -> str:
        """Write down whose readings these will be, and return that: a new id if none is given."""
        id = id or secrets.token_hex(16)
        if id != self.id:
            with atomic_file(self.folder / "id") as file:
                file.write(id.encode() + b"\n")
        return id

    def append(self, reading: Reading, text: bytes | None = None, origin: dict[str, Any] | None = None) -> int:
        """Add a reading, and return its number; ``text`` is its JSON, if that is at hand in one line."""
        if origin is not None:
            line = json.dumps([origin, reading]).encode()
        else:
            line = json.dumps(reading).encode() if text is None or b"\n" in text or b"\r" in text else text
        self._pending.append(line + b"\n")
        self.last += 1
        return self.last

    def sync(self) -> None:
        """Write what is pending to the disk. After an ``OSError`` nothing of it is there, and it is still pending."""
        if not self._pending:
            return
        if self._file < 0 or self._in_segment > _SEGMENT:
            self._open(self.last - len(self._pending) + 1)
        text = b"".join(self._pending)
        try:
            os.lseek(self._file, self._size, os.SEEK_SET)
            at = 0
            while at < len(text):
                at += os.write(self._file, text[at:])
            _sync(self._file)
        except OSError:
            with suppress(OSError):
                os.ftruncate(self._file, self._size)
            raise
        self._size += len(text)
        self._in_segment += len(self._pending)
        self._pending = []

    def entries(self, after: int = 0) -> Iterator[Entry]:
        """The readings on the disk after this number, in order."""
        for start, path in self._segments():
            with open(path, "rb") as file:
                for number, line in enumerate(file, start=start):
                    if line.endswith(b"\n") and number > after:
                        yield _entry(number, line, path)

    def cut(self, number: int) -> None:
        """Forget the readings up to this number, which the model has learned from, pending ones too."""
        later = max(0, self.last - number)
        self._pending = self._pending[len(self._pending) - min(later, len(self._pending)) :]
        self.last = max(self.last, number)
        end = self.last - len(self._pending)
        for start, path in reversed(self._segments()):
            if end <= number:
                self._close_if(path)
                path.unlink()
            end = start - 1
        self.first = number + 1

    def close(self) -> None:
        """Close the file; what is pending is not written."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def _open(self, first: int) -> None:
        """Begin a segment; one that a crash has left incomplete is not continued."""
        self.close()
        self._path = self.folder / f"{first:020d}.jsonl"
        self._file = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | getattr(os, "O_BINARY", 0), 0o600)
        self._size = self._in_segment = 0
        with suppress(OSError):  # a folder cannot be opened everywhere
            folder = os.open(self.folder, os.O_RDONLY)
            try:
                os.fsync(folder)
            finally:
                os.close(folder)

    def _close_if(self, path: Path) -> None:
        if self._file >= 0 and path == self._path:
            self.close()

    def _segments(self) -> list[tuple[int, Path]]:
        return sorted((int(path.stem), path) for path in self.folder.glob("*.jsonl") if path.stem.isdigit())


def _count_whole_lines(path: Path) -> int:
    """The complete lines of a segment; what a crash has left of another is removed."""
    count = size = 0
    with open(path, "rb") as file:
        for line in file:
            if line.endswith(b"\n"):
                count += 1
                size += len(line)
    if size < path.stat().st_size:
        os.truncate(path, size)
    return count


def _entry(number: int, line: bytes, path: Path) -> Entry:
    try:
        text, origin = line.decode(), None
        if text.startswith("["):
            origin, reading = json.loads(text)
            return Entry(number, dict(reading), dict(origin))
        return Entry(number, read_object(text), origin)
    except (ValueError, TypeError, Malformed) as error:
        raise ValueError(
            f"{path}: the journal is damaged at reading {number}: {error}. Repair that line, or move this file and "
            "later ones elsewhere to go on without their readings."
        ) from None
