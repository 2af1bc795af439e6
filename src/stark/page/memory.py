"""Gives memory that is free in the process back to the system: a server that once read a large run need not keep it."""

from __future__ import annotations

import ctypes
import gc
from functools import cache


def give_back_memory() -> None:
    """Return what the allocator holds without use. Does nothing where the C library has no way to do so."""
    gc.collect()
    if (trim := _trim()) is not None:
        trim(0)


@cache
def _trim() -> ctypes._NamedFuncPointer | None:
    try:
        return ctypes.CDLL(None).malloc_trim
    except (OSError, AttributeError):
        return None
