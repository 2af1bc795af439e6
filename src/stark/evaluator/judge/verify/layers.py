"""Finds layers of an output: values that lie far below all others, and are judged by their own size.

Scores that are masked by -1e9 have a root mean square beside which no other score counts, in each row and each column.
So where magnitudes have a gap, the values below it are judged as if they were an output of their own. A kernel cannot be
refused for the rounding of the values above the gap: what the reference does not know exactly is no layer, and an error passes
that is as large as its own in a class's rounding.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise

import torch

from stark.core.precision import UNITS, Precision, floor_of, rounding_of
from stark.evaluator.judge.verify.errors import Errors, measure, pieces, scale_of
from stark.evaluator.judge.verify.lines import FACTOR, FEW, share_lost

GAP = 6
"""A gap is so many powers of two, or more, without a value. Other results have values of all sizes."""

KNOWN = 0.1
"""The reference knows the values of a layer if its own relative RMS error is below this. Otherwise they are the rounding of
larger ones, such as those off the diagonal of a matrix times its inverse."""

ABOVE = 8.0
"""Arithmetic at the size of the values above, as in a tanh made of exponentials or a convolution by FFT, may leave an error of so many of their units in
the last place, in float32 or the output's type if that is finer. Where this would lose the layer, as beside -1e9, only arithmetic
with numbers up to 1 may leave such an error, as in a logistic function computed as 1 - p."""

LARGEST_FACTOR = 20.0
"""A single element may always have an error of up to this multiple of the allowed RMS error."""

REGIME_LEAST = 1e-2
"""Relative RMS error of a layer that passes in a regime, whose small values may be inexact."""

EXPONENTS, BIAS, MANTISSA = 2048, 1023, 52
"""Of float64: the number of exponents, the one of 1.0, and bits of the mantissa. Exponent 0 is zero, the last one not finite."""


@dataclass(frozen=True)
class Layer:
    """The values of an output that are smaller than `below`; between these and the others is a gap."""

    below: float
    scale: float
    """Their root mean square."""

    above: float
    """Root mean square of the whole output, or of the layer that has the next larger values too."""

    eager_errors: Errors
    dtype: str
    bounded: bool

    def budget_in(self, precision: Precision) -> float:
        """Largest RMS error, relative to `scale`, that passes in a class."""
        return max(
            floor_of(precision, self.dtype),
            self._factor(precision) * self.eager_errors.relative_rms,
            self._rounding_at(min(self.above, 1.0)),
            0.0 if self.is_far_in(precision) else self._rounding_at(self.above),
            0.0 if self.bounded else REGIME_LEAST,
        )

    def is_far_in(self, precision: Precision) -> bool:
        """Whether arithmetic at the size of the values above would lose the layer."""
        return self._rounding_at(self.above) > share_lost(floor_of(precision, self.dtype))

    def _rounding_at(self, size: float) -> float:
        """The error of arithmetic with numbers of this size, relative to `scale`."""
        return ABOVE * min(UNITS.get(self.dtype, 1.0), UNITS["float32"]) * size / self.scale

    def cap_in(self, precision: Precision) -> float:
        """Largest error of a single element that passes in a class."""
        own = self._factor(precision) * self.eager_errors.largest
        return max(LARGEST_FACTOR * self.budget_in(precision), own)

    def _factor(self, precision: Precision) -> float:
        """How many times the reference's own error passes: as often as a class rounds more coarsely."""
        wider = rounding_of(precision, self.dtype) / rounding_of("reference", self.dtype)
        return max(FACTOR, wider)


def layers_of(
    oracle: torch.Tensor, eager: torch.Tensor, scale: float, dtype: str, bounded: bool
) -> tuple[Layer, ...]:
    """Return an output's layers, the largest values first. `scale` is the root mean square of the whole."""
    kind = torch.finfo(eager.dtype)
    found = []
    for below in ceilings(piece for (piece,) in pieces(oracle)):
        size = scale_of(oracle, below)
        errors = measure(eager, oracle, size, below)
        # Of smaller values, a term may not have the type's full precision.
        if size > kind.tiny / kind.eps and errors.relative_rms < KNOWN:
            found.append(Layer(below, size, scale, errors, dtype, bounded))
        scale = size
    return tuple(found)


def ceilings(values: Iterable[torch.Tensor]) -> list[float]:
    """Return where layers with `FEW` values end, in descending order: at the smallest power of two above each gap."""
    counts = [0] * EXPONENTS
    for each in values:
        exponents = each.double().view(torch.int64).bitwise_right_shift(MANTISSA)
        new = exponents.bitwise_and_(EXPONENTS - 1).bincount(minlength=EXPONENTS).tolist()
        counts = [old + more for old, more in zip(counts, new, strict=True)]
    filled = [exponent for exponent in range(1, EXPONENTS - 1) if counts[exponent]]
    return [
        math.ldexp(1.0, upper - BIAS)
        for lower, upper in reversed(list(pairwise(filled)))
        if upper - lower > GAP and sum(counts[1 : lower + 1]) >= FEW
    ]
