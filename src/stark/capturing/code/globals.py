"""Finds the globals on which the functions that ran depend, so that a kernel is not bound where they are others."""

from __future__ import annotations

import dis
import enum
import functools
import logging
import sys
import types
from collections.abc import Iterator
from typing import Any

import torch
from torch import nn

from stark.capturing.calls.observing import Observed
from stark.capturing.cannot import CannotCapture
from stark.capturing.code.attributes import DEEPEST, has_text, is_describable
from stark.capturing.code.copying import KNOWN_PACKAGES
from stark.capturing.code.definitions import IMPORTED
from stark.capturing.described import code, described, found, hidden
from stark.capturing.expressions.literals import is_constant

OF_TORCH = {"sympy", "mpmath", "networkx", "typing_extensions", "optree", "jinja2", "fsspec"}
"""Packages that torch calls while it runs a module, as for sizes that are symbols."""

OWN = {*IMPORTED, *OF_TORCH, "stark"}
"""Packages whose functions are left out."""

ENVIRONMENT = {("os", "environ"), ("os", "getenv")}
"""What a program reads of its environment, which is another elsewhere."""


def globals_of(observed: Observed) -> dict[str, str]:
    """Functions that ran, and the globals that their lines loaded, by `package.module:name`, as `code` shows them.

    torch and the standard library are left out. Raises CannotCapture for what cannot be described.
    """
    facts: dict[str, str] = {}
    for function, space in observed.functions.items():
        home = str(space.get("__name__"))
        if home.partition(".")[0] in OWN or home.endswith(".logging"):
            continue
        if home not in sys.modules or vars(sys.modules[home]) is not space:
            raise CannotCapture(f"{function.co_qualname} is code of {home}, which is not imported")
        name = f"{home}:{function.co_qualname}"
        if "<" not in name and (value := found(name)) is not None:
            facts[name] = code(value)
        for chain in _loaded(function, observed.lines[function.co_filename]):
            facts |= _facts(home, chain)
    return facts


def attributes_of(observed: Observed) -> set[str]:
    """The names of attributes, and the texts, in all functions that ran."""
    names: set[str] = set()
    for function, space in observed.functions.items():
        if str(space.get("__name__")).partition(".")[0] == "stark":
            continue
        names |= {*function.co_names, *(c for c in function.co_consts if isinstance(c, str))}
    return names


def _loaded(function: types.CodeType, lines: set[int]) -> Iterator[list[str]]:
    """The globals that the lines which ran load, each with the attributes that are read of it."""
    chain: list[str] = []
    for each in dis.get_instructions(function):
        if chain and each.opname in ("LOAD_ATTR", "LOAD_METHOD"):
            chain.append(each.argval)
            continue
        if chain:
            yield chain
        ran = each.positions is not None and each.positions.lineno in lines
        chain = [each.argval] if ran and each.opname in ("LOAD_GLOBAL", "LOAD_NAME") else []


def _facts(home: str, chain: list[str]) -> dict[str, str]:
    """What `chain`, as in `config.inner.width`, is in module `home`."""
    name, *rest = chain
    space = vars(sys.modules[home])
    if name not in space:
        return {}  # of Python
    value, path = space[name], f"{home}:{name}"
    while True:
        if isinstance(value, types.ModuleType):
            known = home.partition(".")[0] in KNOWN_PACKAGES
            if rest and (value.__name__, rest[0]) in ENVIRONMENT and not known:
                raise CannotCapture(f"{home} reads the environment ({value.__name__}.{rest[0]})")
            outside = value.__name__.partition(".")[0] in IMPORTED
            if outside or not rest or value.__name__ not in sys.modules:
                return {}
            return _facts(value.__name__, rest)
        if isinstance(value, logging.Logger | logging.LoggerAdapter):
            return {}
        if isinstance(value, type):
            return _of_class(value, path, rest)
        inside = getattr(value, "__dict__", {})
        if is_describable(value) or callable(value) or not rest or rest[0] not in inside:
            return _described(value, path)
        value, path, rest = inside[rest[0]], f"{path}.{rest[0]}", rest[1:]


def _of_class(kind: type, path: str, rest: list[str]) -> dict[str, str]:
    """A class, and its attribute that is read."""
    if "<locals>" in kind.__qualname__:
        raise CannotCapture(f"{path} is a class that was made in a function")
    known = {path: code(kind)}
    inner = vars(kind).get(rest[0]) if rest else None
    if is_constant(inner) and not isinstance(inner, enum.Enum) and rest and rest[0] in vars(kind):
        known[f"{path}.{rest[0]}"] = described(inner)
    return known


def _described(value: Any, path: str, depth: int = 0) -> dict[str, str]:
    """A value, or all parts of an object: nobody knows which of them are read."""
    if is_describable(value):
        secret = has_text(value) and (depth > 0 or not isinstance(value, str))
        return {path: hidden(value) if secret else code(value)}
    if isinstance(value, nn.Module | torch.Tensor) or depth > DEEPEST:
        raise CannotCapture(f"{path}, which it uses, is a {type(value).__name__}")
    wrapped = hasattr(value, "__wrapped__") or isinstance(value, functools.partial)
    if callable(value) and (wrapped or type(value).__module__.partition(".")[0] in IMPORTED):
        return {path: code(value)}
    if not hasattr(value, "__dict__") or isinstance(value, types.FunctionType | dict):
        raise CannotCapture(f"{path}, which it uses, is a {type(value).__name__} that has no text")
    facts: dict[str, str] = {}
    for name, inner in vars(value).items():
        facts |= _described(inner, f"{path}.{name}", depth + 1)
    return facts
