"""Kills nodes of a cluster of several raylets on this machine, or cuts the link of one, while shards learn.

python -m tools.kill_nodes --kills 10
python -m tools.kill_nodes --cut 30     as root: a node in a network namespace of its own, whose link is cut
"""

from __future__ import annotations

import argparse
import os
import secrets
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from emphatic.cluster import ClusterLearner, local
from emphatic.cluster.ray_shards import import_ray

__all__ = ["cut_link", "kill_nodes"]

_N, _K, _STEPS = 20, 64, 127
_SETUP: dict[str, Any] = {"engine": "dense", "shards": 2, "block": _STEPS}
_RULE = "true_online_etd"


def _block(number: int) -> dict[str, Any]:
    before, after = (np.random.default_rng(i).normal(size=(_STEPS, _N)) / 5 for i in (number, number + 1))
    R = np.random.default_rng(number).normal(size=(_STEPS, _K))
    return {"Phi": np.vstack([before, after[:1]]), "R": R, "gamma_next": 0.9, "alpha": 0.01, "lambda_": 0.8}


def _is_same(made: list[Any]) -> bool:
    """Whether predictions are those of one process, bit for bit."""
    with local(_RULE, _N, _K, **_SETUP) as learner:
        expected = learner.stream(_block(number) for number in range(len(made)))
        return all(np.array_equal(a, b) for a, b in zip(made, expected, strict=True))


def kill_nodes(kills: int, late: float = 0.0) -> tuple[list[float], bool]:
    """Kill a node that has a shard so many times; another one joins ``late`` seconds after each.

    Args:
        kills: The number of kills.
        late: The seconds after a kill at which a node joins.

    Returns:
        The seconds from each kill to the next block that all shards have learned, and whether the predictions are those
        of one process bit for bit.
    """
    ray = import_ray(local=True)
    from ray.cluster_utils import Cluster

    cluster: Any = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
    seconds: list[float] = []
    try:
        nodes = {node.node_id: node for node in (cluster.add_node(num_cpus=1) for _ in range(2))}
        cluster.wait_for_nodes()
        with (
            tempfile.TemporaryDirectory() as storage,
            ClusterLearner(
                _RULE, _N, _K, **_SETUP, address=cluster.address, storage=storage, checkpoint_every=1.0
            ) as learner,
        ):
            made, ended, killed = [], [False], 0.0

            def blocks() -> Iterator[Any]:
                number = 0
                while not ended[0]:
                    yield _block(number)
                    number += 1
                    time.sleep(0.05)

            for predictions in learner.stream(blocks()):
                made.append(predictions)
                if killed and learner.status.restarts > len(seconds):
                    seconds.append(time.monotonic() - killed)
                    killed = 0.0
                ended[0] = len(seconds) == kills
                if not killed and not ended[0] and len(made) % 20 == 19:
                    place = learner.places[len(seconds) % 2]
                    cluster.remove_node(nodes.pop(place.node), allow_graceful=False)
                    killed = time.monotonic()
                    time.sleep(late)
                    node = cluster.add_node(num_cpus=1)
                    nodes[node.node_id] = node
        return seconds, _is_same(made)
    finally:
        ray.shutdown()
        cluster.shutdown()


@contextmanager
def _namespace() -> Iterator[tuple[str, str, str, str]]:
    """A network namespace that a link leads to: its name, the link, and the addresses of this side and of the other."""
    name, number = f"emphatic{secrets.token_hex(2)}", secrets.randbelow(200) + 20
    link, here, there = f"em{secrets.token_hex(2)}", f"10.{number}.0.1", f"10.{number}.0.2"

    def ip(*words: str) -> None:
        subprocess.run(["ip", *words], check=True)

    ip("netns", "add", name)
    try:
        ip("link", "add", link, "type", "veth", "peer", "name", "inner", "netns", name)
        ip("addr", "add", f"{here}/24", "dev", link)
        ip("link", "set", link, "up")
        for words in (
            ["addr", "add", f"{there}/24", "dev", "inner"],
            ["link", "set", "inner", "up"],
            ["link", "set", "lo", "up"],
        ):
            ip("-n", name, *words)
        yield name, link, here, there
    finally:
        subprocess.run(["ip", "netns", "delete", name])
        subprocess.run(["ip", "link", "delete", link], stderr=subprocess.DEVNULL)


