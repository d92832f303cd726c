"""The page of a sweep: ``page`` gathers its numbers in a ``SweepPage``, with which ``sweep_page`` fills a template."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypeGuard

import numpy as np
from numpy.typing import NDArray

from emphatic.common import versions
from emphatic.nexting.report import (
    Axis,
    Column,
    Html,
    Key,
    Plots,
    amount,
    category,
    render_page,
    seconds,
    shades,
    table,
)
from emphatic.nexting.report.page import known, plus_minus, time_table
from emphatic.studies import figures
from emphatic.studies.figures import parameter_text
from emphatic.studies.grid import GridSettings
from emphatic.studies.statistics import mean_intervals, over_runs, runs_for_tolerance

if TYPE_CHECKING:
    from emphatic.studies.results import Sweep

__all__ = ["Row", "Sections", "SweepPage", "format_value", "page", "render", "sweep_page"]

Row = Mapping[str, Any]
#: The words of the link to a section, and what the section shows.
Sections = dict[str, tuple[str, Any]]

#: The parameter of the lines in a rule's panel: the first of these that it has.
_LINES = ("lambda", "zeta", "xi", "decay", "beta", "eta", "kappa")
_RAISED = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
#: How an interval was computed, in words.
_METHODS = {"t": "by Student’s t (fewer than five runs)", "bootstrap": "by bootstrap"}


# ---------------------------------------------------------------------- the numbers of a sweep


def page(sweep: Sweep) -> str:
    """The whole page of a sweep."""
    plan, source = sweep.plan, sweep.plan.source
    runs = "one run" if plan.runs == 1 else f"{plan.runs} runs"
    steps = f"all {source.unit}" if plan.every == 1 else f"one step in {plan.every}"
    over = steps if plan.runs == 1 else f"{runs} and {steps}"
    weighted = "by d_μ·I" if getattr(source, "d", None) is None else "as given"
    averaged = {"RMSVE": f"weighted {weighted}, mean over", "return error": "the root mean square over"}
    rules = dict.fromkeys(sweep.labels)
    return sweep_page(
        SweepPage(
            title=source.name,
            intro=f"{len(sweep.mean):,} settings of {len(rules)} {'rules' if len(rules) > 1 else 'rule'}, "
            f"{runs} of {source.steps:,} {source.unit} each.",
            metric=source.metric,
            unit=f"{averaged.get(source.metric, 'the mean over')} {over}",
            pace=source.unit,
            counts={
                "settings": len(sweep.mean),
                "runs": plan.runs,
                source.unit: source.steps,
                **({"learner_steps": plan.learner_steps} if source.unit == "steps" else {}),
                "diverged_settings": int(sweep.diverged.any(axis=1).sum()),
                "diverged_runs": int(sweep.diverged.sum()),
            },
            sensitivity=list(_sensitivity(sweep)),
            along=list(_along(sweep)),
            learning={"points": sweep.points.tolist()}
            | {f"best {by}": _learning(sweep, sweep.bests(by)) for by in ("mean", "final")},
            best=_bests(sweep),
            rules=[entry for entry in sweep.sensitivity if entry["at_best"]],
            all_runs=sweep.runs_of_best if sweep.distribution else {},
            chosen=figures.which_runs(sweep),
            baseline=sweep.baselines,
            notes=source.notes,
            is_cost=source.is_cost,
            settings={name: value for name, value in sweep.about().items() if value is not None}
            | {"points": len(sweep.points), "grid": _grid(plan.settings)},
            seconds={"learning": sweep.seconds},
            versions=versions(),
        )
    )


def format_value(value: float) -> str:
    """A parameter's value: powers of two as such.

    >>> [format_value(v) for v in (2.0**-8, 0.9, 0.5, 0.0, 16.0)]
    ['2⁻⁸', '0.9', '0.5', '0', '16']
    """
    fraction, exponent = math.frexp(value)
    if fraction == 0.5 and exponent < 0:
        return "2" + str(exponent - 1).translate(_RAISED)
    return f"{value:.6g}"


def _words(parameters: Row) -> str:
    texts = {name: value if isinstance(value, str) else format_value(value) for name, value in parameters.items()}
    return ", ".join(f"{name} = {value}" for name, value in texts.items())


def _values_or_words(column: NDArray[np.float64]) -> list[float | str]:
    """The values of a parameter; where one of several grids of a rule does not set it, words."""
    return ["not set" if math.isnan(value) else value for value in column.tolist()]


def _sensitivity(sweep: Sweep) -> Iterator[dict[str, Any]]:
    """For each rule the errors over α: a line for each λ, a panel for each choice of the other parameters."""
    (mean, se), (low, high) = sweep.over_runs("mean"), sweep.intervals("mean")
    diverged = sweep.diverged.mean(axis=1)
    rules = np.array(sweep.labels)
    for rule in dict.fromkeys(sweep.labels):
        # A logarithmic axis has no 0.
        settings = np.flatnonzero((rules == rule) & (sweep.parameters["alpha"] > 0.0))
        if not len(settings):
            continue
        columns = {name: column[settings] for name, column in sweep.parameters.items()}
        values = {name: column for name, column in columns.items() if not np.isnan(column).all()}
        alpha = values.pop("alpha")
        line_name = next((name for name in _LINES if name in values), "")
        along = _values_or_words(values.pop(line_name) if line_name else np.full(len(settings), np.nan))
        choices = list(zip(*map(_values_or_words, values.values()), strict=True)) if values else [()] * len(settings)
        panels = []
        for choice in dict.fromkeys(choices):
            chosen = [i for i, candidate in enumerate(choices) if candidate == choice]
            lines = []
            for value in dict.fromkeys(along[i] for i in chosen):
                places = np.array([i for i in chosen if along[i] == value])
                order = places[np.argsort(alpha[places])]
                at = settings[order]
                line = {"alpha": alpha[order], "mean": mean[at], "se": se[at], "diverged": diverged[at]}
                line |= {"low": low[at], "high": high[at]} if sweep.plan.runs > 1 else {}
                lines.append({"value": value, "edge": [sweep.edges[i] for i in at]} | line)
            panels.append({"choice": _words(dict(zip(values, choice, strict=True))), "lines": lines})
        yield {"rule": rule, "x_name": "alpha", "line_name": line_name, "panels": panels}


def _along(sweep: Sweep) -> Iterator[dict[str, Any]]:
    """For each rule its least error at each λ, or at each ζ or ξ, on fresh runs if there are any."""
    for rule, chosen in zip(dict.fromkeys(sweep.labels), sweep.choose(), strict=True):
        name, values, settings = sweep.along(rule)
        if not name:
            continue
        errors = sweep.errors_of(settings.tolist())
        (mean, se), (low, high) = over_runs(errors), mean_intervals(errors)
        at_edge = settings.tolist().index(chosen) if name in sweep.edges[chosen] and chosen in settings else None
        entry = {"rule": rule, "x_name": name, "x": values, "mean": mean, "se": se, "edge": at_edge}
        entry |= {"low": low, "high": high} if errors.shape[1] > 1 else {}
        yield entry | {"settings": [_describe_setting(sweep, setting) for setting in settings.tolist()]}


def _describe_setting(sweep: Sweep, number: int) -> str:
    values = {name: float(column[number]) for name, column in sweep.parameters.items()}
    return _words({name: value for name, value in values.items() if not math.isnan(value)})


def _learning(sweep: Sweep, best: Sequence[Row]) -> list[dict[str, Any]]:
    curves = []
    for row in best:
        reported, place = sweep.reported(row["setting"])
        curve = np.asarray(reported.curve[place].T, np.float64)
        (mean, se), (low, high) = over_runs(curve), mean_intervals(curve)
        setting = _words({name: row[name] for name in sweep.parameters if name in row})
        entry = {"rule": sweep.labels[row["setting"]], "setting": setting, "mean": mean, "se": se}
        curves.append(entry | ({"low": low, "high": high} if curve.shape[1] > 1 else {}))
    return curves


def _bests(sweep: Sweep) -> list[dict[str, Any]]:
    """The rows of the table: α and λ, and the other parameters in words."""
    secondary = set(sweep.parameters) - {"alpha", "lambda"}
    rows = []
    for row in sweep.best:
        second = {name: value for name, value in row.items() if name in secondary}
        at_edge = ", ".join(name for name in second if name in row["edge"])
        shown = {name: value for name, value in row.items() if name not in second}
        words = f"{_words(second)} (edge: {at_edge})" if at_edge else _words(second)
        rows.append({"alpha": None, "lambda": None} | shown | {"second": words})
    return rows


def _grid(settings: Sequence[GridSettings]) -> dict[str, Any]:
    """The grid of each rule; a rule that is in several grids has several entries."""
    grids: dict[str, Any] = {}
    for grid in settings:
        same = sum(earlier.label == grid.label for earlier in settings[: len(grids)])
        spans = {name: _span(list(dict.fromkeys(column.tolist()))) for name, column in grid.values.items()}
        grids[f"{grid.label}, grid {same + 1}" if same else grid.label] = spans
    return grids


def _span(values: list[float]) -> str:
    """The values of a parameter; a long geometric series by its ends.

    >>> _span([2.0**k for k in range(-18, 1)])
    '2⁻¹⁸ … 1, by a factor of 2'
    """
    factor = values[1] / values[0] if len(values) > 3 and min(values) > 0.0 else 0.0
    if factor and np.allclose(np.divide(values[1:], values[:-1]), factor, rtol=1e-9):
        return f"{format_value(values[0])} … {format_value(values[-1])}, by a factor of {factor:g}"
    return ", ".join(map(format_value, values))


# ---------------------------------------------------------------------- the page of a sweep


@dataclass(frozen=True)
class SweepPage:
    """All that the page shows, as plain data; what is empty is left out. Numbers may be None, NaN or infinite.

    - ``metric``: what is measured, less being better ("RMSVE"); ``unit``: about it, a sentence or a part of one
      ("weighted by d_μ, mean over 20,000 steps and 50 runs"); ``pace``: "steps" or "episodes".
    - ``counts``: any of ``settings``, ``runs`` (of each setting), ``steps`` (of each run), ``learner_steps`` (of all
      together), ``diverged_settings`` (in which some run diverged) and ``diverged_runs``.
    - ``sensitivity``: one mapping per rule, with ``rule``, ``x_name`` (default "alpha"), ``line_name`` ("lambda",
      "zeta") and ``panels``: one for each choice of the other parameters, {``choice``: "eta = 1/16", or "" where there
      is no other, ``lines``: one for each λ: {``value``: λ, ``alpha``, ``mean``, ``se``, ``diverged``}}, the last four
      of one length. ``se``, ``low`` and ``high`` (of the band), ``edge`` (names) and ``diverged`` (the share of runs)
      may be left out. A mean that is not finite, or that of
      runs all diverged, leaves the frame.
    - ``along``: one mapping per rule with ``rule``, ``x_name`` ("lambda", "zeta"), ``x``, ``mean``, ``se`` and
      ``settings`` (words), of one length: the error against λ.
    - ``learning``: ``points`` (steps) and under any other key ("best mean", "best final") the choice it names: one
      mapping a rule with ``rule``, ``setting`` (words), ``mean`` and ``se`` at the points.
    - ``best``: one mapping per rule with ``rule``, ``alpha``, ``lambda`` (numbers or words), ``second`` (words),
      ``mean``, ``mean_se``, ``mean_low`` and ``mean_high`` (its 95% interval), ``median`` with the same, ``worse_low``
      and ``worse_high`` (of its distance from the least mean; runs are paired), ``final``, ``final_se``, ``diverged``
      (runs of this setting) and ``runs``. ``chosen_runs``: on how many other runs the setting was chosen.
      ``edge`` (parameters at the edge of their grid) and ``advice`` (what to do about it), ``worst`` and ``area``.
    - ``rules``: entries of ``Sweep.sensitivity``, one per rule: the error against α at the best of all else.
    - ``all_runs``: the errors of all runs of each rule's best setting. ``chosen``: on which runs settings were chosen.
    - ``baseline``: {words: error} drawn as horizontal lines, such as "w = 0" and "best linear approximation";
      ``notes``: what there is to say of one. ``is_cost``: whether errors are mean costs of episodes.
    - ``settings``: nested mappings. ``seconds``: how long each stage took. ``versions``: of what took part.
    """

    title: str
    intro: str
    metric: str
    unit: str = ""
    pace: str = "steps"
    counts: Mapping[str, int] = field(default_factory=dict)
    sensitivity: Sequence[Mapping[str, Any]] = ()
    along: Sequence[Mapping[str, Any]] = ()
    learning: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    best: Sequence[Mapping[str, Any]] = ()
    rules: Sequence[Mapping[str, Any]] = ()
    all_runs: Mapping[str, NDArray[np.float64]] = field(default_factory=dict)
    chosen: str = ""
    baseline: Mapping[str, float] = field(default_factory=dict)
    notes: Mapping[str, str] = field(default_factory=dict)
    is_cost: bool = False
    settings: Mapping[str, Any] = field(default_factory=dict)
    seconds: Mapping[str, float] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=dict)

    @property
    def band(self) -> float:
        """Half of a confidence band of the mean over the runs, in standard errors."""
        return figures.confidence_width(self.counts.get("runs", 0))


def sweep_page(sweep: SweepPage) -> str:
    """The page as HTML, complete in itself."""
    plots = Plots()
    curves = [curves for name, curves in sweep.learning.items() if name != "points"]
    named = [entry["rule"] for entries in (sweep.sensitivity, sweep.best, sweep.along, *curves) for entry in entries]
    inks = {rule: category(i) for i, rule in enumerate(dict.fromkeys(named))}
    sections: Sections = {
        "summary": ("Summary", _sweep_summary(sweep)),
        "sensitivity": ("Sensitivity", _sensitivity_cards(sweep, plots)),
        "rules": ("Rules", _rules_card(sweep, inks, plots)),
        "along": ("Lambda", _lambda_card(sweep, inks, plots)),
        "learning": ("Learning curves", _learning_cards(sweep, inks, plots)),
        "distribution": ("All runs", _runs_card(sweep, plots)),
    }
    details = {"settings": sweep.settings, "took": sweep.seconds, "versions": sweep.versions}
    return render("sweep.html", sweep.title, sweep.intro, sections, plots, **details)


def render(
    template: str,
    title: str,
    intro: str,
    sections: Sections,
    plots: Plots,
    *,
    settings: Mapping[str, Any],
    took: Mapping[str, float],
    versions: Mapping[str, str],
) -> str:
    """The page with the sections that are not empty; each has the words of the link to it."""
    sections |= {"settings": ("Settings", settings or versions), "time": ("Time", time_table(took))}
    links = {"lambda" if name == "along" else name: words for name, (words, shown) in sections.items() if shown}
    shown = {name: value for name, (_, value) in sections.items()} | {"settings": settings}
    return render_page(template, title, intro, links, plots, versions=versions, **shown)


def _sweep_summary(sweep: SweepPage) -> Row | None:
    """Which rule was best and by how much, how much was done, and each rule's best setting."""
    best = sorted(sweep.best, key=lambda row: row["mean"] if known(row.get("mean")) else math.inf)
    lines = [line for line in (_winner(best, sweep.metric), _work(sweep.counts, sum(sweep.seconds.values()))) if line]
    advice = [f"{row['rule']}: {row['advice']}" for row in best if row.get("advice")]
    if advice:
        many = "Best settings are" if len(advice) > 1 else "A best setting is"
        lines.append(f"{many} at the edge of the grid, beyond which better ones may be. {' '.join(advice)}")
    return {"lines": lines} | _best_table(best, sweep.metric) if lines else None


