"""Programs timed together in one window, and the checks on clocks that a candidate could bend.

Every call of a timed block has inputs of its own, which are written while the candidate stands still, as it does whenever
it is not itself timed. So nothing can be computed before the clock starts but in the untimed call that precedes a block on a CPU,
whose time counts as far as it is not explained by that call, and whose result must be right. Nor after the clock stops: on a
CPU results are read out of the memory of the process that stands still; on a GPU, what the judge waits for them counts. On a CPU the judge's wall clock
is the clock. On a GPU each call is timed by device events in the running process, which hostile code could forge; the
judge's own wall clock around each block bounds them. What precedes each call there takes a while in which work could be hidden
from both; so after each round comes a dense one, without that, which has the judge's clock alone.

Some calls are asked for by themselves as well, on inputs that come when the one before has ended: who does a block's calls
together is slower there.
"""

from __future__ import annotations

import math
import os
import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from functools import partial
from statistics import median
from typing import Protocol

from stark.core.measurement import Measurement
from stark.evaluator.candidate.wire import Message
from stark.evaluator.judge.processes.children import ChildFailed
from stark.evaluator.judge.timing.window import FEWEST_ROUNDS, FEWEST_ROUNDS_WHEN_SLOW, Window

BLOCK_MS = {"cuda": 8.0, "cpu": 25.0}
"""About how long one sample should run, so that the cost of asking for it vanishes."""

WARMUP_BLOCKS = 3
LONG_MS = 500.0
"""A call that takes so long is warm after three."""

MOST_ROUNDS = 100
SPIN_S = 0.002
"""OpenMP threads of the process that ran last spin this long before they sleep, on cores the next one needs."""

DISTURBED_SHARE = {"cuda": 0.5, "cpu": 0.1}
"""Share of a block that a thread may wait for a core. Beyond it something else ran on the machine, or two of its
threads shared a core; a round in which that befell a reference would make any candidate look faster. A GPU is given
its work ahead and the median of a block's calls is taken, so there it takes half the block; builds go on beside it."""

ALONE = 8
"""About how many calls of a round are asked for one by one on a CPU, of programs so quick that this takes less than their block."""

HEAD_START_CYCLES, HEAD_START_CYCLES_ALONE = 200_000, 1_000_000
"""How long the device is kept busy before a timed call (about 0.1 ms), so that the host is ahead of it and the gaps between a
call's first launches are not timed. A call whose launches take longer is launch-bound and shows it; one that comes alone
finds a host that has just slept."""

PATIENCE = 3
"""How many times the rounds and the seconds are granted where rounds do not count."""


