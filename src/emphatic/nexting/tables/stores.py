"""Stores: databases and time series stores that are named by an address, to read rows from.

A kind of store is one ``DataStore`` in a file of this package, or an entry point of the group ``emphatic.stores``;
nothing else lists stores. It reads the rows of a query as batches of Arrow, in the order of time. A ``Spool`` puts
these into a temporary file on their way, so that the server answers once, however often the rows are read, and memory
stays flat.

No message, log or file shows a password.
"""

from __future__ import annotations

import functools
import os
import re
import tempfile
import weakref
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, quote, unquote, urlsplit

import pyarrow as pa
import pyarrow.types as pt

from emphatic.common.discovery import discover
from emphatic.nexting.tables.fields import PLAIN
from emphatic.nexting.tables.files import LOOK_ROWS, DroppedRows, Source
from emphatic.nexting.tables.table import TableError

__all__ = ["DataStore", "Request", "Spool", "StoreAddress", "is_address", "open_store", "stores"]

#: Bytes of a temporary file above which it is on the disk.
_IN_MEMORY = 1 << 24
#: Suffixes of files of a database, by the scheme that they stand for.
_SUFFIXES = {".db": "sqlite", ".sqlite": "sqlite", ".sqlite3": "sqlite", ".duckdb": "duckdb", ".ddb": "duckdb"}
_COMPRESSED = pa.ipc.IpcWriteOptions(compression="lz4")


# ---------------------------------------------------------------------- addresses


