"""The HTTP interface of a service, as a Starlette application."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from contextlib import suppress
from importlib import resources
from importlib.metadata import version
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from emphatic.nexting.predictor import Prediction, format_lines
from emphatic.serve.bodies import LONGEST, NotJson, read_json, read_lines
from emphatic.serve.descriptions import describe_interface, describe_signals, write_metrics
from emphatic.serve.events import EventStream
from emphatic.serve.inbox import Incoming, Receipt
from emphatic.serve.security import Guarded, Sessions
from emphatic.serve.service import Service
from emphatic.tables.pipe import Malformed

__all__ = ["create_app"]

#: Streams at a time, and the seconds that a body may take.
_STREAMS, _PATIENCE = 32, 30.0
_JSON, _LINES = "application/json", "application/x-ndjson"
#: The line of a reading that has no prediction, at the very beginning.
_NONE = b'{"step": null, "time": null, "predictions": {}}\n'
#: Everything that is served as a file: its address, where it is in the package, and its type.
_FILES = {
    "/static/page.js": ("serve/static/page.js", "text/javascript"),
    "/static/page.css": ("serve/static/page.css", "text/css"),
    "/static/icon.svg": ("serve/static/icon.svg", "image/svg+xml"),
    "/static/uplot.js": ("report/uplot/uPlot.iife.min.js", "text/javascript"),
    "/static/uplot.css": ("report/uplot/uPlot.min.css", "text/css"),
}


def create_app(
    service: Service, *, token: str | None = None, hosts: Sequence[str] = ("127.0.0.1", "localhost", "::1")
) -> Starlette:
    """The application; ``hosts`` are the names that a Host header may have. ``app.state.closing`` ends its streams."""
    return _Interface(service, token, hosts).app


class _Interface:
    """The requests that are answered, each by a method."""

    def __init__(self, service: Service, token: str | None, hosts: Sequence[str]) -> None:
        self.service, self.sessions, self._streams = service, Sessions(token), 0
        self._closing = asyncio.Event()
        routes = [
            Route("/", self.page),
            Route("/login", self.login, methods=["POST"]),
            Route("/readings", self.readings, methods=["POST"]),
            Route("/predictions", self.predictions),
            Route("/signals", self.signals),
            Route("/stream", self.stream),
            Route("/healthz", self.health),
            Route("/readyz", self.ready),
            Route("/metrics", self.metrics),
            Route("/openapi.json", self.interface),
            Route("/favicon.ico", self.icon),
            *(Route(path, self.file) for path in _FILES),
        ]
        middleware = [Middleware(Guarded, sessions=self.sessions, hosts=hosts)]
        handlers: dict[Any, Any] = {HTTPException: _explain}
        self.app = Starlette(routes=routes, middleware=middleware, exception_handlers=handlers)
        self.app.router.redirect_slashes = False
        self.app.state.closing = self._closing

    # ------------------------------------------------------------------ readings

    async def readings(self, request: Request) -> Response:
        """Learn from readings, and answer a line for each when all are safe."""
        kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind not in (_JSON, _LINES):
            return _error(415, f"the content type must be {_JSON} or {_LINES}, not {kind or 'none'}")
        body = await _body(request, self._closing)
        if isinstance(body, Response):
            return body
        try:
            incoming, several = (read_lines(body), True) if kind == _LINES else read_json(body)
        except NotJson as error:
            return _error(400, str(error))
        replies, taken = await self._learn(incoming)
        if taken < len(incoming):
            return _taken(taken)
        if not several and isinstance(replies[0].outcome, Malformed):
            return _error(422, f"reading 1: {replies[0].outcome}")
        text = await asyncio.to_thread(_lines, replies)  # thousands of them take a while
        return Response(text, media_type=_LINES if several else _JSON)

    async def _learn(self, incoming: list[Incoming]) -> tuple[list[Receipt], int]:
        """Hand readings to the service; what became of each, and how many it has taken."""
        loop = asyncio.get_running_loop()
        replies: list[Receipt] = []
        done: asyncio.Future[None] = loop.create_future()

        def finish() -> None:
            if not done.done():
                done.set_result(None)

        due = len(incoming)

        def acknowledge(reply: Receipt) -> None:  # in the thread that learns, in order
            replies.append(reply)
            if len(replies) >= due:
                with suppress(RuntimeError):  # the loop has ended, and the client has gone
                    loop.call_soon_threadsafe(finish)

        offered = [one._replace(acknowledge=acknowledge) for one in incoming]
        taken = due = self.service.inbox.offer(offered)
        if len(replies) < taken:
            await done
        kept = sum(reply.taken for reply in replies[:taken])
        return replies[:taken], min(taken, kept)

    # ------------------------------------------------------------------ what is known

    async def predictions(self, request: Request) -> Response:
        """The latest predictions."""
        latest = self.service.latest
        return Response(_NONE if latest is None else latest.line, media_type=_JSON)

    async def signals(self, request: Request) -> Response:
        """What is read, and what is predicted."""
        return JSONResponse(describe_signals(self.service))

    async def health(self, request: Request) -> Response:
        """Whether the service learns."""
        alive = self.service.alive
        return JSONResponse({"status": "alive" if alive else "stopped"}, 200 if alive else 503)

    async def ready(self, request: Request) -> Response:
        """Whether there is a model, and the disk takes it."""
        service = self.service
        if service.warming_up:
            return JSONResponse({"status": "warming up", "waiting": service.waiting, "warm_up": service.warm_up}, 503)
        if service.trouble or not service.alive:
            return JSONResponse({"status": "trouble", "error": service.trouble or "stopped"}, 503)
        return JSONResponse({"status": "ready"})

    async def metrics(self, request: Request) -> Response:
        """Metrics, for Prometheus."""
        return PlainTextResponse(write_metrics(self.service), media_type="text/plain; version=0.0.4")

    async def interface(self, request: Request) -> Response:
        """The description of all this."""
        return JSONResponse(describe_interface(version("emphatic")))

    async def stream(self, request: Request) -> Any:
        """Rows and status as they come."""
        signal = request.query_params.get("signal")
        known = describe_signals(self.service)
        if signal is not None and signal not in known["signals"] and signal not in known["predicted"]:
            return _error(404, f"there is no signal {signal[:100]!r}")
        if self._streams >= _STREAMS:
            refused = _error(503, f"there are {_STREAMS} streams already")
            refused.headers["retry-after"] = "5"
            return refused
        if request.method == "HEAD":
            return Response(media_type="text/event-stream")
        last = request.headers.get("last-event-id", "")
        after = int(last) if last.isascii() and last.isdigit() and len(last) < 16 else None
        return _Counted(self, EventStream(self.service, signal, after, self._closing))

    # ------------------------------------------------------------------ the page

    async def page(self, request: Request) -> Response:
        """The page, or the form for the token."""
        if not self.sessions.allow(request.headers, request.cookies):
            return HTMLResponse(_text("serve/static/login.html"), 401)
        return HTMLResponse(_text("serve/static/index.html"), headers={"cache-control": "no-cache"})

    async def login(self, request: Request) -> Response:
        """The form, filled in."""
        return await self.sessions.login(request, _text("serve/static/login.html"))

    async def file(self, request: Request) -> Response:
        """A file of the package, by its address in a fixed list."""
        path, kind = _FILES[request.scope["path"]]
        return Response(_text(path), media_type=kind, headers={"cache-control": "no-cache"})

    async def icon(self, request: Request) -> Response:
        """Browsers ask for it."""
        return Response(status_code=204)


class _Counted:
    """A stream, counted while it lasts."""

    def __init__(self, interface: _Interface, stream: EventStream) -> None:
        self._interface, self._stream = interface, stream

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        self._interface._streams += 1
        try:
            await self._stream(scope, receive, send)
        finally:
            self._interface._streams -= 1


async def _body(request: Request, closing: asyncio.Event) -> bytes | Response:
    """The body, or the answer to one that is too long, too slow, or has not ended when the service does."""
    too_long = _error(413, f"the body is longer than {LONGEST >> 20} MiB")
    declared = request.headers.get("content-length", "0")
    if not declared.isdigit() or int(declared) > LONGEST:
        return too_long
    parts: list[bytes] = []

    async def read() -> bool:
        size = 0
        async for part in request.stream():
            size += len(part)
            if size > LONGEST:
                return False
            parts.append(part)
        return True

    reading, ending = asyncio.create_task(read()), asyncio.create_task(closing.wait())
    done, _ = await asyncio.wait((reading, ending), timeout=_PATIENCE, return_when=asyncio.FIRST_COMPLETED)
    for task in (reading, ending):
        task.cancel()
    if reading not in done:
        return _taken(0) if done else _error(408, f"the body took more than {_PATIENCE:g} seconds")
    try:
        return b"".join(parts) if reading.result() else too_long
    except ClientDisconnect:
        return _error(400, "the client has gone")


def _lines(replies: Sequence[Receipt]) -> bytes:
    """A line for each reading."""
    outcomes = [reply.outcome for reply in replies]
    predicted = iter(format_lines(outcome for outcome in outcomes if isinstance(outcome, Prediction)))
    lines = []
    for number, outcome in enumerate(outcomes, start=1):
        if isinstance(outcome, Prediction):
            lines.append(next(predicted))
        elif isinstance(outcome, Malformed):
            lines.append(json.dumps({"error": f"reading {number}: {outcome}"}).encode() + b"\n")
        else:
            lines.append(_NONE)
    return b"".join(lines)


def _taken(count: int) -> JSONResponse:
    """So many readings were taken; the rest must be sent again."""
    return JSONResponse({"taken": count}, 503, {"retry-after": "1"})


def _error(status: int, text: str) -> JSONResponse:
    return JSONResponse({"error": text}, status)


async def _explain(request: Request, error: HTTPException) -> Response:
    return JSONResponse({"error": error.detail.lower()}, error.status_code, error.headers)


def _text(path: str) -> str:
    """A text of the package."""
    file = resources.files("emphatic").joinpath(path)
    if not file.is_file():
        raise HTTPException(404)
    return file.read_text("utf-8")
