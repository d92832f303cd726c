"""Published results run again.

Every published number becomes a ``Check`` with a tolerance and a verdict, and the published figure is drawn with the
printed numbers as marks beside our lines. ``quick`` means the same questions with fewer runs, and states how much wider
its tolerances are. A study is a ``Study``; its module has it in ``STUDIES``.
"""

from __future__ import annotations

import importlib
import json
import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeVar

import numpy as np
from numpy.typing import ArrayLike

from emphatic.common import versions
from emphatic.common.files import atomic_file
from emphatic.common.locks import hold_folder
from emphatic.common.names import suggestion
from emphatic.learning.inputs import refusal
from emphatic.nexting.report import Figure, Line, Marks, Panel
from emphatic.studies.grid import SweptRule, find_rule
from emphatic.studies.sweeps import on_one_thread

if TYPE_CHECKING:
    from reproductions.pages import ReproductionPage

__all__ = [
    "Check",
    "Outcome",
    "RunOptions",
    "Study",
    "TableBias",
    "biases",
    "find",
    "names",
    "reproduce",
    "write_index",
]

#: The studies, and the module of each.
_MODULES = {
    "random-walk": "small_problems",
    "collision": "comparisons",
    "four-rooms": "comparisons",
    "four-rooms-high-variance": "comparisons",
    "chain": "small_problems",
    "two-theta": "small_problems",
    "baird": "small_problems",
    "followon-variance": "small_problems",
    "true-online-vs-accumulating": "open_questions",
    "step-sizes": "open_questions",
    "alarms": "open_questions",
    "control": "control",
    "emphasis": "control",
}
_NAMES = tuple(_MODULES)
#: The studies that sweep a grid.
SWEPT = ("collision", "four-rooms", "four-rooms-high-variance")

#: Called with what is being done, how much of it is done, and how much there is.
Progress = Callable[[str, int, int], None]
Item = TypeVar("Item")
Result = TypeVar("Result")


def names() -> tuple[str, ...]:
    """The studies.

    >>> "random-walk" in names()
    True
    """
    return _NAMES


def silent(phase: str, done: int, total: int) -> None:
    """A progress callback that does nothing."""


def reproduce(
    name: str,
    quick: bool = False,
    out: str | Path | None = None,
    *,
    seed: int = 0,
    jobs: int = 1,
    progress: Progress = silent,
    rule: str | SweptRule | Sequence[str | SweptRule] | None = None,
) -> Outcome:
    """Run a published study.

    Args:
        name: One of ``names()``.
        quick: The same questions with fewer runs, and wider tolerances for that.
        out: A folder: ``<out>/<name>/report.html`` and ``results.json`` are written. ``<out>/<name>`` is locked
            meanwhile: another run into it is rejected with an error.
        seed: Seed of all streams.
        jobs: Number of processes (-1: one per core); the results do not depend on it.
        progress: Called with what is being done, how much of it is done, and how much there is.
        rule: A rule of your own, or several: studies that sweep a grid try it in addition to theirs, and report it.

    Returns:
        Every number as published and as found here, and the figures.
    """
    study, added = find(name), _find_added(rule, name)
    if isinstance(seed, bool) or not isinstance(seed, int) or seed < 0:
        raise refusal("seed", "reproduce", "be a whole number of 0 or more", repr(seed))
    if isinstance(jobs, bool) or not isinstance(jobs, int) or (jobs < 1 and jobs != -1):
        raise refusal("jobs", "reproduce", "be a whole number of 1 or more, or -1", repr(jobs))
    folder = None if out is None else Path(out) / name
    # The folder is made, and locked against other runs, before anything is computed.
    with nullcontext() if folder is None else hold_folder(folder):
        begin = time.perf_counter()
        outcome = study.run(RunOptions(quick, seed, jobs, progress, folder, added))
        outcome = replace(
            outcome,
            name=name,
            title=study.title,
            source=study.source,
            seconds=time.perf_counter() - begin,
            settings={**outcome.settings, "seed": seed, "quick": quick},
        )
        if folder is not None:
            _write(outcome, folder)
    return outcome


def _find_added(rule: str | SweptRule | Sequence[str | SweptRule] | None, name: str) -> tuple[SweptRule, ...]:
    """The rules that a user adds to a study."""
    added = () if rule is None else tuple(map(find_rule, rule if isinstance(rule, list | tuple) else [rule]))
    if added and name not in SWEPT:
        wanted = f"be left out of {name!r}; it can be given to {', '.join(SWEPT)}"
        raise refusal("rule", "reproduce", wanted, repr([item.name for item in added]))
    return added


