"""Numbered blocks, learned by shards: the driver, a shard, and ``manifest.json``, which says how far all of them are.

A shard is a Learner or a Horde of its own that learns numbered blocks, each once and in order, and saves itself. Its
folder holds a file for each block number at which it was saved and which the manifest may still need. A file's name
also has the session, the driver that was in charge: what a driver that is gone left behind the manifest is never read.

The driver sends numbered blocks to all shards, brings back those that died, and moves the manifest on.

- A block is kept until every shard has saved past it, so that it can be sent again.
- A shard that died comes back where it was last saved; it is sent again what it has not learned, and what it has
  learned without the driver's hearing of it.
- The manifest moves to a block number when all shards have saved it and the predictions before it have been handed
  over. A stream ends when the manifest is at its end.
- A block that a shard refuses, and a caller who stops early, end the stream before that block: shards that are further
  go back to a saved state and learn again up to there.
"""

from __future__ import annotations

import json
import logging
import os
import time
import warnings
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import AbstractContextManager, suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from emphatic.common.files import atomic_file
from emphatic.common.locks import hold_lock
from emphatic.common.parts import PartStore
from emphatic.errors import CheckpointError
from emphatic.learning.returns import UndiscountedWarning

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = [
    "Backend",
    "ClusterStatus",
    "Driver",
    "LocalShards",
    "Lost",
    "Manifest",
    "Parcel",
    "Reply",
    "Shard",
    "ShardPart",
    "Start",
    "hold_storage",
]

_log = logging.getLogger(__name__)

_FORMAT = 1
#: What the metadata of a file of predictions calls the number of its rows.
_ROWS = b"emphatic.rows"
#: Seconds between attempts to save: storage may fail for a moment.
_PAUSES = (0.1, 0.4, 1.0, 2.0)
#: Bytes of blocks that are kept before shards are saved ahead of time, and blocks that are kept in any case.
_KEPT_BYTES, _KEPT_BLOCKS = 1 << 28, 8


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
            fields = json.loads(text)
            if fields.pop("format") != _FORMAT:
                raise ValueError("its format has another version")
            manifest = Manifest(**fields)
            if not (_is_count(manifest.block) and _is_count(manifest.rows) and isinstance(manifest.session, str)):
                raise ValueError("its numbers are not counts")
            if not isinstance(manifest.setup, dict) or not isinstance(manifest.more, dict):
                raise ValueError("it has no set-up")
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise CheckpointError(f"{os.fsdecode(path)!r} is not the manifest of a cluster: {error}") from error
        return manifest


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


# ------------------------------------------------------------------------------------------------ shards


class ShardPart(Protocol):
    """What a shard has to learn: how its model is made, loaded and fed."""

    def make(self, warm_up: Any) -> Any:
        """The model before the first block, from what all shards begin with."""

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
    predictions: object = None


class Shard:
    """Shard ``index`` of a run."""

    def __init__(self, index: int, part: ShardPart, warm_up: object, storage: str, start: Start) -> None:
        self._part, self._warm_up, self._start = part, warm_up, start
        self._folder = Path(storage) / f"shard-{index:05d}"
        target = Path(storage) / f"predictions-{index:05d}.parquet"
        self._predictions = ShardPredictions(self._folder, target, start.session)
        self._model: Any = None  # until the first call: an error here would be the end of an actor
        self._at = self._saved = -1

    def learn(self, number: int, shared: object, own: object, predictions: str | None, save: bool, keep: int) -> Reply:
        """Learn block ``number`` if it is due; ``shared`` is None for a gap. Then save, if told to.

        ``predictions`` go to the "driver", stay in the "shard", or are not made. Files older than block ``keep``, the
        manifest's, are removed when a newer one is there.
        """
        self._begin()
        if number != self._at:
            return Reply(False, self._at, self._saved)
        answers = None
        if shared is None:
            self._model.cut()
        else:
            rows, answers = self._part.learn(self._model, shared, own, predictions is not None)
            if predictions == "shard":
                self._predictions.add(self._rows, rows, self._part.columns(answers))
            self._rows += rows
        self._at += 1
        if save:
            self._save(keep)
        return Reply(True, self._at, self._saved, answers if predictions == "driver" else None)

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
        _insist(self._predictions.merge)

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
        files = {}
        for path in self._folder.glob("*.safetensors"):
            number, _, session = path.stem.partition("-")
            is_start = number.isdigit() and (int(number), session) == (self._start.block, self._start.saved_by)
            if number.isdigit() and (session == self._start.session or is_start):
                files[int(number)] = path
        return files

    def _restore(self, limit: int | None) -> None:
        files = self._files()
        if limit is not None:
            for number in [number for number in files if number > limit]:
                files.pop(number).unlink(missing_ok=True)
        if files:
            number = max(files)
            self._model, saved = self._part.load(files[number])
            self._at, self._rows = saved["block"], saved["rows"]
            self._predictions.restore(self._rows)
        elif self._start.block == 0:
            self._model, self._at, self._rows = self._part.make(self._warm_up), 0, 0
            self._predictions.restore(0)
        else:
            raise FileNotFoundError(
                2, f"The state at block {self._start.block}, which the manifest names, is missing", str(self._folder)
            )
        self._saved = self._at

    def _save(self, keep: int) -> None:
        path = self._folder / f"{self._at:012d}-{self._start.session}.safetensors"

        def save() -> None:
            self._predictions.write()
            self._model.save(path, block=self._at, rows=self._rows)

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
            _log.warning("the storage cannot be written, trying again: %s", error)
            time.sleep(pause)
    return act()


