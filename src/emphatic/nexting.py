"""The main job: a table of readings in; predictions of every signal at every horizon, scores, a report and a model out.

Learning is one pass in blocks, so that memory does not grow with the rows. Predictions are written in parts, each
followed by a checkpoint: a run that was killed goes on from the last one, and gives the same predictions as if it had
not been.
"""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from emphatic.active import Active
from emphatic.errors import CheckpointError
from emphatic.features import Features
from emphatic.horde import BLOCK, Horde
from emphatic.settings import Settings
from emphatic.streams import Clock, Hold, open_table

__all__ = ["Nexting", "Progress"]

Progress = Callable[[str, int, int], None]

#: Seconds of work that a killed run may lose.
SAVE = 10.0
#: Where an unfinished run keeps its parts and its checkpoint, inside the output folder.
UNFINISHED = ".unfinished"


@dataclass
class Counts:
    """What was wrong with the readings."""

    unreadable: NDArray[np.int64]
    infinite: NDArray[np.int64]
    lowest: NDArray[np.float64]
    highest: NDArray[np.float64]

    @classmethod
    def of(cls, C: int) -> Counts:
        zero = np.zeros(C, np.int64)
        return cls(zero, zero.copy(), np.full(C, np.inf), np.full(C, -np.inf))

    def add(self, block: Any) -> None:
        self.unreadable += block.unreadable
        self.infinite += block.infinite
        self.lowest = np.fmin(self.lowest, np.fmin.reduce(block.values, axis=0, initial=np.inf))
        self.highest = np.fmax(self.highest, np.fmax.reduce(block.values, axis=0, initial=-np.inf))