def find(name: str) -> Study:
    """The study of a name."""
    if name not in _NAMES:
        hint = suggestion(str(name).replace("_", "-"), _NAMES)
        wanted = f"be one of {', '.join(_NAMES)}"
        raise ValueError(f"{refusal('name', 'reproduce', wanted, repr(name))}{hint}")
    studies: Mapping[str, Study] = importlib.import_module(f"{__name__}.{_MODULES[name]}").STUDIES
    return studies[name]


@dataclass(frozen=True)
class RunOptions:
    """How a study is run: how thorough it is, its seed, its processes, and its progress report.

    ``quick`` means the same questions with fewer runs; ``jobs`` is the number of processes (-1: one per core). In
    ``folder`` a long study stores finished work, to resume from there if it is stopped. ``rules`` are tried in addition
    to the study's own, over its step sizes and λ.
    """

    quick: bool = False
    seed: int = 0
    jobs: int = 1
    progress: Progress = silent
    folder: Path | None = None
    rules: tuple[SweptRule, ...] = ()

    def each(self, function: Callable[[Item], Result], items: Sequence[Item], phase: str) -> list[Result]:
        """``[function(item) for item in items]`` on these processes, in the order of the items."""
        results: Iterable[Result]
        if self.jobs == 1:
            results = (on_one_thread(function, item) for item in items)
        else:
            from joblib import Parallel, delayed

            tasks = (delayed(on_one_thread)(function, item) for item in items)
            results = Parallel(n_jobs=self.jobs, return_as="generator")(tasks)
        gathered: list[Result] = []
        for result in results:
            gathered.append(result)
            self.progress(phase, len(gathered), len(items))
        return gathered


class Study(Protocol):
    """A published study: what it is called, where it was published, and how it is run."""

    @property
    def title(self) -> str:
        """What it is called."""

    @property
    def source(self) -> str:
        """Where it was published."""

    def run(self, options: RunOptions) -> Outcome:
        """Run it."""


# ---------------------------------------------------------------------- a published number compared with ours

#: Where a published number comes from: printed as such; digitised, that is read off a figure; replayed, that is
#: computed by the authors' own updates; or derived, as it follows exactly from what is printed.
Origin = Literal["", "printed", "digitised", "replayed", "derived"]
ORIGINS: tuple[Origin, ...] = ("printed", "digitised", "replayed", "derived")


@dataclass(frozen=True)
class Check:
    """A number (or a few, or a claim in words): as published, as found here, and how far apart the two may be.

    ``agree`` is None where nothing was published to be compared with: such a row is only reported. ``number`` names the
    published number where several checks are about the same one.

    ``error`` is the standard error of ours, ``published_error`` that of the published number or of its reading, and
    ``difference`` what ours is larger by: of several numbers that of the one that is farthest off. ``in_errors`` is the
    same in units of both errors together, the root of the sum of their squares. ``trivial`` numbers follow from the
    definition of the problem, or would come out of nearly any implementation. Numbers of one ``table`` come from the
    same published runs, and are looked at together: whether ours are lower or higher throughout.
    """

    name: str
    published: float | str | None
    ours: float | str
    tolerance: float | str | None = None
    agree: bool | None = None
    note: str = ""
    origin: Origin = ""
    number: str = ""
    error: float | None = None
    published_error: float | None = None
    difference: float | None = None
    in_errors: float | None = None
    trivial: bool = False
    table: str = ""


def compare(
    name: str,
    published: ArrayLike,
    ours: ArrayLike,
    tolerance: ArrayLike,
    note: str = "",
    origin: Origin = "derived",
    number: str = "",
    *,
    errors: tuple[ArrayLike, ArrayLike] = (0.0, 0.0),
    trivial: bool = False,
    table: str = "",
) -> Check:
    """Numbers agree if all of them are within the tolerance.

    Args:
        name: What is compared.
        published: The published number, or several.
        ours: The same as found here.
        tolerance: How far apart they may be.
        note: What a reader should know.
        origin: Where the published number comes from.
        number: A name of the published number, where several checks are about the same one.
        errors: The standard error of ours, and that of the published number or its reading; 0 where it is exact.
        trivial: Whether it follows from the definition of the problem.
        table: The table that it is in, whose numbers are looked at together.

    >>> check = compare("A", [1.0, 2.0], [1.0, 2.1], 0.05, errors=(0.03, 0.04))
    >>> check.published, check.ours, check.agree, round(check.difference, 9), round(check.in_errors, 9)
    ('1, 2', '1, 2.1', False, 0.1, 2.0)
    """
    allowed = np.vectorize(lambda value: float(f"{value:.2g}"))(tolerance)  # what is shown is what decides
    apart = np.subtract(ours, published, dtype=np.float64)
    agree = bool(np.all(np.abs(apart) <= allowed))
    least = float(np.min(allowed))
    decimals = min(7, max(0, 1 - math.floor(math.log10(least)))) if 0.0 < least < math.inf else 7
    texts = _format(published, decimals), _format(ours, decimals), _format(allowed, 15)
    both = np.broadcast_to(np.hypot(*errors), apart.shape).ravel()
    farthest = int(np.argmax(np.abs(apart.ravel()) / np.where(both > 0.0, both, 1.0))) if apart.size else 0
    own, theirs = (float(np.broadcast_to(error, apart.shape).ravel()[farthest]) or None for error in errors)
    difference = float(apart.ravel()[farthest])
    in_errors = difference / float(both[farthest]) if both[farthest] > 0.0 else None
    return Check(name, *texts, agree, note, origin, number, own, theirs, difference, in_errors, trivial, table)


