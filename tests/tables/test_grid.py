"""Sensors that report one at a time: long format, regular rows of time, and the same on a pipe."""

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
from emphatic.nexting.tables import Table, TableError, open_table
from emphatic.nexting.tables.grid import Grid

START = datetime(2024, 3, 1, tzinfo=UTC)


def write(path: Path, lines: Sequence[str], name: str = "log.csv") -> Path:
    file = path / name
    file.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return file


def whole(table: Table) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    blocks = list(table.blocks(50))
    times = [block.time for block in blocks if block.time is not None]
    return np.concatenate(times), np.concatenate([block.values for block in blocks])


def naive(
    records: Sequence[tuple[float, int, float]], C: int, step: float, ages: Sequence[float], how: str
) -> list[list[float]]:
    """The rows by their definition: for each end of a step all records are looked at again."""
    numbers = [math.ceil(t / step - 1e-3) for t, _, _ in records]
    rows = []
    for k in range(numbers[0], numbers[-1] + 1):
        row = []
        for c in range(C):
            here = [v for (_, d, v), n in zip(records, numbers, strict=True) if d == c and n == k and not math.isnan(v)]
            before = [(t, v) for (t, d, v), n in zip(records, numbers, strict=True) if d == c and n <= k]
            value = math.nan
            if here:
                value = {"mean": sum(here) / len(here), "last": here[-1]}[how]
            elif before and k * step - before[-1][0] <= ages[c]:
                value = before[-1][1]
            row.append(value)
        rows.append(row)
    return rows


@pytest.mark.parametrize("how", ["mean", "last"])
@pytest.mark.parametrize("step", [1.0, 7.0, 0.25])
def test_a_grid_is_what_it_is_defined_to_be(how: str, step: float) -> None:
    r = np.random.default_rng(3)
    times = np.cumsum(r.exponential(2.0, 300))
    columns, values = r.integers(0, 3, 300), np.round(r.normal(size=300), 3)
    values[r.random(300) < 0.1] = np.nan  # the sensor says that it has none
    ages = [5.0, 30.0, 1e9]
    grid = Grid(list("abc"), step=step, max_age=dict(zip("abc", ages, strict=True)), switches="abc" * (how == "last"))
    ends, rows = grid.add(times, columns, values)
    ends, rows = (np.concatenate(pair) for pair in zip((ends, rows), grid.finish(), strict=True))
    expected = naive(list(zip(times.tolist(), columns.tolist(), values.tolist(), strict=True)), 3, step, ages, how)
    np.testing.assert_allclose(rows, expected, rtol=1e-14)
    np.testing.assert_allclose(np.diff(ends), step)


@pytest.mark.parametrize("size", [1, 7, 100])
def test_a_grid_that_is_saved_and_cut_into_blocks_gives_the_same_bits(size: int) -> None:
    r = np.random.default_rng(4)
    times = np.cumsum(r.exponential(2.0, 400)) + np.where(np.arange(400) > 200, 500.0, 0.0)  # a pause
    times[300:] -= 700.0  # the clock is put back
    times[50] -= 15.0  # late
    columns, values = r.integers(-1, 3, 400), r.normal(size=400)
    ages = {"a": 9.0, "b": 20.0, "mode": 30.0}
    whole_grid = Grid(["a", "b"], ["mode"], step=3.0, max_age=ages)
    words = [["on", "off", None][i % 3] for i in range(400)]
    values[columns == 2] = whole_grid.encode("mode", words)[columns == 2]
    start = Grid.restore(json.loads(json.dumps(whole_grid.state())))
    ends, rows = whole_grid.add(times, columns, values)
    assert whole_grid.counts()["restarts"] == 1
    assert whole_grid.counts()["late"] >= 1
    assert np.diff(ends).max() > 400.0  # no rows where nothing is held
    assert np.diff(ends).min() < 0.0
    parts, grid = [], start
    for begin in range(0, 400, size):
        part = slice(begin, begin + size)
        parts.append(grid.add(times[part], columns[part], values[part]))
        grid = Grid.restore(json.loads(json.dumps(grid.state())))
    np.testing.assert_array_equal(np.concatenate([part[0] for part in parts]), ends)
    np.testing.assert_array_equal(np.concatenate([part[1] for part in parts]), rows)
    assert grid.state() == whole_grid.state()


def test_a_damaged_grid_is_refused() -> None:
    state = Grid(["a"], step=1.0, max_age={"a": 2.0}).state()
    changes: list[dict[str, Any]] = [{"columns": [[1.0]]}, {"step": None}, {"head": []}, {"names": ["a", "b"]}]
    for change in changes:
        with pytest.raises(ValueError, match="grid"):
            Grid.restore(state | change)


# ---------------------------------------------------------------------- tables

SENSORS = {"temp": 60.0, "power": 47.0, "door": 130.0}


