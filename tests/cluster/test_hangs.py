"""What hangs or is gone: a shard that is stopped, Ray's own servers; and who may reach a Ray that is started here."""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from emphatic.cluster import ClusterError, ClusterLearner, watchdog
from emphatic.cluster.watch import Calls, RayLog, ServerWatch, is_answering
from tests.cluster.support import RULE, SETUP, K, N, stream, undisturbed

# ---------------------------------------------------------------------- without Ray


def serve(answer: bytes | None) -> socket.socket:
    """A server that accepts connections and says something, or nothing."""
    server = socket.create_server(("127.0.0.1", 0))

    def accept() -> None:
        with ExitStack() as held:
            while True:
                try:
                    connection, _ = server.accept()
                except OSError:
                    return
                held.enter_context(connection)
                if answer is not None:
                    connection.sendall(answer)

    threading.Thread(target=accept, daemon=True).start()
    return server


def address_of(server: socket.socket) -> str:
    return f"127.0.0.1:{server.getsockname()[1]}"


def wait_for_fault(watch: ServerWatch, seconds: float) -> str:
    until = time.monotonic() + seconds
    while not watch.fault and time.monotonic() < until:
        time.sleep(0.01)
    return watch.fault


def test_a_server_that_answers_one_that_does_not_and_one_that_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("emphatic.cluster.watch._PAUSE", 0.02)
    monkeypatch.setattr("emphatic.cluster.watch._REACH", 0.05)
    monkeypatch.setattr("emphatic.cluster.watch._SILENT", 0.3)
    good, silent = serve(bytes((0, 0, 0, 4, 0, 0, 0, 0, 0))), serve(None)
    assert is_answering(address_of(good))
    watches = [ServerWatch({"The raylet": address_of(server)}) for server in (good, silent)]
    for watch in watches:
        watch.start()
    assert wait_for_fault(watches[1], 5).endswith("does not answer: it is stopped, or the network is cut")
    assert not watches[0].fault
    good.shutdown(socket.SHUT_RDWR)
    good.close()
    assert wait_for_fault(watches[0], 5).endswith("is gone: it was killed, or has crashed")
    for watch in watches:
        watch.end()
        watch.join()
    silent.shutdown(socket.SHUT_RDWR)
    silent.close()


def test_a_call_that_never_ends_is_given_up() -> None:
    fault = ""
    calls = Calls(lambda: fault)
    assert calls(max, 3, 4) == 4
    with pytest.raises(ZeroDivisionError):
        calls(lambda: 1 // 0)
    began, hanging = time.monotonic(), threading.Event()
    with pytest.raises(ClusterError, match=r"Ray has not answered within 0 s \(wait\)"):
        calls(hanging.wait, within=0.1)
    assert calls.is_busy
    hanging.set()
    fault = "The raylet is gone"
    with pytest.raises(ClusterError, match="The raylet is gone"):
        calls(max, 3, 4)
    assert time.monotonic() - began < 5
    calls.end()


def test_rays_log_is_one_file(tmp_path: Path) -> None:
    import logging

    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "raylet.out").write_text("x" * 100_000 + "the reason")
    log = RayLog(tmp_path / "storage" / "ray.log")
    log.folder = tmp_path / "logs"
    log.attach()
    logging.getLogger("ray._private.worker").warning("a page")
    logging.getLogger("ray.actor").warning("another")
    log.detach()
    path = log.write()
    assert path == tmp_path / "storage" / "ray.log"
    text = path.read_text()
    assert "a page" in text
    assert "another" in text
    assert "raylet.out <==" in text
    assert text.endswith("the reason")
    assert len(text) < 60_000
    assert RayLog(Path("/proc/none/ray.log")).write() is None  # where nothing can be written


WATCHED = """
import importlib.util, os, pathlib, subprocess, sys, time
spec = importlib.util.spec_from_file_location("watchdog", sys.argv[1])
module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
watchdog = module.Watchdog("ours", pathlib.Path(sys.argv[2]))
exec(sys.argv[3])
os._exit(3)
"""


def is_running(process: int) -> bool:
    status = watchdog._status(Path(f"/proc/{process}"))
    return status is not None and not status.has_ended


