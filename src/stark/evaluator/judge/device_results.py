"""The results of calls on a GPU: where they lie in a program's memory, and how the judge reads their bytes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, TypeVar

import torch

from stark.core.errors import ProblemError
from stark.evaluator.candidate.arena import Slot, bytes_at
from stark.evaluator.candidate.driver import Driver
from stark.evaluator.judge.problem.twin import is_out_of_memory
from stark.evaluator.judge.shared import SharedSet

WORDS = (torch.int64, torch.int32, torch.int16, torch.uint8)
"""Types of copied words, the widest first."""

INVALID = (RuntimeError, ValueError, TypeError, OverflowError)
"""What `Places.reported` raises for places that do not exist or are refused."""

Outcome = TypeVar("Outcome")


@dataclass(frozen=True)
class Results:
    """The results of one call: where they lie, the judge's copies of their bytes, and their forms."""

    lying: list[torch.Tensor]
    read: list[torch.Tensor]
    forms: list[Slot]

    def tensors(self) -> list[torch.Tensor]:
        """The judge's copies."""
        return [form.view(read) for form, read in zip(self.forms, self.read, strict=True)]


class Places:
    """The places of one program's results. Close it when the results have been read."""

    def __init__(self, shared: SharedSet) -> None:
        self._shared = shared
        self._driver = Driver()
        self._opened: dict[str, int] = {}
        """What was mapped here, by its handle."""

    def reported(self, slot: int, at: Sequence[Any]) -> Results:
        """The results of a call on this slot, where the program reports them; in the slot, if it reports no places.

        The inputs that the reference changes count as results. Raises `INVALID`.
        """
        if not at:
            return self.in_slot(slot)
        lying, forms = [], []
        pairs = zip(self._shared.outputs[slot], self._shared.orders, at, strict=True)
        for output, order, (handle, offset, alike) in pairs:
            stride = order if alike is True else output.stride()
            form = Slot(0, output.dtype, tuple(output.shape), tuple(stride))
            place = str(handle), int(offset), form.size
            lying.append(self._bytes(*place) if form.size else _bytes_of(output))
            forms.append(form)
        return self._with_changes(slot, lying, forms)

    def in_slot(self, slot: int) -> Results:
        """The results of a call on this slot, which the program copies there."""
        outputs = self._shared.outputs[slot]
        return self._with_changes(slot, list(map(_bytes_of, outputs)), list(map(Slot.of, outputs)))

    def close(self) -> None:
        """Unmap all memory."""
        while self._opened:
            self._driver.unmap(self._opened.popitem()[1])

    def _bytes(self, handle: str, offset: int, size: int) -> torch.Tensor:
        """Bytes of the program's memory. Never of the arena, to which others write."""
        if handle == self._shared.arena.handle:
            raise ValueError("it reports a result in the arena")
        if handle not in self._opened:
            self._opened[handle] = self._driver.import_(bytes.fromhex(handle))
        base, all_bytes = self._driver.allocation_of(self._opened[handle])
        left = base + all_bytes - self._opened[handle]
        if not 0 <= offset <= left - size:
            raise ValueError("it reports a result outside its memory")
        whole = bytes_at(self._opened[handle], left, self._shared.program.device)
        return whole[offset : offset + size]

    def _with_changes(self, slot: int, lying: list[torch.Tensor], forms: list[Slot]) -> Results:
        changed = [self._shared.inputs[slot][index] for index in self._shared.program.changes]
        lying, forms = [*lying, *map(_bytes_of, changed)], [*forms, *map(Slot.of, changed)]
        read = retried(lambda: [torch.empty_like(each) for each in lying])
        return Results(lying, read, forms)


def retried(
    work: Callable[[], Outcome], free: Callable[[], object] = torch.cuda.empty_cache
) -> Outcome:
    """Run `work`; if memory is short, free some and run it again."""
    try:
        return work()
    except (ProblemError, torch.OutOfMemoryError) as error:
        if not is_out_of_memory(error):
            raise
    free()
    return work()


def copy_by_kernel(source: torch.Tensor, target: torch.Tensor) -> None:
    """Copy bytes by a kernel, not by a copy engine, in the widest words that fit."""
    if not source.numel():
        return
    of_both = source.data_ptr() | target.data_ptr() | source.numel()
    kind = next(kind for kind in WORDS if of_both % kind.itemsize == 0)
    torch.bitwise_or(source.view(kind), 0, out=target.view(kind))


@cache
def load_kernels(device: torch.device) -> None:
    """Have CUDA load every kernel that `copy_by_kernel` may launch: torch has one for each alignment."""
    for kind in WORDS:
        source, target = torch.ones(2, 1 << 13, dtype=kind, device=device)
        for first in (0, 1, 2, 4, 8, 16, 32):
            for into in (0, first):
                size = (1 << 13) - max(first, into)
                torch.bitwise_or(source[first : first + size], 0, out=target[into : into + size])
    torch.cuda.synchronize(device)


def _bytes_of(tensor: torch.Tensor) -> torch.Tensor:
    """The memory from a tensor's first to its last element."""
    if not tensor.numel():
        return tensor.new_empty(0, dtype=torch.uint8)
    return bytes_at(tensor.data_ptr(), Slot.of(tensor).size, tensor.device)
