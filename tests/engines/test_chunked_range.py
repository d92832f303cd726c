"""The chunked engine at the ends of the number range: it loses a learner only where the dense engine does.

A chunk multiplies the scales of its steps with each other, and φ with φ; such products may leave the range, or lose
their digits, though no number of any learner does. And what it does about learners that are frozen, or about to be.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from emphatic import rules
from emphatic.engines.base import Engine, Steps, Watch
from emphatic.engines.chunked import LANES, STEPS, Chunked, Room
from emphatic.engines.dense import Dense
from tests.support.streams import relative_error

Array = npt.NDArray[Any]

every_dtype = pytest.mark.parametrize("dtype", ["float64", "float32"])
RULE = "true_online_etd"


@dataclass(frozen=True)
class Log:
    """T steps of K learners: φ (T+1, n); parameters that go to (T, K); X before, (m, K, n)."""

    Phi: Array
    X: Array
    R: Any = 1.0
    alpha: Any = 0.1
    I: Any = 1.0
    lambda_: Any = 1.0
    rho: Any = 1.0
    gamma_next: Any = 0.9

    @property
    def T(self) -> int:
        return len(self.Phi) - 1

    def parameters(self, T: int, ks: slice) -> tuple[Array, ...]:
        shape = self.T, self.X.shape[1]
        made = (getattr(self, name) for name in rules.get(RULE).parameters)
        return tuple(np.broadcast_to(np.asarray(p, np.float64), shape)[:T, ks] for p in made)


@dataclass(frozen=True)
class Outcome:
    status: int
    engine: Any
    frozen: Array
    predictions: Array


def run(
    kind: type[Engine], log: Log, *, stop: int | None = None, ks: slice = slice(None), cuts: tuple[int, ...] = (),
    freeze: bool = False, **options: Any,
) -> Outcome:  # fmt: skip
    """The steps before ``stop`` of these learners, in as many calls as there are cuts, and one."""
    X = log.X[:, ks]
    K, T, dtype = X.shape[1], log.T if stop is None else stop, X.dtype.name
    engine: Any = kind(rules.get(RULE), X.shape[2], K, dtype, **options)
    for r, vector in enumerate(X):
        engine.put(r, vector)
    watch = Watch(np.zeros(K, bool), freeze)
    Phi = log.Phi.astype(dtype)
    phi, phi_next, top = Phi[:-1], Phi[1:], float(np.abs(Phi).max())
    parameters, predictions, status = log.parameters(T, ks), np.full((T, K), np.nan, dtype), -1
    for begin, end in zip((0, *cuts), (*cuts, T), strict=True):
        if status == -1:
            part = tuple(p[begin:end] for p in parameters)
            rows, rows_next, room = phi[begin:end], phi_next[begin:end], predictions[begin:end]
            status = engine.run(Steps(rows, rows_next, top, part, room, watch))
            status += begin * K if status >= 0 else 0
    return Outcome(status, engine, watch.frozen, predictions)


def quiet(T: int, dtype: str, **parameters: Any) -> Log:
    """Steps on which no feature is active, from θ = 1."""
    X = np.zeros((2, 3, 2), dtype)
    X[0] = 1.0
    return Log(np.zeros((T + 1, 2)), X, **parameters)


def assert_same(got: Outcome, wanted: Outcome, tolerance: float) -> None:
    """Status, who is frozen, the counts of steps, X and memory, each learner's to its own scale."""
    assert got.status == wanted.status
    assert np.array_equal(got.frozen, wanted.frozen)
    a, b = got.engine, wanted.engine
    assert np.array_equal(a.scalars[:, -1], b.scalars[:, -1])
    for x, y in ((a.X, b.X), (a.scalars[:, None, : a.M].T, b.scalars[:, None, : b.M].T)):
        assert np.isfinite(x).all()
        scale = 2.0 ** -np.frexp(np.maximum(np.abs(y), 1e-30).max(axis=2, keepdims=True))[1].astype(np.longdouble)
        assert relative_error(x * scale, y * scale) <= tolerance


@pytest.mark.parametrize(("dtype", "rho", "steps"), [("float32", 4.0, 100), ("float64", 400.0, 130)])
def test_the_product_of_all_scales_may_be_beyond_the_range(dtype: str, rho: float, steps: int) -> None:
    """ργλ = 3.6 a hundred times is beyond float32; e is 0 all the while. (And F, which must not overflow either.)"""
    log = quiet(steps, dtype, rho=rho, I=0.0)
    got = run(Chunked, log)
    assert got.status == -1
    assert np.array_equal(got.engine.X, log.X)
    # So it is if a trace is so small that it stays in the range.
    log.Phi[0] = 1.0
    log = replace(log, I=np.eye(steps)[:, :1] * np.finfo(dtype).tiny)
    assert_same(run(Chunked, log), run(Dense, log), 1e-5)
    assert run(Dense, log).engine.X[1].max() > 1e6


