"""One executor for all runs of a bench, so that each reference is measured once."""

from __future__ import annotations

import asyncio

from stark.core.problem import Problem
from stark.core.reference import Reference
from stark.evaluator.executors import Executor


class SharedExecutor:
    """Measures each reference once per session, so that all runs of a problem start from the same time.

    The executor itself decides how many candidates are judged at once, since it knows its devices.
    """

    def __init__(self, executor: Executor) -> None:
        self._executor = executor
        self.evaluate, self.compiled = executor.evaluate, executor.compiled
        self._described: dict[str, asyncio.Task[Reference]] = {}

    async def describe(self, problem: Problem) -> Reference:
        """Measure the reference once; concurrent callers wait for the same measurement."""
        task = self._described.get(problem.digest)
        if task is None:
            task = asyncio.create_task(self._executor.describe(problem))
            self._described[problem.digest] = task
        # Shielded: others may be waiting for it when this run is cancelled.
        return await asyncio.shield(task)

    async def close(self) -> None:
        """Stop measurements in flight; the executor's owner closes it."""
        for task in self._described.values():
            task.cancel()
        await asyncio.gather(*self._described.values(), return_exceptions=True)
