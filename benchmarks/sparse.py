"""Sparse φ: ``run`` and ``learn`` with ``Active`` features beside ``swifttd``."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import emphatic
from benchmarks.alternatives import SWIFTTD_INSTALL, has_swifttd, swifttd_gate, swifttd_side
from benchmarks.cases import RULE, Effort, by_reference, loop
from benchmarks.measure import Gate, Side, fastest, gate
from benchmarks.report import Row
from benchmarks.streams import GAMMA, Sparse

TIMES_SWIFTTD = {0.5: 10.0, 0.99: 500.0}  # the targets of sparse run, by γλ
Learn = Callable[[Any, Sparse], object]


def run(learner: Any, stream: Sparse) -> None:
    """``run`` from an array of indices: making the ``Active`` features, with their checks, is part of it."""
    Phi = emphatic.Active(stream.indices)
    learner.run(Phi, stream.R, GAMMA, alpha=stream.alpha, lambda_=stream.lambda_)


def learn_made(learner: Any, stream: Sparse) -> None:
    """``learn`` from an array of indices: each ``Active`` made in the loop, used as φ' and then as φ."""
    learn, Active, alpha, lambda_ = learner.learn, emphatic.Active, stream.alpha, stream.lambda_
    phi = Active(stream.indices[0])
    for R, indices in zip(stream.rewards, stream.indices[1:], strict=True):
        phi_next = Active(indices)
        learn(alpha, 1.0, lambda_, phi, 1.0, R, phi_next, GAMMA)
        phi = phi_next


def ready_calls(stream: Sparse) -> list[tuple[Any, ...]]:
    """The arguments of ``learn`` at each step, every ``Active`` made beforehand."""
    made = [emphatic.Active(indices) for indices in stream.indices]
    return [
        (stream.alpha, 1.0, stream.lambda_, phi, 1.0, R, phi_next, GAMMA)
        for phi, R, phi_next in zip(made, stream.rewards, made[1:], strict=False)
    ]


def learn_ready(learner: Any, stream: Sparse) -> None:
    loop(learner.learn, ready_calls(stream)).call()


def new_learner(n: int) -> Any:
    return emphatic.Learner(RULE, n, engine="sparse")


def first_steps(name: str, stream: Sparse, learn: Learn) -> Gate:
    """Learn the stream's first steps and compare with the reference on the columns they touch."""
    start = replace(stream, T=min(stream.T, 1_000, 40_000 // stream.active))
    columns, rows = start.compact()
    R = start.rewards
    calls = [(start.alpha, 1.0, start.lambda_, rows[t], 1.0, R[t], rows[t + 1], GAMMA) for t in range(start.T)]
    learner = new_learner(start.n)
    learn(learner, start)
    want = learner.theta * 0.0  # untouched columns stay 0
    want[columns], _ = by_reference(calls, len(columns))
    return gate(name, learner.theta, want)


@dataclass(frozen=True)
class RunSparse:
    """``run`` with 32 active of a million: the cost may not depend on γλ."""

    n: int
    T: int
    quick: bool

    def streams(self) -> dict[str, Sparse]:
        return {f"γλ = {product}": Sparse(self.n, self.T, 32, product) for product in (0.5, 0.9, 0.99, 0.999)}

    def gates(self) -> Iterator[Gate]:
        for name, stream in self.streams().items():
            yield first_steps(f"sparse run, {name}", stream, run)
            if stream.gamma_lambda in TIMES_SWIFTTD and has_swifttd:
                yield swifttd_gate(f"swifttd, {name}", stream)

    def rows(self, effort: Effort) -> Iterator[Row]:
        section = f"sparse run, 32 active of {self.n:,} at random places, T = {self.T:,}"
        sides: dict[str, Side] = {}
        for name, stream in self.streams().items():
            learner = new_learner(self.n)
            sides[name] = Side(lambda learner=learner, stream=stream: run(learner, stream), self.T)  # type: ignore[misc]
            if stream.gamma_lambda in TIMES_SWIFTTD and has_swifttd:
                sides[f"swifttd, {name}"] = swifttd_side(stream, self.quick)
        µs = fastest(sides, effort.rounds, effort.seconds)
        for name, stream in self.streams().items():
            target = TIMES_SWIFTTD.get(stream.gamma_lambda)
            yield versus_swifttd(section, name, f"sparse run, {name}", µs[name], µs.get(f"swifttd, {name}"), target)
        times = [µs[name] for name in self.streams()]
        yield Row(
            section,
            "slowest / fastest over these γλ",
            gates=tuple(f"sparse run, {name}" for name in self.streams()),
            ratio=max(times) / min(times),
            at_most=2.5,
        )


def versus_swifttd(
    section: str, what: str, gate_name: str, ours: float, other: float | None, target: float | None
) -> Row:
    return Row(
        section,
        what,
        gates=(gate_name,),
        ours=ours,
        alternative=other,
        versus="" if target is None and other is None else "swifttd" if has_swifttd else SWIFTTD_INSTALL,
        ratio=None if other is None else other / ours,
        at_least=target,
    )


@dataclass(frozen=True)
class LearnActive:
    """``learn`` with ``Active`` features, a call a step; the target is held against the slower way."""

    n: int
    T: int
    quick: bool

    def stream(self) -> Sparse:
        return Sparse(self.n, self.T, 32, 0.5)

    def gates(self) -> Iterator[Gate]:
        yield first_steps("learn, Active made in the loop", self.stream(), learn_made)
        yield first_steps("learn, Active ready-made", self.stream(), learn_ready)
        if has_swifttd:
            yield swifttd_gate("swifttd's step", self.stream())

    def rows(self, effort: Effort) -> Iterator[Row]:
        stream, learner = self.stream(), new_learner(self.n)
        sides = {
            "Active made in the loop": Side(lambda: learn_made(learner, stream), self.T),
            "Active ready-made": loop(new_learner(self.n).learn, ready_calls(stream)),
        }
        if has_swifttd:
            sides["swifttd"] = swifttd_side(stream, self.quick)
        µs = fastest(sides, effort.rounds, effort.seconds)
        other = µs.pop("swifttd", None)
        section = f"learn with Active, 32 of {self.n:,}, one call a step, γλ = 0.5"
        for what, ours in µs.items():
            target = 6.0 if ours == max(µs.values()) else None
            yield versus_swifttd(section, what, f"learn, {what}", ours, other, target)


@dataclass(frozen=True)
class Growth:
    """How the cost of sparse ``run`` grows."""

    along: str
    stream: Sparse

    @property
    def what(self) -> str:
        return f"n = {self.stream.n:,}, {self.stream.active} active"

    @property
    def name(self) -> str:
        return f"sparse run, growth with {self.along}: {self.what}"

    def gates(self) -> Iterator[Gate]:
        yield first_steps(self.name, self.stream, run)

    def rows(self, effort: Effort) -> Iterator[Row]:
        stream, learner = (
            replace(self.stream),
            new_learner(self.stream.n),
        )  # a copy, so that its arrays are freed
        µs = fastest({"ours": Side(lambda: run(learner, stream), stream.T)}, effort.rounds, effort.seconds)
        section = f"sparse run, growth with {self.along} (γλ = {stream.gamma_lambda})"
        yield Row(section, self.what, gates=(self.name,), ours=µs["ours"])
