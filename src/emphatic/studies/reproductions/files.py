"""The files of a reproduction: a page, and the same numbers as JSON."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from emphatic.common import versions
from emphatic.common.files import atomic_file
from emphatic.report import Figure, Line, Marks, Panel
from emphatic.studies.agreement import Outcome
from emphatic.studies.pages import ReproductionPage, reproduction_page, reproductions_index

__all__ = ["write", "write_index"]


def write(outcome: Outcome, folder: Path) -> None:
    """``report.html`` and ``results.json`` of one study, in a folder that is there; the latter has its curves too."""
    with atomic_file(folder / "report.html") as file:
        file.write(reproduction_page(_page(outcome)).encode())
    results = {
        "study": outcome.name,
        "title": outcome.title,
        "source": outcome.source,
        "agree": outcome.agree,
        "seconds": outcome.seconds,
        "checks": [vars(check) for check in outcome.checks],
        "notes": list(outcome.notes),
        "settings": dict(outcome.settings),
        "figures": [_figure(figure) for figure in outcome.figures],
    }
    text = json.dumps(_finite(results), indent=2, ensure_ascii=False, allow_nan=False)
    with atomic_file(folder / "results.json") as file:
        file.write(f"{text}\n".encode())


def _figure(figure: Figure) -> dict[str, Any]:
    """All that a figure draws, as numbers: lines with their bands, marks with their errors, levels."""
    plot = figure.plot

    def numbers(one: Line | Marks, *names: str) -> dict[str, Any]:
        given = {name: getattr(one, name) for name in names if getattr(one, name) is not None}
        return {"name": one.name} | {name: np.asarray(value, np.float64).tolist() for name, value in given.items()}

    def panel(one: Panel) -> dict[str, Any]:
        return {
            "title": one.title,
            "lines": [numbers(line, "x", "y", "low", "high") for line in one.lines],
            "marks": [numbers(mark, "x", "y", "error") for mark in one.marks],
            "levels": [{"name": level.name, "y": level.y} for level in one.levels],
        }

    views = {name: [panel(one) for one in panels] for name, panels in plot.views.items()}
    x = plot.x.title if plot.x is not None else ""
    return {"title": figure.title, "x": x, "y": plot.y.title, "caption": figure.caption, "views": views}


def write_index(outcomes: Sequence[Outcome], folder: Path) -> None:
    """``index.html``, which leads to the page of each study."""
    pages = {f"{outcome.name}/report.html": _page(outcome) for outcome in outcomes}
    intro = (
        "Published studies run again: each number as published, as found here, and whether the two agree. Some were "
    )
    intro += "read off figures, some follow exactly from what is printed; each page says which."
    if any(outcome.settings["quick"] for outcome in outcomes):
        intro += " Quick mode: fewer runs, and wider tolerances for that."
    with atomic_file(folder / "index.html") as file:
        file.write(reproductions_index(pages, intro=intro).encode())


def _page(outcome: Outcome) -> ReproductionPage:
    return ReproductionPage(
        title=outcome.title,
        intro=outcome.source,
        figures=outcome.figures,
        checks=[vars(check) for check in outcome.checks],
        notes=outcome.notes,
        settings=outcome.settings,
        seconds={"the whole study": outcome.seconds},
        versions=versions(),
    )


def _finite(value: Any) -> Any:
    """JSON has no infinity: such a number is written as text."""
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value
