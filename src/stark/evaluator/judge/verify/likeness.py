"""What wrong values are like: zeros, an input, the expected ones doubled, transposed, shifted, or rounded to fewer bits.

Looks at a sample of wrong elements, so it costs the same for any size.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations

import torch

NEARLY_ALL = 0.95
"""Share of the sample that a likeness must hold for."""

FEW = 8
"""With fewer elements than this, a likeness may be chance."""

SORTED = 1 << 22
"""Elements up to which an output is sorted, to see whether only the order is wrong."""

NARROW = {"bfloat16": torch.bfloat16, "float16": torch.float16}
"""In this order: nearly every bfloat16 number of usual size is a float16 number too."""

ROUNDING = ((7e-5, 8e-4, "TF32 or float16"), (8e-4, 6e-3, "bfloat16"))
"""Relative RMS errors that come from rounding operands or results to these types."""


@dataclass(frozen=True)
class Sample:
    """Some places of an output, and what it takes to look at them."""

    result: torch.Tensor
    oracle: torch.Tensor
    places: torch.Tensor
    """In row-major order."""

    scale: float
    tolerance: float
    """How far apart values may be and still count as alike, relative to their size plus `scale`."""

    @cached_property
    def got(self) -> torch.Tensor:
        """What stands at the places."""
        return self.at(self.result, self.places)

    @cached_property
    def expected(self) -> torch.Tensor:
        """What should stand at the places."""
        return self.at(self.oracle, self.places)

    def at(self, tensor: torch.Tensor, places: torch.Tensor) -> torch.Tensor:
        """A tensor's values, in float64, at places in row-major order."""
        return tensor[torch.unravel_index(places, tensor.shape)].double()

    def alike(self, other: torch.Tensor, among: torch.Tensor | None = None) -> bool:
        """Whether nearly all that was got (`among` some places) is like `other`, and `other` is no constant."""
        near = (self.got - other).abs() <= self.tolerance * (other.abs() + self.scale)
        if among is not None:
            near, other = near[among], other[among]
        return len(near) >= FEW and bool(near.double().mean() >= NEARLY_ALL) and _varied(other)


def likeness(sample: Sample, others: Mapping[str, torch.Tensor]) -> str | None:
    """What the values at the sampled places are like, the simplest first, or None."""
    if sample.result.dtype == torch.bool:
        return None
    questions: list[Callable[[], str | None]] = [
        lambda: _constant(sample),
        lambda: _other(sample, others),
        lambda: _factor(sample),
        lambda: _offset(sample),
        lambda: _axis_order(sample),
        lambda: _shift(sample),
        lambda: _order(sample),
    ]
    return next((said for ask in questions if (said := ask()) is not None), None)


def precision(sample: Sample) -> str | None:
    """Which narrower type the error looks like, by the values themselves or else by the error's size."""
    if sample.result.dtype in (torch.float32, torch.float64) and _varied(sample.got):
        for name, narrow in NARROW.items():
            if torch.equal(sample.got.to(narrow).double(), sample.got):
                return f"every value is a {name} number: rounded to {name} on the way"
    error = float((sample.got - sample.expected).square().mean().sqrt()) / sample.scale
    for low, high, name in ROUNDING:
        if low <= error < high:
            return f"the error is spread and of the size that rounding to {name} gives"
    if error < ROUNDING[0][0]:
        return "the error is spread and small, as from fast approximations or another order of sums"
    return None


def _constant(sample: Sample) -> str | None:
    low, high = sample.got.aminmax()
    if not bool(low == high):
        return None
    return "all of them are 0" if float(low) == 0 else f"all of them are {float(low):.6g}"


def _other(sample: Sample, others: Mapping[str, torch.Tensor]) -> str | None:
    for name, other in others.items():
        fits = other.numel() == sample.result.numel() and not other.is_complex()
        if fits and sample.alike(sample.at(other, sample.places)):
            return f"they equal {name}"
    return None


def _factor(sample: Sample) -> str | None:
    """Whether they are a multiple of the expected values, -1 included."""
    large = sample.expected.abs() > 0.1 * sample.scale
    if int(large.sum()) < FEW:
        return None
    factor = float((sample.got / sample.expected)[large].median())
    if not math.isfinite(factor) or factor == 0 or not sample.alike(factor * sample.expected):
        return None
    return "their sign is flipped" if abs(factor + 1) < 1e-3 else f"got = {factor:.6g} * expected"


def _offset(sample: Sample) -> str | None:
    """Whether they are the expected values plus a constant."""
    offset = float((sample.got - sample.expected).median())
    if offset == 0 or not math.isfinite(offset):
        return None
    if not sample.alike(sample.expected + offset):
        return None
    return f"got = expected {'+' if offset > 0 else '-'} {abs(offset):.6g}"


def _axis_order(sample: Sample) -> str | None:
    """Whether the right values were written as if the axes had another order."""
    shape = sample.result.shape
    for order in _orders(len(shape)):
        permuted = [shape[axis] for axis in order]
        index = dict(zip(order, torch.unravel_index(sample.places, permuted), strict=True))
        there = sample.oracle[tuple(index[axis] for axis in range(len(shape)))].double()
        if sample.alike(there):
            swapped = [axis for axis, other in enumerate(order) if axis != other]
            if len(swapped) == 2:
                return f"they are transposed: the expected values with axes {swapped[0]} and {swapped[1]} swapped"
            return f"they are the expected values laid out in the axis order {order}"
    return None


def _orders(axes: int) -> Iterator[tuple[int, ...]]:
    """Every swap of two axes, the last two first, and the layouts of images with channels last or first."""
    for a, b in sorted(combinations(range(axes), 2), reverse=True):
        order = list(range(axes))
        order[a], order[b] = b, a
        yield tuple(order)
    if axes == 4:
        yield (0, 2, 3, 1)
        yield (0, 3, 1, 2)


def _shift(sample: Sample) -> str | None:
    """Whether the right values stand one place off along an axis."""
    index = torch.unravel_index(sample.places, sample.result.shape)
    for axis, extent in enumerate(sample.result.shape):
        for step in (1, -1):
            moved = index[axis] + step
            inside = (moved >= 0) & (moved < extent)
            source = [*index[:axis], moved.clamp(0, extent - 1), *index[axis + 1 :]]
            if sample.alike(sample.oracle[tuple(source)].double(), inside):
                return f"they are shifted: got[i] = expected[i {'+' if step > 0 else '-'} 1] along axis {axis}"
    return None


def _order(sample: Sample) -> str | None:
    """Whether only the order of the values is wrong, along one axis or in all."""
    result, oracle = sample.result, sample.oracle
    if result.numel() > SORTED or not _varied(sample.expected):
        return None

    def sorted_alike(ours: torch.Tensor, theirs: torch.Tensor, axis: int) -> bool:
        ours, theirs = (t.double().sort(dim=axis).values for t in (ours, theirs))
        apart = (ours - theirs).abs() > sample.tolerance * (theirs.abs() + sample.scale)
        return not bool(apart.any())

    if not sorted_alike(result.flatten(), oracle.flatten(), 0):
        return None
    axes = [axis for axis in range(result.ndim) if sorted_alike(result, oracle, axis)]
    along = f" along axis {axes[0]}" if axes and result.ndim > 1 else ""
    return f"they are the expected values in another order{along} (a permutation)"


def _varied(values: torch.Tensor) -> bool:
    """Whether values differ enough among themselves for a likeness to mean something."""
    return len(values.unique()) >= min(FEW, max(len(values) // 2, 2))
