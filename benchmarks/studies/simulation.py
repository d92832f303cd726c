"""Simulation: everything that ``run`` takes of a stream, beside a loop in Python."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.cases import Effort
from benchmarks.measure import Gate, Side, fastest, gate
from benchmarks.report import Row
from benchmarks.studies.alternatives import walk
from emphatic import problems

#: Of the loop: it takes its time.
SHORT = 20_000


@dataclass(frozen=True)
class Simulation:
    """T steps of collision, in one run or in several."""

    T: int
    runs: int | None
    millions: float

    @property
    def what(self) -> str:
        return f"{self.T:,} steps" if self.runs is None else f"{self.runs} runs × {self.T:,} steps"

    @property
    def name(self) -> str:
        return f"simulation, {self.what}"

    def gates(self) -> Iterator[Gate]:
        mdp = problems.collision()
        sides = {"ours": mdp.simulate(self.T, runs=self.runs).states, "Python": walk(mdp, SHORT, 0)["states"]}
        for side, states in sides.items():
            share = np.bincount(states.ravel(), minlength=mdp.S) / states.size
            yield gate(f"{self.name}: time in each state, {side}", share, mdp.d_mu, 10 / np.sqrt(states.size))

    def rows(self, effort: Effort) -> Iterator[Row]:
        mdp = problems.collision()

        def call() -> list[dict[str, Any]]:
            stream = mdp.simulate(self.T, runs=self.runs)
            return [one.inputs("td") for one in ([stream] if self.runs is None else stream)]

        sides = {"ours": Side(call, self.T * (self.runs or 1)), "Python": Side(lambda: walk(mdp, SHORT, 0), SHORT)}
        µs = fastest(sides, effort.rounds, effort.seconds)
        yield Row(
            "simulation of collision, all arrays ready for run; ratio is million steps a second",
            self.what,
            gates=tuple(f"{self.name}: time in each state, {side}" for side in sides),
            ours=1 / µs["ours"],
            alternative=1 / µs["Python"],
            versus="a loop in Python",
            unit="M steps/s",
            ratio=1 / µs["ours"],
            at_least=self.millions,
        )
