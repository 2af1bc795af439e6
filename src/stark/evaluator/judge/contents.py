"""Provides the inputs of timed calls and checks the results of these calls.

Programs (the candidate and the references) are timed in rounds. In a round, each program runs a block:
several calls that are timed together, each on its own slot (a set of inputs and outputs in shared
memory). The candidate has never seen the inputs before and does not choose their addresses. The
candidate's results are compared with the reference's results from the same round, so a result that
was cached, skipped or computed for other inputs is wrong. The candidate cannot predict which results
are compared.
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
from stark.evaluator.judge.problem.twin import is_out_of_memory
from stark.evaluator.judge.running import RunningReference
from stark.evaluator.judge.shared import SharedSet
from stark.evaluator.judge.timing.program import Block
from stark.evaluator.judge.timing.rounds import Round
from stark.evaluator.judge.verify.oracle import CHUNKS, ExpectedTensor, as_real

COMPARED_SHARE = 0.5
"""Share of rounds in which all results of the block are compared. The last round's are always compared."""

AGREEMENT_FACTOR = 1.5
"""A result that differs from the reference's result by more error budgets than this is compared with the oracle.

A result whose error is within the budget differs from the reference's result by at most 4/3 budgets,
because the reference's own error is at most 1/3 of the budget.
"""

Outcome = TypeVar("Outcome")

Check = Callable[[int, Drawn, list[ExpectedTensor], object], None]
"""Checks a slot's results. The arguments are the slot, its inputs, its expected outputs and a form.

If the results' shapes or types are not as expected, the form is what the program reports about them.
Otherwise it is None.
"""


class Readable(Protocol):
    """A process whose memory can be read."""

    def copy_out(self, source: int, target: int, size: int) -> bool:
        """Copy `size` bytes from that memory to an address in the judge. Returns False if they are unreadable."""


@dataclass(frozen=True)
class SingleCall:
    """The inputs and results of a call outside a block. `block` is the program's report on this call."""

    drawn: Drawn
    results: list[torch.Tensor]
    block: Block


