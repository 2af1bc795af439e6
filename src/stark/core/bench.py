"""Defines a bench: a named grid of runs, all created before the first one starts."""

from __future__ import annotations

from datetime import datetime

from stark.core.base import Frozen
from stark.core.usage import Budget


class Cell(Frozen):
    """One cell of the grid problem x strategy x seed, with its run."""

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
    """Per run. If a run was extended later, only its first `attempts` count."""

    budget: Budget
    """For all runs together; the minutes limit one session."""
