"""Elementwise rules on every engine that runs them: linear rules written a second time keep the same contract."""

from __future__ import annotations

import itertools
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import emphatic
from emphatic.rules import ElementwiseRule, Scalars, log, sqrt
from tests.support.contract import violations
from tests.support.elementwise_rules import WRITTEN_BOTH_WAYS, td, td_component, td_terms, true_online_component
from tests.support.plain import CHUNK, plain_python
from tests.support.streams import make, relative_error

ENGINES = ("reference", "dense", "sparse")


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(
    ("rule", "K", "dtype", "compiled"),
    [(rule, K, "float64", False) for rule in WRITTEN_BOTH_WAYS for K in (None, 2, 7)]
    + [("true_online_etd", K, "float64", True) for K in (None, 7)]
    + [pytest.param("true_online_etd", 7, "float32", True, marks=pytest.mark.long)],
)
def test_linear_rules_written_both_ways_agree(
    rule: str, engine: str, K: int | None, dtype: str, compiled: bool
) -> None:
    def learner(n: int, K: int | None) -> emphatic.Learner:
        return emphatic.Learner(WRITTEN_BOTH_WAYS[rule], n, K, dtype=dtype, engine=engine)

    with nullcontext() if compiled else plain_python():
        for by in ("run", "learn"):
            assert violations(rule, learner, K, dtype, by=by, T=143 if compiled else 2 * CHUNK + 5) == []


def test_auto_chooses_an_engine_that_runs_them() -> None:
    learner = emphatic.Learner(WRITTEN_BOTH_WAYS["td"], 3, 40)
    with plain_python():
        learner.run(np.ones((30, 3)), 1.0, 0.5, alpha=0.1)
    assert learner.engine == "dense"
    for engine in ("chunked", "cuda"):
        with pytest.raises(ValueError, match=f"'engine' parameter must be .*'dense'.*Got '{engine}' instead"):
            emphatic.Learner(WRITTEN_BOTH_WAYS["td"], 3, engine=engine)


def test_a_component_that_is_not_linear_where_nothing_is_active_is_not_for_sparse() -> None:
    def squared(s: Scalars, z: Scalars, p: Any, q: Any) -> Scalars:
        w, c, k = s
        theta, e = z
        e = c * e * e + k * p
        return theta + w * e, e

    rule = replace(WRITTEN_BOTH_WAYS["td"], component=squared)
    with pytest.raises(ValueError, match=r"Got 'sparse' instead.* 'component' would have to be A X where φ and φ' are"):
        emphatic.Learner(rule, 2, engine="sparse")


def test_an_adapt_that_moves_theta_is_refused_and_one_that_moves_what_is_not_active_is_not_for_sparse() -> None:
    def signal(step: Scalars, memory: Scalars) -> Scalars:
        return (step[5],)

    def adapt(u: Scalars, z: Scalars, p: Any) -> Scalars:
        (delta,) = u
        theta, e = z
        return theta + delta * p, e

    def drift(u: Scalars, z: Scalars, p: Any) -> Scalars:
        (delta,) = u
        theta, e = z
        return theta, e + delta

    with pytest.raises(ValueError, match=r"'adapt' parameter of Rule.*must leave 'theta' as it is"):
        replace(WRITTEN_BOTH_WAYS["td"], signal=signal, adapt=adapt)
    rule = replace(WRITTEN_BOTH_WAYS["td"], signal=signal, adapt=drift)
    with pytest.raises(ValueError, match=r"Got 'sparse' instead.* 'adapt' would have to change nothing where φ is 0"):
        emphatic.Learner(rule, 2, engine="sparse")
    with pytest.raises(ValueError, match=r"'adapt' parameter.*given together with 'signal'"):
        replace(WRITTEN_BOTH_WAYS["td"], adapt=adapt)


def test_an_A_that_is_not_an_arrow_is_refused() -> None:
    def crossed(step: Scalars, memory: Scalars, sums: Scalars) -> Any:
        alpha, I, lambda_, rho, gamma_next, delta = step
        (gamma,) = memory
        return ((1.0, 0.0), (alpha, 1.0)), (delta, gamma, rho), (gamma_next,)

    with pytest.raises(ValueError, match="make A an arrow"):
        replace(WRITTEN_BOTH_WAYS["td"], function=crossed)


def test_the_change_is_a_name_of_the_memory() -> None:
    with pytest.raises(ValueError, match=r"'change' parameter of Rule.*must be one of the memory, gamma"):
        ElementwiseRule("td", td_terms, td, td_component, ("theta",), ("e",), ("gamma",), change="D")


