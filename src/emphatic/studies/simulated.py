"""Simulated runs of a problem whose exact values are known."""

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

from emphatic.learning import inputs
from emphatic.learning.inputs import refusal
from emphatic.learning.returns import UndiscountedWarning
from emphatic.problems import MDP, Tasks
from emphatic.studies.grid import GridSettings
from emphatic.studies.least_squares_rule import LeastSquaresRule
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
    mean square value error, weighted by d_μ·I or by ``d``, of the weights before an update; at the end, of the last
    weights. Of ``Tasks`` each has learners of its own, and the error is the mean over the tasks.

    Where the target policy is undefined nothing is learned: ρ, I and both step sizes are 0 there.
    """

    problem: MDP | Tasks | Callable[..., MDP | Tasks]
    steps: int
    seed: int = 0
    theta: tuple[float, ...] | None = None
    d: tuple[float, ...] | None = None

    metric = "RMSVE"

    @property
    def weights(self) -> str:
        """What weighs the states' errors."""
        return "d_μ·I" if self.d is None else "given"

    @functools.cached_property
    def name(self) -> str:
        if isinstance(self.problem, MDP | Tasks):
            return self.problem.name or "MDP"
        if not isinstance(self.problem, functools.partial):
            return str(getattr(self.problem, "__name__", "problem"))
        shown = {name: repr(value) for name, value in self.problem.keywords.items()}
        options = ", ".join(f"{name}={value if len(value) < 40 else '…'}" for name, value in shown.items())
        return f"{getattr(self.problem.func, '__name__', 'problem')}({options})"

    @property
    def fresh(self) -> bool:
        """Whether each run has a problem of its own."""
        if isinstance(self.problem, MDP | Tasks) or "seed" in getattr(self.problem, "keywords", ()):
            return False
        return "seed" in inspect.signature(self.problem).parameters

    def mdp(self, run: int) -> MDP | Tasks:
        """The problem of a run."""
        return self._made(seed=(self.seed, run)) if self.fresh else self._only

    @functools.cached_property
    def _only(self) -> MDP | Tasks:
        """The one problem of all runs, which keeps what was computed of it."""
        return self._made()

    def _made(self, **seed: Any) -> MDP | Tasks:
        made = self.problem if isinstance(self.problem, MDP | Tasks) else self.problem(**seed)
        if not isinstance(made, MDP | Tasks):
            raise refusal("problem", "sweep", "be a problem, or a function that makes one", repr(made))
        return made

    def tasks(self, run: int) -> tuple[MDP, ...]:
        """Its tasks; of an ``MDP`` the one that it is."""
        made = self.mdp(run)
        return made.tasks if isinstance(made, Tasks) else (made,)

    def check(self, settings: GridSettings) -> None:
        """ValueError where these settings cannot learn from it."""
        rule = settings.rule
        for mdp in self.tasks(0):
            if not rule.interest and (mdp.I[mdp.defined] != 1.0).any():
                wanted = f"use interest, which {self.name} has where its target policy is defined"
                raise refusal("rule", "sweep", wanted, repr(rule.name))
            if self.theta is not None and isinstance(rule, LeastSquaresRule):
                raise refusal("theta", "sweep", f"be left out for {rule.name!r}, which begins without weights", "some")
            if rule.action_values and (mdp.pi != mdp.mu).any():
                named = rule.class_name or rule.name
                wanted = f"learn state values; {named} learns those of the target policy only on-policy"
                raise refusal("rule", "sweep", wanted, repr(rule.name))
            self._theta(mdp)
            self._probe(mdp)

    def identity(self) -> str:
        """A hash that identifies these runs."""
        digest = hashlib.sha256(f"{self.name} {self.steps} {self.seed} {self.fresh} {self.theta} {self.d}".encode())
        for mdp in self.tasks(0):
            for name in ("P", "R", "gamma", "pi", "mu", "Phi", "I", "lambda_", "start"):
                part = np.ascontiguousarray(getattr(mdp, name), np.float64)
                digest.update(f"{name} {part.shape}".encode() + part.tobytes())
        return digest.hexdigest()

    def points(self, count: int, every: int, early: bool = False) -> NDArray[np.int64]:
        """About ``count`` of the steps 0, every, 2·every, …, evenly spread; with ``early`` half of them towards 0."""
        there = -(-self.steps // every)
        first: Any = np.geomspace(1, there, count // 2) - 1 if early and there > count else []
        even = np.linspace(0, there - 1, min(count, there) - len(first))
        return np.unique(np.round(np.append(first, even)).astype(np.int64)) * every

    def baselines(self, runs: int) -> dict[str, float]:
        """Errors to compare with, as means over the runs: of the first weights and of the best weights."""
        errors = []
        for run in range(runs if self.fresh else 1):
            for mdp in self.tasks(run):
                error = inputs.probe(self._probe(mdp), mdp.n, None)
                errors.append(error(np.stack([self._theta(mdp), mdp.best_for(self.d)])))
        first, best = np.mean(errors, axis=0)
        return {"first weights" if self.theta else "θ = 0": float(first), "best linear approximation": float(best)}

    def score(self, run: int, settings: GridSettings, every: int, points: NDArray[np.int64]) -> Scores:
        """Learn all settings side by side on one stream."""
        return Scores.averaged([self._score(mdp, run, settings, every, points) for mdp in self.tasks(run)])

    def _score(self, mdp: MDP, run: int, settings: GridSettings, every: int, points: NDArray[np.int64]) -> Scores:
        """One task."""
        rule, K, probe = settings.rule, len(settings), self._probe(mdp)
        stream = mdp.simulate(self.steps, seed=(self.seed, run))
        given, fixed = stream.inputs(settings.stream_rule), _keywords(settings, mdp)
        if "lambda_" in fixed:
            given.pop("lambda_next", None)  # as a grid sets λ, it is the same everywhere
        # (β = eta·α follows α)
        step_sizes = ["alpha"] + ["beta"] * ("beta" in fixed and rule.defaults.get("beta") == "eta")
        active = None if stream.active.all() else stream.active
        learner = settings.learner(mdp.n, engine="dense" if every < _OFTEN else "auto")
        if self.theta is not None:
            learner.theta = self._theta(mdp)
        size = every * max(1, _ERRORS // (K * (1 if active is None else every)))
        total, curve = np.zeros(K), np.empty((len(points), K))
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore", UndiscountedWarning)  # an episode may be longer than a block
            for begin in range(0, self.steps, size):
                end = min(begin + size, self.steps)
                block = {name: _rows(name, value, begin, end) for name, value in given.items()} | fixed
                if active is not None and "alpha" in fixed:
                    block |= {name: fixed[name] * active[begin:end, None] for name in step_sizes}
                _, error = learner.run(
                    **block, predictions=False, probe=probe, probe_every=every, on_divergence="freeze"
                )
                total += error.sum(axis=0)
                here = (points >= begin) & (points < end)
                curve[here] = error[(points[here] - begin) // every]
        curve[(points[:, None] > learner.steps_taken) & learner.frozen] = np.inf
        error = inputs.probe(probe, mdp.n, None)
        usual = error(np.stack([self._theta(mdp), np.zeros(mdp.n)])).max()  # the first weights may be the best
        return Scores.of(total / -(-self.steps // every), error(learner.theta), curve, learner.frozen, float(usual))

    def _theta(self, mdp: MDP) -> NDArray[np.float64]:
        """The first weights."""
        theta = np.zeros(mdp.n) if self.theta is None else np.asarray(self.theta, np.float64)
        if theta.shape != (mdp.n,) or not np.isfinite(theta).all():
            raise refusal("theta", "sweep", f"be {mdp.n} finite numbers", repr(self.theta))
        return theta

    def _probe(self, mdp: MDP) -> tuple[Any, Any, Any]:
        """What errors are measured with."""
        if self.d is None:
            return mdp.probe
        return mdp.Phi, mdp.v_pi, mdp.checked_weights(self.d, "sweep")


def _rows(name: str, value: Any, begin: int, end: int) -> Any:
    """Of a block: (T+1, n), or (T, 1), which is of all learners also where they are as many as its steps."""
    return value[begin : end + 1] if name == "Phi" else value[begin:end, None]


def _keywords(settings: GridSettings, mdp: MDP) -> dict[str, Any]:
    """The parameters as ``run`` takes them, (1, K)."""
    values = settings.of_steps
    if "zeta" in values:
        values["xi"] = np.array([mdp.xi(zeta) for zeta in values.pop("zeta")])
    return {name: column[None] for name, column in values.items()}
