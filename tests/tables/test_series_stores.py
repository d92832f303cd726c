"""InfluxDB, Prometheus and VictoriaMetrics: series as columns, results as lines; on real servers if installed."""

from __future__ import annotations

import json
import math
import threading
import urllib.request
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import numpy as np
import pyarrow as pa
import pytest

from emphatic import nexting
from emphatic.nexting.tables import Table, TableError, open_table
from emphatic.nexting.tables.series_stores import Series, join_series, series_name
from tests.support import servers

BEGIN, ROWS = 1_767_225_600, 400  # 2026-01-01
SPAN = (float(BEGIN), float(BEGIN + 60 * ROWS))
RANGE = "2026-01-01/2026-01-01T06:40:00Z"
MACHINES = {"a": 0.0, 'b c,"d=': 1.0}


def wave(i: int, shift: float = 0.0) -> float:
    return 20.0 + math.sin(i / 9) + shift


def read(table: Table) -> np.ndarray[Any, Any]:
    return np.concatenate([block.values for block in table.blocks(100)])


def get(url: str, body: bytes | None = None) -> bytes:
    with urllib.request.urlopen(url, body) as answer:
        content: bytes = answer.read()
    return content


# ---------------------------------------------------------------------- without a server


def test_series_are_joined_by_time() -> None:
    batch = join_series([Series("x", [10, 30], [1.0, None]), Series("y", [20, 10], [2, 4.5])])
    assert batch is not None
    assert batch.to_pydict()["x"] == [1.0, None, None]
    assert batch.to_pydict()["y"] == [4.5, 2.0, None]
    assert batch.column("time").cast(pa.int64()).to_pylist() == [10, 20, 30]
    assert join_series([Series("x", [], [])]) is None


def test_names_of_series() -> None:
    assert series_name("x", {}) == "x"
    assert series_name("x", {"b": "1", "a": 'q"\\'}) == 'x{a="q\\"\\\\",b="1"}'