def _winner(best: Sequence[Row], metric: str) -> str:
    ranked = [row for row in best if known(row.get("mean"))]
    if not ranked:
        return f"No rule kept its {metric} finite with any setting." if best else ""
    winner = ranked[0]
    shows = {"alpha": _step, "lambda": parameter_text}
    setting = [f"{name} {show(winner[name])}" for name, show in shows.items() if winner.get(name) not in (None, "")]
    setting += [str(winner["second"])] if winner.get("second") else []
    at = f" ({', '.join(setting)})" if setting else ""
    error = f"a mean {metric} of {plus_minus(winner['mean'], winner.get('mean_se'))}{at}"
    if len(best) == 1:
        return f"At its best setting {winner['rule']} has {error}."
    words = f"The best rule was {winner['rule']}, with {error}."
    if len(ranked) > 1:
        words += f" Next came {_runner_up(winner, ranked[1])}"
    lost = len(best) - len(ranked)
    return words + (f" {lost} of {len(best)} rules diverged with every setting." if lost else "")


def _runner_up(winner: Row, second: Row) -> str:
    words = f"{second['rule']} with {plus_minus(second['mean'], second.get('mean_se'))}"
    if second["mean"] - winner["mean"] <= 1e-9 * abs(winner["mean"]):  # rounding
        return words + ", the same."
    if winner["mean"] > 0:
        ratio = second["mean"] / winner["mean"]
        words += f", {100 * (ratio - 1):.2g}% more" if ratio < 2 else f", {amount(float(f'{ratio:.2g}'))} times as much"
    if second.get("diverged"):
        return f"{words}; {_counted(second['diverged'], 'runs')} of {second.get('runs')} diverged."
    low, high = second.get("worse_low"), second.get("worse_high")
    if known(low) and known(high):
        words += f". Run by run the difference is {_between(low, high)}"
        words += "" if low > 0 else ", so it is not clearly worse"
    return words + "."


