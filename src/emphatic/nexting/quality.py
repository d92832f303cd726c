"""What the data were like: gaps, missing and unreadable readings, values out of range, columns not used."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from emphatic.report.account import facts
from emphatic.report.page import Html, paragraphs, section, text
from emphatic.report.tables import Column, amount, known, table

__all__ = ["quality_section"]


def quality_section(quality: Mapping[str, Any], reading: Mapping[str, Any] | None = None) -> Html:
    """What was found in the table, and how it was read: gaps, missing and unreadable readings, values out of range,
    rows dropped, columns not used."""
    if not quality and not reading:
        return Html()
    reading = reading or {}
    detailed = ("longest gaps", "missing", "clipped", "unreadable", "ignored columns")
    simple = {name: value for name, value in quality.items() if name not in detailed}
    rows = quality.get("rows")
    missing, unreadable = (quality.get(name) or {} for name in ("missing", "unreadable"))
    holes = [
        {
            "signal": name,
            "missing": count,
            "share": count / rows if rows else None,
            "run": run,
            "odd": unreadable.get(name),
        }
        for name, (count, run) in {**dict.fromkeys(unreadable, (0, 0)), **missing}.items()
        if count or unreadable.get(name)
    ]
    clipped = [
        {"source": name, "below": below, "above": above}
        for name, (below, above) in (quality.get("clipped") or {}).items()
        if below or above
    ]
    gaps = [{"row": row, "from": start, "to": end} for row, start, end in quality.get("longest gaps") or ()]
    left_out = {entry["name"]: entry["why"] for entry in reading.get("columns_left_out") or ()}
    ignored = [
        {"column": name, "why": why} for name, why in ({**(quality.get("ignored columns") or {}), **left_out}).items()
    ]
    simple = _how_it_was_read(reading) | simple
    parts = [
        _titled(
            "Missing readings",
            "The last value was held; nothing was learned where the reading to be predicted was missing.",
            [
                Column("signal", "signal"),
                Column("missing", "missing", amount),
                Column("share", "share", _percent),
                Column("longest run", "run", amount),
                Column("unreadable", "odd", amount),
            ],
            holes,
        ),
        _titled(
            "Longest gaps in time",
            "What was learned stays, but nothing is carried across a gap.",
            [Column("row", "row", amount), Column("from", "from"), Column("to", "to")],
            gaps,
        ),
        _titled(
            "Out of range",
            "Values outside a feature's range were clipped to its nearest end.",
            [Column("source", "source"), Column("below", "below", amount), Column("above", "above", amount)],
            clipped,
        ),
        _titled(
            "Rows dropped",
            "",
            [Column("why", "why"), Column("rows", "count", amount), Column("first", "first", amount)],
            [dict(entry) for entry in reading.get("rows_dropped") or ()],
        ),
        _titled("Columns not used", "", [Column("column", "column"), Column("why", "why")], ignored),
    ]
    body = "".join(part for part in parts if part)
    return section(
        "quality",
        "Data quality",
        Html(f'<div class="facts">{facts(simple)}</div>'),
        Html(f'<div class="columns">{body}</div>'),
    )


def _how_it_was_read(reading: Mapping[str, Any]) -> dict[str, Any]:
    """The time column or why there is none, and what else was found out about the table."""
    found: dict[str, Any] = {}
    time = reading.get("time") or {}
    if time.get("why"):
        found["time column"] = f"none: {time['why']}"
    elif time:
        found["time column"] = " + ".join(map(str, time.get("columns") or ()))
        found |= {f"time {name}": time[name] for name in ("format", "zone") if time.get(name)}
    known_elsewhere = ("time", "step", "step_text", "gaps", "rows", "rows_dropped", "columns_left_out", "unscored")
    rest = {name: value for name, value in reading.items() if name not in known_elsewhere and value}
    return found | {name.replace("_", " "): value for name, value in rest.items()}


def _percent(value: Any) -> str:
    return f"{100 * value:.2f}%" if known(value) else "–"


def _titled(title: str, note: str, columns: list[Column], rows: list[dict[str, Any]]) -> Html:
    if not rows:
        return Html()
    about = paragraphs(note) if note else ""
    return Html(f"<div><h3>{text(title)}</h3>{about}{table(columns, rows, tall=True)}</div>")
