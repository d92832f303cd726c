"""What a learner holds for each weight."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np

import emphatic
from benchmarks.cases import RULE, Effort
from benchmarks.measure import Gate, gate
from benchmarks.report import Row
from benchmarks.streams import GAMMA, Sparse


def held(engine: str, dtype: str, n: int) -> tuple[Any, int]:
    """A learner that has learned, and the bytes of the NumPy arrays that this left behind."""
    stream = Sparse(n, 2_000, 32, 0.5)
    T = stream.T if engine == "sparse" else 2
    R = stream.R[:T]
    Phi = emphatic.Active(stream.indices) if engine == "sparse" else np.ones((T + 1, n), dtype)
    tracemalloc.start()
    try:
        learner = emphatic.Learner(RULE, n, engine=engine, dtype=dtype)
        learner.run(Phi, R, GAMMA, alpha=1e-9, lambda_=stream.lambda_)
        arrays = tracemalloc.DomainFilter(True, np.lib.tracemalloc_domain)
        traces = tracemalloc.take_snapshot().filter_traces([arrays]).traces
        return learner, sum(trace.size for trace in traces)
    finally:
        tracemalloc.stop()


@dataclass(frozen=True)
class Bytes:
    """``nbytes``, checked against what was really allocated."""

    n: int

    def kinds(self) -> Iterator[tuple[str, str]]:
        yield from product(("dense", "sparse"), ("float64", "float32"))

    def gates(self) -> Iterator[Gate]:
        for engine, dtype in self.kinds():
            held(engine, dtype, 10_000)  # what the first use imports and compiles is not the learner's
            learner, allocated = held(engine, dtype, self.n)
            name = f"bytes, {engine}, {dtype}"
            yield gate(name, np.array([float(learner.nbytes)]), np.array([float(allocated)]), 1e-3)

    def rows(self, effort: Effort) -> Iterator[Row]:
        for engine, dtype in self.kinds():
            learner, _ = held(engine, dtype, self.n)
            each = learner.nbytes / self.n
            yield Row(
                f"memory, n = {self.n:,}; ratio is numbers a weight",
                f"{engine}, {dtype}, a weight",
                gates=(f"bytes, {engine}, {dtype}",),
                ours=each,
                unit="bytes",
                ratio=each / np.dtype(dtype).itemsize,
                at_most=3,
            )