def cut_link(seconds: float) -> tuple[float, int, bool]:
    """Cut the only link of a node that has a shard, for so many seconds; another node has room.

    Args:
        seconds: How long.

    Returns:
        The longest time between two blocks, the restarts, and whether the predictions are those of one process.
    """
    environment = os.environ | {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}
    os.environ |= environment
    running: list[subprocess.Popen[bytes]] = []
    start = [sys.executable, "-m", "ray.scripts.scripts", "start", "--block", "--disable-usage-stats"]
    with _namespace() as (name, link, here, there), tempfile.TemporaryDirectory() as folder:

        def begin(*words: str, inside: bool = False) -> None:
            enter = ["ip", "netns", "exec", name] if inside else []
            command = [*enter, *start, *words]
            running.append(
                subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            )

        try:
            head = ["--head", "--port=26379", f"--node-ip-address={here}", "--num-cpus=1", "--include-dashboard=false"]
            begin(*head, f"--temp-dir={folder}")
            address = f"{here}:26379"
            _wait_for_nodes(address, 1)
            begin(f"--address={address}", f"--node-ip-address={there}", "--num-cpus=1", inside=True)
            _wait_for_nodes(address, 2)
            return _learn_across(address, lambda up: _set_link(link, up), seconds)
        finally:
            for process in running:
                process.terminate()
            for process in running:
                process.wait(30)


def _set_link(link: str, up: bool) -> None:
    subprocess.run(["ip", "link", "set", link, "up" if up else "down"], check=True)


def _wait_for_nodes(address: str, count: int) -> None:
    script = (
        "import ray, sys, time\n"
        "ray.init(address=sys.argv[1], log_to_driver=False)\n"
        "while sum(n['Alive'] for n in ray.nodes()) < int(sys.argv[2]): time.sleep(.2)\n"
    )
    for _ in range(30):
        done = subprocess.run([sys.executable, "-c", script, address, str(count)], capture_output=True, timeout=120)
        if done.returncode == 0:
            return
        time.sleep(1.0)
    raise RuntimeError(f"There are no {count} nodes at {address}: {done.stderr.decode()[-500:]}")


def _learn_across(address: str, set_link: Callable[[bool], None], seconds: float) -> tuple[float, int, bool]:
    with (
        tempfile.TemporaryDirectory() as storage,
        ClusterLearner(_RULE, _N, _K, **_SETUP, address=address, storage=storage, checkpoint_every=1.0) as learner,
    ):
        made, longest, cut_at, before = [], 0.0, 0.0, time.monotonic()

        def blocks() -> Iterator[Any]:
            number = 0
            while number < 60 or (cut_at and time.monotonic() - cut_at < seconds + 20):
                yield _block(number)
                number += 1
                time.sleep(0.05)

        for predictions in learner.stream(blocks()):
            made.append(predictions)
            longest, before = max(longest, time.monotonic() - before), time.monotonic()
            if len(made) == 20:
                set_link(False)
                cut_at = time.monotonic()
                threading.Timer(seconds, set_link, [True]).start()
        return longest, learner.status.restarts, _is_same(made)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=0)
    parser.add_argument("--late", type=float, default=0.0)
    parser.add_argument("--cut", type=float, default=0.0)
    given = parser.parse_args()
    words = {True: "the same bits", False: "OTHER BITS"}
    if given.kills:
        took, same = kill_nodes(given.kills, given.late)
        times = f"on after {np.median(took):.0f} s (median), {max(took):.0f} s (longest)"
        print(f"{len(took)} nodes killed: {times}; {words[same]}.")
    if given.cut:
        longest, restarts, same = cut_link(given.cut)
        print(f"A link cut for {given.cut:.0f} s: on after {longest:.0f} s, {restarts} restarts; {words[same]}.")
