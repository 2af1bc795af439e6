"""What the search asks of whatever evaluates: one interface, however far away the judge is, and how questions become requests."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Protocol

from stark.core.candidate import Candidate
from stark.core.errors import CompilerRefused
from stark.core.evaluation import Effort, Evaluation
from stark.core.judging import Limits, Tools
from stark.core.problem import Problem
from stark.core.reference import Reference
from stark.evaluator.protocol import (
    Answer,
    AnyRequest,
    Compile,
    Compiled,
    Describe,
    Described,
    Evaluate,
    Evaluated,
    NotCompiled,
)


class Executor(Protocol):
    """Gets candidates judged. All questions may be asked many times at once.

    Raises ProblemError when the problem itself cannot be used and JudgeUnavailable when no judge
    answers. A candidate's failure is never an exception.
    """

    async def describe(self, problem: Problem) -> Reference:
        """Measure the reference."""
        ...

    async def evaluate(
        self, problem: Problem, candidate: Candidate, effort: Effort = "search"
    ) -> Evaluation:
        """Judge one candidate."""
        ...

    async def compiled(self, problem: Problem, language: str) -> Candidate:
        """What PyTorch's own compiler makes of the problem, not judged. Raises CompilerRefused."""
        ...

    async def close(self) -> None:
        """End what was started."""
        ...


class RequestingExecutor(ABC):
    """An executor that puts each question into a request; how that is answered is left to its kinds."""

    def __init__(self, limits: Limits | None, tools: Tools | None) -> None:
        self.on_notice: Callable[[str], None] = lambda _: None
        """Called with a notice for the user, such as `waiting for another judge on cuda:0`, and with an empty
        text when it no longer applies. Set it to show notices; they are ignored otherwise."""

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

    async def compiled(self, problem: Problem, language: str) -> Candidate:
        """See `Executor.compiled`."""
        request = Compile(id="", problem=problem, language=language, limits=self._limits)
        answer = await self._ask(request)
        if isinstance(answer, NotCompiled):
            raise CompilerRefused(answer.reason)
        assert isinstance(answer, Compiled)
        return answer.candidate

    @abstractmethod
    async def close(self) -> None:
        """See `Executor.close`."""

    @abstractmethod
    async def _ask(self, request: AnyRequest) -> Answer:
        """The answer to a request whose id is still to be given. Raises ProblemError and JudgeUnavailable."""
