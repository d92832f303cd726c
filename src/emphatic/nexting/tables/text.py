"""Tables in lines of text: CSV and its kin (fields separated by a comma, semicolon, tab, bar or blank), and JSON lines.

Every column of CSV is read as text, and turned into numbers afterwards: a reader that guesses types from the first rows
stops at the first later value that is of another type.

A record of CSV is a line. A quoted field may go on over the next lines of a file, but a quote that is never closed, or
that would swallow lines that are records by themselves, is a stray one: its line is dropped, and no other.
"""

from __future__ import annotations

import csv
import json
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pcsv
import pyarrow.json as pj

from emphatic.nexting.tables import fields
from emphatic.nexting.tables.files import File, Format, OpenOptions, ReadingPass
from emphatic.nexting.tables.table import OTHERWISE, Malformed, TableError

__all__ = ["CSV", "JSON_LINES", "Delimited", "Header", "JsonLines", "Records"]

#: How many lines decide on the delimiter.
LOOK_LINES = 200
DELIMITERS = (",", ";", "\t", "|", " ")
#: A first line that names the delimiter, as spreadsheets write and read it.
_NAMED = re.compile(rb'"?sep=([,;\t| ])"?\s*', re.IGNORECASE)
#: Bytes of CSV that are read at a time, and those of the longest line; bytes of JSON lines that are read at a time.
_BLOCK, _LONGEST, _JSON_BLOCK = 1 << 19, 1 << 26, 1 << 21
#: Lines that a quoted field may go on over, and their bytes.
_LINES, _BYTES = 1000, 1 << 20
#: What may be a date: this is quicker than trying all ways to write one.
_LIKE_DATE = re.compile(r"[0-9][-/. ]\w+[-/. ]\s*[0-9]")
_DIGIT = re.compile(r"\d")
#: Rows at the top in which words tell that the header stands further down.
_TOP = 10
#: Lines over which the names of columns may go on, in quotes.
_TOP_LINES = 40
#: Lines among which the header is looked for, if there is a title above it.
_TITLES = 50
#: Of a quote that is not closed within its line: a later line may close it, or it is a stray one.
_OPEN, _STRAY = 0, -1
#: Why a line is not a row.
UNITS = "units below the header"
ABOVE = "above the header"
QUOTE = "a quote is never closed"
HEADER_AGAIN = "the header again"
COMMENT = "a comment"
NOT_AN_OBJECT = "not an object of JSON"
TWICE = "the same as the row before"
#: Rows that tell whether many are the same as the row before.
_SAMPLE = 1000
#: The deepest objects in objects whose fields are columns.
_DEEPEST = 5


# ---------------------------------------------------------------------- CSV


