"""The cluster suite: what Ray costs beside the same learners in bare processes, in CPU seconds of all processes.

Wall-clock time would flatter Ray, whose own processes run beside the shards on cores that nobody else uses.
"""

from __future__ import annotations

import importlib.util
import multiprocessing
import os
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import emphatic
from benchmarks.cases import RULE, Effort, run_cases
from benchmarks.measure import Gate, GateFailed, gate
from benchmarks.report import Row

SHARDS = 2


def run(quick: bool = False) -> tuple[list[Gate], list[Row]]:
    """Every gate and every row; ``quick`` only shows that the suite works."""
    if importlib.util.find_spec("ray") is None:
        raise GateFailed("there is no Ray: pip install 'emphatic[ray]'")
    if quick:
        return run_cases([Overhead(512, 20, (127, 254), 508), Memory(512, 20, 127, (2, 4))], Effort(1, 0.0))
    sizes = (127, 254, 508, 1016, 2032)
    return run_cases([Overhead(2048, 1000, sizes, 16 * 1016), Memory(2048, 200, 1016, (20, 80))], Effort(3, 0.0))


def block(K: int, n: int, steps: int) -> dict[str, Any]:
    """A block of experience, which is sent again and again."""
    rng = np.random.default_rng(0)
    gamma = rng.uniform(0.5, 0.99, K)
    return {
        "Phi": (rng.normal(size=(steps + 1, n)) / np.sqrt(n)).astype("float32"), "R": rng.normal(size=(steps, K)),
        "gamma_next": gamma, "alpha": rng.uniform(0.001, 0.01, K), "lambda_": 0.8, "I": 1 - gamma,
    }  # fmt: skip


def cluster(K: int, n: int, steps: int, storage: str) -> Any:
    kind: dict[str, Any] = {"dtype": "float32", "engine": "chunked", "shards": SHARDS, "block": steps}
    return emphatic.cluster.ClusterLearner(RULE, n, K, **kind, storage=storage, checkpoint_every="1h")


def part(whole: dict[str, Any], begin: int, end: int) -> dict[str, Any]:
    """The same for some of the learners."""
    return {name: p[..., begin:end] if name not in ("Phi", "lambda_") else p for name, p in whole.items()}


def _bare(K: int, n: int, steps: int, blocks: int, shard: int, answer: Any) -> None:
    """One bare process: the CPU seconds of its learner, after a first block."""
    each = K // SHARDS
    own = part(block(K, n, steps), shard * each, (shard + 1) * each)
    own["R"] = np.ascontiguousarray(own["R"])
    learner = emphatic.Learner(RULE, n, each, dtype="float32", engine="chunked")
    learner.run(**own, on_divergence="freeze")
    began = time.process_time()
    for _ in range(blocks):
        learner.run(**own, on_divergence="freeze")
    answer.put(time.process_time() - began)


def bare_seconds(K: int, n: int, steps: int, blocks: int) -> float:
    """CPU seconds of the learners in bare processes, all at once."""
    context = multiprocessing.get_context("spawn")
    answer = context.Queue()
    running = [context.Process(target=_bare, args=(K, n, steps, blocks, shard, answer)) for shard in range(SHARDS)]
    for process in running:
        process.start()
    seconds: float = sum(answer.get() for _ in running)
    for process in running:
        process.join()
    return seconds


def tree_seconds() -> float:
    """CPU seconds so far of this process and all that descend from it."""
    parents, spent = {}, {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            parents[int(entry.name)] = int(fields[1])
            spent[int(entry.name)] = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def is_ours(pid: int) -> bool:
        while pid > 1 and pid != os.getpid():
            pid = parents.get(pid, 0)
        return pid == os.getpid()

    return sum(seconds for pid, seconds in spent.items() if is_ours(pid))


@dataclass(frozen=True)
class Overhead:
    """K learners of n features in two shards: CPU seconds of all of Ray's processes, and of bare ones."""

    K: int
    n: int
    sizes: tuple[int, ...]
    steps: int

    @property
    def gate(self) -> str:
        return f"{SHARDS} shards on Ray, K = {self.K:,}, n = {self.n:,}"

    def gates(self) -> Iterator[Gate]:
        size = self.sizes[0]
        blocks = [block(self.K, self.n, size)] * 4
        whole = emphatic.Learner(RULE, self.n, self.K, dtype="float32", engine="chunked")
        want = [whole.run(**one, on_divergence="freeze") for one in blocks]
        with tempfile.TemporaryDirectory() as folder, cluster(self.K, self.n, size, folder) as learner:
            yield gate(self.gate, np.concatenate(list(learner.stream(blocks))), np.concatenate(want), 0.0)

    def rows(self, effort: Effort) -> Iterator[Row]:
        for size in self.sizes:
            target = 0.9 if size == 1016 else None
            blocks, bare, on_ray = self.steps // size, float("inf"), float("inf")
            one = block(self.K, self.n, size)
            with tempfile.TemporaryDirectory() as folder, cluster(self.K, self.n, size, folder) as learner:
                list(learner.stream([one] * 2))
                for _ in range(effort.rounds):
                    bare = min(bare, bare_seconds(self.K, self.n, size, blocks))
                    began = tree_seconds()
                    for _ in learner.stream([one] * blocks):
                        pass
                    on_ray = min(on_ray, tree_seconds() - began)
            yield Row(
                f"{SHARDS} × ({self.K // SHARDS:,} learners × {self.n:,} features), float32, {self.steps:,} steps, "
                "predictions to the driver; ratio is the part of the CPU that learns",
                f"blocks of {size:,} steps", gates=(self.gate,), ours=on_ray, alternative=bare, versus="bare",
                unit="CPU s", ratio=bare / on_ray, at_least=target,
            )  # fmt: skip


@dataclass(frozen=True)
class Memory:
    """The driver's own memory, without the object store, over a short stream and over a long one."""

    K: int
    n: int
    size: int
    blocks: tuple[int, int]

    @property
    def gate(self) -> str:
        return f"the same, K = {self.K:,}, n = {self.n:,}"

    def gates(self) -> Iterator[Gate]:
        for one in Overhead(self.K, self.n, (self.size,), self.size).gates():
            yield Gate(self.gate, one.error, one.tolerance)

    def rows(self, effort: Effort) -> Iterator[Row]:
        short, long = map(self.peak, self.blocks)
        yield Row(
            "the driver's memory; ratio is the long stream's to the short one's",
            f"{self.blocks[1] * self.size:,} steps, and {self.blocks[0] * self.size:,}", gates=(self.gate,), ours=long,
            alternative=short, unit="MB", ratio=long / short, at_most=1.1,
        )  # fmt: skip

    def peak(self, blocks: int) -> float:
        one, most = block(self.K, self.n, self.size), 0.0
        with tempfile.TemporaryDirectory() as folder, cluster(self.K, self.n, self.size, folder) as learner:
            for _ in learner.stream([one] * blocks):
                status = Path("/proc/self/status").read_text()
                most = max(most, int(status.split("RssAnon:")[1].split()[0]) / 1e3)
        return most
