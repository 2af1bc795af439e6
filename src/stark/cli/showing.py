"""Shows work in progress: as a live screen on a terminal, as lines elsewhere."""

from __future__ import annotations

import asyncio
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager, nullcontext, suppress
from typing import Any, Generic, TypeVar

from rich.console import Console, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from stark.cli.interrupt import run_interruptibly
from stark.core.errors import StarkError, UsageError
from stark.explain.numbers import duration
from stark.explain.run import price, tokens
from stark.ledger import Ledger

REDRAW_S = 0.1
FRAME_LINES = 8
"""Lines of a screen besides those of the tree or of the runs in flight."""

NARROW = 100
"""On a screen with fewer columns, the progress bar is left out."""

_FRAMES = Spinner("dots").frames

Happening = TypeVar("Happening")
Begun = TypeVar("Begun")
Result = TypeVar("Result")


class View(ABC, Generic[Happening]):
    """Shows what happens. It depends on events only, not on the store, and changes nothing."""

    def __init__(self, console: Console) -> None:
        self._console = console

    @abstractmethod
    def handle(self, event: Happening) -> None:
        """Show an event, or note it for the next drawing."""

    def _say(self, line: str, style: str = "") -> None:
        self._console.print(Text(line, style), soft_wrap=True)


class Screen(View[Happening]):
    """A view that is redrawn ten times a second."""

    @abstractmethod
    def screen(self) -> RenderableType:
        """The current content of the screen."""

    @asynccontextmanager
    async def drawn(self) -> AsyncIterator[None]:
        """Draw the screen while the block lasts."""
        with Live(console=self._console, auto_refresh=False, transient=True) as live:
            # In the event loop and not in a thread of Rich's: trees are not thread-safe.
            redrawing = asyncio.create_task(self._redraw(live))
            try:
                yield
            finally:
                redrawing.cancel()
                with suppress(asyncio.CancelledError):
                    await redrawing

    async def _redraw(self, live: Live) -> None:
        while True:
            live.update(self.screen(), refresh=True)
            await asyncio.sleep(REDRAW_S)


def run_shown(
    work: Callable[..., Coroutine[Any, Any, Result]],
    view: View[Happening],
    begun: type[Begun],
    how_to_resume: Callable[[Begun, StarkError], str],
) -> Result:
    """Run `work` to its end while `view` shows its events; returns the result.

    An error that is raised after an event of type `begun` gets a note on how to resume, unless it is a UsageError.
    """
    begins: list[Begun] = []

    def on_event(event: Happening) -> None:
        if isinstance(event, begun):
            begins.append(event)
        view.handle(event)

    async def watched() -> Result:
        async with view.drawn() if isinstance(view, Screen) else nullcontext():
            return await work(on_event=on_event)

    try:
        return run_interruptibly(watched())
    except StarkError as stop:
        if begins and not isinstance(stop, UsageError):  # resuming would not help
            stop.add_note(how_to_resume(begins[0], stop))
        raise


def spinning(doing: str, since_s: float) -> Text:
    """A spinner, what is being done, and for how long."""
    now = time.monotonic()
    frame = _FRAMES[int(now / REDRAW_S) % len(_FRAMES)]
    return Text.assemble((frame, "cyan"), f" {doing} ", (duration(now - since_s), "dim"))


def cut(line: str, style: str = "dim") -> Text:
    """One line, with an ellipsis where the screen ends."""
    return Text(line, style, no_wrap=True, overflow="ellipsis")


def spent_row(ledger: Ledger, attempts: int, made: Sequence[str], columns: int) -> RenderableType:
    """One line with time, price, `made` and tokens, and their limits; its end is cut off if the screen is too narrow.

    On a wide screen, a progress bar of the attempts precedes the line.
    """
    budget, spent = ledger.budget, ledger.spent
    minutes = "" if budget.minutes is None else f" of {budget.minutes:g} min"
    dollars = "" if budget.dollars is None else f" of ${budget.dollars:.2f}"
    most_tokens = "" if budget.tokens is None else f" of {budget.tokens:,}"
    time_and_price = (duration(ledger.elapsed_s) + minutes, price(spent) + dollars)
    said = cut(" · ".join((*time_and_price, *made, tokens(spent) + most_tokens)), "")
    if columns < NARROW:
        return said
    row = Table.grid(padding=(0, 2, 0, 0))
    row.add_row(ProgressBar(budget.attempts, attempts, width=20), said)
    return row
