"""What loggers and services export is read right, by itself or with the option that says how."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import emphatic
from emphatic.common.settings import MONTH, YEAR
from emphatic.nexting.tables import Block, ReadingGuard, Table, TableError, open_table

START = datetime(2024, 3, 25, tzinfo=UTC)
N = 120
X = [round(50 + 10 * math.sin(i / 9), 3) for i in range(N)]


def only(table: Table) -> Block:
    (block,) = table.blocks()
    return block


def opened(path: Path, lines: Sequence[str], name: str = "log.txt", **options: Any) -> Table:
    file = path / name
    file.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return open_table(file, **options)


def signal(table: Table, name: str) -> list[float]:
    values: list[float] = only(table).values[:, table.names.index(name)].tolist()
    return values


def times(table: Table) -> list[float]:
    time = only(table).time
    assert time is not None
    seconds: list[float] = time.tolist()
    return seconds


def usual_step(table: Table) -> float:
    clock = table.clock()
    assert clock is not None
    return clock.step


def stamp(i: int, form: str = "%Y-%m-%d %H:%M:%S", minutes: float = 10) -> str:
    return (START + timedelta(minutes=minutes * i)).strftime(form)


# ---------------------------------------------------------------------- text above and below the header


@pytest.mark.parametrize(
    "above",
    [
        ["Messprotokoll Anlage 7;;;", "Erstellt: 26.03.2024;;;", ";;;"],
        ["Logger 7", "Serial: 1234", ""],
        ["Report of the plant", "", "Location;Hall 3", ""],
    ],
)
@pytest.mark.parametrize("units", [[], [";°C;bar;%"]])
def test_titles_above_the_header(above: list[str], units: list[str], tmp_path: Path) -> None:
    rows = [f"{stamp(i, '%d.%m.%Y %H:%M')};{str(x).replace('.', ',')};{i % 7},5;{i % 3}" for i, x in enumerate(X)]
    table = opened(tmp_path, [*above, "Zeit;Vorlauf;Druck;Ventil", *units, *rows])
    assert table.names == ("Vorlauf", "Druck", "Ventil")
    assert signal(table, "Vorlauf") == X
    why = {drop["why"]: drop["count"] for drop in table.facts()["rows_dropped"]}
    assert why == {"above the header": len(above)} | ({"units below the header": 1} if units else {})


def test_lines_that_are_the_same_as_the_line_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond what is looked at when a file is opened, too."""
    for name in ("files.LOOK", "text._BLOCK"):
        monkeypatch.setattr(f"emphatic.nexting.tables.{name}", 1 << 14)
    rows = 30 * N
    lines = [f"{stamp(i)},{X[i % N]},{i % 7}" for i in range(rows)]
    table = opened(tmp_path, ["time,temp,flow", *(line for line in lines for _ in range(2))])
    assert table.count_rows() == rows == sum(map(len, table.blocks()))
    assert table.facts()["rows_dropped"] == [{"why": "the same as the row before", "count": rows, "first": 3}]
    assert not any(block.gap.any() for block in table.blocks())
    assert usual_step(table) == 600.0


@pytest.mark.parametrize("delimiter", [";", ",", "\t"])
def test_a_header_that_begins_with_a_hash_and_stamps_in_utc(delimiter: str, tmp_path: Path) -> None:
    lines = ["# by sadf", delimiter.join(["# hostname", "timestamp", "%user", "%idle"])]
    lines += [delimiter.join(["plant7", f"{stamp(i)} UTC", str(x), str(100 - i)]) for i, x in enumerate(X)]
    table = opened(tmp_path, lines)
    assert (table.names, table.time, table.zone) == (("%user", "%idle"), "timestamp", "UTC")
    assert signal(table, "%user") == X
    assert times(table)[3] - START.timestamp() == 1800.0


