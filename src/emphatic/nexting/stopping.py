"""Ctrl-C and SIGTERM while a run learns: it stops after the block that it is at, when everything can be saved."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

__all__ = ["StopRequest", "catch_stop"]


class StopRequest:
    """The signal that came, or None."""

    signal: int | None = None

    def handle(self, number: int, frame: Any) -> None:
        """Note the first signal; a second one does not wait."""
        if self.signal is not None:
            raise KeyboardInterrupt(number)
        self.signal = number

    def stop(self) -> None:
        """Raise KeyboardInterrupt if a signal came."""
        if self.signal is not None:
            raise KeyboardInterrupt(self.signal)


@contextmanager
def catch_stop() -> Iterator[StopRequest]:
    """Within it SIGINT and SIGTERM are noted; what ends the program on its own terms (an ignored signal) stays so."""
    request = StopRequest()
    if threading.current_thread() is not threading.main_thread():  # signals can be handled only there
        yield request
        return
    before = {}
    for number in (signal.SIGINT, signal.SIGTERM):
        own = signal.getsignal(number)
        if callable(own):  # someone would stop for it
            before[number] = signal.signal(number, request.handle)
    try:
        yield request
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
