"""Requests timed blocks from one program's process and records what they took.

Knows neither the other programs nor how results are computed from the times.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from statistics import median
from typing import Protocol

from stark.evaluator.candidate.wire import Message
from stark.evaluator.judge.processes.failures import ChildFailed

BLOCK_MS = {"cuda": 8.0, "cpu": 25.0}
"""Target duration of a block in milliseconds, to make the cost of a request negligible."""

WARMUP_BLOCKS = 3
"""Blocks that warm up a program after its first three calls."""

LONG_MS = 500.0
"""Milliseconds. A program whose call takes longer gets no warm-up blocks."""

DISTURBED_SHARE = {"cuda": 0.5, "cpu": 0.1}
"""Share of a block that a thread may wait for a core before the round is discarded. A longer wait
means that something else ran on the machine, or that two threads shared a core. If it hit a
reference, any candidate would look faster. A GPU gets its work ahead of time, and the median of the
block's calls counts, so there half the block is tolerated: builds continue meanwhile."""

HEAD_START_CYCLES, HEAD_START_CYCLES_ALONE = 200_000, 1_000_000
"""Cycles for which the device is kept busy before a timed call (about 0.1 and 0.5 ms), so that the
host is ahead of the device and gaps between a call's first launches are not timed. A call whose
launches take longer is launch-bound, and its time shows it. A single call needs more, because the
host has just been asleep."""


class TimedProcess(Protocol):
    """A process that runs a program: a candidate's child or a running reference."""

    def ask(self, request: Message, limit_s: float) -> Message:
        """Send a request and return its answer."""

    def pause(self) -> float:
        """Stop the process while another is timed. Returns when, as of `time.perf_counter`."""

    def resume(self) -> None:
        """Continue a stopped process."""

    def spread(self) -> None:
        """Pin each of its threads to a core until `loosen`."""

    def settle(self) -> None:
        """Keep only the threads pinned that have worked since `spread`, if each can have a core."""

    def loosen(self) -> None:
        """Undo the pinning."""

    def waits_s(self) -> dict[str, float]:
        """Seconds that each of its threads has waited for a core so far."""

    def core(self) -> int | None:
        """The core that its main thread ran on last, if known."""


