"""K learners of one rule, cut into shards."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from emphatic import engines, rules, stepsizes
from emphatic.cluster.base import BLOCK, Cluster, OnCheckpoint, Predictions, numbered
from emphatic.cluster.cuts import cut, grain
from emphatic.cluster.driver import Parcel
from emphatic.learning.inputs import Active, refusal, whole
from emphatic.learning.learner import Learner, join
from emphatic.rules import ElementwiseRule
from emphatic.stepsizes import StepSize

__all__ = ["ClusterLearner"]

#: What all shards are sent alike; of everything else each has its own columns.
_SHARED = ("Phi", "Phi_next")


@dataclass(frozen=True)
class _LearnerPart:
    """The ``ShardPart`` of some of the learners, from ``first`` on."""

    rule: Any
    n: int
    K: int
    first: int
    kind: Mapping[str, Any]

    def make(self) -> Learner:
        return Learner(self.rule, self.n, self.K, **self.kind)

    def load(self, path: Path) -> tuple[Learner, dict[str, Any]]:
        return Learner.load_with(path, rule=None if isinstance(self.rule, str) else self.rule)

    def learn(self, model: Learner, shared: Any, own: Any, predict: bool) -> tuple[int, Any]:
        before = model.position
        made = model.run(**shared, **own, predictions=predict, on_divergence="freeze")
        return model.position - before, made

    def columns(self, predictions: NDArray[Any]) -> dict[str, Any]:
        import pyarrow as pa

        flat = pa.array(np.ascontiguousarray(predictions).reshape(-1))
        return {f"learners from {self.first}": pa.FixedSizeListArray.from_arrays(flat, self.K)}


class ClusterLearner(Cluster):
    """K learners of one rule on one stream of features, cut into shards: ``Learner`` beyond one machine.

    Each of ``shards`` (default: one a node) is an ordinary ``Learner`` in a Ray actor. ``address`` is host:port of a
    Ray cluster's head node; without one, a Ray is started on this machine, and stopped again. ``storage`` is a folder
    that all nodes share by the same path: shards save themselves there ``checkpoint_every`` so often, and after a death
    go on from it, with the same bits. If it holds a run of the same set-up, that goes on (``resume``: True insists on
    one, False on none); ``position`` says from which row.

    ``rule`` and ``stepsize`` are as for ``Learner``; an option of the step size may have one number for each of the K
    learners. ``engine`` is decided here and never in a shard; "auto" chooses as for features that are not sparse.
    ``threads`` is what a shard may use, and how many CPUs it is given. Blocks of ``block`` steps are sent, the features
    once a node; the fastest shard is at most ``ahead`` of them ahead of the slowest. Where ``exact`` the bits are those
    of one Learner, else of the same shards in one process, ``emphatic.cluster.local``. A learner that diverges is
    frozen.

    >>> import numpy as np
    >>> from emphatic.cluster import local
    >>> with local("true_online_td", 1, 4, shards=2, engine="dense") as learner:
    ...     predictions = learner.run(np.ones((4, 1)), [1.0, 1.0, 1.0], 0.5, alpha=[[0.5, 0.5, 0.25, 0.25]])
    >>> predictions[:, 0]
    array([0.   , 0.5  , 0.875])
    """

    def __init__(
        self,
        rule: Any,
        n: int,
        K: int,
        *,
        shards: int | None = None,
        address: str | None = None,
        storage: str | os.PathLike[str] | None = None,
        dtype: str = "float64",
        engine: str = "auto",
        stepsize: Any = None,
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
        name = engines.choose(n, K, block, None, elementwise=elementwise) if engine == "auto" else engine
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
        self._parts, self._exact = list(cuts), cuts.exact
        kind = {"dtype": self.dtype, "engine": name, "threads": self._threads}
        parts = []
        for part in cuts:
            of = {} if method is None else {"stepsize": method.select(np.arange(part.start, part.stop))}
            named = base if rules.is_own(base) else base.name
            parts.append(_LearnerPart(named, n, part.stop - part.start, part.start, kind | of))
        self._launch(parts, {"cuts": [part.start for part in cuts]})

    def run(
        self, Phi: Any, R: Any, gamma_next: Any, *, Phi_next: Any = None, predictions: Predictions | bool = "driver",
        **parameters: Any,
    ) -> Any:  # fmt: skip
        """``Learner.run``, in blocks: the predictions (T, K), made before each update, if they go to the "driver".

        With "shard" each shard keeps those of its own learners, in ``predictions-00003.parquet`` in the storage: a
        column ``row`` and one of lists. None makes none.
        """
        mode: Any = "driver" if predictions is True else None if predictions is False else predictions
        T = _length(Phi) - (Phi_next is None)
        if T < 0:
            raise refusal("Phi", "run", "have T + 1 rows for T steps, so at least one", "none")
        whole_log = {"R": R, "gamma_next": gamma_next} | parameters
        named = {name: _series(name, value, T, self.K) for name, value in whole_log.items()}

        def blocks() -> Iterator[Mapping[str, Any]]:
            for begin in range(0, T, self._block):
                end = min(T, begin + self._block)
                block = {name: p[begin:end] if np.ndim(p) and len(p) == T else p for name, p in named.items()}
                block["Phi"] = Phi[begin : end + (Phi_next is None)]
                if Phi_next is not None:
                    block["Phi_next"] = Phi_next[begin:end]
                yield block

        made = [block for block in self.stream(blocks(), predictions=mode) if block is not None]
        if mode != "driver":
            return None
        return np.concatenate(made) if made else np.empty((0, self.K), self.dtype)

    def stream(
        self,
        blocks: Iterable[Mapping[str, Any] | None] | Callable[[int], Iterable[Mapping[str, Any] | None]],
        *,
        predictions: Predictions = "driver",
        on_checkpoint: OnCheckpoint | None = None,
    ) -> Iterator[Any]:
        """Learn from blocks as they come, each the arguments of ``Learner.run``; each one's predictions, in order.

        ``blocks`` is any iterable, in order, or a function of the first step's number that gives one, for a run that
        may be resumed. None among them is a gap: ``cut``. Before the manifest moves on to a number of steps,
        ``on_checkpoint`` is called with it; what it returns, which JSON must be able to hold, is then ``more``.
        """
        parcels = (None if block is None else self._parcel(block) for block in numbered(blocks, self.position))
        for answers in self._stream(parcels, predictions, on_checkpoint):
            yield np.concatenate(answers, axis=1) if predictions == "driver" else None

    @property
    def theta(self) -> NDArray[Any]:
        """θ of all learners, (K, n): as large as that is."""
        return np.concatenate(self._read("theta"))

    @property
    def frozen(self) -> NDArray[np.bool_]:
        """Which learners stand still since they would have diverged, (K,)."""
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

    def _parcel(self, block: Mapping[str, Any]) -> Parcel:
        """What all shards are sent, and each one's own columns."""
        if "Phi" not in block:
            raise refusal("blocks", "stream", "have 'Phi', and the other arguments of Learner.run", repr(list(block)))
        shared = {name: value for name, value in block.items() if name in _SHARED and value is not None}
        T = _length(block["Phi"]) - ("Phi_next" not in shared)
        rest = {name: _series(name, p, T, self.K) for name, p in block.items() if name not in _SHARED}
        own = [{name: _columns(p, part) for name, p in rest.items()} for part in self._parts]
        nbytes = sum(_bytes(value) for value in (*shared.values(), *rest.values()))
        return Parcel(T, shared, own, nbytes)


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
    if np.ndim(value) < 2 or np.shape(value)[1] == 1:
        return value
    return np.ascontiguousarray(value[:, part])


def _bytes(value: Any) -> int:
    if isinstance(value, Active):
        return value.indices.nbytes + value.values.nbytes
    return int(getattr(value, "nbytes", 8))
