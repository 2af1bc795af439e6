"""A bench: many runs under one name, laid out before any of them begins."""

from __future__ import annotations

from datetime import datetime

from stark.core.base import Frozen
from stark.core.usage import Budget


class Cell(Frozen):
    """One place of the grid problem x strategy x seed, and the run that fills it."""

    problem: str
    """The problem's name."""

    level: str
    """What the suite groups its problems by: a KernelBench level, or a folder."""

    strategy: str
    seed: int
    run_id: str


class Bench(Frozen):
    """The grid of a bench and what it may spend."""

    name: str
    created: datetime
    cells: tuple[Cell, ...]
    attempts: int
    """Of each run; a run that was given more later counts up to here."""

    budget: Budget
    """Of all runs together; the minutes are those of one session."""
