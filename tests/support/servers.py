"""Real servers of databases and time series stores for tests, as Debian packages have them.

Each is started in a folder of its own, on a free port, and ends with the ``with`` block. ``pytest.skip`` says which
package is missing where there is none.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from urllib.error import URLError

import pytest

__all__ = ["find_program", "free_port", "influxdb", "postgresql", "prometheus", "victoria_metrics"]

PASSWORD = "sësame/1@&?x"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def find_program(name: str, package: str = "") -> str:
    places = [*Path("/usr/lib/postgresql").glob(f"*/bin/{name}")]
    found = shutil.which(name) or shutil.which(name, path="/usr/sbin:/usr/local/sbin")
    program = found or (str(max(places)) if places else None)
    if program is None:
        pytest.skip(f"{name} is not installed: apt-get install {package or name}")
    return program


@contextmanager
def _running(command: Sequence[str], folder: Path, answers: Callable[[], bool]) -> Iterator[None]:
    """A server, from its first answer on."""
    with (folder / "server.log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, cwd=folder)
    try:
        for _ in range(300):
            if process.poll() is not None:
                raise RuntimeError((folder / "server.log").read_text()[-2000:])
            if answers():
                break
            time.sleep(0.05)
        else:
            raise TimeoutError((folder / "server.log").read_text()[-2000:])
        yield
    finally:
        process.terminate()
        process.wait(30)


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=5):
            return True
    except (URLError, OSError):
        return False


@contextmanager
def postgresql(folder: Path) -> Iterator[int]:
    """PostgreSQL with the database ``plant``, the user ``reader`` and a password; the port."""
    initdb, postgres = find_program("initdb", "postgresql"), find_program("postgres", "postgresql")
    port = free_port()
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "password").write_text(PASSWORD)
    prefix: list[str] = []
    if os.getuid() == 0:  # as whom PostgreSQL does not run
        for path in (folder, *folder.parents):
            if path.stat().st_uid == 0 and path not in map(Path, ("/", "/tmp", "/work")):
                path.chmod(path.stat().st_mode | 0o755)
        shutil.chown(folder, "postgres")
        shutil.chown(folder / "password", "postgres")
        prefix = ["runuser", "-u", "postgres", "--"]
    data = folder / "data"
    options = ["-U", "reader", "--pwfile", str(folder / "password"), "-A", "scram-sha-256", "-E", "UTF8", "-N"]
    subprocess.run([*prefix, initdb, "-D", str(data), *options], check=True, capture_output=True, cwd=folder)
    command = [
        *prefix,
        postgres,
        "-D",
        str(data),
        "-p",
        str(port),
        "-k",
        str(folder),
        "-c",
        "listen_addresses=127.0.0.1",
        "-c",
        "fsync=off",
    ]
    environment = {**os.environ, "PGPASSWORD": PASSWORD}
    createdb = [find_program("createdb", "postgresql"), "-h", "127.0.0.1", "-p", str(port), "-U", "reader", "plant"]

    def creates() -> bool:
        return subprocess.run(createdb, env=environment, capture_output=True).returncode == 0

    with _running(command, folder, creates):
        yield port


@contextmanager
def influxdb(folder: Path, password: bool = False) -> Iterator[int]:
    """InfluxDB 1.x; the port. With a password, the user ``reader`` has it."""
    program = find_program("influxd", "influxdb")
    folder.mkdir(parents=True, exist_ok=True)
    port, backup = free_port(), free_port()
    (folder / "influxdb.conf").write_text(
        f'reporting-disabled = true\nbind-address = "127.0.0.1:{backup}"\n'
        f'[meta]\ndir = "{folder}/meta"\n[data]\ndir = "{folder}/data"\nwal-dir = "{folder}/wal"\n'
        f'[http]\nbind-address = "127.0.0.1:{port}"\nauth-enabled = {str(password).lower()}\nlog-enabled = false\n'
        "[monitor]\nstore-enabled = false\n"
    )
    with _running(
        [program, "-config", str(folder / "influxdb.conf")], folder, lambda: _answers(f"http://127.0.0.1:{port}/ping")
    ):
        yield port


@contextmanager
def prometheus(folder: Path, metrics: str) -> Iterator[int]:
    """Prometheus with metrics in the OpenMetrics format, which have times; the port."""
    program, promtool = find_program("prometheus", "prometheus"), find_program("promtool", "prometheus")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "metrics").write_text(f"{metrics}# EOF\n")
    (folder / "prometheus.yml").write_text("scrape_configs: []\n")
    blocks = [promtool, "tsdb", "create-blocks-from", "openmetrics", str(folder / "metrics"), str(folder / "data")]
    subprocess.run(blocks, check=True, capture_output=True)
    port = free_port()
    command = [program, f"--config.file={folder}/prometheus.yml", f"--storage.tsdb.path={folder}/data"]
    command += [f"--web.listen-address=127.0.0.1:{port}", "--storage.tsdb.retention.time=10y"]
    with _running(command, folder, lambda: _answers(f"http://127.0.0.1:{port}/-/ready")):
        yield port


@contextmanager
def victoria_metrics(folder: Path) -> Iterator[int]:
    """VictoriaMetrics; the port."""
    program = find_program("victoria-metrics", "victoria-metrics")
    folder.mkdir(parents=True, exist_ok=True)
    port = free_port()
    command = [program, f"-storageDataPath={folder}/data", f"-httpListenAddr=127.0.0.1:{port}", "-retentionPeriod=10y"]
    with _running(command, folder, lambda: _answers(f"http://127.0.0.1:{port}/health")):
        yield port
