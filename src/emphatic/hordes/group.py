"""Questions that share their features: φ of each row, the learner of all of them, and their answers."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from emphatic.engines.rows import Rows
from emphatic.features import Features
from emphatic.features.plan import FeatureColumns
from emphatic.hordes.blend import Blend
from emphatic.hordes.combination import Combination
from emphatic.hordes.ridges import LIMIT, STRENGTHS, Ridges
from emphatic.hordes.setup import Setup
from emphatic.learning.active import Active, make_unchecked
from emphatic.learning.learner import Learner
from emphatic.learning.recording import RecordedLearner
from emphatic.learning.sequences import UndiscountedWarning
from emphatic.questions.evaluator import Evaluator, Targets

__all__ = ["Group"]

Array = NDArray[np.float64]
#: One step that follows the one before.
_FOLLOWS = np.ones(1, bool)


class Group:
    """Q questions with one φ. Their learner has all of them with the first rate, then all with the next, and so on.

    A question of constant γ < 1 is learned in its cumulant's own unit, as the deviation from ``base``, and its emphasis
    starts and stays at 1; if not ``centred``, the return itself is learned.
    """

    def __init__(
        self,
        evaluator: Evaluator,
        features: Features,
        setup: Setup,
        base: Array,
        questions: NDArray[np.intp],
        learner: Learner | None = None,
    ) -> None:
        self.features, self.questions = features, questions
        whole = len(evaluator.gamma)
        self.setup = setup = setup if len(questions) == whole else setup.of(questions, whole)
        Q, E = len(questions), len(setup.rates)
        self._E = E
        self.gamma, self.lambda_, self.scale, self.unit, self.steady, blended, base = (
            every[questions]
            for every in (
                evaluator.gamma, evaluator.lambda_, evaluator.scale, evaluator.unit, evaluator.steady,
                evaluator.blended, base,
            )
        )  # fmt: skip
        self.learner = Learner(setup.rule, features.n, Q * E, **setup.kind) if learner is None else learner
        #: The mean from which deviations are learned.
        self.base = base if setup.centred else np.zeros(Q)
        constant = setup.constants(Q, features.norm, self.lambda_)
        self._alpha, self._lambda = constant[0], constant[2]
        # (eta is no longer needed)
        self._extra: dict[str, Any] = dict(zip(self.learner.rule.parameters[6:], constant[6:], strict=True))
        self.recorded = RecordedLearner(self.learner, constant, features.largest, setup.record)
        self._blended = np.flatnonzero(blended if E > 1 or setup.least_squares else np.zeros(Q, bool))
        #: Whether the learner's prediction is the answer.
        self._direct = E == 1 and not setup.centred and not setup.scaled and not setup.least_squares
        own = self.gamma[self._blended]
        #: The regressions beside the learner, if there are any.
        self.ridges: Ridges | None = None
        if setup.least_squares and features.n <= LIMIT and len(own):
            self.ridges = Ridges(own, self.base[self._blended], features.n, features.active)
        count = E + (len(STRENGTHS) if self.ridges is not None else 0)
        self.blend: Blend | Combination = Combination(own, count) if setup.least_squares else Blend(own, E)
        #: The single answers at the last rows, by name.
        self.answers: dict[str, Array] = {}
        #: φ of the last row; None after a cut.
        self.phi: Active | None = None
        #: Which questions learned nothing in the step before.
        self.fresh = np.ones(Q, bool)
        #: Whether anything was learned since the last cut or termination.
        self.open = False
        #: What the other learners that share the weights predict at φ, (K,).
        self.others: Callable[[Active], Array] | None = None
        self._phi_rows: Rows | None = None  # φ of the last step, as the learner reads it
        self._start = np.array([0, features.active])
        self._waiting: list[tuple[FeatureColumns, Targets, bool]] = []

    def columns(self, held: Array, missing: NDArray[np.bool_], time: Any, labels: Mapping[str, Any]) -> FeatureColumns:
        """The input of φ for rows (B, C), checked: invalid input raises here, and nothing changes."""
        return self.features.columns(held, time=time, labels=labels, missing=missing)

    # ------------------------------------------------------------------ rows of a log

    def rows(
        self, columns: FeatureColumns, targets: Targets, gap: NDArray[np.bool_], follows: NDArray[np.bool_], learn: bool
    ) -> Array:
        """Learn from rows and answer at each, (B, Q)."""
        B = len(gap)
        V = np.empty((B, self.learner.K or 1))
        ridges = np.empty((B, len(self._blended), 0 if self.ridges is None else len(STRENGTHS)))
        edges = [0, *(np.flatnonzero(gap[1:]) + 1).tolist(), B]
        for begin, end in pairwise(edges):
            if gap[begin]:
                self.cut()
            part = slice(begin, end)
            phi = self.features.activate(columns if end - begin == B else columns.part(part))
            if self.ridges is not None:
                ridges[part] = self.ridges(phi, targets.x[part][:, self._blended], follows[part], learn)
            if learn:
                V[part] = self._learn_log(phi, targets.part(part))
            else:
                if self.phi is not None or self.open:
                    self._forget()  # first, for it may change the last bit of a prediction
                V[part] = self.learner.predict(phi)
        return self._answers(V, targets.x, follows, ridges=ridges)

    def _learn_log(self, phi: Active, targets: Targets) -> Array:
        """Rows without a gap: the learners' predictions at each, (B, K)."""
        learner, before = self.learner, self.phi
        Phi = phi if before is None else _stacked(before, phi)
        first = 1 if before is None else 0  # no step ends in the first row of a sequence
        V = np.empty((0, learner.K or 1))
        if len(targets.R) > first:
            E = len(self.setup.rates)
            R, gamma, rho, I, rest = self._parameters(targets.part(slice(first, None)))
            alpha = self._alpha if rest is None else self._alpha * _tiled(rest, E)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", UndiscountedWarning)  # an episode may be longer than this
                V = learner.run(
                    Phi, _tiled(R, E), _smallest(gamma, E), alpha=alpha, lambda_=self._lambda,
                    I=_smallest(I, E), rho=_smallest(rho, E), on_divergence="freeze",
                    **self._extra | self._chances(targets.part(slice(first, None))),
                )  # fmt: skip
            self.fresh, self.open = ~targets.known[-1], True
        last = make_unchecked(phi.indices[-1:].copy(), phi.values[-1:].copy(), phi.top)
        with np.errstate(all="ignore"):
            V = np.vstack([V[1 - first :], learner.predict(last)])
        self.phi = last
        return V

    def cut(self) -> None:
        """Start a new sequence: forget the traces, those of features too, and learn nothing from the step across."""
        self.catch_up()
        self.features.cut()
        self._forget()

    def _forget(self) -> None:
        """Forget the learner's traces, and learn nothing from the step across."""
        self.recorded.cut()
        self.phi, self.open = None, False
        self.fresh[:] = True

    # ------------------------------------------------------------------ transitions

    def begin(self, columns: FeatureColumns, x: Array) -> Array:
        """The first row of an episode, with cumulants x (1, Q) read in it: the answers at it, (Q,)."""
        self.catch_up()
        self.features.cut()
        phi = self.features.activate(columns)
        if self.open:
            self.recorded.cut()
        self.phi, self._phi_rows, self.open = phi, None, False
        self.fresh[:] = True
        V = self.learner.predict(phi)
        if self.others is not None:
            V = V + self.others(phi)
        answers: Array = self._answers(V, x, np.zeros(1, bool))[0]
        return answers

    def step(self, columns: FeatureColumns, targets: Targets, terminated: bool, predict: bool) -> Array | None:
        """A transition to the row of these columns: learn, and answer there, (Q,), 0 where it ``terminated``.

        If not ``predict``, learning is deferred and done together with later steps, with the same weights as a result.
        """
        # (a function's numbers have no bound but their largest, which is found for each step)
        if self._waiting or not (predict or self.features.largest is None):
            self._waiting.append((columns, targets, terminated))
            return self.catch_up() if predict else None
        answers = self._learn_steps(self.features.activate(columns), targets, terminated)
        return answers if predict else None

    def catch_up(self) -> Array | None:
        """Learn from the deferred steps; returns the answers at the last row, if there were any."""
        if not self._waiting:
            return None
        every, targets, terminated = zip(*self._waiting, strict=True)
        self._waiting = []
        phi = self.features.activate(FeatureColumns.joined(every))
        return self._learn_steps(phi, Targets.joined(targets), terminated[-1])

    def _learn_steps(self, phi: Active, targets: Targets, terminated: bool) -> Array:
        """Steps that follow one another, to these φ; only the last may have terminated."""
        before, E = self.phi, self._E
        assert before is not None
        R, gamma, rho, I, rest = self._parameters(targets)
        alpha = None if rest is None else self._alpha * _tiled(rest, E)
        if E > 1:
            R, gamma, rho, I = (_tiled(p, E) for p in (R, gamma, rho, I))
        T = len(R)
        if T == 1:
            now, following, last = before.rows if self._phi_rows is None else self._phi_rows, self._one(phi), phi
        else:
            now, following, last = _stacked(before, phi[:-1]).rows, phi.rows, phi[-1:]
        if self.others is not None:
            at_next = self.others(phi)
            R = R + gamma * at_next - self.others(before)
        V = self.recorded.learn(now, following, I, rho, gamma, R, alpha, self._chances(targets))
        if self.others is not None:
            V = V + at_next
        self.phi, self._phi_rows, self.open = last, following if T == 1 else None, not terminated
        if self.setup.centred:
            self.fresh = ~targets.known[-1]
        if self._direct:
            return np.zeros_like(V[-1]) if terminated else V[-1]
        ends = None
        if terminated:
            ends = np.zeros(T, bool)
            ends[-1] = True
        answers = self._answers(V, targets.x, _FOLLOWS if T == 1 else np.ones(T, bool), ends)
        return np.zeros_like(answers[-1]) if terminated else answers[-1]

    # ------------------------------------------------------------------ inside

    def _one(self, phi: Active) -> Rows:
        """One row, quicker than ``Active.rows``."""
        return Rows(self._start, phi.indices[0], phi.values[0])

    def _chances(self, targets: Targets) -> dict[str, Array]:
        """π and μ of the steps, (T, K), where the rule uses them; π = 0 forgets the trace where nothing is known."""
        if targets.chances is None:
            return {}
        pi, mu = targets.chances
        found = {"pi": np.where(targets.known, pi, 0.0), "mu": mu}
        return {name: _tiled(found[name], self._E) for name in self.setup.chances}

    def _parameters(self, targets: Targets) -> tuple[Array, Array, Array, Array, Array | None]:
        """R, γ', ρ, I, and the factor of α if there is one, of consecutive steps, (T, Q)."""
        known, R, rho, I = targets.known, targets.R, targets.rho, targets.interest
        if not targets.all_known:
            rho = np.where(known, rho, 0.0)
        if not self.setup.centred:
            return R, targets.gamma, rho, I, None
        R = np.where(known, R * self.scale - self.base * self.unit, 0.0)
        steady = np.vstack([self.fresh, ~known[:-1]]) & self.steady
        if not steady.any():
            return R, targets.gamma, rho, I, None
        # After a break F would climb again from I = 1 − γ: start it at 1, where it stays, with M α as ever.
        return (
            R, targets.gamma, rho, np.where(steady, 1.0, I),
            np.where(steady, 1.0 - self.gamma * self.lambda_, 1.0),
        )  # fmt: skip

    def _answers(
        self, V: Array, x: Array, follows: NDArray[np.bool_], ends: NDArray[np.bool_] | None = None,
        ridges: Array | None = None,
    ) -> Array:  # fmt: skip
        """One answer to each question, (B, Q), from its learners' V (B, K), and the ``ridges`` of those blended."""
        B, Q, E, setup = len(V), len(self.gamma), len(self.setup.rates), self.setup
        if self._direct:
            return V
        each = V.reshape(B, E, Q) + self.base if setup.centred else V.reshape(B, E, Q) * self.scale
        out = np.array(each[:, E // 2])
        blended = self._blended
        if len(blended):
            V = each[:, :, blended].transpose(0, 2, 1)
            if isinstance(self.blend, Combination):
                assert ridges is not None
                V = np.concatenate([V, ridges], axis=2)
                out[:, blended], single = self.blend(V, x[:, blended], follows)
                self.answers = self._named(single)
            else:
                out[:, blended] = self.blend(V, x[:, blended], follows, ends)
        return out if setup.scaled else out / self.scale

    def _named(self, single: Array) -> dict[str, Array]:
        """Single answers (B, blended, E) by their names, (B, Q) each, NaN for questions that are not blended."""
        names = [f"rate {rate:g}" for rate in self.setup.rates]
        names += [] if self.ridges is None else [f"ridge {strength:g}" for strength in STRENGTHS]
        found = {}
        for i, name in enumerate((*names, "reading", "trace")):
            found[name] = np.full((len(single), len(self.questions)), np.nan)
            found[name][:, self._blended] = single[:, :, i]
        return found


def _stacked(before: Active, phi: Active) -> Active:
    return make_unchecked(
        np.concatenate([before.indices, phi.indices]), np.concatenate([before.values, phi.values]),
        max(before.top, phi.top),
    )  # fmt: skip


def _tiled(p: Array, E: int) -> Array:
    """A parameter (T, Q) repeated for E learners per question."""
    return np.concatenate([p] * E, axis=1)


def _smallest(p: Array, E: int) -> Array:
    """The same, as (1, K) where it is the same in every step."""
    return _tiled(p[:1] if len(p) > 1 and (p == p[0]).all() else p, E)