def test_the_user_says_where_the_header_is(tmp_path: Path) -> None:
    rows = [f"{i},{x}" for i, x in enumerate(X)]
    table = opened(tmp_path, ["a,b,c", "more, of this", "1,2", *rows], skip_lines=3, header="t,x")
    assert (table.time, table.names, signal(table, "x")) == ("t", ("x",), X)
    table = opened(tmp_path, ["words,here", "2020,2021", *rows], header=2)
    assert table.names == ("2020", "2021")
    table = opened(tmp_path, ["t,x", *rows], header=0)
    assert (table.names, len(only(table))) == (("column_1", "column_2"), N + 1)
    for option in ({"header": -1}, {"skip_lines": -1}, {"skip_lines": "2"}, {"header": True}):
        with pytest.raises(ValueError, match=next(iter(option))):
            opened(tmp_path, ["t,x", *rows], **option)


def test_a_header_that_is_one_field_short_is_no_title(tmp_path: Path) -> None:
    with pytest.raises(TableError, match="fields"):
        opened(tmp_path, ["a b c", *(f"{i} {x} 2 3" for i, x in enumerate(X))])


# ---------------------------------------------------------------------- months, years and codes

MONTHS = [(year, month) for year in range(1980, 1996) for month in range(1, 13)]


@pytest.mark.parametrize(
    ("header", "form"),
    [
        ("month,x", "{d:%b %Y},{x}"),
        ("when,x", "{d:%Y-%m},{x}"),
        ("d,x", "{d:%m/%Y},{x}"),
        ("year,month,x", "{d:%Y},{d.month},{x}"),
        ("x,Year,Month", "{x},{d:%Y},{d:%B}"),
        ("period,x", "{d:%b-%Y},{x}"),
    ],
)
def test_months_are_steps(header: str, form: str, tmp_path: Path) -> None:
    lines = [form.format(d=datetime(*when, 1), x=i % 12) for i, when in enumerate(MONTHS)]
    table = opened(tmp_path, [header, *lines])
    assert (table.names, usual_step(table)) == (("x",), MONTH)
    assert not only(table).gap.any()
    assert times(table)[13] == datetime(1981, 2, 1, tzinfo=UTC).timestamp()


@pytest.mark.parametrize("form", ["{y}Q{q}", "{y}-Q{q}", "{y} Q{q}", "Q{q} {y}", "q{q}-{y}", "{y}/Q{q}"])
def test_quarters_are_steps(form: str, tmp_path: Path) -> None:
    quarters = [(year, quarter) for year in range(1980, 2010) for quarter in range(1, 5)]
    lines = [f"{form.format(y=year, q=quarter)},{quarter + year % 3}" for year, quarter in quarters]
    table = opened(tmp_path, ["when,x", *lines])
    assert (table.names, usual_step(table)) == (("x",), 3 * MONTH)
    assert not only(table).gap.any()
    assert times(table)[6] == datetime(1981, 7, 1, tzinfo=UTC).timestamp()


def test_words_with_a_q_are_no_quarters(tmp_path: Path) -> None:
    table = opened(tmp_path, ["mode,x", *(f"Q{5 if x > 50 else 0} 1980,{x}" for x in X)])
    assert (table.time, table.categories) == (None, ("mode",))


@pytest.mark.parametrize("header", ["year,x", "date,x", "x,Jahr"])
def test_years_are_steps(header: str, tmp_path: Path) -> None:
    pairs = [(year, year % 11) for year in range(1750, 1900)]
    table = opened(tmp_path, [header, *(f"{b},{a}" if header[0] == "x" else f"{a},{b}" for a, b in pairs)])
    assert (table.names, usual_step(table)) == (("x",), YEAR)
    few = {"rate": 0.3, "features": [{"kind": "bias"}, {"kind": "soft_bins", "of": "*", "bins": 3}]}
    result = emphatic.nexting.run(tmp_path / "log.txt", horizons=["1y", "3y"], config=few)
    assert result.reading["step_text"] == "1 y"
    assert all(score["variance_explained"] is not None for score in result.summary[1:])


