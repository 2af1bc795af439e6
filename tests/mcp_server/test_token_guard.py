from __future__ import annotations

import pytest

pytest.importorskip("mcp")

import httpx
from starlette.responses import PlainTextResponse

from stark.mcp.guard import TokenGuard


@pytest.mark.parametrize(
    ("headers", "status"),
    [({}, 401), ({"authorization": "Bearer é"}, 401), ({"authorization": "Bearer secret"}, 200)],
)
async def test_only_the_token_opens(headers: dict[str, str], status: int) -> None:
    transport = httpx.ASGITransport(TokenGuard(PlainTextResponse("inside"), "secret"))
    given = {name: value.encode() for name, value in headers.items()}
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
        assert status == (await client.post("/mcp", headers=given)).status_code
