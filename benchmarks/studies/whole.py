"""The whole grid of a study, not a part of it: processor and wall time in all, in as many calls as it takes.

    python -m benchmarks.studies.whole four-rooms --jobs 16 --minutes 9

A call stops after ``--minutes``, and the next one resumes where it was. ``calls.json``, beside the study's files, has
the times of every call; the processor time is that of all processes, compiling included.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import sys
import time
from pathlib import Path
from typing import Any

from benchmarks.measure import one_thread

#: Steps of a first sweep, in which each process compiles a few kernels for all.
FIRST_STEPS = 300


class OutOfTime(Exception):
    """The call's minutes are over."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.studies.whole", description=__doc__)
    parser.add_argument("study", choices=("four-rooms", "four-rooms-high-variance"))
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), metavar="N")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="stop after so many; the next call resumes")
    parser.add_argument("--out", type=Path, default=Path("reproduce"), metavar="DIR")
    parser.add_argument("--quick", action="store_true", help="the study's quick form: shows that the command works")
    args = parser.parse_args()
    one_thread()
    return run(args.study, args.jobs, args.minutes, args.out, args.quick)


def run(study: str, jobs: int, minutes: float, out: Path, quick: bool) -> int:
    """One call; 0 when the study is finished, 3 when it is to be called again."""
    from joblib.externals.loky import get_reusable_executor

    from reproductions import reproduce

    began, shown = time.monotonic(), 0.0
    share = 0.0

    def progress(phase: str, done: int, total: int) -> None:
        nonlocal share, shown
        share, now = done / total, time.monotonic() - began
        if now - shown > 15 or done == total:
            shown = now
            print(f"{now:7.0f} s  {100 * share:5.1f}%", flush=True)
        if now > 60 * minutes and done < total:
            raise OutOfTime

    finished = True
    try:
        if not quick:
            compile_kernels(jobs)
            print(f"{time.monotonic() - began:7.0f} s  kernels are compiled", flush=True)
        outcome = reproduce(study, quick, out, jobs=jobs, progress=progress)
    except OutOfTime:
        finished = False
    get_reusable_executor().shutdown(wait=True, kill_workers=True)  # processes count when they have ended
    folder = out / study
    calls = [*_calls(folder), {"jobs": jobs, "wall": time.monotonic() - began, "cpu": _cpu(), "done": share}]
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "calls.json").write_text(json.dumps(calls, indent=1) + "\n", encoding="utf-8")
    wall, cpu = (sum(call[name] for call in calls) for name in ("wall", "cpu"))
    print(f"{study}: {100 * share:.1f}% done in {len(calls)} calls, {wall:.0f} s of wall time on {jobs} processes, "
          f"{cpu:.0f} s of processor time in all: {cpu / 120:.1f} minutes on two cores")  # fmt: skip
    if not finished:
        print("not finished: call it again")
        return 3
    print(f"{sum(check.agree is True for check in outcome.checks)} numbers agree, all: {outcome.agree}")
    return 0


def compile_kernels(jobs: int) -> None:
    """A short sweep of the whole grid: each rule's kernels are compiled by one process, and read by the others."""
    from emphatic.studies import sweep
    from reproductions.comparisons import FourRoomsStudy

    sweep(
        "four_rooms",
        FourRoomsStudy.grids(False),
        runs=1,
        steps=FIRST_STEPS,
        every=FourRoomsStudy.EVERY,
        rerun=1,
        jobs=jobs,
    )


def _calls(folder: Path) -> list[dict[str, Any]]:
    """The calls before this one, unless they finished the study."""
    path = folder / "calls.json"
    found: list[dict[str, Any]] = json.loads(path.read_text(encoding="utf-8")) if path.exists() else []
    return found if found and found[-1]["done"] < 1.0 else []


def _cpu() -> float:
    """Seconds of processor time, of this process and those that it has waited for."""
    own, others = resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN)
    return own.ru_utime + own.ru_stime + others.ru_utime + others.ru_stime


if __name__ == "__main__":
    sys.exit(main())
