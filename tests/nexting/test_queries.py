"""Runs on databases: an error names the query to add, and a run that was killed resumes bit for bit."""

from __future__ import annotations

import shlex
import sqlite3
from contextlib import closing
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from emphatic import nexting
from emphatic.nexting.cli import app
from tests.nexting.test_nexting import KILLED
from tests.support.processes import COMMAND, run
from tests.support.tables import assert_same_table

ROWS, MANY = 400, 5000


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


def test_the_command_names_queries_that_work(log: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What an error says can be run as it stands; and what was decided is said."""
    monkeypatch.chdir(tmp_path)
    with closing(sqlite3.connect(log)) as connection:
        connection.execute('create table "it\'s" as select * from readings')
    refused = CliRunner().invoke(app, ["nexting", "plant.db"])
    assert refused.exit_code == 2
    assert 'the database has 2 tables: "it\'s", readings.' in refused.output
    flag = shlex.split(refused.output.strip().rpartition("Choose one: ")[2])
    assert flag == ["--query", 'select * from "it\'s"']
    done = CliRunner().invoke(app, ["nexting", "plant.db", "--horizons", "2", *flag])
    assert done.exit_code == 0, done.output
    assert "Query: select * from \"it's\"; rows ordered by 'time'." in done.output
    assert "select * from" in Path("nexting/plant/summary.json").read_text("utf-8")


@pytest.mark.long
def test_killed_and_resumed_on_a_database_that_grows(log: Path, tmp_path: Path) -> None:
    add_rows(log, ROWS, MANY)
    whole = tmp_path / "whole"
    nexting.run(log, horizons=[2, 20], out=whole)
    out = tmp_path / "out"
    arguments = ("nexting", log, "--horizons", "2,20", "--out", out, "--resume")
    for left in (5, 2):
        assert run(KILLED, left, *arguments).returncode == -9
        add_rows(log, MANY, MANY + 100)
    finished = run(COMMAND, *arguments, "--quiet")
    assert (finished.returncode, finished.stderr) == (0, b"")
    assert_same_table(pq.read_table(out / "predictions.parquet"), pq.read_table(whole / "predictions.parquet"))


@pytest.mark.long
def test_rows_that_change_are_noticed(log: Path, tmp_path: Path) -> None:
    add_rows(log, ROWS, MANY)
    arguments = ("nexting", log, "--horizons", "2", "--out", tmp_path / "out", "--resume")
    assert run(KILLED, 5, *arguments).returncode == -9
    with closing(sqlite3.connect(log)) as connection:
        connection.execute("update readings set wave = 7 where time = '2026-01-01T00:30'")
        connection.commit()
    refused = run(COMMAND, *arguments)
    assert refused.returncode == 2
    assert b"used another table or other settings" in refused.stderr
