"""Measures what a cluster on this machine costs, and from which size on it is faster than one process, as a table.

python -m tools.cluster_costs
"""

from __future__ import annotations

import statistics
import tempfile
import time
from typing import Any

import numpy as np

from emphatic import GVF, Horde
from emphatic import features as f
from emphatic.cluster import ClusterHorde, local
from emphatic.cluster.learner import BLOCK

__all__ = ["break_even"]

_ROWS = 50 * BLOCK


def break_even(start: float, row: float, question: float, block: float, shards: int, questions: int) -> float | None:
    """The rows from which on shards are faster than one process; None if they never are.

    One process takes ``row`` + questions · ``question`` seconds a row. A shard makes its own features, so that it takes
    ``row`` + (questions / shards) · ``question``; and the driver takes ``block`` seconds for each block and shard.

    Args:
        start: Seconds to start.
        row: Seconds of a row, whatever is asked.
        question: Seconds of a row for each question.
        block: Seconds of the driver for each block and shard.
        shards: The number of shards, one a core.
        questions: The number of questions.
    """
    gain = question * (questions - questions / shards) - block * shards / BLOCK
    return start / gain if gain > 0 else None


def _log(rows: int) -> dict[str, Any]:
    t = np.arange(rows)
    return {"load": np.sin(t / 9) + 0.1 * np.sin(t * t % 1000), "wind": np.cos(t / 50)}


def _questions(count: int) -> list[GVF]:
    names = ("load", "wind")
    return [GVF(names[q % 2], horizon=h, name=f"q{q}") for q, h in enumerate(np.geomspace(2, 200, count).tolist())]


def _features() -> f.Features:
    return f.Features([f.Bias(), f.SoftBins("load", bins=8), f.SoftBins("wind", bins=8)])


def _seconds(run: Any, times: int = 3) -> float:
    took = []
    for _ in range(times):
        began = time.perf_counter()
        run()
        took.append(time.perf_counter() - began)
    return min(took)


def main() -> None:
    """Measure, and print."""
    log = _log(_ROWS)
    alone = {q: _seconds(lambda q=q: Horde(_questions(q), _features(), engine="sparse").run(log)) for q in (8, 64)}
    question = (alone[64] - alone[8]) / 56 / _ROWS
    row = alone[8] / _ROWS - 8 * question

    def run_here() -> None:
        with local(_questions(8), _features(), shards=2, engine="sparse") as horde:
            horde.run(log)

    here = _seconds(run_here)
    with tempfile.TemporaryDirectory() as folder:
        began = time.perf_counter()
        with ClusterHorde(_questions(8), _features(), shards=2, storage=folder, engine="sparse") as horde:
            horde.warm_up(log)
            list(horde.stream([{name: column[:BLOCK] for name, column in log.items()}]))
            start = time.perf_counter() - began
            blocks = [
                {name: column[begin : begin + BLOCK] for name, column in log.items()}
                for begin in range(0, _ROWS, BLOCK)
            ]
            on_ray = _seconds(lambda: list(horde.stream(blocks)))
            calls = []
            for block in blocks[:20]:  # one at a time: the driver's part of each
                began = time.perf_counter()
                parcel = horde._parcel(horde.as_block(block))
                references = [horde._driver.backend.put(parcel.shared)]  # type: ignore[union-attr]
                pulse = [horde._driver.backend.call(s, "process") for s in (0, 1)]  # type: ignore[union-attr]
                for call in pulse:
                    horde._driver.backend.get(call)  # type: ignore[union-attr]
                calls.append((time.perf_counter() - began) / 2)
                del references
            per_block = statistics.median(calls)
    print(
        f"8 questions × {_ROWS:,} rows: one process {alone[8]:.2f} s, 2 local shards {here:.2f} s, Ray with 2 shards "
        f"{on_ray:.2f} s and {start:.1f} s to start."
    )
    print(
        f"A row takes {1e6 * row:.1f} µs and {1e6 * question:.2f} µs a question; the driver takes "
        f"{1e3 * per_block:.1f} ms for each block and shard.\n"
    )
    print("| questions | 2 cores | 8 cores | 64 cores |\n|--:|--:|--:|--:|")
    for questions in (8, 64, 512, 4096):
        cells = []
        for shards in (2, 8, 64):
            rows = break_even(start, row, question, per_block, shards, questions)
            cells.append("never" if rows is None or questions < shards else f"{rows:,.0f}")
        print(f"| {questions:,} | " + " | ".join(cells) + " |")


if __name__ == "__main__":
    main()
