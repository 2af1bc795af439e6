"""Recognizes patterns in wrong values: zeros, an input, or moved, scaled or rounded values.

Most checks look at a sample of the wrong elements, so their cost does not grow with the output.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations

import torch

NEARLY_ALL = 0.95
"""Share of the sample that must match a pattern."""

FEW = 8
"""A match on fewer elements than this may be chance."""

MAX_SORTED = 1 << 22
"""Largest output, in elements, that is sorted to look for a permutation."""

SORTED_FACTOR = 20.0
"""Sorted values must agree this many times more closely than single elements."""

UNMOVED_SHARE = 0.1
"""Values count as unmoved if their error is under a tenth of the usual difference between two expected values."""

NARROW = {"bfloat16": torch.bfloat16, "float16": torch.float16}
"""Narrower types, in the order in which they are tried.

The order matters: nearly every bfloat16 number of usual magnitude is also a float16 number.
"""

ROUNDING = (
    (7e-5, 8e-4, "TF32 or float16, or of rounding operands of long sums to bfloat16"),
    (8e-4, 6e-3, "bfloat16"),
)
"""Ranges (low, high) of the relative RMS error that rounding to these types usually causes."""


@dataclass(frozen=True)
class Sample:
    """Sampled elements of an output, with the result and the oracle to compare."""

    result: torch.Tensor
    oracle: torch.Tensor
    places: torch.Tensor
    """Flat indices of the sampled elements, in row-major order."""

    scale: float
    tolerance: float
    """Values match up to this difference, relative to `scale` plus the magnitude of the value that is compared."""

    @cached_property
    def got(self) -> torch.Tensor:
        """The result's values at the sampled elements."""
        return self.at(self.result, self.places)

    @cached_property
    def expected(self) -> torch.Tensor:
        """The oracle's values at the sampled elements."""
        return self.at(self.oracle, self.places)

    def at(self, tensor: torch.Tensor, places: torch.Tensor) -> torch.Tensor:
        """Return a tensor's values, in float64, at flat row-major indices."""
        return tensor[torch.unravel_index(places, tensor.shape)].double()

    def matches(self, other: torch.Tensor, among: torch.Tensor | None = None) -> bool:
        """Whether nearly all sampled values match `other`; with `among`, only the selected values count.

        Returns False if `other` has only a few distinct values.
        """
        near = (self.got - other).abs() <= self.tolerance * (other.abs() + self.scale)
        if among is not None:
            near, other = near[among], other[among]
        return len(near) >= FEW and bool(near.double().mean() >= NEARLY_ALL) and _varied(other)


def value_pattern(sample: Sample, others: Mapping[str, torch.Tensor]) -> str | None:
    """Describe the simplest pattern that the sampled values follow, or return None.

    `others` maps names to tensors that may have been returned by mistake.
    """
    if sample.result.dtype == torch.bool:
        return None
    checks: list[Callable[[], str | None]] = [
        lambda: _constant(sample),
        lambda: _other(sample, others),
        lambda: _factor(sample),
        lambda: _offset(sample),
        lambda: _axis_order(sample),
        lambda: _shift(sample),
        lambda: _permutation(sample),
    ]
    return next((words for check in checks if (words := check()) is not None), None)


def precision(sample: Sample) -> str | None:
    """Say what rounding or other imprecision explains the error, or return None."""
    if sample.result.dtype in (torch.float32, torch.float64) and _varied(sample.got):
        for name, narrow in NARROW.items():
            if torch.equal(sample.got.to(narrow).double(), sample.got):
                return f"every value is exactly a {name} number: the result was rounded to {name}"
    error = float((sample.got - sample.expected).square().mean().sqrt()) / sample.scale
    for low, high, name in ROUNDING:
        if low <= error < high:
            return f"the error is spread out, and its size is typical of rounding to {name}"
    if error < ROUNDING[0][0]:
        return (
            "the error is spread out and small, which is typical of fast approximations or another "
            "summation order"
        )
    return None


def _constant(sample: Sample) -> str | None:
    low, high = sample.got.aminmax()
    if not bool(low == high):
        return None
    return "all of them are 0" if float(low) == 0 else f"all of them are {float(low):.6g}"


def _other(sample: Sample, others: Mapping[str, torch.Tensor]) -> str | None:
    for name, other in others.items():
        fits = other.numel() == sample.result.numel() and not other.is_complex()
        if fits and sample.matches(sample.at(other, sample.places)):
            return f"they equal {name}"
    return None


