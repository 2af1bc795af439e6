"""Builders in a Ray cluster: an actor each, which starts a build service on a node without judges and carries its answers.

A builder takes a whole node, so that builds share no core with what is timed.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
import sys
import tempfile
import time
from asyncio.subprocess import PIPE, Process
from collections.abc import Iterable, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import Any, NamedTuple

from stark.core.toolchain import Toolchain
from stark.evaluator.executors import engine
from stark.evaluator.executors.engine import PING_S, EndsWhenIdle, ray, shared_actor
from stark.evaluator.protocol import Hello

ERROR_CHARS = 1000
"""Characters at the end of a build service's output that are kept if it does not start."""

PROCESSORS_PER_BUILD = 2
"""As many compilers as one build may start at once (`MAX_JOBS`)."""


class Builds(NamedTuple):
    """What a builder says about itself."""

    node: str
    toolchain: Toolchain | str
    """Why the build service does not start, if it does not."""

    def fault(self, hello: Hello) -> str | None:
        """Why the judge that says `hello` cannot use this builder, or None if it can."""
        if isinstance(self.toolchain, str):
            return self.toolchain
        gpu = hello.device.architecture if hello.device.kind == "cuda" else None
        difference = hello.toolchain.difference(self.toolchain, gpu)
        return difference and (
            f"judges do not use it, because {difference}; use the same image on every node"
        )


async def greeted(actor: Any, limit_s: float | None = None) -> Builds | None:
    """What a builder says about itself once it has a place; None if its node is lost, or it finds no place in time."""
    with suppress(ray().exceptions.RayError, TimeoutError):
        async with asyncio.timeout(limit_s):
            while True:
                try:
                    return Builds(*await actor.greet.remote())
                except ray().exceptions.ActorUnavailableError:  # Ray starts it again
                    await asyncio.sleep(engine.LOST_PAUSE_S)
    return None


class Builder(EndsWhenIdle):
    """The actor: one build service."""

    def __init__(self, builds: int, command: Sequence[str] | None) -> None:
        """`builds` is the largest number of concurrent builds. `command` starts another service than STARK's own."""
        super().__init__()
        self._folder = Path(tempfile.mkdtemp(prefix="stark-builder-"))
        self._socket, self._errors = self._folder / "socket", self._folder / "errors"
        given = command or [sys.executable, "-m", "stark.evaluator.judge.building"]
        self._command = [*given, str(self._socket), "--builds", str(builds)]
        self._process: Process | None = None
        self._greeting = asyncio.create_task(self._started())

    async def greet(self) -> Builds:
        """What it says about itself once the build service has started."""
        with self._needed():
            return await asyncio.shield(self._greeting)

    async def build(self, request: bytes) -> bytes:
        """The build service's answer to a request. If this is cancelled, so is the build."""
        with self._needed():
            reader, writer = await asyncio.open_unix_connection(self._socket)
            with closing(writer):
                writer.write(request)
                await writer.drain()
                return await reader.read()

    async def ping(self) -> None:
        """Learn that a driver may need builds."""
        self._heard = time.monotonic()

    async def end(self) -> None:
        """End the build service."""
        if self._process and self._process.stdin:
            self._process.stdin.close()  # it ends then
        shutil.rmtree(self._folder, ignore_errors=True)

    async def _started(self) -> Builds:
        with self._errors.open("wb") as errors:
            self._process = await asyncio.create_subprocess_exec(
                *self._command, stdin=PIPE, stdout=PIPE, stderr=errors, limit=1 << 24
            )
        assert self._process.stdout is not None
        line = await self._process.stdout.readline()
        if line:
            return Builds(socket.gethostname(), Toolchain.model_validate_json(line))
        said = self._errors.read_text(errors="replace").strip()[-ERROR_CHARS:]
        return Builds(socket.gethostname(), f"the build service does not start: {said}")

    def _look(self) -> None:
        """End this actor if its service has ended; then Ray starts it again."""
        if self._greeting.done() and self._process and self._process.returncode is not None:
            os._exit(1)


def build_nodes(nodes: Iterable[dict[str, Any]], most: int | None) -> list[tuple[str, int]]:
    """The ids and processors of the nodes without GPUs, at most `most`. All drivers choose the same ones."""
    offered = sorted((node["NodeID"], node["Resources"]) for node in nodes if node["Alive"])
    found = [(name, int(has.get("CPU", 0))) for name, has in offered if not has.get("GPU")]
    return [(name, processors) for name, processors in found if processors][:most]


class Builders:
    """One builder on each of these nodes. Drivers of one cluster share them."""

    def __init__(
        self, nodes: Sequence[tuple[str, int]], namespace: str, command: Sequence[str] | None
    ) -> None:
        """Create the actors, or find them. They end a minute after the last driver has closed its own `Builders`."""
        at = ray().util.scheduling_strategies.NodeAffinitySchedulingStrategy
        self.actors = {}
        """By name."""

        for node, processors in nodes:
            name, given = f"builder {node}", (max(1, processors // PROCESSORS_PER_BUILD), command)
            where = {"num_cpus": processors, "scheduling_strategy": at(node, soft=False)}
            self.actors[name] = shared_actor(Builder, name, namespace, *given, **where)
        self._pinging = [asyncio.create_task(_ping(actor)) for actor in self.actors.values()]

    async def greetings(self, limit_s: float) -> list[Builds | None]:
        """What each says about itself once it has a place; None if it is lost, or finds no place in so many seconds."""
        return await asyncio.gather(*(greeted(actor, limit_s) for actor in self.actors.values()))

    async def described(
        self, hellos: Iterable[Hello], limit_s: float
    ) -> dict[str, Toolchain | str]:
        """By builder, its toolchain, or why one of the judges that say `hellos` cannot use it."""
        found: dict[str, Toolchain | str] = {}
        for number, greeting in enumerate(await self.greetings(limit_s)):
            if greeting is None:
                found[f"builder {number}"] = "it finds no place in the cluster, or its node is lost"
                continue
            faults = filter(None, (greeting.fault(hello) for hello in hellos))
            found[f"builder {number} on {greeting.node}"] = next(faults, greeting.toolchain)
        return found

    async def close(self) -> None:
        """Need no more builds."""
        for task in self._pinging:
            task.cancel()
        await asyncio.gather(*self._pinging, return_exceptions=True)


async def _ping(actor: Any) -> None:
    while True:
        with suppress(ray().exceptions.RayError):  # Ray may start it again
            await actor.ping.remote()
        await asyncio.sleep(PING_S)
