"""Turns recorded forms into cases of one problem: which arguments are tensors, which are constants, names and weights."""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.utils import _pytree as pytree

from stark.capturing.calls.recording import Example, Form
from stark.capturing.calls.values import form_of, leaves_of, tensors_of
from stark.capturing.expressions.literals import is_constant
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


MOST_CASES = 8
"""Each case is verified and timed, so more would take long."""


@dataclass(frozen=True)
class Case:
    """One input set."""

    name: str
    weight: float
    form: Form


def make_cases(
    binding: Binding, forms: Sequence[Form], asked: Mapping[str, float] | None = None
) -> list[Case]:
    """One case for each form of the tensors, weighted by the number of calls, the heaviest first.

    `asked` chooses cases by name, with other weights. Raises ProblemError for a name that does not exist.
    """
    merged: dict[object, list[Form]] = {}
    for form in forms:
        assert form.example is not None
        values = pytree.tree_map_only(
            torch.Tensor, torch.Tensor.detach, binding.values(form.example)
        )
        merged.setdefault(form_of(values), []).append(form)
    groups = sorted(merged.values(), key=lambda group: -sum(form.calls for form in group))
    names = _names(binding, [group[0] for group in groups])
    made = [
        Case(name, float(sum(form.calls for form in group)), max(group, key=lambda form: form.grad))
        for name, group in zip(names, groups, strict=True)
    ]
    if asked is None:
        return made
    known = {case.name: case for case in made}
    for name in asked:
        if name not in known:
            raise ProblemError(
                f"There is no case {name!r}; the recorded calls give {', '.join(known)}."
            )
    return [Case(name, float(weight), known[name].form) for name, weight in asked.items()]


def _names(binding: Binding, forms: Sequence[Form]) -> list[str]:
    """Names by shape, such as `2x16x64`; with the dtype or a number where shapes are the same."""
    tensors = [
        tensors_of(binding.values(form.example)) for form in forms if form.example is not None
    ]
    differing = next(
        (i for i in range(min(map(len, tensors))) if len({each[i].shape for each in tensors}) > 1),
        0,
    )
    shapes = ["x".join(map(str, each[differing].shape)) or "scalar" for each in tensors]
    dtypes = [str(each[differing].dtype).removeprefix("torch.") for each in tensors]
    if len(set(shapes)) < len(shapes) and len(set(dtypes)) > 1:
        shapes = [f"{shape}-{dtype}" for shape, dtype in zip(shapes, dtypes, strict=True)]
    seen: Counter[str] = Counter()
    names = []
    for shape in shapes:
        seen[shape] += 1
        names.append(shape if seen[shape] == 1 else f"{shape}-{seen[shape]}")
    return names
