"""A process beside the driver that tells what is wrong where the driver cannot: Ray may hold it, or end it.

While Ray connects and disconnects it holds Python's lock, so that no thread of the driver can keep a deadline; and
when its servers are gone it ends the driver, with lines of its own. The watchdog sees from outside that a server of
Ray's is gone. It gives the driver time to say so; then it says so itself and ends the driver. When the driver is gone,
it ends what is left of a Ray that was started there.

The watchdog runs this file as a script, on the standard library alone, so that it is there within milliseconds.
"""

from __future__ import annotations

import atexit
import os
import re
import select
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

__all__ = ["MARK", "ServerProcesses", "Watchdog", "copy_logs", "describe_dead", "find_logs", "kill_all"]

#: The variable that marks the processes of a Ray that was started here.
MARK = "EMPHATIC_RAY"
#: Ray's servers: the name of the process, and what to call it.
_SERVERS = {"gcs_server": "Ray's GCS server", "raylet": "The raylet of this node"}
#: Seconds between two looks, and for a driver to say that a server is gone.
_PAUSE, _GRACE = 0.5, 20.0
#: Bytes of each of Ray's files, and files, that are copied.
_TAIL, _FILES = 50_000, 30


def describe_dead(name: str) -> str:
    """What is wrong, in words, with a server that is gone."""
    return f"{name} is gone: it was killed, or has crashed"


def find_logs(session: str) -> Path | None:
    """The folder of the logs of a session; of the newest one, if Ray did not get as far as to say which it is.

    Args:
        session: The folder of the session; "" if it is not known.
    """
    newest = Path(os.environ.get("RAY_TMPDIR", "/tmp")) / "ray" / "session_latest"
    folder = Path(session or newest) / "logs"
    return folder if folder.is_dir() else None


