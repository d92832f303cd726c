"""Ranges that were found follow the readings: by a second, plain text of the rule, and by what it is for."""

from __future__ import annotations

import itertools
import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import emphatic
from emphatic import GVF, Horde
from emphatic import features as f
from emphatic.nexting.runs.learning import open_log
from emphatic.nexting.runs.settings import Settings, default_features
from emphatic.nexting.tables import open_table

PARTS: list[f.Part] = [
    f.SoftBins("*", bins=6),
    f.SoftBins(f.Trace("*", steps=[2, 20]), bins=5, spacing="equal"),
    f.SoftBins(f.Change("*"), bins=4),
    f.Tiles("*", tiles=4, tilings=1),
    f.Tiles(["a", f.Trace("b", steps=9)], tiles=3, hashed=50),
    f.Tiles("*", tiles=3, range=(-1, 1)),
]


def drifting(T: int = 6000, seed: int = 0) -> np.ndarray:
    """Two signals, with gaps: the one drifts away, the other grows and jumps."""
    rng = np.random.default_rng(seed)
    t = np.arange(T)
    values = np.stack([np.sin(t / 9) + t / 800, np.sin(t / 23) * (1 + t / 300) + 100.0 * (t > T // 2)], axis=1)
    values += 0.1 * rng.normal(size=(T, 2))
    values[rng.random((T, 2)) < 0.02] = np.nan
    return values


def warmed(values: np.ndarray, rows: int = 800, parts: list[f.Part] = PARTS) -> f.Features:
    return f.Features(parts).warm_up(values[:rows], names=["a", "b"][: values.shape[1]])


def same(a: emphatic.Active, b: emphatic.Active) -> None:
    np.testing.assert_array_equal(a.indices, b.indices)
    np.testing.assert_array_equal(a.values, b.values)


# ------------------------------------------------------------------ the rule once more


def followed(x: list[float], low: float, high: float, warm: list[float]) -> list[tuple[float, float]]:
    """The range of one signal after each reading."""
    memory = max(500, len(warm))
    at_low = sum(one < low + 0.1 * (high - low) for one in warm) / len(warm)
    at_high = sum(one > high - 0.1 * (high - low) for one in warm) / len(warm)
    below = above = 0.0
    streak = 0
    out = []
    for one in x:
        tenth = 0.1 * (high - low)
        where = [one < low, low <= one < low + tenth, high - tenth < one <= high, one > high]
        shares = [below, at_low, at_high, above]
        below, at_low, at_high, above = (s + (here - s) / memory for s, here in zip(shares, where, strict=True))
        streak = (
            (streak + 1 if streak > 0 else 1) if where[3] else (streak - 1 if streak < 0 else -1) if where[0] else 0
        )
        beyond, behind = (above, below + at_low) if streak > 0 else (below, above + at_high)
        excess = one - (high if streak > 0 else low)
        slides = behind < 0.005 or abs(excess) > high - low
        if streak and ((behind < 0.005 and beyond >= 0.02) or below + above >= 0.5):
            step = 0.01 * abs(streak) * max(1, abs(streak) / 100) ** 2 * (high - low)
            move = math.copysign(min(abs(excess), step), streak)
            low, high = low + (move if slides or streak < 0 else 0), high + (move if slides or streak > 0 else 0)
        out.append((low, high))
    return out


@pytest.mark.parametrize("column", [0, 1])
def test_ranges_follow_the_rule(column: int) -> None:
    values = drifting()[:, [column]]
    values = values[np.isfinite(values[:, 0])]
    maker = warmed(values, parts=[f.SoftBins("*", bins=5, spacing="equal")])
    first = maker.save()[1]["knots"]
    expected = followed(values[:, 0].tolist(), first[0], first[-1], values[:800, 0].tolist())
    low, high = [], []
    for row in values:
        maker(row)
        knots = maker.save()[1]["knots"]
        low.append(knots[0])
        high.append(knots[-1])
        assert (np.diff(knots) > 0).all()
    np.testing.assert_allclose(np.stack([low, high], axis=1), expected, rtol=1e-9, atol=1e-9)
    assert sum(maker.range_moves["a"]) > 10
    assert (expected[-1][1] - expected[-1][0] > 2 * (first[-1] - first[0])) == (column == 1)
    assert [float(name.split("≈")[1]) for name in maker.names()] == pytest.approx(np.linspace(*expected[-1], 5), 1e-4)


def test_a_signals_traces_slide_along_and_its_changes_do_not() -> None:
    t = np.arange(12_000.0)
    values = (np.sin(t / 9) + t / 2000)[:, None]
    maker = warmed(values, 1000, [f.SoftBins(of, bins=3) for of in ("a", f.Trace("a", steps=4), f.Change("a"))])
    before = maker.save()[1]["knots"].reshape(3, 3)
    maker(values)
    shift = maker.save()[1]["knots"].reshape(3, 3) - before
    assert shift[0] == pytest.approx(shift[1], 1e-12)
    assert shift[0].min() == pytest.approx(shift[0].max())
    assert shift[0, 0] > 4.0
    assert not shift[2].any()
    assert maker.range_moves["a"] == maker.range_moves["trace(a, 4)"] > (0, 0)
    assert maker.range_moves["change(a, 1)"] == (0, 0)


def test_ranges_that_fit_do_not_move() -> None:
    rng = np.random.default_rng(0)
    values = np.sin(np.arange(5000)[:, None] / [9, 300]) + 0.2 * rng.normal(size=(5000, 2))
    values[::97] *= 30.0  # what lies far out now and then is no drift
    moving, fixed = warmed(values, 2000), warmed(values, 2000)
    fixed.fix_ranges()
    same(moving(values), fixed(values))
    assert not any(sum(both) for both in moving.range_moves.values())
    assert moving.clipped == fixed.clipped
    assert sum(moving.clipped["a"]) > 10


def test_given_ranges_stay_and_so_do_fixed_ones() -> None:
    values = drifting()
    moving, fixed = (warmed(values, parts=PARTS[:-1]) for _ in range(2))
    given_ = warmed(values, parts=[f.SoftBins("*", range=(-1, 2))])
    fixed.fix_ranges()
    makers = (moving, fixed, given_)
    before = [maker.names() for maker in makers]
    for maker in makers:
        maker(values)
    stayed = [maker.names() == names for maker, names in zip(makers, before, strict=True)]
    assert stayed == [False, True, True]
    assert sum(moving.clipped["a"]) < 0.4 * sum(fixed.clipped["a"])
    assert set(given_.range_moves.values()) == set(fixed.range_moves.values()) == {(0, 0)}


# ------------------------------------------------------------------ state


def test_the_bits_do_not_depend_on_blocks_and_are_resumed() -> None:
    values = drifting()
    maker = warmed(values)
    at_once = maker(values)
    assert sum(maker.range_moves["a"]) > 100
    for cuts in ([0, 1, 2, 1777, 1777, 3001, 6000], [*range(0, 6001, 7), 6000]):
        other = warmed(values)
        parts = []
        for a, b in itertools.pairwise(cuts):
            header, arrays = other.save()
            other = f.Features.load(json.loads(json.dumps(header)), arrays)
            parts.append(other(values[a:b]))
        np.testing.assert_array_equal(np.concatenate([p.indices for p in parts]), at_once.indices)
        np.testing.assert_array_equal(np.concatenate([p.values for p in parts]), at_once.values)
        assert (other.range_moves, other.clipped, other.names()) == (maker.range_moves, maker.clipped, maker.names())
    maker = f.Features.load(*maker.save())
    maker.restart()
    assert set(maker.clipped.values()) == set(maker.range_moves.values()) == {(0, 0)}
    same(maker(values), at_once)


@pytest.mark.parametrize("name", ["first_knots", "recent", "first_recent", "moves"])
def test_damaged_ranges_are_refused(name: str) -> None:
    header, arrays = warmed(drifting()).save()
    for spoiled in (arrays[name][:-1], arrays[name].astype(np.float32), None):
        damaged = {k: a for k, a in (arrays | {name: spoiled}).items() if a is not None}
        if spoiled is None and name == "recent":
            continue  # as before ranges adapted
        with pytest.raises(emphatic.CheckpointError, match="not valid saved features"):
            f.Features.load(header, damaged)
    if name == "recent":
        for memory in (math.nan, 0.5, -1.0):
            arrays[name][0, 0] = memory
            with pytest.raises(emphatic.CheckpointError, match="not valid saved features"):
                f.Features.load(header, arrays)


def test_a_log_is_scored_with_the_features_that_were_learned_from() -> None:
    """The features of the whole log once more start from the ranges of the warm-up, not from where they ended."""
    values = np.nan_to_num(drifting()[:, 0])
    result = emphatic.nexting.run({"a": values}, horizons=[5])
    assert result.model.horde is not None
    assert sum(result.model.horde.features.range_moves["a"]) > 10
    log = open_log({"a": values}, Settings(horizons=(5,)), lambda *_: None)
    maker = f.Features.from_config(log.settings.features or ()).warm_up(values[:500, None], names=["a"])
    again = list(log.phi(log.warmed_up(log.new_guard()).makers[0]))
    np.testing.assert_array_equal(np.concatenate([phi.values for phi in again]), maker(values[:, None]).values)


# ------------------------------------------------------------------ whatever comes


@given(st.lists(st.tuples(st.floats(), st.integers(1, 400)), min_size=1, max_size=8), st.floats(-1e9, 1e9))
def test_knots_stay_apart_whatever_comes(levels: list[tuple[float, int]], level: float) -> None:
    rng = np.random.default_rng(0)
    values = np.concatenate([[level + rng.normal()] for _ in range(50)] + [np.full(n, x) for x, n in levels])[:, None]
    maker = warmed(values, 50, [f.SoftBins("*", bins=5), f.Tiles("*", tiles=20)])
    phi = maker(values)
    assert np.isfinite(phi.values).all()
    arrays = maker.save()[1]
    f.Features.load(*maker.save())  # which looks at the knots
    assert (arrays["recent"][:, 1:5] >= 0).all()
    assert (arrays["recent"][:, 1:5] <= 1 + 1e-9).all()


def test_a_far_jump_is_followed_and_so_is_the_way_back() -> None:
    rng = np.random.default_rng(0)
    values = rng.normal(size=(12_000, 1))
    values[4000:8000] += 1e6
    maker = warmed(values, 1000, [f.SoftBins("*", bins=10)])
    for part in (slice(0, 4000), slice(4000, 8000), slice(8000, None)):
        maker(values[part])
        before = maker.clipped["a"]
        knots = maker.save()[1]["knots"]
        assert abs(knots.mean() - values[part][-1, 0]) < 10.0
        maker(values[part][-100:])
        assert sum(maker.clipped["a"]) - sum(before) < 30


# ------------------------------------------------------------------ what it is for


def errors(x: np.ndarray, horizons: list[int]) -> list[dict[int, float]]:
    """The RMSE of online predictions with ranges that adapt, and with fixed ones, after the first 30% of the rows."""
    table = open_table({"x": x})
    out: list[dict[int, float]] = []
    for fixed in (False, True):
        maker = f.Features.from_config(default_features(table, max(horizons), len(x) // 10))
        horde = Horde([GVF("x", horizon=h) for h in horizons], maker, rate=0.3).warm_up(table, len(x) // 10)
        if fixed:
            maker.fix_ranges()
        predictions = horde.run(table)
        out.append({})
        for q, h in enumerate(horizons):
            actual = np.empty(len(x))
            actual[-1] = x[-1]
            for t in range(len(x) - 2, -1, -1):
                actual[t] = x[t + 1] / h + (1 - 1 / h) * actual[t + 1]
            some = slice(3 * len(x) // 10, len(x) - 5 * h)
            out[-1][h] = float(np.sqrt(np.mean((actual - predictions[:, q])[some] ** 2)))
    return out


def tank(T: int) -> np.ndarray:
    """A tank that drains at rates that change, and is pumped full when empty."""
    rng = np.random.default_rng(0)
    out = np.empty(T)
    level, rate, pumping = 1.0, 0.02, False
    for t in range(T):
        pumping = level < 0 or (pumping and level < 2)
        if rng.random() < 0.02:
            rate = 0.01 + 0.04 * rng.random()
        level += 0.08 if pumping else -rate
        out[t] = level
    return out + 0.02 * rng.normal(size=T)


def test_a_drifting_sensor_is_predicted_clearly_better() -> None:
    T = 20_000
    adapting, fixed = errors(tank(T) + np.arange(T) * 4 / T, [2, 10, 40])
    for h in adapting:  # measured: 0.21, 0.28, 0.49
        assert adapting[h] < 0.9 * fixed[h]
