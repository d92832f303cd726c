"""Sources of readings beside HTTP: standard input, MQTT and Redis; and where predictions go."""

from __future__ import annotations

import logging
import os
import threading
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote, urlsplit

from emphatic.serve.service import Connection, Incoming, Publisher, Service
from emphatic.tables.pipe import JSON, Malformed, Reading, Readings, TextForm, line_blocks
from emphatic.tables.table import TableError
from emphatic.tables.text import LOOK_LINES

__all__ = ["Address", "StandardInput", "make_publisher", "make_source"]

logger = logging.getLogger("emphatic.serve")

#: The port of each kind of address, and whether its connection is encrypted.
_KINDS = {"mqtt": (1883, False), "mqtts": (8883, True), "redis": (6379, False), "rediss": (6379, True)}


class Address(NamedTuple):
    """Where readings come from or predictions go to.

    >>> Address.parse("mqtt://user:secret@broker/plant/+/readings")
    mqtt://broker:1883/plant/+/readings
    >>> Address.parse("http://x/y")
    Traceback (most recent call last):
    ...
    ValueError: 'http://x/y' is not an address of the form mqtt://HOST:PORT/TOPIC or redis://HOST:PORT/STREAM.
    """

    kind: str
    host: str
    port: int
    name: str
    encrypted: bool
    user: str | None
    password: str | None

    @classmethod
    def parse(cls, text: str) -> Address:
        """The fields of an address; ValueError if it is none. A topic may have +, # and escapes such as %20."""
        wrong = ValueError(
            f"{text!r} is not an address of the form mqtt://HOST:PORT/TOPIC or redis://HOST:PORT/STREAM."
        )
        scheme, separator, location = text.partition("://")
        if scheme not in _KINDS or not separator:
            raise wrong
        place, _, name = location.partition("/")
        port, encrypted = _KINDS[scheme]
        try:
            url = urlsplit(f"//{place}")
            port = url.port or port
        except ValueError:
            raise wrong from None
        if not url.hostname or not name:
            raise wrong
        user, password = (None if text is None else unquote(text) for text in (url.username, url.password))
        kind = scheme.removesuffix("s") if encrypted else scheme
        return cls(kind, url.hostname, port, unquote(name), encrypted, user, password)

    def __repr__(self) -> str:
        """Without the password."""
        return f"{self.kind}{'s' if self.encrypted else ''}://{self.host}:{self.port}/{self.name}"


class StandardInput:
    """A thread that reads lines, and no further than there is room. At the end of the input the service goes on."""

    def __init__(self, service: Service, descriptor: int = 0) -> None:
        self._service, self._descriptor = service, descriptor
        self._wake, self._waker = os.pipe()
        self._thread = threading.Thread(target=self._run, name="emphatic standard input", daemon=True)

    def start(self) -> None:
        """Begin to read."""
        self._thread.start()

    def stop(self) -> None:
        """Read no more."""
        os.write(self._waker, b"x")
        self._thread.join(2.0)

    def _run(self) -> None:
        predictor = self._service.predictor
        look = min(LOOK_LINES, self._service.warm_up)
        readings = Readings((), predictor.columns, predictor.delimiter, look, predictor.header)
        try:
            for lines in line_blocks(self._descriptor, self._wake):
                for _, reading in readings.feed(lines):
                    self._put(reading, readings.form)
            for _, reading in readings.finish():
                self._put(reading, readings.form)
            logger.info("standard input has ended.")
        except (TableError, OSError) as error:
            logger.error("standard input is read no further: %s", error)

    def _put(self, reading: Reading | Malformed, form: TextForm) -> None:
        origin = None if form == JSON else {"delimiter": form.delimiter, "unnamed": list(form.unnamed)}
        self._service.inbox.put(Incoming(reading, origin=origin))


def make_source(text: str | None, service: Service) -> Connection | None:
    """The source of readings that an argument names; None for HTTP alone."""
    if text is None:
        return None
    if text == "-":
        return StandardInput(service)
    address = Address.parse(text)
    if address.kind == "mqtt":
        from emphatic.serve.sources.mqtt import MqttSource

        return MqttSource(address, service)
    from emphatic.serve.sources.redis import RedisSource

    return RedisSource(address, service)


def make_publisher(text: str | None, model: Path) -> Publisher | None:
    """Where predictions go, besides HTTP."""
    if text is None:
        return None
    address = Address.parse(text)
    if address.kind == "mqtt":
        from emphatic.serve.sources.mqtt import MqttPublisher

        return MqttPublisher(address, model)
    from emphatic.serve.sources.redis import RedisPublisher

    return RedisPublisher(address)
