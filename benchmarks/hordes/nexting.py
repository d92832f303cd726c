"""Nexting (Modayil, White & Sutton 2014): a robot that makes thousands of predictions, each learned at every step."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

import emphatic
from benchmarks.cases import Effort
from benchmarks.hordes.alternatives import NumPyNexting
from benchmarks.hordes.check import Learn, against_reference, all_alike, by_learn, new_learner
from benchmarks.hordes.streams import Array, Horde
from benchmarks.hordes.tuned import TunedNexting
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


def _plain(stream: Horde) -> NumPyNexting:
    return NumPyNexting(stream.n, stream.K, stream.dtype)


def _tuned(stream: Horde) -> TunedNexting:
    assert stream.active is not None
    return TunedNexting(stream.n, stream.K, stream.active, stream.dtype)


#: The alternatives by name; the target is held against the first.
NUMPY: dict[str, Callable[[Horde], NumPyNexting | TunedNexting]] = {"NumPy": _plain, "NumPy tuned": _tuned}


def by_numpy(which: str) -> Learn:
    def learn(stream: Horde) -> tuple[Array, None]:
        other = NUMPY[which](stream)
        for arguments in numpy_calls(stream):
            other.learn(*arguments)
        return other.theta, None

    return learn


def numpy_calls(stream: Horde) -> list[tuple[Any, ...]]:
    return stream.calls(list(stream.indices), stream.dtype)


@dataclass(frozen=True)
class Nexting:
    """``learn``, a call a step for all learners, each φ' made from an array of indices as it comes.

    However well tuned, NumPy moves every number of e and θ each step, in and out of memory: 4 K n of them. Ours moves
    the active columns only, about n / active times fewer, and all that have a trace when the traces have shrunk.
    """

    stream: Robot
    times_numpy: float
    steps_a_second: float

    @property
    def name(self) -> str:
        return f"nexting, {self.stream.dtype}"

    def gates(self) -> Iterator[Gate]:
        for side, learn in {"ours": by_learn("sparse"), **{name: by_numpy(name) for name in NUMPY}}.items():
            yield from against_reference(f"{self.name}: {side}", self.stream, learn)
        yield all_alike(f"{self.name}: ours", self.stream, by_learn("sparse"), by_numpy("NumPy"))

    def rows(self, effort: Effort) -> Iterator[Row]:
        stream = replace(self.stream)
        learner = new_learner(stream, "sparse")
        calls, numpy = stream.calls(list(stream.indices)), numpy_calls(stream)

        def ours() -> None:
            learn, Active = learner.learn, emphatic.Active
            φ = Active(stream.indices[0])
            for alpha, I, lambda_, _, rho, R, indices, gamma_next in calls:
                φ_next = Active(indices)
                learn(alpha, I, lambda_, φ, rho, R, φ_next, gamma_next)
                φ = φ_next

        def theirs(other: NumPyNexting | TunedNexting) -> Side:
            def steps() -> None:
                for arguments in numpy:
                    other.learn(*arguments)

            return Side(steps, stream.T)

        sides = {"ours": Side(ours, stream.T), **{name: theirs(new(stream)) for name, new in NUMPY.items()}}
        µs = fastest(sides, effort.rounds, effort.seconds)
        section = f"learn, a call a step, nexting: n = {stream.n:,}, {stream.active} active, K = {stream.K:,}"
        own = (f"{self.name}: ours", f"{self.name}: ours, every learner")
        for versus in NUMPY:
            yield Row(
                section,
                f"{stream.dtype}, a step of all learners",
                gates=(*own, f"{self.name}: {versus}"),
                ours=µs["ours"],
                alternative=µs[versus],
                versus=versus,
                ratio=µs[versus] / µs["ours"],
                at_least=self.times_numpy if versus == "NumPy" else None,
                note="" if versus == "NumPy" else "it moves all of e and θ, 4 K n numbers, ours the active columns",
            )
        rate = 1e6 / µs["ours"]
        yield Row(
            section,
            f"{stream.dtype}, steps a second",
            gates=own,
            ours=rate,
            unit="steps/s",
            ratio=rate,
            at_least=self.steps_a_second,
        )
