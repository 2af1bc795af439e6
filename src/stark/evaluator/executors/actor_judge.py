"""An actor with a judge in a Ray cluster, as seen from a driver."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from typing import Any

from stark import __version__
from stark.core.errors import JudgeDied, JudgeUnavailable
from stark.evaluator.executors import engine
from stark.evaluator.executors.actor import Greeting
from stark.evaluator.executors.engine import PING_S, ray
from stark.evaluator.executors.judges import CLOSED, Judge
from stark.evaluator.protocol import Answer, AnyRequest, Hello, JudgeFailed, answer_adapter
from stark.explain.numbers import first_line


class ActorLost(Exception):
    """An actor, its node, or its judge died, and no candidate is to blame."""


class ActorJudge(Judge):
    """The judge of one actor. Drivers share the actors of a cluster."""

    kept: Collection[str] = ()
    """See `Judge.kept`: as the actor last reported."""

    def __init__(
        self,
        create: Callable[[], Any],
        on_notice: Callable[[str], None],
        builders: Mapping[str, Any],
    ) -> None:
        """`create` creates the actor, or finds it if another driver has created it. `builders` are actors, by name."""
        super().__init__(on_notice)
        self._create, self._builders = create, builders
        self._driver = f"{socket.gethostname()} {os.getpid()} {id(self)}"
        self._actor: Any = None
        self.greeting: Greeting | None = None
        """Set while the judge is ready."""

        self._life = asyncio.create_task(self._live())

    @property
    def ready(self) -> bool:
        """Whether it takes requests."""
        return self.greeting is not None and self.failure is None

    def start_again(self) -> None:
        """Use the actor anew after it was lost, or has failed."""
        self._life.cancel()
        self.failure, self.greeting = None, None
        self._life = asyncio.create_task(self._live())

    async def _ask(self, request: AnyRequest, alone: bool) -> Answer:
        """Raises ActorLost, too, if the actor is lost or its judge cannot start again."""
        if not self.ready:
            raise self.failure or ActorLost("it was lost before it was asked")
        try:
            asked = self._actor.ask.remote(self._driver, request.model_dump_json(), alone)
            try:
                line, (self.others, self.kept) = await asked
            except asyncio.CancelledError:
                ray().cancel(asked)
                raise
        except ray().exceptions.RayError as error:
            if self.ready:
                self.start_again()
            reason = first_line(str(error)) or type(error).__name__  # without the actor's trace
            raise ActorLost(reason) from error
        answer = answer_adapter.validate_json(line)
        if isinstance(answer, JudgeFailed):
            raise JudgeDied(answer.error, answer.machine)
        return answer

    async def close(self) -> None:
        """See `Judge.close`. The actor stays for other drivers, and ends by itself when none pings it."""
        self.failure = JudgeUnavailable(CLOSED)
        self._life.cancel()
        await asyncio.wait([self._life])

    async def end(self) -> None:
        """End the judge itself, if it can be reached."""
        if self.greeting is not None:
            with suppress(ray().exceptions.RayError):
                await self._actor.end.remote()

    async def _live(self) -> None:
        """Wait for a place in the cluster, then ping the actor. Begin again whenever it is lost, until it has failed."""
        while self.failure is None:
            self.greeting, self.others, self.kept = None, 0, ()
            try:
                self._actor = self._create()
                greeting = Greeting(*await self._actor.greet.remote(self._builders))
                if (fault := _fault_of(greeting)) is not None:
                    self.failure = JudgeUnavailable(fault)
                    return
                self.device_class = Hello.model_validate_json(greeting.hello).device_class
                self.greeting = greeting
                while True:
                    (self.others, self.kept), said = await self._actor.ping.remote(self._driver)
                    self._on_notice(said)
                    await asyncio.sleep(PING_S)
            except ray().exceptions.RayError as error:
                if "creation task" in str(error):
                    self.failure = JudgeUnavailable(
                        f"no actor starts in the Ray cluster: {str(error).strip().splitlines()[-1]}; "
                        f"install stark-kernels[ray]=={__version__} and PyTorch for the Python of every node"
                    )
            await asyncio.sleep(engine.LOST_PAUSE_S)


def _fault_of(greeting: Greeting) -> str | None:
    if greeting.version != __version__:
        return (
            f"the node {greeting.node} has STARK {greeting.version}, and here is {__version__}; "
            "install the same version on every node"
        )
    return f"on the node {greeting.node}, {greeting.error}" if greeting.error else None
