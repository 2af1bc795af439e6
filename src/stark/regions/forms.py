"""The form of a module call: what two calls must share so that one kernel can serve both.

The first tensor counts with its exact shape. Sizes of the other tensors, and integers, may differ: in a decoding loop
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
    tensors = [leaf for leaf in tree_leaves(arguments) if isinstance(leaf, torch.Tensor)]
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
