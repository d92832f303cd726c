"""A data engineer divides a horde over a Ray cluster; shards are killed with SIGKILL, and no prediction changes."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from emphatic import GVF, Horde
from emphatic import features as f
from emphatic.nexting.cluster import ClusterHorde, local

ROWS = 20_000
t = np.arange(ROWS)
LOG = {"load": np.sin(t / 9) + 0.1 * np.cos(t * t), "wind": np.cos(t / 50)}
FIRST = {name: column[:2000] for name, column in LOG.items()}
QUESTIONS = [GVF(name, horizon=h) for name in LOG for h in (2, 9, 36, 144)]


def features() -> f.Features:
    return f.Features([f.Bias(), f.SoftBins("load", bins=8), f.SoftBins("wind", bins=8)])


def actors() -> list[int]:
    """The processes of shards on this machine."""
    pids = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            command = (process / "cmdline").read_text()
        except OSError:
            continue
        if command.startswith("ray::Shard"):
            pids.append(int(process.name))
    return pids


def blocks(kill_before: tuple[int, ...] = ()) -> Iterator[dict[str, np.ndarray]]:
    """The log, 1,000 rows at a time; before some of these rows a shard is killed."""
    for begin in range(0, ROWS, 1000):
        if begin in kill_before:
            os.kill(actors()[0], signal.SIGKILL)
        yield {name: column[begin : begin + 1000] for name, column in LOG.items()}


with local(QUESTIONS, features(), shards=2, engine="sparse") as here:
    here.warm_up(FIRST)
    undisturbed = np.concatenate(list(here.stream(blocks())))
assert undisturbed.shape == (ROWS, 8)

with ClusterHorde(QUESTIONS, features(), shards=2, engine="sparse", storage="storage") as cluster:
    cluster.warm_up(FIRST)
    killed = np.concatenate(list(cluster.stream(blocks(kill_before=(1000, 7000, 13000)))))
    cluster.save("model.safetensors")
assert np.array_equal(killed, undisturbed), "the predictions are those of shards that were not killed"

horde = Horde.load("model.safetensors")
row = {"load": 0.5, "wind": -0.25}
assert np.isfinite(horde.observe(row)).all()
