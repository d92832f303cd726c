"""What a source or a publisher tells of itself: its state, lag, last message, and what was lost."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from typing import Any

__all__ = ["ConnectionStatus"]

logger = logging.getLogger("emphatic.serve")

#: Losses that are remembered one by one; all are counted.
_LOSSES = 20


class ConnectionStatus:
    """The state of a connection to a broker. The thread that works with the broker writes it, any thread reads it.

    Args:
        name: The address, without a password.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        #: "connecting", "connected", "disconnected", or "ended" for a pipe that has ended.
        self.state = "connecting"
        #: Since when, in seconds since 1970, and why a connection is not there.
        self.since, self.error = time.time(), ""
        #: Messages that came or went, and when the last one did, in seconds since 1970.
        self.messages = 0
        self.last_message: float | None = None
        #: Messages that the broker has and the service has not; None if nobody knows.
        self.lag: int | None = None
        #: Messages lost that could be counted, and losses.
        self.lost = self.losses = 0
        #: Messages that an instance of this service published, and that were skipped.
        self.skipped = 0
        self._recent: deque[dict[str, Any]] = deque(maxlen=_LOSSES)
        self._changed = time.monotonic()
        self._lock = threading.Lock()

    def connect(self) -> None:
        """The connection is there."""
        self._change("connected", "")

    def disconnect(self, error: str) -> None:
        """The connection is not there, or cannot be used."""
        self._change("disconnected", error)

    def end(self) -> None:
        """Nothing more will come, as it should be."""
        self._change("ended", "")

    def count_message(self) -> None:
        """A message has come."""
        self.messages += 1
        self.last_message = time.time()

    def lose(self, start: str, end: str, count: int | None, reason: str) -> None:
        """Remember and log messages that will never come.

        Args:
            start: Where they began: an id, a number, or a time.
            end: Where they ended.
            count: How many there were; None if nobody knows.
            reason: What happened.
        """
        noticed = round(time.time(), 3)
        loss = {"from": start, "to": end, "count": count, "reason": reason, "noticed": noticed}
        with self._lock:
            self._recent.append(loss)
            self.losses += 1
            self.lost += count or 0
        amount = "an unknown number of messages" if count is None else f"{count} message{'' if count == 1 else 's'}"
        logger.error("%s: %s: %s lost, from %s to %s.", self.name, reason, amount, start, end)

    @property
    def is_well(self) -> bool:
        """Whether it is connected, or has ended as it should."""
        return self.state in ("connected", "ended")

    def seconds_without(self) -> float:
        """For how long there has been no connection; 0 while there is one, or if none is needed any more."""
        return time.monotonic() - self._changed if self.state in ("connecting", "disconnected") else 0.0

    def describe(self) -> dict[str, Any]:
        """As JSON can hold it."""
        with self._lock:
            losses = list(self._recent)
        return {
            "name": self.name,
            "state": self.state,
            "since": round(self.since, 3),
            "error": self.error,
            "lag": self.lag,
            "messages": self.messages,
            "last_message": None if self.last_message is None else round(self.last_message, 3),
            "lost": self.lost,
            "losses": losses,
            "skipped": self.skipped,
        }

    def _change(self, state: str, error: str) -> None:
        self.error = error
        if state == self.state:
            return
        was_away = self.state in ("connecting", "disconnected")
        self.state, self.since = state, time.time()
        if not (was_away and state == "disconnected"):  # the time without a connection began before
            self._changed = time.monotonic()
