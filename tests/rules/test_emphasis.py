"""Emphasis where the follow-on trace is far larger than the interest: M = λI + (1−λ)F must not lose I beside F."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest

import emphatic
from tests.support.plain import plain_python
from tests.support.rules import EVERY, find
from tests.support.streams import TOLERANCE, Stream, relative_error

WITH_EMPHASIS = [name for name in EVERY if find(name).emphasis]
ENGINES = emphatic.engines.available()


def large_followon(rule: str, K: int | None, ratio: float = 1e12, T: int = 61, n: int = 6) -> Stream:
    """F/I grows to ``ratio`` before the first feature is seen, and stays; λ is 1 for a while, then 0 or 1.

    Where λ is 0 the step size is as much smaller as M is larger; where e does not contain the step size, from there on.
    No ratio is clipped. A rule with periods, at whose end F is lost, gets the steps with λ = 1 as one period.
    """
    rng = np.random.default_rng(3)
    shape = (T,) if K is None else (T, K)
    growing = int(np.log10(ratio)) + 1
    Phi = rng.normal(size=(T + 1, n)) / np.sqrt(n)
    Phi[:growing] = 0.0
    step = np.arange(T).reshape(-1, *[1] * (len(shape) - 1))
    rho = np.where(step < growing, 10.0, rng.uniform(0.97, 1.03, shape))
    gamma_next = np.where(step < growing, 1.0, rng.uniform(0.97, 1.0, shape))
    lambda_ = np.where(step < T // 2, 1.0, rng.integers(0, 2, shape))
    large = np.where(lambda_ == 1.0, 0.3, 0.1 / ratio)
    alpha = large if rule.startswith("true_online") else np.minimum.accumulate(large, axis=0)
    traits = find(rule)
    own = {"period": np.full(shape, T // 2 - 1.0), "clip": rho, traits.emphasis: gamma_next}
    stream = Stream(
        Phi=Phi, R=rng.normal(size=shape), gamma_next=gamma_next, alpha=alpha, lambda_=lambda_, rho=rho,
        I=np.full(shape, 0.1), extra={name: own[name] for name in traits.extra if name in own},
    )  # fmt: skip
    return stream[: T // 2] if "period" in traits.extra else stream


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("K", [None, 3, 9])
@pytest.mark.parametrize("rule", WITH_EMPHASIS)
@pytest.mark.parametrize("compiled", [False, True])
def test_interest_counts_beside_a_large_followon_trace(rule: str, engine: str, K: int | None, compiled: bool) -> None:
    if compiled and (engine == "cuda" or rule != "true_online_etd"):
        pytest.skip("every engine compiles every rule in the same way")
    with nullcontext() if compiled else plain_python():
        stream = large_followon(rule, K)
        expected = stream.expected(rule)
        learner = emphatic.Learner(find(rule), stream.n, K, engine=engine)
        predictions = stream.run(learner)
        assert np.abs(expected.theta).max() > 0.05
        assert np.min(learner.F) > 1e9
        assert relative_error(predictions, expected.predictions) <= TOLERANCE["float64"]
        for name in learner.rule.vectors:
            scale = np.abs(expected.vectors[name]).max()
            assert relative_error(getattr(learner, name) / scale, expected.vectors[name] / scale) <= 1e-10, name


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("K", [None, 3, 9])
@pytest.mark.parametrize("by", ["run", "learn"])
def test_emphasis_is_the_interest_where_lambda_is_1(engine: str, K: int | None, by: str) -> None:
    """θ = αMR after one step from θ = 0: exactly αIR, whatever F, in compiled code."""
    n = 6  # for many learners of so few features there is a kernel for each n
    for growing in (8, 14, 17, 28):
        learner = emphatic.Learner("true_online_etd", n, K, engine=engine)
        nothing, one = np.zeros(n), np.eye(n)[0]
        learner.run(np.zeros((growing + 1, n)), 0.0, 0.999, alpha=1.0, lambda_=1.0, rho=10.1, I=0.1, predictions=False)
        assert np.min(learner.F) >= 10.0 ** (growing - 1)
        last: dict[str, Any] = {"alpha": 1.0, "lambda_": 1.0, "rho": 1.0, "I": 0.1}
        if by == "run":
            with np.errstate(all="ignore"):
                learner.run(np.array([one, nothing]), 1.0, 0.5, **last)
        else:
            learner.learn(phi=one, phi_next=nothing, R=1.0, gamma_next=0.5, **last)
        assert (learner.theta == 0.1 * one).all(), growing
