"""What must not change the result: the symmetries of the rules, and the ways of feeding the same steps.

Each holds by the equations alone (`tests.support.equations`), for any stream, any rule and any engine; none needs
another implementation to compare with.
"""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import emphatic
from tests.support.equations import CORE, RULES, Array
from tests.support.looping import for_each
from tests.support.rules import find, name_of
from tests.support.streams import TOLERANCE, Stream, make, relative_error

ENGINES = emphatic.engines.available()
CLOSE = TOLERANCE["float64"]
T, N, K = 27, 5, 3

every_rule = pytest.mark.parametrize("rule", RULES)
every_core_rule = pytest.mark.parametrize("rule", CORE)
WITH_INTEREST = [name for name in RULES if find(name).interest]
every_engine = for_each(engine=ENGINES)


def learner_at(rule: str, engine: str, theta: npt.ArrayLike, **kwargs: Any) -> emphatic.Learner:
    """A new learner whose weights are already `theta`, (n,) or (K, n)."""
    theta = np.asarray(theta, dtype=np.float64)
    learners = len(theta) if theta.ndim == 2 else None
    learner = emphatic.Learner(find(rule), theta.shape[-1], learners, engine=engine, **kwargs)
    learner.theta = theta
    return learner


def stream_for(rule: str, seed: int, T: int = T, n: int = N, **kwargs: Any) -> Stream:
    return make(seed, T, n, rule=rule, **kwargs)


def start(seed: int, *shape: int) -> Array:
    return np.random.default_rng([seed, 7]).normal(size=shape)


def assert_same(a: emphatic.Learner, b: emphatic.Learner) -> None:
    """The same state: every vector and every remembered scalar."""
    for name in b.rule.vectors + b.rule.memory:
        assert relative_error(getattr(a, name), getattr(b, name)) < CLOSE, name


def longest_trace(learner: emphatic.Learner) -> float:
    """The largest component of the trace that is nearest to 0; without traces there is nothing to forget, or to see."""
    return min((float(np.abs(getattr(learner, name)).max()) for name in learner.rule.traces), default=np.inf)


# ------------------------------------------------------------------------------------------------- symmetries


@every_core_rule
@every_engine
@pytest.mark.parametrize("c", [0.125, 3.0])
def test_interest_and_step_size_trade(rule: str, engine: str, c: float) -> None:
    """(α/c, cI) is the same learner as (α, I)."""
    stream = stream_for(rule, 1)
    traded = replace(stream, alpha=stream.alpha / c, I=stream.I * c)
    a, b = (learner_at(rule, engine, start(1, N)) for _ in range(2))
    assert relative_error(traded.run(a), stream.run(b)) < CLOSE
    assert relative_error(a.theta, b.theta) < CLOSE
    assert relative_error(a.e, b.e if rule.startswith("true_online") else c * b.e) < CLOSE


def lively(stream: Stream, k: int) -> Stream:
    """The stream, changed around step k so that what is remembered there matters to what follows."""
    around = slice(k - 2, k + 2)
    for name, value in {"alpha": 0.1, "rho": 1.5, "I": 1.0, "gamma_next": 0.9, "lambda_": 0.7}.items():
        getattr(stream, name)[around] = value
    for name, value in {"lambda_next": 0.2, "pi": 0.9, "mu": 0.6, "xi": 1.1, "decay": 0.6, "period": 9.0}.items():
        if name in stream.extra:
            stream.extra[name][around] = value
    if "period" in stream.extra:
        stream.extra["period"][k + 1] = 0.0  # the period that k is in ends here, while it matters
    stream.Phi[around] = np.random.default_rng(k).normal(size=(4, stream.n)) / np.sqrt(stream.n)
    return stream


@every_core_rule
@every_engine
def test_rho_0_changes_no_weight_and_forgets_the_traces(rule: str, engine: str) -> None:
    """After a step with ρ = 0 the weights are what they were, e = F = D = 0, and a new learner would go on
    alike."""
    for seed, k in ((2, 3), (3, 20)):
        stream = lively(stream_for(rule, seed), k)
        stream.rho[k] = 0.0
        learner = learner_at(rule, engine, start(seed, N))
        stream[:k].run(learner)
        before, e = np.array(learner.theta), np.array(learner.e)
        assert np.abs(e).max() > 1e-2
        stream[k : k + 1].run(learner)
        assert relative_error(learner.theta, before) < 1e-15
        assert not np.any(learner.e)
        for name in {"F", "D"} & set(learner.rule.memory):
            assert getattr(learner, name) == 0.0
        goes_on_like_new(learner, stream[k + 1 :])


@every_rule
@every_engine
def test_gamma_0_forgets_all_but_the_weights(rule: str, engine: str) -> None:
    """From a step with γ' = 0 on, a new learner with the same weights (and lasting memory) would go on alike."""
    for seed, k in ((5, 3), (6, 20)):
        stream = lively(stream_for(rule, seed), k)
        stream.gamma_next[k] = 0.0
        learner = learner_at(rule, engine, start(seed, N))
        stream[: k + 1].run(learner)
        assert longest_trace(learner) > 1e-2
        goes_on_like_new(learner, stream[k + 1 :])


