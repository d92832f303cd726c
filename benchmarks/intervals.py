"""Intervals on the log that comes with the package: what they cost, what they cover, and how narrow they are."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from statistics import NormalDist, median
from time import process_time
from typing import Any

import numpy as np

import emphatic
from benchmarks.cases import Effort
from benchmarks.measure import Gate, gate
from benchmarks.report import Row
from emphatic.features import Features
from emphatic.hordes.horde import Horde
from emphatic.nexting.intervals import Derived
from emphatic.nexting.settings import ENGINE, Settings
from emphatic.scores.measures import IntervalScores
from emphatic.scores.returns import Returns
from emphatic.tables import Hold, Table, open_table

HORIZONS = ("2min", "1h", "6h", "1d")
#: Those whose intervals are calibrated within this log.
CALIBRATED = 3
COVERAGE = 0.8


def household(rows: int | None) -> Table:
    whole = open_table(emphatic.data.household())
    if rows is None:
        return whole
    block = next(whole.blocks(rows))
    return open_table({name: block.values[:, i] for i, name in enumerate(whole.names)} | {"time": block.time})


def new_horde(log: Table) -> Horde:
    assert log.rows is not None
    settings, clock = Settings(horizons=HORIZONS).filled(log, log.rows), log.clock()
    made = Horde(
        settings.gvfs(), Features.from_config(settings.features or ()), step=clock.step if clock else None,
        least_squares=settings.least_squares, engine=ENGINE,
    )  # fmt: skip
    return made.warm_up(log)


def derive(log: Table, horde: Horde) -> Derived:
    """The intervals of a run on this log, which has times: by the hour of the day too."""
    return Derived(horde, COVERAGE, dated=log.dated)


@dataclass(frozen=True)
class Intervals:
    """All questions of the household's log, or of its first T rows."""

    T: int | None

    @property
    def gate(self) -> str:
        return "intervals: blocks as row by row"

    def gates(self) -> Iterator[Gate]:
        log = household(1_000)
        inputs = self.learned(log)[1:]
        once, each = (derive(log, new_horde(log)) for _ in range(2))
        rows = [each(*(column[t : t + 1] for column in inputs))["low"][0] for t in range(len(inputs[0]))]
        yield gate(self.gate, once(*inputs)["low"], np.array(rows))

    def learned(self, log: Table) -> tuple[float, Any, Any, Any, Any]:
        """Seconds of learning; predictions (T, Q), readings (T, S), gaps (T,) and times (T,) of the whole log."""
        horde, clock, parts = new_horde(log), log.clock(), []
        began = process_time()
        for block, predictions in horde.blocks(log):
            parts.append((predictions, block.values, block))
        seconds = process_time() - began
        gaps = [block.find_gaps(clock) for _, _, block in parts]
        predictions, values = (np.concatenate([part[i] for part in parts]) for i in (0, 1))
        times = [block.time for _, _, block in parts]
        return seconds, predictions, values, np.concatenate(gaps), np.concatenate(times)

    def rows(self, effort: Effort) -> Iterator[Row]:
        log = household(self.T)
        learning, intervals = math.inf, math.inf
        for _ in range(effort.rounds):
            seconds, predictions, values, gap, time = self.learned(log)
            learning = min(learning, seconds)
            horde, ends = new_horde(log), {}
            derived, began = derive(log, horde), process_time()
            for begin in range(0, len(gap), 4096):
                some = slice(begin, begin + 4096)
                ends[begin] = derived(predictions[some], values[some], gap[some], time[some])
            intervals = min(intervals, process_time() - began)
        low, high = (np.concatenate([part[end] for part in ends.values()]) for end in ("low", "high"))
        held, missing = Hold(values.shape[1]).fill(values)
        gammas = horde.gamma[: len(HORIZONS)]
        G, known = Returns(gammas, held[0])(held, missing, gap)
        ours = _scores(low, high, G, known)
        theirs = _scores(*gaussian(predictions, values, G, known, np.tile(gammas, values.shape[1])), G, known)
        few = [q for q in range(len(ours)) if q % len(HORIZONS) < CALIBRATED]
        section = f"intervals on a log, {len(gap):,} rows × {values.shape[1]} signals × {len(HORIZONS)} horizons"
        shared: dict[str, Any] = {"section": section, "gates": (self.gate,)}
        yield Row(
            what="CPU time of learning with intervals, beside without", ours=learning + intervals,
            alternative=learning, versus="without", unit="s", ratio=(learning + intervals) / learning, at_most=1.3,
            **shared,
        )  # fmt: skip
        for k, horizon in enumerate(HORIZONS):
            found = [ours[q]["coverage"] for q in range(k, len(ours), len(HORIZONS))]
            bound: dict[str, Any] = {"at_least": 0.78, "at_most": 0.82} if k < CALIBRATED else {}
            yield Row(
                what=f"coverage at {horizon} of 0.8 wanted, median over the signals", ratio=median(found),
                note=f"{min(found):.3f} to {max(found):.3f}", **shared, **bound,
            )  # fmt: skip
        ratios = [ours[q]["interval_score"] / theirs[q]["interval_score"] for q in few]
        yield Row(
            what=f"interval score up to {HORIZONS[CALIBRATED - 1]}, beside a Gaussian of the running RMSE",
            versus="median over the questions", ratio=median(ratios), at_most=1.0, note=f"worst {max(ratios):.3f}",
            **shared,
        )  # fmt: skip


def _scores(low: Any, high: Any, G: Any, known: Any) -> list[dict[str, Any]]:
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
