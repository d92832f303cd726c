"""The page about a sweep: how each rule's error depends on its settings, and how it learns with the best of them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from emphatic.report.account import settings_section, time_section
from emphatic.report.page import Html, Plots, page, paragraphs, section
from emphatic.report.tables import Column, amount, known, plus_minus, seconds, table
from emphatic.studies.sensitivity import inks, is_power, learning_section, number, sensitivity_section

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
    - ``sensitivity``: one mapping a rule, with ``rule``, ``x_name`` (default "alpha"), ``line_name`` ("lambda",
      "zeta") and ``panels``: one for each choice of the other parameters, {``choice``: "eta = 1/16", or "" where there
      is no other, ``lines``: one for each λ: {``value``: λ, ``alpha``, ``mean``, ``se``, ``diverged``}}, the last four
      of one length. ``se`` and ``diverged`` (the share of runs) may be left out. A mean that is not finite, or that of
      runs all diverged, leaves the frame.
    - ``learning``: ``points`` (steps) and under any other key ("best mean", "best final") the choice it names: one
      mapping a rule with ``rule``, ``setting`` (words), ``mean`` and ``se`` at the points.
    - ``best``: one mapping a rule with ``rule``, ``alpha``, ``lambda`` (numbers or words), ``second`` (words),
      ``mean``, ``mean_se``, ``apart_se`` (of its distance from the least mean; runs are paired), ``final``,
      ``final_se``, ``diverged`` (runs of this setting) and ``runs``.
    - ``baseline``: {words: error} drawn as horizontal lines, such as "w = 0" and "best linear approximation".
    - ``settings``: nested mappings. ``seconds``: how long each stage took. ``versions``: of what took part.
    """

    title: str
    intro: str
    metric: str
    unit: str = ""
    counts: Mapping[str, int] = field(default_factory=dict)
    sensitivity: Sequence[Mapping[str, Any]] = ()
    learning: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    best: Sequence[Mapping[str, Any]] = ()
    baseline: Mapping[str, float] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)
    seconds: Mapping[str, float] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=dict)


def sweep_page(sweep: SweepPage) -> str:
    """The page as HTML, complete in itself."""
    plots = Plots()
    ink = inks(sweep.sensitivity, sweep.best, *(many for name, many in sweep.learning.items() if name != "points"))
    about = (sweep.metric, sweep.unit, sweep.baseline)
    sections = {
        "Summary": _summary(sweep),
        "Sensitivity": sensitivity_section(sweep.sensitivity, *about, plots),
        "Learning curves": learning_section(sweep.learning, ink, sweep.metric, sweep.baseline, plots),
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
    noise = second.get("apart_se")
    if known(noise) and noise:
        words += f": {apart / noise:.1f} standard errors of the difference"
        words += "" if apart >= 2 * noise else ", so not clearly worse"
    return words + "."


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
        shown = {name: plus_minus(row.get(name), row.get(f"{name}_se")) for name in ("mean", "final")}
        runs = f"{amount(row['diverged'])} of {amount(row.get('runs'))}" if known(row.get("diverged")) else None
        rows.append({**row, **{f"{name} shown": words for name, words in shown.items()}, "runs shown": runs})
    columns = [Column("rule", "rule"), Column(f"mean {metric}", "mean shown", str, order="mean")]
    columns += [Column("final", "final shown", str, order="final")]
    columns += [Column("alpha", "alpha", _step), Column("lambda", "lambda", number), Column("other", "second")]
    columns += [Column("runs diverged", "runs shown", str, order="diverged")]
    kept = [column for column in columns if any(row.get(column.order or column.key) not in (None, "") for row in rows)]
    note = (
        "Each rule at the setting with the least mean error, ± a standard error over runs. A click on a heading sorts."
    )
    return Html(table(kept, rows, sort=True) + paragraphs(note)) if rows else Html()
