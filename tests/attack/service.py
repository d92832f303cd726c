"""Hostile requests against a running service: ``python -m tests.attack.service --calls 100_000``.

Starts ``emphatic serve``, sends it bodies that no one should, among readings that are right, and checks that it never
answers with an error of its own, goes on answering, and in the end holds the very model that the readings it accepted
make when nothing else is sent.
"""

from __future__ import annotations

import argparse
import http.client
import json
import random
import socket
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from emphatic.nexting.serve.payloads import read_message
from emphatic.nexting.serve.service import read_json
from emphatic.nexting.serve.sources.mqtt import import_paho
from emphatic.nexting.tables.text import read_object
from tests.support.services import FLAGS, Served, free_port, journal_readings, mosquitto, same_as_undisturbed, wait_for

__all__ = ["Attack", "Request", "attack_by_mqtt", "attack_service", "requests"]

#: What a service may answer; anything else is a fault of its own.
ALLOWED = {200, 303, 400, 401, 403, 404, 405, 413, 414, 415, 422, 431, 503}
JSON, LINES = "application/json", "application/x-ndjson"
NAMES = ("S1", "S2")


class Request(NamedTuple):
    """A request, and for right readings what they are."""

    method: str
    path: str
    kind: str | None
    body: bytes


def reading(rng: random.Random) -> dict[str, Any]:
    """A right reading."""
    return {name: round(rng.gauss(0, 1), 6) for name in NAMES}


def value(rng: random.Random) -> Any:
    """What may stand where a number should."""
    return rng.choice([
        1e308, -1e308, 5e-324, 0, -0.0, 10**400, -(10**300), 2**63, True, False, None, "", "1", "1e5", "NaN", "nan",
        "inf", "ON", "🙂" * 50, "\x00", "\ud800", [], {}, [1], {"a": 1}, [[[]]], 1 + rng.random(), rng.randrange(10**9),
    ])  # fmt: skip


def name(rng: random.Random) -> str:
    """What may stand where a name should."""
    return rng.choice([
        *NAMES, "", "time", "__proto__", "a.b", "../x", "\x00", "\n", "<script>", "é" * rng.randrange(300), "s1", " S1",
        f"n{rng.randrange(10**6)}",
    ])  # fmt: skip


def record(rng: random.Random) -> dict[str, Any]:
    """An object that may be a reading."""
    found = reading(rng) if rng.random() < 0.7 else {}
    found.update({name(rng): value(rng) for _ in range(rng.randrange(4))})
    if rng.random() < 0.2:
        found["time"] = rng.choice([
            "2020-01-01T00:00:00", "1969-12-31", "9999-12-31T23:59:59Z", "0001-01-01", -1e18, 1e300, "soon", 0, None,
            time.time(),
        ])  # fmt: skip
    return found


def text(rng: random.Random) -> bytes:
    """The JSON of something, with what JSON does not allow now and then."""
    made = json.dumps(record(rng) if rng.random() < 0.8 else value(rng))
    if rng.random() < 0.2:
        made = made.replace("1", rng.choice(["NaN", "Infinity", "-Infinity", "1e999", "0x1", "01", "1.", "+1"]), 1)
    return made.encode("utf-8", "surrogatepass")


def mutated(rng: random.Random, body: bytes) -> bytes:
    """A few bytes changed, cut or doubled."""
    data = bytearray(body)
    for _ in range(rng.randrange(1, 4)):
        at = rng.randrange(len(data) + 1)
        match rng.randrange(4):
            case 0:
                data[at : at + 1] = bytes([rng.randrange(256)])
            case 1:
                del data[at : at + rng.randrange(9)]
            case 2:
                data[at:at] = data[: rng.randrange(20)]
            case _:
                data[at:at] = rng.choice(
                    [b'"', b"{", b"]", b"\\", b"\n", b"\r\n", b"\xef\xbb\xbf", b"\xff", b"\0", b","]
                )
    return bytes(data)


def large(rng: random.Random) -> bytes:
    """Bodies that are too much: 10 MB lines, ten thousand new names, nesting of a hundred thousand."""
    deep = rng.choice([100, 1000, 100_000])
    several: list[Callable[[], bytes]] = [
        lambda: b'{"S1": "' + b"x" * 10_000_000 + b'"}',
        lambda: json.dumps(reading(rng) | {f"n{i}": i for i in range(10_000)}).encode(),
        lambda: b"[" * deep,
        lambda: b"[" * deep + b"]" * deep,
        lambda: b'{"S1":' * deep + b"1" + b"}" * deep,
        lambda: b'{"S1": 1' + b"0" * 100_000 + b"}",
        lambda: b'{"S1": 0.' + b"1" * 100_000 + b"}",
        lambda: b"\n" * 500_000,
        lambda: b"[" + b",".join([b"{}"] * 5_000) + b"]",
    ]
    return rng.choice(several)()


