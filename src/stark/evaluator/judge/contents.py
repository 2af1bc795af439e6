"""What programs are timed on, and the look at what they returned.

Every call of a block has inputs that the candidate never saw, at addresses that it does not choose, and its
results are held against the reference's own of the same round. So a result that was kept, skipped or computed
for other inputs is wrong, and the candidate cannot know which are looked at closely.
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

import torch

from stark.core.errors import ProblemError
from stark.evaluator.judge.prepared import PreparedReference
from stark.evaluator.judge.problem.inputs import Drawn
from stark.evaluator.judge.problem.twin import ran_out
from stark.evaluator.judge.running import RunningReference
from stark.evaluator.judge.shared import SharedSet
from stark.evaluator.judge.timing.program import Block
from stark.evaluator.judge.timing.rounds import Round
from stark.evaluator.judge.verify.oracle import CHUNKS, ExpectedTensor, as_real

GLANCED_SHARE = 0.5
"""Share of the rounds of which all results are held against the reference's; the last one always is."""

GLANCE_FACTOR = 1.5
"""How many error budgets a result may lie from the reference's before the oracle is asked. Within its own budget it lies
at most one and a third away, since the reference's error is a third of a budget at most."""

Found = TypeVar("Found")

Check = Callable[[int, Drawn, list[ExpectedTensor], object], None]
"""Called with a slot, what its inputs were, what should lie in its outputs, and in what odd form results came, if they did."""


class Readable(Protocol):
    """A process whose memory can be read."""

    def copy_out(self, source: int, target: int, size: int) -> bool:
        """Copy bytes of its memory to an address; false where it has none."""


@dataclass(frozen=True)
class Taken:
    """What a call left that is not part of a block."""

    drawn: Drawn
    results: list[torch.Tensor]
    block: Block


