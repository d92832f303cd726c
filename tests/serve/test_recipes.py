"""What ``docs/serve.md`` shows to copy: each started here where its program is installed."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
import urllib.parse
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from tests.support.services import RunningService, free_port, start_service

pytest.importorskip("starlette", reason="needs pip install 'emphatic[serve]'")
pytestmark = pytest.mark.serve

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "serve.md").read_text("utf-8")
OPTIONS = ("--warm-up", "20", "--horizons", "2,9")


def block(language: str) -> str:
    """The only block of a language on the page."""
    (found,) = re.findall(rf"^```{language}\n(.*?)^```", PAGE, re.S | re.M)
    return str(found)


def needs(program: str) -> pytest.MarkDecorator:
    return pytest.mark.skipif(shutil.which(program) is None, reason=f"{program} is not installed")


@needs("systemd-analyze")
def test_the_unit_is_one_that_systemd_takes(tmp_path: Path) -> None:
    unit = tmp_path / "emphatic.service"
    unit.write_text(block("ini").replace("/opt/emphatic/bin/emphatic", shutil.which("true") or ""))
    done = subprocess.run(["systemd-analyze", "verify", str(unit)], capture_output=True, text=True, timeout=60, check=False)
    complaints = [line for line in done.stderr.splitlines() if "emphatic.service" in line]
    assert (done.returncode, complaints) == (0, [])


def test_the_unit_s_command_starts_and_sigterm_saves(tmp_path: Path) -> None:
    (line,) = re.findall(r"^ExecStart=(.*)$", block("ini"), re.M)
    port = free_port()
    _, *arguments = shlex.split(line.replace("${STATE_DIRECTORY}", str(tmp_path)))
    command = [sys.executable, "-m", "emphatic", *arguments, "--port", str(port), *OPTIONS]
    with subprocess.Popen(command, cwd=ROOT, env=os.environ | {"PYTHONPATH": "src"}) as process:
        service = RunningService.__new__(RunningService)
        service.url, service.process = f"http://127.0.0.1:{port}", process
        wait_until(lambda: service.get("/healthz"))
        service.post([{"power": float(i % 7)} for i in range(50)])
        process.send_signal(signal.SIGTERM)
        assert process.wait(10) == 0  # TimeoutStopSec
    assert (tmp_path / "model.safetensors").exists()


def wait_until(ask: Any, seconds: float = 90.0) -> Any:
    """The answer, once there is one that counts."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            if found := ask():
                return found
        except (OSError, ValueError):
            pass
        assert time.monotonic() < deadline
        time.sleep(0.2)


def query(port: int, expression: str) -> list[Any]:
    address = f"http://127.0.0.1:{port}/api/v1/query?" + urllib.parse.urlencode({"query": expression})
    with urllib.request.urlopen(address, timeout=10) as answer:
        found = json.load(answer)
    assert found["status"] == "success"
    result: list[Any] = found["data"]["result"]
    return result


@needs("prometheus")
def test_prometheus_reads_the_metrics_and_takes_the_expressions(tmp_path: Path) -> None:
    with start_service(*OPTIONS) as service:
        service.post([{"power": float(i % 7)} for i in range(300)])
        text = block("yaml").replace("127.0.0.1:8765", f"127.0.0.1:{service.port}").replace("5s", "1s")
        (tmp_path / "prometheus.yml").write_text(text)
        subprocess.run(["promtool", "check", "config", str(tmp_path / "prometheus.yml")], check=True, capture_output=True)
        port = free_port()
        command = [
            "prometheus", f"--config.file={tmp_path / 'prometheus.yml'}", f"--storage.tsdb.path={tmp_path / 'data'}",
            f"--web.listen-address=127.0.0.1:{port}", "--log.level=error",
        ]  # fmt: skip
        with subprocess.Popen(command) as process:
            try:
                wait_until(lambda: query(port, "up") and query(port, "emphatic_step"))
                assert [one["value"][1] for one in query(port, "emphatic_readings_total")] == ["300"]
                table = PAGE.split("## Prometheus and Grafana")[1]
                expressions = re.findall(r"`([^`]*emphatic_[^`]*)`", table)
                assert len(expressions) == 7
                for expression in expressions:
                    query(port, expression)
                assert wait_until(lambda: query(port, 'emphatic_rmse{horizon="9"}'))
                wait_until(lambda: query(port, "rate(emphatic_readings_total[1m])"))
            finally:
                process.terminate()


@needs("node-red")
def test_the_flow_of_node_red_sends_readings(tmp_path: Path) -> None:
    with start_service(*OPTIONS) as service:
        flow = block("json").replace("http://127.0.0.1:8765", service.url)
        (tmp_path / "flows.json").write_text(flow)
        (tmp_path / "settings.js").write_text("module.exports = {flowFile: 'flows.json', logging: {console: {level: 'off'}}};")
        port = str(free_port())
        command = ["node-red", "--port", port, "--userDir", str(tmp_path), "--settings", str(tmp_path / "settings.js")]
        with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
            try:
                wait_until(lambda: json.loads(service.get("/signals"))["waiting"] >= 3)
            finally:
                process.terminate()
