"""The actor of a judge in a Ray cluster: starts the same judge as `local` does, beside itself, and relays messages."""

from __future__ import annotations

import asyncio
import itertools
import socket
import sys
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from stark import __version__
from stark.core.errors import JudgeDied, JudgeUnavailable
from stark.evaluator.executors.desk import Desk
from stark.evaluator.executors.engine import PING_S, EndsWhenIdle
from stark.evaluator.executors.judges import CommandJudge
from stark.evaluator.protocol import SERVICE, Answer, JudgeFailed, request_adapter

DEAD_S = 3 * PING_S
"""Seconds without a ping after which a driver's requests are cancelled."""


class Load(NamedTuple):
    """What an actor reports with each answer and ping."""

    others: int
    """The number of open requests of other drivers."""

    problems: list[str]
    """Digests of those that its judge keeps prepared."""


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
        return Load(others, list(self._judge.kept))

    def _notice(self, text: str) -> None:
        self._said = text

    def _look(self) -> None:
        """Cancel what dead drivers have asked for."""
        for driver, when in self._drivers.items():
            if time.monotonic() - when > DEAD_S:
                for asked in self._open[driver]:
                    asked.cancel()
