"""A Horde: many questions about one stream, with features and learners; from rows of a log or transitions of an agent.

When row t is read its features φ_t are computed; the step that ends in it (cumulant, γ) is learned from; then every
question is answered from φ_t.
"""

from __future__ import annotations

import json
import math
import os
import sys
import warnings
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from datetime import UTC, datetime
from difflib import get_close_matches
from typing import Any, Literal, NoReturn, Self, overload
from weakref import WeakSet

import numpy as np
from numpy.typing import ArrayLike, NDArray

from emphatic import engines, stepsizes
from emphatic.common.locks import Guard
from emphatic.common.names import show
from emphatic.errors import CheckpointError, DivergenceWarning
from emphatic.features import Features, OneHot
from emphatic.gvfs.evaluator import Before, Behaviour, Evaluator, check_behaviour
from emphatic.gvfs.gvf import GVF, LARGEST, Observations, action_name
from emphatic.hordes.group import BOUNDED, Group, Groups, Setup, fill_in, under
from emphatic.learning import checkpoint, inputs
from emphatic.learning.inputs import mask, refusal
from emphatic.learning.learner import Learner, join
from emphatic.learning.sequences import UndiscountedWarning
from emphatic.learning.tensors import Stored, TensorPart
from emphatic.nexting.tables import Block, Clock, Hold, ReadingGuard, Table, open_table
from emphatic.rules import AnyRule
from emphatic.stepsizes import StepSize

__all__ = [
    "NO",
    "POLICY_RATE",
    "RATE",
    "REWARD",
    "USUAL",
    "YES",
    "Horde",
    "as_block",
    "as_table",
    "probability",
    "read_blocks",
    "read_first_rows",
    "rows_of",
    "warm_up_rows",
]

Array = NDArray[np.float64]
#: A row as a caller gives it: {name: reading}, or the readings in the order of the signals.
Observation = Mapping[str, Any] | Sequence[Any] | Array
#: The probability (or density) of an action as a caller gives it.
Chance = float | np.floating[Any] | None

#: α = rate / mean φ·φ of questions without a policy, and of those with one.
RATE, POLICY_RATE = 0.1, 0.3
#: The rule of questions without a policy; those with one are learned by ``BOUNDED``.
USUAL = "true_online_etd"
#: Rows of a log that are processed at a time.
BLOCK = 4096
#: The signal that a transition has besides its observation.
REWARD = "reward"
#: The flag of a single row: one that does not follow, or in which an episode terminated; and any other.
YES, NO = np.ones(1, bool), np.zeros(1, bool)
_NO_LABELS: dict[str, Any] = {}
#: No reading of a row is beyond ``LARGEST`` if the sum of their squares is not beyond this.
_SQUARE = LARGEST**2
#: Predictions whose squares sum up to more than this look as if a learner had diverged.
_HUGE = 1e60
#: The feature makers that belong to a Horde.
_MAKERS_IN_USE: WeakSet[Features] = WeakSet()
#: Prefixes of the names of arrays in a file: those that are not a learner's, and those that a user saves with a horde.
_NOT_THE_LEARNERS = ("features.", "possible.", "horde.")
_MORE = "horde.more."
#: In a file: the headers of groups from the second on; and what the names of their arrays begin with, and those of the
#: shapes of these, and of the groups that have one where not all do.
_HEADERS, _JOINED, _SHAPES, _WHICH = "horde.groups", "groups.", ".shapes", ".of"
#: The longest headers of groups, in bytes.
_LONGEST = 1 << 28
#: The most signals that a message names.
_NAMED = 6
#: Placeholder in a file for what no file can hold.
_FUNCTION = "function"


def warm_up_rows(gammas: Iterable[float | None]) -> int:
    """The first rows of a stream, from which ranges, categories and means are found: four times the longest horizon.

    They are at least 500 and at most 10,000. A log that ends before is warmed up on with all of its rows. Tables,
    pipes, services and ``Horde.run`` follow this rule alike. It does not depend on how long a log is: one that is cut
    short gives the same predictions.

    Args:
        gammas: The discount γ of each question; None where it varies.

    >>> warm_up_rows([0.5, 0.9]), warm_up_rows([1 - 1 / 1440]), warm_up_rows([None])
    (500, 5760, 500)
    """
    longest = max((gamma for gamma in gammas if gamma is not None), default=0.0)
    most = 10_000
    return max(500, min(most, round(4.0 / max(1.0 - longest, 1.0 / most))))


def read_first_rows(
    table: Table, questions: Iterable[GVF], step: float | None, rows: int | None = None
) -> tuple[Block, float | None, Clock | None]:
    """The first rows of a table, on which a horde is warmed up; the seconds of a step; and the table's clock.

    Args:
        table: The table.
        questions: The questions.
        step: The seconds of a step where they are known; else those of the clock are taken.
        rows: The number of rows; by default that of ``warm_up_rows``.
    """
    clock = table.clock()
    if step is None and clock is not None:
        step = clock.step
    if rows is None:
        rows = warm_up_rows(question.constant_gamma(step) for question in questions)
    return next(table.blocks(rows)), step, clock


def read_blocks(
    table: Table,
    rows: int,
    signals: Sequence[str],
    categories: Sequence[str],
    clock: Clock | None = None,
    start: int = 0,
    first: NDArray[np.bool_] | None = None,
) -> Iterator[Block]:
    """The blocks of a table, which must have the columns that a horde was warmed up on.

    Args:
        table: The table.
        rows: The rows of a block.
        signals: The signals of the horde.
        categories: Its columns of labels.
        clock: What finds the gaps, standing at row ``start``; by default a new clock of the table.
        start: The number of the first row.
        first: A mask of rows that begin a sequence, besides those that the clock finds.
    """
    if (tuple(table.names), tuple(table.categories)) != (tuple(signals), tuple(categories)):
        wanted = f"have the columns {', '.join((*signals, *categories))}"
        raise refusal("table", "Horde", wanted, ", ".join((*table.names, *table.categories)))
    for block in table.blocks(rows, start, clock):
        if first is not None:
            begins = first[block.row : block.row + len(block)]
            block.gap = block.gap | begins if len(block.gap) else begins
        yield block


