"""This checkout beside another one: ``python -m benchmarks.versions DIR [--quick] [--out FOLDER]``.

Two processes, one with each version, take turns; nothing is compared with a number from another run. The first call of
each case is made with an empty cache: its processor time is what compiling costs.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import report
from benchmarks.measure import Gate, gate
from benchmarks.report import Row

ROOT = Path(__file__).parent.parent
RULES = ("true_online_etd", "true_online_gtd")


@dataclass(frozen=True)
class Case:
    """One thing to time, how many steps a call has, and the most that ours may take of the other's time."""

    section: str
    what: str
    kind: str
    of: dict[str, Any]
    steps: int
    at_most: float | None = 1.03
    compiles: bool = True


def cases(quick: bool) -> list[Case]:
    found: list[Case] = []
    short = 20 if quick else 1

    def run(section: str, engine: str, n: int, K: int | None, T: int, active: int | None = None, **kind: Any) -> None:
        at_most, dtypes = kind.get("at_most", {}), kind.get("dtypes", ("float64",))
        for rule in RULES:
            for dtype in dtypes:
                T_ = max(20, T // short)
                of = {"engine": engine, "rule": rule, "dtype": dtype, "n": n, "K": K, "T": T_, "active": active}
                what = f"{rule}, {dtype}, n = {n:,}" + (f", K = {K:,}" if K else "")
                what += f", {active} active" if active else ""
                found.append(Case(section, what, "run", of, T_ * (K or 1), at_most.get(rule, 1.03)))

    both = ("float64", "float32")
    for n, T in ((16, 20_000), (100, 5_000), (1_000, 500)):
        run("dense, one learner", "dense", n, None, T, dtypes=both if n == 100 else ("float64",))
    run("dense, several learners", "dense", 100, 64, 300)
    lanes = dict.fromkeys(RULES, 1.05)
    run("dense, few features (lanes)", "dense", 6, 1_000, 512, at_most=lanes)
    run("chunked", "chunked", 100, 256, 1_270, dtypes=both)
    faster = {"true_online_gtd": 0.85}
    for active in (10, 40):
        run("sparse, one learner", "sparse", 100_000, None, 3_000, active, at_most=faster)
    run("sparse, several learners", "sparse", 10_000, 100, 500, 32)
    found += [
        Case("a call", "learn, n = 100", "learn", {"n": 100, "K": None, "calls": 200}, 200, 1.1, False),
        Case("a call", "learn, n = 100, K = 10", "learn", {"n": 100, "K": 10, "calls": 50}, 50, 0.2, False),
        Case("a call", "run of one step, n = 100", "short runs", {"n": 100, "calls": 50}, 50, 0.2, False),
        Case("a call", "Learner(), n = 100", "creations", {"n": 100, "calls": 50}, 50, 1.0, False),
    ]
    rows = 400_000 // short
    found.append(Case("a file", f"read {rows:,} × 7 of CSV", "read", {"rows": rows, "columns": 7}, rows, 1.03, False))
    for signals, horizons in ((1, [2]), (5, [2, 9, 36, 144]), (20, [2, 9, 36, 144])):
        for block, at_most in ((1, 0.25 if signals == 1 else 1.03), (64, 1.03), (1_000, 1.03)):
            readings = 64 if quick else max(256, 2 * block)
            of = {"signals": signals, "horizons": horizons, "block": block, "readings": readings}
            what = f"{block} at a time, {signals} signals at {len(horizons)} horizons"
            found.append(Case("readings as they come", what, "take", of, readings, at_most, False))
    return found


class Version:
    """A process that times cases with one version of the package."""

    def __init__(self, root: Path, cache: str) -> None:
        env = os.environ | {"PYTHONPATH": str(root / "src"), "EMPHATIC_CACHE_DIR": cache}
        command = [sys.executable, "-W", "ignore", str(Path(__file__).with_name("version_cases.py"))]
        self.process = subprocess.Popen(command, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def time(self, case: Case, seconds: float) -> tuple[float, float, list[float]]:
        """The least time of a call, and the processor time of the first, in seconds; and the end of what it gave."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps({"kind": case.kind, "of": case.of, "seconds": seconds}) + "\n")
        self.process.stdin.flush()
        answer = json.loads(self.process.stdout.readline())
        return answer["least"], answer["first"], answer["outcome"]

    def close(self) -> None:
        self.process.communicate()


def run(against: Path, quick: bool = False, only: str = "") -> tuple[list[Gate], list[Row]]:
    """Every case in both versions, in turn; or those alone that have ``only`` in their section or name."""
    rounds, seconds = (1, 0.0) if quick else (9, 0.1)
    gates: list[Gate] = []
    with tempfile.TemporaryDirectory() as ours, tempfile.TemporaryDirectory() as theirs:
        versions = [Version(ROOT, ours), Version(against, theirs)]
        chosen = [case for case in cases(quick) if only in f"{case.section}: {case.what}"]
        rows = [row for case in chosen for row in _rows(case, versions, rounds, seconds, gates)]
        for version in versions:
            version.close()
    return gates, sorted(rows, key=lambda row: row.section.startswith("cold"))


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.versions", description=__doc__)
    parser.add_argument("against", type=Path, metavar="DIR", help="a checkout of the other version")
    parser.add_argument("--quick", action="store_true", help="small sizes, one round: a smoke test, no measurement")
    parser.add_argument("--only", default="", metavar="TEXT", help="the rows alone that have this text in them")
    parser.add_argument("--out", type=Path, default=Path("versions"), metavar="FOLDER")
    args = parser.parse_args()
    if not (args.against / "src" / "emphatic").is_dir():
        parser.error(f"{args.against} is no checkout of emphatic: git worktree add DIR COMMIT makes one")
    gates, rows = run(args.against, args.quick, args.only)
    if not rows:
        parser.error(f"--only {args.only!r} is in no row")
    report.publish("versions", "python -m benchmarks.versions DIR", gates, rows, args.out)
    return 0


def _rows(case: Case, versions: list[Version], rounds: int, seconds: float, gates: list[Gate]) -> Iterator[Row]:
    least, first, outcomes = [float("inf")] * 2, [0.0] * 2, []
    for turn in range(rounds):
        for i, version in enumerate(versions):
            time, begin, outcome = version.time(case, seconds)
            least[i] = min(least[i], time)
            if turn == 0:
                first[i] = begin
                outcomes.append(np.array(outcome))
    name = f"{case.section}: {case.what}"
    if outcomes[0].size:
        gates.append(gate(name, outcomes[0], outcomes[1], tolerance=1e-4 if "float32" in case.what else 1e-9))
    (ours, theirs), versus = (1e6 * time / case.steps for time in least), "the other version"
    yield Row(
        case.section, case.what, gates=(name,) if outcomes[0].size else (), ours=ours, alternative=theirs,
        versus=versus, ratio=ours / theirs,
        at_most=case.at_most, note="time, the other version = 1",
    )  # fmt: skip
    if case.compiles and first[1] > 0.5:
        yield Row(
            "cold compilation, processor time", f"{case.section}: {case.what}", gates=(), ours=first[0],
            alternative=first[1], versus=versus, unit="s", ratio=first[0] / first[1], at_most=1.6,
        )  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
