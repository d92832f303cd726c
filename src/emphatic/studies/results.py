"""The results of a sweep.

``Sweep`` has one row per setting and run, one row per setting, the best of each rule, and writes the files.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from emphatic.common.files import atomic_file
from emphatic.studies.grid import parameters
from emphatic.studies.sources import Scores
from emphatic.studies.statistics import (
    Interval,
    difference,
    interval,
    mean_intervals,
    median_interval,
    over_runs,
    tolerance_interval,
)

if TYPE_CHECKING:
    from emphatic.studies.sweeps import SweepPlan

__all__ = ["ALONG", "Sweep"]

Array = NDArray[np.float64]

#: The parameter of the curves of a rule: the first of these that it has.
ALONG = ("lambda", "zeta", "xi")


@dataclass(frozen=True, eq=False, repr=False)
class Sweep:
    """The scores of every setting, (settings, runs), and the plan that produced them.

    ``table`` is the tidy table: one row per setting and run, with the setting's number and parameters (null where the
    rule has no such parameter), ``run``, ``mean`` (over the steps), ``final``, ``diverged`` and ``curve`` (at
    ``points``). ``settings`` has one row per setting, with means, standard errors and 95% intervals over the runs.
    Where weights would no longer have been finite the error is infinite. Divergence is counted, never averaged: a
    setting that diverged in any run has an infinite mean, and ``diverged`` counts those runs.

    Args:
        plan: What was swept.
        mean: Error over all steps, (settings, runs).
        final: Error at the end, (settings, runs).
        curve: Errors at the plan's P points, (settings, runs, P).
        diverged: Which runs diverged, (settings, runs).
        seconds: Time spent on learning.
        rerun: The best settings on fresh runs, if requested: ``best`` then reports those.
        rerun_lines: The other settings of the figures against λ and against α at the best λ, on the same fresh runs.
        tolerance: The share of runs of the tolerance intervals in ``best``; None for none.
        distribution: Whether the page shows the errors of all runs of the best settings.
    """

    plan: SweepPlan
    mean: Array
    final: Array
    curve: NDArray[np.float32]
    diverged: NDArray[np.bool_]
    seconds: float
    rerun: Sweep | None = None
    rerun_lines: Sweep | None = None
    tolerance: float | None = None
    distribution: bool = False

    @classmethod
    def of(cls, plan: SweepPlan, scores: Sequence[Scores], seconds: float) -> Sweep:
        """From the scores of each task.

        Args:
            plan: What was swept.
            scores: One of each task, in the plan's order: run by run.
            seconds: Time spent on learning.
        """
        count = len(scores) // plan.runs
        by_run = [
            [np.concatenate(arrays) for arrays in zip(*scores[run * count : (run + 1) * count], strict=True)]
            for run in range(plan.runs)
        ]
        mean, final, curve, diverged = (np.stack(arrays, axis=1) for arrays in zip(*by_run, strict=True))
        return cls(plan, mean, final, curve, diverged, seconds)

    def __repr__(self) -> str:
        S, R = self.mean.shape
        source = self.plan.source
        return f"Sweep({source.name!r}, settings={S}, runs={R}, {source.unit}={source.steps})"

    # ------------------------------------------------------------------ in tables

    @property
    def points(self) -> NDArray[np.int64]:
        """The steps at which the curves have their values; on a log, where its pieces end."""
        return self.plan.points

    @cached_property
    def rules(self) -> list[str]:
        """The rule of each setting."""
        return [group.name for group in self.plan.settings for _ in range(len(group))]

    @cached_property
    def methods(self) -> list[str]:
        """The step-size method of each setting; "" where α alone sets the step sizes."""
        return [group.method for group in self.plan.settings for _ in range(len(group))]

    @cached_property
    def labels(self) -> list[str]:
        """The rule of each setting, and its method where there is one: settings with the same label belong together."""
        return [group.label for group in self.plan.settings for _ in range(len(group))]

    @cached_property
    def parameters(self) -> dict[str, Array]:
        """Each parameter of all settings; NaN where a rule has no such."""
        names = dict.fromkeys(name for group in self.plan.settings for name in group.values)
        return {
            name: np.concatenate([group.values.get(name, np.full(len(group), np.nan)) for group in self.plan.settings])
            for name in names
        }

    @cached_property
    def table(self) -> Any:
        """One row per setting and run, as a ``pyarrow.Table``."""
        import pyarrow as pa

        S, R = self.mean.shape
        settings = np.repeat(np.arange(S, dtype=np.int32), R)
        columns = self._describe(settings)
        columns["run"] = np.tile(np.arange(R, dtype=np.int32), S)
        if self.plan.numbers:
            columns["swept"] = np.repeat(np.array(self.plan.numbers, np.int32), R)
        columns |= {name: getattr(self, name).ravel() for name in ("mean", "final", "diverged")}
        flat = pa.array(self.curve.reshape(-1))
        columns["curve"] = pa.FixedSizeListArray.from_arrays(flat, self.curve.shape[2])
        metadata = {key: value if isinstance(value, str) else json.dumps(value) for key, value in self.about().items()}
        return pa.table(columns).replace_schema_metadata(metadata)

    @cached_property
    def settings(self) -> Any:
        """One row per setting, with means and standard errors over the runs, as a ``pyarrow.Table``."""
        import pyarrow as pa

        S, R = self.mean.shape
        columns = self._describe(np.arange(S, dtype=np.int32))
        for name in ("mean", "final"):
            columns[name], error = self.over_runs(name)
            columns[f"{name}_se"] = pa.array(error, mask=np.isnan(error))  # of one run, or of infinite ones, unknown
            for end, bound in zip(("low", "high"), self.intervals(name), strict=True):
                columns[f"{name}_{end}"] = pa.array(bound, mask=np.isnan(bound))
        columns["diverged"] = self.diverged.sum(axis=1).astype(np.int32)
        columns["runs"] = np.full(S, R, np.int32)
        columns["edge"] = pa.array(self.edges, pa.list_(pa.string()))
        return pa.table(columns)

    def over_runs(self, name: str) -> tuple[Array, Array]:
        """The mean over the runs and its standard error; infinite and NaN where a run diverged.

        Args:
            name: "mean" or "final".
        """
        mean, error = over_runs(getattr(self, name))
        lost = self.diverged.any(axis=1)
        return np.where(lost, np.inf, mean), np.where(lost, np.nan, error)

    def intervals(self, name: str) -> tuple[Array, Array]:
        """The ends of the 95% interval of each setting's mean over the runs; NaN where a run diverged.

        Args:
            name: "mean" or "final".
        """
        return self._intervals[name]

    @cached_property
    def _intervals(self) -> dict[str, tuple[Array, Array]]:
        lost = self.diverged.any(axis=1, keepdims=True)
        return {name: mean_intervals(np.where(lost, np.nan, getattr(self, name))) for name in ("mean", "final")}

    @cached_property
    def edges(self) -> list[list[str]]:
        """The parameters of each setting whose value is the least or the largest of its grid.

        What is compared are the values that were swept with the same other parameters, where there are several. A value
        at the end of what is possible, such as a λ of 0 or 1, is at no edge: the grid cannot be extended there.
        """
        edges: list[list[str]] = [[] for _ in self.labels]
        ranges = [parameters(group.rule) for group in self.plan.settings for _ in range(len(group))]
        for name, column in self.parameters.items():
            for line in self._lines[name]:
                least, largest = column[line[0]], column[line[-1]]
                for setting in line if least < largest else ():
                    low, high = ranges[setting][name]
                    value = column[setting]
                    if (value == least and value > low) or (value == largest and value < high):
                        edges[setting].append(name)
        return edges

    def advice(self, setting: int) -> str:
        """How to extend the grid where a setting is at its edge, in a sentence; "" where it is not.

        Args:
            setting: Number of a setting.
        """
        sentences = []
        for name in self.edges[setting]:
            column = self.parameters[name]
            top = column[setting] == column[self._line(setting, name)].max()
            end, direction = ("largest", "up") if top else ("least", "down")
            sentences.append(f"{name} = {column[setting]:.6g} is the {end} of its grid: extend it {direction}wards.")
        return " ".join(sentences)

    @cached_property
    def _lines(self) -> dict[str, list[list[int]]]:
        """For each parameter, the settings that differ in it only, in the order of its values."""
        lines: dict[str, list[list[int]]] = {}
        for name, column in self.parameters.items():
            rest_of_grid = [values for another, values in self.parameters.items() if another != name]
            # as text, so that what is not set, NaN, is equal
            keys = zip(self.labels, *(map(str, values.tolist()) for values in rest_of_grid), strict=True)
            groups: dict[tuple[str, ...], list[int]] = {}
            for setting, key in enumerate(keys):
                if not math.isnan(column[setting]):
                    groups.setdefault(key, []).append(setting)
            lines[name] = [sorted(group, key=column.__getitem__) for group in groups.values()]
        return lines

    def _line(self, setting: int, name: str) -> list[int]:
        """The settings that differ from one in this parameter only, itself among them; none if it has none such."""
        return next((line for line in self._lines.get(name, []) if setting in line), [])

    def _describe(self, settings: NDArray[np.int32]) -> dict[str, Any]:
        """The columns with the numbers, rules and parameters of these settings."""
        import pyarrow as pa

        columns = {"setting": settings, "rule": pa.array(self.rules).dictionary_encode().take(pa.array(settings))}
        if any(self.methods):
            methods = pa.array([name or None for name in self.methods]).dictionary_encode()
            columns["stepsize"] = methods.take(pa.array(settings))
        return columns | {
            name: pa.array(column[settings], mask=np.isnan(column[settings]))
            for name, column in self.parameters.items()
        }

    @cached_property
    def best(self) -> list[dict[str, Any]]:
        """The setting of each rule with the least mean error, as {rule, setting, alpha, …, mean, mean_se, …}.

        ``mean_low`` and ``mean_high`` are the ends of the 95% interval and ``interval`` how it was computed, "t" or
        "bootstrap"; ``median`` has an interval too, by bootstrap. ``worse_by`` is the distance from the best of all,
        run by run, with its interval: a rule is clearly worse if ``worse_low`` is above 0. With ``rerun`` all of it is
        from the fresh runs, and ``chosen_mean`` from the ``chosen_runs`` on which the setting was chosen.

        ``edge`` names the parameters that are at the edge of their grid, and ``advice`` says how to extend it.
        ``worst`` and ``area`` are those of ``sensitivity`` at the best setting. ``tolerance_low`` and
        ``tolerance_high`` enclose the share ``tolerance`` of all runs. All rows have all of these keys: where a number
        is not known, or not finite, it is None or infinite.
        """
        return self.bests("mean")

    def bests(self, by: str) -> list[dict[str, Any]]:
        """The same as ``best``, by another error.

        Args:
            by: "mean" or "final".
        """
        chosen = self.choose(by)
        rows = [self.reported(setting) for setting in chosen]
        if len({reported.plan.first_run for reported, _ in rows}) > 1:  # not all of them have fresh runs
            rows = [(self, setting) for setting in chosen]
        least = min(rows, key=lambda row: row[0].over_runs(by)[0][row[1]])
        entries = []
        for setting, (reported, row) in zip(chosen, rows, strict=True):
            entry = reported._row(row, self.tolerance)
            entry |= _ends("worse", _compare(reported._errors(row, by), least[0]._errors(least[1], by)))
            fresh = reported is not self
            entry |= {
                "setting": setting,
                "chosen_mean": float(self.over_runs(by)[0][setting]) if fresh else None,
                "chosen_runs": self.plan.runs if fresh else None,
                "edge": self.edges[setting],
                "advice": self.advice(setting),
            }
            curve = self._sensitivity_of(setting)
            entries.append(entry | {name: curve[name] if curve else None for name in ("worst", "area")})
        return entries

    def reported(self, setting: int) -> tuple[Sweep, int]:
        """Where the numbers of a setting that was chosen come from: the fresh runs if it has any, or this sweep.

        Args:
            setting: Number of a setting.

        Returns:
            The sweep, and the number of the setting in it.
        """
        for fresh in (self.rerun, self.rerun_lines):
            if fresh is not None and setting in fresh.plan.numbers:
                return fresh, fresh.plan.numbers.index(setting)
        return self, setting

    def errors_of(self, settings: Sequence[int]) -> Array:
        """The mean errors of settings that were chosen, (settings, runs): infinite in runs that diverged.

        They are from fresh runs, if all of these settings have some.

        Args:
            settings: Numbers of settings.
        """
        rows = [self.reported(setting) for setting in settings]
        if len({reported.plan.first_run for reported, _ in rows}) > 1:
            rows = [(self, setting) for setting in settings]
        return np.stack([reported._errors(row, "mean") for reported, row in rows])

    @property
    def runs_of_best(self) -> dict[str, Array]:
        """The errors of all runs of each rule's best setting; infinite in those that diverged."""
        return dict(zip(dict.fromkeys(self.labels), self.errors_of(self.choose()), strict=True))

    def best_along(self, rule: str, along: str) -> tuple[Array, NDArray[np.int64]]:
        """The values of a parameter that the settings of a rule have, and for each the one with the least mean error.

        Settings that diverged in some run come after all others.

        Args:
            rule: A label of ``labels``.
            along: The name of a parameter.
        """
        mean, of_rule = self.over_runs("mean")[0], np.array(self.labels) == rule
        column = self.parameters.get(along, np.full(len(mean), np.nan))
        values = np.unique(column[of_rule & ~np.isnan(column)])
        settings = [np.flatnonzero(of_rule & (column == value)) for value in values]
        return values, np.array([group[np.argmin(mean[group])] for group in settings], np.int64)

    def along(self, rule: str) -> tuple[str, Array, NDArray[np.int64]]:
        """What takes the place of λ for a rule ("" if nothing does), its values, and the best setting at each.

        Args:
            rule: A label of ``labels``.
        """
        for name in ALONG:
            values, settings = self.best_along(rule, name)
            if len(values):
                return name, values, settings
        return "", np.empty(0), np.empty(0, np.int64)

    def lines_of_figures(self) -> list[int]:
        """The settings besides the best that figures and tables report: at each λ, over α, and with the best end."""
        best = self.choose()
        drawn = {setting for rule in dict.fromkeys(self.labels) for setting in self.along(rule)[2].tolist()}
        drawn |= {setting for chosen in best for setting in self._line(chosen, "alpha")}
        return sorted((drawn | set(self.choose("final"))) - set(best))

    # ------------------------------------------------------------------ sensitivity

    @cached_property
    def sensitivity(self) -> list[dict[str, Any]]:
        """How the error of each rule depends on the step size, one entry for each λ, all else at its best there.

        An entry has ``rule``, the parameters that are the same along the curve, ``at_best`` (whether the rule's best
        setting is on it), ``best_alpha`` (that was chosen), ``edge`` (its parameters that are at the edge of the grid),
        ``alpha``, ``mean``, ``mean_low``, ``mean_high`` and ``diverged`` (a number of runs) of each setting, ``runs``,
        ``fresh`` (whether all of it is from fresh runs), and two numbers:

        - ``worst``: the largest mean error of any α; infinite where one diverged.
        - ``area``: the area under the curve over log α, divided by the length of that axis: the error of an α that is
          drawn from the grid blindly. An error above that of the first weights counts as that: who sees that nothing is
          learned can learn nothing at no cost. It depends on the grid, and is for rules with the same one.
        """
        best = self.choose()
        entries = []
        for rule, chosen in zip(dict.fromkeys(self.labels), best, strict=True):
            settings = self.along(rule)[2].tolist()
            # the best of its λ is the best of all
            for setting in dict.fromkeys(settings or [chosen]):
                entry = self._sensitivity_of(setting)
                if entry:
                    entries.append({"rule": rule, "at_best": chosen in self._line(setting, "alpha")} | entry)
        return entries

    def _sensitivity_of(self, setting: int) -> dict[str, Any]:
        """The curve over α through a setting; empty where it has but one α above 0."""
        alphas = self.parameters["alpha"]
        line = [number for number in self._line(setting, "alpha") if alphas[number] > 0.0]
        if not line or alphas[line[0]] == alphas[line[-1]]:
            return {}
        errors = self.errors_of(line)
        fresh = all(self.reported(number)[0] is not self for number in line)
        mean, (low, high) = over_runs(errors)[0], mean_intervals(errors)
        fixed = {name: float(column[setting]) for name, column in self.parameters.items() if name != "alpha"}
        return {name: value for name, value in fixed.items() if not math.isnan(value)} | {
            "best_alpha": float(alphas[setting]),
            "edge": self.edges[setting],
            "alpha": alphas[line].tolist(),
            "mean": mean.tolist(),
            "mean_low": low.tolist(),
            "mean_high": high.tolist(),
            "diverged": np.isinf(errors).sum(axis=1).tolist(),
            "runs": errors.shape[1],
            "fresh": fresh,
            "worst": float(mean.max()),
            "area": _area(alphas[line], mean, next(iter(self.baselines.values()))),
        }

    @cached_property
    def baselines(self) -> dict[str, float]:
        """Errors to compare with, that of the first weights before the others."""
        return self.plan.source.baselines(self.plan.runs)

    def choose(self, by: str = "mean") -> list[int]:
        """The number of each rule's best setting; one that diverged in some run only where there is no other.

        Args:
            by: "mean" or "final".
        """
        error, labels = over_runs(getattr(self, by))[0], np.array(self.labels)
        lost: NDArray[np.bool_] = np.asarray(self.diverged.any(axis=1))
        chosen = []
        for label in dict.fromkeys(self.labels):
            settings = np.flatnonzero(labels == label)
            chosen.append(int(settings[np.lexsort((error[settings], lost[settings]))[0]]))
        return chosen

    def compare(self, setting: int, other: int, by: str = "mean") -> Interval:
        """How much larger the error of a setting is than that of another, run by run: they share their streams.

        The first is clearly worse if the whole interval is above 0 (``above_zero``).

        Args:
            setting: Number of a setting.
            other: Number of the setting that it is compared with.
            by: "mean" or "final".

        >>> from emphatic.studies import sweep
        >>> result = sweep("chain", {"rule": "td", "alpha": [0.001, 0.01], "lambda": 0}, runs=5, steps=1000)
        >>> result.compare(0, 1).above_zero
        True
        """
        return _compare(self._errors(setting, by), self._errors(other, by))

    def _errors(self, setting: int, by: str) -> Array:
        """The errors of a setting in all runs; infinite in those that diverged."""
        return np.where(self.diverged[setting], np.inf, getattr(self, by)[setting])

    def _row(self, setting: int, tolerance: float | None) -> dict[str, Any]:
        """The entry of ``best`` for one setting, without the parameters that its rule does not have."""
        entry = self.settings.slice(setting, 1).to_pylist()[0]
        errors = self._errors(setting, "mean")
        mean, median = interval(errors), median_interval(errors)
        low, high = (math.nan, math.nan) if tolerance is None else tolerance_interval(errors, tolerance)
        entry |= _ends("mean", mean) | {"interval": mean.how or None} | _ends("median", median)
        entry |= {"tolerance": tolerance} | _ends("tolerance", Interval(math.nan, low, high, ""))
        return {name: value for name, value in entry.items() if value is not None or name not in self.parameters}

    def plot(self, x: str = "alpha", path: str | os.PathLike[str] | None = None) -> Any:
        """A figure for a paper, by matplotlib: ``pip install 'emphatic[plot]'``.

        Args:
            x: "alpha" (the error against the step size, one panel per rule and one line per λ), "rules" (the same in
                one panel, each rule at its best λ), "lambda" (each rule's least error against λ), "steps" (learning
                curves of the best settings, the steps on a logarithmic axis) or "runs" (the errors of all runs of the
                best settings).
            path: The file to write, in the format of its suffix: .svg, .pdf or .png.

        Returns:
            The figure.
        """
        from emphatic.studies.figures import draw

        return draw(self, x, path)

    def about(self) -> dict[str, Any]:
        """What was swept."""
        source, plan = self.plan.source, self.plan
        return {
            "problem": source.name,
            "metric": source.metric,
            source.unit: source.steps,
            "every": plan.every,
            "runs": plan.runs,
            "seed": getattr(source, "seed", None),
            "theta": getattr(source, "theta", None),
            "points": plan.points.tolist(),
            "weights": getattr(source, "weights", None),
            "rerun": None if self.rerun is None else self.rerun.plan.runs,
            "tolerance": self.tolerance,
        }

    # ------------------------------------------------------------------ in files

    def write(self, out: str | os.PathLike[str]) -> None:
        """Write ``results.parquet``, ``settings.parquet``, ``summary.json`` and ``report.html``, each atomically.

        With ``rerun`` also ``rerun.parquet``, the table of the fresh runs, and ``rerun_lines.parquet``, that of the
        other settings in the figures.

        Args:
            out: The folder, which is made if necessary.
        """
        import pyarrow.parquet as pq

        from emphatic.studies.pages import page

        folder = Path(out)
        folder.mkdir(parents=True, exist_ok=True)
        tables = {"results.parquet": self.table, "settings.parquet": self.settings}
        for name in ("rerun", "rerun_lines"):
            if getattr(self, name) is not None:
                tables[f"{name}.parquet"] = getattr(self, name).table
        summary = self.about() | {
            "settings": len(self.mean),
            f"learner_{self.plan.source.unit}": self.plan.learner_steps,
            "seconds": self.seconds,
            "baselines": self.baselines,
            "best": _finite(self.best),
            "sensitivity": _finite(self.sensitivity),
        }
        for name, table in tables.items():
            with atomic_file(folder / name) as file:
                pq.write_table(table, file, compression="zstd")
        with atomic_file(folder / "summary.json") as file:
            file.write(json.dumps(summary, indent=1, ensure_ascii=False, allow_nan=False).encode())
        with atomic_file(folder / "report.html") as file:
            file.write(page(self).encode())