class Horde:
    """Many questions about one stream of named signals.

    Each question has one learner, whose prediction is its answer. By default the rule of those with a policy is
    bounded_etd, which keeps to what is possible (``emphatic.hordes.possible``).

    A learner that would diverge is frozen, and the others continue. A ``DivergenceWarning`` names a question whose
    answer is impossible, or whose learner is frozen. If another Horde uses the same maker of features, the maker is
    copied as it was after its warm-up: its state belongs to one stream.

    Args:
        questions: The questions, a list of ``GVF``.
        features: A ``Features`` maker, or {question's name: maker} if questions have their own features; questions with
            the same maker and rule share a learner.
        rule: A name from ``emphatic.rules.names()``, or a rule of your own, for all questions; by default bounded_etd
            for those with a policy, true_online_etd for the others. For one that uses π or μ itself, such as
            tree_backup, every question must have a policy.
        rate: α is the rate times ``alpha``. By default 0.3 for questions with a policy and 0.1 for others, or 1 for all
            where there is a ``stepsize``.
        alpha: A number, or one per question; by default 1 over the mean of φ·φ in the warm-up.
        step: The length of a step in seconds, needed where horizons are durations.
        mu: The behaviour's probability (or density) of an action, for policies that do not give one: a function of
            (observation, action), a table or a number. If it is None, actions are counted.
        scaled: Whether predictions of a constant γ are scaled by 1 − γ, into the cumulant's own unit.
        centred: Whether a question of constant γ < 1 is learned as the deviation from its cumulant's mean in the
            warm-up, in the cumulant's own unit, with an emphasis that starts at 1; else θ·φ is the return itself,
            learned from 0.
        record: Whether the learner's input in transitions is recorded, for ``log``.
        dtype: The dtype of the weights, "float64" or "float32".
        engine: One of ``emphatic.engines.available()``, or "auto".
        threads: The most threads that an engine may use.
        stepsize: A name or an object of ``emphatic.stepsizes``: α is ``rate`` times ``alpha`` times its step size.
        extra: The rule's own parameters: eta, beta, ….

    >>> import numpy as np
    >>> from emphatic import GVF, features as f
    >>> horde = Horde([GVF("x", horizon=2)], f.Features([f.Bias(), f.SoftBins("x", bins=3)]), rate=0.3)
    >>> log = {"x": np.sin(np.arange(1000.0))}
    >>> horde.run(log).shape
    (1000, 1)
    >>> horde.observe({"x": 0.5}).shape
    (1,)

    Transitions of an agent:

    >>> horde = Horde([GVF("reward", gamma=0.9)], f.Features([f.SoftBins("x", bins=3, range=(0, 1))]), rate=0.3)
    >>> horde.prepare(["x"]).begin({"x": 0.5})
    array([0.])
    >>> horde.learn(1, 2.0, {"x": 0.6}, terminated=False).shape
    (1,)
    """

    #: Rows of a block that is read from a table.
    block_rows = BLOCK

    def __init__(
        self,
        questions: Sequence[GVF],
        features: Features | Mapping[str, Features],
        rule: str | AnyRule | None = None,
        *,
        rate: float | None = None,
        alpha: float | Sequence[float] | None = None,
        step: float | None = None,
        mu: Behaviour = None,
        scaled: bool = True,
        centred: bool = True,
        record: bool = False,
        dtype: str = "float64",
        engine: str = "auto",
        threads: int = 1,
        stepsize: str | StepSize | Mapping[str, Any] | None = None,
        **extra: Any,
    ) -> None:
        self.questions = _check_questions(questions)
        self._diverged: frozenset[str] = frozenset()  # the questions that a warning named
        self._impossible: list[tuple[int, str, float, float, float]] = []  # what a warning is to name
        names = [question.name for question in self.questions]
        known = (USUAL, BOUNDED) if rule is None else (str(getattr(rule, "name", rule)),)
        chosen = [known[0 if question.policy is None else -1] for question in self.questions]
        groups = _group_by_maker(features, names, chosen)
        _check_flags(scaled, centred, record, len({id(maker) for maker, _ in groups}))
        self.step, self.scaled, self._given_rule = step, scaled, rule
        #: The rate that was given; None where each question has its default.
        self.rate = _check_rate(rate)
        if step is not None and not isinstance(step, int | float):
            raise refusal("step", "Horde", "be the seconds of a step", repr(step))
        self._mu = check_behaviour(mu, "Horde")
        kind: dict[str, Any] = {"dtype": dtype, "engine": engine, "threads": threads}
        if stepsize is not None:
            kind["stepsize"] = stepsizes.get(stepsize)
        rates = np.array([self._rate_of(question, stepsize is not None) for question in self.questions])
        setups = {}
        for name in dict.fromkeys(chosen):
            base_rule = _check_rule(name, rule, len(names), kind, extra)
            setups[name] = Setup(base_rule, rates, alpha, scaled, centred, record, kind, extra)
        #: How each of ``groups`` learns; ``setup`` is that of the first question.
        self._setups = [setups[chosen[share[0]]] for _, share in groups]
        self.setup = self._setups[0]
        #: The rule's name; None where it depends on whether a question has a policy.
        self.rule = self.setup.rule.name if len(setups) == 1 else None
        without = [question.name for question in self.questions if question.policy is None]
        if self.setup.chances and without:
            wanted = f"be given for rule {self.rule!r}, which uses {' and '.join(self.setup.chances)} itself"
            raise refusal("policy", "GVF", wanted, f"none in {without[0]!r}")
        for setup in setups.values():
            setup.constants(1.0, np.zeros(len(names)))
        self._group: Group | Groups | None = None
        self._groups: list[Group] = []
        self._guard = Guard("horde")
        self._makers, self._shares = [_claim(maker) for maker, _ in groups], [share for _, share in groups]
        self._order = np.argsort(np.concatenate(self._shares))

    def _rate_of(self, question: GVF, has_stepsize: bool) -> float:
        if self.rate is not None:
            return self.rate
        return 1.0 if has_stepsize else RATE if question.policy is None else POLICY_RATE

    # ------------------------------------------------------------------ properties

    @property
    def names(self) -> tuple[str, ...]:
        """The questions' names, in the order of the predictions."""
        return tuple(question.name for question in self.questions)

    @property
    def features(self) -> Features:
        """The features that all questions share; if there are several learners, see ``makers``."""
        return self._makers[0] if len(self._makers) == 1 else self._refuse_one("makers")

    @property
    def makers(self) -> tuple[Features, ...]:
        """Each ``Features`` once, in the order of the first question that has it; a copy for each further rule."""
        return tuple(self._makers)

    @property
    def shares(self) -> tuple[NDArray[np.intp], ...]:
        """The places of the questions that share each of ``makers``."""
        return tuple(self._shares)

    @property
    def groups(self) -> tuple[Group, ...]:
        """The questions of each of ``makers`` with their learner; none before the warm-up."""
        return tuple(self._groups)

    @property
    def is_warm(self) -> bool:
        """Whether it has been warmed up or prepared."""
        return self._group is not None

    @property
    def learner(self) -> Learner:
        """The learner of all questions; if there are several, see ``learners``."""
        return self.learners[0] if len(self._makers) == 1 else self._refuse_one("learners")

    def _refuse_one(self, several: str) -> NoReturn:
        raise RuntimeError(f"The questions of this Horde have their own features, or their own rules: see {several}.")

    @property
    def learners(self) -> tuple[Learner, ...]:
        """The learner of each of ``makers``, of the questions that share it."""
        self._require().catch_up()
        return tuple(group.learner for group in self._groups)

    @property
    def support(self) -> Array:
        """The effective number of steps that speak for each answer, (Q,): see ``emphatic.hordes.possible``.

        With few of them, below 10, an answer means little. It is NaN where γ is 1 or varies.
        """
        (self._group or self._require()).catch_up()
        if len(self._groups) == 1:
            return self._groups[0].possible.support
        return self._of_questions([group.possible.support for group in self._groups])

    @property
    def possible(self) -> Array:
        """The least and the most answer to each question that is possible by the cumulants so far, (2, Q).

        They are −∞ and ∞ where γ is 1 or varies.
        """
        self._require().catch_up()
        return self._of_questions([group.possible.answers for group in self._groups])

    @property
    def gamma(self) -> Array:
        """γ of each question; NaN where it varies."""
        self._require()
        return self._evaluator.gamma.copy()

    @property
    def base(self) -> Array:
        """The mean of each cumulant in the warm-up, from which deviations are learned; 0 for questions without one."""
        self._require()
        return self._of_questions([group.base for group in self._groups])

    def _of_questions(self, values: Sequence[NDArray[Any]]) -> NDArray[Any]:
        """Values of the questions of each group, (…, Q), in the order of all questions."""
        return np.concatenate(values, axis=-1).take(self._order, axis=-1)

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
    def words(self) -> set[str]:
        """The columns that are read as words: ON and OFF stay words there."""
        policies = [question.policy.column for question in self.questions if question.policy is not None]
        one_hot = [kind.of for maker in self.makers for kind in maker.parts if isinstance(kind, OneHot)]
        known = self.categories if self.is_warm else ()
        return {*known, *one_hot, *(column for column in policies if column is not None)}

    @property
    def in_episode(self) -> bool:
        """Whether an episode has begun, and neither terminated nor been truncated."""
        return (self._group or self._require()) is not None and self._episode is not None

    @property
    def needs_observations(self) -> bool:
        """Whether some function of a question is given observations, so that a block must have its ``originals``."""
        self._require()
        return self._evaluator.needs_observations

    def __repr__(self) -> str:
        makers = ", ".join(map(repr, self._makers))
        rules = ", ".join(dict.fromkeys(repr(setup.rule.name) for setup in self._setups))
        return f"Horde({len(self.questions)} questions, {makers}, {rules}, rate={self.rate})"

    def _require(self) -> Group | Groups:
        if self._group is None:
            raise RuntimeError(
                "A Horde must be warmed up before use: call warm_up(table), run(table), or prepare(names)."
            )
        return self._group

    # ------------------------------------------------------------------ warming up

    def evaluator(self, signals: Sequence[str], categories: Sequence[str] = (), step: float | None = None) -> Evaluator:
        """The questions, prepared for a stream of these signals; ValueError if one of them does not fit it.

        Args:
            signals: The names of the signals.
            categories: The names of the columns of labels.
            step: The seconds of a step, if they are known.
        """
        setup = self.setup
        return Evaluator(self.questions, signals, categories, step, setup.rule, self._mu, bool(setup.chances))

    def warm_up(self, table: object, rows: int | None = None, guard: ReadingGuard | None = None) -> Self:
        """Find ranges, categories and means from the first rows of a table.

        Nothing is learned yet: the next row is the first. Returns self.

        Args:
            table: A ``Table``, or anything that ``open_table`` opens.
            rows: The number of rows; by default four times the longest horizon, 500 to 10,000. A shorter table is used
                whole.
            guard: The new guard of the stream. It is warmed up on the same rows, and decides what is found from them;
                after that it is to judge them as the first rows of the stream. By default all readings are sound.
        """
        source = as_table(table, self.words)
        block, step, _ = read_first_rows(source, self.questions, self.step, rows)
        if guard is not None:
            guard.warm_up(block.values).copy().mark(block)
        return self.warm_up_on(source.names, source.categories, block, step)

    def warm_up_on(self, names: Sequence[str], categories: Sequence[str], block: Block, step: float | None) -> Self:
        """``warm_up`` on the rows of a block, of these signals and categories. Returns self.

        Args:
            names: The names of the signals.
            categories: The names of the columns of labels.
            block: The rows.
            step: The seconds of a step; None where they are not known.
        """
        evaluator = self.evaluator(names, categories, step)
        if evaluator.endless and not self.setup.rule.continuing:  # an average reward has no infinite sum
            warnings.warn(
                f"{evaluator.endless[0]!r} has γ = 1 everywhere: its return is an infinite sum", UndiscountedWarning, 3
            )
        values, _ = Hold(len(names)).fill(block.to_learn)
        for maker in self._makers:
            maker.warm_up(values, names=names, time=block.time, labels=block.labels)
        self.step = step
        self._start(evaluator, evaluator.mean(Observations(names, block.to_learn, block.labels)))
        return self

    def prepare(self, names: Sequence[str], observations: ArrayLike = ()) -> Horde:
        """Prepare for transitions whose observations have these components; "reward" is one more signal.

        Features that have been warmed up stay unchanged. No mean is known: returns are learned from 0. Returns self.

        Args:
            names: The names of an observation's components.
            observations: Observations (B, C), from which ranges are found that the features were not given.
        """
        names = tuple(names)
        if REWARD in names:
            raise refusal("names", "Horde", f"be of the observation's components, without {REWARD!r}", repr(names))
        evaluator = self.evaluator((*names, REWARD), (), self.step)
        rows = np.asarray(observations, np.float64).reshape(-1, len(names))
        for maker in self._makers:
            if not maker.is_warm:
                maker.warm_up(rows, names=names)
            if maker.signals != names:
                wanted = f"have a signal for each component of an observation, {', '.join(names)}"
                raise refusal("features", "Horde", wanted, ", ".join(maker.signals))
        self._start(evaluator, np.zeros(len(self.questions)))
        return self

    def _start(self, evaluator: Evaluator, base: Array, learners: Sequence[Learner | None] = ()) -> None:
        """Before the first row."""
        self._evaluator = evaluator
        learners = learners or [None] * len(self._makers)
        self._groups = [
            Group(evaluator, maker, setup, base, questions, learner)
            for maker, setup, questions, learner in zip(self._makers, self._setups, self._shares, learners, strict=True)
        ]
        for group in self._groups:
            group.impossible = self._impossible
        self._group = self._groups[0] if len(self._groups) == 1 else Groups(self._groups)
        self._hold = Hold(len(evaluator.signals))
        self._width, self._components = len(evaluator.signals), len(self._makers[0].signals)
        self._observed = tuple(name for name in evaluator.signals if name != REWARD)  # of an agent's observation
        self._known = {*evaluator.signals, *evaluator.categories, "time"}  # the names that a row may have
        self._none_missing = np.zeros((1, self._components), bool)
        self._rows = 0
        self._before: Before | None = None  # the last row of a log, where a function needs it
        self._episode: Before | None = None  # the last row of an episode in progress

    # ------------------------------------------------------------------ the one way of every row

    @overload
    def advance(self, block: Block, *, learn: bool = True, predict: Literal[True] = True) -> Array: ...

    @overload
    def advance(self, block: Block, *, learn: bool = True, predict: bool) -> Array | None: ...

    def advance(self, block: Block, *, learn: bool = True, predict: bool = True) -> Array | None:
        """Learn from the steps that end in the rows of a block, and return the predictions at each row, (B, Q).

        All learning from rows of a log and from transitions of an agent goes through this method, except steps that
        ``follow`` takes. A block carries the facts about its rows: which of them do not follow the previous row
        (``gap``), and with an agent, which actions led to them and where an episode ended. Invalid input raises an
        error before anything changes. Results are bit-for-bit identical however rows are divided into blocks.

        Args:
            block: The next rows, with all signals in their order; its arrays must not be changed afterwards.
            learn: Whether to learn from rows of a log. If not, they are only predicted at: no weight changes, and
                nothing is learned across them.
            predict: Whether predictions are returned. If not, transitions are learned from together with later ones,
                which is faster and leads to the same weights.
        """
        group, values = self._group or self._require(), block.values
        B = len(values)
        if values.ndim != 2 or values.shape[1] != self._width or len(block.gap) not in (B, 0):
            wanted = f"have values of {self._width} signals, and a gap of one entry a row"
            raise refusal("block", "advance", wanted, f"shapes {values.shape} and {block.gap.shape}")
        guard = self._guard
        if guard.users:
            guard.wait()
        guard.users = -1  # (no call in between: see ``common.locks``)
        try:
            if block.terminated is None:
                answers = self._advance_rows(group, block, learn)
                return answers if predict else None
            if B == 1:
                return self._advance_step(group, block, predict)
            steps = [self._advance_step(group, block.agent_row(t), predict) for t in range(B)]
            return np.concatenate([answers for answers in steps if answers is not None]) if predict and steps else None
        finally:
            guard.users = 0
            self._warn_of_impossible()

    def can_follow(self, values: Array) -> bool:
        """Whether ``follow`` takes this row: an episode is in progress, no value is missing, all questions are plain.

        A question is plain if its γ is constant, its cumulant a signal or a constant, and its answer the prediction of
        its learner: not ``scaled``, and not ``centred``.

        Args:
            values: The row (1, C).
        """
        readings, group = values[0], self._group
        if group is None or self._episode is None or not group.is_plain:
            return False
        return bool(np.vdot(readings, readings) <= _SQUARE)  # as in ``_fill``

    def follow(self, values: Array, predict: bool = True) -> Array | None:
        """``advance`` by one row of an agent that neither begins nor ends an episode, with less around it.

        It is for loops in which Python would take longer than learning.

        Args:
            values: The row (1, C), contiguous float64, that ``can_follow``; it must not be changed afterwards.
            predict: As for ``advance``.
        """
        guard, group = self._guard, self._require()
        if guard.users:
            guard.wait()
        guard.users = -1  # (no call in between: see ``common.locks``)
        try:
            answers = group.follow(values[:, : self._components], self._evaluator.read_step(values), predict)
            self._hold.follow(values[0])
            row = Observations(self._evaluator.signals, values, _NO_LABELS, complete=True)
            self._episode = row, row
            self._rows += 1
            return answers
        finally:
            guard.users = 0
            self._warn_of_impossible()

    def cut(self) -> None:
        """Start a new sequence: reset the traces, also those of features, and learn nothing from the step across it."""
        with self._guard:
            self._forget()

    def restart(self) -> Self:
        """Start another stream of the same signals with the weights that were learned so far. Returns self.

        Everything else of the previous stream is dropped: its last values, traces, and the number of its rows.
        """
        with self._guard:
            self._forget()
            self._hold, self._rows = Hold(len(self._evaluator.signals)), 0
        return self

    def stream(self, blocks: Iterable[Block | Mapping[str, Any] | Array | None]) -> Iterator[Array]:
        """``advance`` by blocks as they come: the predictions at the rows of each, in order.

        Args:
            blocks: Blocks, or rows as ``observe_many`` takes them; None among them is a ``cut``.
        """
        for block in blocks:
            if block is None:
                self.cut()
            else:
                yield self.advance(as_block(block, self.signals, self.categories))

    def _forget(self) -> None:
        self._require().cut()
        self._before = self._episode = None

    def _advance_rows(self, group: Group | Groups, block: Block, learn: bool) -> Array:
        """Rows of a log."""
        evaluator = self._evaluator
        if self._episode is not None or self.setup.record:
            what = "An episode is in progress: continue with learn(), or call cut() first."
            raise RuntimeError("A Horde with record=True accepts only transitions." if self.setup.record else what)
        B, gap = len(block), block.gap
        if not B:
            return np.empty((0, len(self.questions)))
        if group.phi is None and any(member.open for member in self._groups):
            self._forget()  # an episode was truncated
        if not len(gap):
            gap = NO if B == 1 else np.zeros(B, bool)
        raw, filled, missing, hold = self._fill(block)
        if B == 1:
            follows = YES if learn and group.phi is not None and not gap[0] else NO
        else:
            follows = ~gap & learn
            follows[0] &= group.phi is not None
        departure, counts = evaluator.departure, evaluator.counts if evaluator.counting else None
        try:
            targets = evaluator(raw, filled, self._before, follows)
            columns: Any = group.columns(filled.values[:, : self._components], missing, block.time, block.labels)
            answers = group.rows(columns, targets, gap, learn)
        except Exception:
            evaluator.departure = departure
            if counts is not None:
                evaluator.counts = counts
            raise
        if hold is None:
            self._hold.follow(raw.values[0])
        else:
            self._hold = hold
        self._rows += B
        if evaluator.needs_before:
            self._before = raw.part(slice(B - 1, B)), filled.part(slice(B - 1, B))
        return answers

    def _begin(self, group: Group | Groups, block: Block) -> Array:
        """The first row of an episode; functions see the originals, or the row where there are none."""
        evaluator = self._evaluator
        values = np.where(np.isfinite(block.values), block.values, np.nan)
        hold = self._hold.copy()
        if REWARD in evaluator.signals:  # it belongs to a step, and the last one is not of this episode
            hold.last = hold.last.copy()
            hold.last[evaluator.signals.index(REWARD)] = np.nan
        filled_values, missing = hold.fill(values)
        raw, filled = (
            Observations(evaluator.signals, v, block.labels, None, None, block.originals)
            for v in (values, filled_values)
        )
        C = self._components
        columns: Any = group.columns(filled_values[:, :C], missing[:, :C], block.time, block.labels)
        answers = group.begin(columns)
        self._hold, self._before, self._episode = hold, None, (raw, filled)
        self._rows += 1
        return answers

    def _advance_step(self, group: Group | Groups, block: Block, predict: bool) -> Array | None:
        """One row of an agent: it begins an episode, or ends a transition."""
        if len(block.gap) and block.gap[0]:
            return self._begin(group, block)
        evaluator, row_before = self._evaluator, self._episode
        if row_before is None:
            raise RuntimeError("learn() was called before an episode began: call begin(observation) first.")
        terminated, truncated = bool(block.terminated[0]), block.truncated  # type: ignore[index]
        raw_before, filled_before = row_before
        raw_before.actions = filled_before.actions = [block.action_before]
        raw_before.mu = filled_before.mu = block.mu_before
        raw, filled, missing, hold = self._fill(block)
        counts = evaluator.counts if evaluator.counting else None
        try:
            targets = evaluator.transition(row_before, raw, filled, terminated)
            columns: Any = group.columns(filled.values[:, : self._components], missing, block.time, block.labels)
            answers = group.step(columns, targets, terminated, predict or terminated or truncated)
        except Exception:
            if counts is not None:
                evaluator.counts = counts
            raise
        if hold is None:
            self._hold.follow(raw.values[0])
        else:
            self._hold = hold
        self._episode = (raw, filled)
        if terminated or truncated:
            self._episode = None
            group.end()
        self._rows += 1
        return answers

    def _fill(self, block: Block) -> tuple[Observations, Observations, NDArray[np.bool_], Hold | None]:
        """Rows to learn from, and with readings held; which features lack their reading; and the next ``hold``.

        Of one row in which nothing is missing the first two are the same, and the hold is None: it is to ``follow``.
        """
        values, signals = block.to_learn, self._evaluator.signals
        if len(values) == 1:
            readings = values[0]
            if np.vdot(readings, readings) <= _SQUARE:  # not so if any is missing, or too large; vdot does not warn
                row = Observations(signals, values, block.labels, block.actions, block.mu, block.originals, True)
                return row, row, self._none_missing, None
        infinite = np.isinf(values)
        if infinite.any():
            values = np.where(infinite, np.nan, values)
        labels_and_actions = (block.labels, block.actions, block.mu, block.originals)
        hold = self._hold.copy()
        filled, missing = hold.fill(values)
        raw, full = (Observations(signals, v, *labels_and_actions) for v in (values, filled))
        return raw, full, missing[:, : self._components], hold

    # ------------------------------------------------------------------ rows of a log

    def observe(
        self,
        observation: Observation,
        *,
        action: object = None,
        mu: Chance = None,
        time: object = None,
        learn: bool = True,
    ) -> Array:
        """Learn from the step that this row completes, and return all predictions at it, (Q,).

        They are in the order of the questions: ``dict(zip(horde.names, horde.observe(row)))`` has them by name. A
        question of a constant γ is answered with the weighted mean of all future values, not with the value at one
        time.

        Args:
            observation: {name: value} (absent, None, NaN or infinite is missing), or the values in the order of the
                signals. A ``time`` in it that is not a signal is the time of the row. A name that is nearly that of an
                absent signal, and a row without any signal, are rejected; other names are ignored.
            action: The action chosen now.
            mu: The probability (or density) with which the behaviour chose it.
            time: In seconds, as datetime64, a datetime or text such as "2026-01-31 12:00", for features of time; also
                as {"time": …} in the observation. The caller must detect gaps and ``cut`` there.
            learn: If False, it only predicts: no weight changes, and nothing is learned across that row.
        """
        self._require()
        if not isinstance(learn, bool | np.bool_):
            raise refusal("learn", "observe", "be True or False", repr(learn))
        values, labels = self._read(observation, "observe")
        if action is not None and not isinstance(action, np.ndarray):  # (an array is one of a continuous space)
            action_name(action)
        if time is None and isinstance(observation, Mapping) and "time" not in self.signals:
            time = observation.get("time")
        block = Block(0, values, None if time is None else _as_seconds(np.array([_as_time(time)])), labels)
        if action is not None:
            block.actions = [action]
        if mu is not None:
            block.mu = probability(mu, "observe")
        predictions: Array = self.advance(block, learn=learn)[0]
        if not np.vdot(predictions, predictions) <= _HUGE:
            self._warn_of_divergence()
        return predictions

    def observe_many(
        self,
        observations: Mapping[str, Any] | Array,
        *,
        actions: Sequence[Any] | None = None,
        mu: Sequence[Chance] | Array | None = None,
        time: Sequence[Any] | NDArray[Any] | None = None,
        gap: Sequence[bool] | NDArray[np.bool_] | None = None,
        learn: bool = True,
    ) -> Array:
        """``observe`` for many rows at once, which is faster; predictions (B, Q).

        Args:
            observations: {name: column}, or the readings (B, C) in the order of the signals.
            actions: The action chosen in each row.
            mu: The probability (or density) with which the behaviour chose each action.
            time: The time of each row.
            gap: The rows (B,) that do not follow the row before.
            learn: As for ``observe``.

        >>> import numpy as np
        >>> from emphatic import GVF, features as f
        >>> horde = Horde([GVF("x", horizon=2)], f.Features([f.Bias(), f.SoftBins("x", bins=3)]), rate=0.3)
        >>> horde.warm_up({"x": np.sin(np.arange(1000.0))}).observe_many({"x": [0.1, 0.2, 0.3]}).shape
        (3, 1)
        """
        self._require()
        values, _, labels = rows_of(observations, self.signals, self.categories)
        B = len(values)
        for name, column in {"actions": actions, "mu": mu, "time": time, "gap": gap}.items():
            if column is not None and len(column) != B:
                raise refusal(name, "observe_many", f"have one entry a row, {B}", str(len(column)))
        if not B:
            return np.empty((0, len(self.questions)))
        for action in () if actions is None else actions:
            if action is not None and not isinstance(action, np.ndarray):
                action_name(action)
        block = Block(0, values, None if time is None else _as_seconds(np.asarray(time)), labels, actions=actions)
        if mu is not None:
            block.mu = [chance for value in mu for chance in probability(value, "observe_many") or [np.nan]]
        if gap is not None:
            block.gap = np.array(gap, bool)
        predictions = self.advance(block, learn=learn)
        self._warn_of_divergence()
        return predictions

    def run(self, table: object, *, first: ArrayLike | None = None) -> Array:
        """Learn from a whole log and return the predictions, (T, Q); warms up on its first rows if not warmed up yet.

        It continues from what was seen before; call ``cut`` first if the log is a new sequence.

        Args:
            table: A ``Table``, or anything that ``open_table`` opens.
            first: A mask of the table's rows, True where a row begins a sequence: as if ``cut`` were called before it.
                Gaps in time begin one in any case.
        """
        source = as_table(table, self.words)
        begins = None if first is None else mask("first", first, "run", source.count_rows(), "row of the table")
        if not self.is_warm:
            self.warm_up(source)
        predictions = [answers for _, answers in self.blocks(source, first=begins)]
        self._warn_of_divergence()
        return np.concatenate(predictions) if predictions else np.empty((0, len(self.questions)))

    def _warn_of_divergence(self) -> None:
        """Name the questions whose learners are frozen; each once.

        A learner that would diverge keeps its last finite weights, so that the others of the Horde can continue.
        """
        frozen = self._of_questions([learner.frozen for learner in self.learners])
        named = [name for name, is_frozen in zip(self.names, frozen, strict=True) if is_frozen]
        named = [name for name in named if name not in self._diverged]
        if named:
            self._diverged |= {*named}
            unnamed = f" and {len(named) - _NAMED} more" if len(named) > _NAMED else ""
            learners, are, their = ("learner", "is", "its") if len(named) == 1 else ("learners", "are", "their")
            warnings.warn(
                f"The {learners} of {', '.join(map(repr, named[:_NAMED]))}{unnamed} diverged and {are} frozen: {their} "
                "predictions mean nothing from then on. Choose γ below 1, or a smaller alpha or rate.",
                DivergenceWarning,
                3,
            )

    def _warn_of_impossible(self) -> None:
        """Name the questions that were given an impossible answer; each once. Learning goes on."""
        while self._impossible:
            q, rule, answer, low, high = self._impossible.pop(0)
            warnings.warn(
                f"{self.names[q]!r} predicts {answer:.4g}, which is impossible: with γ = {self.gamma[q]:.6g} and the "
                f"cumulants so far every answer lies from {low:.4g} to {high:.4g}. The steps of rule {rule!r} are too "
                f"large here: use rule {BOUNDED!r}, which keeps to this range.",
                DivergenceWarning,
                stacklevel=_level_of_caller(),
            )

    def blocks(
        self, table: Table, clock: Clock | None = None, start: int = 0, first: NDArray[np.bool_] | None = None
    ) -> Iterator[tuple[Block, Array]]:
        """``run`` in blocks: each block of the table, and the predictions at its rows.

        Args:
            table: The table.
            clock: What finds the gaps, standing at row ``start``; by default a new clock of the table.
            start: The number of the first row.
            first: As for ``run``.
        """
        for block in read_blocks(table, self.block_rows, self.signals, self.categories, clock, start, first):
            yield block, self.advance(block)

    # ------------------------------------------------------------------ transitions

    def begin(self, observation: Observation, *, time: object = None) -> Array:
        """Begin an episode with its first observation; returns the predictions at it, (Q,).

        An episode that has not terminated is cut off here.

        Args:
            observation: As for ``observe``, without the reward.
            time: As for ``observe``.
        """
        self._require()
        values, labels = self._read(observation, "begin", np.nan)
        when = None if time is None else np.array([time])
        answers: Array = self.advance(Block(0, values, when, labels, gap=YES, terminated=NO))[0]
        return answers

    @overload
    def learn(
        self,
        action: object,
        reward: object,
        observation: Observation,
        terminated: bool,
        truncated: bool = False,
        mu: Chance = None,
        *,
        time: object = None,
        predict: Literal[True] = True,
    ) -> Array: ...

    @overload
    def learn(
        self,
        action: object,
        reward: object,
        observation: Observation,
        terminated: bool,
        truncated: bool = False,
        mu: Chance = None,
        *,
        time: object = None,
        predict: bool,
    ) -> Array | None: ...

    def learn(
        self,
        action: object,
        reward: object,
        observation: Observation,
        terminated: bool,
        truncated: bool = False,
        mu: Chance = None,
        *,
        time: object = None,
        predict: bool = True,
    ) -> Array | None:
        """Learn from a transition, and return all predictions at its observation, (Q,).

        After a termination or truncation, call ``begin``.

        Args:
            action: The action that was chosen at the observation before.
            reward: The reward of the transition.
            observation: The observation in which it ends, as for ``begin``.
            terminated: Whether the episode terminated: γ' and the predictions are then 0.
            truncated: Whether the episode was truncated: the return bootstraps from the final observation.
            mu: The probability (or density) with which the action was chosen, if it is known.
            time: As for ``observe``.
            predict: If False nothing is returned, and the step is learned from together with later ones, which is
                faster and leads to the same weights.
        """
        self._require()
        for what, flag in (("terminated", terminated), ("truncated", truncated)):
            if not isinstance(flag, bool | np.bool_):
                raise refusal(what, "learn", "be True or False", repr(flag))
        values, labels = self._read(observation, "learn", reward)
        block = Block(0, values, None if time is None else np.array([time]), labels)
        block.terminated, block.truncated, block.action_before = YES if terminated else NO, bool(truncated), action
        if mu is not None:
            block.mu_before = probability(mu, "learn")
        answers = self.advance(block, predict=predict)
        if answers is not None and not np.vdot(answers, answers) <= _HUGE:
            self._warn_of_divergence()
        return None if answers is None else answers[0]

    def log(self, learner: int | None = None) -> dict[str, Any]:
        """The recorded input of a learner: arguments of ``Learner.run`` that lead to the same weights.

        Args:
            learner: Its number among ``learners``; needed where there are several.
        """
        with self._guard:
            self._require().catch_up()
            if learner is None and len(self._groups) > 1:
                self._refuse_one("learners, and give log the number of one")
            numbers = range(len(self._groups))
            if learner is not None and (isinstance(learner, bool) or learner not in numbers):
                raise refusal("learner", "log", f"be a whole number from 0 to {numbers[-1]}", repr(learner))
            return self._groups[learner or 0].recorded.log()

    def resume_episode(self, observation_of: Callable[[Array], Any]) -> None:
        """Give an episode that was saved the observation of its last row, which no file holds.

        Args:
            observation_of: Makes an observation of its components (C,).
        """
        for row in self._episode or ():
            row.originals = [observation_of(row.values[0, :-1])]

    def _read(self, observation: Any, function: str, reward: object = None) -> tuple[Array, dict[str, Any]]:
        """The row (1, C) of all signals, and labels; in a transition with its reward. ``function`` is the caller."""
        categories, signals = self._evaluator.categories, self._evaluator.signals
        wanted = signals if function == "observe" else self._observed
        labels: dict[str, Any] = {}
        if isinstance(observation, Mapping):
            if not self._known.issuperset(observation):
                check_signals(observation, wanted, categories, function)
            readings = [_as_reading(name, observation.get(name), function) for name in wanted]
            if categories:
                labels = {name: [_as_label(name, observation.get(name), function)] for name in categories}
        elif isinstance(observation, str) or not hasattr(observation, "__len__") or len(observation) != len(wanted):
            raise refusal("observation", function, f"be {{name: reading}} or {len(wanted)} readings", repr(observation))
        else:
            readings = [_as_reading(name, reading, function) for name, reading in zip(wanted, observation, strict=True)]
            labels = {name: [None] for name in categories}
        if len(wanted) < len(signals):
            readings.insert(signals.index(REWARD), _as_reading(REWARD, reward, function))
        return np.array([readings]), labels

    # ------------------------------------------------------------------ saving and loading

    def save(self, path: str | os.PathLike[str], **more: Any) -> None:
        """Write one safetensors file with the complete state.

        Args:
            path: The file.
            more: What is saved with it, for ``load_with``: arrays as arrays, other values as JSON in the header.
        """
        self._require()
        with self._guard:
            checkpoint.write(path, *self._state(more))

    @staticmethod
    def load(
        path: str | os.PathLike[str], *, engine: str | None = None, mu: Behaviour = None, rule: AnyRule | None = None
    ) -> Horde:
        """The horde that ``save`` wrote; it continues bit for bit. A model of ``nexting`` is rejected.

        Args:
            path: The file.
            engine: Replaces the engine in the file; with another engine it continues equal up to rounding.
            mu: Must be passed again if it was a function.
            rule: Must be passed again if it was a rule of your own.
        """
        checkpoint.check_not_of_nexting(path)
        return Horde.load_with(path, engine=engine, mu=mu, rule=rule)[0]

    @staticmethod
    def load_with(
        path: str | os.PathLike[str], *, engine: str | None = None, mu: Behaviour = None, rule: AnyRule | None = None
    ) -> tuple[Horde, dict[str, Any]]:
        """The same, and the ``more`` that was saved with it.

        Args:
            path: The file.
            engine: As for ``load``.
            mu: As for ``load``.
            rule: As for ``load``.
        """
        checkpoint.check_engine(engine)
        with checkpoint.open_checkpoint(path) as (header, stored):
            if "horde" not in header:
                raise CheckpointError(f"{os.fsdecode(path)!r} holds a single Learner, not a Horde: use emphatic.load.")
            name = engine or str(header.get("engine"))
            if lacking := engines.missing(name):
                raise checkpoint.lacking_engine(engine, name, lacking)  # the file is not at fault
            try:
                stored = _split_groups(header["horde"], stored)
                horde = Horde(**_saved_arguments(header, stored, mu, rule, engine))
                horde._restore(header, stored, engine)
                return horde, checkpoint.unpack(header["horde"]["more"], stored, _MORE)
            except Exception as error:  # whatever a damaged file causes
                raise CheckpointError(f"{os.fsdecode(path)!r} is not a valid Horde checkpoint: {error}") from error

    def _state(self, more: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, TensorPart]]:
        """Header and arrays: the complete state.

        The learner of the first group is the file's own, so that ``emphatic.load`` opens it; what further groups have
        is under names that begin with their number.
        """
        evaluator, setup = self._evaluator, self.setup
        questions = [question.config() for question in self.questions]
        entries, tensors = checkpoint.pack(more, _MORE)
        (header_of_first, header, arrays), *states = [group.state() for group in self._groups]
        tensors |= arrays
        saved = {
            "questions": questions,
            "signals": list(evaluator.signals),
            "categories": list(evaluator.categories),
            "rate": self.rate,
            "alpha": None if setup.alpha is None else np.asarray(setup.alpha, np.float64).tolist(),
            "rule": None if self._given_rule is None else setup.rule.name,
            "step": self.step if self.step is not None and np.isfinite(self.step) else None,
            "mu": _FUNCTION if callable(self._mu) else self._mu,
            "scaled": setup.scaled,
            "centred": setup.centred,
            "stepsize": setup.kind["stepsize"].config() if "stepsize" in setup.kind else None,
            "kind": {key: value for key, value in setup.kind.items() if key != "stepsize"},
            # (JSON has no infinity; for learners the largest number is the same, and the least)
            "extra": {
                name: np.clip(np.asarray(p, np.float64), -inputs.LARGEST, inputs.LARGEST).tolist()
                for name, p in setup.extra.items()
            },
            "rows": self._rows,
            "hold": self._hold.state(),
            "counts": evaluator.counts,
            "more": entries,
            **header_of_first,
        }
        if states:
            saved["of"] = [group.questions.tolist() for group in self._groups]
            tensors |= _join_groups(
                [{**of_group, "learner": learner} for of_group, learner, _ in states],
                [of_group for *_, of_group in states],
            )
        tensors["horde.now"] = TensorPart.of(np.ascontiguousarray(evaluator.departure))
        if self._episode is not None:
            raw, filled = self._episode
            saved["episode"] = {name: labels[0] for name, labels in raw.labels.items()}
            tensors |= {"horde.raw": TensorPart.of(raw.values), "horde.held": TensorPart.of(filled.values)}
        return {**header, "horde": saved}, tensors

    def _restore(self, header: Mapping[str, Any], stored: Mapping[str, Stored], engine: str | None) -> None:
        """Restore the state of a new horde. ValueError and others if it is invalid."""
        saved = header["horde"]
        of_features, signals = self._makers[0].signals, tuple(saved["signals"])
        if signals not in (of_features, (*of_features, REWARD)):
            raise ValueError("its signals are not those of its features")
        groups, rules = saved.get("groups", []), [setup.rule for setup in self._setups]
        learners = [Learner._restored(dict(header), dict(stored), engine, rules[0])]
        for g, (group, rule) in enumerate(zip(groups, rules[1:], strict=True), 1):
            learners.append(Learner._restored(group["learner"], under(stored, _prefix(g)), engine, rule))
        evaluator = self.evaluator(signals, saved["categories"], self.step)
        self._start(evaluator, np.zeros(len(self.questions)), learners)
        for g, (group, state) in enumerate(zip(self._groups, [saved, *groups], strict=True)):
            group.restore(state, _arrays(stored, _prefix(g) if g else ""))
        C = len(signals)
        if any(len(saved["hold"][name]) != C for name in ("last", "missing", "longest", "_run")):
            raise ValueError("its last readings are not one per signal")
        self._hold, self._rows = Hold.restore(saved["hold"]), int(saved["rows"])
        evaluator.counts = saved["counts"]
        arrays = _arrays(stored, "")
        fill_in("now", evaluator.departure, arrays["horde.now"])
        if "episode" in saved:
            labels = {name: [saved["episode"][name]] for name in evaluator.categories}
            rows = np.empty((2, 1, C))
            for name, row in zip(("raw", "held"), rows, strict=True):
                fill_in(name, row, arrays[f"horde.{name}"], finite=False)
            if any(group.phi is None for group in self._groups):
                raise ValueError("its episode has no features")
            raw, filled = (Observations(signals, row, labels) for row in rows)
            self._episode = raw, filled

    @classmethod
    def join(cls, hordes: Sequence[Horde], makers_of: Mapping[str, int]) -> Horde:
        """One Horde of the questions of several, in order, which have seen the same rows.

        Args:
            hordes: The hordes.
            makers_of: For each question the number of its features, 0 for those of the first question, and so on.
        """
        other, Q = hordes[0], [len(horde.questions) for horde in hordes]
        shared: list[list[Group]] = [[] for _ in range(1 + max(makers_of.values()))]
        for horde in hordes:
            for group in horde.groups:
                shared[makers_of[horde.names[group.questions[0]]]].append(group)
        makers, setup = [groups[0].features for groups in shared], other.setup
        names = [name for horde in hordes for name in horde.names]
        joined = cls(
            [question for horde in hordes for question in horde.questions],
            makers[0] if len(makers) == 1 else {name: makers[makers_of[name]] for name in names},
            other._given_rule,
            rate=other.rate,
            step=other.step,
            mu=other._mu,
            scaled=setup.scaled,
            centred=setup.centred,
            alpha=None if setup.alpha is None else _concatenated([horde.setup.alpha for horde in hordes], Q),
            **setup.kind,
            **{name: _concatenated([horde.setup.extra[name] for horde in hordes], Q) for name in setup.extra},
        )
        joined._take_state(hordes, shared)
        return joined

    def _take_state(self, hordes: Sequence[Horde], shared: Sequence[Sequence[Group]]) -> None:
        """Take the state of hordes that have these questions between them; ``shared`` are the groups of each maker."""
        # As the makers stand, and not as they were after the warm-up.
        self._makers = [groups[0].features for groups in shared]
        evaluator = self.evaluator(hordes[0].signals, hordes[0].categories, self.step)
        learners = [join([group.learner for group in groups]) for groups in shared]
        self._start(evaluator, np.concatenate([horde.base for horde in hordes]), learners)
        for group, groups in zip(self._groups, shared, strict=True):
            group.join(groups)
        other = hordes[0]
        self._hold, self._rows, self._before = other._hold, other._rows, other._before
        evaluators = [other._evaluator for other in hordes]
        evaluator.counts = [counts for of_horde in evaluators for counts in of_horde.counts]
        evaluator.departure = np.concatenate([of_horde.departure for of_horde in evaluators], axis=1)


