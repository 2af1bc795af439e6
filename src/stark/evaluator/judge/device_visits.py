"""Visits programs on a GPU: times series of calls through a program's gate, and checks the results.

A visit begins with calls that are not counted. Every call has new inputs. Its results are read where they lie, into
memory that only the judge maps, and all results of a candidate are compared with the reference's for the same inputs.

A program queues several calls ahead if it can. One that waits for the device inside a call cannot. If it is a
candidate, its calls are requested one at a time, and it copies its results to the arena as a part of the call. If it is
a reference, events of its own process time it.

From a call's time the judge takes off what a call costs that only writes as much memory as the results take, without
the time of this writing. It is measured in a reference's process while no candidate exists.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from statistics import median
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import torch

from stark.core.errors import ProblemError
from stark.core.measurement import Measurement
from stark.evaluator.candidate.arena import Slot, bytes_at, span_bytes
from stark.evaluator.candidate.driver import Driver
from stark.evaluator.candidate.wire import Message
from stark.evaluator.judge.problem.inputs import Drawn
from stark.evaluator.judge.problem.twin import is_out_of_memory
from stark.evaluator.judge.processes.failures import ChildFailed, ReferenceDied
from stark.evaluator.judge.shared import SharedSet
from stark.evaluator.judge.timing.gate import Gate, GateStuck, Work

if TYPE_CHECKING:
    from stark.evaluator.judge.prepared import PreparedReference

VISIT_MS = 60.0
"""Target duration of a visit in milliseconds."""

MIN_CALLS, MAX_CALLS, LONG_MS = 8, 64, 100.0
"""Calls of a visit, and the milliseconds of a call from which on half of the fewest are enough."""

DEPTH = 16
"""Calls that a program queues ahead at most."""

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

RESOLUTION_MS, RESOLUTION_SHARE = 0.0015, 0.004
"""By how much two processes that run the same program may differ steadily: milliseconds, and a share of the time."""

LOAD_MS = 10.0
"""Milliseconds for which the judge keeps the device busy before a visit, so that all visits find it alike."""

ALONE_SAMPLES = 8
"""Samples of a reference that is timed by itself."""

WARMUPS = 3
"""Calls of a visit that are not counted."""

Compare = Callable[[int, "Drawn", list[torch.Tensor], object], None]
"""Checks one call's results. The arguments are the slot, the inputs, the results, and the form that the program reports
if it is not as expected."""

Outcome = TypeVar("Outcome")


class Asked(Protocol):
    """A process that runs a program."""

    def send(self, request: Message) -> str:
        """Send a request and return the nonce of its answer."""

    def answered(self, nonce: str, limit_s: float) -> Message | None:
        """The answer, or None if there is none in time."""

    def answer(self, nonce: str, limit_s: float) -> Message:
        """Wait for the answer."""

    def ask(self, request: Message, limit_s: float) -> Message:
        """Send a request and return its answer."""


@dataclass
class Visited:
    """One program and what the judge knows of it."""

    child: Asked
    shared: SharedSet
    limit_s: float
    depth: int = DEPTH
    """How many calls it queues ahead; 0 if its calls are requested one at a time."""

    trusted: bool = True
    """Whether it is a reference."""

    copies: bool = False
    """Whether its results are copied to the arena because the judge cannot read them in place."""

    calls: int = 1
    """The number of calls in its latest visit."""

    host_ms: list[float] = field(default_factory=list)
    """Milliseconds that it took to queue a call."""

    gate: Gate = field(init=False)

    def __post_init__(self) -> None:
        self.gate = Gate(self.shared.arena.block)


class NotQueued(Exception):
    """A program did not queue its calls in time, or its results cannot be read. It is asked otherwise next time."""


@dataclass(frozen=True)
class Results:
    """The results of one call: where they lie, the judge's copies of their bytes, and their forms."""

    lying: list[torch.Tensor]
    read: list[torch.Tensor]
    forms: list[Slot]

    def copy(self) -> None:
        """Queue copies to the judge's memory, by kernels."""
        for source, target in zip(self.lying, self.read, strict=True):
            _copy_by_kernel(source, target)

    def tensors(self) -> list[torch.Tensor]:
        """The judge's copies."""
        return [form.view(read) for form, read in zip(self.forms, self.read, strict=True)]


