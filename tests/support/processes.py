"""Processes that start at once: forked from one that has imported the package and loaded the kernels of nexting.

Such a process has its own pid, pipes, signals and exit code, like any other; it only skips the imports, which take
longer than most tests. What happens at the start or the very end of an interpreter needs a ``subprocess``.

``python -m tests.support.processes`` is the process to fork from. It gets one message for each process to start, with
four file descriptors: standard input, output and error, and a pipe on which the pid and then the exit code go back.
"""

from __future__ import annotations

import atexit
import functools
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import traceback
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import IO, Any

__all__ = ["COMMAND", "Forked", "run", "wait_for_no_disk"]

ROOT = Path(__file__).parents[2]

#: The code of the ``emphatic`` command.
COMMAND = "from emphatic.nexting.cli import app; app()"


class Forked:
    """Python code in a process of its own, with the part of ``subprocess.Popen`` that tests need."""

    def __init__(
        self, code: str, *arguments: object, stdin: int = subprocess.PIPE, stdout: int = subprocess.PIPE,
        stderr: int = subprocess.PIPE, env: dict[str, str] | None = None,
    ) -> None:  # fmt: skip
        theirs, self._ours = [], list[IO[bytes] | None]()
        for given, reads in ((stdin, True), (stdout, False), (stderr, False)):
            if given == subprocess.PIPE:
                read, write = os.pipe()
                theirs.append(read if reads else write)
                self._ours.append(open(write, "wb") if reads else open(read, "rb"))  # noqa: SIM115
            else:
                theirs.append(os.dup(given))
                self._ours.append(None)
        self.stdin, self.stdout, self.stderr = self._ours
        read, write = os.pipe()
        request = {"code": code, "arguments": [*map(str, arguments)], "folder": os.getcwd(), "env": env}
        socket.send_fds(_server(), [json.dumps(request).encode() + b"\n"], [*theirs, write])
        for descriptor in (*theirs, write):
            os.close(descriptor)
        self._status = open(read)  # noqa: SIM115
        self.pid = int(self._status.readline())
        self.returncode: int | None = None
        self._ended = threading.Thread(target=self._wait, daemon=True)
        self._ended.start()

    def _wait(self) -> None:
        with self._status:
            self.returncode = int(self._status.readline())

    def wait(self, timeout: float = 60) -> int:
        """Its exit code, once it has ended."""
        self._ended.join(timeout)
        if self.returncode is None:
            raise subprocess.TimeoutExpired(str(self.pid), timeout)
        return self.returncode

    def send_signal(self, number: int) -> None:
        if self.returncode is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def feed(self, text: Iterable[bytes]) -> threading.Thread:
        """Write to its standard input from a thread, as far as it reads, and close it."""

        def write() -> None:
            assert self.stdin is not None
            with suppress(OSError, ValueError):
                self.stdin.writelines(text)
            with suppress(OSError, ValueError):
                self.stdin.close()

        thread = threading.Thread(target=write, daemon=True)
        thread.start()
        return thread

    def __enter__(self) -> Forked:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.kill()
        self.wait(30)
        for end in self._ours:
            if end is not None:
                with suppress(OSError):
                    end.close()


def run(
    code: str, *arguments: object, input: bytes = b"", env: dict[str, str] | None = None, timeout: float = 120
) -> subprocess.CompletedProcess[bytes]:
    """The outcome of code on this standard input, as of ``subprocess.run`` with ``capture_output``."""
    with Forked(code, *arguments, env=env) as process:
        stdout, stderr = process.stdout, process.stderr
        assert stdout is not None
        assert stderr is not None
        wrong: list[bytes] = []
        threads = [process.feed([input]), threading.Thread(target=lambda: wrong.append(stderr.read()))]
        threads[1].start()
        out = stdout.read()
        code_ = process.wait(timeout)
        for thread in threads:
            thread.join(timeout)
    return subprocess.CompletedProcess([*map(str, arguments)], code_, out, wrong[0])


def wait_for_no_disk() -> None:
    """No test can see whether files outlast a power cut: they are not written through to the disk, which takes long."""
    for name in ("fsync", "fdatasync"):
        setattr(os, name, lambda _: None)


