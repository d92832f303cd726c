"""Kills shards of a cluster on this machine again and again, and says how long each takes to be back, and the bits.

python -m tools.kill_shards --kills 100 --rows 10000 --signals 100
"""

from __future__ import annotations

import argparse
import logging
import random
import statistics
import tempfile
import threading
import time
from collections.abc import Iterator
from typing import Any

import numpy as np

from emphatic import GVF
from emphatic import features as f
from emphatic.cluster import ClusterHorde, local
from emphatic.cluster.ray_shards import kill_process

__all__ = ["kill_shards"]

_BLOCK = 254


class _Times(logging.Handler):
    """The seconds after which shards were back, from the lines that the driver logs."""

    def __init__(self) -> None:
        super().__init__()
        self.seconds: list[float] = []

    def emit(self, record: logging.LogRecord) -> None:
        if "is back at block" in record.msg and isinstance(record.args, tuple):
            self.seconds.append(float(str(record.args[-1])))


def kill_shards(kills: int, rows: int, signals: int, pause: float = 1.0) -> tuple[list[float], bool]:
    """Kill a shard's process so many times, at moments that are not chosen.

    Args:
        kills: The number of kills.
        rows: The rows to warm up on.
        signals: The signals of each row.
        pause: The seconds between the return of a shard and the next kill, at most.

    Returns:
        The seconds after which each shard was back, and whether the predictions are those of one process bit for bit.
    """
    rng, names = np.random.default_rng(0), [f"signal{c}" for c in range(signals)]
    t = np.arange(rows)[:, None]
    values = np.sin(t / np.linspace(3, 300, signals)) + 0.1 * rng.normal(size=(rows, signals))
    log = dict(zip(names, values.T, strict=True))
    questions = [GVF(name, horizon=9) for name in names]
    features = f.Features([f.Bias(), *(f.SoftBins(name, bins=8) for name in names[:2])])
    setup: dict[str, Any] = {"shards": 2, "engine": "sparse", "block": _BLOCK}
    times, random_times = _Times(), random.Random(0)
    logging.getLogger("emphatic.cluster.driver").addHandler(times)
    with tempfile.TemporaryDirectory() as folder:
        with ClusterHorde(questions, features, **setup, storage=folder, checkpoint_every=1.0) as horde:
            horde.warm_up(log, rows=rows)
            killed, ended = 0, threading.Event()

            def kill() -> None:
                nonlocal killed
                while killed < kills and not ended.wait(random_times.uniform(0.1, pause)):
                    while len(times.seconds) < killed and not ended.wait(0.05):
                        pass
                    place = random_times.choice(horde.places)
                    killed += kill_process(place.process)

            def blocks() -> Iterator[Any]:
                """The log again and again, slowly, until there have been enough kills."""
                number = 0
                while len(times.seconds) < kills:
                    begin = number * _BLOCK % (rows - _BLOCK)
                    number += 1
                    time.sleep(0.05)
                    yield {name: column[begin : begin + _BLOCK] for name, column in log.items()}
                learned.append(number)

            learned: list[int] = []
            killer = threading.Thread(target=kill, daemon=True)
            killer.start()
            answers = list(horde.stream(blocks()))
            ended.set()
        with local(questions, features, **setup) as horde:
            horde.warm_up(log, rows=rows)
            begins = [number * _BLOCK % (rows - _BLOCK) for number in range(learned[0])]
            blocks_again = ({name: column[b : b + _BLOCK] for name, column in log.items()} for b in begins)
            same = all(np.array_equal(a, b) for a, b in zip(answers, horde.stream(blocks_again), strict=True))
    logging.getLogger("emphatic.cluster.driver").removeHandler(times)
    return times.seconds, same


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--rows", type=int, default=10_000)
    parser.add_argument("--signals", type=int, default=100)
    given = parser.parse_args()
    seconds, same = kill_shards(given.kills, given.rows, given.signals)
    print(
        f"{len(seconds)} kills, warm-up of {given.rows:,} rows × {given.signals} signals: back after "
        f"{statistics.median(seconds):.1f} s (median), {max(seconds):.1f} s (longest); "
        f"{'the same bits' if same else 'OTHER BITS'} as one process."
    )
