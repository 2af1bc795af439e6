"""Computes results from raw times on a GPU: chooses the clock, the rounds that count and the uncertainty.

Uses only what the judge's clock measured around each block and what device events report. In a
round, each program runs one block: a series of calls that the judge requests and times together. A
single call is requested by itself. The device is kept busy for a moment before each of these calls. There are also dense blocks, in which the device is not kept busy before the calls.
`docs/measuring.md` describes the method.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Protocol

from stark.core.measurement import Measurement, Speedup, speedup

MIN_ROUNDS = 8
"""Rounds that must count before sampling may end, unless it has taken over three times its budget."""

MIN_ROUNDS_WHEN_SLOW = 3
"""Rounds that must count if programs are so slow that `MIN_ROUNDS` rounds take over three times the
budget. If fewer than half of all rounds count, `MIN_ROUNDS` rounds must count nevertheless, because
a few samples neither bound a time nor reveal work that the clock does not measure."""

TARGET_HALF_WIDTH = 0.004
"""Sampling ends when the relative half-width of each speedup's confidence interval is below this."""

SHORT_MS = 0.1
"""A call is short if it takes less than these milliseconds."""

RESOLUTION_MS = {"short": 0.0012, "long": 0.0004}
RESOLUTION_SHARE = 0.0025
"""Depending on where their memory lies, two processes that run the same program can differ steadily
in their time per call. The difference is up to a constant in milliseconds (one for short calls, one
for longer calls) plus a share of the time per call. `docs/measuring.md` has the measurements."""

FORGED_FACTOR, FORGED_MS = 1.5, 0.01
"""The wall clock replaces the device events if its time exceeds the sum of `FORGED_FACTOR` times the
events' time, `FORGED_MS` milliseconds and the noise of the wall clock."""

UNMEASURABLE_FACTOR = 1000.0
"""The uncertainty of a latency, as a multiple of that latency, if too few rounds count."""

LATE_SHARE = 0.1
"""The candidate's work outside its blocks is added to its measured time if this work takes longer than
both the noise and this share of a block's time."""

BATCHING_SHARE = 0.5
"""A warning is given if a call, by itself or in a dense block, may take longer than measured, and the
difference exceeds this share of the call's latency."""

SURROUNDINGS_MS = 0.2
"""Milliseconds by which the median overheads of two programs can differ in dense blocks of one call.
Dense blocks of several calls need no such allowance: their overhead is divided among the calls, and its variation
is measured."""


class Times(Protocol):
    """The recorded times of one program's blocks. `Timed` documents the fields."""

    warmups: int
    block_ms: list[float]
    outside_ms: list[float]
    single_ms: list[float]
    dense_ms: dict[int, list[float]]
    empty_ms: dict[int, list[float]]
    event_ms: list[float]
    disturbed: list[bool]


