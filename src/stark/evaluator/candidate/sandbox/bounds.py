"""Resource limits of a process and what it starts: files, memory, time, and how many they may be."""

from __future__ import annotations

import os
import resource
from pathlib import Path

FILE_BYTES = 4 << 30
OPEN_FILES = 1024


def bound(memory_bytes: int | None, cpu_s: int | None) -> None:
    """Lower the limits that hold for any candidate.

    `memory_bytes` is address space beyond what is mapped now, None where that breaks a device's
    driver; `cpu_s` is processor time of one process, None for one that lives as long as its judge.
    """
    lower(resource.RLIMIT_CORE, 0)
    lower(resource.RLIMIT_FSIZE, FILE_BYTES)
    lower(resource.RLIMIT_NOFILE, OPEN_FILES)
    if memory_bytes is not None:
        lower(resource.RLIMIT_AS, _mapped_bytes() + memory_bytes)
    if cpu_s is not None:
        lower(resource.RLIMIT_CPU, cpu_s)


def lower(limit: int, wanted: int) -> None:
    """Lower a limit; a machine that already has a lower one keeps it."""
    _, hard = resource.getrlimit(limit)
    value = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    resource.setrlimit(limit, (value, value))


def most_processes() -> int:
    """Processes and threads that one candidate may have: an OpenMP team or a compiler's, several times over."""
    return 512 + 8 * (os.cpu_count() or 1)


def _mapped_bytes() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    return pages * resource.getpagesize()
