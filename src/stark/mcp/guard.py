"""Refuses HTTP requests without the session's token. The protocol's library refuses other hosts and origins."""

from __future__ import annotations

import secrets

from starlette.datastructures import Headers
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send


class TokenGuard:
    """An ASGI application in front of another."""

    def __init__(self, app: ASGIApp, token: str) -> None:
        self._app, self._token = app, token

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on if it carries the token, and everything that is not a request."""
        given = Headers(scope=scope).get("authorization", "") if scope["type"] == "http" else ""
        expected = f"Bearer {self._token}"
        if scope["type"] != "http" or secrets.compare_digest(given.encode(), expected.encode()):
            await self._app(scope, receive, send)
            return
        await PlainTextResponse("send the header Authorization: Bearer TOKEN\n", 401)(
            scope, receive, send
        )
