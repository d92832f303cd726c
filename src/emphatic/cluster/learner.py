"""K learners of one rule, cut into shards; and the storage and stream of blocks that they share with a horde."""

from __future__ import annotations

import json
import logging
import os
import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from emphatic import engines, rules, stepsizes
from emphatic.cluster.driver import (
    Backend,
    ClusterStatus,
    Driver,
    LocalShards,
    Manifest,
    Parcel,
    Shard,
    ShardPart,
    Start,
    hold_storage,
)
from emphatic.cluster.ray_shards import Connection, Place, RayShards
from emphatic.errors import CheckpointError
from emphatic.learning import inputs
from emphatic.learning.inputs import Active, mask, refusal, whole
from emphatic.learning.learner import Learner, join
from emphatic.questions import durations
from emphatic.rules import AnyRule, ElementwiseRule
from emphatic.stepsizes import StepSize

__all__ = ["BLOCK", "IN_PROCESS", "Cluster", "ClusterLearner", "Cut", "OnCheckpoint", "Predictions", "cut", "grain"]

_log = logging.getLogger(__name__)

#: Steps of a block: few enough to be sent soon, and a multiple of the chunked engine's grain.
BLOCK = 1016
#: The address of shards in this process, without Ray.
IN_PROCESS = "in-process"
#: What all shards are sent alike; of everything else each has its own columns.
_SHARED = ("Phi", "Phi_next", "first")

Predictions = Literal["driver", "shard"] | None
OnCheckpoint = Callable[[int], Mapping[str, Any]]


