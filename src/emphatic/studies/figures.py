"""The plots of a sweep: the error against α, against λ and while learning, on its page and in files for papers.

A plot is described once and drawn by ``emphatic.report``: on the page with uPlot, in a file with matplotlib.
"""

from __future__ import annotations

import math
import os
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from emphatic.learning.inputs import refusal
from emphatic.report.page import known
from emphatic.report.plots import Axis, Level, Line, Marks, Panel, Plot, category, check_formats, draw_file, shades
from emphatic.studies.statistics import CONFIDENCE, over_runs, t_quantile

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from emphatic.studies.pages import SweepPage
    from emphatic.studies.results import Sweep

__all__ = ["baseline_levels", "best_along", "best_curves", "confidence_width", "draw", "error_range", "lambda_plot"]
__all__ += ["learning_plots", "parameter_text", "sensitivity_plot", "step_range"]

#: What takes the place of λ where a rule has none.
ALONG = ("lambda", "zeta", "xi")
SYMBOLS = {"alpha": "α", "lambda": "λ", "zeta": "ζ", "xi": "ξ"}
#: Up to this many lines in one panel have bands and can still be read.
FEW = 3

Array = NDArray[np.float64]
Row = Mapping[str, Any]
Range = tuple[float, float]
#: The shade of each λ, a number or words.
Shades = Mapping[Any, float]


def best_along(sweep: Sweep, rule: str, along: str) -> tuple[Array, NDArray[np.int64]]:
    """The values of a parameter that the settings of a rule have, and for each the setting with the least mean error.

    Settings that diverged in some run come after all others.
    """
    mean, of_rule = sweep.over_runs("mean")[0], np.array(sweep.labels) == rule
    column = sweep.parameters.get(along, np.full(len(mean), np.nan))
    values = np.unique(column[of_rule & ~np.isnan(column)])
    settings = [np.flatnonzero(of_rule & (column == value)) for value in values]
    return values, np.array([group[np.argmin(mean[group])] for group in settings], np.int64)


def confidence_width(runs: int) -> float:
    """Half of a 95% interval of the mean over runs, in standard errors; NaN for a single run."""
    return t_quantile(0.5 + CONFIDENCE / 2, runs - 1) if runs > 1 else math.nan


def parameter_text(value: object) -> str:
    """A parameter's value: in full, as it was set."""
    return f"{value:.6g}".replace("-", "−") if known(value) else str(value)


# ---------------------------------------------------------------------- for papers


def draw(sweep: Sweep, x: str, path: str | os.PathLike[str] | None) -> Figure:
    """``Sweep.plot``."""
    plots = {"alpha": _over_alpha, "lambda": _over_lambda, "steps": _while_learning}
    if x not in plots:
        raise refusal("x", "plot", "be 'alpha', 'lambda' or 'steps'", repr(x))
    if path is not None:
        check_formats(Path(path).suffix.removeprefix("."))
    return draw_file(plots[x](sweep), path)


def _over_alpha(sweep: Sweep) -> Plot:
    """One panel per rule, one line per λ: at each α the best of the other parameters."""
    stepped = ~np.isnan(sweep.parameters["alpha"])
    rules = list(dict.fromkeys(label for label, has in zip(sweep.labels, stepped, strict=True) if has))
    if not rules:
        raise refusal("x", "plot", "be 'lambda' or 'steps': no rule of this sweep has a step size", "'alpha'")
    width, top = confidence_width(sweep.plan.runs), _ceiling(sweep)
    panels = []
    for rule in rules:
        curves = list(_curves_over_alpha(sweep, rule))
        lines = []
        for shade, (label, alpha, mean, se) in zip(shades(range(len(curves))).values(), curves, strict=True):
            half = width * se
            low, high = (mean - half, mean + half) if len(curves) <= FEW else (None, None)
            lines.append(Line(alpha, mean, label, "ramp", shade, width=1.2, low=low, high=high))
        panels.append(Panel(rule, lines, (0.0, top), levels=baseline_levels(sweep)))
    x, y = Axis("step size α", "log2"), Axis(f"mean {sweep.plan.source.metric}")
    return Plot({"": panels}, "alpha", min(3, len(rules)), x=x, y=y)


