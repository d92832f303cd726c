"""The page about a sweep: how each rule's error depends on its settings, and how it learns with the best of them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from emphatic.report.account import settings_section, time_section
from emphatic.report.page import Html, Plots, page, paragraphs, section
from emphatic.report.tables import Column, amount, known, plus_minus, seconds, table
from emphatic.studies.results import CONFIDENCE, t_quantile
from emphatic.studies.sensitivity import inks, is_power, lambda_section, learning_section, number, sensitivity_section

__all__ = ["SweepPage", "sweep_page"]

COUNTS = {"settings": "settings", "runs": "runs", "steps": "steps"}
RAISED = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


@dataclass(frozen=True)
class SweepPage:
    """All that the page shows, as plain data; what is empty is left out. Numbers may be None, NaN or infinite.

    - ``metric``: what is measured, less being better ("RMSVE"); ``unit``: about it, a sentence or a part of one
      ("weighted by d_μ, mean over 20,000 steps and 50 runs").
    - ``counts``: any of ``settings``, ``runs`` (of each setting), ``steps`` (of each run), ``learner_steps`` (of all
      together), ``diverged_settings`` (in which some run diverged) and ``diverged_runs``.
    - ``sensitivity``: one mapping per rule, with ``rule``, ``x_name`` (default "alpha"), ``line_name`` ("lambda",
      "zeta") and ``panels``: one for each choice of the other parameters, {``choice``: "eta = 1/16", or "" where there
      is no other, ``lines``: one for each λ: {``value``: λ, ``alpha``, ``mean``, ``se``, ``diverged``}}, the last four
      of one length. ``se`` and ``diverged`` (the share of runs) may be left out. A mean that is not finite, or that of
      runs all diverged, leaves the frame.
    - ``along``: one mapping per rule with ``rule``, ``x_name`` ("lambda", "zeta"), ``x``, ``mean``, ``se`` and
      ``settings`` (words), of one length: the error against λ.
    - ``learning``: ``points`` (steps) and under any other key ("best mean", "best final") the choice it names: one
      mapping a rule with ``rule``, ``setting`` (words), ``mean`` and ``se`` at the points.
    - ``best``: one mapping per rule with ``rule``, ``alpha``, ``lambda`` (numbers or words), ``second`` (words),
      ``mean``, ``mean_se``, ``mean_low`` and ``mean_high`` (its 95% interval), ``median`` with the same, ``worse_low``
      and ``worse_high`` (of its distance from the least mean; runs are paired), ``final``, ``final_se``, ``diverged``
      (runs of this setting) and ``runs``. ``chosen_runs``: on how many other runs the setting was chosen.
    - ``baseline``: {words: error} drawn as horizontal lines, such as "w = 0" and "best linear approximation".
    - ``settings``: nested mappings. ``seconds``: how long each stage took. ``versions``: of what took part.
    """

    title: str
    intro: str
    metric: str
    unit: str = ""
    counts: Mapping[str, int] = field(default_factory=dict)
    sensitivity: Sequence[Mapping[str, Any]] = ()
    along: Sequence[Mapping[str, Any]] = ()
    learning: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    best: Sequence[Mapping[str, Any]] = ()
    baseline: Mapping[str, float] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)
    seconds: Mapping[str, float] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=dict)


def sweep_page(sweep: SweepPage) -> str:
    """The page as HTML, complete in itself."""
    plots = Plots()
    ink = inks(
        sweep.sensitivity, sweep.best, sweep.along, *(many for name, many in sweep.learning.items() if name != "points")
    )
    runs = sweep.counts.get("runs", 0)
    wide = t_quantile(0.5 + CONFIDENCE / 2, runs - 1) if runs > 1 else math.nan
    about = (sweep.metric, sweep.unit, sweep.baseline, wide)
    sections = {
        "Summary": _summary(sweep),
        "Sensitivity": sensitivity_section(sweep.sensitivity, *about, plots),
        "Lambda": lambda_section(sweep.along, ink, sweep.metric, sweep.baseline, wide, plots),
        "Learning curves": learning_section(sweep.learning, ink, sweep.metric, sweep.baseline, wide, plots),
        "Settings": settings_section(sweep.settings, sweep.versions),
        "Time": time_section(sweep.seconds),
    }
    return page(sweep.title, sweep.intro, {name: part for name, part in sections.items() if part}, plots)


def _summary(sweep: SweepPage) -> Html:
    """Which rule was best and by how much, how much was done, and each rule's best setting."""
    best = sorted(sweep.best, key=lambda row: row["mean"] if known(row.get("mean")) else math.inf)
    lines = [line for line in (_winner(best, sweep.metric), _work(sweep.counts, sum(sweep.seconds.values()))) if line]
    if not lines:
        return Html()
    return section("summary", "Summary", paragraphs(*lines, kind="lead"), _table(best, sweep.metric))


