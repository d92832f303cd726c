"""Clusters that are given, or that are not there."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from emphatic.cluster import ClusterError, ClusterLearner
from tests.cluster.support import RULE, SETUP, K, N, stream, undisturbed

ray = pytest.importorskip("ray", reason="needs Ray: pip install 'emphatic[ray]'")
pytestmark = [pytest.mark.cluster, pytest.mark.filterwarnings("default")]


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


@pytest.fixture(scope="module")
def head() -> Iterator[str]:
    """A cluster that was started by ``ray start --head``: its address."""
    pytest.importorskip("ray")
    port = free_port()
    flags = ["--num-cpus=2", "--include-dashboard=false", "--disable-usage-stats", "--block"]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-m", "ray.scripts.scripts", "start", "--head", f"--port={port}", *flags]
    running = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment)
    address = ""
    assert running.stdout is not None
    try:
        for line in running.stdout:
            found = re.search(r"Local node IP: ([0-9.]+)", re.sub("\x1b\\[[0-9]+m", "", line))  # (colours)
            address = f"{found[1]}:{port}" if found else address
            if "Ray runtime started" in line:
                break
        assert address
        yield address
    finally:
        running.terminate()
        running.wait(30)
        running.stdout.close()


def expect_one_line(error: BaseException, began: float) -> None:
    assert "\n" not in str(error)
    assert time.monotonic() - began < 10


def test_a_given_cluster_is_used_and_goes_on(head: str, tmp_path: Path) -> None:
    made, theta = undisturbed(6)
    for folder in ("a", "b"):  # twice: the first time leaves it running, and its CPUs free
        with ClusterLearner(RULE, N, K, **SETUP, address=head, storage=tmp_path / folder) as learner:
            names = [actor["name"] for actor in ray.util.list_named_actors(all_namespaces=True)]
            session = json.loads((tmp_path / folder / "manifest.json").read_text())["session"]
            assert sorted(names) == [f"emphatic-{session}-shard-{i}" for i in (0, 1)]
            assert np.array_equal(np.concatenate(list(learner.stream(stream(0, 6)))), np.concatenate(made))
            assert np.array_equal(learner.theta, theta)
        assert not ray.is_initialized()
    ray.init(address=head, log_to_driver=False)
    assert ray.util.list_named_actors(all_namespaces=True) == []
    ray.shutdown()


def test_too_few_cpus(head: str, tmp_path: Path) -> None:
    began = time.monotonic()
    with pytest.raises(
        ClusterError, match="3 shards with 1 thread each need 3 CPUs: the cluster's nodes have 2"
    ) as caught:
        ClusterLearner(RULE, N, K, engine="dense", shards=3, address=head, storage=tmp_path)
    expect_one_line(caught.value, began)
    assert not list(tmp_path.iterdir())
    assert not ray.is_initialized()


def test_storage_that_a_shard_cannot_see(head: str, tmp_path: Path) -> None:
    descriptor = os.open(tmp_path, os.O_RDONLY)
    try:  # a path that is another one in every process
        with pytest.raises(ClusterError, match=r"shards 0, 1 cannot see this folder") as caught:
            ClusterLearner(RULE, N, K, **SETUP, address=head, storage=f"/proc/self/fd/{descriptor}")
    finally:
        os.close(descriptor)
    assert "\n" not in str(caught.value)


def alter(head: str, key: str, version: str) -> str:
    """Let the cluster say that it was started with this version; the one that it said before."""
    script = (
        "import json, sys\n"
        "from ray._raylet import GcsClient\n"  # which does not compare versions
        "head, key, version = sys.argv[1:]\n"
        "client, name, space = GcsClient(address=head), b'CLUSTER_METADATA', b'cluster'\n"
        "data = json.loads(client.internal_kv_get(name, space))\n"
        "print(data[key])\n"
        "data[key] = version\n"
        "client.internal_kv_put(name, json.dumps(data).encode(), True, space)\n"
    )
    command = [sys.executable, "-c", script, head, key, version]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.split()[-1]


@pytest.mark.parametrize(("key", "other"), [("python_version", "3.1.4"), ("ray_version", "2.0.7")])
def test_another_version(key: str, other: str, head: str, tmp_path: Path) -> None:
    before = alter(head, key, other)
    assert before == (ray.__version__ if key == "ray_version" else ".".join(map(str, sys.version_info[:3])))
    try:
        began = time.monotonic()
        with pytest.raises(ClusterError, match=re.escape(other)) as caught:
            ClusterLearner(RULE, N, K, **SETUP, address=head, storage=tmp_path)
        expect_one_line(caught.value, began)
        assert before in str(caught.value)
    finally:
        alter(head, key, before)
    assert not list(tmp_path.iterdir())


@pytest.mark.skipif(
    tuple(map(int, ray.__version__.split(".")[:2])) < (2, 60), reason="earlier versions of Ray let everyone in"
)
def test_a_cluster_that_wants_a_token(head: str, tmp_path: Path) -> None:
    connect = (
        "import sys; from emphatic.cluster import ClusterLearner as C\n"
        "C('td', 9, 9, shards=1, address=sys.argv[1], storage=sys.argv[2])"
    )
    without = {name: value for name, value in os.environ.items() if not name.startswith("RAY_AUTH")}
    environment = without | {"RAY_AUTH_MODE": "disabled", "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", connect, head, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=300)
    assert "requires a token" in done.stderr.splitlines()[-1]


_START_LOCAL = """
import os, sys
if sys.argv[2] == "before":
    import ray
from emphatic.cluster import ClusterLearner
block = {"Phi": [[1.0]] * 4, "R": [1.0] * 3, "gamma_next": 0.5, "alpha": 0.1, "lambda_": 0.5}
with ClusterLearner("td", 1, 2, shards=1, storage=sys.argv[1]) as learner:
    print(len(list(learner.stream([block]))), len(os.environ.get("RAY_AUTH_TOKEN", "")))
"""


@pytest.mark.parametrize(("imported", "digits"), [("later", 64), ("before", 0)])
def test_a_ray_of_ones_own_starts_with_a_token_whether_ray_was_imported_or_not(
    imported: str, digits: int, tmp_path: Path
) -> None:
    """Ray reads the token when it is imported: one that is set later would lock the driver out of its own cluster."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    environment = clean | {"PYTHONPATH": os.pathsep.join(sys.path), "HOME": str(tmp_path)}
    command = [sys.executable, "-c", _START_LOCAL, str(tmp_path / "run"), imported]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=300)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == f"1 {digits}"


@pytest.mark.parametrize("listening", [False, True])
def test_nothing_at_the_address(listening: bool, tmp_path: Path) -> None:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        if listening:
            one.listen()
        began = time.monotonic()
        with pytest.raises(ClusterError, match=r"No Ray answers at 127\.0\.0\.1:") as caught:
            ClusterLearner(RULE, N, K, **SETUP, address=f"127.0.0.1:{one.getsockname()[1]}", storage=tmp_path)
    expect_one_line(caught.value, began)


@pytest.mark.parametrize("address", ["somewhere", "ray://localhost:10001", "localhost:"])
def test_no_address(address: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="'address' parameter of a cluster must be host:port"):
        ClusterLearner(RULE, N, K, **SETUP, address=address, storage=tmp_path)
