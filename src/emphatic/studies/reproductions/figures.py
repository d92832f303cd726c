"""The figures of the studies that sweep a grid: Collision, with the published numbers as marks, and Four Rooms."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from emphatic.report import Axis, Figure, Key, Level, Line, Marks, Panel, Plot, category, shades
from emphatic.studies.figures import best_along, confidence_width
from emphatic.studies.reproductions.collision_errors import Errors
from emphatic.studies.reproductions.collision_grid import ALPHAS, BEST, CURVE, LAMBDAS
from emphatic.studies.results import Sweep, over_runs

__all__ = [
    "collision_bests",
    "collision_curve",
    "collision_sensitivity",
    "describe_setting",
    "rooms_against_lambda",
    "rooms_bests",
    "rooms_learning",
    "rooms_sensitivity",
]

#: Errors up to here are shown: it is .72 before anything is learned.
TOP = 0.8
#: The parameter in place of λ.
ALONG = {"abtd": "xi"}


# ---------------------------------------------------------------------- Collision


def collision_bests(errors: Errors, quick: bool, rules: tuple[str, ...]) -> Figure:
    """Each rule's least error, ours beside the published."""
    panels = []
    places = np.arange(len(rules))
    for which, title in enumerate(("best over λ", "λ = 0")):
        ours = []
        for rule in rules:
            best = BEST[rule]
            sought: dict[str, Any] = best.setting(which) if quick else {best.along: 0.0} if which else {}
            ours.append(errors.best(rule, **sought))
        names = [f"{rule}: {errors.describe(i)}" for rule, i in zip(rules, ours, strict=True)]
        mine = Marks(
            places - 0.12, errors.mean[ours], "ours", category(0), symbol="dot", error=errors.se[ours], notes=names
        )
        means, ses = zip(*((best.mean[which], best.se[which]) for best in (BEST[rule] for rule in rules)), strict=True)
        theirs = Marks(places + 0.12, means, "published", error=ses)
        panels.append(Panel(f"mean RMSVE, {title}", [], marks=[mine, theirs]))
    ticks = {float(i): rule for i, rule in enumerate(rules)}
    x = Axis("", range=(-0.6, len(rules) - 0.4), ticks=ticks)
    plot = Plot({"all": panels}, "bests", 1, 1, x=x, y=Axis("RMSVE"), closest=True)
    keys = [Key(category(0), "ours", symbol="dot"), Key("truth", "published", symbol="diamond")]
    tried = "the published settings" if quick else "the whole grid"
    return Figure("Best settings", plot, f"Bars: one standard error. Ours: of {tried}.", keys)


def collision_sensitivity(errors: Errors, rules: tuple[str, ...]) -> Figure:
    """Errors over α, one panel per rule and one line per λ."""
    shade = shades(sorted(LAMBDAS))
    panels = []
    for rule in rules:
        best = BEST.get(rule)
        along = "lambda" if best is None else best.along
        varies = bool(np.isfinite(errors.parameters[along][errors.at(rule)]).any())
        lines = []
        for value, place in shade.items() if varies else [(0.0, 0.0)]:
            there = [errors.best(rule, alpha=alpha, **({along: value} if varies else {})) for alpha in ALPHAS]
            name = f"{'ζ' if along == 'zeta' else 'λ'} = {value:g}" if varies else rule
            lines.append(Line(ALPHAS, errors.mean[there], name, "ramp", place, width=1.2, key=f"shade{place}"))
        marks = [] if best is None else [Marks(best.alpha, best.mean, "published", error=best.se)]
        panels.append(Panel(rule, lines, (0.0, 0.75), marks))
    plot = Plot({"all": panels}, "sensitivity", 3, 1, x=Axis("α", "log2"), y=Axis("RMSVE"), closest=True)
    keys = [Key("ramp", f"λ or ζ = {value:g}", place, f"shade{place}") for value, place in shade.items()]
    caption = "Each line is the least over the second parameter. Diamonds: the published best over λ, and at λ = 0."
    return Figure("Error over α, for each λ", plot, caption, keys)


def collision_curve(errors: Errors) -> Figure:
    """etd at λ = 0 over α."""
    there = [errors.best("etd", **{"alpha": alpha, "lambda": 0.0}) for alpha in ALPHAS[:12]]
    mean, se = errors.mean[there], errors.se[there]
    line = Line(ALPHAS[:12], mean, "etd, λ = 0", category(0), low=mean - 2 * se, high=mean + 2 * se)
    marks = Marks(ALPHAS[:12], CURVE, "published")
    plot = Plot(
        {"all": [Panel("mean RMSVE", [line], (0.0, 0.7), [marks])]}, "curve", x=Axis("α", "log2"), y=Axis("RMSVE")
    )
    keys = [Key(category(0), "etd, λ = 0"), Key("truth", "published", symbol="diamond")]
    return Figure("Emphatic TD(0) over α", plot, "Band: two standard errors. At α = 2⁻⁶ it diverges.", keys)


# ---------------------------------------------------------------------- Four Rooms


def describe_setting(row: Mapping[str, Any], parameters: Mapping[str, Any]) -> str:
    """A setting in words."""
    powers = {name: f"2^{np.log2(row[name]):g}" for name in ("alpha", "eta") if row.get(name, 0.0) > 0.0}
    return ", ".join(f"{name} {powers.get(name, format(row[name], '.4g'))}" for name in parameters if name in row)


