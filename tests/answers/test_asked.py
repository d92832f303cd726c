"""Questions that come and go: what is asked by default and what a user asks, saved and continued."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from emphatic.nexting.answers.asked import Asked
from emphatic.nexting.answers.records import Group
from emphatic.nexting.answers.targets import default_questions
from emphatic.nexting.answers.timing import Timing
from emphatic.nexting.tables import Block
from tests.answers.test_answers import HOURLY, PLAIN, blocks, rows, times

Array = NDArray[np.float64]
DEFAULT = default_questions(["x", "y"], [2, 24])
EVENT = "P(x > 0.8 within 6)"


def run(asked: Asked, values: Array, timing: Timing, size: int = 300) -> Array:
    return np.concatenate([asked(block) for block in blocks(values, timing, size, times(len(values), timing))])


def test_a_question_is_the_same_number_typed_or_by_default() -> None:
    values = rows(600)
    default = Asked([EVENT], ["x", "y"], HOURLY, default=DEFAULT)
    answers = dict(zip(default.texts, np.moveaxis(run(default, values, HOURLY), 1, 0), strict=True))
    typed = Asked(["mean of y over 24", "x at +2"], ["x", "y"], HOURLY, default=default_questions(["x"], [2]))
    assert typed.texts == ["mean of x over 2", "mean of y over 24", "x at +2"]
    for text, column in zip(typed.texts, np.moveaxis(run(typed, values, HOURLY), 1, 0), strict=True):
        np.testing.assert_array_equal(column, answers[text])


def test_questions_come_and_go() -> None:
    values, extra = rows(900), "max of y within 7"
    asked = Asked([EVENT], ["x", "y"], PLAIN, default=["x at +2"])
    cut = [Block(a, values[a : a + 300], None, {}) for a in (0, 300, 600)]
    first = asked(cut[0])
    asked.add(extra)
    with pytest.raises(ValueError, match="twice"):
        asked.add(extra)
    asked.add("x at +2")  # by default already: it is learned from the start
    assert asked.texts == [EVENT, extra, "x at +2"]
    second = asked(cut[1])
    alone = Asked([extra], ["x", "y"], PLAIN)
    np.testing.assert_array_equal(second[:, 1], alone(cut[1])[:, 0])
    asked.remove(extra)
    asked.remove("x at +2")
    with pytest.raises(ValueError, match="is not among the questions added: "):
        asked.remove(extra)
    assert asked.texts == ["x at +2", EVENT]
    third = asked(cut[2])
    steady = Asked([EVENT], ["x", "y"], PLAIN, default=["x at +2"])
    expected = np.concatenate([steady(block) for block in cut])
    np.testing.assert_array_equal(first, expected[:300])
    np.testing.assert_array_equal(second[:, [2, 0]], expected[300:600])
    np.testing.assert_array_equal(third, expected[600:])


@pytest.mark.parametrize("timing", [HOURLY, PLAIN], ids=["hourly", "rows"])
def test_a_stream_continues_from_what_was_saved(timing: Timing) -> None:
    values = rows(800)
    cut = blocks(values, timing, 400, times(800, timing))
    asked = Asked([EVENT], ["x", "y"], timing, default=DEFAULT)
    asked(cut[0])
    asked.add("x - y at +3")
    asked(cut[0])
    loaded = Asked.load(asked.state(), ["x", "y"])
    assert loaded.texts == asked.texts
    np.testing.assert_array_equal(loaded(cut[1]), asked(cut[1]))
    assert loaded.summary() == asked.summary()
    broken = asked.state()
    del broken["asked.0.answers.gram.0"]
    other, groups = asked.state(), asked.state()["asked.0.answers.groups"].copy()
    groups.view(Group)["features"] += 1  # as of a version with one feature more
    other["asked.0.answers.groups"] = groups
    for state in ({}, broken, other):
        with pytest.raises(ValueError, match="does not fit"):
            Asked.load(state, ["x", "y"])


def test_scores_and_recent_rows() -> None:
    values = rows(700)
    values[:, 0] = np.sin(np.arange(700) / 9.0)
    asked = Asked([EVENT, "x@6"], ["x", "y"], PLAIN, rows=700, default=default_questions(["x"], [2]))
    out = np.concatenate([asked(Block(a, values[a : a + 100], None, {})) for a in range(0, 700, 100)])
    scores = {score["text"]: score for score in asked.summary()}
    assert [score["signal"] for score in scores.values()] == ["x", "x", None, "x"]
    assert asked.summary(["x@6"]) == [scores["x@6"]]
    for q, text in enumerate(asked.texts):
        recent = asked.recent(text)
        np.testing.assert_array_equal(recent["row"], np.arange(300, 700))
        np.testing.assert_array_equal(recent["answer"], out[300:, q, 0])
        assert scores[text]["answer"] == out[-1, q, 0]
    at = asked.recent("x at +2")
    np.testing.assert_array_equal(at["now"], values[300:, 0])
    known = np.isfinite(at["label"])
    np.testing.assert_array_equal(at["label"][known], values[at["row"][known].astype(int) + 2, 0])
    assert known.sum() > 300
    event = scores[EVENT]
    assert sum(cut["count"] for cut in event["reliability"]) == event["scored"]
    assert 0.0 <= event["ece"] < 0.2
    judged = asked.judge_signals()
    assert judged["x"]["verdict"] == "better"
    assert judged["x"]["rmse"] == pytest.approx(scores["x at +2"]["rmse"])
    best = scores["x at +2"]["best_baseline"]
    assert judged["x"]["baseline_rmse"] == pytest.approx(scores["x at +2"]["baselines"][best]["rmse"])
    assert asked.judge_signals(["y"]) == {}


def test_coverage_by_hour() -> None:
    count = 3000
    x = rows(count)[:, :1]
    when = np.linspace(1.6e9, 1.6e9 + 3600.0 * (count - 1), count)
    asked = Asked(["x at +3"], ["x"], HOURLY, rows=count)
    out = np.concatenate([asked(block) for block in blocks(x, HOURLY, 500, when)])
    (score,) = asked.summary()
    hour, half = (when % 86400.0 // 3600.0).astype(int), np.arange(count) >= count // 2
    y = np.append(x[3:, 0], [np.nan] * 3)
    for h, share in enumerate(score["coverage_by_hour"]):
        use = half & (hour == h) & np.isfinite(y)
        inside = (out[use, 0, 1] <= y[use]) & (y[use] <= out[use, 0, 2])
        assert share == pytest.approx(inside.mean())
    assert score["usual_by"] == "hour of the week"


def test_windows_longer_than_any_log() -> None:
    x = rows(300)[:, :1]
    texts = ["x at +100000000", "mean of x over 100000", "P(x > 1 within 30000)", "x@90000000"]
    long = Asked(texts, ["x"], PLAIN)
    out = long(Block(0, x, None, {}))
    assert np.isfinite(out[1:, :, 0]).all()
    assert [score["known"] for score in long.summary()] == [0, 0, 0, 0]
    many = np.sin(np.arange(40_000) / 99.0)[:, None]
    asked = Asked(["P(x > 1 within 30000)", "max of x within 30000"], ["x"], PLAIN)
    for begin in range(0, len(many), 8192):
        asked(Block(begin, many[begin : begin + 8192], None, {}))
    assert all(score["known"] > 9000 for score in asked.summary())


def test_before_the_first_reading_there_is_no_answer() -> None:
    values = rows(500)
    values[:200, 0], values[:, 1] = np.nan, np.nan
    values[200, 0] = 1.0
    asked = Asked([EVENT, "x@6", "max of y within 3"], ["x", "y"], PLAIN, default=DEFAULT)
    out = np.concatenate([asked(Block(a, values[a : a + 150], None, {})) for a in range(0, 500, 150)])
    of_y = np.array(["y" in text for text in asked.texts])
    assert np.isnan(out[:, of_y]).all()
    assert np.isnan(out[:200]).all()
    assert np.isfinite(out[200:, ~of_y, 0]).all()
    scores = {score["text"]: score for score in asked.summary()}
    assert scores["x at +2"]["known"] == np.isfinite(values[202:, 0]).sum()
    assert scores["y at +2"]["known"] == 0
    assert scores["y at +2"]["answer"] is None


def test_names_are_apart() -> None:
    asked = Asked(["x at +2"], ["x"], PLAIN)
    assert asked.names == ["x at +2", "x at +2.low", "x at +2.high", "x at +2.usual"]
