"""Sweeps: every setting of a grid on every run, side by side where they can be, and one table of what came of it."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from emphatic.learning.inputs import refusal, whole
from emphatic.problems import MDP, get
from emphatic.studies.parts import Parts, one_at_a_time
from emphatic.studies.plan import SweepPlan, Task
from emphatic.studies.recorded import Recorded
from emphatic.studies.results import Sweep
from emphatic.studies.scores import Scores
from emphatic.studies.simulated import Simulated
from emphatic.studies.values import numbers

__all__ = ["sweep"]

#: Told now and then: the learner-steps taken, and those to take.
Progress = Callable[[int, int], None]


@one_at_a_time
def sweep(
    problem: str | MDP | Callable[..., MDP] | Recorded,
    grid: Mapping[str, Any] | Sequence[Mapping[str, Any]],
    *,
    runs: int | None = None,
    steps: int | None = None,
    every: int = 1,
    points: int | Sequence[int] = 50,
    seed: int = 0,
    theta: Sequence[float] | str | None = None,
    jobs: int | None = None,
    out: str | os.PathLike[str] | None = None,
    resume: bool = True,
    progress: Progress | None = None,
) -> Sweep:
    """Learn with every setting of a grid, and tell how well each did.

    ``problem`` is a name of ``emphatic.problems.names()``, an ``MDP``, a function that makes one (for each run, if it
    takes a ``seed``), or a ``Recorded`` log. ``grid`` is {"rule": …, "alpha": …, "lambda": …, …}, each one or several
    values, or text such as "2^-10..2^-2"; or a list of such grids. All settings of a rule learn side by side in one
    horde, from the same ``runs`` streams (10 by default) of ``steps`` steps (10,000), beginning with the weights
    ``theta`` (0); a log is one run, of its own length.

    The error is the root mean square value error weighted by d_μ, before each ``every``-th update; on a log that of the
    return. Its mean over the steps, its last value and those at ``points`` (a number of them, or the steps) are kept.

    ``jobs`` is for joblib, whose ``parallel_config`` also chooses a cluster; the table is the same for any number. With
    a folder ``out`` the table and a page are written there, and a sweep that was stopped goes on where it was, unless
    ``resume`` is False.

    >>> found = sweep("chain", {"rule": ["td", "etd"], "alpha": [0.001, 0.01], "lambda": 0}, runs=3, steps=1000)
    >>> found.table.num_rows
    12
    >>> [best["rule"] for best in found.best]
    ['td', 'etd']
    """
    from emphatic.engines.compiled import blas_threads  # late: numba is imported on first use

    if not isinstance(seed, int) or seed < 0:
        raise refusal("seed", "sweep", "be a whole number, 0 or more", repr(seed))
    if jobs is not None and (not isinstance(jobs, int) or jobs == 0):
        raise refusal("jobs", "sweep", "be a whole number but 0, or None", repr(jobs))
    if isinstance(problem, Recorded):
        if theta is not None:
            raise refusal("theta", "sweep", "be left out with a log, where all weights begin with 0", repr(theta))
        if steps is not None:
            raise refusal("steps", "sweep", "be left out with a log, which is taken as it is", repr(steps))
        source: Simulated | Recorded = problem
    else:
        made = get(problem) if isinstance(problem, str) else problem
        if not isinstance(made, MDP) and not callable(made):
            raise refusal(
                "problem", "sweep", "be a name, an MDP, a function that makes one, or Recorded", repr(problem)
            )
        source = Simulated(
            made,
            whole("steps", 10_000 if steps is None else steps, "sweep"),
            seed,
            None if theta is None else numbers("theta", theta),
        )
    plan = SweepPlan.of(
        source, grid, (1 if isinstance(source, Recorded) else 10) if runs is None else runs, every, points
    )
    folder = None if out is None else Path(out)
    parts = Parts(folder, plan.identity, resume)
    sizes = [len(task.settings) * source.steps for task in plan.tasks]
    done = sum(size for number, size in enumerate(sizes) if number in parts)
    report_progress = progress or (lambda done, total: None)
    report_progress(done, plan.learner_steps)
    todo = {number: task for number, task in enumerate(plan.tasks) if number not in parts}
    began = time.perf_counter()
    with blas_threads(1):  # as each task does; but of tasks that share a process, one would end it for another
        for number, scores in _work(todo, jobs):
            before, began = began, time.perf_counter()
            parts.put(number, scores, began - before)
            done += sizes[number]
            report_progress(done, plan.learner_steps)
    result = Sweep.of(plan, list(parts), parts.seconds)
    if folder is not None:
        result.write(folder)
    parts.remove()
    return result


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
