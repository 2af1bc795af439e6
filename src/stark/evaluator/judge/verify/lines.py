"""Finds rows and columns of an output that are lost: wrong by a noticeable part of their own size.

An error is measured against the whole output's size, in which small rows do not show. Rows of zeros would pass where
the expected values are small. So no row and no column may be lost that the reference computes accurately.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch

LEAST_LOST, MOST_LOST, BUDGETS, FACTOR = 0.02, 0.1, 100.0, 10.0
"""A line is lost if its relative RMS error is above so many of the output's error budgets, which are taken as at least
LEAST_LOST and at most MOST_LOST, and above FACTOR times the reference's error there. Other rounding or another order of
sums does not do that to a whole line."""

FEW, FEWEST, FEW_LOST = 64, 16, 0.5
"""The error of a short line is more a matter of chance: below FEW elements it must be above FEW_LOST, and lines of fewer
than FEWEST are not judged."""


def lost_lines(
    result: torch.Tensor, oracle: torch.Tensor, eager: torch.Tensor, chunk: int, budget: float
) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield `row` and `column`, each with the indices of the lost ones if there are any.

    A row is a run along the last axis; rows are numbered in row-major order. Lines of which a value is not finite are
    not lost, nor are those whose values are so small that a term of theirs may not have the type's full precision. Looks at about `chunk` elements at
    a time, and at no output with longer rows.
    """
    if result.dim() < 2 or not 0 < result.shape[-1] <= chunk or not result.numel():
        return
    flat = [tensor.reshape(-1, result.shape[-1]) for tensor in (result, oracle, eager)]
    rows, columns = (
        torch.zeros(3, length, dtype=torch.float64, device=result.device)
        for length in flat[0].shape
    )
    step = chunk // result.shape[-1]
    for begin in range(0, len(flat[0]), step):
        ours, exact, theirs = (tensor[begin : begin + step] for tensor in flat)
        exact = exact.double()
        for number, values in enumerate((exact - ours, exact - theirs, exact)):
            squares = values.square()
            rows[number, begin : begin + step] = squares.sum(1)
            columns[number] += squares.sum(0)
    kind = torch.finfo(result.dtype)
    tiny, usual = kind.tiny / kind.eps, min(max(BUDGETS * budget, LEAST_LOST), MOST_LOST)
    for name, sums, length in (
        ("row", rows, result.shape[-1]),
        ("column", columns, result.numel() // result.shape[-1]),
    ):
        found, reference, size = sums
        share = usual if length >= FEW else FEW_LOST
        lost = (found > share**2 * size) & (found > FACTOR**2 * reference)
        lost &= size.isfinite() & (size > length * tiny**2)
        if length >= FEWEST and bool(lost.any()):
            yield name, lost.nonzero().flatten()
