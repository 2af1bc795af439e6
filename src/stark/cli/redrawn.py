"""A screen that is redrawn ten times a second while work goes on."""

from __future__ import annotations

import asyncio
import time
from abc import ABC, abstractmethod
from contextlib import suppress
from types import TracebackType
from typing import Self

from rich.console import Console, RenderableType
from rich.live import Live
from rich.spinner import Spinner
from rich.text import Text

from stark.explain.numbers import duration

REDRAW_S = 0.1

_FRAMES = Spinner("dots").frames
_FRAMES_PER_S = 10


class Redrawn(ABC):
    """Shown while its block lasts; a subclass provides the content."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._live = Live(console=console, auto_refresh=False, transient=True)
        self._redrawing: asyncio.Task[None] | None = None

    @abstractmethod
    def screen(self) -> RenderableType:
        """The current content of the screen."""

    async def __aenter__(self) -> Self:
        self._live.start()
        # In the event loop and not in a thread of Rich's: trees are not thread-safe.
        self._redrawing = asyncio.create_task(self._redraw())
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._redrawing is not None:
            self._redrawing.cancel()
            with suppress(asyncio.CancelledError):
                await self._redrawing
        self._live.stop()

    async def _redraw(self) -> None:
        while True:
            self._live.update(self.screen(), refresh=True)
            await asyncio.sleep(REDRAW_S)


def spinning(doing: str, since_s: float) -> Text:
    """A spinner, what is being done, and for how long."""
    now = time.monotonic()
    frame = _FRAMES[int(now * _FRAMES_PER_S) % len(_FRAMES)]
    return Text.assemble((frame, "cyan"), f" {doing} ", (duration(now - since_s), "dim"))
