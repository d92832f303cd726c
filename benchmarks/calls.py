"""Short calls: a ``run`` of one step, a new learner, ``predict`` of several φ, and ``learn`` for a small horde."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, cast

import numpy as np

import emphatic
from benchmarks.cases import RULE, Effort
from benchmarks.measure import Gate, Side, fastest, gate
from benchmarks.report import Row
from benchmarks.streams import Dense


@dataclass(frozen=True)
class ShortCalls:
    """A ``run`` of one step and ``Learner(…)``, all checks on, in calls of ``learn``."""

    n: int
    calls: int = 200

    @property
    def name(self) -> str:
        return f"short calls, n = {self.n:,}"

    def gates(self) -> Iterator[Gate]:
        stream = Dense(self.n, 50)
        by_run, by_learn = (emphatic.Learner(RULE, self.n, engine="dense") for _ in range(2))
        given = stream.parameters
        for t, arguments in enumerate(stream.calls):
            by_learn.learn(*arguments)
            by_run.run(stream.Phi[t : t + 2], **{name: value[t : t + 1] for name, value in given.items()})
        yield gate(self.name, by_run.theta, by_learn.theta)

    def rows(self, effort: Effort) -> Iterator[Row]:
        learner = emphatic.Learner(RULE, self.n, engine="dense")
        Phi = np.random.default_rng(0).normal(size=(2, self.n)) / np.sqrt(self.n)
        arguments = (0.01, 1.0, 0.9, Phi[0], 1.0, 0.5, Phi[1], 0.9)
        sides = {
            "learn": self.side(lambda: learner.learn(*arguments)),
            "run of one step": self.side(lambda: learner.run(Phi, 0.5, 0.9, alpha=0.01, lambda_=0.9)),
            "Learner(…)": self.side(lambda: emphatic.Learner(RULE, self.n, engine="dense")),
        }
        µs = fastest(sides, effort.rounds, effort.seconds)
        for what, at_most in (("run of one step", 20), ("Learner(…)", 50)):
            yield Row(
                f"short calls (n = {self.n:,})", f"{what}, in calls of learn", gates=(self.name,), ours=µs[what],
                alternative=µs["learn"], versus="learn", ratio=µs[what] / µs["learn"], at_most=at_most,
            )  # fmt: skip

    def side(self, call: Callable[[], object]) -> Side:
        def calls() -> None:
            for _ in range(self.calls):
                call()

        return Side(calls, self.calls)


@dataclass(frozen=True)
class PredictSeveral:
    """``predict`` of several φ at once, all checks on, beside three calls of ``predict`` and the work of all features.

    That work is measured: a ``predict`` of one φ less one of a φ without features.
    """

    n: int
    engine: str
    active: int
    counts: tuple[int, ...] = (3, 18)

    @property
    def name(self) -> str:
        return f"predict of several φ, n = {self.n:,}, {self.engine}"

    def learner(self) -> emphatic.Learner:
        learner = emphatic.Learner(RULE, self.n, engine=self.engine)
        learner.run(self.features(101), 1.0, 0.9, alpha=0.01, lambda_=0.9)
        return learner

    def features(self, count: int) -> Any:
        rng = np.random.default_rng(count)
        if self.engine == "dense":
            return rng.normal(size=(count, self.n)) / np.sqrt(self.n)
        return emphatic.Active(np.array([rng.choice(self.n, self.active, replace=False) for _ in range(count)]))

    def gates(self) -> Iterator[Gate]:
        learner = self.learner()
        Phi = self.features(max(self.counts))
        one_by_one = [learner.predict(phi) for phi in Phi]
        yield gate(self.name, learner.predict(Phi), np.array(one_by_one))

    def rows(self, effort: Effort) -> Iterator[Row]:
        learner, side = self.learner(), ShortCalls(self.n).side
        small, none = learner, cast(Any, emphatic.Active(np.empty(0, np.int64)))
        if self.engine == "dense":
            small, none = emphatic.Learner(RULE, 1, engine="dense"), np.zeros(1)
        Phi = self.features(max(self.counts))
        phi = Phi[0]
        sides = {"one": side(lambda: learner.predict(phi)), "none": side(lambda: small.predict(none))}
        for count in self.counts:
            several = Phi[:count]
            sides[f"{count}"] = side(lambda several=several: learner.predict(several))  # type: ignore[misc]
        µs = fastest(sides, effort.rounds, effort.seconds)
        for count in self.counts:
            budget = 3 * µs["one"] + count * max(0.0, µs["one"] - µs["none"])
            yield Row(
                f"predict of several φ (n = {self.n:,}, {self.engine})", f"{count} φ of {self.active} features",
                gates=(self.name,), ours=µs[f"{count}"], alternative=budget, versus="three calls and n·k work",
                ratio=µs[f"{count}"] / budget, at_most=1.0, note=f"{µs[f'{count}'] / µs['one']:.1f} calls of one φ",
            )  # fmt: skip


@dataclass(frozen=True)
class LearnHorde:
    """``learn`` for K learners, all checks on."""

    n: int
    K: int
    engine: str

    @property
    def name(self) -> str:
        return f"learn, n = {self.n:,}, K = {self.K}, {self.engine}"

    def step(self, t: int) -> tuple[Any, ...]:
        rng = np.random.default_rng(t)
        phi, phi_next = rng.normal(size=(2, self.n)) / np.sqrt(self.n)
        if self.engine == "sparse":
            phi, phi_next = (emphatic.Active(np.sort(rng.choice(self.n, 10, replace=False))) for _ in range(2))
        alpha, R = rng.uniform(0.0, 0.1, self.K), rng.normal(size=self.K)
        return alpha, 1.0, 0.9, phi, 1.0, R, phi_next, 0.9

    def gates(self) -> Iterator[Gate]:
        ours, reference = (emphatic.Learner(RULE, self.n, self.K, engine=name) for name in (self.engine, "reference"))
        for t in range(50):
            for learner in (ours, reference):
                learner.learn(*self.step(t))
        yield gate(self.name, ours.theta, reference.theta)

    def rows(self, effort: Effort) -> Iterator[Row]:
        learner = emphatic.Learner(RULE, self.n, self.K, engine=self.engine)
        alpha, I, lambda_, phi, rho, R, phi_next, gamma_next = arguments = self.step(0)
        sides = {"ours": ShortCalls(self.n).side(lambda: learner.learn(*arguments))}
        if self.engine == "dense":
            horde = NumPyHorde(self.n, self.K)
            sides["NumPy over K"] = ShortCalls(self.n).side(lambda: horde.learn(*arguments))
        µs = fastest(sides, effort.rounds, effort.seconds)
        other = µs.get("NumPy over K")
        yield Row(
            f"learn for {self.K} learners (n = {self.n:,}); 30 µs at most", self.engine, gates=(self.name,),
            ours=µs["ours"], alternative=other, versus="NumPy over K" if other else "",
            ratio=30.0 / µs["ours"], at_least=1.0, note="ratio: 30 µs over ours",
        )  # fmt: skip


class NumPyHorde:
    """The seed's ``learn`` with an axis K."""

    def __init__(self, n: int, K: int) -> None:
        self.e, self.theta = np.zeros((2, K, n))
        self.F = self.D = self.gamma = np.zeros(K)

    def learn(
        self, alpha: Any, I: Any, lambda_: Any, phi: Any, rho: Any, R: Any, phi_next: Any, gamma_next: Any
    ) -> Any:
        delta = R + gamma_next * (self.theta @ phi_next) - self.theta @ phi
        F = self.F + I
        b = rho * alpha * (lambda_ * I + (1 - lambda_) * F)
        c = rho * self.gamma * lambda_
        S = b * (1 - c * (self.e @ phi))
        self.e = c[:, None] * self.e + S[:, None] * phi
        Delta = (delta + self.D)[:, None] * self.e - (self.D * b)[:, None] * phi
        self.theta += Delta
        self.D = Delta @ phi_next
        self.F = rho * gamma_next * F
        self.gamma = gamma_next + np.zeros_like(F)
        return delta
