"""The blend of several answers to one question: a plain version, any cut, hostile readings, and that it is worth it."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from emphatic.hordes.blend import KAPPA, Blend

Array = NDArray[np.float64]
Truth = NDArray[np.bool_]


def plain(V: Array, readings: Array, follows: Truth, gamma: float, ends: Truth | None = None) -> tuple[Array, Array]:
    """One question's answers and last weights, from the description, with averages as sums over all steps so far."""
    T, E = V.shape
    present, x = np.isfinite(readings), readings.copy()
    for t in range(1, T):
        x[t] = x[t] if present[t] else x[t - 1]
    h, w, out = 1 / (1 - gamma), np.zeros(E + 2), np.zeros(T)
    seen: list[float] = []
    weight, uu, du, dd = 0.0, np.zeros((E + 2, E + 2)), np.zeros(E + 2), 0.0
    z, u, p, m, learned, trace = np.zeros(E + 2), np.zeros(E + 2), 0.0, 0.0, 0, float(x[0])
    for t in range(T):
        before = (u, p, m)
        if present[t]:
            seen.append(x[t])
        m, trace = float(np.mean(seen)), trace + (x[t] - trace) / h
        low, high = x[: t + 1].min(), x[: t + 1].max()
        bounds = low - (high - low) / 2, high + (high - low) / 2
        u = np.array([*np.clip(V[t], *bounds), x[t], trace]) - m
        p = out[t] = min(max(m + w @ u, bounds[0]), bounds[1]) if ends is None or not ends[t] else 0.0
        if not (present[t] and follows[t]):
            z = np.zeros(E + 2)
            continue
        if t == 0:
            continue
        u_, p_, m_ = before
        d = (1 - gamma) * x[t] + gamma * p - p_
        learned += 1
        z = gamma * z + u_
        weight, uu, du = weight + learned, uu + learned * np.outer(u_, u_), du + learned * (d * z + (p_ - m_) * u_)
        dd += learned * d * d
        if learned % max(16, int(h / 8)) == 0:
            ridge = KAPPA * dd / weight / (1 - gamma**2) * h / learned
            A = uu / weight + (ridge + 1e-9 * np.trace(uu) / weight) * np.eye(E + 2)
            w = np.linalg.solve(A, du / weight)
    return out, w


def walk(T: int, seed: int = 0, pull: float = 0.02) -> Array:
    x, noise = np.zeros(T), np.random.default_rng(seed).normal(size=T)
    for t in range(1, T):
        x[t] = (1 - pull) * x[t - 1] + noise[t]
    return x + 5.0


def returns(x: Array, gamma: float) -> Array:
    G, out = float(x[-1]), np.zeros(len(x))
    for t in range(len(x) - 2, -1, -1):
        G = out[t] = (1 - gamma) * x[t + 1] + gamma * G
    return out


def case(T: int, gammas: Array, seed: int = 1) -> tuple[Array, Array, Truth]:
    rng = np.random.default_rng(seed)
    x = np.stack([walk(T, seed + q) for q in range(len(gammas))], axis=1)
    good = np.stack([returns(x[:, q], g) for q, g in enumerate(gammas)], axis=1)
    V = np.stack([good + rng.normal(size=x.shape), x[::-1] + 1, rng.normal(size=x.shape)], axis=2)
    present, follows = rng.random(x.shape) > 0.05, rng.random(T) > 0.02
    present[0] = True
    return V, np.where(present, x, np.nan), follows


def test_is_what_it_says() -> None:
    gammas = np.array([0.0, 0.5, 0.9, 0.995])
    V, x, follows = case(1500, gammas)
    blend = Blend(gammas, 3)
    out = blend(V, x, follows)
    for q, g in enumerate(gammas):
        expected, w = plain(V[:, q], x[:, q], follows, g)
        np.testing.assert_allclose(out[:, q], expected, rtol=1e-8, atol=1e-8)
        np.testing.assert_allclose(blend.weights[q], w, rtol=1e-7, atol=1e-8)
        assert abs(w).max() > 0.05


def test_where_an_episode_terminates_nothing_follows() -> None:
    gammas = np.array([0.5, 0.9])
    V, x, follows = case(1500, gammas)
    ends = np.append(~follows[1:], False) & (np.arange(1500) % 3 > 0)
    assert ends.sum() > 10
    blend, endless = Blend(gammas, 3), Blend(gammas, 3)
    out, other = blend(V, x, follows, ends), endless(V, x, follows)
    assert not out[ends].any()
    for q, g in enumerate(gammas):
        expected, w = plain(V[:, q], x[:, q], follows, g, ends)
        np.testing.assert_allclose(out[:, q], expected, rtol=1e-8, atol=1e-8)
        np.testing.assert_allclose(blend.weights[q], w, rtol=1e-7, atol=1e-8)
        assert not np.allclose(blend.weights[q], endless.weights[q], rtol=1e-3)
    assert np.abs(out - other)[~ends].max() > 1e-3


