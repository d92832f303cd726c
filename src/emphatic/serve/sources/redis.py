"""Readings from a Redis stream, and predictions to one.

The id of the last reading is saved with the model, and the service goes on after it.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from pathlib import Path
from typing import TYPE_CHECKING, Any

from emphatic.serve.service import Incoming, Service
from emphatic.serve.sources import Address, StreamSource
from emphatic.tables.fields import as_name
from emphatic.tables.pipe import BLOCK, Reading
from emphatic.tables.table import Malformed
from emphatic.tables.text import read_object

if TYPE_CHECKING:
    from redis import Redis

__all__ = ["REDIS", "RedisPublisher", "RedisSource"]

logger = logging.getLogger("emphatic.serve")

#: Seconds between two attempts, and for a single answer; milliseconds for which a read waits.
_RETRY, _PATIENCE, _WAIT = 1.0, 10.0, 500
#: Lines that the publisher keeps for a server that is away, and those that the stream keeps.
_QUEUED, _STREAM_LENGTH = 10_000, 100_000


def _connect(address: Address) -> Redis:
    from redis import Redis

    ca, certificate, key = (None if path is None else str(path) for path in address.tls)
    return Redis(
        host=address.host,
        port=address.port,
        username=address.user,
        password=address.password,
        ssl=address.encrypted,
        ssl_cert_reqs="required",
        ssl_check_hostname=True,
        ssl_ca_certs=ca,
        ssl_certfile=certificate,
        ssl_keyfile=key,
        socket_timeout=_PATIENCE,
        socket_connect_timeout=_PATIENCE,
    )


class _Worker:
    """A thread that works with a server, and after an error again."""

    def __init__(self, address: Address, purpose: str) -> None:
        self._address, self._redis = address, _connect(address)
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"emphatic {address!r}", daemon=True)
        logger.info("%s %r.", purpose, address)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """End."""
        self._stopped.set()
        self._thread.join(2.0)
        self._redis.close()

    def _run(self) -> None:
        from redis import RedisError

        trouble = ""
        while not self._stopped.is_set():
            try:
                self._work()
                if trouble:
                    logger.info("%r: connected again.", self._address)
                trouble = ""
            except RedisError as error:
                if str(error) != trouble:
                    logger.warning("%r: %s; trying again.", self._address, error)
                trouble = str(error) or type(error).__name__
                self._stopped.wait(_RETRY)

    def _work(self) -> None:
        raise NotImplementedError


class RedisSource(_Worker):
    """Readings from a stream, from its beginning: a field for each signal, or one field with a JSON object."""

    def __init__(self, address: Address, service: Service) -> None:
        super().__init__(address, "readings come from")
        self._service, self._key, self._last = service, repr(address), "0-0"

    def start(self) -> None:
        """Begin after the last reading that the model knows."""
        self._last = str(self._service.positions.get(self._key, self._last))
        super().start()

    def _work(self) -> None:
        streams: Any = self._redis.xread({self._address.name: self._last}, count=BLOCK, block=_WAIT)
        for _, entries in streams or ():
            for id, fields in entries:
                position = id.decode()
                if not self._service.inbox.put(Incoming(_reading(fields), origin={self._key: position})):
                    self._stopped.set()
                    return
                self._last = position


def _reading(fields: dict[bytes, bytes]) -> Reading | Malformed:
    try:
        texts = {as_name(name.decode()): value.decode() for name, value in fields.items()}
        text = next(iter(texts.values()), "")
        if len(texts) == 1 and text.lstrip().startswith("{"):
            return read_object(text)
        return dict(texts)
    except UnicodeDecodeError:
        return Malformed("not UTF-8 text")
    except Malformed as error:
        return error


class RedisPublisher(_Worker):
    """Predictions to a stream, which keeps about the last hundred thousand: a field ``json`` with a line."""

    def __init__(self, address: Address, _model: Path) -> None:
        super().__init__(address, "predictions go to")
        self._lines: deque[bytes] = deque()
        self._filled, self._lost = threading.Event(), 0

    def __call__(self, line: bytes) -> None:
        """Send a line; one that the server's absence leaves no room for is lost, and counted."""
        if len(self._lines) >= _QUEUED:
            self._lost += 1
            if self._lost in (1, 10, 100) or self._lost % 1000 == 0:
                logger.warning("%r: %d predictions could not be sent so far.", self._address, self._lost)
            return
        self._lines.append(line.rstrip(b"\n"))
        self._filled.set()

    def _work(self) -> None:
        from redis import RedisError

        if not self._filled.wait(0.2):
            return
        self._filled.clear()
        while self._lines:
            lines = [self._lines[i] for i in range(min(BLOCK, len(self._lines)))]
            pipe = self._redis.pipeline(transaction=False)
            for line in lines:
                pipe.xadd(self._address.name, {"json": line}, maxlen=_STREAM_LENGTH, approximate=True)
            try:
                pipe.execute()
            except RedisError:
                self._filled.set()
                raise
            for _ in lines:
                self._lines.popleft()


REDIS = StreamSource(
    name="redis",
    read=RedisSource,
    publish=RedisPublisher,
    form="redis://HOST:PORT/STREAM",
    port=6379,
    encrypted_port=6379,
    title="Redis",
    package="redis-py",
    extra="emphatic[redis]",
)
