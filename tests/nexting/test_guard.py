"""Glitches, codes and levels in a log: what they cost; that they are counted and alarmed; the same on every path."""

from __future__ import annotations

import json
import logging
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import emphatic
from emphatic.nexting import NextingResult
from emphatic.nexting.runs.predictor import Predictor
from emphatic.nexting.runs.runner import ingest_lines
from emphatic.nexting.runs.settings import Settings
from emphatic.nexting.serve.app import describe_status
from emphatic.nexting.serve.service import Service
from tests.nexting.test_everywhere import assert_same, columns_of, learn

Array = NDArray[np.float64]
T, HORIZONS = 2000, (2, 9, 36)


def log(seed: int = 0) -> dict[str, Array]:
    """Two signals, of which one leads the other."""
    rng = np.random.default_rng(seed)
    swing = np.sin(np.arange(T + 5) / 11.0) + np.cumsum(rng.normal(size=T + 5)) * 0.02
    return {"x": 20.0 + swing[5:] + 0.1 * rng.normal(size=T), "y": 3.0 * swing[:-5] + 0.3 * rng.normal(size=T)}


def run(columns: dict[str, Array], **options: Any) -> NextingResult:
    return emphatic.nexting.run(columns, horizons=HORIZONS, **options)


def explained(result: NextingResult, truth: dict[str, Array]) -> dict[str, float]:
    """The variance explained in the second half of the values of ``truth``."""
    predictions, scores = result.predictions, {}
    for name, x in truth.items():
        for h in HORIZONS:
            p = predictions.column(f"{name} at +{h}").to_numpy()[T // 2 : -h]
            scores[f"{name} at +{h}"] = 1.0 - float(np.mean((x[T // 2 + h :] - p) ** 2) / np.var(x[T // 2 + h :]))
    return scores


@pytest.fixture(scope="module")
def clean() -> dict[str, float]:
    return explained(run(log()), log())


@pytest.mark.parametrize(
    ("size", "row"), [(10.0, 0), (10.0, 200), (10.0, 1600), (100.0, 1000), (1000.0, 300), (1000.0, 1600)]
)
def test_one_reading_that_is_off_costs_next_to_nothing(size: float, row: int, clean: dict[str, float]) -> None:
    columns = log()
    columns["x"][row] += size * columns["x"].std()
    result = run(columns)
    scores = explained(result, log())
    assert max(clean[name] - scores[name] for name in clean) < 0.02
    assert result.reading["guarded"] == {"x": {"pulled_in": 1, "missing": 0}}


def assert_same_forecasts(result: NextingResult, expected: NextingResult) -> None:
    """The same columns of all questions; alarms may differ, for a code is no usual reading."""
    for text in (f"{form}{h}" for name in "xy" for form in (f"{name} at +", f"mean of {name} over ") for h in HORIZONS):
        for name in (text, f"{text}.low", f"{text}.high", f"{text}.usual"):
            column, same = (of.predictions.column(name).to_numpy() for of in (result, expected))
            np.testing.assert_array_equal(column, same, name)


@pytest.mark.parametrize(("code", "share"), [(65535.0, 0.005), (-999.0, 0.02)])
def test_codes_are_as_empty_cells(code: float, share: float) -> None:
    columns, empty = log(), log()
    rng = np.random.default_rng(1)
    for name in columns:
        hit = rng.random(T) < share
        columns[name][hit], empty[name][hit] = code, np.nan
    result, expected = run(columns), run(empty)
    assert_same_forecasts(result, expected)
    assert result.summary[1:] == expected.summary[1:]
    assert all(result.reading["guarded"][name]["missing"] > 5 for name in columns)
    assert expected.reading["guarded"] == {}


@pytest.mark.parametrize("rows", [1, 10, 30, 300])
def test_dropouts_are_as_empty_cells(rows: int) -> None:
    columns, empty = log(2), log(2)
    for at in (900, 1500):
        columns["x"][at : at + rows], empty["x"][at : at + rows] = -999.0, np.nan
    result, expected = run(columns), run(empty)
    assert_same_forecasts(result, expected)


def test_a_signal_that_is_switched_off_is_followed() -> None:
    columns = log(3)
    columns["x"][1300:1600] = 0.0
    result = run(columns)
    assert result.reading["guarded"]["x"] == {"pulled_in": 1, "missing": 13}
    p = result.predictions.column("x at +2").to_numpy()
    assert np.abs(p[1330:1590]).mean() < 0.5
    assert np.abs(p[1620:] - columns["x"][1620:]).mean() < 1.0


@pytest.mark.parametrize("size", [10.0, 100.0])
def test_a_new_level_is_followed(size: float) -> None:
    columns = log(4)
    columns["x"][1200:] += size * columns["x"].std()
    result = run(columns)
    p, x = result.predictions.column("x at +2").to_numpy(), columns["x"]
    sd = log(4)["x"].std()
    assert np.abs(p[1215:] - x[1215:]).mean() < 0.5 * sd
    assert sum(result.reading["guarded"]["x"].values()) <= 4


def test_the_reading_itself_raises_an_alarm_and_spoils_no_score() -> None:
    columns = log(5)
    columns["x"][1500] += 100.0
    columns["y"][1700:1705] = -999.0
    result = run(columns)
    alarms = {name: result.predictions.column(f"{name}.alarm").to_numpy() for name in columns}
    assert alarms["x"][1500]
    assert alarms["y"][1700]
    scores = {score["text"]: score for score in result.summary[1:]}
    assert scores["x at +2"]["rmse"] < 0.5
    assert scores["y at +2"]["rmse"] < 1.0
    assert scores["y at +2"]["known"] == scores["x at +2"]["known"] - 5  # what is missing is not scored
    assert result.verdict[0]["alarms"] >= 1


def test_intervals_do_not_widen_for_a_reading_that_is_off() -> None:
    columns = log(6)
    columns["x"][1000] += 1e5
    widths = []
    for data in (columns, log(6)):
        predictions = run(data).predictions
        low, high = (predictions.column(f"x at +9.{end}").to_numpy() for end in ("low", "high"))
        widths.append(np.mean((high - low)[1500:]))
    assert widths[0] == pytest.approx(widths[1], rel=0.05)


def test_seasons_learn_from_guarded_readings() -> None:
    """A glitch one period ago must not come again, and periods are found as without it."""
    rng, t = np.random.default_rng(3), np.arange(T)
    x = 20.0 + 5.0 * np.sin(2.0 * np.pi * t / 24.0) + 0.5 * rng.normal(size=T)
    x[700], x[900:930] = 1e6, -999.0
    result = run({"x": x})
    assert result.verdict[0]["periods"] == [24]
    for name in (f"{text}{kind}" for text in ("x at +2", "mean of x over 36") for kind in ("", ".usual")):
        values = result.predictions.column(name).to_numpy()[500:]
        assert 10.0 < values.min() < values.max() < 30.0


def troubled(seed: int = 8) -> dict[str, Array]:
    columns = log(seed)
    rng = np.random.default_rng(seed)
    columns["x"][rng.random(T) < 0.01] = -999.0
    columns["x"][[5, 300, 1700, 1990]] += 1e4
    columns["y"][900:960] = 50.0
    columns["y"][1500:] += 40.0
    columns["y"][[100, 700, 1300]] = 77.0
    return columns


def lines(columns: dict[str, Array]) -> list[tuple[int, dict[str, float]]]:
    return [(t + 1, {name: float(x[t]) for name, x in columns.items()}) for t in range(T)]


def test_a_pipe_saved_and_resumed_gives_the_bits_of_the_table(tmp_path: Path) -> None:
    columns, settings = troubled(), Settings(predict=("x", "y"), horizons=HORIZONS, time=False)
    expected, _ = learn(columns, tmp_path / "out", settings=settings)
    predictor, readings, outcomes = Predictor(settings), lines(columns), []
    cuts = [0, 499, 500, 501, 897, 905, 907, 1501, 1502, 1600, T]
    for begin, end in pairwise(cuts):
        outcomes += predictor.take(readings[begin:end])
        if predictor.horde is not None:
            predictor.save(tmp_path / "m")
            predictor, _ = Predictor.load(tmp_path / "m")
    assert_same(columns_of(predictor, outcomes[500:]), expected, slice(500, None))
    assert predictor.guarded_counts() == run(columns, time=False).reading["guarded"]


def test_the_counts_are_said(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    columns = log(10)
    columns["x"][[700, 1800]] += [500.0, 900.0]
    columns["x"][900:912] = -999.0
    result = run(columns, out=tmp_path / "out", time=False)
    counts = {"x": {"pulled_in": 2, "missing": 12}}
    assert result.reading["guarded"] == counts
    assert "Outliers: x (2 pulled in, 12 counted as missing)." in ingest_lines(result.reading)
    summary = json.loads((tmp_path / "out" / "summary.json").read_text())
    assert summary[0]["reading"]["guarded"] == counts
    page = (tmp_path / "out" / "report.html").read_text()
    assert "Outliers" in page
    assert "counted as missing" in page
    predictor = Predictor(Settings(horizons=HORIZONS, time=False))
    assert predictor.guarded_counts() == {}
    predictor.take(lines(columns))
    assert predictor.guarded_counts() == counts
    with caplog.at_level(logging.WARNING, "emphatic"):
        predictor.log_counts()
    assert "x: 2 outliers pulled in, 12 counted as missing." in [record.getMessage() for record in caplog.records]


def test_a_clean_log_says_nothing(tmp_path: Path) -> None:
    result = run(log(11), out=tmp_path / "out")
    assert result.reading["guarded"] == {}
    assert not any("Outliers" in line for line in ingest_lines(result.reading))
    assert "Outliers" not in (tmp_path / "out" / "report.html").read_text()


def test_actions_are_left_as_they_are() -> None:
    """A policy reads the action itself, however rare it is."""
    columns = log(12)
    columns["action"] = np.zeros(T)
    columns["action"][::2] = 1.0
    columns["action"][1500] = 99.0
    question = {"name": "if 99", "cumulant": "x", "horizon": 5}
    question["policy"] = {"target": {"99": 1.0}, "column": "action", "behaviour": 0.001}
    settings = {"horizons": [2], "predict": ["x"], "questions": [question]}
    result = emphatic.nexting.run(columns, config=settings)
    assert "action" not in result.reading["guarded"]
    p = result.predictions.column("if 99").to_numpy()
    assert p[1501] != p[1499]


def test_the_service_tells_its_counts(tmp_path: Path) -> None:
    service = Service(tmp_path / "model", Settings(horizons=(2,), time=False))
    service.open()
    columns = log(13)
    columns["y"][1000] = 1e6
    service.predictor.take(lines(columns)[:1500])
    assert describe_status(service)["guarded"] == {"y": {"pulled_in": 1, "missing": 0}}
    service.close()
