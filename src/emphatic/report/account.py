"""The account of a run: what the data were like, what was set, how long it took."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from emphatic.report.page import Html, paragraphs, section, text
from emphatic.report.tables import NONE, Column, amount, known, seconds, table

__all__ = ["facts", "quality_section", "settings_section", "time_section"]


def plain(value: Any) -> Html:
    """A value in words: numbers in full, lists by commas, an empty one as "none", None as "–"."""
    if value is None:
        return text(NONE)
    if isinstance(value, Sequence | Mapping) and not value:
        return text("none")
    if isinstance(value, bool):
        return text("yes" if value else "no")
    if known(value):
        return text(f"{value:,}" if isinstance(value, int) else f"{value:.6g}")
    if isinstance(value, Sequence) and not isinstance(value, str):
        return Html(", ".join(plain(item) for item in value))
    return text(value)


def facts(values: Mapping[str, Any]) -> Html:
    """Names and values in two columns; mappings inside stand indented below their name."""
    items = ""
    for name, value in values.items():
        if isinstance(value, Mapping) and value:
            items += f'<dt>{text(name)}</dt><dd></dd><dd class="nest">{facts(value)}</dd>'
        else:
            items += f"<dt>{text(name)}</dt><dd>{plain(value)}</dd>"
    return Html(f"<dl>{items}</dl>")


def quality_section(quality: Mapping[str, Any]) -> Html:
    """What was found in the table: gaps, missing and unreadable readings, values out of range, columns not used."""
    if not quality:
        return Html()
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
    ignored = [{"column": name, "why": why} for name, why in (quality.get("ignored columns") or {}).items()]
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
        _titled("Columns not used", "", [Column("column", "column"), Column("why", "why")], ignored),
    ]
    body = "".join(part for part in parts if part)
    return section(
        "quality",
        "Data quality",
        Html(f'<div class="facts">{facts(simple)}</div>'),
        Html(f'<div class="columns">{body}</div>'),
    )


def _percent(value: Any) -> str:
    return f"{100 * value:.2f}%" if known(value) else "–"


def _titled(title: str, note: str, columns: list[Column], rows: list[dict[str, Any]]) -> Html:
    if not rows:
        return Html()
    about = paragraphs(note) if note else ""
    return Html(f"<div><h3>{text(title)}</h3>{about}{table(columns, rows, tall=True)}</div>")


def settings_section(settings: Mapping[str, Any], versions: Mapping[str, str]) -> Html:
    """What the run was told to do, and the versions of what took part."""
    if not settings and not versions:
        return Html()
    parts = [("Configuration", settings), ("Versions", versions)]
    body = "".join(f"<div><h3>{text(title)}</h3>{facts(values)}</div>" for title, values in parts if values)
    return section("settings", "Settings", Html(f'<div class="columns">{body}</div>'))


def time_section(times: Mapping[str, float]) -> Html:
    """How long each stage took, and all of them together."""
    if not times:
        return Html()
    total = sum(times.values())
    rows: list[dict[str, Any]] = [
        {"stage": stage, "time": time, "part": time / total if total else None} for stage, time in times.items()
    ]
    for row in rows:
        row["meter"] = Html(f'<span class="meter"><i style="width:{100 * (row["part"] or 0):.0f}%"></i></span>')
    rows.append({"stage": "all", "time": total, "meter": ""})
    columns = [Column("stage", "stage"), Column("time", "time", seconds), Column("", "meter")]
    return section("time", "Time", Html(f'<div class="fit">{table(columns, rows)}</div>'))
