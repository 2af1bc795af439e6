"""Writes attributes of modules as expressions: numbers, enums, functions, tensors, and objects such as a config."""

from __future__ import annotations

import contextlib
import functools
import types
from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch import nn

from stark.capturing.cannot import CannotCapture
from stark.capturing.code.copying import Copier
from stark.capturing.described import MISSING, NAMED, cells, described, hidden
from stark.capturing.expressions.literals import is_constant, is_plain

DEEPEST = 4
OF_NN_MODULE = {*vars(nn.Module()), "_is_hf_initialized"}
TENSOR_NAMES = {"shape", "dtype", "device", "size", "dim", "T", "mT", "data", "grad", "training"}
"""Attributes that code reads of tensors and modules; an object has them copied only if read directly."""


class Values:
    """Expressions of attribute values in the captured file."""

    def __init__(self, copier: Copier) -> None:
        self._copier = copier

    def expression(self, value: Any, name: str = "", depth: int = 0) -> str:
        """The expression of an attribute of this name. Raises CannotCapture if there is none."""
        if depth > DEEPEST and not is_plain(value):
            raise CannotCapture("objects are nested too deeply")
        if isinstance(value, functools.partial):
            return self._partial(value, depth)
        live = self._copier.definitions.live
        text = live(value, lambda part: self.expression(part, name, depth + 1))
        if text is None and isinstance(value, NAMED):
            raise CannotCapture(f"{value.__qualname__} is not defined at the top level of a module")
        return text or self._namespace(value, name, depth)

    def _partial(self, value: functools.partial[Any], depth: int) -> str:
        self._copier.definitions.imports["functools"] = "import functools"
        parts = [self.expression(each, "", depth + 1) for each in (value.func, *value.args)]
        parts += [
            f"{name}={self.expression(each, '', depth + 1)}"
            for name, each in value.keywords.items()
        ]
        return f"functools.partial({', '.join(parts)})"

    def _namespace(self, value: Any, name: str, depth: int) -> str:
        """An object, by those of its attributes that the copied code may read."""
        if callable(value) or isinstance(value, nn.Module) or hasattr(type(value), "__getitem__"):
            raise CannotCapture(f"an attribute is a {type(value).__qualname__}")
        read = {}
        for attribute, inner in self._inner(value, self._read(name)):
            with contextlib.suppress(CannotCapture):  # the check finds out whether it was needed
                read[attribute] = self.expression(inner, attribute, depth + 1)
        self._copier.definitions.imports["SimpleNamespace"] = "from types import SimpleNamespace"
        return f"SimpleNamespace({', '.join(f'{k}={v}' for k, v in read.items())})"

    def _read(self, name: str) -> set[str]:
        """Names of what the copied code may read of an attribute of this name."""
        direct = name in self._copier.nested and name not in self._copier.whole
        return self._copier.nested[name] if direct else self._copier.reads - TENSOR_NAMES

    @staticmethod
    def _inner(value: Any, names: set[str]) -> Iterator[tuple[str, Any]]:
        """The attributes of an object that have these names, without methods."""
        for attribute in sorted(names):
            if not attribute.isidentifier() or attribute.startswith("__"):
                continue
            inner = getattr(value, attribute, None)
            if hasattr(value, attribute) and (
                not callable(inner) or isinstance(inner, types.FunctionType | type)
            ):
                yield attribute, inner

    def missing(self, value: Any) -> dict[str, str]:
        """The attributes that code may ask an object for by `getattr` or `hasattr` and that it does not have."""
        return {name: MISSING for name in self._copier.asked if not hasattr(value, name)}

    def facts(self, value: Any, name: str, depth: int = 0) -> dict[str, str]:
        """The values on which the expression of an attribute depends, by dotted name, as `described` shows them."""
        if value is NotImplemented or depth > DEEPEST or isinstance(value, nn.Module):
            return {}
        if is_describable(value):
            parts = not isinstance(value, str) and has_text(value)  # not all of them may be read
            return {name: hidden(value) if parts else described(value)}
        found = {f"{name}.__class__": described(type(value))}
        if not callable(value) and hasattr(value, "__dict__"):
            found |= {f"{name}.{each}": MISSING for each in self.missing(value)}
            names = self._read(name.rpartition(".")[2]) | self._copier.tested
            for attribute, inner in self._inner(value, names):
                found |= self.facts(inner, f"{name}.{attribute}", depth + 1)
        return found


def constant_buffers(module: nn.Module) -> dict[str, str]:
    """A module's own buffers that a kernel may have as constants, as `described` shows them.

    They are those that the judge does not change: not in the state, of whole numbers, or with the values of a mask.
    """
    of_torch = type(module).__module__.startswith("torch.")
    if of_torch or isinstance(module, nn.modules.batchnorm._NormBase):
        return {}  # counters and statistics
    return {
        name: described(buffer)
        for name, buffer in module._buffers.items()
        if buffer is not None
        and (
            name in module._non_persistent_buffers_set
            or not (buffer.is_floating_point() or buffer.is_complex())
            or not _may_change(buffer)
        )
    }


def _may_change(buffer: torch.Tensor) -> bool:
    """Whether the judge perturbs a buffer of this content."""
    values = (torch.view_as_real(buffer.resolve_conj()) if buffer.is_complex() else buffer).double()
    if buffer.numel() > 1 and bool((values == values.reshape(buffer.numel(), -1)[0]).all()):
        return True
    whole = values.isfinite().logical_not() | (values == values.round())
    return not bool((values == 0).any()) and not bool(whole.any())


def is_describable(value: Any, around: tuple[Any, ...] = ()) -> bool:
    """Whether `described` shows everything that the expression of a value depends on."""

    def each(values: Iterable[Any]) -> bool:
        return all(is_describable(value, around) for value in values)

    if isinstance(value, functools.partial):
        return each((value.func, *value.args, *value.keywords.values()))
    if isinstance(value, types.FunctionType) and "<" in value.__qualname__ and value not in around:
        around = (*around, value)
        defaults = (*(value.__defaults__ or ()), *(value.__kwdefaults__ or {}).values())
        return each([*(inner for _, inner in cells(value)), *defaults])
    if isinstance(value, type):
        return "<" not in value.__qualname__
    if type(value) in (list, tuple):
        return each(value)
    if isinstance(value, dict):
        return each((*value, *value.values()))
    return is_constant(value) or isinstance(value, (*NAMED, torch.Tensor))


def has_text(value: Any) -> bool:
    """Whether a description of the value may show a text."""
    if isinstance(value, functools.partial):
        return has_text([*value.args, *value.keywords.values()])
    if isinstance(value, dict):
        return has_text([*value, *value.values()])
    if isinstance(value, tuple | list | set | frozenset):
        return any(map(has_text, value))
    return isinstance(value, str | bytes)
