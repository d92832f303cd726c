"""Sweeps: every setting of a grid on every run, in parallel where possible, with one table of the results."""

from __future__ import annotations

import inspect
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike

from emphatic.learning.inputs import refusal, whole
from emphatic.problems import MDP, Tasks, get
from emphatic.studies.parts import Parts, one_at_a_time
from emphatic.studies.plan import SweepPlan, Task
from emphatic.studies.recorded import Recorded
from emphatic.studies.results import Sweep
from emphatic.studies.scores import Scores
from emphatic.studies.simulated import Simulated
from emphatic.studies.values import numbers

__all__ = ["Track", "sweep"]

#: Called now and then with the learner-steps done so far and in total.
Progress = Callable[[int, int], None]


class Track(Protocol):
    """A function that records a named number at a step: TensorBoard's ``add_scalar``, MLflow's ``log_metric``, …."""

    def __call__(self, name: str, value: float, step: int, /) -> object:
        """Record it."""


@one_at_a_time
def sweep(
    problem: str | MDP | Tasks | Callable[..., MDP | Tasks] | Recorded,
    grid: Mapping[str, Any] | Sequence[Mapping[str, Any]],
    *,
    runs: int | None = None,
    steps: int | None = None,
    every: int = 1,
    points: int | Sequence[int] | None = None,
    seed: int = 0,
    theta: Sequence[float] | str | None = None,
    d: ArrayLike | None = None,
    rerun: int = 0,
    jobs: int | None = None,
    out: str | os.PathLike[str] | None = None,
    resume: bool = True,
    progress: Progress | None = None,
    track: Track | None = None,
) -> Sweep:
    """Learn with every setting of a grid, and report the error of each.

    ``problem`` is a name of ``emphatic.problems.names()``, an ``MDP`` or ``Tasks``, a function that makes one (for each
    run, if it takes a ``seed``), or a ``Recorded`` log. ``grid`` is {"rule": …, "alpha": …, "lambda": …, …}, each one
    or several values, or text such as "2^-10..2^-2"; or a list of such grids. A rule is a name, or a ``Rule`` or
    ``ElementwiseRule`` of your own. All settings of a rule learn side by side in one horde, from the same ``runs``
    streams (10 by default) of ``steps`` steps (10,000), beginning with the weights ``theta`` (0); a log is one run, of
    its own length.

    The error is the root mean square value error weighted by d_μ·I, or by ``d`` (S,), before each ``every``-th update,
    of ``Tasks`` their mean; on a log it is that of the return. Its mean over the steps, its last value and those at
    ``points`` are kept: a number of steps, evenly spread, or the steps themselves; by default 50, half of them
    logarithmically spaced from the beginning.

    The best of many settings looks better than it is. With ``rerun`` the best setting of each rule is chosen on these
    runs and reported on that many others.

    ``jobs`` is for joblib, whose ``parallel_config`` also chooses a cluster; the table is the same for any number. With
    a folder ``out`` the table and a page are written there, and a stopped sweep resumes where it was, unless
    ``resume`` is False. ``track(name, value, step)`` is called with the learning curve of each rule's best setting:
    ``SummaryWriter().add_scalar`` of TensorBoard and ``mlflow.log_metric`` are such functions.

    >>> found = sweep("chain", {"rule": ["td", "etd"], "alpha": [0.001, 0.01], "lambda": 0}, runs=3, steps=1000)
    >>> found.table.num_rows
    12
    >>> [best["rule"] for best in found.best]
    ['td', 'etd']
    """
    if not isinstance(seed, int) or seed < 0:
        raise refusal("seed", "sweep", "be a whole number, 0 or more", repr(seed))
    if jobs is not None and (not isinstance(jobs, int) or jobs == 0):
        raise refusal("jobs", "sweep", "be a nonzero whole number, or None", repr(jobs))
    if isinstance(problem, Recorded):
        if theta is not None:
            raise refusal("theta", "sweep", "be left out with a log, where all weights begin at 0", repr(theta))
        if d is not None:
            raise refusal("d", "sweep", "be left out with a log, whose steps all have the same weight", repr(d))
        if rerun:
            raise refusal("rerun", "sweep", "be 0 with a log, of which there are no other runs", repr(rerun))
        if steps is not None:
            raise refusal("steps", "sweep", "be left out with a log, which is used as it is", repr(steps))
        source: Simulated | Recorded = problem
    else:
        made = get(problem) if isinstance(problem, str) else problem
        if not isinstance(made, MDP | Tasks) and not _makes_problems(made):
            wanted = "be a name, an MDP, Tasks, a function (of nothing, or of a seed) that makes one, or Recorded"
            raise refusal("problem", "sweep", wanted, repr(problem))
        source = Simulated(
            made,
            whole("steps", 10_000 if steps is None else steps, "sweep"),
            seed,
            None if theta is None else numbers("theta", theta),
            None if d is None else numbers("d", d),
        )
    plan = SweepPlan.of(
        source, grid, (1 if isinstance(source, Recorded) else 10) if runs is None else runs, every, points
    )
    if isinstance(rerun, bool) or not isinstance(rerun, int) or rerun < 0:
        raise refusal("rerun", "sweep", "be a whole number of 0 or more", repr(rerun))
    folder = None if out is None else Path(out)
    again = rerun * source.steps * len({some.name for some in plan.settings})
    done = _Count(plan.learner_steps + again, progress)
    result, parts = _carry_out(plan, folder, resume, jobs, done)
    if rerun:
        edges = np.cumsum([0, *map(len, plan.settings)])
        grids = [int(np.searchsorted(edges, number, "right")) - 1 for number in result.choose()]
        chosen = [(grid, number - int(edges[grid])) for grid, number in zip(grids, result.choose(), strict=True)]
        fresh, more = _carry_out(plan.rerun(chosen, rerun), folder, resume, jobs, done)
        result = replace(result, rerun=fresh)
    if folder is not None:
        result.write(folder)
    for kept in (parts, *((more,) if rerun else ())):
        kept.remove()
    if track is not None:
        _send(result, track)
    return result