def _curves_over_alpha(sweep: Sweep, rule: str) -> Iterator[tuple[str, Array, Array, Array]]:
    """Label, α, mean and standard error of each λ."""
    mean, se = sweep.over_runs("mean")
    of_rule = np.array(sweep.labels) == rule
    along = next((n for n in ALONG if n in sweep.parameters and not np.isnan(sweep.parameters[n][of_rule]).all()), "")
    column = sweep.parameters[along] if along else np.zeros(len(mean))
    alphas = sweep.parameters["alpha"]
    for value in np.unique(column[of_rule]):
        settings = np.flatnonzero(of_rule & (column == value) & (alphas > 0.0))
        steps = np.unique(alphas[settings])
        best = [group[np.argmin(mean[group])] for group in (settings[alphas[settings] == step] for step in steps)]
        yield f"{SYMBOLS[along]} = {value:.4g}" if along else "", steps, mean[best], se[best]


def _over_lambda(sweep: Sweep) -> Plot:
    """One line per rule: at each λ the best of all other parameters, with the 95% interval of its mean."""
    mean, se = sweep.over_runs("mean")
    width = confidence_width(sweep.plan.runs)
    lines: list[Line] = []
    marks: list[Marks] = []
    for rule in dict.fromkeys(sweep.labels):
        for along in ALONG:
            values, best = best_along(sweep, rule, along)
            if len(values):
                name = rule if along == "lambda" else f"{rule} ({SYMBOLS[along]})"
                shown, ink = np.where(np.isfinite(mean[best]), mean[best], np.nan), category(len(lines))
                lines.append(Line(values, shown, name, ink, width=1.2))
                marks.append(Marks(values, shown, name, ink, symbol="dot", error=width * se[best]))
                break
    if not lines:
        raise ValueError("No rule of this sweep has several settings of λ, ζ or ξ: there is nothing to draw.")
    panel = Panel("", lines, marks=marks, levels=baseline_levels(sweep))
    return Plot({"": [panel]}, "lambda", x=Axis("λ"), y=Axis(f"mean {sweep.plan.source.metric}, at the best α"))


def _while_learning(sweep: Sweep) -> Plot:
    """Learning curves of the best settings, the steps on a logarithmic axis from 1."""
    panel = Panel("", best_curves(sweep, 1.3), (0.0, _ceiling(sweep)), levels=baseline_levels(sweep))
    return Plot({"": [panel]}, "steps", x=Axis("step", "log"), y=Axis(sweep.plan.source.metric))


def best_curves(sweep: Sweep, width: float) -> list[Line]:
    """The learning curve of each rule's best setting with its 95% band, on fresh runs if there are any."""
    reported, settings = (sweep, sweep.choose()) if sweep.rerun is None else (sweep.rerun, range(len(sweep.best)))
    lines = []
    for i, (row, setting) in enumerate(zip(sweep.best, settings, strict=True)):
        mean, se = over_runs(reported.curve[setting].T)
        half = confidence_width(reported.plan.runs) * se
        lines.append(
            Line(reported.points + 1, mean, row["rule"], category(i), width=width, low=mean - half, high=mean + half)
        )
    return lines


def baseline_levels(sweep: Sweep) -> list[Level]:
    """The errors to compare with, as dotted lines."""
    return [Level(value, name, "dot") for name, value in sweep.plan.source.baselines(sweep.plan.runs).items()]


def _ceiling(sweep: Sweep) -> float:
    """An upper limit slightly above the error without learning, so that diverging lines do not flatten the rest."""
    usual = max(sweep.plan.source.baselines(sweep.plan.runs).values())
    mean = sweep.over_runs("mean")[0]
    least = float(np.min(mean[np.isfinite(mean)], initial=math.inf))
    return 1.15 * max(usual, 1.2 * least if math.isfinite(least) else 0.0) or 1.0


# ---------------------------------------------------------------------- on the page: sensitivity


