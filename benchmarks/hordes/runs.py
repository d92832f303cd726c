"""``run`` for many learners: at what part of a matrix product's rate, and beside NumPy over all learners."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from benchmarks.cases import Effort
from benchmarks.hordes.alternatives import NumPyHorde
from benchmarks.hordes.check import Learn, against_reference, all_alike, by_run, first, new_learner
from benchmarks.hordes.streams import Array, Horde
from benchmarks.hordes.tuned import TunedHorde
from benchmarks.measure import Gate, Side, fastest
from benchmarks.report import Row

BLOCK = 256  # learners: the fastest for tuned NumPy of 64, 256, 1024 at n = 1024 in float64
Other = NumPyHorde | TunedHorde


def _plain(stream: Horde) -> NumPyHorde:
    return NumPyHorde(stream.n, stream.K, stream.dtype)


def _tuned(stream: Horde) -> TunedHorde:
    return TunedHorde(stream.n, stream.K, stream.dtype, BLOCK if stream.n > BLOCK else stream.K)


#: The alternatives by name; targets are held against the first.
NUMPY: dict[str, Callable[[Horde], Other]] = {"NumPy": _plain, "NumPy tuned": _tuned}


def by_numpy(which: str) -> Learn:
    def learn(stream: Horde) -> tuple[Array, Array]:
        other = NUMPY[which](stream)
        predictions = other.run(stream)
        return other.theta, predictions

    return learn


def running(stream: Horde, learner: Any) -> Side:
    return Side(lambda: learner.run(stream.Phi, **stream.arguments), stream.T)


def running_numpy(stream: Horde) -> dict[str, Side]:
    def side(other: Other) -> Side:
        return Side(lambda: other.run(stream), stream.T)

    return {name: side(new(stream)) for name, new in NUMPY.items()}


def blas() -> str:
    """The BLAS that NumPy uses."""
    found = np.show_config(mode="dicts")["Build Dependencies"]["blas"]
    return f"{found['name']} {found['version']}"


@dataclass(frozen=True)
class Rate:
    """The chunked engine beside the best rate of a matrix product, where a step of a learner counts as 8 n flop.

    That is what X Pᵀ and W P take for the two vectors of true online ETD(λ), when a chunk's steps share their φ.
    """

    stream: Horde
    size: int
    at_least: float

    @property
    def name(self) -> str:
        return f"run, {self.stream.what}, {self.stream.dtype}"

    def gates(self) -> Iterator[Gate]:
        start = first(self.stream, 300)  # two chunks and a piece
        sides = {name: by_run(name) for name in ("chunked", "dense")} | {name: by_numpy(name) for name in NUMPY}
        for side, learn in sides.items():
            yield from against_reference(f"{self.name}: {side}", start, learn)
        yield all_alike(f"{self.name}: chunked", start, by_run("chunked"), by_numpy("NumPy"))

    def rows(self, effort: Effort) -> Iterator[Row]:
        stream, short = replace(self.stream), first(self.stream, 20)
        square = np.random.default_rng(6).standard_normal((self.size, self.size)).astype(stream.dtype)
        out = np.empty_like(square)
        sides = {
            "chunked": running(stream, new_learner(stream, "chunked")),
            "product": Side(lambda: np.matmul(square, square, out), 2 * self.size**3),
            "dense": running(short, new_learner(short, "dense")),
            **running_numpy(short),
        }
        µs = fastest(sides, effort.rounds, effort.seconds)
        ours, limit = 8 * stream.n * stream.K / µs["chunked"] / 1e3, 1 / µs["product"] / 1e3
        section = f"run, n = {stream.n:,}, K = {stream.K:,}, chunked; a step of all learners, 8 n flop each"
        yield Row(
            section,
            f"{stream.dtype}, part of a matrix product's rate",
            gates=(f"{self.name}: chunked", f"{self.name}: chunked, every learner"),
            ours=ours,
            alternative=limit,
            versus=f"{self.size:,}³, {blas()}",
            unit="GFLOP/s",
            ratio=ours / limit,
            at_least=self.at_least,
        )
        for side in ("dense", *NUMPY):
            versus = "our dense engine" if side == "dense" else side
            yield Row(
                section,
                f"{stream.dtype}, beside {versus}",
                gates=(f"{self.name}: chunked", f"{self.name}: {side}"),
                ours=µs["chunked"],
                alternative=µs[side],
                versus=versus,
                ratio=µs[side] / µs["chunked"],
            )


@dataclass(frozen=True)
class RunHorde:
    """``run`` on the engine that ``auto`` chooses, beside NumPy over all learners."""

    stream: Horde
    at_least: float | None = None

    @property
    def name(self) -> str:
        return f"run, {self.stream.what}, {self.stream.varies}"

    def gates(self) -> Iterator[Gate]:
        for side, learn in {"ours": by_run("auto"), **{name: by_numpy(name) for name in NUMPY}}.items():
            yield from against_reference(f"{self.name}: {side}", self.stream, learn)
        yield all_alike(f"{self.name}: ours", self.stream, by_run("auto"), by_numpy("NumPy"))

    def rows(self, effort: Effort) -> Iterator[Row]:
        stream = replace(self.stream)
        learner = new_learner(stream)
        µs = fastest({"ours": running(stream, learner), **running_numpy(stream)}, effort.rounds, effort.seconds)
        for versus in NUMPY:
            yield Row(
                f"run, {stream.what}, {stream.dtype}; a step of all learners",
                stream.varies,
                gates=tuple(f"{self.name}: {side}" for side in ("ours", "ours, every learner", versus)),
                ours=µs["ours"],
                alternative=µs[versus],
                versus=versus,
                ratio=µs[versus] / µs["ours"],
                at_least=self.at_least if versus == "NumPy" else None,
                note=learner.engine,
            )
