"""What makes the command comfortable: nothing overwritten, progress, quiet, completion, a stop that saves."""

from __future__ import annotations

import functools
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import emphatic
from emphatic.hordes.horde import BLOCK
from tests.support import processes
from tests.support.command import nexting

Call = Callable[..., tuple[int, str, str]]


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Call:
    """The command in this process, in an empty folder: exit code, standard output and standard error."""
    monkeypatch.chdir(tmp_path)

    return functools.partial(nexting, capsys)


@pytest.fixture
def wave(tmp_path: Path) -> Path:
    path = tmp_path / "wave.parquet"
    pq.write_table(pa.table({"x": np.sin(np.arange(600) / 9), "y": np.cos(np.arange(600) / 9)}), path)
    return path


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_folder_that_holds_results_is_refused(call: Call, wave: Path, tmp_path: Path) -> None:
    assert call(wave, "--horizons", 2, "--out", "out")[0] == 0
    before = contents(tmp_path / "out")
    code, said, wrong = call(wave, "--horizons", 3, "--out", "out")
    assert (code, said) == (2, "")
    assert "Error: out: this folder holds the results of an earlier run" in wrong
    assert "--overwrite" in wrong
    assert contents(tmp_path / "out") == before
    with pytest.raises(ValueError, match=r"holds the results of an earlier run.*overwrite=True"):
        emphatic.nexting.run(wave, horizons=3, out=tmp_path / "out")
    assert contents(tmp_path / "out") == before
    code, _, wrong = call(wave, "--horizons", 3, "--out", "out", "--overwrite", "--resume")
    assert code == 2
    both = "Error: --overwrite starts again and --resume continues a run that was stopped: give one of them."
    assert both in wrong
    assert contents(tmp_path / "out") == before
    assert call(wave, "--horizons", 3, "--out", "out", "--overwrite")[0] == 0
    assert json.loads((tmp_path / "out" / "summary.json").read_text("utf-8"))[1]["horizon"] == 3


def test_without_out_a_new_folder_is_found(call: Call, wave: Path) -> None:
    for name in ("wave", "wave-2", "wave-3"):
        code, said, _ = call(wave, "--horizons", 2)
        assert code == 0
        assert f"nexting/{name}/report.html" in said.replace("\n", "")
    before = contents(Path("nexting/wave-3"))
    assert call(wave, "--horizons", 3, "--overwrite")[0] == 0
    assert json.loads(Path("nexting/wave/summary.json").read_text("utf-8"))[1]["horizon"] == 3
    code, _, wrong = call(wave, "--horizons", 2, "--resume")
    assert code == 2
    assert "wave-3: nothing to resume: the run there is finished" in wrong
    assert contents(Path("nexting/wave-3")) == before
    assert sorted(path.name for path in Path("nexting").iterdir()) == ["wave", "wave-2", "wave-3"]


def test_quiet_prints_nothing_and_otherwise_progress_is_in_plain_lines(call: Call, wave: Path) -> None:
    assert call(wave, "--horizons", 2, "--out", "a", "--quiet") == (0, "", "")
    code, said, wrong = call(wave, "--horizons", 2, "--out", "b")
    assert code == 0
    assert "best baseline" in said
    lines = [line.removeprefix("emphatic: ") for line in wrong.splitlines()]
    lines = [line for line in lines if line != "compiling (once)"]  # (a first run)
    assert [line.split()[0] for line in lines] == ["reading", "learning", "scoring"]
    assert "emphatic: learning 100%, 600 of 600 rows\n" in wrong
    code, said, wrong = call("nothing.csv", "--quiet")
    assert (code, said) == (2, "")
    assert wrong.startswith("Error: ")


def test_a_first_run_says_that_it_compiles(wave: Path, tmp_path: Path) -> None:
    code = """
import sys
from emphatic.nexting.cli.terminal import compile_notice
with compile_notice(lambda *given: print(*given)):
    import numba
    numba.njit("float64(float64)", cache=True)(lambda x: x + 1)(1.0)
    print("compiled")
    numba.njit("float64(float64)")
with compile_notice(lambda *given: print(*given)):
    print("again")
"""
    program = tmp_path / "program.py"
    program.write_text(code)
    environment = os.environ | {"NUMBA_CACHE_DIR": str(tmp_path / "cache")}
    said = [
        subprocess.run([sys.executable, program], env=environment, capture_output=True, text=True, check=True).stdout
        for _ in range(2)
    ]
    assert said == ["compiling (once) 0 0\ncompiled\nagain\n", "compiled\nagain\n"]