def _between(low: float, high: float) -> str:
    """The ends of a 95% interval."""
    digits = max(0, min(9, 1 - math.floor(math.log10(max(high - low, 1e-12)))))
    return f"between {low:.{digits}f} and {high:.{digits}f} (95%)".replace("-", "−")


def _work(counts: Mapping[str, int], took: float) -> str:
    factors = [
        _counted(counts[name], name) for name in ("settings", "runs", "steps", "episodes") if known(counts.get(name))
    ]
    words = " × ".join(factors)
    if known(counts.get("learner_steps")):
        words += f"{': ' if words else ''}{_large(counts['learner_steps'])} learner-steps"
    words += f" in {seconds(took)}" if words and took else ""
    words += "." if words else ""
    settings, runs = counts.get("diverged_settings"), counts.get("diverged_runs")
    if known(settings):
        diverged = f"In {_counted(settings, 'settings')} some run diverged" if settings else "No run diverged"
        words += f" {diverged}" + (f" ({_counted(runs, 'runs')} in all)." if settings and known(runs) else ".")
    return words.strip()


def _counted(quantity: float, things: str) -> str:
    return f"{amount(quantity)} {things if quantity != 1 else things.removesuffix('s')}"


def _large(quantity: float) -> str:
    """A large count in few digits: 16.4 billion."""
    for size, name in ((1e12, "trillion"), (1e9, "billion"), (1e6, "million")):
        if quantity >= size:
            return f"{quantity / size:.3g} {name}"
    return amount(quantity)