@functools.cache
def _server() -> socket.socket:
    """The way to the process to fork from, which ends with this one."""
    ours, theirs = socket.socketpair()
    command = [sys.executable, "-m", "tests.support.processes", str(theirs.fileno())]
    server = subprocess.Popen(command, cwd=ROOT, pass_fds=[theirs.fileno()])
    theirs.close()

    def end() -> None:
        ours.close()
        server.wait(10)

    atexit.register(end)
    return ours


# ------------------------------------------------------------------------------------------------ in the other process


def _serve(channel: socket.socket) -> None:
    """Fork a process for every message until the channel is closed."""
    while True:
        message, descriptors, _, _ = socket.recv_fds(channel, 1 << 16, 4)
        if not message:
            return
        while not message.endswith(b"\n"):
            message += channel.recv(1 << 16)
        keeper = os.fork()
        if keeper == 0:
            channel.close()
            os._exit(_keep(json.loads(message), *descriptors))
        for descriptor in descriptors:
            os.close(descriptor)
        with suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass


def _keep(request: dict[str, Any], stdin: int, stdout: int, stderr: int, status: int) -> int:
    """Fork the process itself, tell its pid, and its exit code when it has ended."""
    pid = os.fork()
    if pid == 0:
        os.close(status)
        for number, descriptor in enumerate((stdin, stdout, stderr)):
            os.dup2(descriptor, number)
            os.close(descriptor)
        os._exit(_execute(request))
    for descriptor in (0, 1, 2, stdin, stdout, stderr):
        os.close(descriptor)  # or nobody would see the process close them
    os.write(status, f"{pid}\n".encode())
    _, ended = os.waitpid(pid, 0)
    os.write(status, f"{os.waitstatus_to_exitcode(ended)}\n".encode())
    return 0


def _execute(request: dict[str, Any]) -> int:
    """What the interpreter does with ``-c``; the exit code."""
    os.chdir(request["folder"])
    if request["env"] is not None:
        os.environ.clear()
        os.environ.update(request["env"])
    sys.argv = ["-c", *request["arguments"]]
    sys.stdin, sys.stdout, sys.stderr = (os.fdopen(n, m, encoding="utf-8", closefd=False) for n, m in enumerate("rww"))
    code = 0
    try:
        exec(request["code"], {"__name__": "__main__"})
    except SystemExit as stopped:
        code = stopped.code if isinstance(stopped.code, int) else int(stopped.code is not None)
        if isinstance(stopped.code, str):
            print(stopped.code, file=sys.stderr)
    except BaseException:
        traceback.print_exc()
        code = 1
    with suppress(OSError, ValueError):
        sys.stdout.flush()
    with suppress(OSError, ValueError):
        sys.stderr.flush()
    return code


def _load() -> None:
    """Import what the command imports, and load the kernels that it runs on a table and on a pipe."""
    wait_for_no_disk()
    import tempfile

    import numpy as np
    from typer.testing import CliRunner

    import emphatic
    import emphatic.nexting.cli
    import emphatic.nexting.cli.nexting
    import emphatic.nexting.runs.predictor
    import emphatic.nexting.serve.app
    import emphatic.nexting.serve.service
    from emphatic.nexting.runs.predictor import Predictor
    from emphatic.nexting.runs.settings import Settings
    from emphatic.nexting.tables.pipe import Readings

    wave = np.sin(np.arange(99.0) / 7)
    with tempfile.TemporaryDirectory() as folder:
        emphatic.nexting.run({"S1": wave, "S2": wave[::-1]}, horizons=[2, 9], out=folder)
        emphatic.Horde.load_with(Path(folder) / "model.safetensors")
    lines = [json.dumps({"time": 1.7e9 + t, "S1": x, "S2": -x}).encode() for t, x in enumerate(wave)]
    Predictor(Settings(horizons=(2, 9)), warm_up=60).take(Readings(lines))
    CliRunner().invoke(emphatic.nexting.cli.app, ["nexting", "--no-such-option"])


if __name__ == "__main__":
    _load()
    _serve(socket.socket(fileno=int(sys.argv[1])))
