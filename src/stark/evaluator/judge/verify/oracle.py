"""How wrong an output is, and how wrong it may be.

With e(x) the relative RMS error of x against a float64 oracle, an output passes when e is at most
max(k * e(eager), floor of its type), its largest error is within a cap of the same kind, and NaN and Inf
stand only where the oracle has them. So a candidate may be as inexact as the reference's own precision
and no more. The form follows TorchDynamo's `same()`, with a cap because an RMS hides a single wrong element.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import torch

from stark.evaluator.judge.verify.mismatch import Rule, describe

REFERENCE_FACTOR = 3.0
"""k: how many times the reference's own error is allowed."""

LARGEST_FACTOR = 20.0
"""How far above the allowed RMS error a single element may lie, in units of the output's RMS."""

FLOORS = {
    torch.float64: 1e-12,
    torch.float32: 2e-5,
    torch.float16: 1e-3,
    torch.bfloat16: 4e-3,
}
"""Relative RMS errors that are always allowed: several roundings of the type, far below the next lower type's, and below
what weights of one byte with a scale for every 128 of them bring about (6.8e-3)."""

KERNELBENCH_TOLERANCE = {torch.float16: 1e-2, torch.bfloat16: 1e-2}
"""atol and rtol of KernelBench's allclose; 1e-4 for other types."""

CHUNKS = {"cuda": 1 << 25, "cpu": 1 << 17}
"""Elements compared at a time, so that float64 copies of huge outputs never exist whole; on a CPU they stay in its cache."""


@dataclass(frozen=True)
class Errors:
    """Of one output tensor against the oracle."""

    relative_rms: float
    largest: float
    """The largest |x - o| / (rms(o) + |o|): relative for large elements, to the output's scale for small ones.

    Or a bound of it: see `measure`.
    """

    unlike: int
    """Elements that are not finite where the oracle is, or otherwise than the oracle."""


@dataclass(frozen=True)
class ExpectedErrors:
    """What is measured of an oracle and the reference's own answer; small, so it can be kept where they cannot."""

    scale: float
    """Root mean square of the oracle's finite elements; 1 where they are all zero."""

    eager: Errors
    """Of the reference's own answer."""


@dataclass(frozen=True)
class ExpectedTensor:
    """What one output should be: the oracle, the reference's own answer, and that answer's own error."""

    oracle: torch.Tensor
    eager: torch.Tensor
    errors: ExpectedErrors

    @property
    def scale(self) -> float:
        """The oracle's; see `ExpectedErrors`."""
        return self.errors.scale

    @property
    def eager_errors(self) -> Errors:
        """Of the reference's own answer."""
        return self.errors.eager


@dataclass(frozen=True)
class Comparison:
    """The verdict on one output tensor."""

    errors: Errors
    reference_errors: Errors
    """Of the reference's own answer."""

    budget: float
    """What the relative RMS error may be."""

    cap: float | None
    """What a single element's error may be; None where every element must be equal."""

    allclose: bool
    passes: bool


def as_real(tensor: torch.Tensor) -> torch.Tensor:
    """A tensor of real numbers that can be computed with: a complex one gets a last axis of two, its real and imaginary parts."""
    if tensor.is_floating_point() and tensor.itemsize == 1:
        return tensor.float()  # types of one byte have no arithmetic
    return torch.view_as_real(tensor.resolve_conj()) if tensor.is_complex() else tensor


