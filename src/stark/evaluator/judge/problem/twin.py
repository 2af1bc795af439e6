"""The oracle: what the reference computes in float64, at once or, where that does not fit, in slices of the first axis.

Slices are only used where the reference makes the same of them in its own precision as of the whole. Knows no candidate.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch

from stark.core.errors import ProblemError
from stark.evaluator.candidate.memory_errors import is_out_of_memory
from stark.evaluator.judge.problem.inputs import Drawn, Program
from stark.evaluator.judge.processes.failures import ChildFailed
from stark.evaluator.judge.verify.oracle import FLOORS, as_real, expect

WHOLE = 1
SLICES = (8, 64)
"""Into how many an input is cut, one after the other, until one fits."""


@dataclass(frozen=True)
class Twin:
    """What came of running the reference in float64."""

    outputs: list[torch.Tensor] | None
    """None where there is no oracle."""

    fits: bool = True
    """Whether memory sufficed for one."""

    slices: int = 1
    """Into how many the inputs were cut."""


def run_twin(
    program: Program, drawn: Drawn, eager: list[torch.Tensor], sparing: bool, agreed: int = 1
) -> Twin:
    """The oracle for these inputs, of which the reference itself makes `eager`.

    A whole one takes twice the memory of inputs, outputs and all between; slices come first where that is to be spared.
    Slices of which there are `agreed` were found to agree with the whole before, on inputs of this kind, and are not looked at
    again.
    """
    fits = True
    for slices in (*SLICES, WHOLE) if sparing else (WHOLE, *SLICES):
        outputs, enough = _attempt(program, drawn, eager, slices, slices == agreed)
        if outputs is not None:
            return Twin(outputs, slices=slices)
        fits &= enough
        if enough and slices == WHOLE:
            break  # it does not run in float64
    return Twin(None, fits)


def _attempt(
    program: Program, drawn: Drawn, eager: list[torch.Tensor], slices: int, agreed: bool
) -> tuple[list[torch.Tensor] | None, bool]:
    """The oracle in so many slices, or None; and whether memory sufficed."""
    try:
        if slices == WHOLE:
            outputs = program.run_float64(drawn, program.in_float64())
            return (outputs if _forms(outputs) == _forms(eager) else None), True
        return _sliced(program, drawn, eager, slices, agreed), True
    except (Exception, SystemExit) as error:
        # The boundary: the user's code, in a type or on a size that it was not written for.
        fits = not ran_out(error)
    if not fits and program.device.type == "cuda":
        torch.cuda.empty_cache()  # after the error, whose frames held what was made until then
    return None, fits


def _sliced(
    program: Program, drawn: Drawn, eager: list[torch.Tensor], slices: int, agreed: bool
) -> list[torch.Tensor] | None:
    """The oracle slice by slice, or None where the reference does not treat the first axis as a batch."""
    length = len(eager[0]) if eager[0].dim() else 0
    batched = [t.dim() > 0 and len(t) == length for t in drawn.tensors]
    if program.changes or length < 2 or not any(batched):
        return None
    if any(t.dim() == 0 or len(t) != length for t in eager):
        return None
    twin = program.in_float64()
    oracle = [torch.empty(t.shape, dtype=_wide(t), device=t.device) for t in eager]
    for span in _spans(length, slices):
        tensors = [t[span] if cut else t for t, cut in zip(drawn.tensors, batched, strict=True)]
        part = Drawn(tensors, drawn.arguments)
        wanted = [t[span] for t in eager]
        if not agreed and not _agrees(program.run(part), wanted):
            return None
        found = program.run_float64(part, twin)
        if _forms(found) != _forms(wanted):
            return None
        for whole, piece in zip(oracle, found, strict=True):
            whole[span] = piece
    return oracle


def _spans(length: int, slices: int) -> Iterator[slice]:
    step = -(-length // slices)
    return (slice(begin, begin + step) for begin in range(0, length, step))


def _agrees(found: list[torch.Tensor], wanted: list[torch.Tensor]) -> bool:
    """Whether results of a slice are those of the whole up to rounding, the only thing that slicing may change."""
    if _forms(found) != _forms(wanted):
        return False
    for one, other in zip(map(as_real, found), map(as_real, wanted), strict=True):
        if not one.is_floating_point():
            if not torch.equal(one, other):
                return False
            continue
        errors = expect(other, one).eager_errors
        if errors.unlike or errors.relative_rms > FLOORS.get(one.dtype, FLOORS[torch.float32]):
            return False
    return True


def ran_out(error: BaseException) -> bool:
    """Whether an error, or what it blames, says that memory did not suffice."""
    if isinstance(error, ProblemError) and error.__cause__ is not None:
        return ran_out(error.__cause__)
    if isinstance(error, ChildFailed):
        return error.kind == "out_of_memory"
    return is_out_of_memory(error)


def _wide(tensor: torch.Tensor) -> torch.dtype:
    if tensor.is_complex():
        return torch.complex128
    return torch.float64 if tensor.is_floating_point() else tensor.dtype


def _forms(tensors: list[torch.Tensor]) -> list[tuple[torch.Size, bool]]:
    """What must agree between outputs in different precisions."""
    return [(tensor.shape, tensor.is_complex()) for tensor in tensors]
