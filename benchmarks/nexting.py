"""The nexting suite: learning from the log that comes with the package, its intervals, and a pipe of readings."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from operator import itemgetter
from pathlib import Path
from time import perf_counter, process_time, thread_time
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

import emphatic
from benchmarks.cases import Case, Effort, run_cases
from benchmarks.intervals import Intervals
from benchmarks.measure import Gate, gate
from benchmarks.report import Row
from emphatic.common.parts import PartStore
from emphatic.engines.sparse.sparse_many import SparseMany
from emphatic.features import Features
from emphatic.hordes.blend import Combination
from emphatic.hordes.horde import Horde
from emphatic.hordes.ridges import Ridges
from emphatic.hordes.seasons import Seasons
from emphatic.nexting.intervals import Derived
from emphatic.nexting.learning import make_horde
from emphatic.nexting.settings import ENGINE, Settings
from emphatic.scores import offline
from emphatic.scores.measures import LogScores


def run(quick: bool = False) -> tuple[list[Gate], list[Row]]:
    """Every gate and every row; ``quick`` only shows that the suite works."""
    return run_cases(cases(quick), Effort(1, 0.0) if quick else Effort(3, 0.0))


def cases(quick: bool) -> Sequence[Case]:
    if quick:
        return [
            Log(3_000),
            Signals(2, 40, 600),
            Hindsight(4, 300),
            LongLog(500, 3_000),
            TwoThreads(1_200),
            Wide(34, 200),
            Intervals(16_000),
            Pipe(2, 700),
        ]
    return [
        Log(None),
        Signals(4, 64, 10_000),
        Hindsight(32, 1_000),
        LongLog(100_000, 300_000),
        TwoThreads(None),
        Wide(500, 4_000),
        Intervals(None),
        Pipe(20, 5_000),
    ]


def table(rows: int | None) -> emphatic.streams.Table:
    whole = emphatic.streams.open_table(emphatic.data.household())
    if rows is None:
        return whole
    block = next(whole.blocks(rows))
    columns = {name: block.values[:, i] for i, name in enumerate(whole.names)}
    return emphatic.streams.open_table(columns | {"time": block.time})


def horde(log: emphatic.streams.Table) -> Horde:
    assert log.rows is not None
    settings = Settings(horizons=("2min", "15min", "3h", "24h")).filled(log, log.rows)
    clock = log.clock()
    made = as_in_nexting(settings, step=clock.step if clock else None)
    return made.warm_up(log, settings.rows_to_warm_up(log, log.rows))


def as_in_nexting(settings: Settings, step: float | None = None) -> Horde:
    """The horde that ``emphatic nexting`` makes."""
    features = Features.from_config(settings.features or ())
    return Horde(settings.gvfs(), features, step=step, least_squares=settings.least_squares, engine=ENGINE)


@dataclass(frozen=True)
class Log:
    """The household's log, 7 signals at 4 horizons with default features: features, learners and blend together."""

    T: int | None

    @property
    def gate(self) -> str:
        return "log: blocks as row by row"

    def gates(self) -> Iterator[Gate]:
        log = table(1_000)
        made, one = horde(log), horde(log)
        block = next(log.blocks())
        assert block.time is not None
        rows = [one.observe(values, time=when) for values, when in zip(block.values, block.time, strict=True)]
        yield gate(self.gate, made.run(log), np.array(rows))

    def rows(self, effort: Effort) -> Iterator[Row]:
        log, best = table(self.T), float("inf")
        for _ in range(effort.rounds):
            made = horde(log)
            began = perf_counter()
            for _ in made.blocks(log):
                pass
            best = min(best, perf_counter() - began)
        yield Row(
            f"nexting on a log, {made.rows:,} rows × 7 signals × 4 horizons, default features",
            f"learning, {made.learner.K} learners of {made.features.n} features",
            gates=(self.gate,),
            ours=best,
            unit="s",
            ratio=best,
            at_most=10,
            note=made.learner.engine,
        )


