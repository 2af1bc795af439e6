"""Describes sets of elements in words, such as a block of rows or every fourth column."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

Index = tuple[int, ...]

PERIODS = tuple(1 << power for power in range(1, 11))
"""Typical periods of tiles, warps and vector loads."""


@dataclass(frozen=True)
class Region:
    """A box of indices that contains all chosen elements."""

    words: str
    share: float
    """Fraction of the box that is chosen."""


def region(per_axis: list[torch.Tensor], shape: tuple[int, ...], count: int) -> Region | None:
    """Describe the box that contains all `count` chosen elements, or return None if it is too large.

    A box that also contains other elements is too large if it is more than half of the tensor. `per_axis` counts the
    chosen elements at each index of each axis.
    """
    chosen = [found.nonzero().flatten().cpu() for found in per_axis]
    filled = count == math.prod(map(len, chosen))
    inside, words_per_axis = 1, []
    for axis, (indices, extent) in enumerate(zip(chosen, shape, strict=True)):
        name = _axis_name(axis, len(shape))
        words = _indices(indices, extent, name) if len(indices) < extent else None
        if words is None and filled and len(indices) < extent:
            words = f"{len(indices)} of {extent} {name}s"
        if words is not None:
            words_per_axis.append(words)
        inside *= extent if words is None else len(indices)
    if not words_per_axis or (not filled and 2 * inside > math.prod(shape)):
        return None
    return Region(" in ".join(reversed(words_per_axis)), count / inside)


def flat_range(first: int, last: int, count: int, size: int, some: torch.Tensor) -> str | None:
    """Describe `count` flat indices from `first` to `last`, or return None if the step between them varies.

    `some` is a sample of these indices that includes the first few.
    """
    if count < 3:
        return None
    step = math.gcd(*(some - first).tolist())
    if (last - first) // step + 1 != count:
        return None
    if step > 1:
        return f"every {_ordinal(step)} element from {first} to {last} in row-major order"
    if last == size - 1:
        return f"the last {count:,} elements in row-major order"
    if first == 0:
        return f"the first {count:,} elements in row-major order"
    return f"elements {first} to {last} in row-major order"


def index_of(place: int, shape: tuple[int, ...]) -> Index:
    """Convert a flat row-major index to one index per axis."""
    index = []
    for extent in reversed(shape):
        index.append(place % extent)
        place //= extent
    return tuple(index[::-1])


def _indices(chosen: torch.Tensor, extent: int, name: str) -> str | None:
    """Describe the chosen indices of one axis, or return None if they follow no rule."""
    first, last, count = int(chosen[0]), int(chosen[-1]), len(chosen)
    if count == 1:
        return f"{name} {first}{', the last' if last == extent - 1 else ''} of {extent}"
    if last - first + 1 == count:
        end = f", the last {count}" if last == extent - 1 else ""
        end = end or (f", the first {count}" if first == 0 else "")
        return f"{name}s {first} to {last}{end} of {extent}"
    steps = chosen.diff().unique()
    if len(steps) == 1 and count > 2:
        return f"every {_ordinal(int(steps))} {name} from {first} to {last} of {extent}"
    return _periodic(chosen, extent, name)


def _periodic(chosen: torch.Tensor, extent: int, name: str) -> str | None:
    """Describe indices that are at the same positions in every tile, or return None if no tile size fits."""
    for period in PERIODS:
        remainders = (chosen % period).unique()
        if 2 * period > extent or len(remainders) == period:
            continue
        if len(chosen) == int(torch.isin(torch.arange(extent) % period, remainders).sum()):
            a, b = int(remainders[0]), int(remainders[-1])
            contiguous = b - a + 1 == len(remainders)
            which = (
                f"{a} to {b}" if contiguous and b > a else ", ".join(map(str, remainders.tolist()))
            )
            return f"{name}s whose index modulo {period} is {which}, of {extent}"
    return None


def _axis_name(axis: int, axes: int) -> str:
    if axes == 1:
        return "element"
    if axis >= axes - 2:
        return "row" if axis == axes - 2 else "column"
    return f"axis-{axis} slice"


def _ordinal(number: int) -> str:
    ending = (
        "th" if number % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    )
    return f"{number}{ending}"