def test_a_redirect_does_not_take_the_password_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    class Elsewhere(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(302)
            self.send_header("Location", "http://127.0.0.1:1/pass/w0rd")
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None: ...

    monkeypatch.setenv("EMPHATIC_PASSWORD", "w0rd")
    with ThreadingHTTPServer(("127.0.0.1", 0), Elsewhere) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            with pytest.raises(
                TableError, match=r"the server redirects to another address: http://127\.0\.0\.1:1/pass/\*\*\*"
            ):
                open_table(f"prometheus://127.0.0.1:{server.server_port}", query="up")
        finally:
            server.shutdown()
            thread.join()


# ---------------------------------------------------------------------- real servers


@pytest.fixture(scope="module")
def influxdb(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with servers.influxdb(tmp_path_factory.mktemp("influxdb")) as port:
        url = f"http://127.0.0.1:{port}"
        get(f"{url}/query", urlencode({"q": "create database plant"}).encode())
        lines = []
        for machine, shift in MACHINES.items():
            tag = machine.replace(" ", "\\ ").replace(",", "\\,").replace("=", "\\=")
            for i in range(ROWS):
                door = "true" if i % 2 else "false"
                lines.append(f"boiler,machine={tag} temperature={wave(i, shift)!r},door={door} {BEGIN + 60 * i}")
        get(f"{url}/write?db=plant&precision=s", "\n".join(lines).encode())
        yield f"influxdb://127.0.0.1:{port}"


def ask(url: str, query: str) -> Any:
    answer = get(f"{url.replace('influxdb', 'http')}/query?{urlencode({'db': 'plant', 'q': query})}")
    return json.loads(answer)["results"][0].get("series", [])


@pytest.mark.serve
def test_influxdb(influxdb: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("emphatic.nexting.tables.series_stores._CHUNK", 100)  # many chunks
    expected = [[wave(i), wave(i, 1.0)] for i in range(ROWS)]
    names = ('temperature{machine="a"}', 'temperature{machine="b c,\\"d="}')
    table = open_table(f"{influxdb}/plant", query="select temperature from boiler")
    assert table.names == names
    np.testing.assert_array_equal(read(table), expected)
    assert (table.zone, table.clock() is not None) == ("UTC", True)
    assert len(open_table(f"{influxdb}/plant", query="select * from boiler").names) == 4
    part = open_table(f"{influxdb}/plant", query="select temperature from boiler", range=(BEGIN + 60.0, BEGIN + 600.0))
    np.testing.assert_array_equal(read(part), expected[1:10])
    with pytest.raises(TableError, match="InfluxDB takes no step"):
        open_table(f"{influxdb}/plant", query="select * from boiler", step=600.0)
    where = f"time < {BEGIN + 60 * ROWS}s and time >= {BEGIN}s"
    grouped = f"select max(temperature) as peak from boiler where {where} group by time(7m), machine"
    assert open_table(f"{influxdb}/plant", query=grouped).count_rows() == math.ceil(ROWS / 7) + (BEGIN % 420 > 0)


@pytest.mark.serve
def test_influxdb_refuses(influxdb: str) -> None:
    for query, reason in {
        "drop measurement boiler": "must be one select statement",
        "select * into other from boiler": "writes into a measurement",
        "select * from boiler; drop measurement boiler": "must be one select statement",
        "select * from nothing": "the query has no rows",
        "select * frm boiler": "error parsing query",
    }.items():
        with pytest.raises(TableError, match=reason):
            open_table(f"{influxdb}/plant", query=query)
    with pytest.raises(TableError, match="database not found"):
        open_table(f"{influxdb}/none", query="select * from boiler")
    with pytest.raises(TableError, match="a query is needed"):
        open_table(f"{influxdb}/plant")
    with pytest.raises(TableError, match="name the database"):
        open_table(f"{influxdb}")
    assert ask(influxdb, "select count(temperature) from boiler")[0]["values"][0][1] == 2 * ROWS


@pytest.mark.serve
def test_influxdb_with_a_password(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with servers.influxdb(tmp_path / "server", password=True) as port:
        create = f"create user reader with password '{servers.PASSWORD}' with all privileges"
        get(f"http://127.0.0.1:{port}/query", urlencode({"q": create}).encode())
        url = f"influxdb://reader@127.0.0.1:{port}/plant"
        monkeypatch.setenv("EMPHATIC_PASSWORD", "wr0ng")
        with pytest.raises(TableError, match="wrong or missing password"):
            open_table(url, query="select * from boiler")
        monkeypatch.setenv("EMPHATIC_PASSWORD", servers.PASSWORD)
        with pytest.raises(TableError, match="database not found"):
            open_table(url, query="select * from boiler")


@pytest.fixture(scope="module")
def prometheus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    lines = ["# TYPE temperature gauge"]
    for machine, shift in (("a", 0.0), ('b "c', 1.0)):
        label = machine.replace('"', '\\"')
        # The second machine begins late, and has no values for an hour.
        rows = [i for i in range(ROWS) if machine == "a" or (i >= 100 and not 200 <= i < 260)]
        lines += [f'temperature{{machine="{label}"}} {wave(i, shift)!r} {BEGIN + 60 * i}' for i in rows]
    with servers.prometheus(tmp_path_factory.mktemp("prometheus"), "\n".join(lines) + "\n") as port:
        yield f"prometheus://127.0.0.1:{port}"


@pytest.mark.serve
def test_prometheus(prometheus: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("emphatic.nexting.tables.series_stores._POINTS", 400)  # several windows
    table = open_table(prometheus, query="temperature", range=SPAN, step=60.0)
    assert table.names == ('temperature{machine="a"}', 'temperature{machine="b \\"c"}')
    values = read(table)
    assert values[:, 0].tolist() == [wave(i) for i in range(ROWS)]
    assert np.isnan(values[:100, 1]).all()
    assert np.isnan(values[206:260, 1]).all()  # Prometheus holds a value for five minutes
    assert values[260:, 1].tolist() == [wave(i, 1.0) for i in range(260, ROWS)]
    for query, reason in {"temper(": "parse error", "nothing": "no values in this range"}.items():
        with pytest.raises(TableError, match=reason):
            open_table(prometheus, query=query, range=SPAN)
    with pytest.raises(TableError, match="a query is needed"):
        open_table(prometheus)
    result = nexting.run(prometheus, query="temperature", range=RANGE, step="1min", horizons=[2])
    assert result.reading["query"] == {
        "text": "temperature",
        "range": "2026-01-01T00:00:00Z to 2026-01-01T06:40:00Z",
        "step": "60 s",
    }


@pytest.mark.serve
def test_victoria_metrics(tmp_path: Path) -> None:
    with servers.victoria_metrics(tmp_path / "server") as port:
        url = f"http://127.0.0.1:{port}"
        stamps = [1000 * (BEGIN + 60 * i) for i in range(ROWS)]
        entry = {"metric": {"__name__": "temperature"}, "values": [wave(i) for i in range(ROWS)], "timestamps": stamps}
        get(f"{url}/api/v1/import", json.dumps(entry).encode())
        get(f"{url}/internal/force_flush")
        address = url.replace("http", "victoriametrics")
        values = read(open_table(address, query="temperature", range=SPAN, step=60.0))
        np.testing.assert_allclose(values[:, 0], [wave(i) for i in range(ROWS)], rtol=1e-9)


@pytest.mark.serve
def test_a_relative_range_is_fixed_when_a_run_is_resumed(prometheus: str) -> None:
    table = open_table(prometheus, query="temperature", range=SPAN, step=60.0)
    table.count_rows()
    assert table.extent == {"range": list(SPAN), "rows": ROWS}
    from emphatic.nexting.tables.stores import Request, open_store

    now = Request("temperature", (SPAN[0] + 6000, SPAN[1] + 6000), 60.0, extent=table.extent)
    _, source = open_store(prometheus, now)
    assert source.look().column("time")[0].as_py().timestamp() == BEGIN
    assert source.look().num_rows == ROWS
