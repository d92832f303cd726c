"""Episodes of one environment or several: a horde for each sequence of transitions, with its own traces.

A sequence may have its own weights too, or all may share one θ. Then θ = Σ_i θ_i, each sequence's learner holding what
it has itself contributed; what the others contribute to its TD error,

    δ = R + γ'θ·φ' − θ·φ = (R + γ'v' − v) + γ'θ_i·φ' − θ_i·φ,   v = Σ_{j≠i} θ_j·φ,  v' = Σ_{j≠i} θ_j·φ',

is part of the cumulant it is given. That is exact for every rule with one weight vector, for none looks at θ but
through δ: the weights are those of one learner whose traces are swapped at each turn.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import deepcopy
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from emphatic import rules, stepsizes
from emphatic.features import Features
from emphatic.hordes.horde import Horde
from emphatic.hordes.reading import REWARD
from emphatic.learning.inputs import Active, refusal, whole
from emphatic.learning.learner import Learner
from emphatic.questions.gvf import GVF
from emphatic.rules import AnyRule

__all__ = ["Episodes"]

Array = NDArray[np.float64]
#: α = RATE / mean φ·φ, unless given.
RATE = 0.1
_NO_LABELS: dict[str, Any] = {}


class Episodes:
    """Q questions about B sequences of transitions.

    ``flat`` converts an observation to an array (C,), whose components are called ``names``. With ``alpha``, which is
    α itself, ``rates`` are factors of it.
    """

    def __init__(
        self,
        questions: Sequence[GVF],
        features: Features,
        names: Sequence[str],
        flat: Callable[[Any], Array],
        *,
        sequences: int = 1,
        weights: str = "several",
        rule: str | AnyRule = "true_online_etd",
        alpha: float | Sequence[float] | None = None,
        rates: float | Sequence[float] | None = None,
        warm_up: int = 0,
        **settings: Any,
    ) -> None:
        questions = tuple(questions) if isinstance(questions, Sequence) else ()
        if not questions or not all(isinstance(question, GVF) for question in questions):
            raise refusal("questions", "LearnGVFs", "be a list of GVFs", repr(questions))
        if not isinstance(features, Features):
            raise refusal("features", "LearnGVFs", "be emphatic.features.Features, or a function", repr(features))
        if weights not in ("one", "several"):
            raise refusal("weights", "LearnGVFs", "be 'one' or 'several'", repr(weights))
        traits: AnyRule = rules.get(rule) if isinstance(rule, str) else rule
        if settings.get("stepsize") is not None:
            traits = stepsizes.get(settings["stepsize"]).rule(traits)
        self._shared = weights == "one" and sequences > 1
        if self._shared and len(getattr(traits, "weights", ())) > 1:
            wanted = f"be 'several' for rule {traits.name!r}, which has more weights than θ"
            raise refusal("weights", "LearnGVFs", wanted, "'one'")
        if rates is None:
            rates = RATE if alpha is None and settings.get("stepsize") is None else 1.0
        settings |= {"rule": rule, "rates": rates, "alpha": alpha, "scaled": False, "centred": False}
        self._new: Callable[[Features], Horde] = lambda features: Horde(questions, features, **settings)
        first = self._new(features)
        # (reports an invalid question at once)
        evaluator = first._evaluator_of((*names, REWARD), (), None)
        self._watched = evaluator.needs_observations  # functions need observations
        self._warm_up = 0 if warm_up == 0 else whole("warm_up", warm_up, "LearnGVFs")
        self._set([first], sequences, names, flat)
        if first.features._plan is not None or not self._warm_up:
            self._prepare()

    def _set(self, hordes: list[Horde], sequences: int, names: Sequence[str], flat: Callable[[Any], Array]) -> None:
        self._hordes, self._names, self._flat = hordes, tuple(names), flat
        self._observations: list[Array] = []  # of the warm-up
        self._ready = False
        #: The predictions at the last observation of each sequence, (Q,): 0 where it has terminated, NaN before the
        #: warm-up is over.
        self.predictions = [np.full(len(self.questions), np.nan) for _ in range(sequences)]

    @classmethod
    def resume(cls, horde: Horde, flat: Callable[[Any], Array], observation_of: Callable[[Array], Any]) -> Episodes:
        """One sequence, from a saved horde; ``observation_of`` is the inverse of ``flat``."""
        episodes = cls.__new__(cls)
        episodes._shared = False
        episodes._set([horde], 1, horde.features.signals, flat)
        episodes._ready, episodes._watched = True, horde._evaluator.needs_observations
        for rows in horde._episode or ():
            rows.originals = [observation_of(rows.values[0, :-1])]
        return episodes

    # ------------------------------------------------------------------ properties

    @property
    def questions(self) -> tuple[GVF, ...]:
        """The questions, in the order of the predictions."""
        return self._hordes[0].questions

    @property
    def features(self) -> Features:
        """The features of the first sequence; those of the others differ in their traces alone."""
        return self._hordes[0].features

    @property
    def hordes(self) -> tuple[Horde, ...]:
        """The horde of each sequence; none before the warm-up is over."""
        return tuple(self._hordes) if self._ready else ()

    @property
    def learners(self) -> list[Learner]:
        """The learner of each sequence; none before the warm-up is over."""
        return [horde.learner for horde in self.hordes]

    @property
    def theta(self) -> Array:
        """θ of each question: (K, n) where there is one set of weights, else (B, K, n); K = Q for one rate."""
        every = np.array([learner.theta for learner in self.learners])
        return every.sum(axis=0) if self._shared or len(every) == 1 else every

    @property
    def frozen(self) -> NDArray[np.bool_]:
        """Which questions keep their last weights because they would have diverged, (B, K)."""
        return np.array([learner.frozen for learner in self.learners])

    def log(self, i: int) -> dict[str, Any]:
        """The recorded input of sequence i's learner: arguments of ``Learner.run`` that lead to the same weights.

        Where the weights are shared, R includes what the other sequences contribute, and the learners' θ must be added.
        """
        return self._hordes[i].log()

    # ------------------------------------------------------------------ the stream

    def begin(self, i: int, observation: Any) -> None:
        """Begin an episode with its first observation. An episode that has not terminated is cut off here."""
        row = self._row(observation, np.nan)
        if not self._ready:
            self._observations.append(row[0, :-1])
            if len(self._observations) < self._warm_up:
                return
            self._prepare()
        self.predictions[i] = self._hordes[i]._begin(row, _NO_LABELS, self._kept(observation))

    def step(
        self,
        i: int,
        action: Any,
        reward: Any,
        observation: Any,
        terminated: bool,
        mu: float | None = None,
        now: bool = True,
        truncated: bool = False,
    ) -> None:
        """A transition: learn, and predict at the new observation.

        If not ``now``, learning is deferred and done together with later steps, with the same resulting weights. If no
        episode is running, as in an environment that resets itself, the observation begins one.
        """
        if not self._ready or self._hordes[i]._episode is None:
            self.begin(i, observation)
            return
        original = self._kept(observation) if self._watched else None
        answers = self._hordes[i]._learn(
            self._row(observation, reward), _NO_LABELS, original, action, terminated, truncated, mu, None, now
        )
        if answers is not None:
            self.predictions[i] = answers

    # ------------------------------------------------------------------ inside

    def _prepare(self) -> None:
        """With features: a horde for each sequence."""
        first, B = self._hordes[0], len(self.predictions)
        features = first.features
        if features._plan is None:
            rows = np.array(self._observations).reshape(-1, len(self._names))
            try:
                features.warm_up(rows, names=self._names)
            except ValueError as error:
                raise ValueError(f"{error} Give every part a range, or pass warm_up=500 to find it.") from error
        self._hordes += [self._new(deepcopy(features)) for _ in range(B - 1)]
        for horde in self._hordes:
            horde.prepare(self._names)
        if self._shared:
            groups = [horde._groups[0] for horde in self._hordes]
            for group in groups:
                group.others = partial(_sum_at, [other.learner for other in groups if other is not group])
        self._observations, self._ready = [], True

    def _row(self, observation: Any, reward: Any) -> Array:
        """The components of an observation and the reward that came with it, (1, C + 1)."""
        flat = self._flat(observation)
        row = np.empty(len(flat) + 1)
        row[:-1] = flat
        row[-1] = reward
        return row[None]

    def _kept(self, observation: Any) -> Any:
        """A copy of an observation for functions, as an environment may reuse its array."""
        if not self._watched:
            return None
        return observation.copy() if isinstance(observation, np.ndarray) else observation


def _sum_at(learners: Sequence[Learner], phi: Active) -> Any:
    """The sum of the learners' predictions."""
    return sum(learner.predict(phi) for learner in learners)
