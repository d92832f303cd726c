"""Tables: the same values from every format, whatever the cut; time, missing values, bad files; the shipped data."""

from __future__ import annotations

import gzip
import hashlib
import json
import lzma
import subprocess
import sys
import tracemalloc
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.csv
import pyarrow.feather
import pyarrow.json
import pyarrow.parquet
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

import emphatic
from emphatic.nexting.tables import Block, Clock, Hold, Table, TableError, files, open_table
from emphatic.nexting.tables.pipe import Readings, RowParser, collect
from emphatic.nexting.tables.text import read_object

START = 1_170_288_000  # 2007-02-01 00:00 UTC
T = 1000


def readings() -> Any:
    """A time, an integer, numbers with holes, truth values and words with holes."""
    rng = np.random.default_rng(3)
    holes = rng.random(T) < 0.1
    return pa.table(
        {
            "count": pa.array(rng.integers(-5, 100, T)),
            "time": pa.array(START + 60 * np.arange(T)).cast(pa.timestamp("s")),
            "power": pa.array(rng.normal(size=T) * 10.0 ** rng.integers(-12, 12, T), mask=holes),
            "on": pa.array(rng.random(T) < 0.5),
            "mode": pa.array(rng.choice(["heat", "cool é", "off"], T), mask=rng.random(T) < 0.1),
        }
    )


def whole(table: Table, rows: int = 65536, start: int = 0) -> Block:
    """All blocks as one."""
    blocks = list(table.blocks(rows, start))
    assert [b.row for b in blocks] == [start + i * rows for i in range(len(blocks))]
    assert all(len(b) == rows for b in blocks[:-1])
    return Block(
        start,
        np.concatenate([b.values for b in blocks]),
        np.concatenate([b.time for b in blocks if b.time is not None]) if table.time else None,
        {name: np.concatenate([b.labels[name] for b in blocks]) for name in table.categories},
        np.sum([b.unreadable for b in blocks], axis=0),
        np.sum([b.infinite for b in blocks], axis=0),
    )


def same(a: Block, b: Block) -> None:
    np.testing.assert_array_equal(a.values, b.values)
    np.testing.assert_array_equal(np.asarray(a.time), np.asarray(b.time))
    assert a.labels.keys() == b.labels.keys()
    for name in a.labels:
        assert a.labels[name].tolist() == b.labels[name].tolist()


def after(block: Block, start: int) -> Block:
    labels = {name: words[start:] for name, words in block.labels.items()}
    return Block(start, block.values[start:], np.asarray(block.time)[start:], labels, block.unreadable, block.infinite)


def as_file(save: Callable[[Any, str], Any]) -> Callable[[Any, Path], Any]:
    def write(table: Any, path: Path) -> Any:
        save(table, str(path))
        return path

    return write


def as_csv(delimiter: str = ",") -> Callable[[Any, Path], Any]:
    options = pa.csv.WriteOptions(delimiter=delimiter)
    return as_file(lambda table, path: pa.csv.write_csv(table, path, options))


def as_packed(compress: Callable[[bytes], bytes], delimiter: str = ",") -> Callable[[Any, Path], Any]:
    def write(table: Any, path: Path) -> Any:
        path.write_bytes(compress(as_csv(delimiter)(table, path).read_bytes()))
        return path

    return write


def as_feather(compression: str) -> Callable[[Any, Path], Any]:
    return as_file(lambda table, path: pa.feather.write_feather(table, path, compression=compression, chunksize=300))


def as_json(table: Any, path: Path) -> Any:
    lines = (json.dumps(row, default=str, ensure_ascii=False) for row in table.to_pylist())
    path.write_text("\n".join(lines), encoding="utf-8")
    return path


def as_dict(table: Any, _: Path) -> Any:
    return {name: table[name].to_pandas().to_numpy() for name in table.column_names}


def as_structured(table: Any, _: Path) -> Any:
    columns = as_dict(table, _)
    kinds = [(name, column.dtype) for name, column in columns.items()]
    out = np.empty(T, kinds)
    for name, column in columns.items():
        out[name] = column
    return out


FORMS: dict[str, Callable[[Any, Path], Any]] = {
    "csv": as_csv(),
    "semicolon": as_csv(";"),
    "tab": as_csv("\t"),
    "bar": as_csv("|"),
    "decimal comma": as_file(lambda table, path: table.to_pandas().to_csv(path, sep=";", decimal=",", index=False)),
    "gzip": as_packed(gzip.compress),
    "xz": as_packed(lzma.compress),
    "zstd": as_packed(lambda text: pa.compress(text, codec="zstd", asbytes=True), "\t"),
    "parquet": as_file(lambda table, path: pa.parquet.write_table(table, path, row_group_size=300)),
    "feather": as_feather("uncompressed"),
    "feather zstd": as_feather("zstd"),
    "json lines": as_json,
    "pyarrow": lambda table, _: table,
    "pandas": lambda table, _: table.to_pandas(),
    "pandas, time as index": lambda table, _: table.to_pandas().set_index("time"),
    "polars": lambda table, _: pl.DataFrame(table),
    "polars, categorical": lambda table, _: pl.DataFrame(table).with_columns(pl.col("mode").cast(pl.Categorical)),
    "dict": as_dict,
    "structured array": as_structured,
}


