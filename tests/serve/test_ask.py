"""Questions of one line asked of a service."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.asking.test_nexting import readings
from tests.support.services import Served

pytestmark = pytest.mark.serve


def test_a_question_is_asked_answered_kept_over_a_kill_and_removed(tmp_path: Path) -> None:
    flags = ("--warm-up", "60", "--horizons", "2", "--predict", "x", "--ask", "x at +1h", "--save-every", "1h")
    rows = [reading for _, reading in readings(200)]
    with Served(tmp_path / "model", *flags) as service:
        assert [asked["text"] for asked in service.client.get("/ask").json()] == ["x at +1h"]
        service.client.post("/readings", json=rows[:100])
        answer = service.client.post("/ask", json={"ask": "P(x > 3 within 3h)"})
        assert answer.status_code == 200
        assert answer.json()[1]["learning"] == "learning: 0 of 100 windows known"
        wrong = service.client.post("/ask", json={"ask": "P(x > 3 in 3h)"})
        assert (wrong.status_code, "'P(x > 3 within 3h)'" in wrong.json()["error"]) == (422, True)
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
        assert set(line["asked"]) == {"x at +1h", "P(x > 3 within 3h)"}
        after = service.client.request("DELETE", "/ask", json={"ask": "x at +1h"})
        assert [asked["text"] for asked in after.json()] == ["P(x > 3 within 3h)"]
        assert service.client.request("DELETE", "/ask", json={"ask": "x at +1h"}).status_code == 422
        assert "Ask" in service.client.get("/").text
