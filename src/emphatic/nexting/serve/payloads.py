"""Messages of devices as readings: a signal is named after its topic and its field, and every reading has a time.

A device sends an object of fields, nested or not, or a single value. Its topic is part of the name, so that the
temperature of the kitchen and that of the bath are two signals, ``home/kitchen.temperature`` and
``home/bath.temperature``. A single value is the signal ``home/kitchen/temperature``, as its topic is called.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from emphatic.nexting.serve.service import Incoming, NotJson, read_json
from emphatic.nexting.tables.fields import as_name, is_time_name, parse_number, unix_units
from emphatic.nexting.tables.pipe import Reading
from emphatic.nexting.tables.table import Malformed

__all__ = ["TimeStamps", "TopicNames", "flatten", "name_fields", "read_message"]

#: The longest single value, in bytes.
_LONGEST_VALUE = 255
#: The deepest level of a nested field.
_DEEPEST = 16
#: What stands for a missing value where a device or Home Assistant sends its state as text.
_MISSING = {"unavailable", "unknown", "none", "null", "nan"}
#: The field of a single value, until the reading gets its names.
_VALUE = ""


class TopicNames:
    """What the signals of a topic are called: by default as the topic itself.

    Args:
        names: A name for each topic, which may have + and #. A + or # in the name stands for what the topic has there.
            An empty name leaves the fields alone. Behind a topic may stand a field: then the signal has the name.

    >>> names = TopicNames({"home/+": "+", "plant/readings": "", "lab/scale.kg": "weight"})
    >>> names.signal("home/kitchen", "temperature"), names.signal("plant/readings", "power")
    ('kitchen.temperature', 'power')
    >>> names.signal("lab/scale", "kg"), names.signal("attic/lamp", ""), names.signal("attic", "motion.state")
    ('weight', 'attic/lamp', 'attic.motion.state')
    """

    def __init__(self, names: Mapping[str, str] | None = None) -> None:
        self._names = dict(names or {})

    @classmethod
    def parse(cls, texts: Sequence[str]) -> TopicNames:
        """The names that an option gives: TOPIC=NAME, several with commas between them."""
        names: dict[str, str] = {}
        for pair in (pair.strip() for text in texts for pair in text.split(",") if pair.strip()):
            topic, separator, name = pair.partition("=")
            if not separator or not topic.strip():
                raise ValueError(f"--topic-names {pair!r} must be TOPIC=NAME.")
            names[topic.strip()] = name.strip()
        return cls(names)

    def signal(self, topic: str, field: str) -> str:
        """The name of the signal in a field of a topic; in the field "" is a single value."""
        place = f"{topic}.{field}" if field else topic
        if name := self._names.get(place):
            return as_name(name)
        prefix = self._prefix(topic)
        return as_name(f"{prefix}.{field}" if prefix and field else prefix or field or topic)

    def _prefix(self, topic: str) -> str:
        if topic in self._names:
            return self._names[topic]
        for pattern, name in self._names.items():
            if (levels := _match(pattern, topic)) is not None:
                for level in levels:
                    sign = min((at for at in (name.find("+"), name.find("#")) if at >= 0), default=-1)
                    if sign < 0:
                        break
                    name = f"{name[:sign]}{level}{name[sign + 1 :]}"
                return name
        return topic


def _match(pattern: str, topic: str) -> list[str] | None:
    """What the + and # of a pattern stand for in a topic; None if the topic is not one of the pattern's."""
    levels, names = pattern.split("/"), topic.split("/")
    stand_for: list[str] = []
    for i, level in enumerate(levels):
        if level == "#":
            return [*stand_for, "/".join(names[i:])]
        if i >= len(names) or level not in ("+", names[i]):
            return None
        if level == "+":
            stand_for.append(names[i])
    return stand_for if len(names) == len(levels) else None


def read_message(payload: bytes) -> list[Incoming]:
    """The readings in the payload of a message: an object, a list of objects, or a single value.

    >>> [incoming.reading for incoming in read_message(b"21.5")]
    [{'': 21.5}]
    >>> read_message(b"on")[0].reading, read_message(b'{"power": 3}')[0].reading
    ({'': 'on'}, {'power': 3})
    """
    text = payload.strip()
    if text.startswith((b"{", b"[")) or len(text) > _LONGEST_VALUE or not text:
        try:
            return read_json(payload)[0]
        except NotJson as error:
            return [Incoming(Malformed(str(error)))]
    try:
        value: object = json.loads(text)
    except (ValueError, RecursionError):
        try:
            value = word = text.decode()
        except UnicodeDecodeError:
            return [Incoming(Malformed("not UTF-8 text"))]
        if not word.isprintable():
            return [Incoming(Malformed("neither JSON nor a single value"))]
    if isinstance(value, str) and value.strip().lower() in _MISSING:
        value = None
    return [Incoming({_VALUE: value})]


