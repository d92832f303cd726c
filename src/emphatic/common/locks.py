"""Locks: on files between processes, and on objects between threads.

The system releases the lock of a file when its holder ends, however it ends.

They use ``flock``: between processes, and between two open handles in one process. Where it is unavailable (Windows,
some network file systems) nothing is ever found to be locked or abandoned.

Between threads there is the ``Guard``: one thread at a time, and a second one gets an error instead of waiting or
corrupting state. Its ``users`` is 0 when nobody uses the object, −1 when one thread uses it alone, n > 0 when
n threads only read, and below −1 when one waits for these to end. There is no lock: the interpreter changes threads
when a function is entered, after a call and on a jump backwards, and none of these comes between the read of ``users``
and its assignment, here and wherever this is inlined for speed.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Any

if sys.platform != "win32":
    import fcntl

__all__ = ["Guard", "InUseError", "RunLock", "count_cores", "hold_folder", "hold_lock"]
__all__ += ["lock", "remove_abandoned"]

#: The folder for unfinished files inside an output folder, and the file in it that is locked.
UNFINISHED, LOCK = ".unfinished", "lock"
#: How often a lock is tried in a folder that others may remove.
_ATTEMPTS = 100


class InUseError(ValueError):
    """Another process is writing to the same place."""


def lock(descriptor: int, *, wait: bool = False) -> bool | None:
    """Lock an open file for this holder alone; False if another has it, None if files cannot be locked here."""
    if sys.platform == "win32":
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except BlockingIOError:
        return False
    except OSError:
        return None
    return True


def remove_abandoned(path: Path) -> None:
    """Remove a file whose writer held a lock on it, if that process has ended."""
    with suppress(OSError):
        descriptor = os.open(path, os.O_RDWR | getattr(os, "O_NOFOLLOW", 0))
        try:
            if lock(descriptor):
                path.unlink()
        finally:
            os.close(descriptor)


class RunLock:
    """A file that is locked while this process writes to a folder or a file; it contains the process id.

    ``of`` is what it is for.
    """

    def __init__(self, path: Path, of: Path) -> None:
        self.path, self._of, self._descriptor = path, of, -1

    def acquire(self) -> None:
        """Take the lock; ``InUseError`` if another process has it, and then nothing has changed."""
        while self._descriptor < 0:
            descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o644)
            try:
                if lock(descriptor) is False:
                    if holder := os.read(descriptor, 32).decode("ascii", "replace").strip():
                        raise InUseError(
                            f"{self._of}: another run, process {holder}, is writing here. Wait until it ends, or "
                            "choose another place."
                        )
                    time.sleep(0.001)  # its holder has not yet written its number
                elif _is_at(descriptor, self.path):  # and its last holder has not just removed it
                    try:
                        os.ftruncate(descriptor, 0)
                        os.write(descriptor, b"%d\n" % os.getpid())
                    except OSError:  # a full disk
                        self.path.unlink()
                        raise
                    self._descriptor = descriptor
            finally:
                if self._descriptor < 0:
                    os.close(descriptor)

    def release(self) -> None:
        """Remove the file; harmless where it is not held."""
        if self._descriptor >= 0:
            with suppress(OSError):
                self.path.unlink()
            os.close(self._descriptor)
            self._descriptor = -1

    def __enter__(self) -> RunLock:
        self.acquire()
        return self

    def __exit__(self, *_: Any) -> None:
        self.release()


@contextmanager
def hold_lock(path: Path, of: Path) -> Iterator[None]:
    """Hold a ``RunLock`` in this file. Folders created for it are removed if they stay empty."""
    new = [folder for folder in path.parents if not folder.exists()]
    held = RunLock(path, of)
    try:
        for attempt in range(_ATTEMPTS):
            path.parent.mkdir(parents=True, exist_ok=True)
            try:
                held.acquire()
                break
            except FileNotFoundError:  # another run has just ended, and has removed the folder
                if attempt == _ATTEMPTS - 1:  # or no file can be created in it, as in /proc
                    raise
        yield
    finally:
        held.release()
        for folder in new:
            with suppress(OSError):  # there is something in it, or it is gone
                folder.rmdir()


@contextmanager
def hold_folder(out: Path) -> Iterator[Path]:
    """The folder for unfinished files in an output folder, held by this run alone."""
    if out.exists() and not out.is_dir():
        raise ValueError(f"{out}: there is a file of this name, where a folder must be created.")
    folder = out / UNFINISHED
    try:
        with hold_lock(folder / LOCK, out):
            yield folder
    finally:
        with suppress(OSError):  # an interrupted run has left something there
            folder.rmdir()


def _is_at(descriptor: int, path: Path) -> bool:
    """Whether this open file is still the one at that path."""
    try:
        return os.path.samestat(os.fstat(descriptor), os.stat(path))
    except OSError:
        return False


# ---------------------------------------------------------------------- one thread at a time


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


# ---------------------------------------------------------------------- cores


def count_cores() -> int:
    """The cores that this process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