@dataclass(frozen=True)
class Signals:
    """What a question costs where there are many signals, beside what it costs where there are few."""

    few: int
    many: int
    T: int

    @property
    def gate(self) -> str:
        return "many signals: the same in blocks of any length"

    def made(self, signals: int) -> tuple[Horde, emphatic.streams.Table]:
        """A horde at 4 horizons, warmed up, and its log: waves and walks, each in about eight of the signals."""
        rng, t, causes = np.random.default_rng(0), np.arange(self.T)[:, None], max(2, signals // 8)
        waves = np.sin(2 * np.pi * t / rng.uniform(20, 300, causes))
        waves += 0.05 * np.cumsum(rng.normal(size=(self.T, causes)), axis=0)
        x = waves[:, np.arange(signals) % causes] + 0.2 * rng.normal(size=(self.T, signals))
        log = emphatic.streams.open_table({f"S{i}": x[:, i] for i in range(signals)})
        settings = Settings(horizons=(2, 9, 36, 144)).filled(log, self.T)
        return make_horde(settings, None).warm_up(log, settings.rows_to_warm_up(log, self.T)), log

    def gates(self) -> Iterator[Gate]:
        (one, log), (other, _) = self.made(self.many), self.made(self.many)
        rows = next(log.blocks(512)).values
        pieces = [
            other.run(dict(zip(log.names, rows[begin : begin + 100].T, strict=True))) for begin in range(0, 512, 100)
        ]
        yield gate(self.gate, one.run(dict(zip(log.names, rows.T, strict=True))), np.concatenate(pieces))

    def rows(self, effort: Effort) -> Iterator[Row]:
        cost = {}
        for signals in (self.few, self.many):
            best = float("inf")
            for _ in range(effort.rounds):
                horde, log = self.made(signals)
                began = process_time()
                horde.run(log)
                best = min(best, process_time() - began)
            cost[signals] = 1e6 * best / (self.T * len(horde.questions))
        yield Row(
            f"nexting on many signals, {self.T:,} rows × 4 horizons",
            f"processor time of a row and question, {self.many} signals",
            gates=(self.gate,),
            ours=cost[self.many],
            alternative=cost[self.few],
            versus=f"{self.few} signals",
            unit="µs",
            ratio=cost[self.many] / cost[self.few],
            at_most=1.5,
        )


#: Readings of a pipe that are not timed.
WARM_UP = 500


@dataclass(frozen=True)
class Hindsight:
    """What the offline fit costs beside learning, where a short log has many features."""

    signals: int
    T: int

    @property
    def gate(self) -> str:
        return "offline fit: fewer rows than features as by least squares"

    def gates(self) -> Iterator[Gate]:
        rng, T, n = np.random.default_rng(0), 160, 120
        Phi, index = rng.random((T, n)), np.tile(np.arange(n), (T, 1))
        G = rng.normal(size=n) @ Phi.T + rng.normal(size=T)
        blocks = partial(iter, [emphatic.Active(index, Phi)])
        made, (r,) = offline(blocks, n, G[None], np.ones((1, T), bool), 1)
        centred, level = Phi[: T // 2] - Phi[: T // 2].mean(axis=0), G[: T // 2].mean()
        below = np.sqrt(r * np.mean(Phi[: T // 2] ** 2)) * np.eye(n)
        theta = np.linalg.lstsq(np.vstack([centred, below]), np.append(G[: T // 2] - level, np.zeros(n)), rcond=None)[0]
        yield gate(self.gate, made[0], (Phi[T // 2 :] - Phi[: T // 2].mean(axis=0)) @ theta + level)

    def rows(self, effort: Effort) -> Iterator[Row]:
        _, log = Signals(0, 0, self.T).made(self.signals)
        columns = dict(zip(log.names, next(log.blocks(self.T)).values.T, strict=True))
        learning, seconds = float("inf"), {True: float("inf"), False: float("inf")}
        for _ in range(effort.rounds):
            horde, log = Signals(0, 0, self.T).made(self.signals)
            began = process_time()
            horde.run(log)
            learning = min(learning, process_time() - began)
            for fitted in (True, False):
                with tempfile.TemporaryDirectory() as out:
                    began = process_time()
                    emphatic.nexting.run(
                        columns, horizons=[2, 9, 36, 144], exponential_only=True, offline=fitted, out=out
                    )
                    seconds[fitted] = min(seconds[fitted], process_time() - began)
        fit = max(0.0, seconds[True] - seconds[False])
        yield Row(
            f"the offline fit, {self.T:,} rows × {self.signals} signals × 4 horizons",
            "processor time of the fit",
            gates=(self.gate,),
            ours=fit,
            alternative=learning,
            versus="learning",
            unit="s",
            ratio=fit / learning,
            at_most=1,
        )


@dataclass(frozen=True)
class Wide:
    """A whole run on a log of very many signals at 2 horizons, from arrays to report."""

    signals: int
    T: int

    def gates(self) -> Iterator[Gate]:
        return iter(())  # that of ``Signals``

    def rows(self, effort: Effort) -> Iterator[Row]:
        _, log = Signals(0, 0, self.T).made(self.signals)
        columns = dict(zip(log.names, next(log.blocks(self.T)).values.T, strict=True))
        with tempfile.TemporaryDirectory() as out:
            began = perf_counter()
            emphatic.nexting.run(columns, horizons=[2, 9], out=out)
            seconds = perf_counter() - began
        yield Row(
            f"nexting on very many signals, {self.T:,} rows × {self.signals} signals × 2 horizons",
            "the whole run, scores and report included",
            gates=(Signals(0, 0, 0).gate,),
            ours=seconds,
            unit="s",
            ratio=seconds,
            at_most=60,
        )


#: The parts of a run on a log, and the function that each is.
PARTS = {
    "features, once to learn and once for the offline fit": (Features, "activate"),
    "learners": (SparseMany, "take"),
    "ridges": (Ridges, "__call__"),
    "seasons": (Seasons, "__call__"),
    "combining the candidates": (Combination, "__call__"),
    "intervals and alarms": (Derived, "__call__"),
    "writing parts": (PartStore, "write"),
    "reading parts": (PartStore, "read"),
    "baselines, verdicts and scores": (LogScores, "add"),
}


@contextmanager
def timed_parts() -> Iterator[dict[str, float]]:
    """The processor time of each of ``PARTS`` within the block, in whatever thread, in seconds."""
    seconds, functions = dict.fromkeys(PARTS, 0.0), {name: getattr(*where) for name, where in PARTS.items()}

    def timed(name: str) -> Any:
        def call(*arguments: Any, **keywords: Any) -> Any:
            began = thread_time()
            try:
                return functions[name](*arguments, **keywords)
            finally:
                seconds[name] += thread_time() - began

        return call

    for name, where in PARTS.items():
        setattr(*where, timed(name))
    try:
        yield seconds
    finally:
        for name, where in PARTS.items():
            setattr(*where, functions[name])


@dataclass(frozen=True)
class LongLog:
    """What a row of a long log costs, 3 signals × 4 horizons, from file to report: by two lengths."""

    few: int
    many: int

    @property
    def gate(self) -> str:
        return "long log: as the horde learns from it"

    def seconds(self, T: int, folder: Path) -> float:
        """The processor time of ``emphatic nexting --exponential-only`` on so many rows."""
        rng, t = np.random.default_rng(0), np.arange(T)
        columns: dict[str, Any] = {
            f"S{i}": np.sin(2 * np.pi * t / period) + 0.2 * rng.normal(size=T)
            for i, period in enumerate((50, 300, 1_440))
        }
        columns["time"] = (60_000 * t).astype("datetime64[ms]")
        pq.write_table(pa.table(columns), folder / "log.parquet")
        began = process_time()
        emphatic.nexting.run(
            folder / "log.parquet",
            horizons=["10min", "1h", "6h", "1d"],
            exponential_only=True,
            out=folder / "out",
            overwrite=True,
        )
        return process_time() - began

    def gates(self) -> Iterator[Gate]:
        with tempfile.TemporaryDirectory() as folder:
            self.seconds(3_000, Path(folder))
            predictions = pq.read_table(Path(folder) / "out" / "predictions.parquet")
            log = emphatic.streams.open_table(Path(folder) / "log.parquet")
            settings = Settings(horizons=("10min", "1h", "6h", "1d"), exponential_only=True).filled(log, 3_000)
            made = make_horde(settings, 60.0).warm_up(log, settings.rows_to_warm_up(log, 3_000))
            names = [f"{question.name}" for question in made.questions]
            written = np.column_stack([predictions[name].to_numpy() for name in names])
            yield gate(self.gate, written, made.run(log).astype(np.float32))

    def rows(self, effort: Effort) -> Iterator[Row]:
        with tempfile.TemporaryDirectory() as folder:
            few, many = (
                min(self.seconds(T, Path(folder)) for _ in range(min(2, effort.rounds))) for T in (self.few, self.many)
            )
            with timed_parts() as parts:
                whole = self.seconds(self.few, Path(folder))
        each = 1e6 * (many - few) / (self.many - self.few)
        section = f"a long log, 3 signals × 4 horizons, exponential only; from {self.few:,} to {self.many:,} rows"
        what = "processor time of a row; 9.6 µs are 8 minutes for 50 million"
        yield Row(section, what, gates=(self.gate,), ours=each, ratio=each, at_most=9.6)
        section = f"where the time of {self.few:,} rows of it goes; ratio is the share of the whole run"
        for what, seconds in parts.items():
            yield Row(section, what, gates=(self.gate,), ours=1e6 * seconds / self.few, ratio=seconds / whole)


@dataclass(frozen=True)
class TwoThreads:
    """The whole of ``emphatic nexting`` on the household's log with one thread, and with two on two idle cores."""

    T: int | None

    @property
    def gate(self) -> str:
        return "two threads: the predictions of one"

    def measure(self, threads: int, exponential_only: bool) -> tuple[float, NDArray[np.float64], float]:
        """The seconds of a run, its predictions, and the megabytes of their file."""
        log = pq.read_table(emphatic.data.household())[: self.T]
        with tempfile.TemporaryDirectory() as out:
            began = perf_counter()
            result = emphatic.nexting.run(log, exponential_only=exponential_only, out=out, threads=threads)
            seconds = perf_counter() - began
            predictions = np.column_stack([result.predictions[name].to_numpy() for name in result.model.names])
            size = (Path(out) / "predictions.parquet").stat().st_size / 1e6
        return seconds, predictions, size

    def gates(self) -> Iterator[Gate]:
        small = TwoThreads(1_200)
        yield gate(self.gate, small.measure(2, True)[1], small.measure(1, True)[1])

    def rows(self, effort: Effort) -> Iterator[Row]:
        for exponential_only in (False, True):
            rounds = range(min(2, effort.rounds))
            one, two = (min((self.measure(n, exponential_only) for _ in rounds), key=itemgetter(0)) for n in (1, 2))
            section = f"`emphatic nexting` on the household's log{', exponential only' if exponential_only else ''}"
            most = 52 if exponential_only else None  # (as it was in float64 before the values at each horizon)
            what = "`predictions.parquet`"
            yield Row(section, what, gates=(self.gate,), ours=one[2], unit="MB", ratio=one[2], at_most=most)
            yield Row(
                section,
                "with two threads, and with one",
                gates=(self.gate,),
                ours=two[0],
                alternative=one[0],
                versus="one thread",
                unit="s",
                ratio=one[0] / two[0],
                at_least=1.7,
            )


@dataclass(frozen=True)
class Pipe:
    """``emphatic nexting -`` as a process: JSON lines in, JSON lines out, learning all the while."""

    signals: int
    T: int

    @property
    def gate(self) -> str:
        return "pipe: as the horde observes"

    def lines(self) -> list[bytes]:
        rng, t = np.random.default_rng(0), np.arange(self.T)[:, None]
        x = np.sin(t / (5 + np.arange(self.signals))) + 0.1 * rng.normal(size=(self.T, self.signals))
        names = [f"S{i}" for i in range(self.signals)]
        return [json.dumps(dict(zip(names, row.round(4).tolist(), strict=True))).encode() + b"\n" for row in x]

    def outcome(self, model: Path) -> tuple[list[bytes], float]:
        """The lines out, and the seconds from the first of them to the last."""
        command = [
            sys.executable,
            "-m",
            "emphatic.cli",
            "nexting",
            "-",
            "--model",
            str(model),
            "--horizons",
            "2,9,36,144",
            "--warm-up",
            str(WARM_UP),
        ]
        pipe = subprocess.PIPE
        with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL) as process:
            assert process.stdin is not None
            assert process.stdout is not None
            text, sink = b"".join(self.lines()), process.stdin

            def feed() -> None:
                sink.write(text)
                sink.close()

            threading.Thread(target=feed, daemon=True).start()
            for _ in range(WARM_UP - 2):  # answered by persistence, from the third on
                process.stdout.readline()
            out, began = [process.stdout.readline()], perf_counter()
            out += process.stdout.readlines()
            return out, perf_counter() - began

    def gates(self) -> Iterator[Gate]:
        with tempfile.TemporaryDirectory() as folder:
            out, _ = self.outcome(Path(folder) / "m")
            made: list[Any] = [json.loads(line)["predictions"] for line in out]
        lines = [json.loads(line) for line in self.lines()]
        names = list(lines[0])
        first = emphatic.streams.open_table({name: [line[name] for line in lines[:WARM_UP]] for name in names})
        settings = Settings(horizons=(2, 9, 36, 144)).filled(first, WARM_UP)
        other = as_in_nexting(settings).warm_up(first, WARM_UP)
        other.run(first)
        want = np.array([other.observe(line) for line in lines[WARM_UP:]])
        yield gate(self.gate, np.array([[v for at in one.values() for v in at.values()] for one in made]), want)

    def rows(self, effort: Effort) -> Iterator[Row]:
        best = float("inf")
        for _ in range(effort.rounds):
            with tempfile.TemporaryDirectory() as folder:
                best = min(best, self.outcome(Path(folder) / "m")[1])
        rate = (self.T - WARM_UP - 1) / best
        yield Row(
            f"nexting on a pipe, {self.signals} signals × 4 horizons",
            "readings a second, a process with JSON in and out",
            gates=(self.gate,),
            ours=rate,
            unit="readings/s",
            ratio=rate,
            at_least=1_000,
        )
