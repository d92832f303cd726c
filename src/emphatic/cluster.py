"""A Horde whose questions are divided into shards on a Ray cluster: ``pip install 'emphatic[ray]'``.

A shard is an ordinary ``Horde`` with some of the questions, in a Ray actor. All shards take the same numbered steps:
the warm-up, then the blocks of a stream. Now and then all save a checkpoint at the same step. The manifest names the
newest one, and the driver keeps the steps that follow it. A shard that Ray has restarted loads the checkpoint and
takes these steps again, so it learns the same bits. A new driver continues from the manifest.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import secrets
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple, Self, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from emphatic import engines
from emphatic.common.files import atomic_file
from emphatic.common.locks import hold_lock
from emphatic.errors import CheckpointError
from emphatic.features import Features
from emphatic.hordes.horde import Horde, as_block, read_blocks, read_first_rows
from emphatic.learning.inputs import mask, refusal, whole
from emphatic.nexting.machines import MachineTask, run_machines
from emphatic.nexting.runner import Nexting, NextingResult, check_free, silent
from emphatic.nexting.settings import Settings
from emphatic.questions import durations
from emphatic.questions.gvf import GVF
from emphatic.rules import AnyRule
from emphatic.tables import Block, Hold, Table, open_table

__all__ = ["IN_PROCESS", "ClusterHorde", "joblib_on_ray", "local", "run_by_machine"]

Array = NDArray[np.float64]
Rows = Block | Mapping[str, Any] | Array | None
Item = TypeVar("Item")

_log = logging.getLogger(__name__)

#: The address of shards in this process, without Ray.
IN_PROCESS = "in-process"
#: Rows of a block that is sent to the shards.
BLOCK = 1016
#: Bytes of blocks since the last checkpoint after which the next one is due.
_MOST_KEPT = 1 << 28
_FORMAT = 1


# ---------------------------------------------------------------------- a shard


class _WarmUp(NamedTuple):
    """The signals and categories, the rows from which ranges and means are found, and the seconds of a step."""

    names: tuple[str, ...]
    categories: tuple[str, ...]
    block: Block
    step: float | None


class _Plan(NamedTuple):
    """The questions of a shard, its feature makers with the questions of each, and the other arguments of its Horde."""

    questions: Sequence[GVF]
    makers: Sequence[tuple[Sequence[Mapping[str, Any]], Sequence[str]]]
    arguments: Mapping[str, Any]

    def begin(self, warm_up: _WarmUp) -> Horde:
        """The Horde before the first row."""
        features: dict[str, Features] = {}
        for config, names in self.makers:
            features |= dict.fromkeys(names, Features.from_config(config))
        shared = next(iter(features.values())) if len(self.makers) == 1 else features
        return Horde(self.questions, shared, **self.arguments).warm_up_on(*warm_up)


class _Checkpoint(NamedTuple):
    """The number of the step before which all shards were saved, and the folder with their files."""

    step: int
    folder: str

    def file(self, shard: int) -> Path:
        return Path(self.folder) / f"shard-{shard:05d}.safetensors"


class _Reply(NamedTuple):
    """Whether a shard did what it was told, the number of its next step, and its predictions at the rows of a block."""

    done: bool
    at: int
    predictions: Array | None = None


class Shard:
    """Some of the questions, which take numbered steps in order, from the newest checkpoint on.

    Args:
        index: The number of the shard.
        rule: The rule if it is the caller's own: a checkpoint cannot hold it.
    """

    def __init__(self, index: int, rule: AnyRule | None) -> None:
        self._index, self._rule = index, rule
        self._horde: Any = None
        self._at = -1

    def learn(self, newest: _Checkpoint, step: int, rows: _WarmUp | Block | None, plan: _Plan | None) -> _Reply:
        """Take a step: begin with the rows of a warm-up, learn a block, or cut the stream."""
        if not self._go_to(newest, step):
            return _Reply(False, self._at)
        predictions = None
        self._at = -1  # (where an error ends the step, the next call loads the checkpoint)
        if isinstance(rows, _WarmUp) and plan is not None:
            self._horde = plan.begin(rows)
        elif rows is None:
            self._horde.cut()
        else:
            predictions = self._horde.advance(rows)
        self._at = step + 1
        return _Reply(True, self._at, predictions)

    def save(self, newest: _Checkpoint, step: int, checkpoint: _Checkpoint) -> _Reply:
        """Write this shard's file of a checkpoint."""
        if not self._go_to(newest, step):
            return _Reply(False, self._at)
        self._horde.save(checkpoint.file(self._index))
        return _Reply(True, step)

    def _go_to(self, newest: _Checkpoint, step: int) -> bool:
        """Whether ``step`` is the next one. A new process, and a shard that is further, load the checkpoint."""
        if not newest.step <= self._at <= step:
            self._horde = Horde.load(newest.file(self._index), rule=self._rule) if newest.step else None
            self._at = newest.step
        return self._at == step