def _is_power(value: object) -> TypeGuard[float]:
    """Whether a number is a power of two."""
    return known(value) and value > 0 and math.frexp(value)[0] == 0.5


def _step(value: object) -> str:
    """A step size: a power of two as such."""
    return "2" + str(round(math.log2(value))).translate(_RAISED) if _is_power(value) else parameter_text(value)


def _best_table(best: Sequence[Row], metric: str) -> dict[str, Any]:
    """Each rule at its best setting, and what is to be said about how that was chosen and judged."""
    rows: list[dict[str, Any]] = []
    for row in best:
        shown: dict[str, str | None] = {
            name: plus_minus(row.get(name), row.get(f"{name}_se")) for name in ("mean", "final")
        }
        shown |= {name: _ends(row, name) for name in ("95%", "median", "tolerance")}
        runs = f"{amount(row['diverged'])} of {amount(row.get('runs'))}" if known(row.get("diverged")) else None
        for name, show in (("alpha", _step), ("lambda", parameter_text)):
            words = None if row.get(name) is None else show(row[name])
            shown[name] = f"{words} (edge)" if name in row.get("edge", ()) else words
        rows.append({**row, **{f"{name} shown": words for name, words in shown.items()}, "runs shown": runs})
    columns = [Column("rule", "rule"), Column(f"mean {metric}", "mean shown", str, order="mean")]
    columns += [Column("95% interval", "95% shown", str, order="mean_low"), Column("compared with the best", "worse")]
    columns += [Column("median (95%)", "median shown", str, order="median")]
    columns += [Column("final", "final shown", str, order="final")]
    columns += [Column(name, f"{name} shown", str, order=name) for name in ("alpha", "lambda")]
    columns += [Column("other", "second")]
    columns += [Column("runs diverged", "runs shown", str, order="diverged")]
    share = next((row["tolerance"] for row in rows if known(row.get("tolerance"))), math.nan)
    columns += [Column(f"{100 * share:.3g}% of runs", "tolerance shown", str, order="tolerance_low")]
    for row in rows:
        row["worse"] = _compared(row, rows)
    filled = [
        column for column in columns if any(row.get(column.order or column.key) not in (None, "") for row in rows)
    ]
    chosen = next((row["chosen_runs"] for row in rows if row.get("chosen_runs")), None)
    methods = dict.fromkeys(_METHODS.get(row["interval"], row["interval"]) for row in rows if row.get("interval"))
    return {
        "table": table(filled, rows, sort=True) if rows else Html(),
        "chosen": _counted(chosen, "runs") if chosen else "",
        "same_runs": any(known(row.get("mean_se")) for row in rows),
        "intervals": " or ".join(methods),
    }