class Delimited:
    """The rows of a delimited text file. ``dropped`` counts those of the last pass that could not be used.

    Arrow reads a part of the file where each of its lines is one row; else the part is read once more line by line.
    """

    rows = None

    def __init__(
        self,
        file: File,
        delimiter: str | None,
        skip_lines: int = 0,
        header_line: int | tuple[str, ...] | None = None,
    ) -> None:
        self.file, self._is_found = file, header_line is None  # whether the header was found, and not named
        head = file.head
        self._skip = 3 if head.startswith(b"\xef\xbb\xbf") else 0
        self._line = 1
        lines = head[self._skip :].splitlines(keepends=True)
        above = header_line - 1 if isinstance(header_line, int) and header_line > 0 else 0
        for _ in range(min(skip_lines + above, len(lines))):
            self._pass(lines.pop(0))
        comments: list[bytes] = []
        while header_line is None and lines and (not lines[0].strip() or lines[0].startswith(b"#")):
            comments += [lines[0]] if lines[0].startswith(b"#") else []
            self._pass(lines.pop(0))
        if not lines:
            raise TableError(f"{file.name}: the file holds no rows, only comments or blank lines.")
        named = _NAMED.fullmatch(lines[0])
        if named and len(lines) > 1:
            delimiter = delimiter or named[1].decode()
            self._pass(lines.pop(0))
        _join_quoted(lines)
        text = [line.decode() for line in lines[:LOOK_LINES]]
        self.delimiter = delimiter or find_delimiter(text)
        titles = find_titles(text, self.delimiter) if header_line is None else 0
        for _ in range(titles):
            self._pass(lines.pop(0))
        text = text[titles:]
        #: Lines above the header that are no part of the table, besides comments.
        self._titles = skip_lines + above + titles
        header = read_header(text[0], self.delimiter)
        comment, hashed = b"", None
        # The comment right above the rows names the columns, or the one above that, if there are units between them.
        for line in reversed(comments if header_line is None else []):
            columns = read_hashed_header(line.decode(), text[0], self.delimiter)
            if columns is not None:
                comment, hashed = line, columns
            elif hashed is not None or line.count(self.delimiter.encode()) != lines[0].count(self.delimiter.encode()):
                break
        both_dated = header_line is None and header.present and _are_both_dated(text, self.delimiter)
        if isinstance(header_line, tuple):
            header = Header(header_line, (), False)
        elif header_line == 0 or both_dated:
            header = Header(tuple(f"column_{i}" for i in range(1, len(header.names) + 1)), (), False)
        elif header_line:
            cells = [cell.strip() for cell in split_fields(text[0].strip("\r\n"), self.delimiter)[0]]
            header = read_header(text[0], self.delimiter, cells)
        self._header = lines[0].strip(b"\r\n") if header.present else None
        self._unit_rows = 0
        if hashed is not None:
            header, self._header = hashed, comment.strip(b"\r\n")
        elif header.present:
            self._pass(lines[0])
        self._block = max(_BLOCK, 4 * len(lines[0]))  # a line may be long where there are very many columns
        self.names, self.unnamed = header.names, header.unnamed
        self.style = fields.PLAIN
        self.units: dict[str, str] = {}
        self.dropped = ReadingPass(self._line).dropped
        #: The columns of dates, if rows that are the same as the row before are dropped.
        self._stamps: list[int] = []

    def _pass(self, line: bytes) -> None:
        self._skip += len(line)
        self._line += max(1, line.count(b"\n"))

    def _start(self) -> ReadingPass:
        reading = ReadingPass(self._line)
        self.dropped = reading.dropped
        return reading

    def look(self) -> pa.Table:
        """The first rows."""
        name, start = self.file.name, self.file.head[self._skip :]
        repeated = find_repeated(self.names)
        if repeated is not None:
            raise TableError(
                f"{name}: line {self._line - 1} names more than one column {repeated!r}. Give each its own name: "
                f"skip_lines={self._line - 1}, header=…"
            )
        table = pa.Table.from_batches([self._batch(start, self.names, True, self._start())[0]])
        # Most rows are odd: the delimiter, or the header, is probably not what it seems.
        if 2 * (self.dropped.count + self.dropped.short) > table.num_rows:
            self._check_fields(start)
        if table.num_rows == 0:
            raise TableError(f"{name}: the file has a header but no rows.")
        table = table.select(list(self.names))
        self.style = fields.find_style([fields.as_plain(column) for column in table.columns], self.delimiter)
        self._stamps = self._find_stamps(table.slice(0, _SAMPLE), start[:_BLOCK].splitlines()[:_SAMPLE])
        if self._stamps:
            table = pa.Table.from_batches([self._batch(start, self.names, True, self._start())[0]]).select(self.names)
        # What has nothing but words between its blanks is prose, or what a program prints.
        if len(self.names) == 1 or self.delimiter == " ":
            kinds = [fields.find_kind(fields.as_plain(column), self.style) for column in table.columns]
            if 2 * kinds.count("text") > len(kinds):
                raise TableError(
                    f"{name}: the file has only text, {self.names[0][:60]!r}, when separated by {self.delimiter!r}. If "
                    f"something else separates its fields, pass it: delimiter=… {OTHERWISE}"
                )
        if self._is_found:
            self._check_top(table)
        if self._header is not None:
            self.units, self._unit_rows = find_units(table, self.style), 0
            # Loggers write a second row of words below the units: how each value was found (Avg, Min).
            while self._unit_rows < 3 and find_units(table.slice(self._unit_rows), self.style):
                self._unit_rows += 1
        return table.slice(self._unit_rows)

    def _find_stamps(self, table: pa.Table, lines: Sequence[bytes]) -> list[int]:
        """The columns of dates and times of day, if one of a hundred lines or more is the same as the line before."""
        repeats = sum(bool(line) and line == after for line, after in pairwise(lines))
        if 100 * repeats <= len(lines):
            return []
        kinds = [fields.find_kind(fields.as_plain(column), self.style) for column in table.columns]
        return [i for i, kind in enumerate(kinds) if kind in ("date", "clock")]

    def _check_top(self, table: pa.Table) -> None:
        """Refuse a table of numbers or times that begins with words: its header stands further down."""
        column = fields.as_plain(table.column(0))
        top = [text or "" for text in column.slice(0, _TOP).to_pylist()]
        words = [text for text in top if not (fields.parse_number(text, self.style)[1] or _DIGIT.search(text))]
        if len(words) >= 3 and fields.find_kind(column, self.style) in ("number", "date", "clock"):
            raise TableError(
                f"{self.file.name}: column {self.names[0]!r} begins with words, such as {words[-1][:40]!r}, and holds "
                f"numbers below. If its header stands further down, pass skip_lines=… and header=… {OTHERWISE}"
            )

    def _check_fields(self, start: bytes) -> None:
        """Refuse a file most of whose lines have another number of fields than there are names.

        Fields may be absent at the end of a line, but not all after the first one, nor between blanks.
        """
        width, is_blank = len(self.names), self.delimiter == " "
        widths = [len(split_fields(line.decode(), self.delimiter)[0]) if line else 0 for line in start.splitlines()]
        odd = [
            i for i, have in enumerate(widths) if have > width or have == 1 < width or (is_blank and 0 < have < width)
        ]
        if 2 * len(odd) > sum(map(bool, widths)):
            raise TableError(
                f"{self.file.name}: line {self._line + odd[0]} has {count_fields(widths[odd[0]])} where the first has "
                f"{width} (separated by {self.delimiter!r}). If that is not the delimiter, pass "
                f"delimiter=…; otherwise correct these lines. {OTHERWISE}"
            )

    def batches(self, names: tuple[str, ...], start: int) -> Iterator[pa.RecordBatch]:
        """All rows from ``start`` on, in batches of any length."""
        reading = self._start()
        with self.file.open() as stream:
            stream.read(self._skip)
            tail, end, units = b"", False, self._unit_rows  # the tail is the beginning of a line that is not read yet
            if units:
                reading.dropped.add(UNITS, self._line, units)
            if self._titles:
                reading.dropped.add(ABOVE, 1, self._titles)
            chunk = stream.read(self._block)
            while not end:
                following = stream.read(self._block) if chunk else b""
                end = not following
                text, tail = (tail + chunk, b"") if end else _complete_lines(tail + chunk)
                chunk = following
                if len(tail) > _LONGEST:
                    raise TableError(f"{self.file.name}: line {reading.line} is longer than {_LONGEST >> 20} MB.")
                if text:
                    batch, incomplete = self._batch(text, names, end, reading)
                    tail = incomplete + tail
                    if units and len(batch):
                        units, batch = max(0, units - len(batch)), batch.slice(min(units, len(batch)))
                    yield batch.slice(min(start, len(batch)))
                    start = max(0, start - len(batch))

    def _batch(
        self, text: bytes, names: tuple[str, ...], end: bool, reading: ReadingPass
    ) -> tuple[pa.RecordBatch, bytes]:
        """The rows of some lines, and the last of these lines if they are not complete.

        Args:
            text: The lines.
            names: The columns.
            end: Whether no line comes after them that may complete the last one.
            reading: The pass, which counts lines and rows.
        """
        ends = text.count(b"\n")
        batch = None if self._stamps else self._by_arrow(text, names, ends)
        if batch is not None:
            reading.line += ends or text.count(b"\r")
            return reading.number_rows(batch), b""
        lines = text.splitlines()
        records = Records.read(lines, self.delimiter, len(self.names), self._header, reading, end, self._stamps)
        at = [self.names.index(name) for name in names]
        batch = pa.record_batch([pa.array([r[i] for r in records.fields], pa.string()) for i in at], list(names))
        incomplete = records.incomplete and records.incomplete + b"\n"
        reading.line += len(lines) - incomplete.count(b"\n")
        return reading.number_rows(batch, records.places, records.rows), incomplete

    def _by_arrow(self, text: bytes, names: tuple[str, ...], ends: int) -> pa.RecordBatch | None:
        """The rows of lines with so many ends, or None where a line is not one row of as many fields as names."""
        wrong: list[pcsv.InvalidRow] = []

        def skip(row: pcsv.InvalidRow) -> str:
            wrong.append(row)
            return "skip"

        # The header again, where files were joined: Arrow would read it as a row.
        if self._header is not None and (text.startswith(self._header) or b"\n" + self._header in text):
            return None
        last_line = text.rstrip(b"\r\n")[-_BLOCK:].rpartition(b"\n")[2]
        try:
            # Arrow would close the quote at the end of the text, and the field goes on in the next one.
            if b'"' in last_line and not split_fields(last_line.decode(), self.delimiter)[1]:
                return None
            table = pcsv.read_csv(
                pa.BufferReader(text),
                pcsv.ReadOptions(column_names=list(self.names), use_threads=False, block_size=len(text) + 1),
                pcsv.ParseOptions(delimiter=self.delimiter, newlines_in_values=True, invalid_row_handler=skip),
                pcsv.ConvertOptions(
                    column_types=dict.fromkeys(self.names, pa.string()),
                    include_columns=list(names),
                    null_values=fields.MISSING,
                    strings_can_be_null=True,
                ),
            )
        except (pa.ArrowInvalid, ValueError):
            return None
        # Quotes over several lines, and lines that Arrow takes for blank, give another number of rows than of lines.
        lines = ends + (not text.endswith(b"\n"))
        if wrong or (table.num_rows != lines and table.num_rows != sum(map(bool, text.splitlines()))):
            return None
        return table.combine_chunks().to_batches()[0]


