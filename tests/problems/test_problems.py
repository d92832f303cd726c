"""Problems with exact answers: against printed numbers, against sums and iteration, and against their own samples."""

from __future__ import annotations

import dataclasses
import math
import pickle
import sys
from typing import Any

import numpy as np
import pytest
from gymnasium.envs.toy_text.cliffwalking import CliffWalkingEnv
from gymnasium.envs.toy_text.frozen_lake import FrozenLakeEnv
from gymnasium.envs.toy_text.taxi import TaxiEnv
from hypothesis import given
from hypothesis import strategies as st

import emphatic
from emphatic import Learner, problems
from emphatic.problems import MDP
from emphatic.problems.literature import THETA_0
from emphatic.problems.stream import FloatArray

near = pytest.approx


# ------------------------------------------------------------------------------------------- published numbers


@pytest.mark.parametrize(("lambda_", "A"), [(0.0, 3.4), (0.5, 3.3181818181818183), (1.0, 2.5)])
def test_two_theta(lambda_: float, A: float) -> None:
    """Sutton, Mahmood & White (2016), section 3 and 4."""
    mdp = problems.two_theta(lambda_)
    assert mdp.d_mu == near([0.5, 0.5])
    assert mdp.followon() == near([0.5, 9.5])
    assert mdp.A_matrix("etd") == near(np.array([[A]]))
    assert mdp.is_positive_definite("etd")


def test_two_theta_is_where_td_diverges() -> None:
    mdp = problems.two_theta()
    assert mdp.A_matrix("td") == near(np.array([[-0.2]]))
    assert mdp.key_matrix("etd") == near(np.array([[0.5, -0.45], [0.0, 0.95]]))
    assert not mdp.is_positive_definite("td")
    assert problems.two_theta(0.5).emphasis("etd") == near([0.5, 5.0])
    assert problems.two_theta(1.0).emphasis("etd") == near([0.5, 0.5])


def test_chain() -> None:
    """Sutton, Mahmood & White (2016), section 5; the fixed points follow from the definitions."""
    mdp = problems.chain()
    assert mdp.d_mu == near(np.array([16, 8, 4, 2, 1]) / 31, rel=1e-14)
    assert mdp.followon() == near(np.array([16, 24, 28, 30, 1]) / 31)
    assert mdp.emphasis("true_online_etd") == near(mdp.followon())
    assert mdp.v_pi == near([4, 3, 2, 1, 1])
    assert mdp.fixed_point("etd") == near([2.271840, 0.907760, 0.121523], abs=5e-7)
    assert mdp.fixed_point("td") == near([2.172414, -0.413793, 1.275862], abs=5e-7)
    assert mdp.msve(mdp.fixed_point("etd")) == near(1.728646, abs=5e-7)
    assert mdp.msve(mdp.fixed_point("td")) == near(2.877066, abs=5e-7)
    assert mdp.msve(mdp.best) == near(0.665233, abs=5e-7)


@pytest.mark.parametrize(
    ("rule", "lambda_", "theta"),
    [
        ("etd", 0.5, [2.809249, 0.786127, 0.260116]),
        ("etd", 1.0, [3.577778, 0.266667, 0.822222]),
        ("td", 1.0, [3.577778, 0.266667, 0.822222]),
    ],
)
def test_chain_with_bootstrapping(rule: str, lambda_: float, theta: list[float]) -> None:
    assert problems.chain(lambda_).fixed_point(rule) == near(theta, abs=5e-7)


def test_chain_with_interest() -> None:
    Phi = problems.chain().Phi
    mdp = problems.chain(I=1 + Phi[:, 1] + 2 * Phi[:, 2])
    assert mdp.emphasis("etd") == near(np.array([16, 32, 40, 48, 3]) / 31)
    assert mdp.fixed_point("etd") == near([2.066667, 1.133333, -0.066667], abs=5e-7)


@pytest.mark.parametrize(
    ("I", "lambda_", "theta"),
    [
        ([1, 0, 0, 0], 1.0, [4, 0]),  # θ_2 is never touched: the shortest solution leaves it at 0
        ([1, 0, 0, 0], [1, 1, 0, 1], [4, 2]),
        (1.0, 1.0, [3.5, 1.5]),
        (1.0, 0.0, [3.25, 1.75]),
    ],
)
def test_example_9_4(I: Any, lambda_: Any, theta: list[float]) -> None:
    mdp = problems.example_9_4(I, lambda_)
    assert mdp.v_pi == near([4, 3, 2, 1])
    assert mdp.fixed_point("etd") == near(theta, abs=1e-12)


def test_example_9_4_has_emphasis_where_a_return_is_cut() -> None:
    assert problems.example_9_4(lambda_=[1, 1, 0, 1]).emphasis("etd") * 4 == near([1, 0, 1, 0])


def test_baird() -> None:
    """Sutton & Barto, sections 11.2 and 11.8: what no update can change, and where the expected ones lead."""
    mdp = problems.baird()
    kept = np.array([1, 1, 1, 1, 1, 1, 4, -2])
    assert kept @ THETA_0 == 44
    np.testing.assert_array_equal(mdp.Phi @ kept, np.zeros(7))
    assert mdp.d_mu == near(np.full(7, 1 / 7))
    assert mdp.fixed_point("etd") == near(np.zeros(8))
    theta, dp = np.array(THETA_0), np.array(THETA_0)
    A, Phi = mdp.A_matrix("etd"), mdp.Phi
    for _ in range(1000):
        dp += 0.01 / 7 * Phi.T @ (mdp.P_pi @ Phi * 0.99 - Phi) @ dp
    assert dp == near([114.43] * 6 + [6.850, 335.00], abs=5e-3)  # semi-gradient dynamic programming, α = .01
    for _ in range(20_000):
        theta -= 0.01 * A @ theta
    assert theta == near(np.array([22] * 6 + [88, -44]) / 13)


