"""Null solvers: trivial answers, such as zeros, that are tried on every problem.

If one passes, the problem is degenerate: it cannot distinguish a correct kernel from one that computes nothing. Examples are
a KernelBench level 1 problem whose outputs are smaller than the tolerance, and problems with constant results.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from stark.evaluator.judge.problem.inputs import Drawn
from stark.evaluator.judge.verify.errors import as_real, measure
from stark.evaluator.judge.verify.oracle import ExpectedTensor, compare

SAMPLE, FEWEST = 1 << 16, 64
"""Number of values that are looked at instead of all, about, and the fewest that have a median."""

Solver = Callable[[ExpectedTensor], torch.Tensor]


def passing(
    drawn: Drawn, outputs: list[ExpectedTensor], others: list[ExpectedTensor] | None
) -> list[str]:
    """The names of null solvers that pass on every output. `others` is what is expected of other inputs, if that is at hand."""
    found = [
        name
        for name, solver in _solvers(drawn, outputs).items()
        if all(_passes(solver(output), output) for output in outputs)
    ]
    if others is not None:
        pairs = zip(others, outputs, strict=True)
        if all(_passes(other.eager, output) for other, output in pairs):
            found.append("the answer to other inputs")
    return found


def _passes(answer: torch.Tensor, output: ExpectedTensor) -> bool:
    """Whether an answer passes. A sample of its elements is looked at first, since it hardly ever does."""
    answer = as_real(answer)
    if not output.exact and answer.shape == output.oracle.shape:
        step = max(answer.numel() // SAMPLE, 1)
        some, exact = (each.reshape(-1)[::step] for each in (answer, output.oracle))
        if measure(some, exact, output.scale).largest > output.cap:
            return False
    return compare(answer, output).passes


def _solvers(drawn: Drawn, outputs: list[ExpectedTensor]) -> dict[str, Solver]:
    solvers: dict[str, Solver] = {"zeros": lambda output: torch.zeros_like(output.eager)}
    # The mean of a single number is the number itself, so passing would prove nothing.
    several = any(output.eager.numel() > 1 for output in outputs)
    if several and all(output.eager.is_floating_point() for output in outputs):
        solvers["the mean in every element"] = lambda each: torch.full_like(
            each.eager, float(each.eager.mean())
        )
    if several:
        solvers["zeros in the second half of each row"] = _half
    if any(_loses_values(output.eager) for output in outputs):
        solvers["zeros in the smaller half of the values"] = lambda each: _larger_half(each.eager)
    for index, tensor in enumerate(drawn.tensors):
        if all(
            as_real(tensor).shape == output.eager.shape
            and as_real(tensor).dtype == output.eager.dtype
            for output in outputs
        ):
            solvers[f"input {index} itself"] = _always(tensor)
    return solvers


def _larger_half(values: torch.Tensor) -> torch.Tensor:
    """The values with zeros for the smaller half of those that are not zero; unchanged if they are few or whole numbers."""
    if not values.is_floating_point():
        return values
    sample = values.reshape(-1)[:: max(values.numel() // SAMPLE, 1)].abs().float()
    sample = sample[sample != 0]
    if len(sample) < FEWEST:
        return values
    return values.masked_fill(values.abs() < float(sample.nanmedian()), 0)


def _loses_values(values: torch.Tensor) -> bool:
    """Whether the smaller half is about half."""
    return int(_larger_half(values).count_nonzero()) < 0.6 * int(values.count_nonzero())


def _always(tensor: torch.Tensor) -> Solver:
    return lambda _: tensor


def _half(output: ExpectedTensor) -> torch.Tensor:
    """Zeros in the second half of each row, which pass where true values are almost zero there, as in a cumulative product."""
    answer = output.eager.clone()
    rows = torch.atleast_1d(answer)
    rows[..., rows.shape[-1] // 2 :] = 0
    return answer
