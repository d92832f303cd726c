"""Rules of action values, average reward and tamer emphasis, beside what the contract asks of every rule."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import emphatic
from emphatic import GVF, Horde, Learner, rules
from emphatic import features as f
from tests.rules.test_mutants import mutant
from tests.support import equations_control
from tests.support.plain import plain_python
from tests.support.sequence import Array, Result, Sequence
from tests.support.streams import TOLERANCE, make, relative_error

MAKERS: dict[str, tuple[Callable[[int], emphatic.Rule], Callable[[Sequence, int], Result], tuple[int, ...]]] = {
    "truncated_etd": (rules.truncated_etd, equations_control._truncated, (0, 1, 2, 5, 16)),
    "nstep_etd": (rules.nstep_etd, equations_control._nstep, (1, 2, 5, 16)),
}


@pytest.mark.parametrize("engine", emphatic.engines.available())
@pytest.mark.parametrize("kind", MAKERS)
def test_emphasis_over_n_steps_is_that_of_its_paper(kind: str, engine: str) -> None:
    maker, equations, sizes = MAKERS[kind]
    for n in sizes:
        rule = maker(n)
        stream = make(20 + n, 41, 5, 2, rule="td")
        with plain_python():
            learner = Learner(rule, 5, 2, engine=engine)
            predictions = stream.run(learner)
        for k in range(2):
            expected = equations(stream.sequence(k), n)
            assert relative_error(predictions[:, k], expected.predictions) <= TOLERANCE["float64"], (n, k)
            assert relative_error(learner.theta[k], expected.theta) <= TOLERANCE["float64"], (n, k)
            assert relative_error(learner.e[k], expected.e) <= TOLERANCE["float64"], (n, k)


@pytest.mark.parametrize("kind", MAKERS)
@pytest.mark.parametrize(
    ("old", "new"),
    [("rho_before * gamma", "gamma"), ("lambda_ * I + (1.0 - lambda_) *", "1.0 *"), ("s = rho * M", "s = M"),
     ("(gamma_next, rho,", "(gamma_next, 1.0 * gamma,")],
)  # fmt: skip
def test_a_slip_in_an_emphasis_over_n_steps_is_caught(kind: str, old: str, new: str) -> None:
    maker, equations, _ = MAKERS[kind]
    stream = make(9, 31, 4, rule="td")
    theta = equations(stream.sequence(), 3).theta
    errors = []
    for rule in (maker(3), mutant(maker(3), old, new)):
        learner = Learner(rule, 4, engine="reference")
        stream.run(learner)
        errors.append(relative_error(learner.theta, theta))
    assert errors[0] < 1e-10 < 1e-6 < errors[1]


def test_emphasis_over_n_steps_compiles_and_agrees() -> None:
    rule = rules.truncated_etd(3)
    stream = make(3, 31, 4, rule="td")
    assert relative_error(stream.run(Learner(rule, 4, engine="dense")), stream.run(Learner(rule, 4))) < 1e-10
    assert rules.truncated_etd(3) is rule


@pytest.mark.parametrize("n", [-1, 17, 1.0, True, "4", None])
@pytest.mark.parametrize("kind", MAKERS)
def test_a_bad_n_is_refused_in_one_line(kind: str, n: Any) -> None:
    with pytest.raises(
        ValueError, match=rf"'n' parameter of {kind} must be a whole number from \d to 16. Got"
    ) as error:
        MAKERS[kind][0](n)
    assert "\n" not in str(error.value)


def test_special_cases_of_emphasis() -> None:
    """n = 0 is td, n = 1 of the n-step trace is etd, a large n or clip is etd, period 0 is td without traces."""
    stream = make(8, 15, 4, rule="td")
    theta: dict[str, Array] = {}
    cases: dict[str, tuple[Any, dict[str, Any]]] = {
        "td": ("td", {}),
        "etd": ("etd", {}),
        "truncated 0": (rules.truncated_etd(0), {}),
        "truncated 16": (rules.truncated_etd(16), {}),
        "nstep 1": (rules.nstep_etd(1), {}),
        "clipped": ("clipped_etd", {"clip": 1e9}),
        "td, no traces": ("td", {"lambda_": 0.0}),
        "period 0": ("per_etd", {"period": 0.0}),
        "differential": ("differential_td", {"eta": 0.0}),
        "differential emphatic": ("differential_etd", {"eta": 0.0, "decay": 0.0}),
    }
    for name, (rule, extra) in cases.items():
        learner = Learner(rule, 4, engine="reference")
        arguments: dict[str, Any] = {**stream.parameters(), **extra}
        learner.run(stream.Phi, **arguments)
        theta[name] = learner.theta
    for name, same in (
        ("truncated 0", "td"), ("truncated 16", "etd"), ("nstep 1", "etd"), ("clipped", "etd"),
        ("differential", "td"), ("differential emphatic", "td"), ("period 0", "td, no traces"),
    ):  # fmt: skip
        assert relative_error(theta[name], theta[same]) < 1e-12, name
    assert relative_error(theta["td"], theta["etd"]) > 1e-3


def test_a_horde_of_an_average_reward_does_not_warn_that_gamma_is_1() -> None:
    x = np.random.default_rng(0).random(30)
    questions, features = [GVF("x", gamma=1.0)], [f.SoftBins("x", bins=3, range=(0.0, 1.0))]
    with plain_python(), warnings.catch_warnings(action="error"):
        Horde(questions, f.Features(features), rule="differential_td").run({"x": x})
        with pytest.raises(emphatic.UndiscountedWarning):
            Horde(questions, f.Features(features), rule="td").run({"x": x})


# ------------------------------------------------------------------ forward views


def forward_view(s: Sequence, b: Array, c: Array) -> Array:
    """The weights of the online λ-return algorithm whose bootstrap φ̄' need not be the next φ, without traces: O(T²).

    Yᵗ_k = R + γ'[θ_k·φ̄'_k + c_{k+1}(Yᵗ_{k+1} − θ_k·φ_{k+1})], without its last term at the horizon k = t − 1;
    θᵗ_{k+1} = θᵗ_k + b_k(Yᵗ_k − φ_k·θᵗ_k)φ_k from θ_0; θ_t = θᵗ_t.
    """
    Theta = np.zeros((s.T + 1, len(s.theta_0)))
    Theta[0] = s.theta_0
    for t in range(1, s.T + 1):
        Y = np.zeros(t)
        for k in reversed(range(t)):
            Y[k] = Theta[k] @ s.Phi_next[k]
            if k + 1 < t:
                Y[k] += c[k + 1] * (Y[k + 1] - Theta[k] @ s.Phi[k + 1])
            Y[k] = s.R[k] + s.gamma_next[k] * Y[k]
        theta = s.theta_0.copy()
        for k in range(t):
            theta = theta + b[k] * (Y[k] - s.Phi[k] @ theta) * s.Phi[k]
        Theta[t] = theta
    return Theta


@pytest.mark.parametrize("seed", range(4))
def test_true_online_expected_sarsa_and_q_are_their_forward_views(seed: int) -> None:
    """true_online_td with ``separate_next``, fed φ̄' of any policy. Q cuts λ at actions that are not greedy:
    ``lambda_`` varies."""
    stream = make(40 + seed, 30, 4, rule="true_online_td_separate", separate=True)
    stream = replace(stream, Phi_next=np.random.default_rng(seed).normal(size=(30, 4)) / 2.0)
    s = stream.sequence(theta_0=np.linspace(-1, 1, 4))
    learner = Learner("true_online_td", 4, engine="reference", separate_next=True)
    learner.theta = s.theta_0
    stream.run(learner)
    Theta = forward_view(s, s.rho * s.alpha * s.I, s.rho * s.lambda_)
    assert relative_error(learner.theta, Theta[-1]) < 1e-11
    wrong = Learner("true_online_td", 4, engine="reference")
    wrong.theta = s.theta_0
    with pytest.warns(emphatic.SequenceWarning):
        stream.run(wrong)
    assert relative_error(wrong.theta, Theta[-1]) > 1e-4


@pytest.mark.parametrize("seed", range(3))
def test_expected_sarsa_tree_backup_and_q_sigma_have_the_forward_view_of_gq(seed: int) -> None:
    """With weights that are held, θ changes by the sum of λ-returns' errors (T ≤ 30): ``gq`` with eta = 0.

    c is λρ for expected Sarsa, λπ for tree backup and λ(σρ + (1−σ)π) for Q(σ): ``rho`` is that factor.
    """
    rng = np.random.default_rng(seed)
    T, n, gamma, lambda_ = 30, 5, 0.9, 0.8
    Phi, Phi_next, R = rng.normal(size=(T, n)), rng.normal(size=(T, n)), rng.normal(size=T)
    pi, mu, sigma = rng.random(T), 0.2 + 0.8 * rng.random(T), rng.random(T)
    theta, tiny = rng.normal(size=n), 1e-9
    for factor in (pi / mu, pi, sigma * pi / mu + (1.0 - sigma) * pi):
        learner = Learner("gq", n, engine="reference")
        learner.theta = theta
        learner.run(Phi, R, gamma, alpha=tiny, lambda_=lambda_, rho=factor, eta=0.0, Phi_next=Phi_next)
        change = np.zeros(n)
        for t in range(T):
            error, product = 0.0, 1.0
            for k in range(t, T):
                product *= gamma * lambda_ * factor[k] if k > t else 1.0
                error += product * (R[k] + gamma * theta @ Phi_next[k] - theta @ Phi[k])
            change += error * Phi[t]
        assert relative_error((learner.theta - theta) / tiny, change) < 1e-5


# ------------------------------------------------------------------ fixed points


def chain_of_pairs(seed: int) -> dict[str, Any]:
    """A random MDP's pairs (S, A): features, transitions under π, their stationary distribution under μ, rewards."""
    rng = np.random.default_rng(seed)
    S, A, n = 6, 3, 4
    P, R = rng.dirichlet(np.ones(S) * 0.5, size=(S, A)), rng.normal(size=(S, A))
    pi, mu = rng.dirichlet(np.ones(A) * 3, size=S), rng.dirichlet(np.ones(A) * 4, size=S)
    Q = np.einsum("sax,xb->saxb", P, pi).reshape(S * A, S * A)
    behaviour = np.einsum("sax,xb->saxb", P, mu).reshape(S * A, S * A)
    power = np.linalg.matrix_power(behaviour, 4000)[0]
    ratio = (pi / mu).reshape(-1)
    return {"X": rng.normal(size=(S * A, n)), "Q": Q, "B": behaviour, "d": power, "r": R.reshape(-1), "rho": ratio}


