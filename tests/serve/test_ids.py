"""Ids of readings: each reading is learned from once, and a repeated one gets its first answer."""

from __future__ import annotations

import json
import shutil
import threading
from pathlib import Path
from typing import Any

import pytest

from emphatic.nexting.serve import service as service_module
from emphatic.nexting.serve.ids import KnownIds
from emphatic.nexting.serve.journal import JournalError
from emphatic.nexting.serve.metrics import write_metrics
from emphatic.nexting.serve.service import Incoming, Service, with_ids
from emphatic.nexting.serve.sources import check_loop
from emphatic.nexting.serve.sources.mqtt import MqttPublisher, topics_overlap
from emphatic.nexting.tables.pipe import Malformed
from tests.support.processes import COMMAND, run
from tests.support.services import SETTINGS, Client, offer, readings, same_as_undisturbed, started, wait_for


def identified(rows: list[dict[str, Any]], start: int = 0, scope: str = "plant/a") -> list[Incoming]:
    return [with_ids([Incoming(row)], scope, "", str(start + i))[0] for i, row in enumerate(rows)]


def test_ids_belong_to_their_scope_and_to_readings_that_were_used(service: Service) -> None:
    rows = readings(70)
    offer(service, identified(rows))
    offer(service, identified(readings(5, 70), scope="plant/b"))
    assert (service.step, service.repeated) == (75, 0)
    refused = offer(service, [*identified([{"other": 1}], 500), *identified([{"other": 1}], 500)])
    assert [type(receipt.outcome) for receipt in refused] == [Malformed, Malformed]
    offer(service, identified(readings(1, 75), 500))
    assert (service.step, service.repeated) == (76, 0)


def test_a_repeat_beyond_the_window_is_learned_from(service: Service) -> None:
    service.ids = KnownIds(20)
    offer(service, identified(readings(80)))
    offer(service, identified(readings(80)[70:], 70))
    assert (service.step, service.repeated, len(service.ids)) == (80, 10, 20)
    offer(service, identified(readings(80)[:5]))
    assert (service.step, service.repeated) == (85, 10)


def test_the_oldest_answers_are_forgotten_before_their_ids() -> None:
    ids = KnownIds(100, answers=1000)
    for i in range(150):
        ids.add(f"#{i}", b"%03d" % i * 10)
    assert "#49" not in ids
    assert ids.answer("#50") is None
    kept = [i for i in range(50, 150) if ids.answer(f"#{i}")]
    assert kept == list(range(150 - len(kept), 150))
    assert 25 < len(kept) <= 34
    again = KnownIds(100)
    again.load(ids.dump())
    assert [again.answer(f"#{i}") for i in (50, 149)] == [None, b"149" * 10 + b"\n"]


def payload(row: dict[str, Any], text: str, *, retained: bool, topic: str = "plant/a") -> Incoming:
    return with_ids([Incoming(row, retained=retained)], topic, "", origin={"payload": [topic, text]})[0]


def test_a_retained_message_is_learned_unless_it_is_the_last_of_its_topic(tmp_path: Path) -> None:
    rows = readings(80)
    service = started(tmp_path)
    offer(service, [payload(row, f"p{i}", retained=False) for i, row in enumerate(rows)])
    for incoming, repeats in (
        (payload(rows[79], "p79", retained=True), True),
        (payload(rows[79], "p79", retained=True, topic="plant/b"), False),
        (payload(rows[79], "p79", retained=False), False),  # a live message with the same payload is a new reading
        (payload(rows[78], "p78", retained=True), False),  # not the last one that was learned from
        (payload(rows[78], "p78", retained=True), True),
    ):
        [receipt] = offer(service, [incoming])
        assert receipt.repeated is repeats
    block = [payload(rows[0], "new", retained=False), payload(rows[0], "new", retained=True)]
    assert [receipt.repeated for receipt in offer(service, block)] == [False, True]
    service.close()
    service = started(tmp_path)
    assert offer(service, [payload(rows[0], "new", retained=True)])[0].repeated
    service.close()


# ---------------------------------------------------------------------- HTTP


def test_http_answers_a_repeated_id_with_the_first_answer(tmp_path: Path) -> None:
    """Of a header or a field, of one reading and of several, after a crash and after a save."""
    rows = readings(100)
    service = started(tmp_path / "served")
    web = Client(service)
    assert web.post("/readings", json=rows[:80]).status_code == 200
    header = {"Idempotency-Key": "order-7"}
    first = web.post("/readings", json=rows[80], headers=header)
    field = web.post("/readings", json={**rows[81], "reading_id": 17})
    several = web.post("/readings", json=rows[82:90], headers={"Idempotency-Key": "list"})
    assert (first.json()["step"], field.json()["step"], several.text.count("\n")) == (80, 81, 8)
    crashed = shutil.copytree(tmp_path / "served", tmp_path / "crashed")

    def repeat() -> None:
        web = Client(service)
        assert web.post("/readings", json=rows[80], headers=header).content == first.content
        assert web.post("/readings", json={**rows[81], "reading_id": "17"}).content == field.content
        assert web.post("/readings", json=rows[82:90], headers={"Idempotency-Key": "list"}).content == several.content
        assert (service.step, service.repeated) == (90, 10)
        assert "emphatic_repeated_total 10" in write_metrics(service)

    repeat()
    service.close()
    for folder in (tmp_path / "served", crashed):
        service = started(folder)
        repeat()
        service.close()
        same_as_undisturbed(folder / "model", rows[:90], tmp_path)


