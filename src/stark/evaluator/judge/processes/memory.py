"""Reads the memory of a stopped process directly, so the process cannot misreport what the memory holds.

Linux only. Needs the right to trace the process. The judge has this right for its own children.
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Sequence
from pathlib import Path

from stark.evaluator.judge.processes.watch import children_of

ARENA = "/memfd:stark-arena"
"""How Linux names the memory that a child shares with the judge."""

_MAPPING = re.compile(r"^([0-9a-f]+)-([0-9a-f]+) ...(.) ([0-9a-f]+) \S+ (\d+) *(.*)$", re.MULTILINE)
"""A line of `/proc/PID/maps`: addresses, shared or private, offset, inode and name."""


class _Span(ctypes.Structure):
    _fields_ = [("base", ctypes.c_void_p), ("size", ctypes.c_size_t)]


_libc = ctypes.CDLL(None, use_errno=True)
_libc.process_vm_readv.restype = ctypes.c_ssize_t


def copy_memory(pid: int, source: int, target: int, size: int) -> bool:
    """Copy bytes of another process to an address in this process. Returns whether that worked."""
    done = 0
    while done < size:
        ours = _Span(target + done, size - done)
        theirs = _Span(source + done, size - done)
        count = _libc.process_vm_readv(
            pid, ctypes.byref(ours), 1, ctypes.byref(theirs), 1, ctypes.c_ulong(0)
        )
        if count <= 0:
            return False
        done += count
    return True


def strange_memory(pid: int, spans: Sequence[tuple[int, int]], arena_at: int) -> str | None:
    """What lies in these spans (address and bytes) that is neither private memory nor the arena in its place.

    The arena is the memory shared with the judge, which was mapped at `arena_at`. A page of a file, or of other shared
    memory, can appear at many addresses though it was written once. Returns None if nothing is strange.
    """
    maps = Path(f"/proc/{pid}/maps").read_text(errors="replace")
    for begin, end, shared, offset, inode, name in _MAPPING.findall(maps):
        first, last = int(begin, 16), int(end, 16)
        if not any(address < last and first < address + size for address, size in spans if size):
            continue
        if inode == "0" and shared == "p":
            continue
        if name.startswith(ARENA) and shared == "s" and first - int(offset, 16) == arena_at:
            continue
        return "a mapped file or shared memory"
    return None


def innermost_process(pid: int) -> int:
    """The last process of a chain of processes with one child each.

    The last process runs the program. The others only reap processes that end.
    """
    while True:
        children = children_of(pid)
        if len(children) != 1:
            return pid
        (pid,) = children
