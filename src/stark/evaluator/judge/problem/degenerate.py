"""Null solvers: trivial answers, such as zeros, that are tried on every problem.

If one passes, the problem is degenerate: it cannot distinguish a correct kernel from one that computes nothing. Examples are
a KernelBench level 1 problem whose outputs are smaller than the tolerance, and problems with constant results.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import repeat

import torch

from stark.evaluator.judge.problem.inputs import Drawn
from stark.evaluator.judge.verify.errors import as_real, measure
from stark.evaluator.judge.verify.oracle import ExpectedTensor, compare

SAMPLE, FEWEST = 1 << 16, 64
"""Number of values that are looked at instead of all, about, and the fewest that have a median."""


def passing(
    drawn: Drawn, outputs: list[ExpectedTensor], others: list[ExpectedTensor] | None
) -> list[str]:
    """The names of null solvers that pass on every output. `others` is what is expected of other inputs, if that is at hand."""
    return [
        name
        for name, answers in _null_solvers(drawn, outputs, others or [])
        if all(_passes(*pair) for pair in zip(answers, outputs, strict=True))
    ]


def _passes(answer: torch.Tensor, output: ExpectedTensor) -> bool:
    """Whether an answer passes. A sample of its elements is looked at first, since it hardly ever does."""
    answer = as_real(answer)
    if not output.exact and answer.shape == output.oracle.shape:
        step = max(answer.numel() // SAMPLE, 1)
        some, exact = (each.reshape(-1)[::step] for each in (answer, output.oracle))
        if measure(some, exact, output.scale).largest > output.cap_in(output.terms.precision):
            return False
    return compare(answer, output).passes


def _null_solvers(
    drawn: Drawn, outputs: list[ExpectedTensor], others: list[ExpectedTensor]
) -> Iterator[tuple[str, Iterable[torch.Tensor]]]:
    """Yield each null solver's name and its answers, an iterable with one for each output."""
    eager = [output.eager for output in outputs]
    yield "zeros", map(torch.zeros_like, eager)
    if any(each.numel() > 1 for each in eager):
        # The mean of a single number is the number itself, so passing would prove nothing.
        if all(each.is_floating_point() for each in eager):
            means = (torch.full_like(each, float(each.mean())) for each in eager)
            yield "the mean in every element", means
        yield "zeros in the second half of each row", map(_half, eager)
    # Where few of the values are lost, passing would prove nothing either.
    if any(_larger_half(each).count_nonzero() < 0.6 * each.count_nonzero() for each in eager):
        yield "zeros in the smaller half of the values", map(_larger_half, eager)
    for index, tensor in enumerate(drawn.tensors):
        form = as_real(tensor).shape, as_real(tensor).dtype
        if all(form == (each.shape, each.dtype) for each in eager):
            yield f"input {index} itself", repeat(tensor, len(eager))
    if others:
        yield "the answer to other inputs", (other.eager for other in others)


def _larger_half(values: torch.Tensor) -> torch.Tensor:
    """The values with zeros for the smaller half of those that are not zero; unchanged if they are few or whole numbers."""
    if not values.is_floating_point():
        return values
    sample = values.reshape(-1)[:: max(values.numel() // SAMPLE, 1)].abs().float()
    sample = sample[sample != 0]
    if len(sample) < FEWEST:
        return values
    return values.masked_fill(values.abs() < float(sample.nanmedian()), 0)


def _half(values: torch.Tensor) -> torch.Tensor:
    """Zeros in the second half of each row, which pass where true values are almost zero there, as in a cumulative product."""
    answer = values.clone()
    rows = torch.atleast_1d(answer)
    rows[..., rows.shape[-1] // 2 :] = 0
    return answer
