"""The pipe: lines as people and programs write them, and the same rows from it as from a file."""

from __future__ import annotations

import csv
import io
import json
import math
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from emphatic.nexting.tables import Block, Table, TableError, open_table
from emphatic.nexting.tables.fields import Notation, TimeColumn
from emphatic.nexting.tables.pipe import Malformed, Reading, ReadingOptions, Readings, RowParser, collect

START = datetime(2007, 2, 1, 17, 24, tzinfo=UTC)

# ---------------------------------------------------------------------- the same as from a file

PLAIN = st.one_of(st.integers(-999, 999).map(str), st.floats(-1e6, 1e6).map(repr))
MISSING = st.sampled_from(["", "NA", "N/A", "--", "?", "null", " - ", "nan"])
ODD = st.sampled_from(["+3", " 7 ", ".5", "1E-3", "1e400", "Infinity", "1_000", "Error", "true", "5.", "12:30"])
NUMBER = st.one_of(PLAIN, PLAIN, PLAIN, PLAIN, MISSING, ODD)
SWITCH = st.one_of(st.sampled_from(["true", "False", "TRUE"]), MISSING)
ON_OFF = st.one_of(st.sampled_from(["ON", "off", " on "]), MISSING)
PERCENT = st.one_of(st.integers(0, 1000).map(lambda i: f"{i / 10}%"), st.sampled_from(["50 %", " 7%", "12", "%", ""]))
GROUPED = st.integers(1000, 99_999_999).map(lambda i: f"{i / 10:,.1f}")
LABEL = st.one_of(st.sampled_from(["heat", " cool é ", "off", 'a "b"', "x, y; z", "'", "12"]), MISSING)
JSON_NUMBER = st.one_of(
    st.integers(-999, 999), st.floats(), st.booleans(), st.none(), NUMBER, st.just(10**400), st.just([1])
)  # fmt: skip
JSON_LABEL = st.one_of(LABEL, st.sampled_from(["heat", "off"]), st.none(), st.integers(0, 3), st.booleans())

#: How a table may write its times: the header, and the cells of one row.
TIMES: dict[str, Any] = {
    "none": ([], lambda when: []),
    "iso": (["time"], lambda when: [when.strftime("%Y-%m-%d %H:%M:%S")]),
    "iso, zone": (["when"], lambda when: [when.isoformat()]),
    "iso, mixed": (["when"], lambda when: [when.isoformat() if when.minute % 2 else f"{when:%Y-%m-%d %H:%M}"]),
    "iso, ns": (["time"], lambda when: [f"{when:%Y-%m-%dT%H:%M:%S}.123456789"]),
    "day first": (["Date"], lambda when: [when.strftime("%d/%m/%Y %H:%M:%S.25")]),
    "month first": (["Date"], lambda when: [when.strftime("%m/%d/%y %I:%M:%S %p")]),
    "two columns": (["Date", "Time"], lambda when: [when.strftime("%d.%m.%Y"), when.strftime("%H:%M:%S")]),
    "seconds": (["ts"], lambda when: [repr(when.timestamp())]),
    "another name": (["x2", "recorded_at"], lambda when: [str(when.minute), str(int(when.timestamp()))]),
    "digits": (["c"], lambda when: [when.strftime("%Y%m%d%H%M%S")]),
    "month by name": (["c"], lambda when: [when.strftime("%d-%b-%Y %H:%M:%S")]),
    "iso, UTC": (["c"], lambda when: [when.strftime("%Y-%m-%d %H:%M:%SZ")]),
    "milliseconds": (["timestamp"], lambda when: [str(int(when.timestamp() * 1000))]),
    "count": (["t"], lambda when: [repr((when - START).total_seconds())]),
}


