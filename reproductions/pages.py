"""The page of a reproduction, a published result beside ours, and the index that leads to each of them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from emphatic.nexting.report import Column, Figure, Html, Plots, render_page, seconds, table
from emphatic.nexting.report.page import NONE, known, piece
from emphatic.studies.pages import Row, Sections, render
from reproductions import ORIGINS, count_by_kind, count_numbers

__all__ = ["ReproductionPage", "reproduction_page", "reproductions_index", "verdict"]

TEMPLATES = Path(__file__).resolve().parent / "templates"
#: At most this many differing numbers are named at the top.
MOST = 6


@dataclass(frozen=True)
class ReproductionPage:
    """All that the page shows, as plain data; what is empty is left out.

    - ``intro``: what was published, and where.
    - ``figures``: see ``Figure``; published numbers are drawn as ``Marks`` beside our lines.
    - ``checks``: one mapping per number with ``name``, ``published``, ``ours``, ``tolerance`` (numbers or words),
      ``agree`` (True, False, or None: only reported), ``difference``, ``in_errors``, ``trivial`` and ``note``.
    - ``bias``: a sentence for each table of numbers, on whether ours are lower or higher throughout.
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
    bias: Sequence[str] = ()


def verdict(checks: Sequence[Row]) -> str:
    """The checks in a sentence, in which each published number counts once, by where it comes from.

    >>> verdict([{"agree": True}, {"agree": True}, {"agree": None}])
    '2 of 2 numbers agree; 1 more is only reported.'
    >>> verdict([{"name": name, "agree": True, "origin": name} for name in ("printed", "digitised")])
    '2 of 2 numbers agree (printed 1 of 1, digitised 1 of 1).'
    """
    reported = sum(check.get("agree") is None for check in checks)
    agree, judged = count_numbers(checks)
    if not judged:
        if reported == 1:
            return "1 number reported; it is not judged."
        return f"{reported} numbers reported; none is judged."
    words = f"{agree} of {judged} {'numbers agree' if judged != 1 else 'number agrees'}"
    counts = ", ".join(f"{kind} {right} of {total}" for kind, (right, total) in count_by_kind(checks).items())
    words += f" ({counts})" if counts else ""
    return words + (f"; {reported} more {'is' if reported == 1 else 'are'} only reported." if reported else ".")


def reproduction_page(study: ReproductionPage) -> str:
    """The page as HTML, complete in itself."""
    plots = Plots()
    drawn = [(figure, plots(figure.plot, figure.title)) for figure in study.figures]
    sections: Sections = {
        "verdict": ("Verdict", _verdict_lines(study)),
        "figures": ("Figures", drawn),
        "checks": ("Numbers", _check_table(study.checks)),
        "notes": ("Notes", study.notes),
    }
    rest = {"settings": study.settings, "took": study.seconds, "versions": study.versions}
    return render(str(TEMPLATES / "reproduction.html"), study.title, study.intro, sections, plots, **rest)


def _all_agree(checks: Sequence[Row]) -> bool | None:
    judged = [bool(check["agree"]) for check in checks if check.get("agree") is not None]
    return all(judged) if judged else None


def _marked(agree: bool | None, words: str) -> Html:
    sign, kind = {True: ("✓", "yes"), False: ("✗", "no"), None: ("○", "open")}[agree]
    return piece("marked", kind, sign, words)


def _verdict_lines(study: ReproductionPage) -> list[str]:
    if not study.checks:
        return []
    lines: list[str] = [_marked(_all_agree(study.checks), verdict(study.checks))]
    differ = [str(check["name"]) for check in study.checks if check.get("agree") not in (None, True)]
    if differ:
        unnamed = f" and {len(differ) - MOST} more" if len(differ) > MOST else ""
        lines.append(f"Different from what was published: {'; '.join(differ[:MOST])}{unnamed}.")
    return [*lines, *study.bias]