@every_rule
@every_engine
def test_cut_forgets_all_but_the_weights(rule: str, engine: str) -> None:
    """After `cut` a new learner with the same weights (and lasting memory) would go on alike; without it, it would not.

    What a rule declares as lasting by its definition is kept: R̄ of differential rules, the steps of a period."""
    for seed, k in ((8, 3), (9, 20)):
        stream = lively(stream_for(rule, seed), k)
        learner = learner_at(rule, engine, start(seed, N))
        stream[:k].run(learner)
        uncut = learner.copy()
        learner.cut()
        for name in learner.rule.weights + learner.rule.lasting:
            assert relative_error(getattr(learner, name), getattr(uncut, name)) < 1e-15
        assert longest_trace(uncut) > 0.0
        assert all(np.any(getattr(uncut, name)) for name in learner.rule.lasting)
        forgotten = set(learner.rule.traces + learner.rule.memory) - set(learner.rule.lasting)
        assert not any(np.any(getattr(learner, name)) for name in forgotten)
        goes_on_like_new(learner, stream[k:])
        stream[k:].run(uncut)
        differs = relative_error(uncut.theta, learner.theta)
        assert differs > 1e-3 if forgotten else differs == 0.0


def goes_on_like_new(learner: emphatic.Learner, stream: Stream) -> None:
    """As the equations say of a sequence that begins with these weights and lasting memory; and as after a `cut`."""
    lasting: dict[str, Any] = {f"{name}_0": float(getattr(learner, name)) for name in learner.rule.lasting}
    s = replace(stream.sequence(theta_0=learner.theta), **lasting)
    expected = RULES[name_of(learner.rule)](replace(s, w_0=learner.w if "w" in learner.rule.weights else None))
    fresh = learner.copy()
    fresh.cut()
    assert relative_error(stream.run(learner), expected.predictions) < CLOSE
    for name in learner.rule.vectors:
        assert relative_error(getattr(learner, name), expected.last[name]) < CLOSE, name
    stream.run(fresh)
    assert_same(learner, fresh)


# ---------------------------------------------------------------------------------------- one rule as another


@pytest.mark.plain
@every_engine
@pytest.mark.parametrize("plain", ["td", "etd", "etd_beta"])
def test_at_lambda_0_true_online_is_plain(plain: str, engine: str) -> None:
    """Without traces there is nothing to correct; e differs by the factor α_t alone."""
    for seed in (12, 13):
        stream = stream_for(plain, seed, separate=True)
        stream = replace(stream, lambda_=np.zeros(T))
        a, b = (learner_at(rule, engine, start(seed, N)) for rule in (f"true_online_{plain}", plain))
        assert relative_error(stream.run(a), stream.run(b)) < CLOSE
        assert relative_error(a.theta, b.theta) < CLOSE
        assert relative_error(a.e, stream.alpha[-1] * b.e) < CLOSE


@pytest.mark.plain
@every_engine
@pytest.mark.parametrize("prefix", ["", "true_online_"])
def test_beta_as_gamma_and_as_0(prefix: str, engine: str) -> None:
    """β_t = γ_t makes etd_beta etd (β_0 is never used); β = 0 makes it td."""
    stream = stream_for("td", 14, separate=True)
    gamma = np.append(0.6, stream.gamma_next[:-1])
    for decay, rule in ((gamma, f"{prefix}etd"), (np.zeros(T), f"{prefix}td")):
        a, b = (learner_at(name, engine, start(14, N)) for name in (f"{prefix}etd_beta", rule))
        assert relative_error(replace(stream, extra={"decay": decay}).run(a), stream.run(b)) < CLOSE
        assert relative_error(a.theta, b.theta) < CLOSE
        assert relative_error(a.e, b.e) < CLOSE


# ----------------------------------------------------------------------------- ways of feeding the same steps


@every_rule
@settings(max_examples=6)
@given(cuts=st.sets(st.integers(1, 20), max_size=6), by_learn=st.sets(st.integers(0, 6)), seed=st.integers(0, 99))
def test_a_run_may_be_split_anywhere(rule: str, cuts: set[int], by_learn: set[int], seed: int) -> None:
    """One `run`, any split into several, and `learn` for any of the parts: the same predictions and state."""
    stream = stream_for(rule, seed, T=21)
    edges = [0, *sorted(cuts), 21]
    for engine in ENGINES:
        whole, parts = (learner_at(rule, engine, start(seed, N)) for _ in range(2))
        predictions = []
        for i, (first, last) in enumerate(itertools.pairwise(edges)):
            part = stream[first:last]
            predictions.append(part.learn(parts) if i in by_learn else part.run(parts))
        assert relative_error(np.concatenate(predictions), stream.run(whole)) < CLOSE
        assert_same(parts, whole)


@pytest.mark.parametrize("rule", [name for name in WITH_INTEREST if find(name).traces])
@every_engine
def test_a_trace_may_shrink_to_nothing_and_grow_again(rule: str, engine: str) -> None:
    """No trace is too small to matter: with λ = 1 and interest in the first state only, e shrinks to 1e-42 of what it
    was and, as ρ > 1, grows back, while that state's column is never looked at."""
    half, c, traits = 80, 0.3, find(rule)
    rho = np.repeat([c / 0.9, 1 / c / 0.9], half)
    rng = np.random.default_rng(21)
    constant = np.ones(2 * half)
    own = {"beta": 0.5, "decay": 0.5, "period": 2 * half - 1}  # one period: e is restarted with each
    stream = Stream(
        Phi=np.hstack([np.zeros((2 * half + 1, 1)), rng.normal(size=(2 * half + 1, 3))]),
        R=rng.normal(size=2 * half),
        gamma_next=0.9 * constant,
        alpha=0.1 * constant,
        lambda_=constant,
        rho=rho,
        I=0.0 * constant,
        extra={name: own[name] * constant for name in traits.extra if name not in traits.defaults},
    )
    stream.Phi[0], stream.I[0] = [1.0, 0.0, 0.0, 0.0], 1.0
    expected = stream.expected(rule)
    assert np.abs(expected.e).max() > 0.01
    learner = learner_at(rule, engine, np.zeros(4))
    assert relative_error(stream.run(learner), expected.predictions) < CLOSE
    assert relative_error(learner.theta, expected.theta) < CLOSE
    assert relative_error(learner.e, expected.e) < CLOSE
