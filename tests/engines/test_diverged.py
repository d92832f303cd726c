"""``Diverged`` names the first step that is not finite and its learner, and every learner stands before that step.

What a step is compared with is a plain NumPy loop in this file: vectors in the learner's dtype, scalars in float64. On
streams that only grow (no sum cancels, so the order of summing does not matter) all three engines stop at exactly its
step, with one exception: the dense engine in float32 also refuses a coefficient that is no float32. On streams that
cancel at the end of the range no such promise can be made: an engine that sums in another order overflows a step sooner
or later. What always holds is tested there too: the state is finite, and that of a learner given only the steps before.
"""

from __future__ import annotations

import functools
import pickle
import warnings
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import emphatic
from emphatic import Active, Diverged, Learner
from tests.support.plain import plain_python
from tests.support.streams import relative_error

pytestmark = pytest.mark.xdist_group("td")  # whose kernels are compiled, besides those that most tests use
ENGINES = emphatic.engines.available()
Array = npt.NDArray[Any]

every_engine = pytest.mark.parametrize("engine", ENGINES)
every_dtype = pytest.mark.parametrize("dtype", ["float64", "float32"])
#: How far the state may be from that of a learner given only the steps before: the sparse engine settles its columns.
SAME = {"reference": 0.0, "dense": 0.0, "sparse": 1e-12, "chunked": 1e-12}
SAME_32 = {"reference": 0.0, "dense": 0.0, "sparse": 1e-5, "chunked": 1e-5}


@dataclass(frozen=True)
class Log:
    """T steps, each with a φ and a φ' of its own; parameters are numbers or (T,)."""

    Phi: Array
    Phi_next: Array
    R: Any
    gamma_next: Any
    alpha: Any
    lambda_: Any
    rho: Any
    I: Any = 1.0

    def at(self, name: str, t: int) -> float:
        value = getattr(self, name)
        return float(value[t] if np.ndim(value) else value)

    def run(self, learner: Learner, stop: int | None = None, **changed: Any) -> Any:
        """The steps before ``stop`` in one call."""
        T = len(self.Phi) if stop is None else stop
        names = ("R", "gamma_next", "alpha", "lambda_", "rho", "I")
        p = {name: np.broadcast_to(getattr(self, name), len(self.Phi))[:T] for name in names} | changed
        # γ may be 1 throughout here: that is what makes F and e grow.
        return quietly(learner, self.Phi[:T], Phi_next=self.Phi_next[:T], **p)


