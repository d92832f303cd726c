"""Questions that share their features: φ of each row, the learner of all of them, and their answers.

``Group`` is the questions of one feature maker; ``Groups`` are several of them that act as one.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from emphatic.answers.periods import Period
from emphatic.engines.base import Rows
from emphatic.features import Features
from emphatic.features.plan import FeatureColumns
from emphatic.hordes.blend import Blend, Combination, RateBlend
from emphatic.hordes.possible import Possible
from emphatic.hordes.ridges import LIMIT, STRENGTHS, Ridges
from emphatic.hordes.seasons import ANSWERS, Seasons
from emphatic.learning.inputs import Active, make_unchecked, parameters
from emphatic.learning.learner import Learner, RecordedLearner
from emphatic.learning.returns import UndiscountedWarning
from emphatic.learning.tensors import TensorPart
from emphatic.questions.evaluator import Evaluator, Targets
from emphatic.rules import AnyRule

__all__ = ["BOUNDED", "Group", "Groups", "Setup", "fill_in", "under"]

T = TypeVar("T")
Array = NDArray[np.float64]
Flags = NDArray[np.bool_]
Times = NDArray[Any] | None
Labels = Mapping[str, Any]
#: Room for all single answers, with those of ridges and seasons in it, and which seasons are new ones.
Beside = tuple[Array | None, Flags | None]
#: The rule that a horde gives the range of possible returns.
BOUNDED = "bounded_etd"
#: A step that follows the one before, and one that does not.
_FOLLOWS, _BEGINS = np.ones(1, bool), np.zeros(1, bool)


@dataclass(frozen=True)
class Setup:
    """How a horde learns: its rule, rates and step size, and every parameter that stays the same; see ``Horde``."""

    rule: AnyRule
    rates: tuple[float, ...]
    alpha: float | Sequence[float] | None
    scaled: bool
    centred: bool
    record: bool
    kind: Mapping[str, Any]
    extra: Mapping[str, Any]
    least_squares: bool = False
    weekly: bool = True

    def of(self, questions: NDArray[np.intp], Q: int) -> Setup:
        """The same for some of the Q questions."""

        def select(parameter: Any) -> Any:
            return parameter if parameter is None or np.ndim(parameter) == 0 else np.asarray(parameter)[questions]

        extra = {name: select(parameter) for name, parameter in self.extra.items()}
        kind = dict(self.kind)
        if "stepsize" in kind:  # one number a learner: of all questions with the first rate, then with the next
            learners = [questions + Q * i for i in range(len(self.rates))]
            kind["stepsize"] = kind["stepsize"].select(np.concatenate(learners))
        return replace(self, alpha=select(self.alpha), extra=extra, kind=kind)

    @property
    def chances(self) -> tuple[str, ...]:
        """Which of π and μ the rule itself uses; they come from the questions' policies."""
        return tuple(name for name in ("pi", "mu") if name in self.rule.extra and name not in self.extra)

    def constants(self, Q: int, norm: float, lambda_: ArrayLike) -> tuple[Array, ...]:
        """All parameters of a step (1, K), of which I, ρ, γ', R and ``chances`` are passed anew in each step."""
        E = len(self.rates)
        alpha: Any
        if self.alpha is None and "stepsize" in self.kind:
            alpha = np.repeat(self.rates, Q)
        elif self.alpha is None:
            alpha = np.repeat(self.rates, Q) / max(norm, 1e-12)
        else:
            alpha = _scaled_by(self.rates, self.alpha, Q)
        values = (alpha, 1.0, np.tile(lambda_, E), 1.0, 0.0, 0.0)
        extra = {name: p if np.ndim(p) == 0 else np.tile(p, E) for name, p in self.extra.items()}
        extra |= dict.fromkeys(self.chances, 1.0)
        return tuple(np.ascontiguousarray(p) for p in parameters(self.rule, "learn", 1, Q * E, values, extra))


