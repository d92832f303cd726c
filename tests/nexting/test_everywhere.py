"""Every column, to the last bit: no row sees what follows, and a table in blocks, a run that was killed, a pipe and a
service say the same."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from emphatic.common.locks import UNFINISHED
from emphatic.nexting.runs import learning
from emphatic.nexting.runs.forecaster import Forecaster, Said
from emphatic.nexting.runs.learning import PREDICTIONS, find_point, find_resumption, learn_log, open_log
from emphatic.nexting.runs.predictor import Prediction, Predictor
from emphatic.nexting.runs.settings import Settings
from emphatic.nexting.serve.service import Service
from tests.support.services import Client

Columns = dict[str, NDArray[Any]]
T, WARM_UP = 1000, 500
#: Asked of every log, besides the values, means and weighted means of both signals.
ASK = ("P(x > 0.5 within 3)", "time until y > 1 up to 20", "max of x within 5", "x - y at +2", "y@5")
OWN: tuple[dict[str, Any], ...] = (
    {"name": "until high", "cumulant": "x > 0", "gamma": "0.9 * (x < 1)"},
    {"name": "high", "cumulant": "y > 1", "gamma": 0.8},
)
SETTINGS = Settings(predict=("x", "y"), horizons=(2, 12), ask=ASK, questions=OWN, weighted=True, increments=False)


def hourly() -> Columns:
    """Dated, with a day, a gap, and readings that are missing or far off; one signal leads the other."""
    rng, t = np.random.default_rng(0), np.arange(T + 2)
    swing = np.sin(t / 24 * 2 * np.pi) + 0.3 * rng.normal(size=T + 2)
    x, y = swing[2:], 0.5 * swing[:-2] + 0.1 * rng.normal(size=T)
    x[rng.random(T) < 0.03], y[700:704], x[[550, 800]] = np.nan, -999.0, 40.0
    seconds = 3600 * (t[:T] + 30 * (t[:T] > 620))
    return {"time": np.datetime64("2024-01-01T00:00:00") + seconds * np.timedelta64(1, "s"), "x": x, "y": y}


def undated() -> Columns:
    """Numbered rows with a period of 37."""
    rng, t = np.random.default_rng(1), np.arange(T)
    return {"x": t % 37 / 20.0 + 0.1 * rng.normal(size=T), "y": np.cumsum(rng.normal(size=T)) * 0.1}


def counts() -> Columns:
    """Two values, and whole numbers, until there is a third value and a fraction."""
    rng, t = np.random.default_rng(2), np.arange(T)
    x, y = (np.sin(t / 9) + 0.3 * rng.normal(size=T) > 0.0) * 1.0, rng.poisson(2.0 + np.cos(t / 9)) * 1.0
    x[900], y[777] = 0.5, 2.5
    return {"x": x, "y": y}


def irregular() -> Columns:
    """Dated rows that come as they like, once after a gap, and once before the row above."""
    rng, t = np.random.default_rng(3), np.arange(T)
    steps = rng.choice([20, 40, 60, 100, 300], T)
    steps[[600, 750]] = 9000, -500
    time = np.datetime64("2024-01-01T00:00:00") + np.cumsum(steps) * np.timedelta64(1, "s")
    return {"time": time, "x": np.sin(t / 15) + 0.2 * rng.normal(size=T), "y": np.cos(t / 15) + (t % 50 == 0)}


LOGS = pytest.mark.parametrize("log", [hourly, undated, counts, irregular])


def learn(
    columns: Columns, out: Path, progress: Callable[..., None] = lambda *_: None, settings: Settings = SETTINGS
) -> tuple[Columns, Any]:
    """Every column that is said at the rows of a table, in float64, and the scores; ``out`` may hold a stopped run."""
    (out / UNFINISHED).mkdir(parents=True, exist_ok=True)
    log = open_log(columns, settings, lambda *_: None)
    learned = learn_log(log, find_resumption(log, out, find_point(out), progress), progress)
    parts = [learned.store.read(PREDICTIONS, number) for number in learned.store.starts(PREDICTIONS)]
    joined = {name: np.concatenate([cells(part.column(name)) for part in parts]) for name in parts[0].column_names}
    return joined, learned.forecaster.summary()


def cells(column: Any) -> NDArray[Any]:
    """A column, its words as objects."""
    is_words = str(getattr(column, "type", "")).startswith("dictionary")
    return np.array(column.to_pylist() if is_words else column, object if is_words else None)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Callable[[], Columns]], tuple[Columns, Any]]:
    """What is said of each log in one go, learned once."""
    learned: dict[Any, tuple[Columns, Any]] = {}

    def of(log: Callable[[], Columns]) -> tuple[Columns, Any]:
        if log not in learned:
            learned[log] = learn(log(), tmp_path_factory.mktemp("whole"))
        return learned[log]

    return of


def assert_same(said: Columns, expected: Columns, rows: slice = slice(None)) -> None:
    """The same columns, bits and words."""
    assert list(said) == [name for name in expected if name in said]
    for name, column in said.items():
        np.testing.assert_array_equal(column, expected[name][rows], name)


@LOGS
def test_what_comes_after_a_row_moves_no_earlier_cell(log: Callable[[], Columns], whole: Any, tmp_path: Path) -> None:
    expected, _ = whole(log)
    for row in (WARM_UP + 1, 830):
        disturbed, rng = log(), np.random.default_rng(row)
        for name in ("x", "y"):
            disturbed[name][row + 1 :] = 5.0 * rng.normal(size=T - row - 1)
        said, _ = learn(disturbed, tmp_path / str(row))
        assert said.keys() == expected.keys()
        assert_same({name: column[: row + 1] for name, column in said.items()}, expected, slice(row + 1))
        moved = {name for name, column in said.items() if (column[row + 1 :] != expected[name][row + 1 :]).any()}
        assert {"x at +2", "y at +12.low", "x@12.usual", *ASK, "until high", "high.high", "x.anomaly"} <= moved


@LOGS
@pytest.mark.parametrize("size", [1, 7, 64, 4096])
def test_blocks_change_no_bit(
    log: Callable[[], Columns], size: int, whole: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected, scores = whole(log)
    monkeypatch.setattr(learning, "block_rows", lambda questions: size)
    said, same = learn(log(), tmp_path)
    assert said.keys() == expected.keys()
    assert_same(said, expected)
    assert same == scores


@LOGS
def test_a_killed_run_resumes_with_the_same_bits(
    log: Callable[[], Columns], whole: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed twice, within the rows that periods are searched in and after them; parts are small."""
    expected, scores = whole(log)
    for name, value in {"SAVE": 0.0, "WAITING": 5000, "block_rows": lambda questions: 90}.items():
        monkeypatch.setattr(learning, name, value)

    for at in (200, 700):

        def stop(phase: str, done: int, total: int, at: int = at) -> None:
            if phase == "learning" and done > at:
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            learn(log(), tmp_path, stop)
    point = find_point(tmp_path)
    assert point is not None
    assert point.horde.rows == 630
    said, same = learn(log(), tmp_path)
    assert_same(said, expected)
    assert same == scores


