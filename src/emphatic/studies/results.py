"""What came of a sweep: one row a setting and run, one row a setting, the best of each rule; and the files."""

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

__all__ = ["Sweep"]

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False, repr=False)
class Sweep:
    """The scores of every setting, (settings, runs), and what they were asked of.

    ``table`` is the tidy table: a row a setting and run, with the setting's number and parameters (null where the
    rule has no such), ``run``, ``mean`` (over the steps), ``final``, ``diverged`` and ``curve`` (at ``points``).
    ``settings`` has a row a setting, with means and standard errors over the runs. Where weights would no longer have
    been finite the error is infinite.
    """

    plan: SweepPlan
    mean: Array
    final: Array
    curve: NDArray[np.float32]
    diverged: NDArray[np.bool_]
    seconds: float

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
        return [some.rule for some in self.plan.settings for _ in range(len(some))]

    @cached_property
    def methods(self) -> list[str]:
        """How each setting finds its step sizes; "" where α alone says them."""
        return [some.method for some in self.plan.settings for _ in range(len(some))]

    @cached_property
    def labels(self) -> list[str]:
        """The rule of each setting, and its method where there is one: settings of one label are held together."""
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
        """One row a setting and run, as a ``pyarrow.Table``."""
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
        """One row a setting, with means and standard errors over the runs, as a ``pyarrow.Table``."""
        import pyarrow as pa

        number = np.arange(len(self.mean), dtype=np.int32)
        columns: dict[str, Any] = {"setting": number} | self._described(number)
        for name in ("mean", "final"):
            columns[name], error = over_runs(getattr(self, name))
            columns[f"{name}_se"] = pa.array(error, mask=np.isnan(error))  # of one run, or of infinite ones, unknown
        columns["diverged"] = self.diverged.sum(axis=1).astype(np.int32)
        columns["runs"] = np.full(len(number), self.plan.runs, np.int32)
        return pa.table(columns)

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
        """The setting of each rule (and step size) with the least mean error: {rule, setting, alpha, …, mean, …}."""
        return self.bests("mean")

    def bests(self, by: str) -> list[dict[str, Any]]:
        """The same, by "mean" or "final"."""
        error = over_runs(getattr(self, by))[0]
        labels = np.array(self.labels)
        rows = []
        for label in dict.fromkeys(self.labels):
            own = np.flatnonzero(labels == label)
            lost = self.diverged[own].any(axis=1)  # whatever its error, only where there is no other
            chosen = int(own[np.lexsort((error[own], lost))[0]])
            row = self.settings.slice(chosen, 1).to_pylist()[0]
            rows.append({name: value for name, value in row.items() if value is not None})
        return rows

    def about(self) -> dict[str, Any]:
        """What was swept."""
        source, plan = self.plan.source, self.plan
        return {
            "problem": source.name, "metric": source.metric, "steps": source.steps, "every": plan.every,
            "runs": plan.runs, "seed": getattr(source, "seed", None), "theta": getattr(source, "theta", None),
            "points": plan.points.tolist(),
        }  # fmt: skip

    # ------------------------------------------------------------------ in files

    def write(self, out: str | os.PathLike[str]) -> None:
        """``results.parquet``, ``settings.parquet``, ``summary.json`` and ``report.html``, each whole or not at all."""
        import pyarrow.parquet as pq

        from emphatic.studies.page import page

        folder = Path(out)
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