@st.composite
def tables(draw: st.DrawFn, number: Any = NUMBER, label: Any = LABEL) -> tuple[list[str], list[list[Any]]]:
    """Names and rows. The first column can always be read, so that every row is a reading."""
    rows, (time_names, write) = draw(st.integers(3, 12)), TIMES[draw(st.sampled_from(list(TIMES)))]
    kinds = [PLAIN, number, draw(st.sampled_from([number, SWITCH, ON_OFF, GROUPED, PERCENT])), label]
    minutes = np.cumsum(draw(st.lists(st.sampled_from([1, 1, 1, 30]), min_size=rows, max_size=rows)))
    cells = []
    for i in range(rows):
        time = write(START + timedelta(minutes=int(minutes[i])))
        if i and draw(st.integers(0, 9)) == 0:
            absent = ["", "NA", "soon"][: 2 if i == rows - 1 else 3]  # a word at the end of a file is a remark
            time = [draw(st.sampled_from(absent)) for _ in time]
        cells.append([*time, *(draw(kind) for kind in kinds)])
    return [*time_names, "n", "x", "switch on", "mode"], cells


def whole(table: Table) -> tuple[Any, Any, dict[str, list[Any]]]:
    blocks = list(table.blocks())
    time = np.concatenate([b.time for b in blocks]) if table.time else None
    labels = {name: [word for b in blocks for word in b.labels[name]] for name in table.categories}
    return np.concatenate([b.values for b in blocks]), time, labels


def check(path: Path, delimiter: str | None = None) -> None:
    """The file's rows, line by line through the pipe, and as a pipe's warm-up."""
    try:
        table = open_table(path, delimiter=delimiter)
    except TableError:
        assume(False)
    values, time, labels = whole(table)
    notation = Notation.from_config(json.loads(json.dumps(table.notation.config())))  # as a model keeps it
    parser = RowParser(table.names, table.categories, notation)
    lines = path.read_bytes().split(b"\n")
    readings = [r for _, r in Readings(lines, parser.columns, notation.delimiter) if not isinstance(r, Malformed)]
    rows = [row for row in map(parser.parse, readings) if row.readable]
    np.testing.assert_array_equal(np.array([row.values for row in rows]), values)
    assert {name: [row.labels[name] for row in rows] for name in table.categories} == labels
    times = np.array([row.time for row in rows])
    np.testing.assert_array_equal(times, np.full(len(rows), np.nan) if time is None else time)
    # Without a model: what the file reader found, the warm-up finds.
    fresh = Readings(lines, delimiter=delimiter)
    found = [r for _, r in fresh if not isinstance(r, Malformed)]
    assert found == [reading for reading in readings if parser.parse(reading).readable]
    collected = collect(found, *fresh.form)
    assert (collected.names, collected.categories, collected.time) == (table.names, table.categories, table.time)
    assert (collected.ignored, collected.notation.config()) == (table.ignored, table.notation.config())
    again = whole(collected)
    np.testing.assert_array_equal(again[0], values)
    np.testing.assert_array_equal(np.asarray(again[1], float), np.asarray(time, float))
    assert again[2] == labels


@given(
    tables(),
    st.sampled_from(",;\t|"),
    st.booleans(),
    st.sampled_from(["", "\ufeff", "# by the logger\n\n", "\ufeff# both\n"]),
    st.sampled_from(["\n", "\r\n"]),
    st.sampled_from([csv.QUOTE_MINIMAL, csv.QUOTE_ALL]),
    st.sets(st.sampled_from(["units", "short", "long", "again", "quote"]), max_size=2),
)
@settings(max_examples=50)
def test_csv_on_a_pipe_is_read_as_in_a_file(
    tmp_path_factory: pytest.TempPathFactory,
    table: Any,
    delimiter: str,
    comma: bool,
    before: str,
    end: str,
    quoting: Any,
    odd: set[str],
) -> None:
    names, rows = table
    if comma and delimiter != ",":
        swap = str.maketrans(",.", ".,")
        rows = [[cell.translate(swap) if cell.count(".") == 1 else cell for cell in row] for row in rows]
    if "units" in odd and len(rows) > 3:
        rows = [["" for _ in names[:-4]] + ["kW", "", "", ""], *rows]
    if "short" in odd:
        rows = [row[: len(row) - i % 3] if i % 2 else row for i, row in enumerate(rows)]
    if "long" in odd:
        rows = [*rows[:2], [*rows[1], "more"], *rows[2:]]
    if "again" in odd:
        rows = [*rows[:2], names, *rows[2:]]
    text = io.StringIO()
    csv.writer(text, delimiter=delimiter, lineterminator=end, quoting=quoting).writerows([names, *rows])
    if "quote" in odd:
        text.write(delimiter.join(['"1', *("2" for _ in names[1:])]) + end)
    path = tmp_path_factory.mktemp("csv") / "log.csv"
    path.write_bytes((before + text.getvalue()).encode())
    check(path, delimiter if "x, y; z" in text.getvalue() else None)


