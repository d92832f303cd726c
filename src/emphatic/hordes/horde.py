"""A Horde: many questions about one stream, with features and learners; from rows of a log or transitions of an agent.

When row t is read its features φ_t are computed; the step that ends in it (cumulant, γ) is learned from; then every
question is answered from φ_t.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from typing import Any, Literal, overload
from weakref import WeakSet

import numpy as np
from numpy.typing import NDArray

from emphatic import engines, stepsizes
from emphatic.common.guard import Guard
from emphatic.errors import CheckpointError
from emphatic.features import Features, OneHot
from emphatic.hordes import checkpoints
from emphatic.hordes.horde_steps import HordeSteps
from emphatic.hordes.reading import REWARD, probability, rows_of
from emphatic.hordes.setup import Setup
from emphatic.learning import checkpoint
from emphatic.learning.inputs import refusal
from emphatic.learning.learner import Learner
from emphatic.learning.returns import UndiscountedWarning
from emphatic.questions.gvf import GVF, Observations, action_name
from emphatic.questions.ratios import Behaviour, check_behaviour
from emphatic.rules import AnyRule
from emphatic.tables import Clock, Hold, Table, open_table

__all__ = ["RATES", "Horde", "warm_up_rows"]

Array = NDArray[np.float64]

#: α = rate / mean φ·φ. Which of them is best depends on the signal: all are learned, and blended.
RATES = (0.1, 0.3, 1.0)
#: The feature makers that belong to a Horde.
_TAKEN: WeakSet[Features] = WeakSet()
#: Rows of a log that are processed at a time.
BLOCK = 4096


def warm_up_rows(rows: int) -> int:
    """The number of warm-up rows, for ranges, categories and means: a tenth of the log, 500 to 10,000."""
    return min(rows, 10_000, max(500, rows // 10))


class Horde(HordeSteps):
    """Many questions about one stream of named signals.

    ``questions`` are ``GVF``s, ``features`` a ``Features`` maker, or {question's name: maker} where questions have
    features of their own (those with the same maker share a learner). A maker that another Horde uses is copied, as it
    was after its warm-up, because its state belongs to one stream. ``rule`` is a name from ``emphatic.rules.names()``
    or a rule of your own; for one that uses π or μ itself, such as tree_backup, every question must have a policy.
    α is ``rates`` times ``alpha`` (a number, or one per question), by default 1 over the mean of φ·φ in the warm-up.
    With several rates every question has a learner for each, whose answers are blended by their accuracy so far
    (``emphatic.hordes.blend``; questions with a policy or a varying γ use the middle rate). ``step`` is the length of a
    step in seconds, needed where horizons are durations. Predictions of a constant γ are scaled by 1 − γ, into the
    cumulant's own unit, unless ``scaled`` is False.

    ``mu`` is the behaviour's probability (or density) of an action, for policies that do not give one: a function of
    (observation, action), a table or a number; where it is None actions are counted.

    With ``centred`` a question of constant γ < 1 is learned as the deviation from its cumulant's mean in the warm-up,
    in the cumulant's own unit, and its emphasis starts at 1; without, θ·φ is the return itself, learned from 0.
    ``record=True`` records the learner's input in transitions, for ``log``. ``extra`` are the rule's own parameters:
    eta, beta, …. With a ``stepsize`` (a name or an object of ``emphatic.stepsizes``) α is ``rates`` times ``alpha``
    times the method's step size; both are then 1 by default.

    With ``least_squares`` the answers of three online ridge regressions stand beside those of the learners, where there
    are at most 4,000 features (``emphatic.hordes.ridges``), and all are combined (``emphatic.hordes.combination``); it
    is for rows of a log. ``answers`` has the single ones.

    >>> import numpy as np
    >>> from emphatic import GVF, features as f
    >>> horde = Horde([GVF("x", horizon=2)], f.Features([f.Bias(), f.SoftBins("x", bins=3)]), rates=0.3)
    >>> log = {"x": np.sin(np.arange(1000.0))}
    >>> horde.run(log).shape
    (1000, 1)
    >>> horde.observe({"x": 0.5}).shape
    (1,)

    Transitions of an agent:

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
        rule: str | AnyRule = "true_online_etd",
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
        least_squares: bool = False,
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
        for what, flag in (
            ("scaled", scaled), ("centred", centred), ("record", record), ("least_squares", least_squares)
        ):  # fmt: skip
            if not isinstance(flag, bool):
                raise refusal(what, "Horde", "be True or False", repr(flag))
        if record and len(self._makers) > 1:
            raise refusal("record", "Horde", "be False where questions have features of their own", "True")
        if record and least_squares:
            raise refusal("least_squares", "Horde", "be False where transitions are recorded", "True")
        self.step, self.scaled = step, scaled
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
        # Reports an unknown rule, engine or parameter, or a missing one, at once.
        if stepsize is not None:
            kind["stepsize"] = stepsizes.get(stepsize)
        found = Learner(rule, 1, len(self.rates) * len(self.questions), **kind).rule.base
        self.rule = found.name
        self._setup = Setup(found, self.rates, alpha, scaled, centred, record, kind, extra, least_squares)
        without = [question.name for question in self.questions if question.policy is None]
        if self._setup.chances and without:
            wanted = f"be given for rule {found.name!r}, which uses {' and '.join(self._setup.chances)} itself"
            raise refusal("policy", "GVF", wanted, f"none in {without[0]!r}")
        self._setup.constants(len(self.questions), 1.0, np.zeros(len(self.questions)))
        self._group, self._guard = None, Guard("horde")
        self._makers = [_own(maker) for maker in self._makers]

    # ------------------------------------------------------------------ warming up

    def warm_up(self, table: Any, rows: int | None = None) -> Horde:
        """Find ranges, categories and means from the first rows of a table, a tenth of it (500 to 10,000) by default.

        Nothing is learned yet: the next row is the first. Returns self.
        """
        table = table if isinstance(table, Table) else open_table(table, words=self._words())
        if rows is None:
            rows = warm_up_rows(sum(len(part) for part in table.blocks()) if table.rows is None else table.rows)
        clock = table.clock()
        step = clock.step if self.step is None and clock is not None else self.step
        return self._warm_up(table.names, table.categories, next(table.blocks(rows)), step)

    def _warm_up(self, names: tuple[str, ...], categories: tuple[str, ...], block: Any, step: float | None) -> Horde:
        """``warm_up`` on the rows of a block, or of anything that has its values, time and labels."""
        evaluator = self._evaluator_of(names, categories, step)
        if evaluator.endless:
            warnings.warn(
                f"{evaluator.endless[0]!r} has γ = 1 everywhere: its return is an infinite sum", UndiscountedWarning, 3
            )
        held, _ = Hold(len(names)).fill(block.values)
        for maker in self._makers:
            maker.warm_up(held, names=names, time=block.time, labels=block.labels)
        self.step = step
        self._start(evaluator, evaluator.mean(Observations(names, block.values, block.labels)))
        return self

    def prepare(self, names: Sequence[str], observations: Any = ()) -> Horde:
        """Prepare for transitions whose observations have these components; "reward" is one more signal.

        Ranges that the features were not given are found from ``observations`` (B, C). Features that have been warmed
        up stay unchanged. No mean is known: returns are learned from 0. Returns self.
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
        the signals. ``action`` is the one chosen now, and ``mu`` the probability (or density) with which the behaviour
        chose it. ``time``, in seconds or datetime64, is for features of time; the caller must detect gaps and ``cut``
        there. With ``learn=False`` it only predicts: no weight changes, and nothing is learned across that row.
        """
        self._require()
        if not isinstance(learn, bool | np.bool_):
            raise refusal("learn", "observe", "be True or False", repr(learn))
        values, labels = self._read(observation, "observe")
        values[~np.isfinite(values)] = np.nan
        if action is not None and not isinstance(action, np.ndarray):  # (an array is one of a continuous space)
            action_name(action)
        actions, when = None if action is None else [action], None if time is None else np.array([time])
        chances = probability(mu, "observe")
        with self._guard:
            answers = self._learn_rows(values, when, labels, actions, chances, np.zeros(1, bool), learn)
        predictions: Array = answers[0]
        return predictions

    def observe_many(
        self,
        observations: Mapping[str, Any] | Array,
        *,
        actions: Any = None,
        mu: Any = None,
        time: Any = None,
        gap: Any = None,
        learn: bool = True,
    ) -> Array:
        """``observe`` of many rows at once, which is quicker; predictions (B, Q).

        ``observations`` are {name: column}, or the readings (B, C) in the order of the signals; ``actions``, ``mu`` and
        ``time`` have one entry a row. ``gap`` says which rows do not follow on the row before, (B,).

        >>> import numpy as np
        >>> from emphatic import GVF, features as f
        >>> horde = Horde([GVF("x", horizon=2)], f.Features([f.Bias(), f.SoftBins("x", bins=3)]), rates=0.3)
        >>> horde.warm_up({"x": np.sin(np.arange(1000.0))}).observe_many({"x": [0.1, 0.2, 0.3]}).shape
        (3, 1)
        """
        self._require()
        values, labels = rows_of(observations, self.signals, self.categories)
        B = len(values)
        given = {"actions": actions, "mu": mu, "time": time, "gap": gap}
        for name, each in given.items():
            if each is not None and len(each) != B:
                raise refusal(name, "observe_many", f"have one entry a row, {B}", str(len(each)))
        if not B:
            return np.empty((0, len(self.questions)))
        if actions is not None:
            for action in actions:
                if action is not None and not isinstance(action, np.ndarray):
                    action_name(action)
        chances = None if mu is None else [each for one in mu for each in probability(one, "observe_many") or [np.nan]]
        when, after = None if time is None else np.asarray(time), np.zeros(B, bool)
        if gap is not None:
            after |= np.asarray(gap, bool)
        with self._guard:
            return self._learn_rows(values, when, labels, actions, chances, after, learn)

    def _words(self) -> set[str]:
        """The columns that are read as words: ON and OFF stay words there."""
        policies = [question.policy.column for question in self.questions if question.policy is not None]
        one_hot = [part.of for maker in self.makers for part in maker.parts if isinstance(part, OneHot)]
        known = () if self._group is None else self.categories
        return {*known, *one_hot, *(column for column in policies if column is not None)}

    def run(self, table: Any) -> Array:
        """Learn from a whole log and return the predictions, (T, Q); warms up on its first rows if not warmed up yet.

        It continues from what was seen before; call ``cut`` first if the log is a new sequence.
        """
        table = table if isinstance(table, Table) else open_table(table, words=self._words())
        if self._group is None:
            self.warm_up(table)
        parts = [predictions for _, predictions in self.blocks(table)]
        return np.concatenate(parts) if parts else np.empty((0, len(self.questions)))

    def blocks(self, table: Table, clock: Clock | None = None, start: int = 0) -> Iterator[tuple[Any, Array]]:
        """``run`` in blocks: each block of the table, and the predictions at its rows."""
        if (tuple(table.names), tuple(table.categories)) != (self.signals, self.categories):
            wanted = f"have the columns {', '.join((*self.signals, *self.categories))}"
            raise refusal("table", "Horde", wanted, ", ".join((*table.names, *table.categories)))
        for block in table.blocks(BLOCK, start, clock):
            with self._guard:
                answers = self._learn_rows(block.values, block.time, block.labels, None, None, block.gap)
            yield block, answers

    # ------------------------------------------------------------------ transitions

    def begin(self, observation: Mapping[str, Any] | Sequence[Any] | Array, *, time: Any = None) -> Array:
        """Begin an episode with its first observation; returns the predictions at it, (Q,).

        An observation is as for ``observe``, without the reward. An episode that has not terminated is cut off here.
        """
        self._require()
        if self._setup.least_squares:
            raise RuntimeError("A Horde with least_squares=True accepts rows of a log only.")
        values, labels = self._read(observation, "begin", np.nan)
        with self._guard:
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

        ``action`` was chosen at the observation before, with probability (or density) ``mu`` if that is known. If the
        episode ``terminated``, γ' and the predictions are 0; if it was ``truncated``, the return bootstraps from the
        final observation. After either, call ``begin``. With ``predict=False`` nothing is returned, and the step is
        learned from together with later ones, which is faster and leads to the same weights.
        """
        self._require()
        for what, flag in (("terminated", terminated), ("truncated", truncated)):
            if not isinstance(flag, bool | np.bool_):
                raise refusal(what, "learn", "be True or False", repr(flag))
        values, labels = self._read(observation, "learn", reward)
        with self._guard:
            return self._learn(values, labels, None, action, terminated, truncated, mu, time, predict)

    def log(self) -> dict[str, Any]:
        """The recorded input: arguments of ``Learner.run`` that lead to the same weights."""
        with self._guard:
            self._require().catch_up()
            return self._groups[0].recorded.log()

    # ------------------------------------------------------------------ loading

    @staticmethod
    def load(
        path: str | os.PathLike[str], *, engine: str | None = None, mu: Behaviour = None, rule: AnyRule | None = None
    ) -> Horde:
        """The horde that ``save`` wrote; goes on with the same bits.

        ``engine`` replaces the one in the file; with another engine it goes on to rounding. ``mu`` must be passed
        again if it was a function, and so must a ``rule`` of your own.
        """
        return Horde.load_with(path, engine=engine, mu=mu, rule=rule)[0]

    @staticmethod
    def load_with(
        path: str | os.PathLike[str], *, engine: str | None = None, mu: Behaviour = None, rule: AnyRule | None = None
    ) -> tuple[Horde, dict[str, Any]]:
        """The same, and the ``more`` that was saved with it."""
        checkpoint.check_engine(engine)
        with checkpoint.open_checkpoint(path) as (header, stored):
            if "horde" not in header:
                raise CheckpointError(f"{os.fsdecode(path)!r} holds a single Learner, not a Horde: use emphatic.load.")
            name = engine or str(header.get("engine"))
            if lacking := engines.missing(name):
                raise checkpoint.lacking_engine(engine, name, lacking)  # the file is not at fault
            try:
                horde = Horde(**checkpoints.arguments(header, stored, mu, rule, engine))
                return horde, checkpoints.restore(horde, header, stored, engine)
            except Exception as error:  # whatever a damaged file causes
                raise CheckpointError(f"{os.fsdecode(path)!r} is not a sound Horde checkpoint: {error}") from error


def _own(maker: Features) -> Features:
    """The maker, or a copy if another Horde already uses it: its traces and ranges belong to one stream."""
    if maker in _TAKEN:
        maker = deepcopy(maker)
        if maker._plan is not None:
            maker.restart()
    _TAKEN.add(maker)
    return maker


def _grouped(features: Any, names: Sequence[str]) -> list[tuple[Features, NDArray[np.intp]]]:
    """Each feature maker, and the questions that share it."""
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
