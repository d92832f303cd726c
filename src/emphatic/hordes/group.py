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

from emphatic.engines.base import Rows
from emphatic.features import Features
from emphatic.features.plan import FeatureColumns
from emphatic.gvfs.evaluator import Evaluator, Targets
from emphatic.hordes.possible import Possible
from emphatic.learning.inputs import Active, make_unchecked, parameters
from emphatic.learning.learner import Learner, RecordedLearner
from emphatic.learning.sequences import UndiscountedWarning
from emphatic.learning.tensors import TensorPart
from emphatic.rules import AnyRule

__all__ = ["BOUNDED", "Group", "Groups", "Setup", "fill_in", "under"]

T = TypeVar("T")
Array = NDArray[np.float64]
Flags = NDArray[np.bool_]
Times = NDArray[Any] | None
Labels = Mapping[str, Any]
#: The rule that a horde gives the range of possible returns.
BOUNDED = "bounded_etd"


@dataclass(frozen=True)
class Setup:
    """How a horde learns: its rule, rates and step size, and every parameter that stays the same; see ``Horde``.

    ``rates`` has one number for each question.
    """

    rule: AnyRule
    rates: Array
    alpha: float | Sequence[float] | None
    scaled: bool
    centred: bool
    record: bool
    kind: Mapping[str, Any]
    extra: Mapping[str, Any]

    def of(self, questions: NDArray[np.intp]) -> Setup:
        """The same for some of the questions."""

        def select(parameter: Any) -> Any:
            return parameter if parameter is None or np.ndim(parameter) == 0 else np.asarray(parameter)[questions]

        extra = {name: select(parameter) for name, parameter in self.extra.items()}
        kind = dict(self.kind)
        if "stepsize" in kind:
            kind["stepsize"] = kind["stepsize"].select(questions)
        return replace(self, rates=self.rates[questions], alpha=select(self.alpha), extra=extra, kind=kind)

    @property
    def chances(self) -> tuple[str, ...]:
        """Which of π and μ the rule itself uses; they come from the questions' policies."""
        return tuple(name for name in ("pi", "mu") if name in self.rule.extra and name not in self.extra)

    def constants(self, norm: float, lambda_: ArrayLike) -> tuple[Array, ...]:
        """All parameters of a step (1, Q), of which I, ρ, γ', R and ``chances`` are passed anew in each step.

        α = rate / ``norm``, the mean of φ·φ; or rate × ``alpha``, which a step-size method multiplies.
        """
        alpha: Any = self.rates
        if self.alpha is not None:
            alpha = _times(self.rates, self.alpha)
        elif "stepsize" not in self.kind:
            alpha = self.rates / max(norm, 1e-12)
        values = (alpha, 1.0, lambda_, 1.0, 0.0, 0.0)
        extra = {**self.extra, **dict.fromkeys(self.chances, 1.0)}
        arrays = parameters(self.rule, "learn", 1, len(self.rates), values, extra)
        return tuple(np.ascontiguousarray(p) for p in arrays)


