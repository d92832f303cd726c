"""Questions of one line on a table, on a pipe and after a kill: the same answers everywhere."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from emphatic import nexting
from emphatic.nexting.predictor import Predictor
from emphatic.nexting.settings import Settings
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
