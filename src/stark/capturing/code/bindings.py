"""Finds the statements of a module that bind its names."""

from __future__ import annotations

import ast
import functools
import importlib.util
import inspect
import sys
import types
from typing import Any, NamedTuple

from stark.capturing.cannot import CannotCapture


class Imported(NamedTuple):
    """Where an import statement takes a name from."""

    module: str
    name: str


def binding(module: str, name: str, value: Any) -> ast.stmt | Imported | None:
    """The statement at a module's top level that binds a name to `value`; None if there is none.

    Functions and classes that were replaced while the program ran have none: their statement makes another object.
    """
    found = _bindings(module, name)
    if isinstance(value, types.FunctionType):
        code = inspect.unwrap(value).__code__
        lines = {code.co_firstlineno}
        if code.co_filename != getattr(sys.modules[module], "__file__", code.co_filename):
            lines = set()
        defined = [each for each in found if isinstance(each, ast.FunctionDef)]
        for each in defined:
            first = min([each.lineno, *(d.lineno for d in each.decorator_list)])
            if lines & {first, each.lineno}:
                return each
        found = [each for each in found if each not in defined]
    if isinstance(value, type) and (value.__module__, value.__qualname__) != (module, name):
        found = [each for each in found if not isinstance(each, ast.ClassDef)]
    return found[-1] if found else None


def makes(statement: ast.Assign, value: Any) -> bool:
    """Whether an assignment can have made this value, rather than code that replaced it later."""
    if not isinstance(value, types.FunctionType):
        return True
    last = statement.end_lineno or statement.lineno
    return statement.lineno <= value.__code__.co_firstlineno <= last


@functools.cache
def _bindings(module: str, name: str) -> list[ast.stmt | Imported]:
    """All statements that bind the name, in order; branches included."""
    found: list[ast.stmt | Imported] = []
    waiting: list[ast.stmt] = list(reversed(_tree(module).body))
    while waiting:
        statement = waiting.pop()
        match statement:
            case ast.FunctionDef() | ast.ClassDef() if statement.name == name:
                found.append(statement)
            case ast.Import() | ast.ImportFrom():
                found += [
                    _home(statement, alias, module)
                    for alias in statement.names
                    if (alias.asname or alias.name.partition(".")[0]) == name
                ]
            case ast.Assign() if any(_is_name(t, name) for t in statement.targets):
                found.append(statement)
            case ast.AnnAssign(target=ast.Name(id=target), value=value) if target == name and value:
                found.append(ast.copy_location(ast.Assign([statement.target], value), statement))
            case ast.If() | ast.With():
                waiting += reversed([*statement.body, *getattr(statement, "orelse", [])])
            case ast.Try():
                handled = [each for handler in statement.handlers for each in handler.body]
                waiting += reversed([*statement.body, *handled, *statement.orelse])
            case _:
                pass
    return found


def _home(statement: ast.ImportFrom | ast.Import, alias: ast.alias, module: str) -> Imported:
    if isinstance(statement, ast.Import):
        return Imported(alias.name, alias.name)
    source = statement.module or ""
    if statement.level:
        package = sys.modules[module].__package__
        source = importlib.util.resolve_name("." * statement.level + source, package)
    return Imported(source, alias.name)


def _is_name(target: ast.expr, name: str) -> bool:
    return any(isinstance(each, ast.Name) and each.id == name for each in ast.walk(target))


@functools.cache
def _tree(module: str) -> ast.Module:
    try:
        return ast.parse(inspect.getsource(sys.modules[module]))
    except (OSError, TypeError, SyntaxError):
        raise CannotCapture(f"there is no Python source of {module}") from None
