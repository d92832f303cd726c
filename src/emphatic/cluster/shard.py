"""A shard: a Learner or a Horde of its own that learns numbered blocks, each once and in order, and saves itself.

Its folder holds a file for each block number at which it was saved and which the manifest may still need. A file's name
also has the session, the driver that was in charge: what a driver that is gone left behind the manifest is never read.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from emphatic.cluster.kept_predictions import KeptPredictions

__all__ = ["Reply", "Shard", "ShardPart", "Start"]

_log = logging.getLogger(__name__)

#: Seconds between attempts to save: storage may fail for a moment.
_PAUSES = (0.1, 0.4, 1.0, 2.0)


class ShardPart(Protocol):
    """What a shard has to learn: how its model is made, loaded and fed."""

    def make(self) -> Any:
        """The model before the first block."""

    def load(self, path: Path) -> tuple[Any, dict[str, Any]]:
        """The model of a file, and what more was saved with it."""

    def learn(self, model: Any, shared: Any, own: Any, predict: bool) -> tuple[int, Any]:
        """Learn a block; its rows, and the predictions, (rows, K)."""

    def columns(self, predictions: Any) -> dict[str, Any]:
        """Predictions as columns of a table."""


class Start(NamedTuple):
    """Where a session begins: at a block that another one has saved, or at block 0 with nothing."""

    session: str
    block: int = 0
    saved_by: str = ""


class Reply(NamedTuple):
    """Whether the call's block was learned by it; the next block due, the last one saved, and predictions if asked."""

    learned: bool
    at: int
    saved: int
    predictions: Any = None


class Shard:
    """Shard ``index`` of a run."""

    def __init__(self, index: int, part: ShardPart, storage: str, start: Start) -> None:
        self._part, self._start = part, start
        self._folder = Path(storage) / f"shard-{index:05d}"
        self._kept = KeptPredictions(self._folder, Path(storage) / f"predictions-{index:05d}.parquet", start.session)
        self._model: Any = None  # until the first call: an error here would be the end of an actor
        self._at = self._saved = -1

    def learn(self, number: int, shared: Any, own: Any, predictions: str | None, save: bool, keep: int) -> Reply:
        """Learn block ``number`` if it is due; ``shared`` is None for a gap. Then save, if told to.

        ``predictions`` go to the "driver", stay in the "shard", or are not made. Files older than block ``keep``, the
        manifest's, are removed when a newer one is there.
        """
        self._begin()
        if number != self._at:
            return Reply(False, self._at, self._saved)
        made = None
        if shared is None:
            self._model.cut()
        else:
            rows, made = self._part.learn(self._model, shared, own, predictions is not None)
            if predictions == "shard":
                self._kept.add(self._rows, rows, self._part.columns(made))
            self._rows += rows
        self._at += 1
        if save:
            self._save(keep)
        return Reply(True, self._at, self._saved, made if predictions == "driver" else None)

    def save(self, number: int, keep: int) -> Reply:
        """Save, if block ``number`` is due."""
        self._begin()
        if number != self._at:
            return Reply(False, self._at, self._saved)
        if self._saved < self._at:
            self._save(keep)
        return Reply(True, self._at, self._saved)

    def rewind(self, number: int) -> Reply:
        """Be at block ``number`` or before it: what was learned and saved beyond it is dropped."""
        self._begin()
        if self._at > number:
            _insist(lambda: self._restore(number))
        return Reply(True, self._at, self._saved)

    def finish(self) -> None:
        """All that was learned is in the manifest: put the predictions that were kept here into one file."""
        self._begin()
        _insist(self._kept.merge)

    def read(self, name: str) -> Any:
        """An attribute of the model."""
        self._begin()
        return getattr(self._model, name)

    def process(self) -> int:
        """The id of the process."""
        return os.getpid()

    def sees(self, token: str) -> bool:
        """Whether a file that the driver has written is there."""
        return (self._folder.parent / token).exists()

    # ------------------------------------------------------------------ inside

    def _begin(self) -> None:
        """On the first call of a process: go on from what was saved last."""
        if self._model is None:
            _insist(lambda: self._folder.mkdir(parents=True, exist_ok=True))
            # By a process that was killed while it saved, and by a driver that is gone, past its manifest.
            needed = self._files().values()
            for left in (*self._folder.glob(".*.partial"), *self._folder.glob("*.safetensors")):
                if left not in needed:
                    with suppress(OSError):
                        left.unlink()
            _insist(lambda: self._restore(None))

    def _files(self) -> dict[int, Path]:
        """The saved states of this session, and the one it began with, by block number."""
        found = {}
        for path in self._folder.glob("*.safetensors"):
            number, _, session = path.stem.partition("-")
            first = number.isdigit() and (int(number), session) == (self._start.block, self._start.saved_by)
            if number.isdigit() and (session == self._start.session or first):
                found[int(number)] = path
        return found

    def _restore(self, limit: int | None) -> None:
        files = self._files()
        if limit is not None:
            for number in [number for number in files if number > limit]:
                files.pop(number).unlink(missing_ok=True)
        if files:
            number = max(files)
            self._model, more = self._part.load(files[number])
            self._at, self._rows = more["block"], more["rows"]
            self._kept.restore(more["parts"])
        elif self._start.block == 0:
            self._model, self._at, self._rows = self._part.make(), 0, 0
            self._kept.restore([])
        else:
            raise FileNotFoundError(
                2, f"The state at block {self._start.block}, which the manifest names, is missing", str(self._folder)
            )
        self._saved = self._at

    def _save(self, keep: int) -> None:
        path = self._folder / f"{self._at:012d}-{self._start.session}.safetensors"

        def save() -> None:
            self._kept.write()
            self._model.save(path, block=self._at, rows=self._rows, parts=self._kept.parts)

        _insist(save)
        self._saved = self._at
        for number, old in self._files().items():
            if number < min(keep, self._at):
                old.unlink(missing_ok=True)


def _insist(act: Callable[[], None]) -> None:
    """Do something with the storage, which may fail for a moment."""
    for pause in _PAUSES:
        try:
            return act()
        except OSError as error:
            _log.warning("the storage fails, trying again: %s", error)
            time.sleep(pause)
    return act()
