"""Questions of one line on a table, on a pipe and after a kill: the same answers everywhere."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from emphatic import nexting
from emphatic.nexting.runs.learning import make_guard, make_horde
from emphatic.nexting.runs.predictor import Predictor
from emphatic.nexting.runs.settings import Settings
from emphatic.nexting.tables import open_table
from tests.support.streams import wave

ASK = ["P(x > 3 within 3h)", "`the x` at +2h", "time until x > 3 up to 12h"]


def table(rows: int = 700) -> dict[str, Any]:
    x, time = wave(rows)
    stamps = time.astype("int64").astype("datetime64[s]")
    return {"when": stamps, "x": x, "the x": x * 2}


def run(rows: int = 700, **options: Any) -> nexting.NextingResult:
    arguments: dict[str, Any] = {"predict": "x", "horizons": [2], "ask": ASK} | options
    return nexting.run(table(rows), **arguments)


def test_answers_scores_and_report_of_a_table(tmp_path: Path) -> None:
    result = run(out=tmp_path / "out")
    columns = result.predictions.column_names
    for text in ASK:
        assert {text, f"{text}.low", f"{text}.high", f"{text}.usual"} <= set(columns)
    summary = json.loads((tmp_path / "out" / "summary.json").read_text("utf-8"))
    assert [score.get("text") for score in summary] == [None, "x at +2", "mean of x over 2", *ASK]
    event, value, until = summary[3:]
    assert {"text", "kind", "horizon", "known", "dropped_windows", "answer", "usual"} <= set(event)
    assert {"brier", "skill", "ece", "reliability"} <= set(event)
    assert {"mae", "skill", "coverage", "coverage_by_hour", "interval_score"} <= set(value)
    assert (event["kind"], value["kind"], until["kind"]) == ("event", "at", "until")
    last = result.predictions.column(ASK[1]).to_numpy()[-1]
    assert np.float32(value["answer"]) == last
    # The other objects and columns are as they are without questions.
    plain = run(ask=None)
    assert plain.predictions.column_names == [c for c in columns if not c.startswith(tuple(ASK))]
    for name in plain.predictions.column_names:
        column, same = (of.predictions.column(name).to_numpy() for of in (plain, result))
        np.testing.assert_array_equal(column, same, name)
    assert plain.summary[1:] == result.summary[1:3]
    page = (tmp_path / "out" / "report.html").read_text("utf-8")
    assert "Within the next 3 h x exceeds 3 with probability" in page


def readings(rows: int) -> list[tuple[int, dict[str, Any]]]:
    columns = table(rows)
    return [
        (t + 1, {"when": str(columns["when"][t]), "x": float(columns["x"][t]), "the x": float(columns["the x"][t])})
        for t in range(rows)
    ]


def test_a_live_model_is_asked_more_and_less() -> None:
    settings = Settings(predict=("x",), horizons=(2,), ask=(ASK[0],))
    rows = readings(360)
    plain, asked = Predictor(settings, warm_up=300), Predictor(settings, warm_up=300)
    plain.take(rows[:330])
    asked.take(rows[:330])
    asked.ask("x at +1h")
    middle: list[Any] = list(asked.take(rows[330:345]))
    line = json.loads(middle[-1].line)
    assert list(line["asked"]) == ["mean of x over 2", ASK[0], "x at +1h"]
    assert line["predictions"]["x"].keys() == {"2"}
    assert asked.settings.ask == (ASK[0], "x at +1h")
    asked.stop_asking("x at +1h")
    after: list[Any] = list(asked.take(rows[345:]))
    expected: list[Any] = list(plain.take(rows[330:]))
    assert [outcome.line for outcome in after] == [outcome.line for outcome in expected[15:]]
    with pytest.raises(ValueError, match="Did you mean"):
        asked.ask("xx at +1h")


def test_a_weighted_mean_is_one_number_however_it_is_asked_for() -> None:
    """By name, for all signals and horizons, on a pipe from its beginning or within its warm-up, where TD learns it."""
    by_name, of_all = run(ask=["x@6"], horizons=[2, 6]), run(ask=None, horizons=[2, 6], weighted=True)
    assert "x@2" not in by_name.predictions.column_names
    kinds = ["x@6", "x@6.low", "x@6.high", "x@6.usual"]
    expected = np.stack([of_all.predictions.column(name).to_numpy() for name in kinds], axis=1)
    typed = np.stack([by_name.predictions.column(name).to_numpy() for name in kinds], axis=1)
    np.testing.assert_array_equal(typed, expected)
    settings, rows = Settings(predict=("x",), horizons=(2, 6)), readings(700)
    for weighted in (True, False):
        model = Predictor(replace(settings, weighted=weighted))
        model.take(rows[:400])
        model.ask("x@6")
        outcomes: list[Any] = list(model.take(rows[400:]))
        said = np.stack([outcome.said.asked[model.asked.texts.index("x@6")] for outcome in outcomes[99:]])
        assert list(json.loads(outcomes[-1].line)["asked"])[-1] == "x@6"
        assert np.all((said[:, 0].astype(np.float32) == expected[499:, 0]) & (said[:, 1] >= expected[499:, 1]))
        model.stop_asking("x@6")
        assert ("x@6" in model.asked.texts) == weighted


def test_the_score_of_td_is_that_of_its_predictions() -> None:
    result, far = run(ask=["x@6", "x@30", "`the x`@6"], horizons=[2, 6]), 26  # (5/6)²⁶ < .01
    scores = {score["text"]: score for score in result.summary[1:]}
    opened = open_table(table())
    guard = make_guard(result.settings, opened.names)
    horde = make_horde(result.settings, 3600.0).warm_up(opened, 500, guard)
    predictions = horde.run(opened)[:, horde.names.index("x@6")]
    weights = (5 / 6) ** np.arange(far)
    followed = np.lib.stride_tricks.sliding_window_view(table()["x"][1:], far) @ (weights / weights.sum())
    use = np.arange(350, len(followed))
    error, td = ((predictions[use] - followed[use]) ** 2).mean(), scores["x@6"]["td"]
    assert td["rmse"] == pytest.approx(error**0.5)
    assert td["variance_explained"] == pytest.approx(1.0 - error / followed[use].var())
    assert td["rmse"] > scores["x@6"]["rmse"]
    assert scores["x@30"]["td"] is not None
    assert scores["`the x`@6"]["td"] is None  # it is not predicted
    assert "td" not in scores["x at +2"]


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        ("P(x > 3 in 3h)", "Did you mean 'P\\(x > 3 within 3h\\)'"),
        ("y at +2h", "no signal 'y'"),
        ("x at +2min", "shorter than a typical step"),
        (["x at +1h", "x at +1h"], "asked twice"),
        ([3], "must be a list of questions"),
    ],
)
def test_a_question_that_cannot_be_asked_is_refused_before_anything_is_learned(ask: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        run(ask=ask)


def test_a_code_for_missing_readings_is_no_event_and_a_far_reading_is() -> None:
    x = 20.0 + np.sin(np.arange(1500) / 20.0)
    x[800:830] = -999.0
    x[1200] = 1e4
    ask = ["P(x < 0 within 10 rows)", "P(x > 100 within 10 rows)", "x at +10 rows", "max of x within 10 rows"]
    result = nexting.run({"x": x}, horizons=[2], ask=ask)
    scores = {score["text"]: score for score in result.summary[1:]}
    below, above, value, highest = (scores[text] for text in ask)
    assert below["rate"] == 0.0
    assert below["dropped_windows"] >= 30
    assert above["rate"] * above["scored"] == pytest.approx(10.0)  # (one for each window that it is in)
    assert max(value["rmse"], highest["rmse"]) < 5.0


def test_a_question_asked_live_takes_the_name_of_no_other_column() -> None:
    own = {"name": "x at +3", "cumulant": "x", "gamma": 0.5}
    model = nexting.run({"x": np.sin(np.arange(300) / 9)}, horizons=[2], config={"questions": [own]}).model
    before = model.asked.texts
    with pytest.raises(ValueError, match="'x at \\+3' is asked, and a question or column has that name already"):
        model.ask("x at +3")
    with pytest.raises(ValueError, match="a question must be text"):
        model.ask(3)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="'x at \\+2' is not among the questions added: none"):
        model.stop_asking("x at +2")
    assert model.asked.texts == before
