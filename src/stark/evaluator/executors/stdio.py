"""Judges behind commands that carry standard input and output, with restart: the engine of `local` and `command`.

A judge that dies takes nothing with it: what it was working on is sent again to a fresh one, alone, and no
candidate is blamed, unless judges die over it alone and a fresh one does its problem without it.
"""

from __future__ import annotations

import asyncio
import itertools
import shlex
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

from stark.core.errors import JudgeDied, JudgeUnavailable, ProblemError
from stark.core.evaluation import Crashed
from stark.core.judging import Limits, Tools
from stark.evaluator.executors.base import RequestingExecutor
from stark.evaluator.executors.judge_process import JudgeProcess, start_judge
from stark.evaluator.protocol import (
    Answer,
    AnyRequest,
    Describe,
    Described,
    Evaluate,
    Evaluated,
    ProblemRefused,
)

TRIES_ALONE = 3
"""How often a request that was in flight when its judge died is sent to a judge of its own."""

PREPARING = 2.0
"""What preparing a problem costs a judge, in candidates. While others are idle, a judge gets so many more of its problem."""

READY = 8
"""How many problems a judge is taken to keep ready: the last that it got. It keeps fewer where they are large."""


class Turnstile:
    """Lets many through side by side, or one alone: who asks to be alone waits for all inside and holds up the rest."""

    def __init__(self) -> None:
        self._gate = asyncio.Lock()
        self._inside = 0
        self._empty = asyncio.Event()
        self._empty.set()

    @asynccontextmanager
    async def through(self, alone: bool) -> AsyncIterator[None]:
        """Be inside, with others or alone."""
        async with self._gate:
            if alone:
                await self._empty.wait()
                yield
                return
            self._inside += 1
            self._empty.clear()
        try:
            yield
        finally:
            self._inside -= 1
            if self._inside == 0:
                self._empty.set()


class Judge:
    """The judge behind one command: started when first asked, and started anew after a death."""

    def __init__(
        self, command: Sequence[str], on_notice: Callable[[], None] = lambda: None
    ) -> None:
        self.command = list(command)
        self.notice = ""
        """What it waits for, if anything."""

        self._on_notice = on_notice
        self.requests = 0
        """How many wait for an answer; those that wait for it to start are among them."""

        self.asked_at = 0
        """Which of the executor's requests was the last that it got."""

        self._problems: Counter[str] = Counter()
        """Of the requests that wait for an answer, by digest."""

        self._ready: dict[str, None] = {}
        """The problems that it got last, by digest, the latest at the end."""

        self.given_up = False
        """Whether it could not be started and others do its work: it is not tried again for who still waits for it."""

        self.process: JudgeProcess | None = None
        self._starting = asyncio.Lock()
        self._turnstile = Turnstile()
        self._closed = False

    async def ask(self, request: AnyRequest, alone: bool = False) -> Answer:
        """Its answer. Raises JudgeDied, or JudgeUnavailable if no judge can be started."""
        problem = request.problem.digest
        self.requests += 1
        self._problems[problem] += 1
        try:
            async with self._turnstile.through(alone):
                process = await self._running()
                self._note(problem)
                return await process.ask(request)
        finally:
            self.requests -= 1
            self._problems -= Counter([problem])

    def busy(self, problem: str) -> float:
        """How much it has to do before it could judge a candidate of this problem, in candidates."""
        alive = self.process is not None and self.process.alive
        ready = problem in self._problems or (alive and problem in self._ready)
        return self.requests + (0.0 if ready else PREPARING)

    def _notified(self, text: str) -> None:
        if text != self.notice:
            self.notice = text
            self._on_notice()

    def _note(self, problem: str) -> None:
        self._ready.pop(problem, None)
        self._ready[problem] = None
        for oldest in list(self._ready)[:-READY]:
            del self._ready[oldest]

    async def start(self) -> None:
        """Start it before it is asked. Raises JudgeUnavailable."""
        await self._running()

    async def close(self) -> None:
        """End it for good."""
        self._closed = True
        async with self._starting:
            if self.process is not None:
                await self.process.close()

    async def _running(self) -> JudgeProcess:
        async with self._starting:
            if self._closed:
                raise JudgeUnavailable("the executor was closed while requests were waiting")
            if self.given_up:
                raise JudgeUnavailable(f"{shlex.join(self.command)} was given up")
            if self.process is not None and not self.process.alive:
                await self.process.close()
                self.process = None
            if self.process is None:
                self._ready.clear()
                self.process = await start_judge(self.command, self._notified)
            return self.process


