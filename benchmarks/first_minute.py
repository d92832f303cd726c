"""README's first command, each time in a process of its own: ``python -m benchmarks.first_minute [--old CHECKOUT]``.

It is run with an empty cache, then with the cache that this filled, with the values at each horizon and without, with
one thread and with two; and with an empty cache from a wheel that contains its kernels. With ``--old`` an earlier
version does the same in turn. Times are of the wall: they count on an idle machine only, and targets are in seconds of
the two cores on which they were set.
"""

from __future__ import annotations

import argparse
import compileall
import os
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter

import numpy as np
import pyarrow.parquet as pq
from numpy.typing import NDArray

from benchmarks import report
from benchmarks.measure import Gate, gate
from benchmarks.report import Row
from emphatic.engines import generated

ROOT = Path(__file__).parent.parent
SECTION = "`emphatic nexting`, from the command to its end; ratio is seconds"
#: What is measured: its flags, and the most seconds with an empty cache and with a full one.
KINDS = {"with values at each horizon": ((), 20.0, 12.0), "`--exponential-only`": (("--exponential-only",), 20.0, 6.0)}


@dataclass
class Version:
    """One version of the package, with a cache folder of its own.

    Args:
        package: The folder that has the package.
        folder: Where its cache and its results are.
        log: The log, or none for the one that comes with the package.
    """

    package: Path
    folder: Path
    log: Sequence[str]

    def seconds(self, flags: Sequence[str]) -> float:
        """The seconds of one run."""
        command = [sys.executable, "-m", "emphatic", "nexting", *self.log, *flags]
        command += ["--out", str(self.folder / "out"), "--overwrite"]
        env = os.environ | {"PYTHONPATH": str(self.package), "EMPHATIC_CACHE_DIR": str(self.folder / "cache")}
        env.pop("PYTHONDONTWRITEBYTECODE", None)  # an installed package has its bytecode
        began = perf_counter()
        subprocess.run(command, env=env, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        return perf_counter() - began

    def predictions(self) -> NDArray[np.float64]:
        """All numbers of the last run's predictions, 0 where there is none."""
        table = pq.read_table(self.folder / "out" / "predictions.parquet")
        columns = [c.to_numpy() for c in table.columns if c.type in ("float", "double")]
        return np.nan_to_num(np.column_stack(columns).astype(np.float64))

    def empty(self) -> None:
        """Begin with an empty cache."""
        for path in sorted((self.folder / "cache").rglob("*"), reverse=True):
            path.rmdir() if path.is_dir() else path.unlink()


def unpack_wheel(folder: Path, kernels: Path) -> Path:
    """The folder of a wheel that was built with the kernels of a cache folder."""
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    env = os.environ | {"EMPHATIC_KERNELS": str(kernels)}
    subprocess.run(command, cwd=ROOT, env=env, check=True, capture_output=True)
    (wheel,) = folder.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder / "wheel")
    return folder / "wheel"


def measure_wheel(ours: Version, gates: list[Gate]) -> Iterator[Row]:
    """The first run after the installation of a wheel that contains its kernels."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for flags, _, _ in KINDS.values():  # (our cache then has the kernels of all)
            ours.seconds(flags)
        generated.name_processor(ours.folder / "cache")
        wheel = Version(unpack_wheel(folder, ours.folder / "cache"), folder / "run", ours.log)
        compileall.compile_dir(wheel.package, quiet=2)  # as pip does
        for kind, (flags, target, _) in KINDS.items():
            ours.seconds(flags)
            seconds = wheel.seconds(flags)
            gate_name = f"{kind}: a wheel with kernels gives the same numbers"
            gates.append(gate(gate_name, wheel.predictions(), ours.predictions(), tolerance=0.0))
            what = f"{kind}, empty cache, a wheel with kernels"
            yield Row(SECTION, what, (gate_name,), seconds, None, "", "s", seconds, at_most=target)


def measure(versions: Sequence[Version], rounds: int, gates: list[Gate]) -> Iterator[Row]:
    """The rows; the first version is ours."""
    for kind, (flags, cold_target, warm_target) in KINDS.items():
        for version in versions:
            version.empty()
        cold = [version.seconds(flags) for version in versions]
        outcome = versions[0].predictions()
        turns = [[version.seconds(flags) for version in versions] for _ in range(rounds)]
        warm = [min(times) for times in zip(*turns, strict=True)]
        two = min(versions[0].seconds([*flags, "--threads", "2"]) for _ in range(rounds))
        name = f"{kind}: two threads, and a cache that was empty, give the same numbers"
        gates.append(gate(name, versions[0].predictions(), outcome, tolerance=0.0))
        for what, times, target in (("empty cache", cold, cold_target), ("full cache", warm, warm_target)):
            earlier = times[1] if len(times) > 1 else None
            versus = "the earlier version" if earlier else ""
            yield Row(SECTION, f"{kind}, {what}", (name,), times[0], earlier, versus, "s", times[0], at_most=target)
        yield Row(
            "two threads beside one, full cache", kind, (name,), two, warm[0], "one thread", "s", warm[0] / two, 1.7
        )


def run(old: Path | None, quick: bool = False) -> tuple[list[Gate], list[Row]]:
    """Every gate and every row; ``quick`` only shows that the command works."""
    gates: list[Gate] = []
    with tempfile.TemporaryDirectory() as name:
        folder, log = Path(name), []
        if quick:
            pq.write_table(pq.read_table(ROOT / "src/emphatic/data/household.parquet")[:400], folder / "log.parquet")
            log = [str(folder / "log.parquet")]
        roots = [ROOT] if old is None else [ROOT, old]
        versions = [Version(root / "src", folder / str(i), log) for i, root in enumerate(roots)]
        rows = list(measure(versions, 1 if quick else 3, gates))
        return gates, [*rows, *measure_wheel(versions[0], gates)]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.first_minute", description=__doc__)
    parser.add_argument("--old", type=Path, metavar="CHECKOUT", help="an earlier version to compare with")
    parser.add_argument("--quick", action="store_true", help="few rows, one round: a smoke test, no measurement")
    parser.add_argument("--out", type=Path, default=Path("first_minute"), metavar="FOLDER")
    args = parser.parse_args()
    if args.old is not None and not (args.old / "src" / "emphatic").is_dir():
        parser.error(f"{args.old} is no checkout of emphatic: git worktree add DIR COMMIT makes one")
    gates, rows = run(args.old, args.quick)
    report.publish("first_minute", "python -m benchmarks.first_minute", gates, rows, args.out)
    return 0


if __name__ == "__main__":
    sys.exit(main())
