"""Parses Python source without running it, and lists the names that its top level binds."""

from __future__ import annotations

import ast
import warnings
from collections.abc import Iterator


def parse_python(source: str) -> ast.Module:
    """Parse any text. Raises only SyntaxError, and suppresses warnings about string escapes."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return _parsed(source)
        except ValueError as error:
            raise SyntaxError(str(error)) from error
        except (RecursionError, MemoryError) as error:
            raise SyntaxError("the code is nested too deeply") from error


def _parsed(source: str) -> ast.Module:
    try:
        return ast.parse(source)
    except SystemError:
        # CPython 3.11 fails if the garbage collector runs a finalizer that parses meanwhile, as printing a traceback does.
        # asyncio prints one when it finalizes a future whose exception was never retrieved. That is over now.
        return ast.parse(source)


def bindings(part: ast.AST) -> Iterator[tuple[str, ast.AST]]:
    """Every name that `part` binds in its own scope, in order, with the node that binds it.

    Descends into conditions and handlers, but not into functions, classes and comprehensions. The search is iterative,
    so deep nesting, such as a long sum, does not exceed the recursion limit.
    """
    waiting = [part]
    while waiting:
        match node := waiting.pop():
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                yield node.name, node
            case ast.Import() | ast.ImportFrom():
                for alias in node.names:
                    yield (alias.asname or alias.name).partition(".")[0], node
            case ast.Name(ctx=ast.Store()):
                yield node.id, node
            case ast.AnnAssign(value=None) | ast.Lambda():
                continue
            case ast.ListComp() | ast.SetComp() | ast.DictComp() | ast.GeneratorExp():
                continue
            case _:
                waiting += reversed(list(ast.iter_child_nodes(node)))