def _level_of_caller() -> int:
    """The stack level, for a warning of the function that calls this, of the first line outside the package."""
    frame, level = sys._getframe(1), 1
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith("emphatic."):
        frame, level = frame.f_back, level + 1
    return level


# ------------------------------------------------------------------------------------------------ checks of arguments


def _check_questions(questions: object) -> tuple[GVF, ...]:
    """Questions of different names."""
    checked = tuple(questions) if isinstance(questions, Sequence) else ()
    if not checked or not all(isinstance(question, GVF) for question in checked):
        raise refusal("questions", "Horde", "be a list of GVFs", repr(questions))
    names = [question.name for question in checked]
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise refusal("questions", "Horde", "have different names", f"{twice!r} twice")
    return checked


def _check_flags(scaled: bool, centred: bool, record: bool, makers: int) -> None:
    for what, flag in {"scaled": scaled, "centred": centred, "record": record}.items():
        if not isinstance(flag, bool):
            raise refusal(what, "Horde", "be True or False", repr(flag))
    if record and makers > 1:
        raise refusal("record", "Horde", "be False if questions have their own features", "True")


def _check_rule(
    name: str, given: str | AnyRule | None, K: int, kind: Mapping[str, Any], extra: Mapping[str, Any]
) -> AnyRule:
    """The rule of this name, which was ``given`` or is a default, without its step size.

    It reports an unknown rule, engine or parameter, or a missing one, at once.
    """
    if name == BOUNDED and (ends := sorted({"low", "high"} & extra.keys())):
        wanted = f"be left out for rule {BOUNDED!r}: a horde finds what is possible from the cumulants"
        raise refusal(ends[0], "Horde", wanted, repr(extra[ends[0]]))
    try:
        rule: AnyRule = Learner(name if given is None else given, 1, K, **kind).rule.base
        return rule
    except ValueError as error:
        if given is not None or name != BOUNDED or "stepsize" not in kind:
            raise
        remedy = f"Questions with a policy have rule {BOUNDED!r} by default: pass another, such as {USUAL!r}."
        raise ValueError(f"{error} {remedy}") from error