def _complete_lines(text: bytes) -> tuple[bytes, bytes]:
    """Up to the last end of a line, and from there on. A carriage return at the very end may be half of one."""
    cut = text.rfind(b"\n") + 1 or text.rfind(b"\r", 0, -1) + 1
    return text[:cut], text[cut:]


def find_units(table: pa.Table, style: fields.NumberStyle) -> dict[str, str]:
    """The units that the first row gives for columns of numbers, if it holds units: no number or time in it.

    >>> find_units(pa.table({"t": ["", "0", "1"], "power": ["kW", "1.5", "2"]}), fields.PLAIN)
    {'power': 'kW'}
    """
    top = {name: fields.as_plain(table.column(name).slice(0, 1))[0].as_py() for name in table.column_names}
    words = {name: word for name, text in top.items() if (word := fields.parse_label(text)) is not None}
    if table.num_rows < 3 or any(fields.parse_number(word, style)[1] for word in words.values()):
        return {}
    units = {}
    for name, word in words.items():
        column = fields.as_plain(table.column(name))
        if fields.find_kind(column.slice(0, 1), style) in ("date", "clock"):
            return {}
        below = column.slice(1)
        if fields.find_kind(below, style) == "number" and not np.isnan(fields.as_floats(below, style)[0]).all():
            units[name] = word
    return units


