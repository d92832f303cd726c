"""Scoring what a run kept: backwards through the readings for the returns, then forwards for all that needs them.

A return needs the future. So the readings are gone through backwards once, and what each part needs to know of the
rows after it is noted. Then all parts are gone through forwards: the returns of a part are computed again from that
note, its features are made, the offline fit sums the first half and predicts the second, and sums and plots are
gathered. What is held in memory is one part, the sums, and one bit for each question and row of the first half. If
questions have features of their own, and the sums of all would take too much memory, the first half is gone through
once for some of them at a time.

A row's features are made once here, and once while learning. To make them once in all they would have to be kept,
some tens of numbers a row, for the offline fit needs them together with returns that learning does not know yet: its
sums for the first half, and its weights, which depend on these, for the second. It takes a twentieth of a run's time.
Without the offline fit they are not made here at all.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from emphatic.features import Features
from emphatic.hordes.horde import BLOCK
from emphatic.nexting.alarm_list import AlarmList
from emphatic.nexting.readings import Array, KeptReadings, ReadingCounts, make_features
from emphatic.nexting.signals import SignalPlot, SignalSketch
from emphatic.nexting.single_answers import KeptAnswers
from emphatic.nexting.unfinished import Unfinished
from emphatic.scores.baselines import ROOM, FirstHalf, OfflineFit, PlainAnswers
from emphatic.scores.measures import IntervalScores, LogScores, WorstErrors, finite
from emphatic.scores.returns import Returns
from emphatic.tables import Hold

__all__ = ["Scoring", "ScoringResult"]

#: How many of the largest errors are reported.
WORST = 10
#: Why there is no offline fit where none was wanted.
SKIPPED = "skipped, as requested with --no-offline"


class ScoringResult(NamedTuple):
    """Scores and learning curves, a dict a question; a plot a signal; the signals that never changed; the predictions
    from the last row, a dict a signal; the largest error of each signal, the worst first; the first and last time."""

    summary: list[dict[str, Any]]
    curves: list[dict[str, Any]]
    plots: list[SignalPlot]
    constant: list[str]
    upcoming: list[dict[str, Any]]
    worst: list[dict[str, Any]]
    alarms: list[dict[str, Any]]
    span: tuple[float | None, float | None]


class _Rows(NamedTuple):
    """Some rows from ``start`` on: readings as they are, and of all signals (B, S) with the last one held where one is
    missing; predictions and the ends of their intervals (B, Q); scores of anomaly and alarms of the signals predicted
    (B, C); the returns and where they are known (Q, B)."""

    start: int
    readings: KeptReadings
    held: Array
    missing: NDArray[np.bool_]
    predictions: Array
    low: Array
    high: Array
    anomaly: Array
    alarm: NDArray[np.bool_]
    G: Array
    known: NDArray[np.bool_]


@dataclass
class Scoring:
    """Scores the plain questions of a run, each of the signals ``predict`` at each of ``horizons``.

    ``names`` are those questions' names. ``features(i)`` is the i-th maker as it was before the first row, and
    ``shares[i]`` are the questions that it is for. ``coverage`` is that of the intervals, ``calibrated`` says which
    questions' intervals have proved right.
    """

    unfinished: Unfinished
    signals: Sequence[str]
    categories: Sequence[str]
    predict: Sequence[str]
    horizons: Sequence[Any]
    gammas: Array
    names: Sequence[str]
    rows: int
    counts: ReadingCounts
    features: Callable[[int], Features]
    shares: Sequence[NDArray[np.int64]]
    dated: bool
    offline: bool
    coverage: float
    calibrated: Sequence[bool] | NDArray[np.bool_]
    progress: Callable[[int, int], None]

    def score(self, write: Callable[[Any], None]) -> ScoringResult:
        """Go through all parts; ``write`` is called with each part of the predictions, in order."""
        H = len(self.horizons)
        self._at = [list(self.signals).index(name) for name in self.predict]
        centres = [self.counts.start[c] for c in self._at]
        # Before a signal's first reading there is nothing to compare with; of one never read, nowhere.
        first = [self.counts.first[c] if self.counts.first[c] >= 0 else self.rows for c in self._at]
        self._first = np.repeat(first, H)[:, None]
        self._returns = Returns(self.gammas, centres)
        half = FirstHalf(self.rows, np.repeat(centres, H))
        self._expect(0, self.rows, self.rows)
        self._go_backwards(half)
        fits = _Fits(self, half) if self.offline else None
        again = 0 if fits is None else (len(fits.batches) - 1) * half.half
        self._expect(self.rows, 2 * self.rows, self.rows + again)
        if fits is not None:
            for batch in fits.batches[:-1]:
                fits.begin(batch)
                for rows in self._forwards(half.half, half.half):
                    fits.add(rows)
            fits.begin(fits.batches[-1])
        scored = LogScores(self.predict, self.horizons, self.gammas, self.rows)
        sketches = [
            SignalSketch(name, self.rows, self.horizons, self.horizons, last, intervals=self.horizons)
            for name, last in zip(self.predict, self._last.reshape(-1, H).min(axis=1).tolist(), strict=True)
        ]
        worst, begins = WorstErrors(len(self.names), half.half), None
        alarms = AlarmList(self.predict)
        intervals = IntervalScores(len(self.names), half.half, self.coverage)
        for rows in self._forwards(self.rows, half.half, write):
            time = rows.readings.time
            begins = float(time[0]) if begins is None and time is not None else begins
            worst.add(rows.start, rows.predictions, rows.G, rows.known, time)
            intervals.add(rows.start, rows.low, rows.high, rows.G, rows.known)
            alarms.add(rows.start, rows.anomaly, rows.alarm, time)
            offline = np.full(rows.G.shape, np.nan) if fits is None else fits.add(rows)
            held, missing = rows.held[:, self._at], rows.missing[:, self._at]
            scored.add(rows.start, held, missing, rows.predictions, offline, rows.G, rows.known)
            single = self._single(rows.start, rows.predictions)
            scored.add_answers(rows.start, single, rows.G, rows.known)
            self._draw(sketches, rows, held)
        constant = [name for name, varies in zip(self.signals, self._lowest < self._highest, strict=True) if not varies]
        summary = scored.scores([SKIPPED] * len(self.names) if fits is None else fits.reasons)
        self._add_intervals(summary, intervals)
        for name, counts in alarms.counts().items():
            for score in (score for score in summary if score["signal"] == name):
                score |= counts
        return ScoringResult(
            summary, scored.curves(), [sketch.plot() for sketch in sketches], constant,
            self._upcoming(rows, held[-1]), self._worst(worst, summary), alarms.highest(),
            (begins, None if time is None else float(time[-1])),
        )  # fmt: skip

    def _single(self, start: int, predictions: Array) -> dict[str, Array]:
        """The single answers at the rows from ``start`` on, (Q, B) each, if they were kept."""
        if not hasattr(self, "_kept"):
            self._kept = KeptAnswers(self.unfinished)
        return {name: (predictions + kept).T for name, kept in self._kept.read(start, *predictions.shape).items()}

    def _add_intervals(self, summary: Sequence[dict[str, Any]], intervals: IntervalScores) -> None:
        """Complete the scores by those of the intervals, and the reasons where there are none."""
        for score, found, calibrated in zip(summary, intervals.scores(), self.calibrated, strict=True):
            score |= found | {"calibrated": bool(calibrated)}
            if found["coverage"] is None:
                why = score["reasons"].get("variance_explained", "there are no intervals")
                score["reasons"] |= dict.fromkeys(found, why)

    def _upcoming(self, rows: _Rows, reading: Array) -> list[dict[str, Any]]:
        H = len(self.horizons)
        kinds = {"predictions": rows.predictions[-1], "low": rows.low[-1], "high": rows.high[-1]}
        return [
            {"signal": name, "now": finite(float(reading[c]))}
            | {
                kind: {h: finite(float(values[c * H + i])) for i, h in enumerate(self.horizons)}
                for kind, values in kinds.items()
            }
            for c, name in enumerate(self.predict)
        ]

    def _worst(self, errors: WorstErrors, summary: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
        """The largest error of each signal, in standard deviations of the return, the worst first."""
        found: dict[str, dict[str, Any]] = {}
        for q, score in enumerate(summary):
            explained, rmse = score["variance_explained"], score["rmse"]
            if explained is None or not rmse or errors.row[q] < 0:
                continue
            off = abs(float(errors.prediction[q] - errors.actual[q])) * math.sqrt(1.0 - explained) / rmse
            if off > found.get(score["signal"], {"off": 0.0})["off"]:
                found[score["signal"]] = {
                    "signal": score["signal"], "horizon": score["horizon"], "row": int(errors.row[q]),
                    "time": float(errors.time[q]), "prediction": float(errors.prediction[q]),
                    "actual": float(errors.actual[q]), "off": off,
                }  # fmt: skip
        return sorted(found.values(), key=lambda row: -row["off"])[:WORST]

    def _go_backwards(self, half: FirstHalf) -> None:
        """Note what each part's returns need of the rows after it, and all that must be known before going forwards."""
        self._states: dict[int, Array] = {}
        self._last = np.full(len(self.names), self.rows)  # the last row whose return is known
        self._lowest, self._highest = np.full(len(self.signals), np.inf), np.full(len(self.signals), -np.inf)
        for begin in reversed(self.unfinished.begins("readings")):
            readings = self._readings(begin)
            self._states[begin] = self._returns.state.copy()
            G, known = self._known(begin, readings)
            for a in reversed(range(0, len(readings), BLOCK)):  # parts are whole blocks: the sums are the same for all
                half.add(begin + a, G[:, a : a + BLOCK], known[:, a : a + BLOCK])
            comparable = known & ~np.isnan(G)
            new = (self._last == self.rows) & comparable.any(axis=1)
            self._last[new] = begin + len(readings) - 1 - np.argmax(comparable[new, ::-1], axis=1)
            self._lowest = np.fmin(self._lowest, np.fmin.reduce(readings.values, axis=0, initial=np.inf))
            self._highest = np.fmax(self._highest, np.fmax.reduce(readings.values, axis=0, initial=-np.inf))
            if readings.time is None or not np.isfinite(readings.time).all():
                self.dated = False  # the plots go by rows
            self._report(len(readings))

    def _forwards(self, stop: int, half: int, write: Callable[[Any], None] | None = None) -> Iterator[_Rows]:
        """All rows before ``stop``, in blocks that do not reach across the half."""
        hold = Hold(len(self.signals))
        for begin in self.unfinished.begins("readings"):
            if begin >= stop:
                return
            readings = self._readings(begin)
            self._returns.state[:] = self._states[begin]
            G, known = self._known(begin, readings)
            predictions = low = high = anomaly = np.empty((len(readings), 0))
            alarm = np.empty((len(readings), 0), np.bool_)
            if write is not None:
                table = self.unfinished.read("predictions", begin)
                write(table)
                predictions, low, high = (
                    np.stack([table.column(f"{name}{end}").to_numpy() for name in self.names], axis=1)
                    for end in ("", ".low", ".high")
                )
                anomaly, alarm = (
                    np.stack([table.column(f"{name}.{kind}").to_numpy() for name in self.predict], axis=1)
                    for kind in ("anomaly", "alarm")
                )
            last = min(len(readings), stop - begin)
            edges = sorted({*range(0, last, BLOCK), last, *([half - begin] if 0 < half - begin < last else [])})
            for a, b in pairwise(edges):
                some = slice(a, b)
                held, missing = hold.fill(readings[some].values)
                yield _Rows(
                    begin + a, readings[some], held, missing, predictions[some], low[some], high[some],
                    anomaly[some], alarm[some], G[:, some], known[:, some],
                )  # fmt: skip
                self._report(b - a)

    def _readings(self, begin: int) -> KeptReadings:
        return KeptReadings.from_table(self.unfinished.read("readings", begin), self.categories)

    def _known(self, begin: int, readings: KeptReadings) -> tuple[Array, NDArray[np.bool_]]:
        """The returns of a part and where they are known, (Q, B)."""
        values = readings.values[:, self._at]
        G, known = self._returns(values, np.isnan(values), readings.gap)
        return G, known & (np.arange(begin, begin + len(readings)) >= self._first)

    def _draw(self, sketches: Sequence[SignalSketch], rows: _Rows, held: Array) -> None:
        x: NDArray[Any] = np.arange(rows.start, rows.start + len(held))
        time = rows.readings.time
        if self.dated and time is not None:
            x = (time * 1000.0).astype("int64").astype("datetime64[ms]")
        H = len(self.horizons)
        truth = np.where(rows.known, rows.G, np.nan)
        for c, sketch in enumerate(sketches):
            q = slice(c * H, c * H + H)
            ours, low, high = (list(part[:, q].T) for part in (rows.predictions, rows.low, rows.high))
            marked = np.where(rows.alarm[:, c], held[:, c], np.nan)
            sketch.add(rows.start, x, held[:, c], ours, list(truth[q]), low, high, marked)

    def _expect(self, begin: int, end: int, rows: int) -> None:
        """From here on so many rows are gone through, while progress goes from ``begin`` to ``end``."""
        self._begin, self._end, self._rows, self._done = begin, end, rows, 0

    def _report(self, rows: int) -> None:
        self._done += rows
        done = self._begin + (self._end - self._begin) * self._done // self._rows
        self.progress(done, 2 * self.rows)


