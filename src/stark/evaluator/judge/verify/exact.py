"""Decides which integer and boolean outputs are right.

Where such an output follows from floating-point numbers, as the nearest code of a vector or a value rounded to int8 does,
rounding decides a few elements, and two honest kernels differ there. An output is right if it equals the reference's own
result or the oracle, or if it differs from one of these two in a few elements only (`differing`), and each of them

- equals the other of the two, or
- lies at a boundary: when inputs and weights move by four times the rounding of the class (`conditioning.MOVES`), the reference
  itself returns the candidate's value in some runs and a right value in others.

So all elements count that do not depend on floating-point inputs, ties between integers, and comparisons for equality, which
never hold once inputs have moved. Equal zeros become different tiny numbers. In a regime, whose zeros the problem may not have,
what depends on their order is not judged at all (`ExpectedTensor.undecided`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch

from stark.evaluator.judge.verify.errors import BITS
from stark.evaluator.judge.verify.lines import views

MOST_DIFFERENT = 0.01
"""Share of the elements that may differ. Elements with the commonest value do not count: a mask that is nearly empty may not
be returned as zeros."""

MOST_IN_A_LINE = 0.1
"""Share of a row, or of a slice along any axis, that may differ: no row may be left out because it is badly conditioned."""

FEW = 2
"""Number of elements that may always differ: two near values that change places."""

MOST_MOVED = 0.5
"""Share of the elements that may move in a run. Beyond it, the moves change what the problem is about."""

MOST_RUNS = 32
"""An element at a boundary falls to either side by chance: after so many runs, one in four billion has not been on both."""

FIRST, ENOUGH, LEFT = 8, 16, 0.75
"""After the first runs, no more are made if more than this share of the differences, which must be enough to tell, is left."""


def differing(result: torch.Tensor, target: torch.Tensor) -> torch.Tensor | None:
    """Indices of the elements, of the flat tensor, that differ; None if too many do, in all or in a line."""
    if result.dtype != target.dtype:
        return None
    result, target = _signed(result), _signed(target)
    places = _places(result, target)
    if not len(places):
        return places
    counts = _counting(target)
    if len(places) > max(FEW, MOST_DIFFERENT * int(counts.sum())):
        return None
    wrong = result != target
    for view in views(target.shape):
        here, size = (chosen.reshape(view).sum((0, 2)) for chosen in (wrong, counts))
        if bool((here > (MOST_IN_A_LINE * size).clamp(min=FEW)).any()):
            return None
    return places


def share_different(result: torch.Tensor, target: torch.Tensor) -> float:
    """The share of elements that differ, of two outputs of the same type."""
    return len(_places(_signed(result), _signed(target))) / max(target.numel(), 1)


def is_right(
    result: torch.Tensor,
    eager: torch.Tensor,
    oracle: torch.Tensor,
    moved: Callable[[], Iterator[torch.Tensor]],
) -> bool:
    """Whether a result that equals neither the reference's own nor the oracle is right nevertheless.

    `moved` yields up to `MOST_RUNS` results of the reference, each after inputs and weights have moved.
    """
    for target in (eager, oracle):
        if (places := differing(result, target)) is not None:
            break
    else:
        return False

    def picked(tensor: torch.Tensor) -> torch.Tensor:
        return _signed(tensor).reshape(-1)[places]

    ours, right = picked(result), (picked(eager), picked(oracle))
    wrong = (ours != right[0]) & (ours != right[1])
    reached, kept = ~wrong, ~wrong
    if bool(reached.all()):
        return True
    most = max(FEW, MOST_MOVED * int(_counting(_signed(target)).sum()))
    for number, other in enumerate(moved(), 1):
        if len(_places(_signed(other), _signed(target))) > most:
            return False
        there = picked(other)
        reached |= there == ours
        kept |= (there == right[0]) | (there == right[1])
        left = int((~(reached & kept)).sum())
        if not left:
            return True
        if number == FIRST and left > LEFT * max(ENOUGH, int(wrong.sum())):
            return False
    return False


def _signed(tensor: torch.Tensor) -> torch.Tensor:
    """The same bits in a type that has all operations."""
    return tensor.view(BITS[tensor.itemsize])


def _places(one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    """Indices of the elements, of the flat tensor, that differ."""
    return (one.reshape(-1) != other.reshape(-1)).nonzero().flatten()


def _counting(values: torch.Tensor) -> torch.Tensor:
    """Which elements do not have the value that is in more than half of them, which is the median if there is one."""
    return values != values.reshape(-1).median()
