"""Robot logs: the same rows from MCAP and ROS 2 bags, joined by time; what is left out; bad files."""

from __future__ import annotations

import gc
import json
import sys
import tracemalloc
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from emphatic.nexting.tables import Clock, TableError, open_table
from emphatic.nexting.tables.robot_logs import MessageType, UnknownType
from tests.support import processes
from tests.support.robots import START, Sent, message, write_bag, write_mcap

N = 300
MS = 1_000_000


def drive() -> Iterator[Sent]:
    """A pose at 100 Hz; joints at 25 Hz, 3 ms later; a message of its own kind at 20 Hz, at the time of a pose."""
    for i in range(N):
        time, x = START + 10 * MS * i, float(np.sin(i / 9))
        pose = message("geometry_msgs/msg/Pose", position=message("geometry_msgs/msg/Point", x=x, y=2.0 * i))
        yield time, "/pose", "geometry_msgs/msg/Pose", pose
        if i % 5 == 0:
            own = message(
                "robot_msgs/msg/Own", label="x" * (i % 7), on=i % 2 == 0, small=-3, half=0.5, last=i - 7,
                counts=np.arange(3, dtype=np.uint16) + i, path=[message("geometry_msgs/msg/Point")] * (i % 3),
                corners=[message("geometry_msgs/msg/Point", x=1.0 * i), message("geometry_msgs/msg/Point", z=2.0)],
                words=["a", "bb"], sizes=np.arange(i % 2 + 1.0), blob=np.arange(3, dtype=np.uint8),
            )  # fmt: skip
            yield time, "/own", "robot_msgs/msg/Own", own
        if i % 4 == 0:
            joints = message("sensor_msgs/msg/JointState", name=["a", "b"], position=np.array([1.0 * i, -2.0 * i]))
            yield time + 3 * MS, "/joints", "sensor_msgs/msg/JointState", joints


def number_at(time: int, topic: str, x: float) -> Sent:
    kind = "std_msgs/msg/Float64"
    return time, topic, kind, message(kind, data=float(x))


def rows(table: Any, block: int = 65536) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    blocks = list(table.blocks(block))
    return np.concatenate([one.time for one in blocks]), np.concatenate([one.values for one in blocks])


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    from rosbags.rosbag2 import StoragePlugin

    folder = tmp_path_factory.mktemp("logs")
    return {
        "mcap": write_mcap(folder / "robot.mcap", drive()),
        "sqlite3": (bag := write_bag(folder / "bag", drive())),
        "db3": bag / "bag.db3",
        "bag of mcap": write_bag(folder / "other", drive(), StoragePlugin.MCAP),
        "no index": write_mcap(folder / "plain.mcap", drive(), use_chunking=False, use_statistics=False),
        "no summary": write_mcap(
            folder / "stream.mcap", drive(), use_chunking=False, use_statistics=False, repeat_channels=False,
            repeat_schemas=False, use_summary_offsets=False,
        ),
    }  # fmt: skip


