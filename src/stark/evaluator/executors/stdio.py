"""Judges behind commands that carry stdin and stdout, with restart. Used by `local` and `command`.

A judge that dies loses no request. Each open request is sent again, alone, to a fresh judge. The
candidate is blamed only if judges die on its request alone while a fresh judge can still measure
the problem's reference.
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
"""How often a request that was open when its judge died is sent again, alone, before giving up."""

PREPARING = 2.0
"""What it costs a judge to prepare a problem, in candidates. A judge that has the problem ready
gets up to this many more requests than an idle one."""

READY = 8
"""How many of its latest problems a judge is assumed to keep ready. Large ones leave it fewer."""


class Turnstile:
    """Admits many requests together, or one alone.

    A request that must be alone waits for the others to finish, and later ones wait for it.
    """

    def __init__(self) -> None:
        self._gate = asyncio.Lock()
        self._inside = 0
        self._empty = asyncio.Event()
        self._empty.set()

    @asynccontextmanager
    async def through(self, alone: bool) -> AsyncIterator[None]:
        """Enter, together with others or alone, and leave at the end of the block."""
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
    """The judge behind one command. Starts with its first request and again after a death."""

    def __init__(
        self, command: Sequence[str], on_notice: Callable[[], None] = lambda: None
    ) -> None:
        self.command = list(command)
        self.notice = ""
        """What it waits for, if anything."""

        self._on_notice = on_notice
        self.requests = 0
        """Requests without an answer, including those that wait for the judge to start."""

        self.asked_at = 0
        """Number of the executor's last request that was sent to this judge."""

        self._problems: Counter[str] = Counter()
        """Requests without an answer, counted by their problem's digest."""

        self._ready: dict[str, None] = {}
        """Digests of its latest problems, the most recent last."""

        self.given_up = False
        """Whether it failed to start while others work. Requests that wait for it do not retry."""

        self.process: JudgeProcess | None = None
        self._starting = asyncio.Lock()
        self._turnstile = Turnstile()
        self._closed = False

    async def ask(self, request: AnyRequest, alone: bool = False) -> Answer:
        """Send a request and return its answer.

        Raises JudgeDied, or JudgeUnavailable if the judge cannot be started.
        """
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
        """Its load before it could judge a candidate of this problem, in candidates."""
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
        """Start it ahead of the first request. Raises JudgeUnavailable."""
        await self._running()

    async def close(self) -> None:
        """Stop it. Later requests raise JudgeUnavailable."""
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
    """Several judges, each behind its own command.

    A request goes to the judge with the least load, where preparing a new problem counts as load.
    Ties go to the least recently asked judge.
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
        """Start all judges ahead of the first request, and use those that start.

        Raises JudgeUnavailable if none does.
        """
        ends = await asyncio.gather(*(j.start() for j in self._judges), return_exceptions=True)
        failures = [end for end in ends if isinstance(end, BaseException)]
        lasting = [failure for failure in failures if not isinstance(failure, JudgeUnavailable)]
        if lasting or len(failures) == len(self._judges):
            raise [*lasting, *failures][0]
        for judge, end in zip(self._judges, ends, strict=True):
            if isinstance(end, JudgeUnavailable):
                self._give_up(judge)

    async def answer(self, request: AnyRequest) -> Answer:
        """Answer a request within its own limits, under an id of this executor.

        A judge's death fails every open request there. Each is then sent again alone, so that only
        requests that end a judge by themselves are examined further. Raises JudgeUnavailable.
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
        """As `answer`, but raises ProblemError for a problem that cannot be used."""
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
        """Whether a fresh judge can measure the reference. If so, the candidate is at fault."""
        probe = Describe(id=self._next(), problem=request.problem, limits=request.limits)
        try:
            return isinstance(await self._ask_once(probe, alone=True), Described)
        except JudgeDied:
            return False

    async def _ask_once(self, request: AnyRequest, alone: bool = False) -> Answer:
        """Ask the least busy judge. Gives up one that cannot be started while others are left."""
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
        """Stop using this judge, unless it is the last one."""
        judge.given_up = self._usable() != [judge]
