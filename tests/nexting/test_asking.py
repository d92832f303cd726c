"""Questions of one line on a table, on a pipe and after a kill: the same answers everywhere."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from emphatic import GVF, Horde, features, nexting
from emphatic.nexting.predictor import Predictor
from emphatic.nexting.settings import Settings
from tests.support.streams import wave

ASK = ["P(x > 3 within 3h)", "`the x` at +2h", "time until x > 3 up to 12h"]


def table(rows: int = 700) -> dict[str, Any]:
    x, time = wave(rows)
    stamps = time.astype("int64").astype("datetime64[s]")
    return {"when": stamps, "x": x, "the x": x * 2}


def run(**options: Any) -> nexting.NextingResult:
    arguments: dict[str, Any] = {"predict": "x", "horizons": [2], "offline": False, "ask": ASK} | options
    return nexting.run(table(), **arguments)


def test_answers_scores_and_report_of_a_table(tmp_path: Path) -> None:
    result = run(out=tmp_path / "out")
    columns = result.predictions.column_names
    for text in ASK:
        assert {text, f"{text}.low", f"{text}.high", f"{text}.usual"} <= set(columns)
    summary = json.loads((tmp_path / "out" / "summary.json").read_text("utf-8"))
    assert [score.get("text") for score in summary] == [None, *ASK]
    event, value, until = summary[1:]
    assert {"text", "kind", "horizon", "known", "dropped_windows", "answer", "usual"} <= set(event)
    assert {"brier", "skill", "ece", "reliability"} <= set(event)
    assert {"mae", "skill", "coverage", "coverage_by_hour", "interval_score"} <= set(value)
    assert (event["kind"], value["kind"], until["kind"]) == ("event", "at", "until")
    last = result.predictions.column(ASK[1]).to_numpy()[-1]
    assert np.float32(value["answer"]) == last
    # The other objects and columns are as they are without questions.
    plain = run(ask=None)
    assert plain.predictions.column_names == [c for c in columns if not c.startswith(tuple(ASK))]
    np.testing.assert_array_equal(
        plain.predictions.column("x@2").to_numpy(), result.predictions.column("x@2").to_numpy()
    )
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
    assert json.loads(middle[-1].line)["asked"].keys() == {ASK[0], "x at +1h"}
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
    result = nexting.run({"x": x}, horizons=[2], offline=False, ask=ask, exponential_only=True)
    scores = {score["text"]: score for score in result.summary if "text" in score}
    below, above, value, highest = (scores[text] for text in ask)
    assert below["rate"] == 0.0
    assert below["dropped_windows"] >= 30
    assert above["rate"] * above["scored"] == pytest.approx(10.0)  # (one for each window that it is in)
    assert max(value["rmse"], highest["rmse"]) < 5.0


def make_horde(**options: Any) -> Horde:
    maker = features.Features([features.Bias(), features.SoftBins("x", bins=4)])
    return Horde([GVF("x", horizon=2)], maker, rates=0.3, **options)


def test_a_horde_answers_as_a_run_on_the_table_does(tmp_path: Path) -> None:
    whole = run()
    columns = table()
    horde = make_horde(ask=ASK)
    plain = make_horde()
    np.testing.assert_array_equal(horde.run(columns), plain.run(columns))
    for text in ASK:
        assert set(horde.asked[text]) == {"answer", "low", "high", "usual"}
        answers = horde.asked[text]["answer"].astype(np.float32)
        np.testing.assert_array_equal(answers, whole.predictions.column(text).to_numpy())
    assert [score["text"] for score in horde.asked_scores()] == ASK
    # It is saved, goes on with the same bits, and a question comes and goes.
    half = make_horde(ask=ASK)
    half.run({name: column[:500] for name, column in columns.items()})
    half.save(tmp_path / "horde.safetensors")
    loaded = Horde.load(tmp_path / "horde.safetensors")
    for one in (half, loaded):
        one.run({name: column[500:] for name, column in columns.items()})
    for text in ASK:
        np.testing.assert_array_equal(half.asked[text]["answer"], loaded.asked[text]["answer"])
        np.testing.assert_array_equal(half.asked[text]["answer"], horde.asked[text]["answer"][500:])
    loaded.ask("x at +1h")
    row = {"x": 0.5, "the x": 1.0}
    loaded.observe(row, time="2023-12-20T00:00:00")
    assert loaded.asked["x at +1h"]["answer"].shape == (1,)
    loaded.stop_asking("x at +1h")
    with pytest.raises(ValueError, match="no signal 'y'"):
        make_horde(ask="y at +1h").run(columns)
    with pytest.raises(ValueError, match="Did you mean"):
        make_horde(ask="P(x > 3 in 3h)")


def test_a_horde_that_does_not_learn_keeps_its_questions_as_they_are() -> None:
    columns = table(400)
    first, later = ({name: column[rows] for name, column in columns.items()} for rows in (slice(300), slice(300, 400)))
    one, two = make_horde(ask=ASK[:1]), make_horde(ask=ASK[:1])
    one.run(first)
    two.run(first)
    two.observe({"x": 1.0, "the x": 2.0}, time="2023-11-27T02:00:00", learn=False)
    np.testing.assert_array_equal(one.asked_scores()[0]["known"], two.asked_scores()[0]["known"])
    for horde in (one, two):
        horde.run(later)
    np.testing.assert_array_equal(one.asked[ASK[0]]["answer"], two.asked[ASK[0]]["answer"])