def requests(rng: random.Random) -> Iterator[Request]:
    """Requests without end: right readings, and all sorts of others."""
    while True:
        roll = rng.random()
        kind = rng.choice(
            [JSON] * 6 + [LINES] * 3 + ["application/json; charset=utf-8", "text/plain", "", None, "a/b\x7f"]
        )
        if roll < 0.25:
            yield Request("POST", "/readings", JSON, json.dumps(reading(rng)).encode())
        elif roll < 0.45:
            yield Request("POST", "/readings", kind, text(rng))
        elif roll < 0.65:
            yield Request("POST", "/readings", kind, mutated(rng, text(rng)))
        elif roll < 0.75:
            several = [text(rng) for _ in range(rng.randrange(6))]
            listed = b"[" + b",".join(several) + b"]" if rng.random() < 0.5 else b"\n".join(several)
            yield Request("POST", "/readings", kind, listed)
        elif roll < 0.85:
            yield Request("POST", "/readings", kind, rng.randbytes(rng.randrange(200)))
        elif roll < 0.87:
            yield Request("POST", "/readings", kind, large(rng))
        else:
            path = rng.choice([
                "/", "/predictions", "/signals", "/healthz", "/readyz", "/metrics", "/model", "/static/page.js",
                "/static/../app.py", "/static/%2e%2e/%2e%2e/etc/passwd", "//etc/passwd", "/%00", "/readings/", "/login",
                "/stream?signal=%00nothing", "/" + "x" * rng.choice([10, 5000]), "/readings?signal[]=1&&=",
                "/é%ff", "/static/", "/model/%2e%2e", "/%2e%2e/model", "/..%2f../model", "/model%00",
            ])  # fmt: skip
            method = rng.choice(["GET"] * 6 + ["POST", "PUT", "DELETE", "HEAD", "OPTIONS", "PATCH", "TRACE", "BREW"])
            yield Request(
                method, path.encode("ascii", "ignore").decode(), kind, text(rng) if rng.random() < 0.3 else b""
            )


class Attack:
    """Sends requests to a service; ``accepted`` are the readings that it took, in order."""

    def __init__(self, url: str) -> None:
        address = urlsplit(url)
        self.host, self.port = address.hostname or "", address.port or 80
        self.accepted: list[dict[str, Any]] = []
        self.codes: Counter[int] = Counter()
        self.faults: list[str] = []
        self._connection: http.client.HTTPConnection | None = None

    def run(self, calls: int, seed: int, note: Callable[[int], None] = lambda done: None) -> None:
        """So many requests."""
        rng = random.Random(seed)
        for done, request in zip(range(calls), requests(rng), strict=False):
            if done % 500 == 250:
                self._raw(rng)
            self.send(request)
            note(done)
        self._close()

    def send(self, request: Request) -> None:
        """Send a request, and note what was wrong with the answer, and which readings were taken."""
        headers = {} if request.kind is None else {"Content-Type": request.kind}
        try:
            code, answer = self._exchange(request, headers)
        except (OSError, http.client.HTTPException) as error:
            # A body that is refused before it is read may end the connection; that is no fault, but silence is.
            self._close()
            self.codes[-1] += 1
            if len(request.body) < 1 << 20:
                self.faults.append(f"{request!r:.300}: {error!r}")
            return
        self.codes[code] += 1
        if code not in ALLOWED:
            self.faults.append(f"{request!r:.300}: {code} {answer[:200]!r}")
        if code == 200 and request.method == "POST" and request.path.startswith("/readings"):
            self._note(request, answer)

    def _note(self, request: Request, answer: bytes) -> None:
        """The readings of a body that were taken: those whose line is no error."""
        sent = _readings(request.body, request.kind or "")
        lines = answer.splitlines()
        if len(sent) != len(lines):
            self.faults.append(f"{request!r:.300}: {len(lines)} lines for {len(sent)} readings")
            return
        self.accepted += [one for one, line in zip(sent, lines, strict=True) if "error" not in json.loads(line)]

    def _exchange(self, request: Request, headers: dict[str, str]) -> tuple[int, bytes]:
        if self._connection is None:
            self._connection = http.client.HTTPConnection(self.host, self.port, timeout=60)
        connection = self._connection
        connection.putrequest(request.method, request.path, skip_accept_encoding=True)
        for key, content in headers.items():
            connection.putheader(key, content)
        connection.putheader("Content-Length", str(len(request.body)))
        with suppress(BrokenPipeError, ConnectionResetError):
            connection.endheaders(request.body)
        response = connection.getresponse()
        answer = response.read()
        if response.will_close:
            self._close()
        return response.status, answer

    def _raw(self, rng: random.Random) -> None:
        """What is hardly HTTP, on a connection of its own; whatever comes back, the service goes on."""
        post = b"POST /readings HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
        data = rng.choice([
            b"\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n", rng.randbytes(300) + b"\r\n\r\n",
            post + b"Content-Length: -5\r\n\r\n{}",
            post + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n{}\r\n0\r\n\r\n",
            b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nX: " + b"y" * 200_000 + b"\r\n\r\n",
            b"GET / HTTP/1.1\r\nHost: example.org\r\n\r\n",
            post + b"Content-Length: 99\r\n\r\n{",
        ])  # fmt: skip
        with suppress(OSError), socket.create_connection((self.host, self.port), timeout=5) as raw:
            raw.sendall(data)
            raw.settimeout(0.2)
            answer = raw.recv(200)
            if b" 500 " in answer:
                self.faults.append(f"{data[:200]!r}: {answer!r}")

    def _close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def _readings(body: bytes, kind: str) -> list[Any]:
    """The readings of a body that was answered with 200; None for a line that is no JSON."""
    if kind.startswith(LINES):
        return [_value(line) for line in body.split(b"\n") if line.strip()]
    return [one.reading for one in read_json(body)[0]]


