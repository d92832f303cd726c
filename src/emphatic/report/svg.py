"""The plots of a report as SVG: drawn from the numbers that the page holds."""

from __future__ import annotations

import base64
import json
import math
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from html import unescape
from typing import Any
from xml.sax.saxutils import escape

import numpy as np
from numpy.typing import NDArray

__all__ = ["names", "plots_of", "svg"]

Array = NDArray[np.float64]

_WIDTH, _PANEL, _HEAD, _LEFT, _RIGHT, _FOOT = 1000, 116, 20, 90, 16, 26
_INKS = {"reading": "#9aa1ab", "truth": "#1c1f24", "baseline": "#8a919c"}
_SHORT, _LONG = (0x45, 0xB9, 0xEA), (0x2C, 0x3A, 0x9E)
_DASHES = {"dash": "6 4", "dot": "2 3"}
_DAY = 86400.0


def plots_of(page: str) -> list[tuple[str, dict[str, Any], dict[str, Any]]]:
    """The plots of a log that a page holds: the name of each, the plot, and the arrays of the page."""
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)
    if found is None:
        raise ValueError("this page holds no data of plots.")
    data = json.loads(found[1])
    found_labels = re.findall(r'aria-label="([^"]*)" data-plot="(\d+)"', page)
    labels = {int(number): unescape(label) for label, number in found_labels}
    return [(labels[i], plot, data["arrays"]) for i, plot in enumerate(data["plots"]) if "x" not in plot]