@pytest.mark.parametrize("code", [-999.0, 65535.0, 1e20])
def test_codes_are_named_and_the_user_decides(code: float, tmp_path: Path) -> None:
    x = np.round(20 + np.sin(np.arange(900) / 20), 3)
    x[300::50] = code
    few = {"rate": 0.3, "features": [{"kind": "bias"}, {"kind": "soft_bins", "of": "*", "bins": 3}]}
    result = emphatic.nexting.run({"x": x}, horizons=[2], config=few)
    assert result.reading["sentinels"] == {"x": {f"{code:.10g}": 12}}
    result = emphatic.nexting.run({"x": x}, horizons=[2], config=few, keep_sentinels=True)
    assert (result.reading["sentinels"], result.reading["guarded"]) == ({}, {})
    result = emphatic.nexting.run({"x": x}, horizons=[2], config=few, missing=[code])
    assert (result.reading["sentinels"], result.reading["guarded"]) == ({}, {})
    table = opened(tmp_path, ["x", *(f"{value}" for value in x[:400])], missing=[code, "err"])
    assert np.isnan(only(table).values[[300, 350], 0]).all()


def test_a_guard_that_is_saved_still_names_codes() -> None:
    guard = ReadingGuard(2).warm_up(np.sin(np.arange(600.0)).reshape(300, 2))
    guard.judge(np.array([[-999.0, 0.0], [-999.0, 0.1]]))
    again = ReadingGuard.restore(json.loads(json.dumps(guard.state())))
    assert again.sentinels(["a", "b"]) == guard.copy().sentinels(["a", "b"]) == {"a": {"-999": 2}}


# ---------------------------------------------------------------------- services and spreadsheets


def test_spreadsheets(tmp_path: Path) -> None:
    pytest.importorskip("python_calamine")
    openpyxl = pytest.importorskip("openpyxl")
    book = openpyxl.Workbook()
    for about in (["Made by", "a tool"], ["Version", 3]):  # a sheet about the others
        book.active.append(about)
    sheet = book.create_sheet("Data")
    for row in (["Plant 7"], [], ["Time", "Power", "Valve"], [None, "kW", None]):
        sheet.append(row)
    for i, x in enumerate(X):
        sheet.append([(START + timedelta(minutes=i)).replace(tzinfo=None), x, "on" if i % 2 else "off"])
    book.save(tmp_path / "log.xlsx")
    table = open_table(tmp_path / "log.xlsx")
    assert (table.names, table.time, table.dated) == (("Power", "Valve"), "Time", True)
    assert signal(table, "Power") == X
    assert table.facts()["units"] == {"Power": "kW"}
    (tmp_path / "damaged.xlsx").write_bytes((tmp_path / "log.xlsx").read_bytes()[:2000])
    with pytest.raises(TableError, match="damaged"):
        open_table(tmp_path / "damaged.xlsx")


# ---------------------------------------------------------------------- more kinds of the same


@pytest.mark.parametrize(
    ("lines", "names"),
    [
        # Campbell's TOA5: the logger's own line has more fields, and two rows of words lie below the header.
        (
            ['"TOA5","St7","CR1000","12"', '"TIMESTAMP","RECORD","T"', '"TS","RN","Deg C"', '"","","Avg"'],
            ("RECORD", "T"),
        ),
        (["# Station 12", "# time, n, T", "# -, -, degC"], ("n", "T")),
        (["#time,n,T", "#s,-,K"], ("n", "T")),
    ],
)
def test_headers_of_loggers(lines: list[str], names: tuple[str, ...], tmp_path: Path) -> None:
    blank = " " if lines[0] == "# Station 12" else ""
    table = opened(tmp_path, [*lines, *(f"{stamp(i)},{blank}{i},{blank}{x}" for i, x in enumerate(X))])
    assert table.names == names
    assert signal(table, "T") == X


