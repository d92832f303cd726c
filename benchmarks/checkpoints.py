"""What it takes to save a horde and to load it again."""

from __future__ import annotations

import tempfile
import tracemalloc
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

import emphatic
from benchmarks.cases import RULE, Effort
from benchmarks.measure import Gate, gate
from benchmarks.report import Row


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
