"""The figures of the Collision study."""

from __future__ import annotations

from typing import Any

import numpy as np

from emphatic.report import Axis, Figure, Key, Line, Marks, Panel, Plot, category, shades
from emphatic.studies.reproductions.comparisons import ALPHAS, BEST, CURVE, LAMBDAS, Errors

__all__ = ["bests", "curve", "sensitivity"]


def bests(found: Errors, quick: bool, rules: tuple[str, ...]) -> Figure:
    """Each rule's least error, ours beside the published."""
    panels = []
    places = np.arange(len(rules))
    for which, title in enumerate(("best over λ", "λ = 0")):
        ours = []
        for rule in rules:
            best = BEST[rule]
            sought: dict[str, Any] = best.setting(which) if quick else {best.along: 0.0} if which else {}
            ours.append(found.best(rule, **sought))
        names = [f"{rule}: {found.describe(i)}" for rule, i in zip(rules, ours, strict=True)]
        mine = Marks(
            places - 0.12, found.mean[ours], "ours", category(0), symbol="dot", error=found.se[ours], notes=names
        )
        means, ses = zip(*((best.mean[which], best.se[which]) for best in (BEST[rule] for rule in rules)), strict=True)
        theirs = Marks(places + 0.12, means, "published", error=ses)
        panels.append(Panel(f"mean RMSVE, {title}", [], marks=[mine, theirs]))
    ticks = {float(i): rule for i, rule in enumerate(rules)}
    x = Axis("", range=(-0.6, len(rules) - 0.4), ticks=ticks)
    plot = Plot({"all": panels}, "bests", 1, 1, x=x, y=Axis("RMSVE"), closest=True)
    keys = [Key(category(0), "ours", symbol="dot"), Key("truth", "published", symbol="diamond")]
    whole = "the published settings" if quick else "the whole grid"
    return Figure("Best settings", plot, f"Bars: one standard error. Ours: of {whole}.", keys)


def sensitivity(found: Errors, rules: tuple[str, ...]) -> Figure:
    """Errors over α, one panel per rule and one line per λ."""
    shade = shades(sorted(LAMBDAS))
    panels = []
    for rule in rules:
        best = BEST.get(rule)
        along = "lambda" if best is None else best.along
        varies = bool(np.isfinite(found.parameters[along][found.at(rule)]).any())
        lines = []
        for value, place in shade.items() if varies else [(0.0, 0.0)]:
            there = [found.best(rule, alpha=alpha, **({along: value} if varies else {})) for alpha in ALPHAS]
            name = f"{'ζ' if along == 'zeta' else 'λ'} = {value:g}" if varies else rule
            lines.append(Line(ALPHAS, found.mean[there], name, "ramp", place, width=1.2, key=f"shade{place}"))
        marks = [] if best is None else [Marks(best.alpha, best.mean, "published", error=best.se)]
        panels.append(Panel(rule, lines, (0.0, 0.75), marks))
    plot = Plot({"all": panels}, "sensitivity", 3, 1, x=Axis("α", "log2"), y=Axis("RMSVE"), closest=True)
    keys = [Key("ramp", f"λ or ζ = {value:g}", place, f"shade{place}") for value, place in shade.items()]
    caption = "Each line is the least over the second parameter. Diamonds: the published best over λ, and at λ = 0."
    return Figure("Error over α, for each λ", plot, caption, keys)


def curve(found: Errors) -> Figure:
    """etd at λ = 0 over α."""
    there = [found.best("etd", **{"alpha": alpha, "lambda": 0.0}) for alpha in ALPHAS[:12]]
    mean, se = found.mean[there], found.se[there]
    line = Line(ALPHAS[:12], mean, "etd, λ = 0", category(0), low=mean - 2 * se, high=mean + 2 * se)
    marks = Marks(ALPHAS[:12], CURVE, "published")
    plot = Plot(
        {"all": [Panel("mean RMSVE", [line], (0.0, 0.7), [marks])]}, "curve", x=Axis("α", "log2"), y=Axis("RMSVE")
    )
    keys = [Key(category(0), "etd, λ = 0"), Key("truth", "published", symbol="diamond")]
    return Figure("Emphatic TD(0) over α", plot, "Band: two standard errors. At α = 2⁻⁶ it diverges.", keys)
