"""The core of live nexting, without a process: readings in, predictions out."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import emphatic
from emphatic.errors import CheckpointError
from emphatic.hordes.horde import Horde
from emphatic.nexting.runs.forecaster import Said
from emphatic.nexting.runs.predictor import LineFormat, Outcome, Prediction, Predictor, format_lines
from emphatic.nexting.runs.settings import ENGINE, Settings
from emphatic.nexting.tables.pipe import BLOCK, Malformed, Reading, Readings

Array = NDArray[np.float64]
SETTINGS = Settings(horizons=(2, 9))


def lines(rows: int, start: int = 0) -> list[bytes]:
    """Lines of JSON, their values missing, written otherwise or unreadable here and there."""
    text = []
    for t in range(start, start + rows):
        row: dict[str, Any] = {
            "time": f"2007-02-01 00:{t // 60 % 60:02d}:{t % 60:02d}",
            "x": np.sin(t / 7),
            "on": t % 3 == 0,
        }
        row["mode"] = ["heat", "off", "NA"][t % 3]
        if t % 17 == 5:
            row["x"] = [None, "N/A", "0.5", "Error"][t % 4]
        if t % 50 == 40:
            del row["time"]
        text.append(json.dumps(row).encode())
    return text


def predict(predictor: Predictor, text: Iterable[bytes | None]) -> list[Prediction]:
    readings = Readings(text, predictor.columns, predictor.delimiter)
    numbered = list(readings)
    return [one for one in predictor.take(numbered, readings.form) if isinstance(one, Prediction)]


def test_what_cannot_be_used_is_logged_and_counted(caplog: pytest.LogCaptureFixture) -> None:
    predictor = Predictor(SETTINGS, warm_up=60)
    text: list[bytes | None] = [*lines(200), b'{"x": 1, "time": "soon"}', b"{", None, *[b"[]"] * 200]
    with caplog.at_level(logging.INFO, "emphatic"):
        predictions = predict(predictor, text)
        predictor.log_counts()
    assert {record.name for record in caplog.records} == {"emphatic.nexting"}
    messages = [record.getMessage() for record in caplog.records]
    assert [one.step for one in predictions if one.time is None] == [40, 90, 140, 190, 200]
    bad = [t for t in range(200) if t % 17 == 5 and t % 4 == 3]
    absent, unread = "the time 'time' is absent", "the time 'time' cannot be read"
    assert predictor.problems == {"'x' is not a number": len(bad), absent: 4, unread: 1}
    assert predictor.malformed == 202
    problem = f"line {bad[0] + 1}: 'x' is not a number: 'Error'; counted as missing. Further ones are only counted."
    assert messages.count(problem) == 1
    assert sum("is not a number" in line for line in messages) == 2  # at the end of the warm-up, and the count
    assert f"line 201: {unread}: 'soon'; counted as missing. Further ones are only counted." in messages
    assert "line 203: longer than 8 MiB; skipped." in messages
    assert sum(line.endswith("; skipped.") for line in messages) == 100
    assert messages[-3:] == [
        "202 malformed lines skipped.",
        f"'x' is not a number: {len(bad)} times, each counted as missing.",
        f"{absent}: 4 times, each counted as missing.",
    ]


def test_what_is_wrong_in_a_warm_up_is_logged_at_its_end(
    caplog: pytest.LogCaptureFixture,
) -> None:
    predictor = Predictor(Settings(horizons=(2,)), warm_up=40)
    readings: list[dict[str, object]] = [{"power": t % 7} for t in range(40)]
    readings[11], readings[12], readings[20], readings[21] = {"x": 1}, {"power": "abc"}, {"y": 1}, {"power": "?!"}
    numbered = list(enumerate(readings, 1))
    with caplog.at_level(logging.INFO, "emphatic"):
        predictor.take(numbered[:39])
        assert caplog.records == []
        predictor.take(numbered[39:])
    later = [record.getMessage() for record in caplog.records]
    assert later[:2] == [f"line {n}: it has none of the columns of the other readings; skipped." for n in (12, 21)]
    assert later[2].startswith("line 13: 'power' is not a number: 'abc'; counted as missing.")


def test_a_warm_up_without_numbers_is_refused_in_one_sentence() -> None:
    predictor = Predictor(SETTINGS, warm_up=3)
    with pytest.raises(ValueError, match="the first 3 readings cannot be learned from: the readings: no column holds"):
        predict(predictor, [b'{"a": "x"}'] * 3)
    assert predictor.horde is None
    assert predictor.columns == ()


def test_a_state_that_does_not_fit_is_refused(tmp_path: Path) -> None:
    predictor = Predictor(SETTINGS, warm_up=60)
    predict(predictor, lines(200))
    assert predictor.horde is not None
    state = predictor.state()
    alarms = {"alarms.tails": np.zeros((1, 2, 5))}
    broken = {"asked.0.answers.ratios": np.zeros(3)}
    for wrong, said in ((alarms, "the array 'tails' of the alarms does not fit"), (broken, "does not fit: ratios")):
        predictor.horde.save(tmp_path / "m", **state | wrong)
        with pytest.raises(CheckpointError, match=f"m' is not a valid model: .*{said}"):
            Predictor.load(tmp_path / "m")
    del state["asked"]
    predictor.horde.save(tmp_path / "m", **state)
    with pytest.raises(CheckpointError, match="what was learned for questions does not fit"):
        Predictor.load(tmp_path / "m")


def test_own_questions_have_intervals_once_enough_returns_are_known() -> None:
    """An expression, a γ that varies: shaped like the predictions, and null before."""
    endless = {"cumulant": "x", "gamma": "1", "name": "endless"}
    own = {"cumulant": "x > 0", "horizon": 2, "name": "above"}
    named = {"cumulant": "x", "gamma": 0.5, "name": "own"}
    predictor = Predictor(Settings(horizons=(2,), predict=("x",), questions=(own, named, endless)), warm_up=60)
    last = json.loads(predict(predictor, lines(100))[-1].line)
    assert list(last) == ["step", "time", "predictions", "low", "high", "anomaly", "alarm", "why", "asked"]
    assert list(last["asked"]) == ["mean of x over 2"]
    assert list(last["alarm"]) == ["x"]
    assert 0.0 <= last["low"]["above"]["2"] <= last["predictions"]["above"]["2"] <= last["high"]["above"]["2"] <= 1.0
    assert list(last["low"]["endless"].values()) == [None]
    assert last["low"]["x"]["2"] < last["predictions"]["x"]["2"] < last["high"]["x"]["2"]
    assert last["low"]["own"]["0.5"] < last["predictions"]["own"]["0.5"] < last["high"]["own"]["0.5"]
    wrong = Predictor(Settings(horizons=(2,), predict=("x",), questions=(named | {"name": "x.why"},)), warm_up=60)
    with pytest.raises(ValueError, match=r"'x\.why': this is the name of a column of alarms"):
        predict(wrong, lines(100))
    # A question of one's own that has the name of one by default stands alone; one that is asked has its own name.
    values = Settings(horizons=(2,), predict=("x",), questions=(named | {"name": "x at +2.low"},))
    predictor = Predictor(values, warm_up=60)
    predict(predictor, lines(100))
    assert list(predictor.asked.texts) == ["mean of x over 2"]
    with pytest.raises(ValueError, match="is asked, and a question or column has that name already"):
        predict(Predictor(replace(values, ask=("x at +2",)), warm_up=60), lines(100))


# ---------------------------------------------------------------------- batches


def hostile(rows: int, start: int = 0) -> list[tuple[int, Reading | Malformed]]:
    """Numbered readings with gaps, times that go back, labels, missing and unusable values, and no readings at all."""
    found: list[tuple[int, Reading | Malformed]] = []
    for t in range(start, start + rows):
        reading: Reading | Malformed = {
            "time": 1.7e9 + t + 60 * (t // 90) - 200 * (t % 211 == 100),
            "x": np.sin(t / 7),
            "y": t % 11 if t % 13 else None,
            "mode": ["heat", "off", None][t % 3],
        }
        if t > 100 and t % 37 == 1:
            other: list[Reading | Malformed] = [Malformed("not JSON"), {"other": 1}, {"x": "Error"}, {"x": 1e308}]
            reading = other[t % 4]
        found.append((t + 1, reading))
    return found


def outcome_bits(outcomes: list[Outcome]) -> list[Any]:
    return [
        str(one) if not isinstance(one, Prediction) else (one.step, one.time, one.values.tobytes(), one.line)
        for one in outcomes
    ]


@pytest.mark.parametrize("learn", [True, False], ids=["learning", "without learning"])
def test_how_readings_arrive_changes_no_bit(learn: bool, tmp_path: Path) -> None:
    """One by one, in random batches, and in one batch of more than a block."""
    rng, rows = np.random.default_rng(5), 2 * BLOCK + 150
    first = Predictor(SETTINGS, warm_up=60)
    first.take(hostile(150))
    assert first.horde is not None
    assert first.clock is not None
    first.horde.save(tmp_path / "m", **first.state())
    text, results = hostile(rows, 150), []
    for batches in ([1] * rows, [rows], [1, *rng.integers(1, 40, rows).tolist()], rng.integers(1, 300, rows).tolist()):
        predictor, _ = Predictor.load(tmp_path / "m", learn=learn)
        outcomes, begin = [], 0
        for batch in batches:
            outcomes += predictor.take(text[begin : begin + batch])
            begin += batch
        assert predictor.horde is not None
        assert predictor.clock is not None
        predictor.horde.save(tmp_path / "n", **predictor.state())
        results.append(
            (outcome_bits(outcomes), (tmp_path / "n").read_bytes(), predictor.malformed, predictor.backwards)
        )
    assert len(results[0][0]) == rows
    assert results[0][2] > 5
    assert results[0][3] == 3
    assert all(result == results[0] for result in results[1:])
    if not learn:
        theta = Horde.load_with(tmp_path / "n")[0].learner.theta
        assert theta.tobytes() == first.horde.learner.theta.tobytes()


def test_a_batch_may_hold_the_end_of_the_warm_up() -> None:
    """Also where a signal first comes late in the warm-up, so that the first lines do not have it."""
    text = hostile(200)
    for t in range(50, 200):
        reading = text[t][1]
        if isinstance(reading, dict):
            reading["late"] = t % 5
    one, other = (Predictor(SETTINGS, warm_up=60) for _ in range(2))
    whole = one.take(text)
    parts = [each for t in range(0, 200, 9) for each in other.take(text[t : t + 9])]
    assert outcome_bits(whole) == outcome_bits(parts)
    lines = [
        [json.loads(each.line) for each in outcomes if isinstance(each, Prediction)] for outcomes in (whole, parts)
    ]
    assert lines[0] == lines[1]
    assert ("late" in lines[0][0]["predictions"], "late" in lines[0][-1]["predictions"]) == (False, True)


def test_a_model_learned_by_another_engine_moves_once(tmp_path: Path) -> None:
    predictor = Predictor(SETTINGS, warm_up=60)
    predict(predictor, lines(100))
    assert predictor.horde is not None
    predictor.save(tmp_path / "m")
    horde, state = Horde.load_with(tmp_path / "m", engine="dense")
    horde.save(tmp_path / "dense", **state)
    moved, _ = Predictor.load(tmp_path / "dense")
    assert moved.horde is not None
    assert [learner.engine for learner in moved.horde.learners] == [ENGINE]
    said = [predict(model, lines(40, 100)) for model in (predictor, moved)]
    for one, other in zip(*said, strict=True):
        np.testing.assert_allclose(one.values, other.values, rtol=1e-9)
    moved.save(tmp_path / "n")
    again, _ = Predictor.load(tmp_path / "n")
    assert [o.line for o in predict(again, lines(40, 140))] == [o.line for o in predict(moved, lines(40, 140))]


def test_a_reading_that_the_horde_refuses_is_rejected_alone() -> None:
    until = {"name": "until", "cumulant": "x", "gamma": "g"}
    predictor = Predictor(Settings(horizons=(3,), predict=("x",), questions=(until,)), warm_up=60)
    numbered = list(enumerate(({"x": np.sin(t), "g": 0.5} for t in range(70)), 1))
    predictor.take(numbered[:60])
    outcomes = predictor.take([*numbered[60:64], (99, {"x": 0.5, "g": 7.0}), *numbered[64:]])
    assert isinstance(outcomes[4], Malformed)
    assert "gamma" in str(outcomes[4])
    assert [one.step for one in outcomes if isinstance(one, Prediction)] == list(range(60, 70))
    assert predictor.malformed == 1


def test_a_refusal_says_how_many_signals_it_does_not_name() -> None:
    predictor = Predictor(SETTINGS, warm_up=3)
    rows: list[Reading] = [{f"x{i}": float(t + i) for i in range(8)} for t in range(4)]
    *_, refused = predictor.take(enumerate([*rows, {"y": 1.0}]))
    assert str(refused) == "the reading has none of the model's signals (x0, x1, x2, x3, x4, x5 and 2 more)"


def said_of(asked: Array, own: Array | None = None, signals: int = 0) -> Said:
    """What is said at a row, without alarms."""
    own = np.empty((0, 4)) if own is None else own
    return Said(asked, own, np.zeros(len(own), np.int8), np.zeros(signals), np.zeros(signals, np.int8))


def test_each_value_is_under_its_own_name() -> None:
    """Also where the questions of a name do not follow one another, and others lie between."""
    values = [("x", "2"), ("y", "2"), ("x", "9"), ("y", "1h")]
    form = LineFormat(["x", "y"], values, [("own", "3")], [0, 2, 3, 4], ["x2", "mean", "y2", "x9", "y9"])
    asked = np.arange(20.0).reshape(5, 4)
    asked[1, 3], asked[2, 1], asked[4, 0] = np.nan, np.nan, np.inf
    said = said_of(asked, np.array([[90.0, 91.0, 92.0, 93.0]]))
    said = said._replace(anomaly=np.array([4.5, 0.0]), why=np.array([1, 0], np.int8))
    prediction = Prediction(7, None, form.predictions(said), form, said=said)
    assert json.loads(prediction.line) == {
        "step": 7, "time": None,
        "predictions": {"x": {"2": 0.0, "9": 12.0}, "y": {"2": 8.0, "1h": None}, "own": {"3": 90.0}},
        "low": {"x": {"2": 1.0, "9": 13.0}, "y": {"2": None, "1h": 17.0}, "own": {"3": 91.0}},
        "high": {"x": {"2": 2.0, "9": 14.0}, "y": {"2": 10.0, "1h": 18.0}, "own": {"3": 92.0}},
        "anomaly": {"x": 4.5, "y": 0.0}, "alarm": {"x": True, "y": False},
        "why": {"x": "too high", "y": None},
        "asked": {"mean": {"answer": 4.0, "low": 5.0, "high": 6.0, "usual": None}},
    }  # fmt: skip


def test_lines_together_are_those_one_by_one() -> None:
    """Those of a warm-up, which have no intervals yet and another form, among them."""
    predictor = Predictor(SETTINGS, warm_up=40)
    made = [one for one in predictor.take(Readings(lines(100))) if isinstance(one, Prediction)]
    assert len({id(one.format) for one in made}) > 1
    assert format_lines(made * 6) == [one.line for one in made] * 6
    assert format_lines([]) == []


def test_numbers_are_written_so_that_the_same_are_read() -> None:
    rng = np.random.default_rng(8)
    values = np.concatenate([
        rng.normal(size=2000) * 10.0 ** rng.integers(-20, 25, 2000), rng.integers(-5, 5, 100) * 1.0,
        [-0.0, 1e-4, 9.999e-5, 1e15, 1e16, 123456789012345.6, 5e-324, 1.7e308, 0.1, 0.5],
    ])  # fmt: skip
    form = LineFormat(["x"], [("x", "2")], [("%s \0 ü", "2")], [0], ["x at +2", "%d \0"])
    for i, (x, y) in enumerate(values.reshape(-1, 2).tolist()):
        asked = np.array([[x, np.nan, y, 0.0], [x, y, np.inf, np.nan]])
        said = said_of(asked, np.array([[y, x, -np.inf, 0.0]]), 1)
        line = Prediction(i, f"{i}%s", form.predictions(said), form, said=said).line
        assert line.startswith(f'{{"step": {i}, "time": "{i}%s", "predictions": {{"x": {{"2": '.encode())
        read = json.loads(line)
        assert read.pop("predictions") == {"x": {"2": x}, "%s \0 ü": {"2": y}}
        assert read.pop("low") == {"x": {"2": None}, "%s \0 ü": {"2": x}}
        assert read.pop("high") == {"x": {"2": y}, "%s \0 ü": {"2": None}}
        assert [read.pop(kind) for kind in ("anomaly", "alarm", "why")] == [{"x": 0.0}, {"x": False}, {"x": None}]
        answers = read.pop("asked")["%d \0"]
        assert list(read) == ["step", "time"]
        assert [answers["high"], answers["usual"]] == [None, None]
        found = [answers["answer"], answers["low"]]
        assert np.array_equal(np.array(found).view(np.int64), np.array([x, y]).view(np.int64))  # (also −0)


@pytest.mark.parametrize("horizons", [(2, 9), (2, "10min")])
def test_tables_and_pipes_warm_up_by_one_rule(horizons: tuple[Any, ...]) -> None:
    """The same rows have the same predictions, to the last bit of the file, from the end of the warm-up on."""
    T, expected = 1000, 500 if horizons[1] == 9 else 800  # ten minutes are 200 steps
    rng, t = np.random.default_rng(3), np.arange(T)
    log = {"time": 1.7e9 + 3.0 * t, "x": np.sin(t / 20) + 0.1 * rng.normal(size=T), "y": np.cumsum(rng.normal(size=T))}
    run = emphatic.nexting.run(log, horizons=horizons, time="time")
    names = [f"{name} at +{horizon}" for name in "xy" for horizon in horizons]
    wanted = np.stack([run.predictions.column(name).to_numpy() for name in names], axis=1)
    predictor = Predictor(Settings(horizons=horizons, time="time"))
    rows = [{name: float(column[i]) for name, column in log.items()} for i in t]
    outcomes = [predictor.take([(i, row)])[0] for i, row in enumerate(rows)]
    assert predictor.warm_up == expected
    for i in range(expected - 1, T):
        outcome = outcomes[i]
        assert isinstance(outcome, Prediction)
        np.testing.assert_array_equal(outcome.values[:, 0].astype(np.float32), wanted[i])
    first = outcomes[expected - 2]
    assert isinstance(first, Prediction)
    assert first.said is None  # by persistence