def _check_rate(rate: Any) -> float | None:
    """The rate that is given; None where there is none, so that each question has its default."""
    if rate is None:
        return None
    is_number = isinstance(rate, int | float | np.integer | np.floating) and not isinstance(rate, bool)
    try:
        value = float(rate) if is_number else math.nan
    except OverflowError:
        value = math.inf
    if not 0.0 < value < math.inf:
        raise refusal("rate", "Horde", "be a finite number above 0", show(rate))
    return value


def _claim(maker: Features) -> Features:
    """The maker, or a copy if another Horde already uses it: its traces and ranges belong to one stream."""
    if maker in _MAKERS_IN_USE:
        maker = deepcopy(maker)
        if maker.is_warm:
            maker.restart()
    _MAKERS_IN_USE.add(maker)
    return maker


def _group_by_maker(
    features: object, names: Sequence[str], rules: Sequence[str]
) -> list[tuple[Features, NDArray[np.intp]]]:
    """Each feature maker, and the questions that share it and the rule, and so a learner."""
    by_name = dict.fromkeys(names, features) if isinstance(features, Features) else _check_makers(features, names)
    shares: dict[tuple[int, str], list[int]] = {}
    for q, (name, rule) in enumerate(zip(names, rules, strict=True)):
        shares.setdefault((id(by_name[name]), rule), []).append(q)
    return [(by_name[names[share[0]]], np.array(share)) for share in shares.values()]


