"""Logs as people have them: each kind of file is read right, or refused with what to do; and what was found is said."""

from __future__ import annotations

import json
import lzma
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from emphatic.nexting.tables import Block, Table, TableError, open_table
from emphatic.nexting.tables.fields import Notation
from emphatic.nexting.tables.files import OpenOptions, open_file

START = datetime(2024, 3, 1, tzinfo=UTC)
N = 300
TIMES = [START + timedelta(minutes=5 * i) for i in range(N)]
X = np.round(np.sin(np.arange(N) / 9), 4)


@pytest.fixture
def write(tmp_path: Path) -> Any:
    def to_file(lines: Sequence[str], name: str = "log.csv") -> Path:
        path = tmp_path / name
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")
        return path

    return to_file


def only(table: Table) -> Block:
    (block,) = table.blocks()
    return block


def rows(header: str, row: Any) -> list[str]:
    return [header, *(row(when, x) for when, x in zip(TIMES, X, strict=True))]


# ---------------------------------------------------------------------- time by value

WRITTEN: dict[str, tuple[str, Any, str]] = {
    "seconds": ("x,LocalTime", lambda t, x: f"{x},{int(t.timestamp())}", "Unix time in s"),
    "milliseconds": ("x,recorded_at", lambda t, x: f"{x},{int(t.timestamp())}000", "Unix time in ms"),
    "microseconds": ("x,foo", lambda t, x: f"{x},{int(t.timestamp())}000000", "Unix time in µs"),
    "nanoseconds": ("x,foo", lambda t, x: f"{x},{int(t.timestamp())}000000000", "Unix time in ns"),
    "digits": ("x,c", lambda t, x: f"{x},{t:%Y%m%d%H%M%S}", "%Y%m%d%H%M%S"),
    "digits to the minute": ("x,c", lambda t, x: f"{x},{t:%Y%m%d%H%M}", "%Y%m%d%H%M"),
    "month by name": ("x,c", lambda t, x: f"{x},{t:%d-%b-%Y %H:%M:%S}", "%d-%b-%Y %H:%M:%S"),
    "day first": ("x,c", lambda t, x: f"{x},{t:%d/%m/%Y %H:%M}", "%d/%m/%Y %H:%M"),
    "month first": ("x,c", lambda t, x: f"{x},{t:%m/%d/%Y %H:%M}", "%m/%d/%Y %H:%M"),
    "years to minutes": ("YY,MM,DD,hh,mm,x", lambda t, x: f"{t:%Y,%m,%d,%H,%M},{x}", "%Y month day hour minute"),
    "two columns": ("day,clock,x", lambda t, x: f"{t:%d.%m.%Y},{t:%H:%M:%S},{x}", "%d.%m.%Y %H:%M:%S"),
    "two columns, digits": ("day,clock,x", lambda t, x: f"{t:%Y%m%d},{t:%H:%M},{x}", "%Y%m%d %H:%M"),
}


@pytest.mark.parametrize("how", WRITTEN)
def test_time_is_found_by_value(how: str, write: Any) -> None:
    header, row, form = WRITTEN[how]
    table = open_table(write(rows(header, row)))
    block = only(table)
    assert table.names == ("x",)
    assert table.dated
    np.testing.assert_array_equal(np.asarray(block.time), [t.timestamp() for t in TIMES])
    np.testing.assert_array_equal(block.values[:, 0], X)
    assert table.facts()["time"]["format"] == form
    clock = table.clock()
    assert clock is not None
    assert clock.step == 300.0


def test_typed_numbers_are_times_too() -> None:
    stamps = [int(t.timestamp() * 1000) for t in TIMES]
    digits = [float(f"{t:%Y%m%d%H%M%S}") for t in TIMES]
    for column in (stamps, digits):
        table = open_table({"x": X, "recorded_at": column})
        assert (table.names, table.time, table.dated) == (("x",), "recorded_at", True)
        np.testing.assert_array_equal(np.asarray(only(table).time), [t.timestamp() for t in TIMES])


