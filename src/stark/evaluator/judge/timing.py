"""Programs timed together in one window, and the checks on clocks that a candidate could bend.

Every call of a timed block has inputs of its own, and a candidate stands still whenever it is not itself timed. So
nothing can be computed before the clock starts but in the untimed call that precedes a block on a CPU, whose time
counts as far as it is not explained by cold caches. Nor after the clock stops: on a CPU results are read out of the
memory of the process that stands still; on a GPU, what the judge waits for them counts. There each call is timed by
device events in the running process, which hostile code could forge; the judge's own wall clock around each block
bounds them. On a CPU the judge's wall clock is the clock.
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from statistics import median
from typing import Protocol

from stark.core.measurement import Measurement, Speedup, speedup
from stark.evaluator.candidate.wire import Message
from stark.evaluator.judge.children import ChildFailed

BLOCK_MS = {"cuda": 8.0, "cpu": 25.0}
"""About how long one sample should run, so that the cost of asking for it vanishes."""

WARMUP_BLOCKS = 3
LONG_MS = 500.0
"""A call that takes so long is warm after three."""

FEWEST_ROUNDS = 8
FEWEST_ROUNDS_WHEN_SLOW = 3
"""Enough for programs so slow that even these take three times the budget."""

MOST_ROUNDS = 100
WIDE = 0.005
"""Half-width of the interval, relative, under which no more rounds are taken."""

SPIN_S = 0.002
"""OpenMP threads of the process that ran last spin this long before they sleep, on cores the next one needs."""

RESOLUTION_MS = {"cuda": 0.0012, "cpu": 0.0}
RESOLUTION_SHARE = {"cuda": 0.0, "cpu": 0.2}
"""Two processes that run the same program steadily differ by up to so much a call, absolute and relative, by where
their memory happens to lie (`docs/judge.md`)."""

FORGED_FACTOR, FORGED_MS = 1.5, 0.01
"""How far the wall clock may exceed what the device events claim, beyond its own noise, before the wall clock counts."""

DISTURBED_SHARE = 0.1
"""Share of a block that a thread may wait for a core. Beyond it something else ran on the machine, or two of its
threads shared a core; a round in which that befell a reference would make any candidate look faster."""

DISTURBED_ROUNDS = 2
"""How many times the rounds and the seconds are granted where rounds do not count."""

UNMEASURABLE = 1000.0
"""What a reference that was always disturbed may be wrong by, in its own times."""

LATE_SHARE = 0.1
"""Share of a block that its results may be late by, beyond noise, before the lateness counts as time."""


class Asked(Protocol):
    """A process that runs a program: a candidate's child, or a running reference."""

    def ask(self, request: Message, limit_s: float) -> Message:
        """Its answer to a request."""

    def pause(self) -> None:
        """Stop it while another is timed."""

    def resume(self) -> None:
        """Let it run again."""

    def waits_s(self) -> dict[str, float]:
        """How long each of its threads has waited for a core so far."""


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
    """What the judge waited beside each block while its inputs lay ready: on a CPU for the untimed call, on a GPU for
    results to reach its memory."""

    disturbed: list[bool] = field(default_factory=list)
    """Whether a thread waited long for a core, in each block."""

    event_ms: list[float] = field(default_factory=list)
    """On a GPU the median of each block's calls by device events."""

    @property
    def places(self) -> int:
        """The largest block. On a CPU the last slot is kept for the untimed call before each."""
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

    def warm(self) -> float:
        """One untimed call on a CPU, in milliseconds: another program ran last and left cold caches."""
        return self._time([self.slots - 1])[1] if self.device_kind == "cpu" else 0.0

    def beside_calls_ms(self, calls: int) -> float:
        """What passed beside a block and was no call like those in it."""
        call_ms = median(self.block_ms) / calls if self.device_kind == "cpu" else 0.0
        return median(self.beside_ms) - call_ms

    def sample(self, slots: list[int]) -> Block:
        """Take one sample: a call on each of these slots."""
        before = self.child.waits_s()
        times, wall_ms, block = self._time(slots)
        after = self.child.waits_s()
        waited_s = max((after[task] - before.get(task, 0.0) for task in after), default=0.0)
        self.disturbed.append(1e3 * waited_s > DISTURBED_SHARE * wall_ms)
        self.block_ms.append(wall_ms)
        if self.device_kind == "cuda":
            self.event_ms.append(max(median(times), 1e-6))
        return block

    def asking_ms(self, calls: int) -> float:
        """What a block costs the judge without the calls in it."""
        slots = list(range(calls))
        self._time(slots)
        taken = []
        for _ in range(9):
            self.child.pause()
            self.child.resume()
            taken.append(self._time(slots, empty=True)[1])
        return median(taken)

    def _call_ms(self, slots: list[int]) -> float:
        """Milliseconds per call, at least a microsecond."""
        times, wall, _ = self._time(slots)
        return max(median(times) if times else wall / len(slots), 1e-3)

    def _time(self, slots: list[int], empty: bool = False) -> tuple[list[float], float, Block]:
        begin = time.perf_counter()
        answer = self.child.ask({"do": "time", "slots": slots, "empty": empty}, self.limit_s)
        wall = (time.perf_counter() - begin) * 1e3
        wanted = len(slots) if self.device_kind == "cuda" else 0
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

    def write(self, place: int, slots: list[int]) -> None:
        """Called before a program's block: write its inputs."""

    def wait(self, place: int, slots: list[int]) -> float:
        """Called after a program's block: the milliseconds until its results had reached the judge's memory."""

    def end(self, last: Round) -> None:
        """Called after the last round."""


