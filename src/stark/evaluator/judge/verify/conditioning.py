"""Excuses the few wrong elements and lines that the problem's conditioning explains.

A sum that cancels, a ReLU that cuts a value off just above zero and a choice between two nearly equal values move far when
inputs and weights move by the rounding of the arithmetic that a class admits. Any honest kernel is wrong by as much there.
Small values that do not move far, such as those of a row with small inputs, must be right.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch

from stark.core.precision import Precision
from stark.evaluator.judge.verify.oracle import MOVES, ExpectedTensor, as_real, pieces

Moved = Callable[[], Iterator[torch.Tensor]]
"""Yields exact results, each after inputs and weights have moved."""

DRAWS = 4
"""Results that are compared. One could be near by chance."""

MOST_EXCUSED = 0.01
"""Share of an output's elements, or of its lines of a kind, that may be excused."""

ROUNDING: dict[Precision, float] = {
    "reference": 2**-23,
    "fp32-split": 2**-16,
    "tf32": 2**-10,
    "bf16": 2**-7,
}
"""By how much, relatively, a class's arithmetic may round a number."""


def rounding_of(precision: Precision, dtype: torch.dtype) -> float:
    """By how much a number of this type may be rounded by a class's arithmetic."""
    own = torch.finfo(dtype).eps
    wide = dtype == torch.float64 and precision in ("reference", "fp32-split")
    return own if wide else max(own, ROUNDING[precision])


def nudged(tensor: torch.Tensor, rounding: float, generator: torch.Generator) -> torch.Tensor:
    """The tensor with each number up to `rounding` higher or lower, relatively."""
    moved = tensor.double()
    noise = torch.rand(tensor.shape, generator=generator, device=tensor.device).mul_(2).sub_(1)
    return moved.addcmul_(moved.clone(), noise, value=rounding).to(tensor.dtype)


def is_explained(result: torch.Tensor, expected: ExpectedTensor, moved: Moved) -> bool:
    """Whether the exact results move at least about as far as those elements and lines that are wrong are off."""
    result = as_real(result)
    elements, lines = _wrong_elements(result, expected), expected.lost(result)
    if len(elements) > MOST_EXCUSED * result.numel():
        return False
    if any(len(each.indices) > MOST_EXCUSED * each.number_in(result) for each in lines):
        return False

    def off(other: torch.Tensor) -> list[torch.Tensor]:
        """For each wrong element and line, the sum of the squared differences from the exact result."""
        found = [_at(other, elements).double() - _at(expected.oracle, elements).double()]
        found += [each.of(other).double() - each.of(expected.oracle).double() for each in lines]
        return [each.square().flatten(1).sum(1) for each in found]

    moves = [torch.zeros_like(each) for each in off(result)]
    for other in moved():
        for total, square in zip(moves, off(as_real(other)), strict=True):
            total += square / DRAWS
    return all(
        bool((wrong <= MOVES**2 * far).all()) for wrong, far in zip(off(result), moves, strict=True)
    )


def _wrong_elements(result: torch.Tensor, expected: ExpectedTensor) -> torch.Tensor:
    """Indices of the elements beyond the cap, of the flat tensor. What agrees with the reference's own result is not wrong."""
    found, begin = [], 0
    for ours, exact, theirs in pieces(result, expected.oracle, expected.eager):
        exact = exact.double()
        allowed = expected.cap * (exact.abs() + expected.scale)
        wrong = ((ours - exact).abs() > allowed) & ((ours - theirs).abs() > allowed)
        found.append(wrong.nonzero().flatten() + begin)
        begin += ours.numel()
    return torch.cat(found)


def _at(tensor: torch.Tensor, elements: torch.Tensor) -> torch.Tensor:
    return tensor.reshape(-1, 1)[elements]
