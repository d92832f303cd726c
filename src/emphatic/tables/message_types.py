"""ROS 2 messages: which numbers a type of message holds, and reading them from a message's bytes (CDR).

A message is read without building objects, and without running code made from a file's definitions: text and arrays
that are not used are skipped. The layout is OMG's Common Data Representation as ROS 2 writes it (XCDR1): four bytes
with the byte order; then each number at a multiple of its size, counted from there; a text or a sequence begins with
its length in four bytes.
"""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Iterable, Mapping
from itertools import compress
from typing import Any

__all__ = ["LONGEST", "STAMP", "TEXT", "MessageType", "UnknownType", "usual_length"]

#: The longest array that becomes columns.
LONGEST = 16
STAMP = "a time stamp: rows have the time of the log"
TEXT = "text"
_FORMATS = {
    "bool": "?", "byte": "B", "char": "B", "octet": "B", "int8": "b", "uint8": "B", "int16": "h", "uint16": "H",
    "int32": "i", "uint32": "I", "int64": "q", "uint64": "Q", "float32": "f", "float64": "d",
}  # fmt: skip
_BASE, _NAME, _ARRAY = 1, 2, 3  # rosbags.interfaces.Nodetype; the fourth is a sequence
_EMPTY = "structure_needs_at_least_one_member"  # the one byte of a message without fields
_MOST_FIELDS, _DEEPEST = 10_000, 50


class UnknownType(ValueError):
    """A type of message that cannot be read, and why."""


def usual_length(lengths: Counter[int]) -> tuple[int, str]:
    """The length that more than half of the arrays have; or 0, and why the array is left out."""
    length, count = lengths.most_common(1)[0] if lengths else (0, 1)
    if 2 * count <= lengths.total():
        return 0, "an array whose length varies"
    if length > LONGEST:
        return 0, f"an array of {length:,} values"
    return length, "" if length else "an array without values"


class _Numbers:
    """Numbers one after the other; those without a path are read and not kept."""

    def __init__(self) -> None:
        self.formats = ""
        self.paths: list[str | None] = []
        self._layouts: dict[tuple[str, int], struct.Struct] = {}
        self._all = True

    @property
    def columns(self) -> list[str]:
        return [path for path in self.paths if path is not None]

    def read(self, data: bytes, at: int, order: str, found: list[float | None]) -> int:
        layout = self._layouts.get((order, at % 8)) or self._lay_out(order, at % 8)
        values = layout.unpack_from(data, 4 + at)
        found.extend(values if self._all else compress(values, self.paths))
        return at + layout.size

    def _lay_out(self, order: str, start: int) -> struct.Struct:
        """With the gaps that these numbers have where they begin at ``start``, counted from a multiple of 8."""
        text, at = order, start
        for one in self.formats:
            size = struct.calcsize(f"={one}")
            text += "x" * (-at % size) + one
            at += -at % size + size
        self._all = None not in self.paths
        return self._layouts.setdefault((order, start), struct.Struct(text))


class _Array:
    """A sequence of numbers, or an array of ``count``: kept if ``length`` is set, else skipped."""

    def __init__(self, path: str, form: str, count: int | None = None) -> None:
        self.path, self._form, self._count = path, form, count
        self._size = struct.calcsize(f"={form}")
        self.length = 0
        self.seen: Counter[int] | None = Counter()

    @property
    def columns(self) -> list[str]:
        return [f"{self.path}[{i}]" for i in range(self.length)]

    def read(self, data: bytes, at: int, order: str, found: list[float | None]) -> int:
        count = self._count
        if count is None:
            at, count = _length(data, at, order)
        if self.seen is not None:
            self.seen[count] += 1
        if not count:
            found.extend([None] * self.length)
            return at
        at += -at % self._size
        if self.length and count == self.length:
            found.extend(struct.unpack_from(f"{order}{count}{self._form}", data, 4 + at))
        else:
            found.extend([None] * self.length)
        return _within(data, at + count * self._size)


class _Text:
    columns: tuple[str, ...] = ()

    def read(self, data: bytes, at: int, order: str, found: list[float | None]) -> int:
        at, length = _length(data, at, order)
        return _within(data, at + length)


class _Messages:
    """Messages or texts that are skipped one by one: a sequence, or an array of ``count``."""

    columns: tuple[str, ...] = ()

    def __init__(self, steps: list[Any], count: int | None) -> None:
        self._steps, self._count = steps, count

    def read(self, data: bytes, at: int, order: str, found: list[float | None]) -> int:
        count = self._count
        if count is None:
            at, count = _length(data, at, order)
        for _ in range(count):
            before = at
            for step in self._steps:
                at = step.read(data, at, order, [])
            if at == before:
                raise ValueError("messages without content")
        return at


