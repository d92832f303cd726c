"""The service over HTTP, in a process of its own."""

from __future__ import annotations

import json
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from emphatic.nexting.runs.predictor import Predictor
from tests.support.processes import COMMAND, run
from tests.support.services import FLAGS, LINES, Served, readings, same_as_undisturbed, wait_for

JSON = {"content-type": "application/json"}


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A service that has learned from 200 readings, the last of which have come one by one and in lists."""
    model = tmp_path_factory.mktemp("served") / "model"
    with Served(model, *FLAGS, "--save-every", "1h") as service:
        state = {"readings": 0, "needed": 60}
        ready = service.client.get("/readyz")
        assert (ready.status_code, ready.json()) == (
            503,
            {"status": "warming up", "waiting": 0, "warm_up": 60, **state},
        )
        warming_up: dict[str, Any] = {"step": None, "time": None, "predictions": {}, "state": "warming up"}
        assert service.client.get("/predictions").json() == warming_up | state
        for unusable in ({}, {"S1": {"a": 1}}, {"S1": [1.0], "S2": None}):
            refused = service.client.post("/readings", json=unusable)
            assert (refused.status_code, refused.json()["error"][:10]) == (422, "reading 1:")
        rows = readings(200)
        first = service.client.post("/readings", json=rows[0])
        assert (first.status_code, first.json()) == (200, warming_up | {"readings": 1, "needed": 60})
        listed = service.client.post("/readings", json=rows[1:100])
        lines = [json.loads(line) for line in listed.text.splitlines()]
        assert [line.get("readings") for line in lines] == [*range(2, 60), *[None] * 41]
        assert [line["step"] for line in lines] == [*[None] * 58, *range(59, 100)]
        more = service.post(rows[100:])
        assert [json.loads(line)["step"] for line in more.text.splitlines()] == list(range(100, 200))
        yield service


def test_a_line_a_reading_as_the_pipe_writes_it(served: Served, tmp_path: Path) -> None:
    text = "\n".join(map(json.dumps, readings(200))).encode()
    done = run(COMMAND, "nexting", "-", *FLAGS, "--model", tmp_path / "m", input=text)
    latest = served.client.get("/predictions")
    assert latest.headers["content-type"] == "application/json"
    assert latest.content.strip() == done.stdout.splitlines()[199 - 2]


def test_what_it_knows(served: Served) -> None:
    assert served.client.get("/healthz").json() == {"status": "alive"}
    assert served.client.get("/readyz").json() == {"status": "ready"}
    known = served.client.get("/signals").json()
    assert known == {
        "signals": ["S1", "S2"], "predicted": {"S1": ["2", "9"], "S2": ["2", "9"]}, "time": True, "warming_up": False,
        "waiting": 0, "warm_up": 60, "step": known["step"], "learning": True,
    }  # fmt: skip
    names = {"readings_total", "malformed_total", "queue", "lag_seconds", "step", "saved_step"}
    text = served.client.get("/metrics").text
    assert {line.split(" ")[0].removeprefix("emphatic_") for line in text.splitlines() if line[0] != "#"} >= names
    assert 'emphatic_rmse{signal="S1",horizon="2"} 0.' in text


@pytest.mark.parametrize(
    ("body", "kind", "status", "said"),
    [
        (b"{", JSON, 400, "not JSON"),
        (b"", JSON, 400, "not JSON"),
        (b"\xff\xfe", JSON, 400, "not JSON"),
        (b"[" * 100_000, JSON, 400, "not JSON"),
        (b'{"a":' * 100_000, JSON, 400, "not JSON"),
        (b"1" * 5000, JSON, 400, "not JSON"),
        (b"5", JSON, 422, "reading 1: not an object of JSON"),
        (b"{}", JSON, 422, "reading 1: the reading has none of the model's signals (S1, S2)"),
        (b'{"other": 1}', JSON, 422, "reading 1: the reading has none of the model's signals (S1, S2)"),
        (b'{"S1": "abc"}', JSON, 422, "reading 1: 'S1' is not a number: 'abc'"),
        (b'{"S1": 1}', {"content-type": "text/plain"}, 415, "application/x-ndjson, not text/plain"),
        (b'{"S1": 1}', {}, 415, "not none"),
        (b'{"S1": "' + b"x" * (1 << 20) + b'"}', JSON, 413, "longer than 1 MiB"),
    ],
)
def test_bad_input_is_refused_and_changes_nothing(
    served: Served, body: bytes, kind: dict[str, str], status: int, said: str
) -> None:
    before = served.client.get("/predictions").content
    answer = served.client.post("/readings", content=body, headers=kind)
    assert answer.status_code == status
    assert said in answer.json()["error"]
    assert served.client.get("/predictions").content == before
    assert served.client.get("/healthz").status_code == 200


def test_values_nested_to_any_depth_are_no_harm(served: Served) -> None:
    """Also at the depths at which one reader of JSON gives up and another does not."""
    for depth in (10, 40, 200, *range(850, 1010, 7)):
        answer = served.post([{"S1": 0.5, "S2": 0.5, "other": json.loads("[" * 9 + "]" * 9)}])
        assert answer.status_code == 200
        text = b'{"S1": 0.5, "more": ' + b"[" * depth + b"]" * depth + b"}"
        for body, kind in ((text, JSON), (b"[" + text + b"]", JSON), (text, LINES)):
            answer = served.client.post("/readings", content=body, headers=kind)
            assert answer.status_code in (200, 400, 422)
            assert ("error" in answer.text) == (depth > 31)
    assert served.client.get("/healthz").status_code == 200


def test_in_a_list_the_others_are_learned_from(served: Served) -> None:
    step, malformed = served.metric("step"), served.metric("malformed_total")
    later = readings(2, 10_000)
    body = b"\n".join([json.dumps(later[0]).encode(), b"{bad", b"", b'"word"', json.dumps(later[1]).encode(), b"\xff"])
    answer = served.client.post("/readings", content=body, headers=LINES)
    lines = [json.loads(line) for line in answer.text.splitlines()]
    assert (answer.status_code, answer.headers["content-type"]) == (200, "application/x-ndjson")
    assert [line.get("step") for line in lines] == [step, None, None, step + 1, None]
    assert [line["error"].split(":")[0] for line in lines if "error" in line] == ["reading 2", "reading 3", "reading 5"]
    assert (served.metric("step"), served.metric("malformed_total")) == (step + 2, malformed + 3)
    assert served.client.post("/readings", content=b"[]", headers=JSON).text == ""


def test_addresses_methods_hosts_and_headers(served: Served) -> None:
    get = served.client.get
    assert get("/nothing").status_code == get("/static/../app.py").status_code == get("/static/x").status_code == 404
    assert (get("/readings").status_code, served.client.post("/predictions").status_code) == (405, 405)
    assert get("/nothing").json() == {"error": "not found"}
    for host in ("evil.example", "127.0.0.1.evil.example", "", "localhost.evil.example:80"):
        answer = get("/signals", headers={"host": host, "authorization": "Bearer x"})
        assert (answer.status_code, answer.text) == (400, "Invalid host header")
    for host in ("localhost", "LOCALHOST:9", "[::1]:80"):
        assert get("/signals", headers={"host": host}).status_code == 200
    for answer in (get("/signals"), get("/nothing"), get("/signals", headers={"host": "evil.example"})):
        assert answer.headers["content-security-policy"].startswith("default-src 'self';")
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert "server" not in answer.headers


def events(served: Served, query: str, count: int, **headers: str) -> list[tuple[str, Any, str]]:
    """The first events of a stream: name, data, id."""
    found: list[tuple[str, Any, str]] = []
    with served.client.stream("GET", f"/stream{query}", headers=headers) as answer:
        assert answer.status_code == 200
        assert answer.headers["content-type"].startswith("text/event-stream")
        event: dict[str, str] = {}
        for line in answer.iter_lines():
            name, _, value = line.partition(": ")
            event[name] = value
            if not line and "event" in event:
                found.append((event["event"], json.loads(event["data"]), event.get("id", "")))
                event = {}
            if len(found) == count:
                break
    return found


def test_a_stream_of_rows_and_status(served: Served) -> None:
    (hello, known, _), (history, older, _), (rows, first, last), (status, now, _) = events(served, "?signal=S2", 4)
    assert (hello, history, rows, status) == ("hello", "rows", "rows", "status")
    assert older["step"] == list(range(59))  # the warm-up
    assert (known["signal"], known["horizons"], known["signals"]) == ("S2", ["2", "9"], ["S1", "S2"])
    assert first["step"] == list(range(59, int(last) + 1))
    assert first["t"][1:141] == [1_700_000_000.0 + t for t in range(60, 200)]
    expected = [row["S2"] for row in readings(200)]
    assert first["reading"][1:141] == expected[60:]
    assert {len(column) for column in (*first["predictions"].values(), first["time"], first["gap"])} == {
        len(first["step"])
    }
    assert first["predictions"]["9"][-1] is not None
    assert first["low"]["9"][-1] < first["predictions"]["9"][-1] < first["high"]["9"][-1]
    assert {len(first["anomaly"]), len(first["alarm"])} == {len(first["step"])}
    assert {*first["alarm"]} <= {True, False}
    assert {"step", "readings", "malformed", "rate", "lag", "queue", "saved_step", "warming_up"} <= now.keys()
    again = events(served, "", 2, **{"Last-Event-ID": str(int(last) - 3)})
    assert again[0][1]["signal"] == "S1"
    assert again[1][1]["step"] == first["step"][-3:]
    assert served.client.get("/stream?signal=nothing").status_code == 404


def test_streams_are_counted(served: Served) -> None:
    port = int((served.url or "").rsplit(":", 1)[1])
    open_streams = []
    for _ in range(32):
        one = socket.create_connection(("127.0.0.1", port))
        one.sendall(b"GET /stream HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert b"200 OK" in one.recv(4096)
        open_streams.append(one)
    refused = served.client.get("/stream")
    assert (refused.status_code, refused.headers["retry-after"]) == (503, "5")
    for one in open_streams:
        one.close()
    wait_for(lambda: served.client.head("/stream").status_code == 200)


def test_it_is_safe_only_with_a_token(tmp_path: Path) -> None:
    done = run(COMMAND, "serve", "--host", "0.0.0.0", "--port", 0, "--model", tmp_path / "m")
    assert done.returncode == 2
    assert done.stderr.decode().count("\n") == 1
    assert "--token-file" in done.stderr.decode()
    (tmp_path / "token").write_text("correct-horse-battery-staple\n")
    arguments = ("--host", "0.0.0.0", "--token-file", tmp_path / "token", "--allow-host", "proxied.example")
    with Served(tmp_path / "m", *FLAGS, *arguments) as service:
        port = int((service.url or "").rsplit(":", 1)[1])
        with httpx.Client(base_url=f"http://127.0.0.1:{port}") as client:
            assert client.get("/healthz").status_code == 200
            assert client.get("/readyz", headers={"authorization": "Bearer wrong"}).json()["status"] == "warming up"
            for path in ("/signals", "/predictions", "/stream", "/metrics"):
                assert (client.get(path).status_code, client.get(path).headers["www-authenticate"]) == (401, "Bearer")
            right, wrong = ({"authorization": f"Bearer {t}"} for t in ("correct-horse-battery-staple", "correct"))
            assert client.get("/signals", headers=wrong).status_code == 401
            assert client.get("/signals?token=correct-horse-battery-staple").status_code == 401
            assert client.get("/signals", headers=right).status_code == 200
            assert client.post("/readings", json=readings(1)[0]).status_code == 401
            assert client.post("/readings", json=readings(1)[0], headers=right).status_code == 200
            assert client.get("/signals", headers={"host": "evil.example"}).status_code == 400
            for scheme in (right, {}, {"authorization": "Basic x"}):
                assert client.get("/signals", headers=scheme | {"host": "evil.example"}).status_code == 400
            assert client.get("/signals", headers=right | {"host": "Proxied.example:80"}).status_code == 200
            assert client.post("/login", data={"token": "correct"}).status_code == 401
            assert client.get("/signals").status_code == 401
            opened = client.post("/login", data={"token": "correct-horse-battery-staple"})
            assert (opened.status_code, opened.headers["location"]) == (303, "/")
            cookie = opened.headers["set-cookie"].lower()
            assert "httponly" in cookie
            assert "samesite=strict" in cookie
            assert "horse" not in cookie
            assert client.get("/signals").status_code == 200
            basic = {"authorization": "Basic x", "host": "evil.example"}  # beside the cookie
            assert client.get("/signals", headers=basic).status_code == 400
            assert client.get("/metrics").text.count("emphatic_wrong_tokens_total 2") == 1
        assert sum("a wrong token from 127.0.0.1, 1 so far" in line for line in service.log) == 1
        service.stop()


def test_what_cannot_be_started_says_so_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "empty").write_text("\n")
    token = tmp_path / "token"
    token.write_text("correct-horse-battery-staple\n")
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        cases: list[tuple[tuple[object, ...], str]] = [
            (("--port", taken.getsockname()[1]), "cannot be used: Address already in use"),
            (("--port", 70_000), "--port must be from 0 to 65535"),
            (("--port", 0, "--no-learn"), "--no-learn needs a model"),
            (("--port", 0, "--warm-up", 1), "--warm-up must be 3 readings or more"),
            (("--port", 0, "--save-every", "often"), "--save-every: 'often' is not a duration"),
            (("http://x/y", "--port", 0), "is not an address of the form mqtt://HOST:PORT/TOPIC."),
            (("--publish", "mqtt://host", "--port", 0), "of the form mqtt://HOST:PORT/TOPIC"),
            (("mqtt://h/t", "--publish", "mqtt://h/t", "--port", 0), "send predictions elsewhere"),
            (("--token-file", tmp_path / "empty", "--port", 0), "must hold a token"),
            (("--token-file", tmp_path / "binary", "--port", 0), "binary must hold a token"),
            (("--token-file", tmp_path / "none", "--port", 0), "none cannot be read: No such file"),
            (("--host", "192.0.2.1", "--token-file", token, "--port", 0), "--host 192.0.2.1 is not an address of this"),
        ]
        for arguments, said in cases:
            done = run(COMMAND, "serve", *arguments, "--model", tmp_path / "m")
            error = done.stderr.decode()
            code = 75 if "already in use" in said else 2  # only a port may be free later
            assert (done.returncode, said in error, error.count("\n")) == (code, True, 1), error
    assert sorted(path.name for path in tmp_path.iterdir()) == ["binary", "empty", "token"]


def test_a_signal_saves_and_a_client_that_waits_is_answered(tmp_path: Path) -> None:
    model, rows = tmp_path / "model", readings(300)
    with Served(model, *FLAGS, "--save-every", "1h") as service:
        service.post(rows)
        port = int((service.url or "").rsplit(":", 1)[1])
        with socket.create_connection(("127.0.0.1", port)) as slow:  # a body that never ends
            slow.sendall(b"POST /readings HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n")
            slow.sendall(b"Content-Length: 100\r\n\r\n{")
            assert not model.exists()
            assert service.stop() < 5.0
            answer = slow.makefile("rb").read()
            assert answer.startswith(b"HTTP/1.1 503")
            assert answer.endswith(b'{"taken":0}')
        assert not any("Traceback" in line for line in service.log)
    same_as_undisturbed(model, rows, tmp_path)


@pytest.mark.serve
def test_a_pipe_as_source_and_a_clock_that_goes_back(tmp_path: Path) -> None:
    rows = readings(200)
    for row in rows[150:]:
        row["time"] -= 1000
    header = "time;S1;S2"
    text = "\n".join([header, *(f"{r['time']};{r['S1']};{'' if r['S2'] is None else r['S2']}" for r in rows)]) + "\n"
    with Served(tmp_path / "model", "-", *FLAGS, "--save-every", "1h", stdin=subprocess.PIPE) as service:
        service.process.feed([text.encode()])
        segments = tmp_path / "model.journal"
        wait_for(lambda: sum(path.read_bytes().count(b"\n") for path in segments.glob("*.jsonl")) == 200)
        wait_for(lambda: service.metric("step") == 200)  # readings are in the journal before they are learned from
        assert any("out of order" in line for line in service.log)
        service.kill()
    with Served(tmp_path / "model", *FLAGS) as service:
        assert service.metric("step") == 200
        assert any("from 200 readings since the last save" in line for line in service.log)
        service.stop()
    done = run(COMMAND, "nexting", "-", *FLAGS, "--model", tmp_path / "piped", input=text.encode())
    assert done.returncode == 0
    ours, theirs = (Predictor.load(tmp_path / name)[0] for name in ("model", "piped"))
    following = list(enumerate(readings(20, 200)))
    assert [one.line for one in ours.take(following)] == [one.line for one in theirs.take(following)]  # type: ignore[union-attr]


@pytest.mark.serve
def test_a_full_queue_takes_what_fits(tmp_path: Path) -> None:
    """The rest is refused with how many were taken, and nothing is lost when it is sent again."""
    rows, at, refused = readings(9000), 0, 0
    with Served(tmp_path / "model", *FLAGS, "--save-every", "1h") as service:
        while at < len(rows):
            answer = service.post(rows[at:])
            if answer.status_code == 503:
                assert answer.headers["retry-after"] == "1"
                assert set(answer.json()) == {"taken"}
                refused += 1
                at += answer.json()["taken"]
            else:
                assert answer.status_code == 200
                at += len(answer.text.splitlines())
        assert refused > 0
        assert service.metric("step") == 9000
        service.stop()
    same_as_undisturbed(tmp_path / "model", rows, tmp_path)
