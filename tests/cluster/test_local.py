"""The same shards in one process: cuts, blocks, gaps, states, refusals and interruptions."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

import emphatic
from emphatic import GVF, Active, Rule
from emphatic import features as f
from emphatic.cluster import local
from emphatic.cluster.driver import Manifest
from emphatic.cluster.learner import cut
from emphatic.errors import CheckpointError
from emphatic.stepsizes import Auto, Autostep
from emphatic.tables import open_table
from tests.cluster.support import BLOCKS, RULE, SETUP, STEPS, K, N, stream, undisturbed


def blocks_of(count: int) -> list[Any]:
    return list(stream(0, count))


def collect(stream: Any, got: list[Any]) -> None:
    """Append one by one what a stream gives, until it fails."""
    for one in stream:
        got.append(one)


def log(rows: int = 900) -> dict[str, Any]:
    t = np.arange(rows)
    return {"a": np.sin(t / 9.0), "b": np.cos(t / 17.0), "mode": np.where(t % 50 < 25, "red", "blue")}


def questions() -> list[GVF]:
    return [GVF(name, horizon=h) for name in "ab" for h in (2, 9, 30, 100)]


def features() -> f.Features:
    """Six in all, for which other tests too compile a kernel."""
    return f.Features([f.Bias(), f.SoftBins("a", bins=2), f.SoftBins("b", bins=3)])


# ---------------------------------------------------------------------- cuts


def test_cuts_are_at_multiples_of_the_grain_where_there_is_room() -> None:
    parts = cut(1024, 3, 1016, (127, 256))
    assert [part.start for part in parts] == [0, 256, 768]
    assert parts.exact
    assert not cut(1024, 3, 1000, (127, 256)).exact  # blocks off the grain
    small = cut(100, 8, 1016, (127, 256))
    assert not small.exact
    assert [part.stop - part.start for part in small] == [13, 12, 13, 12, 13, 12, 13, 12]
    assert not cut(1024, 2, 1016, (1, 0)).exact  # the engine knows no cut
    with pytest.raises(ValueError, match="at most what there is to cut, 2"):
        cut(2, 3, 1016, (1, 1))


@pytest.mark.parametrize("shards", [1, 2, 3, 4])
def test_dense_shards_learn_the_bits_of_one_learner(shards: int) -> None:
    whole = emphatic.Learner(RULE, N, K, engine="dense")
    made = []
    for block in blocks_of(8):
        if block is None:
            whole.cut()
        else:
            made.append(whole.run(**block, on_divergence="freeze"))
    with local(RULE, N, K, shards=shards, engine="dense", block=STEPS) as learner:
        got = list(learner.stream(stream(0, 8)))
        assert learner.exact
        assert np.array_equal(np.concatenate(got), np.concatenate(made))
        assert np.array_equal(learner.theta, whole.theta)
        assert np.array_equal(learner.gather().e, whole.e)
        assert learner.position == 8 * STEPS


def test_run_is_learner_run() -> None:
    rng = np.random.default_rng(0)
    T = 150
    Phi, R, rho = rng.normal(size=(T + 1, N)), rng.normal(size=(T, K)), rng.uniform(0, 2, T)
    given: dict[str, Any] = {"alpha": 0.001, "lambda_": np.linspace(0, 1, K), "rho": rho}
    whole = emphatic.Learner(RULE, N, K, engine="dense")
    expected = whole.run(Phi, R, 0.9, **given)
    with local(RULE, N, K, shards=2, engine="dense", block=40) as learner:
        assert np.array_equal(learner.run(Phi, R, 0.9, **given), expected)
        assert learner.run(Phi[:1], R[:0], 0.9, alpha=0.1).shape == (0, K)
        apart = whole.run(Phi[:-1], R, 0.9, Phi_next=Phi[1:], **given)
        assert np.array_equal(learner.run(Phi[:-1], R, 0.9, Phi_next=Phi[1:], **given), apart)
        assert learner.run(Phi, R, 0.9, predictions=None, **given) is None
        whole.run(Phi, R, 0.9, **given)
        whole.cut()
        learner.cut()
        assert np.array_equal(learner.gather().e, whole.e)


def test_sparse_features() -> None:
    rng = np.random.default_rng(0)
    Phi = Active(rng.permuted(np.tile(np.arange(N), (101, 1)), axis=1)[:, :3])
    R = rng.normal(size=(100, K))
    expected = emphatic.Learner(RULE, N, K, engine="sparse").run(Phi, R, 0.9, alpha=0.1, lambda_=0.8)
    with local(RULE, N, K, shards=2, engine="sparse", block=30) as learner:
        got = learner.run(Phi, R, 0.9, alpha=0.1, lambda_=0.8)
        assert not learner.exact
    assert np.allclose(got, expected, rtol=0, atol=1e-10)


def test_chunked_shards_learn_the_bits_of_one_learner_at_its_grain() -> None:
    rng = np.random.default_rng(0)
    K, T = 512, 300
    Phi, R = rng.normal(size=(T + 1, N)) / 5, rng.normal(size=(T, K))
    given: dict[str, Any] = {"alpha": np.linspace(0.001, 0.05, K)[None], "lambda_": 0.8, "rho": rng.uniform(0, 2, T)}
    whole = emphatic.Learner(RULE, N, K, engine="chunked")
    expected = whole.run(Phi, R, 0.9, **given)
    with local(RULE, N, K, shards=2, engine="chunked", block=127) as learner:
        assert learner.exact
        assert np.array_equal(learner.run(Phi, R, 0.9, **given), expected)
        assert np.array_equal(learner.theta, whole.theta)


def own_rule(step: Any, memory: Any, x: Any, x_next: Any, g: Any) -> Any:
    alpha, I, lambda_, rho, gamma_next, delta = step
    return ((1.0,),), ((0.5 * alpha * rho * delta, 0.0),), ()


@pytest.mark.plain
@pytest.mark.parametrize("name", ["halved", "td"])
def test_a_rule_of_ones_own(name: str, tmp_path: Path) -> None:
    own, blocks = Rule(name, own_rule, weights=("theta",), traces=(), memory=()), blocks_of(4)
    whole = emphatic.Learner(own, N, K, engine="dense")
    expected = [whole.run(**block, on_divergence="freeze") for block in blocks if block is not None]
    got: list[Any] = []
    for some in (blocks[:2], blocks[2:]):
        with local(own, N, K, **SETUP, storage=tmp_path) as learner:
            got += learner.stream(some)
            assert np.array_equal(learner.gather().theta, learner.theta)
    assert np.array_equal(np.concatenate(got), np.concatenate(expected))
    with local(questions(), features(), own, engine="dense", shards=2) as horde:
        assert horde.run(log(50)).shape == (50, 8)
        assert horde.gather().rule == name


@pytest.mark.plain
@pytest.mark.parametrize("method", ["auto", "autostep"])
def test_a_step_size_is_cut_with_the_learners(method: str, tmp_path: Path) -> None:
    few = 8  # learners: kernels run as plain Python
    rates = np.linspace(0.01, 0.1, few)
    stepsize = Auto(rate=rates) if method == "auto" else Autostep(alpha=rates)
    blocks = [
        {name: p[..., :few] if p.shape[-1] == K else p for name, p in (block or {}).items() if name != "alpha"}
        for block in blocks_of(3)
    ]
    whole = emphatic.Learner("td", N, few, engine="dense", stepsize=stepsize)
    with local("td", N, few, **SETUP, stepsize=stepsize) as learner:
        assert learner.gather().stepsize == whole.stepsize
    expected = [whole.run(**block, on_divergence="freeze") for block in blocks]
    got: list[Any] = []
    for some in (blocks[:1], blocks[1:]):
        with local("td", N, few, **SETUP, stepsize=stepsize, storage=tmp_path) as learner:
            got += learner.stream(some)
            gathered = learner.gather()
    assert gathered.stepsize == whole.stepsize
    assert np.array_equal(np.concatenate(got), np.concatenate(expected))
    with pytest.raises(ValueError, match="a different stepsize"):
        local("td", N, few, **SETUP, storage=tmp_path)
    with pytest.raises(ValueError, match="'stepsize' parameter of ClusterLearner must have numbers, or one for each"):
        local("td", N, few + 1, **SETUP, stepsize=stepsize)
    with pytest.raises(ValueError, match="'stepsize' parameter must be one of"):
        local("td", N, few, **SETUP, stepsize="autosteps")


def test_frozen_learners_do_not_stop_the_stream() -> None:
    rng = np.random.default_rng(0)
    Phi, R = rng.normal(size=(401, N)), rng.normal(size=(400, K))
    alpha = np.full((1, K), 0.001)
    alpha[0, :16] = 1e30  # the whole of the first shard
    whole = emphatic.Learner(RULE, N, K, engine="dense")
    expected = whole.run(Phi, R, 0.9, alpha=alpha, lambda_=0.9, on_divergence="freeze")
    with local(RULE, N, K, shards=2, engine="dense", block=100) as learner:
        got = learner.run(Phi, R, 0.9, alpha=alpha, lambda_=0.9)
        assert np.array_equal(learner.frozen, np.arange(K) < 16)
        assert learner.position == whole.position == 400
        assert learner.gather().position == 400
    assert np.array_equal(got[:, 16:], expected[:, 16:])


def test_one_stream_at_a_time() -> None:
    with local(RULE, N, K, **SETUP) as learner:
        running = learner.stream(stream())
        next(running)
        with pytest.raises(RuntimeError, match="another stream"):
            learner.cut()
        running.close()
        learner.cut()


def test_parameters_that_would_be_ambiguous_are_refused() -> None:
    with local(RULE, N, K, shards=2, engine="dense", block=100) as learner:
        with pytest.raises(ValueError, match=r"'alpha' parameter of run must be \(T, 1\) or \(1, K\)"):
            learner.run(np.ones((K + 1, N)), 0.0, 0.9, alpha=np.full(K, 0.1))
        with pytest.raises(ValueError, match="'R' parameter of run must be a number"):
            learner.run(np.ones((11, N)), np.zeros(7), 0.9, alpha=0.1)
        # (a shard has as many learners as this block has steps)
        learner.run(np.ones((K // 2 + 1, N)), 0.0, 0.9, alpha=np.full(K, 0.001))
        assert learner.position == K // 2


# ---------------------------------------------------------------------- what is refused, and who stops


def test_a_block_that_is_refused_changes_nothing() -> None:
    bad = dict(stream(0, 1).__next__() or {})
    bad["R"] = np.full((STEPS, K), np.nan)
    good = blocks_of(9)
    made, theta = undisturbed(9)
    with local(RULE, N, K, **SETUP, checkpoint_every=0.0) as learner:
        got: list[Any] = []
        with pytest.raises(ValueError, match="'R' parameter"):
            collect(learner.stream([*good[:6], bad, *good[6:]]), got)
        assert learner.position == 5 * STEPS  # one of the six is a gap
        got += learner.stream(good[6:])
        assert np.array_equal(np.concatenate(got), np.concatenate(made))
        assert np.array_equal(learner.theta, theta)


def test_an_input_that_fails_ends_the_stream_before_it() -> None:
    def blocks() -> Any:
        yield from blocks_of(3)
        raise KeyError("lost")

    with local(RULE, N, K, **SETUP) as learner, pytest.raises(KeyError):
        list(learner.stream(blocks()))


@pytest.mark.parametrize("predictions", ["driver", "shard", None])
def test_a_caller_who_stops_early_goes_on_from_there(predictions: Any, tmp_path: Path) -> None:
    made, theta = undisturbed()
    with local(RULE, N, K, **SETUP, checkpoint_every=0.0, storage=tmp_path) as learner:
        got = []
        for one in learner.stream(stream(), predictions=predictions):
            got.append(one)
            if len(got) == 12:
                break
        if predictions == "driver":
            assert learner.position == 12 * STEPS
        got += learner.stream(stream, predictions=predictions)
        assert np.array_equal(learner.theta, theta)
        assert learner.status.manifest == learner.status.block
        if predictions == "driver":
            assert np.array_equal(np.concatenate(got), np.concatenate(made))
        if predictions == "shard":
            parts = [pq.read_table(tmp_path / f"predictions-0000{i}.parquet") for i in (0, 1)]
            assert parts[0].column("row").to_pylist() == list(range(BLOCKS * STEPS))
            kept = [np.stack(part.column(1).to_numpy(zero_copy_only=False)) for part in parts]
            assert np.array_equal(np.concatenate(kept, axis=1), np.concatenate(made))


def test_ctrl_c_saves() -> None:
    made, theta = undisturbed()

    def interrupted() -> Any:
        for number, block in enumerate(stream()):
            if number == 20:
                raise KeyboardInterrupt
            yield block

    folder: Any = None
    with pytest.MonkeyPatch.context() as patch:
        learner = local(RULE, N, K, **SETUP)
        folder = learner._temporary
        patch.setattr(learner, "_temporary", None)
        got: list[Any] = []
        with pytest.raises(KeyboardInterrupt):
            collect(learner.stream(interrupted()), got)
        with pytest.raises(RuntimeError, match="closed"):
            _ = learner.theta
        again = local(RULE, N, K, **SETUP, storage=folder.name)
        assert again.position == len(got) * STEPS > 0
        got += again.stream(stream)
        assert np.array_equal(np.concatenate(got), np.concatenate(made))
        assert np.array_equal(again.theta, theta)
    folder.cleanup()


# ---------------------------------------------------------------------- what is saved


def test_a_new_driver_goes_on_from_the_manifest(tmp_path: Path) -> None:
    made, theta = undisturbed()
    first = local(RULE, N, K, **SETUP, checkpoint_every=0.0, storage=tmp_path)
    got: dict[int, Any] = {}
    rows = 0

    def on_checkpoint(rows: int) -> dict[str, Any]:
        return {"kept": rows}

    running = first.stream(stream(), on_checkpoint=on_checkpoint)
    for one, _ in zip(running, range(17), strict=False):
        got[rows] = one
        rows += STEPS
    with pytest.raises(ValueError, match=rf"another run, process {os.getpid()}, is writing here") as caught:
        local(RULE, N, K, **SETUP, storage=tmp_path, resume=True)
    assert "\n" not in str(caught.value)
    # The driver is gone, and its lock with it: nothing more is done, and files past the manifest are left.
    first._held.close()
    manifest = Manifest.read(tmp_path)
    assert manifest is not None
    assert manifest.block > 0
    assert len(list((tmp_path / "shard-00000").glob("*.safetensors"))) <= 2
    again = local(RULE, N, K, **SETUP, storage=tmp_path, resume=True)
    assert again.more == {"kept": again.position}
    rows = again.position
    for one in again.stream(stream):
        got[rows] = one
        rows += STEPS
    assert np.array_equal(np.concatenate([got[row] for row in sorted(got)]), np.concatenate(made))
    assert np.array_equal(again.theta, theta)
    old = {path.stem for path in tmp_path.glob("shard-*/*.safetensors") if again._session not in path.stem}
    assert old <= {f"{manifest.block:012d}-{manifest.session}"}  # nothing that the first driver left past its manifest
    running.close()


def test_another_set_up_is_refused(tmp_path: Path) -> None:
    with local(RULE, N, K, **SETUP, storage=tmp_path) as learner:
        list(learner.stream(stream(0, 2)))
    with pytest.raises(ValueError, match="a different K, cuts"):
        local(RULE, N, K + 8, **SETUP, storage=tmp_path)
    with pytest.raises(ValueError, match="holds a run of 120 rows: resume it"):
        local(RULE, N, K, **SETUP, storage=tmp_path, resume=False)
    with pytest.raises(ValueError, match="no run to resume"):
        local(RULE, N, K, **SETUP, storage=tmp_path / "other", resume=True)
    with local(RULE, N, K, **SETUP, storage=tmp_path) as learner:
        assert learner.position == 2 * STEPS


@pytest.mark.parametrize("text", ["", "{}", '{"format": 2}', '{"format": 1, "block": -1}', "[1]"])
def test_a_damaged_manifest_is_refused(text: str, tmp_path: Path) -> None:
    (tmp_path / "manifest.json").write_text(text)
    with pytest.raises(CheckpointError, match=r"manifest\.json"):
        local(RULE, N, K, **SETUP, storage=tmp_path)


def test_a_state_that_is_gone_is_named(tmp_path: Path) -> None:
    with local(RULE, N, K, **SETUP, storage=tmp_path) as learner:
        list(learner.stream(stream(0, 2)))
    for path in (tmp_path / "shard-00001").glob("*.safetensors"):
        path.unlink()
    with local(RULE, N, K, **SETUP, storage=tmp_path) as learner, pytest.raises(OSError, match="shard-00001"):
        list(learner.stream(stream(0, 1)))


def test_arguments() -> None:
    with pytest.raises(ValueError, match="'shards' parameter"):
        local(RULE, N, K, shards=0)
    with pytest.raises(ValueError, match="'checkpoint_every' parameter"):
        local(RULE, N, K, shards=1, checkpoint_every=-1.0)
    with pytest.raises(ValueError, match="not a duration"):
        local(RULE, N, K, shards=1, checkpoint_every="soon")
    with pytest.raises(ValueError, match="'storage' parameter of a cluster must be a folder"):
        emphatic.cluster.ClusterLearner(RULE, N, K, shards=1)
    with pytest.raises(ValueError, match="true_online_etd"):
        local("true_online_edt", N, K, shards=1)
    with local(RULE, N, K, shards=1) as learner, pytest.raises(ValueError, match="'predictions' parameter"):
        list(learner.stream([], predictions="all"))  # type: ignore[arg-type]


# ---------------------------------------------------------------------- hordes


@pytest.mark.parametrize("engine", ["dense", "sparse"])
def test_a_horde_in_shards_answers_as_one(engine: str) -> None:
    table = log()
    whole = emphatic.Horde(questions(), features(), engine=engine).warm_up(table)
    expected = np.concatenate(
        [whole.observe_many({c: v[b : b + 200] for c, v in table.items()}) for b in range(0, 900, 200)]
    )
    with local(questions(), features(), shards=2, engine=engine, block=200) as horde:
        got = horde.run(table)
        assert got is not None
        assert np.allclose(got, expected, rtol=0, atol=1e-10)
        if engine == "dense":
            assert np.array_equal(got, expected)
        gathered = horde.gather()
        assert gathered.rows == 900
        more = {c: v[:50] for c, v in table.items()}
        assert np.allclose(gathered.observe_many(more), whole.observe_many(more), rtol=0, atol=1e-10)
        assert gathered.names == whole.names == horde.names


def test_a_horde_resumes_and_takes_blocks_of_any_kind(tmp_path: Path) -> None:
    table = log()
    setup: dict[str, Any] = {"shards": 3, "engine": "dense", "storage": tmp_path, "block": 100}
    with local(questions(), features(), shards=3, engine="dense", block=100) as horde:
        expected = horde.run(table)
        assert expected is not None
    with local(questions(), features(), **setup) as horde:
        horde.warm_up(table)
        numbers = np.stack([table["a"], table["b"]], axis=1)
        got = list(horde.stream([{c: v[:100] for c, v in table.items()}, numbers[100:200]]))
    with local(questions(), features(), **setup) as horde:
        assert horde.is_warm
        assert horde.position == 200
        got += horde.stream(lambda row: (numbers[b : b + 100] for b in range(row, 900, 100)), predictions="driver")
        with pytest.raises(RuntimeError, match="warmed up only once"):
            horde.warm_up(table)
    assert np.array_equal(np.concatenate([one for one in got if one is not None]), expected)
    with pytest.raises(ValueError, match="a different engine"):
        local(questions(), features(), **(setup | {"engine": "sparse"}))
    with pytest.raises(ValueError, match=r"a different .*kind"):
        local(RULE, N, K, **setup)
    with pytest.raises(ValueError, match="a different features, questions"):
        local(questions()[::-1], features(), **setup)


def test_functions_are_refused_where_every_shard_is_saved(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="function"):
        local([GVF(lambda row: row["a"], gamma=0.9, name="f")], features(), shards=1)
    with pytest.raises(ValueError, match="function"):
        local(questions(), features(), shards=1, mu=lambda observation, action: 0.5)
    assert not list(tmp_path.iterdir())


def test_gaps_and_times_of_a_table(tmp_path: Path) -> None:
    t = np.arange(900.0)
    t[400:] += 1000
    table = {"time": t.astype("int64"), "a": log()["a"], "b": log()["b"]}
    opened = emphatic.tables.open_table(table, time="time")
    whole = emphatic.Horde(questions(), features(), engine="dense")
    whole.warm_up(opened)
    with local(questions(), features(), shards=2, engine="dense", block=4096) as horde:
        assert np.array_equal(horde.run(opened), whole.run(opened))


def test_features_of_their_own_and_step_sizes_are_gathered_too() -> None:
    def makers() -> dict[str, f.Features]:
        of_a = f.Features([f.Bias(), f.SoftBins("a", bins=4), f.SoftBins("b", bins=2)])
        of_b = f.Features([f.Bias(), f.SoftBins("b", bins=6), f.SoftBins("a", bins=2)])
        return {question.name: of_a if q % 2 else of_b for q, question in enumerate(questions())}

    table, more = log(), {c: v[:50] for c, v in log().items()}
    cases: Any = ((makers, {}), (features, {"stepsize": "autostep"}))
    for features_, options in cases:
        whole = emphatic.Horde(questions(), features_(), engine="sparse", **options).warm_up(table)
        parts = [{c: v[b : b + 300] for c, v in table.items()} for b in (0, 300, 600)]
        expected = np.concatenate([whole.observe_many(part) for part in parts])
        with local(questions(), features_(), shards=3, engine="sparse", block=300, **options) as horde:
            assert np.allclose(horde.run(table), expected, rtol=0, atol=1e-9)
            gathered = horde.gather()
        assert len(gathered.makers) == len(whole.makers)
        assert np.allclose(gathered.observe_many(more), whole.observe_many(more), rtol=0, atol=1e-9)


# ---------------------------------------------------------------------- dropped rows


@pytest.mark.parametrize("block", [1016, 64])
def test_nothing_is_learned_across_dropped_rows(block: int, tmp_path: Path) -> None:
    """Malformed lines are dropped, and the row after each does not follow the row before, as in a ``Horde``."""
    values = np.cumsum(np.random.default_rng(0).normal(size=1500))
    lines = [f"{value:.6f},{i % 7}" for i, value in enumerate(values)]
    for i in range(200, 1500, 200):
        lines[i] = "1,2,3"  # a field too many
    path = tmp_path / "log.csv"
    path.write_text("a,b\n" + "\n".join(lines) + "\n")
    alone = emphatic.Horde(questions(), features(), engine="sparse").run(open_table(path))
    with local(questions(), features(), shards=1, engine="sparse", block=block) as horde:
        together = horde.run(open_table(path))
    assert len(together) == 1500 - 7
    np.testing.assert_array_equal(together, alone)
    clean = tmp_path / "clean.csv"
    clean.write_text("a,b\n" + "\n".join(line for line in lines if line.count(",") == 1) + "\n")
    across = emphatic.Horde(questions(), features(), engine="sparse").run(open_table(clean))
    assert np.abs(across - alone).max() > 0.0  # the gaps matter


def test_a_stream_of_blocks_and_of_columns_is_that_of_a_horde() -> None:
    """``stream`` takes blocks, columns and None for a cut, on a cluster as in this process."""
    table = open_table(log())
    blocks: list[Any] = list(table.blocks(100))
    blocks[3] = {"a": blocks[3].values[:, 0], "b": blocks[3].values[:, 1], "mode": blocks[3].labels["mode"]}
    blocks[5:5] = [None]
    alone = emphatic.Horde(questions(), features(), engine="sparse").warm_up(log())
    expected = list(alone.stream(blocks))
    with local(questions(), features(), shards=1, engine="sparse") as horde:
        horde.warm_up(log())
        answers = list(horde.stream(blocks))
    assert len(answers) == len(expected) == 9
    np.testing.assert_array_equal(np.concatenate(answers), np.concatenate(expected))
