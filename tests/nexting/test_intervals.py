"""Intervals: a plain version, any cut, the past only, hostile readings, and that they cover what they promise."""

from __future__ import annotations

import math
from statistics import NormalDist

import numpy as np
import pytest
from numpy.typing import NDArray

from emphatic.nexting.intervals import Intervals
from emphatic.scores.measures import IntervalScores
from emphatic.scores.returns import known_return

Array = NDArray[np.float64]
Truth = NDArray[np.bool_]


def plain(p: Array, x: Array, gap: Truth, gamma: float, coverage: float = 0.8) -> tuple[Array, Array, Array]:
    """One question's intervals and half their width, from the description: returns and averages as sums over rows."""
    T, h = len(p), 1 / (1 - gamma)
    D = next(k for k in range(1, 10_000) if gamma**k <= 0.05)
    every = math.ceil(D / 256)
    D = every * math.ceil(D / every)
    count, seen = D // every, np.isfinite(x)
    low, high, width, z = np.empty(T), np.empty(T), np.empty(T), NormalDist().inv_cdf((1 + coverage) / 2)
    least, most, below, above, bias = np.empty(T), np.empty(T), 1.0, 1.0, 0.0
    level, error, labels, squares, cumulants = 0.0, 0.0, 0, [], []
    w, before, eligibility, gram, b = np.eye(5)[0], np.zeros(5), np.zeros(5), np.zeros((5, 5)), np.zeros(5)
    quick = slow = away = off = weight = expected = 0.0
    held, trace, begin = x.copy(), float(x[0]), 0
    for t in range(T):
        held[t] = x[t] if seen[t] else held[t - 1]
        trace += (held[t] - trace) / h
        follows = t > 0 and not gap[t]
        if not follows:
            begin = t
        if follows and seen[t]:
            squares.append(((1 - gamma) * x[t] + gamma * p[t] - p[t - 1]) ** 2)
            n = len(squares)
            cumulants.append(min(squares[-1] / np.average(squares, weights=np.arange(1, n + 1)), 25.0))
            quick += max(1 / n, 1 - gamma**2) * (cumulants[-1] - quick)
            slow += max(1 / n, (1 - gamma) / 4) * (cumulants[-1] - slow)
        distances = (held[t] - p[t]) ** 2, (held[t] - trace) ** 2
        share = 2 / (seen[: t + 1].sum() + 1)
        away, off = away + share * (distances[0] - away), off + share * (distances[1] - off)
        f = np.array(
            [1.0, quick, slow, min(distances[0] / away, 9) if away else 0, min(distances[1] / off, 9) if off else 0]
        )
        v = min(max(float(w @ f), 0.05), 25.0)
        if follows and seen[t]:
            eligibility = gamma**2 * eligibility + before
            weight += n
            gram += n * np.outer(before, before)
            surprise = (1 - gamma**2) * cumulants[-1] + gamma**2 * v - expected
            b += n * (surprise * eligibility + expected * before)
            if n % 64 == 0:
                ridge = np.diag(np.diag(gram) * 5 * h / n * np.array([0, 1, 1, 1, 1])) / weight + 1e-9 * np.eye(5)
                w = np.linalg.solve(gram / weight + ridge, b / weight)
        else:
            eligibility = np.zeros(5)
        before, expected = f, v
        s = t - D
        if s >= begin and (s - begin) % every == 0:
            lags = np.flatnonzero(seen[s + 1 : t + 1])
            weights = (1 - gamma) * gamma**lags
            rest = gamma**D
            if weights.sum() + rest >= 0.5:
                past = x[: t + 1][seen[: t + 1]]
                ahead = np.clip(p[t], past.min(), past.max()) + bias
                G = (weights @ x[s + 1 + lags] + rest * ahead) / (weights.sum() + rest)
                G = float(np.clip(G, past.min(), past.max()))
                if not labels:
                    error = float(np.std(x[: t + 1][seen[: t + 1]]))
                labels += 1
                a = max(4 / (labels + 3 + h / every), 1 / (20 * count + 1))
                error += a * (math.sqrt(math.pi / 2) * abs(G - p[s]) - error)
                eta = min(0.02, 0.5 / count * max(min(1, math.sqrt(30 * count / labels)), 0.1))
                bias += a * (G - p[s] - bias)
                level += eta * ((not low[s] <= G <= high[s]) - (1 - coverage))
                below, above = below + a * ((least[s] > G) - below), above + a * ((most[s] < G) - above)
        now = error if labels else float(np.std(x[: t + 1][seen[: t + 1]]))
        width[t] = z * math.exp(level) * now * math.sqrt(0.5 + 0.5 * v)
        digits = 2 - math.floor(math.log10(width[t])) if width[t] else 99
        low[t], high[t] = round(p[t] - width[t], digits), round(p[t] + width[t], digits)
        readings = x[: t + 1][seen[: t + 1]]
        least[t] = readings.min() - 1e-6 * np.ptp(readings)
        most[t] = readings.max() + 1e-6 * np.ptp(readings)
        if below < 0.05 * (1 - coverage):
            low[t] = max(low[t], min(least[t], p[t]))
        if above < 0.05 * (1 - coverage):
            high[t] = min(high[t], max(most[t], p[t]))
    return low, high, width


