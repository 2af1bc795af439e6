"""Reads from /proc what a process tree uses: memory, processes and threads.

If the Linux kernel does not list the children of processes, only the root process is read.
"""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

_OWN_PAGES = re.compile(r"^Rss(?:Anon|Shmem):\s+(\d+) kB$", re.MULTILINE)
_OWN_SHARE = re.compile(r"^Pss_(?:Anon|Shmem):\s+(\d+) kB$", re.MULTILINE)

_PROCESSOR = 36
"""Index of the last used core in `/proc/PID/stat`, counted from 0 at the first field after the process's name."""

MAX_PROCESSES = 4096
"""Maximum number of processes to read, in case a tree grows faster than it is read."""


@dataclass(frozen=True)
class Use:
    """What a process tree uses."""

    processes: frozenset[int]
    memory_bytes: int
    """Resident memory without file mappings. Memory that processes share after a fork counts once
    for each of them."""

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
    """Seconds that each thread of a process has waited for a core; empty if Linux reports none."""
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
    """The core that a process's main thread ran on last; None if Linux does not report it."""
    with suppress(OSError, ValueError, IndexError):
        fields = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(") ")[2].split()
        return int(fields[_PROCESSOR])
    return None


def exact_memory_bytes(use: Use) -> int:
    """Resident memory without file mappings, with shared pages divided among their processes.

    Slower than `Use.memory_bytes`, so it is used only near a limit. Returns `Use.memory_bytes` if
    reading the details is not permitted.
    """
    total = 0
    for pid in use.processes:
        try:
            total += _kilobytes(_OWN_SHARE, Path(f"/proc/{pid}"), "smaps_rollup") << 10
        except PermissionError:
            return use.memory_bytes
    return total


def _kilobytes(fields: re.Pattern[str], process: Path, name: str) -> int:
    """The sum of these fields of a process. Another thread's file is read if the main thread has ended.

    All threads of a process share its memory, so each of them shows the same numbers. Raises PermissionError.
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
