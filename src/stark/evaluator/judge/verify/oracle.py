"""Compares an output with the float64 oracle and decides whether its error is acceptable.

Let e(x) be the relative RMS error of an output x against the oracle, let `eager` be the reference's
own output, and let k be `REFERENCE_FACTOR`. Floor and limit follow from the precision class that the user chose and
from x's type (`core/precision.py`). Then x passes if

- e(x) is at most the budget, min(k * e(eager), the limit), or the floor if that is larger. For k * e(eager) stands
  `MOVES` times what the inputs' own rounding does to the exact result, if that is larger. In a regime there is no limit,
  and looser classes get more (`REGIME_OWN`);
- no element of x has an error above min(k * the largest error of an element of `eager`, 20 * the limit), or
  20 * the budget if that is larger;
- no row, no column and no other slice of x is lost (`lines.py`);
- where magnitudes have a gap, the values below it pass by their own size (`layers.py`);
- x has non-finite mismatches only where `eager` has them, and in few more elements (`STRAY`). A non-finite mismatch is an
  element that differs from the oracle's element, where at least one of the two is not finite.

The rule follows TorchDynamo's `same()`. The limit on the largest error is added because an RMS hides a single wrong element,
the limit on the budget because the error of a badly conditioned reference would otherwise admit any arithmetic.

Integers and booleans pass if all equal the reference's own or all equal the oracle; `exact.py` decides about others.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property, partial
from itertools import chain, starmap

import torch

from stark.core.declared import Tolerance
from stark.core.precision import (
    CLASSES,
    DEFAULT,
    REFERENCE_FACTOR,
    Precision,
    budget_of,
    floor_of,
    limit_of,
    looser,
    rounding_of,
)
from stark.evaluator.judge.verify.errors import (
    Errors,
    as_real,
    each_within,
    measure,
    mismatched,
    pieces,
    scale_of,
)
from stark.evaluator.judge.verify.layers import LARGEST_FACTOR, Layer, layers_of
from stark.evaluator.judge.verify.lines import LEAST_LOST, Lines, lost_lines

MOVES = 16.0
"""An error may always be this multiple of `ExpectedTensor.moves`, within the limit: a kernel that rounds at each step of a
long recurrence is no worse than that, while the library's kernel may happen to be much better."""

REGIME_OWN = 1e-2 / REFERENCE_FACTOR
"""In a regime, the reference's own error counts as many times as a class rounds more coarsely than `reference`, up to this:
inputs that make float32 products worse, such as large scores before a softmax, make the class's products worse in proportion."""

STRAY = 0.01
"""Share of the reference's non-finite mismatches, one at least, that may lie elsewhere: near the limit, rounding decides."""

KERNELBENCH_TOLERANCE = {torch.float16: 1e-2, torch.bfloat16: 1e-2}
"""atol and rtol of KernelBench's `allclose`; other types use 1e-4."""

EXACT = Errors(0.0, 0.0, 0)
"""The errors of what equals the oracle, which are also reported of integers and booleans."""


@dataclass(frozen=True)
class Terms:
    """What outputs are judged by."""

    precision: Precision = DEFAULT
    """The class that the user chose."""

    own: Precision = "reference"
    """The class of the reference's own products, such as `tf32`; `reference` if they are not less exact than float32."""

    bounded: bool = True
    """Whether a budget has a limit. It has none in a regime, whose inputs may be harder than the problem's own."""

    stated: Tolerance | None = None
    """What another benchmark accepts for the problem, which decides nothing here."""


DEFAULT_TERMS = Terms()


