"""The form of a call: calls of equal modules in one form can be served by one kernel.

The first tensor counts with its exact shape. Sizes of the other tensors, and integers, may differ: in a decoding loop
the mask and the cache grow with each step, and the calls are still of one form. Prefill and decoding differ in their
first tensor.
"""

from __future__ import annotations

import inspect
from collections.abc import Hashable
from typing import Any, NamedTuple

import torch
from torch import nn

from stark.capturing.calls.values import form_of_constant, leaves_of, tensors_of
from stark.capturing.forms import TensorForm, form_key

SHORT = {
    torch.float32: "fp32",
    torch.float64: "fp64",
    torch.float16: "fp16",
    torch.bfloat16: "bf16",
    torch.int64: "int64",
}


class Form(NamedTuple):
    """The form of a call."""

    key: Hashable
    text: str
    exact: Hashable
    """With all sizes and integers: forms with the same key can differ in it."""

    objects: tuple[str, ...]
    """Classes of arguments that are neither tensors nor plain values, such as a cache."""


def form_of_call(module: nn.Module, args: Any, kwargs: Any) -> Form:
    """The form of a call with these arguments, in the present modes (gradients, autocast, training)."""
    arguments = _bound(module, args, kwargs)
    tensors = tensors_of(arguments)
    first = tensors[0] if tensors else None
    modes = _modes(module, tensors)

    def loose(tensor: torch.Tensor) -> Hashable:
        return _exact(tensor) if tensor is first else (tensor.dtype, tensor.dim())

    key = (form_key(arguments, loose, _loose_constant), modes)
    exact = (form_key(arguments, _exact, form_of_constant), modes)
    shape = "no tensor" if first is None else f"{_shape(first)} {_dtype(first)}"
    objects = tuple(dict.fromkeys(type(leaf).__name__ for leaf in leaves_of(arguments)))
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


def _exact(tensor: torch.Tensor) -> Hashable:
    """Strides count only where they place elements in another way."""
    strided = tensor.layout is torch.strided and tensor.is_contiguous()
    return (tensor.dtype, tensor.shape) if strided else TensorForm.of(tensor)


def _loose_constant(value: Any) -> Hashable:
    return int if type(value) is int else form_of_constant(value)


def _shape(tensor: torch.Tensor) -> str:
    return "x".join(map(str, tensor.shape)) or "scalar"


def _dtype(tensor: torch.Tensor) -> str:
    return SHORT.get(tensor.dtype, str(tensor.dtype).removeprefix("torch."))
