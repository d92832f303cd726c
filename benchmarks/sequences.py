"""Several sequences in one log: what a break every few steps costs, and the search for breaks that nothing marks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

import emphatic
from benchmarks.cases import RULE, Effort
from benchmarks.measure import Gate, Side, fastest, gate
from benchmarks.report import Row


@dataclass(frozen=True)
class Breaks:
    """``run`` with a mask that has a break every ``every`` steps, beside the same log without one."""

    engine: str
    n: int
    K: int | None
    T: int
    every: int = 20
    at_least: float | None = None

    @property
    def name(self) -> str:
        K = f", K = {self.K:,}" if self.K else ""
        return f"a break every {self.every} steps, {self.engine}, n = {self.n:,}{K}"

    def log(self) -> dict[str, Any]:
        """φ and φ' in two arrays, so that φ' of a sequence's last step is its own."""
        rng = np.random.default_rng(0)
        Phi = rng.normal(size=(self.T + 1, self.n)) / np.sqrt(self.n)
        R = rng.normal(size=(self.T, 1) if self.K else self.T)
        rest = {"R": R, "gamma_next": 0.95, "alpha": 0.005, "lambda_": 0.9, "predictions": False}
        return {"Phi": Phi[:-1].copy(), "Phi_next": Phi[1:].copy(), **rest}

    def broken(self) -> dict[str, Any]:
        log = self.log()
        first = np.zeros(self.T, bool)
        first[self.every :: self.every] = True
        last = np.flatnonzero(first) - 1
        log["Phi_next"][last] = np.random.default_rng(1).normal(size=(len(last), self.n)) / np.sqrt(self.n)
        return log | {"first": first}

    def gates(self) -> Iterator[Gate]:
        log = self.broken()
        short = {name: value[:150] if np.ndim(value) else value for name, value in log.items()}
        ours, by_reference = (
            emphatic.Learner(RULE, self.n, self.K and 2, engine=name) for name in (self.engine, "reference")
        )
        for learner in (ours, by_reference):
            learner.run(**short)
        yield gate(self.name, ours.theta, by_reference.theta)

    def rows(self, effort: Effort) -> Iterator[Row]:
        learner = emphatic.Learner(RULE, self.n, self.K, engine=self.engine)
        log, broken = self.log(), self.broken()
        unbroken = log | {"first": np.zeros(self.T, bool)}
        sides = {
            "breaks": Side(lambda: learner.run(**broken), self.T),
            "no breaks": Side(lambda: learner.run(**unbroken), self.T),
            "no mask": Side(lambda: learner.run(**log), self.T),
        }
        µs = fastest(sides, effort.rounds, effort.seconds)
        section, what = "several sequences in one log", self.name
        yield Row(
            section, what, gates=(self.name,), ours=µs["breaks"], alternative=µs["no breaks"], versus="no breaks",
            ratio=µs["no breaks"] / µs["breaks"], at_least=self.at_least,
        )  # fmt: skip
        yield Row(
            section, f"{what}: no mask, φ' compared with the next φ", gates=(self.name,), ours=µs["no mask"],
            alternative=µs["no breaks"], versus="a mask without breaks", ratio=µs["no mask"] / µs["no breaks"],
        )  # fmt: skip
