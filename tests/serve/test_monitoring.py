"""Metrics, alerts, the dashboard, and logs in JSON."""

from __future__ import annotations

import json
import logging
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from emphatic.nexting.cli.terminal import JsonFormatter
from emphatic.nexting.serve.metrics import Histogram, write_metrics
from emphatic.nexting.serve.service import Incoming, Service
from tests.support.services import opened, readings, wait_for

MONITORING = Path(__file__).parents[2] / "monitoring"
RULES, DASHBOARD = MONITORING / "emphatic.rules.yml", MONITORING / "grafana-dashboard.json"
_SAMPLE = re.compile(r'(\w+)(?:\{((?:\w+="(?:[^"\\]|\\.)*",?)*)\})? (\S+)')


def samples(text: str) -> dict[tuple[str, str], float]:
    """The samples of a text for Prometheus, by name and labels; each is described, and there only once."""
    found: dict[tuple[str, str], float] = {}
    described: set[str] = set()
    for line in text.splitlines():
        if line.startswith("# TYPE "):
            name = line.split(" ")[2]
            assert name not in described, name
            described.add(name)
        elif not line.startswith("#"):
            match = _SAMPLE.fullmatch(line)
            assert match is not None, line
            name, labels = match[1], match[2] or ""
            assert {name, re.sub("_(bucket|sum|count)$", "", name)} & described, line
            assert (name, labels) not in found, line
            found[name, labels] = float(match[3])
    return found


def test_predictions_intervals_scores_and_alarms_are_gauges(service: Service) -> None:
    strange = 'S"1\\\n'
    rows = [{"time": row["time"], strange: row["S1"], "S2": row["S2"]} for row in readings(80)]
    assert service.inbox.offer([Incoming(row) for row in rows]) == 80
    wait_for(lambda: 'emphatic_latency_seconds_bucket{le="+Inf"} 80' in write_metrics(service))
    found = samples(write_metrics(service, wrong_tokens=3, failed_logins=1))
    latest = json.loads(service.latest.line)  # type: ignore[union-attr]
    for kind, name in (("predictions", "prediction"), ("low", "interval_low"), ("high", "interval_high")):
        for signal, horizon in (("S2", "2"), ("S2", "9")):
            value = found[f"emphatic_{name}", f'signal="{signal}",horizon="{horizon}"']
            assert value == latest[kind][signal][horizon]
    assert found["emphatic_prediction", 'signal="S\\"1\\\\\\n",horizon="2"'] == latest["predictions"][strange]["2"]
    assert found["emphatic_anomaly_score", 'signal="S2"'] == latest["anomaly"]["S2"]
    assert found["emphatic_alarm", 'signal="S2"'] == latest["alarm"]["S2"]
    assert found["emphatic_latency_seconds_bucket", 'le="+Inf"'] == found["emphatic_latency_seconds_count", ""] == 80
    assert found["emphatic_reading_lag_seconds_count", ""] == 80
    assert found["emphatic_latency_seconds_sum", ""] >= found["emphatic_reading_lag_seconds_sum", ""] > 0
    journal = sum(path.stat().st_size for path in service._folder.glob("*.jsonl"))
    assert found["emphatic_journal_bytes", ""] == journal > 80 * 40
    assert (found["emphatic_wrong_tokens_total", ""], found["emphatic_failed_logins_total", ""]) == (3, 1)
    assert [value for (name, _), value in found.items() if name == "emphatic_build_info"] == [1]


def test_a_histogram_counts_up() -> None:
    histogram = Histogram()
    for seconds in (0.0, 0.001, 0.3, 100.0):
        histogram.observe(seconds)
    counts = [int(line.split(" ")[1]) for line in histogram.lines("h") if "_bucket" in line]
    assert (counts[0], counts[-2], counts[-1]) == (2, 3, 4)
    assert counts == sorted(counts)