@pytest.mark.parametrize("kind", ["mcap", "sqlite3", "db3", "bag of mcap", "no index", "no summary"])
def test_the_rows_are_the_messages_joined_by_time(logs: dict[str, Path], kind: str) -> None:
    table = open_table(logs[kind])
    assert table.time == "log_time"
    assert table.dated
    assert table.zone == "UTC"
    time, values = rows(table)
    # The join again, as anyone would write it: the last message of each topic at or before each time.
    sent = list(drive())
    moments = sorted({when for when, *_ in sent})
    assert np.abs(time - np.array(moments) / 1e9).max() < 1e-6
    taken: dict[str, tuple[str, Any]] = {
        "/pose.position.x": ("/pose", lambda m: m.position.x),
        "/pose.position.y": ("/pose", lambda m: m.position.y),
        "/joints.position[1]": ("/joints", lambda m: m.position[1]),
        "/own.on": ("/own", lambda m: m.on),
        "/own.counts[2]": ("/own", lambda m: m.counts[2]),
        "/own.corners[0].x": ("/own", lambda m: m.corners[0].x),
        "/own.corners[1].z": ("/own", lambda m: m.corners[1].z),
        "/own.blob[2]": ("/own", lambda m: m.blob[2]),
        "/own.last": ("/own", lambda m: m.last),
    }
    for name, (topic, read) in taken.items():
        wanted = []
        for moment in moments:
            before = [m for when, of, _, m in sent if of == topic and when <= moment]
            wanted.append(float(read(before[-1])) if before else np.nan)
        np.testing.assert_array_equal(values[:, table.names.index(name)], wanted, err_msg=name)
    assert np.isnan(values[0, table.names.index("/joints.position[0]")])
    for cut in (64, 97):
        np.testing.assert_array_equal(rows(open_table(logs[kind]), cut)[1], values)
    later = np.concatenate([block.values for block in table.blocks(50, 123)])
    np.testing.assert_array_equal(later, values[123:])


def test_what_is_left_out_is_said(logs: dict[str, Path]) -> None:
    for kind in ("mcap", "sqlite3"):
        ignored = open_table(logs[kind]).ignored
        assert ignored["/joints.header.stamp"] == "a time stamp: rows have the time of the log"
        assert ignored["/joints.name"] == ignored["/own.label"] == ignored["/own.words"] == "text"
        assert ignored["/own.many"] == "an array of 20 values"
        assert ignored["/own.sizes"] == "an array whose length varies"
        assert ignored["/own.path"] == "a list of messages"
        assert ignored["/joints.effort"] == "an array without values"


def test_topics_are_chosen(logs: dict[str, Path]) -> None:
    for topics in ("/joints", ["/joints"]):
        table = open_table(logs["mcap"], topics=topics)
        assert {name.split(".")[0] for name in table.names} == {"/joints"}
        assert len(rows(table)[0]) == N // 4  # the times of other topics are no rows
    with pytest.raises(TableError, match=r"no topic '/joint'\. Did you mean '/joints'\? It has: /joints, /own, /pose"):
        open_table(logs["mcap"], topics="/joint")
    with pytest.raises(ValueError, match="'topics' parameter of open_table must name topics"):
        open_table(logs["mcap"], topics=[])
    with pytest.raises(ValueError, match="be left out for other than a robot log"):
        open_table({"x": [1.0]}, topics="/pose")


def test_messages_at_one_time_are_one_row_unless_a_topic_has_several(tmp_path: Path) -> None:
    messages = [(START, "/a", 1), (START, "/b", 2), (START, "/a", 3), (START + 1000, "/b", 4)]
    sent = [number_at(time, topic, x) for time, topic, x in messages]
    values = rows(open_table(write_mcap(tmp_path / "r.mcap", sent)))[1]
    assert values.tolist() == [[1, 2], [3, 2], [3, 4]]


def test_chunks_that_overlap_are_read_in_the_order_of_time(tmp_path: Path) -> None:
    order = np.random.default_rng(0).permutation(10_000).tolist()
    path = write_mcap(tmp_path / "r.mcap", [number_at(START + i * MS, "/a", i) for i in order], 500)
    times, values = rows(open_table(path))
    assert values[:, 0].tolist() == list(range(10_000))
    np.testing.assert_allclose(times - START / 1e9, np.arange(10_000) / 1e3, atol=1e-6)


def test_the_step_of_rows_in_bursts_is_the_mean_step(tmp_path: Path) -> None:
    """Four topics within 3 ms, every 20 ms: two seconds are 400 rows, not 2,000."""
    sent = [number_at(START + (20 * i + j) * MS, f"/{j}", i) for i in range(100) for j in range(4)]
    clock = open_table(write_mcap(tmp_path / "r.mcap", sent)).clock()
    assert clock is not None
    assert clock.step == pytest.approx(0.005, rel=0.02)
    assert Clock(np.arange(9.0), joined=True).step == 1.0
    assert np.isnan(Clock(np.array([1.0]), joined=True).step)


