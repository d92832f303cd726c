"""Readings from a pipe: JSON lines, or CSV; whatever comes, in bounded memory."""

from __future__ import annotations

import csv
import json
import os
import select
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

import pyarrow as pa

from emphatic.tables import fields
from emphatic.tables.delimited import DELIMITERS, LOOK_LINES, Header, find_delimiter, find_repeated, read_header
from emphatic.tables.frames import Frame
from emphatic.tables.notation import shorten
from emphatic.tables.table import Table, table_of
from emphatic.tables.table_errors import Malformed

__all__ = ["Malformed", "Reading", "Readings", "collect", "lines"]

#: A longer line is skipped, without being held.
LONGEST = 1 << 20
_CHUNK = 1 << 16

Reading = dict[str, Any]


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


class Readings:
    """The readings in lines of text, each with the number of its line; ``Malformed`` in place of what is none.

    The lines are JSON objects, or CSV as in files: names may be quoted or absent, and before them may come a byte order
    mark, comments and blank lines. A row of CSV is one line. ``known`` are the columns of a model, if there is one: the
    first line must have some of them, and ``delimiter`` is the first that is tried. Without a model, CSV is held back
    until ``look`` lines tell how it is written.

    >>> list(Readings([b"time;power", b"0;1,5", b"oops"], look=2))
    [(2, {'time': '0', 'power': '1,5'}), (3, Malformed('1 columns, where the header has 2'))]
    """

    def __init__(
        self,
        lines: Iterable[bytes | None],
        known: Collection[str] = (),
        delimiter: str | None = None,
        look: int = LOOK_LINES,
    ) -> None:
        self._lines, self._known, self._given, self._look = lines, dict.fromkeys(known), delimiter, look
        #: Of CSV, once it is found.
        self.delimiter: str | None = None
        self._header: Header | None = None
        self._json = False

    @property
    def unnamed(self) -> tuple[str, ...]:
        """The columns of CSV that have no name."""
        return self._header.unnamed if self._header else ()

    def __iter__(self) -> Iterator[tuple[int, Reading | Malformed]]:
        held: list[tuple[int, str]] = []
        for number, line in enumerate(self._lines, start=1):
            try:
                text = _text(line, number)
            except Malformed as error:
                yield number, error
                continue
            if self._json or self._header:
                yield from self._read(number, text)
            elif held or not (text.startswith("#") or not text.strip()):
                held.append((number, text))
                if self._known or _is_json(held[0][1]) or len(held) >= self._look:
                    first, held = held, []
                    yield from self._begin(first)
        yield from self._begin(held)

    def _begin(self, held: Sequence[tuple[int, str]]) -> Iterator[tuple[int, Reading | Malformed]]:
        """The first lines, now that they tell how all are written."""
        self._json = 2 * sum(_is_json(text) for _, text in held) > len(held)
        for i, (number, text) in enumerate(held):
            if not self._json and self._header is None:
                try:
                    self.delimiter, self._header = self._find_header([text for _, text in held[i:]])
                except (csv.Error, Malformed) as error:
                    yield number, Malformed(str(error))
                    continue
                if self._header.present:
                    continue
            yield from self._read(number, text)

    def _read(self, number: int, text: str) -> Iterator[tuple[int, Reading | Malformed]]:
        """The reading in a line; none in a blank one."""
        if not (text.strip() if self._json else text):
            return
        try:
            yield number, _json(text) if self._header is None else self._csv(text, self._header.names)
        except Malformed as error:
            yield number, error

    def _find_header(self, texts: Sequence[str]) -> tuple[str, Header]:
        first = texts[0]
        if self._known:
            tried = {}
            for delimiter in (self._given or ",", *DELIMITERS):
                with suppress(csv.Error):  # a field that is too long, because nothing separates it
                    tried[delimiter] = read_header(first, delimiter, self._known)
            delimiter = max(tried, key=lambda d: len(self._known.keys() & tried[d].names), default=",")
            header = tried.get(delimiter, Header((), (), False))
            if not self._known.keys() & header.names:
                some = ", ".join(list(self._known)[:6])
                raise Malformed(f"{shorten(first)} is neither JSON nor a header of CSV with one of {some}")
        else:
            delimiter = self._given or find_delimiter(texts)
            header = read_header(first, delimiter)
        repeated = find_repeated(header.names)
        if repeated is not None:
            raise Malformed(f"the header has more than one column {repeated!r}")
        return delimiter, header

    def _csv(self, text: str, names: Sequence[str]) -> Reading:
        assert self.delimiter is not None
        rows = csv.reader([text, ""], delimiter=self.delimiter)
        try:
            values = next(rows)
        except (csv.Error, StopIteration) as error:
            raise Malformed(f"not CSV: {error}") from None
        if rows.line_num > 1:
            raise Malformed("not CSV in one line: a quote is never closed")
        if len(values) != len(names):
            raise Malformed(f"{len(values)} columns, where the header has {len(names)}")
        return dict(zip(names, values, strict=True))


def collect(
    rows: Sequence[Mapping[str, Any]],
    delimiter: str | None = None,
    unnamed: Sequence[str] = (),
    time: str | bool | None = None,
) -> Table:
    """A table of readings, as if they had been read from a file: of JSON lines, or of CSV with that delimiter."""
    nested = dict.fromkeys(name for row in rows for name, value in row.items() if isinstance(value, dict | list))
    names = [name for name in dict.fromkeys(name for row in rows for name in row) if name not in nested]
    columns = [pa.array([fields.as_text(row.get(name)) for row in rows], pa.string()) for name in names]
    frame = Frame(pa.Table.from_arrays(columns, names), None)
    frame.comma = delimiter not in (None, ",") and fields.decimal_comma(columns)
    frame.delimiter, frame.nested, frame.unnamed = delimiter, tuple(nested), tuple(unnamed)
    return table_of("the readings", frame, time)


def _is_json(text: str) -> bool:
    return text.lstrip().startswith("{")


def _json(text: str) -> Reading:
    if not _is_json(text):
        raise Malformed(f"{shorten(text)} is not an object of names and readings")
    try:
        return dict(json.loads(text))
    except (ValueError, RecursionError, MemoryError) as error:
        raise Malformed(f"not JSON: {error}") from None


def _text(line: bytes | None, number: int) -> str:
    if line is None:
        raise Malformed("longer than 1 MiB")
    try:
        text = line.decode("utf-8").strip("\r\n")
    except UnicodeDecodeError:
        raise Malformed("not UTF-8 text") from None
    return text.removeprefix("\ufeff") if number == 1 else text
