"""Dense φ: ``learn`` and ``run`` beside plain NumPy."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numba

import emphatic
from benchmarks.alternatives import NumPyProduct, NumPySeed, numpy_run
from benchmarks.cases import RULE, TOLERANCE, Effort, by_reference, loop
from benchmarks.measure import Gate, Side, fastest, gate
from benchmarks.report import Row
from benchmarks.streams import Dense
from emphatic.reference import TrueOnlineETD


def _only_read(alpha: Any, I: Any, lambda_: Any, phi: Any, rho: Any, R: Any, phi_next: Any, gamma_next: Any) -> Any:
    total = 0.0
    for component in phi_next:
        total += component
    return total


def _do_nothing(alpha: Any, I: Any, lambda_: Any, phi: Any, rho: Any, R: Any, phi_next: Any, gamma_next: Any) -> Any:
    return R


#: Calls with the arguments of ``learn``: φ of a step is φ' of the step before, so only φ' comes from memory.
only_read: Any
do_nothing: Any
only_read, do_nothing = numba.njit(fastmath=True)(_only_read), numba.njit(_do_nothing)


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
            "NumPy, matrix products": NumPyProduct(self.n, self.dtype),
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
        if self.where == "φ from a log":
            sides |= {"reads": loop(only_read, stream.calls), "nothing": loop(do_nothing, stream.calls)}
        µs = fastest(sides, effort.rounds, effort.seconds)
        ours, reads, nothing = µs.pop("ours"), µs.pop("reads", None), µs.pop("nothing", None)
        for what, limit in (("a call that only reads φ'", reads), ("a call that does nothing", nothing)):
            if limit is not None:
                yield Row(
                    "learn from a log, and what any call of these arguments takes; ratio is NumPy's time to that",
                    f"n = {self.n:,}, {self.dtype}: {what}",
                    gates=(f"{self.name}: ours",),
                    ours=limit,
                    alternative=µs["NumPy"],
                    versus="NumPy",
                    ratio=µs["NumPy"] / limit,
                )
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
        got = ours.run(stream.Phi, **stream.parameters)
        by_numpy = numpy_run(other, list(stream.Phi), stream.steps)
        for side, learner, made in (("ours", ours, got), ("NumPy", other, by_numpy)):
            yield gate(f"{self.name}: {side}", learner.theta, theta)
            yield gate(f"{self.name}: {side}, predictions", made, predictions)

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


@dataclass(frozen=True)
class RunLength:
    """What a call of ``run`` costs beside its steps."""

    n: int
    T: int

    @property
    def name(self) -> str:
        return f"run, T = {self.T:,}"

    def gates(self) -> Iterator[Gate]:
        stream = Dense(self.n, self.T)
        learner = emphatic.Learner(RULE, self.n, engine="dense")
        learner.run(stream.Phi, **stream.parameters)
        yield gate(self.name, learner.theta, by_reference(stream.calls, self.n)[0])

    def rows(self, effort: Effort) -> Iterator[Row]:
        stream = Dense(self.n, self.T)
        learner = emphatic.Learner(RULE, self.n, engine="dense")
        side = Side(lambda: learner.run(stream.Phi, **stream.parameters), self.T)
        µs = fastest({"ours": side}, effort.rounds, effort.seconds)
        section = f"run, growth with T (n = {self.n:,})"
        yield Row(section, f"T = {self.T:,}", gates=(self.name,), ours=µs["ours"])
