"""The page about a published result: our figure beside the printed numbers, and whether they agree."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from emphatic.report.account import settings_section, time_section
from emphatic.report.page import Figure, Html, Plots, choice, legend, page, paragraphs, section, text
from emphatic.report.tables import NONE, Column, known, seconds, table
from emphatic.studies.reproductions import ORIGINS, count_numbers

__all__ = ["ReproductionPage", "reproduction_page", "reproductions_index", "verdict"]

#: So many differing numbers are named at the top.
MOST = 6


@dataclass(frozen=True)
class ReproductionPage:
    """All that the page shows, as plain data; what is empty is left out.

    - ``intro``: what was published, and where.
    - ``figures``: see ``Figure``; published numbers are drawn as ``Marks`` beside our lines.
    - ``checks``: one mapping per number with ``name``, ``published``, ``ours``, ``tolerance`` (numbers or words),
      ``agree`` (True, False, or None: only reported) and ``note``.
    - ``notes``: paragraphs on what was done otherwise, and what was found.
    - ``settings``: nested mappings. ``seconds``: how long each stage took. ``versions``: of what took part.
    """

    title: str
    intro: str
    figures: Sequence[Figure] = ()
    checks: Sequence[Mapping[str, Any]] = ()
    notes: Sequence[str] = ()
    settings: Mapping[str, Any] = field(default_factory=dict)
    seconds: Mapping[str, float] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=dict)


def verdict(checks: Sequence[Mapping[str, Any]]) -> str:
    """The checks in a sentence, in which each published number counts once.

    >>> verdict([{"agree": True}, {"agree": True}, {"agree": None}])
    '2 of 2 numbers agree; 1 more is only reported.'
    """
    rest = sum(check.get("agree") is None for check in checks)
    agree, judged = count_numbers(checks)
    if not judged:
        return f"{rest} numbers reported; none is judged." if rest != 1 else "1 number reported; it is not judged."
    words = f"{agree} of {judged} {'numbers agree' if judged != 1 else 'number agrees'}"
    return words + (f"; {rest} more {'is' if rest == 1 else 'are'} only reported." if rest else ".")


def reproduction_page(study: ReproductionPage) -> str:
    """The page as HTML, complete in itself."""
    plots = Plots()
    sections = {
        "Verdict": _verdict_section(study),
        "Figures": _figures(study.figures, plots),
        "Numbers": _checks(study.checks),
        "Notes": section("notes", "Notes", paragraphs(*study.notes, kind="said")) if study.notes else Html(),
        "Settings": settings_section(study.settings, study.versions),
        "Time": time_section(study.seconds),
    }
    shown = {name: part for name, part in sections.items() if part}
    return page(study.title, study.intro, shown, plots if study.figures else None)


def _all_agree(checks: Sequence[Mapping[str, Any]]) -> bool | None:
    judged = [bool(check["agree"]) for check in checks if check.get("agree") is not None]
    return all(judged) if judged else None


def _marked(agree: bool | None, words: str) -> Html:
    sign, kind = {True: ("✓", "yes"), False: ("✗", "no"), None: ("○", "open")}[agree]
    return Html(f'<span class="{kind}"><b aria-hidden="true">{sign}</b> {text(words)}</span>')


def _verdict_section(study: ReproductionPage) -> Html:
    if not study.checks:
        return Html()
    lines = [_marked(_all_agree(study.checks), verdict(study.checks))]
    differ = [str(check["name"]) for check in study.checks if check.get("agree") not in (None, True)]
    if differ:
        more = f" and {len(differ) - MOST} more" if len(differ) > MOST else ""
        lines.append(text(f"Different from what was published: {'; '.join(differ[:MOST])}{more}."))
    return section("verdict", "Verdict", paragraphs(*lines, kind="lead"))


def _figures(figures: Sequence[Figure], plots: Plots) -> Html:
    parts = ""
    for figure in figures:
        bar = legend(figure.keys) if figure.keys else ""
        bar += choice(figure.plot.group, figure.options, figure.title) if figure.options else ""
        bar = f'<div class="bar">{bar}</div>' if bar else ""
        caption = paragraphs(figure.caption) if figure.caption else ""
        drawing = plots(figure.plot, figure.title)
        parts += f'<article class="card"><h3>{text(figure.title)}</h3>{bar}{drawing}{caption}</article>'
    return section("figures", "Figures", Html(parts)) if parts else Html()


def _checks(checks: Sequence[Mapping[str, Any]]) -> Html:
    """Every number next to the published one, with the tolerance that decides."""
    if not checks:
        return Html()
    words = {True: "agrees", False: "differs", None: "reported"}
    rows: list[dict[str, Any]] = []
    for check in checks:
        agree = None if check.get("agree") is None else bool(check["agree"])
        ours, published, tolerance = (check.get(name) for name in ("ours", "published", "tolerance"))
        row = {**check, "verdict": _marked(agree, words[agree]), "place": {False: 0, True: 1, None: 2}[agree]}
        origin = check.get("origin") or "published"
        row |= {origin: published, f"{origin} shown": _format_published(published, tolerance)}
        row["tolerance shown"] = _given(tolerance, "± ")
        row["ours shown"] = _measured(ours, tolerance)
        rows.append(row)
    columns = [Column("number", "name"), Column("verdict", "verdict", order="place")]
    columns += [Column(name, f"{name} shown", str, order=name) for name in (*ORIGINS, "published", "ours", "tolerance")]
    columns += [Column("note", "note")]
    kept = [column for column in columns if any(row.get(column.key) not in (None, "", NONE) for row in rows)]
    note = (
        "Agrees: no further from the published number than the tolerance. The heading says where that comes from: "
        "printed; digitised, read off a figure; replayed, by the authors' updates; derived, exactly from what is "
        "printed. A click on a heading sorts."
    )
    return section("checks", "Numbers", paragraphs(note), table(kept, rows, sort=True))


def _given(value: Any, before: str = "") -> str:
    """A number as it was given, or words."""
    if known(value):
        return f"{before}{value:.7g}".replace("-", "−")
    return NONE if value is None or value == "" else str(value)


def _format_published(value: Any, tolerance: Any) -> str:
    """The published number as it was given; to more digits where these would not do for the tolerance."""
    short = _given(value)
    if known(value) and known(tolerance) and abs(float(short.replace("−", "-")) - value) > tolerance:
        return _measured(value, tolerance)
    return short


def _measured(value: Any, tolerance: Any) -> str:
    """A number to one digit more than the tolerance decides on; without one, to five."""
    if not known(value) or not known(tolerance) or not 1e-15 < tolerance < 1:
        return f"{value:.5g}".replace("-", "−") if known(value) else _given(value)
    return f"{value:,.{1 - math.floor(math.log10(tolerance))}f}".replace("-", "−")


def reproductions_index(studies: Mapping[str, ReproductionPage], title: str = "Reproductions", intro: str = "") -> str:
    """The page that leads to each study by its address (``"chain.html"``), with its verdict."""
    rows = []
    for href, study in studies.items():
        agree = _all_agree(study.checks)
        row: dict[str, Any] = {"study": Html(f'<a href="{text(href)}">{text(study.title)}</a>'), "about": study.intro}
        row |= {"verdict": _marked(agree, verdict(study.checks)), "place": {False: 0, True: 1, None: 2}[agree]}
        rows.append(row | {"time": sum(study.seconds.values()) if study.seconds else None})
    columns = [Column("study", "study"), Column("verdict", "verdict", order="place")]
    columns += [Column("time", "time", seconds), Column("about", "about")]
    judged = [agree for agree in (_all_agree(study.checks) for study in studies.values()) if agree is not None]
    lead = _marked(all(judged) if judged else None, f"{sum(judged)} of {len(judged)} studies agree in every number.")
    body = section("studies", "Studies", paragraphs(lead, kind="lead"), table(columns, rows, sort=True))
    return page(title, intro, {"Studies": body}, None)
