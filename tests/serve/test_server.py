"""Connections that send nothing, or half a request: they are closed, and keep nobody out; names of this machine."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import uvicorn

from emphatic.nexting.runs.settings import Settings
from emphatic.nexting.serve import server
from emphatic.nexting.serve.app import create_app
from emphatic.nexting.serve.server import HeadDeadline, allowed_hosts, open_socket
from emphatic.nexting.serve.service import Service
from tests.support.services import FLAGS, Served, readings, wait_for

PROBE = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
#: What a client may send and then stop: no complete head, and a head whose body does not end.
STALLED = (
    b"",
    b"GET / HTTP/1.1\r\nHost: localhost\r\nX-a: ",
    b"POST /readings HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{",
)


def serve(folder: Path, client: Callable[[int], Awaitable[Any]]) -> Any:
    """What a client returns that gets the port of a service."""
    service = Service(folder / "model", Settings())
    service.open()
    app = create_app(service)

    async def run() -> Any:
        listening = open_socket("127.0.0.1", 0)
        config = uvicorn.Config(
            app, http=HeadDeadline, log_config=None, access_log=False, lifespan="off", ws="none", timeout_keep_alive=60
        )
        running = uvicorn.Server(config)
        task = asyncio.create_task(running.serve(sockets=[listening]))
        try:
            while not running.started:
                await asyncio.sleep(0.01)
            return await client(listening.getsockname()[1])
        finally:
            app.state.close()
            running.should_exit = True
            await task

    try:
        return asyncio.run(run())
    finally:
        service.close()


async def send_on(writer: asyncio.StreamWriter, text: bytes) -> None:
    with suppress(OSError):
        while not writer.is_closing():
            writer.write(text)
            await writer.drain()
            await asyncio.sleep(0.1)


def test_connections_without_a_whole_head_are_closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing at all, heads that never end, also of a second request, and a body that goes on after its answer."""
    monkeypatch.setattr(server, "_HEAD", 0.6)
    begin = PROBE[:-2]
    unread = b"POST /none HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9999\r\n\r\n"

    async def client(port: int) -> list[float]:
        closed: list[float] = []
        tasks: list[asyncio.Task[Any]] = []
        writers: list[asyncio.StreamWriter] = []
        began = time.monotonic()
        for first, then in ((b"", b""), (begin, b"x: y\r\n"), (PROBE + begin, b"x: y\r\n"), (unread, b" ")):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writers.append(writer)
            writer.write(first)
            if then:
                tasks.append(asyncio.create_task(send_on(writer, then)))
            tasks.append(asyncio.create_task(asyncio.wait_for(reader.read(), 10)))
            tasks[-1].add_done_callback(lambda _: closed.append(time.monotonic() - began))
        await asyncio.sleep(2.0)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for each in writers:
            each.close()
        return closed

    closed = serve(tmp_path, client)
    assert len(closed) == 4
    assert max(closed) < 1.9


def test_who_asks_in_time_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Requests now and then on one connection, a body that comes slowly, and a stream."""
    monkeypatch.setattr(server, "_HEAD", 0.6)
    slow = b"POST /readings HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 12\r\n\r\n"

    async def client(port: int) -> tuple[int, bytes, bytes]:
        readers, writers = zip(*[await asyncio.open_connection("127.0.0.1", port) for _ in range(3)], strict=True)
        answers = 0
        writers[1].write(slow + b'{"S1"')
        writers[2].write(b"GET /stream HTTP/1.1\r\nHost: localhost\r\n\r\n")
        for _ in range(4):
            writers[0].write(PROBE)
            answers += b"HTTP/1.1 503" in await readers[0].readuntil(b'"}')  # learning has not been started
            await asyncio.sleep(0.4)
        writers[1].write(b": nothing")
        refused = await asyncio.wait_for(readers[1].readline(), 10)
        await readers[2].readuntil(b"event: status")
        status = await asyncio.wait_for(readers[2].readuntil(b"event: status"), 10)
        for writer in writers:
            writer.close()
        return answers, refused, status

    answers, refused, status = serve(tmp_path, client)
    assert (answers, refused.split()[1]) == (4, b"400")
    assert status


def test_names_that_a_host_header_may_have() -> None:
    assert allowed_hosts("127.0.0.1") == ["127.0.0.1", "localhost", "[::1]", "127.0.0.1"]
    assert allowed_hosts("::1")[-1] == "[::1]"
    assert allowed_hosts("0.0.0.0") == ["*"]  # a token is required there
    assert {"plant.example", "localhost", "0.0.0.0", socket.gethostname()} <= {
        *allowed_hosts("0.0.0.0", ["plant.example"])
    }
    assert allowed_hosts("localhost", ["*.example"])[-1] == "*.example"
    for name in ("*", "a*b", "*example"):
        with pytest.raises(ValueError, match="--allow-host"):
            allowed_hosts("127.0.0.1", [name])


@pytest.mark.serve
@pytest.mark.parametrize("secure", [False, True])
def test_stalled_connections_keep_nobody_out_and_are_closed(
    tmp_path: Path, certificates: dict[str, Path], secure: bool
) -> None:
    """By HTTPS too, where a client may stop in the midst of the handshake."""
    options = ("--tls-cert", certificates["server"], "--tls-key", certificates["server_key"]) if secure else ()
    opened: list[socket.socket] = []
    try:
        with Served(tmp_path / "model", *FLAGS, *options, verify=str(certificates["ca"])) as service:
            service.post(readings(100))
            wait_for(lambda: service.client.get("/readyz").status_code == 200, 120)
            port = int((service.url or "").rsplit(":", 1)[1])
            for i in range(300):
                connection = socket.create_connection(("127.0.0.1", port), 10)
                opened.append(connection)
                connection.sendall(STALLED[i % len(STALLED)])
            for i in range(20):
                with service.new_client() as client:
                    assert client.get("/healthz", timeout=10).status_code == 200
                with service.new_client() as client:
                    assert client.post("/readings", json=readings(1, 100 + i)[0]).json()["step"] == 100 + i
            for connection in opened if not secure else ():
                connection.settimeout(40)  # 20 s for a head, 30 s for a body
                with suppress(ConnectionResetError):
                    while connection.recv(4096):
                        pass
            service.stop()
            assert not any("Traceback" in line for line in service.log)
    finally:
        for connection in opened:
            connection.close()
