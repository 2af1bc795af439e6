"""Finds the user's module and its example inputs by name."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import Any

import torch
from torch import nn

from stark.capturing.calls.recording import Calls, Example, recording
from stark.capturing.cannot import users_code
from stark.core.errors import UsageError


def load_module(spec: str, backward: bool = False) -> nn.Module:
    """The module that `package.module:Object` names: an nn.Module, or a class or function that makes one.

    The name may go on with the path of a submodule, such as `Net.blocks.1`. What a class or function makes without
    arguments is set to evaluation mode, unless gradients are wanted; a named instance keeps its mode. Raises UsageError.
    """
    found, path = _reached(spec)
    made = found
    if isinstance(found, type) or (callable(found) and not isinstance(found, nn.Module)):
        failure = (
            f"{spec} cannot be made without arguments (REASON); name an instance, or a function without parameters that "
            "returns one"
        )
        with users_code(failure, UsageError):
            made = found()
    if not isinstance(made, nn.Module):
        raise UsageError(
            f"{spec} is a {type(made).__name__}; name an nn.Module, a class of modules, or a function that returns one"
        )
    if made is not found and not backward:
        made.eval()
    try:
        return made.get_submodule(path)
    except AttributeError as error:
        raise UsageError(f"{spec}: {error}; name a submodule by its path") from None


def load_examples(spec: str) -> list[Example]:
    """Positional and keyword arguments of each case, from an object or a function that `package.module:name` names.

    One case is a tensor, a tuple of arguments, a tuple of (arguments, keywords), or a dict of keywords; several cases
    are a list of these. Raises UsageError.
    """
    found = _found(spec)
    if callable(found) and not isinstance(found, torch.Tensor):
        with users_code(f"{spec} fails (REASON)", UsageError):
            found = found()
    examples = [_example(each, spec) for each in (found if isinstance(found, list) else [found])]
    if not examples:
        raise UsageError(f"{spec} is an empty list; give at least one tuple of arguments")
    return examples


def record(
    module: nn.Module, examples: Sequence[Example], spec: str, backward: bool = False
) -> Calls:
    """Call the module once on each example, with gradients in training mode or for `backward`.

    Raises UsageError if that fails.
    """
    with recording(module) as calls, torch.set_grad_enabled(module.training or backward):
        for number, (args, kwargs) in enumerate(examples, 1):
            which = f"example {number} of {spec}" if len(examples) > 1 else spec
            failure = (
                f"{type(module).__name__} cannot be called with {which} (REASON); return the arguments of its forward as "
                "a tuple, or as a dict of keywords"
            )
            with users_code(failure, UsageError):
                module(*args, **kwargs)
    return calls


def _example(value: Any, spec: str) -> Example:
    match value:
        case (tuple() as args, dict() as kwargs):
            return args, kwargs
        case tuple():
            return value, {}
        case dict():
            return (), value
        case torch.Tensor():
            return (value,), {}
    raise UsageError(
        f"{spec} gives a {type(value).__name__}; return a tuple of arguments, a dict of keywords, a tuple of both, or "
        "a list of these for several cases"
    )


def _found(spec: str) -> Any:
    found, rest = _reached(spec)
    if rest:
        raise UsageError(_no_such(spec))
    return found


def _reached(spec: str) -> tuple[Any, str]:
    """The object that a name leads to, and the rest of the name: after a class, the path of a submodule."""
    package, _, name = spec.partition(":")
    if not package or not name:
        raise UsageError(f"{spec!r} does not name an object; write package.module:Object")
    with users_code(f"{package} cannot be imported (REASON)", UsageError):
        module = import_module(package)
    found, parts = module, name.split(".")
    while parts and hasattr(found, parts[0]):
        found = getattr(found, parts.pop(0))
    if found is module:
        raise UsageError(_no_such(spec))
    return found, ".".join(parts)


def _no_such(spec: str) -> str:
    package, _, name = spec.partition(":")
    return (
        f"{package} has no {name}; define it there, or name another object as package.module:Object"
    )
