"""One rule as another: where two rules are the same mathematics, and where a rule is known to come to rest.

Every identity is stated with its conditions and run on streams that vary all that the conditions leave free. The
expected updates are exact, as in `test_oracles`: all histories of a small chain are enumerated.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import emphatic
from tests.oracles.test_oracles import FIVE, Chain
from tests.support.equations import Array, fixed_point
from tests.support.looping import for_each
from tests.support.streams import TOLERANCE, Stream, make, relative_error

ENGINES = emphatic.engines.available()
CLOSE = TOLERANCE["float64"]
T, N, K = 29, 5, 3
GRADIENT = ("gtd", "gtd2", "true_online_gtd", "htd", "proximal_gtd2", "tdrc", "gq")

every_engine = for_each(engine=ENGINES)
pytestmark = pytest.mark.plain


def streams(rule: str, **changes: Any) -> Iterator[Stream]:
    """Streams for a rule, one log and separate φ', with some parameters made constant or replaced."""
    for seed, separate in ((31, False), (32, True)):
        yield changed(make(seed, T, N, K, rule=rule, separate=separate), **changes)


def changed(stream: Stream, **changes: Any) -> Stream:
    """The stream with other parameters: numbers or (T, K); None takes an extra one away."""
    extra: dict[str, Any] = dict(stream.extra)
    for name in list(changes):
        value = changes.pop(name)
        whole = None if value is None else np.broadcast_to(np.asarray(value, dtype=np.float64), stream.R.shape)
        if name in stream.parameters() and name not in extra:
            changes[name] = whole
        elif whole is None:
            extra.pop(name, None)
        else:
            extra[name] = whole
    return replace(stream, extra=extra, **changes)


def without_extra(stream: Stream) -> Stream:
    return replace(stream, extra={})


def theta_0() -> Array:
    return np.random.default_rng(3).normal(size=(K, N))


def after(rule: str, engine: str, stream: Stream) -> tuple[emphatic.Learner, Array]:
    """A learner of the rule after the stream, and its predictions."""
    learner = emphatic.Learner(rule, N, K, engine=engine)
    learner.theta = theta_0()
    return learner, stream.run(learner)


def assert_alike(
    a: tuple[emphatic.Learner, Array], b: tuple[emphatic.Learner, Array], *vectors: str | tuple[str, str]
) -> None:
    """The same θ and predictions, and the same of these vectors; a pair is what a and b call the same thing."""
    assert relative_error(a[1], b[1]) < CLOSE
    assert np.abs(b[0].theta - theta_0()).max() > 0.1
    for name in ("theta", *vectors):
        one, other = (name, name) if isinstance(name, str) else name
        assert relative_error(getattr(a[0], one), getattr(b[0], other)) < CLOSE, name


# --------------------------------------------------------------------------------------- gradient rules as td


@every_engine
@pytest.mark.parametrize(
    ("rule", "plain", "trace"),
    [("gtd", "td", "e"), ("tdrc", "td", "e"), ("htd", "td", "z"), ("true_online_gtd", "true_online_td", "e")],
)
def test_without_a_second_step_size_it_is_the_plain_rule(rule: str, plain: str, trace: str, engine: str) -> None:
    """eta = 0, or β = 0, so that w stays at 0: no correction is made. (htd and true_online_gtd: with I = 1.)"""
    second: dict[str, Any] = {"beta": 0.0} if rule == "true_online_gtd" else {"beta": None, "eta": 0.0}
    for stream in streams(rule, **second):
        assert rule in ("gtd", "tdrc") or (stream.I == 1.0).all()
        learner = after(rule, engine, stream)
        assert not learner[0].w.any()
        assert_alike(learner, after(plain, engine, without_extra(stream)), (trace, "e"))


@every_engine
@pytest.mark.parametrize("rule", ["gtd2", "proximal_gtd2"])
def test_without_a_second_step_size_it_stands_still(rule: str, engine: str) -> None:
    """gtd2 and its proximal form learn θ from w alone: with β = 0 neither moves."""
    for stream in streams(rule, beta=0.0):
        learner, _ = after(rule, engine, stream)
        assert np.array_equal(learner.theta, theta_0())
        assert not learner.w.any()


