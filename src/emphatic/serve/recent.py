"""The recent past of a service: the last rows, how fast they come, and how wrong predictions are."""

from __future__ import annotations

import math
import threading
import time
from collections import deque
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from emphatic.nexting.predictor import ENDS, OF_A_SIGNAL, LineFormat, Prediction
from emphatic.questions.gvf import LARGEST

__all__ = ["RecentRows", "RunningError", "Traffic"]

Array = NDArray[np.float64]
#: The most rows and numbers that are kept.
_ROWS, _NUMBERS = 4096, 1 << 22


class RecentRows:
    """The last rows: readings, predictions and times, in a ring. Steps follow one another."""

    def __init__(self, names: Sequence[str], format: LineFormat) -> None:
        self.names, self.format = tuple(names), format
        Q = len(format.keys)
        self.size = max(256, min(_ROWS, _NUMBERS // (len(self.names) + (1 + len(ENDS)) * Q)))
        self._readings, self._values = np.empty((self.size, len(self.names))), np.empty((self.size, Q))
        self._seconds, self._gap = np.empty(self.size), np.zeros(self.size, bool)
        self._time: list[Any] = [None] * self.size
        self._derived: dict[str, NDArray[Any]] = {}
        self._lock = threading.Lock()
        #: The steps that are kept: from ``first`` to before ``end``.
        self.first = self.end = 0

    def add(self, rows: Sequence[Prediction]) -> None:
        """The next rows."""
        with self._lock:
            for row in rows:
                if row.step != self.end:
                    self.first = self.end = row.step
                at = row.step % self.size
                self._readings[at], self._values[at] = row.readings, row.values
                self._seconds[at], self._gap[at], self._time[at] = row.seconds, row.gap, row.time
                for kind, values in row.derived.items():
                    if kind not in self._derived:
                        self._derived[kind] = np.zeros((self.size, len(values)), values.dtype)
                    self._derived[kind][at] = values
                self.end = row.step + 1
                self.first = max(self.first, self.end - self.size)

    def columns(self, name: str, start: int, most: int) -> dict[str, Any] | None:
        """At most so many rows of one name from step ``start`` on, column by column as JSON can hold them."""
        with self._lock:
            start = max(start, self.first)
            steps = np.arange(start, min(self.end, start + most))
            if not len(steps):
                return None
            at = steps % self.size
            seconds, gap = self._seconds[at], self._gap[at].tolist()
            reading = self._readings[at, self.names.index(name)] if name in self.names else np.full(len(at), np.nan)
            places = self.format.places.get(name, {})
            by_horizon = {
                kind: {horizon: values[at, q] for horizon, q in places.items()}
                for kind, values in {"predictions": self._values, **self._derived}.items()
                if kind not in OF_A_SIGNAL
            }
            by_signal = {}
            if name in self.format.signals:
                c = self.format.signals.index(name)
                by_signal = {kind: self._derived[kind][at, c] for kind in OF_A_SIGNAL if kind in self._derived}
            times = [self._time[i] for i in at]
        found = {
            "step": steps.tolist(),
            "time": times,
            "t": _or_null(seconds),
            "reading": _or_null(reading),
            "gap": gap,
        }
        for kind, columns in by_horizon.items():
            found[kind] = {horizon: _or_null(column) for horizon, column in columns.items()}
        return found | {kind: _or_null(column) for kind, column in by_signal.items()}


class Traffic:
    """How many readings came in the last seconds, and how long they waited."""

    def __init__(self, seconds: float = 5.0) -> None:
        self._seconds = seconds
        self._blocks: deque[tuple[float, int, float]] = deque()
        self._began = time.monotonic()
        self._lock = threading.Lock()

    def add(self, count: int, lag: float) -> None:
        """A block of readings, the first of which waited so long."""
        with self._lock:
            self._blocks.append((time.monotonic(), count, lag))
            self._forget()

    def rate_and_lag(self) -> tuple[float, float]:
        """Readings a second, and the longest wait."""
        with self._lock:
            self._forget()
            span = min(self._seconds, max(1.0, time.monotonic() - self._began))
            return sum(n for _, n, _ in self._blocks) / span, max((lag for *_, lag in self._blocks), default=0.0)

    def _forget(self) -> None:
        until = time.monotonic() - self._seconds
        while self._blocks and self._blocks[0][0] < until:
            self._blocks.popleft()


class RunningError:
    """The root mean square error of recent predictions, by question, from what then happened.

    The return G = Σ (1 − γ) γᵏ x of a prediction is known when γᵏ has become small. Some of the predictions are kept
    until then: a fixed number of them, spread over that time, however long the horizon. Averages forget with a memory
    of about 500 predictions. A reading that is missing or beyond ``LARGEST`` counts as the one before it.
    """

    #: Rows that are counted together, of which the last one's predictions may be kept.
    TOGETHER = 16

    #: Predictions that wait for their return.
    SLOTS = 48
    #: A return is complete when this share of its weight is still to come.
    REST = 0.02
    MEMORY = 500.0

    def __init__(self, gamma: Array, column: Sequence[int]) -> None:
        with np.errstate(divide="ignore"):
            horizon = np.where(gamma < 1.0, 1.0 / (1.0 - gamma), np.inf)
        self._questions = np.flatnonzero((np.asarray(column) >= 0) & np.isfinite(horizon) & np.isfinite(gamma))
        self._gamma, self._column = gamma[self._questions], np.asarray(column, np.intp)[self._questions]
        # SLOTS predictions, taken so far apart that the oldest is complete before its place is needed again
        self._apart = np.ceil(np.log(self.REST) / np.log(np.maximum(self._gamma, 1e-12)) / (self.SLOTS - 1))
        Q = len(self._questions)
        self._G, self._weight = np.zeros((Q, self.SLOTS)), np.zeros((Q, self.SLOTS))
        self._p = np.full((Q, self.SLOTS), np.nan)
        self._since, self._next = np.full(Q, np.inf), np.zeros(Q, np.intp)
        self._last = np.full(len(column) and int(max(column)) + 1, np.nan)
        self._squares, self._count = np.zeros(Q), np.zeros(Q)
        self._all = len(gamma)

    def add(self, rows: Sequence[Prediction]) -> None:
        """The rows of a block."""
        if len(self._questions):
            for start in range(0, len(rows), self.TOGETHER):
                self._add(rows[start : start + self.TOGETHER])

    def _add(self, rows: Sequence[Prediction]) -> None:
        if any(row.gap for row in rows):
            self._p[:] = np.nan  # what happened across a gap is not known
            self._last[:] = np.nan
            return
        x = np.array([row.readings for row in rows])[:, : len(self._last)]
        known = np.abs(x) <= LARGEST
        if not known.all():
            before = np.where(np.isfinite(self._last), self._last, 0.0)
            for row, there in zip(x, known, strict=True):
                row[~there] = before[~there]
                before = row
        self._last = x[-1]
        B = len(rows)
        powers = self._gamma[:, None] ** np.arange(B)
        ahead = (1.0 - self._gamma) * np.einsum("qb,bq->q", powers, x[:, self._column])
        self._G += self._weight * ahead[:, None]
        self._weight *= (self._gamma**B)[:, None]
        done = np.isfinite(self._p) & (self._weight < self.REST)
        if done.any():
            error = np.where(done, self._G / (1.0 - self._weight) - self._p, 0.0)
            count = done.sum(axis=1)
            keep = (1.0 - 1.0 / self.MEMORY) ** count
            self._squares = keep * self._squares + (error**2).sum(axis=1)
            self._count = keep * self._count + count
            self._p[done] = np.nan
        self._since += B
        due = np.flatnonzero(self._since >= self._apart)
        slot = self._next[due]
        p = rows[-1].values[self._questions[due]]
        self._p[due, slot] = np.where(np.abs(p) <= LARGEST, p, np.nan)
        self._G[due, slot], self._weight[due, slot] = 0.0, 1.0
        self._next[due] = (slot + 1) % self.SLOTS
        self._since[due] = 0

    def rmse(self) -> list[float | None]:
        """Of each question; None where nothing is known yet."""
        found: list[float | None] = [None] * self._all
        for q, squares, count in zip(self._questions, self._squares, self._count, strict=True):
            if count > 0:
                found[int(q)] = math.sqrt(squares / count)
        return found


def _or_null(values: NDArray[Any]) -> list[Any]:
    return [value if math.isfinite(value) else None for value in values.tolist()]
