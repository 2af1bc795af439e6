"""What a child does to itself before it touches a candidate: its own session, bounds, folder and environment.

Not covered here: file-system and system-call filters.
"""

from __future__ import annotations

import ctypes
import os
import resource
import signal
from pathlib import Path

_PR_SET_PDEATHSIG = 1
_CLONE_NEWUSER = 0x10000000
_CLONE_NEWNET = 0x40000000

FILE_LIMIT_BYTES = 4 << 30
OPEN_FILES = 1024


def confine(
    folder: Path, environment: dict[str, str], memory_bytes: int | None, output: int, parent: int
) -> None:
    """Make this freshly forked process a child that can be killed whole and holds no secrets.

    `memory_bytes` bounds address space beyond what is mapped now (None where that breaks the
    device's driver); `output` becomes stdout and stderr; the child dies with `parent`.
    """
    os.setsid()
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)
    # A network namespace of its own has no interface but a loopback that is down. Where the
    # machine forbids it the child still runs; `stark doctor` tells.
    libc.unshare(_CLONE_NEWUSER | _CLONE_NEWNET)
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    empty = os.open(os.devnull, os.O_RDONLY)
    for target, source in ((0, empty), (1, output), (2, output)):
        os.dup2(source, target)
    _bound(resource.RLIMIT_CORE, 0)
    _bound(resource.RLIMIT_FSIZE, FILE_LIMIT_BYTES)
    _bound(resource.RLIMIT_NOFILE, OPEN_FILES)
    if memory_bytes is not None:
        _bound(resource.RLIMIT_AS, _mapped_bytes() + memory_bytes)


def _bound(limit: int, wanted: int) -> None:
    """Lower a limit; a machine that already has a lower one keeps it."""
    _, hard = resource.getrlimit(limit)
    value = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    resource.setrlimit(limit, (value, value))


def _mapped_bytes() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    return pages * resource.getpagesize()
