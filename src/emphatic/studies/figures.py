"""The plots of a sweep: the error against α, against λ and while learning, on its page and in files for papers.

A plot is described once and drawn by ``emphatic.nexting.report``: on the page with uPlot, in a file with matplotlib.
"""

from __future__ import annotations

import math
import os
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import stdtrit

from emphatic.learning.inputs import refusal
from emphatic.nexting.report.page import amount, known
from emphatic.nexting.report.plots import (
    Axis,
    Level,
    Line,
    Marks,
    Panel,
    Plot,
    category,
    check_format,
    draw_file,
    look,
    shades,
)
from emphatic.studies.results import Sweep
from emphatic.studies.statistics import CONFIDENCE, mean_intervals, over_runs

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from emphatic.studies.pages import SweepPage

__all__ = ["EDGE", "baseline_levels", "baseline_words", "best_curves", "confidence_width", "draw", "error_range"]
__all__ += ["lambda_plot", "learning_plots", "parameter_text", "rules_plot", "runs_plot", "runs_words"]
__all__ += ["sensitivity_plot", "step_range", "step_scale", "which_runs", "within_frame"]

SYMBOLS = {"alpha": "α", "lambda": "λ", "zeta": "ζ", "xi": "ξ"}
#: What stands beside a best setting that is at the edge of its grid.
EDGE = "edge of the grid"

Array = NDArray[np.float64]
Row = Mapping[str, Any]
Range = tuple[float, float]
#: The shade of each λ, a number or words.
Shades = Mapping[Any, float]


def confidence_width(runs: int) -> float:
    """Half of a 95% interval of the mean over runs, in standard errors; NaN for a single run."""
    return float(stdtrit(runs - 1, 0.5 + CONFIDENCE / 2)) if runs > 1 else math.nan


def which_runs(sweep: Sweep) -> str:
    """On which runs the settings in a figure were chosen, and on which they are shown."""
    runs = sweep.plan.runs
    if sweep.rerun is not None:
        return f"Settings were chosen on {runs} runs and are shown on {sweep.rerun.plan.runs} fresh ones."
    if runs == 1:
        return "One run: settings were chosen on it, and are shown on it."
    return f"Settings were chosen on {runs} runs and are shown on the same runs, so errors are slightly too small."


def parameter_text(value: object) -> str:
    """A parameter's value: in full, as it was set."""
    return f"{value:.6g}".replace("-", "−") if known(value) else str(value)


# ---------------------------------------------------------------------- for papers


def draw(sweep: Sweep, x: str, path: str | os.PathLike[str] | None) -> Figure:
    """``Sweep.plot``."""
    plots = {"alpha": _over_alpha, "rules": _over_rules, "lambda": _over_lambda, "steps": _while_learning}
    plots["runs"] = _all_runs
    if x not in plots:
        raise refusal("x", "plot", f"be {', '.join(map(repr, list(plots)[:-1]))} or 'runs'", repr(x))
    if path is not None:
        check_format(path)
    return draw_file(plots[x](sweep), path)


def _bands(runs: int) -> str:
    return f"Bands: 95% intervals of the mean over {runs} runs." if runs > 1 else "One run, without a band."


def within_frame(mean: ArrayLike, low: ArrayLike, high: ArrayLike, top: float) -> tuple[Array, Array]:
    """The edges of a band, but none where the line itself is above the frame: it would cover what is in there."""
    inside = np.asarray(mean, np.float64) <= top
    edges = (np.where(inside, np.asarray(edge, np.float64), np.nan) for edge in (low, high))
    return next(edges), next(edges)