@dataclass(frozen=True)
class Header:
    """The columns' names; those that the first line has no name for; and whether it is a header at all.

    Without a header, or a name in it, a column is ``column_1``, ``column_2`` … by its place.
    """

    names: tuple[str, ...]
    unnamed: tuple[str, ...]
    present: bool


def read_header(line: str, delimiter: str, known: Collection[str] = ()) -> Header:
    """What the first line says of the columns. It is a header for certain if it has one of the ``known`` names."""
    texts = [" ".join(text.strip().splitlines()) for text in split_fields(line.strip("\r\n"), delimiter)[0]]
    present = any(text in known for text in texts) or _is_header(texts)
    names = tuple((present and text) or f"column_{i}" for i, text in enumerate(texts, 1))
    # Frames write their row numbers without a name.
    unnamed = tuple(n for n, name in zip(names, texts, strict=True) if present and (not name or name == "Unnamed: 0"))
    return Header(names, unnamed, present)


def find_repeated(names: Sequence[str]) -> str | None:
    """A name that is there more than once."""
    counts = Counter(names)
    return next((name for name in names if counts[name] > 1), None)


def _join_quoted(lines: list[bytes]) -> None:
    """Join the first lines where a name in quotes goes on over several, as spreadsheets write it."""
    for count in range(2, min(_TOP_LINES, len(lines)) if lines[0].count(b'"') % 2 else 0):
        joined = b"".join(lines[:count])
        if joined.count(b'"') % 2 == 0:
            name, row = joined.decode().strip("\r\n"), lines[count].decode().strip("\r\n")
            if any(len(split_fields(name, sign)[0]) == len(split_fields(row, sign)[0]) > 1 for sign in DELIMITERS):
                lines[:count] = [joined]
            return


