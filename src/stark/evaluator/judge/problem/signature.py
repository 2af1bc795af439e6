"""The form of a problem's inputs and outputs, which stays the same at every draw. Knows no value."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import torch

from stark.core.errors import ProblemError
from stark.core.reference import TensorSpec
from stark.evaluator.judge.problem.arguments import varying
from stark.evaluator.judge.problem.inputs import Drawn, Program


@dataclass(frozen=True)
class Signature:
    """What a problem's forward takes and returns."""

    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]

    drawn: Drawn
    """A draw without its values: tensors without memory, and the arguments around them."""

    returned: tuple[torch.Tensor, ...]
    """Outputs without memory, with the strides that the reference gives them."""

    @classmethod
    def of(cls, drawn: Drawn, returned: list[torch.Tensor]) -> Signature:
        """The signature that a draw and what forward returned for it show."""
        without = Drawn(list(_without_memory(drawn.tensors)), drawn.arguments)
        return cls(
            _specs(drawn.tensors), _specs(returned), without, tuple(_without_memory(returned))
        )

    @property
    def bytes_in(self) -> int:
        """Of one set of inputs."""
        return sum(map(_bytes, self.inputs))

    @property
    def bytes_out(self) -> int:
        """Of one set of outputs."""
        return sum(map(_bytes, self.outputs))

    def check(self, drawn: Drawn, program: Program) -> None:
        """Raises ProblemError for inputs that have another form."""
        if _specs(drawn.tensors) != self.inputs:
            raise ProblemError(
                f"{program.problem.name}: get_inputs returns other shapes every time; make them fixed"
            )
        if (reason := varying(self.drawn.arguments, drawn.arguments)) is not None:
            raise program.refusal("get_inputs", f"returns {reason}")


def _without_memory(tensors: Iterable[torch.Tensor]) -> Iterable[torch.Tensor]:
    return (torch.empty_strided(t.shape, t.stride(), dtype=t.dtype, device="meta") for t in tensors)


def _specs(tensors: Iterable[torch.Tensor]) -> tuple[TensorSpec, ...]:
    return tuple(
        TensorSpec(shape=tuple(t.shape), dtype=str(t.dtype).removeprefix("torch.")) for t in tensors
    )


def _bytes(spec: TensorSpec) -> int:
    dtype: torch.dtype = getattr(torch, spec.dtype)
    return math.prod(spec.shape) * dtype.itemsize