class _Fits:
    """The offline fits, one for the questions that share their features; ``batches`` say which are summed together."""

    def __init__(self, scoring: Scoring, half: FirstHalf) -> None:
        self._scoring, self._half = scoring, half.half
        H = len(scoring.horizons)
        makers = [scoring.features(i) for i in range(len(scoring.shares))]
        self._fits = [
            OfflineFit(maker.n, scoring.rows, H, half.of(share), 2)
            for maker, share in zip(makers, scoring.shares, strict=True)
        ]
        self._makers: dict[int, Features] = {}
        self._now: Sequence[int] = ()
        room = [fit.room for fit in self._fits]
        together: list[list[int]] = [[]]
        for i in range(len(room)):
            if together[-1] and sum(room[j] for j in together[-1]) + room[i] > ROOM:
                together.append([])
            together[-1].append(i)
        self.batches = [batch for batch in together for _ in range(max(self._fits[i].passes for i in batch))]

    def begin(self, batch: Sequence[int]) -> None:
        """Another time through the rows, for these; the makers of the others stay where they are, at the half."""
        self._now = batch
        self._makers |= {i: self._scoring.features(i) for i in batch}
        self._answers = PlainAnswers(self._scoring.gammas, len(self._scoring.predict))

    def add(self, rows: _Rows) -> Array:
        """The next rows: sum those of the first half, predict those of the second (Q, B), NaN in the first."""
        out = np.full(rows.G.shape, np.nan)
        answers = self._answers(rows.held[:, self._scoring._at])
        for i in self._now if rows.start < self._half else self._makers:
            share = self._scoring.shares[i]
            indices, values = make_features(self._makers[i], rows.readings, rows.held, rows.missing)
            out[share] = self._fits[i].add(rows.start, indices, values, rows.G[share], answers[:, share])
        return out

    @property
    def reasons(self) -> list[str]:
        """Why there is no fit, of each question; "" where there is."""
        reasons = [""] * len(self._scoring.names)
        for fit, share in zip(self._fits, self._scoring.shares, strict=True):
            for q, reason in zip(share, fit.reasons, strict=True):
                reasons[q] = reason
        return reasons
