"""Published numbers and closed forms of Sutton & Barto, "Reinforcement Learning: An Introduction", 2nd
edition (2018), and small sequences that can be followed by hand.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest

import emphatic
from tests.support.equations import Array, fixed_point

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


# ---------------------------------------------------------------------------------------------------- by hand
