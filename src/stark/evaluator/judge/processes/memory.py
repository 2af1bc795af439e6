"""Reads and marks the memory of a stopped process directly, so the process cannot misreport what it holds.

Linux only. Needs the right to trace the process. The judge has this right for its own children.
"""

from __future__ import annotations

import ctypes
import random
import secrets
from collections.abc import Callable, Sequence

from stark.evaluator.judge.processes.watch import children_of

PAGE_BYTES, WORD_BYTES = 4096, 8
MARKS = 4096
"""Most places that are marked. Of many pages, a random selection is."""

_MOST_SPANS = 1024
"""Most spans that Linux reads or writes in one call."""


class _Span(ctypes.Structure):
    _fields_ = [("base", ctypes.c_void_p), ("size", ctypes.c_size_t)]


_Transfer = Callable[..., int]
_libc = ctypes.CDLL(None, use_errno=True)
_libc.process_vm_readv.restype = ctypes.c_ssize_t
_libc.process_vm_writev.restype = ctypes.c_ssize_t


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


def shares_pages(pid: int, spans: Sequence[tuple[int, int]]) -> bool | None:
    """Whether the same memory appears at several addresses in these spans (address and bytes) of a stopped process.

    Marks a word in each page, reads all marks and puts the words back. Spans that are given twice count once.
    Returns None if the spans cannot be written.
    """
    words = sorted(
        {word for address, size in set(spans) if address for word in _words(address, size)}
    )
    if len(words) > MARKS:
        words = random.SystemRandom().sample(words, MARKS)
    if not words:
        return False
    size = len(words) * WORD_BYTES
    before, marks, found = (ctypes.create_string_buffer(size) for _ in range(3))
    marks.raw = secrets.token_bytes(size)
    if not _move(_libc.process_vm_readv, pid, words, before):
        return None
    try:
        if not _move(_libc.process_vm_writev, pid, words, marks):
            return None
        if not _move(_libc.process_vm_readv, pid, words, found):
            return None
    finally:
        _move(_libc.process_vm_writev, pid, words, before)
    return found.raw != marks.raw


def _words(address: int, size: int) -> list[int]:
    """The first whole word of each page of a span, each inside the span."""
    first = -(-address // WORD_BYTES) * WORD_BYTES
    starts = [first, *range((first // PAGE_BYTES + 1) * PAGE_BYTES, address + size, PAGE_BYTES)]
    return [word for word in starts if word + WORD_BYTES <= address + size]


def _move(
    transfer: _Transfer, pid: int, words: list[int], ours: ctypes.Array[ctypes.c_char]
) -> bool:
    """Move words between another process and a buffer here. Returns whether all were moved."""
    start = ctypes.addressof(ours)
    for begin in range(0, len(words), _MOST_SPANS):
        part = words[begin : begin + _MOST_SPANS]
        theirs = (_Span * len(part))(*(_Span(word, WORD_BYTES) for word in part))
        size = len(part) * WORD_BYTES
        here = _Span(start + begin * WORD_BYTES, size)
        moved = transfer(
            pid, ctypes.byref(here), 1, theirs, ctypes.c_ulong(len(part)), ctypes.c_ulong(0)
        )
        if moved != size:
            return False
    return True


def innermost_process(pid: int) -> int:
    """The last process of a chain of processes with one child each.

    The last process runs the program. The others only reap processes that end.
    """
    while True:
        children = children_of(pid)
        if len(children) != 1:
            return pid
        (pid,) = children
