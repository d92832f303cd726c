"""The HTTP interface of a service, as a Starlette application: requests, events, the page, and who may ask."""

from __future__ import annotations

import asyncio
import json
import logging
import math
import secrets
import time
from collections.abc import AsyncIterator, Sequence
from concurrent.futures import Future
from contextlib import suppress
from importlib import resources
from typing import Any
from urllib.parse import parse_qs

import numpy as np
from numpy.typing import NDArray
from starlette.applications import Starlette
from starlette.background import BackgroundTask
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.sessions import SessionMiddleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import ClientDisconnect, HTTPConnection, Request
from starlette.responses import (
    FileResponse,
    HTMLResponse,
    JSONResponse,
    PlainTextResponse,
    RedirectResponse,
    Response,
    StreamingResponse,
)
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from emphatic.nexting.answers.language import describe_answer, describe_learning, parse
from emphatic.nexting.runs.outlook import make_outlook, unit_of
from emphatic.nexting.runs.predictor import Prediction
from emphatic.nexting.serve.ids import check_id
from emphatic.nexting.serve.metrics import write_metrics
from emphatic.nexting.serve.service import (
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
from emphatic.nexting.tables.table import Malformed

__all__ = ["EventStream", "create_app"]

logger = logging.getLogger("emphatic.serve")

#: Streams at a time, and the seconds that a body may take.
_STREAMS, _PATIENCE = 32, 30.0
#: The most questions of one line that a service is asked: each takes time with every reading.
_QUESTIONS = 50
#: Seconds until a question that waits for the thread that learns is given up.
_CHANGE_PATIENCE = 5.0
#: Lines that are written without another thread.
_FEW = 16
#: Seconds until a model that is asked for must have been written.
_MODEL_PATIENCE = 120.0
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
#: Rows before the first since the start that a page gets.
_HISTORY = 1000
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
#: The seconds that a session of the page lasts, and what it says.
_SESSION, _SIGNED_IN = 7 * 86400, "signed in"
#: What needs no token: the page, which shows the form for it, and what orchestrators ask.
_OPEN = ("/", "/login", "/healthz", "/readyz")
#: The longest form of a login, in bytes, and the seconds that it may take.
_LONGEST_FORM, _FORM_PATIENCE = 4096, 10.0


def create_app(
    service: Service,
    *,
    token: str | None = None,
    hosts: Sequence[str] = ("127.0.0.1", "localhost"),
    https: bool = False,
) -> Starlette:
    """The application. ``app.state.close`` ends its streams, and answers the requests whose body has not ended.

    Args:
        service: The service.
        token: The token that clients must give; None to ask for none.
        hosts: The names that a Host header may have; * for any.
        https: Whether it is served by HTTPS only.
    """
    access = Access(token)
    interface = _Interface(service, access)
    middleware = [Middleware(SafeHeaders), Middleware(TrustedHostMiddleware, hosts, www_redirect=False)]
    if token is not None:
        session = Middleware(
            SessionMiddleware,
            secrets.token_hex(32),
            session_cookie="emphatic_session",
            max_age=_SESSION,
            same_site="strict",
            https_only=https,
        )
        middleware += [session, Middleware(TokenRequired, access)]
    app = Starlette(
        routes=[
            Route("/readings", interface.readings, methods=["POST"]),  # the first that is looked at
            Route("/", interface.page),
            Route("/login", interface.login, methods=["POST"]),
            Route("/ask", interface.ask, methods=["GET", "POST", "DELETE"]),
            Route("/model", interface.model),
            Route("/predictions", interface.predictions),
            Route("/forecast", interface.forecast),
            Route("/signals", interface.signals),
            Route("/stream", interface.stream),
            Route("/healthz", interface.health),
            Route("/readyz", interface.ready),
            Route("/metrics", interface.metrics),
            *(Route(path, interface.file) for path in _FILES),
        ],
        middleware=middleware,
        exception_handlers={HTTPException: _explain},
    )
    app.router.redirect_slashes = False
    app.state.close = interface.close
    return app


class _Interface:
    """The requests that are answered, each by a method.

    Args:
        service: The service.
        access: Who may ask.
    """

    def __init__(self, service: Service, access: Access) -> None:
        self.service, self._access = service, access
        self._closing = asyncio.Event()
        self._streams = 0
        self._bodies: set[asyncio.Timeout] = set()  # of requests that are being read

    def close(self) -> None:
        """End the streams, and read no further."""
        self._closing.set()
        for limit in self._bodies:
            if not limit.expired():
                limit.reschedule(0.0)

    # ------------------------------------------------------------------ readings

    async def readings(self, request: Request) -> Response:
        """Learn from readings, and answer a line for each when all are safe."""
        kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind not in (_JSON, _LINES):
            return _error(415, f"the content type must be {_JSON} or {_LINES}, not {kind or 'none'}")
        body = await self._body(request, LONGEST, _PATIENCE)
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

        due = self.service.inbox.offer([reading.answered_by(acknowledge) for reading in incoming])
        if len(receipts) < due:
            await done
        return receipts[:due], sum(receipt.taken for receipt in receipts[:due])

    async def _body(self, request: Request, longest: int, patience: float) -> bytes | Response:
        """The body, or the answer to one that is too long, too slow, or has not ended when the service does."""
        size = f"{longest >> 20} MiB" if longest >> 20 else f"{longest >> 10} KiB"
        too_long = _error(413, f"the body is longer than {size}")
        declared = request.headers.get("content-length", "0")
        if not declared.isdigit() or int(declared) > longest:
            return too_long
        body = bytearray()
        limit = asyncio.timeout(0.0 if self._closing.is_set() else patience)
        self._bodies.add(limit)
        try:
            async with limit:
                async for chunk in request.stream():
                    body += chunk
                    if len(body) > longest:
                        return too_long
        except TimeoutError:
            closing = self._closing.is_set()
            return _count_taken(0) if closing else _error(408, f"the body took more than {patience:g} seconds")
        except ClientDisconnect:
            return _error(400, "the client has disconnected")
        finally:
            self._bodies.discard(limit)
        return bytes(body)

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
            body = await self._body(request, _LONGEST_FORM, _FORM_PATIENCE)
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
            change = self.service.ask(text, stop=request.method == "DELETE")
            if (refusal := await self._carry_out(change, _CHANGE_PATIENCE)) is not None:
                return refusal
        return JSONResponse(await asyncio.to_thread(describe_asked, self.service))

    async def _carry_out(self, change: Future[None], patience: float) -> Response | None:
        """Wait for what the thread that learns is asked to do; the answer if it cannot be done, or not now."""
        service = self.service
        try:
            async with asyncio.timeout(patience):
                await asyncio.wrap_future(change)  # given up, it is not carried out
        except ValueError as error:
            return _error(422, str(error))
        except (TimeoutError, EndedError):
            if service.inbox.closed or not service.alive:
                reason = "the service ends"
            elif service.compiling:
                reason = f"warming up: {service.waiting} readings wait until kernels are compiled"
            else:
                reason = "the service is busy"
            return JSONResponse({"error": f"{reason}; ask again later"}, 503, {"retry-after": "5"})
        return None

    async def model(self, request: Request) -> Response:
        """The model as it is now."""
        if not self._access.has_token:
            return _error(403, "downloading the model needs a token: start the service with --token-file")
        service = self.service
        path = service.model.with_name(f".{service.model.name}.{secrets.token_hex(8)}")
        refusal = await self._carry_out(service.export(path), _MODEL_PATIENCE)
        if refusal is not None:
            path.unlink(missing_ok=True)
            return refusal
        delete = BackgroundTask(path.unlink, missing_ok=True)
        return FileResponse(path, media_type="application/octet-stream", filename=service.model.name, background=delete)

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
        if trouble:
            return JSONResponse({"status": "trouble", "error": trouble, **details}, 503)
        return JSONResponse({"status": "ready", **details})

    async def metrics(self, request: Request) -> Response:
        """Metrics, for Prometheus."""
        access = self._access
        text = await asyncio.to_thread(write_metrics, self.service, access.wrong, access.failed_logins)
        return PlainTextResponse(text, media_type="text/plain; version=0.0.4")

    async def stream(self, request: Request) -> ASGIApp:
        """Rows and status as they come."""
        signal = request.query_params.get("signal")
        known = describe_signals(self.service)
        if signal is not None and signal not in known["signals"] and signal not in known["predicted"]:
            return _error(404, f"there is no signal {signal[:100]!r}")
        if self._streams >= _STREAMS:
            busy = _error(503, f"the limit of {_STREAMS} streams is reached")
            busy.headers["retry-after"] = "5"
            return busy
        if request.method == "HEAD":
            return Response(media_type="text/event-stream")
        id = request.headers.get("last-event-id", "")
        step = int(id) if id.isascii() and id.isdigit() and len(id) < 16 else None
        events = EventStream(self.service, signal, step, self._closing)

        async def counted(scope: Scope, receive: Receive, send: Send) -> None:
            self._streams += 1
            try:
                await events(scope, receive, send)
            finally:
                self._streams -= 1

        return counted

    # ------------------------------------------------------------------ the page

    async def page(self, request: Request) -> Response:
        """The page, or the form for the token."""
        if not self._access.allows(request):
            return HTMLResponse(_text("serve/static/login.html"), 401)
        return HTMLResponse(_text("serve/static/index.html"), headers={"cache-control": "no-cache"})

    async def login(self, request: Request) -> Response:
        """Open a session for the one who knows the token, or show the form again."""
        body = await self._body(request, _LONGEST_FORM, _FORM_PATIENCE)
        if isinstance(body, Response):
            return body
        token = parse_qs(body.decode("utf-8", "replace")).get("token", [""])[0]
        if self._access.has_token:
            if not self._access.is_token(token.strip(), request):
                self._access.failed_logins += 1
                page = _text("serve/static/login.html")
                return HTMLResponse(page.replace("<!--wrong-->", '<p class="wrong">Wrong token.</p>'), 401)
            request.session[_SIGNED_IN] = True
        return RedirectResponse("/", 303)

    async def file(self, request: Request) -> Response:
        """A file of the package, by its address in a fixed list."""
        path, kind = _FILES[request.scope["path"]]
        return Response(_text(path), media_type=kind, headers={"cache-control": "no-cache"})


def _lines(receipts: Sequence[Receipt]) -> bytes:
    """A line for each reading."""
    lines = []
    for number, receipt in enumerate(receipts, start=1):
        outcome = receipt.outcome
        if receipt.line is not None:
            lines.append(receipt.line)
        elif isinstance(outcome, Prediction | WarmingUp):
            lines.append(outcome.line)
        elif isinstance(outcome, Malformed):
            lines.append(json.dumps({"error": f"reading {number}: {outcome}"}).encode() + b"\n")
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
    file = resources.files("emphatic.nexting").joinpath(path)
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


def describe_status(service: Service) -> dict[str, Any]:
    """How the service does."""
    rate, lag = service.traffic.rate_and_lag()
    return {
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


def describe_sources(service: Service) -> dict[str, Any]:
    """How sources and publishers do; empty if there are none."""
    connections = {"sources": service.sources, "publishers": service.publishers}
    return {kind: [status.describe() for status in statuses] for kind, statuses in connections.items() if statuses}


def describe_asked(service: Service) -> list[dict[str, Any]]:
    """The questions of one line: the scores so far, the answer in a sentence, and how far learning is."""
    predictor = service.predictor
    if predictor.horde is None:
        return [{"text": text, "sentence": "Warming up.", "learning": "warming up"} for text in predictor.settings.ask]
    with service.predictor_lock:
        asked = predictor.asked
        scores = asked.summary([question.text for question in asked.questions])
        at = predictor.clock.last if predictor.clock is not None and asked.timing.dated else None
    described = []
    for score in scores:
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
    with service.predictor_lock:
        asked, rows = service.predictor.asked, service.step
        scores = asked.summary([text for text in asked.texts if parse(text).value_of == signal])
        if not scores:
            return {"signal": signal, "learning": "", "forecasts": []}
        outlook = make_outlook(asked, scores, signal, asked.judge_signals([signal]).get(signal), unit_of(signal))
    errors = {score["horizon"]: score["rmse"] for score in scores}
    origin, step = float(outlook.time[-1]), asked.timing.step or 1.0

    def line(times: NDArray[np.float64], **values: NDArray[np.float64]) -> dict[str, Any]:
        rows = {"ahead": (times - origin) / step, **values}
        return {
            name: [number if math.isfinite(number) else None for number in column.tolist()]
            for name, column in rows.items()
        }

    (time, mean, low, high), (baseline_time, baseline) = outlook.path, outlook.baseline
    return {
        "signal": signal,
        "unit": outlook.unit,
        "learning": describe_learning(scores[0]),
        "verdict": outlook.verdict._asdict() | {"baseline_words": outlook.verdict.baseline_words},
        "forecasts": [
            one._asdict() | {"ahead": (one.time - origin) / step, "rmse": errors[one.horizon]}
            for one in outlook.forecasts
        ],
        "path": line(time, mean=mean, low=low, high=high),
        "baseline": line(baseline_time, mean=baseline),
        "step": rows,
    }


def describe_history(service: Service, signal: str) -> dict[str, Any] | None:
    """The rows of a signal before the first since the start, as they were saved with the model; None if there are none.

    Args:
        service: The service.
        signal: The signal.
    """
    if service.warming_up or service.predictor.horde is None or signal not in service.predictor.asked.signals:
        return None
    with service.predictor_lock:
        recent, (time, reading) = service.recent, service.predictor.asked.readings(signal, _HISTORY)
        step = service.step - len(time) + np.arange(len(time))
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


# ---------------------------------------------------------------------- server-sent events


class EventStream(StreamingResponse):
    """An answer that goes on until the client or the service ends: rows of one signal, and the status.

    Args:
        service: The service.
        signal: The signal; None for the first.
        after: The last step that the client has; None to begin with the oldest.
        closing: The event that ends the stream.
    """

    media_type = "text/event-stream"

    def __init__(self, service: Service, signal: str | None, after: int | None, closing: asyncio.Event) -> None:
        self._service, self._signal, self._after, self._closing = service, signal, after, closing
        super().__init__(self._events(), headers={"cache-control": "no-store"})

    async def stream_response(self, send: Send) -> None:
        """Send the events; a client whose connection takes nothing any more is dropped."""
        with suppress(TimeoutError):
            await super().stream_response(lambda message: asyncio.wait_for(send(message), _SLOW))

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
        history = None if at or signal is None else await asyncio.to_thread(describe_history, service, signal)
        if history is not None:
            at = history["step"][-1] + 1
            yield f"id: {at - 1}\n" + _event("rows", history)
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
                yield _event("status", describe_status(service))
            if rows is None or len(rows["step"]) < _ROWS:
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._closing.wait(), _PAUSE)


def _event(name: str, data: dict[str, Any]) -> str:
    return f"event: {name}\ndata: {json.dumps(data, allow_nan=False, default=str)}\n\n"


# ---------------------------------------------------------------------- who may ask


class Access:
    """Who may ask: whoever has the token, or a session of the page that was opened with it.

    Args:
        token: The token; None if none is needed.
    """

    def __init__(self, token: str | None) -> None:
        self._token = token
        #: The wrong tokens in all, and those of logins on the page.
        self.wrong = self.failed_logins = 0

    @property
    def has_token(self) -> bool:
        """Whether a token is needed."""
        return self._token is not None

    def allows(self, connection: HTTPConnection) -> bool:
        """Whether a request has the token, or a session."""
        if self._token is None:
            return True
        scheme, _, token = connection.headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer":
            return self.is_token(token.strip(), connection)
        return _SIGNED_IN in connection.session

    def is_token(self, given: str, connection: HTTPConnection) -> bool:
        """Whether this is the token; a wrong one is counted, and some of those are logged with their address."""
        is_right = self._token is not None and secrets.compare_digest(given.encode(), self._token.encode())
        if not is_right:
            self.wrong += 1
            if self.wrong in (1, 10, 100) or self.wrong % 1000 == 0:
                address = "unknown" if connection.client is None else connection.client.host
                logger.warning("a wrong token from %s, %d so far.", address, self.wrong)
        return is_right


class TokenRequired:
    """An application that answers who may ask, and others at a few addresses only.

    Args:
        app: The application.
        access: Who may ask.
    """

    def __init__(self, app: ASGIApp, access: Access) -> None:
        self._app, self._access = app, access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = scope["path"]
        is_open = path in _OPEN or path.startswith("/static/")
        if is_open or self._access.allows(HTTPConnection(scope)):
            await self._app(scope, receive, send)
            return
        wanted = {"error": "a token is needed: Authorization: Bearer TOKEN"}
        await JSONResponse(wanted, 401, {"www-authenticate": "Bearer"})(scope, receive, send)


class SafeHeaders:
    """An application whose answers tell browsers what they may do with them.

    Args:
        app: The application.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = message["headers"] = [*message.get("headers", ()), *_HEADERS]
                if not any(name == b"cache-control" for name, _ in headers):
                    headers.append((b"cache-control", b"no-store"))
            await send(message)

        await self._app(scope, receive, send_with_headers)
