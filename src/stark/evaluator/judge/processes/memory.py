"""Reads the memory of a process that stands still: what it holds now, and not what it would say or compute.

Linux only; allowed to whoever may trace the process, which the judge may with its own children.
"""

from __future__ import annotations

import ctypes
from pathlib import Path


class _Span(ctypes.Structure):
    _fields_ = [("base", ctypes.c_void_p), ("size", ctypes.c_size_t)]


_libc = ctypes.CDLL(None, use_errno=True)
_libc.process_vm_readv.restype = ctypes.c_ssize_t


def copy_memory(pid: int, source: int, target: int, size: int) -> bool:
    """Copy bytes from an address of a process to an address of this one; false where there are none to read."""
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


def last_of_line(pid: int) -> int:
    """The process at the end of a line in which each has one child: who works, below who keeps watch."""
    while True:
        children = [
            int(child)
            for listed in Path(f"/proc/{pid}/task").glob("*/children")
            for child in listed.read_text().split()
        ]
        if len(children) != 1:
            return pid
        pid = children[0]
