"""Compares an output with the float64 oracle and decides whether its error is acceptable.

Let e(x) be the relative RMS error of an output x against the oracle, let `eager` be the reference's
own output, and let k be `REFERENCE_FACTOR`. Then x passes if

- e(x) is at most the budget, max(k * e(eager), the floor of x's type);
- no element of x has an error above max(k * the largest error of an element of `eager`, 20 * the budget);
- x has at most as many non-finite mismatches as `eager`. A non-finite mismatch is an element that differs
  from the oracle's element, where at least one of the two is not finite.

A candidate's error may therefore be up to k times the reference's, or up to the floor if that is larger.
The rule follows TorchDynamo's `same()`. The limit on the largest error is added because an RMS hides a
single wrong element.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import torch

from stark.evaluator.judge.verify.mismatch import Rule, describe

REFERENCE_FACTOR = 3.0
"""k: the allowed error as a multiple of the reference's own error."""

LARGEST_FACTOR = 20.0
"""A single element may always have an error of up to this multiple of the allowed RMS error."""

FLOORS = {
    torch.float64: 1e-12,
    torch.float32: 2e-5,
    torch.float16: 1e-3,
    torch.bfloat16: 4e-3,
}
"""Relative RMS error that is always allowed, by type.

The RMS of one rounding is about 2.5e-8 in float32, 2e-4 in float16 and 1.7e-3 in bfloat16. The floors
therefore equal about 800 roundings for float32, 5 for float16 and 2 for bfloat16. Each floor is below the error
of one rounding to the next less precise type, and below the error (6.8e-3) of rounding weights to one
byte each with one scale per 128 weights.
"""

KERNELBENCH_TOLERANCE = {torch.float16: 1e-2, torch.bfloat16: 1e-2}
"""atol and rtol of KernelBench's `allclose`; other types use 1e-4."""

CHUNKS = {"cuda": 1 << 25, "cpu": 1 << 17}
"""Number of elements compared at a time.

Comparing in chunks avoids float64 copies of whole tensors. On a CPU, a chunk of this size fits into the cache.
"""


@dataclass(frozen=True)
class Errors:
    """Errors of one output tensor against the oracle."""

    relative_rms: float
    largest: float
    """Largest |x - o| / (rms(o) + |o|), or an upper bound (see `measure`); o is the oracle.

    The error of a large element is thus relative to the element, that of a small element to rms(o).
    """

    nonfinite_mismatches: int
    """Number of elements that differ from the oracle's and are not finite in the output, the oracle or both.

    For types that are compared exactly, the number of all elements that differ from the oracle's.
    """


@dataclass(frozen=True)
class ExpectedErrors:
    """Scale of an oracle and errors of the reference's own output.

    Both are kept even if the tensors are freed.
    """

    scale: float
    """Root mean square of the oracle, with non-finite elements as zero; 1 if the root mean square is zero."""

    eager: Errors
    """Errors of the reference's own output."""


@dataclass(frozen=True)
class ExpectedTensor:
    """What outputs are compared with: the oracle, and the reference's own output with its errors."""

    oracle: torch.Tensor
    eager: torch.Tensor
    errors: ExpectedErrors

    @property
    def scale(self) -> float:
        """Root mean square of the oracle; see `ExpectedErrors.scale`."""
        return self.errors.scale

    @property
    def eager_errors(self) -> Errors:
        """Errors of the reference's own output."""
        return self.errors.eager


@dataclass(frozen=True)
class Comparison:
    """Result of comparing one output tensor with the oracle."""

    errors: Errors
    reference_errors: Errors
    """Errors of the reference's own output."""

    budget: float
    """Largest allowed relative RMS error."""

    cap: float | None
    """Largest allowed error of a single element; None if every element must be equal."""

    allclose: bool
    passes: bool


def as_real(tensor: torch.Tensor) -> torch.Tensor:
    """Return a real tensor that supports arithmetic.

    A complex tensor gets a last axis of size 2 for real and imaginary parts. One-byte floats become
    float32.
    """
    if tensor.is_floating_point() and tensor.itemsize == 1:
        return tensor.float()  # one-byte floats have no arithmetic
    return torch.view_as_real(tensor.resolve_conj()) if tensor.is_complex() else tensor


def expect(
    oracle: torch.Tensor, eager: torch.Tensor, known: ExpectedErrors | None = None
) -> ExpectedTensor:
    """Prepare to compare outputs with `oracle`; `eager` is the reference's own output.

    `known` holds the errors measured earlier on the same tensors; they are not measured again.
    """
    oracle, eager = as_real(oracle), as_real(eager)
    if known is None:
        scale = _scale(oracle)
        known = ExpectedErrors(scale, measure(eager, oracle, scale))
    return ExpectedTensor(oracle, eager, known)


def _scale(oracle: torch.Tensor) -> float:
    squares = 0.0
    for (piece,) in chunks(oracle):
        found = float(torch.dot(piece, piece))
        if not math.isfinite(found):
            found = float(torch.where(piece.isfinite(), piece * piece, 0.0).sum())
        squares += found
    return math.sqrt(squares / max(oracle.numel(), 1)) or 1.0


