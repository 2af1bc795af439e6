"""Computes the oracle (the reference's outputs in float64), at once or in slices of the first axis.

Slices are used only if the reference, in its own precision, returns the same values for them as for the whole inputs.
"""

from __future__ import annotations

import itertools

import torch

from stark.core.errors import ProblemError
from stark.core.precision import DEFAULT, floor_of
from stark.evaluator.candidate.program import says_out_of_memory
from stark.evaluator.judge.problem.inputs import Drawn, Program
from stark.evaluator.judge.problem.values import upcast
from stark.evaluator.judge.processes.failures import ChildFailed, ReferenceDied
from stark.evaluator.judge.verify.errors import as_real, pieces
from stark.evaluator.judge.verify.oracle import dtype_of, near

WHOLE = 1
SLICES = (8, 64)
"""Numbers of slices, tried in this order until the computation fits into memory."""


class Twin:
    """A problem's reference in float64."""

    def __init__(self, program: Program, save_memory: bool) -> None:
        """Without slices, float64 takes twice the memory of float32. With `save_memory` they are tried first."""
        self._program = program
        slices = (*SLICES, WHOLE) if save_memory else (WHOLE, *SLICES)
        self._ways = list(itertools.product((False, True), slices))
        """Whether the model is constructed again, and the number of slices. The way that worked last is tried first."""

    def outputs(self, drawn: Drawn, eager: list[torch.Tensor]) -> list[torch.Tensor] | None:
        """Compute the oracle for these inputs, or return None if the reference does not run in float64.

        `eager` holds the reference's own outputs. Raises torch.OutOfMemoryError if memory does not suffice.
        """
        fits = True
        for way in list(self._ways):
            try:
                found = self._outputs(*way, drawn, eager)
            except (Exception, SystemExit) as error:
                # The user's code may raise anything in a type or on a size that it was not written for.
                found, fits = None, fits and not is_out_of_memory(error)
            if found is not None:
                self._ways.remove(way)
                self._ways.insert(0, way)
                return [_in_range(*pair) for pair in zip(found, eager, strict=True)]
            torch.cuda.empty_cache()  # only now: the frames of the error kept tensors alive
        if not fits:
            name = self._program.problem.name
            raise torch.OutOfMemoryError(f"{name}: no memory is left for the float64 oracle")
        return None

    def _outputs(
        self, constructed: bool, slices: int, drawn: Drawn, eager: list[torch.Tensor]
    ) -> list[torch.Tensor] | None:
        """Compute the oracle in one way, or return None if its form differs or the first axis is not a batch axis."""
        program = self._program
        if slices == WHOLE:
            outputs = program.run_float64(drawn, program.in_float64(constructed))
            return outputs if _shapes(outputs) == _shapes(eager) else None
        length = len(eager[0]) if eager[0].dim() else 0
        batched, cut = (
            [t.dim() > 0 and len(t) == length for t in tensors]
            for tensors in (drawn.tensors, eager)
        )
        if program.changes or program.state or length < 2 or not (any(batched) and all(cut)):
            return None
        twin = program.in_float64(constructed)
        oracle = [torch.empty(t.shape, dtype=upcast(t[:0]).dtype, device=t.device) for t in eager]
        step = -(-length // slices)
        for span in (slice(begin, begin + step) for begin in range(0, length, step)):
            tensors = [t[span] if cut else t for t, cut in zip(drawn.tensors, batched, strict=True)]
            part = Drawn(tensors, drawn.arguments)
            wanted = [t[span] for t in eager]
            if not _alike(program.run(part), wanted):
                return None
            found = program.run_float64(part, twin)
            if _shapes(found) != _shapes(wanted):
                return None
            for whole, piece in zip(oracle, found, strict=True):
                whole[span] = piece
        return oracle


def _in_range(exact: torch.Tensor, eager: torch.Tensor) -> torch.Tensor:
    """Put the reference's own values in place of those that its type cannot hold, if they are finite.

    A kernel cannot return such values. They arise where the code asks for the type: `torch.finfo(x.dtype).min` is another
    number in float64.
    """
    if not eager.dtype.is_floating_point or eager.dtype == torch.float64:
        return exact
    largest = torch.finfo(eager.dtype).max
    ends = [end for (piece,) in pieces(exact) for end in piece.aminmax()]
    if all(abs(float(end)) <= largest for end in ends):
        return exact
    ours = as_real(eager).to(exact.dtype)
    return torch.where((exact.abs() > largest) & ours.isfinite(), ours, exact)


def _alike(found: list[torch.Tensor], wanted: list[torch.Tensor]) -> bool:
    """Whether the results for a slice equal, up to rounding, this slice of the results for the whole inputs."""
    return _shapes(found) == _shapes(wanted) and all(
        near(one, other, floor_of(DEFAULT, dtype_of(other)))
        for one, other in zip(found, wanted, strict=True)
    )


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error, or the cause of a ProblemError or ReferenceDied, is a lack of memory."""
    if isinstance(error, ReferenceDied) and error.failure is not None:
        return is_out_of_memory(error.failure)
    if isinstance(error, ProblemError) and error.__cause__ is not None:
        return is_out_of_memory(error.__cause__)
    if isinstance(error, ChildFailed):
        return error.kind == "out_of_memory"
    return says_out_of_memory(error)


def _shapes(tensors: list[torch.Tensor]) -> list[tuple[torch.Size, bool]]:
    """Return each tensor's shape, and whether it is complex. The precision must change neither."""
    return [(tensor.shape, tensor.is_complex()) for tensor in tensors]