def copy_logs(path: Path, folder: Path | None, text: str) -> Path | None:
    """Write a file with a text and the end of each file that Ray has written last; its path.

    Args:
        path: The file.
        folder: Where Ray's processes log to, if that is known.
        text: What comes first.
    """
    texts = [text]
    if folder is not None:
        with suppress(OSError):
            files = [file for file in folder.iterdir() if file.is_file() and file.stat().st_size]
            for file in sorted(files, key=lambda file: file.stat().st_mtime)[-_FILES:]:
                with suppress(OSError):
                    texts.append(f"==> {file} <==\n{file.read_bytes()[-_TAIL:].decode(errors='replace')}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("\n\n".join(texts), "utf-8", errors="replace")
    except OSError:  # the storage may be what is at fault
        return folder
    return path


def _processes() -> list[Path]:
    return [entry for entry in Path("/proc").glob("[0-9]*") if int(entry.name) != os.getpid()]


class _Status(NamedTuple):
    """A process: its name, its parent, when it began, in ticks since the machine did, and whether it has ended."""

    name: str
    parent: int
    start: int
    has_ended: bool


def _status(process: Path) -> _Status | None:
    """What a process is; None if it is gone."""
    try:
        name, _, text = (process / "stat").read_text().partition("(")[2].rpartition(")")
    except OSError:
        return None
    fields = text.split()
    return _Status(name, int(fields[1]), int(fields[19]), fields[0] in "ZX")


def _is_marked(process: Path, mark: str) -> bool:
    try:
        return f"{MARK}={mark}".encode() in (process / "environ").read_bytes()
    except OSError:
        return False


def _sessions(process: Path) -> set[str]:
    """The folders of Ray's sessions in which a process has files open."""
    folders = set()
    with suppress(OSError):
        for file in (process / "fd").iterdir():
            with suppress(OSError):
                folders.update(re.findall(r"^.*/session_[^/]+(?=/logs/)", os.readlink(file)))
    return folders


def kill_all(mark: str, session: str = "") -> None:
    """Kill the processes of a Ray that was started here, and those that they are starting.

    Args:
        mark: The mark in their environment; "" for none. Ray's agents write over theirs.
        session: The folder of Ray's session, by which agents and workers are known too; "" if it is not known.
    """
    until = time.monotonic() + 5.0

    def is_meant(process: Path) -> bool:
        if _is_marked(process, mark):
            return True
        with suppress(OSError):
            is_rays = (process / "cmdline").read_bytes().startswith(b"ray::")
            return is_rays and bool(session) and session in _sessions(process)
        return False

    while mark and time.monotonic() < until:
        processes = [int(process.name) for process in _processes() if is_meant(process)]
        if not processes:
            return
        for process in processes:
            with suppress(OSError):
                os.kill(process, signal.SIGKILL)
        time.sleep(0.05)


class ServerProcesses:
    """The servers of a Ray that a process starts: which of them have been seen, and which are gone.

    Args:
        driver: The process.
    """

    def __init__(self, driver: int) -> None:
        self._driver = driver
        self._began = 0.0
        if hasattr(time, "CLOCK_BOOTTIME"):  # (elsewhere there is no /proc to look at either)
            self._began = (time.clock_gettime(time.CLOCK_BOOTTIME) - 1.0) * os.sysconf("SC_CLK_TCK")
        self._seen: dict[str, tuple[Path, _Status]] = {}
        #: The folder of Ray's session, once that is known.
        self.session = ""

    def find_fault(self, mark: str) -> str:
        """What is wrong; "" if nothing is.

        Args:
            mark: The mark in the environment of Ray's processes.
        """
        for process in _processes() if len(self._seen) < len(_SERVERS) else ():
            status = _status(process)
            if status is None or status.name not in _SERVERS:
                continue
            if status.has_ended and status.parent == self._driver and status.start > self._began:
                return describe_dead(_SERVERS[status.name])  # before it was seen
            if _is_marked(process, mark):
                self._seen[status.name] = process, status
        for name, (process, status) in self._seen.items():
            if _status(process) != status:
                return describe_dead(_SERVERS[name])
            self.session = self.session or max(_sessions(process), default="")
        return ""


class Watchdog:
    """The watchdog, seen from the driver.

    Args:
        mark: The mark of the processes that are to be ended with the driver; "" if Ray was not started here.
        log: The file for Ray's log.
    """

    def __init__(self, mark: str, log: Path) -> None:
        command = [sys.executable, "-I", "-S", __file__, str(os.getpid()), mark, str(log.absolute())]
        environment = {name: value for name, value in os.environ.items() if name != MARK}
        self._process = None
        if os.name == "posix":  # ('select' takes no pipes elsewhere)
            with suppress(OSError):
                self._process = subprocess.Popen(
                    command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, env=environment, start_new_session=True
                )
        atexit.register(self.trust)  # Ray ends its servers as this process ends

    def limit(self, seconds: float, text: str) -> None:
        """End this process, with a line, unless ``free`` is called in time.

        Args:
            seconds: The time.
            text: What to say then; "" if that was said.
        """
        self._send(f"limit {seconds} {' '.join(text.split())}")

    def free(self) -> None:
        """There is no limit any more."""
        self._send("free")

    def trust(self) -> None:
        """From now on servers may go: the driver knows."""
        self._send("trust")

    def beat(self, seconds: float, text: str) -> threading.Event:
        """End this process, with a line, if its threads cannot run for so long within the next minute.

        Args:
            seconds: The time.
            text: What to say then.

        Returns:
            What to set when there is no danger any more.
        """
        self.limit(seconds, text)
        ended = threading.Event()

        def renew() -> None:
            until = time.monotonic() + 60.0
            while not ended.wait(1.0) and time.monotonic() < until:
                self.limit(seconds, text)
            self.free()

        threading.Thread(target=renew, name="emphatic-watchdog", daemon=True).start()
        return ended

    def end(self) -> None:
        """End the watchdog."""
        atexit.unregister(self.trust)
        self._send("end")
        if self._process is not None and self._process.stdin is not None:
            with suppress(OSError):
                self._process.stdin.close()
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(10.0)

    def _send(self, command: str) -> None:
        if self._process is not None and self._process.stdin is not None and not self._process.stdin.closed:
            with suppress(OSError):
                os.write(self._process.stdin.fileno(), f"{command}\n".encode())


# ---------------------------------------------------------------------- the process


def _say(text: str, log: Path, session: str) -> None:
    """The line that the driver would have raised."""
    if "Ray's log: " not in text:
        path = copy_logs(log, find_logs(session), "")
        text = f"{text.rstrip('.')}." + (f" Ray's log: {path}" if path else "")
    with suppress(OSError):
        os.write(2, f"emphatic.cluster.watch.ClusterError: {text}\n".encode())


def _run(driver: int, mark: str, log: Path) -> None:
    servers, commands, is_trusted = ServerProcesses(driver), b"", not mark
    fault, until = "", float("inf")
    text, limit = "", float("inf")
    while True:
        is_gone = os.getppid() != driver
        if select.select([0], [], [], 0.0 if is_gone else _PAUSE)[0]:
            piece = os.read(0, 65536)
            is_gone, commands = is_gone or not piece, commands + piece
        *lines, commands = commands.split(b"\n")
        for line in lines:
            word, _, arguments = line.decode(errors="replace").partition(" ")
            if word == "end":
                return
            if word == "trust":
                is_trusted, fault, until = True, "", float("inf")
            elif word == "free":
                limit = float("inf")
            elif word == "limit":
                seconds, _, text = arguments.partition(" ")
                limit = time.monotonic() + float(seconds)
        if not is_trusted and not fault and (fault := servers.find_fault(mark)):
            until = time.monotonic() + _GRACE
        is_late = time.monotonic() > min(limit, until)
        if fault and (is_late or is_gone):
            _say(f"Ray cannot be used: {fault}", log, servers.session)
        elif text and is_late:
            _say(text, log, servers.session)
        if is_late and not is_gone:
            os.kill(driver, signal.SIGKILL)  # (at any other signal Ray prints lines of its own)
        if is_late or is_gone:
            kill_all(mark, servers.session)
            return


if __name__ == "__main__":
    with suppress(KeyboardInterrupt):
        _run(int(sys.argv[1]), sys.argv[2], Path(sys.argv[3]))