@pytest.mark.parametrize("form", FORMS)
def test_every_form_gives_the_same(form: str, tmp_path: Path) -> None:
    given = readings()
    table = open_table(FORMS[form](given, tmp_path / "log"))
    assert (table.names, table.categories) == (("count", "power", "on"), ("mode",))
    assert table.time == "time"
    assert table.dated
    assert table.rows in (T, None)
    assert table.ignored == {}
    block = whole(table)
    power = given["power"].to_numpy()
    assert 50 < np.isnan(power).sum() < 150
    np.testing.assert_array_equal(block.values[:, 0], given["count"].to_numpy())
    np.testing.assert_array_equal(block.values[:, 1], power)
    np.testing.assert_array_equal(block.values[:, 2], given["on"].to_numpy())
    np.testing.assert_array_equal(np.asarray(block.time), START + 60 * np.arange(T))
    assert block.labels["mode"].tolist() == given["mode"].to_pylist()
    assert block.unreadable.tolist() == block.infinite.tolist() == [0, 0, 0]
    for rows, start in ((1, 990), (7, 0), (300, 300), (999, 1), (64, 650)):
        same(whole(table, rows, start), after(block, start))
    assert list(table.blocks(5, T)) == list(table.blocks(5, 2 * T)) == []


def test_plain_arrays() -> None:
    grid = np.arange(6.0).reshape(3, 2)
    table = open_table(grid, names=["a", "b"])
    assert (table.names, table.time, table.clock()) == (("a", "b"), None, None)
    np.testing.assert_array_equal(whole(table, 2).values, grid)
    assert open_table(grid).names == ("column_1", "column_2")
    assert open_table(grid[:, 0]).names == ("column_1",)
    assert whole(open_table({"a": np.array([1, 2], np.float16), "b": [True, False]})).values.tolist() == [
        [1, 1],
        [2, 0],
    ]
    with pytest.raises(ValueError, match=r"'names' parameter of open_table must name all 2 columns\. Got 1 names"):
        open_table(grid, names=["a"])
    for bad in (3, None, object(), np.zeros((2, 2, 2)), [[1.0]]):
        with pytest.raises(ValueError, match="'source' parameter of open_table"):
            open_table(bad)
    for ragged in ({"a": [1.0, 2.0], "b": [1.0]}, {"a": np.zeros((2, 2))}, {"a": np.array([1, "x", None], object)}):
        with pytest.raises(TableError, match="the table"):
            open_table(ragged)


def surprising(rows: int = 3000) -> list[list[str]]:
    """Columns that look like one thing at first and hold others later."""
    table = [["1", "2", "2007-02-01 00:00:00", "a"] for _ in range(rows)]
    for i, row in enumerate(table):
        row[2] = str(np.datetime64("2007-02-01T00:00:00") + i).replace("T", " ")
    for at, column, word in (
        (2000, 0, "1.5"),
        (2001, 0, "1e3"),
        (2002, 0, " 7 "),
        (2003, 0, "NA"),
        (2100, 1, "Error"),
        (2101, 1, "?"),
        (2102, 1, ""),
        (2103, 1, "-inf"),
        (2104, 1, "1_0"),
        (2105, 1, "+3"),
        (2198, 2, "2007-02-01T01:36:38+01:00"),
        (2199, 2, "9999-12-31"),
        (2200, 2, "yesterday"),
        (2201, 2, "2007-02-01T00:36:41.5"),
        (2300, 3, "12"),
        (2301, 3, "n/a"),
    ):
        table[at][column] = word
    return table


