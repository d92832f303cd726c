"""Runs on databases: killed and resumed bit for bit, and their results written back, once, however often they run."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from emphatic import nexting
from emphatic.cli import app
from emphatic.nexting.write_back import write_back
from emphatic.tables import TableError, open_table
from tests.nexting.test_nexting import KILLED
from tests.support.processes import COMMAND, run

ROWS, MANY, ODD = 400, 5000, 'a "b", c=d\\'


def add_rows(path: Path, begin: int, end: int) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute('create table if not exists readings (time text, wave real, "a ""b"", c=d\\" real)')
        moments = (np.datetime64("2026-01-01T00:00") + np.arange(begin, end)).astype(str)
        rows = [(moment, float(np.sin(i / 9)), i % 5) for i, moment in enumerate(moments, begin)]
        connection.executemany("insert into readings values (?, ?, ?)", rows[::-1])
        connection.commit()


@pytest.fixture
def log(tmp_path: Path) -> Path:
    add_rows(tmp_path / "plant.db", 0, ROWS)
    return tmp_path / "plant.db"


def stored(path: Path, table: str) -> list[Any]:
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute(f"select * from {table} order by time, name").fetchall()


def test_results_are_written_once(log: Path, tmp_path: Path) -> None:
    """A second run with other settings replaces what the first has written, beside the table it reads."""
    first = nexting.run(log, horizons=[2, 9], offline=False, out=tmp_path / "a", write=str(log))
    assert first.written is not None
    assert first.written.tables == ("emphatic_predictions", "emphatic_alarms")
    before = stored(log, "emphatic_predictions"), stored(log, "emphatic_alarms")
    assert [len(rows) for rows in before] == [4 * ROWS, 2 * ROWS]
    table = pq.read_table(tmp_path / "a" / "predictions.parquet")
    name = f"{ODD}@9"
    written = {row[0]: row[4:] for row in before[0] if row[1] == name}
    columns = [table.column(column).to_pylist() for column in ("row", name, f"{name}.low", f"{name}.high")]
    assert list(written.values()) == list(zip(*columns, strict=True))
    assert list(written)[:2] == ["2026-01-01T00:00:00.000000", "2026-01-01T00:01:00.000000"]
    assert {row[1:4] for row in before[0]} >= {(name, ODD, "9")}
    reasons = [row[5] for row in before[1] if row[1] == "wave"]
    assert reasons == table.column("wave.why").cast("string").to_pylist()
    nexting.run(log, horizons=[2, 9], offline=False, write=str(log))
    assert (stored(log, "emphatic_predictions"), stored(log, "emphatic_alarms")) == before
    nexting.run(log, horizons=[2, 9], offline=False, coverage=0.5, write=str(log))
    after = stored(log, "emphatic_predictions")
    assert [row[:6] for row in after] == [row[:6] for row in before[0]]
    assert after != before[0]


def test_rows_without_a_time_are_keyed_by_their_number(tmp_path: Path) -> None:
    path = tmp_path / "out.db"
    for _ in range(2):
        nexting.run({"x": np.sin(np.arange(500) / 9)}, horizons=[2], offline=False, write=f"sqlite:///{path}?table=w")
    assert [row[0] for row in stored(path, "w_predictions")] == list(range(500))


def test_answers_to_questions_are_written_with_their_intervals(tmp_path: Path) -> None:
    path, x = tmp_path / "out.db", np.sin(np.arange(500) / 9)
    config = {"questions": [{"cumulant": "x > 0", "gamma": 0.9, "name": "high"}]}
    nexting.run({"x": x}, horizons=[2], offline=False, write=str(path), ask=["P(x > 0.5 within 9 rows)"], config=config)
    names = {row[1] for row in stored(path, "emphatic_predictions")}
    assert {"x@2", "P(x > 0.5 within 9 rows)", "high"} <= names
    assert not any(name.endswith(".usual") for name in names)


def test_rows_of_one_time_are_one(tmp_path: Path) -> None:
    path, t = tmp_path / "out.db", np.repeat(np.arange(250.0), 2)
    nexting.run({"t": t, "x": np.sin(t)}, time="t", horizons=[2], offline=False, write=str(path))
    rows = stored(path, "emphatic_predictions")
    assert [(row[0], row[4]) for row in rows] == [(float(i), 2 * i + 1) for i in range(250)]


def test_duckdb_takes_results(log: Path, tmp_path: Path) -> None:
    duckdb = pytest.importorskip("duckdb")
    path = tmp_path / "out.duckdb"
    for _ in range(2):
        nexting.run(log, horizons=[2], offline=False, write=str(path))
    with duckdb.connect(str(path), read_only=True) as connection:
        counts = "select count(*), count(distinct (time, name)), min(time)::varchar from emphatic_predictions"
        assert connection.execute(counts).fetchall() == [(2 * ROWS, 2 * ROWS, "2026-01-01 00:00:00")]


def test_a_store_that_cannot_be_written_to_is_reported_first(log: Path, tmp_path: Path) -> None:
    for url, reason in {
        "results.csv": "this is not the address of a store",
        f"{tmp_path}/no/folder.db": "the results cannot be written: unable to open database file",
        "influxdb://127.0.0.1:1/x": "the server does not answer",
    }.items():
        with pytest.raises(TableError, match=reason):
            nexting.run(log, out=tmp_path / "out", write=url)
    assert not (tmp_path / "out" / "summary.json").exists()
    with closing(sqlite3.connect(tmp_path / "other.db")) as connection:
        connection.execute("create table emphatic_predictions (x)")
    with pytest.raises(
        ValueError, match=r"results cannot be written: .*resume=True with write=… tries again"
    ) as caught:
        nexting.run(log, horizons=[2], offline=False, out=tmp_path / "out", write=str(tmp_path / "other.db"))
    assert "\n" not in str(caught.value)
    assert (tmp_path / "out" / "report.html").exists()
    assert write_back(tmp_path / "out", str(tmp_path / "third.db")).store == str(tmp_path / "third.db")
    arguments = ["nexting", str(log), "--out", str(tmp_path / "out"), "--resume", "--write", str(tmp_path / "4.db")]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.output
    assert len(stored(tmp_path / "4.db", "emphatic_predictions")) == 2 * ROWS


def test_the_command_names_queries_that_work(log: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What an error says can be run as it stands; and what was decided is said."""
    monkeypatch.chdir(tmp_path)
    with closing(sqlite3.connect(log)) as connection:
        connection.execute('create table "it\'s" as select * from readings')
    refused = CliRunner().invoke(app, ["nexting", "plant.db", "--no-offline"])
    assert refused.exit_code == 2
    assert 'the database has 2 tables: "it\'s", readings.' in refused.output
    import shlex

    flag = shlex.split(refused.output.strip().rpartition("Choose one: ")[2])
    assert flag == ["--query", 'select * from "it\'s"']
    done = CliRunner().invoke(app, ["nexting", "plant.db", "--no-offline", "--horizons", "2", *flag])
    assert done.exit_code == 0, done.output
    assert "Query: select * from \"it's\"; rows ordered by 'time'." in done.output
    assert "select * from" in Path("nexting/plant/summary.json").read_text("utf-8")


