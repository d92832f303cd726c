"""The inbox: a bounded queue of readings between their sources and the one thread that learns."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from emphatic.nexting.predictor import Prediction
from emphatic.tables.pipe import Malformed, Reading

__all__ = ["Inbox", "Incoming", "Receipt"]


class Receipt(NamedTuple):
    """What became of a reading, once it is safe: why it was not used, or its prediction if it has one.

    ``taken`` is False if the service stopped before the reading was written down.
    """

    outcome: Prediction | Malformed | None
    taken: bool = True


class Incoming(NamedTuple):
    """A reading on its way in.

    ``text`` is its JSON if that is at hand, ``origin`` what its source needs to go on after it, and ``acknowledge`` is
    called once the reading is safe.
    """

    reading: Reading | Malformed
    text: bytes | None = None
    origin: dict[str, Any] | None = None
    acknowledge: Callable[[Receipt], None] | None = None
    arrived: float = 0.0


class Inbox:
    """At most ``capacity`` readings that wait. ``offer`` takes what fits, ``put`` waits until there is room."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self._waiting: deque[Incoming] = deque()
        self._lock = threading.Lock()
        self._filled, self._emptied = threading.Condition(self._lock), threading.Condition(self._lock)
        #: Whether nothing more is taken in.
        self.closed = False

    def __len__(self) -> int:
        return len(self._waiting)

    def offer(self, readings: Sequence[Incoming]) -> int:
        """Take the first of these readings, as many as there is room for; how many."""
        now = time.monotonic()
        with self._lock:
            room = 0 if self.closed else self.capacity - len(self._waiting)
            taken = readings[:room]
            self._waiting.extend(reading._replace(arrived=now) for reading in taken)
            if taken:
                self._filled.notify()
            return len(taken)

    def put(self, reading: Incoming) -> bool:
        """Wait for room, and take the reading; False if the inbox was closed first."""
        with self._lock:
            while len(self._waiting) >= self.capacity and not self.closed:
                self._emptied.wait()
            if self.closed:
                return False
            self._waiting.append(reading._replace(arrived=time.monotonic()))
            self._filled.notify()
            return True

    def take(self, most: int, timeout: float) -> list[Incoming]:
        """The readings that wait, at most so many; after ``timeout`` seconds perhaps none."""
        with self._lock:
            if not self._waiting and not self.closed:
                self._filled.wait(timeout)
            taken = [self._waiting.popleft() for _ in range(min(most, len(self._waiting)))]
            if taken:
                self._emptied.notify_all()
            return taken

    def close(self) -> None:
        """Take nothing more in."""
        with self._lock:
            self.closed = True
            self._filled.notify_all()
            self._emptied.notify_all()
