"""The threads suite: what is faster on two cores, and what is not. ``many_threads`` has the same on up to 16."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from time import perf_counter
from typing import Any

import numba
import numpy as np
import pyarrow.parquet as pq
from numpy.typing import NDArray

import emphatic
from benchmarks.cases import RULE, Effort, run_cases
from benchmarks.measure import Gate, Side, fastest, gate
from benchmarks.report import Layout, Row
from benchmarks.studies.collision import GRID
from emphatic.studies.sweeps import sweep

#: What a thread of the others is worth where arithmetic binds: two are to be 1.7 times as fast as one.
AT_LEAST = {2: 1.7}
LAYOUT = Layout(
    columns=("what", "N threads", "one thread", "times as fast", "target", "reached"),
    how="Each time is the least over several rounds in which all numbers of threads take turns; BLAS has one thread.",
    threads="as each row says",
)


def run(quick: bool = False) -> tuple[list[Gate], list[Row]]:
    """Every gate and every row; ``quick`` only shows that the suite works."""
    swept = [] if quick else [Swept((1, 2), 16, 1_000)]
    return run_cases([*cases(quick, (1, 2)), *swept], effort(quick))


def effort(quick: bool) -> Effort:
    return Effort(1, 0.0) if quick else Effort(5, 0.1)


def cases(quick: bool, counts: Sequence[int]) -> list[Any]:
    """Hordes, memory and a whole command with so many threads."""
    sizes = [
        ("where arithmetic binds", "chunked", 4_096, 256, 508, None, "float64"),
        ("where arithmetic binds", "chunked", 1_024, 1_024, 254, None, "float32"),
        ("where arithmetic binds", "chunked", 10_000, 1_024, 127, None, "float32"),
        ("engines that use one thread", "dense", 1_000, 6, 512, None, "float64"),
        ("engines that use one thread", "dense", 64, 1_000, 60, None, "float64"),
        ("engines that use one thread", "sparse", 100, 10_000, 500, 32, "float64"),
    ]
    if quick:
        sizes = [("where arithmetic binds", "chunked", 520, 8, 130, None, "float64")]
    hordes = [Horde(counts, *size) for size in sizes]
    memory = Memory(counts, 1 << (12 if quick else 25))
    return [*hordes, memory] if quick else [*hordes, memory, Whole(20_000)]


@dataclass(frozen=True)
class Horde:
    """``run`` of K learners with so many threads."""

    counts: Sequence[int]
    section: str
    engine: str
    K: int
    n: int
    T: int
    active: int | None
    dtype: str

    @property
    def name(self) -> str:
        active = f", {self.active} active" if self.active else ""
        return f"{self.engine}, K = {self.K:,}, n = {self.n:,}{active}, {self.dtype}"

    def learner(self, threads: int) -> Any:
        return emphatic.Learner(RULE, self.n, self.K, engine=self.engine, dtype=self.dtype, threads=threads)

    def arguments(self) -> dict[str, Any]:
        rng = np.random.default_rng(7)
        given: dict[str, Any] = {
            "alpha": rng.uniform(0.002, 0.02, (1, self.K)) / (self.active or 1),
            "lambda_": rng.uniform(0.0, 1.0, (1, self.K)),
            "gamma_next": 0.9,
            "R": rng.normal(size=(self.T, 1)),
        }
        if self.active is None:
            return given | {"Phi": (rng.normal(size=(self.T + 1, self.n)) / self.n**0.5).astype(self.dtype)}
        rows = [rng.choice(self.n, self.active, replace=False) for _ in range(self.T + 1)]
        return given | {"Phi": emphatic.Active(np.sort(np.array(rows)))}

    def gates(self) -> Iterator[Gate]:
        arguments = self.arguments()
        one, many = (self.learner(count).run(**arguments) for count in (1, max(self.counts)))
        yield gate(self.name, many, one, 0.0)

    def rows(self, effort: Effort) -> Iterator[Row]:
        arguments = self.arguments()
        learners = {count: self.learner(count) for count in self.counts}
        calls = {str(count): partial(learner.run, predictions=None, **arguments) for count, learner in learners.items()}
        µs = fastest({count: Side(call, self.T) for count, call in calls.items()}, effort.rounds, effort.seconds)
        scales = self.section.startswith("where")
        yield from rows_of(self.section, self.name, self.counts, µs, "µs", AT_LEAST if scales else {})


@dataclass(frozen=True)
class Memory:
    """Numbers copied by so many threads: what all of them together get from memory."""

    counts: Sequence[int]
    size: int

    name = "bandwidth: a copy is its source"

    def copies(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        return np.random.default_rng(8).normal(size=self.size), np.zeros(self.size)

    def gates(self) -> Iterator[Gate]:
        source, target = self.copies()
        copy_all(source, target, max(self.counts))
        yield gate(self.name, target, source, 0.0)

    def rows(self, effort: Effort) -> Iterator[Row]:
        source, target = self.copies()
        sides = {str(n): Side(partial(copy_all, source, target, n), 1) for n in self.counts}
        µs = fastest(sides, effort.rounds, effort.seconds)
        rates = {n: 16e-3 * self.size / taken for n, taken in µs.items()}
        yield from rows_of("memory: bytes read and written a second", self.name, self.counts, rates, "GB/s", {})


def copy_all(source: NDArray[np.float64], target: NDArray[np.float64], threads: int) -> None:
    """Copy with so many threads, a share each."""
    cuts = np.linspace(0, source.size, threads + 1).astype(int).tolist()
    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(lambda i: copy_share(source, target, cuts[i], cuts[i + 1]), range(threads)))


def _copy_share(source: NDArray[np.float64], target: NDArray[np.float64], begin: int, end: int) -> None:
    for i in range(begin, end):
        target[i] = source[i]


copy_share: Any = numba.njit(nogil=True)(_copy_share)


@dataclass(frozen=True)
class Whole:
    """``emphatic nexting`` on part of the household's log, with the values at each horizon and without."""

    T: int

    def name(self, exponential_only: bool) -> str:
        return f"nexting, {self.T:,} rows of the household{', exponential only' if exponential_only else ''}"

    def measure(self, threads: int, exponential_only: bool, T: int) -> tuple[float, NDArray[np.float64]]:
        log = pq.read_table(emphatic.data.household())[:T]
        with tempfile.TemporaryDirectory() as out:
            began = perf_counter()
            result = emphatic.nexting.run(log, exponential_only=exponential_only, out=out, threads=threads)
            seconds = perf_counter() - began
            return seconds, np.column_stack([result.predictions[name].to_numpy() for name in result.model.names])

    def gates(self) -> Iterator[Gate]:
        for exponential_only in (False, True):
            one, two = (self.measure(count, exponential_only, 1_200)[1] for count in (1, 2))
            yield gate(self.name(exponential_only), two, one, 0.0)

    def rows(self, effort: Effort) -> Iterator[Row]:
        section = "a whole command; `nexting` uses two threads at most"
        for exponential_only in (False, True):
            seconds = {str(count): self.measure(count, exponential_only, self.T)[0] for count in (1, 2)}
            yield from rows_of(section, self.name(exponential_only), (1, 2), seconds, "s", AT_LEAST)


