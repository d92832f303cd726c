"""Intervals: a plain version, any cut, hostile readings, and that they cover what they promise."""

from __future__ import annotations

import math
from statistics import NormalDist
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from emphatic.nexting.intervals import Intervals, find_phases
from emphatic.scores.measures import IntervalScores
from emphatic.scores.returns import known_return

Array = NDArray[np.float64]
Truth = NDArray[np.bool_]


class Bin:
    """Errors of rows that are alike, as multiples of the running scale."""

    def __init__(self) -> None:
        self.visits = self.returns = self.under = self.over = self.correction = 0.0
        self.means = [1.0, 1.0, 1.0]  # to both sides, below and above

    def learn(self, error: float, visit: bool, horizons: float, parent: Bin | None) -> None:
        self.visits += visit
        if self.visits > 60:
            self.visits = 60.0
            self.returns, self.under, self.over = (59 / 60 * v for v in (self.returns, self.under, self.over))
        self.returns += 1
        self.under += -error if error < 0 else 0.0
        self.over += error if error >= 0 else 0.0
        known = min(self.visits, horizons)
        known /= known + 5
        sums = self.under + self.over, 2 * self.under, 2 * self.over
        self.means = [
            max(known * total / self.returns + (1 - known) * (parent.means[k] if parent else 1.0), 0.02)
            for k, total in enumerate(sums)
        ]


class Scales:
    """The ways of scaling of a question: by all rows, two phases and the size of the prediction."""

    def __init__(self) -> None:
        self.bins: dict[tuple[int, int], Bin] = {}
        self.latest: dict[int, int] = {}
        self.widths, self.losses, self.shares = np.ones(8), np.zeros(8), np.array([0.3, *[0.1] * 7])
        self.usual = self.centre = self.spread = 0.0
        self.predicted = 0

    def places(self, p: float, phase: tuple[int, int]) -> list[int]:
        """The bins of a row."""
        self.predicted += 1
        self.centre = p if self.predicted == 1 else self.centre
        a = max(2 / (self.predicted + 1), 1e-4)
        self.spread += a * (abs(p - self.centre) - self.spread)
        self.centre += a * (p - self.centre)
        size = (p - self.centre) / self.spread if self.spread else 0.0
        return [0, *phase, min(max(math.floor(1.5 * math.asinh(1.5 * size) + 4), 0), 7)]

    def of(self, places: list[int]) -> list[Bin]:
        return [self.bins.setdefault((i, place) if place >= 0 else (0, 0), Bin()) for i, place in enumerate(places)]

    def factors(self, places: list[int]) -> Array:
        """For each way, the factors below and above."""
        ways = [way for b in self.of(places) for way in ([b.means[0]] * 2, b.means[1:])]
        return np.array([[1.0, 1.0], *ways[1:]])

    def learn_scores(
        self, G: float, p: float, scale: float, places: list[int], ends: tuple[float, float], z: float, step: float,
        a: float, outside: float, evidence: float,
    ) -> None:  # fmt: skip
        for k, (under, over) in enumerate(self.factors(places)):
            low, high = p - z * self.widths[k] * scale * under, p + z * self.widths[k] * scale * over
            low, high = max(low, ends[0]), min(high, ends[1])
            score = high - low + 2 / outside * (max(low - G, 0) + max(G - high, 0))
            self.widths[k] *= math.exp(step * ((not low <= G <= high) - outside))
            if k == 0:
                self.usual += a * (score - self.usual)
            self.losses[k] += a * (min(score / self.usual, 20) - self.losses[k])
        self.shares = np.array([0.3, *[0.1] * 7]) * np.exp(
            np.clip(evidence / 2 * (self.losses[0] - self.losses), -50, 50)
        )
        self.shares /= self.shares.sum()

    def learn_errors(self, error: float, places: list[int], horizons: float, again: bool) -> None:
        bins = self.of(places)
        for i, (place, b) in enumerate(zip(places, bins, strict=True)):
            if place >= 0:
                visit = (i == 0 and again) or self.latest.get(i) != place
                self.latest[i] = place
                b.learn(error, visit, horizons, None if i == 0 else bins[1] if i == 2 else bins[0])