def expected_update(rule: emphatic.Rule, chain: dict[str, Any], gamma: float, lambda_: float, theta: Array) -> Array:
    """E[Δθ]/α of a rule with θ held, by the exact distribution: e and F in closed form over pairs.

    f and E are the expected F and e of a pair, weighted by how often it comes: d_μ E[F | pair] and d_μ E[e | pair].
    """
    X, B, d, rho, Q = (chain[name] for name in ("X", "B", "d", "rho", "Q"))
    size, n = X.shape
    f, E = np.zeros(size), np.zeros((size, n))
    for _ in range(2000):  # the recursion of the rule's own scalars, in expectation: linear in F and e
        F_before = np.divide(B.T @ f, d)
        e_before = (B.T @ E) / d[:, None]
        f_next, E_next = np.zeros(size), np.zeros((size, n))
        for i in range(size):
            step = (1.0, 1.0, lambda_, rho[i], gamma, 1.0)
            A, Bm, memory = rule.pure(step, (gamma, F_before[i]), (0.0, 0.0), (0.0, 0.0), (1.0, 0.0, 1.0))
            f_next[i] = d[i] * memory[1]
            E_next[i] = d[i] * (A[1][1] * e_before[i] + Bm[1][0] * X[i])
        change = max(abs(f_next - f).max(), abs(E_next - E).max())
        f, E = f_next, E_next
        if change < 1e-15:
            break
    delta = chain["r"] + gamma * (Q @ X @ theta) - X @ theta
    return np.asarray(E.T @ delta)


