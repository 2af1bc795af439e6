"""The interface through which the search gets candidates judged, and a base class for executors."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Protocol

from stark.core.candidate import Candidate
from stark.core.errors import JudgeUnavailable, ProblemError
from stark.core.evaluation import Effort, Evaluation
from stark.core.judging import Limits, Tools
from stark.core.problem import Problem
from stark.core.reference import Reference
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


class Executor(Protocol):
    """Gets candidates judged, locally or remotely. All methods may be called concurrently.

    They raise ProblemError if the problem itself cannot be used, and JudgeUnavailable if no judge
    answers. A candidate's failure is part of its evaluation and never an exception.
    """

    async def describe(self, problem: Problem) -> Reference:
        """Measure the problem's reference."""
        ...

    async def evaluate(
        self, problem: Problem, candidate: Candidate, effort: Effort = "search"
    ) -> Evaluation:
        """Judge one candidate."""
        ...

    async def close(self) -> None:
        """Stop everything that the executor started."""
        ...


class RequestingExecutor(ABC):
    """Turns each call into a protocol request, which subclasses send to a judge."""

    def __init__(self, limits: Limits | None, tools: Tools | None) -> None:
        self.on_notice: Callable[[str], None] = lambda _: None
        """Called with a notice for the user, such as `waiting for another judge on cuda:0`, and with an empty
        text when the notice no longer applies. The default ignores notices."""

        self._device_class: str | None = None
        """The kind of machine that gave the first answer."""

        self._limits = limits or Limits()
        self._tools = tools or Tools()

    async def describe(self, problem: Problem) -> Reference:
        """See `Executor.describe`."""
        answer = await self._ask(Describe(id="", problem=problem, limits=self._limits))
        assert isinstance(answer, Described)
        return answer.reference

    async def evaluate(
        self, problem: Problem, candidate: Candidate, effort: Effort = "search"
    ) -> Evaluation:
        """See `Executor.evaluate`."""
        request = Evaluate(
            id="",
            problem=problem,
            candidate=candidate,
            limits=self._limits,
            effort=effort,
            tools=self._tools,
        )
        answer = await self._ask(request)
        assert isinstance(answer, Evaluated)
        return answer.evaluation

    async def _ask(self, request: AnyRequest) -> Described | Evaluated:
        """Ask only machines of the kind that answered first: times of different kinds are not comparable.

        Raises ProblemError for a problem that cannot be used, and JudgeUnavailable for a refused request.
        """
        answer = await self.answer(request.model_copy(update={"device_class": self._device_class}))
        if isinstance(answer, ProblemRefused):
            raise ProblemError(answer.error)
        if isinstance(answer, RequestRefused):
            raise JudgeUnavailable(f"every judge refused the request: {answer.error}")
        assert isinstance(answer, Described | Evaluated)
        self._device_class = self._device_class or answer.device_class or None
        return answer

    @abstractmethod
    async def close(self) -> None:
        """See `Executor.close`."""

    @abstractmethod
    async def answer(self, request: AnyRequest) -> Answer:
        """Answer a request within the limits that it contains. Replaces the request's id. Raises JudgeUnavailable."""
