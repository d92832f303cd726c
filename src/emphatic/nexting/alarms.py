"""Alarms: how surprising each reading is, against what was predicted and what has been usual.

At a row with reading x, of a signal whose predictions at horizons h = 1 / (1 − γ) were p before and are p' now, there
are these statistics:

    |x − p| / usual             how far the reading is from the prediction at the shortest horizon
    1 + run                     how often in a row the same reading has come: a sensor that is stuck
    |mean of d| / usual         for each horizon, d = (1 − γ) x + γ p' − p being the TD errors, the mean that of about
                                the last h rows, and of 4 at least: predictions that fail to one side, as they do when
                                a signal drifts (the unexpected demon error of White 2015, section 7.4)

"usual" is the running mean of what stands above it; in the first, half of it is that of the last 30 rows, so that a
restless hour is no alarm. Each statistic s is compared with its own past. Of u, which .02 of all rows exceed, and the
means M₁ of log(s/u) and M₂ of its square above u, the rate at which s is reached, per row, is

    rate = .02 θ (1 + ξ (s/u − 1) / (M₁ (1 − ξ₋)))^(−1/ξ),    ξ₋ = 1 − ½ / (1 − M₁²/M₂),    ξ = M₁ + ξ₋

for any kind of tail (Dekkers, Einmahl & de Haan 1989); θ is the share of exceedances before which there was none, for
what is large stays so for a while, and an alarm counts when it begins. While little is known, ξ₋ is drawn towards 0,
a tail like a power. All is learned from the past alone, the last 100,000 rows or so; rows in alarm count for a
twentieth. The score of the row is

    anomaly = −log₁₀ (1.5 J · the least rate of the J statistics)

with a margin of 1.5, at least 0 and at most 16: a score above 4 begins once in 10,000 rows at most, on a stationary
stream (measured: .2 to 1 times as often as stated). Where there is nothing to judge by it is 0, and there is no alarm:
in the first 200 rows, without a reading, and just after a gap.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from emphatic.nexting.settings import FALSE_ALARM_RATE, LEAST_RATE

__all__ = ["FALSE_ALARM_RATE", "LEAST_RATE", "Alarms"]

Array = NDArray[np.float64]

#: The state of a signal, of a question and of a tail: see the kernel.
_SCALARS, _ERRORS, _TAIL = 6, 4, 5


class Alarms:
    """The alarms of S signals that have Q questions in all, and their state from row to row.

    ``signals`` are the places of the questions' signals among the readings, ``gamma`` the questions' discounts, below
    1. ``rate`` is the number of false alarms per row and signal that is tolerated. ``places`` (S,) are the signals.

    >>> rng = np.random.default_rng(0)
    >>> x = rng.normal(size=(5000, 1))
    >>> x[4000] = 12.0
    >>> anomaly, alarm = Alarms([0], np.zeros(1), 1e-4)(np.zeros((5000, 1)), x, np.zeros(5000, bool))
    >>> int(np.argmax(alarm[:, 0])), bool(anomaly[4000, 0] > 4.0)
    (4000, True)
    """

    def __init__(self, signals: Sequence[int], gamma: Array, rate: float) -> None:
        self.rate, self.gamma = rate, np.ascontiguousarray(gamma, np.float64)
        own: dict[int, list[int]] = {}
        for q in np.argsort(self.gamma, kind="stable").tolist():
            own.setdefault(int(signals[q]), []).append(q)
        self.places = np.array(list(dict.fromkeys(signals)), np.int64)
        self._count = np.array([len(own[c]) for c in self.places.tolist()], np.int64)
        S, H = len(self.places), int(self._count.max(initial=0))
        self._questions = np.zeros((S, H), np.int64)
        for i, c in enumerate(self.places.tolist()):
            self._questions[i, : len(own[c])] = own[c]
        self._threshold = np.array([-math.log10(rate)])
        self.scalars, self.errors = np.zeros((S, _SCALARS)), np.zeros((S, H, _ERRORS))
        self.tails = np.zeros((S, H + 2, _TAIL))
        self.tails[:, :, :4] = math.log(3.0), 0.5, 0.5, 1.0  # until more is known
        self.tails[:, 1, 0] = 0.0

    def __call__(self, predictions: Array, readings: Array, gap: NDArray[np.bool_]) -> tuple[Array, NDArray[np.bool_]]:
        """The scores and the alarms, (B, S) each, of the next B rows.

        ``predictions`` (B, Q); ``readings`` (B, …) of all signals, NaN where missing; ``gap`` (B,) marks the rows that
        do not follow the row before.
        """
        from emphatic.nexting import alarm_kernels

        anomaly = np.empty((len(gap), len(self.places)))
        alarm = np.empty(anomaly.shape, np.bool_)
        alarm_kernels.alarms(
            np.ascontiguousarray(predictions), np.ascontiguousarray(readings), np.ascontiguousarray(gap), self.places,
            self._questions, self._count, self.gamma, self._threshold, self.scalars, self.errors, self.tails, anomaly,
            alarm,
        )  # fmt: skip
        return anomaly, alarm

    def arrays(self) -> dict[str, NDArray[Any]]:
        """The state, by name."""
        return {"scalars": self.scalars, "errors": self.errors, "tails": self.tails}

    def restore(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Restore what ``arrays`` returned; ValueError if it does not fit."""
        for name, own in self.arrays().items():
            stored = np.asarray(arrays.get(name))
            if stored.shape != own.shape or stored.dtype != own.dtype or not np.isfinite(stored).all():
                raise ValueError(f"the array {name!r} of the alarms does not fit")
            own[:] = stored
