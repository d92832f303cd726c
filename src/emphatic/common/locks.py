"""Locks on files, which the system releases when their holder ends, however it ends.

They use ``flock``: between processes, and between two open handles in one process. Where it is unavailable (Windows,
some network file systems) nothing is ever found to be locked or abandoned.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

if sys.platform != "win32":
    import fcntl

__all__ = ["InUseError", "RunLock", "hold_folder", "hold_lock", "lock", "remove_abandoned"]


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