def _ends(row: Row, name: str) -> str | None:
    """An interval of the table: that of the mean, or of runs, or the median with its own."""
    of = "mean" if name == "95%" else name
    low, high = row.get(f"{of}_low"), row.get(f"{of}_high")
    middle = amount(row.get(name)) if name == "median" else ""
    if not known(low) or not known(high):
        return middle or None
    ends = f"{amount(float(f'{low:.3g}'))} to {amount(float(f'{high:.3g}'))}"
    return f"{middle} ({ends})" if middle else ends


def _compared(row: Row, rows: Sequence[Row]) -> str | None:
    """Whether a rule is clearly worse than the best of all."""
    if not known(row.get("worse_low")):
        return None
    if row.get("worse_by") == 0 and row is min(
        rows, key=lambda rival: rival["mean"] if known(rival["mean"]) else math.inf
    ):
        return "the best"
    return "clearly worse" if row["worse_low"] > 0 else "not clearly worse"


def _sensitivity_cards(sweep: SweepPage, plots: Plots) -> Row | None:
    """One card per rule: the error against the step size, a line for each λ, for each choice of what else there is."""
    rules = sweep.sensitivity
    if not rules:
        return None
    lines = [line for rule in rules for panel in rule["panels"] for line in panel["lines"]]
    values = {line["value"] for line in lines}
    places = shades(sorted(values, key=lambda value: (not known(value), value if known(value) else str(value))))
    y_range = figures.error_range(sweep.baseline.values(), [line["mean"] for line in lines], sweep.is_cost)
    scale = figures.step_scale(alpha for line in lines for alpha in line["alpha"])
    choices: dict[str, dict[str, str]] = {}
    for rule in rules:
        _add_choices(rule, choices.setdefault(_second(rule), {}))
    cards = []
    for rule in rules:
        name, second = rule.get("x_name", "alpha"), _second(rule)
        axis = Axis(name, scale, figures.step_range(lines), name=name)
        group = f"choice of {second}"
        plot = figures.sensitivity_plot(sweep, rule, choices[second] or [""], places, axis, y_range, group)
        cards.append((rule["rule"], plots(plot, f"{rule['rule']}: {sweep.metric} against {name}")))
    names = " or ".join(dict.fromkeys(rule["line_name"] for rule in rules if rule["line_name"]))
    keys = [Key("ramp", parameter_text(v), shade, f"line {v}") for v, shade in places.items()] if names else []
    baseline = ", ".join(figures.baseline_words(sweep.baseline, sweep.notes, y_range).values())
    return {
        "metric": sweep.metric,
        "unit": sweep.unit,
        "baseline": baseline,
        "banded": any(line.get("se") is not None or line.get("low") is not None for line in lines),
        "names": names,
        "keys": keys,
        "cards": cards,
        "choices": {second: options for second, options in choices.items() if options},
    }


