"""Starting, stopping and resuming runs from the page, for those who have the token.

Every job is a `stark` command in a process of its own, so the page's server stays a reader. Only jobs started here can be
stopped here. A stopped run waits for its calls in flight and can be resumed.
"""

from __future__ import annotations

import asyncio
import secrets
import signal
import sys
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from pydantic import Field
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from stark.core.base import Frozen

LAST_LINES = 20
"""How much of a job's output is shown."""


class Start(Frozen):
    """A run to start."""

    problem: str = Field(min_length=1)
    model: str | None = None
    attempts: int | None = Field(default=None, ge=1)
    dollars: float | None = Field(default=None, gt=0)

    @property
    def arguments(self) -> list[str]:
        """The arguments of `stark`. A value that begins with a dash is no option."""
        options = self.model_dump(exclude={"problem"}, exclude_none=True)
        named = [f"--{name}={value}" for name, value in options.items()]
        return ["optimize", *named, "--", self.problem]


class Resume(Frozen):
    """A run to resume."""

    run: str = Field(min_length=1)

    @property
    def arguments(self) -> list[str]:
        """The arguments of `stark`."""
        return ["resume", "--", self.run]


@dataclass
class Job:
    """A command that was started from the page."""

    arguments: list[str]
    run: str | None
    process: asyncio.subprocess.Process
    lines: list[str] = field(default_factory=list)
    reading: asyncio.Task[None] = field(init=False)

    def __post_init__(self) -> None:
        """Begin to read its output."""
        self.reading = asyncio.create_task(self._read())

    @property
    def document(self) -> dict[str, Any]:
        """The job as plain data; `code` is null while it runs."""
        return {
            "command": " ".join(["stark", *self.arguments]),
            "run": self.run,
            "code": self.process.returncode,
            "lines": self.lines,
        }

    async def _read(self) -> None:
        """Keep the last lines of its output until it ends."""
        assert self.process.stdout is not None
        async for line in self.process.stdout:
            self.lines = [*self.lines, line.decode(errors="replace").rstrip()][-LAST_LINES:]
        await self.process.wait()

    def stop(self) -> None:
        """Ask it to end, as Ctrl-C does."""
        with suppress(ProcessLookupError):
            self.process.send_signal(signal.SIGINT)


class Control:
    """The jobs of one server."""

    def __init__(self, store_url: str) -> None:
        self.token = secrets.token_urlsafe(24)
        self._store_url = store_url
        self._jobs: list[Job] = []

    @property
    def routes(self) -> list[Route]:
        """What the server answers for those who have the token."""
        return [
            Route("/api/control", self._list),
            Route("/api/control/start", self._start, methods=["POST"]),
            Route("/api/control/resume", self._resume, methods=["POST"]),
            Route("/api/control/stop/{job:int}", self._stop, methods=["POST"]),
        ]

    async def close(self) -> None:
        """Stop all jobs and wait for them."""
        for job in self._jobs:
            job.stop()
        await asyncio.gather(*(job.process.wait() for job in self._jobs))
        for job in self._jobs:
            job.reading.cancel()  # a child of its own may still hold the pipe

    async def _list(self, request: Request) -> Response:
        if refusal := self._refusal(request):
            return refusal
        return JSONResponse({"jobs": [job.document for job in self._jobs]})

    async def _start(self, request: Request) -> Response:
        return await self._begin(request, Start)

    async def _resume(self, request: Request) -> Response:
        return await self._begin(request, Resume)

    async def _begin(self, request: Request, kind: type[Start] | type[Resume]) -> Response:
        if refusal := self._refusal(request):
            return refusal
        try:
            asked = kind.model_validate_json(await request.body())
        except ValueError as error:
            return JSONResponse({"error": str(error)}, 422)
        command, *rest = asked.arguments
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "stark", command, f"--store={self._store_url}", *rest),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        job = Job(asked.arguments, asked.run if isinstance(asked, Resume) else None, process)
        self._jobs.append(job)
        return JSONResponse({"job": len(self._jobs) - 1})

    async def _stop(self, request: Request) -> Response:
        if refusal := self._refusal(request):
            return refusal
        number = request.path_params["job"]
        if number >= len(self._jobs):
            return JSONResponse({"error": "there is no such job"}, 404)
        self._jobs[number].stop()
        return JSONResponse({"job": number})

    def _refusal(self, request: Request) -> Response | None:
        given = request.headers.get("authorization", "").encode()
        if secrets.compare_digest(given, f"Bearer {self.token}".encode()):
            return None
        said = "open the page by the address that `stark ui --control` printed, which has the token"
        return JSONResponse({"error": said}, 401)
