"""The journal: readings on the disk, from the last save of the model on.

MQTT and HTTP cannot be asked for a reading again. So each reading is written here before it is acknowledged, and after
a crash the model goes on from its last save through what the journal holds: the same bits as if nothing had happened.

A journal is a folder of segments, files of JSON lines named after the number of their first reading. A line is a list
of a checksum, the number of the reading, its origin (or null) and the reading:

    ["5bd1c3a0", 17, {"ids": ["#order-7"]}, {"power": 4.2}]

The checksum is the CRC-32 of everything behind it in the line. A file ``end`` beside the segments has the number of the
last reading that may have been acknowledged. Every line up to that number must be there, in order and unchanged; a torn
line behind it is what a crash leaves of a write, and is dropped with a message. Anything else is a ``JournalError``;
``repair`` saves what can be saved. A file ``id`` says whose readings these are: a model is saved with the id of its
journal.
"""

from __future__ import annotations

import json
import logging
import os
import re
import secrets
import shutil
import time
import zlib
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from emphatic.common.files import atomic_file
from emphatic.nexting.tables.fields import as_name
from emphatic.nexting.tables.pipe import Reading

__all__ = ["Damage", "Entry", "Inspection", "Journal", "JournalError", "JournalState", "inspect", "repair"]

logger = logging.getLogger("emphatic.serve")

_sync = getattr(os, "fdatasync", os.fsync)
#: The readings of a segment, about; a longer one is continued in another.
_SEGMENT = 100_000
#: The beginning of a line with a checksum: what the checksum is of begins with the number.
_CHECKED = re.compile(rb'\["([0-9a-f]{8})", (([0-9]{1,19}), )')
_END = re.compile(rb"([0-9]{20}) ([0-9a-f]{8})\n")
#: Damages that a message names.
_NAMED = 3


class JournalError(ValueError):
    """The journal is damaged, or belongs to another model: a restart does not help."""


class Entry(NamedTuple):
    """A reading in the journal: its number, and where it came from, if that is worth knowing."""

    number: int
    reading: Reading
    origin: dict[str, Any] | None


class JournalState(NamedTuple):
    """What a service tells of its journal.

    Attributes:
        size: Its bytes on the disk.
        is_torn: Whether a crash had cut off its last write.
        lost: Readings that a repair could not save.
    """

    size: int = 0
    is_torn: bool = False
    lost: int = 0


