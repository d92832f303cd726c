"""A Horde's next rows, of a log or an episode: read, held, evaluated, and learned from."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from emphatic.hordes.horde_state import HordeState
from emphatic.hordes.reading import REWARD, probability, row_of
from emphatic.questions.gvf import LARGEST, Observations
from emphatic.tables import Hold

__all__ = ["HordeSteps"]

Array = NDArray[np.float64]
#: No reading of a row is beyond ``LARGEST`` if the sum of their squares is not beyond this.
_SQUARE = LARGEST**2


class HordeSteps(HordeState):
    """Rows of a log and transitions, as arrays; see ``Horde`` for the public methods."""

    def cut(self) -> None:
        """Start a new sequence: forget the traces, those of features too, and learn nothing from the step across."""
        with self._guard:
            self._forget()

    def _forget(self) -> None:
        self._require().cut()
        self._before = self._episode = None

    def _learn_rows(
        self, values: Array, time: Any, labels: Mapping[str, Any], actions: Any, mu: Any, gap: NDArray[np.bool_],
        learn: bool = True,
    ) -> Array:  # fmt: skip
        """Learn from the next rows, and answer. Invalid input raises before anything is changed."""
        group, evaluator = self._require(), self._evaluator
        if self._episode is not None or self._setup.record:
            what = "An episode is in progress: continue with learn(), or call cut() first."
            raise RuntimeError("A Horde with record=True accepts transitions only." if self._setup.record else what)
        if group.phi is None and any(each.open for each in self._groups):
            self._forget()  # an episode was truncated
        hold = self._hold.copy()
        held, missing = hold.fill(values)
        raw, full = (Observations(evaluator.signals, part, labels, actions, mu) for part in (values, held))
        follows = ~gap & learn
        follows[:1] &= group.phi is not None
        departure, counts = evaluator.departure, evaluator.counts
        try:
            targets = evaluator(raw, full, self._before, follows)
            C = self._components
            columns: Any = group.columns(held[:, :C], missing[:, :C], time, labels)
            answers = group.rows(columns, targets, gap, follows, learn)
        except Exception:
            evaluator.departure, evaluator.counts = departure, counts
            raise
        self._hold = hold
        self._rows += len(values)
        if evaluator.needs_before:
            last = slice(len(raw) - 1, len(raw))
            self._before = raw.part(last), full.part(last)
        return answers

    def _begin(self, values: Array, labels: Mapping[str, Any], original: Any, time: Any = None) -> Array:
        """``begin`` with a row (1, C) of all signals; functions see the ``original``, or if it is None the row."""
        group, evaluator = self._require(), self._evaluator
        values[~np.isfinite(values)] = np.nan
        hold = self._hold.copy()
        if REWARD in evaluator.signals:  # it belongs to a step, and the last one is not of this episode
            hold.last = hold.last.copy()
            hold.last[evaluator.signals.index(REWARD)] = np.nan
        held, missing = hold.fill(values)
        originals = None if original is None else [original]
        raw, full = (Observations(evaluator.signals, v, labels, None, None, originals) for v in (values, held))
        C, when = self._components, None if time is None else np.array([time])
        columns: Any = group.columns(held[:, :C], missing[:, :C], when, labels)
        answers = group.begin(columns, evaluator.cumulants(raw))
        self._hold, self._before, self._episode = hold, None, (raw, full)
        self._rows += 1
        return answers

    def _learn(
        self, values: Array, labels: Mapping[str, Any], original: Any, action: Any, terminated: bool,
        truncated: bool = False, mu: Any = None, time: Any = None, predict: bool = True,
    ) -> Array | None:  # fmt: skip
        """``learn`` of the step to a row (1, C) of all signals."""
        group, evaluator, before = self._group, self._evaluator, self._episode
        if before is None or group is None:
            raise RuntimeError("An episode must begin before its first step: call begin(observation).")
        now, now_held = before
        now.actions, now.mu = now_held.actions, now_held.mu = [action], probability(mu, "learn")
        raw, held, missing, hold = self._row(values, labels, original)
        counts = evaluator.counts if evaluator.counting else None
        try:
            targets = evaluator.transition(before, raw, held, terminated)
            when = None if time is None else np.array([time])
            columns: Any = group.columns(held.values[:, : self._components], missing, when, labels)
            answers = group.step(columns, targets, terminated, predict or terminated or truncated)
        except Exception:
            if counts is not None:
                evaluator.counts = counts
            raise
        if hold is None:
            self._hold.follow(values[0])
        else:
            self._hold = hold
        self._episode = (raw, held)
        if terminated or truncated:
            self._episode = None
            for each in self._groups:
                each.phi = None  # no step leads from here to a row of a log
        self._rows += 1
        return answers

    def _row(
        self, values: Array, labels: Mapping[str, Any], original: Any
    ) -> tuple[Observations, Observations, NDArray[np.bool_], Hold | None]:
        """A row (1, C) as it was read and with readings held, what is missing in it, and the next ``hold``.

        Where nothing is missing the first two are the same, and the hold is to ``follow``.
        """
        signals, originals = self._evaluator.signals, None if original is None else [original]
        one = values[0]
        if one.dot(one) <= _SQUARE:  # not so if any is missing, or too large
            row = Observations(signals, values, labels, None, None, originals, True)
            return row, row, self._none_missing, None
        values[~np.isfinite(values)] = np.nan
        hold = self._hold.copy()
        held, missing = hold.fill(values)
        raw, full = (Observations(signals, v, labels, None, None, originals) for v in (values, held))
        return raw, full, missing[:, : self._components], hold

    def _read(self, observation: Any, function: str, reward: Any = None) -> tuple[Array, dict[str, Any]]:
        return row_of(observation, function, self._evaluator.signals, self._evaluator.categories, reward)
