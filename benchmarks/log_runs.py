"""Runs logs with this version of the package or with that of another checkout, each in a process of its own.

Logs and answers go through files, so that both versions are given the very same readings.
"""

from __future__ import annotations

import argparse
import inspect
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import emphatic

Array = NDArray[np.float64]
Flags = NDArray[np.bool_]

ROOT = Path(__file__).parent.parent
OURS, OLD = "this version", "the earlier version"


@dataclass(frozen=True)
class Log:
    """The readings x (T, C) of named signals, their times or None, and the horizons that are asked for."""

    names: list[str]
    x: Array
    time: Array | None
    horizons: tuple[int | str, ...]

    @classmethod
    def read(cls, source: Any, horizons: Sequence[int | str]) -> Log:
        """A log from a frame or the path of a file."""
        table = emphatic.streams.open_table(source)
        blocks = [(block.values, block.time) for block in table.blocks()]
        time = np.concatenate([time for _, time in blocks]) if table.dated else None
        return cls(list(table.names), np.concatenate([values for values, _ in blocks]), time, tuple(horizons))

    def with_readings(self, x: Array) -> Log:
        """The same log with other readings."""
        return replace(self, x=x)

    @property
    def columns(self) -> dict[str, Any]:
        """As ``emphatic.nexting.run`` takes it."""
        times = {} if self.time is None else {"time": (1e9 * self.time).astype("datetime64[ns]")}
        return dict(zip(self.names, self.x.T, strict=True)) | times


@dataclass(frozen=True)
class Answers:
    """What a version said of a log.

    - ``gammas``: the discount of each horizon, (H,);
    - ``predictions``, ``low``, ``high``: (T, C·H), the horizons of a signal side by side;
    - ``alarm``, ``why``: (T, C); the reason is "" where a version gives none.
    """

    gammas: Array
    predictions: Array
    low: Array
    high: Array
    alarm: Flags
    why: NDArray[np.str_]


def run_logs(logs: Sequence[Log], checkouts: Mapping[str, Path | None]) -> dict[str, list[Answers]]:
    """By version the answers to each of the logs.

    Args:
        logs: The logs.
        checkouts: By version the folder it is in; None for this one.
    """
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for i, log in enumerate(logs):
            times: dict[str, Any] = {} if log.time is None else {"time": log.time}
            horizons = np.array(json.dumps(log.horizons))
            np.savez(folder / f"log{i:03d}.npz", names=np.array(log.names), x=log.x, horizons=horizons, **times)
        answers = {}
        for version, checkout in checkouts.items():
            python_path = os.pathsep.join([str((checkout or ROOT) / "src"), os.environ.get("PYTHONPATH", "")])
            command = [sys.executable, "-m", "benchmarks.log_runs", name]
            subprocess.run(command, cwd=ROOT, env=os.environ | {"PYTHONPATH": python_path}, check=True)
            paths = sorted(folder.glob("answers*.npz"))
            answers[version] = [Answers(**dict(np.load(path))) for path in paths]
        return answers


def _answer(path: Path) -> None:
    """Run the log in a file, and write the answers beside it."""
    arrays = np.load(path)
    names, horizons = [str(name) for name in arrays["names"]], json.loads(str(arrays["horizons"]))
    log = Log(names, arrays["x"], arrays.get("time"), horizons)
    # Values at +h have no part in what is compared, and earlier versions have none.
    settings = inspect.signature(emphatic.nexting.run).parameters
    extra: dict[str, Any] = {"exponential_only": True} if "exponential_only" in settings else {}
    time = None if log.time is None else "time"
    result = emphatic.nexting.run(
        log.columns, time=time, predict=log.names, horizons=log.horizons, offline=False, **extra
    )
    table = result.predictions
    labels = [f"{score['signal']}@{score['horizon']}" for score in result.summary]

    def stack(names: Sequence[str]) -> Any:
        return np.stack([table.column(name).to_numpy() for name in names], axis=1)

    alarm = stack([f"{name}.alarm" for name in log.names]).astype(bool)
    why = np.full(alarm.shape, "")
    if f"{log.names[0]}.why" in table.column_names:
        reasons = [table.column(f"{name}.why").to_pylist() for name in log.names]
        why = np.array([[reason or "" for reason in column] for column in reasons]).T
    np.savez(
        path.with_name(path.name.replace("log", "answers")),
        gammas=np.array([score["gamma"] for score in result.summary[: len(labels) // len(log.names)]]),
        predictions=stack(labels),
        low=stack([f"{label}.low" for label in labels]),
        high=stack([f"{label}.high" for label in labels]),
        alarm=alarm,
        why=why,
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    for file in sorted(parser.parse_args().folder.glob("log*.npz")):
        _answer(file)
