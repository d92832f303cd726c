"""Checkpoints: the same bits after a resume, whole files whatever happens, and a clear error for every other file."""

from __future__ import annotations

import json
import math
import os
import pickle
import random
import resource
import signal
import stat
import struct
import subprocess
import sys
import time
import tracemalloc
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from safetensors import safe_open
from safetensors.numpy import load_file, save

import emphatic
from emphatic import Active, CheckpointError, Learner, Rule
from emphatic.learning import checkpoint, tensors
from emphatic.rules import Scalars, Update
from tests.support.contract import STRUCTURES
from tests.support.looping import for_each
from tests.support.processes import Forked
from tests.support.rules import EVERY, find
from tests.support.streams import TOLERANCE, Stream, make, relative_error, state

ENGINES = emphatic.engines.available()
Arrays = dict[str, npt.NDArray[Any]]

T, n = 61, 13
every_engine = pytest.mark.parametrize("engine", ENGINES)
every_K = pytest.mark.parametrize("K", [None, 1, 3])


def stream_for(rule: str, K: int | None) -> Stream:
    return make(17, T, n, K, rule=rule, active=3, binary=False)


def header_of(path: Path) -> dict[str, Any]:
    with safe_open(path, framework="numpy") as file:
        header: dict[str, Any] = json.loads(file.metadata()["emphatic"])
    return header


# ------------------------------------------------------------------------------------------------ resume


@for_each(engine=ENGINES, K=[None, 1, 3])
@pytest.mark.parametrize(
    ("rule", "dtype"),
    [(rule, "float64") for rule in EVERY] + [(rule, "float32") for rule in STRUCTURES],
)
def test_going_on_from_a_file_is_going_on(tmp_path: Path, rule: str, engine: str, dtype: str, K: int | None) -> None:
    """In mid-stream, with lazy state pending: the same bits whether saved, loaded, both or neither."""
    stream = stream_for(rule, K)
    path = tmp_path / "model.safetensors"
    saved, plain = (Learner(find(rule), n, K, dtype=dtype, engine=engine) for _ in range(2))
    by_step = rule == "true_online_etd"  # compiling it for every rule would take most of the time
    for learner in (saved, plain):
        learner.theta = np.random.default_rng(1).normal(size=n if K is None else (K, n))
        stream[: 39 if by_step else 44].run(learner)
        if by_step:
            stream[39:44].learn(learner)
    before = state(saved)
    saved.save(path)
    assert state(saved) == before
    loaded = emphatic.load(path)
    assert (repr(loaded), state(loaded)) == (repr(saved), before)
    for part in (stream[44:54], stream[54:55], stream[55:]):
        expected = part.run(plain)
        assert np.array_equal(part.run(saved), expected)
        assert np.array_equal(part.run(loaded), expected)
    if by_step:
        for learner in (saved, plain, loaded):
            stream[56:].learn(learner)
    assert state(saved) == state(plain) == state(loaded)
    if engine == "sparse" and saved.rule.traces:  # without traces there is nothing to be lazy about
        arrays = load_file(path)
        if K is None:
            assert arrays["sparse.table"].shape[2] > 3, "no lazy state was pending"
        elif K > 1:
            assert (arrays["sparse.take"] != 0.0).any(), "no lazy state was pending"


@every_engine
@every_K
def test_the_file_is_open_to_other_tools(tmp_path: Path, engine: str, K: int | None) -> None:
    """Plain safetensors: θ, e and the memory under their names, in the learner's shapes, and JSON in the metadata.

    sparse saves θ and e in its own form only.
    """
    learner = Learner("true_online_etd", n, K, engine=engine)
    stream_for("true_online_etd", K).run(learner)
    path = tmp_path / "model.safetensors"
    learner.save(path)
    arrays, names = load_file(path), {"gamma", "D", "F"} | (set() if engine == "sparse" else {"theta", "e"})
    for name in sorted(names):
        value = np.asarray(getattr(learner, name))
        assert arrays[name].shape == value.shape
        assert np.array_equal(arrays[name], value)
    assert {name for name in arrays if "." not in name} == names
    assert {name.split(".")[0] for name in arrays if "." in name} <= {engine}
    header = header_of(path)
    expected = {
        "format": checkpoint.FORMAT,
        "rule": "true_online_etd",
        "n": n,
        "K": K,
        "dtype": "float64",
        "engine": engine,
        "steps": T,
    }
    assert expected.items() <= header.items()
    assert b"pickle" not in path.read_bytes()


@pytest.mark.parametrize("old", ENGINES)
@pytest.mark.parametrize("new", ENGINES)
@pytest.mark.parametrize("K", [None, 3])
def test_another_engine_can_go_on(tmp_path: Path, old: str, new: str, K: int | None) -> None:
    stream = stream_for("true_online_etd", K)
    learner = Learner("true_online_etd", n, K, engine=old)
    stream[:40].run(learner)
    learner.save(tmp_path / "m")
    other = emphatic.load(tmp_path / "m", engine=new)
    assert (other.engine, other.steps) == (new, 40)
    expected, got = stream[40:].run(learner), stream[40:].run(other)
    assert relative_error(got, expected) <= TOLERANCE["float64"]
    assert relative_error(other.theta, learner.theta) <= TOLERANCE["float64"]
    assert relative_error(other.e, learner.e) <= TOLERANCE["float64"]


