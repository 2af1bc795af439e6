"""Paired timing of two running programs, and the checks on the clock that a candidate could bend.

On a GPU each call is timed by device events in the running process, which hostile code could forge;
the judge's own wall clock around each block bounds them. On a CPU the judge's wall clock is the clock.
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from statistics import median
from typing import Protocol

from stark.core.measurement import Measurement, Speedup, speedup
from stark.evaluator.candidate.wire import Message
from stark.evaluator.judge.children import ChildFailed

BLOCK_MS = {"cuda": 8.0, "cpu": 25.0}
"""About how long one sample should run, so that the cost of asking for it vanishes."""

LARGEST_BLOCK = {"cuda": 50, "cpu": 5000}
WARMUP_BLOCKS = 3
LONG_MS = 500.0
"""A call that takes so long is warm after three."""

FEWEST_PAIRS = 8
FEWEST_PAIRS_WHEN_SLOW = 3
"""Enough for programs so slow that even these take three times the budget."""

MOST_PAIRS = 100
WIDE = 0.005
"""Half-width of the interval, relative, under which no more pairs are taken."""

SPIN_S = 0.002
"""OpenMP threads of the process that ran last spin this long before they sleep, on cores the next one needs."""

RESOLUTION_MS = {"cuda": 0.0012, "cpu": 0.0}
RESOLUTION_SHARE = {"cuda": 0.0, "cpu": 0.1}
"""Two processes that run the same program steadily differ by up to so much a call, absolute and relative, by where
their memory happens to lie (`docs/judge.md`)."""

FORGED_FACTOR, FORGED_MS = 1.5, 0.1
"""How far the wall clock may exceed what the device events claim before the wall clock counts."""


class Asked(Protocol):
    """A process that runs a program: a candidate's child, or the running reference."""

    def ask(self, request: Message, limit_s: float) -> Message:
        """Its answer to a request."""


@dataclass
class Timed:
    """One program being timed: its process, and what its blocks took so far."""

    child: Asked
    device_kind: str
    limit_s: float
    calls: int = 1
    asking_ms: float = 0.0
    """What one block costs the judge without any call in it, per block (CPU) or per call (GPU: the cache flush)."""

    event_ms: list[float] = field(default_factory=list)
    wall_ms: list[float] = field(default_factory=list)
    warmups: int = 0

    def warm_up(self) -> None:
        """Run the program until it is warm, and choose how many calls make a sample."""
        first = self._block(1)
        self._block(1)
        estimate = min(first, self._block(1))
        self.calls = max(
            1, min(LARGEST_BLOCK[self.device_kind], round(BLOCK_MS[self.device_kind] / estimate))
        )
        more = WARMUP_BLOCKS if estimate < LONG_MS else 0
        for _ in range(more):
            self._block(self.calls)
        self.warmups = 3 + more * self.calls
        self.asking_ms = median(self._empty() for _ in range(5))

    def sample(self) -> None:
        """Take one sample. On a CPU an untimed call comes first: the other program ran last and left cold caches."""
        if self.device_kind == "cpu":
            time.sleep(SPIN_S)
            self._ask(1, empty=False)
        times, wall = self._ask(self.calls, empty=False)
        if self.device_kind == "cpu":
            net = wall - self.asking_ms
            self.wall_ms.append((net if net > 0 else wall) / self.calls)
        else:
            self.wall_ms.append(max(wall / self.calls - self.asking_ms, 1e-6))
            self.event_ms.append(max(median(times), 1e-6))

    def measurement(self, by_wall: bool) -> Measurement:
        """What was measured, on the chosen clock."""
        by_wall = by_wall or not self.event_ms
        samples_ms = tuple(self.wall_ms if by_wall else self.event_ms)
        kind = self.device_kind
        return Measurement(
            samples_ms=samples_ms,
            calls_per_sample=self.calls,
            warmups=self.warmups,
            clock="judge_wall" if by_wall else "device_events",
            cache="warm" if kind == "cpu" else "cold",
            resolution_ms=RESOLUTION_MS[kind] + RESOLUTION_SHARE[kind] * median(samples_ms),
        )

    def forged(self) -> bool:
        """Whether its device events claim far less time than passed on the judge's clock."""
        if not self.event_ms:
            return False
        return median(self.wall_ms) > FORGED_FACTOR * median(self.event_ms) + FORGED_MS

    def _block(self, calls: int) -> float:
        """Milliseconds per call, at least a microsecond."""
        times, wall = self._ask(calls, empty=False)
        return max(median(times) if times else wall / calls, 1e-3)

    def _empty(self) -> float:
        _, wall = self._ask(self.calls, empty=True)
        return wall if self.device_kind == "cpu" else wall / self.calls

    def _ask(self, calls: int, empty: bool) -> tuple[list[float], float]:
        begin = time.perf_counter()
        answer = self.child.ask({"do": "time", "calls": calls, "empty": empty}, self.limit_s)
        wall = (time.perf_counter() - begin) * 1e3
        return _times(answer.get("times_ms")), wall