@dataclass(frozen=True)
class ExpectedTensor:
    """What an output is compared with: the oracle, and the reference's own output with its errors."""

    oracle: torch.Tensor
    eager: torch.Tensor
    scale: float
    """Root mean square of the oracle, with non-finite elements as zero; 1 if the root mean square is zero."""

    eager_errors: Errors
    terms: Terms = DEFAULT_TERMS
    dtype: str = "float32"
    """The output's type. `eager` is in float32 if that has one byte."""

    moves: float = 0.0
    """The relative RMS by which the exact result moves when each input moves by half a unit in its last place."""

    granted: Mapping[Precision, float] = field(default_factory=dict)
    """A relative RMS error that passes in a class: in a regime, a share of what passes on the problem's own inputs."""

    layered: bool = True
    """Whether layers are judged: in a regime, only those far below, and only if there are such on the problem's own inputs."""

    undecided: torch.Tensor | None = None
    """Which integers or booleans depend on the order of equal inputs, so that any are right."""

    @cached_property
    def is_finite(self) -> bool:
        """Whether the oracle is finite everywhere, and `eager` as finite."""
        finite = (bool(piece.isfinite().all()) for (piece,) in pieces(self.oracle))
        return self.exact or (not self.eager_errors.nonfinite_mismatches and all(finite))

    @cached_property
    def layers(self) -> tuple[Layer, ...]:
        """The values that lie far below others and count by their own size."""
        if self.exact or not self.layered:
            return ()
        bounded = self.terms.bounded
        found = layers_of(self.oracle, self.eager, self.scale, self.dtype, bounded)
        return tuple(each for each in found if bounded or each.is_far_in(self.terms.precision))

    @property
    def parts(self) -> tuple[Part, ...]:
        """What is judged by its own size: the whole, then each layer."""
        return (self, *self.layers)

    @cached_property
    def below(self) -> float:
        """Only values with smaller magnitudes count in the lines of the whole: all, or those that are finite."""
        return math.inf if self.is_finite else sys.float_info.max

    @property
    def exact(self) -> bool:
        """Whether the output holds integers or booleans (`exact.py`)."""
        return not self.eager.is_floating_point()

    def decided(self, result: torch.Tensor) -> torch.Tensor:
        """The result, with the reference's own values where it is `undecided`."""
        if self.undecided is None or result.dtype != self.eager.dtype:
            return result
        return torch.where(self.undecided, self.eager, result)

    @property
    def budget(self) -> float:
        """Largest relative RMS error that passes."""
        return self.budget_in(self.terms.precision)

    def budget_in(self, precision: Precision) -> float:
        """Largest relative RMS error that passes in this class."""
        if self.exact:
            return 0.0
        own = max(self.eager_errors.relative_rms, MOVES * self.moves / REFERENCE_FACTOR)
        if not self.terms.bounded:
            wider = rounding_of(precision, self.dtype) / rounding_of("reference", self.dtype)
            own = max(own, min(wider * own, REGIME_OWN))
        budget = budget_of(precision, self.dtype, own, self._limit_in(precision))
        return max(budget, self.granted.get(precision, 0.0))

    def cap_in(self, precision: Precision) -> float:
        """Largest error of a single element that passes in this class."""
        if self.exact:
            return 0.0
        limit = LARGEST_FACTOR * self._limit_in(precision)
        own = min(REFERENCE_FACTOR * self.eager_errors.largest, limit)
        return max(own, LARGEST_FACTOR * self.budget_in(precision))

    def _limit_in(self, precision: Precision) -> float:
        """The largest budget of a class; of the class of the reference's own products, if that is looser."""
        if not self.terms.bounded:
            return math.inf
        return limit_of(looser(precision, self.terms.own), self.dtype)

    def lost(self, result: torch.Tensor, precision: Precision | None = None) -> list[Lines]:
        """A floating-point result's lost rows, columns and slices, part by part; by default in its class."""
        precision, tensors = precision or self.terms.precision, (result, self.oracle, self.eager)
        found = (lost_lines(tensors, each.budget_in(precision), each.below) for each in self.parts)
        return list(chain.from_iterable(found))

    def in_layers(self, result: torch.Tensor) -> list[tuple[Layer, Errors]]:
        """The errors of each layer."""
        return [
            (layer, measure(result, self.oracle, layer.scale, layer.below)) for layer in self.layers
        ]

    def lost_layers(self, result: torch.Tensor) -> list[tuple[Layer, Errors]]:
        """The layers with too large errors, and these."""
        found = self.in_layers(result)
        return [each for each in found if not _admits(*each, self.terms.precision)]


Part = ExpectedTensor | Layer


@dataclass(frozen=True)
class Comparison:
    """Result of comparing one output tensor with the oracle. Holds no tensors, which may be large."""

    errors: Errors
    reference_errors: Errors
    """Errors of the reference's own output."""

    budget: float
    """Largest allowed relative RMS error."""

    meets: Precision | None
    """The strictest class whose budget the errors are within; None if the output does not pass."""

    allclose: bool
    """Whether it passes and is also close by KernelBench's rule."""

    matched: float | None = None
    """The share of elements within `Terms.stated`; None if there is none."""

    @property
    def passes(self) -> bool:
        """Whether the output is right."""
        return self.meets is not None

    @property
    def passes_as_a_whole(self) -> bool:
        """Whether at most single elements, lines or layers are wrong."""
        return (
            self.errors.nonfinite_mismatches <= self.reference_errors.nonfinite_mismatches
            and self.errors.relative_rms <= self.budget
        )


