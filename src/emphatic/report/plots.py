"""Figures as data: panels of lines, their numbers packed small, drawn by ``page.js`` when they come into view."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from emphatic.learning.inputs import refusal

__all__ = ["CATEGORIES", "Axis", "Level", "Line", "Marks", "Panel", "Plot", "Store", "category", "shades"]

#: What a line is, which gives it its colour in light and dark: one of "reading", "truth", "baseline", "hue" and "ramp"
#: (two scales, placed by a shade), or a category.
Ink = str

#: So many categories are told apart: eight colours that colour-blind readers distinguish too, then the same dashed.
CATEGORIES = 16


def category(i: int) -> Ink:
    """The ink of the i-th of several things of one kind; after ``CATEGORIES`` they begin again."""
    return f"c{i % CATEGORIES}"


def shades(values: Iterable[Hashable]) -> dict[Any, float]:
    """Each different value in its order with its shade, from 0 (the first) to 1 (the last)."""
    several = list(dict.fromkeys(values))
    return {value: i / max(1, len(several) - 1) for i, value in enumerate(several)}


_LEVELS = 65534  # of 16 bits; the one above is "no value"


@dataclass(frozen=True)
class Axis:
    """How an axis is drawn: its title and its scale, on which it may have a range of its own.

    ``"log2"`` is logarithmic with ticks at powers of two, ``"log"`` at plain numbers; both refuse an x that is not
    above 0. ``ticks`` gives places names of their own. ``name`` stands before a value on hover.
    """

    title: str = ""
    scale: Literal["linear", "log", "log2"] = "linear"
    range: tuple[float, float] | None = None
    ticks: Mapping[float, str] = field(default_factory=dict)
    name: str = ""


@dataclass(frozen=True)
class Line:
    """A line: numbers, row numbers or times along ``x``, values along ``y`` (NaN: a break), and what it is.

    ``shade`` places ``ink="hue"`` or ``"ramp"`` on its scale from 0 to 1. ``low`` and ``high`` are the edges of a soft
    band around the line. Where the panel has a ``y_range``, an infinite or huge y leaves the frame and is cut there.
    ``notes`` are words on hover, one a point. A legend's key hides the lines of its ``key``, by default the ink.
    """

    x: ArrayLike
    y: ArrayLike
    name: str
    ink: Ink = "hue"
    shade: float = 0.0
    width: float = 1.5
    dash: Literal["solid", "dash", "dot"] = "solid"
    opacity: float = 1.0
    hover: bool = True
    low: ArrayLike | None = None
    high: ArrayLike | None = None
    notes: Sequence[str] = ()
    key: str = ""


@dataclass(frozen=True)
class Marks:
    """Single points: published numbers as hollow diamonds, own ones as dots; ``error`` draws ± bars.

    ``name`` says on hover what they are or where they come from.
    """

    x: ArrayLike
    y: ArrayLike
    name: str
    ink: Ink = "truth"
    shade: float = 0.0
    symbol: Literal["diamond", "dot"] = "diamond"
    error: ArrayLike | None = None
    notes: Sequence[str] = ()
    key: str = ""


@dataclass(frozen=True)
class Level:
    """A horizontal line across the panel at ``y``: what to compare with."""

    y: float
    name: str
    dash: Literal["solid", "dash", "dot"] = "dash"
    ink: Ink = "baseline"
    key: str = ""


@dataclass(frozen=True)
class Panel:
    """Lines in one pair of axes under a short title; ``y_range`` where the extremes should not set it."""

    title: str
    lines: Sequence[Line]
    y_range: tuple[float, float] | None = None
    marks: Sequence[Marks] = ()
    levels: Sequence[Level] = ()


@dataclass(frozen=True)
class Plot:
    """Panels with one x axis: in a column, or in rows of ``across`` (``across_narrow`` on a phone).

    ``views`` names sets of panels to choose from; the reader's choice holds for all plots of one ``group``. ``x`` and
    ``y`` are the axes of every panel; without them, panels are drawn in the plain way of a log. On hover, all lines of
    a panel say their value at that x, or only the ``closest``.
    """

    views: Mapping[str, Sequence[Panel]]
    group: str
    across: int = 1
    across_narrow: int = 1
    x: Axis | None = None
    y: Axis = Axis()
    closest: bool = False


class Store:
    """The arrays of a page in base 64, each kept once however many lines share it."""

    def __init__(self) -> None:
        self.arrays: dict[str, dict[str, Any]] = {}

    def positions(self, x: ArrayLike) -> str:
        """Keep x exactly: numbers, or times as milliseconds since 1970."""
        array = np.asarray(x)
        date = array.dtype.kind in "MUO"
        if date:
            times = np.asarray(array, "datetime64[ms]")
            numbers = np.where(np.isnat(times), np.nan, times.astype(np.int64).astype(np.float64))
        else:
            numbers = np.asarray(array, np.float64)
        return self._keep({"kind": "date" if date else "number"}, numbers.astype("<f8"))

    def values(self, y: ArrayLike) -> str:
        """Keep y in 16 bits between its least and largest: an error of at most 1/131,000 of their distance."""
        array: NDArray[np.float64] = np.array(y, np.float64)  # None becomes NaN
        known = np.isfinite(array)
        low, high = (float(array[known].min()), float(array[known].max())) if known.any() else (0.0, 0.0)
        scale = (high / _LEVELS - low / _LEVELS) or 1.0
        levels = np.full(array.shape, _LEVELS + 1, "<u2")
        levels[known] = np.rint((array[known] - low) / scale).clip(0, _LEVELS)
        return self._keep({"kind": "levels", "low": low, "scale": scale}, levels)

    def exact(self, y: ArrayLike) -> str:
        """Keep y in 32 bits, infinities and all: for the few numbers that are read off, whatever their range."""
        array: NDArray[np.float64] = np.array(y, np.float64)
        with np.errstate(over="ignore"):
            return self._keep({"kind": "float"}, array.astype("<f4"))

    def _keep(self, head: dict[str, Any], array: NDArray[Any]) -> str:
        packed = array.tobytes()
        key = hashlib.sha256(repr(head).encode() + packed).hexdigest()[:16]
        self.arrays.setdefault(key, {**head, "data": base64.b64encode(packed).decode()})
        return key

    def plot(self, plot: Plot) -> dict[str, Any]:
        """The plot for ``page.js``, its arrays kept here."""
        views = {name: [self._panel(panel, plot.x) for panel in panels] for name, panels in plot.views.items()}
        # JavaScript would put a view named "0" before the first.
        first = next(iter(views))
        kept: dict[str, Any] = {
            "group": plot.group,
            "across": [plot.across, plot.across_narrow],
            "first": first,
            "views": views,
        }
        if plot.x is not None:
            kept |= {"x": _axis(plot.x), "y": _axis(plot.y), "closest": plot.closest}
        return kept

    def _panel(self, panel: Panel, x: Axis | None) -> dict[str, Any]:
        kept: dict[str, Any] = {"title": panel.title, "range": panel.y_range}
        drawn: list[Line | Marks] = [*panel.lines, *panel.marks]
        if x is not None and x.scale != "linear":
            for one in drawn:
                if np.any(np.asarray(one.x, np.float64) <= 0):
                    raise refusal("x", type(one).__name__, "be above 0 on a logarithmic axis", repr(one.x))
        pack = self.values if x is None else self.exact
        all_kept = [self._drawn(one, pack) for one in drawn]
        kept |= {"lines": all_kept[: len(panel.lines)], "marks": all_kept[len(panel.lines) :]}
        return kept | {"levels": [vars(level) for level in panel.levels]}

    def _drawn(self, one: Line | Marks, pack: Callable[[ArrayLike], str]) -> dict[str, Any]:
        """Its fields, those that say nothing left out, numbers packed."""
        kept = {name: value for name, value in vars(one).items() if value is not None}
        for name in ("notes", "key"):
            if not len(kept[name]):
                del kept[name]
        kept |= {name: pack(kept[name]) for name in ("y", "low", "high", "error") if name in kept}
        return kept | {"x": self.positions(one.x)}


def _axis(axis: Axis) -> dict[str, Any]:
    return {**vars(axis), "ticks": [[float(at) for at in axis.ticks], list(axis.ticks.values())]}
