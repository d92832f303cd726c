"""The core suite: true online emphatic TD(λ), one learner, beside the seed in plain NumPy and ``swifttd``."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.calls import LearnHorde, PredictSeveral, ShortCalls
from benchmarks.cases import Case, Effort, run_cases
from benchmarks.checkpoints import SparseCheckpoint
from benchmarks.dense import LearnDense, RunDense, RunLength
from benchmarks.limits import Limits
from benchmarks.measure import Gate
from benchmarks.memory import Bytes
from benchmarks.report import Row
from benchmarks.sequences import Breaks
from benchmarks.sparse import Growth, LearnActive, RunSparse
from benchmarks.streams import Sparse


def run(quick: bool = False) -> tuple[list[Gate], list[Row]]:
    """Every gate and every row; ``quick`` only shows that the suite works."""
    return run_cases(cases(quick), Effort(1, 0.0) if quick else Effort(7, 0.1))


def cases(quick: bool) -> Sequence[Case]:
    short = 100 if quick else 1
    million = 100_000 if quick else 1_000_000
    lengths = {n: max(20, min(100_000, 10_000_000 // n) // short) for n in (10, 100, 1_000, 10_000, 100_000)}
    sizes = [10**power for power in range(3, 6 if quick else 8)]
    return [
        LearnDense(100, 1_000, "float64", "φ in cache", at_least=6),
        LearnDense(100, 20_000 // short, "float64", "φ from a log", at_least=6),
        LearnDense(1_000, 100, "float64", "φ in cache", at_least=4.5),
        LearnDense(1_000, 10_000 // short, "float64", "φ from a log", at_least=4.5),
        LearnDense(100, 1_000, "float32", "φ in cache"),
        ShortCalls(100),
        PredictSeveral(10_000, "sparse", 10),
        PredictSeveral(100, "dense", 100),
        *(LearnHorde(100, 10, engine) for engine in ("dense", "sparse")),
        *(RunDense(n, T, at_least={100: 60, 1_000: 10}.get(n)) for n, T in lengths.items()),
        RunSparse(million, 100_000 // short, quick),
        LearnActive(million, 20_000 // short, quick),
        Breaks("dense", 100, None, 5_000 // short),
        Bytes(million),
        *(SparseCheckpoint(4 * million, None, 3_000 // min(short, 10), dtype) for dtype in ("float64", "float32")),
        SparseCheckpoint(million // 100, 100, 300),
        *(RunLength(100, T) for T in ((20, 200) if quick else (100, 1_000, 10_000, 100_000))),
        *(Growth("n", Sparse(n, 20_000 // short, 32, 0.9)) for n in sizes),
        *(Growth("the active features", Sparse(million, 10_000 // short, k, 0.9)) for k in (1, 4, 32, 128, 512)),
        Limits(1_000, 10_000 // short, size=2**16 if quick else 2**23),
    ]
