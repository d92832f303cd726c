"""One thread at a time: a second thread gets an error instead of waiting or corrupting state.

An object has a ``Guard``. Its ``users`` is 0 when nobody uses the object, −1 when one thread uses it alone, n > 0 when
n threads only read, and below −1 when one waits for these to end. There is no lock: the interpreter changes threads
when a function is entered, after a call and on a jump backwards, and none of these comes between the read of ``users``
and its assignment, here and wherever this is inlined for speed.
"""

from __future__ import annotations

import time
from types import TracebackType

__all__ = ["Guard"]

#: Seconds for which a thread that learns waits for those that read. They are quick, and no more are admitted.
_PATIENCE = 1.0
#: More than will ever read.
_MANY = 1 << 40


class Guard:
    """``with guard:`` for exclusive use, ``with guard.shared:`` to read while others read."""

    __slots__ = ("users", "what")

    def __init__(self, what: str) -> None:
        self.what, self.users = what, 0

    @property
    def shared(self) -> _Shared:
        """For those that only read."""
        return _Shared(self)

    def wait(self) -> None:
        """Wait for exclusive use until all readers have ended; RuntimeError if that is impossible or takes too long.

        ``users`` is then below 0, and must be set to −1.
        """
        if self.users < 0:
            raise self.refusal()
        self.users -= _MANY  # from here on no other thread is admitted
        try:
            end = time.monotonic() + _PATIENCE
            while self.users != -_MANY:
                if time.monotonic() > end:
                    raise self.refusal()
                time.sleep(1e-5)
        except BaseException:
            self.users += _MANY
            raise

    def refusal(self) -> RuntimeError:
        """The error for a second thread."""
        return RuntimeError(
            f"This {self.what} is in use by another thread. It belongs to one thread at a time: lock it, or give each "
            "thread a copy()."
        )

    def __enter__(self) -> None:
        if self.users:
            self.wait()
        self.users = -1

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.users = 0


class _Shared:
    __slots__ = ("_guard",)

    def __init__(self, guard: Guard) -> None:
        self._guard = guard

    def __enter__(self) -> None:
        guard = self._guard
        if guard.users < 0:
            raise guard.refusal()
        guard.users += 1

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._guard.users -= 1
