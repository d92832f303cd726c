"""``ReadingGuard``: single far readings, exact repeats, codes, levels, heavy tails; its state from block to block."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys

import numpy as np
import pytest
from numpy.typing import NDArray

from emphatic.nexting.tables import Block, ReadingGuard
from emphatic.nexting.tables.guard import MISSING, PULLED_IN, READ

Array = NDArray[np.float64]
T, WARM = 3000, 500


def noise(seed: int = 0, rows: int = T) -> Array:
    """A signal of mean 20 and standard deviation 1 that swings."""
    rng = np.random.default_rng(seed)
    x = 20.0 + np.sin(np.arange(rows) / 9.0) + 0.7 * rng.normal(size=rows)
    return np.asarray((x - x.mean()) / x.std() + 20.0)


def judged(x: Array, warm: int = WARM) -> tuple[Array, NDArray[np.uint8]]:
    """One signal after a warm-up on its first rows: what is learned from, and the verdicts."""
    guarded, verdicts = ReadingGuard(1).warm_up(x[:warm, None]).judge(x[:, None])
    return guarded[:, 0], verdicts[:, 0]


@pytest.mark.parametrize("size", [10.0, 100.0, 1000.0, 3.3e8])
@pytest.mark.parametrize("side", [-1.0, 1.0])
@pytest.mark.parametrize("at", [0, 3, 250, WARM - 1, WARM, 2000, T - 1])
def test_a_single_far_reading_is_pulled_in(size: float, side: float, at: int) -> None:
    clean = noise(at)
    x = clean.copy()
    x[at] += side * size
    guarded, verdicts = judged(x)
    assert np.flatnonzero(verdicts).tolist() == [at]
    assert verdicts[at] == PULLED_IN
    assert clean.min() <= guarded[at] <= clean.max()
    others = np.arange(T) != at
    assert (guarded[others] == x[others]).all()


@pytest.mark.parametrize("scale", [1e-12, 1.0, 1e12])
def test_the_unit_of_a_signal_does_not_matter(scale: float) -> None:
    x = noise(1)
    x[700] += 30.0
    x[1500:] += 40.0
    verdicts = judged(x)[1]
    assert verdicts.any()
    assert (judged(scale * (x - 20.0))[1] == verdicts).all()


@pytest.mark.parametrize("far", [-50.0, 500.0])
def test_a_far_reading_that_repeats_is_missing_while_it_lies_apart(far: float) -> None:
    x = noise(2)
    places = np.arange(600, T, 40)
    x[places] = far
    guarded, verdicts = judged(x)
    assert verdicts[places].tolist() == [PULLED_IN] + [MISSING] * (len(places) - 1)
    assert np.isnan(guarded[places[1:]]).all()
    assert np.count_nonzero(verdicts) == len(places)


def test_the_end_of_the_scale_of_sensors_of_a_kind_is_not_far() -> None:
    """A sonar that reads its largest distance for the first time, where others of the same range often did."""
    near, often = noise(3), noise(4)
    near[1000:1010:3] = often[5::4] = 90.0
    both = np.stack([near, often], axis=1)
    assert not ReadingGuard(2).warm_up(both[:WARM]).judge(both)[1].any()
    assert judged(near)[1].any()
    apart = np.stack([near, often + 1000.0], axis=1)  # of another kind: its range is elsewhere
    apart[5::4, 1] = 90.0
    assert ReadingGuard(2).warm_up(apart[:WARM]).judge(apart)[1][1000, 0]
    off = np.stack([near - 90.0, often - 90.0], axis=1)  # the end is 0, which broken sensors read
    assert ReadingGuard(2).warm_up(off[:WARM]).judge(off)[1][1000, 0]


@pytest.mark.parametrize("code", [-999.0, -9999.0, 9999.0, 65535.0, 32767.0, -32768.0, 1e20, -1e20, 6553.5, -99.9])
@pytest.mark.parametrize("rows", [1, 10, 30, 300])
def test_codes_are_missing_however_long(code: float, rows: int) -> None:
    x = noise(3)
    for at in (800, 2000):
        x[at : at + rows] = np.float32(code)
    guarded, verdicts = judged(x)
    hit = x == float(np.float32(code))
    assert (verdicts == np.where(hit, MISSING, READ)).all()
    assert (np.isnan(guarded) == hit).all()


def test_codes_are_readings_where_readings_are_like_them() -> None:
    rng = np.random.default_rng(4)
    x = np.round(1000.0 + 30.0 * rng.normal(size=T))
    assert (x == 999.0).sum() > 10
    assert not judged(x)[1].any()


def test_codes_in_the_warm_up_and_in_a_signal_that_does_not_vary() -> None:
    x = noise(5)
    x[::7] = -999.0
    assert (judged(x)[1] == np.where(x == -999.0, MISSING, READ)).all()
    constant = np.full(T, 4.0)
    constant[5::11] = 65535.0
    assert (judged(constant)[1] == np.where(constant == 65535.0, MISSING, READ)).all()


def test_a_code_stays_one_when_readings_come_nearer() -> None:
    x = 300.0 * (noise(15) - 20.0) + 2500.0
    places = np.arange(100, T, 50)
    x[1510:1910:50] = 900.0 - 90.0 * np.arange(8)  # low readings, each further than the one before
    x[places] = -999.0
    assert (judged(x)[1][places] == MISSING).all()


@pytest.mark.parametrize("level", [0.0, 77.0])
@pytest.mark.parametrize("rows", [1, 10, 14])
def test_a_constant_stretch_of_less_than_15_rows_is_missing_after_its_first_row(level: float, rows: int) -> None:
    x = noise(6)
    x[1000 : 1000 + rows] = level
    verdicts = judged(x)[1]
    assert verdicts[1000 : 1000 + rows].tolist() == [PULLED_IN] + [MISSING] * (rows - 1)
    assert np.count_nonzero(verdicts) == rows


def test_a_constant_stretch_is_missing_also_where_far_readings_widened_the_range() -> None:
    x = noise(14)
    x[900] += 60.0
    guard = ReadingGuard(1).warm_up(x[:WARM, None])
    guard.judge(x[:, None])
    roof = guard.state()[0][3]  # what is just beyond it would be let through after the second far reading
    assert guard.judge(np.full((10, 1), roof) + 0.01)[1][:, 0].tolist() == [PULLED_IN] + [MISSING] * 9
    assert guard.judge(x[:1, None])[1].tolist() == [[READ]]


@pytest.mark.parametrize("rows", [15, 30, 300])
def test_a_signal_that_is_switched_off_is_at_a_level_after_15_rows(rows: int) -> None:
    x = noise(7)
    x[1000 : 1000 + rows] = 0.0
    x[2000:2100] = 0.0
    guarded, verdicts = judged(x)
    assert np.flatnonzero(verdicts).tolist() == list(range(1000, 1014))
    assert (guarded[1014:] == x[1014:]).all()


@pytest.mark.parametrize("size", [10.0, 100.0, 1e4, 1e8])
@pytest.mark.parametrize("digits", [0, 1, 9])
@pytest.mark.parametrize("side", [-1.0, 1.0])
def test_a_new_level_is_followed_within_15_rows(size: float, digits: int, side: float) -> None:
    x = noise(8)
    x[1500:] += side * size
    x = np.round(x, digits)
    guarded, verdicts = judged(x)
    assert (verdicts[1514:] == READ).all()
    assert (guarded[1514:] == x[1514:]).all()
    assert (verdicts[:1500] == READ).all()
    if digits:
        assert (verdicts[1510:] == READ).all()


def test_honest_signals_are_hardly_touched() -> None:
    rng = np.random.default_rng(9)
    signals = {
        "normal": rng.normal(size=50_000),
        "lognormal": np.exp(rng.normal(size=50_000)),
        "walk": np.cumsum(rng.normal(size=50_000)),
        "price": np.exp(0.01 * np.cumsum(rng.standard_t(4, size=50_000))),
        "returns": rng.standard_t(4, size=50_000),
        "rain": np.round(np.where(rng.random(50_000) < 0.05, rng.gamma(0.4, 5.0, 50_000), 0.0), 1),
        "counts": rng.negative_binomial(0.5, 0.02, 50_000).astype(float),
        "switch": (np.arange(50_000) // 700 % 2).astype(float),
        "rare flag": (rng.random(50_000) < 0.002).astype(float),
        "counter": np.cumsum(rng.gamma(0.5, 3.0, 50_000)),
        "sawtooth": np.arange(50_000.0) % 977,
        "growth": 1.001 ** np.arange(50_000.0),
        "constant": np.full(50_000, 3.0),
    }
    for name, x in signals.items():
        guarded, verdicts = judged(x)
        assert np.count_nonzero(verdicts) <= 10, name
        with np.errstate(all="ignore"):
            lost = np.nansum((guarded - x) ** 2) / max(np.sum((x - x.mean()) ** 2), 1e-300)
        assert lost < 0.05, name


def test_a_signal_that_begins_late_needs_no_warm_up() -> None:
    x = noise(10)
    x[:700] = np.nan
    x[1200] += 1000.0
    guarded, verdicts = judged(x)
    assert verdicts[1200] == PULLED_IN
    assert np.count_nonzero(verdicts) <= 4
    assert np.isnan(guarded[:700]).all()


def test_exempt_signals_are_left_as_they_are() -> None:
    x = np.stack([noise(11), noise(11)], axis=1)
    x[900] = 1e6
    guard = ReadingGuard(2, exempt=[1]).warm_up(x[:WARM])
    assert guard.judge(x)[1][900].tolist() == [PULLED_IN, READ]
    assert guard.pulled_in.tolist() == [1, 0]
    assert guard.counts(["a", "b"]) == {"a": {"pulled_in": 1, "missing": 0}}


def troubled() -> Array:
    """Three signals with all that there is to judge."""
    x = np.stack([noise(seed) for seed in range(3)], axis=1)
    rng = np.random.default_rng(12)
    x[rng.random(x.shape) < 0.01] = np.nan
    x[rng.random(x.shape) < 0.01] = -999.0
    x[rng.random(x.shape) < 0.005] = 300.0
    x[rng.random(x.shape) < 0.002] += 1e4
    x[1000:1040, 0] = 0.0
    x[1500:, 1] += 50.0
    return x


@pytest.mark.parametrize("rows", [1, 7, 1000])
def test_bits_do_not_depend_on_blocks_or_on_saving_between_them(rows: int) -> None:
    x = troubled()
    guard = ReadingGuard(3).warm_up(x[:WARM])
    expected, verdicts = guard.judge(x)
    assert set(np.unique(verdicts)) == {READ, PULLED_IN, MISSING}
    again = ReadingGuard(3).warm_up(x[:WARM])
    pieces = []
    for begin in range(0, T, rows):
        before = again.copy()
        pieces.append(again.mark(Block(begin, x[begin : begin + rows], None, {})))
        if begin % 5 == 0:  # what was judged by a copy is as if it had not been
            again = ReadingGuard.restore(json.loads(json.dumps(before.state(), allow_nan=False)))
            again.mark(pieces[-1])
    assert np.concatenate([block.to_learn for block in pieces]).tobytes() == expected.tobytes()
    assert np.concatenate([block.verdicts for block in pieces]).tobytes() == verdicts.tobytes()
    assert again.state() == guard.state()
    assert guard.pulled_in.tolist() == (verdicts == PULLED_IN).sum(axis=0).tolist()
    assert guard.missing.tolist() == (verdicts == MISSING).sum(axis=0).tolist()


def test_a_state_that_does_not_fit_is_refused() -> None:
    with pytest.raises(ValueError, match="does not fit"):
        ReadingGuard.restore([[1.0, 2.0]])


def test_interpreted_it_is_the_same() -> None:
    code = "from tests.tables.test_guard import digest; print(digest())"
    environment = os.environ | {"NUMBA_DISABLE_JIT": "1"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=True)
    assert done.stdout.strip() == digest()


def digest() -> str:
    """Of what a guard makes of readings with faults."""
    x = troubled()
    guarded, verdicts = ReadingGuard(3).warm_up(x[:WARM]).judge(x)
    return hashlib.sha256(guarded.tobytes() + verdicts.tobytes()).hexdigest()


def test_a_block_that_was_not_judged_is_learned_from_as_it_is() -> None:
    block = Block(0, np.array([[1.0], [1e6]]), None, {})
    assert (block.guarded, block.verdicts) == (None, None)
    assert block.to_learn is block.values