@dataclass
class Timed:
    """One program that is being timed: its process and the times of its blocks so far."""

    child: TimedProcess
    device_kind: str
    limit_s: float
    slots: int
    """Sets of inputs and outputs that it shares with the judge."""

    warmups: int = 0
    """Calls that preceded the timing."""

    call_ms: float = 0.0
    """Approximate milliseconds of a warm call."""

    block_ms: list[float] = field(default_factory=list)
    """The judge's wall clock around each block."""

    outside_ms: list[float] = field(default_factory=list)
    """The time around each block in which the process ran with its inputs ready, without being
    timed. On a CPU most of it is an untimed call. On a GPU it includes the wait for results to
    reach the judge's memory."""

    single_ms: list[float] = field(default_factory=list)
    """The time of a call that is requested by itself, per round; empty if there are none. On a GPU
    by device events, on a CPU by the judge's clock."""

    dense_ms: dict[int, list[float]] = field(default_factory=dict)
    """On a GPU, the time per call of each dense block (calls without anything between them), by the
    number of calls. By the judge's clock, from resuming the process until the judge has the
    results."""

    empty_ms: dict[int, list[float]] = field(default_factory=dict)
    """As `dense_ms`, but for blocks that copy results without making calls."""

    disturbed: list[bool] = field(default_factory=list)
    """Whether a thread waited too long for a core, per block."""

    event_ms: list[float] = field(default_factory=list)
    """On a GPU, the median of each block's calls by device events."""

    @property
    def max_calls(self) -> int:
        """Most calls in a block. On a CPU the last slot is reserved for the calls before it."""
        return self.slots - 1 if self.device_kind == "cpu" else self.slots

    def warm_up(self) -> float:
        """Run the program until it is warm. Returns the approximate milliseconds of a call."""
        first = self._call_ms([0])
        self._call_ms([0])
        estimate = min(first, self._call_ms([0]))
        calls = self.calls_for(estimate)
        more = WARMUP_BLOCKS if estimate < LONG_MS else 0
        for _ in range(more):
            self._call_ms(list(range(calls)))
        self.warmups = 3 + more * calls
        self.call_ms = estimate
        return estimate

    def calls_for(self, call_ms: float) -> int:
        """The number of calls that makes a block of the target duration."""
        return max(1, min(self.max_calls, round(BLOCK_MS[self.device_kind] / call_ms)))

    def single_call(self, write: Callable[[], None]) -> Block:
        """Make one call on a GPU, on inputs that `write` puts into the last slot, and time it."""
        write()
        self.child.resume()
        try:
            times, _, block = self._time([self.slots - 1], HEAD_START_CYCLES_ALONE)
        finally:
            self.child.pause()
        self.single_ms.append(max(times[0], 1e-6))
        return block

    def dense(self, slots: list[int], wait: Callable[[], float], empty: bool = False) -> Block:
        """Run a dense block on a GPU, or with `empty` one that makes no calls, and record its time.

        `wait` returns the milliseconds until the results have reached the judge's memory.
        """
        begin = time.perf_counter()
        self.child.resume()
        try:
            block = self._time(slots, None, empty)[2]
        finally:
            stopped = self.child.pause()
        taken_ms = (stopped - begin) * 1e3 + wait()
        kept = self.empty_ms if empty else self.dense_ms
        kept.setdefault(len(slots), []).append(taken_ms / len(slots))
        return block

    def single_calls(self, calls: int, write: Callable[[int], None]) -> Block:
        """Make one untimed call on a CPU, then `calls` timed ones, each requested by itself.

        `write` is called before each with its number, 0 for the untimed one, and puts new inputs
        into the last slot. Records the calls' median. Returns the last call's block.
        """
        taken = []
        write(0)
        self._pin()
        self.child.resume()
        try:
            self._warm()
            with self._on_its_core():
                for number in range(1, calls + 1):
                    write(number)
                    _, wall_ms, block = self._time([self.slots - 1])
                    taken.append(wall_ms)
        finally:
            self.child.pause()
            self.child.loosen()
        self.single_ms.append(median(taken))
        return block

    def sample(self, slots: list[int]) -> Block:
        """Time one block: a call on each of these slots."""
        times, wall_ms, block = self._time(slots)
        self.block_ms.append(wall_ms)
        if self.device_kind == "cuda":
            self.event_ms.append(max(median(times), 1e-6))
        return block

    def run_block(self, slots: list[int]) -> tuple[Block, Block | None]:
        """Resume the program for one block. Returns it and, on a CPU, the untimed call before it.

        The program could work from the moment it resumes, because its inputs are ready. So all time
        outside the block is recorded, including the time to inspect its threads. Their waits are
        read right before and right after the block, because resuming and stopping need a core for
        each thread too, and the last of many threads waits long for it.
        """
        self._pin()
        begin = time.perf_counter()
        self.child.resume()
        try:
            warm = self._warm()
            with self._on_its_core():
                before = self.child.waits_s()
                block = self.sample(slots)
                after = self.child.waits_s()
        finally:
            stopped = self.child.pause()
            self.child.loosen()
        waited_s = max((after[task] - before.get(task, 0.0) for task in after), default=0.0)
        self.disturbed.append(
            1e3 * waited_s > DISTURBED_SHARE[self.device_kind] * self.block_ms[-1]
        )
        self.outside_ms.append((stopped - begin) * 1e3 - self.block_ms[-1])
        return block, warm

    def _pin(self) -> None:
        """On a CPU, pin the program's threads before it resumes, so that each has a core."""
        if self.device_kind == "cpu":
            self.child.spread()

    def _warm(self) -> Block | None:
        """Make one untimed call on a CPU, because the program that ran before left cold caches.

        Afterwards only the threads that worked in it stay pinned.
        """
        if self.device_kind == "cuda":
            return None
        block = self._time([self.slots - 1])[2]
        self.child.settle()
        return block

    def request_ms(self, calls: int) -> float:
        """Milliseconds that a block costs the judge without the calls in it, on its wall clock."""
        slots = list(range(calls))
        self._time(slots)
        taken = []
        for _ in range(9):
            self.child.pause()
            self.child.resume()
            with self._on_its_core():
                taken.append(self._time(slots, empty=True)[1])
        return median(taken)

    def _on_its_core(self) -> AbstractContextManager[None]:
        """Move this thread to the core of the program's main thread, on a CPU."""
        return on_core(self.child.core() if self.device_kind == "cpu" else None)

    def _call_ms(self, slots: list[int]) -> float:
        """Milliseconds per call, at least 1 µs."""
        times, wall, _ = self._time(slots)
        return max(median(times) if times else wall / len(slots), 1e-3)

    def _time(
        self, slots: list[int], head_start: int | None = HEAD_START_CYCLES, empty: bool = False
    ) -> tuple[list[float], float, Block]:
        request = {"do": "time", "slots": slots, "head_start": head_start, "empty": empty}
        begin = time.perf_counter()
        answer = self.child.ask(request, self.limit_s)
        wall = (time.perf_counter() - begin) * 1e3
        wanted = len(slots) if self.device_kind == "cuda" and head_start is not None else 0
        block = Block(slots, answer.get("at"), answer.get("odd"))
        return _times(answer.get("times_ms"), wanted), wall, block


@dataclass(frozen=True)
class Block:
    """What a program was just timed on. Only `slots` is the judge's own information."""

    slots: list[int]
    """The slots in the order of the calls."""

    at: object
    """On a CPU, the addresses of each call's results, as the program reports them."""

    odd: object
    """The form of results that do not have the expected form, as the program reports it."""


@contextmanager
def on_core(core: int | None) -> Iterator[None]:
    """Run this thread on the core of the thread that waits for it.

    On any other core it would displace one of the program's threads, which would then share the
    main thread's core for a whole block.
    """
    allowed = os.sched_getaffinity(0)
    if core not in allowed:
        yield
        return
    os.sched_setaffinity(0, {core})
    try:
        yield
    finally:
        os.sched_setaffinity(0, allowed)


def _times(answer: object, wanted: int) -> list[float]:
    """The times that a child reports, if they are valid. Raises ChildFailed."""
    claimed = answer if isinstance(answer, list) else [None]
    times = [
        float(t) for t in claimed if isinstance(t, int | float) and math.isfinite(t) and t >= 0
    ]
    if len(times) < len(claimed) or len(times) != wanted:
        raise ChildFailed("crashed", "the process reported invalid times for its calls")
    return times
