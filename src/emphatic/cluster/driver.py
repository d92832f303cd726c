"""The driver: sends numbered blocks to all shards, brings back those that died, and moves the manifest on.

- A block is kept until every shard has saved past it, so that it can be sent again.
- A shard that died comes back where it was last saved; it is sent again what it has not learned, and what it has
  learned without the driver's hearing of it.
- The manifest moves to a block number when all shards have saved it and the predictions before it have been handed
  over. A stream ends when the manifest is at its end.
- A block that a shard refuses, and a caller who stops early, end the stream before that block: shards that are further
  go back to a saved state and learn again up to there.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from emphatic.cluster.manifest import Manifest
from emphatic.cluster.shard import Reply
from emphatic.errors import CheckpointError

__all__ = ["Backend", "ClusterStatus", "Driver", "Lost", "Parcel"]

_log = logging.getLogger(__name__)

#: Bytes of blocks that are kept before shards are saved ahead of time, and blocks that are kept in any case.
_KEPT_BYTES, _KEPT_BLOCKS = 1 << 28, 8


class Lost(Exception):
    """A shard died, or its answer was lost."""


class Backend(Protocol):
    """Where the shards are: in this process, or in Ray's actors."""

    def put(self, value: Any) -> Any:
        """Something that can be sent to several shards, or several times."""

    def call(self, shard: int, method: str, *arguments: Any) -> Any:
        """Call a shard; its answer is there when ``wait`` says so."""

    def wait(self, calls: list[Any]) -> list[Any]:
        """Those whose answers are there; at least one, unless nothing happens for a while."""

    def get(self, call: Any) -> Any:
        """The answer. ``Lost`` if there will be none; what the shard raised, if it did."""

    def revive(self, shard: int, method: str, *arguments: Any) -> Any:
        """The answer of a shard that may have died, as soon as it is back."""

    def close(self) -> None:
        """Leave nothing behind."""


class Parcel(NamedTuple):
    """A block: its rows, what all shards are sent, what each alone is, and the bytes of all that."""

    rows: int
    shared: Any
    own: list[Any]
    nbytes: int


@dataclass(frozen=True)
class ClusterStatus:
    """How a run is going.

    - ``shards``: how many there are; ``block``, ``rows``: the next block and the rows so far;
    - ``steps_per_second``: rows a second since the stream began;
    - ``lag``: blocks between the first and the last shard; ``restarts``: shards that were brought back;
    - ``manifest``: the block from which another driver would go on.
    """

    shards: int
    block: int
    rows: int
    steps_per_second: float
    lag: int
    restarts: int
    manifest: int


class _Kept(NamedTuple):
    shared: Any
    own: list[Any]
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
        first = self.manifest.block
        self._predictions, self._on_checkpoint = predictions, on_checkpoint
        self._known = self._out = first  # the next block to read, and to hand over
        self._end: int | None = None
        self._end_rows = self.manifest.rows
        self._failure: BaseException | None = None
        self._blocks: dict[int, _Kept] = {}
        self._answers: dict[int, Any] = {}
        self._flight: list[deque[tuple[int, Any]]] = [deque() for _ in range(self.shards)]
        self._sent, self._done, self._saved = ([first] * self.shards for _ in range(3))
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
            rows, shared, own, nbytes = parcel or Parcel(0, None, [None] * self.shards, 0)
            save = self._is_save_due(nbytes)
            if parcel is not None:
                shared, own = (
                    self.backend.put(shared),
                    [each if each is None else self.backend.put(each) for each in own],
                )
            self._blocks[self._known] = _Kept(shared, own, self._end_rows, save, nbytes)
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
                flight.append((number, self.backend.call(
                    shard, "learn", number, block.shared, block.own[shard], self._predictions, block.save,
                    self.manifest.block,
                )))  # fmt: skip
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
                _log.warning("shard %d was lost at block %d: %s; bringing it back", shard, number, lost)
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
        self._blocks = {own: block for own, block in self._blocks.items() if own < number}
        self._answers = {own: answers for own, answers in self._answers.items() if own < number}
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
        more = self.manifest.more if self._on_checkpoint is None else self._on_checkpoint(rows)
        manifest = replace(self.manifest, block=newest, rows=rows, session=self._session, more=more)
        manifest.write(self._storage)
        self.manifest = manifest
        _log.info("saved up to block %d, row %d; %s", newest, rows, self.status)
        for number in [number for number in self._blocks if number < newest]:
            del self._blocks[number]