@pytest.mark.parametrize("active", [False, True])
@pytest.mark.parametrize("K", [None, 3])
def test_auto_that_has_not_decided(tmp_path: Path, active: bool, K: int | None) -> None:
    """It is saved as undecided, and decides by what it meets after loading; decided, it stays so."""
    stream = stream_for("true_online_etd", K)
    learner = Learner("true_online_etd", n, K, dtype="float32", threads=2)
    theta = np.arange(n, dtype=np.float32) * np.ones((K or 1, 1), np.float32)
    learner.theta = theta if K else theta[0]
    learner.save(tmp_path / "m")
    other = emphatic.load(tmp_path / "m")
    assert repr(other) == repr(learner)
    assert other.engine == "auto"
    for each in (learner, other):
        stream.run(each, active=active)
        assert each.engine == emphatic.engines.choose(n, K, stream.T, 3 if active else None)
    assert state(other) == state(learner)
    other.save(tmp_path / "m")
    assert emphatic.load(tmp_path / "m").engine == other.engine
    assert header_of(tmp_path / "m")["threads"] == 2


def own_rule(step: Scalars, memory: Scalars, x: Scalars, x_next: Scalars, g: Scalars) -> Update:
    """TD(0) with a memory of its own."""
    alpha, I, lambda_, rho, gamma_next, delta = step
    (last,) = memory
    return ((1.0, 0.0), (0.0, 0.0)), ((alpha * rho * I * delta, 0.0), (lambda_, 0.0)), (delta + 0.0 * last,)


OWN = Rule("own", own_rule, weights=("theta",), traces=("z",), memory=("last",))


@pytest.mark.parametrize("engine", ["reference", "dense"])
def test_a_rule_of_ones_own(tmp_path: Path, engine: str) -> None:
    """Its file names it, but cannot hold it: it must be given again, and be that rule."""
    stream, path = stream_for("td", None), tmp_path / "m"
    learner = Learner(OWN, n, engine=engine)
    stream[:40].run(learner)
    learner.save(path)
    for bad in (None, emphatic.rules.get("td"), Rule("own", own_rule, ("theta",), ("e",), ("last",))):
        with pytest.raises(CheckpointError, match="own"):
            emphatic.load(path, rule=bad)
    with pytest.raises(
        CheckpointError, match=r"rule 'own', which is not the library's: give that Rule again, as rule=…"
    ):
        emphatic.load(path)
    loaded = emphatic.load(path, rule=OWN)
    assert np.array_equal(stream[40:].run(loaded), stream[40:].run(learner))
    assert state(loaded) == state(learner)


@pytest.mark.parametrize(("dtype", "size"), [("float32", 1e23), ("float64", 1e278)])
def test_resume_near_the_end_of_the_range(tmp_path: Path, dtype: str, size: float) -> None:
    """The sparse engine goes by a bound on max |θ| when to leave the lazy form: the bound must be resumed too."""
    rng = np.random.default_rng(0)
    index = np.array([rng.choice(n, 3, replace=False) for _ in range(401)])
    R = rng.normal(size=400) * size
    learner = Learner("true_online_etd", n, dtype=dtype, engine="sparse")

    def go(x: Learner, a: int, b: int) -> None:
        x.run(Active(index[a : b + 1]), R[a:b], 0.9, alpha=0.1, lambda_=0.8)

    go(learner, 0, 100)
    learner.save(tmp_path / "m")
    loaded = emphatic.load(tmp_path / "m")
    go(learner, 100, 400)
    go(loaded, 100, 400)
    assert state(loaded) == state(learner)


# ------------------------------------------------------------------------------------------------ counts, and more


def different(engine: str, K: int = 3) -> Learner:
    """Learner 1 stopped at step 2 of 5."""
    learner = Learner("true_online_etd", n, K, engine=engine)
    alpha, R = np.full((5, K), 0.1), np.ones((5, K))
    alpha[2:, 1] = R[2:, 1] = 1e300
    learner.run(np.ones((6, n)), R, 0.5, alpha=alpha, on_divergence="freeze")
    return learner


@every_engine
def test_every_learner_has_its_own_count_of_steps(tmp_path: Path, engine: str) -> None:
    """The file has an array for them only where they differ."""
    learner = different(engine)
    assert learner._taken.tolist() == [5, 2, 5]
    learner.save(tmp_path / "m")
    assert load_file(tmp_path / "m")["steps_taken"].tolist() == [5, 2, 5]
    assert {"steps": 5, "position": 5}.items() <= header_of(tmp_path / "m").items()
    for other in (None, *ENGINES):
        loaded = emphatic.load(tmp_path / "m", engine=other)
        assert loaded._taken.tolist() == [5, 2, 5]
        assert (loaded.steps, loaded.position, loaded._taken.dtype) == (5, 5, np.int64)
    learner.select([1]).save(tmp_path / "m")
    assert "steps_taken" not in load_file(tmp_path / "m")
    assert {"steps": 2, "position": 5}.items() <= header_of(tmp_path / "m").items()
    loaded = emphatic.load(tmp_path / "m")
    assert (loaded.steps, loaded.position, loaded._taken.tolist()) == (2, 5, [2])


@pytest.mark.parametrize(
    "counts",
    [
        np.array([5, 2, 5], np.float64),
        np.array([5, 2, 5], np.int32),
        np.array([5, 2]),
        np.array([[5, 2, 5]]),
        np.array(5),
        np.array([5, -1, 5]),
        np.array([5, 2, 6]),
        np.array([4, 2, 3]),
        np.array([5, 2, 2**62]),
        np.zeros(0, np.int64),
    ],
    ids=str,
)
def test_tampered_counts(tmp_path: Path, counts: npt.NDArray[Any]) -> None:
    different("dense").save(tmp_path / "m")
    refuse_changed(tmp_path / "m", (tmp_path / "m").read_bytes(), lambda arrays: arrays.update(steps_taken=counts))


@pytest.mark.parametrize("position", [-1, 4, 5.0, "5", True, None, [], 2**53, 10**30])
def test_tampered_positions(tmp_path: Path, position: Any) -> None:
    different("dense").save(tmp_path / "m")
    refuse(tmp_path / "m", seal(*parts((tmp_path / "m").read_bytes()), position=position))


