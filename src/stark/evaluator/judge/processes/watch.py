"""Reads from /proc what a process tree uses: memory, processes and threads.

On a kernel that does not list children, only the root process is seen.
"""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

_OWN_PAGES = re.compile(r"^Rss(?:Anon|Shmem):\s+(\d+) kB$", re.MULTILINE)
_OWN_SHARE = re.compile(r"^Pss_(?:Anon|Shmem):\s+(\d+) kB$", re.MULTILINE)

_PROCESSOR = 36
"""Index of the last core among the fields of `/proc/PID/stat` after the name."""

MAX_PROCESSES = 4096
"""Processes read per tree at most, in case it grows faster than it is read."""


@dataclass(frozen=True)
class Use:
    """What a process tree uses."""

    processes: frozenset[int]
    memory_bytes: int
    """Resident memory without file mappings. Counts what forks share with their parents
    repeatedly."""

    tasks: int
    """Processes and threads."""


def use_of_tree(root: int) -> Use:
    """What a process and its descendants use now; nothing for a process that is gone."""
    memory, tasks = 0, 0
    waiting, seen = [root], {root}
    while waiting and len(seen) < MAX_PROCESSES:
        place = Path(f"/proc/{waiting.pop()}")
        with suppress(OSError, ValueError):
            memory += _kilobytes(_OWN_PAGES, place, "status") << 10
            for task in (place / "task").iterdir():
                tasks += 1
                found = {int(pid) for pid in (task / "children").read_text().split()} - seen
                seen |= found
                waiting += found
    return Use(frozenset(seen), memory, tasks)


def waits_s(pid: int) -> dict[str, float]:
    """Seconds that each thread of a process waited for a core; empty if the kernel reports none."""
    waits = {}
    for task in Path(f"/proc/{pid}/task").glob("*"):
        waited_s = _waited_s(task)
        if waited_s is not None:
            waits[task.name] = waited_s
    return waits


def _waited_s(task: Path) -> float | None:
    with suppress(OSError, ValueError, IndexError):
        return int((task / "schedstat").read_text().split()[1]) / 1e9
    return None


def last_core(pid: int) -> int | None:
    """The core that a process's main thread ran on last; None if the kernel does not report it."""
    with suppress(OSError, ValueError, IndexError):
        fields = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(") ")[2].split()
        return int(fields[_PROCESSOR])
    return None


def exact_memory_bytes(use: Use) -> int:
    """The same memory with shared pages divided among their users. Slower; used near a limit."""
    total = 0
    for pid in use.processes:
        try:
            total += _kilobytes(_OWN_SHARE, Path(f"/proc/{pid}"), "smaps_rollup") << 10
        except PermissionError:
            return use.memory_bytes
    return total


def _kilobytes(fields: re.Pattern[str], process: Path, name: str) -> int:
    """The sum of these fields for a process, or for any of its threads if the main one has ended.

    Raises PermissionError.
    """
    try:
        places = (process, *process.glob("task/*"))
    except FileNotFoundError:
        return 0  # the process has ended
    for place in places:
        try:
            found = fields.findall((place / name).read_text(errors="replace"))
        except PermissionError:
            raise
        except OSError:
            continue
        if found:
            return sum(map(int, found))
    return 0