class Cluster:
    """Shards of one model, what has been saved of them, and the stream that they learn from; see its subclasses."""

    _cuts: list[slice]
    _exact: bool
    _driver: Driver | None = None

    def __init__(
        self,
        setup: Mapping[str, Any],
        shards: int | None,
        address: str | None,
        storage: str | os.PathLike[str] | None,
        engine: str,
        block: int,
        ahead: int,
        checkpoint_every: str | float,
        threads: int | None,
        resume: bool | None,
    ) -> None:
        self._block, self._ahead = whole("block", block, "a cluster"), whole("ahead", ahead, "a cluster")
        if shards is not None:
            whole("shards", shards, "a cluster")
        if threads is not None:
            whole("threads", threads, "a cluster")
        self._every = durations.seconds(checkpoint_every) if isinstance(checkpoint_every, str) else checkpoint_every
        if not isinstance(self._every, int | float) or not self._every >= 0:
            raise refusal("checkpoint_every", "a cluster", "be seconds or a duration", repr(checkpoint_every))
        if storage is None and address != IN_PROCESS:
            raise refusal("storage", "a cluster", "be a folder that all nodes can reach", "none")
        self._temporary = TemporaryDirectory(prefix="emphatic-") if storage is None else None
        self.storage = Path(self._temporary.name if self._temporary else os.fspath(storage or "")).absolute()
        self._gpus = int(engine.startswith("cuda"))
        self._session = secrets.token_hex(4)
        self._connection: Connection | None = None
        #: The lock of the storage, until it is closed.
        self._held = ExitStack()
        self._held.enter_context(hold_storage(self.storage))
        try:
            manifest = Manifest.read(self.storage)
            self._check_resume(manifest, resume)
            if address == IN_PROCESS:
                self._shards, self._threads = shards or 1, threads or 1
            else:
                if manifest is not None and shards is None:  # as it was cut before
                    shards = manifest.setup.get("shards")
                self._connection = Connection(address, shards, threads, self.storage, self._gpus)
                self._shards, self._threads = self._connection.shards, self._connection.threads
        except BaseException:
            self.close()
            raise
        # (as JSON gives it back)
        self._setup: dict[str, Any] = json.loads(json.dumps({**setup, "shards": self._shards, "block": self._block}))
        self._manifest = manifest

    def _check_resume(self, manifest: Manifest | None, resume: bool | None) -> None:
        if manifest is None and resume:
            raise ValueError(f"{self.storage}: there is no run to resume: it has no manifest.json.")
        if manifest is not None and resume is False:
            raise ValueError(
                f"{self.storage}: this folder holds a run of {manifest.rows} rows: resume it, or choose another folder."
            )

    def _launch(self, models: Sequence[ShardPart], setup: Mapping[str, Any], warm_up: object = None) -> None:
        """Start the shards where the manifest says, or anew, from what all of them begin with."""
        self._setup |= json.loads(json.dumps(dict(setup)))
        manifest = self._manifest
        if manifest is not None and dict(manifest.setup) != self._setup:
            keys = {*manifest.setup, *self._setup}
            different = sorted(key for key in keys if manifest.setup.get(key) != self._setup.get(key))
            self.close()
            raise ValueError(
                f"{self.storage}: the run in this folder has a different {', '.join(different)}. Resume it with the "
                "same settings, or choose another folder."
            )
        try:
            if manifest is None:
                self.storage.mkdir(parents=True, exist_ok=True)
                manifest = Manifest(0, 0, self._session, self._setup)
                manifest.write(self.storage)
            else:
                _log.info("%s: continuing from block %d, row %d", self.storage, manifest.block, manifest.rows)
            start = Start(self._session, manifest.block, manifest.session)
            folder = str(self.storage)
            begin = [(index, model, warm_up, folder, start) for index, model in enumerate(models)]
            backend: Backend = LocalShards(begin)
            if self._connection is not None:
                backend = shards = RayShards(self._connection, Shard, begin, self._session, self._gpus)
                shards.check_storage(self.storage)
        except BaseException:
            self.close()
            raise
        self._driver = Driver(
            backend, len(models), self.storage, manifest, self._session, self._ahead, float(self._every)
        )

    # ------------------------------------------------------------------ what it is

    @property
    def shards(self) -> int:
        """How many shards there are."""
        return self._shards

    @property
    def exact(self) -> bool:
        """Whether one model in one process would learn the same bits; if not, it learns the same to rounding."""
        return self._exact

    @property
    def position(self) -> int:
        """The rows of the stream so far: the next is row number ``position``."""
        return self._running().manifest.rows

    @property
    def status(self) -> ClusterStatus:
        """How the run is going."""
        return self._running().status

    @property
    def places(self) -> list[Place]:
        """Where each shard runs on Ray."""
        backend = self._running().backend
        return backend.places if isinstance(backend, RayShards) else []

    @property
    def more(self) -> Mapping[str, Any]:
        """What ``on_checkpoint`` gave for the point in the stream from which a new driver goes on."""
        return self._running().manifest.more

    # ------------------------------------------------------------------ learning

    def cut(self) -> None:
        """What follows is another sequence: forget the traces. It has a number like a block."""
        for _ in self._stream(iter([None]), None, None):
            pass

    def _stream(
        self, parcels: Iterator[Parcel | None], predictions: Predictions, on_checkpoint: OnCheckpoint | None
    ) -> Iterator[list[Any]]:
        driver = self._running()
        if predictions not in ("driver", "shard", None):
            raise refusal("predictions", "stream", "be 'driver', 'shard' or None", repr(predictions))
        if driver.is_streaming:
            raise RuntimeError("The shards are still learning from another stream: finish it first, or close() it.")
        try:
            yield from driver.stream(parcels, predictions, on_checkpoint)
        except BaseException as error:
            refused = isinstance(error, GeneratorExit | ValueError | TypeError | ArithmeticError | LookupError)
            if not refused or isinstance(error, CheckpointError):  # else every shard is where it was before that block
                self.close()
            raise

    def _read(self, name: str) -> list[Any]:
        """An attribute of each shard's model."""
        driver = self._running()
        return [driver.backend.revive(shard, "read", name) for shard in range(driver.shards)]

    def _running(self) -> Driver:
        if self._driver is None:
            raise RuntimeError(
                f"{type(self).__name__} has not started, or is closed. Its checkpoints are in {self.storage}: create "
                "it again to continue."
            )
        return self._driver

    # ------------------------------------------------------------------ the end

    def close(self) -> None:
        """End the shards, and a Ray that was started for them. What was saved stays in the storage, for any driver."""
        driver, self._driver = self._driver, None
        if driver is not None:
            driver.backend.close()
        elif self._connection is not None:
            self._connection.close()
        self._connection = None
        self._held.close()
        if self._temporary is not None:
            self._temporary.cleanup()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Cut(list[slice]):
    """The part of each shard, in order; ``exact`` says whether one process would learn the same bits uncut."""

    exact: bool = False


