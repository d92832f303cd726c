"""What is computed at each row from the predictions and the readings up to it: intervals and alarms.

This is the one place where such things are made, named and saved. A run on a table writes them as further columns of
``predictions.parquet``, a pipe as further entries of each line, and both save their state with the model. They depend
on the past alone, and on nothing but the predictions, the readings and the gaps, in the order of the rows: a run that
was interrupted may compute them again from what it has kept.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from emphatic.hordes.horde import Horde
from emphatic.nexting.alarms import FALSE_ALARM_RATE, Alarms
from emphatic.nexting.intervals import Intervals
from emphatic.nexting.prediction_lines import ENDS, OF_A_SIGNAL

__all__ = ["Derived"]

Array = NDArray[np.float64]


class Derived:
    """What is derived for the questions of a horde, and its state from row to row.

    Questions about a signal that have a constant γ < 1 and no policy get intervals: ``questions`` are their places
    among the horde's. Their ``signals`` get alarms. ValueError if a column would have the name of a question.
    """

    def __init__(self, horde: Horde, coverage: float, false_alarm_rate: float = FALSE_ALARM_RATE) -> None:
        gamma = horde.gamma
        self.questions = np.array(
            [
                q
                for q, question in enumerate(horde.questions)
                if horde.scaled and question.policy is None and question.cumulant in horde.signals and 0 <= gamma[q] < 1
            ],
            np.int64,
        )
        signals = [horde.signals.index(horde.questions[q].cumulant) for q in self.questions]
        self.intervals = Intervals(signals, gamma[self.questions], coverage)
        self.alarms = Alarms(signals, gamma[self.questions], false_alarm_rate)
        self.signals = tuple(horde.signals[c] for c in self.alarms.places.tolist())
        self._Q = len(gamma)
        #: The columns of ``predictions.parquet``: the name of each, its kind, and its place among those of this kind.
        self.names = [(f"{horde.names[q]}.{end}", end, q) for q in self.questions.tolist() for end in ENDS]
        self.names += [(f"{name}.{kind}", kind, i) for i, name in enumerate(self.signals) for kind in OF_A_SIGNAL]
        taken = {name for name, _, _ in self.names}.intersection(horde.names)
        if taken:
            raise ValueError(
                f"question {min(taken)!r}: this is the name of a column of intervals or alarms. Give it another name."
            )

    def __call__(self, predictions: Array, readings: Array, gap: NDArray[np.bool_]) -> dict[str, NDArray[Any]]:
        """Each kind at the next B rows: ``low`` and ``high`` (B, Q), NaN where a question has no interval; ``anomaly``
        and ``alarm`` (B, S), a column for each of ``signals``.

        ``predictions`` (B, Q); ``readings`` (B, S) of all signals, NaN where missing; ``gap`` (B,) marks the rows that
        do not follow the row before.
        """
        ends = self.intervals(predictions[:, self.questions], readings, gap)
        found: dict[str, NDArray[Any]] = {}
        for kind, end in zip(ENDS, ends, strict=True):
            found[kind] = np.full((len(predictions), self._Q), np.nan)
            found[kind][:, self.questions] = end
        alarms = self.alarms(predictions[:, self.questions], readings, gap)
        return found | dict(zip(OF_A_SIGNAL, alarms, strict=True))

    def columns(self, found: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
        """The columns of ``predictions.parquet``, by name."""
        return {name: np.ascontiguousarray(found[kind][:, place]) for name, kind, place in self.names}

    def state(self) -> dict[str, NDArray[Any]]:
        """What is saved with the horde."""
        return {f"{part}.{name}": array for part, own in self._parts() for name, array in own.arrays().items()}

    def restore(self, more: Mapping[str, Any]) -> None:
        """Go on from what was saved with the horde; afresh, if it was saved before there were intervals or alarms.

        ValueError if what was saved does not fit.
        """
        for part, own in self._parts():
            arrays = {
                name.removeprefix(f"{part}."): array for name, array in more.items() if name.startswith(f"{part}.")
            }
            if arrays:
                own.restore(arrays)

    def _parts(self) -> list[tuple[str, Intervals | Alarms]]:
        """Each with the name that its state is saved under."""
        return [("intervals", self.intervals), ("alarms", self.alarms)]
