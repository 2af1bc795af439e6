"""Decides which failed requests are retried, how often, and after how long a wait."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeVar

from stark.core.errors import ModelUnreachable

T = TypeVar("T")


class Transient(Exception):
    """A failure after which a retry may succeed. Its text is one clause of an error message."""

    def __init__(self, reason: str, retry_after_s: float | None = None):
        """`retry_after_s` is how long the provider asks to wait, for example in a Retry-After header."""
        super().__init__(reason)
        self.retry_after_s = retry_after_s or 0.0


@dataclass(frozen=True)
class Backoff:
    """Exponential backoff with jitter. A wait is never shorter than the provider asks for."""

    tries: int = 8
    """At least 45 s of waiting in all: limits per minute are common."""

    first_s: float = 1.0
    longest_s: float = 30.0
    patience_s: float = 300.0
    """The longest wait that the provider may ask for. If it asks for more, there is no retry."""

    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep

    async def run(self, work: Callable[[], Awaitable[T]]) -> T:
        """The result of `work`, which is retried while it raises Transient.

        Raises ModelUnreachable once the tries are used up, or if the provider asks for too long a wait.
        """
        failures = 0
        while True:
            try:
                return await work()
            except Transient as failure:
                failures += 1
                asked_s = failure.retry_after_s
                advice = f"after {failures} tries: try again later"
                if asked_s > self.patience_s:
                    advice = f"and asks to wait {asked_s:.0f} s: try again then"
                elif failures < self.tries:
                    await self.sleep(self.wait_s(failures, asked_s))
                    continue
                raise ModelUnreachable(f"{failure}, {advice}") from failure

    def wait_s(self, failures: int, asked_s: float = 0.0) -> float:
        """The wait after this many consecutive failures: what the provider asks for, plus the backoff."""
        longest = min(self.longest_s, self.first_s * 2.0 ** (failures - 1))
        # Jitter keeps requests that failed together from being retried together.
        return asked_s + longest * random.uniform(0.5, 1.0)
