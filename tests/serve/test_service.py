"""The service in this process: the queue, the journal, crashes at any moment, and what watchers see."""

from __future__ import annotations

import asyncio
import json
import shutil
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from emphatic.common.locks import InUseError
from emphatic.nexting.runs.forecaster import Said
from emphatic.nexting.runs.predictor import LineFormat, Prediction, Predictor
from emphatic.nexting.serve import service as service_module
from emphatic.nexting.serve.app import EventStream, describe_asked, describe_forecast, describe_history
from emphatic.nexting.serve.journal import Journal
from emphatic.nexting.serve.service import Inbox, Incoming, Receipt, RecentRows, Service, WarmingUp
from emphatic.nexting.tables.pipe import Malformed
from tests.support.services import (
    SETTINGS,
    journal_readings,
    offer,
    opened,
    readings,
    same_as_undisturbed,
    started,
    wait_for,
)


def offered(service: Service, rows: list[Any]) -> list[Receipt]:
    return offer(service, [Incoming(row) for row in rows])


def test_alarms_are_listed_again_after_a_restart(tmp_path: Path) -> None:
    rows = readings(700)
    rows[690]["S1"] = 1e4
    service = started(tmp_path)
    offered(service, rows)
    alarms = service.alarms.rows("S1")
    assert alarms[-1]["step"] >= 690
    assert {alarm["why"] for alarm in alarms if alarm["step"] == 690} == {"too high"}
    service.close()
    again = opened(tmp_path)
    assert again.alarms.rows() == service.alarms.rows()
    history = json.loads(json.dumps(describe_history(again, "S1")))
    place = history["step"].index(690)
    assert [history[name][place] for name in ("alarm", "why", "reading")] == [True, "too high", 1e4]
    again.close()


def test_who_asks_while_it_learns_changes_nothing(tmp_path: Path) -> None:
    rows = readings(3000)
    service = started(tmp_path)
    offered(service, rows[:100])
    ended, errors = threading.Event(), []
    calls = (lambda: describe_forecast(service, "S1"), lambda: describe_asked(service), service.rmse)

    def ask(call: Callable[[], Any]) -> None:
        while not ended.is_set():
            try:
                call()
            except Exception as error:
                errors.append(error)

    threads = [threading.Thread(target=ask, args=(call,)) for call in (*calls, *calls)]
    for thread in threads:
        thread.start()
    for begin in range(100, len(rows), 100):
        offered(service, rows[begin : begin + 100])
    ended.set()
    for thread in threads:
        thread.join()
    service.close()
    assert not errors
    same_as_undisturbed(tmp_path / "model", rows, tmp_path)


def test_a_new_page_gets_every_row_that_is_kept(service: Service) -> None:
    offered(service, readings(1500))

    async def first_rows() -> list[int]:
        steps: list[int] = []
        async for event in EventStream(service, "S1", None, asyncio.Event())._events():
            kind, data = event.strip().split("\n")[-2:]
            if kind == "event: rows":
                steps += json.loads(data.removeprefix("data: "))["step"]
            if steps and steps[-1] == 1499:
                break
        return steps

    steps = asyncio.run(first_rows())
    assert steps == list(range(steps[0], 1500))
    assert steps[0] <= 60


def test_it_learns_saves_and_goes_on(tmp_path: Path) -> None:
    rows = readings(300)
    service = started(tmp_path)
    replies = offered(service, [*rows[:100], Malformed("not JSON"), {"other": 1}])
    assert service.alive
    assert [reply.outcome for reply in replies[:59]] == [WarmingUp(count, 60) for count in range(1, 60)]
    assert all(isinstance(reply.outcome, Prediction) for reply in replies[59:100])
    assert [str(reply.outcome) for reply in replies[100:]] == [
        "not JSON",
        "the reading has none of the model's signals (S1, S2)",
    ]
    assert (service.step, service.readings, service.malformed, service.warming_up) == (100, 102, 2, False)
    assert len(journal_readings(tmp_path / "model.journal")) == 101
    service.close()
    assert (service.failure, service.saved_step) == (None, 100)
    assert journal_readings(tmp_path / "model.journal") == []
    service = started(tmp_path)
    offered(service, rows[100:])
    service.close()
    same_as_undisturbed(tmp_path / "model", rows, tmp_path)


def test_a_warm_up_is_kept_too(tmp_path: Path) -> None:
    rows = readings(80)
    for begin, end in ((0, 10), (10, 50)):
        service = started(tmp_path)
        offered(service, rows[begin:end])
        service.close()
        assert (tmp_path / "model.warm-up").exists()
    service = opened(tmp_path)
    assert (service.waiting, service.warming_up) == (50, True)
    service.start()
    offered(service, rows[50:])
    service.close()
    assert not (tmp_path / "model.warm-up").exists()
    same_as_undisturbed(tmp_path / "model", rows, tmp_path)


