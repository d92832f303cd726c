"""Several models in one service: each with a folder, a journal and a lock of its own."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from emphatic.serve.sources.mqtt import import_paho
from tests.support.services import (
    FLAGS,
    LINES,
    Served,
    free_port,
    mosquitto,
    readings,
    same_as_undisturbed,
    wait_for,
)

TOKEN = "correct-horse-battery-staple"
HEADERS = {"authorization": f"Bearer {TOKEN}"}
SETTINGS = b"horizons = [2, 9]\n[service]\nwarm_up = 60\n"


class Several(Served):
    """A service with a folder of models, and a client that has the token."""

    def __init__(self, folder: Path) -> None:
        (folder / "token").write_text(TOKEN)
        flags = (*FLAGS, "--models", folder / "models", "--token-file", folder / "token", "--save-every", "1h")
        super().__init__(folder / "model", *flags)
        self.client.headers.update(HEADERS)

    def send(self, name: str, count: int, start: int = 0) -> httpx.Response:
        rows = "\n".join(map(json.dumps, readings(count, start)))
        return self.client.post(f"/models/{name}/readings", content=rows, headers=LINES)

    def wait(self, name: str) -> None:
        wait_for(lambda: self.client.get(f"/models/{name}").json()["state"] == "running", 60)


def the_model(folder: Path, name: str) -> Path:
    return folder / "models" / name / "model.safetensors"


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Several]:
    with Several(tmp_path) as service:
        yield service


def test_models_are_made_stopped_and_started_and_lose_nothing(served: Several, tmp_path: Path) -> None:
    client = served.client
    for name in ("pump", "fan"):
        made = client.put(f"/models/{name}", content=SETTINGS)
        assert (made.status_code, made.json()["name"]) == (200, name)
    assert client.put("/models/pump", content=SETTINGS).status_code == 409
    assert [served.send(name, count).status_code for name, count in (("pump", 100), ("fan", 70))] == [200, 200]
    served.wait("pump")
    served.wait("fan")
    assert client.get("/models/pump/signals").json()["step"] == 100
    assert client.get("/signals").json()["step"] == 0  # the default model has its own
    assert client.get("/models/fan/predictions").json()["step"] == 69
    # A model that is stopped takes nothing; the others go on; and it stays stopped.
    assert client.post("/models/pump/stop").json() == {"name": "pump", "state": "stopped"}
    refused = served.send("pump", 1, 100)
    assert (refused.status_code, refused.json()["taken"], refused.headers["retry-after"]) == (503, 0, "5")
    assert served.send("fan", 10, 70).status_code == 200
    assert client.get("/models").json()["models"] == [
        {"name": "pump", "state": "stopped"},
        {"name": "fan", "state": "running", "step": 80, "readings": 80},
    ]
    assert 'emphatic_model_running{model="pump"} 0.0' in client.get("/metrics").text
    assert "emphatic_step 80" in client.get("/models/fan/metrics").text
    # One more start, and the process is killed without a save.
    assert client.post("/models/pump/start").status_code == 200
    assert served.send("pump", 30, 100).status_code == 200
    served.wait("pump")
    served.kill()
    with Several(tmp_path) as again:
        again.wait("pump")
        again.wait("fan")
        assert again.client.get("/models/pump/signals").json()["step"] == 130
        assert again.client.get("/models/fan/signals").json()["step"] == 80
        for name in ("pump", "fan"):
            assert again.client.post(f"/models/{name}/stop").status_code == 200
    same_as_undisturbed(the_model(tmp_path, "pump"), readings(130), tmp_path)
    same_as_undisturbed(the_model(tmp_path, "fan"), readings(80), tmp_path)
    with Several(tmp_path) as last:
        assert last.client.get("/models/fan").json() == {"name": "fan", "state": "stopped"}


def test_a_model_is_replaced_by_another_while_it_runs(served: Several, tmp_path: Path) -> None:
    client = served.client
    for name, count in (("pump", 100), ("fan", 70)):
        client.put(f"/models/{name}", content=SETTINGS)
        served.send(name, count)
        served.wait(name)
    model = client.get("/models/pump/model").content
    assert client.put("/models/fan/model", content=model[:-1]).status_code == 422
    assert client.put("/models/fan/model", content=model).json() == {"step": 100}
    assert served.send("fan", 5, 100).status_code == 200
    assert client.get("/models/fan/signals").json()["step"] == 105
    client.post("/models/fan/stop")
    same_as_undisturbed(the_model(tmp_path, "fan"), readings(105), tmp_path)


@pytest.mark.serve
def test_messages_wait_at_the_broker_while_a_model_is_stopped(tmp_path: Path) -> None:
    """Each model has its own client there; it is stopped and started, and then the whole service is killed."""
    paho = import_paho()
    port, sent = free_port(), {"pump": 0, "fan": 0}
    for name in sent:
        (tmp_path / "models" / name).mkdir(parents=True)
        source = f'source = "mqtt://127.0.0.1:{port}/{name}"\ntopic_names = ["{name}="]\n'
        (tmp_path / "models" / name / "model.toml").write_text(SETTINGS.decode() + source)

    with mosquitto(tmp_path, port):
        client = paho.Client(paho.CallbackAPIVersion.VERSION2)
        client.connect("127.0.0.1", port)
        client.loop_start()

        def send(name: str, count: int) -> None:
            for row in readings(count, sent[name]):
                client.publish(name, json.dumps(row), qos=1).wait_for_publish(30)
            sent[name] += count

        def learned(service: Several, name: str) -> None:
            wait_for(lambda: service.client.get(f"/models/{name}/signals").json()["step"] == sent[name], 60)

        with Several(tmp_path) as served:
            wait_for(lambda: sum("connected." in line for line in served.log) == 2)
            for name in sent:
                send(name, 80)
                learned(served, name)
            assert served.client.post("/models/pump/stop").json()["state"] == "stopped"
            send("pump", 50)
            send("fan", 10)
            learned(served, "fan")
            assert served.client.post("/models/pump/start").status_code == 200
            learned(served, "pump")
            served.kill()
        send("pump", 30)
        with Several(tmp_path) as again:
            for name in sent:
                learned(again, name)
                assert again.client.post(f"/models/{name}/stop").status_code == 200
        client.loop_stop()
    for name, count in sent.items():
        same_as_undisturbed(the_model(tmp_path, name), readings(count), tmp_path)


def test_strangers_change_nothing(served: Several, tmp_path: Path) -> None:
    client = served.client
    for name in ("..", "a.b", "-x", "a b", "x" * 65, "%2e%2e%2fx", "a%2fb", "\u00fc"):
        assert client.put(f"/models/{name}", content=SETTINGS).status_code in (404, 405, 422), name
    outside = {"source": '"mqtt://127.0.0.1/x"', "publish": '"mqtt://127.0.0.1/x"', "password_file": '"/etc/passwd"'}
    hostile = [f"[service]\n{key} = {value}\n".encode() for key, value in outside.items()]
    hostile += [b"\xff", b"=", b"nonsense = 1", b"service = 3", b"[service]\nwarm_up = 1", b"[service]\nx = 1"]
    hostile += [b"horizons = 'x'", b"[" * 5000, b"a" * (1 << 17)]
    for body in hostile:
        answer = client.put("/models/pump", content=body)
        assert answer.status_code in (413, 422), body
        assert "error" in answer.json()
        assert str(tmp_path) not in answer.text
    assert not list((tmp_path / "models").glob("*"))
    client.put("/models/pump", content=SETTINGS)
    with httpx.Client(base_url=served.url) as stranger:
        assert stranger.get("/models").status_code == 401
        for verb, path in (("GET", "model"), ("PUT", "model"), ("POST", "stop"), ("POST", "start"), ("GET", "signals")):
            assert stranger.request(verb, f"/models/pump/{path}").status_code == 401, path
        assert stranger.get("/models/pump/").status_code == 401
        assert "<form" in stranger.get("/models/pump/").text == stranger.get("/models/none/").text
    for verb, path in (("GET", "none/signals"), ("POST", "none/stop"), ("POST", "none/start"), ("GET", "none")):
        assert client.request(verb, f"/models/{path}").status_code == 404, path
    assert client.get("/models/pump").json()["state"] == "warming up"


def test_a_damaged_model_does_not_stop_the_others(tmp_path: Path) -> None:
    for name in ("good", "damaged"):
        (tmp_path / "models" / name).mkdir(parents=True)
        (tmp_path / "models" / name / "model.toml").write_bytes(SETTINGS)
    the_model(tmp_path, "damaged").write_bytes(b"nonsense")
    with Several(tmp_path) as served:
        assert served.send("good", 70).status_code == 200
        assert served.post(readings(70)).status_code == 200
        wait_for(lambda: served.client.get("/readyz").json()["status"] != "warming up", 60)
        ready = served.client.get("/readyz")
        assert (ready.status_code, ready.json()["models"]["damaged"]) == (503, "failed")
        assert ready.json()["error"].startswith("model damaged: ")
        assert 'emphatic_model_failed{model="damaged"} 1.0' in served.client.get("/metrics").text
        assert served.send("damaged", 1).status_code == 503
        the_model(tmp_path, "damaged").unlink()
        assert served.client.post("/models/damaged/start").json()["state"] == "warming up"
        assert served.client.get("/readyz").status_code == 200


def test_two_services_do_not_share_a_model(served: Several, tmp_path: Path) -> None:
    served.client.put("/models/pump", content=SETTINGS)
    (tmp_path / "other").mkdir()
    flags = (*FLAGS, "--models", tmp_path / "models")
    with Served(tmp_path / "other" / "model", *flags) as second:
        (state,) = second.client.get("/models").json()["models"]
        assert (state["state"], "another run" in state["error"]) == ("failed", True)
        second.post(readings(70))
        second.stop()
    with Served(tmp_path / "other" / "model", *flags, "--no-learn") as second:
        (state,) = second.client.get("/models").json()["models"]
        assert state["error"].startswith("--no-learn needs a model, and there is none at")
        assert second.client.post("/models/pump/start").status_code == 403  # it has no token
    assert served.send("pump", 1).status_code == 200
