"""Draws slightly other values for the floats among a problem's arguments, such as the scale of a guidance.

Arguments that are no tensors are the same in each draw. A candidate that takes a scale for 1, whatever is passed, would
save the work that the scale is for. So one trial passes other floats, if the reference is accurate with them.
"""

from __future__ import annotations

import random
from typing import Any

from torch.utils import _pytree as pytree

from stark.evaluator.candidate.program import with_floats
from stark.evaluator.judge.problem.inputs import Drawn

STEP, LEAST = 0.05, 0.01
"""The largest and the smallest relative change. Floats of 0 stay, because a share that is dropped must not become random."""


def floats_of(arguments: list[Any]) -> list[float]:
    """The floats among the arguments, in order."""
    return [each for each in pytree.tree_leaves(arguments) if type(each) is float]


def with_other_floats(drawn: Drawn, seed: int) -> Drawn:
    """The draw with each float nearer to zero by a random share."""
    shares = random.Random(seed)
    floats = [each * (1 - shares.uniform(LEAST, STEP)) for each in floats_of(drawn.arguments)]
    return Drawn(drawn.tensors, with_floats(drawn.arguments, floats))