def _check_makers(features: object, names: Sequence[str]) -> Mapping[str, Features]:
    """A maker for each question, and no other."""
    if not isinstance(features, Mapping) or not all(isinstance(maker, Features) for maker in features.values()):
        wanted = "be emphatic.features.Features, or {question: Features}"
        raise refusal("features", "Horde", wanted, repr(features))
    wrong = [name for name in names if name not in features] or [name for name in features if name not in names]
    if wrong:
        raise refusal("features", "Horde", "have an entry for each question, and no other", f"{wrong[0]!r}")
    return features


# ------------------------------------------------------------------------------------------------ observations as rows


def as_table(table: object, words: set[str]) -> Table:
    """A table, opened if it is not: ``words`` are the columns that are read as words."""
    return table if isinstance(table, Table) else open_table(table, words=words)


def as_block(rows: Block | Mapping[str, Any] | Array, signals: Sequence[str], categories: Sequence[str]) -> Block:
    """Rows as ``observe_many`` takes them as a block; each row follows the row before. A block stays as it is."""
    return rows if isinstance(rows, Block) else Block(0, *rows_of(rows, signals, categories))


def rows_of(observations: Any, signals: Sequence[str], categories: Sequence[str]) -> tuple[Array, None, dict[str, Any]]:
    """The rows (B, C) of all signals, NaN where a reading is missing, no times, and labels, of ``observe_many``."""
    if isinstance(observations, Mapping):
        values, labels = _rows_of_columns(observations, signals, categories)
    else:
        wanted = f"be {{name: column}} or an array (B, {len(signals)})"
        try:
            values = np.array(observations, np.float64)
        except (TypeError, ValueError):
            raise refusal("observations", "observe_many", wanted, repr(observations)) from None
        if values.ndim != 2 or values.shape[1] != len(signals):
            raise refusal("observations", "observe_many", wanted, f"shape {values.shape}")
        labels = {name: np.full(len(values), None, object) for name in categories}
    values[~np.isfinite(values)] = np.nan
    return values, None, labels


