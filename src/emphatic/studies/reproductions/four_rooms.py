"""The Four Rooms study: eleven algorithms and eight questions of one stream, over step size, λ and a second parameter.

Ghiassian & Sutton (2021). 50 runs of 50,000 steps; the RMSVE of each task over the cells where it is active, weighted
by d_μ, at every 10th step, averaged over the tasks. The grids are those of the Collision study: 16,416 settings, each
with eight learners, 3.3·10¹¹ learner-steps. The best settings are chosen on these runs and reported on 50 others.

The paper prints no errors, only figures, which have not been digitised: what is judged is the problem itself, and the
rest is reported.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from emphatic import problems
from emphatic.problems import MDP
from emphatic.problems.tasks import HALLWAYS, ROOMS, SUBTASKS
from emphatic.studies.agreement import Check, Outcome, compare, finding
from emphatic.studies.conditions import Conditions
from emphatic.studies.reproductions import four_rooms_figures as figures
from emphatic.studies.reproductions.collision_grid import ALPHAS, LAMBDAS, own_grid, published
from emphatic.studies.results import Sweep
from emphatic.studies.sweeping import sweep

__all__ = ["SOURCE", "TITLE", "run", "run_variant"]

TITLE = "The Four Rooms study"
SOURCE = (
    "Ghiassian & Sutton, An Empirical Comparison of Off-policy Prediction Learning Algorithms in the Four Rooms "
    "Environment (2021)."
)

RULES = (
    "td", "gtd", "gtd2", "htd", "proximal_gtd2", "tdrc", "etd", "etd_beta", "tree_backup", "vtrace", "abtd",
)  # fmt: skip
#: Not in the paper: what the true online forms of td and etd do.
MORE = ("true_online_td", "true_online_etd")
RUNS, STEPS, EVERY = 50, 50_000, 10
#: Of ABTD: ξ₀ and ξ_max in both variants.
XI = (1.0, 4.0)


def grids(quick: bool) -> list[dict[str, Any]]:
    """The published grids, and λ and α of these for the true online rules; quick, every third α and few of the rest."""
    made = [published(rule) for rule in RULES]
    made += [{"rule": rule, "alpha": ALPHAS, "lambda": LAMBDAS} for rule in MORE]
    for one in made:
        if "zeta" in one:  # ξ itself, as the paper's bounds are the same in both variants
            zeta = np.array(one.pop("zeta"))
            one["xi"] = 2.0 * zeta * XI[0] + np.maximum(0.0, 2.0 * zeta - 1.0) * (XI[1] - 2.0 * XI[0])
    if quick:
        few = {"lambda": (0.0, 0.5, 0.9, 1.0), "eta": 2.0 ** np.array([-6, -1, 4]), "beta": (0.0, 0.6, 1.0)}
        few |= {"xi": (0.0, 1.0, 1.8, 4.0), "alpha": ALPHAS[3:17:2]}
        made = [one | {name: few[name] for name in one if name in few and np.size(one[name]) > 1} for one in made]
    return made


def largest_product(task: MDP) -> float:
    """The largest product of ratios ρ along any way that the target policy may take to the hallway."""
    following = task.P[:, :, :-1].argmax(axis=2)
    ratio = np.divide(task.pi, task.mu)
    best = np.ones(task.S)
    for _ in range(task.S):  # no way is longer
        best = np.where(task.defined, (ratio * best[following]).max(axis=1), 1.0)
    return float(best.max())


def exact(high_variance: bool) -> list[Check]:
    """What follows from the definition, and the two numbers that the abstract prints."""
    rooms = problems.four_rooms(high_variance=high_variance)
    cells = {int(cell): state for state, cell in enumerate(rooms.cells)}
    product = max(largest_product(task) for task in rooms)
    times, words = (25, "2¹⁴ × 25") if high_variance else (1, "2¹⁴")
    made = [
        compare("free cells", 104, rooms.S, 0.0),
        compare("active cells of each task", [26, 26, 26, 26, 31, 31, 21, 21], rooms.I.sum(axis=1), 0.0),
        compare(f"largest product of ratios: {words}", 2.0**14 * times, product, 1e-3, origin="printed"),
    ]
    for task, moves, (room, target) in zip(rooms, (8, 8, 7, 7, 7, 7, 6, 6), SUBTASKS, strict=True):
        (other,) = (HALLWAYS[door] for door in ROOMS[room][2] if door != target)
        value = task.v_pi[cells[other[0] + 11 * other[1]]]
        made.append(compare(f"{room}→H{target}: v at the other hallway", 0.9 ** (moves - 1), value, 1e-12))
    return made


def run(how: Conditions) -> Outcome:
    """Rooms, the first variant."""
    return run_variant(how, False)


def run_variant(how: Conditions, high_variance: bool) -> Outcome:
    """The grid of one variant."""
    runs, steps, rerun = (5, 5_000, 5) if how.quick else (RUNS, STEPS, RUNS)
    task = functools.partial(problems.four_rooms, high_variance=high_variance)
    found = sweep(
        task, [*grids(how.quick), *(own_grid(rule, how.quick) for rule in how.rules)],
        runs=runs, steps=steps, every=EVERY, seed=how.seed, rerun=rerun, jobs=how.jobs,
        out=None if how.folder is None else how.folder / "sweep",
        progress=lambda done, total: how.progress("learner-steps", done, total),
    )  # fmt: skip
    notes = [
        "The paper shows its errors in figures only. What is judged is the problem: its cells, its values, and the "
        "largest product of importance sampling ratios, which the abstract prints.",
        "The error is the RMSVE over a task's active cells weighted by d_μ, the mean over the eight tasks. Outside its "
        "active cells a task learns nothing: ρ = 0 and the step sizes are 0 there, as in the authors' code.",
        f"Settings were chosen by their mean error on {runs} runs and are reported on {rerun} others; intervals are of "
        "95%. A setting that diverged in any run counts as diverged, and is in no mean.",
        "abtd has ξ(ζ) with ξ₀ = 1 and ξ_max = 4 in both variants. true_online_td and true_online_etd are not in the "
        "paper.",
    ]
    if how.quick:
        notes.append("Quick: fewer runs of fewer steps, and every other α with few values of the other parameters.")
    settings = {
        "runs": runs,
        "fresh runs": rerun,
        "steps": steps,
        "an error every": EVERY,
        "settings": len(found.mean),
        "learner-steps": 8 * found.plan.learner_steps,
        "variant": "high variance" if high_variance else "rooms",
    }
    drawn = [figures.bests(found), figures.learning(found), figures.against_lambda(found), figures.sensitivity(found)]
    return Outcome([*exact(high_variance), *_findings(found)], drawn, notes, settings)


def _findings(found: Sweep) -> list[Check]:
    """The best setting of each rule on fresh runs."""
    made = []
    for row in found.best:
        words = figures.describe(row, found.parameters)
        if row["diverged"]:
            words += f"; diverged in {row['diverged']} of {row['runs']} runs"
        elif "mean_low" in row:
            worse = "clearly worse" if row.get("worse_low", 0.0) > 0.0 else "not clearly worse than the best"
            words += f"; {row['mean_low']:.4f} to {row['mean_high']:.4f}, {worse}"
        made.append(finding(f"mean RMSVE, {row['rule']}", float(row["mean"]), words))
    return made