class Group:
    """Q questions with one φ. Their learner has all of them with the first rate, then all with the next, and so on.

    A question of constant γ < 1 is learned in its cumulant's own unit, as the deviation from ``base``, and without a
    policy its F starts and stays at 1; if not ``centred``, the return itself is learned.

    Args:
        evaluator: The questions of the whole horde on its stream.
        features: The feature maker that these questions share.
        setup: How the horde learns.
        base: The mean of each question's cumulant, of all questions of the horde.
        questions: The places of these questions among those of the horde.
        learner: Their learner, where it was saved; a new one by default.
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
        all_questions = len(evaluator.gamma)
        self.setup = setup = setup if len(questions) == all_questions else setup.of(questions, all_questions)
        Q, E = len(questions), len(setup.rates)
        self._E = E
        self.gamma, self.lambda_, self.scale = (
            array[questions] for array in (evaluator.gamma, evaluator.lambda_, evaluator.scale)
        )
        self.unit, self.steady, base = evaluator.unit[questions], evaluator.steady[questions], base[questions]
        blended = evaluator.blended[questions] if E > 1 or setup.least_squares else np.zeros(Q, bool)
        self.learner = Learner(setup.rule, features.n, Q * E, **setup.kind) if learner is None else learner
        #: The mean from which deviations are learned.
        self.base = base if setup.centred else np.zeros(Q)
        constant = setup.constants(Q, features.norm, self.lambda_)
        self._alpha, self._lambda = constant[0], constant[2]
        #: Whether predictions are kept to what is possible, or else answers that are not blended compared with it.
        self._is_bounded = setup.rule.name == BOUNDED
        self._judges = not self._is_bounded and not blended.all()
        factor = np.ones(Q)
        if setup.scaled != setup.centred:  # an answer is a return, and the learner has its cumulant's unit; or reversed
            factor = self.scale if setup.centred else 1.0 / self.scale
        #: What is possible, and the support.
        self.possible = Possible(self.gamma, evaluator.with_policy[questions], self.base, factor, ~blended, E)
        names = self.learner.rule.parameters
        if self._is_bounded:  # the learner is given what is possible, which changes in place
            bounds = dict(zip(("low", "high"), self.possible.bounds.swapaxes(0, 1), strict=True))
            constant = tuple(bounds.get(name, p) for name, p in zip(names, constant, strict=True))
        # (eta is no longer needed)
        self._extra: dict[str, Any] = dict(zip(names[6:], constant[6:], strict=True))
        self.recorded = RecordedLearner(self.learner, constant, features.largest, setup.record)
        #: The questions whose answers are blended; a slice where all are, which is quicker.
        self._blended: NDArray[np.intp] | slice = slice(None) if blended.all() else np.flatnonzero(blended)
        self._any_blended, self._all_blended = bool(blended.any()), bool(blended.all())
        #: Whether the learner's prediction is the answer.
        self._direct = E == 1 and not setup.centred and not setup.scaled and not setup.least_squares
        gamma = self.gamma[self._blended]
        #: The regressions beside the learner, if there are any.
        self.ridges: Ridges | None = None
        if setup.least_squares and features.n <= LIMIT and self._any_blended:
            self.ridges = Ridges(gamma, self.base[self._blended], features.n, features.active)
        #: The answers from the past of each signal, if there are any.
        self.seasons: Seasons | None = None
        if setup.least_squares and self._any_blended:
            _, subjects = np.unique(evaluator.subject[questions][self._blended], return_inverse=True)
            self.seasons = Seasons(gamma, subjects.reshape(-1).astype(np.int64), evaluator.step, setup.weekly)
        #: The place of the answers of seasons among the single answers.
        self._optional = E + (0 if self.ridges is None else len(STRENGTHS))
        self.blend: Blend | Combination = Blend(gamma, E)
        if setup.least_squares:
            self.blend = Combination(gamma, self._optional + (0 if self.seasons is None else len(ANSWERS)))
        #: The questions whose answers are not blended, and the blend of their rates, if there is one.
        self._unblended, self._exact = np.flatnonzero(~blended), evaluator.exact[questions][~blended]
        self.rates: RateBlend | None = None
        if setup.least_squares and E > 1 and len(self._unblended):
            self.rates = RateBlend(self.unit[self._unblended], E)
        self._single: Array | None = None  # the single answers of the blended questions at the last rows
        #: φ of the last row; None after a cut.
        self.phi: Active | None = None
        #: Which questions learned nothing in the step before.
        self.fresh = np.ones(Q, bool)
        self._last_repeated: dict[str, tuple[Array, Array]] = {}
        self._none_fresh = False  # where it is known that every question learned
        #: Whether anything was learned since the last cut or termination.
        self.open = False
        #: Takes the first impossible answer to each question: the question, the rule, the answer and the range.
        self.impossible: list[tuple[int, str, float, float, float]] = []
        #: What the other learners that share the weights predict at φ, (K,).
        self.others: Callable[[Active], Array] | None = None
        self._phi_rows: Rows | None = None  # φ of the last step, as the learner reads it
        self._start = np.array([0, features.active])
        # A user's function has no bound on its numbers, which are then checked in every run.
        self._bounded = features.largest is not None
        self._waiting: list[tuple[FeatureColumns, Targets, bool]] = []
        # What all rows have in common, where every question is blended and nothing but its cumulant varies.
        is_plain = isinstance(self.blend, Combination) and self._all_blended and self._bounded and setup.centred
        constants = evaluator.constants if is_plain else None
        self._constants = None if constants is None else tuple(array[:, questions] for array in constants)
        self._room: _RowRoom | None = None
        # The same of all steps of an agent, where the learner's predictions are the answers.
        is_plain = self._direct and features.needs_only_readings and not setup.record
        constants = evaluator.constants if is_plain else None
        self._step_room = None if constants is None else self._make_step_room(*constants)

    @property
    def is_quick(self) -> bool:
        """Whether the next row can be learned from by ``row``, if it follows the last and nothing is missing in it."""
        return self._none_fresh and self._constants is not None and self.phi is not None and self.others is None

    @property
    def is_plain(self) -> bool:
        """Whether the next step of an agent can be learned from by ``follow``, if nothing is missing in its row."""
        return self._step_room is not None and self.others is None

    @property
    def answers(self) -> dict[str, Array]:
        """The single answers at the last rows by name, (B, Q) each, NaN for questions that are not blended."""
        if self._single is None:
            return {}
        names = [f"rate {rate:g}" for rate in self.setup.rates]
        names += [] if self.ridges is None else [f"ridge {strength:g}" for strength in STRENGTHS]
        names += [] if self.seasons is None else ANSWERS
        answers = {}
        for i, name in enumerate((*names, "reading", "trace")):
            answers[name] = np.full((len(self._single), len(self.questions)), np.nan)
            answers[name][:, self._blended] = self._single[:, :, i]
        return answers

    @property
    def periods(self) -> dict[int, list[Period]]:
        """The periods of the signal that each blended question of the horde is about."""
        if self.seasons is None:
            return {}
        periods = self.seasons.periods
        questions = self.questions[self._blended].tolist()
        return {q: periods[c] for q, c in zip(questions, self.seasons.signal.tolist(), strict=True)}

    def columns(self, held: Array, missing: Flags, time: Times, labels: Labels) -> FeatureColumns:
        """The input of φ for rows (B, C), checked: invalid input raises here, and nothing changes."""
        return self.features.columns(held, time=time, labels=labels, missing=missing)

    # ------------------------------------------------------------------ rows of a log

    def row(self, columns: FeatureColumns, x: Array) -> Array:
        """``rows`` of one row, learned from, where the group ``is_quick``: the same bits, with less around kernels.

        The row follows the last one, and nothing is missing in it. ``x`` (1, Q) are the cumulants.
        """
        room, E = self._room or self._make_row_room(), self._E
        single, phi, fresh = room.answers, self.features.activate(columns), None
        if self.ridges is not None:
            self.ridges.row(phi, x, single, E)
        if self.seasons is not None:
            changed = self.seasons.row(x, columns.seconds, single, self._optional)
            if changed is not None and np.count_nonzero(changed):
                fresh = self._mark_fresh(changed)
        np.multiply(x, self.scale, out=room.R)
        np.subtract(room.R, room.base, out=room.R)
        phi_rows = self._phi_rows
        if phi_rows is None:
            assert self.phi is not None
            phi_rows = self.phi.rows
        next_rows = Rows(self._start, phi.indices[0], phi.values[0])
        self.possible.take(room.R[:1], room.parameters[3])
        V = self.recorded.learn_row(phi_rows, next_rows, room.parameters)
        V = self._clip(V) if self._is_bounded else V
        self.phi, self._phi_rows, self.open = phi, next_rows, True
        np.add(V.reshape(room.R.shape), self.base, out=room.by_rate)
        assert isinstance(self.blend, Combination)
        self._single = room.single
        answers = self.blend.row(single, x, fresh, self._optional, room.single)
        return answers if self.setup.scaled else answers / self.scale

    def _make_row_room(self) -> _RowRoom:
        """What ``row`` needs, found once."""
        assert self._constants is not None
        gamma, interest = self._constants
        E, Q = self._E, len(self.questions)
        count = self._optional + (0 if self.seasons is None else len(ANSWERS))
        R, answers, single = np.empty((E, Q)), np.empty((1, Q, count)), np.empty((1, Q, count + 2))
        step = _tiled(interest, E), self._lambda, np.ones((1, E * Q)), _tiled(gamma, E), R.reshape(1, E * Q)
        parameters = (self._alpha, *step, *self._extra.values())
        self._room = _RowRoom(R, self.base * self.unit, parameters, answers, answers[0, :, :E].T, single)
        return self._room

    def rows(self, columns: FeatureColumns, targets: Targets, gap: Flags, follows: Flags, learn: bool) -> Array:
        """Learn from rows and answer at each, (B, Q)."""
        B = len(gap)
        if B == 1 and learn and follows[0] and self._bounded:
            # One row that follows: the way of a transition, without the checks of a whole run.
            phi, x, fresh = self.features.activate(columns), self._select(targets.x), None
            sound = x if targets.sound is None else self._select(targets.sound)
            single = self._make_room(1)
            if self.ridges is not None:
                self.ridges(phi, x, follows, True, single, self._E)
            if self.seasons is not None:
                _, fresh = self.seasons(sound, follows, columns.seconds, True, single, self._optional)
            return self._learn_steps(phi, targets, False, (single, fresh), is_row=True)
        V, x, fresh = np.empty((B, self.learner.K or 1)), self._select(targets.x), None
        bounds = self._make_bounds(B)
        sound = x if targets.sound is None else self._select(targets.sound)
        single = self._make_room(B)
        for begin, end in pairwise([0, *(np.flatnonzero(gap[1:]) + 1).tolist(), B]):
            if gap[begin]:
                self.cut()
            sequence = slice(begin, end)
            phi = self.features.activate(columns if end - begin == B else columns.part(sequence))
            if self.ridges is not None:
                assert single is not None
                self.ridges(phi, x[sequence], follows[sequence], learn, single[sequence], self._E)
            if learn:
                V[sequence] = self._learn_log(phi, targets.part(sequence), None if bounds is None else bounds[sequence])
            else:
                if self.phi is not None or self.open:
                    self._forget()  # first, for it may change the last bit of a prediction
                V[sequence] = self.learner.predict(phi)
        if self.seasons is not None:
            _, fresh = self.seasons(sound, follows, columns.seconds, learn, single, self._optional)
        return self._answers(V, targets.x, follows, beside=(single, fresh), steps=targets, bounds=bounds)

    def _learn_log(self, phi: Active, targets: Targets, bounds: Array | None) -> Array:
        """Rows without a gap: the learners' predictions at each, (B, K), and the ``bounds`` of these."""
        learner, phi_before = self.learner, self.phi
        Phi = phi if phi_before is None else _stacked(phi_before, phi)
        begin = 1 if phi_before is None else 0  # no step ends in the first row of a sequence
        V = np.empty((0, learner.K or 1))
        if bounds is not None:
            bounds[:] = self.possible.bounds
        if len(targets.R) > begin:
            E, steps = self._E, targets.part(slice(begin, None))
            R, gamma, rho, I, factor = self._parameters(steps)
            alpha = self._alpha if factor is None else self._alpha * _tiled(factor, E)
            ranged = self._take(R, rho, steps.known, None if bounds is None else bounds[begin:])
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", UndiscountedWarning)  # an episode may be longer than this
                V = learner.run(
                    Phi,
                    _tiled(R, E),
                    _smallest(gamma, E),
                    alpha=alpha,
                    lambda_=self._lambda,
                    I=_smallest(I, E),
                    rho=_smallest(rho, E),
                    on_divergence="freeze",
                    **self._extra | self._chances(steps) | ranged,
                )
            self.fresh, self._none_fresh, self.open = ~targets.known[-1], False, True
        row = make_unchecked(phi.indices[-1:].copy(), phi.values[-1:].copy(), phi.top)
        with np.errstate(all="ignore"):
            V = np.vstack([V[1 - begin :], learner.predict(row)])
        self.phi, self._phi_rows = row, None
        return V

    def _make_bounds(self, B: int) -> Array | None:
        """Room for what is possible at each of B rows, (B, 2, K), with what was so far; None where it is not needed."""
        return np.repeat(self.possible.bounds, B, axis=0) if self._is_bounded or self._judges else None

    def _take(self, R: Array, rho: Array, known: Flags, bounds: Array | None) -> dict[str, Array]:
        """Take what is possible from T steps before they are learned from: the parameters that it changes, (T, K).

        ``bounds`` take what is possible at each step, (T, 2, K).
        """
        self.possible.take(np.ascontiguousarray(R), np.where(known, rho, np.nan), bounds)
        if not self._is_bounded or bounds is None:
            return {}
        return {"low": np.ascontiguousarray(bounds[:, 0]), "high": np.ascontiguousarray(bounds[:, 1])}

    def cut(self) -> None:
        """Start a new sequence: forget the traces, those of features too, and learn nothing from the step across."""
        self.catch_up()
        self.features.cut()
        self._forget()

    def restart(self) -> None:
        """Begin another stream: forget the past of each signal, from which seasons answer, and keep the weights."""
        if self.seasons is not None:
            self.seasons = Seasons(self.seasons.gamma, self.seasons.signal, self.seasons.step, self.setup.weekly)

    def _forget(self) -> None:
        """Forget the learner's traces, and learn nothing from the step across."""
        self.recorded.cut()
        self.phi, self.open = None, False
        self.fresh[:], self._none_fresh = True, False

    # ------------------------------------------------------------------ transitions

    def begin(self, columns: FeatureColumns, x: Array) -> Array:
        """The first row of an episode, with cumulants x (1, Q) read in it: the answers at it, (1, Q)."""
        self.catch_up()
        self.features.cut()
        phi = self.features.activate(columns)
        if self.open:
            self.recorded.cut()
        self.phi, self._phi_rows, self.open = phi, None, False
        self.fresh[:], self._none_fresh = True, False
        V = self.learner.predict(phi)
        if self.others is not None:
            V = V + self.others(phi)
        return self._answers(V, x, _BEGINS)

    def step(self, columns: FeatureColumns, targets: Targets, terminated: bool, predict: bool) -> Array | None:
        """A transition to the row of these columns: learn, and answer there, (1, Q), 0 where it ``terminated``.

        If not ``predict``, learning is deferred and done together with later steps, with the same weights as a result.
        """
        # (a function's numbers have no bound but their largest, which is found for each step)
        if self._waiting or not (predict or not self._bounded):
            self._waiting.append((columns, targets, terminated))
            return self.catch_up() if predict else None
        answers = self._learn_steps(self.features.activate(columns), targets, terminated)
        return answers if predict else None

    def follow(self, readings: Array, R: Array, predict: bool) -> Array | None:
        """``step`` to a row in which nothing ended, where the group ``is_plain``: the same bits, with less around them.

        ``readings`` (1, C) are those of the features, and ``R`` (1, Q) the cumulants.
        """
        room, phi_rows = self._step_room, self._phi_rows
        assert room is not None
        if self._waiting or not predict:
            _, interest, _, rho, gamma = room.parameters
            columns, targets = self.features.columns(readings), Targets(R, room.known, gamma, rho, interest, R, True)
            return self.step(columns, targets, False, predict)
        if phi_rows is None:
            assert self.phi is not None
            phi_rows = self.phi.rows
        phi, next_rows = room.even if phi_rows is room.odd[1] else room.odd
        phi.top = self.features.fill(readings, phi.indices, phi.values)
        self.phi, self._phi_rows, self.open = phi, next_rows, True
        self.possible.take(R, room.parameters[3])
        V = self.recorded.step(phi_rows, next_rows, (*room.parameters, R, *room.extra))
        return self._within(V)

    def _make_step_room(self, gamma: Array, interest: Array) -> _StepRoom:
        """What ``follow`` needs, found once; γ and interest are those of all questions of the horde."""
        of, k = self.questions, self.features.active
        phis = [make_unchecked(np.empty((1, k), np.int64), np.empty((1, k)), 0) for _ in range(2)]
        even, odd = ((phi, Rows(self._start, phi.indices[0], phi.values[0])) for phi in phis)
        parameters = self._alpha, interest[:, of], self._lambda, np.ones((1, len(of))), gamma[:, of]
        return _StepRoom(even, odd, parameters, tuple(self._extra.values()), np.ones((1, len(of)), bool))

    def catch_up(self) -> Array | None:
        """Learn from the deferred steps; returns the answers at the last row, if there were any."""
        if not self._waiting:
            return None
        columns, targets, terminated = zip(*self._waiting, strict=True)
        self._waiting = []
        phi = self.features.activate(FeatureColumns.joined(columns))
        return self._learn_steps(phi, Targets.joined(targets), terminated[-1])

    def end(self) -> None:
        """The episode is over: no step leads from its last row to another."""
        self.phi = None

    def _learn_steps(
        self, phi: Active, targets: Targets, terminated: bool, beside: Beside = (None, None), is_row: bool = False
    ) -> Array:
        """Steps that follow one another, to these φ; only the last may have terminated.

        A row of a log is answered with the bits that it would have in a block of many.
        """
        phi_before, E = self.phi, self._E
        assert phi_before is not None
        if self._direct and len(targets.R) == 1 and targets.all_known and targets.chances is None and not self.others:
            phi_rows = phi_before.rows if self._phi_rows is None else self._phi_rows
            next_rows = Rows(self._start, phi.indices[0], phi.values[0])
            step = targets.interest, targets.rho, targets.gamma, targets.R
            self.possible.take(targets.R, targets.rho)
            V = self.recorded.learn(phi_rows, next_rows, *step, afresh=is_row)
            self.phi, self._phi_rows, self.open = phi, next_rows, not terminated
            if is_row and not self._none_fresh:
                self.fresh, self._none_fresh = ~targets.known[-1], True
            return np.zeros_like(V) if terminated else self._within(V)
        R, gamma, rho, I, factor = self._parameters(targets)
        alpha = None if factor is None else self._alpha * _tiled(factor, E)
        T = len(R)
        bounds = self._make_bounds(T) if T > 1 or self.others is not None else None
        ranged = self._take(R, rho, targets.known, bounds)
        if E > 1:
            R, gamma, I = _tiled(R, E), self._repeated("gamma", gamma), self._repeated("I", I)
            rho = self._repeated("rho", rho)
        if T == 1:
            phi_rows, row = phi_before.rows if self._phi_rows is None else self._phi_rows, phi
            next_rows = Rows(self._start, phi.indices[0], phi.values[0])  # quicker than ``Active.rows``
        else:
            phi_rows, next_rows, row = _stacked(phi_before, phi[:-1]).rows, phi.rows, phi[-1:]
        if self.others is not None:
            others_next = self.others(phi)
            R = R + gamma * others_next - self.others(phi_before)
            if self._is_bounded:  # (it is the sum of all predictions that is to be possible)
                ranged = {name: ranged.get(name, self._extra[name]) - others_next for name in ("low", "high")}
        extra = self._chances(targets) | ranged
        V = self.recorded.learn(phi_rows, next_rows, I, rho, gamma, R, alpha, extra, is_row)
        if self.others is not None:
            V = V + others_next
        self.phi, self._phi_rows, self.open = row, next_rows if T == 1 else None, not terminated
        if (self.setup.centred or is_row) and not (self._none_fresh and targets.all_known):
            self.fresh, self._none_fresh = ~targets.known[-1], targets.all_known
        if self._direct:
            V = self._within(V, bounds)
            return np.zeros_like(V[-1:]) if terminated else V[-1:]
        ends = None
        if terminated:
            ends = np.zeros(T, bool)
            ends[-1] = True
        steps = targets if is_row else None
        answers = self._answers(V, targets.x, _FOLLOWS if T == 1 else np.ones(T, bool), ends, beside, steps, bounds)
        return np.zeros_like(answers[-1:]) if terminated else answers[-1:]

    # ------------------------------------------------------------------ inside

    def _make_room(self, B: int) -> Array | None:
        """Room for all single answers at B rows, where they are combined."""
        if not isinstance(self.blend, Combination):
            return None
        return np.empty((B, len(self.blend.gamma), self.blend.E))

    def _select(self, x: Array) -> Array:
        """The columns of x (B, Q) of the questions whose answers are blended."""
        return x if isinstance(self._blended, slice) else x.take(self._blended, axis=1)

    def _repeated(self, name: str, p: Array) -> Array:
        """A parameter (T, Q) for E learners per question; an evaluator passes the same array where it is constant."""
        constant, repeated = self._last_repeated.get(name, (None, p))
        if p is not constant:
            repeated = _tiled(p, self._E)
            self._last_repeated[name] = p, repeated
        return repeated

    def _chances(self, targets: Targets) -> dict[str, Array]:
        """π and μ of the steps, (T, K), where the rule uses them; π = 0 forgets the trace where nothing is known."""
        if targets.chances is None:
            return {}
        pi, mu = targets.chances
        chances = {"pi": np.where(targets.known, pi, 0.0), "mu": mu}
        return {name: _tiled(chances[name], self._E) for name in self.setup.chances}

    def _parameters(self, targets: Targets) -> tuple[Array, Array, Array, Array, Array | None]:
        """R, γ', ρ, I, and the factor of α if there is one, of consecutive steps, (T, Q)."""
        known, R, rho, I = targets.known, targets.R, targets.rho, targets.interest
        if not targets.all_known:
            rho = np.where(known, rho, 0.0)
        if not self.setup.centred:
            return R, targets.gamma, rho, I, None
        R = R * self.scale - self.base * self.unit
        if not targets.all_known:
            R = np.where(known, R, 0.0)
        elif self._none_fresh:
            return R, targets.gamma, rho, I, None
        steady = (self.fresh[None] if len(R) == 1 else np.vstack([self.fresh, ~known[:-1]])) & self.steady
        if not steady.any():
            return R, targets.gamma, rho, I, None
        # After a break F would climb again from I = 1 − γ: start it at 1, where it stays, with M α as ever.
        factor = np.where(steady, 1.0 - self.gamma * self.lambda_, 1.0)
        return R, targets.gamma, rho, np.where(steady, 1.0, I), factor

    def _answers(
        self,
        V: Array,
        x: Array,
        follows: Flags,
        ends: Flags | None = None,
        beside: Beside = (None, None),
        steps: Targets | None = None,
        bounds: Array | None = None,
    ) -> Array:
        """One answer to each question, (B, Q), from its learners' V (B, K), and the answers ``beside`` these.

        ``steps`` are those that end in rows of a log.
        """
        B, Q, E, setup = len(V), len(self.gamma), self._E, self.setup
        if self._direct:
            return self._within(V, bounds)
        V = self._clip(V, bounds) if self._is_bounded else V
        by_rate = V.reshape(B, E, Q) + self.base if setup.centred else V.reshape(B, E, Q) * self.scale
        if not self._any_blended:
            out = self._blend_rates(by_rate, steps, follows)
            return self._within(out if setup.scaled else out / self.scale, bounds)
        blended = self._blended
        V, x = by_rate[:, :, blended].transpose(0, 2, 1), self._select(x)
        if isinstance(self.blend, Combination):
            single, changed = beside
            assert single is not None
            single[:, :, :E] = V
            fresh = None
            if changed is not None and np.count_nonzero(changed):
                fresh = self._mark_fresh(changed)
            answers, self._single = self.blend(single, x, follows, fresh, self._optional)
        else:
            answers = self.blend(V, x, follows, ends)
        if self._all_blended:
            out = answers
        else:
            out = self._blend_rates(by_rate, steps, follows)
            out[:, blended] = answers
        return self._within(out if setup.scaled else out / self.scale, bounds)

    def _within(self, answers: Array, bounds: Array | None = None) -> Array:
        """The answers (B, Q), clipped to what is possible, or compared with it."""
        if self._judges:
            bounds = self.possible.bounds if bounds is None else bounds
            while (place := self.possible.find(answers, bounds)) >= 0:
                t, q = divmod(place, len(self.questions))
                low, high = self.possible.in_answers(bounds[min(t, len(bounds) - 1), :, : len(self.questions)])[:, q]
                self.impossible.append((int(self.questions[q]), self.setup.rule.name, answers[t, q], low, high))
        elif self._direct and self._is_bounded:
            return self._clip(answers, bounds)
        return answers

    def _clip(self, V: Array, bounds: Array | None = None) -> Array:
        """Predictions (B, K), in place, no further than what is possible."""
        return self.possible.clip(V, self.possible.bounds if bounds is None else bounds)

    def _blend_rates(self, by_rate: Array, steps: Targets | None, follows: Flags) -> Array:
        """The answers (B, Q) by the middle rate, or of rows of a log by all rates (B, E, Q) and their errors so far."""
        out: Array = np.array(by_rate[:, self._E // 2])
        if self.rates is not None and steps is not None:
            places = self._unblended
            R = np.where(steps.known, steps.R * self.scale, np.nan)[:, places]
            taken = (steps.rho[:, places] > 0.0) & self._exact
            out[:, places] = self.rates(
                by_rate[:, :, places].transpose(0, 2, 1), R, steps.gamma[:, places], taken, follows
            )
        return out

    def _mark_fresh(self, changed: Flags) -> Flags:
        """Among all single answers those of seasons that are new ones."""
        B, Q, seasons = changed.shape
        fresh = np.zeros((B, Q, self._optional + len(ANSWERS)), np.bool_)
        fresh[:, :, self._optional : self._optional + seasons] = changed
        return fresh

    # ------------------------------------------------------------------ saving

    def state(self) -> tuple[dict[str, Any], dict[str, Any], dict[str, TensorPart]]:
        """The header of the group, that of its learner, and all arrays by name."""
        if self.others is not None:
            raise ValueError("a horde that shares its weights with others cannot be saved by itself")
        self.catch_up()
        header, tensors = self.learner._state()
        maker, saved = self.features.save()
        arrays = {f"features.{name}": array for name, array in saved.items()}
        kinds = {"blend": self.blend, "blend.rates": self.rates, "ridges": self.ridges, "seasons": self.seasons}
        arrays |= {f"possible.{name}": array for name, array in self.possible.arrays().items()}
        for kind, answers in kinds.items():
            for name, array in {} if answers is None else answers.arrays().items():
                arrays[f"{kind}.{name}"] = array
        arrays |= {"horde.base": self.base, "horde.fresh": self.fresh.view(np.uint8)}
        if self.phi is not None:
            arrays |= {"horde.indices": self.phi.indices, "horde.values": self.phi.values}
        tensors |= {name: TensorPart.of(np.ascontiguousarray(array)) for name, array in arrays.items()}
        return {"features": maker, "open": self.open}, header, tensors

    def restore(self, saved: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> None:
        """Restore what ``state`` returned, except the learner, which is there; ValueError if it does not fit."""
        learner, setup = self.learner, self.setup
        due = self.features.n, len(self.questions) * self._E, setup.rule.name
        if (learner.n, learner.K, learner.rule.base.name) != due:
            raise ValueError(f"its learner is {learner!r}")
        fill_in("base", self.base, arrays["horde.base"])
        self._room, self.possible.questions["base"] = None, self.base
        fill_in("fresh", self.fresh.view(np.uint8), arrays["horde.fresh"])
        if self.seasons is not None:
            self.seasons.restore(under(arrays, "seasons."))
        self.possible.restore(under(arrays, "possible."))
        self.blend.restore(under(arrays, "blend."))
        if self.rates is not None:
            self.rates.restore(under(arrays, "blend.rates."))
        if self.ridges is not None:
            self.ridges.base[:] = self.base[self._blended]
            self.ridges.restore(under(arrays, "ridges."))
        self.open = bool(saved["open"])
        if "horde.indices" in arrays:
            phi = Active(arrays["horde.indices"], arrays["horde.values"])
            if phi.shape != (1, self.features.active) or phi.top >= self.features.n:
                raise ValueError("its last features do not fit")
            self.phi = phi

    def join(self, groups: Sequence[Group]) -> None:
        """Take the state of groups that have these questions between them, in order, and have seen the same rows."""
        self.phi, self.open = groups[0].phi, groups[0].open
        self.fresh[:] = np.concatenate([group.fresh for group in groups])
        kept = [group.possible.arrays() for group in groups]
        self.possible.restore({name: np.concatenate([known[name] for known in kept]) for name in kept[0]})
        arrays = [group.blend.arrays() for group in groups]
        self.blend.restore({name: np.concatenate([blend[name] for blend in arrays]) for name in arrays[0]})
        if self.rates is not None:
            arrays = [group.rates.arrays() for group in groups if group.rates is not None]
            self.rates.restore({name: np.concatenate([rates[name] for rates in arrays]) for name in arrays[0]})
        if self.ridges is not None:
            self.ridges.join([group.ridges for group in groups if group.ridges is not None])
        if self.seasons is not None:
            self.seasons.join([group.seasons for group in groups if group.seasons is not None])


class _RowRoom(NamedTuple):
    """What ``Group.row`` needs.

    Attributes:
        R: Takes the learners' R, (E, Q).
        base: What is subtracted there, (Q,).
        parameters: All parameters of the learner's step, (1, K) each, with R among them.
        answers: Takes the answers to be combined, (1, Q, …).
        by_rate: Those of the learners among them, (E, Q).
        single: Takes the single answers, within bounds, (1, Q, …).
    """

    R: Array
    base: Array
    parameters: tuple[Array, ...]
    answers: Array
    by_rate: Array
    single: Array


class _StepRoom(NamedTuple):
    """What ``Group.follow`` needs.

    Attributes:
        even: Takes φ' of every second step: itself, and as the learner reads it.
        odd: Takes φ' of the steps between them, of which ``even`` is then φ.
        parameters: The parameters of the learner's step that stand before R, (1, K) each.
        extra: The rule's own parameters, which stand after R.
        known: True for every question, (1, Q).
    """

    even: tuple[Active, Rows]
    odd: tuple[Active, Rows]
    parameters: tuple[Array, ...]
    extra: tuple[Array, ...]
    known: Flags


class Groups:
    """Several groups that act as one, with answers in the order of the questions.

    Args:
        groups: The groups; every question of the horde is in one of them.
    """

    def __init__(self, groups: Sequence[Group]) -> None:
        self.groups = tuple(groups)
        self._Q = sum(len(group.questions) for group in groups)

    @property
    def phi(self) -> Active | None:
        """φ of the last row in the first group; None after a cut."""
        return self.groups[0].phi

    def columns(self, held: Array, missing: Flags, time: Times, labels: Labels) -> list[FeatureColumns]:
        """The columns of each group, all checked before any group learns."""
        return [group.columns(held, missing, time, labels) for group in self.groups]

    @property
    def is_quick(self) -> bool:
        """As of a group."""
        return all(group.is_quick for group in self.groups)

    def row(self, columns: Sequence[FeatureColumns], x: Array) -> Array:
        """As of a group."""
        out = np.empty((1, self._Q))
        for group, own_columns in zip(self.groups, columns, strict=True):
            out[:, group.questions] = group.row(own_columns, x.take(group.questions, axis=1))
        return out

    @property
    def is_plain(self) -> bool:
        """As of a group."""
        return all(group.is_plain for group in self.groups)

    def follow(self, readings: Array, R: Array, predict: bool) -> Array | None:
        """As of a group."""
        answers = [group.follow(readings, R.take(group.questions, axis=1), predict) for group in self.groups]
        return self._joined(answers) if predict else None

    def rows(
        self, columns: Sequence[FeatureColumns], targets: Targets, gap: Flags, follows: Flags, learn: bool
    ) -> Array:
        """As of a group."""
        out = np.empty((len(gap), self._Q))
        for group, own_columns in zip(self.groups, columns, strict=True):
            out[:, group.questions] = group.rows(own_columns, targets.of(group.questions), gap, follows, learn)
        return out

    def begin(self, columns: Sequence[FeatureColumns], x: Array) -> Array:
        """As of a group."""
        pairs = zip(self.groups, columns, strict=True)
        return self._joined([group.begin(own_columns, x[:, group.questions]) for group, own_columns in pairs])

    def step(
        self, columns: Sequence[FeatureColumns], targets: Targets, terminated: bool, predict: bool
    ) -> Array | None:
        """As of a group."""
        pairs = zip(self.groups, columns, strict=True)
        answers = [group.step(column, targets.of(group.questions), terminated, predict) for group, column in pairs]
        return self._joined(answers) if predict else None

    def catch_up(self) -> None:
        """As of a group."""
        for group in self.groups:
            group.catch_up()

    def cut(self) -> None:
        """As of a group."""
        for group in self.groups:
            group.cut()

    def end(self) -> None:
        """As of a group."""
        for group in self.groups:
            group.end()

    def _joined(self, answers: Sequence[Array | None]) -> Array:
        out = np.empty((1, self._Q))
        for group, own_answers in zip(self.groups, answers, strict=True):
            out[:, group.questions] = own_answers
        return out


def fill_in(name: str, array: NDArray[Any], stored: NDArray[Any], finite: bool = True) -> None:
    """Overwrite an array with the one in the file; ValueError if it does not fit."""
    if stored.shape != array.shape or stored.dtype != array.dtype or (finite and not np.isfinite(stored).all()):
        raise ValueError(f"its {name!r} does not fit")
    array[:] = stored


def under(arrays: Mapping[str, T], prefix: str) -> dict[str, T]:
    """The arrays of a file whose names begin with the prefix, without it."""
    return {name.removeprefix(prefix): array for name, array in arrays.items() if name.startswith(prefix)}


def _scaled_by(rates: Sequence[float], alpha: object, Q: int) -> Any:
    """α of every learner: each rate times ``alpha``, a number or one per question."""
    try:
        of_question = np.broadcast_to(np.asarray(alpha, np.float64), Q)
    except (TypeError, ValueError):
        return alpha  # errors are reported where all parameters are checked
    return np.concatenate([rate * of_question for rate in rates])


def _stacked(before: Active, phi: Active) -> Active:
    indices, values = np.concatenate([before.indices, phi.indices]), np.concatenate([before.values, phi.values])
    return make_unchecked(indices, values, max(before.top, phi.top))


def _tiled(p: Array, E: int) -> Array:
    """A parameter (T, Q) repeated for E learners per question."""
    return np.concatenate([p] * E, axis=1)


def _smallest(p: Array, E: int) -> Array:
    """The same, as (1, K) where it is the same in every step."""
    return _tiled(p[:1] if len(p) > 1 and (p == p[0]).all() else p, E)
