"""The main job: a table of readings in; predictions of every signal at every horizon, scores, a report and a model out.

The table is read through once, in blocks, to learn from; a file of text also once before, to count its rows, on which
the default horizons and the warm-up depend. Predictions and readings are written in parts, with a checkpoint now and
then: a run that was killed goes on from the last one, and gives the same bits as if it had not been. Scoring goes
through the parts (``emphatic.nexting.scoring``). Nothing in memory grows with the rows but one bit a question.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from emphatic.common.locks import hold_folder
from emphatic.features import Features
from emphatic.hordes.horde import BLOCK, Horde
from emphatic.hordes.ridges import LIMIT
from emphatic.learning.inputs import Active
from emphatic.learning.returns import UndiscountedWarning
from emphatic.nexting.derived import Derived
from emphatic.nexting.first_rows import FIRST, close, keep_first_rows
from emphatic.nexting.reading_facts import check_rows, reading_facts
from emphatic.nexting.readings import KeptReadings, ReadingCounts, make_features
from emphatic.nexting.related import expected_size, make_makers, shares
from emphatic.nexting.row_digest import RowDigest
from emphatic.nexting.scoring import Scoring
from emphatic.nexting.settings import ENGINE, Settings
from emphatic.nexting.single_answers import differences, write_answers
from emphatic.nexting.stopping import StopRequest, catch_stop
from emphatic.nexting.unfinished import Unfinished
from emphatic.tables import Clock, Hold
from emphatic.tables.opening import open_source
from emphatic.tables.table_errors import Caller

__all__ = ["Nexting", "Progress"]

Progress = Callable[[str, int, int], None]
"""Called with the phase, how much is done, and of how much: 0 while that is not known."""

_log = logging.getLogger(__name__)

#: Seconds of work that a killed run may lose.
SAVE = 10.0
#: Numbers that wait to be written, at most: what keeps memory flat.
WAITING = 1 << 20
#: How predictions are written.
_PARQUET: dict[str, Any] = {"compression": "zstd", "write_page_checksum": True}


@dataclass
class Nexting:
    """A run of ``emphatic nexting`` on one table."""

    source: Any
    settings: Settings
    out: Path
    progress: Progress = lambda phase, done, total: None
    offline: bool = True
    announce: Callable[[str], None] = lambda text: None
    seconds: dict[str, float] = field(default_factory=dict)

    def open(self) -> Nexting:
        """Look at the table, and fill in the settings that were left out."""
        began = time.perf_counter()
        self.table = keep_first_rows(
            open_source(
                self.source, Caller("run", "data"), time=self.settings.time, delimiter=self.settings.delimiter,
                sort=bool(self.settings.sort), pivot=self.settings.pivot, words=self.settings.words(),
                topics=self.settings.topics,
            )
        )  # fmt: skip
        self.rows = self._count()
        if self.rows < 3:
            few = "1 row is" if self.rows == 1 else f"{self.rows} rows are"
            raise ValueError(f"{self.table.name}: {few} too few to learn from; at least 3 are needed.")
        self.settings = self.settings.filled(self.table, self.rows)
        check_rows(self.table.name, self.rows, self.settings.horizons or (), self.settings.gammas(self.table))
        self._spend("reading", began)
        signals, horizons = self.settings.predict or (), self.settings.horizons or ()
        _log.info(
            "%s: %d rows; predicting %s at %s", self.table.name, self.rows, ", ".join(signals),
            ", ".join(map(str, horizons)),
        )  # fmt: skip
        return self

    def run(self, resume: bool = False) -> list[dict[str, Any]]:
        """Learn, score, and write all four files; returns what ``summary.json`` holds."""
        self.unfinished = Unfinished(self.out)
        with hold_folder(self.out):
            try:
                return self._run(resume)
            finally:
                if hasattr(self, "table"):
                    close(self.table)

    def _run(self, resume: bool) -> list[dict[str, Any]]:
        self.open()
        self._identity, self._digest = self._identify(), RowDigest()  # before the first rows are let go
        state = self._load_unfinished() if resume else None
        try:
            if state is None:
                self.unfinished.begin()
            # Scores of readings near the largest number may overflow; a γ that varies may be 1 for long.
            with np.errstate(all="ignore"), warnings.catch_warnings():
                warnings.simplefilter("ignore", UndiscountedWarning)
                began = time.perf_counter()
                if state is None:
                    self.begin()
                else:
                    self.horde, self.clock, self.counts = state
                    self._initial = [maker.save() for maker in self._warm_up().makers]
                self.derived = self._derive()
                self.announce(expected_size(self.horde, self.rows).text(self.settings))
                with catch_stop() as request:
                    self._learn(began, request)
                self._spend("learning", began)
                self._log_learning()
                began = time.perf_counter()
                self._score()
                self._spend("scoring", began)
                _log.info("scored in %.1f s", self.seconds["scoring"])
                self._write()
                _log.info("wrote %s", self.out)
        except BaseException as error:
            # What an interrupted run leaves is there to resume from; an error leaves only what was there before.
            if not self._is_resumable(error, state is not None):
                self.unfinished.give_up()
            if isinstance(error, OSError) and error.strerror and not error.filename:
                error.filename = str(self.out)  # a full disk does not say which
            raise
        return self.summary

    def _is_resumable(self, error: BaseException, resumed: bool) -> bool:
        """Whether what the run leaves after this error is there to resume from."""
        return (resumed or not isinstance(error, Exception)) and self.unfinished.checkpoint.exists()

    def _log_learning(self) -> None:
        _log.info("learned from %d rows in %.1f s", self.rows, self.seconds["learning"])
        for dropped in self.table.dropped.facts():
            _log.warning(
                "%s: rows dropped: %d, the first at line %d: %s", self.table.name, dropped["count"], dropped["first"],
                dropped["why"],
            )  # fmt: skip
        if self.frozen:
            _log.warning("%d of %d learners are frozen after diverging", self.frozen, self.learners)

    #: Why no single answers are scored, where none are.
    without_answers: ClassVar[str] = "with one rate the learner's prediction is the answer"

    @property
    def learners(self) -> int:
        """How many there are."""
        return sum(learner.K or 1 for learner in self.horde.learners)

    @property
    def frozen(self) -> int:
        """How many of them have diverged, and stay as they were."""
        return sum(int(learner.frozen.sum()) for learner in self.horde.learners)

    def _spend(self, phase: str, began: float) -> None:
        self.seconds[phase] = self.seconds.get(phase, 0.0) + time.perf_counter() - began

    def _count(self) -> int:
        """The rows of the table, by reading it through where it does not say."""
        if self.table.rows is not None:
            return self.table.rows
        rows = 0
        for length in self.table.lengths():
            rows += length
            self.progress("reading", rows, 0)
        return rows

    def _check_rows(self, rows: int) -> None:
        if rows != self.rows:
            raise ValueError(f"{self.table.name}: the table changed while it was read: {self.rows} rows, then {rows}.")

    # ------------------------------------------------------------------ learning

    def begin(self) -> Nexting:
        """Features and learners as they are before the first row."""
        self.clock = self.table.clock()
        self.counts = ReadingCounts.none(len(self.table.names))
        self.horde = self._warm_up()
        self._initial = [maker.save() for maker in self.horde.makers]
        return self

    def _warm_up(self) -> Horde:
        clock = self.table.clock()
        return Horde(
            self.settings.gvfs(), make_makers(self.settings), self.settings.rule,
            rates=self.settings.rates, stepsize=self.settings.stepsize, step=None if clock is None else clock.step,
            least_squares=self.settings.least_squares, engine=ENGINE,
        ).warm_up(self.table, self.settings.rows_to_warm_up(self.table, self.rows))  # fmt: skip

    def _derive(self) -> Derived:
        """What is derived from the predictions, as it is after the rows that parts have been written of."""
        derived = Derived(self.horde, self.settings.coverage, self.settings.false_alarm_rate)
        for begin in self.unfinished.begins("readings"):
            readings = KeptReadings.from_table(self.unfinished.read("readings", begin), self.table.categories)
            table = self.unfinished.read("predictions", begin)
            predictions = np.stack([table.column(name).to_numpy() for name in self.horde.names], axis=1)
            derived(predictions, readings.values, readings.gap)
        return derived

    def _features(self, which: int) -> Features:
        """One of the makers of features as it was before the first row."""
        return Features.load(*self._initial[which])

    def _load_unfinished(self) -> tuple[Horde, Clock | None, ReadingCounts] | None:
        """The state of an unfinished run; None if there is none to resume."""
        if not self.unfinished.checkpoint.exists():
            if self.unfinished.begun or not (self.out / "model.safetensors").exists():
                return None
            raise ValueError(f"{self.out}: nothing to resume: the run there is finished.")
        horde, more = self.unfinished.load()
        if (
            more.get("settings") != self.settings.table()
            or more.get("table") != self._identity | {"is": more.get("table", {}).get("is")}
            or ("run" in more and not self._has_read(horde.rows, more))
        ):
            raise ValueError(
                f"{self.out}: the unfinished run there is of another table or with other settings. "
                "Resume with the same, or start again with --overwrite."
            )
        if "counts" not in more or "run" not in more:
            raise ValueError(
                f"{self.out}: the unfinished run there is of an earlier version. Start again with --overwrite."
            )
        self.seconds["learning"] = more["seconds"]
        self.unfinished.drop(horde.rows)
        clock = None if more["clock"] is None else Clock.restore(more["clock"])
        return horde, clock, ReadingCounts(**more["counts"])

    def _identify(self) -> dict[str, Any]:
        """What tells this table from another, before its rows are read; and an id for the run."""
        first = RowDigest()
        first.add(next(self.table.blocks(FIRST)))
        size = os.path.getsize(self.source) if isinstance(self.source, str | os.PathLike) else None
        names, categories = list(self.table.names), list(self.table.categories)
        identity = {"rows": self.rows, "names": names, "categories": categories, "bytes": size}
        text = json.dumps([identity, self.settings.table(), first.hexdigest()])
        self.unfinished.run_id = hashlib.sha256(text.encode()).hexdigest()[:32]
        return identity

    def _has_read(self, rows: int, more: dict[str, Any]) -> bool:
        """Whether these are the rows that an unfinished run has read: all of them are read again."""
        for block in self.table.blocks(BLOCK):
            self._digest.add(block, rows - self._digest.rows)
            self.progress("checking", self._digest.rows, rows)
            if self._digest.rows >= rows:
                break
        return (self._digest.hexdigest(), self.unfinished.run_id) == (more["table"]["is"], more["run"])

    def _learn(self, began: float, request: StopRequest) -> None:
        """All rows from where the horde stands; parts and checkpoints as it goes, and one before it stops."""
        spent = self.seconds.get("learning", 0.0)
        begin, saved = self.horde.rows, time.perf_counter()
        if begin == self.rows:  # stopped while scoring
            return
        readings: list[KeptReadings] = []
        answers: list[NDArray[np.float64]] = []
        numbers: list[NDArray[np.int64]] = []
        singles: list[dict[str, NDArray[np.float32]]] = []
        for block, predictions in self.horde.blocks(self.table, self.clock, begin):
            self.counts.gaps += int(block.gap.sum())
            numbers.append(block.numbers)
            readings.append(KeptReadings(block.values, block.time, block.gap, block.labels))
            answers.append(predictions)
            if self.horde.rows > self.rows // 2:  # where they are scored
                singles.append(differences(self.horde.answers, predictions))
            self.counts.add(block)
            self._digest.add(block)
            rows, now = self.horde.rows, time.perf_counter()
            self.progress("learning", rows, self.rows)
            width = predictions.shape[1] * (1 + len(self.horde.answers)) + block.values.shape[1] + len(block.labels)
            full = (rows - begin) * width >= WAITING
            due = now - saved >= SAVE or request.signal is not None
            # Always after whole blocks, but for the end: a run that goes on from here cuts the rows at the same places.
            if full or due or rows == self.rows:
                write_answers(self.unfinished, rows, singles)
                self._write_part(begin, KeptReadings.join(readings), np.concatenate(answers), np.concatenate(numbers))
                begin, readings, answers, numbers, singles = rows, [], [], [], []
                if due or rows == self.rows:
                    more = self._more(spent + now - began) | {"counts": asdict(self.counts)}
                    self.unfinished.save(self.horde, more | self.derived.state())
                    saved = time.perf_counter()
                    request.stop()
        self._check_rows(self.horde.rows)

    def _more(self, seconds: float) -> dict[str, Any]:
        """What a run needs to go on, beside the horde."""
        clock = None if self.clock is None else self.clock.state()
        when = [self.table.time, self.table.a_second]
        table = self._identity | {"is": self._digest.hexdigest()}
        more: dict[str, Any] = {
            "settings": self.settings.table(),
            "table": table,
            "run": self.unfinished.run_id,
            "clock": clock,
        }
        more["seconds"] = seconds
        return more | {"when": when, "notation": self.table.notation.config()}

    def _write_part(
        self, begin: int, readings: KeptReadings, predictions: NDArray[np.float64], numbers: NDArray[np.int64]
    ) -> None:
        """A part of the readings, then of ``predictions.parquet``; ``numbers`` are those of the rows in the file."""
        columns: dict[str, Any] = {"row": numbers}
        if readings.time is not None:
            columns["time"] = _stamps(readings.time, self.table.zone) if self.table.dated else readings.time
        columns |= dict(zip(self.horde.names, predictions.T, strict=True))
        columns |= self.derived.columns(self.derived(predictions, readings.values, readings.gap))
        self.unfinished.write("readings", begin, readings.columns())
        self.unfinished.write("predictions", begin, columns)

    # ------------------------------------------------------------------ scoring

    def _score(self) -> None:
        """Score what was kept, and write the predictions as one file on the way."""
        import pyarrow.parquet as pq

        names, horizons = self.settings.predict or (), self.settings.horizons or ()
        plain = self.horde.names[: len(names) * len(horizons)]
        scoring = Scoring(
            self.unfinished, self.table.names, self.table.categories, names, horizons,
            self.horde.gamma[: len(horizons)], plain, self.rows, self.counts, self._features,
            shares(self.settings, plain), self.table.dated, self.offline, self.settings.coverage,
            self.derived.intervals.calibrated,
            lambda done, total: self.progress("scoring", done, total),
        )  # fmt: skip
        with ExitStack() as stack:
            writer: Any = None

            def write(part: Any) -> None:
                nonlocal writer
                if writer is None:
                    path = self.unfinished.folder / "predictions"
                    writer = stack.enter_context(pq.ParquetWriter(path, part.schema, **_PARQUET))
                writer.write_table(part)

            found = scoring.score(write)
        for score in found.summary:
            if not score["answers"]:
                score["reasons"]["answers"] = self.without_answers
            elif not any(name.startswith("ridge") for name in score["answers"]):
                score["reasons"]["answers"] = (
                    f"no ridges: more than {LIMIT:,} features would take too long to solve for"
                )
        self.summary, self.curves, self.plots, self.constant = found.summary, found.curves, found.plots, found.constant
        self.alarms = found.alarms
        self.upcoming, self.worst, (self.first_time, self.last_time) = found.upcoming, found.worst, found.span

    def readings(self) -> tuple[NDArray[np.float64], NDArray[np.bool_], NDArray[np.bool_]]:
        """The signals to predict, (T, C), the last reading held; which of them are missing; and rows after a gap, (T,).

        All rows at once, for those who need them so.
        """
        at = [self.table.names.index(name) for name in self.settings.predict or ()]
        hold = Hold(len(self.table.names))
        parts = [(*hold.fill(rows.values), rows.gap) for rows in self._rows()]
        held, missing, gap = (np.concatenate([part[i] for part in parts]) for i in range(3))
        self._check_rows(len(gap))
        return held[:, at], missing[:, at], gap

    def phi(self) -> Iterator[Active]:
        """The features of the whole table, from the start; where questions have their own, those of the first."""
        maker, hold = self._features(0), Hold(len(self.table.names))
        for rows in self._rows():
            yield Active(*make_features(maker, rows, *hold.fill(rows.values)))

    def _rows(self) -> Iterator[KeptReadings]:
        """The table from the start, in blocks."""
        for block in self.table.blocks(BLOCK):
            yield KeptReadings(block.values, block.time, block.gap, block.labels)

    # ------------------------------------------------------------------ writing

    def _write(self) -> None:
        """The other files, then all four in their places."""
        from emphatic.nexting import account

        began, folder = time.perf_counter(), self.unfinished.folder
        self.reading = reading_facts(self)
        self.summary[0]["reading"] = self.reading
        text = json.dumps(self.summary, indent=1, allow_nan=False, ensure_ascii=False)
        (folder / "summary").write_text(text, "utf-8")
        self._spend("report", began)
        (folder / "report").write_text(account.page(self), "utf-8")
        self.unfinished.finish(
            {"predictions": "predictions.parquet", "summary": "summary.json", "report": "report.html"}
        )


def _stamps(seconds: NDArray[np.float64], zone: str | None) -> Any:
    """Times as Arrow has them, in their zone if they have one."""
    import pyarrow as pa

    known = np.isfinite(seconds)
    micro = np.where(known, np.round(seconds * 1e6), 0).astype(np.int64)
    return pa.array(micro, mask=~known).cast(pa.timestamp("us", zone))
