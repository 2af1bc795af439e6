"""Recognizes patterns in wrong values: a constant, another tensor, or transposed, scaled, shifted or rounded values.

All checks look at a sample of the elements, so their cost does not grow with the output. A pattern is reported only if
it leaves little of the error, so that a small error does not fit every pattern.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import permutations

import torch

NEARLY_ALL = 0.95
"""Share of the sample that must match a pattern."""

FEW = 8
"""A match on fewer elements, or on fewer distinct values, may be chance."""

LITTLE = 0.1
"""A pattern must leave at most this share of the error."""

SMOOTH = 0.99
"""Least correlation of the errors of neighbours, sorted by a value, for the error to count as a function of the value."""

LONG = 512
"""A function of each element is recognized from at least this many distinct values."""

BALANCED = 0.35
"""Rounding errors have a mean below this share of their RMS."""

MOST_AXES = 5
"""Outputs with more axes have too many axis orders to try."""

SMALLEST_ERROR = 1e-300
"""The error assigned to integers that differ but are equal in float64."""

NARROW = {"bfloat16": torch.bfloat16, "float16": torch.float16}
"""Narrower types, in the order in which they are tried.

The order matters: nearly every bfloat16 number of usual magnitude is also a float16 number.
"""

ROUNDING = {
    7e-5: "the error is spread out and small, which is typical of fast approximations or another summation order",
    8e-4: "the error is spread out, and its size is typical of rounding to TF32 or float16, or of rounding operands of "
    "long sums to bfloat16, or of weights kept in a narrow type",
    6e-3: "the error is spread out, and its size is typical of rounding to bfloat16, or of weights kept in a narrow type",
}
"""What usually causes a relative RMS error below each bound."""

SUMS = "the error is spread out, and its size is typical of sums that are kept in {}"
"""What usually causes a larger error in a narrow type, up to 5 %."""


@dataclass(frozen=True)
class Rule:
    """An element is wrong if its error, relative to its expected magnitude plus `scale`, exceeds `cap`."""

    scale: float = 1.0
    cap: float = 0.0

    def error(self, ours: torch.Tensor, theirs: torch.Tensor) -> torch.Tensor:
        """Return each element's error: 0 for equal values or two NaNs, infinite for other non-finite pairs."""
        same = (ours == theirs) | (ours.isnan() & theirs.isnan())
        theirs = theirs.double()
        apart = (ours.double() - theirs).abs_().div_(theirs.abs().add_(self.scale))
        apart = apart.nan_to_num_(nan=math.inf, posinf=math.inf)
        return apart.clamp_(min=SMALLEST_ERROR).masked_fill_(same, 0.0)


@dataclass(frozen=True)
class Sample:
    """Sampled elements of an output, with the result and the oracle to compare."""

    result: torch.Tensor
    oracle: torch.Tensor
    places: torch.Tensor
    """Flat indices of the sampled elements, in row-major order."""

    rule: Rule
    """Values match if their error is not wrong."""

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

    def matches(self, other: torch.Tensor, chosen: torch.Tensor | None = None) -> bool:
        """Whether nearly all sampled values, or those `chosen`, match `other`, which explains the error and is not constant."""
        got, expected = self.got, self.expected
        if chosen is not None:
            got, expected, other = got[chosen], expected[chosen], other[chosen]
        if min(len(got), len(other.unique()), len(got.unique())) < FEW:
            return False
        return self.fits(got, expected, other)

    def fits(self, got: torch.Tensor, expected: torch.Tensor, found: torch.Tensor) -> bool:
        """Whether nearly all values are those that a pattern makes of the expected ones, and the pattern explains the error."""
        near = self.rule.error(got, found) <= self.rule.cap
        left, error = (
            float((got - each).abs().flatten().quantile(NEARLY_ALL)) for each in (found, expected)
        )
        return bool(near.double().mean() >= NEARLY_ALL) and error > 0 and left <= LITTLE * error


def inputs_like(
    sample: Sample, others: Mapping[str, torch.Tensor]
) -> Iterator[tuple[str, torch.Tensor]]:
    """Those of the other tensors that are inputs of the result's shape, with their short names."""
    for name, other in others.items():
        if name.startswith("input") and other.shape == sample.result.shape:
            yield name.removesuffix(" as it was passed"), other


