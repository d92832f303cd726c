"""The sections of a sweep with plots: the error against the step size, and the error while learning."""

from __future__ import annotations

import math
import re
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from emphatic.report.page import Html, Key, Plots, choice, legend, paragraphs, section, text
from emphatic.report.plots import Axis, Level, Line, Marks, Panel, Plot, category, shades
from emphatic.report.tables import amount, known

__all__ = ["inks", "is_power", "lambda_section", "learning_section", "number", "sensitivity_section"]

#: So many lines in one panel may have bands and still be read.
FEW = 3


def inks(*many: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """Each rule of the mappings with its ink, the same all over the page."""
    return {rule: category(i) for i, rule in enumerate(dict.fromkeys(one["rule"] for part in many for one in part))}


def is_power(value: Any) -> bool:
    """Whether a number is a power of two."""
    return known(value) and value > 0 and math.frexp(value)[0] == 0.5


def number(value: Any) -> str:
    """A parameter's value: in full, as it was set."""
    return f"{value:.6g}".replace("-", "−") if known(value) else str(value)


def sensitivity_section(
    rules: Sequence[Mapping[str, Any]], metric: str, unit: str, baseline: Mapping[str, float], wide: float, plots: Plots
) -> Html:
    """One panel per rule: the error against the step size, a line for each λ, for each choice of what else there is."""
    if not rules:
        return Html()
    every = [line for rule in rules for panel in rule["panels"] for line in panel["lines"]]
    values = {line["value"] for line in every}
    places = shades(sorted(values, key=lambda value: (not known(value), value if known(value) else str(value))))
    top = _range(baseline.values(), [line["mean"] for line in every])
    powers = all(is_power(x) for line in every for x in line["alpha"])
    choices: dict[str, dict[str, str]] = {}
    for rule in rules:
        _several(rule, choices.setdefault(_second(rule), {}))
    cards = []
    for rule in rules:
        views = {}
        for shown in choices[_second(rule)] or {"": ""}:
            lines: Sequence[Mapping[str, Any]] = next(
                (panel["lines"] for panel in rule["panels"] if panel["choice"] == shown), []
            )
            views[shown] = [_panel(_envelope(rule) if shown == "best" else lines, rule, places, top, baseline, wide)]
        name = rule.get("x_name", "alpha")
        axis = Axis(name, "log2" if powers else "log", _ends(every), name=name)
        plot = Plot(views, f"choice of {_second(rule)}", x=axis, y=Axis(metric), closest=True)
        drawing = plots(plot, f"{rule['rule']}: {metric} against {name}")
        cards.append(f'<article class="card"><h3>{text(rule["rule"])}</h3>{drawing}</article>')
    names = " or ".join(dict.fromkeys(rule["line_name"] for rule in rules if rule["line_name"]))
    keys = [Key("ramp", number(v), shade, f"line {v}") for v, shade in places.items()] if names else []
    bar = Html(f'<div class="group"><span>{text(names)}</span>{legend(keys)}</div>') if keys else Html()
    for second, options in choices.items():
        bar = Html(bar + (choice(f"choice of {second}", options, f"Choice of {second}") if options else ""))
    note = (
        f"{metric}{', ' + unit if unit else ''}, against the step size; less is better. A line that leaves at the top "
    )
    note += "grows without bound or far beyond. The dot is the best setting in the panel."
    if any(choices.values()):
        note += " Best over a parameter: at each point, the best that any of its values gives."
    levels = f"Horizontal: {', '.join(f'{name} ({amount(value)})' for name, value in baseline.items())}."
    return section(
        "sensitivity",
        "Sensitivity to the settings",
        paragraphs(note, *([levels] if baseline else [])),
        Html(f'<div class="bar">{bar}</div><div class="multiples">{"".join(cards)}</div>'),
    )


def _second(rule: Mapping[str, Any]) -> str:
    """The names of the other parameters: those in "eta = 1/16"."""
    return ", ".join(re.findall(r"([^,=]+?)\s*=", next((panel["choice"] for panel in rule["panels"]), "")))


def _several(rule: Mapping[str, Any], options: dict[str, str]) -> None:
    """Add the rule's choices to the options, if there are several; the best over them comes first."""
    if len(rule["panels"]) > 1:
        options.setdefault("best", f"Best over {_second(rule) or 'the rest'}")
        for panel in rule["panels"]:
            options.setdefault(panel["choice"], panel["choice"])


def _envelope(rule: Mapping[str, Any]) -> list[dict[str, Any]]:
    """For each λ and step size the best over the choices."""
    found: dict[Any, dict[float, tuple[float, Any, str, str]]] = {}
    for panel in rule["panels"]:
        for line in panel["lines"]:
            best = found.setdefault(line["value"], {})
            for x, mean, se, note in zip(line["alpha"], _means(line), _of(line, "se"), _notes(line), strict=True):
                if x not in best or mean < best[x][0]:
                    best[x] = (mean, se, note, panel["choice"])
    lines = []
    for value, best in found.items():
        steps = sorted(best)
        notes = [" · ".join(filter(None, best[x][:1:-1])) for x in steps]
        means, errors = ([best[x][i] for x in steps] for i in (0, 1))
        lines.append({"value": value, "alpha": steps, "mean": means, "se": errors, "notes": notes})
    return lines


def _of(line: Mapping[str, Any], name: str) -> Sequence[Any]:
    values = line.get(name)
    return [None] * len(line["alpha"]) if values is None else values


def _means(line: Mapping[str, Any]) -> list[float]:
    """The means, infinite where nothing finite is known: there, what was learned grew without bound."""
    pairs = zip(line["mean"], _of(line, "diverged"), strict=True)
    return [mean if known(mean) and not (known(share) and share >= 1) else math.inf for mean, share in pairs]


def _notes(line: Mapping[str, Any]) -> Sequence[str]:
    if "notes" in line:
        return list(line["notes"])
    return [f"{100 * v:.0f}% of runs diverged" if known(v) and v > 0 else "" for v in _of(line, "diverged")]


def _panel(
    lines: Sequence[Mapping[str, Any]],
    rule: Mapping[str, Any],
    places: Mapping[Any, float],
    y_range: tuple[float, float],
    baseline: Mapping[str, float],
    wide: float,
) -> Panel:
    drawn: list[Line] = []
    best = (math.inf, 0.0, "", "")
    for line in lines:
        means, se = _means(line), _of(line, "se")
        name = f"{rule['line_name']} {number(line['value'])}" if rule["line_name"] else rule["rule"]
        notes = [
            " · ".join(filter(None, (f"± {s:.2g}" if known(s) else "", note)))
            for s, note in zip(se, _notes(line), strict=True)
        ]
        band = _band(means, se, wide) if len(lines) <= FEW else (None, None)
        key = f"line {line['value']}"
        shade = places[line["value"]]
        drawn.append(
            Line(line["alpha"], means, name, "ramp", shade, 1.6, low=band[0], high=band[1], notes=notes, key=key)
        )
        best = min(best, *zip(means, line["alpha"], [f"best: {name}"] * len(means), notes, strict=True))
    dot = [Marks([best[1]], [best[0]], best[2], "truth", 0.0, "dot", notes=[best[3]])] if best[0] < math.inf else []
    levels = [Level(value, name) for name, value in baseline.items() if known(value)]
    return Panel("" if drawn else "not in the sweep", drawn, y_range, dot, levels)


def _band(means: Iterable[Any], se: Iterable[Any], wide: float) -> tuple[list[float] | None, list[float] | None]:
    """The edges of the confidence band, so many standard errors; NaN where there is none, None if nowhere."""
    halves = [wide * s if known(s) else math.nan for s in se]
    if not any(map(known, halves)):
        return None, None
    centres = [m if known(m) else math.nan for m in means]
    pairs = list(zip(centres, halves, strict=True))
    return [m - half for m, half in pairs], [m + half for m, half in pairs]


def _range(baseline: Iterable[float], lines: Iterable[Sequence[Any]]) -> tuple[float, float]:
    """From the least error to a little above where learning starts: what diverges must not flatten all the rest."""
    finite = [[float(v) for v in line if known(v)] for line in lines]
    starts = [line[0] for line in finite if line]
    least = min((min(line) for line in finite if line), default=0.0)
    usual = [*filter(known, baseline)] or ([statistics.median(starts)] if starts else [])
    high = 1.15 * max([*usual, 1.2 * least]) or 1.0
    return (0.0 if 0 <= least < 0.5 * high else least - 0.1 * abs(high - least)), high


def _ends(lines: Sequence[Mapping[str, Any]]) -> tuple[float, float]:
    """The same step sizes in all panels, with a little room at both ends."""
    steps = np.array([x for line in lines for x in line["alpha"]] or [1.0], np.float64)
    room = max(1.1, float(steps.max() / steps.min()) ** 0.03)
    return float(steps.min()) / room, float(steps.max()) * room


def learning_section(
    learning: Mapping[str, Sequence[Any]],
    ink: Mapping[str, str],
    metric: str,
    baseline: Mapping[str, float],
    wide: float,
    plots: Plots,
) -> Html:
    """The error while learning, each rule with its best setting, with confidence bands; also on logarithmic axes."""
    views: dict[str, list[Panel]] = {}
    names = [name for name in learning if name != "points"]
    y_range = _range(baseline.values(), [one["mean"] for name in names for one in learning[name]])
    levels = [Level(value, words) for words, value in baseline.items() if known(value)]
    banded = False
    for name in names:
        lines = []
        for one in learning[name]:
            means = [math.nan if v is None else v for v in one["mean"]]  # on a log there may be no return to judge by
            low, high = _band(means, one["se"], wide) if one.get("se") is not None else (None, None)
            banded |= low is not None
            lines.append(Line(learning["points"], means, one["rule"], ink[one["rule"]], width=1.9, low=low, high=high))
        views[name] = [Panel("", lines, y_range, levels=levels)]
    if not any(panels[0].lines for panels in views.values()):
        return Html()
    note = "The error while learning, each rule with its best setting."
    note += f" Bands: 95% of the mean over runs, ±{wide:.3g} standard errors." if banded else ""
    shown = dict.fromkeys(one["rule"] for name in names for one in learning[name])
    bar = legend([Key(ink[rule], rule) for rule in shown])
    if len(names) > 1:
        options = {name: f"Setting with the {name}" for name in names}
        bar = Html(bar + choice("learning", options, "Setting"))
    drawing = plots(Plot(views, "learning", x=Axis("steps"), y=Axis(metric)), f"{metric} while learning")
    early = {name: [_on_log_axes(panel) for panel in panels] for name, panels in views.items()}
    log = Plot(early, "learning", x=Axis("step", "log"), y=Axis(metric, "log"))
    drawing_early = plots(log, f"{metric} while learning, on logarithmic axes")
    settings: dict[str, list[str]] = {}
    for name in names:
        for one in learning[name]:
            if one.get("setting"):
                settings.setdefault(one["rule"], []).append(f"{name}: {one['setting']}")
    terms = "".join(
        f"<div><dt>{text(rule)}</dt><dd>{text('; '.join(texts))}</dd></div>" for rule, texts in settings.items()
    )
    below = f'<dl class="terms">{terms}</dl>' if terms else ""
    return section(
        "learning",
        "Learning curves",
        paragraphs(note),
        Html(
            f'<div class="bar">{bar}</div><div class="card">{drawing}</div>'
            f'<div class="card"><h3>On logarithmic axes</h3>{drawing_early}</div>{below}'
        ),
    )


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


def lambda_section(
    rules: Sequence[Mapping[str, Any]], ink: Mapping[str, str], metric: str, baseline: Mapping[str, float], wide: float,
    plots: Plots,
) -> Html:  # fmt: skip
    """The error against λ, each rule at the best of all its other parameters."""
    lines = []
    for rule in rules:
        means = [v if known(v) else math.inf for v in rule["mean"]]
        low, high = _band(means, rule["se"], wide)
        name, key = f"{rule['rule']} ({rule['x_name']})", ink[rule["rule"]]
        lines.append(Line(rule["x"], means, name, key, width=1.9, low=low, high=high, notes=rule["settings"]))
    if not any(len(rule["x"]) > 1 for rule in rules):
        return Html()
    levels = [Level(value, words) for words, value in baseline.items() if known(value)]
    panel = Panel("", lines, _range(baseline.values(), [rule["mean"] for rule in rules]), levels=levels)
    plot = Plot({"": [panel]}, "against lambda", x=Axis("lambda"), y=Axis(metric), closest=True)
    bar = legend([Key(ink[rule["rule"]], rule["rule"]) for rule in rules])
    drawing = plots(plot, f"{metric} against lambda")
    note = "The error against λ (ζ or ξ where a rule has that), each rule at the best of all its other parameters."
    body = Html(f'<div class="bar">{bar}</div><div class="card">{drawing}</div>')
    return section("lambda", "Error against λ", paragraphs(note), body)