@given(tables(JSON_NUMBER, JSON_LABEL))
@settings(max_examples=30)
def test_json_on_a_pipe_is_read_as_in_a_file(tmp_path_factory: pytest.TempPathFactory, table: Any) -> None:
    names, rows = table
    path = tmp_path_factory.mktemp("json") / "log.jsonl"
    path.write_text("\n".join(json.dumps(dict(zip(names, row, strict=True))) for row in rows))
    check(path)


# ---------------------------------------------------------------------- lines


def read(*lines: bytes | None, **options: Any) -> list[Reading | str]:
    found = list(Readings(lines, **options))
    return [str(reading) if isinstance(reading, Malformed) else reading for _, reading in found]


@pytest.mark.parametrize(
    ("first", "names"),
    [
        (b"a,b,c", "abc"),
        (b'\xef\xbb\xbf"a","b", c \r', "abc"),
        (b"a;b;c", "abc"),
        (b"a b\tb\tc d", ["a b", "b", "c d"]),
        (b"time stamp value,b,c", ["time stamp value", "b", "c"]),
        (b",b,c", ["column_1", "b", "c"]),
    ],
)
def test_headers(first: bytes, names: list[str]) -> None:
    delimiter = next(d for d in (b"\t", b";", b",") if d in first)
    row = delimiter.join([b"1", b"2", b"3"])
    expected = dict(zip(names, "123", strict=True))
    assert read(first, row, row) == [expected, expected]
    assert read(first, row, known=[names[1]]) == [expected]
    first = first.removeprefix(b"\xef\xbb\xbf")
    assert read(b"# from the logger", b"", first, b"", row, known=[names[1]]) == [expected]


def test_row_numbers_without_a_name_are_no_signal() -> None:
    readings = Readings([b",a", b"0,5", b"1,7"])
    rows = [reading for _, reading in readings if not isinstance(reading, Malformed)]
    assert readings.form == (",", ("column_1",))
    table = collect(rows, *readings.form)
    assert (table.names, list(table.ignored)) == (("a",), ["column_1"])


def test_a_very_long_header_is_read_in_no_time() -> None:
    names = [f"the_{i:060d}" for i in range(20_000)]
    header, row = ",".join(names).encode(), b",".join(b"%d" % i for i in range(20_000))
    assert len(header) > 1 << 20
    for known in ([], [names[7]]):
        (reading,) = read(header, row, known=known)
        assert isinstance(reading, dict)
        assert list(reading) == names
    assert read(header, b"a,b", b"1,2", known=["a"])[1:] == [{"a": "1", "b": "2"}]


def test_without_a_header() -> None:
    rows = [{"column_1": "1.5", "column_2": "2"}, {"column_1": "3", "column_2": "4"}]
    assert read(b"1.5,2", b"3,4") == rows
    assert read(b"1.5,2", b"3,4", known=["column_2"]) == rows
    # Names that are numbers are names, where a model knows them.
    assert read(b"2,1.5", b"3,4", known=["2"]) == [{"2": "3", "1.5": "4"}]


def test_what_is_no_reading_says_why() -> None:
    assert read(b"garbage", b'{"S1": 1}', known=["S1"])[1] == {"S1": 1}
    assert read(b"cut off}", b'{"S1": 1}', b'{"S1": 2}')[1:] == [{"S1": 1}, {"S1": 2}]
    assert read(b"a,b", b'1,"2', b"\xff,2", b"1,2,3", None, b"a,b", known=["a"]) == [
        "a quote is never closed",
        "not UTF-8 text",
        "3 fields, where the header has 2",
        "longer than 8 MiB",
        "the header again",
    ]
    assert read(b"a,b", b"1", b"  ", known=["a"]) == [{"a": "1", "b": ""}]  # what is not there is missing
    assert [number for number, _ in Readings([b"a,b", b"", b"1,2", None], ["a"])] == [3, 4]
    # A row of nothing but its delimiters is a row, as in a file.
    assert read(b"a\tb", b"\t", known=["a"]) == [{"a": "", "b": ""}]


