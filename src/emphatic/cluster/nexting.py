"""``emphatic nexting`` on a cluster: the table is read here, and its questions, or its machines, are learned in shards.

Predictions come back in order and are written in parts, as without a cluster. Before the manifest moves on to a row,
the parts before it are written; the state of the table at that row lies in the manifest, which is the resume point.

With ``by``, a machine is learned whole in one shard, into a folder of its own: a machine whose shard died goes on in
another, from its own resume point, and a machine that is finished is never learned again.
"""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from emphatic.cluster.driver import Manifest, hold_storage
from emphatic.cluster.horde import ClusterHorde
from emphatic.cluster.learner import BLOCK, IN_PROCESS
from emphatic.cluster.ray_shards import ClusterError, Connection, RayShards, run_in_shards
from emphatic.common.locks import UNFINISHED
from emphatic.common.parts import PartStore, ResumePoint
from emphatic.hordes.horde import Horde
from emphatic.nexting.learning import (
    Learners,
    LocalExecutor,
    OnCheckpoint,
    OpenedLog,
    Progress,
    checkpoint_file,
    expected_size,
    horde_options,
    make_makers,
)
from emphatic.nexting.machines import MachineTask, run_here, run_machines, unfinished_file
from emphatic.nexting.runner import Nexting, NextingResult, check_free, run_job, silent
from emphatic.nexting.settings import Settings
from emphatic.tables import Block

__all__ = ["ClusterExecutor", "run"]

Array = NDArray[np.float64]

#: Seconds to start Ray and shards, and of the driver for each block and shard; ``python -m tools.cluster_costs``.
_START, _BLOCK_COST = 10.0, 0.003


def run(
    data: object,
    *,
    address: str | None,
    out: Path,
    config: str | os.PathLike[str] | Mapping[str, Any] | Settings | None = None,
    resume: bool = False,
    overwrite: bool = False,
    offline: bool = True,
    progress: Progress | None = None,
    announce: Callable[[str], None] | None = None,
    storage: Path | None = None,
    **options: Any,
) -> NextingResult:
    """``emphatic.nexting.run`` on a cluster.

    Args:
        data: The table.
        address: Where the cluster is.
        out: The output folder.
        config: The settings: a TOML file, a mapping or ``Settings``.
        resume: Whether to go on with a run that was stopped.
        overwrite: Whether to replace results in the output folder.
        offline: Whether the predictions are compared with an offline fit.
        progress: Called now and then.
        announce: Called before learning begins, with how large the run will be.
        storage: The folder that shards are saved in, ``.cluster`` in the output folder by default. It is emptied when
            the run is finished.
        options: Further options of ``ClusterHorde``: shards, block and checkpoint_every. With ``by`` there are as many
            shards as CPUs by default.
    """
    if not (overwrite or resume):
        check_free(out)
    folder = (storage or out / ".cluster").absolute()
    settings = Settings.combine(config)
    if settings.by is not None:
        if settings.share:
            raise ValueError(
                "'share' cannot be combined with --ray: machines with one set of weights are learned in turn."
            )
        if unknown := sorted({"block", "checkpoint_every"} & options.keys()):
            raise ValueError(
                f"'by' cannot be combined with --{unknown[0].replace('_', '-')}: a machine is learned whole."
            )
        job = Nexting(data, settings, out, progress or silent, offline, announce or silent)
        run_tasks = run_here if address == IN_PROCESS else MachineShards(address, options.get("shards"), storage or out)
        of_machines = out / UNFINISHED / "machines" if storage is None else folder / "machines"
        with nullcontext() if storage is None else hold_storage(folder):
            try:
                return run_machines(job, resume, run_tasks, of_machines)
            except ClusterError:
                if not any(of_machines.glob("*/record.json")):  # nothing was learned: there is nothing to go on with
                    unfinished_file(out).unlink(missing_ok=True)
                raise
    if overwrite:
        _clear(folder)
    executor = ClusterExecutor(out, folder, address, resume, announce=announce or silent, **options)
    job = Nexting(data, settings, out, progress or silent, offline, announce or silent)
    finished = False
    try:
        result = run_job(job, executor, resume)
        finished = True
    finally:
        executor.close(finished)
    return result


class MachineShard:
    """Learns machines whole, one after another.

    Args:
        storage: The folder that all shards write to.
    """

    def __init__(self, storage: str) -> None:
        self._storage = Path(storage)

    def learn(self, task: MachineTask) -> dict[str, Any]:
        """The record of a machine.

        Args:
            task: The machine.
        """
        return task()

    def sees(self, token: str) -> bool:
        """Whether a file that the driver has written is there.

        Args:
            token: The name of the file.
        """
        return (self._storage / token).exists()


class MachineShards:
    """Runs the tasks of machines in the shards of a cluster, which is reached, or started, when there are tasks.

    Args:
        address: Where the cluster is.
        shards: The number of shards; one for each CPU by default.
        storage: The folder that all shards write to.
    """

    def __init__(self, address: str | None, shards: int | None, storage: Path) -> None:
        self._address, self._shards, self._storage = address, shards, storage.absolute()

    def __call__(self, tasks: Iterator[tuple[int, MachineTask]], count: int) -> Iterator[tuple[int, dict[str, Any]]]:
        """The number of each machine and its record, as they are done.

        Args:
            tasks: The number of each machine, and its task.
            count: The number of machines.
        """
        connection = Connection(self._address, self._shards, 1, self._storage)
        try:
            shards = min(self._shards or connection.cpus, count)
            backend = RayShards(connection, MachineShard, [(str(self._storage),)] * shards, secrets.token_hex(4))
            try:
                backend.check_storage(self._storage)
                yield from run_in_shards(backend, shards, "learn", tasks)
            finally:
                backend.end()
        finally:
            connection.close()