def time_alone(program: Timed, budget_s: float) -> Measurement:
    """The latency of one program by itself, on whatever its slots hold."""
    calls = program.calls_for(program.warm_up())
    asking_ms = program.asking_ms(calls) if program.device_kind == "cpu" else 0.0
    deadline = time.monotonic() + budget_s
    while len(program.block_ms) < FEWEST_ROUNDS or (
        time.monotonic() < deadline and len(program.block_ms) < 2 * FEWEST_ROUNDS
    ):
        program.warm()
        program.sample(list(range(calls)))
    return _Window(program, {"": program}, calls, asking_ms).measurement(program, by_wall=False)


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
        contents.end(_rounds(window, budget_s, chance, contents))
    finally:  # they serve the next candidate
        for reference in references.values():
            reference.child.resume()
    return window.verdict()


def _rounds(window: _Window, budget_s: float, chance: random.Random, contents: Contents) -> Round:
    """Sample until there is enough; returns the last round."""
    everyone = [window.candidate, *window.references.values()]
    last: Round | None = None
    begin = time.monotonic()
    for count in range(1, DISTURBED_ROUNDS * MOST_ROUNDS + 1):
        contents.turn(last)
        last = _round(everyone, window.calls, chance, contents)
        over = (time.monotonic() - begin) / budget_s
        counted = len(window.counted())
        if counted >= FEWEST_ROUNDS and (over > 1 or counted == MOST_ROUNDS or window.narrow()):
            break
        if count >= FEWEST_ROUNDS_WHEN_SLOW and over > 1 + DISTURBED_ROUNDS:
            break
    assert last is not None
    return last


def _round(
    everyone: Sequence[Timed], calls: int, chance: random.Random, contents: Contents
) -> Round:
    """One sample of each, in random order."""
    slots = chance.sample(range(everyone[0].places), calls)
    blocks: dict[int, Block] = {}
    for place in chance.sample(range(len(everyone)), len(everyone)):
        program = everyone[place]
        if program.device_kind == "cpu":
            time.sleep(SPIN_S)
        contents.write(place, slots)
        with _awake(program):
            warm_ms = program.warm()
            blocks[place] = program.sample(slots)
        program.beside_ms.append(warm_ms + contents.wait(place, slots))
    return [blocks[place] for place in range(len(everyone))]


