"""Messages of JSON: which numbers they hold, and reading them."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

from emphatic.tables.message_types import STAMP, TEXT, usual_length

__all__ = ["MessageObjects"]

#: Objects that are a time.
_TIMES = ({"sec", "nsec"}, {"sec", "nanosec"}, {"secs", "nsecs"})
_DEEPEST = 50
_NUMBER, _ARRAY = "number", "array"

Path = tuple[str | int, ...]


class MessageObjects:
    """The numbers in a topic's messages, JSON objects: ``columns`` are their names, ``left_out`` other fields and why.

    The fields are those of the ``first`` messages, each of the kind that it most often is there. An array counts if it
    has numbers, and one length more often than not.
    """

    def __init__(self, first: Iterable[bytes]) -> None:
        found: dict[Path, Counter[str]] = {}
        lengths: dict[Path, Counter[int]] = {}
        for data in first:
            for path, value in _walk(_object(data)):
                if kind := _kind(value):
                    found.setdefault(path, Counter())[kind] += 1
                if isinstance(value, list):
                    lengths.setdefault(path, Counter())[len(value)] += 1
        self.left_out: dict[str, str] = {}
        self._paths: list[Path] = []
        self._lengths: dict[Path, int] = {}
        for path, kinds in found.items():
            kind = kinds.most_common(1)[0][0]
            if kind == _NUMBER:
                self._paths.append(path)
            elif kind == _ARRAY:
                length, why = usual_length(lengths[path])
                self._lengths[path] = length
                self._paths += [(*path, i) for i in range(length)]
                self.left_out |= {_name(path): why} if why else {}
            else:
                self.left_out[_name(path)] = kind
        self.columns = [_name(path) for path in self._paths]

    def read(self, data: bytes) -> list[float | None]:
        """The numbers of a message, NaN where it has none; None for what cannot be read as one."""
        message = _object(data)
        return [None if message is None else self._number(message, path) for path in self._paths]

    def _number(self, message: Any, path: Path) -> float | None:
        value = message
        for i, key in enumerate(path):
            if isinstance(key, int):
                if not isinstance(value, list) or len(value) != self._lengths[path[:i]]:
                    return float("nan") if value is None else None
                value = value[key]
            elif isinstance(value, dict):
                value = value.get(key)
            else:
                return float("nan") if value is None else None
        if value is None:
            return float("nan")
        try:
            return float(value) if isinstance(value, int | float) else None
        except OverflowError:
            return None


def _object(data: bytes) -> Any:
    """The object that a message is, or None."""
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _walk(value: Any, path: Path = ()) -> Iterator[tuple[Path, Any]]:
    """The fields of an object, and those of objects in it."""
    for key, inner in (value or {}).items():
        if isinstance(inner, dict) and inner and set(inner) not in _TIMES and len(path) < _DEEPEST:
            yield from _walk(inner, (*path, key))
        else:
            yield (*path, key), inner


def _kind(value: Any) -> str:
    if isinstance(value, list):
        numbers = all(isinstance(one, int | float | None) for one in value)
        return _ARRAY if numbers else "a list of other than numbers"
    if isinstance(value, dict):
        return STAMP if value else "an object without fields"
    return "" if value is None else TEXT if isinstance(value, str) else _NUMBER


def _name(path: Path) -> str:
    name = ""
    for key in path:
        name += f"[{key}]" if isinstance(key, int) else f".{key}" if name else key
    return name
