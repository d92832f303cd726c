"""Learns many made-up machines on Ray on this machine, kills a shard once, and says the time, the memory and the bits.

python -m tools.kill_machines --machines 1000 --rows 500 --compare 60
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import emphatic
from emphatic.cluster import nexting as cluster_nexting
from emphatic.cluster.ray_shards import kill_process

__all__ = ["make_machines"]


def make_machines(machines: int, rows: int) -> pa.Table:
    """A table of machines with two signals each: a wave of the machine's own period, and a random walk.

    Args:
        machines: The number of machines.
        rows: The rows of each.
    """
    rng, t = np.random.default_rng(0), np.arange(rows)
    columns: dict[str, list[Any]] = {"machine": [], "wave": [], "walk": []}
    for machine in range(machines):
        columns["machine"].append(np.full(rows, f"m{machine:05d}"))
        wave = np.sin(t / rng.uniform(5, 40) + rng.uniform(0, 6))
        columns["wave"].append(wave + 0.2 * rng.normal(size=rows))
        columns["walk"].append(0.1 * np.cumsum(rng.normal(size=rows)))
    return pa.table({name: np.concatenate(pieces) for name, pieces in columns.items()})


def _shards() -> dict[int, float]:
    """The processes of this run's shards, and the most memory of each so far, in MB."""
    parents, peaks = {}, {}
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            parents[int(entry.name)] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            if (entry / "cmdline").read_bytes().startswith(b"ray::Shard"):
                peaks[int(entry.name)] = _peak(entry)
        except OSError:
            continue

    def is_ours(process: int) -> bool:
        while process > 1 and process != os.getpid():
            process = parents.get(process, 0)
        return process > 1

    return {process: peak for process, peak in peaks.items() if is_ours(process)}


def _peak(process: Path) -> float:
    return int((process / "status").read_text().split("VmHWM:")[1].split()[0]) / 1e3


class _Watch:
    """Kills a shard after a third of the machines, and looks at the memory of shards."""

    def __init__(self) -> None:
        self.killed, self.peak = False, 0.0
        self.looked = self.learned = time.monotonic()

    def __call__(self, phase: str, done: int, total: int) -> None:
        if phase != "learning":
            return
        self.learned = time.monotonic()
        if not self.killed and 3 * done > total:
            self.killed = kill_process(min(_shards()))
        if time.monotonic() - self.looked > 5.0:
            self.looked, self.peak = time.monotonic(), max(self.peak, *_shards().values(), 0.0)


def _same(whole: Path, few: Path) -> bool:
    """Whether the machines of the second folder have the same predictions and scores in the first."""
    expected = pq.read_table(few / "predictions.parquet")
    names = expected["machine"].unique().to_pylist()
    actual = pq.read_table(whole / "predictions.parquet", filters=[("machine", "in", names)])
    scores = []
    for folder in (whole, few):
        objects = json.loads((folder / "summary.json").read_text("utf-8"))
        objects[0].pop("reading")  # it counts all machines
        scores.append([score for score in objects if score["machine"] in names])
    same = actual.column_names == expected.column_names
    for name in expected.column_names if same else ():
        both = [table[name].combine_chunks() for table in (actual, expected)]
        if pa.types.is_floating(both[0].type):  # (Arrow says that NaN is not NaN)
            both = [pa.array(column.to_numpy(zero_copy_only=False).view(np.uint64)) for column in both]
        same = same and both[0].equals(both[1])
    return same and scores[0] == scores[1]


def main(machines: int, rows: int, shards: int, compare: int) -> None:
    """Learn, and print.

    Args:
        machines: The number of machines.
        rows: The rows of each.
        shards: The number of shards.
        compare: So many of the machines are learned in one process too, and compared.
    """
    with tempfile.TemporaryDirectory() as folder:
        path, out, watch = Path(folder) / "machines.parquet", Path(folder) / "out", _Watch()
        table = make_machines(machines, rows)
        pq.write_table(table, path)
        began = time.monotonic()
        settings = {"by": "machine"}
        cluster_nexting.run(str(path), out=out, config=settings, address="local", shards=shards, progress=watch)
        seconds = time.monotonic() - began
        print(
            f"{machines:,} machines × {rows:,} rows × 2 signals in {shards} shards: {seconds:.0f} s with the start of "
            f"Ray, {began + seconds - watch.learned:.0f} s of these to write the files; at most {watch.peak:.0f} MB a "
            f"shard, {_peak(Path('/proc/self')):.0f} MB in the driver; "
            f"{'one shard killed' if watch.killed else 'NO KILL'}."
        )
        if compare:
            pq.write_table(table.slice(0, compare * rows), path)
            began = time.monotonic()
            emphatic.nexting.run(path, out=Path(folder) / "alone", config=settings)
            words = "the same bits" if _same(out, Path(folder) / "alone") else "OTHER BITS"
            print(f"{compare:,} of them in one process: {time.monotonic() - began:.0f} s; {words}.")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--machines", type=int, default=1000)
    parser.add_argument("--rows", type=int, default=500)
    parser.add_argument("--shards", type=int, default=2)
    parser.add_argument("--compare", type=int, default=0)
    given = parser.parse_args()
    main(given.machines, given.rows, given.shards, given.compare)
