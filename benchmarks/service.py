"""A service under load: readings by MQTT at a steady rate, with a page open, and one by one by HTTP."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from benchmarks.cases import Effort
from benchmarks.measure import Gate, gate
from benchmarks.readings import HORIZONS, signals
from benchmarks.report import Row
from emphatic.hordes.horde import Horde
from emphatic.nexting.predictor import Predictor
from emphatic.nexting.settings import Settings

WARM_UP = 500
#: Seconds at the beginning in which lags do not count: connections, and kernels that are loaded.
SETTLE = 5.0
#: Sends lines of standard input at a steady rate, each with the time at which it was due.
SENDER = """
import sys, time, paho.mqtt.client as paho
port, rate = int(sys.argv[1]), float(sys.argv[2])
lines = sys.stdin.buffer.read().splitlines()
client = paho.Client(paho.CallbackAPIVersion.VERSION2)
client.max_inflight_messages_set(10000)
client.connect("127.0.0.1", port)
client.loop_start()
begin = time.time() + 0.5
for i, line in enumerate(lines):
    due = begin + i / rate
    if (wait := due - time.time()) > 0.002:
        time.sleep(wait)
    sent = client.publish("readings", b'{"time": %.4f, ' % due + line[1:], qos=1)
sent.wait_for_publish(60)
client.disconnect()
"""


#: Sends readings one by one on several connections, for so many seconds: {step: [reading, seconds to the answer]}.
CLIENT = """
import json, socket, sys, threading, time
port, connections, seconds = int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
lines, taken, answers = sys.stdin.buffer.read().splitlines(), iter(range(10**9)), {}
def send(until):
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        while time.time() < until and (i := next(taken)) < len(lines):
            head = b"POST /readings HTTP/1.1\\r\\nHost: 127.0.0.1\\r\\nContent-Type: application/json\\r\\n"
            began, text = time.perf_counter(), b""
            connection.sendall(head + b"Content-Length: %d\\r\\n\\r\\n" % len(lines[i]) + lines[i])
            while not text.endswith(b"}\\n"):
                text += connection.recv(65536)
            answers[json.loads(text.split(b"\\r\\n\\r\\n")[1])["step"]] = [i, time.perf_counter() - began]