def _over_alpha(sweep: Sweep) -> Plot:
    """One panel per rule, one line per λ: at each α the best of the other parameters."""
    stepped = ~np.isnan(sweep.parameters["alpha"])
    rules = list(dict.fromkeys(label for label, has in zip(sweep.labels, stepped, strict=True) if has))
    if not rules:
        raise refusal("x", "plot", "be 'lambda' or 'steps': no rule of this sweep has a step size", "'alpha'")
    frame, runs = _frame(sweep), sweep.plan.runs
    chosen = dict(zip(dict.fromkeys(sweep.labels), sweep.choose(), strict=True))
    panels = []
    for rule in rules:
        curves = list(_curves_over_alpha(sweep, rule))
        lines = []
        for i, (shade, (label, settings)) in enumerate(zip(shades(range(len(curves))).values(), curves, strict=True)):
            errors = np.where(sweep.diverged[settings], np.inf, sweep.mean[settings])
            mean, (low, high) = over_runs(errors)[0], mean_intervals(errors)
            alpha = sweep.parameters["alpha"][settings]
            low, high = within_frame(mean, low, high, frame[1])
            lines.append(Line(alpha, mean, label, "ramp", shade, 1.2, **look(i), low=low, high=high))
        marks = _edge_marks(sweep, [chosen[rule]], "alpha", fresh=False)
        panels.append(Panel(rule, lines, frame, marks, baseline_levels(sweep.baselines, frame)))
    alphas = sweep.parameters["alpha"]
    x, y = Axis("step size α", step_scale(alphas[alphas > 0.0])), Axis(f"mean {sweep.plan.source.metric}")
    caption = f"At each α the best of the other parameters, chosen and shown on the same runs. {_bands(runs)}"
    caption += _outside(sweep, frame) + _edge_words(sweep)
    return Plot({"": panels}, "alpha", min(3, len(rules)), x=x, y=y, caption=caption)


def _curves_over_alpha(sweep: Sweep, rule: str) -> Iterator[tuple[str, list[int]]]:
    """The label of each λ, and its settings in the order of α."""
    mean, of_rule, alphas = sweep.over_runs("mean")[0], np.array(sweep.labels) == rule, sweep.parameters["alpha"]
    along = sweep.along(rule)[0]
    column = sweep.parameters[along] if along else np.zeros(len(mean))
    for value in np.unique(column[of_rule]):
        settings = np.flatnonzero(of_rule & (column == value) & (alphas > 0.0))
        groups = [settings[alphas[settings] == step] for step in np.unique(alphas[settings])]
        label = f"{SYMBOLS[along]} = {value:.4g}" if along else ""
        yield label, [int(group[np.argmin(mean[group])]) for group in groups]


def _edge_marks(sweep: Sweep, settings: Iterable[int], along: str, fresh: bool = True) -> list[Marks]:
    """A triangle at each of these settings whose value of a parameter is at the edge of its grid."""
    marks = []
    for setting in settings:
        if along in sweep.edges[setting]:
            reported, row = sweep.reported(setting) if fresh else (sweep, setting)
            mean = reported.over_runs("mean")[0][row]
            if np.isfinite(mean):
                place = [sweep.parameters[along][setting]]
                words = sweep.advice(setting)
                marks.append(Marks(place, [mean], EDGE, "truth", symbol="triangle", notes=[words], label=EDGE))
    return marks


def _edge_words(sweep: Sweep) -> str:
    """What to do about the best settings that are at the edge of their grid, after a caption."""
    rules = dict.fromkeys(sweep.labels)
    words = [f"{rule}: {sweep.advice(i)}" for rule, i in zip(rules, sweep.choose(), strict=True) if sweep.edges[i]]
    return f" At the edge of the grid: {' '.join(words)}" if words else ""


def _over_rules(sweep: Sweep) -> Plot:
    """One line per rule, over α at its best λ and other parameters."""
    curves = [entry for entry in sweep.sensitivity if entry["at_best"]]
    if not curves:
        raise ValueError("No rule of this sweep has several step sizes above 0: there is nothing to draw.")
    metric = sweep.plan.source.metric
    frame = _frame(sweep)
    plot = rules_plot(curves, sweep.baselines, f"mean {metric}", frame)
    runs = curves[0]["runs"]
    caption = f"Each rule at its best parameters, for each α. {which_runs(sweep)} {_bands(runs)}"
    return replace(plot, caption=caption + _outside(sweep, frame) + _edge_words(sweep))


