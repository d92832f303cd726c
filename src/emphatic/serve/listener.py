"""Where a service listens: the socket, how many connections it holds, and HTTPS.

Anybody who reaches the port can open connections and send nothing, or half a request. So there is a budget: beyond it,
each new connection takes the place of the connection that has waited longest for its client. A request that is complete
is never dropped, and a new one, such as that of a probe, always gets in.
"""

from __future__ import annotations

import asyncio
import errno
import ipaddress
import socket
import ssl
import time
from collections import OrderedDict, deque
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from emphatic.common.locks import InUseError

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

__all__ = ["ACCEPTED", "NUMERIC_HOSTS", "PROBES", "Budget", "Listener", "allowed_hosts", "is_loopback", "open_socket"]
__all__ += ["server_context"]

#: Stands for every numeric address among the names that a Host header may have.
NUMERIC_HOSTS = "*.*.*.*"
#: What orchestrators ask: without a token, and however busy the service is.
PROBES = ("/healthz", "/readyz")
#: Connections at a time, and requests at a time of those.
_CONNECTIONS, _REQUESTS = 512, 256
#: Connections that the system keeps until they are accepted, those that are accepted at a time, and those among them
#: that are not closed in a flood although they have not sent a request yet.
_BACKLOG, ACCEPTED, _NEWEST = 4096, _CONNECTIONS + 1, 64
#: Seconds for which a connection may be open without a complete request, and for which a body may not arrive.
_IDLE, _BODY = 20.0, 40.0


class _Connection(NamedTuple):
    """A connection that waits for its client, until a deadline by ``time.monotonic``."""

    socket: socket.socket
    deadline: float


class Budget:
    """The connections of a listener: those that wait for their client, oldest first, and those that do not.

    A connection is known by the address and port of its client.

    Args:
        connections: How many there may be.
        requests: How many requests may be answered at a time, besides probes.
    """

    def __init__(self, connections: int = _CONNECTIONS, requests: int = _REQUESTS) -> None:
        self.connections, self.requests = connections, requests
        self._waiting: OrderedDict[Any, _Connection] = OrderedDict()
        self._busy: dict[Any, socket.socket] = {}
        self._since_cleaned = 0  # new connections since those that are closed were last forgotten
        #: Connections that were dropped for a newer one.
        self.dropped = 0

    def add(self, client: object, connection: socket.socket) -> None:
        """Count a new connection, and drop another if there are too many."""
        self._busy.pop(client, None)
        self._wait(client, connection, _IDLE)
        self._since_cleaned += 1
        if len(self._waiting) + len(self._busy) > self.connections:
            if self._since_cleaned >= _NEWEST:  # in a flood of connections this is not done for each of them
                self._forget_closed()
            while len(self._waiting) > 1 and len(self._waiting) + len(self._busy) > self.connections:
                _, (oldest, _) = self._waiting.popitem(last=False)
                self.dropped += 1
                _end(oldest)

    def guard(self, app: ASGIApp) -> ASGIApp:
        """The application, with each connection counted as waiting while its client is awaited."""

        async def guarded(scope: Scope, receive: Receive, send: Send) -> None:
            client = tuple(scope["client"][:2]) if scope.get("client") else None
            if scope["type"] != "http" or (client not in self._waiting and client not in self._busy):
                await app(scope, receive, send)
                return
            if len(self._busy) >= self.requests and scope["path"] not in PROBES:
                headers = [(b"content-type", b"application/json"), (b"retry-after", b"1")]
                await send({"type": "http.response.start", "status": 503, "headers": headers})
                await send({"type": "http.response.body", "body": b'{"error":"too many requests at a time","taken":0}'})
                return
            started = False

            async def receive_and_count() -> Message:
                if started:  # the application only wants to know when the client has disconnected
                    return await receive()
                self._pause(client, _BODY)
                message = await receive()
                self._work(client)
                return message

            async def send_and_count(message: Message) -> None:
                nonlocal started
                started = True
                self._pause(client, _IDLE)
                await send(message)
                self._work(client)

            self._work(client)
            try:
                await app(scope, receive_and_count, send_and_count)
            finally:
                self._pause(client, _IDLE)

        return guarded

    async def close_idle(self) -> None:
        """Close connections whose clients have kept them waiting for too long."""
        while True:
            now = time.monotonic()
            for client, (connection, deadline) in list(self._waiting.items()):
                if deadline < now:
                    del self._waiting[client]
                    _end(connection)
            self._forget_closed()
            await asyncio.sleep(_IDLE / 20)

    def _wait(self, client: object, connection: socket.socket, seconds: float) -> None:
        self._waiting[client] = _Connection(connection, time.monotonic() + seconds)
        self._waiting.move_to_end(client)

    def _pause(self, client: object, seconds: float) -> None:
        """Note that a connection now waits for its client."""
        if (connection := self._busy.pop(client, None)) is not None:
            self._wait(client, connection, seconds)

    def _work(self, client: object) -> None:
        """Note that a connection does not wait for its client."""
        if (waiting := self._waiting.pop(client, None)) is not None:
            self._busy[client] = waiting.socket

    def _forget_closed(self) -> None:
        self._since_cleaned = 0
        for client in [client for client, (connection, _) in self._waiting.items() if connection.fileno() < 0]:
            del self._waiting[client]
        for client in [client for client, connection in self._busy.items() if connection.fileno() < 0]:
            del self._busy[client]


def _end(connection: socket.socket) -> None:
    """End a connection under the hands of the event loop, which closes it as if the client had gone."""
    with suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)


