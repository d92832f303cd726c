"""``emphatic serve`` as a process, and the brokers it works with, on free ports of this machine."""

from __future__ import annotations

import asyncio
import json
import math
import signal
import socket
import ssl
import subprocess
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import httpx
import numpy as np
from starlette.applications import Starlette

from emphatic.nexting.runs.predictor import Predictor
from emphatic.nexting.runs.settings import Settings
from emphatic.nexting.serve.app import create_app
from emphatic.nexting.serve.journal import Journal
from emphatic.nexting.serve.service import Incoming, Receipt, Service
from tests.support.processes import COMMAND, Forked
from tests.support.servers import find_program, free_port

__all__ = [
    "FLAGS", "LINES", "SETTINGS", "Client", "Served", "free_port", "mosquitto", "offer", "opened", "readings",
    "redis_server", "same_as_undisturbed", "send", "started", "wait_for",
]  # fmt: skip

LINES = {"content-type": "application/x-ndjson"}
#: Two signals at two horizons, as all tests of the service have them, so that their kernels are compiled once.
FLAGS = ("--horizons", "2,9", "--warm-up", "60")
SETTINGS = Settings(horizons=(2, 9))


def readings(count: int, start: int = 0) -> list[dict[str, Any]]:
    """Readings of two signals, a second apart, with some values missing."""
    found: list[dict[str, Any]] = []
    for t in range(start, start + count):
        S2 = None if t % 97 == 5 else round(math.cos(t / 11) + 0.1 * math.sin(t * t), 4)
        found.append({"time": 1_700_000_000 + t, "S1": round(math.sin(t / 7) + 0.1 * math.cos(t * t), 4), "S2": S2})
    return found