def test_collision() -> None:
    mdp = problems.collision(seed=5)
    assert mdp.v_pi == near(0.9 ** np.arange(7.0, -1.0, -1.0))
    assert mdp.d_mu == near(np.array([2, 4, 6, 8, 8, 4, 2, 1]) / 35, rel=1e-14)
    assert mdp.rmsve(np.zeros(6)) == near(0.68908, abs=5e-6)
    assert (mdp.xi(0.5), mdp.xi(1.0)) == (1.0, 2.0)
    # What π alone would do in a state that is left for ever counts too: 1/ξ_max is the least of max(π, μ).
    P = [[[0, 1], [0, 1], [0, 1]], [[0, 1]] * 3]
    away = problems.MDP(P, 0.0, 0.5, pi=[[0.1, 0.9, 0.0], [0.5, 0.5, 0.0]], mu=[[0.0, 1.0, 0.0], [0.5, 0.5, 0.0]])
    assert away.xi(1.0) == pytest.approx(10.0)
    assert set(mdp.Phi.ravel()) == {0.0, 1.0}
    np.testing.assert_array_equal(mdp.Phi.sum(axis=1), np.full(8, 3.0))
    assert (mdp.Phi != problems.collision(seed=6).Phi).any()
    drawn = np.concatenate([problems.collision((7, run)).Phi for run in range(500)])
    assert drawn.mean(axis=0) == near(np.full(6, 0.5), abs=0.04)


def test_boyan() -> None:
    mdp = problems.boyan()
    assert mdp.v_pi == near(np.arange(-24.0, 1.0, 2.0))
    for rule in ("td", "etd"):
        assert mdp.fixed_point(rule) == near([-24, -16, -8, 0], abs=1e-10)
    assert mdp.Phi[1] == near([0.75, 0.25, 0, 0])


def test_a_split() -> None:
    """Sutton & Barto, example 11.2: A goes to B or C, B ends with 1 and C with 0. Printed: values ½, 1 and 0, and ½, ¾
    and ¼ for those of least mean squared TD error, which the (naive) residual gradient algorithm finds."""
    P = [[[0.0, 0.5, 0.5, 0.0]], [[0.0, 0.0, 0.0, 1.0]], [[0.0, 0.0, 0.0, 1.0]]]
    mdp = MDP(P, [0.0, 1.0, 0.0], 1.0, [1.0], start=[1.0, 0.0, 0.0])
    assert mdp.v_pi == near([0.5, 1.0, 0.0])
    assert mdp.fixed_point("td") == near([0.5, 1.0, 0.0])
    assert mdp.fixed_point("residual_gradient") == near([0.5, 0.75, 0.25])
    learner = Learner("residual_gradient", 3, engine="reference")
    alpha = emphatic.stepsizes.decaying(0.2, 20_000, after=1000)
    learner.run(**mdp.simulate(20_000, seed=1).inputs("residual_gradient"), alpha=alpha, predictions=False)
    assert learner.theta == near([0.5, 0.75, 0.25], abs=0.02)


@pytest.mark.parametrize("features", ["tabular", "inverted", "dependent"])
def test_random_walk(features: str) -> None:
    mdp = problems.random_walk(features=features)
    assert mdp.v_pi == near(np.arange(-9, 10) / 10)
    assert (mdp.Phi**2).sum(axis=1) == near(np.ones(19))
    assert mdp.start[9] == 1.0
    if features != "dependent":  # ten weights for nineteen states cannot be exact
        assert mdp.Phi @ mdp.fixed_point("td") == near(mdp.v_pi, abs=1e-9)


def test_random_walk_of_gradient_td() -> None:
    """Sutton, Maei et al. (2009): five states, 1 on the right."""
    mdp = problems.random_walk(5, "dependent", rewards=(0.0, 1.0))
    assert mdp.v_pi == near(np.arange(1, 6) / 6)
    a, b = 1 / math.sqrt(2), 1 / math.sqrt(3)
    assert mdp.Phi == near(np.array([[1, 0, 0], [a, a, 0], [b, b, b], [0, a, a], [0, 0, 1]]))
    assert problems.random_walk(5, "inverted").Phi == near((1 - np.eye(5)) / 2)


def test_garnet() -> None:
    mdp = problems.garnet(20, 3, 4, 6, seed=1)
    np.testing.assert_array_equal((mdp.P > 0).sum(axis=2), np.full((20, 3), 4))
    assert len({tuple(row) for row in mdp.Phi.tolist()}) == 20  # 6 bits with 3 ones: all there are
    np.testing.assert_array_equal(mdp.Phi.sum(axis=1), np.full(20, 3.0))
    assert problems.garnet(25, 3, 4, 6).Phi.shape == (25, 6)  # then some are the same
    np.testing.assert_array_equal(problems.garnet(5, 2, 2, None).Phi, np.eye(5))
    np.testing.assert_array_equal(mdp.P, problems.garnet(20, 3, 4, 6, seed=1).P)
    assert (mdp.P != problems.garnet(20, 3, 4, 6, seed=2).P).any()
    assert (mdp.pi != mdp.mu).any()
    same = problems.garnet(20, 3, 4, 6, seed=1, on_policy=True)
    np.testing.assert_array_equal(same.pi, same.mu)
    assert same.is_positive_definite("td")


# ------------------------------------------------------------------------------- any MDP: other ways to the answers


