"""Compares the results of a timed call with the reference's, quickly, before the oracle is asked."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch

from stark.evaluator.judge.problem.inputs import Drawn
from stark.evaluator.judge.verify.oracle import CHUNKS, ExpectedTensor, as_real

AGREEMENT_FACTOR = 1.5
"""A result that differs from the reference's result by more error budgets than this is compared with the oracle.

A result whose error is within the budget differs from the reference's result by at most 4/3 budgets,
because the reference's own error is at most 1/3 of the budget.
"""

Check = Callable[[Sequence[torch.Tensor], int | None, Drawn, list[ExpectedTensor], object], None]
"""Checks one call's results. The arguments are the results, the index of an input that the call changed and must not (or
None), the inputs, the expected outputs, and a form.

If the results' shapes or types are not as expected, the form is what the program reports about them.
Otherwise it is None.
"""


def agree(
    ours: Sequence[torch.Tensor], theirs: Sequence[torch.Tensor], budgets: Sequence[float]
) -> bool:
    """Whether a candidate's results are close enough to the reference's to skip the oracle."""
    pairs = zip(ours, theirs, budgets, strict=True)
    return all(_near(one, two, AGREEMENT_FACTOR * budget) for one, two, budget in pairs)


def _near(ours: torch.Tensor, theirs: torch.Tensor, limit: float) -> bool:
    """Whether two results differ by at most `limit` in relative RMS."""
    ours, theirs = as_real(ours), as_real(theirs)
    if not ours.is_floating_point():
        return torch.equal(ours, theirs)
    flat = ours.reshape(-1), theirs.reshape(-1)
    precise = torch.promote_types(ours.dtype, torch.float32)
    wrong = size = 0.0
    chunk = CHUNKS[ours.device.type]
    for begin in range(0, ours.numel(), chunk):
        mine, other = (piece[begin : begin + chunk].to(precise) for piece in flat)
        if not bool(other.isfinite().all()):
            strange = ~other.isfinite()
            if not torch.equal(mine[strange].nan_to_num(), other[strange].nan_to_num()):
                return False
            if not torch.equal(mine.isnan(), other.isnan()):
                return False
            mine, other = (piece.masked_fill(strange, 0) for piece in (mine, other))
        difference = mine - other
        wrong += float(torch.dot(difference, difference))
        size += float(torch.dot(other, other))
    # False for squares that overflow, and for NaN where the reference has none.
    return wrong <= limit * limit * size < math.inf
