"""Alarms: a plain version, any cut, hostile readings; and false alarms are as rare as stated."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

import emphatic
from emphatic.nexting.runs.alarms import KEPT, WHY, AlarmList, Alarms

Array = NDArray[np.float64]
GAMMAS = np.array([0.5, 0.9, 0.98])


def ratio(a: float, b: float) -> float:
    return min(a / b, 1e9) if b > 0 else 1e9 * (a > 0)


class Tail:
    """The tail of one statistic's logarithm, and the rate at which a value is reached."""

    def __init__(self, begin: float, least: float) -> None:
        self.begin, self.least = begin, least
        self.mean = self.square = 0.5
        self.theta, self.above = 1.0, 0

    def score(self, value: float, n: int, J: int) -> float:
        y = value - self.begin
        if y <= 0:
            rate = (0.02 * self.theta) ** math.exp(max(y / self.mean, -50))
        else:
            k = min(n, 1e5) * 0.02 * self.theta
            minus = min(1 - 0.5 / (1 - self.mean**2 / self.square), 0) * k / (k + 100)
            xi, sigma = max(self.mean + minus, -0.1), self.mean * (1 - minus)
            inside = 1 + xi * math.expm1(min(y, 50)) / sigma
            rate = 0.02 * self.theta * inside ** (-1 / xi) if inside > 1e-9 else 1e-99
        return min(max(-math.log10(1.5 * J * max(rate, 1e-90)), 0), 16)

    def learn(self, value: float, weight: float, n: int) -> None:
        y, k = value - self.begin, min(n, 1e5) * 0.02
        weight *= 0.05 if self.above >= 60 else 1.0
        self.begin += weight * self.mean * ((y > 0) - 0.02) / (1 + k / 4)
        if y > 0:
            w, mean = weight / (1 + k), self.mean
            self.mean = max(mean + w * (min(y, 4 * mean) / (1 - math.exp(-4)) - mean), self.least)
            square = min(y, 6 * mean) ** 2 / (1 - 7 * math.exp(-6))
            self.square = max(self.square + w * (square - self.square), 1.05 * self.mean**2)
            self.theta = max(self.theta + w * ((not self.above) - self.theta), 1e-3)
        self.above = self.above + 1 if y > 0 else 0


def plain(p: Array, x: Array, gap: NDArray[np.bool_], rate: float) -> tuple[Array, list[str | None]]:
    """One signal's scores and why there are alarms, from the description: p (T, H)."""
    T, H = p.shape
    J, limit = H + 4, -math.log10(rate)
    score = np.zeros(T)
    why: list[str | None] = [None] * T
    rows, n, run, missing, last = 0, 0, 0, 0, math.nan
    usual = late = over = under = 0.0
    means, sizes = np.zeros(H), np.zeros(H)
    tails = [Tail(math.log(3), 0.12) for _ in range(J)]
    tails[1], absence = Tail(0.0, 0.25), Tail(0.0, 0.25)
    for t in range(T):
        if gap[t]:
            run, missing, last = 0, 0, math.nan
        missing = 0 if np.isfinite(x[t]) else missing + 1
        if missing and rows >= 200:
            score[t] = absence.score(math.log(1 + missing), rows, J)
            why[t] = "missing" if score[t] > limit else None
        if rows:
            absence.learn(math.log(1 + missing), 0.05 if why[t] else 1.0, rows)
        judged = t and not gap[t] and np.isfinite([x[t], *p[t], *p[t - 1]]).all()
        if judged:
            rows += 1
            if x[t] != last and run > 0.9 * rows:
                n, over, under = 0, 0.0, 0.0
                tails = [tail if i == 1 else Tail(math.log(3), 0.12) for i, tail in enumerate(tails)]
            run = run + 1 if x[t] == last else 0
            repeats = math.log(1 + run)
            score[t] = tails[1].score(repeats, rows, J) if rows >= 200 else 0
            why[t] = "stuck" if score[t] > limit else None
            weight = 0.05 if why[t] else 1.0
        if judged and (n or not (x[t] == last or math.isnan(last))):  # it has changed
            n += 1
            a = max(2 / (n + 1), 1e-5)
            e = abs(x[t] - p[t - 1, 0])
            if n == 1:
                usual = late = e
            both = (usual + late) / 2
            s = [ratio(e, both) + 0.01]
            sign = 1 if x[t] > p[t - 1, 0] else -1
            clear = sign * min(ratio(e, usual), 4)
            over, under = max(0.99 * over + clear - 0.5, 0), max(0.99 * under - clear - 0.5, 0)
            e = min(e, 20 * both) if both > 0 else e
            near = p[t - 1, 0] + sign * e
            usual, late = usual + a * (e - usual), late + max(a, 1 / 30) * (e - late)
            for h, g in enumerate(GAMMAS[:H]):
                d = (1 - g) * near + g * p[t, h] - p[t - 1, h]
                means[h] += max(1 / n, min(1 - g, 0.25)) * (d - means[h])
                e = abs(means[h])
                sizes[h] = e if n == 1 else sizes[h]
                s.append(ratio(e, sizes[h]) + 0.01)
                sizes[h] += a * ((min(e, 20 * sizes[h]) if sizes[h] > 0 else e) - sizes[h])
            s += [ratio(late, usual) + 0.01, max(over, under) + 0.01]
            of_errors = [tails[0], *tails[2:]]
            scores = [tail.score(math.log(value), n, J) for tail, value in zip(of_errors, s, strict=True)]
            side = "too high" if sign > 0 else "too low"
            if n >= 200 and max(scores) >= score[t]:
                score[t] = max(scores)
                words = [side, *["drifting"] * H, side, "drifting"]
                reason = side if scores[0] > limit else words[int(np.argmax(scores))]
                why[t] = reason if score[t] > limit else None
            elif n == 1 and rows >= 200:
                score[t], why[t] = 16.0, side
            weight = 0.05 if why[t] else 1.0
            for tail, value in zip(of_errors, s, strict=True):
                tail.learn(math.log(value), weight, n)
        if judged:
            tails[1].learn(repeats, weight, rows)
        if np.isfinite(x[t]):
            last = x[t]
    return score, why


