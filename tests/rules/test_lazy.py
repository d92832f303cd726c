"""Which elementwise rules move what is not active by A alone: decided from their source, and right on every engine."""

from __future__ import annotations

import math
import pickle
import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import emphatic
from emphatic import Active, Learner, Rule
from emphatic.rules import ElementwiseRule, Scalars, exp
from emphatic.rules._algebra import ANYTHING, largest, variables
from emphatic.stepsizes.weightwise import WeightwiseStepSize
from tests.support.elementwise_rules import WRITTEN_BOTH_WAYS

# ------------------------------------------------------------------------------------------ rules of several kinds


def terms(z: Scalars, p: Any, q: Any) -> Scalars:
    theta, e = z
    return (e * p,)


def function(step: Scalars, memory: Scalars, sums: Scalars) -> Any:
    alpha, I, lambda_, rho, gamma_next, delta = step
    c = memory[0] * lambda_
    return ((1.0, alpha * delta * c), (0.0, c)), (alpha * delta, c), (gamma_next,)


def component(s: Scalars, z: Scalars, p: Any, q: Any) -> Scalars:
    new = s[1] * z[1] + p
    return z[0] + s[0] * new, new


def make_rule(**changed: Any) -> ElementwiseRule:
    given = {"terms": terms, "function": function, "component": component} | changed
    names = {"weights": ("theta",), "traces": ("e",), "memory": ("gamma",)} | {
        name: given.pop(name) for name in ("weights", "traces", "memory") if name in given
    }
    return ElementwiseRule("drafted", **given, **names, interest=False)


def replacing(s: Scalars, z: Scalars, p: Any, q: Any) -> Scalars:
    on = 1.0 * (p * p > 0.0)
    new = s[1] * z[1] * (1.0 - on) + p
    return z[0] + s[0] * new, new


def nonnegative(s: Scalars, z: Scalars, p: Any, q: Any) -> Scalars:
    new = s[1] * z[1] + p
    return max(z[0] + s[0] * new, 0.0), new


def nonnegative_where_active(s: Scalars, z: Scalars, p: Any, q: Any) -> Scalars:
    """Only weights whose feature is active are kept above 0."""
    new = s[1] * z[1] + p
    on = 1.0 * (p > 0.0) + 1.0 * (p < 0.0)
    moved = z[0] + s[0] * new
    return on * max(moved, 0.0) + (1.0 - on) * moved, new


def limited_trace(s: Scalars, z: Scalars, p: Any, q: Any) -> Scalars:
    """A trace that is never above 1.5 is not above it after it has decayed."""
    new = min(s[1] * z[1] + p, 1.5)
    return z[0] + s[0] * new, new


def shrinking(s: Scalars, z: Scalars, p: Any, q: Any) -> Scalars:
    new = s[1] * z[1] + p
    return z[0] + s[0] * new - 0.01 * z[0] * (z[0] > 0.2), new


def guarded(s: Scalars, z: Scalars, p: Any, q: Any) -> Scalars:
    """c is never negative, as γ and λ are not: max(c, 0) is c."""
    new = max(s[1], 0.0) * z[1] + p * exp(-p)
    return z[0] + s[0] * new, new


def onesided(s: Scalars, z: Scalars, p: Any, q: Any) -> Scalars:
    new = s[1] * z[1] + p
    return z[0] + max(s[0], 0.0) * new, new


def onesided_function(step: Scalars, memory: Scalars, sums: Scalars) -> Any:
    alpha, I, lambda_, rho, gamma_next, delta = step
    c = memory[0] * lambda_
    return ((1.0, alpha * max(delta, 0.0) * c), (0.0, c)), (alpha * delta, c), (gamma_next,)


def norm_terms(z: Scalars, p: Any, q: Any) -> Scalars:
    theta, e = z
    return max(e, -e), e * p, max(p, -p)


def norm_function(step: Scalars, memory: Scalars, sums: Scalars) -> Any:
    alpha, I, lambda_, rho, gamma_next, delta = step
    c = memory[0] * lambda_
    a = alpha / max(1.0, alpha * 2.0 * max(max(delta, -delta), 1.0) * (c * sums[0] + sums[2]))
    return ((1.0, a * delta * c), (0.0, c)), (a * delta, c), (gamma_next,)


