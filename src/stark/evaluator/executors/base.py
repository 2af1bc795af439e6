"""The interface through which the search gets candidates judged, and a base class for executors."""

from __future__ import annotations

import asyncio
import secrets
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Awaitable, Callable, Hashable
from contextlib import aclosing
from functools import partial
from typing import Any, Protocol, TypeVar

from stark.core.candidate import Candidate
from stark.core.combined import correct_over, reference_over, seconds_over, untimed_over
from stark.core.errors import JudgeUnavailable, ProblemError
from stark.core.evaluation import Check, Correct, Effort, Evaluation, OutOfMemory, Untimed
from stark.core.judging import Limits, Tools
from stark.core.problem import Problem
from stark.core.reference import Reference
from stark.core.together import together
from stark.evaluator.protocol import (
    Answer,
    AnyRequest,
    Describe,
    Described,
    Evaluate,
    Evaluated,
    ProblemRefused,
    RequestRefused,
)

T = TypeVar("T")


class Executor(Protocol):
    """Gets candidates judged, locally or remotely. All methods may be called concurrently.

    They raise ProblemError if the problem itself cannot be used, and JudgeUnavailable if no judge
    answers. A candidate's failure is part of its evaluation and never an exception. For a problem with cases, both
    methods cover all of them (see `core.combined`).
    """

    async def describe(self, problem: Problem) -> Reference:
        """Measure the problem's reference."""

    async def evaluate(
        self, problem: Problem, candidate: Candidate, effort: Effort = "search"
    ) -> Evaluation:
        """Judge one candidate."""

    def on(self, device_class: str) -> Executor:
        """The same judges, but only those in whose kind this text occurs: times of other kinds are not comparable.

        What this executor is bound to does not matter. It shares everything that this executor has started, and closing it stops nothing.
        """

    async def close(self) -> None:
        """Stop everything that the executor started."""


