"""``emphatic serve``: a service with its sources and its HTTP interface, until a signal comes."""

from __future__ import annotations

import asyncio
import errno
import ipaddress
import logging
import signal
import socket
import time
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from emphatic.serve.addresses import Address
from emphatic.serve.security import NUMBERS
from emphatic.serve.service import Service

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["allowed_hosts", "is_loopback", "make_publisher", "make_source", "open_socket", "read_token", "run"]

logger = logging.getLogger("emphatic.serve")

#: Seconds that open connections get when the service ends.
_GRACE = 3
#: Connections at a time, and seconds for which one may be open without a complete request.
_CONNECTIONS, _IDLE = 128, 20.0


def read_token(path: Path) -> str:
    """The token in a file; ValueError if there is none."""
    try:
        token = path.read_text("ascii", "replace").strip()
    except OSError as error:
        raise ValueError(f"--token-file {path} cannot be read: {error.strerror}.") from None
    if not token or not token.isprintable() or not token.isascii() or " " in token:
        raise ValueError(
            f"--token-file {path} must hold a token: one line of letters, digits and signs, without spaces."
        )
    if len(token) < 16:
        logger.warning("%s: the token has only %d characters; 16 or more cannot be guessed.", path, len(token))
    return token


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach this address."""
    with suppress(ValueError):
        return ipaddress.ip_address(host).is_loopback
    return host == "localhost"


def allowed_hosts(host: str) -> tuple[str, ...]:
    """The names that a Host header may have: those of this machine; and, where others can reach it, any number."""
    local = ("127.0.0.1", "localhost", "::1", host)
    return local if is_loopback(host) else (*local, socket.gethostname(), socket.getfqdn(), NUMBERS)


def open_socket(host: str, port: int) -> socket.socket:
    """A socket that listens; OSError in one sentence if it cannot be had."""
    if not 0 <= port <= 65535:
        raise ValueError(f"--port must be from 0 to 65535. Got {port}.")
    try:
        family, kind, proto, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        found = socket.socket(family, kind, proto)  # asyncio sends at once only where it knows that this is TCP
        try:
            found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            found.bind(address)
            found.listen(128)
        except OSError:
            found.close()
            raise
        return found
    except socket.gaierror as error:
        raise ValueError(f"--host {host} is not an address of this machine: {error.strerror}.") from None
    except OSError as error:
        if error.errno == errno.EADDRNOTAVAIL:
            raise ValueError(f"--host {host} is not an address of this machine: {error.strerror}.") from None
        raise ValueError(f"port {port} of {host} cannot be used: {error.strerror}. Choose another: --port N.") from None


def make_source(text: str | None, service: Service) -> Any:
    """The source of readings that an argument names; None for HTTP alone."""
    if text is None:
        return None
    if text == "-":
        from emphatic.serve.sources.standard_input import StandardInput

        return StandardInput(service)
    address = Address.parse(text)
    if address.kind == "mqtt":
        from emphatic.serve.sources.mqtt import MqttSource

        return MqttSource(address, service)
    from emphatic.serve.sources.redis import RedisSource

    return RedisSource(address, service)


def make_publisher(text: str | None, model: Path) -> Any:
    """Where predictions go, besides HTTP."""
    if text is None:
        return None
    address = Address.parse(text)
    if address.kind == "mqtt":
        from emphatic.serve.sources.mqtt import MqttPublisher

        return MqttPublisher(address, model)
    from emphatic.serve.sources.redis import RedisPublisher

    return RedisPublisher(address)


def run(service: Service, source: Any, publisher: Any, listening: socket.socket, app: Any) -> int:
    """Serve until SIGTERM or SIGINT; the exit code: 1 if learning ended by an error."""
    import uvicorn

    class Server(uvicorn.Server):
        @contextmanager
        def capture_signals(self) -> Iterator[None]:
            yield  # they are handled below

    config = uvicorn.Config(
        app, log_config=None, access_log=False, lifespan="off", ws="none", server_header=False,
        limit_concurrency=_CONNECTIONS,
        timeout_keep_alive=15, timeout_graceful_shutdown=_GRACE, proxy_headers=False,
    )  # fmt: skip
    server = Server(config)

    async def serve() -> None:
        loop = asyncio.get_running_loop()

        def stop() -> None:
            service.stop()
            app.state.closing.set()
            server.should_exit = True

        for which in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(which, stop)
        host, port = listening.getsockname()[:2]
        logger.info("listening at http://%s:%d", f"[{host}]" if ":" in host else host, port)
        watching = [loop.create_task(task) for task in (_watch(service, stop), _close_idle(server))]
        await server.serve(sockets=[listening])
        for task in watching:
            task.cancel()

    service.publish = publisher
    service.start()
    for part in (publisher, source):
        if part is not None:
            part.start()
    try:
        asyncio.run(serve())
    finally:
        service.close()
        for part in (source, publisher):  # now that all is acknowledged
            if part is not None:
                part.stop()
    return 1 if service.failure is not None else 0


async def _watch(service: Service, stop: Any) -> None:
    """End the service if learning has ended."""
    while service.failure is None:
        await asyncio.sleep(0.2)
    stop()


async def _close_idle(server: Any) -> None:
    """Close connections that keep their request to themselves: uvicorn waits for its headers for ever.

    A hundred such would keep all others out.
    """
    idle: dict[Any, tuple[Any, float]] = {}
    while True:
        now, before, idle = time.monotonic(), idle, {}
        for connection in list(server.server_state.connections):
            last = connection.cycle  # its request and response
            if last is not None and not last.response_complete:
                continue
            known = before.get(connection)
            idle[connection] = known if known is not None and known[0] is last else (last, now)
            since = now - idle[connection][1]
            if since > 2 * _IDLE:
                connection.transport.abort()  # it does not take what was written either
            elif since > _IDLE:
                connection.transport.close()
        await asyncio.sleep(_IDLE / 20)
