"""Faults of the disk and of memory at every write: what is there afterwards is the old file or the new one.

    python -m tests.attack.faults save|nexting|sweep [--fine]

The faults are real ones, each in a child process: a limit on the size of files, at which a write fails as on a full
disk ("full") or kills the process in the midst of it ("kill"); signals all the time, which interrupt system calls
("signals"); and no memory but some KiB ("memory"). Prints how many faults of each kind there were, and their outcome.
"""

from __future__ import annotations

import json
import os
import resource
import shutil
import signal
import sys
import tempfile
import warnings
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from pathlib import Path

import numpy as np

from emphatic import Learner, studies
from emphatic.nexting import load_model
from emphatic.nexting.runs.runner import Nexting
from emphatic.nexting.runs.settings import Settings

Work = Callable[[Path, bool], None]

SAVED = 60_000
#: What a process has used up.
HELD: list[bytearray] = []


def save(folder: Path, new: bool) -> None:
    learner = Learner("td", SAVED, engine="reference")
    learner.theta = np.full(SAVED, float(new))
    learner.save(folder / "model.safetensors", note="new" if new else "old")


def nexting(folder: Path, new: bool) -> None:
    table = {"x": np.sin(np.arange(120) / 9) + 100.0 * new}
    Nexting(table, Settings(horizons=(2,)), folder).run()


def sweep(folder: Path, new: bool) -> None:
    studies.sweep("chain", {"rule": "td", "alpha": [0.01, 0.1]}, runs=2, steps=60 + new, out=folder, resume=False)


def check_saved(folder: Path) -> None:
    learner, more = Learner.load_with(folder / "model.safetensors")
    assert np.array_equal(learner.theta, np.full(SAVED, float(more["note"] == "new")))


def check_parquet(folder: Path) -> None:
    import pyarrow.parquet as pq

    for path in folder.glob("*.parquet"):
        assert pq.read_table(path).num_rows > 0
    for path in folder.glob("*.json"):
        json.loads(path.read_text("utf-8"))
    for path in folder.glob("*.html"):
        assert path.read_text("utf-8").rstrip().endswith("</html>")
    if (folder / "model.safetensors").exists():
        load_model(folder / "model.safetensors")


WORK: dict[str, tuple[Work, Callable[[Path], None]]] = {
    "save": (save, check_saved), "nexting": (nexting, check_parquet), "sweep": (sweep, check_parquet),
}  # fmt: skip


def limits(kind: str, sizes: Collection[int], fine: bool) -> Iterator[int]:
    """Where the fault is to be: bytes of a file, or KiB of memory."""
    if kind == "signals":
        yield from range(20 if fine else 3)
    elif kind == "memory":
        yield from (0, *(2**k for k in range(0, 18, 1 if fine else 3)))
    else:
        # In the first byte, in the middle and in the last byte of every file; and in steps through the largest.
        steps = range(0, max(sizes), max(1, max(sizes) // 200)) if fine else ()
        yield from sorted({0, *(size // 2 for size in sizes), *(size - 1 for size in sizes), *steps})


def exhaust_memory(free: int) -> None:
    """Use up all the memory that this process has, and let it have so many bytes more."""
    with open("/proc/self/statm") as file:
        size = int(file.read().split()[0]) * resource.getpagesize()
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (size, hard))
    for power in range(30, 8, -1):
        with suppress(MemoryError):
            while True:
                HELD.append(bytearray(1 << power))
    resource.setrlimit(resource.RLIMIT_AS, (size + free, hard))


def child(work: Work, folder: Path, kind: str, limit: int) -> int:
    """Do the work with this fault; the exit code: 0 done, 3 an error that says so, 1 another error."""
    if kind in ("full", "kill"):
        signal.signal(signal.SIGXFSZ, signal.SIG_DFL if kind == "kill" else signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
    elif kind == "signals":
        signal.signal(signal.SIGALRM, lambda *_: None)
        signal.setitimer(signal.ITIMER_REAL, 1e-4 * (1 + limit), 1e-4 * (1 + limit))
    else:
        exhaust_memory(1024 * limit)
    try:
        work(folder, True)
    except (OSError, MemoryError):
        return 3
    except SystemError:
        if kind == "memory":  # of NumPy, where there is no room even for an error
            return 3
        raise
    return 0


def attempt(work: Work, folder: Path, kind: str, limit: int) -> int:
    """The same in a process of its own; its exit code, or minus the signal that ended it."""
    process = os.fork()
    if process == 0:
        code = 1
        try:
            os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
            code = child(work, folder, kind, limit)
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])


def attack(name: str, fine: bool) -> Counter[str]:
    """Every fault in turn; AssertionError where a file is neither the old one nor a whole new one."""
    work, check = WORK[name]
    found: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made) / "out"
        folder.mkdir()
        work(folder, True)
        new = {path.name: path.stat().st_size for path in folder.iterdir()}
        for kind in ("full", "kill", "signals", "memory"):
            for limit in limits(kind, new.values(), fine):
                shutil.rmtree(folder)
                folder.mkdir()
                work(folder, False)
                old = {path.name: path.read_bytes() for path in folder.iterdir()}
                code = attempt(work, folder, kind, limit)
                # (The C library ends a process with 127 where a thread does not fit.)
                outcome = {0: "done", 1: "wrong", 3: "refused"}.get(code, "killed")
                found[f"{kind}: {outcome}"] += 1
                assert outcome != "wrong", (kind, limit)
                there = {path.name: path for path in folder.iterdir() if not path.name.startswith(".")}
                assert there.keys() == new.keys(), (kind, limit, sorted(there))
                check(folder)
                left = {path.name for path in folder.iterdir()} - new.keys()
                if outcome == "refused":
                    # A sweep goes on from there; without memory nothing can be tidied up.
                    may = {".unfinished"} if name == "sweep" or kind == "memory" else set()
                    assert left <= may, (kind, limit, left)
                    same = {n: path.read_bytes() == old[n] for n, path in there.items()}
                    assert all(same.values()) or name == "sweep", (kind, limit, same)  # whose files come one by one
                if left:  # what is left is in nobody's way, and gone when the work is done again
                    work(folder, True)
                    assert {path.name for path in folder.iterdir()} == new.keys(), (kind, limit)
                    check(folder)
    return found


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    print(json.dumps(dict(attack(sys.argv[1], "--fine" in sys.argv))))
