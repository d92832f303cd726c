"""One folder, one run: refusals, marked parts, and a resume that knows every row it has read."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

import emphatic
from emphatic.common.locks import InUseError
from emphatic.hordes.horde import BLOCK
from emphatic.nexting.runs import runner
from emphatic.nexting.runs.runner import Nexting
from emphatic.nexting.runs.settings import Settings
from tests.nexting.test_nexting import SLOW
from tests.support.processes import COMMAND, Forked, run

FILES = ["model.safetensors", "predictions.parquet", "report.html", "summary.json"]


def log(path: Path, offset: float = 0.0, rows: int = 400) -> Path:
    t = np.arange(rows)
    path.write_text("x\n" + "".join(f"{offset + np.sin(i / 9):.5f}\n" for i in t))
    return path


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def command(*given: object) -> list[str]:
    return [sys.executable, "-m", "emphatic.nexting.cli", *map(str, given)]


def test_a_second_run_into_the_same_folder_is_refused(tmp_path: Path) -> None:
    """In one line that names the first's process, with exit code 2; nothing changes, and the first ends as ever."""
    first, second, out = log(tmp_path / "a.csv"), log(tmp_path / "b.csv", 1000.0), tmp_path / "out"
    told: list[Any] = []

    def progress(phase: str, done: int, total: int) -> None:
        if phase == "scoring" and not told:
            before = contents(out)
            done_ = subprocess.run(
                command("nexting", second, "--horizons", "2,9", "--out", out, "--resume"),
                capture_output=True, text=True, check=False, timeout=120,
            )  # fmt: skip
            told.append((done_.returncode, done_.stdout, done_.stderr))
            with pytest.raises(InUseError):
                Nexting(second, Settings(horizons=(2, 9)), out).run()
            with pytest.raises(InUseError):
                emphatic.nexting.run(second, horizons=(2, 9), out=out)
            assert contents(out) == before

    Nexting(first, Settings(horizons=(2, 9)), out, progress).run()
    ((code, said, wrong),) = told
    assert (code, said) == (2, "")
    (error,) = (line for line in wrong.splitlines() if not line.startswith("emphatic: "))  # what it is doing
    assert error.startswith(f"Error: {out}: another run, process {os.getpid()}, is writing here.")
    assert sorted(path.name for path in out.iterdir()) == FILES
    assert abs(float(np.mean(pq.read_table(out / "predictions.parquet").column("x at +2").to_numpy()))) < 1.0
    assert emphatic.nexting.load_model(out / "model.safetensors").forecaster.horde.hold.last[0] < 2.0


