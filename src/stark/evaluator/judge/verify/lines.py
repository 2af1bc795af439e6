"""Finds lines of an output that are lost, rows, columns and slices: wrong by a noticeable part of their own size.

An error is measured against the whole output's size, in which small rows do not show. Rows of zeros would pass where
the expected values are small. So no line may be lost that the reference computes accurately.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product

import torch

from stark.evaluator.judge.verify.errors import CHUNKS

LEAST_LOST, MOST_LOST, BUDGETS, FACTOR = 0.02, 0.1, 100.0, 10.0
"""A line is lost if its relative RMS error is above so many of the output's error budgets, which are taken as at least
LEAST_LOST and at most MOST_LOST, and above FACTOR times the reference's error there. Other rounding or another order of
sums does not do that to a whole line."""

FEW, FEWEST, FEW_LOST = 64, 16, 0.5
"""The error of a short line is more a matter of chance: below FEW elements it must be above FEW_LOST, and lines of fewer
than FEWEST are not judged."""

View = tuple[int, int, int]
"""A shape in which an output's second axis numbers lines of a kind."""


@dataclass(frozen=True)
class Lines:
    """Some lines of an output."""

    kind: str
    view: View
    indices: torch.Tensor
    below: float
    """Only elements count whose exact magnitude is below this."""

    share: float
    """The relative RMS error from which those of usual length are lost."""

    def of(self, tensor: torch.Tensor) -> torch.Tensor:
        """The lines' elements, with shape (lines, elements)."""
        return tensor.reshape(self.view)[:, self.indices].transpose(0, 1).flatten(1)


def share_lost(budget: float) -> float:
    """The relative RMS error from which a line of usual length is lost."""
    return min(max(BUDGETS * budget, LEAST_LOST), MOST_LOST)


def views(shape: Sequence[int]) -> dict[View, str]:
    """The kinds of lines of an output with this shape; none if it has one axis.

    A row is a run along the last axis; rows are numbered in row-major order, and so are longer runs (`run_length`). The
    others are slices along an axis; columns are those along the last.
    """
    if len(shape) < 2:
        return {}
    count, length, run = math.prod(shape), shape[-1], run_length(shape)
    found = {(1, count // run, run): "slice", (1, count // length, length): "row"}
    found[count // length, length, 1] = "column"
    for axis, extent in enumerate(shape[:-1]):
        after = math.prod(shape[axis + 1 :])
        found.setdefault((count // (extent * after), extent, after), f"axis-{axis} slice")
    return found


def run_length(shape: Sequence[int]) -> int:
    """The elements of a row, or of a run along as many of the last axes as make it long enough to be judged."""
    length = shape[-1]
    for extent in reversed(shape[1:-1]):
        length *= extent if length < FEWEST else 1
    return length


def lost_lines(tensors: Sequence[torch.Tensor], budget: float, below: float) -> Iterator[Lines]:
    """Yield the lost lines of each kind that has some. Given are a result, the oracle and the reference's own result.

    Lines of which a value is not finite are not lost, nor are those whose values are so small that a term of theirs may not
    have the type's full precision. Elements whose exact magnitude is not below `below` are left out.
    """
    result = tensors[0]
    if result.dim() < 2 or not result.numel():
        return
    rows, columns = _sums(tensors, below)
    kind = torch.finfo(result.dtype)
    tiny, usual = kind.tiny / kind.eps, share_lost(budget)
    for view, name in views(result.shape).items():
        if result.numel() < FEWEST * view[1]:
            continue
        sums = columns if name == "column" else rows.view(4, *view[:2], -1).sum((1, 3))
        found, reference, size, count = sums
        if below == math.inf:
            count.fill_(result.numel() // view[1])
        share = torch.where(count >= FEW, usual, FEW_LOST)
        lost = (found > share**2 * size) & (found > FACTOR**2 * reference) & (count >= FEWEST)
        lost &= size.isfinite() & (size > count * tiny**2)
        if bool(lost.any()):
            yield Lines(name, view, lost.nonzero().flatten(), below, usual)


def _sums(tensors: Sequence[torch.Tensor], below: float) -> tuple[torch.Tensor, torch.Tensor]:
    """Of each row and each column: the squares of the result's errors, of the reference's and of the exact values, and how
    many elements count. Looks at a chunk of elements at a time. Columns too short to be judged are left out.
    """
    flat = [tensor.reshape(-1, tensor.shape[-1]) for tensor in tensors]
    (height, length), chunk = flat[0].shape, CHUNKS[flat[0].device.type]
    tall, width = height >= FEWEST, min(length, chunk)
    rows = flat[0].new_zeros(4, height, dtype=torch.float64)
    columns = rows.new_zeros(4, length if tall else 0)

    def add(number: int, values: torch.Tensor) -> None:
        rows[number, down] += values.sum(1)
        if tall:
            columns[number, across] += values.sum(0)

    step = chunk // width
    for top, left in product(range(0, height, step), range(0, length, width)):
        down, across = slice(top, top + step), slice(left, left + width)
        ours, exact, theirs = (tensor[down, across] for tensor in flat)
        exact = exact.double()
        counted = exact.abs() < below if below < math.inf else None
        for number, other in enumerate((ours, theirs, None)):  # one at a time, to save memory
            squares = exact.square() if other is None else (exact - other).square_()
            if counted is not None:
                squares.masked_fill_(~counted, 0.0)
            add(number, squares)
        if counted is not None:
            add(3, counted)
    return rows, columns
