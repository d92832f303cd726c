"""Readings from a Redis stream, and predictions to one.

The id of the last reading is saved with the model, and the service goes on after it. Redis counts the entries that were
ever added to a stream. The service counts those that it has read, so that it knows how many were trimmed unread.
"""

from __future__ import annotations

import logging
import threading
import time
import zlib
from collections import deque
from pathlib import Path
from typing import TYPE_CHECKING, Any

from emphatic.serve.ids import scoped_id
from emphatic.serve.service import Incoming, Service, with_ids
from emphatic.serve.sources import Address, StreamSource
from emphatic.serve.status import ConnectionStatus
from emphatic.tables.fields import as_name
from emphatic.tables.pipe import BLOCK, Reading
from emphatic.tables.table import Malformed
from emphatic.tables.text import read_object

if TYPE_CHECKING:
    from redis import Redis

__all__ = ["REDIS", "RedisPublisher", "RedisSource"]

logger = logging.getLogger("emphatic.serve")

#: Seconds between two attempts, for a single answer, and between two looks at the whole stream; milliseconds for which
#: a read waits.
_RETRY, _PATIENCE, _LOOK, _WAIT = 1.0, 10.0, 1.0, 500
#: Lines that the publisher keeps for a server that is away, and those that the stream keeps.
_QUEUED, _STREAM_LENGTH = 10_000, 100_000
#: Entries among which a known one is looked for, in a stream that has lost its last ones.
_LOOKED_AT = 1000
_BEGINNING = "0-0"


def _connect(address: Address) -> Redis:
    from redis import Redis
    from redis.backoff import NoBackoff
    from redis.retry import Retry

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
        retry=Retry(NoBackoff(), 0),  # the worker tries again, and says so
    )


class _Worker:
    """A thread that works with a server, and after an error again."""

    def __init__(self, address: Address, purpose: str, status: ConnectionStatus) -> None:
        self._address, self._redis, self._status = address, _connect(address), status
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
                self._status.connect()
            except RedisError as error:
                if str(error) != trouble:
                    logger.warning("%r: %s; trying again.", self._address, error)
                trouble = str(error) or type(error).__name__
                self._status.disconnect(trouble)
                self._stopped.wait(_RETRY)

    def _work(self) -> None:
        raise NotImplementedError


