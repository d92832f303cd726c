"""The nexting suite: what a run on a log costs, with few rows and many, few signals and many, and what it needs."""

from __future__ import annotations

import inspect
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import process_time
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import emphatic
from benchmarks.development_logs import first_rows
from benchmarks.measure import Case, Effort, Gate, gate
from benchmarks.report import Row
from emphatic.nexting.runs.predictor import Prediction, Predictor
from emphatic.nexting.runs.settings import Settings

EFFORT = Effort(3, 0.0)
HORIZONS = (2, 9, 36, 144)


def cases(quick: bool) -> Sequence[Case]:
    """All cases; ``quick`` makes them small."""
    if quick:
        return [Log(3_000), Signals(2, 8, 600), Wide(20, 600), LongLog(500, 3_000)]
    return [Log(None), Signals(4, 64, 4_000), Wide(500, 4_000), LongLog(20_000, 100_000)]


def run(log: Any, **options: Any) -> emphatic.nexting.NextingResult:
    """A run that scores nothing in hindsight, by this version or an earlier one."""
    if "offline" in inspect.signature(emphatic.nexting.run).parameters:
        options["offline"] = False
    return emphatic.nexting.run(log, **options)


def numbers(result: emphatic.nexting.NextingResult, names: Sequence[str]) -> Any:
    """Columns of the predictions, 0 where there is no number."""
    return np.nan_to_num(np.column_stack([result.predictions[name].to_numpy() for name in names]))


def cost(effort: Effort, *arguments: Any, **options: Any) -> float:
    """The least processor time of a run."""
    best = np.inf
    for _ in range(effort.rounds):
        began = process_time()
        run(*arguments, **options)
        best = min(best, process_time() - began)
    return float(best)


@dataclass(frozen=True)
class Log:
    """The household's log, 7 signals at 4 horizons."""

    T: int | None
    horizons = ("2min", "15min", "3h", "24h")
    gate = "log: in one piece as reading by reading"

    def gates(self) -> Iterator[Gate]:
        x = np.sin(np.arange(600) / 7.0) + 0.1 * np.cos(np.arange(600.0) ** 2)
        predictor = Predictor(Settings(horizons=HORIZONS), warm_up=500)
        outcomes = [predictor.take([(t + 1, {"x": float(x[t])})])[0] for t in range(600)]
        want = np.array([one.line for one in outcomes[500:] if isinstance(one, Prediction)])
        whole = Predictor(Settings(horizons=HORIZONS), warm_up=500)
        again = whole.take((t + 1, {"x": float(x[t])}) for t in range(600))
        got = np.array([one.line for one in again[500:] if isinstance(one, Prediction)])
        yield gate(self.gate, (got == want).astype(float), np.ones(100), 0.0)

    def rows(self, effort: Effort) -> Iterator[Row]:
        log = emphatic.nexting.data.household() if self.T is None else first_rows(self.T)
        seconds, rows = cost(effort, log, horizons=self.horizons), run(log, horizons=self.horizons).rows
        yield Row(
            f"a run on a log, {rows:,} rows × 7 signals × 4 horizons",
            "processor time of a row, signal and horizon",
            gates=(self.gate,),
            ours=1e6 * seconds / (rows * 28),
            unit="µs",
            ratio=seconds,
            note=f"{seconds:.1f} s in all",
        )