def rules_plot(
    curves: Sequence[Row],
    baselines: Mapping[str, float],
    metric: str,
    y_range: Range,
    inks: Mapping[str, str] | None = None,
) -> Plot:
    """The error against the step size, a line for each rule: entries of ``Sweep.sensitivity``.

    Args:
        curves: The entries.
        baselines: Errors to compare with.
        metric: The title of the axis of errors.
        y_range: The errors that are shown.
        inks: The ink of each rule; by default in their order.
    """
    lines, marks = [], []
    for i, curve in enumerate(curves):
        shown = ("lambda", "zeta", "xi", "decay", "eta", "beta", "kappa")
        setting = {name: curve[name] for name in curve if name in shown}
        words = ", ".join(f"{SYMBOLS.get(name, name)} = {value:.4g}" for name, value in setting.items())
        lost = [f"{count} of {curve['runs']} runs diverged" if count else "" for count in curve["diverged"]]
        notes = [" · ".join(filter(None, (words, note))) for note in lost]
        ink = category(i) if inks is None else inks[curve["rule"]]
        name, mean = curve["rule"], [math.inf if value is None else value for value in curve["mean"]]
        low, high = within_frame(mean, _not_known(curve["mean_low"]), _not_known(curve["mean_high"]), y_range[1])
        lines.append(Line(curve["alpha"], mean, name, ink, 0.0, 1.5, **look(i), low=low, high=high, notes=notes))
        if "alpha" in curve["edge"] and known(mean[curve["alpha"].index(curve["best_alpha"])]):
            height = mean[curve["alpha"].index(curve["best_alpha"])]
            marks.append(Marks([curve["best_alpha"]], [height], f"{name}, {EDGE}", ink, symbol="triangle", label=EDGE))
    scale = step_scale([alpha for curve in curves for alpha in curve["alpha"]])
    axis = Axis("step size α", scale, step_range(curves), name="alpha")
    panel = Panel("", lines, y_range, marks, baseline_levels(baselines, y_range))
    return Plot({"": [panel]}, "rules", x=axis, y=Axis(metric), closest=True, direct=True)


def _not_known(values: Iterable[Any]) -> list[float]:
    return [math.nan if value is None else value for value in values]


def _over_lambda(sweep: Sweep) -> Plot:
    """One line per rule: at each λ the best of all other parameters, with the 95% interval of its mean."""
    lines: list[Line] = []
    marks: list[Marks] = []
    for rule, chosen in zip(dict.fromkeys(sweep.labels), sweep.choose(), strict=True):
        along, values, settings = sweep.along(rule)
        if not along:
            continue
        name = rule if along == "lambda" else f"{rule} ({SYMBOLS[along]})"
        errors = sweep.errors_of(settings.tolist())
        mean, (low, high) = over_runs(errors)[0], mean_intervals(errors)
        shown, ink = np.where(np.isfinite(mean), mean, np.nan), category(len(lines))
        lines.append(Line(values, shown, name, ink, width=1.2, **look(len(lines)), low=low, high=high))
        marks += _edge_marks(sweep, [chosen], along)
    if not lines:
        raise ValueError("No rule of this sweep has several settings of λ, ζ or ξ: there is nothing to draw.")
    frame = _frame(sweep) if sweep.plan.source.is_cost else None
    panel = Panel("", lines, frame, marks, baseline_levels(sweep.baselines, frame))
    runs = sweep.plan.runs if sweep.rerun is None else sweep.rerun.plan.runs
    caption = f"At each λ the best of the other parameters. {which_runs(sweep)} {_bands(runs)}"
    caption += _outside(sweep, frame) + _edge_words(sweep)
    y = Axis(f"mean {sweep.plan.source.metric}, at the best α")
    return Plot({"": [panel]}, "lambda", x=Axis("λ"), y=y, direct=True, caption=caption)