class TimedContents:
    """Inputs and result checks for the timing of one candidate; all programs get the same inputs.

    Programs are numbered by `place`: 0 is the candidate, then come the references. All inputs are
    new in every round, however large they are: if only a part changed, a candidate could cache an
    earlier result and patch it. The inputs are copied to each program right before its
    block, so that drawing inputs affects all programs alike.

    Calls outside blocks use the last slot (the kept slot). These are single calls and, on a CPU, the
    untimed call before each block. On a GPU, blocks use the kept slot too.
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
        self._inputs = prepared.trials.fresh_inputs()
        self._inputs_of: dict[int, Drawn] = {}
        """This round's inputs by slot."""

        self._single_inputs: list[Drawn] = []
        """Inputs of this round's single calls and of the untimed call before them, in order."""

        self._untimed_inputs: Drawn | None = None
        """Inputs of the untimed call before this round's blocks."""

        self._single_calls: tuple[list[SingleCall], list[SingleCall]] = ([], [])
        """This round's calls on the kept slot: the candidate's, then the first reference's."""

        self._random = random.SystemRandom()

    def turn(self, last: Round | None) -> None:
        """Check the previous round, then drop its inputs. No program gets these inputs again.

        Except in the last round (see `end`), a block's results are compared only if a random choice
        selects the round. Raises Verdict.
        """
        if last is not None:
            self._check_inputs(last)
            self._compare_single_calls()
            if self._random.random() < COMPARED_SHARE:
                self._compare_block(last)
        self._inputs_of.clear()
        self._single_inputs.clear()
        self._untimed_inputs = None
        for taken in self._single_calls:
            taken.clear()

    def write_alone(self, place: int, number: int) -> None:
        """Write the inputs of a program's next single call.

        Call `number` gets the same inputs in every program.
        """
        if number == len(self._single_inputs):
            self._single_inputs.append(next(self._inputs))
        if self._prepared.device.type == "cpu":
            self._fill(place, self._kept_slot, self._single_inputs[number])
        else:  # the block writes other inputs to this slot
            self._programs[place][1].fill_inputs(self._single_inputs[number], self._kept_slot)
            self._prepared.settle()

    def write(self, place: int, slots: list[int]) -> None:
        """Write a program's inputs for a block and, on a CPU, for the untimed call before it."""
        if self._prepared.device.type == "cpu":
            self._untimed_inputs = self._untimed_inputs or next(self._inputs)
            self._fill(place, self._kept_slot, self._untimed_inputs)
        for slot in slots:
            self._fill(place, slot, self._inputs_of.get(slot) or next(self._inputs))
        self._prepared.settle()

    def take(self, place: int, block: Block) -> None:
        """Copy the results of a call on the kept slot to memory that the program cannot change.

        On a GPU, the candidate's results are compared at once. Raises Verdict.
        """
        if self._prepared.device.type == "cuda":
            self._check_single_call(place, block)
            return
        if place > 1:
            return
        self._copy_results(place, 0, block)
        shared, slot = self._programs[place][1], self._kept_slot
        results = [result.clone() for result in shared.results(slot)]
        self._single_calls[place].append(SingleCall(self._inputs_of[slot], results, block))
        if place == 0 and shared.changed_input(self._inputs_of[slot], slot) is not None:
            self._check_with_oracle(slot, block)

    def _check_single_call(self, place: int, block: Block) -> None:
        """Compare a single call of the candidate with the reference, which the judge runs itself.

        Raises Verdict.
        """
        if place > 0:
            return
        shared, slot, drawn = self._prepared.shared, self._kept_slot, self._single_inputs[-1]
        ours = [result.clone() for result in shared.results(slot)]  # later writes do not count
        theirs = self._retry_with_freed_memory(lambda: self._prepared.program.run(drawn))
        if not self._agree(ours, theirs) or shared.changed_input(drawn, slot) is not None:
            for result, value in zip(shared.results(slot), ours, strict=True):
                result.copy_(value)
            self._check(slot, drawn, self._expect(drawn), block.odd)

    def _fill(self, place: int, slot: int, drawn: Drawn) -> None:
        self._inputs_of[slot] = drawn
        self._programs[place][1].fill_inputs(drawn, slot)

    def wait(self, place: int, slots: list[int]) -> float:
        """On a GPU, copy a part of the last results and return how many milliseconds this takes.

        Work that the program left running on the device delays the copy. Returns 0 on a CPU.
        """
        if self._prepared.device.type == "cpu":
            return 0.0
        begin = time.perf_counter()
        _, shared = self._programs[place]
        for output in shared.outputs[slots[-1]]:
            output.flatten()[:1].clone()
        torch.cuda.synchronize(self._prepared.device)
        return (time.perf_counter() - begin) * 1e3

    def end(self, last: Round) -> None:
        """Check the last round, and compare one result of that round with the oracle. Raises Verdict."""
        self._single_inputs.clear()
        self._check_inputs(last)
        self._compare_single_calls()
        self._compare_block(last)
        slot = self._random.choice(last[0].slots)
        self._copy_results(0, last[0].slots.index(slot), last[0])
        self._check_with_oracle(slot, last[0])

    @property
    def _kept_slot(self) -> int:
        """The slot that calls outside blocks use."""
        return self._prepared.slots - 1

    def _check_inputs(self, last: Round) -> None:
        """Raise Verdict if the candidate changed an input that the reference does not change."""
        for call, slot in enumerate(last[0].slots):
            if self._prepared.shared.changed_input(self._inputs_of[slot], slot) is not None:
                self._copy_results(0, call, last[0])
                self._check_with_oracle(slot, last[0])

    def _compare_single_calls(self) -> None:
        """Compare the candidate's single calls with the first reference's.

        Results that differ too much are compared with the oracle.
        """
        shared, slot = self._prepared.shared, self._kept_slot
        for ours, theirs in zip(*self._single_calls, strict=True):
            if not self._agree(ours.results, theirs.results):
                for place, value in zip(shared.inputs[slot], ours.drawn.tensors, strict=True):
                    place.copy_(value)
                for result, value in zip(shared.results(slot), ours.results, strict=True):
                    result.copy_(value)
                self._inputs_of[slot] = ours.drawn
                self._check_with_oracle(slot, ours.block)

    def _compare_block(self, last: Round) -> None:
        """Compare the results of the candidate's block with those of the first reference's block.

        Results that differ too much are compared with the oracle.
        """
        for call, slot in enumerate(last[0].slots):
            for place in (0, 1):
                self._copy_results(place, call, last[place])
            ours, theirs = (shared.results(slot) for _, shared in self._programs[:2])
            if not self._agree(ours, theirs):
                self._check_with_oracle(slot, last[0])

    def _agree(self, ours: Sequence[torch.Tensor], theirs: Sequence[torch.Tensor]) -> bool:
        """Whether the candidate's results are close enough to the reference's to skip the oracle."""
        pairs = zip(ours, theirs, self._budgets, strict=True)
        return all(_near(one, two, AGREEMENT_FACTOR * budget) for one, two, budget in pairs)

    def _check_with_oracle(self, slot: int, block: Block) -> None:
        drawn = self._inputs_of[slot]
        self._check(slot, drawn, self._expect(drawn), block.odd)

    def _expect(self, drawn: Drawn) -> list[ExpectedTensor]:
        """Compute the expected outputs for these inputs."""
        return self._retry_with_freed_memory(lambda: self._prepared.trials.expected_of(drawn))

    def _retry_with_freed_memory(self, work: Callable[[], Outcome]) -> Outcome:
        """Run `work`; if memory is short, free the references' cached memory and run it again."""
        try:
            return work()
        except (ProblemError, torch.OutOfMemoryError) as error:
            if not is_out_of_memory(error):
                raise
        for reference in self._references:
            reference.resume()
            reference.give_back(self._limit_s)
            reference.pause()
        return work()

    def _copy_results(self, place: int, call: int, block: Block) -> None:
        """On a CPU, copy a call's results from the program's memory to shared memory.

        On a GPU the results are in shared memory already.
        """
        child, shared = self._programs[place]
        slot = block.slots[call]
        if self._prepared.device.type == "cpu":
            for output, address in zip(
                shared.outputs[slot], _addresses(block.at, call), strict=False
            ):
                size = output.numel() * output.element_size()
                child.copy_out(address, output.data_ptr(), size)


def _addresses(at: object, call: int) -> list[int]:
    """Return the addresses that a program reports for a call's results, with 0 for each invalid address."""
    calls = at if isinstance(at, list) else []
    found = calls[call] if call < len(calls) else []
    claims = found if isinstance(found, list) else []
    return [claim if isinstance(claim, int) and 0 <= claim < 1 << 64 else 0 for claim in claims]


def _near(ours: torch.Tensor, theirs: torch.Tensor, limit: float) -> bool:
    """Whether two results differ by at most `limit` in relative RMS; a fast first filter."""
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
    # False for NaN and for squares that overflow.
    return wrong <= limit * limit * size < math.inf
