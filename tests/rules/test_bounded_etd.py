"""Bounded ETD: what its three bounds do, what is refused, and where it is true online ETD to the bit."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import emphatic
from emphatic import Learner, Rule
from tests.support.contract import streams
from tests.support.equations import RULES
from tests.support.looping import for_each
from tests.support.streams import Stream, make, relative_error

every_engine = for_each(engine=emphatic.engines.available())
pytestmark = pytest.mark.plain
#: Without the ends of the range, and with ends that no prediction comes near.
WIDE: tuple[dict[str, Any], ...] = ({}, {"low": -math.inf, "high": math.inf}, {"low": -1e6, "high": [math.inf, 1e6]})


def test_streams_meet_every_bound() -> None:
    """Each in some steps and not in others, or a slip in it would be caught by chance."""
    below, above, far, large = ([] for _ in range(4))
    for _, stream, _, theta_0 in streams("bounded_etd", None):
        s = stream.sequence(None, theta_0)
        result = RULES["bounded_etd"](s)
        v_next = np.sum(result.Theta[:-1] * s.Phi_next, axis=1)
        below.append(s.low is not None and v_next < s.low)
        above.append(s.high is not None and v_next > s.high)
        assert result.M is not None
        far.append(2.0 * s.rho * s.alpha * result.M * np.sum(s.Phi**2, axis=1) > 1.0)
        large.append(s.rho > 1.0)
    for met in (below, above, far, large):
        assert 0.05 < max(np.mean(steps) for steps in met) < 0.6


def on_policy(stream: Stream) -> Stream:
    """ρ = 1 at every step, and α so small that αMφ·φ ≤ ½."""
    return replace(stream, rho=np.ones_like(stream.rho), alpha=stream.alpha / 20.0, extra={})


def taught(rule: str, engine: str, stream: Stream, dtype: str = "float64", **extra: Any) -> tuple[Learner, Any]:
    learner = Learner(rule, stream.n, stream.K, engine=engine, dtype=dtype)
    learner.theta = np.random.default_rng(3).normal(size=np.shape(learner.theta)).astype(np.float32)
    Phi, Phi_next = stream.features()
    parameters: dict[str, Any] = stream.parameters() | extra
    predictions = learner.run(Phi, Phi_next=Phi_next, **parameters)
    phi, phi_next = stream.step_features(0)
    for t in range(3):
        learner.learn(phi=phi, phi_next=phi_next, **stream.parameters(t), **extra)
    return learner, predictions


@every_engine
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_emphasis_does_not_overflow(engine: str, dtype: str) -> None:
    """Where every action is π's, and rare by μ: F = 2.7 F + 1 is beyond every float after 714 steps."""
    learner = Learner("bounded_etd", 1, engine=engine, dtype=dtype)
    learner.run(np.ones((2001, 1)), np.ones(2000), 0.9, alpha=0.01, lambda_=0.5, rho=3.0, low=0.0, high=10.0)
    assert learner.predict(np.ones(1)) == pytest.approx(10.0)
    assert abs(learner.F / 1e30 - 1.0) < 1e-6


@every_engine
@pytest.mark.parametrize("K", [None, 2, 9])
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_on_policy_within_its_bounds_it_is_true_online_etd_to_the_bit(engine: str, K: int | None, dtype: str) -> None:
    for given in ({"separate": True}, {"active": 3, "binary": False}):
        stream = on_policy(make(6, 45, 6, K, **given))
        wanted, predictions = taught("true_online_etd", engine, stream, dtype)
        for extra in WIDE[: 3 if K == 2 else 2]:
            learner, found = taught("bounded_etd", engine, stream, dtype, **extra)
            assert np.array_equal(found, predictions)
            for name in ("theta", "e", "D", "F"):
                assert np.array_equal(getattr(learner, name), getattr(wanted, name)), name
        assert np.ptp(predictions) > 0.1


@every_engine
@pytest.mark.parametrize("bound", [{"rho": 1.5}, {"alpha": 5.0}, {"low": -0.1}, {"high": 0.1}])
def test_each_bound_makes_a_difference(engine: str, bound: dict[str, Any]) -> None:
    stream = on_policy(make(6, 45, 6))
    changes: dict[str, Any] = {
        name: np.full(stream.T, value) for name, value in bound.items() if name in ("rho", "alpha")
    }
    stream, extra = replace(stream, **changes), {name: value for name, value in bound.items() if name not in changes}
    _, bounded = taught("bounded_etd", engine, stream, **extra)
    with np.errstate(all="ignore"):
        _, unbounded = taught("true_online_etd", engine, stream)
    assert relative_error(bounded, unbounded) > 1e-4


