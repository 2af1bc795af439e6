"""Reads from /proc what a process tree uses: memory, processes and threads.

Some systems, such as gVisor, do not list the children of a process. There the parents of all processes are read.
This is done for every running child at every look, so by the plainest calls: `pathlib` takes several times as long.
"""

from __future__ import annotations

import os
import re
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

_OWN_PAGES = re.compile(rb"^Rss(?:Anon|Shmem):\s+(\d+) kB$", re.MULTILINE)
_OWN_SHARE = re.compile(rb"^Pss_(?:Anon|Shmem):\s+(\d+) kB$", re.MULTILINE)

_STATE, _PARENT, _PROCESSOR = 0, 1, 36
"""Indices in `/proc/PID/stat`, counted from 0 at the first field after the process's name: state, parent, last used core."""

CHILDREN = "children"
"""The file of a thread in which Linux lists the processes that the thread started."""

MAX_PROCESSES = 4096
"""Maximum number of processes to read, in case a tree grows faster than it is read."""


@dataclass(frozen=True)
class Use:
    """What a process tree uses."""

    processes: frozenset[int]
    memory_bytes: int
    """Resident memory without file mappings; what processes share after a fork counts for each."""

    tasks: int
    """Processes and threads."""


def use_of_tree(root: int) -> Use:
    """What a process and its descendants use now; nothing for a process that is gone."""
    memory, tasks = 0, 0
    waiting, seen = [root], {root}
    while waiting and len(seen) < MAX_PROCESSES:
        pid = waiting.pop()
        with suppress(PermissionError):
            memory += _bytes(_OWN_PAGES, pid, "status")
        tasks += len(threads_of(pid))
        found = children_of(pid) - seen
        waiting += found
        seen |= found
    return Use(frozenset(seen), memory, tasks)


def children_of(pid: int) -> set[int]:
    """The numbers of a process's children."""
    if Path("/proc/thread-self", CHILDREN).exists():
        lists = (read(f"/proc/{pid}/task/{thread}/{CHILDREN}") for thread in threads_of(pid))
        return {int(child) for listed in lists for child in listed.split()}
    return {int(other) for other in _entries("/proc") if parent_of(other) == pid}


def threads_of(pid: int) -> list[str]:
    """The numbers of a process's threads; none if it is gone."""
    return _entries(f"/proc/{pid}/task")


def parent_of(pid: int | str) -> int | None:
    """The number of a process's parent; None if the process is gone."""
    fields = _stat(f"/proc/{pid}")
    return int(fields[_PARENT]) if fields else None


def state_of(place: str) -> str:
    """Linux's letter for the state of a thread, whose folder this is; that of one that has ended if it is gone."""
    fields = _stat(place)
    return fields[_STATE].decode() if fields else "X"


def last_core(pid: int) -> int | None:
    """The core that a process's main thread ran on last; None if Linux does not report it."""
    fields = _stat(f"/proc/{pid}")
    return int(fields[_PROCESSOR]) if len(fields) > _PROCESSOR else None


def exact_memory_bytes(use: Use) -> int:
    """Resident memory without file mappings, with shared pages divided among their processes.

    Slower than `Use.memory_bytes`, so it is used only near a limit. Returns `Use.memory_bytes` if
    reading the details is not permitted.
    """
    try:
        return sum(_bytes(_OWN_SHARE, pid, "smaps_rollup") for pid in use.processes)
    except PermissionError:
        return use.memory_bytes


def read(place: str) -> bytes:
    """What a file of /proc says; nothing if its process is gone. Raises PermissionError."""
    try:
        with open(place, "rb", buffering=0) as file:  # noqa: PTH123
            return file.read()
    except PermissionError:
        raise
    except OSError:
        return b""


def _entries(folder: str) -> list[str]:
    """What a folder of /proc lists under a number."""
    with suppress(OSError):
        return [name for name in os.listdir(folder) if name.isdecimal()]  # noqa: PTH208
    return []


def _stat(place: str) -> list[bytes]:
    with suppress(PermissionError):
        return read(f"{place}/stat").rpartition(b") ")[2].split()
    return []


def _bytes(fields: re.Pattern[bytes], pid: int, name: str) -> int:
    """The sum of these fields of a process. Another thread's file is read if the main thread has ended.

    All threads of a process share its memory, so each of them shows the same numbers. Raises PermissionError.
    """
    found = fields.findall(read(f"/proc/{pid}/{name}"))
    for thread in [] if found else threads_of(pid):
        found = found or fields.findall(read(f"/proc/{pid}/task/{thread}/{name}"))
    return sum(map(int, found)) << 10
