"""Rules that nobody has written: whatever their names and structure, every engine agrees with the reference."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import emphatic
from emphatic import Rule
from tests.attack.own_rules import compare, own_elementwise_rules, own_rules
from tests.support.plain import plain_python
from tests.support.random_rules import NASTY

ENGINES = [engine for engine in emphatic.engines.available() if engine != "reference"]


@settings(max_examples=80)
@given(seed=st.integers(0, 9999))
def test_random_rules_as_plain_python(seed: int) -> None:
    own_rules(np.random.default_rng(seed))


@settings(max_examples=40)
@given(seed=st.integers(0, 9999))
def test_random_elementwise_rules_are_right_or_refused(seed: int) -> None:
    own_elementwise_rules(np.random.default_rng(seed))


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.long
def test_a_rule_of_many_nasty_names_compiled(engine: str) -> None:
    compare(NAMESAKE, np.random.default_rng(5), (engine,), NAMESAKE.source)


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
        compare(rule, np.random.default_rng(1), ("dense", "sparse", "chunked"), rule.source)
