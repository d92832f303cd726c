"""``--threads``: a second thread answers, writes and reads ahead, and no bit depends on it."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file
from typer.testing import CliRunner

import emphatic
from emphatic.cli import app
from emphatic.common.locks import Follower, count_cores, count_threads
from emphatic.common.parts import PartStore
from emphatic.engines.compiled import _pools
from emphatic.hordes.horde import BLOCK
from emphatic.hordes.ridges import Ridges
from emphatic.nexting import learning

ROWS = 2 * BLOCK + 300


def log() -> dict[str, Any]:
    rng, t = np.random.default_rng(0), np.arange(ROWS)
    wave = np.sin(t / 30) + 0.1 * rng.normal(size=ROWS)
    wave[rng.random(ROWS) < 0.01] = np.nan
    when = np.datetime64("2024-03-01", "us") + (t + 900 * (t > 5000)) * np.timedelta64(60, "s")
    return {"time": when, "wave": wave, "walk": np.cumsum(rng.normal(size=ROWS)) * 0.1}


@pytest.mark.parametrize("exponential_only", [True, False])
def test_two_threads_give_the_bits_of_one(
    exponential_only: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where a run of two threads is stopped, and goes on with one."""
    names: set[str] = set()
    write = PartStore.write

    def noted(self: PartStore, *given: Any, **options: Any) -> None:
        names.add(threading.current_thread().name)
        write(self, *given, **options)

    solving: set[tuple[bool, int]] = set()
    ridges = Ridges.__call__

    def noted_ridges(self: Ridges, *given: Any) -> Any:
        pools = [pool["num_threads"] for pool in _pools().info() if pool["user_api"] == "blas"]
        solving.add((threading.current_thread() is threading.main_thread(), max(pools, default=1)))
        return ridges(self, *given)

    monkeypatch.setattr(Ridges, "__call__", noted_ridges)
    monkeypatch.setattr(PartStore, "write", noted)
    monkeypatch.setattr(learning, "WAITING", 1)  # a part a block
    few = {"features": [{"kind": "bias"}, {"kind": "soft_bins", "of": "*", "bins": 3}], "predict": ["wave"]}
    given: dict[str, Any] = {"config": few, "horizons": [2, 60], "exponential_only": exponential_only}
    monkeypatch.setattr(learning, "count_cores", lambda: 1)
    one = emphatic.nexting.run(log(), **given)
    assert names == {threading.current_thread().name}
    monkeypatch.setattr(learning, "count_cores", lambda: 2)
    names.clear()
    written_beside = emphatic.nexting.run(log(), **given)
    assert {is_main for is_main, _ in solving} == {True}
    solving.clear()
    two = emphatic.nexting.run(log(), threads=2, **given)
    assert threading.current_thread().name not in names
    # The second thread has a share of learning, unless it has all values at each horizon; and BLAS has no others.
    assert solving == {(not exponential_only, 1)}
    assert all(group._second.is_alone for group in two.model.groups)
    monkeypatch.setattr(learning, "SAVE", 0.0)

    def stop(phase: str, done: int, total: int) -> None:
        if phase == "learning" and done >= 2 * BLOCK:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        emphatic.nexting.run(log(), threads=2, out=tmp_path / "out", progress=stop, **given)
    resumed = emphatic.nexting.run(log(), out=tmp_path / "out", resume=True, **given)
    for other in (written_beside, two, resumed):
        assert other.predictions.schema == one.predictions.schema
        for name in one.predictions.column_names:  # (NaN, where there is no answer yet, is NaN)
            np.testing.assert_array_equal(other.predictions[name].to_numpy(), one.predictions[name].to_numpy(), name)
        assert other.summary == one.summary
        assert other.model.learner.theta.tobytes() == one.model.learner.theta.tobytes()


def test_a_model_is_saved_when_all_rows_are_answered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Intervals, alarms and values at each horizon are those of the last row, however late the second thread is."""
    add = learning._PartWriter._add

    def late(self: Any, *given: Any) -> None:
        time.sleep(0.3)
        add(self, *given)

    monkeypatch.setattr(learning._PartWriter, "_add", late)
    given: dict[str, Any] = {"config": {"features": [{"kind": "bias"}], "predict": ["wave"]}, "exponential_only": False}
    for threads in (1, 2):
        emphatic.nexting.run(log(), horizons=[2], threads=threads, out=tmp_path / str(threads), **given)
    one, two = (load_file(tmp_path / str(threads) / "model.safetensors") for threads in (1, 2))
    assert [array[0] for name, array in one.items() if name.endswith("headline.state")] == [ROWS]
    assert {name: array.tobytes() for name, array in two.items()} == {n: array.tobytes() for n, array in one.items()}


@pytest.mark.parametrize("threads", [1, 2])
def test_what_the_second_thread_cannot_write_ends_the_run(
    threads: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any, **options: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(learning, "count_cores", lambda: 2)
    monkeypatch.setattr(PartStore, "write", full)
    with pytest.raises(OSError, match="No space left"):
        emphatic.nexting.run(log(), horizons=[2], out=tmp_path / "out", threads=threads)
    assert not list((tmp_path / "out" / ".unfinished").glob("*.parquet"))
    assert not [thread for thread in threading.enumerate() if "follower" in thread.name]


def test_calls_are_made_in_order_and_an_error_is_raised_where_it_is_waited_for() -> None:
    made: list[int] = []
    with Follower(2) as follower:
        for i in range(20):
            follower.call(made.append, i)
        follower.wait()
        assert made == [*range(20)]
        with np.errstate(divide="raise"):
            follower.call(lambda: np.float64(1.0) / np.zeros(1))
        with pytest.raises(FloatingPointError):
            follower.wait()


def test_the_number_of_threads_is_a_count_or_auto() -> None:
    assert count_threads("auto") == count_cores()
    assert count_threads("3") == count_threads(3) == 3
    for wrong in (0, -1, "many", True, 2.0, None):
        with pytest.raises(ValueError, match=r"threads must be a whole number of 1 or more, or 'auto'\. Got"):
            emphatic.nexting.run({"x": np.arange(99.0)}, threads=wrong)  # type: ignore[arg-type]
    for flags, said in (
        (["x.csv", "--threads", "few"], "threads must be a whole number"),
        (["-", "--threads", "2"], "--threads needs a file"),
        (["x.csv", "--threads", "2", "--ray", "local"], "With --ray use --shards"),
        (["x.csv", "--threads", "2", "--by", "m"], "'by' uses one thread"),
    ):
        done = CliRunner().invoke(app, ["nexting", *flags])
        assert done.exit_code != 0
        assert said in " ".join(done.output.split())
