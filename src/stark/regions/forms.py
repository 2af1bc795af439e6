"""What two module calls must share so that one kernel can serve both: the modules' structure and the form of the call.

In a form, the first tensor counts with its exact shape. Sizes of the other tensors, and integers, may differ: in a decoding loop
the mask and the cache grow with each step, and the calls are still of one form. Prefill and decoding differ in their
first tensor.
"""

from __future__ import annotations

import inspect
from collections.abc import Hashable
from enum import Enum
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.utils._pytree import tree_leaves

from stark.capturing.values import tensors_of

SHORT = {
    torch.float32: "fp32",
    torch.float64: "fp64",
    torch.float16: "fp16",
    torch.bfloat16: "bf16",
    torch.int64: "int64",
}

PLAIN = (torch.Tensor, torch.dtype, torch.device, Enum, bool, int, float, complex, str, type(None))


class Form(NamedTuple):
    """The form of a call."""

    key: Hashable
    text: str
    exact: Hashable
    """With all sizes and integers: forms with the same key can differ in it."""

    objects: tuple[str, ...]
    """Classes of arguments that are neither tensors nor plain values, such as a cache."""


def form_of(module: nn.Module, args: Any, kwargs: Any) -> Form:
    """The form of a call with these arguments, in the present modes (gradients, autocast, training)."""
    arguments = _bound(module, args, kwargs)
    tensors = tensors_of(arguments)
    first = tensors[0] if tensors else None
    modes = _modes(module, tensors)
    key = (_skeleton(arguments, first, loose=True), modes)
    exact = (_skeleton(arguments, first, loose=False), modes)
    shape = "no tensor" if first is None else f"{_shape(first)} {_dtype(first)}"
    others = (leaf for leaf in tree_leaves(arguments) if not isinstance(leaf, PLAIN))
    objects = tuple(dict.fromkeys(type(leaf).__name__ for leaf in others))
    return Form(key, " ".join([shape, *modes]), exact, objects)


def _bound(module: nn.Module, args: Any, kwargs: Any) -> dict[str, Any]:
    """Arguments by the parameters of forward, so that positional and keyword calls are alike."""
    try:
        return dict(inspect.signature(module.forward).bind(*args, **kwargs).arguments)
    except (TypeError, ValueError):  # forward has no signature, or checks its arguments itself
        return {"args": args, **kwargs}


def _modes(module: nn.Module, tensors: list[torch.Tensor]) -> tuple[str, ...]:
    kind = tensors[0].device.type if tensors else "cpu"
    found = {
        "train": module.training,
        "grad": torch.is_grad_enabled(),
        "autocast": torch.is_autocast_enabled(kind),
    }
    return tuple(name for name, on in found.items() if on)


def _skeleton(value: Any, first: torch.Tensor | None, loose: bool) -> Hashable:
    match value:
        case torch.Tensor():
            shape = tuple(value.shape)
            if loose and value is not first:
                return (str(value.dtype), len(shape))
            strides = () if value.is_contiguous() else value.stride()
            return (str(value.dtype), shape, strides)
        case tuple() | list():
            return tuple(_skeleton(each, first, loose) for each in value)
        case dict():
            return tuple((str(name), _skeleton(each, first, loose)) for name, each in value.items())
        case Enum() | torch.dtype() | torch.device():
            return repr(value)
        case bool() | float() | str() | None:
            return value
        case int():
            return "int" if loose else value
    return type(value).__qualname__


def _shape(tensor: torch.Tensor) -> str:
    return "x".join(map(str, tensor.shape)) or "scalar"


def _dtype(tensor: torch.Tensor) -> str:
    return SHORT.get(tensor.dtype, str(tensor.dtype).removeprefix("torch."))


class Structures:
    """The structures of a model's modules; each is computed once."""

    def __init__(self) -> None:
        self._known: dict[int, Hashable] = {}

    def of(self, module: nn.Module) -> Hashable:
        """Equal for modules that are alike. Values of parameters do not count."""
        if _does_nothing(module):
            return None
        if id(module) not in self._known:
            state = [*module._parameters.items(), *module._buffers.items()]
            self._known[id(module)] = hash(
                (
                    type(module),
                    module.extra_repr(),
                    tuple(
                        (name, tensor is not None and (tuple(tensor.shape), tensor.dtype))
                        for name, tensor in state
                    ),
                    tuple(
                        (name, child is not None and self.of(child))
                        for name, child in module._modules.items()
                    ),
                )
            )
        return self._known[id(module)]


def _does_nothing(module: nn.Module) -> bool:
    """Whether a module returns its input: their settings differ among layers that are otherwise alike.

    Stochastic depth has many implementations, which are known by their names.
    """
    name = type(module).__name__
    drops = name == "StochasticDepth" or name.startswith("Drop")
    return isinstance(module, nn.Identity) or (drops and not module.training)
