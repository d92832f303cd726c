"""Runs of a problem: what a sweep learns from where the answers are known."""

from __future__ import annotations

import functools
import hashlib
import inspect
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from emphatic import rules
from emphatic.learning import inputs
from emphatic.learning.inputs import refusal
from emphatic.learning.learner import Learner
from emphatic.learning.sequences import UndiscountedWarning
from emphatic.problems import MDP
from emphatic.studies.grid import GridSettings
from emphatic.studies.scores import Scores

__all__ = ["Simulated"]

#: Errors that are kept at a time.
_ERRORS = 1 << 20
#: Below so many steps between errors, going step by step is faster than by matrix products.
_OFTEN = 16


@dataclass(frozen=True)
class Simulated:
    """Run i of a problem is a stream of its own, the same for all rules: that of seed (seed, i).

    A function that takes a ``seed`` makes a problem of its own for each run, of the same seed. The error is the root
    mean square value error, weighted by d_μ, of the weights before an update; at the end, of the last weights.
    """

    problem: MDP | Callable[..., MDP]
    steps: int
    seed: int = 0
    theta: tuple[float, ...] | None = None

    metric = "RMSVE"

    @functools.cached_property
    def name(self) -> str:
        if isinstance(self.problem, MDP):
            return self.problem.name or "MDP"
        if not isinstance(self.problem, functools.partial):
            return str(getattr(self.problem, "__name__", "problem"))
        shown = {name: repr(value) for name, value in self.problem.keywords.items()}
        options = ", ".join(f"{name}={value if len(value) < 40 else '…'}" for name, value in shown.items())
        return f"{getattr(self.problem.func, '__name__', 'problem')}({options})"

    @property
    def fresh(self) -> bool:
        """Whether each run has a problem of its own."""
        if isinstance(self.problem, MDP) or "seed" in getattr(self.problem, "keywords", ()):
            return False
        return "seed" in inspect.signature(self.problem).parameters

    def mdp(self, run: int) -> MDP:
        """The problem of a run."""
        if isinstance(self.problem, MDP):
            return self.problem
        made = self.problem(seed=(self.seed, run)) if self.fresh else self.problem()
        if not isinstance(made, MDP):
            raise refusal("problem", "sweep", "be a problem, or a function that makes one", repr(made))
        return made

    def check(self, settings: GridSettings) -> None:
        """ValueError where these settings cannot learn from it."""
        mdp, rule = self.mdp(0), rules.get(settings.rule)
        if not rule.interest and (mdp.I != 1.0).any():
            raise refusal("rule", "sweep", f"take interest, as {self.name} has it", repr(settings.rule))
        if rule.action_values and (mdp.pi != mdp.mu).any():
            wanted = f"learn values of states: of these {rule.class_name} learns the target policy's only on-policy"
            raise refusal("rule", "sweep", wanted, repr(settings.rule))
        self._theta(mdp)

    def identity(self) -> str:
        """What tells these runs from others."""
        digest = hashlib.sha256(f"{self.name} {self.steps} {self.seed} {self.fresh} {self.theta}".encode())
        mdp = self.mdp(0)
        for name in ("P", "R", "gamma", "pi", "mu", "Phi", "I", "lambda_", "start"):
            part = np.ascontiguousarray(getattr(mdp, name), np.float64)
            digest.update(f"{name} {part.shape}".encode() + part.tobytes())
        return digest.hexdigest()

    def points(self, count: int, every: int) -> NDArray[np.int64]:
        """About ``count`` of the steps 0, every, 2·every, …, evenly spread."""
        there = -(-self.steps // every)
        return np.unique(np.round(np.linspace(0, there - 1, min(count, there))).astype(np.int64)) * every

    def baselines(self, runs: int) -> dict[str, float]:
        """Errors to hold others against, as means over the runs: of the first weights and of the best there are."""
        problems = [self.mdp(run) for run in range(runs if self.fresh else 1)]
        first = np.mean([mdp.rmsve(self._theta(mdp)) for mdp in problems])
        best = np.mean([mdp.rmsve(mdp.best) for mdp in problems])
        return {"first weights" if self.theta else "θ = 0": float(first), "best linear approximation": float(best)}

    def score(self, run: int, settings: GridSettings, every: int, points: NDArray[np.int64]) -> Scores:
        """Learn all settings side by side on one stream."""
        mdp, K = self.mdp(run), len(settings)
        given = mdp.simulate(self.steps, seed=(self.seed, run)).inputs(settings.rule)
        fixed = _keywords(settings, mdp)
        if "lambda_" in fixed:
            given.pop("lambda_next", None)  # as a grid sets λ, it is the same everywhere
        learner = Learner(
            settings.rule, mdp.n, K, engine="dense" if every < _OFTEN else "auto", stepsize=settings.stepsize
        )
        learner.theta = self._theta(mdp)
        size = every * max(1, _ERRORS // K)
        total, curve = np.zeros(K), np.empty((len(points), K))
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore", UndiscountedWarning)  # an episode may be longer than a block
            for begin in range(0, self.steps, size):
                end = min(begin + size, self.steps)
                block = {name: _rows(name, value, begin, end) for name, value in given.items()}
                _, error = learner.run(
                    **(block | fixed), predictions=False, probe=mdp.probe, probe_every=every, on_divergence="freeze"
                )
                total += error.sum(axis=0)
                here = (points >= begin) & (points < end)
                curve[here] = error[(points[here] - begin) // every]
        curve[(points[:, None] > learner.steps_taken) & learner.frozen] = np.inf
        error = inputs.probe(mdp.probe, mdp.n)
        usual = error(np.stack([self._theta(mdp), np.zeros(mdp.n)])).max()  # the first weights may be the best
        return Scores.of(total / -(-self.steps // every), error(learner.theta), curve, learner.frozen, float(usual))

    def _theta(self, mdp: MDP) -> NDArray[np.float64]:
        """The first weights."""
        theta = np.zeros(mdp.n) if self.theta is None else np.asarray(self.theta, np.float64)
        if theta.shape != (mdp.n,) or not np.isfinite(theta).all():
            raise refusal("theta", "sweep", f"be {mdp.n} finite numbers", repr(self.theta))
        return theta


def _rows(name: str, value: Any, begin: int, end: int) -> Any:
    """Of a block: (T+1, n), or (T, 1), which is of all learners also where they are as many as its steps."""
    return value[begin : end + 1] if name == "Phi" else value[begin:end, None]


def _keywords(settings: GridSettings, mdp: MDP) -> dict[str, Any]:
    """The parameters as ``run`` takes them, (1, K)."""
    values = {("lambda_" if name == "lambda" else name): column for name, column in settings.values.items()}
    if "zeta" in values:
        values["xi"] = np.array([mdp.xi(zeta) for zeta in values.pop("zeta")])
    return {name: column[None] for name, column in values.items()}
