"""Addresses of brokers: mqtt://host:1883/topic and redis://host:6379/stream."""

from __future__ import annotations

from typing import NamedTuple
from urllib.parse import unquote, urlsplit

__all__ = ["Address"]

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
        """The parts of an address; ValueError if it is none. A topic may have +, # and escapes such as %20."""
        wrong = ValueError(
            f"{text!r} is not an address of the form mqtt://HOST:PORT/TOPIC or redis://HOST:PORT/STREAM."
        )
        scheme, separator, rest = text.partition("://")
        if scheme not in _KINDS or not separator:
            raise wrong
        place, _, name = rest.partition("/")
        port, encrypted = _KINDS[scheme]
        try:
            parts = urlsplit(f"//{place}")
            given = parts.port
        except ValueError:
            raise wrong from None
        if not parts.hostname or not name:
            raise wrong
        user, password = (None if each is None else unquote(each) for each in (parts.username, parts.password))
        kind = scheme.removesuffix("s") if encrypted else scheme
        return cls(kind, parts.hostname, given or port, unquote(name), encrypted, user, password)

    def __repr__(self) -> str:
        """Without the password."""
        return f"{self.kind}{'s' if self.encrypted else ''}://{self.host}:{self.port}/{self.name}"