class DeviceVisits:
    """Visits programs of one problem. Methods raise ChildFailed, ReferenceDied and what `check` raises."""

    def __init__(self, prepared: PreparedReference) -> None:
        self._prepared = prepared
        self._inputs = prepared.trials.fresh_inputs()
        self._random = random.SystemRandom()
        self._driver = Driver()
        self._flush = torch.empty(
            max(prepared.flush_bytes // 4, 1), dtype=torch.int32, device=prepared.device
        )
        self._empty_ms: list[float] = []
        self._calls: int | None = None
        """Calls of every visit that are counted, from the first program that was visited."""

        self._flush.fill_(0)
        for size in (8, 9):  # see `Gate`
            _copy_by_kernel(*torch.zeros(2, size, dtype=torch.uint8, device=prepared.device))

    def measure_empty(self, reference: Visited) -> None:
        """Measure what is taken off. Call it while no candidate exists."""
        self._load()
        self._empty(reference, 2)
        count = min(DEPTH, self._prepared.slots)
        for _ in range(-(-EMPTY_CALLS // count)):
            self._empty_ms += self._empty(reference, count)

    def _empty(self, reference: Visited, count: int) -> list[float]:
        count = min(count, self._prepared.slots)
        while True:
            with suppress(NotQueued):
                pairs = zip(*self._group(reference, count, None, empty=True), strict=True)
                return [call_ms - fill_ms for call_ms, fill_ms in pairs]

    @property
    def empty_ms(self) -> float:
        """Milliseconds that are taken off each call."""
        return median(self._empty_ms)

    def visit(
        self, program: Visited, samples: int, compare: Compare | None = None
    ) -> tuple[float, ...]:
        """Visit a program. Returns this many samples: medians of its calls' milliseconds, with nothing taken off."""
        self._load()
        self._some(program, 1, compare)
        warm_ms = min(self._some(program, WARMUPS - 1, compare))
        if (
            self._calls is None
        ):  # a reference: a candidate's times decide nothing but its own result
            self._calls = _calls_for(warm_ms)
        program.calls = max(samples, self._calls)
        if program.trusted and program.depth == 0:
            taken = [self._freely(program) for _ in range(program.calls)]
        else:
            taken = self._some(program, program.calls, compare)
        self._random.shuffle(taken)  # a call's place among those queued together matters a little
        return tuple(median(taken[first::samples]) for first in range(samples))

    def measurement(self, program: Visited, samples_ms: Sequence[float]) -> Measurement:
        """The measurement that follows from samples of visits."""
        own_ms = tuple(self._own_ms(program, sample_ms) for sample_ms in samples_ms)
        return Measurement(
            samples_ms=own_ms,
            calls_per_sample=program.calls,
            warmups=WARMUPS,
            clock="device_events",
            cache="cold",
            resolution_ms=RESOLUTION_MS + RESOLUTION_SHARE * median(own_ms),
            host_ms=median(program.host_ms) if program.host_ms and program.depth else None,
        )

    def _own_ms(self, program: Visited, call_ms: float) -> float:
        """The program's own time of a call. What a reference copies is taken off; what a candidate copies is not."""
        copied = program.trusted and program.copies and program.depth > 0
        copied_bytes = 2 * self._prepared.signature.bytes_out if copied else 0
        copying_ms = copied_bytes / self._prepared.sheet.bandwidth_gb_s / 1e6
        own_ms = call_ms - self.empty_ms - copying_ms
        return call_ms if own_ms < -HANDOFF_SLACK_MS else max(own_ms, LEAST_MS)

    def _freely(self, reference: Visited) -> float:
        """A call of a reference that waits for the device, by events of its own process.

        Whenever such a program waits, its gate gives the device to the judge and back, which would count as its time.
        """
        drawn = self._retry(lambda: next(self._inputs))
        reference.shared.fill_inputs(drawn, 0)
        torch.cuda.synchronize()
        answer = reference.child.ask({"do": "time freely"}, reference.limit_s)
        return float(answer["marked_ms"][0]) + self.empty_ms

    def _some(self, program: Visited, calls: int, compare: Compare | None) -> list[float]:
        taken: list[float] = []
        while len(taken) < calls:
            count = max(1, min(program.depth, self._prepared.slots, calls - len(taken)))
            try:
                taken += self._group(program, count, compare)[0]
            except NotQueued:
                continue
        return taken

    def _group(
        self, program: Visited, count: int, compare: Compare | None, empty: bool = False
    ) -> tuple[list[float], list[float]]:
        """Time calls that the program queues together. Returns their times, and those of the fills with `empty`."""
        drawn = [self._retry(lambda: next(self._inputs)) for _ in range(count)]
        staged = [program.shared.staged(each) for each in drawn]
        slots = self._random.sample(range(self._prepared.slots), count)
        alone = program.depth == 0
        request = {
            "do": "queue",
            "slots": slots,
            "first": program.gate.calls + 1,
            "empty": empty,
            "copies": alone or program.copies,
        }
        nonce = program.child.send(request)
        opened: dict[str, int] = {}
        try:
            if alone:
                answer: Message = {}
                results = [self._in_slot(program, slot) for slot in slots]
                time.sleep(LONE_S)
            else:
                answer = self._queued(program, nonce, count)
                results = self._found(program, answer, slots, opened)
            finished: Message = {}

            def finish() -> None:
                if alone:
                    answer.update(program.child.answer(nonce, program.limit_s))
                finished.update(program.child.ask({"do": "finish"}, program.limit_s))

            works = [
                Work(partial(self._write, program, slot, inputs), result.copy)
                for slot, inputs, result in zip(slots, staged, results, strict=True)
            ]
            taken = program.gate.time(works, finish, program.limit_s)
        except GateStuck as stuck:
            if program.trusted:
                raise ReferenceDied(f"the running reference failed: {stuck}") from stuck
            raise ChildFailed("timed_out", str(stuck)) from stuck
        finally:
            for pointer in opened.values():
                self._driver.unmap(pointer)
        if compare is not None:
            for slot, inputs, result in zip(slots, drawn, results, strict=True):
                compare(slot, inputs, result.tensors(), answer.get("odd"))
        return taken, finished.get("marked_ms", [])

    def _queued(self, program: Visited, nonce: str, count: int) -> Message:
        """The answer of a program that has queued its calls. Raises NotQueued if it has not."""
        begin = time.perf_counter()
        answer = program.child.answered(nonce, QUEUE_S)
        if answer is not None:
            program.host_ms.append((time.perf_counter() - begin) * 1e3 / count)
            return answer
        program.gate.open(count)
        program.child.answer(nonce, program.limit_s)
        program.child.ask({"do": "finish"}, program.limit_s)
        program.depth = min(program.depth, count) // 4
        raise NotQueued

    def _write(self, program: Visited, slot: int, staged: torch.Tensor) -> None:
        _copy_by_kernel(staged, program.shared.input_bytes[slot])
        self._flush.fill_(slot)

    def _found(
        self, program: Visited, answer: Message, slots: Sequence[int], opened: dict[str, int]
    ) -> list[Results]:
        """Where each call's results lie, as the program reports it. `opened` maps handles to what was mapped here."""
        places = answer.get("at")
        try:
            if not isinstance(places, list) or len(places) != len(slots):
                raise ValueError("it reports no results")
            return [
                self._lying(program, slot, at, opened)
                for slot, at in zip(slots, places, strict=True)
            ]
        except (RuntimeError, ValueError, TypeError, OverflowError):
            if program.copies:
                raise ChildFailed(
                    "crashed", "the judge cannot read its results where it says that they lie"
                ) from None
        program.copies = True
        program.gate.open(len(slots))
        program.child.ask({"do": "finish"}, program.limit_s)
        raise NotQueued

    def _lying(self, program: Visited, slot: int, at: list[Any], opened: dict[str, int]) -> Results:
        outputs = program.shared.outputs[slot]
        if at == []:  # their form is wrong
            return self._in_slot(program, slot)
        forms, lying = [], []
        for output, order, (handle, offset, alike) in zip(
            outputs, program.shared.orders, at, strict=True
        ):
            stride = order if alike is True else output.stride()
            form = Slot(0, output.dtype, tuple(output.shape), tuple(stride))
            size = span_bytes(form.dtype, form.shape, form.stride)
            whole = self._mapped(program, str(handle), opened)
            if not 0 <= int(offset) <= whole.numel() - size:
                raise ValueError("it reports a result outside its memory")
            lying.append(whole[int(offset) : int(offset) + size])
            forms.append(form)
        return self._with_changes(program, slot, lying, forms)

    def _mapped(self, program: Visited, handle: str, opened: dict[str, int]) -> torch.Tensor:
        if not handle:
            return program.shared.arena.block
        if handle not in opened:
            opened[handle] = self._driver.import_(bytes.fromhex(handle))
        _, size = self._driver.allocation_of(opened[handle])
        return bytes_at(opened[handle], size, self._prepared.device)

    def _in_slot(self, program: Visited, slot: int) -> Results:
        outputs = program.shared.outputs[slot]
        forms = [Slot(0, each.dtype, tuple(each.shape), tuple(each.stride())) for each in outputs]
        return self._with_changes(program, slot, [_bytes_of(each) for each in outputs], forms)

    def _with_changes(
        self, program: Visited, slot: int, lying: list[torch.Tensor], forms: list[Slot]
    ) -> Results:
        """These results and the inputs that the reference changes."""
        for index in self._prepared.program.changes:
            changed = program.shared.inputs[slot][index]
            lying.append(_bytes_of(changed))
            forms.append(Slot(0, changed.dtype, tuple(changed.shape), tuple(changed.stride())))
        return Results(lying, [torch.empty_like(each) for each in lying], forms)

    def _load(self) -> None:
        begin = time.perf_counter()
        while (time.perf_counter() - begin) * 1e3 < LOAD_MS:
            for _ in range(8):
                self._flush.fill_(0)
            torch.cuda.synchronize()

    def _retry(self, work: Callable[[], Outcome]) -> Outcome:
        """Run `work`; if memory is short, free torch's cache and run it again."""
        try:
            return work()
        except (ProblemError, torch.OutOfMemoryError) as error:
            if not is_out_of_memory(error):
                raise
        torch.cuda.empty_cache()
        return work()


def time_alone(prepared: PreparedReference, reference: Visited) -> Measurement:
    """Time a reference while nothing else runs."""
    visits = DeviceVisits(prepared)
    visits.measure_empty(reference)
    return visits.measurement(reference, visits.visit(reference, ALONE_SAMPLES))


def _calls_for(call_ms: float) -> int:
    """The number of calls in a visit, if each takes `call_ms` milliseconds with all that it costs."""
    fewest = MIN_CALLS if call_ms < LONG_MS else MIN_CALLS // 2
    return max(fewest, min(MAX_CALLS, round(VISIT_MS / call_ms)))


def _bytes_of(tensor: torch.Tensor) -> torch.Tensor:
    """The memory from a tensor's first to its last element."""
    size = span_bytes(tensor.dtype, tuple(tensor.shape), tuple(tensor.stride()))
    return (
        bytes_at(tensor.data_ptr(), size, tensor.device)
        if size
        else tensor.new_empty(0, dtype=torch.uint8)
    )


def _copy_by_kernel(source: torch.Tensor, target: torch.Tensor) -> None:
    """Copy bytes by a kernel, not by a copy engine."""
    if not source.numel():
        return
    words = all(one.data_ptr() % 8 == 0 and one.numel() % 8 == 0 for one in (source, target))
    kind = torch.int64 if words else torch.uint8
    torch.bitwise_or(source.view(kind), 0, out=target.view(kind))
