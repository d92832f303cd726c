"""Periods found from readings: none in noise, no multiple of a sine's, the week beside the day, and kept once found."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from emphatic.nexting.answers.periods import describe_periods, find_periods

Array = NDArray[np.float64]


def periods(x: Array) -> list[int]:
    return [period.rows for period in find_periods(x)]


def autoregressive(rng: np.random.Generator, n: int, slope: float) -> Array:
    x = rng.normal(size=n)
    for t in range(1, n):
        x[t] += slope * x[t - 1]
    return x


@pytest.mark.parametrize("slope", [0.0, 0.5, 0.9, 1.0], ids=["white", "half", "nine tenths", "walk"])
def test_noise_has_no_period(slope: float) -> None:
    found = [
        seed
        for n in (40, 62, 100, 240, 700, 2500)
        for seed in range(40)
        if periods(autoregressive(np.random.default_rng([seed, n]), n, slope))
    ]
    assert len(found) <= 2  # of 240


@pytest.mark.parametrize("period", [5.0, 7.0, 12.0, 17.3, 24.0, 48.0])
@pytest.mark.parametrize("noise", [0.3, 0.7, 1.0])
def test_a_noisy_sine_has_its_period_and_no_multiple(period: float, noise: float) -> None:
    wrong = 0
    for n in (int(9 * period), 600, 3000):
        for seed in range(12):
            rng = np.random.default_rng([seed, n])
            x = np.sin(2 * np.pi * np.arange(n) / period + seed) + noise * rng.normal(size=n)
            found = periods(x)
            if n >= 20 * period:
                assert found
                assert abs(found[0] - period) <= max(1.0, 0.03 * period)
            wrong += any(p > 1.3 * period for p in found)
    assert wrong <= 1  # of 36


def test_two_periods_are_found_the_week_beside_the_day() -> None:
    t = np.arange(168 * 6)
    day, weekend = np.sin(2 * np.pi * t / 24), (t // 24 % 7 >= 5) * 1.0
    x = 10 + 3 * day * (1 - 0.6 * weekend) - 2 * weekend + 0.3 * np.random.default_rng(0).normal(size=len(t))
    found = find_periods(x)
    assert [period.rows for period in found] == [24, 168]
    assert all(0.3 < period.strength <= 1.1 for period in found)


def test_neither_unit_nor_level_nor_trend_matters() -> None:
    rng = np.random.default_rng(1)
    x = np.sin(2 * np.pi * np.arange(400) / 12) + 0.5 * rng.normal(size=400)
    expected = periods(x)
    assert expected == [12]
    for same in (1e6 + x, 1e-200 * x, 1e200 * x, x + 0.05 * np.arange(400), -x):
        assert periods(same) == expected


def test_pulses_have_a_period_and_constants_have_none() -> None:
    pulses = (np.arange(500) % 20 == 0) * 5.0 + 0.2 * np.random.default_rng(0).normal(size=500)
    assert 20 in periods(pulses)
    assert not periods(np.zeros(500))
    assert not periods(np.full(500, 1e9))
    assert not periods(np.arange(500.0))
    assert not periods(np.array([1.0, 2.0, 1.0]))


def test_a_period_is_kept_while_it_does_as_well() -> None:
    rng = np.random.default_rng(5)
    x = np.sin(2 * np.pi * np.arange(150) / 24.5) + 0.3 * rng.normal(size=150)
    found = find_periods(x)[0].rows
    assert found in (24, 25)
    assert [p.rows for p in find_periods(x, [49 - found])] == [49 - found]
    assert [p.rows for p in find_periods(x, [40])] == [found]


def test_the_periods_of_many_signals_are_said_in_one_line() -> None:
    text = describe_periods({f"s{i}": [24, 1440] if i % 2 else [] for i in range(40)})
    assert text.startswith("s1 every 24 and every 1,440 rows; s3 every")
    assert text.endswith("s15 every 24 and every 1,440 rows; and 12 more signals")
    assert describe_periods({"x": []}) == ""
