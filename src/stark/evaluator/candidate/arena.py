"""Memory that the judge owns and a child maps: it contains a program's inputs, weights and outputs.

On a CPU it is an anonymous file. On a GPU it is allocated by the driver, not by torch: a CUDA IPC
handle exposes an entire block of device memory, and torch's caching allocator would cut other tensors
from the same block. The driver, too, puts several small allocations into one block, so an arena's size
is a multiple of the driver's granularity.
"""

from __future__ import annotations

import fcntl
import mmap
import os
from dataclasses import dataclass
from types import SimpleNamespace

import torch

from stark.evaluator.candidate.driver import Driver

ALIGNMENT = 256
"""Alignment of a tensor's start, in bytes."""

GRANULARITY = 2 << 20
"""An arena's size is a multiple of this number of bytes."""

SEALS = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL
"""Seals that fix the size of a shared file and forbid further seals. A child could otherwise seal the file against
writing, and the next child could not map it."""


@dataclass(frozen=True)
class Slot:
    """The place of a tensor in an arena, with its dtype, shape and strides."""

    offset: int
    dtype: torch.dtype
    shape: tuple[int, ...]
    stride: tuple[int, ...]

    @classmethod
    def of(cls, form: torch.Tensor, offset: int = 0) -> Slot:
        """A place for a tensor like `form`."""
        return cls(offset, form.dtype, tuple(form.shape), tuple(form.stride()))

    @property
    def size(self) -> int:
        """Bytes from the start of the tensor's first element to the end of its last element."""
        if 0 in self.shape:
            return 0
        pairs = zip(self.shape, self.stride, strict=True)
        return (1 + sum((extent - 1) * step for extent, step in pairs)) * self.dtype.itemsize

    def view(self, block: torch.Tensor) -> torch.Tensor:
        """The tensor as a view of `block`, the arena's bytes."""
        flat = block[self.offset : self.offset + self.size].view(self.dtype)
        return flat.as_strided(self.shape, self.stride)


@dataclass(frozen=True)
class TensorAt:
    """Placeholder for a tensor inside a nested value. `index` is the tensor's position among the value's tensors."""

    index: int


def lay_out(forms: list[torch.Tensor], start: int = 0) -> tuple[list[Slot], int]:
    """Lay out tensors like `forms` from byte `start` on, with gaps, or two would be one. Returns slots and the first free byte."""
    slots, offset = [], start
    for form in forms:
        slots.append(Slot.of(form, offset))
        offset += (slots[-1].size // ALIGNMENT + 2) * ALIGNMENT
    return slots, offset


class Arena:
    """The arena in the judge, which owns the memory until `close`."""

    def __init__(self, size: int, device: torch.device) -> None:
        self.size = max(-(-size // GRANULARITY), 1) * GRANULARITY
        self.device = device
        self.descriptor: int | None = None
        if device.type == "cuda":
            self._pointer = Driver().allocate(self.size)
            self.handle = Driver().export(self._pointer).hex()
            self.block = bytes_at(self._pointer, self.size, device)
        else:
            self.handle = ""
            self.descriptor = os.memfd_create("stark-arena", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
            os.ftruncate(self.descriptor, self.size)
            # If a child shrank the file, the judge would die of SIGBUS when it read past the end.
            fcntl.fcntl(self.descriptor, fcntl.F_ADD_SEALS, SEALS)
            self.block = _mapped(self.descriptor, self.size)

    def close(self) -> None:
        """Free the memory. Tensors in it must not be used afterwards."""
        del self.block
        if self.descriptor is not None:
            os.close(self.descriptor)
        else:
            Driver().free(self._pointer)


def open_arena(
    size: int, device: torch.device, handle: str, descriptor: int | None
) -> torch.Tensor:
    """Map the judge's arena in a child. Returns the arena's bytes."""
    if descriptor is not None:
        return _mapped(descriptor, size)
    pointer = Driver().import_(bytes.fromhex(handle))
    return bytes_at(pointer, size, device)


def _mapped(descriptor: int, size: int) -> torch.Tensor:
    return torch.frombuffer(mmap.mmap(descriptor, size), dtype=torch.uint8)


def bytes_at(pointer: int, size: int, device: torch.device) -> torch.Tensor:
    """These bytes of a GPU's memory as a tensor."""
    form = {"shape": (size,), "typestr": "|u1", "data": (pointer, False), "version": 3}
    return torch.as_tensor(SimpleNamespace(__cuda_array_interface__=form), device=device)
