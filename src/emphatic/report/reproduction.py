"""The page about a published result: our figure beside the printed numbers, and whether they agree."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from emphatic.report.account import settings_section, time_section
from emphatic.report.page import Html, Key, Plots, choice, legend, page, paragraphs, section, text
from emphatic.report.plots import Plot
from emphatic.report.tables import Column, table

__all__ = ["Figure", "ReproductionPage", "reproduction_page", "reproductions_index", "verdict"]


@dataclass(frozen=True)
class Figure:
    """A plot under its title, with what its lines mean (``keys``), and a caption below.

    ``options`` are the words for the views of the plot, where it has several to choose from.
    """

    title: str
    plot: Plot
    caption: str = ""
    keys: Sequence[Key] = ()
    options: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class ReproductionPage:
    """All that the page shows, as plain data; what is empty is left out.

    - ``intro``: what was published, and where.
    - ``figures``: see ``Figure``; published numbers are drawn as ``Marks`` beside our lines.
    - ``checks``: one mapping a number with ``name``, ``published``, ``ours``, ``tolerance`` (numbers or words),
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
    """The checks in a sentence.

    >>> verdict([{"agree": True}, {"agree": True}, {"agree": None}])
    '2 of 2 numbers agree; 1 more is only reported.'
    """
    judged = [check["agree"] for check in checks if check.get("agree") is not None]
    rest = len(checks) - len(judged)
    if not judged:
        return f"{rest} numbers reported; none is judged." if rest != 1 else "1 number reported; it is not judged."
    words = f"{sum(map(bool, judged))} of {len(judged)} {'numbers agree' if len(judged) != 1 else 'number agrees'}"
    return words + (f"; {rest} more {'is' if rest == 1 else 'are'} only reported." if rest else ".")


def reproduction_page(study: ReproductionPage) -> str:
    """The page as HTML, complete in itself."""
    plots = Plots()
    sections = {
        "Verdict": section("verdict", "Verdict", paragraphs(verdict(study.checks), kind="lead")),
        "Figures": _figures(study.figures, plots),
        "Settings": settings_section(study.settings, study.versions),
        "Time": time_section(study.seconds),
    }
    return page(study.title, study.intro, {name: part for name, part in sections.items() if part}, plots)


def _figures(figures: Sequence[Figure], plots: Plots) -> Html:
    parts = []
    for figure in figures:
        bar = legend(figure.keys) if figure.keys else Html()
        bar = Html(bar + (choice(figure.plot.group, figure.options, figure.title) if figure.options else ""))
        drawing = plots(figure.plot, figure.title)
        parts.append(
            f'<article class="card"><h3>{text(figure.title)}</h3><div class="bar">{bar}</div>{drawing}'
            f"{paragraphs(figure.caption)}</article>"
        )
    return section("figures", "Figures", Html("".join(parts))) if parts else Html()


def reproductions_index(studies: Mapping[str, ReproductionPage], title: str = "Reproductions", intro: str = "") -> str:
    """The page that leads to each study by its address (``"chain.html"``), with its verdict."""
    rows = [
        {"study": Html(f'<a href="{text(href)}">{text(study.title)}</a>'), "verdict": verdict(study.checks)}
        for href, study in studies.items()
    ]
    columns = [Column("study", "study"), Column("verdict", "verdict")]
    return page(title, intro, {"Studies": section("studies", "Studies", table(columns, rows))}, Plots())
