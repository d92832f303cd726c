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
import socket
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import islice, pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from emphatic import engines
from emphatic.common.files import atomic_file
from emphatic.common.locks import hold_lock
from emphatic.errors import CheckpointError
from emphatic.features import Features
from emphatic.gvfs import durations
from emphatic.gvfs.gvf import GVF
from emphatic.hordes.horde import Horde, as_block, as_table, read_blocks, read_first_rows
from emphatic.learning.inputs import mask, refusal, whole
from emphatic.nexting.runs.machines import MachineTask, run_machines
from emphatic.nexting.runs.runner import Nexting, NextingResult, Progress, check_free, silent
from emphatic.nexting.runs.settings import Settings
from emphatic.nexting.tables import Block, Hold
from emphatic.rules import AnyRule

__all__ = ["IN_PROCESS", "ClusterHorde", "joblib_on_ray", "local", "run_by_machine"]

Array = NDArray[np.float64]
#: The number of a shard's next step, and its predictions at the rows of a block.
Reply = tuple[int, Array | None]
Rows = Block | Mapping[str, Any] | Array | None
#: The configuration of each feature maker, and the questions that share it.
Makers = Sequence[tuple[Sequence[Mapping[str, Any]], Collection[str]]]

_log = logging.getLogger(__name__)

#: The address of shards in this process, without Ray.
IN_PROCESS = "in-process"
#: Rows of a block that is sent to the shards.
BLOCK = 1016
#: Bytes of blocks since the last checkpoint after which the next one is due.
_MOST_KEPT = 1 << 28


# ---------------------------------------------------------------------- a shard


class _Plan(NamedTuple):
    """What a shard begins with, besides the rows of the warm-up."""

    questions: Sequence[GVF]
    makers: Makers
    arguments: Mapping[str, Any]
    signals: Sequence[str]
    categories: Sequence[str]
    step: float | None

    def begin(self, block: Block) -> Horde:
        """The Horde before the first row."""
        horde = Horde(self.questions, _make_features(self.makers), **self.arguments)
        return horde.warm_up_on(self.signals, self.categories, block, self.step)


class _Checkpoint(NamedTuple):
    """The number of the step before which all shards were saved, and the folder with their files."""

    step: int
    folder: str

    def file(self, shard: int) -> Path:
        return Path(self.folder) / f"shard-{shard:05d}.safetensors"


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

    def learn(self, newest: _Checkpoint, step: int, rows: Block | None, plan: _Plan | None) -> Reply:
        """Take a step: begin with the rows of a warm-up, learn a block, or cut the stream."""
        if not self._go_to(newest, step):
            return self._at, None
        predictions = None
        self._at = -1  # (where an error ends the step, the next call loads the checkpoint)
        if rows is None:
            self._horde.cut()
        elif plan is not None:
            self._horde = plan.begin(rows)
        else:
            predictions = self._horde.advance(rows)
        self._at = step + 1
        return self._at, predictions

    def save(self, newest: _Checkpoint, step: int, checkpoint: _Checkpoint) -> Reply:
        """Write this shard's file of a checkpoint."""
        if not self._go_to(newest, step):
            return self._at, None
        self._horde.save(checkpoint.file(self._index))
        return step, None

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

    def call(self, calls: Mapping[int, tuple[Any, ...]]) -> dict[int, Reply]:
        """The reply of each shard to a method and its arguments."""
        return {
            shard: getattr(self._shards[shard], method)(*arguments) for shard, (method, *arguments) in calls.items()
        }


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

    def call(self, calls: Mapping[int, tuple[Any, ...]]) -> dict[int, Reply]:
        """The reply of each shard to a method and its arguments; what a shard raises."""
        pending = {i: getattr(self._actors[i], method).remote(*arguments) for i, (method, *arguments) in calls.items()}
        self._ray.wait([*pending.values()], num_returns=len(pending))
        return {shard: _get(self._ray, reply) for shard, reply in pending.items()}

    def close(self) -> None:
        """End the shards."""
        for actor in self._actors:
            self._ray.kill(actor)


def _get(ray: Any, answer: Any) -> Any:
    """An answer of Ray's; where there is none, what was raised in the process."""
    try:
        return ray.get(answer)
    except ray.exceptions.RayTaskError as error:
        raise error.cause from None