class Asked(Protocol):
    """A process that runs a program: a candidate's child, or a running reference."""

    def ask(self, request: Message, limit_s: float) -> Message:
        """Its answer to a request."""

    def pause(self) -> float:
        """Stop it while another is timed; returns when, on the clock of `time.perf_counter`."""

    def resume(self) -> None:
        """Let it run again."""

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
    block_ms: list[float] = field(default_factory=list)
    """The judge's wall clock around each whole block."""

    beside_ms: list[float] = field(default_factory=list)
    """What passed beside each block while its inputs lay ready: as long as the process ran without being timed, on a CPU
    in an untimed call above all; and on a GPU what the judge waited for results to reach its memory."""

    alone_ms: list[float] = field(default_factory=list)
    """What a call took that was asked for by itself, in each round; empty where none is. On a GPU by its device events."""

    dense_ms: list[float] = field(default_factory=list)
    """On a GPU what a call took by the judge's clock in blocks that have nothing but calls; empty where there are none."""

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
        return estimate

    def calls_for(self, call_ms: float) -> int:
        """How many calls make a block that is long enough."""
        return max(1, min(self.places, round(BLOCK_MS[self.device_kind] / call_ms)))

    def alone_on_device(self, write: Callable[[], None]) -> Block:
        """Let it run on a GPU for one call, on inputs that `write` brings into the slot that is kept for it."""
        write()
        self.child.resume()
        try:
            times, _, block = self._time([self.slots - 1], HEAD_START_CYCLES_ALONE)
        finally:
            self.child.pause()
        self.alone_ms.append(max(times[0], 1e-6))
        return block

    def dense(self, slots: list[int], wait: Callable[[], float]) -> Block:
        """Let it run on a GPU for a call on each of these slots, one right after the other.

        `wait` returns the milliseconds until the results have reached the judge's memory.
        """
        self.child.resume()
        try:
            _, wall_ms, block = self._time(slots, head_start=None)
            wall_ms += wait()
        finally:
            self.child.pause()
        self.dense_ms.append(wall_ms / len(slots))
        return block

    def alone(self, calls: int, write: Callable[[int], None]) -> Block:
        """Let it run on a CPU for an untimed call and for some that are timed one by one.

        Before each, `write` is called with its number, 0 for the untimed one, and brings new inputs into the slot that is
        kept for them. Returns the last of them.
        """
        taken = []
        write(0)
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
        waited_s = max((after[task] - before.get(task, 0.0) for task in after), default=0.0)
        self.disturbed.append(
            1e3 * waited_s > DISTURBED_SHARE[self.device_kind] * self.block_ms[-1]
        )
        self.beside_ms.append((stopped - begin) * 1e3 - self.block_ms[-1])
        return block, warm

    def _warm(self) -> Block | None:
        """One untimed call on a CPU: another program ran last and left cold caches."""
        return self._time([self.slots - 1])[2] if self.device_kind == "cpu" else None

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
        wanted = len(slots) if self.device_kind == "cuda" and head_start else 0
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


Round = Sequence[Block]
"""The blocks of all programs, the candidate's first."""


class Contents(Protocol):
    """What the programs are timed on. Programs go by their place: 0 is the candidate, then come the references."""

    def turn(self, last: Round | None) -> None:
        """Called before every round: may look at the last round's results; chooses the next inputs."""

    def write_alone(self, place: int, number: int) -> None:
        """Called before each of a program's calls that are asked for one by one, and the untimed one before them: write its inputs."""

    def take(self, place: int, block: Block) -> None:
        """Called after the last of them, and after the untimed call before a block with its block: results are where the program says."""

    def write(self, place: int, slots: list[int]) -> None:
        """Called before a program's block: write its inputs, and on a CPU those of the untimed call."""

    def wait(self, place: int, slots: list[int]) -> float:
        """Called after a program's block: the milliseconds until its results had reached the judge's memory."""

    def end(self, last: Round) -> None:
        """Called after the last round."""


def time_alone(program: Timed, budget_s: float) -> tuple[Measurement, bool]:
    """The latency of one program by itself, on whatever its slots hold, and whether enough rounds count."""
    calls = program.calls_for(program.warm_up())
    asking_ms = program.asking_ms(calls) if program.device_kind == "cpu" else 0.0
    deadline = time.monotonic() + budget_s
    while len(program.block_ms) < FEWEST_ROUNDS or (
        time.monotonic() < deadline and len(program.block_ms) < 2 * FEWEST_ROUNDS
    ):
        program.awake(list(range(calls)))
    program.child.resume()
    window = Window(program, {"": program}, calls, asking_ms)
    return window.measurement(program, by_wall=False), window.measurable()


def time_together(
    candidate: Timed,
    references: Mapping[str, Timed],
    budget_s: float,
    chance: random.Random,
    contents: Contents,
) -> tuple[Measurement, dict[str, Measurement], tuple[str, ...]]:
    """Time all in one window, in rounds of random order, until the intervals are narrow or the time is up.

    Returns the candidate's measurement, the references' by name, and warnings. Raises whatever
    `contents` raises. The candidate is left standing still.
    """
    window = _window(candidate, references, contents)
    try:
        everyone = [candidate, *references.values()]
        contents.end(_rounds(everyone, window, budget_s, chance, contents))
    finally:  # they serve the next candidate
        for reference in references.values():
            reference.child.resume()
    return window.verdict()


