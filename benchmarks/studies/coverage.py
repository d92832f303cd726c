"""How often 95% intervals cover the mean: ``python -m benchmarks.studies.coverage`` prints the table of the docs.

Samples of 5 to 100 runs are drawn from distributions whose mean is known, and the intervals are those that sweeps
report. 10,000 repetitions take less than a minute.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from emphatic.studies.statistics import mean_intervals

__all__ = ["DISTRIBUTIONS", "RUNS", "main", "measure"]

Array = NDArray[np.float64]
Draw = Callable[[np.random.Generator, tuple[int, int]], Array]

RUNS = (5, 10, 30, 100)
REPETITIONS = 10_000
#: What errors are drawn from, and its mean.
DISTRIBUTIONS: dict[str, tuple[Draw, float]] = {
    "normal": (lambda rng, shape: rng.normal(size=shape), 0.0),
    "exponential": (lambda rng, shape: rng.exponential(size=shape), 1.0),
    "lognormal(0, 1)": (lambda rng, shape: rng.lognormal(size=shape), math.exp(0.5)),
}


def measure(distribution: str, runs: int, repetitions: int = REPETITIONS, seed: int = 0) -> float:
    """The share of intervals that hold the mean."""
    draw, mean = DISTRIBUTIONS[distribution]
    low, high = mean_intervals(draw(np.random.default_rng((seed, runs)), (repetitions, runs)))
    return float(np.mean((low <= mean) & (mean <= high)))


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.studies.coverage", description=__doc__)
    parser.add_argument("--repetitions", type=int, default=REPETITIONS)
    repetitions = parser.parse_args(arguments).repetitions
    print(f"| {repetitions:,} repetitions | " + " | ".join(f"{runs} runs" for runs in RUNS) + " |")
    print("|---" + "|--:" * len(RUNS) + "|")
    for name in DISTRIBUTIONS:
        shares = (measure(name, runs, repetitions) for runs in RUNS)
        print(f"| {name} | " + " | ".join(f"{share:.3f}" for share in shares) + " |", flush=True)


if __name__ == "__main__":
    main()
