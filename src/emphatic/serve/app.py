"""The HTTP interface of a service, as a Starlette application: requests, events, the page, and who may ask."""

from __future__ import annotations

import asyncio
import hmac
import ipaddress
import json
import logging
import math
import os
import re
import secrets
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from importlib import resources
from importlib.metadata import version
from pathlib import Path
from types import MappingProxyType
from typing import Any
from urllib.parse import parse_qs

import numpy as np
from numpy.typing import NDArray
from starlette.applications import Starlette
from starlette.background import BackgroundTask
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, HTTPConnection, Request
from starlette.responses import FileResponse, HTMLResponse, JSONResponse, PlainTextResponse, RedirectResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from emphatic.asking.language import describe_answer, describe_learning
from emphatic.nexting.outlook import History, make_outlook, read_forecasts, read_verdict, unit_of, values_at
from emphatic.nexting.predictor import ENDS, OF_A_SIGNAL, Prediction, format_lines
from emphatic.serve.ids import check_id
from emphatic.serve.listener import NUMERIC_HOSTS, PROBES
from emphatic.serve.metrics import write_metrics
from emphatic.serve.models import ExistsError, NamedModels, NoModelError
from emphatic.serve.service import (
    LONGEST,
    EndedError,
    Incoming,
    NotJson,
    Receipt,
    Service,
    WarmingUp,
    read_json,
    read_lines,
    with_ids,
)
from emphatic.tables.table import Malformed

__all__ = ["Attempts", "EventStream", "Guarded", "Sessions", "create_app"]

logger = logging.getLogger("emphatic.serve")

