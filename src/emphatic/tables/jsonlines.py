"""JSON lines: one object a line, a column for each of its names."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.json as pj

from emphatic.tables import fields
from emphatic.tables.dropped_rows import ReadingPass
from emphatic.tables.table_errors import Malformed, TableError

if TYPE_CHECKING:
    from emphatic.tables.files import File

__all__ = ["NOT_AN_OBJECT", "JsonLines", "find_nested", "is_nested", "read_object"]

_BLOCK = 1 << 21
NOT_AN_OBJECT = "not an object of JSON"


class JsonLines:
    """The rows of a file of JSON lines. ``dropped`` counts lines of the last pass that hold no whole object.

    The first rows decide on names and types. A part of the file that has other types (a word among numbers) is read
    again, more slowly, as text.
    """

    rows = None
    style = fields.PLAIN

    def __init__(self, file: File) -> None:
        self.file = file
        found: dict[str, set[type]] = {}
        rows = _objects(file.head, self._start())[0]
        for row in rows:
            for name, value in row.items():
                found.setdefault(name, set()).update(() if value is None else (type(value),))
        self.nested = find_nested(rows)
        self.types = {name: _type(types) for name, types in found.items() if name not in self.nested}
        self.names = tuple(self.types)

    def _start(self) -> ReadingPass:
        begun = ReadingPass(1)
        self.dropped = begun.dropped
        return begun

    def look(self) -> Any:
        """The first rows."""
        if self.dropped.count and not self.names:
            raise TableError(
                f"{self.file.name}: line 1 is not a JSON object. A file of JSON lines has one object a line, "
                'such as {"time": "2007-02-01T17:24:00", "power": 4.2}.'
            )
        if not self.names:
            return pa.table({})
        return pa.Table.from_batches([self._batch(self.file.head, self.names, self._start())]).select(list(self.names))

    def batches(self, names: tuple[str, ...], start: int) -> Iterator[Any]:
        """All rows from ``start`` on, in batches of any length."""
        now = self._start()
        with self.file.open() as stream:
            rest = b""
            while more := stream.read(_BLOCK):
                text, newline, rest = (rest + more).rpartition(b"\n")
                if newline:
                    batch = self._batch(text, names, now)
                    yield batch.slice(min(start, len(batch)))
                    start = max(0, start - len(batch))
            if rest.strip():
                yield self._batch(rest, names, now).slice(start)

    def _batch(self, text: bytes, names: tuple[str, ...], now: ReadingPass) -> Any:
        batch = self._by_arrow(text, names)
        if batch is not None:
            now.line += text.count(b"\n") + 1
            return now.number_rows(batch)
        found, kept, rows = _objects(text, now)
        texts = [pa.array([fields.as_text(row.get(name)) for row in found], pa.string()) for name in names]
        return now.number_rows(pa.record_batch(texts, list(names)), kept, rows)

    def _by_arrow(self, text: bytes, names: tuple[str, ...]) -> Any:
        """The rows of some lines, or None where a line is not one row of the types that the first rows have.

        Nor is Arrow asked for names that have lost a character: it would not find them.
        """
        if any("\ufffd" in name for name in names):
            return None
        parse = pj.ParseOptions(
            explicit_schema=pa.schema([(name, self.types[name]) for name in names]),
            unexpected_field_behavior="ignore",
        )
        read = pj.ReadOptions(use_threads=False, block_size=len(text) + 1)
        try:
            table = pj.read_json(pa.BufferReader(text), read, parse)
        except pa.ArrowInvalid:
            return None
        lines = text.count(b"\n") + 1
        if table.num_rows != lines and table.num_rows != sum(bool(line.strip()) for line in text.split(b"\n")):
            return None
        return table.combine_chunks().to_batches()[0]


def _objects(text: bytes, now: ReadingPass) -> tuple[list[dict[str, Any]], list[int], int]:
    """The objects in some lines, their places among all rows, and how many rows there are."""
    found: list[dict[str, Any]] = []
    kept: list[int] = []
    rows = 0
    for line in text.split(b"\n"):
        if line.strip():
            try:
                found.append(read_object(line.decode()))
                kept.append(rows)
            except Malformed:
                now.dropped.add(NOT_AN_OBJECT, now.line)
            rows += 1
        now.line += 1
    return found, kept, rows


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


def is_nested(value: Any) -> bool:
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


def _type(types: set[type]) -> Any:
    if types <= {int, float}:
        return pa.float64()
    return pa.bool_() if types == {bool} else pa.string()
