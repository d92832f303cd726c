"""The five-state chain: TD and emphatic TD come to different fixed points, each to its own.

Sutton, Mahmood & White (2016), section 5 and the empirical examples. Five states with three features; μ goes
left with probability ⅔, π goes right. The distribution of updates, the fixed points and their errors are computed
exactly from the problem; then learners find the fixed points from sampled streams, with a step size that falls as 1/t.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from emphatic import problems
from emphatic.learning.learner import Learner
from emphatic.report import Axis, Figure, Key, Level, Line, Marks, Panel, Plot, category
from emphatic.studies.agreement import Check, Outcome, compare
from emphatic.studies.conditions import Conditions, Progress

__all__ = ["SOURCE", "TITLE", "run"]

TITLE = "The five-state chain"
SOURCE = (
    "Sutton, Mahmood & White, An Emphatic Approach to the Problem of Off-policy Temporal-Difference Learning, "
    "JMLR 17 (2016), section 5 and the learning curves on that problem."
)

Array = NDArray[np.float64]
#: Fixed points by rule and λ. They follow from the paper's definitions.
FIXED_POINTS = {
    ("td", 0.0): (2.172414, -0.413793, 1.275862),
    ("etd", 0.0): (2.271840, 0.907760, 0.121523),
    ("etd", 0.5): (2.809249, 0.786127, 0.260116),
    ("td", 1.0): (3.577778, 0.266667, 0.822222),
    ("etd", 1.0): (3.577778, 0.266667, 0.822222),
}
MSVE = {"td": 2.877066, "etd": 1.728646, "best": 0.665233}
LEARNED = {("td", 0.0): "td", ("etd", 0.0): "etd", ("etd", 0.5): "etd", ("true_online_etd", 0.5): "etd"}
ALPHA, FALL = 0.005, 5_000
#: Of the figure: a constant α and so many steps, one point in so many.
CONSTANT, CURVE, EVERY = 0.001, 50_000, 250


def exact() -> list[Check]:
    """What needs no sampling, to the last printed digit."""
    chain = problems.chain()
    Phi = np.asarray(chain.Phi)
    interested = problems.chain(I=1.0 + Phi[:, 1] + 2.0 * Phi[:, 2])
    exactly = 1e-12
    checks = [
        compare("d_μ × 31", [16, 8, 4, 2, 1], 31 * chain.d_mu, exactly, origin="printed"),
        compare("v_π", [4, 3, 2, 1, 1], chain.v_pi, exactly, origin="printed"),
        compare("f = m at λ = 0, × 31", [16, 24, 28, 30, 1], 31 * chain.followon(), 10 * exactly, origin="printed"),
        compare("m, I = 1 + φ₂ + 2φ₃, × 31", [16, 32, 40, 48, 3], 31 * interested.emphasis("etd"), 10 * exactly),
        compare("ETD(0), that I, fixed point", [2.066667, 1.133333, -0.066667], interested.fixed_point("etd"), 5e-7),
    ]
    for (rule, lambda_), theta in FIXED_POINTS.items():
        found = problems.chain(lambda_).fixed_point(rule)
        checks.append(compare(f"{rule.upper()}({lambda_:g}), fixed point", theta, found, 5.1e-7))
    for rule, error in MSVE.items():
        least = chain.best if rule == "best" else chain.fixed_point(rule)
        checks.append(
            compare(f"MSVE, {rule if rule == 'best' else rule.upper() + '(0)'}", error, chain.msve(least), 5e-7)
        )
    return checks


def learn(task: tuple[int, int, int]) -> list[Array]:
    """The last weights of each of ``LEARNED`` in run i after T steps, α falling as 1/t."""
    seed, i, T = task
    stream = problems.chain().simulate(T, seed=(seed, i))
    alpha = ALPHA / (1.0 + np.arange(T) / FALL)
    found = []
    for rule, lambda_ in LEARNED:
        learner = Learner(rule, 3, engine="dense")
        learner.run(**(stream.inputs(rule) | {"lambda_": lambda_}), alpha=alpha, predictions=False)
        found.append(np.array(learner.theta))
    return found


def run(how: Conditions) -> Outcome:
    """The exact numbers, what is learned from streams, and the learning curves."""
    runs, T = (20, 100_000) if how.quick else (50, 400_000)
    learned = np.array(how.each(learn, [(how.seed, i, T) for i in range(runs)], "streams"))
    checks = exact()
    for k, ((rule, lambda_), kind) in enumerate(LEARNED.items()):
        mean, se = learned[:, k].mean(axis=0), learned[:, k].std(axis=0, ddof=1) / np.sqrt(runs)
        theta = FIXED_POINTS[kind, lambda_]
        checks.append(compare(f"learned, {rule}, λ = {lambda_:g}", theta, mean, 5.0 * se))
    notes = [
        "d_μ, v_π, f and m are printed in the paper; fixed points and errors follow from its definitions, given "
        "to six decimals.",
        f"Learned weights: the mean of {runs} streams of {T:,} steps, α = {ALPHA}/(1 + t/{FALL:,}); the tolerance is 5 "
        "standard errors of that mean, each weight's own.",
    ]
    settings = {"streams": runs, "steps": T}
    return Outcome(checks, [_curves(how.seed, how.progress), _weights(learned)], notes, settings)


def _curves(seed: int, progress: Progress, curves: int = 20) -> Figure:
    """The root of the MSVE along twenty streams, with the expected update's own in the middle."""
    chain = problems.chain()
    steps = np.arange(0, CURVE, EVERY)
    lines, levels, keys = [], [], []
    for i, rule in enumerate(("td", "etd")):
        ink, name = category(i), f"{rule.upper()}(0)"
        for j in range(curves):
            stream = chain.simulate(CURVE, seed=(seed, j))
            learner = Learner(rule, 3, engine="dense")
            _, error = learner.run(
                **stream.inputs(rule), alpha=CONSTANT, predictions=False, probe=chain.probe, probe_every=EVERY
            )
            lines.append(Line(steps, error, name, ink, width=0.8, opacity=0.45, hover=False))
        theta, path = np.zeros(3), []
        A, b = chain.A_matrix(rule), chain.b_vector(rule)
        for t in range(CURVE):
            if t % EVERY == 0:
                path.append(chain.rmsve(theta))
            theta = theta + CONSTANT * (b - A @ theta)
        lines.append(Line(steps, path, f"{name}, expected update", ink, width=3.0))
        levels.append(Level(float(np.sqrt(MSVE[rule])), f"{name}, fixed point", ink=ink))
        keys.append(Key(ink, f"{name}; thick: its expected update; dashed: its fixed point"))
        progress("curves", i + 1, 2)
    levels.append(Level(float(np.sqrt(MSVE["best"])), "the least there is", "dot"))
    panel = Panel("√MSVE", lines, (0.0, 3.0), levels=levels)
    plot = Plot({"all": [panel]}, "curves", x=Axis("steps"), y=Axis("√MSVE"), closest=True)
    caption = f"{curves} streams, θ_0 = 0, α = {CONSTANT}. Dotted: the best that three features can do."
    return Figure("Learning curves", plot, caption, keys)


def _weights(learned: Array) -> Figure:
    """Where each stream's weights ended, beside the published fixed points."""
    panels = []
    for k, ((rule, lambda_), kind) in enumerate(LEARNED.items()):
        runs = len(learned)
        places = np.repeat(np.arange(1.0, 4.0), runs) + np.tile(np.linspace(-0.3, -0.1, runs), 3)
        ours = Marks(places, learned[:, k].T.ravel(), f"{rule}, one stream each", category(0), symbol="dot")
        theirs = Marks([1, 2, 3], FIXED_POINTS[kind, lambda_], "fixed point")
        panels.append(Panel(f"{rule}, λ = {lambda_:g}", [], marks=[ours, theirs]))
    x = Axis("weight", range=(0.5, 3.5), ticks={1.0: "θ₁", 2.0: "θ₂", 3.0: "θ₃"})
    plot = Plot({"all": panels}, "weights", 4, 2, x=x, y=Axis(""), closest=True)
    keys = [
        Key(category(0), "learned, one dot per stream", symbol="dot"),
        Key("truth", "fixed point", symbol="diamond"),
    ]
    return Figure("Learned weights", plot, "After the last step of each stream, α falling as 1/t.", keys)
