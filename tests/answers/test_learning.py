"""What answers learn: regressions, combinations, periods, related signals, weighted means, events, and after faults."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.signal import lfilter

from emphatic.nexting.answers import kernels
from emphatic.nexting.answers.answers import Answers
from emphatic.nexting.answers.kernels import RIDGE_NOW
from emphatic.nexting.answers.records import ANSWERS, PAST, TD
from emphatic.nexting.answers.regression import Relations, solve
from emphatic.nexting.answers.targets import default_questions
from emphatic.nexting.tables import Block
from tests.answers.test_answers import ALL, HOURLY, PLAIN, answered, rows, run

Array = NDArray[np.float64]


def noise(count: int, weight: float = 0.9, seed: int = 0) -> Array:
    """x_t = weight · x_{t−1} + noise."""
    x = np.zeros(count)
    x[:] = lfilter([1.0], [1.0, -weight], np.random.default_rng(seed).normal(size=count))
    return x


def stamps(count: int) -> Array:
    return np.linspace(1.6e9, 1.6e9 + 3600.0 * (count - 1), count)


def test_sums_give_the_penalised_least_squares_with_an_effect_of_each_hour() -> None:
    rng = np.random.default_rng(0)
    n, d, hours, strength = 300, 5, 4, 7.0
    F = np.column_stack([np.ones(n), rng.normal(2.0, [1.0, 3.0, 0.2, 1.0], (n, d - 1))])
    hour = rng.integers(0, hours, n)
    Y = F @ rng.normal(size=(d, 2)) + rng.normal(size=(hours, 2))[hour] + rng.normal(size=(n, 2))
    Z = np.concatenate([F, Y], axis=1)
    by_hour = np.stack([Z[hour == c].sum(axis=0) for c in range(hours)])
    w, effects, mean, deviation = solve(Z.T @ Z, by_hour, d, strength)
    np.testing.assert_allclose(mean, F.mean(axis=0))
    np.testing.assert_allclose(deviation, F.std(axis=0), atol=1e-9)
    # centred features and hours' indicators, each with its penalty
    X = np.concatenate([(F - mean)[:, 1:], np.eye(hours)[hour]], axis=1)
    penalty = np.concatenate([strength * deviation[1:] ** 2, np.full(hours, strength / hours + 1.0)])
    penalty[: d - 1] += 1e-8 * n * deviation[1:] ** 2
    centred = Y - Y.mean(axis=0)
    expected = np.linalg.solve(X.T @ X + np.diag(penalty), X.T @ centred)
    np.testing.assert_allclose(w[1:], expected[: d - 1], rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(effects, expected[d - 1 :], rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(w[0], Y.mean(axis=0) - mean[1:] @ w[1:], rtol=1e-9)


@pytest.mark.parametrize("windows", [30.0, 1000.0])
def test_the_combination_is_the_best_convex_one(windows: float) -> None:
    for seed in range(20):
        rng = np.random.default_rng(seed)
        k = ANSWERS
        errors = rng.normal(size=(50, k)) @ rng.normal(size=(k, k)) + rng.normal(size=(50, 1))
        R, w = np.tril(errors.T @ errors), np.eye(k)[0]
        for _ in range(10):  # (it goes on from the weights before, with each label)
            kernels._convex(R, windows, w, np.zeros((k, k)), np.zeros(k))
        A, size = R + R.T - np.diag(np.diag(R)), np.diag(R)
        penalty = kernels.SHRINK * (size - size.min()) + kernels.SIMPLER * size * (np.arange(k) > PAST)
        A += np.diag(penalty / windows)
        slope = A @ w
        assert w.sum() == pytest.approx(1.0)
        assert w.min() >= 0.0
        least = w @ slope  # at the minimum, all slopes are at least wᵀAw, and those of positive weights are it
        assert slope.min() >= least * (1.0 - 1e-3)
        assert np.all(np.abs(slope[w > 1e-3] - least) <= 1e-2 * least)


def test_a_question_has_one_answer_whatever_else_is_asked() -> None:
    values = rows(500)
    every = answered(values, HOURLY, 500)
    for q in (0, 1, 2, 5, 8):
        np.testing.assert_array_equal(answered(values, HOURLY, 500, [ALL[q]])[:, 0], every[:, q])
    again = answered(values, HOURLY, 500, default_questions(["x"], [3, 24]))
    np.testing.assert_array_equal(again[:, [0, 3]], every[:, [0, 1]])
    np.testing.assert_array_equal(every[:, 3], 5.0 * answered(values, HOURLY, 500, ["mean of y over 5"])[:, 0])


def test_a_signal_with_a_day_is_answered_well() -> None:
    count = 3000
    x = 5.0 * np.sin(np.arange(count) / 24.0 * 2.0 * np.pi) + noise(count)
    answers = Answers(["x"], default_questions(["x"], [2, 36]), HOURLY, rows=count)
    run(answers, x[:, None], HOURLY, 512, stamps(count))
    for summary in answers.summary():
        assert summary["verdict"] == "better" or summary["horizon"] == 36, summary["text"]
        assert summary["skill"][summary["best_baseline"]] > -0.05
        assert 0.75 < summary["coverage"] < 0.85
        assert {"last_day", "usual_day", "last_week", "drift", "mean"} <= set(summary["baselines"])


@pytest.mark.parametrize("horizon", [2, 5, 20])
def test_a_weighted_mean_is_that_of_the_process(horizon: int) -> None:
    weight, gamma, x = 0.9, 1.0 - 1.0 / horizon, noise(6000)
    level = 10.0
    answers = Answers(["x"], [f"x@{horizon}"], PLAIN)
    out = run(answers, level + x[:, None], PLAIN, 512)[:, 0] - level
    true = x * (1.0 - gamma) * weight / (1.0 - gamma * weight)
    late = slice(3000, None)
    assert np.mean((out[late, 0] - true[late]) ** 2) < 0.06 * np.var(true[late])
    # Each of the regressions by itself, at the last rows (of which one was left out, where ``run`` has a gap). With the
    # readings of the window alone they would be too small, by (γ · .9)ʰ: .2 for the shortest window.
    group = answers._memory.groups[0]
    last = np.arange(len(x) - 50, len(x))
    waiting = answers._memory.pending[group["begin"] + (last + 1) % group["room"], 0]
    for a in range(RIDGE_NOW, TD):
        slope = (waiting["answers"][:, a] - level) @ true[last] / (true[last] @ true[last])
        assert abs(slope - 1.0) < (0.07 if horizon == 2 else 0.3), a
    at = run(Answers(["x"], [f"x at +{horizon}"], PLAIN), level + x[:, None], PLAIN, 512)[late, 0, 0] - level
    assert np.mean((at - x[late] * weight**horizon) ** 2) < 0.06 * np.var(x)


def test_a_weighted_mean_is_scored_by_what_followed() -> None:
    x, h, rows = noise(2000), 5, 2000
    known = 21  # the rows of .99 of the weights: .8²¹ < .01
    answers = Answers(["x"], [f"x@{h}"], PLAIN, rows=rows)
    out = np.concatenate([answers(Block(a, x[a : a + 100, None], None, {})) for a in range(0, rows, 100)])[:, 0]
    weights = 0.8 ** np.arange(known)
    followed = np.lib.stride_tricks.sliding_window_view(x[1:], known) @ (weights / weights.sum())
    use = np.arange(rows // 2, len(followed))
    (summary,) = answers.summary()
    assert summary["known"] == len(followed) - kernels.FIRST_ROWS
    assert summary["rmse"] == pytest.approx(np.sqrt(np.mean((out[use, 0] - followed[use]) ** 2)), rel=1e-9)
    inside = (out[use, 1] <= followed[use]) & (followed[use] <= out[use, 2])
    assert summary["coverage"] == pytest.approx(inside.mean(), abs=1e-9)
    assert 0.75 < summary["coverage"] < 0.85


def test_what_td_predicts_is_one_answer_among_the_others() -> None:
    x, rows = np.random.default_rng(0).normal(size=(1500, 2)), 1500
    coming = np.append(x[1:, 0], 0.0)  # what only TD knows
    asked = ["x at +1", "mean of y over 3", "P(x > 0 at +1)", "x - y at +2", "x@1"]

    def run_with(td: Array | None, size: int) -> tuple[Answers, Array]:
        answers = Answers(["x", "y"], asked, PLAIN, rows=rows)
        cut = [slice(a, a + size) for a in range(0, rows, size)]
        out = [answers(Block(at.start, x[at], None, {}), None if td is None else td[at]) for at in cut]
        return answers, np.concatenate(out)

    answers, without = run_with(None, 64)
    assert answers.learners == [("x", 1), ("y", 3)]
    td = np.full((rows, 2), np.nan)
    np.testing.assert_array_equal(run_with(td, 64)[1], without)
    td[:, 0] = coming
    answers, out = run_with(td, 64)
    np.testing.assert_array_equal(run_with(td, 7)[1], out)
    np.testing.assert_array_equal(out[:, 1:4], without[:, 1:4])
    explained = [summary["variance_explained"] for summary in answers.summary()]
    assert explained[0] > 0.99
    assert explained[4] > 0.99
    assert max(explained[1], explained[3]) < 0.1


def test_periods_are_found_where_rows_have_no_dates() -> None:
    count = 1500
    row = np.arange(count) + (np.arange(count) >= count // 2)  # (where ``run`` has a gap, a row is left out)
    x = row % 37 / 5.0 + 0.3 * np.random.default_rng(0).normal(size=count)
    answers = Answers(["x"], ["x at +20"], PLAIN, rows=count)
    run(answers, x[:, None], PLAIN, 100)
    assert 37 in answers._memory.series["periods"][0]
    (summary,) = answers.summary()
    assert summary["variance_explained"] > 0.95
    dated = Answers(["x"], ["x at +20"], HOURLY)
    run(dated, x[:, None], HOURLY, 100, stamps(count))
    assert dated._memory.series["periods"][0].tolist() == [24, 168]


def test_of_many_signals_those_that_tell_most_are_seen() -> None:
    count, signals = 1500, 14
    values = np.random.default_rng(0).normal(size=(count, signals))
    values[1:, 0] = values[:-1, 13] + 0.3 * values[1:, 0]
    names = [f"s{i}" for i in range(signals)]
    answers = Answers(names, ["s0 at +1", "s5 at +1", "P(s0 > 1 at +1)"], PLAIN, rows=count)
    out = run(answers, values, PLAIN, 100)
    assert 13 in answers._memory.related[0]
    first, unrelated, event = answers.summary()
    assert first["variance_explained"] > 0.8
    assert -0.1 < unrelated["variance_explained"] < 0.05
    assert event["variance_explained"] > 0.5
    np.testing.assert_array_equal(run(Answers(names, ["s0 at +1"], PLAIN), values, PLAIN, 33)[:, 0], out[:, 0])
    halved = Answers(names, ["s0 at +1"], PLAIN)
    run(halved, values[:700], PLAIN, 700)
    rest = Answers(names, ["s0 at +1"], PLAIN)
    rest.restore(halved.state())
    np.testing.assert_array_equal(rest._relations.arrays["products"], halved._relations.arrays["products"])


def test_relations_are_correlations_with_the_next_change() -> None:
    rng = np.random.default_rng(0)
    x, R = rng.normal(size=(5, 64)), 64
    x[0, 1:] = x[3, :-1]
    ring, relations = np.concatenate([x, x], axis=1), Relations(5, 5)
    relations.add(ring, 30)
    relations.add(ring, R)
    assert relations.choose(0, np.array([1, 2]))[1] == 3 or relations.choose(0, np.array([1, 2]))[0] == 3
    sums, at = relations.arrays, np.arange(3, R - 1)
    assert sums["rows"][0] == len(at)
    np.testing.assert_allclose(sums["products"][0, 3, 0], x[3, at] @ (x[0, at + 1] - x[0, at]))
    np.testing.assert_allclose(sums["products"][1, 2, 1], (x[2, at] - x[2, at - 3]) @ (x[1, at + 1] - x[1, at]))


def test_probabilities_are_calibrated() -> None:
    x = noise(6000)
    answers = Answers(["x"], ["P(x > 2 within 4)", "P(x > 2 at +1)"], PLAIN, rows=len(x))
    out = run(answers, x[:, None], PLAIN, 512)
    assert np.all((out[:, :, 0] > 0.0) & (out[:, :, 0] < 1.0))
    assert np.isnan(out[:, :, 1:3]).all()
    label = x[1:] > 2.0
    for low, high in ((0.0, 0.1), (0.1, 0.4), (0.4, 0.7), (0.7, 1.0)):
        said = (out[3000:-1, 1, 0] > low) & (out[3000:-1, 1, 0] <= high)
        assert abs(out[3000:-1, 1, 0][said].mean() - label[3000:][said].mean()) < 0.08
    for summary in answers.summary():
        assert summary["verdict"] == "better"
        assert summary["brier"] == pytest.approx(summary["rmse"] ** 2)


FAULTS: dict[str, Any] = {
    "stuck": lambda x: np.where((np.arange(len(x)) >= 1500) & (np.arange(len(x)) < 1638), x[1500], x),
    "dropout": lambda x: np.where((np.arange(len(x)) >= 1500) & (np.arange(len(x)) < 1530), -999.0, x),
    **{f"{sd} sd": lambda x, sd=sd: x + np.where(np.arange(len(x)) == 1500, 4.0 * sd, 0.0) for sd in (10, 100, 1000)},
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_does_no_lasting_harm(fault: str) -> None:
    count = 3000
    x = 20.0 + 5.0 * np.sin(np.arange(count) / 24.0 * 2.0 * np.pi) + noise(count)
    explained = []
    for values in (x, FAULTS[fault](x)):
        out = run(Answers(["x"], ["x at +2", "x at +9"], HOURLY), values[:, None], HOURLY, 512, stamps(count))
        late = np.arange(1650, count - 9)
        explained.append([np.mean((out[late, q, 0] - x[late + h]) ** 2) for q, h in enumerate((2, 9))])
    assert np.all(np.array(explained[1]) - explained[0] < 0.03 * np.var(x))


def test_whole_numbers_have_whole_ends_and_two_values_no_band() -> None:
    rng, count = np.random.default_rng(0), 3000
    counts = rng.poisson(3.0 + 2.0 * np.sin(np.arange(count) / 20.0)).astype(np.float64)
    state = (lfilter([1.0], [1.0, -0.95], rng.normal(size=count)) > 1.0).astype(np.float64)
    asked = ["n at +2", "max of n within 4", "mean of n over 4", "on at +2", "min of on within 3", "mean of on over 4"]
    answers = Answers(["n", "on"], asked, PLAIN, rows=count)
    out = run(answers, np.column_stack([counts, state]), PLAIN, 500)[1500:]
    np.testing.assert_array_equal(out[:, :2, 1:3], np.rint(out[:, :2, 1:3]))
    assert np.all((out[:, :2, 1] <= out[:, :2, 0]) & (out[:, :2, 0] <= out[:, :2, 2]))
    assert np.any(out[:, 2, 1] != np.rint(out[:, 2, 1]))
    assert np.isnan(out[:, 3:5, 1:3]).all()
    assert np.isfinite(out[:, [0, 1, 2, 5], 1:3]).all()
    for summary, has_band in zip(answers.summary(), (True, True, True, False, False, True), strict=True):
        assert (0.75 < summary["coverage"] < 0.97) if has_band else summary["coverage"] is None
    assert np.all((out[:, 3, 0] >= 0.0) & (out[:, 3, 0] <= 1.0))


def test_whole_numbers_beyond_those_of_64_bits_have_their_ends() -> None:
    x = 1e32 + 1e30 * np.sin(np.arange(600) / 9.0) + 1e29 * noise(600)
    out = run(Answers(["x"], ["x at +2"], PLAIN, rows=600), x[:, None], PLAIN, 200)[300:, 0]
    assert np.all((out[:, 1] <= out[:, 0]) & (out[:, 0] <= out[:, 2]))
    assert 0.6 < np.mean((out[:-2, 1] <= x[302:]) & (x[302:] <= out[:-2, 2])) < 0.95


def test_what_was_never_known_has_no_band() -> None:
    x = np.sin(np.arange(900) / 9.0)
    x[::4] = np.nan  # no window of 9 rows has 90% of its readings
    answers = Answers(["x"], ["x at +9", "mean of x over 9"], PLAIN, rows=900)
    out = run(answers, x[:, None], PLAIN, 300)[300:]
    assert [score["known"] > 100 for score in answers.summary()] == [True, False]
    assert np.isfinite(out[:, 0]).all()
    assert np.isfinite(out[:, 1, 0]).all()
    assert np.isnan(out[:, 1, 1:3]).all()


def test_mistakes_are_named() -> None:
    with pytest.raises(ValueError, match="there is no signal 'z'"):
        Answers(["x"], ["z at +3"], PLAIN)
    with pytest.raises(ValueError, match="is not a question"):
        Answers(["x"], ["x soon"], PLAIN)
