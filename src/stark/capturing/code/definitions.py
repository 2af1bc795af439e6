"""Collects the definitions that copied code needs, and makes them part of one file.

torch, the standard library and numpy stay imports. Everything else is copied: functions, classes and constants, and
what they need in turn.
"""

from __future__ import annotations

import ast
import copy
import enum
import sys
import types
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from stark.capturing.cannot import CannotCapture
from stark.capturing.code.bindings import Imported, binding, makes
from stark.capturing.described import NAMED, code
from stark.capturing.expressions.literals import is_plain, literal, nested
from stark.capturing.expressions.stored import exact

IMPORTED = {"torch", "numpy", "einops", "triton"} | set(sys.stdlib_module_names)
"""Packages that captured files import. Code of all others is copied."""

RESERVED = {
    "Model", "ModelNew", "get_inputs", "get_init_inputs", "unpacked", "CASES", "OBJECTIVE", "BACKWARD", "ORIGINAL",
    "torch", "nn", "F",
}  # fmt: skip
MOST_CHARACTERS = 4000
"""Larger constants are not copied."""

Adapt = Callable[[ast.AST, str], ast.AST]


class Definitions:
    """The imports and definitions of one captured file, in the order in which they are needed."""

    def __init__(self, adapt: Adapt) -> None:
        self._adapt = adapt
        """Prepares copied code of a module (`stark.capturing.code.copying`), which may ask for more definitions."""

        self.imports: dict[str, str] = {"torch": "import torch", "nn": "import torch.nn as nn"}
        self.texts: dict[str, str] = {}
        self._here: dict[tuple[str, str], str] = {}
        self._open: set[str] = set()
        self._being_made: set[tuple[str, str]] = set()

    @property
    def code(self) -> dict[str, str]:
        """What was copied of the globals, by `package.module:name`: digests of sources, or the constants' values."""
        copied = (key for key, here in self._here.items() if here in self.texts)
        return {
            f"{module}:{name}": code(vars(sys.modules[module])[name]) for module, name in copied
        }

    @property
    def names(self) -> set[str]:
        """All names that the file binds at its top level."""
        return {*self.imports, *self.texts, *self._open, *RESERVED}

    def name_for(self, wanted: str) -> str:
        """A name that is still free, as close as possible to the wanted one."""
        name, count = wanted, 1
        while name in self.names:
            count += 1
            name = f"{wanted}{count}"
        return name

    def need(self, name: str, module: str) -> str:
        """Make global `name` of `module` available in the file; returns its name there."""
        if (module, name) not in self._here:
            self._being_made.add((module, name))
            self._here[module, name] = self._made(name, module)
        return self._here[module, name]

    def expression(self, value: Any) -> str | None:
        """An expression of a function, class or module that is known by its name; None if there is none."""
        home, name = getattr(value, "__module__", None), getattr(value, "__name__", "")
        for prefix, space in (("F", F), ("torch", torch), ("nn", nn)):
            if name and getattr(space, name, None) is value:
                if prefix == "F":
                    self.imports["F"] = "import torch.nn.functional as F"
                return f"{prefix}.{name}"
        if (
            home is None
            or home not in sys.modules
            or vars(sys.modules[home]).get(name) is not value
        ):
            return None
        if home == "builtins":
            return str(name)
        return self.need(name, home)

    def _made(self, name: str, module: str) -> str:
        space = vars(sys.modules[module])
        if name not in space or name.startswith("__"):
            raise CannotCapture(f"{name} is not defined in {module}")
        value = space[name]
        if isinstance(value, types.ModuleType):
            return self._import_module(name, value)
        bound = binding(module, name, value)
        if isinstance(bound, Imported):
            if bound.module.partition(".")[0] in IMPORTED:
                return self._import(name, f"from {bound.module} import {bound.name}")
            source = sys.modules.get(bound.module)
            if source is not None and vars(source).get(bound.name) is value:
                return self.need(bound.name, bound.module)
        if isinstance(bound, (ast.FunctionDef, ast.ClassDef)):
            return self._copy(name, bound, value, module)
        home, own = str(getattr(value, "__module__", "")), str(getattr(value, "__name__", ""))
        elsewhere = (home, own) != (module, name) and home in sys.modules
        if elsewhere and vars(sys.modules[home]).get(own) is value:
            return self.need(own, home)
        if isinstance(bound, ast.Assign) and callable(value) and makes(bound, value):
            return self._copy(name, bound, value, module)
        return self._constant(name, value, module)

    def _import_module(self, name: str, value: types.ModuleType) -> str:
        full = value.__name__
        if full.partition(".")[0] not in IMPORTED:
            raise CannotCapture(f"the module {full} is used as a value")
        usual = {"torch.nn": "nn", "torch.nn.functional": "F"}.get(full)
        if usual is not None:
            self.imports[usual] = f"import {full} as {usual}"
            return usual
        return self._import(name, f"import {full}" if full == name else f"import {full} as {name}")

    def _import(self, name: str, statement: str) -> str:
        here = name
        if self.imports.get(name) != statement:
            here = self.name_for(name)
            if not statement.endswith((f" {here}", f" as {here}")):
                statement = f"{statement.partition(' as ')[0]} as {here}"
            self.imports[here] = statement
        return here

    def _constant(self, name: str, value: Any, module: str) -> str:
        """A value as it is now, which may be another than at the start of the program."""
        try:
            text = self._now(value)
        except CannotCapture as error:
            raise CannotCapture(f"{name} of {module} cannot be copied: {error}") from None
        if len(text) > MOST_CHARACTERS:
            raise CannotCapture(f"the constant {name} of {module} is too large")
        here = name if self.texts.get(name) == f"{name} = {text}" else self.name_for(name)
        self.texts[here] = f"{here} = {text}"
        return here

    def _now(self, value: Any) -> str:
        if text := self.live(value, self._now):
            return text
        raise CannotCapture(f"a {type(value).__name__} has no expression")

    def live(self, value: Any, write: Callable[[Any], str]) -> str | None:
        """The expression of a value, whose parts `write` writes; None for objects and for unknown functions."""
        if is_plain(value):
            return literal(value)
        if isinstance(value, enum.Enum):
            return f"{write(type(value))}.{value.name}"
        if isinstance(value, torch.Tensor):
            return exact(value)
        if isinstance(value, NAMED):
            key = (value.__module__, value.__name__)
            return None if key in self._being_made - self._here.keys() else self.expression(value)
        return nested(value, write)

    def _copy(self, name: str, bound: Any, value: Any, module: str) -> str:
        if isinstance(value, type) and issubclass(value, nn.Module):
            raise CannotCapture(f"the code refers to the class {name} itself")
        here = self.name_for(name)
        self._here[module, name] = here
        self._open.add(here)
        tree = self._adapt(copy.deepcopy(bound), module)
        match tree:
            case ast.FunctionDef() | ast.ClassDef():
                tree.name = here
            case ast.Assign(targets=[ast.Name() as target]):
                target.id = here
            case _:
                raise CannotCapture(f"{name} of {module} is not assigned by itself")
        self.texts[here] = ast.unparse(ast.fix_missing_locations(tree))
        self._open.discard(here)
        return here


def free_names(tree: ast.AST) -> list[str]:
    """Names that a function or class reads and does not bind, roughly: scopes inside are not told apart."""
    bound: set[str] = set()
    loaded: dict[str, None] = {}
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=name, ctx=ast.Load()):
                if not hasattr(node, "placed"):
                    loaded[name] = None
            case ast.Name(id=name):
                bound.add(name)
            case ast.arg(arg=name):
                bound.add(name)
            case ast.ExceptHandler(name=str(name)):
                bound.add(name)
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name) if node is not tree:
                bound.add(name)
            case ast.alias():
                bound.add((node.asname or node.name).partition(".")[0])
            case _:
                pass
    return [name for name in loaded if name not in bound]