def test_a_number_that_is_not_monotone_is_never_the_time(write: Any) -> None:
    wave = [int(TIMES[0].timestamp() + 1e5 * x) for x in X]
    table = open_table(write(["x,meter", *(f"{x},{w}" for x, w in zip(X, wave, strict=True))]))
    assert (table.names, table.time) == (("x", "meter"), None)
    assert table.facts()["time"] == {"why": "no column reads as a time"}
    table = open_table(write(["x,t", *(f"{x},{i % 100}" for i, x in enumerate(X))]))
    assert (table.names, table.time) == (("x", "t"), None)
    assert table.facts()["time"] == {"why": "column 't' goes backwards"}
    nanoseconds = np.random.default_rng(0).normal(1.5e9, 1e8, N).round()
    table = open_table({"x": X, "response_time": nanoseconds})
    assert (table.names, table.time) == (("x", "response_time"), None)
    assert table.facts()["time"] == {"why": "column 'response_time' goes backwards"}
    counter = [int(TIMES[0].timestamp()) + i * i for i in range(N)]  # it only counts: no even steps, no such name
    table = open_table(write(["x,bytes", *(f"{x},{c}" for x, c in zip(X, counter, strict=True))]))
    assert table.names == ("x", "bytes")


def test_day_and_month_are_told_apart_by_the_data(write: Any) -> None:
    """Three hours around midnight, in the first days of a month, where both readings are dates."""
    when = [datetime(2024, 3, 1, 22, tzinfo=UTC) + timedelta(minutes=5 * i) for i in range(36)]
    for form in ("%d/%m/%Y %H:%M", "%m/%d/%Y %H:%M", "%d-%m-%Y %H:%M", "%m-%d-%Y %H:%M"):
        block = only(open_table(write(["time,x", *(f"{t.strftime(form)},1" for t in when)])))
        np.testing.assert_array_equal(np.asarray(block.time), [t.timestamp() for t in when])


# ---------------------------------------------------------------------- the order of rows


def shuffled() -> list[str]:
    lines = rows("time,x,mode", lambda t, x: f"{t:%Y-%m-%d %H:%M},{x},{'abc'[t.minute % 3]}")
    order = np.random.default_rng(0).permutation(N)
    return [lines[0], *(lines[1 + i] for i in order)]


def test_unsorted_rows_are_refused_or_sorted(write: Any) -> None:
    path = write(shuffled())
    for time in (None, "time"):
        with pytest.raises(TableError, match=r"not sorted by time: column 'time' goes back .*sort=True.*time=False"):
            open_table(path, time=time)
    assert open_table(path, time=False).time is None
    table = open_table(path, sort=True)
    block = only(table)
    np.testing.assert_array_equal(np.asarray(block.time), [t.timestamp() for t in TIMES])
    np.testing.assert_array_equal(block.values[:, 0], X)
    np.testing.assert_array_equal(block.numbers, np.argsort(np.random.default_rng(0).permutation(N)))
    assert block.labels["mode"].tolist() == ["abc"[t.minute % 3] for t in TIMES]
    newest = write([shuffled()[0], *rows("", lambda t, x: f"{t:%Y-%m-%d %H:%M},{x},a")[:0:-1]])
    with pytest.raises(TableError, match="from the newest to the oldest"):
        open_table(newest)
    np.testing.assert_array_equal(only(open_table(newest, sort=True)).values[:, 0], X)
    with pytest.raises(TableError, match="no time to sort by"):
        open_table({"x": X}, sort=True)


def test_unix_times_that_are_not_sorted_are_refused_too() -> None:
    stamps = np.array([t.timestamp() for t in TIMES])
    stamps[[10, 20]] = stamps[[20, 10]]
    with pytest.raises(TableError, match="not sorted by time"):
        open_table({"x": X, "recorded_at": stamps})
    np.testing.assert_array_equal(only(open_table({"x": X, "recorded_at": stamps}, sort=True)).time, np.sort(stamps))