def _second(rule: Row) -> str:
    """The names of the other parameters: those in "eta = 1/16"."""
    return ", ".join(re.findall(r"([^,=]+?)\s*=", next((panel["choice"] for panel in rule["panels"]), "")))


def _add_choices(rule: Row, options: dict[str, str]) -> None:
    """Add the rule's choices to the options, if there are several; the best over them comes first."""
    if len(rule["panels"]) > 1:
        options.setdefault("best", f"Best over {_second(rule) or 'the rest'}")
        for panel in rule["panels"]:
            options.setdefault(panel["choice"], panel["choice"])


def _rules_card(sweep: SweepPage, inks: Mapping[str, str], plots: Plots) -> Row | None:
    """All rules over α at their best otherwise, and how sensitive each is in two numbers."""
    if not sweep.rules:
        return None
    y_range = figures.error_range(sweep.baseline.values(), [curve["mean"] for curve in sweep.rules], sweep.is_cost)
    plot = figures.rules_plot(sweep.rules, sweep.baseline, sweep.metric, y_range, inks)
    rows = []
    for curve in sweep.rules:
        lost = sum(map(bool, curve["diverged"]))
        worst = amount(curve["worst"]) if known(curve["worst"]) else f"diverged at {_counted(lost, 'step sizes')}"
        setting = _words({name: curve[name] for name in _LINES if name in curve})
        least = min(curve["mean"], key=lambda mean: mean if known(mean) else math.inf)
        rows.append({"rule": curve["rule"], "at": setting, "least": least, "area": curve["area"], "worst": worst})
    columns = [Column("rule", "rule"), Column("at", "at"), Column("least over alpha", "least", amount)]
    columns += [Column("area", "area", amount), Column("worst", "worst", str)]
    keys = [Key(inks[curve["rule"]], curve["rule"]) for curve in sweep.rules]
    drawn = plots(replace(plot, caption=sweep.chosen), f"all rules: {sweep.metric} against alpha")
    start = "random actions" if "random actions" in sweep.baseline else "the initial weights"
    of_rules = {"keys": keys, "plot": drawn, "table": table(columns, rows, sort=True)}
    return of_rules | {"chosen": sweep.chosen, "start": start}


