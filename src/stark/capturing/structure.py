"""What makes two modules equal, so that the code of one, or a kernel for it, serves the other too."""

from __future__ import annotations

from collections.abc import Hashable

import torch
from torch import nn


def structure_of(module: nn.Module) -> int:
    """The same for modules that differ only in the values of their state, or in layers that return their input."""
    if _does_nothing(module):
        return 0
    state = [*module._parameters.items(), *module._buffers.items()]
    return hash(
        (
            type(module),
            module.extra_repr(),
            tuple((name, tensor is not None and _kept(tensor)) for name, tensor in state),
            tuple(
                (name, child is not None and structure_of(child))
                for name, child in module._modules.items()
            ),
        )
    )


def _kept(tensor: torch.Tensor) -> Hashable:
    return tensor.dtype, tuple(tensor.shape), tensor.device, tensor.requires_grad


def _does_nothing(module: nn.Module) -> bool:
    """Whether a module returns its input: their settings differ among layers that are otherwise alike.

    Stochastic depth has many implementations, which are known by their names.
    """
    name = type(module).__name__
    drops = name == "StochasticDepth" or name.startswith("Drop")
    return isinstance(module, nn.Identity) or (drops and not module.training)
