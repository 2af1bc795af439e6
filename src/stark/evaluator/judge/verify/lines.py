"""Finds rows and columns of an output that are lost: wrong by a noticeable part of their own size.

An error is measured against the whole output's size, in which small rows do not show. Rows of zeros would pass where
the expected values are small. So no row and no column may be lost that the reference computes accurately.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch

from stark.evaluator.judge.verify.errors import CHUNKS

LEAST_LOST, MOST_LOST, BUDGETS, FACTOR = 0.02, 0.1, 100.0, 10.0
"""A line is lost if its relative RMS error is above so many of the output's error budgets, which are taken as at least
LEAST_LOST and at most MOST_LOST, and above FACTOR times the reference's error there. Other rounding or another order of
sums does not do that to a whole line."""

FEW, FEWEST, FEW_LOST = 64, 16, 0.5
"""The error of a short line is more a matter of chance: below FEW elements it must be above FEW_LOST, and lines of fewer
than FEWEST are not judged."""

Compared = tuple[torch.Tensor, torch.Tensor, torch.Tensor]
"""A result, the oracle and the reference's own result."""


@dataclass(frozen=True)
class Lines:
    """Some lines of an output."""

    kind: str
    """`row`, `column` or `slice`."""

    length: int
    """Elements of a row, or of a slice."""

    indices: torch.Tensor
    below: float
    """Only elements count whose exact magnitude is below this."""

    share: float
    """The relative RMS error from which those of usual length are lost."""

    def number_in(self, tensor: torch.Tensor) -> int:
        """How many lines of this kind a tensor has."""
        return self.length if self.kind == "column" else tensor.numel() // self.length

    def of(self, tensor: torch.Tensor) -> torch.Tensor:
        """The lines' elements, with shape (lines, elements)."""
        rows = tensor.reshape(-1, self.length)
        return rows[:, self.indices].T if self.kind == "column" else rows[self.indices]


def share_lost(budget: float) -> float:
    """The relative RMS error from which a line of usual length is lost."""
    return min(max(BUDGETS * budget, LEAST_LOST), MOST_LOST)


def lost_lines(tensors: Compared, budget: float, below: float) -> Iterator[Lines]:
    """Yield the lost rows, columns and slices, if there are any.

    A row is a run along the last axis; rows are numbered in row-major order. If rows are too short to be judged, as in the
    weights of a convolution, runs along more of the last axes are judged too, as slices. Lines of which a value is not
    finite are not lost, nor are those whose values are so small that a term of theirs may not have the type's full
    precision. Elements whose exact magnitude is not below `below` are left out. Looks at a chunk of elements at a time, and
    at no output with longer rows.
    """
    result = tensors[0]
    if result.dim() < 2 or not result.numel():
        return
    for length in dict.fromkeys((result.shape[-1], run_length(result.shape))):
        if length <= CHUNKS[result.device.type]:
            yield from _lost(tensors, budget, below, length)


def run_length(shape: Sequence[int]) -> int:
    """The elements of a slice: of a row, or along as many of the last axes as make a run long enough to be judged."""
    length = shape[-1]
    for extent in reversed(shape[1:-1]):
        length *= extent if length < FEWEST else 1
    return length


def _lost(tensors: Compared, budget: float, below: float, length: int) -> Iterator[Lines]:
    """Yield the lost rows and columns, or slices if these are longer than a row: runs of `length` elements."""
    result, flat = tensors[0], [tensor.reshape(-1, length) for tensor in tensors]
    rows, columns = (
        torch.zeros(4, length, dtype=torch.float64, device=result.device)
        for length in flat[0].shape
    )
    step = CHUNKS[result.device.type] // length
    for begin in range(0, len(flat[0]), step):
        ours, exact, theirs = (tensor[begin : begin + step] for tensor in flat)
        exact = exact.double()
        counted = exact.abs() < below if below < math.inf else None
        for number, other in enumerate((ours, theirs, None)):  # one at a time, to save memory
            squares = exact.square() if other is None else (exact - other).square_()
            if counted is not None:
                squares.masked_fill_(~counted, 0.0)
            rows[number, begin : begin + step] = squares.sum(1)
            columns[number] += squares.sum(0)
        if counted is not None:
            rows[3, begin : begin + step] = counted.sum(1)
            columns[3] += counted.sum(0)
    kind = torch.finfo(result.dtype)
    tiny, usual = kind.tiny / kind.eps, share_lost(budget)
    kinds = [("row", rows, length), ("column", columns, result.numel() // length)]
    if length > result.shape[-1]:
        kinds = [("slice", rows, length)]
    for name, sums, elements in kinds:
        found, reference, size, count = sums
        if below == math.inf:
            count.fill_(elements)
        share = torch.where(count >= FEW, usual, FEW_LOST)
        lost = (found > share**2 * size) & (found > FACTOR**2 * reference) & (count >= FEWEST)
        lost &= size.isfinite() & (size > count * tiny**2)
        if bool(lost.any()):
            yield Lines(name, length, lost.nonzero().flatten(), below, usual)
