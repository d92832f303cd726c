"""What a service expects of a signal, and the history that it has at once after a restart."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support.services import Served, wait_for

FLAGS = ("--warm-up", "60", "--horizons", "2,9", "--predict", "x,y", "--save-every", "1h")


def hourly(count: int, begin: int = 0) -> list[dict[str, Any]]:
    """Readings of two signals, an hour apart; x repeats each day."""
    rng = np.random.default_rng(0)
    hours = np.arange(count)
    x = np.sin(hours / 24 * 2 * np.pi) + 0.1 * rng.normal(size=count)
    rows = [{"time": f"2024-{1 + h // 672:02}-{1 + h // 24 % 28:02} {h % 24:02}:00:00"} for h in hours]
    return [
        row | {"x": round(float(value), 3), "y": h % 7} for h, (row, value) in enumerate(zip(rows, x, strict=True))
    ][begin:]


def stream_of(service: Served, signal: str, steps: int) -> dict[int, float | None]:
    """The readings by step that a new page is sent, until it has so many."""
    readings: dict[int, float | None] = {}
    with service.client.stream("GET", "/stream", params={"signal": signal}) as answer:
        for line in answer.iter_lines():
            if line.startswith("data: "):
                rows = json.loads(line.removeprefix("data: "))
                if isinstance(rows.get("reading"), list):
                    readings |= dict(zip(rows["step"], rows["reading"], strict=True))
            if len(readings) >= steps:
                break
    return readings


@pytest.mark.serve
def test_a_signal_is_forecast_and_its_history_is_back_after_a_kill(tmp_path: Path) -> None:
    rows = hourly(400)
    with Served(tmp_path / "model", *FLAGS) as service:
        service.client.post("/readings", json=rows[:37])
        early = service.client.get("/forecast", params={"signal": "x"}).json()
        assert (early["learning"], early["forecasts"]) == ("warming up: 37 of 60 readings", [])
        service.client.post("/readings", json=rows[37:])
        wait_for(lambda: service.client.get("/signals").json()["step"] == 400)
        answer = service.client.get("/forecast", params={"signal": "x"}).json()
        ahead = {forecast["horizon"]: forecast["ahead"] for forecast in answer["forecasts"]}
        assert list(ahead.values()) == [2.0, 9.0]
        path = dict(zip(answer["path"]["ahead"], answer["path"]["mean"], strict=True))
        assert path[0.0] == rows[-1]["x"]
        for forecast in answer["forecasts"]:
            assert path[forecast["ahead"]] == pytest.approx(forecast["mean"])
            assert forecast["low"] <= forecast["mean"] <= forecast["high"]
            assert 0 < forecast["rmse"] < 1
        verdict = answer["verdict"]
        assert verdict["baseline"]
        assert verdict["sentence"].startswith("x is predicted ")
        assert verdict["rmse"] > 0 < verdict["baseline_rmse"]
        assert service.client.get("/forecast", params={"signal": "z"}).status_code == 404
        service.kill()
    for _ in ("from the journal", "from the model, which is saved at the end"):
        with Served(tmp_path / "model", *FLAGS) as service:
            again = service.client.get("/forecast", params={"signal": "x"}).json()
            assert again["forecasts"] == answer["forecasts"]
            readings = stream_of(service, "x", 100)
            assert max(readings) == 399
            assert {step: rows[step]["x"] for step in readings} == readings