def test_a_count_of_seconds_that_is_not_sorted_is_refused_where_it_is_named() -> None:
    order = np.random.default_rng(0).permutation(N)
    with pytest.raises(TableError, match="not sorted by time: column 'elapsed'"):
        open_table({"x": X[order], "elapsed": np.arange(N)[order]}, time="elapsed")
    sessions = np.arange(N) % 200  # starts again once
    assert open_table({"x": X, "elapsed": sessions}, time="elapsed").time == "elapsed"


def test_a_clock_put_back_an_hour_is_no_disorder(write: Any) -> None:
    when = [t if i < 200 else t - timedelta(hours=1) for i, t in enumerate(TIMES)]
    table = open_table(write(["time,x", *(f"{t:%Y-%m-%d %H:%M},{x}" for t, x in zip(when, X, strict=True))]))
    clock = table.clock()
    assert clock is not None
    assert np.flatnonzero(only(table).find_gaps(clock)).tolist() == [200]


def test_rows_without_a_time_stay_behind_the_row_they_followed() -> None:
    time = np.array(["2024-03-03", "NaT", "2024-03-01", "2024-03-02"], "datetime64[D]")
    table = open_table({"time": time.astype("datetime64[s]"), "x": [3.0, 3.5, 1.0, 2.0]}, sort=True)
    assert only(table).values[:, 0].tolist() == [1.0, 2.0, 3.0, 3.5]


# ---------------------------------------------------------------------- long format


def long() -> list[str]:
    pairs = [(t, x, s) for t, x in zip(TIMES, X, strict=True) for s in ("A", "B", "C")]
    return ["time,sensor,value", *(f"{t:%Y-%m-%d %H:%M},{s},{x + ord(s)}" for t, x, s in pairs)]


def test_long_format_with_other_names_numbers_for_sensors_and_holes(write: Any) -> None:
    lines = long()
    odd = ["when,tag,unit,reading", *(line.replace(",A,", ",7,K,").replace(",B,", ",8,V,") for line in lines[1:])]
    odd = [line for line in odd if ",C," not in line]
    del odd[2]  # the first reading of sensor 8
    odd += [odd[-1], "2024-03-05 00:00,,K,1"]  # one twice, one of no sensor
    path = write(odd)
    for pivot in (None, ["tag", "reading"], "tag,reading"):
        table = open_table(path, pivot=pivot)
        assert (table.names, table.time) == (("7", "8"), "when")
    assert open_table(write(lines, "long.csv"), pivot=False).categories == ("sensor",)
    block = only(table)
    assert block.values.shape == (N, 2)
    assert np.isnan(block.values[0, 1])
    np.testing.assert_allclose(block.values[1:], X[1:, None] + [65, 66])
    reasons = {one["why"]: one["count"] for one in table.facts()["rows_dropped"]}
    assert reasons == {"no time or no 'tag'": 1, "another reading of the same 'tag' at the same time follows": 1}
    with pytest.raises(TableError, match="no column 'sensor' to pivot"):
        open_table(path, pivot="sensor,reading")
    with pytest.raises(TableError, match="'unit' holds no numbers"):
        open_table(path, pivot="tag,unit")
    for bad in ("tag", True, ["a", "a"], 3.5):
        with pytest.raises((ValueError, TypeError)):
            open_table(path, pivot=bad)  # type: ignore[arg-type]


def test_a_log_with_a_mode_is_not_long(write: Any) -> None:
    """Ten rows a second in whole seconds, and words that come again within one."""
    lines = [
        f"2024-03-01 00:{i // 600:02d}:{i // 10 % 60:02d},{['on', 'idle'][i % 7 > 2]},{i % 13}" for i in range(900)
    ]
    assert open_table(write(["time,mode,x", *lines])).categories == ("mode",)


# ---------------------------------------------------------------------- fields


