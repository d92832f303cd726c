"""The grids of Ghiassian & Sutton (2021) on the collision task and in Four Rooms, all of them."""

from __future__ import annotations

import multiprocessing
import re
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from time import perf_counter
from typing import Any

from benchmarks.cases import Effort
from benchmarks.measure import Gate
from benchmarks.report import Row
from benchmarks.studies.check import CHECKED, against_reference
from emphatic.studies import Sweep, sweep
from emphatic.studies.sources import Scores
from reproductions.comparisons import BEST, published

GRID: tuple[Mapping[str, Any], ...] = tuple(map(published, BEST))
#: What shows that it works.
SMALL: tuple[Mapping[str, Any], ...] = ({"rule": ["td"], "alpha": "2^-3..2^0", "lambda": [0, 0.5, 1]},)


@dataclass(frozen=True)
class Study:
    """The whole grid and all steps, on ``part`` of the runs; table and page are written. Not counted: compiling."""

    grid: Sequence[Mapping[str, Any]]
    runs: int
    part: int
    steps: int
    jobs: int
    minutes: float
    problem: str = "collision"
    every: int = 1
    tasks: int = 1

    @property
    def name(self) -> str:
        return f"the {self.problem} study"

    def swept(self, runs: int, steps: int, jobs: int, out: str | None = None) -> Sweep:
        return sweep(self.problem, self.grid, runs=runs, steps=steps, every=self.every, jobs=jobs, out=out)

    def gates(self) -> Iterator[Gate]:
        yield from against_reference(self.name, self.swept(1, min(self.steps, CHECKED), 1))

    def rows(self, effort: Effort) -> Iterator[Row]:
        self.swept(2 * self.jobs, 300, self.jobs)  # so that every process has its kernels
        with tempfile.TemporaryDirectory() as folder:
            began = perf_counter()
            found = self.swept(self.part, self.steps, self.jobs, folder)
            seconds = perf_counter() - began
        times = self.runs / self.part
        gates = tuple(f"{self.name}, {rule}: mean" for rule in dict.fromkeys(found.rules))
        section = (
            f"{self.name}: {len(found.mean):,} settings of {len(gates)} rules, {self.runs} runs × "
            f"{self.steps:,} steps, errors at {'every step' if self.every == 1 else f'one step in {self.every}'}, "
            f"{self.jobs} jobs"
        )
        yield Row(
            section,
            f"{times * self.tasks * found.plan.learner_steps:,.0f} learner-steps",
            gates=gates,
            ours=times * seconds / 60,
            unit="min",
            ratio=times * seconds / 60,
            at_most=self.minutes,
            note=f"{self.part} of the {self.runs} runs took {seconds:.3g} s, with table and page: times {times:g}",
        )
        if Path("/proc/self/status").exists():
            job = max(peak(child.pid) for child in multiprocessing.active_children())
            gather(found, self.runs)
            for what, size in (("memory of each job", job), ("memory of the process that gathers all", peak("self"))):
                yield Row(section, what, gates=gates, ours=size, unit="MB", note="resident, at its peak")


def gather(found: Sweep, runs: int) -> None:
    """What a sweep does at its end, for as many runs: those that there are, again and again."""
    plan = replace(found.plan, runs=runs)
    scores = []
    for task in plan.tasks:
        own, run = slice(task.first, task.first + len(task.settings)), task.run % found.plan.runs
        scores.append(Scores(*(getattr(found, name)[own, run].copy() for name in Scores._fields)))
    with tempfile.TemporaryDirectory() as folder:
        Sweep.of(plan, scores, 0.0).write(folder)


def peak(process: int | str | None) -> float:
    """The most memory a process has had resident, in MB."""
    status = Path(f"/proc/{process}/status").read_text(encoding="utf-8")
    found = re.search(r"^VmHWM:\s*(\d+) kB", status, re.M)
    assert found
    return int(found[1]) * 1024 / 1e6
