"""Rows of SQLite, DuckDB and PostgreSQL by query: in the order of time, in any form that a database stores them."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
import pytest

from emphatic.nexting.tables import Table, TableError, open_table
from emphatic.nexting.tables.databases import check_query, quoted
from emphatic.nexting.tables.stores import Request, StoreAddress, open_store
from tests.support import servers

ROWS = 300
#: A name that SQL, shells and CSV have trouble with.
ODD = "od d\"n'ämé; drop table readings --"


def stamps(form: str = "%Y-%m-%d %H:%M:%S") -> list[str]:
    moments = np.datetime64("2026-01-30T22:00", "m") + 10 * np.arange(ROWS)
    return [moment.item().strftime(form) for moment in moments]


def write_sqlite(path: Path, create: str, rows: Sequence[Sequence[Any]]) -> str:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(create)
        table = create.split("(")[0].split()[-1]
        places = ", ".join("?" for _ in rows[0])
        connection.executemany(f"insert into {table} values ({places})", rows)
        connection.commit()
    return str(path)


def shuffled(rows: Sequence[Any]) -> list[Any]:
    return [rows[i] for i in np.random.default_rng(0).permutation(len(rows))]


def read(table: Table, rows: int = 64) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    blocks = list(table.blocks(rows))
    times = [block.time for block in blocks if block.time is not None]
    return np.concatenate([block.values for block in blocks]), np.concatenate(times) if times else np.zeros(0)


WAVE = [float(np.sin(i / 9)) for i in range(ROWS)]


def test_rows_come_in_the_order_of_time(tmp_path: Path) -> None:
    """However the time is stored: text, Unix time in s and ms, a date and a time of day."""
    unix = [int(np.datetime64(stamp).astype("datetime64[s]").astype(np.int64)) for stamp in stamps()]
    forms: list[list[Sequence[Any]]] = [
        [(stamp,) for stamp in stamps()],
        [(f"{stamp}+02:00",) for stamp in stamps()],
        [(second,) for second in unix],
        [(1000 * second,) for second in unix],
        [tuple(stamp.split(" ")) for stamp in stamps()],
    ]

    for number, form in enumerate(forms):
        names = [f"t{i}" for i in range(len(form[0]))]
        rows = [(*moment, value, 2 * value) for moment, value in zip(form, WAVE, strict=True)]
        create = f"create table readings ({', '.join(names)}, {quoted(ODD)}, b)"
        table = open_table(write_sqlite(tmp_path / f"{number}.db", create, shuffled(rows)), time="+".join(names))
        assert table.names == (ODD, "b")
        values, seconds = read(table)
        assert values[:, 0].tolist() == WAVE
        assert np.all(np.diff(seconds) == 600.0)


def test_values_of_any_type(tmp_path: Path) -> None:
    """NULL, numbers as text, texts among numbers, bytes, and integers that become fractions."""
    column: list[Any] = [1, None, "3.5", 4.25, "n/a", b"\0", "7", *range(ROWS - 7)]
    rows = [(stamp, value, str(i), b"x") for i, (stamp, value) in enumerate(zip(stamps(), column, strict=True))]
    path = write_sqlite(tmp_path / "log.db", "create table readings (time, mixed, texts, blob)", rows)
    table = open_table(path)
    values, _ = read(table)
    assert table.names == ("mixed", "texts")
    assert "blob" in table.ignored
    np.testing.assert_array_equal(values[:8, 0], [1, np.nan, 3.5, 4.25, np.nan, np.nan, 7, 0])
    assert values[:, 1].tolist() == list(range(ROWS))


def test_a_type_that_changes_after_the_first_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("emphatic.nexting.tables.databases.LOOK_ROWS", 100)
    monkeypatch.setattr("emphatic.nexting.tables.stores.LOOK_ROWS", 100)
    column: list[Any] = [*range(150), *(i + 0.5 for i in range(100)), *("oops" for _ in range(50))]
    path = write_sqlite(tmp_path / "log.db", "create table r (time, x)", list(zip(stamps(), column, strict=True)))
    table = open_table(path)
    assert table.count_rows() == ROWS
    values, _ = read(table)
    np.testing.assert_array_equal(values[:, 0], [v if isinstance(v, int | float) else np.nan for v in column])
    for start in (0, 99, 100, 101, 250):
        rest = np.concatenate([block.values for block in table.blocks(7, start)])
        np.testing.assert_array_equal(rest, values[start:])


def test_ties_are_ordered_alike_on_every_run(tmp_path: Path) -> None:
    rows = [(stamps()[i // 3], WAVE[i], i % 5) for i in range(ROWS)]
    for name, mixed in (("a", rows), ("b", shuffled(rows))):
        write_sqlite(tmp_path / f"{name}.db", "create table readings (time, x, y)", mixed)
    a, b = (read(open_table(str(tmp_path / f"{name}.db"), query="select * from readings"))[0] for name in "ab")
    np.testing.assert_array_equal(a, b)


def test_a_query_in_order_is_left_as_it_is(tmp_path: Path) -> None:
    path = write_sqlite(tmp_path / "log.db", "create table r (time, x)", list(zip(stamps(), WAVE, strict=True)))
    ordered = open_table(path, query="select time, x from r order by time -- all;\n;")
    assert ordered.facts()["query"]["order"] == "as the query orders them"
    latest = open_table(path, query="select time, x from r order by time desc limit 20")
    assert read(latest)[0].ravel().tolist() == WAVE[-20:]
    assert latest.facts()["query"]["order"] == "by 'time'"


def test_tables_without_a_time(tmp_path: Path) -> None:
    rows = [(value, i) for i, value in enumerate(WAVE)]
    path = write_sqlite(tmp_path / "rows.db", "create table r (x, y)", shuffled(rows))
    assert read(open_table(path, time=False))[0].tolist() == [list(row) for row in shuffled(rows)]
    without = write_sqlite(
        tmp_path / "keys.db", "create table r (k integer primary key, x, w) without rowid", [(i, x, 0) for x, i in rows]
    )
    with pytest.raises(TableError, match=r"have no order.*query='select \* from r order by \"k\"'"):
        open_table(without, time=False)
    assert read(open_table(without, time=False, query='select * from r order by "k"'))[0][:, 1].tolist() == WAVE


def test_views_are_read(tmp_path: Path) -> None:
    path = write_sqlite(
        tmp_path / "log.db", "create table r (time, x)", shuffled(list(zip(stamps(), WAVE, strict=True)))
    )
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("create view doubled as select time, 2 * x as x2 from r")
    with pytest.raises(TableError, match=r"2 tables: doubled, r\. Choose one: query='select \* from doubled'"):
        open_table(path)
    assert read(open_table(path, query="select * from doubled"))[0].ravel().tolist() == [2 * x for x in WAVE]


def test_dates_that_sql_cannot_order(tmp_path: Path) -> None:
    rows = shuffled(list(zip(stamps("%d.%m.%Y %H:%M"), WAVE, strict=True)))
    path = write_sqlite(tmp_path / "log.db", "create table r (time, x)", rows)
    with pytest.raises(TableError, match=r"SQL cannot put dates .* sort=True"):
        open_table(path, query="select * from r")
    assert read(open_table(path, query="select * from r", sort=True))[0].ravel().tolist() == WAVE


REFUSED = {
    "delete from r": "must be one select statement, which changes nothing",
    "select 1; drop table r": "must be one select statement",
    "select (1": "must be one select statement",
    "r": "must be one select statement",
    "pragma writable_schema = 1": "must be one select statement",
    "select time, x from q": "no such table: q. It has: r.",
    "select tme from r where y = 1": "the query failed: no such column",
    "select time, x from r where 0": "the query has no rows",
    "with d as (select 1) delete from r": "the query failed",
}


def test_queries_that_cannot_be_read(tmp_path: Path) -> None:
    path = write_sqlite(tmp_path / "log.db", "create table r (time, x)", list(zip(stamps(), WAVE, strict=True)))

    for query, reason in REFUSED.items():
        with pytest.raises(TableError) as caught:
            open_table(path, query=query)
        assert reason in str(caught.value)
        assert "\n" not in str(caught.value)
    with pytest.raises(TableError, match="'step' is for time series stores"):
        open_table(path, step=60.0)
    assert open_table(path).count_rows() == ROWS


def test_what_is_quoted_does_not_count() -> None:
    assert check_query("x", "select ';', \"a;b\", $$;$$ from t /* ; */ -- ;") == "select ';', \"a;b\", $$;$$ from t"
    assert quoted('a"b') == '"a""b"'


def test_files_that_are_no_databases(tmp_path: Path) -> None:
    log = tmp_path / "log.csv"
    log.write_text("time,x\n0,1\n1,2\n2,5\n")
    with pytest.raises(TableError, match="this is not a database, so query=… does not apply"):
        open_table(log, query="select 1")
    (tmp_path / "cut.db").write_bytes(b"SQLite format 3\0" + b"\0" * 50)
    with pytest.raises(TableError, match=r"cut\.db: the query failed: file is not a database"):
        open_table(tmp_path / "cut.db")
    with pytest.raises(TableError, match="there is no such file"):
        open_table(f"sqlite:///{tmp_path}/none.db")
    with closing(sqlite3.connect(tmp_path / "empty.db")) as connection:
        connection.execute("create table r (x)")
        connection.execute("drop table r")
    with pytest.raises(TableError, match="the database has no tables"):
        open_table(tmp_path / "empty.db")


def test_a_database_that_grows_is_read_once(tmp_path: Path) -> None:
    """All passes see the rows of the first, and a run that resumes reads as many."""
    path = write_sqlite(tmp_path / "log.db", "create table r (time, x)", list(zip(stamps(), WAVE, strict=True)))
    table = open_table(path)
    assert table.count_rows() == ROWS
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("insert into r values ('2027-01-01 00:00:00', 9.0)")
        connection.commit()
    assert len(read(table)[0]) == ROWS
    assert table.extent == {"rows": ROWS}
    assert open_table(path).count_rows() == ROWS + 1
    _, source = open_store(f"sqlite:///{path}", Request(extent=table.extent))
    assert sum(map(len, source.batches(("x",), 0))) == ROWS


# ---------------------------------------------------------------------- passwords


def test_passwords_come_from_the_address_or_the_environment_and_are_shown_nowhere() -> None:
    word = "pa33/wörd"
    for text, variables in {
        f"postgresql://me:{quote(word, safe='')}@host:1/db?sslmode=disable": {"EMPHATIC_PASSWORD": "another"},
        "influxdb://host:1/db": {"EMPHATIC_PASSWORD": word},
    }.items():
        address = StoreAddress.parse(text, variables)
        assert address.password == word
        for shown in (repr(address), str(address), address.name):
            assert "pa33" not in shown
        assert "pa33" not in address.hide(f"failed: {word} and {quote(word, safe='')}")
    with pytest.raises(TableError) as caught:
        StoreAddress.parse("postgresql://me:pa33/x@host/db", {})
    assert "pa33" not in str(caught.value)


def test_addresses_of_no_store() -> None:
    with pytest.raises(
        TableError, match=r"mysql://…: this is not the address of a store\. Addresses are: .*postgresql"
    ):
        open_table("mysql://me:secret@host/db")
    with pytest.raises(TableError, match=r"127\.0\.0\.1:1/db: .*Connection refused.*Check host and port"):
        open_table("influxdb://127.0.0.1:1/db", query="select * from x")


# ---------------------------------------------------------------------- DuckDB


@pytest.fixture
def duck(tmp_path: Path) -> str:
    duckdb = pytest.importorskip("duckdb")
    path = str(tmp_path / "log.duckdb")
    with duckdb.connect(path) as connection:
        connection.execute(
            "create table readings as select timestamptz '2026-01-01 00:00+02' + to_minutes(i) as time, "
            "sin(i / 9.0) as x, case when i % 10 = 0 then null else (i % 7)::decimal(9, 2) end as y, "
            "case when i % 2 = 0 then 'low' else 'high' end as level, [1] as list "
            f"from range({ROWS}) t(i) order by random()"
        )
    return path


def test_duckdb(duck: str) -> None:
    table = open_table(duck)
    assert (table.names, table.categories, set(table.ignored)) == (("x", "y"), ("level",), {"list"})
    values, times = read(table)
    np.testing.assert_allclose(values[:, 0], WAVE, rtol=1e-12)
    assert np.isnan(values[::10, 1]).all()
    assert times[0] == np.datetime64("2025-12-31T22:00:00").astype(np.int64)
    assert np.all(np.diff(times) == 60.0)
    for query, reason in {
        "create table z as select 1": "must be one select statement",
        "select * from nothing": "Table with name nothing does not exist. It has: readings.",
        "select time, x from readings where": "the query failed",
    }.items():
        with pytest.raises(TableError, match=reason):
            open_table(duck, query=query)


def test_duckdb_that_is_open_elsewhere(duck: str) -> None:
    duckdb = pytest.importorskip("duckdb")
    with duckdb.connect(duck), pytest.raises(TableError, match="the database cannot be opened"):
        open_table(duck)


def test_files_are_read_by_duckdb_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("duckdb")
    monkeypatch.chdir(tmp_path)
    lines = [f"{stamp},{value} kW" for stamp, value in zip(stamps(), WAVE, strict=True)]
    Path("x.csv").write_text("\n".join(["time,power", *shuffled(lines)]))
    query = "select time, replace(power, ' kW', '')::double as power from read_csv('x.csv')"
    values, times = read(open_table("duckdb://", query=query))
    assert values.ravel().tolist() == WAVE
    assert np.all(np.diff(times) == 600.0)
    with pytest.raises(TableError, match=r"duckdb://: a database in memory needs a query.*read_csv\('log\.csv'\)"):
        open_table("duckdb://")
    with pytest.raises(TableError, match=r"duckdb://: the query failed: .*none\.csv"):
        open_table("duckdb://", query="select * from read_csv('none.csv')")


def test_a_missing_driver_names_its_command(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(__import__("sys").modules, "duckdb", None)
    monkeypatch.setitem(__import__("sys").modules, "adbc_driver_manager", None)
    (tmp_path / "x.duckdb").write_bytes(b"\0" * 8 + b"DUCK" + b"\0" * 100)
    with pytest.raises(TableError, match=r"DuckDB needs another package: pip install 'emphatic\[duckdb\]'"):
        open_table(tmp_path / "x.duckdb")
    with pytest.raises(TableError, match=r"pip install 'emphatic\[postgresql\]'"):
        open_table("postgresql://host/db")


# ---------------------------------------------------------------------- PostgreSQL


@pytest.fixture(scope="module")
def postgresql(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    pytest.importorskip("adbc_driver_postgresql")
    with servers.postgresql(tmp_path_factory.mktemp("postgresql") / "server") as port:
        yield f"postgresql://reader@127.0.0.1:{port}/plant"


def execute(url: str, *statements: str) -> list[Any]:
    """Run statements as the owner of the database; the rows of the last."""
    from adbc_driver_postgresql import dbapi

    with dbapi.connect(url.replace("reader@", f"reader:{quote(servers.PASSWORD, safe='')}@")) as connection:
        with connection.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)
            rows = cursor.fetchall() if statements[-1].startswith("select") else []
        connection.commit()
    return rows


@pytest.mark.serve
def test_postgresql(postgresql: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EMPHATIC_PASSWORD", servers.PASSWORD)
    name = ODD.replace('"', '""')
    execute(
        postgresql,
        "create type mode as enum ('auto', 'hand')",
        "create sequence counter",
        f'create table readings (time timestamptz, "{name}" double precision, amount numeric, mode mode, doc jsonb, '
        "door boolean, span interval)",
        "insert into readings select timestamptz '2026-01-01 00:00+02' + i * interval '1 min', sin(i / 9.0), "
        "case when i % 10 = 0 then null else i / 3.0 end, case when i % 3 = 0 then 'hand'::mode else 'auto' end, "
        f"""'{{"a": 1}}', i % 4 = 0, interval '1 s' from generate_series(0, {ROWS - 1}) i order by random()""",
    )
    table = open_table(postgresql)
    assert (table.names, table.categories) == ((ODD, "amount", "door"), ("mode", "doc"))
    assert (table.zone, set(table.ignored)) == ("UTC", {"span"})
    values, times = read(table)
    np.testing.assert_allclose(values[:, 0], WAVE, rtol=1e-12)
    assert np.isnan(values[::10, 1]).all()
    assert np.all(np.diff(times) == 60.0)
    assert times[0] == np.datetime64("2025-12-31T22:00:00").astype(np.int64)
    for query, reason in {
        "select * from reedings": 'relation "reedings" does not exist. It has: readings.',
        "select tme from readings": 'the query failed: column "tme" does not exist.',
        "select amount from readings": "no order",
        "select time, amount, amount from readings": "two columns of the query are named 'amount'",
        "with x as (delete from readings returning *) select * from x": "the query failed",
        "select nextval('counter'), time, amount from readings": "cannot execute nextval() in a read-only transaction",
        "select time, 1 / (amount - amount) as z from readings": "division by zero",
    }.items():
        with pytest.raises(TableError) as caught:
            open_table(postgresql, query=query).count_rows()
        assert reason in str(caught.value)
        assert "\n" not in str(caught.value)
    assert execute(postgresql, "select count(*) from readings") == [(ROWS,)]


@pytest.mark.serve
def test_postgresql_that_cannot_be_reached(postgresql: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EMPHATIC_PASSWORD", "wr0ng")
    for url, reason in {
        postgresql: "password authentication failed .* EMPHATIC_PASSWORD",
        postgresql.replace("plant", "plnt"): "password authentication failed",
        "postgresql://127.0.0.1:1/x": "Connection refused. Check host, port",
        "postgresql://nowhere.invalid/x": "Check host, port",
    }.items():
        with pytest.raises(TableError, match=reason) as caught:
            open_table(url)
        assert "wr0ng" not in str(caught.value)
        assert "\n" not in str(caught.value)
    monkeypatch.setenv("EMPHATIC_PASSWORD", servers.PASSWORD)
    with pytest.raises(TableError, match='database "plnt" does not exist'):
        open_table(postgresql.replace("plant", "plnt"))


@pytest.mark.serve
def test_postgresql_in_flat_memory(postgresql: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A million rows are read in batches: far less memory is used than they take."""
    import pyarrow as pa

    monkeypatch.setenv("EMPHATIC_PASSWORD", servers.PASSWORD)
    columns = ", ".join(f"i as {name}" for name in "abcdefg")
    many = f"select to_timestamp(i) as time, {columns} from generate_series(1, 1000000) i"
    table = open_table(postgresql, query=many)
    before = pa.total_allocated_bytes()
    largest = rows = 0
    for block in table.blocks():
        largest, rows = max(largest, pa.total_allocated_bytes() - before), rows + len(block)
    assert rows == 1_000_000
    assert largest < 40 << 20


@pytest.mark.serve
def test_the_environment_of_the_process_is_left_alone(postgresql: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EMPHATIC_PASSWORD", servers.PASSWORD)
    before = dict(os.environ)
    with pytest.raises(TableError):
        open_table(postgresql, query="select * from nothing_at_all")
    assert dict(os.environ) == before