@pytest.mark.parametrize("size", [30.0, 1e3, 1e6])
def test_one_glitch_is_no_drift(size: float) -> None:
    """A single reading, however far off, says "too high", and "drifting" for a few rows at most."""
    p, x, gap = stream(3_000)
    x = np.where(np.isfinite(x), x, 0.0)
    x[2_700] += size
    _, why = Alarms([0, 0, 0], GAMMAS, 1e-4)(p, x, gap)
    reasons = words(why[2_700:, 0])
    assert reasons[0] == "too high"
    assert sum(reason is not None for reason in reasons[1:]) <= 5


def words(why: NDArray[np.int8]) -> list[str | None]:
    """Reasons as words."""
    return [WHY[reason - 1] if reason else None for reason in why.tolist()]


def stream(T: int, seed: int = 0) -> tuple[Array, Array, NDArray[np.bool_]]:
    """Predictions (T, 3), readings (T, 1) with all that a stream may have, and gaps (T,)."""
    rng = np.random.default_rng(seed)
    x = np.zeros(T)
    for t in range(1, T):
        x[t] = 0.9 * x[t - 1] + rng.normal()
    p = np.stack([(1 - g) * 0.9 * x / (1 - 0.9 * g) for g in GAMMAS], axis=1)
    x[T // 2 : T // 2 + 80] = x[T // 2]
    x[T // 2 + 130] += 15.0
    x[T // 3 : T // 3 + 80] = np.nan
    x[7] = np.inf
    p[T // 4] = np.nan
    gap = np.zeros(T, bool)
    gap[[0, 2 * T // 3, T - 5]] = True
    return p, x[:, None], gap


def test_alarms_are_what_is_described() -> None:
    p, x, gap = stream(1_500)
    with np.errstate(invalid="ignore"):
        want = plain(p, np.where(np.isfinite(x[:, 0]), x[:, 0], np.nan), gap, 1e-2)
    score, why = Alarms([0, 0, 0], GAMMAS, 1e-2)(p, x, gap)
    np.testing.assert_allclose(score[:, 0], want[0], atol=2e-3)
    assert words(why[:, 0]) == want[1]
    assert {"too high", "stuck", "missing"} <= {*want[1]}


def test_a_state_that_does_not_fit_is_refused() -> None:
    alarms = Alarms([0], np.array([0.5]), 1e-3)
    for wrong in (
        {},
        alarms.arrays() | {"tails": np.zeros((1, 2, 5))},
        alarms.arrays() | {"errors": np.full((1, 1, 4), np.nan)},
    ):
        with pytest.raises(ValueError, match="of the alarms does not fit"):
            alarms.restore(wrong)


def stationary(name: str, T: int) -> tuple[Array, Array]:
    """Readings (T, 1), and the predictions (T, 3) of one who knows the process."""
    rng = np.random.default_rng(3)
    p = np.zeros((T, 3))
    if name == "autoregression":
        x = np.zeros(T)
        for t, noise in enumerate(rng.normal(size=T - 1)):
            x[t + 1] = 0.95 * x[t] + noise
        p = np.stack([(1 - g) * 0.95 * x / (1 - 0.95 * g) for g in GAMMAS], axis=1)
    elif name == "counts":
        x = rng.poisson(0.3, size=T).astype(float)
        p += 0.3
    else:
        draws = {"normal": rng.normal(size=T), "Laplace": rng.laplace(size=T), "Student": rng.standard_t(3, size=T)}
        x = draws[name]
    return x[:, None], p


@pytest.mark.parametrize("name", ["normal", "Laplace", "Student", "autoregression", "counts"])
def test_false_alarms_are_about_as_rare_as_stated(name: str) -> None:
    """With a rate of 1e-3: 200 alarms are stated, and their number is uncertain by less than a quarter."""
    T = 200_000
    x, p = stationary(name, T)
    _, why = Alarms([0, 0, 0], GAMMAS, 1e-3)(p, x, np.zeros(T, bool))
    alarm = why > 0
    begun = np.sum(alarm[1:] & ~alarm[:-1])
    assert 0.25 <= begun / (T * 1e-3) <= 1.15
    _, why = Alarms([0, 0, 0], GAMMAS, 1e-4)(p, x, np.zeros(T, bool))
    alarm = why > 0
    assert np.sum(alarm[1:] & ~alarm[:-1]) <= 1.25 * T * 1e-4


def test_faults_are_found() -> None:
    x, p = stationary("autoregression", 20_000)
    clean = Alarms([0, 0, 0], GAMMAS, 1e-4)(p, x, np.zeros(20_000, bool))[1]
    rng = np.random.default_rng(1)
    for reason, rows, value in (
        ("too high", slice(15_000, 15_001), 20.0),
        ("too low", slice(15_000, 15_001), -20.0),
        ("stuck", slice(15_000, 15_060), x[15_000]),
        ("too high", slice(15_000, 15_300), 15.0),
        ("drifting", slice(15_000, 15_300), x[15_000:15_300] + np.linspace(0, 2.5, 300)[:, None]),
        ("too high", slice(15_000, 15_100), x[15_000:15_100] + rng.normal(0, 4.0, (100, 1))),  # noise
        ("missing", slice(15_000, 15_060), np.nan),
    ):
        faulty = x.copy()
        faulty[rows] = value
        why = Alarms([0, 0, 0], GAMMAS, 1e-4)(p, faulty, np.zeros(20_000, bool))[1]
        assert reason in words(why[rows, 0])
        assert (why[:15_000] == clean[:15_000]).all()


def test_a_signal_that_never_changed_and_does() -> None:
    x = np.full((1_000, 1), 3.0)
    x[700:] = 4.0
    score, alarm = Alarms([0], np.array([0.5]), 1e-4)(x.copy(), x, np.zeros(1_000, bool))
    assert alarm[700, 0] > 0
    assert not alarm[:700].any()
    assert (score[:700] == 0.0).all() or score[:700].max() < 4.0


@pytest.mark.parametrize("blip", [False, True])
def test_after_the_first_change_of_a_signal_its_errors_are_learned_anew(blip: bool) -> None:
    """One row in alarm, where there were hundreds; 200 rows later alarms are those of a signal that begins there."""
    p, x, gap = stream(3_000)
    first = 2_000
    x[:, 0], gap[:] = np.where(np.isfinite(x[:, 0]), x[:, 0], 0.0), False
    x[2_800] += 30.0
    x[:first], p[:first], p[np.isnan(p)] = x[first - 1, 0], x[first - 1, 0], 0.0
    x[5] += 3.0 if blip else 0.0
    scores, why = Alarms([0, 0, 0], GAMMAS, 1e-4)(p, x, gap)
    np.testing.assert_allclose(scores[:2_800, 0], plain(p, x[:, 0], gap, 1e-4)[0][:2_800], atol=2e-3)
    assert np.flatnonzero(why[: first + 700]).tolist() == [first]
    assert (scores[first, 0], why[2_800, 0] > 0) == (16.0, True)
    _, reasons = Alarms([0, 0, 0], GAMMAS, 1e-4)(p[first - 1 :], x[first - 1 :], gap[first - 1 :])
    assert (reasons[250:] == why[first + 249 :]).all()
    saved = Alarms([0, 0, 0], GAMMAS, 1e-4)
    saved(p[:first], x[:first], gap[:first])
    again = Alarms([0, 0, 0], GAMMAS, 1e-4)
    again.restore(saved.arrays())
    assert (again(p[first:], x[first:], gap[first:])[0] == scores[first:]).all()


def test_hostile_readings_leave_all_numbers_finite() -> None:
    rng = np.random.default_rng(0)
    x = rng.choice([0.0, 1e300, -1e300, np.nan, np.inf, 5e-324, 1e99, -1e99], size=(3_000, 2))
    p = rng.choice([0.0, 1e99, -1e99, np.nan, 1e-310], size=(3_000, 4))
    alarms = Alarms([0, 1, 0, 1], np.array([0.0, 0.5, 0.9, 0.999]), 1e-4)
    score, _ = alarms(p, x, rng.random(3_000) < 0.01)
    assert np.isfinite(score).all()
    assert all(np.isfinite(array).all() for array in alarms.arrays().values())


def test_signals_do_not_disturb_each_other() -> None:
    p, x, gap = stream(800)
    q, y, _ = stream(800, seed=1)
    alone = Alarms([0, 0, 0], GAMMAS, 1e-3)(p, x, gap)
    both = Alarms([1, 0, 1, 0, 1, 0], np.repeat(GAMMAS, 2), 1e-3)
    mixed = np.stack([q, p], axis=2).reshape(800, 6)
    score, alarm = both(mixed, np.concatenate([x, y], axis=1), gap)
    assert both.places.tolist() == [1, 0]
    assert (score[:, 1:] == alone[0]).all()
    assert (alarm[:, 1:] == alone[1]).all()


def log(T: int = 3_000) -> dict[str, Array]:
    rng, t = np.random.default_rng(0), np.arange(T)
    x, y = np.sin(t / 20) + 0.05 * rng.normal(size=T), np.cos(t / 31) + 0.05 * rng.normal(size=T)
    x[2_000] += 4.0
    y[2_400:2_440] = y[2_400]
    return {"x": x, "y": y}


def test_a_run_writes_alarms_and_counts_them(tmp_path: Path) -> None:
    result = emphatic.nexting.run(log(), horizons=[2, 20], out=tmp_path)
    found = {name: result.predictions.column(name).to_numpy() for name in ("x.anomaly", "x.alarm", "y.alarm")}
    assert found["x.alarm"].dtype == bool
    assert found["x.alarm"][2_000]
    assert found["x.anomaly"][2_000] > 4.0
    assert found["y.alarm"][2_400:2_440].any()
    assert ((found["x.anomaly"] > -math.log10(2.5e-4)) == found["x.alarm"]).all()
    why = result.predictions.column("x.why").to_pylist()
    assert why[2_000] == "too high"
    assert "stuck" in result.predictions.column("y.why").to_pylist()[2_400:2_440]
    assert [reason is not None for reason in why] == found["x.alarm"].tolist()
    summary = json.loads((tmp_path / "summary.json").read_text("utf-8"))
    for row in summary[0]["signals"]:
        alarm = result.predictions.column(f"{row['signal']}.alarm").to_numpy()
        assert row["alarm_rows"] == alarm.sum()
        assert row["alarms"] == np.sum(alarm & ~np.concatenate([[False], alarm[:-1]]))
    page = (tmp_path / "report.html").read_text("utf-8")
    assert "one false alarm per 4,000 rows" in page
    assert "too high" in page
    assert "stuck" in page
    assert "row 2,000" in page


def test_the_rate_is_a_setting() -> None:
    few, many = (emphatic.nexting.run(log(), horizons=[2], false_alarm_rate=rate) for rate in (1e-4, 0.05))
    assert (few.predictions.column("x.anomaly").to_numpy()[:1_900] > 0.0).any()
    assert few.verdict[0]["alarm_rows"] < many.verdict[0]["alarm_rows"]
    for rate in (0, 1, -0.1, 1e-20, True, "often"):
        with pytest.raises(ValueError, match="'false_alarm_rate' must be a number of alarms per row"):
            emphatic.nexting.run(log(), horizons=[2], false_alarm_rate=rate)  # type: ignore[arg-type]


def test_the_list_keeps_the_highest_and_counts_all() -> None:
    T = 1_000
    score, alarm = np.zeros((T, 1)), np.zeros((T, 1), np.int8)
    alarm[::7] = 2
    score[::7, 0] = 5.0 + np.arange(len(score[::7])) / 100
    alarms = AlarmList(["x"])
    for begin in range(0, T, 37):
        some = slice(begin, begin + 37)
        alarms.add(begin, score[some], alarm[some], None)
    assert alarms.counts() == {"x": {"alarms": 143, "alarm_rows": 143}}
    kept = alarms.highest()
    assert [one["row"] for one in kept] == (7 * np.arange(143 - KEPT, 143)).tolist()


def test_an_alarm_that_goes_on_in_the_next_block_is_one() -> None:
    alarms = AlarmList(["x"])
    for begin in (0, 10):
        why = np.full((10, 1), 1 if begin else 3, np.int8)
        alarms.add(begin, np.full((10, 1), 5.0 + begin), why, np.arange(10.0) + begin)
    assert alarms.counts() == {"x": {"alarms": 1, "alarm_rows": 20}}
    alarm = {"signal": "x", "row": 0, "time": 0.0, "rows": 20, "anomaly": 15.0, "why": "too high"}
    assert alarms.highest() == [alarm]