@every_dtype
def test_what_a_later_step_forgets_may_be_beyond_the_range(dtype: str) -> None:
    """Scales whose product overflows, then ρ = 0: nothing is left of them. Or a step that is forgotten overflows."""
    T = 120
    large = {"float32": 1e4, "float64": 1e20}[dtype]
    rho = np.full((T, 1), large)
    rho[[40, 80, 110]] = 0.0
    log = quiet(T, dtype, rho=rho)
    assert_same(run(Chunked, log), run(Dense, log), 0.0)
    rng = np.random.default_rng(0)
    Phi = rng.normal(size=(T + 1, 3))
    alpha = np.full((T, 1), 0.05)
    alpha[rho[:, 0] == 0.0] = large**6  # ραM = 0, however large α
    log = Log(Phi, rng.normal(size=(2, 3, 3)).astype(dtype), alpha=alpha, rho=np.where(rho > 0.0, 1.0, 0.0))
    assert_same(run(Chunked, log), run(Dense, log), {"float32": 1e-4, "float64": 1e-12}[dtype])


@every_dtype
def test_what_has_faded_is_left_out_and_what_is_small_is_not(dtype: str) -> None:
    """Products with numbers at the end of the range can take a hundred times as long; those in W are what is left of
    steps long past. A trace that is small from the start, and one that fades without a step after it, are kept."""
    rng, T = np.random.default_rng(2), STEPS
    tiny, decay = float(np.finfo(dtype).tiny), {"float32": 0.4, "float64": 0.003}[dtype]
    Phi, X = rng.normal(size=(T + 1, 4)), rng.normal(size=(2, 3, 4)).astype(dtype)
    tolerance = {"float32": 1e-4, "float64": 1e-12}[dtype]
    log = Log(Phi, X, lambda_=decay)
    got = run(Chunked, log)
    assert_same(got, run(Dense, log), tolerance)
    assert decay**T < tiny
    W = Room.of(got.engine, T, T + 1).W
    assert (W[:, 1] == 0.0).mean() > 0.1
    assert not ((np.abs(W) < tiny) & (W != 0.0)).any()
    for small in (replace(log, alpha=1e3 * tiny, lambda_=1.0), replace(log, I=np.eye(T)[:, :1], lambda_=decay**0.5)):
        assert_same(run(Chunked, small), run(Dense, small), tolerance)


@every_dtype
@pytest.mark.parametrize("power", [-0.35, 0.35, 0.52])
def test_products_of_features_may_be_beyond_the_range(dtype: str, power: float) -> None:
    """α φ·φ is as always, but φ_t·φ_s, which the dense engine need not know, is infinite, or 0, or not exact.

    Every other φ is of size 1 where φ·φ would be infinite.
    """
    rng = np.random.default_rng(1)
    scale, most = 2.0 ** int(power * np.finfo(dtype).maxexp), float(np.finfo(dtype).max)
    Phi = (rng.normal(size=4) + 0.1 * rng.normal(size=(61, 4))) * scale
    if power > 0.5:
        Phi[::2] /= scale
    X = np.zeros((2, 3, 4), dtype)
    X[0] = rng.normal(size=(3, 4)) / scale
    log = Log(Phi, X, alpha=min(0.05 / scale / scale, most / 1e4), lambda_=0.8, R=rng.normal(size=(60, 1)))
    got, wanted = run(Chunked, log), run(Dense, log)
    assert wanted.status == -1
    tolerance = {"float32": 1e-4, "float64": 1e-11}[dtype]
    assert_same(got, wanted, tolerance)
    assert relative_error(got.predictions, wanted.predictions) <= tolerance


@every_dtype
def test_digits_are_not_lost_where_scales_grow_and_the_update_takes_it_back(dtype: str) -> None:
    """With one feature e ← c(1 − b)e + b stays near b, however fast cᵗ grows; a chunk would subtract cᵗ from cᵗ."""
    rng = np.random.default_rng(2)
    Phi = np.where(rng.random((301, 1)) < 0.8, 1.0, 0.9)
    log = Log(Phi, np.zeros((2, 3, 1), dtype), rho=2.0, alpha=[0.4, 0.45, 0.5], R=rng.normal(size=(300, 1)))
    got, wanted = run(Chunked, log), run(Dense, log)
    assert np.abs(wanted.engine.X).max() < 10.0
    assert_same(got, wanted, {"float32": 1e-3, "float64": 1e-7}[dtype])


