"""The result of a run as an object: its verdicts, baselines, forecast, frames, plot, files; what is taken as a log."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import emphatic
from emphatic import CheckpointError, Horde, Learner, nexting
from emphatic.nexting import NextingResult
from emphatic.nexting.runs.predictor import Prediction, Predictor
from emphatic.nexting.runs.runner import FILES, verdict_lines
from emphatic.nexting.runs.scoring import ScoreTable

T = 24 * 30
KINDS = ("%s at +", "mean of %s over ")
KEYS = ["verdict", "best_baseline", "skill_best", "skill_best_low", "skill_best_high", "baselines"]


@pytest.fixture(scope="module")
def result() -> NextingResult:
    rng = np.random.default_rng(1)
    time = np.datetime64("2024-01-01T00:00:00") + np.arange(T) * np.timedelta64(3600, "s")
    wave = np.sin(2 * np.pi * np.arange(T) / 24)
    for t in range(1, T):
        wave[t] += 0.97 * (wave[t - 1] - np.sin(2 * np.pi * (t - 1) / 24)) + 0.1 * rng.normal()
    log = {"time": time, "wave": wave, "noise": rng.normal(size=T)}
    return nexting.run(log, horizons=["2h", "6h"], ask=["wave at +3h", "P(wave > 0.5 within 2h)"])


def test_every_question_of_the_summary_has_a_verdict(result: NextingResult) -> None:
    reading, *scores = result.summary
    assert list(reading) == ["reading", "signals"]
    default = [f"{kind % name}{h}" for name in ("wave", "noise") for h in ("2h", "6h") for kind in KINDS]
    assert [score["text"] for score in scores] == [*default, "wave at +3h", "P(wave > 0.5 within 2h)"]
    assert [score["kind"] for score in scores] == ["at", "mean"] * 4 + ["at", "event"]
    assert [score["default"] for score in scores] == [True] * 8 + [False] * 2
    names = {"persistence", "past_mean", "moving_average", "drift", "last_day", "usual_day", "last_week", "usual_week"}
    for score in scores:
        assert all(key in score for key in KEYS)
        assert score["verdict"] in ("better", "no better", "too short")
        errors = {name: measures["rmse"] for name, measures in score["baselines"].items()}
        if score["kind"] == "event":
            assert {"so_now", "past_mean", "rate"} <= set(errors)
        else:
            assert set(errors) == names | {"mean"}
        assert score["best_baseline"] == min(errors, key=lambda name: errors[name])
        assert score["skill_best"] == pytest.approx(1 - score["rmse"] ** 2 / errors[score["best_baseline"]] ** 2)
        assert score["skill"][score["best_baseline"]] == pytest.approx(score["skill_best"])
        assert score["skill_best_low"] <= score["skill_best"] <= score["skill_best_high"]
        assert (score["verdict"] == "better") == (score["skill_best_low"] > 0)
        for measures in score["baselines"].values():
            assert {"rmse", "mae", "variance_explained", "answer"} <= set(measures)


def test_the_verdict_on_a_signal_is_that_of_its_best_horizon(result: NextingResult) -> None:
    wave, noise = result.verdict
    assert (wave["signal"], wave["verdict"]) == ("wave", "better")
    assert (noise["signal"], noise["verdict"]) == ("noise", "no better")
    assert noise["sentence"].startswith("noise is predicted no better than with ")
    for row, count in ((wave, 3), (noise, 2)):  # of the values at so many horizons
        (best,) = (s for s in result.summary[1:] if s["text"] == f"{row['signal']} at +{row['horizon']}")
        assert (row["best_baseline"], row["skill_best"]) == (best["best_baseline"], best["skill_best"])
        assert row["skill_best_low"] < best["skill_best_low"]  # the level of each is divided by their number
        others = [s["skill_best"] for s in result.summary[1:] if (s["signal"], s["kind"]) == (row["signal"], "at")]
        assert len(others) == count
        assert {"periods", "alarms", "alarm_rows"} <= set(row)
    assert result.summary[0]["signals"] == result.verdict
    assert "wave is predicted better than with" in result._repr_html_()


def test_the_summary_is_a_list_that_shows_as_a_table(result: NextingResult) -> None:
    assert isinstance(result.summary, list)
    assert json.loads(json.dumps(result.summary)) == list(result.summary)
    head = repr(result.summary).splitlines()[0].split()
    assert head[:4] == ["text", "kind", "signal", "horizon"]
    assert "<table>" in result.summary._repr_html_()
    frame = result.summary.to_pandas()
    assert frame["verdict"].tolist() == [score["verdict"] for score in result.summary[1:]]
    assert not result.baselines.to_pandas()["rmse"].isna().any()
    assert repr(ScoreTable()) == ""
    assert ScoreTable([{"<b>": "<i>"}])._repr_html_().count("&lt;") == 2


def test_a_forecast_has_a_row_for_each_question_about_a_signal_by_itself(result: NextingResult) -> None:
    rows = result.forecast()
    default = [(name, kind, h) for name in ("wave", "noise") for h in ("2h", "6h") for kind in ("at", "mean")]
    assert [(row["signal"], row["kind"], row["horizon"]) for row in rows] == [*default, ("wave", "at", "3h")]
    assert all({"signal", "time", "mean", "low", "high"} <= set(row) for row in rows)
    assert all(row["low"] <= row["mean"] <= row["high"] for row in rows)
    last = result.to_pandas().index[-1]
    assert [(row["time"] - last).total_seconds() / 3600.0 for row in rows] == [2, 2, 6, 6, 2, 2, 6, 6, 3]
    values = [result.predictions.column(f"wave at +{h}").to_numpy()[-1] for h in ("2h", "6h", "3h")]
    of_wave = [row["mean"] for row in rows if (row["signal"], row["kind"]) == ("wave", "at")]
    np.testing.assert_array_equal(np.array(of_wave, np.float32), values)
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
    assert "best baseline" in names
    assert len(axes.get_yticks()) > 2
    dots = next(line for line in axes.get_lines() if line.get_label() == names[-1])
    values = [row["mean"] for row in result.forecast() if (row["signal"], row["kind"]) == ("wave", "at")]
    np.testing.assert_allclose(sorted(dots.get_ydata()), sorted(values), rtol=1e-3)
    with pytest.raises(ValueError, match=r"no plot of 'nose'\. Signals with a plot: wave, noise"):
        result.plot("nose")


def test_the_model_continues_as_a_pipe_does_bit_for_bit(result: NextingResult, tmp_path: Path) -> None:
    file = result.save(tmp_path / "saved") / "model.safetensors"
    predictor, _ = Predictor.load(file)
    models = [nexting.load_model(file), nexting.load(file.parent).model, nexting.load_model(file)]
    columns = [name for name in result.predictions.column_names if name not in ("row", "time")]
    for hour in ("00:00", "01:00", "02:00"):
        row = {"time": f"2024-01-31 {hour}", "wave": 0.3, "noise": 0.1}
        said = [model.observe(row) for model in models]
        assert list(said[0]) == columns
        (outcome,) = predictor.take([(1, row)])
        assert isinstance(outcome, Prediction)
        assert outcome.said is not None
        assert [said[0][text] for text in predictor.asked.texts] == outcome.said.asked[:, 0].tolist()
        assert repr(said[1]) == repr(said[2]) == repr(said[0])
        models[2].save(tmp_path / "again")
        models[2] = nexting.load_model(tmp_path / "again")
    for model in models[:2]:
        model.ask("noise at +24h")
        assert model.observe({"time": "2024-01-31 03:00", "wave": 0.3})["noise at +24h"] is not None
    assert models[0].summary() == models[1].summary()
    assert models[0].summary()[-1]["text"] == "noise at +24h"


def test_a_horde_is_not_loaded_from_a_model_of_nexting(result: NextingResult, tmp_path: Path) -> None:
    """Neither from that of a run nor from that of a pipe: it would leave out what answers questions."""
    file = result.save(tmp_path / "saved") / "model.safetensors"
    nexting.load_model(file).save(tmp_path / "model")
    for path in (file, tmp_path / "model"):
        sentence = f"'{path}' is a model of emphatic.nexting: emphatic.nexting.load_model(path) loads what continues."
        for load in (Horde.load, emphatic.load):
            with pytest.raises(CheckpointError) as caught:
                load(path)
            assert str(caught.value) == sentence


def test_a_number_of_rows_that_is_not_whole_cannot_be_asked_for(caplog: pytest.LogCaptureFixture) -> None:
    x = np.sin(np.arange(300) / 5)
    result = nexting.run({"x": x, "y": x**2}, predict=["x"], horizons=[2.5, 4])
    assert [score["text"] for score in result.summary[1:]] == ["x at +4", "mean of x over 4"]
    assert "2.5: no question can ask for this" in caplog.text


def test_a_reading_that_cannot_be_used_is_an_error_and_changes_nothing(result: NextingResult, tmp_path: Path) -> None:
    result.model.save(path := tmp_path / "model")
    model, other = (nexting.load_model(path) for _ in range(2))
    for row, said in (
        ({"wav": 0.3}, "the reading has none of the model's signals (wave, noise)"),
        ({"wav": 0.3, "time": "2024-02-01"}, "the reading has none of the model's signals (wave, noise)"),
        ({}, "none of the model's signals"),
    ):
        with pytest.raises(ValueError, match=re.escape(said)):
            model.observe(row)
    row = {"wave": 0.3, "unused": 7.0, "time": "2024-02-01"}  # noise is missing; other columns are ignored
    assert repr(model.observe(row)) == repr(other.observe(row))
    assert model.step == other.step == T + 1


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
    assert sorted(file.name for file in folder.iterdir()) == sorted(FILES)
    again = nexting.load(folder)
    assert again.summary == result.summary
    assert again.verdict == result.verdict
    assert again.forecast() == result.forecast()
    assert again.predictions.column_names == result.predictions.column_names
    assert again.predictions.column("wave at +2h").equals(result.predictions.column("wave at +2h"))
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
    machines = nexting.run(log, by="unit", horizons=[3])
    assert [(row["machine"], row["signal"]) for row in machines.verdict] == [("a", "x"), ("b", "x")]
    assert verdict_lines(machines.verdict)[-1].startswith(("a: x", "b: x"))
    assert [(row["machine"], row["kind"]) for row in machines.forecast()] == [
        (m, k) for m in "ab" for k in ("at", "mean")
    ]
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
    runs = [nexting.run(log, horizons=[2]) for log in logs]
    for run in runs:
        assert run.reading["time"]["columns"] == ["when"]
        assert run.predictions.column("power at +2").equals(runs[0].predictions.column("power at +2"))
    assert nexting.run(pd.Series(x), horizons=[2]).verdict[0]["signal"] == "value"


def test_the_summary_shows_its_questions() -> None:
    result = nexting.run({"x": np.sin(np.arange(300) / 9)}, horizons=[2])
    assert str(result.summary).splitlines()[1].startswith("x at +2")
    assert result.summary.to_pandas()["text"].tolist() == ["x at +2", "mean of x over 2"]


@pytest.mark.parametrize("reading", ["x", None, 3, [0.1]], ids=repr)
def test_a_reading_that_is_no_mapping_is_refused_and_changes_nothing(result: NextingResult, reading: Any) -> None:
    before = result.model.step
    with pytest.raises(ValueError, match=r"'reading' parameter of observe must be \{name: value\}"):
        result.model.observe(reading)
    assert result.model.step == before
