"""What a horde holds for its weights, and what ``run`` takes besides while it runs."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import numpy as np

from benchmarks.cases import Effort
from benchmarks.hordes.check import against_reference, by_run, first, new_learner
from benchmarks.hordes.streams import Horde
from benchmarks.measure import Gate, gate
from benchmarks.report import Row


def measured(stream: Horde, engine: str) -> tuple[Any, int, int]:
    """A learner that has run, the bytes of the arrays it was made with, and the most that its run had besides."""
    Phi, arguments, short = stream.Phi, stream.arguments, first(stream, 20)
    # Imports, compiles and what a process keeps for the next run of the same kind are not the learner's.
    new_learner(short, engine).run(short.Phi, **short.arguments, predictions=False)
    tracemalloc.start()
    try:
        learner = new_learner(stream, engine)
        arrays = tracemalloc.DomainFilter(True, np.lib.tracemalloc_domain)
        made = sum(trace.size for trace in tracemalloc.take_snapshot().filter_traces([arrays]).traces)
        before, _ = tracemalloc.get_traced_memory()
        tracemalloc.reset_peak()
        learner.run(Phi, **arguments, predictions=False)
        _, peak = tracemalloc.get_traced_memory()
        return learner, made, peak - before
    finally:
        tracemalloc.stop()


@dataclass(frozen=True)
class HordeBytes:
    """``nbytes`` over the m·K·n numbers that there are to learn with, and the peak of ``run`` in the same measure."""

    stream: Horde
    at_most: float

    def kinds(self) -> Iterator[tuple[str, str]]:
        yield from product(("dense", "chunked"), ("float64", "float32"))

    def gates(self) -> Iterator[Gate]:
        for engine, dtype in self.kinds():
            stream = replace(self.stream, dtype=dtype)
            learner, made, _ = measured(stream, engine)
            name = f"bytes of a horde, {engine}, {dtype}"
            yield gate(
                name, np.array([float(learner.nbytes)]), np.array([float(made)]), 0.02
            )  # the last δ are no state
            yield from against_reference(f"{name}, what it learned", first(stream, 150), by_run(engine))

    def rows(self, effort: Effort) -> Iterator[Row]:
        for engine, dtype in self.kinds():
            learner, _, besides = measured(replace(self.stream, dtype=dtype), engine)
            numbers = len(learner.rule.vectors) * self.stream.K * self.stream.n * np.dtype(dtype).itemsize
            for what, size, limit in (
                ("state", learner.nbytes, self.at_most),
                ("besides, while run runs", besides, None),
            ):
                yield Row(
                    f"memory, {self.stream.what}; ratio is to the m·K·n numbers of the vectors",
                    f"{engine}, {dtype}, {what}",
                    gates=(f"bytes of a horde, {engine}, {dtype}",),
                    ours=size / 2**20,
                    alternative=numbers / 2**20,
                    versus="vectors",
                    unit="MiB",
                    ratio=size / numbers,
                    at_most=limit,
                )