def reports(count: int = 400) -> list[tuple[datetime, str, str]]:
    """Home Assistant: a temperature and a power that are away now and then, a door, and someone who is home or not."""
    r = np.random.default_rng(5)
    records = []
    for sensor, interval in (*SENSORS.items(), ("person", 300.0)):
        t = 0.0
        for i in range(int(count * 100 / interval)):
            t += float(r.exponential(interval))
            text = {
                "temp": f"{20 + math.sin(t / 3000):.2f}",
                "power": f"{300 + 20 * math.sin(t / 900):.1f}",
                "door": "on" if i % 2 else "off",
                "person": "home" if i % 2 else "not_home",
            }[sensor]
            if i % 37 == 36:
                text = ("unavailable", "unknown", "")[i % 3]
            records.append((START + timedelta(seconds=t), sensor, text))
    return sorted(records)


@pytest.mark.parametrize("order", ["by time", "by sensor"])
@pytest.mark.parametrize(
    ("header", "row"),
    [
        ("entity_id,state,last_changed", "{s},{v},{t}"),
        ("time;sensor;value", "{t};{s};{v}"),
        ("Timestamp\tTag Name\tReading\tQuality", "{t}\t{s}\t{v}\t192"),
    ],
)
def test_sensors_that_report_one_at_a_time(header: str, row: str, order: str, tmp_path: Path) -> None:
    records = reports(150)
    if order == "by sensor":
        records.sort(key=lambda record: record[1])
    lines = [row.format(t=f"{t:%Y-%m-%dT%H:%M:%S.%fZ}", s=s, v=v) for t, s, v in records]
    table = open_table(write(tmp_path, [header, *lines]))
    assert sorted(table.names) == ["door", "person", "power", "temp"]
    times, values = whole(table)
    facts = table.facts()
    assert facts["pivoted"][-1] in ("state", "value", "Reading")
    assert facts["resampled"]["step"] in (30.0, 60.0)
    assert np.unique(np.diff(times)).tolist() == [facts["resampled"]["step"]]
    door = values[:, table.names.index("door")]
    assert set(np.unique(door[~np.isnan(door)])) == {0.0, 1.0}
    assert 0.0 < np.isnan(door).mean() < 0.2
    ages = facts["resampled"]["max_age"]
    assert ages["temp"] > 200.0
    # The same rows, by the definition.
    places = {name: i for i, name in enumerate(table.names)}
    words = {"on": 1.0, "off": 0.0, "home": 1.0, "not_home": 0.0} | dict.fromkeys(
        ("unavailable", "unknown", ""), math.nan
    )
    stamped = [
        (t.timestamp(), places[s], words[v] if v in words else float(v))
        for t, s, v in sorted(records, key=lambda r: r[0])
    ]
    for how in ("mean", "last"):
        expected = np.array(naive(stamped, 4, facts["resampled"]["step"], [ages[name] for name in table.names], how))
        states = np.array([name in ("door", "person") for name in table.names])
        chosen = states if how == "last" else ~states
        np.testing.assert_allclose(values[:, chosen], expected[:, chosen])


def test_the_user_decides_on_step_and_age(tmp_path: Path) -> None:
    lines = ["time,sensor,value", *(f"{t.isoformat()},{s},{v}" for t, s, v in reports())]
    path = write(tmp_path, lines)
    table = open_table(path, resample="10min", max_age="10min")
    times, values = whole(table)
    assert np.unique(np.diff(times)).tolist() == [600.0]
    np.testing.assert_array_equal(whole(open_table(path, resample=600, max_age=600.0))[1], values)
    table = open_table(path, resample="none")
    assert table.grid_plan is None
    assert len(whole(table)[0]) == len({t for t, _, _ in reports()})
    options: list[dict[str, Any]] = [
        {"resample": "often"},
        {"max_age": "auto"},
        {"resample": 0.0},
    ]
    for option in options:
        with pytest.raises(ValueError, match=next(iter(option))):
            open_table(path, **option)
    with pytest.raises(TableError, match="no time to resample by"):
        open_table({"x": [1.0, 2.0, 4.0]}, resample="1s")


def test_a_wide_table_of_alternating_sensors(tmp_path: Path) -> None:
    r = np.random.default_rng(6)
    rows = []
    for i in range(600):
        stamp = (START + timedelta(seconds=10.0 * i + float(r.uniform(0, 3)))).isoformat()
        rows.append(
            {"time": stamp, ("a", "b", "mode")[i % 3]: (i % 11, i * 0.5, ["heat", "idle", "off"][i % 5 % 3])[i % 3]}
        )
    table = open_table(write(tmp_path, [json.dumps(row) for row in rows], "log.jsonl"))
    assert (table.names, table.categories) == (("a", "b"), ("mode",))
    times, values = whole(table)
    assert np.unique(np.diff(times)).tolist() == [30.0]
    assert np.isnan(values).mean() < 0.02
    # A dense table of one sensor that reports at irregular moments stays as it is; so does one with few holes.
    lines = ["time,x,y", *(f"{row['time']},{i % 7},{'' if i % 5 == 0 else i}" for i, row in enumerate(rows))]
    assert open_table(write(tmp_path, lines)).grid_plan is None