MORE: dict[str, Any] = {
    "note": "morning",
    "numbers": [1, 2.5, None, True, {"a": []}],
    "weights": np.arange(6.0).reshape(2, 3),
    "turned": np.arange(6, dtype=np.int32).reshape(2, 3).T,
    "swapped": np.array([1.5, -2.0], ">f4"),
    "flags": np.array([True, False]),
    "nothing": np.zeros((0, 3)),
    "number": np.array(2.5),
    "not_finite": np.array([np.nan, np.inf]),
}


@every_engine
@every_K
def test_more_is_kept_with_a_learner(tmp_path: Path, engine: str, K: int | None) -> None:
    learner, path = Learner("true_online_etd", n, K, engine=engine), tmp_path / "m"
    stream = stream_for("true_online_etd", K)
    stream[:40].run(learner)
    learner.save(path, **MORE)
    more: dict[str, Any]
    loaded, more = Learner.load_with(path)
    assert isinstance(loaded, Learner)
    assert (repr(loaded), state(loaded)) == (repr(learner), state(learner))
    assert more.keys() == MORE.keys()
    for name, value in MORE.items():
        if isinstance(value, np.ndarray):
            assert more[name].dtype == value.dtype.newbyteorder("=")
            assert np.array_equal(more[name], value, equal_nan=name == "not_finite")
        else:
            assert more[name] == value
    plain = emphatic.load(path)
    assert np.array_equal(stream[40:].run(plain), stream[40:].run(loaded))
    assert state(plain) == state(loaded)
    assert np.array_equal(load_file(path)["more.weights"], MORE["weights"])
    other, again = Learner.load_with(path, engine="reference", rule=emphatic.rules.get("true_online_etd"))
    assert (other.engine, again.keys()) == ("reference", more.keys())
    other.save(path)
    assert Learner.load_with(path)[1] == {}


def test_more_that_cannot_be_kept_is_refused(tmp_path: Path) -> None:
    """By name, and nothing is written; names that the file has already are taken."""
    learner = Learner("true_online_etd", 3, 2, engine="sparse")
    bad: list[Any] = [math.nan, [math.inf], {1, 2}, np.int64(3), object(), b"x", np.array(["a"]), np.array([1j])]
    loop: list[Any] = []
    loop.append(loop)
    for value in (*bad, loop, np.array([None]), np.ma.masked_array([1.0], [True])):
        with pytest.raises(ValueError, match="'note' parameter of save must be an array") as info:
            learner.save(tmp_path / "m", note=value)
        assert not isinstance(info.value, CheckpointError)
    for name in ("theta", "e", "F", "rule", "n", "K", "steps", "steps_taken", "position", "frozen", "format", "engine"):
        with pytest.raises(ValueError, match=f"'{name}' parameter of save must have another name"):
            learner.save(tmp_path / "m", **{name: 1})
    assert os.listdir(tmp_path) == []


def test_more_that_is_damaged(tmp_path: Path) -> None:
    """A file whose ``more`` is not sound holds a sound learner all the same."""
    path = tmp_path / "m"
    Learner("td", 3).save(path, note=1, weights=np.ones(2))
    header, body = parts(path.read_bytes())
    damaged: tuple[Any, ...] = (None, [], "x", 3, {"weights": 1})
    for more in damaged:
        path.write_bytes(seal(header, body, more=more))
        with pytest.raises(CheckpointError, match="the extra data saved with it is damaged"):
            Learner.load_with(path)
        assert emphatic.load(path).n == 3
    with pytest.raises(ValueError, match="'engine' parameter of load"):
        Learner.load_with(path, engine="nope")
    with pytest.raises(FileNotFoundError):
        Learner.load_with(tmp_path / "nowhere")


# ------------------------------------------------------------------------------------------------ streaming


@pytest.mark.parametrize("engine", ["reference", "dense", "chunked"])
@pytest.mark.parametrize(("K", "size"), [(4000, 1000), (None, 4_000_000)])
def test_no_second_copy_in_memory(tmp_path: Path, engine: str, K: int | None, size: int) -> None:
    """A large state goes to the file and back in small pieces, whether it is of many learners or of one."""
    path = tmp_path / "m"
    learner = Learner("true_online_etd", size, K, dtype="float32", engine=engine)
    learner.theta = np.linspace(-1.0, 2.0, size, dtype=np.float32)
    state_size = 2 * (K or 1) * size * 4
    tracemalloc.start()
    try:
        learner.save(path)
        _, peak = tracemalloc.get_traced_memory()
        assert peak < 0.1 * state_size
        before, _ = tracemalloc.get_traced_memory()
        tracemalloc.reset_peak()
        loaded = emphatic.load(path)
        _, peak = tracemalloc.get_traced_memory()
        assert peak - before < loaded.nbytes + 0.1 * state_size
    finally:
        tracemalloc.stop()
    assert path.stat().st_size > state_size
    assert np.array_equal(loaded.theta, learner.theta)