def wait_for(done: Callable[[], Any], seconds: float = 30.0, what: str = "") -> Any:
    """What the function returns, once that is true."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        if found := done():
            return found
        time.sleep(0.02)
    raise AssertionError(f"not within {seconds} seconds: {what or done}")


def opened(folder: Path, settings: Settings = SETTINGS, *, wait: bool = True, **options: Any) -> Service:
    """A service in this process that saves when it is closed, and learns from nothing until it is started."""
    service = Service(folder / "model", settings, **{"warm_up": 60, "save_every": 3600.0, **options})
    service.open(wait=wait)
    return service


def started(folder: Path, settings: Settings = SETTINGS, **options: Any) -> Service:
    """One that is opened and learns."""
    service = opened(folder, settings, **options)
    service.start()
    return service


def offer(service: Service, rows: list[Incoming]) -> list[Receipt]:
    """What becomes of readings that are offered together."""
    receipts: list[Receipt] = []
    assert service.inbox.offer([row.answered_by(receipts.append) for row in rows]) == len(rows)
    wait_for(lambda: len(receipts) == len(rows))
    return receipts


class Served:
    """The service in a process of its own, and a client of it.

    With ``wait`` it listens, and its kernels are loaded and the readings of the journal learned from.
    """

    def __init__(
        self,
        model: Path,
        *arguments: object,
        port: int = 0,
        wait: bool = True,
        stdin: int = subprocess.DEVNULL,
        verify: str | None = None,
        env: dict[str, str] | None = None,
        code: str = COMMAND,
    ) -> None:
        if stdin == subprocess.DEVNULL:
            with open("/dev/null", "rb") as null:
                self.process = Forked(
                    code, "serve", *arguments, "--model", model, "--port", port, stdin=null.fileno(), env=env
                )
        else:
            self.process = Forked(code, "serve", *arguments, "--model", model, "--port", port, stdin=stdin, env=env)
        self.log: list[str] = []
        self._reading = threading.Thread(target=self._read, daemon=True)
        self._reading.start()
        wait_for(lambda: self._url() or self.process.returncode is not None, what="the service listens")
        self.url = self._url()
        if wait:
            wait_for(
                lambda: any("kernels are compiled" in line for line in self.log) or self.process.returncode is not None,
                120,
                "kernels are loaded",
            )
        self._verify = ssl.create_default_context(cafile=verify) if verify else True
        self.client = self.new_client()

    def new_client(self) -> httpx.Client:
        """A client with connections of its own."""
        return httpx.Client(base_url=self.url or "http://127.0.0.1:1", timeout=60, verify=self._verify)

    def _read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.log.append(line.decode().rstrip())

    def _url(self) -> str:
        return next((line.split(" at ")[1].strip('"}') for line in self.log if "listening at" in line), "")

    def post(self, rows: Iterable[dict[str, Any]]) -> httpx.Response:
        return self.client.post("/readings", content="\n".join(map(json.dumps, rows)), headers=LINES)

    def metric(self, name: str) -> float:
        lines = self.client.get("/metrics").text.splitlines()
        return next(float(line.split(" ")[1]) for line in lines if line.startswith(f"emphatic_{name} "))

    def source(self) -> dict[str, Any]:
        """What it says of its first source."""
        found: dict[str, Any] = self.client.get("/readyz").json()["sources"][0]
        return found

    def connect(self) -> None:
        """Wait until that is connected, and has subscribed."""
        wait_for(lambda: self.source()["state"] == "connected")
        time.sleep(0.3)

    def stop(self) -> float:
        """End it by SIGTERM; the seconds that took."""
        began = time.monotonic()
        self.process.send_signal(signal.SIGTERM)
        assert self.process.wait(30) == 0, "\n".join(self.log)
        return time.monotonic() - began

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(30)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.client.close()
        self.process.__exit__(kind, error, at)


def send(app: Starlette, method: str, path: str, **options: Any) -> httpx.Response:
    """The answer of an application to one request, without a socket."""

    async def answer() -> httpx.Response:
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
            return await client.request(method, path, **options)

    return asyncio.run(answer())


class Client:
    """Requests to the application of a service, without a socket."""

    def __init__(self, service: Service) -> None:
        self._service = service

    def post(self, path: str, *, json: Any, headers: dict[str, str] | None = None) -> httpx.Response:
        return send(create_app(self._service), "POST", path, json=json, headers=headers)


def same_as_undisturbed(model: Path, rows: Iterable[dict[str, Any]], folder: Path) -> None:
    """The saved model is that of a run over these readings that was never disturbed, to the last bit."""
    predictor = Predictor(SETTINGS, warm_up=60, resilient=True)
    predictor.take(enumerate(rows, start=1))
    assert predictor.horde is not None
    predictor.horde.save(folder / "undisturbed", **predictor.state())
    found, expected = (Predictor.load(path)[0] for path in (model, folder / "undisturbed"))
    assert found.horde is not None
    assert expected.horde is not None
    assert found.step == expected.step, (found.step, expected.step)
    ours, theirs = found.state(), expected.state()
    assert ours.keys() == theirs.keys()
    for name, value in ours.items():
        assert (
            np.array_equal(value, theirs[name], equal_nan=True)
            if isinstance(value, np.ndarray)
            else value == theirs[name]
        )
    for one, other in zip(found.horde.learners, expected.horde.learners, strict=True):
        assert one.theta.tobytes() == other.theta.tobytes()
        assert one.e.tobytes() == other.e.tobytes()
    following = list(enumerate(readings(20, 10**6)))
    lines = [[one.line for one in each.take(following)] for each in (found, expected)]  # type: ignore[union-attr]
    assert lines[0] == lines[1]


def journal_readings(folder: Path) -> list[dict[str, Any]]:
    return [entry.reading for entry in Journal(folder).entries()]


# ---------------------------------------------------------------------- brokers


@contextmanager
def _server(command: list[str], port: int) -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            wait_for(lambda: _answers(port) or process.poll() is not None, what=command[0])
            assert process.poll() is None, f"{command[0]} has ended"
            yield process
        finally:
            process.kill()


def _answers(port: int) -> bool:
    with socket.socket() as tried:
        tried.settimeout(1)
        return tried.connect_ex(("127.0.0.1", port)) == 0


@contextmanager
def mosquitto(
    folder: Path, port: int, *settings: str, access: str = "allow_anonymous true\n"
) -> Iterator[subprocess.Popen[bytes]]:
    """A broker that sends as many messages at a time as it likes, and remembers all of them."""
    config = folder / "mosquitto.conf"
    config.write_text(
        f"listener {port} 127.0.0.1\n{access}max_inflight_messages 0\nmax_queued_messages 0\n"
        f"persistence true\npersistence_location {folder}/\nuser root\n"
        + "".join(f"{setting}\n" for setting in settings)
    )
    with _server([find_program("mosquitto"), "-c", str(config)], port) as process:
        yield process


@contextmanager
def redis_server(folder: Path, port: int, *options: str) -> Iterator[subprocess.Popen[bytes]]:
    """A server; with port 0, where the options say."""
    program = find_program("redis-server")
    command = [program, "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--dir", str(folder)]
    with _server([*command, *options], port or int(options[1])) as process:
        yield process