class Group:
    """Q questions with one φ, and their learner.

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
        self.setup = setup = setup if len(questions) == len(evaluator.gamma) else setup.of(questions)
        Q = len(questions)
        self.gamma, self.lambda_, self.scale = (
            array[questions] for array in (evaluator.gamma, evaluator.lambda_, evaluator.scale)
        )
        self.unit, self.steady = evaluator.unit[questions], evaluator.steady[questions]
        self.learner = Learner(setup.rule, features.n, Q, **setup.kind) if learner is None else learner
        #: The mean from which deviations are learned.
        self.base = base[questions] if setup.centred else np.zeros(Q)
        constant = setup.constants(features.norm, self.lambda_)
        self._alpha, self._lambda = constant[0], constant[2]
        #: Whether predictions are kept to what is possible, or else answers are compared with it.
        self._is_bounded = setup.rule.name == BOUNDED
        factor = np.ones(Q)
        if setup.scaled != setup.centred:  # an answer is a return, and the learner has its cumulant's unit; or reversed
            factor = self.scale if setup.centred else 1.0 / self.scale
        #: What is possible, and the support.
        self.possible = Possible(self.gamma, evaluator.with_policy[questions], self.base, factor)
        names = self.learner.rule.parameters
        if self._is_bounded:  # the learner is given what is possible, which changes in place
            bounds = dict(zip(("low", "high"), self.possible.bounds.swapaxes(0, 1), strict=True))
            constant = tuple(bounds.get(name, p) for name, p in zip(names, constant, strict=True))
        # (eta is no longer needed)
        self._extra: dict[str, Any] = dict(zip(names[6:], constant[6:], strict=True))
        self.recorded = RecordedLearner(self.learner, constant, features.largest, setup.record)
        #: Whether the learner's prediction is the answer.
        self._direct = not setup.centred and not setup.scaled
        #: φ of the last row; None after a cut.
        self.phi: Active | None = None
        #: Which questions learned nothing in the step before.
        self.fresh = np.ones(Q, bool)
        self._none_fresh = False  # where it is known that every question learned
        #: Whether anything was learned since the last cut or termination.
        self.open = False
        #: Takes the first impossible answer to each question: the question, the rule, the answer and the range.
        self.impossible: list[tuple[int, str, float, float, float]] = []
        #: What the other learners that share the weights predict at φ, (Q,).
        self.others: Callable[[Active], Array] | None = None
        self._phi_rows: Rows | None = None  # φ of the last step, as the learner reads it
        self._start = np.array([0, features.active])
        # A user's function has no bound on its numbers, which are then checked in every run.
        self._bounded = features.largest is not None
        self._waiting: list[tuple[FeatureColumns, Targets, bool]] = []
        # What all steps of an agent have in common, where the learner's predictions are the answers.
        is_plain = self._direct and features.needs_only_readings and not setup.record
        constants = evaluator.constants if is_plain else None
        self._step_room = None if constants is None else self._make_step_room(*constants)

    @property
    def is_plain(self) -> bool:
        """Whether the next step of an agent can be learned from by ``follow``, if nothing is missing in its row."""
        return self._step_room is not None and self.others is None

    def columns(self, held: Array, missing: Flags, time: Times, labels: Labels) -> FeatureColumns:
        """The input of φ for rows (B, C), checked: invalid input raises here, and nothing changes."""
        return self.features.columns(held, time=time, labels=labels, missing=missing)

    # ------------------------------------------------------------------ rows of a log

    def rows(self, columns: FeatureColumns, targets: Targets, gap: Flags, learn: bool) -> Array:
        """Learn from rows and answer at each, (B, Q)."""
        B = len(gap)
        if B == 1 and learn and self.phi is not None and not gap[0] and self._bounded:
            # One row that follows: the way of a transition, without the checks of a whole run.
            return self._learn_steps(self.features.activate(columns), targets, False, is_row=True)
        V, bounds = np.empty((B, len(self.questions))), self._make_bounds(B)
        for begin, end in pairwise([0, *(np.flatnonzero(gap[1:]) + 1).tolist(), B]):
            if gap[begin]:
                self.cut()
            sequence = slice(begin, end)
            phi = self.features.activate(columns if end - begin == B else columns.part(sequence))
            if learn:
                V[sequence] = self._learn_log(phi, targets.part(sequence), bounds[sequence])
            else:
                if self.phi is not None or self.open:
                    self._forget()  # first, for it may change the last bit of a prediction
                V[sequence] = self.learner.predict(phi)
        return self._answers(V, bounds)

    def _learn_log(self, phi: Active, targets: Targets, bounds: Array) -> Array:
        """Rows without a gap: the learner's predictions at each, (B, Q), and the ``bounds`` of these."""
        learner, phi_before = self.learner, self.phi
        Phi = phi if phi_before is None else _stacked(phi_before, phi)
        begin = 1 if phi_before is None else 0  # no step ends in the first row of a sequence
        V = np.empty((0, len(self.questions)))
        bounds[:] = self.possible.bounds
        if len(targets.R) > begin:
            steps = targets.part(slice(begin, None))
            R, gamma, rho, I, factor = self._parameters(steps)
            ranged = self._take(R, rho, steps.known, bounds[begin:])
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", UndiscountedWarning)  # an episode may be longer than this
                V = learner.run(
                    Phi,
                    R,
                    _smallest(gamma),
                    alpha=self._alpha if factor is None else self._alpha * factor,
                    lambda_=self._lambda,
                    I=_smallest(I),
                    rho=_smallest(rho),
                    on_divergence="freeze",
                    **self._extra | self._chances(steps) | ranged,
                )
            self.fresh, self._none_fresh, self.open = ~targets.known[-1], False, True
        row = make_unchecked(phi.indices[-1:].copy(), phi.values[-1:].copy(), phi.top)
        with np.errstate(all="ignore"):
            V = np.vstack([V[1 - begin :], learner.predict(row)])
        self.phi, self._phi_rows = row, None
        return V

    def _make_bounds(self, B: int) -> Array:
        """Room for what is possible at each of B rows, (B, 2, Q), with what was so far."""
        return np.repeat(self.possible.bounds, B, axis=0)

    def _take(self, R: Array, rho: Array, known: Flags, bounds: Array | None) -> dict[str, Array]:
        """Take what is possible from T steps before they are learned from: the parameters that it changes, (T, Q).

        ``bounds`` take what is possible at each step, (T, 2, Q).
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

    def _forget(self) -> None:
        """Forget the learner's traces, and learn nothing from the step across."""
        self.recorded.cut()
        self.phi, self.open = None, False
        self.fresh[:], self._none_fresh = True, False

    # ------------------------------------------------------------------ transitions

    def begin(self, columns: FeatureColumns) -> Array:
        """The first row of an episode: the answers at it, (1, Q)."""
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
        return self._answers(V)

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
            columns, targets = self.features.columns(readings), Targets(R, room.known, gamma, rho, interest, True)
            return self.step(columns, targets, False, predict)
        if phi_rows is None:
            assert self.phi is not None
            phi_rows = self.phi.rows
        phi, next_rows = room.even if phi_rows is room.odd[1] else room.odd
        phi.top = self.features.fill(readings, phi.indices, phi.values)
        self.phi, self._phi_rows, self.open = phi, next_rows, True
        self.possible.take(R, room.parameters[3])
        return self._answers(self.recorded.step(phi_rows, next_rows, (*room.parameters, R, *room.extra)))

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

    def _learn_steps(self, phi: Active, targets: Targets, terminated: bool, is_row: bool = False) -> Array:
        """Steps that follow one another, to these φ: the answers at the last, which may have terminated, (1, Q).

        A row of a log is answered with the bits that it would have in a block of many.
        """
        phi_before = self.phi
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
            return np.zeros_like(V) if terminated else self._answers(V)
        R, gamma, rho, I, factor = self._parameters(targets)
        alpha = None if factor is None else self._alpha * factor
        T = len(R)
        bounds = self._make_bounds(T) if T > 1 or self.others is not None else None
        ranged = self._take(R, rho, targets.known, bounds)
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
        answers = self._answers(V, bounds)
        return np.zeros_like(answers[-1:]) if terminated else answers[-1:]

    # ------------------------------------------------------------------ inside

    def _chances(self, targets: Targets) -> dict[str, Array]:
        """π and μ of the steps, (T, Q), where the rule uses them; π = 0 forgets the trace where nothing is known."""
        if targets.chances is None:
            return {}
        pi, mu = targets.chances
        chances = {"pi": np.where(targets.known, pi, 0.0), "mu": mu}
        return {name: chances[name] for name in self.setup.chances}

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

    def _answers(self, V: Array, bounds: Array | None = None) -> Array:
        """The answers (B, Q) by the learner's predictions V, and by what is possible at each row, (B, 2, Q).

        By default that is what is possible now. By ``bounded_etd`` V is clipped to it; other answers are compared.
        """
        bounds = self.possible.bounds if bounds is None else bounds
        answers = self.possible.clip(V, bounds) if self._is_bounded else V
        if self.setup.centred:
            answers = answers + self.base if self.setup.scaled else (answers + self.base) / self.scale
        elif self.setup.scaled:
            answers = answers * self.scale
        if not self._is_bounded:
            self._compare(answers, bounds)
        return answers

    def _compare(self, answers: Array, bounds: Array) -> None:
        """Note the answers (B, Q) that are impossible, the first to each question."""
        while (place := self.possible.find(answers, bounds)) >= 0:
            t, q = divmod(place, len(self.questions))
            low, high = self.possible.in_answers(bounds[min(t, len(bounds) - 1)])[:, q]
            self.impossible.append((int(self.questions[q]), self.setup.rule.name, answers[t, q], low, high))

    # ------------------------------------------------------------------ saving

    def state(self) -> tuple[dict[str, Any], dict[str, Any], dict[str, TensorPart]]:
        """The header of the group, that of its learner, and all arrays by name."""
        if self.others is not None:
            raise ValueError("a horde that shares its weights with others cannot be saved by itself")
        self.catch_up()
        header, tensors = self.learner._state()
        maker, saved = self.features.save()
        arrays = {f"features.{name}": array for name, array in saved.items()}
        arrays |= {f"possible.{name}": array for name, array in self.possible.arrays().items()}
        arrays |= {"horde.base": self.base, "horde.fresh": self.fresh.view(np.uint8)}
        if self.phi is not None:
            arrays |= {"horde.indices": self.phi.indices, "horde.values": self.phi.values}
        tensors |= {name: TensorPart.of(np.ascontiguousarray(array)) for name, array in arrays.items()}
        return {"features": maker, "open": self.open}, header, tensors

    def restore(self, saved: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> None:
        """Restore what ``state`` returned, except the learner, which is there; ValueError if it does not fit."""
        learner, setup = self.learner, self.setup
        due = self.features.n, len(self.questions), setup.rule.name
        if (learner.n, learner.K, learner.rule.base.name) != due:
            raise ValueError(f"its learner is {learner!r}")
        fill_in("base", self.base, arrays["horde.base"])
        self.possible.questions["base"] = self.base
        fill_in("fresh", self.fresh.view(np.uint8), arrays["horde.fresh"])
        self.possible.restore(under(arrays, "possible."))
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
    def is_plain(self) -> bool:
        """As of a group."""
        return all(group.is_plain for group in self.groups)

    def follow(self, readings: Array, R: Array, predict: bool) -> Array | None:
        """As of a group."""
        answers = [group.follow(readings, R.take(group.questions, axis=1), predict) for group in self.groups]
        return self._joined(answers) if predict else None

    def rows(self, columns: Sequence[FeatureColumns], targets: Targets, gap: Flags, learn: bool) -> Array:
        """As of a group."""
        out = np.empty((len(gap), self._Q))
        for group, own_columns in zip(self.groups, columns, strict=True):
            out[:, group.questions] = group.rows(own_columns, targets.of(group.questions), gap, learn)
        return out

    def begin(self, columns: Sequence[FeatureColumns]) -> Array:
        """As of a group."""
        return self._joined([group.begin(column) for group, column in zip(self.groups, columns, strict=True)])

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


def _times(rates: Array, alpha: object) -> Any:
    """α of every question: its rate times ``alpha``, a number or one per question."""
    try:
        return rates * np.broadcast_to(np.asarray(alpha, np.float64), rates.shape)
    except (TypeError, ValueError):
        return alpha  # errors are reported where all parameters are checked


def _stacked(before: Active, phi: Active) -> Active:
    indices, values = np.concatenate([before.indices, phi.indices]), np.concatenate([before.values, phi.values])
    return make_unchecked(indices, values, max(before.top, phi.top))


def _smallest(p: Array) -> Array:
    """A parameter (T, Q), as (1, Q) where it is the same in every step."""
    return p[:1] if len(p) > 1 and (p == p[0]).all() else p