def test_a_warm_up_that_cannot_be_learned_from_starts_again(service: Service, caplog: pytest.LogCaptureFixture) -> None:
    offered(service, [{"word": f"w{i}"} for i in range(60)])
    assert (service.waiting, service.warming_up) == (0, True)
    assert "cannot be learned from" in caplog.text
    many = [{f"n{i}_{j}": 1 for j in range(300)} for i in range(10)]
    refused = [str(reply.outcome) for reply in offered(service, many)]
    assert refused[-1] == "with this reading the warm-up would have more than 2,000 names"
    offered(service, readings(120))
    assert not service.warming_up


def test_a_full_inbox_takes_what_fits_and_holds_sources_back() -> None:
    inbox = Inbox(5)
    assert inbox.offer([Incoming({"x": i}) for i in range(8)]) == 5
    assert inbox.offer([Incoming({})]) == 0
    put: list[bool] = []
    thread = threading.Thread(target=lambda: put.extend(inbox.put(Incoming({"x": i})) for i in (5, 6)))
    thread.start()
    time.sleep(0.05)
    assert put == []
    assert [one.reading for one in inbox.take(1, 0.0)] == [{"x": 0}]
    wait_for(lambda: put == [True])
    inbox.close()
    thread.join(10)
    assert put == [True, False]
    assert [one.reading for one in inbox.take(99, 0.0)] == [{"x": i} for i in range(1, 6)]
    assert inbox.offer([Incoming({})]) == 0


def test_one_service_a_model_and_one_model_a_journal(tmp_path: Path) -> None:
    service = opened(tmp_path)
    with pytest.raises(InUseError, match="another run"):
        opened(tmp_path)
    service.start()
    offered(service, readings(80))
    shutil.copytree(tmp_path / "model.journal", tmp_path / "copy")
    service.close()
    other = started(tmp_path / "other")
    offered(other, readings(70))
    other.close()
    later = Journal(shutil.copytree(tmp_path / "other" / "model.journal", tmp_path / "later"))
    later.cut(98)
    later.append({"S1": 1})
    later.sync()
    later.close()
    with pytest.raises(ValueError, match="does not belong to the model"):
        opened(tmp_path / "other", journal=tmp_path / "later")
    opened(tmp_path / "other").close()


def test_a_journal_of_another_model_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    """Its numbers may well follow on the model's, or lie before them."""
    service, other = started(tmp_path), started(tmp_path / "other")
    for each, count in ((service, 100), (other, 70)):
        offered(each, readings(count))
    crashed = shutil.copytree(tmp_path / "other", tmp_path / "crashed")
    service.close()
    other.close()
    journal = crashed / "model.journal"
    held = journal_readings(journal)
    assert len(held) == 70
    with pytest.raises(ValueError, match="with 70 readings from number 1 on, does not belong to the model"):
        opened(tmp_path, journal=journal)
    assert journal_readings(journal) == held
    opened(crashed).close()  # its own model never was saved
    assert journal_readings(journal) == held


def test_a_model_of_nexting_is_served_and_killed_before_it_is_saved(tmp_path: Path) -> None:
    rows = readings(150)
    predictor = Predictor(SETTINGS, warm_up=60)
    predictor.take(enumerate(rows[:100], start=1))
    assert predictor.horde is not None
    (tmp_path / "served").mkdir()
    predictor.horde.save(tmp_path / "served" / "model", **predictor.state())
    service = started(tmp_path / "served")
    offered(service, rows[100:])
    crashed = shutil.copytree(tmp_path / "served", tmp_path / "crashed")
    service.close()
    again = opened(crashed)
    assert again.step == 150
    again.start()
    again.close()
    same_as_undisturbed(crashed / "model", rows, tmp_path)


def test_without_learning_nothing_is_written(tmp_path: Path) -> None:
    service = started(tmp_path)
    offered(service, readings(100))
    service.close()
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir() if path.is_file()}
    service = started(tmp_path, learn=False)
    replies = offered(service, readings(50, 100))
    assert all(isinstance(reply.outcome, Prediction) for reply in replies)
    service.close()
    assert before == {path.name: path.read_bytes() for path in tmp_path.iterdir() if path.is_file()}


