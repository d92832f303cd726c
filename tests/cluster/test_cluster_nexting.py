"""``emphatic nexting --ray``: the same files as without, whatever was interrupted."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

import emphatic
from emphatic.cluster import nexting as cluster_nexting
from emphatic.cluster.driver import Manifest, hold_storage
from emphatic.cluster.learner import IN_PROCESS
from emphatic.nexting.runner import NextingResult
from emphatic.nexting.settings import Settings
from tests.cluster.support import kill, shard_processes

FILES = ["model.safetensors", "predictions.parquet", "report.html", "summary.json"]
ROWS = 1500
NEXT_ROW = {"x": 0.5, "y": 0.25, "mode": "red"}


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("table") / "log.csv"
    t = np.arange(ROWS)
    x, y = np.sin(t / 30.0), np.cos(t / 100.0)
    y[300:320] = np.nan
    when = np.datetime64("2024-01-01", "s") + (60 * t + np.where(t > 1100, 86400, 0)).astype("timedelta64[s]")
    pa.csv.write_csv(pa.table({"time": when, "x": x, "y": y, "mode": np.where(t % 100 < 50, "red", "blue")}), path)
    return path


@pytest.fixture(scope="module")
def alone(table: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("alone") / "out"
    emphatic.nexting.run(table, out=out)
    return out


def run(table: Path, out: Path, settings: Settings | None = None, **options: Any) -> NextingResult:
    return cluster_nexting.run(str(table), out=out, config=settings, address=IN_PROCESS, shards=3, **options)


def compare(out: Path, alone: Path, tolerance: float = 1e-9, next_row: Any = NEXT_ROW) -> None:
    assert sorted(os.listdir(out)) == FILES
    one, other = (pq.read_table(folder / "predictions.parquet") for folder in (out, alone))
    assert one.schema == other.schema
    for name in one.column_names[2:]:
        if name.endswith(".why"):
            assert one.column(name).equals(other.column(name))
        else:
            assert np.allclose(one.column(name), other.column(name), rtol=0, atol=tolerance, equal_nan=True)
    assert one.column("time").equals(other.column("time"))
    scores, expected = (json.loads((folder / "summary.json").read_text()) for folder in (out, alone))
    compare_scores(scores, expected)
    models = [emphatic.Horde.load(folder / "model.safetensors") for folder in (out, alone)]
    assert models[0].names == models[1].names
    assert np.allclose(models[0].learner.theta, models[1].learner.theta, rtol=0, atol=tolerance)
    answers = [model.observe(next_row, time=1.75e9) for model in models]
    assert np.allclose(answers[0], answers[1], rtol=0, atol=tolerance)


def compare_scores(ours: Any, theirs: Any) -> None:
    """What summary.json holds, to rounding: candidate predictions and baselines too."""
    if isinstance(theirs, dict):
        assert ours.keys() == theirs.keys()
        for name in theirs:
            compare_scores(ours[name], theirs[name])
    elif isinstance(theirs, list):
        assert len(ours) == len(theirs)
        for one, other in zip(ours, theirs, strict=True):
            compare_scores(one, other)
    else:
        assert ours == (pytest.approx(theirs, rel=1e-5, abs=1e-7) if isinstance(theirs, float) else theirs)


def test_headline_questions_guard_and_candidates_are_those_of_one_process(tmp_path: Path) -> None:
    t, rng = np.arange(1500), np.random.default_rng(1)
    x = 20 + 5 * np.sin(t / 4) + rng.normal(size=len(t))
    x[[700, 900]], x[1200] = -999.0, 1e7
    when = np.datetime64("2024-01-01", "s") + (600 * t).astype("timedelta64[s]")
    path = tmp_path / "log.csv"
    pa.csv.write_csv(pa.table({"time": when, "x": x, "y": np.cumsum(rng.normal(size=len(t)))}), path)
    settings = Settings(ask=("P(x > 24 within 2h)", "y at +6"), exponential_only=False, horizons=(2, 12))
    expected = emphatic.nexting.run(path, out=tmp_path / "alone", config=settings)
    run(path, tmp_path / "out", settings)
    assert expected.reading["guarded"]["x"] == {"pulled_in": 1, "missing": 2}
    assert {"last_period", "persistence"} <= expected.summary[0]["baselines"].keys()
    assert any(score.get("headline") for score in expected.summary)
    compare(tmp_path / "out", tmp_path / "alone", next_row={"x": 0.5, "y": 0.25})


def test_the_same_files(table: Path, alone: Path, tmp_path: Path) -> None:
    result = run(table, tmp_path / "out", block=500)
    assert result.rows == ROWS
    compare(tmp_path / "out", alone)


class Stop(BaseException):
    """As an interruption is."""


def stop_at(row: int) -> Any:
    def stop(phase: str, done: int, total: int) -> None:
        if phase == "learning" and done >= row:
            raise Stop

    return stop


def test_a_grid_a_counter_and_a_question_in_one_line_interrupted(tmp_path: Path) -> None:
    t, rng = np.arange(2400), np.random.default_rng(0)
    when = np.datetime64("2024-01-01", "s") + np.cumsum(rng.integers(20, 100, len(t))).astype("timedelta64[s]")
    total = np.cumsum(rng.integers(0, 5, len(t))).astype(float)
    columns = {"x": np.where(t % 3 == 0, np.sin(t / 30), np.nan), "total": np.where(t % 3, total, np.nan)}
    path = tmp_path / "log.csv"
    pa.csv.write_csv(pa.table({"time": when, **columns}), path)
    settings = Settings(ask=("P(x > 0.5 within 1h)",), increments=("total",))
    expected = emphatic.nexting.run(path, out=tmp_path / "alone", config=settings)
    options: dict[str, Any] = {"settings": settings, "block": 100, "checkpoint_every": 0.0}
    with pytest.raises(Stop):
        run(path, tmp_path / "out", **options, progress=stop_at(500))
    result = run(path, tmp_path / "out", **options, resume=True)
    assert 500 < result.rows == expected.rows < len(t)  # those of the grid
    ours, theirs = result.predictions, expected.predictions
    assert ours.schema == theirs.schema
    assert any("within" in name for name in ours.column_names)
    for name in ours.column_names:
        if ours.schema.field(name).type == pa.float32():
            np.testing.assert_allclose(ours[name], theirs[name], rtol=1e-6, atol=1e-9)


def test_machines_with_shared_weights_and_blocks_of_machines_are_refused(table: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="'share' cannot be combined with --ray"):
        run(table, tmp_path / "out", Settings(by="mode", share=True))
    with pytest.raises(ValueError, match="'by' cannot be combined with --block: a machine is learned whole"):
        run(table, tmp_path / "out", Settings(by="mode"), block=100)
    assert not (tmp_path / "out").exists()


@pytest.mark.cluster
@pytest.mark.filterwarnings("default")  # earlier versions of Ray leave files and processes open
def test_machines_in_shards_one_of_which_is_killed(tmp_path: Path) -> None:
    pytest.importorskip("ray", reason="needs Ray: pip install 'emphatic[ray]'")
    rng, count, rows = np.random.default_rng(0), 8, 300
    columns = {
        "x": np.sin(np.arange(count * rows) / 9) + 0.1 * rng.normal(size=count * rows),
        "y": rng.normal(size=count * rows),
    }
    path = tmp_path / "log.csv"
    killed: list[bool] = []
    pa.csv.write_csv(pa.table({"machine": np.repeat([f"m{i}" for i in range(count)], rows), **columns}), path)
    settings = Settings(by="machine", exponential_only=False)  # as the command has it
    emphatic.nexting.run(path, out=tmp_path / "alone", config=settings)

    def progress(phase: str, done: int, total: int) -> None:
        if phase == "learning" and not killed:
            killed.append(kill(shard_processes()[0]))

    flags: dict[str, Any] = {"config": settings, "address": None, "shards": 2, "storage": tmp_path / "storage"}
    cluster_nexting.run(str(path), out=tmp_path / "out", **flags, progress=progress)
    assert killed == [True]
    assert sorted(os.listdir(tmp_path / "out")) == sorted(os.listdir(tmp_path / "alone"))
    for name in ("predictions.parquet", "summary.json"):
        assert (tmp_path / "out" / name).read_bytes() == (tmp_path / "alone" / name).read_bytes(), name
    for i in range(count):
        models = [emphatic.Horde.load(tmp_path / run / "models" / f"m{i}.safetensors") for run in ("out", "alone")]
        np.testing.assert_array_equal(models[0].learner.theta, models[1].learner.theta)
    assert not (tmp_path / "storage" / "machines").exists()


@pytest.mark.parametrize(
    ("at", "block", "waiting"), [(1, 200, 1), (1000, 100, 1 << 20), (700, 51, 1), (700, 51, 1 << 20), (ROWS, 200, 1)]
)
def test_an_interrupted_run_resumes(
    waiting: int, at: int, block: int, table: Path, alone: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("emphatic.nexting.learning.WAITING", waiting)  # with 1, parts run ahead of the manifest
    out, storage = tmp_path / "out", tmp_path / "storage"

    options: dict[str, Any] = {"block": block, "checkpoint_every": 0.0, "storage": storage}
    with pytest.raises(Stop):
        run(table, out, progress=stop_at(at), **options)
    manifest = Manifest.read(storage)
    assert manifest is not None
    assert manifest.rows >= min(at, ROWS - 1) > 0  # the block that was being looked at is there
    with pytest.raises(ValueError, match="add --resume, or give another --storage"):
        run(table, out, **options)
    with pytest.raises(ValueError, match="another table or other settings"):
        run(table, out, settings=Settings(rates=(0.1,)), **options, resume=True)
    with pytest.raises(ValueError, match="give the same --out"):
        run(table, tmp_path / "other", **options, resume=True)
    assert not (tmp_path / "other").exists()
    run(table, out, **options, resume=True)
    compare(out, alone)
    assert not storage.exists()


def test_a_storage_that_another_run_uses(table: Path, alone: Path, tmp_path: Path) -> None:
    out, storage = tmp_path / "out", tmp_path / "storage"
    with hold_storage(storage), pytest.raises(ValueError, match=f"storage: another run, process {os.getpid()}"):
        run(table, out, storage=storage)
    assert not out.exists()
    assert not storage.exists()
    storage.mkdir()
    (storage / "manifest.json").write_bytes(b"theirs")
    flags: dict[str, Any] = {"out": out, "address": IN_PROCESS, "storage": storage, "shards": 1}
    with hold_storage(storage), pytest.raises(ValueError, match="is writing here"):
        cluster_nexting.run(str(table), overwrite=True, **flags)
    assert (storage / "manifest.json").read_bytes() == b"theirs"


def test_an_error_leaves_what_was_there(table: Path, tmp_path: Path) -> None:
    def fail(phase: str, done: int, total: int) -> None:
        if phase == "learning":
            raise ValueError("no more")

    with pytest.raises(ValueError, match="no more"):
        run(table, tmp_path / "out", progress=fail)
    assert list(tmp_path.iterdir()) == []


def run_command(*arguments: str, **options: Any) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "emphatic.cli", "nexting", *arguments]
    return subprocess.run(command, capture_output=True, text=True, env=clean_environment(), **options)


def clean_environment() -> dict[str, str]:
    """As a user has it, without the token of these tests: the command must start Ray by itself."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    return clean | {"PYTHONPATH": os.pathsep.join(sys.path)}