def test_the_rest_of_a_list_that_was_taken_in_part_is_learned(service: Service) -> None:
    """With the same key: the rest alone, as the answer 503 asks for, or the whole list again."""
    rows = readings(100)
    web, header = Client(service), {"Idempotency-Key": "k"}
    parts = [with_ids([Incoming(row) for row in rows], "", "", "k")[:70]]
    offer(service, parts[0])
    assert web.post("/readings", json=rows, headers=header).text.count("\n") == 100
    assert (service.step, service.repeated) == (100, 70)
    assert web.post("/readings", json=readings(30, 100), headers=header).status_code == 200
    assert (service.step, service.repeated) == (130, 70)


def test_a_repeated_reading_gets_the_line_of_the_warm_up_that_it_got_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While kernels compile, once it is ready, and after a crash; it is learned from once."""
    rows, header, compiled = readings(80), {"Idempotency-Key": "key"}, threading.Event()
    monkeypatch.setattr(service_module, "compile_for_live", lambda settings: compiled.wait(60))

    service = started(tmp_path / "served", wait=False)
    first = Client(service).post("/readings", json=rows, headers=header).text
    lines = [json.loads(line) for line in first.splitlines()]
    assert [(line["state"], line["readings"]) for line in lines] == [("warming up", n) for n in range(1, 81)]
    killed = started(shutil.copytree(tmp_path / "served", tmp_path / "killed"), wait=False)
    for is_ready in (False, True):
        if is_ready:
            compiled.set()
            wait_for(lambda: not service.warming_up and not killed.warming_up)
        for each in (service, killed):
            assert Client(each).post("/readings", json=rows, headers=header).text == first
    for each in (service, killed):
        assert (each.step, each.repeated) == (80, 160)
        each.close()
        same_as_undisturbed(each.model, rows, tmp_path)


@pytest.mark.parametrize("value", ["", " ", "x" * 256, "a\x07b"])
def test_ids_that_cannot_be_ids_are_refused(value: str, service: Service) -> None:
    web = Client(service)
    if value.isprintable():
        answer = web.post("/readings", json={"S1": 1}, headers={"Idempotency-Key": value})
        assert (answer.status_code, "an id must have 1 to 255 characters" in answer.text) == (400, True)
    answer = web.post("/readings", json={"S1": 1, "reading_id": value})
    assert (answer.status_code, "an id must have 1 to 255 characters" in answer.text) == (422, True)
    wrong_values: list[Any] = [[1], True, 1.5, {}]
    for wrong in wrong_values:
        assert web.post("/readings", json={"S1": 1, "reading_id": wrong}).status_code == 422
    assert web.post("/readings", json={"S1": 1, "reading_id": None}).status_code == 200
    assert service.waiting == 1


def test_the_field_of_ids_is_no_signal_and_can_be_another(tmp_path: Path) -> None:
    service = started(tmp_path, id_field="n")
    web = Client(service)
    rows = [{**row, "n": i} for i, row in enumerate(readings(70))]
    assert web.post("/readings", json=rows).status_code == 200
    assert web.post("/readings", json=rows).status_code == 200
    assert (service.step, service.repeated) == (70, 70)
    assert service.recent is not None
    assert service.recent.names == ("S1", "S2")
    service.close()


# ---------------------------------------------------------------------- predictions are published at least once


class Broker:
    """A publisher whose broker confirms nothing."""

    def __init__(self) -> None:
        self.lines: list[bytes] = []

    def start(self) -> None:
        pass

    def stop(self) -> None:
        pass

    def __call__(self, line: bytes) -> None:
        self.lines.append(line.rstrip(b"\n"))

    def unconfirmed(self) -> list[bytes]:
        return list(self.lines)


def steps(lines: list[bytes]) -> list[int]:
    return [json.loads(line)["step"] for line in lines]


def test_what_was_not_confirmed_is_published_again(tmp_path: Path) -> None:
    """After a stop what the model was saved with, after a crash also what the journal gives."""
    service, broker = Service(tmp_path / "a" / "model", SETTINGS, warm_up=60), Broker()
    service.publish_to(broker)
    service.open()
    service.start()
    offer(service, [Incoming(row) for row in readings(100)])
    crashed = shutil.copytree(tmp_path / "a", tmp_path / "crashed")
    service.close()
    assert steps(broker.lines) == list(range(59, 100))  # the warm-up has no predictions
    for folder in (tmp_path / "a", crashed):
        again, later = Service(folder / "model", SETTINGS, warm_up=60), Broker()
        again.publish_to(later)
        again.open()
        assert later.lines == broker.lines
        again.start()
        again.close()


def test_predictions_that_find_no_room_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from emphatic.nexting.serve.sources import Address, mqtt

    monkeypatch.setattr(mqtt, "_QUEUED", 5)
    publisher = MqttPublisher(Address.parse("mqtt://127.0.0.1:1/out"), tmp_path / "model")
    for i in range(8):
        publisher(b"%d\n" % i)
    assert publisher.unconfirmed() == [b"%d\n" % i for i in range(5)]
    assert (publisher.status.lost, publisher.status.lag) == (3, 5)


# ---------------------------------------------------------------------- nothing feeds on itself


@pytest.mark.parametrize(
    ("wanted", "topic", "overlap"),
    [
        ("a/b", "a/b", True), ("a/+", "a/b", True), ("a/#", "a/b/c", True), ("a/#", "a", True), ("#", "x/y", True),
        ("+/+", "x/y", True), ("+", "x/y", False), ("a/+/c", "a/b/d", False), ("a/b", "a/b/c", False),
        ("a/b/c", "a/b", False), ("#", "$SYS/x", False), ("$share/g/a/+", "a/b", True), ("A/b", "a/b", False),
        ("+/b", "/b", True),
    ],
)  # fmt: skip
def test_topics_overlap(wanted: str, topic: str, overlap: bool) -> None:
    assert topics_overlap(wanted, topic) is overlap


@pytest.mark.parametrize(
    ("source", "publish", "refused"),
    [
        ("mqtt://localhost/a/b", "mqtt://127.0.0.1:1883/a/b", True),
        ("mqtt://localhost/a/%23", "mqtt://127.0.0.1/a/b", False),  # MQTT 5 skips them
        ("mqtt://localhost/a/%23?version=3.1.1", "mqtt://127.0.0.1/a/b?version=3.1.1", True),
        ("mqtt://localhost/a/%23?version=3.1.1", "mqtt://127.0.0.1/b", False),
        ("mqtt://localhost/+/b?version=3.1.1", "mqtt://localhost:1884/a/b", False),
        ("mqtt://localhost/%23", "mqtt://127.0.0.1/a?version=3.1.1", True),
        ("mqtts://localhost/s", "mqtt://127.0.0.1/s", False),
        ("-", "mqtt://127.0.0.1/s", False),
    ],
)
def test_predictions_must_not_come_back(source: str, publish: str, refused: bool) -> None:
    check_loop(source, None)
    check_loop(None, publish)
    if refused:
        with pytest.raises(ValueError, match="send predictions elsewhere"):
            check_loop(source, publish)
    else:
        check_loop(source, publish)


def test_a_topic_to_publish_to_is_one_topic(tmp_path: Path) -> None:
    from emphatic.nexting.serve.sources import make_publisher

    with pytest.raises(ValueError, match="predictions go to one topic"):
        make_publisher("mqtt://127.0.0.1/a/+", tmp_path / "model")


# ---------------------------------------------------------------------- damage


def test_a_service_with_a_damaged_journal_says_what_to_do(tmp_path: Path) -> None:
    """With an exit code of its own, which is not that of wrong options."""
    service = started(tmp_path / "a")
    offer(service, [Incoming(row) for row in readings(90)])
    crashed = shutil.copytree(tmp_path / "a", tmp_path / "crashed")
    service.close()
    [path] = (crashed / "model.journal").glob("*.jsonl")
    path.write_bytes(path.read_bytes().replace(b'"S1"', b'"S7"', 1))
    done = run(COMMAND, "serve", "--model", crashed / "model", "--port", 0)
    assert (done.returncode, done.stderr.count(b"\n")) == (65, 1)
    assert b"line 1: its checksum is wrong" in done.stderr
    assert b"emphatic journal repair" in done.stderr
    (tmp_path / "new.warm-up").write_text("{")
    done = run(COMMAND, "serve", "--model", tmp_path / "new", "--port", 0)
    assert (done.returncode, b"this is not the saved warm-up" in done.stderr) == (65, True)


def test_a_model_that_is_older_than_its_empty_journal_is_refused(tmp_path: Path) -> None:
    """Readings that were acknowledged are in no model and in no journal."""
    service = started(tmp_path)
    offer(service, [Incoming(row) for row in readings(80)])
    service.close()
    old = (tmp_path / "model").read_bytes()
    service = started(tmp_path)
    offer(service, [Incoming(row) for row in readings(20, 80)])
    service.close()
    (tmp_path / "model").write_bytes(old)
    with pytest.raises(JournalError, match="which has learned from 80 readings of it"):
        started(tmp_path)
    (tmp_path / "model").unlink()  # whoever wants to begin anew may
    started(tmp_path).close()
