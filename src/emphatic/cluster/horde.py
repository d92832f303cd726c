"""A Horde whose questions are cut into shards, each of which makes its own features from the readings."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from emphatic import engines
from emphatic.cluster.base import BLOCK, Cluster, OnCheckpoint, Predictions, numbered
from emphatic.cluster.cuts import cut, grain
from emphatic.cluster.driver import Parcel
from emphatic.cluster.joined_hordes import join_hordes
from emphatic.features import Features
from emphatic.hordes.horde import RATES, Horde, warm_up_rows
from emphatic.hordes.reading import rows_of
from emphatic.learning.inputs import refusal
from emphatic.questions.gvf import GVF
from emphatic.rules import AnyRule
from emphatic.tables import Clock, Hold, Table, open_table

__all__ = ["ClusterHorde", "SharedReadings"]

Array = NDArray[np.float64]


class SharedReadings(NamedTuple):
    """Some rows: values (B, C) with NaN where missing, times (B,) or None, labels, and rows after a gap (B,)."""

    values: Array
    time: Array | None
    labels: Mapping[str, Any]
    gap: NDArray[np.bool_]


class _WarmUp(NamedTuple):
    """The signals and categories, the rows that a Horde is warmed up on, and the seconds of a step."""

    names: tuple[str, ...]
    categories: tuple[str, ...]
    rows: SharedReadings
    step: float | None


@dataclass(frozen=True)
class _HordePart:
    """The ``ShardPart`` of some of the questions."""

    questions: Sequence[GVF]
    features: Sequence[tuple[Sequence[Mapping[str, Any]], Sequence[str]]]
    arguments: Mapping[str, Any]
    warm_up: _WarmUp | None

    def make(self) -> Horde:
        assert self.warm_up is not None
        makers = [(Features.from_config(config), names) for config, names in self.features]
        features: Any = {name: maker for maker, names in makers for name in names}
        whole = makers[0][0] if len(makers) == 1 else features
        return Horde(self.questions, whole, **self.arguments)._warm_up(*self.warm_up)

    def load(self, path: Path) -> tuple[Horde, dict[str, Any]]:
        return Horde.load_with(path, rule=_own(self.arguments["rule"]))

    def learn(self, model: Horde, shared: SharedReadings, own: Any, predict: bool) -> tuple[int, Any]:
        made = model._learn_rows(shared.values, shared.time, shared.labels, None, None, np.array(shared.gap))
        return len(made), made

    def columns(self, predictions: Array) -> dict[str, Any]:
        names = [question.name for question in self.questions]
        return dict(zip(names, np.ascontiguousarray(predictions.T), strict=True))


class ClusterHorde(Cluster):
    """Many questions of one stream of named signals, cut into shards: ``Horde`` beyond one machine.

    ``questions``, ``features`` and all that follows ``resume`` are as for ``Horde``; no function may be among them, for
    every shard is saved. Each shard is an ordinary ``Horde`` of some of the questions; it is sent readings, and makes
    its own features. What else there is, is as for ``ClusterLearner``; "auto" chooses an engine in the warm-up, for all
    questions together.

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
        **options: Any,
    ) -> None:
        if options.get("record"):
            raise refusal("record", "ClusterHorde", "be False: it takes rows of a log", "True")
        # Says at once what is wrong with any of them; it never learns.
        here = "dense" if engine.startswith("cuda") else engine
        arguments = {"rule": rule, "rates": rates, "alpha": alpha, "dtype": dtype, **options}
        self._template = template = Horde(questions, features, engine=here, **arguments)
        self.questions, self.engine = template.questions, engine
        if callable(options.get("mu")):
            raise refusal("mu", "ClusterHorde", "be a number or a table, which a file can hold", "a function")
        names = template.names
        self._features = [
            (maker.to_config(), [names[q] for q in share])
            for maker, share in zip(template.makers, template._shares, strict=True)
        ]
        arguments["rates"] = template.rates  # (which depend on the step size, if they were left out)
        self._arguments = arguments
        plain = {name: np.asarray(value).tolist() for name, value in arguments.items() if value is not None}
        plain["rule"] = template.rule
        if arguments.get("stepsize") is not None:
            plain["stepsize"] = template._setup.kind["stepsize"].config()
        configs = [question.config() for question in self.questions]
        setup = {"kind": "horde", "questions": configs, "features": self._features, **plain}
        super().__init__(setup, shards, address, storage, engine, block, ahead, checkpoint_every, threads, resume)
        self._signals: tuple[str, ...] = ()
        self._categories: tuple[str, ...] = ()
        if self._found is not None and self._found.block:
            saved = self._found.setup
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

    def warm_up(self, table: Any, rows: int | None = None) -> ClusterHorde:
        """``Horde.warm_up``, in every shard. Returns itself."""
        if self._driver is not None:
            raise RuntimeError("A ClusterHorde is warmed up once, before its first row.")
        table = table if isinstance(table, Table) else open_table(table, words=self._template._words())
        if rows is None:
            rows = warm_up_rows(sum(len(part) for part in table.blocks()) if table.rows is None else table.rows)
        block, clock = next(table.blocks(rows)), table.clock()
        step = self._template.step
        step = clock.step if step is None and clock is not None else step
        shared = SharedReadings(block.values, block.time, block.labels, np.zeros(len(block), bool))
        engine = self.engine
        self._template._evaluator_of(table.names, table.categories, step)  # are its signals there?
        if engine == "auto":
            engine = self._choose(table.names, shared)
        self._begin(engine, table.names, table.categories, step, shared)
        return self

    def run(self, table: Any, *, predictions: Predictions = "driver") -> Any:
        """``Horde.run``: learn from a whole log, warming up on its first rows if that has not been done; (T, Q).

        With predictions in the "shard" each shard keeps its own, in ``predictions-00003.parquet`` in the storage, with
        a column ``row`` and one a question; None keeps none.
        """
        table = table if isinstance(table, Table) else open_table(table, words=self._template._words())
        if self._driver is None:
            self.warm_up(table)
        parts = [made for _, made in self.blocks(table, predictions=predictions) if made is not None]
        if predictions != "driver":
            return None
        return np.concatenate(parts) if parts else np.empty((0, len(self.questions)))

    def blocks(
        self,
        table: Table,
        clock: Clock | None = None,
        start: int = 0,
        *,
        predictions: Predictions = "driver",
        on_checkpoint: OnCheckpoint | None = None,
    ) -> Iterator[tuple[Any, Any]]:
        """``run`` in blocks: each block of the table, and the predictions at its rows."""
        if (tuple(table.names), tuple(table.categories)) != (self._signals, self._categories):
            wanted = f"have the columns {', '.join((*self._signals, *self._categories))}"
            raise refusal("table", "ClusterHorde", wanted, ", ".join((*table.names, *table.categories)))
        waiting: list[Any] = []

        def read() -> Iterator[SharedReadings]:
            for block in table.blocks(self._block, start, clock):
                waiting.append(block)
                yield SharedReadings(block.values, block.time, block.labels, block.gap)

        for made in self.stream(read(), predictions=predictions, on_checkpoint=on_checkpoint):
            yield waiting.pop(0), made

    def stream(
        self,
        blocks: Iterable[Any] | Callable[[int], Iterable[Any]],
        *,
        predictions: Predictions = "driver",
        on_checkpoint: OnCheckpoint | None = None,
    ) -> Iterator[Any]:
        """Learn from blocks of rows as they come, each as for ``Horde.observe_many``; the predictions, in order.

        A block is {name: column}, readings (B, C), or ``SharedReadings`` where times and gaps are to go with them. All
        else is as for ``ClusterLearner.stream``.
        """
        parcels = (None if block is None else self._parcel(block) for block in numbered(blocks, self.position))
        for answers in self._stream(parcels, predictions, on_checkpoint):
            yield np.concatenate(answers, axis=1) if predictions == "driver" else None

    def gather(self) -> Horde:
        """All questions as one Horde, in this process, as they were saved last."""
        driver = self._running()
        if driver.manifest.block == 0:
            raise RuntimeError("Nothing has been learned yet: there is nothing to gather.")
        name = f"{driver.manifest.block:012d}-{driver.manifest.session}.safetensors"
        files = [self.storage / f"shard-{shard:05d}" / name for shard in range(self._shards)]
        which = {name: g for g, (_, names) in enumerate(self._features) for name in names}
        return join_hordes([Horde.load(path, rule=_own(self._arguments["rule"])) for path in files], which)

    def __repr__(self) -> str:
        return f"ClusterHorde({len(self.questions)} questions, engine={self.engine!r}, shards={self._shards})"

    # ------------------------------------------------------------------ inside

    def _choose(self, names: tuple[str, ...], rows: SharedReadings) -> str:
        """The engine for all questions together, from the first of their features."""
        maker = Features.from_config(self._features[0][0])
        held, _ = Hold(len(names)).fill(rows.values)
        maker.warm_up(held, names=names, time=rows.time, labels=dict(rows.labels))
        K = len(self.questions) * len(self._template.rates)
        elementwise = "stepsize" in self._template._setup.kind
        return engines.choose(maker.n, K, self._block, float(maker.active), elementwise=elementwise)

    def _begin(
        self, engine: str, signals: Sequence[str], categories: Sequence[str], step: float | None,
        rows: SharedReadings | None,
    ) -> None:  # fmt: skip
        self.engine, self._signals, self._categories = engine, tuple(signals), tuple(categories)
        template, Q = self._template, len(self.questions)
        # The grain of the chunked engine does not depend on n, and dense learners do not touch each other.
        steps, learners = grain(template._setup.rule, 32, template._setup.kind["dtype"], engine)
        try:
            cuts = cut(Q, self._shards, self._block, (steps, learners))
        except ValueError:
            self.close()
            raise
        self._parts = list(cuts)
        self._exact = cuts.exact and (self._shards == 1 or Q % learners == 0 or len(template.rates) == 1)
        warm = None if rows is None else _WarmUp(self._signals, self._categories, rows, step)
        parts = []
        for part in cuts:
            own = self.questions[part]
            names = {question.name for question in own}
            features = [(config, [name for name in of if name in names]) for config, of in self._features]
            chosen = np.arange(part.start, part.stop)
            setup = template._setup.of(chosen, Q)
            method = {"stepsize": setup.kind["stepsize"]} if "stepsize" in setup.kind else {}
            arguments = {
                **self._arguments,
                **setup.extra,
                **method,
                "alpha": setup.alpha,
                "engine": engine,
                "threads": self._threads,
            }
            parts.append(_HordePart(own, [(config, of) for config, of in features if of], arguments, warm))
        names_ = {"signals": self._signals, "categories": self._categories, "step": step, "engine": engine}
        self._launch(parts, {**names_, "cuts": [part.start for part in cuts]})

    def _parcel(self, block: Any) -> Parcel:
        if not isinstance(block, SharedReadings):
            values, labels = rows_of(block, self._signals, self._categories)
            block = SharedReadings(values, None, labels, np.zeros(len(values), bool))
        nbytes = block.values.nbytes + sum(8 * len(column) for column in block.labels.values())
        return Parcel(len(block.values), block, [None] * self._shards, nbytes)


def _own(rule: str | AnyRule) -> AnyRule | None:
    """A rule of one's own, which a file does not hold."""
    return None if isinstance(rule, str) else rule