def measure(
    result: torch.Tensor,
    oracle: torch.Tensor,
    scale: float,
    bound_below: float = 0.0,
    stop_above: float = math.inf,
) -> Errors:
    """Measure the errors of an output in float64, chunk by chunk, on its device.

    If no element's error can exceed `bound_below`, `largest` is an upper bound instead of the exact
    value; this halves the time. Measuring stops once the RMS error certainly exceeds
    `stop_above`; the errors reported then leave out the remaining chunks.
    """
    count = max(result.numel(), 1)
    squared_error = largest = 0.0
    nonfinite_mismatches = 0
    for ours, theirs in pieces(result, oracle):
        theirs = theirs.double()
        difference = (ours if ours.is_floating_point() else ours.double()) - theirs
        squares = float(torch.dot(difference, difference))
        if not math.isfinite(squares):  # searching for non-finite elements pays only now
            odd = ~difference.isfinite()
            nonfinite_mismatches += int((odd & ~_same(ours, theirs)).sum())
            difference.masked_fill_(odd, 0.0)
            theirs = theirs.masked_fill(odd, 0.0)
            squares = float(torch.dot(difference, difference))
        squared_error += squares
        bound = _largest(difference) / scale if bound_below else math.inf
        if not bound <= max(bound_below, largest):
            bound = _largest(difference.div_(theirs.abs().add_(scale)))
        largest = max(largest, bound)
        if math.sqrt(squared_error / count) / scale > stop_above:
            break
    return Errors(math.sqrt(squared_error / count) / scale, largest, nonfinite_mismatches)


def error_budget(dtype: torch.dtype, reference: Errors) -> float:
    """Return the largest relative RMS error that passes, given an output's type and the reference's errors."""
    floor = FLOORS.get(dtype, FLOORS[torch.float32])
    return max(REFERENCE_FACTOR * reference.relative_rms, floor)


def compare(result: torch.Tensor, expected: ExpectedTensor, briefly: bool = False) -> Comparison:
    """Compare one output tensor with what is expected.

    With `briefly`, the comparison stops once the output cannot pass; the errors reported then leave out
    the remaining chunks.
    """
    result = as_real(result)
    if not result.is_floating_point():
        return _compare_exactly(result, expected.eager)
    allowed = expected.eager_errors
    budget = error_budget(result.dtype, allowed)
    cap = max(REFERENCE_FACTOR * allowed.largest, LARGEST_FACTOR * budget)
    stop_above = budget if briefly else math.inf
    errors = measure(result, expected.oracle, expected.scale, cap, stop_above)
    # A NaN fails every `<=`. The candidate may overflow in as many elements as the reference does.
    passes = (
        errors.nonfinite_mismatches <= allowed.nonfinite_mismatches
        and errors.relative_rms <= budget
        and errors.largest <= cap
    )
    if not passes and not briefly:  # the report needs the exact largest error
        errors = measure(result, expected.oracle, expected.scale)
    tolerance = KERNELBENCH_TOLERANCE.get(result.dtype, 1e-4)
    close = (passes or not briefly) and all(
        _close(ours, theirs, tolerance) for ours, theirs in pieces(result, expected.eager)
    )
    return Comparison(errors, allowed, budget, cap, close, passes)


def _compare_exactly(result: torch.Tensor, eager: torch.Tensor) -> Comparison:
    count = int((result != eager).sum())
    share = count / max(result.numel(), 1)
    exact = Errors(0.0, 0.0, 0)
    return Comparison(Errors(share, share, count), exact, 0.0, None, count == 0, count == 0)


def fault(
    name: str,
    result: torch.Tensor,
    expected: ExpectedTensor,
    found: Comparison,
    others: Mapping[str, torch.Tensor],
) -> str:
    """Describe in a few lines where and how an output that failed is wrong.

    `others` maps names to tensors that may have been returned by mistake, such as the inputs.
    """
    oracle = expected.eager if found.cap is None else expected.oracle
    lines = describe(as_real(result), oracle, Rule(expected.scale, found.cap), others)
    errors, cap = found.errors, found.cap
    # NaN and infinity have no meaningful error to report.
    if cap is not None and (errors.relative_rms > found.budget or errors.largest > cap):
        lines.append(
            f"relative RMS error {errors.relative_rms:.3g}, allowed {found.budget:.3g}; "
            f"largest error of a single element {errors.largest:.3g}, allowed {cap:.3g}"
        )
    return f"{name}: " + "\n".join(lines)


def _close(ours: torch.Tensor, theirs: torch.Tensor, tolerance: float) -> bool:
    """Like `torch.allclose` with `equal_nan`, but several times faster for most tensors that are close."""
    if theirs.dtype in (torch.float16, torch.bfloat16):
        ours, theirs = ours.float(), theirs.float()
    if _largest(ours - theirs) <= tolerance:  # false for NaN
        return True
    limit = theirs.abs().mul_(tolerance).add_(tolerance)
    if bool(((ours - theirs).abs_() <= limit).all()):
        return True
    return torch.allclose(ours, theirs, rtol=tolerance, atol=tolerance, equal_nan=True)


def _largest(values: torch.Tensor) -> float:
    """Return the largest absolute value, or NaN if any value is NaN."""
    least, most = values.aminmax()
    return max(float(most), -float(least))


def _same(ours: torch.Tensor, theirs: torch.Tensor) -> torch.Tensor:
    return (ours == theirs) | (ours.isnan() & theirs.isnan())


def chunks(*tensors: torch.Tensor) -> Iterator[tuple[torch.Tensor, ...]]:
    """Like `pieces`, but convert each piece to float64 when it is yielded."""
    return (tuple(piece.double() for piece in pieces) for pieces in pieces(*tensors))


def pieces(*tensors: torch.Tensor) -> Iterator[tuple[torch.Tensor, ...]]:
    """Yield matching pieces of tensors of equal size, without conversion."""
    flat = [tensor.reshape(-1) for tensor in tensors]
    size = CHUNKS[flat[0].device.type]
    for begin in range(0, flat[0].numel(), size):
        yield tuple(piece[begin : begin + size] for piece in flat)
