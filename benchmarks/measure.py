"""Gates and timing: no number without a green gate; ours and the alternatives in turn, on one thread.

This module does not import numpy, so that ``one_thread`` can be called before anything does.
"""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from time import perf_counter
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from benchmarks.report import Row


def one_thread() -> None:
    """Hold every thread pool at one thread. Call before numpy is imported."""
    for pool in ("OMP", "OPENBLAS", "MKL", "BLIS", "VECLIB_MAXIMUM", "NUMEXPR", "NUMBA"):
        os.environ[f"{pool}_NUM_THREADS"] = "1"


class GateFailed(Exception):
    """A result differs from the reference, so nothing may be timed."""


@dataclass(frozen=True)
class Gate:
    """One comparison with the reference that has passed."""

    name: str
    error: float
    tolerance: float


def gate(name: str, got: Any, want: Any, tolerance: float = 1e-10) -> Gate:
    """Compare with the reference: max |got − want| ≤ tolerance · max |want|, or ``GateFailed``."""
    if got.shape != want.shape:
        raise GateFailed(f"{name}: shape {got.shape}, the reference has {want.shape}")
    scale = float(abs(want).max())
    error = float(abs(got - want).max()) / scale if scale > 0 else float("inf")
    if not error <= tolerance:  # a NaN fails too
        raise GateFailed(f"{name}: relative error {error:.2g}, allowed {tolerance:.2g}")
    return Gate(name, error, tolerance)


@dataclass(frozen=True)
class Effort:
    """How long to measure: rounds, and the least seconds each side gets in a round."""

    rounds: int
    seconds: float


class Case(Protocol):
    """``gates`` compares with the reference; ``rows`` are timed only when every case's gates are green."""

    def gates(self) -> Iterator[Gate]: ...

    def rows(self, effort: Effort) -> Iterator[Row]: ...


def run_cases(cases: Sequence[Case], effort: Effort, lenient: bool = False) -> tuple[list[Gate], list[Row]]:
    """All gates of all cases, then all rows.

    Args:
        cases: The cases.
        effort: How long each is measured.
        lenient: Leave out a case that raises an error: an earlier version of the package may lack what it needs.
    """
    gates: list[Gate] = []
    rows: list[Row] = []
    able: list[Case] = []
    for case in cases:
        with _leaving_out(case, lenient):
            gates += case.gates()
            able.append(case)
    for case in able:
        with _leaving_out(case, lenient):
            rows += case.rows(effort)
    return gates, rows


@contextmanager
def _leaving_out(case: Case, lenient: bool) -> Iterator[None]:
    try:
        yield
    except Exception as error:
        if not lenient:
            raise
        print(f"left out: {case}: {error}", file=sys.stderr)


@dataclass(frozen=True)
class Side:
    """Something to time: a call that makes ``steps`` steps."""

    call: Callable[[], object]
    steps: int


def loop(learn: Callable[..., object], calls: Sequence[tuple[Any, ...]]) -> Side:
    """One Python call a step."""

    def call() -> None:
        for arguments in calls:
            learn(*arguments)

    return Side(call, len(calls))


def fastest(sides: Mapping[str, Side], rounds: int, seconds: float = 0.05) -> dict[str, float]:
    """Microseconds a step for each side, the least over all its calls.

    Every round gives each side its turn, as many calls as fit into ``seconds`` but at least one, so that a
    slow spell of the machine falls on all sides alike. Noise only ever adds time, hence the least.
    """
    best = dict.fromkeys(sides, float("inf"))
    gc.collect()
    gc.disable()
    try:
        for _ in range(rounds):
            for name, side in sides.items():
                until = perf_counter() + seconds
                while True:
                    start = perf_counter()
                    side.call()
                    end = perf_counter()
                    best[name] = min(best[name], (end - start) / side.steps * 1e6)
                    if end >= until:
                        break
    finally:
        gc.enable()
    return best