class RequestingExecutor(ABC):
    """Turns each call into a protocol request, which subclasses send to a judge.

    A problem with cases becomes one request per case, each with a plain problem (`Problem.at`): judges know no cases. The
    requests are sent one after the other in the order of the file, since the first failure decides and saves the rest.
    Other candidates keep the judges busy meanwhile. What holds for one request holds for each case: a judge that died
    gets it again, and it goes where its case is prepared.
    """

    cases_at_once: bool = False
    """Whether the requests for all cases are sent at once instead: where each waits for a place in a batch queue."""

    def __init__(self, limits: Limits | None, tools: Tools | None) -> None:
        self.on_notice: Callable[[str], None] = lambda _: None
        """Called with a notice for the user, such as `waiting for another judge on cuda:0`, and with an empty
        text when the notice no longer applies. The default ignores notices, or for a folder, prints them on stderr."""

        self._device_class: str | None = None
        """The only kind of machine to ask: that of the first answer, or as `bind` says."""

        self._limits = limits or Limits()
        self._tools = tools or Tools()
        self._notices: dict[Hashable, str] = {}
        """By judge, by kind of machine, or by request."""

        self._noticed = ""

    def _notified(self, source: Hashable, text: str) -> None:
        """Pass on what applies now, if this changes it. What the user's function raises fails no request."""
        self._notices[source] = text
        if not text:
            del self._notices[source]
        before, self._noticed = self._noticed, "; ".join(dict.fromkeys(self._notices.values()))
        if self._noticed == before:
            return
        try:
            self.on_notice(self._noticed)
        except Exception as error:
            said = {"message": "on_notice failed", "exception": error}
            asyncio.get_running_loop().call_exception_handler(said)

    def bind(self, device_class: str) -> None:
        """Ask only machines in whose kind this text occurs. The first kind stays, but may get a fuller name."""
        if (self._device_class or "") in device_class:
            self._device_class = device_class

    def on(self, device_class: str) -> Executor:
        """See `Executor.on`."""
        return _View(self, device_class)

    async def describe(self, problem: Problem) -> Reference:
        """See `Executor.describe`."""
        weighing = problem.weighing
        if weighing is None:
            return await self._describe(problem)
        async with aclosing(self._by_case(problem, self._describe)) as found:
            cases = {case: reference async for case, reference in found}
        try:
            return reference_over(weighing, cases)
        except ValueError as error:
            raise ProblemError(f"{problem.name}: {error}") from error

    async def evaluate(
        self, problem: Problem, candidate: Candidate, effort: Effort = "search"
    ) -> Evaluation:
        """See `Executor.evaluate`. With several cases, the first one that fails decides."""
        found = await self._over_cases(problem, candidate, effort)
        assert not isinstance(found, Untimed)
        if problem.weighing is None or effort != "promote" or not isinstance(found, Correct):
            return found
        return await self._in_turn(problem, candidate, found)

    async def check(self, problem: Problem, candidate: Candidate) -> Check:
        """Build and verify a candidate; nothing is timed. With several cases, the first one that fails decides."""
        found = await self._over_cases(problem, candidate, "search", timed=False)
        assert not isinstance(found, Correct)
        return found

    async def _over_cases(
        self, problem: Problem, candidate: Candidate, effort: Effort, timed: bool = True
    ) -> Evaluation | Untimed:
        """Have a candidate judged in every case, until one fails."""
        weighing = problem.weighing
        if weighing is None:
            return await self._judge(problem, candidate, effort, timed)
        cases: dict[str, Any] = {}
        judge = partial(self._judge, candidate=candidate, effort=effort, timed=timed)
        async with aclosing(self._by_case(problem, judge)) as results:
            async for case, found in results:
                if not isinstance(found, Correct | Untimed):
                    seconds = seconds_over([*cases.values(), found])
                    return found.model_copy(update={"seconds": seconds, "case": case})
                cases[case] = found
        return correct_over(weighing, cases) if timed else untimed_over(cases)

    async def _by_case(
        self, problem: Problem, ask: Callable[[Problem], Awaitable[T]]
    ) -> AsyncGenerator[tuple[str, T]]:
        """Ask for every case, and yield the answers in the order of the file. Once closed, it waits for no other.

        Until the kind of machine is known, there is one question at a time, or machines of different kinds might answer.
        """
        assert problem.weighing is not None
        cases, asked = list(problem.weighing.weights), dict[str, asyncio.Future[T]]()
        try:
            for number, case in enumerate(cases):
                if self.cases_at_once and self._device_class is not None:
                    ahead = [each for each in cases[number:] if each not in asked]
                    asked |= {each: asyncio.ensure_future(ask(problem.at(each))) for each in ahead}
                yield case, await (asked[case] if case in asked else ask(problem.at(case)))
        finally:
            for task in asked.values():
                task.cancel()

    async def _in_turn(
        self, problem: Problem, candidate: Candidate, evaluation: Correct
    ) -> Evaluation:
        """Verify that one process can serve all cases in turn, for a candidate that is correct in each by itself.

        Machines that lack the memory for this, and models that cannot be called so, get a warning instead.
        """
        cases = evaluation.cases
        pair = together(problem, candidate, cases)
        try:
            found = None if pair is None else await self._judge(*pair, "search")
        except ProblemError:
            found = None
        if found is None or isinstance(found, OutOfMemory | Untimed):
            warnings = (*evaluation.warnings, "the cases were not verified in turn, in one process")
            return evaluation.model_copy(update={"warnings": warnings})
        seconds = seconds_over([evaluation, found])
        if isinstance(found, Correct):
            return evaluation.model_copy(update={"seconds": seconds})
        reason = (
            "the candidate is correct in each case by itself, but not if one process serves them in turn; nothing may depend "
            "on the shapes of earlier calls"
        )
        warnings = (reason, *found.warnings)
        kept = {"seconds": seconds, "case": " then ".join(cases), "warnings": warnings}
        return found.model_copy(update=kept)

    async def _describe(self, problem: Problem) -> Reference:
        """Have a judge measure the reference of a problem without cases."""
        answer = await self._ask(Describe(id="", problem=problem, limits=self._limits))
        assert isinstance(answer, Described)
        return answer.reference

    async def _judge(
        self, problem: Problem, candidate: Candidate, effort: Effort, timed: bool = True
    ) -> Evaluation | Untimed:
        """Have a candidate judged for a problem without cases."""
        races = effort == "race"  # which measures a candidate several times, without tools
        request = Evaluate(
            id="",
            problem=problem,
            candidate=candidate,
            limits=self._limits,
            effort=effort,
            timed=timed,
            tools=Tools() if races else self._tools,
            nonce=secrets.token_hex(4) if races else "",
        )
        answer = await self._ask(request)
        assert isinstance(answer, Evaluated)
        return answer.evaluation

    async def _ask(self, request: AnyRequest) -> Described | Evaluated:
        """Ask only machines of one kind. The first answer decides, within what `bind` says.

        A request that was sent before, and that a machine of another kind has answered, is sent again.
        Raises ProblemError for a problem that cannot be used, and JudgeUnavailable for a refused request.
        """
        while True:
            asked = self._device_class
            answer = await self.answer(request.model_copy(update={"device_class": asked}))
            if isinstance(answer, ProblemRefused):
                raise ProblemError(answer.error)
            if isinstance(answer, RequestRefused):
                raise JudgeUnavailable(f"every judge refused the request: {answer.error}")
            assert isinstance(answer, Described | Evaluated)
            kind = answer.device_class
            if kind:
                self.bind(kind)
            if not kind or self._device_class == asked or (self._device_class or "") in kind:
                return answer

    async def close(self) -> None:  # noqa: B027 (not every executor starts something)
        """See `Executor.close`."""

    @abstractmethod
    async def answer(self, request: AnyRequest) -> Answer:
        """Answer a request within the limits that it contains. Replaces the request's id. Raises JudgeUnavailable."""


class _View(RequestingExecutor):
    """Another executor, bound to a kind of machine of its own."""

    def __init__(self, whole: RequestingExecutor, device_class: str) -> None:
        super().__init__(whole._limits, whole._tools)
        self._whole = whole
        self.cases_at_once = whole.cases_at_once
        self.bind(device_class)

    async def answer(self, request: AnyRequest) -> Answer:
        """See `RequestingExecutor.answer`."""
        return await self._whole.answer(request)