class MessageType:
    """The numbers of one type of message: ``columns`` are their names, ``left_out`` other fields and the reasons.

    ``types`` has the fields of each type, as ``rosbags.typesys`` parses them. A sequence has the length that it has in
    more than half of the ``first`` messages, and is left out if there is no such length.
    """

    def __init__(self, name: str, types: Mapping[str, Any], first: Iterable[bytes]) -> None:
        self.left_out: dict[str, str] = {}
        self._types, self._fields = types, 0
        self._steps: list[Any] = []
        self._plan(name, "", self._steps, 0)
        sequences = [step for step in self._steps if isinstance(step, _Array)]
        for data in first if sequences else ():
            self.read(data)
        for step in sequences:
            step.length, why = usual_length(step.seen or Counter())
            step.seen = None
            if why:
                self.left_out[step.path] = why
        self.columns = [column for step in self._steps for column in step.columns]

    def read(self, data: bytes) -> list[float | None]:
        """The numbers of a message; None for what cannot be read, such as an array that has another length."""
        found: list[float | None] = []
        try:
            if len(data) < 4 or data[0] != 0 or data[1] > 1:
                raise ValueError("not XCDR1")
            at = 0
            for step in self._steps:
                at = step.read(data, at, "><"[data[1]], found)
            if len(data) - 4 - at > 3:  # padding may follow, but no more fields
                raise ValueError("longer than its type")
        except (struct.error, ValueError):
            return [None] * sum(len(step.columns) for step in self._steps)
        return found

    def _plan(self, name: str, path: str, steps: list[Any], depth: int, keep: bool = True) -> None:
        """The steps that read a message of this type, whose fields begin with ``path``."""
        if name not in self._types:
            raise UnknownType(f"messages of an unknown type, {name}")
        if depth > _DEEPEST:
            raise UnknownType("messages nested too deeply")
        fields = self._types[name][1] or [(_EMPTY, (_BASE, ("uint8", 0)))]
        for field, (kind, what) in fields:
            here = f"{path}.{field}" if path else field
            if kind in (_BASE, _NAME):
                self._plan_one(kind, what, here, steps, depth, keep and field != _EMPTY)
                continue
            (kind_of_one, one), size = what
            count = size if kind == _ARRAY else None
            form = _FORMATS.get(one[0]) if kind_of_one == _BASE else None
            if count is not None and count <= LONGEST and keep:
                for i in range(count):
                    self._plan_one(kind_of_one, one, f"{here}[{i}]", steps, depth, keep)
            elif form is not None:
                self._count_field()
                steps.append(_Array(here, form, count))
                if not keep:
                    steps[-1].seen = None
            else:
                inner: list[Any] = []
                self._plan_one(kind_of_one, one, here, inner, depth, False)
                steps.append(_Messages(inner, count))
                if keep:
                    self.left_out[here] = TEXT if kind_of_one == _BASE else "a list of messages"

    def _plan_one(self, kind: int, what: Any, path: str, steps: list[Any], depth: int, keep: bool) -> None:
        self._count_field()
        if kind == _NAME:
            stamp = what == "builtin_interfaces/msg/Time"
            if stamp and keep:
                self.left_out[path] = STAMP
            self._plan(what, path, steps, depth + 1, keep and not stamp)
        elif what[0] == "string":
            steps.append(_Text())
            if keep:
                self.left_out[path] = TEXT
        elif what[0] in _FORMATS:
            if not steps or not isinstance(steps[-1], _Numbers):
                steps.append(_Numbers())
            steps[-1].formats += _FORMATS[what[0]]
            steps[-1].paths.append(path if keep else None)
        else:
            raise UnknownType(f"messages with a field of type {what[0]}, which is not supported")

    def _count_field(self) -> None:
        self._fields += 1
        if self._fields > _MOST_FIELDS:
            raise UnknownType(f"messages of more than {_MOST_FIELDS:,} fields")


def _length(data: bytes, at: int, order: str) -> tuple[int, int]:
    at += -at % 4
    return at + 4, struct.unpack_from(f"{order}I", data, 4 + at)[0]


def _within(data: bytes, at: int) -> int:
    if 4 + at > len(data):
        raise ValueError("cut short")
    return at
