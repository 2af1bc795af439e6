"""The page's server: its files, its documents, and a stream of what changes. It reads the store and writes nothing.

With `--control` it also starts and stops `stark` commands; see `control.py`.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from functools import cache
from importlib.resources import files

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from stark.core.errors import StarkError, StoreError
from stark.page import documents
from stark.page.bundle import bundled
from stark.page.control import Control
from stark.page.guard import Guard
from stark.page.source import Source
from stark.page.watch import News, Watch
from stark.report.runs_document import Compiled

HEARTBEAT_S = 15.0
CHUNK_BYTES = 1 << 18

_TYPES = {"html": "text/html", "css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}


def make_app(
    store_url: str, control: Control | None = None, files: Mapping[str, str] | None = None
) -> Starlette:
    """The application for the store at this address. Without `control`, nothing can be changed.

    `files` has the names of the recordings that the store was made of, by run.
    """
    page = Page(store_url, files or {})

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        async with page.open():
            yield
        if control is not None:
            await control.close()

    own = [Route("/", static), Route("/static/{name}", static)]
    return Starlette(
        routes=[*own, *page.routes, *(() if control is None else control.routes)],
        middleware=[Middleware(Guard)],
        lifespan=lifespan,
    )


class Page:
    """The documents of a store, and the news of it."""

    def __init__(self, store_url: str, files: Mapping[str, str]) -> None:
        self._files = files
        self._source = Source(store_url)
        # one at a time, so that documents never pile up in memory
        self._reader = ThreadPoolExecutor(1, "reader")
        self._watch = Watch(self._source, self._reader)
        self._kept = documents.Kept()
        self._compiled: Compiled = {}

    @property
    def routes(self) -> list[Route]:
        """What can be read. The name of a run or a bench may contain slashes."""
        return [
            Route("/api/runs", self._runs),
            Route("/api/runs/{run:path}/attempts/{attempt:int}", self._attempt),
            Route("/api/runs/{run:path}", self._run),
            Route("/api/benches/{name:path}", self._bench),
            Route("/api/devices", self._devices),
            Route("/api/queues", _queues),
            Route("/api/news", self._news),
        ]

    @asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        """Follow the store while the block lasts, then close it."""
        async with self._watch.polling():
            yield
        self._reader.shutdown()
        self._source.close()

    async def _runs(self, _: Request) -> Response:
        return await self._answer(documents.runs, self._compiled, self._files)

    async def _run(self, request: Request) -> Response:
        return await self._answer(
            documents.run, request.path_params["run"], _have(request), self._kept, self._files
        )

    async def _attempt(self, request: Request) -> Response:
        return await self._answer(documents.attempt, *request.path_params.values())

    async def _bench(self, request: Request) -> Response:
        return await self._answer(documents.bench, request.path_params["name"])

    async def _devices(self, _: Request) -> Response:
        return await self._answer(documents.devices)

    async def _news(self, request: Request) -> Response:
        news = self._watch.news(request.headers.get("last-event-id"))
        return StreamingResponse(_stream(news), media_type="text/event-stream")

    async def _answer(self, document: Callable[..., documents.Parts], *which: object) -> Response:
        """A document of the store, or why there is none."""

        def read() -> documents.Parts:
            with self._source.reading() as store:
                return document(store, *which)

        try:
            parts = await asyncio.get_running_loop().run_in_executor(self._reader, read)
            return StreamingResponse(_together(parts), media_type="application/json")
        except StarkError as error:
            code = 503 if isinstance(error, StoreError) else 404
            return JSONResponse({"error": str(error)}, code)


async def _queues(_: Request) -> Response:
    """The devices of this machine that judges use now."""
    # half a megabyte that few pages need
    from stark.evaluator.judge.building.cache import cache_folder, locks_below
    from stark.evaluator.judge.lock import queues

    found = queues(locks_below(cache_folder()))
    return JSONResponse({"version": 1, "queues": [each._asdict() for each in found]})


def _have(request: Request) -> int:
    """How many attempts of a run the page has already."""
    given = request.query_params.get("have", "")
    return int(given) if given.isascii() and given.isdigit() else 0


async def static(request: Request) -> Response:
    """A file of the page."""
    name = request.path_params.get("name", "index.html")
    if name == "app.js":  # in one request, not one after another
        return Response(_script(), media_type=_TYPES["js"])
    file = files("stark.page").joinpath("static", name)
    kind = _TYPES.get(name.rpartition(".")[2])
    if kind is None or "/" in name or not file.is_file():
        return Response("there is no such file\n", 404)
    return Response(file.read_bytes(), media_type=kind)


@cache
def _script() -> str:
    return bundled("app.js")


async def _together(parts: documents.Parts) -> AsyncIterator[bytes]:
    """The parts, small ones together: each that is sent costs a turn of the event loop."""
    waiting, size = [], 0
    for part in parts:
        waiting.append(part)
        size += len(part)
        if size >= CHUNK_BYTES:
            yield b"".join(waiting)
            waiting, size = [], 0
    yield b"".join(waiting)


async def _stream(news: AsyncIterator[News]) -> AsyncIterator[bytes]:
    """Server-sent events; a comment now and then shows that the connection lives."""
    pending = asyncio.ensure_future(anext(news))
    try:
        while True:
            done, _ = await asyncio.wait([pending], timeout=HEARTBEAT_S)
            if not done:
                yield b": still here\n\n"
                continue
            found = pending.result()
            data = json.dumps({"runs": found.runs, "trouble": found.trouble})
            yield f"id: {found.id}\ndata: {data}\n\n".encode()
            pending = asyncio.ensure_future(anext(news))
    finally:
        pending.cancel()
