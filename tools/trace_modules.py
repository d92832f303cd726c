"""Which modules one row, one reading and one step pass through; ``docs/architecture.md`` quotes it.

    python -m tools.trace_modules           # writes the lists into the page
    python -m tools.trace_modules --print   # only prints them

Three call paths are followed by ``sys.setprofile``: ``emphatic nexting f.csv``, from the command line to the kernel and
back to the page; one reading of a live stream; and one ``env.step`` of an environment in ``LearnGVFs``. Listed are the
modules of the package in the order in which a function of each is first entered. Each path is followed twice and
recorded the second time, when everything has been imported and generated. Kernels run as the Python that they are, as
compiled code has no frames to look at.
"""

from __future__ import annotations

import os
import re
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout
from io import StringIO
from itertools import groupby
from pathlib import Path
from types import FrameType
from typing import Any

__all__ = ["listing", "main", "nexting", "reading", "step", "with_ways"]

PAGE = Path(__file__).parent.parent / "docs" / "architecture.md"
ROWS = 24
#: The module that was generated for a rule: the engine, the rule and the dtype, and a hash.
GENERATED = re.compile(r"emphatic_(?:plain_)?(\w+)_[0-9a-f]{16}")


@contextmanager
def _recorded() -> Iterator[list[str]]:
    """The modules that are entered meanwhile; "kernel.NAME" for what was generated for a rule."""
    passed: dict[str, None] = {}

    def look(frame: FrameType, event: str, _: Any) -> None:
        if event == "call":
            name = frame.f_globals.get("__name__") or ""
            if name.startswith("emphatic."):
                passed.setdefault(name.removeprefix("emphatic."))
            elif generated := GENERATED.fullmatch(name):
                passed.setdefault(f"kernel.{generated[1]}")

    out: list[str] = []
    sys.setprofile(look)
    try:
        yield out
    finally:
        sys.setprofile(None)
        out += passed


def nexting() -> list[str]:
    """``emphatic nexting f.csv``."""
    from emphatic.nexting.cli import app

    with tempfile.TemporaryDirectory() as folder:
        table = Path(folder) / "f.csv"
        rows = (f"2026-01-01T00:{t:02d}:00,{t % 7},{t % 5}\n" for t in range(ROWS))
        table.write_text("time,light,heat\n" + "".join(rows), encoding="utf-8")
        arguments = ["nexting", str(table), "--horizons", "2,8", "--out", str(Path(folder) / "out"), "--overwrite"]
        with redirect_stdout(StringIO()):
            app(arguments, standalone_mode=False)
            with _recorded() as passed:
                app(arguments, standalone_mode=False)
    return passed


def reading() -> list[str]:
    """One reading of a live stream after its warm-up, as a pipe and the service learn from it."""
    from emphatic.nexting.runs.predictor import Predictor
    from emphatic.nexting.runs.settings import Settings

    predictor = Predictor(Settings(horizons=(2,)), warm_up=ROWS)
    predictor.take((number, {"light": float(number % 7)}) for number in range(2 * ROWS))
    with _recorded() as passed:
        predictor.take([(2 * ROWS, {"light": 3.0})])
    return passed


def step() -> list[str]:
    """The second step of CartPole beside an agent, with one question."""
    import gymnasium

    from emphatic import GVF
    from emphatic.gymnasium import LearnGVFs, tiles

    env: Any = gymnasium.make("CartPole-v1")
    ranges = {"o0": (-2.4, 2.4), "o1": (-3.0, 3.0), "o2": (-0.21, 0.21), "o3": (-3.5, 3.5)}
    env = LearnGVFs(env, [GVF("o2", horizon=5)], tiles(env.observation_space, ranges=ranges))
    env.reset(seed=0)
    env.step(0)
    with _recorded() as passed:
        env.step(1)
    return passed


class _Records:
    """Records whose fields are attributes, as they are in compiled kernels."""

    def __init__(self, array: Any) -> None:
        object.__setattr__(self, "array", array)

    def __len__(self) -> int:
        return len(self.array)

    def __getitem__(self, at: Any) -> Any:
        found = self.array[at]
        return _Records(found) if found.dtype.names else found

    def __getattr__(self, name: str) -> Any:
        return self.array.shape if name == "shape" else self[name]

    def __setattr__(self, name: str, value: Any) -> None:
        self.array[name] = value


def name_records() -> None:
    """Let the kernels of answers, which are not compiled here, read the fields of records by name."""
    from emphatic.nexting.answers import answers

    names = vars(answers)
    kernel_of = names["_kernel"]

    def named(name: str) -> Callable[..., Any]:
        def run(memory: Any, *arguments: Any) -> Any:
            arrays = {key: _Records(array) for key, array in memory._asdict().items() if array.dtype.names}
            return kernel_of(name)(memory._replace(**arrays), *arguments)

        return run

    names["_kernel"] = named


WAYS: dict[str, Callable[[], list[str]]] = {"nexting": nexting, "reading": reading, "step": step}


def listing(passed: list[str]) -> str:
    """The modules as the page has them: how many, then a line for each package that is come to.

    >>> print(listing(["cli.commands", "tables.files", "tables.grid_kernels", "kernel.dense_td", "cli.nexting"]))
    3 modules, 1 module of kernels and the generated kernel:
    <BLANKLINE>
        cli        commands
        tables     files, grid_kernels
        kernel     dense_td
        cli        nexting
    """
    generated = sum(name.startswith("kernel.") for name in passed)
    kernels = sum(name.endswith("kernels") for name in passed)
    counts = [f"{len(passed) - generated - kernels} modules", f"{kernels} module{'s' * (kernels > 1)} of kernels"]
    lines = [f"{', '.join(counts)} and the generated kernel{'s' * (generated > 1)}:", ""]
    for package, names in groupby(passed, key=lambda name: name.partition(".")[0]):
        inside = ", ".join(name.partition(".")[2] or "(itself)" for name in names)
        lines.append(f"    {package:10} {inside}")
    return "\n".join(lines)


def with_ways(page: str, listings: dict[str, str]) -> str:
    """The page with these listings between their marks."""
    for name, text in listings.items():
        begin, end = f"<!-- way: {name} -->\n", "<!-- /way -->"
        before, rest = page.split(begin)
        page = f"{before}{begin}{text}\n\n{end}{rest.split(end, 1)[1]}"
    return page


def main() -> None:
    """Follow all call paths; print them, or write them into the page."""
    os.environ["NUMBA_DISABLE_JIT"] = "1"  # before numba is imported
    name_records()
    listings = {name: listing(way()) for name, way in WAYS.items()}
    if "--print" in sys.argv:
        print("\n\n".join(listings.values()))
    else:
        PAGE.write_text(with_ways(PAGE.read_text(encoding="utf-8"), listings), encoding="utf-8")


if __name__ == "__main__":
    main()
