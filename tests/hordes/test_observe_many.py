"""``observe_many`` is ``observe`` row by row."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from emphatic import GVF, Horde, Policy
from emphatic import features as f
from emphatic.errors import DivergenceWarning

B = 60


def log(rows: int = 400) -> dict[str, Any]:
    t = np.arange(rows)
    x = np.sin(t / 7.0)
    x[11:14] = np.nan
    return {"x": x, "y": np.cos(t / 11.0), "mode": np.where(t % 20 < 10, "red", "blue")}


def horde(**options: Any) -> Horde:
    red = GVF("x", gamma=0.8, policy=Policy({"red": 1.0}, "mode"), name="x when red")
    questions = [GVF("x", horizon=5), GVF("y", horizon=20), red]
    features = f.Features([f.Bias(), f.SoftBins("x", bins=4), f.SoftBins("y", bins=4), f.OneHot("mode")])
    return Horde(questions, features, "true_online_etd", engine="sparse", **options).warm_up(log())


def rows(begin: int = 0, end: int = B) -> dict[str, Any]:
    return {name: column[begin:end] for name, column in log().items()}


def one_by_one(one: Horde, some: dict[str, Any], gap: Any = (), **options: Any) -> Any:
    out = []
    for t in range(len(some["x"])):
        if t < len(gap) and gap[t]:
            one.cut()
        out.append(one.observe({name: column[t] for name, column in some.items()}, **options))
    return np.array(out)


def test_it_answers_as_observe_does() -> None:
    expected = one_by_one(horde(), rows())
    many = horde()
    got = np.concatenate([many.observe_many(rows(0, 7)), many.observe_many(rows(7, 8)), many.observe_many(rows(8))])
    assert got.shape == (B, 3)
    assert np.allclose(got, expected, rtol=0, atol=1e-12)
    assert many.rows == B


def test_without_learning_nothing_changes() -> None:
    one = horde()
    one.observe_many(rows())
    theta = one.learner.theta
    one.observe_many(rows(), learn=False)
    assert np.array_equal(one.learner.theta, theta)


def test_missing_columns_and_numbers_alone() -> None:
    features = f.Features([f.Bias(), f.SoftBins("x", bins=4), f.SoftBins("y", bins=4)])
    one, other = (Horde([GVF("y", horizon=5)], features, engine="sparse").warm_up(log()) for _ in range(2))
    y = log()["y"][:B]
    got = one.observe_many(np.stack([np.full(B, np.nan), y], axis=1))
    assert np.array_equal(got, other.observe_many({"y": [float(v) for v in y]}))
    assert one.observe_many(np.empty((0, 2))).shape == (0, 1)


def test_readings_that_are_not_finite_are_missing() -> None:
    infinite, missing = rows(), rows()
    infinite["y"], missing["y"] = infinite["y"].copy(), missing["y"].copy()
    infinite["y"][3], missing["y"][3] = np.inf, np.nan
    assert np.array_equal(horde().observe_many(infinite), horde().observe_many(missing))


@pytest.mark.parametrize(
    ("given", "options", "message"),
    [
        ({"x": [1.0, 2.0], "y": [1.0]}, {}, "columns of one length"),
        (np.zeros((3, 5)), {}, r"an array \(B, 2\)"),
        ("text", {}, r"an array \(B, 2\)"),
        ({"x": ["a"], "y": [1.0]}, {}, "have a number for 'x'"),
        ({"x": [1.0], "y": [1.0], "mode": [[]]}, {}, "text or a number for 'mode'"),
        (np.zeros((3, 2)), {"gap": [True]}, "'gap' parameter of observe_many must have one entry a row, 3"),
        (np.zeros((3, 2)), {"time": [0.0]}, "'time' parameter"),
        (np.zeros((3, 2)), {"mu": [0.5, 0.5, 0.0]}, "'mu' parameter"),
        (np.zeros((3, 2)), {"actions": ["a", "b", ()]}, "'action' parameter"),
    ],
)
def test_bad_input_changes_nothing(given: Any, options: dict[str, Any], message: str) -> None:
    one = horde()
    with pytest.raises(ValueError, match=message):
        one.observe_many(given, **options)
    assert one.rows == 0


def test_the_position_goes_on_where_learners_are_frozen() -> None:
    one = horde(alpha=1e30)
    with pytest.warns(DivergenceWarning):
        one.observe_many(rows())
    assert one.learner.frozen.any()
    assert one.rows == B
    assert one.learner.position == B - 1  # steps lie between rows


def test_without_learning_rows_may_come_one_by_one_or_together() -> None:
    """Traces of features go on, and the learner does not learn."""
    features = f.Features([f.Bias(), f.SoftBins(f.Trace("x", steps=9), bins=4)])
    hordes = [Horde([GVF("y", horizon=5)], features, engine="sparse").warm_up(log()) for _ in range(2)]
    for each in hordes:
        each.observe_many(rows())
    x = rows()["x"]
    together = hordes[0].observe_many({"x": x}, learn=False)
    assert np.array_equal(together, [hordes[1].observe({"x": one}, learn=False) for one in x])
