"""Robot logs, written by the libraries that write them elsewhere."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("rosbags", reason="needs pip install 'emphatic[mcap]'")
pytest.importorskip("mcap", reason="needs pip install 'emphatic[mcap]'")

from mcap.writer import CompressionType, Writer
from rosbags.rosbag2 import StoragePlugin
from rosbags.rosbag2 import Writer as BagWriter
from rosbags.typesys import Stores, get_types_from_msg, get_typestore

__all__ = ["START", "STORE", "Sent", "message", "write_bag", "write_mcap"]

START = 1_700_000_000_000_000_000
STORE = get_typestore(Stores.ROS2_HUMBLE)
#: What no standard message has: numbers of every size behind a text, small and large arrays, sequences of each kind.
OWN = """string label
bool on
int8 small
uint16[3] counts
float64[20] many
float32 half
geometry_msgs/Point[2] corners
geometry_msgs/Point[] path
string[] words
float64[] sizes
uint8[] blob
builtin_interfaces/Duration age
int64 last
"""
STORE.register(get_types_from_msg(OWN, "robot_msgs/msg/Own"))

#: When, on which topic, of which type, and the message.
Sent = tuple[int, str, str, Any]


def message(kind: str, **fields: Any) -> Any:
    """A message of this type; fields that are not given are 0, empty or such messages."""

    def default(desc: Any) -> Any:
        node, what = int(desc[0]), desc[1]
        if node == 1:
            return "" if what[0] == "string" else False if what[0] == "bool" else 0
        if node == 2:
            return message(what)
        one, size = what
        count = size if node == 3 else 0
        if int(one[0]) == 1 and one[1][0] != "string":
            return np.zeros(count, one[1][0])
        return [default(one) for _ in range(count)]

    definition = STORE.fielddefs[kind][1]
    return STORE.types[kind](**{name: fields.get(name, default(desc)) for name, desc in definition})


def write_mcap(path: Path, sent: Iterable[Sent], chunk: int = 2000, **options: Any) -> Path:
    """An MCAP file of ROS 2 messages."""
    with path.open("wb") as stream:
        writer = Writer(stream, chunk, CompressionType.ZSTD, **options)
        writer.start("ros2", "tests")
        schemas: dict[str, int] = {}
        channels: dict[str, int] = {}
        for time, topic, kind, content in sent:
            if kind not in schemas:
                text = STORE.generate_msgdef(kind, ros_version=2)[0]
                schemas[kind] = writer.register_schema(kind, "ros2msg", text.encode())
            if topic not in channels:
                channels[topic] = writer.register_channel(topic, "cdr", schemas[kind])
            data = content if isinstance(content, bytes) else bytes(STORE.serialize_cdr(content, kind))
            writer.add_message(channels[topic], time, data, time)
        writer.finish()
    return path


def write_bag(path: Path, sent: Iterable[Sent], storage: StoragePlugin = StoragePlugin.SQLITE3) -> Path:
    """The folder of a ROS 2 bag."""
    with BagWriter(path, version=9, storage_plugin=storage) as writer:
        connections: dict[str, Any] = {}
        for time, topic, kind, content in sent:
            if topic not in connections:
                connections[topic] = writer.add_connection(topic, kind, typestore=STORE)
            writer.write(connections[topic], time, STORE.serialize_cdr(content, kind))
    return path
