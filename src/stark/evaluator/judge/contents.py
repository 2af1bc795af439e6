"""What programs are timed on, and the look at what they returned.

Every call of a block has inputs that the candidate never saw, at addresses that it does not choose, and its
results are held against the reference's own of the same round. So a result that was kept, skipped or computed
for other inputs is wrong, and the candidate cannot know which are looked at closely.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from typing import Protocol

import torch

from stark.evaluator.judge.prepared import PreparedReference
from stark.evaluator.judge.problem.inputs import Drawn
from stark.evaluator.judge.running import RunningReference
from stark.evaluator.judge.shared import SharedSet
from stark.evaluator.judge.timing.rounds import Block, Round
from stark.evaluator.judge.verify.oracle import CHUNKS, ExpectedTensor

GLANCED_SHARE = 0.5
"""Share of the rounds of which all results are held against the reference's; the last one always is."""

GLANCE_FACTOR = 1.5
"""How many error budgets a result may lie from the reference's before the oracle is asked. Within its own budget it lies
at most one and a third away, since the reference's error is a third of a budget at most."""

Check = Callable[[int, Drawn, list[ExpectedTensor], object], None]
"""Called with a slot, what its inputs were, what should lie in its outputs, and in what odd form results came, if they did."""


class Readable(Protocol):
    """A process whose memory can be read."""

    def copy_out(self, source: int, target: int, size: int) -> bool:
        """Copy bytes of its memory to an address; false where it has none."""


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
        budgets: Sequence[float],
        check: Check,
    ) -> None:
        self._prepared, self._budgets, self._check = prepared, budgets, check
        self._programs: list[tuple[Readable, SharedSet]] = [
            (child, prepared.shared),
            *((reference, reference.shared) for reference in references),
        ]
        self._inputs = prepared.trials.unseen()
        self._holds: dict[int, Drawn] = {}
        """What the slots of this round hold."""

        self._alone: list[Drawn] = []
        """What calls of this round have that are asked for one by one."""

        self._left: dict[int, list[torch.Tensor]] = {}
        """What the last of them left, of the candidate and of the first reference: out of reach of both."""

        self._chance = random.SystemRandom()

    def turn(self, last: Round | None) -> None:
        """Look at the last round, at results of its blocks by chance, then forget its inputs: nobody gets any of them again."""
        if last is not None:
            self._look_at_inputs(last)
            self._glance_alone(last)
            if self._chance.random() < GLANCED_SHARE:
                self._glance(last)
        self._holds.clear()
        self._alone.clear()
        self._left.clear()
        if last is not None and not self._prepared.keeps_all:
            return  # the untimed call has the same inputs all the time where drawing them takes long
        drawn = next(self._inputs)
        for _, shared in self._programs:
            shared.fill_inputs(drawn, self._kept_slot)

    def write_alone(self, place: int, number: int) -> None:
        """Write the inputs of the next call that is asked for by itself, the same for every program."""
        if number == len(self._alone):
            self._alone.append(next(self._inputs))
        self._holds[self._kept_slot] = self._alone[number]
        self._programs[place][1].fill_inputs(self._alone[number], self._kept_slot)

    def read_alone(self, place: int, block: Block) -> None:
        """Take the results of the last of them: the program keeps them until it is asked for its block."""
        if place > 1:
            return
        self._read(place, 0, block)
        shared, slot = self._programs[place][1], self._kept_slot
        self._left[place] = [result.clone() for result in shared.results(slot)]
        if place == 0 and shared.changed_input(self._holds[slot], slot) is not None:
            self._ask_oracle(slot, block)

    def write(self, place: int, slots: list[int]) -> None:
        """Write a program's inputs."""
        _, shared = self._programs[place]
        for slot in slots:
            if slot not in self._holds:
                self._holds[slot] = next(self._inputs)
            shared.fill_inputs(self._holds[slot], slot)
        self._prepared.settle()

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
        self._look_at_inputs(last)
        self._glance_alone(last)
        self._glance(last)
        slot, block = self._chance.choice(last.blocks[0].slots), last.blocks[0]
        self._read(0, block.slots.index(slot), block)
        self._ask_oracle(slot, block)

    @property
    def _kept_slot(self) -> int:
        """On a CPU, of the calls that precede a block."""
        return self._prepared.slots - 1

    def _look_at_inputs(self, last: Round) -> None:
        """End the evaluation where the candidate wrote into an input that the reference leaves alone."""
        for call, slot in enumerate(last.blocks[0].slots):
            if self._prepared.shared.changed_input(self._holds[slot], slot) is not None:
                self._read(0, call, last.blocks[0])
                self._ask_oracle(slot, last.blocks[0])

    def _glance(self, last: Round) -> None:
        """Hold all results of a round against the first reference's own; where they differ, ask the oracle."""
        for call, slot in enumerate(last.blocks[0].slots):
            for place in (0, 1):
                self._read(place, call, last.blocks[place])
            ours, theirs = (shared.results(slot) for _, shared in self._programs[:2])
            if not self._agree(ours, theirs):
                self._ask_oracle(slot, last.blocks[0])

    def _glance_alone(self, last: Round) -> None:
        """The same for the last call that was asked for by itself."""
        if last.alone and not self._agree(self._left[0], self._left[1]):
            results = self._prepared.shared.results(self._kept_slot)
            for result, left in zip(results, self._left[0], strict=True):
                result.copy_(left)
            self._ask_oracle(self._kept_slot, last.alone[0])

    def _agree(self, ours: Sequence[torch.Tensor], theirs: Sequence[torch.Tensor]) -> bool:
        """Whether results of the candidate are as near the first reference's as right ones are."""
        pairs = zip(ours, theirs, self._budgets, strict=True)
        return all(_near(one, two, GLANCE_FACTOR * budget) for one, two, budget in pairs)

    def _ask_oracle(self, slot: int, block: Block) -> None:
        drawn = self._holds[slot]
        self._check(slot, drawn, self._prepared.trials.expected_of(drawn), block.odd)

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
    """Whether two results agree up to rounding, in their own precision: quick, and never the last word."""
    if not ours.is_floating_point():
        return torch.equal(ours, theirs)
    flat = ours.reshape(-1), theirs.reshape(-1)
    wrong = size = 0.0
    chunk = CHUNKS[ours.device.type]
    for begin in range(0, ours.numel(), chunk):
        mine, other = (piece[begin : begin + chunk].float() for piece in flat)
        difference = mine - other
        wrong += float(torch.dot(difference, difference))
        size += float(torch.dot(other, other))
    return wrong <= limit * limit * size  # false for NaN
