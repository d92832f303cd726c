"""Gates and timing: no number without a green gate; ours and the alternatives in turn, on one thread.

This module does not import numpy, so that ``one_thread`` can be called before anything does.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from time import perf_counter
from typing import Any


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
class Side:
    """Something to time: a call that makes ``steps`` steps."""

    call: Callable[[], object]
    steps: int


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
