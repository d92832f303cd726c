"""Several raylets on one machine: nodes that are killed, that join late, slow storage, GPUs that are only declared."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import emphatic
from emphatic.cluster import ClusterError, ClusterLearner
from emphatic.cluster import sweep as cluster_sweep
from emphatic.cluster.learner import _LearnerPart
from tests.cluster.support import RULE, SETUP, K, N, kill, shard_processes, stream, undisturbed

ray = pytest.importorskip("ray", reason="needs Ray: pip install 'emphatic[ray]'")
pytestmark = [pytest.mark.cluster, pytest.mark.filterwarnings("default")]


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """A head without CPUs, and two nodes of one CPU and one GPU each, which are declared and not there."""
    from ray.cluster_utils import Cluster

    nodes: Any = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
    for _ in range(2):
        nodes.add_node(num_cpus=1, num_gpus=1)
    nodes.wait_for_nodes()
    yield nodes
    ray.shutdown()
    nodes.shutdown()


def test_shards_on_cuda_get_a_gpu_each_on_nodes_of_their_own(cluster: Any, tmp_path: Path) -> None:
    setup = SETUP | {"engine": "cuda"}
    with ClusterLearner(RULE, N, K, **setup, address=cluster.address, storage=tmp_path) as learner:
        places = learner.places
        assert len({place.node for place in places}) == 2
        assert [len(place.gpus) for place in places] == [1, 1]
    with pytest.raises(ClusterError, match="3 shards"):
        ClusterLearner(RULE, N, K, **setup | {"shards": 3}, address=cluster.address, storage=tmp_path / "more")


class SlowLearner(emphatic.Learner):
    """A learner whose file takes longer than a shard may give no sign of life."""

    def save(self, path: Any, **more: Any) -> None:
        time.sleep(9.0)
        super().save(path, **more)


class SlowPart(_LearnerPart):
    def make(self, warm_up: None) -> emphatic.Learner:
        return SlowLearner(self.rule, self.n, self.K, **self.kind)


def test_storage_that_answers_slowly(cluster: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("emphatic.cluster.learner._LearnerPart", SlowPart)
    monkeypatch.setattr("emphatic.cluster.ray_shards._TURN", 1.0)
    monkeypatch.setattr("emphatic.cluster.ray_shards._SILENT", 5.0)
    made, _ = undisturbed(4)
    setup: dict[str, Any] = SETUP | {"storage": tmp_path, "checkpoint_every": "1h"}
    with ClusterLearner(RULE, N, K, **setup, address=cluster.address) as learner:
        began = time.monotonic()
        got = list(learner.stream(stream(0, 4)))
        assert time.monotonic() - began > 9.0
        assert learner.status.restarts == 0  # nobody was taken for dead
        assert np.array_equal(np.concatenate(got), np.concatenate(made))


def test_a_sweep_on_the_cluster_with_a_shard_killed(cluster: Any, tmp_path: Path) -> None:
    grid = {"rule": ["td", "true_online_etd"], "alpha": np.geomspace(1e-4, 1e-2, 100).tolist(), "lambda": [0, 0.9]}
    options: dict[str, Any] = {"runs": 3, "steps": 20_000, "every": 100}
    expected = emphatic.studies.sweep("chain", grid, **options)
    killed: list[bool] = []

    def progress(done: int, total: int) -> None:
        if done and not killed:
            killed.append(kill(shard_processes()[0]))

    result = cluster_sweep("chain", grid, **options, address=cluster.address, out=tmp_path, progress=progress)
    assert killed == [True]
    for name in ("mean", "final", "curve", "diverged"):
        np.testing.assert_array_equal(getattr(result, name), getattr(expected, name))
    assert (tmp_path / "report.html").exists()


def test_nodes_are_killed_and_others_join_late() -> None:
    from tools.kill_nodes import kill_nodes

    seconds, same = kill_nodes(1, late=5.0)
    assert len(seconds) == 1
    assert seconds[0] < 60
    assert same