def _are_both_dated(lines: Sequence[str], delimiter: str) -> bool:
    """Whether the first two lines have a date in the same place, one of the first: then neither is a header."""
    if len(lines) < 2:
        return False
    cells = zip(*(split_fields(line.strip("\r\n"), delimiter)[0][:4] for line in lines[:2]), strict=False)
    likely = [pair for pair in cells if all(map(_LIKE_DATE.search, pair))]
    return any(fields.date_format(pa.array(pair, pa.string())) is not None for pair in likely)


def _is_header(texts: Sequence[str]) -> bool:
    """Names, not values: at most half of the fields are numbers, or they only count the columns (0, 1, 2, …)."""
    values, unreadable = fields.parse_numbers(pa.array(texts, pa.string()))
    if 2 * unreadable >= len(texts):
        return True
    steps = {float(b - a) for a, b in pairwise(values)}
    return len(texts) > 2 and steps == {1.0} and values[0] in (0.0, 1.0)


def find_delimiter(lines: Sequence[str]) -> str:
    """The delimiter that separates the first lines into the same number of fields, and into the most."""

    def score(delimiter: str) -> tuple[float, int]:
        try:
            counts = [len(row) for row in csv.reader(lines, delimiter=delimiter) if row]
        except csv.Error:  # a field that is too long, because nothing separates it
            return 0.0, 0
        width = counts[0] if counts else 1
        # How uniform the lines are comes first: text has many blanks, but seldom as many in every line.
        return (counts.count(width) / len(counts), width) if width > 1 else (0.0, 1)

    best = max(DELIMITERS, key=score)
    if best == " ":
        # A blank after each comma or semicolon separates no more than that does.
        spaced = [sign for sign in (",", ";", "|") if score(sign)[0] >= score(" ")[0]]
        spaced = [sign for sign in spaced if all(line.count(sign) == line.count(f"{sign} ") for line in lines)]
        best = max(spaced, key=score, default=best)
    if best != " " and score(best)[0] >= 0.5:
        return best

    # The first lines may be a title, which has blanks: the delimiter is then the one that most lines agree on.
    def agreement(delimiter: str) -> tuple[float, int]:
        try:
            counts = Counter(len(row) for row in csv.reader(lines, delimiter=delimiter) if row)
        except csv.Error:
            return 0.0, 0
        width, count = max(counts.items(), key=lambda pair: (pair[1], pair[0]), default=(1, 0))
        return (count / counts.total(), width) if width > 1 and 2 * count > counts.total() else (0.0, 1)

    # Blanks come last: dates have them too.
    other = max((sign for sign in DELIMITERS if sign != " "), key=agreement)
    if agreement(other)[0] <= 0.5:
        other = " "
    is_better = score(best)[0] < 0.5 or (score(other)[0] == 0.0 and agreement(other)[1] > score(best)[1])
    return other if agreement(other)[0] > 0.5 and is_better else best


def find_titles(lines: Sequence[str], delimiter: str) -> int:
    """How many lines are a title above the header: the first one has at most half as many fields, or at most half of
    its fields filled, as most lines, and the first below it that is full begins the table.

    >>> find_titles(["Plant 7;;", "made today;;", "time;x;y", "1;2;3", "2;3;4"], ";")
    2
    """
    try:
        rows = [[field.strip() for field in split_fields(line.strip("\r\n"), delimiter)[0]] for line in lines]
    except csv.Error:
        return 0
    width = Counter(len(row) for row in rows if any(row)).most_common(1)[0][0] if any(map(any, rows)) else 1

    def fill(row: Sequence[str]) -> int:
        return sum(map(bool, row))

    if len(rows) > 2 and len(rows[0]) != width == len(rows[1]) == len({*rows[1]}) > 1 and _are_words(rows[0], rows[1]):
        return 1  # what a logger says about itself, in a line of more fields
    if width < 2 or len(rows[0]) > width or (width == 2 and fill(rows[0]) == len(rows[0]) == 2):
        return 0
    if fill(rows[0]) > width / 2 or (rows[0] and fields.parse_number(rows[0][0])[1]):
        return 0
    for i, row in enumerate(rows[1:_TITLES], start=1):
        if len(row) == width and fill(row) >= max(2.0, 0.75 * width) and len(rows) > i + 1:
            return i
    return 0