threads = [threading.Thread(target=send, args=(time.time() + seconds,)) for _ in range(connections)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
print(json.dumps(answers))
"""


def mosquitto() -> str | None:
    return shutil.which("mosquitto") or shutil.which("mosquitto", path="/usr/sbin:/usr/local/sbin")


@dataclass(frozen=True)
class ByMqtt:
    """``rate`` readings a second of C signals, for so many seconds."""

    C: int
    rate: int
    seconds: float
    name = "a service by MQTT"

    def gates(self) -> Iterator[Gate]:
        if mosquitto() is not None:
            with tempfile.TemporaryDirectory() as folder:
                yield replace(self, seconds=min(2.0, self.seconds)).run(Path(folder))[2]

    def rows(self, effort: Effort) -> Iterator[Row]:
        if mosquitto() is None:
            return
        with tempfile.TemporaryDirectory() as folder:
            count, lag, passed = self.run(Path(folder))
        yield Row(
            f"{self.rate:,} readings a second by MQTT for {self.seconds:g} s: {self.C} signals at {len(HORIZONS)} "
            "horizons, a page open",
            f"the longest time from a reading to its prediction on the page, of {count:,} readings, none lost",
            gates=(passed.name,), ours=lag, unit="s", ratio=lag, at_most=1.0,
        )  # fmt: skip

    def run(self, folder: Path) -> tuple[int, float, Gate]:
        """How many readings were learned from, the longest lag, and that the model is that of an undisturbed run."""
        model, count = folder / "model", int(self.rate * self.seconds)
        columns = {name: column.tolist() for name, column in signals(WARM_UP + count, self.C).items() if name != "time"}
        rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
        first = Predictor(Settings(horizons=HORIZONS), warm_up=WARM_UP)
        start = time.time() - WARM_UP / self.rate
        first.take((i, {"time": start + i / self.rate, **row}) for i, row in enumerate(rows[:WARM_UP]))
        assert first.horde is not None
        first.horde.save(model, **first.state())
        shutil.copy(model, folder / "first")
        port, (lag, learned) = _free_port(), (0.0, 0)
        with _broker(folder, port), _service(model, port) as url:
            page = Page(url, WARM_UP + count)
            command = [sys.executable, "-c", SENDER, str(port), str(self.rate)]
            lines = "\n".join(map(json.dumps, rows[WARM_UP:])).encode()
            subprocess.run(command, input=lines, check=True)
            page.join(60.0)
            lag, learned = page.lag, page.last + 1 - WARM_UP
        if learned != count:
            raise RuntimeError(f"{count} readings were sent, and {learned} learned from")
        return count, lag, self.check(folder, rows[WARM_UP:], page.times)

    def check(self, folder: Path, rows: list[dict[str, Any]], times: list[float]) -> Gate:
        """The model that was served beside one that learned from the same readings at once."""
        predictor, _ = Predictor.load(folder / "first")
        predictor.take((i, {"time": t, **row}) for i, (t, row) in enumerate(zip(times, rows, strict=True)))
        assert predictor.horde is not None
        return gate(self.name, Horde.load(folder / "model").learner.theta, predictor.horde.learner.theta, 1e-15)


@dataclass(frozen=True)
class ByHttp:
    """Readings of C signals one by one on so many connections, each sent when the one before it is answered."""

    C: int
    connections: int
    seconds: float
    name = "a service by HTTP"

    def gates(self) -> Iterator[Gate]:
        with tempfile.TemporaryDirectory() as folder:
            yield replace(self, seconds=min(1.0, self.seconds)).run(Path(folder))[1]

    def rows(self, effort: Effort) -> Iterator[Row]:
        with tempfile.TemporaryDirectory() as folder:
            seconds, passed = self.run(Path(folder))
        rate, p99 = len(seconds) / self.seconds, seconds[int(0.99 * len(seconds))]
        subject = f"single POSTs on {self.connections} connections: {self.C} signals at {len(HORIZONS)} horizons"
        yield Row(
            f"{subject}, a second", f"each answered when it is on the disk, for {self.seconds:g} s",
            gates=(passed.name,), ours=rate, unit="/s", ratio=rate, at_least=1000,
        )  # fmt: skip
        yield Row(
            f"{subject}, the time to an answer", f"99% of {len(seconds):,} answers",
            gates=(passed.name,), ours=p99, unit="s", ratio=p99, at_most=0.05,
        )  # fmt: skip

    def run(self, folder: Path) -> tuple[list[float], Gate]:
        """The seconds to each answer, in order of size, and that the model is that of an undisturbed run."""
        model, count = folder / "model", int(3000 * self.seconds)
        columns = {name: column.tolist() for name, column in signals(WARM_UP + count, self.C).items() if name != "time"}
        rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
        first = Predictor(Settings(horizons=HORIZONS), warm_up=WARM_UP)
        first.take(enumerate(rows[:WARM_UP]))
        assert first.horde is not None
        first.horde.save(model, **first.state())
        shutil.copy(model, folder / "first")
        with _service(model) as url:
            command = [sys.executable, "-c", CLIENT, url.rsplit(":", 1)[1], str(self.connections), str(self.seconds)]
            lines = "\n".join(map(json.dumps, rows[WARM_UP:])).encode()
            done = subprocess.run(command, input=lines, check=True, capture_output=True)
        answers = {int(step): answer for step, answer in json.loads(done.stdout).items()}
        predictor, _ = Predictor.load(folder / "first")
        predictor.take((step, rows[WARM_UP + answers[step][0]]) for step in sorted(answers))
        assert predictor.horde is not None
        passed = gate(self.name, Horde.load(model).learner.theta, predictor.horde.learner.theta, 1e-15)
        return sorted(seconds for _, seconds in answers.values()), passed


class Page(threading.Thread):
    """What an open page does: reads the stream of one signal, to a last step."""

    def __init__(self, url: str, steps: int) -> None:
        super().__init__(daemon=True)
        self._url, self._steps = url, steps
        self.lag, self.last, self.times = 0.0, -1, list[float]()
        self.start()

    def run(self) -> None:
        with urllib.request.urlopen(f"{self._url}/stream?signal=s0", timeout=60) as answer:
            name, began = "", 0.0
            for line in answer:
                if line.startswith(b"event: "):
                    name = line[7:].strip().decode()
                if name != "rows" or not line.startswith(b"data: "):
                    continue
                rows, now = json.loads(line[6:]), time.time()
                began = began or now
                if rows["step"][0] != self.last + 1 and self.last >= 0:
                    return  # rows are missing
                self.times += rows["t"]
                self.last = rows["step"][-1]
                if now - began > SETTLE:
                    self.lag = max(self.lag, now - rows["t"][0])
                if self.last >= self._steps - 1:
                    return


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


class _broker:
    """mosquitto, that sends as many messages at a time as it likes."""

    def __init__(self, folder: Path, port: int) -> None:
        config = folder / "mosquitto.conf"
        config.write_text(
            f"listener {port} 127.0.0.1\nallow_anonymous true\nmax_inflight_messages 0\nmax_queued_messages 0\n"
        )
        self._command = [str(mosquitto()), "-c", str(config)]

    def __enter__(self) -> None:
        self._process = subprocess.Popen(self._command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        time.sleep(0.5)

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()


class _service:
    """``emphatic serve`` in a process of its own, ended by SIGTERM; its address."""

    def __init__(self, model: Path, broker: int | None = None) -> None:
        self._awaited = "kernels are compiled" if broker is None else "connected."
        source = [] if broker is None else [f"mqtt://127.0.0.1:{broker}/readings"]
        self._command = [sys.executable, "-m", "emphatic.cli", "serve", *source, "--model", str(model), "--port", "0"]

    def __enter__(self) -> str:
        self._process = subprocess.Popen(self._command, stderr=subprocess.PIPE)
        assert self._process.stderr is not None
        url, connected = "", False
        while not (url and connected):
            line = self._process.stderr.readline().decode()
            if not line:
                raise RuntimeError("the service did not start")
            url = line.split(" at ")[1].strip() if "listening at" in line else url
            connected = connected or self._awaited in line
        threading.Thread(target=self._process.stderr.read, daemon=True).start()
        return url

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        self._process.wait(30)