def waves(signals: int, T: int) -> dict[str, Any]:
    """Waves and walks, each in about eight of the signals."""
    rng, t, causes = np.random.default_rng(0), np.arange(T)[:, None], max(2, signals // 8)
    sources = np.sin(2 * np.pi * t / rng.uniform(20, 300, causes))
    sources += 0.05 * np.cumsum(rng.normal(size=(T, causes)), axis=0)
    x = sources[:, np.arange(signals) % causes] + 0.2 * rng.normal(size=(T, signals))
    return {f"S{i}": x[:, i] for i in range(signals)}


@dataclass(frozen=True)
class Signals:
    """What a question costs where there are many signals, beside what it costs where there are few."""

    few: int
    many: int
    T: int
    gate = "many signals: the same rows give the same numbers"

    def gates(self) -> Iterator[Gate]:
        log = waves(self.few, 600)
        names = [f"S0 at +{h}" for h in (2, 9)]
        first, again = (numbers(run(log, horizons=(2, 9)), names) for _ in range(2))
        yield gate(self.gate, again, first, 0.0)

    def rows(self, effort: Effort) -> Iterator[Row]:
        each = {
            signals: 1e6 * cost(effort, waves(signals, self.T), horizons=HORIZONS) / (self.T * signals * len(HORIZONS))
            for signals in (self.few, self.many)
        }
        section = f"many signals, {self.T:,} rows × {len(HORIZONS)} horizons"
        what = "processor time of a row, signal and horizon"
        yield Row(section, f"{what}, {self.few} signals", (self.gate,), each[self.few], unit="µs", ratio=each[self.few])
        yield Row(
            section,
            f"{what}, {self.many} signals",
            gates=(self.gate,),
            ours=each[self.many],
            alternative=each[self.few],
            versus=f"{self.few} signals",
            unit="µs",
            ratio=each[self.many] / each[self.few],
            at_most=1.5,
        )


@dataclass(frozen=True)
class Wide:
    """A table of very many signals at two horizons, in a process of its own: its seconds and its memory."""

    signals: int
    T: int
    gate = Signals.gate

    def gates(self) -> Iterator[Gate]:
        return iter(())

    def rows(self, effort: Effort) -> Iterator[Row]:
        program = (
            "import json, resource, time; from benchmarks.nexting import run, waves\n"
            "run(waves(2, 600), horizons=(2, 9))\n"
            f"log = waves({self.signals}, {self.T}); began = time.process_time()\n"
            "run(log, horizons=(2, 9)); seconds = time.process_time() - began\n"
            "print(json.dumps([seconds, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024]))"
        )
        found = [
            json.loads(subprocess.run([sys.executable, "-c", program], check=True, capture_output=True).stdout)
            for _ in range(min(2, effort.rounds))
        ]
        seconds, megabytes = (min(column) for column in zip(*found, strict=True))
        section = f"{self.signals} signals × {self.T:,} rows × 2 horizons"
        yield Row(section, "processor time", (self.gate,), seconds, unit="s", ratio=seconds)
        yield Row(section, "most memory", (self.gate,), megabytes, unit="MB", ratio=megabytes)


@dataclass(frozen=True)
class LongLog:
    """What a row of a long log costs, 3 signals × 4 horizons, from file to report: by two lengths."""

    few: int
    many: int
    gate = "long log: the file has what is kept in memory"
    horizons = ("10min", "1h", "6h", "1d")

    def seconds(self, T: int, folder: Path) -> float:
        """The processor time of ``emphatic nexting`` on so many rows."""
        rng, t = np.random.default_rng(0), np.arange(T)
        columns: dict[str, Any] = {
            f"S{i}": np.sin(2 * np.pi * t / period) + 0.2 * rng.normal(size=T)
            for i, period in enumerate((50, 300, 1_440))
        }
        columns["time"] = (60_000 * t).astype("datetime64[ms]")
        pq.write_table(pa.table(columns), folder / "log.parquet")
        began = process_time()
        run(folder / "log.parquet", horizons=self.horizons, out=folder / "out", overwrite=True)
        return process_time() - began

    def gates(self) -> Iterator[Gate]:
        with tempfile.TemporaryDirectory() as name:
            folder, names = Path(name), [f"S0 at +{h}" for h in self.horizons]
            self.seconds(3_000, folder)
            written = np.column_stack(
                [pq.read_table(os.fspath(folder / "out" / "predictions.parquet"))[name].to_numpy() for name in names]
            )
            kept = numbers(run(folder / "log.parquet", horizons=self.horizons), names)
            yield gate(self.gate, np.nan_to_num(written), kept, 0.0)

    def rows(self, effort: Effort) -> Iterator[Row]:
        with tempfile.TemporaryDirectory() as folder:
            few, many = (
                min(self.seconds(T, Path(folder)) for _ in range(min(2, effort.rounds))) for T in (self.few, self.many)
            )
        each = 1e6 * (many - few) / (self.many - self.few)
        yield Row(
            f"a long log, 3 signals × 4 horizons; from {self.few:,} to {self.many:,} rows",
            "processor time of a row",
            gates=(self.gate,),
            ours=each,
            unit="µs",
            ratio=each,
        )