def plain(
    p: Array, x: Array, gap: Truth, gamma: float, coverage: float = 0.8, phase: NDArray[np.int64] | None = None
) -> tuple[Array, Array, Array]:
    """One question's intervals and half their width, from the description: returns and averages as sums over rows."""
    scales, scale, phases = Scales(), np.zeros(len(p)), np.full((len(p), 2), -1) if phase is None else phase
    places: list[Any] = []
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
                a = max(4 / (labels + 3 + 4 * h / every), 1 / (20 * count + 1))
                error += a * (math.sqrt(math.pi / 2) * abs(G - p[s]) - error)
                eta = min(0.02, 0.5 / count * max(min(1, math.sqrt(30 * count / labels)), 0.1))
                bias += a * (G - p[s] - bias)
                horizons = labels * every / h
                eta *= horizons / (horizons + 3)
                miss = (not low[s] <= G <= high[s]) - (1 - coverage)
                level += eta * miss
                below, above = below + a * ((least[s] > G) - below), above + a * ((most[s] < G) - above)
                if scale[s] > 0:
                    apart = max(math.floor(h / every / 8), 1)
                    if labels % apart == 0:
                        ends = (
                            min(least[s], p[s]) if below < 0.05 * (1 - coverage) else -math.inf,
                            max(most[s], p[s]) if above < 0.05 * (1 - coverage) else math.inf,
                        )
                        share = max(apart / labels, apart / (20 * count + apart))
                        evidence = min(horizons, 60)
                        scales.learn_scores(
                            G, p[s], scale[s], places[s], ends, z, apart * eta, share, 1 - coverage, evidence
                        )
                    ratio = min(abs(G - p[s]) * math.sqrt(math.pi / 2) / scale[s], 8) * (-1 if p[s] > G else 1)
                    scales.learn_errors(ratio, places[s], horizons, (labels - 1) % max(h / every, 1) < 1)
                    if places[s][1] >= 0:
                        b_short, step = scales.of(places[s])[1], min(0.05, 0.5 / count) * horizons / (horizons + 30)
                        b_short.correction = min(max((1 - 0.02 * step) * b_short.correction + step * miss, -1), 1)
        now = error if labels else float(np.std(x[: t + 1][seen[: t + 1]]))
        places.append(scales.places(p[t], (int(phases[t, 0]), int(phases[t, 1]))))
        scale[t] = now * math.sqrt(0.5 + 0.5 * v)
        trust = labels * every / h / (labels * every / h + 30)
        under, over = 1 + trust * (scales.shares @ scales.factors(places[t]) - 1)
        correction = scales.of(places[t])[1].correction if phases[t, 0] >= 0 else 0.0
        spread = 1.1 * float(np.std(x[: t + 1][seen[: t + 1]])) / now if now else 1.0
        doubt = max(min(1 + 1.8 / (1 + seen[: t + 1].sum() / h), spread), 1)
        half = z * math.exp(level + correction) * scale[t] * doubt
        width[t] = half * (under + over) / 2
        digits = 2 - math.floor(math.log10(width[t])) if width[t] else 99
        low[t], high[t] = round(p[t] - half * under, digits), round(p[t] + half * over, digits)
        readings = x[: t + 1][seen[: t + 1]]
        least[t] = readings.min() - 1e-6 * np.ptp(readings)
        most[t] = readings.max() + 1e-6 * np.ptp(readings)
        if below < 0.05 * (1 - coverage):
            low[t] = max(low[t], min(least[t], p[t]))
        if above < 0.05 * (1 - coverage):
            high[t] = min(high[t], max(most[t], p[t]))
        if (readings == readings.min()).sum() >= 10:
            low[t] = max(low[t], readings.min())
            high[t] = max(high[t], low[t])
        if (readings == readings.max()).sum() >= 10:
            high[t] = min(high[t], readings.max())
            low[t] = min(low[t], high[t])
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


@pytest.mark.parametrize("gamma", [0.0, 0.8])
def test_by_phase_as_described(gamma: float) -> None:
    """Two cycles, rows without a phase, and a bound that readings reach again and again."""
    p, x, gap = stream(1500, missing=0.02)
    t = np.arange(1500)
    x = np.where(t % 12 < 4, x, np.where(np.isnan(x), x, 50.0 + (x - 50.0) / 8))
    x = np.maximum(x, np.nanquantile(x, 0.05))
    phase = np.stack([t % 12, t % 84], axis=1)
    phase[::97] = -1
    found = Intervals([0], np.array([gamma]), 0.8, (12, 84))(p[:, None], x[:, None], gap, phase)
    check(found, plain(p, x, gap, gamma, phase=phase))
    assert (np.abs(found[0] - Intervals([0], np.array([gamma]), 0.8)(p[:, None], x[:, None], gap)[0]) > 1e-9).any()


def test_long_horizons_keep_few_rows() -> None:
    """Of a long horizon's returns only some are looked at, and memory does not grow with it."""
    p, x, _ = stream(6000)
    gap = np.zeros(6000, bool)
    made = Intervals([0], np.array([0.999]), 0.6)
    check(made(p[:, None], x[:, None], gap), plain(p, x, gap, 0.999, 0.6))
    far, by_phase = Intervals([0], np.array([1 - 1e-9]), 0.8), Intervals([0], np.array([1 - 1e-9]), 0.8, (24, 168))
    sizes = [sum(a.nbytes for a in made.arrays().values()) for made in (made, far, by_phase)]
    assert max(sizes[:2]) <= 26_500
    assert sizes[2] <= 39_000


