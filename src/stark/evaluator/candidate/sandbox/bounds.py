"""Resource limits of a process and its descendants: files, memory, processor time, processes."""

from __future__ import annotations

import os
import resource
import time
from contextlib import suppress
from pathlib import Path

FILE_BYTES = 4 << 30
"""Maximum size of a file, in bytes."""

OPEN_FILES = 1024

AUTOGROUP = Path("/proc/self/autogroup")
"""Linux may share the cores among sessions. A scheduling policy then counts only within this process's session."""

LEAST = "19"
"""The nice value with the least share."""

TRIES, PAUSE_S = 20, 0.05
"""How often it is set: Linux allows ordinary users one change in 0.1 s, on the whole machine."""


def bound(memory_bytes: int | None, cpu_s: int | None) -> None:
    """Lower the limits that apply to every candidate; for the arguments, see `confine.Place`."""
    lower(resource.RLIMIT_CORE, 0)
    lower(resource.RLIMIT_FSIZE, FILE_BYTES)
    lower(resource.RLIMIT_NOFILE, OPEN_FILES)
    if memory_bytes is not None:
        mapped_pages = int(Path("/proc/self/statm").read_text().split()[0])
        lower(resource.RLIMIT_AS, mapped_pages * resource.getpagesize() + memory_bytes)
    if cpu_s is not None:
        lower(resource.RLIMIT_CPU, cpu_s)


def yield_cores() -> None:
    """Leave the cores to other processes, as far as the system allows it. Call it in a session of its own."""
    with suppress(OSError):  # gVisor and strict filters of system calls refuse it
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    with suppress(OSError):  # this Linux has no such groups, or lets nobody change them
        for _ in range(TRIES):
            with suppress(BlockingIOError):
                AUTOGROUP.write_text(LEAST)
                return
            time.sleep(PAUSE_S)


def lower(limit: int, wanted: int) -> None:
    """Lower a resource limit. A lower limit that is already in force stays."""
    _, hard = resource.getrlimit(limit)
    value = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    resource.setrlimit(limit, (value, value))


def max_processes() -> int:
    """Processes and threads that one candidate may have, enough for several OpenMP teams."""
    return 512 + 8 * (os.cpu_count() or 1)