def _times(answer: object) -> list[float]:
    """The times that a child claims, if they can be times at all. Raises ChildFailed."""
    claimed = answer if isinstance(answer, list) else [None]
    times = [
        float(t) for t in claimed if isinstance(t, int | float) and math.isfinite(t) and t >= 0
    ]
    if len(times) < len(claimed):
        raise ChildFailed("crashed", "the process answered with something that is no time")
    return times


def time_alone(program: Timed, budget_s: float) -> Measurement:
    """The latency of one program by itself."""
    program.warm_up()
    deadline = time.monotonic() + budget_s
    while len(program.wall_ms) < FEWEST_PAIRS or (
        time.monotonic() < deadline and len(program.wall_ms) < 2 * FEWEST_PAIRS
    ):
        program.sample()
    return program.measurement(by_wall=False)


def time_pair(
    reference: Timed,
    candidate: Timed,
    budget_s: float,
    chance: random.Random,
    before_pair: Callable[[], None] = lambda: None,
) -> tuple[Measurement, Measurement, tuple[str, ...]]:
    """Time both in one window, in pairs of random order, until the interval is narrow or the time is up.

    `before_pair` is called before each; it may change the inputs of both, and is not timed.
    Returns the reference's measurement, the candidate's, and warnings.
    """
    reference.warm_up()
    candidate.warm_up()
    candidate.asking_ms = reference.asking_ms  # what is subtracted is never the candidate's word
    deadline = time.monotonic() + budget_s
    while len(candidate.wall_ms) < MOST_PAIRS:
        before_pair()
        order = [reference, candidate]
        chance.shuffle(order)
        for program in order:
            program.sample()
        pairs, over_s = len(candidate.wall_ms), time.monotonic() - deadline
        if pairs >= FEWEST_PAIRS and (over_s > 0 or _narrow(_ratio(reference, candidate))):
            break
        if pairs >= FEWEST_PAIRS_WHEN_SLOW and over_s > 2 * budget_s:
            break
    by_wall = candidate.forged()
    warnings: tuple[str, ...] = ()
    if by_wall:
        warnings = (
            f"its device events claim {median(candidate.event_ms):.4g} ms a call where the judge's clock saw "
            f"{median(candidate.wall_ms):.4g} ms, so the judge's clock counts",
        )
    return reference.measurement(by_wall), candidate.measurement(by_wall), warnings


def _ratio(reference: Timed, candidate: Timed) -> Speedup:
    """The ratio so far, with the part of its interval that more samples make narrower."""
    exact = {"resolution_ms": 0.0}
    return speedup(
        "reference",
        reference.measurement(False).model_copy(update=exact),
        candidate.measurement(False).model_copy(update=exact),
    )


def _narrow(ratio: Speedup) -> bool:
    return (ratio.high - ratio.low) / (2 * ratio.ratio) < WIDE
