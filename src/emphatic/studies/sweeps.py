"""Sweeps: every setting of a grid on every run, in parallel where possible, with one table of the results.

``sweep`` plans tasks that can run in any order on any machine (``SweepPlan``), runs those that are not yet in the
``TaskStore``, and gathers their scores.
"""

from __future__ import annotations

import bisect
import functools
import hashlib
import inspect
import itertools
import json
import os
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, fields, replace
from importlib.metadata import version
from itertools import pairwise
from pathlib import Path
from typing import Protocol, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from emphatic import stepsizes
from emphatic.common.locks import UNFINISHED, hold_folder
from emphatic.common.parts import PartStore
from emphatic.common.settings import is_share
from emphatic.learning.inputs import refusal, whole
from emphatic.problems import MDP, Tasks, World
from emphatic.studies.acting import Acting, acting, control_grid, is_world, maker_of
from emphatic.studies.grid import Grid, GridSettings, LeastSquaresRule, SweptRule, parse_numbers, settings
from emphatic.studies.results import Sweep
from emphatic.studies.sources import Recorded, Scores, Simulated
from emphatic.studies.sweep_config import SweepConfig

__all__ = ["SweepPlan", "Task", "Track", "fingerprint", "on_one_thread", "sweep"]

#: Called now and then with the learner-steps done so far and in total.
Progress = Callable[[int, int], None]
Source = Simulated | Recorded | Acting
#: A problem, the name of one, or a function that makes one.
Problem = str | MDP | Tasks | Callable[..., MDP | Tasks]
Result = TypeVar("Result")


class Track(Protocol):
    """A function that records a named number at a step: TensorBoard's ``add_scalar``, MLflow's ``log_metric``, …."""

    def __call__(self, name: str, value: float, step: int, /) -> object:
        """Record it.

        Args:
            name: What the number is, such as "td/RMSVE".
            value: The number.
            step: The step of the learning curve.
        """