@pytest.mark.parametrize("form", ["csv", "json lines"])
def test_kinds_are_decided_once_and_later_surprises_are_counted(
    form: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "LOOK", 4096)  # so that they come after the first look
    path = tmp_path / "log"
    names, rows = ["x", "y", "when", "word"], surprising()
    if form == "csv":
        path.write_text("\n".join(",".join(row) for row in [names, *rows]))
    else:

        def value(name: str, word: str) -> Any:
            return float(word) if name in "xy" and word.isdigit() else word

        lines = ({n: value(n, w) for n, w in zip(names, row, strict=True)} for row in rows)
        path.write_text("\n".join(map(json.dumps, lines)))
    table = open_table(path)
    assert (table.names, table.time, table.categories) == (("x", "y"), "when", ("word",))
    block = whole(table)
    x, y = block.values.T
    np.testing.assert_array_equal(x[1999:2005], [1.0, 1.5, 1000.0, 7.0, np.nan, 1.0])
    np.testing.assert_array_equal(y[2099:2107], [2.0, np.nan, np.nan, np.nan, np.nan, np.nan, 3.0, 2.0])
    assert block.unreadable.tolist() == [0, 2]
    assert block.infinite.tolist() == [0, 1]
    time = np.asarray(block.time)
    assert np.flatnonzero(np.isnan(time)).tolist() == [2199, 2200]
    assert (time[2198], time[2201], time[2202]) == (START + 2198.0, START + 2201.5, START + 2202.0)
    assert block.labels["word"][2299:2303].tolist() == ["a", "12", None, "a"]
    for size in (1, 17, 2103):
        part = whole(table, size, 1990)
        same(part, after(block, 1990))
        assert part.unreadable.tolist() == [0, 2]


@given(
    st.lists(
        st.lists(st.sampled_from(["1", "-2.5", "", "NA", "x", "1e400", " 3", " NA ", "true"]), min_size=2, max_size=2)
    )
)
def test_a_value_does_not_depend_on_its_neighbours(tmp_path_factory: pytest.TempPathFactory, rows: Any) -> None:
    path = tmp_path_factory.mktemp("cut") / "log.csv"
    path.write_text("a,b\n" + "0,0\n" * (len(rows) + 1) + "".join(f"{a},{b}\n" for a, b in rows))
    table = open_table(path)
    all_at_once, one_by_one = whole(table), whole(table, 1)
    same(all_at_once, one_by_one)
    assert all_at_once.unreadable.tolist() == [sum(row[i] == "x" for row in rows) for i in (0, 1)]
    assert all_at_once.infinite.tolist() == [sum(row[i] == "1e400" for row in rows) for i in (0, 1)]


