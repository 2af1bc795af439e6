"""What AddressSanitizer can see of a program: its inputs' bounds, and which of its code is checked.

Tensors are copied into memory of their own, between stretches that nobody may touch. This works only in a process
into which AddressSanitizer's library was loaded first.
"""

from __future__ import annotations

import ctypes
import mmap
import sys
from pathlib import Path
from typing import Any

import torch

from stark.evaluator.candidate.arena import Slot

LEAST_BYTES, MOST_BYTES = 64 << 10, 64 << 20
"""Bounds of the stretch before and after a tensor, in bytes. Between them it is as long as the tensor, so that an index
that is wrong by a row or by an image is noticed too."""

GUARDED, UNCHECKED = "guarded input", "unchecked library"
"""First words of the lines that are printed for the judge. A guarded tensor's address, bytes and form follow, or a
library's name."""

_kept: list[mmap.mmap] = []
"""The memory, which must outlive the tensors."""


def guarded(tensor: torch.Tensor) -> torch.Tensor:
    """A copy of a CPU tensor with the same strides, in guarded memory, whose place is printed.

    A tensor whose elements share memory becomes a full one. A tensor without elements is returned as it is.
    """
    if tensor.numel() == 0:
        return tensor
    place = Slot.of(torch.empty_like(tensor, device="meta"))
    size, page = place.size, mmap.PAGESIZE
    guard = -(-min(max(size, LEAST_BYTES), MOST_BYTES) // page) * page
    memory = mmap.mmap(-1, guard + size + guard)
    _kept.append(memory)
    start = ctypes.addressof(ctypes.c_char.from_buffer(memory)) + guard
    block: Any = (ctypes.c_char * size).from_address(start)
    copy = place.view(torch.frombuffer(block, dtype=torch.uint8)).copy_(tensor)
    poison = ctypes.CDLL(None).__asan_poison_memory_region
    poison.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
    poison(start - guard, guard)
    poison(start + size, guard)
    dtype = str(place.dtype).removeprefix("torch.")
    _say(f"{GUARDED} {start:#x} {size} {dtype}{list(place.shape)}")
    return copy


def print_unchecked(folder: Path) -> None:
    """Print the name of each library in a program's folder that it has loaded and that was built without the checks."""
    mapped = (line.split(maxsplit=5) for line in Path("/proc/self/maps").read_text().splitlines())
    files = {Path(parts[5]) for parts in mapped if len(parts) == 6 and "x" in parts[1]}
    for file in sorted(file for file in files if file.is_relative_to(folder.resolve())):
        if not file.is_file() or b"__asan_" not in file.read_bytes():
            _say(f"{UNCHECKED} {file.name}")


def _say(line: str) -> None:
    """Print a line at once: the process may end without flushing."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()