def svg(plot: Mapping[str, Any], arrays: Mapping[str, Any], view: str = "") -> str:
    """A plot of a log as the text of an SVG file, in one of its views (default: the first)."""
    panels = plot["views"][view or plot["first"]]
    across = plot["across"][0]
    wide, down = _WIDTH / across, math.ceil(len(panels) / across)
    tall = _PANEL + (_FOOT if across > 1 else 0)
    height = down * tall + (_FOOT if across == 1 else 0)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" width="{_WIDTH}" height="{height}" '
        'font-family="system-ui, sans-serif" font-size="12" fill="#5d646f">',
        f'<rect width="{_WIDTH}" height="{height}" fill="#fff"/>',
    ]
    for i, panel in enumerate(panels):
        last = across > 1 or i == len(panels) - 1
        parts += _panel(panel, arrays, i % across * wide, i // across * tall, wide, last)
    return "\n".join([*parts, "</svg>", ""])


def _panel(
    panel: Mapping[str, Any], arrays: Mapping[str, Any], left: float, top: float, width: float, last: bool
) -> list[str]:
    frame = (left + _LEFT, top + _HEAD, left + width - _RIGHT, top + _PANEL - 8)
    parts = [f'<text x="{left + 8:.1f}" y="{top + 14:.1f}" fill="#1c1f24">{escape(panel["title"])}</text>']
    lines = [(line, _numbers(arrays[line["x"]]), _numbers(arrays[line["y"]])) for line in panel["lines"]]
    xs = np.concatenate([x for _, x, _ in lines] or [np.zeros(0)])
    bands = [
        (line, x, *(_numbers(arrays[line[end]]) for end in ("low", "high"))) for line, x, _ in lines if "low" in line
    ]
    ys = np.concatenate(
        [*(y for _, _, y in lines), *(y for *_, low, high in bands for y in (low, high))] or [np.zeros(0)]
    )
    (x0, x1), (y0, y1) = _extent(xs, 0.0), panel["range"] or _extent(ys, 0.06)
    dated = bool(lines) and arrays[lines[0][0]["x"]]["kind"] == "date"

    def place(x: Array, y: Array) -> tuple[Array, Array]:
        return (
            frame[0] + (x - x0) / (x1 - x0) * (frame[2] - frame[0]),
            np.clip(frame[3] - (y - y0) / (y1 - y0) * (frame[3] - frame[1]), frame[1] - 400, frame[3] + 400),
        )

    for tick, label in zip(*_ticks(y0, y1, 4), strict=True):
        _, at = place(np.array([x0]), np.array([tick]))
        parts.append(f'<path d="M{frame[0]:.1f} {at[0]:.1f}H{frame[2]:.1f}" stroke="#eceef0"/>')
        parts.append(f'<text x="{frame[0] - 6:.1f}" y="{at[0] + 4:.1f}" text-anchor="end">{label}</text>')
    if last and len(xs):
        ticks, labels = _times(x0, x1) if dated else _ticks(x0, x1, max(3, int(width / 140)))
        for tick, label in zip(ticks, labels, strict=True):
            at, _ = place(np.array([tick]), np.array([y0]))
            parts.append(f'<text x="{at[0]:.1f}" y="{frame[3] + 18:.1f}" text-anchor="middle">{label}</text>')
    for line, x, low, high in bands:
        parts += _band(line, *place(x, low), place(x, high)[1])
    for line, x, y in lines:
        parts += _path(line, *place(x, y))
    return parts


def _band(line: Mapping[str, Any], x: Array, low: Array, high: Array) -> list[str]:
    """The area between two edges, in a piece for each run of known points."""
    known = np.isfinite(x) & np.isfinite(low) & np.isfinite(high)
    edges = np.flatnonzero(np.diff(np.concatenate([[False], known, [False]])))
    path = ""
    for begin, end in edges.reshape(-1, 2).tolist():
        around = [(x[i], low[i]) for i in range(begin, end)] + [(x[i], high[i]) for i in range(end - 1, begin - 1, -1)]
        path += "M" + "L".join(f"{a:.1f} {b:.1f}" for a, b in around) + "Z"
    return [f'<path d="{path}" fill="{_ink(line)}" fill-opacity="0.2" stroke="none"/>'] if path else []


def _path(line: Mapping[str, Any], x: Array, y: Array) -> list[str]:
    known = np.isfinite(x) & np.isfinite(y)
    begins = known & ~np.concatenate([[False], known[:-1]])
    path = "".join(f"{'M' if begins[i] else 'L'}{x[i]:.1f} {y[i]:.1f}" for i in np.flatnonzero(known))
    if not path:
        return []
    dash = f' stroke-dasharray="{_DASHES[line["dash"]]}"' if line["dash"] in _DASHES else ""
    return [
        f'<path d="{path}" fill="none" stroke="{_ink(line)}" stroke-width="{line["width"]:g}" '
        f'stroke-opacity="{line["opacity"]:g}" stroke-linejoin="round"{dash}/>'
    ]


def _ink(line: Mapping[str, Any]) -> str:
    if line["ink"] != "hue":
        return _INKS.get(line["ink"], "#1c1f24")
    mixed = (round(a + line["shade"] * (b - a)) for a, b in zip(_SHORT, _LONG, strict=True))
    return "#" + "".join(f"{part:02x}" for part in mixed)


def _numbers(array: Mapping[str, Any]) -> Array:
    packed = base64.b64decode(array["data"])
    if array["kind"] == "levels":
        levels = np.frombuffer(packed, "<u2").astype(np.float64)
        return np.where(levels > 65534, np.nan, array["low"] + levels * array["scale"])
    return np.frombuffer(packed, "<f4" if array["kind"] == "float" else "<f8").astype(np.float64)


def _extent(values: Array, room: float) -> tuple[float, float]:
    known = values[np.isfinite(values)]
    if not len(known):
        return 0.0, 1.0
    low, high = float(known.min()), float(known.max())
    more = (high - low) * room if high > low else (abs(low) or 1.0) * 0.1
    return low - more, high + more


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
    steps = (
        [60.0 * m for m in (1, 5, 15, 30)]
        + [3600.0 * h for h in (1, 3, 6, 12)]
        + [_DAY * d for d in (1, 2, 7, 14, 30, 90, 365)]
    )
    step = next((s for s in steps if span / s <= 7), span / 6)
    first = math.ceil(low / 1000.0 / step) * step
    ticks = [first + k * step for k in range(int(max(0.0, high / 1000.0 - first) / step) + 1)]
    form = "%Y-%m-%d" if step >= _DAY else "%m-%d %H:%M" if step >= 60 else "%H:%M:%S"
    epoch = datetime(1970, 1, 1, tzinfo=UTC)
    return [1000.0 * tick for tick in ticks], [(epoch + timedelta(seconds=tick)).strftime(form) for tick in ticks]


def names(plots: Sequence[tuple[str, Any, Any]]) -> list[str]:
    """A name for the file of each plot: what its label says first, and a number where that is not enough."""
    counts: dict[str, int] = {}
    found = []
    for label, _, _ in plots:
        name = re.sub(r"[^\w.-]+", "_", label.split(":")[0]).strip("._")[:80] or "plot"
        counts[name] = counts.get(name, 0) + 1
        found.append(name if counts[name] == 1 else f"{name}-{counts[name]}")
    return found
