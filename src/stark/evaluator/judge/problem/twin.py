"""Computes the oracle (the reference's outputs in float64), at once or in slices of the first axis.

Slices are used only if the reference, in its own precision, returns the same values for the slices as
for the whole inputs.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch

from stark.core.errors import ProblemError
from stark.evaluator.candidate.program import says_out_of_memory
from stark.evaluator.judge.problem.inputs import Drawn, Program
from stark.evaluator.judge.processes.failures import ChildFailed, ReferenceDied
from stark.evaluator.judge.verify.oracle import FLOORS, as_real, expect

WHOLE = 1
SLICES = (8, 64)
"""Numbers of slices, tried in this order until the computation fits into memory."""


@dataclass(frozen=True)
class Twin:
    """Result of running the reference in float64."""

    outputs: list[torch.Tensor] | None
    """None if there is no oracle."""

    fits: bool = True
    """False if memory did not suffice."""

    slices: int = 1
    """Number of slices that the inputs were cut into; 1 if they were not cut."""


def run_twin(
    program: Program, drawn: Drawn, eager: list[torch.Tensor], save_memory: bool, verified: int = 1
) -> Twin:
    """Compute the oracle for these inputs; `eager` holds the reference's own outputs.

    Without slices, float64 takes twice the memory of float32 inputs, outputs and intermediates, so
    with `save_memory` slices are tried first. `verified` is a number of slices that is not
    checked, because it was found to give the same values as the whole inputs for earlier inputs of this kind.
    """
    fits = True
    for slices in (*SLICES, WHOLE) if save_memory else (WHOLE, *SLICES):
        outputs, enough = _compute(program, drawn, eager, slices, slices == verified)
        if outputs is not None:
            return Twin(outputs, slices=slices)
        fits &= enough
        if enough and slices == WHOLE:
            break  # the reference does not run in float64
    return Twin(None, fits)


def _compute(
    program: Program, drawn: Drawn, eager: list[torch.Tensor], slices: int, verified: bool
) -> tuple[list[torch.Tensor] | None, bool]:
    """Compute the oracle in `slices` slices. Return the oracle or None, and whether memory sufficed."""
    try:
        if slices == WHOLE:
            outputs = program.run_float64(drawn, program.in_float64())
            return (outputs if _shapes(outputs) == _shapes(eager) else None), True
        return _sliced(program, drawn, eager, slices, verified), True
    except (Exception, SystemExit) as error:
        # The user's code may raise anything in a type or on a size that it was not written for.
        fits = not is_out_of_memory(error)
        if fits and not program.constructs_twin:
            program.constructs_twin = True
            found = _compute(program, drawn, eager, slices, verified)
            program.constructs_twin = found[0] is not None
            return found
    if not fits and program.device.type == "cuda":
        torch.cuda.empty_cache()  # only now: the frames of the error kept tensors alive
    return None, fits


def _sliced(
    program: Program, drawn: Drawn, eager: list[torch.Tensor], slices: int, verified: bool
) -> list[torch.Tensor] | None:
    """Compute the oracle slice by slice, or return None if the first axis is not a batch axis."""
    length = len(eager[0]) if eager[0].dim() else 0
    batched = [t.dim() > 0 and len(t) == length for t in drawn.tensors]
    if program.changes or length < 2 or not any(batched):
        return None
    if any(t.dim() == 0 or len(t) != length for t in eager):
        return None
    twin = program.in_float64()
    oracle = [torch.empty(t.shape, dtype=_oracle_dtype(t), device=t.device) for t in eager]
    for span in _spans(length, slices):
        tensors = [t[span] if cut else t for t, cut in zip(drawn.tensors, batched, strict=True)]
        part = Drawn(tensors, drawn.arguments)
        wanted = [t[span] for t in eager]
        if not verified and not _agrees(program.run(part), wanted):
            return None
        found = program.run_float64(part, twin)
        if _shapes(found) != _shapes(wanted):
            return None
        for whole, piece in zip(oracle, found, strict=True):
            whole[span] = piece
    return oracle


def _spans(length: int, slices: int) -> Iterator[slice]:
    step = -(-length // slices)
    return (slice(begin, begin + step) for begin in range(0, length, step))


def _agrees(found: list[torch.Tensor], wanted: list[torch.Tensor]) -> bool:
    """Whether the results for a slice equal, up to rounding, this slice of the results for the whole inputs."""
    if _shapes(found) != _shapes(wanted):
        return False
    for one, other in zip(map(as_real, found), map(as_real, wanted), strict=True):
        if not one.is_floating_point():
            if not torch.equal(one, other):
                return False
            continue
        errors = expect(other, one).eager_errors
        if errors.nonfinite_mismatches or errors.relative_rms > FLOORS.get(
            one.dtype, FLOORS[torch.float32]
        ):
            return False
    return True


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error, or the cause of a ProblemError or ReferenceDied, is a lack of memory."""
    if isinstance(error, ProblemError | ReferenceDied) and error.__cause__ is not None:
        return is_out_of_memory(error.__cause__)
    if isinstance(error, ChildFailed):
        return error.kind == "out_of_memory"
    return says_out_of_memory(error)


def _oracle_dtype(tensor: torch.Tensor) -> torch.dtype:
    if tensor.is_complex():
        return torch.complex128
    return torch.float64 if tensor.is_floating_point() else tensor.dtype


def _shapes(tensors: list[torch.Tensor]) -> list[tuple[torch.Size, bool]]:
    """Return each tensor's shape, and whether it is complex. The precision must change neither."""
    return [(tensor.shape, tensor.is_complex()) for tensor in tensors]
