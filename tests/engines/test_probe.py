"""Freezing and probing as part of a run: each learner is as if it were alone, and stopped at its own step.

What a run is compared with are single learners of the reference engine that step one at a time. θ only grows on this
stream, so that no sum cancels and every engine stops a learner at exactly the same step.
"""

from __future__ import annotations

import functools
import itertools
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import scipy.sparse as sp

import emphatic
from emphatic import Diverged, Learner
from emphatic.engines import dense
from emphatic.engines.base import Probe
from emphatic.engines.dense import lanes

Array = npt.NDArray[Any]

pytestmark = pytest.mark.xdist_group("true_online_etd")  # with test_diverged, which compiles the same kernels of td

T = 3 * lanes.STEPS + 37
#: Two that live; two that stop in one chunk of steps, others in others. For any K these come again and again.
ALPHA = {
    "float64": np.array([1e-3, 8.0, 64.0, 0.2, 16.0, 512.0, 9.0]),
    "float32": np.array([1e-3, 0.5, 8.0, 0.2, 1.0, 16.0, 4.0]),
}
#: Of a number that has grown for hundreds of steps.
CLOSE = {"float64": 1e-10, "float32": 1e-2}
#: Learners: one, few, and two full blocks of lanes with a ragged last one.
LANES = 2 * lanes.LANES + 3


def log(n: int) -> dict[str, Array]:
    rng = np.random.default_rng(1)
    Phi = rng.random((T, n)) * (rng.random((T, n)) < 0.5) * np.sqrt(6 / n)
    return {"Phi": Phi, "Phi_next": 1.5 * Phi, "R": rng.random(T)}


def states(n: int, S: int = 9) -> tuple[Array, Array, Array]:
    rng = np.random.default_rng(2)
    return rng.random((S, n)), rng.normal(size=S), rng.random(S)


def rmsve(probe: tuple[Array, Array, Array], theta: Array) -> Any:
    """The sum over states as it stands, in which no part overflows before the whole does."""
    Phi_s, v, d = probe
    with np.errstate(over="ignore"):
        off = (np.atleast_2d(theta).astype(np.float64) @ Phi_s.T - v) * np.sqrt(d / d.sum())
        return np.sqrt(np.square(off).sum(axis=1))


@dataclass(frozen=True)
class Alone:
    """One learner: the step before which it stopped (T if it never did), and its prediction and error at each."""

    stop: int
    theta: Array
    predictions: Array
    errors: Array


@functools.cache
def alone(n: int, dtype: str, which: int) -> Alone:
    given, probe = log(n), states(n)
    learner = Learner("td", n, engine="reference", dtype=dtype)
    predictions, errors, stop = np.empty(T, dtype), np.empty(T), T
    for t in range(T):
        with np.errstate(all="ignore"):
            predictions[t] = learner.predict(given["Phi"][t])
        errors[t] = rmsve(probe, learner.theta)[0]
        if t < stop:
            try:
                learner.learn(
                    ALPHA[dtype][which], 1.0, 0.5, given["Phi"][t], 1.0, given["R"][t], given["Phi_next"][t], 0.9
                )
            except Diverged:
                stop = t
    return Alone(stop, learner.theta, predictions, errors)


def run(learner: Learner, of: Array, begin: int = 0, end: int = T, **options: Any) -> Any:
    part: dict[str, Any] = {name: value[begin:end] for name, value in log(learner.n).items()}
    alpha = ALPHA[learner.dtype][of]
    options = {"probe": states(learner.n), "on_divergence": "freeze"} | options
    alpha = alpha[0] if learner.K is None else alpha[None]
    return learner.run(gamma_next=0.9, lambda_=0.5, alpha=alpha, **part, **options)


def differences(learner: Learner, of: Array, predictions: Array | None, errors: Array, every: int = 1) -> list[str]:
    """Where a horde and its answers are not those of its learners alone."""
    found, close = [], CLOSE[learner.dtype]
    frozen, theta = np.atleast_1d(learner.frozen), np.atleast_2d(learner.theta)
    for k, which in enumerate(of):
        one = alone(learner.n, learner.dtype, which)
        steps = learner.steps if learner.K is None else learner.select([k]).steps
        column = errors if learner.K is None else errors[:, k]
        if (steps, bool(frozen[k])) != (one.stop, one.stop < T):
            found.append(f"learner {k} stopped at {steps}, not at {one.stop}")
        if not np.allclose(theta[k], one.theta, rtol=close):
            found.append(f"the weights of learner {k}")
        if not np.allclose(column, one.errors[::every], rtol=close):
            found.append(f"the errors of learner {k}")
        made = None if predictions is None else predictions if learner.K is None else predictions[:, k]
        if made is not None and not np.allclose(made, one.predictions, rtol=close):
            found.append(f"the predictions of learner {k}")
    return found


