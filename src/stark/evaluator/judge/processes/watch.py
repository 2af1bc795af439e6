"""Reads from /proc what a process tree uses: memory, processes and threads.

Some systems, such as gVisor, do not list the children of a process. There the parents of all processes are read.
"""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

_OWN_PAGES = re.compile(r"^Rss(?:Anon|Shmem):\s+(\d+) kB$", re.MULTILINE)
_OWN_SHARE = re.compile(r"^Pss_(?:Anon|Shmem):\s+(\d+) kB$", re.MULTILINE)

_PARENT, _PROCESSOR = 1, 36
"""Indices in `/proc/PID/stat`, counted from 0 at the first field after the process's name: parent, last used core."""

CHILDREN = "children"
"""The file of a thread in which Linux lists the processes that the thread started."""

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
        pid = waiting.pop()
        place = Path(f"/proc/{pid}")
        with suppress(OSError, ValueError):
            memory += _kilobytes(_OWN_PAGES, place, "status") << 10
            tasks += len(list((place / "task").iterdir()))
            found = children_of(pid) - seen
            waiting += found
            seen |= found
    return Use(frozenset(seen), memory, tasks)


def children_of(pid: int) -> set[int]:
    """The numbers of a running process's children."""
    lists = list(Path(f"/proc/{pid}/task").glob(f"*/{CHILDREN}"))
    if lists:
        return {int(child) for listed in lists for child in listed.read_text().split()}
    found = set()
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError, ValueError, IndexError):
            if parent_of(process.name) == pid:
                found.add(int(process.name))
    return found


def parent_of(pid: int | str) -> int:
    """The number of a process's parent. Raises OSError if the process is gone."""
    return int(_stat(pid)[_PARENT])


def last_core(pid: int) -> int | None:
    """The core that a process's main thread ran on last; None if Linux does not report it."""
    with suppress(OSError, ValueError, IndexError):
        return int(_stat(pid)[_PROCESSOR])
    return None


def _stat(pid: int | str) -> list[str]:
    return Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(") ")[2].split()


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
