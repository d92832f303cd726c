"""Is true online TD(λ) ever worse than TD(λ) with accumulating traces, each at its best α?

van Seijen, Mahmood, Pilarski, Machado & Sutton (2016) found on random Markov reward processes with several
representations that it is not. Here: random MDPs (Garnets), on-policy, one feature per state or binary features, all α
and λ of a rule one Horde. For each MDP and λ the RMSVE, averaged over the steps of several streams, is taken at each
rule's best α. This study prints what it finds; there is no number to agree with.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from emphatic import problems
from emphatic.learning.learner import Learner
from emphatic.report import Axis, Figure, Key, Level, Marks, Panel, Plot, category
from emphatic.studies.agreement import Check, Outcome, finding
from emphatic.studies.conditions import Conditions

__all__ = ["SOURCE", "TITLE", "run"]

TITLE = "True online TD(λ) and accumulating traces on random MDPs"
SOURCE = (
    "van Seijen, Mahmood, Pilarski, Machado & Sutton, True Online Temporal-Difference Learning, JMLR 17 (2016), "
    "its random Markov reward processes: true online TD(λ) did at least as well as TD(λ), each at its best step size."
)

Array = NDArray[np.float64]
#: States, branching and features (None: one a state).
SIZES = ((10, 3, None), (10, 3, 6), (100, 10, None), (100, 10, 20))
LAMBDAS = (0.3, 0.6, 0.8, 0.9, 0.95, 1.0)
#: α·φ·φ, so that one grid serves every representation.
ALPHAS = 2.0 ** np.arange(-7.0, 1.125, 0.25)
GAMMA, STEPS, EVERY = 0.99, 1_000, 20
RULES = ("true_online_td", "td")


def best_errors(task: tuple[int, int, int, int]) -> Array:
    """For each rule and λ the error at the best α on one MDP, and the standard error of the difference, (3, λs)."""
    size, seed, i, streams = task
    states, branching, n = SIZES[size]
    mdp = problems.garnet(states, 1, branching, n, seed=[seed, size, i], gamma=GAMMA, on_policy=True)
    alphas = np.tile(ALPHAS / np.mean(np.sum(mdp.Phi**2, axis=1)), len(LAMBDAS))[None]
    lambdas = np.repeat(LAMBDAS, len(ALPHAS))[None]
    found = np.empty((len(RULES), streams, len(LAMBDAS), len(ALPHAS)))
    for j in range(streams):
        stream = mdp.simulate(STEPS, seed=(seed, size, i, j))
        for k, rule in enumerate(RULES):
            learner = Learner(rule, mdp.n, alphas.size, engine="dense")
            given = stream.inputs(rule) | {"alpha": alphas, "lambda_": lambdas}
            given |= {name: given[name][:, None] for name in ("R", "gamma_next", "rho", "I")}
            given |= {"probe": mdp.probe, "probe_every": EVERY, "on_divergence": "freeze"}
            with np.errstate(over="ignore", invalid="ignore"):
                error = learner.run(**given, predictions=False)[1].mean(axis=0)
            found[k, j] = np.where(learner.frozen | np.isnan(error), np.inf, error).reshape(found.shape[2:])
    with np.errstate(over="ignore"):
        at = found.mean(axis=1).argmin(axis=2)  # (rules, λs)
    best = np.take_along_axis(found, at[:, None, :, None], axis=3)[..., 0]  # (rules, streams, λs)
    gap = best[0] - best[1]
    return np.vstack([best.mean(axis=1), gap.std(axis=0, ddof=1) / np.sqrt(streams)])


def run(how: Conditions) -> Outcome:
    """The ratio of the two best errors on every MDP and at every λ."""
    mdps, streams = (4, 5) if how.quick else (30, 10)
    sizes = (1,) if how.quick else tuple(range(len(SIZES)))
    tasks = [(size, how.seed, i, streams) for size in sizes for i in range(mdps)]
    found = np.array(how.each(best_errors, tasks, "random MDPs"))
    found = found.reshape(len(sizes), mdps, 3, len(LAMBDAS))
    ratio = found[:, :, 0] / found[:, :, 1]
    surely = found[:, :, 0] - found[:, :, 1] > 3.0 * found[:, :, 2]
    checks: list[Check] = []
    names = [_name(SIZES[size]) for size in sizes]
    for size, name in enumerate(names):
        cases = ratio[size].size
        worse = int(np.sum(ratio[size] > 1.0))
        checks += [
            finding(f"{name}: worse", f"{worse} of {cases}", "MDPs and λ where true online's best error is the larger"),
            finding(f"{name}: worse by 3 s.e.", f"{int(surely[size].sum())} of {cases}", "of the difference"),
            finding(f"{name}: mean ratio", float(ratio[size].mean()), "true online / accumulating"),
            finding(f"{name}: largest ratio", float(ratio[size].max())),
        ]
    worst, share = float(ratio.max()), float(np.mean(ratio > 1.0))
    answer = (
        f"Ever worse at its best α? In {100 * share:.1f}% of {ratio.size} cases, by at most {100 * (worst - 1):.2g}%"
    )
    answer += f"; by more than 3 standard errors in {int(surely.sum())}." if worst > 1 else "."
    notes = [
        answer,
        f"{mdps} MDPs of each size, {streams} streams of {STEPS:,} steps on each; γ = {GAMMA}; RMSVE before every "
        f"{EVERY}th step. One α serves all streams of an MDP; it is the best of {len(ALPHAS)} for each rule and λ.",
    ]
    settings = {"MDPs of each size": mdps, "streams of each": streams, "steps": STEPS, "λ": list(LAMBDAS)}
    return Outcome(checks, [_figure(ratio, names)], notes, settings)


def _name(size: tuple[int, int, int | None]) -> str:
    states, _, n = size
    return f"{states} states, {'tabular' if n is None else f'{n} binary features'}"


def _figure(ratio: Array, names: Sequence[str]) -> Figure:
    panels = []
    for name, cases in zip(names, ratio, strict=True):
        places = np.tile(np.arange(len(LAMBDAS)), (len(cases), 1)) + np.linspace(-0.25, 0.25, len(cases))[:, None]
        dots = Marks(places.ravel(), cases.ravel(), "one MDP", category(0), symbol="dot")
        panels.append(Panel(name, [], marks=[dots], levels=[Level(1.0, "equal")]))
    ticks = {float(i): f"{lambda_:g}" for i, lambda_ in enumerate(LAMBDAS)}
    x = Axis("λ", range=(-0.5, len(LAMBDAS) - 0.5), ticks=ticks)
    plot = Plot({"all": panels}, "ratio", min(2, len(names)), 1, x=x, y=Axis("ratio of errors"), closest=True)
    keys = [Key(category(0), "best error of true online TD(λ) / of TD(λ), one dot per MDP", symbol="dot")]
    keys.append(Key("baseline", "equal: below it, true online is better"))
    return Figure("Ratio of the best errors", plot, "", keys)