class ShardPredictions:
    """The predictions that stay with a shard: a part for each time it is saved, and one Parquet file of them all.

    A saved state of the shard is a resume point: the parts of the rows before it count. Those of this session have a
    kind of their own, so that a process of an earlier session that still writes does no harm.

    Args:
        folder: The shard's folder.
        target: The file of all predictions.
        session: The driver that is in charge.
    """

    def __init__(self, folder: Path, target: Path, session: str) -> None:
        self._store, self._target, self._kind = PartStore(folder), target, f"predictions-{session}"
        self._waiting: list[pa.Table] = []

    def _kinds(self) -> set[str]:
        """The kinds of this session and of earlier ones."""
        return {path.stem.rpartition("-")[0] for path in self._store.folder.glob("predictions-*.parquet")}

    def restore(self, rows: int) -> None:
        """Go on after so many rows: what was written after them does not count."""
        self._store.drop(rows, *self._kinds())
        self._waiting = []

    def add(self, begin: int, rows: int, columns: dict[str, Any]) -> None:
        """The predictions at the rows from ``begin`` on."""
        import numpy as np
        import pyarrow as pa

        if rows:
            self._waiting.append(pa.table({"row": np.arange(begin, begin + rows)} | columns))

    def write(self) -> None:
        """Write all that waits, as a part."""
        import pyarrow as pa

        if not self._waiting:
            return
        table = pa.concat_tables(self._waiting)
        columns = {name: table.column(name) for name in table.column_names}
        self._store.write(self._kind, table.column("row")[0].as_py(), columns)
        self._waiting = []

    def merge(self) -> None:
        """Put all parts at the end of the file of all, and remove them."""
        import pyarrow.parquet as pq

        new_parts: list[tuple[str, int]] = []
        end = int(pq.read_schema(self._target).metadata[_ROWS]) if self._target.exists() else 0
        starts = [(number, kind != self._kind, kind) for kind in self._kinds() for number in self._store.starts(kind)]
        for number, _, kind in sorted(starts):  # of two parts of the same rows that of this session comes first
            if number >= end:
                new_parts.append((kind, number))
                end = number + self._store.count_rows(kind, number)
        if new_parts:
            self._append(new_parts, end)
        for kind in self._kinds():
            self._store.drop(0, kind)

    def _append(self, parts: Sequence[tuple[str, int]], end: int) -> None:
        """Write the file of all anew, with these parts after what it has; one part at a time is in memory."""
        import pyarrow.parquet as pq

        metadata, schema = {_ROWS: str(end)}, self._store.read(*parts[0]).schema
        with (
            atomic_file(self._target) as file,
            pq.ParquetWriter(file, schema.with_metadata(metadata), compression="zstd") as writer,
        ):
            if self._target.exists():
                with pq.ParquetFile(self._target) as merged:
                    for group in range(merged.num_row_groups):
                        table = merged.read_row_group(group, use_threads=False)
                        writer.write_table(table.replace_schema_metadata(metadata))
            for kind, number in parts:
                writer.write_table(self._store.read(kind, number).replace_schema_metadata(metadata))


class _Call:
    """A call of a shard: when it has been made, its answer, or what it raised."""

    def __init__(self, shard: Shard, method: str, arguments: tuple[Any, ...]) -> None:
        self._call = (shard, method, arguments)
        self.is_made = False
        self.answer: object = None
        self.error: Exception | None = None

    def make(self) -> None:
        shard, method, arguments = self._call
        try:
            self.answer = getattr(shard, method)(*arguments)
        except Exception as error:
            self.error = error
        self.is_made = True