def test_bytes_are_those_of_the_library_of_the_format(tmp_path: Path) -> None:
    """Any layout in memory, in any blocks, gives the very bytes that safetensors itself writes for the whole array."""
    rng = np.random.default_rng(3)
    table = rng.normal(size=(700, 1000))
    packed = np.zeros((3, 5), [("a", "<f4"), ("b", "<i2")])
    packed["a"], packed["b"] = rng.normal(size=(3, 5)), np.arange(15).reshape(3, 5)
    arrays: Arrays = {
        "table": table,
        "turned": table.T,
        "some": table[::-3, 5:900:7],
        "columns": packed["a"],
        "stamps": packed["b"],
        "swapped": table[:5].astype(">f8"),
        "number": np.array(2.5),
        "none": np.zeros((0, 4), np.float32),
        "flags": np.array([True, False, True]).astype(np.uint8),
    }
    parts = {name: tensors.TensorPart.of(array) for name, array in arrays.items()}
    parts["table"] = tensors.TensorPart("float64", table.shape, (table[i : i + 300] for i in range(0, 700, 300)))
    path = tmp_path / "m"
    with open(path, "wb") as file:
        tensors.write(file, {"x": "1"}, parts)
    plain = {name: np.array(array, array.dtype.newbyteorder("="), order="C") for name, array in arrays.items()}
    assert path.read_bytes() == save(plain, metadata={"x": "1"})
    with open(path, "rb") as file:
        metadata, stored = tensors.read(file)
        assert metadata == {"x": "1"}
        assert stored.keys() == plain.keys()
        for name, array in plain.items():
            got = stored[name].array()
            assert (got.dtype, got.shape, got.tobytes()) == (array.dtype, array.shape, array.tobytes())
        with open(path, "r+b") as other:
            other.truncate(path.stat().st_size - 1)
        with pytest.raises(ValueError, match="too soon"):
            stored["flags"].array()


def test_blocks_that_do_not_make_the_array_leave_no_file(tmp_path: Path) -> None:
    for rows in (1, 3):
        part = tensors.TensorPart("float64", (2, n), (np.zeros((rows, n)),))
        with pytest.raises(ValueError, match="do not add up"):
            checkpoint.write(tmp_path / "m", {}, {"theta": part})
    assert os.listdir(tmp_path) == []


def test_a_file_replaced_while_it_is_read(tmp_path: Path) -> None:
    """What is read is all of one checkpoint."""
    path, learner = tmp_path / "m", Learner("td", n, engine="reference")
    learner.save(path)
    with checkpoint.open_checkpoint(path) as (_, arrays):
        learner.theta = np.ones(n)
        learner.save(path)
        assert not arrays["theta"].array().any()
    assert emphatic.load(path).theta.all()


# ------------------------------------------------------------------------------------------------ whole or not at all

SAVING = """
import sys, numpy as np, emphatic
path, n = sys.argv[1], int(sys.argv[2])
try:
    learner = emphatic.load(path)
except FileNotFoundError:
    learner = emphatic.Learner("td", n, 20, engine="reference")
phi = np.zeros(n)
while True:
    learner.learn(0.0, 1.0, 0.0, phi, 1.0, 0.0, phi, 0.5)
    learner.theta = np.full((20, n), float(learner.steps))
    learner.save(path)
    print(learner.steps, flush=True)
"""


def test_kill_9(tmp_path: Path) -> None:
    """A process that does nothing but save is killed at any moment, again and again: what is there is always whole.

    Each writes θ = steps · 1 over a few pages, so that a file of two halves would show.
    """
    path, size = tmp_path / "model.safetensors", 4_000
    moments = random.Random(1)
    seen = 0
    for _ in range(12):
        with Forked(SAVING, path, size) as child:
            assert child.stdout is not None
            first = int(child.stdout.readline())
            assert first == seen + 1
            said = [first, *(int(child.stdout.readline()) for _ in range(2))]  # however busy the machine is
            time.sleep(moments.uniform(0.0, 0.05))
            child.send_signal(signal.SIGKILL)
            said += map(int, child.stdout.read().split())
            assert child.wait() == -signal.SIGKILL
        learner = emphatic.load(path)
        assert learner.steps - said[-1] in (0, 1)
        assert np.array_equal(learner.theta, np.full((20, size), float(learner.steps)))
        seen = learner.steps
    assert seen >= 36
    Learner("td", 3).save(path)
    assert os.listdir(tmp_path) == [path.name]  # what killed saves have left is gone with the next one


def test_where_nothing_can_be_saved(tmp_path: Path) -> None:
    """An ``OSError`` that names the path; nothing is left behind and nothing that is there is replaced."""
    learner = Learner("true_online_etd", 3)
    file, folder, pipe = tmp_path / "file", tmp_path / "folder", tmp_path / "pipe"
    file.write_text("mine")
    folder.mkdir()
    os.mkfifo(pipe)
    places = {tmp_path / "missing" / "m": "missing", file / "m": "file", folder: "folder", pipe: "pipe"}
    places[Path("/proc/emphatic")] = "proc"
    if os.geteuid():  # root may write anywhere
        closed = tmp_path / "closed"
        closed.mkdir(mode=0o500)
        places[closed / "m"] = "closed"
    for place, name in places.items():
        with pytest.raises(OSError, match=name):
            learner.save(place)
    assert {path.name for path in tmp_path.iterdir()} - {"closed"} == {"file", "folder", "pipe"}
    assert file.read_text() == "mine"
    assert stat.S_ISFIFO(pipe.stat().st_mode)
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize("umask", [0o022, 0o077, 0o002])
def test_permissions_follow_the_umask(tmp_path: Path, umask: int) -> None:
    old = os.umask(umask)
    try:
        Learner("td", 3).save(tmp_path / "m")
        Learner("td", 3).save(tmp_path / "m")
    finally:
        os.umask(old)
    assert stat.S_IMODE((tmp_path / "m").stat().st_mode) == 0o666 & ~umask


