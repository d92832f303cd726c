"""What hangs: calls that Ray never answers, and servers of Ray that are dead or stopped.

Ray waits for most things without a limit, and writes pages where it does not. Here every call has a deadline, the
servers that a driver depends on are asked every other second, and Ray's own log is put into one file.
"""

from __future__ import annotations

import logging
import socket
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from emphatic.cluster.watchdog import copy_logs, describe_dead

__all__ = ["Calls", "ClusterError", "RayLog", "ServerWatch", "is_answering", "split_address"]

#: How an HTTP/2 conversation, such as Ray's, begins: the client's preface, with empty settings.
_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes((0, 0, 0, 4, 0, 0, 0, 0, 0))
_SETTINGS = 4
#: Seconds for a server's answer, and between two questions.
_REACH, _PAUSE = 3.0, 2.0
#: Seconds after which a server that gives no answer is at fault.
_SILENT = 12.0
#: Ray's own function that prints what its processes say of errors.
_PRINT = "print_to_stdstream"


class ClusterError(OSError):
    """A cluster cannot be used, or has lost something that the run needs."""


def split_address(address: str) -> tuple[str, int]:
    """The host and the port of host:port."""
    host, _, port = address.rpartition(":")
    return host.strip("[]"), int(port)


def is_answering(address: str) -> bool:
    """Whether a server at host:port speaks as Ray's do. ``OSError`` if nothing answers: it is dead, or stopped."""
    with socket.create_connection(split_address(address), timeout=_REACH) as connection:
        connection.sendall(_PREFACE)
        answer = connection.recv(9)
    return len(answer) >= 4 and answer[3] == _SETTINGS


class ServerWatch(threading.Thread):
    """Asks servers whether they are there.

    Args:
        servers: The address of each, by what to call it.
    """

    def __init__(self, servers: Mapping[str, str]) -> None:
        super().__init__(name="emphatic-watch", daemon=True)
        self._servers, self._ended = servers, threading.Event()
        self._fault = ""
        # A server that dies closes its connections at once.
        self._lines: dict[str, socket.socket] = {}
        for name, address in servers.items():
            with suppress(OSError):
                self._lines[name] = socket.create_connection(split_address(address), timeout=_REACH)
                self._lines[name].sendall(_PREFACE)
                self._lines[name].setblocking(False)

    @property
    def fault(self) -> str:
        """What is wrong at this moment; "" if nothing is known to be."""
        for name, line in () if self._fault else tuple(self._lines.items()):
            try:
                while line.recv(4096):
                    pass
            except BlockingIOError:
                continue
            except OSError:
                pass
            # It was closed: by a server that died, or by one that hears nothing on it.
            self._lines.pop(name).close()
            try:
                is_answering(self._servers[name])
            except ConnectionRefusedError:
                self._fault = describe_dead(f"{name} at {self._servers[name]}")
            except OSError:
                pass
        return self._fault

    def run(self) -> None:
        heard = dict.fromkeys(self._servers, time.monotonic())
        refused = dict.fromkeys(self._servers, 0)
        while not self._ended.wait(_PAUSE) and not self._fault:
            for name, address in self._servers.items():
                try:
                    is_answering(address)
                except ConnectionRefusedError:  # nobody listens there any more: twice is enough
                    refused[name] += 1
                except OSError:
                    pass
                else:
                    heard[name], refused[name] = time.monotonic(), 0
                if refused[name] > 1:
                    self._fault = describe_dead(f"{name} at {address}")
                elif time.monotonic() - heard[name] > _SILENT:
                    self._fault = f"{name} at {address} does not answer: it is stopped, or the network is cut"

    def end(self) -> None:
        """Ask no more."""
        self._ended.set()
        for line in self._lines.values():
            line.close()
        self._lines.clear()


class _Call:
    """A call, and in the end its answer or what it raised."""

    def __init__(self, function: Callable[[], Any]) -> None:
        self.function, self.ended = function, threading.Event()
        self.answer: object = None
        self.error: BaseException | None = None


class Calls:
    """Calls Ray in a thread of its own, so that a call that never ends can be left alone.

    Args:
        find_fault: Says what is wrong with Ray; "" if nothing is known.
    """

    def __init__(self, find_fault: Callable[[], str]) -> None:
        self._find_fault = find_fault
        #: Whether a call has not ended.
        self.is_busy = False
        self._waiting: SimpleQueue[_Call | None] = SimpleQueue()
        threading.Thread(target=self._work, name="emphatic-ray", daemon=True).start()

    def __call__(
        self, function: Callable[..., Any], *arguments: object, within: float = 45.0, **options: object
    ) -> Any:
        """What a function of Ray returns. ``ClusterError`` after ``within`` seconds, or when something is at fault.

        Args:
            function: The function.
            arguments: Its arguments.
            within: Seconds for an answer.
            options: Its keywords.
        """
        if fault := self._find_fault():  # Ray would end this process
            raise ClusterError(fault)
        call = _Call(lambda: function(*arguments, **options))
        self._waiting.put(call)
        until = time.monotonic() + within
        while not call.ended.wait(0.5):
            fault = self._find_fault()
            if fault or time.monotonic() > until:
                name = getattr(function, "__name__", "call").strip("_")
                raise ClusterError(fault or f"Ray has not answered within {within:.0f} s ({name})")
        if call.error is not None:
            raise call.error
        return call.answer

    def end(self) -> None:
        """Take no more calls."""
        self._waiting.put(None)

    def _work(self) -> None:
        while (call := self._waiting.get()) is not None:
            self.is_busy = True
            try:
                call.answer = call.function()
            except BaseException as error:
                call.error = error
            self.is_busy = False
            call.ended.set()
            del call


class RayLog(logging.Handler):
    """What Ray logs in this process, kept in memory until something goes wrong; then all of Ray's logs, in one file.

    Args:
        path: The file.
    """

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.path, self._lines = path, deque[str](maxlen=1000)
        self._print: object = None
        #: Where Ray's processes on this machine log to, once that is known.
        self.folder: Path | None = None
        self.setFormatter(logging.Formatter("%(asctime)s %(name)s %(message)s"))

    def emit(self, record: logging.LogRecord) -> None:
        """Keep a line.

        Args:
            record: The line.
        """
        self._lines.append(self.format(record))

    def attach(self) -> None:
        """Take what Ray logs, which else goes to the terminal. ``ray.init`` clears the handlers of its first logger."""
        for name in ("ray", "ray._private"):
            logger = logging.getLogger(name)
            logger.addHandler(self)
            logger.propagate = False
        names = vars(sys.modules["ray._private.worker"]) if "ray._private.worker" in sys.modules else {}
        if self._print is None and _PRINT in names:
            self._print, names[_PRINT] = names[_PRINT], self._keep_page

    def detach(self) -> None:
        """Let Ray log to the terminal again."""
        for name in ("ray", "ray._private"):
            logger = logging.getLogger(name)
            logger.removeHandler(self)
            logger.propagate = True
        if self._print is not None:
            vars(sys.modules["ray._private.worker"])[_PRINT] = self._print
            self._print = None

    def _keep_page(self, data: Mapping[str, Any], *_: object, **__: object) -> None:
        """In place of Ray's own function, which prints what its processes say of errors."""
        self._lines.extend(map(str, data.get("lines", ())))

    def write(self) -> Path | None:
        """Write the file: this process's lines, and the end of each file that Ray has written last; its path."""
        return copy_logs(self.path, self.folder, "\n".join(self._lines))