def check_signals(
    observation: Mapping[Any, Any], signals: Sequence[str], categories: Sequence[str], function: str
) -> None:
    """ValueError if a row names no signal, or a name that is not a signal is close to that of one that is absent.

    Other names that are not signals are columns that the model does not use. Pipes and services ignore them too.

    Args:
        observation: The row or the columns, by name.
        signals: The signals of the model.
        categories: Its columns of labels.
        function: The caller, for the message.
    """
    known = [*signals, *categories]
    absent = {name.casefold(): name for name in known if name not in observation}
    least = 0.6 if len(absent) == len(known) else 0.8  # (the similarity of names, from 0 to 1)
    for name in observation:
        close = get_close_matches(str(name).casefold(), absent, 1, least) if name not in (*known, "time") else ()
        if close:
            raise _unknown_signal(name, known, function, f"Did you mean {absent[close[0]]!r}? ")
    if len(absent) == len(known):
        raise _unknown_signal(next(iter(observation), None), known, function)


def _unknown_signal(name: object, known: Sequence[str], function: str, hint: str = "") -> ValueError:
    names = ", ".join(known[:_NAMED]) + (f" and {len(known) - _NAMED} more" if len(known) > _NAMED else "")
    return refusal("observation", function, "name signals", repr(name), f"{hint}The signals are {names}.")