def run_watched(script: str, log: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-I", "-S", "-c", WATCHED, watchdog.__file__, str(log), script]
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


def test_a_watchdog_says_what_a_driver_cannot_and_ends_what_it_leaves(tmp_path: Path) -> None:
    server = tmp_path / "gcs_server"
    shutil.copyfile("/bin/sleep", server)
    server.chmod(0o755)
    begin_server = f"server = subprocess.Popen(['{server}', '60'], env={{module.MARK: 'ours'}})"
    # in time; and without an end, as when Ray ends the process
    ended = run_watched("watchdog.limit(60, 'late'); watchdog.free(); watchdog.end()", tmp_path / "log")
    assert (ended.returncode, ended.stderr) == (3, "")
    ended = run_watched(f"{begin_server}; print(server.pid, flush=True)", tmp_path / "log")
    assert (ended.returncode, ended.stderr) == (3, "")
    until = time.monotonic() + 60
    while is_running(int(ended.stdout)) and time.monotonic() < until:
        time.sleep(0.01)
    assert not is_running(int(ended.stdout))
    # too late; and with a server that is gone
    ended = run_watched("watchdog.limit(0.1, 'Ray has not answered'); time.sleep(60)", tmp_path / "log")
    line = f"emphatic.cluster.watch.ClusterError: Ray has not answered. Ray's log: {tmp_path / 'log'}\n"
    assert (ended.returncode, ended.stderr) == (-signal.SIGKILL, line)
    processes = watchdog.ServerProcesses(os.getpid())
    with subprocess.Popen([server, "60"], env={watchdog.MARK: "mine"}) as running:
        while not Path(f"/proc/{running.pid}/cmdline").read_text().startswith(str(server)):
            time.sleep(0.01)
        assert processes.find_fault("mine") == ""
        running.kill()
        while not processes.find_fault("mine"):
            time.sleep(0.01)
    assert processes.find_fault("mine") == "Ray's GCS server is gone: it was killed, or has crashed"
    assert not watchdog.ServerProcesses(os.getpid()).find_fault("mine")


# ---------------------------------------------------------------------- with Ray

RUN = """
import logging, os, sys, time
import numpy as np
logging.basicConfig(level="WARNING", format="%(name)s %(message)s")
from emphatic.cluster import ClusterLearner
from tests.cluster.support import *
storage = sys.argv[1]
with ClusterLearner(RULE, N, K, **SETUP, storage=storage, checkpoint_every=0.5) as learner:
    made = []
    for one in learner.stream(lambda row: stream(row, pause=0.15)):
        made.append(one)
        if len(made) == 4:
            print("shards", *(place.process for place in learner.places), flush=True)
    np.save(storage + "/made.npy", np.concatenate(made))
print("done", learner, flush=True)
"""


def begin(storage: Path) -> subprocess.Popen[str]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("RAY_AUTH")}
    return subprocess.Popen(
        [sys.executable, "-c", RUN, str(storage)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env=environment | {"PYTHONPATH": os.pathsep.join(sys.path)},
    )  # fmt: skip


def descendants(root: int) -> dict[int, str]:
    """The processes that descend from one, and their command lines."""
    parents, names = {}, {}
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            parents[int(entry.name)] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            names[int(entry.name)] = (entry / "cmdline").read_text().replace("\0", " ")
        except OSError:
            continue

    def descends(pid: int) -> bool:
        while pid > 1 and pid != root:
            pid = parents.get(pid, 0)
        return pid == root

    return {pid: name for pid, name in names.items() if pid != root and descends(pid)}


def find_process(root: int, word: str) -> int:
    until = time.monotonic() + 60
    while time.monotonic() < until:
        for pid, name in descendants(root).items():
            if word in name.split(" ")[0]:
                return pid
        time.sleep(0.05)
    raise AssertionError(f"no {word}")


def wait_until_it_learns(running: subprocess.Popen[str]) -> list[int]:
    assert running.stdout is not None
    for line in running.stdout:
        if line.startswith("shards"):
            return [int(word) for word in line.split()[1:]]
    raise AssertionError(running.communicate()[1])


def listening(pids: set[int]) -> set[str]:
    """The addresses that processes listen at."""
    lines = subprocess.run(["ss", "-ltnpH"], capture_output=True, text=True).stdout.splitlines()
    return {line.split()[3] for line in lines if {int(pid) for pid in re.findall(r"pid=(\d+)", line)} & pids}


@pytest.mark.cluster
def test_a_stopped_shard_comes_back_and_ray_listens_on_loopback_alone(tmp_path: Path) -> None:
    ray = pytest.importorskip("ray", reason="needs Ray: pip install 'emphatic[ray]'")
    running = begin(tmp_path)
    shards = wait_until_it_learns(running)
    processes = descendants(running.pid)
    environments = [Path(f"/proc/{pid}/environ") for pid in processes]
    tokens = {value for path in environments if path.exists() for value in path.read_bytes().split(b"\0")}
    addresses = listening({running.pid, *processes})
    os.kill(shards[0], signal.SIGSTOP)
    stopped = time.monotonic()
    output, errors = running.communicate(timeout=300)
    assert running.returncode == 0, errors
    assert time.monotonic() - stopped < 60
    assert "done" in output
    lines = errors.splitlines()
    assert any(f"shard 0, process {shards[0]}, does not answer: it is killed" in line for line in lines)
    if tuple(map(int, ray.__version__.split(".")[:2])) >= (2, 60):  # earlier ones print a line of their own
        assert all(line.startswith("emphatic.cluster") for line in lines), errors
    assert (tmp_path / "ray.log").stat().st_size > 1000
    made, _ = undisturbed()
    assert np.array_equal(np.load(tmp_path / "made.npy"), np.concatenate(made))
    assert len(addresses) > 3
    assert all(address.startswith(("127.0.0.1:", "[::1]:", "[::ffff:127.0.0.1]:")) for address in addresses), addresses
    assert b"RAY_AUTH_MODE=token" in tokens


@pytest.mark.cluster
@pytest.mark.parametrize("moment", ["itself", "shard", "learning"])
@pytest.mark.parametrize(
    ("word", "reason"), [("raylet", "The raylet of this node "), ("gcs_server", "Ray's GCS server ")]
)
def test_a_server_of_rays_is_killed(word: str, reason: str, moment: str, tmp_path: Path) -> None:
    """As soon as it is there, when the process of a shard is, and while shards learn."""
    pytest.importorskip("ray", reason="needs Ray: pip install 'emphatic[ray]'")
    running = begin(tmp_path)
    if moment == "learning":
        wait_until_it_learns(running)
    elif moment == "shard":
        find_process(running.pid, "ray::Shard")
    server = find_process(running.pid, word)
    processes = set(descendants(running.pid))
    os.kill(server, signal.SIGKILL)
    killed = time.monotonic()
    _, errors = running.communicate(timeout=300)
    assert time.monotonic() - killed < 60
    assert running.returncode in (1, -signal.SIGKILL)
    last_line = errors.splitlines()[-1]
    assert errors.count("ClusterError: ") == 1, errors
    assert "emphatic.cluster.watch.ClusterError: " in last_line
    assert f"{reason}is gone" in last_line or f"{reason}at 127.0.0.1:" in last_line
    assert "CPU" not in last_line
    path = Path(last_line.rpartition("Ray's log: ")[2])
    assert path == tmp_path / "ray.log"
    assert path.stat().st_size > 100
    until = time.monotonic() + 60
    while (left := processes & {int(p.name) for p in Path("/proc").glob("[0-9]*")}) and time.monotonic() < until:
        time.sleep(0.1)
    assert not left


@pytest.mark.cluster
def test_a_shard_that_stops_while_it_starts_comes_back_or_ends_the_run(tmp_path: Path) -> None:
    pytest.importorskip("ray", reason="needs Ray: pip install 'emphatic[ray]'")
    running = begin(tmp_path)
    shard = find_process(running.pid, "ray::Shard")
    os.kill(shard, signal.SIGSTOP)
    stopped = time.monotonic()
    assert running.stdout is not None
    is_learning = running.stdout.readline().startswith("shards")
    assert time.monotonic() - stopped < 60
    _, errors = running.communicate(timeout=300)
    if is_learning:
        assert running.returncode == 0
        assert "does not answer: it is killed and started again" in errors
        return
    last_line = errors.splitlines()[-1]
    assert re.search(r"ClusterError: Shard \d has not answered for 45 s: its process is stopped", last_line), errors
    assert last_line.endswith(f"Ray's log: {tmp_path / 'ray.log'}")


@pytest.mark.cluster
@pytest.mark.filterwarnings("default")  # earlier versions of Ray leave files and processes open
def test_a_large_warm_up_is_there_when_a_shard_comes_back(tmp_path: Path) -> None:
    pytest.importorskip("ray", reason="needs Ray: pip install 'emphatic[ray]'")
    from tools.kill_shards import kill_shards

    seconds, same = kill_shards(3, 3_000, 60)  # 1.4 MB: Ray keeps 100 kB
    assert len(seconds) == 3
    assert same


@pytest.mark.cluster
@pytest.mark.filterwarnings("default")
def test_a_shard_for_which_nothing_is_left_blames_what_is_at_fault(tmp_path: Path, monkeypatch: Any) -> None:
    ray = pytest.importorskip("ray", reason="needs Ray: pip install 'emphatic[ray]'")
    from ray.cluster_utils import Cluster

    monkeypatch.setattr("emphatic.cluster.ray_shards._BACK_WITHIN", 20.0)
    cluster: Any = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    try:
        node = cluster.add_node(num_cpus=1)
        cluster.wait_for_nodes()
        learner = ClusterLearner(RULE, N, K, **SETUP, address=cluster.address, storage=tmp_path)
        assert len({place.node for place in learner.places}) == 2  # spread
        learning = learner.stream(stream(pause=0.05))
        next(learning)
        cluster.remove_node(node, allow_graceful=False)
        with pytest.raises(ClusterError, match="the nodes that are left, with 1 CPUs, have no room for it") as caught:
            list(learning)
        assert "\n" not in str(caught.value)
    finally:
        ray.shutdown()
        cluster.shutdown()
