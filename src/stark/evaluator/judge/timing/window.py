"""From raw times of programs timed side by side to what is reported: clocks that can be believed, rounds that count.

Knows no process: only what the judge's clock saw around each block, and what the blocks' own events claim.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Protocol

from stark.core.measurement import Measurement, Speedup, speedup

FEWEST_ROUNDS = 8
FEWEST_ROUNDS_WHEN_SLOW = 3
"""Enough for programs so slow that even these take three times the budget, and not where more were taken and do not count:
few samples neither bound a time nor show who works beside the clock."""

WIDE = 0.004
"""Half-width of the interval, relative, under which no more rounds are taken."""

SHORT_MS = 0.1
RESOLUTION_MS = {"cuda": {"short": 0.0012, "long": 0.0004}, "cpu": {"short": 0.0, "long": 0.0}}
RESOLUTION_SHARE = {"cuda": 0.0025, "cpu": 0.2}
"""Two processes that run the same program steadily differ by up to so much a call, absolute (of calls that are shorter than
`SHORT_MS`, and of others) and relative, by where their memory happens to lie (`docs/measuring.md`)."""

FORGED_FACTOR, FORGED_MS = 1.5, 0.01
"""How far the wall clock may exceed what the device events claim, beyond its own noise, before the wall clock counts."""

UNMEASURABLE = 1000.0
"""What a time of which too few rounds count may be wrong by, in its own times."""

LATE_SHARE = 0.1
"""Share of a block that its results may be late by, beyond noise, before the lateness counts as time."""

TOGETHER_SHARE = 0.5
"""Share of a call that it may take longer by itself than in its block before that is told."""

SURROUNDINGS_MS = 0.2
"""By how much the medians of what surrounds dense blocks differ: of blocks of several calls it is a small part, and measured."""


class Times(Protocol):
    """What the blocks of one program took."""

    device_kind: str
    warmups: int
    block_ms: list[float]
    beside_ms: list[float]
    alone_ms: list[float]
    dense_ms: dict[int, list[float]]
    empty_ms: dict[int, list[float]]
    event_ms: list[float]
    disturbed: list[bool]


@dataclass(frozen=True)
class Window:
    """Programs timed side by side, and how their raw times become times of one call."""

    candidate: Times
    references: Mapping[str, Times]
    calls: int
    asking_ms: float
    """What is subtracted is measured on a reference: it is never the candidate's word."""

    def counted(self) -> list[int]:
        """The rounds in which nobody was disturbed.

        A candidate that waits in most of them does so by itself, having more threads than there are cores.
        """
        flags = [reference.disturbed for reference in self.references.values()]
        if 2 * sum(self.candidate.disturbed) <= len(self.candidate.disturbed):
            flags.append(self.candidate.disturbed)
        return [n for n, disturbed in enumerate(zip(*flags, strict=True)) if not any(disturbed)]

    def measurable(self) -> bool:
        """Whether enough rounds count."""
        return self._measured()[1]

    def _measured(self) -> tuple[Sequence[int], bool]:
        """The rounds that are reported: those that count, or all and False where too few do."""
        counted, every = self.counted(), range(len(self.candidate.block_ms))
        most = 2 * len(counted) >= len(every)
        wanted = FEWEST_ROUNDS_WHEN_SLOW if most else FEWEST_ROUNDS
        return (counted, True) if len(counted) >= min(wanted, len(every)) else (every, False)

    def narrow(self) -> bool:
        """Whether more rounds would tell little more."""
        candidate = _exact(self.measurement(self.candidate, by_wall=False))
        ratios = [
            speedup(name, _exact(self.measurement(reference, by_wall=False)), candidate)
            for name, reference in self.references.items()
        ]
        if self._may_be_noise(candidate.latency_ms):
            return False
        return all(_half_width(ratio) < WIDE for ratio in ratios)

    def verdict(self) -> tuple[Measurement, dict[str, Measurement], tuple[str, ...]]:
        """The measurements, on the clock that can be believed."""
        forged = self._forged()
        by_wall = forged is not None
        warnings = [] if forged is None else [forged]
        disturbed = len(self.candidate.block_ms) - len(self.counted())
        if disturbed > len(self.candidate.block_ms) / 2:
            warnings.append(
                f"the machine was busy: in {disturbed} of {len(self.candidate.block_ms)} samples a program "
                "waited for a core; time again when nothing else runs"
            )
        late = self._late_ms()
        if late:
            counts = by_wall or not self.candidate.event_ms
            meaning = "that counts as its time" if counts else "its interval is wider for that"
            warnings.append(
                f"it worked {late / self.calls:.3g} ms a call before it was timed or after it said that it was done; {meaning}"
            )
        together = self._together_ms()[0] + self._batched_ms()
        if together > TOGETHER_SHARE * self.measurement(self.candidate, by_wall=False).latency_ms:
            warnings.append(
                f"asked for one at a time, a call takes up to {together:.3g} ms longer than in a block of {self.calls}, where "
                "several can be done together; its interval is wider for that"
            )
        latency_ms = self.measurement(self.candidate, by_wall).latency_ms
        hidden = self._hidden_ms(latency_ms)
        if hidden > TOGETHER_SHARE * latency_ms:
            warnings.append(
                f"where nothing precedes a call, it takes up to {hidden:.3g} ms longer than was measured: its launch, or work "
                "that was done before the clock started; its interval is wider for that"
            )
        return (
            self.measurement(self.candidate, by_wall),
            {name: self.measurement(one, by_wall) for name, one in self.references.items()},
            tuple(warnings),
        )

    def measurement(self, program: Times, by_wall: bool) -> Measurement:
        """What was measured of one program, on the chosen clock."""
        by_events = bool(program.event_ms) and not by_wall
        every = program.event_ms if by_events else self._net_ms(program)
        rounds, measurable = self._measured()
        samples_ms = tuple(every[number] for number in rounds)
        kind = program.device_kind
        resolution_ms = _resolution_ms(kind, median(samples_ms))
        if (
            kind == "cpu"
        ):  # who answers in fewer words than the reference has that taken off its time all the same
            resolution_ms += self.asking_ms / self.calls
        if kind == "cuda" and program is self.candidate:
            perhaps_ms = self._hidden_ms(median(samples_ms)) + self._batched_ms()
            resolution_ms = max(resolution_ms, perhaps_ms)
            if by_events:  # the two clocks differ by less than proves a lie
                resolution_ms = max(resolution_ms, self._unexplained_ms())
        if kind == "cpu" and program is self.candidate:  # nor is it surely the machine's
            perhaps_ms = self._lateness()[1] / self.calls + self._together_ms()[1]
            resolution_ms = max(resolution_ms, perhaps_ms)
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

    def _net_ms(self, program: Times) -> list[float]:
        """A call's time by the judge's clock, in each sample."""
        overhead_ms = self._overhead_ms()
        more_ms = 0.0
        if program is self.candidate:
            more_ms = self._late_ms() / self.calls
        gross = [block / self.calls for block in program.block_ms]
        return [(wall - overhead_ms if wall > overhead_ms else wall) + more_ms for wall in gross]

    def _overhead_ms(self) -> float:
        """What a call costs the judge's clock beside itself: on a GPU the flush and the copying, on a CPU its share of the asking."""
        first = next(iter(self.references.values()))
        if not first.event_ms:
            return self.asking_ms / self.calls
        pairs = zip(first.block_ms, first.event_ms, strict=True)
        return median(block / self.calls - event for block, event in pairs)

    def _late_ms(self) -> float:
        """How much longer the candidate surely worked beside its blocks than the first reference did."""
        return self._lateness()[0]

    def _lateness(self) -> tuple[float, float]:
        """How much longer the candidate worked beside its blocks than the first reference did: surely, and perhaps.

        In the rounds that count: it chooses which of its own do not. Nor does its own unrest excuse it, but for as much
        as its blocks have too, which makes its interval wide.
        """
        first = next(iter(self.references.values()))
        if not self.candidate.beside_ms:
            return 0.0, 0.0
        rounds = self._measured()[0]
        (ours, our_blocks), (theirs, their_blocks) = (
            ([every[n] for n in rounds] for every in (program.beside_ms, program.block_ms))
            for program in (self.candidate, first)
        )
        late = median(ours) - median(theirs)
        if first.device_kind == "cpu":  # a call like those in the block is among what passed
            late -= (median(our_blocks) - median(their_blocks)) / self.calls
        noise = 3 * (_deviation(theirs) + min(_deviation(ours), _deviation(our_blocks)))
        noise /= math.sqrt(len(ours))
        sure = late > max(noise, LATE_SHARE * median(our_blocks))
        if (
            first.device_kind == "cpu"
        ):  # threads that wake are late by chance; a few rounds do not tell
            sure = sure and len(rounds) >= FEWEST_ROUNDS
        return (late, 0.0) if sure else (0.0, max(late, 0.0))

    def _together_ms(self) -> tuple[float, float]:
        """How much longer a call of the candidate takes by itself on a CPU than in its block, beyond what the first reference's does.

        As it was seen, with how unsteady the reference is: the candidate's own unrest excuses nothing. And at most: calls
        that come alone differ steadily, too, between processes that do the same. What waking up takes, the reference tells.
        """
        if not self.candidate.alone_ms or self.candidate.event_ms:
            return 0.0, 0.0
        first = next(iter(self.references.values()))
        rounds = self._measured()[0]
        ours, theirs = (
            [program.alone_ms[n] - program.block_ms[n] / self.calls for n in rounds]
            for program in (self.candidate, first)
        )
        noise = 3 * _error(theirs)
        seen = median(ours) - median(theirs) + noise
        alone_ms = median(self.candidate.alone_ms[n] for n in rounds)
        at_most = seen + RESOLUTION_SHARE[first.device_kind] * alone_ms
        return max(0.0, seen), max(0.0, at_most)

    def _may_be_noise(self, latency_ms: float) -> bool:
        """Whether what widens a candidate's interval on a GPU may be noise, of which more rounds leave less."""
        perhaps_ms = self._hidden_ms(latency_ms) + self._batched_ms()
        if perhaps_ms < WIDE * latency_ms:
            return False
        dense_ms = next(iter(self.references.values())).dense_ms
        return bool(dense_ms) and perhaps_ms < 3 * _error(dense_ms[max(dense_ms)])

    def _batched_ms(self) -> float:
        """How much longer a call of the candidate takes by itself on a GPU than in its block, beyond what the first reference's does."""
        if not self.candidate.alone_ms or not self.candidate.event_ms:
            return 0.0
        first = next(iter(self.references.values()))
        rounds = self._measured()[0]
        ours, theirs = (
            [program.alone_ms[n] - program.event_ms[n] for n in rounds]
            for program in (self.candidate, first)
        )
        excused = max(0.0, median(theirs)) + _error(theirs)
        return max(0.0, median(ours) - excused)

    def _hidden_ms(self, latency_ms: float) -> float:
        """How much longer than what was measured a call of the candidate may take, by the judge's clock around dense blocks.

        Nothing there gives time to work before the clock starts. Where launches take longer than the work they count, but they do
        in the reference's blocks, too: with t the time in a dense block, less what an empty one takes, the candidate is
        surely not faster than t(candidate) / t(reference) of what the reference was measured at.
        """
        known_ms = median(next(iter(self.references.values())).event_ms or [0.0])
        seen = [self._densely_ms(calls, known_ms) for calls in self.candidate.dense_ms]
        return max(0.0, max(seen, default=0.0) - latency_ms)

    def _densely_ms(self, calls: int, known_ms: float) -> float:
        """A time that a call of the candidate surely takes, as dense blocks of so many calls tell, the reference's being known."""
        first = next(iter(self.references.values()))
        empty_ms = median(first.empty_ms[calls])
        ours, theirs = (
            median(program.dense_ms[calls]) - empty_ms for program in (self.candidate, first)
        )
        noise = math.hypot(_error(first.dense_ms[calls]), _error(first.empty_ms[calls]))
        excused = SURROUNDINGS_MS if calls == 1 else noise
        # What noise leaves of a short time is no measure of anything.
        return (ours - excused) * known_ms / max(theirs, known_ms / 2)

    def _unexplained_ms(self) -> float:
        """How much more than its device events claim the judge's clock surely saw of a call of the candidate.

        How unsteady the judge's clock is, a reference tells: a candidate can idle between its calls as it likes.
        """
        first = next(iter(self.references.values()))
        if not self.candidate.event_ms:
            return 0.0
        beside = [
            block / self.calls - event
            for block, event in zip(first.block_ms, first.event_ms, strict=True)
        ]
        noise = 3 * _deviation(beside) / math.sqrt(len(beside))
        seen = median(self._net_ms(self.candidate))
        return max(0.0, seen - median(self.candidate.event_ms) - noise)

    def _forged(self) -> str | None:
        """A sentence where its device events claim far less time than passed on the judge's clock."""
        unexplained_ms = self._unexplained_ms()
        if not unexplained_ms:
            return None
        claimed = median(self.candidate.event_ms)
        if unexplained_ms <= (FORGED_FACTOR - 1) * claimed + FORGED_MS:
            return None
        seen = median(self._net_ms(self.candidate))
        return (
            f"its device events claim {claimed:.4g} ms a call where the judge's clock saw {seen:.4g} ms, "
            "so the judge's clock counts"
        )


def _resolution_ms(kind: str, latency_ms: float) -> float:
    """By how much two processes that run the same program may differ, of a call that takes so long."""
    absolute_ms = RESOLUTION_MS[kind]["short" if latency_ms < SHORT_MS else "long"]
    return absolute_ms + RESOLUTION_SHARE[kind] * latency_ms


def _exact(measurement: Measurement) -> Measurement:
    """Without the part of its interval that more samples do not make narrower."""
    return measurement.model_copy(update={"resolution_ms": 0.0})


def _half_width(ratio: Speedup) -> float:
    return (ratio.high - ratio.low) / (2 * ratio.ratio)


def _deviation(values: list[float]) -> float:
    """The standard deviation as the median absolute deviation tells it."""
    middle = median(values)
    return 1.5 * median(abs(value - middle) for value in values)


def _error(values: list[float]) -> float:
    """The standard error of the difference of two medians of values that spread as these do, about."""
    return math.sqrt(2 / len(values)) * _deviation(values)
