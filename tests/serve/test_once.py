"""Each reading once, with real brokers: kills, sessions that expired, and loops."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.attack.once import kill_under_load
from tests.support.mqtt import Watcher
from tests.support.services import FLAGS, Served, free_port, mosquitto, readings, wait_for

pytestmark = pytest.mark.serve


@pytest.mark.parametrize("ids", [True, False])
def test_killed_with_its_broker_under_load(ids: bool, tmp_path: Path) -> None:
    """Without ids a reading may be learned from twice: the broker sends again what was not acknowledged."""
    counts = kill_under_load(tmp_path / "run", kills=5, broker_kills=2 * ids, ids=ids, rate=100, seed=3)
    assert (counts.doubled * ids, counts.lost, counts.unpublished, counts.differing) == (0, 0, 0, 0)
    assert counts.sent - counts.lost_by_broker + counts.doubled == counts.steps
    assert counts.sent > 300


def within_5_s(done: Callable[[], Any]) -> Any:
    return wait_for(done, 5.0)


def labelled(service: Served, name: str) -> float:
    lines = service.client.get("/metrics").text.splitlines()
    return next(float(line.split(" ")[1]) for line in lines if line.startswith(f"emphatic_{name}{{"))


def test_a_source_without_a_connection_makes_the_service_not_ready(tmp_path: Path) -> None:
    port = free_port()
    with Served(tmp_path / "model", f"mqtt://127.0.0.1:{port}/plant/readings", *FLAGS) as service:
        service.post(readings(80))
        assert service.client.get("/readyz").status_code == 200
        wait_for(lambda: "no connection for" in service.client.get("/readyz").json().get("error", ""), 40)
        assert (service.client.get("/readyz").status_code, service.client.get("/healthz").status_code) == (503, 200)
        assert labelled(service, "source_connected") == 0
        with mosquitto(tmp_path, port):
            wait_for(lambda: service.client.get("/readyz").status_code == 200, 8.0)
            assert labelled(service, "source_connected") == 1
        service.stop()


@pytest.mark.parametrize("version", ["", "?version=3.1.1"])
def test_ids_of_messages_and_fields_by_mqtt(version: str, port: int, tmp_path: Path) -> None:
    rows, names = readings(100), ("--topic-names", "plant/+=")
    with Served(tmp_path / "model", f"mqtt://127.0.0.1:{port}/plant/+{version}", *FLAGS, *names) as service:
        service.connect()
        with Watcher(port) as sender:
            for i, row in enumerate(rows[:80]):
                sender.send("plant/a", {**row, "reading_id": i})
            for i, row in enumerate(rows[:80]):
                sender.send("plant/a", {**row, "reading_id": i})
            sender.send("plant/b", {**rows[80], "reading_id": 0})  # of another device
            wait_for(lambda: service.metric("step") == 81)
            if not version:
                for name in ("Idempotency-Key", "reading_id"):
                    sender.send("plant/a", rows[81:84], id=f"x {name}", name=name)
                    sender.send("plant/a", rows[81:84], id=f"x {name}", name=name)
                wait_for(lambda: service.metric("step") == 87)
        wait_for(lambda: service.metric("repeated_total") == (80 if version else 86))
        service.stop()


def test_retained_messages(port: int, tmp_path: Path) -> None:
    """By MQTT 3.1.1, with which they come whenever a client subscribes."""
    options = (f"mqtt://127.0.0.1:{port}/p/+?version=3.1.1", *FLAGS, "--topic-names", "p/+=")
    with Watcher(port) as sender:
        with Served(tmp_path / "model", *options) as service:
            service.connect()
            for row in readings(79):
                sender.send("p/r", row)
            sender.send("p/kept", readings(1, 79)[0], retain=True)
            wait_for(lambda: service.metric("step") == 80)
            service.stop()
        for _ in range(2):
            with Served(tmp_path / "model", *options) as service:
                wait_for(lambda: service.metric("repeated_total") == 1)
                assert service.metric("step") == 80
                service.stop()
        with Served(tmp_path / "model", *options) as service:
            wait_for(lambda: service.metric("repeated_total") == 1)
            sender.send("p/kept", readings(1, 79)[0], retain=True)  # live, with the same payload
            wait_for(lambda: service.metric("step") == 81)
            service.stop()


def test_a_session_that_the_broker_forgot_is_reported(tmp_path: Path) -> None:
    port, folder = free_port(), tmp_path / "broker"
    folder.mkdir()
    options = (f"mqtt://127.0.0.1:{port}/plant/readings", *FLAGS)
    with mosquitto(folder, port) as process:
        with Served(tmp_path / "model", *options) as service, Watcher(port) as sender:
            service.connect()
            sender.send("plant/readings", readings(1)[0])
            wait_for(lambda: service.client.get("/signals").json()["waiting"] == 1)
            process.kill()
            process.wait(10)
            wait_for(lambda: service.source()["state"] == "disconnected")
            for path in folder.glob("*.db*"):
                path.unlink()
            with mosquitto(folder, port):
                loss = wait_for(lambda: service.source()["losses"], 8.0)[0]  # 3 s until it connects again
                assert (loss["count"], "forgotten the session" in loss["reason"]) == (None, True)
                service.stop()
        with mosquitto(folder, port), Served(tmp_path / "model", *options) as service:
            within_5_s(lambda: service.source()["losses"])  # the session is not in the broker's file either
            service.stop()
        with mosquitto(folder, port), Served(tmp_path / "new", *options) as service:
            service.connect()
            assert service.source()["losses"] == []  # a first connection loses nothing
            service.stop()


def test_a_service_does_not_feed_on_predictions(port: int, tmp_path: Path) -> None:
    """Neither on its own, with a source that covers them, nor on those of another instance."""
    here, there = f"mqtt://127.0.0.1:{port}", f"mqtt://localhost:{port}"
    with (
        Watcher(port) as sender,
        Served(tmp_path / "a", f"{here}/plant/%23", "--publish", f"{there}/plant/predictions", *FLAGS) as service,
        Served(tmp_path / "b", f"{here}/%23", "--publish", f"{there}/other/predictions", *FLAGS) as other,
    ):
        service.connect()
        other.connect()
        for row in readings(90):  # the last 31 of which have predictions
            sender.send("plant/readings", row)
        wait_for(lambda: other.metric("readings_total") >= 90 and service.metric("readings_total") >= 90)
        time.sleep(1.5)
        assert (service.metric("readings_total"), service.metric("malformed_total")) == (90, 0)
        assert (other.metric("readings_total"), other.metric("malformed_total")) == (90, 0)
        assert (service.source()["skipped"], other.source()["skipped"]) == (0, 31)
        published = service.client.get("/readyz").json()["publishers"][0]
        assert (published["messages"], published["lag"], published["lost"]) == (31, 0, 0)
        service.stop()
        other.stop()
