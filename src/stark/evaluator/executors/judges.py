"""An executor with several judges, which it restarts. Used by `local`, `command` and `ray`.

No request is lost when a judge dies. Each open request is sent again, alone: its judge handles no
other request meanwhile. A candidate counts as crashed only if two things hold: judges die
on its request every time, and a judge can still measure the problem's reference.
"""

from __future__ import annotations

import asyncio
import itertools
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial

from stark.core.errors import DeadlyRequest, JudgeDied, JudgeUnavailable
from stark.core.evaluation import Crashed
from stark.core.judging import Limits, Tools
from stark.core.toolchain import Toolchain
from stark.evaluator.executors.base import RequestingExecutor
from stark.evaluator.executors.judge_process import JudgeProcess, start_judge
from stark.evaluator.protocol import (
    Answer,
    AnyRequest,
    Describe,
    Described,
    Evaluate,
    Evaluated,
    Hello,
    RequestRefused,
    refusal,
)

TRIES_ALONE = 3
"""Maximum number of times that a request is sent again, alone, after its judge died."""

PREPARING = 2.0
"""Cost of preparing a problem, in requests. A request goes to the judge with the fewest open requests; for each problem
that the judge would have to prepare, this cost is added for the request and for each open one, which all wait longer.
So a judge takes over a problem when it would soon have nothing to do, and not because another has a little more.
"""

CLOSED = "the executor is closed; close it only after its last request, or open another"


class Judge(ABC):
    """A judge that an executor sends requests to."""

    others = 0
    """The number of open requests that it has from elsewhere."""

    def __init__(self, on_notice: Callable[[str], None]) -> None:
        self.failure: JudgeUnavailable | None = None
        """Why this judge takes no more requests, not even those that wait for its start; None if it does."""

        self.device_class: str | None = None
        """The kind of machine on which it last ran; None until it is known."""

        self.open: list[str] = []
        """The digest of the problem of each request without an answer. The request may wait for the judge to start."""

        self._on_notice = on_notice

    @property
    @abstractmethod
    def kept(self) -> Collection[str]:
        """Digests of the problems that it keeps prepared."""

    async def ask(self, request: AnyRequest, alone: bool = False) -> Answer:
        """Send a request and return its answer; with `alone`, while the judge does nothing else.

        Raises JudgeDied, or JudgeUnavailable if the judge cannot be started.
        """
        self.open.append(request.problem.digest)
        try:
            return await self._ask(request, alone)
        finally:
            self.open.remove(request.problem.digest)

    @abstractmethod
    async def _ask(self, request: AnyRequest, alone: bool) -> Answer: ...

    @abstractmethod
    async def close(self) -> None:
        """Stop the judge. Later requests raise JudgeUnavailable."""

    def may_serve(self, kind: str | None) -> bool:
        """Whether it is of this kind, or of an unknown one. Any is of kind None."""
        return self.device_class is None or (kind or "") in self.device_class

    def load(self, problem: str) -> tuple[float, int]:
        """What a request for a problem would find: the number of open requests, plus what must be prepared (`PREPARING`);
        then the number of problems.
        """
        unprepared = {*self.open, problem}.difference(self.kept)
        requests = len(self.open) + self.others
        cost = PREPARING * len(unprepared) * (1 + requests)
        return requests + cost, len({*self.open, *self.kept})


class CommandJudge(Judge):
    """The judge of one command. It is started at the first request and, if it died, again at the next request."""

    def __init__(self, command: Sequence[str], on_notice: Callable[[str], None]) -> None:
        super().__init__(on_notice)
        self.command = list(command)
        self.process: JudgeProcess | None = None
        self._starting = asyncio.Lock()
        self._gate = asyncio.Lock()
        """Held while a request runs alone, and otherwise only until a request is sent."""

    async def _ask(self, request: AnyRequest, alone: bool) -> Answer:
        async with self._gate:
            if alone and self.process is not None:
                await self.process.idle()
            answer = (await self.start()).ask(request)
            if alone:
                return await answer
        return await answer

    @property
    def kept(self) -> frozenset[str]:
        """See `Judge.kept`."""
        return self.process.problems if self.process and self.process.alive else frozenset()

    async def start(self) -> JudgeProcess:
        """The running judge, which is started if need be. Raises JudgeUnavailable."""
        async with self._starting:
            if self.failure is not None:
                raise self.failure
            if self.process is not None and not self.process.alive:
                await self.process.close()
                self.process = None
            if self.process is None:
                try:
                    self.process = await start_judge(self.command, self._on_notice)
                except JudgeUnavailable as error:
                    self.failure = self.failure or error
                    raise
                self.device_class = self.process.hello.device_class
            return self.process

    async def close(self) -> None:
        """See `Judge.close`."""
        self.failure = JudgeUnavailable(CLOSED)
        async with self._starting:
            if self.process is not None:
                await self.process.close()