@every_engine
@pytest.mark.parametrize(("rule", "plain"), [("gtd", "td"), ("tdrc", "td"), ("true_online_gtd", "true_online_td")])
@pytest.mark.parametrize("condition", ["lambda_next", "gamma_next"])
def test_where_nothing_is_bootstrapped_there_is_nothing_to_correct(
    rule: str, plain: str, condition: str, engine: str
) -> None:
    """λ' = 1, or γ' = 0, at every step: θ is that of the plain rule, whatever β, and w is not 0."""
    for stream in streams(rule, **{condition: float(condition == "lambda_next")}):
        learner = after(rule, engine, stream)
        assert np.abs(learner[0].w).max() > 0.1
        assert_alike(learner, after(plain, engine, without_extra(stream)), "e")


@every_engine
def test_htd_on_policy_is_td(engine: str) -> None:
    """ρ = 1 makes z = y: θ is td's with I = 1, whatever β, and w is not 0."""
    for stream in streams("htd", rho=1.0):
        learner = after("htd", engine, stream)
        assert np.abs(learner[0].w).max() > 0.1
        assert relative_error(learner[0].y, learner[0].z) < CLOSE
        assert_alike(learner, after("td", engine, without_extra(stream)), ("z", "e"))


# ---------------------------------------------------------------------------------- gradient rules as others


@every_engine
def test_tdrc_without_kappa_is_gtd(engine: str) -> None:
    """κ = 0: the same. As κ → 0 the difference is in proportion to κ. Where it is not given κ is 1."""
    for stream in streams("tdrc"):
        plain = after("gtd", engine, changed(stream, kappa=None))
        assert_alike(after("tdrc", engine, changed(stream, kappa=0.0)), plain, "w", "e")
        first, second = (
            after("tdrc", engine, changed(stream, kappa=kappa))[0].theta - plain[0].theta for kappa in (1e-4, 1e-5)
        )
        assert 1e-6 < np.abs(first).max() < 1e-3
        assert relative_error(10.0 * second / np.abs(first).max(), first / np.abs(first).max()) < 1e-2
        unsaid = after("tdrc", engine, changed(stream, kappa=None))
        assert np.array_equal(unsaid[1], after("tdrc", engine, changed(stream, kappa=1.0))[1])


@every_engine
def test_gq_on_policy_is_gtd(engine: str) -> None:
    """ρ = 1 at every step; with interest, and whatever β and λ'."""
    for stream in streams("gq", rho=1.0):
        assert_alike(after("gq", engine, stream), after("gtd", engine, stream), "w", "e")


@every_engine
def test_at_lambda_0_true_online_gtd_is_gtd(engine: str) -> None:
    """λ = 0 at every step and I = 1, whatever β and λ'. Its e holds α, and ê is gtd's e."""
    for stream in streams("true_online_gtd", lambda_=0.0):
        a, b = (after(rule, engine, stream) for rule in ("true_online_gtd", "gtd"))
        assert_alike(a, b, "w", ("e_hat", "e"))
        assert relative_error(a[0].e, stream.alpha[-1][:, None] * b[0].e) < CLOSE


@every_engine
@pytest.mark.parametrize("rule", GRADIENT)
def test_eta_is_a_multiple_of_alpha(rule: str, engine: str) -> None:
    """β = eta·α where eta is given, β = α where neither is, and β where it is: to the last bit, also in `learn`."""
    for stream in streams(rule, beta=None):
        eta = np.random.default_rng(5).random(stream.R.shape)
        for said, meant in (({"eta": eta}, eta * stream.alpha), ({}, stream.alpha)):
            a, b = (changed(stream, **way) for way in (said, {"beta": meant}))
            (one, predictions), (other, wanted) = (after(rule, engine, way) for way in (a, b))
            assert np.array_equal(predictions, wanted)
            assert np.array_equal(one.w, other.w)
            assert np.abs(one.w).max() > 0.01
            a[:5].learn(one)
            b[:5].learn(other)
            assert np.array_equal(one.theta, other.theta)