def test_emphatic_action_values_have_the_emphatic_fixed_point_of_pairs() -> None:
    """f = (1 − γQᵀ)⁻¹d, m = λd + (1−λ)f, A = Xᵀm(1 − γλQ)⁻¹(1 − γQ)X; ``etd`` fed pairs is elsewhere."""
    chain, gamma, lambda_ = chain_of_pairs(3), 0.7, 0.4
    X, Q, d, r = (chain[name] for name in ("X", "Q", "d", "r"))
    one = np.eye(len(d))
    m = lambda_ * d + (1.0 - lambda_) * np.linalg.solve(one - gamma * Q.T, d)
    through = np.linalg.solve(one - gamma * lambda_ * Q, np.column_stack([(one - gamma * Q) @ X, r]))
    theta = np.linalg.solve(X.T @ (m[:, None] * through[:, :-1]), X.T @ (m * through[:, -1]))
    assert abs(expected_update(rules.get("emphatic_q"), chain, gamma, lambda_, theta)).max() < 1e-10
    assert abs(expected_update(rules.get("etd"), chain, gamma, lambda_, theta)).max() > 1e-3


@pytest.mark.parametrize("name", ["differential_td", "differential_etd"])
def test_differential_rules_find_the_reward_rate_and_the_values(name: str) -> None:
    """At the exact r̄ and v of π, the expected changes of θ and R̄ under μ are 0; at another R̄ they are not."""
    rng = np.random.default_rng(5)
    S, A = 5, 3
    P, R = rng.dirichlet(np.ones(S) * 0.5, size=(S, A)), rng.normal(size=(S, A)) + 2.0
    pi, mu = rng.dirichlet(np.ones(A) * 3, size=S), rng.dirichlet(np.ones(A) * 4, size=S)
    mdp = emphatic.problems.MDP(P=P, R=R, gamma=1.0, pi=pi, mu=mu)
    v, rule = mdp.differential_values, rules.get(name)
    extra = (1.0,) if name == "differential_td" else (1.0, 0.6)
    for rbar, is_zero in ((mdp.reward_rate, True), (mdp.reward_rate + 0.1, False)):
        change_theta, change_rbar = np.zeros(S), 0.0
        for s, a, x in np.ndindex(S, A, S):
            chance = mdp.d_mu[s] * mu[s, a] * P[s, a, x]
            step = (1.0, 1.0, 0.0, pi[s, a] / mu[s, a], 1.0, R[s, a] + v[x] - v[s], *extra)
            memory = (1.0, 0.7, rbar)[:: 1 if len(rule.memory) == 3 else 2]
            _, B, after = rule.pure(step, memory, (0.0, 0.0), (0.0, 0.0), (1.0, 0.0, 1.0))
            change_theta[s] += chance * B[0][0]
            change_rbar += chance * (after[-1] - rbar)
        assert bool(abs(change_theta).max() < 1e-10 and abs(change_rbar) < 1e-10) is is_zero


@pytest.mark.parametrize("engine", ["reference", "dense", "sparse"])
def test_replacing_traces_are_those_of_the_paper(engine: str) -> None:
    """e_i = φ_i where φ_i ≠ 0, else ργλe_i; an accumulating trace is another."""
    stream = make(6, 41, 9, rule="td", active=3, binary=False)
    s = stream.sequence()
    theta, e, gamma = s.theta_0.copy(), np.zeros(9), 0.0
    for t in range(s.T):
        delta = s.R[t] + s.gamma_next[t] * theta @ s.Phi_next[t] - theta @ s.Phi[t]
        e = np.where(s.Phi[t] != 0.0, s.rho[t] * s.I[t] * s.Phi[t], s.rho[t] * gamma * s.lambda_[t] * e)
        theta, gamma = theta + s.alpha[t] * delta * e, s.gamma_next[t]
    with plain_python():
        learners = [Learner(rule, 9, engine=engine) for rule in (rules.replacing_td, "td")]
        for learner in learners:
            stream.run(learner)
    assert relative_error(learners[0].theta, theta) < 1e-10
    assert relative_error(learners[0].e, e) < 1e-10
    assert relative_error(learners[1].theta, theta) > 1e-4
