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
    return gates, [
        Row(
            section, what, tuple(row["gates"]), _best(numbers[ROOT], key), _best(numbers[old], key), unit=row["unit"],
            ratio=_best(numbers[ROOT], key) / _best(numbers[old], key),
        )
        for key, row in numbers[ROOT][0].items()
        for section, what in [key]
        if all(key in measured and _number(measured[key]) for version in numbers.values() for measured in version)
    ]  # fmt: skip


def _run(arguments: Sequence[str], version: Path, out: Path) -> dict[str, Any]:
    """The record of a suite with the package in a checkout."""
    path = os.pathsep.join([str(version / "src"), os.environ.get("PYTHONPATH", "")])
    command = [sys.executable, "-m", "benchmarks", *arguments]
    subprocess.run(command, cwd=ROOT, env=os.environ | {"PYTHONPATH": path}, check=True, stdout=subprocess.DEVNULL)
    record: dict[str, Any] = json.loads((out / f"{arguments[0]}.json").read_text(encoding="utf-8"))
    return record


def _number(row: dict[str, Any]) -> float:
    """What a row is about: our time or rate, or the ratio where there is none; 0 where there is neither."""
    return float(row["ours"] or row["ratio"] or 0.0)


def _best(measured: Sequence[dict[tuple[str, str], Any]], key: tuple[str, str]) -> float:
    """The least time, or the highest rate."""
    values = [_number(record[key]) for record in measured]
    return max(values) if "/s" in measured[0][key]["unit"] else min(values)
