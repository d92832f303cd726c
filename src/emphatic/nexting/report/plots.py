"""Plots as descriptions: a figure is a few dataclasses, which uPlot draws on a page and matplotlib in a file.

A ``Plot`` has panels of ``Line``s with their bands, ``Marks`` with their errors and ``Level``s. ``Store`` packs it for
``plots.js``, ``read_plots`` reads it back from a page, and ``draw_file`` writes it as SVG, PDF or PNG.
"""

from __future__ import annotations

import base64
import hashlib
import json
import math
import os
import textwrap
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from datetime import UTC, datetime, timedelta
from html.parser import HTMLParser
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from emphatic.common.files import atomic_file
from emphatic.learning.inputs import refusal

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as MatplotlibFigure

__all__ = ["CATEGORIES", "FORMATS", "INKS", "Axis", "Level", "Line", "Marks", "Panel", "Plot", "Store", "category"]
__all__ += ["check_format", "draw_figure", "draw_file", "look", "read_plots", "shades"]

Array = NDArray[np.float64]

#: What a line is, which gives it its colour in light and dark: one of "reading", "truth", "baseline", "hue" and "ramp"
#: (two scales, placed by a shade), or a category.
Ink = str

#: So many categories are told apart: eight colours that colour-blind readers distinguish too, then the same dashed.
CATEGORIES = 16

#: The colours of inks on light and dark pages; files are drawn with the light ones. c0 to c7 are those of Okabe and Ito
#: (2008), "hue" runs from short to long, and "ramp" from r0 to r4.
_COLOURS = {
    "reading": ("#9aa1ab", "#7d8591"),
    "truth": ("#1c1f24", "#f2f3f5"),
    "baseline": ("#8a919c", "#8a919c"),
    "grid": ("#eceef0", "#282c33"),
    "soft": ("#5d646f", "#9ba3af"),
    "short": ("#45b9ea", "#27b4e6"),
    "long": ("#2c3a9e", "#6a7bff"),
    "c0": ("#0072b2", "#4a9fe0"),
    "c1": ("#d55e00", "#f07b3f"),
    "c2": ("#009e73", "#2fbf94"),
    "c3": ("#cc79a7", "#e79ac6"),
    "c4": ("#e69f00", "#f2b134"),
    "c5": ("#56b4e9", "#8fd3ff"),
    "c6": ("#1c1f24", "#e8eaee"),
    "c7": ("#882255", "#c2436b"),
    "r0": ("#f2a93b", "#ffd166"),
    "r1": ("#e0603f", "#f78c5e"),
    "r2": ("#b03a78", "#e05c9b"),
    "r3": ("#6a3d9a", "#a779f2"),
    "r4": ("#23307d", "#5b8def"),
}
INKS: dict[str, dict[str, str]] = {
    page: {ink: colours[i] for ink, colours in _COLOURS.items()} for i, page in enumerate(("light", "dark"))
}

#: How a line is dashed, and which markers it has in a file.
Dash = Literal["solid", "dash", "dashdot", "dot"]
Marker = Literal["circle", "square", "triangle", "diamond"]
_DASHED: tuple[Dash, ...] = ("solid", "dash", "dashdot", "dot")
_MARKED: tuple[Marker, ...] = ("circle", "square", "triangle", "diamond")

_SCALES = {"hue": ("short", "long"), "ramp": ("r0", "r1", "r2", "r3", "r4")}


def category(i: int) -> Ink:
    """The ink of the i-th of several things of one kind; after ``CATEGORIES`` they begin again."""
    return f"c{i % CATEGORIES}"


def shades(values: Iterable[Hashable]) -> dict[Any, float]:
    """Each different value in its order with its shade, from 0 (the first) to 1 (the last)."""
    several = list(dict.fromkeys(values))
    return {value: i / max(1, len(several) - 1) for i, value in enumerate(several)}