class StdioExecutor(RequestingExecutor):
    """Several judges, each behind a command of its own.

    A request goes to the one with the least to do, where a problem that it does not have ready counts as something
    to do; of several, to the one that was not asked for longest.
    """

    def __init__(
        self,
        commands: Sequence[Sequence[str]],
        limits: Limits | None = None,
        tools: Tools | None = None,
    ) -> None:
        super().__init__(limits, tools)
        self._judges = [Judge(command, self._show_notices) for command in commands]
        self._count = itertools.count(1)
        self._asked = itertools.count(1)

    async def start(self) -> None:
        """Start all judges before they are asked; only those that start are. Raises JudgeUnavailable if none does."""
        ends = await asyncio.gather(*(j.start() for j in self._judges), return_exceptions=True)
        failures = [end for end in ends if isinstance(end, BaseException)]
        lasting = [failure for failure in failures if not isinstance(failure, JudgeUnavailable)]
        if lasting or len(failures) == len(self._judges):
            raise [*lasting, *failures][0]
        for judge, end in zip(self._judges, ends, strict=True):
            if isinstance(end, JudgeUnavailable):
                self._give_up(judge)

    async def answer(self, request: AnyRequest) -> Answer:
        """What the judges answer to a request as it is: within its own limits, and under an id of this executor's.

        A death costs everything that was in flight there. What was is sent again with nothing beside
        it, so that only what ends judges alone is looked at more closely. Raises JudgeUnavailable.
        """
        numbered = request.model_copy(update={"id": self._next()})
        try:
            return await self._ask_once(numbered)
        except JudgeDied:
            return await self._ask_alone(numbered)

    async def close(self) -> None:
        """End all judges."""
        await asyncio.gather(*(judge.close() for judge in self._judges))

    def _show_notices(self) -> None:
        notices = dict.fromkeys(judge.notice for judge in self._judges if judge.notice)
        self.on_notice("; ".join(notices))

    def _next(self) -> str:
        return str(next(self._count))

    async def _ask(self, request: AnyRequest) -> Answer:
        """The answer, but for that of a problem which cannot be used. Raises ProblemError."""
        answer = await self.answer(request)
        if isinstance(answer, ProblemRefused):
            raise ProblemError(answer.error)
        return answer

    async def _ask_alone(self, request: AnyRequest) -> Answer:
        reason = ""
        for _ in range(TRIES_ALONE):
            try:
                return await self._ask_once(request, alone=True)
            except JudgeDied as death:
                reason = str(death)
        died = (
            f"the judge died {TRIES_ALONE} times over the same request; its last words:\n{reason}"
        )
        if isinstance(request, Evaluate) and await self._works_without(request):
            crashed = Crashed(phase="verify", error=f"{died}\nWithout this candidate it works.")
            return Evaluated(id=request.id, evaluation=crashed)
        raise JudgeUnavailable(died)

    async def _works_without(self, request: Evaluate) -> bool:
        """Whether a fresh judge can do the same problem's reference: then the candidate is what ends judges."""
        probe = Describe(id=self._next(), problem=request.problem, limits=request.limits)
        try:
            return isinstance(await self._ask_once(probe, alone=True), Described)
        except JudgeDied:
            return False

    async def _ask_once(self, request: AnyRequest, alone: bool = False) -> Answer:
        """Ask the least busy judge; one that cannot be started is given up while others are left."""
        problem = request.problem.digest
        while True:
            judge = min(self._usable(), key=lambda judge: (judge.busy(problem), judge.asked_at))
            judge.asked_at = next(self._asked)
            try:
                return await judge.ask(request, alone)
            except JudgeUnavailable:
                if self._usable() == [judge]:
                    raise
                self._give_up(judge)

    def _usable(self) -> list[Judge]:
        return [judge for judge in self._judges if not judge.given_up]

    def _give_up(self, judge: Judge) -> None:
        """Ask it no more, unless it is the last one left."""
        judge.given_up = self._usable() != [judge]