# ---------------------------------------------------------------------- where shards are


class _ShardsHere:
    """All shards in this process."""

    def __init__(self, count: int, rule: AnyRule | None) -> None:
        self._shards = [Shard(index, rule) for index in range(count)]

    def put(self, value: object) -> Any:
        """What is passed to ``call`` in place of a value."""
        return value

    def call(self, calls: Mapping[int, tuple[Any, ...]]) -> dict[int, _Reply]:
        """The reply of each shard to a method and its arguments."""
        return {shard: getattr(self._shards[shard], method)(*rest) for shard, (method, *rest) in calls.items()}

    def close(self) -> None:
        """End the shards."""


class _RayShards:
    """Each shard in an actor, which Ray restarts, and whose calls Ray then repeats."""

    def __init__(self, ray: Any, count: int, rule: AnyRule | None, cpus: int, gpus: int) -> None:
        self._ray, self.put = ray, ray.put
        resources = ray.cluster_resources()
        for kind, needed in (("CPU", count * cpus), ("GPU", count * gpus)):
            if needed > resources.get(kind, 0):
                raise ValueError(f"{count} shards need {needed} {kind}s. Ray has {resources.get(kind, 0):g}.")
        actor = ray.remote(Shard).options(
            num_cpus=cpus, num_gpus=gpus, max_restarts=-1, max_task_retries=-1, scheduling_strategy="SPREAD"
        )
        self._actors = [actor.remote(index, rule) for index in range(count)]

    def call(self, calls: Mapping[int, tuple[Any, ...]]) -> dict[int, _Reply]:
        """The reply of each shard to a method and its arguments; what a shard raises."""
        pending = {
            shard: getattr(self._actors[shard], method).remote(*rest) for shard, (method, *rest) in calls.items()
        }
        replies, errors = {}, []
        for shard, reply in pending.items():
            try:
                replies[shard] = self._ray.get(reply)
            except self._ray.exceptions.RayTaskError as error:
                errors.append(error.cause)
        if errors:
            raise errors[0]
        return replies

    def close(self) -> None:
        """End the shards."""
        for actor in self._actors:
            self._ray.kill(actor)


@contextmanager
def connect(address: str | None, cpus: int = 1) -> Iterator[Any]:
    """Ray: a cluster; or one that is started on this machine, with at least so many CPUs, and stopped at the end.

    A process that is connected to Ray already stays connected to it.

    Args:
        address: host:port of the cluster's head node; None or "local" to start one.
        cpus: The CPUs that are needed at least.
    """
    try:
        import ray
    except ImportError as error:
        raise ImportError("emphatic.cluster needs Ray: pip install 'emphatic[ray]'") from error
    is_local = address in (None, "local")
    if ray.is_initialized():
        here = ray.get_runtime_context().gcs_address
        if not is_local and address not in ("auto", here):
            raise ValueError(f"This process is connected to another Ray, {here}.")
        yield ray
        return
    options: dict[str, Any] = {"address": "local" if is_local else address, "log_to_driver": False}
    if is_local:
        options |= {"num_cpus": max(cpus, os.cpu_count() or 1), "include_dashboard": False}
    ray.init(**options, logging_level=logging.WARNING)
    try:
        yield ray
    finally:
        ray.shutdown()


# ---------------------------------------------------------------------- the driver