def test_units_below_the_header_are_dropped_and_told(write: Any) -> None:
    path = write(["time,power,mode,level", ",kW,,%", *rows("", lambda t, x: f"{t:%Y-%m-%d %H:%M},{x},a b,1")[1:]])
    table = open_table(path)
    block = only(table)
    assert (table.names, table.categories, table.time) == (("power", "level"), ("mode",), "time")
    np.testing.assert_array_equal(block.values[:, 0], X)
    facts = table.facts()
    assert facts["units"] == {"power": "kW", "level": "%"}
    assert facts["rows_dropped"] == [{"why": "units below the header", "count": 1, "first": 2}]
    assert block.numbers is not None
    assert block.numbers[0] == 1  # the file's own row
    assert not block.find_gaps(None).any()
    # A row with a time is a row, whatever is unreadable in it.
    assert len(only(open_table(write(["time,x", "2024-03-01,Error", "2024-03-02,1", "2024-03-03,2"])))) == 3


@pytest.mark.parametrize(("yes", "no"), [("ON", "OFF"), ("yes", "no"), ("Open", "Closed")])
def test_switches_are_numbers(yes: str, no: str, write: Any) -> None:
    words = [(yes, "heat") if x > 0 else (no, no) for x in X]
    words[6], words[7] = ("", "heat"), (yes.swapcase(), "heat")
    lines = ["valve,mode,x", *(f"{valve},{mode},{x}" for (valve, mode), x in zip(words, X, strict=True))]
    table = open_table(write(lines))
    assert (table.names, table.categories) == (("valve", "x"), ("mode",))
    expected = (X > 0).astype(float)
    expected[6] = np.nan
    np.testing.assert_array_equal(only(table).values[:, 0], expected)
    assert table.notation.switches == ("valve",)
    assert open_table(write(lines), words=["valve"]).categories == ("valve", "mode")


def test_percentages_are_numbers(write: Any) -> None:
    level = [f"{50 + 10 * x:.2f} %" for x in X]
    level[6], level[7] = "", "50"
    lines = [f"{own};{'100%' if x > 0 else 'none'};{x}" for own, x in zip(level, X, strict=True)]
    expected = np.array([float(own.rstrip(" %") or "nan") for own in level])
    for path in (write(["level;mode;x", *lines]), write(["level;mode;x", *(line.replace(".", ",") for line in lines)])):
        table = open_table(path)
        assert table.names == ("level", "mode", "x")
        np.testing.assert_array_equal(only(table).values[:, 0], expected)
        np.testing.assert_array_equal(only(table).values[:, 1], np.where(X > 0, 100.0, np.nan))
        assert table.facts()["percent"] == ["level", "mode"]
        assert Notation.from_config(table.notation.config()).style_of("level").percent
    assert open_table(path, words=["mode"]).categories == ("mode",)


def test_short_rows_are_filled_and_long_ones_dropped(write: Any) -> None:
    table = open_table(write(["a,b,c", "1,2,3", "4,5", "6", "7,8,9,10", "11,12,13", "14,15,16"]))
    block = only(table)
    nan = np.nan
    expected = [[1, 2, 3], [4, 5, nan], [6, nan, nan], [11, 12, 13], [14, 15, 16]]
    np.testing.assert_array_equal(block.values, expected)
    assert block.numbers is not None
    assert block.numbers.tolist() == [0, 1, 2, 4, 5]
    assert block.find_gaps(None).tolist() == [False, False, False, True, False]
    facts = table.facts()
    assert facts["rows_short"] == 2
    assert facts["rows_dropped"] == [{"why": "4 fields, where the header has 3", "count": 1, "first": 5}]
    for size in (1, 2, 3):
        parts = list(table.blocks(size))
        np.testing.assert_array_equal(np.concatenate([p.values for p in parts]), expected)
        assert [bool(g) for p in parts for g in p.find_gaps(None)] == [False, False, False, True, False]
        later = list(table.blocks(size, 3))
        assert [int(n) for p in later for n in p.numbers] == [4, 5]  # type: ignore[union-attr]
        assert [bool(g) for p in later for g in p.find_gaps(None)] == [True, False]