class Journal:
    """Readings numbered from 1. ``append`` keeps them in memory; ``sync`` writes all of them to the disk, or none.

    Args:
        folder: The folder; it is created if it does not exist. A torn last line is removed from it.

    >>> import tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> journal = Journal(Path(folder.name))
    >>> journal.append({"x": 1.5}), journal.append({"x": 2}, origin={"ids": ["#7"]})
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
        self._file = self._end_file = -1
        self._size = self._in_segment = 0
        inspection = inspect(folder)
        if inspection.damages:
            raise JournalError(
                f"{folder}: the journal is damaged: {inspection.summary()}. Show what a repair would save and lose "
                f"with 'emphatic journal check {folder}', repair it with 'emphatic journal repair {folder}', or move "
                "it elsewhere to continue from the last save of the model."
            )
        if inspection.torn is not None:
            logger.warning("%s: %s", folder, inspection.torn.problem)
            _truncate(inspection.torn.path, inspection.torn.size)
        self._is_torn, self._lost = inspection.torn is not None, inspection.empty
        #: The number of the first reading that is kept; one more than ``last`` if there is none.
        self.first = inspection.first
        #: The number of the last reading.
        self.last = inspection.last

    @property
    def pending(self) -> int:
        """The readings that are not on the disk yet."""
        return len(self._pending)

    def state(self) -> JournalState:
        """How large it is, and what was wrong when it was opened."""
        size = 0
        for _, path in _segments(self.folder):
            with suppress(OSError):  # it is cut just now
                size += path.stat().st_size
        return JournalState(size, self._is_torn, self._lost)

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
        if text is None or b"\n" in text or b"\r" in text or not text.startswith(b"{"):
            text = json.dumps(reading).encode()
        self.last += 1
        self._pending.append(_line(self.last, b"null" if origin is None else json.dumps(origin).encode(), text))
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
            self._write_end(self.last)
        except OSError:
            with suppress(OSError):
                os.ftruncate(self._file, self._size)
            raise
        self._size += len(text)
        self._in_segment += len(self._pending)
        self._pending = []

    def entries(self, after: int = 0) -> Iterator[Entry]:
        """The readings on the disk after this number, in order; those that a repair could not save are left out."""
        for start, path in _segments(self.folder):
            with open(path, "rb") as file:
                for number, line in enumerate(file, start=start):
                    if line.endswith(b"\n") and number > after:
                        entry = _entry(number, line, path)
                        if entry is not None:
                            yield entry

    def cut(self, number: int) -> None:
        """Forget the readings up to this number, which the model has learned from, pending ones too."""
        later = max(0, self.last - number)
        self._pending = self._pending[len(self._pending) - min(later, len(self._pending)) :]
        self.last = max(self.last, number)
        synced = self.last - len(self._pending)
        segments = _segments(self.folder)
        # The oldest go first: if this is interrupted, the segments that are left still reach the end.
        ends = [*(start - 1 for start, _ in segments[1:]), synced]
        for (_, path), end in zip(segments, ends, strict=False):  # without segments there is no end
            if end <= number:
                self._close_if(path)
                path.unlink()
        if synced:  # after that: readings that were never written do not make a segment incomplete
            self._write_end(synced)
        self.first = number + 1

    def close(self) -> None:
        """Close the files; what is pending is not written."""
        self._close_segment()
        if self._end_file >= 0:
            os.close(self._end_file)
            self._end_file = -1

    def _open(self, first: int) -> None:
        """Begin a segment; one that a crash has left incomplete is not continued."""
        self._close_segment()
        self._write_end(first - 1)  # before the segment: without this file its lines would not count
        self._path = self.folder / f"{first:020d}.jsonl"
        self._file = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | getattr(os, "O_BINARY", 0), 0o600)
        self._size = self._in_segment = 0
        _sync_folder(self.folder)

    def _write_end(self, number: int) -> None:
        """Write down that all readings up to this number are on the disk.

        The file is written in place, and not synced: it may be behind the segments after a crash, never before them.
        """
        if self._end_file < 0:
            path = self.folder / "end"
            if not path.exists():
                with atomic_file(path) as file:
                    file.write(_end_line(0))
            self._end_file = os.open(path, os.O_WRONLY | getattr(os, "O_BINARY", 0))
        os.lseek(self._end_file, 0, os.SEEK_SET)
        os.write(self._end_file, _end_line(number))

    def _close_segment(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def _close_if(self, path: Path) -> None:
        if self._file >= 0 and path == self._path:
            self._close_segment()


# ---------------------------------------------------------------------- lines


def _line(number: int, origin: bytes, reading: bytes) -> bytes:
    body = b"%d, %s, %s]" % (number, origin, reading)
    return b'["%08x", %s\n' % (zlib.crc32(body), body)


def _end_line(number: int) -> bytes:
    digits = b"%020d" % number
    return b"%s %08x\n" % (digits, zlib.crc32(digits))


def _checked_number(line: bytes) -> int | None:
    """The number in a line whose checksum is right; None for any other line."""
    match = _CHECKED.match(line)
    if match is None or not line.endswith(b"\n") or zlib.crc32(line[match.start(2) : -1]) != int(match[1], 16):
        return None
    return int(match[3])


def _entry(number: int, line: bytes, path: Path) -> Entry | None:
    """The reading in a line; None in place of one that a repair could not save."""
    try:
        _, _, origin, reading = json.loads(line)
        if reading is None:
            return None
        return Entry(number, {as_name(name): value for name, value in reading.items()}, origin)
    except (ValueError, TypeError, AttributeError, RecursionError) as error:
        raise JournalError(
            f"{path}: the journal is damaged at reading {number}: {error}. Show what a repair would save and lose with "
            f"'emphatic journal check {path.parent}'."
        ) from None


def _segments(folder: Path) -> list[tuple[int, Path]]:
    return sorted((int(path.stem), path) for path in folder.glob("*.jsonl") if path.stem.isdigit())


def _truncate(path: Path, size: int) -> None:
    with open(path, "r+b") as file:
        file.truncate(size)
        os.fsync(file.fileno())


def _sync_folder(folder: Path) -> None:
    with suppress(OSError):  # a folder cannot be opened everywhere
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


# ---------------------------------------------------------------------- damage


class Damage(NamedTuple):
    """Something wrong in a journal: the file, its line if it is in one, and what is wrong."""

    path: Path
    line: int | None
    problem: str

    def __str__(self) -> str:
        return f"{self.path.name}{'' if self.line is None else f', line {self.line}'}: {self.problem}"


class Torn(NamedTuple):
    """What a crash has left of a write: the file, the bytes before it, and a message."""

    path: Path
    size: int
    problem: str


@dataclass
class Inspection:
    """What a journal holds, and what is wrong with it.

    Attributes:
        first: The number of the first reading; one more than ``last`` if there is none.
        last: The number of the last reading.
        end: The number up to which readings may have been acknowledged; None if nothing says so.
        damages: What is wrong.
        torn: A write that a crash has cut off; no reading in it was acknowledged.
        readings: How many readings can be read.
        lost: The numbers of readings that cannot be read, as ranges (from, to), both included.
        empty: Readings that an earlier repair could not save.
    """

    first: int = 1
    last: int = 0
    end: int | None = None
    damages: list[Damage] = field(default_factory=list)
    torn: Torn | None = None
    readings: int = 0
    lost: list[tuple[int, int]] = field(default_factory=list)
    empty: int = 0

    @property
    def lost_count(self) -> int:
        """How many readings a repair would lose."""
        return sum(last - first + 1 for first, last in self.lost)

    def summary(self) -> str:
        """The first damages in one line."""
        more = len(self.damages) - _NAMED
        return "; ".join(map(str, self.damages[:_NAMED])) + (f"; and {more} more" if more > 0 else "")


def inspect(folder: Path) -> Inspection:
    """Look at every line of a journal, and change nothing.

    Args:
        folder: The folder of the journal.
    """
    inspection = Inspection(end=_read_end(folder))
    segments = _segments(folder)
    if not segments:
        inspection.last = inspection.end or 0
        inspection.first = inspection.last + 1
    else:
        inspection.first = segments[0][0]
        inspection.last = inspection.first - 1
    numbers = _Numbers(inspection.first)
    for start, path in segments:
        _inspect_segment(inspection, numbers, start, path, is_last=path == segments[-1][1])
    if segments:
        inspection.last = max(numbers.highest, inspection.first - 1)
    end_path = folder / "end"
    if end_path.exists() and inspection.end is None:
        inspection.damages.append(Damage(end_path, None, "its checksum is wrong"))
    elif inspection.end is None and segments:
        inspection.damages.append(Damage(end_path, None, "it is missing"))
    if inspection.end is not None and inspection.end > inspection.last:
        missing = (inspection.last + 1, inspection.end)
        inspection.damages.append(
            Damage(end_path, None, f"{_describe_range(*missing)} {_are(missing)} missing at the end")
        )
        inspection.lost.append(missing)
        inspection.last = inspection.end
    count, missing_between = numbers.count_and_missing()
    inspection.lost = [*missing_between, *inspection.lost]
    inspection.readings = count - inspection.empty
    return inspection


class _Numbers:
    """The numbers that were read, as ranges: a whole journal is a single range."""

    def __init__(self, first: int) -> None:
        self._first, self.highest = first, first - 1
        self._ranges: list[tuple[int, int]] = []

    def add(self, number: int) -> None:
        self.highest = max(self.highest, number)
        if self._ranges and self._ranges[-1][1] + 1 == number:
            self._ranges[-1] = (self._ranges[-1][0], number)
        else:
            self._ranges.append((number, number))

    def count_and_missing(self) -> tuple[int, list[tuple[int, int]]]:
        """How many numbers were read, and the ranges that were not, between the first and the highest."""
        missing, count, previous = [], 0, self._first - 1
        for first, last in sorted(self._ranges):
            if first > previous + 1:
                missing.append((previous + 1, first - 1))
            count += max(0, last - max(first - 1, previous))
            previous = max(previous, last)
        return count, missing


def _inspect_segment(inspection: Inspection, numbers: _Numbers, start: int, path: Path, *, is_last: bool) -> None:
    expected, size = start, 0
    if start != numbers.highest + 1:
        gap = (numbers.highest + 1, start - 1)
        problem = (
            f"{_describe_range(*gap)} {_are(gap)} missing before it" if gap[1] >= gap[0] else "it starts too early"
        )
        inspection.damages.append(Damage(path, None, problem))
    bad: list[tuple[int, int, int, bytes]] = []  # line, size before it, number that it should have, its bytes
    with open(path, "rb") as file:
        for at, line in enumerate(file, start=1):
            number = _checked_number(line)
            if number is None:
                bad.append((at, size, expected, line))
            else:
                _report_bad(inspection, path, bad)
                bad = []
                if number != expected:
                    problem = f"it holds reading {number}, where reading {expected} belongs"
                    inspection.damages.append(Damage(path, at, problem))
                if line.endswith(b", null]\n"):
                    inspection.empty += 1
                numbers.add(number)
                expected = number + 1
            size += len(line)
    if not bad:
        return
    at, whole, number, line = bad[0]
    # Perhaps nothing but zeros, which a loss of power leaves.
    if is_last and inspection.end is not None and number > inspection.end:
        problem = f"a crash interrupted the last write: {size - whole} bytes after reading {number - 1} are dropped; "
        inspection.torn = Torn(path, whole, problem + "no reading in them was acknowledged.")
    else:
        _report_bad(inspection, path, bad)


def _report_bad(inspection: Inspection, path: Path, bad: list[tuple[int, int, int, bytes]]) -> None:
    for at, _, _, line in bad:
        problem = "its checksum is wrong" if _CHECKED.match(line) and line.endswith(b"\n") else "the line is incomplete"
        inspection.damages.append(Damage(path, at, problem))


def _read_end(folder: Path) -> int | None:
    """The number in the file ``end``; None if there is no such file, or if it is damaged."""
    path = folder / "end"
    if not path.exists():
        return None
    match = _END.fullmatch(path.read_bytes()[:64])
    return int(match[1]) if match is not None and zlib.crc32(match[1]) == int(match[2], 16) else None


def _describe_range(first: int, last: int) -> str:
    return f"reading {first}" if first == last else f"readings {first} to {last}"


def _are(numbers: tuple[int, int]) -> str:
    return "is" if numbers[0] == numbers[1] else "are"


# ---------------------------------------------------------------------- repair


def repair(folder: Path) -> Path | None:
    """Write a journal anew with every reading that can be read; the copy of the old one, or None if it was whole.

    Readings that are swapped or doubled go back to their places. In place of one that is lost stands a line without a
    reading, so that the numbers of the others still fit the model.

    Args:
        folder: The folder of the journal. No service may be using it.
    """
    inspection = inspect(folder)
    if not inspection.damages and inspection.torn is None:
        return None
    copy = folder.with_name(f"{folder.name}.damaged-{time.strftime('%Y%m%dT%H%M%S')}-{secrets.token_hex(2)}")
    shutil.copytree(folder, copy)
    lines: dict[int, bytes] = {}
    for _, path in _segments(folder):
        with open(path, "rb") as segment:
            for line in segment:
                if (number := _checked_number(line)) is not None:
                    lines.setdefault(number, line)
    newest = max(lines, default=inspection.first - 1)
    segments = _segments(folder)
    repaired = folder / f"{inspection.first:020d}.jsonl"
    if lines:
        with atomic_file(repaired) as file:
            for number in range(inspection.first, newest + 1):
                file.write(lines.get(number) or _line(number, b"null", b"null"))
    for _, path in segments:
        if path != repaired or not lines:
            path.unlink()
    with atomic_file(folder / "end") as file:
        file.write(_end_line(newest))
    _sync_folder(folder)
    return copy
