"""Questions of the user's own: returns by their definition, intervals, scores, and the same bits."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from emphatic import GVF, Policy
from emphatic.nexting.runs.gvfs import FollowedGVFs
from tests.nexting.test_asking import run
from tests.support.streams import wave

Array = NDArray[np.float64]
LEFT = Policy({"left": 1.0}, column="move")
QUESTIONS = [
    GVF("x", gamma=0.8, name="mean"),
    GVF("x > 0", gamma="0.9 * (x < 1)", name="until high"),
    GVF(1.0, gamma="x < 1", name="steps"),
    GVF(0.0, gamma="0.95 * (x < 1)", terminal="x", name="at the end"),
    GVF("x", gamma=0.5, policy=LEFT, name="left"),
]
TABLES = [question.config() for question in QUESTIONS[:4]]


def plain_return(question: GVF, t: int, x: Array, gap: NDArray[np.bool_], moves: list[str]) -> float:
    """The definition, step by step; NaN if the return of row t is not known. γ and Z are read from held readings."""
    held = x.copy()
    for i in range(1, len(x)):
        held[i] = held[i - 1] if math.isnan(x[i]) else x[i]
    weight, total, seen = 1.0, 0.0, 0.0
    mean = question.name in ("mean", "left")
    for i in range(t + 1, len(x)):
        unread = math.isnan(x[i]) and question.name == "until high"
        if gap[i] or (question.name == "left" and moves[i - 1] != "left") or unread:
            return math.nan
        low = held[i] < 1
        gamma = {"mean": 0.8, "until high": 0.9 * low, "steps": float(low), "left": 0.5}.get(question.name, 0.95 * low)
        cumulant = {"until high": float(x[i] > 0), "steps": 1.0, "at the end": (1.0 - gamma) * held[i]}
        value = cumulant.get(question.name, x[i])
        if not math.isnan(value):
            total, seen = total + weight * value, seen + weight
        weight *= gamma
        if weight <= (0.01 if mean else 1e-3):
            if not mean:
                return total
            return total / seen if seen * (1.0 - gamma) >= 0.5 * (1.0 - weight) else math.nan
    return math.nan


@pytest.mark.parametrize("seed", range(4))
def test_returns_are_those_of_the_definition_however_rows_are_cut(seed: int) -> None:
    rng = np.random.default_rng(seed)
    T = 300
    x = np.where(rng.random(T) < 0.02, np.nan, rng.normal(size=T))
    gap = rng.random(T) < 0.02
    moves = np.where(rng.random(T) < 0.85, "left", "right").astype(object)
    predictions = rng.normal(size=(T, len(QUESTIONS)))
    whole, pieces = (FollowedGVFs(QUESTIONS, ["x"], ["move"], None, 0.8, rows=T) for _ in range(2))
    answers = whole(predictions, x[:, None], gap, None, {"move": moves})
    cut = []
    for begin, end in ((0, 1), (1, 120), (120, T)):
        if begin == 120:  # a saved state goes on
            saved, pieces = pieces.state(), FollowedGVFs(QUESTIONS, ["x"], ["move"], None, 0.8, rows=T)
            pieces.restore(saved)
        rows = slice(begin, end)
        cut.append(pieces(predictions[rows], x[rows, None], gap[rows], None, {"move": moves[rows]}))
    np.testing.assert_array_equal(answers, np.concatenate(cut))
    assert whole.scores() == pieces.scores()
    other = FollowedGVFs(QUESTIONS, ["x"], ["move"], None, 0.8, rows=T)  # (another future)
    later = other(predictions, np.r_[x[:200], -x[200:]][:, None], gap, None, {"move": moves})
    np.testing.assert_array_equal(answers[:200], later[:200])
    for q, question in enumerate(QUESTIONS):
        labels = whole.recent(q)["label"]
        expected = [plain_return(question, t, x, gap, moves.tolist()) for t in range(T)]
        np.testing.assert_allclose(labels, expected, rtol=1e-12, atol=1e-12, err_msg=question.name)
        assert whole.scores()[q]["known"] == np.isfinite(labels).sum() > 5, question.name


def test_scores_are_those_of_predictions_and_intervals_cover() -> None:
    x, time = wave(3000)
    followed = FollowedGVFs(QUESTIONS[:4], ["x"], [], 3600.0, 0.8, True, rows=400)
    rng = np.random.default_rng(0)
    predictions = rng.normal(size=(3000, 4))
    followed(predictions[:400], x[:400, None], np.zeros(400, bool), time[:400], {})
    for q, score in enumerate(followed.scores()):
        rows = followed.recent(q)
        known = np.isfinite(rows["label"]) & (rows["row"] >= 200)
        error = (rows["answer"] - rows["label"])[known]
        assert score["scored"] == known.sum()
        assert score["rmse"] == pytest.approx(math.sqrt((error**2).mean()))
        spread = ((rows["label"][known] - rows["label"][known].mean()) ** 2).mean()
        assert score["variance_explained"] == pytest.approx(1.0 - (error**2).mean() / spread)
    followed(predictions[400:], x[400:, None], np.zeros(2600, bool), time[400:], {})
    for score in followed.scores():
        assert 0.75 < score["coverage"] < 0.85, score["text"]
        assert len(score["coverage_by_hour"]) == 24


def test_a_return_that_no_log_shows_is_not_scored_and_said() -> None:
    either = Policy({"left": 0.5, "right": 0.5}, column="move")
    followed = FollowedGVFs(
        [GVF("x", gamma=0.5, policy=either, name="either"), GVF("x", gamma=1.0, name="endless")],
        ["x"], ["move"], None, 0.8,
    )  # fmt: skip
    moves = np.full(50, "left", object)
    followed(np.zeros((50, 2)), np.ones((50, 1)), np.zeros(50, bool), None, {"move": moves})
    several, endless = (score["reasons"]["variance_explained"] for score in followed.scores())
    assert "several actions" in several
    assert "does not end" in endless


def test_own_questions_have_columns_scores_and_a_section(tmp_path: Path) -> None:
    result = run(1400, ask=None, config={"questions": TABLES}, out=tmp_path / "out")
    names = [question.name for question in QUESTIONS[:4]]
    columns = set(result.predictions.column_names)
    for name in names:
        assert {name, f"{name}.low", f"{name}.high", f"{name}.usual"} <= columns
    summary = json.loads((tmp_path / "out" / "summary.json").read_text("utf-8"))
    scores = {score["text"]: score for score in summary[1:] if score["kind"] == "gvf"}
    assert list(scores) == names
    for score in scores.values():
        assert score["variance_explained"] > (0.5 if score["text"] == "mean" else -0.2), score["text"]
        assert 0.6 < score["coverage"] < 0.95
        assert {"persistence", "past_mean", "climatology", "mean"} == set(score["baselines"])
        assert score["verdict"] in ("better", "no better", "too short")
        assert np.float32(score["answer"]) == result.predictions.column(score["text"]).to_numpy()[-1]
    assert {row["text"] for row in result.baselines} >= set(names)
    page = (tmp_path / "out" / "report.html").read_text("utf-8")
    assert "Prediction and actual return, at the row that predicts" in page
    assert "until high: " in page