def test_a_torn_journal_is_told(tmp_path: Path) -> None:
    for is_torn in (False, True):
        service = opened(tmp_path)
        assert samples(write_metrics(service))["emphatic_journal_torn", ""] == is_torn
        assert service._journal is not None
        service._journal.append({"x": 1.0})
        service._journal.sync()
        service.close()
        service._journal.close()
        path = max((tmp_path / "model.journal").glob("*.jsonl"))
        with path.open("ab") as file:
            file.write(b'["0000')


# ---------------------------------------------------------------------- alerts and the dashboard


def metrics_of(text: str) -> set[str]:
    return set(re.findall(r"\bemphatic_\w+", text))


def test_alerts_and_dashboard_name_metrics_that_there_are() -> None:
    from emphatic.nexting.serve import metrics

    source = Path(metrics.__file__).read_text("utf-8")
    dashboard = json.loads(DASHBOARD.read_text("utf-8"))
    expressions = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    for name in metrics_of(RULES.read_text("utf-8") + " ".join(expressions)):
        bare = re.sub("_bucket$", "", name.removeprefix("emphatic_"))
        parts = re.fullmatch("(source|publisher)_(.*)", bare)
        known = parts[2] if parts else bare
        assert f'"{known}"' in source, name
    assert len({panel["id"] for panel in dashboard["panels"]}) == len(dashboard["panels"]) >= 10


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not installed: apt-get install prometheus")
def test_each_alert_fires_when_it_should_and_only_then(tmp_path: Path) -> None:
    done = subprocess.run(
        ["promtool", "test", "rules", "emphatic.rules.test.yml"], cwd=MONITORING, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    tests = (MONITORING / "emphatic.rules.test.yml").read_text("utf-8")
    alerts = set(re.findall(r"alert: (\w+)", RULES.read_text("utf-8")))
    fired = set(re.findall(r"alertname: (\w+)\n +exp_alerts", tests))
    quiet = set(re.findall(r"alertname: (\w+)\}", tests))
    assert fired == quiet == alerts
    # The expressions of the dashboard are such as Prometheus takes.
    dashboard = json.loads(DASHBOARD.read_text("utf-8"))
    rules = [
        {"record": f"panel:{i}", "expr": target["expr"]}
        for i, target in enumerate(target for panel in dashboard["panels"] for target in panel["targets"])
    ]
    (tmp_path / "panels.yml").write_text(json.dumps({"groups": [{"name": "panels", "rules": rules}]}))
    checked = subprocess.run(
        ["promtool", "check", "rules", str(tmp_path / "panels.yml")], capture_output=True, text=True
    )
    assert checked.returncode == 0, checked.stdout + checked.stderr


# ---------------------------------------------------------------------- logs


def test_a_log_message_as_a_line_of_json() -> None:
    try:
        raise ValueError("two\nlines")
    except ValueError:
        record = logging.getLogger("emphatic.serve").makeRecord(
            "emphatic.serve", logging.ERROR, "f", 1, "%s: lost", ('a "topic"\n',), sys.exc_info()
        )
    line = JsonFormatter().format(record)
    assert "\n" not in line
    message: dict[str, Any] = json.loads(line)
    assert (message["level"], message["logger"], message["message"]) == ("error", "emphatic.serve", 'a "topic"\n: lost')
    assert message["time"].endswith("+00:00")
    assert "ValueError: two" in message["exception"]


@pytest.mark.serve
def test_a_service_logs_in_json_and_counts_failed_logins(tmp_path: Path) -> None:
    from tests.support.services import FLAGS, Served

    (tmp_path / "token").write_text("a token of many letters".replace(" ", "-"))
    options = ("--log-format", "json", "--token-file", tmp_path / "token")
    with Served(tmp_path / "model", *FLAGS, *options) as service:
        lines = [json.loads(line) for line in service.log]
        assert {line["level"] for line in lines} == {"info"}
        assert service.client.post("/login", data={"token": "wrong"}).status_code == 401
        text = service.client.get("/metrics", headers={"authorization": "Bearer a-token-of-many-letters"}).text
        assert samples(text)["emphatic_failed_logins_total", ""] == 1
        wait_for(lambda: any(json.loads(line)["level"] == "warning" for line in service.log))
        service.stop()
