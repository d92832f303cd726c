"""A log and questions about it, and processes of shards to kill."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from emphatic import GVF
from emphatic import features as f

ROWS, BLOCK = 3000, 100
SETUP: dict[str, Any] = {"shards": 2, "engine": "sparse", "block": BLOCK}


def log(rows: int = ROWS) -> dict[str, Any]:
    t = np.arange(rows)
    return {"a": np.sin(t / 9.0), "b": np.cos(t / 17.0), "mode": np.where(t % 50 < 25, "red", "blue")}


def questions() -> list[GVF]:
    return [GVF(name, horizon=h) for name in "ab" for h in (2, 9, 30, 100)]


def features() -> f.Features:
    """Six in all, for which other tests too compile a kernel."""
    return f.Features([f.Bias(), f.SoftBins("a", bins=2), f.SoftBins("b", bins=3)])


def makers() -> dict[str, f.Features]:
    """Features of their own for every other question."""
    other = f.Features([f.Bias(), f.SoftBins("b", bins=6), f.SoftBins("a", bins=2)])
    shared = features()
    return {question.name: shared if q % 2 else other for q, question in enumerate(questions())}


def blocks(first: int = 0, rows: int = ROWS, pause: float = 0.0) -> Iterator[dict[str, Any]]:
    """The log from a row on."""
    for begin in range(first, rows, BLOCK):
        time.sleep(pause)
        yield {name: column[begin : begin + BLOCK] for name, column in log(rows).items()}


def processes(title: bytes) -> list[int]:
    """The descendants of this process whose title begins with these words."""
    parents, titled = {}, []
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            parents[int(entry.name)] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            if (entry / "cmdline").read_bytes().startswith(title):
                titled.append(int(entry.name))

    def descends(pid: int) -> bool:
        while pid > 1:
            pid = parents.get(pid, 0)
            if pid == os.getpid():
                return True
        return False

    return sorted(pid for pid in titled if descends(pid))


def kill(title: bytes = b"ray::Shard") -> int:
    """Kill the first of these processes with SIGKILL, as soon as there is one."""
    until = time.monotonic() + 120
    while time.monotonic() < until:
        for pid in processes(title):
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
            return pid
        time.sleep(0.02)
    raise AssertionError(f"there is no process {title!r}")
