"""Records the structure, shapes and types of inputs and outputs, which are fixed for a problem."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

import torch

from stark.core.errors import ProblemError
from stark.core.reference import TensorSpec
from stark.evaluator.candidate.program import floats_of
from stark.evaluator.judge.problem.arguments import variation
from stark.evaluator.judge.problem.inputs import Drawn, Program
from stark.evaluator.judge.problem.values import is_inexact


@dataclass(frozen=True)
class Signature:
    """Structure, shapes and types of what a problem's forward takes and returns."""

    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]

    drawn: Drawn
    """A draw in which meta tensors replace the tensors; other arguments are unchanged."""

    returned: tuple[torch.Tensor, ...]
    """The reference's outputs as meta tensors, with their strides."""

    @classmethod
    def of(cls, drawn: Drawn, returned: list[torch.Tensor]) -> Signature:
        """Build the signature from a draw and the outputs that forward returned for it."""
        form = Drawn(list(_on_meta(drawn.tensors)), drawn.arguments, tuple(_on_meta(drawn.state)))
        return cls(_specs(drawn.tensors), _specs(returned), form, tuple(_on_meta(returned)))

    def arguments(self, with_gradients: bool) -> str:
        """The arguments as `repr` shows them, without addresses in memory, and with tensors as `<tensor 0>`.

        `with_gradients` says whether the last one is not forward's, but that of its backward.
        """
        given = self.drawn.arguments[: -1 if with_gradients else None]
        shown = re.sub(r"TensorAt\(index=(\d+)\)", r"<tensor \1>", repr(given))
        return re.sub(r" at 0x[0-9a-f]+", "", shown)

    @property
    def has_integers(self) -> bool:
        """Whether an input is neither floating-point nor complex."""
        return not all(map(is_inexact, self.drawn.tensors))

    @property
    def has_floats(self) -> bool:
        """Whether an argument is a float."""
        return bool(floats_of(self.drawn.arguments))

    @property
    def bytes_in(self) -> int:
        """Bytes of one set of inputs, and of what forward finds in the weights that it changes."""
        return sum(tensor.nbytes for tensor in (*self.drawn.tensors, *self.drawn.state))

    @property
    def bytes_out(self) -> int:
        """Bytes of one set of outputs."""
        return sum(tensor.nbytes for tensor in self.returned)

    def check(self, drawn: Drawn, program: Program) -> None:
        """Raise ProblemError if a draw's shapes, types or non-tensor arguments differ from the signature's."""
        if _specs(drawn.tensors) != self.inputs:
            raise ProblemError(
                f"{program.problem.name}: get_inputs returns tensors whose shapes or types change "
                "from draw to draw; make them fixed"
            )
        if (reason := variation(self.drawn.arguments, drawn.arguments)) is not None:
            raise program.refusal("get_inputs", f"returns {reason}")


def _on_meta(tensors: Iterable[torch.Tensor]) -> Iterable[torch.Tensor]:
    return (torch.empty_strided(t.shape, t.stride(), dtype=t.dtype, device="meta") for t in tensors)


def _specs(tensors: Iterable[torch.Tensor]) -> tuple[TensorSpec, ...]:
    return tuple(
        TensorSpec(shape=tuple(t.shape), dtype=str(t.dtype).removeprefix("torch.")) for t in tensors
    )