def counting_terms(z: Scalars, p: Any, q: Any) -> Scalars:
    return (1.0,)


def counting_function(step: Scalars, memory: Scalars, sums: Scalars) -> Any:
    alpha, I, lambda_, rho, gamma_next, delta = step
    c = memory[0] * lambda_
    w = alpha * delta / sums[0]
    return ((1.0, w * c), (0.0, c)), (w, c), (gamma_next,)


LAZY = {
    "plain": make_rule(),
    "replacing": make_rule(component=replacing),
    "nonnegative where active": make_rule(component=nonnegative_where_active),
    "guarded": make_rule(component=guarded),
    "limited trace": make_rule(component=limited_trace),
    "onesided": make_rule(component=onesided, function=onesided_function),
    **{f"{name} written both ways": rule for name, rule in WRITTEN_BOTH_WAYS.items()},
}
NOT_LAZY = {
    "nonnegative": (make_rule(component=nonnegative), r"'component' would have to be A X .* gives .* for 'theta'"),
    "shrinking": (make_rule(component=shrinking), r"'component' would have to be A X .* gives .* for 'theta'"),
    "the norm of e": (make_rule(terms=norm_terms, function=norm_function), r"'terms\[0\]' would have to be 0 .* e = "),
    "a count": (
        make_rule(terms=counting_terms, function=counting_function),
        r"'terms\[0\]' would have to be 0 .* gives 1 ",
    ),
}


@pytest.mark.parametrize("rule", LAZY.values(), ids=LAZY)
def test_a_rule_that_its_source_shows_to_be_lazy(rule: ElementwiseRule) -> None:
    assert rule.not_lazy_because == ""
    assert rule.is_lazy


@pytest.mark.parametrize(("rule", "reason"), NOT_LAZY.values(), ids=NOT_LAZY)
def test_a_rule_that_is_not_lazy_is_refused_on_sparse_with_the_reason(rule: ElementwiseRule, reason: str) -> None:
    assert not rule.is_lazy
    with pytest.raises(ValueError, match=rf"must be 'auto', 'reference' or 'dense' .* Got 'sparse' instead.*{reason}"):
        Learner(rule, 3, engine="sparse")


def test_a_component_that_depends_on_a_sign_runs_where_every_component_is_visited() -> None:
    rule = make_rule(component=onesided)  # its A takes negative errors too
    assert not rule.is_lazy
    assert "must" not in rule.not_lazy_because
    assert "'component'" in rule.not_lazy_because
    indices, R = np.array([[0], [1], [1]]), np.array([1.0, -5.0])
    theta = {}
    for engine in ("reference", "dense", "auto"):
        learner = emphatic.Learner(rule, 2, engine=engine)
        learner.run(emphatic.Active(indices), R, 0.9, alpha=0.5, lambda_=1.0)
        theta[engine] = learner.theta.tolist()
    assert theta["reference"] == theta["dense"] == theta["auto"] == [0.5, 0.0]
    with pytest.raises(ValueError, match="sparse"):
        emphatic.Learner(rule, 2, engine="sparse")


def test_a_linear_component_that_is_not_A_is_a_mistake() -> None:
    def forgotten(s: Scalars, z: Scalars, p: Any, q: Any) -> Scalars:
        new = s[1] * z[1] + p
        return z[0] + s[0] * p, new

    with pytest.raises(ValueError, match=r"'component' parameter of Rule.*must be A X"):
        make_rule(component=forgotten)


# ------------------------------------------------------------------------------------------ eager rules


def eager_function(step: Scalars, memory: Scalars, sums: Scalars) -> Any:
    alpha, I, lambda_, rho, gamma_next, delta = step
    gamma, drop = memory
    c = gamma * lambda_
    a = alpha / max(1.0, alpha * 2.0 * max(max(delta, -delta), 1.0) * (c * sums[0] + sums[2]))
    return ((1.0, a * delta * c), (0.0, c)), (a * delta, c), (gamma_next, drop * 1.0)


def decaying_weights(s: Scalars, z: Scalars, p: Any, q: Any) -> Scalars:
    new = s[1] * z[1] + p
    return 0.99 * z[0] + s[0] * new, new


def decaying_function(step: Scalars, memory: Scalars, sums: Scalars) -> Any:
    w, c = step[0] * step[5], step[2]
    return ((0.99, w * c), (0.0, c)), (w, c), (memory[0] * 1.0,)


