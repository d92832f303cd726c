"""Figures of a sweep for papers, by matplotlib: the error against α, against λ, and while learning."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from emphatic.learning.inputs import refusal
from emphatic.studies.results import CONFIDENCE, over_runs, t_quantile

if TYPE_CHECKING:
    from emphatic.studies.results import Sweep

__all__ = ["best_along", "check_formats", "draw"]

KINDS = ("alpha", "lambda", "steps")
FORMATS = ("svg", "pdf", "png")
#: What takes the place of λ where a rule has none.
ALONG = ("lambda", "zeta", "xi")
SYMBOLS = {"alpha": "α", "lambda": "λ", "zeta": "ζ", "xi": "ξ"}


def draw(sweep: Sweep, x: str, path: str | os.PathLike[str] | None) -> Any:
    """``Sweep.plot``."""
    if x not in KINDS:
        raise refusal("x", "plot", "be 'alpha', 'lambda' or 'steps'", repr(x))
    if path is not None:
        check_formats(Path(path).suffix.removeprefix("."))
    plt = _pyplot()
    look = {"svg.fonttype": "none", "pdf.fonttype": 42, "axes.spines.top": False, "axes.spines.right": False}
    with plt.rc_context(look):
        figure = {"alpha": _over_alpha, "lambda": _over_lambda, "steps": _while_learning}[x](sweep, plt)
        plt.close(figure)  # the figure remains valid, without a window
        if path is not None:
            dated = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}.get(Path(path).suffix.removeprefix("."))
            figure.savefig(path, dpi=200, bbox_inches="tight", metadata=dated)
    return figure


def check_formats(text: str) -> list[str]:
    """The formats of a list such as "svg,pdf"; ValueError if one is not known."""
    found = [part.strip().lower() for part in text.split(",")]
    for one in found:
        if one not in FORMATS:
            raise ValueError(f"Figures are written as {', '.join(FORMATS)}. Got {one!r} instead.")
    _pyplot()  # raises at once if it is missing
    return found


def best_along(sweep: Sweep, rule: str, along: str) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """The values of a parameter that the settings of a rule have, and for each the setting with the least mean error.

    Settings that diverged in some run come after all others.
    """
    mean, own = sweep.over_runs("mean")[0], np.array(sweep.labels) == rule
    column = sweep.parameters.get(along, np.full(len(mean), np.nan))
    values = np.unique(column[own & ~np.isnan(column)])
    there = [np.flatnonzero(own & (column == value)) for value in values]
    return values, np.array([some[np.argmin(mean[some])] for some in there], np.int64)


def _pyplot() -> Any:
    try:
        import matplotlib

        matplotlib.use("agg", force=False)
        import matplotlib.pyplot as plt
    except ImportError as error:
        raise ImportError("Figures need matplotlib: pip install 'emphatic[plot]'") from error
    return plt


def _wide(sweep: Sweep) -> float:
    """Half of a 95% interval in standard errors."""
    return t_quantile(0.5 + CONFIDENCE / 2, sweep.plan.runs - 1) if sweep.plan.runs > 1 else math.nan


def _over_alpha(sweep: Sweep, plt: Any) -> Any:
    """One panel per rule, one line per λ: at each α the best of the other parameters."""
    known = ~np.isnan(sweep.parameters["alpha"])
    rules = list(dict.fromkeys(label for label, has in zip(sweep.labels, known, strict=True) if has))
    if not rules:
        raise refusal("x", "plot", "be 'lambda' or 'steps': no rule of this sweep has a step size", "'alpha'")
    across = min(3, len(rules))
    down = -(-len(rules) // across)
    figure, axes = plt.subplots(
        down, across, figsize=(3.1 * across + 0.6, 2.5 * down + 0.4), sharex=True, sharey=True, squeeze=False,
        layout="constrained",
    )  # fmt: skip
    top = _ceiling(sweep)
    for place, rule in zip(axes.flat, rules, strict=False):
        lines = list(_lines(sweep, rule))
        for i, (label, alpha, mean, se) in enumerate(lines):
            colour = plt.get_cmap("viridis")(i / max(1, len(lines) - 1) * 0.9)
            place.plot(alpha, mean, "-o", ms=2.5, lw=1.2, color=colour, label=label)
            if len(lines) <= 3:
                half = _wide(sweep) * se
                place.fill_between(alpha, mean - half, mean + half, color=colour, alpha=0.2, lw=0)
        place.set(title=rule, xscale="log", ylim=(0.0, top))
        place.xaxis.set_major_locator(plt.matplotlib.ticker.LogLocator(base=2, numticks=8))
        place.xaxis.set_major_formatter(plt.matplotlib.ticker.LogFormatterMathtext(base=2))
        place.xaxis.set_minor_locator(plt.matplotlib.ticker.NullLocator())
        if any(label for label, *_ in lines):
            place.legend(fontsize=6, ncols=2, frameon=False)
    for place in list(axes.flat)[len(rules) :]:
        place.set_visible(False)
    for place in list(axes.flat)[len(rules) - across : len(rules)]:
        place.tick_params(labelbottom=True)
    _levels(sweep, axes.flat[: len(rules)])
    figure.supxlabel("step size α")
    figure.supylabel(_ylabel(sweep))
    return figure


def _lines(sweep: Sweep, rule: str) -> Iterator[tuple[str, Any, Any, Any]]:
    """Label, α, mean and standard error of each λ."""
    mean, se = sweep.over_runs("mean")
    own = np.array(sweep.labels) == rule
    known = (name for name in ALONG if name in sweep.parameters and not np.isnan(sweep.parameters[name][own]).all())
    along = next(known, None)
    column = sweep.parameters[along] if along else np.zeros(len(mean))
    alphas = sweep.parameters["alpha"]
    for value in np.unique(column[own]):
        there = np.flatnonzero(own & (column == value) & (alphas > 0.0))
        steps = np.unique(alphas[there])
        best = [some[np.argmin(mean[some])] for some in (there[alphas[there] == step] for step in steps)]
        label = f"{SYMBOLS[along]} = {value:.4g}" if along else ""
        yield label, steps, np.where(np.isfinite(mean[best]), mean[best], 1e9), se[best]


def _over_lambda(sweep: Sweep, plt: Any) -> Any:
    """One line per rule: at each λ the best of all other parameters."""
    figure, place = plt.subplots(figsize=(5.2, 3.6), layout="constrained")
    mean, se = sweep.over_runs("mean")
    for rule in dict.fromkeys(sweep.labels):
        for along in ALONG:
            values, best = best_along(sweep, rule, along)
            if len(values):
                name = rule if along == "lambda" else f"{rule} ({SYMBOLS[along]})"
                shown = np.where(np.isfinite(mean[best]), mean[best], np.nan)
                place.errorbar(values, shown, _wide(sweep) * se[best], fmt="-o", ms=3, lw=1.2, capsize=2, label=name)
                break
    if not place.has_data():
        raise ValueError("No rule of this sweep has several settings of λ, ζ or ξ: there is nothing to draw.")
    _levels(sweep, [place])
    place.set(xlabel="λ", ylabel=f"{_ylabel(sweep)}, at the best α")
    place.legend(fontsize=7, frameon=False)
    return figure


def _while_learning(sweep: Sweep, plt: Any) -> Any:
    """Learning curves of the best settings, the steps on a logarithmic axis from 1."""
    figure, place = plt.subplots(figsize=(5.2, 3.6), layout="constrained")
    reported, numbers = (sweep, sweep.choose()) if sweep.rerun is None else (sweep.rerun, range(len(sweep.best)))
    for row, number in zip(sweep.best, numbers, strict=True):
        mean, se = over_runs(reported.curve[number].T)
        half = _wide(reported) * se
        (line,) = place.plot(reported.points + 1, mean, lw=1.3, label=row["rule"])
        place.fill_between(reported.points + 1, mean - half, mean + half, color=line.get_color(), alpha=0.2, lw=0)
    _levels(sweep, [place])
    place.set(xscale="log", xlabel="step", ylabel=sweep.plan.source.metric, ylim=(0.0, _ceiling(sweep)))
    place.legend(fontsize=7, frameon=False)
    return figure


def _levels(sweep: Sweep, axes: Any) -> None:
    for value in sweep.plan.source.baselines(sweep.plan.runs).values():
        for place in axes:
            place.axhline(value, color="0.6", lw=0.8, ls=":", zorder=0)


def _ceiling(sweep: Sweep) -> float:
    """An upper limit slightly above the error without learning, so that diverging lines do not flatten the rest."""
    usual = max(sweep.plan.source.baselines(sweep.plan.runs).values())
    mean = sweep.over_runs("mean")[0]
    least = float(np.min(mean[np.isfinite(mean)], initial=math.inf))
    return 1.15 * max(usual, 1.2 * least if math.isfinite(least) else 0.0) or 1.0


def _ylabel(sweep: Sweep) -> str:
    return f"mean {sweep.plan.source.metric}"
