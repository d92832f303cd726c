"""Many machines in one table: each by itself, or with shared weights; what is predicted unasked, and what is not."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

import emphatic
from emphatic.nexting.runs import machines
from emphatic.nexting.runs.learning import open_log
from emphatic.nexting.runs.settings import Settings
from tests.support.tables import assert_same_table

ROWS = 150


def rows_of(m: int) -> dict[str, Any]:
    """The rows of a machine whose temperature has a period of its own."""
    rng, t = np.random.default_rng(m), np.arange(ROWS)
    time = np.datetime64("2024-01-01") + t * np.timedelta64(60, "s")
    return {"time": time, "temp": 20 * m + np.sin(t / (4 + m)), "load": rng.gamma(2.0, size=ROWS)}


def log(count: int = 3, interleaved: bool = False, short: bool = False) -> dict[str, Any]:
    tables = [rows_of(m) for m in range(count)]
    columns: dict[str, Any] = {name: np.concatenate([table[name] for table in tables]) for name in tables[0]}
    columns["machine"] = np.repeat([f"m/{m}" for m in range(count)], ROWS)
    if interleaved:
        order = np.argsort(columns["time"], kind="stable")
        columns = {name: column[order] for name, column in columns.items()}
    if short:
        columns = {name: np.append(column, column[:2]) for name, column in columns.items()}
        columns["machine"][-2:] = "new"
    return columns


def run(data: Any, **options: Any) -> Any:
    return emphatic.nexting.run(data, by="machine", horizons=[2, 5], **options)


@pytest.mark.parametrize("interleaved", [False, True])
def test_each_machine_is_learned_from_as_if_alone(interleaved: bool, tmp_path: Path) -> None:
    result = run(log(interleaved=interleaved), out=tmp_path / "out")
    predictions = result.predictions
    for m in range(3):
        alone = emphatic.nexting.run(rows_of(m), horizons=[2, 5])
        rows = predictions.filter(np.array(predictions["machine"].to_pylist()) == f"m/{m}")
        assert rows.column_names[3:] == alone.predictions.column_names[2:]
        for name in rows.column_names[3:]:
            assert repr(rows[name].to_pylist()) == repr(alone.predictions[name].to_pylist()), name
        scores = [score for score in result.summary[1:] if score["machine"] == f"m/{m}"]
        assert scores == [score | {"machine": f"m/{m}"} for score in alone.summary[1:]]
        verdicts = [row for row in result.verdict if row["machine"] == f"m/{m}"]
        assert verdicts == [row | {"machine": f"m/{m}"} for row in alone.verdict]
        model, reading = result.models[f"m/{m}"], {"temp": 1.0, "load": 2.0, "time": "2024-02-01"}
        assert model.step == ROWS
        assert repr(model.observe(reading)) == repr(alone.model.observe(reading))
    facts = result.reading["machines"]
    assert [(fact["name"], fact["rows"]) for fact in facts] == [(f"m/{m}", ROWS) for m in range(3)]
    assert (tmp_path / "out" / facts[0]["model"]).is_file()
    page = result.report()
    assert all(f"<h2>m/{m}</h2>" in page for m in range(3))


def test_by_and_pivot_do_not_go_together() -> None:
    with pytest.raises(ValueError, match=r"by='machine' and pivot=.* cannot be combined. Leave out by"):
        run(log(2), pivot="machine,temp")


def test_later_machines_begin_with_the_shared_weights_and_each_continues_with_its_own_answers(tmp_path: Path) -> None:
    result = run(log(), share=True, out=tmp_path / "out")
    assert result.reading["shared"] is True
    steps = [int(result.models[f"m/{m}"].forecaster.horde.learner.steps) for m in range(3)]
    assert steps == [m * (ROWS - 1) for m in (1, 2, 3)]
    said = [result.models[f"m/{m}"].summary()[0]["answer"] for m in range(3)]
    of_each = [score["answer"] for score in result.summary[1:] if score["text"] == result.summary[1]["text"]]
    assert said == of_each
    learner = result.model.forecaster.horde.learner
    assert int(learner.steps) == 3 * (ROWS - 1)  # no step leads from a machine to the next
    assert result.model.step == ROWS


def test_sections_are_those_asked_for_and_unknown_ones_are_refused(tmp_path: Path) -> None:
    data = log(count=6, short=True)
    result = run(data, sections=["m/4"], out=tmp_path / "out")
    page = result.report()
    assert "<h2>m/4</h2>" in page
    assert "<h2>m/3</h2>" not in page
    failed = result.reading["machines"][-1]
    assert failed["name"] == "new"
    assert "too few" in failed["why"]
    assert "too few" in page
    with pytest.raises(ValueError, match="'sections' names 'm/9', and there is no such machine"):
        run(data, sections="m/9")
    with pytest.raises(ValueError, match=r"no column 'machines' with the machines. Did you mean 'machine'"):
        emphatic.nexting.run(data, by="machines")
    with pytest.raises(ValueError, match="need the column with the machines"):
        emphatic.nexting.run(rows_of(0), share=True)


@pytest.mark.parametrize("share", [False, True])
def test_a_killed_run_resumes_with_the_same_bits(share: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = run(log(), share=share, out=tmp_path / "whole")
    calls = 0
    run_machine = machines.run_machine

    def killed(*arguments: Any, **options: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == 3:
            raise KeyboardInterrupt
        return run_machine(*arguments, **options)

    monkeypatch.setattr(machines, "run_machine", killed)
    with pytest.raises(KeyboardInterrupt):
        run(log(), share=share, out=tmp_path / "killed")
    monkeypatch.setattr(machines, "run_machine", run_machine)
    with pytest.raises(ValueError, match="an interrupted run: continue it with resume=True"):
        run(log(), share=share, out=tmp_path / "killed")
    with pytest.raises(ValueError, match="another table or other settings"):
        run(log(count=2), share=share, out=tmp_path / "killed", resume=True)
    resumed = run(log(), share=share, out=tmp_path / "killed", resume=True)
    assert resumed.summary == whole.summary
    assert_same_table(resumed.predictions, whole.predictions)
    for machine, model in whole.models.items():
        row = {"temp": 3.0, "load": 1.0, "time": "2024-02-01"}
        assert repr(resumed.models[machine].observe(row)) == repr(model.observe(row))
    with pytest.raises(ValueError, match="nothing to resume: the run there is finished"):
        run(log(), share=share, out=tmp_path / "killed", resume=True)


def test_the_refusal_names_the_flag(tmp_path: Path) -> None:
    import pyarrow as pa

    path = tmp_path / "log.parquet"
    pq.write_table(pa.table(log()), path)
    command = [sys.executable, "-m", "emphatic", "nexting", str(path), "--out", str(tmp_path / "out"), "-q"]
    refused = subprocess.run(command, capture_output=True, text=True, check=False)
    assert refused.returncode == 2
    assert "Learn from each separately: --by machine." in refused.stderr


def signals(T: int = 300) -> dict[str, Any]:
    rng = np.random.default_rng(2)
    meter = np.cumsum(rng.gamma(2.0, size=T))
    meter[200:] -= meter[199]
    return {
        "device_id": np.full(T, 17),
        "year": np.full(T, 2024),
        "row": np.arange(T),
        "still": np.ones(T),
        "energy_kwh": meter,
        "temp": np.sin(np.arange(T) / 9),
    }


def test_only_signals_are_predicted_and_counters_as_increments(tmp_path: Path) -> None:
    result = emphatic.nexting.run(signals(), horizons=[2], out=tmp_path / "out")
    assert [row["signal"] for row in result.verdict] == ["energy_kwh", "temp"]
    left_out = {entry["name"]: entry["why"] for entry in result.reading["columns_left_out"]}
    assert left_out == {
        "device_id": "an id",
        "year": "a year",
        "row": "a count of rows",
        "still": "it never changes",
    }
    assert result.reading["increments"] == [{"name": "energy_kwh", "resets": 1}]
    saved = json.loads((tmp_path / "out" / "summary.json").read_text("utf-8"))
    assert saved[0]["reading"]["increments"] == result.reading["increments"]
    predicted = np.array(result.predictions["energy_kwh at +2"].to_pylist())[150:]
    assert 1.0 < predicted.mean() < 3.0  # the mean increment is 2
    lines = emphatic.nexting.runs.runner.ingest_lines(result.reading)
    assert "Counters, learned as their increments a row: 'energy_kwh' (1 reset)." in lines


def test_what_is_asked_for_is_predicted() -> None:
    asked = emphatic.nexting.run(signals(), horizons=[2], predict=["row", "still", "energy_kwh"])
    assert [row["signal"] for row in asked.verdict] == ["row", "still", "energy_kwh"]
    level = emphatic.nexting.run(signals(), horizons=[2], predict="energy_kwh", increments=False)
    assert np.nanmax(level.predictions["energy_kwh at +2"].to_pylist()) > 100.0
    with pytest.raises(ValueError, match=r"no signal to predict: 'row' .a count of rows.* name it: predict"):
        emphatic.nexting.run({"row": np.arange(50)})


def test_a_signal_that_changes_late_is_not_taken_for_a_constant(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("emphatic.nexting.runs.learning.FIRST", 100)
    late = np.zeros(300)
    late[250:] = 1.0
    opened = open_log(
        {"late": late, "x": np.sin(np.arange(300) / 5), "still": np.ones(300)}, Settings(), lambda *_: None
    )
    assert opened.settings.predict == ("late", "x")


def test_a_resumed_run_takes_increments_and_the_guard_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = signals(1200)
    data["temp"][[900, 950, 1000, 1023, 1024, 1150]] += 100.0
    data["temp"][1015:1100:6] = -999.0
    whole = emphatic.nexting.run(data, horizons=[2])
    monkeypatch.setattr("emphatic.nexting.runs.learning.block_rows", lambda questions: 64)
    monkeypatch.setattr("emphatic.nexting.runs.learning.SAVE", 0.0)

    def stop(phase: str, done: int, total: int) -> None:
        if phase == "learning" and done >= 1024:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        emphatic.nexting.run(data, horizons=[2], out=tmp_path / "out", progress=stop)
    resumed = emphatic.nexting.run(data, horizons=[2], out=tmp_path / "out", resume=True)
    assert_same_table(resumed.predictions, whole.predictions)
    assert min(whole.reading["guarded"]["temp"].values()) > 3
    assert resumed.reading["guarded"] == whole.reading["guarded"]
