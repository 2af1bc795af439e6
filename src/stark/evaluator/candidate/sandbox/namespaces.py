"""Namespaces: a network without interfaces, processes that see no others, and a machine that is read-only.

All of it happens inside a user namespace, which needs no privilege where the machine allows it. A
process namespace ends whole with its first process, so nothing that a candidate starts can stay.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import NoReturn

from stark.evaluator.candidate.sandbox import kernel

PID_LIMIT_SINCE = (6, 14)
"""From this kernel on each process namespace has a `pid_max` of its own; before, it is the machine's."""

RESERVED_PIDS = 300
"""Numbers that a namespace gives out only once, so they do not count among those that live at one time."""

SHARED_MEMORY = Path("/dev/shm")
SHARED_MEMORY_OPTIONS = "size=1g,nr_inodes=4096,mode=1777"

SIGNALLED = 128
"""Added to a signal's number where an exit code says that one ended the process, as shells do."""


def enter(processes: bool) -> None:
    """Leave the machine's network for one without interfaces; with `processes`, children leave its processes.

    The user keeps its number. Raises OSError where the machine forbids it.
    """
    user, group = os.geteuid(), os.getegid()
    kernel.unshare(
        kernel.NEW_USER | kernel.NEW_NETWORK | (kernel.NEW_PROCESSES if processes else 0)
    )
    own = Path("/proc/self")
    (own / "setgroups").write_text("deny")
    (own / "uid_map").write_text(f"{user} {user} 1")
    (own / "gid_map").write_text(f"{group} {group} 1")


def leave_a_keeper() -> None:
    """Fork; the child returns. The parent stays to adopt and reap whatever is started below it, and ends with the child.

    As the first process of a namespace its end is the end of everything in it.
    """
    kernel.adopt_orphans()
    runner = os.fork()
    if runner:
        _keep(runner)
    kernel.die_with_parent()


def _keep(runner: int) -> NoReturn:
    """Hold nothing open, reap, and end as the runner did: with its code, or `SIGNALLED` and its signal."""
    os.closerange(0, 1 << 16)
    while True:
        ended, status = os.wait()
        if ended == runner:
            code = os.waitstatus_to_exitcode(status)
            os._exit(code if code >= 0 else SIGNALLED - code)


def mount_own_proc() -> None:
    """A /proc that shows this process namespace only. Raises OSError where the machine hides parts of its own."""
    kernel.unshare(kernel.NEW_MOUNTS)
    _keep_mounts_private()
    flags = kernel.MOUNT_NO_SUID | kernel.MOUNT_NO_DEVICES | kernel.MOUNT_NO_PROGRAMS
    kernel.mount("proc", Path("/proc"), "proc", flags)


def limit_processes(count: int) -> None:
    """How many processes and threads may live in this namespace. Needs its own /proc and `PID_LIMIT_SINCE`."""
    Path("/proc/sys/kernel/pid_max").write_text(str(RESERVED_PIDS + count))


def see_read_only(writable: Iterable[Path]) -> None:
    """See every file system read-only but for these folders, with a /dev/shm of its own. Raises OSError.

    The working folder must be entered anew afterwards: it is still the one that was seen before.
    """
    kernel.unshare(kernel.NEW_MOUNTS)
    _keep_mounts_private()
    open_folders = [folder for folder in writable if _is_folder(folder)]
    for folder in open_folders:
        kernel.mount(str(folder), folder, None, kernel.MOUNT_BIND)
    if _is_folder(SHARED_MEMORY):
        flags = kernel.MOUNT_NO_SUID | kernel.MOUNT_NO_DEVICES
        kernel.mount("tmpfs", SHARED_MEMORY, "tmpfs", flags, SHARED_MEMORY_OPTIONS)
        open_folders.append(SHARED_MEMORY)
    kernel.set_read_only(Path("/"), True, recursive=True)
    for folder in open_folders:
        kernel.set_read_only(folder, False)


def _keep_mounts_private() -> None:
    kernel.mount("none", Path("/"), None, kernel.MOUNT_RECURSIVE | kernel.MOUNT_PRIVATE)


def _is_folder(path: Path) -> bool:
    with suppress(OSError):
        return stat.S_ISDIR(path.stat().st_mode)
    return False