def _rounds(
    everyone: Sequence[Timed],
    window: Window,
    budget_s: float,
    chance: random.Random,
    contents: Contents,
) -> Round:
    """Sample until there is enough; returns the last round."""
    last: Round | None = None
    has_dense = window.calls > 1 and everyone[0].device_kind == "cuda"
    begin = time.monotonic()
    for count in range(1, PATIENCE * MOST_ROUNDS + 1):
        contents.turn(last)
        last = _round(everyone, window.calls, chance, contents)
        if has_dense:
            contents.turn(last)
            last = _dense_round(everyone[:2], window.calls, chance, contents)
        over = (time.monotonic() - begin) / budget_s
        counted = len(window.counted())
        if counted >= FEWEST_ROUNDS and (over > 1 or counted == MOST_ROUNDS or window.narrow()):
            break
        if count >= FEWEST_ROUNDS_WHEN_SLOW and over > PATIENCE:
            break
    assert last is not None
    return last


def _round(
    everyone: Sequence[Timed], calls: int, chance: random.Random, contents: Contents
) -> Round:
    """One sample of each, in random order."""
    slots = chance.sample(range(everyone[0].places), calls)
    one_by_one = _one_by_one(everyone[1], calls, chance)
    blocks: dict[int, Block] = {}
    for place in chance.sample(range(len(everyone)), len(everyone)):
        program = everyone[place]
        if program.device_kind == "cpu":
            time.sleep(SPIN_S)
            if one_by_one:
                contents.take(
                    place, program.alone(one_by_one, partial(contents.write_alone, place))
                )
        elif one_by_one and place < 2:  # a candidate is held against the first reference
            write = partial(contents.write_alone, place, 0)
            contents.take(place, program.alone_on_device(write))
        contents.write(place, slots)
        blocks[place], warm = program.awake(slots)
        if warm is not None:
            contents.take(place, warm)
        program.beside_ms[-1] += contents.wait(place, slots)
    return [blocks[place] for place in sorted(blocks)]


def _dense_round(
    everyone: Sequence[Timed], calls: int, chance: random.Random, contents: Contents
) -> Round:
    """One block of each that has nothing but calls, in random order."""
    slots = chance.sample(range(everyone[0].places), calls)
    blocks: dict[int, Block] = {}
    for place in chance.sample(range(len(everyone)), len(everyone)):
        contents.write(place, slots)
        blocks[place] = everyone[place].dense(slots, partial(contents.wait, place, slots))
    return [blocks[place] for place in sorted(blocks)]


def _one_by_one(reference: Timed, calls: int, chance: random.Random) -> int:
    """How many calls are asked for by themselves in a round whose blocks have so many."""
    if reference.device_kind == "cuda":
        return 1 if calls > 1 else 0
    # As many that nobody knows which is the last, whose results are looked at.
    return 0 if calls == 1 else chance.randint(1, 2 * max(1, min(ALONE, calls // 6)) - 1)


def _window(candidate: Timed, references: Mapping[str, Timed], contents: Contents) -> Window:
    """Warm everyone up and choose a block: the same calls for all, so that all see the same inputs.

    From then on everyone stands still.
    """
    contents.turn(None)
    for place, program in enumerate((candidate, *references.values())):
        contents.write(place, list(range(program.places)))
    estimates = [candidate.warm_up()]
    candidate.child.pause()
    estimates += [reference.warm_up() for reference in references.values()]
    calls = candidate.calls_for(sum(estimates) / len(estimates))
    first = next(iter(references.values()))
    asking_ms = first.asking_ms(calls) if first.device_kind == "cpu" else 0.0
    for reference in references.values():
        reference.child.pause()
    return Window(candidate, references, calls, asking_ms)


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