def hostile(rng: np.random.Generator, dtype: str) -> Log:
    """ρ up to 10, α of any size, φ of any size and 0 for a while, long products, θ near the end of the range."""
    K, n, T = int(rng.integers(2, 5)), int(rng.integers(2, 7)), int(rng.integers(8, 2 * STEPS))
    ten = float(np.log10(np.finfo(dtype).max))

    def pick(*choices: Any) -> Any:
        return choices[rng.integers(len(choices))]

    def shape() -> Any:
        return pick((1, 1), (T, 1), (1, K), (T, K))

    Phi = pick(rng.normal(size=(T + 1, n)), np.eye(n)[rng.integers(n, size=T + 1)])
    Phi = Phi * 10.0 ** pick(0.0, 0.0, 0.0, -3.0, 3.0, -0.3 * ten, 0.3 * ten, -0.6 * ten, 0.6 * ten)
    begin, end = sorted(rng.integers(0, T + 1, 2))
    Phi[begin:end] *= pick(0.0, 1.0)
    square = min(max(np.abs(Phi).max(), 1e-150), 1e150) ** 2
    X = np.zeros((2, K, n), dtype)
    X[0] = rng.normal(size=(K, n)).clip(-3, 3) * pick(0.0, 1.0, 1e-30, 1e10, 10.0 ** (ten - 1.0))
    most = pick(1.0, 2.0, 4.0, 10.0)
    return Log(
        Phi.astype(dtype),
        X,
        R=rng.normal(size=shape()) * 10.0 ** pick(0.0, 0.0, 10.0, -10.0, 0.8 * ten),
        alpha=pick(0.1, 0.5, 1.0) / square if rng.random() < 0.6 else 10.0 ** rng.uniform(-0.8 * ten, 0.8 * ten),
        lambda_=pick(0.0, 0.9, 1.0, rng.choice([0.0, 0.5, 1.0], size=shape())),
        rho=pick(most, rng.uniform(0.0, most, shape()), rng.choice([0.0, 1.0, most], size=shape(), p=[0.1, 0.4, 0.5])),
        gamma_next=pick(0.0, 0.9, 1.0, rng.choice([0.0, 0.9, 1.0], size=shape())),
    )


@every_dtype
def test_hostile_streams_end_as_on_the_dense_engine(dtype: str) -> None:
    """The same step and learner is named, the same learners freeze at the same step, and every number stays finite."""
    diverged = 0
    for seed in range(150):
        log = hostile(np.random.default_rng(seed), dtype)
        got, wanted = run(Chunked, log), run(Dense, log)
        assert got.status == wanted.status, seed
        assert np.isfinite(got.engine.X).all(), seed
        assert np.isfinite(got.engine.scalars).all(), seed
        diverged += got.status >= 0
        got, wanted = run(Chunked, log, freeze=True), run(Dense, log, freeze=True)
        assert got.status == wanted.status == -1
        assert np.array_equal(got.frozen, wanted.frozen), seed
        assert np.array_equal(got.engine.scalars[:, -1], wanted.engine.scalars[:, -1]), seed
        assert np.isfinite(got.engine.X).all(), seed
    assert 30 < diverged < 120


K, T, N = LANES + 40, 2 * STEPS + 50, 6


def horde(rho: Any = 1.0, **changed: Any) -> Log:
    """More learners than lanes, more steps than a chunk."""
    rng = np.random.default_rng(4)
    Phi = rng.normal(size=(T + 1, N)) / 2.0
    X = np.zeros((2, K, N))
    X[0] = rng.normal(size=(K, N))
    R = rng.normal(size=(T, K))
    return replace(Log(Phi, X, alpha=0.05, lambda_=rng.uniform(0, 0.9, (1, K)), rho=rho, R=R), **changed)


def wild(*ks: int) -> Log:
    """The same, in which these learners diverge in the second chunk."""
    rho = np.ones((T, K))
    rho[STEPS + 20 :, list(ks)] = 1e9
    return horde(rho)


def test_who_diverges_harms_nobody() -> None:
    """With ``freeze`` all others are as they would be beside tame ones, to the bit."""
    bad = [3, LANES + 7]
    got, tame = run(Chunked, wild(*bad), freeze=True), run(Chunked, horde())
    assert np.flatnonzero(got.frozen).tolist() == bad
    parts = run(Chunked, wild(*bad), freeze=True, threads=2, cuts=(got.engine.grain[0],))
    assert np.array_equal(parts.engine.X, got.engine.X)
    assert np.array_equal(parts.predictions, got.predictions)
    others = ~got.frozen
    assert np.array_equal(got.engine.X[:, others], tame.engine.X[:, others])
    assert np.array_equal(got.engine.scalars[others], tame.engine.scalars[others])
    assert np.array_equal(got.engine.delta[others], tame.engine.delta[others])
    assert np.array_equal(got.predictions[:, others], tame.predictions[:, others])
    # The frozen ones stand before the step that they could not take, and go on predicting.
    for k in bad:
        steps = int(got.engine.scalars[k, -1])
        assert STEPS + 20 < steps < T
        before = run(Dense, wild(*bad), stop=steps, ks=slice(k, k + 1))
        assert relative_error(got.engine.X[:, k], before.engine.X[:, 0]) < 1e-9
        predicted = horde().Phi[steps:T] @ got.engine.X[0, k]
        assert relative_error(got.predictions[steps:, k] / predicted, np.ones(T - steps)) < 1e-12


def test_all_stand_before_the_same_step() -> None:
    got, wanted = run(Chunked, wild(3, LANES + 7)), run(Dense, wild(3, LANES + 7))
    assert got.status == wanted.status > STEPS * K
    step = got.status // K
    assert (got.engine.scalars[:, -1] == step).all()
    before = run(Chunked, wild(3, LANES + 7), stop=step)
    assert_same(replace(got, status=-1), before, 1e-11)
