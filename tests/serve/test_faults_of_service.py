"""The service killed, stopped and cut off, with real brokers and a real limit on files."""

from __future__ import annotations

import json
import resource
import shutil
import threading
import time
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from tests.attack.once import Sender
from tests.support.processes import COMMAND, run
from tests.support.services import (
    FLAGS,
    Served,
    free_port,
    journal_readings,
    mosquitto,
    readings,
    same_as_undisturbed,
    wait_for,
)

pytestmark = pytest.mark.serve

#: Settings with questions of every kind.
SETTINGS_OF_ALL = """horizons = [2, 9]
weighted = true
ask = ["P(S1 > 0.5 within 9s)", "P(S2 < 0 at +9s)", "time until S1 > 0.5 up to 20s", "max of S2 within 9s"]
[[questions]]
name = "near"
cumulant = "S1"
horizon = 9
"""
#: The fields of the topic are the signals, as readings() has them.
BARE = (*FLAGS, "--topic-names", "plant/readings=")


def test_killed_twenty_times_under_load_by_http(tmp_path: Path) -> None:
    """All that was acknowledged is there, in order, and the bits are those of an undisturbed run."""
    model, rng = tmp_path / "model", np.random.default_rng(1)
    taken = kills = 0
    while kills < 20:
        with Served(model, *FLAGS, "--save-every", "0.2s") as service:
            there = int(service.metric("step")) or service.client.get("/signals").json()["waiting"]
            assert there >= taken, "what was acknowledged is lost"
            taken = there
            timer = threading.Timer(float(rng.uniform(0.05, 0.7)), service.kill)
            timer.start()
            try:
                while True:
                    count = int(rng.integers(1, 80))
                    answer = service.post(readings(count, taken))
                    assert answer.status_code == 200
                    taken += count
            except httpx.HTTPError:
                kills += 1
            timer.join()
    with Served(model, *FLAGS) as service:
        there = int(service.metric("step"))
        assert there >= taken
        service.stop()
    same_as_undisturbed(model, readings(there), tmp_path)
    assert there > 1000


def test_stopped_and_killed_it_writes_the_lines_of_a_pipe(tmp_path: Path) -> None:
    """Every column: values, means, weighted means, events, times until, own questions, alarms."""
    (tmp_path / "settings.toml").write_text(SETTINGS_OF_ALL, "utf-8")
    flags = ("--config", tmp_path / "settings.toml", "--warm-up", 60)
    rows, lines = readings(320), list[bytes]()
    rows[250]["S1"] = 1e3
    for number, (begin, end) in enumerate(((0, 130), (130, 200), (200, 260), (260, 320))):
        with Served(tmp_path / "model", *flags, "--save-every", "1h") as service:
            lines += service.post(rows[begin:end]).content.splitlines()
            service.kill() if number % 2 else service.stop()
    text = "\n".join(map(json.dumps, rows)).encode()
    piped = run(COMMAND, "nexting", "-", *flags, "--model", tmp_path / "piped", input=text).stdout.splitlines()
    assert lines[59:] == piped[-261:]
    last = json.loads(lines[-1])
    assert {*last["asked"]} > {"S1@9", "mean of S2 over 9", "P(S1 > 0.5 within 9s)", "max of S2 within 9s"}
    assert last["predictions"]["near"]["9"] is not None
    assert any(json.loads(line)["alarm"]["S1"] for line in lines[-70:])


def test_a_second_service_on_one_folder_is_refused_twenty_times(tmp_path: Path) -> None:
    """By the model or by the journal; the first goes on learning meanwhile, and misses nothing."""
    model, taken = tmp_path / "model", 0
    others = ((model,), (tmp_path / "other", "--journal", tmp_path / "model.journal"))
    with Served(model, *FLAGS, "--save-every", "0.2s") as service:
        for attempt in range(20):
            other, *journal = others[attempt % 2]
            with Served(other, *FLAGS, *journal, wait=False) as second:
                assert service.post(readings(40, taken)).status_code == 200
                taken += 40
                assert second.process.wait(60) == 75  # TEMPFAIL: another attempt may do
                assert any("another run" in line for line in second.log), second.log
        service.stop()
    same_as_undisturbed(model, readings(taken), tmp_path)
    assert not (tmp_path / "other").exists()


