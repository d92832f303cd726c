"""Intervals against scipy's, what they cover, and differences of runs that share their streams."""

from __future__ import annotations

import math
import re
from pathlib import Path

import numpy as np
import pytest
import scipy

from benchmarks.studies import DISTRIBUTIONS, RUNS, measure_coverage
from emphatic.studies import Interval, sweep
from emphatic.studies.sources import Scores
from emphatic.studies.statistics import (
    difference,
    interval,
    mean_intervals,
    median_interval,
    runs_for_tolerance,
    tolerance_interval,
)


@pytest.mark.parametrize("R", [2, 3, 4])
def test_few_runs_have_a_t_interval(R: int) -> None:
    x = np.random.default_rng(R).normal(size=R)
    found = interval(x)
    assert found.how == "t"
    assert (found.low, found.high) == pytest.approx(scipy.stats.t.interval(0.95, R - 1, x.mean(), scipy.stats.sem(x)))


@pytest.mark.parametrize(("R", "seed"), [(5, 0), (12, 1), (40, 2), (200, 3)])
def test_percentile_t(R: int, seed: int) -> None:
    """As it is written in a plain loop over resamples, and never narrower than Student's t."""
    rng = np.random.default_rng(seed)
    x = rng.lognormal(size=R)
    again = rng.choice(x, (4000, R))
    again = again[np.ptp(again, axis=1) > 0.0]
    ratios = (again.mean(axis=1) - x.mean()) / scipy.stats.sem(again, axis=1)
    t = scipy.stats.t.ppf(0.975, R - 1)
    low, high = np.quantile(ratios, [0.025, 0.975])
    want = x.mean() - scipy.stats.sem(x) * max(high, t), x.mean() + scipy.stats.sem(x) * max(-low, t)
    found = interval(x)
    assert found.how == "bootstrap"
    width = found.high - found.low
    assert (found.low, found.high) == pytest.approx(want, abs=(0.3 if R == 5 else 0.1) * width)
    assert found.low <= scipy.stats.t.interval(0.95, R - 1, x.mean(), scipy.stats.sem(x))[0] + 1e-12
    assert interval(x) == found
    scaled = interval(1e100 * x)
    assert (scaled.low, scaled.high) == pytest.approx((1e100 * found.low, 1e100 * found.high))


def test_all_rows_at_once() -> None:
    """The same as one by one; constants have no width, and rows that are not finite no interval."""
    rng = np.random.default_rng(5)
    rows = rng.exponential(size=(1203, 7))
    rows[3], rows[4, 2], rows[5, 1] = 0.5, np.inf, np.nan
    low, high = mean_intervals(rows)
    for i in (0, 1, 999, 1000, 1202):
        assert (low[i], high[i]) == pytest.approx((interval(rows[i]).low, interval(rows[i]).high), rel=1e-12)
    assert (low[3], high[3]) == (0.5, 0.5)
    assert np.isnan([low[4], high[4], low[5], high[5]]).all()


@pytest.mark.parametrize("R", [5, 8, 30])
@pytest.mark.parametrize("tiny", [0.0, 1e-9, 1e-3])
def test_runs_of_which_one_differs_have_an_end(R: int, tiny: float) -> None:
    """Most resamples leave it out, and have hardly any spread."""
    x = np.append(tiny * np.linspace(-1.0, 1.0, R - 1), 1.0)
    found = interval(x)
    assert 0.0 < found.high - found.value <= 5.5 * scipy.stats.sem(x)
    assert found.value - found.low <= 5.5 * scipy.stats.sem(x)


@pytest.mark.parametrize("distribution", list(DISTRIBUTIONS))
@pytest.mark.parametrize("R", [5, 30])
def test_intervals_cover(distribution: str, R: int) -> None:
    """As the table of the page says, to three standard errors of so many repetitions."""
    share = measure_coverage(distribution, R, 2000, seed=1)
    page = (Path(__file__).parents[2] / "docs" / "sweeps.md").read_text("utf-8")
    (line,) = re.findall(rf"^\| {re.escape(distribution)} \|(.*)\|$", page, re.M)
    printed = float(line.split("|")[RUNS.index(R)])
    assert share == pytest.approx(printed, abs=3 * math.sqrt(printed * (1 - printed) / 2000) + 0.0005)
    if R == 30:
        assert printed >= 0.93


