"""Opens a program's gates on a GPU, one call at a time, and times each call by events in the judge's own stream.

The judge's stream records an event, writes the call's inputs, opens the gate, waits for the program's word that the
call is done, flushes the cache again, reads the results and records another event. The program's process has queued its
calls ahead of time (`candidate/queued.py`). So everything that depends on the inputs, and everything that changes the
results, lies between two events that only the judge's process can record. Two processes take turns on a GPU, which costs
about 0.3 ms a call. This cost is steady: `device_visits.py` measures it with empty calls and subtracts it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import cache
from typing import NamedTuple

import torch

from stark.evaluator.candidate.driver import Driver
from stark.evaluator.candidate.queued import DONE, GATE

POLL_S = 1e-4
"""Seconds between two looks at an event."""

RESCUES, RESCUE_S = 50, 5.0
"""How often the judge itself writes the word of a failed program, which may overwrite it, and the seconds for all of these."""

STREAMS_TRIED, BESIDE_S = 16, 0.05
"""Streams that are tried for work beside the held one, and the seconds that each gets."""

Queued = Callable[[], object]
"""Launches kernels on the judge's stream."""


class GateStuck(Exception):
    """A program says that its calls are done, but did not write so on the device."""


class Work(NamedTuple):
    """What the judge's stream does around one call."""

    write: Queued
    """Writes the inputs and flushes the cache. By kernels: copy engines would work beside the program's kernels."""

    read: Queued
    """Reads the results, by kernels."""

    look: Queued
    """Reads what is not timed, before the next call."""


class Gate:
    """The gate of one program whose arena starts with the two words.

    All kernels of `Work` must have run before: to load one, CUDA may wait for the judge's stream, which is held.
    """

    def __init__(self, arena: torch.Tensor) -> None:
        self._driver = Driver()
        self._at = arena.data_ptr()
        self._held = _host_word()
        """A word that holds the judge's stream until it is the number of the latest series."""

        self._series = 0
        self._beside = stream_beside(arena.device.index or 0)
        self.calls = 0
        """The number of the latest call."""

        self.reset()

    def reset(self) -> None:
        """Write both words: another program with the same arena may have left others. No call may be queued."""
        stream = torch.cuda.current_stream().cuda_stream
        for word in (GATE, DONE):
            self._driver.write(stream, self._at + word, self.calls)
        torch.cuda.synchronize()

    def time(
        self, works: Sequence[Work], load: Queued, finish: Queued, limit_s: float
    ) -> list[float]:
        """Let the program make its next queued calls. Returns the milliseconds of each.

        `load` keeps the device busy before the first. `finish` returns once the program's process says that the calls
        are done. The judge's stream is held until all of its own work is queued, so that the judge's host code is not
        timed either. Raises GateStuck, and what `finish` raises.
        """
        stream = torch.cuda.current_stream().cuda_stream
        self._series += 1
        self._driver.wait_until(stream, self._held.data_ptr(), self._series)
        marks = []
        try:
            load()
            for work in works:
                begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
                begin.record()
                work.write()
                self.calls += 1
                self._driver.write(stream, self._at + GATE, self.calls)
                self._driver.wait_until(stream, self._at + DONE, self.calls)
                work.read()
                end.record()
                work.look()
                marks.append((begin, end))
            last = torch.cuda.Event()
            last.record()
            self._held[0] = self._series
            finish()
            if not _ended(last, limit_s):
                raise GateStuck(f"its calls did not end within {limit_s:g} s")
        except BaseException:
            self._rescue()
            raise
        return [begin.elapsed_time(end) for begin, end in marks]

    def open(self, calls: int) -> None:
        """Let queued calls go, untimed."""
        self.calls += calls
        self._driver.write(self._beside.cuda_stream, self._at + GATE, self.calls)

    def _rescue(self) -> None:
        """Let the judge's stream go on without the program. Raises RuntimeError if the program prevents that."""
        self._held[0] = self._series
        last = torch.cuda.Event()
        last.record()
        for _ in range(RESCUES):  # the program may overwrite the word
            self._driver.write(self._beside.cuda_stream, self._at + DONE, self.calls)
            if _ended(last, RESCUE_S / RESCUES):
                return
        raise RuntimeError("a program keeps the judge's stream waiting")


@cache
def stream_beside(device: int) -> torch.cuda.Stream:
    """A stream that works while the judge's own is held, as not all do. Call it first while no candidate slows the search."""
    driver, held, seen = Driver(), _host_word(), _host_word()
    own = torch.cuda.current_stream().cuda_stream
    for number in range(1, STREAMS_TRIED + 1):
        stream = torch.cuda.Stream()
        driver.wait_until(own, held.data_ptr(), number)
        driver.write(stream.cuda_stream, seen.data_ptr(), number)
        deadline = time.monotonic() + BESIDE_S
        while int(seen[0]) != number and time.monotonic() < deadline:
            time.sleep(POLL_S)
        works = int(seen[0]) == number
        held[0] = number
        torch.cuda.synchronize()
        if works:
            return stream
    raise RuntimeError(f"no stream of device {device} works beside the default one")


def _host_word() -> torch.Tensor:
    """A word of the host's memory that the device can read and write."""
    return torch.zeros(1, dtype=torch.int32, pin_memory=True)


def _ended(event: torch.cuda.Event, limit_s: float) -> bool:
    """Whether the work before an event ends within `limit_s` seconds."""
    deadline = time.monotonic() + limit_s
    while not event.query():
        if time.monotonic() > deadline:
            return False
        time.sleep(POLL_S)
    return True
