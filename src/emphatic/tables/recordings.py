"""Recordings of robots, MCAP files and ROS 2 bags: their topics, and their messages in the order of the log's time.

MCAP is read by ``mcap``, a bag's folder by ``rosbags``, and both a part at a time. What a hostile file makes these
raise becomes one ``TableError``.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from emphatic.tables.message_objects import MessageObjects
from emphatic.tables.message_types import MessageType, UnknownType
from emphatic.tables.table_errors import TableError

__all__ = ["MAGIC", "Message", "Recording", "Topic", "is_bag", "open_recording"]

MAGIC = b"\x89MCAP0\r\n"
#: The messages of a topic that decide on the fields of JSON and the lengths of arrays.
FIRST = 100


class Message(NamedTuple):
    """A message: when it was logged, in nanoseconds since 1970, its topic and its bytes."""

    time: int
    topic: str
    data: bytes


class Topic(Protocol):
    """The numbers in the messages of a topic."""

    columns: list[str]
    left_out: dict[str, str]

    def read(self, data: bytes) -> list[float | None]: ...


class _Channel(NamedTuple):
    """How the messages of a topic are written: ``cdr`` or ``json``, the name of their type and its definition."""

    encoding: str
    type: str
    definition: str
    language: str


class Recording(Protocol):
    """What a recording has: its topics, each with how it is written or why it cannot be read; and their messages."""

    name: str
    channels: dict[str, _Channel | str]

    def messages(self, topics: Collection[str]) -> Iterator[Message]: ...


def is_bag(path: Path) -> bool:
    """Whether a folder is a ROS 2 bag."""
    return (path / "metadata.yaml").is_file()


def open_recording(path: Path) -> Recording:
    """The recording in an MCAP file, or in a ROS 2 bag: its folder, or its file of sqlite3."""
    return _Bag(path) if path.is_dir() or path.suffix == ".db3" else _Mcap(path)


def read_topic(recording: Recording, topic: str) -> Topic | str:
    """The numbers of a topic, or why it has none."""
    channel = recording.channels[topic]
    if isinstance(channel, str):
        return channel
    first = [message.data for message in islice(recording.messages([topic]), FIRST)]
    if not first:
        return "a topic without messages"
    if channel.encoding == "json":
        return MessageObjects(first)
    try:
        with _parsing(recording.name):
            return MessageType(_full(channel.type), _definitions(channel), first)
    except UnknownType as error:
        return str(error)


class _Mcap:
    def __init__(self, path: Path) -> None:
        self.name, self._path = str(path), path
        with path.open("rb") as stream:
            stream.seek(-min(len(MAGIC), path.stat().st_size), os.SEEK_END)
            if stream.read() != MAGIC:
                raise TableError(
                    f"{path}: cut short: it does not end as MCAP does. What there is can be saved: "
                    "mcap recover FILE -o WHOLE"
                )
        with _parsing(self.name), path.open("rb") as stream:
            summary = self._reader(stream).get_summary()
            self._indexed = bool(summary and summary.chunk_indexes)
            if summary is not None and summary.channels:
                schemas, channels = summary.schemas, list(summary.channels.values())
            else:
                schemas, channels = _scan(stream)
        self.channels: dict[str, _Channel | str] = {}
        for channel in channels:
            how = _how(channel, schemas.get(channel.schema_id))
            if self.channels.setdefault(channel.topic, how) != how:
                self.channels[channel.topic] = "a topic with messages of several types"

    @staticmethod
    def _reader(stream: Any) -> Any:
        from mcap.reader import make_reader

        return make_reader(stream, validate_crcs=True)

    def messages(self, topics: Collection[str]) -> Iterator[Message]:
        """Without an index they come as they stand in the file: sorting them would need all of them in memory."""
        with _parsing(self.name), self._path.open("rb") as stream:
            messages = self._reader(stream).iter_messages(topics, log_time_order=self._indexed)
            for _, channel, message in messages:
                yield Message(message.log_time, channel.topic, message.data)


class _Bag:
    def __init__(self, path: Path) -> None:
        self.name, self._path = str(path), path
        self.channels: dict[str, _Channel | str] = {}
        with _parsing(self.name), self._open() as reader:
            for one in reader.connections:
                how = _Channel("cdr", one.msgtype, one.msgdef.data, one.msgdef.format.name)
                if self.channels.setdefault(one.topic, how) != how:
                    self.channels[one.topic] = "a topic with messages of several types"

    def _open(self) -> Any:
        from rosbags.rosbag2 import Reader

        return Reader(self._path)

    def messages(self, topics: Collection[str]) -> Iterator[Message]:
        with _parsing(self.name), self._open() as reader:
            connections = [one for one in reader.connections if one.topic in topics]
            for connection, time, data in reader.messages(connections) if connections else ():
                yield Message(time, connection.topic, data)


def _scan(stream: Any) -> tuple[dict[int, Any], list[Any]]:
    """The schemas and channels of a file without a summary."""
    from mcap.records import Channel, Schema
    from mcap.stream_reader import StreamReader

    stream.seek(0)
    schemas, channels = {}, {}
    for record in StreamReader(stream).records:
        if isinstance(record, Schema):
            schemas[record.id] = record
        elif isinstance(record, Channel):
            channels[record.id] = record
    return schemas, list(channels.values())


def _how(channel: Any, schema: Any) -> _Channel | str:
    encoding = channel.message_encoding
    if encoding == "json":
        return _Channel("json", "", "", "")
    languages = {"ros2msg": "MSG", "ros2idl": "IDL", "omgidl": "IDL"}
    if encoding == "cdr" and schema is not None and schema.encoding in languages:
        return _Channel("cdr", schema.name, schema.data.decode(), languages[schema.encoding])
    if encoding == "cdr":
        return "a topic without a definition of its messages"
    return f"messages written as {encoding or 'unknown'}, not as cdr (ROS 2) or json"


def _full(name: str) -> str:
    """The name of a type in three parts: std_msgs/Header is std_msgs/msg/Header."""
    package, *_, own = name.split("/")
    return name if name.count("/") == 2 else f"{package}/msg/{own}"


def _definitions(channel: _Channel) -> dict[str, Any]:
    """The fields of a channel's type and of those it is made of. Old bags have no definitions: theirs are ROS's own."""
    from rosbags.typesys import Stores, TypesysError, get_types_from_idl, get_types_from_msg, get_typestore

    known: dict[str, Any] = dict(get_typestore(Stores.LATEST).fielddefs)
    try:
        if channel.language == "MSG":
            known |= get_types_from_msg(channel.definition, _full(channel.type))
        elif channel.language == "IDL":
            known |= get_types_from_idl(channel.definition)
    except (TypesysError, RecursionError) as error:
        raise UnknownType("messages whose definition cannot be read") from error
    return known


@contextmanager
def _parsing(name: str) -> Iterator[None]:
    """Whatever the readers of foreign files raise becomes a ``TableError``."""
    try:
        yield
    except (TableError, UnknownType, GeneratorExit, MemoryError, FileNotFoundError, PermissionError):
        raise
    except ImportError as error:
        raise TableError(f"{name}: MCAP files and ROS 2 bags need pip install 'emphatic[mcap]'") from error
    except Exception as error:  # these readers raise whatever their parts do
        reason = " ".join(f"{type(error).__name__}: {error}".split())[:200].rstrip(".")
        raise TableError(f"{name}: damaged or cut short ({reason}). Record or fetch it again, whole.") from None
