"""The one table: printed, as JSON for programs and as Markdown for the documentation."""

from __future__ import annotations

import json
import os
import platform
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from importlib.metadata import PackageNotFoundError, version
from itertools import groupby
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

import emphatic
from benchmarks.measure import Gate

PACKAGES = ("numpy", "numba", "swifttd", "gymnasium", "mujoco", "torch", "triton", "ray")
#: Where results go unless told otherwise; the documentation links to them, and the README quotes six rows.
RESULTS = Path(__file__).parent / "results"
README = RESULTS.parents[1] / "README.md"
COLUMNS = ("what", "ours", "alternative", "ratio", "target", "met")
#: The six rows of the README: suite, how the section and the row begin, and what the row is called there.
SPEEDS = (
    ("core", "learn, one call a step", "n = 100, float64, φ in cache", "`learn`, one call per step, n = 100"),
    ("core", "run, a whole log in one call", "n = 100,", "`run`, a whole log in one call, n = 100"),
    ("core", "sparse run, 32 active", "γλ = 0.5", "sparse `run`, 32 of 1,000,000 active, γλ = 0.5"),
    ("core", "sparse run, 32 active", "γλ = 0.99", "the same with γλ = 0.99"),
    ("hordes", "learn, a call a step, nexting", "float64, a step", "`learn`, 2,160 learners of 6,065 features"),
    ("cuda", "run, true_online_etd, K = 131,072", "beside torch, step", "`run` on a GPU, 131,072 learners"),
)


@dataclass(frozen=True)
class Layout:
    """What a suite's table looks like: its columns, a sentence on how its numbers came about, and packages."""

    columns: tuple[str, ...] = COLUMNS
    how: str = "Each time is for one step, the least over several rounds in which all sides take turns."
    packages: tuple[str, ...] = PACKAGES


@dataclass(frozen=True)
class Row:
    """One line of the table. ``ratio`` is what a target is held against."""

    section: str
    what: str
    gates: tuple[str, ...]
    ours: float | None = None
    alternative: float | None = None
    versus: str = ""
    unit: str = "µs"
    ratio: float | None = None
    at_least: float | None = None
    at_most: float | None = None
    note: str = ""

    @property
    def target(self) -> str:
        if self.at_least is not None:
            return f"≥ {self.at_least:g}"
        return "" if self.at_most is None else f"≤ {self.at_most:g}"

    @property
    def met(self) -> bool | None:
        """None where there is no target; a target that could not be measured is not met."""
        if not self.target:
            return None
        if self.ratio is None:
            return False
        return self.ratio >= (self.at_least or 0.0) and (self.at_most is None or self.ratio <= self.at_most)

    def cells(self) -> tuple[str, ...]:
        ours = "" if self.ours is None else f"{_number(self.ours)} {self.unit}"
        other = "" if self.alternative is None else f"{_number(self.alternative)} {self.unit}"
        other = " ".join(part for part in (other, self.versus) if part)
        ratio = "" if self.ratio is None else _number(self.ratio)
        met = {None: "", True: "yes", False: "no"}[self.met]
        what = f"{self.what} ({self.note})" if self.note else self.what
        return what, ours, other, ratio, self.target, met


def _number(value: float) -> str:
    """Three digits, and all of them before the point."""
    digits = 2 if value < 10 else 1 if value < 100 else 0
    return f"{value:.3f}" if value < 1 else f"{value:,.{digits}f}"


def machine(packages: Sequence[str] = PACKAGES) -> dict[str, Any]:
    """What the numbers were made on."""
    versions = {"python": platform.python_version(), "emphatic": emphatic.__version__}
    for package in packages:
        try:
            versions[package] = version(package)
        except PackageNotFoundError:
            versions[package] = "not installed"
    torch = sys.modules.get("torch")
    gpu = {"gpu": torch.cuda.get_device_name()} if torch is not None and torch.cuda.is_available() else {}
    return {
        **gpu,
        "cpu": _cpu(),
        "cores": os.cpu_count(),
        "threads used": 1,
        "system": platform.system(),
        **versions,
    }


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        return next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


def with_speeds(readme: str) -> str:
    """The README with its six rows between their marks, from the results that are kept."""
    lines = ["| one step | ours | alternative | ratio |", "|---|--:|--:|--:|"]
    for suite, section, what, shown in SPEEDS:
        record = json.loads((RESULTS / f"{suite}.json").read_text(encoding="utf-8"))
        found = (row for row in record["rows"] if row["section"].startswith(section) and row["what"].startswith(what))
        row = next(Row(**{one.name: row[one.name] for one in fields(Row)}) for row in found)
        lines.append("| " + " | ".join((shown, *row.cells()[1:4])) + " |")
    before, rest = readme.split("<!-- speeds -->\n")
    return before + "\n".join(["<!-- speeds -->", *lines, "<!-- /speeds -->"]) + rest.split("<!-- /speeds -->")[1]


def publish(
    suite: str, command: str, gates: Sequence[Gate], rows: Sequence[Row], out: Path, layout: Layout | None = None
) -> None:
    """Print the table; write ``suite.json`` and ``suite.md`` under ``out``."""
    layout = layout or Layout()
    host = machine(layout.packages)
    about = ", ".join(f"{name} {value}" for name, value in host.items())
    exact = max((gate.error for gate in gates if gate.tolerance <= 1e-10), default=0.0)
    passed = f"{len(gates)} gates passed; float64 results within {exact:.1g} of the reference, relative"

    table = Table(*layout.columns, title=command, caption=f"{passed}\n{layout.how}\n{about}", highlight=False)
    lines = [f"`{command}`", "", about + ".", "", passed + ". " + layout.how, ""]
    others = len(layout.columns) - 1
    lines += ["| " + " | ".join(layout.columns) + " |", "|---|" + "--:|" * (others - 1) + "---|"]
    for section, group in groupby(rows, key=lambda row: row.section):
        table.add_row(f"[bold]{section}", end_section=False)
        lines.append(f"| **{section}** |" + " |" * others)
        for row in group:
            table.add_row(*row.cells())
            lines.append("| " + " | ".join(row.cells()) + " |")
        table.add_section()

    out.mkdir(parents=True, exist_ok=True)
    (out / f"{suite}.md").write_text("\n".join(lines) + "\n", encoding="utf-8")
    record = {
        "suite": suite,
        "command": command,
        "machine": host,
        "gates": [asdict(gate) for gate in gates],
        "rows": [{**asdict(row), "target": row.target, "met": row.met} for row in rows],
    }
    text = json.dumps(record, indent=1, ensure_ascii=False)
    (out / f"{suite}.json").write_text(text + "\n", encoding="utf-8")
    if out == RESULTS:
        README.write_text(with_speeds(README.read_text(encoding="utf-8")), encoding="utf-8")

    console = Console()
    console.width = max(console.width, 120)
    console.print(table)
    missed = [f"{row.section}: {row.what}" for row in rows if row.met is False]
    console.print("all targets met" if not missed else "targets not met: " + "; ".join(missed), highlight=False)
    console.print(f"written: {out / suite}.json, .md", highlight=False)