def test_a_killed_run_holds_nobody_up(tmp_path: Path) -> None:
    """Its lock ends with it, and the file that it leaves is in nobody's way."""
    source, out = log(tmp_path / "a.csv"), tmp_path / "new" / "out"
    given = ["nexting", str(source), "--horizons", "2", "--out", str(out)]
    with subprocess.Popen([sys.executable, "-c", SLOW, *given], stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "now\n"
        with pytest.raises(InUseError, match=f"process {child.pid}, is writing here"):
            Nexting(source, Settings(horizons=(2,)), out).run()
        child.send_signal(signal.SIGKILL)
    assert (out / ".unfinished" / "lock").exists()
    Nexting(source, Settings(horizons=(2,)), out).run(resume=True)
    assert sorted(path.name for path in out.iterdir()) == FILES


def stopped(source: Any, out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that learned all rows, and was stopped before it scored them."""

    def stop(*_: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(runner, "score_log", stop)
        with pytest.raises(KeyboardInterrupt):
            Nexting(source, Settings(horizons=(2,)), out).run()


def test_resume_knows_every_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A row that changed far beyond the first 10,000 is found; the file has the same size and as many rows."""
    source, out = log(tmp_path / "a.csv", rows=10_000 + BLOCK), tmp_path / "out"
    stopped(source, out, monkeypatch)
    before, text = contents(out), source.read_bytes()
    assert text[-8:] != b"0.00000\n"
    source.write_bytes(text[:-8] + b"0.00000\n")
    with pytest.raises(ValueError, match="another table or other settings"):
        Nexting(source, Settings(horizons=(2,)), out).run(resume=True)
    assert contents(out) == before
    source.write_bytes(text)
    Nexting(source, Settings(horizons=(2,)), out).run(resume=True)
    assert sorted(path.name for path in out.iterdir()) == FILES


def test_parts_of_another_run_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As are pages that do not match their checksum."""
    source, out = {"x": np.sin(np.arange(400) / 9)}, tmp_path / "out"
    for name, readings in (("out", source), ("other", {"x": 5.0 + source["x"]})):
        stopped(readings, tmp_path / name, monkeypatch)
    part = out / ".unfinished" / "predictions-000000000000.parquet"
    sound, other = part.read_bytes(), (tmp_path / "other" / ".unfinished" / part.name).read_bytes()
    part.write_bytes(other)
    with pytest.raises(ValueError, match="this part was written by another run"):
        Nexting(source, Settings(horizons=(2,)), out).run(resume=True)
    damaged = bytearray(sound)
    damaged[200] ^= 1
    part.write_bytes(damaged)
    with pytest.raises(OSError, match=r"(?i)crc"):
        Nexting(source, Settings(horizons=(2,)), out).run(resume=True)
    part.write_bytes(sound)
    Nexting(source, Settings(horizons=(2,)), out).run(resume=True)
    table = pq.read_table(out / "predictions.parquet", page_checksum_verification=True)
    assert table.num_rows == 400
    assert b"emphatic.run" not in (table.schema.metadata or {})


def test_two_sweeps_do_not_share_a_folder(tmp_path: Path) -> None:
    """Nor do a sweep and a run; what is refused leaves nothing, what is done nothing but its files."""
    grid, out = {"rule": "td", "alpha": [0.01, 0.1]}, tmp_path / "new" / "out"
    refusals = []

    def progress(done: int, total: int) -> None:
        for call in (
            lambda: emphatic.studies.sweep("chain", grid, runs=1, steps=60, out=out),
            lambda: Nexting({"x": np.arange(9.0)}, Settings(horizons=(2,)), out).run(),
        ):
            with pytest.raises(InUseError, match=f"process {os.getpid()}"):
                call()
            refusals.append(call)

    emphatic.studies.sweep("chain", grid, runs=2, steps=50, out=out, progress=progress)
    assert refusals
    written = ["report.html", "results.parquet", "settings.parquet", "summary.json"]
    assert sorted(path.name for path in out.iterdir()) == written
    assert json.loads((out / "summary.json").read_text("utf-8"))["learner_steps"] == 2 * 2 * 50
    with pytest.raises(ValueError, match="rule"):
        emphatic.studies.sweep("chain", {"rule": "no such"}, out=tmp_path / "other")
    assert not (tmp_path / "other").exists()


def test_two_pipes_do_not_share_a_model(tmp_path: Path) -> None:
    """The second is refused; one that only predicts is not."""
    model = tmp_path / "model.safetensors"
    given = ("nexting", "-", "--model", model, "--horizons", 2, "--warm-up", 3)
    rows = "".join(json.dumps({"x": float(np.sin(i))}) + "\n" for i in range(30)).encode()
    with Forked(COMMAND, *given) as first:
        assert first.stdin is not None
        assert first.stdout is not None
        first.stdin.write(rows)
        first.stdin.flush()
        assert first.stdout.readline()
        second = run(COMMAND, *given, input=rows)
        assert (second.returncode, second.stdout) == (2, b"")
        error = f"Error: {model}: another run, process {first.pid}, is writing here."
        assert second.stderr.decode().startswith(error)
        first.stdin.close()
        assert first.stdout.read()
        assert first.wait() == 0
    assert os.listdir(tmp_path) == ["model.safetensors"]
    only = run(COMMAND, *given, "--no-learn", input=rows)
    assert only.returncode == 0
    assert only.stdout
