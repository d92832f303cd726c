"""Time series stores by HTTP: InfluxDB, Prometheus and VictoriaMetrics.

A query gives series, each with its own times. They are joined: a row for each time, a column for each series.
The name of a column is that of the series with its labels, as PromQL writes it: ``temperature{machine="a"}``.
"""

from __future__ import annotations

import base64
import json
import math
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import quote, urlencode

import numpy as np
import pyarrow as pa

from emphatic.nexting.tables.databases import check_query, outline
from emphatic.nexting.tables.stores import DataStore, Request, Spool, StoreAddress, make_array
from emphatic.nexting.tables.table import TableError

if TYPE_CHECKING:
    import http.client

__all__ = ["INFLUXDB", "PROMETHEUS"]

#: Seconds after which a server that says nothing is given up.
_TIMEOUT = 300.0
#: Points of one series that Prometheus returns at a time, at most 11,000; and of all series in a window, about.
_STEPS, _POINTS = 10_000, 300_000
#: What is read of Prometheus by default: the last week, in steps of a minute.
_RANGE, _STEP = 7 * 86400.0, 60.0
#: Rows of a chunk of InfluxDB.
_CHUNK = 10_000
#: The ports of addresses that have none.
_PORTS = {"prometheus": 9090, "victoriametrics": 8428, "influxdb": 8086}
#: Names of columns of times, the first that no series has.
_TIME_NAMES = ("time", "timestamp", "time of row")


# ---------------------------------------------------------------------- HTTP


def _make_opener() -> Any:
    """What opens addresses, and follows no redirect: that would send the password to another server."""
    import urllib.request  # late: it takes a tenth of a second, and files do not need it

    class NoRedirect(urllib.request.HTTPRedirectHandler):
        def redirect_request(self, req: Any, fp: Any, code: int, msg: str, headers: Any, newurl: str) -> None:
            return None

    return urllib.request.build_opener(NoRedirect)


class _Server:
    """A server at an address, with the login that it asks for.

    Args:
        address: The address, whose scheme may name the kind of store.
        token: How a password without a user is sent: ``Bearer`` or ``Token``.
        prefix: The path before those of requests.
    """

    def __init__(self, address: StoreAddress, token: str = "Bearer", prefix: str = "") -> None:
        self.address = address
        secure = address.scheme.endswith("https")
        port = _PORTS.get(address.scheme.partition("+")[0]) if address.port is None else address.port
        self._root = f"http{'s' if secure else ''}://{replace(address, port=port).place}{prefix}"
        self._headers = {"User-Agent": "emphatic"}
        if address.password is not None:
            login = f"{token} {address.password}"
            if address.user is not None:
                pair = f"{address.user}:{address.password}".encode()
                login = f"Basic {base64.b64encode(pair).decode()}"
            self._headers["Authorization"] = login
        self._opener = _make_opener()

    @contextmanager
    def open(self, path: str, options: Mapping[str, str]) -> Iterator[http.client.HTTPResponse]:
        """The answer to a request; TableError in one line if there is none.

        Args:
            path: The path.
            options: The options behind the question mark.
        """
        import http.client
        import urllib.error
        import urllib.request

        url = f"{self._root}{path}?{urlencode(options)}"
        try:
            with self._opener.open(urllib.request.Request(url, None, self._headers), timeout=_TIMEOUT) as answer:
                yield answer
        except urllib.error.HTTPError as error:
            with error:
                raise self._refused(error.code, error.read(4000), error.headers.get("Location")) from None
        except (OSError, http.client.HTTPException, ValueError) as error:
            if isinstance(error, TableError):
                raise
            reason = getattr(error, "reason", error)
            shown = self.address.hide(" ".join(str(getattr(reason, "strerror", None) or reason).split())).rstrip(".")
            raise TableError(
                f"{self.address}: the server does not answer: {shown}. Check host and port, and that it runs."
            ) from None

    def _refused(self, code: int, body: bytes, location: str | None) -> TableError:
        if code in (401, 403):
            return TableError(
                f"{self.address}: wrong or missing password ({code}). Name the user in the address (none for a token), "
                "and set the environment variable EMPHATIC_PASSWORD."
            )
        if 300 <= code < 400:
            return TableError(
                f"{self.address}: the server redirects to another address: {self.address.hide(str(location))}. Name it."
            )
        return TableError(
            f"{self.address}: the server rejected the request: {self.address.hide(_error_text(body))} ({code})."
        )

    def get_json(self, path: str, options: Mapping[str, str]) -> Any:
        """The answer of a server that answers in JSON."""
        with self.open(path, options) as answer:
            text = answer.read()
        try:
            return json.loads(text)
        except ValueError:
            raise TableError(f"{self.address}: the answer is not JSON, so this is another kind of server.") from None


