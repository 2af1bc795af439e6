"""What a child may see and use, and whether it uses more."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

from stark.evaluator.candidate.sandbox.bounds import max_processes
from stark.evaluator.judge.processes.failures import ChildFailed
from stark.evaluator.judge.processes.folders import excess
from stark.evaluator.judge.processes.nameless import nameless_bytes
from stark.evaluator.judge.processes.watch import exact_memory_bytes, use_of_tree

FOLDER_POLL_S = 1.0
"""How often its folders are looked at, which takes longer than the rest."""


@dataclass(frozen=True)
class Allowance:
    """What a child may see and use."""

    folder: Path
    """Where it works, the only folder that it may write to."""

    environment: dict[str, str]
    memory_gb: float
    """Of itself and whatever it starts, beyond what it begins with."""

    output_kb: int
    readable: tuple[Path, ...] = ()
    """Files and folders beside its own and the system's."""

    watched: tuple[Path, ...] = ()
    """Folders beside its own that something in it writes to, and that may hold no more than that one."""

    bounds_address_space: bool = False
    """Whether each of its processes is held to the memory by the kernel; drivers and compilers do not bear it."""

    cpu_s: int | None = None
    """Processor time of each of its processes."""

    attaches: bool = True
    """Whether it maps the judge's memory before a program may run."""

    on_device: bool = False
    """Whether that memory is on a GPU, which some layers would keep it from."""


class Use:
    """What a child and all that it started use from here on."""

    def __init__(self, pid: int, allowed: Allowance) -> None:
        self._pid = pid
        self._allowed = allowed
        self._began_with_bytes = use_of_tree(pid).memory_bytes
        self._folder_due = time.monotonic() + FOLDER_POLL_S

    def check(self) -> None:
        """Raises ChildFailed if it is more than they may."""
        used = use_of_tree(self._pid)
        if self._is_too_much(used.memory_bytes) and self._is_too_much(exact_memory_bytes(used)):
            raise ChildFailed(
                "out_of_memory", f"it used over {self._allowed.memory_gb:g} GB of memory"
            )
        if used.tasks > max_processes():
            raise ChildFailed("crashed", f"it started over {max_processes()} processes and threads")
        if time.monotonic() >= self._folder_due:
            self._check_folders(used.processes)
            self._folder_due = time.monotonic() + FOLDER_POLL_S

    def _check_folders(self, processes: frozenset[int]) -> None:
        nameless = nameless_bytes(processes)
        for folder in (self._allowed.folder, *self._allowed.watched):
            too_much = excess(folder, nameless)
            if too_much is not None:
                raise ChildFailed("crashed", f"it wrote {too_much}")

    def _is_too_much(self, used_bytes: int) -> bool:
        return used_bytes - self._began_with_bytes > self._allowed.memory_gb * 1e9