def _rows_of_columns(
    columns: Mapping[str, Any], signals: Sequence[str], categories: Sequence[str]
) -> tuple[Array, dict[str, Any]]:
    """The rows (B, C) of {name: column}, and the labels; a column that is absent is missing in every row."""
    check_signals(columns, signals, categories, "observe_many")
    lengths = {len(column) for column in columns.values()}
    if len(lengths) != 1:
        raise refusal("observations", "observe_many", "have columns of one length", str(sorted(lengths)))
    B = lengths.pop()
    values, labels = np.full((B, len(signals)), np.nan), {}
    for c, name in enumerate(signals):
        column = columns.get(name, ())
        try:
            values[: len(column), c] = np.asarray(column, np.float64)
        except (TypeError, ValueError, OverflowError):
            values[:, c] = [_as_reading(name, reading, "observe_many") for reading in column]
    for name in categories:
        labels[name] = np.full(B, None, object)
        for t, label in enumerate(columns.get(name, ())):
            text = label.item() if isinstance(label, np.generic) else label
            labels[name][t] = _as_label(name, text, "observe_many")
    return values, labels


def probability(mu: object, function: str) -> list[float] | None:
    """μ as passed with a step, a list of one; ``function`` names the caller."""
    if mu is None:
        return None
    value = float(mu) if isinstance(mu, int | float | np.number) else np.nan
    if not 1.0 / LARGEST < value <= LARGEST:
        raise refusal("mu", function, "be a probability or a density, above 0 and finite", repr(mu))
    return [value]


