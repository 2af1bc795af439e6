"""Provides the inputs of calls that are timed on a GPU and checks the results of these calls.

Programs (the candidate and the references) are timed in rounds. In a round, each program runs a block:
several calls that are timed together, each on its own slot (a set of inputs and outputs in shared
memory). The candidate has never seen the inputs before and does not choose their addresses. The
candidate's results are compared with the reference's results from the same round, so a result that
was cached, skipped or computed for other inputs is wrong. The candidate cannot predict which results
are compared. `visit_contents.py` does the same on a CPU.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from typing import TypeVar

import torch

from stark.core.errors import ProblemError
from stark.evaluator.judge.agreement import Check, agree
from stark.evaluator.judge.prepared import PreparedReference
from stark.evaluator.judge.problem.inputs import Drawn
from stark.evaluator.judge.problem.twin import is_out_of_memory
from stark.evaluator.judge.running import RunningReference
from stark.evaluator.judge.shared import SharedSet
from stark.evaluator.judge.timing.program import Block
from stark.evaluator.judge.timing.rounds import Round
from stark.evaluator.judge.verify.oracle import ExpectedTensor

COMPARED_SHARE = 0.5
"""Share of rounds in which all results of the block are compared. The last round's are always compared."""

Outcome = TypeVar("Outcome")


class TimedContents:
    """Inputs and result checks for the timing of one candidate; all programs get the same inputs.

    Programs are numbered by `place`: 0 is the candidate, then come the references. All inputs are
    new in every round, however large they are: if only a part changed, a candidate could cache an
    earlier result and patch it. The inputs are copied to each program right before its
    block, so that drawing inputs affects all programs alike.

    Single calls use the last slot, which blocks use too.
    """

    def __init__(
        self,
        prepared: PreparedReference,
        references: Sequence[RunningReference],
        limit_s: float,
        budgets: Sequence[float],
        check: Check,
    ) -> None:
        self._prepared, self._budgets, self._check = prepared, budgets, check
        self._references, self._limit_s = references, limit_s
        self._shared: list[SharedSet] = [
            prepared.shared,
            *(reference.shared for reference in references),
        ]
        self._inputs = prepared.trials.fresh_inputs()
        self._inputs_of: dict[int, Drawn] = {}
        """This round's inputs by slot."""

        self._single_inputs: Drawn | None = None
        """Inputs of this round's single call, which every program makes."""

        self._random = random.SystemRandom()

    def turn(self, last: Round | None) -> None:
        """Check the previous round, then drop its inputs. No program gets these inputs again.

        Except in the last round (see `end`), a block's results are compared only if a random choice
        selects the round. Raises Verdict.
        """
        if last is not None:
            self._check_inputs(last)
            if self._random.random() < COMPARED_SHARE:
                self._compare_block(last)
        self._inputs_of.clear()
        self._single_inputs = None

    def write_alone(self, place: int) -> None:
        """Write the inputs of a program's single call."""
        self._single_inputs = self._single_inputs or next(self._inputs)
        self._shared[place].fill_inputs(self._single_inputs, self._last_slot)
        self._prepared.settle()

    def write(self, place: int, slots: list[int]) -> None:
        """Write a program's inputs for a block."""
        for slot in slots:
            drawn = self._inputs_of.get(slot) or next(self._inputs)
            self._inputs_of[slot] = drawn
            self._shared[place].fill_inputs(drawn, slot)
        self._prepared.settle()

    def take(self, place: int, block: Block) -> None:
        """Compare a single call of the candidate with the reference, which the judge runs itself.

        Raises Verdict.
        """
        if place > 0:
            return
        shared, slot, drawn = self._prepared.shared, self._last_slot, self._single_inputs
        assert drawn is not None, "write_alone() comes before take()"
        ours = [result.clone() for result in shared.results(slot)]  # later writes do not count
        theirs = self._retry_with_freed_memory(lambda: self._prepared.program.run(drawn))
        if not agree(ours, theirs, self._budgets) or shared.changed_input(drawn, slot) is not None:
            for result, value in zip(shared.results(slot), ours, strict=True):
                result.copy_(value)
            self._check(slot, drawn, self._expect(drawn), block.odd)

    def wait(self, place: int, slots: list[int]) -> float:
        """Copy a part of the last results and return how many milliseconds this takes.

        Work that the program left running on the device delays the copy.
        """
        begin = time.perf_counter()
        for output in self._shared[place].outputs[slots[-1]]:
            output.flatten()[:1].clone()
        torch.cuda.synchronize(self._prepared.device)
        return (time.perf_counter() - begin) * 1e3

    def end(self, last: Round) -> None:
        """Check the last round, and compare one result of that round with the oracle. Raises Verdict."""
        self._check_inputs(last)
        self._compare_block(last)
        self._check_with_oracle(self._random.choice(last[0].slots), last[0])

    @property
    def _last_slot(self) -> int:
        return self._prepared.slots - 1

    def _check_inputs(self, last: Round) -> None:
        """Raise Verdict if the candidate changed an input that the reference does not change."""
        for slot in last[0].slots:
            if self._prepared.shared.changed_input(self._inputs_of[slot], slot) is not None:
                self._check_with_oracle(slot, last[0])

    def _compare_block(self, last: Round) -> None:
        """Compare the results of the candidate's block with those of the first reference's block.

        Results that differ too much are compared with the oracle.
        """
        for slot in last[0].slots:
            ours, theirs = (shared.results(slot) for shared in self._shared[:2])
            if not agree(ours, theirs, self._budgets):
                self._check_with_oracle(slot, last[0])

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