def test_a_question_has_the_same_bits_alone_and_among_others() -> None:
    """Eight are followed side by side: others begin later, have no prediction now and then, or know no returns yet."""
    p, x, gap = stream(700)
    gamma = np.array([0.9, 0.0, 0.5, 0.997, 0.9, 0.5, 0.0, 0.997, 0.9, 0.98, 0.5])
    P, X = p[:, None] * np.linspace(0.9, 1.1, 11), np.stack([x, 3.0 * x, x], axis=1)
    signals, phase = np.arange(11) % 3, np.arange(1400).reshape(700, 2) % (12, 84)
    X[:150, 1] = np.nan
    P[::41, 4] = P[100:130, 7] = np.nan
    together = Intervals(signals.tolist(), gamma, 0.8, (12, 84))
    low, high = together(P, X, gap, phase)
    assert np.isnan(low[:150, signals == 1]).all()
    for q in range(11):
        alone = Intervals([int(signals[q])], gamma[q : q + 1], 0.8, (12, 84))
        for found, want in zip(alone(P[:, q : q + 1], X, gap, phase), (low, high), strict=True):
            np.testing.assert_array_equal(found[:, 0], want[:, q])
        for name, array in alone.arrays().items():
            if name not in ("kept", "marks"):  # (these have no row for each question)
                np.testing.assert_array_equal(array[0], together.arrays()[name][q])


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


def test_early_intervals_allow_for_what_few_horizons_cannot_tell() -> None:
    """Walks that are predicted to return to 0: without the allowance .68 of these returns are inside."""
    T, C, gamma = 2400, 40, 1.0 - 1.0 / 144.0
    rng = np.random.default_rng(5)
    x = np.zeros((T, C))
    for t in range(1, T):
        x[t] = x[t - 1] + rng.normal(size=C)
    returns = np.zeros((T + 1, C))
    for t in range(T - 1, -1, -1):
        returns[t] = (1.0 - gamma) * x[t] + gamma * returns[t + 1]
    low, high = Intervals(range(C), np.full(C, gamma), 0.8)(0.6 * x, x, np.zeros(T, bool))
    rows, G = slice(300, 1500), returns[1:]
    inside = ((low <= G) & (high >= G))[rows].mean()
    assert 0.715 < inside < 0.86, inside


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


def test_a_bound_that_readings_have_reached_ten_times_is_never_passed() -> None:
    """Zero of a count, the top of a scale; predictions beyond them as well."""
    rng, gap = np.random.default_rng(4), np.zeros(3000, bool)
    x = np.clip(rng.normal(0.5, 1.0, 3000), 0.0, 1.5)
    p = running(x, 0.5) + rng.normal(0.0, 1.0, 3000)
    low, high = Intervals([0], np.array([0.5]), 0.8)(p[:, None], x[:, None], gap)
    reached = [np.cumsum(x == bound) >= 10 for bound in (0.0, 1.5)]
    assert (low[reached[0]] >= 0.0).all()
    assert (high[reached[1]] <= 1.5).all()
    assert (low <= high).all()
    assert min(mask.sum() for mask in reached) > 2000
    assert low[~reached[0]].min() < 0.0


def test_coverage_is_right_at_each_hour() -> None:
    """Errors that depend on the hour: without phases quiet hours are covered too often, and others too seldom."""
    rng, t = np.random.default_rng(5), np.arange(24_000)
    spread = np.where(t % 24 < 8, 0.1, np.where(t % 24 < 16, 1.0, 4.0))
    x, p, gap = spread * rng.standard_t(4, len(t)), np.zeros((len(t), 1)), np.zeros(len(t), bool)
    phase = np.stack([t % 24, t % 168], axis=1)
    for cycles, least, most in (((24, 168), 0.7, 0.9), ((0, 0), 0.5, 0.99)):
        low, high = Intervals([0], np.zeros(1), 0.8, cycles)(p, x[:, None], gap, phase)
        inside = (low[:-1, 0] <= x[1:]) & (x[1:] <= high[:-1, 0])
        covered = [inside[12_000:][t[12_000:-1] % 24 == hour].mean() for hour in range(24)]
        assert (least < min(covered) and max(covered) < most) == (cycles == (24, 168))


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
    for name, wrong in (("scalars", np.zeros((2, 30))), ("kept", np.full(arrays["kept"].shape, np.nan))):
        with pytest.raises(ValueError, match=f"'{name}' of the intervals does not fit"):
            made.restore(arrays | {name: wrong})


@pytest.mark.parametrize("step", [60.0, 86_400.0, 7 * 86_400.0, math.nan])
def test_phases_of_one_row_are_those_of_many(step: float) -> None:
    time = np.array([0.0, -1.0, 1.7e9, 1.7e9 + 0.25, 3599.999, -3600.0, 2.6e11, np.nan, np.inf, 2.4e11])
    alone = np.concatenate([find_phases(time[i : i + 1], step) for i in range(len(time))])
    assert (alone == find_phases(time, step)).all()
    assert len(np.unique(alone, axis=0)) > 3
