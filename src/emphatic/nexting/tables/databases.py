"""Databases: PostgreSQL by address, SQLite and DuckDB by the path of a file; the rows of a query, in the order of time.

Rows of SQL have no order unless a query asks for one. A query is therefore wrapped: its rows are ordered by their time
column, and rows of one time by the other columns, so that the same rows come in the same order on every run. A query
whose rows come in the order of time is left as it is. All connections that read are read-only.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple, Protocol
from urllib.parse import quote, urlencode

import numpy as np
import pyarrow as pa
import pyarrow.types as pt

from emphatic.nexting.tables import fields
from emphatic.nexting.tables.fields import PLAIN, TimeColumn
from emphatic.nexting.tables.files import LOOK_ROWS, File, Format, OpenOptions
from emphatic.nexting.tables.stores import DataStore, Request, Spool, StoreAddress, join, make_array
from emphatic.nexting.tables.table import TableError

__all__ = ["DUCKDB", "DUCKDB_FILE", "POSTGRESQL", "SQLITE", "SQLITE_FILE"]

#: Columns, at most, that decide on the order of rows of one time.
_TIES = 32
#: Tables that a message lists, at most.
_LISTED = 12
#: The words that a query may begin with.
_READING = ("select", "with", "values", "table", "from")
#: Pieces of SQL in which no word counts: comments, texts, quoted names.
_QUIET = re.compile(
    r"--[^\n]*|/\*.*?\*/|\$(?P<tag>\w*)\$.*?\$(?P=tag)\$|'(?:[^']|'')*'|\"(?:[^\"]|\"\")*\"|`[^`]*`", re.DOTALL
)


# ---------------------------------------------------------------------- SQL


class Database(Protocol):
    """A connection to read from."""

    def tables(self) -> list[str]:
        """Its tables and views, as a query names them."""

    def row_id(self, table: str) -> str | None:
        """What orders the rows of a table as they were written; None if nothing does."""

    def stream(self, sql: str, rows: int) -> Iterator[pa.RecordBatch]:
        """The rows of a query in batches of about ``rows`` rows; the first may be empty, and says which columns."""

    def as_text(self, column: str) -> str:
        """The expression for a column as text."""

    def close(self) -> None:
        """End the connection."""


def quoted(name: str) -> str:
    """A name in SQL, whatever is in it.

    Args:
        name: The name of a table or a column.
    """
    escaped = name.replace('"', '""')
    return f'"{escaped}"'


def outline(sql: str) -> str:
    """A query in lower case, without its comments, texts, quoted names and what brackets enclose.

    Args:
        sql: The query.

    >>> outline("SELECT max(x) AS m FROM t WHERE w = 'order by' -- or z").split()
    ['select', 'max', 'as', 'm', 'from', 't', 'where', 'w', '=']
    """
    text = _QUIET.sub(" ", sql).lower()
    while (shorter := re.sub(r"\([^()]*\)", " ", text)) != text:
        text = shorter
    return text


def check_query(name: str, sql: str) -> str:
    """The query without comments and what ends it; TableError if it is not a single one that only reads.

    Args:
        name: The store, for messages.
        sql: The query.
    """
    text = _QUIET.sub(lambda quiet: " " if quiet[0].startswith(("--", "/*")) else quiet[0], sql)
    text = re.sub(r"(?:;|\s)+$", "", text)
    words = outline(text)
    if re.search("[();]", words) or not re.match(rf"\s*(?:{'|'.join(_READING)})\b|\s*$", words):
        raise TableError(f"{name}: the query must be one select statement, which changes nothing.")
    return text


class _Query(NamedTuple):
    """A query to read: its text, what its rows are selected from, and what orders them as they were written."""

    text: str
    origin: str
    row_id: str | None
    has_order: bool


def open_query(name: str, connect: Callable[[], Database], request: Request) -> Spool:
    """The rows of a query in the order of time, as a source.

    Args:
        name: The database, for messages.
        connect: Opens a connection.
        request: The query, and the time column.
    """
    for setting in request.named:
        if setting != "query":
            raise TableError(
                f"{name}: {setting!r} is for time series stores. Put it into the query: where time >= '2026-01-01'."
            )
    database = connect()
    try:
        query = _find_query(name, database, request.query)
        with _explaining(name, database):
            look = _first_rows(database, f"select * from {query.origin} limit {LOOK_ROWS}")
        if look.num_rows == 0:
            raise TableError(f"{name}: the query has no rows.")
        _check_columns(name, look)
        order, how = _find_order(name, look, query, request)
        columns = ", ".join(
            f"{database.as_text(column.name)} as {quoted(column.name)}"
            if _is_opaque(column.type)
            else quoted(column.name)
            for column in look.schema
        )
        sql = f"select {columns} from {query.origin}{order}"
    except BaseException:
        database.close()
        raise
    facts = {"query": {"text": query.text, "order": how}}
    return Spool(_stream(name, database, sql), facts, request.extent)


def _stream(name: str, database: Database, sql: str) -> Iterator[pa.RecordBatch]:
    with closing(database), _explaining(name, database):
        yield from database.stream(sql, LOOK_ROWS)


def _first_rows(database: Database, sql: str) -> pa.Table:
    batches = list(database.stream(sql, LOOK_ROWS))
    names = batches[0].schema.names
    return pa.Table.from_arrays([join([batch.column(i) for batch in batches]) for i in range(len(names))], names)


def _find_query(name: str, database: Database, text: str | None) -> _Query:
    """The query that was asked for, or that of the only table."""
    if text is not None:
        sql = check_query(name, text)
        has_order = re.search(r"\border\s+by\b", outline(sql)) is not None
        return _Query(sql, f"({sql}) as {quoted('query')}", None, has_order)
    with _explaining(name, database):
        tables = database.tables()
    if not tables:
        raise TableError(f"{name}: the database has no tables.")
    if len(tables) > 1:
        shown = ", ".join(tables[:_LISTED]) + (f" and {len(tables) - _LISTED} more" if len(tables) > _LISTED else "")
        raise TableError(
            f"{name}: the database has {len(tables)} tables: {shown}. Choose one: "
            f"query={f'select * from {tables[0]}'!r}"
        )
    sql = f"select * from {tables[0]}"
    return _Query(sql, tables[0], database.row_id(tables[0]), False)


def _check_columns(name: str, look: pa.Table) -> None:
    for column in look.column_names:
        if look.column_names.count(column) > 1:
            raise TableError(f"{name}: two columns of the query are named {column!r}. Rename one: … as other_name.")


def _find_order(name: str, look: pa.Table, query: _Query, request: Request) -> tuple[str, str]:
    """The clause that puts rows in the order of time, and what it does in words."""
    kinds = {column: fields.find_kind(fields.as_plain(look.column(column)), PLAIN) for column in look.column_names}
    when, why, _ = fields.find_time(name, look, kinds, request.time, PLAIN)
    if when is not None and _sorts_as_written(look, when):
        seconds = when.seconds(look)
        if query.has_order and np.all(np.diff(seconds[np.isfinite(seconds)]) >= 0):
            return "", "as the query orders them"
        ties = [query.row_id] if query.row_id else _ties(look, when.names)
        return f" order by {', '.join([*map(quoted, when.names), *ties])}", f"by {when.name!r}"
    if query.has_order:
        return "", "as the query orders them"
    if query.row_id is not None:
        return f" order by {query.row_id}", "as they were written"
    if request.sort:  # which then happens in memory
        return f" order by {', '.join(_ties(look, ()))}", "by all columns"
    if when is not None:
        raise TableError(
            f"{name}: SQL cannot put dates such as {when.format} in order, which column {when.name!r} has. Sort the "
            "rows by time, with sort=True if they fit in memory; or order them by another column in the query."
        )
    ordered = f"{query.text} order by {quoted(look.column_names[0])}"
    raise TableError(
        f"{name}: the rows of a query have no order, and {why or 'there is no time column'}. Name the time column: "
        f"time=…; or order the rows: query={ordered!r}"
    )


def _ties(look: pa.Table, names: Sequence[str]) -> list[str]:
    sortable = [column.name for column in look.schema if not pt.is_nested(column.type)]
    return [quoted(column) for column in sortable if column not in names][:_TIES]


def _sorts_as_written(look: pa.Table, when: TimeColumn) -> bool:
    """Whether SQL puts a time column in the order of time: not if it is text in which the day comes first."""
    for column, form in zip(when.names, when.formats, strict=True):
        if fields.is_text(fields.as_plain(look.column(column))) and form not in (
            "iso",
            "clock %H:%M:%S",
            "clock %H:%M",
        ):
            return False
    return True


def _is_opaque(of: pa.DataType) -> bool:
    """Whether a type has no numbers, times or texts that Arrow knows: an enumeration, JSON, a UUID."""
    return isinstance(of, pa.BaseExtensionType) or pt.is_binary(of) or pt.is_large_binary(of)


@contextmanager
def _explaining(name: str, database: Database) -> Iterator[None]:
    """Turn an error of a query into one sentence with the tables that there are."""
    try:
        yield
    except (TableError, GeneratorExit):
        raise
    except Exception as error:  # each driver has its own, and a stream of Arrow those of Arrow
        reason = explain(error)
        if re.search(r"(no such table|relation .* does not exist|[Tt]able with name .* does not exist)", reason):
            tables: list[str] = []
            with suppress(Exception):
                tables = database.tables()
            there = f" It has: {', '.join(tables[:_LISTED])}." if tables else ""
            raise TableError(f"{name}: {reason}.{there}") from None
        raise TableError(f"{name}: the query failed: {reason}.") from None


def explain(error: BaseException) -> str:
    """An error of a driver in one line, without its prefixes, its hints and where it occurred.

    Args:
        error: The error.
    """
    text = str(error).strip()
    text = re.split(
        r"\n\s*(?:LINE \d|HINT|DETAIL|Detail|\^)|\. SQLSTATE|\[Vendor|\s+Is the server running|!\s+Did you mean", text
    )[0]
    text = re.sub(r"^\w+ Error: ", "", text)
    text = re.sub(r"^(?:[A-Z_]+: )?(?:\[libpq\] )?(?:Failed to (?:execute|connect)[^:]*: )?", "", text)
    text = re.sub(r"^.*?ERROR:\s+", "", text, flags=re.DOTALL)
    return " ".join(text.split()).rstrip(".") or type(error).__name__


# ---------------------------------------------------------------------- SQLite


class _Sqlite:
    """A file of SQLite, read by the module of the standard library."""

    def __init__(self, path: str) -> None:
        if not Path(path).is_file():
            raise TableError(f"{path}: there is no such file.")
        location = f"file:{quote(str(Path(path).absolute()))}?mode=ro"
        try:
            self._connection = sqlite3.connect(location, uri=True, timeout=30.0, check_same_thread=False)
        except sqlite3.Error as error:
            raise TableError(f"{path}: the database cannot be opened: {explain(error)}.") from None
        self._connection.text_factory = lambda data: data.decode("utf-8", "replace")

    def tables(self) -> list[str]:
        sql = (
            "select name from sqlite_master where type in ('table', 'view') and name not like 'sqlite\\_%' escape '\\'"
        )
        return [_plain_name(name) for (name,) in self._connection.execute(f"{sql} order by name")]

    def row_id(self, table: str) -> str | None:
        try:  # before SQLite 3.36 the row ids of a view are null
            sql = f"select rowid from {table} where rowid is not null limit 1"
            return "rowid" if self._connection.execute(sql).fetchall() else None
        except sqlite3.Error:  # a view, or a table without row ids
            return None

    def stream(self, sql: str, rows: int) -> Iterator[pa.RecordBatch]:
        with closing(self._connection.execute(sql)) as cursor:
            names = [column[0] for column in cursor.description]
            yield pa.RecordBatch.from_arrays([pa.nulls(0) for _ in names], names)
            while batch := cursor.fetchmany(rows):
                yield pa.RecordBatch.from_arrays(
                    [make_array(list(column)) for column in zip(*batch, strict=True)], names
                )

    def as_text(self, column: str) -> str:
        return quoted(column)

    def close(self) -> None:
        self._connection.close()


def _plain_name(name: str) -> str:
    """A name as people write it: quoted only where it must be."""
    return name if re.fullmatch(r"[a-z_][a-z0-9_]*", name) and name not in _READING else quoted(name)


# ---------------------------------------------------------------------- DuckDB


class _DuckDb:
    """A file of DuckDB, read only; or a database in memory, whose queries name files."""

    def __init__(self, path: str) -> None:
        import duckdb

        if path and not Path(path).is_file():
            raise TableError(f"{path}: there is no such file.")
        try:
            self._connection = duckdb.connect(path, read_only=bool(path))
        except duckdb.Error as error:  # such as a lock, with the process that holds it
            raise TableError(f"{path}: the database cannot be opened: {explain(error)}.") from None

    def tables(self) -> list[str]:
        sql = (
            "select table_schema, table_name from information_schema.tables "
            "where table_schema not in ('information_schema', 'pg_catalog') order by all"
        )
        rows = self._connection.execute(sql).fetchall()
        return [(f"{_plain_name(schema)}." if schema != "main" else "") + _plain_name(name) for schema, name in rows]

    def row_id(self, table: str) -> str | None:
        import duckdb

        try:
            self._connection.execute(f"select rowid from {table} limit 0")
        except duckdb.Error:  # a view
            return None
        return "rowid"

    def stream(self, sql: str, rows: int) -> Iterator[pa.RecordBatch]:
        result = self._connection.sql(sql)
        # Before DuckDB 1.4 the reader had another name.
        read = getattr(result, "to_arrow_reader", None) or result.fetch_arrow_reader
        with read(rows) as reader:
            yield pa.RecordBatch.from_pylist([], reader.schema)
            yield from reader

    def as_text(self, column: str) -> str:
        return f"{quoted(column)}::varchar"

    def close(self) -> None:
        self._connection.close()


# ---------------------------------------------------------------------- PostgreSQL


def _connect_postgresql(address: StoreAddress) -> Any:
    """A connection by ADBC that can only read; TableError in one line if there is none to be had."""
    import adbc_driver_manager
    import adbc_driver_postgresql.dbapi

    options = {"connect_timeout": "10", "application_name": "emphatic"} | dict(address.options)
    options["options"] = f"{options.get('options', '')} -c default_transaction_read_only=on".strip()
    user = "" if address.user is None else quote(address.user, safe="")
    password = "" if address.password is None else ":" + quote(address.password, safe="")
    login = f"{user}{password}@" if user or password else ""
    uri = f"postgresql://{login}{address.place}{quote(address.path)}?{urlencode(options, quote_via=quote)}"
    try:
        return adbc_driver_postgresql.dbapi.connect(uri)
    except adbc_driver_manager.Error as error:
        raise TableError(
            f"{address}: no connection: {address.hide(explain(error))}. Check host, port, user and the environment "
            "variable EMPHATIC_PASSWORD, and that the server runs."
        ) from None


class _PostgreSql:
    """A connection to PostgreSQL that can only read."""

    def __init__(self, address: StoreAddress) -> None:
        self._connection = _connect_postgresql(address)

    def tables(self) -> list[str]:
        sql = (
            "select case when table_schema = current_schema() then '' else quote_ident(table_schema) || '.' end "
            "|| quote_ident(table_name) from information_schema.tables "
            "where table_schema not in ('information_schema', 'pg_catalog') order by 1"
        )
        self._connection.rollback()  # of a query that failed
        with self._connection.cursor() as cursor:
            cursor.execute(sql)
            return [name for (name,) in cursor.fetchall()]

    def row_id(self, table: str) -> str | None:
        return None

    def stream(self, sql: str, rows: int) -> Iterator[pa.RecordBatch]:
        with self._connection.cursor() as cursor:
            cursor.execute(sql)
            with cursor.fetch_record_batch() as reader:
                yield pa.RecordBatch.from_pylist([], reader.schema)
                yield from reader

    def as_text(self, column: str) -> str:
        return f"{quoted(column)}::text"

    def close(self) -> None:
        self._connection.close()


# ---------------------------------------------------------------------- what there is


def _read_postgresql(address: StoreAddress, request: Request) -> Spool:
    return open_query(repr(address), lambda: _PostgreSql(address), request)


def _read_sqlite(address: StoreAddress, request: Request) -> Spool:
    return open_query(address.path, lambda: _Sqlite(address.path), request)


def _read_duckdb(address: StoreAddress, request: Request) -> Spool:
    if not address.path and request.query is None:
        raise TableError(
            f"{address}: a database in memory needs a query, which names files: "
            "query=\"select * from read_csv('log.csv')\""
        )
    return open_query(repr(address), lambda: _DuckDb(address.path), request)


POSTGRESQL = DataStore(
    name="PostgreSQL",
    schemes=("postgresql", "postgres"),
    form="postgresql://USER@HOST:PORT/DATABASE",
    read=_read_postgresql,
    extra="emphatic[postgresql]",
)
SQLITE = DataStore(name="SQLite", schemes=("sqlite",), form="sqlite:///PATH", read=_read_sqlite)
DUCKDB = DataStore(
    name="DuckDB",
    schemes=("duckdb",),
    form="duckdb:///PATH or duckdb://",
    read=_read_duckdb,
    extra="emphatic[duckdb]",
)


def _is_sqlite(file: File) -> bool:
    return file.start.startswith(b"SQLite") and file.path.suffix != ".db3"  # which is a ROS 2 bag


def _is_duckdb(file: File) -> bool:
    return file.start.startswith(b"DUCK", 8)  # behind a checksum


def _open_file(store: DataStore) -> Callable[[File, OpenOptions], Spool]:
    def open_path(file: File, options: OpenOptions) -> Any:
        with store.importing():
            return store.read(StoreAddress(store.schemes[0], path=file.name), options.request or Request())

    return open_path


SQLITE_FILE = Format("SQLite", _is_sqlite, _open_file(SQLITE), request=True)
DUCKDB_FILE = Format("DuckDB", _is_duckdb, _open_file(DUCKDB), request=True)
