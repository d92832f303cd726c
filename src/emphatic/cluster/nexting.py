"""``emphatic nexting`` on a cluster: the table is read here, and its questions are learned in shards.

Predictions come back in order and are written in parts, as without a cluster. Before the manifest moves on to a row,
the parts before it are written; what a new driver must know of the table at that row is kept in the manifest.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from emphatic.cluster.driver import Manifest, hold_storage
from emphatic.cluster.horde import ClusterHorde
from emphatic.cluster.learner import BLOCK
from emphatic.hordes.horde import Horde
from emphatic.nexting.job import NextingResult, check_free
from emphatic.nexting.readings import KeptReadings, ReadingCounts
from emphatic.nexting.related import make_makers
from emphatic.nexting.runner import WAITING, Nexting, Progress
from emphatic.nexting.settings import Settings
from emphatic.nexting.stopping import StopRequest
from emphatic.tables import Block, Clock

__all__ = ["ClusterNexting", "run"]


class _Waiting(NamedTuple):
    """Rows from ``begin`` on: their readings, predictions, and numbers in the file."""

    begin: int
    readings: KeptReadings
    predictions: Any
    numbers: Any

    def part(self, a: int, b: int) -> _Waiting:
        """Some of them."""
        some = slice(a, b)
        return _Waiting(self.begin + a, self.readings[some], self.predictions[some], self.numbers[some])

    @staticmethod
    def join(parts: Sequence[_Waiting]) -> _Waiting:
        """Rows that follow one another as one."""
        predictions = np.concatenate([part.predictions for part in parts])
        numbers = np.concatenate([part.numbers for part in parts])
        return _Waiting(parts[0].begin, KeptReadings.join([part.readings for part in parts]), predictions, numbers)


def run(
    data: Any,
    *,
    address: str | None,
    out: Path,
    config: Any = None,
    resume: bool = False,
    overwrite: bool = False,
    offline: bool = True,
    progress: Progress | None = None,
    announce: Callable[[str], None] | None = None,
    **options: Any,
) -> NextingResult:
    """``emphatic.nexting.run`` on a cluster: ``options`` are shards, storage, block and checkpoint_every."""
    if not (overwrite or resume):
        check_free(out)
    job = ClusterNexting(data, Settings.combine(config), out, offline=offline, address=address, **options)
    job.progress, job.announce = progress or job.progress, announce or job.announce
    if overwrite:
        _clear(job.folder)
    return NextingResult.of(job, resume)


@dataclass
class ClusterNexting(Nexting):
    """A run of ``emphatic nexting`` whose questions are learned in shards; see ``ClusterHorde``.

    The storage is by default ``.cluster`` in the output folder. It is emptied when the run is finished.
    """

    address: str | None = None
    shards: int | None = None
    storage: Path | None = None
    block: int = BLOCK
    checkpoint_every: str | float = "30s"

    without_answers = "single answers are not kept on a cluster"

    def __post_init__(self) -> None:
        #: The storage.
        self.folder = (self.storage or self.out / ".cluster").absolute()
        self._resumed = False
        self._cluster: ClusterHorde | None = None
        #: Rows of which no part is written yet.
        self._waiting: list[_Waiting] = []

    def run(self, resume: bool = False) -> list[dict[str, Any]]:
        """Learn, score, and write all four files; returns what ``summary.json`` holds."""
        found = Manifest.read(self.folder)
        self._resumed = resume and found is not None
        if found is not None and not resume:
            raise ValueError(f"{self.folder}: there is a run in this folder: add --resume, or give another --storage.")
        try:
            summary = super().run(resume)
        finally:
            if self._cluster is not None:
                self._cluster.close()
        _clear(self.folder)
        return summary

    # ------------------------------------------------------------------ learning

    def begin(self) -> ClusterNexting:
        """Features and shards as they are before the first row."""
        super().begin()
        self._cluster = self._open(None if self._resumed else False)
        self._cluster.warm_up(self.table, self.settings.rows_to_warm_up(self.table, self.rows))
        return self

    def _open(self, resume: bool | None) -> ClusterHorde:
        clock = self.table.clock()
        return ClusterHorde(
            self.settings.gvfs(), make_makers(self.settings), self.settings.rule,
            rates=self.settings.rates, stepsize=self.settings.stepsize, step=None if clock is None else clock.step,
            least_squares=self.settings.least_squares,
            shards=self.shards, address=self.address, storage=self.folder, block=self.block,
            checkpoint_every=self.checkpoint_every, resume=resume,
        )  # fmt: skip

    def _load_unfinished(self) -> tuple[Horde, Clock | None, ReadingCounts] | None:
        manifest = Manifest.read(self.folder)
        if manifest is None or manifest.rows == 0:
            if self.unfinished.checkpoint.exists():
                raise ValueError(f"{self.out}: the unfinished run there is not of a cluster. Resume it without --ray.")
            return None
        more = dict(manifest.more)
        if (
            more.get("settings") != self.settings.table()
            or more.get("table") != self._identity | {"is": more.get("table", {}).get("is")}
            or not self._has_read(manifest.rows, more)
        ):
            raise ValueError(
                f"{self.folder}: the run there is of another table or with other settings. "
                "Resume with the same, or start again with --overwrite."
            )
        if not any(self.unfinished.folder.glob("*predictions-*.parquet")):
            raise ValueError(
                f"{self.out}: the predictions of the run in {self.folder} are elsewhere: give the same --out."
            )
        self._cluster = self._open(True)
        self._drop_past(manifest.rows)
        self.seconds["learning"] = more["seconds"]
        clock = None if more["clock"] is None else Clock.restore(more["clock"])
        return self._warm_up(), clock, ReadingCounts(**more["counts"])

    def _drop_past(self, rows: int) -> None:
        """Remove what was written past the manifest; what no part has yet waits again."""
        end = self._aligned(rows)
        for kind in ("predictions", "readings"):
            for begin in [begin for begin in self.unfinished.begins(kind) if begin <= end][-1:]:
                table = self.unfinished.read(kind, begin)
                if begin + table.num_rows >= rows > end:  # a part that was full has them
                    self._rewrite(f"tail-{kind}", rows, table.slice(end - begin, rows - end))
                if begin < end < begin + table.num_rows:
                    self._rewrite(kind, begin, table.slice(0, end - begin))
        self.unfinished.drop(end)
        if end < rows:
            kept = KeptReadings.from_table(self.unfinished.read("tail-readings", rows), self.table.categories)
            table = self.unfinished.read("tail-predictions", rows)
            predictions = np.stack([table.column(name).to_numpy() for name in self._cluster_names()], axis=1)
            self._waiting = [_Waiting(end, kept, predictions, table.column("row").to_numpy())]

    def _cluster_names(self) -> tuple[str, ...]:
        assert self._cluster is not None
        return self._cluster.names

    def _rewrite(self, kind: str, begin: int, table: Any) -> None:
        self.unfinished.write(kind, begin, {name: table.column(name) for name in table.column_names})

    def _aligned(self, rows: int) -> int:
        """The last row up to which parts may be written: scoring takes parts that begin at multiples of 8."""
        return rows if rows == self.rows else rows // 8 * 8

    def _learn(self, began: float, request: StopRequest) -> None:
        """All rows from where the shards stand; then all questions as one horde."""
        cluster = self._cluster
        assert cluster is not None
        spent = self.seconds.get("learning", 0.0)
        #: What the manifest is to hold of each row that it may move to.
        self._states: dict[int, dict[str, Any]] = {}
        sent: list[tuple[Block, dict[str, Any]]] = []

        def read() -> Iterator[Block]:
            for block in self.table.blocks(self.block, cluster.position, self.clock):
                self._digest.add(block)
                sent.append((block, self._more(0.0)))
                yield block

        def on_checkpoint(rows: int) -> Mapping[str, Any]:
            self._flush(rows)
            self._write_tail(rows)
            state = self._states[rows]
            self._states = {row: later for row, later in self._states.items() if row >= rows}
            return state

        if cluster.position < self.rows:
            stream: Any = cluster.stream(read(), on_checkpoint=on_checkpoint)
            with closing(stream) as answers:
                for predictions in answers:
                    block, more = sent.pop(0)
                    self.counts.add(block)
                    self.counts.gaps += int(block.gap.sum())
                    end = block.row + len(block)
                    self._states[end] = more | {
                        "seconds": spent + time.perf_counter() - began,
                        "counts": asdict(self.counts),
                    }
                    kept = KeptReadings(block.values, block.time, block.gap, dict(block.labels))
                    self._waiting.append(_Waiting(block.row, kept, predictions, block.numbers))
                    self.progress("learning", end, self.rows)
                    width = predictions.shape[1] + block.values.shape[1] + len(block.labels)
                    if (end - self._waiting[0].begin) * width >= WAITING:
                        self._flush(end)
                    if request.signal is not None:
                        break
            request.stop()
        self._check_rows(cluster.position)
        self.horde = cluster.gather()
        self.unfinished.save(self.horde, dict(cluster.more) | self.derived.state())

    def _flush(self, rows: int) -> None:
        """Write what waits, up to that row or a few before it."""
        end = self._aligned(rows)
        due = [part for part in self._waiting if part.begin < end]
        if due:
            rest = self._waiting[len(due) :]
            joined = _Waiting.join(due)
            self._write_part(*joined.part(0, end - joined.begin))
            left = joined.part(end - joined.begin, len(joined.readings))
            self._waiting = [left, *rest] if len(left.readings) else rest

    def _write_tail(self, rows: int) -> None:
        """Write the few rows before the manifest's that are in no part yet, in files of their own."""
        due = [part for part in self._waiting if part.begin < rows]
        if due:
            joined = _Waiting.join(due)
            tail = joined.part(0, rows - joined.begin)
            self.unfinished.write("tail-readings", rows, tail.readings.columns())
            named = dict(zip(self._cluster_names(), tail.predictions.T, strict=True))
            self.unfinished.write("tail-predictions", rows, {"row": tail.numbers} | named)

    def _is_resumable(self, error: BaseException, resumed: bool) -> bool:
        manifest = Manifest.read(self.folder)
        if manifest is not None and manifest.rows and not isinstance(error, ValueError):
            return True
        if not resumed and not self._resumed:
            if self._cluster is not None:
                self._cluster.close()
                _clear(self.folder)
            return False
        return True


def _clear(storage: Path) -> None:
    """Remove what a run has kept, and the folder if nothing else is there; ``InUseError`` if the run goes on."""
    if not storage.exists():
        return
    with hold_storage(storage):
        for path in (*storage.glob("shard-*"), *storage.glob("predictions-*.parquet"), storage / "manifest.json"):
            if path.is_dir():
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink(missing_ok=True)
    with suppress(OSError):
        storage.rmdir()
