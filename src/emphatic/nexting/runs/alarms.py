"""Alarms: how surprising a reading is beside what was predicted, and whether that is an alarm.

At a row with reading x, of a signal whose predictions at horizons h = 1 / (1 − γ) were p before and are p' now, there
are these statistics. Predictions are the weighted means that TD learns; at the shortest horizon p is the answer to the
mean until then, which is closer.

    |x − p| / usual             how far the reading is from the prediction at the shortest horizon
    1 + run                     how often in a row the same reading has come: a sensor that is stuck
    |mean of d| / usual         for each horizon, d = (1 − γ) x + γ p' − p being the TD errors, the mean that of about
                                the last h rows, and of 4 at least: predictions that fail to one side, as they do when
                                a signal drifts (the unexpected demon error of White 2015, section 7.4); x counts here
                                as at most 20 times the usual error from its prediction, so that one is no drift
    largest sum                 of errors to one side: s ← max(0, .99 s ± (x − p) / usual − ½), each error as at most 4
                                times the usual (Page 1954, with a leak): a slow drift
    late / usual                how large errors are of late, in the last 30 rows
    1 + missing                 at a row without a reading, and alone there: for how many rows it has been missing

"usual" is the running mean of what stands above it; in the first, half of it is that of the last 30 rows, so that a
restless hour is no alarm. Each statistic s is compared with its own past. Of u, which .02 of all rows exceed, and the
means M₁ of log(s/u) and M₂ of its square above u, the rate at which s is reached, per row, is

    rate = .02 θ (1 + ξ (s/u − 1) / (M₁ (1 − ξ₋)))^(−1/ξ),    ξ₋ = 1 − ½ / (1 − M₁²/M₂),    ξ = M₁ + ξ₋

for any kind of tail (Dekkers, Einmahl & de Haan 1989); θ is the share of exceedances before which there was none, for
what is large stays so for a while, and an alarm counts when it begins. While little is known, ξ₋ is drawn towards 0,
a tail like a power. All is learned from the past alone, the last 100,000 rows or so; rows in alarm count for a
twentieth, and so do those after 60 exceedances in a row, for a slow fault must not become usual while it grows. The
score of the row is

    anomaly = −log₁₀ (1.5 J · the least rate of the J statistics)

with a margin of 1.5, at least 0 and at most 16: a score above 4 begins once in 10,000 rows at most, on a stationary
stream (measured: .2 to 1 times as often as stated). Where there is nothing to judge by it is 0, and there is no alarm:
in the first 200 rows, and just after a gap.

A signal that never changed has no errors to be compared with. Its first change is an alarm with the highest score.
From there on all that follows from errors is learned as from the first row of a log: there are no such alarms for 200
rows. The same holds for a change that ends a run of equal readings longer than .9 of all rows so far.

The statistic with the least rate says why: the distance and the size of late errors "too high" or "too low", by the
side of the reading; repeats "stuck"; TD errors and sums "drifting"; rows without a reading "missing". Where the
distance alone is an alarm, it says so, whatever else it moves.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from emphatic.engines.compiled import direct
from emphatic.nexting.runs.alarm_kernels import alarms

__all__ = ["OF_A_SIGNAL", "WHY", "AlarmList", "Alarms", "alarms_by_signal", "read_reasons", "write_reasons"]

Array = NDArray[np.float64]

#: What there is for each signal: how surprising its reading is, whether that is an alarm, and why.
OF_A_SIGNAL = ("anomaly", "alarm", "why")
#: What an alarm says of its signal: number k of "why" stands for the k-th of these, 0 for no alarm.
WHY = ("too high", "too low", "stuck", "drifting", "missing")

#: The state of a signal, of a question and of a tail, and what came later: see the kernel.
_ALARM_SCALARS, _ERRORS, _TAIL, _SUMS, _FURTHER_TAILS = 6, 4, 5, 4, 3


class Alarms:
    """The alarms of S signals that have Q questions in all, and their state from row to row.

    Args:
        signals: The place of each question's signal among the readings.
        gamma: The discounts of the questions (Q,), below 1.
        rate: The number of false alarms per row and signal that is tolerated.

    ``places`` (S,) are the places of the signals among the readings.

    >>> rng = np.random.default_rng(0)
    >>> x = rng.normal(size=(5000, 1))
    >>> x[4000] = 12.0
    >>> anomaly, why = Alarms([0], np.zeros(1), 1e-4)(np.zeros((5000, 1)), x, np.zeros(5000, bool))
    >>> int(np.argmax(why[:, 0] > 0)), bool(anomaly[4000, 0] > 4.0), WHY[why[4000, 0] - 1]
    (4000, True, 'too high')
    """

    def __init__(self, signals: Sequence[int], gamma: Array, rate: float) -> None:
        self.rate, self.gamma = rate, np.ascontiguousarray(gamma, np.float64)
        by_signal: dict[int, list[int]] = {}
        for q in np.argsort(self.gamma, kind="stable").tolist():
            by_signal.setdefault(int(signals[q]), []).append(q)
        self.places = np.array(list(dict.fromkeys(signals)), np.int64)
        count = np.array([len(by_signal[c]) for c in self.places.tolist()], np.int64)
        S, H = len(self.places), int(count.max(initial=0))
        questions = np.zeros((S, H), np.int64)
        for i, c in enumerate(self.places.tolist()):
            questions[i, : count[i]] = by_signal[c]
        self.scalars, self.errors = np.zeros((S, _ALARM_SCALARS)), np.zeros((S, H, _ERRORS))
        self.tails = np.zeros((S, H + 2, _TAIL))
        self.tails[:, :, :4] = math.log(3.0), 0.5, 0.5, 1.0  # until more is known
        self.tails[:, 1, 0] = 0.0
        self.further, self.further_tails = np.zeros((S, _SUMS)), np.zeros((S, _FURTHER_TAILS, _TAIL))
        self.further_tails[:, :, :4] = math.log(3.0), 0.5, 0.5, 1.0
        self.further_tails[:, -1, 0] = 0.0
        threshold = np.array([-math.log10(rate)])
        self._arguments = (
            self.places,
            questions,
            count,
            self.gamma,
            threshold,
            self.scalars,
            self.errors,
            self.tails,
            self.further,
            self.further_tails,
            np.empty(self.tails.shape[1]),
            np.empty(self.further_tails.shape[1]),
        )

    def __call__(self, predictions: Array, readings: Array, gap: NDArray[np.bool_]) -> tuple[Array, NDArray[np.int8]]:
        """The scores of the next B rows and why there is an alarm, (B, S) each: a place in ``WHY`` counted from 1, 0
        where there is no alarm.

        Args:
            predictions: The predictions (B, Q).
            readings: The readings (B, …) of all signals, NaN where missing.
            gap: The rows (B,) that do not follow the row before.
        """
        anomaly = np.empty((len(gap), len(self.places)))
        why = np.empty(anomaly.shape, np.int8)
        direct(alarms)(
            np.ascontiguousarray(predictions, np.float64),
            np.ascontiguousarray(readings, np.float64),
            np.ascontiguousarray(gap, np.bool_),
            *self._arguments,
            anomaly,
            why,
        )
        return anomaly, why

    def arrays(self) -> dict[str, NDArray[Any]]:
        """The state, by name."""
        arrays = {"scalars": self.scalars, "errors": self.errors, "tails": self.tails}
        return arrays | {"further": self.further, "further_tails": self.further_tails}

    def restore(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Restore what ``arrays`` returned; ValueError if it does not fit."""
        for name, array in self.arrays().items():
            stored = np.asarray(arrays.get(name))
            if stored.shape != array.shape or stored.dtype != array.dtype or not np.isfinite(stored).all():
                raise ValueError(f"the array {name!r} of the alarms does not fit")
            array[:] = stored


