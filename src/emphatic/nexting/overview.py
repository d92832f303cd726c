"""What a person looks for first: what comes next, which signals can be predicted, and where it went wrong."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from emphatic.nexting.score_sections import count, horizon_label, horizons, median
from emphatic.report.page import Html, paragraphs, section, text
from emphatic.report.tables import Column, amount, known, percent, share, table

__all__ = ["failures_section", "files_section", "next_section", "predictable_section", "signal_link"]

#: Rows from which on a table can be searched.
_SEARCHED = 12
#: A signal is called predictable if so much of a return's variance is explained at some horizon.
_WELL = 0.5

FILES = {
    "predictions.parquet": "for each row, the predictions and their intervals, anomaly scores and alarms",
    "summary.json": "the scores, as numbers",
    "report.html": "this page",
    "model.safetensors": "all that was learned, to go on from",
}


def signal_link(name: str, plotted: Sequence[str]) -> str:
    """A signal's name, which leads to its plot where there is one."""
    if name not in plotted:
        return name
    return Html(f'<a href="#signal-{plotted.index(name)}">{text(name)}</a>')


def search(where: str, rows: int) -> Html:
    """A field to search a long table by the first column."""
    if rows < _SEARCHED:
        return Html()
    return Html(
        f'<input type="search" data-search="{where}" placeholder="Search {rows} signals" aria-label="Search signals">'
    )


def next_section(
    upcoming: Sequence[Mapping[str, Any]], when: str, scores: Sequence[Mapping[str, Any]], plotted: Sequence[str],
    coverage: float | None = None,
) -> Html:  # fmt: skip
    """The prediction of each signal from the last row, at every horizon, with its interval, beside the last reading."""
    if not upcoming:
        return Html()
    several = list(horizons(scores))
    unsure = {(score["signal"], score["horizon"]) for score in scores if score.get("calibrated") is False}
    rows = [
        {"signal": signal_link(row["signal"], plotted), "now": row.get("now")}
        | {f"value {i}": row["predictions"].get(h) for i, h in enumerate(several)}
        | {str(i): _with_interval(row, h, (row["signal"], h) in unsure) for i, h in enumerate(several)}
        for row in upcoming
    ]
    columns = [Column("signal", "signal"), Column("last reading", "now", _precisely)]
    columns += [
        Column(horizon_label(h), str(i), Html, "weighted mean of what follows, by horizon", order=f"value {i}")
        for i, h in enumerate(several)
    ]
    note = f"From the last row{f', {when}' if when else ''}: the weighted mean of what each signal does next."
    if coverage is not None:
        note += f" Below it stands the interval in which it is to lie in {percent(coverage)} of all cases"
        shown = {row["signal"] for row in upcoming}
        note += "; one with a question mark is not calibrated yet." if any(s in shown for s, _ in unsure) else "."
    return section(
        "next", "What comes next", paragraphs(note), search("next", len(rows)),
        table(columns, rows, sort=True, tall=True),
    )  # fmt: skip


def _with_interval(row: Mapping[str, Any], horizon: Any, unsure: bool) -> Html | None:
    """A prediction, and below it the interval; one that is not calibrated yet has a question mark."""
    value, low, high = ((row.get(kind) or {}).get(horizon) for kind in ("predictions", "low", "high"))
    if value is None:
        return None
    if not (known(low) and known(high)):
        return text(_precisely(value))
    doubt = '<span title="not calibrated yet"> ?</span>' if unsure else ""
    digits = 2 - math.floor(math.log10(high - low)) if high > low else 400
    ends = " to ".join(_precisely(round(end, digits) + 0.0) for end in (low, high))
    return Html(f'{text(_precisely(value))} <small class="interval">{text(ends)}{doubt}</small>')


def _precisely(value: Any) -> str:
    """Five digits: predictions of a large number differ in the last ones."""
    if not known(value) or not 1e-4 <= abs(value) < 1e15 or value == int(value):
        return amount(value)
    return f"{float(f'{value:.5g}'):,.10g}".replace("-", "−") if abs(value) < 1e5 else f"{value:,.0f}".replace("-", "−")


