"""``emphatic nexting`` on a cluster: the table is read here, and its questions are learned in shards.

Predictions come back in order and are written in parts, as without a cluster. Before the manifest moves on to a row,
the parts before it are written; what a new driver must know of the table at that row is kept in the manifest.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from emphatic.cluster.base import BLOCK
from emphatic.cluster.horde import ClusterHorde, SharedReadings
from emphatic.cluster.manifest import Manifest
from emphatic.features import Features
from emphatic.nexting.readings import KeptReadings, ReadingCounts
from emphatic.nexting.runner import WAITING, Nexting
from emphatic.nexting.settings import warm_up_rows
from emphatic.tables import Clock

__all__ = ["ClusterNexting"]


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

    def __post_init__(self) -> None:
        self._storage = (self.storage or self.out / ".cluster").absolute()
        self._resumed = False
        self._cluster: ClusterHorde | None = None
        #: Rows of which no part is written yet: the first, the readings and the predictions.
        self._waiting: list[tuple[int, KeptReadings, Any]] = []

    def run(self, resume: bool = False) -> list[dict[str, Any]]:
        """Learn, score, and write all four files; returns what ``summary.json`` holds."""
        found = Manifest.read(self._storage)
        self._resumed = resume and found is not None
        if found is not None and not resume:
            raise ValueError(
                f"{self._storage}: there is a run in this folder: add --resume, or give another --storage."
            )
        try:
            summary = super().run(resume)
        finally:
            if self._cluster is not None:
                self._cluster.close()
        _clear(self._storage)
        return summary

    # ------------------------------------------------------------------ learning

    def begin(self) -> ClusterNexting:
        """Features and shards as they are before the first row."""
        self.clock, self.counts = self.table.clock(), ReadingCounts.none(len(self.table.names))
        self._initial = self._warm_up().features.save()
        self._cluster = self._open(None if self._resumed else False)
        self._cluster.warm_up(self.table, warm_up_rows(self.rows))
        return self

    def _open(self, resume: bool | None) -> ClusterHorde:
        clock = self.table.clock()
        return ClusterHorde(
            self.settings.gvfs(), Features.from_config(self.settings.features or ()), self.settings.rule,
            rates=self.settings.rates, step=None if clock is None else clock.step, shards=self.shards,
            address=self.address, storage=self._storage, block=self.block, checkpoint_every=self.checkpoint_every,
            resume=resume,
        )  # fmt: skip

    def _load_unfinished(self) -> tuple[Any, Clock | None, ReadingCounts] | None:
        manifest = Manifest.read(self._storage)
        if manifest is None or manifest.rows == 0:
            if self.unfinished.checkpoint.exists():
                raise ValueError(f"{self.out}: the unfinished run there is not of a cluster. Resume it without --ray.")
            return None
        more = manifest.more
        if more.get("settings") != self.settings.table() or more.get("table") != self._identity:
            raise ValueError(
                f"{self._storage}: the run there is of another table or with other settings. "
                "Resume with the same, or start again without --resume, in another --storage."
            )
        if not any(self.unfinished.folder.glob("*predictions-*.parquet")):
            raise ValueError(
                f"{self.out}: the predictions of the run in {self._storage} are not here: give the same --out."
            )
        self._cluster = self._open(True)
        self._drop_past(manifest.rows)
        self.seconds["learning"] = more["seconds"]
        clock = None if more["clock"] is None else Clock.restore(more["clock"])
        return None, clock, ReadingCounts(**more["counts"])

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
            predictions = np.stack([table.column(name).to_numpy() for name in self._names], axis=1)
            self._waiting = [(end, kept, predictions)]

    def _rewrite(self, kind: str, begin: int, table: Any) -> None:
        self.unfinished.write(kind, begin, {name: table.column(name) for name in table.column_names})

    def _aligned(self, rows: int) -> int:
        """The last row up to which parts may be written: scoring takes parts that begin at multiples of 8."""
        return rows if rows == self.rows else rows // 8 * 8

    def _learn(self, began: float) -> None:
        """All rows from where the shards stand; then all questions as one horde."""
        cluster = self._cluster
        assert cluster is not None
        spent = self.seconds.get("learning", 0.0)
        #: What the manifest is to hold of each row that it may move to.
        self._states: dict[int, dict[str, Any]] = {}
        sent: list[tuple[Any, SharedReadings, dict[str, Any]]] = []

        def read() -> Iterator[SharedReadings]:
            for block in self.table.blocks(self.block, cluster.position):
                clock, when = self.clock, block.time
                gap = np.zeros(len(block), bool) if clock is None or when is None else clock.find_gaps(when)
                shared = SharedReadings(block.values, block.time, block.labels, gap)
                sent.append((block, shared, self._more(0.0)))
                yield shared

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
                    block, shared, more = sent.pop(0)
                    self.counts.add(block)
                    row, end = block.row, block.row + len(block)
                    more |= {"seconds": spent + time.perf_counter() - began, "counts": asdict(self.counts)}
                    self._states[end] = more
                    kept = KeptReadings(shared.values, shared.time, shared.gap, dict(shared.labels))
                    self._waiting.append((row, kept, predictions))
                    self.progress("learning", end, self.rows)
                    width = predictions.shape[1] + shared.values.shape[1] + len(shared.labels)
                    if (end - self._waiting[0][0]) * width >= WAITING:
                        self._flush(end)
        self._check_rows(cluster.position)
        self.horde = cluster.gather()
        self.unfinished.save(self.horde, dict(cluster.more))

    def _flush(self, rows: int) -> None:
        """Write what waits, up to that row or a few before it."""
        end = self._aligned(rows)
        due = [part for part in self._waiting if part[0] < end]
        if due:
            begin, readings, predictions = _join(due)
            part = slice(0, end - begin)
            self._write_part(begin, readings[part], predictions[part])
            rest = slice(end - begin, len(readings))
            left = [(end, readings[rest], predictions[rest])] if len(readings) > end - begin else []
            self._waiting = left + self._waiting[len(due) :]

    def _write_tail(self, rows: int) -> None:
        """Write the few rows before the manifest's that are in no part yet, in files of their own."""
        due = [part for part in self._waiting if part[0] < rows]
        if due:
            begin, readings, predictions = _join(due)
            tail = slice(0, rows - begin)
            self.unfinished.write("tail-readings", rows, readings[tail].columns())
            named = dict(zip(self._names, predictions[tail].T, strict=True))
            self.unfinished.write("tail-predictions", rows, named)

    def _is_resumable(self, error: BaseException, resumed: bool) -> bool:
        manifest = Manifest.read(self._storage)
        if manifest is not None and manifest.rows and not isinstance(error, ValueError):
            return True
        if not resumed and not self._resumed:
            if self._cluster is not None:
                self._cluster.close()
                _clear(self._storage)
            return False
        return True

    @property
    def _names(self) -> tuple[str, ...]:
        assert self._cluster is not None
        return self._cluster.names


def _join(parts: Sequence[tuple[int, KeptReadings, Any]]) -> tuple[int, KeptReadings, Any]:
    """Rows that follow one another as one."""
    return parts[0][0], KeptReadings.join([part[1] for part in parts]), np.concatenate([part[2] for part in parts])


def _clear(storage: Path) -> None:
    """Remove what a run has kept, and the folder if nothing else is there."""
    for path in (*storage.glob("shard-*"), *storage.glob("predictions-*.parquet"), storage / "manifest.json"):
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)
    with suppress(OSError):
        storage.rmdir()