def slow_trace(s: Scalars, z: Scalars, p: Any, q: Any) -> Scalars:
    new = 0.999 * z[1] + p
    return z[0] + s[0] * new, new


def trace_of_next(s: Scalars, z: Scalars, p: Any, q: Any) -> Scalars:
    new = s[1] * z[1] + p + q
    return z[0] + s[0] * new, new


EAGER: dict[str, Any] = {"memory": ("gamma", "drop"), "eager": "drop"}


@pytest.mark.plain
def test_an_eager_rule_may_sum_over_traces_on_sparse() -> None:
    """With ``eager``, ‖e‖₁ is a sum over the traces that the sparse engine lists."""
    rule = make_rule(terms=norm_terms, function=eager_function, **EAGER)
    assert rule.not_lazy_because == ""
    rng, T, n = np.random.default_rng(0), 80, 9
    active, R = Active(np.array([rng.permutation(n)[:2] for _ in range(T + 1)])), rng.normal(size=T)
    theta = {}
    for engine in ("reference", "sparse"):
        learner = Learner(rule, n, engine=engine)
        learner.run(active, R, 0.9, alpha=1.0, lambda_=0.8)
        theta[engine] = learner.theta
    np.testing.assert_allclose(theta["sparse"], theta["reference"], rtol=0, atol=1e-13)


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        (
            {"component": slow_trace, "function": eager_function, "terms": norm_terms},
            "let the trace 'e' decay as A says",
        ),
        ({"component": trace_of_next, "function": eager_function, "terms": norm_terms}, "not give φ' to the trace 'e'"),
    ],
    ids=["slow trace", "trace of φ'"],
)
def test_what_the_list_of_live_traces_would_lose_is_not_for_sparse(changed: dict[str, Any], reason: str) -> None:
    assert reason in make_rule(**changed, **EAGER).not_lazy_because


def test_an_eager_rule_does_not_move_weights_without_traces() -> None:
    rule = make_rule(component=decaying_weights, function=decaying_function, memory=("drop",), eager="drop")
    assert "leave weights without traces as they are" in rule.not_lazy_because


# ------------------------------------------------------------------------------------------ step sizes of the library


@pytest.mark.parametrize("name", emphatic.stepsizes.names())
def test_every_method_of_the_library_is_lazy(name: str) -> None:
    kind = emphatic.stepsizes.kind_of(name)
    for base in kind.fits if issubclass(kind, WeightwiseStepSize) else ("td",):
        assert kind().rule(emphatic.rules.get(base)).not_lazy_because == ""


def test_what_was_decided_is_decided_again_after_pickling() -> None:
    rule, _ = NOT_LAZY["nonnegative"]
    assert Rule("td", emphatic.rules.get("td").function, ("theta",), ("e",), ("gamma",)).is_lazy
    assert replace(rule).not_lazy_because == rule.not_lazy_because
    method = emphatic.stepsizes.Autostep().rule(emphatic.rules.get("td"))
    assert pickle.loads(pickle.dumps(method)).is_lazy


# ------------------------------------------------------------------------------------------ formulas

x, y, w = variables({"x": ANYTHING, "y": ANYTHING, "w": (0.0, 1.0)})


def test_bounds_and_divisors() -> None:
    assert (x * x).bounds == (0.0, math.inf)
    assert largest(x, -x).bounds == (0.0, math.inf)
    assert (1.0 - w).bounds == (0.0, 1.0)
    assert (x / (1.0 + w)).is_safe
    assert (x / largest(y, 1e-9)).is_safe
    assert not (x / y).is_safe
    assert not (0.0 * (x / w)).is_safe
    with pytest.raises(ZeroDivisionError):
        x / (y - y)


def test_the_reason_shows_two_different_numbers() -> None:
    """Also where they differ in their last digits."""

    def drifting(s: Scalars, z: Scalars, p: Any, q: Any) -> Scalars:
        new = s[1] * z[1] + p
        return z[0] + s[0] * new + 1e-3, new

    reason = make_rule(component=drifting).not_lazy_because
    assert reason
    value, due = re.search(r"gives (\S+) in place of (\S+) for 'theta'", reason).groups()  # type: ignore[union-attr]
    assert float(value) - float(due) == pytest.approx(1e-3, rel=1e-3)