class Listener(socket.socket):
    """A socket whose connections are counted from the moment they are accepted, before any TLS handshake.

    All that wait to be accepted are looked at together. In a flood, those that have not sent a request are closed,
    except the newest: this takes a tenth of the time that the event loop needs to open and drop them.
    """

    budget: Budget

    def __init__(self, family: int = -1, kind: int = -1, proto: int = -1) -> None:
        super().__init__(family, kind, proto)
        self._accepted: deque[tuple[socket.socket, Any]] = deque()
        self._looked = False

    def accept(self) -> tuple[socket.socket, Any]:
        """The next connection, and the address of its client. The event loop asks until there is none."""
        if not self._accepted:
            self._looked = not self._looked
            if not self._looked:
                raise BlockingIOError  # so that the connections are served before more of them are accepted
            try:
                self._accept_all()
            except OSError:
                self._looked = False
                raise
        connection, address = self._accepted.popleft()
        self.budget.add(tuple(address[:2]), connection)
        return connection, address

    def _accept_all(self) -> None:
        """Accept what waits, as far as the budget goes; OSError if that is nothing."""
        try:
            while len(self._accepted) < self.budget.connections:
                self._accepted.append(super().accept())
        except OSError:  # nothing waits any more, or there are too many open files
            if not self._accepted:
                raise
        for _ in range(len(self._accepted) - _NEWEST):
            connection, address = self._accepted.popleft()
            if _has_request(connection):
                self._accepted.append((connection, address))
            else:
                self.budget.dropped += 1
                connection.close()

    def listen(self, backlog: int = _BACKLOG) -> None:
        """Listen. The event loop asks for the number that it accepts at a time; the system keeps more."""
        super().listen(max(backlog, _BACKLOG))


def _has_request(connection: socket.socket) -> bool:
    """Whether a whole request has come, or the beginning of a TLS handshake."""
    connection.setblocking(False)
    try:
        text = connection.recv(4096, socket.MSG_PEEK)
    except OSError:
        return False
    return b"\r\n\r\n" in text or text[:1] == b"\x16"


def open_socket(host: str, port: int) -> Listener:
    """A socket to listen at; ValueError in one sentence if it cannot be had.

    Args:
        host: The address to listen at.
        port: The port; 0 for any that is free.
    """
    if not 0 <= port <= 65535:
        raise ValueError(f"--port must be from 0 to 65535. Got {port}.")
    try:
        family, kind, proto, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listening = Listener(family, kind, proto)  # asyncio sends at once only where it knows that this is TCP
        listening.budget = Budget(min(_CONNECTIONS, _raise_descriptor_limit() // 2))
        try:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listening.bind(address)  # it listens once it can answer
        except OSError:
            listening.close()
            raise
        return listening
    except socket.gaierror as error:
        raise ValueError(f"--host {host} is not an address of this machine: {error.strerror}.") from None
    except OSError as error:
        if error.errno == errno.EADDRNOTAVAIL:
            raise ValueError(f"--host {host} is not an address of this machine: {error.strerror}.") from None
        failure = InUseError if error.errno == errno.EADDRINUSE else ValueError
        raise failure(f"port {port} of {host} cannot be used: {error.strerror}. Choose another: --port N.") from None


def _raise_descriptor_limit() -> int:
    """Allow this process as many open files as it may have, up to some thousands; how many that is."""
    try:
        import resource
    except ImportError:  # Windows
        return 4 * _CONNECTIONS
    try:
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    except OSError:  # a filter of system calls
        return _CONNECTIONS
    wanted = 8 * _CONNECTIONS if hard == resource.RLIM_INFINITY else min(8 * _CONNECTIONS, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
            return wanted
    return wanted if soft == resource.RLIM_INFINITY else soft


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach this address."""
    with suppress(ValueError):
        return ipaddress.ip_address(host).is_loopback
    return host == "localhost"


def allowed_hosts(host: str) -> tuple[str, ...]:
    """The names that a Host header may have: those of this machine; and, where others can reach it, any number."""
    local = ("127.0.0.1", "localhost", "::1", host)
    return local if is_loopback(host) else (*local, socket.gethostname(), socket.getfqdn(), NUMERIC_HOSTS)


def server_context(certificate: Path | None, key: Path | None) -> ssl.SSLContext | None:
    """What HTTPS is served with; None for HTTP, and ValueError in one sentence if the files are not right.

    Args:
        certificate: The file of the certificate and those that it is signed by.
        key: The file of its key; None if that is in the file of the certificate.
    """
    if certificate is None:
        if key is not None:
            raise ValueError("--tls-key needs --tls-cert, the file of its certificate.")
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    load_certificate(context, certificate, key, "--tls-cert", "--tls-key")
    return context


def load_certificate(
    context: ssl.SSLContext, certificate: Path, key: Path | None, option: str, key_option: str
) -> None:
    """Load a certificate and its key, or raise a ValueError that names the option that is wrong."""
    for path, name in ((certificate, option), (key, key_option)):
        if path is not None:
            try:
                path.read_bytes()
            except OSError as error:
                raise ValueError(f"{name} {path} cannot be read: {error.strerror}.") from None
    try:
        context.load_cert_chain(certificate, key, password=lambda: "")  # OpenSSL would ask for one on the terminal
    except (ssl.SSLError, ValueError) as error:
        reason = getattr(error, "reason", None) or str(error)
        raise ValueError(
            f"{option} {certificate} and {key_option} {key or certificate} must be a certificate and its key, both in "
            f"PEM and without a passphrase: {reason}."
        ) from None