@dataclass(frozen=True)
class _Manifest:
    """What a new driver continues from; ``manifest.json`` in the storage.

    Args:
        setup: What is learned, and how it is divided.
        step: The number of the step before which all shards were saved.
        folder: The name of the folder with their files.
        rows: The rows of the stream until there.
        engine: The engine of all shards.
        signals: The signals of the stream.
        categories: The columns of labels.
        run: Where an unfinished ``run`` began, and the digest of its rows until here.
    """

    setup: Mapping[str, Any]
    step: int = 0
    folder: str = ""
    rows: int = 0
    engine: str = ""
    signals: Sequence[str] = ()
    categories: Sequence[str] = ()
    run: tuple[int, str] | None = None

    def write(self, storage: Path) -> None:
        with atomic_file(storage / "manifest.json") as file:
            file.write(json.dumps({"format": _FORMAT} | asdict(self), indent=1, ensure_ascii=False).encode())

    @staticmethod
    def read(storage: Path) -> _Manifest | None:
        """The manifest in a folder; None if there is none."""
        path = storage / "manifest.json"
        try:
            fields = json.loads(path.read_text("utf-8"))
            if fields.pop("format") != _FORMAT:
                raise ValueError("its format has another version")
            return _Manifest(**fields)
        except FileNotFoundError:
            return None
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise CheckpointError(f"{os.fsdecode(path)!r} is not the manifest of a cluster: {error}") from error


@dataclass
class _Run:
    """A ``run`` that has begun.

    Args:
        begin: The position of its first row.
        digest: The digest of the rows that were learned.
        predictions: Those that are not in the storage yet.
    """

    begin: int
    digest: str
    predictions: list[Array] = field(default_factory=list)


class _Step(NamedTuple):
    """What the shards are sent for a step: the rows for all of them, and in the warm-up a plan for each."""

    rows: Any
    plans: Sequence[Any]

    def arguments(self, shard: int) -> tuple[Any, Any]:
        return self.rows, self.plans[shard] if self.plans else None


