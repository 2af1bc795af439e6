"""Visits programs on a GPU: times series of calls through a program's gate, and checks the results.

A visit begins with calls that are not counted. Every call has new inputs. Its results are read where they lie, into
memory that only the judge maps, and all results of a candidate are compared with the reference's for the same inputs.

A program queues several calls ahead if it can. One that waits for the device inside a call cannot. A candidate of this
kind is asked for one call at a time, and copies its results to the arena as a part of the call. A reference of this kind
is timed by events of its own process.

From a call's time the judge subtracts what an empty call costs. An empty call only writes as much memory as the results
take, and the time of this writing is not counted. It is measured in a reference's process while no candidate exists.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from statistics import median
from typing import TYPE_CHECKING

import torch

from stark.core.evaluation import Effort
from stark.core.measurement import Measurement
from stark.evaluator.candidate.wire import Message
from stark.evaluator.judge.device_results import (
    INVALID,
    Places,
    Results,
    copy_by_kernel,
    load_kernels,
    retried,
)
from stark.evaluator.judge.problem.inputs import Drawn
from stark.evaluator.judge.processes.child import Child
from stark.evaluator.judge.shared import SharedSet
from stark.evaluator.judge.timing.gate import Gate, GateStuck, Work, stream_beside
from stark.evaluator.judge.trials import Trial

if TYPE_CHECKING:
    from stark.evaluator.judge.prepared import PreparedReference

VISIT_MS = 60.0
"""Target duration of a visit in milliseconds."""

MIN_CALLS, MAX_CALLS, LONG_MS = 8, 64, 100.0
"""Calls of a visit, and the milliseconds of a call from which on half of the fewest are enough."""

DEPTH = 16
"""Calls that a program queues ahead at most."""

HELD_LAUNCHES, FEW_LAUNCHES = 512, 10
"""What may wait in the judge's held stream, far below the number at which CUDA would have the host wait; and what a call
adds to it, beside a copy of each result."""

QUEUE_S = 0.3
"""Seconds in which a program must have queued its calls. One that needs longer waits for the device, or its calls have
too many kernels for the device's queue."""

LONE_S = 5e-4
"""Seconds that a program may use the host before the gate of a call that is requested alone opens."""

EMPTY_CALLS = 24
"""Calls that only write to memory, of which the median is taken off."""

HANDOFF_SLACK_MS = 0.003
"""A call that is faster by more than this than one that only writes to memory did not take turns on the device. Nothing
is taken off its time then."""

LEAST_MS = 0.001
"""No call is taken to be faster than this."""

RESOLUTION_MS: dict[Effort, float] = {"search": 0.004, "promote": 0.0015}
RESOLUTION_SHARE = 0.004
"""By how much two programs that are the same may differ steadily: milliseconds, and a share of the time. Less in a final
check, where each round has another process of the candidate."""

LOAD_MS = 10.0
"""Milliseconds for which the judge keeps the device busy before a visit, so that all visits find it alike."""

ALONE_SAMPLES = 8
"""Samples of a reference that is timed by itself."""

WARMUPS = 3
"""Calls of a visit that are not counted."""

Compare = Callable[[Trial, Drawn, list[torch.Tensor], int | None, object], None]
"""Checks one call's results. The arguments are the trial and its inputs, the results, the index of an input that the call
changed and must not, and the form that the program reports if it is not as expected."""

ATTEMPTS = 12
"""How often a visit begins anew at most."""


@dataclass
class Visited:
    """One program and what the judge knows of it."""

    child: Child
    shared: SharedSet
    limit_s: float
    depth: int = DEPTH
    """How many calls it queues ahead; 0 if its calls are requested one at a time."""

    copies: bool = False
    """Whether its results are copied to the arena because the judge cannot read them in place."""

    copied: bool = False
    """Whether the results of its latest calls were copied to the arena."""

    late: Counter[int] = field(default_factory=Counter)
    """By number of calls, how often it did not queue so many in time."""

    calls: int = 1
    """The number of calls in its latest visit."""

    host_ms: list[float] = field(default_factory=list)
    """Milliseconds that it took to queue a call."""

    gate: Gate = field(init=False)

    def __post_init__(self) -> None:
        self.gate = Gate(self.shared.arena.block)