@contextmanager
def connect(address: str | None, cpus: int = 1) -> Iterator[Any]:
    """Ray: a cluster; or one that is started on this machine, with at least so many CPUs, and stopped at the end.

    Args:
        address: host:port of the cluster's head node; None or "local" to use the Ray that this process is connected to,
            or else to start one.
        cpus: The CPUs that are needed at least.
    """
    try:
        import ray
    except ImportError as error:
        raise ImportError("emphatic.nexting.cluster needs Ray: pip install 'emphatic[ray]'") from error
    is_local = address in (None, "local")
    if is_local and ray.is_initialized():
        yield ray
        return
    if not is_local and address != "auto":  # (Ray itself would try for minutes)
        host, _, port = str(address).rpartition(":")
        try:
            socket.create_connection((host, int(port)), timeout=10.0).close()
        except (OSError, ValueError) as error:
            raise ConnectionError(f"No Ray answers at {address}: {error}") from error
    here: dict[str, Any] = {"num_cpus": max(cpus, os.cpu_count() or 1), "include_dashboard": False}
    options = {"address": "local", **here} if is_local else {"address": address}
    ray.init(**options, log_to_driver=False, logging_level=logging.WARNING)
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
            file.write(json.dumps(asdict(self), indent=1, ensure_ascii=False).encode())

    @staticmethod
    def read(storage: Path) -> _Manifest | None:
        """The manifest in a folder; None if there is none."""
        path = storage / "manifest.json"
        try:
            return _Manifest(**json.loads(path.read_text("utf-8")))
        except FileNotFoundError:
            return None
        except (ValueError, TypeError) as error:
            raise CheckpointError(f"{os.fsdecode(path)!r} is not the manifest of a cluster: {error}") from error


class _Run(NamedTuple):
    """A ``run`` that has begun: the position of its first row, and the digest of the rows that were learned."""

    begin: int
    digest: str


