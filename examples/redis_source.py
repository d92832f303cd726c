"""Readings from a Redis stream: how to add a source to ``emphatic serve``.

Put such a file into a package of your own that needs ``emphatic[serve]`` and ``redis``. Name the source in its
pyproject.toml, and install the package beside emphatic:

    [project.entry-points."emphatic.sources"]
    redis = "redis_source:REDIS"

Then ``emphatic serve redis://HOST:6379/readings`` reads that stream from its beginning. The id of the last entry is
saved with the model and in the journal: after a crash the service reads on behind it, and no entry is lost or learned
from twice. Entries that were trimmed or deleted before they were read are not noticed.
"""

from __future__ import annotations

import threading
from typing import Any

from redis import Redis, RedisError

from emphatic.nexting.serve.service import Incoming, Service, with_ids
from emphatic.nexting.serve.sources import Address, StreamSource
from emphatic.nexting.tables.pipe import Reading
from emphatic.nexting.tables.table import Malformed
from emphatic.nexting.tables.text import read_object

__all__ = ["REDIS"]

#: Seconds for a single answer, and between two attempts to connect; milliseconds that a read waits for entries.
PATIENCE, RETRY, WAIT = 10.0, 1.0, 500
#: Entries that are read at once.
BLOCK = 256


class RedisSource:
    """A thread that puts the entries of a stream into the inbox of a service.

    Args:
        address: The server, and the stream.
        service: The service.
    """

    def __init__(self, address: Address, service: Service) -> None:
        self._service, self._name, self._stream = service, repr(address), address.name
        self._status = service.add_source(self._name)
        ca, certificate, key = (None if path is None else str(path) for path in address.tls)
        self._redis = Redis(
            host=address.host,
            port=address.port,
            username=address.user,
            password=address.password,
            ssl=address.encrypted,
            ssl_ca_certs=ca,
            ssl_certfile=certificate,
            ssl_keyfile=key,
            socket_timeout=PATIENCE,
            socket_connect_timeout=PATIENCE,
        )
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)

    def start(self) -> None:
        """Read on behind the last entry that the model knows."""
        self._last = str(self._service.positions.get(self._name, "0-0"))
        self._thread.start()

    def stop(self) -> None:
        """Read no more."""
        self._stopped.set()
        self._thread.join(2.0)
        self._redis.close()

    def _run(self) -> None:
        while not self._stopped.is_set():
            try:
                self._read()
            except RedisError as error:
                self._status.disconnect(str(error))
                self._stopped.wait(RETRY)

    def _read(self) -> None:
        streams: Any = self._redis.xread({self._stream: self._last}, count=BLOCK, block=WAIT)
        self._status.connect()
        for _, entries in streams:
            for id, fields in entries:
                self._status.count_message()
                # Where to read on: whatever else has the name of the source in an origin is given back after a restart.
                origin = {self._name: id.decode()}
                readings = with_ids([Incoming(read(fields))], self._stream, self._service.id_field, origin=origin)
                if not self._service.inbox.put(readings[0]):  # it waits for room; False if the service ends
                    self._stopped.set()
                    return
                self._last = id.decode()


def read(fields: dict[bytes, bytes]) -> Reading | Malformed:
    """The reading of an entry: a field for each signal, or one field with a JSON object."""
    try:
        texts = {name.decode(): value.decode() for name, value in fields.items()}
        text = next(iter(texts.values()), "")
        if len(texts) == 1 and text.lstrip().startswith("{"):
            return read_object(text)
        return dict(texts)
    except UnicodeDecodeError:
        return Malformed("not UTF-8 text")
    except Malformed as error:
        return error


REDIS = StreamSource(
    name="redis",
    read=RedisSource,
    form="redis://HOST:PORT/STREAM",
    port=6379,
    encrypted_port=6379,
    title="Redis",
)
