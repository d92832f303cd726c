"""The server: where it listens, how long a request's head may take, and how it ends with the service.

It is made for a network whose clients are known. In front of a port that anybody can reach belongs a proxy.
"""

from __future__ import annotations

import asyncio
import errno
import ipaddress
import logging
import signal
import socket
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from emphatic.common.locks import InUseError
from emphatic.nexting.serve.service import Service, StreamConnection

if TYPE_CHECKING:
    from starlette.applications import Starlette

__all__ = ["HeadDeadline", "allowed_hosts", "is_loopback", "open_socket", "run"]

logger = logging.getLogger("emphatic.serve")

#: Seconds until the head of a request must be complete, for which a connection may wait for its next request, and that
#: open connections get when the service ends.
_HEAD, _KEEP_ALIVE, _GRACE = 20.0, 15, 3


class HeadDeadline(H11Protocol):
    """HTTP whose connections are closed if a request's head is not complete in time."""

    _deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Expect the first request."""
        super().connection_made(transport)
        self._expect_head()

    def handle_events(self) -> None:
        """Handle what has come; a complete head is no longer expected."""
        super().handle_events()
        if self.cycle is not None and not self.cycle.response_complete:
            self._expect_nothing()

    def on_response_complete(self) -> None:
        """Expect the next request."""
        self._expect_head()
        super().on_response_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        """Expect nothing any more."""
        self._expect_nothing()
        super().connection_lost(exc)

    def _expect_head(self) -> None:
        self._expect_nothing()
        self._deadline = self.loop.call_later(_HEAD, self.transport.close)

    def _expect_nothing(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None


def open_socket(host: str, port: int) -> socket.socket:
    """A socket to listen at; ValueError in one sentence if it cannot be had.

    Args:
        host: The address to listen at.
        port: The port; 0 for any that is free.
    """
    if not 0 <= port <= 65535:
        raise ValueError(f"--port must be from 0 to 65535. Got {port}.")
    try:
        family, kind, proto, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listening = socket.socket(family, kind, proto)  # asyncio sends at once only where it knows that this is TCP
        try:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listening.bind(address)  # it listens once it can answer
        except OSError:
            listening.close()
            raise
        return listening
    except OSError as error:
        if isinstance(error, socket.gaierror) or error.errno == errno.EADDRNOTAVAIL:
            raise ValueError(f"--host {host} is not an address of this machine: {error.strerror}.") from None
        failure = InUseError if error.errno == errno.EADDRINUSE else ValueError
        raise failure(f"port {port} of {host} cannot be used: {error.strerror}. Choose another: --port N.") from None


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach this address."""
    with suppress(ValueError):
        return ipaddress.ip_address(host).is_loopback
    return host == "localhost"


def allowed_hosts(host: str, further: Sequence[str] = ()) -> list[str]:
    """The names that a Host header may have: those of this machine, and further ones.

    Where others can reach the service, a token protects it, and without further names any name will do.

    Args:
        host: The address that the service listens at.
        further: What the user allows besides, such as the name of a proxy.
    """
    for name in further:
        if "*" in name.removeprefix("*."):
            raise ValueError(f"--allow-host {name} must be a name, or *.NAME for all names below it.")
    if not is_loopback(host) and not further:
        return ["*"]
    names = ["127.0.0.1", "localhost", "[::1]", f"[{host}]" if ":" in host else host, *further]
    return names if is_loopback(host) else [*names, socket.gethostname(), socket.getfqdn()]


def run(
    service: Service,
    connections: Sequence[StreamConnection],
    listening: socket.socket,
    app: Starlette,
    certificate: Path | None = None,
    key: Path | None = None,
) -> int:
    """Serve until SIGTERM or SIGINT.

    Args:
        service: The service, after ``open``.
        connections: Its publisher and its source, in the order in which they start.
        listening: The socket of the HTTP interface.
        app: The HTTP interface.
        certificate: The file of the certificate of HTTPS; None for HTTP.
        key: The file of its key; None if that is in the file of the certificate.

    Returns:
        The exit code: 1 if learning ended by an error.
    """

    class Server(uvicorn.Server):
        @contextmanager
        def capture_signals(self) -> Iterator[None]:
            yield  # they are handled below

    config = uvicorn.Config(
        app,
        http=HeadDeadline,
        log_config=None,
        access_log=False,
        lifespan="off",
        ws="none",
        server_header=False,
        timeout_keep_alive=_KEEP_ALIVE,
        timeout_graceful_shutdown=_GRACE,
        proxy_headers=False,
        ssl_certfile=certificate,
        ssl_keyfile=key,
    )
    server = Server(config)

    async def serve() -> None:
        loop = asyncio.get_running_loop()

        def stop() -> None:
            service.stop()
            app.state.close()
            server.should_exit = True

        for which in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(which, stop)
        host, port = listening.getsockname()[:2]
        scheme = "http" if certificate is None else "https"
        logger.info("listening at %s://%s:%d", scheme, f"[{host}]" if ":" in host else host, port)
        watching = loop.create_task(_watch(service, stop))
        await server.serve(sockets=[listening])
        watching.cancel()

    service.start()
    for connection in connections:
        connection.start()
    try:
        asyncio.run(serve())
    finally:
        service.close()
        for connection in reversed(connections):
            connection.stop()
    return 1 if service.failure is not None else 0


async def _watch(service: Service, stop: Callable[[], None]) -> None:
    """End the service if learning has ended."""
    while service.failure is None:
        await asyncio.sleep(0.2)
    stop()
