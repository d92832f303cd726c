"""Sources of readings beside HTTP, and where predictions go.

A source is one ``StreamSource``: in a file of this package that has the source's name, or an entry point of the group
``emphatic.sources``; nothing else lists sources. Standard input is declared here.
"""

from __future__ import annotations

import logging
import os
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote, urlsplit

from emphatic.common.discovery import discover
from emphatic.nexting.serve.credentials import SYSTEM_TLS, TLSFiles, hide_user
from emphatic.nexting.serve.payloads import TopicNames
from emphatic.nexting.serve.service import Incoming, Publisher, Service, StreamConnection, with_ids
from emphatic.nexting.tables.pipe import JSON, Readings, line_blocks
from emphatic.nexting.tables.table import TableError
from emphatic.nexting.tables.text import LOOK_LINES

__all__ = ["STANDARD_INPUT", "Address", "Feed", "MessageOptions", "StreamSource", "check_loop", "find_source"]
__all__ += ["is_same_server", "make_publisher", "make_source"]

logger = logging.getLogger("emphatic.serve")

_PLUGINS = discover(__name__, "emphatic.sources")


class MessageOptions(NamedTuple):
    """What messages to and from brokers are like.

    Args:
        topic_names: What the signals of a topic are called.
        home_assistant: Whether the predictions are announced to Home Assistant.
        units: The units of signals there, by the name of a signal or of a field.
    """

    topic_names: TopicNames = TopicNames()
    home_assistant: bool = False
    units: Mapping[str, str] = {}


class Address(NamedTuple):
    """Where readings come from or predictions go to.

    >>> Address.parse("mqtt://user:secret@broker/plant/+/readings")
    mqtt://broker:1883/plant/+/readings
    >>> Address.parse("http://x/y")
    Traceback (most recent call last):
    ...
    ValueError: 'http://x/y' is not an address of the form mqtt://HOST:PORT/TOPIC.
    """

    kind: str
    host: str = ""
    port: int = 0
    name: str = ""
    encrypted: bool = False
    user: str | None = None
    password: str | None = None
    tls: TLSFiles = SYSTEM_TLS
    options: MessageOptions = MessageOptions()

    @classmethod
    def parse(cls, text: str) -> Address:
        """The fields of an address; ValueError if it is none. A topic may have +, # and escapes such as %20."""
        scheme, separator, location = text.partition("://")
        source = find_source(scheme) or find_source(scheme.removesuffix("s"))
        if source is None or bool(separator) != bool(source.form):
            raise _not_an_address(text)
        if not source.form:
            return cls(source.name)
        encrypted = scheme != source.name
        place, _, name = location.partition("/")
        try:
            url = urlsplit(f"//{place}")
            port = url.port or (source.encrypted_port if encrypted else source.port)
        except ValueError:
            raise _not_an_address(text) from None
        if not url.hostname or not name:
            raise _not_an_address(text)
        user, password = (None if field is None else unquote(field) for field in (url.username, url.password))
        return cls(source.name, url.hostname, port, unquote(name), encrypted, user, password)

    def with_access(self, password: str | None, tls: TLSFiles) -> Address:
        """The address with a password that is not in its text, and the files of an encrypted connection."""
        if self.encrypted:
            tls.context()  # a file that is not right is reported now
        return self._replace(password=self.password if password is None else password, tls=tls)

    def __repr__(self) -> str:
        """Without the password."""
        place = f"://{self.host}:{self.port}/{self.name}" if self.host else ""
        return f"{self.kind}{'s' if self.encrypted else ''}{place}"


@dataclass(frozen=True, kw_only=True)
class StreamSource:
    """A kind of source, by the scheme of its addresses.

    Args:
        name: The scheme.
        read: Connects a service to an address. The connection puts what comes into ``service.inbox``: a ``Feed`` does
            so with an iterator of readings.
        publish: Opens an address for the predictions of a model; None if there is no way to send any.
        form: How an address is written, such as mqtt://HOST:PORT/TOPIC; without it the name is all there is to write.
            The scheme of an encrypted connection has an s behind it, as in mqtts://HOST:PORT/TOPIC.
        port: The port of an address that has none.
        encrypted_port: The port of an encrypted connection that has none.
        title: The name of the protocol, as messages write it.
        overlaps: Whether predictions that go to the second address would come back as readings from the first; both
            are on the same server.
        package: The package that its client is in; it is imported by ``read`` and ``publish`` only.
        extra: What pip installs that package by, such as emphatic[mqtt].
    """

    name: str
    read: Callable[[Address, Service], StreamConnection]
    publish: Callable[[Address, Path], Publisher] | None = None
    form: str = ""
    port: int = 0
    encrypted_port: int = 0
    title: str = ""
    overlaps: Callable[[Address, Address], bool] = lambda source, publisher: source.name == publisher.name
    package: str = ""
    extra: str = ""

    @contextmanager
    def importing(self) -> Iterator[None]:
        """Name the command that installs the client, if it is missing."""
        try:
            yield
        except ImportError as error:
            if not self.extra:
                raise
            raise ImportError(f"{self.title} needs {self.package}: pip install '{self.extra}'") from error


def find_source(name: str) -> StreamSource | None:
    """The source of this name, or None."""
    if name == STANDARD_INPUT.name:
        return STANDARD_INPUT
    if name not in _PLUGINS:
        return None
    wanted = f"an emphatic.nexting.serve.sources.StreamSource with the name {name!r}"
    source: StreamSource = _PLUGINS.objects(
        name, lambda value: isinstance(value, StreamSource) and value.name == name, wanted
    )[0]
    return source


