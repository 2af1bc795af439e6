"""One executor for all runs of a bench, so that each reference is measured once."""

from __future__ import annotations

import asyncio

from stark.core.candidate import Candidate
from stark.core.evaluation import Effort, Evaluation
from stark.core.problem import Problem
from stark.core.reference import Reference
from stark.evaluator.executors import Executor


class SharedExecutor:
    """Measures each reference once in a session, so that all runs of a problem start from the same time.

    How many candidates are judged at once is the executor's own matter: it knows its devices.
    """

    def __init__(self, executor: Executor) -> None:
        self._executor = executor
        self._described: dict[str, asyncio.Task[Reference]] = {}

    async def describe(self, problem: Problem) -> Reference:
        """Measure the reference, or wait for whoever measures it."""
        task = self._described.get(problem.digest)
        if task is None:
            task = asyncio.create_task(self._executor.describe(problem))
            self._described[problem.digest] = task
        # Shielded: others may be waiting for it when this run is cancelled.
        return await asyncio.shield(task)

    async def evaluate(
        self, problem: Problem, candidate: Candidate, effort: Effort = "search"
    ) -> Evaluation:
        """Judge one candidate."""
        return await self._executor.evaluate(problem, candidate, effort)

    async def compiled(self, problem: Problem, language: str) -> Candidate:
        """What PyTorch's compiler makes of the problem, asked for by each run."""
        return await self._executor.compiled(problem, language)

    async def close(self) -> None:
        """End what was started."""
        for task in self._described.values():
            task.cancel()
        await asyncio.gather(*self._described.values(), return_exceptions=True)
        await self._executor.close()
