"""What all runs of a bench go through together: one door to the models, one to the judges."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping

from stark.bench.account import Account
from stark.core.call import Message, Reply
from stark.core.candidate import Candidate
from stark.core.evaluation import Effort, Evaluation
from stark.core.problem import Problem
from stark.core.reference import Reference
from stark.core.run import RoleModel
from stark.evaluator.executors import Executor
from stark.models import Model, open_model
from stark.replies import LiveReplies, Replies


class ModelDoor:
    """Opens each model once, and lets so many questions through at a time."""

    def __init__(
        self, slots: int | None = None, open_one: Callable[[str], Model] = open_model
    ) -> None:
        """Without `slots`, as many questions as there are attempts in flight."""
        self._slots = contextlib.nullcontext() if slots is None else asyncio.Semaphore(slots)
        self._open_one = open_one
        self._opened: dict[str, Model] = {}

    def open(self, models: Mapping[str, RoleModel]) -> None:
        """Open these, so that a missing key is told before any work. Raises what opening a model raises."""
        for entry in models.values():
            self._model(entry.model)

    def replies(self, models: Mapping[str, RoleModel], account: Account) -> Replies:
        """A run's replies, paid from the account."""
        opened = {role: (self._model(m.model), m.temperature) for role, m in models.items()}
        return _PaidReplies(LiveReplies(opened), self._slots, account)

    def _model(self, spec: str) -> Model:
        if spec not in self._opened:
            self._opened[spec] = self._open_one(spec)
        return self._opened[spec]


class _PaidReplies:
    """A run's replies through the shared slots."""

    def __init__(
        self,
        replies: Replies,
        slots: contextlib.AbstractAsyncContextManager[None],
        account: Account,
    ) -> None:
        self._replies, self._slots, self._account = replies, slots, account

    async def reply(
        self, attempt: int, turn: int, role: str, messages: tuple[Message, ...]
    ) -> Reply:
        async with self._slots:
            reply = await self._replies.reply(attempt, turn, role, messages)
        self._account.pay(reply.usage)
        return reply


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
