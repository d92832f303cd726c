"""The page of a sweep: its numbers as ``sweep_page`` needs them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from emphatic.common.versions import versions
from emphatic.studies.grid import GridSettings
from emphatic.studies.results import over_runs
from emphatic.studies.sweep_page import SweepPage, sweep_page

if TYPE_CHECKING:
    from emphatic.studies.results import Sweep

__all__ = ["format_value", "page"]

#: What a line of a rule's panel stands for: the first of these that it has.
_LINES = ("lambda", "zeta", "xi", "beta", "eta", "kappa")


def page(sweep: Sweep) -> str:
    """The whole page."""
    plan, source = sweep.plan, sweep.plan.source
    runs = "one run" if plan.runs == 1 else f"{plan.runs} runs"
    steps = "all steps" if plan.every == 1 else f"one step in {plan.every}"
    over = steps if plan.runs == 1 else f"{runs} and {steps}"
    kept = "weighted by d_μ, mean over" if source.metric == "RMSVE" else "the root mean square over"
    rules = dict.fromkeys(sweep.labels)
    return sweep_page(
        SweepPage(
            title=source.name,
            intro=f"{len(sweep.mean):,} settings of {len(rules)} {'rules' if len(rules) > 1 else 'rule'}, "
            f"{runs} of {source.steps:,} steps each.",
            metric=source.metric,
            unit=f"{kept} {over}",
            counts={
                "settings": len(sweep.mean),
                "runs": plan.runs,
                "steps": source.steps,
                "learner_steps": plan.learner_steps,
                "diverged_settings": int(sweep.diverged.any(axis=1).sum()),
                "diverged_runs": int(sweep.diverged.sum()),
            },
            sensitivity=list(_sensitivity(sweep)),
            learning={"points": sweep.points.tolist()}
            | {f"best {by}": _learning(sweep, sweep.bests(by)) for by in ("mean", "final")},
            best=_bests(sweep),
            baseline=source.baselines(plan.runs),
            settings={name: value for name, value in sweep.about().items() if value is not None}
            | {"points": len(sweep.points), "grid": _grid(plan.settings)},
            seconds={"learning": sweep.seconds},
            versions=versions(),
        )
    )


def format_value(value: float) -> str:
    """A parameter's value: powers of two as such.

    >>> [format_value(v) for v in (2.0**-8, 0.9, 0.5, 0.0, 16.0)]
    ['2⁻⁸', '0.9', '0.5', '0', '16']
    """
    fraction, exponent = math.frexp(value)
    if fraction == 0.5 and exponent < 0:
        return "2⁻" + "".join("⁰¹²³⁴⁵⁶⁷⁸⁹"[int(digit)] for digit in str(1 - exponent))
    return f"{value:.6g}"


def _words(parameters: dict[str, Any]) -> str:
    texts = {name: value if isinstance(value, str) else format_value(value) for name, value in parameters.items()}
    return ", ".join(f"{name} = {value}" for name, value in texts.items())


def _given(column: NDArray[np.float64]) -> list[float | str]:
    """The values of a parameter; where one of several grids of a rule does not set it, words."""
    return ["not set" if math.isnan(value) else value for value in column.tolist()]


def _sensitivity(sweep: Sweep) -> Iterator[dict[str, Any]]:
    """For each rule the errors over α: a line for each λ, a panel for each choice of the rest."""
    mean, se = over_runs(sweep.mean)
    share = sweep.diverged.mean(axis=1)
    rules = np.array(sweep.labels)
    for rule in dict.fromkeys(sweep.labels):
        own = np.flatnonzero((rules == rule) & (sweep.parameters["alpha"] > 0.0))  # a logarithmic axis has no 0
        if not len(own):
            continue
        values = {name: column[own] for name, column in sweep.parameters.items() if not np.isnan(column[own]).all()}
        alpha = values.pop("alpha")
        line = next((name for name in _LINES if name in values), "")
        along = _given(values.pop(line) if line else np.full(len(own), np.nan))
        rest = list(zip(*map(_given, values.values()), strict=True)) if values else [()] * len(own)

        def lines(some: Any, along: Any = along, alpha: Any = alpha, own: Any = own) -> list[dict[str, Any]]:
            out = []
            for value in dict.fromkeys(along[i] for i in some):
                here = np.array([i for i in some if along[i] == value])
                order = here[np.argsort(alpha[here])]
                at = own[order]
                out.append(
                    {
                        "value": value,
                        "alpha": alpha[order],
                        "mean": mean[at],
                        "se": se[at],
                        "diverged": share[at],
                    }
                )
            return out

        choices = list(dict.fromkeys(rest))
        panels = [
            {
                "choice": _words(dict(zip(values, chosen, strict=True))),
                "lines": lines(np.array([i for i, one in enumerate(rest) if one == chosen])),
            }
            for chosen in choices
        ]
        yield {"rule": rule, "x_name": "alpha", "line_name": line, "panels": panels}


def _learning(sweep: Sweep, best: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    out = []
    for row in best:
        mean, se = over_runs(sweep.curve[row["setting"]].T)
        names = [name for name in sweep.parameters if name in row]
        out.append(
            {
                "rule": sweep.labels[row["setting"]],
                "setting": _words({n: row[n] for n in names}),
                "mean": mean,
                "se": se,
            }
        )
    return out


def _bests(sweep: Sweep) -> list[dict[str, Any]]:
    """The rows of the table, each with the standard error of its distance from the best: runs share their streams."""
    least = min(sweep.best, key=lambda row: float(row["mean"]))
    with np.errstate(invalid="ignore"):
        apart = [sweep.mean[[row["setting"]]] - sweep.mean[[least["setting"]]] for row in sweep.best]
    return [_best(row) | {"apart_se": float(over_runs(one)[1][0])} for row, one in zip(sweep.best, apart, strict=True)]


def _best(row: dict[str, Any]) -> dict[str, Any]:
    """A row of the table: α and λ, the rest in words."""
    known = ("rule", "setting", "alpha", "lambda", "mean", "mean_se", "final", "final_se", "diverged", "runs")
    second = {name: value for name, value in row.items() if name not in known}
    return {name: row.get(name) for name in known} | {"second": _words(second)}


def _grid(settings: Sequence[GridSettings]) -> dict[str, Any]:
    """What was tried of each rule; a rule that is in several grids has several numbers."""
    grids: dict[str, Any] = {}
    for some in settings:
        same = sum(one.label == some.label for one in settings[: len(grids)])
        spans = {name: _span(list(dict.fromkeys(column.tolist()))) for name, column in some.values.items()}
        grids[f"{some.label}, grid {same + 1}" if same else some.label] = spans
    return grids


def _span(values: list[float]) -> str:
    """The values of a parameter; many that go by one factor by their ends.

    >>> _span([2.0**k for k in range(-18, 1)])
    '2⁻¹⁸ … 1, by a factor of 2'
    """
    factor = values[1] / values[0] if len(values) > 3 and min(values) > 0.0 else 0.0
    if factor and np.allclose(np.divide(values[1:], values[:-1]), factor, rtol=1e-9):
        return f"{format_value(values[0])} … {format_value(values[-1])}, by a factor of {factor:g}"
    return ", ".join(map(format_value, values))