def _makes_problems(function: Any) -> bool:
    """Whether it can be called without arguments, or with a seed alone."""
    try:
        signature = inspect.signature(function)
        signature.bind(**({"seed": 0} if "seed" in signature.parameters else {}))
    except (TypeError, ValueError):
        return False
    return True


def _carry_out(
    plan: SweepPlan, folder: Path | None, resume: bool, jobs: int | None, done: _Count
) -> tuple[Sweep, Parts]:
    """Run all unfinished tasks; returns the store of the finished ones."""
    from emphatic.engines.compiled import blas_threads  # late: numba is imported on first use

    parts = Parts(folder, plan.identity, resume)
    sizes = [len(task.settings) * plan.source.steps for task in plan.tasks]
    done.add(sum(size for number, size in enumerate(sizes) if number in parts))
    todo = {number: task for number, task in enumerate(plan.tasks) if number not in parts}
    began = time.perf_counter()
    with blas_threads(1):  # as each task does; but of tasks that share a process, one would end it for another
        for number, scores in _work(todo, jobs):
            before, began = began, time.perf_counter()
            parts.put(number, scores, began - before)
            done.add(sizes[number])
    return Sweep.of(plan, list(parts), parts.seconds), parts


class _Count:
    """Learner-steps done, out of a total."""

    def __init__(self, total: int, progress: Progress | None) -> None:
        self._done, self._total, self._progress = 0, total, progress

    def add(self, steps: int) -> None:
        self._done += steps
        if self._progress is not None:
            self._progress(self._done, self._total)


def _send(found: Sweep, track: Track) -> None:
    """The learning curves of the best settings."""
    for row, number in zip(found.best, found.choose(), strict=True):
        curve = found.curve[number].mean(axis=0, dtype=np.float64)
        for step, value in zip(found.points.tolist(), curve.tolist(), strict=True):
            track(f"{row['rule']}/{found.plan.source.metric}", value, step)


def _work(todo: Mapping[int, Task], jobs: int | None) -> Iterator[tuple[int, Scores]]:
    """Each task's number and scores, as they are done."""
    import joblib

    backend, inside = joblib.parallel.get_active_backend()
    count = jobs if jobs is not None else inside
    if len(todo) < 2 or (count in (None, 1) and isinstance(backend, joblib.parallel.LokyBackend)):
        yield from ((number, task()) for number, task in todo.items())
        return
    wanted = "generator_unordered" if backend.supports_return_generator else "list"
    pool = joblib.Parallel(n_jobs=count, return_as=wanted, pre_dispatch="2*n_jobs")
    yield from pool(joblib.delayed(_done)(number, task) for number, task in todo.items())


def _done(number: int, task: Task) -> tuple[int, Scores]:
    return number, task()
