"""Shards in this process: arguments, blocks, errors, checkpoints, and runs that are continued."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import emphatic
from emphatic import GVF, Rule
from emphatic import features as f
from emphatic.errors import CheckpointError
from emphatic.nexting.cluster import ClusterHorde, local
from emphatic.nexting.tables import open_table
from tests.cluster.support import BLOCK, ROWS, SETUP, blocks, features, log, makers, questions


def collect(stream: Iterator[Any], answers: list[Any]) -> None:
    """Append one by one what a stream gives, until it fails."""
    for answer in stream:
        answers.append(answer)


# ---------------------------------------------------------------------- what is learned


@pytest.mark.parametrize("engine", ["dense", "sparse"])
def test_shards_answer_as_one_horde(engine: str, tmp_path: Path) -> None:
    table, more = log(900), {name: column[:50] for name, column in log(900).items()}
    whole = emphatic.Horde(questions(), features(), engine=engine).warm_up(table)
    alone = np.concatenate(list(whole.stream(blocks(0, 900))))
    with local(questions(), features(), shards=2, engine=engine, block=BLOCK) as horde:
        together = horde.run(table)
        horde.save(tmp_path / "model.safetensors")
    np.testing.assert_allclose(together, alone, rtol=0, atol=1e-10)
    saved = emphatic.Horde.load(tmp_path / "model.safetensors")
    assert saved.rows == 900
    np.testing.assert_allclose(saved.observe_many(more), whole.observe_many(more), rtol=0, atol=1e-10)


@pytest.mark.parametrize(
    ("features_", "options"),
    [(makers, {}), (features, {"stepsize": "autostep"}), (features, {"alpha": np.linspace(0.01, 0.1, 8)})],
)
def test_features_of_their_own_and_options_of_each_question(
    features_: Callable[[], Any], options: dict[str, Any]
) -> None:
    table, more = log(900), {name: column[:50] for name, column in log(900).items()}
    whole = emphatic.Horde(questions(), features_(), engine="sparse", **options)
    alone = whole.run(table)
    with local(questions(), features_(), shards=3, engine="sparse", block=300, **options) as horde:
        np.testing.assert_allclose(horde.run(table), alone, rtol=0, atol=1e-9)
        gathered = horde.gather()
    assert len(gathered.makers) == len(whole.makers)
    np.testing.assert_allclose(gathered.observe_many(more), whole.observe_many(more), rtol=0, atol=1e-9)


def own_rule(step: Any, memory: Any, x: Any, x_next: Any, g: Any) -> Any:
    alpha, I, lambda_, rho, gamma_next, delta = step
    return ((1.0,),), ((0.5 * alpha * rho * delta, 0.0),), ()


@pytest.mark.plain
def test_a_rule_of_ones_own(tmp_path: Path) -> None:
    own = Rule("halved", own_rule, weights=("theta",), traces=(), memory=())
    alone = emphatic.Horde(questions(), features(), own, engine="dense").run(log(60))
    setup: dict[str, Any] = {"shards": 2, "engine": "dense", "storage": tmp_path}
    with local(questions(), features(), own, **setup) as horde:
        np.testing.assert_array_equal(horde.run(log(60)), alone)
    with local(questions(), features(), own, **setup) as horde:
        assert horde.position == 60
        assert horde.gather().rule == "halved"


def test_gaps_times_and_masks_of_a_table() -> None:
    """The bits are the same where each shard has as many learners as the dense engine runs side by side."""
    ask = [GVF(name, horizon=h) for name in "ab" for h in range(2, 10)]
    t = np.arange(900.0)
    t[400:] += 1000
    opened = open_table({"time": t.astype("int64"), "a": log(900)["a"], "b": log(900)["b"]}, time="time")
    first = np.random.default_rng(0).random(900) < 0.01
    alone = emphatic.Horde(ask, features(), engine="dense").run(opened, first=first)
    with local(ask, features(), shards=2, engine="dense", block=4096) as horde:
        np.testing.assert_array_equal(horde.run(opened, first=first), alone)


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


def test_a_stream_takes_blocks_columns_rows_and_cuts() -> None:
    table = open_table(log(900))
    stream: list[Any] = list(table.blocks(100))
    stream[3] = {"a": stream[3].values[:, 0], "b": stream[3].values[:, 1], "mode": stream[3].labels["mode"]}
    stream[4] = np.stack([log(900)[name][400:500] for name in "ab"], axis=1)
    stream[5:5] = [None]
    alone = emphatic.Horde(questions(), features(), engine="sparse").warm_up(log(900))
    expected = list(alone.stream(stream))
    with local(questions(), features(), shards=1, engine="sparse") as horde:
        answers = list(horde.warm_up(log(900)).stream(stream))
    assert len(answers) == len(expected) == 9
    np.testing.assert_array_equal(np.concatenate(answers), np.concatenate(expected))


# ---------------------------------------------------------------------- what goes wrong


def test_arguments(tmp_path: Path) -> None:
    cases: list[tuple[dict[str, Any], str]] = [
        ({"shards": 0}, "'shards' parameter"),
        ({"shards": 9}, "at most 8, the questions"),
        ({"shards": 1, "checkpoint_every": "soon"}, "not a duration"),
        ({"shards": 1, "rule": "true_online_edt"}, "true_online_etd"),
        ({"shards": 1, "record": True}, "'record' parameter"),
        ({"shards": 1, "rate": 0}, "'rate' parameter"),
        ({"shards": 1, "mu": lambda observation, action: 0.5}, "function"),
        ({"shards": 1, "questions": [GVF(lambda row: row["a"], gamma=0.9, name="f")]}, "function"),
    ]
    for options, message in cases:
        arguments: dict[str, Any] = {"questions": questions(), "features": features(), "storage": tmp_path / "storage"}
        with pytest.raises(ValueError, match=message):
            ClusterHorde(**arguments | options, address="in-process")
    assert not list(tmp_path.iterdir())
    with local(questions(), features(), shards=1) as horde:
        for early in (lambda: list(horde.stream(blocks())), horde.gather, horde.cut):
            with pytest.raises(RuntimeError, match="call warm_up or run first"):
                early()
    with pytest.raises(RuntimeError, match="closed"):
        horde.run(log())


def test_a_block_that_is_rejected_changes_nothing(expected: Any) -> None:
    """The label is only read by the last question, so the other shard has learned the block."""
    some = [*questions(), GVF("sqrt(a)", gamma=0.5, name="root")]
    stream = list(blocks())
    bad = {name: column.copy() for name, column in stream[5].items()}
    bad["a"] = bad["a"][:40]
    with local(some, features(), **SETUP) as horde:
        horde.warm_up(log())
        answers = list(horde.stream(stream[:5]))
        with pytest.raises(ValueError, match="columns of one length"):
            list(horde.stream([bad]))
        assert horde.position == 5 * BLOCK
        answers += horde.stream(stream[5:])
    np.testing.assert_array_equal(np.concatenate(answers)[:, :8], expected)


def test_a_shard_that_fails_alone_is_brought_back(expected: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """One shard has learned the block, the other has not: both continue as if nothing had happened."""
    advance, failures = emphatic.Horde.advance, iter([False] * 9 + [True])

    def failing(horde: emphatic.Horde, block: Any, **options: Any) -> Any:
        if next(failures, False):
            raise ValueError("out of order")
        return advance(horde, block, **options)

    monkeypatch.setattr(emphatic.Horde, "advance", failing)
    with local(questions(), features(), **SETUP, checkpoint_every="1h") as horde:
        horde.warm_up(log())
        answers: list[Any] = []
        with pytest.raises(ValueError, match="out of order"):
            collect(horde.stream(blocks()), answers)
        assert horde.position == 4 * BLOCK
        answers += horde.stream(blocks)
    np.testing.assert_array_equal(np.concatenate(answers), expected)


# ---------------------------------------------------------------------- what is continued


def failing_blocks(first: int) -> Iterator[Any]:
    yield from blocks(first, 1000)
    raise OSError(28, "No space left on device")


@pytest.mark.parametrize("every", [0.0, "1h"])
def test_a_stream_continues_from_the_storage(every: Any, expected: Any, tmp_path: Path) -> None:
    setup = SETUP | {"storage": tmp_path, "checkpoint_every": every}
    with local(questions(), features(), **setup) as horde:
        horde.warm_up(log())
        answers: list[Any] = []
        with pytest.raises(OSError, match="No space left"):
            collect(horde.stream(failing_blocks), answers)
        assert horde.position == 1000
        with pytest.raises(ValueError, match=rf"another run, process {os.getpid()}, is writing here"):
            local(questions(), features(), **setup)
    assert len(list(tmp_path.glob("checkpoint-*"))) == 1
    with local(questions(), features(), **setup) as horde:
        assert horde.position == (1000 if every == 0.0 else 0)
        answers = answers[: horde.position // BLOCK]
        answers += horde.warm_up(log(500)).stream(blocks)
        assert horde.gather().rows == ROWS
    np.testing.assert_array_equal(np.concatenate(answers), expected)


@pytest.mark.parametrize("again", ["the same horde", "another"])
def test_a_run_continues(again: str, expected: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """``run`` returns the predictions at all rows, also at those of before the interruption."""
    advance, calls = emphatic.Horde.advance, iter(range(10**9))

    def interrupted(horde: emphatic.Horde, block: Any, **options: Any) -> Any:
        if next(calls) == 31:
            raise KeyboardInterrupt
        return advance(horde, block, **options)

    monkeypatch.setattr(emphatic.Horde, "advance", interrupted)
    setup = SETUP | {"storage": tmp_path, "checkpoint_every": 0.0}
    with local(questions(), features(), **setup) as horde:
        with pytest.raises(KeyboardInterrupt):
            horde.run(log())
        assert 0 < horde.position < ROWS
        assert (tmp_path / "predictions").stat().st_size == 8 * 8 * horde.position
        if again == "the same horde":
            np.testing.assert_array_equal(horde.run(log()), expected)
    if again == "another":
        with local(questions(), features(), **setup) as horde:
            assert 0 < horde.position < ROWS
            for other in (log(ROWS + 1)["a"] + 1.0, log(BLOCK)["a"]):
                with pytest.raises(ValueError, match="unfinished run on another table"):
                    horde.run(log(len(other)) | {"a": other})
            np.testing.assert_array_equal(horde.run(log()), expected)
    assert not (tmp_path / "predictions").exists()
    with local(questions(), features(), **setup) as horde:
        assert horde.position == ROWS
        assert len(horde.run(log(500))) == 500  # another log, which follows


@pytest.mark.parametrize("options", [{}, {"stepsize": "autostep", "dtype": "float32"}])
def test_a_storage_is_loaded(options: dict[str, Any], tmp_path: Path) -> None:
    """Without its questions, features and options, which are noted there."""
    with local(questions(), makers(), **SETUP, **options) as horde:
        expected = horde.run(log())
    with local(questions(), makers(), **SETUP, **options, storage=tmp_path / "storage") as horde:
        answers = list(horde.warm_up(log()).stream(blocks(0, 1000)))
    with ClusterHorde.load(tmp_path / "storage", address="in-process") as horde:
        assert horde.position == 1000
        answers += horde.stream(blocks)
    np.testing.assert_array_equal(np.concatenate(answers), expected)
    with pytest.raises(FileNotFoundError, match="no manifest of a cluster"):
        ClusterHorde.load(tmp_path, address="in-process")


def test_another_set_up_is_rejected(tmp_path: Path) -> None:
    setup = SETUP | {"storage": tmp_path}
    with local(questions(), features(), **setup) as horde:
        horde.run(log(200))
    for options, different in (
        ({"engine": "dense"}, "engine"),
        ({"shards": 3}, "shards"),
        ({"questions": questions()[::-1]}, "features, questions"),
        ({"features": f.Features([f.Bias()])}, "features"),
        ({"stepsize": "autostep"}, "stepsize"),
    ):
        arguments: dict[str, Any] = {"questions": questions(), "features": features()} | setup | options
        with pytest.raises(ValueError, match=f"has a different {different}. Resume it with the same arguments"):
            local(**arguments)


@pytest.mark.parametrize("text", ["", "{}", '{"setup": {}, "place": 1}', "[1]"])
def test_a_damaged_manifest_is_rejected(text: str, tmp_path: Path) -> None:
    (tmp_path / "manifest.json").write_text(text)
    with pytest.raises(CheckpointError, match=r"manifest\.json"):
        local(questions(), features(), **SETUP, storage=tmp_path)


def test_a_checkpoint_that_is_gone_is_named(tmp_path: Path) -> None:
    with local(questions(), features(), **SETUP, storage=tmp_path) as horde:
        horde.run(log(200))
    next(tmp_path.glob("checkpoint-*/shard-00001.safetensors")).unlink()
    with (
        local(questions(), features(), **SETUP, storage=tmp_path) as horde,
        pytest.raises(OSError, match="shard-00001"),
    ):
        horde.run(log(200))