def quietly(learner: Learner, *args: Any, **p: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", emphatic.UndiscountedWarning)
        return learner.run(*args, **p)


@dataclass(frozen=True)
class End:
    """The step that is not finite, and θ, e, F before it."""

    step: int
    theta: Array
    e: Array
    F: float


def plain(rule: str, log: Log, dtype: str) -> End:
    """The rule in plain NumPy until a number is not finite."""
    theta, e = (np.zeros(log.Phi.shape[1], dtype) for _ in range(2))
    F = D = gamma = rho_before = 0.0
    with np.errstate(all="ignore"):
        for t in range(len(log.Phi)):
            phi, phi_next = log.Phi[t].astype(dtype), log.Phi_next[t].astype(dtype)
            alpha, I, lambda_, R, gamma_next = (
                log.at(name, t) for name in ("alpha", "I", "lambda_", "R", "gamma_next")
            )
            r = log.at("rho", t)
            delta = R + gamma_next * float(theta @ phi_next) - float(theta @ phi)
            F_ = I if rule == "td" else rho_before * gamma * F + I
            M = lambda_ * I + (1.0 - lambda_) * F_
            wide, p = e.astype(np.float64), phi.astype(np.float64)
            if rule == "true_online_etd":
                e_ = r * (gamma * lambda_ * wide + alpha * M * (1.0 - r * gamma * lambda_ * float(e @ phi)) * p)
                Delta = delta * e_ + D * (e_ - alpha * M * r * p)
                D_ = float(Delta @ phi_next.astype(np.float64))
            else:
                e_ = r * (gamma * lambda_ * wide + M * p)
                Delta, D_ = alpha * delta * e_, 0.0
            theta_, e_ = (theta.astype(np.float64) + Delta).astype(dtype), e_.astype(dtype)
            carried = r * gamma_next * F_  # what is remembered must be finite too
            if not all(np.isfinite(v).all() for v in (delta, D_, carried, theta_, e_)):
                return End(t, theta, e, F)
            theta, e, F, D, gamma, rho_before = theta_, e_, F_, D_, gamma_next, r
    raise AssertionError("the stream does not diverge")


T = 3000
UNIT = np.ones((T, 1))
PAIR = np.tile([[1.0, 0.0], [0.0, 1.0]], (T // 2 + 1, 1))
ALONE = np.zeros((T, 5))
ALONE[0, 0] = 1.0
BESIDE = ALONE.copy()
BESIDE[1:, 1] = 1.0
RNG = np.random.default_rng(1)
UP = RNG.random((T, 7)) * (RNG.random((T, 7)) < 0.5)

#: Rule and log: each only grows.
GROWING: dict[str, tuple[str, Log]] = {
    "θ → 2θ": ("td", Log(UNIT, 2 * UNIT, 1.0, 0.99, 0.5, 0.0, 1.5)),
    "θ → 2θ, true online": ("true_online_etd", Log(UNIT, 2 * UNIT, 1.0, 0.99, 0.3, 0.0, 1.5)),
    "e grows with ρ": ("td", Log(PAIR[:-1], PAIR[1:], 0.0, 1.0, 0.0, 1.0, 2.0)),
    "F grows with ρ": ("true_online_etd", Log(PAIR[:-1], PAIR[1:], 0.0, 1.0, 0.0, 0.0, 2.0)),
    "F alone, where no feature is active": ("etd", Log(0 * PAIR[:-1], 0 * PAIR[1:], 0.0, 1.0, 0.1, 0.5, 2.0)),
    "e where nothing is active any more": ("td", Log(ALONE, 0 * ALONE, 0.0, 1.0, 0.0, 1.0, 2.0)),
    "θ where nothing is active any more": ("td", Log(BESIDE, 0 * BESIDE, 1.0, 1.0, 0.1, 1.0, 2.0)),
    "many features": ("td", Log(UP, 1.5 * UP, 1.0, 0.99, 0.3, 0.5, 1.5)),
    "many features, emphatic": ("etd", Log(UP, 1.5 * UP, 1.0, 0.99, 0.1, 0.5, 1.2)),
}


def mode(rule: str, dtype: str, *, td: bool = False) -> AbstractContextManager[None]:
    """Kernels compiled for one rule: the end of the range is where a compiler may differ. Others as plain Python.

    With ``td`` those of td too, in double precision, which other tests compile: the traces of the other rule stay 0
    where α does.
    """
    compiled = rule == "true_online_etd" or (td and (rule, dtype) == ("td", "float64"))
    return nullcontext() if compiled else plain_python()


@functools.cache
def plain_end(case: str, dtype: str) -> End:
    return plain(*GROWING[case], dtype)


def expected(case: str, engine: str, dtype: str) -> End:
    """Where it should stop."""
    end = plain_end(case, dtype)
    if case.startswith("F alone") and engine in ("dense", "chunked") and dtype == "float32":
        end = replace(end, step=127)  # 2¹²⁷ < ρM: the coefficient of φ, though φ = 0
    return end


def learner_of(rule: str, log: Log, engine: str, dtype: str, K: int | None = None) -> Learner:
    return Learner(rule, log.Phi.shape[1], K, engine=engine, dtype=dtype)


def memory(learner: Learner) -> Array:
    return np.array([getattr(learner, name) for name in learner.rule.memory], dtype=np.float64)


def finite(learner: Learner) -> bool:
    return all(np.isfinite(v).all() for v in (learner.theta, learner.e, memory(learner)))


def apart(a: Learner, b: Learner) -> float:
    """The largest relative difference of θ, e and memory, learner by learner, up to the end of the range."""
    out = 0.0
    for one, other in ((a.theta, b.theta), (a.e, b.e), (memory(a).T, memory(b).T)):
        for x, y in zip(np.atleast_2d(one), np.atleast_2d(other), strict=True):
            scale = 2.0 ** -np.frexp(np.abs(y).max())[1]
            out = max(out, relative_error(x * scale, y * scale))
    return out


@every_engine
@every_dtype
@pytest.mark.parametrize("case", GROWING)
def test_the_first_step_that_is_not_finite(engine: str, dtype: str, case: str) -> None:
    rule, log = GROWING[case]
    with mode(rule, dtype, td=True):
        end = expected(case, engine, dtype)
        learner = learner_of(rule, log, engine, dtype)
        with pytest.raises(Diverged, match=f"Learner 0 .* step {end.step} ") as info:
            log.run(learner)
        assert (info.value.step, info.value.learner, learner.steps) == (end.step, 0, end.step)
        assert finite(learner)
        before = learner_of(rule, log, engine, dtype)
        log.run(before, end.step)
        same = SAME if dtype == "float64" else SAME_32
        assert apart(learner, before) <= same[engine]
        scale = 2.0 ** -np.frexp(max(np.abs(end.theta).max(), 1e-300))[1]
        tolerance = {"float64": 1e-9, "float32": 1e-2}[dtype]
        assert relative_error(learner.theta * scale, end.theta * scale) <= tolerance
        # The same again, from where it stands: the same refusal, and still nothing moves.
        again = replace(log, Phi=log.Phi[end.step :], Phi_next=log.Phi_next[end.step :])
        with pytest.raises(Diverged, match="step 0 "):
            again.run(learner)
        assert apart(learner, before) <= same[engine]


@every_engine
@every_dtype
@pytest.mark.parametrize("case", GROWING)
def test_all_learners_stop_before_the_same_step(engine: str, dtype: str, case: str) -> None:
    """Learners 1 and 2 diverge together, 3 later or never, 0 never: 1 is named, and all four stand before its step."""
    rule, log = GROWING[case]
    with mode(rule, dtype, td=True):
        top = log.at("rho", 0)
        rho = np.array([0.25, top, top, (1.0 + top) / 2])
        end = expected(case, engine, dtype)
        learner = learner_of(rule, log, engine, dtype, K=4)
        with pytest.raises(Diverged) as info:
            log.run(learner, rho=rho)
        assert (info.value.step, info.value.learner, learner.steps) == (end.step, 1, end.step)
        assert finite(learner)
        before = learner_of(rule, log, engine, dtype, K=4)
        log.run(before, end.step, rho=rho)
        assert apart(learner, before) <= (SAME if dtype == "float64" else SAME_32)[engine]
        assert np.array_equal(learner.theta[1], learner.theta[2])


@every_engine
@every_dtype
@pytest.mark.parametrize("case", ["θ → 2θ", "e grows with ρ", "F grows with ρ", "e where nothing is active any more"])
@pytest.mark.parametrize("K", [None, 1])
def test_by_learn(engine: str, dtype: str, case: str, K: int | None) -> None:
    """``learn`` refuses the same step, counted by ``steps``; after it, and after a ``cut``, life goes on."""
    rule, log = GROWING[case]
    with mode(rule, dtype):
        end = plain_end(case, dtype)
        learner = learner_of(rule, log, engine, dtype, K)
        names = ("alpha", "I", "lambda_", "rho", "R", "gamma_next")
        Phi, Phi_next = log.Phi.astype(dtype), log.Phi_next.astype(dtype)
        log.run(learner, end.step - 20)
        for t in range(end.step - 20, end.step):
            learner.learn(phi=Phi[t], phi_next=Phi_next[t], **{name: log.at(name, t) for name in names})
        theta, e, kept = learner.theta, learner.e, memory(learner)
        for _ in range(2):
            with pytest.raises(Diverged, match=f"step {end.step} of learning") as info:
                learner.learn(
                    phi=Phi[end.step], phi_next=Phi_next[end.step], **{name: log.at(name, end.step) for name in names}
                )
            assert (info.value.step, info.value.learner, learner.steps) == (end.step, 0, end.step)
        same = (SAME if dtype == "float64" else SAME_32)[engine]
        for got, wanted in ((learner.theta, theta), (learner.e, e), (memory(learner), kept)):
            scale = 2.0 ** -np.frexp(max(np.abs(wanted).max(), 1e-300))[1]
            assert relative_error(got * scale, wanted * scale) <= same
        learner.learn(0.1, 1.0, 0.9, 0 * Phi[0], 0.0, 1.0, 0 * Phi[0], 0.0)  # ρ = 0 and γ' = 0 forget the past
        assert learner.steps == end.step + 1
        learner.cut()
        learner.theta = np.zeros_like(theta)
        fresh = learner_of(rule, log, engine, dtype, K)
        for each in (learner, fresh):
            each.run(log.Phi[:40], 1.0, 0.5, alpha=0.1, lambda_=0.8, Phi_next=log.Phi[1:41])
        assert fresh.e.any()
        assert np.array_equal(learner.theta, fresh.theta)
        assert np.array_equal(learner.e, fresh.e)


@every_engine
@every_dtype
@pytest.mark.parametrize("seed", range(12))
def test_where_sums_cancel_the_state_is_still_that_of_the_steps_before(engine: str, dtype: str, seed: int) -> None:
    """Wild streams, dense and Active: whenever it stops, it stands where the steps before that lead."""
    rng = np.random.default_rng(seed)
    n, steps, K = int(rng.integers(2, 30)), 400, [None, 3][seed % 2]
    k = min(n, 3)
    index = np.array([rng.choice(n, k, replace=False) for _ in range(steps + 1)])
    p: dict[str, Any] = {
        "alpha": 5.0,
        "lambda_": rng.choice([0.0, 0.5, 1.0], steps),
        "rho": rng.choice([1.0, 2.0, 10.0], steps),
        "R": rng.normal(size=steps),
        "gamma_next": rng.choice([0.9, 0.99], steps),
    }
    rule = ["td", "etd", "true_online_etd"][seed % 3]
    with mode(rule, dtype):
        Phi = Active(index, rng.normal(size=index.shape).astype(np.float32))
        learner = Learner(rule, n, K, engine=engine, dtype=dtype)
        with pytest.raises(Diverged) as info:
            learner.run(Phi, **p)
        t = info.value.step
        assert learner.steps == t > 0
        assert finite(learner)
        before = Learner(rule, n, K, engine=engine, dtype=dtype)
        predictions = before.run(Active(Phi.indices[: t + 1], Phi.values[: t + 1]), **{
            name: value if np.ndim(value) == 0 else value[:t] for name, value in p.items()
        })  # fmt: skip
        assert np.isfinite(predictions).all()
        if (
            engine != "chunked"
        ):  # it ended in a longer chunk here, and a wild stream magnifies the last bit without bound
            assert apart(learner, before) <= {"float64": 1e-8, "float32": 1e-2}[dtype] * (engine == "sparse")


@every_engine
@pytest.mark.parametrize("K", [None, 2])
@pytest.mark.parametrize(("dtype", "power"), [("float64", 960), ("float32", 105)])
@pytest.mark.parametrize("rule", ["td", "true_online_etd"])
def test_close_to_the_end_of_the_range_nothing_changes(
    engine: str, K: int | None, dtype: str, power: int, rule: str
) -> None:
    """θ is linear in R, so R·2ᵖ must give θ·2ᵖ: to the bit, but for the sparse engine, whose steps are others there."""
    rng = np.random.default_rng(5)
    n, steps = 20, 300
    index = np.array([rng.choice(n, 3, replace=False) for _ in range(steps + 1)])
    R = rng.normal(size=steps)
    p: dict[str, Any] = {
        "gamma_next": rng.choice([0.0, 0.9, 0.99], steps),
        "alpha": 0.05,
        "lambda_": rng.choice([0.0, 0.5, 0.9], steps),
        "rho": rng.choice([0.5, 1.0, 1.5], steps),
    }
    low, high = (Learner(rule, n, K, engine=engine, dtype=dtype) for _ in range(2))
    scale = 2.0**power
    small, large = low.run(Active(index), R, **p), high.run(Active(index), R * scale, **p)
    tolerance = {"float64": 1e-12, "float32": 1e-4}[dtype] * (engine in ("sparse", "chunked"))
    assert np.abs(high.theta).max() > 0.01 * scale
    assert relative_error(high.theta / scale, low.theta) <= tolerance
    assert relative_error(large / scale, small) <= tolerance
    assert relative_error(high.e, low.e) <= tolerance


@every_engine
@every_dtype
@pytest.mark.parametrize("K", [None, 2])
def test_up_to_the_end_of_the_range_and_back(engine: str, dtype: str, K: int | None) -> None:
    """A trace that grows to within a factor 4 of infinity and shrinks again is no divergence, and comes back exact.

    (Within the 1e100 below which the sparse engine counts what is left of a trace as nothing.)
    """
    start, up = {"float64": (2.0**801, 220), "float32": (2.0**25, 100)}[dtype]
    rho = np.array([2.0] * up + [0.5] * up + [1.0])
    Phi = np.zeros((len(rho) + 1, 4))
    Phi[0, 0] = Phi[-2, 1] = Phi[-1, 2] = start
    with mode("td", dtype):
        learner = Learner("td", 4, K, engine=engine, dtype=dtype)
        quietly(learner, Phi, 0.0, 1.0, alpha=0.0, lambda_=1.0, rho=rho)
        assert np.array_equal(np.atleast_2d(learner.e)[-1], [start, start, 0.0, 0.0])


@every_engine
@pytest.mark.parametrize("K", [None, 2])
@pytest.mark.parametrize("by", ["run", "learn"])
def test_a_prediction_that_float32_cannot_hold(engine: str, K: int | None, by: str) -> None:
    """θ is finite and so is δ in float64, but θ·φ is no float32: that is divergence, not an infinity in the answer."""
    learner = Learner("true_online_etd", 2, K, dtype="float32", engine=engine)
    theta = np.full(2 if K is None else (K, 2), 3e38, np.float32)
    learner.theta = theta
    one = np.ones(2, np.float32)
    calls = {
        "run": lambda: learner.run(np.ones((3, 2)), 0.0, 0.5, alpha=0.0),
        "learn": lambda: learner.learn(0.0, 1.0, 0.0, one, 1.0, 0.0, one, 0.5),
    }
    with pytest.raises(Diverged):
        calls[by]()
    assert np.array_equal(learner.theta, theta)
    assert learner.steps == 0


@every_engine
@pytest.mark.parametrize("R", [1.7e308, -1.7e308])
def test_the_error_itself(engine: str, R: float) -> None:
    """δ = R − θ·φ overflows although R, θ and φ are fine."""
    learner = Learner("true_online_etd", 1, engine=engine)
    learner.theta = [-R]
    with pytest.raises(Diverged):
        learner.run(np.ones((3, 1)), R, 0.0, alpha=0.0)
    with pytest.raises(Diverged):
        learner.learn(0.0, 1.0, 0.0, np.ones(1), 1.0, R, np.ones(1), 0.0)
    assert (learner.theta[0], learner.steps) == (-R, 0)
    learner.theta = [0.0]
    assert learner.learn(0.0, 1.0, 0.0, np.ones(1), 1.0, R, np.ones(1), 0.0) == R


@pytest.mark.plain
@pytest.mark.parametrize("engine", ["reference", "dense"])
@pytest.mark.parametrize("K", [None, 2])
def test_features_whose_square_overflows(engine: str, K: int | None) -> None:
    """φ = 1e200 is a number like another, though φ·φ and e·φ are none: no warning, no divergence while θ stands still.

    (The sparse engine makes θ·φ of H·φ, in which e·φ has a part: it says Diverged from the second step on.)
    """
    learner = Learner("td", 2, K, engine=engine)
    learner.theta = np.full(2 if K is None else (K, 2), 1e-200)
    predictions = learner.run(np.full((4, 2), 1e200), 0.0, 0.5, alpha=0.0)
    assert relative_error(predictions, np.full_like(predictions, 2.0)) <= 1e-12
    delta = learner.learn(0.0, 1.0, 0.0, np.full(2, 1e200), 1.0, 0.0, np.full(2, 1e200), 0.5)
    assert relative_error(delta, np.full_like(delta, -1.0)) <= 1e-12
    with pytest.raises(Diverged):
        learner.run(np.full((4, 2), 1e200), 5.0, 0.5, alpha=1.0)


def test_the_first_step_of_an_undecided_learner() -> None:
    for phi in (np.ones(2), Active([0, 1])):
        learner = Learner("true_online_etd", 2)
        learner.theta = [1e308, 1e308]
        with pytest.raises(Diverged, match="step 0"):
            learner.learn(0.1, 1.0, 0.0, phi, 1.0, 0.0, phi, 0.5)
        assert np.array_equal(learner.theta, [1e308, 1e308])
        assert learner.steps == 0


def test_with_a_probe() -> None:
    """The step is counted from the start of the call, though the probe cuts the call into pieces."""
    rule, log = GROWING["θ → 2θ"]
    end = plain_end("θ → 2θ", "float64")
    for engine in ENGINES:
        learner = learner_of(rule, log, engine, "float64")
        with np.errstate(over="ignore"), pytest.raises(Diverged) as info:
            log.run(learner, probe=([[1.0]], [0.0], [1.0]), probe_every=100)
        assert info.value.step == learner.steps == end.step


def test_the_exception_travels() -> None:
    """Between processes, as cluster and multiprocessing send it."""
    error = Diverged(7, 3, of="learning", remedy="another log")
    other = pickle.loads(pickle.dumps(error))
    assert (str(other), other.step, other.learner) == (str(error), 7, 3)
    assert isinstance(error, ArithmeticError)
