"""A stream in blocks, what the same shards in one process make of it, and processes of Ray to kill."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from emphatic.cluster import local

N, K, BLOCKS, STEPS = 20, 32, 40, 60
RULE = "true_online_etd"
#: The processes that were killed with SIGKILL, one entry each: ``conftest`` says how many.
KILLS: list[int] = []
SETUP: dict[str, Any] = {"engine": "dense", "shards": 2, "block": STEPS}


def stream(begin: int = 0, blocks: int = BLOCKS, pause: float = 0.0) -> Iterator[dict[str, Any] | None]:
    """Blocks from row ``begin`` on, each the same whenever it is made, with gaps among them."""
    for b in range(begin // STEPS, blocks):
        rng = np.random.default_rng(b)
        before, Phi = (np.random.default_rng(1000 + i).normal(size=(STEPS, N)) / np.sqrt(N) for i in (b, b + 1))
        if b % 7 == 3 and b * STEPS > begin:
            yield None
        time.sleep(pause)
        yield {
            "Phi": np.vstack([before, Phi[:1]]), "R": rng.normal(size=(STEPS, K)),
            "gamma_next": np.linspace(0.5, 0.95, K), "alpha": np.linspace(0.01, 0.05, K),
            "lambda_": rng.uniform(0, 1, STEPS), "rho": rng.uniform(0, 2, STEPS), "I": rng.uniform(0, 1, (STEPS, K)),
        }  # fmt: skip


def undisturbed(blocks: int = BLOCKS) -> tuple[list[NDArray[Any]], NDArray[Any]]:
    """Predictions of each block and θ at the end, of the same shards in one process."""
    with local(RULE, N, K, **SETUP) as learner:
        return [made for made in learner.stream(stream(0, blocks)) if made is not None], learner.theta


def shard_processes(root: int | None = None) -> list[int]:
    """The processes of shards among the descendants of this process."""
    parents, shards = {}, []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parents[int(entry.name)] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
                if (entry / "cmdline").read_bytes().startswith(b"ray::Shard"):
                    shards.append(int(entry.name))
            except OSError:
                continue
    root = root or os.getpid()

    def descends(pid: int) -> bool:
        while pid > 1:
            pid = parents.get(pid, 0)
            if pid == root:
                return True
        return False

    return sorted(pid for pid in shards if descends(pid))


def kill(pid: int) -> bool:
    """Whether it was there to be killed."""
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return False
    KILLS.append(pid)
    return True
