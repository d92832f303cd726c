"""One step size for all weights: every rule on every engine, against the equations with α worked out separately."""

from __future__ import annotations

import pickle
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import emphatic
from emphatic import stepsizes
from emphatic.stepsizes import AlphaBound, Auto, Constant, Decaying, Scaled, StepSize
from tests.support.equations import RULES
from tests.support.rules import EVERY, find
from tests.support.sequence import Array, Sequence
from tests.support.streams import TOLERANCE, Stream, make, relative_error

ENGINES = emphatic.engines.available()
METHODS = {
    "constant": Constant(0.7),
    "bounded": Constant(3.0, bound=0.2),
    "mean": Scaled(0.3),
    "max": Scaled(0.5, "max", bound=0.4),
    "decaying": Decaying(0.8, after=5.0, power=0.7),
    "auto": Auto(2.0),
}
NO_INTEREST = ("htd", "true_online_gtd", "true_online_gtd_separate", "tree_backup", "vtrace", "abtd")
OF_PAIRS = ("gq", "emphatic_q")  # the ratio of an action is not that of the pair it is part of


def factors(method: StepSize, s: Sequence) -> Array:
    """What the method says, step by step, of one learner."""
    squares, found = (s.Phi**2).sum(axis=1), []
    for t in range(s.T):
        seen = [square for square in squares[: t + 1] if square > 0.0]
        match method:
            case Constant():
                found.append(method.alpha)
            case Decaying():
                found.append(method.alpha / (1.0 + t / method.after) ** method.power)
            case Scaled() if method.over == "max":
                found.append(method.c / max(seen) if seen else 0.0)
            case Scaled() | Auto():
                rate = method.rate if isinstance(method, Auto) else method.c
                found.append(rate / np.mean(seen) if seen else 0.0)
    return np.array(found)


def per_alpha(rule: str, s: Sequence) -> Array:
    """The effective step along φ for α = 1."""
    if rule in NO_INTEREST:
        return s.rho
    M = RULES[rule](s).M
    weight = s.I if M is None else M
    return weight if rule in OF_PAIRS else s.rho * weight


def with_alpha(stream: Stream, rule: str, method: Any, k: int | None = None) -> Stream:
    """The stream with the step sizes that the rule is to have been run with."""
    s, bound = stream.sequence(k), method.bound
    factor, square = factors(method, s), (s.Phi**2).sum(axis=1)
    alpha, extra = s.alpha * factor, dict(stream.extra)
    limit = np.divide(1.0, square, out=np.full(s.T, np.inf), where=square > 0.0) * (np.inf if bound is None else bound)
    with np.errstate(divide="ignore"):
        alpha = np.minimum(alpha, limit / per_alpha(rule, s)) if bound is not None else alpha
    if find(rule).defaults.get("beta") == "eta":
        eta = extra.pop("eta", 1.0)
        beta = extra.get("beta", eta * s.alpha) * factor
        extra["beta"] = np.minimum(beta, limit)
    return replace(stream, alpha=alpha, extra=extra)


@pytest.mark.plain
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("rule", EVERY)
def test_every_rule_with_every_method(rule: str, engine: str) -> None:
    for i, (name, method) in enumerate(METHODS.items()):
        stream = make(i, 17, 6, rule=rule, given=("all", "eta", "")[i % 3], separate=i % 2 == 1)
        expected = with_alpha(stream, rule, method).expected(rule)
        for by in ("run", "learn")[i % 2 :]:
            learner = emphatic.Learner(find(rule), 6, engine=engine, stepsize=method)
            predictions = getattr(stream, by)(learner)
            assert relative_error(predictions, expected.predictions) < TOLERANCE["float64"], (name, by)
            for vector in learner.rule.vectors:
                assert relative_error(getattr(learner, vector), expected.vectors[vector]) < TOLERANCE["float64"], name


