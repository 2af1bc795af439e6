"""A judge in a Ray cluster: its actor, and the actor as seen from a driver.

The actor starts the same judge as `local` does, beside itself, and relays messages.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import socket
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from stark import __version__
from stark.core.errors import JudgeDied, JudgeUnavailable
from stark.evaluator.executors import engine
from stark.evaluator.executors.desk import Desk
from stark.evaluator.executors.engine import PING_S, EndsWhenIdle, ray
from stark.evaluator.executors.judges import CLOSED, CommandJudge, Judge
from stark.evaluator.protocol import (
    SERVICE,
    Answer,
    AnyRequest,
    Hello,
    JudgeFailed,
    answer_adapter,
    request_adapter,
)
from stark.explain.numbers import first_line

DEAD_S = 3 * PING_S
"""Seconds without a ping after which a driver's requests are cancelled."""


Load = tuple[int, list[str]]
"""What an actor reports with each answer and ping: the number of open requests of other drivers, and the digests of the
problems that its judge keeps prepared."""


class Greeting(NamedTuple):
    """What an actor says about itself."""

    version: str
    node: str
    hello: str
    """The judge's `Hello`, as JSON; empty if the judge does not start."""

    error: str
    """Why it does not."""


class Host(EndsWhenIdle):
    """The actor: one judge, and the requests of all drivers."""

    def __init__(self, device: str, command: Sequence[str] | None) -> None:
        super().__init__()
        self._desk, self._said = Desk(), ""
        judge = command or [sys.executable, "-m", "stark.evaluator.judge", "--device", device]
        line = ["env", f"{SERVICE}={self._desk.socket}", *judge]
        self._judge = CommandJudge(line, self._notice)
        self._ids = map(str, itertools.count(1))
        self._drivers: dict[str, float] = {}
        """When each driver was last heard of."""

        self._open: dict[str, set[asyncio.Task[Answer]]] = defaultdict(set)
        """The requests of each driver."""

    async def greet(self, builders: Mapping[str, Any]) -> Greeting:
        """Start the judge, which these actors build for."""
        said = __version__, socket.gethostname()
        self._judge.failure = None
        with self._needed():
            try:
                hello = (await self._judge.start()).hello
            except JudgeUnavailable as failure:
                return Greeting(*said, "", str(failure))
            await self._desk.open(builders, hello)
        return Greeting(*said, hello.model_dump_json(), "")

    async def ask(self, driver: str, line: str, alone: bool) -> tuple[str, Load]:
        """Pass a request to the judge. The answer may be JudgeFailed.

        Raises JudgeUnavailable if the judge cannot start again. Drivers then greet, and learn why.
        """
        self._drivers[driver] = time.monotonic()
        request = request_adapter.validate_json(line)
        numbered = request.model_copy(update={"id": next(self._ids)})
        asked = asyncio.ensure_future(self._judge.ask(numbered, alone))
        self._open[driver].add(asked)
        try:
            with self._needed():
                answer = await asked
        except JudgeDied as death:
            answer = JudgeFailed(id=numbered.id, error=str(death), machine=death.machine)
        finally:
            self._open[driver].discard(asked)
        return answer.model_dump_json(), self._load(driver)

    async def ping(self, driver: str) -> tuple[Load, str]:
        """Report the load and the judge's latest notice, and learn that the driver lives."""
        self._heard = self._drivers[driver] = time.monotonic()
        return self._load(driver), self._said

    async def end(self) -> None:
        """End the judge."""
        await self._judge.close()
        self._desk.close()

    def _load(self, driver: str) -> Load:
        others = sum(len(asked) for other, asked in self._open.items() if other != driver)
        return others, list(self._judge.kept)

    def _notice(self, text: str) -> None:
        self._said = text

    def _look(self) -> None:
        """Cancel what dead drivers have asked for."""
        for driver, when in self._drivers.items():
            if time.monotonic() - when > DEAD_S:
                for asked in self._open[driver]:
                    asked.cancel()


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
