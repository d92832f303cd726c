"""θ → 2θ: off-policy TD(0) diverges, emphatic TD(0) comes to zero.

Sutton, Mahmood & White (2016), sections 3 and 4 and the empirical examples. Two states of one weight, φ = 1 and 2,
γ = .9; right leads to the second state, π goes right, μ either way. The expected update of TD(0) is θ ← (1 + .2α)θ,
that of ETD(0) is θ ← (1 − 3.4α)θ. The variance of emphasis has no bound here: a path may stray from zero for a while,
and with another λ a few stray far. Emphatic TD is therefore judged by its median path.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from emphatic import problems
from emphatic.learning.learner import Learner
from emphatic.report import Axis, Figure, Key, Line, Panel, Plot, category
from emphatic.studies.agreement import Check, Outcome, claim, compare, finding
from emphatic.studies.conditions import Conditions

__all__ = ["SOURCE", "TITLE", "run"]

TITLE = "θ → 2θ"
SOURCE = (
    "Sutton, Mahmood & White, An Emphatic Approach to the Problem of Off-policy Temporal-Difference Learning, "
    "JMLR 17 (2016), sections 3 and 4 and the trajectories on that problem."
)

Array = NDArray[np.float64]
ALPHA = 0.001
RULES = {"td": 0.0, "etd": 0.0, "true_online_etd": 0.5}
#: A at each λ: of TD(0), and of ETD(λ).
EXPECTED = {("td", 0.0): -0.2, ("etd", 0.0): 3.4, ("etd", 0.5): 73 / 22, ("etd", 1.0): 2.5}
EXACT = 1e-12


def exact() -> list[Check]:
    """What needs no sampling, and one step of the learner from each state."""
    problem = problems.two_theta()
    checks = [
        compare("d_μ", [0.5, 0.5], problem.d_mu, EXACT),
        compare("f at λ = 0", [0.5, 9.5], problem.followon(), EXACT, origin="printed"),
        compare("m at λ = .5", [0.5, 5.0], problems.two_theta(0.5).emphasis("etd"), EXACT),
        compare("m at λ = 1", [0.5, 0.5], problems.two_theta(1.0).emphasis("etd"), EXACT),
        compare("key matrix, TD(0)", [[0.5, -0.45], [0.0, 0.05]], problem.key_matrix("td"), EXACT, origin="printed"),
        compare("key matrix, ETD(0)", [[0.5, -0.45], [0.0, 0.95]], problem.key_matrix("etd"), EXACT, origin="printed"),
    ]
    for (rule, lambda_), A in EXPECTED.items():
        found = problems.two_theta(lambda_).A_matrix(rule)
        checks.append(compare(f"A, {rule.upper()}({lambda_:g})", A, found.item(), EXACT))
    for phi, theta in ((1.0, 11.6), (2.0, 9.2)):
        learner = Learner("td", 1, engine="dense")
        learner.theta = [10.0]
        learner.learn(0.1, 1.0, 0.0, [phi], 2.0, 0.0, [2.0], 0.9)
        checks.append(
            compare(f"one TD(0) step from θ = 10, φ = {phi:g}", theta, learner.theta.item(), EXACT, origin="printed")
        )
    return checks


def run(how: Conditions) -> Outcome:
    """The exact numbers, and θ along sampled paths of three rules from θ_0 = 1."""
    paths, T = (20, 5_000) if how.quick else (50, 10_000)
    found = {rule: trajectories(rule, lambda_, paths, T, how.seed) for rule, lambda_ in RULES.items()}
    growth = np.log(found["td"][:, -1]) / (ALPHA * T)
    se = growth.std(ddof=1) / np.sqrt(paths)
    least = found["td"][:, -1].min()
    checks = exact()
    checks += [
        compare("growth of log θ per α, TD(0)", 0.2, growth.mean(), 4.0 * se + 0.4 * ALPHA, "the rate −A"),
        claim("least |θ_T|, TD(0)", "diverges", least, least > 1.0, "agrees if every path has grown"),
    ]
    for rule in ("etd", "true_online_etd"):
        last = np.abs(found[rule][:, -1])
        of = f"{rule}, λ = {RULES[rule]:g}"
        median = float(np.median(last))
        checks += [
            claim(f"median |θ_T|, {of}", "comes to 0", median, median < 0.01, "agrees if it is below .01"),
            finding(f"paths with |θ_T| > 1, {of}", float(np.sum(last > 1.0)), f"of {paths}"),
        ]
    notes = [
        "f, both key matrices at λ = 0, the two steps and the divergence of TD(0) are printed in the paper; m and A "
        "follow from its definitions.",
        f"{paths} paths of {T:,} steps from θ_0 = 1 with α = {ALPHA}. The tolerance of the rate is 4 standard errors "
        "and .4α, which is what a finite α takes from it.",
        "The mean of emphatic TD says little here, as rare paths with a large follow-on trace govern it: with a "
        "constant α some paths may stray however the expected update contracts. The median path is judged.",
    ]
    return Outcome(checks, [_figure(found, T)], notes, {"paths": paths, "steps": T, "α": ALPHA})


def trajectories(rule: str, lambda_: float, paths: int, T: int, seed: int) -> Array:
    """θ before each of T steps and after the last, (paths, T+1)."""
    streams = problems.two_theta().simulate(T, seed=seed, runs=paths)
    theta = np.empty((paths, T + 1))
    for i in range(paths):
        stream = streams[i]
        learner = Learner(rule, 1, engine="dense")
        learner.theta = [1.0]
        predictions = learner.run(**(stream.inputs(rule) | {"lambda_": lambda_}), alpha=ALPHA, on_divergence="freeze")
        theta[i, :-1] = predictions / stream.Phi[:-1, 0]
        theta[i, -1] = learner.theta.item()
    return theta


def _figure(found: dict[str, Array], T: int) -> Figure:
    every = T // 200
    steps = np.arange(0, T + 1, every)
    panels = []
    for i, (rule, theta) in enumerate(found.items()):
        A = EXPECTED["td" if rule == "td" else "etd", RULES[rule]]
        lines = [Line(steps, (1.0 - ALPHA * A) ** steps, "expected update", "truth", width=2.5)]
        lines += [
            Line(steps, np.abs(path[::every]), rule, category(i), width=0.8, opacity=0.5, hover=False) for path in theta
        ]
        panels.append(Panel(f"|θ|: {rule}, λ = {RULES[rule]:g}", lines, (0.5, 20.0) if rule == "td" else (1e-8, 1e2)))
    plot = Plot({"all": panels}, "paths", 3, 1, x=Axis("steps"), y=Axis("|θ|", scale="log"), closest=True)
    caption = (
        "One thin line per path, logarithmic scale. A typical path of emphatic TD falls more slowly than its expected "
        "update, to which rare paths with a large follow-on trace contribute most."
    )
    keys = [Key("truth", "expected update, (1 − αA)ᵗ, A as published")]
    return Figure("Trajectories", plot, caption, keys)
