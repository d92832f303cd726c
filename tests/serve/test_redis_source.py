"""The source of ``examples/redis_source.py``, found by its entry point, with a real server."""

from __future__ import annotations

import json
import shutil
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import redis

from tests.support.distributions import write_distribution
from tests.support.processes import COMMAND
from tests.support.services import FLAGS, Served, free_port, readings, redis_server, same_as_undisturbed, wait_for

pytestmark = pytest.mark.serve

EXAMPLE = Path(__file__).parents[2] / "examples" / "redis_source.py"


@pytest.fixture
def code(tmp_path: Path) -> str:
    """The ``emphatic`` command, where the example is installed."""
    modules = {"redis_source": EXAMPLE.read_text("utf-8")}
    points = {"emphatic.sources": {"redis": "redis_source:REDIS"}}
    folder = write_distribution(tmp_path / "site", "example", modules, points)
    return f"import sys; sys.path.insert(0, {str(folder)!r}); {COMMAND}"


def test_a_stream_killed_and_cut_off(tmp_path: Path, code: str) -> None:
    """Every reading exactly once, whatever happens."""
    model, rows, port, rng = tmp_path / "model", readings(3000), free_port(), np.random.default_rng(6)
    source, options = f"redis://127.0.0.1:{port}/readings", ("--appendonly", "yes", "--appendfsync", "always")
    with redis_server(tmp_path, port, *options) as server, redis.Redis(port=port) as client:
        for row in rows[:1000]:
            client.xadd("readings", {name: "" if value is None else value for name, value in row.items()})
        for row in rows[1000:2000]:
            client.xadd("readings", {"json": json.dumps(row)})
        for _ in range(5):
            with Served(model, source, *FLAGS, "--save-every", "0.2s", code=code) as service:
                time.sleep(float(rng.uniform(0.1, 0.6)))
                service.kill()
        with Served(model, source, *FLAGS, "--save-every", "0.2s", code=code) as service:
            wait_for(lambda: service.metric("step") == 2000)
            server.terminate()
            server.wait(10)
            wait_for(lambda: service.source()["state"] == "disconnected")
            with redis_server(tmp_path, port, *options):
                for row in rows[2000:]:
                    client.xadd("readings", {"json": json.dumps(row)})
                wait_for(lambda: service.metric("step") == 3000)
                assert service.source()["state"] == "connected"
                service.stop()
    same_as_undisturbed(model, [_as_text(row) if t < 1000 else row for t, row in enumerate(rows)], tmp_path)


def _as_text(row: dict[str, Any]) -> dict[str, str]:
    return {name: "" if value is None else str(value) for name, value in row.items()}


def test_a_server_by_tls_with_a_password(tmp_path: Path, certificates: dict[str, Path], code: str) -> None:
    if shutil.which("redis-cli") is None:
        pytest.skip("redis-cli is not installed")
    port, there = free_port(), certificates
    (tmp_path / "password").write_text("hunter2\n")
    options: tuple[object, ...] = ("--password-file", tmp_path / "password", "--ca-file", there["ca"])
    options += ("--client-cert", there["client"], "--client-key", there["client_key"])
    names = {"ca-cert-file": "ca", "cert-file": "server", "key-file": "server_key"}
    tls = [text for name, file in names.items() for text in (f"--tls-{name}", str(there[file]))]
    users = ["--user", "user", "on", ">hunter2", "~*", "+@all"]
    server = redis_server(tmp_path, 0, "--tls-port", str(port), "--tls-auth-clients", "yes", *tls, *users)
    source = f"rediss://user@localhost:{port}/readings"
    with (
        server,
        Served(tmp_path / "model", source, *options, *FLAGS, code=code) as service,
        redis.Redis(
            port=port, username="user", password="hunter2", ssl=True, ssl_ca_certs=str(there["ca"]),
            ssl_certfile=str(there["client"]), ssl_keyfile=str(there["client_key"]),
        ) as client,
    ):  # fmt: skip
        for row in readings(80):
            client.xadd("readings", {"json": json.dumps(row)})
        wait_for(lambda: service.metric("step") == 80, 60)
        service.stop()
