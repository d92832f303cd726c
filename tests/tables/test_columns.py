"""What columns are: signals, counters and what is no signal; and the column that tells machines apart."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from emphatic.nexting.tables import open_table
from emphatic.nexting.tables.columns import ColumnRole, Increments, combine_roles, find_role
from emphatic.nexting.tables.table import Block, TableError

T = 400
RNG = np.random.default_rng(5)


@pytest.mark.parametrize(
    ("name", "values", "kind", "why"),
    [
        ("machine_id", RNG.integers(1, 9, T), "none", "an id"),
        ("DeviceID", np.full(T, 7.0), "none", "an id"),
        ("_PID", RNG.integers(100, 9999, T), "none", "an id"),
        ("unit no", RNG.integers(1, 9, T), "none", "an id"),
        ("humid", RNG.normal(size=T), "signal", ""),
        ("id_fan_current", RNG.integers(1, 9, T), "signal", ""),
        ("id", RNG.normal(size=T), "signal", ""),
        ("Jahr", 1980 + np.arange(T) // 12, "none", "a year"),
        ("rpm", RNG.integers(1900, 2100, T), "signal", ""),
        ("sample", np.arange(T), "none", "a count of rows"),
        ("elapsed", 0.1 * np.arange(T), "none", "a count of rows"),
        ("seq", np.arange(T) % 90, "none", "a count of rows"),
        ("phase", np.arange(T) % 50, "signal", ""),
        ("state", np.full(T, 3.0), "none", "it never changes"),
        ("energy_kwh", np.cumsum(RNG.gamma(2, size=T)), "counter", ""),
        ("x", np.cumsum(RNG.gamma(2, size=T)), "counter", ""),
        ("rx_bytes", np.cumsum(RNG.integers(0, 9, T)) % 700, "counter", ""),
        ("walk", np.cumsum(RNG.normal(size=T)), "signal", ""),
        ("level", 5 + np.sin(np.arange(T) / 9), "signal", ""),
    ],
)
def test_roles(name: str, values: Any, kind: str, why: str) -> None:
    role = find_role(name, np.asarray(values, np.float64))
    assert (role.kind, role.why) == (kind, why)


def test_a_counter_may_stand_still_in_some_machines() -> None:
    still, counter, signal = (
        ColumnRole("none", "it never changes"),
        ColumnRole("counter", largest=2.0),
        ColumnRole("signal"),
    )
    assert combine_roles([{"a": still, "b": still}, {"a": counter, "b": still}])["a"].kind == "counter"
    assert combine_roles([{"a": still}, {"a": signal}])["a"].kind == "signal"
    assert combine_roles([{"a": counter}, {"a": signal}])["a"].kind == "signal"
    assert combine_roles([{"a": still}, {"a": still}])["a"] == still


def increments(readings: list[float], gap: list[int], cuts: list[int]) -> list[float]:
    """The increments of a counter with gaps before these rows, in blocks that are cut at these places."""
    counter, out = Increments([0], [10.0]), []
    is_gap = np.isin(np.arange(len(readings)), gap)
    for begin, end in zip([0, *cuts], [*cuts, len(readings)], strict=True):
        block = Block(begin, np.array(readings[begin:end], np.float64)[:, None], None, {}, gap=is_gap[begin:end])
        out += counter(block).values[:, 0].tolist()
        counter = Increments.restore(counter.state())
    return out


@pytest.mark.parametrize("cuts", [[], [1], [3, 4], [2, 5, 6, 7, 8, 9]])
def test_increments_do_not_depend_on_blocks(cuts: list[int]) -> None:
    nan = np.nan
    readings = [5, 8, nan, 12, 3, 9, 100, 103, nan, 200, 204, 2**32 - 4.0, 3]
    expected = [nan, 3, nan, 2, 3, 6, nan, 3, nan, nan, 4, nan, 7]
    found = increments(readings, [6, 9, 11], cuts)
    np.testing.assert_array_equal(found, expected)


def test_increments_after_an_exchange_are_not_known() -> None:
    """A meter that was exchanged for one that reads 50,000 has not used that much."""
    assert np.isnan(increments([90_000.0, 90_002.0, 50_000.0], [], []))[2]


def panel(kind: str, key: str, machines: list[Any], rows: int = 30) -> list[str]:
    """The lines of a table of several machines, stacked or interleaved."""
    order = [(m, t) for m in machines for t in range(rows)]
    if kind == "interleaved":
        order.sort(key=lambda pair: pair[1])
    lines = [f"2024-01-01 00:{t:02d}:00,{m},{20 + t % 7}.5,{t * 3 % 11}" for m, t in order]
    return [f"time,{key},temp,load", *lines]


@pytest.mark.parametrize("kind", ["stacked", "interleaved"])
@pytest.mark.parametrize(("key", "machines"), [("machine_id", [3, 7, 9]), ("host", ["a", "b"]), ("unit", [1, 2])])
def test_several_machines_are_refused_with_the_column(kind: str, key: str, machines: list[Any], tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    path.write_text("\n".join(panel(kind, key, machines)) + "\n")
    with pytest.raises(TableError, match=f'several machines.*{key!r} tells apart.*by="{key}"'):
        open_table(path)
    assert open_table(path, pivot=False, sort=True).names[-1] == "load"


def test_one_machine_and_coarse_stamps_are_no_machines(tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    path.write_text("\n".join(panel("stacked", "machine_id", [4])) + "\n")
    assert "temp" in open_table(path).names
    lines = [f"2024-01-01 00:00:{t // 3:02d},{['on', 'off'][t % 2]},{t % 5},{t % 7}" for t in range(90)]
    path.write_text("time,door,a,b\n" + "\n".join(lines) + "\n")
    assert "a" in open_table(path).names


def test_left_out_columns_and_increments_of_a_table() -> None:
    table = open_table({"a": np.arange(6.0), "b": [1, 3, 6, 6, 7, 9.0], "c": np.ones(6)})
    table.leave_out({"a": "a count of rows"})
    table.take_increments({"b": 3.0})
    assert table.names == ("b", "c")
    assert table.ignored == {"a": "a count of rows"}
    for _ in range(2):
        rows = np.concatenate([block.values for block in table.blocks(2)])
        np.testing.assert_array_equal(rows[:, 0], [np.nan, 2, 3, 0, 1, 2])


def test_a_code_for_missing_readings_makes_no_counter() -> None:
    hours = np.zeros(3_000)  # of snow, which add up while it falls
    hours[100:127] = np.arange(1, 28)
    assert find_role("Is", hours).kind == "signal"
    hours[300::300] = 65535.0
    assert find_role("Is", hours).kind == "signal"
    energy = np.cumsum(np.arange(3_000) % 7.0)
    energy[[700, 1_900]] = 65535.0
    assert find_role("energy", energy).kind == "counter"