def value_pattern(sample: Sample, others: Mapping[str, torch.Tensor]) -> str | None:
    """Describe the simplest pattern of at least `FEW` values, or return None. `others` may have been returned by mistake."""
    if sample.result.dtype == torch.bool:
        return None
    distinct = sample.got.unique()
    if len(distinct) == 1 and len(sample.got) >= FEW:
        return f"all of them are {float(distinct[0]) + 0.0:.6g}"
    for name, other in others.items() if len(sample.got) >= FEW else ():
        fits = other.numel() == sample.result.numel() and not other.is_complex()
        if fits and sample.matches(sample.at(other.reshape(sample.result.shape))):
            return f"they equal {name}"
    if not sample.result.is_floating_point():
        return integer_pattern(sample, others)
    if len(distinct) == 2:
        return f"all of them are {float(distinct[0]):.6g} or {float(distinct[1]):.6g}"
    sizes = {size for each in (sample.result, *others.values()) for size in each.shape}
    return (
        _scaled(sample, sizes) or _transposed(sample) or _moved(sample) or _by_input(sample, others)
    )


def integer_pattern(sample: Sample, others: Mapping[str, torch.Tensor]) -> str | None:
    """Recognize ties, rounding, wrapping, saturation and missing offsets of integers."""
    if _tied(sample, others):
        return "they point to values equal to those expected: ties are resolved in another way"
    limits = torch.iinfo(sample.result.dtype)
    if bool(((sample.expected == limits.min) | (sample.expected == limits.max)).all()):
        return "they are wrong where the expected value is the type's limit: they wrap around instead of being clamped"
    apart = sample.got - sample.expected
    if bool((apart.abs() == 1).all()):
        cut = bool((sample.got.abs() < sample.expected.abs()).all())
        way = "truncated toward zero instead of rounded" if cut else "another way of rounding"
        return f"each differs by 1 from the expected value: {way}, or an index that is off by one"
    for bits in (32, 16, 8):
        if bool(((apart % 2.0**bits == 0) & (apart != 0)).all()):
            return f"they wrap around at {bits} bits instead of being clamped or kept wider"
    distinct = sample.got.unique()
    if len(distinct) == 2 and len(sample.got) >= FEW:
        low, high = (int(value) for value in distinct)
        return f"all of them are {low} or {high}: clamped to a narrower type"
    if len(apart) < FEW:
        return None
    step = int(torch.gcd(apart.long(), apart.long().roll(1)).unique().amin())
    if step > 2 and bool((apart % step == 0).all()):
        return f"each differs by a multiple of {step}: the offset of a block is missing or wrong"
    return _scaled(sample, set()) or _transposed(sample) or _moved(sample)


def precision(sample: Sample) -> str | None:
    """Say what rounding or other imprecision explains the error, or return None."""
    if not sample.result.is_floating_point():
        return None
    if sample.result.dtype in (torch.float32, torch.float64) and len(sample.got.unique()) >= FEW:
        for name, narrow in NARROW.items():
            if torch.equal(sample.got.to(narrow).double(), sample.got):
                return f"every value is exactly a {name} number: the result was rounded to {name}"
    error = sample.got - sample.expected
    size = float(error.square().mean().sqrt())
    if size == 0 or abs(float(error.mean())) > BALANCED * size:
        return None  # rounding errors have both signs
    if float((error.abs() < 0.01 * size).double().mean()) > 0.5:
        return None  # most elements are exact
    known = [*ROUNDING.items()]
    known += [(0.05, SUMS.format(name)) for name in NARROW if NARROW[name] == sample.result.dtype]
    return next((words for bound, words in known if size / sample.rule.scale < bound), None)


def function_of(sample: Sample, others: Mapping[str, torch.Tensor]) -> str | None:
    """Recognize an error that is a function of the expected value or of an input's value."""
    inputs = inputs_like(sample, others)
    candidates = {"the expected value": sample.expected}
    candidates |= {name: sample.at(each) for name, each in inputs if each.is_floating_point()}
    error = sample.got - sample.expected
    for name, values in candidates.items():
        if len(values.unique()) < LONG or float(error.abs().amax()) == 0:
            continue
        ordered = error[values.argsort()]
        if float(torch.stack([ordered[:-1], ordered[1:]]).corrcoef()[0, 1]) > SMOOTH:
            return (
                f"the error is a function of {name}: an approximation that is not accurate enough, or another function of "
                "each element"
            )
    return None


def _scaled(sample: Sample, sizes: Collection[int]) -> str | None:
    """Recognize a multiple of the expected values, perhaps by an axis's length in `sizes`, or these plus a constant."""
    large = sample.expected.abs() > 0.1 * sample.rule.scale
    factor = float((sample.got / sample.expected)[large].median()) if large.any() else 0.0
    if sample.matches(factor * sample.expected):
        if abs(factor + 1) < 1e-3:
            return "their sign is flipped"
        return f"got = {factor:.6g} * expected{named(factor, sizes)}"
    offset = float((sample.got - sample.expected).median())
    if sample.matches(sample.expected + offset):
        return f"got = expected {'+' if offset > 0 else '-'} {abs(offset):.6g}"
    return None