def test_a_stray_quote_costs_its_own_row(write: Any) -> None:
    lines = [f"{i},{i}" for i in range(5000)]
    lines[10], lines[4000] = '10,"10', '4000,"x'
    table = open_table(write(["a,b", *lines]))
    block = only(table)
    assert block.values[:, 0].tolist() == [i for i in range(5000) if i not in (10, 4000)]
    assert table.facts()["rows_dropped"] == [{"why": "a quote is never closed", "count": 2, "first": 12}]
    # Text may go on over lines, even where a part of the file ends.
    rows, long = 6000, "x" * 250
    fine = [f'{i},{i},"a note{chr(10)}{long}"' if i % 3 else f"{i},{i},{long}" for i in range(rows)]
    table = open_table(write(["a,b,note", *fine]))
    values = np.concatenate([block.values for block in table.blocks()])
    np.testing.assert_array_equal(values[:, 0], np.arange(rows))
    assert table.dropped.count == 0


@pytest.mark.parametrize("first", ["sep=;", '"sep=;"', "SEP=; "])
def test_a_first_line_may_name_the_delimiter(first: str, write: Any) -> None:
    table = open_table(write([first, "a;b", "1,5;2", "2,25;3", "1;2;3"]))
    assert table.names == ("a", "b")
    assert only(table).values.tolist() == [[1.5, 2], [2.25, 3]]
    facts = table.facts()
    assert (facts["delimiter"], facts["rows_dropped"][0]["first"]) == (";", 5)


@pytest.mark.parametrize(("line", "why"), [("a,b", "the header again"), ("# started again", "a comment")])
def test_the_header_again_and_comments_are_no_rows(line: str, why: str, write: Any) -> None:
    table = open_table(write(["a,b", "1,2", "3,4", line, "5,6"]))
    assert only(table).values.tolist() == [[1, 2], [3, 4], [5, 6]]
    assert table.facts()["rows_dropped"] == [{"why": why, "count": 1, "first": 4}]
    assert only(table).find_gaps(None).tolist() == [False, False, True]


@pytest.mark.parametrize(
    ("lines", "values", "decimal", "thousands"),
    [
        (["a;b", "1.100,5;2", "2,25;1.234.567", "3,5;1.000"], [[1100.5, 2], [2.25, 1234567], [3.5, 1000]], ",", "."),
        (["a,b", '"1,100.5",2', '"12,345",3', "4,5"], [[1100.5, 2], [12345, 3], [4, 5]], ".", ","),
        (["a;b", "1 100,5;2", "2,25;3", "3,5;1"], [[1100.5, 2], [2.25, 3], [3.5, 1]], ",", " "),
        (["a;b", "1'100.5;2", "2.25;3", "3.5;1"], [[1100.5, 2], [2.25, 3], [3.5, 1]], ".", "'"),
        (["a;b", "1\u00a0100,5;2", "2,25;3", "3,5;1"], [[1100.5, 2], [2.25, 3], [3.5, 1]], ",", "\u00a0"),
        (["a;b", "1,234;2", "2,345;3", "3,5;1"], [[1.234, 2], [2.345, 3], [3.5, 1]], ",", None),
        (["a,b", '"1,5",2', '"2,25",3', '"3,125",1'], [[1.5, 2], [2.25, 3], [3.125, 1]], ",", None),
        (["a,b", '"1,234",2', '"12,345",3', "999,1"], [[1234, 2], [12345, 3], [999, 1]], ".", ","),
    ],
)
def test_signs_of_decimals_and_thousands(
    lines: list[str], values: list[Any], decimal: str, thousands: str | None, write: Any
) -> None:
    table = open_table(write(lines))
    assert only(table).values.tolist() == values
    facts = table.facts()
    assert (facts["decimal"], facts["thousands"]) == (decimal, thousands)


# ---------------------------------------------------------------------- files