def _error_text(body: bytes) -> str:
    """What a server says is wrong, in one line."""
    text = body.decode("utf-8", "replace")
    try:
        content = json.loads(text)
        text = str(content.get("error") or content.get("message") or text)
    except (ValueError, AttributeError):
        pass
    return " ".join(text.split())[:500].rstrip(".") or "without a reason"


# ---------------------------------------------------------------------- series and windows


class Series(NamedTuple):
    """A series in a window: its name, and its times in nanoseconds with their values."""

    name: str
    times: list[int]
    values: list[Any]


def series_name(field: str, labels: Mapping[str, str]) -> str:
    """The name of a series with its labels.

    Args:
        field: The metric or field.
        labels: The labels or tags.

    >>> series_name("temperature", {"machine": "a", "floor": '2"'})
    'temperature{floor="2\\\\"",machine="a"}'
    """
    written = []
    for key, value in sorted(labels.items()):
        escaped = value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
        written.append(f'{key}="{escaped}"')
    return f"{field}{{{','.join(written)}}}" if written else field


def join_series(series: list[Series]) -> pa.RecordBatch | None:
    """The series of a window as rows, in the order of time; None without any.

    Args:
        series: The series. Several of one name are joined; of two values at one time the later counts.
    """
    stamps = [np.array(entry.times, np.int64) for entry in series]
    if not any(map(len, stamps)):
        return None
    moments = np.unique(np.concatenate(stamps))
    columns: dict[str, list[Any]] = {}
    for entry, times in zip(series, stamps, strict=True):
        column = columns.setdefault(entry.name, [None] * len(moments))
        for place, value in zip(np.searchsorted(moments, times).tolist(), entry.values, strict=True):
            column[place] = value
    arrays = [pa.array(moments).cast(pa.timestamp("ns", "UTC")), *map(make_array, columns.values())]
    time_name = next(name for name in _TIME_NAMES if name not in columns)
    return pa.RecordBatch.from_arrays(arrays, [time_name, *columns])


def _describe_range(span: tuple[float, float] | None) -> str:
    if span is None:
        return "all times"
    begin, end = (datetime.fromtimestamp(moment, UTC).isoformat().replace("+00:00", "Z") for moment in span)
    return f"{begin} to {end}"


def _facts(query: str, span: tuple[float, float] | None, step: float | None) -> dict[str, Any]:
    text = None if step is None else f"{step:g} s"
    return {"query": {"text": query, "range": _describe_range(span), "step": text}}


def _fixed_range(request: Request) -> tuple[float, float] | None:
    """The range of a request, or that of the run that is resumed."""
    if request.extent is not None and "range" in request.extent:
        begin, end = request.extent["range"]
        return float(begin), float(end)
    return request.range


# ---------------------------------------------------------------------- Prometheus and VictoriaMetrics


def _read_prometheus(address: StoreAddress, request: Request) -> Spool:
    """The series of a query of PromQL or MetricsQL."""
    server = _Server(address, prefix=quote(address.path.rstrip("/")))
    if request.query is None:
        raise TableError(f"{address}: a query is needed, such as query='avg by (instance) (node_load1)'")
    step = request.step or _STEP
    begin, end = _fixed_range(request) or (time.time() - _RANGE, time.time())
    begin_step, stop = math.ceil(begin / step), math.ceil(end / step)  # on whole steps: the same rows on every run
    if stop <= begin_step:
        raise TableError(f"{address}: the range is shorter than the step, {step:g} s. Choose a longer range=…")
    span = (begin_step * step, stop * step)
    batches = _prometheus_batches(server, request.query, begin_step, stop, step)
    extent = {**(request.extent or {}), "range": list(span)}
    return Spool(batches, _facts(request.query, span, step), extent, complete=True)


