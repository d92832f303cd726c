"""The sections with plots: each signal beside its predictions, and how the errors fell while learning."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from emphatic.nexting.score_sections import horizon_label, horizons
from emphatic.nexting.scoring import SignalPlot, Stretch
from emphatic.report.page import Html, Plots, choice, legend, paragraphs, picture_button, section, text
from emphatic.report.plots import Line, Panel, Plot
from emphatic.report.tables import amount, known, percent, share

__all__ = ["curves_section", "signals_section"]

#: The ink of rows in alarm.
ALARM = "c1"
#: Signals whose plots stand open; those after them are folded.
OPEN = 8


def signals_section(
    signals: Sequence[SignalPlot], scores: Sequence[Mapping[str, Any]], plots: Plots, coverage: float | None = None
) -> Html:
    """For each signal a column of panels: its readings, then for each horizon the prediction and the actual return.

    ``coverage`` is that of the intervals, which are drawn as bands.
    """
    if not signals:
        return Html()
    shades = horizons(scores)
    found = {(score["signal"], score["horizon"]): score for score in scores}
    ours = "prediction, short to long horizon"
    if coverage is not None:
        ours += f", with its {percent(coverage)} interval"
    inks = [("reading", "reading"), ("truth", "actual return"), ("hue", ours)]
    if any(part is not None and part.alarm is not None for one in signals for part in (one.close, one.whole)):
        inks.append((ALARM, "alarm"))
    keys = legend(inks)
    each = max((signal.whole.each for signal in signals if signal.whole), default=1)
    views = {"close": "Close-up", "whole": "Whole log"}
    bar = keys + choice("signals", views, "Part of the log") if each > 1 else keys
    note = (
        "A good prediction lies on the actual return, though it was made before. Towards the end of the log the return "
    )
    note += "is not known: the longer the horizon, the earlier its line ends."
    if each > 1:
        note += (
            " The close-up shows every row around the last whose returns are all known; in the whole log each point is "
        )
        note += f"the mean of up to {amount(each)} rows."
    about = Html(text(note) + '<span class="mouse"> Drag to zoom, double-click to reset.</span>')
    cards = []
    for i, signal in enumerate(signals):
        parts = {"close": signal.close, "whole": signal.whole or signal.close}
        marks = {h: found.get((signal.name, h), {}) for h in shades}
        plot = Plot({name: _panels(stretch, shades, marks) for name, stretch in parts.items()}, "signals")
        drawing = plots(plot, f"{signal.name}: readings, predictions and actual returns")
        head = f"<h3>{text(signal.name)}</h3>"
        button = picture_button(signal.name)
        if i < OPEN:
            cards.append(f'<article class="card" id="signal-{i}">{button}{head}{drawing}</article>')
        else:
            shown = " · ".join(
                f"{horizon_label(h)} {share(score.get('variance_explained'))}" for h, score in marks.items()
            )
            summary = f'<summary>{head}<span class="scores">{text(shown)}</span></summary>'
            cards.append(f'<details class="card" id="signal-{i}">{summary}{button}{drawing}</details>')
    return section("signals", "Signals", paragraphs(about), Html(f'<div class="bar">{bar}</div>'), Html("".join(cards)))


def _panels(stretch: Stretch, shades: Mapping[Any, float], marks: Mapping[Any, Mapping[str, Any]]) -> list[Panel]:
    readings = [Line(stretch.x, stretch.reading, "reading", "reading", width=1.2)]
    if stretch.alarm is not None:
        readings.append(Line(stretch.x, stretch.alarm, "alarm", ALARM, width=3.0))
    panels = [Panel("reading", readings)]
    for horizon, shade in shades.items():
        lines = []
        if horizon in stretch.predictions:  # broad, below: where the two agree, both are seen
            ours, low, high = stretch.predictions[horizon], stretch.low.get(horizon), stretch.high.get(horizon)
            lines.append(Line(stretch.x, ours, "prediction", "hue", shade, width=3.2, low=low, high=high))
        if horizon in stretch.returns:
            lines.append(Line(stretch.x, stretch.returns[horizon], "actual return", "truth", width=1.1))
        panels.append(Panel(f"{horizon_label(horizon)} · {_mark(marks[horizon])}", lines))
    return panels


def _mark(score: Mapping[str, Any]) -> str:
    """How good the predictions of a panel are, and their intervals."""
    said = f"variance explained {share(score.get('variance_explained'))}"
    if score.get("calibrated") is False:
        return f"{said} · interval not calibrated yet"
    return f"{said} · {percent(score['coverage'])} inside the interval" if known(score.get("coverage")) else said


def curves_section(curves: Mapping[str, Sequence[Any]], scores: Sequence[Mapping[str, Any]], plots: Plots) -> Html:
    """A panel for each horizon: the error in each piece of the log, for all signals or for a chosen one."""
    if not curves:
        return Html()
    rows = np.array(curves["rows"], np.float64)
    shape = (len(scores), len(rows))
    errors = {name: np.array(curves[name], np.float64).reshape(shape) for name in ("ours", "persistence", "mean")}
    signals = list(dict.fromkeys(score["signal"] for score in scores))
    shades = horizons(scores)
    at = {(score["signal"], score["horizon"]): i for i, score in enumerate(scores)}
    views = {
        "all": [_all_signals(rows, errors, [i for (_, of), i in at.items() if of == h], h, shades[h]) for h in shades]
    }
    for j, signal in enumerate(signals):
        here = [(h, at[signal, h]) for h in shades if (signal, h) in at]
        views[str(j)] = [_one_signal(rows, errors, i, h, shades[h]) for h, i in here]
    across = min(4, len(shades))
    drawing = plots(
        Plot(views, "curves", across, min(2, across)), "Learning curves: the error of the predictions along the log"
    )
    options = {"all": "All signals, relative to the running mean"}
    options |= {str(j): f"{signal}, RMSE in its own unit" for j, signal in enumerate(signals)}
    note = (
        f"The error (RMSE) in each of {len(rows)} pieces of the log, by the row at which the piece ends. For all "
        "signals it is divided by the running mean's error in the same piece, so that 1 is no better than the mean: "
        "the strong line is the median, the faint ones are the signals."
    )
    keys = legend([("hue", "online"), ("baseline", "persistence (dashed), running mean (dotted)")])
    bar = Html(f'<div class="bar">{keys}{choice("curves", options, "Signal")}</div>')
    card = Html(f'<div class="card">{picture_button("learning curves")}{drawing}</div>')
    return section("curves", "Learning curves", paragraphs(note), bar, card)


Errors = Mapping[str, NDArray[np.float64]]


def _all_signals(rows: NDArray[np.float64], errors: Errors, which: list[int], horizon: Any, shade: float) -> Panel:
    mean = np.where(errors["mean"][which] > 0, errors["mean"][which], np.nan)
    ours, persistence = errors["ours"][which] / mean, errors["persistence"][which] / mean
    middles = [_medians(ours), _medians(persistence)]
    lines = [Line(rows, one, "", "hue", shade, width=1, opacity=0.22, hover=False) for one in ours]
    lines.append(Line(rows, np.ones(len(rows)), "running mean", "baseline", dash="dot", width=1.2))
    lines.append(Line(rows, middles[1], "persistence", "baseline", dash="dash"))
    lines.append(Line(rows, middles[0], "online", "hue", shade, width=2.4))
    # The first pieces of a slow start would flatten all the rest.
    top = max([1.0, *(float(v) for middle in middles for v in middle if not math.isnan(v))])
    return Panel(horizon_label(horizon), lines, (0.0, 1.08 * min(top, 2.0)))


def _medians(many: NDArray[np.float64]) -> list[float]:
    """Down the columns, of what is not NaN; NaN where all is."""
    numbers = [column[~np.isnan(column)] for column in many.T]
    return [float(np.median(column)) if len(column) else math.nan for column in numbers]


def _one_signal(rows: NDArray[np.float64], errors: Errors, i: int, horizon: Any, shade: float) -> Panel:
    lines = [
        Line(rows, errors["mean"][i], "running mean", "baseline", dash="dot", width=1.2),
        Line(rows, errors["persistence"][i], "persistence", "baseline", dash="dash"),
        Line(rows, errors["ours"][i], "online", "hue", shade, width=2.4),
    ]
    return Panel(horizon_label(horizon), lines)
