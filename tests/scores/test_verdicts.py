"""Verdicts on errors of known kinds; blocks of errors."""

from __future__ import annotations

import math

import numpy as np
import pytest

from emphatic.nexting.scores.verdicts import ErrorBlocks, Verdict, judge_errors, judge_signal


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
    found = judge_signal("x", {1: small, 10: no, "1d": short})
    assert (found["horizon"], found["best_baseline"]) == (1, "mean")
    assert found["sentence"] == "x is predicted better than with the mean, by 10% at +1 row."
    assert judge_signal("x", {"1h": small, "1d": short})["sentence"].endswith(", by 10% at +1h.")
    assert judge_signal("x", {1: no, 10: short})["sentence"] == "x is predicted no better than with the mean."
    assert judge_signal("x", {1: short, 10: short})["verdict"] == "too short"


@pytest.mark.parametrize("cuts", [[], [1, 2, 3, 1000], [64, 65, 128, 700]])
def test_blocks_merge_as_rows_come_and_hold_the_same_bits_however_rows_are_cut(cuts: list[int]) -> None:
    rng = np.random.default_rng(4)
    rows = np.flatnonzero(rng.random(5000) < 0.7)
    error = rng.normal(size=len(rows)) ** 2
    whole, cut = ErrorBlocks(["error"]), ErrorBlocks(["error"])
    whole.add(rows, {"error": error})
    for a, b in zip([0, *cuts], [*cuts, len(rows)], strict=True):
        cut.add(rows[a:b], {"error": error[a:b]})
        again = ErrorBlocks(["error"])
        again.restore(cut.state())
        cut = again
    np.testing.assert_array_equal(whole.state(), cut.state())
    assert whole.length == 128
    expected = [error[rows // 128 == b].sum() for b in range(64)]
    np.testing.assert_allclose(whole.sums("error"), expected)
    np.testing.assert_array_equal(whole.sums(), [(rows // 128 == b).sum() for b in range(64)])
    with pytest.raises(ValueError, match="do not fit"):
        ErrorBlocks(["error", "more"]).restore(whole.state())