def test_recent_rows_are_bounded_and_in_order() -> None:
    format = LineFormat(["y"], [("x", "2"), ("y", "2")])
    recent = RecentRows(("x", "y"), format)
    nothing = np.empty((0, 4))
    for t in range(9):
        said = Said(nothing, nothing, np.empty(0, np.int8), np.array([t / 4]), np.array([3 * (t == 6)], np.int8))
        values, read = np.array([[t, 1.0, 3.0], [np.nan, 2.0, np.nan]]), (t / 2, np.nan)
        recent.add([Prediction(t, f"time {t}", values, format, read, float(t), t == 7, said)])
    assert recent.columns("y", 5, 3) == {
        "step": [5, 6, 7], "time": ["time 5", "time 6", "time 7"], "t": [5.0, 6.0, 7.0], "reading": [None] * 3,
        "gap": [False, False, True], "predictions": {"2": [None] * 3}, "low": {"2": [2.0] * 3},
        "high": {"2": [None] * 3}, "anomaly": [1.25, 1.5, 1.75], "alarm": [False, True, False],
        "why": [None, "stuck", None],
    }  # fmt: skip
    assert "alarm" not in (recent.columns("x", 5, 3) or {})
    assert recent.columns("x", 9, 5) is None
    for t in range(9, recent.size + 50):
        recent.add([Prediction(t, None, np.zeros((2, 3)), format, (0.0, 0.0))])
    assert (recent.first, recent.end) == (50, recent.size + 50)
    found = recent.columns("x", 0, 10**6)
    assert found is not None
    assert found["step"] == list(range(50, recent.size + 50))


def test_questions_that_come_and_go_do_not_change_what_is_predicted(service: Service) -> None:
    """Their answers are under "asked", also that of a value; the recent rows of a page go on."""
    rows = readings(140)
    offered(service, rows[:100])
    before = service.recent
    for text in ("S1 at +5", "S1 at +2"):  # the second is asked by default, too
        service.ask(text).result(30)
    outcome = offered(service, rows[100:120])[-1].outcome
    assert isinstance(outcome, Prediction)
    line = json.loads(outcome.line)
    assert {signal: list(horizons) for signal, horizons in line["predictions"].items()} == {
        "S1": ["2", "9"],
        "S2": ["2", "9"],
    }
    assert [text for text in line["asked"] if not text.startswith("mean")] == ["S1 at +5"]
    service.ask("S1 at +5", stop=True).result(30)
    offered(service, rows[120:])
    assert service.failure is None
    assert service.recent is before
    shown = before.columns("S1", 119, 1) if before is not None else None
    assert shown is not None
    assert {name: values[0] for name, values in shown["predictions"].items()} == line["predictions"]["S1"]


def test_an_own_question_has_rows_and_no_forecast(tmp_path: Path) -> None:
    service = started(tmp_path, replace(SETTINGS, questions=({"name": "near", "cumulant": "S1", "horizon": 9},)))
    offered(service, readings(200))
    assert service.recent is not None
    assert (service.recent.columns("near", 199, 1) or {})["predictions"]["9"][0] is not None
    assert describe_forecast(service, "near") == {"signal": "near", "learning": "", "forecasts": []}
    assert describe_history(service, "near") is None
    service.close()


def test_readings_are_journaled_while_kernels_compile_and_then_learned_to_the_same_bits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed meanwhile, or stopped, it continues from the journal."""
    rows, compiled = readings(300), threading.Event()
    monkeypatch.setattr(service_module, "compile_for_live", lambda settings: compiled.wait(60))

    service = started(tmp_path, wait=False, save_every=0.01)
    replies = offered(service, [*rows[:70], Malformed("not JSON")])
    assert [reply.outcome for reply in replies[:70]] == [WarmingUp(count, 60) for count in range(1, 71)]
    assert str(replies[70].outcome) == "not JSON"
    assert (service.warming_up, service.waiting, service.step) == (True, 70, 0)
    assert len(journal_readings(tmp_path / "model.journal")) == 70
    shutil.copytree(tmp_path, tmp_path / "killed", ignore=shutil.ignore_patterns(".*"))
    service.close()
    assert service.failure is None
    service = started(tmp_path, wait=False, save_every=0.01)
    assert service.waiting == 70
    assert offered(service, rows[70:200])[-1].outcome == WarmingUp(200, 60)
    compiled.set()
    wait_for(lambda: not service.warming_up)
    outcomes = [reply.outcome for reply in offered(service, rows[200:])]
    assert [outcome.step for outcome in outcomes if isinstance(outcome, Prediction)] == list(range(200, 300))
    assert service.latest is outcomes[-1]
    service.close()
    same_as_undisturbed(tmp_path / "model", rows, tmp_path)
    compiled.clear()
    service = started(tmp_path, wait=False, save_every=0.01)  # a model that exists
    assert offered(service, readings(1, 300))[0].outcome == WarmingUp(1, 0)
    compiled.set()
    wait_for(lambda: not service.warming_up)
    service.close()
    same_as_undisturbed(tmp_path / "model", readings(301), tmp_path)
    killed = started(tmp_path / "killed")
    offered(killed, rows[70:])
    killed.close()
    same_as_undisturbed(tmp_path / "killed" / "model", rows, tmp_path)
