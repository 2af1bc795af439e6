"""Measures the errors of a tensor against the oracle, piece by piece."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch

CHUNKS = {"cuda": 1 << 24, "cpu": 1 << 17}
"""Elements compared at a time, which avoids float64 copies of whole tensors. On a CPU, a chunk fits into the cache."""

BITS = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
"""By the bytes of a number, the type that shows its bits and has all operations."""


@dataclass(frozen=True)
class Errors:
    """Errors of one output tensor against the oracle."""

    relative_rms: float
    largest: float
    """Largest |x - o| / (rms(o) + |o|); o is the oracle. So it is relative to large elements, and to rms(o) for small ones."""

    nonfinite_mismatches: int
    """Number of elements that differ from the oracle's and are not finite in the output, the oracle or both."""


def as_real(tensor: torch.Tensor) -> torch.Tensor:
    """A real tensor that supports arithmetic: a complex one gets a last axis of size 2, one-byte floats become float32."""
    if tensor.is_floating_point() and tensor.itemsize == 1:
        return tensor.float()
    return torch.view_as_real(tensor.resolve_conj()) if tensor.is_complex() else tensor


def scale_of(oracle: torch.Tensor, below: float = math.inf) -> float:
    """Root mean square of the values below a magnitude, with non-finite ones as zero; 1 if it is zero."""
    squares, count = 0.0, 0
    for (piece,) in pieces(oracle):
        values = piece.double()
        if below < math.inf:
            values = values[values.abs() < below]
        square = float(torch.dot(values, values))
        if not math.isfinite(square):
            values = values.nan_to_num(0.0, 0.0, 0.0)
            square = float(torch.dot(values, values))
        squares += square
        count += len(values)
    return math.sqrt(squares / max(count, 1)) or 1.0


def measure(
    result: torch.Tensor, oracle: torch.Tensor, scale: float, below: float = math.inf
) -> Errors:
    """Measure the errors of an output, in float64; with `below`, of elements whose exact magnitude is below it."""
    squared_error = largest = 0.0
    nonfinite_mismatches = count = 0
    for ours, theirs in pieces(result, oracle):
        theirs = theirs.double()
        if below < math.inf:
            kept = theirs.abs() < below
            ours, theirs = ours[kept], theirs[kept]
            if not len(ours):
                continue
        count += len(ours)
        difference = (ours if ours.is_floating_point() else ours.double()) - theirs
        squares = float(torch.dot(difference, difference))
        if not math.isfinite(squares):  # searching for non-finite elements pays only now
            odd = ~difference.isfinite()
            nonfinite_mismatches += int(mismatched(ours, theirs).sum())
            difference.masked_fill_(odd, 0.0)
            theirs = theirs.masked_fill(odd, 0.0)
            squares = float(torch.dot(difference, difference))
        if squares == 0.0:
            continue
        squared_error += squares
        sizes = theirs.abs().add_(scale)
        largest = max(largest, float(difference.abs_().div_(sizes).max()))
    relative_rms = math.sqrt(squared_error / max(count, 1)) / scale
    return Errors(relative_rms, largest, nonfinite_mismatches)


def mismatched(ours: torch.Tensor, theirs: torch.Tensor) -> torch.Tensor:
    """Where two results differ and at least one is not finite."""
    same = (ours == theirs) | (ours.isnan() & theirs.isnan())
    return ~(ours.isfinite() & theirs.isfinite()) & ~same


def each_within(ours: torch.Tensor, theirs: torch.Tensor, share: float) -> bool:
    """Whether elements differ by at most this share of `theirs`. Lines and layers then do too. False if any is not finite."""
    most = torch.finfo(theirs.dtype).max  # infinity is not within a share of infinity
    return all(
        bool(((one - other).abs_() <= other.abs().mul_(share).clamp_(max=most)).all())
        for one, other in pieces(ours, theirs)
    )


def pieces(*tensors: torch.Tensor, size: int | None = None) -> Iterator[tuple[torch.Tensor, ...]]:
    """Yield matching pieces of tensors of equal size, in row-major order."""
    flat = [tensor.reshape(-1) for tensor in tensors]
    size = size or CHUNKS[flat[0].device.type]
    for begin in range(0, flat[0].numel(), size):
        yield tuple(piece[begin : begin + size] for piece in flat)
