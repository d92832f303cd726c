"""A learner belongs to one thread at a time; reading is safe beside reading; processes by fork and spawn."""

from __future__ import annotations

import multiprocessing
import pickle
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import emphatic
from emphatic import GVF, Active, Horde, Learner
from emphatic import features as f

n = 64
BUSY = "in use by another thread"

#: One learner, and several threads that run and read it: no crash, and what it has learned is what the runs that were
#: not refused lead to, one after the other.
CROWD = """
import sys, threading
import numpy as np
import emphatic

n, T = 64, 500
rng = np.random.default_rng(0)
R = rng.normal(size=T)
Phi = emphatic.Active(rng.integers(0, 8, size=(T + 1, 8)) + 8 * np.arange(8))
one = emphatic.Active(np.arange(0, n, 8))
sys.setswitchinterval(1e-5)

def crowd(work, count):
    errors = []
    def guarded():
        try:
            work()
        except Exception as error:
            errors.append(repr(error))
    threads = [threading.Thread(target=guarded) for _ in range(count)]
    for thread in threads: thread.start()
    return threads, errors

def run(learner): learner.run(Phi, R, 0.9, alpha=0.01, lambda_=0.9, predictions=False)

for engine, K in (("sparse", None), ("sparse", 4), ("dense", None), ("dense", 9), ("chunked", 4)):
    learner = emphatic.Learner("true_online_etd", n, K, engine=engine)
    run(learner)
    learner.predict(one)
    alone = learner.copy()
    done, refused, wrong = [], [], []
    def learn():
        for _ in range(6):
            try:
                run(learner)
                done.append(1)
            except RuntimeError as error:
                (refused if "in use by another thread" in str(error) else wrong).append(str(error))
    threads, errors = crowd(learn, 4)
    for thread in threads: thread.join()
    for _ in done: run(alone)
    assert not wrong and not errors, (wrong, errors)
    assert done and len(done) + len(refused) == 24
    assert learner.steps == alone.steps == T * (1 + len(done))
    assert np.array_equal(learner.theta, alone.theta), (engine, K)

    expected = learner.predict(one)
    def read_only():
        for _ in range(40):
            assert np.array_equal(learner.predict(one), expected)
            assert np.array_equal(learner.copy().theta, learner.theta)
    threads, errors = crowd(read_only, 3)
    for thread in threads: thread.join()
    assert not errors, errors
print("done")
"""


def test_a_crowd_of_threads_does_no_harm() -> None:
    done = subprocess.run([sys.executable, "-c", CROWD], capture_output=True, text=True, check=False, timeout=240)
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr[-3000:]


class Halting:
    """Features that become an array only when they may."""

    def __init__(self, value: npt.NDArray[Any]) -> None:
        self.value, self.reached, self.go_on = value, threading.Event(), threading.Event()

    def __array__(self, dtype: Any = None, copy: Any = None) -> npt.NDArray[Any]:
        self.reached.set()
        assert self.go_on.wait(60)
        return self.value


@pytest.fixture
def learner() -> Learner:
    made = Learner("true_online_etd", 3, 2, engine="reference")
    made.theta = np.arange(6.0).reshape(2, 3)
    return made


def use(learner: Learner, tmp_path: Any) -> dict[str, Callable[[], object]]:
    """Every call that looks at the vectors."""
    phi = np.ones(3)
    return {
        "learn": lambda: learner.learn(0.1, 1.0, 0.5, phi, 1.0, 1.0, phi, 0.5),
        "run": lambda: learner.run(np.ones((3, 3)), 1.0, 0.5, alpha=0.1),
        "predict": lambda: learner.predict(phi),
        "cut": learner.cut,
        "theta =": lambda: setattr(learner, "theta", np.zeros(3)),
        "theta": lambda: learner.theta,
        "F": lambda: learner.F,
        "copy": learner.copy,
        "select": lambda: learner.select([0]),
        "join": lambda: emphatic.join([learner]),
        "pickle": lambda: pickle.dumps(learner),
        "save": lambda: learner.save(tmp_path / "m"),
    }


