"""What programs are timed on, and the look at what they returned.

Every call of a block has inputs that the candidate never saw, at addresses that it does not choose, and its
results are held against the reference's own of the same round. So a result that was kept, skipped or computed
for other inputs is wrong, and the candidate cannot know which are looked at closely.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

import torch

from stark.evaluator.judge.inputs import Drawn
from stark.evaluator.judge.oracle import CHUNK, ExpectedTensor
from stark.evaluator.judge.prepared import PreparedReference
from stark.evaluator.judge.shared import SharedSet
from stark.evaluator.judge.timing import Round

GLANCED_SHARE = 0.5
"""Share of the rounds of which all results are held against the reference's; the last one always is."""

GLANCE_FACTOR = 4.0
"""How many error budgets a result may lie from the reference's before the oracle is asked."""

TOUCHED_BYTES = 1 << 20
"""About how much of an input too large to be drawn anew is changed before each round."""

Check = Callable[[int, Drawn, list[ExpectedTensor], object], None]
"""Called with a slot, what its inputs were, what should lie in its outputs, and in what form results came."""


class TimedContents:
    """The inputs of one candidate's timing window, written for the candidate and all references alike.

    Where the problem is too large to keep expected values, the same inputs stay for the whole
    window and a random small part of them changes: drawing gigabytes between two samples disturbs the one
    that follows (by 11 % on an H200).
    """

    def __init__(
        self,
        prepared: PreparedReference,
        references: Sequence[SharedSet],
        budget: float,
        check: Check,
    ) -> None:
        self._prepared, self._references = prepared, references
        self._budget, self._check = budget, check
        self._inputs = prepared.timing_inputs()
        self._holds: list[Drawn] = []
        self._chance = random.SystemRandom()

    def turn(self, last: Round | None) -> None:
        """Look at the last round by chance, then change the inputs."""
        if last is not None and self._chance.random() < GLANCED_SHARE:
            self._glance(last)
        if self._holds and not self._prepared.keeps_all:
            self._touch()
        else:
            self._draw()
        self._prepared.settle()

    def end(self, last: Round) -> None:
        """Look at the last round, and hold one of its results against the oracle."""
        self._glance(last)
        self._ask_oracle(self._chance.choice(last.block), last)

    def _draw(self) -> None:
        """Write fresh inputs into every slot."""
        self._holds = [next(self._inputs) for _ in range(self._prepared.slots)]
        everyone = [self._prepared.shared, *self._references]
        for slot, drawn in enumerate(self._holds):
            self._chance.shuffle(everyone)  # what is written last lies in the cache
            for one in everyone:
                one.fill_inputs(drawn, slot)

    def _touch(self) -> None:
        """Scale some rows of every floating input of every slot, the same ones for all."""
        everyone = [self._prepared.shared, *self._references]
        for slot, drawn in enumerate(self._holds):
            for index, tensor in enumerate(drawn.tensors):
                if not tensor.is_floating_point() or tensor.dim() == 0 or tensor.numel() == 0:
                    continue
                row_bytes = tensor.numel() // len(tensor) * tensor.element_size()
                rows = min(len(tensor), -(-TOUCHED_BYTES // row_bytes))
                begin = self._chance.randrange(len(tensor) - rows + 1)
                factor = self._chance.uniform(0.5, 1.5)
                for place in (tensor, *(one.inputs[slot][index] for one in everyone)):
                    place[begin : begin + rows] *= factor
            for one in everyone:
                one.poison(slot)

    def _glance(self, last: Round) -> None:
        """Hold all results of a round against the reference's own; where they differ, ask the oracle."""
        ours, theirs = self._prepared.shared, self._references[0]
        for slot in last.block:
            pairs = zip(ours.results(slot), theirs.results(slot), strict=True)
            if not all(_near(*pair, GLANCE_FACTOR * self._budget) for pair in pairs):
                self._ask_oracle(slot, last)

    def _ask_oracle(self, slot: int, last: Round) -> None:
        drawn = self._holds[slot]
        self._check(slot, drawn, self._prepared.expected_of(drawn), last.forms)


def _near(ours: torch.Tensor, theirs: torch.Tensor, limit: float) -> bool:
    """Whether two results agree up to rounding, in their own precision: quick, and never the last word."""
    if not ours.is_floating_point():
        return torch.equal(ours, theirs)
    flat = ours.reshape(-1), theirs.reshape(-1)
    wrong = size = 0.0
    for begin in range(0, ours.numel(), CHUNK):
        mine, other = (piece[begin : begin + CHUNK].float() for piece in flat)
        wrong += float((mine - other).square_().sum())
        size += float(other.square().sum())
    return wrong <= limit * limit * size  # false for NaN