def _factor(sample: Sample) -> str | None:
    """Recognize a multiple of the expected values, including a flipped sign."""
    large = sample.expected.abs() > 0.1 * sample.scale
    if int(large.sum()) < FEW:
        return None
    factor = float((sample.got / sample.expected)[large].median())
    if not math.isfinite(factor) or factor == 0 or not sample.matches(factor * sample.expected):
        return None
    return "their sign is flipped" if abs(factor + 1) < 1e-3 else f"got = {factor:.6g} * expected"


def _offset(sample: Sample) -> str | None:
    """Recognize the expected values plus a constant."""
    offset = float((sample.got - sample.expected).median())
    if offset == 0 or not math.isfinite(offset):
        return None
    if not sample.matches(sample.expected + offset):
        return None
    return f"got = expected {'+' if offset > 0 else '-'} {abs(offset):.6g}"


def _axis_order(sample: Sample) -> str | None:
    """Recognize the right values written with the axes in another order."""
    shape = sample.result.shape
    for order in _orders(len(shape)):
        permuted = [shape[axis] for axis in order]
        index = dict(zip(order, torch.unravel_index(sample.places, permuted), strict=True))
        there = sample.oracle[tuple(index[axis] for axis in range(len(shape)))].double()
        if sample.matches(there):
            swapped = [axis for axis, other in enumerate(order) if axis != other]
            if len(swapped) == 2:
                return (
                    "they are transposed: the expected values with axes "
                    f"{swapped[0]} and {swapped[1]} swapped"
                )
            return f"they are the expected values laid out in the axis order {order}"
    return None


def _orders(axes: int) -> Iterator[tuple[int, ...]]:
    """Yield every swap of two axes, beginning with the last two axes, then NCHW/NHWC conversions."""
    for a, b in sorted(combinations(range(axes), 2), reverse=True):
        order = list(range(axes))
        order[a], order[b] = b, a
        yield tuple(order)
    if axes == 4:
        yield (0, 2, 3, 1)
        yield (0, 3, 1, 2)


def _shift(sample: Sample) -> str | None:
    """Recognize the right values one place off along an axis."""
    index = torch.unravel_index(sample.places, sample.result.shape)
    for axis, extent in enumerate(sample.result.shape):
        for step in (1, -1):
            moved = index[axis] + step
            inside = (moved >= 0) & (moved < extent)
            source = [*index[:axis], moved.clamp(0, extent - 1), *index[axis + 1 :]]
            if sample.matches(sample.oracle[tuple(source)].double(), inside):
                sign = "+" if step > 0 else "-"
                return f"they are shifted: got[i] = expected[i {sign} 1] along axis {axis}"
    return None


def _permutation(sample: Sample) -> str | None:
    """Recognize the expected values in another order, along one axis or overall.

    Equal sorted values are weak evidence: values that are nearly right, and unrelated values of the
    same distribution, also agree after sorting.
    """
    result, oracle = sample.result, sample.oracle
    if result.numel() > MAX_SORTED or not _varied(sample.expected) or _unmoved(sample):
        return None
    tolerance = sample.tolerance / SORTED_FACTOR

    def agree_sorted(ours: torch.Tensor, theirs: torch.Tensor, axis: int, limit: float) -> bool:
        ours, theirs = (t.double().sort(dim=axis).values for t in (ours, theirs))
        apart = (ours - theirs).abs() > limit * (theirs.abs() + sample.scale)
        return not bool(apart.any())

    if not agree_sorted(result.flatten(), oracle.flatten(), 0, tolerance):
        return None
    halves = oracle.flatten()[_shuffled(oracle.numel(), oracle.device)]
    middle = len(halves) // 2
    if agree_sorted(halves[:middle], halves[middle : 2 * middle], 0, 2 * tolerance):
        return None  # two halves of the oracle agree as well, so this agreement proves nothing
    axes = [axis for axis in range(result.ndim) if agree_sorted(result, oracle, axis, tolerance)]
    along = f" along axis {axes[0]}" if axes and result.ndim > 1 else ""
    return f"they are the expected values in another order{along} (a permutation)"


def _unmoved(sample: Sample) -> bool:
    """Whether values are much closer to their expected values than expected values are to each other."""
    unrelated = sample.expected[_shuffled(len(sample.expected), sample.expected.device)]
    apart = (sample.got - sample.expected).abs().median()
    return bool(apart < UNMOVED_SHARE * (unrelated - sample.expected).abs().median())


def _shuffled(count: int, device: torch.device) -> torch.Tensor:
    """Return the numbers below `count` in a random order that is the same on every call."""
    return torch.randperm(count, generator=torch.Generator().manual_seed(0)).to(device)


def _varied(values: torch.Tensor) -> bool:
    """Whether values differ enough among themselves for a match to mean something."""
    return len(values.unique()) >= min(FEW, max(len(values) // 2, 2))
