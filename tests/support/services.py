"""The command ``emphatic serve`` as a process, on a free port of this machine."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

import emphatic

__all__ = ["RunningService", "final_models", "free_port", "start_service"]

ROOT = Path(__file__).parents[2]


def free_port() -> int:
    """A port that nothing listens on now."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


class RunningService:
    """A service in a process of its own; ``restart`` begins again with the same model and journal."""

    def __init__(self, folder: Path, *options: str) -> None:
        self.folder, self.options, self.port = folder, options, free_port()
        self.model = folder / "model.safetensors"
        self.url = f"http://127.0.0.1:{self.port}"
        self.start()

    def start(self) -> None:
        """Start it, and wait until it answers."""
        command = [
            sys.executable, "-m", "emphatic", "serve", "--port", str(self.port), "--model", str(self.model), "--journal",
            str(self.folder / "journal"), *self.options,
        ]  # fmt: skip
        self.process = subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, env=os.environ | {"PYTHONPATH": "src"})
        deadline = time.monotonic() + 90
        while True:
            try:
                self.get("/healthz")
                return
            except OSError:
                if self.process.poll() is not None or time.monotonic() > deadline:
                    raise RuntimeError(f"the service did not start: {self.stop().decode()}") from None
                time.sleep(0.05)

    def get(self, path: str) -> str:
        """The body of an answer."""
        with urllib.request.urlopen(self.url + path, timeout=30) as answer:
            return str(answer.read().decode())

    def post(self, readings: Any) -> list[dict[str, Any]]:
        """Send readings as JSON; the lines of the answer."""
        request = urllib.request.Request(
            self.url + "/readings", json.dumps(readings).encode(), {"Content-Type": "application/json"}
        )
        with urllib.request.urlopen(request, timeout=60) as answer:
            return [json.loads(line) for line in answer.read().splitlines()]

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(30)

    def stop(self) -> bytes:
        """End it as systemd does; what it wrote to standard error."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        return self.process.communicate(timeout=60)[1] or b""


@contextmanager
def start_service(*options: str) -> Iterator[RunningService]:
    """A service in a temporary folder, ended at the end."""
    with TemporaryDirectory() as folder:
        service = RunningService(Path(folder), *options)
        try:
            yield service
        finally:
            service.kill()


def final_models(service: RunningService, accepted: Iterable[bytes], *options: str) -> bool:
    """Whether a service that was stopped holds the model that a pipe learns from these readings alone, bit for bit."""
    with TemporaryDirectory() as folder:
        model = Path(folder) / "model.safetensors"
        command = [sys.executable, "-m", "emphatic", "nexting", "-", "--model", str(model), *options]
        subprocess.run(
            command, cwd=ROOT, input=b"".join(line + b"\n" for line in accepted), stdout=subprocess.DEVNULL, check=True,
            env=os.environ | {"PYTHONPATH": "src"}, timeout=600,
        )  # fmt: skip
        ours, theirs = emphatic.Horde.load(service.model), emphatic.Horde.load(model)
    return ours.rows == theirs.rows and all(
        np.array_equal(a.theta, b.theta) and np.array_equal(a.e, b.e)
        for a, b in zip(ours.learners, theirs.learners, strict=True)
    )
