"""Robot logs, MCAP files and ROS 2 bags, as tables: a column for each number in a topic's messages, joined by time.

MCAP is read by ``mcap``, a bag's folder by ``rosbags``, and both a part at a time. What a hostile file makes these
raise becomes one ``TableError``.

A message is read without building objects, and without running code made from a file's definitions: text and arrays
that are not used are skipped. The layout is OMG's Common Data Representation (CDR) as ROS 2 writes it (XCDR1): four
bytes with the byte order; then each number at a multiple of its size, counted from there; a text or a sequence begins
with its length in four bytes.
"""

from __future__ import annotations

import math
import struct
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from itertools import compress, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from emphatic.common.names import suggestion
from emphatic.nexting.tables.fields import PLAIN
from emphatic.nexting.tables.files import DroppedRows, File, Format, OpenOptions
from emphatic.nexting.tables.table import TableError

if TYPE_CHECKING:
    from mcap.reader import McapReader
    from mcap.records import Channel as McapChannel
    from mcap.records import Schema as McapSchema
    from rosbags.rosbag2 import Reader

__all__ = ["MCAP", "ROS2_BAG", "MessageType", "RobotLog", "UnknownType"]

#: The first bytes of an MCAP file, and its last.
MAGIC = b"\x89MCAP0\r\n"
#: The column of times: when messages were logged, which all messages have, and not the stamps in their headers.
TIME = "log_time"
#: Rows of a batch at most, and values.
_ROWS, _CELLS = 1 << 13, 1 << 20
#: The messages of a topic that decide on the lengths of arrays.
_LOOK = 100
#: The longest array that becomes columns.
LONGEST = 16
#: Why a field is no column.
STAMP = "a time stamp: rows have the time of the log"
TEXT = "text"
#: The types of numbers in ROS 2, as ``struct`` writes them.
_FORMATS = {"bool": "?", "byte": "B", "char": "B", "octet": "B", "int8": "b", "uint8": "B", "int16": "h", "uint16": "H"}
_FORMATS |= {"int32": "i", "uint32": "I", "int64": "q", "uint64": "Q", "float32": "f", "float64": "d"}
_BASE, _NAME, _ARRAY = 1, 2, 3  # rosbags.interfaces.Nodetype; the fourth is a sequence
_EMPTY = "structure_needs_at_least_one_member"  # the single byte of a message without fields
#: A definition with more fields, or nested more deeply, is a hostile one.
_MOST_FIELDS, _DEEPEST = 10_000, 50


