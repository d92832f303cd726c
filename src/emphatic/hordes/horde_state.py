"""The state of a Horde: questions, features, learners, and its position in the stream."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from emphatic.common.guard import Guard
from emphatic.features import Features
from emphatic.hordes import checkpoints
from emphatic.hordes.group import Group
from emphatic.hordes.groups import Groups
from emphatic.hordes.setup import Setup
from emphatic.learning import checkpoint
from emphatic.learning.learner import Learner
from emphatic.questions.evaluator import Evaluator
from emphatic.questions.gvf import GVF
from emphatic.questions.quantities import Before
from emphatic.questions.ratios import Behaviour
from emphatic.tables import Hold

__all__ = ["HordeState"]

Array = NDArray[np.float64]


class HordeState:
    """Questions, their features and learners; see ``Horde``, which learns."""

    questions: tuple[GVF, ...]
    rule: str
    rates: tuple[float, ...]
    step: float | None
    scaled: bool
    _makers: list[Features]
    _shares: list[NDArray[np.intp]]
    _mu: Behaviour
    _setup: Setup
    _group: Group | Groups | None
    _guard: Guard

    # ------------------------------------------------------------------ properties

    @property
    def names(self) -> tuple[str, ...]:
        """The questions' names, in the order of the predictions."""
        return tuple(question.name for question in self.questions)

    @property
    def features(self) -> Features:
        """The features that all questions share; if they have features of their own, see ``makers``."""
        if len(self._makers) > 1:
            raise RuntimeError("The questions of this Horde have features of their own: see makers.")
        return self._makers[0]

    @property
    def makers(self) -> tuple[Features, ...]:
        """Each ``Features`` once, in the order of the first question that has it."""
        return tuple(self._makers)

    @property
    def learner(self) -> Learner:
        """The learner: the questions with the first rate, then all with the next, and so on."""
        if len(self.learners) > 1:
            raise RuntimeError("The questions of this Horde have features of their own: see learners.")
        return self.learners[0]

    @property
    def learners(self) -> tuple[Learner, ...]:
        """The learner of each of ``makers``, of the questions that share it."""
        self._require().catch_up()
        return tuple(group.learner for group in self._groups)

    @property
    def gamma(self) -> Array:
        """γ of each question; NaN where it varies."""
        self._require()
        return self._evaluator.gamma.copy()

    @property
    def base(self) -> Array:
        """The mean of each cumulant in the warm-up, from which deviations are learned; 0 for questions without one."""
        self._require()
        base = np.empty(len(self.questions))
        for group in self._groups:
            base[group.questions] = group.base
        return base

    @property
    def rows(self) -> int:
        """The rows seen so far."""
        self._require()
        return self._rows

    @property
    def hold(self) -> Hold:
        """The last readings, and counts of missing ones."""
        self._require()
        return self._hold

    @property
    def counts(self) -> dict[str, dict[str, int]]:
        """The actions counted so far, by question, where they are counted."""
        self._require()
        named = [question.name for question in self.questions if question.policy is not None]
        return {name: counts for name, counts in zip(named, self._evaluator.counts, strict=True) if counts}

    @property
    def signals(self) -> tuple[str, ...]:
        """The signals that questions may name: those of the features, and "reward" in transitions."""
        self._require()
        return self._evaluator.signals

    @property
    def categories(self) -> tuple[str, ...]:
        """The columns of labels."""
        self._require()
        return self._evaluator.categories

    @property
    def answers(self) -> dict[str, Array]:
        """With ``least_squares``: the single answers at the rows seen last, {"rate 0.1": (B, Q), …, "trace": (B, Q)}.

        NaN where a question has no such answer. Each is within the readings so far and half their range beyond.
        """
        self._require()
        found: dict[str, Array] = {}
        for group in self._groups:
            for name, values in group.answers.items():
                found.setdefault(name, np.full((len(values), len(self.questions)), np.nan))[:, group.questions] = values
        return found

    @property
    def in_episode(self) -> bool:
        """Whether an episode has begun, and neither terminated nor been truncated."""
        self._require()
        return self._episode is not None

    def __repr__(self) -> str:
        makers = ", ".join(map(repr, self._makers))
        return f"Horde({len(self.questions)} questions, {makers}, {self.rule!r}, rates={self.rates})"

    def _require(self) -> Group | Groups:
        if self._group is None:
            raise RuntimeError(
                "A Horde must be warmed up before use: call warm_up(table), run(table), or prepare(names)."
            )
        return self._group

    # ------------------------------------------------------------------ saving

    def save(self, path: str | os.PathLike[str], **more: Any) -> None:
        """Write one safetensors file with the complete state.

        ``more`` is saved with it, for ``load_with``: arrays as arrays, other values as JSON in the header.
        """
        self._require()
        with self._guard:
            checkpoint.write(path, *checkpoints.state(self, more))

    # ------------------------------------------------------------------ inside

    def _evaluator_of(self, signals: Sequence[str], categories: Sequence[str], step: float | None) -> Evaluator:
        setup = self._setup
        return Evaluator(self.questions, signals, categories, step, setup.rule, self._mu, bool(setup.chances))

    def _start(self, evaluator: Evaluator, base: Array, learners: Sequence[Learner | None] = ()) -> None:
        """Before the first row."""
        self._evaluator = evaluator
        self._groups = [
            Group(evaluator, maker, self._setup, base, questions, learner)
            for maker, questions, learner in zip(
                self._makers, self._shares, learners or [None] * len(self._makers), strict=True
            )
        ]
        self._group = self._groups[0] if len(self._groups) == 1 else Groups(self._groups)
        self._hold = Hold(len(evaluator.signals))
        self._components = len(self._makers[0].signals)
        self._none_missing = np.zeros((1, self._components), bool)
        self._rows = 0
        self._before: Before | None = None  # the last row of a log, where a function needs it
        self._episode: Before | None = None  # the last row of an episode in progress
