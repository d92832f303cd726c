"""Shards, machines and sweeps on Ray, of which processes are killed: the bits of one process."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

import emphatic
from emphatic.nexting.cluster import ClusterHorde, joblib_on_ray, local, run_by_machine
from emphatic.nexting.runs.settings import Settings
from tests.cluster.support import BLOCK, ROWS, SETUP, blocks, features, kill, log, makers, processes, questions

pytestmark = [pytest.mark.cluster, pytest.mark.filterwarnings("default")]  # Ray leaves files and processes open


# ---------------------------------------------------------------------- shards that are killed


@pytest.mark.parametrize("every", [0.0, 0.3, "1h"])
@pytest.mark.parametrize("kills", [1, 2])
def test_shards_killed_in_a_stream(ray: Any, kills: int, every: Any, expected: Any, tmp_path: Path) -> None:
    answers, killed = [], []
    with ClusterHorde(questions(), features(), **SETUP, storage=tmp_path, checkpoint_every=every) as horde:
        for answer in horde.warm_up(log()).stream(blocks(pause=0.02)):
            answers.append(answer)
            if len(answers) in (8, 9, 20)[:: 3 - kills]:
                killed.append(kill())
        assert horde.gather().rows == ROWS
    assert len(set(killed)) == len(killed) >= kills
    np.testing.assert_array_equal(np.concatenate(answers), expected)


@pytest.mark.parametrize("rows", [200, 10_000])
def test_a_shard_killed_while_it_warms_up_and_after(ray: Any, rows: int, tmp_path: Path) -> None:
    """A warm-up of any size, shorter than a block or of megabytes, comes to a shard that begins again."""
    table = log(10_000) | {f"x{i}": np.random.default_rng(i).normal(size=10_000) for i in range(60)}
    setup = SETUP | {"block": 500}

    def stream() -> Iterator[Any]:
        return ({name: column[b : b + 500] for name, column in table.items()} for b in range(0, 3000, 500))

    with local(questions(), makers(), **setup) as horde:
        expected = np.concatenate(list(horde.warm_up(table, rows).stream(stream())))
    with ClusterHorde(questions(), makers(), **setup, storage=tmp_path, checkpoint_every="1h") as horde:
        killer = threading.Thread(target=kill)
        killer.start()
        horde.warm_up(table, rows)
        killer.join()
        answers = []
        for answer in horde.stream(stream()):
            answers.append(answer)
            if len(answers) in (1, 4):
                kill()
    np.testing.assert_array_equal(np.concatenate(answers), expected)


def test_a_shard_killed_in_a_run_and_while_it_saves(ray: Any, tmp_path: Path) -> None:
    table = log(30_000)
    with local(questions(), features(), **SETUP) as horde:
        expected = horde.run(table)

    def kill_while_saving() -> None:
        for _ in range(3):
            while not list(tmp_path.glob("checkpoint-*/.*.partial")):
                time.sleep(0.0002)
            kill()
            time.sleep(1.0)

    with ClusterHorde(questions(), features(), **SETUP, storage=tmp_path, checkpoint_every=0.0) as horde:
        threading.Thread(target=kill_while_saving, daemon=True).start()
        np.testing.assert_array_equal(horde.run(table), expected)


# ---------------------------------------------------------------------- runs that are repeated


@pytest.mark.parametrize("failure", ["none", "a full disk", "a rejected block"])
def test_a_run_repeated_in_the_same_process(ray: Any, failure: str, expected: Any, tmp_path: Path) -> None:
    kept, answers = [], []  # (an exception that is kept holds on to the frames of the failed run)

    def failing(first: int) -> Iterator[Any]:
        for number, rows in enumerate(blocks(first)):
            if turn == 0 and number == 12:
                if failure == "a full disk":
                    raise OSError(28, "No space left on device")
                if failure == "a rejected block":
                    yield {"b": rows["b"], "a": rows["a"][:3]}
            yield rows

    for turn in range(3):
        horde = ClusterHorde(questions(), features(), **SETUP, storage=tmp_path, checkpoint_every=0.0)
        try:
            horde.warm_up(log())
            for answer in horde.stream(failing):
                answers.append(answer)
        except (OSError, ValueError) as error:
            kept.append(error)
        finally:
            horde.close()
        assert len(answers) == (12 if turn == 0 and failure != "none" else ROWS // BLOCK)
    assert len(kept) == (failure != "none")
    np.testing.assert_array_equal(np.concatenate(answers), expected)
    until = time.monotonic() + 60
    while processes(b"ray::Shard") and time.monotonic() < until:
        time.sleep(0.1)
    assert not processes(b"ray::Shard")


DRIVER = """
import sys
import numpy as np
from emphatic.nexting.cluster import ClusterHorde
from tests.cluster.support import *
storage, out, rows = sys.argv[1], sys.argv[2], int(sys.argv[3])
for turn in range(2):  # Ray is started here, stopped, and started again
    with ClusterHorde(questions(), features(), **SETUP, storage=storage, checkpoint_every=0.1) as horde:
        print("position", horde.position, flush=True)
        if turn:
            np.save(out, horde.run(log(rows)))
        elif horde.is_warm:
            continue
        horde.warm_up(log(rows))