class _Step(NamedTuple):
    """What the shards are sent for a step: the rows for all of them, and in the warm-up a plan for each."""

    rows: Any
    plans: Sequence[Any]


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
        options: Further arguments of ``Horde``, except ``record``. A shard gets as many CPUs as ``threads``.

    >>> import numpy as np
    >>> from emphatic import GVF, features as f
    >>> from emphatic.nexting.cluster import local
    >>> questions = [GVF("x", horizon=h) for h in (2, 4, 8)]
    >>> features = f.Features([f.Bias(), f.SoftBins("x", bins=3)])
    >>> with local(questions, features, shards=3, engine="dense") as horde:
    ...     horde.run({"x": np.sin(np.arange(2000.0))}).shape
    (2000, 3)
    """

    _manifest: _Manifest

    def __init__(
        self,
        questions: Sequence[GVF],
        features: Features | Mapping[str, Features],
        rule: str | AnyRule | None = None,
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
        if options.get("record"):
            raise refusal("record", "ClusterHorde", "be left out", repr(options["record"]))
        if callable(options.get("mu")):
            raise refusal("mu", "ClusterHorde", "be a number or a table, which a file can hold", "a function")
        # This Horde never learns. It reports at once what is wrong with an argument.
        here = "dense" if engine.startswith("cuda") else engine
        self._template = template = Horde(questions, features, rule, engine=here, **options)
        self.questions, self._options, self._every = template.questions, options, float(every)
        self._rule, self._own_rule = rule, rule if isinstance(rule, AnyRule) else None
        if shards > len(self.questions):
            raise refusal("shards", "ClusterHorde", f"be at most {len(self.questions)}, the questions", str(shards))
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
        #: The rows learned so far: the next row of the stream has this number.
        self.position = self._manifest.rows
        self._newest = _Checkpoint(self._manifest.step, str(self.storage / self._manifest.folder))
        self._steps: list[_Step] = []  # since the newest checkpoint
        self._bytes, self._saved_at = 0, time.monotonic()
        self._run = None if self._manifest.run is None else _Run(*self._manifest.run)

    @property
    def is_warm(self) -> bool:
        """Whether it has been warmed up, by this driver or by one before it."""
        return bool(self._manifest.step)

    @property
    def engine(self) -> str:
        """The engine of all shards; "auto" until the warm-up has chosen one."""
        return self._manifest.engine

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
        source = as_table(table, self._template.words)
        block, step, _ = read_first_rows(source, self.questions, self._template.step, rows)
        names, categories = tuple(source.names), tuple(source.categories)
        self._template.evaluator(names, categories, step)  # are its signals there?
        engine = self._choose(names, block) if self.engine == "auto" else self.engine
        manifest = replace(self._manifest, engine=engine, signals=names, categories=categories)
        put = self._running().put
        self._take(_Step(put(block), [put(plan) for plan in self._plans(manifest, step)]))
        self._manifest = manifest
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
        source = as_table(table, self._template.words)
        begins = None if first is None else mask("first", first, "run", source.count_rows(), "row of the table")
        self.warm_up(source)
        manifest, digest, file = self._manifest, hashlib.blake2b(digest_size=16), self.storage / "predictions"
        run = self._run = self._run or _Run(self.position, digest.hexdigest())
        blocks = read_blocks(source, self._block, manifest.signals, manifest.categories, first=begins)
        left = self.position - run.begin
        size = 8 * len(self.questions) * left  # in bytes, of the predictions at rows that were learned before
        while left > 0 and (block := next(blocks, None)) is not None:
            digest.update(block.values.tobytes())
            left -= len(block)
        with open(file, "ab") as output:
            if left or digest.hexdigest() != run.digest or output.tell() < size:
                raise ValueError(
                    f"{self.storage}: an unfinished run on another table is in this folder. Run that table again, or "
                    "choose another folder."
                )
            output.truncate(size)
            for block in blocks:
                output.write(self._learn(block).tobytes())
                output.flush()
                digest.update(block.values.tobytes())
                self._run = _Run(run.begin, digest.hexdigest())
                self._save_if_due()
        predictions = np.fromfile(file).reshape(-1, len(self.questions))
        self._run = None
        self._save()
        file.unlink()
        return predictions

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
            yield self._learn(as_block(rows, self._manifest.signals, self._manifest.categories))
            self._save_if_due()
        self._save()

    def cut(self) -> None:
        """The next row begins another sequence: forget the traces."""
        self._require_warm_up()
        self._take(_Step(None, [None] * self._shards))

    # ------------------------------------------------------------------ saving

    def gather(self) -> Horde:
        """All questions as one ordinary Horde, in the memory of this process."""
        self._require_warm_up()
        self._save()
        makers_of = {name: maker for maker, (_, names) in enumerate(self._makers) for name in names}
        hordes = [Horde.load(self._newest.file(shard), rule=self._own_rule) for shard in range(self._shards)]
        return Horde.join(hordes, makers_of)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the file of an ordinary Horde with all questions, for ``Horde.load``.

        Args:
            path: The file.
        """
        self.gather().save(path)

    @staticmethod
    def load(
        storage: str | os.PathLike[str], *, address: str | None = None, rule: AnyRule | None = None
    ) -> ClusterHorde:
        """The ClusterHorde whose shards were saved in a storage, with the arguments that are noted there.

        Args:
            storage: The folder.
            address: As for ``ClusterHorde``.
            rule: Must be passed again if it was a rule of your own.
        """
        manifest = _Manifest.read(Path(storage))
        if manifest is None:
            raise FileNotFoundError(2, "There is no manifest of a cluster in this folder", os.fspath(storage))
        setup = dict(manifest.setup)
        questions = [GVF.from_config(config) for config in setup.pop("questions")]
        features, named = _make_features(setup.pop("features")), setup.pop("rule")
        return ClusterHorde(questions, features, rule or named, storage=storage, address=address, **setup)

    def close(self) -> None:
        """End the shards, and a Ray that was started for them. What was saved stays in the storage."""
        self._backend = None
        self._open.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # ------------------------------------------------------------------ inside

    def _start(
        self, setup: Mapping[str, Any], storage: str | os.PathLike[str] | None, address: str | None, engine: str
    ) -> None:
        """Read the manifest, and start the shards."""
        folder = self._open.enter_context(TemporaryDirectory(prefix="emphatic-")) if storage is None else storage
        self.storage = Path(folder).absolute()
        self._open.enter_context(hold_lock(self.storage / "driver.lock", self.storage))
        self._manifest = _Manifest.read(self.storage) or _Manifest(setup, engine=engine)
        saved = self._manifest.setup
        if different := sorted(key for key in {*saved, *setup} if saved.get(key) != setup.get(key)):
            raise ValueError(
                f"{self.storage}: the run in this folder has a different {', '.join(different)}. Resume it with the "
                "same arguments, or choose another folder."
            )
        if address == IN_PROCESS:
            self._backend = _ShardsHere(self._shards, self._own_rule)
        else:
            cpus, gpus = int(self._template.setup.kind["threads"]), int(engine.startswith("cuda"))
            ray = self._open.enter_context(connect(address, self._shards * cpus))
            if storage is None and len(ray.nodes()) > 1:
                raise refusal("storage", "ClusterHorde", "be a folder that all nodes reach by the same path", "none")
            self._backend = on_ray = _RayShards(ray, self._shards, self._own_rule, cpus, gpus)
            self._open.callback(on_ray.close)

    def _running(self) -> _ShardsHere | _RayShards:
        if self._backend is None:
            raise RuntimeError(f"The ClusterHorde is closed. Create it again with storage={str(self.storage)!r}.")
        return self._backend

    def _require_warm_up(self) -> None:
        if not self.is_warm:
            raise RuntimeError("The ClusterHorde has not been warmed up: call warm_up or run first.")

    def _choose(self, names: tuple[str, ...], block: Block) -> str:
        """The engine for all questions together, from the first of their features."""
        maker = Features.from_config(self._makers[0][0])
        values, _ = Hold(len(names)).fill(block.to_learn)
        maker.warm_up(values, names=names, time=block.time, labels=dict(block.labels))
        setup = self._template.setup
        rule = setup.kind["stepsize"].rule(setup.rule) if "stepsize" in setup.kind else setup.rule
        return engines.choose(maker.n, len(self.questions), self._block, float(maker.active), rule)

    def _plans(self, manifest: _Manifest, step: float | None) -> Iterator[_Plan]:
        """Each shard's part of the questions, and of the options that have a number for each question."""
        template, Q = self._template, len(self.questions)
        edges = [int(shard * Q / self._shards + 0.5) for shard in range(self._shards + 1)]
        for begin, end in pairwise(edges):
            setup = template.setup.of(np.arange(begin, end))
            arguments = {**self._options, **setup.extra, "rule": self._rule}
            arguments |= {"alpha": setup.alpha, "engine": manifest.engine, "stepsize": setup.kind.get("stepsize")}
            names = set(template.names[begin:end])
            makers = [(config, names & {*of}) for config, of in self._makers if names & {*of}]
            yield _Plan(self.questions[begin:end], makers, arguments, manifest.signals, manifest.categories, step)

    def _learn(self, block: Block) -> Array:
        """The predictions (B, Q) at the rows of the next block."""
        predictions = self._take(_Step(self._running().put(block), [None] * self._shards))
        self._bytes += block.values.nbytes
        self.position += len(block)
        return np.concatenate(predictions, axis=1)

    def _take(self, step: _Step) -> list[Array]:
        """Let every shard take the next step; their predictions."""
        self._steps.append(step)
        try:
            number = self._newest.step + len(self._steps) - 1
            return self._tell("learn", number, lambda shard: (step.rows, step.plans[shard]))
        except BaseException:
            self._steps.pop()
            raise

    def _tell(self, method: str, step: int, arguments: Callable[[int], tuple[Any, ...]]) -> list[Array]:
        """Call a method of every shard at a step, after the steps that a shard has missed; their predictions."""
        at = dict.fromkeys(range(self._shards), step)
        answers: dict[int, Any] = {}
        while at:
            calls: dict[int, tuple[Any, ...]] = {}
            for shard, number in at.items():
                if number == step:
                    calls[shard] = (method, self._newest, step, *arguments(shard))
                else:
                    missed = self._steps[number - self._newest.step]
                    calls[shard] = ("learn", self._newest, number, missed.rows, missed.plans[shard])
            for shard, (reached, predictions) in self._running().call(calls).items():
                if at[shard] == step <= reached:
                    answers[shard] = predictions
                    del at[shard]
                    continue
                if reached < at[shard]:
                    _log.warning("shard %d continues from checkpoint %d, to step %d", shard, reached, step)
                at[shard] = reached
        return [answers[shard] for shard in range(self._shards)]

    def _save_if_due(self) -> None:
        if time.monotonic() - self._saved_at >= self._every or self._bytes >= _MOST_KEPT:
            self._save()

    def _save(self) -> None:
        """Save all shards, and then the manifest, which is what counts."""
        step = self._newest.step + len(self._steps)
        name = f"checkpoint-{step:012d}-{self._session}"
        checkpoint = _Checkpoint(step, str(self.storage / name))
        Path(checkpoint.folder).mkdir(exist_ok=True)
        self._tell("save", step, lambda shard: (checkpoint,))
        self._manifest = replace(self._manifest, step=step, folder=name, rows=self.position, run=self._run)
        self._manifest.write(self.storage)
        self._newest, self._bytes, self._saved_at = checkpoint, 0, time.monotonic()
        self._steps.clear()
        for old in self.storage.glob("checkpoint-*"):
            if old.name != name:
                shutil.rmtree(old, ignore_errors=True)


