"""The plan of a sweep: tasks that can run in any order, on any machine."""

from __future__ import annotations

import hashlib
import inspect
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from importlib.metadata import version
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from emphatic.learning.inputs import refusal, whole
from emphatic.rules import AnyRule
from emphatic.studies.conditions import on_one_thread
from emphatic.studies.grid import GridSettings, settings
from emphatic.studies.least_squares_rule import LeastSquaresRule
from emphatic.studies.recorded import Recorded
from emphatic.studies.scores import Scores
from emphatic.studies.simulated import Simulated

__all__ = ["SweepPlan", "Task", "fingerprint"]

#: Settings that learn side by side in one task, at most: a task should take seconds, and its errors little memory.
_TOGETHER = 2048
#: The default number of points of a curve.
_POINTS = 50


@dataclass(frozen=True)
class Task:
    """Some settings of one rule in one run; ``first`` is the number of the first of them."""

    source: Simulated | Recorded
    run: int
    first: int
    settings: GridSettings
    every: int
    points: NDArray[np.int64]

    def __call__(self) -> Scores:
        return on_one_thread(self.source.score, self.run, self.settings, self.every, self.points)


@dataclass(frozen=True)
class SweepPlan:
    """All settings on all runs of a source; errors at every ``every``-th step, kept at ``points``."""

    source: Simulated | Recorded
    settings: tuple[GridSettings, ...]
    runs: int
    every: int
    points: NDArray[np.int64]
    first_run: int = 0

    @staticmethod
    def of(
        source: Simulated | Recorded, grid: Mapping[str, Any] | Sequence[Mapping[str, Any]], runs: int, every: int,
        points: int | Sequence[int] | None,
    ) -> SweepPlan:  # fmt: skip
        """The plan, with everything checked that can be checked before the first step."""
        whole("runs", runs, "sweep")
        whole("every", every, "sweep")
        if isinstance(source, Recorded):
            for name, value in (("runs", runs), ("every", every)):
                if value != 1:
                    raise refusal(name, "sweep", "be 1 on a log, which is used once and as it is", repr(value))
        if isinstance(points, Sequence | np.ndarray):
            chosen = _chosen(points, source, every)
        elif points is None:
            chosen = source.points(_POINTS, every, early=True)
        else:
            chosen = source.points(whole("points", points, "sweep"), every)
        plan = SweepPlan(source, settings(grid), runs, every, chosen)
        for some in plan.settings:
            source.check(some)
        return plan

    @property
    def learner_steps(self) -> int:
        """Steps of all learners together."""
        return self.runs * self.source.steps * sum(map(len, self.settings))

    @cached_property
    def tasks(self) -> list[Task]:
        """The work, run by run."""
        out = []
        for run in range(self.first_run, self.first_run + self.runs):
            first = 0
            for some in self.settings:
                pieces = -(-len(some) // _TOGETHER)
                edges = [len(some) * i // pieces for i in range(pieces + 1)]
                for begin, end in pairwise(edges):
                    part = some.part(begin, end)
                    out.append(Task(self.source, run, first + begin, part, self.every, self.points))
                first += len(some)
        return out

    @cached_property
    def identity(self) -> str:
        """A hash that identifies the plan, so that a sweep resumes only from its own finished tasks."""
        grids: list[Any] = [
            [one.name, fingerprint(one.rule), {name: column.tolist() for name, column in one.values.items()}]
            + ([] if one.stepsize is None else [one.stepsize.config()])
            for one in self.settings
        ]
        content = [version("emphatic"), self.source.identity(), grids, self.runs, self.every, self.points.tolist()]
        content += [self.first_run] if self.first_run else []
        return hashlib.sha256(json.dumps(content).encode()).hexdigest()

    def rerun(self, chosen: Sequence[tuple[int, int]], runs: int) -> SweepPlan:
        """Some settings, each by its grid and its number there, on runs that come after these."""
        some = tuple(self.settings[grid].part(number, number + 1) for grid, number in chosen)
        return replace(self, settings=some, runs=runs, first_run=self.first_run + self.runs)


def fingerprint(rule: AnyRule | LeastSquaresRule) -> str:
    """A hash of a rule: all its fields, and the source of its functions, not only its name."""
    digest = hashlib.sha256()
    for field in fields(rule):
        value = getattr(rule, field.name)
        text = _source_of(value) if callable(value) else repr(value)
        digest.update(f"{field.name}: {text}\n".encode())
    return digest.hexdigest()


def _source_of(function: Any) -> str:
    """The text of a function, or its code where there is no text."""
    try:
        return inspect.getsource(function)
    except (OSError, TypeError):
        code = getattr(function, "__code__", None)
        return repr(function) if code is None else repr((code.co_code, code.co_consts, code.co_names))


def _chosen(points: Sequence[int] | NDArray[Any], source: Simulated | Recorded, every: int) -> NDArray[np.int64]:
    """The points as given, checked: on a problem, steps with an error; on a log, the ends of its pieces."""
    first, end = (1, source.steps + 1) if isinstance(source, Recorded) else (0, source.steps)
    steps = [step for step in points if isinstance(step, int | np.integer) and first <= step < end and not step % every]
    if not steps or len(steps) < len(points):
        wanted = f"be whole numbers from {first} to {end - 1}" + (f", multiples of {every}" if every > 1 else "")
        raise refusal("points", "sweep", wanted, repr(points))
    return np.unique(np.array(steps, np.int64))