def predictable_section(scores: Sequence[Mapping[str, Any]], constant: Sequence[str], plotted: Sequence[str]) -> Html:
    """The signals in the order of how well they were predicted; those that never change are folded away."""
    several, names = list(horizons(scores)), list(dict.fromkeys(score["signal"] for score in scores))
    of = {(score["signal"], score["horizon"]): score for score in scores}
    still = [name for name in names if name in constant]
    rows: list[dict[str, Any]] = []
    for name in (name for name in names if name not in still):
        own = [of.get((name, h), {}) for h in several]
        explained = [score.get("variance_explained") for score in own]
        reasons = [(score.get("reasons") or {}).get("variance_explained", "") for score in own]
        row = {"signal": signal_link(name, plotted), "mean": median(explained), "why": max(reasons)}
        row |= {str(i): value for i, value in enumerate(explained)}
        rows.append(row | {"skill": median(score.get("skill") for score in own)})
    if not rows and not still:
        return Html()
    rows.sort(key=lambda row: -row["mean"] if known(row["mean"]) else float("inf"))
    well = sum(any(known(row[str(i)]) and row[str(i)] >= _WELL for i in range(len(several))) for row in rows)
    lead = f"{well} of {count(len(rows), 'signal')}" if len(rows) != 1 else "The signal" if well else "No signal"
    lead += " can be predicted: half or more of the variance is explained at some horizon."
    columns = [Column("signal", "signal")]
    columns += [Column(horizon_label(h), str(i), share, "variance explained") for i, h in enumerate(several)]
    columns.append(
        Column("skill", "skill", share, hint="1 − MSE / MSE(persistence), median over the horizons: above 0 is better")
    )
    if any(row["why"] for row in rows):
        columns.append(Column("why there is no number", "why"))
    folded = Html()
    if still:
        names_of = ", ".join(still)
        folded = Html(
            f'<details class="fold"><summary>{text(count(len(still), "signal"))} that never '
            f"change{'s' if len(still) == 1 else ''}, and {'needs' if len(still) == 1 else 'need'} no prediction"
            f"</summary><p>{text(names_of)}</p></details>"
        )
    body = table(columns, rows, sort=True, tall=True) if rows else Html()
    return section(
        "predictable", "Which signals are predictable", paragraphs(lead), search("predictable", len(rows)), body, folded
    )


def failures_section(worst: Sequence[Mapping[str, Any]], plotted: Sequence[str]) -> Html:
    """The largest errors: when, which signal, what was predicted and what followed."""
    if not worst:
        return Html()
    rows = [
        {**row, "signal": signal_link(row["signal"], plotted), "horizon": horizon_label(row["horizon"])}
        for row in worst
    ]
    columns = [
        Column("signal", "signal"), Column("when", "when"), Column("horizon", "horizon"),
        Column("predicted", "prediction", _precisely), Column("actual return", "actual", _precisely),
        Column("off by", "off", amount, hint="in standard deviations of the return"),
    ]  # fmt: skip
    note = (
        "The largest error of each signal in the second half of the log, the worst first; "
        '"off by" is in standard deviations of the actual return.'
    )
    return section("failures", "Where it failed worst", paragraphs(note), table(columns, rows, tall=True))


def files_section(files: Mapping[str, str], command: str) -> Html:
    """The files beside the page, and how to go on live: ``command`` for a pipe, or a service."""
    if not files:
        return Html()
    rows = [{"file": Html(f"<code>{text(name)}</code>"), "what": what} for name, what in files.items()]
    go_on = Html(
        "To go on live, from a pipe or as a service with a page, in this folder: the model learns from each new "
        "reading and answers with predictions."
        f"<br><code>{text(command)}</code><br><code>emphatic serve --model model.safetensors</code>"
    )
    files_table = Html(
        f'<div class="fit">{table([Column("file", "file"), Column("what it holds", "what")], rows)}</div>'
    )
    return section("files", "Files", files_table, paragraphs(go_on))
