"""The page of a sweep: its numbers as ``sweep_page`` needs them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from emphatic.common import versions
from emphatic.studies.drawing import ALONG, best_along
from emphatic.studies.grid import GridSettings
from emphatic.studies.results import over_runs
from emphatic.studies.sweep_page import SweepPage, sweep_page

if TYPE_CHECKING:
    from emphatic.studies.results import Sweep

__all__ = ["format_value", "page"]

#: The parameter of the lines in a rule's panel: the first of these that it has.
_LINES = ("lambda", "zeta", "xi", "beta", "eta", "kappa")


def page(sweep: Sweep) -> str:
    """The whole page."""
    plan, source = sweep.plan, sweep.plan.source
    runs = "one run" if plan.runs == 1 else f"{plan.runs} runs"
    steps = "all steps" if plan.every == 1 else f"one step in {plan.every}"
    over = steps if plan.runs == 1 else f"{runs} and {steps}"
    weighted = "by d_μ·I" if getattr(source, "d", None) is None else "as given"
    kept = f"weighted {weighted}, mean over" if source.metric == "RMSVE" else "the root mean square over"
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
            along=list(_along(sweep)),
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
    mean, se = sweep.over_runs("mean")
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


def _along(sweep: Sweep) -> Iterator[dict[str, Any]]:
    """For each rule its least error at each λ, or at each ζ or ξ."""
    mean, se = sweep.over_runs("mean")
    for rule in dict.fromkeys(sweep.labels):
        for name in ALONG:
            values, best = best_along(sweep, rule, name)
            if len(values):
                words = [_setting(sweep, number) for number in best]
                yield {"rule": rule, "x_name": name, "x": values, "mean": mean[best], "se": se[best], "settings": words}
                break


def _setting(sweep: Sweep, number: int) -> str:
    own = {name: float(column[number]) for name, column in sweep.parameters.items()}
    return _words({name: value for name, value in own.items() if not math.isnan(value)})


def _learning(sweep: Sweep, best: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    out = []
    for i, row in enumerate(best):
        # (those that were chosen by their mean have fresh runs, if there are any)
        curve = (
            sweep.rerun.curve[i] if sweep.rerun is not None and "chosen_runs" in row else sweep.curve[row["setting"]]
        )
        mean, se = over_runs(curve.T)
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
    """The rows of the table: α and λ, and the other parameters in words."""
    parameters = set(sweep.parameters)
    rows = []
    for row in sweep.best:
        second = {name: value for name, value in row.items() if name in parameters - {"alpha", "lambda"}}
        own = {name: value for name, value in row.items() if name not in second}
        rows.append({"alpha": None, "lambda": None} | own | {"second": _words(second)})
    return rows


def _grid(settings: Sequence[GridSettings]) -> dict[str, Any]:
    """The grid of each rule; a rule that is in several grids has several entries."""
    grids: dict[str, Any] = {}
    for some in settings:
        same = sum(one.label == some.label for one in settings[: len(grids)])
        spans = {name: _span(list(dict.fromkeys(column.tolist()))) for name, column in some.values.items()}
        grids[f"{some.label}, grid {same + 1}" if same else some.label] = spans
    return grids


def _span(values: list[float]) -> str:
    """The values of a parameter; a long geometric series by its ends.

    >>> _span([2.0**k for k in range(-18, 1)])
    '2⁻¹⁸ … 1, by a factor of 2'
    """
    factor = values[1] / values[0] if len(values) > 3 and min(values) > 0.0 else 0.0
    if factor and np.allclose(np.divide(values[1:], values[:-1]), factor, rtol=1e-9):
        return f"{format_value(values[0])} … {format_value(values[-1])}, by a factor of {factor:g}"
    return ", ".join(map(format_value, values))
