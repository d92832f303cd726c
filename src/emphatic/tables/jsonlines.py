"""JSON lines: one object a line, a column for each of its names."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.json as pj

from emphatic.tables import fields
from emphatic.tables.table_errors import TableError

if TYPE_CHECKING:
    from emphatic.tables.files import File

__all__ = ["JsonLines"]

_BLOCK = 1 << 21


class JsonLines:
    """The rows of a file of JSON lines. ``broken`` counts lines skipped because they hold no whole object.

    The first rows decide on names and types. A part of the file that has other types (a word among numbers) is read
    again, more slowly, as text.
    """

    rows = None
    comma = False

    def __init__(self, file: File) -> None:
        self.file = file
        self.broken = 0
        found: dict[str, set[type]] = {}
        for row in self._objects(file.head):
            for name, value in row.items():
                found.setdefault(name, set()).update(() if value is None else (type(value),))
        self.nested = tuple(name for name, types in found.items() if types & {dict, list})
        self.types = {name: _type(types) for name, types in found.items() if name not in self.nested}
        self.names = tuple(self.types)

    def look(self) -> Any:
        """The first rows."""
        if self.broken and not self.names:
            raise TableError(
                f"{self.file.name}: line 1 is not a JSON object. A file of JSON lines has one object a line, "
                'such as {"time": "2007-02-01T17:24:00", "power": 4.2}.'
            )
        return pa.Table.from_batches([self._batch(self.file.head, self.names)])

    def batches(self, names: tuple[str, ...], start: int) -> Iterator[Any]:
        """All rows from ``start`` on, in batches of any length."""
        self.broken = 0
        with self.file.open() as stream:
            rest = b""
            while more := stream.read(_BLOCK):
                text, newline, rest = (rest + more).rpartition(b"\n")
                if newline:
                    batch = self._batch(text, names)
                    yield batch.slice(min(start, len(batch)))
                    start = max(0, start - len(batch))
            if rest.strip():
                yield self._batch(rest, names).slice(start)

    def _batch(self, text: bytes, names: tuple[str, ...]) -> Any:
        schema = pa.schema([(name, self.types[name]) for name in names])
        if not text.strip():
            return pa.RecordBatch.from_pylist([], schema)
        parse = pj.ParseOptions(explicit_schema=schema, unexpected_field_behavior="ignore")
        read = pj.ReadOptions(use_threads=False, block_size=len(text) + 1)
        try:
            return pj.read_json(pa.BufferReader(text), read, parse).combine_chunks().to_batches()[0]
        except pa.ArrowInvalid:
            rows = self._objects(text)
            return pa.record_batch(
                {name: pa.array([fields.as_text(row.get(name)) for row in rows], pa.string()) for name in names}
            )

    def _objects(self, text: bytes) -> list[dict[str, Any]]:
        found = []
        for line in text.splitlines():
            if line.strip():
                try:
                    value = json.loads(line)
                except ValueError:
                    value = None
                if isinstance(value, dict):
                    found.append(value)
                else:
                    self.broken += 1
        return found


def _type(types: set[type]) -> Any:
    if types <= {int, float}:
        return pa.float64()
    return pa.bool_() if types == {bool} else pa.string()