def readings(columns: Columns) -> list[dict[str, Any]]:
    """The rows as a pipe has them."""
    rows = [dict(zip(columns, row, strict=True)) for row in zip(*(c.tolist() for c in columns.values()), strict=True)]
    for row in rows:
        row |= {name: None for name, value in row.items() if value != value}
        row |= {"time": str(row["time"])} if "time" in row else {}
    return rows


def columns_of(predictor: Predictor, outcomes: Sequence[Any]) -> Columns:
    """Every column of what a pipe said."""
    rows = zip(*(outcome.said for outcome in outcomes), strict=True)
    joined = predictor.forecaster.columns(Said(*(np.stack(arrays) for arrays in rows)))
    return {name: cells(column) for name, column in joined.items()}


@LOGS
def test_a_pipe_says_what_is_said_of_the_table(log: Callable[[], Columns], whole: Any, tmp_path: Path) -> None:
    """Cut at random places, and once saved and loaded."""
    expected, _ = whole(log)
    numbered = list(enumerate(readings(log()), 1))
    predictor, rng, outcomes = Predictor(SETTINGS), np.random.default_rng(7), list[Any]()
    while len(outcomes) < T:
        outcomes += predictor.take(numbered[len(outcomes) : len(outcomes) + int(rng.choice([1, 2, 9, 90]))])
        if 690 < len(outcomes) < 780:
            predictor.save(tmp_path / "model")
            predictor, _ = Predictor.load(tmp_path / "model")
    columns = columns_of(predictor, outcomes[WARM_UP - 1 :])
    assert len(columns) == len(expected) - 1 - ("time" in expected)
    assert_same(columns, expected, slice(WARM_UP - 1, None))
    assert all(isinstance(outcome, Prediction) for outcome in outcomes[2:])


def check_line(line: dict[str, Any], row: int, forecaster: Forecaster, expected: Columns) -> None:
    """A line has what is said at a row of the table."""
    assert line["step"] == row
    names = [text for text in forecaster.asked.texts if text in expected]
    values = {f"{name} at +{h}": (name, h) for name in SETTINGS.predict or () for h in ("2", "12")}
    assert list(line["asked"]) == [text for text in names if text not in values]
    said = {text: list(answers.values()) for text, answers in line["asked"].items()}
    own = {str(question["name"]): (str(question["name"]), None) for question in OWN}
    for text, (name, horizon) in (values | own).items():
        kinds = [line[kind][name] for kind in ("predictions", "low", "high")]
        said[text] = [at[horizon] if horizon else next(iter(at.values())) for at in kinds]
    for text, answers in said.items():
        columns = [text, *(f"{text}.{end}" for end in ("low", "high", "usual"))][: len(answers)]
        for name, value in zip(columns, answers, strict=True):
            cell = expected[name][row]
            assert np.isnan(cell) if value is None else value == cell, name
    for name in SETTINGS.predict or ():
        for kind in ("anomaly", "alarm", "why"):
            assert line[kind][name] == expected[f"{name}.{kind}"][row]


def test_a_service_says_what_is_said_of_the_table_and_after_a_kill_too(whole: Any, tmp_path: Path) -> None:
    expected, _ = whole(hourly)
    rows = readings(hourly())
    service = Service(tmp_path / "model", SETTINGS, save_every=3600.0)
    service.open()
    service.start()
    client = Client(service)
    client.post("/readings", json=rows[:WARM_UP])
    last = WARM_UP - 1
    for cut in (501, 620, 640):
        for line in client.post("/readings", json=rows[last + 1 : cut]).text.splitlines():
            last += 1
            check_line(json.loads(line), last, service.predictor.forecaster, expected)
    # What would be on disk after a kill: the readings since the model was saved are in the journal.
    for path in tmp_path.glob("*model*"):
        if "lock" not in path.name:
            copy = shutil.copytree if path.is_dir() else shutil.copy
            copy(path, tmp_path / path.name.replace("model", "again"))
    again = Service(tmp_path / "again", SETTINGS)
    again.open()
    again.start()
    for line in Client(again).post("/readings", json=rows[640:]).text.splitlines():
        last += 1
        check_line(json.loads(line), last, again.predictor.forecaster, expected)
    assert last == T - 1
    service.close()
    again.close()
