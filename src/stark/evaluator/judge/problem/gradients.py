"""Gradients as results of a call, for problems with `BACKWARD = True`: which there are, their cotangents and their names."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch.utils import _pytree as pytree

from stark.core.errors import ProblemError
from stark.evaluator.candidate.arena import TensorAt
from stark.evaluator.candidate.backward import Gradients, as_leaves
from stark.evaluator.candidate.program import filled, leaves_of

COTANGENTS = 0x5EED
"""Added to the seed of a draw for its cotangents, which must not repeat the numbers of its inputs."""

NOTHING = "BACKWARD = True, but no output has a gradient; remove BACKWARD, or let forward use PyTorch's differentiable operators"
SOMETIMES = "has a gradient for some inputs only; let it depend on the same inputs and parameters in every call"
SPARSE = (
    "a gradient is sparse, and only dense ones are judged; construct nn.Embedding with sparse=False"
)

FAULTS = {
    "detached": "{} has no gradient: forward computes it without autograd (in a kernel, in place, detached or under no_grad); "
    "compute it in a torch.autograd.Function that has a backward",
    "attached": "{} has a gradient, which the reference's does not have; detach it, or call ctx.mark_non_differentiable",
    "missing": "missing: {}; the reference has it. backward returns None for it, or forward uses a detached copy, `.data`, or a "
    "buffer in place of the parameter",
    "extra": "not in the reference: {}; return None for it in backward, or detach it",
}
"""By field of a `GradientFault`, what it means."""


@dataclass(frozen=True)
class Differentiation:
    """The gradients of a problem, and the forms of its cotangents."""

    wanted: Gradients
    forms: tuple[torch.Tensor, ...]
    """A meta tensor for each cotangent: the shape, type and strides of its output."""

    inputs: int
    """The number of the inputs' tensors."""

    input_names: tuple[str, ...]
    """The name of the argument in which each input is."""

    @classmethod
    def of(
        cls,
        problem: str,
        model: torch.nn.Module,
        tensors: Sequence[torch.Tensor],
        arguments: list[Any],
        asked: Sequence[bool],
    ) -> Differentiation:
        """Run a model forward and backward. `asked` says which inputs require gradients; all that can do if none does.

        Raises ProblemError if no output has a gradient, and what the model raises.
        """
        inputs = tuple(
            number
            for number, (tensor, wish) in enumerate(zip(tensors, asked, strict=True))
            if tensor.is_floating_point() and tensor.itemsize > 1 and (wish or not any(asked))
        )
        named = {name: each for name, each in model.named_parameters() if each.requires_grad}
        first = Gradients(0, (), inputs, tuple(named), ())
        leaves = as_leaves(tensors, first)
        with torch.enable_grad():
            outputs = leaves_of(model(*filled(arguments, leaves)))
        ends = {
            number: each
            for number, each in enumerate(outputs)
            if isinstance(each, torch.Tensor) and each.requires_grad
        }
        sources = [*(leaves[number] for number in inputs), *named.values()]
        if not ends or not sources:
            raise ProblemError(f"{problem}: {NOTHING}")
        found = torch.autograd.grad(
            list(ends.values()), sources, [*map(torch.ones_like, ends.values())], allow_unused=True
        )
        if any(each is not None and each.layout != torch.strided for each in found):
            raise ProblemError(f"{problem}: {SPARSE}")
        present = tuple(each is not None for each in found)
        return cls(
            Gradients(len(outputs), tuple(ends), inputs, tuple(named), present),
            tuple(torch.empty_like(each, device="meta") for each in ends.values()),
            len(tensors),
            _names(model.forward, arguments, len(tensors)),
        )

    def cotangents(self, seed: int, device: torch.device) -> list[torch.Tensor]:
        """Draw the cotangents from a seed: standard normal numbers."""
        generator = torch.Generator(device).manual_seed(seed + COTANGENTS)
        return [
            torch.empty_like(form, device=device).copy_(
                torch.randn(form.shape, dtype=form.dtype, device=device, generator=generator)
            )
            for form in self.forms
        ]

    def arguments(self, given: list[Any]) -> list[Any]:
        """The arguments of `ForwardBackward`: those of forward, and the places of cotangents and leaves."""
        cotangents = [TensorAt(self.inputs + number) for number in range(len(self.forms))]
        return [*given, [cotangents, [TensorAt(number) for number in self.wanted.inputs]]]

    def input_name(self, number: int) -> str:
        """The name of an input or a cotangent, such as `input 0 (x)`, by its place among a draw's tensors."""
        if number < self.inputs:
            return f"input {number} ({self.input_names[number]})"
        return f"the cotangent of output {self.wanted.differentiable[number - self.inputs]}"

    def gradient_name(self, number: int) -> str:
        """The name of a gradient, such as `gradient of conv.weight`, by its place in `Gradients.present`."""
        inputs = self.wanted.inputs
        if number < len(inputs):
            return f"gradient of {self.input_name(inputs[number])}"
        return f"gradient of {self.wanted.parameters[number - len(inputs)]}"

    def request(self) -> dict[str, Any]:
        """The gradients and the forms of the cotangents, for a program that shares no memory with the judge."""
        forms = [(tuple(f.shape), str(f.dtype).removeprefix("torch.")) for f in self.forms]
        return {"gradients": asdict(self.wanted), "cotangents": forms}

    def fault(self, reported: dict[str, object]) -> str:
        """Describe what a candidate's process reports as a `GradientFault`. Its contents are not trusted."""
        outputs = range(self.wanted.outputs), "output {}".format
        gradients = range(len(self.wanted.present)), self.gradient_name
        lines = {}
        for kind, text in FAULTS.items():
            among, named = outputs if kind in ("detached", "attached") else gradients
            numbers = reported.get(kind)
            numbers = numbers if isinstance(numbers, list) else []
            found = [each for each in numbers if type(each) is int and each in among]
            if found:
                lines[kind] = text.format(", ".join(map(named, found)))
        if "detached" in lines:  # then its gradients are missing too
            lines.pop("missing", None)
        return "\n".join(lines.values()) or "the gradients are not those of the reference"


def _names(forward: Callable[..., object], arguments: list[Any], count: int) -> tuple[str, ...]:
    """For each tensor, the parameter of `forward` in whose value it first occurs."""
    named: dict[int, str] = {}
    for name, value in inspect.signature(forward).bind_partial(*arguments).arguments.items():
        for leaf in pytree.tree_leaves(value):
            if isinstance(leaf, TensorAt):
                named.setdefault(leaf.index, name)
    return tuple(named.get(number, "unnamed") for number in range(count))
