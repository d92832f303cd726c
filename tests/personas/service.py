"""A service is killed with SIGKILL between batches; after each restart it continues as if it had not been."""

import json
import math
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

emphatic = str(Path(sys.executable).with_name("emphatic"))


class Service:
    """``emphatic serve`` as a process."""

    def __init__(self, model: str) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        command = [
            emphatic,
            "serve",
            "--model",
            model,
            "--port",
            str(self.port),
            "--horizons",
            "2,9",
            "--warm-up",
            "60",
        ]
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.wait_for("/healthz")

    def wait_for(self, path: str) -> None:
        """Wait until this path is answered with 200."""
        end = time.monotonic() + 300
        while not self.answers(path):
            assert time.monotonic() < end, f"{path} is not answered"
            assert self.process.poll() is None, "the service has stopped"
            time.sleep(0.1)

    def answers(self, path: str) -> bool:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=60) as answer:
                return bool(answer.status == 200)
        except (urllib.error.URLError, ConnectionError):
            return False

    def post(self, begin: int, end: int) -> list[dict[str, object]]:
        rows = (
            {"time": 1_790_000_000 + t, "S1": math.sin(t / 7), "S2": math.cos(t / 11) + 0.1 * math.sin(t * t)}
            for t in range(begin, end)
        )
        body = "".join(json.dumps(row) + "\n" for row in rows).encode()
        address, head = f"http://127.0.0.1:{self.port}/readings", {"content-type": "application/x-ndjson"}
        with urllib.request.urlopen(urllib.request.Request(address, body, head), timeout=600) as answer:
            return [json.loads(line) for line in answer.read().decode().splitlines()]

    def stop(self, number: signal.Signals) -> None:
        self.process.send_signal(number)
        self.process.wait(120)


service = Service("whole.safetensors")
service.post(0, 100)
service.wait_for("/readyz")
whole = service.post(100, 150) + service.post(150, 300) + service.post(300, 400)
service.stop(signal.SIGTERM)

service = Service("killed.safetensors")
service.post(0, 100)
service.wait_for("/readyz")
killed = service.post(100, 150)
service.stop(signal.SIGKILL)
service = Service("killed.safetensors")
service.wait_for("/readyz")
killed += service.post(150, 300)
service.stop(signal.SIGKILL)
service = Service("killed.safetensors")
service.wait_for("/readyz")
killed += service.post(300, 400)
with urllib.request.urlopen(f"http://127.0.0.1:{service.port}/", timeout=60) as page:
    assert "html" in page.headers["content-type"]
service.stop(signal.SIGTERM)

assert whole[-1]["step"] == 399
assert killed == whole, "no reading is lost or learned twice, and every answer is the same"
