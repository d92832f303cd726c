"""One run of all α and λ of the collision study: ``run`` beside NumPy over all of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

import emphatic
from benchmarks.cases import Effort
from benchmarks.measure import Gate, Side, fastest
from benchmarks.report import Row
from benchmarks.studies.alternatives import plain, tuned
from benchmarks.studies.check import CHECKED, Array, alike, by_reference, largest, sample
from emphatic import problems
from emphatic.problems import MDP, Stream
from emphatic.studies.grid import settings
from reproductions.comparisons import published

NUMPY: dict[str, Callable[..., Array]] = {"NumPy": plain, "NumPy tuned": tuned}


def ours(rule: str, mdp: MDP, stream: Stream, alpha: Array, lambda_: Array) -> Array:
    learner = emphatic.Learner(rule, mdp.n, len(alpha), engine="dense")
    given = stream.inputs(rule) | {"alpha": alpha[None], "lambda_": lambda_[None]}
    _, error = learner.run(**given, predictions=False, probe=mdp.probe, on_divergence="freeze")
    return np.asarray(error)


@dataclass(frozen=True)
class Beside:
    """Errors of every setting at every step, (T, K)."""

    rule: str
    T: int

    @property
    def name(self) -> str:
        return f"one run, {self.rule}"

    def given(self, T: int) -> tuple[str, MDP, Stream, Array, Array]:
        mdp, (values,) = problems.collision(), settings(published(self.rule))
        return self.rule, mdp, mdp.simulate(T), values.values["alpha"], values.values["lambda"]

    def gates(self) -> Iterator[Gate]:
        given = rule, mdp, stream, alpha, lambda_ = self.given(min(self.T, CHECKED))
        ks = sample(len(alpha))
        _, want = by_reference(rule, mdp, stream, {"alpha": alpha[ks], "lambda_": lambda_[ks]})
        made = ours(*given)
        yield alike(f"{self.name}: ours", made[:, ks], want, size=largest(want))
        with np.errstate(all="ignore"):
            for name, function in NUMPY.items():
                # (where ours stands still NumPy goes on)
                other = np.where(largest(made) < 1e100, function(*given), made)
                yield alike(f"{self.name}: {name}", other, made, size=largest(made))

    def rows(self, effort: Effort) -> Iterator[Row]:
        given = self.given(self.T)
        K = len(given[3])
        sides: dict[str, Any] = {"ours": ours, **NUMPY}
        with np.errstate(all="ignore"):
            timed = {name: Side(partial(side, *given), K * self.T) for name, side in sides.items()}
            µs = fastest(timed, effort.rounds, effort.seconds)
        for versus in NUMPY:
            yield Row(
                f"one run of collision, {self.T:,} steps, {K} settings, errors at every step; a step of one learner",
                self.rule,
                gates=(f"{self.name}: ours", f"{self.name}: {versus}"),
                ours=1e3 * µs["ours"],
                alternative=1e3 * µs[versus],
                versus=versus,
                unit="ns",
                ratio=µs[versus] / µs["ours"],
            )
