"""What a child and everything started below it use, read from /proc: memory, processes and threads.

Reads only what the kernel says. A machine that does not list children shows the leading process alone.
"""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

_OWN_PAGES = re.compile(r"^Rss(?:Anon|Shmem):\s+(\d+) kB$", re.MULTILINE)
_OWN_SHARE = re.compile(r"^Pss_(?:Anon|Shmem):\s+(\d+) kB$", re.MULTILINE)

_PROCESSOR = 36
"""Place of the core in a process's `stat`, counted from its state, which follows the name."""

MOST_LOOKED_AT = 4096
"""Processes in one tree, in case one grows faster than it is read."""


@dataclass(frozen=True)
class Use:
    """Of a whole tree of processes."""

    processes: frozenset[int]
    memory_bytes: int
    """Resident, without what is mapped from files. What a fork shares with its parent counts twice."""

    tasks: int
    """Processes and threads."""


def use_of_tree(root: int) -> Use:
    """What a process and its descendants use now; nothing for a process that is gone."""
    memory, tasks = 0, 0
    waiting, seen = [root], {root}
    while waiting and len(seen) < MOST_LOOKED_AT:
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
    """How long each thread of a process has waited for a core while it could have run; empty where the kernel does not say."""
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
    """The core that the first thread of a process ran on last; None where the kernel does not say."""
    with suppress(OSError, ValueError, IndexError):
        fields = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(") ")[2].split()
        return int(fields[_PROCESSOR])
    return None


def exact_memory_bytes(use: Use) -> int:
    """The same memory with every shared page divided among those who share it; slower, so for when it matters."""
    total = 0
    for pid in use.processes:
        try:
            total += _kilobytes(_OWN_SHARE, Path(f"/proc/{pid}"), "smaps_rollup") << 10
        except PermissionError:
            return use.memory_bytes
    return total


def _kilobytes(fields: re.Pattern[str], process: Path, name: str) -> int:
    """What a process says there, or any of its threads: its first one may have ended, and says nothing then.

    Raises PermissionError.
    """
    try:
        places = (process, *process.glob("task/*"))
    except FileNotFoundError:
        return 0  # it ended meanwhile, as any of them may
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
