"""Ctrl-C and SIGTERM end asynchronous work cleanly; a second signal ends the process at once."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Coroutine
from typing import Any, TypeVar

from stark.core.errors import StarkError

Result = TypeVar("Result")

ENDING = (signal.SIGINT, signal.SIGTERM)

GRACE_S = 330.0
"""How long cleaning up may take: first the run waits for model calls in flight (`correspondence.DRAIN_S`), then
judges get time to exit."""


class Interrupted(StarkError):
    """The user ended the work with Ctrl-C or SIGTERM."""

    exit_code = 130


def run_interruptibly(work: Coroutine[Any, Any, Result]) -> Result:
    """Run `work`; returns its result. A first signal lets the work clean up, then raises Interrupted.

    A second signal ends the process at once.
    """
    return asyncio.run(_cancelled_by_signals(work))


async def _cancelled_by_signals(work: Coroutine[Any, Any, Result]) -> Result:
    loop = asyncio.get_running_loop()
    task = loop.create_task(work)

    def stop() -> None:
        for number in ENDING:
            loop.remove_signal_handler(number)
            signal.signal(number, signal.SIG_DFL)
        task.cancel()
        # If a process was being started, asyncio may wait forever after the first cancellation.
        loop.call_later(GRACE_S, task.cancel)

    for number in ENDING:
        loop.add_signal_handler(number, stop)
    try:
        return await task
    except asyncio.CancelledError:
        raise Interrupted("interrupted") from None
    finally:
        for number in ENDING:
            loop.remove_signal_handler(number)