def _while_learning(sweep: Sweep) -> Plot:
    """Learning curves of the best settings; the steps on a logarithmic axis from 1, or the cost of episodes on one."""
    lines, source = best_curves(sweep, 1.3), sweep.plan.source
    curves = [np.asarray(line.y, np.float64).tolist() for line in lines]
    frame, least = _frame(sweep, curves), float(np.min(curves))
    is_log = source.is_cost and least > 0.0
    frame = (0.9 * least, frame[1]) if is_log else frame
    panel = Panel("", lines, frame, levels=baseline_levels(sweep.baselines, frame))
    runs = sweep.plan.runs if sweep.rerun is None else sweep.rerun.plan.runs
    caption = f"Each rule at its best setting. {which_runs(sweep)} {_bands(runs)}"
    caption += _outside(sweep, frame) + _edge_words(sweep)
    x = Axis(source.unit.removesuffix("s"), "linear" if source.unit == "episodes" else "log")
    y = Axis(source.metric, "log" if is_log else "linear")
    return Plot({"": [panel]}, "steps", x=x, y=y, direct=True, caption=caption)


def best_curves(sweep: Sweep, width: float) -> list[Line]:
    """The learning curve of each rule's best setting with its 95% band, on fresh runs if there are any."""
    lines = []
    for i, (rule, setting) in enumerate(zip(dict.fromkeys(sweep.labels), sweep.choose(), strict=True)):
        reported, row = sweep.reported(setting)
        curve = np.asarray(reported.curve[row].T, np.float64)
        mean, (low, high) = over_runs(curve)[0], mean_intervals(curve)
        lines.append(Line(reported.points + 1, mean, rule, category(i), 0.0, width, **look(i), low=low, high=high))
    return lines


def _all_runs(sweep: Sweep) -> Plot:
    """The errors of all runs of each rule's best setting, with the mean, and with tolerance intervals if asked for."""
    plot = runs_plot(sweep.runs_of_best, sweep.best, sweep.baselines, f"mean {sweep.plan.source.metric}")
    frame = error_range(sweep.baselines.values(), [errors.tolist() for errors in sweep.runs_of_best.values()])
    words = f"{runs_words(sweep.tolerance)} {which_runs(sweep)}{_outside(sweep, frame)}"
    return replace(plot, caption=words + _edge_words(sweep))


def runs_words(tolerance: float | None) -> str:
    """What dots and bars mean where all runs are shown."""
    words = "A small dot is one run; the large one is the mean with its 95% interval. Runs that diverged are not drawn."
    if tolerance is not None:
        words += f" Diamonds: the median, with bars that enclose {100 * tolerance:.3g}% of all runs (95% confidence)."
    return words


def runs_plot(runs: Mapping[str, Array], best: Sequence[Row], baselines: Mapping[str, float], metric: str) -> Plot:
    """The distribution over runs: a dot for each run of each rule, beside the mean, the median and their intervals.

    Args:
        runs: The errors of all runs of each rule; infinite for those that diverged.
        best: The rules' entries of ``Sweep.best``.
        baselines: Errors to compare with.
        metric: The title of the axis of errors.
    """
    marks: list[Marks] = []
    for i, ((rule, errors), row) in enumerate(zip(runs.items(), best, strict=True)):
        ink, finite = category(i), np.isfinite(errors)
        places = i + np.linspace(-0.3, 0.1, len(errors)) if len(errors) > 1 else np.array([float(i)])
        numbers = [f"run {run}" for run in np.flatnonzero(finite)]
        marks.append(Marks(places[finite], errors[finite], rule, ink, symbol="dot", notes=numbers, size=0.5))
        if known(row["mean"]):
            low, high = (_not_known([row[f"mean_{end}"]]) for end in ("low", "high"))
            marks.append(Marks([i + 0.22], [row["mean"]], f"{rule}, mean", "truth", symbol="dot", low=low, high=high))
        if known(row.get("tolerance_low")) and known(row["median"]):
            low = [row["tolerance_low"]]
            high = [math.inf if row["tolerance_high"] is None else row["tolerance_high"]]
            name = f"{rule}, median and tolerance interval"
            marks.append(Marks([i + 0.36], [row["median"]], name, low=low, high=high))
    ticks = {float(i): rule for i, rule in enumerate(runs)}
    frame = error_range(baselines.values(), [errors.tolist() for errors in runs.values()])
    panel = Panel("", [], marks=marks, levels=baseline_levels(baselines, frame))
    axis = Axis("", range=(-0.6, len(runs) - 0.3), ticks=ticks)
    return Plot({"": [panel]}, "runs", x=axis, y=Axis(metric), closest=True, direct=True)