@st.composite
def mdps(draw: st.DrawFn, on_policy: bool = False) -> MDP:
    """Everything varies: ends, γ of 0 and 1, λ of 0 and 1, no interest, actions that π never takes."""
    S, A, n = draw(st.integers(2, 5)), draw(st.integers(1, 3)), draw(st.integers(1, 3))
    rng = np.random.default_rng(draw(st.integers(0, 10_000)))
    ends = draw(st.booleans())
    P = rng.dirichlet(np.ones(S + ends), (S, A))
    pi = rng.dirichlet(np.ones(A), S)
    pi[rng.random((S, A)) < 0.3] = 0.0
    pi[:, 0] += 1.0 - pi.sum(axis=1)
    gamma = rng.uniform(0.0, 0.9, S)
    gamma[0] = draw(st.sampled_from([0.0, 0.5, 1.0]))
    lambda_ = np.where(rng.random(S) < 0.5, rng.random(S), draw(st.sampled_from([0.0, 1.0])))
    return MDP(
        P, rng.standard_normal(P.shape), gamma, pi, pi if on_policy else rng.dirichlet(np.ones(A), S),
        rng.standard_normal((S, n)), rng.uniform(0.1, 2.0, S), lambda_, rng.dirichlet(np.ones(S)),
    )  # fmt: skip


