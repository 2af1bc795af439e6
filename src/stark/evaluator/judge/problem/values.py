"""A call's tensors: collects and compares them, and says which were written to."""

from __future__ import annotations

from collections.abc import Collection

import torch

from stark.core.errors import ProblemError
from stark.evaluator.candidate.program import alike, leaves_of
from stark.evaluator.judge.problem.arguments import unsupported
from stark.evaluator.judge.verify.errors import as_real, pieces

Place = int | str
"""A tensor that forward may change: an input by its number, or a weight by its name."""


class ChangesMore(ProblemError):
    """Forward writes to tensors to which it did not write before, as it does only where a condition holds."""

    def __init__(self, problem: str, tensors: Collection[Place]) -> None:
        self.tensors = tensors
        named = (f"input {each}" if isinstance(each, int) else each for each in tensors)
        super().__init__(
            f"{problem}: forward changes {', '.join(sorted(named))} in place in some calls only; let it change the same "
            "tensors in every call, or return a new tensor"
        )


def tensors_of(value: object) -> list[torch.Tensor]:
    """Collect the tensors that forward returned. Raises ProblemError for any other value."""
    leaves = []
    for leaf in leaves_of(value):
        if not isinstance(leaf, torch.Tensor):
            raise ProblemError(
                f"forward returns a {type(leaf).__name__}; "
                "return a tensor, or a tuple, list or dict of tensors"
            )
        if (reason := unsupported(leaf)) is not None:
            raise ProblemError(f"forward returns {reason}")
        leaves.append(leaf.detach())
    if not leaves:
        raise ProblemError("forward returns nothing; return a tensor")
    return leaves


def versions(tensors: list[torch.Tensor]) -> list[int]:
    """How often each tensor was written to, whether or not a value changed. Inference tensors do not say."""
    return [-1 if tensor.is_inference() else tensor._version for tensor in tensors]


def same_values(one: torch.Tensor | None, other: torch.Tensor) -> bool:
    """Whether two tensors of one type and shape hold the same values, with NaN equal to NaN."""
    if one is None or not alike(one, other):
        return False
    pairs = ((as_real(ours), as_real(theirs)) for ours, theirs in pieces(one, other))
    return one is other or all(
        torch.equal(ours, theirs) or torch.allclose(ours, theirs, rtol=0, atol=0, equal_nan=True)
        for ours, theirs in pairs
    )


def is_inexact(tensor: torch.Tensor) -> bool:
    """Whether it holds floating-point or complex numbers."""
    return tensor.is_floating_point() or tensor.is_complex()


def upcast(tensor: torch.Tensor) -> torch.Tensor:
    """Return the tensor in double precision if it is floating-point or complex."""
    if tensor.is_complex():
        return tensor.to(torch.complex128)
    return tensor.double() if tensor.is_floating_point() else tensor