class ClusterHorde:
    """Many questions about one stream of named signals, divided into shards: ``Horde`` on several machines.

    Each shard is an ordinary ``Horde`` with some of the questions. It receives readings, and computes its own features.
    Questions and options must not contain functions, because every shard is saved. Predictions are bit-for-bit
    identical to those of ``local`` with as many shards, whatever was killed.

    Args:
        questions: As for ``Horde``.
        features: As for ``Horde``.
        rule: As for ``Horde``.
        shards: The number of shards.
        storage: A folder that all nodes reach by the same path; on one machine, a temporary folder by default. Shards
            save checkpoints there. If it holds a run with the same arguments, that run continues: ``position`` is its
            next row.
        address: host:port of a Ray cluster's head node. Without one, Ray is started on this machine, and stopped at the
            end.
        engine: As for ``Horde``; "auto" chooses in the warm-up, for all questions together.
        block: The rows of a block of a table.
        checkpoint_every: How often the shards save checkpoints, in seconds or as a duration.
        options: Further arguments of ``Horde``, except ``ask`` and ``record``. A shard gets as many CPUs as
            ``threads``.

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
        shards: int,
        storage: str | os.PathLike[str] | None = None,
        address: str | None = None,
        engine: str = "auto",
        block: int = BLOCK,
        checkpoint_every: str | float = "30s",
        **options: Any,
    ) -> None:
        self._shards, self._block = whole("shards", shards, "ClusterHorde"), whole("block", block, "ClusterHorde")
        every = durations.seconds(checkpoint_every) if isinstance(checkpoint_every, str) else checkpoint_every
        if not isinstance(every, int | float) or not every >= 0:
            raise refusal("checkpoint_every", "ClusterHorde", "be seconds or a duration", repr(checkpoint_every))
        for name in ("ask", "record"):
            if options.get(name):
                raise refusal(name, "ClusterHorde", "be left out", repr(options[name]))
        if callable(options.get("mu")):
            raise refusal("mu", "ClusterHorde", "be a number or a table, which a file can hold", "a function")
        # This Horde never learns. It reports at once what is wrong with an argument.
        here = "dense" if engine.startswith("cuda") else engine
        self._template = template = Horde(questions, features, rule, engine=here, **options)
        self.questions, self._rule, self._options, self._every = template.questions, rule, options, float(every)
        if shards > len(self.questions):
            wanted = f"be at most the number of questions, {len(self.questions)}"
            raise refusal("shards", "ClusterHorde", wanted, str(shards))
        self._makers = [
            (maker.to_config(), [template.names[q] for q in share])
            for maker, share in zip(template.makers, template.shares, strict=True)
        ]
        setup = {name: np.asarray(value).tolist() for name, value in options.items() if name != "stepsize"}
        if "stepsize" in template.setup.kind:
            setup["stepsize"] = template.setup.kind["stepsize"].config()
        setup |= {"questions": [question.config() for question in self.questions], "features": self._makers}
        setup |= {"rule": template.rule, "engine": engine, "shards": shards, "block": block}
        self._session, self._open = secrets.token_hex(4), ExitStack()
        self._backend: _ShardsHere | _RayShards | None = None
        try:
            self._start(json.loads(json.dumps(setup)), storage, address, engine)
        except BaseException:
            self.close()
            raise
        manifest = self._manifest
        self.engine = manifest.engine or engine
        #: The rows learned so far: the next row of the stream has this number.
        self.position = manifest.rows
        self._newest = _Checkpoint(manifest.step, str(self.storage / manifest.folder))
        self._steps: list[_Step] = []  # since the newest checkpoint
        self._bytes, self._saved_at = 0, time.monotonic()
        self._run = None if manifest.run is None else _Run(*manifest.run)

    @property
    def names(self) -> tuple[str, ...]:
        """The questions' names, in the order of the predictions."""
        return self._template.names

    @property
    def shards(self) -> int:
        """The number of shards."""
        return self._shards

    @property
    def is_warm(self) -> bool:
        """Whether it has been warmed up, by this driver or by one before it."""
        return bool(self._manifest.step)

    @property
    def signals(self) -> tuple[str, ...]:
        """The signals that questions may name; none before the warm-up."""
        return tuple(self._manifest.signals)

    @property
    def categories(self) -> tuple[str, ...]:
        """The columns of labels; none before the warm-up."""
        return tuple(self._manifest.categories)

    # ------------------------------------------------------------------ learning

    def warm_up(self, table: object, rows: int | None = None) -> Self:
        """``Horde.warm_up``, in every shard. Returns itself.

        It has no effect after a warm-up, so that a script that resumes from a storage need not know.

        Args:
            table: As for ``Horde.warm_up``.
            rows: As for ``Horde.warm_up``.
        """
        if self.is_warm:
            return self
        source = self._read(table)
        block, step, _ = read_first_rows(source, self.questions, self._template.step, rows)
        names, categories = tuple(source.names), tuple(source.categories)
        self._template.evaluator(names, categories, step)  # are its signals there?
        if self.engine == "auto":
            self.engine = self._choose(names, block)
        backend = self._running()
        warm_up = _WarmUp(names, categories, _to_send(block), step)
        self._take(_Step(backend.put(warm_up), [backend.put(plan) for plan in self._plans()]))
        self._manifest = replace(self._manifest, engine=self.engine, signals=names, categories=categories)
        self._save()
        return self

    def run(self, table: object, *, first: ArrayLike | None = None) -> Array:
        """``Horde.run``: learn from a whole log, and return the predictions (T, Q) at all of its rows.

        It warms up on the first rows if that has not been done. Call it again with the same table to continue a run
        that was interrupted, in this process or, from the same storage, in another.

        Args:
            table: As for ``Horde.run``.
            first: As for ``Horde.run``.
        """
        source = self._read(table)
        begins = None if first is None else mask("first", first, "run", source.count_rows(), "row of the table")
        self.warm_up(source)
        run = self._run = self._run or _Run(self.position, _digest().hexdigest())
        blocks = read_blocks(source, self._block, self.signals, self.categories, first=begins)
        digest, left = _digest(), self.position - run.begin
        while left > 0 and (block := next(blocks, None)) is not None:
            digest.update(block.values.tobytes())
            left -= len(block)
        if left or digest.hexdigest() != run.digest:
            raise ValueError(
                f"{self.storage}: an unfinished run on another table is in this folder. Run that table again, or "
                "choose another folder."
            )
        for block in blocks:
            run.predictions.append(self._learn(block))
            digest.update(block.values.tobytes())
            run.digest = digest.hexdigest()
            self._save_if_due()
        predictions = [np.load(file) for file in self._files_of_run()] + run.predictions
        self._run = None
        self._save()
        return np.concatenate(predictions) if predictions else np.empty((0, len(self.questions)))

    def stream(self, blocks: Iterable[Rows] | Callable[[int], Iterable[Rows]]) -> Iterator[Array]:
        """Learn from blocks of rows as they arrive, as ``Horde.stream`` does; yields the predictions, in order.

        A checkpoint is saved when the next block is asked for, never between a block and its predictions.

        Args:
            blocks: Blocks, or rows as ``Horde.observe_many`` takes them; or a function of the first row's number that
                gives them, for a stream that may be resumed. None among them is a ``cut``.
        """
        self._require_warm_up()
        self._run = None
        for rows in blocks(self.position) if callable(blocks) else blocks:
            if rows is None:
                self.cut()
                continue
            yield self._learn(as_block(rows, self.signals, self.categories))
            self._save_if_due()
        self._save()

    def cut(self) -> None:
        """The next row begins another sequence: forget the traces."""
        self._require_warm_up()
        self._take(_Step(None, ()))

    # ------------------------------------------------------------------ saving

    def gather(self) -> Horde:
        """All questions as one ordinary Horde, in the memory of this process."""
        self._require_warm_up()
        self._save()
        makers_of = {name: maker for maker, (_, names) in enumerate(self._makers) for name in names}
        own = self._own_rule()
        return Horde.join([Horde.load(self._newest.file(i), rule=own) for i in range(self._shards)], makers_of)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the file of an ordinary Horde with all questions, for ``Horde.load``.

        Args:
            path: The file.
        """
        self.gather().save(path)

    def close(self) -> None:
        """End the shards, and a Ray that was started for them. What was saved stays in the storage."""
        self._backend = None
        self._open.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"ClusterHorde({len(self.questions)} questions, engine={self.engine!r}, shards={self._shards})"

    # ------------------------------------------------------------------ inside

    def _start(
        self, setup: Mapping[str, Any], storage: str | os.PathLike[str] | None, address: str | None, engine: str
    ) -> None:
        """Read the manifest, and start the shards."""
        folder = storage
        if folder is None:
            folder = self._open.enter_context(TemporaryDirectory(prefix="emphatic-"))
        self.storage = Path(folder).absolute()
        self._open.enter_context(hold_lock(self.storage / "driver.lock", self.storage))
        self._manifest = _Manifest.read(self.storage) or _Manifest(setup)
        saved = self._manifest.setup
        if different := sorted(key for key in {*saved, *setup} if saved.get(key) != setup.get(key)):
            raise ValueError(
                f"{self.storage}: the run in this folder has a different {', '.join(different)}. Resume it with the "
                "same arguments, or choose another folder."
            )
        if address == IN_PROCESS:
            self._backend = _ShardsHere(self._shards, self._own_rule())
        else:
            cpus, gpus = int(self._template.setup.kind["threads"]), int(engine.startswith("cuda"))
            ray = self._open.enter_context(connect(address, self._shards * cpus))
            if storage is None and len(ray.nodes()) > 1:
                raise refusal("storage", "ClusterHorde", "be a folder that all nodes reach by the same path", "none")
            self._backend = _RayShards(ray, self._shards, self._own_rule(), cpus, gpus)
        self._open.callback(self._backend.close)

    def _running(self) -> _ShardsHere | _RayShards:
        if self._backend is None:
            raise RuntimeError(f"The ClusterHorde is closed. Create it again with storage={str(self.storage)!r}.")
        return self._backend

    def _require_warm_up(self) -> None:
        if not self.is_warm:
            raise RuntimeError("The ClusterHorde has not been warmed up: call warm_up or run first.")

    def _own_rule(self) -> AnyRule | None:
        return None if isinstance(self._rule, str) else self._rule

    def _read(self, table: object) -> Table:
        return table if isinstance(table, Table) else open_table(table, words=self._template.words)

    def _choose(self, names: tuple[str, ...], block: Block) -> str:
        """The engine for all questions together, from the first of their features."""
        maker = Features.from_config(self._makers[0][0])
        values, _ = Hold(len(names)).fill(block.to_learn)
        maker.warm_up(values, names=names, time=block.time, labels=dict(block.labels))
        setup = self._template.setup
        rule = setup.kind["stepsize"].rule(setup.rule) if "stepsize" in setup.kind else setup.rule
        learners = len(self.questions) * len(self._template.rates)
        return engines.choose(maker.n, learners, self._block, float(maker.active), rule)

    def _plans(self) -> Iterator[_Plan]:
        """Each shard's part of the questions, and of the options that have a number for each question."""
        template, Q = self._template, len(self.questions)
        edges = [int(shard * Q / self._shards + 0.5) for shard in range(self._shards + 1)]
        for begin, end in pairwise(edges):
            setup = template.setup.of(np.arange(begin, end), Q)
            arguments = {**self._options, **setup.extra, "rule": self._rule, "rates": template.rates}
            arguments |= {"alpha": setup.alpha, "engine": self.engine, "stepsize": setup.kind.get("stepsize")}
            names = set(template.names[begin:end])
            makers = [(config, [name for name in of if name in names]) for config, of in self._makers]
            yield _Plan(self.questions[begin:end], [(config, of) for config, of in makers if of], arguments)

    def _learn(self, block: Block) -> Array:
        """The predictions (B, Q) at the rows of the next block."""
        block = _to_send(block)
        predictions = self._take(_Step(self._running().put(block), ()))
        self._bytes += block.values.nbytes
        self.position += len(block)
        return np.concatenate(predictions, axis=1)

    def _take(self, step: _Step) -> list[Array]:
        """Let every shard take the next step; their predictions."""
        self._steps.append(step)
        try:
            return self._tell("learn", self._newest.step + len(self._steps) - 1, step.arguments)
        except BaseException:
            self._steps.pop()
            raise

    def _tell(self, method: str, step: int, arguments: Callable[[int], tuple[Any, ...]]) -> list[Array]:
        """Call a method of every shard at a step, after the steps that a shard has missed; their predictions."""
        at = dict.fromkeys(range(self._shards), step)
        replies: dict[int, Any] = {}
        while at:
            calls: dict[int, tuple[Any, ...]] = {}
            for shard, number in at.items():
                if number == step:
                    calls[shard] = (method, self._newest, step, *arguments(shard))
                else:
                    missed = self._steps[number - self._newest.step]
                    calls[shard] = ("learn", self._newest, number, *missed.arguments(shard))
            for shard, reply in self._running().call(calls).items():
                if reply.done and at[shard] == step:
                    replies[shard] = reply.predictions
                    del at[shard]
                    continue
                if not reply.done:
                    _log.warning("shard %d continues from checkpoint %d, at step %d", shard, reply.at, step)
                at[shard] = reply.at
        return [replies[shard] for shard in range(self._shards)]

    def _save_if_due(self) -> None:
        if time.monotonic() - self._saved_at >= self._every or self._bytes >= _MOST_KEPT:
            self._save()

    def _save(self) -> None:
        """Save all shards, and then the manifest, which is what counts."""
        step = self._newest.step + len(self._steps)
        checkpoint = self._newest
        if self._steps:
            checkpoint = _Checkpoint(step, str(self.storage / f"checkpoint-{step:012d}-{self._session}"))
            Path(checkpoint.folder).mkdir(exist_ok=True)
            self._tell("save", step, lambda shard: (checkpoint,))
        run = self._run
        if run is not None and run.predictions:
            predictions = np.concatenate(run.predictions)
            with atomic_file(self.storage / f"predictions-{self.position - len(predictions):012d}.npy") as file:
                np.save(file, predictions)
        name = Path(checkpoint.folder).name
        saved = None if run is None else (run.begin, run.digest)
        self._manifest = replace(self._manifest, step=step, folder=name, rows=self.position, run=saved)
        self._manifest.write(self.storage)
        self._newest, self._bytes, self._saved_at = checkpoint, 0, time.monotonic()
        self._steps.clear()
        if run is not None:
            run.predictions.clear()
        for old in self.storage.glob("checkpoint-*"):
            if old.name != name:
                shutil.rmtree(old, ignore_errors=True)
        for old in {*self.storage.glob("predictions-*.npy")} - {*self._files_of_run()}:
            old.unlink(missing_ok=True)

    def _files_of_run(self) -> list[Path]:
        """The files with the predictions of an unfinished run, in order."""
        begin = self.position if self._run is None else self._run.begin
        files = sorted(self.storage.glob("predictions-*.npy"))
        return [file for file in files if begin <= int(file.stem.partition("-")[2]) < self._manifest.rows]


