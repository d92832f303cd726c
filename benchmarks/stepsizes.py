"""Step sizes for each weight: ``learn`` beside one with a constant α, and sparse ``run`` beside ``swifttd``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import cycle
from typing import Any

import numpy as np

import emphatic
from benchmarks.alternatives import EPSILON, SWIFTTD_INSTALL, has_swifttd, swifttd_gate, swifttd_side
from benchmarks.cases import RULE, Case, Effort, loop, run_cases
from benchmarks.measure import Gate, Side, fastest, gate
from benchmarks.report import Row
from benchmarks.streams import GAMMA, Dense, Sparse
from emphatic.stepsizes import IDBD, RPROP, TIDBD, Autostep, Emphatic, SwiftTD

#: With swifttd's own settings where it has them; the last two at its bound on traces.
METHODS: dict[str, Any] = {
    "auto": "auto",
    "idbd": IDBD(1e-3, mu=1e-4),
    "tidbd": TIDBD(1e-3, mu=1e-4),
    "autostep": Autostep(1e-3),
    "rprop": RPROP(1e-3),
    "swifttd": SwiftTD(1e-3, mu=1e-3, eta=0.1, decay=0.999, drop=EPSILON),
    "emphatic": Emphatic(1e-3, mu=1e-3, eta=0.1, decay=0.999, drop=EPSILON),
}
#: Steps of a call of sparse ``run``: short ones meet a quiet moment of the machine sooner.
BLOCK = 250
#: The least that each is to be times swifttd's speed at γλ = 0.9.
TIMES_SWIFTTD = {"tidbd": 10.0, "autostep": 10.0, "swifttd": 3.0, "emphatic": 3.0}


def run(quick: bool = False) -> tuple[list[Gate], list[Row]]:
    """Every gate and every row; ``quick`` only shows that the suite works."""
    return run_cases(cases(quick), Effort(1, 0.0) if quick else Effort(7, 0.1))


def cases(quick: bool) -> Sequence[Case]:
    some = ("autostep", "emphatic") if quick else tuple(METHODS)
    sparse = tuple(name for name in TIMES_SWIFTTD if name in some)
    million = 100_000 if quick else 1_000_000
    return [
        AdaptiveLearn(100, some, at_most=3.0),
        AdaptiveLearn(1_000, some, at_most=6.0),
        *(AdaptiveRun(million, 500 if quick else 5_000, name, quick) for name in sparse),
    ]


@dataclass(frozen=True)
class AdaptiveLearn:
    """``learn``, a call a step, beside the same with a constant α."""

    n: int
    methods: tuple[str, ...]
    at_most: float

    def learner(self, method: str, engine: str = "dense") -> Any:
        return emphatic.Learner(RULE, self.n, engine=engine, stepsize=METHODS[method])

    def stream(self) -> Dense:
        return Dense(self.n, 100)

    def gates(self) -> Iterator[Gate]:
        for method in self.methods:
            ours, reference = self.learner(method), self.learner(method, "reference")
            for arguments in self.stream().calls:
                for learner in (ours, reference):
                    learner.learn(*arguments)
            yield gate(f"learn, {method}, n = {self.n:,}", ours.theta, reference.theta)

    def rows(self, effort: Effort) -> Iterator[Row]:
        calls = self.stream().calls
        sides = {method: loop(self.learner(method).learn, calls) for method in self.methods}
        sides["constant"] = loop(emphatic.Learner(RULE, self.n, engine="dense").learn, calls)
        µs = fastest(sides, effort.rounds, effort.seconds)
        for method in self.methods:
            yield Row(
                f"learn with a step size for each weight, n = {self.n:,}",
                method,
                gates=(f"learn, {method}, n = {self.n:,}",),
                ours=µs[method],
                alternative=µs["constant"],
                versus="a constant α",
                ratio=µs[method] / µs["constant"],
                at_most=self.at_most,
                note="ratio: ours / constant",
            )


@dataclass(frozen=True)
class AdaptiveRun:
    """``run`` with 32 active of a million: beside swifttd at γλ = 0.9, and over γλ, on which no cost may depend."""

    n: int
    T: int
    method: str
    quick: bool

    @property
    def name(self) -> str:
        return f"sparse run, {self.method}"

    def learner(self, n: int, engine: str) -> Any:
        method = METHODS[self.method]
        if engine == "reference" and hasattr(method, "drop"):
            method = replace(method, drop=0.0)
        return emphatic.Learner("true_online_td", n, engine=engine, stepsize=method)  # as swifttd is

    def gates(self) -> Iterator[Gate]:
        start = Sparse(self.n, 200, 32, 0.9)
        columns, rows = start.compact()
        ours, reference = self.learner(self.n, "sparse"), self.learner(len(columns), "reference")
        given: dict[str, Any] = {"lambda_": start.lambda_}
        ours.run(emphatic.Active(start.indices), start.R, GAMMA, **given)
        reference.run(rows, start.R, GAMMA, **given)
        want = np.zeros(self.n)
        want[columns] = reference.theta
        # Traces that are dropped at a fraction of what they were leave about that fraction of error.
        yield gate(self.name, ours.theta, want, 10.0 * EPSILON if ours.rule.eager else 1e-10)
        if has_swifttd:
            yield swifttd_gate(f"swifttd beside {self.method}", start)

    def rows(self, effort: Effort) -> Iterator[Row]:
        flat = self.method in ("tidbd", "autostep")
        products = (0.5, 0.9, 0.99, 0.999) if flat else (0.9,)
        sides: dict[str, Side] = {}
        for product in products:
            stream, learner = Sparse(self.n, self.T, 32, product), self.learner(self.n, "sparse")
            blocks = cycle(
                [
                    (emphatic.Active(stream.indices[t : t + BLOCK + 1]), stream.R[t : t + BLOCK])
                    for t in range(0, self.T, BLOCK)
                ]
            )

            def call(learner: Any = learner, blocks: Any = blocks, lambda_: float = stream.lambda_) -> None:
                Phi, R = next(blocks)
                learner.run(Phi, R, GAMMA, lambda_=lambda_, predictions=False)

            call()
            sides[f"γλ = {product}"] = Side(call, BLOCK)
        if has_swifttd:
            sides["swifttd"] = swifttd_side(Sparse(self.n, self.T, 32, 0.9), self.quick)
        µs = fastest(sides, effort.rounds, effort.seconds)
        other, section = µs.pop("swifttd", None), f"sparse run with a step size for each weight, 32 of {self.n:,}"
        for what, ours in µs.items():
            beside = other if what == "γλ = 0.9" else None
            yield Row(
                section,
                f"{self.method}, {what}",
                gates=(self.name,),
                ours=ours,
                alternative=beside,
                versus="" if what != "γλ = 0.9" else "swifttd" if has_swifttd else SWIFTTD_INSTALL,
                ratio=None if beside is None else beside / ours,
                at_least=TIMES_SWIFTTD[self.method] if what == "γλ = 0.9" else None,
            )
        if flat:
            ratio = max(µs.values()) / min(µs.values())
            what = f"{self.method}, slowest / fastest over these γλ"
            yield Row(section, what, gates=(self.name,), ratio=ratio, at_most=2.5)