@every_engine
@pytest.mark.parametrize("alpha", [1.0, 1e3, 1e150])
def test_no_step_overshoots(engine: str, alpha: float) -> None:
    """Whatever α, ρ and I are: states of their own feature each, of any size, never leave the range of the targets.

    A φ of zeros takes no step.
    """
    rng = np.random.default_rng(5)
    T, n = 300, 4
    states = np.vstack([np.eye(n) * [1e-8, 1.0, 3.0, 1e8], np.zeros((1, n))])
    path = rng.integers(0, n + 1, T + 1)
    R, gamma_next = rng.uniform(-1.0, 0.5, T), np.full(T, 0.9)
    learner = Learner("bounded_etd", n, engine=engine)
    varying: dict[str, Any] = {"rho": rng.choice([0.0, 1.0, 4.0], T), "I": rng.choice([0.0, 1.0, 5.0], T)}
    predictions = learner.run(states[path], R, gamma_next, alpha=alpha, lambda_=0.0, low=-10.0, high=5.0, **varying)
    assert predictions.min() >= -10.0
    assert predictions.max() <= 5.0
    assert np.ptp(predictions) > 1.0
    assert np.isfinite(learner.theta).all()


# ------------------------------------------------------------------ bad input

BAD: tuple[tuple[dict[str, Any], str], ...] = (
    ({"low": 1.0, "high": 0.5}, r"'low' .* be at most 'high'\. Got 1\.0 with 'high' = 0\.5 instead\. Exchange the two"),
    ({"low": 2, "high": -math.inf}, r"'high' .* be finite or inf\. Got -inf instead"),
    ({"low": math.inf}, r"'low' .* be finite or -inf\. Got inf instead"),
    ({"low": math.nan}, r"'low' .* be finite or -inf\. Got nan instead"),
    ({"high": math.nan}, r"'high' .* be finite or inf\. Got nan instead"),
    ({"low": "0"}, r"'low' .* be real numbers\. Got '0' instead"),
    ({"high": None}, r"'high' .* be real numbers"),
)
OF_SEVERAL: tuple[tuple[dict[str, Any], str], ...] = (
    ({"low": [0.0, 0.5], "high": [0.0, 0.4]}, r"Got 0\.5 with 'high' = 0\.4 at learner 1 instead"),
    ({"low": [-math.inf, 0.5], "high": 0.4}, r"Got 0\.5 with 'high' = 0\.4 at learner 1 instead"),
    ({"low": 0.5, "high": [math.inf, 0.4]}, r"Got 0\.5 with 'high' = 0\.4 at learner 1 instead"),
    ({"low": [0.0, math.nan]}, r"'low' .* be finite or -inf\. Got nan at learner 1 instead"),
)
IN_RUN: tuple[tuple[dict[str, Any], str], ...] = (
    ({"low": [0.0, 0.0, 9.0], "high": 1.0}, r"Got 9\.0 with 'high' = 1\.0 at step 2 instead"),
    ({"low": 1.0, "high": [2.0, 0.0, 0.0]}, r"Got 1\.0 with 'high' = 0\.0 at step 1 instead"),
    ({"low": [0.0, 0.5], "high": [[9.0], [0.5], [0.2]]}, r"Got 0\.5 with 'high' = 0\.2 at step 2, learner 1 instead"),
    (
        {"low": [[0.0, 0.0]] * 2 + [[0.0, 7.0]], "high": 1.0},
        r"Got 7\.0 with 'high' = 1\.0 at step 2, learner 1 instead",
    ),
    ({"high": [[0.0, 0.0]] * 2 + [[0.0, math.nan]]}, r"'high' .* Got nan at step 2, learner 1 instead"),
)


@every_engine
@pytest.mark.parametrize("K", [None, 2])
def test_ends_that_are_no_range_are_named_and_change_nothing(engine: str, K: int | None) -> None:
    phi = np.eye(4)
    learner = Learner("bounded_etd", 4, K, engine=engine)
    learner.learn(0.1, 1.0, 0.9, phi[0], 1.0, 1.0, phi[1], 0.9, low=0.5, high=0.5)
    state = [np.copy(getattr(learner, name)) for name in ("theta", "e", "D", "F", "_taken")]
    assert state[0].any()
    for bad, words in (*BAD, *(OF_SEVERAL if K else ())):
        with pytest.raises(ValueError, match=words):
            learner.learn(0.1, 1.0, 0.9, phi[1], 1.0, 1.0, phi[2], 0.9, **bad)
        with pytest.raises(ValueError, match=words):
            learner.run(phi, 1.0, 0.9, alpha=0.1, **bad)
    for bad, words in IN_RUN if K else IN_RUN[:2]:
        with pytest.raises(ValueError, match=words):
            learner.run(phi, 1.0, 0.9, alpha=0.1, **bad)
    for name, before in zip(("theta", "e", "D", "F", "_taken"), state, strict=True):
        assert np.array_equal(getattr(learner, name), before), name


