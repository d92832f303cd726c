"""The core suite: true online emphatic TD(λ), one learner, beside the seed in plain NumPy and ``swifttd``."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import emphatic
from benchmarks.alternatives import SWIFTTD_INSTALL, NumPySeed, has_swifttd, numpy_run, swifttd_gate, swifttd_side
from benchmarks.measure import Case, Effort, Gate, Side, fastest, gate, loop
from benchmarks.report import Row
from benchmarks.streams import GAMMA, RULE, TOLERANCE, Dense, Sparse, by_reference
from emphatic.reference import TrueOnlineETD

EFFORT = Effort(7, 0.1)
TIMES_SWIFTTD = {0.5: 10.0, 0.99: 500.0}  # the targets of sparse run, by γλ
Learn = Callable[[Any, Sparse], object]


def cases(quick: bool) -> Sequence[Case]:
    """All cases; ``quick`` makes them small."""
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
        *(RunDense(n, T, at_least={100: 60, 1_000: 10}.get(n)) for n, T in lengths.items()),
        RunSparse(million, 100_000 // short, quick),
        LearnActive(million, 20_000 // short, quick),
        *(Growth("n", Sparse(n, 20_000 // short, 32, 0.9)) for n in sizes),
        *(Growth("the active features", Sparse(million, 10_000 // short, k, 0.9)) for k in (1, 4, 32, 128, 512)),
    ]


# ------------------------------------------------------------------------------------------------ dense φ


@dataclass(frozen=True)
class LearnDense:
    """``learn``, a call a step, all checks on, every parameter different at every step.

    The same T steps over and over: few enough to stay in cache, as a φ that has just been made does, or so many that
    each φ comes from memory.
    """

    n: int
    T: int
    dtype: str
    where: str
    at_least: float | None = None

    @property
    def name(self) -> str:
        return f"learn, n = {self.n:,}, {self.dtype}, {self.where}"

    def learners(self) -> dict[str, Any]:
        """Ours, then the alternatives; the target is held against the first of these."""
        learners = {
            "ours": emphatic.Learner(RULE, self.n, engine="dense", dtype=self.dtype),
            "NumPy": NumPySeed(self.n, self.dtype),
            "NumPy, line for line": TrueOnlineETD(self.n),
        }
        if self.dtype != "float64":
            del learners["NumPy, line for line"]  # float64 only
        return learners

    def gates(self) -> Iterator[Gate]:
        stream = Dense(self.n, self.T, self.dtype)
        want, _ = by_reference(stream.calls, self.n)
        for side, learner in self.learners().items():
            for arguments in stream.calls:
                learner.learn(*arguments)
            yield gate(f"{self.name}: {side}", learner.theta, want, TOLERANCE[self.dtype])

    def rows(self, effort: Effort) -> Iterator[Row]:
        stream = Dense(self.n, self.T, self.dtype)
        sides = {side: loop(learner.learn, stream.calls) for side, learner in self.learners().items()}
        µs = fastest(sides, effort.rounds, effort.seconds)
        ours = µs.pop("ours")
        for side, alternative in µs.items():
            yield Row(
                "learn, one call a step",
                f"n = {self.n:,}, {self.dtype}, {self.where}",
                gates=(f"{self.name}: ours", f"{self.name}: {side}"),
                ours=ours,
                alternative=alternative,
                versus=side,
                ratio=alternative / ours,
                at_least=self.at_least if side == "NumPy" else None,
            )


@dataclass(frozen=True)
class RunDense:
    """``run`` over a log beside the NumPy loop, and how both grow with n."""

    n: int
    T: int
    at_least: float | None = None

    @property
    def name(self) -> str:
        return f"run, n = {self.n:,}"

    def gates(self) -> Iterator[Gate]:
        stream = Dense(self.n, self.T)
        theta, predictions = by_reference(stream.calls, self.n)
        ours, other = emphatic.Learner(RULE, self.n, engine="dense"), NumPySeed(self.n)
        by_run = ours.run(stream.Phi, **stream.parameters)
        by_numpy = numpy_run(other, list(stream.Phi), stream.steps)
        for side, learner, outcome in (("ours", ours, by_run), ("NumPy", other, by_numpy)):
            yield gate(f"{self.name}: {side}", learner.theta, theta)
            yield gate(f"{self.name}: {side}, predictions", outcome, predictions)

    def rows(self, effort: Effort) -> Iterator[Row]:
        stream = Dense(self.n, self.T)
        ours, other = emphatic.Learner(RULE, self.n, engine="dense"), NumPySeed(self.n)
        rows, steps = list(stream.Phi), stream.steps
        sides = {
            "ours": Side(lambda: ours.run(stream.Phi, **stream.parameters), self.T),
            "NumPy": Side(lambda: numpy_run(other, rows, steps), self.T),
        }
        µs = fastest(sides, effort.rounds, effort.seconds)
        yield Row(
            "run, a whole log in one call",
            f"n = {self.n:,}, T = {self.T:,}",
            gates=tuple(f"{self.name}: {side}{of}" for side in ("ours", "NumPy") for of in ("", ", predictions")),
            ours=µs["ours"],
            alternative=µs["NumPy"],
            versus="NumPy loop",
            ratio=µs["NumPy"] / µs["ours"],
            at_least=self.at_least,
        )


# ------------------------------------------------------------------------------------------------ sparse φ


def new_sparse(n: int) -> Any:
    return emphatic.Learner(RULE, n, engine="sparse")


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
    rows = [emphatic.Active(indices) for indices in stream.indices]
    return [
        (stream.alpha, 1.0, stream.lambda_, phi, 1.0, R, phi_next, GAMMA)
        for phi, R, phi_next in zip(rows, stream.rewards, rows[1:], strict=False)
    ]


def learn_ready(learner: Any, stream: Sparse) -> None:
    loop(learner.learn, ready_calls(stream)).call()


def first_steps(name: str, stream: Sparse, learn: Learn) -> Gate:
    """Learn the stream's first steps and compare with the reference on the columns they touch."""
    start = replace(stream, T=min(stream.T, 1_000, 40_000 // stream.active))
    columns, rows = start.compact()
    R = start.rewards
    calls = [(start.alpha, 1.0, start.lambda_, rows[t], 1.0, R[t], rows[t + 1], GAMMA) for t in range(start.T)]
    learner = new_sparse(start.n)
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
        return {f"γλ = {decay}": Sparse(self.n, self.T, 32, decay) for decay in (0.5, 0.9, 0.99, 0.999)}

    def gates(self) -> Iterator[Gate]:
        for name, stream in self.streams().items():
            yield first_steps(f"sparse run, {name}", stream, run)
            if stream.gamma_lambda in TIMES_SWIFTTD and has_swifttd:
                yield swifttd_gate(f"swifttd, {name}", stream)

    def rows(self, effort: Effort) -> Iterator[Row]:
        section = f"sparse run, 32 active of {self.n:,} at random places, T = {self.T:,}"
        sides: dict[str, Side] = {}
        for name, stream in self.streams().items():
            sides[name] = Side(partial(run, new_sparse(self.n), stream), self.T)
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
        stream = self.stream()
        sides = {
            "Active made in the loop": Side(partial(learn_made, new_sparse(self.n), stream), self.T),
            "Active ready-made": loop(new_sparse(self.n).learn, ready_calls(stream)),
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
        stream = replace(self.stream)  # a copy, so that its arrays are freed
        side = Side(partial(run, new_sparse(stream.n), stream), stream.T)
        µs = fastest({"ours": side}, effort.rounds, effort.seconds)
        section = f"sparse run, growth with {self.along} (γλ = {stream.gamma_lambda})"
        yield Row(section, self.what, gates=(self.name,), ours=µs["ours"])