def local(*arguments: Any, shards: int, **options: Any) -> ClusterHorde:
    """A ``ClusterHorde`` with all shards in this process, without Ray.

    Args:
        arguments: The questions, the features and the rule, as for ``ClusterHorde``.
        shards: The number of shards.
        options: Further keywords of ``ClusterHorde``, except ``address``.
    """
    return ClusterHorde(*arguments, shards=shards, address=IN_PROCESS, **options)


def _make_features(makers: Makers) -> dict[str, Features]:
    """The feature maker of each question."""
    features: dict[str, Features] = {}
    for config, names in makers:
        features |= dict.fromkeys(names, Features.from_config(config))
    return features


# ---------------------------------------------------------------------- machines and sweeps


def run_by_machine(
    data: object,
    settings: Settings,
    out: str | os.PathLike[str],
    *,
    address: str | None = None,
    resume: bool = False,
    overwrite: bool = False,
    progress: Progress = silent,
) -> NextingResult:
    """``emphatic.nexting.run`` with ``by``, each machine in a Ray task, with the same files.

    Ray repeats the task of a machine whose process died. It continues from the machine's own checkpoint.

    Args:
        data: As for ``emphatic.nexting.run``.
        settings: The settings, with ``by``.
        out: The output folder, which all nodes reach by the same path.
        address: As for ``ClusterHorde``.
        resume: As for ``emphatic.nexting.run``.
        overwrite: As for ``emphatic.nexting.run``.
        progress: As for ``emphatic.nexting.run``.
    """
    if settings.by is None or settings.share:
        raise ValueError("--ray needs --by, without share = true: on a cluster, each machine is learned by itself.")
    folder = Path(out).absolute()
    if not (overwrite or resume):
        check_free(folder)
    return run_machines(Nexting(data, settings, folder, progress), resume, partial(_run_tasks, address))


def _run_tasks(
    address: str | None, tasks: Iterator[tuple[int, MachineTask]], count: int
) -> Iterator[tuple[int, dict[str, Any]]]:
    """The number of each machine and its record, as they are done."""
    with connect(address) as ray:
        learn = ray.remote(num_cpus=1, max_retries=3)(_learn_machine)
        together = min(count, 2 * int(ray.cluster_resources()["CPU"]))
        running: dict[Any, int] = {}
        while True:
            for number, task in islice(tasks, together - len(running)):
                running[learn.remote(task)] = number
            if not running:
                return
            [done], _ = ray.wait([*running])
            yield running.pop(done), _get(ray, done)


def _learn_machine(task: MachineTask) -> dict[str, Any]:
    return task()


@contextmanager
def joblib_on_ray(address: str | None = None) -> Iterator[None]:
    """A context in which joblib, and with it ``emphatic.sweep``, uses all CPUs of a Ray cluster.

    Args:
        address: As for ``ClusterHorde``.
    """
    import joblib

    with connect(address):
        from ray.util.joblib import register_ray

        register_ray()  # type: ignore[no-untyped-call]
        with joblib.parallel_config("ray", n_jobs=-1):
            yield
