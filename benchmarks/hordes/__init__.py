"""The hordes suite: many learners on one stream of features, beside NumPy over all of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import product

from threadpoolctl import threadpool_limits

from benchmarks.cases import Case, Effort, run_cases
from benchmarks.checkpoints import Checkpoint
from benchmarks.hordes.auto import Auto, Cell
from benchmarks.hordes.growth import ChunkLength, Growth
from benchmarks.hordes.memory import HordeBytes
from benchmarks.hordes.nexting import Nexting, Robot
from benchmarks.hordes.runs import Rate, RunHorde
from benchmarks.hordes.streams import EVERYTHING, SWEEP, Horde
from benchmarks.measure import Gate
from benchmarks.report import Row
from benchmarks.sequences import Breaks


def run(quick: bool = False) -> tuple[list[Gate], list[Row]]:
    """Every gate and every row; ``quick`` only shows that the suite works."""
    with threadpool_limits(1):
        return run_cases(cases(quick), Effort(1, 0.0) if quick else Effort(5, 0.1))


def cases(quick: bool) -> Sequence[Case]:
    size = 64 if quick else 1_024
    steps = 40 if quick else 1_000
    robot = Robot(200, 20, 12, active=15) if quick else Robot(6_065, 2_160, 12, active=457)
    return [
        *(
            Rate(Horde(size, size, steps, dtype), size=64 if quick else 2_048, at_least=0.6)
            for dtype in ("float32", "float64")
        ),
        RunHorde(Horde(6, 1_000, steps, varies=SWEEP), at_least=10),
        RunHorde(Horde(6, 1_000, steps, varies=EVERYTHING)),
        *(Nexting(replace(robot, dtype=dtype), times_numpy=15, steps_a_second=100) for dtype in ("float32", "float64")),
        Breaks("chunked", size, size, 1_016 // (8 if quick else 1), at_least=0.9),
        HordeBytes(Horde(size, size, steps), at_most=1.1),
        Checkpoint(1_000 if quick else 100_000, 1_000),
        Auto(grid(quick), at_most=1.5),
        *growth(quick),
    ]


def grid(quick: bool) -> Sequence[Cell]:
    """Every size with every other; of binary features one in a hundred is active, or one."""
    if quick:
        return [Cell(6, 1, 32, None), Cell(6, 16, 32, None), Cell(64, 16, 1, 1), Cell(64, 16, 32, 1)]
    return [
        Cell(n, K, T, active)
        for n, K, T in product((6, 64, 1_024), (1, 16, 256, 1_024), (1, 32, 1_000))
        for active in (None, max(1, n // 100))
    ]


def growth(quick: bool) -> Sequence[Case]:
    """From one size in the middle, each along its own."""
    if quick:
        return [Growth("n", "chunked", Horde(64, 16, 40)), ChunkLength(Horde(64, 16, 40), 15)]
    many, sparse = Horde(256, 256, 508), Horde(16_384, 64, 256, active=32)
    return [
        *(
            Growth("n", engine, replace(many, n=n))
            for engine in ("chunked", "dense")
            for n in (16, 64, 256, 1_024, 4_096)
        ),
        *(Growth("n", "sparse", replace(sparse, n=n)) for n in (1_024, 16_384, 131_072)),
        *(
            Growth("K", engine, replace(many, K=K))
            for engine in ("chunked", "dense")
            for K in (4, 16, 64, 256, 1_024, 4_096)
        ),
        *(Growth("K", "sparse", replace(sparse, K=K)) for K in (4, 16, 64, 256)),
        *(Growth("T", engine, replace(many, T=T)) for engine in ("chunked", "dense") for T in (8, 32, 127, 508, 2_032)),
        *(Growth("T", "sparse", replace(sparse, T=T)) for T in (8, 64, 512)),
        *(Growth("the active features", "sparse", replace(sparse, active=active)) for active in (1, 8, 64, 512)),
        *(ChunkLength(Horde(1_024, 1_024, 1_016), length) for length in (15, 31, 63, 127, 254)),
    ]
