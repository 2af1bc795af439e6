"""Writes attributes of modules as expressions: numbers, enums, functions, tensors, and objects such as a config."""

from __future__ import annotations

import enum
import functools
import types
from typing import Any

import torch
from torch import nn

from stark.capturing.cannot import CannotCapture
from stark.capturing.copying import Copier
from stark.capturing.literals import is_plain, literal, nested
from stark.capturing.stored import exact

DEEPEST = 4
TENSOR_NAMES = {"shape", "dtype", "device", "size", "dim", "T", "mT", "data", "grad", "training"}
"""Attributes that code reads of tensors and modules; an object has them copied only if read directly."""


class Values:
    """Expressions of attribute values in the captured file."""

    def __init__(self, copier: Copier) -> None:
        self._copier = copier

    def expression(self, value: Any, name: str = "", depth: int = 0) -> str:
        """The expression of an attribute of this name. Raises CannotCapture if there is none."""
        if is_plain(value):
            return literal(value)
        if depth > DEEPEST:
            raise CannotCapture("objects are nested too deeply")
        if isinstance(value, enum.Enum):
            return f"{self._named(type(value))}.{value.name}"
        if isinstance(value, functools.partial):
            return self._partial(value, depth)
        if isinstance(value, types.FunctionType | types.BuiltinFunctionType | type):
            return self._named(value)
        if isinstance(value, torch.Tensor):
            return exact(value)
        text = nested(value, lambda each: self.expression(each, name, depth + 1))
        return text or self._namespace(value, name, depth)

    def _named(self, value: Any) -> str:
        text = self._copier.definitions.expression(value)
        if text is None:
            name = getattr(value, "__qualname__", repr(value))
            raise CannotCapture(f"{name} is not defined at the top level of a module")
        return text

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
        direct = name in self._copier.nested and name not in self._copier.whole
        names = self._copier.nested[name] if direct else self._copier.reads - TENSOR_NAMES
        for attribute in sorted(names):
            if not attribute.isidentifier() or attribute.startswith("__"):
                continue
            try:
                inner = getattr(value, attribute)
                if not callable(inner) or isinstance(inner, types.FunctionType | type):
                    read[attribute] = self.expression(inner, attribute, depth + 1)
            except (AttributeError, CannotCapture):
                continue  # the check of the captured file finds out whether it was needed
        self._copier.definitions.imports["SimpleNamespace"] = "from types import SimpleNamespace"
        return f"SimpleNamespace({', '.join(f'{k}={v}' for k, v in read.items())})"
