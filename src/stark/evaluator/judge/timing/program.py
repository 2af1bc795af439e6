"""Requests blocks of timed calls from one program's process on a GPU and records their times.

A slot is a set of inputs and outputs in memory that the program shares with the judge. A block is a
series of calls, each on its own slot, that the judge requests and times together. A single call is
requested by itself. This file knows neither the other programs nor how results are computed from
the times.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from statistics import median

from stark.evaluator.judge.processes.failures import ChildFailed
from stark.evaluator.judge.timing.process import TimedProcess

BLOCK_MS = 8.0
"""Target duration of a block in milliseconds. The cost of requesting such a block is negligible."""

WARMUP_BLOCKS = 3
"""Blocks that warm up a program after its first three calls."""

LONG_MS = 500.0
"""A program gets no warm-up blocks if its call takes at least these milliseconds."""

DISTURBED_SHARE = 0.5
"""Share of a block's time that a thread may wait for a core. If a thread waits longer, the program
counts as disturbed (`Window.counted`): something else ran on the machine, or two threads shared a
core. A disturbed reference would make every candidate look faster. The share is large because builds
run on the CPU during the timing, work is queued ahead of time, and only the median of a block's
calls counts."""

MOST_MS = 1e9
"""A time that is not below this is invalid."""

HEAD_START_CYCLES, HEAD_START_CYCLES_ALONE = 200_000, 1_000_000
"""Cycles for which the device is kept busy before a timed call: about 0.1 ms in a block and 0.5 ms
before a single call. Meanwhile the host queues the call's first kernels, so that gaps between their
launches are not timed. If the launches take longer than these cycles, the call is launch-bound, and
its time includes the gaps. A single call needs more cycles, because the host has just been asleep."""


@dataclass
class Timed:
    """One program that is being timed: its process and the times of its blocks so far."""

    child: TimedProcess
    limit_s: float
    slots: int
    """Number of sets of inputs and outputs that the program shares with the judge."""

    warmups: int = 0
    """Number of untimed calls before the first block."""

    call_ms: float = 0.0
    """Approximate milliseconds of a warm call."""

    block_ms: list[float] = field(default_factory=list)
    """The time of each block by the judge's wall clock."""

    outside_ms: list[float] = field(default_factory=list)
    """Per block, the milliseconds before and after the block during which the program could work:
    its process ran, and its inputs were ready. This includes the wait until the results reach the
    judge's memory."""

    single_ms: list[float] = field(default_factory=list)
    """Per round, the milliseconds of a single call by device events. Empty if no single calls are made."""

    dense_ms: dict[int, list[float]] = field(default_factory=dict)
    """The time per call of each dense block, keyed by the number of calls in the block.
    In a dense block, the cache is not flushed and the device is not kept busy before each call. The
    judge's clock runs from the moment the process resumes until the judge has the results."""

    empty_ms: dict[int, list[float]] = field(default_factory=dict)
    """Like `dense_ms`, for dense blocks without calls. These blocks only read and write as much memory as
    copies of the results would."""

    disturbed: list[bool] = field(default_factory=list)
    """Per block, whether one of the program's threads waited too long for a core."""

    event_ms: list[float] = field(default_factory=list)
    """Per block, the median of its calls' times by device events."""

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
        """The number of calls, each of `call_ms` milliseconds, in a block of the target duration."""
        return max(1, min(self.slots, round(BLOCK_MS / call_ms)))

    def single_call(self, write: Callable[[], None]) -> Block:
        """Time one call on the inputs that `write` puts into the last slot."""
        write()
        self.child.resume()
        try:
            times, _, block = self._time([self.slots - 1], HEAD_START_CYCLES_ALONE)
        finally:
            self.child.pause()
        self.single_ms.append(max(times[0], 1e-6))
        return block

    def dense(self, slots: list[int], wait: Callable[[], float], empty: bool = False) -> Block:
        """Run a dense block and record its time. With `empty`, the block makes no calls.

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

    def sample(self, slots: list[int]) -> Block:
        """Time one block: a call on each of these slots."""
        times, wall_ms, block = self._time(slots)
        self.block_ms.append(wall_ms)
        self.event_ms.append(max(median(times), 1e-6))
        return block

    def run_block(self, slots: list[int]) -> Block:
        """Resume the program, time one block and stop the program.

        The inputs are ready when the program resumes, so the program could work before the block
        starts. Therefore all time outside the block is recorded, from resuming the program to
        stopping it. This includes the time to inspect the program's threads. The threads' waits for
        a core are read right before and right after the block, because other waits must not count:
        each thread also waits for a core in order to resume and to stop, and the last of many
        threads waits long.
        """
        begin = time.perf_counter()
        self.child.resume()
        try:
            before = self.child.waits_s()
            block = self.sample(slots)
            after = self.child.waits_s()
        finally:
            stopped = self.child.pause()
        waited_s = max((after[task] - before.get(task, 0.0) for task in after), default=0.0)
        self.disturbed.append(1e3 * waited_s > DISTURBED_SHARE * self.block_ms[-1])
        self.outside_ms.append((stopped - begin) * 1e3 - self.block_ms[-1])
        return block

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
        wanted = len(slots) if head_start is not None else 0
        return _times(answer.get("times_ms"), wanted), wall, Block(slots, answer.get("odd"))


@dataclass(frozen=True)
class Block:
    """The calls that a program has just made. Only `slots` is known to the judge; the program reports the rest."""

    slots: list[int]
    """The slots in the order of the calls."""

    odd: object
    """As the program reports it, the form of the first results that do not have the expected form."""


def _times(answer: object, wanted: int) -> list[float]:
    """The times that a child reports. Raises ChildFailed if they are invalid."""
    claimed = answer if isinstance(answer, list) else [None]
    times = [float(t) for t in claimed if isinstance(t, int | float) and 0 <= t < MOST_MS]
    if len(times) < len(claimed) or len(times) != wanted:
        raise ChildFailed("crashed", "the process reported invalid times for its calls")
    return times
