"""The alarms of a whole log: how many each signal raised, and when the highest of them were."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["KEPT", "AlarmList"]

#: How many alarms are kept with their rows; of the others only their number is.
KEPT = 50


@dataclass(order=True)
class _Alarm:
    """Rows on end in which a signal is in alarm."""

    score: float
    row: int
    signal: str
    time: float = field(compare=False)
    rows: int = field(default=0, compare=False)

    def facts(self) -> dict[str, Any]:
        return {"signal": self.signal, "row": self.row, "time": self.time, "rows": self.rows, "anomaly": self.score}


class AlarmList:
    """Gathers the alarms of signals from blocks of rows in order: rows on end in alarm are one.

    >>> alarms = AlarmList(["x"])
    >>> alarms.add(10, np.array([[1.0], [4.5], [6.0], [0.5]]), np.array([[False], [True], [True], [False]]), None)
    >>> alarms.counts()
    {'x': {'alarms': 1, 'alarm_rows': 2}}
    >>> [(alarm["row"], alarm["rows"], alarm["anomaly"]) for alarm in alarms.highest()]
    [(11, 2, 6.0)]
    """

    def __init__(self, signals: Sequence[str]) -> None:
        self._signals = list(signals)
        self._counts = {name: {"alarms": 0, "alarm_rows": 0} for name in self._signals}
        self._last: dict[str, _Alarm] = {}
        self._kept: list[_Alarm] = []

    def add(
        self, start: int, anomaly: NDArray[np.float64], alarm: NDArray[np.bool_], time: NDArray[np.float64] | None
    ) -> None:
        """The next rows (B, S), from ``start`` on, and their times (B,)."""
        for c, name in enumerate(self._signals):
            for t in np.flatnonzero(alarm[:, c]).tolist():
                last, score = self._last.get(name), float(anomaly[t, c])
                if last is None or start + t > last.row + last.rows:
                    self._keep(last)
                    self._counts[name]["alarms"] += 1
                    last = _Alarm(score, start + t, name, float("nan") if time is None else float(time[t]))
                    self._last[name] = last
                last.score, last.rows = max(last.score, score), last.rows + 1
                self._counts[name]["alarm_rows"] += 1

    def _keep(self, alarm: _Alarm | None) -> None:
        if alarm is not None:
            (heapq.heappush if len(self._kept) < KEPT else heapq.heappushpop)(self._kept, alarm)

    def counts(self) -> dict[str, dict[str, int]]:
        """For each signal how many alarms it raised, and the rows in alarm."""
        return self._counts

    def highest(self) -> list[dict[str, Any]]:
        """The alarms with the highest scores, in the order of their rows."""
        for name in list(self._last):
            self._keep(self._last.pop(name))
        return [alarm.facts() for alarm in sorted(self._kept, key=lambda alarm: (alarm.row, alarm.signal))]