def harmless(dtype: str) -> float:
    """The error of each element, as a share of the element, with which no line and no layer is lost in any class."""
    return min(floor_of(CLASSES[0], dtype), LEAST_LOST)


def dtype_of(tensor: torch.Tensor) -> str:
    """The type of a tensor's numbers, without a prefix; of complex numbers, the type of their parts."""
    dtype = tensor.dtype.to_real() if tensor.is_complex() else tensor.dtype
    return str(dtype).removeprefix("torch.")


def expect(
    oracle: torch.Tensor, eager: torch.Tensor, terms: Terms = DEFAULT_TERMS
) -> ExpectedTensor:
    """Prepare to compare outputs with `oracle`; `eager` is the reference's own output."""
    dtype = dtype_of(eager)
    oracle, eager = as_real(oracle), as_real(eager)
    if oracle.dtype != eager.dtype and not eager.is_floating_point():
        oracle = eager  # integers of another type are another function's
    scale = scale_of(oracle)
    errors = EXACT if eager is oracle else measure(eager, oracle, scale)
    return ExpectedTensor(oracle, eager, scale, errors, terms, dtype)


def apart(ours: torch.Tensor, theirs: torch.Tensor) -> Errors:
    """By how much a result differs from another of the same shape."""
    ours, theirs = as_real(ours), as_real(theirs)
    return measure(ours, theirs, scale_of(theirs))


def near(ours: torch.Tensor, theirs: torch.Tensor, limit: float) -> bool:
    """Whether two results differ by at most `limit` in relative RMS, or are equal if they are not floating-point."""
    if ours.shape != theirs.shape:
        return False
    errors = apart(ours, theirs)
    limit = limit if as_real(ours).is_floating_point() else 0.0
    return not errors.nonfinite_mismatches and errors.relative_rms <= limit


def compare(result: torch.Tensor, expected: ExpectedTensor) -> Comparison:
    """Compare one output tensor with what is expected."""
    result, allowed = as_real(result), expected.eager_errors
    matched = _matched(result, expected)
    own = expected.eager
    same = result is own or all(torch.equal(*pair) for pair in pieces(result, own))
    if expected.exact:
        meets = CLASSES[0] if same or torch.equal(result, expected.oracle) else None
        return Comparison(EXACT, EXACT, 0.0, meets, same, matched)
    errors = allowed if same else measure(result, expected.oracle, expected.scale)
    harmless_error = same or each_within(result, expected.oracle, harmless(expected.dtype))
    layers = [] if harmless_error else expected.in_layers(result)
    parts: list[tuple[Part, Errors]] = [(expected, errors), *layers]

    def within(precision: Precision) -> bool:
        return all(_admits(*each, precision) for each in parts) and (
            harmless_error or not expected.lost(result, precision)
        )

    stray = errors.nonfinite_mismatches and sum(
        int((mismatched(ours, exact) & ~mismatched(theirs, exact)).sum())
        for ours, theirs, exact in pieces(result, own, expected.oracle)
    )
    most = allowed.nonfinite_mismatches and max(1, STRAY * allowed.nonfinite_mismatches)
    classes = CLASSES[: CLASSES.index(expected.terms.precision) + 1]
    meets = next((each for each in classes if stray <= most and within(each)), None)
    tolerance = KERNELBENCH_TOLERANCE.get(result.dtype, 1e-4)
    allclose = partial(torch.allclose, rtol=tolerance, atol=tolerance, equal_nan=True)
    close = meets is not None and (same or all(starmap(allclose, pieces(result, own))))
    return Comparison(errors, allowed, expected.budget, meets, close, matched)


def _admits(part: Part, errors: Errors, precision: Precision) -> bool:
    """Whether the errors of a part are within the class's budget. A NaN is in none."""
    return errors.relative_rms <= part.budget_in(precision) and (
        errors.largest <= part.cap_in(precision)
    )


def _matched(result: torch.Tensor, expected: ExpectedTensor) -> float | None:
    """The share of elements within the stated tolerance of the reference's own output."""
    if (tolerance := expected.terms.stated) is None:
        return None
    within = sum(
        int(torch.isclose(ours, theirs, tolerance.relative, tolerance.absolute, True).sum())
        for ours, theirs in pieces(result, expected.eager)
    )
    return within / max(result.numel(), 1)