@dataclass(frozen=True)
class Window:
    """Programs that were timed side by side. Computes the time per call of each."""

    candidate: Times
    references: Mapping[str, Times]
    calls: int

    def counted(self) -> list[int]:
        """The rounds in which no program was disturbed.

        A program is disturbed if one of its threads waits too long for a core.

        A candidate that was disturbed in most rounds probably disturbs itself, by having more
        threads than there are cores. Its disturbances are ignored; those of references count.
        """
        flags = [reference.disturbed for reference in self.references.values()]
        if 2 * sum(self.candidate.disturbed) <= len(self.candidate.disturbed):
            flags.append(self.candidate.disturbed)
        return [n for n, disturbed in enumerate(zip(*flags, strict=True)) if not any(disturbed)]

    def measurable(self) -> bool:
        """Whether enough rounds count."""
        return self._reported()[1]

    def _reported(self) -> tuple[Sequence[int], bool]:
        """The rounds to report, and whether enough rounds count. If too few count, returns all rounds."""
        counted, every = self.counted(), range(len(self.candidate.block_ms))
        most = 2 * len(counted) >= len(every)
        wanted = MIN_ROUNDS_WHEN_SLOW if most else MIN_ROUNDS
        return (counted, True) if len(counted) >= min(wanted, len(every)) else (every, False)

    def narrow(self) -> bool:
        """Whether the intervals are narrow enough to end sampling."""
        candidate = _exact(self.measurement(self.candidate, by_wall=False))
        ratios = [
            speedup(name, _exact(self.measurement(reference, by_wall=False)), candidate)
            for name, reference in self.references.items()
        ]
        if self._may_be_noise(candidate.latency_ms):
            return False
        return all(_half_width(ratio) < TARGET_HALF_WIDTH for ratio in ratios)

    def verdict(self) -> tuple[Measurement, dict[str, Measurement], tuple[str, ...]]:
        """The candidate's measurement, the references' measurements by name, and warnings.

        All times come from the clock that can be trusted.
        """
        forged = self._forged()
        by_wall = forged is not None
        warnings = [] if forged is None else [forged]
        disturbed = len(self.candidate.block_ms) - len(self.counted())
        if disturbed > len(self.candidate.block_ms) / 2:
            warnings.append(
                f"the machine was busy: in {disturbed} of {len(self.candidate.block_ms)} samples "
                "a program waited for a core; repeat the timing when nothing else is running"
            )
        late_ms = self._late_ms()
        if late_ms:
            meaning = (
                "this counts as the candidate's time"
                if by_wall
                else "the candidate's interval is widened accordingly"
            )
            warnings.append(
                f"the candidate worked {late_ms / self.calls:.3g} ms per call outside the timed "
                "region, before the clock started or after the candidate reported completion; "
                f"{meaning}"
            )
        batching = self._batching_ms()
        if batching > BATCHING_SHARE * self.measurement(self.candidate, by_wall=False).latency_ms:
            warnings.append(
                f"by itself a call takes up to {batching:.3g} ms longer than in a block of "
                f"{self.calls} calls, which may share work; the candidate's interval is widened "
                "accordingly"
            )
        latency_ms = self.measurement(self.candidate, by_wall).latency_ms
        hidden_ms = self._hidden_ms(latency_ms)
        if hidden_ms > BATCHING_SHARE * latency_ms:
            warnings.append(
                f"without a pause before it, a call takes up to {hidden_ms:.3g} ms longer than "
                "measured, because it is slow to launch or because work was done before the clock "
                "started; the candidate's interval is widened accordingly"
            )
        return (
            self.measurement(self.candidate, by_wall),
            {name: self.measurement(one, by_wall) for name, one in self.references.items()},
            tuple(warnings),
        )

    def measurement(self, program: Times, by_wall: bool) -> Measurement:
        """The measurement of one program, by device events or the judge's clock."""
        every = self._net_ms(program) if by_wall else program.event_ms
        rounds, measurable = self._reported()
        samples_ms = tuple(every[number] for number in rounds)
        resolution_ms = _resolution_ms(median(samples_ms))
        if program is self.candidate:
            possible_ms = self._hidden_ms(median(samples_ms)) + self._batching_ms()
            resolution_ms = max(resolution_ms, possible_ms)
            if not by_wall:  # the clocks may differ by too little to prove a forgery
                resolution_ms = max(resolution_ms, self._unexplained_ms())
        if not measurable:
            resolution_ms = UNMEASURABLE_FACTOR * median(samples_ms)
        return Measurement(
            samples_ms=samples_ms,
            calls_per_sample=self.calls,
            warmups=program.warmups,
            clock="judge_wall" if by_wall else "device_events",
            cache="cold",
            resolution_ms=resolution_ms,
        )

    def _net_ms(self, program: Times) -> list[float]:
        """The time per call in each round by the judge's clock, without the clock's overhead."""
        overhead_ms = self._overhead_ms()
        more_ms = 0.0
        if program is self.candidate:
            more_ms = self._late_ms() / self.calls
        gross = [block / self.calls for block in program.block_ms]
        return [(wall - overhead_ms if wall > overhead_ms else wall) + more_ms for wall in gross]

    def _overhead_ms(self) -> float:
        """Milliseconds per call that the judge's clock measures in addition to the call itself.

        This is the time to flush the cache and to copy results.
        """
        first = next(iter(self.references.values()))
        pairs = zip(first.block_ms, first.event_ms, strict=True)
        return median(block / self.calls - event for block, event in pairs)

    def _late_ms(self) -> float:
        """Milliseconds that the candidate certainly worked outside its blocks, minus those of the first reference.

        Uses only the rounds to report. Otherwise a candidate could be late in these rounds and
        punctual in others, and disturb the others so that they do not count. If the
        candidate's time outside its blocks varies, this excuses lateness only as far as the times of its
        blocks vary as much, because variation of the blocks' times widens the candidate's interval.
        """
        first = next(iter(self.references.values()))
        if not self.candidate.outside_ms:
            return 0.0
        rounds = self._reported()[0]
        (ours, our_blocks), (theirs, _) = (
            ([every[n] for n in rounds] for every in (program.outside_ms, program.block_ms))
            for program in (self.candidate, first)
        )
        late_ms = median(ours) - median(theirs)
        noise = 3 * (_deviation(theirs) + min(_deviation(ours), _deviation(our_blocks)))
        noise /= math.sqrt(len(ours))
        sure = late_ms > max(noise, LATE_SHARE * median(our_blocks))
        return late_ms if sure else 0.0

    def _may_be_noise(self, latency_ms: float) -> bool:
        """Whether the candidate's interval may be wide because of noise, which more rounds reduce."""
        possible_ms = self._hidden_ms(latency_ms) + self._batching_ms()
        if possible_ms < TARGET_HALF_WIDTH * latency_ms:
            return False
        dense_ms = next(iter(self.references.values())).dense_ms
        return bool(dense_ms) and possible_ms < 3 * _error(dense_ms[max(dense_ms)])

    def _batching_ms(self) -> float:
        """The milliseconds that a call of the candidate takes longer alone than in a block.

        The same number for the first reference, plus its standard error, is subtracted.
        """
        if not self.candidate.single_ms:
            return 0.0
        first = next(iter(self.references.values()))
        rounds = self._reported()[0]
        ours, theirs = (
            [program.single_ms[n] - program.event_ms[n] for n in rounds]
            for program in (self.candidate, first)
        )
        excused = max(0.0, median(theirs)) + _error(theirs)
        return max(0.0, median(ours) - excused)

    def _hidden_ms(self, latency_ms: float) -> float:
        """Milliseconds by which a call may take longer than measured, according to dense blocks.

        In dense blocks there is no time to work before the clock starts. Slow launches lengthen the
        candidate's dense blocks, but also the reference's. Let t(program) be the time of a dense
        block of the program minus the time of an empty dense block. Then the candidate's latency is
        at least t(candidate) / t(reference) times the reference's latency.
        """
        known_ms = median(next(iter(self.references.values())).event_ms or [0.0])
        seen = [self._densely_ms(calls, known_ms) for calls in self.candidate.dense_ms]
        return max(0.0, max(seen, default=0.0) - latency_ms)

    def _densely_ms(self, calls: int, known_ms: float) -> float:
        """A lower bound of the candidate's latency in milliseconds, from dense blocks of `calls` calls.

        `known_ms` is the reference's measured latency.
        """
        first = next(iter(self.references.values()))
        empty_ms = median(first.empty_ms[calls])
        ours, theirs = (
            median(program.dense_ms[calls]) - empty_ms for program in (self.candidate, first)
        )
        noise = math.hypot(_error(first.dense_ms[calls]), _error(first.empty_ms[calls]))
        excused = SURROUNDINGS_MS if calls == 1 else noise
        # Noise may reduce a short time to almost nothing, so the divisor has a lower bound.
        return (ours - excused) * known_ms / max(theirs, known_ms / 2)

    def _unexplained_ms(self) -> float:
        """Milliseconds per call, beyond noise, by which the judge's clock exceeds the device events.

        The noise of the judge's clock is taken from a reference, because a candidate could idle
        between its calls to add noise of its own.
        """
        first = next(iter(self.references.values()))
        beside = [
            block / self.calls - event
            for block, event in zip(first.block_ms, first.event_ms, strict=True)
        ]
        noise = 3 * _deviation(beside) / math.sqrt(len(beside))
        seen = median(self._net_ms(self.candidate))
        return max(0.0, seen - median(self.candidate.event_ms) - noise)

    def _forged(self) -> str | None:
        """A warning if device events report far less time than the judge's clock measured."""
        unexplained_ms = self._unexplained_ms()
        if not unexplained_ms:
            return None
        claimed = median(self.candidate.event_ms)
        if unexplained_ms <= (FORGED_FACTOR - 1) * claimed + FORGED_MS:
            return None
        seen = median(self._net_ms(self.candidate))
        return (
            f"the candidate's device events report {claimed:.4g} ms per call, but the judge's "
            f"clock measured {seen:.4g} ms; the judge's clock is used"
        )


def _resolution_ms(latency_ms: float) -> float:
    """Milliseconds by which processes that run the same program may differ, at this latency."""
    absolute_ms = RESOLUTION_MS["short" if latency_ms < SHORT_MS else "long"]
    return absolute_ms + RESOLUTION_SHARE * latency_ms


def _exact(measurement: Measurement) -> Measurement:
    """The measurement without the part of its uncertainty that more samples do not reduce."""
    return measurement.model_copy(update={"resolution_ms": 0.0})


def _half_width(ratio: Speedup) -> float:
    return (ratio.high - ratio.low) / (2 * ratio.ratio)


def _deviation(values: list[float]) -> float:
    """The standard deviation, estimated from the median absolute deviation."""
    middle = median(values)
    return 1.5 * median(abs(value - middle) for value in values)


def _error(values: list[float]) -> float:
    """The approximate standard error of a difference between two medians of samples like `values`."""
    return math.sqrt(2 / len(values)) * _deviation(values)
