"""The nexting suite: what learning from a log costs, and what its intervals cover."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import NormalDist, median
from time import perf_counter, process_time
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import emphatic
from benchmarks.development_logs import first_rows
from benchmarks.measure import Case, Effort, Gate, gate
from benchmarks.report import Row
from emphatic.hordes.horde import Horde
from emphatic.nexting.intervals import Derived
from emphatic.nexting.learning import make_horde
from emphatic.nexting.settings import Settings
from emphatic.scores.measures import IntervalScores
from emphatic.scores.returns import Returns
from emphatic.tables import Hold, Table, open_table

EFFORT = Effort(3, 0.0)
HORIZONS = ("2min", "1h", "6h", "1d")
#: Those whose intervals are calibrated within the household's log.
CALIBRATED = 3
COVERAGE = 0.8


def cases(quick: bool) -> Sequence[Case]:
    """All cases; ``quick`` makes them small."""
    if quick:
        return [Log(3_000), Signals(2, 40, 600), LongLog(500, 3_000), Intervals(16_000)]
    return [Log(None), Signals(4, 64, 10_000), LongLog(100_000, 300_000), Intervals(None)]


def household(rows: int | None) -> Table:
    """The log that comes with the package, or its first rows."""
    return open_table(emphatic.data.household() if rows is None else first_rows(rows))


def warmed_up(log: Table, horizons: Sequence[int | str]) -> Horde:
    """The horde that ``emphatic nexting`` makes for a log."""
    assert log.rows is not None
    settings = Settings(horizons=tuple(horizons)).filled(log, log.rows)
    clock = log.clock()
    horde = make_horde(settings, clock.step if clock else None)
    return horde.warm_up(log, settings.rows_to_warm_up(log, log.rows))


@dataclass(frozen=True)
class Log:
    """The household's log, 7 signals at 4 horizons with default features: features, learners and blend together."""

    T: int | None
    horizons = ("2min", "15min", "3h", "24h")

    @property
    def gate(self) -> str:
        return "log: blocks as row by row"

    def gates(self) -> Iterator[Gate]:
        log = household(1_000)
        whole, single = (warmed_up(log, self.horizons) for _ in range(2))
        block = next(log.blocks())
        assert block.time is not None
        rows = [single.observe(values, time=when) for values, when in zip(block.values, block.time, strict=True)]
        yield gate(self.gate, whole.run(log), np.array(rows))

    def rows(self, effort: Effort) -> Iterator[Row]:
        log, best = household(self.T), float("inf")
        for _ in range(effort.rounds):
            horde = warmed_up(log, self.horizons)
            began = perf_counter()
            for _ in horde.blocks(log):
                pass
            best = min(best, perf_counter() - began)
        yield Row(
            f"nexting on a log, {horde.rows:,} rows × 7 signals × 4 horizons, default features",
            f"learning, {horde.learner.K} learners of {horde.features.n} features",
            gates=(self.gate,),
            ours=best,
            unit="s",
            ratio=best,
            at_most=10,
            note=horde.learner.engine,
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
    gate = "many signals: the same in blocks of any length"

    def gates(self) -> Iterator[Gate]:
        log = open_table(waves(self.many, self.T))
        once, pieces = (warmed_up(log, (2, 9, 36, 144)) for _ in range(2))
        x = next(log.blocks(512)).values

        def columns(rows: Any) -> dict[str, Any]:
            return dict(zip(log.names, rows.T, strict=True))

        want = [pieces.run(columns(x[begin : begin + 100])) for begin in range(0, 512, 100)]
        yield gate(self.gate, once.run(columns(x)), np.concatenate(want))

    def rows(self, effort: Effort) -> Iterator[Row]:
        cost = {}
        for signals in (self.few, self.many):
            log, best = open_table(waves(signals, self.T)), float("inf")
            for _ in range(effort.rounds):
                horde = warmed_up(log, (2, 9, 36, 144))
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


@dataclass(frozen=True)
class LongLog:
    """What a row of a long log costs, 3 signals × 4 horizons, from file to report: by two lengths."""

    few: int
    many: int
    gate = "long log: as the horde learns from it"
    horizons = ("10min", "1h", "6h", "1d")

    def seconds(self, T: int, folder: Path) -> float:
        """The processor time of ``emphatic nexting --exponential-only`` on so many rows."""
        rng, t = np.random.default_rng(0), np.arange(T)
        columns: dict[str, Any] = {
            f"S{i}": np.sin(2 * np.pi * t / period) + 0.2 * rng.normal(size=T)
            for i, period in enumerate((50, 300, 1_440))
        }
        columns["time"] = (60_000 * t).astype("datetime64[ms]")
        pq.write_table(pa.table(columns), folder / "log.parquet")
        out = folder / "out"
        began = process_time()
        emphatic.nexting.run(
            folder / "log.parquet", horizons=self.horizons, exponential_only=True, out=out, overwrite=True
        )
        return process_time() - began

    def gates(self) -> Iterator[Gate]:
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            self.seconds(3_000, folder)
            predictions = pq.read_table(folder / "out" / "predictions.parquet")
            log = open_table(folder / "log.parquet")
            horde = warmed_up(log, self.horizons)
            written = np.column_stack([predictions[question.name].to_numpy() for question in horde.questions])
            yield gate(self.gate, written, horde.run(log).astype(np.float32))

    def rows(self, effort: Effort) -> Iterator[Row]:
        with tempfile.TemporaryDirectory() as folder:
            few, many = (
                min(self.seconds(T, Path(folder)) for _ in range(min(2, effort.rounds))) for T in (self.few, self.many)
            )
        each = 1e6 * (many - few) / (self.many - self.few)
        yield Row(
            f"a long log, 3 signals × 4 horizons, exponential only; from {self.few:,} to {self.many:,} rows",
            "processor time of a row; 9.6 µs are 8 minutes for 50 million",
            gates=(self.gate,),
            ours=each,
            ratio=each,
            at_most=9.6,
        )


@dataclass(frozen=True)
class Intervals:
    """All questions of the household's log: what intervals cost, what they cover, and how narrow they are."""

    T: int | None
    gate = "intervals: blocks as row by row"

    def derived(self, log: Table) -> Derived:
        """The intervals of a run on this log, which has times: by the hour of the day too."""
        return Derived(warmed_up(log, HORIZONS), COVERAGE, dated=log.dated)

    def gates(self) -> Iterator[Gate]:
        log = household(1_000)
        _, inputs = self.learned(log)
        once, each = self.derived(log), self.derived(log)
        rows = [each(*(column[t : t + 1] for column in inputs))["low"][0] for t in range(len(inputs[0]))]
        yield gate(self.gate, once(*inputs)["low"], np.array(rows))

    def learned(self, log: Table) -> tuple[float, tuple[Any, Any, Any, Any]]:
        """Seconds of learning; predictions (T, Q), readings (T, S), gaps (T,) and times (T,) of the whole log."""
        horde, clock = warmed_up(log, HORIZONS), log.clock()
        began = process_time()
        pairs = list(horde.blocks(log))
        seconds = process_time() - began
        columns = [(predictions, block.values, block.find_gaps(clock), block.time) for block, predictions in pairs]
        predictions, values, gaps, times = (np.concatenate(parts) for parts in zip(*columns, strict=True))
        return seconds, (predictions, values, gaps, times)

    def rows(self, effort: Effort) -> Iterator[Row]:
        log = household(self.T)
        learning, intervals = math.inf, math.inf
        for _ in range(effort.rounds):
            seconds, inputs = self.learned(log)
            learning = min(learning, seconds)
            derived, ends = self.derived(log), []
            began = process_time()
            for begin in range(0, len(inputs[0]), 4096):
                ends.append(derived(*(column[begin : begin + 4096] for column in inputs)))
            intervals = min(intervals, process_time() - began)
        predictions, values, gaps, _ = inputs
        low, high = (np.concatenate([part[end] for part in ends]) for end in ("low", "high"))
        held, missing = Hold(values.shape[1]).fill(values)
        gammas = warmed_up(log, HORIZONS).gamma[: len(HORIZONS)]
        G, known = Returns(gammas, held[0])(held, missing, gaps)
        ours = interval_scores(low, high, G, known)
        few = [q for q in range(len(ours)) if q % len(HORIZONS) < CALIBRATED]
        theirs = interval_scores(*gaussian(predictions, values, G, known, np.tile(gammas, values.shape[1])), G, known)
        section = f"intervals on a log, {len(values):,} rows × {values.shape[1]} signals × {len(HORIZONS)} horizons"
        shared: dict[str, Any] = {"section": section, "gates": (self.gate,)}
        yield Row(
            what="CPU time of learning with intervals, beside without",
            ours=learning + intervals,
            alternative=learning,
            versus="without",
            unit="s",
            ratio=(learning + intervals) / learning,
            at_most=1.3,
            **shared,
        )
        for k, horizon in enumerate(HORIZONS):
            covered = [ours[q]["coverage"] for q in range(k, len(ours), len(HORIZONS))]
            bound: dict[str, Any] = {"at_least": 0.78, "at_most": 0.82} if k < CALIBRATED else {}
            yield Row(
                what=f"coverage at {horizon} of 0.8 wanted, median over the signals",
                ratio=median(covered),
                note=f"{min(covered):.3f} to {max(covered):.3f}",
                **shared,
                **bound,
            )
        ratios = [ours[q]["interval_score"] / theirs[q]["interval_score"] for q in few]
        yield Row(
            what=f"interval score up to {HORIZONS[CALIBRATED - 1]}, beside a Gaussian of the running RMSE",
            versus="median over the questions",
            ratio=median(ratios),
            at_most=1.0,
            note=f"worst {max(ratios):.3f}",
            **shared,
        )


def interval_scores(low: Any, high: Any, G: Any, known: Any) -> list[dict[str, Any]]:
    scores = IntervalScores(len(G), len(low) // 2, COVERAGE)
    scores.add(0, low, high, G, known)
    return scores.scores()


def gaussian(predictions: Any, values: Any, G: Any, known: Any, gamma: Any) -> tuple[Any, Any]:
    """p ± z RMSE, of all returns that were known at the row: 99% of their weight has been read."""
    T, Q = predictions.shape
    z, half = NormalDist().inv_cdf(0.5 + COVERAGE / 2), np.empty((T, Q))
    for q in range(Q):
        delay = max(1, math.ceil(math.log(0.01) / math.log(gamma[q])))
        squares = np.where(known[q], (G[q] - predictions[:, q]) ** 2, 0.0)
        total, count = np.cumsum(squares), np.cumsum(known[q])
        half[:, q] = np.nanstd(values[:delay, q // len(HORIZONS)])
        seen = np.maximum(count[: T - delay], 1)
        half[delay:, q] = np.where(count[: T - delay] > 0, np.sqrt(total[: T - delay] / seen), half[delay:, q])
    return predictions - z * half, predictions + z * half
