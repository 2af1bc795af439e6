"""One program being timed: what its process is asked, and what that took.

Knows no other program, and nothing of what comes of the times.
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
"""About how long one sample should run, so that the cost of asking for it vanishes."""

WARMUP_BLOCKS = 3
LONG_MS = 500.0
"""A call that takes so long is warm after three."""

DISTURBED_SHARE = {"cuda": 0.5, "cpu": 0.1}
"""Share of a block that a thread may wait for a core. Beyond it something else ran on the machine, or two of its
threads shared a core; a round in which that befell a reference would make any candidate look faster. A GPU is given
its work ahead and the median of a block's calls is taken, so there it takes half the block; builds go on beside it."""

HEAD_START_CYCLES, HEAD_START_CYCLES_ALONE = 200_000, 1_000_000
"""How long the device is kept busy before a timed call (about 0.1 and 0.5 ms), so that the host is ahead of it and the gaps
between a call's first launches are not timed. A call whose launches take longer is launch-bound and shows it; one that comes
alone finds a host that has just slept."""


class Asked(Protocol):
    """A process that runs a program: a candidate's child, or a running reference."""

    def ask(self, request: Message, limit_s: float) -> Message:
        """Its answer to a request."""

    def pause(self) -> float:
        """Stop it while another is timed; returns when, on the clock of `time.perf_counter`."""

    def resume(self) -> None:
        """Let it run again."""

    def spread(self) -> None:
        """Keep each of its threads on a core of its own until `loosen`."""

    def settle(self) -> None:
        """Keep only those of its threads that worked since, if there is a core for each."""

    def loosen(self) -> None:
        """Let its threads run on any core again."""

    def waits_s(self) -> dict[str, float]:
        """How long each of its threads has waited for a core so far."""

    def core(self) -> int | None:
        """The core that its first thread ran on last, if that is known."""


