"""Divides the arguments of recorded calls into tensors, which the captured Model takes, and constants."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from torch import nn

from stark.capturing.literals import is_constant
from stark.capturing.recording import Example, Form
from stark.capturing.values import leaves_of, tensors_of
from stark.core.errors import ProblemError


@dataclass(frozen=True)
class Binding:
    """How forward is called in all forms of one problem."""

    signature: inspect.Signature
    arguments: tuple[str, ...]
    """Names whose values contain tensors, in the order of forward's parameters."""

    constants: dict[str, Any]
    """All other names with their values."""

    def values(self, example: Example) -> list[Any]:
        """The values of `arguments` in one call."""
        bound = _bound(self.signature, example)
        return [bound[name] for name in self.arguments]

    @property
    def keywords(self) -> str | None:
        """The name of forward's `**kwargs`, if it has them."""
        kinds = self.signature.parameters.values()
        return next((p.name for p in kinds if p.kind is p.VAR_KEYWORD), None)


def bind(module: nn.Module, form: Form) -> Binding:
    """Divide the arguments of one form. Raises ProblemError for a value that is neither tensors nor a constant."""
    assert form.example is not None
    signature = inspect.signature(module.forward)
    values = _bound(signature, form.example)
    for name, value in values.items():
        _refuse_objects(module, name, value)
    arguments = tuple(name for name, value in values.items() if tensors_of(value))
    constants = {name: value for name, value in values.items() if name not in arguments}
    return Binding(signature, arguments, constants)


def _bound(signature: inspect.Signature, example: Example) -> dict[str, Any]:
    """Values by name, defaults included; the names of `**kwargs` come last, as names of their own."""
    args, kwargs = example
    bound = signature.bind(*args, **kwargs)
    bound.apply_defaults()
    values = dict(bound.arguments)
    for parameter in signature.parameters.values():
        if parameter.kind is parameter.VAR_KEYWORD:
            values |= values.pop(parameter.name)
    return values


def _refuse_objects(module: nn.Module, name: str, value: Any) -> None:
    kind = type(module).__name__
    if is_constant(value):
        return
    usable = tensors_of(value) and _is_plain_structure(value)
    odd = next(leaves_of(value), None if usable else value)
    if odd is None:
        return
    if "cache" in type(odd).__name__.lower():
        raise ProblemError(
            f"{kind}.forward takes a {type(odd).__name__} as {name}, which it changes; record a call without a cache, "
            "for example model(..., use_cache=False)."
        )
    raise ProblemError(
        f"{kind}.forward takes a {type(odd).__qualname__} as {name}; capture a submodule that takes tensors and plain "
        "values only, or pass its tensors as arguments."
    )


def _is_plain_structure(value: Any) -> bool:
    """Whether a value is nested of tuples, lists and dicts only, without subclasses of them."""
    if isinstance(value, (tuple, list)):
        return type(value) in (tuple, list) and all(map(_is_plain_structure, value))
    if isinstance(value, dict):
        return type(value) is dict and all(map(_is_plain_structure, value.values()))
    return True


def together(module: nn.Module, forms: Sequence[Form]) -> tuple[Binding, list[Form]]:
    """The forms that one Model can serve, beginning with the one called most."""
    first = bind(module, forms[0])
    kept = [forms[0]]
    for form in forms[1:]:
        try:
            other = bind(module, form)
        except ProblemError:
            continue
        same = (other.arguments, repr(other.constants)) == (first.arguments, repr(first.constants))
        if same and form.training == forms[0].training:
            kept.append(form)
    return first, kept