#: How many alarms are listed with their rows; of the others only their number is.
KEPT = 50


@dataclass(order=True)
class _Alarm:
    """Consecutive rows in which a signal is in alarm."""

    score: float
    row: int
    signal: str
    time: float = field(compare=False)
    why: str = field(compare=False)
    rows: int = field(default=0, compare=False)

    def facts(self) -> dict[str, Any]:
        return {
            "signal": self.signal,
            "row": self.row,
            "time": self.time,
            "rows": self.rows,
            "anomaly": self.score,
            "why": self.why,
        }


def alarms_by_signal(summary: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    """How many alarms each signal had.

    Args:
        summary: The objects of ``summary.json``.

    >>> alarms_by_signal([{"signals": [{"signal": "x", "alarms": 3}]}, {"text": "x at +1h"}])
    {'x': 3}
    """
    return {row["signal"]: row["alarms"] for row in summary[0]["signals"]}


class AlarmList:
    """The alarms of a whole log: how many each signal raised, and when the highest of them were.

    They are gathered from blocks of rows in order. Consecutive rows in alarm are one, and the row with the highest
    score says why.

    Args:
        signals: The signals, in the order of the columns.

    >>> alarms = AlarmList(["x"])
    >>> alarms.add(10, np.array([[1.0], [4.5], [6.0], [0.5]]), np.array([[0], [3], [1], [0]]), None)
    >>> alarms.counts()
    {'x': {'alarms': 1, 'alarm_rows': 2}}
    >>> [(alarm["row"], alarm["rows"], alarm["anomaly"], alarm["why"]) for alarm in alarms.highest()]
    [(11, 2, 6.0, 'too high')]
    """

    def __init__(self, signals: Sequence[str]) -> None:
        self._signals = list(signals)
        self._counts = {name: {"alarms": 0, "alarm_rows": 0} for name in self._signals}
        self._latest: dict[str, _Alarm] = {}
        self._highest: list[_Alarm] = []

    def add(
        self, start: int, anomaly: NDArray[np.float64], why: NDArray[np.integer[Any]], time: NDArray[np.float64] | None
    ) -> None:
        """Add the next rows.

        Args:
            start: The number of the first of them.
            anomaly: The scores (B, S).
            why: The reasons of the alarms (B, S), 0 where there is none.
            time: The times (B,).
        """
        for c, name in enumerate(self._signals):
            rows = np.flatnonzero(why[:, c])
            for run in np.split(rows, np.flatnonzero(np.diff(rows) > 1) + 1) if len(rows) else []:
                begin, highest = int(run[0]), int(run[np.argmax(anomaly[run, c])])
                latest, score, reason = self._latest.get(name), anomaly[highest, c], WHY[int(why[highest, c]) - 1]
                if latest is None or start + begin > latest.row + latest.rows:
                    self._list(latest)
                    self._counts[name]["alarms"] += 1
                    when = float("nan") if time is None else float(time[begin])
                    latest = self._latest[name] = _Alarm(float(score), start + begin, name, when, reason)
                elif score > latest.score:  # it began in the rows before
                    latest.score, latest.why = float(score), reason
                latest.rows += len(run)
                self._counts[name]["alarm_rows"] += len(run)

    def _list(self, alarm: _Alarm | None) -> None:
        if alarm is not None:
            (heapq.heappush if len(self._highest) < KEPT else heapq.heappushpop)(self._highest, alarm)

    def counts(self) -> dict[str, dict[str, int]]:
        """For each signal how many alarms it raised, and the rows in alarm."""
        return self._counts

    def highest(self) -> list[dict[str, Any]]:
        """The alarms with the highest scores, in the order of their rows."""
        for name in list(self._latest):
            self._list(self._latest.pop(name))
        return [alarm.facts() for alarm in sorted(self._highest, key=lambda alarm: (alarm.row, alarm.signal))]


def write_reasons(why: NDArray[np.int8]) -> pa.Array:
    """The reasons of a signal's alarms (B,) as words, null where there is no alarm.

    >>> write_reasons(np.array([0, 3], np.int8)).to_pylist()
    [None, 'stuck']
    """
    return pa.DictionaryArray.from_arrays(pa.array(why - 1, pa.int8(), mask=why == 0), pa.array(WHY))


def read_reasons(words: pa.ChunkedArray) -> NDArray[np.int8]:
    """The numbers of the reasons that ``write_reasons`` wrote."""
    numbers: NDArray[np.int8] = pc.index_in(words.cast(pa.string()), pa.array(WHY)).fill_null(-1).to_numpy()
    return (numbers + 1).astype(np.int8)