def test_the_help_has_the_ten_options_that_matter_first_and_the_others_in_groups(
    capsys: pytest.CaptureFixture[str],
) -> None:
    sections: dict[str, list[str]] = {}
    heading = ""
    for line in nexting(capsys, "--help")[1].splitlines():
        if re.fullmatch(r"[A-Z][\w ]+:", line):
            heading = line.removesuffix(":")
        elif found := re.match(r"  (?:-\w, )?--([a-z-]+)", line):
            sections.setdefault(heading, []).append(found[1])
    assert list(sections) == ["Options", "What to read", "What to predict", "Output", "Live", "On a cluster"]
    ten = ["predict", "horizons", "ask", "out", "time", "by", "resample", "config", "resume", "overwrite"]
    assert [name for name in sections["Options"] if name in ten] == ten
    assert len(sections["Options"]) <= 12
    for heading, name in {"What to read": "query", "What to predict": "coverage", "Live": "model"}.items():
        assert name in sections[heading]
    assert "quiet" in sections["Output"]
    assert "ray" in sections["On a cluster"]


def test_it_is_a_module_and_completes_in_a_shell() -> None:
    command = [sys.executable, "-m", "emphatic"]
    version = subprocess.run([*command, "--version"], capture_output=True, text=True, check=True)
    assert version.stdout.startswith("emphatic ")
    commands = subprocess.run([*command, "--help"], capture_output=True, text=True, check=True).stdout
    assert "..." not in commands.partition("Commands:")[2]  # no sentence is cut short
    for words, expected in (("emphatic nex", "nexting"), ("emphatic nexting --over", "--overwrite")):
        asked = {"_EMPHATIC_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": str(words.count(" "))}
        found = subprocess.run(command, env=os.environ | asked, capture_output=True, text=True, check=False)
        assert found.stdout.split() == [expected]


STOPPED = """
import os, signal, sys
from emphatic.nexting.runs import learning as runner
from emphatic.nexting.cli import app, terminal
at, count = int(sys.argv.pop()), runner.ReadingCounts.add

def add(self, block):
    count(self, block)
    if block.row == at:
        os.kill(os.getpid(), signal.SIGTERM)

runner.ReadingCounts.add = add
app()
"""


def test_a_signal_saves_at_once_and_the_run_goes_on_from_there(tmp_path: Path) -> None:
    """Long before the next checkpoint is due."""
    T = 3 * BLOCK + 77
    path, out, whole = tmp_path / "long.parquet", tmp_path / "out", tmp_path / "whole"
    pq.write_table(pa.table({"x": np.sin(np.arange(T) / 9)}), path)
    given = ["nexting", str(path), "--horizons", "2"]
    child = processes.run(STOPPED, *given, "--out", out, BLOCK)
    assert child.returncode == 128 + signal.SIGTERM, child.stderr
    assert child.stderr.decode().endswith(f"Stopped. Continue with --resume --out {out}.\n")
    assert emphatic.Horde.load_with(out / ".unfinished" / "model.safetensors")[0].rows == 2 * BLOCK
    with pytest.raises(ValueError, match="holds an interrupted run: continue it with resume=True, or replace it with"):
        emphatic.nexting.run(path, horizons=2, out=out)
    first = emphatic.nexting.run(path, horizons=2, out=out, resume=True)
    second = emphatic.nexting.run(path, horizons=2, out=whole)
    assert first.predictions.column_names == second.predictions.column_names
    for name in first.predictions.column_names:
        column, same = (one.predictions.column(name).to_numpy() for one in (first, second))
        np.testing.assert_array_equal(column, same, name)
    assert first.summary == second.summary
    assert ".unfinished" not in os.listdir(out)


def test_arrow_does_not_import_pandas_but_still_converts_to_it() -> None:
    code = (
        "import sys; from emphatic.nexting import cli; cli._leave_pandas_out(); import pyarrow as pa\n"
        "t = pa.table({'x': [1.0, None]}); assert 'pandas' not in sys.modules, 'imported'\n"
        "assert t.to_pandas()['x'].count() == 1 and pa.Table.from_pandas(t.to_pandas())['x'].null_count == 1"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
