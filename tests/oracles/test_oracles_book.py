"""Published numbers and closed forms of Sutton & Barto, "Reinforcement Learning: An Introduction", 2nd
edition (2018), and small sequences that can be followed by hand.
"""

from __future__ import annotations

import functools

import numpy as np
import numpy.typing as npt
import pytest

import emphatic
from tests.support.equations import Array, fixed_point, true_values

ENGINES = emphatic.engines.available()
EMPHATIC = ("etd", "true_online_etd")


# ------------------------------------------------------------------------------------ emphasis (section 9.11)


def emphases(rule: str, engine: str, I: npt.ArrayLike, lambda_: npt.ArrayLike, rho: npt.ArrayLike) -> list[float]:
    """M_0, M_1, … at γ = 1, seen in e: φ_t is a unit vector of its own, so e_t has ρ_tM_t (true online:
    α_tρ_tM_t) there. M_t does not depend on ρ_t, which is taken to be 1 for the looking."""
    T = np.size(I)
    I, lambda_, rho = np.broadcast_arrays(np.asarray(I, float), np.asarray(lambda_, float), np.asarray(rho, float))
    alpha, Phi, seen = 0.5, np.eye(T + 1), []
    for t in range(T):
        learner = emphatic.Learner(rule, T + 1, engine=engine)
        for k in range(t + 1):
            ratio = 1.0 if k == t else rho[k]
            learner.learn(alpha, I[k], lambda_[k], Phi[k], ratio, 0.0, Phi[k + 1], 1.0)
        seen.append(learner.e[t] / (alpha if rule.startswith("true_online") else 1.0))
    return seen


@pytest.mark.plain
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("rule", EMPHATIC)
@pytest.mark.parametrize(
    ("I", "lambda_", "rho", "M"),
    [
        ([1, 0, 0, 0], 1, 1, [1, 0, 0, 0]),
        ([1, 1, 1, 1], 0, 1, [1, 2, 3, 4]),
        ([1, 0, 0, 0], 0, 1, [1, 1, 1, 1]),
        ([1, 1, 1, 1], [1, 1, 0, 1], 1, [1, 1, 3, 1]),
        ([1, 0, 0, 0, 0, 0, 0], 0, [1, 2, 2, 2, 0.25, 1, 0], [1, 1, 2, 4, 8, 2, 2]),
    ],
)
def test_emphasis_sequences(
    rule: str, engine: str, I: list[float], lambda_: npt.ArrayLike, rho: npt.ArrayLike, M: list[float]
) -> None:
    assert emphases(rule, engine, I, lambda_, rho) == M


# ------------------------------------------------------------------------------- example 9.4 and exercise 9.7

ROW = np.array([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0], [0.0, 1.0]])  # the four states' φ; then the episode ends
FIRST = np.array([1.0, 0.0, 0.0, 0.0])


def present(learner: emphatic.Learner, episodes: int, alpha: npt.ArrayLike, I: Array, lambda_: Array) -> Array:
    """θ after this many episodes in a row, R = 1 each step and γ = 1 until the end, the terminal call
    skipped."""
    T = 4 * episodes
    Phi, Phi_next = np.tile(ROW, (episodes, 1)), np.tile(np.vstack([ROW[1:], np.zeros(2)]), (episodes, 1))
    gamma_next = np.tile([1.0, 1.0, 1.0, 0.0], episodes)
    learner.run(
        Phi,
        np.ones((T, 1)),
        gamma_next[:, None],
        alpha=np.reshape(alpha, (1, -1)),
        lambda_=np.tile(lambda_, episodes)[:, None],
        I=np.tile(I, episodes)[:, None],
        Phi_next=Phi_next,
    )
    return np.array(learner.theta)