def test_a_disk_that_is_full_at_a_save(tmp_path: Path) -> None:
    """The service goes on, says so, acknowledges what the journal takes, and saves when there is room."""
    model, rows = tmp_path / "model", readings(900)
    with Served(model, *FLAGS, "--save-every", "0.2s") as service:
        service.post(rows[:200])
        wait_for(lambda: service.metric("saved_step") == 200)
        unlimited = resource.prlimit(service.process.pid, resource.RLIMIT_FSIZE)
        resource.prlimit(service.process.pid, resource.RLIMIT_FSIZE, (20_000, unlimited[1]))
        assert model.stat().st_size > 20_000
        before = model.read_bytes()
        assert service.post(rows[200:300]).status_code == 200
        wait_for(lambda: any("cannot be saved" in line for line in service.log))
        assert service.client.get("/readyz").status_code == 503
        assert (service.metric("trouble"), service.metric("saved_step"), model.read_bytes() == before) == (1, 200, True)
        assert len(journal_readings_of(tmp_path)) == 100
        assert service.client.get("/healthz").status_code == 200
        # Now the journal does not fit either: nothing is acknowledged, and nothing is lost.
        answered: list[Any] = []
        thread = threading.Thread(target=lambda: answered.append(service.post(rows[300:900])))
        thread.start()
        wait_for(lambda: any("journal cannot be written" in line for line in service.log))
        time.sleep(0.3)
        assert answered == []
        resource.prlimit(service.process.pid, resource.RLIMIT_FSIZE, unlimited)
        thread.join(20)
        assert answered[0].status_code == 200
        wait_for(lambda: service.metric("saved_step") == 900)
        assert service.client.get("/readyz").status_code == 200
        assert not any("Traceback" in line for line in service.log)
        service.stop()
    same_as_undisturbed(model, rows, tmp_path)


def journal_readings_of(folder: Path) -> list[dict[str, Any]]:
    """The readings in a journal that is in use."""
    shutil.copytree(folder / "model.journal", folder / "copy", dirs_exist_ok=True)
    return journal_readings(folder / "copy")


# ---------------------------------------------------------------------- MQTT


def test_stopped_under_load_by_mqtt(port: int, tmp_path: Path) -> None:
    """Without a crash every reading is learned from exactly once."""
    model, rows, rng = tmp_path / "model", readings(3000), np.random.default_rng(5)
    source = f"mqtt://127.0.0.1:{port}/plant/readings"
    with Served(model, source, *BARE) as service:
        wait_for(lambda: any("connected" in line for line in service.log))
        sending = threading.Thread(target=Sender(port, rate=1000.0, ids=False).run, args=(3000,))
        sending.start()
        time.sleep(0.2)
        assert service.stop() < 5.0
        for _ in range(4):
            with Served(model, source, *BARE) as again:
                time.sleep(float(rng.uniform(0.1, 0.8)))
                assert again.stop() < 5.0
        sending.join(60)
    with Served(model, source, *BARE) as service:
        wait_for(lambda: service.metric("step") >= 3000)
        service.stop()
    same_as_undisturbed(model, rows, tmp_path)


def test_a_broker_that_goes_away_for_ten_seconds(tmp_path: Path) -> None:
    rows, found = readings(500), free_port()
    (tmp_path / "broker").mkdir()
    source = f"mqtt://127.0.0.1:{found}/plant/readings"
    with Served(tmp_path / "model", source, *BARE, "--save-every", "1h") as service:
        wait_for(lambda: any("cannot be reached" in line for line in service.log))
        with mosquitto(tmp_path / "broker", found) as broker:
            wait_for(lambda: any("connected." in line for line in service.log))
            sender = Sender(found, rate=1000.0, ids=False)
            sender.send(200)
            wait_for(lambda: service.metric("step") == 200 and service.metric("unacknowledged") == 0)
            time.sleep(0.5)  # until the broker has the acknowledgements: without ids they would come twice
            broker.terminate()
            broker.wait(10)
            assert service.post(rows[200:300]).status_code == 200  # HTTP goes on
            time.sleep(10)
            with mosquitto(tmp_path / "broker", found):
                sender.sent = 300
                sender.send(200)
                wait_for(
                    lambda: (
                        service.client.get("/predictions").json()["time"] == rows[-1]["time"]
                        and service.metric("unacknowledged") == 0
                    )
                )
                assert any("the connection is lost" in line for line in service.log)
                service.kill()
    held = journal_readings(tmp_path / "model.journal")
    assert list(dict.fromkeys(row["time"] for row in held)) == [row["time"] for row in rows]
    with Served(tmp_path / "model", *BARE) as service:
        service.stop()
    same_as_undisturbed(tmp_path / "model", held, tmp_path)
