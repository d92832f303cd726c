"""The first_minute suite: README's first command in processes of its own, with an empty cache and with a full one.

Times are of the wall: they count on an idle machine only, and targets are in seconds of the two cores on which they
were set.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
import pyarrow.parquet as pq

import emphatic
from benchmarks.measure import Case, Effort, Gate, gate
from benchmarks.report import Row

EFFORT = Effort(3, 0.0)


def cases(quick: bool) -> Sequence[Case]:
    """All cases; ``quick`` takes few rows of the log."""
    return [FirstCommand((20.0, 12.0), 400 if quick else None)]


@dataclass
class FirstCommand:
    """``emphatic nexting`` on the log that comes with the package.

    Args:
        limits: The most seconds with an empty cache, and with a full one.
        T: The first rows of the log alone, or None for all.
        folder: Where the cache and the results are.
        cold: The seconds of the first run, whose cache is empty.
    """

    limits: tuple[float, float]
    T: int | None
    folder: Any = field(default_factory=tempfile.TemporaryDirectory)
    cold: float = float("inf")

    name = "a cache that was empty gives the same numbers"

    def seconds(self) -> float:
        """The seconds of one run."""
        folder, log = Path(self.folder.name), []
        if self.T is not None:
            pq.write_table(pq.read_table(emphatic.nexting.data.household())[: self.T], folder / "log.parquet")
            log = [str(folder / "log.parquet")]
        command = [sys.executable, "-m", "emphatic", "nexting", *log]
        command += ["--out", str(folder / "out"), "--overwrite"]
        env = os.environ | {"EMPHATIC_CACHE_DIR": str(folder / "cache")}
        env.pop("PYTHONDONTWRITEBYTECODE", None)  # an installed package has its bytecode
        began = perf_counter()
        subprocess.run(command, env=env, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        return perf_counter() - began

    def predictions(self) -> Any:
        """All numbers of the last run's predictions, 0 where there is none."""
        table = pq.read_table(Path(self.folder.name) / "out" / "predictions.parquet")
        columns = [column.to_numpy() for column in table.columns if column.type in ("float", "double")]
        return np.nan_to_num(np.column_stack(columns).astype(np.float64))

    def gates(self) -> Iterator[Gate]:
        self.cold = self.seconds()
        first = self.predictions()
        self.seconds()
        yield gate(self.name, self.predictions(), first, tolerance=0.0)

    def rows(self, effort: Effort) -> Iterator[Row]:
        with self.folder:  # which is removed in the end
            warm = min(self.seconds() for _ in range(effort.rounds))
        for what, seconds, at_most in zip(("empty cache", "full cache"), (self.cold, warm), self.limits, strict=True):
            yield Row(
                "`emphatic nexting`, from the command to its end; ratio is seconds",
                what,
                gates=(self.name,),
                ours=seconds,
                unit="s",
                ratio=seconds,
                at_most=at_most,
            )
