"""A Horde whose questions are cut into shards, each of which makes its own features from the readings."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, Self, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray

from emphatic import engines
from emphatic.cluster.driver import Manifest, Parcel
from emphatic.cluster.learner import (
    BLOCK,
    IN_PROCESS,
    Cluster,
    ClusterLearner,
    OnCheckpoint,
    Predictions,
    cut,
    grain,
    numbered,
)
from emphatic.features import Features
from emphatic.hordes.horde import RATES, BlockLearner, Horde
from emphatic.learning.inputs import refusal
from emphatic.questions.gvf import GVF
from emphatic.rules import AnyRule, Rule
from emphatic.tables import Block, Clock, Hold, ReadingGuard, Table

__all__ = ["ClusterHorde", "local"]

Array = NDArray[np.float64]
Storage = str | os.PathLike[str] | None
#: Rows of a block in this process, where nothing is sent: fewer calls, at multiples of the same grain.
_BLOCK_HERE = 4 * BLOCK


class _WarmUp(NamedTuple):
    """The signals and categories, the rows that a Horde is warmed up on, and the seconds of a step."""

    names: tuple[str, ...]
    categories: tuple[str, ...]
    block: Block
    step: float | None


class _Answers(NamedTuple):
    """The predictions at the rows of a block, and the single answers that they were blended from."""

    blended: Array
    single: Mapping[str, Array]


@dataclass(frozen=True)
class _HordePart:
    """The ``ShardPart`` of some of the questions. Their single answers go with the predictions, if they are wanted."""

    questions: Sequence[GVF]
    features: Sequence[tuple[Sequence[Mapping[str, Any]], Sequence[str]]]
    arguments: Mapping[str, Any]
    answers: bool = False

    def make(self, warm_up: _WarmUp) -> Horde:
        makers = [(Features.from_config(config), names) for config, names in self.features]
        features = {name: maker for maker, names in makers for name in names}
        shared = makers[0][0] if len(makers) == 1 else features
        return Horde(self.questions, shared, **self.arguments).warm_up_on(*warm_up)

    def load(self, path: Path) -> tuple[Horde, dict[str, Any]]:
        return Horde.load_with(path, rule=_rule_to_pass(self.arguments["rule"]))

    def learn(self, model: Horde, block: Block, own: None, predict: bool) -> tuple[int, _Answers]:
        return len(block), _Answers(model.advance(block), model.answers if self.answers else {})

    def columns(self, predictions: _Answers) -> dict[str, Any]:
        names = [question.name for question in self.questions]
        return dict(zip(names, np.ascontiguousarray(predictions.blended.T), strict=True))


class ClusterHorde(Cluster, BlockLearner):
    """Many questions about one stream of named signals, divided into shards: ``Horde`` on several machines.

    Questions and options must not contain functions, because every shard is saved. Each shard is an ordinary ``Horde``
    with some of the questions. It receives readings, and computes its own features.

    Args:
        questions: As for ``Horde``.
        features: As for ``Horde``.
        rule: As for ``Horde``.
        shards: As for ``ClusterLearner``.
        address: As for ``ClusterLearner``.
        storage: As for ``ClusterLearner``.
        engine: As for ``Horde``; "auto" chooses in the warm-up, for all questions together.
        threads: As for ``ClusterLearner``.
        block: The rows of a block.
        ahead: As for ``ClusterLearner``.
        checkpoint_every: As for ``ClusterLearner``.
        resume: As for ``ClusterLearner``.
        rates: As for ``Horde``.
        alpha: As for ``Horde``.
        dtype: As for ``Horde``.
        send_answers: With ``least_squares``, whether shards also send the candidate predictions, for ``answers``: about
            ten times as much data as the predictions.
        options: Further arguments of ``Horde``.

    >>> import numpy as np
    >>> from emphatic import GVF, features as f
    >>> from emphatic.cluster import local
    >>> questions = [GVF("x", horizon=h) for h in (2, 4, 8)]
    >>> features = f.Features([f.Bias(), f.SoftBins("x", bins=3)])
    >>> with local(questions, features, shards=3, engine="dense") as horde:
    ...     horde.run({"x": np.sin(np.arange(2000.0))}).shape
    (2000, 3)
    """

    def __init__(
        self,
        questions: Sequence[GVF],
        features: Features | Mapping[str, Features],
        rule: str | AnyRule = "true_online_etd",
        *,
        shards: int | None = None,
        address: str | None = None,
        storage: str | os.PathLike[str] | None = None,
        engine: str = "auto",
        threads: int | None = None,
        block: int = BLOCK,
        ahead: int = 4,
        checkpoint_every: str | float = "30s",
        resume: bool | None = None,
        rates: float | Sequence[float] = RATES,
        alpha: float | Sequence[float] | None = None,
        dtype: str = "float64",
        send_answers: bool = False,
        **options: Any,
    ) -> None:
        if options.get("ask"):
            raise refusal("ask", "ClusterHorde", "be left out: use emphatic.nexting or a Horde", "questions")
        self._send_answers = send_answers
        #: The single answers, as ``Horde.answers`` has them, at the block whose predictions came last.
        self.answers: Mapping[str, Array] = {}
        if options.get("record"):
            raise refusal("record", "ClusterHorde", "be False: it takes rows of a log", "True")
        # Says at once what is wrong with any of them; it never learns.
        here = "dense" if engine.startswith("cuda") else engine
        arguments = {"rule": rule, "rates": rates, "alpha": alpha, "dtype": dtype, **options}
        self._template = template = Horde(questions, features, engine=here, **arguments)
        self.questions, self.engine, self.step = template.questions, engine, template.step
        if callable(options.get("mu")):
            raise refusal("mu", "ClusterHorde", "be a number or a table, which a file can hold", "a function")
        names = template.names
        self._features = [
            (maker.to_config(), [names[q] for q in share])
            for maker, share in zip(template.makers, template.shares, strict=True)
        ]
        arguments["rates"] = template.rates  # (which depend on the step size, if they were left out)
        self._arguments = arguments
        plain = {name: np.asarray(value).tolist() for name, value in arguments.items() if value is not None}
        plain["rule"] = template.rule
        if arguments.get("stepsize") is not None:
            plain["stepsize"] = template.setup.kind["stepsize"].config()
        configs = [question.config() for question in self.questions]
        setup = {"kind": "horde", "questions": configs, "features": self._features, **plain}
        super().__init__(setup, shards, address, storage, engine, block, ahead, checkpoint_every, threads, resume)
        self.block_rows = self._block
        self._signals: tuple[str, ...] = ()
        self._categories: tuple[str, ...] = ()
        if self._manifest is not None and self._manifest.block:
            saved = self._manifest.setup
            engine = saved.get("engine", engine) if engine == "auto" else engine
            self._begin(engine, saved.get("signals", ()), saved.get("categories", ()), saved.get("step"), None)

    @property
    def names(self) -> tuple[str, ...]:
        """The questions' names, in the order of the predictions."""
        return self._template.names

    @property
    def is_warm(self) -> bool:
        """Whether it has been warmed up, now or before it was resumed."""
        return self._driver is not None

    @property
    def signals(self) -> tuple[str, ...]:
        """The signals that questions may name; none before the warm-up."""
        return self._signals

    @property
    def categories(self) -> tuple[str, ...]:
        """The columns of labels; none before the warm-up."""
        return self._categories

    @property
    def words(self) -> set[str]:
        """The columns that are read as words: ON and OFF stay words there."""
        return self._template.words

    def warm_up(self, table: object, rows: int | None = None, guard: ReadingGuard | None = None) -> Self:
        """``Horde.warm_up``, in every shard. Returns itself.

        Args:
            table: As for ``Horde.warm_up``.
            rows: As for ``Horde.warm_up``.
            guard: As for ``Horde.warm_up``.
        """
        if self._driver is not None:
            raise RuntimeError("A ClusterHorde can be warmed up only once, before its first row.")
        return super().warm_up(table, rows, guard)

    def warm_up_on(self, names: Sequence[str], categories: Sequence[str], block: Block, step: float | None) -> Self:
        """``Horde.warm_up_on``, in every shard.

        Args:
            names: As for ``Horde.warm_up_on``.
            categories: As for ``Horde.warm_up_on``.
            block: As for ``Horde.warm_up_on``.
            step: As for ``Horde.warm_up_on``.
        """
        self._template.evaluator(names, categories, step)  # are its signals there?
        engine = self._choose(tuple(names), block) if self.engine == "auto" else self.engine
        self._begin(engine, names, categories, step, _for_shards(block))
        return self

    def run(self, table: object, *, first: ArrayLike | None = None, predictions: Predictions = "driver") -> Any:
        """``Horde.run``: learn from a whole log, warming up on its first rows if that has not been done; (T, Q).

        Args:
            table: As for ``Horde.run``.
            first: As for ``Horde.run``.
            predictions: With "shard", each shard writes its own predictions to ``predictions-00003.parquet`` in the
                storage, with a column ``row`` and one per question. None disables predictions.
        """
        answers = self._run(table, partial(self.stream, predictions=predictions), first)
        return answers if predictions == "driver" else None

    def blocks(
        self,
        table: Table,
        clock: Clock | None = None,
        start: int = 0,
        *,
        predictions: Predictions = "driver",
        on_checkpoint: OnCheckpoint | None = None,
    ) -> Iterator[tuple[Any, Any]]:
        """``run`` in blocks: each block of the table, and the predictions at its rows.

        Args:
            table: As for ``Horde.blocks``.
            clock: As for ``Horde.blocks``.
            start: As for ``Horde.blocks``.
            predictions: As for ``run``.
            on_checkpoint: As for ``ClusterLearner.stream``.
        """
        stream = partial(self.stream, predictions=predictions, on_checkpoint=on_checkpoint)
        return self._blocks(table, clock, start, stream)

    def stream(
        self,
        blocks: Iterable[Any] | Callable[[int], Iterable[Any]],
        *,
        predictions: Predictions = "driver",
        on_checkpoint: OnCheckpoint | None = None,
    ) -> Iterator[Any]:
        """Learn from blocks of rows as they arrive, as ``Horde.stream`` does; yields the predictions, in order.

        Args:
            blocks: Blocks, or rows as ``Horde.observe_many`` takes them; or a function of the first row's number that
                gives them, for a run that may be resumed. None among them is a ``cut``.
            predictions: As for ``run``.
            on_checkpoint: As for ``ClusterLearner.stream``.
        """
        parcels = (None if block is None else self._parcel(block) for block in numbered(blocks, self.position))
        for shards in self._stream(parcels, predictions, on_checkpoint):
            if predictions != "driver":
                yield None
                continue
            blended = np.concatenate([shard.blended for shard in shards], axis=1)
            self.answers = self._join_answers(shards, len(blended))
            yield blended

    def gather(self) -> Horde:
        """All questions as one Horde, in this process, as they were saved last."""
        driver = self._running()
        if driver.manifest.block == 0:
            raise RuntimeError("Nothing has been learned yet, so there is nothing to gather.")
        name = f"{driver.manifest.block:012d}-{driver.manifest.session}.safetensors"
        files = [self.storage / f"shard-{shard:05d}" / name for shard in range(self._shards)]
        makers_of = {name: g for g, (_, names) in enumerate(self._features) for name in names}
        return Horde.join([Horde.load(path, rule=_rule_to_pass(self._arguments["rule"])) for path in files], makers_of)

    def __repr__(self) -> str:
        return f"ClusterHorde({len(self.questions)} questions, engine={self.engine!r}, shards={self._shards})"

    # ------------------------------------------------------------------ inside

    def _choose(self, names: tuple[str, ...], block: Block) -> str:
        """The engine for all questions together, from the first of their features."""
        maker = Features.from_config(self._features[0][0])
        values, _ = Hold(len(names)).fill(block.to_learn)
        maker.warm_up(values, names=names, time=block.time, labels=dict(block.labels))
        K = len(self.questions) * len(self._template.rates)
        setup = self._template.setup
        rule = setup.kind["stepsize"].rule(setup.rule) if "stepsize" in setup.kind else setup.rule
        return engines.choose(maker.n, K, self._block, float(maker.active), rule)

    def _begin(
        self,
        engine: str,
        signals: Sequence[str],
        categories: Sequence[str],
        step: float | None,
        block: Block | None,
    ) -> None:
        """Start the shards: warmed up on a block, or from what was saved."""
        self.engine, self._signals, self._categories = engine, tuple(signals), tuple(categories)
        template, Q = self._template, len(self.questions)
        # The grain of the chunked engine does not depend on n, and dense learners do not touch each other.
        steps, learners = grain(template.setup.rule, 32, template.setup.kind["dtype"], engine)
        try:
            cuts = cut(Q, self._shards, self._block, (steps, learners))
        except ValueError:
            self.close()
            raise
        self._cuts = list(cuts)
        self._exact = cuts.exact and (self._shards == 1 or Q % learners == 0 or len(template.rates) == 1)
        warm_up = None if block is None else _WarmUp(self._signals, self._categories, block, step)
        shards = []
        for share in cuts:
            questions = self.questions[share]
            names = {question.name for question in questions}
            features = [(config, [name for name in of if name in names]) for config, of in self._features]
            setup = template.setup.of(np.arange(share.start, share.stop), Q)
            method = {"stepsize": setup.kind["stepsize"]} if "stepsize" in setup.kind else {}
            arguments = {
                **self._arguments,
                **setup.extra,
                **method,
                "alpha": setup.alpha,
                "engine": engine,
                "threads": self._threads,
            }
            makers = [(config, of) for config, of in features if of]
            shards.append(_HordePart(questions, makers, arguments, self._send_answers))
        described = {"signals": self._signals, "categories": self._categories, "step": step, "engine": engine}
        self._launch(shards, {**described, "cuts": [share.start for share in cuts]}, warm_up)

    def _join_answers(self, shards: Sequence[_Answers], rows: int) -> dict[str, Array]:
        """The single answers of all questions, NaN where a question has none of that name."""
        answers: dict[str, Array] = {}
        for share, shard in zip(self._cuts, shards, strict=True):
            for name, values in shard.single.items():
                answers.setdefault(name, np.full((rows, len(self.questions)), np.nan))[:, share] = values
        return answers

    def _parcel(self, rows: Block | Mapping[str, Any] | Array) -> Parcel:
        block = _for_shards(self.as_block(rows))
        nbytes = block.values.nbytes + sum(8 * len(column) for column in block.labels.values())
        return Parcel(len(block), block, [None] * self._shards, nbytes)