def claim(
    name: str, published: str, ours: float | str, agree: bool, note: str = "", origin: Origin = "printed"
) -> Check:
    """A published statement, such as that a method diverges, and what was found; ``note`` is the criterion."""
    return Check(name, published, ours, None, bool(agree), note, origin)


def finding(name: str, ours: float | str, note: str = "") -> Check:
    """A result with no published number to compare it with."""
    return Check(name, None, ours, note=note)


def count_numbers(checks: Sequence[Mapping[str, Any]]) -> tuple[int, int]:
    """How many different published numbers agree, and how many are judged: one agrees if all checks of it do.

    >>> count_numbers([{"name": "a", "agree": True}, {"name": "a again", "number": "a", "agree": False}])
    (0, 1)
    """
    verdicts: dict[object, bool] = {}
    for i, check in enumerate(checks):
        if check.get("agree") is not None:
            key = check.get("number") or check.get("name") or i
            verdicts[key] = verdicts.get(key, True) and bool(check["agree"])
    return sum(verdicts.values()), len(verdicts)


def _kind(check: Mapping[str, Any]) -> str:
    return "trivial" if check.get("trivial") else str(check.get("origin") or "")


def count_by_kind(checks: Sequence[Mapping[str, Any]]) -> dict[str, tuple[int, int]]:
    """``count_numbers`` for each origin, and for trivial numbers by themselves.

    >>> checks = [{"name": "a", "agree": True, "origin": "printed"}, {"name": "b", "agree": True, "trivial": True}]
    >>> count_by_kind(checks)
    {'printed': (1, 1), 'trivial': (1, 1)}
    """
    counts = {}
    for kind in (*ORIGINS, "trivial"):
        of_kind = [check for check in checks if _kind(check) == kind and check.get("agree") is not None]
        if of_kind:
            counts[kind] = count_numbers(of_kind)
    return counts


@dataclass(frozen=True)
class TableBias:
    """The numbers of one published table together: how many of ours are lower, and what they are larger by on average.

    Args:
        table: What the numbers are of.
        numbers: How many there are.
        lower: How many of ours are lower than published.
        mean: The mean difference, ours minus published.
        in_errors: The same in units of the mean of both errors. As the numbers of a table come from the same runs, the
            error of their mean is not smaller than that of each.
    """

    table: str
    numbers: int
    lower: int
    mean: float
    in_errors: float | None

    def __str__(self) -> str:
        words = f"{self.table}: ours is lower in {self.lower} of {self.numbers}, by {-self.mean:.2g} on average"
        words = words.replace("by -", "and higher by ") if self.mean > 0.0 else words
        return words + ("." if self.in_errors is None else f", {abs(self.in_errors):.2g} of the error of one number.")


def biases(checks: Sequence[Check]) -> list[TableBias]:
    """For each table of checks, whether ours are lower or higher throughout.

    >>> checks = [compare(str(ours), 1.0, ours, 0.2, errors=(0.0, 0.1), table="T") for ours in (0.9, 0.8)]
    >>> print(biases(checks)[0])
    T: ours is lower in 2 of 2, by 0.15 on average, 1.5 of the error of one number.
    """
    rows = []
    for table in dict.fromkeys(check.table for check in checks if check.table):
        of_table = [check for check in checks if check.table == table and check.difference is not None]
        apart = np.array([check.difference for check in of_table], np.float64)
        errors = np.array([np.hypot(check.error or 0.0, check.published_error or 0.0) for check in of_table])
        in_errors = float(apart.mean() / errors.mean()) if errors.any() else None
        rows.append(TableBias(table, len(apart), int(np.sum(apart < 0.0)), float(apart.mean()), in_errors))
    return rows


