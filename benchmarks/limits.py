"""What this machine can do on one thread, and how much of it dense ``run`` reaches."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numba
import numpy as np
from numpy.typing import NDArray

import emphatic
from benchmarks.cases import RULE, Effort, by_reference
from benchmarks.measure import Gate, Side, fastest, gate
from benchmarks.report import Row
from benchmarks.streams import Dense

Array = NDArray[np.float64]


def _triad(a: Array, b: Array, c: Array, s: float, times: int) -> None:
    for k in range(times):
        for i in range(a.size):
            a[i] = b[i] + (s + k) * c[i]


triad: Any = numba.njit(fastmath=True)(_triad)
TRIAD_BYTES = 24  # an element: two read, one written

# A step of true online ETD(λ) in two passes, for each feature. Products θ·φ, θ·φ', e·φ, e·φ', φ·φ': 10 flop,
# reads θ, e, φ, φ'. Update θ + a e + q φ and c e + s φ: 7 flop, reads θ, e, φ, writes θ, e. Only φ' comes
# from memory, the rest is in cache from the step before.
STEP_FLOP = 10 + 7
STEP_CACHE_BYTES = 8 * (4 + 5)
STEP_MEMORY_BYTES = 8


def triad_arrays(size: int) -> tuple[Array, Array, Array]:
    rng = np.random.default_rng(5)
    return np.zeros(size), rng.standard_normal(size), rng.standard_normal(size)


@dataclass(frozen=True)
class Limits:
    """Bandwidth from memory and from cache, the rate of a matrix product, and dense ``run`` beside each."""

    n: int
    T: int
    size: int

    @property
    def name(self) -> str:
        return f"limits: run, n = {self.n:,}"

    def gates(self) -> Iterator[Gate]:
        a, b, c = triad_arrays(self.n)
        triad(a, b, c, 2.0, 1)
        yield gate("limits: triad", a, b + 2.0 * c)
        stream = Dense(self.n, self.T)
        learner = emphatic.Learner(RULE, self.n, engine="dense")
        learner.run(stream.Phi, **stream.parameters)
        yield gate(self.name, learner.theta, by_reference(stream.calls, self.n)[0])

    def rows(self, effort: Effort) -> Iterator[Row]:
        stream = Dense(self.n, self.T)
        learner = emphatic.Learner(RULE, self.n, engine="dense")
        memory, cache = (
            triad_arrays(self.size),
            triad_arrays(4 * self.n // 3),
        )  # cache: as large as θ, e, φ, φ'
        square, times = np.random.default_rng(6).standard_normal((512, 512)), 1_000
        sides = {
            "run": Side(lambda: learner.run(stream.Phi, **stream.parameters), self.T),
            "memory": Side(lambda: triad(*memory, 2.0, 1), memory[0].size),
            "cache": Side(lambda: triad(*cache, 2.0, times), times * cache[0].size),
            "product": Side(lambda: square @ square, 2 * 512**3),
        }
        µs = fastest(sides, effort.rounds, effort.seconds)
        for what, each, limit, unit, versus in (
            ("from memory (each φ once)", STEP_MEMORY_BYTES, TRIAD_BYTES / µs["memory"], "GB/s", "triad"),
            ("within the cache", STEP_CACHE_BYTES, TRIAD_BYTES / µs["cache"], "GB/s", "triad in cache"),
            ("arithmetic", STEP_FLOP, 1 / µs["product"], "GFLOP/s", "matrix product"),
        ):
            rate = each * self.n / µs["run"]
            yield Row(
                f"dense run, n = {self.n:,}, beside this machine's limits; ratio is the fraction reached",
                what,
                gates=(self.name, "limits: triad"),
                ours=rate / 1e3,
                alternative=limit / 1e3,
                versus=versus,
                unit=unit,
                ratio=rate / limit,
            )