def _check_table(checks: Sequence[Row]) -> Html | None:
    """Every number next to the published one, with the tolerance that decides."""
    if not checks:
        return None
    rows = [_described_check(check) for check in checks]
    columns = [Column("number", "name"), Column("verdict", "verdict", order="place")]
    columns += [Column(name, f"{name} shown", str, order=name) for name in (*ORIGINS, "published", "ours")]
    columns += [Column("difference", "difference shown", str, order="difference")]
    columns += [Column("in errors", "in_errors shown", str, order="in_errors", hint="the difference in both errors")]
    columns += [Column("tolerance", "tolerance shown", str, order="tolerance")]
    columns += [Column("", "kind"), Column("note", "note")]
    filled = [column for column in columns if any(row.get(column.key) not in (None, "", NONE) for row in rows)]
    return table(filled, rows, sort=True)


def _described_check(check: Row) -> dict[str, Any]:
    """A row of that table: numbers, and how they are shown."""
    agree = None if check.get("agree") is None else bool(check["agree"])
    words = {True: "agrees", False: "differs", None: "reported"}[agree]
    ours, published, tolerance = (check.get(name) for name in ("ours", "published", "tolerance"))
    origin = check.get("origin") or "published"
    shown = {
        origin: _format_published(published, tolerance),
        "tolerance": _as_set(tolerance, "± "),
        "ours": _measured(ours, tolerance),
        "difference": _signed(check.get("difference")),
        "in_errors": _signed(check.get("in_errors")),
    }
    row = {**check, "verdict": _marked(agree, words), "place": {False: 0, True: 1, None: 2}[agree], origin: published}
    row["kind"] = "trivial" if check.get("trivial") else ""
    return row | {f"{name} shown": text for name, text in shown.items()}


def _signed(value: object) -> str:
    """A difference, with its sign."""
    return NONE if not known(value) else f"{value:+.2g}".replace("-", "−") if value else "0"


def _as_set(value: object, sign: str = "") -> str:
    """A number as it was given, or words."""
    if known(value):
        return f"{sign}{value:.7g}".replace("-", "−")
    return NONE if value is None or value == "" else str(value)


def _format_published(value: object, tolerance: object) -> str:
    """The published number as it was given; to more digits where these would not do for the tolerance."""
    short = _as_set(value)
    if known(value) and known(tolerance) and abs(float(short.replace("−", "-")) - value) > tolerance:
        return _measured(value, tolerance)
    return short


def _measured(value: object, tolerance: object) -> str:
    """A number to one digit more than the tolerance decides on; without one, to five."""
    if not known(value) or not known(tolerance) or not 1e-15 < tolerance < 1:
        return f"{value:.5g}".replace("-", "−") if known(value) else _as_set(value)
    return f"{value:,.{1 - math.floor(math.log10(tolerance))}f}".replace("-", "−")


def reproductions_index(studies: Mapping[str, ReproductionPage], title: str = "Reproductions", intro: str = "") -> str:
    """The page that leads to each study by its address (``"chain.html"``), with its verdict."""
    rows = []
    for href, study in studies.items():
        agree = _all_agree(study.checks)
        row: dict[str, Any] = {"study": piece("link", href, study.title), "about": study.intro}
        row |= {"verdict": _marked(agree, verdict(study.checks)), "place": {False: 0, True: 1, None: 2}[agree]}
        rows.append(row | {"time": sum(study.seconds.values()) if study.seconds else None})
    columns = [Column("study", "study"), Column("verdict", "verdict", order="place")]
    columns += [Column("time", "time", seconds), Column("about", "about")]
    judged = [agree for agree in (_all_agree(study.checks) for study in studies.values()) if agree is not None]
    lead = _marked(all(judged) if judged else None, f"{sum(judged)} of {len(judged)} studies agree in every number.")
    template, shown = str(TEMPLATES / "studies.html"), table(columns, rows, sort=True)
    return render_page(template, title, intro, {"studies": "Studies"}, lead=lead, studies=shown)