def test_each_of_several_joined_files_may_begin_with_a_byte_order_mark() -> None:
    lines = ['{"a": 1}', '\ufeff{"a": 2}', '{"a": 3}']
    assert [reading for _, reading in Readings(line.encode() for line in lines)] == [{"a": 1}, {"a": 2}, {"a": 3}]


def test_lines_are_held_back_only_until_they_tell_the_delimiter() -> None:
    count = 0

    def lines() -> Any:
        nonlocal count
        for count in range(1, 100):
            yield b"a;b" if count == 1 else b"1,5;2"

    readings = iter(Readings(lines(), look=10))
    assert next(readings) == (2, {"a": "1,5", "b": "2"})
    assert count == 10
    count = 0
    assert next(iter(Readings(lines(), ["a"]))) == (2, {"a": "1,5", "b": "2"})
    assert count == 2


# ---------------------------------------------------------------------- rows


def parser(form: str | None, a_second: float = 1.0, dated: bool = True, column: str = "t") -> RowParser:
    time = TimeColumn(tuple(column.split("+")), (form,), a_second, dated)
    return RowParser(["x", "y"], ["mode"], Notation(time=time))


def test_what_cannot_be_read_is_missing_and_said() -> None:
    row = parser("iso").parse({"x": "Error", "y": 10**400, "mode": ["a"], "t": "soon"})
    assert np.isnan([*row.values, row.time]).all()
    assert row.problems == {
        "'x' is not a number": "'Error'",
        "'y' is not finite": "1" + "0" * 36 + "...",
        "the time 't' cannot be read": "'soon'",
    }
    assert (row.time_text, row.labels, row.readable) == (None, {"mode": '["a"]'}, True)
    assert parser("iso").parse({"x": 1}).problems == {"the time 't' is absent": "no such column"}
    missing = parser("iso").parse({"x": None, "t": "NA"})
    assert (missing.problems, missing.time_text, missing.readable) == ({}, "NA", True)
    for nothing in ({}, {"z": 1}, {"t": 0}, {"x": "Error"}, {"x": [1], "y": {"a": 1}}):
        assert not parser("iso").parse(nothing).readable
    assert parser("iso").parse({"x": "Error", "t": "2007-02-01"}).readable


@pytest.mark.parametrize(
    ("of", "texts", "seconds"),
    [
        (parser("iso"), ["2007-02-01", "2007-02-01T01:00:00+01:00"], [1170288000, 1170288000]),
        (parser("iso"), [1170288000, "1170288060", "2007-02-01"], [1170288000, 1170288060, math.nan]),
        (parser("iso"), [1170288000123, 1170288000124], [1170288000.123, 1170288000.124]),
        (parser("%d/%m/%Y"), ["1/2/2007", "2007-02-01", "12"], [1170288000, math.nan, math.nan]),
        (parser("%d/%m/%Y"), ["12", "2007-02-01", "1/2/2007"], [math.nan, 1170288000, math.nan]),
        (parser(None, 1000.0), [1170288000123, "2007-02-01"], [1170288000.123, math.nan]),
        (parser(None, 1000.0), ["2007-02-01", 1170288000123], [1170288000, math.nan]),
        (parser(None, dated=False), [0.5, "1.5", float("nan"), float("inf")], [0.5, 1.5, math.nan, math.nan]),
    ],
)
def test_the_first_time_decides_how_times_are_written(of: RowParser, texts: list[Any], seconds: list[float]) -> None:
    np.testing.assert_array_equal([of.parse({"x": 1, "t": text}).time for text in texts], seconds)