class LocalShards:
    """A ``Backend`` without Ray: shards learn side by side, in as many threads as there are cores.

    They do so only while the driver waits for them, so that a caller never meets a thread of theirs.
    """

    def __init__(self, begin: Sequence[tuple[int, ShardPart, Any, str, Start]]) -> None:
        self._shards = [Shard(*arguments) for arguments in begin]
        self._waiting: list[list[_Call]] = [[] for _ in begin]
        threads = min(len(begin), os.cpu_count() or 1)
        self._pool = ThreadPoolExecutor(threads, "emphatic-shard") if threads > 1 else None
        self._is_compiled = False

    @property
    def is_in_one_place(self) -> bool:
        return True

    def put(self, value: object) -> Any:
        return value

    def call(self, shard: int, method: str, *arguments: object) -> _Call:
        call = _Call(self._shards[shard], method, arguments)
        self._waiting[shard].append(call)
        return call

    def wait(self, calls: list[Any]) -> list[Any]:
        self._work()
        return calls

    def get(self, call: _Call) -> Any:
        if not call.is_made:
            self._work()
        if call.error is not None:
            raise call.error
        return call.answer

    def revive(self, shard: int, method: str, *arguments: object) -> Any:
        return self.get(self.call(shard, method, *arguments))

    def close(self) -> None:
        if self._pool is not None:
            self._pool.shutdown()

    def _work(self) -> None:
        """Make all calls that wait, those of a shard in order."""
        queues = [calls for calls in self._waiting if calls]
        self._waiting = [[] for _ in self._shards]
        if self._pool is None or len(queues) < 2 or not self._is_compiled:
            self._is_compiled = self._is_compiled or len(queues) > 1  # (at first one after another: kernels compile)
            for calls in queues:
                _make_all(calls)
            return
        from emphatic.engines.compiled import blas_threads

        # Threads that each set the threads of BLAS, and filters of warnings, set back those of each other: the last
        # one to end would leave what it met. So all of them meet the same, and it is set back here.
        with blas_threads(1), warnings.catch_warnings():
            warnings.simplefilter("ignore", UndiscountedWarning)
            working = [self._pool.submit(_make_all, calls) for calls in queues]
            try:
                wait(working)
            finally:
                wait(working)  # after Ctrl-C too
        for done in working:
            done.result()


def _make_all(calls: Sequence[_Call]) -> None:
    for call in calls:
        call.make()


# ------------------------------------------------------------------------------------------------ the driver


class Lost(Exception):
    """A shard died, or its answer was lost."""


class Backend(Protocol):
    """Where the shards are: in this process, or in Ray's actors."""

    @property
    def is_in_one_place(self) -> bool:
        """Whether all shards share this machine's memory, so that what is put there is not sent anywhere."""

    def put(self, value: object) -> Any:
        """Something that can be sent to several shards, or several times."""

    def call(self, shard: int, method: str, *arguments: object) -> Any:
        """Call a shard; its answer is there when ``wait`` says so."""

    def wait(self, calls: list[Any]) -> list[Any]:
        """Those whose answers are there; at least one, unless nothing happens for a while."""

    def get(self, call: Any) -> Any:
        """The answer. ``Lost`` if there will be none; what the shard raised, if it did."""

    def revive(self, shard: int, method: str, *arguments: object) -> Any:
        """The answer of a shard that may have died, as soon as it is back."""

    def close(self) -> None:
        """Leave nothing behind."""


class Parcel(NamedTuple):
    """A block: its rows, what all shards are sent, what each alone is, and the bytes of all that."""

    rows: int
    shared: Any
    of_shard: list[Any]
    nbytes: int


@dataclass(frozen=True)
class ClusterStatus:
    """How a run is going.

    Args:
        shards: The number of shards.
        block: The number of the next block.
        rows: The rows so far.
        steps_per_second: The rows per second since the stream began.
        lag: The blocks between the first and the last shard.
        restarts: The number of shards that were restarted.
        manifest: The block from which another driver would resume.
    """

    shards: int
    block: int
    rows: int
    steps_per_second: float
    lag: int
    restarts: int
    manifest: int


class _Kept(NamedTuple):
    shared: object
    of_shard: list[Any]
    rows: int  # before it
    save: bool
    nbytes: int