def _frame(sweep: Sweep, lines: Sequence[Sequence[Any]] = ()) -> Range:
    """The errors that are shown, from 0 if they are no costs: those of these lines, or the means of all settings."""
    is_cost, means = sweep.plan.source.is_cost, [sweep.over_runs("mean")[0].tolist()]
    low, high = error_range(sweep.baselines.values(), lines or means, is_cost and not lines)
    return (low if is_cost else 0.0), high


def _outside(sweep: Sweep, frame: Range | None) -> str:
    """The baselines above the frame, in words after a caption."""
    words = {} if frame is None else baseline_words(sweep.baselines, sweep.plan.source.notes, frame)
    above = [text for name, text in words.items() if frame is not None and sweep.baselines[name] > frame[1]]
    return f" Horizontal lines: {'; '.join(above)}." if above else ""


def baseline_words(baselines: Mapping[str, float], notes: Mapping[str, str], frame: Range) -> dict[str, str]:
    """Of each baseline its name, its value, and what there is to say of it.

    Args:
        baselines: Errors to compare with.
        notes: What there is to say, by name.
        frame: The errors that are shown.
    """
    words = {}
    for name, value in baselines.items():
        about = [amount(value), *([notes[name]] if name in notes else []), *["above the plot"] * (value > frame[1])]
        words[name] = f"{name} ({', '.join(about)})"
    return words


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
        shown = [panel["lines"] for panel in rule["panels"] if choice in ("", panel["choice"])]
        lines: Sequence[Row] = _envelope(rule) if choice == "best" else next(iter(shown), [])
        views[choice] = [_sensitivity_panel(sweep, rule, lines, places, y_range)]
    return Plot(views, group, x=axis, y=Axis(sweep.metric), closest=True)


