"""The 19-state random walk: TD(λ) and true online TD(λ) over λ and α.

Sutton & Barto (2018), figures 12.6 and 12.8. A walk from the middle of 19 states ends beyond the left end with −1 or
beyond the right end with +1; γ = 1, one feature per state, θ_0 = 0. The RMS error over the states is taken at the end
of each episode and averaged over the first ten, and over runs: the book's 100, here more. All settings of a rule are
one Horde that learns from the same walk.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from emphatic import problems
from emphatic.learning.learner import Learner
from emphatic.report import Axis, Figure, Key, Line, Marks, Panel, Plot, shades
from emphatic.studies.agreement import Check, Outcome, compare
from emphatic.studies.conditions import Conditions

__all__ = ["SOURCE", "TITLE", "run"]

TITLE = "The 19-state random walk"
SOURCE = "Sutton & Barto, Reinforcement Learning: An Introduction, 2nd edition (2018), figures 12.6 and 12.8."

LAMBDAS = (0.0, 0.4, 0.8, 0.9, 0.95, 0.975, 0.99, 1.0)
#: The least error of each curve, read off to ±.003; of true online TD(λ) also its α, and the error at α = 1.
BEST = {
    "true_online_td": (0.347, 0.277, 0.259, 0.280, 0.317, 0.361, 0.415, 0.491),
    "td": (0.347, 0.277, 0.265, 0.292, 0.332, 0.378, 0.434, 0.502),
}
ALPHA = (0.82, 0.74, 0.40, 0.26, 0.165, 0.105, 0.065, 0.03)
AT_ONE = (0.39, 0.31, 0.372, 0.426, 0.494)
NAMES = {"true_online_td": "true online TD(λ)", "td": "TD(λ)"}
SHORT = {"true_online_td": "true online", "td": "TD(λ)"}

EPISODES = 10
#: Ten walks take 1,000 steps on average, with a standard deviation of 260.
STEPS = 5_000
TOLERANCE, READING = 0.008, 0.003
Array = NDArray[np.float64]


def settings() -> tuple[Array, Array]:
    """λ and α of every learner: α over (0, 1] as in the figures, and finely around the published best."""
    pairs = []
    for lambda_, best in zip(LAMBDAS, ALPHA, strict=True):
        fine = best * np.append(np.arange(0.4, 1.4, 0.1), 1.6)
        alphas = np.unique(np.round(np.append(np.linspace(0.05, 1.0, 20), fine[fine < 1.0]), 6))
        pairs += [(lambda_, alpha) for alpha in alphas]
    lambdas, alphas = np.array(pairs).T
    return lambdas, alphas


def errors(task: tuple[str, int, int, int]) -> Array:
    """The error of every setting in each of some runs, (runs, settings); infinite where it grew beyond all numbers."""
    rule, seed, begin, end = task
    walk = problems.random_walk()
    lambdas, alphas = settings()
    found = []
    for i in range(begin, end):
        stream = walk.simulate(STEPS, seed=(seed, i))
        ends = 1 + np.flatnonzero(stream.gamma_next == 0.0)[:EPISODES]
        learner = Learner(rule, walk.n, len(alphas), engine="dense")
        total = np.zeros(len(alphas))
        for first, last in zip(np.append(0, ends), ends, strict=False):
            learner.run(
                stream.Phi[first : last + 1],
                stream.R[first:last, None],
                stream.gamma_next[first:last, None],
                alpha=alphas[None],
                lambda_=lambdas[None],
                predictions=False,
                on_divergence="freeze",
            )
            with np.errstate(over="ignore"):
                total += np.sqrt(np.mean((learner.theta - walk.v_pi) ** 2, axis=1))
        found.append(total / len(ends))
    return np.array(found)


def run(how: Conditions) -> Outcome:
    """Every cell of the table, and both figures."""
    runs, chunk = (100, 50) if how.quick else (4_000, 50)
    tasks = [(rule, how.seed, i, min(i + chunk, runs)) for rule in BEST for i in range(0, runs, chunk)]
    parts = how.each(errors, tasks, "walks")
    of = {rule: np.vstack([part for part, task in zip(parts, tasks, strict=True) if task[0] == rule]) for rule in BEST}
    checks = [check for rule in BEST for check in _checks(rule, of[rule], how.quick)]
    more = ", and 3 standard errors of our fewer runs" if how.quick else ""
    notes = [
        f"Tolerance: {TOLERANCE}, about one and a half standard errors of the book's 100 runs{more}. The "
        f"book's curves are read off to ± {READING}.",
        "Where a published best α is known, the error there may exceed our least over the grid by no more than "
        f"{2 * READING}, the accuracy of two readings: around its minimum a curve is flat, and where exactly the "
        "minimum is says little.",
    ]
    return Outcome(
        checks,
        [_figure(rule, of[rule]) for rule in BEST],
        notes,
        {"runs": runs, "episodes": EPISODES, "settings of each rule": len(settings()[0])},
    )


def _mean(errors: Array) -> Any:
    with np.errstate(over="ignore"):
        return errors.mean(axis=0)


def _se(errors: Array) -> Any:
    with np.errstate(over="ignore", invalid="ignore"):
        return errors.std(axis=0, ddof=1) / np.sqrt(len(errors))


def _checks(rule: str, found: Array, quick: bool) -> list[Check]:
    lambdas, alphas = settings()
    mean, se = _mean(found), _se(found)
    more = 3.0 if quick else 0.0  # of our standard errors
    checks = []
    for j, lambda_ in enumerate(LAMBDAS):
        here = np.flatnonzero(lambdas == lambda_)
        best = here[np.argmin(mean[here])]
        of = f"{SHORT[rule]}, λ = {lambda_:g}"
        at = f"ours at α = {alphas[best]:.3g}, ± {se[best]:.4f}"
        checks.append(compare(f"{of}: best", BEST[rule][j], mean[best], TOLERANCE + more * se[best], at, "digitised"))
        if rule == "td":
            continue
        there = here[np.argmin(np.abs(alphas[here] - ALPHA[j]))]
        excess = found[:, there] - found[:, best]
        name, allowed = f"{of}: above it at α = {ALPHA[j]:g}", 2 * READING + more * _se(excess)
        checks.append(compare(name, 0.0, excess.mean(), allowed, origin="digitised"))
        if j < len(AT_ONE):
            one = here[-1]
            allowed = TOLERANCE + more * se[one]
            checks.append(compare(f"{of}: at α = 1", AT_ONE[j], mean[one], allowed, origin="digitised"))
    return checks


def _figure(rule: str, found: Array) -> Figure:
    lambdas, alphas = settings()
    mean, se = _mean(found), _se(found)
    shade = shades(LAMBDAS)
    lines, marks, keys = [], [], []
    for j, lambda_ in enumerate(LAMBDAS):
        here = np.flatnonzero(lambdas == lambda_)
        here = here[mean[here] < 1.0]  # what follows is far out of the frame
        name, key = f"λ = {lambda_:g}", f"lambda{j}"
        look: dict[str, Any] = {"ink": "ramp", "shade": shade[lambda_], "key": key}
        low, high = mean[here] - 2 * se[here], mean[here] + 2 * se[here]
        lines.append(Line(alphas[here], mean[here], name, low=low, high=high, **look))
        best = alphas[here[np.argmin(mean[here])]]
        x, y = [ALPHA[j] if rule == "true_online_td" else best], [BEST[rule][j]]
        if rule == "true_online_td" and j < len(AT_ONE):
            x, y = [*x, 1.0], [*y, AT_ONE[j]]
        marks.append(Marks(x, y, f"published, {name}", **look))
        keys.append(Key("ramp", name, shade[lambda_], key))
    number = "12.8" if rule == "true_online_td" else "12.6"
    panel = Panel(f"{NAMES[rule]}: RMS error over the first 10 episodes", lines, (0.24, 0.56), marks)
    plot = Plot({"all": [panel]}, rule, x=Axis("α", range=(0.0, 1.02), name="α"), y=Axis("RMS error"), closest=True)
    caption = "Diamonds: the book's numbers. Bands: two standard errors."
    if rule == "td":
        caption += " The book's best is drawn at our best α, as its own was not read off."
    return Figure(f"Figure {number}: {NAMES[rule]}", plot, caption, keys)
