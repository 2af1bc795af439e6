"""Reads the memory of a stopped process directly, so the process cannot misreport what the memory holds.

Also finds deleted files that still use disk space, because processes keep them open or mapped. Linux only. Needs the
right to trace the process, which children of the forkserver give.
"""

from __future__ import annotations

import ctypes
import re
import stat
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from stark.evaluator.judge.processes.watch import children_of

ARENA = "/memfd:stark-arena"
"""How Linux names the memory that a child shares with the judge."""

_MAPPING = re.compile(r"^([0-9a-f]+)-([0-9a-f]+) ...(.) ([0-9a-f]+) \S+ (\d+) *(.*)$", re.MULTILINE)
"""A line of `/proc/PID/maps`."""

_SHARED_MEMORY = ("/memfd:", "/dev/zero ", "/SYSV")
"""How Linux names shared memory. It looks like deleted files, but counts as memory."""


_libc = ctypes.CDLL(None, use_errno=True)
_libc.process_vm_readv.restype = _libc.process_vm_writev.restype = ctypes.c_ssize_t
_SPAN = ctypes.c_size_t * 2  # struct iovec: address and size


def copy_memory(pid: int, there: int, here: int, size: int, write: bool = False) -> bool:
    """Copy bytes of another process to an address in this process, or with `write` from it. Returns whether that worked."""
    copy, done = _libc.process_vm_writev if write else _libc.process_vm_readv, 0
    while done < size:
        ours = _SPAN(here + done, size - done)
        theirs = _SPAN(there + done, size - done)
        count = copy(pid, ctypes.byref(ours), 1, ctypes.byref(theirs), 1, ctypes.c_ulong(0))
        if count <= 0:
            return False
        done += count
    return True


def strange_memory(
    pid: int, spans: Sequence[tuple[int, int]], arena_at: int, lent: Sequence[tuple[int, int]]
) -> str | None:
    """Say what these spans (address and bytes) contain besides private memory and tensors that the judge lends, or return None.

    The arena is the memory shared with the judge; it must lie where it was mapped, at `arena_at`. A span in it must lie within
    one of the tensors `lent`: elsewhere, a result may be there before the call. A page of a file, or of other shared memory,
    may be mapped at many addresses, so that one write fills all of them.
    """
    for begin, end, shared, offset, inode, name in _mappings(pid):
        inside = [(at, at + size) for at, size in spans if size and at < end and begin < at + size]
        of_arena = name.startswith(ARENA) and shared and begin - offset == arena_at
        if inside and (inode or shared) and not of_arena:
            return "a mapped file or shared memory"
        for at, to in inside if of_arena else ():
            if not any(start <= at and to <= start + size for start, size in lent):
                return "the judge's memory, not within one input or weight"
    return None


def addresses(at: object, count: int) -> list[int]:
    """The first `count` addresses that a program reports, with 0 for each invalid or missing one."""
    claims = [*(at if isinstance(at, list) else []), *[0] * count][:count]
    return [claim if isinstance(claim, int) and 0 <= claim < 1 << 64 else 0 for claim in claims]


def unlinked_bytes(processes: Iterable[int]) -> int:
    """Total bytes of the deleted files that the processes keep open or mapped. Each file counts once."""
    sizes: dict[int, int] = {}
    for pid in processes:
        with suppress(OSError):
            for inode, size in (*_unlinked_open(pid), *_unlinked_mapped(pid)):
                sizes[inode] = max(size, sizes.get(inode, 0))
    return sum(sizes.values())


def _unlinked_open(pid: int) -> Iterator[tuple[int, int]]:
    for descriptor in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(OSError):  # closed meanwhile
            found = descriptor.stat()
            unlinked = stat.S_ISREG(found.st_mode) and not found.st_nlink
            if unlinked and not str(descriptor.readlink()).startswith("/memfd:"):
                yield found.st_ino, found.st_size


def _unlinked_mapped(pid: int) -> Iterator[tuple[int, int]]:
    """The inode of each deleted file that a process has mapped, and the offset in it where the mapping ends."""
    for begin, end, _, offset, inode, name in _mappings(pid):
        if inode and name.endswith(" (deleted)") and not name.startswith(_SHARED_MEMORY):
            yield inode, offset + end - begin


def _mappings(pid: int) -> Iterator[tuple[int, int, bool, int, int, str]]:
    """Beginning, end, whether it is shared, offset, inode and name of each mapping of a process."""
    maps = Path(f"/proc/{pid}/maps").read_text(errors="replace")
    for begin, end, shared, offset, inode, name in _MAPPING.findall(maps):
        yield int(begin, 16), int(end, 16), shared == "s", int(offset, 16), int(inode), name


def innermost_process(pid: int) -> int:
    """The last process of a chain with one child each. It runs the program, and the others only reap processes that end."""
    while len(children := children_of(pid)) == 1:
        (pid,) = children
    return pid
