"""Writes torch.nn modules as the constructor calls that make equal ones."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import torch
from torch import nn

from stark.capturing.expressions.literals import is_plain, literal

SIZES = ("kernel_size", "stride", "padding", "dilation", "normalized_shape", "output_padding")
"""Arguments for which one number stands for a tuple of equal ones."""

LONGEST = 500
"""Characters of a constant that a problem file states of the original."""

NOT_ARGUMENTS = ("self", "device", "dtype", "args", "kwargs")


def constructor(module: nn.Module) -> str | None:
    """An expression that makes an equal module of torch.nn; None for other classes, or if none is found."""
    kind = type(module)
    if getattr(nn, kind.__name__, None) is not kind or "forward" in vars(module):
        return None
    if not inspect.unwrap(kind.forward).__module__.startswith("torch."):
        return None  # replaced while the program ran
    for arguments in constructor_arguments(module, kind):
        text = f"nn.{kind.__name__}({arguments})"
        twin = made(text)
        if twin is not None and is_equal(module, twin):
            return text
    return None


def constructor_arguments(module: nn.Module, kind: type[nn.Module]) -> Iterator[str]:
    """Candidates for the arguments of `kind` that may have made the module."""
    typed = _dtype_argument(module)
    found = []
    by_position = True
    for parameter in inspect.signature(kind.__init__).parameters.values():
        if parameter.name in NOT_ARGUMENTS:
            continue
        value = getattr(module, parameter.name, parameter.default)
        if parameter.name == "bias" and not isinstance(value, bool):
            value = value is not None or getattr(module, "in_proj_bias", None) is not None
        if type(value) is tuple and len(set(value)) == 1 and parameter.name in SIZES:
            value = value[0]
        if not is_plain(value) or (
            value == parameter.default and type(value) is type(parameter.default)
        ):
            by_position = False
            continue
        by_position = by_position and parameter.default is parameter.empty
        found.append(literal(value) if by_position else f"{parameter.name}={literal(value)}")
    yield _joined(", ".join(found), typed)
    if not list(module.children()) and type(module) is kind:
        shown = repr(module)
        yield _joined(shown[shown.index("(") + 1 : -1], typed)


def _joined(*parts: str) -> str:
    return ", ".join(filter(None, parts))


def _dtype_argument(module: nn.Module) -> str:
    """The dtype of all floating-point parameters, if it is not torch's default."""
    dtypes = {each.dtype for each in module.parameters(recurse=True)}
    return f"dtype={dtypes.pop()}" if len(dtypes) == 1 and dtypes != {torch.float32} else ""


def made(text: str) -> nn.Module | None:
    """The module that a constructor call makes, without memory for its state."""
    with suppress(Exception), torch.device("meta"):  # a guess; any constructor may raise anything
        made = eval(text, {"nn": nn, "torch": torch})
        return made if isinstance(made, nn.Module) else None
    return None


def is_equal(module: nn.Module, twin: nn.Module) -> bool:
    """Whether all submodules have the same classes, plain attributes, and shapes and types of their state."""
    ours, theirs = dict(module.named_modules()), dict(twin.named_modules())
    if list(ours) != list(theirs):
        return False
    pairs = [(ours[path], theirs[path]) for path in ours]
    return all(
        type(a) is type(b) and attributes(a) == attributes(b) and state(a) == state(b)
        for a, b in pairs
    )


def attributes(module: nn.Module) -> dict[str, Any]:
    """The public plain attributes, without `training`."""
    names = {k: v for k, v in vars(module).items() if not k.startswith("_") and k != "training"}
    return {k: v for k, v in names.items() if is_plain(v) or callable(v)}


def state(module: nn.Module) -> list[tuple[Any, ...]]:
    """Names, shapes and types of a module's own parameters and buffers, absent ones included."""
    kept = [
        (n, n in module._non_persistent_buffers_set, _form(b)) for n, b in module._buffers.items()
    ]
    return [*((n, _form(p)) for n, p in module._parameters.items()), *kept]


def _form(tensor: torch.Tensor | None) -> tuple[Any, ...] | None:
    return None if tensor is None else (tuple(tensor.shape), tensor.dtype)