def differences_in_blocks(K: int, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The same of K dense learners whose features are converted a hundred steps at a time, with every seventh error."""
    monkeypatch.setattr("emphatic.learning.learner._CONVERTED", 6 * 100)
    of, learner = np.arange(K) % 7, Learner("td", 6, K, engine="dense")
    given: dict[str, Any] = log(6) | {name: sp.csr_array(log(6)[name]) for name in ("Phi", "Phi_next")}
    predictions, errors = learner.run(
        gamma_next=0.9, lambda_=0.5, alpha=ALPHA["float64"][of][None], **given, probe=states(6), probe_every=7,
        on_divergence="freeze",
    )  # fmt: skip
    return differences(learner, of, predictions, errors, 7)


def test_the_learners_stop_where_they_are_meant_to() -> None:
    for dtype in ALPHA:
        stops = [alone(6, dtype, which).stop for which in range(7)]
        chunks = [stop // lanes.STEPS for stop in stops if stop < T]
        assert stops.count(T) == 2
        assert len(set(chunks)) == 3 < len(chunks)
        assert len(set(stops)) == 6


@pytest.mark.parametrize(
    ("engine", "n", "K", "dtype"),
    [
        ("reference", 6, 7, "float64"),
        ("sparse", 6, 7, "float64"),
        ("chunked", 6, 7, "float64"),
        *(("dense", 6, K, "float64") for K in (None, 1, 7, LANES)),
        *(pytest.param("dense", 6, K, "float32", marks=pytest.mark.long) for K in (None, 1, 7, LANES)),
        ("dense", 23, 7, "float64"),
        ("dense", 70, 7, "float64"),
    ],
)
@pytest.mark.parametrize("cuts", [(), (1, 2, 100, lanes.STEPS, lanes.STEPS + 1, 2 * lanes.STEPS, T - 1)])
def test_each_is_as_if_alone(
    engine: str, n: int, K: int | None, dtype: str, cuts: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """In one call and in several: those after the first begin with learners that are frozen."""
    monkeypatch.setattr(dense, "_PROBED", 64)  # so that 70 features are too many for the kernel
    for first in range(7) if K in (None, 1) else (0,):
        of = (first + np.arange(K or 1)) % 7
        learner = Learner("td", n, K, engine=engine, dtype=dtype)
        edges = (0, *cuts, T)
        parts = [run(learner, of, begin, end) for begin, end in itertools.pairwise(edges)]
        predictions, errors = (np.concatenate(part) for part in zip(*parts, strict=True))
        assert differences(learner, of, predictions, errors) == []


@pytest.mark.parametrize("engine", ["reference", "dense"])
@pytest.mark.parametrize("every", [2, 7, lanes.STEPS, T, 5 * T])
def test_every_so_many_steps_and_without_predictions(engine: str, every: int) -> None:
    """Also where this many do not divide the run or a chunk."""
    of = np.arange(7 if engine == "reference" else LANES) % 7
    learner = Learner("td", 6, len(of), engine=engine)
    predictions, errors = run(learner, of, probe_every=every, predictions=False)
    assert predictions is None
    assert differences(learner, of, None, errors, every) == []


@pytest.mark.parametrize("K", [7, LANES])
def test_features_that_are_converted_a_block_at_a_time(K: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The errors go on every seventh step of the call, not of each block."""
    assert differences_in_blocks(K, monkeypatch) == []


@pytest.mark.parametrize("K", [7, LANES])
def test_when_all_have_stopped(K: int) -> None:
    """Nothing moves any more, and the answers are those of the last weights."""
    of = np.array([1, 2, 4, 5, 6] * K)[:K]
    learner = Learner("td", 6, K, engine="dense")
    predictions, errors = run(learner, of)
    assert learner.frozen.all()
    assert differences(learner, of, predictions, errors) == []
    theta = learner.theta
    predictions, errors = run(learner, of, 5, 300)
    assert np.array_equal(learner.theta, theta)
    with np.errstate(over="ignore"):
        assert np.allclose(predictions, log(6)["Phi"][5:300] @ theta.T)
    assert (errors == errors[0]).all()


@pytest.mark.parametrize(
    ("K", "probed"), [(7, False), (7, True), (LANES, True), pytest.param(LANES, False, marks=pytest.mark.long)]
)
def test_without_freezing_all_stand_before_the_same_step(K: int, probed: bool) -> None:
    """Also where some had been frozen before: these do not stop the others, nor do they move."""
    of = np.arange(K) % 7
    options: dict[str, Any] = {"on_divergence": "raise", "probe": states(6) if probed else None}
    stops = [alone(6, "float64", which).stop for which in range(7)]
    soon, second = sorted(stops)[:2]
    first = of == stops.index(soon)
    learner, plain = (Learner("td", 6, K, engine="dense") for _ in range(2))
    with pytest.raises(Diverged) as info:
        run(learner, of, **options)
    assert (info.value.step, info.value.learner) == (soon, stops.index(soon))
    run(plain, of, 0, soon, **options)
    assert np.array_equal(learner.theta, plain.theta)
    assert {learner.select([k]).steps for k in range(K)} == {soon}
    run(learner, of, soon, soon + 1)
    assert np.array_equal(learner.frozen, first)
    with pytest.raises(Diverged) as info:
        run(learner, of, soon + 1, **options)
    assert (info.value.step, info.value.learner) == (second - soon - 1, stops.index(second))
    assert [learner.select([k]).steps for k in range(K)] == np.where(first, soon, second).tolist()


@pytest.mark.parametrize("S", [1, 4, 6, 7, 40])
@pytest.mark.parametrize("rank", [1, 3, 6])
def test_the_error_is_the_sum_over_states(S: int, rank: int) -> None:
    """Fewer states than features and more; features that depend on one another; weights of 0; values no θ can have."""
    rng = np.random.default_rng(S + 100 * rank)
    probe = (rng.normal(size=(S, rank)) @ rng.normal(size=(rank, 6)), rng.normal(size=S), rng.random(S))
    probe[2][1:3] = 0.0
    made = Probe.of(*probe)
    assert made.R.shape == (1, min(S, 7), 7)
    theta = rng.normal(size=(5, 6)) * np.array([0.0, 1e-3, 1.0, 1e3, 1e100])[:, None]
    assert np.allclose(made(theta), rmsve(probe, theta), rtol=1e-12, atol=0.0)
    best = np.linalg.lstsq(np.sqrt(probe[2])[:, None] * probe[0], np.sqrt(probe[2]) * probe[1])[0]
    assert np.allclose(made(best[None]), rmsve(probe, best), rtol=1e-12, atol=1e-14)
    for K in (2, 9):  # the same by the kernels
        learner = Learner("td", 6, K, engine="dense")
        for weights in (theta[3], theta[4], best):
            learner.theta = np.tile(weights, (K, 1))
            _, errors = learner.run(np.zeros((3, 6)), 0.0, 0.0, alpha=0.0, probe=probe)
            assert np.allclose(errors, made(weights[None]), rtol=1e-12, atol=1e-14)


def engines_and_learners(*counts: int | None) -> list[Any]:
    """Chunked learners of so few steps go on side by side without a probe: another kernel, which compiles for long."""
    return [
        pytest.param(engine, K, marks=pytest.mark.long if (engine, K) == ("chunked", 9) else ())
        for engine in emphatic.engines.available()
        for K in counts
    ]


@pytest.mark.parametrize(("engine", "K"), engines_and_learners(None, 2, 9))
def test_an_error_too_large_for_a_number_is_infinity(engine: str, K: int | None) -> None:
    """Never NaN, though the parts of the sum cancel, and without a warning."""
    learner = Learner("td", 6, K, engine=engine)
    probe: Any = ([[1e10, -1e10, 1.0, 0.0, 1.0, 2.0], [1.0, -1e10, 1.0, 1.0, 1.0, 0.0]], [1.0, 2.0], [1.0, 1.0])
    for size in (1e300, 1e160):
        learner.theta = np.full(6 if K is None else (K, 6), size)
        _, errors = learner.run(np.zeros((3, 6)), 0.0, 0.0, alpha=0.0, probe=probe, on_divergence="freeze")
        assert (errors == np.inf).all()


@pytest.mark.parametrize(("engine", "K"), engines_and_learners(1, 5, 9))
def test_each_learner_may_have_values_and_weights_of_its_own(engine: str, K: int) -> None:
    """As K runs with one goal each, also of those that are frozen; a weight or values for all go with the others."""
    rng, of = np.random.default_rng(3), np.arange(K) % 7
    Phi_s, v, d = rng.random((9, 6)), rng.normal(size=(K, 9)), rng.random((K, 9))
    for values, weights in ((v, d), (v[0], d), (v, d[0])):
        learner = Learner("td", 6, K, engine=engine)
        probe: Any = (Phi_s, values, weights)
        _, errors = run(learner, of, 0, 400, probe=probe, probe_every=9)
        for k in range(K):
            own: Any = (Phi_s, *(part[k] if part.ndim == 2 else part for part in (values, weights)))
            one = Learner("td", 6, 1, engine=engine)
            alone_ = run(one, of[k : k + 1], 0, 400, probe=own, probe_every=9)[1][:, 0]
            assert np.allclose(errors[:, k], alone_, rtol=1e-12)


def test_goals_that_do_not_fit_are_refused() -> None:
    learner, Phi_s = Learner("td", 6, 3, engine="reference"), np.ones((9, 6))
    for v, d in ((np.ones((2, 9)), np.ones(9)), (np.ones(9), np.zeros((3, 9))), (np.ones(8), np.ones(9))):
        with pytest.raises(ValueError, match=r"v and d of shape \(S,\) or \(3, S\), all finite, with weights d that"):
            learner.run(np.ones((3, 6)), 0.0, 0.0, alpha=0.1, probe=(Phi_s, v, d))
