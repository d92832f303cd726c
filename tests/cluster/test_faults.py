"""Real Ray, real deaths: whatever is killed, every bit is that of the same shards in one process."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from emphatic.cluster import ClusterHorde, ClusterLearner, local
from emphatic.cluster.driver import Manifest
from tests.cluster.support import BLOCKS, KILLS, RULE, SETUP, STEPS, K, N, kill, shard_processes, stream, undisturbed
from tests.cluster.test_local import features, log, questions

ray = pytest.importorskip("ray", reason="needs Ray: pip install 'emphatic[ray]'")
pytestmark = [pytest.mark.cluster, pytest.mark.filterwarnings("default")]


@pytest.fixture(scope="module")
def one_ray() -> Iterator[None]:
    """A Ray that this process is connected to, and that no cluster of ours may stop."""
    ray.init("local", num_cpus=4, include_dashboard=False, log_to_driver=False, namespace="tests")
    yield
    ray.shutdown()


@pytest.fixture(scope="module")
def expected() -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    made, theta = undisturbed()
    return np.concatenate(made), theta


def kill_one(pids: list[int]) -> None:
    if pids:
        kill(random.choice(pids))


class Killer(threading.Thread):
    """Kills a shard's process each time that ``due`` says so, until stopped."""

    def __init__(self, due: Callable[[], list[int]], times: int, pause: float) -> None:
        super().__init__(daemon=True)
        self._due, self.left, self._pause, self.stopped = due, times, pause, False

    def run(self) -> None:
        while self.left and not self.stopped:
            pids = self._due()
            if pids and kill(random.choice(pids)):
                self.left -= 1
                time.sleep(self._pause)
            else:
                time.sleep(0.0005)


def saving(storage: Path) -> list[int]:
    """The processes that are writing a state at this moment."""
    partial = list(storage.glob("shard-*/.*.partial"))
    return shard_processes() if partial else []


def check(learner: ClusterLearner, got: list[Any], expected: Any) -> None:
    assert np.array_equal(np.concatenate(got), expected[0])
    assert np.array_equal(learner.theta, expected[1])
    assert learner.status.manifest == learner.status.block
    for folder in learner.storage.glob("shard-*"):
        assert len(list(folder.glob("*.safetensors"))) <= 2


@pytest.mark.parametrize(("every", "seed"), [(0.0, 0), (0.5, 1)])
def test_actors_killed_while_learning(every: float, seed: int, one_ray: None, expected: Any, tmp_path: Path) -> None:
    random.seed(seed)
    times = sorted(random.sample(range(1, BLOCKS - 1), 6))
    with ClusterLearner(RULE, N, K, **SETUP, storage=tmp_path, checkpoint_every=every) as learner:
        got = []
        for one in learner.stream(stream(pause=0.01)):
            got.append(one)
            if len(got) in times:
                threading.Timer(random.uniform(0, 0.05), lambda: kill_one(shard_processes())).start()
        assert learner.status.restarts >= 1
        check(learner, got, expected)


def test_actors_killed_while_saving(one_ray: None, expected: Any, tmp_path: Path) -> None:
    with ClusterLearner(RULE, N, K, **SETUP, storage=tmp_path, checkpoint_every=0.0) as learner:
        killer = Killer(lambda: saving(tmp_path), 3, 2.0)
        killer.start()
        got = list(learner.stream(stream(pause=0.2)))
        killer.stopped = True
        killer.join()
        check(learner, got, expected)
        assert killer.left < 3


def test_an_actor_killed_after_its_last_block(one_ray: None, expected: Any, tmp_path: Path) -> None:
    with ClusterLearner(RULE, N, K, **SETUP, storage=tmp_path, checkpoint_every="1h") as learner:
        got = []
        for one in learner.stream(stream()):
            got.append(one)
            if len(got) == BLOCKS:
                kill_one(shard_processes())
        check(learner, got, expected)


def test_actors_killed_before_their_first_save_and_twice_in_a_row(one_ray: None, expected: Any, tmp_path: Path) -> None:
    with ClusterLearner(RULE, N, K, **SETUP, storage=tmp_path, checkpoint_every="1h") as learner:
        got = []
        for one in learner.stream(stream()):
            got.append(one)
            if len(got) == 3:
                before = shard_processes()
                kill_one(before[:1])
                until = time.monotonic() + 120
                while time.monotonic() < until:  # the one that takes its place
                    new = [pid for pid in shard_processes() if pid not in before]
                    if new:
                        kill_one(new)
                        break
                    time.sleep(0.01)
        check(learner, got, expected)
        assert Manifest.read(tmp_path).block > BLOCKS  # type: ignore[union-attr]


