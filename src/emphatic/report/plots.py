"""Figures as data: panels of lines, their numbers packed small, drawn by ``page.js`` when they come into view."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

__all__ = ["Line", "Panel", "Plot", "Store"]

#: What a line is, which gives it its colour in light and dark.
Ink = Literal["reading", "truth", "hue", "baseline"]

_LEVELS = 65534  # of 16 bits; the one above is "no value"


@dataclass(frozen=True)
class Line:
    """A line: numbers, row numbers or times along ``x``, values along ``y`` (NaN: a break), and what it is.

    ``shade`` places ``ink="hue"`` on the scale from the shortest (0) to the longest (1).
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


@dataclass(frozen=True)
class Panel:
    """Lines in one pair of axes under a short title; ``y_range`` where the extremes should not set it."""

    title: str
    lines: Sequence[Line]
    y_range: tuple[float, float] | None = None


@dataclass(frozen=True)
class Plot:
    """Panels with one x axis: in a column, or in rows of ``across`` (``across_narrow`` on a phone).

    ``views`` names sets of panels to choose from; the reader's choice holds for all plots of one ``group``.
    """

    views: Mapping[str, Sequence[Panel]]
    group: str
    across: int = 1
    across_narrow: int = 1


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

    def _keep(self, head: dict[str, Any], array: NDArray[Any]) -> str:
        packed = array.tobytes()
        key = hashlib.sha256(repr(head).encode() + packed).hexdigest()[:16]
        self.arrays.setdefault(key, {**head, "data": base64.b64encode(packed).decode()})
        return key

    def plot(self, plot: Plot) -> dict[str, Any]:
        """The plot for ``page.js``, its arrays kept here."""
        views = {name: [self._panel(panel) for panel in panels] for name, panels in plot.views.items()}
        # JavaScript would put a view named "0" before the first.
        return {
            "group": plot.group,
            "across": [plot.across, plot.across_narrow],
            "first": next(iter(views)),
            "views": views,
        }

    def _panel(self, panel: Panel) -> dict[str, Any]:
        lines = [{**vars(line), "x": self.positions(line.x), "y": self.values(line.y)} for line in panel.lines]
        return {"title": panel.title, "range": panel.y_range, "lines": lines}
