"""Null solvers: trivial answers, such as zeros, that are tried on every problem.

If a null solver passes, the problem is degenerate: it cannot distinguish a correct kernel from one
that computes nothing. Examples are a KernelBench level 1 problem whose outputs are smaller than the
tolerance, and problems with constant results. Every evaluation on such a problem has a warning.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from stark.evaluator.judge.problem.inputs import Drawn
from stark.evaluator.judge.verify.errors import as_real
from stark.evaluator.judge.verify.oracle import ExpectedTensor, compare

Solver = Callable[[ExpectedTensor], torch.Tensor]


def passing(
    drawn: Drawn, outputs: list[ExpectedTensor], others: list[ExpectedTensor] | None
) -> list[str]:
    """Return the names of null solvers whose answers pass on every output of this trial.

    `others` is what is expected of other inputs, if that is at hand.
    """
    found = [
        name
        for name, solver in _solvers(drawn, outputs).items()
        if all(compare(solver(output), output).passes for output in outputs)
    ]
    if others is not None:
        pairs = zip(others, outputs, strict=True)
        if all(compare(other.eager, output).passes for other, output in pairs):
            found.append("the answer to other inputs")
    return found


def _solvers(drawn: Drawn, outputs: list[ExpectedTensor]) -> dict[str, Solver]:
    solvers: dict[str, Solver] = {"zeros": lambda output: torch.zeros_like(output.eager)}
    # The mean of a single number is the number itself, so passing would prove nothing.
    several = any(output.eager.numel() > 1 for output in outputs)
    if several and all(output.eager.is_floating_point() for output in outputs):
        solvers["the mean in every element"] = lambda output: torch.full_like(
            output.eager, float(output.eager.mean())
        )
    if several:
        solvers["zeros in the second half of each row"] = _half
    for index, tensor in enumerate(drawn.tensors):
        if all(
            tensor.shape == output.eager.shape and as_real(tensor).dtype == output.eager.dtype
            for output in outputs
        ):
            solvers[f"input {index} itself"] = _always(tensor)
    return solvers


def _always(tensor: torch.Tensor) -> Solver:
    return lambda _: tensor


def _half(output: ExpectedTensor) -> torch.Tensor:
    """Return the expected values with zeros in the second half of each row.

    This passes where the true values in the second half are almost zero, as in a cumulative product.
    """
    answer = output.eager.clone()
    rows = torch.atleast_1d(answer)
    rows[..., rows.shape[-1] // 2 :] = 0
    return answer