@pytest.mark.parametrize("predictions", ["shard", None])
def test_deaths_where_predictions_stay_in_the_shard(
    predictions: Any, one_ray: None, expected: Any, tmp_path: Path
) -> None:
    import pyarrow.parquet as pq

    with ClusterLearner(RULE, N, K, **SETUP, storage=tmp_path, checkpoint_every=0.3) as learner:
        killer = Killer(shard_processes, 3, 2.0)
        killer.start()
        list(learner.stream(stream(pause=0.12), predictions=predictions))
        killer.stopped = True
        killer.join()
        assert np.array_equal(learner.theta, expected[1])
    if predictions == "shard":
        parts = [pq.read_table(tmp_path / f"predictions-0000{i}.parquet") for i in (0, 1)]
        assert all(part.column("row").to_pylist() == list(range(BLOCKS * STEPS)) for part in parts)
        kept = [np.stack(part.column(1).to_numpy(zero_copy_only=False)) for part in parts]
        assert np.array_equal(np.concatenate(kept, axis=1), expected[0])
        assert not list(tmp_path.glob("shard-*/predictions-*"))


def obstruct(learner: ClusterLearner, block: int) -> Path:
    """A folder where the first shard's file of that block is to be: it cannot be written while that is there."""
    assert learner.theta.any() == 0  # every shard has begun, and has looked at its folder
    session = Manifest.read(learner.storage).session  # type: ignore[union-attr]
    obstacle = learner.storage / "shard-00000" / f"{block:012d}-{session}.safetensors"
    obstacle.mkdir()
    return obstacle


def test_storage_that_fails_once(one_ray: None, expected: Any, tmp_path: Path) -> None:
    with ClusterLearner(RULE, N, K, **SETUP, storage=tmp_path, checkpoint_every="1h") as learner:
        obstacle = obstruct(learner, BLOCKS + len([b for b in range(BLOCKS) if b % 7 == 3]))
        got = []
        for one in learner.stream(stream()):
            got.append(one)
            if len(got) == BLOCKS:
                threading.Timer(1.0, obstacle.rmdir).start()
        check(learner, got, expected)


def test_storage_that_keeps_failing_is_named_in_one_line(one_ray: None, tmp_path: Path) -> None:
    learner = ClusterLearner(RULE, N, K, **SETUP, storage=tmp_path, checkpoint_every="1h")
    obstacle = obstruct(learner, 3)
    began = time.monotonic()
    with pytest.raises(OSError, match="is not a file") as caught:
        list(learner.stream(stream(0, 3)))
    assert "\n" not in str(caught.value)
    assert time.monotonic() - began < 10
    obstacle.rmdir()
    with ClusterLearner(RULE, N, K, **SETUP, storage=tmp_path, resume=True) as again:
        assert again.position == 0
        made, _ = undisturbed(3)
        assert np.array_equal(np.concatenate(list(again.stream(stream(0, 3)))), np.concatenate(made))


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 128 KiB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=128k", "tmpfs", str(folder)], capture_output=True)
    if done.returncode:
        pytest.skip("only root may mount a small disk")
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


def test_a_full_disk(one_ray: None, expected: Any, small_disk: Path) -> None:
    """One line within seconds; when there is room again, it goes on from the manifest."""
    ballast = small_disk / "ballast"
    with ClusterLearner(RULE, N, K, **SETUP, storage=small_disk, checkpoint_every=0.0) as learner:
        got = list(learner.stream(stream(0, 6)))
        rows = learner.position
        assert rows == 6 * STEPS
        subprocess.run(["dd", "if=/dev/zero", f"of={ballast}"], capture_output=True)  # until nothing is left
        began = time.monotonic()
        with pytest.raises(OSError, match="No space left on device") as caught:
            list(learner.stream(stream))
        assert "\n" not in str(caught.value)
        assert time.monotonic() - began < 10
    ballast.unlink()
    with ClusterLearner(RULE, N, K, **SETUP, storage=small_disk, resume=True) as learner:
        assert learner.position == rows
        got += learner.stream(stream)
        check(learner, got, expected)


def test_a_refused_block_on_ray_changes_nothing(one_ray: None, expected: Any, tmp_path: Path) -> None:
    bad: Any = next(stream(0, 1))
    bad = dict(bad)
    bad["R"] = np.full((STEPS, K), np.nan)
    blocks = list(stream())
    with ClusterLearner(RULE, N, K, **SETUP, storage=tmp_path, checkpoint_every=0.0) as learner:
        with pytest.raises(ValueError, match="'R' parameter") as caught:
            list(learner.stream([*blocks[:9], bad, *blocks[9:]]))
        assert "\n" not in str(caught.value)
        rows = learner.position
        assert rows == 8 * STEPS
        rest = list(learner.stream(blocks[9:]))
        assert np.array_equal(np.concatenate(rest), expected[0][rows:])
        assert np.array_equal(learner.theta, expected[1])