TYPES = ("bool", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64", "float32", "float64")


@given(st.data())
def test_numbers_are_those_that_were_written(data: st.DataObject) -> None:
    """Any type of message, in either byte order, against the serialiser of ``rosbags``."""
    from rosbags.interfaces import Nodetype as Node

    fields: list[Any] = []
    values: dict[str, Any] = {}
    wanted: list[float] = []
    for i in range(data.draw(st.integers(0, 8))):
        kind = data.draw(st.sampled_from(("one", "array", "sequence", "text", "texts", "point", "points")))
        form = data.draw(st.sampled_from(TYPES))
        size = data.draw(st.integers(1, 4))
        rng = np.random.default_rng(data.draw(st.integers(0, 99)))
        numbers = (rng.random(size) * 100).astype(form)
        words = ["é" * int(n) for n in rng.integers(0, 6, size)]
        points = [message("geometry_msgs/msg/Point", x=x) for x in rng.random(size)]
        name, base, point = f"f{i}", (Node.BASE, (form, 0)), (Node.NAME, "geometry_msgs/msg/Point")
        choices: dict[str, tuple[Any, Any, Any]] = {
            "one": (base, numbers[0].item(), [numbers[0]]),
            "array": ((Node.ARRAY, (base, size)), numbers, numbers),
            "sequence": ((Node.SEQUENCE, (base, 0)), numbers, numbers),
            "text": ((Node.BASE, ("string", 0)), words[0], []),
            "texts": ((Node.SEQUENCE, ((Node.BASE, ("string", 0)), 0)), words, []),
            "point": (point, points[0], [points[0].x, 0, 0]),
            "points": ((Node.SEQUENCE, (point, 0)), points, []),
        }
        desc, value, numbers_of = choices[kind]
        fields.append((name, desc))
        values[name] = value
        wanted += [float(number) for number in numbers_of]
    from rosbags.typesys import Stores, get_typestore

    store = get_typestore(Stores.ROS2_HUMBLE)
    store.register({"my/msg/Any": ([], fields)})
    given = store.types["my/msg/Any"](**values)
    for little in (False, True):
        written = bytes(store.serialize_cdr(given, "my/msg/Any", little_endian=little))
        assert MessageType("my/msg/Any", store.fielddefs, [written]).read(written) == wanted
        kind_of = MessageType("my/msg/Any", store.fielddefs, [written])
        for cut in range(0, len(written), 3):
            numbers_read = kind_of.read(written[:cut])
            assert numbers_read == wanted or np.isnan(numbers_read).tolist() == [True] * len(
                wanted
            )  # padding may be cut


def test_types_that_cannot_be_read_are_left_out_and_bounded() -> None:
    number: Any = (1, ("float64", 0))
    for types, why in (
        ({"a": ([], [("x", (1, ("wstring", 0)))])}, "of type wstring"),
        ({"a": ([], [("x", (2, "b"))])}, "unknown type, b"),
        ({"a": ([], [("x", (2, "a"))])}, "nested too deeply"),
        ({"a": ([], [("x", (3, ((2, "a"), 16)))])}, "more than 10,000 fields|nested too deeply"),
    ):
        with pytest.raises(UnknownType, match=why):
            MessageType("a", types, [])
    huge: dict[str, Any] = {"a": ([], [("x", (3, (number, 2**40))), ("y", number)])}
    assert MessageType("a", huge, [b"\0\1\0\0"]).columns == ["y"]
    nothing: dict[str, Any] = {"a": ([], [("x", (4, ((2, "b"), 0)))]), "b": ([], [("x", (3, (number, 0)))])}
    assert MessageType("a", nothing, [b"\0\1\0\0\xff\xff\xff\xff"]).columns == []  # and does not count to 2**32


def test_messages_that_are_no_messages_are_missing(tmp_path: Path) -> None:
    kind = "geometry_msgs/msg/Point"
    good = message(kind, x=1.0)
    bad = [b"", b"\0\1\0\0", b"\0\7\0\0" + b"\0" * 24, b"\0\1\0\0" + b"\0" * 99]
    sent = [(START + i * MS, "/p", kind, content) for i, content in enumerate([good, *bad, good])]
    (block,) = open_table(write_mcap(tmp_path / "r.mcap", sent)).blocks()
    assert block.values[:, 0].tolist()[::5] == [1.0, 1.0]
    assert np.isnan(block.values[1:5]).all()


def test_other_encodings_and_topics_without_messages_are_said(tmp_path: Path) -> None:
    from mcap.writer import Writer

    path = tmp_path / "r.mcap"
    with path.open("wb") as stream:
        writer = Writer(stream)
        writer.start("", "")
        schema = writer.register_schema("std_msgs/msg/String", "ros2msg", b"string data")
        number = writer.register_schema("std_msgs/msg/UInt8", "ros2msg", b"uint8 data")
        bad = writer.register_schema("std_msgs/msg/Odd", "ros2msg", b"?? this is no definition")
        channels = [
            writer.register_channel("/number", "cdr", number), writer.register_channel("/proto", "protobuf", 0),
            writer.register_channel("/none", "cdr", schema), writer.register_channel("/cdr", "cdr", 0),
            writer.register_channel("/text", "cdr", schema), writer.register_channel("/odd", "cdr", bad),
            writer.register_channel("/two", "json", 0), writer.register_channel("/two", "cdr", schema),
        ]  # fmt: skip
        for i in range(9):
            for channel in channels[:2] + channels[4:]:
                writer.add_message(channel, START + i * MS, b"\0\1\0\0\7", 0)
        writer.finish()
    table = open_table(path)
    assert table.names == ("/number.data",)
    assert table.ignored == {
        "/proto": "messages written as protobuf, not as cdr (ROS 2)", "/none": "a topic without messages",
        "/cdr": "a topic without a definition of its messages", "/text.data": "text",
        "/odd": "messages whose definition cannot be read", "/two": "a topic with messages of several types",
    }  # fmt: skip
    with pytest.raises(TableError, match=r"no topic has numbers.*/text\.data: text"):
        open_table(path, topics="/text")


def test_the_command_reads_robot_logs(logs: dict[str, Path], tmp_path: Path) -> None:
    out, few = tmp_path / "out", tmp_path / "few.toml"
    few.write_text("rate = 0.3\nfeatures = [{kind = 'bias'}, {kind = 'soft_bins', of = '*', bins = 5}]\n")
    done = processes.run(
        processes.COMMAND, "nexting", logs["mcap"], "--out", out, "--topics", "/pose", "--predict",
        "/pose.position.x", "--horizons", "20ms,100ms", "--config", few,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr.decode()
    assert b"Time: 'log_time'" in done.stdout
    summary = json.loads((out / "summary.json").read_text())
    assert [score["horizon"] for score in summary[1:]] == ["20ms", "20ms", "100ms", "100ms"]
    assert summary[1]["variance_explained"] > 0.5
    assert summary[0]["reading"]["rows"] == N


def bad_files(folder: Path, whole: bytes) -> dict[str, tuple[Path, str]]:
    folder.mkdir()
    made = {}
    for name, content, why in (
        ("short.mcap", whole[: len(whole) // 2], "incomplete"),
        ("begun.mcap", whole[:8], "damaged or incomplete"),
        ("magic.mcap", b"\x89MCAP1\r\n" + whole[8:], "not an MCAP file"),
        ("empty.mcap", b"", "the file is empty"),
        ("text.mcap", b"time,x\n1,2\n", "not an MCAP file"),
        ("zeros.mcap", whole[:8] + bytes(500) + whole[-8:], "damaged"),
        ("ros1.bag", b"#ROSBAG V2.0\n" + bytes(99), "a binary file"),
    ):
        (folder / name).write_bytes(content)
        made[name] = (folder / name, why)
    (folder / "folder").mkdir()
    made["folder"] = (folder / "folder", "this folder is not a ROS 2 bag")
    for name, text in (("yaml", "a: [b"), ("other", "a: b"), ("lost", "rosbag2_bagfile_information: {version: 9}")):
        (folder / name).mkdir()
        (folder / name / "metadata.yaml").write_text(text)
        made[name] = (folder / name, "damaged")
    return made


def test_bad_files_are_refused_in_one_line(logs: dict[str, Path], tmp_path: Path) -> None:
    for path, why in bad_files(tmp_path / "bad", logs["mcap"].read_bytes()).values():
        with pytest.raises(TableError, match=why) as error:
            list(open_table(path).blocks())
        assert "\n" not in str(error.value)
    done = processes.run(processes.COMMAND, "nexting", tmp_path / "bad" / "short.mcap", "--quiet")
    assert (done.returncode, done.stdout) == (2, b"")
    assert done.stderr.startswith(b"Error: ")
    assert done.stderr.count(b"\n") == 1
    (tmp_path / "x.csv").write_text("time,x\n1,2\n3,4\n")
    with pytest.raises(TableError, match="it has no topics"):
        open_table(tmp_path / "x.csv", topics="/pose")


def test_damaged_files_never_do_worse_than_a_table_error(logs: dict[str, Path], tmp_path: Path) -> None:
    rng = np.random.default_rng(5)
    whole = logs["mcap"].read_bytes()
    path = tmp_path / "damaged.mcap"
    for _ in range(60):
        data = bytearray(whole)
        for at in rng.integers(0, len(data), 3):
            data[at] = rng.integers(256)
        path.write_bytes(data)
        _read_or_refuse(path)
    bag = logs["sqlite3"]
    (tmp_path / "bag").mkdir()
    for name in ("metadata.yaml", "bag.db3"):
        (tmp_path / "bag" / name).write_bytes((bag / name).read_bytes())
    store = (bag / "bag.db3").read_bytes()
    for _ in range(20):
        data = bytearray(store)
        for at in rng.integers(0, len(data), 30):
            data[at] = rng.integers(256)
        (tmp_path / "bag" / "bag.db3").write_bytes(data[: rng.integers(len(data))] if rng.random() < 0.5 else data)
        _read_or_refuse(tmp_path / "bag")


def _read_or_refuse(path: Path) -> None:
    with suppress(TableError):
        rows(open_table(path))


def test_the_extra_is_named_where_it_is_missing(logs: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    for package, kind in (("mcap.reader", "mcap"), ("rosbags.rosbag2", "sqlite3"), ("rosbags.typesys", "mcap")):
        with monkeypatch.context() as patched:
            patched.setitem(sys.modules, package, None)
            with pytest.raises(TableError, match=r"need pip install 'emphatic\[mcap\]'"):
                open_table(logs[kind])


@pytest.mark.long
def test_memory_does_not_grow_with_the_log(tmp_path: Path) -> None:
    peaks = []
    for length in (20_000, 60_000):
        kind = "sensor_msgs/msg/JointState"
        content = message(kind, name=["t" * 200], position=np.array([1.0]))
        sent = ((START + i * MS, "/a", kind, content) for i in range(length))
        path = write_mcap(tmp_path / f"{length}.mcap", sent, 1 << 16)
        table = open_table(path)
        gc.collect()  # or the peak depends on when the collector runs next
        tracemalloc.start()
        count = sum(len(block) for block in table.blocks(1000))
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
        assert count == length
    assert peaks[1] < 1.5 * peaks[0]