def _winner(best: Sequence[Mapping[str, Any]], metric: str) -> str:
    ranked = [row for row in best if known(row.get("mean"))]
    if not ranked:
        return f"No rule kept its {metric} finite with any setting." if best else ""
    first = ranked[0]
    shows = {"alpha": _step, "lambda": number}
    setting = [f"{name} {show(first[name])}" for name, show in shows.items() if first.get(name) not in (None, "")]
    setting += [str(first["second"])] if first.get("second") else []
    at = f" ({', '.join(setting)})" if setting else ""
    error = f"a mean {metric} of {plus_minus(first['mean'], first.get('mean_se'))}{at}"
    if len(best) == 1:
        return f"At its best setting {first['rule']} has {error}."
    words = f"The best rule was {first['rule']}, with {error}."
    if len(ranked) > 1:
        words += f" Next came {_next(first, ranked[1])}"
    lost = len(best) - len(ranked)
    return words + (f" {lost} of {len(best)} rules diverged with every setting." if lost else "")


def _next(first: Mapping[str, Any], second: Mapping[str, Any]) -> str:
    words = f"{second['rule']} with {plus_minus(second['mean'], second.get('mean_se'))}"
    apart = second["mean"] - first["mean"]
    if apart <= 1e-9 * abs(first["mean"]):  # rounding
        return words + ", the same."
    if first["mean"] > 0:
        ratio = second["mean"] / first["mean"]
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
    parts = [_counted(counts[name], shown) for name, shown in COUNTS.items() if known(counts.get(name))]
    words = " × ".join(parts)
    if known(counts.get("learner_steps")):
        words += f"{': ' if words else ''}{_large(counts['learner_steps'])} learner-steps"
    words += f" in {seconds(took)}" if words and took else ""
    words += "." if words else ""
    settings, runs = counts.get("diverged_settings"), counts.get("diverged_runs")
    if known(settings):
        some = f"In {_counted(settings, 'settings')} some run diverged" if settings else "No run diverged"
        words += f" {some}" + (f" ({_counted(runs, 'runs')} in all)." if settings and known(runs) else ".")
    return words.strip()


def _counted(count: float, things: str) -> str:
    return f"{amount(count)} {things if count != 1 else things.removesuffix('s')}"


def _large(count: float) -> str:
    """A large count in few digits: 16.4 billion."""
    for size, name in ((1e12, "trillion"), (1e9, "billion"), (1e6, "million")):
        if count >= size:
            return f"{count / size:.3g} {name}"
    return amount(count)


def _step(value: Any) -> str:
    """A step size: a power of two as such."""
    return "2" + str(round(math.log2(value))).translate(RAISED) if is_power(value) else number(value)


def _table(best: Sequence[Mapping[str, Any]], metric: str) -> Html:
    rows: list[dict[str, Any]] = []
    for row in best:
        shown: dict[str, str | None] = {
            name: plus_minus(row.get(name), row.get(f"{name}_se")) for name in ("mean", "final")
        }
        shown |= {name: _ends(row, name) for name in ("95%", "median")}
        runs = f"{amount(row['diverged'])} of {amount(row.get('runs'))}" if known(row.get("diverged")) else None
        rows.append({**row, **{f"{name} shown": words for name, words in shown.items()}, "runs shown": runs})
    columns = [Column("rule", "rule"), Column(f"mean {metric}", "mean shown", str, order="mean")]
    columns += [Column("95% interval", "95% shown", str, order="mean_low"), Column("compared with the best", "worse")]
    columns += [Column("median (95%)", "median shown", str, order="median")]
    columns += [Column("final", "final shown", str, order="final")]
    columns += [Column("alpha", "alpha", _step), Column("lambda", "lambda", number), Column("other", "second")]
    columns += [Column("runs diverged", "runs shown", str, order="diverged")]
    for row in rows:
        row["worse"] = _compared(row, rows)
    kept = [column for column in columns if any(row.get(column.order or column.key) not in (None, "") for row in rows)]
    note = "Each rule at the setting with the least mean error, ± a standard error over runs."
    chosen = next((row["chosen_runs"] for row in rows if row.get("chosen_runs")), None)
    if chosen:
        note += f" The settings were chosen on {_counted(chosen, 'runs')}, and these are the errors on others."
    elif any(known(row.get("mean_se")) for row in rows):
        note += " They were chosen on the same runs, which favours them slightly; fresh runs (rerun) do not."
    if any(row.get("interval") for row in rows):
        note += " Intervals: Student's t; by bootstrap for medians, and for means of skewed errors."
        note += " Differences are computed run by run. Diverged runs are counted, not averaged."
    return Html(table(kept, rows, sort=True) + paragraphs(f"{note} A click on a heading sorts.")) if rows else Html()


def _ends(row: Mapping[str, Any], name: str) -> str | None:
    """An interval of the table: that of the mean, or the median with its own."""
    of = "mean" if name == "95%" else name
    low, high = row.get(f"{of}_low"), row.get(f"{of}_high")
    middle = "" if name == "95%" else amount(row.get(name))
    if not known(low) or not known(high):
        return middle or None
    ends = f"{amount(float(f'{low:.3g}'))} to {amount(float(f'{high:.3g}'))}"
    return f"{middle} ({ends})" if middle else ends


def _compared(row: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]) -> str | None:
    """Whether a rule is clearly worse than the best of all."""
    if not known(row.get("worse_low")):
        return None
    if row.get("worse_by") == 0 and row is min(rows, key=lambda one: one["mean"] if known(one["mean"]) else math.inf):
        return "the best"
    return "clearly worse" if row["worse_low"] > 0 else "not clearly worse"
