"""Calls a module as it was recorded, on copies of the recorded arguments."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.utils import _pytree as pytree

from stark.capturing.recording import Example, eagerly
from stark.capturing.restoring import random_states, unchanged
from stark.capturing.values import copied, tensors_of


@dataclass(frozen=True)
class Outcome:
    """What one call returned and changed."""

    outputs: Any
    arguments: Any
    """After the call, so that in-place changes show."""

    buffers: dict[str, torch.Tensor]
    gradients: dict[str, torch.Tensor | None]
    """Of inputs and parameters that require them; empty if the call was recorded without gradients."""

    random: bool
    """Whether random numbers were drawn."""


def call(
    module: nn.Module,
    example: Example,
    grad: bool = False,
    mode: AbstractContextManager[Any] | None = None,
    ordered: Callable[[Example], Any] = lambda example: example,
) -> Outcome:
    """Call `module` on a copy of `example`, and put everything back that it changed.

    `mode` is active during forward; `ordered` says in which order the arguments are compared. Raises what forward
    raises.
    """
    leaves = copied(example)
    args, kwargs = _inside_a_graph(leaves) if grad else leaves
    with unchanged(module), eagerly():
        before = random_states(module)
        with torch.inference_mode(False), torch.set_grad_enabled(grad), mode or nullcontext():
            outputs = module(*args, **kwargs)
        after = random_states(module)
        arguments = ordered((args, kwargs))
        inputs = {f"argument {i}": each for i, each in enumerate(tensors_of(ordered(leaves)))}
        gradients = _gradients(outputs, inputs | dict(module.named_parameters())) if grad else {}
        return Outcome(
            outputs=outputs,
            arguments=arguments,
            buffers={name: each.detach().clone() for name, each in module.named_buffers()},
            gradients=gradients,
            random=before != after,
        )


def _inside_a_graph(leaves: Any) -> Any:
    """Copies through which gradients flow, since leaves that require them cannot be changed in place."""
    known: dict[int, torch.Tensor] = {}

    def once(leaf: torch.Tensor) -> torch.Tensor:
        if id(leaf) not in known:
            copy = leaf.clone(memory_format=torch.preserve_format) if leaf.requires_grad else leaf
            known[id(leaf)] = copy if copy.stride() == leaf.stride() else leaf
        return known[id(leaf)]

    return pytree.tree_map_only(torch.Tensor, once, leaves)


def _gradients(outputs: Any, inputs: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor | None]:
    """Gradients of a fixed function of all outputs."""
    wanted = {name: each for name, each in inputs.items() if each.requires_grad and each.is_leaf}
    reached = [each for each in tensors_of(outputs) if each.requires_grad]
    if not wanted or not reached:
        return {}
    cotangents = [_cotangent(each) for each in reached]
    found = torch.autograd.grad(reached, list(wanted.values()), cotangents, allow_unused=True)
    return dict(zip(wanted, found, strict=True))


def _cotangent(output: torch.Tensor) -> torch.Tensor:
    """A fixed tensor of the output's form, without a repeating pattern."""
    values = torch.cos(torch.arange(output.numel(), device=output.device))
    return values.reshape(output.shape).to(output.dtype)