def _envelope(rule: Row) -> list[dict[str, Any]]:
    """For each λ and step size the best over the choices."""
    curves: dict[Any, dict[float, dict[str, Any]]] = {}
    for panel in rule["panels"]:
        for line in panel["lines"]:
            best = curves.setdefault(line["value"], {})
            columns = {name: _column(line, name) for name in ("se", "low", "high", "edge")}
            for i, (x, mean, note) in enumerate(zip(line["alpha"], _means(line), _notes(line), strict=True)):
                if x not in best or mean < best[x]["mean"]:
                    words = " · ".join(filter(None, (panel["choice"], note)))
                    best[x] = {name: values[i] for name, values in columns.items()} | {"mean": mean, "notes": words}
    lines = []
    for value, best in curves.items():
        steps = sorted(best)
        columns = {name: [best[x][name] for x in steps] for name in ("mean", "se", "low", "high", "edge", "notes")}
        lines.append({"value": value, "alpha": steps} | columns)
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
    drawn = []
    best: tuple[Any, ...] = (math.inf, 0.0, "", "", False)
    for i, line in enumerate(lines):
        means, se = _means(line), _column(line, "se")
        name = f"{rule['line_name']} {parameter_text(line['value'])}" if rule["line_name"] else rule["rule"]
        notes = [
            " · ".join(filter(None, (f"± {s:.2g}" if known(s) else "", note)))
            for s, note in zip(se, _notes(line), strict=True)
        ]
        low, high = _band(line, means, sweep.band)
        if low is not None and high is not None:
            low, high = (edge.tolist() for edge in within_frame(means, low, high, y_range[1]))
        style: dict[str, Any] = {"dash": look(i)["dash"], "key": f"line {line['value']}", "notes": notes}
        drawn.append(Line(line["alpha"], means, name, "ramp", places[line["value"]], 1.6, low=low, high=high, **style))
        at_edge = [bool(names) for names in _column(line, "edge")]
        best = min(best, *zip(means, line["alpha"], [f"best: {name}"] * len(means), notes, at_edge, strict=True))
    mean, alpha, name, note, at_edge = best
    dots = []
    if mean < math.inf:
        dots.append(Marks([alpha], [mean], name, "truth", 0.0, "dot", notes=[note]))
        if at_edge:
            dots.append(Marks([alpha], [mean], f"{name}, {EDGE}", "truth", symbol="triangle", notes=[note], label=EDGE))
    return Panel("" if drawn else "not in the sweep", drawn, y_range, dots, baseline_levels(sweep.baseline, y_range))


def baseline_levels(baselines: Mapping[str, float], frame: Range | None = None) -> list[Level]:
    """The errors to compare with that are in the frame, as dotted lines.

    Args:
        baselines: The errors by name.
        frame: The errors that are shown; None for all.
    """
    top = math.inf if frame is None else frame[1]
    return [Level(value, name) for name, value in baselines.items() if known(value) and value <= top]


def _band(line: Row, means: Sequence[Any], width: float) -> tuple[list[float] | None, list[float] | None]:
    """The edges of the confidence band; NaN where there is none, None if nowhere.

    They are ``low`` and ``high`` of the line, or ``width`` of its standard errors where it has none of these.
    """
    if line.get("low") is not None and any(map(known, line["low"])):
        low, high = (_not_known(line[name]) for name in ("low", "high"))
    elif line.get("se") is not None:
        halves = [width * s if known(s) else math.nan for s in line["se"]]
        centres = [m if known(m) else math.nan for m in means]
        low, high = ([m + sign * half for m, half in zip(centres, halves, strict=True)] for sign in (-1, 1))
    else:
        return None, None
    return (low, high) if any(map(known, low)) else (None, None)


#: A baseline is left out of the frame if all errors are below this part of it.
_FAR = 0.25
#: Of costs, the frame goes from this part of the least to this many times the least: what differs by a fifth of it can
#: be told apart, whatever bad settings and random actions cost.
_COSTS = 0.9, 1.8


def error_range(baseline: Iterable[float], lines: Iterable[Sequence[Any]], is_cost: bool = False) -> Range:
    """From the least error to a little above where learning starts: what diverges must not flatten all the rest.

    Nor must a baseline that is several times as large as every error, as random actions may be.

    Args:
        baseline: Errors to compare with.
        lines: The errors of each line.
        is_cost: Whether they are mean costs of episodes, of which none is near 0.
    """
    finite = [[float(v) for v in line if known(v)] for line in lines]
    starts = [line[0] for line in finite if line]
    least = min((min(line) for line in finite if line), default=0.0)
    largest = max((max(line) for line in finite if line), default=math.inf)
    usual = [*filter(known, baseline)]
    if is_cost and (floor := min([*usual, least])) > 0.0:
        return _COSTS[0] * floor, _COSTS[1] * least
    usual = usual or ([statistics.median(starts)] if starts else [])
    least = min([*usual, least]) if least < 0.0 else least  # costs below 0 are those of returns: no error is 0
    top = max([*usual, 1.2 * least])
    top = largest if 0.0 < largest < _FAR * top else top
    high = (1.15 * top if top > 0.0 else top + 0.15 * (top - least)) or 1.0
    return (0.0 if 0 <= least < 0.5 * high else least - 0.1 * abs(high - least)), high


