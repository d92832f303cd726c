"""The figures of the Four Rooms study: best settings, learning curves, and the error against λ and α."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from emphatic.report import Axis, Figure, Key, Level, Line, Marks, Panel, Plot, category, shades
from emphatic.studies.drawing import best_along
from emphatic.studies.results import CONFIDENCE, Sweep, over_runs, t_quantile

__all__ = ["against_lambda", "bests", "describe", "learning", "sensitivity"]

#: Errors up to here are shown: it is .72 before anything is learned.
TOP = 0.8
#: The parameter in place of λ.
ALONG = {"abtd": "xi"}


def describe(row: Mapping[str, Any], parameters: Mapping[str, Any]) -> str:
    """A setting in words."""
    powers = {name: f"2^{np.log2(row[name]):g}" for name in ("alpha", "eta") if row.get(name, 0.0) > 0.0}
    return ", ".join(f"{name} {powers.get(name, format(row[name], '.4g'))}" for name in parameters if name in row)


def bests(found: Sweep) -> Figure:
    """Each rule's error at its best setting, on fresh runs."""
    rules = [row["rule"] for row in found.best]
    mean = np.array([row["mean"] for row in found.best])
    half = np.array([row.get("mean_high", np.nan) for row in found.best]) - mean
    notes = [describe(row, found.parameters) for row in found.best]
    marks = Marks(np.arange(len(rules)), mean, "mean RMSVE", category(0), symbol="dot", error=half, notes=notes)
    panel = Panel("mean RMSVE on fresh runs", [], marks=[marks], levels=_levels(found))
    x = Axis("", range=(-0.6, len(rules) - 0.4), ticks={float(i): rule for i, rule in enumerate(rules)})
    plot = Plot({"all": [panel]}, "bests", x=x, y=Axis("RMSVE", range=(0.0, TOP)), closest=True)
    return Figure("Best settings", plot, "Bars: the 95% interval of the mean over runs and tasks.")


def learning(found: Sweep) -> Figure:
    """Learning curves of the best settings, on fresh runs; from step 1 on, on a logarithmic axis."""
    fresh = found.rerun or found
    numbers = range(len(found.best)) if found.rerun is not None else found.choose()
    wide = t_quantile(0.5 + CONFIDENCE / 2, fresh.plan.runs - 1)
    lines, keys = [], []
    for i, (row, number) in enumerate(zip(found.best, numbers, strict=True)):
        mean, se = over_runs(fresh.curve[number].T)
        low, high = mean - wide * se, mean + wide * se
        lines.append(Line(fresh.points + 1, mean, row["rule"], category(i), low=low, high=high))
        keys.append(Key(category(i), row["rule"]))
    plot = Plot(
        {"all": [Panel("RMSVE", lines, (0.0, TOP), levels=_levels(found))]}, "learning", x=Axis("step", "log"),
        y=Axis("RMSVE"),
    )  # fmt: skip
    return Figure("Learning curves", plot, "Each rule at its best setting. Bands: 95% of the mean over runs.", keys)


def against_lambda(found: Sweep) -> Figure:
    """The least error at each λ, at the best of all other parameters."""
    mean, se = found.over_runs("mean")
    wide = t_quantile(0.5 + CONFIDENCE / 2, found.plan.runs - 1)
    lines, keys = [], []
    for i, rule in enumerate(dict.fromkeys(found.rules)):
        if rule in ALONG:
            continue
        values, best = best_along(found, rule, "lambda")
        if not len(values):  # of one's own, without λ
            continue
        half = wide * se[best]
        lines.append(Line(values, mean[best], rule, category(i), low=mean[best] - half, high=mean[best] + half))
        keys.append(Key(category(i), rule))
    panel = Panel("least mean RMSVE", lines, (0.0, TOP), levels=_levels(found))
    plot = Plot({"all": [panel]}, "lambda", x=Axis("λ"), y=Axis("RMSVE"), closest=True)
    caption = "At each λ the best α and second parameter, chosen and shown on the same runs. abtd has no λ."
    return Figure("Error against λ", plot, caption, keys)


def sensitivity(found: Sweep) -> Figure:
    """Errors over α, one panel per rule and one line per λ."""
    mean, rules, alphas = found.over_runs("mean")[0], np.array(found.rules), found.parameters["alpha"]
    lambdas = np.unique(found.parameters["lambda"][~np.isnan(found.parameters["lambda"])])
    shade = shades(lambdas.tolist())
    panels = []
    for rule in dict.fromkeys(found.rules):
        column = found.parameters[ALONG.get(rule, "lambda")]
        column = np.where((rules == rule) & np.isnan(column), lambdas[0], column)  # one's own, without λ: one line
        own = shades(np.unique(column[(rules == rule)]).tolist()) if rule in ALONG else shade
        lines = []
        for value, place in own.items():
            there = np.flatnonzero((rules == rule) & (column == value))
            steps = np.unique(alphas[there])
            best = [mean[some].min() for some in (there[alphas[there] == step] for step in steps)]
            name = f"{'ξ' if rule in ALONG else 'λ'} = {value:.4g}"
            lines.append(Line(steps, best, name, "ramp", place, width=1.2, key=f"shade{place}"))
        panels.append(Panel(rule, lines, (0.0, TOP), levels=_levels(found)))
    plot = Plot({"all": panels}, "sensitivity", 3, 1, x=Axis("α", "log2"), y=Axis("RMSVE"), closest=True)
    keys = [Key("ramp", f"λ = {value:.4g}", place, f"shade{place}") for value, place in shade.items()]
    caption = "Each line is the least over the second parameter. Of abtd, ξ from 0 (light) to 4."
    return Figure("Error over α, for each λ", plot, caption, keys)


def _levels(found: Sweep) -> list[Level]:
    names = zip(("θ = 0", "best linear approximation"), found.plan.source.baselines(1).values(), strict=True)
    return [Level(value, name, "dot") for name, value in names]