@pytest.mark.parametrize(
    ("text", "names", "values"),
    [
        ("a\n1\n2\n", ("a",), [[1], [2]]),
        ("1.5,2\n3,4\n", ("column_1", "column_2"), [[1.5, 2], [3, 4]]),  # no header
        ("0,1,2\n3,4,5\n", ("0", "1", "2"), [[3, 4, 5]]),  # columns that are only counted
        (",a,b\n0,5,6\n1,7,8\n", ("a", "b"), [[5, 6], [7, 8]]),  # row numbers
        ("a,b,\n1,2,\n3,4,\n", ("a", "b"), [[1, 2], [3, 4]]),  # a delimiter too many
        ("# by the logger\n\na b\n1 2\n", ("a", "b"), [[1, 2]]),
        ("\ufeffa,b\r\n1,2\r\n", ("a", "b"), [[1, 2]]),
        ('"a,b";c\n"1";2\n', ("a,b", "c"), [[1, 2]]),
        ('a,b,c\n1,2,"x\ny"\n', ("a", "b"), [[1, 2]]),
        ("a;b\n1,5;2\n2,25;3\n", ("a", "b"), [[1.5, 2], [2.25, 3]]),
        ("a,b\nTrue,1\nfalse,2\n", ("a", "b"), [[1, 1], [0, 2]]),
        ("a,b\n,1\n,2\n", ("a", "b"), [[np.nan, 1], [np.nan, 2]]),  # nothing at all in a column
        ("a,b\n1,2\n3\n4,5,6\n7,8\n9,", ("a", "b"), [[1, 2], [3, np.nan], [7, 8], [9, np.nan]]),  # short, and too long
    ],
)
def test_csv_as_people_write_it(text: str, names: tuple[str, ...], values: Any, tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    path.write_text(text, encoding="utf-8", newline="")
    table = open_table(path)
    assert table.names == names
    np.testing.assert_array_equal(whole(table).values, values)
    assert table.dropped.count == (1 if "4,5,6" in text else 0)


def test_a_header_longer_than_the_longest_field(tmp_path: Path) -> None:
    names = [f"sensor_{i:0200d}" for i in range(800)]
    path = tmp_path / "log.csv"
    path.write_text(",".join(names) + "\n" + ",".join("1" for _ in names) + "\n")
    assert open_table(path).names == tuple(names)
    path.write_text('"' + "x" * 140_000 + '",b\n1,2\n')
    with pytest.raises(TableError, match="field larger than field limit"):
        open_table(path)


def test_most_values_decide_what_a_column_is(tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    path.write_text("number,word,day\n1,1,2007-02-01\nError,b,2007-02-02\n3,c,soon\n")
    table = open_table(path)
    assert (table.names, table.categories, table.time) == (("number",), ("word",), "day")
    assert whole(table).unreadable.tolist() == [1]


def test_columns_left_out_say_why(tmp_path: Path) -> None:
    path = tmp_path / "log.parquet"
    day = datetime(2007, 2, 1)
    pa.parquet.write_table(pa.table({"a": [1.0], "l": [[1, 2]], "t": [day], "u": [day]}), path)
    table = open_table(path)
    assert (table.names, table.time) == (("a",), "t")
    assert table.ignored == {"l": "neither numbers nor text", "u": "another date"}
    (tmp_path / "log.jsonl").write_text('{"a": 1, "b": [2, 3]}\n{"a": 2, "later": 3}\n')
    table = open_table(tmp_path / "log.jsonl")
    assert (table.names, table.ignored) == (("a", "later"), {"b": "nested"})


def test_fields_of_objects_are_columns_in_a_file_and_on_a_pipe(tmp_path: Path) -> None:
    rows = [
        {"ts": 60.0 * t, "room": {"temp": t / 4, "door": {"open": t % 2}}, "all": [{"id": t % 5}]} for t in range(50)
    ]
    path = tmp_path / "log.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)))
    table = open_table(path)
    assert (table.names, table.time, table.ignored) == (("room.temp", "room.door.open", "all.id"), "ts", {})
    values = whole(table).values
    assert values[:, 0].tolist() == [t / 4 for t in range(50)]
    readings = [row for _, row in Readings(path.read_bytes().splitlines()) if isinstance(row, dict)]
    live = collect(readings)
    assert (live.names, live.ignored) == (table.names, {})
    parser = RowParser(table.names, table.categories, table.notation)
    np.testing.assert_array_equal([parser.parse(row).values for row in readings], values)


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-be"])
def test_utf_16_with_a_byte_order_mark_is_read(encoding: str, tmp_path: Path) -> None:
    text = "time\tTemp °C\r\n" + "".join(f"{60 * t}\t{t / 4}\r\n" for t in range(3000))
    mark = b"\xfe\xff" if encoding == "utf-16-be" else b""
    (tmp_path / "log.txt").write_bytes(mark + text.encode(encoding))
    table = open_table(tmp_path / "log.txt")
    assert table.names == ("Temp °C",)
    assert whole(table).values[:, 0].tolist() == [t / 4 for t in range(3000)]


def test_a_list_or_an_object_among_numbers_is_one_value_that_cannot_be_read(tmp_path: Path) -> None:
    """It does not cost the column, in a file or on a pipe."""
    rows: list[dict[str, Any]] = [{"x": t / 4, "y": t} for t in range(50)]
    rows[7] = {"x": {"a": 1}, "y": 7}
    rows[9] = {"x": [1, 2], "y": 9}
    path = tmp_path / "log.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)))
    for table in (open_table(path), collect(rows)):
        assert (table.names, table.ignored) == (("x", "y"), {})
        found = whole(table)
        assert np.flatnonzero(np.isnan(found.values[:, 0])).tolist() == [7, 9]
        assert found.unreadable.tolist() == [2, 0]


def test_a_null_character_in_a_name_does_not_end_it(tmp_path: Path) -> None:
    """Or two names would be one, and all readings refused."""
    path = tmp_path / "log.jsonl"
    path.write_text("".join(json.dumps({"": t, "\0": -t, "a\0b": t % 5, "a": t % 3}) + "\n" for t in range(50)))
    rows = [read_object(line) for line in path.read_text().splitlines()]
    for table in (open_table(path), collect(rows)):
        assert table.names == ("", "\ufffd", "a\ufffdb", "a")
        assert whole(table).values[-1].tolist() == [49.0, -49.0, 4.0, 1.0]


@pytest.mark.parametrize(
    ("header", "first", "second", "name", "start", "step"),
    [
        ("time", "2007-02-01 00:00", "2007-02-01 00:01", "time", START, 60),
        ("when", "2007-02-01T00:00:00Z", "2007-02-01T01:00:00.5+01:00", "when", START, 0.5),
        ("Date", "1/2/2007", "2/2/2007", "Date", START, 86400),
        ("Date", "2/1/2007", "2/2/2007", "Date", START, 86400),
        ("Date", "01.02.2007 00:00", "01.02.2007 00:30", "Date", START, 1800),
        ("Date", "2/1/07 12:00:00 AM", "2/1/07 12:00:00.25 PM", "Date", START, 43200.25),
        ("Date,Time", "1/2/2007,00:00:00", "1/2/2007,00:01:00", "Date+Time", START, 60),
        ("Time,Date", "00:00,2007-02-01", "01:00,2007-02-01", "Date+Time", START, 3600),
        ("timestamp", f"{START}000", f"{START}500", "timestamp", START, 0.5),
        ("Time (s)", "0.0", "0.125", "Time (s)", 0.0, 0.125),
        ("x;t", "1;0,25", "2;0,5", "t", 0.25, 0.25),
        ("t", "20.5", "20.25", None, None, None),  # a temperature, perhaps
        ("level", "1", "2", None, None, None),
    ],
)
def test_the_time_is_found(
    header: str, first: str, second: str, name: str | None, start: Any, step: Any, tmp_path: Path
) -> None:
    path = tmp_path / "log.csv"
    rest = ("", "", "") if ";" in header else (",x", ",1", ",2")
    path.write_text("".join(f"{a}{b}\n" for a, b in zip((header, first, second), rest, strict=True)))
    table = open_table(path)
    assert table.time == name
    assert table.dated == (name not in (None, "Time (s)", "t"))
    time = whole(table).time
    if name is None:
        assert time is None
        assert len(table.names) == 2
    else:
        assert np.asarray(time).tolist() == [start, start + step]
        assert table.names == ("x",)
        clock = table.clock()
        assert clock is not None
        assert clock.step == step
        assert open_table(path, time=name).time == name


def test_the_time_can_be_named_or_refused(tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    path.write_text("time,clock,x\n0,5,1\n1,3,2\n")
    assert open_table(path).names == ("clock", "x")
    assert open_table(path, time="clock").names == ("time", "x")
    assert open_table(path, time=False).names == ("time", "clock", "x")


def test_typed_times() -> None:
    moment = datetime(2007, 2, 1, 0, 1, tzinfo=UTC)
    for column in (
        pa.array([moment]),
        pa.array([moment]).cast(pa.timestamp("ms", "Europe/Paris")),
        pa.array([moment.replace(tzinfo=None)]).cast(pa.timestamp("ns")),
    ):
        assert np.asarray(whole(open_table(pa.table({"x": [1.0], "at": column}))).time).tolist() == [START + 60]
    pair = pa.table({"x": [1.0], "d": [moment.date()], "c": [moment.time()]})
    assert np.asarray(whole(open_table(pair)).time).tolist() == [START + 60]
    elapsed = pa.table({"x": pa.array([1500], pa.duration("ms"))})
    assert whole(open_table(elapsed)).values.tolist() == [[1.5]]


NEWEST_FIRST = "when,x\n2007-02-02,1\n2007-02-01,2\n"
BAD: dict[str, tuple[bytes | str, dict[str, Any], str]] = {
    "empty": ("", {}, "the file is empty"),
    "blank": ("\n \n", {}, "holds no rows"),
    "header only": ("a,b\n", {}, "a header but no rows"),
    "one column of text": ("a\nx\ny\n", {}, "only text, 'a', when separated by ','.*pass it: delimiter="),
    "wrong delimiter": ("a;b\n1.5;2\n", {"delimiter": ","}, "only text, 'a;b', when separated by ','"),
    "wrong delimiter, ragged": ("a;b\n1,5;2\n", {"delimiter": ","}, "line 2 has 2 fields where the first has 1"),
    "ragged": ("a,b\n1,2,3\n4,5,6\n", {}, "line 2 has 3 fields where the first has 2"),
    "no numbers": ("a,b\nx,y\n", {}, r"no column holds numbers.*'a' \(text\), 'b' \(text\)"),
    "only a time": ("time,b\n2007-02-01,y\n", {}, r"no column holds numbers.*'time' \(the time\)"),
    "binary": (bytes(range(256)) * 9, {}, "a binary file that is not Parquet or Arrow"),
    "latin-1": ("a,b\n1,x\n2,é\n".encode("latin1"), {}, "is not UTF-8.*iconv"),
    "latin-1, later": (b"a,b\n" + b"1,%b\n" % (b"x" * 400) * 11_000 + b"2,\xe9\n", {}, "is not UTF-8"),
    "XML": ('<?xml version="1.0"?>\n<gpx><trk/></gpx>\n', {}, "this is XML"),
    "Python": ("{'a': 1}\n{'a': 2}\n", {}, "line 1 is not a JSON object"),
    "names twice": ("a,b,a\n1,2,3\n", {}, "line 1 names more than one column 'a'"),
    "zip": (b"PK\x03\x04\0 and more", {}, "a binary file"),
    "gzip cut short": (gzip.compress(b"a,b\n" + b"1,2\n" * 9999)[:-20], {}, "damaged or incomplete"),
    "parquet cut short": (b"PAR1" + bytes(100), {}, "damaged or incomplete"),
    "arrow cut short": (b"ARROW1\0\0" + bytes(100), {}, "damaged or incomplete"),
    "JSON array": ('[{"a": 1}, 2', {}, "this is not JSON"),
    "JSON over lines": ('{"a":\n1}\n', {}, "line 1 is not a JSON object"),
    "JSON without names": ("{}\n{}\n", {}, "the table has no columns"),
    "time unknown": ("a,b\n1,2\n", {"time": "when"}, "no column 'when' to take the time from. It has: 'a', 'b'"),
    "time is text": ("a,b\n1,x\n", {"time": "b"}, "'b' does not read as a time"),
    "newest first, by name": (NEWEST_FIRST, {"time": "when"}, "from the newest to the oldest by column 'when'"),
    "newest first": (NEWEST_FIRST, {}, "from the newest to the oldest by column 'when'"),
}


@pytest.mark.parametrize("what", BAD)
def test_a_bad_file_gets_one_clear_message(what: str, tmp_path: Path) -> None:
    content, options, message = BAD[what]
    path = tmp_path / "log.csv"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(TableError, match=message) as caught:
        list(open_table(path, **options).blocks())
    assert str(caught.value).startswith(f"{path}: ")
    assert "\n" not in str(caught.value)


def test_no_file_a_folder_and_columns_of_one_name(tmp_path: Path) -> None:
    with pytest.raises(TableError, match="there is no such file"):
        open_table(tmp_path / "nothing.csv")
    with pytest.raises(TableError, match="this folder is not a ROS 2 bag"):
        open_table(str(tmp_path))
    with pytest.raises(TableError, match="more than one column is named 'a'"):
        open_table(pa.Table.from_arrays([pa.array([1.0]), pa.array([2.0])], ["a", "a"]))
    for nothing in (np.zeros((0, 2)), pa.table({"a": pa.array([], pa.float64())})):
        with pytest.raises(TableError, match="columns but no rows"):
            open_table(nothing)
    with pytest.raises(TableError, match="no columns"):
        open_table({})
    with pytest.raises(TableError, match="a pipe or a device"):
        open_table("/dev/null")


def test_a_damaged_page_is_found_on_the_way(tmp_path: Path) -> None:
    whole_file = emphatic.nexting.data.household().read_bytes()
    path = tmp_path / "log.parquet"
    path.write_bytes(whole_file[:150_000] + bytes(9000) + whole_file[159_000:])
    with pytest.raises(TableError, match="damaged or incomplete"):
        list(open_table(path).blocks())


def test_bad_parameters() -> None:
    table = open_table(np.zeros((3, 1)))
    for rows in (0, -1, 2.5, "3", True):
        with pytest.raises(ValueError, match="'rows' parameter of blocks must be a whole number of 1 or more"):
            table.blocks(rows)  # type: ignore[arg-type]
    for start in (-1, 0.5, "0"):
        with pytest.raises(ValueError, match="'start' parameter of blocks must be"):
            table.blocks(start=start)  # type: ignore[arg-type]
    for options in (
        {"time": True},
        {"time": 3},
        {"delimiter": ""},
        {"delimiter": ",,"},
        {"delimiter": "\n"},
        {"delimiter": "§"},
    ):
        with pytest.raises(ValueError, match="parameter of open_table must be"):
            open_table(np.zeros((3, 1)), **options)


@pytest.mark.parametrize(("form", "times"), [("csv.gz", 8), ("jsonl", 10), ("parquet", 20)])
def test_memory_does_not_grow_with_the_rows(form: str, times: int, tmp_path: Path) -> None:
    """It stays below 0.8 MB for each 20,000 rows; the values alone are 0.96 MB, and 2.3 as text."""
    rng = np.random.default_rng(0)
    part, most = pa.table({name: rng.normal(size=20_000) for name in "abcdef"}), 0.8 * times
    path = tmp_path / f"log.{form}"
    if form == "csv.gz":
        header, _, body = as_csv()(part, path).read_bytes().partition(b"\n")
        path.write_bytes(gzip.compress(header + b"\n") + gzip.compress(body, 1) * times)
    elif form == "jsonl":
        path.write_bytes((as_json(part, path).read_bytes() + b"\n") * times)
    else:
        pa.parquet.write_table(pa.concat_tables([part] * times), path, use_dictionary=False)
    table = open_table(path)
    before = pa.total_allocated_bytes()
    tracemalloc.start()
    held = []
    for block in table.blocks(8192):
        held.append((tracemalloc.get_traced_memory()[0] + pa.total_allocated_bytes() - before) / 1e6)
        last = block.row + len(block)
    tracemalloc.stop()
    assert last == times * len(part)
    assert max(held) < most
    before = pa.total_allocated_bytes()
    resumed = table.blocks(5000, last - 5000)
    np.testing.assert_array_equal(next(resumed).values, np.column_stack(part.columns)[-5000:])
    assert (pa.total_allocated_bytes() - before) / 1e6 < most  # nothing is kept of the rows passed over
    assert next(resumed, None) is None


def test_importing_is_light() -> None:
    code = "import sys, emphatic, emphatic.nexting.tables; sys.exit('pyarrow' in sys.modules or 'numba' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def naive_gaps(time: NDArray[np.float64], limit: float) -> tuple[list[bool], tuple[int, int, int]]:
    """Row by row, as the rule is written."""
    flags, back, repeats, irregular = [], 0, 0, 0
    last: float | None = None
    at = 0
    for row, now in enumerate(time):
        step = None if last is None or np.isnan(now) else (now - last) / (row - at)
        flags.append(step is not None and (step < 0 or step > limit))
        back += step is not None and step < 0
        repeats += step == 0
        irregular += step is not None and step > 0 and abs(step - 1.0) > 0.1
        if not np.isnan(now):
            last, at = now, row
    return flags, (back, repeats, irregular)


def log_of(steps: Any) -> NDArray[np.float64]:
    return np.concatenate([[0.0], np.cumsum(np.asarray(steps, float))])


@given(
    st.lists(
        st.sampled_from([1.0, 1.0, 1.0, 1.0, 1.05, 0.0, 1.4, 1.6, 4.0, 30.0, -2.0, *[np.nan] * 4]),
        min_size=20,
        max_size=60,
    ),
    st.integers(1, 9),
)
def test_the_clock_flags_the_same_rows_however_they_are_cut(steps: list[float], size: int) -> None:
    time = log_of(np.nan_to_num(steps, nan=1.0))
    time[1:][np.isnan(steps)] = np.nan
    clock, parts = Clock(np.arange(20.0)), []
    for part in np.split(time, range(size, len(time), size)):
        parts.append(clock.find_gaps(part))
        clock = Clock.restore(json.loads(json.dumps(clock.state())))
    at_once = Clock(np.arange(20.0))
    flags = at_once.find_gaps(time)
    expected, counts = naive_gaps(time, 1.5)
    assert np.concatenate(parts).tolist() == flags.tolist() == expected
    assert clock.state() == at_once.state()
    assert (clock.backwards, clock.repeats, clock.irregular) == counts
    assert clock.gaps == sum(expected)
    assert (clock.rows, clock.missing) == (len(time), int(np.isnan(time).sum()))


@given(
    st.lists(st.floats(-1e300, 1e300) | st.sampled_from([0.0, 1.0, 1.05, 1.6, 3.0, 50.0, np.nan]), max_size=40),
    st.lists(st.booleans(), min_size=40, max_size=40),
    st.sampled_from([np.arange(20.0), np.full(5, np.nan), np.repeat(np.arange(20.0), 3), np.array([0.0, 1, 3, 4, 8])]),
)
def test_one_row_after_the_other_is_as_all_at_once(times: list[float], drops: list[bool], first: Any) -> None:
    at_once, one_by_one = Clock(first), Clock(first)
    after_drop = np.array(drops[: len(times)], bool)
    flags = at_once.find_gaps(np.array([0.0, *times]), np.array([False, *after_drop]))
    copied = one_by_one.copy()
    single = [one_by_one.find_gaps(np.array([0.0]))[0]]
    single += [one_by_one.find_gap(time, drop) for time, drop in zip(times, after_drop.tolist(), strict=True)]
    assert single == flags.tolist()
    assert one_by_one.state() == at_once.state()
    assert copied.state() == Clock(first).state()


def test_what_is_a_gap_depends_on_the_log() -> None:
    rng = np.random.default_rng(0)
    regular = Clock(log_of(60 + rng.uniform(-1, 1, 1000)))
    assert regular.regular
    assert regular.step == pytest.approx(60, rel=0.01)
    assert regular.limit == pytest.approx(90, rel=0.01)
    random = log_of(rng.exponential(10.0, 200_000))
    irregular = Clock(random[:10_000])
    assert not irregular.regular
    assert irregular.find_gaps(random).sum() < 100
    assert irregular.find_gaps(np.array([random[-1] + 300.0])).tolist() == [True]
    jumpy = Clock(log_of([1, 1, 2] * 100))
    assert (jumpy.step, jumpy.regular, jumpy.limit) == (1.0, False, 6.0)
    coarse = Clock(np.repeat(np.arange(100.0), 10))  # ten rows a second, whole seconds
    assert coarse.step == pytest.approx(0.1, rel=0.01)
    assert not coarse.find_gaps(np.repeat(np.arange(100.0), 10)).any()
    nothing = Clock(np.full(5, np.nan))
    assert not nothing.find_gaps(np.array([np.nan, 1.0, 100.0])).any()


def test_the_clock_keeps_the_longest_gaps() -> None:
    clock = Clock(np.arange(10.0))
    lengths = [2.0 + (7 * i) % 20 for i in range(20)]
    clock.find_gaps(log_of([length if i % 2 else 1.0 for i in range(40) for length in [lengths[i // 2]]]))
    kept = [after - before for _, before, after in clock.longest]
    assert kept == sorted(lengths, reverse=True)[:10]
    assert clock.gaps == 20
    row, before, after = clock.longest[0]
    assert (row, after - before) == (2 * lengths.index(21.0) + 2, 21.0)


@given(
    st.lists(st.lists(st.sampled_from([1.0, 2.0, np.nan, np.nan]), min_size=3, max_size=3), min_size=10, max_size=30),
    st.integers(1, 9),
)
def test_the_last_value_is_held_however_the_rows_are_cut(rows: list[list[float]], size: int) -> None:
    values = np.array(rows, float).reshape(-1, 3)
    given_values = values.copy()
    hold, filled, holes = Hold(3), [], []
    for part in np.split(values, range(size, len(values), size)):
        full, missing = hold.fill(part)
        filled.append(full)
        holes.append(missing)
        hold = Hold.restore(json.loads(json.dumps(hold.state())))
    np.testing.assert_array_equal(np.concatenate(filled), pd.DataFrame(values).ffill().to_numpy(float).reshape(-1, 3))
    np.testing.assert_array_equal(np.concatenate(holes), np.isnan(values))
    np.testing.assert_array_equal(values, given_values)
    assert hold.missing.tolist() == np.isnan(values).sum(axis=0).tolist()
    runs = ["".join("x" if np.isnan(v) else " " for v in column).split() for column in values.T]
    assert hold.longest.tolist() == [max(map(len, run), default=0) for run in runs]
    assert hold.rows == len(values)


def test_the_household_is_as_it_was_made() -> None:
    """The digest is of the values in the CSV of the wheel: float64, NaN where missing, behind the times in seconds."""
    path = emphatic.nexting.data.household()
    assert path.stat().st_size < 1_000_000
    table = open_table(path)
    assert (table.rows, len(table.names), table.time, table.dated) == (129_600, 7, "time", True)
    block = whole(table)
    time = np.asarray(block.time)
    np.testing.assert_array_equal(time, START + 60.0 * np.arange(129_600))
    missing = np.isnan(block.values)
    assert missing.sum(axis=0).tolist() == [3726] * 7
    assert (missing.all(axis=1) == missing.any(axis=1)).all()
    digest = hashlib.sha256(np.column_stack([time, block.values]).astype("<f8").tobytes()).hexdigest()
    assert digest == "50dfee250720d83f477ee3a7da3e89efbae3cb05d83f1de7308fc326b67c3893"


def test_the_tool_takes_the_days_as_they_stand(tmp_path: Path) -> None:
    header = "Date,Time,Global_active_power,Voltage,Sub_metering_3\n"
    rows = ["31/1/2007,23:59:00,1.0,2.0,3.0", "1/2/2007,00:00:00,4.216,234.840,", "1/5/2007,23:59:00,?,?,7.000"]
    (tmp_path / "source.csv").write_text(header + "\n".join([*rows, "2/5/2007,00:00:00,1.0,2.0,3.0"]))
    tool = Path(__file__).parents[2] / "tools" / "make_household.py"
    made = tmp_path / "made.parquet"
    subprocess.run([sys.executable, tool, tmp_path / "source.csv", "--out", made], check=True, capture_output=True)
    table = open_table(made)
    assert table.names == ("Global_active_power", "Voltage", "Sub_metering_3")
    block = whole(table)
    np.testing.assert_array_equal(block.values, [[4.216, 234.84, np.nan], [np.nan, np.nan, 7.0]])
    assert np.asarray(block.time).tolist() == [START, START + 90 * 86400 - 60]


def test_what_is_masked_is_missing() -> None:
    mask = np.array([False, True, False, False])
    table = open_table({
        "x": np.ma.masked_array([1.0, -999.0, 3.0, 4.0], mask), "n": np.ma.masked_array([1, -999, 3, 4], mask),
        "word": np.ma.masked_array(["a", "b", "a", "c"], mask),
    })  # fmt: skip
    (block,) = table.blocks()
    assert np.array_equal(np.isnan(block.values), np.repeat(mask[:, None], 2, axis=1))
    assert block.labels["word"].tolist() == ["a", None, "a", "c"]


@pytest.mark.parametrize("dtype", [">f8", ">i2", np.longdouble])
def test_arrays_of_other_machines_are_read(dtype: Any) -> None:
    x = np.arange(20).astype(dtype)
    for source in ({"x": x}, x):
        (block,) = open_table(source).blocks(50)
        assert block.values[:, 0].tolist() == list(range(20))


def test_an_array_without_real_numbers_is_refused_by_name() -> None:
    with pytest.raises(TableError, match="'x' is an array of complex128, not of real numbers, times or words"):
        open_table({"x": np.arange(20.0) + 0j})