class RedisSource(_Worker):
    """Readings from a stream, from its beginning: a field for each signal, or one field with a JSON object."""

    def __init__(self, address: Address, service: Service) -> None:
        self._service, self._key, self._stream = service, repr(address), address.name
        super().__init__(address, "readings come from", service.add_source(self._key))
        #: The id of the last entry that was read, and how many had been added up to it; None if that is not known.
        self._last = _BEGINNING
        self._count: int | None = None
        self._look_at = 0.0

    def start(self) -> None:
        """Begin after the last reading that the model knows."""
        position = self._service.positions.get(self._key)
        if isinstance(position, str):  # as earlier versions saved it
            self._last = position
        elif position is not None:
            self._last, self._count = str(position[0]), position[1]
        super().start()

    def _work(self) -> None:
        if time.monotonic() >= self._look_at:
            self._look()
            self._look_at = time.monotonic() + _LOOK
        streams: Any = self._redis.xread({self._stream: self._last}, count=BLOCK, block=_WAIT)
        for _, entries in streams or ():
            for id, fields in entries:
                if not self._put(id.decode(), fields):
                    self._stopped.set()
                    return

    def _put(self, id: str, fields: dict[bytes, bytes]) -> bool:
        count = None if self._count is None else self._count + 1
        origin = {self._key: [id, count], "ids": [_entry_id(self._stream, id, fields)]}
        self._status.count_message()
        [incoming] = with_ids([Incoming(_reading(fields))], self._stream, self._service.id_field, origin=origin)
        if not self._service.inbox.put(incoming):
            return False
        self._last, self._count = id, count
        return True

    # ------------------------------------------------------------------ what was lost

    def _look(self) -> None:
        """Compare what the stream has with what was read: how much is to come, and what will never come."""
        from redis import ResponseError

        together = self._redis.pipeline(transaction=True)
        together.xread({self._stream: self._last}, count=1)
        together.xinfo_stream(self._stream)
        entries, info = together.execute(raise_on_error=False)
        if isinstance(entries, Exception):
            raise entries
        if isinstance(info, ResponseError) and "no such key" in str(info):
            info = {"length": 0, "last-generated-id": b"0-0", "entries-added": 0, "first-entry": None}
        elif isinstance(info, Exception):
            raise info
        added, length = info.get("entries-added"), info["length"]
        generated, first = _text(info["last-generated-id"]), info["first-entry"]
        is_behind = first is not None and _order(self._last) < _order(_text(first[0]))
        if added is None:  # Redis 6: only that the stream was deleted and created again can be seen
            if _order(generated) < _order(self._last):
                self._begin_again(None)
            return
        if self._count is None:
            self._begin(added, length, is_behind=is_behind, is_read=not entries, info=info)
        elif _order(generated) < _order(self._last) or added < self._count:
            self._begin_again(self._status.lag)
        elif not entries and added > self._count:
            self._lose(added - self._count, generated)
        elif is_behind and added - length > self._count:
            self._lose(added - length - self._count, _text(first[0]))
        elif is_behind and added - length < self._count:
            self._begin_again(self._status.lag)
        self._status.lag = None if self._count is None else max(0, added - self._count)

    def _begin(self, added: int, length: int, *, is_behind: bool, is_read: bool, info: dict[str, Any]) -> None:
        """Find how many entries had been added up to the last one that was read."""
        if is_read:
            self._count = added
        elif is_behind:
            deleted = _order(_text(info.get("max-deleted-entry-id", _BEGINNING)))
            if self._last != _BEGINNING and deleted > _order(self._last):
                self._status.lose(self._last, _text(info["first-entry"][0]), None, "entries were trimmed unread")
            self._count = added - length

    def _lose(self, count: int, until: str) -> None:
        assert self._count is not None
        self._status.lose(self._last, until, count, "entries were trimmed or deleted unread")
        self._count += count

    def _begin_again(self, lost: int | None) -> None:
        """Go on in a stream that was made anew, or that lost its last entries in a crash of the server."""
        entries: Any = self._redis.xrevrange(self._stream, max=self._last, min="-", count=_LOOKED_AT)
        known = next(
            (
                id.decode()
                for id, fields in entries
                if _entry_id(self._stream, id.decode(), fields) in self._service.ids
            ),
            None,
        )
        reason = (
            "the stream was deleted and created again"
            if known is None
            else "the server has lost the last entries of the stream"
        )
        self._status.lose(self._last, known or _BEGINNING, lost, reason)
        self._last, self._count = known or _BEGINNING, None


def _entry_id(stream: str, id: str, fields: dict[bytes, bytes]) -> str:
    """The id of an entry among those of readings: with its content, since a stream made anew may have the same ids."""
    content = zlib.crc32(repr(list(fields.items())).encode())
    return scoped_id(stream, f"{id}/{content:08x}")


def _order(id: str) -> tuple[int, int]:
    """An id of Redis as numbers that can be compared."""
    milliseconds, _, number = id.partition("-")
    return int(milliseconds), int(number or 0)


def _text(value: bytes | str) -> str:
    return value.decode() if isinstance(value, bytes) else value


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
        self.status = ConnectionStatus(repr(address))
        super().__init__(address, "predictions go to", self.status)
        self._lines: deque[bytes] = deque()
        self._filled = threading.Event()

    def __call__(self, line: bytes) -> None:
        """Send a line; one that the server's absence leaves no room for is lost, and counted."""
        if len(self._lines) >= _QUEUED:
            self.status.lost += 1
            lost = self.status.lost
            if lost in (1, 10, 100) or lost % 1000 == 0:
                logger.warning("%r: %d predictions were not published so far.", self._address, lost)
            return
        self._lines.append(line.rstrip(b"\n"))
        self.status.lag = len(self._lines)
        self._filled.set()

    def unconfirmed(self) -> list[bytes]:
        """The lines that the server has not confirmed."""
        return list(self._lines)

    def _work(self) -> None:
        from redis import RedisError

        if not self._filled.wait(0.2):
            self.status.lag = len(self._lines)  # the other thread may have written it last, and late
            self._redis.ping()
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
                self.status.count_message()
            self.status.lag = len(self._lines)


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