@pytest.mark.parametrize(("old", "new"), [("D * (e - b * p)", "D * e"), ("S * p", "b * p"), ("delta * e", "delta * p")])
def test_slips_in_a_component_are_caught(old: str, new: str) -> None:
    import inspect
    import linecache

    text = inspect.getsource(true_online_component)
    assert old in text
    file, slipped = f"<slip {new}>", text.replace(old, new)
    linecache.cache[file] = (len(slipped), None, slipped.splitlines(keepends=True), file)
    namespace: dict[str, Any] = {"Scalars": tuple, "Any": Any}
    exec(compile(slipped, file, "exec", dont_inherit=True), namespace)
    try:
        rule = replace(WRITTEN_BOTH_WAYS["true_online_etd"], component=namespace["true_online_component"])
    except ValueError:
        return  # no longer A X
    assert violations(
        "true_online_etd", lambda n, K: emphatic.Learner(rule, n, K, engine="reference"), 2, "float64", T=31
    )


def _bare_terms(z: Scalars, p: Any, q: Any) -> Scalars:
    theta, a = z
    return (a * p * p,)


def _bare(step: Scalars, memory: Scalars, sums: Scalars) -> Any:
    alpha, I, lambda_, rho, gamma_next, delta = step
    return ((1.0, 0.0), (0.0, 1.0)), (alpha * rho * I * delta,), ()


def _bare_component(s: Scalars, z: Scalars, p: Any, q: Any) -> Scalars:
    (w,) = s
    theta, a = z
    return theta + w * p, a


def _bare_rule(**changed: Any) -> ElementwiseRule:
    given = {"terms": _bare_terms, "function": _bare, "component": _bare_component} | changed
    return ElementwiseRule("bare", **given, weights=("theta", "a"), traces=(), memory=())