def local(*arguments: Any, shards: int, **options: Any) -> ClusterHorde:
    """A ``ClusterHorde`` with all shards in this process, without Ray.

    Args:
        arguments: The questions, the features and the rule, as for ``ClusterHorde``.
        shards: The number of shards.
        options: Further keywords of ``ClusterHorde``, except ``address``.
    """
    return ClusterHorde(*arguments, shards=shards, address=IN_PROCESS, **options)


def _digest() -> Any:
    return hashlib.blake2b(digest_size=16)


def _to_send(block: Block) -> Block:
    """What a shard needs of a block: the readings to learn from, and which of them were pulled in."""
    verdicts = None if block.pulled_in is None else block.verdicts
    return Block(block.row, block.to_learn, block.time, block.labels, gap=block.gap, verdicts=verdicts)


# ---------------------------------------------------------------------- machines and sweeps


def run_by_machine(
    data: object,
    *,
    address: str | None,
    out: str | os.PathLike[str],
    config: str | os.PathLike[str] | Mapping[str, Any] | Settings,
    resume: bool = False,
    overwrite: bool = False,
    offline: bool = True,
    progress: Callable[[str, int, int], None] | None = None,
) -> NextingResult:
    """``emphatic.nexting.run`` with ``by``, each machine in a Ray task, with the same files.

    Ray repeats the task of a machine whose process died; it continues from the machine's own resume point.

    Args:
        data: As for ``emphatic.nexting.run``.
        address: host:port of a Ray cluster's head node; None or "local" starts Ray on this machine.
        out: The output folder, which all nodes reach by the same path.
        config: The settings, with ``by``.
        resume: As for ``emphatic.nexting.run``.
        overwrite: As for ``emphatic.nexting.run``.
        offline: As for ``emphatic.nexting.run``.
        progress: As for ``emphatic.nexting.run``.
    """
    settings, folder = Settings.combine(config), Path(out).absolute()
    if settings.by is None or settings.share:
        wanted = "name the column of the machines, 'by', and not 'share' weights, which are passed from one to the next"
        raise refusal("config", "run_by_machine", wanted, f"by={settings.by!r}, share={settings.share!r}")
    if not (overwrite or resume):
        check_free(folder)
    job = Nexting(data, settings, folder, progress or silent, offline)
    return run_machines(job, resume, partial(_run_tasks, address))