def _as_reading(name: str, reading: Any, function: str) -> float:
    if reading.__class__ is float:
        return reading
    try:
        if not np.iscomplexobj(reading):
            return np.nan if reading is None else float(reading)
        raise TypeError
    except Exception:  # whatever the object's own conversion raises
        raise refusal("observation", function, f"have a number for {name!r}", show(reading)) from None


def _as_time(time: object) -> object:
    """A time as features take it: a datetime, or text, as seconds since 1970; others as they are."""
    if isinstance(time, str):
        from emphatic.nexting.tables.fields import parse_time

        seconds = parse_time(time, "iso")
        if not math.isfinite(seconds):
            raise refusal("time", "observe", "be a time such as '2026-01-31 12:00'", repr(time))
        return seconds
    if isinstance(time, datetime):
        return (time if time.tzinfo is not None else time.replace(tzinfo=UTC)).timestamp()
    return time


def _as_seconds(times: NDArray[Any]) -> NDArray[Any]:
    """Times that are datetime64 in seconds since 1970, as features take them; others as they are.

    >>> _as_seconds(np.array(["1970-01-01T00:01", "NaT"], "M8[m]"))
    array([60., nan])
    """
    if times.dtype.kind == "M":
        since = times.astype("M8[us]")
        times = np.where(np.isnat(since), np.nan, since.astype(np.int64) / 1e6)
    return times.astype(np.float64) if times.dtype.kind in "iu" else times


def _as_label(name: str, label: object, function: str) -> str | float | None:
    if not isinstance(label, str | int | float | None):
        raise refusal("observation", function, f"have text or a number for {name!r}", repr(label))
    return label


# ------------------------------------------------------------------------------------------------ saved hordes


def _saved_arguments(
    header: Mapping[str, Any], stored: Mapping[str, Stored], mu: Behaviour, rule: AnyRule | None, engine: str | None
) -> dict[str, Any]:
    """The arguments of ``Horde``; ``mu`` must be passed again if it was a function, and so must an own ``rule``."""
    saved = header["horde"]
    if rule is None:
        checkpoint.check_own_rule(header)
    behaviour = saved["mu"] if mu is None else mu
    if isinstance(behaviour, str):
        raise ValueError("its 'mu' was a function, which a file cannot hold: pass it again as mu=…")
    questions = [GVF.from_config(table) for table in saved["questions"]]
    features: Any = _saved_maker(saved, _arrays(stored, ""))
    if "groups" in saved:
        makers = [features]
        makers += [_saved_maker(group, _arrays(stored, _prefix(g))) for g, group in enumerate(saved["groups"], 1)]
        features = {questions[q].name: maker for maker, of in zip(makers, saved["of"], strict=True) for q in of}
    kind = saved["kind"] if engine is None else saved["kind"] | {"engine": engine}
    return {
        "questions": questions,
        "features": features,
        "rule": rule or saved["rule"],
        "rate": saved["rate"],
        "alpha": saved["alpha"],
        "step": saved["step"],
        "mu": behaviour,
        "scaled": saved["scaled"],
        "centred": saved["centred"],
        "stepsize": saved["stepsize"],
        **kind,
        **saved["extra"],
    }


def _saved_maker(saved: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> Features:
    of_maker = {name.removeprefix("features."): array for name, array in arrays.items() if name.startswith("features.")}
    return Features.load(saved["features"], of_maker)


def _prefix(g: int) -> str:
    """What the names of the arrays of group g begin with, from the second group on."""
    return f"group {g}."


def _join_groups(headers: Sequence[Mapping[str, Any]], tensors: Sequence[Mapping[str, TensorPart]]) -> dict[str, Any]:
    """The headers and arrays of the groups from the second on, as a file has them: one array of each name.

    With an array for each name and group, the header of a file would grow beyond what can be read for many groups.
    """
    text = zlib.compress(json.dumps(headers, allow_nan=False).encode())
    joined = {_HEADERS: TensorPart.of(np.frombuffer(text, np.uint8))}
    for name in dict.fromkeys(name for arrays in tensors for name in arrays):
        groups = [g for g, arrays in enumerate(tensors, 1) if name in arrays]
        array, shapes = TensorPart.join([tensors[g - 1][name] for g in groups])
        joined |= {f"{_JOINED}{name}": array, f"{_JOINED}{name}{_SHAPES}": shapes}
        if len(groups) < len(tensors):
            joined[f"{_JOINED}{name}{_WHICH}"] = TensorPart.of(np.array(groups, np.int64))
    return joined


def _split_groups(saved: dict[str, Any], stored: Mapping[str, Stored]) -> dict[str, Stored]:
    """All arrays of a file by name, those of each group by itself; the headers of groups are put into ``saved``."""
    if _HEADERS not in stored:
        return dict(stored)
    saved["groups"] = json.loads(zlib.decompressobj().decompress(stored[_HEADERS].array().tobytes(), _LONGEST))
    arrays = {name: array for name, array in stored.items() if not name.startswith(_JOINED) and name != _HEADERS}
    for name, array in stored.items():
        if not name.startswith(_JOINED) or name.endswith((_SHAPES, _WHICH)):
            continue
        which = stored.get(f"{name}{_WHICH}")
        groups = range(1, len(saved["groups"]) + 1) if which is None else which.array().tolist()
        for g, of_group in zip(groups, array.split(stored[f"{name}{_SHAPES}"].array()), strict=True):
            arrays[f"{_prefix(g)}{name.removeprefix(_JOINED)}"] = of_group
    return arrays


def _arrays(stored: Mapping[str, Stored], prefix: str) -> dict[str, NDArray[Any]]:
    """The arrays of a group that are not its learner's."""
    tensors = under(stored, prefix)
    return {name: tensor.array() for name, tensor in tensors.items() if name.startswith(_NOT_THE_LEARNERS)}


def _concatenated(values: Sequence[Any], Q: Sequence[int]) -> Any:
    """A parameter of all questions: a number where it is one, else one a question."""
    if all(np.ndim(value) == 0 for value in values):
        return values[0]
    return np.concatenate([np.broadcast_to(value, q) for value, q in zip(values, Q, strict=True)])