"""


def test_a_killed_driver_continues(tmp_path: Path) -> None:
    pytest.importorskip("ray", reason="needs Ray: pip install 'emphatic[ray]'")
    storage, out, rows = tmp_path / "storage", tmp_path / "predictions.npy", 60_000
    command = [sys.executable, "-c", DRIVER, str(storage), str(out), str(rows)]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL) as driver:
        until = time.monotonic() + 300
        while time.monotonic() < until and driver.poll() is None:
            manifest = storage / "manifest.json"
            if manifest.exists() and json.loads(manifest.read_text())["rows"] >= 2000:
                break
            time.sleep(0.01)
        driver.send_signal(signal.SIGKILL)
    learned = json.loads(manifest.read_text())["rows"]
    assert 2000 <= learned < rows
    assert not out.exists()
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split()[-1] == str(learned)
    with local(questions(), features(), **SETUP) as horde:
        np.testing.assert_array_equal(np.load(out), horde.run(log(rows)))


def test_what_ray_cannot_give(ray: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match=r"8 shards need 800 CPUs\. Ray has \d"):
        ClusterHorde(questions(), features(), shards=8, threads=100)
    with pytest.raises(ValueError, match=r"2 shards need 2 GPUs\. Ray has 0\."):
        ClusterHorde(questions(), features(), shards=2, engine="cuda")
    monkeypatch.setattr(ray, "nodes", lambda: [{}, {}])
    with pytest.raises(ValueError, match="'storage' parameter of ClusterHorde must be a folder that all nodes reach"):
        ClusterHorde(questions(), features(), shards=2)


# ---------------------------------------------------------------------- machines and sweeps


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Path:
    rng, count, rows = np.random.default_rng(0), 8, 300
    x = np.sin(np.arange(count * rows) / 9) + 0.1 * rng.normal(size=count * rows)
    columns = {"machine": np.repeat([f"m{i}" for i in range(count)], rows), "x": x, "y": rng.normal(size=len(x))}
    path = tmp_path_factory.mktemp("fleet") / "fleet.csv"
    pa.csv.write_csv(pa.table(columns), path)
    return path


def test_machines_in_tasks_one_of_which_is_killed(ray: Any, fleet: Path, tmp_path: Path) -> None:
    settings = Settings(by="machine")
    killed: list[int] = []
    emphatic.nexting.run(fleet, out=tmp_path / "alone", config=settings)

    def progress(phase: str, done: int, total: int) -> None:
        if phase == "learning" and not killed:
            killed.append(kill(b"ray::_learn_machine"))

    run_by_machine(str(fleet), settings, tmp_path / "out", progress=progress)
    assert len(killed) == 1
    assert sorted(os.listdir(tmp_path / "out")) == sorted(os.listdir(tmp_path / "alone"))
    for name in ("predictions.parquet", "summary.json"):
        assert (tmp_path / "out" / name).read_bytes() == (tmp_path / "alone" / name).read_bytes(), name
    for i in range(8):
        files = [tmp_path / run / "models" / f"m{i}.safetensors" for run in ("out", "alone")]
        hordes = [emphatic.Horde.load_with(file)[0] for file in files]
        np.testing.assert_array_equal(hordes[0].learner.theta, hordes[1].learner.theta)


def test_a_sweep_with_joblib_on_ray(ray: Any, tmp_path: Path) -> None:
    grid = {"rule": ["td", "etd"], "alpha": np.geomspace(0.001, 0.1, 40).tolist(), "lambda": [0, 0.9]}
    options: dict[str, Any] = {"runs": 10, "steps": 100}
    emphatic.studies.sweep("chain", grid, **options, out=tmp_path / "alone")
    with joblib_on_ray(None):
        emphatic.studies.sweep("chain", grid, **options, out=tmp_path / "ray")
    for name in ("results.parquet", "settings.parquet"):
        assert pq.read_table(tmp_path / "ray" / name).equals(pq.read_table(tmp_path / "alone" / name)), name


def run_command(*arguments: object) -> subprocess.CompletedProcess[str]:
    """The command as a user has it, without the token of these tests: it must start Ray by itself."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    environment |= {"PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-m", "emphatic.nexting.cli", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, env=environment, timeout=300)


def test_the_commands(fleet: Path, tmp_path: Path) -> None:
    pytest.importorskip("ray", reason="needs Ray: pip install 'emphatic[ray]'")
    nexting = ("nexting", fleet, "--by", "machine", "--quiet", "--out")
    sweep = ("sweep", "chain", "--alpha", ".1,.01", "--lambda", "0", "--runs", 4, "--steps", 100, "--out")
    for arguments, name in ((nexting, "predictions.parquet"), (sweep, "results.parquet")):
        for flags in ((), ("--ray", "local")):
            done = run_command(*arguments, tmp_path / arguments[0] / str(len(flags)), *flags)
            assert done.returncode == 0, done.stderr
        files = [tmp_path / arguments[0] / flags / name for flags in ("0", "2")]
        assert files[0].read_bytes() == files[1].read_bytes()
    done = run_command(*nexting, tmp_path / "out", "--ray", "127.0.0.1:1")
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1].startswith("Error: No Ray answers at 127.0.0.1:1")
    done = run_command("nexting", fleet, "--ray", "local")
    assert done.returncode == 2
    assert "--ray needs --by" in done.stderr.splitlines()[-1]
