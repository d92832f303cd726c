"""A suite with the package in this checkout and in another one: ``python -m benchmarks NAME --old CHECKOUT``.

Each version runs the whole suite in processes of its own, in turn, and the better of its numbers counts. The cases are
those of this checkout; what the other version lacks is left out.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.measure import Gate
from benchmarks.report import Layout, Row

ROOT = Path(__file__).parent.parent
ROUNDS = 2
LAYOUT = Layout(
    columns=("what", "this version", "the other version", "this / other", "target", "met"),
    how=f"The better of {ROUNDS} runs of each version, which take turns.",
)


def compare(arguments: Sequence[str], old: Path) -> tuple[list[Gate], list[Row]]:
    """The gates of this version, and a row for each number that both versions have.

    Args:
        arguments: The suite and its options.
        old: The other checkout.
    """
    numbers: dict[Path, list[dict[tuple[str, str], Any]]] = {old: [], ROOT: []}
    with tempfile.TemporaryDirectory() as folder:
        for i in range(ROUNDS):
            for version, measured in numbers.items():
                out = Path(folder) / f"{i}{version == ROOT}"
                record = _run([*arguments, "--out", str(out), *["--lenient"] * (version == old)], version, out)
                measured.append({(row["section"], row["what"]): row for row in record["rows"]})
    gates = [Gate(**passed) for passed in record["gates"]]
    rows = []
    for key, row in numbers[ROOT][0].items():
        if all(key in measured for measured in numbers[old]):
            ours, theirs = (_best([measured[key] for measured in numbers[version]]) for version in (ROOT, old))
            ratio = ours / theirs if ours is not None and theirs else None
            unit = "" if row["ours"] is None else row["unit"]
            rows.append(Row(*key, tuple(row["gates"]), ours, theirs, unit=unit, ratio=ratio))
    return gates, rows


def _run(arguments: Sequence[str], version: Path, out: Path) -> dict[str, Any]:
    """The record of a suite with the package in a checkout."""
    path = os.pathsep.join([str(version / "src"), os.environ.get("PYTHONPATH", "")])
    command = [sys.executable, "-m", "benchmarks", *arguments]
    environment = os.environ | {"PYTHONPATH": path}
    if subprocess.run(command, cwd=ROOT, env=environment, check=False, stdout=subprocess.DEVNULL).returncode:
        raise SystemExit(f"the suite failed with the package in {version}")
    record: dict[str, Any] = json.loads((out / f"{arguments[0]}.json").read_text(encoding="utf-8"))
    return record


def _best(rows: Sequence[dict[str, Any]]) -> float | None:
    """The least time, or the highest rate, or the ratio of a row that has neither."""
    numbers = [row["ratio"] if row["ours"] is None else row["ours"] for row in rows]
    if None in numbers:
        return None
    return float(max(numbers) if "/s" in rows[0]["unit"] else min(numbers))
