"""Types that the tests of models share with their fixtures."""

from __future__ import annotations

from collections.abc import Callable

from stark.models.provider import ProviderModel

OpenHosted = Callable[..., ProviderModel]


class Waits:
    """Stands in for sleeping, and records for how long."""

    def __init__(self) -> None:
        self.seconds: list[float] = []

    async def __call__(self, seconds: float) -> None:
        self.seconds.append(seconds)