@every_engine
@pytest.mark.parametrize("rule", [rule for rule in GRADIENT if rule != "htd"])
def test_lambda_next_is_lambda_unless_given(rule: str, engine: str) -> None:
    """To the last bit, in `run` and in `learn`; and another λ' is another update."""
    for stream in streams(rule):
        a, b = changed(stream, lambda_next=None), changed(stream, lambda_next=stream.lambda_)
        (one, predictions), (other, wanted) = (after(rule, engine, way) for way in (a, b))
        assert np.array_equal(predictions, wanted)
        a[:5].learn(one)
        b[:5].learn(other)
        assert np.array_equal(one.theta, other.theta)
        assert relative_error(after(rule, engine, stream)[1], wanted) > 1e-3


# ------------------------------------------------------------------------------ bootstrapping of its own kind


@every_engine
def test_vtrace_with_a_bound_of_the_ratio_is_vtrace_of_the_clipped_ratio(engine: str) -> None:
    """ρ̄ ≥ 1 at every step: the traces are clipped at 1 in any case. With ρ̄ = 1 it is td of ratios clipped at 1."""
    for stream in streams("vtrace", rho_bar=None):
        for bound in (1.0, 1.3, np.random.default_rng(5).choice([1.0, 1.1, 1.7, np.inf], stream.R.shape)):
            clipped = changed(stream, rho=np.minimum(stream.rho, bound))
            bounded = after("vtrace", engine, changed(stream, rho_bar=bound))
            assert_alike(bounded, after("vtrace", engine, clipped))
            assert relative_error(bounded[1], after("vtrace", engine, stream)[1]) > 1e-3
        small = changed(stream, rho=np.minimum(stream.rho, 1.0))
        assert_alike(after("vtrace", engine, changed(stream, rho_bar=1.0)), after("td", engine, small))


@every_engine
def test_vtrace_with_a_bound_that_no_ratio_reaches_is_without_one_bit_for_bit(engine: str) -> None:
    for stream in streams("vtrace", rho_bar=None):
        unbounded = after("vtrace", engine, stream)
        for bound in (np.inf, stream.rho.max(), 1e300, np.where(stream.rho > 1.0, np.inf, stream.rho)):
            bounded = after("vtrace", engine, changed(stream, rho_bar=bound))
            assert np.array_equal(bounded[1], unbounded[1])
            assert np.array_equal(bounded[0].theta, unbounded[0].theta)
            assert np.array_equal(bounded[0].e, unbounded[0].e)


@every_engine
def test_abtd_as_others(engine: str) -> None:
    """ξ = 0: td at λ = 0, with I = 1.  ξ ≤ 1, so that ν = ξ: tree_backup with the ξ before as its λ.
    ξ ≥ 1/max(π, μ) and ρ = π/μ: vtrace at λ = 1.  λ never matters."""
    for stream in streams("abtd"):
        zero = changed(stream, xi=0.0)
        assert_alike(after("abtd", engine, zero), after("td", engine, changed(without_extra(stream), lambda_=0.0)))

        small = changed(stream, xi=np.minimum(stream.extra["xi"], 1.0))
        xi_before = np.vstack([np.zeros(K), small.extra["xi"][:-1]])
        tree = changed(small, mu=None, xi=None, lambda_=xi_before)
        assert_alike(after("abtd", engine, small), after("tree_backup", engine, tree), "e")

        pi, mu = stream.extra["pi"], stream.extra["mu"]
        large = changed(stream, xi=1.0 / np.maximum(pi, mu), rho=pi / mu, alpha=stream.alpha * np.minimum(mu, 1.0))
        trace = changed(without_extra(large), lambda_=1.0)
        assert_alike(after("abtd", engine, large), after("vtrace", engine, trace), "e")

        other = after("abtd", engine, changed(stream, lambda_=1.0 - stream.lambda_))
        assert np.array_equal(other[1], after("abtd", engine, stream)[1])


