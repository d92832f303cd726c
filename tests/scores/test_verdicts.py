"""Baselines of the calendar against plain loops; verdicts on errors of known kinds; blocks of errors."""

from __future__ import annotations

import math

import numpy as np
import pytest
from numpy.typing import NDArray

from emphatic.scores.baselines import Calendar, LastCycle, _climatology, find_baselines
from emphatic.scores.verdicts import ErrorBlocks, LogScores, Verdict, judge_errors, judge_signal
from emphatic.scores.returns import Returns

HOUR, DAY = 3600.0, 86_400.0
GAMMAS = np.array([0.0, 0.5, 0.9, 0.999])


def times(places: np.ndarray, step: float = HOUR) -> NDArray[np.float64]:
    """The times of rows at places of a grid that begins at midnight."""
    return np.asarray(1e9 // DAY * DAY + step * places, np.float64)


def ref_last_cycle(x: np.ndarray, place: np.ndarray, period: int, gamma: float) -> np.ndarray:
    """What followed one period ago, from all places; a place without a row repeats the period before."""
    grid: dict[int, float] = {}
    out, before = np.full(len(x), np.nan), -1
    for t, (value, here) in enumerate(zip(x, place, strict=True)):
        for m in range(before + 1, here):
            grid[m] = grid[m - period] if m >= period else value
        grid[here] = value
        before = here
        if here >= period:
            weights = [gamma**k for k in range(period)]
            path = [grid[here + 1 - period + k] for k in range(period)]
            out[t] = np.dot(weights, path) / sum(weights)
    return out


def ref_climatology(x: np.ndarray, time: np.ndarray, step: float, gamma: float, bins: int = 24) -> np.ndarray:
    """The weighted mean of hourly means so far over the rows that follow."""
    out = np.empty(len(x))
    sums, counts = np.zeros(bins), np.zeros(bins)
    for t in range(len(x)):
        hour = int(time[t] % DAY // (DAY / bins))
        sums[hour] += x[t]
        counts[hour] += 1
        means = (sums + 5.0 * x[: t + 1].mean()) / (counts + 5.0)
        rows = round(DAY / step)
        ahead = ((time[t] + step * np.arange(1, rows + 1)) % DAY // (DAY / bins)).astype(int)
        weights = gamma ** np.arange(rows)
        out[t] = np.dot(weights, means[ahead]) / weights.sum()
    return out


@pytest.mark.parametrize("cut", [7, 500])
def test_the_last_cycle_is_that_of_a_plain_loop_however_rows_are_cut(cut: int) -> None:
    rng = np.random.default_rng(3)
    place = np.sort(rng.choice(700, 500, replace=False))
    place -= place[0]
    x = rng.normal(size=(500, 2))
    predict = LastCycle(GAMMAS, 2, HOUR, 24)
    none = np.zeros((500, 2), bool)
    pieces = [slice(a, a + cut) for a in range(0, 500, cut)]
    found = np.concatenate([predict(x[p], none[p], times(place[p])) for p in pieces], axis=1)
    for c in range(2):
        for h, gamma in enumerate(GAMMAS):
            expected = ref_last_cycle(x[:, c], place, 24, gamma)
            np.testing.assert_allclose(found[c * len(GAMMAS) + h], expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("step", [HOUR, 900.0, 2 * HOUR])
def test_climatology_is_that_of_a_plain_loop(step: float) -> None:
    rows = 400
    time = times(np.arange(rows), step)
    x = np.random.default_rng(1).normal(size=rows) + np.sin(2 * math.pi * time / DAY)
    predict = _climatology(GAMMAS, 1, Calendar(step, rows))
    assert predict is not None
    found = predict(x[:, None], np.zeros((rows, 1), bool), time)
    bins = min(24, round(DAY / step))
    for h, gamma in enumerate(GAMMAS):
        np.testing.assert_allclose(found[h], ref_climatology(x, time, step, gamma, bins), rtol=1e-9, atol=1e-9)


def test_cycles_suit_the_step_and_the_length_of_a_log() -> None:
    month = 30.5 * DAY
    steps = {
        60.0: ["last_day", "last_week"],
        DAY: ["last_week", "last_year"],
        7 * DAY: ["last_year"],
        month: ["last_year"],
    }
    for step, names in steps.items():
        assert list(Calendar(step, 10**6).cycles) == names
    assert not Calendar(None, 10**6).cycles
    for name, baseline in find_baselines().items():
        if baseline.follow is None:
            continue
        short, long = (baseline.follow(GAMMAS, 1, Calendar(HOUR, rows)) for rows in (47, 24 * 15))
        assert short is None
        assert (long is not None) == (name in ("last_day", "last_week", "climatology"))


def test_all_baselines_are_scored_on_the_same_returns() -> None:
    T, rng = 24 * 30, np.random.default_rng(2)
    time = times(np.arange(T))
    x = (np.sin(2 * math.pi * time / DAY) + 0.1 * rng.normal(size=T))[:, None]
    x[100:110] = np.nan
    missing = np.isnan(x)
    held = np.where(missing, x[99, 0], x)
    gammas = np.array([0.5, 0.9])
    G, known = Returns(gammas, [0.0])(held, missing, np.zeros(T, bool))
    scored = LogScores(["x"], ["2h", "10h"], gammas, T, HOUR)
    season = np.full(G.shape, np.nan)
    season[:, 50:] = G[:, 26:-24]
    for a in range(0, T, 100):
        rows = slice(a, a + 100)
        answers = {"long season": season[:, rows]}
        none = np.full(G[:, rows].shape, np.nan)
        scored.add(
            a, held[rows], missing[rows], G.T[rows] + 0.01, none, G[:, rows], known[:, rows], time[rows], answers
        )
    late = np.arange(T) >= T // 2
    begun = find_baselines()["last_day"].follow
    assert begun is not None
    predict = begun(gammas, 1, Calendar(HOUR, T))
    assert predict is not None
    last_day = predict(held, missing, time)
    for q, score in enumerate(scored.scores()):
        use = late & known[q]
        names = ["persistence", "mean", "past_mean", "last_day", "last_week", "last_period", "climatology"]
        assert list(score["baselines"]) == names
        rmse = {name: measures["rmse"] for name, measures in score["baselines"].items()}
        assert rmse["persistence"] == score["persistence"]["rmse"]
        assert rmse["mean"] == rmse["past_mean"] == score["mean"]["rmse"]
        assert rmse["last_day"] == pytest.approx(np.sqrt(np.mean((last_day[q] - G[q])[use] ** 2)))
        assert rmse["last_period"] == pytest.approx(np.sqrt(np.mean((season[q] - G[q])[use] ** 2)))
        assert score["best_baseline"] == min(rmse, key=lambda name: rmse[name])
        assert score["skill_best"] == pytest.approx(1 - score["rmse"] ** 2 / rmse[score["best_baseline"]] ** 2)
        assert score["verdict"] == "better"
        assert score["skill_best_low"] < score["skill_best"] < score["skill_best_high"] <= 1.0
    (signal,) = scored.signals(scored.scores())
    assert signal["signal"] == "x"
    assert signal["verdict"] == "better"
    assert signal["sentence"].startswith("x is predicted better than with the last period, by ")


def smooth(noise: np.ndarray, horizon: int) -> np.ndarray:
    """Errors of overlapping returns: each the mean of what follows over a horizon."""
    weights = (1 - 1 / horizon) ** np.arange(12 * horizon)
    return np.convolve(noise, weights / weights.sum(), "valid")


@pytest.mark.parametrize("horizon", [2, 20])
@pytest.mark.parametrize("kind", ["normal", "heavy", "volatile"])
def test_equal_errors_are_seldom_called_better_and_smaller_ones_nearly_always(kind: str, horizon: int) -> None:
    better = {1.0: 0, 0.8: 0}
    seeds, rows = 100, 2000
    for seed in range(seeds):
        rng = np.random.default_rng((seed, horizon))
        size = np.exp(smooth(rng.normal(size=rows + 960), 80)[:rows]) if kind == "volatile" else 1.0
        draw = rng.standard_t(4, size=rows) if kind == "heavy" else rng.normal(size=rows)
        baseline = smooth(draw * size, horizon)
        # As large as the baseline's errors in the mean, and different from them.
        other = smooth(rng.normal(size=rows) * size, horizon)
        other *= math.sqrt(np.var(draw * size)) / math.sqrt(np.var(size * np.ones(rows)) + np.mean(size) ** 2)
        for factor in better:
            ours = factor * (0.8 * baseline + 0.6 * other)
            judged = judge_errors(np.ones(len(ours)), ours**2, {"b": baseline**2}, horizon)
            better[factor] += judged.verdict == "better"
    assert better[1.0] <= 5
    assert better[0.8] >= (90 if horizon == 2 else 25)


def test_an_interval_narrows_with_rows_and_widens_with_the_horizon_and_the_level() -> None:
    rng = np.random.default_rng(0)
    ours, other = rng.normal(size=4000) ** 2, 1.2 * rng.normal(size=4000) ** 2

    def width(rows: int = 4000, horizon: float = 4.0, level: float = 0.05) -> float:
        judged = judge_errors(np.ones(rows), ours[:rows], {"b": other[:rows]}, horizon, level=level)
        assert judged.skill_best_low is not None
        assert judged.skill_best_high is not None
        return judged.skill_best_high - judged.skill_best_low

    assert 1.5 < width(1000) / width() < 3.0
    assert width(level=0.01) > 1.2 * width()
    doubled = np.repeat(ours, 2), {"b": np.repeat(other, 2)}
    dependent = judge_errors(np.ones(8000), doubled[0], doubled[1], 4.0)
    assert dependent.skill_best_low is not None
    assert dependent.skill_best_high is not None
    assert dependent.skill_best_high - dependent.skill_best_low == pytest.approx(width(), rel=0.2)


def test_without_enough_windows_it_is_too_short_and_without_errors_no_better() -> None:
    ones = np.ones(100)
    assert judge_errors(ones, ones, {"b": 2 * ones}, 5.0).verdict == "too short"
    assert judge_errors(ones, ones, {"b": 2 * ones}, 4.0).verdict == "better"
    assert judge_errors(np.zeros(100), ones, {"b": ones}, 1.0) == Verdict("too short")
    assert judge_errors(ones, ones, {"b": 0 * ones}, 1.0) == Verdict("no better", "b")
    assert judge_errors(ones, 0 * ones, {"b": 0 * ones}, 1.0) == Verdict("no better", "b")
    assert judge_errors(ones, np.inf * ones, {"b": ones}, 1.0).verdict == "no better"
    assert judge_errors(ones, ones, {"b": np.inf * ones, "c": 2 * ones}, 1.0).best_baseline == "c"
    assert judge_errors(ones, np.nan * ones, {"b": ones}, 1.0).verdict == "no better"
    large = 1e300 * ones
    assert judge_errors(ones, large, {"b": 4 * large}, 1.0).skill_best == pytest.approx(0.75)
    assert judge_errors(ones, ones, {}, 1.0) == Verdict("too short")
    assert judge_errors(ones, ones, {"b": ones}, math.inf).verdict == "too short"


def test_a_signal_is_judged_by_its_best_horizon_at_a_divided_level() -> None:
    no, short = Verdict("no better", "mean", -0.1, -0.2, 0.1), Verdict("too short")
    small, large = Verdict("better", "mean", 0.1, 0.05, 0.2), Verdict("better", "last_day", 0.3, 0.1, 0.4)
    assert judge_signal("x", {1: no, 10: small, "1d": large})["horizon"] == "1d"
    found = judge_signal("x", {1: small, 10: no, "1d": short}, "value")
    assert (found["horizon"], found["best_baseline"], found["kind"]) == (1, "mean", "value")
    assert found["sentence"] == "x is predicted better than with the mean, by 10% at +1 row."
    of_mean = judge_signal("x", {"1h": small, "1d": short})
    assert of_mean["sentence"] == "x is predicted better than with the mean, by 10% in the mean over 1h."
    assert judge_signal("x", {1: no, 10: short})["sentence"] == "x is predicted no better than with the mean."
    assert judge_signal("x", {1: short, 10: short})["verdict"] == "too short"


@pytest.mark.parametrize("cuts", [[], [1, 2, 3, 1000], [64, 65, 128, 700]])
def test_blocks_merge_as_rows_come_and_hold_the_same_bits_however_rows_are_cut(cuts: list[int]) -> None:
    rng = np.random.default_rng(4)
    rows = np.flatnonzero(rng.random(5000) < 0.7)
    error = rng.normal(size=len(rows)) ** 2
    whole, cut = ErrorBlocks(["error"], 1), ErrorBlocks(["error"], 1)
    whole.add_rows(rows, {"error": error})
    for a, b in zip([0, *cuts], [*cuts, len(rows)], strict=True):
        cut.add_rows(rows[a:b], {"error": error[a:b]})
        again = ErrorBlocks(["error"], 1)
        again.restore(cut.state())
        cut = again
    np.testing.assert_array_equal(whole.state(), cut.state())
    assert whole.length == 128
    expected = [error[rows // 128 == b].sum() for b in range(64)]
    np.testing.assert_allclose(whole.sums("error")[:, 0], expected)
    np.testing.assert_array_equal(whole.sums()[:, 0], [(rows // 128 == b).sum() for b in range(64)])
    with pytest.raises(ValueError, match="do not fit"):
        ErrorBlocks(["error", "more"], 1).restore(whole.state())