class TimedContents:
    """The inputs of one candidate's timing window, the same for the candidate and all references.

    Every round has new ones, however large they are: of inputs that change in part an answer is kept and mended. They
    are copied to each program right before its block, so that none follows the drawing more closely than another.
    """

    def __init__(
        self,
        prepared: PreparedReference,
        child: Readable,
        references: Sequence[RunningReference],
        limit_s: float,
        budgets: Sequence[float],
        check: Check,
    ) -> None:
        self._prepared, self._budgets, self._check = prepared, budgets, check
        self._references, self._limit_s = references, limit_s
        self._programs: list[tuple[Readable, SharedSet]] = [
            (child, prepared.shared),
            *((reference, reference.shared) for reference in references),
        ]
        self._inputs = prepared.trials.unseen()
        self._holds: dict[int, Drawn] = {}
        """What the slots of this round hold."""

        self._alone: list[Drawn] = []
        """What calls of this round have that are asked for one by one, and the untimed one before them."""

        self._before: Drawn | None = None
        """What the untimed call before this round's blocks has."""

        self._taken: tuple[list[Taken], list[Taken]] = ([], [])
        """What calls on the kept slot left this round, of the candidate and of the first reference."""

        self._chance = random.SystemRandom()

    def turn(self, last: Round | None) -> None:
        """Look at the last round, at results of its blocks by chance, then forget its inputs: nobody gets any of them again."""
        if last is not None:
            self._look_at_inputs(last)
            self._look_at_taken()
            if self._chance.random() < GLANCED_SHARE:
                self._glance(last)
        self._holds.clear()
        self._alone.clear()
        self._before = None
        for taken in self._taken:
            taken.clear()

    def write_alone(self, place: int, number: int) -> None:
        """Write the inputs of the next call that is asked for by itself, the same for every program."""
        if number == len(self._alone):
            self._alone.append(next(self._inputs))
        if self._prepared.device.type == "cpu":
            self._fill(place, self._kept_slot, self._alone[number])
        else:  # the block has other inputs on this slot
            self._programs[place][1].fill_inputs(self._alone[number], self._kept_slot)
            self._prepared.settle()

    def write(self, place: int, slots: list[int]) -> None:
        """Write a program's inputs."""
        if self._prepared.device.type == "cpu":
            self._before = self._before or next(self._inputs)
            self._fill(place, self._kept_slot, self._before)
        for slot in slots:
            self._fill(place, slot, self._holds.get(slot) or next(self._inputs))
        self._prepared.settle()

    def take(self, place: int, block: Block) -> None:
        """Keep what a call on the kept slot left, out of the program's reach."""
        if self._prepared.device.type == "cuda":
            self._look_at_once(place, block)
            return
        if place > 1:
            return
        self._read(place, 0, block)
        shared, slot = self._programs[place][1], self._kept_slot
        results = [result.clone() for result in shared.results(slot)]
        self._taken[place].append(Taken(self._holds[slot], results, block))
        if place == 0 and shared.changed_input(self._holds[slot], slot) is not None:
            self._ask_oracle(slot, block)

    def _look_at_once(self, place: int, block: Block) -> None:
        """Hold what the candidate left on the kept slot against what the reference makes of it in the judge's own process."""
        if place > 0:
            return
        shared, slot, drawn = self._prepared.shared, self._kept_slot, self._alone[-1]
        ours = [result.clone() for result in shared.results(slot)]  # what comes later is too late
        theirs = self._with_memory(lambda: self._prepared.program.run(drawn))
        if not self._agree(ours, theirs) or shared.changed_input(drawn, slot) is not None:
            for result, value in zip(shared.results(slot), ours, strict=True):
                result.copy_(value)
            self._check(slot, drawn, self._expected(drawn), block.odd)

    def _fill(self, place: int, slot: int, drawn: Drawn) -> None:
        self._holds[slot] = drawn
        self._programs[place][1].fill_inputs(drawn, slot)

    def wait(self, place: int, slots: list[int]) -> float:
        """Copy one result on a GPU and wait for the copy: whatever still runs there comes before it."""
        if self._prepared.device.type == "cpu":
            return 0.0
        begin = time.perf_counter()
        _, shared = self._programs[place]
        for output in shared.outputs[slots[-1]]:
            output.flatten()[:1].clone()
        torch.cuda.synchronize(self._prepared.device)
        return (time.perf_counter() - begin) * 1e3

    def end(self, last: Round) -> None:
        """Look at the last round, and hold one of its results against the oracle."""
        self._alone.clear()
        self._look_at_inputs(last)
        self._look_at_taken()
        self._glance(last)
        slot = self._chance.choice(last[0].slots)
        self._read(0, last[0].slots.index(slot), last[0])
        self._ask_oracle(slot, last[0])

    @property
    def _kept_slot(self) -> int:
        """Of the calls that precede a block."""
        return self._prepared.slots - 1

    def _look_at_inputs(self, last: Round) -> None:
        """End the evaluation where the candidate wrote into an input that the reference leaves alone."""
        for call, slot in enumerate(last[0].slots):
            if self._prepared.shared.changed_input(self._holds[slot], slot) is not None:
                self._read(0, call, last[0])
                self._ask_oracle(slot, last[0])

    def _look_at_taken(self) -> None:
        """Hold what calls on the kept slot left against what the first reference's did; where they differ, ask the oracle."""
        shared, slot = self._prepared.shared, self._kept_slot
        for ours, theirs in zip(*self._taken, strict=True):
            if not self._agree(ours.results, theirs.results):
                for place, value in zip(shared.inputs[slot], ours.drawn.tensors, strict=True):
                    place.copy_(value)
                for result, value in zip(shared.results(slot), ours.results, strict=True):
                    result.copy_(value)
                self._holds[slot] = ours.drawn
                self._ask_oracle(slot, ours.block)

    def _glance(self, last: Round) -> None:
        """The same with all results of a round."""
        for call, slot in enumerate(last[0].slots):
            for place in (0, 1):
                self._read(place, call, last[place])
            ours, theirs = (shared.results(slot) for _, shared in self._programs[:2])
            if not self._agree(ours, theirs):
                self._ask_oracle(slot, last[0])

    def _agree(self, ours: Sequence[torch.Tensor], theirs: Sequence[torch.Tensor]) -> bool:
        """Whether results of the candidate are as near the first reference's as right ones are."""
        pairs = zip(ours, theirs, self._budgets, strict=True)
        return all(_near(one, two, GLANCE_FACTOR * budget) for one, two, budget in pairs)

    def _ask_oracle(self, slot: int, block: Block) -> None:
        drawn = self._holds[slot]
        self._check(slot, drawn, self._expected(drawn), block.odd)

    def _expected(self, drawn: Drawn) -> list[ExpectedTensor]:
        """What the reference makes of these inputs."""
        return self._with_memory(lambda: self._prepared.trials.expected_of(drawn))

    def _with_memory(self, work: Callable[[], Found]) -> Found:
        """Do work of the judge's, if need be with the memory that the references keep at hand."""
        try:
            return work()
        except (ProblemError, torch.OutOfMemoryError) as error:
            if not ran_out(error):
                raise
        for reference in self._references:
            reference.resume()
            reference.give_back(self._limit_s)
            reference.pause()
        return work()

    def _read(self, place: int, call: int, block: Block) -> None:
        """Bring what one call of a program left into the judge's memory: on a CPU it lies in the program's."""
        child, shared = self._programs[place]
        slot = block.slots[call]
        if self._prepared.device.type == "cpu":
            for output, address in zip(
                shared.outputs[slot], _addresses(block.at, call), strict=False
            ):
                size = output.numel() * output.element_size()
                child.copy_out(address, output.data_ptr(), size)


def _addresses(at: object, call: int) -> list[int]:
    """Where a call's results lie by the word of the program; nowhere where that is no word."""
    calls = at if isinstance(at, list) else []
    found = calls[call] if call < len(calls) else []
    words = found if isinstance(found, list) else []
    return [word if isinstance(word, int) and 0 <= word < 1 << 64 else 0 for word in words]


def _near(ours: torch.Tensor, theirs: torch.Tensor, limit: float) -> bool:
    """Whether two results agree up to rounding, in their own precision or float32's: quick, and never the last word."""
    ours, theirs = as_real(ours), as_real(theirs)
    if not ours.is_floating_point():
        return torch.equal(ours, theirs)
    flat = ours.reshape(-1), theirs.reshape(-1)
    precise = torch.promote_types(ours.dtype, torch.float32)
    wrong = size = 0.0
    chunk = CHUNKS[ours.device.type]
    for begin in range(0, ours.numel(), chunk):
        mine, other = (piece[begin : begin + chunk].to(precise) for piece in flat)
        difference = mine - other
        wrong += float(torch.dot(difference, difference))
        size += float(torch.dot(other, other))
    # False for NaN, and where squares are too large.
    return wrong <= limit * limit * size < math.inf