class JudgesExecutor(RequestingExecutor):
    """Several judges. One that cannot be started is not used again, unless no other of its kind can be."""

    def __init__(self, limits: Limits | None = None, tools: Tools | None = None) -> None:
        super().__init__(limits, tools)
        self._judges: Sequence[Judge] = ()
        self._closed = False
        self._ids = map(str, itertools.count(1))

    @property
    def ready(self) -> int:
        """The number of judges that have started and not failed."""
        return sum(j.failure is None and j.device_class is not None for j in self._judges)

    @abstractmethod
    async def start(self) -> None:
        """Start all judges ahead of the first request. Raises JudgeUnavailable if all fail."""

    @abstractmethod
    async def hellos(self) -> Mapping[str, Hello | Toolchain | str]:
        """Start all judges. By judge, what it says about itself, or why it does not start; also by builder, if there are."""

    async def answer(self, request: AnyRequest) -> Answer:
        """See `RequestingExecutor.answer`.

        When a judge dies, all its open requests fail. Each is then sent again, alone, to find the requests that
        kill a judge by themselves. Raises JudgeUnavailable if a judge's machine fails meanwhile.
        """
        numbered = request.model_copy(update={"id": next(self._ids)})
        deaths: list[JudgeDied] = []
        for alone in (False, *[True] * TRIES_ALONE):
            try:
                return await self._ask_once(numbered, alone)
            except JudgeDied as error:
                deaths.append(error)
        reason = str(deaths[-1])
        for death in deaths[1:]:
            if death.machine:
                raise JudgeUnavailable(
                    "the judge's machine fails, for instance because its disk is full; repair it, and resume the run. "
                    f"The judge's error:\n{death}"
                )
        died = f"the judge died {TRIES_ALONE} times on the same request; its last output:\n{reason}"
        if isinstance(request, Evaluate) and await self._works_without(request):
            crashed = Crashed(
                phase="verify", error=f"{died}\nWithout this candidate, the judge works."
            )
            return Evaluated(id=numbered.id, evaluation=crashed)
        raise DeadlyRequest(died)

    async def close(self) -> None:
        """End all judges."""
        self._closed = True
        await asyncio.gather(*(judge.close() for judge in self._judges))

    async def _works_without(self, request: Evaluate) -> bool:
        """Whether a judge can measure the problem's reference. If so, the candidate is at fault."""
        asked = {name: getattr(request, name) for name in ("problem", "limits", "device_class")}
        probe = Describe(id=next(self._ids), **asked)
        try:
            return isinstance(await self._ask_once(probe, alone=True), Described)
        except JudgeDied:
            return False

    async def _usable(self, kind: str | None) -> Sequence[Judge]:
        """The judges, of any kind, that may be asked for a machine of this kind. Those that have failed are asked last."""
        return self._judges

    async def _ask_once(self, request: AnyRequest, alone: bool) -> Answer:
        """Send the request to the least busy judge on a machine of the right kind. Judges of unknown kinds are asked.

        Raises JudgeDied and JudgeUnavailable. If a judge's machine fails, the others are asked.
        """
        asked = await self._usable(request.device_class)
        usable = [judge for judge in asked if judge.may_serve(request.device_class)]
        others = {judge.device_class or "unknown" for judge in asked if judge not in usable}
        failed = [judge for judge in usable if judge.failure is not None]
        failure: JudgeUnavailable | JudgeDied | None = None
        for judge in sorted(usable, key=lambda j: (j in failed, j.load(request.problem.digest))):
            if judge in failed and not self._closed:
                judge.failure = None  # no other can answer
            try:
                answer = await judge.ask(request, alone)
            except JudgeUnavailable as error:
                failure = failure or error
            except JudgeDied as error:
                if not error.machine:
                    raise
                failure = error
            else:
                if not (isinstance(answer, RequestRefused) and answer.other_class):
                    return answer
                others.add(judge.device_class or "unknown")
        if others and failure is None:
            return refusal(request, others)
        raise failure or JudgeUnavailable(CLOSED)


class CommandsExecutor(JudgesExecutor):
    """Judges that are each started by their own command."""

    def __init__(
        self,
        commands: Sequence[Sequence[str]],
        limits: Limits | None = None,
        tools: Tools | None = None,
    ) -> None:
        super().__init__(limits, tools)
        self._judges: list[CommandJudge] = [
            CommandJudge(command, partial(self._notified, number))
            for number, command in enumerate(commands)
        ]

    async def start(self) -> None:
        """See `JudgesExecutor.start`."""
        ends = await asyncio.gather(*(j.start() for j in self._judges), return_exceptions=True)
        failures = [end for end in ends if isinstance(end, BaseException)]
        if len(failures) == len(ends):
            raise failures[-1]

    async def hellos(self) -> dict[str, Hello | str]:
        """See `JudgesExecutor.hellos`."""
        ends = await asyncio.gather(*(j.start() for j in self._judges), return_exceptions=True)
        said = (end.hello if isinstance(end, JudgeProcess) else str(end) for end in ends)
        return {f"judge {number}": each for number, each in enumerate(said)}
