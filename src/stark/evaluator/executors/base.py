"""What the search asks of whatever evaluates: one interface, however far away the judge is."""

from __future__ import annotations

from typing import Protocol

from stark.core.candidate import Candidate
from stark.core.evaluation import Effort, Evaluation
from stark.core.problem import Problem
from stark.core.reference import Reference


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
