"""Visits programs on a GPU: times series of calls through a program's gate, and checks the results.

A visit begins with calls that are not counted. Every call has new inputs. Its results are read where they lie, into
memory that only the judge maps, and all results of a candidate are compared with the reference's for the same inputs, outside
of the clock (`timed_results.py`).

A program queues several calls ahead if it can. One that waits for the device inside a call cannot. A candidate of this
kind is asked for one call at a time, and copies its results to the arena as a part of the call. A reference of this kind
is timed by events of its own process.

From a call's time the judge subtracts what an empty call costs. An empty call only writes as much memory as the results
take, and the time of this writing is not counted. It is measured in a reference's process while no candidate exists.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from statistics import median
from typing import TYPE_CHECKING

import torch

from stark.core.evaluation import Effort
from stark.core.measurement import Measurement
from stark.evaluator.judge.device_calls import Compare, DeviceCalls, NotQueued, Visited
from stark.evaluator.judge.device_results import retried
from stark.evaluator.judge.trial import Trial

if TYPE_CHECKING:
    from stark.evaluator.judge.prepared import PreparedReference

VISIT_MS = 60.0
"""Target duration of a visit in milliseconds."""

MIN_CALLS, MAX_CALLS, LONG_MS = 8, 64, 100.0
"""Calls of a candidate's visit, and the milliseconds of a call from which on half of the fewest are enough."""

SEARCH_S = 0.25
"""About the most seconds of a visit at effort `search`, with the drawing and comparing of large tensors."""

EMPTY_CALLS: dict[Effort, int] = {"race": 8, "search": 8, "promote": 24}
"""Calls that only write to memory, whose median is subtracted."""

HANDOFF_SLACK_MS = 0.003
"""A call may take this much less than an empty one. One that takes still less did not wait for its turn on the device, so
the cost of a turn is not subtracted."""

LEAST_MS = 0.001
"""The least time that is reported for a call."""

RESOLUTION_MS: dict[Effort, float] = {"race": 0.004, "search": 0.004, "promote": 0.0015}
RESOLUTION_SHARE = 0.004
"""By how much two programs that are the same may differ steadily: milliseconds, and a share of the time. Less in a final
check, where each round has another process of the candidate."""

ALONE_SAMPLES = 8
"""Samples of a reference that is timed by itself."""

WARMUPS = 3
"""Calls of a visit that are not counted."""

ATTEMPTS = 12
"""How often a visit begins anew at most."""