@pytest.mark.parametrize("engine", ENGINES)
def test_example_9_4_interest_in_the_first_state_only(engine: str) -> None:
    """λ = 1: w₁ → 4, at the rate 1 − α an episode, and w₂ is never touched. λ = (·, 1, 0, 1): M = (1, 0,
    1, 0), w → (4, 2)."""
    learner = emphatic.Learner("true_online_etd", 2, 1, engine=engine)
    learner.theta = [[0.0, 7.0]]
    w = present(learner, 5, 0.25, FIRST, np.ones(4))[0]
    assert w[0] == pytest.approx(4 * (1 - 0.75**5))
    assert w[1] == 7.0
    w = present(learner, 100, 0.25, FIRST, np.ones(4))[0]
    assert w[0] == pytest.approx(4.0)
    assert w[1] == 7.0
    w = present(learner, 200, 0.25, FIRST, np.array([0.3, 1.0, 0.0, 1.0]))[0]
    assert w == pytest.approx([4.0, 2.0])


@pytest.mark.parametrize(
    ("I", "lambda_", "w"),
    [
        (FIRST, [0.3, 1.0, 0.0, 1.0], [4.0, 2.0]),
        (np.ones(4), [1.0, 1.0, 1.0, 1.0], [3.5, 1.5]),
        (np.ones(4), [0.0, 0.0, 0.0, 0.0], [3.25, 1.75]),
    ],
)
@pytest.mark.parametrize("rule", EMPHATIC)
def test_example_9_4(rule: str, I: Array, lambda_: list[float], w: list[float]) -> None:
    """The closed form, and the learner presented with the episode over and over. With a constant α it
    comes to a cycle near w, off by O(α): two step sizes give the limit α → 0, off by O(α²)."""
    P = np.diag(np.ones(3), 1)
    point = fixed_point(ROW, P, np.ones(4), np.ones(4), np.array(lambda_), np.full(4, 0.25), I)
    assert point.theta == pytest.approx(w)
    large, small = present(emphatic.Learner(rule, 2, 2, engine="dense"), 5_000, [0.01, 0.005], I, np.array(lambda_))
    assert 2 * small - large == pytest.approx(w, abs=1e-5)


# ------------------------------------------------------------------ Baird (examples 11.1, figures 11.2, 11.6)

BAIRD = np.hstack([np.vstack([2 * np.eye(6), np.zeros(6)]), np.array([[0.0, 1.0]] * 6 + [[1.0, 2.0]])])
BAIRD_W = np.array([1.0, 1, 1, 1, 1, 1, 10, 1])
BAIRD_GAMMA = 0.99
UNSEEN = np.array([1.0, 1, 1, 1, 1, 1, 4, -2])  # orthogonal to every φ


@pytest.mark.plain
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("rule", ["td", "true_online_td", "etd", "true_online_etd"])
def test_baird_keeps_what_no_feature_sees(rule: str, engine: str) -> None:
    """(1,1,1,1,1,1,4,−2)·w_t = 44 on every sampled path, though w moves far."""
    assert not (BAIRD @ UNSEEN).any()
    T = 200
    rng = np.random.default_rng(11)
    solid = rng.random(T) < 1 / 7
    states = np.append(rng.integers(7), np.where(solid, 6, rng.integers(6, size=T)))
    learner = emphatic.Learner(rule, 8, engine=engine)
    learner.theta = BAIRD_W
    for t in range(T):
        phi, phi_next = BAIRD[states[t]], BAIRD[states[t + 1]]
        learner.learn(0.002, 1.0, 0.3, phi, 7.0 * solid[t], 0.0, phi_next, BAIRD_GAMMA)
        w = np.array(learner.theta)
        assert UNSEEN @ w == pytest.approx(44.0, abs=1e-12 * np.abs(w).max() * T)
    assert np.abs(w - BAIRD_W).max() > 0.1


def swept(rule: str, engine: str, alpha: float, weight: Array, sweeps: int) -> Array:
    """w after expected updates: in each sweep the sum over all states of the learner's first step from
    the same w, with the state's weight as its interest. π always goes to state 7, so ρ = 1 and φ' is that
    state's."""
    if engine != "reference":
        rule = "true_online_etd"  # the same in the first step of a sequence, and compiled for many a test
    learner = emphatic.Learner(rule, 8, engine=engine)
    w = BAIRD_W.copy()
    for _ in range(sweeps):
        change = np.zeros(8)
        for s in range(7):
            learner.cut()
            learner.theta = w
            learner.learn(alpha, weight[s], 0.0, BAIRD[s], 1.0, 0.0, BAIRD[6], BAIRD_GAMMA)
            change += learner.theta - w
        w = w + change
    return w


