"""Keeps the server small: memory that a large run once needed goes back to the system."""

from __future__ import annotations

import ctypes
import gc
from contextlib import suppress

_ARENA_MAX = -8
"""`M_ARENA_MAX` of the C library's mallopt."""


def give_back_memory() -> None:
    """Return what the allocator holds without use. Does nothing where the C library has no way to do so."""
    gc.collect()
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)


def share_one_heap() -> None:
    """Let threads that start later use the first one's heap: what one frees, another uses. Only the GNU C library can."""
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).mallopt(_ARENA_MAX, 1)