def sweep(
    problem: Problem | Recorded | World | Acting,
    grid: Grid | None = None,
    *,
    runs: int | None = None,
    steps: int | None = None,
    episodes: int | None = None,
    every: int = 1,
    points: int | Sequence[int] | None = None,
    seed: int = 0,
    theta: Sequence[float] | str | None = None,
    d: ArrayLike | None = None,
    rerun: int = 0,
    tolerance: float | None = None,
    distribution: bool = False,
    jobs: int | None = None,
    out: str | os.PathLike[str] | None = None,
    resume: bool = True,
    progress: Progress | None = None,
    track: Track | None = None,
) -> Sweep:
    """Learn with every setting of a grid, and report the error of each.

    All settings of a rule learn side by side in one horde, from the same streams. The error is the root mean square
    value error before an update. For ``Tasks`` it is the mean over the tasks, and on a log it is the error against the
    return. A sweep keeps the mean of the error over the steps, its last value, and its values at ``points``.

    With ``episodes`` a run has so many instead of ``steps``, and the error is measured at the end of each. This is the
    figure of TD(λ) in the literature, the error of every state counting the same:

        sweep("random_walk", episodes=10, d=1, runs=100, out="walk")

    On a control problem every setting is an agent that acts, and in place of the error there is the cost of its
    episodes: steps, or minus the return (``emphatic.studies.acting``).

    The best of many settings is best partly by chance: ``rerun`` reports it on fresh runs.

    Args:
        problem: A name of ``emphatic.problems.names()``, an ``MDP`` or ``Tasks``, a function that makes one (for each
            run, if it takes a ``seed``), a ``Recorded`` log, or a ``World`` or a name of ``emphatic.control.WORLDS``.
        grid: {"rule": …, "alpha": …, "lambda": …, …}, each one or several values, or text such as "2^-10..2^-2"; or a
            list of such grids; a usual one by default. A rule is a name, or a ``Rule`` or ``ElementwiseRule`` of your
            own. On a control problem it is a name of ``emphatic.control.ALGORITHMS`` or an ``Algorithm``, and
            ``epsilon``, ``gamma`` and its rule's own are parameters.
        runs: Number of streams; 10 by default. A log is one run.
        steps: Steps of each run; 10,000 by default. A log has its own length.
        episodes: Episodes of each run, in place of ``steps``; 50 by default on a control problem.
        every: The error is measured before each ``every``-th update.
        points: Steps at which errors are stored: how many, evenly spread, or the steps themselves; by default 50, half
            of them logarithmically spaced from the beginning.
        seed: Seed of the streams.
        theta: The initial weights; 0 by default.
        d: Weights of the states' errors, (S,), or 1 where all count the same; d_μ·I by default.
        rerun: Number of fresh runs on which the best setting of each rule is reported; it is chosen on the other runs.
            So are the settings of the figures against λ, and against α at the best λ.
        tolerance: A fraction of all runs, such as .9: the best settings then have tolerance intervals, which contain
            this fraction of the runs.
        distribution: Whether the page shows the errors of all runs of the best settings.
        jobs: Number of processes, for joblib, whose ``parallel_config`` also chooses a cluster. The table is the same
            for any number.
        out: A folder for the table and a page. A stopped sweep resumes from there.
        resume: If False, the results of a stopped sweep in ``out`` are not used.
        progress: Called now and then with the learner-steps done so far and in total.
        track: Called as ``track(name, value, step)`` with the learning curve of each rule's best setting:
            ``SummaryWriter().add_scalar`` of TensorBoard and ``mlflow.log_metric`` are such functions.

    Returns:
        The table, with means and intervals of each setting.

    >>> result = sweep("chain", {"rule": ["td", "etd"], "alpha": [0.001, 0.01], "lambda": 0}, runs=3, steps=1000)
    >>> result.table.num_rows
    12
    >>> [best["rule"] for best in result.best]
    ['td', 'etd']
    """
    folder = None if out is None else Path(out)
    with nullcontext() if folder is None else hold_folder(folder):
        _check_seed_and_jobs(seed, jobs)
        if grid is None:
            if isinstance(problem, World | Acting):
                raise refusal("grid", "sweep", "be given for a world that has no name", "none")
            grid = SweepConfig(problem if isinstance(problem, str) else "", episodes=episodes).grids
        if isinstance(problem, Recorded):
            _check_log_arguments(theta=theta, d=d, rerun=rerun or None, steps=steps, episodes=episodes)
            source: Source = problem
        elif isinstance(problem, Acting | World) or (isinstance(problem, str) and is_world(problem)):
            _check_episode_arguments(theta=theta, d=d, steps=steps, every=None if every == 1 else every)
            source = problem if isinstance(problem, Acting) else acting(problem, episodes, seed)
            source, grid = replace(source, seed=seed), control_grid(grid)
        else:
            if episodes is not None:
                _check_episode_arguments(steps=steps, every=None if every == 1 else every)
            unit, length = ("steps", 10_000 if steps is None else steps) if episodes is None else ("episodes", episodes)
            source = _simulate(problem, unit, length, seed, theta, d)
        plan = SweepPlan.of(source, grid, runs, every, points)
        if isinstance(rerun, bool) or not isinstance(rerun, int) or rerun < 0:
            raise refusal("rerun", "sweep", "be a whole number of 0 or more", repr(rerun))
        if tolerance is not None and not is_share(tolerance):
            raise refusal("tolerance", "sweep", "be a number between 0 and 1", repr(tolerance))
        count = _StepCount(progress)
        result, store = _carry_out(plan, folder, resume, jobs, count)
        result = replace(result, tolerance=tolerance, distribution=bool(distribution))
        stores = [store]
        for chosen in (result.choose(), result.lines_of_figures()) if rerun else ():
            if chosen:
                fresh, store = _carry_out(plan.rerun(chosen, rerun), folder, resume, jobs, count)
                is_best = result.rerun is None
                result = replace(result, rerun=fresh) if is_best else replace(result, rerun_lines=fresh)
                stores.append(store)
        if folder is not None:
            result.write(folder)
        for store in stores:  # not before all is written: a sweep that is stopped here need not learn again
            store.remove()
        if track is not None:
            _send_curves(result, track)
        return result


def _check_seed_and_jobs(seed: int, jobs: int | None) -> None:
    if not isinstance(seed, int) or seed < 0:
        raise refusal("seed", "sweep", "be a whole number, 0 or more", repr(seed))
    if jobs is not None and (not isinstance(jobs, int) or jobs == 0):
        raise refusal("jobs", "sweep", "be a nonzero whole number, or None", repr(jobs))


