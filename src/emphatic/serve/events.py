"""Server-sent events: rows and status as they come, for the page."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

from emphatic.serve.descriptions import describe_signals, describe_status
from emphatic.serve.service import Service

if TYPE_CHECKING:
    from starlette.types import Receive, Scope, Send

__all__ = ["EventStream"]

#: Rows in one event at most, and seconds between events and between status events.
_ROWS = 512
_PAUSE, _STATUS = 0.1, 1.0
#: A client whose connection takes nothing for so long is dropped.
_SLOW = 20.0


class EventStream:
    """An answer that goes on until the client or the service ends: rows of one name from a step on."""

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
        if recent is not None and at > recent.end:  # a step of another model
            at = 0
        told = 0.0
        while not self._closing.is_set():
            if service.recent is not recent:
                return  # there are other signals now
            rows = None if recent is None or signal is None else recent.columns(signal, at, _ROWS)
            if rows is not None:
                at = rows["step"][-1] + 1
                yield f"id: {at - 1}\n" + _event("rows", rows)
            now = time.monotonic()
            if now - told >= _STATUS:
                told = now
                yield _event("status", describe_status(service, signal or ""))
            if rows is None or len(rows["step"]) < _ROWS:
                await _pause(self._closing)


async def _pause(closing: asyncio.Event) -> None:
    try:
        await asyncio.wait_for(closing.wait(), _PAUSE)
    except TimeoutError:
        return


def _event(name: str, data: Any) -> str:
    return f"event: {name}\ndata: {json.dumps(data, allow_nan=False, default=str)}\n\n"
