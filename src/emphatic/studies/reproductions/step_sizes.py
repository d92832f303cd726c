"""How much does it matter which step size a method begins with? Every method of ``emphatic.stepsizes``, from 1e-6 to 1.

On the random walk and on a household's log (on-policy, true online TD(λ)), on Collision and on random MDPs (off-policy,
true online emphatic TD(λ)). All first step sizes of a method are one Horde. They are given as α·φ·φ, the part of an
error that a first step takes away, so that one grid serves every representation; other options are the methods'
defaults, and nothing is tuned. There is no published number to compare with: the study reports its findings.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from emphatic import data, problems, stepsizes
from emphatic.learning.learner import Learner
from emphatic.problems import MDP
from emphatic.report import Axis, Figure, Key, Line, Panel, Plot, category
from emphatic.studies.agreement import Check, Outcome, finding
from emphatic.studies.conditions import Conditions
from emphatic.studies.recorded import Recorded

__all__ = ["SOURCE", "TITLE", "run"]

TITLE = "Step sizes: what a method makes of its first one"
SOURCE = (
    "Sutton's guide to true online emphatic TD(λ) (2015) leaves α to its user and names Autostep (Mahmood 2012), "
    "AlphaBound (Dabney & Barto 2012) and RPROP (Riedmiller & Braun 1993); also IDBD, TIDBD, SwiftTD and ours."
)

Array = NDArray[np.float64]
#: α·φ·φ of the first step.
FIRST = 10.0 ** np.arange(-6.0, 0.25, 0.5)
METHODS = ("constant", "alphabound", "auto", "idbd", "tidbd", "autostep", "rprop", "swifttd", "emphatic")
#: Problems by name: the rule, λ, steps, and runs; of the log the column and the horizon.
PROBLEMS: dict[str, tuple[str, float, int, int]] = {
    "random walk": ("true_online_td", 0.8, 2_000, 20),
    "Collision": ("true_online_etd", 0.9, 10_000, 20),
    "Garnets": ("true_online_etd", 0.5, 5_000, 20),
}
LOG = ("household log", "true_online_td", "Global_active_power", "15min")
#: Steps between errors.
EVERY = 50
#: Within this part of the best error of all, a first step size counts as good.
GOOD = 1.1


def first_sizes(method: str, square: float) -> Any:
    """The method with each of the first step sizes, one per learner; ``square`` is the mean of φ·φ."""
    kind = stepsizes.kind_of(method)
    return kind(rate=FIRST) if method == "auto" else kind(alpha=FIRST / square)  # type: ignore[call-arg]


def on_problem(task: tuple[str, int, int, int, tuple[str, ...]]) -> Array:
    """RMSVE over the steps of one run, weighted by d_μ: (methods, first step sizes); infinite where it diverged."""
    name, seed, i, steps, methods = task
    rule, lambda_, _, _ = PROBLEMS[name]
    mdp = _problem(name, seed, i)
    stream = mdp.simulate(steps, seed=(seed, i)).inputs(rule) | {"lambda_": lambda_}
    stream |= {key: stream[key][:, None] for key in ("R", "gamma_next", "rho", "I")}
    square = float(mdp.d_mu @ np.sum(mdp.Phi**2, axis=1))
    found = np.empty((len(methods), len(FIRST)))
    for j, method in enumerate(methods):
        learner = Learner(rule, mdp.n, len(FIRST), engine="dense", stepsize=first_sizes(method, square))
        options: dict[str, Any] = {"probe": mdp.probe, "probe_every": EVERY, "on_divergence": "freeze"}
        with np.errstate(over="ignore", invalid="ignore"):
            error = learner.run(**stream, **options, predictions=False)[1].mean(axis=0)
        found[j] = np.where(learner.frozen | np.isnan(error), np.inf, error)
    return found


def _problem(name: str, seed: int, i: int) -> MDP:
    if name == "random walk":
        return problems.random_walk()
    return problems.collision(seed=(seed, i)) if name == "Collision" else problems.garnet(seed=(seed, i))


def on_log(task: tuple[str, int | None]) -> Array:
    """1 − variance explained in the second half of the log's first rows, or of all, for each first step size."""
    import pyarrow.parquet as pq

    method, rows = task
    _, rule, column, horizon = LOG
    log = Recorded.table(pq.read_table(data.household()).slice(0, rows), column, horizon)
    steps, Phi = log.steps, log.Phi
    square = float(np.mean(np.sum(Phi.values**2, axis=1, where=Phi.indices >= 0)))
    learner = Learner(rule, log.n or 1, len(FIRST), stepsize=first_sizes(method, square))
    given = {"gamma_next": log.gamma_next, "lambda_": log.lambda_, "on_divergence": "freeze"}
    with np.errstate(all="ignore"):
        predictions = learner.run(Phi, log.R[:, None], rho=log.rho[:, None], **given)
    G, known = log.truth
    late = known & (np.arange(steps) >= steps // 2)
    with np.errstate(all="ignore"):
        share = np.mean(np.square(predictions[late] - G[late][:, None]), axis=0) / np.var(G[late])
    return np.where(learner.frozen | np.isnan(share), np.inf, share)


def run(how: Conditions) -> Outcome:
    """Errors over the first step size, for each method and problem."""
    methods = ("constant", "auto", "autostep", "emphatic") if how.quick else METHODS
    found: dict[str, Array] = {}
    for name, (_, _, steps, runs) in PROBLEMS.items():
        steps, runs = (100, 1) if how.quick else (steps, runs)
        tasks = [(name, how.seed, i, steps, methods) for i in range(runs)]
        with np.errstate(invalid="ignore"):
            found[name] = np.mean(how.each(on_problem, tasks, name), axis=0)
    if not how.quick:
        found[LOG[0]] = np.array(how.each(on_log, [(method, None) for method in methods], LOG[0]))
    checks = [check for name, errors in found.items() for check in _findings(name, methods, errors)]
    fixed = methods.index("constant")
    gains = {name: 1.0 - np.min(np.delete(errors, fixed, 0)) / np.min(errors[fixed]) for name, errors in found.items()}
    widest = {
        method: sum(int(np.sum(errors[j] <= GOOD * errors.min())) for errors in found.values())
        for j, method in enumerate(methods)
    }
    most, best = max(widest.values()), max(widest, key=lambda method: widest[method])
    total = len(FIRST) * len(found)
    notes = [
        "Best adaptive method against the best constant α, both chosen in hindsight: "
        + "; ".join(f"{name} {100 * gain:+.1f}%" for name, gain in gains.items())
        + " less error.",
        f"Most first step sizes within {100 * (GOOD - 1):.0f}% of the least error of all: {best}, {most} of {total}"
        + ("." if most == total else "; no method is good from every first step size."),
        "In quick mode without the log, and of some methods." if how.quick else "All of the log is one run.",
        "Meta step sizes and bounds are the defaults of each method; none was chosen by these results.",
    ]
    settings = {
        "methods": list(methods),
        "problems": {name: f"{rule}, λ = {lambda_}" for name, (rule, lambda_, _, _) in PROBLEMS.items()},
        "log": f"{LOG[2]}, {LOG[3]} ahead, {LOG[1]}",
    }
    return Outcome(checks, [_figure(methods, found)], notes, settings)


def _findings(name: str, methods: Sequence[str], errors: Array) -> list[Check]:
    """Each method's least error, where it begins, and from how many first step sizes it is good."""
    least, checks = float(errors.min()), []
    for method, row in zip(methods, errors, strict=True):
        good, lost = int(np.sum(row <= GOOD * least)), int(np.sum(np.isinf(row)))
        note = (
            f"from α·φ·φ = {FIRST[row.argmin()]:.2g}; {good} of {len(FIRST)} within {100 * (GOOD - 1):.0f}% of the best"
        )
        checks.append(finding(f"{name}: {method}", float(row.min()), note + (f"; {lost} diverged" if lost else "")))
    return checks


def _figure(methods: Sequence[str], found: dict[str, Array]) -> Figure:
    panels = []
    for name, errors in found.items():
        finite = errors[np.isfinite(errors)]
        top = min(float(finite.max()), 1.3 * float(np.median(errors[:, 0][np.isfinite(errors[:, 0])])))
        lines = [
            Line(FIRST, row, method, category(j)) for j, (method, row) in enumerate(zip(methods, errors, strict=True))
        ]
        panels.append(Panel(name, lines, y_range=(0.0, top)))
    x, y = Axis("first α·φ·φ", scale="log"), Axis("error")
    plot = Plot({"all": panels}, "stepsizes", 2, 1, x=x, y=y)
    caption = "RMSVE over all steps, mean over runs; of the log, 1 − variance explained in its second half."
    return Figure("Error over the first step size", plot, caption, [Key(category(j), m) for j, m in enumerate(methods)])