# ------------------------------------------------------------------ rules of one's own


def between(step: Any, memory: Any, x: Any, x_next: Any, g: Any) -> Any:
    """θ ← θ + α min(max(δ, least), most)φ"""
    alpha, I, lambda_, rho, gamma_next, delta, least, most = step
    return ((1.0,),), ((alpha * min(max(delta, least), most), 0.0),), ()


PARTS: dict[str, Any] = {
    "weights": ("theta",),
    "traces": (),
    "memory": (),
    "extra": ("least", "most"),
    "defaults": {"least": -math.inf, "most": math.inf},
    "ordered": ("least", "most"),
}


@every_engine
def test_a_rule_of_ones_own_with_ordered_parameters(engine: str) -> None:
    rule, phi = Rule("between", between, **PARTS), np.eye(3)
    cases: tuple[tuple[dict[str, Any], list[float]], ...] = (
        ({}, [0.5, -0.5, 0.0]),
        ({"least": -math.inf, "most": np.full(2, math.inf)}, [0.5, -0.5, 0.0]),
        ({"most": math.inf}, [0.5, -0.5, 0.0]),
        ({"most": 1e9}, [0.5, -0.5, 0.0]),
        ({"most": 2.0}, [0.2, -0.5, 0.0]),
        ({"least": -2.0}, [0.5, -0.2, 0.0]),
        ({"least": np.array([-math.inf, -4.0]), "most": 1.0}, [0.1, -0.4, 0.0]),
    )
    for given, theta in cases:
        learner = Learner(rule, 3, engine=engine)
        learner.run(phi, [5.0, -5.0], 0.0, alpha=0.1, **given)
        assert learner.theta.tolist() == theta
    learner = Learner(rule, 3, engine=engine)
    words = r"'least' .* be at most 'most'\. Got 1\.0 with 'most' = 0\.0 instead"
    with pytest.raises(ValueError, match=words):
        learner.run(phi, 1.0, 0.0, alpha=0.1, least=1.0, most=0.0)
    with pytest.raises(ValueError, match=words):
        learner.learn(0.1, 1.0, 0.9, phi[0], 1.0, 1.0, phi[1], 0.9, least=1.0, most=0.0)
    assert not learner.theta.any()


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"ordered": ("least",)}, r"'ordered' .* be a pair of extra parameters, or \(\)\. Got"),
        ({"ordered": ["least", "most"]}, r"'ordered' .* be a pair of extra parameters"),
        ({"ordered": ("alpha", "most")}, r"'ordered' .* here least, most\. Got 'alpha' instead"),
        ({"ordered": ("most", "least")}, r"'defaults' .* be in order, 'most' at most 'least'\. Got inf and -inf"),
        ({"defaults": {"least": math.nan}}, r"'defaults' .* be finite numbers, ∞, −∞, 'eta', or names"),
        ({"extra_ranges": {"least": (0.0, math.inf)}}, r"'defaults' .* from 0 to inf for 'least'\. Got -inf"),
        ({"extra_ranges": {"most": (0.0, 1.0)}}, r"'defaults' .* from 0 to 1 for 'most'"),
    ],
)  # fmt: skip
def test_an_order_that_cannot_be_is_refused(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        Rule("between", between, **PARTS | changes)


@pytest.mark.parametrize("stepsize", ["alphabound", "decaying", "scaled"])
def test_step_size_methods_keep_the_range_and_its_order(stepsize: str) -> None:
    stream = replace(make(4, 60, 6, 3, rule="bounded_etd"), extra={})
    parameters: dict[str, Any] = stream.parameters() | {"alpha": 0.5}

    def after(**extra: Any) -> Any:
        learner = Learner("bounded_etd", 6, 3, engine="dense", stepsize=stepsize)
        learner.run(stream.Phi, **parameters, **extra)
        return learner.theta

    assert np.array_equal(after(low=-math.inf, high=math.inf), after())
    assert relative_error(after(low=-0.1, high=0.1), after()) > 1e-4
    with pytest.raises(ValueError, match=r"'low' .* be at most 'high'\. Got 1\.0 with 'high' = 0\.0"):
        after(low=1.0, high=0.0)
