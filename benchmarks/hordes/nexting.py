"""Nexting (Modayil, White & Sutton 2014): a robot that makes thousands of predictions, each learned at every step."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

import emphatic
from benchmarks.cases import Effort
from benchmarks.hordes.alternatives import NumPyNexting
from benchmarks.hordes.check import against_reference, all_alike, by_learn, new_learner
from benchmarks.hordes.streams import Array, Horde
from benchmarks.measure import Gate, Side, fastest
from benchmarks.report import Row

GAMMAS = (0.0, 0.8, 0.95, 0.9875)


class Robot(Horde):
    """Its sensors' questions: four discounts, λ = .9, α = .1 over the active features."""

    @cached_property
    def parameters(self) -> dict[str, Array]:
        assert self.active is not None
        return {
            "alpha": np.full((1, 1), 0.1 / self.active),
            "I": np.ones((1, 1)),
            "lambda_": np.full((1, 1), 0.9),
            "rho": np.ones((1, 1)),
            "R": np.random.default_rng(14).standard_normal((self.T, self.K)),
            "gamma_next": np.resize(GAMMAS, (1, self.K)),
        }


def by_numpy(stream: Horde) -> tuple[Array, None]:
    other = _numpy(stream)
    for arguments in numpy_calls(stream):
        other.learn(*arguments)
    return other.theta, None


def _numpy(stream: Horde) -> NumPyNexting:
    assert stream.active is not None
    return NumPyNexting(stream.n, stream.K, stream.active, stream.dtype)


def numpy_calls(stream: Horde) -> list[tuple[Any, ...]]:
    return stream.calls(list(stream.indices), stream.dtype)


@dataclass(frozen=True)
class Nexting:
    """``learn``, a call a step for all learners, each φ' made from an array of indices as it comes."""

    stream: Robot
    times_numpy: float
    steps_a_second: float

    @property
    def name(self) -> str:
        return f"nexting, {self.stream.dtype}"

    def gates(self) -> Iterator[Gate]:
        for side, learn in {"ours": by_learn("sparse"), "NumPy": by_numpy}.items():
            yield from against_reference(f"{self.name}: {side}", self.stream, learn)
        yield all_alike(f"{self.name}: ours", self.stream, by_learn("sparse"), by_numpy)

    def rows(self, effort: Effort) -> Iterator[Row]:
        stream = replace(self.stream)
        learner, other = new_learner(stream, "sparse"), _numpy(stream)
        calls, numpy = stream.calls(list(stream.indices)), numpy_calls(stream)

        def ours() -> None:
            learn, Active = learner.learn, emphatic.Active
            φ = Active(stream.indices[0])
            for alpha, I, lambda_, _, rho, R, indices, gamma_next in calls:
                φ_next = Active(indices)
                learn(alpha, I, lambda_, φ, rho, R, φ_next, gamma_next)
                φ = φ_next

        def theirs() -> None:
            for arguments in numpy:
                other.learn(*arguments)

        µs = fastest({"ours": Side(ours, stream.T), "NumPy": Side(theirs, stream.T)}, effort.rounds, effort.seconds)
        section = f"learn, a call a step, nexting: n = {stream.n:,}, {stream.active} active, K = {stream.K:,}"
        gates = tuple(f"{self.name}: {side}" for side in ("ours", "ours, every learner", "NumPy"))
        yield Row(
            section,
            f"{stream.dtype}, a step of all learners",
            gates=gates,
            ours=µs["ours"],
            alternative=µs["NumPy"],
            versus="NumPy",
            ratio=µs["NumPy"] / µs["ours"],
            at_least=self.times_numpy,
        )
        rate = 1e6 / µs["ours"]
        yield Row(
            section,
            f"{stream.dtype}, steps a second",
            gates=gates,
            ours=rate,
            unit="steps/s",
            ratio=rate,
            at_least=self.steps_a_second,
        )