def _format(values: ArrayLike, decimals: int) -> float | str:
    """A number unchanged; several as text, to this many decimals."""
    array = np.asarray(values, np.float64)
    if array.ndim == 0:
        return float(array)
    return ", ".join(f"{round(value, decimals) + 0.0:.12g}".replace("-", "−") for value in array.ravel().tolist())


@dataclass(frozen=True)
class Outcome:
    """What a study found: its checks, its figures, and what a reader should know about them.

    ``reproduce`` adds its name, title and source and how long it took.
    """

    checks: Sequence[Check]
    figures: Sequence[Figure] = ()
    notes: Sequence[str] = ()
    settings: Mapping[str, Any] = field(default_factory=dict)
    name: str = ""
    title: str = ""
    source: str = ""
    seconds: float = 0.0

    @property
    def agree(self) -> bool:
        """Whether no number disagrees."""
        return all(check.agree is not False for check in self.checks)


# ---------------------------------------------------------------------- files


def _write(outcome: Outcome, folder: Path) -> None:
    """``report.html`` and ``results.json`` of one study, in a folder that exists; the latter has its curves too."""
    from reproductions.pages import reproduction_page

    with atomic_file(folder / "report.html") as file:
        file.write(reproduction_page(_page(outcome)).encode())
    checks = [vars(check) for check in outcome.checks]
    results = {
        "study": outcome.name,
        "title": outcome.title,
        "source": outcome.source,
        "agree": outcome.agree,
        "seconds": outcome.seconds,
        "counts": {kind: {"agree": agree, "judged": judged} for kind, (agree, judged) in count_by_kind(checks).items()},
        "bias": [vars(bias) for bias in biases(outcome.checks)],
        "checks": checks,
        "notes": list(outcome.notes),
        "settings": dict(outcome.settings),
        "figures": [_figure_numbers(figure) for figure in outcome.figures],
    }
    text = json.dumps(_finite(results), indent=2, ensure_ascii=False, allow_nan=False)
    with atomic_file(folder / "results.json") as file:
        file.write(f"{text}\n".encode())


def write_index(outcomes: Sequence[Outcome], folder: Path) -> None:
    """``index.html``, which leads to the page of each study."""
    from reproductions.pages import reproductions_index

    pages = {f"{outcome.name}/report.html": _page(outcome) for outcome in outcomes}
    intro = (
        "Published studies run again: each number as published, as computed here, and whether the two agree. Some were "
        "read off figures; others follow exactly from what is printed. Each page says which."
    )
    if any(outcome.settings["quick"] for outcome in outcomes):
        intro += " Quick mode: fewer runs, and therefore wider tolerances."
    with atomic_file(folder / "index.html") as file:
        file.write(reproductions_index(pages, intro=intro).encode())


def _page(outcome: Outcome) -> ReproductionPage:
    from reproductions.pages import ReproductionPage

    return ReproductionPage(
        title=outcome.title,
        intro=outcome.source,
        figures=outcome.figures,
        checks=[vars(check) for check in outcome.checks],
        bias=[str(bias) for bias in biases(outcome.checks)],
        notes=outcome.notes,
        settings=outcome.settings,
        seconds={"the whole study": outcome.seconds},
        versions=versions(),
    )


def _figure_numbers(figure: Figure) -> dict[str, Any]:
    """All that a figure draws, as numbers: lines with their bands, marks with their errors, levels."""

    def series(drawn: Line | Marks, *attributes: str) -> dict[str, Any]:
        values = {name: getattr(drawn, name) for name in attributes if getattr(drawn, name) is not None}
        return {"name": drawn.name} | {name: np.asarray(value, np.float64).tolist() for name, value in values.items()}

    def panel_numbers(panel: Panel) -> dict[str, Any]:
        return {
            "title": panel.title,
            "lines": [series(line, "x", "y", "low", "high") for line in panel.lines],
            "marks": [series(marks, "x", "y", "error") for marks in panel.marks],
            "levels": [{"name": level.name, "y": level.y} for level in panel.levels],
        }

    plot = figure.plot
    views = {name: [panel_numbers(panel) for panel in panels] for name, panels in plot.views.items()}
    x = plot.x.title if plot.x is not None else ""
    return {"title": figure.title, "x": x, "y": plot.y.title, "caption": figure.caption, "views": views}


def _finite(value: object) -> object:
    """JSON has no infinity: such a number is written as text."""
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value
