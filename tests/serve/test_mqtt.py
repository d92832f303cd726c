"""MQTT as devices use it, and Home Assistant, with a real broker."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.mqtt import Watcher
from tests.support.services import FLAGS, Served, journal_readings, readings, wait_for

pytestmark = pytest.mark.serve


def wait_until_acknowledged(service: Served) -> None:
    wait_for(lambda: service.source()["lag"] == 0)


def signals(service: Served) -> set[str]:
    return set(service.client.get("/signals").json()["signals"])


def test_devices_that_report_one_at_a_time(port: int, tmp_path: Path) -> None:
    """Objects, nested objects, numbers and words, with and without a time, each from a topic of its own."""
    start = time.time() - 400
    sends: list[Callable[[int], tuple[str, Any]]] = [
        lambda t: ("home/kitchen", {"temperature": 20 + math.sin(t / 9), "time": round(start + t, 2)}),
        lambda t: ("home/bath", {"climate": {"temperature": 23 + math.cos(t / 7)}, "ts": round((start + t) * 1000)}),
        lambda t: ("home/door/state", b"on" if t % 20 < 9 else b"off"),
        lambda t: ("home/attic", f"{math.sin(t / 5):.3f}".encode()),
    ]
    options = (f"mqtt://127.0.0.1:{port}/home/%23", "--horizons", "2,9", "--warm-up", "120", "--save-every", "1h")
    with Watcher(port) as sender, Served(tmp_path / "model", *options) as service:
        service.connect()
        for t in range(200):
            sender.send(*sends[t % 2](t))
        wait_for(lambda: service.metric("readings_total") == 200)
        wait_for(lambda: signals(service) == {"home/kitchen.temperature", "home/bath.climate.temperature"})
        # Both report every two seconds, in turns: the grid makes one row of two readings.
        wait_for(lambda: 95 <= service.metric("step") <= 105)
        assert service.metric("malformed_total") == 0
        wait_until_acknowledged(service)
        held = journal_readings(tmp_path / "model.journal")
        assert all(reading.keys() & {"time"} for reading in held)
        assert [round(row["time"] - start) for row in held] == list(range(200))  # in one unit, whatever they send
        service.stop()
    with Watcher(port) as sender, Served(tmp_path / "single", *options) as service:
        service.connect()
        before = time.time()
        for t in range(130):
            sender.send(*sends[2 + t % 2](t))
        wait_for(lambda: service.metric("readings_total") == 130)
        wait_until_acknowledged(service)
        held = journal_readings(tmp_path / "single.journal")
        assert all(before - 1 <= row["time"] <= time.time() + 1 for row in held)  # the time of arrival
        assert {name for row in held for name in row} == {"time", "home/door/state", "home/attic"}
        wait_for(lambda: signals(service) == {"home/door/state", "home/attic"})
        service.stop()


def test_names_of_topics_and_of_an_existing_model(port: int, tmp_path: Path) -> None:
    address = f"mqtt://127.0.0.1:{port}/home/+"
    with Watcher(port) as sender, Served(tmp_path / "model", address, *FLAGS, "--topic-names", "home/+=+") as service:
        service.connect()
        for row in readings(70):
            sender.send("home/kitchen", row)
        wait_for(lambda: service.metric("step") == 70)
        assert signals(service) == {"kitchen.S1", "kitchen.S2"}
        service.stop()
    with Served(tmp_path / "log", *FLAGS) as service:  # a model that knows the fields by themselves
        assert service.post(readings(70)).status_code == 200
        service.stop()
    with Watcher(port) as sender, Served(tmp_path / "log", address, *FLAGS) as service:
        service.connect()
        sender.send("home/kitchen", readings(1, 70)[0])
        wait_for(lambda: service.metric("step") == 71)
        assert signals(service) == {"S1", "S2"}
        service.stop()


@pytest.mark.parametrize("version", ["", "?version=3.1.1"])
def test_home_assistant(version: str, port: int, tmp_path: Path) -> None:
    """Entities appear by themselves, show what is published, and go unavailable with the service."""
    jinja2 = pytest.importorskip("jinja2", reason="needs Jinja2, for the templates of Home Assistant")
    address = f"mqtt://127.0.0.1:{port}"
    options = (f"{address}/home/%23{version}", "--publish", f"{address}/emphatic/house{version}", "--home-assistant")
    thermometer = {"name": "Thermometer", "~": "home/kitchen", "stat_t": "~", "val_tpl": "{{ value_json.S1 }}"}
    thermometer |= {"unit_of_meas": "°C", "dev_cla": "temperature", "uniq_id": "x"}
    with Watcher(port, "homeassistant/#", "emphatic/#") as home:
        home.send("homeassistant/sensor/thermometer/config", thermometer, retain=True)
        with Served(tmp_path / "house.safetensors", *options, *FLAGS, "--units", "S2=W") as service:
            service.connect()
            wait_for(lambda: home.last.get("emphatic/house/availability") == b"online")
            for row in readings(70):
                home.send("home/kitchen", row)
            wait_for(lambda: "emphatic/house" in home.last and json.loads(home.last["emphatic/house"])["step"] == 69)
            wait_for(lambda: len(home.configs("binary_sensor")) == 2)
            sensors, alarms = home.configs("sensor"), home.configs("binary_sensor")
            del sensors["Thermometer"]
            line = json.loads(home.last["emphatic/house"])
            # Two signals at two horizons, each with a prediction and two ends, and the anomaly score of each signal.
            assert len(sensors) == 2 * 2 * 3 + 2
            devices = {json.dumps(config["device"]) for config in (sensors | alarms).values()}
            assert len(devices) == 1
            assert json.loads(devices.pop())["name"] == "emphatic house"
            assert len({config["unique_id"] for config in (sensors | alarms).values()}) == 16
            for config in (sensors | alarms).values():
                assert config["availability_topic"] == "emphatic/house/availability"
                assert (config["payload_available"], config["payload_not_available"]) == ("online", "offline")

            def shown(config: dict[str, Any]) -> str:
                body = json.loads(home.last[config["state_topic"]])
                return str(jinja2.Environment().from_string(config["value_template"]).render(value_json=body))

            for signal, unit in (("home/kitchen.S1", "°C"), ("home/kitchen.S2", "W")):
                for horizon in ("2", "9"):
                    for label, kind in (("prediction", "predictions"), ("low end", "low"), ("high end", "high")):
                        config = sensors[f"{signal} {label} {horizon}"]
                        assert float(shown(config)) == line[kind][signal][horizon]
                        assert config["unit_of_measurement"] == unit
                        assert config.get("device_class") == ("temperature" if unit == "°C" else None)
                assert shown(alarms[f"{signal} alarm"]) == ("ON" if line["alarm"][signal] else "OFF")
            for topic, _, _ in home.messages:  # as the documentation of Home Assistant has them
                if topic.startswith("homeassistant/"):
                    component, object_id, end = topic.split("/")[1:]
                    assert (component in ("sensor", "binary_sensor"), end) == (True, "config")
                    assert set(object_id) <= set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-")
            assert signals(service) == {"home/kitchen.S1", "home/kitchen.S2"}
            service.kill()
            wait_for(lambda: home.last["emphatic/house/availability"] == b"offline")
        with Served(tmp_path / "house.safetensors", *options, *FLAGS) as service:
            wait_for(lambda: home.last["emphatic/house/availability"] == b"online")
            with Watcher(port, "homeassistant/#") as later:  # Home Assistant after its own restart
                wait_for(lambda: (len(later.configs("sensor")), len(later.configs("binary_sensor"))) == (15, 2))
                assert all(is_retained for _, _, is_retained in later.messages)
            service.stop()
            wait_for(lambda: home.last["emphatic/house/availability"] == b"offline")


def test_a_source_that_covers_all_topics_skips_predictions_and_descriptions(port: int, tmp_path: Path) -> None:
    address = f"mqtt://127.0.0.1:{port}"
    options = (f"{address}/%23", "--publish", f"{address}/out", "--home-assistant")
    with Watcher(port, "out/#", "homeassistant/#") as home, Served(tmp_path / "model", *options, *FLAGS) as service:
        service.connect()
        for row in readings(70):
            home.send("home/kitchen", row)
        wait_for(lambda: "out" in home.last and json.loads(home.last["out"])["step"] == 69)
        config = wait_for(lambda: home.configs("sensor").get("home/kitchen.S1 prediction 9"))
        assert config["state_topic"] == "out"
        time.sleep(0.5)
        assert (service.metric("readings_total"), service.metric("malformed_total")) == (70, 0)
        service.stop()
