"""Connections that send nothing, half a request or no more than that: what they can and cannot keep out."""

from __future__ import annotations

import asyncio
import json
import resource
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import uvicorn

from emphatic.nexting.settings import Settings
from emphatic.serve import listener
from emphatic.serve.app import create_app
from emphatic.serve.listener import ACCEPTED, Budget, Listener, open_socket
from emphatic.serve.service import Service
from tests.support.services import FLAGS, Served, readings, wait_for

PROBE = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
#: What a client may send and then stop.
STALLED = (
    b"",
    b"GET / HTTP/1.1\r\nHost: localhost\r\nX-a: ",
    b"POST /login HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\nto",
    b"POST /readings HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{",
    PROBE,
)


def serve(folder: Path, budget: Budget, client: Callable[[int, Listener], Awaitable[Any]]) -> Any:
    """What a client returns that gets the port of a service with this budget."""
    service = Service(folder / "model", Settings())
    service.open()
    app = create_app(service)

    async def run() -> Any:
        listening = open_socket("127.0.0.1", 0)
        listening.budget = budget
        config = uvicorn.Config(
            budget.guard(app), log_config=None, access_log=False, lifespan="off", ws="none", backlog=ACCEPTED
        )
        server = uvicorn.Server(config)
        tasks = [asyncio.create_task(server.serve(sockets=[listening])), asyncio.create_task(budget.close_idle())]
        try:
            while not server.started:
                await asyncio.sleep(0.01)
            return await client(listening.getsockname()[1], listening)
        finally:
            app.state.closing.set()
            server.should_exit = True
            await tasks[0]
            tasks[1].cancel()

    try:
        return asyncio.run(run())
    finally:
        service.close()


async def ask(port: int, text: bytes = PROBE) -> int:
    """The status of the answer to a request on a connection of its own."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(text)
    line = await asyncio.wait_for(reader.readline(), 10)
    writer.close()
    return int(line.split()[1])


@pytest.mark.parametrize("stalled", STALLED)
def test_a_new_connection_takes_the_place_of_one_that_waits(tmp_path: Path, stalled: bytes) -> None:
    async def client(port: int, listening: Listener) -> tuple[list[int], int, int]:
        opened, answers = [], []
        for i in range(60):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(stalled)
            opened.append((reader, writer))
            if i % 20 == 19:
                answers.append(await ask(port))
        dropped, count = listening.budget.dropped, len(listening.budget._waiting) + len(listening.budget._busy)
        for _, writer in opened:
            writer.close()
        return answers, dropped, count

    answers, dropped, count = serve(tmp_path, Budget(connections=16), client)
    assert answers == [503] * 3  # learning has not been started; but it answers
    assert dropped >= 40
    assert count <= 16


def test_a_request_that_is_being_answered_keeps_its_connection(tmp_path: Path) -> None:
    """A stream is older than all that wait, and goes on; a request more than there may be is told to come again."""

    async def client(port: int, listening: Listener) -> tuple[list[int], bytes]:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET /stream HTTP/1.1\r\nHost: localhost\r\n\r\n")
        await asyncio.wait_for(reader.readuntil(b"event: hello"), 10)
        idle = [await asyncio.open_connection("127.0.0.1", port) for _ in range(40)]
        refused = [await ask(port, b"GET /signals HTTP/1.1\r\nHost: localhost\r\n\r\n"), await ask(port)]
        await asyncio.wait_for(reader.readuntil(b"event: status"), 10)
        following = await asyncio.wait_for(reader.readuntil(b"event: status"), 10)
        for _, each in (*idle, (reader, writer)):
            each.close()
        return refused, following

    answers, following = serve(tmp_path, Budget(connections=8, requests=1), client)
    assert answers == [503, 503]
    assert b"event: status" in following


def test_connections_without_a_request_are_closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Headers that never end, nothing at all, and a body after its answer; one that asks now and then stays."""
    monkeypatch.setattr(listener, "_IDLE", 0.6)
    begin = PROBE[:-2]
    unread = b"POST /none HTTP/1.1\r\nContent-Length: 9999\r\n\r\n"

    async def send_on(writer: asyncio.StreamWriter, text: bytes) -> None:
        with suppress(OSError):
            while not writer.is_closing():
                writer.write(text)
                await writer.drain()
                await asyncio.sleep(0.1)

    async def client(port: int, _: Listener) -> tuple[list[float], int]:
        closed: list[float] = []
        tasks: list[asyncio.Task[Any]] = []
        writers: list[asyncio.StreamWriter] = []
        began = time.monotonic()
        for first, then in ((b"", b""), (begin, b"x: y\r\n"), (unread, b" ")):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writers.append(writer)
            writer.write(first)
            if then:
                tasks.append(asyncio.create_task(send_on(writer, then)))
            tasks.append(asyncio.create_task(asyncio.wait_for(reader.read(), 10)))
            tasks[-1].add_done_callback(lambda _: closed.append(time.monotonic() - began))
        answers = 0
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        while time.monotonic() - began < 2.0:
            writer.write(PROBE)
            answers += b"HTTP/1.1 503" in await reader.readuntil(b'"}')
            await asyncio.sleep(0.3)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for each in (*writers, writer):
            each.close()
        return closed, answers

    closed, answers = serve(tmp_path, Budget(), client)
    assert len(closed) == 3
    assert max(closed) < 1.9
    assert answers >= 4


def test_the_budget_fits_the_files_that_a_process_may_open() -> None:
    code = (
        "import resource, sys\n"
        "hard = int(sys.argv[1])\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (min(64, hard), hard))\n"
        "from emphatic.serve.listener import open_socket\n"
        "with open_socket('127.0.0.1', 0) as listening:\n"
        "    print(listening.budget.connections, resource.getrlimit(resource.RLIMIT_NOFILE)[0])\n"
    )
    for hard, expected in ((100, "50 100"), (600, "300 600"), (5000, "512 4096")):
        done = subprocess.run([sys.executable, "-c", code, str(hard)], capture_output=True, text=True, check=True)
        assert done.stdout.strip() == expected


@pytest.mark.serve
@pytest.mark.parametrize("secure", [False, True])
def test_probes_and_clients_are_answered_under_5000_stalled_connections(
    tmp_path: Path, certificates: dict[str, Path], secure: bool
) -> None:
    """By HTTPS too, where a client may stop in the midst of the handshake."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < 6000:
        pytest.skip("a process may not open 5,000 connections here")
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    options = ("--tls-cert", certificates["server"], "--tls-key", certificates["server_key"]) if secure else ()
    opened: list[socket.socket] = []
    try:
        with Served(tmp_path / "model", *FLAGS, *options, verify=str(certificates["ca"])) as service:
            service.post(readings(100))
            wait_for(lambda: service.client.get("/readyz").status_code == 200, 120)
            port = int((service.url or "").rsplit(":", 1)[1])
            for i in range(5000):
                connection = socket.create_connection(("127.0.0.1", port), 10)
                opened.append(connection)
                with suppress(OSError):
                    connection.sendall(STALLED[i % len(STALLED)])
            codes: Counter[tuple[str, int]] = Counter()
            for i in range(50):
                for path in ("/healthz", "/readyz"):
                    with service.new_client() as client:
                        codes[path, client.get(path, timeout=10).status_code] += 1
                with service.new_client() as client:
                    answer = client.post("/readings", json=readings(1, 100 + i)[0])
                    assert json.loads(answer.text)["step"] == 100 + i
            assert codes == {("/healthz", 200): 50, ("/readyz", 200): 50}
            service.stop()
            assert not any("Traceback" in line for line in service.log)
    finally:
        for connection in opened:
            connection.close()
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
