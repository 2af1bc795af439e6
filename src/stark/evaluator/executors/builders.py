"""The builders of a Ray cluster as a driver sees them: which nodes they take, and what they say about themselves."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any

from stark.core.toolchain import Toolchain
from stark.evaluator.executors.builder import Builder, Builds, greeted
from stark.evaluator.executors.engine import PING_S, ray, shared_actor
from stark.evaluator.protocol import Hello

PROCESSORS_PER_BUILD = 2
"""As many compilers as one build may start at once (`MAX_JOBS`)."""


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
