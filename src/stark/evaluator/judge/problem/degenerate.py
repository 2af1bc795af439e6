"""Null solvers: answers that need no work, tried on every problem.

Where one of them passes, the problem cannot tell a kernel from nothing (a KernelBench level 1 problem whose
output is below its own tolerance, or one whose result is a constant), and every evaluation of it says so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch

from stark.evaluator.judge.problem.inputs import Drawn
from stark.evaluator.judge.verify.oracle import ExpectedTensor, as_real, chunks, compare

Answer = Callable[[Drawn, ExpectedTensor], torch.Tensor]


def passing(
    drawn: Drawn, outputs: list[ExpectedTensor], solvers: dict[str, Answer]
) -> dict[str, Answer]:
    """Those of the solvers that pass on every output of this trial."""
    return {
        name: solver
        for name, solver in solvers.items()
        if all(compare(solver(drawn, output), output, briefly=True).passes for output in outputs)
    }


def null_solvers(drawn: Drawn, outputs: list[ExpectedTensor]) -> dict[str, Answer]:
    """Every null solver that can answer in the form of these outputs."""
    return dict(_solvers(drawn, outputs))


def _solvers(drawn: Drawn, outputs: list[ExpectedTensor]) -> Iterator[tuple[str, Answer]]:
    yield "zeros", lambda _, output: torch.zeros_like(output.eager)
    # Of a single number the mean is the number itself, which says nothing.
    several = any(output.eager.numel() > 1 for output in outputs)
    if several and all(output.eager.is_floating_point() for output in outputs):
        yield "the mean in every element", _mean
    if several:
        yield "zeros in the second half of each row", _half
    for index, tensor in enumerate(drawn.tensors):
        if all(
            tensor.shape == output.eager.shape and as_real(tensor).dtype == output.eager.dtype
            for output in outputs
        ):
            yield f"input {index} as it is", _input(index)


def _mean(_: Drawn, output: ExpectedTensor) -> torch.Tensor:
    total = sum(float(piece.sum()) for (piece,) in chunks(output.eager))
    return torch.full_like(output.eager, total / max(output.eager.numel(), 1))


def _half(_: Drawn, output: ExpectedTensor) -> torch.Tensor:
    """A product of many numbers, for instance, is next to nothing after the first few."""
    answer = output.eager.clone()
    rows = torch.atleast_1d(answer)
    rows[..., rows.shape[-1] // 2 :] = 0
    return answer


def _input(index: int) -> Answer:
    return lambda drawn, _: drawn.tensors[index]