@pytest.mark.parametrize(
    ("header", "form"),
    [
        ("year,month,day,hour", "{t.year},{t.month},{t.day},{t.hour}"),
        ("Date,Hour", "{t:%Y-%m-%d},{t.hour}"),
    ],
)
def test_hours_beside_a_date(header: str, form: str, tmp_path: Path) -> None:
    moments = [START + timedelta(hours=i) for i in range(N)]
    stamps = [eval(f"f'{form}'", {"t": moment}) for moment in moments]
    table = opened(tmp_path, [f"{header},x", *(f"{s},{x}" for s, x in zip(stamps, X, strict=True))])
    assert table.names == ("x",)
    assert times(table) == [moment.timestamp() for moment in moments]


def test_the_least_value_is_no_minute(tmp_path: Path) -> None:
    moments = [START + timedelta(hours=i) for i in range(N)]
    rows = [f"{t.year},{t.month},{t.day},{t.hour},{i % 7},{i % 7 + 9}" for i, t in enumerate(moments)]
    table = opened(tmp_path, ["year,month,day,hour,min,max", *rows])
    assert (table.names, table.time) == (("min", "max"), "year+month+day+hour")


def test_months_as_digits(tmp_path: Path) -> None:
    rows = [f"{1970 + i // 12}{i % 12 + 1:02d},{x}" for i, x in enumerate(X)]
    table = opened(tmp_path, ["yyyymm,x", *rows])
    assert (table.names, usual_step(table)) == (("x",), MONTH)


@pytest.mark.parametrize("indent", [None, 1])
@pytest.mark.parametrize("name", ["x", "sensor.x"])
def test_json_documents(name: str, indent: int | None, tmp_path: Path) -> None:
    rows: list[Any] = [{"time": stamp(i), "x": x} for i, x in enumerate(X)]
    history = [{"state": str(x), "last_changed": stamp(i)} for i, x in enumerate(X)]
    value = rows if name == "x" else [[{"entity_id": name, **history[0]}, *history[1:]], []]
    table = opened(tmp_path, [json.dumps(value, indent=indent)], "log.json")
    assert table.names == (name,)
    assert signal(table, name) == X
    assert times(table)[1] == START.timestamp() + 600.0


def test_names_that_repeat_are_refused(tmp_path: Path) -> None:
    lines = ["time,x,x", *(f"{stamp(i)},{x},{-x}" for i, x in enumerate(X))]
    with pytest.raises(TableError, match=r"line 1 names more than one column 'x'.*skip_lines=1, header="):
        opened(tmp_path, lines)
    assert signal(opened(tmp_path, lines, skip_lines=1, header="time,x,x_2"), "x_2") == [-x for x in X]


def test_names_over_several_lines(tmp_path: Path) -> None:
    values = [f"{stamp(i)},{x},{2 * x}" for i, x in enumerate(X)]
    table = opened(tmp_path, ['time,"temp', '(°C)","power', '(W)"', *values])
    assert table.names == ("temp (°C)", "power (W)")
    assert signal(table, "temp (°C)") == X


def test_a_first_line_with_a_date_like_the_second_is_no_header(tmp_path: Path) -> None:
    table = opened(tmp_path, [f"{stamp(i)},{x}" for i, x in enumerate(X)])
    assert signal(table, "column_2") == X


#: What programs print: it is refused, or read as it stands.
PRINTED = {
    "journalctl": [f"{stamp(i, '%b %d %H:%M:%S')} host app[{i}]: temperature={x} ok" for i, x in enumerate(X)],
    "vmstat": ["procs ---memory--", " r  b   free   buff", *(f" 1  0  {8123456 + i}  {i:5d}" for i in range(N))],
    "frame": [json.dumps({"time": {str(i): stamp(i) for i in range(N)}, "x": {str(i): x for i, x in enumerate(X)}})],
    "units": ["time,x", *(f"{stamp(i)},{x} kW" for i, x in enumerate(X))],
    "LabVIEW": [
        *("LabVIEW Measurement\t", "Separator\tTab", "***End_of_Header***\t", "Channels\t1", "Delta_X\t0.01"),
        *("***End_of_Header***\t", "X_Value\tForce\tComment", *(f"{i * 0.01:.2f}\t{x}" for i, x in enumerate(X))),
    ],
}