def step_scale(alphas: Iterable[float]) -> Literal["linear", "log", "log2"]:
    """How an axis of these step sizes is drawn: at powers of two if all are such, linear if they are evenly spaced."""
    steps = np.unique(np.fromiter(alphas, np.float64))
    if np.all(np.frexp(steps)[0] == 0.5):
        return "log2"
    gaps = np.diff(steps)
    return "linear" if len(gaps) > 2 and np.allclose(gaps, gaps[0], rtol=1e-6) else "log"


def step_range(lines: Sequence[Row]) -> tuple[float, float]:
    """The same step sizes in all panels, with a little room at both ends."""
    steps = np.array([x for line in lines for x in line["alpha"]] or [1.0], np.float64)
    room = max(1.1, float(steps.max() / steps.min()) ** 0.03)
    return float(steps.min()) / room, float(steps.max()) * room


# ---------------------------------------------------------------------- on the page: λ, and learning


def lambda_plot(sweep: SweepPage, inks: Mapping[str, str]) -> Plot:
    """The error against λ, each rule at the best of all its other parameters."""
    lines, marks = [], []
    for i, rule in enumerate(sweep.along):
        means = [v if known(v) else math.inf for v in rule["mean"]]
        low, high = _band(rule, means, sweep.band)
        name, ink = f"{rule['rule']} ({rule['x_name']})", inks[rule["rule"]]
        dash = look(i)["dash"]
        lines.append(Line(rule["x"], means, name, ink, 0.0, 1.9, dash, low=low, high=high, notes=rule["settings"]))
        at_edge = rule.get("edge")
        if at_edge is not None and known(means[at_edge]):
            place, height = [rule["x"][at_edge]], [means[at_edge]]
            marks.append(Marks(place, height, f"{name}, {EDGE}", ink, symbol="triangle", label=EDGE))
    y_range = error_range(sweep.baseline.values(), [rule["mean"] for rule in sweep.along], sweep.is_cost)
    panel = Panel("", lines, y_range, marks, baseline_levels(sweep.baseline, y_range))
    x, y = Axis("lambda"), Axis(sweep.metric)
    return Plot({"": [panel]}, "against lambda", x=x, y=y, closest=True, direct=True, caption=sweep.chosen)


def learning_plots(sweep: SweepPage, inks: Mapping[str, str]) -> tuple[Plot, Plot]:
    """The error while learning, each rule with its best setting, with confidence bands; and on logarithmic axes.

    Episodes are few: their axis is linear in both.
    """
    choices = {name: curves for name, curves in sweep.learning.items() if name != "points"}
    means = [curve["mean"] for curves in choices.values() for curve in curves]
    y_range = error_range(sweep.baseline.values(), means)
    views: dict[str, list[Panel]] = {}
    for name, curves in choices.items():
        lines = []
        for i, curve in enumerate(curves):
            means = _not_known(curve["mean"])  # on a log there may be no return to judge by
            low, high = _band(curve, means, sweep.band)
            rule, points = curve["rule"], sweep.learning["points"]
            lines.append(Line(points, means, rule, inks[rule], 0.0, 1.9, look(i)["dash"], low=low, high=high))
        views[name] = [Panel("", lines, y_range, levels=baseline_levels(sweep.baseline, y_range))]
    early = {name: [_on_log_axes(panel) for panel in panels] for name, panels in views.items()}
    scale: Literal["linear", "log"] = "linear" if sweep.pace == "episodes" else "log"
    plot = Plot(views, "learning", x=Axis(sweep.pace), y=Axis(sweep.metric), direct=True, caption=sweep.chosen)
    return plot, replace(plot, views=early, x=Axis(sweep.pace.removesuffix("s"), scale), y=Axis(sweep.metric, "log"))


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
