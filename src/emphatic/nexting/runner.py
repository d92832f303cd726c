"""The main job: a table of readings in; predictions of every signal at every horizon, scores, a report and a model out.

Learning is one pass in blocks, so that memory does not grow with the rows. Predictions are written in parts, with
a checkpoint now and then: a run that was killed goes on from the last one, and gives the same predictions as if it
had not been.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from emphatic.features import Features
from emphatic.hordes.horde import BLOCK, Horde
from emphatic.learning.active import Active
from emphatic.learning.sequences import UndiscountedWarning
from emphatic.nexting.settings import Settings, warm_up_rows
from emphatic.nexting.unfinished import Unfinished
from emphatic.tables import Clock, Hold, open_table

__all__ = ["Nexting", "Progress"]

Progress = Callable[[str, int, int], None]

#: Seconds of work that a killed run may lose.
SAVE = 10.0
#: Predictions that wait to be written, at most: what keeps memory flat.
WAITING = 1 << 20


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

    def open(self) -> Nexting:
        """Look at the table, and fill in the settings that were left out."""
        began = time.perf_counter()
        self.table = open_table(self.source, time=self.settings.time, delimiter=self.settings.delimiter)
        self.rows = self._count()
        if self.rows < 3:
            raise ValueError(f"{self.table.name}: {self.rows} rows are too few to learn from; 3 is the least.")
        self.settings = self.settings.filled(self.table, self.rows)
        self._spend("reading", began)
        return self

    def run(self, resume: bool = False) -> list[dict[str, Any]]:
        """Learn, score, and write all four files; returns what ``summary.json`` holds."""
        self.unfinished = Unfinished(self.out)
        self.open()
        state = self._taken_up() if resume else None
        try:
            if state is None:
                self.unfinished.begin()
            # Of readings near the largest number, some scores cannot be told; a γ that varies may be 1 for long.
            with np.errstate(all="ignore"), warnings.catch_warnings():
                warnings.simplefilter("ignore", UndiscountedWarning)
                began = time.perf_counter()
                if state is None:
                    self.begin()
                else:
                    self.horde, self.clock = state
                self._learn(began)
                self._spend("learning", began)
                began = time.perf_counter()
                self._score()
                self._spend("scoring", began)
                self._write()
        except BaseException as error:
            # What a stopped run leaves is there to go on from; an error leaves nothing but what it found.
            failed = isinstance(error, Exception) and state is None
            if failed or not self.unfinished.checkpoint.exists():
                self.unfinished.give_up()
            if isinstance(error, OSError) and error.strerror and not error.filename:
                error.filename = str(self.out)  # a full disk does not say which
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

    def _check_rows(self, rows: int) -> None:
        if rows != self.rows:
            raise ValueError(f"{self.table.name}: the table changed while it was read: {self.rows} rows, then {rows}.")

    # ------------------------------------------------------------------ learning

    def begin(self) -> Nexting:
        """Features and learners as they are before the first row."""
        self.clock = self.table.clock()
        features = Features.from_config(self.settings.features or ())
        self.horde = Horde(
            self.settings.asked(), features, self.settings.rule, rates=self.settings.rates,
            step=None if self.clock is None else self.clock.step,
        ).warm_up(self.table, warm_up_rows(self.rows))  # fmt: skip
        return self

    def _taken_up(self) -> tuple[Horde, Clock | None] | None:
        """The state of an unfinished run; None if there is none."""
        if not self.unfinished.checkpoint.exists():
            if self.unfinished.folder.exists() or not (self.out / "model.safetensors").exists():
                return None
            raise ValueError(f"{self.out}: nothing to resume, the run there was finished.")
        horde, more = self.unfinished.load()
        if more.get("settings") != self.settings.table() or more.get("table") != self._identity:
            raise ValueError(
                f"{self.out}: the unfinished run there was of another table or with other settings. "
                "Resume with the same, or start anew without --resume."
            )
        self.seconds["learning"] = more["seconds"]
        self.unfinished.drop(horde.rows)
        return horde, None if more["clock"] is None else Clock.restore(more["clock"])

    @cached_property
    def _identity(self) -> dict[str, Any]:
        """What tells this table from another."""
        first = next(self.table.blocks(10_000))
        digest = hashlib.sha256(first.values.tobytes())
        digest.update(b"" if first.time is None else first.time.tobytes())
        size = os.path.getsize(self.source) if isinstance(self.source, str | os.PathLike) else None
        names, categories = list(self.table.names), list(self.table.categories)
        return {"rows": self.rows, "names": names, "categories": categories, "bytes": size, "is": digest.hexdigest()}

    def _learn(self, began: float) -> None:
        """All rows from where the horde stands; parts and checkpoints as it goes."""
        spent = self.seconds.get("learning", 0.0)
        begin, saved = self.horde.rows, time.perf_counter()
        times: list[Any] = []
        made: list[NDArray[np.float64]] = []
        for block, predictions in self.horde.blocks(self.table, self.clock, begin):
            times.append(block.time)
            made.append(predictions)
            rows, now = self.horde.rows, time.perf_counter()
            self.progress("learning", rows, self.rows)
            full, due = (rows - begin) * predictions.shape[1] >= WAITING, now - saved >= SAVE
            # Always after whole blocks, but for the end: a run that goes on from here cuts the rows at the same places.
            if full or due or rows == self.rows:
                self.unfinished.write(begin, self._columns(begin, times, np.concatenate(made)))
                begin, times, made = rows, [], []
                if due or rows == self.rows:
                    self.unfinished.save(self.horde, self._more(spent + now - began))
                    saved = time.perf_counter()
        self._check_rows(self.horde.rows)

    def _more(self, seconds: float) -> dict[str, Any]:
        """What a run needs to go on, beside the horde."""
        clock = None if self.clock is None else self.clock.state()
        when = [self.table.time, self.table.a_second]
        more = {"settings": self.settings.table(), "table": self._identity, "clock": clock, "seconds": seconds}
        return more | {"when": when}

    def _columns(self, begin: int, times: list[Any], made: NDArray[np.float64]) -> dict[str, Any]:
        """A part of ``predictions.parquet``."""
        columns: dict[str, Any] = {"row": np.arange(begin, begin + len(made))}
        if self.table.time is not None:
            when = np.concatenate(times)
            columns["time"] = _datetimes(when) if self.table.dated else when
        return columns | {name: made[:, q] for q, name in enumerate(self.horde.names)}

    # ------------------------------------------------------------------ scoring

    def _score(self) -> None:
        from emphatic import scores

        names, horizons = list(self.settings.predict or ()), list(self.settings.horizons or ())
        plain = self.horde.names[: len(names) * len(horizons)]
        values, missing, gap = self.readings()
        self.values = values
        parts = self.unfinished.parts()
        self.predictions = np.concatenate(
            [np.stack([part.column(name).to_numpy() for name in plain], axis=1) for part in parts]
        )
        scored = scores.summary(
            names, horizons, self.horde.gamma[: len(horizons)], values, missing, gap, self.predictions, self.phi,
            self.horde.features.n, lambda part: self.progress("scoring", int(1000 * part), 1000),
        )  # fmt: skip
        self.summary, self.curves, self.returns, self.known = scored

    def readings(self) -> tuple[NDArray[np.float64], NDArray[np.bool_], NDArray[np.bool_]]:
        """The signals to predict, (T, C), the last reading held; which of them are missing; and rows after a gap, (T,).

        Counts what was wrong with them, and keeps the times.
        """
        at = [self.table.names.index(name) for name in self.settings.predict or ()]
        values = np.empty((self.rows, len(at)))
        missing, gap = np.empty((self.rows, len(at)), bool), np.zeros(self.rows, bool)
        counts, hold, clock = Counts.of(len(self.table.names)), Hold(len(self.table.names)), self.table.clock()
        self.when = np.empty(self.rows) if self.table.time is not None else None
        for block in self.table.blocks():
            some = slice(block.row, block.row + len(block))
            self._check_rows(max(self.rows, some.stop))
            held, gone = hold.fill(block.values)
            values[some], missing[some] = held[:, at], gone[:, at]
            if clock is not None and block.time is not None and self.when is not None:
                gap[some], self.when[some] = clock.follow(block.time), block.time
            counts.add(block)
        self.counts = counts
        return values, missing, gap

    def phi(self) -> Iterator[Active]:
        """The features of the whole table once more, from the start."""
        maker = Features.load(*self.horde.features.save())
        maker.restart()
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

    def _write(self) -> None:
        """All four files under other names, then in their places."""
        import pyarrow.parquet as pq

        from emphatic.nexting import account as nexting_report

        began, folder = time.perf_counter(), self.unfinished.folder
        with ExitStack() as stack:
            writer = None
            for part in self.unfinished.parts():
                if writer is None:
                    writer = pq.ParquetWriter(folder / "predictions", part.schema, compression="zstd")
                    stack.enter_context(writer)
                writer.write_table(part)
        text = json.dumps(self.summary, indent=1, allow_nan=False, ensure_ascii=False)
        (folder / "summary").write_text(text, "utf-8")
        self._spend("report", began)
        (folder / "report").write_text(nexting_report.page(self), "utf-8")
        self.unfinished.finish(
            {"predictions": "predictions.parquet", "summary": "summary.json", "report": "report.html"}
        )


def _datetimes(seconds: NDArray[np.float64]) -> NDArray[np.datetime64]:
    micro = np.where(np.isfinite(seconds), np.round(seconds * 1e6), 0).astype("int64").astype("datetime64[us]")
    return np.where(np.isfinite(seconds), micro, np.datetime64("NaT", "us"))
