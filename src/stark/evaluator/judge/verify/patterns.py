"""Recognizes patterns in wrong values: a constant, another tensor, or transposed, scaled, shifted or rounded values.

All checks look at a sample of the elements, so their cost does not grow with the output.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import permutations

import torch

NEARLY_ALL = 0.95
"""Share of the sample that must match a pattern."""

FEW = 8
"""A match on fewer elements, or on fewer distinct values, may be chance."""

MOST_AXES = 5
"""Outputs with more axes have too many axis orders to try."""

NARROW = {"bfloat16": torch.bfloat16, "float16": torch.float16}
"""Narrower types, in the order in which they are tried.

The order matters: nearly every bfloat16 number of usual magnitude is also a float16 number.
"""

ROUNDING = (
    (
        7e-5,
        "the error is spread out and small, which is typical of fast approximations or another summation order",
    ),
    (
        8e-4,
        "the error is spread out, and its size is typical of rounding to TF32 or float16, or of rounding operands of "
        "long sums to bfloat16",
    ),
    (6e-3, "the error is spread out, and its size is typical of rounding to bfloat16"),
)
"""What usually causes a relative RMS error below each bound."""


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
        return self.at(self.result)

    @cached_property
    def expected(self) -> torch.Tensor:
        """The oracle's values at the sampled elements."""
        return self.at(self.oracle)

    def at(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return a tensor's values, in float64, at the sampled flat indices."""
        return tensor[torch.unravel_index(self.places, tensor.shape)].double()

    def matches(self, other: torch.Tensor) -> bool:
        """Whether nearly all sampled values match `other`, and `other` has more than a few distinct values."""
        near = (self.got - other).abs() <= self.tolerance * (other.abs() + self.scale)
        return bool(near.double().mean() >= NEARLY_ALL) and len(other.unique()) >= FEW


def value_pattern(sample: Sample, others: Mapping[str, torch.Tensor]) -> str | None:
    """Describe the simplest pattern that the sampled values follow, or return None.

    `others` maps names to tensors that may have been returned by mistake. The sample has at least `FEW` elements.
    """
    if sample.result.dtype == torch.bool:
        return None
    low, high = map(float, sample.got.aminmax())
    if low == high:
        return f"all of them are {low:.6g}"
    for name, other in others.items():
        fits = other.numel() == sample.result.numel() and not other.is_complex()
        if fits and sample.matches(sample.at(other)):
            return f"they equal {name}"
    return _scaled(sample) or _transposed(sample)


def precision(sample: Sample) -> str | None:
    """Say what rounding or other imprecision explains the error, or return None."""
    if sample.result.dtype in (torch.float32, torch.float64) and len(sample.got.unique()) >= FEW:
        for name, narrow in NARROW.items():
            if torch.equal(sample.got.to(narrow).double(), sample.got):
                return f"every value is exactly a {name} number: the result was rounded to {name}"
    error = float((sample.got - sample.expected).square().mean().sqrt()) / sample.scale
    return next((words for bound, words in ROUNDING if error < bound), None)


def _scaled(sample: Sample) -> str | None:
    """Recognize a multiple of the expected values, or the expected values plus a constant."""
    large = sample.expected.abs() > 0.1 * sample.scale
    factor = float((sample.got / sample.expected)[large].median()) if large.any() else 0.0
    if sample.matches(factor * sample.expected):
        return (
            "their sign is flipped" if abs(factor + 1) < 1e-3 else f"got = {factor:.6g} * expected"
        )
    offset = float((sample.got - sample.expected).median())
    if sample.matches(sample.expected + offset):
        return f"got = expected {'+' if offset > 0 else '-'} {abs(offset):.6g}"
    return None


def _transposed(sample: Sample) -> str | None:
    """Recognize the right values written with the axes in another order."""
    axes = sample.result.ndim
    for order in permutations(range(axes)) if axes <= MOST_AXES else ():
        if sample.matches(sample.at(sample.oracle.permute(order))):
            return f"they are transposed: the expected values laid out in the axis order {order}"
    return None