@pytest.mark.plain
@pytest.mark.parametrize("K", [None, 3])
@pytest.mark.parametrize("engine", ENGINES)
def test_a_rule_without_traces_runs_too(engine: str, K: int | None) -> None:
    rng = np.random.default_rng(0)
    Phi = rng.normal(size=(30, 5)) * (rng.random((30, 5)) < 0.5)
    learner, other = (emphatic.Learner(rule, 5, K, engine=engine) for rule in (_bare_rule(), "td"))
    for one in (learner, other):
        one.run(Phi, 1.0, 0.9, alpha=0.1, rho=0.7)
    np.testing.assert_allclose(learner.theta, other.theta, rtol=1e-12)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"terms": None}, "'terms' .* must be a function written in Python. Got None"),
        ({"terms": lambda z, p, q: z[0] * p}, "'terms' .* must return a tuple"),
        ({"terms": len}, "'terms' .* must take z, p, q and return numbers. Got TypeError"),
        ({"function": 3}, "'function' .* must be a function written in Python. Got 3"),
        ({"function": lambda step, memory, sums: 1.0}, "'function' .* must return the tuples A, s, memory"),
        ({"function": lambda step, memory, sums: ((), ())}, "'function' .* must return the tuples A, s, memory"),
        ({"signal": 3, "adapt": 4}, "'signal' .* must be a function written in Python. Got 3"),
    ],
)
def test_what_is_no_function_of_such_a_rule_is_named(changed: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        _bare_rule(**changed)


def _reciprocal(step: Scalars, memory: Scalars, sums: Scalars) -> Any:
    alpha, I, lambda_, rho, gamma_next, delta = step
    return ((1.0, 0.0), (0.0, 1.0)), (alpha * delta / lambda_,), ()


def _reciprocal_of_sum(step: Scalars, memory: Scalars, sums: Scalars) -> Any:
    alpha, I, lambda_, rho, gamma_next, delta = step
    return ((1.0, 0.0), (0.0, 1.0)), (alpha * delta / sums[0],), ()


def _reciprocal_in_A(step: Scalars, memory: Scalars, sums: Scalars) -> Any:
    alpha, I, lambda_, rho, gamma_next, delta = step
    return ((1.0, 0.0), (0.0, lambda_ / lambda_)), (alpha * delta,), ()


def _limited(s: Scalars, z: Scalars, p: Any, q: Any) -> Scalars:
    (w,) = s
    theta, a = z
    return theta + max(min(w, 1.0), -1.0) * p, a


@pytest.mark.plain
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("function", [_reciprocal, _reciprocal_of_sum, _reciprocal_in_A])
def test_scalars_that_are_not_finite_are_refused_on_every_engine(engine: str, function: Any) -> None:
    """Also where no component shows it: a limit hides that s is infinite, and A is not used where all is active."""
    rule = _bare_rule(function=function, component=_limited)
    learner = emphatic.Learner(rule, 2, engine=engine)
    with pytest.raises(emphatic.Diverged):
        learner.run(np.ones((4, 2)), 1.0, 0.5, alpha=0.1, lambda_=0.0)
    assert not learner.theta.any()


# ------------------------------------------------------------------ roots and logarithms


def _rmsprop(step: Scalars, memory: Scalars, sums: Scalars) -> Any:
    alpha, I, lambda_, rho, gamma_next, delta, kept = step
    (gamma,) = memory
    c = rho * gamma * lambda_
    return ((1.0, 0.0, 0.0), (0.0, kept, 0.0), (0.0, 0.0, c)), (alpha, c, rho * I, delta, kept), (gamma_next,)


def _rmsprop_component(s: Scalars, z: Scalars, p: Any, q: Any) -> Scalars:
    alpha, c, k, delta, kept = s
    theta, v, e = z
    e = c * e + k * p
    g = delta * e
    v = kept * v + (1.0 - kept) * g * g
    return theta + alpha * g / sqrt(v + 1e-8), v, e


def _nothing(z: Scalars, p: Any, q: Any) -> Scalars:
    return ()


RMSPROP = ElementwiseRule(
    "rmsprop", _nothing, _rmsprop, _rmsprop_component,
    weights=("theta", "v"), memory=("gamma",), extra=("kept",), defaults={"kept": 0.9},
)  # fmt: skip


@pytest.mark.parametrize("by", ["run", "learn"])
@pytest.mark.parametrize(
    ("engine", "K", "compiled"), [("reference", None, False), ("dense", None, True), ("dense", 3, False)]
)
def test_rmsprop_is_that_of_plain_numpy(engine: str, K: int | None, compiled: bool, by: str) -> None:
    stream = make(9, 41, 6, K, rule="td")
    with nullcontext() if compiled else plain_python():
        learner = emphatic.Learner(RMSPROP, 6, K, engine=engine)
        getattr(stream, by)(learner)
    for k in range(K or 1):
        s = stream.sequence(None if K is None else k)
        theta, v, e = np.zeros(6), np.zeros(6), np.zeros(6)
        for t in range(s.T):
            delta = s.R[t] + s.gamma_next[t] * theta @ s.Phi_next[t] - theta @ s.Phi[t]
            e = s.rho[t] * (s.gamma[t] * s.lambda_[t] * e + s.I[t] * s.Phi[t])
            v = 0.9 * v + 0.1 * (delta * e) ** 2
            theta = theta + s.alpha[t] * delta * e / np.sqrt(v + 1e-8)
        for name, wanted in (("theta", theta), ("v", v), ("e", e)):
            value = getattr(learner, name)
            assert relative_error(value if K is None else value[k], wanted) < 1e-12, name


def test_rmsprop_is_not_for_sparse() -> None:
    with pytest.raises(ValueError, match=r"Got 'sparse' instead, .* 'component' would have to be A X .* for 'theta'"):
        emphatic.Learner(RMSPROP, 3, engine="sparse")


@pytest.mark.plain
@pytest.mark.parametrize("engine", ENGINES)
def test_roots_and_logarithms_of_what_is_active_are_lazy(engine: str) -> None:
    def component(s: Scalars, z: Scalars, p: Any, q: Any) -> Scalars:
        (w,) = s
        theta, a = z
        return theta + w * p / sqrt(1.0 + p * p) * log(2.0 + p * p), a

    rng = np.random.default_rng(0)
    Phi = rng.normal(size=(30, 5)) * (rng.random((30, 5)) < 0.5)
    learner = emphatic.Learner(_bare_rule(component=component), 5, engine=engine)
    learner.run(Phi, 1.0, 0.9, alpha=0.1, rho=0.7)
    theta = np.zeros(5)
    for phi, phi_next in itertools.pairwise(Phi):
        delta = 1.0 + 0.9 * theta @ phi_next - theta @ phi
        theta = theta + 0.07 * delta * phi / np.sqrt(1.0 + phi**2) * np.log(2.0 + phi**2)
    assert relative_error(learner.theta, theta) < 1e-12


@pytest.mark.plain
@pytest.mark.parametrize("engine", ["reference", "dense"])
@pytest.mark.parametrize("function", [sqrt, log])
def test_a_root_or_logarithm_of_a_negative_number_is_refused(engine: str, function: Any) -> None:
    def root(s: Scalars, z: Scalars, p: Any, q: Any) -> Scalars:
        return z[0] + s[0] * sqrt(p), z[1]

    def logarithm(s: Scalars, z: Scalars, p: Any, q: Any) -> Scalars:
        return z[0] + s[0] * log(p), z[1]

    rule = _bare_rule(component=root if function is sqrt else logarithm)
    learner = emphatic.Learner(rule, 2, engine=engine)
    with pytest.raises(emphatic.Diverged) as info:
        learner.run([[1.0, 2.0], [1.0, -1.0], [1.0, 1.0]], 1.0, 0.0, alpha=0.1)
    assert info.value.step == 1