def test_medians_cover() -> None:
    rng = np.random.default_rng(1)
    medians = [median_interval(x) for x in rng.exponential(1.0, (400, 31))]
    assert 0.9 <= np.mean([found.low <= math.log(2.0) <= found.high for found in medians]) <= 0.98


@pytest.mark.parametrize(("share", "least"), [(0.5, 8), (0.8, 22), (0.9, 46), (0.95, 93)])
def test_tolerance_intervals(share: float, least: int) -> None:
    """They hold the share in 95 of 100 samples, whatever the distribution; of fewer runs they are not known."""
    assert runs_for_tolerance(share) == least
    rng = np.random.default_rng(least)
    assert np.isnan(tolerance_interval(rng.normal(size=least - 1), share)).all()
    for R in (least, 3 * least):
        ends = np.array([tolerance_interval(x, share) for x in rng.exponential(size=(1000, R))])
        inside = np.exp(-ends[:, 0]) - np.exp(-ends[:, 1])
        assert 0.93 <= np.mean(inside >= share) <= 1.0
    low, high = tolerance_interval([*range(99), np.inf], 0.5)  # a run that diverged is the largest
    assert math.isfinite(low)
    assert math.isfinite(high)
    assert tolerance_interval([*range(45), np.inf], 0.9) == (0.0, np.inf)


def test_what_is_not_known() -> None:
    assert math.isnan(interval([1.0]).low)
    assert interval([1.0, np.inf]).value == np.inf
    assert math.isnan(interval([1.0, np.inf]).high)
    assert math.isnan(difference([1.0, np.inf], [1.0, 2.0]).value)
    assert median_interval([1.0, 2.0, np.inf]).value == 2.0  # one that diverged is the worst of them, and no more
    assert median_interval([1.0, np.inf, np.inf]).value == np.inf


def test_differences_are_taken_run_by_run() -> None:
    rng = np.random.default_rng(2)
    hard = rng.normal(0.0, 5.0, 30)  # what runs have in common
    a, b = hard + rng.normal(0.3, 0.1, 30), hard + rng.normal(0.0, 0.1, 30)
    assert difference(a, b).above_zero
    assert not difference(b, a).above_zero
    assert interval(a).low < interval(b).high  # by themselves they could not be told apart


def test_rules_that_are_not_clearly_worse() -> None:
    """The same rule twice is not clearly worse than itself; a step size ten times too small is."""
    grid = [{"rule": "td", "alpha": 0.01, "lambda": 0}, {"rule": "etd", "alpha": 1e-5, "lambda": 0}]
    found = sweep("chain", grid, runs=6, steps=500, every=10)
    best, worse = found.best
    assert (best["rule"], best["worse_by"], best["worse_low"]) == ("td", 0.0, 0.0)
    assert worse["worse_low"] > 0.0
    apart = found.mean[1] - found.mean[0]
    assert (worse["worse_low"], worse["worse_high"]) == (interval(apart).low, interval(apart).high)
    assert found.compare(0, 0) == Interval(0.0, 0.0, 0.0, "bootstrap")
    mean = interval(found.mean[0])
    assert (best["mean_low"], best["mean_high"], best["interval"]) == (mean.low, mean.high, "bootstrap")


def test_divergence_is_counted_and_not_averaged() -> None:
    """One run of five diverges: no mean, no interval, a median; never the best, and last where there is no other."""
    found = sweep("chain", {"rule": "td", "alpha": [0.01, 0.02], "lambda": 0}, runs=5, steps=100)
    found.mean[0, 3], found.diverged[0, 3] = 1e9, True
    row = found.settings.to_pylist()[0]
    assert (row["mean"], row["mean_se"], row["diverged"]) == (np.inf, None, 1)
    assert found.choose() == [1]
    assert math.isnan(found.compare(0, 1).value)
    said = found._row(0, None)
    assert said["median"] == pytest.approx(np.sort(np.append(np.delete(found.mean[0], 3), np.inf))[2])
    assert said["mean_low"] is None


def test_the_mean_of_tasks_overflows_without_a_warning() -> None:
    """Errors of settings that diverge are as large as float32 holds; their sum is infinite, without a warning."""
    one = Scores(np.ones(1), np.ones(1), np.full((1, 2), 3e38, np.float32), np.ones(1, bool))
    both = Scores.averaged([one, one])
    assert both.mean.tolist() == [1.0]
    assert both.diverged.tolist() == [True]
    assert np.isinf(both.curve).all()
