"""The lazy form is exact: its error stays near 4e-16 / 1e-2 wherever its scales shrink, grow or vanish."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import emphatic
from emphatic.engines import sparse
from emphatic.engines import sparse as lazy
from emphatic.engines.sparse import sparse_many_kernels as columns_kernels
from tests.support.streams import relative_error

#: What closing an epoch at 1/100 of its peak may cost; the bound of SPARSE.md with room for the sums of a long run.
BOUND = 100 * 4e-16 / lazy.SHRUNK
n, ACTIVE = 60, 4


def features(rng: np.random.Generator, T: int, signed: bool) -> emphatic.Active:
    """Few states visited again and again, as in tile coding, and now and then none of some."""
    states = np.array([rng.choice(n, ACTIVE, replace=False) for _ in range(40)])
    index = states[rng.integers(0, len(states), T + 1)]
    index[rng.random(index.shape) < 0.05] = -1
    return emphatic.Active(index, rng.normal(size=index.shape) if signed else None)


def gap(T: int, seed: int = 0, signed: bool = False, rule: str = "true_online_etd", **p: Any) -> float:
    """The largest relative difference between the sparse and the dense engine."""
    rng = np.random.default_rng(seed)
    Phi = features(rng, T, signed)
    R = rng.normal(size=T)
    gamma = p.pop("gamma_next")
    seen: list[npt.NDArray[Any]] = []
    for engine in ("dense", "sparse"):
        learner = emphatic.Learner(rule, n, engine=engine)
        predictions = learner.run(Phi, R, gamma, **p)
        seen.append(np.concatenate([learner.theta, predictions]))
        seen.append(learner.e)
    assert np.abs(seen[0]).max() > 0.01
    return max(relative_error(seen[2], seen[0]), relative_error(seen[3], seen[1]))


T = 20_001
RNG = np.random.default_rng(3)
ALPHA = 0.05
PLACES: dict[str, dict[str, Any]] = {
    "γλ near 1": {"alpha": ALPHA, "lambda_": 0.9999, "gamma_next": 0.9999, "I": 1e-4},
    "γλ = 1 for long": {"alpha": ALPHA, "lambda_": 1.0, "gamma_next": np.where(np.arange(T) % 1000 == 999, 0.0, 1.0)},
    "γλ = .5": {"alpha": ALPHA, "lambda_": 5 / 9, "gamma_next": 0.9, "I": 0.1},
    "tiny γλ": {"alpha": ALPHA, "lambda_": 1e-7, "gamma_next": 0.9},
    "λ = 0": {"alpha": ALPHA, "lambda_": 0.0, "gamma_next": 0.9},
    "γ = 0": {"alpha": ALPHA, "lambda_": 1.0, "gamma_next": 0.0},
    "ρ = 0 at times": {"alpha": ALPHA, "lambda_": 0.9, "gamma_next": 0.9, "rho": RNG.choice([0.0, 1.0, 2.0], T)},
    "ρ > 1 grows the trace, ρ = 0 ends it": {
        "alpha": 1e-10,
        "lambda_": 1.0,
        "gamma_next": 1.0 - 1e-9,
        "rho": np.where(np.arange(T) % 100 == 99, 0.0, np.where(np.arange(T) % 100 < 60, 1.4, 0.5)),
    },
    "ρ alternates wildly": {
        "alpha": 1e-3, "lambda_": 1.0, "gamma_next": 0.9, "rho": np.where(np.arange(T) % 2, 100.0, 0.001),
    },
    "everything": {
        "alpha": ALPHA * RNG.random(T),
        "lambda_": RNG.choice([0.0, 0.5, 0.99, 1.0], T),
        "gamma_next": RNG.choice([0.0, 0.5, 0.99, 1.0], T),
        "rho": RNG.choice([0.0, 0.5, 1.0, 1.5], T),
        "I": RNG.choice([0.0, 0.1, 1.0], T),
    },
}  # fmt: skip


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("signed", [False, True], ids=["binary", "signed"])
@pytest.mark.parametrize("rule", ["true_online_etd", "td"])
def test_the_error_is_bounded(place: str, signed: bool, rule: str) -> None:
    p = dict(PLACES[place])
    if signed or rule == "td":
        p["alpha"] = np.asarray(p["alpha"]) * 0.2
    assert gap(T, signed=signed, rule=rule, **p) <= BOUND


def test_a_million_steps_lose_nothing() -> None:
    """Millions of epochs through a table of 4,096: sweeps, dead epochs and all."""
    T = 1_000_000
    rng = np.random.default_rng(5)
    p: dict[str, Any] = {
        "alpha": ALPHA * rng.random(T),
        "lambda_": rng.choice([0.0, 0.3, 0.9, 1.0], T),
        "gamma_next": rng.choice([0.0, 0.9, 0.99, 1.0], T),
        "rho": rng.choice([0.0, 0.5, 1.0, 1.5], T),
        "I": rng.choice([0.0, 0.1, 1.0], T),
    }
    assert gap(T, **p) <= BOUND


@pytest.mark.plain
def test_what_never_closing_would_cost(monkeypatch: pytest.MonkeyPatch) -> None:
    """The bound is not idle: without epochs the same streams are far off."""
    steps = 2001
    assert gap(steps, **PLACES["γλ = .5"]) <= BOUND
    monkeypatch.setattr(lazy, "SHRUNK", 0.0)
    monkeypatch.setattr(lazy, "LOW", 1e-280)
    sparse.kernel.cache_clear()
    try:
        assert gap(steps, **PLACES["γλ = .5"]) > 1e3 * BOUND
    finally:
        monkeypatch.undo()
        sparse.kernel.cache_clear()


def test_cost_is_in_columns_touched_not_in_n() -> None:
    """No timing: after a run, only columns that were active have been written to."""
    size = 1_000_000
    rng = np.random.default_rng(0)
    index = rng.integers(0, size // 32, size=(2001, 32)) + np.arange(32) * (size // 32)
    learner = emphatic.Learner("true_online_etd", size, engine="sparse")
    learner.run(emphatic.Active(index), rng.normal(size=2000), 0.99, alpha=0.01, lambda_=0.99, I=0.01)
    engine: Any = learner._engine
    touched = np.flatnonzero((engine._columns["H1"] != 0.0) | (engine._columns["E1"] != 0))
    assert set(touched) <= set(index.ravel().tolist())
    assert engine._epoch[0] > 0


def test_reading_changes_nothing() -> None:
    """θ, e and predictions are read through the lazy form without settling it."""
    learner = emphatic.Learner("true_online_etd", n, engine="sparse")
    rng = np.random.default_rng(1)
    Phi = features(rng, 300, signed=True)
    learner.run(Phi, rng.normal(size=300), 0.9, alpha=ALPHA, lambda_=0.8)
    engine: Any = learner._engine
    before = [array.copy() for array in engine._state]
    one = emphatic.Active(Phi.indices[7], Phi.values[7])
    theta, e = learner.theta, learner.e
    assert relative_error(learner.predict(one), theta @ one.rows.dense(n, "float64")[0]) <= 1e-13
    assert relative_error(learner.predict(Phi), Phi.rows.dense(n, "float64") @ theta) <= 1e-13
    assert all(np.array_equal(a, b) for a, b in zip(before, engine._state, strict=True))
    learner.copy()
    engine._settle()
    assert relative_error(learner.theta, theta) <= 1e-15
    assert relative_error(learner.e, e) <= 1e-15
    assert engine._scale[2] == 0.0


@pytest.mark.parametrize("signed", [False, True], ids=["binary", "signed"])
@pytest.mark.parametrize("rule", ["true_online_etd", "td"])
def test_learners_of_every_kind_side_by_side(signed: bool, rule: str) -> None:
    """All the places above in one horde, several times over so that they share and do not share blocks of lanes."""
    steps = 3001
    rng = np.random.default_rng(5)
    Phi, R = features(rng, steps, signed), rng.normal(size=steps)
    kinds = list(PLACES.values())
    order = rng.integers(0, len(kinds), 2 * columns_kernels.LANES + 10)
    less = 0.2 if signed or rule == "td" else 1.0

    def each(name: str, default: float) -> npt.NDArray[Any]:
        rows = [np.broadcast_to(kind.get(name, default), T)[:steps] for kind in kinds]
        return np.stack(rows, axis=1) * (less if name == "alpha" else 1.0)

    given: dict[str, Any] = {name: each(name, 1.0) for name in ("alpha", "lambda_", "gamma_next", "rho", "I")}
    alone = emphatic.Learner(rule, n, len(kinds), engine="dense")
    expected = alone.run(Phi, R, **given)
    horde = emphatic.Learner(rule, n, len(order), engine="sparse")
    begin = 0
    for end in (1, 2, 1700, steps):  # in a few calls
        part = emphatic.Active(Phi.indices[begin : end + 1], Phi.values[begin : end + 1])
        here: dict[str, Any] = {name: value[begin:end][:, order] for name, value in given.items()}
        made = horde.run(part, R[begin:end], **here)
        assert relative_error(made, expected[begin:end][:, order]) <= BOUND
        begin = end
    for name in ("theta", "e"):
        for k in range(len(order)):
            assert relative_error(getattr(horde, name)[k], getattr(alone, name)[order[k]]) <= BOUND


def test_who_forgets_does_not_make_the_others_pay() -> None:
    """Learner 0 forgets its trace every third step, learner 1 at every step, and the others, far off, hardly ever.

    A column that a learner has no business with may hold anything: not a number, say.
    """
    K, far = columns_kernels.LANES + 2, columns_kernels.LANES + 1
    learner = emphatic.Learner("true_online_etd", n, K, engine="sparse")
    rng = np.random.default_rng(0)
    lambda_ = np.full(K, 0.999)
    lambda_[1] = 0.0

    def step(t: int, index: npt.NDArray[np.int64]) -> None:
        rho = np.ones(K)
        rho[0] = float(t % 3 > 0)
        learner.learn(0.01, 0.1, lambda_, emphatic.Active(index), rho, rng.normal(), emphatic.Active(index), 0.999)

    old, new = np.arange(0, 20), np.arange(20, 40)
    for t in range(30):
        step(t, rng.choice(old, 4, replace=False))
    step(30, rng.choice(new, 4, replace=False))  # here 0 has just paid for all
    H = learner._engine._fields()["H"]  # type: ignore[attr-defined]
    before = learner.theta.copy()
    trace = H[old, 1].copy()
    assert (trace[:, far] != 0.0).any()
    for k in (0, 1, far):  # 0 and 1 have nothing there any more, and the last is not to be visited
        H[old, 1, k] = np.nan
    for t in range(31, 90):
        step(t, rng.choice(new, 4, replace=False))
    H[old, 1] = trace
    assert np.isfinite(learner.theta).all()
    assert np.isfinite(learner.e).all()
    assert np.array_equal(learner.theta[:2, old], before[:2, old])
    assert not np.array_equal(learner.theta[far, old], before[far, old])


@pytest.mark.plain
@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize(
    ("rule", "stepsize", "K"),
    [
        ("td", None, None),
        ("proximal_gtd2", None, None),
        ("td", None, 3),
        ("td", "tidbd", None),
        ("true_online_td", "swifttd", None),
    ],
)
def test_growth_where_there_is_no_trace_is_saved_and_loaded(
    rule: str, stepsize: str | None, K: int | None, dtype: str, tmp_path: Path
) -> None:
    """ργλ = 3.6 for 1,000 steps without a feature, after one that left no trace: C must not overflow where X is 0."""
    rng, T = np.random.default_rng(9), 1040
    index = np.full((T + 1, 2), -1)
    index[0, 0] = 2
    index[1000:] = [rng.permutation(4)[:2] for _ in range(41)]
    late = np.arange(T) >= 1000
    R, rho, I = np.where(late, rng.normal(size=T), 0.0), np.where(late, 0.5, 4.0), np.where(late, 1.0, 0.0)
    theta, alpha = {}, 0.1 if stepsize is None else 1.0
    for engine in ("reference", "sparse"):
        learner = emphatic.Learner(rule, 4, K, dtype=dtype, engine=engine, stepsize=stepsize)
        for begin, end in ((0, 995), (995, T)):
            given: dict[str, Any] = {"rho": rho[begin:end], "I": I[begin:end]}
            learner.run(emphatic.Active(index[begin : end + 1]), R[begin:end], 0.9, alpha=alpha, lambda_=1.0, **given)
            learner.save(tmp_path / "model.safetensors")
            learner = emphatic.load(tmp_path / "model.safetensors")
        theta[engine] = learner.theta
    assert np.abs(theta["reference"]).max() > 1e-3
    assert np.allclose(theta["sparse"], theta["reference"], rtol=0, atol=1e-12 if dtype == "float64" else 1e-5)
