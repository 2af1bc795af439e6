"""Excuses the few wrong elements and lines, and the layers, that the problem's conditioning explains.

A sum that cancels, a ReLU that cuts a value off just above zero and a choice between two nearly equal values move far when
inputs and weights move by the rounding of the arithmetic that a class admits. Any honest kernel is wrong by as much there.
So is one that rounds in the middle as the reference does. The results that are compared are therefore the reference's own,
with its rounding. Small values that do not move far, such as those of a row with small inputs, must be right.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import torch

from stark.evaluator.judge.verify.errors import as_real, measure, pieces
from stark.evaluator.judge.verify.lines import FEW, FEW_LOST, Lines
from stark.evaluator.judge.verify.oracle import ExpectedTensor

Moved = Callable[[], Iterator[torch.Tensor]]
"""Yields results of the reference, each after inputs and weights have moved."""

DRAWS = 8
"""Results that are compared. A few could all be near by chance."""

MOVES = 4.0
"""An error is explained up to this multiple of the root mean square move: moves are as large as a class's coarsest rounding."""

SMALL, OCTAVES = 2.0**-24, 10.0
"""Zeros become at least this, or the least normal number if that is smaller, and at most so many powers of two more: a half
type then has a thousand values. Those of one byte, which have none so small, stay."""

MOST_EXCUSED = 0.01
"""Share of an output's elements, or of its lines of a kind, that may be excused."""

MOST_MOVED = 0.5
"""Relative RMS by which the result may move as a whole. Beyond it, the moves change the problem, such as a mask."""


def nudged(tensor: torch.Tensor, rounding: float, generator: torch.Generator) -> torch.Tensor:
    """The tensor with each number up to `rounding` off, relatively. Whole numbers, as in masks and labels, are exact."""
    exact = tensor.double()
    if _are_whole(exact):
        return tensor
    noise = torch.rand(tensor.shape, generator=generator, device=tensor.device).mul_(2).sub_(1)
    return exact.addcmul(exact, noise, value=rounding).to(tensor.dtype)


def without_ties(tensor: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """The tensor with tiny positive numbers for its zeros, so that few are equal. Zeros among whole numbers stay."""
    if not tensor.is_floating_point() or tensor.itemsize == 1 or _are_whole(tensor):
        return tensor
    shares = torch.rand(tensor.shape, generator=generator, device=tensor.device)
    factors = (2.0 ** (OCTAVES * shares)).to(tensor.dtype)
    return torch.where(tensor == 0, min(torch.finfo(tensor.dtype).tiny, SMALL) * factors, tensor)


def _are_whole(numbers: torch.Tensor) -> bool:
    """Whether all are whole numbers. Where they are not, the first ones nearly always say so."""
    flat = numbers.reshape(-1)
    return all(bool((each == each.round()).all()) for each in (flat[:64], flat))


def is_explained(result: torch.Tensor, expected: ExpectedTensor, moved: Moved) -> bool:
    """Whether the reference's results move about as far as those elements, lines and layers that are wrong are off."""
    result = as_real(result)
    wrong, lines = _wrong_elements(result, expected), expected.lost(result)
    layers = expected.lost_layers(result)
    if len(wrong) > MOST_EXCUSED * result.numel() or any(
        len(each.indices) > MOST_EXCUSED * each.view[1] for each in lines
    ):
        return False
    kept = [each.of(expected.oracle).double().abs() < each.below for each in lines]

    def picked(tensor: torch.Tensor) -> list[torch.Tensor]:
        """The wrong elements and each kind of lines; 0 for elements of a line that do not count."""
        found = [each.of(tensor).where(here, 0.0) for each, here in zip(lines, kept, strict=True)]
        return [each.double() for each in (tensor.reshape(-1)[wrong], *found)]

    exact = picked(expected.oracle)

    def off(tensor: torch.Tensor) -> list[torch.Tensor]:
        return [(there - here).abs() for there, here in zip(picked(tensor), exact, strict=True)]

    squares = [torch.zeros_like(each) for each in exact]
    shifts = [0.0] * len(layers)
    for other in map(as_real, moved()):
        if not measure(other, expected.oracle, expected.scale).relative_rms <= MOST_MOVED:
            return False
        for total, apart in zip(squares, off(other), strict=True):
            total += apart.square() / DRAWS
        for place, (layer, _) in enumerate(layers):
            shift = measure(other, expected.oracle, layer.scale, layer.below).relative_rms
            if not shift <= MOST_MOVED:
                return False
            shifts[place] += shift**2 / DRAWS
    precision = expected.terms.precision
    for (layer, found), shift in zip(layers, shifts, strict=True):
        if not found.relative_rms <= layer.budget_in(precision) + MOVES * math.sqrt(shift):
            return False
    beyond = [
        (error - MOVES * square.sqrt()).clamp(min=0.0)
        for error, square in zip(off(result), squares, strict=True)
    ]
    if not all(bool(each.isfinite().all()) for each in beyond) or bool(beyond[0].any()):
        return False
    return not any(map(_is_lost, lines, beyond[1:], exact[1:], kept))


def _is_lost(lines: Lines, beyond: torch.Tensor, exact: torch.Tensor, kept: torch.Tensor) -> bool:
    """Whether any line is still lost by that part of its errors which the moves do not explain."""
    share = torch.where(kept.sum(1) >= FEW, lines.share, FEW_LOST)
    return bool((beyond.square().sum(1) > share**2 * exact.square().sum(1)).any())


def _wrong_elements(result: torch.Tensor, expected: ExpectedTensor) -> torch.Tensor:
    """Indices of the elements beyond the cap, of the flat tensor. What agrees with the reference's own result is not wrong."""
    caps = [(part, part.cap_in(expected.terms.precision)) for part in expected.parts]
    found = []
    for ours, exact, theirs in pieces(result, expected.oracle, expected.eager):
        exact = exact.double()
        size, wrong = exact.abs(), torch.zeros_like(ours, dtype=torch.bool)
        for part, cap in caps:
            allowed = cap * (size + part.scale)
            outside = ((ours - exact).abs() > allowed) & ((ours - theirs).abs() > allowed)
            wrong |= outside & (size < part.below)
        found.append(wrong)
    return torch.cat(found).nonzero().flatten()
