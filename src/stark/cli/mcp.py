"""`stark mcp`: serves tools to a coding agent over stdio or HTTP until the client goes away or Ctrl-C."""

from __future__ import annotations

import asyncio
import os
import secrets
from contextlib import nullcontext, suppress

from stark.cli import consoles
from stark.cli.interrupt import Interrupted, run_interruptibly
from stark.cli.places import refuse_fleeting
from stark.cli.settings import Settings
from stark.core.errors import UsageError
from stark.options import checked_options

HOST = "127.0.0.1"
TOKEN = "STARK_MCP_TOKEN"
"""The environment variable with the token; without it, each session has a new one."""


def serve(settings: Settings, port: int | None) -> int:
    """Serve one client over stdio, or several over HTTP."""
    try:
        import uvicorn

        from stark.mcp.guard import TokenGuard
        from stark.mcp.server import make_server
        from stark.mcp.workbench import Workbench
    except ImportError as error:
        raise UsageError(
            f'the server needs the Python package {error.name}: pip install "stark-kernels[mcp]"'
        ) from error
    refuse_fleeting(settings.store)
    asked = checked_options(settings.options)

    async def over_stdio() -> None:
        async with Workbench(asked, settings.store, settings.kernelbench) as bench:
            serving = asyncio.ensure_future(make_server(bench).run_stdio_async())
            with suppress(asyncio.CancelledError):
                await asyncio.shield(serving)
                return
        # After a signal. The library's thread that reads stdin cannot be interrupted, so nothing is left to wait for.
        os._exit(Interrupted.exit_code)

    async def over_http() -> None:
        assert port is not None
        async with Workbench(asked, settings.store, settings.kernelbench) as bench:
            app = TokenGuard(make_server(bench).streamable_http_app(host=HOST), token)
            config = uvicorn.Config(
                app, HOST, port, log_level="warning", access_log=False, timeout_graceful_shutdown=1
            )
            server = uvicorn.Server(config)
            server.capture_signals = nullcontext  # type: ignore[method-assign, assignment]  # they are ours
            serving = asyncio.ensure_future(server.serve())
            try:
                await asyncio.shield(serving)
            finally:
                server.should_exit = True
                await serving

    if port is None:
        run_interruptibly(over_stdio())
        return 0
    token = os.environ.get(TOKEN) or secrets.token_urlsafe(24)
    shown = "" if os.environ.get(TOKEN) else f" with the header Authorization: Bearer {token}"
    consoles.say(f"http://{HOST}:{port}/mcp{shown}  (Ctrl-C ends it)", stderr=True)
    run_interruptibly(over_http())
    return 0