@dataclass
class Timed:
    """One program being timed: its process, and what its blocks took so far."""

    child: Asked
    device_kind: str
    limit_s: float
    slots: int
    """How many sets of inputs and outputs it shares with the judge."""

    warmups: int = 0
    call_ms: float = 0.0
    """About what a call took when it was warm."""

    block_ms: list[float] = field(default_factory=list)
    """The judge's wall clock around each whole block."""

    beside_ms: list[float] = field(default_factory=list)
    """What passed beside each block while its inputs lay ready: as long as the process ran without being timed, on a CPU
    in an untimed call above all; and on a GPU what the judge waited for results to reach its memory."""

    alone_ms: list[float] = field(default_factory=list)
    """What a call took that was asked for by itself, in each round; empty where none is. On a GPU by its device events."""

    dense_ms: dict[int, list[float]] = field(default_factory=dict)
    """On a GPU what a call took in each block that has nothing but calls, by how many there are in it. On the judge's clock, from
    the moment that the process is let go on until its results have reached the judge's memory."""

    empty_ms: dict[int, list[float]] = field(default_factory=dict)
    """The same without the calls, of which there is only the copying of results."""

    disturbed: list[bool] = field(default_factory=list)
    """Whether a thread waited long for a core, in each block."""

    event_ms: list[float] = field(default_factory=list)
    """On a GPU the median of each block's calls by device events."""

    @property
    def places(self) -> int:
        """The largest block. On a CPU the last slot is kept for the calls that precede it."""
        return self.slots - 1 if self.device_kind == "cpu" else self.slots

    def warm_up(self) -> float:
        """Run the program until it is warm; returns about how many milliseconds a call takes."""
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
        """How many calls make a block that is long enough."""
        return max(1, min(self.places, round(BLOCK_MS[self.device_kind] / call_ms)))

    def alone_on_device(self, write: Callable[[], None]) -> Block:
        """Let it run on a GPU for one call, on inputs that `write` brings into the last slot."""
        write()
        self.child.resume()
        try:
            times, _, block = self._time([self.slots - 1], HEAD_START_CYCLES_ALONE)
        finally:
            self.child.pause()
        self.alone_ms.append(max(times[0], 1e-6))
        return block

    def dense(self, slots: list[int], wait: Callable[[], float], empty: bool = False) -> Block:
        """Let it run on a GPU for nothing but a call on each of these slots, or without even that.

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

    def alone(self, calls: int, write: Callable[[int], None]) -> Block:
        """Let it run on a CPU for an untimed call and for some that are timed one by one.

        Before each, `write` is called with its number, 0 for the untimed one, and brings new inputs into the slot that is
        kept for them. Returns the last of them.
        """
        taken = []
        write(0)
        self._spread()
        self.child.resume()
        try:
            self._warm()
            with self._beside_it():
                for number in range(1, calls + 1):
                    write(number)
                    _, wall_ms, block = self._time([self.slots - 1])
                    taken.append(wall_ms)
        finally:
            self.child.pause()
            self.child.loosen()
        self.alone_ms.append(median(taken))
        return block

    def sample(self, slots: list[int]) -> Block:
        """Take one sample: a call on each of these slots."""
        times, wall_ms, block = self._time(slots)
        self.block_ms.append(wall_ms)
        if self.device_kind == "cuda":
            self.event_ms.append(max(median(times), 1e-6))
        return block

    def awake(self, slots: list[int]) -> tuple[Block, Block | None]:
        """Let it run for one sample and no longer; returns that and the untimed call before it.

        It may run from the moment that it is let go on, and its inputs lie ready by then. So all that is not its block
        is noted beside it, looking at its threads included. Those are looked at right before and after the block: to go
        on and to stop, each of them needs a core for a moment, and the last of many waits long for it.
        """
        self._spread()
        begin = time.perf_counter()
        self.child.resume()
        try:
            warm = self._warm()
            with self._beside_it():
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
        self.beside_ms.append((stopped - begin) * 1e3 - self.block_ms[-1])
        return block, warm

    def _spread(self) -> None:
        """On a CPU its threads go on where each has a core; those that work in the untimed call keep one while it is timed."""
        if self.device_kind == "cpu":
            self.child.spread()

    def _warm(self) -> Block | None:
        """One untimed call on a CPU: another program ran last and left cold caches."""
        if self.device_kind == "cuda":
            return None
        block = self._time([self.slots - 1])[2]
        self.child.settle()
        return block

    def asking_ms(self, calls: int) -> float:
        """What a block costs the judge without the calls in it."""
        slots = list(range(calls))
        self._time(slots)
        taken = []
        for _ in range(9):
            self.child.pause()
            self.child.resume()
            with self._beside_it():
                taken.append(self._time(slots, empty=True)[1])
        return median(taken)

    def _beside_it(self) -> AbstractContextManager[None]:
        return on_core(self.child.core() if self.device_kind == "cpu" else None)

    def _call_ms(self, slots: list[int]) -> float:
        """Milliseconds per call, at least a microsecond."""
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
    """What a program was just timed on. Only `slots` is the judge's word."""

    slots: list[int]
    """In the order of its calls."""

    at: object
    """On a CPU the addresses of each call's results, where the program says that they lie."""

    odd: object
    """In what form results came that are not as they should be."""


@contextmanager
def on_core(core: int | None) -> Iterator[None]:
    """Keep this thread on the core of the thread that waits for it.

    On any other it drives off one of the program's threads, which then share the first one's core for a whole block.
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
    """The times that a child claims, if they can be times at all. Raises ChildFailed."""
    claimed = answer if isinstance(answer, list) else [None]
    times = [
        float(t) for t in claimed if isinstance(t, int | float) and math.isfinite(t) and t >= 0
    ]
    if len(times) < len(claimed) or len(times) != wanted:
        raise ChildFailed("crashed", "the process answered with something that is no time")
    return times
