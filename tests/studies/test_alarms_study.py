"""The study of alarms: its faults, its charts, and that all detectors are held to as many false alarms."""

from __future__ import annotations

import numpy as np
import pytest

from reproductions.open_questions import CHARTS, DAY, FAULTS, LONG, SIZES, Z_SCORE, charts, inject, threshold
from reproductions.open_questions import count_alarms as begun


def test_each_fault_is_what_its_name_says() -> None:
    x = np.random.default_rng(0).normal(5.0, 2.0, size=(60_000, 2))
    y, faults = inject(x, 30_000, np.random.default_rng(1))
    assert {fault.kind for fault in faults} == set(FAULTS)
    assert all(fault.begin >= 30_000 for fault in faults)
    changed = np.zeros(x.shape, bool)
    for c, kind, a, b in faults:
        assert b - a == FAULTS[kind]
        changed[a:b, c] = True
        if kind == "stuck":
            assert (y[a:b, c] == x[a - 1, c]).all()
        elif kind == "dropout":
            assert (y[a:b, c] == 0.0).all()
        elif kind == "level":
            assert abs((y - x)[a:b, c]) == pytest.approx(SIZES[kind] * x[:30_000, c].std())
        elif kind == "noise":
            assert (y - x)[a:b, c].std() == pytest.approx(SIZES[kind] * x[:30_000, c].std(), rel=0.3)
        else:
            added = (y - x)[a:b, c]
            assert abs(added[-1]) == pytest.approx(SIZES[kind] * x[:30_000, c].std())
            assert (np.diff(abs(added)) > 0).all()
    assert (x[~changed] == y[~changed]).all()


def test_a_fault_is_not_put_where_readings_are_missing() -> None:
    x = np.zeros((6_000, 1))
    x[3_000:] = np.nan
    assert inject(x, 3_000, np.random.default_rng(0))[1] == []


def test_charts_are_their_equations() -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(3.0, 2.0, size=(2_500, 2))
    x[2_000:2_010, 1] = np.nan
    found = charts(x)
    for c, t in ((0, 2_200), (1, 2_400)):
        seen = x[: t + 1, c][~np.isnan(x[: t + 1, c])]
        before = seen[:-1]
        means: dict[int, tuple[float, float]] = {}
        for window in (DAY, LONG):
            mean = variance = 0.0
            for n, value in enumerate(before, 1):
                a, off = max(1 / n, 1 / window), value - mean
                mean, variance = mean + a * off, (1 - a) * (variance + a * off**2)
            means[window] = mean, variance
        mean, variance = means[DAY]
        assert found[Z_SCORE][t, c] == pytest.approx(abs(seen[-1] - mean) / variance**0.5)
        mean, variance = means[LONG]
        for name, part in CHARTS.items():
            z = seen[0]
            for value in seen[1:]:
                z += part * (value - z)
            assert found[name][t, c] == pytest.approx(abs(z - mean) / (variance * part / (2 - part)) ** 0.5)
    assert found[Z_SCORE][2_005, 1] == 0.0


def test_a_threshold_allows_so_many_false_alarms() -> None:
    scores = np.random.default_rng(0).exponential(size=30_000)
    for allowed in (1, 3, 10):
        limit = threshold(scores, allowed)
        assert 1 <= begun(scores > limit) <= allowed
        assert begun(scores > 0.9 * limit) > allowed
