"""Scoring what a run kept: backwards through the readings for the returns, then forwards for all that needs them.

A return needs the future. So the readings are gone through backwards once, and what each part needs to know of the
rows after it is noted. Then all parts are gone through forwards: the returns of a part are computed again from that
note, its features are made, the offline fit sums the first half and predicts the second, and sums and plots are
gathered. What is held in memory is one part, the sums, and one bit for each question and row of the first half.

A row's features are made once here, and once while learning. To make them once in all they would have to be kept,
some tens of numbers a row, for the offline fit needs them together with returns that learning does not know yet.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from emphatic.features import Features
from emphatic.hordes.horde import BLOCK
from emphatic.nexting.readings import Array, KeptReadings, ReadingCounts, make_features
from emphatic.nexting.signals import SignalPlot, SignalSketch
from emphatic.nexting.unfinished import Unfinished
from emphatic.scores.offline import FirstHalf, OfflineFit
from emphatic.scores.returns import Returns
from emphatic.scores.summary import LogScores
from emphatic.tables import Hold

__all__ = ["Scoring", "ScoringResult"]


class ScoringResult(NamedTuple):
    """Scores and learning curves, a dict a question; a plot a signal; and the signals that never changed."""

    summary: list[dict[str, Any]]
    curves: list[dict[str, Any]]
    plots: list[SignalPlot]
    constant: list[str]


class _Rows(NamedTuple):
    """Some rows from ``start`` on: active features (B, k), readings (B, C) of the signals to predict, the last one held
    where one is missing, predictions (B, Q), the returns and where they are known (Q, B)."""

    start: int
    indices: NDArray[np.int64]
    values: Array
    held: Array
    missing: NDArray[np.bool_]
    time: Array | None
    predictions: Array
    G: Array
    known: NDArray[np.bool_]


@dataclass
class Scoring:
    """Scores the plain questions of a run, each of the signals ``predict`` at each of ``horizons``.

    ``names`` are those questions' names. ``features`` makes a maker as it was before the first row.
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
    features: Callable[[], Features]
    dated: bool
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
        self._done, self._steps = 0, 2 * self.rows
        self._go_backwards(half)
        maker = self.features()
        fit = OfflineFit(maker.n, self.rows, H, half)
        self._steps += (fit.passes - 1) * fit.half
        for _ in range(fit.passes - 1):
            for rows in self._forwards(fit.half):
                fit.add(rows.start, rows.indices, rows.values, rows.G)
        scored = LogScores(self.predict, self.horizons, self.gammas, self.rows)
        sketches = [
            SignalSketch(name, self.rows, self.horizons, self.horizons, int(self._last[c * H : c * H + H].min()))
            for c, name in enumerate(self.predict)
        ]
        for rows in self._forwards(self.rows, write):
            offline = fit.add(rows.start, rows.indices, rows.values, rows.G)
            scored.add(rows.start, rows.held, rows.missing, rows.predictions, offline, rows.G, rows.known)
            self._draw(sketches, rows)
        constant = [name for name, varies in zip(self.signals, self._lowest < self._highest, strict=True) if not varies]
        return ScoringResult(scored.scores(), scored.curves(), [sketch.plot() for sketch in sketches], constant)

    def _go_backwards(self, half: FirstHalf) -> None:
        """Note what each part's returns need of the rows after it, and all that must be known before going forwards."""
        self._states: dict[int, Array] = {}
        self._last = np.full(len(self.names), self.rows)  # the last row whose return is known
        self._lowest, self._highest = np.full(len(self.signals), np.inf), np.full(len(self.signals), -np.inf)
        for begin in reversed(self.unfinished.begins("readings")):
            readings = self._readings(begin)
            self._states[begin] = self._returns.state.copy()
            G, known = self._known(begin, readings)
            half.add(begin, G, known)
            comparable = known & ~np.isnan(G)
            new = (self._last == self.rows) & comparable.any(axis=1)
            self._last[new] = begin + len(readings) - 1 - np.argmax(comparable[new, ::-1], axis=1)
            self._lowest = np.fmin(self._lowest, np.fmin.reduce(readings.values, axis=0, initial=np.inf))
            self._highest = np.fmax(self._highest, np.fmax.reduce(readings.values, axis=0, initial=-np.inf))
            if readings.time is None or not np.isfinite(readings.time).all():
                self.dated = False  # the plots go by rows
            self._report(len(readings))

    def _forwards(self, stop: int, write: Callable[[Any], None] | None = None) -> Iterator[_Rows]:
        """All rows before ``stop``, in blocks."""
        maker, hold = self.features(), Hold(len(self.signals))
        for begin in self.unfinished.begins("readings"):
            if begin >= stop:
                return
            readings = self._readings(begin)
            self._returns.state[:] = self._states[begin]
            G, known = self._known(begin, readings)
            predictions = np.empty((len(readings), 0))
            if write is not None:
                table = self.unfinished.read("predictions", begin)
                write(table)
                predictions = np.stack([table.column(name).to_numpy() for name in self.names], axis=1)
            for a in range(0, min(len(readings), stop - begin), BLOCK):
                some = slice(a, min(a + BLOCK, len(readings), stop - begin))
                pieces = list(make_features(maker, hold, readings[some]))
                indices = np.concatenate([phi.indices for phi, _, _ in pieces])
                values = np.concatenate([phi.values for phi, _, _ in pieces])
                held, missing = (np.concatenate([piece[i] for piece in pieces])[:, self._at] for i in (1, 2))
                yield _Rows(
                    begin + a, indices, values, held, missing, readings[some].time, predictions[some], G[:, some],
                    known[:, some],
                )  # fmt: skip
                self._report(some.stop - a)

    def _readings(self, begin: int) -> KeptReadings:
        return KeptReadings.from_table(self.unfinished.read("readings", begin), self.categories)

    def _known(self, begin: int, readings: KeptReadings) -> tuple[Array, NDArray[np.bool_]]:
        """The returns of a part and where they are known, (Q, B)."""
        values = readings.values[:, self._at]
        G, known = self._returns(values, np.isnan(values), readings.gap)
        return G, known & (np.arange(begin, begin + len(readings)) >= self._first)

    def _draw(self, sketches: Sequence[SignalSketch], rows: _Rows) -> None:
        x: NDArray[Any] = np.arange(rows.start, rows.start + len(rows.held))
        if self.dated and rows.time is not None:
            x = (rows.time * 1000.0).astype("int64").astype("datetime64[ms]")
        H = len(self.horizons)
        truth = np.where(rows.known, rows.G, np.nan)
        for c, sketch in enumerate(sketches):
            q = slice(c * H, c * H + H)
            sketch.add(rows.start, x, rows.held[:, c], list(rows.predictions[:, q].T), list(truth[q]))

    def _report(self, rows: int) -> None:
        self._done += rows
        self.progress(self._done, self._steps)
