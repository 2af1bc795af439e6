"""Finds a user's model and its inputs by name, and makes a run of them."""

from __future__ import annotations

import functools
from collections.abc import Callable
from importlib import import_module
from typing import Any

import torch
from torch import nn

from stark.core.errors import UsageError
from stark.explain.numbers import first_line


def load_model(notation: str) -> nn.Module:
    """The module that `package.module:name` names: a module, a function that returns one, or a class.

    A class is constructed without arguments and set to eval mode. Raises UsageError.
    """
    found = _found(notation)
    made = found if isinstance(found, nn.Module) else _called(found, notation)
    if not isinstance(made, nn.Module):
        raise UsageError(
            f"{notation} gives a {type(made).__name__}; name a module, a class of modules, or a function that returns one"
        )
    return made.eval() if isinstance(found, type) else made


def load_inputs(notation: str) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Positional and keyword arguments, from what `package.module:name` names.

    That is an object, or a function that returns one: a tuple of positional arguments, a dictionary of keyword
    arguments, a tuple of both, or the only argument. Raises UsageError.
    """
    found = _found(notation)
    match _called(found, notation) if callable(found) else found:
        case ((tuple() | list()) as args, dict() as kwargs):
            return tuple(args), kwargs
        case tuple() | list() as args:
            return tuple(args), {}
        case dict() as kwargs:
            return (), kwargs
        case only:
            return (only,), {}


def run_of(model: nn.Module, inputs: str) -> Callable[[], object]:
    """A call of the model with these inputs, without gradients unless the model is in training mode.

    It is tried once. Raises UsageError if the model does not take the inputs.
    """
    args, kwargs = load_inputs(inputs)

    def run() -> object:
        with torch.set_grad_enabled(model.training):
            return model(*args, **kwargs)

    try:
        run()
    except Exception as error:  # the user's code runs
        raise UsageError(
            f"{type(model).__name__} fails with the inputs {inputs}: {_said(error)}"
        ) from error
    return run


def _found(notation: str) -> Any:
    package, _, name = notation.partition(":")
    if not package or not name:
        raise UsageError(f"{notation!r} names nothing; write package.module:name")
    try:
        module = import_module(package)
    except Exception as error:  # the user's code runs
        raise UsageError(f"{package} cannot be imported: {_said(error)}") from error
    try:
        return functools.reduce(getattr, name.split("."), module)
    except AttributeError as error:
        raise UsageError(f"{package} has no {name}; write package.module:name") from error


def _called(function: Any, notation: str) -> Any:
    if not callable(function):
        return function
    try:
        return function()
    except Exception as error:  # the user's code runs
        raise UsageError(
            f"{notation} cannot be called without arguments: {_said(error)}"
        ) from error


def _said(error: Exception) -> str:
    return f"{type(error).__name__}: {first_line(str(error))}"