def flatten(reading: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a reading with those of nested objects and lists behind them, joined by dots.

    What is nested more than 16 deep stays as it is.

    >>> flatten({"power": 3, "sensor": {"temperature": 21.5, "rgb": [1, 2]}, "on": True})
    {'power': 3, 'sensor.temperature': 21.5, 'sensor.rgb.0': 1, 'sensor.rgb.1': 2, 'on': True}
    """
    fields: dict[str, Any] = {}

    def add(prefix: str, value: object, depth: int) -> None:
        inner: Mapping[Any, Any] = (
            value if isinstance(value, dict) else dict(enumerate(value)) if isinstance(value, list) else {}
        )
        if not inner or depth > _DEEPEST:
            if not isinstance(value, dict | list) or depth > _DEEPEST:
                fields.setdefault(prefix, value)
            return
        for name, nested in inner.items():
            add(f"{prefix}.{as_name(str(name))}", nested, depth + 1)

    for name, value in reading.items():
        if isinstance(value, dict | list):
            add(name, value, 1)
        else:
            fields[name] = value
    return fields


class TimeStamps:
    """The time of each reading: its own, or the one at which it came, all of them written alike.

    The first time of all says how: as a Unix time in s, ms, µs or ns, or in ISO 8601. A field that is called like a
    time becomes the column of the time, whatever a device calls it.

    Args:
        name: The column of the time; None to add no times.
        example: A time as the readings before had it; None if there was none.
    """

    def __init__(self, name: str | None = "time", example: object = None) -> None:
        self.name = name
        self._units: float | None = None  # a second has so many; 0 stands for ISO
        self._zone = True
        if example is not None:
            self._see(example)

    def stamp(self, fields: dict[str, Any], arrival: float | None = None) -> dict[str, Any]:
        """The fields with their time as the first.

        Args:
            fields: The fields of a reading; the time is taken out.
            arrival: When the reading came, in seconds since 1970; now, by default.
        """
        if self.name is None:
            return fields
        source: str | None = self.name
        if self.name not in fields:
            dated = (name for name, value in fields.items() if is_time_name(name) and _seconds(value)[0] is not None)
            source = next(dated, None)
        value = None if source is None else fields[source]
        fields = {name: inner for name, inner in fields.items() if name != source}
        if value is None:
            return {self.name: self._write(time.time() if arrival is None else arrival), **fields}
        return {self.name: self._unify(value), **fields}

    def _unify(self, value: object) -> object:
        seconds, units = _seconds(value)
        if seconds is None:  # a number that is no date, or what cannot be read
            return value
        if self._units is None:
            self._see(value)
        is_alike = units == self._units and (units == 0.0) == isinstance(value, str)
        return value if is_alike else self._write(seconds)

    def _see(self, value: object) -> None:
        seconds, units = _seconds(value)
        if seconds is not None:
            self._units = units
            self._zone = units != 0.0 or datetime.fromisoformat(str(value)).tzinfo is not None

    def _write(self, seconds: float) -> float | str:
        if self._units is None:
            self._units = 1.0
        if self._units:
            return round(seconds * self._units, 3 if self._units == 1.0 else None)
        when = datetime.fromtimestamp(seconds, UTC)
        return (when if self._zone else when.replace(tzinfo=None)).isoformat(timespec="milliseconds")


def _seconds(value: object) -> tuple[float | None, float]:
    """A time in seconds since 1970, and how it was written: units a second, 0 for ISO; None if it is no date."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None, 0.0
    number = value if isinstance(value, float) else parse_number(str(value)[:32])[0]
    units = unix_units(number) if math.isfinite(number) else None
    if units is not None:
        return number / units, units
    try:
        when = datetime.fromisoformat(value if isinstance(value, str) else "")
        return (when if when.tzinfo else when.replace(tzinfo=UTC)).timestamp(), 0.0
    except (ValueError, OverflowError):
        return None, 0.0


def name_fields(
    incoming: Incoming, topic: str, names: TopicNames, stamps: TimeStamps, known: Collection[str] = ()
) -> Incoming:
    """A reading of a topic with the names of signals, and with a time.

    Args:
        incoming: The reading, as its payload has it.
        topic: The topic that it came from.
        names: What the signals are called.
        stamps: What gives it a time.
        known: The columns of the model, if there is one. One that knows a field by its own name, because it was learned
            from a log, gets it by that.
    """
    if isinstance(incoming.reading, Malformed):
        return incoming
    fields = stamps.stamp(flatten(incoming.reading))
    reading: Reading = {}
    for field, value in fields.items():
        name = field if field == stamps.name else names.signal(topic, field)
        reading[field if known and name not in known and field in known else name] = value
    if not reading.keys() - {stamps.name}:
        return incoming._replace(reading=Malformed("the reading is empty"), text=None)
    return incoming._replace(reading=reading, text=None)