@pytest.mark.parametrize("mode", [0o600, 0o640, 0o444, 0o666])
def test_saving_again_keeps_mode_and_owner(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "m"
    Learner("td", 3).save(path)
    path.chmod(mode)
    if os.geteuid() == 0:
        os.chown(path, 12345, 23456)
    before = path.stat()
    Learner("td", 4).save(path)
    after = path.stat()
    assert (stat.S_IMODE(after.st_mode), after.st_uid, after.st_gid) == (mode, before.st_uid, before.st_gid)
    assert emphatic.load(path).n == 4


def test_odd_paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Links (also to nothing yet) stay links; bytes, relative, long and foreign names are names like others."""
    learner = Learner("td", 3, engine="reference")
    learner.theta = [1.0, 2.0, 3.0]
    real, link = tmp_path / "real", tmp_path / "link"
    link.symlink_to(real)
    for steps in (0, 1):
        learner.save(link)
        assert link.is_symlink()
        assert not real.is_symlink()
        assert emphatic.load(real).steps == emphatic.load(link).steps == steps
        learner.learn(0.1, 1.0, 0.0, [1, 0, 0], 1.0, 1.0, [0, 1, 0], 0.5)
    monkeypatch.chdir(tmp_path)
    names: list[Any] = [
        "plain",
        "a" * 250,
        "δ θ\n.safetensors",
        ".hidden",
        os.fsencode(tmp_path / "bytes"),
        "./here",
        "x.tar.gz",
    ]
    for name in names:
        learner.save(name)
        assert np.array_equal(emphatic.load(name).theta, learner.theta)
    assert len(os.listdir(tmp_path)) == 2 + len(names)


# ------------------------------------------------------------------------------------------------ other files


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A sound file: two learners in mid-stream."""
    return in_mid_stream(tmp_path_factory, "dense", 2)


def in_mid_stream(tmp_path_factory: pytest.TempPathFactory, engine: str, K: int | None) -> bytes:
    learner = Learner("true_online_etd", 6, K, engine=engine)
    make(17, 60, 6, K, active=2, binary=False).run(learner)
    path = tmp_path_factory.mktemp("good") / "m"
    learner.save(path)
    return path.read_bytes()


def parts(data: bytes) -> tuple[dict[str, Any], bytes]:
    """The safetensors header and the body."""
    size = struct.unpack("<Q", data[:8])[0]
    return json.loads(data[8 : 8 + size]), data[8 + size :]


def seal(header: dict[str, Any], body: bytes, **changed: Any) -> bytes:
    """The file with these entries and with new checksums: the old ones would find any change before all else."""
    own = json.loads(header["__metadata__"]["emphatic"]) | changed
    del own["blake2b"]
    own["blake2b"] = {"__metadata__": "0" * 16}
    for name, entry in header.items():
        if name != "__metadata__":
            try:
                begin, end = entry["data_offsets"]
                own["blake2b"][name] = tensors.new_checksum(body[begin:end]).hexdigest()
            except (TypeError, ValueError):  # (no such place)
                own["blake2b"][name] = ""
    blank = own | {"blake2b": dict.fromkeys(own["blake2b"], "0" * 16)}
    prefix = pack(header | {"__metadata__": {"emphatic": json.dumps(blank)}}, b"")
    own["blake2b"]["__metadata__"] = tensors.new_checksum(prefix).hexdigest()
    return pack(header | {"__metadata__": {"emphatic": json.dumps(own)}}, body)


def pack(header: object, body: bytes) -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + body


def refuse(path: Path, data: bytes, *, engine: str | None = None) -> None:
    path.write_bytes(data)
    with pytest.raises(CheckpointError) as info:
        emphatic.load(path, engine=engine)
    assert repr(str(path)) in str(info.value)
    assert len(str(info.value)) < 1000


def test_cut_short_anywhere(tmp_path: Path, good: bytes) -> None:
    for size in sorted({0, 1, 7, 8, 9, len(good) - 1, *range(0, len(good), 37)}):
        refuse(tmp_path / "m", good[:size])
    refuse(tmp_path / "m", good + b"\0")
    refuse(tmp_path / "m", good[1:])


@pytest.mark.parametrize("K", [None, 2])
@pytest.mark.parametrize("engine", ["dense", "sparse"])
def test_any_flipped_bit(tmp_path_factory: pytest.TempPathFactory, tmp_path: Path, K: int | None, engine: str) -> None:
    """Of the header or of any number: no file loads that is not the one that was written."""
    data = in_mid_stream(tmp_path_factory, engine, K)
    path = tmp_path / "m"
    moments = random.Random(2)
    for at in [*range(8), *moments.sample(range(8, len(data)), 120)]:
        changed = bytearray(data)
        changed[at] ^= 1 << moments.randrange(8)
        refuse(path, bytes(changed))


def test_checksums_also_of_what_is_not_read(tmp_path: Path) -> None:
    """A damaged ``more`` is found by whoever loads the learner alone."""
    path = tmp_path / "m"
    Learner("td", 3).save(path, weights=np.ones(400_000))
    data = bytearray(path.read_bytes())
    header, body = parts(bytes(data))
    begin = len(data) - len(body) + header["more.weights"]["data_offsets"][0]
    data[begin + 8 * 399_999] ^= 1
    path.write_bytes(data)
    for load in (emphatic.load, Learner.load_with):
        with pytest.raises(CheckpointError, match=r"'more.weights' does not match its checksum"):
            load(path)


def test_only_the_canonical_form_is_read(tmp_path: Path, good: bytes) -> None:
    """One way to write a file: no other spaces, orders, padding, escapes, or entries given twice."""
    header, body = parts(good)
    own = json.loads(header["__metadata__"]["emphatic"])
    text = json.dumps(header, separators=(",", ":"))
    assert emphatic.load(_written(tmp_path / "m", pack(text.encode(), body))).steps == 60
    twice = text.replace('"theta":', '"theta":{"dtype":"F64","shape":[2,6],"data_offsets":[0,96]},"theta":', 1)
    turned = dict(reversed(header.items()))
    for changed in (twice, json.dumps(header), text.replace("dense", "d\\u0065nse", 1), text + " " * 8):
        refuse(tmp_path / "m", pack(changed.encode(), body))
    refuse(tmp_path / "m", pack(turned, body))
    plain = json.dumps(own)
    more: list[str] = [plain.replace(": ", ":"), plain.replace('"n": 6', '"n": 6, "n": 6'), plain + " "]
    more += [plain.replace('"n": 6', '"n": 6.0e0'), json.dumps(own | {"blake2b": {}})]
    for changed in more:
        refuse(tmp_path / "m", pack(header | {"__metadata__": {"emphatic": changed}}, body))


def _written(path: Path, data: bytes) -> Path:
    path.write_bytes(data)
    return path


@pytest.mark.parametrize("gamma", [-0.5, 1.5, 1e300])
def test_a_gamma_that_cannot_be(tmp_path: Path, good: bytes, gamma: float) -> None:
    refuse_changed(tmp_path / "m", good, put("gamma", gamma, -1))


def test_save_refuses_what_load_would_refuse(tmp_path: Path) -> None:
    """And writes nothing: a header too long or nested too deeply, one entry under two keys."""
    learner, deep = Learner("td", 3), 1
    for _ in range(200):
        deep = [deep]  # type: ignore[assignment]
    for value in ("x" * (1 << 24), deep, {1: "a", "1": "b"}):
        with pytest.raises(ValueError, match=r"at most 16,777,216|no deeper than|cannot be read back"):
            learner.save(tmp_path / "m", note=value)
        assert os.listdir(tmp_path) == []
    learner.save(tmp_path / "m", note="x" * (1 << 20), nested=[[[[]]]])


def foreign() -> Iterator[tuple[str, bytes]]:
    yield "nothing", b""
    yield "text", b"a,b,c\n1,2,3\n" * 100
    yield "JSON", b'{"theta": [1, 2, 3]}'
    yield "pickle", pickle.dumps({"theta": [1.0]})
    yield "numpy", b"\x93NUMPY\x01\x00v\x00{'descr': '<f8', 'fortran_order': False, 'shape': (3,), }" + b" " * 60
    yield "zeros", bytes(1000)
    yield "ones", b"\xff" * 1000
    yield "PNG", b"\x89PNG\r\n\x1a\n" + bytes(100)
    yield "HDF5", b"\x89HDF\r\n\x1a\n" + bytes(100)
    for size in (2**63, 2**64 - 1, 10**8, 10**8 + 1, 2**32, 1000, 2):
        yield f"a header of {size} bytes", struct.pack("<Q", size) + b'{"a":1}' + bytes(50)
    yield "an empty header", pack({}, b"")
    yield "a header that is a list", pack([1, 2], b"")
    yield "a header that is not JSON", pack(b"{" * 100, b"")
    yield "a header that is not UTF-8", pack(b'{"\xff\xfe": 1}', b"")
    yield "a deep header", pack(b'{"a":' * 50_000, b"")
    yield "no metadata", pack({"theta": {"dtype": "F64", "shape": [1], "data_offsets": [0, 8]}}, bytes(8))
    yield "metadata of another library", pack({"__metadata__": {"format": "pt"}}, b"")
    yield "metadata that is a number", pack({"__metadata__": {"emphatic": 1}}, b"")
    yield "metadata that is a list", pack({"__metadata__": []}, b"")


@pytest.mark.parametrize(("what", "data"), list(foreign()), ids=lambda v: v if isinstance(v, str) else "")
def test_foreign_files(tmp_path: Path, what: str, data: bytes) -> None:
    refuse(tmp_path / "m", data)


def test_what_is_no_file(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="nowhere"):
        emphatic.load(tmp_path / "nowhere")
    with pytest.raises((CheckpointError, IsADirectoryError), match=r"folder|directory"):
        emphatic.load(tmp_path)
    os.mkfifo(tmp_path / "pipe")  # must not wait for a writer
    with pytest.raises(CheckpointError, match="pipe"):
        emphatic.load(tmp_path / "pipe")
    with zipfile.ZipFile(tmp_path / "z.zip", "w") as archive:
        archive.writestr("theta.npy", bytes(100))
    with pytest.raises(CheckpointError, match=r"z\.zip"):
        emphatic.load(tmp_path / "z.zip")


def tampered_headers() -> Iterator[tuple[str, Any]]:
    """Our own JSON: a change of one key, or the whole text."""
    wrong: dict[str, list[Any]] = {
        "format": [0, checkpoint.FORMAT + 1, 99, -1, 1.0, "1", True, None, math.nan, 10**30],
        "rule": ["nope", "TD", "", None, 3, [], {}, ["td"], "td", "etd", "../rules/td", "__class__"],
        "vectors": [None, [], ["theta"], ["e", "theta"], "theta", {"theta": 1}, ["theta", "e", "w"], [["theta"], "e"]],
        "memory": [None, [], ["gamma"], ["gamma", "D", "F", "F"], 3, {}],
        "n": [0, -6, 5, 7, 6.0, "6", True, None, [], {}, math.nan, math.inf, 2**62, 10**30, 1e300],
        "K": [0, -2, 1, 3, 2.0, "2", True, None, [2], math.nan, 2**62, 10**30],
        "dtype": ["float32", "float16", "f8", ">f8", "object", "", None, 8, [], {}, "O", "float64\0"],
        "engine": ["nope", "", None, 3, [], {}, "Sparse", "sparse.", "../sparse"],
        "threads": [0, -1, 1.0, "1", True, None, [], math.nan],
        "steps": [-1, 1.0, "1", True, None, [], math.nan, math.inf, 2**53, 10**30],
    }
    for key, values in wrong.items():
        yield f"no {key}", (key,)
        for value in values:
            yield f"{key} = {value!r}", (key, value)
    texts = ["", "{", "[]", "null", '"x"', "NaN", "[" * 100_000, "9" * 10_000, "\0", "{}"]
    for text in (
        *texts,
        '{"format": 1}',
        '{"format": 1, "format": 2}',
        '{"format": ' + "1" * 5000 + "}",
        '{"format": -Infinity}',
    ):
        yield f"the text {text[:12]!r}", text


@pytest.mark.parametrize("change", [c for _, c in tampered_headers()], ids=[w for w, _ in tampered_headers()])
def test_tampered_headers(tmp_path: Path, good: bytes, change: Any) -> None:
    header, body = parts(good)
    own = json.loads(header["__metadata__"]["emphatic"])
    assert own["rule"] == "true_online_etd"
    if isinstance(change, str):
        data = pack(header | {"__metadata__": {"emphatic": change}}, body)
    elif len(change) == 1:
        del own[change[0]]
        data = seal(header | {"__metadata__": {"emphatic": json.dumps(own)}}, body)
    else:
        data = seal(header, body, **dict([change]))
    refuse(tmp_path / "m", data)
    engine = change[0] not in ("engine", "threads") if isinstance(change, tuple) else True
    if engine:  # whatever engine is asked for
        refuse(tmp_path / "m", data, engine="reference")


def tampered_shapes() -> Iterator[tuple[str, Callable[[dict[str, Any]], object]]]:
    """The table of tensors: dtype, shape and place of θ."""

    def entry(**changed: Any) -> Callable[[dict[str, Any]], object]:
        def change(header: dict[str, Any]) -> None:
            header["theta"].update(changed)

        return change

    for shape in ([2**62, 1], [2**63, 2**63], [0, 2**62], [-1, 6], [6], [6, 2], [1, 2, 6], "x", [2.5]):
        yield f"shape {shape}", entry(shape=shape)
        if isinstance(shape, list) and 0 in shape:
            yield f"shape {shape} of no bytes", entry(shape=shape, data_offsets=[0, 0])
    for offsets in ([0, 10**15], [-8, 88], [96, 0], [0, 8], [2**63, 2**63 + 96], [0, 96.5], [0], "x", None):
        yield f"offsets {offsets}", entry(data_offsets=offsets)
    for dtype in ("F32", "F16", "BF16", "I64", "U64", "C64", "BOOL", "F8_E4M3", "F4", "nope", "", None, 8):
        yield f"dtype {dtype}", entry(dtype=dtype)
    yield "offsets of another array", lambda header: header["theta"].update(data_offsets=header["e"]["data_offsets"])
    yield "two arrays in one place", lambda header: header.update(extra=dict(header["theta"]))
    yield "no θ", lambda header: header.pop("theta")
    yield "an entry that is null", lambda header: header.update(theta=None)
    yield "an entry that is a list", lambda header: header.update(theta=[1, 2])


@pytest.mark.parametrize("change", [c for _, c in tampered_shapes()], ids=[w for w, _ in tampered_shapes()])
def test_tampered_shapes(tmp_path: Path, good: bytes, change: Callable[[dict[str, Any]], object]) -> None:
    header, body = parts(good)
    change(header)
    refuse(tmp_path / "m", seal(header, body))


def put(name: str, value: float, at: Any = ...) -> Callable[[Arrays], object]:
    def change(arrays: Arrays) -> None:
        arrays[name][at] = value

    return change


def remake(name: str, how: Callable[[npt.NDArray[Any]], npt.NDArray[Any]]) -> Callable[[Arrays], object]:
    def change(arrays: Arrays) -> None:
        arrays[name] = how(arrays[name])

    return change


def drop(name: str) -> Callable[[Arrays], object]:
    return lambda arrays: arrays.pop(name)


def tampered(arrays: dict[str, bool]) -> Iterator[tuple[str, Callable[[Arrays], object]]]:
    """What can be done to any of these arrays, those with True holding numbers that must be finite."""
    for name, real in arrays.items():
        yield f"no {name}", drop(name)
        yield f"{name} of another shape", remake(name, lambda a: a[..., :-1])
        yield f"{name} empty", remake(name, lambda a: a[:0])
        yield f"{name} with an axis more", remake(name, lambda a: a[None])
        yield f"{name} of another kind", remake(name, lambda a: a.astype(np.float32))
        for value in (math.nan, math.inf, -math.inf) if real else ():
            yield f"{name} = {value}", put(name, value, -1)


def tampered_dense() -> Iterator[tuple[str, Callable[[Arrays], object]]]:
    """The numbers themselves, in files that are sound safetensors."""
    yield from tampered(dict.fromkeys(("theta", "e", "gamma", "D", "F"), True))
    for name in ("theta", "e", "gamma", "D", "F"):
        yield f"{name} in int64", remake(name, lambda a: a.astype(np.int64))


def tampered_sparse() -> Iterator[tuple[str, Callable[[Arrays], object]]]:
    """The state from which the vectors of a horde follow."""
    yield from tampered(dict.fromkeys(("gamma", "D", "F"), True))
    real = tampered({f"sparse.{name}": True for name in ("H", "diag", "take", "peak", "left", "bounds")})
    yield from ((what, change) for what, change in real if what != "sparse.left = inf")  # it is taken for the largest
    yield from tampered({f"sparse.{name}": False for name in ("since", "mark", "touch", "clock")})
    for name in ("since", "mark", "touch"):
        yield f"{name} before time", put(f"sparse.{name}", -1, -1)
        yield f"{name} in the future", put(f"sparse.{name}", 61, -1)
    yield "a clock before time", put("sparse.clock", -1)
    yield "a clock beyond the end of time", put("sparse.clock", 2**31)
    yield "scales of 0", put("sparse.diag", 0.0)
    yield "columns that overflow", lambda arrays: (put("sparse.H", 1e308)(arrays), put("sparse.diag", 1e308)(arrays))


def tampered_one() -> Iterator[tuple[str, Callable[[Arrays], object]]]:
    """The same of a single learner."""
    yield from tampered({f"sparse.{name}": True for name in ("H0", "H1", "scale", "table")})
    yield from tampered({f"sparse.{name}": False for name in ("E1", "epoch")})
    yield "a stamp of -1", put("sparse.E1", -1, (0, 0))
    yield "a stamp beyond the epoch", put("sparse.E1", 30_000, (0, 3))
    yield "an epoch of -1", put("sparse.epoch", -1, (0, 0))
    yield "an epoch beyond the table", put("sparse.epoch", 4096, (0, 0))
    yield "a giant epoch", put("sparse.epoch", 2**62, (0, 0))
    yield "a live epoch of -1", put("sparse.epoch", -1, (0, 1))
    yield "a live epoch beyond the epoch", put("sparse.epoch", 4000, (0, 1))
    yield "scales of 0", put("sparse.scale", 0.0)
    yield "one scale of 0", put("sparse.scale", 0.0, (0, 1))
    yield "columns that overflow", lambda arrays: (put("sparse.H0", 1e308)(arrays), put("sparse.scale", 1e308)(arrays))


def refuse_changed(path: Path, good: bytes, change: Callable[[Arrays], object], *, engine: str | None = None) -> None:
    path.write_bytes(good)
    arrays = {name: array.copy() for name, array in load_file(path).items()}
    change(arrays)
    header = {name: value for name, value in header_of(path).items() if name not in ("format", "blake2b")}
    parts = {name: tensors.TensorPart.of(np.asarray(array, order="C")) for name, array in arrays.items()}
    checkpoint.write(path, header, parts)
    refuse(path, path.read_bytes(), engine=engine)


@pytest.mark.parametrize("change", [c for _, c in tampered_dense()], ids=[w for w, _ in tampered_dense()])
def test_tampered_arrays(tmp_path: Path, good: bytes, change: Callable[[Arrays], object]) -> None:
    refuse_changed(tmp_path / "m", good, change)


@pytest.mark.parametrize("K", [None, 2])
@pytest.mark.parametrize("engine", [None, "dense"])
def test_tampered_arrays_from_which_vectors_follow(
    tmp_path_factory: pytest.TempPathFactory, tmp_path: Path, K: int | None, engine: str | None
) -> None:
    path, data = tmp_path / "m", in_mid_stream(tmp_path_factory, "sparse", K)
    for _, change in tampered_one() if K is None else tampered_sparse():
        refuse_changed(path, data, change, engine=engine)

    def remove_state(arrays: Arrays) -> None:
        for name in [name for name in arrays if name.startswith("sparse.")]:
            del arrays[name]

    refuse_changed(path, data, remove_state, engine=engine)
    with pytest.raises(CheckpointError, match="neither 'theta' nor the state from which that follows"):
        emphatic.load(path, engine=engine)


UNDER_A_LIMIT = """
import resource, sys, time
import numpy, safetensors.numpy, emphatic
emphatic.Learner("true_online_etd", 6, 2, engine="sparse").theta = numpy.zeros((2, 6))
with open("/proc/self/statm") as file:
    size = int(file.read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (size + 300 * 2**20,) * 2)
for path in sys.argv[1:]:
    began = time.perf_counter()
    try:
        emphatic.load(path)
    except emphatic.CheckpointError as error:
        if time.perf_counter() - began > 5:
            print("slow", path)
        continue
    print("accepted", path)
print("done")
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc/self/statm")
def test_giants_are_refused_without_making_them(tmp_path: Path, good: bytes) -> None:
    """In a process that may have no more than 300 MB besides."""
    header, body = parts(good)
    paths: list[Path] = []

    def add(data: bytes) -> None:
        paths.append(tmp_path / str(len(paths)))
        paths[-1].write_bytes(data)

    for what, data in foreign():
        if "header" in what:
            add(data)
    for what, change in tampered_shapes():
        if "2**" in what or len(what) > 14:
            altered = json.loads(json.dumps(header))
            change(altered)
            add(seal(altered, body))
    for key, value in (("n", 2**40), ("n", 2**62), ("n", 10**30), ("K", 2**40), ("K", 2**62)):
        add(seal(header, body, **{key: value}))
    # n and the shapes agree, and the array has no bytes: nothing in safetensors itself objects to 0 × 2⁶⁰.
    empty = {"dtype": "F64", "shape": [0, 2**60], "data_offsets": [0, 0]}
    memory = {name: {"dtype": "F64", "shape": [0], "data_offsets": [0, 0]} for name in ("gamma", "D", "F")}
    metadata = {"__metadata__": header["__metadata__"]}
    add(seal(metadata | {"theta": empty, "e": empty, **memory}, b"", n=2**60, K=0))
    done = subprocess.run(
        [sys.executable, "-c", UNDER_A_LIMIT, *map(str, paths)], capture_output=True, text=True, check=False, timeout=60
    )
    assert (done.stdout, done.stderr, done.returncode) == ("done\n", "", 0)
    assert len(paths) > 30
    assert resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss < 2**21  # KiB


def test_bad_arguments_of_load(tmp_path: Path, good: bytes) -> None:
    """A wrong argument is the caller's fault: a ``ValueError`` that names it, and does not blame the file."""
    path = tmp_path / "m"
    path.write_bytes(good)
    for engine in ("nope", "", 3, "Dense"):
        with pytest.raises(ValueError, match="'engine' parameter") as info:
            emphatic.load(path, engine=engine)  # type: ignore[arg-type]
        assert not isinstance(info.value, CheckpointError)
    for rule in ("true_online_etd", 3, own_rule):
        with pytest.raises(ValueError, match="'rule' parameter"):
            emphatic.load(path, rule=rule)  # type: ignore[arg-type]
    assert emphatic.load(path, rule=emphatic.rules.get("true_online_etd")).steps == 60
