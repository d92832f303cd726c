"""The results of a sweep: one row per setting and run, one row per setting, the best of each rule; and the files."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from emphatic.common.files import atomic_file
from emphatic.studies.plan import SweepPlan
from emphatic.studies.scores import Scores
from emphatic.studies.statistics import CONFIDENCE, Interval, difference, interval, median_interval, t_quantile

__all__ = ["Sweep", "over_runs"]

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False, repr=False)
class Sweep:
    """The scores of every setting, (settings, runs), and the plan that produced them.

    ``table`` is the tidy table: one row per setting and run, with the setting's number and parameters (null where the
    rule has no such parameter), ``run``, ``mean`` (over the steps), ``final``, ``diverged`` and ``curve`` (at
    ``points``). ``settings`` has one row per setting, with means, standard errors and 95% intervals over the runs.
    Where weights would no longer have been finite the error is infinite. Divergence is counted, never averaged: a
    setting that diverged in any run has an infinite mean, and ``diverged`` counts those runs.

    ``rerun`` has the best settings on fresh runs, if requested: ``best`` then reports those.
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
        """From the scores of each task, in the plan's order."""
        per_run = len(scores) // plan.runs

        def whole(name: str) -> Any:
            runs = [
                np.concatenate([getattr(part, name) for part in scores[run * per_run : (run + 1) * per_run]])
                for run in range(plan.runs)
            ]
            return np.stack(runs, axis=1)

        return cls(plan, whole("mean"), whole("final"), whole("curve"), whole("diverged"), seconds)

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
        return [some.name for some in self.plan.settings for _ in range(len(some))]

    @cached_property
    def methods(self) -> list[str]:
        """The step-size method of each setting; "" where α alone sets the step sizes."""
        return [some.method for some in self.plan.settings for _ in range(len(some))]

    @cached_property
    def labels(self) -> list[str]:
        """The rule of each setting, and its method where there is one: settings with the same label belong together."""
        return [some.label for some in self.plan.settings for _ in range(len(some))]

    @cached_property
    def parameters(self) -> dict[str, Array]:
        """Each parameter of all settings; NaN where a rule has no such."""
        names = dict.fromkeys(name for some in self.plan.settings for name in some.values)
        none = [np.full(len(some), np.nan) for some in self.plan.settings]
        return {
            name: np.concatenate(
                [some.values.get(name, gap) for some, gap in zip(self.plan.settings, none, strict=True)]
            )
            for name in names
        }

    @cached_property
    def table(self) -> Any:
        """One row per setting and run, as a ``pyarrow.Table``."""
        import pyarrow as pa

        S, R = self.mean.shape
        number = np.repeat(np.arange(S, dtype=np.int32), R)
        columns: dict[str, Any] = {"setting": number} | self._described(number)
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

        number = np.arange(len(self.mean), dtype=np.int32)
        columns: dict[str, Any] = {"setting": number} | self._described(number)
        for name in ("mean", "final"):
            columns[name], error = self.over_runs(name)
            columns[f"{name}_se"] = pa.array(error, mask=np.isnan(error))  # of one run, or of infinite ones, unknown
            half = error * (t_quantile(0.5 + CONFIDENCE / 2, self.plan.runs - 1) if self.plan.runs > 1 else np.nan)
            for end, sign in (("low", -1.0), ("high", 1.0)):
                columns[f"{name}_{end}"] = pa.array(columns[name] + sign * half, mask=np.isnan(half))
        columns["diverged"] = self.diverged.sum(axis=1).astype(np.int32)
        columns["runs"] = np.full(len(number), self.plan.runs, np.int32)
        return pa.table(columns)

    def over_runs(self, name: str) -> tuple[Array, Array]:
        """The mean over the runs of "mean" or "final" and its standard error; infinite and NaN where one diverged."""
        mean, error = over_runs(getattr(self, name))
        lost = self.diverged.any(axis=1)
        return np.where(lost, np.inf, mean), np.where(lost, np.nan, error)

    def _described(self, number: NDArray[np.int32]) -> dict[str, Any]:
        import pyarrow as pa

        rules = pa.array(self.rules).dictionary_encode()
        columns = {"rule": rules.take(pa.array(number))}
        if any(self.methods):
            methods = pa.array([name or None for name in self.methods]).dictionary_encode()
            columns["stepsize"] = methods.take(pa.array(number))
        return columns | {
            name: pa.array(column[number], mask=np.isnan(column[number])) for name, column in self.parameters.items()
        }

    @cached_property
    def best(self) -> list[dict[str, Any]]:
        """The setting of each rule with the least mean error, as {rule, setting, alpha, …, mean, mean_se, …}.

        ``mean_low`` and ``mean_high`` are the ends of the 95% interval and ``interval`` how it was found, "t" or
        "bootstrap"; ``median`` has an interval too, by bootstrap. ``worse_by`` is the distance from the best of all,
        run by run, with its interval: a rule is clearly worse if ``worse_low`` is above 0. With ``rerun`` all of it is
        from the fresh runs, and ``chosen_mean`` from the ``chosen_runs`` on which the setting was chosen.
        """
        return self.bests("mean")

    def bests(self, by: str) -> list[dict[str, Any]]:
        """The same, by "mean" or "final"."""
        chosen = self.choose(by)
        reported, at = (self, chosen) if self.rerun is None or by != "mean" else (self.rerun, list(range(len(chosen))))
        rows = [reported._row(i) for i in at]
        order = sorted(at, key=lambda i: reported.over_runs(by)[0][i])
        for row, i, number in zip(rows, at, chosen, strict=True):
            row |= _ends("worse", reported.compare(i, order[0], by), "worse_by")
            row["setting"] = number
            if reported is not self:
                row |= {"chosen_mean": float(self.over_runs(by)[0][number]), "chosen_runs": self.plan.runs}
        return rows

    def choose(self, by: str = "mean") -> list[int]:
        """The number of each rule's best setting; one that diverged in some run only where there is no other."""
        error, rules = over_runs(getattr(self, by))[0], np.array(self.labels)
        chosen = []
        for rule in dict.fromkeys(self.labels):
            own = np.flatnonzero(rules == rule)
            lost = self.diverged[own].any(axis=1)
            chosen.append(int(own[np.lexsort((error[own], lost))[0]]))
        return chosen

    def compare(self, setting: int, other: int, by: str = "mean") -> Interval:
        """How much larger the error of a setting is than that of another, run by run: they share their streams.

        The first is clearly worse if the whole interval is above 0 (``above_zero``).

        >>> from emphatic.studies import sweep
        >>> found = sweep("chain", {"rule": "td", "alpha": [0.001, 0.01], "lambda": 0}, runs=5, steps=1000)
        >>> found.compare(0, 1).above_zero
        True
        """
        if self.diverged[[setting, other]].any():
            return Interval(math.nan, math.nan, math.nan, "")
        values = getattr(self, by)
        return difference(values[setting], values[other])

    def _row(self, number: int) -> dict[str, Any]:
        """The entry of ``best`` for one setting."""
        row = self.settings.slice(number, 1).to_pylist()[0]
        errors = np.where(self.diverged[number], np.inf, self.mean[number])
        sure, middle = interval(errors), median_interval(errors)
        row |= _ends("mean", sure) | {"interval": sure.how or None} | _ends("median", middle, "median")
        return {name: value for name, value in row.items() if value is not None}

    def plot(self, x: str = "alpha", path: str | os.PathLike[str] | None = None) -> Any:
        """A figure for a paper, by matplotlib: ``pip install 'emphatic[plot]'``.

        ``x`` is "alpha" (the error against the step size, one panel per rule and one line per λ), "lambda" (each rule's
        least error against λ) or "steps" (learning curves of the best settings, the steps on a logarithmic axis). The
        figure is returned, and written to ``path`` in the format of its suffix: .svg, .pdf or .png.
        """
        from emphatic.studies.figures import draw

        return draw(self, x, path)

    def about(self) -> dict[str, Any]:
        """What was swept."""
        source, plan = self.plan.source, self.plan
        return {
            "problem": source.name, "metric": source.metric, "steps": source.steps, "every": plan.every,
            "runs": plan.runs, "seed": getattr(source, "seed", None), "theta": getattr(source, "theta", None),
            "points": plan.points.tolist(), "weights": getattr(source, "weights", None),
            "rerun": None if self.rerun is None else self.rerun.plan.runs,
        }  # fmt: skip

    # ------------------------------------------------------------------ in files

    def write(self, out: str | os.PathLike[str]) -> None:
        """Write ``results.parquet``, ``settings.parquet``, ``summary.json`` and ``report.html``, each atomically.

        With ``rerun`` also ``rerun.parquet``, the table of the fresh runs.
        """
        import pyarrow.parquet as pq

        from emphatic.studies.pages import page

        folder, again = Path(out), None if self.rerun is None else self.rerun.table
        folder.mkdir(parents=True, exist_ok=True)
        summary = self.about() | {
            "settings": len(self.mean),
            "learner_steps": self.plan.learner_steps,
            "seconds": self.seconds,
            "baselines": self.plan.source.baselines(self.plan.runs),
            "best": [{name: _finite_or_none(value) for name, value in row.items()} for row in self.best],
        }
        text = json.dumps(summary, indent=1, ensure_ascii=False, allow_nan=False)
        files: dict[str, Callable[[BinaryIO], Any]] = {
            "results.parquet": lambda file: pq.write_table(self.table, file, compression="zstd"),
            "settings.parquet": lambda file: pq.write_table(self.settings, file, compression="zstd"),
            **(
                {} if again is None else {"rerun.parquet": lambda file: pq.write_table(again, file, compression="zstd")}
            ),
            "summary.json": lambda file: file.write(text.encode()),
            "report.html": lambda file: file.write(page(self).encode()),
        }
        for name, write in files.items():
            with atomic_file(folder / name) as file:
                write(file)


def over_runs(values: NDArray[Any]) -> tuple[Array, Array]:
    """The mean over runs (the second axis) and its standard error; NaN for that where there is but one run."""
    R = values.shape[1]
    with np.errstate(all="ignore"):
        mean = values.mean(axis=1, dtype=np.float64)
        if R < 2:
            return mean, np.full(mean.shape, np.nan)
        return mean, values.std(axis=1, ddof=1, dtype=np.float64) / math.sqrt(R)


def _finite_or_none(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _ends(name: str, found: Interval, value: str | None = None) -> dict[str, Any]:
    """An interval as columns; with ``value`` its middle too."""
    made = {f"{name}_low": found.low, f"{name}_high": found.high} | ({value: found.value} if value else {})
    return {key: None if math.isnan(number) else number for key, number in made.items()}