class NotQueued(Exception):
    """A program did not queue its calls in time, or its results cannot be read. It is asked otherwise next time."""


class DeviceVisits:
    """Visits programs of one problem. Methods raise ChildFailed, ReferenceDied and what `check` raises."""

    def __init__(self, prepared: PreparedReference, effort: Effort = "search") -> None:
        self._prepared, self._effort = prepared, effort
        self._random = random.SystemRandom()
        self._flush = torch.empty(
            max(prepared.flush_bytes // 4, 1), dtype=torch.int32, device=prepared.device
        )
        self._empty_ms: list[float] = []
        """Of calls that only write to memory, without the time of the writing."""

        launches = FEW_LAUNCHES + len(prepared.signature.outputs) + len(prepared.program.changes)
        self._together = max(1, min(DEPTH, prepared.room.slots, HELD_LAUNCHES // launches))
        """Most calls that are queued together."""

        self._calls: int | None = None
        """Calls of every visit that are counted, from the first program that was visited."""

        load_kernels(prepared.device)
        stream_beside(prepared.device.index or 0)

    def measure_empty(self, reference: Visited) -> None:
        """Measure what is taken off. Call it while no candidate exists."""
        self._load()
        count = self._together
        self._empty(reference, min(2, count))
        for _ in range(-(-EMPTY_CALLS // count)):
            self._empty_ms += self._empty(reference, count)

    def _empty(self, reference: Visited, count: int) -> list[float]:
        """Milliseconds of calls without the time of their writing."""
        trials = [Trial.fresh()] * count
        for _ in range(ATTEMPTS):
            with suppress(NotQueued):
                pairs = zip(*self._group(reference, trials, None, empty=True), strict=True)
                return [call_ms - fill_ms for call_ms, fill_ms in pairs]
        raise reference.child.failed("timed_out", "it did not queue its calls in time")

    @property
    def empty_ms(self) -> float:
        """Milliseconds that are taken off each call."""
        return median(self._empty_ms)

    def visit(
        self,
        program: Visited,
        samples: int,
        compare: Compare | None = None,
        among: Sequence[Trial] = (),
    ) -> tuple[float, ...]:
        """Visit a program. Returns this many samples: medians of its calls' milliseconds.

        Calls on `among` come at random places among the others. They are compared, but their times do not count, so
        that a program is verified in the very calls that are timed. If the way changes in which the program queues its
        calls, the visit begins again.
        """
        self._load()
        for _ in range(ATTEMPTS):
            with suppress(NotQueued):
                taken = self._visit(program, samples, compare, among)
                self._random.shuffle(taken)  # a call's place in its group matters a little
                return tuple(median(taken[first::samples]) for first in range(samples))
        raise program.child.failed("timed_out", "it did not queue its calls in time")

    def _visit(
        self, program: Visited, samples: int, compare: Compare | None, among: Sequence[Trial]
    ) -> list[float]:
        """A program's own milliseconds of the counted calls."""
        self._some(program, [Trial.fresh()], compare)
        warm = self._some(program, [Trial.fresh() for _ in range(WARMUPS - 1)], compare)
        if self._calls is None:  # a reference: a candidate's times decide only its own result
            self._calls = _calls_for(min(warm))
        program.calls = max(samples, self._calls)
        if program.child.is_reference:
            compare = None  # the first results of a visit are enough
        if program.child.is_reference and program.depth == 0:
            return [self._freely(program) for _ in range(program.calls)]
        trials = [*(Trial.fresh() for _ in range(program.calls)), *among]
        self._random.shuffle(trials)
        pairs = zip(trials, self._some(program, trials, compare), strict=True)
        return [self._own_ms(program, call_ms) for trial, call_ms in pairs if trial not in among]

    def measurement(
        self, program: Visited, samples_ms: Sequence[float], beside: Visited | None = None
    ) -> Measurement:
        """The measurement that follows from samples of visits.

        If a reference's results are in the arena, such as inputs that it returns, they were copied. That is taken off
        unless the program `beside`, with which it is compared, copied its results too.
        """
        if program.copied and not program.copies and beside is not None and not beside.copied:
            samples_ms = [max(one - self._copying_ms, LEAST_MS) for one in samples_ms]
        return Measurement(
            samples_ms=tuple(samples_ms),
            calls_per_sample=program.calls,
            warmups=WARMUPS,
            clock="device_events",
            cache="cold",
            resolution_ms=RESOLUTION_MS[self._effort] + RESOLUTION_SHARE * median(samples_ms),
            host_ms=median(program.host_ms) if program.host_ms and program.depth else None,
        )

    def _own_ms(self, program: Visited, call_ms: float) -> float:
        """The program's own time of a call. What the judge had a reference copy is taken off.

        A reference that did not take turns on the device, for it has no kernels, is taken to be as fast as can be.
        """
        copying_ms = self._copying_ms if program.child.is_reference and program.copies else 0.0
        own_ms = call_ms - self.empty_ms - copying_ms
        if own_ms < -HANDOFF_SLACK_MS and not program.child.is_reference:
            return call_ms
        return max(own_ms, LEAST_MS)

    @property
    def _copying_ms(self) -> float:
        """Milliseconds that copying a call's results takes at least."""
        prepared = self._prepared
        return 2 * prepared.signature.bytes_out / prepared.sheet.bandwidth_gb_s / 1e6

    def _freely(self, reference: Visited) -> float:
        """A call of a reference that waits for the device, by events of its own process.

        Whenever such a program waits, its gate gives the device to the judge and back, which would count as its time.
        """
        drawn = self._drawn(Trial.fresh())
        reference.shared.fill_inputs(drawn, 0)
        torch.cuda.synchronize()
        answer = reference.child.ask({"do": "time freely"}, reference.limit_s)
        return float(answer["marked_ms"][0])

    def _some(
        self, program: Visited, trials: Sequence[Trial], compare: Compare | None
    ) -> list[float]:
        """The milliseconds of calls on these trials, with nothing taken off. Raises NotQueued."""
        taken: list[float] = []
        while len(taken) < len(trials):
            count = max(1, min(program.depth, self._together))
            taken += self._group(program, trials[len(taken) : len(taken) + count], compare)[0]
        return taken

    def _group(
        self,
        program: Visited,
        trials: Sequence[Trial],
        compare: Compare | None,
        empty: bool = False,
    ) -> tuple[list[float], list[float]]:
        """Time calls that the program queues together. Returns their times, and those of the fills with `empty`."""
        shared = program.shared
        drawn = [self._drawn(trial) for trial in trials]
        staged = [retried(partial(shared.staged, each)) for each in drawn]
        seen = [retried(partial(torch.zeros_like, each)) for each in staged]
        slots = self._random.sample(range(self._prepared.room.slots), len(trials))
        alone = program.depth == 0 and not empty
        self._prepared.settle()  # the program may need what torch keeps here
        program.gate.reset()
        request = {
            "do": "queue",
            "slots": slots,
            "first": program.gate.calls + 1,
            "empty": empty,
            "copies": alone or program.copies,
        }
        nonce = program.child.send(request)
        places = Places(shared)
        answer: Message = {}
        finished: Message = {}

        def finish() -> None:
            if alone:
                answer.update(program.child.answer(nonce, program.limit_s))
            finished.update(program.child.ask({"do": "finish"}, program.limit_s))

        try:
            if alone:
                results = list(map(places.in_slot, slots))
                time.sleep(LONE_S)
            else:
                answer = self._queued(program, nonce, len(trials), empty)
                results = self._found(program, answer, slots, places)
            works = [
                Work(
                    write=partial(self._write, inputs, shared.input_bytes[slot]),
                    read=partial(self._read, result),
                    look=partial(copy_by_kernel, shared.input_bytes[slot], after),
                )
                for slot, inputs, result, after in zip(slots, staged, results, seen, strict=True)
            ]
            taken = program.gate.time(works, finish, program.limit_s)
        except GateStuck as stuck:
            raise program.child.failed("timed_out", str(stuck)) from stuck
        finally:
            places.close()
        views = shared.inputs_in
        changed = [
            shared.changed_input(views(before), views(after))
            for before, after in zip(staged, seen, strict=True)
        ]
        del works, staged, seen  # a comparison may need the memory
        if compare is not None:
            for calls in zip(trials, drawn, results, changed, strict=True):
                trial, inputs, result, spoilt = calls
                compare(trial, inputs, result.tensors(), spoilt, answer.get("odd"))
        return taken, finished.get("marked_ms", [])

    def _queued(self, program: Visited, nonce: str, count: int, empty: bool) -> Message:
        """The answer of a program that has queued its calls. Raises NotQueued if it has not.

        Whoever is late twice is asked for fewer calls at once: once may be the host's fault.
        """
        begin = time.perf_counter()
        answer = program.child.answered(nonce, QUEUE_S)
        if answer is not None:
            if not empty:
                program.host_ms.append((time.perf_counter() - begin) * 1e3 / count)
            return answer
        program.gate.open(count)
        program.child.answer(nonce, program.limit_s)
        program.child.ask({"do": "finish"}, program.limit_s)
        program.late[count] += 1
        if program.late[count] > 1:
            program.depth = min(program.depth, count) // 4
        raise NotQueued

    def _write(self, staged: torch.Tensor, slot: torch.Tensor) -> None:
        copy_by_kernel(staged, slot)
        self._flush.fill_(1)

    def _read(self, result: Results) -> None:
        """Read the results from cold memory: results that a program leaves in the cache would be read sooner."""
        self._flush.fill_(2)
        for source, target in zip(result.lying, result.read, strict=True):
            copy_by_kernel(source, target)

    def _found(
        self, program: Visited, answer: Message, slots: Sequence[int], places: Places
    ) -> list[Results]:
        """Where each call's results lie, as the program reports it. Raises NotQueued if the judge cannot read them there."""
        at = answer.get("at")
        try:
            if not isinstance(at, list):
                raise ValueError("it reports no results")
            program.copied = [] in at
            return [places.reported(*each) for each in zip(slots, at, strict=True)]
        except INVALID:
            program.gate.open(len(slots))
            program.child.ask({"do": "finish"}, program.limit_s)
        if program.copies:
            error = "the judge cannot read its results where it says that they lie"
            raise program.child.failed("crashed", error)
        program.copies = True
        raise NotQueued

    def _load(self) -> None:
        begin = time.perf_counter()
        while (time.perf_counter() - begin) * 1e3 < LOAD_MS:
            for _ in range(8):
                self._flush.fill_(0)
            torch.cuda.synchronize()

    def _drawn(self, trial: Trial) -> Drawn:
        return retried(partial(self._prepared.trials.drawn, trial))


def time_alone(prepared: PreparedReference, reference: Visited) -> Measurement:
    """Time a reference while nothing else runs."""
    visits = DeviceVisits(prepared)
    visits.measure_empty(reference)
    return visits.measurement(reference, visits.visit(reference, ALONE_SAMPLES))


def _calls_for(call_ms: float) -> int:
    """The number of calls in a visit, if each takes `call_ms` milliseconds with all that it costs."""
    fewest = MIN_CALLS if call_ms < LONG_MS else MIN_CALLS // 2
    return max(fewest, min(MAX_CALLS, round(VISIT_MS / call_ms)))