class RobotLog:
    """The messages of some topics, as rows: one for each time at which a message of any of them was logged.

    A row has the last value of every column, NaN before its first. Messages of several topics at one time are one
    row; if a topic has several at one time, each begins a row, so that none is lost. ``rare`` has the topics and fields
    that are no columns, and why.
    """

    style = PLAIN
    rows = None
    joined = True

    def __init__(self, path: Path, topics: Collection[str] | None = None) -> None:
        self.dropped = DroppedRows()
        self._recording = open_recording(path)
        known = sorted(self._recording.channels)
        for name in topics or ():
            if name not in known:
                hint = suggestion(name, known)
                raise TableError(f"{path}: there is no topic {name!r}.{hint} It has: {', '.join(known)}.")
        self.rare: dict[str, str] = {}
        self._topics: dict[str, MessageType] = {}
        self._place: dict[str, slice] = {}
        self._names: list[str] = []  # all columns but the time
        for name in known if topics is None else dict.fromkeys(topics):
            topic = read_topic(self._recording, name)
            if isinstance(topic, str):
                self.rare[name] = topic
                continue
            self.rare |= {f"{name}.{field}": why for field, why in topic.left_out.items()}
            if topic.columns:
                self._place[name] = slice(len(self._names), len(self._names) + len(topic.columns))
                self._names += [f"{name}.{field}" for field in topic.columns]
                self._topics[name] = topic
        if not self._topics:
            why = "; ".join(f"{name}: {reason}" for name, reason in list(self.rare.items())[:8])
            raise TableError(f"{path}: no topic has numbers, so there is no signal to learn from. {why}")
        self._batch = max(64, min(_ROWS, _CELLS // len(self._names)))  # rows of a batch: thousands of columns need room

    def look(self) -> pa.Table:
        """The first rows, with all columns."""
        return pa.Table.from_batches([next(self.batches((TIME, *self._names), 0))])

    def batches(self, names: tuple[str, ...], start: int) -> Iterator[pa.RecordBatch]:
        """All rows from ``start`` on. Only topics that have a column among ``names`` are decoded."""
        wanted = {name for name, at in self._place.items() if not set(names).isdisjoint(self._names[at])}
        latest = np.full(len(self._names), np.nan)
        grid, times = np.empty((self._batch, len(latest))), np.empty(self._batch, np.int64)
        rows, row_time, in_row = 0, -1, set[str]()
        for time, name, data in self._recording.messages(list(self._topics)):
            if time != row_time or name in in_row:
                if rows == self._batch:
                    yield from self._rows(names, grid[start:rows], times[start:rows])
                    start, rows = max(0, start - rows), 0
                if not 0 <= time < 1 << 63:  # MCAP's times are unsigned, Arrow's are not
                    raise TableError(f"{self._recording.name}: a message of {name!r} has an impossible time, {time}.")
                grid[rows], times[rows], row_time = latest, time, time
                in_row.clear()
                rows += 1
            in_row.add(name)
            if name in wanted:
                at = self._place[name]
                latest[at] = grid[rows - 1, at] = self._topics[name].read(data)
        yield from self._rows(names, grid[start:rows], times[start:rows])

    def _rows(
        self, names: tuple[str, ...], grid: NDArray[np.float64], times: NDArray[np.int64]
    ) -> Iterator[pa.RecordBatch]:
        """The rows of one batch; none of an empty one."""
        if len(times):
            columns = {name: grid[:, j] for j, name in enumerate(self._names)}
            stamps = pa.array(times.copy()).cast(pa.timestamp("ns", "UTC"))
            arrays = [stamps if name == TIME else pa.array(columns[name].copy()) for name in names]
            yield pa.record_batch(arrays, list(names))


def _is_mcap(file: File) -> bool:
    is_mcap = file.start.startswith(MAGIC)
    if not is_mcap and file.path.suffix == ".mcap":
        raise TableError(f"{file.name}: this is not an MCAP file, although its name ends in .mcap.")
    return is_mcap


def _is_bag(file: File) -> bool:
    """A folder with its metadata, or the database in such a folder."""
    is_database = file.start.startswith(b"SQLite") and file.path.suffix == ".db3"
    return is_database or (file.path / "metadata.yaml").is_file()


def _open_log(file: File, options: OpenOptions) -> RobotLog:
    return RobotLog(file.path, options.topics)


MCAP = Format("MCAP", _is_mcap, _open_log, topics=True)
ROS2_BAG = Format("ROS 2 bag", _is_bag, _open_log, topics=True)


# ---------------------------------------------------------------------- recordings


class Channel(NamedTuple):
    """How the messages of a topic are written: the name of their type, and its definition in a language."""

    type: str
    definition: str
    language: str


def open_recording(path: Path) -> _Mcap | _Bag:
    """The recording in an MCAP file, or in a ROS 2 bag: its folder, or its file of sqlite3."""
    return _Bag(path) if path.is_dir() or path.suffix == ".db3" else _Mcap(path)


def read_topic(recording: _Mcap | _Bag, topic: str) -> MessageType | str:
    """The numbers of a topic, or why it has none."""
    channel = recording.channels[topic]
    if isinstance(channel, str):
        return channel
    messages = [data for _, _, data in islice(recording.messages([topic]), _LOOK)]
    if not messages:
        return "a topic without messages"
    try:
        with _parsing(recording.name):
            return MessageType(_full_name(channel.type), _definitions(channel), messages)
    except UnknownType as error:
        return str(error)


class _Mcap:
    def __init__(self, path: Path) -> None:
        self.name, self._path = str(path), path
        with _parsing(self.name), path.open("rb") as stream:
            summary = self._reader(stream).get_summary()
            self._indexed = bool(summary and summary.chunk_indexes)
            if summary is not None and summary.channels:
                known = [(summary.schemas.get(channel.schema_id), channel) for channel in summary.channels.values()]
            else:
                known = list({message[1].id: message[:2] for message in self._reader(stream).iter_messages()}.values())
        self.channels: dict[str, Channel | str] = {}
        for schema, channel in known:
            encoding = _encoding(channel, schema)
            if self.channels.setdefault(channel.topic, encoding) != encoding:
                self.channels[channel.topic] = "a topic with messages of several types"

    @staticmethod
    def _reader(stream: BinaryIO) -> McapReader:
        from mcap.reader import make_reader

        return make_reader(stream, validate_crcs=True)

    def messages(self, topics: Collection[str]) -> Iterator[tuple[int, str, bytes]]:
        """Without an index they come as they stand in the file: sorting them would need all of them in memory."""
        with _parsing(self.name), self._path.open("rb") as stream:
            messages = self._reader(stream).iter_messages(topics, log_time_order=self._indexed)
            for _, channel, message in messages:
                yield message.log_time, channel.topic, message.data


class _Bag:
    def __init__(self, path: Path) -> None:
        self.name, self._path = str(path), path
        self.channels: dict[str, Channel | str] = {}
        with _parsing(self.name), self._open() as reader:
            for connection in reader.connections:
                definition = connection.msgdef
                channel = Channel(connection.msgtype, definition.data, definition.format.name)
                if self.channels.setdefault(connection.topic, channel) != channel:
                    self.channels[connection.topic] = "a topic with messages of several types"

    def _open(self) -> Reader:
        from rosbags.rosbag2 import Reader

        return Reader(self._path)

    def messages(self, topics: Collection[str]) -> Iterator[tuple[int, str, bytes]]:
        with _parsing(self.name), self._open() as reader:
            connections = [connection for connection in reader.connections if connection.topic in topics]
            for connection, time, data in reader.messages(connections) if connections else ():
                yield time, connection.topic, data


def _encoding(channel: McapChannel, schema: McapSchema | None) -> Channel | str:
    """How the messages of a topic are written, or why they cannot be read."""
    encoding = channel.message_encoding
    languages = {"ros2msg": "MSG", "ros2idl": "IDL", "omgidl": "IDL"}
    if encoding == "cdr" and schema is not None and schema.encoding in languages:
        return Channel(schema.name, schema.data.decode(), languages[schema.encoding])
    if encoding == "cdr":
        return "a topic without a definition of its messages"
    return f"messages written as {encoding or 'unknown'}, not as cdr (ROS 2)"


def _full_name(name: str) -> str:
    """The name of a type with its package and ``msg``: std_msgs/Header is std_msgs/msg/Header."""
    package, *_, message = name.split("/")
    return name if name.count("/") == 2 else f"{package}/msg/{message}"


def _definitions(channel: Channel) -> dict[str, Any]:
    """The fields of a channel's type and of the types in it. Old bags have no definitions: there ROS's apply."""
    from rosbags.typesys import Stores, TypesysError, get_types_from_idl, get_types_from_msg, get_typestore

    known: dict[str, Any] = dict(get_typestore(Stores.LATEST).fielddefs)
    try:
        if channel.language == "MSG":
            known |= get_types_from_msg(channel.definition, _full_name(channel.type))
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
        raise TableError(
            f"{name}: the file is damaged or incomplete ({reason}). Repair it (mcap recover), or record it again."
        ) from None


# ---------------------------------------------------------------------- messages of ROS 2


class UnknownType(ValueError):
    """A type of message that cannot be read, and why."""


def usual_length(lengths: Counter[int]) -> tuple[int, str]:
    """The length that more than half of the arrays have; or 0, and why the array is left out."""
    length, count = lengths.most_common(1)[0] if lengths else (0, 1)
    if 2 * count <= lengths.total():
        return 0, "an array whose length varies"
    if length > LONGEST:
        return 0, f"an array of {length:,} values"
    return length, "" if length else "an array without values"


class _Numbers:
    """Consecutive numbers; those without a path are read and dropped."""

    def __init__(self) -> None:
        self.formats = ""
        self.paths: list[str | None] = []
        self._layouts: dict[tuple[str, int], struct.Struct] = {}
        self._all = True

    @property
    def columns(self) -> list[str]:
        return [path for path in self.paths if path is not None]

    def read(self, data: bytes, at: int, order: str, values: list[float]) -> int:
        layout = self._layouts.get((order, at % 8)) or self._lay_out(order, at % 8)
        numbers = layout.unpack_from(data, 4 + at)
        values.extend(numbers if self._all else compress(numbers, self.paths))
        return at + layout.size

    def _lay_out(self, order: str, start: int) -> struct.Struct:
        """With the gaps that these numbers have where they begin at ``start``, counted from a multiple of 8."""
        text, at = order, start
        for form in self.formats:
            size = struct.calcsize(f"={form}")
            text += "x" * (-at % size) + form
            at += -at % size + size
        self._all = None not in self.paths
        return self._layouts.setdefault((order, start), struct.Struct(text))


class _Array:
    """A sequence of numbers, or an array of ``count``: read if ``length`` is set, else skipped."""

    def __init__(self, path: str, form: str, count: int | None = None, keep: bool = True) -> None:
        self.path, self._form, self._count = path, form, count
        self._size = struct.calcsize(f"={form}")
        self.length = 0
        self.seen: Counter[int] | None = Counter() if keep else None

    @property
    def columns(self) -> list[str]:
        return [f"{self.path}[{i}]" for i in range(self.length)]

    def read(self, data: bytes, at: int, order: str, values: list[float]) -> int:
        count = self._count
        if count is None:
            at, count = _read_length(data, at, order)
        if self.seen is not None:
            self.seen[count] += 1
        if not count:
            values.extend([math.nan] * self.length)
            return at
        at += -at % self._size
        if self.length and count == self.length:
            values.extend(struct.unpack_from(f"{order}{count}{self._form}", data, 4 + at))
        else:
            values.extend([math.nan] * self.length)
        return _check_end(data, at + count * self._size)


class _Sequence:
    """Messages or texts that are skipped one by one: a sequence, or an array of ``count``."""

    columns: tuple[str, ...] = ()

    def __init__(self, steps: list[_Step], count: int | None) -> None:
        self._steps, self._count = steps, count

    def read(self, data: bytes, at: int, order: str, values: list[float]) -> int:
        count = self._count
        if count is None:
            at, count = _read_length(data, at, order)
        for _ in range(count):
            start = at
            for step in self._steps:
                at = step.read(data, at, order, [])
            if at == start:
                raise ValueError("messages without content")
        return at


_Step = _Numbers | _Array | _Sequence


class MessageType:
    """The numbers of one type of message: ``columns`` are their names, ``left_out`` other fields and the reasons.

    ``types`` has the fields of each type, as ``rosbags.typesys`` parses them. A sequence has the length that it has in
    more than half of the ``first`` messages, and is left out if there is no such length.
    """

    def __init__(self, name: str, types: Mapping[str, Any], first: Iterable[bytes]) -> None:
        self.left_out: dict[str, str] = {}
        self._types, self._fields = types, 0
        self._steps: list[_Step] = []
        self._plan(name, "", self._steps, 0)
        sequences = [step for step in self._steps if isinstance(step, _Array) and step.seen is not None]
        for data in first if sequences else ():
            self.read(data)
        for step in sequences:
            step.length, why = usual_length(step.seen or Counter())
            step.seen = None
            if why:
                self.left_out[step.path] = why
        self.columns = [column for step in self._steps for column in step.columns]

    def read(self, data: bytes) -> list[float]:
        """The numbers of a message; NaN for what cannot be read, such as an array that has another length."""
        values: list[float] = []
        try:
            if len(data) < 4 or data[0] != 0 or data[1] > 1:
                raise ValueError("not XCDR1")
            at = 0
            for step in self._steps:
                at = step.read(data, at, "><"[data[1]], values)
            if len(data) - 4 - at > 3:  # padding may follow, but no more fields
                raise ValueError("longer than its type")
        except (struct.error, ValueError):
            return [math.nan] * sum(len(step.columns) for step in self._steps)
        return values

    def _plan(self, name: str, path: str, steps: list[_Step], depth: int, keep: bool = True) -> None:
        """The steps that read a message of this type, whose fields begin with ``path``."""
        if name not in self._types:
            raise UnknownType(f"messages of an unknown type, {name}")
        if depth > _DEEPEST:
            raise UnknownType("messages nested too deeply")
        fields = self._types[name][1] or [(_EMPTY, (_BASE, ("uint8", 0)))]
        for field, (kind, what) in fields:
            here = f"{path}.{field}" if path else field
            if kind in (_BASE, _NAME):
                self._plan_element(kind, what, here, steps, depth, keep and field != _EMPTY)
                continue
            (element_kind, element), size = what
            count = size if kind == _ARRAY else None
            form = _FORMATS.get(element[0]) if element_kind == _BASE else None
            if count is not None and count <= LONGEST and keep:
                for i in range(count):
                    self._plan_element(element_kind, element, f"{here}[{i}]", steps, depth, keep)
            elif form is not None:
                self._count_field()
                steps.append(_Array(here, form, count, keep))
            else:
                inner: list[_Step] = []
                self._plan_element(element_kind, element, here, inner, depth, False)
                steps.append(_Sequence(inner, count))
                if keep:
                    self.left_out[here] = TEXT if element_kind == _BASE else "a list of messages"

    def _plan_element(self, kind: int, what: Any, path: str, steps: list[_Step], depth: int, keep: bool) -> None:
        self._count_field()
        if kind == _NAME:
            stamp = what == "builtin_interfaces/msg/Time"
            if stamp and keep:
                self.left_out[path] = STAMP
            self._plan(what, path, steps, depth + 1, keep and not stamp)
        elif what[0] == "string":
            steps.append(_Array(path, "B", keep=False))  # its bytes
            if keep:
                self.left_out[path] = TEXT
        elif what[0] in _FORMATS:
            numbers = steps[-1] if steps else None
            if not isinstance(numbers, _Numbers):
                numbers = _Numbers()
                steps.append(numbers)
            numbers.formats += _FORMATS[what[0]]
            numbers.paths.append(path if keep else None)
        else:
            raise UnknownType(f"messages with a field of type {what[0]}, which is not supported")

    def _count_field(self) -> None:
        self._fields += 1
        if self._fields > _MOST_FIELDS:
            raise UnknownType(f"messages of more than {_MOST_FIELDS:,} fields")


def _read_length(data: bytes, at: int, order: str) -> tuple[int, int]:
    at += -at % 4
    return at + 4, struct.unpack_from(f"{order}I", data, 4 + at)[0]


def _check_end(data: bytes, at: int) -> int:
    if 4 + at > len(data):
        raise ValueError("cut short")
    return at