def _are_words(title: Sequence[str], names: Sequence[str]) -> bool:
    """Whether the second line names columns below a first one that says something else: no number, nothing empty."""
    return all(name and not fields.parse_number(name)[1] for name in names) and not {*title} & {*names}


def read_hashed_header(comment: str, first_row: str, delimiter: str) -> Header | None:
    """The columns that a comment right above the rows names: as many words as the first row has fields, one of which
    is a number."""
    header = read_header(comment.lstrip("# \t"), delimiter) if comment else None
    row = split_fields(first_row.strip("\r\n"), delimiter)[0]
    if header is None or len(header.names) != len(row) or not header.present:
        return None
    words = [fields.is_missing(name) or not fields.parse_number(name)[1] for name in header.names]
    values = [not fields.is_missing(text) and fields.parse_number(text)[1] for text in row]
    return header if all(words) and any(values) else None


# ---------------------------------------------------------------------- records of CSV


def too_many(count: int, names: int) -> str:
    """Why a line with more fields than the header is not a record."""
    return f"{count_fields(count)}, where the header has {names}"


def count_fields(count: int) -> str:
    """ "1 field", "2 fields"."""
    return "1 field" if count == 1 else f"{count} fields"


def split_fields(line: str, delimiter: str) -> tuple[list[str], bool]:
    """The fields of a record, and whether its quotes are closed. A quoted field of 128 KiB or more is a ``csv.Error``.

    >>> split_fields('1,"a, b"', ","), split_fields('1,"2', ",")
    ((['1', 'a, b'], True), (['1', '2'], False))
    """
    if '"' not in line:
        return line.split(delimiter), True
    # The text after an open quote belongs to the record's last field: so does the mark at the end, if it is open still.
    *lines, last_line = line.split("\n")
    rows = csv.reader([*(f"{text}\n" for text in lines), last_line, "\n\0"], delimiter=delimiter)
    record = next(rows)
    if record and record[-1].endswith("\n\0"):
        return [*record[:-1], record[-1][:-2]], False
    return record, True


def is_blank(line: str, delimiter: str, width: int) -> bool:
    """Whether a line is blank, and so not a row."""
    return not line or (width > 1 and not line.strip() and delimiter not in line)


@dataclass
class Records:
    """The records in some lines of a file, each with as many fields as there are names.

    ``places`` are their places among all rows, of which there were ``rows``. ``incomplete`` are the last lines, if a
    quote in them may be closed by a later line.
    """

    fields: list[list[str]] = field(default_factory=list)
    places: list[int] = field(default_factory=list)
    rows: int = 0
    incomplete: bytes = b""

    @classmethod
    def read(
        cls,
        lines: Sequence[bytes],
        delimiter: str,
        width: int,
        header: bytes | None,
        reading: ReadingPass,
        end: bool,
        stamps: Sequence[int] = (),
    ) -> Records:
        """Of these lines, where a pass has come to; ``end``: nothing comes after them. With ``stamps``, the places of
        dates, a record with a date that is the same as the one before is dropped as if it were not there."""
        records, dropped, i = cls(), reading.dropped, 0
        while i < len(lines):
            if is_blank(lines[i].decode(), delimiter, width):
                i += 1
                continue
            record, count = _record(lines[i : i + _LINES], delimiter, width)
            if count == _OPEN and not end and len(lines) - i < _LINES and sum(map(len, lines[i:])) < _BYTES:
                records.incomplete = b"\n".join(lines[i:])
                break
            why = QUOTE if count < 1 else None
            if lines[i] == header:
                why = HEADER_AGAIN
            elif len(record) != width and lines[i].startswith(b"#"):
                why = COMMENT
            elif len(record) > width:
                why = too_many(len(record), width)
            cells = record + [""] * (width - len(record))
            is_again = why is None and cells == reading.last_record and any(_DIGIT.search(cells[at]) for at in stamps)
            if is_again:
                why = TWICE
            if why is None:
                dropped.short += len(record) < width
                records.fields.append(cells)
                records.places.append(records.rows)
                reading.last_record = cells
            else:
                dropped.add(why, reading.line + i)
            records.rows += not is_again
            i += max(count, 1)
        return records