def _run_tasks(
    address: str | None, tasks: Iterator[tuple[int, MachineTask]], count: int
) -> Iterator[tuple[int, dict[str, Any]]]:
    """The number of each machine and its record, as they are done."""
    with connect(address) as ray:
        learn = ray.remote(num_cpus=1, max_retries=3)(_learn_machine)
        most = min(count, 2 * int(ray.cluster_resources()["CPU"]))
        running: dict[Any, tuple[int, MachineTask]] = {}
        for number, task in tasks:
            running[learn.remote(task)] = number, task
            while len(running) >= most:
                yield _first_done(ray, running)
        while running:
            yield _first_done(ray, running)


def _learn_machine(task: MachineTask) -> dict[str, Any]:
    return task()


def _first_done(ray: Any, running: dict[Any, tuple[int, MachineTask]]) -> tuple[int, dict[str, Any]]:
    [done], _ = ray.wait([*running])
    number, task = running.pop(done)
    try:
        record: dict[str, Any] = ray.get(done)
    except ray.exceptions.RayTaskError as error:
        raise error.cause from None
    if not (task.keywords["folder"] / "record.json").exists():
        raise ValueError("A machine's files are missing: all nodes must reach the output folder by the same path.")
    return number, record


@contextmanager
def joblib_on_ray(address: str | None) -> Iterator[None]:
    """A context in which joblib, and with it ``emphatic.sweep``, runs in all CPUs of a Ray cluster.

    Args:
        address: host:port of the cluster's head node; None or "local" starts Ray on this machine.
    """
    import joblib

    with connect(address):
        from ray.util.joblib import register_ray

        register_ray()
        # Ray restarts a process that died, and repeats its task.
        with joblib.parallel_config("ray", n_jobs=-1, ray_remote_args={"max_restarts": -1, "max_task_retries": 3}):
            yield