@pytest.mark.parametrize("kind", PRINTED)
def test_what_programs_print_is_refused_with_what_to_do(kind: str, tmp_path: Path) -> None:
    with pytest.raises(TableError, match="pass a DataFrame, or use SQL") as refusal:
        opened(tmp_path, PRINTED[kind])
    assert "\n" not in str(refusal.value)


def test_a_log_of_wincc_is_in_long_format(tmp_path: Path) -> None:
    lines = ['"VarName";"TimeString";"VarValue";"Validity";"Time_ms"']
    for i, x in enumerate(X):
        cells = f"{x:.3f};1;{45000 + i / 100:.2f}".replace(".", ",")
        lines += [f'"{name}";"{stamp(i, "%d.%m.%Y %H:%M:%S")}";{cells}' for name in ("level", "speed")]
    assert {*opened(tmp_path, lines).names} == {"level", "speed"}


def test_a_json_document_without_a_table_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TableError, match="this JSON document is no list of objects"):
        opened(tmp_path, [json.dumps([1, 2, 3])], "log.json")
    with pytest.raises(TableError, match="this is one object of JSON"):
        opened(tmp_path, [json.dumps({"u": 1, "hourly": {"time": [1, 2], "x": X}})], "log.json")


def test_sensors_that_alternate_beside_the_name_of_their_device(tmp_path: Path) -> None:
    times = np.cumsum(np.random.default_rng(3).exponential(30.0, 400)) + START.timestamp()
    lines = [
        json.dumps({"ts": int(1000 * t), "device": "attic", ("temperature", "co2")[i % 2]: math.sin(i / 40)})
        for i, t in enumerate(times.tolist())
    ]
    table = opened(tmp_path, lines, "log.jsonl")
    assert table.facts()["resampled"]["why"] == "sensors report at different times"
    payloads = [
        json.dumps({"time": t, "topic": f"home/{name}", "payload": value})
        for t in times.tolist()
        for name, value in (("lamp", "ON"), ("power", "7.5"))
    ]
    assert opened(tmp_path, payloads, "mqtt.jsonl", resample="none").names == ("home/lamp", "home/power")


def test_increments_that_are_equal_have_equal_bits(tmp_path: Path) -> None:
    """A meter with one decimal place: 12345.6 − 12345.2 is 0.4, so that rounding is not taken for a range."""
    readings = [round(12345.6 + 0.4 * i + 0.1 * (i % 40 == 0), 1) for i in range(300)]
    table = opened(tmp_path, ["time,energy_kwh", *(f"{stamp(i)},{x}" for i, x in enumerate(readings))])
    table.take_increments({"energy_kwh": 1.0})
    assert {*signal(table, "energy_kwh")[1:]} == {0.3, 0.4, 0.5}


def test_two_keys_of_long_format(tmp_path: Path) -> None:
    lines = ["id,device_id,metric_name,metric_value,recorded_at"]
    for i, x in enumerate(X):
        for device in (1, 2):
            lines += [f"{4 * i + 2 * device},{device},volt,{x + device},{stamp(i)}"]
            lines += [f"{4 * i + 2 * device + 1},{device},amp,{x},{stamp(i)}"]
    table = opened(tmp_path, lines, "log.csv")
    assert {*table.names} == {"volt 1", "volt 2", "amp 1", "amp 2"}
    np.testing.assert_allclose(signal(table, "volt 2"), np.array(X) + 2)


def test_a_state_that_changes_now_and_then_is_no_machine(tmp_path: Path) -> None:
    lines = ["time,unit,rpm"] + [f"{stamp(i)},{'AB'[i // 30 % 2]},{x + 700 * (i // 30 % 2)}" for i, x in enumerate(X)]
    assert opened(tmp_path, lines).categories == ("unit",)
