"""Waits for the process that runs the user's model: the command line itself imports no torch."""

from __future__ import annotations

from collections.abc import Coroutine, Sequence
from pathlib import Path
from typing import Any, TypeVar

from rich.text import Text

from stark.cli import consoles
from stark.cli.interrupt import run_interruptibly
from stark.core.problem import Problem
from stark.regions import asking
from stark.regions.results import Answer

Result = TypeVar("Result")


def asked_model(work: str, model: str, inputs: str | None, more: Sequence[str]) -> Answer:
    """See `asking.ask`."""
    return waited(asking.ask(work, model, inputs, more), model)


def load_or_capture(
    spec: str, inputs: str | None, kernelbench: Path | None, backward: bool = False
) -> Problem:
    """See `asking.load_or_capture`."""
    return waited(asking.load_or_capture(spec, inputs, kernelbench, backward), spec)


def waited(work: Coroutine[Any, Any, Result], model: str) -> Result:
    """The result of the work; a terminal shows a spinner meanwhile."""
    console = consoles.console(stderr=True)
    spinner = console.status(Text(f"running {model}"))
    if consoles.can_redraw(console):
        spinner.start()
    try:
        return run_interruptibly(work)
    finally:
        spinner.stop()
