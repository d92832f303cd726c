"""Lines of delimited text as records: fields, quotes, and lines with too few or too many fields.

A record is a line. A quoted field may go on over the next lines of a file, but a quote that is never closed, or that
would swallow lines that are records by themselves, is a stray one: its line is dropped, and no other.
"""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import dataclass, field

from emphatic.tables.dropped_rows import DroppedRows

__all__ = ["COMMENT", "HEADER_AGAIN", "QUOTE", "Records", "is_blank", "split_fields", "too_many"]

#: Lines that a quoted field may go on over, and their bytes.
_LINES, _BYTES = 1000, 1 << 20

#: Of a quote that is not closed within its line: what follows may close it, or it is a stray one.
_OPEN, _STRAY = 0, -1

#: Why a line is not a record.
QUOTE = "a quote is never closed"
HEADER_AGAIN = "the header again"
COMMENT = "a comment"


def too_many(fields: int, names: int) -> str:
    """Why a line with more fields than the header is not a record."""
    return f"{fields} fields, where the header has {names}"


def split_fields(line: str, delimiter: str) -> tuple[list[str], bool]:
    """The fields of a record, and whether its quotes are closed. A quoted field of 128 KiB or more is a ``csv.Error``.

    >>> split_fields('1,"a, b"', ","), split_fields('1,"2', ",")
    ((['1', 'a, b'], True), (['1', '2'], False))
    """
    if '"' not in line:
        return line.split(delimiter), True
    # What follows an open quote is part of the record, and then of its last field.
    *before, last = line.split("\n")
    rows = csv.reader([*(f"{part}\n" for part in before), last, "\n\0"], delimiter=delimiter)
    found = next(rows)
    if found and found[-1].endswith("\n\0"):
        return [*found[:-1], found[-1][:-2]], False
    return found, True


def is_blank(line: str, delimiter: str, width: int) -> bool:
    """Whether a line is blank, and so not a row."""
    return not line or (width > 1 and not line.strip() and delimiter not in line)


@dataclass
class Records:
    """The records in some lines of a file, each with as many fields as there are names.

    ``kept`` are their places among all rows, of which there were ``rows``. ``rest`` are lines that are not complete
    yet: a quote in them may be closed by what follows.
    """

    fields: list[list[str]] = field(default_factory=list)
    kept: list[int] = field(default_factory=list)
    rows: int = 0
    rest: bytes = b""

    @classmethod
    def read(
        cls, lines: Sequence[bytes], delimiter: str, width: int, header: bytes | None, dropped: DroppedRows, line: int,
        end: bool,
    ) -> Records:  # fmt: skip
        """Of these lines, the first of them number ``line``; ``end``: nothing comes after them."""
        found = cls()
        i = 0
        while i < len(lines):
            if is_blank(lines[i].decode(), delimiter, width):
                i += 1
                continue
            record, count = _record(lines[i : i + _LINES], delimiter, width)
            if count == _OPEN and not end and len(lines) - i < _LINES and sum(map(len, lines[i:])) < _BYTES:
                found.rest = b"\n".join(lines[i:])
                break
            why = QUOTE if count < 1 else None
            if lines[i] == header:
                why = HEADER_AGAIN
            elif len(record) != width and lines[i].startswith(b"#"):
                why = COMMENT
            elif len(record) > width:
                why = too_many(len(record), width)
            if why is None:
                dropped.short += len(record) < width
                found.fields.append(record + [""] * (width - len(record)))
                found.kept.append(found.rows)
            else:
                dropped.add(why, line + i)
            found.rows += 1
            i += max(count, 1)
        return found


def _record(lines: Sequence[bytes], delimiter: str, width: int) -> tuple[list[str], int]:
    """The record that the lines begin with, and how many of them it takes; ``_OPEN`` or ``_STRAY`` if it is none."""
    text = lines[0].decode()
    record, closed = split_fields(text, delimiter)
    if closed:
        return record, 1
    cut = delimiter.encode()
    looks_whole = lines[0].count(cut) + 1 == width > 1
    for count, line in enumerate(lines[1:], start=2):
        if looks_whole and line.count(cut) + 1 == width:
            return [], _STRAY  # this is a record by itself
        text = f"{text}\n{line.decode()}"
        if b'"' in line:
            record, closed = split_fields(text, delimiter)
            if closed:
                return (record, count) if len(record) == width else ([], _STRAY)
    return [], _OPEN