def named(factor: float, sizes: Collection[int]) -> str:
    """Explain a factor by the length of an axis, or return an empty text."""
    for size in sorted(sizes):
        n = float(size)
        for value, words in (
            (n, "a sum instead of a mean"),
            (1 / n, "a mean instead of a sum"),
            (n**0.5, "a factor 1 / sqrt(n) is missing"),
            (n**-0.5, "a factor 1 / sqrt(n) too many"),
            (n / (n - 1 or 2), "division by n - 1 instead of n"),
            ((n - 1) / n, "division by n instead of n - 1"),
            ((n / (n - 1 or 2)) ** 0.5, "division by n instead of n - 1, under a root"),
            (((n - 1) / n) ** 0.5, "division by n - 1 instead of n, under a root"),
        ):
            exact = min(1e-4, 0.1 / n**2 if abs(value - 1) < 0.5 else 1.0)
            if n > (7 if abs(value - 1) < 0.6 else 2) and abs(factor / value - 1) < exact:
                return f": {words}, with n = {size}?"
    return ""


def _transposed(sample: Sample) -> str | None:
    """Recognize the right values written with the axes in another order."""
    axes = sample.result.ndim
    for order in permutations(range(axes)) if axes <= MOST_AXES else ():
        if sample.matches(sample.at(sample.oracle.permute(order).reshape(sample.oracle.shape))):
            return f"they are transposed: the expected values laid out in the axis order {order}"
    return None


def _moved(sample: Sample) -> str | None:
    """Recognize the right values at shifted or reversed places."""
    places = list(torch.unravel_index(sample.places, sample.result.shape))
    names = [axis_name(axis, sample.result.ndim) for axis in range(sample.result.ndim)]
    for axis, length in enumerate(sample.result.shape):
        if length < 4:
            continue

        def read(places_there: torch.Tensor, axis: int = axis) -> torch.Tensor:
            return sample.oracle[(*places[:axis], places_there, *places[axis + 1 :])].double()

        here = places[axis]
        if sample.matches(read(length - 1 - here)):
            return f"the {names[axis]}s are in reverse order"
        if length % 2 == 0 and sample.matches(read((here + length // 2) % length)):
            return f"the two halves of the {names[axis]}s are swapped"
        for step in (1, -1, 2, -2):
            inside = (here + step >= 0) & (here + step < length)
            there = (here + step).clamp(0, length - 1)
            if inside.double().mean() > 0.5 and sample.matches(read(there), inside):
                return (
                    f"they are shifted: each has the expected value of the {names[axis]} "
                    f"{abs(step)} {'later' if step > 0 else 'earlier'}"
                )
    return None


def _by_input(sample: Sample, others: Mapping[str, torch.Tensor]) -> str | None:
    """Recognize a multiple of an input."""
    for name, other in inputs_like(sample, others):
        values = sample.at(other)
        ratios = (sample.got / values)[values != 0]
        if len(ratios) < FEW:
            continue
        factor = float(ratios.median())
        if sample.matches(factor * values):
            return f"got = {factor:.6g} * {name}"
        if sample.matches(factor * values.abs()):
            return f"got = {factor:.6g} * the magnitude of {name}"
    return None


def _tied(sample: Sample, others: Mapping[str, torch.Tensor]) -> bool:
    """Whether a result of indices points to the same values of an input as the expected indices."""
    for name, other in others.items():
        if not name.startswith("input") or other.ndim != sample.result.ndim + 1:
            continue
        for axis in range(other.ndim):
            if (*other.shape[:axis], *other.shape[axis + 1 :]) != tuple(sample.result.shape):
                continue
            both = torch.stack([sample.got.long(), sample.expected.long()])
            if int(both.min()) < 0 or int(both.max()) >= other.shape[axis]:
                continue
            places = list(torch.unravel_index(sample.places, sample.result.shape))
            ours, theirs = (other[(*places[:axis], at, *places[axis:])] for at in both)
            if torch.equal(ours, theirs):
                return True
    return False


def axis_name(axis: int, axes: int) -> str:
    """Name what an index of an axis selects."""
    if axes == 1:
        return "element"
    if axis >= axes - 2:
        return "row" if axis == axes - 2 else "column"
    return f"axis-{axis} slice"