def joint(mdp: MDP) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Of every (s, a, s' or end): its probability given s, with ρ; γ' of where it leads; δ is made of these."""
    taken = mdp.mu > 0.0
    rho = np.where(taken, mdp.pi / np.where(taken, mdp.mu, 1.0), 0.0)
    return mdp.mu[:, :, None] * rho[:, :, None] * mdp.P, mdp.mu[:, :, None] * mdp.P, np.append(mdp.gamma, 0.0)


def check_that_nothing_is_updated(mdp: MDP, theta: FloatArray, e: FloatArray) -> None:
    """By E[δe] over all that may follow, where e is that of each state, weighted by how often it comes."""
    weighted, _, gamma_next = joint(mdp)
    v = mdp.Phi @ theta
    delta = mdp.R + gamma_next * np.append(v, 0.0) - v[:, None, None]
    update = np.einsum("sn,sax,sax->n", e, weighted, delta)
    scale = np.einsum("sn,sax,sax->n", abs(e), weighted, abs(delta)) + 1.0
    assert update / scale == near(np.zeros(mdp.n), abs=1e-8)


@given(mdps())
def test_values_are_the_sums_of_what_follows(mdp: MDP) -> None:
    v = np.zeros(mdp.S)
    for _ in range(2000):
        after = np.append(mdp.gamma * v, 0.0)
        v = np.einsum("sa,sax,sax->s", mdp.pi, mdp.P, mdp.R + after)
    assert mdp.v_pi == near(v, rel=1e-9, abs=1e-9)


@given(mdps())
def test_visits_are_stationary(mdp: MDP) -> None:
    visits = np.einsum("s,sa,sax->x", mdp.d_mu, mdp.mu, mdp.P)
    assert mdp.d_mu == near(visits[:-1] + visits[-1] * mdp.start, rel=1e-12)
    assert mdp.d_mu.sum() == near(1.0)
    assert (mdp.d_mu > 0.0).all()


@given(mdps(), st.sampled_from(["td", "etd", "etd_beta"]))
def test_expected_updates_vanish_at_the_fixed_point(mdp: MDP, rule: str) -> None:
    """By the rules' own recursions for F and e, in expectation over transitions, until nothing changes."""
    try:
        theta = mdp.fixed_point(rule, 0.7)
    except ValueError:
        assert np.linalg.matrix_rank(mdp.A_matrix(rule, 0.7)) < mdp.n
        return
    weighted, _, _ = joint(mdp)
    onward = weighted.sum(axis=1)[:, :-1]  # Σ_a μρP
    discount = np.where(mdp.gamma > 0, 0.7, 0.0) if rule == "etd_beta" else mdp.gamma
    F, e = np.zeros(mdp.S), np.zeros((mdp.S, mdp.n))  # E[F; S_t = s] and E[γλe_{t−1} + Mφ; S_t = s]
    i = mdp.d_mu * mdp.I
    for _ in range(1000):
        F = discount * (F @ onward) + i
    M = i if rule == "td" else mdp.lambda_ * i + (1 - mdp.lambda_) * F
    for _ in range(1000):
        e = (mdp.gamma * mdp.lambda_)[:, None] * (onward.T @ e) + M[:, None] * mdp.Phi
    check_that_nothing_is_updated(mdp, theta, e)
    if rule == "td":
        assert mdp.mspbe(theta) == near(0.0, abs=1e-9)
    else:
        assert mdp.emphasis(rule, 0.7) == near(M, rel=1e-9)


@given(mdps())
def test_expected_updates_with_cut_traces_vanish_at_the_fixed_point(mdp: MDP) -> None:
    """As above, of bounded_etd: with a λ and an emphasis of their own for each (s⁻, a⁻, s), every one written out."""
    theta = mdp.fixed_point("bounded_etd")
    weighted, visited, _ = joint(mdp)
    ratio = np.where(mdp.mu > 0.0, mdp.pi / np.where(mdp.mu > 0.0, mdp.mu, 1.0), 0.0)
    cut = mdp.lambda_ / np.maximum(1.0, ratio)[:, :, None]  # λ at s after (s⁻, a⁻)
    ahead, i = weighted[:, :, :-1] * mdp.gamma, mdp.d_mu[:, None, None] * visited[:, :, :-1] * mdp.I
    started = (mdp.d_mu @ visited.sum(axis=1))[-1] * mdp.start * mdp.I  # the end before them has γ = 0: M = F = I
    F = np.zeros(mdp.S)
    for _ in range(1000):
        of_each = F[:, None, None] * ahead + i
        F = of_each.sum(axis=(0, 1)) + started
    M = (cut * i + (1.0 - cut) * of_each).sum(axis=(0, 1)) + started
    e = np.zeros((mdp.S, mdp.n))
    for _ in range(1000):
        e = np.einsum("sax,sn->xn", cut * ahead, e) + M[:, None] * mdp.Phi
    check_that_nothing_is_updated(mdp, theta, e)
    assert mdp.emphasis("bounded_etd").sum() == near(M.sum(), rel=1e-9)
    assert mdp.with_cut_traces.d_mu.sum() == near(1.0)
    assert mdp.with_cut_traces.r_pi @ mdp.with_cut_traces.d_mu == near(mdp.r_pi @ mdp.d_mu, rel=1e-9, abs=1e-9)


@given(mdps())
def test_without_a_large_ratio_and_without_traces_cut_traces_are_whole(mdp: MDP) -> None:
    for same in (mdp.replace(mu=mdp.pi), mdp.replace(lambda_=0.0)):
        assert same.A_matrix("bounded_etd") == near(same.A_matrix("etd"), rel=1e-9, abs=1e-9)
        assert same.b_vector("bounded_etd") == near(same.b_vector("etd"), rel=1e-9, abs=1e-9)


def test_key_matrices_with_cut_traces_are_positive_definite() -> None:
    """On 30 random problems, half of them with a greedy target policy, of any λ, γ and I; without emphasis on few."""
    also_td = []
    for seed in range(30):
        rng = np.random.default_rng(seed)
        mdp = problems.garnet(8, 3, 2, 4, seed=seed, gamma=rng.choice([0.5, 0.9, 0.99]))
        pi = np.eye(3)[rng.integers(0, 3, 8)] if seed % 2 else rng.dirichlet(np.ones(3), 8)
        lambda_, I = rng.choice([0.0, 0.5, 0.9, 1.0], 8), rng.uniform(0.1, 2.0, 8)
        mdp = mdp.replace(pi=pi, mu=rng.dirichlet(np.ones(3), 8), lambda_=lambda_, I=I)
        K = mdp.key_matrix("bounded_etd")
        assert len(K) > 8
        assert mdp.is_positive_definite("bounded_etd")
        assert np.linalg.eigvalsh(K + K.T)[0] > 0.0
        # The columns sum to the interest; the rows, like those of 𝟙 − P^λ, to something that is not negative.
        assert K.sum(axis=0) == near(mdp.with_cut_traces.objective, rel=1e-9)
        assert (K.sum(axis=1) > 0.0).all()
        also_td.append(mdp.with_cut_traces.is_positive_definite("td"))
    assert not all(also_td)


@given(mdps())
def test_the_residual_gradient_has_the_least_mean_squared_error_of_one_step(mdp: MDP) -> None:
    """Σ d_μ I E_μ[ρδ²] over all that may follow, at θ* and a little beside it; and its gradient vanishes."""
    theta = mdp.fixed_point("residual_gradient")
    weighted, _, gamma_next = joint(mdp)

    def error(theta: FloatArray) -> float:
        v = mdp.Phi @ theta
        delta = mdp.R + gamma_next * np.append(v, 0.0) - v[:, None, None]
        return float(np.einsum("s,sax,sax->", mdp.d_mu * mdp.I, weighted, delta**2))

    least = error(theta)
    A, b = mdp.A_matrix("residual_gradient"), mdp.b_vector("residual_gradient")
    for direction in np.eye(mdp.n):
        ahead, behind = error(theta + 1e-3 * direction), error(theta - 1e-3 * direction)
        assert least <= min(ahead, behind) + 1e-12 * least
        assert (ahead + behind - 2.0 * least) / 2e-6 == near(direction @ A @ direction, rel=1e-4, abs=1e-6)
        slope = (error(direction) - error(-direction)) / 2.0
        assert slope == near(-2.0 * direction @ b, rel=1e-9, abs=1e-9)
    assert np.linalg.eigvalsh(mdp.key_matrix("residual_gradient"))[0] > -1e-12  # stable, whatever the features


@given(mdps())
def test_the_best_weights_cannot_be_improved(mdp: MDP) -> None:
    for i in range(mdp.n):
        step = 1e-3 * np.eye(mdp.n)[i]
        assert mdp.msve(mdp.best) <= min(mdp.msve(mdp.best + step), mdp.msve(mdp.best - step)) + 1e-12
    errors = mdp.Phi @ mdp.best - mdp.v_pi
    assert mdp.rmsve(mdp.best) == near(math.sqrt(np.average(errors**2, weights=mdp.d_mu * mdp.I)), abs=1e-12)
    assert mdp.rmsve([mdp.best, mdp.best]) == near(np.full(2, mdp.rmsve(mdp.best)))
    assert mdp.msve(mdp.best, d=np.arange(mdp.S)) == near(np.average(errors**2, weights=np.arange(mdp.S)), abs=1e-12)


@given(mdps())
def test_the_projected_bellman_error_is_that_of_a_projection(mdp: MDP) -> None:
    """‖Π(T^λv − v)‖² with Π the weighted projection onto what the features can represent, and weights of sum 1."""
    theta, weight = np.ones(mdp.n), np.sqrt(mdp.d_mu * mdp.I)
    v = mdp.Phi @ theta
    ahead, error = mdp.r_pi + mdp.P_pi @ (mdp.gamma * v) - v, np.zeros(mdp.S)
    for _ in range(1000):
        error = ahead + mdp.P_pi @ (mdp.gamma * mdp.lambda_ * error)
    projected = mdp.Phi @ np.linalg.pinv(weight[:, None] * mdp.Phi) @ (weight * error)
    assert mdp.mspbe(theta) == near(np.average(projected**2, weights=weight**2), rel=1e-6, abs=1e-9)


@given(mdps(), st.floats(1e-3, 1e3))
def test_errors_are_averages_that_do_not_depend_on_the_unit_of_interest(mdp: MDP, factor: float) -> None:
    """With I and with any multiple of it; and with tabular features the projected error is the Bellman error's mean."""
    theta, scaled = np.linspace(-1.0, 1.0, mdp.n), mdp.replace(I=mdp.I * factor)
    for error, same in ((mdp.msve, scaled.msve), (mdp.rmsve, scaled.rmsve), (mdp.mspbe, scaled.mspbe)):
        assert same(theta) == near(error(theta), rel=1e-6, abs=1e-9)
    tabular = mdp.replace(Phi=np.eye(mdp.S), lambda_=0.0)
    values = np.linspace(-1.0, 1.0, mdp.S)
    bellman = tabular.r_pi + tabular.P_pi @ (tabular.gamma * values) - values
    assert tabular.mspbe(values) == near(np.average(bellman**2, weights=tabular.objective), rel=1e-6, abs=1e-9)


@given(mdps(on_policy=True))
def test_on_policy_and_emphatic_key_matrices_are_positive_definite(mdp: MDP) -> None:
    mdp = mdp.replace(I=1.0, lambda_=0.5)
    assert mdp.is_positive_definite("td")
    assert mdp.is_positive_definite("etd")


@given(mdps())
def test_with_full_traces_and_a_feature_a_state_everything_is_exact(mdp: MDP) -> None:
    mdp = mdp.replace(Phi=np.eye(mdp.S), lambda_=1.0)
    for rule in ("td", "etd", "gtd", "true_online_etd"):
        assert mdp.fixed_point(rule) == near(mdp.v_pi, rel=1e-7, abs=1e-7)


def test_followon_on_policy_is_published() -> None:
    """Constant γ and λ, I = 1: M → (1 − γλ)/(1 − γ)."""
    mdp = problems.garnet(on_policy=True, gamma=0.9).replace(lambda_=0.4)
    assert mdp.emphasis("etd") / mdp.d_mu == near(np.full(30, (1 - 0.36) / 0.1))


# ------------------------------------------------------------------------------------------------- simulation


def sampled() -> MDP:
    """Ends, unequal first states, an action never taken, and a reward for each transition."""
    rng = np.random.default_rng(3)
    P = rng.dirichlet(np.ones(5), (4, 3))
    P[0, 0] = [0, 0.5, 0, 0, 0.5]
    mu = rng.dirichlet(np.ones(3), 4)
    mu[2] = 0, 0.25, 0.75
    pi = [[0, 0.5, 0.5]] * 4
    return MDP(
        P, np.arange(60.0).reshape(P.shape), [0.9, 0.8, 0.7, 1.0], pi, mu, rng.standard_normal((4, 6)),
        [1, 2, 3, 4], [0, 0.25, 0.5, 1], [0.1, 0.2, 0.7, 0],
    )  # fmt: skip


def test_a_stream_is_that_of_the_tables() -> None:
    mdp, T = sampled(), 400_000
    stream = mdp.simulate(T, seed=11)
    s, a, after = stream.states[:-1], stream.actions, stream.states[1:]
    ends = stream.gamma_next == 0.0
    x = np.where(ends, 4, after)
    np.testing.assert_array_equal(stream.gamma_next, np.append(mdp.gamma, 0.0)[x])
    np.testing.assert_array_equal(stream.R, mdp.R[s, a, x])
    np.testing.assert_array_equal(stream.pi, mdp.pi[s, a])
    np.testing.assert_array_equal(stream.mu, mdp.mu[s, a])
    np.testing.assert_array_equal(stream.rho, mdp.pi[s, a] / mdp.mu[s, a])
    np.testing.assert_array_equal(stream.Phi, mdp.Phi[stream.states])
    np.testing.assert_array_equal(stream.I, mdp.I[s])
    np.testing.assert_array_equal(stream.lambda_, mdp.lambda_[s])
    np.testing.assert_array_equal(stream.lambda_next, mdp.lambda_[after])
    counts = np.zeros((4, 3, 5))
    np.add.at(counts, (s, a, x), 1)
    chance = mdp.mu[:, :, None] * mdp.P
    visits = counts.sum(axis=(1, 2), keepdims=True)
    assert (counts[chance == 0.0] == 0.0).all()
    assert (np.abs(counts / visits - chance) <= 4.5 * np.sqrt(chance * (1 - chance) / visits)).all()
    assert visits.ravel() / T == near(mdp.d_mu, abs=0.005)
    begun = np.bincount(after[ends], minlength=4) / ends.sum()
    assert begun == near(mdp.start, abs=0.01)
    assert begun[3] == 0.0


def test_first_states_are_drawn_too() -> None:
    first = sampled().simulate(1, runs=4000).states[:, 0]
    assert np.bincount(first, minlength=4) / 4000 == near([0.1, 0.2, 0.7, 0.0], abs=0.03)


@given(mdps())
def test_the_table_of_outcomes_has_the_probabilities(mdp: MDP) -> None:
    table = mdp._outcomes
    size = np.repeat(np.diff(table.first), np.diff(table.first))
    chance = table.share / size
    np.add.at(chance, table.other, (1.0 - table.share) / size)
    found = np.zeros((mdp.S + 1, mdp.S))
    group = np.repeat(np.arange(mdp.S + 1), np.diff(table.first))
    np.add.at(found, (group, table.following), chance)
    ends = 1.0 - mdp.P_mu.sum(axis=1)
    assert found[:-1] == near(mdp.P_mu + np.outer(ends, mdp.start), abs=1e-12)
    assert found[-1] == near(mdp.start, abs=1e-12)


def same(one: problems.Stream, other: problems.Stream) -> bool:
    fields = [field.name for field in dataclasses.fields(one)]
    return all(np.array_equal(getattr(one, name), getattr(other, name)) for name in fields)


def test_runs_are_streams_of_their_own() -> None:
    mdp = sampled()
    many = mdp.simulate(50, seed=4, runs=3)
    assert (many.runs, many.T, len(many), many.Phi.shape) == (3, 50, 3, (3, 51, 6))
    for i, run in enumerate(many):
        assert same(run, mdp.simulate(50, seed=(4, i)))
        assert same(run, mdp.simulate(50, seed=4, runs=i + 1)[i])
        assert (run.runs, len(run)) == (None, 50)
    assert not same(many[0], many[1])
    assert same(mdp.simulate(50, seed=(4, 1), runs=2)[1], mdp.simulate(50, seed=(4, 1, 1)))


def test_a_longer_stream_begins_as_a_shorter() -> None:
    mdp = sampled()
    short, long = mdp.simulate(100, seed=2), mdp.simulate(1000, seed=2)
    np.testing.assert_array_equal(long.states[:101], short.states)
    np.testing.assert_array_equal(long.R[:100], short.R)


def test_features_and_stream_of_one_seed_are_independent() -> None:
    """Else the first draw would be of the very number that chose the first feature."""
    u = np.random.default_rng(9).random(4)
    assert problems.random_walk(5).simulate(4, seed=9).actions.tolist() != (u > 0.5).astype(int).tolist()
    first = np.array([problems.collision(run).Phi[0, 0] for run in range(400)])
    mdp = problems.collision()
    begun = np.array([mdp.simulate(1, seed=run).states[0] for run in range(400)])
    assert abs(np.corrcoef(first, begun)[0, 1]) < 0.15


def test_what_is_constant_takes_no_memory() -> None:
    stream = problems.chain().simulate(1000, runs=3)
    assert stream.R.strides == stream.I.strides == stream.lambda_.strides == (0, 0)
    assert stream[1].R.tolist() == [1.0] * 1000


@pytest.mark.parametrize("rule", emphatic.rules.names())
def test_every_rule_learns_from_a_stream(rule: str) -> None:
    mdp = problems.collision()
    traits = emphatic.rules.get(rule)
    if traits.action_values:  # of states it would learn the values of behaviour
        with pytest.raises(ValueError, match=f"{traits.name} learns values of states and actions"):
            mdp.simulate(10).inputs(rule)
        mdp = mdp.replace(mu=mdp.pi)
    stream = mdp.simulate(500)
    own = {"beta": 0.5, "xi": mdp.xi(0.5), "decay": 0.5, "period": 2.0}
    required = [name for name in traits.extra if name in own and name not in traits.defaults]
    inputs = stream.inputs(rule) | {name: own[name] for name in required} | {"lambda_": 0.5}
    _, error = Learner(rule, 6, engine="reference").run(**inputs, alpha=0.005, probe=mdp.probe, probe_every=499)
    assert error[0] == near(mdp.rmsve(np.zeros(6)))
    assert error[-1] < error[0]
    if "lambda_next" in traits.extra:  # another λ would not be followed by a constant λ' of its own
        assert "lambda_next" not in inputs
        assert rule == "gq" or "lambda_next" in sampled().simulate(60).inputs(rule)
    assert stream.inputs(traits).keys() == stream.inputs(rule).keys()


@pytest.mark.parametrize(("rule", "other"), [("true_online_etd", "bounded_etd"), ("bounded_etd", "true_online_etd")])
def test_learning_comes_to_the_fixed_point(rule: str, other: str) -> None:
    """Where emphasis, interest and λ all matter, and whether traces are cut."""
    mdp = problems.chain(0.5, I=[1, 2, 3, 2, 1])
    alpha = emphatic.stepsizes.decaying(0.005, 400_000, after=2000)
    learner = Learner(rule, 3)
    learner.run(**mdp.simulate(400_000, seed=1).inputs(rule), alpha=alpha, predictions=False)
    assert learner.theta == near(mdp.fixed_point(rule), abs=0.1)
    assert np.abs(learner.theta - problems.chain(0.5).fixed_point(rule)).max() > 0.3
    assert np.abs(learner.theta - mdp.fixed_point(other)).max() > 0.2


def test_an_mdp_can_be_sent_to_another_process() -> None:
    mdp = problems.collision()
    _ = mdp.d_mu, mdp.simulate(1)
    there = pickle.loads(pickle.dumps(mdp))
    assert same(there.simulate(20), mdp.simulate(20))


# -------------------------------------------------------------------------------------------------- Gymnasium


def iterated(env: Any, pi: FloatArray, gamma: float) -> list[float]:
    """v_π by sweeps over the environment's own table."""
    table = env.unwrapped.P
    steps = [
        [(pi[s][a] * p, x, r, gamma * (not over)) for a in table[s] for p, x, r, over in table[s][a]] for s in table
    ]
    v = [0.0] * len(steps)
    for _ in range(250):
        v = [sum(p * (r + g * v[x]) for p, x, r, g in step) for step in steps]
    return v


@pytest.mark.parametrize("env", [FrozenLakeEnv(), CliffWalkingEnv(), TaxiEnv()], ids=lambda env: type(env).__name__)
def test_gymnasium_tables(env: Any) -> None:
    S, A = len(env.P), len(env.P[0])
    pi = np.random.default_rng(1).dirichlet(np.ones(A), S)
    mdp = problems.from_gymnasium(env, pi, np.full(A, 1 / A), gamma=0.9)
    assert mdp.v_pi == near(np.array(iterated(env, pi, 0.9)), rel=1e-7, abs=1e-7)
    np.testing.assert_array_equal(mdp.start, env.initial_state_distrib)
    assert (mdp.S, mdp.A, mdp.n) == (S, A, S)
    visits = np.einsum("s,sa,sax->x", mdp.d_mu, mdp.mu, mdp.P)
    assert mdp.d_mu == near(visits[:-1] + visits[-1] * mdp.start, abs=1e-12)
    stream = mdp.simulate(1000)
    assert set(stream.states.tolist()) <= set(np.flatnonzero((mdp.d_mu > 0) | (mdp.start > 0)).tolist())


def test_gymnasium_by_name() -> None:
    mdp = problems.from_gymnasium("FrozenLake-v1", [0.25] * 4, Phi=np.ones((16, 1)))
    assert (mdp.name, mdp.S, mdp.n) == ("FrozenLake-v1", 16, 1)
    with pytest.raises(ValueError, match=r"'env' parameter of from_gymnasium must have a table of transitions"):
        problems.from_gymnasium("CartPole-v1", [0.5, 0.5])


def test_a_missing_gymnasium_names_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "gymnasium", None)
    with pytest.raises(ImportError, match=r"pip install 'emphatic\[gym\]'"):
        problems.from_gymnasium("FrozenLake-v1", [0.25] * 4)


