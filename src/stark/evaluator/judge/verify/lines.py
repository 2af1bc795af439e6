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


def share_lost(budget: float) -> float:
    """The relative RMS error from which a line of usual length is lost."""
    return min(max(BUDGETS * budget, LEAST_LOST), MOST_LOST)


def lost_lines(
    result: torch.Tensor, oracle: torch.Tensor, eager: torch.Tensor, chunk: int, budget: float
) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield `row`, `column` and `slice`, each with the indices of the lost ones if there are any.

    A row is a run along the last axis; rows are numbered in row-major order. If rows are too short to be judged, as in the
    weights of a convolution, runs along more of the last axes are judged too, as slices. Lines of which a value is not
    finite are not lost, nor are those whose values are so small that a term of theirs may not have the type's full
    precision. Looks at about `chunk` elements at a time, and at no output with longer rows.
    """
    if result.dim() < 2 or not result.numel():
        return
    shortest = length = result.shape[-1]
    yield from _lost(result, oracle, eager, chunk, budget, shortest)
    for extent in reversed(result.shape[1:-1]):
        length *= extent if length < FEWEST else 1
    if length > shortest:
        found = dict(_lost(result, oracle, eager, chunk, budget, length))
        if "row" in found:
            yield "slice", found["row"]


def _lost(
    result: torch.Tensor,
    oracle: torch.Tensor,
    eager: torch.Tensor,
    chunk: int,
    budget: float,
    length: int,
) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield the lost rows and columns if a row is a run of `length` elements."""
    if length > chunk:
        return
    flat = [tensor.reshape(-1, length) for tensor in (result, oracle, eager)]
    rows, columns = (
        torch.zeros(3, length, dtype=torch.float64, device=result.device)
        for length in flat[0].shape
    )
    step = chunk // length
    for begin in range(0, len(flat[0]), step):
        ours, exact, theirs = (tensor[begin : begin + step] for tensor in flat)
        exact = exact.double()
        for number, values in enumerate((exact - ours, exact - theirs, exact)):
            squares = values.square()
            rows[number, begin : begin + step] = squares.sum(1)
            columns[number] += squares.sum(0)
    kind = torch.finfo(result.dtype)
    tiny, usual = kind.tiny / kind.eps, share_lost(budget)
    for name, sums, elements in (
        ("row", rows, length),
        ("column", columns, result.numel() // length),
    ):
        found, reference, size = sums
        share = usual if elements >= FEW else FEW_LOST
        lost = (found > share**2 * size) & (found > FACTOR**2 * reference)
        lost &= size.isfinite() & (size > elements * tiny**2)
        if elements >= FEWEST and bool(lost.any()):
            yield name, lost.nonzero().flatten()
