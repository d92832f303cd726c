"""A Horde: many questions of one stream, features and a learner; rows of a log, or transitions beside an agent.

Row t's features φ_t are made when it is read; what it says of the step that ends in it (cumulant, γ) is learned; then
every question is answered from φ_t.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, overload

import numpy as np
from numpy.typing import NDArray

from emphatic import rules, stepsizes
from emphatic.errors import CheckpointError
from emphatic.features import Features
from emphatic.hordes import checkpoints
from emphatic.hordes.group import FeatureInputs, Group, Groups, Setup
from emphatic.hordes.reading import REWARD, probability, row_of
from emphatic.learning import checkpoint
from emphatic.learning.inputs import refusal
from emphatic.learning.learner import Learner
from emphatic.learning.sequences import UndiscountedWarning
from emphatic.questions.evaluator import Evaluator
from emphatic.questions.gvf import GVF, LARGEST, Observations, action_name
from emphatic.questions.quantities import Before
from emphatic.questions.ratios import Behaviour, check_behaviour
from emphatic.tables import Clock, Hold, Table, open_table

__all__ = ["RATES", "Horde", "warm_up_rows"]

Array = NDArray[np.float64]

#: α = rate / mean φ·φ. Which of them is best depends on the signal: all are learned, and blended.
RATES = (0.1, 0.3, 1.0)
#: Rows of a log that are learned from at a time.
BLOCK = 4096
#: No reading of a row is beyond ``LARGEST`` if the sum of their squares is not beyond this.
_SQUARE = LARGEST**2


def warm_up_rows(rows: int) -> int:
    """The rows that ranges, categories and means are found from: a tenth of the log, 500 to 10,000."""
    return min(rows, 10_000, max(500, rows // 10))


class Horde:
    """Many questions of one stream of named signals.

    ``questions`` are ``GVF``s, ``features`` a ``Features`` maker, or {question's name: maker} where questions have
    features of their own (those with the same maker share a learner); ``rule`` is a name of ``emphatic.rules.names()``.
    α is ``rates`` times ``alpha`` (a number, or one a question), by default 1 over the mean of φ·φ in the warm-up; with
    several rates every question has as many learners, whose answers are blended by how well they have done
    (``emphatic.hordes.blend``; questions with a policy or a γ that varies take the middle rate). ``step`` is the time
    of a step in seconds, where horizons are durations. Predictions of a constant γ are scaled by 1 − γ, into the
    cumulant's own unit, unless ``scaled`` is False.

    ``mu`` is the behaviour's probability (or density) of an action, for policies that do not give one: a function of
    (observation, action), a table or a number; where it is None actions are counted.

    With ``centred`` a question of constant γ < 1 is learned as the departure from its cumulant's mean in the warm-up,
    in the cumulant's own unit, and its emphasis starts at 1; without, θ·φ is the return itself, learned from 0.
    ``record=True`` keeps what transitions give the learner, for ``log``. ``extra`` is the rule's own: eta, beta, ….
    With a ``stepsize`` (a name or an object of ``emphatic.stepsizes``) α is ``rates`` times ``alpha`` times what that
    says; both are then 1 by default.

    >>> import numpy as np
    >>> from emphatic import GVF, features as f
    >>> horde = Horde([GVF("x", horizon=2)], f.Features([f.Bias(), f.SoftBins("x", bins=3)]), rates=0.3)
    >>> log = {"x": np.sin(np.arange(1000.0))}
    >>> horde.run(log).shape
    (1000, 1)
    >>> horde.observe({"x": 0.5}).shape
    (1,)

    Transitions, of an agent that says what it does:

    >>> horde = Horde([GVF("reward", gamma=0.9)], f.Features([f.SoftBins("x", bins=3, range=(0, 1))]), rates=0.3)
    >>> horde.prepare(["x"]).begin({"x": 0.5})
    array([0.])
    >>> horde.learn(1, 2.0, {"x": 0.6}, terminated=False).shape
    (1,)
    """

    def __init__(
        self,
        questions: Sequence[GVF],
        features: Features | Mapping[str, Features],
        rule: str = "true_online_etd",
        *,
        rates: float | Sequence[float] = RATES,
        alpha: float | Sequence[float] | None = None,
        step: float | None = None,
        mu: Behaviour = None,
        scaled: bool = True,
        centred: bool = True,
        record: bool = False,
        dtype: str = "float64",
        engine: str = "auto",
        threads: int = 1,
        stepsize: Any = None,
        **extra: Any,
    ) -> None:
        self.questions = tuple(questions) if isinstance(questions, Sequence) else ()
        if not self.questions or not all(isinstance(question, GVF) for question in self.questions):
            raise refusal("questions", "Horde", "be a list of GVFs", repr(questions))
        names = [question.name for question in self.questions]
        if len(set(names)) < len(names):
            twice = next(name for name in names if names.count(name) > 1)
            raise refusal("questions", "Horde", "have different names", f"{twice!r} twice")
        grouped = _grouped(features, names)
        self._makers, self._shares = [maker for maker, _ in grouped], [questions for _, questions in grouped]
        for what, flag in (("scaled", scaled), ("centred", centred), ("record", record)):
            if not isinstance(flag, bool):
                raise refusal(what, "Horde", "be True or False", repr(flag))
        if record and len(self._makers) > 1:
            raise refusal("record", "Horde", "be False where questions have features of their own", "True")
        self.rule, self.step, self.scaled = rule, step, scaled
        if stepsize is not None and rates is RATES:
            rates = 1.0
        listed = (rates,) if isinstance(rates, int | float) else rates if isinstance(rates, Sequence) else ()
        if not listed or not all(isinstance(rate, int | float) and 0.0 < rate < np.inf for rate in listed):
            raise refusal("rates", "Horde", "be a positive number or a list of them", repr(rates))
        self.rates = tuple(sorted(float(rate) for rate in listed))
        if step is not None and not isinstance(step, int | float):
            raise refusal("step", "Horde", "be the seconds of a step", repr(step))
        self._mu = check_behaviour(mu, "Horde")
        kind: dict[str, Any] = {"dtype": dtype, "engine": engine, "threads": threads}
        if stepsize is not None:
            kind["stepsize"] = stepsizes.get(stepsize)
        self._setup = Setup(rule, self.rates, alpha, scaled, centred, record, kind, extra)
        # Says at once where there is no such rule or engine, or the rule needs or has not such parameters.
        Learner(rule, 1, len(self.rates) * len(self.questions), **kind)
        self._setup.constants(len(self.questions), 1.0, np.zeros(len(self.questions)))
        self._group: Group | Groups | None = None

    # ------------------------------------------------------------------ what it is

    @property
    def names(self) -> tuple[str, ...]:
        """The questions' names, in the order of the predictions."""
        return tuple(question.name for question in self.questions)

    @property
    def features(self) -> Features:
        """The features that all questions share; where they have features of their own, see ``makers``."""
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
        """The mean of each cumulant in the warm-up, from which its departures are learned; 0 where it is not so."""
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
        """The signals that questions may name: those of the features, and "reward" beside an agent."""
        self._require()
        return self._evaluator.signals

    @property
    def categories(self) -> tuple[str, ...]:
        """The columns of labels."""
        self._require()
        return self._evaluator.categories

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

    # ------------------------------------------------------------------ warming up

    def warm_up(self, table: Any, rows: int | None = None) -> Horde:
        """Find ranges, categories and means from the first rows of a table, a tenth of it (500 to 10,000) by default.

        Nothing is learned yet: the next row is the first. Returns itself.
        """
        table = table if isinstance(table, Table) else open_table(table)
        if rows is None:
            rows = warm_up_rows(sum(len(part) for part in table.blocks()) if table.rows is None else table.rows)
        block = next(table.blocks(rows))
        clock = table.clock()
        step = clock.step if self.step is None and clock is not None else self.step
        evaluator = self._evaluator_of(table.names, table.categories, step)
        if evaluator.endless:
            warnings.warn(
                f"{evaluator.endless[0]!r} has γ = 1 everywhere: what it asks for has no end", UndiscountedWarning, 2
            )
        held, _ = Hold(len(table.names)).fill(block.values)
        for maker in self._makers:
            maker.warm_up(held, names=table.names, time=block.time, labels=block.labels)
        self.step = step
        self._start(evaluator, evaluator.mean(Observations(table.names, block.values, block.labels)))
        return self

    def prepare(self, names: Sequence[str], observations: Any = ()) -> Horde:
        """Be ready for transitions whose observations have these components; "reward" is one more signal.

        Ranges that the features were not given are found from ``observations`` (B, C). Features that have been warmed
        up stay as they are. No mean is known: returns are learned from 0. Returns itself.
        """
        names = tuple(names)
        if REWARD in names:
            raise refusal("names", "Horde", f"be of the observation's components, without {REWARD!r}", repr(names))
        evaluator = self._evaluator_of((*names, REWARD), (), self.step)
        rows = np.asarray(observations, np.float64).reshape(-1, len(names))
        for maker in self._makers:
            if maker._plan is None:
                maker.warm_up(rows, names=names)
            if maker.signals != names:
                wanted = f"have a signal for each component of an observation, {', '.join(names)}"
                raise refusal("features", "Horde", wanted, ", ".join(maker.signals))
        self._start(evaluator, np.zeros(len(self.questions)))
        return self

    def _evaluator_of(self, signals: Sequence[str], categories: Sequence[str], step: float | None) -> Evaluator:
        return Evaluator(self.questions, signals, categories, step, rules.get(self.rule), self._mu)

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
        self._episode: Before | None = None  # the last row of an episode that goes on
        self._timed = True  # features may need the time

    # ------------------------------------------------------------------ rows of a log

    def observe(
        self,
        observation: Mapping[str, Any] | Sequence[Any] | Array,
        *,
        action: Any = None,
        mu: Any = None,
        time: Any = None,
        learn: bool = True,
    ) -> Array:
        """Learn from the step that this row completes, and return all predictions at it, (Q,).

        ``observation`` is {name: reading} (absent, None, NaN or infinite is missing), or the readings in the order of
        the signals. ``action`` is the one taken now, and ``mu`` the probability (or density) with which the behaviour
        chose it. ``time``, in seconds or datetime64, is for features of time; gaps are for the caller to find, and
        ``cut`` at. With ``learn=False`` it only predicts: no weight changes, and the step across is no step.
        """
        self._require()
        values, labels = self._read(observation, "observe")
        values[~np.isfinite(values)] = np.nan
        if action is not None and not isinstance(action, np.ndarray):  # (an array is one of a continuous space)
            action_name(action)
        actions, when = None if action is None else [action], None if time is None else np.array([time])
        chances = probability(mu, "observe")
        predictions: Array = self._learn_rows(values, when, labels, actions, chances, np.zeros(1, bool), learn)[0]
        return predictions

    def run(self, table: Any) -> Array:
        """Learn from a whole log, warming up on its first rows if that has not been done; predictions (T, Q).

        It goes on from what was seen before; ``cut`` first, where the log is another sequence.
        """
        table = table if isinstance(table, Table) else open_table(table)
        if self._group is None:
            self.warm_up(table)
        parts = [predictions for _, predictions in self.blocks(table)]
        return np.concatenate(parts) if parts else np.empty((0, len(self.questions)))

    def blocks(self, table: Table, clock: Clock | None = None, start: int = 0) -> Iterator[tuple[Any, Array]]:
        """``run`` in blocks: each block of the table, and the predictions at its rows."""
        if (tuple(table.names), tuple(table.categories)) != (self.signals, self.categories):
            wanted = f"have the columns {', '.join((*self.signals, *self.categories))}"
            raise refusal("table", "Horde", wanted, ", ".join((*table.names, *table.categories)))
        clock = clock or table.clock()
        for block in table.blocks(BLOCK, start):
            gap = np.zeros(len(block), bool) if clock is None or block.time is None else clock.follow(block.time)
            yield block, self._learn_rows(block.values, block.time, block.labels, None, None, gap)

    def cut(self) -> None:
        """What follows is another sequence: forget traces, of features too, and learn nothing from the step across."""
        self._require().cut()
        self._before = self._episode = None

    def _learn_rows(
        self, values: Array, time: Any, labels: Mapping[str, Any], actions: Any, mu: Any, gap: NDArray[np.bool_],
        learn: bool = True,
    ) -> Array:  # fmt: skip
        """The next rows: learn, and answer. What can be refused is refused before anything is changed."""
        group, evaluator = self._require(), self._evaluator
        if self._episode is not None or self._setup.record:
            what = "It has begun an episode: go on with learn(), or cut() first."
            raise RuntimeError("A Horde that records takes transitions only." if self._setup.record else what)
        if group.phi is None and any(each.open for each in self._groups):
            self.cut()  # an episode was truncated
        hold = self._hold.copy()
        held, missing = hold.fill(values)
        raw, full = (Observations(evaluator.signals, part, labels, actions, mu) for part in (values, held))
        follows = ~gap
        follows[:1] &= group.phi is not None and learn
        departure, counts = evaluator.departure, evaluator.counts
        try:
            targets = evaluator(raw, full, self._before, follows)
            C = self._components
            readings = FeatureInputs(held[:, :C], missing[:, :C], time, labels)
            answers = group.rows(readings, targets, gap, follows, learn)
        except Exception:
            evaluator.departure, evaluator.counts = departure, counts
            raise
        self._hold = hold
        self._rows += len(values)
        if evaluator.needs_before:
            last = slice(len(raw) - 1, len(raw))
            self._before = raw.part(last), full.part(last)
        return answers

    # ------------------------------------------------------------------ transitions

    def begin(self, observation: Mapping[str, Any] | Sequence[Any] | Array, *, time: Any = None) -> Array:
        """The first observation of an episode: the predictions at it, (Q,).

        An observation is as for ``observe``, without the reward. What has not terminated is cut off here.
        """
        self._require()
        values, labels = self._read(observation, "begin", np.nan)
        return self._begin(values, labels, None, time)

    @overload
    def learn(
        self, action: Any, reward: Any, observation: Any, terminated: bool, truncated: bool = False, mu: Any = None, *,
        time: Any = None, predict: Literal[True] = True,
    ) -> Array: ...  # fmt: skip

    @overload
    def learn(
        self, action: Any, reward: Any, observation: Any, terminated: bool, truncated: bool = False, mu: Any = None, *,
        time: Any = None, predict: bool,
    ) -> Array | None: ...  # fmt: skip

    def learn(
        self,
        action: Any,
        reward: Any,
        observation: Mapping[str, Any] | Sequence[Any] | Array,
        terminated: bool,
        truncated: bool = False,
        mu: Any = None,
        *,
        time: Any = None,
        predict: bool = True,
    ) -> Array | None:
        """Learn from a transition, and return all predictions at its observation, (Q,).

        ``action`` was taken at the observation before, with probability (or density) ``mu`` if that is known. Where it
        ``terminated`` γ' is 0, and so are the predictions; where it was ``truncated`` the return goes on from the final
        observation. After either an episode must ``begin``. With ``predict=False`` nothing is returned, and the step is
        learned from together with later ones, which is quicker, and leads to the same weights.
        """
        self._require()
        for what, flag in (("terminated", terminated), ("truncated", truncated)):
            if not isinstance(flag, bool | np.bool_):
                raise refusal(what, "learn", "be True or False", repr(flag))
        values, labels = self._read(observation, "learn", reward)
        return self._learn(values, labels, None, action, terminated, truncated, mu, time, predict)

    def log(self) -> dict[str, Any]:
        """What was recorded: the arguments of ``Learner.run`` that lead to the same weights."""
        self._require().catch_up()
        return self._groups[0].recorded.log()

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
        answers = group.begin(FeatureInputs(held[:, :C], missing[:, :C], when, labels), evaluator.cumulants(raw))
        self._hold, self._before, self._episode = hold, None, (raw, full)
        self._timed = time is not None
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
            readings = FeatureInputs(held.values[:, : self._components], missing, when, labels)
            if when is None and self._timed:
                group.check(readings)  # which may be put off, and must not be refused later
            answers = group.step(readings, targets, terminated, predict or terminated or truncated)
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
        """A row (1, C) as it was read and with readings held, what its features miss, and the next ``hold``.

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

    # ------------------------------------------------------------------ keeping

    def save(self, path: str | os.PathLike[str], **more: Any) -> None:
        """Write one safetensors file with all there is to go on from.

        ``more`` is kept with it, for ``load_with``: arrays as arrays, and in the header whatever JSON can hold.
        """
        self._require()
        checkpoint.write(path, *checkpoints.state(self, more))

    @staticmethod
    def load(path: str | os.PathLike[str], *, mu: Behaviour = None) -> Horde:
        """The horde that ``save`` wrote; goes on with the same bits.

        ``mu`` must be given again if it was a function.
        """
        return Horde.load_with(path, mu=mu)[0]

    @staticmethod
    def load_with(path: str | os.PathLike[str], *, mu: Behaviour = None) -> tuple[Horde, dict[str, Any]]:
        """The same, and what more was saved with it."""
        with checkpoint.open_checkpoint(path) as (header, stored):
            if "horde" not in header:
                raise CheckpointError(f"{os.fsdecode(path)!r} holds a learner and no horde: emphatic.load opens it.")
            try:
                horde = Horde(**checkpoints.arguments(header["horde"], stored, mu))
                return horde, checkpoints.restore(horde, header, stored)
            except Exception as error:  # whatever a damaged file leads to
                raise CheckpointError(f"{os.fsdecode(path)!r} does not hold a sound horde: {error}") from error


def _grouped(features: Any, names: Sequence[str]) -> list[tuple[Features, NDArray[np.intp]]]:
    """Each maker of features, and the questions that share it."""
    if isinstance(features, Features):
        return [(features, np.arange(len(names)))]
    if not isinstance(features, Mapping) or not all(isinstance(maker, Features) for maker in features.values()):
        wanted = "be emphatic.features.Features, or {question: Features}"
        raise refusal("features", "Horde", wanted, repr(features))
    wrong = [name for name in names if name not in features] or [name for name in features if name not in names]
    if wrong:
        raise refusal("features", "Horde", "have an entry for each question, and no other", f"{wrong[0]!r}")
    makers = list({id(features[name]): features[name] for name in names}.values())
    return [(maker, np.array([q for q, name in enumerate(names) if features[name] is maker])) for maker in makers]