def test_any_cut_gives_the_same_bits() -> None:
    gammas = np.array([0.5, 0.99])
    V, x, follows = case(300, gammas)
    whole = Blend(gammas, 3)(V, x, follows)
    parts, blend = [], Blend(gammas, 3)
    for a, b in ((0, 1), (1, 17), (17, 18), (18, 18), (18, 160), (160, 300)):
        other = Blend(gammas, 3)
        other.restore({name: array.copy() for name, array in blend.arrays().items()})
        blend = other
        parts.append(blend(V[a:b], x[a:b], follows[a:b]))
    np.testing.assert_array_equal(np.concatenate(parts), whole)


def test_nothing_makes_it_other_than_finite() -> None:
    rng = np.random.default_rng(0)
    T, gammas = 400, np.array([0.0, 0.5, 0.9, 1 - 1e-9])
    shapes = {
        "constant": np.ones(T),
        "zero": np.zeros(T),
        "tiny": rng.normal(size=T) * 1e-300,
        "large": rng.normal(size=T) * 1e99,
        "jump": np.where(np.arange(T) == 90, 1e100, 1.0),
    }
    bad = [np.nan, np.inf, -np.inf, 1e300, -1e300, 1.7e308]
    for name, x in shapes.items():
        for value in bad:
            X = np.repeat(x[:, None], len(gammas), axis=1)
            X[:20] = value  # before the first reading
            X[100:110], X[200:300:7] = value, -value
            with np.errstate(all="ignore"):
                V = np.repeat(X[:, :, None], 3, axis=2) * np.array([1.0, 0.5, -3.0])
            V[150:160, :, 1] = value
            blend = Blend(gammas, 3)
            out = blend(V, X, np.ones(T, bool))
            assert np.isfinite(out).all(), (name, value)
            Blend(gammas, 3).restore(blend.arrays())  # what it saves it can take up
            if name == "constant":
                np.testing.assert_array_equal(out[20:], 1.0)


def test_before_the_first_reading_the_middle_learner_answers() -> None:
    V = np.arange(12.0).reshape(4, 1, 3)
    x = np.array([[np.nan], [np.nan], [7.0], [7.0]])
    out = Blend(np.array([0.9]), 3)(V, x, np.ones(4, bool))
    assert out.ravel().tolist() == [1.0, 4.0, 7.0, 7.0]


def test_a_glitch_is_forgotten() -> None:
    gammas, V, x = np.array([0.9]), np.zeros((600, 1, 1)), walk(600)[:, None]
    V[:, 0, 0] = returns(x[:, 0], 0.9)
    yes = np.ones(600, bool)
    x[50] = 1e300
    p = Blend(gammas, 1)(V, x, yes)
    missed = np.sqrt(np.mean((p - V[:, 0])[300:] ** 2))
    assert missed < 0.01 * V[300:].std()


@pytest.mark.parametrize("gamma", [0.5, 0.9, 0.98])
@pytest.mark.parametrize("pull", [1.0, 0.05, 0.002])
def test_comes_near_the_best_and_is_never_much_worse_than_what_needs_no_learning(gamma: float, pull: float) -> None:
    T = 12_000
    x = walk(T, 7, pull)[:, None]
    G = returns(x[:, 0], gamma)
    rng = np.random.default_rng(8)
    truth = 5.0 + (x[:, 0] - 5.0) * (1 - gamma) * (1 - pull) / (1 - gamma * (1 - pull))  # E[G | x] of this walk
    spread = x.std()
    yes = np.ones(T, bool)
    half = slice(T // 2, T - int(10 / (1 - gamma)))

    def error(p: Array) -> float:
        return float(np.sqrt(np.mean((p - G)[half] ** 2)))

    mean = np.cumsum(x[:, 0]) / np.arange(1, T + 1)
    for candidate in (truth, 5 + spread * rng.normal(size=T), np.full(T, 1e6), np.full(T, np.nan)):
        V = np.stack([candidate, 5 + spread * rng.normal(size=T), 10 * spread * rng.normal(size=T)], axis=1)[:, None]
        p = Blend(np.array([gamma]), 3)(V, x, yes)[:, 0]
        best = min(error(x[:, 0]), error(mean))
        assert error(p) < 1.03 * best
        if candidate is truth:
            assert error(p) < 1.03 * error(truth)


@pytest.mark.parametrize("name", ["scalars", "vectors", "products"])
def test_what_does_not_fit_is_refused(name: str) -> None:
    blend = Blend(np.array([0.9, 0.5]), 2)
    arrays = {key: array.copy() for key, array in Blend(np.array([0.9, 0.5]), 2).arrays().items()}
    for wrong in (arrays[name][:1], arrays[name].astype(np.float32), np.full_like(arrays[name], np.nan)):
        with pytest.raises(ValueError, match=name):
            blend.restore(arrays | {name: wrong})
