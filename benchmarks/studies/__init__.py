"""The studies suite: the grid of a published study, sweeps beside NumPy, simulation, and how their cost grows."""

from __future__ import annotations

from collections.abc import Sequence

from threadpoolctl import threadpool_limits

from benchmarks.cases import Case, Effort, run_cases
from benchmarks.measure import Gate
from benchmarks.report import Row
from benchmarks.studies.beside import Beside
from benchmarks.studies.collision import GRID, SMALL, Study
from benchmarks.studies.growth import Growth
from benchmarks.studies.simulation import Simulation
from emphatic import problems, rules


def run(quick: bool = False) -> tuple[list[Gate], list[Row]]:
    """Every gate and every row; ``quick`` only shows that the suite works."""
    with threadpool_limits(1):
        return run_cases(cases(quick), Effort(1, 0.0) if quick else Effort(5, 0.3))


def cases(quick: bool) -> Sequence[Case]:
    if quick:
        return [
            Study(SMALL, runs=4, part=2, steps=300, jobs=2, minutes=15),
            Study(SMALL, runs=4, part=2, steps=100, jobs=2, minutes=120, problem="four_rooms", every=10, tasks=8),
            Beside("td", 200),
            Simulation(20_000, None, millions=10),
            Simulation(2_000, 3, millions=10),
            Growth("the learners that diverge", "a third", diverge=1 / 3, K=24, T=300),
        ]
    return [
        Study(GRID, runs=50, part=8, steps=20_000, jobs=2, minutes=15),
        Study(GRID, runs=50, part=2, steps=50_000, jobs=2, minutes=120, problem="four_rooms", every=10, tasks=8),
        *(Beside(rule, 20_000) for rule in ("td", "etd")),
        Simulation(1_000_000, None, millions=10),
        Simulation(20_000, 50, millions=10),
        *growth(),
    ]


def growth() -> Sequence[Case]:
    """From td with 228 settings of 6 features and errors at every step, each along its own."""

    def garnet(n: int) -> Growth:
        return Growth("n", f"n = {n}", problem=problems.garnet(64, 4, 2, n, on_policy=True))

    def garnet_of(rule: str) -> Growth:
        along = "n and the rule, errors at one step in 10"
        problem = problems.garnet(64, 4, 2, 32, on_policy=True)
        return Growth(along, f"n = 32, {rule}", problem, rule, every=10, at_most=60)

    return [
        *(garnet(n) for n in (2, 6, 12, 16, 32)),
        *(garnet_of(rule) for rule in rules.names()),
        *(Growth("K", f"K = {K:,}", K=K) for K in (16, 228, 2_048)),
        *(Growth("the steps between errors", f"{every}", every=every) for every in (1, 10, 100)),
        *(Growth("the rule's vectors", f"{m}, {rule}", rule=rule) for m, rule in ((2, "td"), (3, "gtd"), (4, "htd"))),
        *(Growth("the learners that diverge", share, diverge=d) for share, d in (("none", 0.0), ("a third", 1 / 3))),
    ]