def _check_log_arguments(**arguments: object) -> None:
    """ValueError if one of the arguments that do not go with a log was given."""
    wanted = {
        "theta": "be left out with a log: all weights start at 0",
        "d": "be left out with a log: all its steps have the same weight",
        "rerun": "be 0 with a log: it is a single run",
        "steps": "be left out with a log: it is used as it is",
        "episodes": "be left out with a log: it is used as it is",
    }
    for name, value in arguments.items():
        if value is not None:
            raise refusal(name, "sweep", wanted[name], repr(value))


def _check_episode_arguments(**arguments: object) -> None:
    """ValueError if one of the arguments that do not go with a control problem, or with episodes, was given."""
    wanted = {
        "theta": "be left out with a control problem: all weights start at 0",
        "d": "be left out with a control problem",
        "steps": "be left out: runs are of 'episodes'",
        "every": "be 1: every episode counts",
    }
    for name, value in arguments.items():
        if value is not None:
            raise refusal(name, "sweep", wanted[name], repr(value))


def _simulate(
    problem: Problem, unit: str, length: int, seed: int, theta: Sequence[float] | str | None, d: ArrayLike | None
) -> Simulated:
    resolved = maker_of(problem) if isinstance(problem, str) else problem
    if not isinstance(resolved, MDP | Tasks) and not _makes_problems(resolved):
        wanted = "be a name, an MDP, Tasks, a function (without parameters, or of a seed) that creates one, or Recorded"
        raise refusal("problem", "sweep", wanted, repr(problem))
    first = None if theta is None else parse_numbers("theta", theta)
    weights = None if d is None else parse_numbers("d", d)
    alike = weights[0] if weights is not None and len(weights) == 1 else weights
    return Simulated(resolved, whole(unit, length, "sweep"), seed, first, alike, unit)


def _makes_problems(function: Callable[..., MDP | Tasks]) -> bool:
    """Whether it can be called without arguments, or with a seed alone."""
    try:
        signature = inspect.signature(function)
        signature.bind(**({"seed": 0} if "seed" in signature.parameters else {}))
    except (TypeError, ValueError):
        return False
    return True


def _send_curves(result: Sweep, track: Track) -> None:
    """Send the learning curves of the best settings."""
    for row, setting in zip(result.best, result.choose(), strict=True):
        reported, place = result.reported(setting)
        curve = reported.curve[place].mean(axis=0, dtype=np.float64)
        for step, value in zip(result.points.tolist(), curve.tolist(), strict=True):
            track(f"{row['rule']}/{result.plan.source.metric}", value, step)


# ---------------------------------------------------------------------- the plan

#: Settings that learn side by side in one task, at most: a task should take seconds, and its errors little memory.
_TOGETHER = 2048
#: The default number of points of a curve.
_POINTS = 50
#: Tasks of each process, after which those that are done are stored, where joblib's backend returns all at once.
_TURNS = 8


def on_one_thread(function: Callable[..., Result], *arguments: object) -> Result:
    """``function(*arguments)`` with matrix products on one thread: the last bits depend on how many there are."""
    from emphatic.engines.compiled import blas_threads  # late: numba is imported on first use

    with blas_threads(1):
        return function(*arguments)


@dataclass(frozen=True)
class Task:
    """Settings of one rule in one run; ``first`` is the number of the first setting."""

    source: Source
    run: int
    first: int
    settings: GridSettings
    every: int
    points: NDArray[np.int64]

    def __call__(self) -> Scores:
        return on_one_thread(self.source.score, self.run, self.settings, self.every, self.points)


