"""The account of a run: what was set, how long it took."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from emphatic.report.page import Html, paragraphs, section, text
from emphatic.report.tables import NONE, Column, known, seconds, table

__all__ = ["facts", "settings_section", "time_section"]


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


def settings_section(settings: Mapping[str, Any], versions: Mapping[str, str], toml: str = "") -> Html:
    """The settings of the run, as ``toml`` if that is given, and the versions of what took part."""
    if not settings and not versions:
        return Html()
    if toml:
        copy = '<button type="button" class="copy">Copy</button>'
        body = f"{paragraphs('All settings, as a file for --config.')}{copy}<pre>{text(toml)}</pre>"
        return section("settings", "Settings", Html(f"<div>{body}</div>"), Html(f"<h3>Versions</h3>{facts(versions)}"))
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
