"""``run`` for many learners: at what part of a matrix product's rate, and beside NumPy over all learners."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from benchmarks.cases import Effort
from benchmarks.hordes.alternatives import NumPyHorde
from benchmarks.hordes.check import against_reference, all_alike, by_run, first, new_learner
from benchmarks.hordes.streams import Array, Horde
from benchmarks.measure import Gate, Side, fastest
from benchmarks.report import Row

BLOCK = 256  # learners: the fastest for NumPy of 64, 256, 1024 at n = 1024 in float64


def by_numpy(stream: Horde) -> tuple[Array, Array]:
    other = NumPyHorde(stream.n, stream.K, stream.dtype, _block(stream))
    predictions = other.run(stream)
    return other.theta, predictions


def _block(stream: Horde) -> int:
    return BLOCK if stream.n > BLOCK else stream.K


def running(stream: Horde, learner: Any) -> Side:
    return Side(lambda: learner.run(stream.Phi, **stream.arguments), stream.T)


def running_numpy(stream: Horde) -> Side:
    other = NumPyHorde(stream.n, stream.K, stream.dtype, _block(stream))
    return Side(lambda: other.run(stream), stream.T)


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
        sides = {"chunked": by_run("chunked"), "dense": by_run("dense"), "NumPy": by_numpy}
        for side, learn in sides.items():
            yield from against_reference(f"{self.name}: {side}", start, learn)
        yield all_alike(f"{self.name}: chunked", start, by_run("chunked"), by_numpy)

    def rows(self, effort: Effort) -> Iterator[Row]:
        stream, short = replace(self.stream), first(self.stream, 20)
        square = np.random.default_rng(6).standard_normal((self.size, self.size)).astype(stream.dtype)
        out = np.empty_like(square)
        sides = {
            "chunked": running(stream, new_learner(stream, "chunked")),
            "product": Side(lambda: np.matmul(square, square, out), 2 * self.size**3),
            "dense": running(short, new_learner(short, "dense")),
            "NumPy": running_numpy(short),
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
        for side, versus in (("dense", "our dense engine"), ("NumPy", "NumPy")):
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
        for side, learn in {"ours": by_run("auto"), "NumPy": by_numpy}.items():
            yield from against_reference(f"{self.name}: {side}", self.stream, learn)
        yield all_alike(f"{self.name}: ours", self.stream, by_run("auto"), by_numpy)

    def rows(self, effort: Effort) -> Iterator[Row]:
        stream = replace(self.stream)
        learner = new_learner(stream)
        µs = fastest({"ours": running(stream, learner), "NumPy": running_numpy(stream)}, effort.rounds, effort.seconds)
        yield Row(
            f"run, {stream.what}, {stream.dtype}; a step of all learners",
            stream.varies,
            gates=tuple(f"{self.name}: {side}" for side in ("ours", "ours, every learner", "NumPy")),
            ours=µs["ours"],
            alternative=µs["NumPy"],
            versus="NumPy",
            ratio=µs["NumPy"] / µs["ours"],
            at_least=self.at_least,
            note=learner.engine,
        )
