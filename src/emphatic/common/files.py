"""Atomic files: written completely or not at all."""

from __future__ import annotations

import errno
import hashlib
import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from emphatic.common.locks import lock, remove_abandoned

__all__ = ["atomic_file"]


@contextmanager
def atomic_file(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """A file to write to, which takes the place of ``path`` when the block ends without an error.

    It is written under another name in the same folder, synced to the disk and renamed, so that at any moment the
    path holds a complete file: the old one or the new one. The new file has the old one's permissions, and its owner
    where this process may set that. Partial files that a killed writer of the same path left are removed.
    """
    target = Path(path)
    if not target.parent.is_dir():
        raise FileNotFoundError(errno.ENOENT, "There is no such folder to write to", str(target.parent))
    _remove_partial_files(target)
    file, partial = _open_partial(target)
    try:
        with file:
            yield file
            file.flush()
            os.fsync(file.fileno())
            if os.name == "nt":  # an open file cannot be renamed there
                file.close()
            os.replace(partial, target)  # while it is still locked: an unlocked one counts as abandoned
    except BaseException:
        with suppress(OSError):
            partial.unlink()
        raise
    with suppress(OSError):  # a folder cannot be opened everywhere; the rename itself is done
        folder = os.open(target.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def _partial_prefix(target: Path) -> str:
    """The prefix of unfinished files for this target; short, as the target's own name may be long."""
    return f".{hashlib.sha256(os.fsencode(target.name)).hexdigest()[:16]}-"


def _open_partial(target: Path) -> tuple[BinaryIO, Path]:
    """A new file beside the target, locked, with the target's permissions and owner."""
    try:
        old = os.stat(target)
    except FileNotFoundError:
        old = None
    while True:
        partial = target.with_name(f"{_partial_prefix(target)}{secrets.token_hex(8)}.partial")
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
        descriptor = os.open(partial, flags, 0o666 if old is None else stat.S_IMODE(old.st_mode) & 0o600)
        try:
            lock(descriptor, wait=True)
            if os.name != "nt" and not os.fstat(descriptor).st_nlink:  # another removed it as abandoned in between
                os.close(descriptor)
                continue
            if old is not None and os.name != "nt":
                with suppress(OSError):  # only root may give files away
                    os.fchown(descriptor, old.st_uid, old.st_gid)
                os.fchmod(descriptor, stat.S_IMODE(old.st_mode))
            return os.fdopen(descriptor, "w+b"), partial
        except BaseException:
            with suppress(OSError):
                os.close(descriptor)
                partial.unlink()
            raise


def _remove_partial_files(target: Path) -> None:
    """Remove what killed writers of this target have left."""
    prefix = _partial_prefix(target)
    with suppress(OSError), os.scandir(target.parent) as entries:
        left = [entry.name for entry in entries if entry.name.startswith(prefix) and entry.name.endswith(".partial")]
        for name in left:
            remove_abandoned(target.with_name(name))
