"""Describes what a child process may see and use, and checks that it does not use more."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from pathlib import Path

from stark.evaluator.candidate.confine import Place
from stark.evaluator.candidate.sandbox.bounds import max_processes
from stark.evaluator.judge.processes.failures import ChildFailed
from stark.evaluator.judge.processes.folders import excess
from stark.evaluator.judge.processes.memory import unlinked_bytes
from stark.evaluator.judge.processes.watch import exact_memory_bytes, use_of_tree

FOLDER_POLL_S = 1.0
"""Seconds between two checks of a child's folders. These checks take longer than the others."""


@dataclass(frozen=True)
class Allowance:
    """What a child may see and use."""

    place: Place
    memory_gb: float
    """Maximum memory of the child and its descendants, in addition to what the child starts with."""

    output_kb: int
    """Kilobytes of its output to keep."""

    watched: list[Path] = field(default_factory=list)
    """Further folders that its processes write to, each with the same limits as its own. More can be added later."""

    attaches: bool = True
    """Whether the child, before it runs a program, maps memory that the judge shares with it."""


class Use:
    """What a child and its descendants use."""

    def __init__(self, pid: int, allowed: Allowance) -> None:
        self._pid, self._allowed = pid, allowed
        self._began_with_bytes = use_of_tree(pid).memory_bytes
        self._folder_due = time.monotonic() + FOLDER_POLL_S

    def check(self) -> None:
        """Raise ChildFailed if the child and its descendants use more than allowed."""
        used = use_of_tree(self._pid)
        limit = self._allowed.memory_gb * 1e9
        # The exact figure divides what they share with the forkserver, so nothing is taken off it.
        if used.memory_bytes - self._began_with_bytes > limit and exact_memory_bytes(used) > limit:
            error = f"it used more than {self._allowed.memory_gb:g} GB of memory"
            raise ChildFailed("out_of_memory", error)
        if used.tasks > max_processes():
            error = f"it started more than {max_processes()} processes and threads"
            raise ChildFailed("crashed", error)
        if time.monotonic() < self._folder_due:
            return
        unlinked = unlinked_bytes(used.processes)
        for folder in (Path(self._allowed.place.folder), *self._allowed.watched):
            if (too_much := excess(folder, unlinked)) is not None:
                raise ChildFailed("crashed", f"it wrote {too_much}")
        self._folder_due = time.monotonic() + FOLDER_POLL_S
