"""Queues a program's calls on a GPU ahead of time. Each call waits there for a gate that the judge opens.

The gate and the answer to it are two words at the start of the arena. A call with the number n starts when the judge
has written n to the gate; after the call, n is written to the answer. So neither process's host code is timed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch

from stark.evaluator.candidate.arena import Slot
from stark.evaluator.candidate.driver import Driver
from stark.evaluator.candidate.wire import Message

GATE, DONE, WORDS_BYTES = 0, 256, 512
"""Places of the two words in an arena, and the bytes that they take there."""


class Queue:
    """The queue of one program. `outputs` have the forms and strides of the reference's outputs; their offsets do not count."""

    def __init__(self, block: torch.Tensor, outputs: Sequence[Slot]) -> None:
        self._driver = Driver()
        self._begin, self._end = block.data_ptr(), block.data_ptr() + block.numel()
        self._outputs = outputs
        self._filled: list[tuple[torch.Tensor, torch.Tensor]] = []
        """Memory that empty calls write to. Only a reference needs it, and not for long: it may be gigabytes."""

        self._marks: list[tuple[torch.cuda.Event, torch.cuda.Event]] = []

    @contextmanager
    def gate(self, number: int) -> Iterator[None]:
        """Queue what the `with` block launches behind the gate of this number."""
        stream = torch.cuda.current_stream().cuda_stream
        self._driver.wait_until(stream, self._begin + GATE, number)
        yield
        self._driver.write(stream, self._begin + DONE, number)

    def make_room(self) -> None:
        """Allocate what `fill` writes to, unless it is allocated."""
        self._filled = self._filled or [_written(output) for output in self._outputs]

    def give_room(self) -> None:
        """Free it."""
        self._filled = []

    def fill(self) -> list[object]:
        """Write to as much memory as a call's results take, which is the least that a call can do. Timed by events."""
        with self.marked():
            for _, memory in self._filled:
                memory.fill_(1)
        return [output for output, _ in self._filled]

    @contextmanager
    def marked(self) -> Iterator[None]:
        """Time what the `with` block launches by events."""
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        yield
        end.record()
        self._marks.append((begin, end))

    def finish(self) -> Message:
        """Wait for all queued calls. Returns the milliseconds between the events of `marked`."""
        torch.cuda.synchronize()
        times = [begin.elapsed_time(end) for begin, end in self._marks]
        self._marks.clear()
        return {"marked_ms": times}

    def place(self, leaf: object, stride: Sequence[int]) -> list[object] | None:
        """Where the judge finds a result: handle, offset, and whether it has this stride. None if it must be copied."""
        assert isinstance(leaf, torch.Tensor)
        alike = list(leaf.stride()) == list(stride)
        if not leaf.numel():
            return ["", 0, alike]
        address = leaf.data_ptr()
        if self._begin <= address < self._end:
            return None
        try:
            base, _ = self._driver.allocation_of(address)
            return [self._driver.export(base).hex(), address - base, alike]
        except RuntimeError:  # memory of another kind, or none at all
            return None


def _written(output: Slot) -> tuple[torch.Tensor, torch.Tensor]:
    """A tensor like a result of the reference, and its memory as a plain tensor."""
    elements = output.size // output.dtype.itemsize
    memory = torch.ones(elements, dtype=output.dtype, device="cuda")
    return memory.as_strided(output.shape, output.stride), memory