#: Streams at a time, and the seconds that a body may take.
_STREAMS, _PATIENCE = 32, 30.0
#: The most questions of one line that a service is asked: each takes time with every reading.
_QUESTIONS = 50
#: Seconds until a question that waits for the thread that learns is given up.
_CHANGE_PATIENCE = 5.0
#: Lines that are written without another thread.
_FEW = 16
#: The longest model that is taken, in bytes, and the seconds that it may take.
_LONGEST_MODEL, _MODEL_PATIENCE = 1 << 28, 120.0
#: The longest settings of a new model, in bytes.
_LONGEST_SETTINGS = 1 << 16
_JSON, _LINES = "application/json", "application/x-ndjson"
#: The line of a reading that is known, and whose prediction is not.
_NO_ANSWER = b'{"step": null, "time": null, "predictions": {}}\n'
#: Everything that is served as a file: its address, where it is in the package, and its type.
_FILES = {
    "/static/page.js": ("serve/static/page.js", "text/javascript"),
    "/static/ask.js": ("serve/static/ask.js", "text/javascript"),
    "/static/page.css": ("serve/static/page.css", "text/css"),
    "/static/icon.svg": ("serve/static/icon.svg", "image/svg+xml"),
    "/static/uplot.js": ("report/uplot/uPlot.iife.min.js", "text/javascript"),
    "/static/uplot.css": ("report/uplot/uPlot.min.css", "text/css"),
}
#: Rows in one event at most, and seconds between events and between status events.
_ROWS = 512
_PAUSE, _STATUS = 0.1, 1.0
#: A client whose connection takes nothing for so long is dropped.
_SLOW = 20.0
POLICY = (
    "default-src 'self'; style-src 'self'; img-src 'self' data:; frame-ancestors 'none'; base-uri 'none'; "
    "form-action 'self'"
)
#: What every answer says to browsers.
_HEADERS = (
    (b"content-security-policy", POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
)
_COOKIE = "emphatic_session"
#: What needs no token.
_OPEN = ("/", "/login", "/favicon.ico", *PROBES)
#: The page of a model that has a name, which shows the form for the token.
_PAGE = re.compile("/models/[^/]+/")
#: Sessions of the page that are remembered; the oldest is forgotten for a new one.
_SESSIONS = 64
#: The longest form of a login, in bytes, and the seconds that it may take.
_LONGEST_FORM, _FORM_PATIENCE = 4096, 10.0
#: Wrong tokens of an address that are answered at once; the seconds that the next one waits, doubled each time, and the
#: most; and the seconds after which they are forgotten.
_ANSWERED_AT_ONCE, _DELAY, _LONGEST_DELAY, _FORGOTTEN = 3, 0.1, 1.0, 600.0
#: Answers to wrong tokens that may wait, of one address and in all; and addresses and connections that are remembered.
_DELAYED, _ALL_DELAYED, _REMEMBERED = 8, 64, 4096


def create_app(
    service: Service,
    *,
    token: str | None = None,
    hosts: Sequence[str] = ("127.0.0.1", "localhost", "::1"),
    models: NamedModels | None = None,
) -> Starlette:
    """The application. The event ``app.state.closing`` ends its streams.

    Args:
        service: The service.
        token: The token that clients must give; None to ask for none.
        hosts: The names that a Host header may have.
        models: Further models, at /models/NAME; None for none.
    """
    attempts = Attempts()
    access = _Access(attempts, Sessions(token, attempts), asyncio.Event(), models)
    default = _Interface(service, access)
    routes = [
        *(Route(path, getattr(default, method), methods=verbs) for path, method, verbs in _OF_A_MODEL),
        Route("/login", default.login, methods=["POST"]),
        Route("/openapi.json", default.interface),
        Route("/favicon.ico", default.icon),
        *(Route(path, default.file) for path in _FILES),
    ]
    if models is not None:
        several = _Interfaces(models, access)
        routes += [
            Route("/models", several.list),
            Route("/models/{name}", several.one, methods=["GET", "PUT"]),
            Route("/models/{name}/start", several.start, methods=["POST"]),
            Route("/models/{name}/stop", several.stop, methods=["POST"]),
            *(Route("/models/{name}" + path, several.of(method), methods=verbs) for path, method, verbs in _OF_A_MODEL),
        ]
    app = Starlette(
        routes=routes,
        middleware=[Middleware(Guarded, sessions=access.sessions, hosts=hosts, direct={"/readings": default.readings})],
        exception_handlers={HTTPException: _explain},
    )
    app.router.redirect_slashes = False
    app.state.closing = access.closing
    return app


#: What is asked of a model: the path, the method of ``_Interface`` that answers, and the verbs.
_OF_A_MODEL = (
    ("/readings", "readings", ["POST"]),  # the first that is looked at
    ("/", "page", ["GET"]),
    ("/ask", "ask", ["GET", "POST", "DELETE"]),
    ("/model", "model", ["GET", "PUT"]),
    ("/predictions", "predictions", ["GET"]),
    ("/forecast", "forecast", ["GET"]),
    ("/signals", "signals", ["GET"]),
    ("/stream", "stream", ["GET"]),
    ("/healthz", "health", ["GET"]),
    ("/readyz", "ready", ["GET"]),
    ("/metrics", "metrics", ["GET"]),
)


@dataclass
class _Access:
    """What the interfaces of all models share: who may ask, what ends the streams, how many there are, all models."""

    attempts: Attempts
    sessions: Sessions
    closing: asyncio.Event
    models: NamedModels | None = None
    streams: int = 0


class _Interfaces:
    """The requests for models by name, and those that start and stop them."""

    def __init__(self, models: NamedModels, access: _Access) -> None:
        self._models, self._access = models, access
        self._turn = asyncio.Lock()  # so that those who wait for another change take no thread

    def of(self, method: str) -> Callable[[Request], Awaitable[ASGIApp]]:
        """What answers a request for a model by name as a method of ``_Interface`` does."""

        async def answer(request: Request) -> ASGIApp:
            name = request.path_params["name"]
            if method == "page" and not self._access.sessions.allow(request.headers, request.cookies):
                return HTMLResponse(_text("serve/static/login.html"), 401)
            try:
                service = self._models.find(name)
            except NoModelError as error:
                return _error(404, str(error))
            if service is None or service.inbox.closed:
                (state,) = self._models.describe(name)
                reason = state.get("error", "it is stopped")
                refusal = {"error": f"the model {name} does not run: {reason}", "taken": 0}
                return JSONResponse(refusal, 503, {"retry-after": "5"})
            interface = _Interface(service, self._access, is_named=True)
            response: ASGIApp = await getattr(interface, method)(request)
            return response

        return answer

    async def list(self, request: Request) -> Response:
        """All models, and how they do."""
        return JSONResponse({"models": self._models.describe()})

    async def one(self, request: Request) -> Response:
        """How one does; by PUT, a new one with these settings."""
        name = request.path_params["name"]
        if request.method == "PUT":
            body = await _body(request, self._access.closing, _LONGEST_SETTINGS, _PATIENCE)
            return body if isinstance(body, Response) else await self._change(self._models.create, name, body)
        return await self._described(name)

    async def start(self, request: Request) -> Response:
        """Start one that was stopped, has failed, or whose folder is new."""
        return await self._change(self._models.resume, request.path_params["name"])

    async def stop(self, request: Request) -> Response:
        """Stop one: it saves what it has learned, and takes no more readings."""
        return await self._change(self._models.halt, request.path_params["name"])

    async def _described(self, name: str) -> Response:
        described = self._models.describe(name)
        return JSONResponse(described[0]) if described else _error(404, f"there is no model {name[:100]!r}")

    async def _change(self, change: Callable[..., None], name: str, *arguments: object) -> Response:
        if not self._access.sessions.has_token:
            return _error(403, "creating, starting and stopping models needs a token: use --token-file")
        try:
            async with self._turn:
                await asyncio.to_thread(change, name, *arguments)
        except NoModelError as error:
            return _error(404, str(error))
        except ExistsError as error:
            return _error(409, str(error))
        except ValueError as error:
            return _error(422, str(error))
        except OSError as error:
            return _error(503, f"the folder of models cannot be written: {error.strerror}")
        return await self._described(name)


class _Interface:
    """The requests for one model that are answered, each by a method.

    Args:
        service: The service.
        access: What the interfaces of all models share.
        is_named: Whether the model is one of several, with a name in its address.
    """

    def __init__(self, service: Service, access: _Access, is_named: bool = False) -> None:
        self.service, self.is_named = service, is_named
        self.attempts, self.sessions, self._closing = access.attempts, access.sessions, access.closing
        self._access = access

    # ------------------------------------------------------------------ readings

    async def readings(self, request: Request) -> Response:
        """Learn from readings, and answer a line for each when all are safe."""
        kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind not in (_JSON, _LINES):
            return _error(415, f"the content type must be {_JSON} or {_LINES}, not {kind or 'none'}")
        body = await _body(request, self._closing, LONGEST, _PATIENCE)
        if isinstance(body, Response):
            return body
        try:
            incoming, several = (read_lines(body), True) if kind == _LINES else read_json(body)
        except NotJson as error:
            return _error(400, str(error))
        key = request.headers.get("idempotency-key")
        try:
            id = None if key is None else check_id(key)
        except Malformed as error:
            return _error(400, f"Idempotency-Key: {error}")
        receipts, count = await self._learn(with_ids(incoming, "", self.service.id_field, id))
        if count < len(incoming):
            return _count_taken(count)
        if not several and isinstance(receipts[0].outcome, Malformed):
            return _error(422, f"reading 1: {receipts[0].outcome}")
        # Thousands of them take a while; of a few, the way to another thread and back takes longer.
        text = _lines(receipts) if len(receipts) <= _FEW else await asyncio.to_thread(_lines, receipts)
        return Response(text, media_type=_LINES if several else _JSON)

    async def _learn(self, incoming: list[Incoming]) -> tuple[list[Receipt], int]:
        """Hand readings to the service; the receipt of each, and how many it has taken."""
        loop = asyncio.get_running_loop()
        receipts: list[Receipt] = []
        done: asyncio.Future[None] = loop.create_future()

        def finish() -> None:
            if not done.done():
                done.set_result(None)

        due = len(incoming)

        def acknowledge(receipt: Receipt) -> None:  # in the thread that learns, in order
            receipts.append(receipt)
            if len(receipts) >= due:
                with suppress(RuntimeError):  # the loop has ended, and the client has disconnected
                    loop.call_soon_threadsafe(finish)

        due = self.service.inbox.offer([reading.answered_by(acknowledge, wants_line=True) for reading in incoming])
        if len(receipts) < due:
            await done
        return receipts[:due], sum(receipt.taken for receipt in receipts[:due])

    # ------------------------------------------------------------------ what is known

    async def predictions(self, request: Request) -> Response:
        """The latest predictions."""
        latest = self.service.latest
        line = self.service.state.line if latest is None else latest.line
        return Response(line, media_type=_JSON)

    async def forecast(self, request: Request) -> Response:
        """What is expected of a signal: its forecasts, the line through them, and the best baseline."""
        known = describe_signals(self.service)
        names = list(dict.fromkeys([*known["signals"], *known["predicted"]]))
        signal = request.query_params.get("signal", names[0] if names else "")
        if signal not in names and not self.service.warming_up:
            return _error(404, f"there is no signal {signal[:100]!r}")
        return JSONResponse(await asyncio.to_thread(describe_forecast, self.service, signal))

    async def ask(self, request: Request) -> Response:
        """The questions of one line with their answers; a POST of {"ask": TEXT} asks one more, a DELETE one less."""
        if request.method in ("POST", "DELETE"):
            kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
            if kind != _JSON:  # (a form of another site cannot send this)
                return _error(415, f"the content type must be {_JSON}, not {kind or 'none'}")
            body = await _body(request, self._closing, _LONGEST_FORM, _FORM_PATIENCE)
            if isinstance(body, Response):
                return body
            try:
                text = json.loads(body)["ask"]
            except (ValueError, KeyError, TypeError, RecursionError):
                return _error(400, 'the body must be {"ask": "P(power > 5 within 1h)"}, a question in one line')
            if not isinstance(text, str):
                return _error(422, "a question must be text")
            if request.method == "POST" and len(self.service.predictor.settings.ask) >= _QUESTIONS:
                return _error(422, f"{_QUESTIONS} questions are active, which is the limit: remove one first")
            if (refusal := await self._change(text, stop=request.method == "DELETE")) is not None:
                return refusal
        return JSONResponse(describe_asked(self.service))

    async def _change(self, text: str, stop: bool) -> Response | None:
        """Ask a question of one line, or no longer; the answer if that cannot be done, or not now."""
        service = self.service
        return await self._carry_out(service.ask(text, stop))

    async def _carry_out(self, change: Future[None], patience: float | None = None) -> Response | None:
        """Wait for a change of the model; the answer if it cannot be done, or not now."""
        service = self.service
        try:
            async with asyncio.timeout(_CHANGE_PATIENCE if patience is None else patience):
                await asyncio.wrap_future(change)  # given up, it is not carried out
        except ValueError as error:
            return _error(422, str(error))
        except (TimeoutError, EndedError):
            if service.inbox.closed or not service.alive:
                reason = "the service ends"
            elif service.compiling:
                reason = f"warming up: {service.waiting} readings wait until kernels are compiled"
            elif not service.can_ask:
                reason = "warming up: the kernels of questions are being compiled"
            else:
                reason = "the service is busy"
            return JSONResponse({"error": f"{reason}; ask again later"}, 503, {"retry-after": "5"})
        return None

    async def model(self, request: Request) -> Response:
        """The model as it is now, or, by PUT, another one in its place."""
        if not self.sessions.has_token:
            return _error(403, "downloading and uploading the model needs a token: start the service with --token-file")
        service = self.service
        if not service.learn and request.method == "PUT":
            return _error(403, "a service with --no-learn keeps its model")
        path = service.model.with_name(f".{service.model.name}.{secrets.token_hex(8)}")
        delete = BackgroundTask(path.unlink, missing_ok=True)
        refusal: Response | None
        if request.method != "PUT":
            refusal = await self._carry_out(service.export(path), _MODEL_PATIENCE)
            if refusal is None:
                return FileResponse(
                    path, media_type="application/octet-stream", filename=service.model.name, background=delete
                )
            path.unlink(missing_ok=True)
            return refusal
        try:
            async with asyncio.timeout(_MODEL_PATIENCE):
                refusal = await _receive_file(request, path)
            if refusal is not None:
                return refusal
            successor = await asyncio.to_thread(service.load, path)
        except TimeoutError:
            return _error(408, f"the model took more than {_MODEL_PATIENCE:g} seconds")
        except ClientDisconnect:
            return _error(400, "the client has disconnected")
        except OSError as error:
            return _error(503, f"the model cannot be stored: {error.strerror}")
        except (ValueError, ArithmeticError, RecursionError, MemoryError) as error:  # CheckpointError too
            return _error(422, str(error).replace(str(path), "the model") or type(error).__name__)
        finally:
            path.unlink(missing_ok=True)
        refusal = await self._carry_out(service.replace_model(successor), _MODEL_PATIENCE)
        return JSONResponse({"step": successor.step}) if refusal is None else refusal

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
            state = {"status": "warming up", "waiting": service.waiting, "warm_up": service.warm_up}
            return JSONResponse({**state, **service.state._asdict(), **describe_sources(service)}, 503)
        details = describe_sources(service)
        trouble = service.trouble or service.disconnected or ("" if service.alive else "stopped")
        if self._access.models is not None and not self.is_named:
            details["models"] = {state["name"]: state["state"] for state in self._access.models.describe()}
            trouble = trouble or self._access.models.trouble
        if trouble:
            return JSONResponse({"status": "trouble", "error": trouble, **details}, 503)
        return JSONResponse({"status": "ready", **details})

    async def metrics(self, request: Request) -> Response:
        """Metrics, for Prometheus."""
        return PlainTextResponse(
            write_metrics(
                self.service,
                self.attempts.wrong,
                self.attempts.failed_logins,
                [] if self._access.models is None or self.is_named else self._access.models.describe(),
            ),
            media_type="text/plain; version=0.0.4",
        )

    async def interface(self, request: Request) -> Response:
        """The description of all this."""
        return JSONResponse(describe_interface(version("emphatic")))

    async def stream(self, request: Request) -> ASGIApp:
        """Rows and status as they come."""
        signal = request.query_params.get("signal")
        known = describe_signals(self.service)
        if signal is not None and signal not in known["signals"] and signal not in known["predicted"]:
            return _error(404, f"there is no signal {signal[:100]!r}")
        if self._access.streams >= _STREAMS:
            busy = _error(503, f"the limit of {_STREAMS} streams is reached")
            busy.headers["retry-after"] = "5"
            return busy
        if request.method == "HEAD":
            return Response(media_type="text/event-stream")
        id = request.headers.get("last-event-id", "")
        step = int(id) if id.isascii() and id.isdigit() and len(id) < 16 else None
        events = EventStream(self.service, signal, step, self._closing)

        async def counted(scope: Scope, receive: Receive, send: Send) -> None:
            self._access.streams += 1
            try:
                await events(scope, receive, send)
            finally:
                self._access.streams -= 1

        return counted

    # ------------------------------------------------------------------ the page

    async def page(self, request: Request) -> Response:
        """The page, or the form for the token."""
        if not self.sessions.allow(request.headers, request.cookies):
            return HTMLResponse(_text("serve/static/login.html"), 401)
        return HTMLResponse(_text("serve/static/index.html"), headers={"cache-control": "no-cache"})

    async def login(self, request: Request) -> Response:
        """The form, filled in."""
        body = await _body(request, self._closing, _LONGEST_FORM, _FORM_PATIENCE)
        if isinstance(body, Response):
            return body
        return await self.sessions.login(request, body, _text("serve/static/login.html"))

    async def file(self, request: Request) -> Response:
        """A file of the package, by its address in a fixed list."""
        path, kind = _FILES[request.scope["path"]]
        return Response(_text(path), media_type=kind, headers={"cache-control": "no-cache"})

    async def icon(self, request: Request) -> Response:
        """Browsers ask for it."""
        return Response(status_code=204)


async def _receive_file(request: Request, path: Path) -> Response | None:
    """Write the body of a request to a file; the answer to one that is too long."""
    size = 0
    with open(path, "xb", opener=partial(os.open, mode=0o600)) as file:
        async for chunk in request.stream():
            size += len(chunk)
            if size > _LONGEST_MODEL:
                return _error(413, f"the model is longer than {_LONGEST_MODEL >> 20} MiB")
            file.write(chunk)
    return None


async def _body(request: Request, closing: asyncio.Event, longest: int, patience: float) -> bytes | Response:
    """The body, or the answer to one that is too long, too slow, or has not ended when the service does."""
    size = f"{longest >> 20} MiB" if longest >> 20 else f"{longest >> 10} KiB"
    too_long = _error(413, f"the body is longer than {size}")
    declared = request.headers.get("content-length", "0")
    if not declared.isdigit() or int(declared) > longest:
        return too_long
    chunks: list[bytes] = []

    async def read(message: Message | None = None) -> bool:
        """Read the body, or what follows its first message; False if it is too long."""
        size, is_complete = 0, False
        while not is_complete:
            message = message or await request.receive()
            if message["type"] == "http.disconnect":
                raise ClientDisconnect
            chunks.append(message.get("body", b""))
            size += len(chunks[-1])
            if size > longest:
                return False
            is_complete, message = not message.get("more_body", False), None
        return True

    # Nearly always all of it is there, and no task needs to wait for it.
    message: Message | None = None
    with suppress(TimeoutError):
        async with asyncio.timeout(0):
            message = await request.receive()
    if message is not None and message["type"] == "http.request" and not message.get("more_body", False):
        body: bytes = message.get("body", b"")
        return body if len(body) <= longest else too_long
    reading, ending = asyncio.create_task(read(message)), asyncio.create_task(closing.wait())
    done, _ = await asyncio.wait((reading, ending), timeout=patience, return_when=asyncio.FIRST_COMPLETED)
    for task in (reading, ending):
        task.cancel()
    if reading not in done:
        return _count_taken(0) if done else _error(408, f"the body took more than {patience:g} seconds")
    try:
        return b"".join(chunks) if reading.result() else too_long
    except ClientDisconnect:
        return _error(400, "the client has disconnected")


def _lines(receipts: Sequence[Receipt]) -> bytes:
    """A line for each reading."""
    unwritten = (receipt.outcome for receipt in receipts if receipt.line is None)
    predicted = iter(format_lines(outcome for outcome in unwritten if isinstance(outcome, Prediction)))
    lines = []
    for number, receipt in enumerate(receipts, start=1):
        outcome = receipt.outcome
        if receipt.line is not None:
            lines.append(receipt.line)
        elif isinstance(outcome, Prediction):
            lines.append(next(predicted))
        elif isinstance(outcome, Malformed):
            lines.append(json.dumps({"error": f"reading {number}: {outcome}"}).encode() + b"\n")
        elif isinstance(outcome, WarmingUp):
            lines.append(outcome.line)
        else:  # of a known reading whose answer is no longer kept
            lines.append(_NO_ANSWER)
    return b"".join(lines)


def _count_taken(count: int) -> JSONResponse:
    """The answer if only the first ``count`` readings were taken; the others must be sent again."""
    return JSONResponse({"taken": count}, 503, {"retry-after": "1"})


def _error(status: int, text: str) -> JSONResponse:
    return JSONResponse({"error": text}, status)


async def _explain(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return JSONResponse({"error": error.detail.lower()}, error.status_code, error.headers)


def _text(path: str) -> str:
    """A text of the package."""
    file = resources.files("emphatic").joinpath(path)
    if not file.is_file():
        raise HTTPException(404)
    return file.read_text("utf-8")


# ---------------------------------------------------------------------- what a service tells of itself


def describe_signals(service: Service) -> dict[str, Any]:
    """The answer to ``/signals``."""
    recent, latest = service.recent, service.latest
    format = recent.format if recent is not None else None if latest is None else latest.format
    predicted = {} if format is None else {name: list(at) for name, at in format.places.items()}
    return {
        "signals": list(predicted) if recent is None else list(recent.names),
        "predicted": predicted,
        "time": service.predictor.clock is not None,
        "warming_up": service.warming_up,
        "waiting": service.waiting,
        "warm_up": service.warm_up,
        "step": service.step,
        "learning": service.learn,
    }


def describe_status(service: Service, signal: str | None = None) -> dict[str, Any]:
    """How the service does; with a signal, the error of its predictions too."""
    rate, lag = service.traffic.rate_and_lag()
    status = {
        "step": service.step,
        "readings": service.readings,
        "malformed": service.malformed,
        "guarded": service.predictor.guarded_counts(),
        "rate": round(rate, 3),
        "lag": round(lag, 4),
        "queue": len(service.inbox),
        "saved_step": service.saved_step,
        "warming_up": service.warming_up,
        "waiting": service.waiting,
        "warm_up": service.warm_up,
        "trouble": service.trouble or service.disconnected,
        "repeated": service.repeated,
        **describe_sources(service),
    }
    if signal is not None:
        status["error"] = {horizon: error for name, horizon, error in service.rmse() if name == signal}
    return status


def describe_sources(service: Service) -> dict[str, Any]:
    """How sources and publishers do; empty if there are none."""
    connections = {"sources": service.sources, "publishers": service.publishers}
    return {kind: [status.describe() for status in statuses] for kind, statuses in connections.items() if statuses}


def describe_asked(service: Service) -> list[dict[str, Any]]:
    """The questions of one line: the scores so far, the answer in a sentence, and how far learning is."""
    predictor = service.predictor
    if predictor.horde is None:
        return [{"text": text, "sentence": "Warming up.", "learning": "warming up"} for text in predictor.settings.ask]
    asked = predictor.asked
    described = []
    for score in asked.summary():
        at = predictor.clock.last if predictor.clock is not None and asked.timing.dated else None
        described.append(score | {"sentence": describe_answer(score, at), "learning": describe_learning(score)})
    return described


def describe_forecast(service: Service, signal: str) -> dict[str, Any]:
    """The answer to ``/forecast``: what is expected of a signal from the last row on, and how good that was so far.

    Args:
        service: The service.
        signal: The signal.
    """
    if service.warming_up or service.predictor.horde is None:
        learning = f"warming up: {service.waiting} of {service.warm_up} readings"
        if service.waiting >= service.warm_up:
            learning = f"preparing: {service.waiting:,} readings wait until the model is built"
        return {"signal": signal, "learning": learning, "forecasts": []}
    asked = service.predictor.asked
    scores = asked.values_of(signal)
    time, reading = _recent_readings(service, signal)
    if not scores or not len(time):
        return {"signal": signal, "learning": "", "forecasts": []}
    history = History([signal], asked.timing)
    history.add(time, reading[:, None])
    origin, step = float(time[-1]), asked.timing.step or 1.0
    verdict = read_verdict(scores, signal, asked.judge_signals([signal]))
    forecasts = read_forecasts(scores, origin, asked.timing.step).get(signal, [])
    outlook = make_outlook(history, signal, forecasts, verdict, unit=unit_of(signal))

    def line(times: Sequence[float], **values: Sequence[float]) -> dict[str, Any]:
        rows = {"ahead": [(time - origin) / step for time in times], **values}
        return {name: [number if math.isfinite(number) else None for number in column] for name, column in rows.items()}

    forecasts, (baseline_time, baseline) = list(outlook.forecasts), (column.tolist() for column in outlook.baseline)
    if not len(outlook.baseline[0]) and asked.headline is not None:
        # It repeats readings that are not at hand, as after a restart: what is known is its value at each horizon.
        known = {score["horizon"]: asked.headline.baselines(score["text"]).get(verdict.baseline) for score in scores}
        forecasts = [forecast._replace(baseline=known.get(forecast.horizon)) for forecast in forecasts]
        there = [(forecast.time, forecast.baseline) for forecast in forecasts if forecast.baseline is not None]
        baseline_time, baseline = [when for when, _ in there], [value for _, value in there]
    path_time, path, low, high = (column.tolist() for column in outlook.path)
    return {
        "signal": signal,
        "unit": outlook.unit,
        "learning": describe_learning(scores[0]),
        "verdict": verdict._asdict() | {"baseline_words": verdict.baseline_words},
        "forecasts": [f._asdict() | {"ahead": (f.time - origin) / step} for f in forecasts],
        "path": line(path_time, mean=path, low=low, high=high),
        "baseline": line(baseline_time, mean=baseline),
        "step": service.step,
    }


def describe_history(service: Service, signal: str) -> dict[str, Any] | None:
    """The rows of a signal before the first since the start, as they were saved with the model; None if there are none.

    Args:
        service: The service.
        signal: The signal.
    """
    if service.warming_up or service.predictor.horde is None:
        return None
    recent, (step, time, reading) = service.recent, _saved_readings(service, signal)
    begin = recent.first if recent is not None and recent.end else service.step
    rows: dict[int, dict[str, Any]] = {}
    for at, seconds, value in zip(step.tolist(), time.tolist(), reading.tolist(), strict=True):
        numbers = {"t": seconds, "reading": value}
        rows[at] = {name: number if math.isfinite(number) else None for name, number in numbers.items()}
    for alarm in service.alarms.rows(signal):
        rows[alarm["step"]] = rows.get(alarm["step"], {}) | alarm | {"alarm": True}
    older = sorted(at for at in rows if at < begin)
    if not older:
        return None
    for at in older:  # no line joins alarms of long ago
        rows[at]["gap"] = not len(step) or at <= int(step[0])
    names = ["time", "reading", "gap", "alarm", "anomaly", "why"]
    names += ["t"] if service.predictor.asked.timing.step is not None else []
    return {"step": older, "thin": True} | {name: [rows[at].get(name) for at in older] for name in names}


def _saved_readings(
    service: Service, signal: str
) -> tuple[NDArray[np.int64], NDArray[np.float64], NDArray[np.float64]]:
    """Steps, times and readings of the last rows, as questions about the signal keep them: older ones thinly."""
    asked = service.predictor.asked
    columns = []
    for answering in (asked,) if asked.headline is None else (asked.headline, asked):
        for q, question in enumerate(answering.questions):
            if all(about != signal for _, about in values_at([{"text": question.text}])):
                continue
            rows = answering.recent(q)
            # (the rows of a question that was asked later are counted from then on)
            columns.append(np.stack([rows["row"] - rows["row"][-1:].sum(), rows["time"], rows["now"]]))
    if not columns:
        return np.empty(0, np.int64), np.empty(0), np.empty(0)
    age, time, reading = np.concatenate(columns, axis=1)
    ages, places = np.unique(age, return_index=True)
    return service.step - 1 + ages.astype(np.int64), time[places], reading[places]


def _recent_readings(service: Service, signal: str) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Times and readings of the last rows: those since the start, and older ones that were saved."""
    asked, recent = service.predictor.asked, service.recent
    step, time, reading = _saved_readings(service, signal)
    rows = None if recent is None or asked.timing.step is None else recent.columns(signal, 0, recent.size)
    if rows is None or not len(step) or rows["step"][-1] < step[-1] - 1:
        return time, reading
    older = step < rows["step"][0]
    times = np.concatenate([time[older], np.array(rows["t"], np.float64)])
    return times, np.concatenate([reading[older], np.array(rows["reading"], np.float64)])


def describe_interface(version: str) -> dict[str, Any]:
    """The answer to ``/openapi.json``: the document in the package, with the version and all kinds of predictions."""
    interface: dict[str, Any] = json.loads(_text("serve/static/openapi.json"))
    interface["info"]["version"] = version
    properties = interface["components"]["schemas"]["Prediction"]["properties"]
    properties |= dict.fromkeys(ENDS, properties["predictions"]) | {kind: {"type": "object"} for kind in OF_A_SIGNAL}
    return interface


# ---------------------------------------------------------------------- server-sent events


class EventStream:
    """An answer that goes on until the client or the service ends: rows of one signal, and the status.

    Args:
        service: The service.
        signal: The signal; None for the first.
        after: The last step that the client has; None to begin with the oldest.
        closing: The event that ends the stream.
    """

    def __init__(self, service: Service, signal: str | None, after: int | None, closing: asyncio.Event) -> None:
        self._service, self._signal, self._after, self._closing = service, signal, after, closing

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = [(b"content-type", b"text/event-stream; charset=utf-8"), (b"cache-control", b"no-store")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})

        async def sent() -> None:
            async for text in self._events():
                body = {"type": "http.response.body", "body": text.encode(), "more_body": True}
                await asyncio.wait_for(send(body), _SLOW)

        async def gone() -> None:
            while (await receive())["type"] != "http.disconnect":
                pass

        tasks = [asyncio.create_task(sent()), asyncio.create_task(gone())]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            ended = (await asyncio.gather(*tasks, return_exceptions=True))[0]
        if ended is None:
            await send({"type": "http.response.body", "body": b""})
        elif not isinstance(ended, TimeoutError | asyncio.CancelledError):
            raise ended

    async def _events(self) -> AsyncIterator[str]:
        service = self._service
        signals = describe_signals(service)
        signal = (
            self._signal if self._signal is not None else next(iter(signals["signals"] or signals["predicted"]), None)
        )
        horizons = signals["predicted"].get(signal, [])
        yield "retry: 1000\n\n" + _event("hello", signals | {"signal": signal, "horizons": horizons})
        recent = service.recent
        at = 0 if self._after is None else self._after + 1
        if recent is not None and at > max(recent.end, service.step):  # a step of another model
            at = 0
        if at == 0 and signal is not None and (rows := describe_history(service, signal)) is not None:
            at = rows["step"][-1] + 1
            yield f"id: {at - 1}\n" + _event("rows", rows)
        status_at = 0.0
        while not (self._closing.is_set() or service.inbox.closed):
            if service.recent is not recent:
                return  # there are other signals now
            rows = None if recent is None or signal is None else recent.columns(signal, at, _ROWS)
            if rows is not None:
                at = rows["step"][-1] + 1
                yield f"id: {at - 1}\n" + _event("rows", rows)
            if time.monotonic() - status_at >= _STATUS:
                status_at = time.monotonic()
                yield _event("status", describe_status(service, signal or ""))
            if rows is None or len(rows["step"]) < _ROWS:
                await _pause(self._closing)


async def _pause(closing: asyncio.Event) -> None:
    try:
        await asyncio.wait_for(closing.wait(), _PAUSE)
    except TimeoutError:
        return


def _event(name: str, data: dict[str, Any]) -> str:
    return f"event: {name}\ndata: {json.dumps(data, allow_nan=False, default=str)}\n\n"


# ---------------------------------------------------------------------- who may ask


class Attempts:
    """Wrong tokens, counted and logged by the address that they come from, and answered ever later.

    The fourth wrong token of an address waits for a tenth of a second, the next for twice as long, up to a second, and
    they wait one after the other: trying more at a time does not help. While eight of them wait, no token of that
    address is looked at, except on connections that have shown the right one before.
    """

    def __init__(self) -> None:
        #: The wrong tokens in all, and those of logins on the page.
        self.wrong = self.failed_logins = 0
        self._waiting = 0
        self._addresses: OrderedDict[str, _Guesses] = OrderedDict()
        self._trusted: OrderedDict[object, None] = OrderedDict()

    def refuse(self, scope: Scope) -> Response | None:
        """The answer to a request whose token will not be looked at; None if it will."""
        guesses = self._addresses.get(_network(scope))
        waiting = 0 if guesses is None else guesses.waiting
        if (waiting < _DELAYED and self._waiting < _ALL_DELAYED) or scope.get("client") in self._trusted:
            return None
        return JSONResponse({"error": "too many wrong tokens: try again later"}, 429, {"retry-after": "10"})

    def trust(self, scope: Scope) -> None:
        """Note that the right token came by this connection."""
        _remember(self._trusted, scope.get("client"), None)

    async def delay(self, scope: Scope) -> None:
        """Count a wrong token, and wait until it may be answered."""
        self.wrong += 1
        self._trusted.pop(scope.get("client"), None)
        address, now = _network(scope), time.monotonic()
        guesses = self._addresses.pop(address, None)
        if guesses is None or now - guesses.answered > _FORGOTTEN:
            guesses = _Guesses(answered=now)
        _remember(self._addresses, address, guesses)
        guesses.count += 1
        if guesses.count in (1, 10, 100) or guesses.count % 1000 == 0:
            logger.warning("a wrong token from %s, %d so far: answers to it are delayed.", address, guesses.count)
        doubled = guesses.count - _ANSWERED_AT_ONCE - 1
        delay = 0.0 if doubled < 0 else min(_DELAY * 2.0 ** min(doubled, 60), _LONGEST_DELAY)
        guesses.answered = max(now, guesses.answered) + delay
        self._waiting += 1
        guesses.waiting += 1
        try:
            await asyncio.sleep(guesses.answered - now)
        finally:
            self._waiting -= 1
            guesses.waiting -= 1


@dataclass
class _Guesses:
    """The wrong tokens of an address: when the last of them is answered, how many there were, and how many wait."""

    answered: float
    count: int = 0
    waiting: int = 0


def _network(scope: Scope) -> str:
    """The address of a client; of IPv6 the 64 bits that one subscriber has to choose from."""
    host = str((scope.get("client") or ("unknown",))[0])
    with suppress(ValueError):
        address = ipaddress.ip_address(host.partition("%")[0])
        if address.version == 6:
            mapped = address.ipv4_mapped
            return str(mapped or ipaddress.ip_network((int(address), 64), strict=False))
    return host


def _remember(known: OrderedDict[Any, Any], key: object, value: object) -> None:
    """Add an entry as the newest, and forget the oldest if there are too many."""
    known[key] = value
    known.move_to_end(key)
    while len(known) > _REMEMBERED:
        known.popitem(last=False)


class Sessions:
    """The token, and the sessions that were opened with it.

    Args:
        token: The token; None if none is needed.
        attempts: Where wrong ones are counted.
    """

    def __init__(self, token: str | None, attempts: Attempts) -> None:
        self._token = None if token is None else token.encode()
        self._attempts = attempts
        self._open: dict[str, None] = {}

    @property
    def has_token(self) -> bool:
        """Whether a token is needed."""
        return self._token is not None

    def allow(self, headers: Headers, cookies: dict[str, str]) -> bool:
        """Whether a request has the token, or a session."""
        if self._token is None:
            return True
        token = _bearer(headers)
        if token is not None:
            return self._is_token(token)
        cookie = cookies.get(_COOKIE, "")
        return any(hmac.compare_digest(cookie.encode(), known.encode()) for known in self._open)

    async def refuse(self, scope: Scope) -> Response | None:
        """The answer to a request that is not allowed; None if it is, or needs no token."""
        headers, path = Headers(scope=scope), scope["path"]
        if self._token is None or path in PROBES:
            return None
        shows_token = _bearer(headers) is not None
        if shows_token and (refusal := self._attempts.refuse(scope)) is not None:
            return refusal
        if self.allow(headers, HTTPConnection(scope).cookies):
            if shows_token:
                self._attempts.trust(scope)
            return None
        if shows_token:
            await self._attempts.delay(scope)
        if _is_open(path):
            return None
        wanted = {"error": "a token is needed: Authorization: Bearer TOKEN"}
        return JSONResponse(wanted, 401, {"www-authenticate": "Bearer"})

    async def login(self, request: Request, body: bytes, page: str) -> Response:
        """Open a session for the one who knows the token, or show the form again."""
        token = parse_qs(body.decode("utf-8", "replace")).get("token", [""])[0]
        if self._token is not None:
            if (refusal := self._attempts.refuse(request.scope)) is not None:
                return refusal
            if not self._is_token(token.strip()):
                self._attempts.failed_logins += 1
                await self._attempts.delay(request.scope)
                wrong = page.replace("<!--wrong-->", '<p class="wrong">Wrong token.</p>')
                return HTMLResponse(wrong, 401)
        answer = RedirectResponse("/", 303)
        if self._token is not None:
            session = secrets.token_urlsafe(32)
            while len(self._open) >= _SESSIONS:
                del self._open[next(iter(self._open))]
            self._open[session] = None
            secure = request.url.scheme == "https"
            answer.set_cookie(_COOKIE, session, httponly=True, samesite="strict", path="/", secure=secure)
        return answer

    def _is_token(self, token: str) -> bool:
        assert self._token is not None
        return hmac.compare_digest(token.encode(), self._token)  # in a time that does not tell how much of it is right


def _is_open(path: str) -> bool:
    """Whether a path needs no token: files, probes, and pages, which show the form for it."""
    return path in _OPEN or path.startswith("/static/") or _PAGE.fullmatch(path) is not None


def _bearer(headers: Headers) -> str | None:
    """The token in the headers of a request, if there is one."""
    scheme, _, token = headers.get("authorization", "").partition(" ")
    return token.strip() if scheme.lower() == "bearer" else None


class Guarded:
    """An application behind the checks that every request must pass, with the headers that every answer has.

    Args:
        app: The application.
        sessions: Who may ask.
        hosts: The names that a Host header may have, whoever asks: a page elsewhere cannot reach the service by a name
            of its own.
        direct: What answers a POST to these paths, without the way through all routes: the paths of single readings.
    """

    def __init__(
        self,
        app: ASGIApp,
        sessions: Sessions,
        hosts: Sequence[str],
        direct: Mapping[str, Callable[[Request], Awaitable[Response]]] = MappingProxyType({}),
    ) -> None:
        self._app, self._sessions, self._direct = app, sessions, direct
        self._hosts = {host.lower() for host in hosts}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = message["headers"] = [*message.get("headers", ()), *_HEADERS]
                if not any(name == b"cache-control" for name, _ in headers):
                    headers.append((b"cache-control", b"no-store"))
            await send(message)

        refusal: Response | None
        if self._is_host(_name(Headers(scope=scope).get("host", ""))):
            refusal = await self._sessions.refuse(scope)
        else:
            reason = "this service does not have the name in the Host header; --allow-host NAME allows one more"
            refusal = _error(400, reason)
        if refusal is None and scope["path"] in self._direct and scope["method"] == "POST":
            refusal = await self._direct[scope["path"]](Request(scope, receive))
        await (self._app if refusal is None else refusal)(scope, receive, send_with_headers)

    def _is_host(self, name: str) -> bool:
        """Whether the service goes by this name."""
        return name in self._hosts or (NUMERIC_HOSTS in self._hosts and _is_numeric(name))


def _is_numeric(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _name(host: str) -> str:
    """The name in a Host header, without the port."""
    if host.startswith("["):
        return host.partition("]")[0][1:].lower()
    return host.rpartition(":")[0].lower() if ":" in host else host.lower()