def make_source(
    text: str | None,
    service: Service,
    password: str | None = None,
    tls: TLSFiles = SYSTEM_TLS,
    options: MessageOptions = MessageOptions(),  # noqa: B008 (it cannot change)
) -> StreamConnection | None:
    """The source of readings that an argument names; None for HTTP alone.

    Args:
        text: The address.
        service: The service that takes the readings.
        password: The password, which an address on the command line must not have.
        tls: The files of an encrypted connection.
        options: What messages are like.
    """
    if text is None:
        return None
    address = Address.parse(text).with_access(password, tls)._replace(options=options)
    source = find_source(address.kind)
    assert source is not None
    with source.importing():
        return source.read(address, service)


def make_publisher(
    text: str | None,
    model: Path,
    password: str | None = None,
    tls: TLSFiles = SYSTEM_TLS,
    options: MessageOptions = MessageOptions(),  # noqa: B008
) -> Publisher | None:
    """Where predictions go, besides HTTP.

    Args:
        text: The address; None for HTTP alone.
        model: The file of the model, after which a client may be named.
        password: The password, which an address on the command line must not have.
        tls: The files of an encrypted connection.
        options: What messages are like.
    """
    if text is None:
        return None
    address = Address.parse(text).with_access(password, tls)._replace(options=options)
    source = find_source(address.kind)
    if source is None or source.publish is None:
        raise _not_an_address(text)
    with source.importing():
        return source.publish(address, model)


def check_loop(source: str | None, publish: str | None) -> None:
    """ValueError if predictions would come back as readings.

    Args:
        source: Where readings come from, as the command line has it.
        publish: Where predictions go.
    """
    if source is None or publish is None:
        return
    reading, publishing = Address.parse(source), Address.parse(publish)
    kind = find_source(reading.kind)
    if kind is not None and is_same_server(reading, publishing) and kind.overlaps(reading, publishing):
        raise ValueError(
            f"--publish {publishing!r} is where the readings come from, {reading!r}: send predictions elsewhere, or "
            "they would come back as readings."
        )


def is_same_server(a: Address, b: Address) -> bool:
    """Whether two addresses are of one server, by the numeric addresses of their hosts."""
    return (a.kind, a.port) == (b.kind, b.port) and bool(_numeric(a.host) & _numeric(b.host))


def _numeric(host: str) -> set[str]:
    """The numeric addresses of a host; its name if it has none."""
    try:
        return {str(info[4][0]) for info in socket.getaddrinfo(host, None)}
    except (OSError, UnicodeError):
        return {host.lower()}


def _not_an_address(text: str) -> ValueError:
    forms = []
    for name in _PLUGINS:
        try:
            source = find_source(name)
        except (ImportError, TypeError) as error:  # of another distribution
            logger.warning("%s", error)
        else:
            forms += [source.form] if source and source.form else []
    return ValueError(f"{hide_user(text)!r} is not an address of the form {' or '.join(forms)}.")


class Feed:
    """A thread that puts the readings of an iterator into the inbox of a service, and no further than there is room.

    When the iterator ends, the service goes on without it.

    Args:
        service: The service.
        readings: Yields readings as they come. ``Incoming.origin`` may say where to go on after a restart.
        name: The name of the thread.
        wake: Makes an iterator that waits for a reading return.
    """

    def __init__(
        self, service: Service, readings: Iterator[Incoming], name: str, wake: Callable[[], object] = lambda: None
    ) -> None:
        self._service, self._readings, self._wake = service, readings, wake
        self._status = service.add_source(name)
        self._thread = threading.Thread(target=self._run, name=f"emphatic {name}", daemon=True)

    def start(self) -> None:
        """Begin to read."""
        self._status.connect()
        self._thread.start()

    def stop(self) -> None:
        """Read no more."""
        self._wake()
        self._thread.join(2.0)

    def _run(self) -> None:
        for incoming in self._readings:
            self._status.count_message()
            if not self._service.inbox.put(incoming):
                return
        self._status.end()


def _read_lines(service: Service, descriptor: int, wake: int) -> Iterator[Incoming]:
    """The readings in JSON lines or CSV, as ``emphatic nexting -`` reads them."""
    predictor = service.predictor
    look = min(LOOK_LINES, service.warm_up)
    readings = Readings((), predictor.columns, predictor.delimiter, look, predictor.header)

    def origin() -> dict[str, object] | None:
        form = readings.form
        return None if form == JSON else {"delimiter": form.delimiter, "unnamed": list(form.unnamed)}

    try:
        for lines in line_blocks(descriptor, wake):
            for _, reading in readings.feed(lines):
                yield from with_ids([Incoming(reading)], "-", service.id_field, origin=origin())
        for _, reading in readings.finish():
            yield from with_ids([Incoming(reading)], "-", service.id_field, origin=origin())
        logger.info("standard input has ended.")
    except (TableError, OSError) as error:
        logger.error("reading of standard input has stopped: %s", error)


def _feed_lines(_: Address, service: Service) -> Feed:
    wake, waker = os.pipe()
    return Feed(service, _read_lines(service, 0, wake), "standard input", lambda: os.write(waker, b"x"))


STANDARD_INPUT = StreamSource(name="-", read=_feed_lines)
