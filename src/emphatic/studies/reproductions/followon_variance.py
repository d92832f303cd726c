"""The follow-on trace where nothing bounds it: its mean falls while its variance grows.

Sutton, Mahmood & White (2016), on the variance of emphatic TD. On the θ → 2θ problem with interest only at t = 0, F_t
is 1.8ᵗ if the first t actions were all right and 0 otherwise, so that E F_t = .9ᵗ and Var F_t = 1.62ᵗ − .81ᵗ. All 2ᵗ
action strings are run through the learner, a learner each: nothing is sampled.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from emphatic import problems
from emphatic.learning.learner import Learner
from emphatic.report import Axis, Figure, Key, Line, Marks, Panel, Plot, category
from emphatic.studies.agreement import Outcome, compare
from emphatic.studies.conditions import Conditions

__all__ = ["SOURCE", "TITLE", "run"]

TITLE = "The variance of the follow-on trace"
SOURCE = (
    "Sutton, Mahmood & White, An Emphatic Approach to the Problem of Off-policy Temporal-Difference Learning, "
    "JMLR 17 (2016), on θ → 2θ with interest at t = 0 only."
)

PUBLISHED: dict[str, Callable[[int], float]] = {
    "F on the all-right path": lambda t: 1.8**t,
    "mean of F": lambda t: 0.9**t,
    "variance of F": lambda t: 1.62**t - 0.81**t,
}
RULES = ("etd", "true_online_etd")
RELATIVE = 1e-12


def run(how: Conditions) -> Outcome:
    """F_t of every action string of length t, for all t up to some; there is nothing that ``seed`` would change."""
    t_max = 10 if how.quick else 16
    found = {rule: follow(rule, t_max) for rule in RULES}
    steps = np.arange(1, t_max + 1)
    checks = []
    for name, of in PUBLISHED.items():
        for t in range(2, t_max + 1, 4):
            ours = max((found[rule][name][t - 1] for rule in RULES), key=lambda value: abs(value - of(t)))
            checks.append(compare(f"{name}, t = {t}", of(t), ours, RELATIVE * of(t), f"{2**t:,} strings", "printed"))
    lines, marks, keys = [], [], []
    for i, (name, of) in enumerate(PUBLISHED.items()):
        lines.append(Line(steps, found["etd"][name], name, category(i)))
        marks.append(Marks(steps, [of(int(t)) for t in steps], f"published {name}", category(i)))
        keys.append(Key(category(i), name))
    plot = Plot({"all": [Panel("F after t steps", lines, marks=marks)]}, "F", x=Axis("t"), y=Axis("", scale="log"))
    caption = "Lines: over all action strings. Diamonds: 1.8ᵗ, .9ᵗ and 1.62ᵗ − .81ᵗ as published."
    notes = [
        "etd and true_online_etd were both run; a row shows the one that is farther off.",
        f"Nothing is sampled, so that the tolerance is rounding alone: {RELATIVE:g} of the number.",
    ]
    return Outcome(checks, [Figure("Growth", plot, caption, keys)], notes, {"longest string": t_max})


def follow(rule: str, t_max: int) -> dict[str, list[float]]:
    """The three numbers after 1 … t_max steps.

    Learner k goes right where bit t of k is 1. F does not depend on φ, so that any will do.
    """
    problem = problems.two_theta()
    mu, gamma = np.asarray(problem.mu)[0], float(np.ravel(problem.gamma)[0])
    strings = np.arange(2**t_max)
    learner = Learner(rule, 1, len(strings), engine="dense")
    found: dict[str, list[float]] = {name: [] for name in PUBLISHED}
    for t in range(t_max):
        right = (strings >> t) & 1
        learner.learn(0.1, float(t == 0), 0.5, [1.0], right / mu[1], 0.0, [2.0], gamma)
        F = learner.F  # ρ_t γ F_t is what is remembered: F_{t+1} where the interest is 0
        for name, value in zip(PUBLISHED, (F[-1], F.mean(), F.var()), strict=True):
            found[name].append(float(value))
    return found
