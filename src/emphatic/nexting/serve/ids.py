"""Ids of readings: a reading whose id is known is not learned from again.

A reading may have an id of its publisher: an HTTP header, an MQTT user property, or a field. An id belongs to its
scope, which is HTTP, an MQTT topic or a stream, so that two devices may both count from 1. Ids are part of the
``origin`` of a reading, which the journal keeps, and the last of them are saved with the model.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence

from emphatic.nexting.tables.table import Malformed

__all__ = ["DEFAULT_FIELD", "DEFAULT_WINDOW", "KnownIds", "check_id", "scoped_id"]

#: Ids that are remembered, and the field of a reading that has its id, unless an option says otherwise.
DEFAULT_WINDOW, DEFAULT_FIELD = 100_000, "reading_id"
#: The longest id, and the bytes of answers that are kept for readings that come again.
_LONGEST, _ANSWERS = 255, 1 << 24


def check_id(value: object) -> str:
    """The text of an id; ``Malformed`` if a value cannot be one.

    >>> check_id(17), check_id(" order-7 ")
    ('17', 'order-7')
    >>> check_id(None)
    Traceback (most recent call last):
    ...
    emphatic.nexting.tables.table.Malformed: an id must be text or a whole number
    """
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise Malformed("an id must be text or a whole number")
    text = value.strip() if isinstance(value, str) else str(value)
    if not text or len(text) > _LONGEST or not text.isprintable():
        raise Malformed(f"an id must have 1 to {_LONGEST} characters, all of them printable")
    return text


def scoped_id(scope: str, id: str, index: int = 0, count: int = 1) -> str:
    """An id among those of its scope; of several readings that came with one id, that of one of them.

    The count is part of it: the remainder of a list that was taken in part is not taken for the list's beginning.

    >>> scoped_id("plant/a", "7"), scoped_id("", "order-7", index=1, count=3)
    ('plant/a#7', '#order-7/1/3')
    """
    place = f"/{index}/{count}" if count > 1 else ""
    return f"{scope}#{id}{place}".replace("\n", " ")


class KnownIds:
    """The last ids that were learned from, with the answers to the readings that they came with.

    Args:
        capacity: The ids that are remembered.
        answers: The bytes of answers that are kept; the oldest are forgotten first.

    >>> ids = KnownIds(2)
    >>> for id in ("a", "b", "c"):
    ...     ids.add(id, b"answer to " + id.encode())
    >>> "a" in ids, ids.answer("c")
    (False, b'answer to c')
    """

    def __init__(self, capacity: int = DEFAULT_WINDOW, answers: int = _ANSWERS) -> None:
        self.capacity, self._most = capacity, answers
        self._answers: dict[str, bytes] = {}  # in the order in which they came
        self._answered: deque[str] = deque()
        self._bytes = 0

    def __contains__(self, id: str) -> bool:
        return id in self._answers

    def __len__(self) -> int:
        return len(self._answers)

    def find(self, ids: Iterable[str]) -> str | None:
        """The first of these ids that is known."""
        return next((id for id in ids if id in self._answers), None)

    def answer(self, id: str) -> bytes | None:
        """The line that first answered a known id; None if there was none, or if it is no longer kept."""
        return self._answers[id] or None

    def add(self, id: str, answer: bytes = b"") -> None:
        """Remember an id, and the line that answered it."""
        if self.capacity < 1:
            return
        self._answers[id] = answer
        if answer:
            self._answered.append(id)
            self._bytes += len(answer)
        while len(self._answers) > self.capacity:
            self._bytes -= len(self._answers.pop(next(iter(self._answers))))
        while self._bytes > self._most or len(self._answered) > 2 * self.capacity:
            oldest = self._answered.popleft()
            self._bytes -= len(self._answers.get(oldest, b""))
            if oldest in self._answers:
                self._answers[oldest] = b""

    def dump(self) -> bytes:
        """All of it, as text: a line for each id, and one for each answer behind its id."""
        lines = []
        for id, answer in self._answers.items():
            lines.append(b"%s%s\n" % (b"+" if answer else b"-", id.encode("utf-8", "surrogatepass")))
            if answer:
                lines.append(answer.rstrip(b"\n") + b"\n")
        return b"".join(lines)

    def load(self, text: bytes) -> None:
        """What ``dump`` wrote."""
        lines: Sequence[bytes] = text.split(b"\n")
        at = 0
        while at < len(lines) - 1:
            id = lines[at][1:].decode("utf-8", "surrogatepass")
            is_answered = lines[at].startswith(b"+")
            self.add(id, lines[at + 1] + b"\n" if is_answered else b"")
            at += 2 if is_answered else 1