def grain(rule: str | AnyRule, n: int, dtype: str, engine: str) -> tuple[int, int]:
    """(steps, learners) at whose multiples an engine can be cut without another bit; 0 where it cannot."""
    if engine.startswith("cuda"):  # need not be installed where the driver runs
        return 0, 0
    return engines.make(engine, rules.get(rule) if isinstance(rule, str) else rule, n, 2, dtype).grain


def cut(count: int, shards: int, block: int, grain: tuple[int, int]) -> Cut:
    """``count`` learners in ``shards`` parts of about the same size, at multiples of the grain where that is possible.

    >>> cut(1000, 3, 1016, (127, 256))
    [slice(0, 256, None), slice(256, 768, None), slice(768, 1000, None)]
    """
    if shards > count:
        raise refusal("shards", "a cluster", f"be at most what there is to cut, {count}", str(shards))
    steps, learners = grain
    fits = learners > 0 and count >= learners * shards
    unit = learners if fits else 1
    edges = [unit * int(i * count / shards / unit + 0.5) for i in range(shards)] + [count]
    cuts = Cut(slice(a, b) for a, b in pairwise(edges))
    cuts.exact = shards == 1 or (fits and steps > 0 and block % steps == 0)
    return cuts


@dataclass(frozen=True)
class _LearnerPart:
    """The ``ShardPart`` of some of the learners, from number ``begin`` on."""

    rule: str | AnyRule
    n: int
    K: int
    begin: int
    kind: Mapping[str, Any]

    def make(self, warm_up: None) -> Learner:
        return Learner(self.rule, self.n, self.K, **self.kind)

    def load(self, path: Path) -> tuple[Learner, dict[str, Any]]:
        return Learner.load_with(path, rule=None if isinstance(self.rule, str) else self.rule)

    def learn(self, model: Learner, shared: Any, own: Any, predict: bool) -> tuple[int, Any]:
        position, share = model.position, slice(self.begin, self.begin + self.K)
        if own is None:  # all learners' columns are here
            shared = {name: p if name in _SHARED else _columns(p, share) for name, p in shared.items()}
        predictions = model.run(**shared, **(own or {}), predictions=predict, on_divergence="freeze")
        return model.position - position, predictions

    def columns(self, predictions: NDArray[Any]) -> dict[str, Any]:
        import pyarrow as pa

        flat = pa.array(np.ascontiguousarray(predictions).reshape(-1))
        return {f"learners from {self.begin}": pa.FixedSizeListArray.from_arrays(flat, self.K)}