def check(found: tuple[Array, Array], expected: tuple[Array, Array, Array]) -> None:
    """The ends are those of the description; where three digits of half the width are a tie, to one of the last."""
    for end, wanted in zip(found, expected[:2], strict=True):
        assert (np.abs(end[:, 0] - wanted) <= 0.0101 * expected[2] + 1e-9).all()
        assert np.isclose(end[:, 0], wanted, rtol=1e-12).mean() > 0.999


def stream(T: int, seed: int = 0, missing: float = 0.1) -> tuple[Array, Array, Truth]:
    """A walk, predictions of it that are not too good, and gaps."""
    rng = np.random.default_rng(seed)
    x = np.zeros(T)
    for t in range(1, T):
        x[t] = 0.9 * x[t - 1] + rng.standard_t(3) * (1 + (t // 100) % 3)
    p = 0.7 * x + rng.normal(size=T)
    x[1:][rng.random(T - 1) < missing] = np.nan
    return 50.0 + p, 50.0 + x, rng.random(T) < 0.003


@pytest.mark.parametrize("gamma", [0.0, 0.03, 0.5, 0.9, 0.98])
def test_as_described(gamma: float) -> None:
    """Gaps, missing readings, noise that comes and goes."""
    p, x, gap = stream(1500)
    check(Intervals([0], np.array([gamma]), 0.8)(p[:, None], x[:, None], gap), plain(p, x, gap, gamma))


def test_long_horizons_keep_few_rows() -> None:
    """Of a long horizon's returns only some are looked at, and memory does not grow with it."""
    p, x, _ = stream(6000)
    gap = np.zeros(6000, bool)
    made = Intervals([0], np.array([0.999]), 0.6)
    check(made(p[:, None], x[:, None], gap), plain(p, x, gap, 0.999, 0.6))
    far = Intervals([0], np.array([1 - 1e-9]), 0.8)
    assert max(sum(a.nbytes for a in each.arrays().values()) for each in (made, far)) <= 8 * (7 * 256 + 80)


def test_any_cut_and_any_restart_gives_the_same_bits() -> None:
    """In one call, row by row, in blocks, and saved and restored in between."""
    p, x, gap = stream(700)
    gamma = np.array([0.0, 0.5, 0.9, 0.997])
    P, X = np.stack([p] * 4, axis=1), np.stack([x, x], axis=1)
    whole = Intervals([0, 1, 0, 1], gamma, 0.8)(P, X, gap)
    for size in (1, 97):
        made, parts = Intervals([0, 1, 0, 1], gamma, 0.8), []
        for a in range(0, 700, size):
            other = Intervals([0, 1, 0, 1], gamma, 0.8)
            other.restore({name: array.copy() for name, array in made.arrays().items()})
            made, some = other, slice(a, a + size)
            parts.append(made(P[some], X[some], gap[some]))
        for end in (0, 1):
            np.testing.assert_array_equal(np.concatenate([part[end] for part in parts]), whole[end])


def test_the_past_only() -> None:
    """What comes after a row does not change its interval."""
    p, x, gap = stream(900)
    whole = Intervals([0], np.array([0.9]), 0.8)(p[:, None], x[:, None], gap)
    x[600:] = 1e6
    cut = Intervals([0], np.array([0.9]), 0.8)(p[:, None], x[:, None], gap)
    np.testing.assert_array_equal(whole[0][:600], cut[0][:600])
    assert (whole[1][601:] != cut[1][601:]).all()


def scored(x: Array, p: Array, gamma: float, gap: Truth | None = None, coverage: float = 0.8) -> tuple[float, float]:
    """The coverage in the second half, and whether it is called calibrated."""
    gap = np.zeros(len(x), bool) if gap is None else gap
    made = Intervals([0], np.array([gamma]), coverage)
    low, high = made(p[:, None], x[:, None], gap)
    G, known = known_return(x, np.isnan(x), gap, gamma)
    scores = IntervalScores(1, len(x) // 2, coverage)
    scores.add(0, low, high, G[None], known[None])
    found = scores.scores()[0]["coverage"]
    assert found is not None
    return found, bool(made.calibrated[0])


def running(x: Array, gamma: float) -> Array:
    """A trace over the horizon, as a prediction that is never very good."""
    out, trace = np.empty(len(x)), 0.0
    for t, value in enumerate(np.where(np.isnan(x), 0.0, x)):
        trace += (1 - gamma) * (value - trace)
        out[t] = trace
    return out


@pytest.mark.parametrize("gamma", [0.0, 0.9, 0.98])
@pytest.mark.parametrize("kind", ["normal", "heavy", "skewed", "regimes", "missing", "walk", "seasonal", "growing"])
def test_coverage(kind: str, gamma: float) -> None:
    """The share inside comes to what was wanted, whatever the signal does; and it says so."""
    rng, T = np.random.default_rng(3), 15_000
    x = rng.normal(size=T)
    if kind == "heavy":
        x = rng.standard_t(2.5, size=T)
    elif kind == "skewed":
        x = rng.exponential(size=T) ** 2
    elif kind == "regimes":
        x *= np.where(np.arange(T) // 3000 % 2 == 0, 1.0, 5.0)
    elif kind == "missing":
        x[rng.random(T) < 0.4] = np.nan
    elif kind == "walk":
        x = x.cumsum()
    elif kind == "seasonal":
        x *= 1.1 + np.sin(np.arange(T) / 200)
    elif kind == "growing":
        x *= np.exp(np.arange(T) / 5000)
    for coverage in (0.8, 0.5, 0.95) if kind == "heavy" else (0.8,):
        found, calibrated = scored(x, running(x, gamma), gamma, coverage=coverage)
        assert found == pytest.approx(coverage, abs=0.02 + (0.01 if gamma == 0.98 else 0.0))
        assert calibrated


def test_what_is_not_calibrated_yet() -> None:
    """Too few horizons have passed, or coverage is off: a signal that has just become another."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=3000)
    assert scored(x, np.zeros(3000), 0.95)[1]
    assert not scored(x, np.zeros(3000), 0.97)[1]
    # each reading lies so much further out than all before it that no width is enough
    assert not scored(np.exp(np.arange(2000) / 9.0), np.zeros(2000), 0.9)[1]


def test_intervals_end_where_the_readings_do() -> None:
    """A signal that is never negative gets no negative interval; one that keeps rising is not held back."""
    rng, gap = np.random.default_rng(2), np.zeros(6000, bool)
    x = np.where(rng.random(6000) < 0.2, rng.exponential(5.0, 6000), 0.0)
    low, high = Intervals([0], np.array([0.8]), 0.8)(running(x, 0.8)[:, None], x[:, None], gap)
    assert (low[1000:] > -1e-4).all()
    assert (high <= x.max() + 1e-4).all()
    assert scored(x, running(x, 0.8), 0.8)[0] == pytest.approx(0.8, abs=0.02)
    p = running(x, 0.8) + rng.normal(0.0, 0.5, 6000)  # predictions that are negative now and then
    low, _ = Intervals([0], np.array([0.8]), 0.8)(p[:, None], x[:, None], gap)
    assert (low[1000:, 0] > np.minimum(p[1000:], 0.0) - 1e-4).all()
    assert scored(x, p, 0.8)[0] == pytest.approx(0.8, abs=0.02)
    x = np.arange(6000.0) + rng.normal(0.0, 5.0, 6000)
    assert scored(x, np.arange(6000.0), 0.8)[0] == pytest.approx(0.8, abs=0.02)


def test_constants_and_short_streams() -> None:
    """A signal that never changes has intervals of no width; before a reading there is none."""
    gap = np.zeros(300, bool)
    made = Intervals([0, 0], np.array([0.5, 0.99]), 0.8)
    low, high = made(np.full((300, 2), 7.0), np.full((300, 1), 7.0), gap)
    np.testing.assert_array_equal(low, 7.0)
    np.testing.assert_array_equal(high, 7.0)
    assert made.calibrated.tolist() == [True, False]
    x = np.full((300, 1), np.nan)
    low, high = Intervals([0], np.array([0.5]), 0.8)(np.zeros((300, 1)), x, gap)
    assert np.isnan([low, high]).all()
    x[100:] = 3.0
    low, high = Intervals([0], np.array([0.5]), 0.8)(np.zeros((300, 1)), x, gap)
    assert np.isnan(low[:100]).all()
    assert np.isfinite(low[100:]).all()
    assert (high[110:] >= 3.0).any()


@pytest.mark.parametrize("gamma", [0.0, 1e-300, 0.5, 0.999])
def test_hostile_readings(gamma: float) -> None:
    """Huge, infinite and tiny numbers, predictions that are none: intervals are finite wherever both are numbers."""
    rng = np.random.default_rng(1)
    x = rng.normal(size=2000) * 10.0 ** rng.integers(-300, 101, 2000)
    p = np.clip(rng.normal(size=2000) * 10.0 ** rng.integers(-300, 101, 2000), -1e100, 1e100)
    x[::17], x[::23], p[::31], p[::37] = np.nan, np.inf, np.nan, -np.inf
    low, high = Intervals([0], np.array([gamma]), 0.8)(p[:, None], x[:, None], rng.random(2000) < 0.01)
    fine = np.isfinite(p) & (np.arange(2000) >= 1)
    assert np.isfinite(low[fine]).all()
    assert (low[fine] <= high[fine]).all()
    assert np.isnan(low[~np.isfinite(p)]).all()


def test_a_damaged_state_is_refused() -> None:
    made = Intervals([0], np.array([0.5]), 0.8)
    arrays = {name: array.copy() for name, array in made.arrays().items()}
    for name, wrong in (("scalars", np.zeros((2, 30))), ("kept", np.full(made.kept.shape, np.nan))):
        with pytest.raises(ValueError, match=f"'{name}' of the intervals does not fit"):
            made.restore(arrays | {name: wrong})
