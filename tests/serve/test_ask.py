"""Questions of one line asked of a service."""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from emphatic.nexting.serve import app as app_module
from emphatic.nexting.serve import service as service_module
from emphatic.nexting.serve.service import Service
from tests.support.services import FLAGS, SETTINGS, Client, Served, opened, readings, started, wait_for


@pytest.mark.serve
def test_a_question_is_asked_answered_kept_over_a_kill_and_removed(tmp_path: Path) -> None:
    flags = (*FLAGS, "--ask", "S1 at +1min", "--save-every", "1h")
    rows = readings(200)
    with Served(tmp_path / "model", *flags) as service:
        assert [asked["text"] for asked in service.client.get("/ask").json()] == ["S1 at +1min"]
        service.client.post("/readings", json=rows[:100])
        answer = service.client.post("/ask", json={"ask": "P(S1 > 0.5 within 9s)"})
        assert answer.status_code == 200
        assert answer.json()[1]["learning"] == "learning: 0 of 100 windows known"
        wrong = service.client.post("/ask", json={"ask": "P(S1 > 0.5 in 9s)"})
        assert (wrong.status_code, "'P(S1 > 0.5 within 9s)'" in wrong.json()["error"]) == (422, True)
        assert service.client.post("/ask", json={"question": 1}).status_code == 400
        assert service.client.post("/ask", json={"ask": 1}).status_code == 422
        assert service.client.post("/ask", content="ask=x").status_code == 415
        service.client.post("/readings", json=rows[100:150])
        before = service.client.get("/ask").json()
        assert 0 < before[1]["known"] < 50
        service.kill()
    with Served(tmp_path / "model", *flags) as service:
        assert service.client.get("/ask").json() == before
        line = service.client.post("/readings", json=rows[150]).json()
        means = {f"mean of S{i} over {h}" for i in (1, 2) for h in (2, 9)}
        assert set(line["asked"]) == {*means, "S1 at +1min", "P(S1 > 0.5 within 9s)"}
        after = service.client.request("DELETE", "/ask", json={"ask": "S1 at +1min"})
        assert [asked["text"] for asked in after.json()] == ["P(S1 > 0.5 within 9s)"]
        assert service.client.request("DELETE", "/ask", json={"ask": "S1 at +1min"}).status_code == 422
        assert "Ask" in service.client.get("/").text


def post(service: Service, rows: list[dict[str, Any]]) -> None:
    assert Client(service).post("/readings", json=rows).status_code == 200


def ask(service: Service, text: str) -> httpx.Response:
    return Client(service).post("/ask", json={"ask": text})


def test_a_question_waits_for_readings_that_are_held_back_and_not_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that was given up is not asked later, and does not end learning; nothing is saved meanwhile."""
    rows, compiled = readings(80), threading.Event()
    monkeypatch.setattr(service_module, "compile_for_live", lambda settings: compiled.wait(60))
    monkeypatch.setattr(app_module, "_CHANGE_PATIENCE", 0.3)
    service = started(tmp_path, wait=False, save_every=0.01)
    post(service, rows)
    answer = ask(service, "S1 at +3")
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "5")
    assert answer.json()["error"] == "warming up: 80 readings wait until kernels are compiled; ask again later"
    waiting = service.ask("S2 at +3")
    assert not service.model.exists()
    compiled.set()
    wait_for(lambda: not service.warming_up)
    waiting.result(30)
    assert (service.step, service.predictor.settings.ask) == (80, ("S2 at +3",))
    assert ask(service, "S1 at +3").status_code == 200
    service.close()
    assert service.failure is None
    answer = ask(service, "S2 at +9")
    assert (answer.status_code, answer.json()["error"]) == (503, "the service ends; ask again later")


def test_a_question_about_no_signal_costs_no_warm_up(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """It can be asked before the signals are known, and is dropped when they are; others survive a restart."""
    rows = readings(80)
    service = started(tmp_path)
    post(service, rows[:30])
    for text in ("P(S9 > 1 within 3 rows)", "S1 at +3"):
        assert ask(service, text).json()[-1]["learning"] == "warming up"
    service.close()
    service = started(tmp_path, replace(SETTINGS, ask=("S2 at +3",)))
    post(service, rows[30:])
    assert service.step == 80
    assert service.predictor.settings.ask == ("S1 at +3", "S2 at +3")
    assert "there is no signal 'S9'" in caplog.text
    service.close()
    # A service that is started with a question that was dropped starts again; with another that is wrong it does not.
    caplog.clear()
    service = opened(tmp_path, replace(SETTINGS, ask=("P(S9 > 1 within 3 rows)", "S2 at +3")))
    assert "there is no signal 'S9'" in caplog.text
    assert service.predictor.settings.ask == ("S1 at +3", "S2 at +3")
    service.close()
    with pytest.raises(ValueError, match="there is no signal 'S8'"):
        opened(tmp_path, replace(SETTINGS, ask=("S8 at +3",)))
