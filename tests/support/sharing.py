"""Executors that share the judges of a test session, since starting one takes seconds."""

from __future__ import annotations

from typing import Protocol

from stark.core.judging import Limits, Tools
from stark.evaluator.executors.base import RequestingExecutor
from stark.evaluator.protocol import Answer, AnyRequest


class SharingExecutor(RequestingExecutor):
    """Sends requests to the judges of another executor, with limits of its own.

    Closing it leaves the judges running, since starting one takes seconds.
    """

    def __init__(self, judges: RequestingExecutor, limits: Limits, tools: Tools) -> None:
        super().__init__(limits, tools)
        self._judges = judges

    async def close(self) -> None:
        """The owner of the judges closes them."""

    async def answer(self, request: AnyRequest) -> Answer:
        return await self._judges.answer(request)


class JudgeWithin(Protocol):
    """Opens an executor on the judges that a test session shares: the type of its fixture."""

    def __call__(self, limits: Limits, sanitizer: bool = False) -> RequestingExecutor:
        """Without `sanitizer`, no candidate is built twice, which would take seconds."""
        ...