def look(i: int) -> dict[str, Any]:
    """The dash and the marker of the i-th of several lines: where two coincide, both can be seen."""
    return {"dash": _DASHED[(i + i // 8) % 4], "marker": _MARKED[i % 4]}


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
    dash: Dash = "solid"
    marker: Marker = "circle"
    opacity: float = 1.0
    hover: bool = True
    low: ArrayLike | None = None
    high: ArrayLike | None = None
    notes: Sequence[str] = ()
    key: str = ""


@dataclass(frozen=True)
class Marks:
    """Single points: published numbers as hollow diamonds, own ones as dots, what needs attention as hollow triangles.

    ``error`` draws ± bars, ``low`` and ``high`` bars with ends of their own. ``name`` says on hover what they are or
    where they come from; ``label`` are words that stand beside the points, and ``size`` makes them smaller or larger.
    """

    x: ArrayLike
    y: ArrayLike
    name: str
    ink: Ink = "truth"
    shade: float = 0.0
    symbol: Literal["diamond", "dot", "triangle"] = "diamond"
    error: ArrayLike | None = None
    notes: Sequence[str] = ()
    key: str = ""
    low: ArrayLike | None = None
    high: ArrayLike | None = None
    label: str = ""
    size: float = 1.0


@dataclass(frozen=True)
class Level:
    """A horizontal line across the panel at ``y``: what to compare with."""

    y: float
    name: str
    dash: Dash = "dash"
    ink: Ink = "baseline"
    key: str = ""


@dataclass(frozen=True)
class Panel:
    """Lines in one pair of axes under a short title; ``y_range`` where the extremes should not set it.

    ``origin`` is where forecasts begin, along x (times in milliseconds since 1970): a vertical line named "now".
    """

    title: str
    lines: Sequence[Line]
    y_range: tuple[float, float] | None = None
    marks: Sequence[Marks] = ()
    levels: Sequence[Level] = ()
    origin: float | None = None


@dataclass(frozen=True)
class Plot:
    """Panels with one x axis: in a column, or in rows of ``across`` (``across_narrow`` on a phone).

    ``views`` names sets of panels to choose from; the reader's choice holds for all plots of one ``group``. ``x`` and
    ``y`` are the axes of every panel; without them, panels are drawn in the plain way of a log. On hover, all lines of
    a panel say their value at that x, or only the ``closest``. ``direct`` writes the name of each line at its end.
    ``caption`` stands below the plot in a file.
    """

    views: Mapping[str, Sequence[Panel]]
    group: str
    across: int = 1
    across_narrow: int = 1
    x: Axis | None = None
    y: Axis = Axis()
    closest: bool = False
    direct: bool = False
    caption: str = ""


# ---------------------------------------------------------------------- on a page

_LEVELS = 65534  # of 16 bits; the one above is "no value"


class Store:
    """The arrays of a page in base 64, each stored once however many lines share it."""

    def __init__(self) -> None:
        self.arrays: dict[str, dict[str, Any]] = {}
        # The lines of a panel share the object x: it is packed once. Holding the object keeps its id from being reused.
        self._packed_x: dict[int, tuple[ArrayLike, str]] = {}

    def positions(self, x: ArrayLike) -> str:
        """Keep x exactly: numbers, or times as milliseconds since 1970."""
        if id(x) not in self._packed_x:
            array = np.asarray(x)
            kind = "date" if array.dtype.kind in "MUO" else "number"
            self._packed_x[id(x)] = x, self._keep({"kind": kind}, _as_numbers(array).astype("<f8"))
        return self._packed_x[id(x)][1]

    def values(self, y: ArrayLike) -> str:
        """Keep y in 16 bits between its least and largest: an error of at most 1/131,000 of their distance."""
        array: Array = np.array(y, np.float64)  # None becomes NaN
        known = np.isfinite(array)
        values = array[known]
        low, high = (float(values.min()), float(values.max())) if len(values) else (0.0, 0.0)
        scale = (high / _LEVELS - low / _LEVELS) or 1.0
        levels = np.full(array.shape, _LEVELS + 1, "<u2")
        levels[known] = np.minimum(np.rint((values - low) / scale), _LEVELS)
        return self._keep({"kind": "levels", "low": low, "scale": scale}, levels)

    def exact(self, y: ArrayLike) -> str:
        """Keep y in 32 bits, infinities and all: for the few numbers that are read off, whatever their range."""
        array: Array = np.array(y, np.float64)
        with np.errstate(over="ignore"):
            return self._keep({"kind": "float"}, array.astype("<f4"))

    def _keep(self, head: dict[str, Any], array: NDArray[Any]) -> str:
        packed = array.tobytes()
        key = hashlib.sha256(repr(head).encode() + packed).hexdigest()[:16]
        if key not in self.arrays:
            self.arrays[key] = {**head, "data": base64.b64encode(packed).decode()}
        return key

    def plot(self, plot: Plot, label: str = "") -> dict[str, Any]:
        """The plot for ``plots.js``, its arrays kept here; ``label`` says what it shows."""
        views = {name: [self._panel(panel, plot.x) for panel in panels] for name, panels in plot.views.items()}
        packed: dict[str, Any] = {
            "label": label,
            "group": plot.group,
            "across": [plot.across, plot.across_narrow],
            "first": next(iter(views)),  # JavaScript would put a view named "0" before the first
            "views": views,
        }
        if plot.x is not None:
            packed |= {"x": _pack_axis(plot.x), "y": _pack_axis(plot.y), "closest": plot.closest}
            packed |= {"direct": plot.direct, "caption": plot.caption}
        return packed

    def _panel(self, panel: Panel, x: Axis | None) -> dict[str, Any]:
        shapes: list[Line | Marks] = [*panel.lines, *panel.marks]
        if x is not None and x.scale != "linear":
            for shape in shapes:
                if np.any(np.asarray(shape.x, np.float64) <= 0):
                    raise refusal("x", type(shape).__name__, "be above 0 on a logarithmic axis", repr(shape.x))
        pack = self.values if x is None else self.exact
        return {
            "title": panel.title,
            "range": panel.y_range,
            "lines": [self._shape(line, pack) for line in panel.lines],
            "marks": [self._shape(mark, pack) for mark in panel.marks],
            "levels": [vars(level) for level in panel.levels],
        } | ({} if panel.origin is None else {"origin": panel.origin})

    def _shape(self, shape: Line | Marks, pack: Callable[[ArrayLike], str]) -> dict[str, Any]:
        """Its fields, numbers packed; those that have their defaults are left out, and filled in by ``plots.js``."""
        packed: dict[str, Any] = {"x": self.positions(shape.x), "name": shape.name, "ink": shape.ink}
        for entry in fields(shape):
            value = getattr(shape, entry.name)
            if entry.name in ("y", "low", "high", "error"):
                packed |= {} if value is None else {entry.name: pack(value)}
            elif entry.name not in packed and value != entry.default and (entry.name != "notes" or len(value)):
                packed[entry.name] = value
        return packed


def _pack_axis(axis: Axis) -> dict[str, Any]:
    return {**vars(axis), "ticks": [[float(place) for place in axis.ticks], list(axis.ticks.values())]}


def _as_numbers(x: NDArray[Any]) -> Array:
    """Positions as floating-point numbers: times in milliseconds since 1970, NaN where there is none."""
    if x.dtype.kind not in "MUO":
        return np.asarray(x, np.float64)
    times = np.asarray(x, "datetime64[ms]")
    return np.where(np.isnat(times), np.nan, times.astype(np.int64).astype(np.float64))


# ---------------------------------------------------------------------- back from a page


class _DataOfPage(HTMLParser):
    """The text of the element that holds the plots of a page."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.text: list[str] = []
        self._inside = False
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._inside = tag == "script" and ("id", "data") in attrs

    def handle_endtag(self, tag: str) -> None:
        self._inside = False

    def handle_data(self, data: str) -> None:
        if self._inside:
            self.text.append(data)


def read_plots(page: str) -> list[tuple[str, Plot]]:
    """The plots that a page shows, each after its label; ValueError if the page holds none of their data."""
    text = "".join(_DataOfPage(page).text)
    if not text:
        raise ValueError("this page holds no data of plots.")
    data = json.loads(text)
    arrays = {key: _unpack(array) for key, array in data["arrays"].items()}
    return [(packed["label"], _read_plot(packed, arrays)) for packed in data["plots"]]


def _unpack(array: Mapping[str, Any]) -> NDArray[Any]:
    packed = base64.b64decode(array["data"])
    if array["kind"] == "levels":
        levels = np.frombuffer(packed, "<u2").astype(np.float64)
        return np.where(levels > _LEVELS, np.nan, array["low"] + levels * array["scale"])
    numbers = np.frombuffer(packed, "<f4" if array["kind"] == "float" else "<f8").astype(np.float64)
    if array["kind"] != "date":
        return numbers
    times = np.nan_to_num(numbers).astype(np.int64).astype("datetime64[ms]")
    return np.where(np.isnan(numbers), np.datetime64("NaT"), times)


def _read_plot(packed: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> Plot:
    def unpacked(shape: Mapping[str, Any]) -> dict[str, Any]:
        numeric = ("x", "y", "low", "high", "error")
        return {name: arrays[value] if name in numeric else value for name, value in shape.items()}

    def bounds(ends: list[float] | None) -> tuple[float, float] | None:
        return None if ends is None else (ends[0], ends[1])  # JSON has no tuples

    def panel(packed_panel: Mapping[str, Any]) -> Panel:
        lines = [Line(**unpacked(line)) for line in packed_panel["lines"]]
        marks = [Marks(**unpacked(mark)) for mark in packed_panel["marks"]]
        levels = [Level(**level) for level in packed_panel["levels"]]
        range, origin = bounds(packed_panel["range"]), packed_panel.get("origin")
        return Panel(packed_panel["title"], lines, range, marks, levels, origin)

    def axis(packed_axis: Mapping[str, Any]) -> Axis:
        ticks = dict(zip(*packed_axis["ticks"], strict=True))
        return Axis(**{**packed_axis, "range": bounds(packed_axis["range"]), "ticks": ticks})

    names = [packed["first"], *(name for name in packed["views"] if name != packed["first"])]
    views = {name: [panel(packed_panel) for packed_panel in packed["views"][name]] for name in names}
    plot = Plot(views, packed["group"], *packed["across"])
    if "x" not in packed:
        return plot
    options = {name: packed[name] for name in ("closest", "direct", "caption") if name in packed}
    return replace(plot, x=axis(packed["x"]), y=axis(packed["y"]), **options)


# ---------------------------------------------------------------------- in a file

FORMATS = ("svg", "pdf", "png")

#: Text stays text in SVG and PDF; a fixed salt gives the elements of an SVG the same names in every run.
_FILES = {"svg.fonttype": "none", "pdf.fonttype": 42, "svg.hashsalt": "emphatic", "font.size": 9.0}
_DASHES = {"solid": "solid", "dash": (0, (4, 3)), "dashdot": (0, (5, 2, 1, 2)), "dot": (0, (1, 2))}
_MARKERS = {"circle": "o", "square": "s", "triangle": "^", "diamond": "D", "dot": "o"}
#: Where an infinite value is drawn: far beyond any frame.
_BEYOND = 1e9
_DAY = 86400.0


def check_format(path: str | os.PathLike[str]) -> None:
    """ValueError if no figure can be written to a file of this suffix, ImportError without matplotlib."""
    suffix = Path(path).suffix.removeprefix(".").lower()
    if suffix not in FORMATS:
        raise ValueError(f"Figures are written as {', '.join(FORMATS)}. Got {suffix!r} instead.")
    _matplotlib()


def _matplotlib() -> Any:
    try:
        import matplotlib
        import matplotlib.figure
        import matplotlib.ticker
    except ImportError as error:
        raise ImportError("Figures need matplotlib: pip install 'emphatic[plot]'") from error
    return matplotlib


def draw_file(
    plot: Plot, path: str | os.PathLike[str] | None = None, view: str = "", legend: bool = False
) -> MatplotlibFigure:
    """Draw one view of a plot (default: the first) with matplotlib, and write it to ``path`` if that is given.

    Args:
        plot: What to draw.
        path: The file; its suffix says the format, .svg, .pdf or .png.
        view: The name of the view.
        legend: Whether the plot of a log, too, has a legend; its panels are then taller.

    Returns:
        The figure of matplotlib, which belongs to no window.
    """
    if path is not None:
        check_format(path)
    with _matplotlib().rc_context(_FILES):
        figure = draw_figure(plot, view)
        if legend and plot.x is None:
            _add_legend(figure)
        if path is not None:
            suffix = Path(path).suffix.removeprefix(".")
            dated = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}.get(suffix)  # the same bytes every time
            with atomic_file(path) as file:
                figure.savefig(file, format=suffix, dpi=200, bbox_inches="tight", metadata=dated)
    return figure


def draw_figure(plot: Plot, view: str = "") -> MatplotlibFigure:
    """The plot as a figure of matplotlib: a log's panels under each other and wide, others in rows with a legend."""
    panels = plot.views[view or next(iter(plot.views))]
    across, log = min(plot.across, len(panels)), plot.x is None
    down = -(-len(panels) // across)
    wide, tall = (10.0 / across, 1.16 if across == 1 else 1.8) if log else (3.1, 2.5) if across > 1 else (5.2, 3.6)
    size = (wide * across + (0.0 if log else 0.6), tall * down + 0.4) if len(panels) > 1 else (wide, tall)
    figure: MatplotlibFigure = _matplotlib().figure.Figure(figsize=size, layout="constrained")
    same = len({panel.y_range for panel in panels}) == 1 and panels[0].y_range is not None
    grid = figure.subplots(down, across, sharex=True, sharey=same and not log, squeeze=False)
    for i, axes in enumerate(grid.flat):
        if i >= len(panels):
            axes.remove()
            continue
        _draw_panel(axes, plot, panels[i], int(100 * wide))
        axes.tick_params(labelbottom=i + across >= len(panels))
    names = plot.x.ticks.values() if plot.x is not None else ()
    if len(names) * max(map(len, names), default=0) > 14 * wide:  # they would run into each other
        for label in (label for axes in figure.axes for label in axes.get_xticklabels()):
            label.set(rotation=40, ha="right", rotation_mode="anchor")
    if plot.x is not None and len(panels) == 1:
        grid[0, 0].set(xlabel=_literal(plot.x.title), ylabel=_literal(plot.y.title))
    elif plot.x is not None:
        figure.supxlabel(_literal(plot.x.title), fontsize=9)
        figure.supylabel(_literal(plot.y.title), fontsize=9)
    if plot.caption:
        words = "\n".join(textwrap.wrap(plot.caption, int(19 * size[0])))
        figure.text(0.01, -0.01, _literal(words), fontsize=6.5, va="top", color=INKS["light"]["soft"])
    return figure


def _add_legend(figure: MatplotlibFigure) -> None:
    """The names of the lines of a log's plot beside each panel, and more room for all panels."""
    figure.set_size_inches(10.0, 3.6 if len(figure.axes) == 1 else 1.7 * len(figure.axes) + 0.6)
    for axes in figure.axes:
        axes.set_yticks(*_ticks(*axes.get_ylim(), 5))
        begin, end = axes.get_xlim()
        axes.set_xlim(begin, end + 0.01 * (end - begin))  # the last mark is drawn whole
        if any(axes.get_legend_handles_labels()[1]):
            axes.legend(fontsize=7, frameon=False, loc="upper left", bbox_to_anchor=(1.0, 1.0))


def _draw_panel(axes: Axes, plot: Plot, panel: Panel, width: int) -> None:
    axes.set_title(_literal(panel.title), loc="left", fontsize=9, color=INKS["light"]["truth"])
    axes.tick_params(colors=INKS["light"]["soft"], length=0 if plot.x is None else 3)
    axes.spines[["top", "right", *(["left", "bottom"] if plot.x is None else [])]].set_visible(False)
    if plot.x is None:
        axes.grid(axis="y", color=INKS["light"]["grid"])
        axes.set_axisbelow(True)
    for level in panel.levels:
        axes.axhline(level.y, color=_colour(level.ink), lw=0.8, ls=_DASHES[level.dash], zorder=0)
    if panel.origin is not None:
        axes.axvline(panel.origin, color=INKS["light"]["soft"], lw=0.8, ls=_DASHES["dot"], zorder=0)
    labelled: set[str] = set()  # many lines may have the same name: the legend has it once
    banded = sum(line.low is not None for line in panel.lines)
    for line in panel.lines:
        name = "" if line.name in labelled else _literal(line.name)
        _draw_line(axes, line, name, plot.x is not None, max(0.08, 0.25 / math.sqrt(banded)) if banded else 0.0)
        labelled.add(line.name)
    for mark in panel.marks:
        _draw_marks(axes, mark, "" if mark.name in labelled else _literal(mark.name))
        labelled.add(mark.name)
    if plot.x is None:
        _set_axes_of_log(axes, panel, width)
        return
    _set_axis(axes, "x", plot.x, plot.x.range)
    _set_axis(axes, "y", plot.y, panel.y_range or plot.y.range)
    _label_levels(axes, panel.levels)
    if plot.direct:
        _label_lines(axes, panel.lines)
    elif any(axes.get_legend_handles_labels()[1]):
        axes.legend(fontsize=6 if plot.across > 1 else 7, ncols=2 if plot.across > 1 else 1, frameon=False)


def _label_levels(axes: Axes, levels: Sequence[Level]) -> None:
    """The name of each level at its right end, every other one below its line: two may be close."""
    bottom, top = axes.get_ylim()
    for i, level in enumerate(level for level in levels if bottom <= level.y <= top):
        place: dict[str, Any] = {"va": "top" if i % 2 else "bottom", "transform": axes.get_yaxis_transform()}
        axes.text(0.99, level.y, _literal(level.name), fontsize=6, ha="right", color=INKS["light"]["soft"], **place)


def _label_lines(axes: Axes, lines: Sequence[Line]) -> None:
    """The name of each line beside its right end, moved up or down where names would overlap."""
    to_axes = axes.transData + axes.transAxes.inverted()
    heights = {}
    for line in lines:
        x, y = _as_numbers(np.asarray(line.x)), _drawable(line.y)
        shown = np.flatnonzero(~np.isnan(y))
        if len(shown):
            end = to_axes.transform((x[shown[-1]], y[shown[-1]]))[1]
            heights[line.name] = min(max(float(end), 0.0), 1.0), _colour(line.ink, line.shade)
    names = sorted(heights, key=lambda name: heights[name][0])
    for name, height in zip(names, _spread([heights[name][0] for name in names], 0.055), strict=True):
        place: dict[str, Any] = {"transform": axes.transAxes, "va": "center", "clip_on": False}
        axes.text(1.02, height, _literal(name), fontsize=7, color=heights[name][1], **place)


def _spread(heights: Sequence[float], least: float) -> list[float]:
    """Sorted heights from 0 to 1, moved so that neighbours are ``least`` apart.

    >>> _spread([0.5, 0.5, 0.98], 0.1)
    [0.5, 0.6, 0.98]
    """
    least = min(least, 1.0 / max(1, len(heights) - 1))
    moved: list[float] = []
    for height in heights:
        moved.append(max(height, moved[-1] + least) if moved else height)
    ceiling = 1.0
    for i in reversed(range(len(moved))):
        moved[i] = min(moved[i], ceiling)
        ceiling = moved[i] - least
    return moved


def _draw_line(axes: Axes, line: Line, label: str, marked: bool, opacity: float) -> None:
    x, y, colour = _as_numbers(np.asarray(line.x)), _drawable(line.y), _colour(line.ink, line.shade)
    if line.low is not None and line.high is not None:
        axes.fill_between(x, _drawable(line.low), _drawable(line.high), color=colour, alpha=opacity, lw=0)
    dashed = line.ink[:1] == "c" and int(line.ink[1:]) >= CATEGORIES // 2 and line.dash == "solid"
    ls, marker = _DASHES["dash" if dashed else line.dash], _MARKERS[line.marker] if marked and len(x) <= 40 else ""
    zorder = 2.0 + 0.1 * list(_DASHES.values()).index(ls)  # of lines that coincide, the solid one is below
    style: dict[str, Any] = {"color": colour, "lw": line.width, "alpha": line.opacity, "ls": ls, "zorder": zorder}
    axes.plot(x, y, marker=marker, ms=2.5, label=label, **style)


def _draw_marks(axes: Axes, mark: Marks, label: str) -> None:
    x, y, colour = _as_numbers(np.asarray(mark.x)), _drawable(mark.y), _colour(mark.ink, mark.shade)
    bars: dict[str, Any] = {"fmt": "none", "ecolor": colour, "elinewidth": 1.0, "capsize": 2}
    if mark.error is not None:
        axes.errorbar(x, y, np.broadcast_to(np.asarray(mark.error, np.float64), y.shape), **bars)
    if mark.low is not None and mark.high is not None:
        axes.errorbar(x, y, np.maximum([y - _drawable(mark.low), _drawable(mark.high) - y], 0.0), **bars)
    filled, large = mark.symbol == "dot", mark.symbol == "triangle"
    face = colour if filled else "none" if large else "white"
    size = (8.0 if large else 4.5) * mark.size
    axes.plot(x, y, _MARKERS[mark.symbol], ms=size, color=colour, mfc=face, label=label, zorder=3)
    for place in zip(x, y, strict=True) if mark.label else ():
        axes.annotate(_literal(mark.label), place, (3, 8), textcoords="offset points", fontsize=6, ha="right")


def _set_axes_of_log(axes: Axes, panel: Panel, width: int) -> None:
    """Ranges from the values, and ticks that tell them apart."""
    positions = [np.asarray(line.x) for line in panel.lines]
    bounds = _extent(np.concatenate([_as_numbers(x) for x in positions] or [np.zeros(0)]), 0.0)
    dated = any(x.dtype.kind in "MUO" for x in positions)
    axes.set_xlim(*bounds)
    axes.set_xticks(*(_times(*bounds) if dated else _ticks(*bounds, max(3, width // 140))))
    edges = [edge for line in panel.lines for edge in (line.y, line.low, line.high) if edge is not None]
    values = np.concatenate([np.array(edge, np.float64) for edge in edges] or [np.zeros(0)])
    bounds = panel.y_range or _extent(values, 0.06)
    axes.set_ylim(*bounds)
    axes.set_yticks(*_ticks(*bounds, 4))


def _set_axis(axes: Axes, which: Literal["x", "y"], axis: Axis, bounds: tuple[float, float] | None) -> None:
    """The scale, the ticks and the range of an axis that is described."""
    ticker = _matplotlib().ticker
    place = axes.xaxis if which == "x" else axes.yaxis
    if axis.scale == "log2":
        axes.set(**{f"{which}scale": "log"})
        place.set_major_locator(ticker.LogLocator(base=2, numticks=8))
        place.set_major_formatter(ticker.LogFormatterMathtext(base=2))
        place.set_minor_locator(ticker.NullLocator())
    else:
        axes.set(**{f"{which}scale": axis.scale})
    if axis.ticks:
        place.set_ticks(list(axis.ticks), list(map(_literal, axis.ticks.values())))
    if bounds is not None:
        axes.set(**{f"{which}lim": bounds})


def _colour(ink: Ink, shade: float = 0.0) -> str:
    """The colour of an ink on white, as ``plots.js`` mixes it too."""
    colours = INKS["light"]
    if ink not in _SCALES:
        return colours[category(int(ink[1:]) % 8) if ink[:1] == "c" else ink]
    stops = [[int(colours[name][i : i + 2], 16) for i in (1, 3, 5)] for name in _SCALES[ink]]
    i = min(len(stops) - 2, math.floor(shade * (len(stops) - 1)))
    fraction = shade * (len(stops) - 1) - i
    mixed = (round(a + fraction * (b - a)) for a, b in zip(stops[i], stops[i + 1], strict=True))
    return "#" + "".join(f"{channel:02x}" for channel in mixed)


def _literal(words: str) -> str:
    """Words as matplotlib draws them: a pair of dollar signs would be taken for mathematics."""
    return words.replace("$", r"\$")


def _drawable(values: ArrayLike) -> Array:
    """Numbers as matplotlib draws them: what is infinite lies far outside the frame, where the line leaves it."""
    array = np.array(values, np.float64)  # None becomes NaN
    return np.where(np.isposinf(array), _BEYOND, array)


def _extent(values: Array, room: float) -> tuple[float, float]:
    known = values[np.isfinite(values)]
    if not len(known):
        return 0.0, 1.0
    low, high = float(known.min()), float(known.max())
    margin = (high - low) * room if high > low else (abs(low) or 1.0) * 0.1
    return low - margin, high + margin


def _ticks(low: float, high: float, most: int) -> tuple[list[float], list[str]]:
    """Round numbers between two, and what is written beside them: with the digits that tell them apart."""
    rough = (high - low) / most
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * factor for factor in (1, 2, 5, 10) if power * factor >= rough * 0.999)
    ticks = [step * k for k in range(math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9) + 1)]
    largest = max(abs(low), abs(high))
    if largest < 1e-4 or largest >= 1e15:
        return ticks, [f"{tick:.3g}" for tick in ticks]
    digits = max(0, -math.floor(math.log10(step) + 1e-9))
    return ticks, [f"{tick + 0.0:,.{digits}f}".replace("-", "−") for tick in ticks]


def _times(low: float, high: float) -> tuple[list[float], list[str]]:
    """Times in milliseconds, and how they are written: days, or days and hours."""
    span = (high - low) / 1000.0
    minutes, days = (1, 5, 15, 30, 60, 180, 360, 720), (1, 2, 7, 14, 30, 90, 365)
    steps = [60.0 * m for m in minutes] + [_DAY * d for d in days]
    step = next((s for s in steps if span / s <= 7), span / 6)
    begin = math.ceil(low / 1000.0 / step) * step
    ticks = [begin + k * step for k in range(int(max(0.0, high / 1000.0 - begin) / step) + 1)]
    form = "%Y-%m-%d" if step >= _DAY else "%m-%d %H:%M" if step >= 60 else "%H:%M:%S"
    epoch = datetime(1970, 1, 1, tzinfo=UTC)
    return [1000.0 * tick for tick in ticks], [(epoch + timedelta(seconds=tick)).strftime(form) for tick in ticks]
