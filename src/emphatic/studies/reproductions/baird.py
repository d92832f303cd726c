"""Baird's counterexample: what expected updates do, and what no update can change.

Sutton & Barto (2018), section 11.2 (figure 11.2, right) and section 11.8 (figure 11.6). w_0 = (1,1,1,1,1,1,10,1),
γ = .99. Swept over all states, semi-gradient TD(0) diverges, and weighted by emphasis it converges. The direction
(1,1,1,1,1,1,4,−2) is orthogonal to every feature vector, so that w_t keeps its share of it, 44, on every sampled path.
Sampled emphatic TD itself does not converge usefully here, as the book says, and nothing below requires it to.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from emphatic import problems
from emphatic.learning.learner import Learner
from emphatic.report import Axis, Figure, Key, Line, Marks, Panel, Plot, category
from emphatic.studies.agreement import Check, Outcome, compare
from emphatic.studies.conditions import Conditions

__all__ = ["SOURCE", "TITLE", "run"]

TITLE = "Baird's counterexample"
SOURCE = (
    "Sutton & Barto, Reinforcement Learning: An Introduction, 2nd edition (2018), figures 11.2 and 11.6; "
    "the limit and the invariant follow from the problem."
)

START = np.array([1.0, 1, 1, 1, 1, 1, 10, 1])
UNSEEN = np.array([1.0, 1, 1, 1, 1, 1, 4, -2])
SWEEPS = 1_000
DIVERGED = {"w₁ … w₆": 114.43, "w₇": 6.850, "w₈": 335.00}
LIMIT = {"w₁ … w₆": 22 / 13, "w₇": 88 / 13, "w₈": -44 / 13}
SAMPLED = ("td", "true_online_td", "etd", "true_online_etd")
Array = NDArray[np.float64]


def sweep(rule: str, alpha: float, weight: Array) -> Array:
    """w before each of 1,000 expected updates and after the last.

    An update is the sum over the states of the learner's first step from the same w, with the state's weight as its
    interest. π always goes to the seventh state, so that ρ = 1 and φ' is that state's.
    """
    problem = problems.baird()
    Phi, gamma = np.asarray(problem.Phi), float(np.ravel(problem.gamma)[0])
    learner = Learner(rule, problem.n, engine="dense")
    w = [START]
    for _ in range(SWEEPS):
        change = np.zeros(problem.n)
        for s in range(problem.S):
            learner.cut()
            learner.theta = w[-1]
            learner.learn(alpha, float(weight[s]), 0.0, Phi[s], 1.0, 0.0, Phi[6], gamma)
            change += learner.theta - w[-1]
        w.append(w[-1] + change)
    return np.array(w)


def invariant(rule: str, paths: int, steps: int, seed: int) -> tuple[float, float]:
    """What UNSEEN·w_t was where it was farthest from 44 on sampled paths, and the largest |w| there was."""
    streams = problems.baird().simulate(steps, seed=seed, runs=paths)
    farthest, largest = 44.0, 0.0
    for i in range(paths):
        stream = streams[i]
        learner = Learner(rule, len(START), engine="dense")
        learner.theta = START
        for t in range(steps):
            learner.learn(
                0.002, 1.0, 0.3, stream.Phi[t], stream.rho[t], stream.R[t], stream.Phi[t + 1], stream.gamma_next[t]
            )
            w = learner.theta
            farthest = max(farthest, float(UNSEEN @ w), key=lambda value: abs(value - 44.0))
            largest = max(largest, float(np.abs(w).max()))
    return farthest, largest


def run(how: Conditions) -> Outcome:
    """Both expected updates in full, and the invariant on some sampled paths."""
    paths, steps = (5, 100) if how.quick else (50, 500)
    problem = problems.baird()
    plain = sweep("td", 0.01, np.asarray(problem.d_mu))
    how.progress("sweeps and paths", 1, 6)
    emphatic = sweep("etd", 0.1, problem.followon())
    how.progress("sweeps and paths", 2, 6)
    checks = [
        *_compare("TD", DIVERGED, plain[-1], 5e-3),
        *_compare("emphatic TD", LIMIT, emphatic[-1], 1e-9),
    ]
    for i, rule in enumerate(SAMPLED):
        farthest, largest = invariant(rule, paths, steps, how.seed)
        how.progress("sweeps and paths", 3 + i, 6)
        note = f"the farthest of all; the largest weight was {largest:.3g}"
        checks.append(compare(f"(1,1,1,1,1,1,4,−2)·w_t, {rule}", 44.0, farthest, 1e-12 * steps * largest, note))
    notes = [
        f"TD and emphatic TD: the expected updates after {SWEEPS:,} sweeps. The book's figure 11.2 shows about 115, 7 "
        "and 335; to more digits these follow from the problem, as do the limit and the invariant.",
        f"The invariant: after every update on each of {paths} sampled paths of {steps} steps, α = .002 and λ = .3. "
        "Its tolerance is rounding: 10⁻¹² of the largest weight a step.",
        "Sampled emphatic TD has a variance here that no step size tames: only its expected update converges.",
    ]
    figures = [
        _figure("Figure 11.2, right: semi-gradient TD, uniformly weighted, α = .01", plain, DIVERGED, "plain"),
        _figure("Figure 11.6: the same weighted by emphasis, α = .1", emphatic, LIMIT, "emphatic"),
    ]
    return Outcome(checks, figures, notes, {"sweeps": SWEEPS, "paths": paths, "steps": steps})


def _compare(what: str, published: dict[str, float], w: Array, tolerance: float) -> list[Check]:
    """The first six weights, which are equal, as one number: that of the one farthest off."""
    first = w[np.argmax(np.abs(w[:6] - published["w₁ … w₆"]))]
    return [
        compare(f"{what}: {name}", number, ours, tolerance)
        for (name, number), ours in zip(published.items(), (first, w[6], w[7]), strict=True)
    ]


def _figure(title: str, w: Array, published: dict[str, float], group: str) -> Figure:
    sweeps = np.arange(len(w))
    parts = (w[:, 0], w[:, 6], w[:, 7])
    lines = [Line(sweeps, y, name, category(i)) for i, (name, y) in enumerate(zip(published, parts, strict=True))]
    marks = [Marks([SWEEPS], [y], f"published {name}", category(i)) for i, (name, y) in enumerate(published.items())]
    plot = Plot({"all": [Panel("weights", lines, marks=marks)]}, group, x=Axis("sweeps"), y=Axis("weight"))
    keys = [Key(category(i), name) for i, name in enumerate(published)]
    return Figure(title, plot, "Diamonds: the weights after the last sweep, as published and to more digits.", keys)
