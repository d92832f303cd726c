"""Kernels that are compiled ahead are those that a service needs; a run compiles in two processes."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from emphatic.nexting.live import compile_for_live
from emphatic.nexting.runs import learning, runner
from emphatic.nexting.runs.settings import Settings

#: Prints the kernels that a call compiles or loads.
SPY = """
import sys, tempfile
from emphatic.engines import compiled
compile_one, names = compiled._compiled, set()
def spy(function, *arguments, **options):
    names.add(f"{function.__module__}:{function.__name__}")
    return compile_one(function, *arguments, **options)
compiled._compiled = spy
folder = tempfile.TemporaryDirectory()
"""
WARM = """
from emphatic.nexting import live
from emphatic.nexting.runs.settings import Settings
live.compile_for_live(Settings(QUESTIONS))
"""
LOG = """
import emphatic, numpy as np
t = np.arange(3000)
time = np.datetime64("2024-01-01T00:00:00") + 60 * t * np.timedelta64(1, "s")
emphatic.nexting.run({"time": time, "x": np.sin(t / 7), "y": np.cos(t / 9)}, out=folder.name + "/out")
"""
LIVE = """
from emphatic.nexting.runs.predictor import Predictor
from emphatic.nexting.runs.settings import Settings
predictor = Predictor(Settings(QUESTIONS), warm_up=300)
predictor.take([(i, {"time": 1.7e9 + 60 * i, "a": i % 17, "b": i % 5}) for i in range(1000)])
predictor.ask("P(a > 9 within 5min)")
predictor.take([(i, {"time": 1.7e9 + 60 * i, "a": i % 17, "b": i % 5}) for i in range(1000, 1100)])
predictor.horde.save(folder.name + "/model", **predictor.state())
Predictor.load(folder.name + "/model")[0].take([(1, {"a": 1, "b": 2})])
"""


def kernels(code: str) -> set[str]:
    code = f"{SPY}{code}\nprint(*sorted(names))"
    return {*subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()}


@pytest.mark.long
@pytest.mark.parametrize(
    "questions",
    ["", "questions=[{'name': 'c', 'cumulant': 'a', 'horizon': 5, 'policy': {'column': 'b', 'target': {'0': 1.0}}}]"],
)
def test_exactly_what_a_service_needs_is_compiled(questions: str) -> None:
    assert kernels(WARM.replace("QUESTIONS", questions)) == kernels(LIVE.replace("QUESTIONS", questions))


def test_settings_about_signals_do_not_matter(caplog: pytest.LogCaptureFixture) -> None:
    compile_for_live(Settings(predict=("no such signal",), horizons=(math.pi,), time="none"))
    assert caplog.records == []


@pytest.mark.long
def test_a_second_process_compiles_what_is_needed_last(tmp_path: Path) -> None:
    """On an empty cache nothing is compiled twice; on a full one there is no second process."""
    env = {**os.environ, "EMPHATIC_CACHE_DIR": str(tmp_path / "cache")}
    started = "import subprocess\nPopen, count = subprocess.Popen, [0]\n"
    started += "def start(*a, **k):\n    count[0] += 1\n    return Popen(*a, **k)\nsubprocess.Popen = start\n"
    code = f"{SPY}{started}{LOG}\nprint(count[0])"
    counts = [
        subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True).stdout.split()
        for _ in range(2)
    ]
    assert [int(count[-1]) for count in counts] == [int(os.cpu_count() != 1), 0]
    names = [path.name.split("-")[0] for path in (tmp_path / "cache").rglob("*.nbi")]
    assert len(names) == len({*names}) > 10


def test_a_second_process_compiles_from_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    """While the table is opened, which takes kernels of its own."""
    events: list[str] = []

    @contextmanager
    def compile_in_background(names: Sequence[str]) -> Iterator[None]:
        events.extend(names)
        yield
        events.append("ends")

    def open_log(*_: object, **options: object) -> None:
        events.append("opened")
        raise ValueError("no table")

    monkeypatch.setattr(runner, "compile_in_background", compile_in_background)
    monkeypatch.setattr(learning, "open_log", open_log)
    with pytest.raises(ValueError, match="no table"):
        runner.run({"x": [1.0, 2.0]})
    assert events[0] == "nexting.answers.kernels.advance"
    assert events[-1] == "opened"