def _value(line: bytes) -> Any:
    try:
        return read_object(line.decode())
    except ValueError:
        return None


def main() -> int:
    """The long form; 1 if anything was wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--calls", type=lambda given: int(given.replace("_", "")), default=100_000)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    with TemporaryDirectory() as folder:
        began = time.monotonic()
        attack = attack_service(Path(folder), given.calls, given.seed, _note_progress)
    print(json.dumps({
        "calls": given.calls, "seconds": round(time.monotonic() - began), "codes": dict(attack.codes),
        "accepted": len(attack.accepted), "faults": len(attack.faults),
    }))  # fmt: skip
    print("\n".join(attack.faults[:20]), file=sys.stderr)
    return int(bool(attack.faults))


def attack_service(
    folder: Path,
    calls: int,
    seed: int,
    note: Callable[[Attack, int], None] = lambda attack, done: None,
) -> Attack:
    """Start a service, attack it, stop it, and compare what it saved with a run over what it accepted."""
    model = folder / "model.safetensors"
    with Served(model, *FLAGS, "--save-every", "2s") as service:
        attack = Attack(service.url)
        attack.run(calls, seed, lambda done: note(attack, done))
        if service.process.returncode is not None:
            attack.faults.append(f"the service has ended: {service.log[-5:]}")
        service.stop()
    same_as_undisturbed(model, attack.accepted, folder)
    return attack


def attack_by_mqtt(folder: Path, messages: int, seed: int) -> int:
    """Send such bodies as messages of MQTT, and compare with a run over what they gave; how many readings there were.

    Single values are readings too, and those without a time have that of arrival, so the journal says what they gave.
    """
    paho = import_paho()
    model, port, sent = folder / "model.safetensors", free_port(), list[Any]()
    options = (f"mqtt://127.0.0.1:{port}/x", *FLAGS, "--topic-names", "x=", "--save-every", "1h")
    with mosquitto(folder, port), Served(model, *options) as service:
        wait_for(lambda: any("connected" in line for line in service.log), what="the broker")
        client = paho.Client(paho.CallbackAPIVersion.VERSION2)
        client.connect("127.0.0.1", port)
        client.loop_start()
        for request in islice((one for one in requests(random.Random(seed)) if one.method == "POST"), messages):
            client.publish("x", request.body, qos=1).wait_for_publish(60)
            sent += [one.reading for one in read_message(request.body)]
        wait_for(lambda: service.metric("readings_total") >= len(sent), 120, "all messages")
        client.disconnect()
        client.loop_stop()
        wait_for(lambda: service.source()["lag"] == 0, what="all is acknowledged")
        held = journal_readings(Path(f"{model}.journal"))
        service.stop()
    same_as_undisturbed(model, held, folder)
    return len(sent)


def _note_progress(attack: Attack, done: int) -> None:
    if done % 5000 == 0:
        print(done, dict(attack.codes), flush=True)


if __name__ == "__main__":
    sys.exit(main())