class Driver:
    """Shards of one run, behind a ``Backend``, from where the manifest says."""

    def __init__(
        self, backend: Backend, shards: int, storage: Path, manifest: Manifest, session: str, ahead: int, every: float
    ) -> None:
        self.backend, self.shards, self.manifest, self._session = backend, shards, manifest, session
        self._storage, self._ahead, self._every = storage, ahead, every
        self.restarts = 0
        self._lag, self._out, self.is_streaming = 0, manifest.block, False
        self._began, self._first_rows, self._rows = time.monotonic(), manifest.rows, manifest.rows

    @property
    def status(self) -> ClusterStatus:
        seconds = max(time.monotonic() - self._began, 1e-9)
        speed = (self._rows - self._first_rows) / seconds
        block = self.manifest.block
        return ClusterStatus(self.shards, self._out, self._rows, speed, self._lag, self.restarts, block)

    def stream(
        self,
        parcels: Iterator[Parcel | None],
        predictions: str | None,
        on_checkpoint: Callable[[int], Mapping[str, Any]] | None = None,
    ) -> Iterator[list[Any]]:
        """Learn from parcels, None being a gap; each one's predictions, a shard's after another's, in order.

        ``on_checkpoint(rows)`` is called before the manifest moves on to that many rows; what it returns is kept there.
        """
        self.is_streaming = True
        self._begin(predictions, on_checkpoint)
        try:
            while not self._is_finished():
                self._read(parcels)
                self._send()
                self._receive()
                while self._out < self._known and min(self._done) > self._out:
                    answers = self._answers[self._out]
                    if answers is None:
                        self._hand_over()
                        continue
                    try:
                        yield answers
                    finally:  # the caller has it, and may not want another
                        self._hand_over()
                self._move_manifest()
        except (KeyboardInterrupt, GeneratorExit):
            self._stop_at(self._out if predictions == "driver" else self._known)
            self._complete()
            raise
        finally:
            self.is_streaming = False
        if predictions == "shard":
            for shard in range(self.shards):
                self.backend.revive(shard, "finish")
        if self._failure is not None:
            raise self._failure

    # ------------------------------------------------------------------ the stages of a turn

    def _begin(self, predictions: str | None, on_checkpoint: Callable[[int], Mapping[str, Any]] | None) -> None:
        block = self.manifest.block
        self._predictions, self._on_checkpoint = predictions, on_checkpoint
        self._known = self._out = block  # the next block to read, and to hand over
        self._end: int | None = None
        self._end_rows = self.manifest.rows
        self._failure: BaseException | None = None
        self._blocks: dict[int, _Kept] = {}
        self._answers: dict[int, Any] = {}
        self._flight: list[deque[tuple[int, Any]]] = [deque() for _ in range(self.shards)]
        self._sent, self._done, self._saved = ([block] * self.shards for _ in range(3))
        self._began = self._last_save = time.monotonic()
        self._unsaved_bytes = self._unsaved_blocks = 0
        self._first_rows = self._rows = self.manifest.rows

    def _is_finished(self) -> bool:
        return self._end is not None and self._out == self._end == self.manifest.block

    def _complete(self) -> None:
        """To the end, without handing anything over."""
        while not self._is_finished():
            self._send()
            self._receive()
            while self._out < self._known and min(self._done) > self._out:
                self._hand_over()
            self._move_manifest()

    def _hand_over(self) -> None:
        del self._answers[self._out]
        self._out += 1
        self._rows = self._rows_before(self._out)

    def _read(self, parcels: Iterator[Parcel | None]) -> None:
        """More input, as far as the slowest shard allows."""
        while self._end is None and self._known < self._out + self._ahead:
            try:
                parcel = next(parcels)
            except StopIteration:
                self._end = self._known
                return
            except Exception as error:
                self._failure = error
                self._end = self._known
                return
            rows, shared, of_shard, nbytes = parcel or Parcel(0, None, [None] * self.shards, 0)
            save = self._is_save_due(nbytes)
            if parcel is not None:
                shared = self.backend.put(shared)
                of_shard = [columns if columns is None else self.backend.put(columns) for columns in of_shard]
            self._blocks[self._known] = _Kept(shared, of_shard, self._end_rows, save, nbytes)
            self._answers[self._known] = None if parcel is None else [None] * self.shards
            self._end_rows += rows
            self._known += 1

    def _is_save_due(self, nbytes: int) -> bool:
        """Whether shards are to be saved after the next block. Not before the manifest has what they saved last: so
        a shard keeps two states, the manifest's and a newer one."""
        self._unsaved_bytes += nbytes
        self._unsaved_blocks += 1
        full = self._unsaved_bytes >= _KEPT_BYTES and self._unsaved_blocks >= _KEPT_BLOCKS
        late = time.monotonic() - self._last_save >= self._every
        if not (full or late) or self._is_saving():
            return False
        self._unsaved_bytes = self._unsaved_blocks = 0
        self._last_save = time.monotonic()
        return True

    def _is_saving(self) -> bool:
        """Whether a state is being saved, or is to be, that the manifest does not have yet."""
        return any(block.save for block in self._blocks.values())

    def _send(self) -> None:
        for shard, flight in enumerate(self._flight):
            while self._sent[shard] < self._known:
                number = self._sent[shard]
                block = self._blocks[number]
                flight.append(
                    (
                        number,
                        self.backend.call(
                            shard,
                            "learn",
                            number,
                            block.shared,
                            block.of_shard[shard],
                            self._predictions,
                            block.save,
                            self.manifest.block,
                        ),
                    )
                )
                self._sent[shard] += 1
            if self._end is not None and self._saved[shard] < self._end and not flight and not self._is_saving():
                flight.append((self._end, self.backend.call(shard, "save", self._end, self.manifest.block)))

    def _receive(self) -> None:
        heads = [flight[0][1] for flight in self._flight if flight]
        ready = self.backend.wait(heads) if heads else []
        for shard, flight in enumerate(self._flight):
            if not flight or flight[0][1] not in ready:
                continue
            number, call = flight.popleft()
            try:
                reply: Reply = self.backend.get(call)
            except Lost as lost:
                self.restarts += 1
                _log.warning("shard %d failed at block %d: %s; restarting it", shard, number, lost)
                began = time.monotonic()
                self._bring_back(shard)
                seconds = time.monotonic() - began
                _log.warning("shard %d is back at block %d after %.1f s", shard, self._sent[shard], seconds)
            except (ValueError, TypeError, ArithmeticError) as error:
                if isinstance(error, CheckpointError):
                    raise
                self._failure = error
                self._stop_at(number)
                return
            else:
                self._take(shard, number, reply)
        self._lag = max(self._done) - min(self._done)

    def _take(self, shard: int, number: int, reply: Reply) -> None:
        self._saved[shard] = reply.saved
        if not reply.learned:  # it was brought back, or learned a block of which the driver never heard
            self._bring_back(shard)
        elif number == self._done[shard] < self._known:
            self._done[shard] += 1
            if self._answers[number] is not None:
                self._answers[number][shard] = reply.predictions

    def _bring_back(self, shard: int) -> None:
        """Find out where a shard is, and go on from there."""
        self._flight[shard].clear()
        limit = self._done[shard] if self._predictions == "driver" else self._known
        reply: Reply = self.backend.revive(shard, "rewind", limit)
        self._sent[shard], self._saved[shard] = reply.at, reply.saved
        self._done[shard] = max(self._done[shard], reply.at)

    def _stop_at(self, number: int) -> None:
        """Let the stream end before block ``number``; every shard that is further goes back."""
        if self._end is not None:
            number = min(number, self._end)
        self._end_rows = self._rows_before(number)
        self._end = self._known = number
        self._blocks = {n: block for n, block in self._blocks.items() if n < number}
        self._answers = {n: answers for n, answers in self._answers.items() if n < number}
        for shard in range(self.shards):
            self._done[shard] = min(self._done[shard], number)
            self._bring_back(shard)

    def _rows_before(self, number: int) -> int:
        return self._blocks[number].rows if number in self._blocks else self._end_rows

    def _move_manifest(self) -> None:
        """To the newest block number that every shard has saved, and before which all was handed over."""
        safe = min(*self._saved, self._out)
        numbers = [number + 1 for number, block in self._blocks.items() if block.save and number < safe]
        if self._end is not None and safe == self._end:
            numbers.append(self._end)
        newest = max(numbers, default=0)
        if newest <= self.manifest.block:
            return
        rows = self._rows_before(newest)
        point = self.manifest.more if self._on_checkpoint is None else self._on_checkpoint(rows)
        manifest = replace(self.manifest, block=newest, rows=rows, session=self._session, more=point)
        manifest.write(self._storage)
        self.manifest = manifest
        _log.info("saved up to block %d, row %d; %s", newest, rows, self.status)
        for number in [number for number in self._blocks if number < newest]:
            del self._blocks[number]