def _record(lines: Sequence[bytes], delimiter: str, width: int) -> tuple[list[str], int]:
    """The record that the lines begin with, and how many of them it takes; ``_OPEN`` or ``_STRAY`` if it is none."""
    text = lines[0].decode()
    record, closed = split_fields(text, delimiter)
    if closed:
        return record, 1
    separator = delimiter.encode()
    looks_complete = lines[0].count(separator) + 1 == width > 1
    for count, line in enumerate(lines[1:], start=2):
        if looks_complete and line.count(separator) + 1 == width:
            return [], _STRAY  # this is a record by itself
        text = f"{text}\n{line.decode()}"
        if b'"' in line:
            record, closed = split_fields(text, delimiter)
            if closed:
                return (record, count) if len(record) == width else ([], _STRAY)
    return [], _OPEN


# ---------------------------------------------------------------------- JSON lines


class JsonLines:
    """The rows of a file of JSON lines. ``dropped`` counts lines of the last pass that hold no whole object.

    The first rows decide on names and types. Lines with other types (a word among numbers) are read once more, more
    slowly, as text.
    """

    rows = None
    style = fields.PLAIN

    def __init__(self, file: File) -> None:
        self.file = file
        types_by_name: dict[str, set[type]] = {}
        rows = _objects(file.head, self._start())[0]
        #: The names whose values are objects: their fields are columns.
        self._with_fields = frozenset(name for name in find_nested(rows) if any(_inner(row.get(name)) for row in rows))
        rows = [self._expand(row) for row in rows]
        for row in rows:
            for name, value in row.items():
                types_by_name.setdefault(name, set()).update(() if value is None else (type(value),))
        self.nested = find_nested(rows)
        self.types = {name: _type(types) for name, types in types_by_name.items() if name not in self.nested}
        self.names = tuple(self.types)

    def _start(self) -> ReadingPass:
        reading = ReadingPass(1)
        self.dropped = reading.dropped
        return reading

    def look(self) -> pa.Table:
        """The first rows."""
        if self.dropped.count and not self.names:
            raise TableError(
                f"{self.file.name}: line 1 is not a JSON object. A file of JSON lines has one object a line, "
                'such as {"time": "2007-02-01T17:24:00", "power": 4.2}.'
            )
        if not self.names:
            return pa.table({})
        table = pa.Table.from_batches([self._batch(self.file.head, self.names, self._start())]).select(list(self.names))
        if table.num_rows == 1 and (self.nested or self._with_fields):
            raise TableError(f"{self.file.name}: this is one object of JSON. Write one object a line. {OTHERWISE}")
        return table

    def batches(self, names: tuple[str, ...], start: int) -> Iterator[pa.RecordBatch]:
        """All rows from ``start`` on, in batches of any length."""
        reading = self._start()
        with self.file.open() as stream:
            tail = b""
            while chunk := stream.read(_JSON_BLOCK):
                text, newline, tail = (tail + chunk).rpartition(b"\n")
                if newline:
                    batch = self._batch(text, names, reading)
                    yield batch.slice(min(start, len(batch)))
                    start = max(0, start - len(batch))
            if tail.strip():
                yield self._batch(tail, names, reading).slice(start)

    def _expand(self, row: dict[str, Any]) -> dict[str, Any]:
        """A row with the fields of objects in their place."""
        if not self._with_fields:
            return row
        plain = {name: value for name, value in row.items() if name not in self._with_fields}
        return plain | expand({name: row[name] for name in row if name in self._with_fields}, is_inner=True)

    def _batch(self, text: bytes, names: tuple[str, ...], reading: ReadingPass) -> pa.RecordBatch:
        batch = self._by_arrow(text, names) if not self._with_fields else None
        if batch is not None:
            reading.line += text.count(b"\n") + 1
            return reading.number_rows(batch)
        objects, places, rows = _objects(text, reading)
        objects = [self._expand(row) for row in objects]
        texts = [pa.array([fields.as_text(row.get(name)) for row in objects], pa.string()) for name in names]
        return reading.number_rows(pa.record_batch(texts, list(names)), places, rows)

    def _by_arrow(self, text: bytes, names: tuple[str, ...]) -> pa.RecordBatch | None:
        """The rows of some lines, or None where a line is not one row of the types that the first rows have.

        Nor is Arrow asked for names that have lost a character: it would not find them.
        """
        if any("\ufffd" in name for name in names):
            return None
        parse = pj.ParseOptions(
            explicit_schema=pa.schema([(name, self.types[name]) for name in names]), unexpected_field_behavior="ignore"
        )
        read = pj.ReadOptions(use_threads=False, block_size=len(text) + 1)
        try:
            table = pj.read_json(pa.BufferReader(text), read, parse)
        except pa.ArrowInvalid:
            return None
        # A line that is not one object gives another number of rows than of lines.
        lines = text.count(b"\n") + 1
        if table.num_rows != lines and table.num_rows != sum(bool(line.strip()) for line in text.split(b"\n")):
            return None
        return table.combine_chunks().to_batches()[0]


