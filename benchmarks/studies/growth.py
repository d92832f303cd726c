"""What a step costs a learner of a sweep, as each size grows on its own."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from benchmarks.cases import Effort
from benchmarks.measure import Gate, Side, fastest, gate
from benchmarks.report import Row
from benchmarks.studies.check import against_reference
from emphatic import problems
from emphatic.problems import MDP
from emphatic.studies import Sweep, sweep
from emphatic.studies.grid import find_rule, parameters

#: What a rule has besides α, if it has it. β is eta·α unless a rule needs its own.
GIVEN = {"lambda": 0.9, "beta": 0.9, "zeta": 0.5}
NEED_BETA = ("etd_beta", "true_online_etd_beta")


@dataclass(frozen=True, eq=False)
class Growth:
    """A sweep over α in one run, simulation and table included; a share ``diverge`` of its learners has α = 64."""

    along: str
    what: str
    problem: MDP = field(default_factory=problems.collision)
    rule: str = "td"
    K: int = 228
    every: int = 1
    diverge: float = 0.0
    T: int = 20_000
    at_most: float | None = None

    @property
    def name(self) -> str:
        return f"growth with {self.along}, {self.what}"

    def swept(self, steps: int) -> Sweep:
        alpha = np.geomspace(2.0**-18, 2.0**-7, self.K)
        alpha[: round(self.K * self.diverge)] = 64.0
        known = parameters(find_rule(self.rule))
        grid = {"rule": self.rule, "alpha": alpha} | {name: GIVEN[name] for name in GIVEN if name in known}
        if self.rule not in NEED_BETA:
            grid.pop("beta", None)
        return sweep(self.problem, grid, runs=1, steps=steps, every=self.every, jobs=1)

    def gates(self) -> Iterator[Gate]:
        found = self.swept(min(self.T, 500))
        yield from against_reference(self.name, found)
        stay = np.array([1.0 - found.diverged.mean()])
        yield gate(f"{self.name}: who diverges", stay, np.array([1.0 - self.diverge]), 1 / self.K)

    def rows(self, effort: Effort) -> Iterator[Row]:
        side = Side(lambda: self.swept(self.T).table, self.K * self.T)
        µs = fastest({"ours": side}, effort.rounds, effort.seconds)
        yield Row(
            f"a sweep, growth with {self.along}; a step of one learner",
            self.what,
            gates=(f"{self.name}, {self.rule}: mean", f"{self.name}: who diverges"),
            ours=1e3 * µs["ours"],
            unit="ns",
            ratio=None if self.at_most is None else 1e3 * µs["ours"],
            at_most=self.at_most,
        )
