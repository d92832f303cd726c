"""Own questions: which rule they have, and the words beside answers that are unsupported or impossible."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import emphatic
from emphatic import DivergenceWarning
from emphatic.nexting.cli.nexting import asked_lines
from emphatic.nexting.runs.gvfs import find_marks
from emphatic.nexting.runs.predictor import Predictor
from emphatic.nexting.runs.settings import Settings
from emphatic.nexting.serve.service import RecentRows

UP = {"column": "way", "target": {"up": 1.0}, "behaviour": "count"}
NEAR = {"name": "if up", "cumulant": "x", "horizon": 3, "policy": UP}
FAR = {"name": "if always up", "cumulant": "x", "horizon": 60, "policy": UP}
PLAIN = {"name": "often", "cumulant": "x > 0", "gamma": 0.9}
QUESTIONS = (NEAR, FAR, PLAIN)


def log(rows: int = 800) -> dict[str, Any]:
    rng = np.random.default_rng(0)
    way = rng.choice(["up", "down"], rows)
    x = np.zeros(rows)
    for t in range(1, rows):
        x[t] = 0.9 * x[t - 1] + (0.3 if way[t - 1] == "up" else -0.3) + 0.1 * rng.normal()
    return {"x": x, "way": way.astype(object)}


def run(out: Path, **config: Any) -> Any:
    return emphatic.nexting.run(log(), out=out, horizons=(2, 9), config={"questions": QUESTIONS, **config})


def test_a_run_learns_what_if_within_what_is_possible(tmp_path: Path) -> None:
    result = run(tmp_path / "out")
    horde = result.model.forecaster.horde
    assert [learner.rule.name for learner in horde.learners] == ["true_online_etd", "bounded_etd"]
    low, high = horde.possible
    for q, name in enumerate(horde.names):
        if name.startswith("if"):
            answers = np.array(result.predictions.column(name))
            assert low[q] <= answers.min() < answers.max() <= high[q]
    marks = {score["text"]: score.get("mark") for score in result.summary[1:] if score["kind"] == "gvf"}
    assert marks == {"if up": None, "if always up": "unsupported", "often": None}
    lines = asked_lines(result.summary[1:])
    assert [" (unsupported)" in line.split(".")[1] for line in lines] == [False, True, False]
    page = (tmp_path / "out" / "report.html").read_text("utf-8")
    assert "(unsupported)" in page
    assert "impossible" not in page


@pytest.mark.filterwarnings("ignore:.*which is impossible:emphatic.DivergenceWarning")
@pytest.mark.parametrize("given", [{}, {"rule": "td"}, {"rule": "true_online_etd", "rate": 0.4}, {"rate": 0.4}])
def test_a_rule_or_a_rate_that_is_given_counts_for_every_question(given: dict[str, Any], tmp_path: Path) -> None:
    horde = run(tmp_path / "out", **given).model.forecaster.horde
    rules = {learner.rule.name for learner in horde.learners}
    assert rules == ({given["rule"]} if "rule" in given else {"true_online_etd", "bounded_etd"})
    names = [horde.names[q] for share in horde.shares for q in share]
    rates = dict(zip(names, np.concatenate([group.setup.rates for group in horde.groups]).tolist(), strict=True))
    assert rates == {name: given.get("rate", 0.3 if name.startswith("if") else 0.1) for name in horde.names}


def test_a_page_that_shows_the_impossible_says_so(tmp_path: Path) -> None:
    with pytest.warns(DivergenceWarning, match="'if up' predicts"):
        result = run(tmp_path / "out", rule="true_online_etd", rate=0.4)
    answers, horde = np.array(result.predictions.column("if up")), result.model.forecaster.horde
    low, high = (bound[horde.names.index("if up")] for bound in horde.possible)
    assert (answers[-400:] > high).any() or (answers[-400:] < low).any()
    page = (tmp_path / "out" / "report.html").read_text("utf-8")
    assert f"; values below {low:.4g} or above {high:.4g} are impossible" in page
    (score,) = (score for score in result.summary[1:] if score["text"] == "if up")
    assert score["mark"] == "impossible"
    assert not low <= score["answer"] <= high
    assert asked_lines([score | {"mark": "impossible"}])[0].startswith(f"if up: {score['answer']:.4g} (impossible)")


def test_lines_and_the_live_page_have_the_words() -> None:
    data = log(300)
    predictor = Predictor(Settings(horizons=(2,), predict=("x",), questions=QUESTIONS), warm_up=100)
    readings = [(t + 1, {"x": data["x"][t], "way": data["way"][t]}) for t in range(300)]
    outcomes: list[Any] = []
    for begin, end in pairwise([0, 100, 150, 299, 300]):
        outcomes += predictor.take(readings[begin:end])
    predictions = [outcome for outcome in outcomes if outcome is not None]
    last = json.loads(predictions[-1].line)
    assert last["marks"] == {"if always up": {"60": "unsupported"}}
    assert list(last)[-1] == "marks"
    recent = RecentRows(("x",), predictions[-1].format)
    recent.add(predictions[-2:])
    columns = recent.columns("if always up", 0, 9)
    assert columns is not None
    assert columns["mark"] == {"60": ["unsupported"] * 2}
    plain = recent.columns("often", 0, 9)
    assert plain is not None
    assert plain["mark"] == {"0.9": [None] * 2}


def test_signals_have_no_marks() -> None:
    predictor = Predictor(Settings(horizons=(2,), predict=("x",), questions=(PLAIN,)), warm_up=6)
    outcomes: list[Any] = predictor.take([(t + 1, {"x": 0.1 * t}) for t in range(8)])
    last = json.loads([outcome for outcome in outcomes if outcome is not None][-1].line)
    assert last["marks"] == {"often": {"0.9": "unsupported"}}


def test_what_is_impossible_is_marked_before_what_is_unsupported() -> None:
    answers = np.array([[0.0, 1.0, 1.1, -0.1, np.nan], [-9.0, 0.5, 0.5, 0.5, 0.5]])
    possible, support = np.array([[0.0] * 5, [1.0] * 5]), np.array([10.0, 9.9, 99.0, 0.0, np.nan])
    assert find_marks(answers, possible, support).tolist() == [[0, 1, 2, 2, 0], [2, 1, 0, 1, 0]]
