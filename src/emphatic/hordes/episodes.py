"""Episodes, one transition at a time, of one environment or several: questions, features, learners and a log.

Each of B environments is a sequence of its own, with its own traces (of the learner and of the features). It may
have its own weights too, or all may share one θ. Then θ = Σ_i θ_i, each sequence's learner holding what it has itself
contributed; what the others contribute to its TD error,

    δ = R + γ'θ·φ' − θ·φ = (R + γ'v' − v) + γ'θ_i·φ' − θ_i·φ,   v = Σ_{j≠i} θ_j·φ,  v' = Σ_{j≠i} θ_j·φ',

is part of the cumulant it is given. That is exact for every rule with one weight vector, for none looks at θ but
through δ: the weights are those of one learner whose traces are put aside and taken up again at each turn.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from emphatic import rules
from emphatic.engines.rows import Rows
from emphatic.features import Features
from emphatic.learning.active import Active
from emphatic.learning.inputs import parameters, refusal, whole
from emphatic.learning.learner import Learner
from emphatic.learning.recording import Recorded
from emphatic.questions.gvf import GVF
from emphatic.questions.transitions import Transitions, chance

__all__ = ["Episodes"]

Array = NDArray[np.float64]
#: α = RATE / mean φ·φ, unless given.
RATE = 0.1


class Episodes:
    """Q questions asked of B sequences of transitions.

    ``flat`` makes an array (C,) of an observation, whose components are called ``names``. ``mu`` is the behaviour's
    probability of an action: a function of (observation, action), a number, or None where it is not known.
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
        rule: str = "true_online_etd",
        alpha: float | Sequence[float] | None = None,
        mu: Any = None,
        warm_up: int = 0,
        record: bool = False,
        dtype: str = "float64",
        engine: str = "auto",
        **extra: Any,
    ) -> None:
        self.questions = tuple(questions) if isinstance(questions, Sequence) else ()
        if not self.questions or not all(isinstance(question, GVF) for question in self.questions):
            raise refusal("questions", "LearnGVFs", "be a list of GVFs", repr(questions))
        if not isinstance(features, Features):
            raise refusal("features", "LearnGVFs", "be emphatic.features.Features", repr(features))
        if weights not in ("one", "several"):
            raise refusal("weights", "LearnGVFs", "be 'one' or 'several'", repr(weights))
        traits = rules.get(rule)
        if {"pi", "mu"} & set(traits.extra):
            raise refusal("rule", "LearnGVFs", "be one that takes ρ alone, and not π or μ", repr(rule))
        if not traits.interest:
            if any(question.interest is not None for question in self.questions):
                raise refusal("interest", "GVF", f"be left out for rule {rule!r}, which has none", "one")
            self.questions = tuple(replace(question, interest=1.0) for question in self.questions)
        self._names, self._flat, self._features = tuple(names), flat, features
        self._asking = Transitions(self.questions, self._names)
        self._kind: dict[str, Any] = {"rule": rule, "K": len(self.questions), "dtype": dtype, "engine": engine}
        self._alpha, self._extra, self._mu = alpha, extra, mu
        self._shared = weights == "one" and sequences > 1
        if self._shared and len(traits.weights) > 1:
            raise refusal("weights", "LearnGVFs", f"be 'several' for rule {rule!r}, which has w besides θ", "'one'")
        self._seen: list[Array] = []
        self._warm_up = 0 if warm_up == 0 else whole("warm_up", warm_up, "LearnGVFs")
        B, Q = sequences, len(self.questions)
        #: θ·φ at the last observation of each sequence, (Q,): 0 where it has terminated, NaN before the warm-up.
        self.predictions = [np.full(Q, np.nan) for _ in range(B)]
        #: Each sequence's learner, once there are features.
        self.learners: list[Learner] = []
        self._row = [np.empty(0)] * B
        self._observation: list[Any] = [None] * B
        self._phi: list[Rows | None] = [None] * B
        self._queue: list[list[tuple[Array, ...]]] = [[] for _ in range(B)]
        self._open = [False] * B  # learned from since the last beginning, and not terminated
        self._followed: list[Recorded] = []
        self._record = record
        if features._plan is not None or not self._warm_up:
            self._ready()

    # ------------------------------------------------------------------ what it is

    @property
    def theta(self) -> Array:
        """θ of each question: (Q, n) where there is one set of weights, else (B, Q, n)."""
        self._catch_up_all()
        every = np.array([learner.theta for learner in self.learners])
        return every.sum(axis=0) if self._shared or len(every) == 1 else every

    @property
    def frozen(self) -> NDArray[np.bool_]:
        """Which questions stand still since they would have diverged, (B, Q)."""
        return np.array([followed.frozen for followed in self._followed])

    def log(self, i: int) -> dict[str, Any]:
        """All that sequence i's learner was given: the arguments of ``Learner.run`` that lead to the same weights.

        Where the weights are shared, R has what the other sequences contribute, and the learners' θ are to be added.
        """
        self._catch_up_all()
        return self._followed[i].log()

    # ------------------------------------------------------------------ the stream

    def begin(self, i: int, observation: Any) -> None:
        """The first observation of an episode. What was not terminated is cut off here."""
        if self._queue[i]:
            self._catch_up(i)
        if self._open[i]:
            self._followed[i].cut()
            self._open[i] = False
        self._hold(i, observation, self._read(observation, 0.0))
        if not self.learners:
            self._seen.append(self._row[i][:-1])
            if len(self._seen) < self._warm_up:
                return
            self._ready()
        self._makers[i].cut()
        phi = self._makers[i](self._row[i][:-1])
        self._phi[i] = phi.rows
        self.predictions[i] = self._at(phi, self.learners if self._shared else self.learners[i : i + 1])

    def step(
        self,
        i: int,
        action: Any,
        reward: Any,
        observation: Any,
        terminated: bool,
        mu: float | None = None,
        now: bool = True,
    ) -> None:
        """A transition: learn, and predict at the new observation.

        If not ``now``, that is put off, and done together with later steps, to the same weights.
        """
        phi, before, row = self._phi[i], self._observation[i], self._row[i]
        if phi is None:
            self.begin(i, observation)
            return
        reward = float(reward)
        row_next = self._read(observation, reward)
        transition = (before, action, reward, observation)
        R, gamma, rho, I = self._asking(row, row_next, transition, terminated, lambda: self._chance(before, action, mu))
        self._hold(i, observation, row_next)
        self._open[i] = not terminated
        if self._queue[i] or not now:
            self._queue[i].append((row_next[:-1], I, rho, gamma, R))
            if now:
                self._catch_up(i)
            if now and terminated:
                self.predictions[i] = np.zeros_like(R)
            return
        made = self._makers[i](row_next[:-1])
        phi_next = made.rows
        if self._shared:
            rest = self.learners[:i] + self.learners[i + 1 :]
            others = self._at(made, rest)
            R = R + gamma * others - self._at(Active(phi.index, phi.value), rest)
        v = self._followed[i].learn(phi, phi_next, I[None], rho[None], gamma[None], R[None])
        if self._shared:
            v = v + others
        self._phi[i] = phi_next
        self.predictions[i] = np.zeros_like(v) if terminated else v

    # ------------------------------------------------------------------ inside

    def _ready(self) -> None:
        """With features: learners, and the parameters that stay the same."""
        features, B, Q = self._features, len(self._phi), len(self.questions)
        if features._plan is None:
            rows = np.array(self._seen).reshape(-1, len(self._names))
            try:
                features.warm_up(rows, names=self._names)
            except ValueError as error:
                raise ValueError(f"{error} Give every part a range, or say warm_up=500 for so many steps.") from error
        if features.signals != self._names:
            wanted = f"have a signal for each component of an observation, {', '.join(self._names)}"
            raise refusal("features", "LearnGVFs", wanted, ", ".join(features.signals))
        self._seen = []
        self._makers = [features, *(Features.load(*features.save()) for _ in range(B - 1))]
        self.learners = [Learner(n=features.n, **self._kind) for _ in range(B)]
        alpha = RATE / max(features.norm, 1e-12) if self._alpha is None else np.asarray(self._alpha, np.float64)
        given = (alpha, 1.0, self._asking.lambda_, 1.0, 0.0, 0.0)
        constant = parameters(self.learners[0].rule, "learn", 1, Q, given, self._extra)
        constant = tuple(np.ascontiguousarray(p) for p in constant)
        # No component of φ is larger than the number of active ones, even where hashed tiles fall together.
        top = float(features.active)
        self._followed = [Recorded(learner, constant, top, self._record) for learner in self.learners]

    def _catch_up(self, i: int) -> None:
        """The steps that were put off."""
        before = self._phi[i]
        assert before is not None
        rows, *given = (np.stack(column) for column in zip(*self._queue[i], strict=True))
        self._queue[i] = []
        phi = self._makers[i](rows)
        index, value = np.vstack([before.index, phi.indices]), np.vstack([before.value, phi.values])
        now, following = Active(index[:-1], value[:-1]).rows, phi.rows
        self.predictions[i] = self._followed[i].learn(now, following, *given)
        self._phi[i] = Active(index[-1], value[-1]).rows

    def _catch_up_all(self) -> None:
        for i, queue in enumerate(self._queue):
            if queue:
                self._catch_up(i)

    def _at(self, phi: Active, learners: Sequence[Learner]) -> Any:
        """What the learners together predict."""
        return sum(learner.predict(phi) for learner in learners)

    def _chance(self, observation: Any, action: Any, mu: float | None) -> float | None:
        if mu is not None:
            return float(mu)
        return None if self._mu is None else chance(self._mu, observation, action)

    def _read(self, observation: Any, reward: float) -> Array:
        """The components of an observation, and the reward that came with it."""
        flat = self._flat(observation)
        row = np.empty(len(flat) + 1)
        row[:-1] = flat
        row[-1] = reward
        return row

    def _hold(self, i: int, observation: Any, row: Array) -> None:
        # (an environment may use its array again)
        self._observation[i] = observation.copy() if isinstance(observation, np.ndarray) else observation
        self._row[i] = row
