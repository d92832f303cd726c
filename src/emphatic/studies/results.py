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
from emphatic.studies.sources import Scores
from emphatic.studies.statistics import (
    CONFIDENCE,
    Interval,
    difference,
    interval,
    median_interval,
    over_runs,
    t_quantile,
)

if TYPE_CHECKING:
    from emphatic.studies.sweeps import SweepPlan

__all__ = ["Sweep"]

Array = NDArray[np.float64]


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
    """

    plan: SweepPlan
    mean: Array
    final: Array
    curve: NDArray[np.float32]
    diverged: NDArray[np.bool_]
    seconds: float
    rerun: Sweep | None = None

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
        return f"Sweep({self.plan.source.name!r}, settings={S}, runs={R}, steps={self.plan.source.steps})"

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
            half = error * (t_quantile(0.5 + CONFIDENCE / 2, R - 1) if R > 1 else np.nan)
            for end, sign in (("low", -1.0), ("high", 1.0)):
                columns[f"{name}_{end}"] = pa.array(columns[name] + sign * half, mask=np.isnan(half))
        columns["diverged"] = self.diverged.sum(axis=1).astype(np.int32)
        columns["runs"] = np.full(S, R, np.int32)
        return pa.table(columns)

    def over_runs(self, name: str) -> tuple[Array, Array]:
        """The mean over the runs and its standard error; infinite and NaN where a run diverged.

        Args:
            name: "mean" or "final".
        """
        mean, error = over_runs(getattr(self, name))
        lost = self.diverged.any(axis=1)
        return np.where(lost, np.inf, mean), np.where(lost, np.nan, error)

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
        """
        return self.bests("mean")

    def bests(self, by: str) -> list[dict[str, Any]]:
        """The same as ``best``, by another error.

        Args:
            by: "mean" or "final".
        """
        chosen = self.choose(by)
        # settings chosen by their mean have fresh runs, in the order in which they were chosen
        reported, rows = (self, chosen) if self.rerun is None or by != "mean" else (self.rerun, [*range(len(chosen))])
        least = min(rows, key=lambda row: reported.over_runs(by)[0][row])
        entries = [reported._row(row) for row in rows]
        for entry, row, setting in zip(entries, rows, chosen, strict=True):
            entry |= _ends("worse", reported.compare(row, least, by), "worse_by")
            entry["setting"] = setting
            if reported is not self:
                entry |= {"chosen_mean": float(self.over_runs(by)[0][setting]), "chosen_runs": self.plan.runs}
        return entries

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
        if self.diverged[[setting, other]].any():
            return Interval(math.nan, math.nan, math.nan, "")
        values = getattr(self, by)
        return difference(values[setting], values[other])

    def _row(self, setting: int) -> dict[str, Any]:
        """The entry of ``best`` for one setting."""
        entry = self.settings.slice(setting, 1).to_pylist()[0]
        errors = np.where(self.diverged[setting], np.inf, self.mean[setting])
        mean, median = interval(errors), median_interval(errors)
        entry |= _ends("mean", mean) | {"interval": mean.how or None} | _ends("median", median, "median")
        return {name: value for name, value in entry.items() if value is not None}

    def plot(self, x: str = "alpha", path: str | os.PathLike[str] | None = None) -> Any:
        """A figure for a paper, by matplotlib: ``pip install 'emphatic[plot]'``.

        Args:
            x: "alpha" (the error against the step size, one panel per rule and one line per λ), "lambda" (each rule's
                least error against λ) or "steps" (learning curves of the best settings, the steps on a logarithmic
                axis).
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
            "steps": source.steps,
            "every": plan.every,
            "runs": plan.runs,
            "seed": getattr(source, "seed", None),
            "theta": getattr(source, "theta", None),
            "points": plan.points.tolist(),
            "weights": getattr(source, "weights", None),
            "rerun": None if self.rerun is None else self.rerun.plan.runs,
        }

    # ------------------------------------------------------------------ in files

    def write(self, out: str | os.PathLike[str]) -> None:
        """Write ``results.parquet``, ``settings.parquet``, ``summary.json`` and ``report.html``, each atomically.

        With ``rerun`` also ``rerun.parquet``, the table of the fresh runs.

        Args:
            out: The folder, which is made if necessary.
        """
        import pyarrow.parquet as pq

        from emphatic.studies.pages import page

        folder = Path(out)
        folder.mkdir(parents=True, exist_ok=True)
        tables = {"results.parquet": self.table, "settings.parquet": self.settings}
        if self.rerun is not None:
            tables["rerun.parquet"] = self.rerun.table
        summary = self.about() | {
            "settings": len(self.mean),
            "learner_steps": self.plan.learner_steps,
            "seconds": self.seconds,
            "baselines": self.plan.source.baselines(self.plan.runs),
            "best": [{name: _finite_or_none(value) for name, value in row.items()} for row in self.best],
        }
        for name, table in tables.items():
            with atomic_file(folder / name) as file:
                pq.write_table(table, file, compression="zstd")
        with atomic_file(folder / "summary.json") as file:
            file.write(json.dumps(summary, indent=1, ensure_ascii=False, allow_nan=False).encode())
        with atomic_file(folder / "report.html") as file:
            file.write(page(self).encode())


def _ends(name: str, bounds: Interval, value: str | None = None) -> dict[str, float | None]:
    """An interval as columns, its middle under the name ``value``."""
    columns = {f"{name}_low": bounds.low, f"{name}_high": bounds.high} | ({value: bounds.value} if value else {})
    return {key: None if math.isnan(number) else number for key, number in columns.items()}


def _finite_or_none(value: object) -> object:
    return None if isinstance(value, float) and not math.isfinite(value) else value
