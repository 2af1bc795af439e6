"""Refuses requests that do not come from the page itself, and tells the browser what the page may load.

A page on another site can make a browser send requests to this machine. Such a request carries another host (after a
change of a name's address) or says where it comes from. The server has no use for either.
"""

from __future__ import annotations

import re

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)

_HEADERS = {
    "content-security-policy": POLICY,
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
}

_LOOPBACK = re.compile(r"(localhost|127(\.\d{1,3}){3}|\[::1\])(:\d{1,5})?", re.IGNORECASE)


class Guard:
    """An ASGI application in front of another."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request or refuse it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in _HEADERS.items():
                    headers[name] = value
                headers.setdefault("cache-control", "no-store")
            await send(message)

        refusal = refused(Headers(scope=scope))
        app = self._app if refusal is None else PlainTextResponse(f"{refusal}\n", 403)
        await app(scope, receive, guarded)


def refused(headers: Headers) -> str | None:
    """Why a request with these headers is refused; None if it is not."""
    host, origin = headers.get("host", ""), headers.get("origin")
    if not _LOOPBACK.fullmatch(host):
        return "this page answers on this machine only: open it as localhost or 127.0.0.1"
    if origin is not None and origin.lower() != f"http://{host.lower()}":
        return "requests from other origins are refused"
    if headers.get("sec-fetch-site", "none") not in ("none", "same-origin"):
        return "requests from other sites are refused; type the address into the browser"
    return None