def _runs_card(sweep: SweepPage, plots: Plots) -> Row | None:
    """The errors of all runs of the best settings."""
    if not sweep.all_runs:
        return None
    share = next((row["tolerance"] for row in sweep.best if known(row.get("tolerance"))), None)
    words = f"{figures.runs_words(share)} {sweep.chosen}"
    if share is not None and not any(known(row.get("tolerance_low")) for row in sweep.best):
        words += f" Tolerance intervals of {100 * share:.3g}% need {runs_for_tolerance(share)} runs or more."
    plot = figures.runs_plot(sweep.all_runs, sweep.best, sweep.baseline, f"mean {sweep.metric}")
    return {"words": words, "plot": plots(replace(plot, caption=words), f"all runs: {sweep.metric}")}


def _lambda_card(sweep: SweepPage, inks: Mapping[str, str], plots: Plots) -> Row | None:
    if not any(len(rule["x"]) > 1 for rule in sweep.along):
        return None
    plot = figures.lambda_plot(sweep, inks)
    keys = [Key(inks[rule["rule"]], rule["rule"]) for rule in sweep.along]
    return {"keys": keys, "plot": plots(plot, f"{sweep.metric} against lambda"), "chosen": sweep.chosen}


def _learning_cards(sweep: SweepPage, inks: Mapping[str, str], plots: Plots) -> Row | None:
    names = [name for name in sweep.learning if name != "points"]
    curves = [(name, curve) for name in names for curve in sweep.learning[name]]
    if not curves:
        return None
    plot, early = figures.learning_plots(sweep, inks)
    banded = any(line.low is not None for panels in plot.views.values() for line in panels[0].lines)
    settings: dict[str, list[str]] = {}
    for name, curve in curves:
        if curve.get("setting"):
            settings.setdefault(curve["rule"], []).append(f"{name}: {curve['setting']}")
    return {
        "banded": banded,
        "chosen": sweep.chosen,
        "keys": [Key(inks[rule], rule) for rule in dict.fromkeys(curve["rule"] for _, curve in curves)],
        "options": {name: f"Setting with the {name}" for name in names} if len(names) > 1 else {},
        "plot": plots(plot, f"{sweep.metric} while learning"),
        "axes": "a logarithmic axis" if sweep.pace == "episodes" else "logarithmic axes",
        "early": plots(early, f"{sweep.metric} while learning, on a logarithmic scale"),
        "settings": {rule: "; ".join(texts) for rule, texts in settings.items()},
    }
