"""Sweeps on a cluster: the tasks of a sweep, cut at the engine's grain, in as many shards as there are CPUs.

Scores come back to this process, which keeps those of finished tasks: a sweep that was stopped resumes from them, on a
cluster or without. A task whose shard died is sent to it again.
"""

from __future__ import annotations

import os
import secrets
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from emphatic.cluster.ray_shards import Connection, RayShards, run_in_shards
from emphatic.studies import sweeps
from emphatic.studies.grid import Grid
from emphatic.studies.results import Sweep
from emphatic.studies.sources import Recorded, Scores
from emphatic.studies.sweeps import Problem, Source, Task

__all__ = ["sweep"]


def sweep(
    problem: Problem | Recorded,
    grid: Grid,
    *,
    address: str | None = None,
    shards: int | None = None,
    out: str | os.PathLike[str] | None = None,
    **options: Any,
) -> Sweep:
    """``emphatic.studies.sweep`` on a cluster, with the same results bit for bit.

    Args:
        problem: As for ``emphatic.studies.sweep``.
        grid: As for ``emphatic.studies.sweep``.
        address: host:port of a Ray cluster's head node; without one, Ray is started on this machine, and stopped at the
            end.
        shards: The number of processes; by default one for each CPU of the cluster.
        out: As for ``emphatic.studies.sweep``.
        options: Further arguments of ``emphatic.studies.sweep``, except ``jobs``.
    """
    with tempfile.TemporaryDirectory(prefix="emphatic-") as temporary:
        connection = Connection(address, shards, 1, Path(temporary if out is None else out).absolute())
        try:
            run_tasks = ShardedTasks(connection, shards or connection.cpus)
            return sweeps.sweep(problem, grid, run_tasks=run_tasks, out=out, **options)
        finally:
            connection.close()


class TaskShard:
    """Scores the tasks of one source.

    Args:
        source: What all of them learn from.
    """

    def __init__(self, source: Source) -> None:
        self._source = source

    def score(self, task: Task) -> Scores:
        """The scores of a task, which comes without its source.

        Args:
            task: The task.
        """
        return replace(task, source=self._source)()


class ShardedTasks:
    """Runs tasks in the shards of a cluster.

    Args:
        connection: The cluster.
        shards: The number of shards.
    """

    def __init__(self, connection: Connection, shards: int) -> None:
        self._connection, self._shards = connection, shards

    def __call__(self, tasks: Mapping[int, Task]) -> Iterator[tuple[int, Scores]]:
        """The number and scores of each task, as they are done.

        Args:
            tasks: The tasks, by number.
        """
        if not tasks:
            return
        pieces = -(-2 * self._shards // len(tasks))  # two for each shard, so that none is idle for long
        cut = {number: task.cut(pieces) for number, task in tasks.items()}
        scores: dict[int, dict[int, Scores]] = {number: {} for number in cut}
        count = min(self._shards, sum(map(len, cut.values())))
        session = secrets.token_hex(4)
        source = next(iter(tasks.values())).source
        backend = RayShards(self._connection, TaskShard, [(source,)] * count, session)
        try:
            pieces_of_all = (
                # (without the source, which every shard has)
                ((number, place), replace(piece, source=None))  # type: ignore[arg-type]
                for number, of_task in cut.items()
                for place, piece in enumerate(of_task)
            )
            for (number, place), answer in run_in_shards(backend, count, "score", pieces_of_all):
                scores[number][place] = answer
                if len(scores[number]) == len(cut[number]):
                    yield number, Scores.joined([scores[number][i] for i in range(len(cut[number]))])
        finally:
            backend.end()