def _ends(name: str, bounds: Interval) -> dict[str, float | None]:
    """An interval as columns; the middle of that of "worse" is ``worse_by``, and that of a median its own."""
    columns = {f"{name}_low": bounds.low, f"{name}_high": bounds.high}
    columns |= {"worse": {"worse_by": bounds.value}, "median": {"median": bounds.value}}.get(name, {})
    return {key: None if math.isnan(number) else number for key, number in columns.items()}


def _compare(errors: Array, baseline: Array) -> Interval:
    """The difference run by run; not known where a run of either diverged."""
    if not (np.isfinite(errors).all() and np.isfinite(baseline).all()):
        return Interval(math.nan, math.nan, math.nan, "")
    return difference(errors, baseline)


def _area(alpha: Array, error: Array, ceiling: float) -> float:
    """The mean over log α of the error, or of the ceiling where it is above that."""
    capped = np.minimum(error, ceiling) if ceiling > 0.0 else error
    place = np.log(alpha)
    middles = 0.5 * (capped[1:] + capped[:-1])
    return float(np.sum(middles * np.diff(place)) / (place[-1] - place[0]))


def _finite(value: Any) -> Any:
    """The same for JSON, which has no infinity: None in its place."""
    if isinstance(value, dict):
        return {name: _finite(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
