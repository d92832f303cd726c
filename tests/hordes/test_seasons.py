"""Seasons and drift: against their formulas written out, in any blocks, saved, joined, over gaps, and in a Horde."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from emphatic import GVF, Horde
from emphatic import features as f
from emphatic.hordes import season_kernels, seasons
from emphatic.hordes.seasons import ANSWERS, STRENGTHS, Seasons

Array = NDArray[np.float64]
GAMMA = np.array([0.5, 0.9, 0.97, 0.5, 0.9])
SIGNAL = np.array([0, 0, 0, 1, 1])
HOUR = 3600.0


class Rows:
    """T hourly rows of a signal with a day and a trend, and of a walk, with missing readings and a gap of five rows."""

    def __init__(self, T: int = 900, gap: bool = True) -> None:
        rng = np.random.default_rng(4)
        hours = np.arange(T + 5) if gap else np.arange(T)
        if gap:
            hours = np.delete(hours, slice(min(500, T // 2), min(500, T // 2) + 5))
        day = 5.0 * np.sin(2 * np.pi * hours / 24) + np.where(hours % 24 == 7, 4.0, 0.0)
        signals = np.stack([20.0 + day + 0.01 * hours + rng.normal(size=T), rng.normal(size=T).cumsum()], axis=1)
        signals[rng.random((T, 2)) < 0.03] = np.nan
        self.x = signals[:, SIGNAL]
        self.seconds: Array = np.asarray(HOUR * (hours + 30_000.0), np.float64)
        self.follows = np.diff(self.seconds, prepend=-1e9) < 1.5 * HOUR

    def seasons(self) -> Seasons:
        return Seasons(GAMMA, SIGNAL, HOUR)

    def run(self, *cuts: int, state: Seasons | None = None, begin: int = 0, end: int | None = None) -> Array:
        state = state or self.seasons()
        edges = [begin, *cuts, len(self.x) if end is None else end]
        blocks = [state(self.x[a:b], self.follows[a:b], self.seconds[a:b])[0] for a, b in pairwise(edges)]
        return np.concatenate(blocks)


def test_seasons_answer_as_one_period_ago_and_with_its_rise() -> None:
    rows = Rows(600, gap=False)
    rows.x = np.nan_to_num(rows.x, nan=20.0)
    state = rows.seasons()
    out = rows.run(state=state)
    (period,), none = state.periods
    assert period.rows == 24
    assert 0.5 < period.strength < 1.0
    assert none == []
    x, P = rows.x[:, 0], 24
    for q, gamma in enumerate(GAMMA[:3]):
        weights = (1 - gamma) * gamma ** np.arange(P) / (1 - gamma**P)
        for t in (450, 517, 599):
            path = weights @ x[t - P + 1 : t + 1]
            assert out[t, q, 1] == pytest.approx(path, rel=1e-12)
            rise = 0.0
            for s in range(P, t + 1):
                rise += (x[s] - x[s - P] - rise) / min(2 * P, s - P + 1)
            assert out[t, q, 0] == pytest.approx(path + rise / (1 - gamma**P), rel=1e-12)
    assert np.isnan(out[:, 3:, :2]).all()
    assert np.isfinite(out[:, :, 2]).all()


@pytest.mark.parametrize("gamma", [0.0, 1e-9, 0.01, 0.3])
def test_seasons_answer_at_the_shortest_horizons(gamma: float) -> None:
    """The sum over a path is not carried on by a division by γ where that would cost its digits."""
    rows, P = Rows(300, gap=False), 24
    x = np.nan_to_num(rows.x[:, :1], nan=20.0)
    state = Seasons(np.array([gamma]), np.zeros(1, np.int64), None)
    out, _ = state(x, rows.follows)
    assert [period.rows for period in state.periods[0]] == [P]
    weights = (1 - gamma) * gamma ** np.arange(P) / (1 - gamma**P)
    paths = [weights @ x[t - P + 1 : t + 1, 0] for t in range(250, 300)]
    np.testing.assert_allclose(out[250:, 0, 1], paths, rtol=1e-12)
    assert np.isfinite(out[250:]).all()


@pytest.mark.parametrize("question", [0, 1, 2, 3, 4])
def test_drift_is_the_ridge_of_the_sums_written_out(question: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(seasons, "find_periods", lambda x, before: [])
    rows, gamma, s = Rows(140), GAMMA[question], 0
    solved: list[int] = []
    while s < 140:  # the rows of each solution
        s = 32 if not solved else solved[-1] + max(8, int(np.ceil(0.15 * solved[-1])))
        solved.append(s)
    out = rows.run()
    x, known = rows.x[:, question].copy(), np.isfinite(rows.x[:, question])
    for t in np.flatnonzero(~known).tolist():
        x[t] = x[t - 1] if t else 0.0
    at = np.arange(140) + 5 * (np.arange(140) >= 70)  # the places of the rows in time: five are skipped
    held = np.insert(x, 70, np.full(5, x[69]))
    traces, F, squares = np.full(5, x[0]), np.zeros((140, 8)), np.zeros(8)
    for t, n in enumerate(at.tolist()):
        traces += (x[t] - traces) / np.minimum([4, 16, 64, 256, 1024], n + 1)
        F[t] = [1.0, *(x[t] - traces), *(x[t] - held[max(n - lag, 0)] for lag in (1, 2))]
        raw = F[t] ** 2
        squares = np.where(squares == 0.0, raw, squares)
        F[t, 1:] = np.clip(F[t], -5 * np.sqrt(squares), 5 * np.sqrt(squares))[1:]
        squares += (raw - squares) / (n + 1) * known[t]
    cells = np.eye(168)[((rows.seconds - 4 * 86400) // HOUR % 168).astype(int)]
    v = out[:, question, 2 + len(STRENGTHS) // 2]
    last = max(n for n in solved if n <= known.sum() - 2)
    m = int(np.flatnonzero(np.cumsum(known) == last)[0]) + 1
    G = np.zeros(m)
    G[m - 1] = v[m - 1]
    for t in range(m - 2, -1, -1):
        reads = known[t + 1] and rows.follows[t + 1]
        G[t] = (1 - gamma) * x[t + 1] + gamma * G[t + 1] if reads else v[t]
    w = (at[:m] + 1.0) * known[:m]
    Phi = np.hstack([F[:m], cells[:m]])
    A, b = (Phi * w[:, None]).T @ Phi, (Phi * w[:, None]).T @ (G - x[:m])
    after = m + int(np.flatnonzero(known[m:])[0])
    for k, strength in enumerate(STRENGTHS):
        share = strength + 10.0 / known[:m].sum()
        ridge = share * np.concatenate([A.diagonal()[:8], np.full(168, A[0, 0] / 168)])
        theta = np.linalg.solve(A + np.diag(ridge), b)
        expected = x[after] + np.concatenate([F[after], cells[after]]) @ theta
        assert out[after, question, 2 + k] == pytest.approx(expected, rel=1e-6)


def test_bits_depend_neither_on_blocks_nor_on_what_comes_later() -> None:
    rows = Rows()
    whole = rows.run()
    for cuts in ([1, 2, 39, 40, 41, 500, 501], list(range(1, 900)), [119, 120, 333]):
        np.testing.assert_array_equal(rows.run(*cuts), whole)
    np.testing.assert_array_equal(rows.run(end=533), whole[:533])
    rows.x[700:] *= 3.0
    np.testing.assert_array_equal(rows.run()[:700], whole[:700])


def test_the_state_goes_on_from_where_it_was_saved() -> None:
    rows = Rows()
    whole = rows.run()
    for at in (30, 100, 502, 777):
        state, again = rows.seasons(), rows.seasons()
        rows.run(end=at, state=state)
        again.restore({name: array.copy() for name, array in state.arrays().items()})
        np.testing.assert_array_equal(rows.run(state=again, begin=at), whole[at:])
    arrays = state.arrays()
    for name, array in arrays.items():
        with pytest.raises(ValueError, match="do"):
            rows.seasons().restore(arrays | {name: array[:-1]})
    counts = arrays["counts"]
    misfits = {"period": arrays["period"] + 10_000, "codes": arrays["codes"] - 400, "counts": counts - 1e6}
    for bad in [{name: array} for name, array in misfits.items()] + [{"counts": counts + 1e300}]:
        with pytest.raises(ValueError, match="do not fit"):
            rows.seasons().restore(arrays | bad)


@pytest.mark.parametrize("shares", [[[0, 1, 2], [3, 4]], [[0, 1], [2, 3, 4]], [[0], [1], [2, 3], [4]]])
def test_seasons_of_some_questions_join_to_those_of_all(shares: list[list[int]]) -> None:
    rows, shards = Rows(), []
    whole = rows.seasons()
    rows.run(end=600, state=whole)
    for share in shares:
        signal = SIGNAL[share] - SIGNAL[share].min()
        shards.append(Seasons(GAMMA[share], signal, HOUR))
        shards[-1](rows.x[:600, share], rows.follows[:600], rows.seconds[:600])
    joined = rows.seasons()
    joined.join(shards)
    for name, array in whole.arrays().items():
        np.testing.assert_array_equal(joined.arrays()[name], array)


def test_rows_that_are_missing_in_time_keep_the_phase() -> None:
    rows = Rows(700)
    with_times, without = rows.seasons(), rows.seasons()
    out = rows.run(state=with_times)
    shifted, _ = without(rows.x, rows.follows)
    after = slice(350, 374)  # the gap, of five hours, is before row 350
    phase = 5.0 * np.sin(2 * np.pi * (rows.seconds[after] / HOUR + 1) / 24)
    errors = [np.nanmean((season[after, 0, 1] - 23.5 - phase) ** 2) for season in (out, shifted)]
    assert errors[0] < 0.3 * errors[1]
    assert np.isfinite(out[:, :, 2]).all()


def test_a_season_goes_on_where_readings_are_missing() -> None:
    t, P = np.arange(400), 12
    x = np.repeat((10.0 + 5.0 * np.sin(2 * np.pi * t / P) + 8.0 * (t % P == 3) + (t >= 250))[:, None], 3, axis=1)
    gamma, follows = np.array([0.5, 0.8, 0.9]), t > 0
    readings, outage = x.copy(), slice(303, 303 + 5 * P)  # from the peak on, and a level that rose before
    readings[outage] = np.nan
    whole, _ = Seasons(gamma, np.zeros(3, np.int64), None)(x, follows)
    out, _ = Seasons(gamma, np.zeros(3, np.int64), None)(readings, follows)
    np.testing.assert_allclose(out[outage, :, :2], whole[outage, :, :2], atol=1e-6)
    # A level that rose in the last period before does not rise on in each period of the outage.
    readings[290:303] += 3.0
    out, _ = Seasons(gamma, np.zeros(3, np.int64), None)(readings, follows)
    assert np.abs(out[outage, :, 1] - whole[outage, :, 1]).max() < 6.5


def test_the_first_reading_stands_in_for_the_rows_before_it() -> None:
    """A jump from 0 to 1,000 would be in the traces for a thousand rows."""
    rows = Rows(200, gap=False)
    rows.x = 1000.0 + np.where(np.arange(200)[:, None] < 30, np.nan, np.nan_to_num(rows.x))
    state = rows.seasons()
    rows.run(13, 30, 31, state=state)
    assert (state.ring[:, :31] == rows.x[30, [0, 3]][:, None]).all()
    assert not state.flags[:, :30].any()
    assert (np.abs(state.signals[:, season_kernels.TRACE :] - 1000.0) < 50.0).all()


def test_a_new_season_is_marked_at_its_first_row_however_rows_are_cut() -> None:
    rows = Rows()
    marks = []
    for cuts in ([], list(range(1, 900))):
        state = rows.seasons()
        fresh = [state(rows.x[a:b], rows.follows[a:b], rows.seconds[a:b])[1] for a, b in pairwise([0, *cuts, 900])]
        marks.append(np.concatenate(fresh))
    np.testing.assert_array_equal(marks[0], marks[1])
    assert marks[0][:, :3].any()
    assert not marks[0][:40].any()
    assert (marks[0][:, 0] == marks[0][:, 2]).all()  # the questions of a signal have the same seasons


def test_a_level_added_to_all_readings_is_added_to_the_answers() -> None:
    rows = Rows(400, gap=False)
    rows.x[0] = 0.0
    out = rows.run()
    rows.x += 1000.0
    np.testing.assert_allclose(rows.run()[1:], out[1:] + 1000.0, rtol=1e-6)


def test_without_learning_only_readings_are_remembered() -> None:
    rows, state = Rows(), Rows().seasons()
    rows.run(end=600, state=state)
    learned = ("A", "path_products", "b", "cross", "path_cross", "weights", "theta", "effect")
    before = {name: state.arrays()[name].copy() for name in learned}
    state(rows.x[600:640], np.zeros(40, bool), rows.seconds[600:640], learn=False)
    for name, array in before.items():
        np.testing.assert_array_equal(state.arrays()[name], array)
    assert state.counts[0] == 645.0


@pytest.mark.parametrize("value", [np.nan, np.inf, 1e99, 1e300, -1e300])
def test_hostile_readings_leave_other_signals_alone(value: float) -> None:
    rows = Rows()
    expected = rows.run()[:, 3:]
    rows.x[450:460, :3] = value
    with np.errstate(all="ignore"):
        out = rows.run()
    np.testing.assert_array_equal(out[:, 3:], expected)
    assert np.isfinite(out[:, :, 2]).all()


def test_months_with_a_season_and_a_rise_are_learned_from_a_hundred_rows() -> None:
    rng = np.random.default_rng(0)
    t = np.arange(144)
    x = (100.0 + 2.0 * t) * (1.0 + 0.2 * np.sin(2 * np.pi * t / 12)) + 3.0 * rng.normal(size=144)
    gamma = np.array([0.5, 0.875])
    state = Seasons(gamma, np.zeros(2, int), 30.4 * 86400.0)
    out, _ = state(np.repeat(x[:, None], 2, axis=1), np.arange(144) > 0, np.asarray(30.4 * 86400.0 * t, np.float64))
    for q, (g, least) in enumerate(zip(gamma, (0.9, 0.5), strict=True)):
        G = np.array([(1 - g) * g ** np.arange(143 - s) @ x[s + 1 :] / (1 - g ** (143 - s)) for s in range(110)])
        scored = slice(72, 110)
        for answer in (0, 2):
            error = np.mean((out[scored, q, answer] - G[scored]) ** 2)
            assert 1 - error / np.var(G[scored]) > least


# ---------------------------------------------------------------------- in a Horde


def horde() -> Horde:
    questions = [GVF("day", horizon=2), GVF("day", horizon=12), GVF("walk", horizon=3)]
    return Horde(
        questions,
        f.Features([f.Bias(), f.SoftBins("*", bins=5)]),
        rates=(0.1, 0.3),
        least_squares=True,
        engine="sparse",
    )


def log(T: int = 500) -> dict[str, Array]:
    rows = Rows(T, gap=False)
    return {"day": rows.x[:, 0], "walk": rows.x[:, 3]}


def test_a_horde_has_the_answers_and_goes_on_bit_for_bit_when_saved(tmp_path: Path) -> None:
    table, path = log(), tmp_path / "model.safetensors"
    first, last = ({name: column[rows] for name, column in table.items()} for rows in (slice(0, 333), slice(333, None)))
    many, saved, single = (horde().warm_up(table, 100) for _ in range(3))
    whole = many.observe_many(table)
    assert set(ANSWERS) < set(many.answers)
    assert many.groups[0].seasons is not None
    assert [[p.rows for p in found] for found in many.groups[0].seasons.periods] == [[24], []]
    saved.observe_many(first)
    saved.save(path)
    np.testing.assert_array_equal(Horde.load(path).observe_many(last), whole[333:])
    for t in range(200):
        row = single.observe({name: column[t] for name, column in table.items()})
        np.testing.assert_array_equal(row, whole[t])
        for name in ANSWERS:
            np.testing.assert_array_equal(single.answers[name][0], many.answers[name][t])
    for name, cautious in zip(ANSWERS[:2], ("ridge 3000", "ridge 300"), strict=True):  # a walk has no season
        np.testing.assert_array_equal(many.answers[name][:, 2], many.answers[cautious][:, 2])


def test_the_names_of_the_answers_are_those_of_the_kernel() -> None:
    assert len(ANSWERS) == season_kernels.SEASONS + len(STRENGTHS)
    state = Seasons(GAMMA, SIGNAL, None)
    assert state.arrays()["theta"].shape[-1] == season_kernels.FEATURES
    assert state.signals.shape[1] == season_kernels.TRACE + len(season_kernels.TRACES)
    assert seasons._STALE == season_kernels.STALE
    assert seasons._SEASONS == season_kernels.SEASONS
    assert seasons._SHARED == season_kernels.SHARED
    assert seasons._SCALE == season_kernels.SCALE


def several(T: int) -> tuple[Array, NDArray[np.bool_], Array, Array, NDArray[np.int64]]:
    """Readings (T, 13) of two signals, one with a season and missing readings, what follows, times, γ and signals."""
    rng = np.random.default_rng(3)
    signal = rng.permutation(np.repeat([0, 1], [10, 3])).astype(np.int64)
    x = np.stack([np.sin(np.arange(T) * np.pi / 6) + 0.1 * rng.normal(size=T), rng.normal(size=T).cumsum()], axis=1)
    x[rng.random((T, 2)) < 0.03] = np.nan
    x[70:80, 0] = np.nan
    follows, hours = rng.random(T) > 0.01, np.arange(T)
    hours[T // 2 :] += 30
    follows[T // 2] = False
    seconds: Array = np.asarray(HOUR * hours, np.float64)
    return np.ascontiguousarray(x[:, signal]), follows, seconds, rng.uniform(0.2, 0.99, 13), signal


def test_each_question_is_answered_as_if_it_were_alone() -> None:
    x, follows, seconds, gamma, signal = several(400)
    together = Seasons(gamma, signal, 3600.0)
    out, fresh = together(x, follows, seconds)
    assert together.period[0].all()
    for q in range(13):
        question, alone = slice(q, q + 1), Seasons(gamma[q : q + 1], np.zeros(1, np.int64), 3600.0)
        answers, changed = alone(x[:, question], follows, seconds)
        assert np.array_equal(answers, out[:, question], equal_nan=True)
        assert np.array_equal(changed, fresh[:, question])
        for name in seasons._OF_QUESTION:
            assert np.array_equal(alone.arrays()[name], together.arrays()[name][question])


def test_the_kernel_has_the_bits_of_plain_python(monkeypatch: pytest.MonkeyPatch) -> None:
    x, follows, seconds, gamma, signal = several(90)
    compiled, plain = Seasons(gamma, signal, 3600.0), Seasons(gamma, signal, 3600.0)
    out, _ = compiled(x, follows, seconds)
    kernel = getattr(season_kernels.rows, "py_func", season_kernels.rows)
    monkeypatch.setattr(seasons, "direct", lambda _: np.errstate(all="ignore")(kernel))
    answers, _ = plain(x, follows, seconds)
    assert np.array_equal(answers, out, equal_nan=True)
    for name, array in compiled.arrays().items():
        assert np.array_equal(plain.arrays()[name], array)


def test_a_time_of_zero_is_a_time() -> None:
    """Also where it was the last one, and rows were skipped after it."""
    x, seconds = np.random.default_rng(0).normal(size=(60, 1)), HOUR * np.arange(-30.0, 30.0)
    seconds[31:] += 5 * HOUR
    follows = np.arange(60) != 31
    together, alone = (Seasons(np.array([0.9]), np.zeros(1, np.int64), HOUR) for _ in range(2))
    answers, _ = together(x, follows, seconds)
    rows = [alone(x[t : t + 1], follows[t : t + 1], seconds[t : t + 1])[0] for t in range(60)]
    np.testing.assert_array_equal(np.concatenate(rows), answers)
    assert together.counts[0] == alone.counts[0] == 65.0
