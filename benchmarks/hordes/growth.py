"""What a step costs a learner, as each size grows on its own."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from benchmarks.cases import RULE, Effort
from benchmarks.hordes.check import against_reference, by_run, first, new_learner
from benchmarks.hordes.runs import running
from benchmarks.hordes.streams import Array, Horde
from benchmarks.measure import Gate, Side, fastest
from benchmarks.report import Row
from emphatic import rules
from emphatic.engines.base import Watch
from emphatic.engines.chunked import Chunked


@dataclass(frozen=True)
class Growth:
    """``run`` on one engine at one size."""

    along: str
    engine: str
    stream: Horde

    @property
    def what(self) -> str:
        return f"{self.engine}: {self.stream.what}"

    @property
    def name(self) -> str:
        return f"growth with {self.along}, {self.what}"

    def gates(self) -> Iterator[Gate]:
        yield from against_reference(self.name, first(self.stream, 150), by_run(self.engine))

    def rows(self, effort: Effort) -> Iterator[Row]:
        stream = replace(self.stream)
        µs = fastest({"ours": running(stream, new_learner(stream, self.engine))}, effort.rounds, effort.seconds / 3)
        yield growth_row(self.along, self.what, self.name, µs["ours"] / stream.K)


def growth_row(along: str, what: str, name: str, µs: float) -> Row:
    return Row(f"run, growth with {along}; a step of one learner", what, gates=(name,), ours=1e3 * µs, unit="ns")


def chunked(stream: Horde, length: int) -> Chunked:
    """The chunked engine with chunks of another length."""
    engine = type("", (Chunked,), {"length": length})(rules.get(RULE), stream.n, stream.K, stream.dtype)
    assert isinstance(engine, Chunked)
    return engine


def run_engine(engine: Chunked, stream: Horde) -> Array:
    """What ``Learner.run`` does once the input is known to be good."""
    Phi, top = stream.dense, float(np.abs(stream.dense).max())
    parameters = tuple(np.broadcast_to(stream.parameters[name], (stream.T, stream.K)) for name in ORDER)
    predictions = np.empty((stream.T, stream.K), stream.dtype)
    status = engine.run(Phi[:-1], Phi[1:], top, parameters, predictions, Watch(np.zeros(stream.K, bool)))
    assert status == -1
    return predictions


ORDER = rules.get(RULE).parameters


@dataclass(frozen=True)
class ChunkLength:
    """The chunked engine with shorter and longer chunks: longer ones have faster products and more to do between."""

    stream: Horde
    length: int

    @property
    def name(self) -> str:
        return f"growth with the chunk length, {self.length} steps"

    def gates(self) -> Iterator[Gate]:
        def learn(stream: Horde) -> tuple[Array, Array]:
            engine = chunked(stream, self.length)
            predictions = run_engine(engine, stream)
            return engine.vector(0), predictions

        yield from against_reference(self.name, first(self.stream, 2 * self.length + 1), learn)

    def rows(self, effort: Effort) -> Iterator[Row]:
        stream = replace(self.stream)
        engine = chunked(stream, self.length)
        µs = fastest({"ours": Side(lambda: run_engine(engine, stream), stream.T)}, effort.rounds, effort.seconds)
        what = f"chunked: {stream.what}, {self.length} steps a chunk"
        yield growth_row("the chunk length", what, self.name, µs["ours"] / stream.K)
