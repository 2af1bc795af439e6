"""Ray, and how long its actors live when nobody needs them."""

from __future__ import annotations

import asyncio
import importlib
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

PING_S = 5.0
"""Seconds between two pings of a driver. They tell it what a judge has prepared and who else waits for it."""

LOST_PAUSE_S = 1.0
"""Seconds before an actor that was lost is used again."""

IDLE_S = 60.0
"""Seconds without a ping from any driver after which an actor ends, so that the cluster can use its place."""


class EndsWhenIdle:
    """Base class of actors: one that no driver has needed for `IDLE_S` seconds ends itself."""

    def __init__(self) -> None:
        self._heard = time.monotonic()
        """When a driver was last heard of."""

        self._serving = 0
        self._watching = asyncio.get_running_loop().create_task(self._watch())

    async def end(self) -> None:
        """End what the actor has started."""

    @contextmanager
    def _needed(self) -> Iterator[None]:
        """The actor does not end within this context, however long that takes: a judge may need minutes to start."""
        self._serving += 1
        try:
            yield
        finally:
            self._serving -= 1
            self._heard = time.monotonic()

    def _look(self) -> None:
        """Called every `PING_S` seconds."""

    async def _watch(self) -> None:
        while self._serving or time.monotonic() - self._heard < IDLE_S:
            await asyncio.sleep(PING_S)
            self._look()
        await self.end()
        ray().kill(ray().get_runtime_context().current_actor)


def shared_actor(kind: type, name: str, namespace: str, *given: Any, **placed: Any) -> Any:
    """An actor that all drivers of a cluster share: it is created with what is given, or found by its name."""
    options = {"get_if_exists": True, "lifetime": "detached", "max_restarts": -1, **placed}
    named = {"name": name, "namespace": namespace, "max_concurrency": 1000}
    return ray().remote(kind).options(**named, **options).remote(*given)


def ray() -> Any:
    """The package, which is large and imported only where it is used."""
    return importlib.import_module("ray")
