"""``manifest.json``: the newest block that every shard has saved, and what the run is; and the lock of its folder."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from emphatic.common.files import atomic_file
from emphatic.common.locks import hold_lock
from emphatic.errors import CheckpointError

__all__ = ["Manifest", "hold_storage"]

_FORMAT = 1


def hold_storage(storage: Path) -> AbstractContextManager[None]:
    """Keep other drivers out of a storage: ``InUseError`` if one has it."""
    return hold_lock(storage / "driver.lock", storage)


@dataclass(frozen=True)
class Manifest:
    """A point to go on from.

    - ``block``: the number of the next block: every shard has saved all blocks before it;
    - ``rows``: the rows (of a learner: the steps) in those blocks;
    - ``session``: the driver whose shards saved them, as in the names of their files;
    - ``setup``: what is learned, and how it is cut; another set-up cannot go on from here;
    - ``more``: what the caller keeps with it.
    """

    block: int
    rows: int
    session: str
    setup: Mapping[str, Any]
    more: Mapping[str, Any] = field(default_factory=dict)

    def write(self, storage: Path) -> None:
        """Put it in the place of the last one, by renaming."""
        with atomic_file(storage / "manifest.json") as file:
            text = json.dumps({"format": _FORMAT} | asdict(self), indent=1, ensure_ascii=False, allow_nan=False)
            file.write(text.encode())

    @staticmethod
    def read(storage: Path) -> Manifest | None:
        """The manifest in a folder; None if there is none."""
        path = storage / "manifest.json"
        try:
            text = path.read_text("utf-8")
        except FileNotFoundError:
            return None
        try:
            found = json.loads(text)
            if found.pop("format") != _FORMAT:
                raise ValueError("its format is of another version")
            manifest = Manifest(**found)
            if not (_is_count(manifest.block) and _is_count(manifest.rows) and isinstance(manifest.session, str)):
                raise ValueError("its numbers are not counts")
            if not isinstance(manifest.setup, dict) or not isinstance(manifest.more, dict):
                raise ValueError("it has no set-up")
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise CheckpointError(f"{os.fsdecode(path)!r} is not the manifest of a cluster: {error}") from error
        return manifest


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0