def _prometheus_batches(server: _Server, query: str, begin: int, stop: int, step: float) -> Iterator[pa.RecordBatch]:
    at, length, empty = begin, 500, True
    while at < stop:
        end = min(at + length, stop)
        options = {"query": query, "start": repr(at * step), "end": repr((end - 1) * step), "step": repr(step)}
        answer = server.get_json("/api/v1/query_range", options)
        result = answer.get("data", {}).get("result", []) if isinstance(answer, dict) else []
        series = []
        for entry in result:
            labels = dict(entry["metric"])
            name = series_name(labels.pop("__name__", ""), labels) or query
            # Times of float64 seconds are on the grid of steps: rounding recovers them.
            times = [round(round(float(t) / step) * step * 1e9) for t, _ in entry["values"]]
            series.append(Series(name, times, [_parse_value(text) for _, text in entry["values"]]))
        batch = join_series(series)
        if batch is not None:
            empty = False
            yield batch
        at = end
        length = max(100, min(_STEPS, _POINTS // max(1, len(series))))
    if empty:
        raise TableError(f"{server.address}: the query has no values in this range. Check query=… and range=…")


def _parse_value(text: str) -> float | None:
    value = float(text)
    return None if math.isnan(value) else value


# ---------------------------------------------------------------------- InfluxDB


class _Influx(NamedTuple):
    """A database of InfluxDB 1, or a bucket or database of later versions, which answer InfluxQL at the same path."""

    server: _Server
    database: str

    def query(self, text: str) -> Iterator[Any]:
        """The series of a query of InfluxQL, in chunks."""
        options = {"db": self.database, "q": text, "epoch": "ns", "chunked": "true", "chunk_size": str(_CHUNK)}
        with self.server.open("/query", options) as answer:
            for line in answer:
                if not line.strip():
                    continue
                chunk = json.loads(line)
                for result in chunk.get("results", [chunk]):
                    if "error" in result:
                        reason = self.server.address.hide(str(result["error"])).rstrip(".")
                        raise TableError(f"{self.server.address}: the query failed: {reason}.")
                    yield from result.get("series", [])


def _read_influxdb(address: StoreAddress, request: Request) -> Spool:
    """The series of a query of InfluxQL."""
    database = address.path.strip("/")
    if not database:
        raise TableError(f"{address}: name the database: influxdb://{address.place}/DATABASE.")
    if request.step is not None:
        raise TableError(
            f"{address}: InfluxDB takes no step. Put it into the query: select mean(*) … group by time(1m)."
        )
    influx = _Influx(_Server(address, token="Token"), database)
    span = _fixed_range(request)
    if request.query is None:
        raise TableError(f"{address}: a query is needed, such as query='select temperature from boiler'")
    text = check_query(repr(address), request.query)
    words = set(outline(text).split())
    if "into" in words:
        raise TableError(f"{address}: the query must change nothing, and this one writes into a measurement.")
    if not {"group", "order", "limit", "fill", "tz"} & words:  # each set of tags is a series of its own
        text += " group by *"
    where = "" if span is None else f" where time >= {round(span[0] * 1e9)} and time < {round(span[1] * 1e9)}"
    batches = _influx_batches(influx, f"select * from ({text}){where} group by *")
    extent = request.extent if span is None else {**(request.extent or {}), "range": list(span)}
    return Spool(batches, _facts(request.query, span, None), extent, complete=True)


def _influx_batches(influx: _Influx, text: str) -> Iterator[pa.RecordBatch]:
    """The rows of all series of a query, which are in memory while they are read: one series follows another."""
    collected: dict[tuple[str, str, str], Series] = {}
    for chunk in influx.query(text):
        tags = {key: value for key, value in chunk.get("tags", {}).items() if value}
        columns = list(zip(*chunk["values"], strict=True))
        for field, values in list(zip(chunk["columns"], columns, strict=True))[1:]:
            key = (chunk["name"], field, json.dumps(tags, sort_keys=True))
            entry = collected.setdefault(key, Series(series_name(field, tags), [], []))
            entry.times.extend(columns[0])
            entry.values.extend(values)
    if len({measurement for measurement, _, _ in collected}) > 1:  # their fields may have the same names
        collected = {
            key: entry._replace(name=series_name(f"{key[0]}.{key[1]}", json.loads(key[2])))
            for key, entry in collected.items()
        }
    batch = join_series([entry for entry in collected.values() if any(value is not None for value in entry.values)])
    if batch is None:
        raise TableError(f"{influx.server.address}: the query has no rows. Check query=… and range=…")
    yield batch


# ---------------------------------------------------------------------- what there is


PROMETHEUS = DataStore(
    name="Prometheus or VictoriaMetrics",
    schemes=("prometheus", "prometheus+https", "victoriametrics", "victoriametrics+https"),
    form="prometheus://HOST:PORT or victoriametrics://HOST:PORT",
    read=_read_prometheus,
)
INFLUXDB = DataStore(
    name="InfluxDB",
    schemes=("influxdb", "influxdb+https"),
    form="influxdb://HOST:PORT/DATABASE",
    read=_read_influxdb,
)