def _for_shards(block: Block) -> Block:
    """What a shard is sent of a block: the readings to learn from, which of them were pulled in, and nothing that
    only a table's reader needs."""
    verdicts = None if block.pulled_in is None else block.verdicts
    return Block(block.row, block.to_learn, block.time, block.labels, gap=block.gap, verdicts=verdicts)


def _rule_to_pass(rule: str | AnyRule) -> AnyRule | None:
    """A rule of one's own, which a file does not hold."""
    return None if isinstance(rule, str) else rule


@overload
def local(
    what: str | Rule, *arguments: Any, shards: int, storage: Storage = None, **options: Any
) -> ClusterLearner: ...
@overload
def local(what: Any, *arguments: Any, shards: int, storage: Storage = None, **options: Any) -> ClusterHorde: ...
def local(
    what: Any, *arguments: Any, shards: int, storage: Storage = None, **options: Any
) -> ClusterLearner | ClusterHorde:
    """A ``ClusterLearner`` (for a rule) or ``ClusterHorde`` (for questions) with all shards in this process.

    Results are bit-for-bit identical to those of the same shards on Ray, even after failures there.

    Args:
        what: A rule, or questions.
        arguments: Further arguments of ``ClusterLearner`` or ``ClusterHorde``.
        shards: The number of shards.
        storage: A folder; a temporary one by default.
        options: Further keywords, except ``address``. Blocks have 4,064 rows by default.

    >>> with local("true_online_etd", 3, 1024, shards=4, engine="chunked") as learner:
    ...     print(learner)
    ClusterLearner('true_online_etd', n=3, K=1024, dtype='float64', engine='chunked', shards=4)
    """
    kind: Any = ClusterLearner if isinstance(what, str | Rule) else ClusterHorde
    if storage is None or Manifest.read(Path(storage)) is None:  # (a run that goes on has blocks of its own)
        options = {"block": _BLOCK_HERE} | options
    cluster: ClusterLearner | ClusterHorde = kind(
        what, *arguments, shards=shards, address=IN_PROCESS, storage=storage, **options
    )
    return cluster