def standing_at(rule: str, engine: str, theta: Array, w: Array) -> emphatic.Learner:
    """Learners with these weights (K, n) and without traces, by what a user can do: w is taught, one component a
    step, by a cumulant that is worth it, while θ is kept at 0 by α = 0."""
    learners, n = w.shape
    learner = emphatic.Learner(rule, n, learners, engine=engine)
    # The proximal step goes β(1 − β) of the way.
    beta, share = (0.5, 0.25) if rule == "proximal_gtd2" else (1.0, 1.0)
    extra = {"kappa": 0.0} if rule == "tdrc" else {}
    for i, phi in enumerate(np.eye(n)):
        learner.learn(0.0, 1.0, 0.0, phi, 1.0, w[:, i] / share, np.zeros(n), 0.0, beta=beta, **extra)
    learner.cut()
    learner.theta = theta
    assert relative_error(learner.w, w) < 1e-15
    return learner


# ---------------------------------------------------------------------------- expected updates, fixed points


def expected_update(
    rule: str, chain: Chain, lambda_: float, thetas: Array, ws: Array | None, steps: int, **extra: float
) -> tuple[Array, Array]:
    """What the rule is expected to add to θ and to w in the last of some steps, over the step size, for each of
    some (θ, w)."""
    K, n = thetas.shape
    if ws is not None:
        return chain.expected_update(standing_at(rule, "dense", thetas, ws), lambda_, steps, **extra)
    base = emphatic.Learner(rule, n, K, engine="dense")
    base.theta = thetas
    return chain.expected_update(base, lambda_, steps, **extra)


#: Seven (θ, w) in general position: from eight on there would be a kernel for each n.
THETAS, WS = np.random.default_rng(6).normal(size=(2, 7, 3))
FOUR = 4  # steps: longer histories go left (ρ = 0) or through an end (γ = 0), and are forgotten


def matrices(chain: Chain, lambda_: float) -> tuple[Array, Array, Array]:
    """A, b and C = E φφᵀ of off-policy TD(λ) with I = 1."""
    point = chain.fixed_point(lambda_, emphatic=False)
    return point.A, point.b, chain.Phi.T @ np.diag(chain.d) @ chain.Phi


def expected_update_of_gradients(
    rule: str, lambda_: float, thetas: Array, ws: Array, **extra: float
) -> tuple[Array, Array]:
    """On the five-state chain. The proximal rule's is gtd2's but for a part in proportion to the step sizes; two sizes
    tell it."""
    whole = expected_update(rule, FIVE, lambda_, thetas, ws, FOUR, **extra)
    if rule != "proximal_gtd2":
        return whole
    half = expected_update(rule, FIVE, lambda_, thetas, ws, FOUR, size=0.5)
    return 2 * half[0] - whole[0], 2 * half[1] - whole[1]


def accumulated(chain: Chain, P: Array, lambda_: float, steps: int) -> Array:
    """ΦᵀD Σ_{j<steps} (PΓλ)ʲ: the expected trace of so many steps that follows P, by the state it is in."""
    powers = [np.linalg.matrix_power(lambda_ * P @ np.diag(chain.gamma), j) for j in range(steps)]
    return np.asarray(chain.Phi.T @ np.diag(chain.d) @ np.sum(powers, axis=0))


