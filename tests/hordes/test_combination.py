"""The combination of answers: a plain version, any cut, hostile readings, and that it does not lose to its parts."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

import emphatic
from emphatic.hordes.blend import CONSTANTS, Combination

Array = NDArray[np.float64]
Truth = NDArray[np.bool_]


def plain(V: Array, readings: Array, follows: Truth, gamma: float) -> Array:
    """One question's predictions, from the description, with averages as sums over all steps so far."""
    steepest, steeper, least, *kappas = CONSTANTS
    T, h = len(V), 1 / (1 - gamma)
    present, x = np.isfinite(readings), readings.copy()
    for t in range(1, T):
        x[t] = x[t] if present[t] else x[t - 1]
    E = V.shape[1] + 2
    M = E + len(kappas)
    shares, weights, out = np.zeros(M), np.zeros((len(kappas), E)), np.zeros(T)
    seen: list[float] = []
    uu, gu, pu, dd, weight = np.zeros((M, M)), np.zeros(M), 0.0, 0.0, 0.0
    z, z_own, u, p, m, learned, trace = np.zeros(M), 0.0, np.zeros(M), 0.0, 0.0, 0, float(x[0])
    for t in range(T):
        u_, p_, m_ = u, p, m
        if present[t]:
            seen.append(x[t])
        m, trace = float(np.mean(seen)), trace + (x[t] - trace) / h
        low, high = x[: t + 1].min(), x[: t + 1].max()
        bounds = low - (high - low) / 2, high + (high - low) / 2
        single = np.array([*np.clip(V[t], *bounds), x[t], trace]) - m
        u = np.array([*single, *(np.clip(m + weights @ single, *bounds) - m)])
        p = out[t] = np.clip(m + shares @ u, *bounds)
        if not (present[t] and follows[t]):
            z, z_own = np.zeros(M), 0.0
            continue
        if t == 0:
            continue
        d = (1 - gamma) * x[t] + gamma * p - p_
        learned += 1
        z, z_own = gamma * z + u_, gamma * z_own + p_ - m_
        weight, uu = weight + learned, uu + learned * np.outer(u_, u_)
        gu = gu + learned * (d * z + (p_ - m_) * u_)  # Σ (G − m) u
        pu += learned * ((p_ - m_) ** 2 + 2 * d * z_own)  # Σ (G − m)² − (G − p)²
        dd += learned * d * d
        if learned % max(16, int(h / 8)) == 0:
            C, b, noise = uu / weight, gu / weight, dd / weight / (1 - gamma**2) + 1e-250
            errors = np.append(noise + pu / weight + np.diag(C) - 2 * b, noise + pu / weight)
            errors = np.maximum(errors, least * noise)
            power = errors ** -min(steepest, steeper * learned / h)
            shares = power[:-1] / power.sum()
            for j, kappa in enumerate(kappas):
                towards = shares[:E] / shares[:E].sum()
                ridge = kappa * noise / (learned / h) + 1e-9 * np.trace(C[:E, :E])
                A = C[:E, :E] + ridge * np.eye(E)
                weights[j] = towards + np.linalg.solve(A, b[:E] - C[:E, :E] @ towards)
    return out


def stream(T: int = 400) -> tuple[Array, Array, Truth]:
    """Answers (T, 2, 3), readings (T, 2) with some missing, and which rows follow the row before."""
    rng = np.random.default_rng(2)
    x = 5.0 + rng.normal(size=(T, 2)).cumsum(axis=0) * 0.3
    V = x[:, :, None] + rng.normal(size=(T, 2, 3)) * [0.1, 1.0, 4.0]
    x[50:55, 0] = np.nan
    x[rng.random((T, 2)) < 0.02] = np.nan
    x[0] = 5.0
    follows = rng.random(T) > 0.01
    return V, x, follows


@pytest.mark.parametrize("gamma", [0.5, 0.95])
def test_predictions_are_those_of_the_description(gamma: float) -> None:
    V, x, follows = stream()
    made, single = Combination(np.full(2, gamma), 3)(V, x, follows)
    for q in range(2):
        want = plain(V[:, q], x[:, q], follows, gamma)
        assert np.abs(made[:, q] - want).max() < 1e-7
    assert single.shape == (400, 2, 5)
    present = np.isfinite(x)
    assert np.array_equal(single[:, :, 3][present], x[present])


def test_bits_do_not_depend_on_blocks_and_the_state_can_be_restored() -> None:
    V, x, follows = stream()
    gamma = np.array([0.5, 0.95])
    whole, _ = Combination(gamma, 3)(V, x, follows)
    parts, other = Combination(gamma, 3), Combination(gamma, 3)
    made = [parts(V[a:b], x[a:b], follows[a:b])[0] for a, b in ((0, 1), (1, 17), (17, 333))]
    other.restore({name: array.copy() for name, array in parts.arrays().items()})
    made.append(other(V[333:], x[333:], follows[333:])[0])
    assert np.array_equal(np.concatenate(made), whole)
    with pytest.raises(ValueError, match="'blends' of the combination"):
        other.restore(parts.arrays() | {"blends": np.full_like(parts.blends, np.nan)})


def test_hostile_answers_and_readings_do_no_harm() -> None:
    V, x, follows = stream()
    V[:, :, 1], V[100:, :, 2] = np.nan, 1e300
    x[200] = 1e200
    made, single = Combination(np.array([0.5, 0.95]), 3)(V, x, follows)
    assert np.isfinite(made).all()
    assert np.isfinite(single).all()
    x[:] = np.nan
    made, _ = Combination(np.array([0.5, 0.95]), 3)(V, x, follows)
    assert np.isfinite(made).all()
    for constant in (0.0, 3.0):
        still, _ = Combination(np.array([0.9]), 1)(
            np.full((300, 1, 1), 7.0), np.full((300, 1), constant), follows[:300]
        )
        assert np.abs(still - constant).max() < 1e-9


def test_predictions_do_not_lose_to_the_best_single_answer() -> None:
    """Untuned, on signals of many kinds: no worse than the best of eight answers in hindsight, but for a little."""
    rng, t = np.random.default_rng(7), np.arange(4000)
    slow, noise = np.zeros(4000), rng.normal(size=(3, 4000))
    for k in range(2, 4000):
        slow[k] = 1.6 * slow[k - 1] - 0.65 * slow[k - 2] + noise[0, k]
    log = {
        "season": 3 * np.sin(t / 30) + 0.3 * noise[1],
        "walk": noise[2].cumsum(),
        "slow": slow,
        "on": (np.sin(t / 15) > 0.5) * (rng.random(4000) > 0.02).astype(float),
        "still": np.full(4000, 2.0),
    }
    result = emphatic.nexting.run(log, horizons=[2, 12], offline=False)
    scored = [score for score in result.summary if score["variance_explained"] is not None]
    assert len(scored) == 8
    loss = [max(score["answers"].values()) - score["variance_explained"] for score in scored]
    assert max(loss) < 0.02
    assert np.median(loss) < 0.0
    assert all(list(score["answers"]) == list(scored[0]["answers"]) for score in scored)
    assert len(scored[0]["answers"]) == 8
