"""Defines a bench: a named grid of runs, all created before the first one starts."""

from __future__ import annotations

from datetime import datetime

from stark.core.base import Frozen
from stark.core.usage import Budget


class Cell(Frozen):
    """One cell of the grid of problems, strategies and seeds, with its run."""

    problem: str
    level: str
    """The group of the problem: a KernelBench level, or a folder."""

    strategy: str
    seed: int
    run_id: str


class Bench(Frozen):
    """The grid of a bench and its budget."""

    name: str
    created: datetime
    cells: tuple[Cell, ...]
    attempts: int
    """Attempts per run. Of a run that was extended later, only the first `attempts` count."""

    budget: Budget
    """The limits of all runs together. `minutes` counts anew each time the bench is resumed."""
