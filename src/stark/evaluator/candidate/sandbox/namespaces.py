"""Linux namespaces: no network interfaces, no view of other processes, and a read-only file system.

All are created inside a user namespace. Creating one needs no privilege, but some machines forbid it.
When the first process of a process namespace ends, Linux kills the namespace's other processes. So no
process that a candidate starts outlives the candidate.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from stark.evaluator.candidate.sandbox import kernel

PID_LIMIT_SINCE = (6, 14)
"""From this version of Linux on, each process namespace has its own `pid_max`. In earlier versions, all share one."""

RESERVED_PIDS = 300
"""Number of low process ids that Linux does not reuse. They are added to the limit, because `pid_max` includes them."""

SHARED_MEMORY = Path("/dev/shm")
SHARED_MEMORY_OPTIONS = "size=1g,nr_inodes=4096,mode=1777"
"""Mount options of a child's own /dev/shm."""

SIGNALLED = 128
"""The exit code of a process that a signal ended is this number plus the signal's number, as in shells."""


def enter(processes: bool) -> None:
    """Move to a network namespace without interfaces and, with `processes`, to a process namespace.

    The process namespace applies only to later children. The user's id stays the same. Raises OSError
    if the machine forbids namespaces.
    """
    user, group = os.geteuid(), os.getegid()
    kernel.unshare(
        kernel.NEW_USER | kernel.NEW_NETWORK | (kernel.NEW_PROCESSES if processes else 0)
    )
    own = Path("/proc/self")
    (own / "setgroups").write_text("deny")
    (own / "uid_map").write_text(f"{user} {user} 1")
    (own / "gid_map").write_text(f"{group} {group} 1")


def fork_under_reaper() -> None:
    """Fork; only the child returns. The parent closes all files, reaps all orphans below it and ends when the child ends.

    Its code is the child's, or `SIGNALLED` plus the signal that ended it. If the parent is the first process of a process
    namespace, the namespace ends too.
    """
    kernel.adopt_orphans()
    runner = os.fork()
    if not runner:
        kernel.die_with_parent()
        return
    os.closerange(0, 1 << 16)
    while True:
        ended, status = os.wait()
        if ended == runner:
            code = os.waitstatus_to_exitcode(status)
            os._exit(code if code >= 0 else SIGNALLED - code)


def mount_own_proc() -> None:
    """Mount a /proc that shows only this process namespace. Raises OSError if that is forbidden."""
    _unshare_mounts()
    flags = kernel.MOUNT_NO_SUID | kernel.MOUNT_NO_DEVICES | kernel.MOUNT_NO_PROGRAMS
    kernel.mount("proc", Path("/proc"), "proc", flags)


def limit_processes(count: int) -> None:
    """Limit this namespace's processes and threads. Needs the namespace's own /proc and Linux `PID_LIMIT_SINCE`."""
    Path("/proc/sys/kernel/pid_max").write_text(str(RESERVED_PIDS + count))


def make_read_only(writable: Iterable[Path]) -> None:
    """Make every file system read-only except these folders, and mount a private /dev/shm.

    Afterwards, change to the working directory again: the process still refers to its old mount. Raises OSError.
    """
    _unshare_mounts()
    open_folders = [folder for folder in writable if folder.is_dir()]
    for folder in open_folders:
        kernel.mount(str(folder), folder, None, kernel.MOUNT_BIND)
    if SHARED_MEMORY.is_dir():
        flags = kernel.MOUNT_NO_SUID | kernel.MOUNT_NO_DEVICES
        kernel.mount("tmpfs", SHARED_MEMORY, "tmpfs", flags, SHARED_MEMORY_OPTIONS)
        open_folders.append(SHARED_MEMORY)
    kernel.set_read_only(Path("/"), True, recursive=True)
    for folder in open_folders:
        kernel.set_read_only(folder, False)


def _unshare_mounts() -> None:
    kernel.unshare(kernel.NEW_MOUNTS)
    kernel.mount("none", Path("/"), None, kernel.MOUNT_RECURSIVE | kernel.MOUNT_PRIVATE)
