"""Passes a judge's requests for builds to builders in a Ray cluster.

A judge's processes connect to a socket of the judge's actor, one for each request. Requests and answers are the judge's and
the build service's own. A connection that closes without an answer means that the judge must build by itself;
without builders it closes at once. Every judge of a cluster has a desk, since a driver with builders may join later.
"""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from asyncio import StreamReader, StreamWriter
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stark.evaluator.executors.builder import Builds, greeted
from stark.evaluator.executors.engine import ray
from stark.evaluator.protocol import LONGEST_REQUEST, Hello


@dataclass
class Met:
    """A builder, as seen from a judge's actor."""

    actor: Any
    greeting: asyncio.Task[Builds | None]
    requests: int = 0

    def works_for(self, hello: Hello) -> bool:
        """Whether it is ready to build for the judge that says `hello`."""
        said = self.greeting.result() if self.greeting.done() else None
        return said is not None and said.fault(hello) is None


class Desk:
    """Where one judge sends requests for builds."""

    def __init__(self) -> None:
        self.socket = Path(tempfile.mkdtemp(prefix="stark-desk-")) / "socket"
        self._server: asyncio.Server | None = None
        self._met: dict[str, Met] = {}
        self._hello: Hello

    async def open(self, builders: Mapping[str, Any], hello: Hello) -> None:
        """Use these actors, by name, for the judge that says `hello`."""
        self._hello = hello
        for name, actor in builders.items():
            if name not in self._met or not self._met[name].works_for(hello):
                self._met[name] = Met(actor, asyncio.create_task(greeted(actor)))
            self._met[name].actor = actor  # another driver may have started it anew
        if self._server is None:
            self._server = await asyncio.start_unix_server(
                self._serve, self.socket, limit=LONGEST_REQUEST
            )

    def close(self) -> None:
        """Remove the socket."""
        shutil.rmtree(self.socket.parent, ignore_errors=True)

    async def _serve(self, reader: StreamReader, writer: StreamWriter) -> None:
        with suppress(OSError, ValueError):  # the judge hung up, or its request is too long
            request = await reader.readline()
            builder = self._free()
            if builder is not None:
                writer.write(await self._built(builder, request, reader))
                await writer.drain()
        writer.close()

    def _free(self) -> Met | None:
        """The least busy builder, or None if none is ready."""
        ready = [met for met in self._met.values() if met.works_for(self._hello)]
        return min(ready, key=lambda met: met.requests, default=None)

    async def _built(self, builder: Met, request: bytes, reader: StreamReader) -> bytes:
        """A builder's answer; empty if it is lost, or if the judge hangs up, which cancels the build."""
        builder.requests += 1
        asked = builder.actor.build.remote(request)
        answer: asyncio.Future[bytes] = asyncio.ensure_future(asked)
        hung_up = asyncio.ensure_future(reader.read(1))
        try:
            await asyncio.wait({answer, hung_up}, return_when=asyncio.FIRST_COMPLETED)
            if not answer.done():
                ray().cancel(asked)
            return await answer
        except ray().exceptions.RayError:
            if not hung_up.done():  # it is lost, and Ray may start it again
                builder.greeting = asyncio.create_task(greeted(builder.actor))
            return b""
        finally:
            hung_up.cancel()
            builder.requests -= 1