class DeviceVisits:
    """Visits programs of one problem. Methods raise ChildFailed, ReferenceDied and what `check` raises."""

    def __init__(
        self, prepared: PreparedReference, samples: int, effort: Effort = "search"
    ) -> None:
        """`samples` are those of a visit of the candidate. A visit for fewer samples has fewer calls."""
        self._prepared, self._samples, self._effort = prepared, samples, effort
        self._random = random.SystemRandom()
        self._made = DeviceCalls(prepared)
        self._empty_ms: list[float] = []
        """Of calls that only write to memory, without the time of the writing."""

        self._per_sample: float | None = None
        """Calls behind each sample, from the first program that was visited."""

    def measure_empty(self, reference: Visited) -> None:
        """Measure what is subtracted. Call it while no candidate exists."""
        count = self._made.together
        self._until_queued(reference, lambda: self._made.empty(reference, min(2, count)))
        while len(self._empty_ms) < EMPTY_CALLS[self._effort]:
            self._empty_ms += self._until_queued(
                reference, lambda: self._made.empty(reference, count)
            )

    def _until_queued(self, program: Visited, calls: Callable[[], list[float]]) -> list[float]:
        for _ in range(ATTEMPTS):
            with suppress(NotQueued):
                return calls()
        raise program.child.failed("timed_out", "it did not queue its calls in time")

    def visit(
        self,
        program: Visited,
        samples: int,
        compare: Compare | None = None,
        among: Callable[[], Sequence[Trial]] = tuple,
    ) -> tuple[float, ...]:
        """Visit a program. Returns this many samples: medians of its calls' milliseconds.

        Calls on the trials that `among` chooses come at random places among the others. They are compared, but their times
        do not count, so that a program is verified in the very calls that are timed. If the way changes in which the
        program queues its calls, the visit begins again, with others, or it would know them.
        """
        taken = self._until_queued(program, lambda: self._visit(program, samples, compare, among()))
        self._random.shuffle(taken)  # a call's place in its group matters a little
        return tuple(median(taken[first::samples]) for first in range(samples))

    def _visit(
        self,
        program: Visited,
        samples: int,
        compare: Compare | None,
        among: Sequence[Trial],
    ) -> list[float]:
        """A program's own milliseconds of the counted calls."""
        self._some(program, [Trial.fresh()], compare)
        begin = time.perf_counter()
        warm = self._some(program, [Trial.fresh() for _ in range(WARMUPS - 1)], compare)
        if self._per_sample is None:  # a reference: a candidate's times decide only its own result
            cost_s = (time.perf_counter() - begin) / (WARMUPS - 1)
            self._per_sample = _calls_for(min(warm), cost_s, self._effort) / self._samples
        calls = max(samples, round(samples * self._per_sample))
        if program.child.is_reference:
            compare = None  # the first results of a visit are enough
            if program.depth == 0:
                return [self._freely(program) for _ in range(calls)]
        trials = [*(Trial.fresh() for _ in range(calls)), *among]
        self._random.shuffle(trials)
        pairs = zip(trials, self._some(program, trials, compare), strict=True)
        return [self._own_ms(program, call_ms) for trial, call_ms in pairs if trial not in among]

    def measurement(
        self, program: Visited, samples_ms: Sequence[float], beside: Visited | None = None
    ) -> Measurement:
        """The measurement that follows from samples of visits.

        If a reference's results are in the arena, such as inputs that it returns, they were copied. That is subtracted
        unless the program `beside`, with which it is compared, copied its results too.
        """
        if program.copied and not program.copies and beside is not None and not beside.copied:
            samples_ms = [max(one - self._copying_ms, LEAST_MS) for one in samples_ms]
        return Measurement(
            samples_ms=tuple(samples_ms),
            calls_per_sample=max(1, round(self._per_sample or 1)),
            warmups=WARMUPS,
            clock="device_events",
            cache="cold",
            resolution_ms=RESOLUTION_MS[self._effort] + RESOLUTION_SHARE * median(samples_ms),
            host_ms=median(program.host_ms) if program.host_ms and program.depth else None,
        )

    def _own_ms(self, program: Visited, call_ms: float) -> float:
        """A call's time without an empty call's and a reference's copying for the judge. One without kernels gets the least."""
        copying_ms = self._copying_ms if program.child.is_reference and program.copies else 0.0
        own_ms = call_ms - median(self._empty_ms) - copying_ms
        if own_ms < -HANDOFF_SLACK_MS and not program.child.is_reference:
            return call_ms
        return max(own_ms, LEAST_MS)

    @property
    def _copying_ms(self) -> float:
        """Milliseconds that copying a call's results takes at least."""
        moved_bytes = 2 * self._prepared.signature.bytes_out
        return moved_bytes / self._prepared.sheet.bandwidth_gb_s / 1e6

    def _freely(self, reference: Visited) -> float:
        """A call of a reference that waits for the device, by events of its own process.

        Whenever such a program waits, its gate gives the device to the judge and back, which would count as its time.
        """
        drawn = retried(lambda: self._prepared.trials.drawn(Trial.fresh()))
        reference.shared.fill_inputs(drawn, 0)
        torch.cuda.synchronize()
        answer = reference.child.ask({"do": "time freely"}, reference.limit_s)
        return float(answer["marked_ms"][0])

    def _some(
        self, program: Visited, trials: Sequence[Trial], compare: Compare | None
    ) -> list[float]:
        """The milliseconds of calls on these trials, with nothing subtracted. Raises NotQueued."""
        taken: list[float] = []
        while len(taken) < len(trials):
            count = max(1, min(program.depth, self._made.together))
            taken += self._made.time(program, trials[len(taken) : len(taken) + count], compare)
        return taken


def time_alone(prepared: PreparedReference, reference: Visited) -> Measurement:
    """Time a reference while nothing else runs."""
    visits = DeviceVisits(prepared, ALONE_SAMPLES)
    visits.measure_empty(reference)
    return visits.measurement(reference, visits.visit(reference, ALONE_SAMPLES))


def _calls_for(call_ms: float, cost_s: float, effort: Effort) -> int:
    """The number of calls in a candidate's visit; in a race, the fewest.

    Each takes `call_ms` milliseconds of the device, and `cost_s` seconds with all that it costs.
    """
    fewest = MIN_CALLS if call_ms < LONG_MS else MIN_CALLS // 2
    if effort == "race":
        return fewest
    most = round(SEARCH_S / cost_s) if effort == "search" else MAX_CALLS
    return max(fewest, min(MAX_CALLS, most, round(VISIT_MS / call_ms)))