@pytest.mark.parametrize(
    "engine", [pytest.param(engine, marks=() if engine == "dense" else pytest.mark.plain) for engine in ENGINES]
)
@pytest.mark.parametrize("rule", ["true_online_td"])
def test_learners_with_options_of_their_own(engine: str, rule: str, tmp_path: Path) -> None:
    """Compiled on the dense engine; copied, selected, saved and loaded with it, and going on alike."""
    rates, bounds = np.array([0.1, 0.5, 2.0]), np.array([1.0, 0.3, 0.5])
    stream = make(3, 61, 6, 3, rule=rule)
    learner = emphatic.Learner(rule, 6, 3, engine=engine, stepsize=Auto(rates, bounds))
    stream[:30].run(learner)
    learner.save(tmp_path / "model.safetensors")
    loaded, copied, chosen = emphatic.load(tmp_path / "model.safetensors"), learner.copy(), learner.select([2, 0])
    predictions = stream[30:].run(learner)
    for other in (loaded, copied):
        assert np.array_equal(stream[30:].run(other), predictions)
        method: Any = other.stepsize
        assert np.allclose(method.rate, rates)
        assert np.allclose(method.bound, bounds)
    stream.of_learners([2, 0])[30:].run(chosen)
    assert relative_error(chosen.theta, learner.theta[[2, 0]]) < TOLERANCE["float64"]
    for k in range(3):
        alone = with_alpha(stream.of_learners([k]), rule, Auto(rates[k], bounds[k]), 0)
        alone = replace(alone, alpha=alone.alpha[:, None])
        assert relative_error(learner.theta[k], alone.expected(rule).theta[0]) < TOLERANCE["float64"]


@pytest.mark.plain
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("rule", ["td", "etd", "tree_backup"])
def test_alphabound_is_as_published(rule: str, engine: str) -> None:
    """α_t = min(α_{t−1}, 1/|e_t·(γ'φ' − φ)|) with e as θ takes it; alpha multiplies what that says."""
    stream = make(5, 41, 6, rule=rule)
    s = stream.sequence()
    e = RULES[rule](s).rows["e"][1:] * (s.rho[:, None] if rule == "tree_backup" else 1.0)
    change = np.abs((e * (s.gamma_next[:, None] * s.Phi_next - s.Phi)).sum(axis=1)) * (s.alpha > 0.0)
    alpha = 1.0 / np.maximum(1.0 / 0.9, np.maximum.accumulate(change))
    assert alpha[-1] < 0.5
    learner = emphatic.Learner(rule, 6, engine=engine, stepsize=AlphaBound(0.9))
    expected = replace(stream, alpha=stream.alpha * alpha).expected(rule)
    assert relative_error(stream.run(learner), expected.predictions) < TOLERANCE["float64"]


def test_alphabound_of_a_true_online_rule_is_that_of_the_plain_one_where_the_traces_are_short() -> None:
    """With λ = 0 the traces are the same but for α."""
    stream = make(5, 41, 6, rule="etd")
    stream = replace(stream, lambda_=np.zeros(41), alpha=np.full(41, 0.6))
    a, b = (
        emphatic.Learner(rule, 6, engine="reference", stepsize=AlphaBound(0.9)) for rule in ("etd", "true_online_etd")
    )
    assert relative_error(stream.run(a), stream.run(b)) < TOLERANCE["float64"]


@given(
    rho=st.floats(0.0, 100.0),
    I=st.floats(0.0, 1e6),
    F=st.integers(0, 30),
    rule=st.sampled_from(["td", "etd", "true_online_td", "true_online_etd"]),
    rate=st.floats(1e-3, 1e3),
    seed=st.integers(0, 50),
)
def test_with_a_bound_of_1_no_step_overshoots_its_target(
    rho: float, I: float, F: int, rule: str, rate: float, seed: int
) -> None:
    """λ = 0 and a fixed target (γ' = 0): |δ| after the step is no larger than before, nor of the other sign."""
    rng = np.random.default_rng(seed)
    learner = emphatic.Learner(rule, 3, engine="reference", stepsize=Constant(rate, bound=1.0))
    for _ in range(F):  # F grows
        phi = rng.normal(size=3)
        learner.learn(1.0, 1.0, 0.0, phi, min(rho, 3.0), 0.0, rng.normal(size=3), 0.99)
    phi, target = rng.normal(size=3), rng.normal()
    before = learner.learn(1.0, I, 0.0, phi, rho, target, np.zeros(3), 0.0)
    after = target - learner.predict(phi)
    assert abs(after) <= abs(before) * (1.0 + 1e-9) + 1e-12
    assert after * before >= -1e-9 * before * before - 1e-24


def test_names_and_objects_are_taken_and_nothing_else() -> None:
    assert set(stepsizes.names()) >= {"constant", "scaled", "decaying", "alphabound", "auto"}
    for name in stepsizes.names():
        learner = emphatic.Learner("true_online_etd", 3, stepsize=name)
        assert learner.stepsize == stepsizes.get(name)
        assert repr(learner).endswith(f"stepsize={name!r})")
        assert pickle.loads(pickle.dumps(learner)).stepsize == learner.stepsize
    for wrong in ("fast", 0.1, None.__class__):
        with pytest.raises(ValueError, match="'stepsize' parameter must be one of constant, scaled"):
            emphatic.Learner("td", 3, stepsize=wrong)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"one for each of K learners.*shape \(2,\), K=3"):
        emphatic.Learner("td", 3, 3, stepsize=Constant(np.array([0.1, 0.2])))