# ----------------------------------------------------------------------------------------------------- errors

STAY = np.eye(2)[:, None, :]
GO = np.full((2, 2, 2), 0.5)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"P": np.ones((2, 2))}, r"'P' parameter of MDP must have shape .* Got shape \(2, 2\) instead"),
        ({"P": np.ones((2, 2, 4))}, r"'P' .* Got shape \(2, 2, 4\) instead"),
        ({"P": [["a"]]}, r"'P' parameter of MDP must be real numbers"),
        ({"P": GO * 0.9}, r"'P' .* must sum to 1 over next states\. Got 0\.9 for state 0, action 0 instead"),
        ({"P": np.add(GO, [0.6, -0.6])}, r"'P' .* Got .* for state 0, action 0, next state 0 instead"),
        ({"P": GO * [[[1], [np.nan]]]}, r"'P' .* Got nan for state 0, action 1, next state 0 instead"),
        ({"R": [1.0, np.inf]}, r"'R' .* must be finite\. Got inf for state 1 instead"),
        ({"R": np.ones((2, 2, 4))}, r"'R' .* Got shape \(2, 2, 4\) instead"),
        ({"R": [1.0, 2.0, 3.0]}, r"'R' .* Got shape \(3,\) instead"),
        ({"gamma": 1.5}, r"'gamma' .* must be between 0 and 1, and finite\. Got 1\.5 instead"),
        ({"gamma": [0.5, -0.1]}, r"'gamma' .* Got -0\.1 for state 1 instead"),
        ({"gamma": [0.5] * 3}, r"'gamma' .* Got shape \(3,\) instead"),
        ({"lambda_": [0.0, 2.0]}, r"'lambda_' .* Got 2\.0 for state 1 instead"),
        ({"I": [0.0, -1.0]}, r"'I' .* must be 0 or more, and finite\. Got -1\.0 for state 1 instead"),
        ({"pi": [0.5, 0.4]}, r"'pi' .* must sum to 1\. Got 0\.9 instead"),
        ({"pi": [[1, 0], [1, 1]]}, r"'pi' .* must sum to 1 over actions\. Got 2\.0 for state 1 instead"),
        ({"mu": [1.5, -0.5]}, r"'mu' .* Got 1\.5 for action 0 instead"),
        ({"mu": [1.0]}, r"'mu' .* Got shape \(1,\) instead"),
        ({"Phi": [1.0, 2.0]}, r"'Phi' .* must have shape \(2, n\)\. Got shape \(2,\) instead"),
        ({"Phi": [[1.0], [np.nan]]}, r"'Phi' .* Got nan for state 1, feature 0 instead"),
        ({"start": [0.5, 0.6]}, r"'start' .* must sum to 1\. Got 1\.1 instead"),
        ({"start": [1.0]}, r"'start' .* Got shape \(1,\) instead"),
    ],
)
def test_what_is_no_mdp_is_refused(changed: dict[str, Any], message: str) -> None:
    fine: dict[str, Any] = {"P": GO, "R": 0.0, "gamma": 0.9, "pi": [0.5, 0.5]}
    MDP(**fine)
    with pytest.raises(ValueError, match=message):
        MDP(**fine | changed)


