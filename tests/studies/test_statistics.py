"""Intervals against scipy's, what they cover, and differences of runs that share their streams."""

from __future__ import annotations

import math

import numpy as np
import pytest
import scipy.stats as st

from emphatic.studies import Interval, sweep
from emphatic.studies.sources import Scores
from emphatic.studies.statistics import difference, interval, median_interval, t_quantile


@pytest.mark.parametrize("df", [1, 2, 3, 9, 49, 1000])
@pytest.mark.parametrize("p", [0.5, 0.9, 0.975, 0.9995])
def test_the_quantiles_of_student(df: int, p: float) -> None:
    assert t_quantile(p, df) == pytest.approx(st.t.ppf(p, df), rel=1e-9, abs=1e-9)


def test_a_t_interval() -> None:
    x = np.random.default_rng(0).normal(size=20)
    found = interval(x)
    assert found.how == "t"
    want = st.t.interval(0.95, 19, x.mean(), st.sem(x))
    assert (found.low, found.high) == pytest.approx(want)


def test_skewed_runs_have_a_bootstrap() -> None:
    x = np.random.default_rng(0).lognormal(size=40)
    found = interval(x)
    assert found.how == "bootstrap"
    want = st.bootstrap((x,), np.mean, n_resamples=20_000, rng=np.random.default_rng(1)).confidence_interval
    assert (found.low, found.high) == pytest.approx((want.low, want.high), rel=0.05)
    assert found.high - found.value > found.value - found.low
    assert interval(x) == found
    assert interval(np.full(10, 0.5)) == Interval(0.5, 0.5, 0.5, "t")


def test_intervals_cover() -> None:
    """Nineteen times in twenty, for means of even and of skewed runs and for medians."""
    rng = np.random.default_rng(1)
    even = [interval(x) for x in rng.normal(1.0, 2.0, (400, 12))]
    skewed = [interval(x) for x in rng.exponential(1.0, (400, 30))]
    medians = [median_interval(x) for x in rng.exponential(1.0, (400, 31))]
    for found, truth, least in ((even, 1.0, 0.92), (skewed, 1.0, 0.88), (medians, math.log(2.0), 0.9)):
        assert least <= np.mean([one.low <= truth <= one.high for one in found]) <= 0.98


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
    half = st.t.ppf(0.975, 5) * apart.std(ddof=1) / np.sqrt(6)
    assert (worse["worse_low"], worse["worse_high"]) == pytest.approx((apart.mean() - half, apart.mean() + half))
    assert found.compare(0, 0) == Interval(0.0, 0.0, 0.0, "t")
    assert (best["mean_low"], best["mean_high"]) == pytest.approx(
        st.t.interval(0.95, 5, found.mean[0].mean(), st.sem(found.mean[0]))
    )
    assert best["interval"] == "t"


def test_divergence_is_counted_and_not_averaged() -> None:
    """One run of five diverges: no mean, no interval, a median; never the best, and last where there is no other."""
    found = sweep("chain", {"rule": "td", "alpha": [0.01, 0.02], "lambda": 0}, runs=5, steps=100)
    found.mean[0, 3], found.diverged[0, 3] = 1e9, True
    row = found.settings.to_pylist()[0]
    assert (row["mean"], row["mean_se"], row["diverged"]) == (np.inf, None, 1)
    assert found.choose() == [1]
    assert math.isnan(found.compare(0, 1).value)
    said = found._row(0)
    assert said["median"] == pytest.approx(np.sort(np.append(np.delete(found.mean[0], 3), np.inf))[2])
    assert "mean_low" not in said


def test_the_mean_of_tasks_overflows_without_a_warning() -> None:
    """Errors of settings that diverge are as large as float32 holds; their sum is infinite, without a warning."""
    one = Scores(np.ones(1), np.ones(1), np.full((1, 2), 3e38, np.float32), np.ones(1, bool))
    both = Scores.averaged([one, one])
    assert both.mean.tolist() == [1.0]
    assert both.diverged.tolist() == [True]
    assert np.isinf(both.curve).all()