@dataclass
class Nexting:
    """A run of ``emphatic nexting`` on one table."""

    source: Any
    settings: Settings
    out: Path
    progress: Progress = lambda phase, done, total: None
    seconds: dict[str, float] = field(default_factory=dict)

    def run(self, resume: bool = False) -> list[dict[str, Any]]:
        """Learn, score, and write all four files; returns what ``summary.json`` holds."""
        began = time.perf_counter()
        self.table = open_table(self.source, time=self.settings.time, delimiter=self.settings.delimiter)
        self.rows = self._count()
        self.settings = self.settings.filled(self.table, self.rows)
        self._spend("reading", began)
        self.folder = self.out / UNFINISHED
        state = self._taken_up() if resume else None
        if state is None:
            self.out.mkdir(parents=True, exist_ok=True)
            shutil.rmtree(self.folder, ignore_errors=True)
            self.folder.mkdir()
        try:
            began = time.perf_counter()
            self.horde, self.clock = state or self._begun()
            self._learn()
            self._spend("learning", began)
            began = time.perf_counter()
            self._score()
            self._spend("scoring", began)
            began = time.perf_counter()
            self._write(began)
        except BaseException as error:
            # What a killed run leaves is there to go on from; an error leaves nothing.
            if isinstance(error, Exception):
                shutil.rmtree(self.folder, ignore_errors=True)
                if not any(self.out.iterdir()):
                    self.out.rmdir()
            raise
        return self.summary

    def _spend(self, phase: str, began: float) -> None:
        self.seconds[phase] = self.seconds.get(phase, 0.0) + time.perf_counter() - began

    def _count(self) -> int:
        """The rows of the table, by reading it where it does not say."""
        if self.table.rows is not None:
            return self.table.rows
        rows = 0
        for block in self.table.blocks():
            rows += len(block)
            self.progress("reading", rows, 0)
        return rows

    # ------------------------------------------------------------------ learning

    def _begun(self) -> tuple[Horde, Clock | None]:
        if self.rows < 3:
            raise ValueError(f"{self.table.name}: {self.rows} rows are too few to learn from; 3 is the least.")
        clock = self.table.clock()
        features = Features.from_config(self.settings.features or ())
        horde = Horde(
            self.settings.asked(), features, self.settings.rule, rates=self.settings.rates,
            step=None if clock is None else clock.step,
        )  # fmt: skip
        return horde.warm_up(self.table, max(2, min(10_000, max(500, self.rows // 10), self.rows))), clock

    def _taken_up(self) -> tuple[Horde, Clock | None] | None:
        """The state of an unfinished run; None if there is none."""
        path = self.folder / "model.safetensors"
        if not path.exists():
            if self.folder.exists() or not (self.out / "model.safetensors").exists():
                return None
            raise ValueError(f"{self.out}: nothing to resume, the run there was finished.")
        horde, more = Horde.load_with(path)
        if more.get("settings") != self.settings.table() or more.get("table") != self._identity():
            raise ValueError(
                f"{self.out}: the unfinished run there was of another table or with other settings. "
                "Resume with the same, or start anew without --resume."
            )
        clock = None if more["clock"] is None else Clock.restore(more["clock"])
        return horde, clock

    def _identity(self) -> dict[str, Any]:
        return {"rows": self.rows, "names": list(self.table.names), "categories": list(self.table.categories)}

    def _learn(self) -> None:
        """All rows from where the horde stands; parts and checkpoints as it goes."""
        begin = self.horde.rows
        waiting: list[tuple[Any, NDArray[np.float64]]] = []
        saved = time.perf_counter()
        for block, predictions in self.horde.blocks(self.table, self.clock, begin):
            waiting.append((block, predictions))
            self.progress("learning", self.horde.rows, self.rows)
            if time.perf_counter() - saved > SAVE and self.horde.rows % BLOCK == 0:
                self._save(begin, waiting)
                begin, waiting, saved = self.horde.rows, [], time.perf_counter()
        if waiting:
            self._save(begin, waiting)

    def _save(self, begin: int, waiting: list[tuple[Any, NDArray[np.float64]]]) -> None:
        """A part of the predictions, then the checkpoint that says it is there."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        row = np.arange(begin, self.horde.rows)
        columns: dict[str, Any] = {"row": row}
        if self.table.time is not None:
            when = np.concatenate([block.time for block, _ in waiting])
            columns["time"] = _datetimes(when) if self.table.dated else when
        made = np.concatenate([predictions for _, predictions in waiting])
        columns |= {name: made[:, q] for q, name in enumerate(self.horde.names)}
        path = self.folder / f"{begin:012d}.parquet"
        pq.write_table(pa.table(columns), path.with_suffix(".partial"), compression="zstd")
        os.replace(path.with_suffix(".partial"), path)
        clock = None if self.clock is None else self.clock.state()
        more = {"settings": self.settings.table(), "table": self._identity(), "clock": clock}
        self.horde.save(self.folder / "model.safetensors", **more)

    def _parts(self) -> Iterator[Any]:
        """The parts that the checkpoint knows of, as Arrow tables; a killed run may have left one more."""
        import pyarrow.parquet as pq

        for path in sorted(self.folder.glob("*.parquet")):
            if int(path.stem) < self.horde.rows:
                yield pq.read_table(path)

    # ------------------------------------------------------------------ scoring

    def _score(self) -> None:
        from emphatic import scores

        names, Q = (
            list(self.settings.predict or ()),
            len(self.settings.predict or ()) * len(self.settings.horizons or ()),
        )
        at = [self.table.names.index(name) for name in names]
        values = np.empty((self.rows, len(names)))
        missing, gap = np.empty((self.rows, len(names)), bool), np.zeros(self.rows, bool)
        counts, hold, clock = Counts.of(len(self.table.names)), Hold(len(self.table.names)), self.table.clock()
        self.when = np.empty(self.rows) if self.table.time is not None else None
        for block in self.table.blocks():
            some = slice(block.row, block.row + len(block))
            held, gone = hold.fill(block.values)
            values[some], missing[some] = held[:, at], gone[:, at]
            if clock is not None and block.time is not None and self.when is not None:
                gap[some], self.when[some] = clock.follow(block.time), block.time
            counts.add(block)
        self.counts, self.values = counts, values
        self.predictions = np.concatenate(
            [
                np.stack([part.column(name).to_numpy() for name in self.horde.names[:Q]], axis=1)
                for part in self._parts()
            ]
        )
        gammas = self.horde.gamma[: len(self.settings.horizons or ())]
        scored = scores.summary(
            names, list(self.settings.horizons or ()), gammas, values, missing, gap, self.predictions, self._phi,
            self.horde.features.n, lambda part: self.progress("scoring", int(1000 * part), 1000),
        )  # fmt: skip
        self.summary, self.curves, self.returns, self.known = scored

    def _phi(self) -> Iterator[Active]:
        """The features of the whole table once more, from the start."""
        maker = Features.load(*self.horde.features.save())
        maker.cut()
        hold, clock = Hold(len(self.table.names)), self.table.clock()
        for block in self.table.blocks(BLOCK):
            held, missing = hold.fill(block.values)
            gap = np.zeros(len(block), bool)
            if clock is not None and block.time is not None:
                gap = clock.follow(block.time)
            edges = [0, *np.flatnonzero(gap)[np.flatnonzero(gap) > 0].tolist(), len(block)]
            for begin, end in pairwise(edges):
                if gap[begin]:
                    maker.cut()
                some = slice(begin, end)
                yield maker(
                    held[some], time=None if block.time is None else block.time[some],
                    labels={name: column[some] for name, column in block.labels.items()}, missing=missing[some],
                )  # fmt: skip

    # ------------------------------------------------------------------ writing

    def _write(self, began: float) -> None:
        """All four files under other names, then in their places."""
        import pyarrow.parquet as pq

        from emphatic import nexting_report

        folder = self.folder
        writer = None
        try:
            for part in self._parts():
                writer = writer or pq.ParquetWriter(folder / "predictions", part.schema, compression="zstd")
                writer.write_table(part)
        finally:
            if writer is not None:
                writer.close()
        text = json.dumps(self.summary, indent=1, allow_nan=False, ensure_ascii=False)
        (folder / "summary").write_text(text, "utf-8")
        self._spend("report", began)
        (folder / "report").write_text(nexting_report.page(self), "utf-8")
        for name in ("predictions.parquet", "summary.json", "report.html"):
            os.replace(folder / name.split(".")[0], self.out / name)
        os.replace(folder / "model.safetensors", self.out / "model.safetensors")
        shutil.rmtree(folder)


def _datetimes(seconds: NDArray[np.float64]) -> NDArray[np.datetime64]:
    micro = np.where(np.isfinite(seconds), np.round(seconds * 1e6), 0).astype("int64").astype("datetime64[us]")
    return np.where(np.isfinite(seconds), micro, np.datetime64("NaT", "us"))


#: What may go wrong that is not ours: told in one line.
Failures = (ValueError, OSError, CheckpointError, ArithmeticError, MemoryError)