def sensitivity_plot(
    sweep: SweepPage, rule: Row, choices: Iterable[str], places: Shades, axis: Axis, y_range: Range, group: str
) -> Plot:
    """The error of a rule against the step size, a line for each λ; a view for each choice of its other parameters.

    Args:
        sweep: The page.
        rule: An entry of its ``sensitivity``.
        choices: The views: those of the rule's panels, "best" for the best over them, or "" where there is but one.
        places: The shade of each λ.
        axis: The axis of step sizes.
        y_range: The errors that are shown.
        group: The plots that have the same choices.
    """
    views = {}
    for choice in choices:
        lines: Sequence[Row] = next((panel["lines"] for panel in rule["panels"] if panel["choice"] == choice), [])
        lines = _envelope(rule) if choice == "best" else lines
        views[choice] = [_sensitivity_panel(sweep, rule, lines, places, y_range)]
    return Plot(views, group, x=axis, y=Axis(sweep.metric), closest=True)


def _envelope(rule: Row) -> list[dict[str, Any]]:
    """For each λ and step size the best over the choices."""
    curves: dict[Any, dict[float, tuple[float, Any, str, str]]] = {}
    for panel in rule["panels"]:
        for line in panel["lines"]:
            best = curves.setdefault(line["value"], {})
            for x, mean, se, note in zip(line["alpha"], _means(line), _column(line, "se"), _notes(line), strict=True):
                if x not in best or mean < best[x][0]:
                    best[x] = (mean, se, note, panel["choice"])
    lines = []
    for value, best in curves.items():
        steps = sorted(best)
        notes = [" · ".join(filter(None, best[x][:1:-1])) for x in steps]
        means, errors = ([best[x][i] for x in steps] for i in (0, 1))
        lines.append({"value": value, "alpha": steps, "mean": means, "se": errors, "notes": notes})
    return lines


def _column(line: Row, name: str) -> Sequence[Any]:
    values = line.get(name)
    return [None] * len(line["alpha"]) if values is None else values


def _means(line: Row) -> list[float]:
    """The means, infinite where nothing finite is known: there, what was learned grew without bound."""
    pairs = zip(line["mean"], _column(line, "diverged"), strict=True)
    return [mean if known(mean) and not (known(share) and share >= 1) else math.inf for mean, share in pairs]


def _notes(line: Row) -> Sequence[str]:
    if "notes" in line:
        return list(line["notes"])
    return [f"{100 * v:.0f}% of runs diverged" if known(v) and v > 0 else "" for v in _column(line, "diverged")]


def _sensitivity_panel(sweep: SweepPage, rule: Row, lines: Sequence[Row], places: Shades, y_range: Range) -> Panel:
    width, drawn = sweep.band, []
    best = (math.inf, 0.0, "", "")
    for line in lines:
        means, se = _means(line), _column(line, "se")
        name = f"{rule['line_name']} {parameter_text(line['value'])}" if rule["line_name"] else rule["rule"]
        notes = [
            " · ".join(filter(None, (f"± {s:.2g}" if known(s) else "", note)))
            for s, note in zip(se, _notes(line), strict=True)
        ]
        low, high = _band(means, se, width) if len(lines) <= FEW else (None, None)
        shade, key = places[line["value"]], f"line {line['value']}"
        drawn.append(Line(line["alpha"], means, name, "ramp", shade, 1.6, low=low, high=high, notes=notes, key=key))
        best = min(best, *zip(means, line["alpha"], [f"best: {name}"] * len(means), notes, strict=True))
    dot = [Marks([best[1]], [best[0]], best[2], "truth", 0.0, "dot", notes=[best[3]])] if best[0] < math.inf else []
    return Panel("" if drawn else "not in the sweep", drawn, y_range, dot, _levels(sweep.baseline))


def _levels(baseline: Mapping[str, float]) -> list[Level]:
    return [Level(value, name) for name, value in baseline.items() if known(value)]


def _band(means: Iterable[Any], se: Iterable[Any], width: float) -> tuple[list[float] | None, list[float] | None]:
    """The edges of the confidence band, ``width`` standard errors; NaN where there is none, None if nowhere."""
    halves = [width * s if known(s) else math.nan for s in se]
    if not any(map(known, halves)):
        return None, None
    centres = [m if known(m) else math.nan for m in means]
    pairs = list(zip(centres, halves, strict=True))
    return [m - half for m, half in pairs], [m + half for m, half in pairs]


