"""The result of a run as an object: its verdicts, baselines, forecast, frames, plot, files; what is taken as a log."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from emphatic import Horde, Learner, nexting
from emphatic.nexting import NextingResult
from emphatic.nexting.predictor import Prediction, Predictor
from emphatic.nexting.runner import verdict_lines
from emphatic.nexting.scoring import ScoreTable

T = 24 * 30
KEYS = ["verdict", "best_baseline", "skill_best", "skill_best_low", "skill_best_high", "baselines"]


@pytest.fixture(scope="module")
def result() -> NextingResult:
    rng = np.random.default_rng(1)
    time = np.datetime64("2024-01-01T00:00:00") + np.arange(T) * np.timedelta64(3600, "s")
    wave = np.sin(2 * np.pi * np.arange(T) / 24)
    for t in range(1, T):
        wave[t] += 0.97 * (wave[t - 1] - np.sin(2 * np.pi * (t - 1) / 24)) + 0.1 * rng.normal()
    log = {"time": time, "wave": wave, "noise": rng.normal(size=T)}
    return nexting.run(log, horizons=["2h", "6h"], ask=["wave at +3h", "P(wave > 0.5 within 2h)"], offline=False)


def test_every_question_of_the_summary_has_a_verdict(result: NextingResult) -> None:
    assert len(result.summary) == 6
    names = {
        "rate",
        "climatology",
        "so_now",
        "persistence",
        "mean",
        "past_mean",
        *("last_day", "last_week", "last_period", "usual_day", "usual_week", "usual_period"),
        *("moving_average", "drift"),
    }
    for score in result.summary:
        assert all(key in score for key in KEYS)
        assert score["verdict"] in ("better", "no better", "too short")
        errors = {name: measures["rmse"] for name, measures in score["baselines"].items()}
        assert set(errors) <= names
        assert score["best_baseline"] == min(errors, key=lambda name: errors[name])
        ours = score["rmse"] if "rmse" in score else np.sqrt(score["brier"])
        assert score["skill_best"] == pytest.approx(1 - ours**2 / errors[score["best_baseline"]] ** 2)
        assert score["skill_best_low"] <= score["skill_best"] <= score["skill_best_high"]
        assert (score["verdict"] == "better") == (score["skill_best_low"] > 0)
        assert all("variance_explained" in measures for measures in score["baselines"].values())
    event, plain = result.summary[5], result.summary[0]
    assert {"so_now", "past_mean", "rate"} <= set(event["baselines"])
    assert isinstance(plain["skill"], float)
    assert plain["skill"] == pytest.approx(1 - plain["rmse"] ** 2 / plain["persistence"]["rmse"] ** 2)


def test_the_verdict_on_a_signal_is_that_of_its_best_horizon(result: NextingResult) -> None:
    wave, noise = result.verdict
    assert (wave["signal"], wave["verdict"]) == ("wave", "better")
    assert (noise["signal"], noise["verdict"]) == ("noise", "no better")
    assert noise["sentence"].startswith("noise is predicted no better than with ")
    (value,) = (s for s in result.summary if s.get("text") == "wave at +3h")
    assert (wave["kind"], wave["horizon"], wave["skill_best_low"]) == ("value", "3h", value["skill_best_low"])
    (best,) = (s for s in result.summary if s.get("signal") == "noise" and s["horizon"] == noise["horizon"])
    assert (noise["kind"], noise["skill_best"]) == ("mean", best["skill_best"])  # no value of noise was predicted
    assert noise["skill_best_low"] < best["skill_best_low"]  # its level is divided by the number of horizons
    assert result.summary[0]["signals"] == result.verdict
    assert "wave is predicted better than with" in result._repr_html_()


def test_the_summary_is_a_list_that_shows_as_a_table(result: NextingResult) -> None:
    assert isinstance(result.summary, list)
    assert json.loads(json.dumps(result.summary)) == list(result.summary)
    head = repr(result.summary).splitlines()[0].split()
    assert head[:4] == ["text", "signal", "horizon", "verdict"]
    assert "<table>" in result.summary._repr_html_()
    frame = result.summary.to_pandas()
    assert frame["verdict"].tolist() == [score["verdict"] for score in result.summary]
    assert not result.baselines.to_pandas()["rmse"].isna().any()
    assert repr(ScoreTable()) == ""
    assert ScoreTable([{"<b>": "<i>"}])._repr_html_().count("&lt;") == 2


def test_forecasts_are_values_where_they_were_asked_for_and_means_elsewhere(result: NextingResult) -> None:
    rows = result.forecast()
    assert [(row["signal"], row["kind"], row["horizon"]) for row in rows] == [
        ("wave", "value", "3h"),
        ("noise", "mean", "2h"),
        ("noise", "mean", "6h"),
    ]
    assert all({"signal", "time", "mean", "low", "high"} <= set(row) for row in rows)
    assert all(row["low"] <= row["mean"] <= row["high"] for row in rows)
    last = result.to_pandas().index[-1]
    assert [(row["time"] - last).total_seconds() for row in rows] == [3 * 3600.0, 2 * 3600.0, 6 * 3600.0]
    assert rows.to_pandas()["mean"].notna().all()
    assert rows.to_pandas()["time"].dt.year.tolist() == [2024] * len(rows)
    assert repr(rows).splitlines()[0].split()[:3] == ["signal", "time", "mean"]


def test_frames_and_plots(result: NextingResult) -> None:
    frame = result.to_pandas()
    assert len(frame) == T
    assert frame.index.name == "time"
    figure = result.plot("wave")
    (axes,) = figure.axes
    assert axes.get_title(loc="left") == "wave: recent readings and forecast"
    names = [text.get_text() for text in axes.get_legend().get_texts()]
    assert names[0] == "reading"
    assert names[-1] == "forecast with its 80% interval"
    assert any(name.startswith("best baseline: ") for name in names)
    assert len(axes.get_yticks()) > 2
    dots = next(line for line in axes.get_lines() if line.get_label() == names[-1])
    values = [row["mean"] for row in result.forecast() if row["signal"] == "wave"]
    np.testing.assert_allclose(sorted(dots.get_ydata()), sorted(values), rtol=1e-3)
    means = result.plot("noise")  # (no value of noise was forecast)
    assert len(result.plot("wave", view="means").axes) == 3
    assert means.get_suptitle() == "noise: weighted means of future values"
    assert len(means.axes) == 3
    with pytest.raises(ValueError, match=r"no plot of 'nose'\. Signals with a plot: wave, noise"):
        result.plot("nose")


def answer_alike(predictor: Predictor, models: list[Horde], row: dict[str, Any]) -> None:
    """A pipe and models that observe the same row answer the same questions, to the bit."""
    (prediction,) = predictor.take([(1, row)])
    assert isinstance(prediction, Prediction)
    for model in models:
        model.observe(row)
        assert list(model.asked) == list(prediction.format.asked)
        answers = [[column[0] for column in kinds.values()] for kinds in model.asked.values()]
        np.testing.assert_array_equal(answers, prediction.asked)


def test_the_model_continues_the_questions_as_a_pipe_does(result: NextingResult, tmp_path: Path) -> None:
    file = result.save(tmp_path / "saved") / "model.safetensors"
    predictor, _ = Predictor.load(file)
    models = [result.model, nexting.load(file.parent).model, Horde.load(file)]
    for hour in ("00:00", "01:00", "02:00"):
        answer_alike(predictor, models, {"time": f"2024-01-31 {hour}", "wave": 0.3, "noise": 0.1})
    assert {"wave at +3h", "P(wave > 0.5 within 2h)"} <= {score["text"] for score in models[0].asked_scores()}
    models[2].ask("noise at +24h")
    models[2].observe({"wave": 0.3}, time=datetime(2024, 1, 31, 3, tzinfo=UTC))
    models[2].save(tmp_path / "model.safetensors")
    again = Horde.load(tmp_path / "model.safetensors")
    for model in (models[2], again):
        model.observe({"wave": 0.2, "noise": 0.4}, time=np.datetime64("2024-01-31T04:00"))
    assert str(again.asked) == str(models[2].asked)
    assert again.asked["noise at +24h"]["answer"].shape == (1,)


@pytest.mark.usefixtures("headline")
def test_the_model_continues_the_values_at_each_horizon_too(tmp_path: Path) -> None:
    time = np.datetime64("2024-01-01T00:00:00") + np.arange(300) * np.timedelta64(3600, "s")
    log = {"time": time, "y": np.cos(np.arange(300) / 7), "x": np.sin(np.arange(300) / 5)}
    result = nexting.run(log, predict=["x"], horizons=[2.5, 4], offline=False, out=tmp_path / "run")
    predictor, _ = Predictor.load(tmp_path / "run" / "model.safetensors")
    models = [result.model, Horde.load(tmp_path / "run" / "model.safetensors")]
    for hour in ("12:00", "13:00", "14:00"):
        answer_alike(predictor, models, {"time": f"2024-01-13 {hour}", "x": 0.3, "y": 0.1})
        for model in models:
            assert list(model.asked) == ["x at +4", "mean of x over 4"]  # (a question cannot name 2.5 rows)
    assert [score["text"] for score in result.model.asked_scores()] == ["x at +4", "mean of x over 4"]
    result.model.restart().observe({"time": "2024-01-13 15:00", "x": 0.3, "y": 0.1})
    assert list(result.model.asked) == ["x at +4", "mean of x over 4"]


def test_a_name_that_is_not_a_signal_is_an_error_with_the_nearest_signal(result: NextingResult) -> None:
    model, rows = result.model, result.model.rows
    for row in ({"wav": 0.3}, {"Wave": 0.3, "noise": 0.1}, {"watt": 1.0}, {"waves": None, "noise": 0.1}):
        with pytest.raises(ValueError, match=r"must name signals\. Got '.*' instead\. .*The signals are wave, noise\."):
            model.observe(row, time="2024-02-01")
    with pytest.raises(ValueError, match="Did you mean 'wave'"):
        model.observe_many({"wav": [0.3], "noise": [0.1]}, time=[0.0])
    assert model.rows == rows
    with pytest.raises(ValueError, match=r"time=np\.datetime64.*in the row: {'time'"):
        model.observe({"wave": 0.3, "noise": 0.1})
    model.observe({"wave": 0.3, "unused": 7.0}, time="2024-02-01")  # noise is missing; other columns are ignored


def test_a_notebook_shows_each_sentence_once_and_the_forecast(result: NextingResult) -> None:
    page = result._repr_html_()
    assert page.count(" is predicted ") == 2
    assert "skill_best" not in page
    assert "<th>skill over the best baseline</th>" in page
    assert page.index("Forecast from the last row") < page.index("<th>forecast</th>")
    assert "2024-01-31" in page


def test_an_unknown_keyword_is_an_error_with_the_nearest_one() -> None:
    with pytest.raises(TypeError, match=r"^run\(\) has no parameter 'horizon'\. Did you mean 'horizons'\?$"):
        nexting.run({"x": [1.0]}, horizon=5)  # type: ignore[call-arg]
    with pytest.raises(ValueError, match=r"Did you mean 'true_online_etd'\?$"):
        Learner("true_online_edt", 3)


def test_a_result_is_saved_and_loaded(result: NextingResult, tmp_path: Path) -> None:
    folder = result.save(tmp_path / "saved")
    assert sorted(file.name for file in folder.iterdir()) == sorted(nexting.runner.FILES)
    again = nexting.load(folder)
    assert again.summary == result.summary
    assert again.verdict == result.verdict
    assert again.forecast() == result.forecast()
    assert again.predictions.column_names == result.predictions.column_names
    assert again.predictions.column("wave@2h").equals(result.predictions.column("wave@2h"))
    assert again.settings == result.settings
    assert again.rows == T
    copy = again.save(tmp_path / "copy")
    assert (copy / "summary.json").read_bytes() == (folder / "summary.json").read_bytes()
    with pytest.raises(ValueError, match=r"holds the results of an earlier run.* with overwrite=True"):
        result.save(folder)
    assert result.save(folder, overwrite=True) == folder
    assert again.save(copy, overwrite=True) == copy
    assert nexting.load(copy).verdict == result.verdict
    (copy / "predictions.parquet").unlink()
    with pytest.raises(ValueError, match=r"no finished run: there is no predictions\.parquet"):
        nexting.load(copy)
    (folder / "summary.json").write_text("[]", "utf-8")
    with pytest.raises(ValueError, match="not the summary"):
        nexting.load(folder)


def test_machines_have_verdicts_and_forecasts_of_their_own(tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    log = {"unit": np.repeat(["a", "b"], 300), "x": np.concatenate([rng.normal(size=300), np.sin(np.arange(300) / 9)])}
    machines = nexting.run(log, by="unit", horizons=[3], offline=False)
    assert [(row["machine"], row["signal"]) for row in machines.verdict] == [("a", "x"), ("b", "x")]
    assert verdict_lines(machines.verdict)[-1].startswith(("a: x", "b: x"))
    assert [row["machine"] for row in machines.forecast()] == ["a", "b"]
    again = nexting.load(machines.save(tmp_path / "saved"))
    assert again.verdict == machines.verdict
    assert list(again.models) == ["a", "b"]


def test_series_and_named_indexes_and_structured_arrays_are_logs() -> None:
    pd = pytest.importorskip("pandas")
    x, when = np.sin(np.arange(400) / 9), pd.date_range("2024-01-01", periods=400, freq="h", name="when")
    record = np.empty(400, [("when", "datetime64[m]"), ("power", "f8")])
    record["when"], record["power"] = when.to_numpy().astype("datetime64[m]"), x
    logs: list[Any] = [
        pd.Series(x, when, name="power"),
        pd.Series(x, when.to_period("h"), name="power"),
        pd.DataFrame({"power": x}, when),
        record,
        {"when": record["when"], "power": x},
    ]
    runs = [nexting.run(log, horizons=[2], offline=False) for log in logs]
    for run in runs:
        assert run.reading["time"]["columns"] == ["when"]
        assert run.predictions.column("power@2").equals(runs[0].predictions.column("power@2"))
    assert nexting.run(pd.Series(x), horizons=[2], offline=False).summary[0]["signal"] == "value"


def test_a_model_observes_after_a_run_with_dates(result: NextingResult) -> None:
    model, reading = result.model, {"wave": 0.1, "noise": 0.2}
    with pytest.raises(ValueError, match=r"Pass the time of the row, .* such as time=np.datetime64"):
        model.observe(reading)
    day = "2024-02-01 "
    predictions = [
        model.observe(reading, time=np.datetime64(f"{day}00:00"), learn=False),
        model.observe(reading, time=f"{day}00:00", learn=False),
        model.observe(reading, time=datetime(2024, 2, 1, tzinfo=UTC), learn=False),
        model.observe({**reading, "time": f"{day}00:00"}, learn=False),
    ]
    for prediction in predictions:
        assert prediction.shape == (4,)
        assert np.isfinite(prediction).all()
    with pytest.raises(ValueError, match="be a time such as"):
        model.observe(reading, time="yesterday")