def describe_cost(seconds: float, rows: int, block: int, shards: int | None) -> str:
    """What to say before a run that one process would end sooner; "" if a cluster may pay.

    Args:
        seconds: What one process needs to learn.
        rows: The rows of the table.
        block: The rows of a block.
        shards: The number of shards; None if the cluster decides.

    >>> describe_cost(0.5, 50_000, 1016, 2)
    'a cluster is slower here: one process learns this in about 1 s, 2 shards in about 11 s. Leave out --ray.'
    >>> describe_cost(600.0, 5_000_000, 1016, 2)
    ''
    """
    count = shards or 2  # (at least: a cluster of one node has no reason to be)
    sharded = _START + seconds / count + (rows / block) * count * _BLOCK_COST
    if sharded <= seconds:
        return ""
    times = f"one process learns this in about {max(1, seconds):,.0f} s, {count} shards in about {sharded:,.0f} s"
    return f"a cluster is slower here: {times}. Leave out --ray."


class ClusterExecutor:
    """Learns in the shards of a ``ClusterHorde``. Its resume point is the cluster's manifest.

    Args:
        out: The output folder.
        storage: The folder that shards are saved in.
        address: Where the cluster is.
        resume: Whether to go on with a run in the storage; ValueError if there is one otherwise.
        shards: The number of shards.
        block: The rows of a block.
        checkpoint_every: How often shards are saved, as seconds or a duration.
        announce: Called before the cluster is used, if one process would be done sooner.
    """

    without_answers = LocalExecutor.without_answers

    def __init__(
        self,
        out: Path,
        storage: Path,
        address: str | None,
        resume: bool,
        shards: int | None = None,
        block: int = BLOCK,
        checkpoint_every: str | float = "30s",
        announce: Callable[[str], None] = silent,
    ) -> None:
        self._announce, self._shards = announce, shards
        self._out, self._storage, self.block = out, storage, block
        self._options: dict[str, Any] = {
            "address": address,
            "shards": shards,
            "block": block,
            "checkpoint_every": checkpoint_every,
        }
        self._resumed = Manifest.read(storage) is not None
        self._clusters: list[ClusterHorde] = []
        if self._resumed and not resume:
            raise ValueError(f"{storage}: there is a run in this folder: add --resume, or give another --storage.")

    @property
    def stopped_run(self) -> str:
        return f"{self._storage}: the run there"

    def find_point(self) -> ResumePoint | None:
        manifest = Manifest.read(self._storage)
        if manifest is not None and manifest.rows:
            return ResumePoint(manifest.rows, manifest.more)
        if checkpoint_file(self._out).exists():
            raise ValueError(f"{self._out}: the unfinished run here did not use a cluster. Resume it without --ray.")
        return None

    def prepare(self, log: OpenedLog, horde: Horde) -> Learners:
        if warning := describe_cost(
            expected_size(horde, log.rows).seconds, log.rows, self.block, self._options["shards"]
        ):
            self._announce(warning)
        cluster = self._open(log, None if self._resumed else False)
        cluster.warm_up(log.table, log.warm_up_rows, log.new_guard())
        return _ClusterLearners(cluster)

    def resume(self, log: OpenedLog, point: ResumePoint) -> Learners:
        if not PartStore(self._out / UNFINISHED).starts("predictions"):
            raise ValueError(
                f"{self._out}: the predictions of the run in {self._storage} are elsewhere: give the same --out."
            )
        return _ClusterLearners(self._open(log, True))

    def _open(self, log: OpenedLog, resume: bool | None) -> ClusterHorde:
        settings = log.settings
        options = horde_options(settings, log.step) | self._options
        options |= {"storage": self._storage, "resume": resume, "send_answers": True}
        cluster = ClusterHorde(settings.gvfs(), make_makers(settings), **options)
        self._clusters.append(cluster)
        return cluster

    def is_resumable(self, error: BaseException, resumed: bool) -> bool:
        manifest = Manifest.read(self._storage)
        if manifest is not None and manifest.rows and not isinstance(error, ValueError):
            return True
        if resumed or self._resumed:
            return True
        if self._clusters:
            self.close(finished=True)
        return False

    def close(self, finished: bool) -> None:
        for cluster in self._clusters:
            cluster.close()
        if finished:
            _clear(self._storage)


class _ClusterLearners:
    """The shards of a cluster, as the learners of a run."""

    def __init__(self, cluster: ClusterHorde) -> None:
        self._cluster = cluster

    @property
    def rows(self) -> int:
        return self._cluster.position

    @property
    def answers(self) -> Mapping[str, Array]:
        return self._cluster.answers

    def stream(self, blocks: Iterator[Block], on_checkpoint: OnCheckpoint) -> Generator[Array]:
        yield from self._cluster.stream(blocks, on_checkpoint=on_checkpoint)

    def save(self, state: Mapping[str, Any]) -> None:
        """The driver has saved the end of the stream."""

    def finish(self) -> Horde:
        return self._cluster.gather()


def _clear(storage: Path) -> None:
    """Remove all that a run has saved, and the folder if it is empty then; ``InUseError`` if the run goes on."""
    if not storage.exists():
        return
    with hold_storage(storage):
        for path in (*storage.glob("shard-*"), *storage.glob("predictions-*.parquet"), storage / "manifest.json"):
            if path.is_dir():
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink(missing_ok=True)
    with suppress(OSError):
        storage.rmdir()