def test_several_recurrent_classes_have_no_one_distribution() -> None:
    mdp = MDP(STAY, 1.0, 0.5, [1.0])
    assert mdp.v_pi == near([2.0, 2.0])
    with pytest.raises(ValueError, match=r"d_mu is not unique: .* 'start'"):
        _ = mdp.d_mu
    assert mdp.replace(start=[0.0, 1.0]).d_mu.tolist() == [0.0, 1.0]


def test_behaviour_must_cover_the_target() -> None:
    mdp = MDP(GO, 1.0, 0.5, [[1.0, 0.0], [0.5, 0.5]], [[0.5, 0.5], [1.0, 0.0]])
    for ask in (mdp.emphasis, mdp.followon, mdp.fixed_point, lambda: mdp.simulate(1)):
        with pytest.raises(ValueError, match=r"'mu' .* Got 0\.0 for state 1, action 1, where pi is 0\.5 instead"):
            ask()
    # In a state that is left for ever it does not matter.
    P = np.zeros((2, 2, 2))
    P[:, :, 0] = 1.0
    assert mdp.replace(P=P).emphasis("td").tolist() == [1.0, 0.0]


def test_a_sum_without_end_has_no_value() -> None:
    with pytest.raises(ValueError, match=r"follows state 0 under 'pi' is infinite.*Give a 'gamma' below 1"):
        _ = MDP(GO, 1.0, 1.0, [0.5, 0.5]).v_pi
    with pytest.raises(ValueError, match=r"follows state 1 "):
        _ = MDP([[[0, 0, 1]], [[0, 1, 0]]], 1.0, 1.0, [1.0]).v_pi
    with pytest.raises(ValueError, match=r"Give a 'decay' below 1"):
        MDP(GO, 1.0, 0.9, [0.5, 0.5]).followon(decay=1.0)