def test_a_slow_sensor_is_held_and_the_rows_stay(tmp_path: Path) -> None:
    lines = [
        "time,fast,slow",
        *(f"{(START + timedelta(seconds=i + 7)).isoformat()},{i % 9},{i if i % 10 == 0 else ''}" for i in range(500)),
    ]
    table = open_table(write(tmp_path, lines))
    times, values = whole(table)
    assert times.tolist() == [START.timestamp() + 7 + i for i in range(500)]
    assert values[:, 1].tolist() == [i - i % 10 for i in range(500)]
    assert table.facts()["resampled"]["max_age"] == {"slow": 50.0}
    assert np.isnan(whole(open_table(write(tmp_path, lines), resample="none"))[1][:, 1]).mean() == 0.9


def test_what_may_be_machines_is_not_pivoted_unasked(tmp_path: Path) -> None:
    stamps = [(START + timedelta(minutes=i)).isoformat() for i in range(200)]
    lines = ["time,station,temperature", *(f"{t},{s},{i}" for i, t in enumerate(stamps) for s in ("north", "south"))]
    with pytest.raises(TableError, match=r'by="station".*pivot="station,temperature"'):
        open_table(write(tmp_path, lines))
    assert open_table(write(tmp_path, lines), pivot="station,temperature").names == ("north", "south")


def test_several_columns_may_name_a_sensor(tmp_path: Path) -> None:
    stamps = [(START + timedelta(minutes=i)).isoformat() for i in range(200)]
    names = [(d, s) for d in ("pump", "fan") for s in ("temp", "speed")]
    lines = ["time,device,sensor,value", *(f"{t},{d},{s},{i}" for i, t in enumerate(stamps) for d, s in names)]
    table = open_table(write(tmp_path, lines))
    assert sorted(table.names) == ["speed fan", "speed pump", "temp fan", "temp pump"]
    assert table.facts()["resampled"] is None


# ---------------------------------------------------------------------- pipes

FEW: dict[str, Any] = {"rate": 0.3, "features": [{"kind": "bias"}, {"kind": "soft_bins", "of": "*", "bins": 3}]}


@pytest.mark.parametrize("is_long", [True, False])
def test_readings_of_a_pipe_become_the_same_rows(is_long: bool, tmp_path: Path) -> None:
    """In long format or a sensor at a time: also of a model that was saved in between, and of a file's."""
    from emphatic.hordes.horde import Horde
    from emphatic.nexting.runs.predictor import Prediction, Predictor
    from emphatic.nexting.runs.settings import Settings

    readings: list[dict[str, Any]] = []
    for t, sensor, text in reports(150):
        if sensor == "person" and not is_long:
            continue
        value = {"on": 1, "off": 0}.get(text, text)
        reading = {"entity_id": sensor, "state": text} if is_long else {sensor: value}
        if is_long or text not in ("", "unknown", "unavailable"):
            readings.append({"time": t.isoformat(), **reading})
    settings = Settings.combine(FEW, horizons=["2min", "10min"])
    whole_stream = Predictor(settings, warm_up=200)
    outcomes = whole_stream.take(enumerate(readings, start=1))
    predictions = [outcome for outcome in outcomes[200:] if isinstance(outcome, Prediction)]
    assert len(predictions) > 50
    first = Predictor(settings, warm_up=200)
    before = first.take(enumerate(readings[:301], start=1))
    assert first.horde is not None
    first.save(tmp_path / "model.safetensors")
    second, _ = Predictor.load(tmp_path / "model.safetensors")
    after = second.take(enumerate(readings[301:], start=302))
    for a, b in zip(outcomes, [*before, *after], strict=True):
        if isinstance(a, Prediction):
            assert isinstance(b, Prediction)
            assert a.line == b.line
        else:
            assert b is None
    # The rows are those of a file with the same step, as far as they are complete.
    path = write(tmp_path, [json.dumps(reading) for reading in readings], "log.jsonl")
    step = predictions[1].seconds - predictions[0].seconds
    times, values = whole(open_table(path, resample=step))
    names = open_table(path, resample=step).names
    known = dict(zip(times.tolist(), values, strict=True))
    order = [names.index(name) for name in second._require().parser.names]
    same = [np.array_equal(known[p.seconds][order], p.readings, equal_nan=True) for p in predictions]
    assert np.mean(same) > 0.9  # (a value may be held for another time there)
    # A model that was learned from the file goes on live.
    emphatic.nexting.run(path, horizons=["2min"], config=FEW, out=tmp_path / "out")
    live, state = Predictor.load(tmp_path / "out" / "model.safetensors")
    assert isinstance(live.horde, Horde)
    assert state["grid"] is not None
    late = [
        {**reading, "time": (START + timedelta(days=9, seconds=20 * i)).isoformat()}
        for i, reading in enumerate(readings)
    ]
    assert sum(isinstance(outcome, Prediction) for outcome in live.take(enumerate(late, start=1))) > 20