@dataclass(frozen=True)
class StoreAddress:
    """Where a store is.

    Args:
        scheme: What stands before the ``://``.
        host: The host, "" for none.
        port: The port, None for the usual one.
        path: What follows the host: a database, or the path of a file.
        user: The user, or None.
        password: The password, or None.
        options: The options behind the question mark.

    >>> address = StoreAddress.parse("postgresql://reader@db.example:5433/plant?sslmode=require")
    >>> address, address.user, address.options
    (postgresql://db.example:5433/plant, 'reader', {'sslmode': 'require'})
    """

    scheme: str
    host: str = ""
    port: int | None = None
    path: str = ""
    user: str | None = None
    password: str | None = None
    options: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def parse(cls, text: str, variables: Mapping[str, str] = os.environ) -> StoreAddress:
        """An address as a user writes it.

        The password is that of the address, or of the environment variable ``EMPHATIC_PASSWORD``.

        Args:
            text: The address; or the path of a file of a database, by its suffix.
            variables: The environment.
        """
        if not is_address(text):
            return cls(_SUFFIXES.get(Path(text).suffix.lower(), ""), path=text)
        scheme = text.partition("://")[0].lower()
        try:
            url = urlsplit(text)
            port = url.port
            options = dict(parse_qsl(url.query, keep_blank_values=True))
        except ValueError:  # whose message may have a piece of the password in it
            raise TableError(
                f"{scheme}://…: this address cannot be read. Write {scheme}://USER@HOST:PORT/NAME, and pass the "
                "password by the environment variable EMPHATIC_PASSWORD."
            ) from None
        user, password = (None if value is None else unquote(value) for value in (url.username, url.password))
        path = unquote(url.path)
        if scheme in _SUFFIXES.values():  # sqlite:///x.db is relative, sqlite:////x.db absolute
            path = unquote(url.netloc) + path if url.netloc else path.removeprefix("/")
            return cls(scheme, path=path, options=options)
        password = password or variables.get("EMPHATIC_PASSWORD") or None
        return cls(scheme, url.hostname or "", port, path, user, password, options)

    @property
    def place(self) -> str:
        """Host and port."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port is None else f"{host}:{self.port}"

    @property
    def name(self) -> str:
        """A short name, for the folder of results: that of the database, or of the host."""
        return Path(self.path).name.split(".")[0] or self.host.split(".")[0] or self.scheme

    def hide(self, message: str) -> str:
        """A message in which ``***`` stands for the password.

        Args:
            message: Any text, such as the error of a driver.
        """
        password = self.password or ""
        for form in {password, quote(password), quote(password, safe="")} - {""}:
            message = message.replace(form, "***")
        return message

    def __repr__(self) -> str:
        """Without user, password and options: what messages, reports and files show."""
        return f"{self.scheme}://{self.place}{self.path}" if self.host else self.path or f"{self.scheme}://"


def is_address(source: object) -> bool:
    """Whether a source is an address rather than the path of a file.

    Args:
        source: What a user wants to read.
    """
    return isinstance(source, str) and re.match(r"[A-Za-z][A-Za-z0-9+.-]*://", source) is not None


# ---------------------------------------------------------------------- what is asked for


class Request(NamedTuple):
    """Which rows of a store are read.

    Args:
        query: The query, in the language of the store; None for its only table.
        range: The first moment and the one after the last, in seconds since 1970; None for all or the usual.
        step: The seconds from one row to the next, where a store can choose them.
        time: The time column, as in ``open_table``.
        sort: Whether the rows are sorted by time later, in memory.
        extent: What an earlier run had read, as ``Spool.extent`` gave it: these rows are read again.
    """

    query: str | None = None
    range: tuple[float, float] | None = None
    step: float | None = None
    time: str | bool | None = None
    sort: bool = False
    extent: Mapping[str, Any] | None = None

    @property
    def named(self) -> list[str]:
        """The settings that only a store has and that are given."""
        return [name for name in ("query", "range", "step") if getattr(self, name) is not None]


class Spool:
    """A source whose rows come once, in batches, and are kept in a temporary file that has no name.

    Args:
        batches: The batches. Their columns may differ: a column that a batch lacks is missing in it.
        facts: What was decided about the query, as JSON can hold it: part of ``summary.json``.
        extent: What an earlier run had read; with ``rows``, as many rows are read.
        complete: Whether all rows are read before the first ones are looked at, since columns may appear late.
    """

    style = PLAIN
    rows = None

    def __init__(
        self,
        batches: Iterator[pa.RecordBatch],
        facts: Mapping[str, Any],
        extent: Mapping[str, Any] | None = None,
        complete: bool = False,
    ) -> None:
        self.dropped = DroppedRows()
        self.facts = dict(facts)
        self._incoming: Iterator[pa.RecordBatch] | None = batches
        self._extent, self._complete = dict(extent or {}), complete
        self._most = self._extent.get("rows")
        self._file = tempfile.SpooledTemporaryFile(_IN_MEMORY, prefix="emphatic-")  # noqa: SIM115
        weakref.finalize(self, self._file.close)
        #: Where each batch lies in the file: its offset, its length and its rows.
        self._places: list[tuple[int, int, int]] = []
        self._size = self._count = 0
        self._types: dict[str, set[pa.DataType]] = {}

    @property
    def extent(self) -> dict[str, Any]:
        """What a run that resumes reads again: the number of rows so far, and whatever the store has fixed."""
        return {**self._extent, "rows": self._count}

    def look(self) -> pa.Table:
        while self._incoming is not None and (self._complete or self._count < LOOK_ROWS):
            self._fetch()
        batches, rows = [], 0
        for i in range(len(self._places)):
            if rows >= LOOK_ROWS:
                break
            batches.append(self._load(i))
            rows += len(batches[-1])
        columns = {name: join([_column(batch, name) for batch in batches]) for name in self._types}
        return pa.table(columns).slice(0, LOOK_ROWS)

    def batches(self, names: tuple[str, ...], start: int) -> Iterator[pa.RecordBatch]:
        i = 0
        while i < len(self._places) or self._fetch():
            rows = self._places[i][2]
            if start < rows:
                batch = self._load(i)
                columns = [_column(batch, name) for name in names]
                yield pa.RecordBatch.from_arrays(columns, list(names)).slice(start)
            start = max(0, start - rows)
            i += 1

    def _fetch(self) -> bool:
        """Put the next batch into the file; False at the end."""
        batch = None if self._incoming is None or self._count == self._most else next(self._incoming, None)
        if batch is None:
            if (close := getattr(self._incoming, "close", None)) is not None:
                close()
            self._incoming = None
            return False
        if self._most is not None:
            batch = batch.slice(0, self._most - self._count)
        for column in batch.schema:
            self._types.setdefault(column.name, set()).add(column.type)
        for begin in range(0, max(1, len(batch)), LOOK_ROWS):
            piece = batch.slice(begin, LOOK_ROWS)
            sink = pa.BufferOutputStream()
            with pa.ipc.new_stream(sink, piece.schema, options=_COMPRESSED) as writer:
                writer.write_batch(piece)
            data = sink.getvalue()
            try:
                self._file.seek(self._size)
                self._file.write(data)
            except OSError as error:
                raise TableError(
                    f"The temporary file of the rows cannot be written: {error.strerror}. Set TMPDIR to a folder with "
                    "more space."
                ) from None
            self._places.append((self._size, len(data), len(piece)))
            self._size += len(data)
            self._count += len(piece)
        return True

    def _load(self, i: int) -> pa.RecordBatch:
        offset, length, _ = self._places[i]
        self._file.seek(offset)
        return pa.ipc.open_stream(self._file.read(length)).read_next_batch()


def _column(batch: pa.RecordBatch, name: str) -> pa.Array:
    return batch.column(name) if name in batch.schema.names else pa.nulls(len(batch))


def join(arrays: list[pa.Array]) -> pa.Array:
    """Arrays as one: of numbers if all are, of text if their types differ otherwise.

    Args:
        arrays: Arrays whose types may differ, since a database may store anything in any row.
    """
    types = {array.type for array in arrays if not pt.is_null(array.type)} or {pa.null()}
    if len(types) > 1:
        numeric = all(pt.is_integer(of) or pt.is_floating(of) for of in types)
        types = {pa.float64() if numeric else pa.string()}
    (target,) = types
    return pa.concat_arrays([array.cast(target, safe=False) for array in arrays])


def make_array(values: list[Any]) -> pa.Array:
    """Values of Python as an array of Arrow: of text, if they are of several types; bytes are missing then.

    Args:
        values: Numbers, texts, bytes and None.
    """
    try:
        return pa.array(values)
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError):
        texts = [None if value is None or isinstance(value, bytes) else str(value) for value in values]
        return pa.array(texts, pa.string())


# ---------------------------------------------------------------------- the kinds of stores


@dataclass(frozen=True, kw_only=True)
class DataStore:
    """A kind of store, by the scheme of its addresses.

    Args:
        name: The name, as messages write it.
        schemes: The schemes of its addresses.
        form: How an address is written, such as postgresql://USER@HOST:PORT/DATABASE.
        read: Opens the rows of a request.
        extra: What pip installs its client by, such as emphatic[postgresql].
    """

    name: str
    schemes: tuple[str, ...]
    form: str
    read: Callable[[StoreAddress, Request], Source]
    extra: str = ""

    @contextmanager
    def importing(self) -> Iterator[None]:
        """Name the command that installs the client, if it is missing."""
        try:
            yield
        except ImportError:
            if not self.extra:
                raise
            raise TableError(f"{self.name} needs another package: pip install '{self.extra}'") from None


@functools.cache
def stores() -> tuple[DataStore, ...]:
    """All kinds of stores: first those of the library, then those of other distributions."""
    plugins = discover("emphatic.nexting.tables", "emphatic.stores")
    known: list[DataStore] = []
    for name in plugins:
        known += plugins.objects(
            name, lambda value: isinstance(value, DataStore), "an emphatic.nexting.tables.stores.DataStore"
        )
    return tuple(known)


def open_store(text: str, request: Request) -> tuple[str, Source]:
    """Open the rows of a request.

    Args:
        text: The address of the store.
        request: Which rows to read.

    Returns:
        The address as messages may show it, and the source.
    """
    address = StoreAddress.parse(text)
    store = _find_store(address)
    with store.importing():
        return repr(address), store.read(address, request)


def _find_store(address: StoreAddress) -> DataStore:
    store = next((store for store in stores() if address.scheme in store.schemes), None)
    if store is None:
        forms = ", ".join(store.form for store in stores())
        shown = f"{address.scheme}://…" if address.scheme else repr(address.path)
        raise TableError(f"{shown}: this is not the address of a store. Addresses are: {forms}.")
    return store