def expect(
    oracle: torch.Tensor, eager: torch.Tensor, known: ExpectedErrors | None = None
) -> ExpectedTensor:
    """What is needed to judge outputs against `oracle`, the reference itself being `eager`.

    `known` is what an earlier look at the same tensors found, which spares another.
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
    harmless: float = 0.0,
    hopeless: float = math.inf,
) -> Errors:
    """The errors of an output, computed on its device in float64, in chunks.

    Where no element's error can be above `harmless`, the largest is a bound of it, which takes half the time. The rest is
    not looked at once the RMS error is surely above `hopeless`.
    """
    count = max(result.numel(), 1)
    squared_error = largest = 0.0
    unlike = 0
    for ours, theirs in pieces(result, oracle):
        theirs = theirs.double()
        difference = (ours if ours.is_floating_point() else ours.double()) - theirs
        squares = float(torch.dot(difference, difference))
        if not math.isfinite(squares):  # only then does it pay to look for what is not finite
            odd = ~difference.isfinite()
            unlike += int((odd & ~_same(ours, theirs)).sum())
            difference.masked_fill_(odd, 0.0)
            theirs = theirs.masked_fill(odd, 0.0)
            squares = float(torch.dot(difference, difference))
        squared_error += squares
        bound = _largest(difference) / scale if harmless else math.inf
        if not bound <= max(harmless, largest):
            bound = _largest(difference.div_(theirs.abs().add_(scale)))
        largest = max(largest, bound)
        if math.sqrt(squared_error / count) / scale > hopeless:
            break
    return Errors(math.sqrt(squared_error / count) / scale, largest, unlike)


def error_budget(dtype: torch.dtype, reference: Errors) -> float:
    """The largest relative RMS error that passes for an output of this type, given the reference's own errors."""
    floor = FLOORS.get(dtype, FLOORS[torch.float32])
    return max(REFERENCE_FACTOR * reference.relative_rms, floor)


def compare(result: torch.Tensor, expected: ExpectedTensor, briefly: bool = False) -> Comparison:
    """Judge one output tensor of a call. `briefly` looks at it until it cannot pass any more; then its errors are too small."""
    result = as_real(result)
    if not result.is_floating_point():
        return _compare_exactly(result, expected.eager)
    allowed = expected.eager_errors
    budget = error_budget(result.dtype, allowed)
    cap = max(REFERENCE_FACTOR * allowed.largest, LARGEST_FACTOR * budget)
    hopeless = budget if briefly else math.inf
    errors = measure(result, expected.oracle, expected.scale, cap, hopeless)
    # Written so that a NaN fails. Where the reference itself overflows, so may the candidate.
    passes = (
        errors.unlike <= allowed.unlike and errors.relative_rms <= budget and errors.largest <= cap
    )
    if not passes and not briefly:  # then it is said how large the largest is
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
    """Where and how wrong an output that did not pass is, in a few lines.

    `others` are tensors by name that may have been returned instead, such as the inputs.
    """
    oracle = expected.eager if found.cap is None else expected.oracle
    lines = describe(as_real(result), oracle, Rule(expected.scale, found.cap), others)
    errors, cap = found.errors, found.cap
    # Of NaN and infinity there is no error to tell.
    if cap is not None and (errors.relative_rms > found.budget or errors.largest > cap):
        lines.append(
            f"relative RMS error {errors.relative_rms:.3g}, allowed {found.budget:.3g}; "
            f"largest error of an element {errors.largest:.3g}, allowed {cap:.3g}"
        )
    return f"{name}: " + "\n".join(lines)


def _close(ours: torch.Tensor, theirs: torch.Tensor, tolerance: float) -> bool:
    """`torch.allclose` with NaN equal to NaN, several times faster where it holds without one."""
    if theirs.dtype in (torch.float16, torch.bfloat16):
        ours, theirs = ours.float(), theirs.float()
    if _largest(ours - theirs) <= tolerance:  # false for NaN
        return True
    limit = theirs.abs().mul_(tolerance).add_(tolerance)
    if bool(((ours - theirs).abs_() <= limit).all()):
        return True
    return torch.allclose(ours, theirs, rtol=tolerance, atol=tolerance, equal_nan=True)


def _largest(values: torch.Tensor) -> float:
    """The largest absolute value; NaN if there is one."""
    least, most = values.aminmax()
    return max(float(most), -float(least))


def _same(ours: torch.Tensor, theirs: torch.Tensor) -> torch.Tensor:
    return (ours == theirs) | (ours.isnan() & theirs.isnan())


def chunks(*tensors: torch.Tensor) -> Iterator[tuple[torch.Tensor, ...]]:
    """Float64 pieces of tensors of one size, made one at a time."""
    return (tuple(piece.double() for piece in pieces) for pieces in pieces(*tensors))


def pieces(*tensors: torch.Tensor) -> Iterator[tuple[torch.Tensor, ...]]:
    """Pieces of tensors of one size, as they are."""
    flat = [tensor.reshape(-1) for tensor in tensors]
    size = CHUNKS[flat[0].device.type]
    for begin in range(0, flat[0].numel(), size):
        yield tuple(piece[begin : begin + size] for piece in flat)