@pytest.mark.parametrize(
    ("rule", "lambda_"),
    [(rule, 0.5) for rule in ("gtd", "gtd2", "tdrc", "true_online_gtd", "proximal_gtd2", "htd")]
    + [("gtd", 0.0), ("htd", 1.0), ("true_online_gtd", 1.0)],
)
def test_expected_updates_of_the_gradient_rules(rule: str, lambda_: float) -> None:
    """With A, b and C = E φφᵀ of off-policy TD(λ) on the five-state chain, w's expected update is b − Aθ − Cw, gtd2's
    θ follows Aᵀw and gtd's b − Aθ − (C − Aᵀ)w. htd has the A of behaviour, A_μ, in C's place, and tdrc C + κ𝟙 for w."""
    A, b, C = matrices(FIVE, lambda_)
    toward = b - THETAS @ A.T
    if rule == "htd":  # y is not forgotten when ρ = 0
        P_mu = FIVE.P(FIVE.mu)
        C = (accumulated(FIVE, P_mu, lambda_, FOUR) @ (np.eye(FIVE.S) - P_mu @ np.diag(FIVE.gamma)) @ FIVE.Phi).T
    theta = WS @ A if rule in ("gtd2", "proximal_gtd2") else toward - WS @ (C - A.T).T
    w = toward - WS @ (C + (0.7 if rule == "tdrc" else 0.0) * np.eye(3)).T
    extra = {"kappa": 0.7} if rule == "tdrc" else {}
    got = expected_update_of_gradients(rule, lambda_, THETAS, WS, **extra)
    tolerance = 5e-6 if rule == "true_online_gtd" else 1e-12
    np.testing.assert_allclose(got[0], theta, rtol=0, atol=tolerance)
    np.testing.assert_allclose(got[1], w, rtol=0, atol=tolerance)