@dataclass(frozen=True)
class _Window:
    """Programs timed side by side, and how their raw times become times of one call."""

    candidate: Timed
    references: Mapping[str, Timed]
    calls: int
    asking_ms: float
    """What is subtracted is measured on a reference: it is never the candidate's word."""

    def counted(self) -> list[int]:
        """The rounds in which nobody was disturbed.

        A candidate that nearly always waits does so by itself, having more threads than there are cores.
        """
        flags = [reference.disturbed for reference in self.references.values()]
        if 2 * sum(self.candidate.disturbed) <= len(self.candidate.disturbed):
            flags.append(self.candidate.disturbed)
        return [n for n, disturbed in enumerate(zip(*flags, strict=True)) if not any(disturbed)]

    def narrow(self) -> bool:
        """Whether more rounds would tell little more."""
        candidate = _exact(self.measurement(self.candidate, by_wall=False))
        ratios = [
            speedup(name, _exact(self.measurement(reference, by_wall=False)), candidate)
            for name, reference in self.references.items()
        ]
        return all(_half_width(ratio) < WIDE for ratio in ratios)

    def verdict(self) -> tuple[Measurement, dict[str, Measurement], tuple[str, ...]]:
        """The measurements, on the clock that can be believed."""
        forged = self._forged()
        warnings = [] if forged is None else [forged]
        disturbed = len(self.candidate.block_ms) - len(self.counted())
        if disturbed > len(self.candidate.block_ms) / 2:
            warnings.append(
                f"the machine was busy: in {disturbed} of {len(self.candidate.block_ms)} samples the reference "
                "waited for a core; time again when nothing else runs"
            )
        late = self._late_ms()
        if late:
            warnings.append(
                f"it worked {late / self.calls:.3g} ms a call before it was timed or after it said that it was "
                "done; that counts as its time"
            )
        by_wall = forged is not None
        return (
            self.measurement(self.candidate, by_wall),
            {name: self.measurement(one, by_wall) for name, one in self.references.items()},
            tuple(warnings),
        )

    def measurement(self, program: Timed, by_wall: bool) -> Measurement:
        """What was measured of one program, on the chosen clock."""
        by_events = bool(program.event_ms) and not by_wall
        every = program.event_ms if by_events else self._net_ms(program)
        counted = self.counted()
        measurable = len(counted) >= min(FEWEST_ROUNDS_WHEN_SLOW, len(every))
        samples_ms = tuple(every[number] for number in counted) if measurable else tuple(every)
        kind = program.device_kind
        resolution_ms = RESOLUTION_MS[kind] + RESOLUTION_SHARE[kind] * median(samples_ms)
        if not measurable:
            resolution_ms = UNMEASURABLE * median(samples_ms)
        return Measurement(
            samples_ms=samples_ms,
            calls_per_sample=self.calls,
            warmups=program.warmups,
            clock="device_events" if by_events else "judge_wall",
            cache="warm" if kind == "cpu" else "cold",
            resolution_ms=resolution_ms,
        )

    def _net_ms(self, program: Timed) -> list[float]:
        """A call's time by the judge's clock, in each sample."""
        overhead_ms = self._overhead_ms()
        late_ms = self._late_ms() if program is self.candidate else 0.0
        gross = [block / self.calls for block in program.block_ms]
        return [
            (wall - overhead_ms if wall > overhead_ms else wall) + late_ms / self.calls
            for wall in gross
        ]

    def _overhead_ms(self) -> float:
        """What a call costs the judge's clock beside itself: on a GPU the flush and the copying, on a CPU its share of the asking."""
        first = next(iter(self.references.values()))
        if not first.event_ms:
            return self.asking_ms / self.calls
        pairs = zip(first.block_ms, first.event_ms, strict=True)
        return median(block / self.calls - event for block, event in pairs)

    def _late_ms(self) -> float:
        """How much longer the candidate surely worked beside its blocks than the first reference did."""
        first = next(iter(self.references.values()))
        if not self.candidate.beside_ms:
            return 0.0
        both = (self.candidate, first)
        ours, theirs = (program.beside_calls_ms(self.calls) for program in both)
        noise = 3 * sum(_deviation(program.beside_ms) for program in both)
        noise /= math.sqrt(len(first.beside_ms))
        counts = ours - theirs > max(noise, LATE_SHARE * median(self.candidate.block_ms))
        return ours - theirs if counts else 0.0

    def _forged(self) -> str | None:
        """A sentence where its device events claim far less time than passed on the judge's clock."""
        if not self.candidate.event_ms:
            return None
        net_ms = self._net_ms(self.candidate)
        claimed, seen = median(self.candidate.event_ms), median(net_ms)
        noise = 3 * _deviation(net_ms) / math.sqrt(len(net_ms))
        if seen <= FORGED_FACTOR * claimed + FORGED_MS + noise:
            return None
        return (
            f"its device events claim {claimed:.4g} ms a call where the judge's clock saw {seen:.4g} ms, "
            "so the judge's clock counts"
        )


def _window(candidate: Timed, references: Mapping[str, Timed], contents: Contents) -> _Window:
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
    return _Window(candidate, references, calls, asking_ms)


@contextmanager
def _awake(program: Timed) -> Iterator[None]:
    """A program runs while it is itself timed, and at no other time; stopping costs references as much as candidates."""
    program.child.resume()
    try:
        yield
    finally:
        program.child.pause()


def _exact(measurement: Measurement) -> Measurement:
    """Without the part of its interval that more samples do not make narrower."""
    return measurement.model_copy(update={"resolution_ms": 0.0})


def _half_width(ratio: Speedup) -> float:
    return (ratio.high - ratio.low) / (2 * ratio.ratio)


def _deviation(values: list[float]) -> float:
    """The standard deviation as the median absolute deviation tells it."""
    middle = median(values)
    return 1.5 * median(abs(value - middle) for value in values)


def _times(answer: object, wanted: int) -> list[float]:
    """The times that a child claims, if they can be times at all. Raises ChildFailed."""
    claimed = answer if isinstance(answer, list) else [None]
    times = [
        float(t) for t in claimed if isinstance(t, int | float) and math.isfinite(t) and t >= 0
    ]
    if len(times) < len(claimed) or len(times) != wanted:
        raise ChildFailed("crashed", "the process answered with something that is no time")
    return times