@pytest.mark.parametrize("engine", ENGINES)
def test_baird_semi_gradient_dynamic_programming(engine: str) -> None:
    """Figure 11.2, right: after 1000 sweeps at α = .01, uniformly weighted, w is about 115 (six times), 7
    and 335."""
    w = swept("td", engine, 0.01, np.full(7, 1 / 7), 1000)
    assert w == pytest.approx([114.43] * 6 + [6.850, 335.00], abs=5e-3)
    assert UNSEEN @ w == pytest.approx(44.0)


@pytest.mark.parametrize("engine", ENGINES)
def test_baird_expected_emphatic_updates(engine: str) -> None:
    """Weighted by f = (𝟙 − γP_πᵀ)⁻¹d_μ the expected updates converge: v → 0, and what is left of w is its
    projection on the direction that no feature sees, 44·(1,1,1,1,1,1,4,−2)/26 = (22/13 …, 88/13, −44/13)."""
    P = np.zeros((7, 7))
    P[:, 6] = 1.0
    f = fixed_point(BAIRD, P, np.zeros(7), np.full(7, BAIRD_GAMMA), np.zeros(7), np.full(7, 1 / 7), np.ones(7)).f
    w = swept("etd", engine, 0.1, f, 1000)
    assert w == pytest.approx([22 / 13] * 6 + [88 / 13, -44 / 13], abs=1e-9)


# ------------------------------------------------------------------------------------ 19 states (figure 12.8)


@functools.cache
def walks() -> list[list[tuple[Array, Array, Array]]]:
    """400 runs of 10 episodes: Φ, R and γ of each."""
    rng = np.random.default_rng(12)

    def walk() -> tuple[Array, Array, Array]:
        path = 10 + np.cumsum(rng.choice([-1, 1], size=4000))
        end = int(np.argmax((path == 0) | (path == 20)))
        assert path[end] in (0, 20)
        states = np.append(10, path[: end + 1])
        R, gamma_next = np.zeros(end + 1), np.ones(end + 1)
        R[-1], gamma_next[-1] = states[-1] / 10 - 1, 0.0
        return np.eye(21)[states][:, 1:20], R, gamma_next

    return [[walk() for _ in range(10)] for _ in range(400)]


@pytest.mark.parametrize(
    ("rule", "lambda_", "alpha", "error"),
    [
        ("true_online_td", 0.0, 0.82, 0.347),
        ("true_online_td", 0.4, 0.74, 0.277),
        ("true_online_td", 0.8, 0.40, 0.259),
        ("true_online_td", 0.9, 0.26, 0.280),
        ("true_online_td", 0.8, 1.0, 0.372),
        ("td", 0.0, 0.82, 0.347),
    ],
)
def test_random_walk(rule: str, lambda_: float, alpha: float, error: float) -> None:
    """RMS error over the 19 states at the end of an episode, averaged over the first 10: read off the
    printed curve, ± .003; the standard error of 400 runs is below .003 too."""
    P = 0.5 * (np.diag(np.ones(18), 1) + np.diag(np.ones(18), -1))
    r = np.zeros(19)
    r[[0, -1]] = -0.5, 0.5
    v = true_values(P, r, np.ones(19))
    assert v == pytest.approx(np.arange(-9, 10) / 10)
    errors = []
    for episodes in walks():
        learner = emphatic.Learner(rule, 19, engine="dense")
        for Phi, R, gamma_next in episodes:
            learner.run(Phi, R, gamma_next, alpha=alpha, lambda_=lambda_, predictions=False)
            errors.append(float(np.sqrt(np.mean((learner.theta - v) ** 2))))
    assert np.mean(errors) == pytest.approx(error, abs=0.009)


# ---------------------------------------------------------------------------------------------------- by hand