def test_a_horde_survives(one_ray: None, tmp_path: Path) -> None:
    table = log(6000)
    setup: dict[str, Any] = {"shards": 2, "engine": "sparse", "block": 100}
    with local(questions(), features(), **setup) as horde:
        expected = horde.run(table)
    with ClusterHorde(questions(), features(), **setup, storage=tmp_path, checkpoint_every=0.2) as horde:
        horde.warm_up(table)

        def slowly(row: int) -> Iterator[Any]:
            for b in range(row, 6000, 100):
                time.sleep(0.08)
                yield {c: v[b : b + 100] for c, v in table.items()}

        killer = Killer(shard_processes, 3, 2.0)
        killer.start()
        got = list(horde.stream(slowly))
        killer.stopped = True
        killer.join()
        assert np.array_equal(np.concatenate(got), expected)
        assert horde.gather().rows == 6000


# ---------------------------------------------------------------------- the driver, and a node

DRIVER = """
import json, os, sys, time
import numpy as np
from emphatic.cluster import ClusterLearner
from tests.cluster.support import *
storage, out = sys.argv[1:3]
kept = []
def on_checkpoint(rows):
    return {"rows": rows}
learner = ClusterLearner(RULE, N, K, **SETUP, storage=storage, checkpoint_every=0.2, address=None)
first = row = learner.position
print("from", row, flush=True)
try:
    for one in learner.stream(lambda row: stream(row, pause=0.12), on_checkpoint=on_checkpoint):
        np.save(f"{out}/{row:09d}.npy", one)
        row += STEPS
        print("row", row, flush=True)
finally:
    learner.close()
print("done", flush=True)
"""


#: Seconds for a process on a machine with other load.
LONG = 300


def drive(storage: Path, out: Path) -> subprocess.Popen[str]:
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    return subprocess.Popen(
        [sys.executable, "-c", DRIVER, str(storage), str(out)], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        text=True, env=environment, start_new_session=True,
    )  # fmt: skip


def wait_for(process: subprocess.Popen[str], rows: int) -> None:
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith("row") and int(line.split()[1]) >= rows:
            return
    raise AssertionError(process.stderr.read() if process.stderr else "")


def expect_refusal(second: subprocess.Popen[str], reason: str) -> None:
    _, errors = second.communicate(timeout=LONG)
    assert errors.splitlines()[-1].endswith(f"{reason} Wait until it ends, or choose another place.")
    assert second.returncode == 1


def test_the_driver_is_killed_and_another_goes_on(expected: Any, tmp_path: Path) -> None:
    storage, out = tmp_path / "storage", tmp_path / "out"
    out.mkdir()
    for rows in (6 * STEPS, 18 * STEPS):
        process = drive(storage, out)
        wait_for(process, rows)
        if rows == 6 * STEPS:
            expect_refusal(drive(storage, out), f"{storage}: another run, process {process.pid}, is writing here.")
        kill(process.pid)  # and with it its lock
        process.communicate()
        manifest = Manifest.read(storage)
        assert manifest is not None
        for path in out.iterdir():  # what was kept past the manifest is dropped
            if int(path.stem) >= manifest.rows:
                path.unlink()
    process = drive(storage, out)
    output, errors = process.communicate(timeout=LONG)
    assert process.returncode == 0, errors
    assert manifest is not None
    assert int(output.split()[1]) == manifest.rows > 0
    assert np.array_equal(np.concatenate([np.load(path) for path in sorted(out.iterdir())]), expected[0])


def test_ctrl_c_saves_and_leaves_nothing_behind(expected: Any, tmp_path: Path) -> None:
    storage, out = tmp_path / "storage", tmp_path / "out"
    out.mkdir()
    process = drive(storage, out)
    wait_for(process, 6 * STEPS)
    shards = shard_processes(process.pid)
    assert len(shards) == 2
    os.killpg(process.pid, signal.SIGINT)
    process.communicate(timeout=LONG)
    assert process.returncode != 0
    manifest = json.loads((storage / "manifest.json").read_text())
    assert manifest["rows"] == manifest["more"]["rows"] == len(list(out.iterdir())) * STEPS  # all that was handed over
    until = time.monotonic() + 60
    while any(Path(f"/proc/{pid}").exists() for pid in shards) and time.monotonic() < until:
        time.sleep(0.1)
    assert not any(Path(f"/proc/{pid}").exists() for pid in shards)
    process = drive(storage, out)
    process.communicate(timeout=LONG)
    assert np.array_equal(np.concatenate([np.load(path) for path in sorted(out.iterdir())]), expected[0])


def test_there_were_enough_deaths() -> None:
    assert len(KILLS) >= 20