def test_no_fixed_point() -> None:
    """A = 0 and b ≠ 0: the one state of interest goes to one that looks the same, without a discount."""
    swap = [[[0.0, 1.0, 0.0]], [[0.5, 0.0, 0.5]]]
    mdp = MDP(swap, 1.0, [1, 1], [1.0], Phi=[[1.0], [2.0]], I=[1.0, 0.0])
    assert mdp.A_matrix("td")[0, 0] != 0.0
    same_again = mdp.replace(Phi=[[1.0], [1.0]])
    assert same_again.A_matrix("td")[0, 0] == 0.0
    with pytest.raises(ValueError, match=r"'td' has no fixed point"):
        same_again.fixed_point("td")
    with pytest.raises(ValueError, match=r"beyond the range of float64"):
        mdp.replace(Phi=[[1e200], [2e200]]).fixed_point("td")


def test_rules_without_a_known_fixed_point_are_refused() -> None:
    mdp = problems.chain()
    assert mdp.fixed_point(emphatic.rules.get("td")) == near(mdp.fixed_point("td"), rel=0.0)
    for rule in ("vtrace", "dance"):
        with pytest.raises(ValueError, match=rf"'rule' parameter of emphasis .* Got '{rule}' instead"):
            mdp.fixed_point(rule)
    with pytest.raises(ValueError, match=r"'decay' parameter of emphasis is required by rule 'etd_beta'"):
        mdp.emphasis("etd_beta")
    with pytest.raises(ValueError, match=r"'decay' parameter of followon .* Got 2\.0 instead"):
        mdp.followon(2.0)
    with pytest.raises(ValueError, match=r"'theta' parameter of msve must have shape \(…, 3\)"):
        mdp.msve([1.0, 2.0])
    with pytest.raises(ValueError, match=r"'theta' parameter of mspbe"):
        mdp.mspbe(1.0)
    with pytest.raises(ValueError, match=r"'d' parameter of msve must not be 0 in every state"):
        mdp.msve([0.0] * 3, d=0.0)
    with pytest.raises(ValueError, match=r"'I' parameter of MDP must be above 0 in a state that behaviour visits"):
        mdp.replace(I=0.0).mspbe([0.0] * 3)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"T": 0}, "'T' parameter of simulate"),
        ({"T": 5, "runs": 0}, "'runs' parameter of simulate"),
        ({"T": 5, "seed": -1}, r"'seed' parameter of simulate .* Got -1 instead"),
        ({"T": 5, "seed": (1, 0.5)}, "'seed' parameter of simulate"),
        ({"T": 5, "seed": ()}, "'seed' parameter of simulate"),
    ],
)
def test_bad_simulations_are_refused(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        problems.chain().simulate(**arguments)


def test_a_stream_of_several_runs_is_not_an_input() -> None:
    stream = problems.chain().simulate(5, runs=2)
    with pytest.raises(ValueError, match=r"this stream has 2: use stream\[i\]"):
        stream.inputs("td")
    with pytest.raises(TypeError, match="single run"):
        _ = stream[0][0]
    assert (repr(stream), repr(stream[0])) == ("Stream(runs=2, T=5, n=3)", "Stream(T=5, n=3)")


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: problems.random_walk(2), "'states' parameter of random_walk must be 3 or more"),
        (lambda: problems.random_walk(5, "tiled"), "'features' parameter of random_walk"),
        (lambda: problems.garnet(5, 2, 6, 3), "'branching' parameter of garnet"),
        (lambda: problems.random_walk(5, rewards=(1.0,)), "'rewards' parameter of random_walk"),  # type: ignore[arg-type]
        (lambda: problems.collision(-1), r"'seed' parameter of collision .* Got -1 instead"),
        (lambda: problems.garnet(0, 2, 1, 3), "'states' parameter of garnet"),
    ],
)
def test_bad_problems_are_refused(make: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()


def test_problems_have_names() -> None:
    for name in problems.names():
        made = problems.get(name.replace("_", "-"))()
        assert isinstance(made, MDP | problems.Tasks)
        assert made.name == name
        assert getattr(problems, name) is problems.get(name)
        text = problems.get(name).__doc__ or ""
        for part in ("States", "Actions", "Policies", "Rewards and discount", "Features", "Known for", "Source"):
            assert f"    {part}: " in text
    with pytest.raises(ValueError, match=r"must be one of .* Got 'bard' instead\. Did you mean 'baird'\?"):
        problems.get("bard")


def test_probabilities_are_made_to_sum_to_1() -> None:
    mdp = MDP(GO * (1 + 5e-9), 0.0, 0.5, [0.5 + 5e-9, 0.5], start=[1.0, 5e-9])
    for rows in (mdp.P, mdp.pi, mdp.start):
        assert rows.sum(axis=-1) == near(np.ones(rows.shape[:-1]), abs=1e-15)


def test_weights_that_diverged_have_an_error_too() -> None:
    mdp = problems.chain()
    assert mdp.msve([1e200, 0.0, 0.0]) == math.inf
    assert math.isnan(mdp.rmsve([math.nan, 0.0, 0.0]))


def test_fields_are_whole_and_cannot_be_changed() -> None:
    mdp = MDP(GO, [1.0, 2.0], 0.5, [0.5, 0.5])
    assert (mdp.P.shape, mdp.R.shape, mdp.pi.shape, mdp.mu.shape) == ((2, 2, 3), (2, 2, 3), (2, 2), (2, 2))
    assert (mdp.gamma.shape, mdp.I.shape, mdp.lambda_.shape, mdp.start.tolist()) == ((2,), (2,), (2,), [0.5, 0.5])
    assert mdp.R[1, 0, 2] == 2.0
    for array in (mdp.P, mdp.gamma, mdp.v_pi, mdp.d_mu, mdp.best):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 0.0
    with pytest.raises(dataclasses.FrozenInstanceError):
        mdp.name = "other"  # type: ignore[misc]
