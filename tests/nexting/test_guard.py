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
from emphatic.nexting.predictor import Prediction, Predictor
from emphatic.nexting.runner import ingest_lines
from emphatic.nexting.settings import Settings
from emphatic.scores import known_return
from emphatic.serve.app import describe_status
from emphatic.serve.service import Service

Array = NDArray[np.float64]
T, HORIZONS = 2000, (2, 9, 36)


def log(seed: int = 0) -> dict[str, Array]:
    """Two signals, of which one leads the other."""
    rng = np.random.default_rng(seed)
    swing = np.sin(np.arange(T + 5) / 11.0) + np.cumsum(rng.normal(size=T + 5)) * 0.02
    return {"x": 20.0 + swing[5:] + 0.1 * rng.normal(size=T), "y": 3.0 * swing[:-5] + 0.3 * rng.normal(size=T)}


def run(columns: dict[str, Array], **options: Any) -> NextingResult:
    return emphatic.nexting.run(columns, horizons=HORIZONS, **{"offline": False} | options)


def explained(result: NextingResult, truth: dict[str, Array]) -> dict[str, float]:
    """The variance explained in the second half of the returns of ``truth``, NaN where it is not known."""
    predictions, scores = result.predictions, {}
    for name, x in truth.items():
        missing = np.isnan(x)
        for horizon in HORIZONS:
            held = np.where(missing, np.nanmean(x), x)
            G, known = known_return(held, missing, np.zeros(T, bool), 1.0 - 1.0 / horizon)
            rows = known & (np.arange(T) >= T // 2)
            p = predictions.column(f"{name}@{horizon}").to_numpy()
            scores[f"{name}@{horizon}"] = 1.0 - float(np.mean((G - p)[rows] ** 2) / np.var(G[rows]))
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
    assert result.summary[0]["guarded"] == {"pulled_in": 1, "missing": 0}


@pytest.mark.parametrize(("code", "share"), [(65535.0, 0.005), (-999.0, 0.02)])
def test_codes_are_as_empty_cells(code: float, share: float) -> None:
    columns, empty = log(), log()
    rng = np.random.default_rng(1)
    for name in columns:
        hit = rng.random(T) < share
        columns[name][hit], empty[name][hit] = code, np.nan
    result, expected = run(columns), run(empty)
    names = [f"{name}@{horizon}" for name in columns for horizon in HORIZONS]
    for name in names:
        assert result.predictions.column(name).equals(expected.predictions.column(name))
    scores, expected_scores = ([score["variance_explained"] for score in r.summary] for r in (result, expected))
    assert scores == expected_scores
    assert all(score["guarded"]["missing"] > 5 for score in result.summary)
    assert all(score["guarded"] == {"pulled_in": 0, "missing": 0} for score in expected.summary)


@pytest.mark.parametrize("rows", [1, 10, 30, 300])
def test_dropouts_are_as_empty_cells(rows: int) -> None:
    columns, empty = log(2), log(2)
    for at in (900, 1500):
        columns["x"][at : at + rows], empty["x"][at : at + rows] = -999.0, np.nan
    result, expected = run(columns), run(empty)
    assert result.predictions.column("y@9").equals(expected.predictions.column("y@9"))
    assert result.predictions.column("x@9").equals(expected.predictions.column("x@9"))


def test_a_signal_that_is_switched_off_is_followed() -> None:
    columns = log(3)
    columns["x"][1300:1600] = 0.0
    result = run(columns)
    assert result.summary[0]["guarded"] == {"pulled_in": 1, "missing": 13}
    p = result.predictions.column("x@2").to_numpy()
    assert np.abs(p[1330:1590]).mean() < 0.5
    assert np.abs(p[1620:] - columns["x"][1620:]).mean() < 1.0


@pytest.mark.parametrize("size", [10.0, 100.0])
def test_a_new_level_is_followed(size: float) -> None:
    columns = log(4)
    columns["x"][1200:] += size * columns["x"].std()
    result = run(columns)
    p, x = result.predictions.column("x@2").to_numpy(), columns["x"]
    sd = log(4)["x"].std()
    assert np.abs(p[1215:] - x[1215:]).mean() < 0.5 * sd
    assert result.summary[0]["guarded"]["pulled_in"] + result.summary[0]["guarded"]["missing"] <= 4


def test_the_reading_itself_is_scored_and_alarmed() -> None:
    columns = log(5)
    columns["x"][1500] += 100.0
    columns["y"][1700:1705] = -999.0
    result = run(columns)
    alarms = {name: result.predictions.column(f"{name}.alarm").to_numpy() for name in columns}
    assert alarms["x"][1500]
    assert alarms["y"][1700]
    x, y = result.summary[0], result.summary[len(HORIZONS)]
    assert x["rmse"] > 1.0  # the reading itself is predicted badly, as it must be
    assert y["rmse"] < 1.0  # what is missing is not scored
    assert x["alarms"] >= 1


def test_intervals_do_not_widen_for_a_reading_that_is_off() -> None:
    columns = log(6)
    columns["x"][1000] += 1e5
    widths = []
    for data in (columns, log(6)):
        predictions = run(data).predictions
        low, high = (predictions.column(f"x@9.{end}").to_numpy() for end in ("low", "high"))
        widths.append(np.mean((high - low)[1500:]))
    assert widths[0] == pytest.approx(widths[1], rel=0.05)


def test_seasons_learn_from_guarded_readings() -> None:
    """A glitch one period ago must not come again, and periods are found as without it."""
    rng, t = np.random.default_rng(3), np.arange(T)
    x = 20.0 + 5.0 * np.sin(2.0 * np.pi * t / 24.0) + 0.5 * rng.normal(size=T)
    x[700], x[900:930] = 1e6, -999.0
    result = run({"x": x})
    assert [period["rows"] for period in result.summary[0]["periods"]] == [24]
    seasons = result.model.groups[0].seasons
    assert seasons is not None
    assert 10.0 < seasons.ring[0, :T].min() < seasons.ring[0, :T].max() < 30.0
    predictions = result.predictions.column("x@2").to_numpy()[500:]
    assert 10.0 < predictions.min() < predictions.max() < 30.0


def test_a_season_does_not_repeat_a_reading_that_was_pulled_in() -> None:
    """Pulled in, it is near the reading before, a peak of the season, which would be predicted again."""
    t = np.arange(400)
    x = 10.0 * (t % 12 == 0) + 0.1 * np.random.default_rng(0).normal(size=400)
    x[301] = 1e6
    result = run({"x": x})
    assert result.reading["guarded"] == {"x": {"pulled_in": 1, "missing": 0}}
    seasons = result.model.groups[0].seasons
    assert seasons is not None
    assert abs(seasons.ring[0, 301]) < 1.0
    assert seasons.flags[0, 300:303].tolist() == [1, 0, 1]


def test_the_offline_fit_learns_from_guarded_readings() -> None:
    columns = log(7)
    columns["x"][500] += 1e5
    scores = [run(data, offline=True).summary[1]["offline"]["rmse"] for data in (columns, log(7))]
    assert scores[0] == pytest.approx(scores[1], rel=0.05)


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
    columns, settings = troubled(), Settings(horizons=HORIZONS, time=False)
    result = run(columns, time=False)
    names = [f"{name}@{horizon}" for name in columns for horizon in HORIZONS]
    expected = np.stack([result.predictions.column(name).to_numpy() for name in names], axis=1)
    predictor, readings, outcomes = Predictor(settings), lines(columns), []
    cuts = [0, 499, 500, 501, 897, 905, 907, 1501, 1502, 1600, T]
    for begin, end in pairwise(cuts):
        outcomes += predictor.take(readings[begin:end])
        if predictor.horde is not None:
            predictor.horde.save(tmp_path / "m", **predictor.state())
            predictor, _ = Predictor.load(tmp_path / "m")
    predictions = [outcome for outcome in outcomes if isinstance(outcome, Prediction)]
    live = np.stack([one.values for one in predictions if one.step >= 500])
    assert live.astype(np.float32).tobytes() == expected[500:].tobytes()
    for kind in ("low", "high"):
        ends = np.stack([result.predictions.column(f"{name}.{kind}").to_numpy() for name in names], axis=1)
        live = np.stack([one.derived[kind] for one in predictions if one.step >= 500])
        assert live.astype(np.float32).tobytes() == ends[500:].tobytes()
    for kind in ("anomaly", "alarm", "why"):
        told = [json.loads(one.line)[kind] for one in predictions if one.step >= 500]
        for name in columns:
            found, wanted = [line[name] for line in told], result.predictions.column(f"{name}.{kind}").to_pylist()[500:]
            assert (np.array(found, np.float32).tolist() if kind == "anomaly" else found) == wanted, kind
    assert predictor.guarded_counts() == result.reading["guarded"]


def test_the_counts_are_said(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    columns = log(10)
    columns["x"][[700, 1800]] += [500.0, 900.0]
    columns["x"][900:912] = -999.0
    result = run(columns, out=tmp_path / "out", time=False)
    counts = {"x": {"pulled_in": 2, "missing": 12}}
    assert result.reading["guarded"] == counts
    assert "Outliers: x (2 pulled in, 12 counted as missing)." in ingest_lines(result.reading)
    summary = json.loads((tmp_path / "out" / "summary.json").read_text())
    assert [score["guarded"] for score in summary[:: len(HORIZONS)]] == [counts["x"], {"pulled_in": 0, "missing": 0}]
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
    result = emphatic.nexting.run(columns, config=settings, offline=False)
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