@dataclass(frozen=True)
class Swept:
    """A sweep by so many processes, after one in which each has started and read its kernels."""

    counts: Sequence[int]
    runs: int
    steps: int

    @property
    def name(self) -> str:
        return f"sweep of the collision study, {self.runs} runs of {self.steps:,} steps"

    def errors(self, processes: int, steps: int) -> NDArray[np.float64]:
        """The mean error of each setting; −1 where it diverged."""
        mean = np.asarray(sweep("collision", GRID, runs=self.runs, steps=steps, jobs=processes).mean)
        return np.where(np.isfinite(mean), mean, -1.0)

    def gates(self) -> Iterator[Gate]:
        one, many = (self.errors(count, 20) for count in (1, max(self.counts)))
        yield gate(self.name, many, one, 0.0)

    def rows(self, effort: Effort) -> Iterator[Row]:
        seconds = {}
        for count in self.counts:
            self.errors(count, self.steps)  # (some kernels are needed only where a setting diverges)
            began = perf_counter()
            self.errors(count, self.steps)
            seconds[str(count)] = perf_counter() - began
        yield from rows_of("a sweep, by processes", self.name, self.counts, seconds, "s", AT_LEAST)


def rows_of(
    section: str, name: str, counts: Sequence[int], measured: dict[str, float], unit: str, targets: dict[int, float]
) -> Iterator[Row]:
    """A row for each number of threads but one; a rate is better if it is larger, a time if it is smaller."""
    one = measured["1"]
    for count in counts[1:]:
        many = measured[str(count)]
        yield Row(
            section,
            f"{name}, {count} threads",
            gates=(name,),
            ours=many,
            alternative=one,
            unit=unit,
            ratio=many / one if unit == "GB/s" else one / many,
            at_least=targets.get(count),
        )
