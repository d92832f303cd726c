"""The benchmark suite works and its gates bite. Nothing here looks at a time."""

from __future__ import annotations

import importlib
import json
import math
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import emphatic
from benchmarks import first_minute, versions
from benchmarks.__main__ import SUITES
from benchmarks.alternatives import NumPySeed
from benchmarks.core import LearnDense, RunDense, RunSparse
from benchmarks.measure import Case, Effort, Gate, GateFailed, gate, run_cases
from benchmarks.report import Row
from benchmarks.streams import Dense, by_reference

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("suite", SUITES)
def test_the_suite_runs_and_every_row_names_gates_that_passed(suite: str, tmp_path: Path) -> None:
    if suite == "cuda" and "cuda" not in emphatic.engines.available():
        pytest.skip("needs a GPU, torch and triton")
    command = [sys.executable, "-m", "benchmarks", suite, "--quick", "--out", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    record = json.loads((tmp_path / f"{suite}.json").read_text(encoding="utf-8"))
    gates = {gate["name"]: gate for gate in record["gates"]}
    assert len(gates) == len(record["gates"]), "two gates of one name"
    assert all(gate["error"] <= gate["tolerance"] for gate in gates.values())
    assert all(row["gates"] and set(row["gates"]) <= set(gates) for row in record["rows"])
    assert all((row["met"] is None) == (row["target"] == "") for row in record["rows"])
    text = (tmp_path / f"{suite}.md").read_text(encoding="utf-8")
    assert record["command"] in text
    assert record["machine"]["cpu"] in text
    assert all(row["what"] in text for row in record["rows"])


@pytest.mark.parametrize("suite", [suite for suite in SUITES if suite not in ("cuda", "first_minute")])
def test_a_wrong_result_fails_the_gate_of_a_suite(suite: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def compare_wrong(name: str, got: Any, want: Any, tolerance: float = 1e-10) -> Gate:
        return gate(name, got + 3.0 * (tolerance + 1e-9) * abs(want).max(), want, tolerance)

    module = importlib.import_module(f"benchmarks.{suite}")
    monkeypatch.setattr(module, "gate", compare_wrong)
    with pytest.raises(GateFailed, match="relative error"):
        run_cases(module.cases(quick=True), Effort(1, 0.0))


def test_other_numbers_with_a_full_cache_fail_the_gate(monkeypatch: pytest.MonkeyPatch) -> None:
    (case,) = (case for case in first_minute.cases(quick=True) if isinstance(case, first_minute.FirstCommand))
    predictions = iter([np.ones(3), np.ones(3) + 1e-7])
    monkeypatch.setattr(first_minute.FirstCommand, "seconds", lambda case: 1.0)
    monkeypatch.setattr(first_minute.FirstCommand, "predictions", lambda case: next(predictions))
    with case.folder, pytest.raises(GateFailed, match="a cache that was empty"):
        list(case.gates())


def test_a_wrong_result_fails_its_gate() -> None:
    stream = Dense(5, 50)
    want, _ = by_reference(stream.calls, 5)
    gate("right", want.copy(), want)
    for slip in (1e-9, math.nan, math.inf):
        wrong = want.copy()
        wrong[3] += slip * abs(want).max()
        with pytest.raises(GateFailed, match="wrong"):
            gate("wrong", wrong, want)
    with pytest.raises(GateFailed, match="shape"):
        gate("wrong", want[:4], want)
    with pytest.raises(GateFailed, match="nothing"):
        gate("nothing learned", np.zeros(5), np.zeros(5))


def test_a_failed_gate_keeps_everything_from_being_timed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    from benchmarks import __main__ as command

    def refuse(*_: object) -> None:
        raise AssertionError("timed")

    def slip(learner: NumPySeed, *arguments: float) -> float:
        learner.theta += 1e-6
        return right(learner, *arguments)  # type: ignore[arg-type]

    right = NumPySeed.learn
    monkeypatch.setattr(NumPySeed, "learn", slip)
    monkeypatch.setattr("benchmarks.core.fastest", refuse)
    with pytest.raises(GateFailed, match="n = 7, float64, here: NumPy"):
        run_cases([RunDense(3, 20), LearnDense(7, 50, "float64", "here")], Effort(1, 0.0))

    monkeypatch.setattr(command, "one_thread", lambda: None)  # this process goes on to other tests
    monkeypatch.setattr(sys, "argv", ["benchmarks", "core", "--quick", "--out", str(tmp_path)])
    assert command.main() == 1
    assert "learn, n = 100, float64, φ in cache: NumPy" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_without_swifttd_its_rows_say_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchmarks.core.has_swifttd", False)
    case = RunSparse(2_000, 50, quick=True)
    gates, rows = run_cases([case], Effort(1, 0.0))
    assert not any("swifttd" in gate.name for gate in gates)
    hints = [row for row in rows if "pip install" in row.versus]
    assert [(row.at_least, row.ratio, row.met) for row in hints] == [(10, None, False), (500, None, False)]


def test_a_case_that_an_earlier_version_lacks_is_left_out(capsys: pytest.CaptureFixture[str]) -> None:
    class Absent:
        def gates(self) -> Iterator[Gate]:
            raise AttributeError("no such name")

        def rows(self, effort: Effort) -> Iterator[Row]:
            raise AssertionError("timed")

    cases: list[Case] = [Absent(), RunDense(3, 20)]
    with pytest.raises(AttributeError, match="no such name"):
        run_cases(cases, Effort(1, 0.0))
    gates, rows = run_cases(cases, Effort(1, 0.0), lenient=True)
    assert {gate.name for gate in gates} >= set(rows[0].gates)
    assert "no such name" in capsys.readouterr().err


def test_two_versions_are_compared_by_the_better_of_their_runs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The other version is slower, its rate is lower, and it lacks a row."""

    def record(arguments: list[str], version: Path, out: Path) -> dict[str, Any]:
        slower = 2.0 if version == tmp_path else 1.0
        assert ("--lenient" in arguments) == (version == tmp_path)
        runs.append(version)
        made = [Row("s", "time", ("g",), ours=len(runs) * slower), Row("s", "rate", ("g",), 8 / slower, unit="steps/s")]
        made += [Row("s", "new", ("g",), ours=1.0)] * (version != tmp_path)
        return {"rows": [asdict(row) for row in made], "gates": [asdict(Gate("g", 0.0, 0.0))]}

    runs: list[Path] = []
    monkeypatch.setattr(versions, "_run", record)
    gates, (time, rate) = versions.compare(["core"], tmp_path)
    assert runs == [tmp_path, versions.ROOT] * versions.ROUNDS
    assert [gate.name for gate in gates] == ["g"]
    assert (time.ours, time.alternative, time.ratio) == (2.0, 2.0, 1.0)
    assert (rate.ours, rate.alternative, rate.ratio) == (8.0, 4.0, 2.0)


def test_a_suite_runs_with_another_checkout(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "benchmarks", "verdicts", "--quick", "--old", str(ROOT), "--out", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    rows = json.loads((tmp_path / "verdicts.json").read_text(encoding="utf-8"))["rows"]
    assert [row["ratio"] for row in rows] == [None, 1.0]  # (0 of 2 and 2 of 2 in both)