@pytest.mark.long
def test_killed_and_resumed_on_a_database_that_grows(log: Path, tmp_path: Path) -> None:
    add_rows(log, ROWS, MANY)
    whole = tmp_path / "whole"
    nexting.run(log, horizons=[2, 20], out=whole, offline=False)
    out = tmp_path / "out"
    arguments = ("nexting", log, "--horizons", "2,20", "--out", out, "--no-offline", "--resume")
    for left in (5, 2):
        assert run(KILLED, left, *arguments).returncode == -9
        add_rows(log, MANY, MANY + 100)
    finished = run(COMMAND, *arguments, "--quiet")
    assert (finished.returncode, finished.stderr) == (0, b"")
    assert pq.read_table(out / "predictions.parquet").equals(pq.read_table(whole / "predictions.parquet"))


@pytest.mark.long
def test_rows_that_change_are_noticed(log: Path, tmp_path: Path) -> None:
    add_rows(log, ROWS, MANY)
    arguments = ("nexting", log, "--horizons", "2", "--out", tmp_path / "out", "--no-offline", "--resume")
    assert run(KILLED, 5, *arguments).returncode == -9
    with closing(sqlite3.connect(log)) as connection:
        connection.execute("update readings set wave = 7 where time = '2026-01-01T00:30'")
        connection.commit()
    refused = run(COMMAND, *arguments)
    assert refused.returncode == 2
    assert b"used another table or other settings" in refused.stderr


def test_results_can_be_read_again(log: Path) -> None:
    """What was written is a table as any other: its times are in order, and its names survive."""
    nexting.run(log, horizons=[2], offline=False, write=str(log))
    query = f"select time, prediction from emphatic_predictions where name = '{ODD}@2'"
    table = open_table(log, query=query)
    assert table.time == "time"
    assert table.count_rows() == ROWS
