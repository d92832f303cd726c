"""Readings from a pipe: JSON lines, or CSV with a header; whatever comes, at bounded memory.

A line that is no reading is not an error of the run: it raises ``Malformed``, which says why.
"""

from __future__ import annotations

import csv
import json
import math
import os
import select
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

__all__ = ["Malformed", "Reading", "lines", "moment", "number", "reader"]

#: A longer line is skipped, without being held.
LONGEST = 1 << 20
_CHUNK = 1 << 16

Reading = dict[str, Any]


class Malformed(ValueError):
    """A line that is not a reading."""


def lines(fd: int, wake: int | None = None) -> Iterator[bytes | None]:
    """The lines of a pipe as they come; None for one too long. Ends with the pipe, or when ``wake`` can be read."""
    held, skipping = b"", False
    watched = [fd] if wake is None else [fd, wake]
    while True:
        ready, _, _ = select.select(watched, [], [])
        if wake in ready:
            return
        chunk = os.read(fd, _CHUNK)
        *whole, rest = (held + chunk).split(b"\n")
        for i, line in enumerate(whole):
            yield None if (skipping and i == 0) or len(line) > LONGEST else line
            if i == 0:
                skipping = False
        held = rest
        if len(held) > LONGEST:
            held, skipping = b"", True
        if not chunk:
            if held.strip() or skipping:
                yield None if skipping else held
            return


def number(value: Any) -> float:
    """A reading as a number; NaN where there is none. ``Malformed`` if it is something else."""
    if isinstance(value, bool | int | float):
        try:
            made = float(value)
        except OverflowError:
            return math.nan
        return made if math.isfinite(made) else math.nan
    if value is None:
        return math.nan
    if isinstance(value, str):
        text = value.strip()
        if text.lower() in ("", "na", "nan", "null", "none", "?", "-"):
            return math.nan
        try:
            made = float(text)
        except ValueError:
            raise Malformed(f"{_short(value)} is not a number") from None
        return made if math.isfinite(made) else math.nan
    raise Malformed(f"{_short(value)} is not a number")


def moment(value: Any, a_second: float = 1.0) -> float:
    """A time in seconds: a number of ``a_second`` to the second, or an ISO date, UTC unless it says otherwise."""
    if isinstance(value, str):
        text = value.strip()
        try:
            when = datetime.fromisoformat(text)
        except ValueError:
            return number(text) / a_second
        return (when if when.tzinfo else when.replace(tzinfo=UTC)).timestamp()
    return number(value) / a_second


def reader(first: bytes) -> tuple[Any, bool]:
    """How to read the lines of a pipe that begins with this one, and whether that is itself a reading (JSON is)."""
    text = _text(first)
    if text.lstrip().startswith("{"):
        return _json, True
    delimiter = max(",;\t", key=text.count)
    names = [name.strip() for name in next(csv.reader([text], delimiter=delimiter))]
    if len(set(names)) < len(names) or not all(names):
        raise Malformed("the first line is neither JSON nor a header of CSV with a different name for each column")

    def one(line: bytes) -> Reading:
        try:
            values = next(csv.reader([_text(line)], delimiter=delimiter))
        except (csv.Error, StopIteration) as error:
            raise Malformed(f"not CSV: {error}") from None
        if len(values) != len(names):
            raise Malformed(f"{len(values)} columns, where the header has {len(names)}")
        return dict(zip(names, values, strict=True))

    return one, False


def _json(line: bytes) -> Reading:
    text = _text(line)
    if not text.lstrip().startswith("{"):
        raise Malformed(f"{_short(text)} is not an object of names and readings")
    try:
        made = json.loads(text)
    except (ValueError, RecursionError, MemoryError) as error:
        raise Malformed(f"not JSON: {error}") from None
    return dict(made)


def _text(line: bytes) -> str:
    try:
        return line.decode("utf-8").strip("\ufeff\r\n")
    except UnicodeDecodeError:
        raise Malformed("not UTF-8 text") from None


def _short(value: Any) -> str:
    text = repr(value[:50] if isinstance(value, str) else value)
    return text if len(text) <= 40 else text[:37] + "..."