def error_range(baseline: Iterable[float], lines: Iterable[Sequence[Any]]) -> tuple[float, float]:
    """From the least error to a little above where learning starts: what diverges must not flatten all the rest."""
    finite = [[float(v) for v in line if known(v)] for line in lines]
    starts = [line[0] for line in finite if line]
    least = min((min(line) for line in finite if line), default=0.0)
    usual = [*filter(known, baseline)] or ([statistics.median(starts)] if starts else [])
    high = 1.15 * max([*usual, 1.2 * least]) or 1.0
    return (0.0 if 0 <= least < 0.5 * high else least - 0.1 * abs(high - least)), high


def step_range(lines: Sequence[Row]) -> tuple[float, float]:
    """The same step sizes in all panels, with a little room at both ends."""
    steps = np.array([x for line in lines for x in line["alpha"]] or [1.0], np.float64)
    room = max(1.1, float(steps.max() / steps.min()) ** 0.03)
    return float(steps.min()) / room, float(steps.max()) * room


# ---------------------------------------------------------------------- on the page: λ, and learning


def lambda_plot(sweep: SweepPage, inks: Mapping[str, str]) -> Plot:
    """The error against λ, each rule at the best of all its other parameters."""
    width, lines = sweep.band, []
    for rule in sweep.along:
        means = [v if known(v) else math.inf for v in rule["mean"]]
        low, high = _band(means, rule["se"], width)
        name, ink = f"{rule['rule']} ({rule['x_name']})", inks[rule["rule"]]
        lines.append(Line(rule["x"], means, name, ink, width=1.9, low=low, high=high, notes=rule["settings"]))
    y_range = error_range(sweep.baseline.values(), [rule["mean"] for rule in sweep.along])
    panel = Panel("", lines, y_range, levels=_levels(sweep.baseline))
    return Plot({"": [panel]}, "against lambda", x=Axis("lambda"), y=Axis(sweep.metric), closest=True)


def learning_plots(sweep: SweepPage, inks: Mapping[str, str]) -> tuple[Plot, Plot]:
    """The error while learning, each rule with its best setting, with confidence bands; and on logarithmic axes."""
    choices = {name: curves for name, curves in sweep.learning.items() if name != "points"}
    means = [curve["mean"] for curves in choices.values() for curve in curves]
    y_range, width = error_range(sweep.baseline.values(), means), sweep.band
    views: dict[str, list[Panel]] = {}
    for name, curves in choices.items():
        lines = []
        for curve in curves:
            # On a log there may be no return to judge by: None.
            means = [math.nan if v is None else v for v in curve["mean"]]
            low, high = _band(means, curve["se"], width) if curve.get("se") is not None else (None, None)
            rule = curve["rule"]
            lines.append(Line(sweep.learning["points"], means, rule, inks[rule], width=1.9, low=low, high=high))
        views[name] = [Panel("", lines, y_range, levels=_levels(sweep.baseline))]
    early = {name: [_on_log_axes(panel) for panel in panels] for name, panels in views.items()}
    plot = Plot(views, "learning", x=Axis("steps"), y=Axis(sweep.metric))
    return plot, Plot(early, "learning", x=Axis("step", "log"), y=Axis(sweep.metric, "log"))


def _on_log_axes(panel: Panel) -> Panel:
    """The same from step 1 on, without what such an axis cannot show."""

    def positive(values: Any) -> Any:
        return None if values is None else [v if v is not None and v > 0 else math.nan for v in values]

    lines = [
        replace(line, x=np.asarray(line.x, np.int64) + 1, y=positive(line.y), low=positive(line.low))
        for line in panel.lines
    ]
    shown = [float(v) for line in lines for v in np.asarray(line.y, np.float64) if known(v)]
    levels = [level for level in panel.levels if level.y > 0]
    top = panel.y_range[1] if panel.y_range else 1.0
    low = min([*shown, *(level.y for level in levels), top / 2])
    return Panel(panel.title, lines, (0.8 * low, top), levels=levels)
