"""Times a group of calls of one program on a GPU, and checks their results.

The program queues the group ahead behind its gate (`timing/gate.py`). Every call has new inputs, which the judge writes
while its clock runs. Its results are read where they lie, into memory that only the judge maps.
"""

from __future__ import annotations

import math
import random
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

import torch

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
from stark.evaluator.judge.trial import Called, Trial

if TYPE_CHECKING:
    from stark.evaluator.judge.prepared import PreparedReference

DEPTH = 16
"""Most calls of a group."""

HELD_LAUNCHES, FEW_LAUNCHES = 760, 10
"""Most launches that a group may add to the judge's stream while it is held: at about 1,000, CUDA makes the host wait. And
the launches of one call, without those that copy its results."""

LOAD_MS, LOAD_LAUNCHES = 6.0, 240
"""About how long the judge keeps the device busy right before a group, and the most launches for that. After a pause the
memory of an H200 is 10 % slower for about 4 ms."""

QUEUE_S = 0.3
"""Seconds in which a program must have queued its calls. One that needs longer waits for the device, or its calls have
too many kernels for the device's queue."""

LONE_S = 5e-4
"""Seconds that a program may use the host before the gate of a call that is requested alone opens."""

Compare = Callable[[Trial, Drawn, Called], None]
"""Checks what a call on a trial and its inputs leaves."""


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

    host_ms: list[float] = field(default_factory=list)
    """Milliseconds that it took to queue a call."""

    gate: Gate = field(init=False)

    def __post_init__(self) -> None:
        self.gate = Gate(self.shared.arena.block)


class NotQueued(Exception):
    """A program did not queue its calls in time, or its results cannot be read. It is asked otherwise next time."""


@dataclass(frozen=True)
class Call:
    """One call of a group, before it is made."""

    slot: int
    trial: Trial
    drawn: Drawn
    staged: torch.Tensor
    """The inputs' bytes, in memory that only the judge maps."""

    seen: torch.Tensor
    """Takes the bytes of the slot's inputs after the call."""


class DeviceCalls:
    """Makes programs of one problem call, a group at a time. Raises ChildFailed, ReferenceDied and what `compare` raises."""

    def __init__(self, prepared: PreparedReference) -> None:
        self._prepared = prepared
        self._random = random.SystemRandom()
        self._flush = torch.empty(
            max(prepared.flush_bytes // 4, 1), dtype=torch.int32, device=prepared.device
        )
        launches = FEW_LAUNCHES + len(prepared.signature.outputs) + len(prepared.program.changes)
        most = (HELD_LAUNCHES - LOAD_LAUNCHES) // launches
        self.together = max(1, min(DEPTH, prepared.room.slots, most))
        """Most calls of a group of this problem."""

        load_kernels(prepared.device)
        stream_beside(prepared.device.index or 0)

    def empty(self, program: Visited, count: int) -> list[float]:
        """Milliseconds of calls that only write to memory, without the time of the writing. Raises NotQueued."""
        calls = self._planned(program, [Trial.fresh()] * count)
        taken, finished, _ = self._made(program, calls, empty=True)
        return [one - fill for one, fill in zip(taken, finished["marked_ms"], strict=True)]

    def time(
        self, program: Visited, trials: Sequence[Trial], compare: Compare | None
    ) -> list[float]:
        """Milliseconds of a group of calls on these trials, with nothing subtracted. Raises NotQueued."""
        calls = self._planned(program, trials)
        taken, answer, results = self._made(program, calls)
        views = program.shared.inputs_in
        checks = [
            (call.trial, call.drawn, Called(result.tensors(), changed, answer.get("odd")))
            for call, result in zip(calls, results, strict=True)
            for changed in [program.shared.changed_input(views(call.staged), views(call.seen))]
        ]
        del calls, results  # a comparison may need the memory
        if compare is not None:
            for check in checks:
                compare(*check)
        return taken

    def _planned(self, program: Visited, trials: Sequence[Trial]) -> list[Call]:
        def planned(slot: int, trial: Trial) -> Call:
            drawn = self._prepared.trials.drawn(trial)
            staged = program.shared.staged(drawn)
            return Call(slot, trial, drawn, staged, torch.zeros_like(staged))

        slots = self._random.sample(range(self._prepared.room.slots), len(trials))
        return [retried(partial(planned, *each)) for each in zip(slots, trials, strict=True)]

    def _made(
        self, program: Visited, calls: Sequence[Call], empty: bool = False
    ) -> tuple[list[float], Message, list[Results]]:
        """Have a program make its calls. Returns their milliseconds, the program's answers, and the results."""
        alone = program.depth == 0 and not empty
        self._prepared.settle()  # the program may need what torch keeps here
        program.gate.reset()
        slots = [call.slot for call in calls]
        request = {"do": "queue", "slots": slots, "first": program.gate.calls + 1, "empty": empty}
        nonce = program.child.send({**request, "copies": alone or program.copies})
        places = Places(program.shared)
        answer: Message = {}

        def finish() -> None:
            if alone:
                answer.update(program.child.answer(nonce, program.limit_s))
            answer.update(program.child.ask({"do": "finish"}, program.limit_s))

        try:
            if alone:
                results = list(map(places.in_slot, slots))
                time.sleep(LONE_S)
            else:
                answer |= self._queued(program, nonce, len(calls), empty)
                results = self._found(program, answer, slots, places)
            works = list(map(partial(self._work, program.shared), calls, results))
            taken = program.gate.time(works, self._load, finish, program.limit_s)
            return taken, answer, results
        except GateStuck as stuck:
            raise program.child.failed("timed_out", str(stuck)) from stuck
        finally:
            places.close()

    def _queued(self, program: Visited, nonce: str, count: int, empty: bool) -> Message:
        """Wait until a program has queued its calls, and return its answer. Raises NotQueued if that takes too long.

        After the second time, the program is asked for fewer calls at once. The first may be the host's fault.
        """
        begin = time.perf_counter()
        if (answer := program.child.answered(nonce, QUEUE_S)) is not None:
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

    def _work(self, shared: SharedSet, call: Call, result: Results) -> Work:
        """What the judge's stream does around a call."""
        slot_bytes = shared.input_bytes[call.slot]

        def write() -> None:
            copy_by_kernel(call.staged, slot_bytes)
            self._flush.fill_(1)

        def read() -> None:
            """From cold memory: results that a program leaves in the cache would be read sooner."""
            self._flush.fill_(2)
            for source, target in zip(result.lying, result.read, strict=True):
                copy_by_kernel(source, target)

        return Work(write, read, partial(copy_by_kernel, slot_bytes, call.seen))

    def _load(self) -> None:
        """Keep the device busy, so that every group of calls finds it alike."""
        bytes_ms = self._prepared.sheet.bandwidth_gb_s * 1e6
        fills = math.ceil(LOAD_MS * bytes_ms / self._flush.nbytes)
        for _ in range(min(fills, LOAD_LAUNCHES)):
            self._flush.fill_(0)
