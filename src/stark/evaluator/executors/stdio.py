"""An executor that starts judges by commands and restarts them. Used by `local` and `command`.

No request is lost when a judge dies. Each open request is sent again, alone: its judge handles no
other request meanwhile. A candidate counts as crashed only if two things hold: judges die
on its request every time, and a judge can still measure the problem's reference.
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
"""Maximum number of times that a request is sent again, alone, after its judge died."""

PREPARING = 2.0
"""Cost of preparing a problem, counted in requests. A request goes to the judge with the fewest open requests, and
this cost is added for each judge that would have to prepare the problem first."""

READY = 8
"""Number of recent problems that a judge is assumed to keep prepared. If problems are large, the judge keeps fewer."""


class Turnstile:
    """Lets requests run concurrently, or one request exclusively.

    An exclusive request waits for the running requests to finish, and later requests wait for the exclusive one.
    """

    def __init__(self) -> None:
        self._gate = asyncio.Lock()
        self._inside = 0
        self._empty = asyncio.Event()
        self._empty.set()

    @asynccontextmanager
    async def through(self, alone: bool) -> AsyncIterator[None]:
        """Run the block concurrently with others, or exclusively if `alone`."""
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
    """The judge of one command. It is started at the first request and, if it died, again at the next request."""

    def __init__(
        self, command: Sequence[str], on_notice: Callable[[], None] = lambda: None
    ) -> None:
        self.command = list(command)
        self.notice = ""
        """The text of the judge's current notice; empty if there is none."""

        self._on_notice = on_notice
        self.requests = 0
        """Number of requests without an answer, including those that wait for the judge to start."""

        self.asked_at = 0
        """Sequence number of the last request that the executor sent to this judge."""

        self._problems: Counter[str] = Counter()
        """Number of requests without an answer, for each problem's digest."""

        self._ready: dict[str, None] = {}
        """Digests of the problems that the judge is assumed to keep prepared, the most recent last."""

        self.given_up = False
        """Whether the executor stopped using this judge after a failed start. Requests that
        wait for it go to another judge."""

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
        """The number of open requests, plus `PREPARING` if the judge has not prepared this problem."""
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
        """Start the judge ahead of the first request. Raises JudgeUnavailable."""
        await self._running()

    async def close(self) -> None:
        """Stop the judge. Later requests raise JudgeUnavailable."""
        self._closed = True
        async with self._starting:
            if self.process is not None:
                await self.process.close()

    async def _running(self) -> JudgeProcess:
        async with self._starting:
            if self._closed:
                raise JudgeUnavailable(
                    "the executor is closed; close it only after its last request, or open another"
                )
            if self.given_up:
                raise JudgeUnavailable(
                    f"the judge ({shlex.join(self.command)}) did not start and is no longer used"
                )
            if self.process is not None and not self.process.alive:
                await self.process.close()
                self.process = None
            if self.process is None:
                self._ready.clear()
                self.process = await start_judge(self.command, self._notified)
            return self.process


class StdioExecutor(RequestingExecutor):
    """Judges that are each started by their own command.

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
        """Start all judges ahead of the first request. Judges that fail to start are not used.

        Raises JudgeUnavailable if all fail.
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
        """Answer a request within the limits that it contains. The executor replaces the request's id.

        When a judge dies, all its open requests fail. Each is then sent again, alone, to find the requests that
        kill a judge by themselves. Raises JudgeUnavailable.
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
        died = f"the judge died {TRIES_ALONE} times on the same request; its last output:\n{reason}"
        if isinstance(request, Evaluate) and await self._works_without(request):
            crashed = Crashed(
                phase="verify", error=f"{died}\nWithout this candidate, the judge works."
            )
            return Evaluated(id=request.id, evaluation=crashed)
        raise JudgeUnavailable(died)

    async def _works_without(self, request: Evaluate) -> bool:
        """Whether a judge can measure the problem's reference. If so, the candidate is at fault."""
        probe = Describe(id=self._next(), problem=request.problem, limits=request.limits)
        try:
            return isinstance(await self._ask_once(probe, alone=True), Described)
        except JudgeDied:
            return False

    async def _ask_once(self, request: AnyRequest, alone: bool = False) -> Answer:
        """Send the request to the least busy judge. Give up a judge that cannot be started, unless it is the last."""
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