class ClusterLearner(Cluster):
    """K learners of one rule on one stream of features, divided into shards: ``Learner`` on several machines.

    Each shard is an ordinary ``Learner`` in a Ray actor. Results are bit-for-bit identical to those of the same shards
    in one process (``emphatic.cluster.local``) and, if ``exact``, to those of one Learner. A learner that diverges is
    frozen.

    Args:
        rule: As for ``Learner``.
        n: The number of features.
        K: The number of learners.
        shards: The number of shards; one per node by default.
        address: host:port of a Ray cluster's head node; without one, Ray is started on this machine, and stopped at the
            end.
        storage: A folder that all nodes reach by the same path. Shards save checkpoints there, and after a failure they
            continue from it bit for bit. If it holds a run with the same set-up, that run continues; ``position``
            is its next row.
        dtype: As for ``Learner``.
        engine: It is chosen before learners are divided, never in a shard; "auto" assumes features that are not sparse.
        stepsize: As for ``Learner``; an option may have one number for each of the K learners.
        threads: The threads that a shard may use, and the CPUs that it gets.
        block: The steps of a block; its features are sent once to each node.
        ahead: The largest number of blocks by which the fastest shard may be ahead of the slowest.
        checkpoint_every: How often shards save checkpoints, in seconds or as a duration.
        resume: True requires a run in the storage to continue, False requires that there is none.

    >>> import numpy as np
    >>> from emphatic.cluster import local
    >>> with local("true_online_td", 1, 4, shards=2, engine="dense") as learner:
    ...     predictions = learner.run(np.ones((4, 1)), [1.0, 1.0, 1.0], 0.5, alpha=[[0.5, 0.5, 0.25, 0.25]])
    >>> predictions[:, 0]
    array([0.   , 0.5  , 0.875])
    """

    def __init__(
        self,
        rule: str | AnyRule,
        n: int,
        K: int,
        *,
        shards: int | None = None,
        address: str | None = None,
        storage: str | os.PathLike[str] | None = None,
        dtype: str = "float64",
        engine: str = "auto",
        stepsize: str | StepSize | Mapping[str, Any] | None = None,
        threads: int | None = None,
        block: int = BLOCK,
        ahead: int = 4,
        checkpoint_every: str | float = "30s",
        resume: bool | None = None,
    ) -> None:
        n, K = whole("n", n, "ClusterLearner"), whole("K", K, "ClusterLearner")
        method = None if stepsize is None else stepsizes.get(stepsize)
        if method is not None:
            _check_options(method, K)
        # Say at once what is wrong with any of them.
        of_one: dict[str, Any] = {"dtype": dtype, "stepsize": method and method.select(np.arange(1))}
        stepped = Learner(rule, n, 1, engine="reference", **of_one).rule
        elementwise = isinstance(stepped, ElementwiseRule)
        name = engines.choose(n, K, block, None, stepped) if engine == "auto" else engine
        here = "dense" if name.startswith("cuda") and not elementwise else name  # (cuda need not be installed here)
        probe = Learner(rule, n, 1, engine=here, **of_one)
        self.rule, self.n, self.K, self.dtype, self.engine = probe.rule, n, K, probe.dtype, name
        base = self.rule.base
        setup = {"kind": "learner", "rule": base.name, "n": n, "K": K, "dtype": self.dtype, "engine": name}
        if method is not None:
            setup["stepsize"] = method.config()
        self._method = method
        super().__init__(setup, shards, address, storage, name, block, ahead, checkpoint_every, threads, resume)
        try:
            cuts = cut(K, self._shards, block, grain(self.rule, n, self.dtype, name))
        except ValueError:
            self.close()
            raise
        self._cuts, self._exact = list(cuts), cuts.exact
        kind = {"dtype": self.dtype, "engine": name, "threads": self._threads}
        models = []
        for share in cuts:
            of = {} if method is None else {"stepsize": method.select(np.arange(share.start, share.stop))}
            named = base if rules.is_own(base) else base.name
            models.append(_LearnerPart(named, n, share.stop - share.start, share.start, kind | of))
        self._launch(models, {"cuts": [share.start for share in cuts]})

    def run(
        self,
        Phi: Any,
        R: ArrayLike,
        gamma_next: ArrayLike,
        *,
        Phi_next: Any = None,
        first: ArrayLike | None = None,
        predictions: Predictions | bool = "driver",
        **parameters: Any,
    ) -> Any:
        """``Learner.run``, in blocks: the predictions (T, K), made before each update, if they go to the "driver".

        Args:
            Phi: As for ``Learner.run``.
            R: As for ``Learner.run``.
            gamma_next: As for ``Learner.run``.
            Phi_next: As for ``Learner.run``.
            first: As for ``Learner.run``.
            predictions: With "shard", each shard writes those of its own learners to ``predictions-00003.parquet`` in
                the storage: a column ``row`` and one of lists. None disables predictions.
            parameters: Further parameters of ``Learner.run``.
        """
        mode: Predictions = "driver" if predictions is True else None if predictions is False else predictions
        T = _length(Phi) - (Phi_next is None)
        if T < 0:
            raise refusal("Phi", "run", "have T + 1 rows for T steps, so at least one", "none")
        whole_log = {"R": R, "gamma_next": gamma_next} | parameters
        named = {name: _series(name, value, T, self.K) for name, value in whole_log.items()}
        if first is None and Phi_next is not None:
            self._warn_of_sequences(Phi, Phi_next, gamma_next, T, stacklevel=4)
        breaks = np.zeros(T, bool) if first is None else mask("first", first, "run", T)

        def blocks() -> Iterator[Mapping[str, Any]]:
            for begin in range(0, T, self._block):
                end = min(T, begin + self._block)
                block = {name: p[begin:end] if np.ndim(p) and len(p) == T else p for name, p in named.items()}
                block["Phi"] = Phi[begin : end + (Phi_next is None)]
                if Phi_next is not None:
                    block["Phi_next"] = Phi_next[begin:end]
                if Phi_next is not None or first is not None:
                    block["first"] = breaks[begin:end]
                yield block

        answers = [block for block in self.stream(blocks(), predictions=mode) if block is not None]
        if mode != "driver":
            return None
        return np.concatenate(answers) if answers else np.empty((0, self.K), self.dtype)

    def _warn_of_sequences(self, Phi: Any, Phi_next: Any, gamma_next: Any, T: int, stacklevel: int) -> bool:
        """Warn as ``Learner.run`` does, here and not in every shard; returns whether there was something to warn of."""
        if self.rule.base.free_next:
            return False
        read = partial(inputs.features, function="run", n=self.n, dtype=self.dtype)
        phi, phi_next, _ = inputs.log_features(read, Phi, Phi_next)
        gamma = inputs.series("run", T, self.K, self.rule, "gamma_next", gamma_next)
        t = inputs.first_discontinuity(phi, phi_next, gamma, self.n)
        if t >= 0:
            inputs.warn_of_sequences(t, self.rule.base, stacklevel)
        return t >= 0

    def stream(
        self,
        blocks: Iterable[Mapping[str, Any] | None] | Callable[[int], Iterable[Mapping[str, Any] | None]],
        *,
        predictions: Predictions = "driver",
        on_checkpoint: OnCheckpoint | None = None,
    ) -> Iterator[Any]:
        """Learn from blocks as they arrive, each with the arguments of ``Learner.run``; yields predictions, in order.

        If sequences are not marked, it warns once, with the step in the first block that has such a sequence.

        Args:
            blocks: Any iterable, in order, or a function of the first step's number that gives one, for a run that may
                be resumed. None among them is a gap: ``cut``.
            predictions: As for ``run``.
            on_checkpoint: Called with a number of steps just before the manifest advances to it. Its return value,
                which JSON must be able to hold, is then ``more``.
        """
        parcels = self._parcels(numbered(blocks, self.position))
        for answers in self._stream(parcels, predictions, on_checkpoint):
            yield np.concatenate(answers, axis=1) if predictions == "driver" else None

    @property
    def theta(self) -> NDArray[Any]:
        """θ of all learners, (K, n), in the memory of this process."""
        return np.concatenate(self._read("theta"))

    @property
    def frozen(self) -> NDArray[np.bool_]:
        """Which learners are frozen because they would have diverged, (K,)."""
        return np.concatenate(self._read("frozen"))

    def gather(self) -> Learner:
        """All learners as one, in this process, as they were saved last."""
        driver = self._running()
        name = f"{driver.manifest.block:012d}-{driver.manifest.session}.safetensors"
        rule = self.rule.base
        if driver.manifest.block == 0:
            return Learner(rule, self.n, self.K, dtype=self.dtype, engine=self.engine, stepsize=self._method)
        files = [self.storage / f"shard-{shard:05d}" / name for shard in range(self._shards)]
        return join([Learner.load_with(path, rule=rule)[0] for path in files])

    def __repr__(self) -> str:
        kind = f"K={self.K}, dtype={self.dtype!r}, engine={self.engine!r}, shards={self._shards}"
        return f"ClusterLearner({self.rule.base.name!r}, n={self.n}, {kind})"

    def _parcels(self, blocks: Iterator[Mapping[str, Any] | None]) -> Iterator[Parcel | None]:
        """Each block as it is sent, with a mask where shards would look for sequences that nothing marks."""
        warned = False
        for block in blocks:
            if block is None:
                yield None
                continue
            parcel = self._parcel(block)
            shared = parcel.shared
            if "Phi_next" in shared and "first" not in shared:
                if not warned and "gamma_next" in block:
                    arguments = (shared["Phi"], shared["Phi_next"], block["gamma_next"], parcel.rows)
                    warned = self._warn_of_sequences(*arguments, stacklevel=8)  # (who iterates over ``stream``)
                shared["first"] = np.zeros(parcel.rows, bool)
            yield parcel

    def _parcel(self, block: Mapping[str, Any]) -> Parcel:
        """What all shards are sent, and each one's own columns."""
        if "Phi" not in block:
            raise refusal("blocks", "stream", "have 'Phi', and the other arguments of Learner.run", repr(list(block)))
        shared = {name: value for name, value in block.items() if name in _SHARED and value is not None}
        T = _length(block["Phi"]) - ("Phi_next" not in shared)
        series = {name: _series(name, p, T, self.K) for name, p in block.items() if name not in _SHARED}
        nbytes = sum(_bytes(value) for value in (*shared.values(), *series.values()))
        if self._running().backend.is_in_one_place:
            series = {name: _together(p) for name, p in series.items()}
            return Parcel(T, shared | series, [None] * self._shards, nbytes)
        of_shard = [{name: _together(_columns(p, share)) for name, p in series.items()} for share in self._cuts]
        return Parcel(T, shared, of_shard, nbytes)


