"""Rules that nobody has written: whatever their names and structure, every engine agrees with the reference."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import emphatic
from emphatic import Rule
from tests.attack.own_rules import own_elementwise_rules
from tests.support.plain import plain_python
from tests.support.random_rules import NASTY, rules
from tests.support.streams import TOLERANCE, Stream, make, relative_error

ENGINES = [engine for engine in emphatic.engines.available() if engine != "reference"]


def outcome(rule: Rule, engine: str, stream: Stream, own: dict[str, Any], **kind: Any) -> dict[str, Any]:
    """Everything that a learner has after the stream, and what it predicted."""
    learner = emphatic.Learner(rule, stream.n, stream.K, engine=engine, **kind)
    learner.theta = np.random.default_rng(1).normal(size=learner.theta.shape).astype(np.float32)
    Phi, Phi_next = stream.features()
    half = stream.T // 2
    p: dict[str, Any] = stream.parameters()
    R, gamma_next = p.pop("R"), p.pop("gamma_next")
    predictions = learner.run(Phi, R, gamma_next, Phi_next=Phi_next, **p, **own)
    for t in range(half):  # and a few steps one by one
        phi, phi_next = stream.step_features(t)
        step = {name: value[t] for name, value in {**p, **own}.items()}
        learner.learn(phi=phi, phi_next=phi_next, R=R[t], gamma_next=gamma_next[t], **step)
    found = {name: getattr(learner, name) for name in rule.vectors + rule.memory}
    return {**found, "predictions": predictions}


def disagreements(rule: Rule, engine: str, K: int | None, dtype: str, active: int | None, seed: int) -> list[str]:
    """Where the engine and the reference differ."""
    stream = make(seed, 23, 5, K, active=active, binary=False, separate=active is not None)
    rng = np.random.default_rng(seed)
    own = {name: rng.uniform(0.0, 1.0, stream.R.shape) for name in rule.extra}
    wanted = outcome(rule, "reference", stream, own)
    got = outcome(rule, engine, stream, own, dtype=dtype)
    errors = {name: relative_error(got[name], wanted[name]) for name in wanted}
    return [f"{name} is off by {error:.1e}" for name, error in errors.items() if not error <= TOLERANCE[dtype]]


@pytest.mark.parametrize("engine", ENGINES)
@settings(max_examples=40)
@given(rule=rules(), K=st.sampled_from((None, 1, 3)), dtype=st.sampled_from(("float64", "float32")),
       active=st.sampled_from((None, 3)), seed=st.integers(0, 99))  # fmt: skip
def test_random_rules_as_plain_python(
    engine: str, rule: Rule, K: int | None, dtype: str, active: int | None, seed: int
) -> None:
    with plain_python():
        assert disagreements(rule, engine, K, dtype, active, seed) == [], rule.source


@settings(max_examples=40)
@given(seed=st.integers(0, 9999))
def test_random_elementwise_rules_are_right_or_refused(seed: int) -> None:
    own_elementwise_rules(np.random.default_rng(seed))


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.long
def test_a_rule_of_many_nasty_names_compiled(engine: str) -> None:
    assert disagreements(NAMESAKE, engine, None, "float64", 3, seed=5) == []


def namesake(step, memory, x, x_next, g):  # type: ignore[no-untyped-def]
    """Parameters that are called like what kernels call their own."""
    alpha, I, lambda_, rho, gamma_next, delta, p, q, k, X, size, real = step
    (c,) = memory
    _, z = x
    w = alpha * delta * p * q + 0.1 * k * X
    return ((1, w * c * lambda_), (0, c * lambda_ * size)), ((w, 0), (rho, 0)), (gamma_next * real + 0.01 * z,)


NAMESAKE = Rule(
    "namesake", namesake, weights=("theta",), traces=("e",), memory=("c",), extra=("p", "q", "k", "X", "size", "real")
)


@pytest.mark.parametrize("names", [NASTY[i : i + 6] for i in range(0, len(NASTY), 6)], ids=" ".join)
def test_every_nasty_name_is_a_parameters_name(names: tuple[str, ...]) -> None:
    """The same numbers under any names, on every engine as plain Python."""

    def scaled(step, memory, x, x_next, g):  # type: ignore[no-untyped-def]
        alpha, I, lambda_, rho, gamma_next, delta, one, two, three, four, five, six = step
        (gamma,) = memory
        w = one * two * alpha * delta + 0.1 * three * four
        return ((1.0, w * gamma * lambda_), (0.0, gamma * lambda_ * five)), ((w, 0.0), (six, 0.0)), (gamma_next,)

    extra = (*names, *[f"spare{i}" for i in range(6 - len(names))])
    rule = Rule("scaled", scaled, weights=("theta",), traces=("e",), memory=("gamma",), extra=extra)
    with plain_python():
        for engine in ENGINES:
            if engine != "cuda":  # an interpreter within an interpreter: the random rules have such names there too
                assert disagreements(rule, engine, 3, "float64", 3, seed=1) == []