def rooms_bests(sweep: Sweep) -> Figure:
    """Each rule's error at its best setting, on fresh runs."""
    rules = [row["rule"] for row in sweep.best]
    mean = np.array([row["mean"] for row in sweep.best])
    half = np.array([row.get("mean_high", np.nan) for row in sweep.best]) - mean
    notes = [describe_setting(row, sweep.parameters) for row in sweep.best]
    marks = Marks(np.arange(len(rules)), mean, "mean RMSVE", category(0), symbol="dot", error=half, notes=notes)
    panel = Panel("mean RMSVE on fresh runs", [], marks=[marks], levels=_levels(sweep))
    x = Axis("", range=(-0.6, len(rules) - 0.4), ticks={float(i): rule for i, rule in enumerate(rules)})
    plot = Plot({"all": [panel]}, "bests", x=x, y=Axis("RMSVE", range=(0.0, TOP)), closest=True)
    return Figure("Best settings", plot, "Bars: the 95% interval of the mean over runs and tasks.")


def rooms_learning(sweep: Sweep) -> Figure:
    """Learning curves of the best settings, on fresh runs; from step 1 on, on a logarithmic axis."""
    fresh = sweep.rerun or sweep
    numbers = range(len(sweep.best)) if sweep.rerun is not None else sweep.choose()
    wide = confidence_width(fresh.plan.runs)
    lines, keys = [], []
    for i, (row, number) in enumerate(zip(sweep.best, numbers, strict=True)):
        mean, se = over_runs(fresh.curve[number].T)
        low, high = mean - wide * se, mean + wide * se
        lines.append(Line(fresh.points + 1, mean, row["rule"], category(i), low=low, high=high))
        keys.append(Key(category(i), row["rule"]))
    plot = Plot(
        {"all": [Panel("RMSVE", lines, (0.0, TOP), levels=_levels(sweep))]},
        "learning",
        x=Axis("step", "log"),
        y=Axis("RMSVE"),
    )
    return Figure("Learning curves", plot, "Each rule at its best setting. Bands: 95% of the mean over runs.", keys)


def rooms_against_lambda(sweep: Sweep) -> Figure:
    """The least error at each λ, at the best of all other parameters."""
    mean, se = sweep.over_runs("mean")
    wide = confidence_width(sweep.plan.runs)
    lines, keys = [], []
    for i, rule in enumerate(dict.fromkeys(sweep.rules)):
        if rule in ALONG:
            continue
        values, best = best_along(sweep, rule, "lambda")
        if not len(values):  # of one's own, without λ
            continue
        half = wide * se[best]
        lines.append(Line(values, mean[best], rule, category(i), low=mean[best] - half, high=mean[best] + half))
        keys.append(Key(category(i), rule))
    panel = Panel("least mean RMSVE", lines, (0.0, TOP), levels=_levels(sweep))
    plot = Plot({"all": [panel]}, "lambda", x=Axis("λ"), y=Axis("RMSVE"), closest=True)
    caption = "At each λ the best α and second parameter, chosen and shown on the same runs. abtd has no λ."
    return Figure("Error against λ", plot, caption, keys)


def rooms_sensitivity(sweep: Sweep) -> Figure:
    """Errors over α, one panel per rule and one line per λ."""
    mean, rules, alphas = sweep.over_runs("mean")[0], np.array(sweep.rules), sweep.parameters["alpha"]
    lambdas = np.unique(sweep.parameters["lambda"][~np.isnan(sweep.parameters["lambda"])])
    shade = shades(lambdas.tolist())
    panels = []
    for rule in dict.fromkeys(sweep.rules):
        column = sweep.parameters[ALONG.get(rule, "lambda")]
        column = np.where((rules == rule) & np.isnan(column), lambdas[0], column)  # one's own, without λ: one line
        places = shades(np.unique(column[(rules == rule)]).tolist()) if rule in ALONG else shade
        lines = []
        for value, place in places.items():
            there = np.flatnonzero((rules == rule) & (column == value))
            steps = np.unique(alphas[there])
            best = [mean[group].min() for group in (there[alphas[there] == step] for step in steps)]
            name = f"{'ξ' if rule in ALONG else 'λ'} = {value:.4g}"
            lines.append(Line(steps, best, name, "ramp", place, width=1.2, key=f"shade{place}"))
        panels.append(Panel(rule, lines, (0.0, TOP), levels=_levels(sweep)))
    plot = Plot({"all": panels}, "sensitivity", 3, 1, x=Axis("α", "log2"), y=Axis("RMSVE"), closest=True)
    keys = [Key("ramp", f"λ = {value:.4g}", place, f"shade{place}") for value, place in shade.items()]
    caption = "Each line is the least over the second parameter. Of abtd, ξ from 0 (light) to 4."
    return Figure("Error over α, for each λ", plot, caption, keys)


def _levels(sweep: Sweep) -> list[Level]:
    names = zip(("θ = 0", "best linear approximation"), sweep.plan.source.baselines(1).values(), strict=True)
    return [Level(value, name, "dot") for name, value in names]
