"""Who may ask: the Host header, the token, sessions of the page, and the headers of every answer."""

from __future__ import annotations

import asyncio
import hmac
import ipaddress
import secrets
from collections.abc import Sequence
from typing import TYPE_CHECKING
from urllib.parse import parse_qs

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import HTTPConnection
from starlette.responses import HTMLResponse, JSONResponse, RedirectResponse, Response

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

__all__ = ["NUMBERS", "Guarded", "Sessions"]

POLICY = (
    "default-src 'self'; style-src 'self'; img-src 'self' data:; frame-ancestors 'none'; base-uri 'none'; "
    "form-action 'self'"
)
#: Stands for every numeric address among the names that a Host header may have.
NUMBERS = "*.*.*.*"
_COOKIE = "emphatic_session"
#: What anybody may see, who gets past the Host header.
_OPEN = ("/", "/login", "/healthz", "/favicon.ico")
#: Sessions of the page that are remembered; the oldest is forgotten for a new one.
_SESSIONS = 64
#: Seconds that a form may take.
_PATIENCE = 10.0


class Sessions:
    """The token, and the sessions that were opened with it."""

    def __init__(self, token: str | None) -> None:
        self._token = None if token is None else token.encode()
        self._open: dict[str, None] = {}

    @property
    def needed(self) -> bool:
        """Whether there is a token."""
        return self._token is not None

    def allow(self, headers: Headers, cookies: dict[str, str]) -> bool:
        """Whether a request has the token, or a session."""
        if self._token is None:
            return True
        scheme, _, given = headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer":
            return self._is_token(given.strip())
        cookie = cookies.get(_COOKIE, "")
        return any(hmac.compare_digest(cookie.encode(), known.encode()) for known in self._open)

    async def login(self, request: Request, page: str) -> Response:
        """Open a session for the one who knows the token."""
        body = b""
        try:
            async with asyncio.timeout(_PATIENCE):
                async for chunk in request.stream():
                    body += chunk
                    if len(body) > 4096:
                        return JSONResponse({"error": "the form is too long"}, 413)
        except TimeoutError:
            return JSONResponse({"error": f"the form took more than {_PATIENCE:g} seconds"}, 408)
        given = parse_qs(body.decode("utf-8", "replace")).get("token", [""])[0]
        if self._token is not None and not self._is_token(given.strip()):
            wrong = page.replace("<!--wrong-->", '<p class="wrong">That is not the token.</p>')
            return HTMLResponse(wrong, 401)
        answer = RedirectResponse("/", 303)
        if self._token is not None:
            session = secrets.token_urlsafe(32)
            while len(self._open) >= _SESSIONS:
                del self._open[next(iter(self._open))]
            self._open[session] = None
            answer.set_cookie(_COOKIE, session, httponly=True, samesite="strict", path="/")
        return answer

    def _is_token(self, given: str) -> bool:
        assert self._token is not None
        return hmac.compare_digest(given.encode(), self._token)


class Guarded:
    """An application behind the checks that every request must pass, with the headers that every answer has."""

    def __init__(self, app: ASGIApp, sessions: Sessions, hosts: Sequence[str]) -> None:
        self._app, self._sessions = app, sessions
        self._hosts = {host.lower() for host in hosts}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                headers["content-security-policy"] = POLICY
                headers["x-content-type-options"] = "nosniff"
                headers["referrer-policy"] = "no-referrer"
                headers.setdefault("cache-control", "no-store")
            await send(message)

        refusal = self._refuse(scope)
        await (self._app if refusal is None else refusal)(scope, receive, send_with_headers)

    def _refuse(self, scope: Scope) -> Response | None:
        """The answer to a request that does not pass."""
        headers, path = Headers(scope=scope), scope["path"]
        allowed = self._sessions.allow(headers, HTTPConnection(scope).cookies)
        by_token = allowed and self._sessions.needed and "authorization" in headers
        if not by_token and not self._is_host(_name(headers.get("host", ""))):
            return JSONResponse({"error": "this service does not have the name in the Host header"}, 400)
        if allowed or path in _OPEN or path.startswith("/static/"):
            return None
        wanted = {"error": "a token is needed: Authorization: Bearer TOKEN"}
        return JSONResponse(wanted, 401, {"www-authenticate": "Bearer"})

    def _is_host(self, name: str) -> bool:
        """Whether the service goes by this name. (One who has the token may use any: a foreign page does not.)"""
        return name in self._hosts or (NUMBERS in self._hosts and _is_number(name))


def _is_number(name: str) -> bool:
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
