"""The hordes suite: its NumPy is the seed, its streams are what they say, and its gates bite."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks import hordes
from benchmarks.hordes import (
    EVERYTHING,
    QUESTIONS,
    SWEEP,
    Array,
    Auto,
    Cell,
    Horde,
    Learn,
    Nexting,
    NumPyHorde,
    Rate,
    Robot,
    RunHorde,
    against_reference,
    by_numpy,
    first,
    robot_by_numpy,
    sample,
)
from benchmarks.measure import Effort, GateFailed, run_cases
from benchmarks.streams import by_reference


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("varies", [QUESTIONS, SWEEP, EVERYTHING])
def test_numpy_over_learners_is_the_seed(varies: str, dtype: str) -> None:
    stream = Horde(7, 10, 131, dtype, varies)
    other = NumPyHorde(7, 10, dtype)
    predictions = other.run(stream)
    assert other.theta.dtype == predictions.dtype == dtype
    for k in range(10):
        theta, made = by_reference(stream.of_learner(k), 7)
        tolerance = {"float64": 1e-12, "float32": 1e-4}[dtype]
        np.testing.assert_allclose(other.theta[k], theta, atol=tolerance * abs(theta).max())
        np.testing.assert_allclose(predictions[:, k], made, atol=tolerance * abs(made).max())


def test_numpy_s_robot_is_the_seed() -> None:
    robot = Robot(100, 9, 50, active=10)
    theta, _ = robot_by_numpy(robot)
    for k in range(9):
        want, _ = by_reference(robot.of_learner(k), 100)
        np.testing.assert_allclose(theta[k], want, atol=1e-12 * abs(want).max())


@pytest.mark.parametrize("varies", [QUESTIONS, SWEEP, EVERYTHING])
@pytest.mark.parametrize("active", [None, 3])
def test_streams_begin_alike_whatever_their_length(varies: str, active: int | None) -> None:
    stream = Horde(20, 5, 30, varies=varies, active=active)
    start = first(stream, 12)
    assert (start.dense == stream.dense[:13]).all()
    assert (active is None) == bool((stream.dense != 0).all())
    if active is not None:
        assert (stream.dense.sum(axis=1) == active).all()
    for k in range(5):
        for ours, theirs in zip(start.of_learner(k), stream.of_learner(k), strict=False):
            assert all(np.array_equal(a, b) for a, b in zip(ours, theirs, strict=True))


def test_a_wrong_learner_fails_its_gate() -> None:
    stream = Horde(5, 40, 30)

    def slipped(k: int, by: float) -> Learn:
        def learn(stream: Horde) -> tuple[Array, Array | None]:
            theta, predictions = by_numpy(stream)
            theta[k] += by
            return theta, predictions

        return learn

    assert len(list(against_reference("right", stream, by_numpy))) == 2
    for k in sample(40):
        with pytest.raises(GateFailed, match="wrong"):
            list(against_reference("wrong", stream, slipped(k, 1e-8)))


def test_the_targets_are_all_there() -> None:
    cases = hordes.cases(quick=False)
    rates = [case.at_least for case in cases if isinstance(case, Rate)]
    robots = [(case.times_numpy, case.steps_a_second) for case in cases if isinstance(case, Nexting)]
    grids = [(len(case.cells), case.at_most) for case in cases if isinstance(case, Auto)]
    assert rates == [0.6, 0.6]
    assert [case.at_least for case in cases if isinstance(case, RunHorde)] == [10, None]
    assert robots == [(15, 100), (15, 100)]
    assert grids == [(72, 1.5)]


def test_auto_reports_its_worst_choice(monkeypatch: pytest.MonkeyPatch) -> None:
    slow = {"dense": 3.0, "chunked": 2.0, "sparse": 6.0}
    monkeypatch.setattr("benchmarks.hordes.fastest", lambda sides, *_: {name: slow[name] for name in sides})
    cells = [Cell(6, 16, 32, None), Cell(64, 16, 1, 1), Cell(6, 16, 1, 1)]
    _, rows = run_cases([Auto(cells, at_most=1.5)], Effort(1, 0.0))
    dense, sparse, *found = rows
    assert dense.ratio == found[0].ratio == 1.5
    assert sparse.ratio == max(row.ratio or 0.0 for row in found[1:])
    assert [row.target for row in rows] == ["≤ 1.5", "≤ 1.5", "", "", ""]
    assert dense.met is True
    assert set(sparse.gates) == {name for row in found[1:] for name in row.gates}