@dataclass(frozen=True)
class SweepPlan:
    """All settings on all runs of a source; errors at every ``every``-th step, stored at ``points``.

    ``numbers`` are those of the settings in the sweep that they were chosen in, if they were.
    """

    source: Source
    settings: tuple[GridSettings, ...]
    runs: int
    every: int
    points: NDArray[np.int64]
    first_run: int = 0
    numbers: tuple[int, ...] = ()

    @staticmethod
    def of(source: Source, grid: Grid, runs: int | None, every: int, points: int | Sequence[int] | None) -> SweepPlan:
        """The plan, with everything checked that can be checked before the first step."""
        if runs is None:
            runs = 1 if isinstance(source, Recorded) else 10
        whole("runs", runs, "sweep")
        whole("every", every, "sweep")
        if isinstance(source, Recorded):
            for name, value in (("runs", runs), ("every", every)):
                if value != 1:
                    raise refusal(name, "sweep", "be 1 on a log: it is used once", repr(value))
        if isinstance(points, Sequence | np.ndarray):
            steps = _check_points(points, source, every)
        elif points is None:
            steps = source.points(_POINTS, every, early=True)
        else:
            steps = source.points(whole("points", points, "sweep"), every)
        plan = SweepPlan(source, settings(grid), runs, every, steps)
        for group in plan.settings:
            source.check(group)
        return plan

    @property
    def learner_steps(self) -> int:
        """Steps of all learners together."""
        return self.runs * self.source.steps * sum(map(len, self.settings))

    @functools.cached_property
    def tasks(self) -> list[Task]:
        """The work, run by run."""
        tasks = []
        for run in range(self.first_run, self.first_run + self.runs):
            offset = 0
            for group in self.settings:
                pieces = -(-len(group) // _TOGETHER)
                edges = [len(group) * i // pieces for i in range(pieces + 1)]
                tasks += [
                    Task(self.source, run, offset + begin, group.select(begin, end), self.every, self.points)
                    for begin, end in pairwise(edges)
                ]
                offset += len(group)
        return tasks

    @functools.cached_property
    def identity(self) -> str:
        """A hash that identifies the plan, so that a sweep resumes only from its own finished tasks."""
        grids = [
            [
                group.name,
                fingerprint(group.rule),
                {name: column.tolist() for name, column in group.values.items()},
                *([] if group.stepsize is None else [group.stepsize.config()]),
                *_sources_of_methods(group),
            ]
            for group in self.settings
        ]
        content = [version("emphatic"), self.source.identity(), grids, self.runs, self.every, self.points.tolist()]
        content += [self.first_run] if self.first_run else []
        return hashlib.sha256(json.dumps(content).encode()).hexdigest()

    def rerun(self, chosen: Sequence[int], runs: int) -> SweepPlan:
        """The settings with these numbers, on runs that come after those of this plan."""
        edges = np.cumsum([0, *map(len, self.settings)]).tolist()
        selected = []
        # those of a grid that stand side by side learn side by side
        for group, numbers in itertools.groupby(chosen, lambda number: bisect.bisect(edges, number) - 1):
            selected.append(self.settings[group].take([number - edges[group] for number in numbers]))
        return replace(
            self,
            settings=tuple(selected),
            runs=runs,
            first_run=self.first_run + self.runs,
            numbers=tuple(chosen),
        )


def _sources_of_methods(group: GridSettings) -> list[str]:
    """What a step-size method that is not the library's makes of the rule: its options do not tell when it changes."""
    if group.stepsize is None or not stepsizes.is_own(group.stepsize) or isinstance(group.rule, LeastSquaresRule):
        return []
    return [group.stepsize.rule(group.stream_rule).source]


def fingerprint(rule: SweptRule) -> str:
    """A hash of a rule: all its fields, and the source of its functions, not only its name."""
    digest = hashlib.sha256()
    for attribute in fields(rule):
        value = getattr(rule, attribute.name)
        text = _source_text(value) if callable(value) else repr(value)
        digest.update(f"{attribute.name}: {text}\n".encode())
    return digest.hexdigest()


def _source_text(function: Callable[..., object]) -> str:
    """The text of a function, or its code where there is no text."""
    try:
        return inspect.getsource(function)
    except (OSError, TypeError):
        code = getattr(function, "__code__", None)
        return repr(function) if code is None else repr((code.co_code, code.co_consts, code.co_names))


def _check_points(points: Sequence[int] | NDArray[np.int64], source: Source, every: int) -> NDArray[np.int64]:
    """The points as given, checked: on a problem, steps with an error; on a log, the ends of its pieces."""
    begin, end = (1, source.steps + 1) if isinstance(source, Recorded) else (0, source.steps)
    steps = [step for step in points if isinstance(step, int | np.integer) and begin <= step < end and not step % every]
    if not steps or len(steps) < len(points):
        wanted = f"be whole numbers from {begin} to {end - 1}" + (f", multiples of {every}" if every > 1 else "")
        raise refusal("points", "sweep", wanted, repr(points))
    return np.unique(np.array(steps, np.int64))


# ---------------------------------------------------------------------- the work


#: The kind of the parts of a sweep.
_TASK = "task"


class TaskStore:
    """The scores of finished tasks, by the number of their task; with a folder, also on the disk.

    Each plan has its own subfolder, named after it: tasks of another plan are neither counted nor touched. Incomplete
    files do not count.
    """

    def __init__(self, out: Path | None, identity: str, resume: bool) -> None:
        self._scores: dict[int, Scores] = {}
        #: Time spent on them in all.
        self.seconds = 0.0
        self._store = None if out is None else PartStore(out / UNFINISHED / identity[:16])
        if self._store is None:
            return
        if not resume:
            shutil.rmtree(self._store.folder, ignore_errors=True)
        self._store.folder.mkdir(parents=True, exist_ok=True)
        # Tasks are finished in any order, and each is a result by itself: all parts that are complete count.
        for number in self._store.starts(_TASK, "npz"):
            arrays = self._store.read_arrays(_TASK, number)
            if arrays is None or arrays.keys() != {*Scores._fields, "seconds"}:
                self._store.path(_TASK, number, "npz").unlink()
            else:
                seconds = float(arrays.pop("seconds"))
                self._add(number, Scores(**arrays), seconds)

    def _add(self, number: int, scores: Scores, seconds: float) -> None:
        self._scores[number] = scores
        self.seconds += seconds

    def __contains__(self, number: int) -> bool:
        return number in self._scores

    def put(self, number: int, scores: Scores, seconds: float) -> None:
        """Store the scores of a task, which took ``seconds``."""
        self._add(number, scores, seconds)
        if self._store is not None:
            self._store.write_arrays(_TASK, number, scores._asdict() | {"seconds": seconds})

    def __iter__(self) -> Iterator[Scores]:
        """The scores in the order of the tasks."""
        return (self._scores[number] for number in sorted(self._scores))

    def remove(self) -> None:
        """Remove the folder: the plan is finished."""
        if self._store is not None:
            shutil.rmtree(self._store.folder, ignore_errors=True)
            with suppress(OSError):  # tasks of another plan are there
                self._store.folder.parent.rmdir()


class _StepCount:
    """Learner-steps done, out of a total, which grows where settings that were chosen learn again."""

    def __init__(self, progress: Progress | None) -> None:
        self._done, self._total, self._progress = 0, 0, progress

    def expect(self, steps: int) -> None:
        self._total += steps

    def add(self, steps: int) -> None:
        self._done += steps
        if self._progress is not None:
            self._progress(self._done, self._total)


def _carry_out(
    plan: SweepPlan, folder: Path | None, resume: bool, jobs: int | None, count: _StepCount
) -> tuple[Sweep, TaskStore]:
    """Run all unfinished tasks; returns the store of the finished ones."""
    from emphatic.engines.compiled import blas_threads  # late: numba is imported on first use

    store = TaskStore(folder, plan.identity, resume)
    sizes = [len(task.settings) * plan.source.steps for task in plan.tasks]
    count.expect(plan.learner_steps)
    count.add(sum(size for number, size in enumerate(sizes) if number in store))
    unfinished = {number: task for number, task in enumerate(plan.tasks) if number not in store}
    started = time.perf_counter()
    # Each task sets one thread too, but where tasks share a process, the first to end would reset it for the others.
    with blas_threads(1):
        for number, scores in _run_tasks(unfinished, jobs):
            finished = time.perf_counter()
            store.put(number, scores, finished - started)
            started = finished
            count.add(sizes[number])
    return Sweep.of(plan, list(store), store.seconds), store


def _run_tasks(tasks: Mapping[int, Task], jobs: int | None) -> Iterator[tuple[int, Scores]]:
    """The number and scores of each task, as they are done."""
    import joblib

    backend, configured = joblib.parallel.get_active_backend()
    processes = jobs if jobs is not None else configured
    if len(tasks) < 2 or (processes in (None, 1) and isinstance(backend, joblib.parallel.LokyBackend)):
        yield from map(_run_task, tasks.items())
        return
    work = [joblib.delayed(_run_task)(numbered) for numbered in tasks.items()]
    if backend.supports_return_generator:
        yield from joblib.Parallel(n_jobs=processes, return_as="generator_unordered", pre_dispatch="2*n_jobs")(work)
        return
    with joblib.Parallel(n_jobs=processes) as pool:
        together = _TURNS * joblib.effective_n_jobs(processes)
        for begin in range(0, len(work), together):  # what is done is stored before the next tasks begin
            yield from pool(work[begin : begin + together])


def _run_task(numbered: tuple[int, Task]) -> tuple[int, Scores]:
    number, task = numbered
    return number, task()
