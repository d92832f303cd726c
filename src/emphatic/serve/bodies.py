"""Bodies of requests and payloads of messages: the readings in them."""

from __future__ import annotations

import json
from typing import Any

from emphatic.serve.inbox import Incoming
from emphatic.tables import fields
from emphatic.tables.jsonlines import NOT_AN_OBJECT, read_object
from emphatic.tables.table_errors import Malformed

__all__ = ["LONGEST", "NotJson", "is_deep", "read_json", "read_lines"]

#: The longest body, in bytes.
LONGEST = 1 << 20
#: Levels that a reading may have.
_DEEPEST = 32


class NotJson(ValueError):
    """The text is not JSON."""


def read_json(body: bytes) -> tuple[list[Incoming], bool]:
    """The readings in a JSON text, and whether it is a list; ``NotJson`` if it is neither JSON nor text.

    What is no object of names and readings is ``Malformed``.
    """
    try:
        value = json.loads(body.decode().removeprefix("\ufeff"))
    except (ValueError, RecursionError, MemoryError) as error:
        raise NotJson(f"not JSON: {error}") from None
    if isinstance(value, list):
        return [Incoming(_reading(one)) for one in value], True
    return [Incoming(_reading(value), body.strip())], False


def read_lines(body: bytes) -> list[Incoming]:
    """The readings in lines of JSON; a blank line is none."""
    found = []
    for line in body.split(b"\n"):
        if not line.strip():
            continue
        try:
            found.append(Incoming(read_object(line.decode()), line.strip()))
        except (Malformed, UnicodeDecodeError) as error:
            found.append(Incoming(error if isinstance(error, Malformed) else Malformed("not UTF-8 text")))
    return found


def is_deep(value: Any) -> bool:
    """Whether a value is nested so deeply that it could not be written or read again everywhere."""
    level = [value]
    for _ in range(_DEEPEST):
        level = [
            inner
            for outer in level
            for inner in (outer.values() if isinstance(outer, dict) else outer)
            if inner.__class__ is dict or inner.__class__ is list
        ]
        if not level:
            return False
    return True


def _reading(value: Any) -> dict[str, Any] | Malformed:
    if not isinstance(value, dict):
        return Malformed(NOT_AN_OBJECT)
    return {fields.as_name(name): inner for name, inner in value.items()}