def _objects(text: bytes, reading: ReadingPass) -> tuple[list[dict[str, Any]], list[int], int]:
    """The objects in some lines, their places among all rows, and how many rows there are."""
    objects: list[dict[str, Any]] = []
    places: list[int] = []
    rows = 0
    for line in text.split(b"\n"):
        if line.strip():
            try:
                objects.append(read_object(line.decode()))
                places.append(rows)
            except Malformed:
                reading.dropped.add(NOT_AN_OBJECT, reading.line)
            rows += 1
        reading.line += 1
    return objects, places, rows


def read_object(text: str) -> dict[str, Any]:
    """The object that a line holds; ``Malformed`` says why it holds none."""
    try:
        value = json.loads(text.removeprefix("\ufeff"))
    except (ValueError, RecursionError, MemoryError) as error:
        raise Malformed(f"not JSON: {error}") from None
    if not isinstance(value, dict):
        raise Malformed(NOT_AN_OBJECT)
    if text.isascii() and "\\u" not in text:  # no name can hold half a surrogate pair
        return value
    return {fields.as_name(name): inner for name, inner in value.items()}


def expand(row: Mapping[str, Any], prefix: str = "", is_inner: bool = False, depth: int = 0) -> dict[str, Any]:
    """The fields of objects in a row, also of an object that is alone in a list, with dots in their names.

    Args:
        row: The row.
        prefix: What the names begin with.
        is_inner: Whether other fields are wanted, too.
        depth: How deep the row is nested itself.

    >>> expand({"t": 1, "room": {"temp": 21.5, "door": {"open": True}}, "weather": [{"id": 7}]})
    {'room.temp': 21.5, 'room.door.open': True, 'weather.id': 7}
    """
    fields_of: dict[str, Any] = {}
    for name, value in row.items():
        inner = _inner(value)
        if inner is not None and depth < _DEEPEST:
            fields_of |= expand(inner, f"{prefix}{name}.", True, depth + 1)
        elif is_inner:
            fields_of[f"{prefix}{name}"] = value
    return fields_of


def _inner(value: object) -> dict[str, Any] | None:
    """An object, or the only one in a list; None of any other value, and of an empty object."""
    if isinstance(value, list) and len(value) == 1:
        value = value[0]
    return (
        {fields.as_name(str(name)): inner for name, inner in value.items()}
        if isinstance(value, dict) and value
        else None
    )


def is_nested(value: object) -> bool:
    """Whether a JSON value is an object or a list."""
    return isinstance(value, dict | list)


def find_nested(rows: Iterable[Mapping[str, Any]]) -> tuple[str, ...]:
    """Names whose values are objects or lists, more often than not: they are no columns.

    In other columns such a value is one that cannot be read, like a word among numbers.

    >>> find_nested([{"x": 1, "y": [2]}, {"x": {}, "y": None}, {"x": 3}])
    ('y',)
    """
    there: Counter[str] = Counter()
    nested: Counter[str] = Counter()
    for row in rows:
        there.update(name for name, value in row.items() if value is not None)
        nested.update(name for name, value in row.items() if is_nested(value))
    return tuple(name for name, count in nested.items() if 2 * count > there[name])


def _type(types: set[type]) -> pa.DataType:
    if types <= {int, float}:
        return pa.float64()
    return pa.bool_() if types == {bool} else pa.string()


def _is_csv(file: File) -> bool:
    return file.obstacle is None and file.first_sign != b"{"


def _is_json_lines(file: File) -> bool:
    return file.obstacle is None and file.first_sign == b"{"


def _open_csv(file: File, options: OpenOptions) -> Delimited:
    return Delimited(file, options.delimiter, options.skip_lines, options.header)


CSV = Format("CSV", _is_csv, _open_csv, text=True)
JSON_LINES = Format("JSON lines", _is_json_lines, lambda file, options: JsonLines(file), text=True)
