"""Questions in text, the headline and own questions: the same from a table, a run that was killed, a service."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from emphatic import nexting
from emphatic.nexting import learning
from emphatic.nexting.settings import Settings
from emphatic.serve.service import Service
from tests.asking.test_nexting import ASK, readings, table
from tests.support.services import Client

OWN: list[dict[str, Any]] = [
    {"name": "until high", "cumulant": "x > 0", "gamma": "0.9 * (x < 1)"},
    {"name": "high", "cumulant": "x > 2", "gamma": 0.8},
]
SETTINGS = Settings(predict=("x",), horizons=(2, "6h"), ask=tuple(ASK), questions=tuple(OWN), exponential_only=False)
HEADLINE = ["x at +2", "mean of x over 2", "x at +6h", "mean of x over 6h"]


@pytest.fixture(scope="module")
def whole() -> dict[str, Any]:
    """Every column of a run on the table."""
    predictions = nexting.run(table(), config=SETTINGS, offline=False).predictions
    return {name: predictions.column(name).to_numpy() for name in predictions.column_names}


def check_line(line: dict[str, Any], row: int, whole: dict[str, Any]) -> None:
    """Answers, means and own questions of a line are those of a row of the table, to the last bit of float32."""
    assert line["step"] == row
    assert list(line["asked"]) == [*HEADLINE, *ASK]
    for text, answers in line["asked"].items():
        for kind, value in answers.items():
            column = whole[text if kind == "answer" else f"{text}.{kind}"]
            assert np.isnan(column[row]) if value is None else np.float32(value) == column[row], (text, kind)
    assert np.float32(line["predictions"]["x"]["6h"]) == whole["x@6h"][row]
    for question in OWN:
        (value,) = line["predictions"][question["name"]].values()
        (low,) = line["low"][question["name"]].values()
        expected = whole[question["name"]][row], whole[f"{question['name']}.low"][row]
        assert (np.float32(value), np.float32(low)) == expected


def test_a_service_gives_the_answers_of_the_table_and_after_a_kill_too(whole: dict[str, Any], tmp_path: Path) -> None:
    rows = [reading for _, reading in readings(700)]
    service = Service(tmp_path / "model", SETTINGS, save_every=3600.0)
    service.open()
    service.start()
    client = Client(service)
    client.post("/readings", json=rows[:500])
    last = 499
    for cut in (501, 560, 640):
        answer = client.post("/readings", json=rows[last + 1 : cut])
        lines = [json.loads(line) for line in answer.text.splitlines()]
        for line in lines:
            check_line(line, last + 1, whole)
            last += 1
    # What would be on disk after a kill: the readings since the model was saved are in the journal.
    for path in tmp_path.glob("*model*"):
        if "lock" in path.name:
            continue
        (shutil.copytree if path.is_dir() else shutil.copy)(path, tmp_path / path.name.replace("model", "again"))
    again = Service(tmp_path / "again", SETTINGS)
    again.open()
    again.start()
    for line in Client(again).post("/readings", json=rows[640:]).text.splitlines():
        check_line(json.loads(line), last + 1, whole)
        last += 1
    assert last == 699
    service.close()
    again.close()


def test_a_killed_run_resumes_with_the_same_answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = nexting.run(table(), config=SETTINGS, offline=False)
    monkeypatch.setattr(learning, "SAVE", 0.0)
    monkeypatch.setattr(learning, "block_rows", lambda questions: 128)
    monkeypatch.setattr(learning, "WAITING", 1000)

    def stop(phase: str, done: int, total: int) -> None:
        if phase == "learning" and done > 400:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        nexting.run(table(), config=SETTINGS, offline=False, out=tmp_path / "out", progress=stop)
    resumed = nexting.run(table(), config=SETTINGS, offline=False, out=tmp_path / "out", resume=True)
    for name in whole.predictions.column_names:
        column, again = (result.predictions.column(name).to_numpy() for result in (whole, resumed))
        np.testing.assert_array_equal(column, again, err_msg=name)
    asked, asked_again = (
        [score for score in result.summary if "text" in score or "question" in score] for result in (whole, resumed)
    )
    assert len(asked) == len(HEADLINE) + len(ASK) + len(OWN)
    assert asked == asked_again
