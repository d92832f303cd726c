"""The online ridges: against the sums written out, in any blocks, without a look ahead, saved, and beside learners."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from emphatic import GVF, Horde
from emphatic import features as f
from emphatic.hordes import ridges as module
from emphatic.hordes.ridges import STRENGTHS, Ridges
from emphatic.learning.inputs import Active

Array = NDArray[np.float64]
GAMMA = np.array([0.5, 0.9, 0.5])


class Rows:
    """T rows of n features, four of them active, and three signals, with a gap and missing readings."""

    def __init__(self, T: int = 700, n: int = 9) -> None:
        rng = np.random.default_rng(3)
        self.n = n
        index = np.sort(rng.permuted(np.tile(np.arange(n), (T, 1)), axis=1)[:, :4], axis=1)
        index[rng.random(T) < 0.1, 0] = -1
        self.phi = Active(index, rng.random((T, 4)) + 0.2)
        self.x = 7.0 + rng.normal(size=(T, 3)).cumsum(axis=0) * 0.1
        self.x[200:205, 1] = np.nan
        self.x[rng.random((T, 3)) < 0.02] = np.nan
        self.follows = np.ones(T, bool)
        self.follows[[0, 300, 301]] = False

    @property
    def dense(self) -> Array:
        out = np.zeros((len(self.x), self.n + 1))
        np.put_along_axis(out, self.phi.indices, self.phi.values, axis=1)
        return out[:, :-1]

    def run(self, *cuts: int, ridges: Ridges | None = None, end: int | None = None) -> Array:
        made = ridges or self.ridges()
        edges = [0, *cuts, len(self.x) if end is None else end]
        return np.concatenate([made(self.phi[a:b], self.x[a:b], self.follows[a:b]) for a, b in pairwise(edges)])

    def ridges(self) -> Ridges:
        return Ridges(GAMMA, np.full(3, 7.0), self.n, 4)


def direct(rows: Rows, made: Array, s: int, q: int, strength: float, after: int) -> float:
    """The answer at row ``after`` of the solution from the first s rows, from the description."""
    Phi, gamma = rows.dense[:s], GAMMA[q]
    x, p = rows.x[:s, q] - 7.0, made[:s, q, 1] - 7.0
    G = np.empty(s)
    G[s - 1] = p[s - 1]
    for t in range(s - 2, -1, -1):
        if not rows.follows[t + 1]:
            G[t] = p[t]
        elif np.isnan(x[t + 1]):
            G[t] = p[t] - gamma * p[t + 1] + gamma * G[t + 1]
        else:
            G[t] = (1 - gamma) * x[t + 1] + gamma * G[t + 1]
    w = np.arange(1, s + 1) / s
    active = rows.phi.values[:s][rows.phi.indices[:s] >= 0]
    N, mean = w.sum(), w @ Phi / w.sum()
    A = (Phi * w[:, None]).T @ Phi - N * np.outer(mean, mean) + strength * np.mean(active**2) * np.eye(rows.n)
    theta = np.linalg.solve(A, Phi.T @ (w * G) - mean * (w @ G))
    return float(7.0 + (w @ G) / N + (rows.dense[after] - mean) @ theta)


@pytest.mark.plain
def test_answers_are_those_of_the_sums_written_out() -> None:
    rows = Rows()
    made = rows.run()
    # The first solution is after 64 rows, the next after those 32 that grow them by a tenth.
    solved = [64]
    while solved[-1] < 600:
        due = solved[-1] + int(0.1 * solved[-1])
        solved.append(-(-due // 32) * 32)
    assert np.array_equal(made[:64, :, 0], made[:64, :, 2])
    whole = ~np.isnan(rows.x[:64]).any(axis=0)
    assert whole.any()
    assert made[63, whole, 0] == pytest.approx(rows.x[:64, whole].mean(axis=0))  # the mean so far until then
    for s in (solved[0], *solved[3:9]):
        for q in range(3):
            for i, strength in enumerate(STRENGTHS):
                assert made[s, q, i] == pytest.approx(direct(rows, made, s, q, strength, s), abs=1e-9), (s, q, i)


def test_features_that_were_never_active_change_nothing() -> None:
    rows = Rows()
    want = rows.run()
    rows.n = 13
    rows.phi = Active(np.where(rows.phi.indices > 4, rows.phi.indices + 3, rows.phi.indices), rows.phi.values)
    made = rows.ridges()
    assert np.array_equal(rows.run(ridges=made), want)
    assert not made.theta[[5, 6, 7, 12]].any()
    rows.phi = Active(np.full((700, 1), -1), np.zeros((700, 1)))
    assert np.isfinite(rows.run(ridges=Ridges(GAMMA, np.full(3, 7.0), rows.n, 1))).all()


def test_a_long_horizon_starts_from_the_mean_and_not_from_one_reading() -> None:
    """Noise about 7, and a horizon ten times the rows: what is not known yet of a return counts most of it."""
    rows = Rows(400)
    rows.x = 7.0 + np.random.default_rng(0).normal(size=(400, 3))
    ridges = Ridges(np.full(3, 1 - 1 / 3000), np.zeros(3), rows.n, 4)
    made = rows.run(ridges=ridges)
    assert np.abs(made[64:] - 7.0).max() < 0.3


def test_bits_depend_neither_on_blocks_nor_on_what_comes_later() -> None:
    rows = Rows()
    whole = rows.run()
    assert np.array_equal(rows.run(1, 2, 63, 64, 65, 300, 500), whole)
    assert np.array_equal(rows.run(end=333), whole[:333])
    rows.x[400:] = np.random.default_rng(0).normal(size=rows.x[400:].shape) * 1e6
    assert np.array_equal(rows.run()[:400], whole[:400])
    assert not np.array_equal(rows.run()[440:], whole[440:])


def test_the_state_goes_on_from_where_it_was_saved() -> None:
    rows = Rows()
    whole, first, then = rows.run(), rows.ridges(), rows.ridges()
    rows.run(ridges=first, end=410)
    then.restore({name: array.copy() for name, array in first.arrays().items()})
    last = slice(410, None)
    assert np.array_equal(then(rows.phi[last], rows.x[last], rows.follows[last]), whole[last])
    damaged = {name: array.copy() for name, array in first.arrays().items()}
    damaged["index"][0, 0] = rows.n
    with pytest.raises(ValueError, match="do not fit"):
        then.restore(damaged)
    with pytest.raises(ValueError, match="'b' of the ridges"):
        then.restore(first.arrays() | {"b": first.b[:-1]})


def test_regressions_of_some_questions_join_to_those_of_all() -> None:
    rows = Rows()
    some = (slice(0, 1), slice(1, 3))
    whole, parts = rows.ridges(), [Ridges(GAMMA[own], np.full(len(GAMMA[own]), 7.0), rows.n, 4) for own in some]
    for ridges, own in zip((whole, *parts), (slice(0, 3), *some), strict=True):
        ridges(rows.phi[:333], rows.x[:333, own], rows.follows[:333])
    joined = rows.ridges()
    joined.join(parts)
    last = slice(333, None)
    want = whole(rows.phi[last], rows.x[last], rows.follows[last])
    assert np.abs(joined(rows.phi[last], rows.x[last], rows.follows[last]) - want).max() < 1e-9


def test_hostile_readings_leave_other_questions_alone() -> None:
    rows = Rows()
    want = rows.run()
    rows.x[:, 1] = 1e90
    rows.x[50:, 1] *= -1.0
    made = rows.run()
    assert np.isfinite(made).all()
    assert np.abs(made[:, 0] - want[:, 0]).max() < 1e-9
    rows.x[:] = np.nan
    assert np.array_equal(rows.run(), np.full_like(want, 7.0))


# ------------------------------------------------------------------ in a horde


def log(T: int = 1500) -> dict[str, Array]:
    rng = np.random.default_rng(0)
    t = np.arange(T)
    wave = np.sin(t / 9) + 0.1 * rng.normal(size=T)
    wave[rng.random(T) < 0.01] = np.nan
    return {"wave": wave, "walk": rng.normal(size=T).cumsum()}


def horde(**options: Any) -> Horde:
    questions = [GVF(signal, horizon=h) for signal in ("wave", "walk") for h in (2, 20)]
    makers = f.Features([f.Bias(), f.SoftBins("*", bins=6), f.SoftBins(f.Trace("*", steps=[4]), bins=6)])
    given: dict[str, Any] = {"least_squares": True, "engine": "sparse"} | options
    return Horde(questions, makers, **given)


def test_a_horde_has_ridges_where_it_is_asked_for_them() -> None:
    plain, combined, table = horde(least_squares=False), horde(), log()
    before, after = plain.run(table), combined.run(table)
    assert plain.answers == {}
    names = ["rate 0.1", "rate 0.3", "rate 1", "ridge 30", "ridge 300", "ridge 3000"]
    names += ["short season", "long season", "drift 0.001", "reading", "trace"]
    assert list(combined.answers) == names
    assert all(values.shape == after.shape and np.isfinite(values).all() for values in combined.answers.values())
    assert before.shape == after.shape
    assert not np.array_equal(before, after)
    with pytest.raises(RuntimeError, match="only rows of a log"):
        combined.begin({"wave": 0.0, "walk": 0.0})
    with pytest.raises(ValueError, match="least_squares"):
        horde(least_squares="yes")
    with pytest.raises(ValueError, match="least_squares"):
        horde(record=True)


def test_predictions_do_not_get_worse_at_the_first_solution() -> None:
    """Nothing is known of a regression before it: it must not be trusted for what stands in its place."""
    table = {"wave": log(160)["wave"], "walk": np.zeros(160)}
    made, x = horde().warm_up(table, 20).observe_many(table)[:, 0], np.nan_to_num(table["wave"])
    G = np.zeros(160)
    for t in range(158, -1, -1):
        G[t] = 0.5 * (x[t + 1] + G[t + 1])
    error = np.abs(made - G)
    assert error[64:96].mean() < 1.2 * error[32:64].mean()


def test_without_learning_nothing_is_learned() -> None:
    table = log()
    made, other = horde().warm_up(table), horde().warm_up(table)
    for each in (made, other):
        each.observe_many({name: column[:1000] for name, column in table.items()})
    before = {name: array.copy() for name, array in made._groups[0].ridges.arrays().items()}  # type: ignore[union-attr]
    made.observe_many({name: column[1000:] for name, column in table.items()}, learn=False)
    after = made._groups[0].ridges.arrays()  # type: ignore[union-attr]
    assert all(np.array_equal(before[name], after[name]) for name in before)


def test_questions_with_features_of_their_own_have_ridges_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    table = log()
    few, many = (f.Features([f.Bias(), f.SoftBins("*", bins=bins)]) for bins in (4, 30))
    questions = [GVF(signal, horizon=h) for signal in ("wave", "walk") for h in (2, 20)]
    own = {question.name: few if "wave" in question.name else many for question in questions}
    monkeypatch.setattr("emphatic.hordes.group.LIMIT", 30)  # so that the second has too many features
    made = Horde(questions, own, least_squares=True)
    predictions = made.run(table)
    assert np.isfinite(predictions).all()
    known = np.isfinite(made.answers["ridge 300"]).all(axis=0)
    assert known.tolist() == [True, True, False, False]
    assert np.isfinite(made.answers["rate 1"]).all()


def test_a_matrix_that_is_not_positive_definite_has_no_solution() -> None:
    rng = np.random.default_rng(0)
    X, b = rng.normal(size=(90, 100)), rng.normal(size=(100, 2))
    found = module._ridge(np.hstack([np.triu(X.T @ X), b]), 0.1, np.empty((100, 102)))
    assert found is not None
    assert np.allclose(found, np.linalg.solve(X.T @ X + 0.1 * np.eye(100), b))
    assert module._ridge(np.hstack([-np.eye(3), np.ones((3, 1))]), 0.5, np.empty((3, 4))) is None


def test_a_long_log_is_solved_for_when_it_has_grown_by_a_hundredth() -> None:
    ridges = module.Ridges(np.array([0.5]), np.zeros(1), 4, 2)
    due = []
    for rows in (0.0, 640.0, 50_000.0, 1e6):
        ridges.counts[module._SOLVED] = rows
        due.append(ridges._next_solution() - rows)
    assert due == [64, 64, 1000, 10_000]
