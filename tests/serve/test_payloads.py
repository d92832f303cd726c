"""Messages of devices as readings: names by topic and field, single values, nested fields, times."""

from __future__ import annotations

import json
from typing import Any

import pytest

from emphatic.nexting.serve.payloads import TimeStamps, TopicNames, flatten, name_fields, read_message
from emphatic.nexting.serve.service import Incoming
from emphatic.nexting.tables.table import Malformed


def named(topic: str, payload: Any, **options: Any) -> Any:
    body = payload if isinstance(payload, bytes) else json.dumps(payload).encode()
    names, stamps = TopicNames(options.pop("names", None)), options.pop("stamps", None) or TimeStamps(None)
    readings = [name_fields(incoming, topic, names, stamps, **options).reading for incoming in read_message(body)]
    return readings[0] if len(readings) == 1 else readings


def test_two_devices_are_two_signals() -> None:
    kitchen, bath = (named(f"home/{room}", {"temperature": 21.5}) for room in ("kitchen", "bath"))
    assert (list(kitchen), list(bath)) == (["home/kitchen.temperature"], ["home/bath.temperature"])


@pytest.mark.parametrize(
    ("payload", "value"),
    [
        (b"21.5", 21.5),
        (b" -3 \n", -3),
        (b"on", "on"),
        (b"OFF", "OFF"),
        (b'"open"', "open"),
        (b"true", True),
        (b"unavailable", None),
        (b"null", None),
        ("Zimmer heiß".encode(), "Zimmer heiß"),
    ],
)
def test_a_single_value_is_a_signal_called_as_its_topic(payload: bytes, value: object) -> None:
    assert named("home/kitchen/temperature", payload) == {"home/kitchen/temperature": value}


@pytest.mark.parametrize("payload", [b"", b"\xff\xfe", b"{", b"[1, 2]", b"x" * 300, b"a\x00b", b"{}", b'{"a": {}}'])
def test_what_is_no_reading_is_malformed(payload: bytes) -> None:
    outcomes = named("t", payload)
    assert all(isinstance(outcome, Malformed) for outcome in (outcomes if isinstance(outcomes, list) else [outcomes]))


def test_nested_fields() -> None:
    reading = named("shelly/3", {"emeter": {"power": 80.0, "phases": [1, {"v": 230}]}, "relay": "on", "none": {}})
    expected = {"emeter.power": 80.0, "emeter.phases.0": 1, "emeter.phases.1.v": 230, "relay": "on"}
    assert reading == {f"shelly/3.{field}": value for field, value in expected.items()}
    deep: Any = 1
    for _ in range(1000):
        deep = {"a": deep}
    assert [name.count(".") for name in flatten({"a": deep})] == [16]  # what is deeper stays one value
    assert flatten({"a.b": 1, "a": {"b": 2}}) == {"a.b": 1}


def test_names_of_topics() -> None:
    names = TopicNames.parse(["home/+=+, x=", "a/#=b/#,a/c.d=e"])
    assert names.signal("home/kitchen", "t") == "kitchen.t"
    assert names.signal("home/kitchen/oven", "t") == "home/kitchen/oven.t"
    assert names.signal("a/c/d", "") == "b/c/d"
    assert (names.signal("a/c", "d"), names.signal("a/c", "f")) == ("e", "b/c.f")
    assert (names.signal("x", "power"), names.signal("x", "")) == ("power", "x")
    for text in ("=x", "names.json"):
        with pytest.raises(ValueError, match="--topic-names"):
            TopicNames.parse([text])


def test_a_model_learned_from_a_log_keeps_its_names() -> None:
    reading = named("plant/readings", {"power": 1, "flow": 2}, known=("power", "plant/readings.flow"))
    assert reading == {"power": 1, "plant/readings.flow": 2}


def test_readings_without_a_time_get_that_of_arrival() -> None:
    stamps = TimeStamps()
    assert stamps.stamp({"a": 1}, 1_700_000_000.1234) == {"time": 1_700_000_000.123, "a": 1}
    assert stamps.stamp({"a": 1, "time": None}, 1_700_000_001.0) == {"time": 1_700_000_001.0, "a": 1}
    # Whatever a device calls and writes its time, it becomes one column, written as the first time was.
    assert stamps.stamp({"a": 1, "ts": 1_700_000_002_500}) == {"time": 1_700_000_002.5, "a": 1}
    assert stamps.stamp({"Time": "2023-11-14T22:13:23", "a": 1}) == {"time": 1_700_000_003.0, "a": 1}
    assert stamps.stamp({"timestamp": "1700000004", "a": 1}) == {"time": 1_700_000_004.0, "a": 1}
    assert TimeStamps().stamp({"t": 21.5}, 1_700_000_000.0) == {"time": 1_700_000_000.0, "t": 21.5}  # a temperature


@pytest.mark.parametrize(
    ("example", "arrival"),
    [
        (1_700_000_000, 1_700_000_001.5),
        (1_700_000_000_000, 1_700_000_001_500),
        ("2023-11-14T22:13:20Z", "2023-11-14T22:13:21.500+00:00"),
        ("2023-11-14 22:13:20", "2023-11-14T22:13:21.500"),
    ],
)
def test_times_are_written_as_the_first(example: object, arrival: object) -> None:
    for stamps in (TimeStamps("when"), TimeStamps("when", example)):
        assert stamps.stamp({"when": example, "a": 1}) == {"when": example, "a": 1}
        assert stamps.stamp({"a": 1}, 1_700_000_001.5) == {"when": arrival, "a": 1}


@pytest.mark.parametrize("value", [float("nan"), 1e308, "tomorrow", True, [1], {"a": 1}, "9" * 5000, 10**400])
def test_a_time_that_cannot_be_read_stays_as_it_is(value: Any) -> None:
    stamped = TimeStamps().stamp({"time": value, "a": 1})
    assert stamped["time"] is value
    incoming = name_fields(Incoming({"time": value, "a": 1}), "t", TopicNames(), TimeStamps())
    assert not isinstance(incoming.reading, Malformed)
