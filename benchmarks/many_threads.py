"""The threads suite on up to 16 cores."""

from __future__ import annotations

from benchmarks import threads
from benchmarks.cases import run_cases
from benchmarks.measure import Gate
from benchmarks.report import Row

LAYOUT = threads.LAYOUT


def run(quick: bool = False) -> tuple[list[Gate], list[Row]]:
    """Every gate and every row; ``quick`` only shows that the suite works."""
    return run_cases(threads.cases(quick, (1, 2, 4, 8, 16)), threads.effort(quick))