@pytest.mark.parametrize(
    ("make_it", "message"),
    [
        (lambda: Constant(0.0), "'alpha' parameter of Constant must be greater than 0 and finite"),
        (lambda: Constant(1.0, bound=0.0), "'bound' parameter of Constant must be None or greater than 0"),
        (lambda: Scaled(np.nan), "'c' parameter of Scaled"),
        (lambda: Scaled(0.1, "median"), "'over' parameter of Scaled must be 'mean' or 'max'"),
        (lambda: Decaying(0.1, after=0.5), "'after' parameter of Decaying must be 1 or more"),
        (lambda: Decaying(0.1, power=0.5), "'power' parameter of Decaying"),
        (lambda: Auto("fast"), "'rate' parameter of Auto"),
        (lambda: AlphaBound(np.ones((2, 2))), "'alpha' parameter of AlphaBound"),
    ],
)
def test_options_out_of_range_are_refused(make_it: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make_it()


@pytest.mark.plain
def test_alpha_may_be_left_out_with_a_stepsize_alone() -> None:
    Phi = np.ones((4, 1))
    one = emphatic.Learner("td", 1, stepsize=Constant(0.5)).run(Phi, 1.0, 0.0)
    assert np.array_equal(one, emphatic.Learner("td", 1).run(Phi, 1.0, 0.0, alpha=0.5))
    with pytest.raises(TypeError, match="'alpha'"):
        emphatic.Learner("td", 1).run(Phi, 1.0, 0.0)
    frozen = emphatic.Learner("td", 1, stepsize="auto")
    assert not frozen.run(Phi, 1.0, 0.0, alpha=0.0).any()


@pytest.mark.plain
def test_cut_forgets_the_traces_and_leaves_the_method_what_it_has_seen() -> None:
    learner = emphatic.Learner("etd", 2, stepsize=Scaled(0.1))
    learner.run([[2.0, 0.0], [0.0, 2.0]], 1.0, 0.5)
    learner.cut()
    assert (learner.stepsize_mean, learner.stepsize_count, learner.F) == (4.0, 1.0, 0.0)


@pytest.mark.parametrize(
    "effective_step",
    [
        "rho * alpha * alpha",
        "alpha + 0.1",
        "max(alpha, 0.5) * rho",
    ],
)
def test_an_effective_step_that_is_not_a_multiple_of_alpha_has_no_bound(effective_step: str) -> None:
    rule = replace(emphatic.rules.get("td"), effective_step=effective_step)
    with pytest.raises(ValueError, match=r"'effective_step' parameter of Rule\('td', …\) must be a multiple of alpha"):
        emphatic.Learner(rule, 3, stepsize="auto")


def test_a_rule_that_does_not_say_its_effective_step_has_no_method() -> None:
    rule = replace(emphatic.rules.get("td"), effective_step="")
    with pytest.raises(ValueError, match="does not define its effective step"):
        emphatic.Learner(rule, 3, stepsize="auto")


@pytest.mark.xdist_group("true_online_td")
@pytest.mark.parametrize("problem", emphatic.problems.names())
def test_on_policy_auto_does_not_diverge(problem: str) -> None:
    """On a stream of every problem with π = μ, from every rate, with short and long traces."""
    options = {"task": 0} if problem == "four_rooms" else {}  # the others are one question each
    mdp = emphatic.problems.get(problem)(**options)
    stream = mdp.simulate(3000, seed=1).inputs("true_online_td") | {"rho": 1.0}
    rates = np.array([0.01, 0.1, 1.0])
    for lambda_ in (0.0, 0.9):
        learner = emphatic.Learner("true_online_td", mdp.n, 3, engine="dense", stepsize=Auto(rates))
        predictions = learner.run(**stream | {"lambda_": lambda_})
        assert np.abs(predictions).max() < 1e3


def test_what_the_bound_cannot_do() -> None:
    """Off-policy td on θ → 2θ diverges, whatever the bound on each step."""
    mdp = emphatic.problems.two_theta()
    stream = mdp.simulate(20_000, seed=1).inputs("td")
    learner = emphatic.Learner("td", mdp.n, engine="dense", stepsize=Auto(0.1))
    learner.theta = [1.0]
    learner.run(**stream)
    assert abs(learner.theta[0]) > 1e6
