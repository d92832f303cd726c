"""A stand-in for the service: the page's files, and streams of events that a test has written."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.resources import files
from typing import Any
from urllib.parse import parse_qs, urlsplit

__all__ = ["POLICY", "STATIC", "Event", "PageServer"]

STATIC = files("emphatic.nexting.serve") / "static"
UPLOT = files("emphatic.nexting.report") / "uplot"
POLICY = (
    "default-src 'self'; style-src 'self'; img-src 'self' data:; frame-ancestors 'none'; base-uri 'none'; "
    "form-action 'self'"
)
FILES = {
    "/": (STATIC / "index.html", "text/html; charset=utf-8"),
    "/static/page.js": (STATIC / "page.js", "text/javascript; charset=utf-8"),
    "/static/ask.js": (STATIC / "ask.js", "text/javascript; charset=utf-8"),
    "/static/page.css": (STATIC / "page.css", "text/css; charset=utf-8"),
    "/static/icon.svg": (STATIC / "icon.svg", "image/svg+xml"),
    "/static/uplot.js": (UPLOT / "uPlot.iife.min.js", "text/javascript; charset=utf-8"),
    "/static/uplot.css": (UPLOT / "uPlot.min.css", "text/css; charset=utf-8"),
}

#: The name of an event and its data, or a pause in seconds.
Event = tuple[str, Any]


class PageServer:
    """Serves the page; ``stream(signal, last)`` gives the events of each connection, in a thread of its own.

    ``last`` is the id that the browser had seen. ``connections`` counts streams. While ``down``, streams are refused
    with 503.
    """

    def __init__(self, signals: dict[str, Any], stream: Callable[[str | None, str | None], Iterator[Event]]) -> None:
        self.signals, self.stream = signals, stream
        self.connections, self.down = 0, False
        #: The answer to /forecast for a signal; None: there is no such address.
        self.forecast: Callable[[str], dict[str, Any]] | None = None
        self._open: set[Any] = set()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                outer._answer(self)

            def log_message(self, *_: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def __enter__(self) -> PageServer:
        return self

    def __exit__(self, *_: Any) -> None:
        self.drop()
        self._server.shutdown()
        self._server.server_close()

    def drop(self) -> None:
        """Cut all streams, as a service that is killed does."""
        for handler in list(self._open):
            with suppress(OSError):
                handler.connection.shutdown(socket.SHUT_RDWR)

    def _answer(self, handler: Any) -> None:
        address = urlsplit(handler.path)
        if address.path in FILES:
            file, kind = FILES[address.path]
            self._send(handler, 200, kind, file.read_bytes())
        elif address.path == "/signals":
            self._send(handler, 200, "application/json", json.dumps(self.signals).encode())
        elif address.path == "/ask":
            self._send(handler, 200, "application/json", b"[]")
        elif address.path == "/forecast" and self.forecast is not None:
            answer = self.forecast(parse_qs(address.query)["signal"][0])
            self._send(handler, 200, "application/json", json.dumps(answer).encode())
        elif address.path == "/stream" and self.down:
            self._send(handler, 503, "application/json", b'{"error": "not now"}')
        elif address.path == "/stream":
            self._events(handler, parse_qs(address.query).get("signal", [None])[0])
        else:
            self._send(handler, 404, "application/json", b'{"error": "no such page"}')

    def _send(self, handler: Any, code: int, kind: str, body: bytes) -> None:
        handler.send_response(code)
        for name, value in (
            ("Content-Type", kind), ("Content-Length", str(len(body))), ("Content-Security-Policy", POLICY),
            ("X-Content-Type-Options", "nosniff"), ("Cache-Control", "no-store"),
        ):  # fmt: skip
            handler.send_header(name, value)
        handler.end_headers()
        handler.wfile.write(body)

    def _events(self, handler: Any, signal: str | None) -> None:
        self.connections += 1
        self._open.add(handler)
        handler.close_connection = True
        handler.send_response(200)
        handler.send_header("Content-Type", "text/event-stream")
        handler.send_header("Connection", "close")
        handler.end_headers()
        try:
            handler.wfile.write(b"retry: 200\n\n")
            for name, data in self.stream(signal, handler.headers.get("Last-Event-ID")):
                if name == "pause":
                    time.sleep(data)
                    continue
                last = f"id: {data['step'][-1]}\n" if name == "rows" else ""
                handler.wfile.write(f"{last}event: {name}\ndata: {json.dumps(data)}\n\n".encode())
        except (OSError, ValueError):
            pass
        finally:
            self._open.discard(handler)
