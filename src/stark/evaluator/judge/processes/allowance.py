"""What a child may see and use, and the check that it does not use more."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

from stark.evaluator.candidate.sandbox.bounds import max_processes
from stark.evaluator.judge.processes.failures import ChildFailed
from stark.evaluator.judge.processes.folders import excess
from stark.evaluator.judge.processes.unlinked import unlinked_bytes
from stark.evaluator.judge.processes.watch import exact_memory_bytes, use_of_tree

FOLDER_POLL_S = 1.0
"""Seconds between two checks of its folders, which take longer than the other checks."""


@dataclass(frozen=True)
class Allowance:
    """What a child may see and use."""

    folder: Path
    """Its working folder, the only one that it may write to."""

    environment: dict[str, str]
    memory_gb: float
    """Memory of the child and its descendants, beyond what it starts with."""

    output_kb: int
    """Kilobytes of its output to keep."""

    readable: tuple[Path, ...] = ()
    """Files and folders that it may read beside its own and the system's."""

    watched: tuple[Path, ...] = ()
    """Further folders that a process in it writes to, each with the same limits as its own."""

    bounds_address_space: bool = False
    """Whether the kernel also limits each process's address space. Drivers do not tolerate that."""

    cpu_s: int | None = None
    """Seconds of processor time for each of its processes; None for no limit."""

    attaches: bool = True
    """Whether it maps the judge's memory before a program runs."""

    on_device: bool = False
    """Whether the shared memory is on a GPU, which some sandbox layers would make inaccessible."""


class Use:
    """What a child and its descendants use, counted from now on."""

    def __init__(self, pid: int, allowed: Allowance) -> None:
        self._pid = pid
        self._allowed = allowed
        self._began_with_bytes = use_of_tree(pid).memory_bytes
        self._folder_due = time.monotonic() + FOLDER_POLL_S

    def check(self) -> None:
        """Raises ChildFailed if they use more than allowed."""
        used = use_of_tree(self._pid)
        if self._is_too_much(used.memory_bytes) and self._is_too_much(exact_memory_bytes(used)):
            raise ChildFailed(
                "out_of_memory", f"it used more than {self._allowed.memory_gb:g} GB of memory"
            )
        if used.tasks > max_processes():
            raise ChildFailed(
                "crashed", f"it started more than {max_processes()} processes and threads"
            )
        if time.monotonic() >= self._folder_due:
            self._check_folders(used.processes)
            self._folder_due = time.monotonic() + FOLDER_POLL_S

    def _check_folders(self, processes: frozenset[int]) -> None:
        unlinked = unlinked_bytes(processes)
        for folder in (self._allowed.folder, *self._allowed.watched):
            too_much = excess(folder, unlinked)
            if too_much is not None:
                raise ChildFailed("crashed", f"it wrote {too_much}")

    def _is_too_much(self, used_bytes: int) -> bool:
        return used_bytes - self._began_with_bytes > self._allowed.memory_gb * 1e9
