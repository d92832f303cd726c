"""What ``docs/serve.md`` shows to copy: each started here where its program is installed."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import signal
import subprocess
import urllib.parse
import urllib.request
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

pytest.importorskip("starlette", reason="needs pip install 'emphatic[serve]'")
from tests.support.processes import COMMAND, Forked
from tests.support.services import FLAGS, Served, free_port, readings, wait_for

pytestmark = pytest.mark.serve

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "serve.md").read_text("utf-8")


def block(language: str) -> str:
    """The only block of a language on the page."""
    (found,) = re.findall(rf"^```{language}\n(.*?)^```", PAGE, re.S | re.M)
    return str(found)


def needs(program: str) -> pytest.MarkDecorator:
    return pytest.mark.skipif(shutil.which(program) is None, reason=f"{program} is not installed")


@needs("systemd-analyze")
def test_the_unit_is_one_that_systemd_takes(tmp_path: Path) -> None:
    unit = tmp_path / "emphatic@.service"
    unit.write_text(block("ini").replace("/opt/emphatic/bin/emphatic", shutil.which("true") or ""))
    done = subprocess.run(
        ["systemd-analyze", "verify", str(unit)], capture_output=True, text=True, timeout=60, check=False
    )
    complaints = [line for line in done.stderr.splitlines() if "emphatic@" in line]
    assert (done.returncode, complaints) == (0, [])


def test_the_unit_s_command_starts_and_sigterm_saves(tmp_path: Path) -> None:
    (line,) = re.findall(r"^ExecStart=(.*)$", block("ini"), re.M)
    _, *arguments = shlex.split(line.replace("${STATE_DIRECTORY}", str(tmp_path)).replace("$OPTIONS", ""))
    port = free_port()
    with Forked(COMMAND, *arguments, "--port", port, *FLAGS) as process:
        wait_for(lambda: _answer(f"http://127.0.0.1:{port}/healthz"), 90)
        body = json.dumps(readings(100)).encode()
        request = urllib.request.Request(
            f"http://127.0.0.1:{port}/readings", body, {"content-type": "application/json"}
        )
        with urllib.request.urlopen(request, timeout=60) as answer:
            assert answer.status == 200
        wait_for(lambda: _answer(f"http://127.0.0.1:{port}/readyz"), 90)  # until then only the journal has them
        process.send_signal(signal.SIGTERM)
        assert process.wait(10) == 0  # TimeoutStopSec
    assert (tmp_path / "model.safetensors").exists()


def _answer(address: str) -> Any:
    """What there is at an address, if anything."""
    try:
        with urllib.request.urlopen(address, timeout=10) as answer:
            return json.load(answer)
    except OSError:
        return None


def query(port: int, expression: str) -> list[Any]:
    found = _answer(_query_address(port, expression))
    return [] if found is None else list(found["data"]["result"])


def _query_address(port: int, expression: str) -> str:
    return f"http://127.0.0.1:{port}/api/v1/query?" + urllib.parse.urlencode({"query": expression})


@needs("prometheus")
def test_prometheus_reads_the_metrics_and_takes_the_expressions(tmp_path: Path) -> None:
    with Served(tmp_path / "model.safetensors", *FLAGS) as service:
        service.post(readings(300))
        text = block("yaml").replace("127.0.0.1:8765", urlsplit(service.url).netloc).replace("5s", "1s")
        (tmp_path / "prometheus.yml").write_text(text)
        subprocess.run(
            ["promtool", "check", "config", str(tmp_path / "prometheus.yml")], check=True, capture_output=True
        )
        port = free_port()
        command = [
            "prometheus", f"--config.file={tmp_path / 'prometheus.yml'}", f"--storage.tsdb.path={tmp_path / 'data'}",
            f"--web.listen-address=127.0.0.1:{port}", "--log.level=error",
        ]  # fmt: skip
        with subprocess.Popen(command) as process:
            try:
                wait_for(lambda: query(port, "emphatic_step"), 60)
                assert [one["value"][1] for one in query(port, "emphatic_readings_total")] == ["300"]
                table = PAGE.split("## Prometheus and Grafana")[1]
                expressions = re.findall(r"`([^`]*emphatic_[^`]*)`", table.split("| Expression |")[1])
                assert len(expressions) == 9
                for expression in expressions:
                    service.post(readings(10, 300))
                    wait_for(partial(_takes, port, expression), 60, expression)
            finally:
                process.terminate()


def _takes(port: int, expression: str) -> bool:
    """Whether Prometheus takes an expression, and has an answer unless that is an alert, which is of nothing here."""
    found = _answer(_query_address(port, expression))
    return found is not None and (bool(found["data"]["result"]) or expression.endswith(("== 0", "> 0")))


@needs("node-red")
def test_the_flow_of_node_red_sends_readings(tmp_path: Path) -> None:
    with Served(tmp_path / "model.safetensors", *FLAGS) as service:
        flow = block("json").replace("http://127.0.0.1:8765", service.url)
        (tmp_path / "flows.json").write_text(flow)
        (tmp_path / "settings.js").write_text(
            "module.exports = {flowFile: 'flows.json', logging: {console: {level: 'off'}}};"
        )
        port = str(free_port())
        command = ["node-red", "--port", port, "--userDir", str(tmp_path), "--settings", str(tmp_path / "settings.js")]
        with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
            try:
                wait_for(lambda: service.client.get("/signals").json()["waiting"] >= 3, 60)
            finally:
                process.terminate()