def numbered(blocks: Iterable[Any] | Callable[[int], Iterable[Any]], position: int) -> Iterator[Any]:
    """Blocks as an iterator: those that are given, or what a function of the first row's number gives."""
    return iter(blocks(position) if callable(blocks) else blocks)


def _check_options(method: StepSize, K: int) -> None:
    """The options of a step size are numbers, or one for each of all the learners."""
    for value in method.options().values():
        if np.ndim(value) and np.shape(value) != (K,):
            wanted = "have numbers, or one for each of K learners, in its options"
            raise refusal("stepsize", "ClusterLearner", wanted, f"an array of shape {np.shape(value)}, K={K}")


def _length(Phi: Any) -> int:
    return len(Phi) if isinstance(Phi, Active) or not hasattr(Phi, "shape") else int(Phi.shape[0])


def _series(name: str, value: Any, T: int, K: int) -> Any:
    """A parameter as a number, (T, 1), (1, K) or (T, K): what a shard is sent must not be ambiguous there."""
    if isinstance(value, str) or not hasattr(value, "__len__"):
        return value
    array = np.asarray(value)
    if array.ndim == 1:
        if len(array) == T == K:
            raise refusal(name, "run", f"be (T, 1) or (1, K) where T = K = {T}", f"shape {array.shape}")
        if len(array) not in (T, K):
            raise refusal(
                name, "run", f"be a number, (T,), (K,) or (T, K) with T = {T}, K = {K}", f"shape {array.shape}"
            )
        return array[:, None] if len(array) == T else array[None]
    if array.ndim != 2 or array.shape[0] not in (1, T) or array.shape[1] not in (1, K):
        raise refusal(name, "run", f"be a number, (T,), (K,) or (T, K) with T = {T}, K = {K}", f"shape {array.shape}")
    return array


def _columns(value: Any, part: slice) -> Any:
    """The columns of some learners, as a view."""
    return value if np.ndim(value) < 2 or np.shape(value)[1] == 1 else value[:, part]


def _together(value: ArrayLike) -> ArrayLike:
    """An array in one piece of memory, as Ray can send it without another copy."""
    return np.ascontiguousarray(value) if np.ndim(value) else value


def _bytes(value: object) -> int:
    if isinstance(value, Active):
        return value.indices.nbytes + value.values.nbytes
    return int(getattr(value, "nbytes", 8))
