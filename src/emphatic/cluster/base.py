"""What ``ClusterLearner`` and ``ClusterHorde`` share: storage, shards, and the stream of blocks."""

from __future__ import annotations

import json
import logging
import os
import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal, Self

from emphatic.cluster.connection import Connection
from emphatic.cluster.driver import Backend, ClusterStatus, Driver, Parcel
from emphatic.cluster.local_shards import LocalShards
from emphatic.cluster.manifest import Manifest, hold_storage
from emphatic.cluster.ray_shards import RayShards
from emphatic.cluster.shard import ShardPart, Start
from emphatic.errors import CheckpointError
from emphatic.learning.inputs import refusal, whole
from emphatic.questions import durations

__all__ = ["BLOCK", "IN_PROCESS", "Cluster", "Predictions"]

_log = logging.getLogger(__name__)

#: Steps of a block: few enough to be sent soon, and a multiple of the chunked engine's grain.
BLOCK = 1016
#: The address of shards in this process, without Ray.
IN_PROCESS = "in-process"

Predictions = Literal["driver", "shard"] | None
OnCheckpoint = Callable[[int], Mapping[str, Any]]


class Cluster:
    """Shards of one model, what has been saved of them, and the stream that they learn from; see its subclasses."""

    _parts: list[slice]
    _exact: bool
    _driver: Driver | None = None

    def __init__(
        self, setup: Mapping[str, Any], shards: int | None, address: str | None, storage: str | os.PathLike[str] | None,
        engine: str, block: int, ahead: int, checkpoint_every: str | float, threads: int | None, resume: bool | None,
    ) -> None:  # fmt: skip
        self._block, self._ahead = whole("block", block, "a cluster"), whole("ahead", ahead, "a cluster")
        if shards is not None:
            whole("shards", shards, "a cluster")
        if threads is not None:
            whole("threads", threads, "a cluster")
        self._every = durations.seconds(checkpoint_every) if isinstance(checkpoint_every, str) else checkpoint_every
        if not isinstance(self._every, int | float) or not self._every >= 0:
            raise refusal("checkpoint_every", "a cluster", "be seconds or a duration", repr(checkpoint_every))
        if storage is None and address != IN_PROCESS:
            raise refusal("storage", "a cluster", "be a folder that all nodes share", "none")
        self._temporary = TemporaryDirectory(prefix="emphatic-") if storage is None else None
        self.storage = Path(self._temporary.name if self._temporary else os.fspath(storage or "")).absolute()
        self._gpus = int(engine.startswith("cuda"))
        self._session = secrets.token_hex(4)
        self._connection: Connection | None = None
        #: The lock of the storage, until it is closed.
        self._held = ExitStack()
        self._held.enter_context(hold_storage(self.storage))
        try:
            found = Manifest.read(self.storage)
            self._check_resume(found, resume)
            if address == IN_PROCESS:
                self._shards, self._threads = shards or 1, threads or 1
            else:
                if found is not None and shards is None:  # as it was cut before
                    shards = found.setup.get("shards")
                self._connection = Connection(address, shards, threads, self._gpus)
                self._shards, self._threads = self._connection.shards, self._connection.threads
        except BaseException:
            self.close()
            raise
        # (as JSON gives it back)
        self._setup: dict[str, Any] = json.loads(json.dumps({**setup, "shards": self._shards, "block": self._block}))
        self._found = found

    def _check_resume(self, found: Manifest | None, resume: bool | None) -> None:
        if found is None and resume:
            raise ValueError(f"{self.storage}: there is no run to resume: it has no manifest.json.")
        if found is not None and resume is False:
            raise ValueError(
                f"{self.storage}: this folder holds a run of {found.rows} rows: resume it, or choose another folder."
            )

    def _launch(self, parts: Sequence[ShardPart], setup: Mapping[str, Any]) -> None:
        """Start the shards where the manifest says, or anew."""
        self._setup |= json.loads(json.dumps(dict(setup)))
        manifest = self._found
        if manifest is not None and dict(manifest.setup) != self._setup:
            keys = {*manifest.setup, *self._setup}
            other = sorted(key for key in keys if manifest.setup.get(key) != self._setup.get(key))
            self.close()
            raise ValueError(
                f"{self.storage}: the run in this folder has a different {', '.join(other)}. Resume it with the "
                "same settings, or choose another folder."
            )
        try:
            if manifest is None:
                self.storage.mkdir(parents=True, exist_ok=True)
                manifest = Manifest(0, 0, self._session, self._setup)
                manifest.write(self.storage)
            else:
                _log.info("%s: going on from block %d, row %d", self.storage, manifest.block, manifest.rows)
            start = Start(self._session, manifest.block, manifest.session)
            backend: Backend = (
                LocalShards(parts, str(self.storage), start) if self._connection is None
                else RayShards(self._connection, parts, self.storage, start, self._gpus)
            )  # fmt: skip
        except BaseException:
            self.close()
            raise
        self._driver = Driver(
            backend, len(parts), self.storage, manifest, self._session, self._ahead, float(self._every)
        )

    # ------------------------------------------------------------------ what it is

    @property
    def shards(self) -> int:
        """How many shards there are."""
        return self._shards

    @property
    def exact(self) -> bool:
        """Whether one model in one process would learn the same bits; if not, it learns the same to rounding."""
        return self._exact

    @property
    def position(self) -> int:
        """The rows of the stream so far: the next is row number ``position``."""
        return self._running().manifest.rows

    @property
    def status(self) -> ClusterStatus:
        """How the run is going."""
        return self._running().status

    @property
    def more(self) -> Mapping[str, Any]:
        """What ``on_checkpoint`` gave for the point in the stream from which a new driver goes on."""
        return self._running().manifest.more

    # ------------------------------------------------------------------ learning

    def cut(self) -> None:
        """What follows is another sequence: forget the traces. It has a number like a block."""
        for _ in self._stream(iter([None]), None, None):
            pass

    def _stream(
        self, parcels: Iterator[Parcel | None], predictions: Predictions, on_checkpoint: OnCheckpoint | None
    ) -> Iterator[list[Any]]:
        driver = self._running()
        if predictions not in ("driver", "shard", None):
            raise refusal("predictions", "stream", "be 'driver', 'shard' or None", repr(predictions))
        if driver.is_streaming:
            raise RuntimeError("The shards are learning from another stream: end it first, or close() it.")
        try:
            yield from driver.stream(parcels, predictions, on_checkpoint)
        except BaseException as error:
            refused = isinstance(error, GeneratorExit | ValueError | TypeError | ArithmeticError | LookupError)
            if not refused or isinstance(error, CheckpointError):  # else every shard is where it was before that block
                self.close()
            raise

    def _read(self, name: str) -> list[Any]:
        """An attribute of each shard's model."""
        driver = self._running()
        return [driver.backend.revive(shard, "read", name) for shard in range(driver.shards)]

    def _running(self) -> Driver:
        if self._driver is None:
            raise RuntimeError(
                f"{type(self).__name__} has not begun, or is closed. What it saved is in {self.storage}: create it "
                "again to go on."
            )
        return self._driver

    # ------------------------------------------------------------------ the end

    def close(self) -> None:
        """End the shards, and a Ray that was started for them. What was saved stays in the storage, for any driver."""
        driver, self._driver = self._driver, None
        if driver is not None:
            driver.backend.close()
        elif self._connection is not None:
            self._connection.close()
        self._connection = None
        self._held.close()
        if self._temporary is not None:
            self._temporary.cleanup()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def numbered(blocks: Iterable[Any] | Callable[[int], Iterable[Any]], first: int) -> Iterator[Any]:
    """Blocks as an iterator: those that are given, or what a function of the first row gives."""
    return iter(blocks(first) if callable(blocks) else blocks)
