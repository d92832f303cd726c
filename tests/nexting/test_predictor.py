"""The core of live nexting, without a process: readings in, predictions out."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from emphatic import GVF
from emphatic import features as f
from emphatic.hordes.horde import Horde
from emphatic.nexting.predictor import Every, Prediction, Predictor
from emphatic.nexting.settings import Settings
from emphatic.tables.pipe import Readings

OLD = Path(__file__).parents[1] / "data" / "0.1.0" / "horde" / "nexting.safetensors"
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
    return [prediction for prediction in predictor.take(readings) if prediction is not None]


def same(a: list[Prediction], b: list[Prediction]) -> None:
    assert [(one.step, one.time) for one in a] == [(one.step, one.time) for one in b]
    assert [one.values.tobytes() for one in a] == [one.values.tobytes() for one in b]


def test_readings_in_parts_and_restored_between_them_give_the_same_bits(tmp_path: Path) -> None:
    once = Predictor(SETTINGS, warm_up=60)
    expected = predict(once, lines(300))
    assert [one.step for one in expected] == list(range(2, 300))
    predictor = Predictor(SETTINGS, warm_up=60)
    predictions = predict(predictor, lines(50))
    assert ([one.step for one in predictions], predictor.waiting, predictor.horde) == (list(range(2, 50)), 50, None)
    for start in range(50, 300, 50):
        predictions += predict(predictor, lines(50, start))
        assert predictor.horde is not None
        predictor.horde.save(tmp_path / "m", **predictor.state())
        predictor = Predictor.restore(*Horde.load_with(tmp_path / "m"))
    same(predictions, expected)
    assert predictor.step == 300


def test_what_cannot_be_used_is_logged_and_counted(caplog: pytest.LogCaptureFixture) -> None:
    predictor = Predictor(SETTINGS, warm_up=60)
    text: list[bytes | None] = [*lines(200), b"{", None, *[b"[]"] * 200]
    with caplog.at_level(logging.INFO, "emphatic"):
        predict(predictor, text)
        predictor.log_counts()
    assert {record.name for record in caplog.records} == {"emphatic.nexting"}
    messages = [record.getMessage() for record in caplog.records]
    bad = [t for t in range(200) if t % 17 == 5 and t % 4 == 3]
    assert predictor.problems == {"'x' is not a number": len(bad), "the time 'time' is absent": 4}
    assert predictor.malformed == 202
    problem = f"line {bad[0] + 1}: 'x' is not a number: 'Error'; treated as missing. More of these are counted."
    assert messages.count(problem) == 1
    assert sum("is not a number" in line for line in messages) == 2
    assert "line 202: longer than 8 MiB; skipped." in messages
    assert sum(line.endswith("; skipped.") for line in messages) == 100
    assert messages[-3:] == [
        "202 malformed lines skipped.",
        f"'x' is not a number: {len(bad)} times, each treated as missing.",
        "the time 'time' is absent: 4 times, each treated as missing.",
    ]


def test_a_warm_up_without_numbers_is_refused_in_one_sentence() -> None:
    predictor = Predictor(SETTINGS, warm_up=3)
    with pytest.raises(ValueError, match="the first 3 readings cannot be learned from: the readings: no column holds"):
        predict(predictor, [b'{"a": "x"}'] * 3)
    assert predictor.horde is None
    assert predictor.columns == ()


def test_a_model_of_the_first_version_goes_on() -> None:
    horde, more = Horde.load_with(OLD)
    assert "notation" not in more
    assert more["when"] == [None, 1.0]
    first, rows = horde.rows, [dict.fromkeys(horde.features.signals, 0.1 * t) for t in range(6)]
    predictor = Predictor.restore(horde, more, every=Every("2"))
    predictions = predict(predictor, [json.dumps(row).encode() for row in rows])
    other = Horde.load(OLD)
    expected = {first + t: other.observe(row) for t, row in enumerate(rows)}
    assert [one.step for one in predictions] == [step for step in expected if step % 2]
    np.testing.assert_array_equal([one.values for one in predictions], [expected[one.step] for one in predictions])


def test_any_horde_that_was_saved_serves_on_a_pipe(tmp_path: Path) -> None:
    """Saved without the settings of a run: its own signals, numbers with a point, no time."""
    horde = Horde([GVF("x", horizon=2)], f.Features([f.Bias(), f.SoftBins("x", bins=3)]))
    horde.run({"x": np.sin(np.arange(600.0))})
    horde.save(tmp_path / "m.safetensors")
    predictor = Predictor.restore(*Horde.load_with(tmp_path / "m.safetensors"))
    lines = [b'{"x": 0.25}\n', b'{"x": 0.5}\n']
    made = list(predictor.take(Readings(lines, predictor.columns, predictor.delimiter)))
    wanted = [horde.observe({"x": x}) for x in (0.25, 0.5)]
    assert [one.step for one in made if one is not None] == [600, 601]
    assert [one.values.tolist() for one in made if one is not None] == [each.tolist() for each in wanted]
    again = Predictor.restore(horde, predictor.state())
    assert again.step == 602
