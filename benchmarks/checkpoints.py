"""What it takes to save a horde and to load it again."""

from __future__ import annotations

import tempfile
import tracemalloc
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

import emphatic
from benchmarks.cases import RULE, Effort
from benchmarks.measure import Gate, Side, fastest, gate
from benchmarks.report import Row
from benchmarks.streams import GAMMA, Sparse


def cost(call: Callable[[], Any]) -> tuple[Any, float, int]:
    """What the call returns, the seconds it takes, and the most bytes it holds at a time."""
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        began = perf_counter()
        answer = call()
        seconds = perf_counter() - began
        _, peak = tracemalloc.get_traced_memory()
        return answer, seconds, peak - before
    finally:
        tracemalloc.stop()


@dataclass(frozen=True)
class Checkpoint:
    """K learners of n features in float32, to a file and back."""

    K: int
    n: int

    @property
    def gate(self) -> str:
        return f"save and load, K = {self.K:,}, n = {self.n:,}"

    def horde(self) -> Any:
        horde = emphatic.Learner(RULE, self.n, self.K, dtype="float32", engine="dense")
        horde.theta = np.random.default_rng(0).normal(size=self.n).astype(np.float32)
        return horde

    def gates(self) -> Iterator[Gate]:
        horde = self.horde()
        with tempfile.TemporaryDirectory() as folder:
            horde.save(Path(folder) / "m")
            yield gate(self.gate, emphatic.load(Path(folder) / "m").theta, horde.theta, 0.0)

    def rows(self, effort: Effort) -> Iterator[Row]:
        horde = self.horde()
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "m"
            _, saving, extra_saving = cost(lambda: horde.save(path))
            loaded, loading, held = cost(lambda: emphatic.load(path))
        for what, seconds, extra in (
            ("save", saving, extra_saving),
            ("load", loading, held - loaded.nbytes),
        ):
            yield Row(
                f"checkpoints, K = {self.K:,}, n = {self.n:,}; ratio is memory besides the state, to the state",
                f"{what}, {horde.nbytes / 1e6:,.0f} MB",
                gates=(self.gate,),
                ours=seconds,
                unit="s",
                ratio=extra / horde.nbytes,
                at_most=0.1,
            )


@dataclass(frozen=True)
class SparseCheckpoint:
    """One learner, or K, on the sparse engine in mid-stream: bytes a weight, and the time to load beside dense."""

    n: int
    K: int | None
    T: int
    dtype: str = "float64"

    @property
    def gate(self) -> str:
        return f"save and load, sparse, K = {self.K or 1}, n = {self.n:,}, {self.dtype}"

    def learner(self, engine: str) -> emphatic.Learner:
        """After T steps, with weights that are all different."""
        stream = Sparse(self.n, self.T, 16, 0.9)
        learner = emphatic.Learner(RULE, self.n, self.K, dtype=self.dtype, engine=engine)
        learner.theta = np.random.default_rng(0).normal(size=learner.theta.shape)
        if engine == "sparse":
            self.run(learner, stream)
        return learner

    def run(self, learner: emphatic.Learner, stream: Sparse) -> None:
        phi = emphatic.Active(stream.indices)
        learner.run(phi, stream.R, GAMMA, alpha=stream.alpha, lambda_=stream.lambda_, predictions=False)

    def gates(self) -> Iterator[Gate]:
        learner, stream = self.learner("sparse"), Sparse(self.n, self.T, 16, 0.9)
        with tempfile.TemporaryDirectory() as folder:
            learner.save(Path(folder) / "m")
            loaded = emphatic.load(Path(folder) / "m")
        for each in (learner, loaded):
            self.run(each, stream)
        yield gate(self.gate, loaded.theta, learner.theta, 0.0)

    def rows(self, effort: Effort) -> Iterator[Row]:
        section = f"sparse checkpoints, K = {self.K or 1}, n = {self.n:,}, {self.dtype}, θ and e"
        with tempfile.TemporaryDirectory() as folder:
            paths = {engine: Path(folder) / engine for engine in ("sparse", "dense")}
            for engine, path in paths.items():
                self.learner(engine).save(path)
            weights = self.n * (self.K or 1)
            size = paths["sparse"].stat().st_size / weights
            sides = {engine: Side(partial(emphatic.load, path), 1) for engine, path in paths.items()}
            µs = fastest(sides, effort.rounds, effort.seconds)
        limit = 20.0 if self.dtype == "float64" else 10.5
        yield Row(
            section, "file, bytes a weight", gates=(self.gate,), ours=size, unit="bytes", ratio=size, at_most=limit
        )
        yield Row(
            section,
            "load",
            gates=(self.gate,),
            ours=µs["sparse"] / 1e6,
            alternative=µs["dense"] / 1e6,
            versus="dense",
            unit="s",
            ratio=µs["sparse"] / µs["dense"],
            at_most=2,
        )
