"""What a suite is made of: cases, each with its gates and its rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from benchmarks.measure import Gate, Side
from benchmarks.report import Row
from emphatic.reference import TrueOnlineETD

RULE = "true_online_etd"
TOLERANCE = {"float64": 1e-10, "float32": 1e-4}


@dataclass(frozen=True)
class Effort:
    """How long to measure: rounds, and the least seconds each side gets in a round."""

    rounds: int
    seconds: float


class Case(Protocol):
    """``gates`` compares with the reference; ``rows`` are timed only when every case's gates are green."""

    def gates(self) -> Iterator[Gate]: ...

    def rows(self, effort: Effort) -> Iterator[Row]: ...


def run_cases(cases: Sequence[Case], effort: Effort) -> tuple[list[Gate], list[Row]]:
    """All gates of all cases, then all rows."""
    gates = [passed for case in cases for passed in case.gates()]
    return gates, [row for case in cases for row in case.rows(effort)]


def by_reference(calls: Sequence[tuple[Any, ...]], n: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """θ after the given calls of ``learn``, and the predictions θ_t·φ_t, by the reference in float64."""
    reference, predictions = TrueOnlineETD(n), []
    for alpha, I, lambda_, phi, rho, R, phi_next, gamma_next in calls:
        phi, phi_next = np.asarray(phi, np.float64), np.asarray(phi_next, np.float64)
        predictions.append(reference.predict(phi))
        reference.learn(alpha, I, lambda_, phi, rho, R, phi_next, gamma_next)
    return reference.theta, np.array(predictions)


def loop(learn: Callable[..., object], calls: Sequence[tuple[Any, ...]]) -> Side:
    """One Python call a step."""

    def call() -> None:
        for arguments in calls:
            learn(*arguments)

    return Side(call, len(calls))
