"""Collects the definitions that copied code needs, and makes them part of one file.

torch, the standard library and numpy stay imports. Everything else is copied: functions, classes and constants, and
what they need in turn.
"""

from __future__ import annotations

import ast
import builtins
import copy
import functools
import importlib.util
import inspect
import sys
import types
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from stark.capture.cannot import CannotCapture
from stark.capture.literals import is_plain, literal

IMPORTED = {"torch", "numpy", "einops", "triton"} | set(sys.stdlib_module_names)
"""Packages that captured files import. Code of all others is copied."""

RESERVED = {
    "Model", "ModelNew", "get_inputs", "get_init_inputs", "unpacked", "CASES", "OBJECTIVE", "BACKWARD", "ORIGINAL",
    "torch", "nn", "F",
}  # fmt: skip
MOST_ENTRIES = 64
"""Constants with more entries are not copied."""

Adapt = Callable[[ast.AST, str], ast.AST]


class Definitions:
    """The imports and definitions of one captured file, in the order in which they are needed."""

    def __init__(self, adapt: Adapt) -> None:
        self._adapt = adapt
        """Prepares copied code of a module (`stark.capture.copying`), which may ask for more definitions."""

        self.imports: dict[str, str] = {"torch": "import torch", "nn": "import torch.nn as nn"}
        self.texts: dict[str, str] = {}
        self._here: dict[tuple[str, str], str] = {}
        self._open: set[str] = set()

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
        if name not in space:
            raise CannotCapture(f"{name} is not defined in {module}")
        value, bound = space[name], _binding(module, name)
        if isinstance(value, types.ModuleType):
            return self._import_module(name, value)
        if isinstance(bound, tuple):
            source, original = _home(bound[0], bound[1], module)
            if source.partition(".")[0] in IMPORTED:
                return self._import(name, f"from {source} import {original}")
            if vars(sys.modules[source]).get(original) is value:
                return self.need(original, source)
        if is_plain(value) and not isinstance(bound, (ast.FunctionDef, ast.ClassDef)):
            return self._constant(name, value, module)
        if isinstance(bound, (ast.FunctionDef, ast.ClassDef)):
            return self._copy(name, bound, value, module)
        if isinstance(bound, (ast.Assign, ast.AnnAssign)) and _is_small(value):
            return self._copy(name, bound, value, module)
        home = getattr(value, "__module__", None)
        if bound is None and home in sys.modules and home != module:
            return self.need(value.__name__, home)
        raise CannotCapture(f"{name} of {module}, a {type(value).__name__}, cannot be copied")

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
        if len(text := literal(value)) > 4000:
            raise CannotCapture(f"the constant {name} of {module} is too large")
        here = name if self.texts.get(name) == f"{name} = {text}" else self.name_for(name)
        self.texts[here] = f"{here} = {text}"
        return here

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


def _is_small(value: Any) -> bool:
    """Whether an assigned value can be copied by its statement."""
    if isinstance(value, (dict, list, tuple, set)):
        return len(value) <= MOST_ENTRIES
    return callable(value) or isinstance(value, (torch.Tensor, torch.Size))


def _home(statement: ast.ImportFrom | ast.Import, alias: ast.alias, module: str) -> tuple[str, str]:
    """The module and the name that an import statement of `module` refers to."""
    if isinstance(statement, ast.Import):
        return alias.name, alias.name
    source = statement.module or ""
    if statement.level:
        package = sys.modules[module].__package__
        source = importlib.util.resolve_name("." * statement.level + source, package)
    return source, alias.name


@functools.cache
def _binding(module: str, name: str) -> Any:
    """The last statement at a module's top level that binds a name; for an import, the statement and its alias."""
    found: Any = None
    waiting: list[ast.stmt] = list(reversed(_tree(module).body))
    while waiting:
        statement = waiting.pop()
        match statement:
            case ast.FunctionDef() | ast.ClassDef() if statement.name == name:
                found = statement
            case ast.Import() | ast.ImportFrom():
                for alias in statement.names:
                    if (alias.asname or alias.name.partition(".")[0]) == name:
                        found = (statement, alias)
            case ast.Assign() if any(_is_name(t, name) for t in statement.targets):
                found = statement
            case ast.AnnAssign(target=ast.Name(id=target), value=value) if target == name and value:
                found = ast.copy_location(ast.Assign([statement.target], value), statement)
            case ast.If() | ast.With():
                waiting += reversed([*statement.body, *getattr(statement, "orelse", [])])
            case ast.Try():
                handled = [each for handler in statement.handlers for each in handler.body]
                waiting += reversed([*statement.body, *handled, *statement.orelse])
            case _:
                pass
    return found


def _is_name(target: ast.expr, name: str) -> bool:
    return any(isinstance(each, ast.Name) and each.id == name for each in ast.walk(target))


@functools.cache
def _tree(module: str) -> ast.Module:
    try:
        return ast.parse(inspect.getsource(sys.modules[module]))
    except (OSError, TypeError, SyntaxError):
        raise CannotCapture(f"there is no Python source of {module}") from None


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
    return [n for n in loaded if n not in bound and not hasattr(builtins, n)]