def test_damaged_xz(tmp_path: Path) -> None:
    """(Whole files of every compression are among the forms of ``test_streams``.)"""
    packed = lzma.compress("\n".join(rows("time,x", lambda t, x: f"{t:%Y-%m-%d %H:%M},{x}")).encode())
    path = tmp_path / "log.csv.xz"
    for damaged in (packed[:-40], packed[:40] + b"\xff" * 40 + packed[80:]):
        path.write_bytes(damaged)
        with pytest.raises(TableError, match="damaged or incomplete"):
            open_table(path)


def test_checksums_of_parquet_pages_are_verified(tmp_path: Path) -> None:
    path = tmp_path / "log.parquet"
    table = pa.table({"x": np.random.default_rng(0).normal(size=5000)})
    pq.write_table(table, path, write_page_checksum=True, compression="none", use_dictionary=False)
    content = bytearray(path.read_bytes())
    content[20_000] ^= 1  # the lowest bit of some value: a file that reads well, and wrong
    path.write_bytes(content)
    with pytest.raises(TableError, match="damaged or incomplete"):
        list(open_table(path).blocks())


@pytest.mark.long
def test_a_hundred_thousand_columns(write: Any) -> None:
    names = [f"sensor_{i:06d}" for i in range(100_000)]
    path = write([",".join(names), ",".join("1" for _ in names), ",".join("2" for _ in names)])
    source = open_file(str(path), OpenOptions())
    assert source.look().column_names == names
    (batch,) = source.batches((names[0], names[-1]), 0)
    assert [batch.column(i).to_pylist() for i in (0, 1)] == [["1", "2"]] * 2


def test_json_lines_nested_deep_or_with_half_a_character(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    deep = "[" * 100_000
    odd = ["{" + '"a":{' * 100_000, f'{{"a": {deep}', '{"a": 1, "b": "\\ud800x"}', '{"a": 2} {"a": 3}', '{"a": 4}']
    path.write_text('{"a": 0, "b": "y"}\n' + "\n".join(odd))
    table = open_table(path)
    block = only(table)
    assert block.values[:, 0].tolist() == [0, 1, 4]
    assert block.labels["b"].tolist() == ["y", "\ufffdx", None]
    assert block.numbers is not None
    assert block.numbers.tolist() == [0, 3, 5]
    assert block.find_gaps(None).tolist() == [False, True, True]
    assert table.facts()["rows_dropped"] == [{"why": "not an object of JSON", "count": 3, "first": 2}]


def test_zones_are_kept(write: Any) -> None:
    def zone(*stamps: str) -> str | None:
        return open_table(write(["time,x", *(f"{stamp},{i}" for i, stamp in enumerate(stamps))])).zone

    assert zone("2024-03-01T00:00:00+01:00", "2024-03-01T00:05:00+01:00") == "+01:00"
    assert zone("2024-03-01 00:00:00Z", "2024-03-01 00:05:00.5Z") == "UTC"
    assert zone("2024-03-01T00:00-0330", "2024-03-01T00:05-0330") == "-03:30"
    assert zone("2024-03-31T01:00:00+01:00", "2024-03-31T03:00:00+02:00") == "UTC"
    assert zone("2024-03-01T00:00:00", "2024-03-01T00:05:00") is None
    assert zone("2024-03-01T00:00:00Z", "2024-03-01T00:05:00") is None
    assert zone("2024-03-01", "2024-03-02") is None
    typed = pa.table({"t": pa.array(TIMES).cast(pa.timestamp("ms", "Europe/Paris")), "x": X})
    assert open_table(typed).zone == "Europe/Paris"


def test_what_was_found_can_be_written_as_json(write: Any) -> None:
    table = open_table(write(rows("time,x,when", lambda t, x: f"{t:%Y-%m-%d %H:%M},{x},{t:%H:%M}")))
    facts = json.loads(json.dumps(table.facts()))
    assert facts["time"] == {"columns": ["time"], "format": "ISO 8601", "zone": None}
    assert facts["columns_left_out"] == [{"name": "when", "why": "a time of day"}]
    assert (facts["delimiter"], facts["decimal"], facts["thousands"]) == (",", ".", None)
