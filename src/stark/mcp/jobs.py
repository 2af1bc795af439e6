"""Bounds how long a call may take: after `CALL_S` it returns an id, and the work goes on until someone waits for it."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from typing import Any, TypeVar

from stark.core.errors import UsageError
from stark.mcp.answers import Pending

T = TypeVar("T")

CALL_S = 45.0
"""Clients give up on calls that take longer, some after 60 s."""

PROGRESS_S = 2.0
"""Seconds between notifications of progress."""

OnProgress = Callable[[float, str], Awaitable[None]]
"""Called with the seconds so far and with what is being done."""


class Jobs:
    """Work in progress, by id."""

    def __init__(self, call_s: float = CALL_S, progress_s: float = PROGRESS_S) -> None:
        self.notice = ""
        """Why everything is delayed, such as a device that another judge uses; empty if nothing is."""

        self.call_s, self._progress_s = call_s, progress_s
        self._jobs: dict[str, tuple[asyncio.Task[Any], str, float]] = {}
        self._ids = (f"job-{number}" for number in itertools.count(1))

    async def run(
        self, work: Coroutine[Any, Any, T], doing: str, on_progress: OnProgress
    ) -> T | Pending:
        """The result of the work, or Pending if it takes too long. A cancelled call cancels the work."""
        id, task = next(self._ids), asyncio.create_task(work)
        self._jobs[id] = task, doing, time.monotonic()
        try:
            answer: T | Pending = await self.wait(id, on_progress)
        except asyncio.CancelledError:
            self._cancel(id)
            raise
        return answer

    async def wait(self, id: str, on_progress: OnProgress) -> Any:
        """As `run`, for work that began earlier. A cancelled wait leaves the work running.

        Raises UsageError if there is no such work, and any error of the work.
        """
        task, doing, began = self._job(id)
        until = time.monotonic() + self.call_s
        while not task.done() and (left := until - time.monotonic()) > 0:
            await asyncio.wait({task}, timeout=min(left, self._progress_s))
            await on_progress(time.monotonic() - began, self.notice or doing)
        if not task.done():
            return Pending(pending=id, doing=doing, seconds=round(time.monotonic() - began, 1))
        self._jobs.pop(id, None)
        if task.cancelled():
            raise UsageError(f"{id} was cancelled")
        return task.result()

    def stop(self, id: str) -> None:
        """Cancel work. Raises UsageError if there is no such work."""
        self._job(id)
        self._cancel(id)

    async def close(self) -> None:
        """Cancel everything and wait for it to clean up."""
        tasks = [task for task, _, _ in self._jobs.values()]
        for id in list(self._jobs):
            self._cancel(id)
        with suppress(asyncio.CancelledError):
            await asyncio.gather(*tasks, return_exceptions=True)

    def _cancel(self, id: str) -> None:
        task, _, _ = self._jobs[id]
        task.cancel()
        task.add_done_callback(lambda _: self._jobs.pop(id, None))

    def _job(self, id: str) -> tuple[asyncio.Task[Any], str, float]:
        if id not in self._jobs:
            known = f"; waiting are {', '.join(self._jobs)}" if self._jobs else ""
            raise UsageError(f"there is no {id}: its answer was given or it was cancelled{known}")
        return self._jobs[id]