@pytest.mark.parametrize("flag", ["--shards", "--storage", "--block", "--checkpoint-every"])
def test_flags_that_need_a_cluster(flag: str) -> None:
    from typer.testing import CliRunner

    from emphatic.cli import app

    done = CliRunner().invoke(app, ["nexting", "log.csv", flag, "2"])
    assert done.exit_code == 2
    assert f"{flag} needs a cluster: --ray ADDRESS" in done.output


@pytest.mark.cluster
@pytest.mark.filterwarnings("default")
def test_the_command_on_ray_interrupted_and_resumed(table: Path, tmp_path: Path) -> None:
    """With the headline and a question: to the bit as shards in one process, and to rounding as without shards."""
    pytest.importorskip("ray", reason="needs Ray: pip install 'emphatic[ray]'")
    out, storage, question = tmp_path / "out", tmp_path / "storage", "P(x > 0.5 within 1h)"
    flags = ["--ray", "local", "--shards", "2", "--block", "100", "--checkpoint-every", "100ms", "--ask", question]
    arguments = [str(table), "--out", str(out), "--storage", str(storage), *flags]
    command = [sys.executable, "-m", "emphatic.cli", "nexting", *arguments]
    running = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=clean_environment()
    )
    until = time.monotonic() + 300
    while not ((found := Manifest.read(storage)) and found.rows) and time.monotonic() < until:
        time.sleep(0.01)
    running.send_signal(signal.SIGINT)
    _, errors = running.communicate(timeout=300)
    assert running.returncode == 130, errors
    assert errors.splitlines()[-1].startswith("Stopped. Continue with --resume --out")
    done = run_command(*arguments, "--resume", timeout=300)
    assert done.returncode == 0, done.stderr
    assert not storage.exists()
    settings = Settings(ask=(question,), exponential_only=False)
    shards: dict[str, Any] = {"address": IN_PROCESS, "shards": 2, "block": 100}
    cluster_nexting.run(str(table), out=tmp_path / "shards", config=settings, **shards)
    for name in ("predictions.parquet", "summary.json"):
        assert (out / name).read_bytes() == (tmp_path / "shards" / name).read_bytes(), name
    emphatic.nexting.run(table, out=tmp_path / "alone", config=settings)
    compare(out, tmp_path / "alone")
    scores = json.loads((out / "summary.json").read_text())
    assert {question, "x at +2min"} <= {score.get("text") for score in scores}


@pytest.mark.cluster
def test_the_command_with_no_cluster_at_the_address(table: Path, tmp_path: Path) -> None:
    pytest.importorskip("ray", reason="needs Ray: pip install 'emphatic[ray]'")
    done = run_command(str(table), "--out", str(tmp_path / "out"), "--ray", "127.0.0.1:1", timeout=300)
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1].startswith("Error: No Ray answers at 127.0.0.1:1")
    assert not (tmp_path / "out").exists()