def test_all_are_refused_while_one_learns(learner: Learner, tmp_path: Any) -> None:
    """Nothing changes, and afterwards the learner is there for anybody."""
    before, halting = learner.theta, Halting(np.ones((5, 3)))
    other = threading.Thread(target=lambda: learner.run(halting, 1.0, 0.5, alpha=0.1))
    other.start()
    assert halting.reached.wait(60)
    for call in use(learner, tmp_path).values():
        with pytest.raises(RuntimeError, match=BUSY):
            call()
    assert learner.steps == 0
    assert not list(tmp_path.iterdir())
    halting.go_on.set()
    other.join()
    assert learner.steps == 4
    assert not np.array_equal(learner.theta, before)
    for call in use(learner, tmp_path).values():
        call()


def test_reading_beside_reading(learner: Learner, tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who only reads is let in beside others; who would change something waits a little, and is then refused."""
    halting = Halting(np.ones((5, 3)))
    other = threading.Thread(target=lambda: learner.predict(halting))
    other.start()
    assert halting.reached.wait(60)
    calls = use(learner, tmp_path)
    for name in ("predict", "theta", "F", "copy", "select", "join", "pickle", "save"):
        calls[name]()
    monkeypatch.setattr("emphatic.common.locks._PATIENCE", 0.01)
    for name in ("learn", "run", "cut", "theta ="):
        with pytest.raises(RuntimeError, match=BUSY):
            calls[name]()
    monkeypatch.setattr("emphatic.common.locks._PATIENCE", 60.0)
    threading.Timer(0.05, halting.go_on.set).start()
    calls["learn"]()
    other.join()
    assert learner.steps == 1


def test_errors_leave_a_learner_free(learner: Learner) -> None:
    for bad in (None, np.ones(2), np.full(3, np.nan)):
        with pytest.raises(ValueError, match="phi"):
            learner.learn(0.1, 1.0, 0.5, bad, 1.0, 1.0, np.ones(3), 0.5)
        with pytest.raises(ValueError, match="Phi"):
            learner.run(bad, 1.0, 0.5, alpha=0.1)
        with pytest.raises(ValueError, match="phi"):
            learner.predict(bad)
    with pytest.raises(emphatic.Diverged):
        learner.learn(1e308, 1.0, 0.5, np.ones(3), 1e308, 1e308, np.ones(3), 0.5)
    learner.learn(0.1, 1.0, 0.5, np.ones(3), 1.0, 1.0, np.ones(3), 0.5)


def test_a_horde_too_belongs_to_one_thread_at_a_time(tmp_path: Any) -> None:
    reached, go_on_ = threading.Event(), threading.Event()

    def halting(observation: Any) -> float:
        reached.set()
        assert go_on_.wait(60)
        return 1.0

    features = f.Features([f.Bias(), f.SoftBins("x", bins=3)])
    horde = Horde([GVF(halting, horizon=2, name="slow")], features, engine="reference")
    go_on_.set()
    horde.warm_up({"x": np.arange(9.0)})
    go_on_.clear()
    reached.clear()
    other = threading.Thread(target=lambda: horde.observe({"x": 1.0}))
    other.start()
    assert reached.wait(60)
    calls: list[Callable[[], object]] = [
        horde.cut,
        lambda: horde.observe({"x": 1.0}),
        lambda: horde.save(tmp_path / "m"),
        lambda: horde.begin({"x": 1.0}),
        lambda: horde.run({"x": np.arange(3.0)}),
    ]
    for call in calls:
        with pytest.raises(RuntimeError, match=f"This horde is {BUSY}"):
            call()
    go_on_.set()
    other.join()
    assert horde.rows == 1
    horde.cut()


# ------------------------------------------------------------------------------------------------ processes


def go_on(learner: Learner) -> bytes:
    """What a learner knows after some more steps."""
    index = np.random.default_rng(1).integers(0, 8, size=(101, 8)) + 8 * np.arange(8)
    learner.run(Active(index), np.ones(100), 0.9, alpha=0.01, lambda_=0.9)
    theta: bytes = learner.theta.tobytes()
    return theta


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_other_processes_go_on_by_themselves(method: str) -> None:
    """By fork and by spawn, with the same bits; nothing of it comes back."""
    learner = Learner("true_online_etd", n, engine="sparse")
    go_on(learner)
    before = learner.theta
    with multiprocessing.get_context(method).Pool(1) as pool:
        theirs = pool.apply(go_on, (learner,))
    assert np.array_equal(learner.theta, before)
    assert theirs == go_on(learner)