@pytest.mark.parametrize("lambda_", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("rule", ["gtd", "gtd2", "tdrc", "true_online_gtd", "proximal_gtd2", "htd"])
def test_the_gradient_rules_rest_where_td_does(rule: str, lambda_: float) -> None:
    """At the fixed point of off-policy TD(λ), Aθ = b, and w = 0, no update is expected; elsewhere one is."""
    rest = FIVE.fixed_point(lambda_, emphatic=False).theta
    thetas = np.array([rest, rest + np.array([0.5, 0.0, 0.0])])
    got = expected_update_of_gradients(rule, lambda_, thetas, np.zeros((2, 3)))
    for moved in got:
        np.testing.assert_allclose(moved[0], 0.0, rtol=0, atol=5e-6 if rule == "true_online_gtd" else 1e-12)
    assert np.abs(got[1][1]).max() > 0.01


@pytest.mark.parametrize("lambda_", [0.0, 0.5, 1.0])
def test_expected_update_of_gq(lambda_: float) -> None:
    """GQ(λ) on state-action pairs (s, a): φ̄' = Σ_a π(a)φ(s', a). Its A, b and C are those of the chain of pairs."""
    pairs = [(s, a) for s in range(FIVE.S) for a in (0, 1)]
    Phi = np.random.default_rng(8).normal(size=(len(pairs), 4))
    P = np.array([[float(FIVE.to[a][s] == s_next) * FIVE.pi[a_next] for s_next, a_next in pairs] for s, a in pairs])
    d = np.array([FIVE.d[s] * FIVE.mu[a] for s, a in pairs])
    gamma = np.array([FIVE.gamma[s] for s, _ in pairs])
    ones = np.ones(len(pairs))
    point = fixed_point(Phi, P, FIVE.R * ones, gamma, lambda_ * ones, d, ones, emphatic=False)
    C = Phi.T @ np.diag(d) @ Phi
    thetas, ws = np.random.default_rng(9).normal(size=(2, 7, 4))
    thetas[0], ws[0] = point.theta, 0.0
    base = standing_at("gq", "dense", thetas, ws)
    theta, w = np.zeros_like(thetas), np.zeros_like(ws)
    # e ← ργλe + φ has ρ of its own step: one action more than the paths to which π leads.
    for probability, states, rho in FIVE.histories(FOUR):
        actions = [int(ratio > 0.0) for ratio in rho]
        now = Phi[[2 * s + a for s, a in zip(states[:-1], actions, strict=True)]]
        following = np.array([sum(FIVE.pi[a] * Phi[2 * s + a] for a in (0, 1)) for s in states[1:]])
        learner = base.copy()
        for part, alpha in ((slice(0, FOUR - 1), 0.0), (slice(FOUR - 1, FOUR), 1.0)):
            learner.run(
                now[part],
                FIVE.R,
                FIVE.gamma[states[1:]][part, None],
                Phi_next=following[part],
                alpha=alpha,
                lambda_=lambda_,
                rho=np.array(rho)[part, None],
            )
        theta += probability * (learner.theta - thetas)
        w += probability * (learner.w - ws)
    toward = point.b - thetas @ point.A.T
    np.testing.assert_allclose(theta, toward - ws @ (C - point.A.T).T, rtol=0, atol=1e-12)
    np.testing.assert_allclose(w, toward - ws @ C.T, rtol=0, atol=1e-12)
    np.testing.assert_allclose(theta[0], 0.0, rtol=0, atol=1e-12)


@pytest.mark.parametrize("lambda_", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("rule", ["tree_backup", "vtrace", "abtd"])
def test_expected_updates_of_the_rules_with_their_own_bootstrapping(rule: str, lambda_: float) -> None:
    """b − Aθ with A = ΦᵀD Σ_j(P_cΓλ)ʲ(𝟙 − P_πΓ)Φ, where P_c weighs each action by μ times what the trace keeps of it:
    π, or min(ρ, 1), or, without λ, min(ξ, 1/max(π, μ))π. The target policy, too, goes both ways."""
    chain = replace(FIVE, pi=(0.25, 0.75))
    xi = 1.2
    keeps: dict[str, Callable[[float, float], float]] = {
        "tree_backup": lambda pi, mu: pi,
        "vtrace": lambda pi, mu: min(pi / mu, 1.0),
        "abtd": lambda pi, mu: min(xi, 1.0 / max(pi, mu)) * pi,
    }
    left, right = (mu * keeps[rule](pi, mu) for pi, mu in zip(chain.pi, chain.mu, strict=True))
    steps = 5
    trace = accumulated(chain, chain.P((left, right)), 1.0 if rule == "abtd" else lambda_, steps)
    A = trace @ (np.eye(chain.S) - chain.P(chain.pi) @ np.diag(chain.gamma)) @ chain.Phi
    b = trace @ np.full(chain.S, chain.R)
    extra = {"xi": xi} if rule == "abtd" else {}
    got, _ = expected_update(rule, chain, lambda_, THETAS, None, steps, **extra)
    np.testing.assert_allclose(got, b - THETAS @ A.T, rtol=0, atol=1e-12)


@pytest.mark.parametrize("lambda_", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("rho_bar", [0.4, 1.0, 1.2, np.inf])
def test_vtrace_stands_still_at_the_values_of_the_policy_that_its_bound_gives(rho_bar: float, lambda_: float) -> None:
    """v of π_ρ̄ ∝ min(ρ̄μ, π), whatever λ, where features tell all states apart (Espeholt et al. 2018, eq. 3)."""
    chain = replace(FIVE, pi=(0.25, 0.75), Phi=np.eye(FIVE.S))
    both = np.minimum(rho_bar * np.array(chain.mu), chain.pi)
    values = {}
    for name, policy in (("bounded", both / both.sum()), ("target", np.array(chain.pi))):
        ahead = np.eye(chain.S) - chain.P((policy[0], policy[1])) @ np.diag(chain.gamma)
        values[name] = np.linalg.solve(ahead, np.full(chain.S, chain.R))
    # One of the seven learners has the values; the others are beside them.
    thetas = values["bounded"] + np.eye(7, chain.S, k=-1)
    update, _ = expected_update("vtrace", chain, lambda_, thetas, None, 4, rho_bar=rho_bar)
    assert np.abs(update[0]).max() < 1e-12
    assert np.abs(update[1:6]).max(axis=1).min() > 1e-3
    same = rho_bar == np.inf or np.allclose(both / both.sum(), chain.pi)
    assert np.allclose(values["bounded"], values["target"]) == same