def test_a_date_and_a_time_of_day() -> None:
    time = TimeColumn(("Date", "Time"), ("%d/%m/%Y", "clock %H:%M"))
    pair = RowParser(["x"], [], Notation(time=time))
    row = pair.parse({"x": 1, "Date": "1/2/2007", "Time": "00:01"})
    assert (row.time, row.time_text) == (1170288060, "1/2/2007 00:01")
    assert pair.parse({"x": 1, "Date": "1/2/2007"}).problems == {"the time 'Date+Time' cannot be read": "'1/2/2007'"}
    # A model without a notation (tests/data/0.1.0/horde): both together in ISO.
    old = parser(None, column="Date+Time")
    for text in ({"Date": "2007-02-01", "Time": "00:01:00"}, {"Date+Time": "2007-02-01 00:01"}):
        assert old.parse({"x": 1} | text).time == 1170288060
    kept = Notation.from_config(json.loads(json.dumps(old.notation.config())))
    again = RowParser(["x"], [], kept)
    assert again.parse({"x": 1, "Date": "2007-02-01", "Time": "00:01:00"}).time == 1170288060


def test_of_typed_times_the_pipe_has_the_text() -> None:
    when = [START, START + timedelta(minutes=1)]
    stamps = open_table(pa.table({"time": pa.array(when), "x": [1.0, 2.0]}))
    pair = open_table(pa.table({"d": [w.date() for w in when], "c": [w.time() for w in when], "x": [1.0, 2.0]}))
    assert (stamps.time, pair.time) == ("time", "d+c")
    for table, row in ((stamps, {"time": "2007-02-01T17:25:00Z"}), (pair, {"d": "2007-02-01", "c": "17:25:00"})):
        first = table.notation.time
        of = RowParser(table.names, table.categories, table.notation)
        assert of.parse({"x": 1} | row).time == when[1].timestamp() == whole(table)[1][1]
        assert of.notation.time == first


def test_a_damaged_notation_is_refused() -> None:
    good: dict[str, Any] = parser("iso").notation.config()
    assert Notation.from_config(good).config() == good
    bad: list[Any] = [
        {},
        good | {"delimiter": ",,"},
        good | {"time": 3},
        good | {"time": good["time"] | {"formats": [3]}},
    ]
    for config in bad:
        with pytest.raises(ValueError, match="notation is damaged"):
            Notation.from_config(config)


@pytest.mark.parametrize("size", [1, 2, 5])
def test_blocks_of_readings_are_those_of_the_table(size: int) -> None:
    rows: list[Reading] = [
        {"time": time, "x": x, "y": y, "door": door}
        for time, x, y, door in zip(
            [0.0, 1.0, 2.0, 3.0, None, 5.0, 9.0, 8.0, 9.0, 10.0, 11.0],
            [1.0, None, 3.0, "oops", 5.0, 6.0, 7.0, 8.0, 9.0, 10.0, 11.0],
            [0.5, 0.5, 1e400, 0.5, 0.5, -0.5, 0.5, 0.5, 0.5, 0.5, 0.5],
            ["open", "shut", None, "open", "shut", "shut", "open", "ajar", "open", "shut", "open"],
            strict=True,
        )
    ]
    table = collect(rows, options=ReadingOptions("time"))
    expected = next(table.blocks())
    clock = table.clock()
    parser = RowParser(table.names, table.categories, table.notation)
    parsed = [parser.parse(row) for row in rows]
    blocks = [
        Block.from_rows(parsed[i : i + size], table.names, table.categories, clock, i)
        for i in range(0, len(rows), size)
    ]
    assert [block.row for block in blocks] == list(range(0, len(rows), size))
    np.testing.assert_array_equal(np.concatenate([block.values for block in blocks]), expected.values)
    assert expected.time is not None
    np.testing.assert_array_equal(
        np.concatenate([block.time for block in blocks if block.time is not None]), expected.time
    )
    assert np.concatenate([block.gap for block in blocks]).tolist() == expected.gap.tolist()
    assert np.concatenate([block.labels["door"] for block in blocks]).tolist() == expected.labels["door"].tolist()
    assert np.sum([block.unreadable for block in blocks], axis=0).tolist() == expected.unreadable.tolist() == [1, 0]
    assert np.sum([block.infinite for block in blocks], axis=0).tolist() == expected.infinite.tolist() == [0, 1]
    empty = Block.from_rows([], table.names, table.categories)
    assert (len(empty), empty.values.shape, empty.time, empty.gap.tolist()) == (0, (0, 2), None, [])
