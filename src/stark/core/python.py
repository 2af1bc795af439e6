"""Reading a Python file without running it: its syntax tree or why there is none, and what its top level binds."""

from __future__ import annotations

import ast
import warnings
from collections.abc import Iterator


def parse_python(source: str) -> ast.Module:
    """The syntax tree of any text. Raises SyntaxError only, and prints no warning about escapes in strings."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return ast.parse(source)
        except SyntaxError:
            raise
        except ValueError as error:
            raise SyntaxError(str(error)) from error
        except (RecursionError, MemoryError) as error:
            raise SyntaxError("it nests too deeply") from error


def bindings(part: ast.AST) -> Iterator[tuple[str, ast.AST]]:
    """Every name that a part of a file binds where it stands, in order, each with the node that does.

    What runs only under a condition or in a handler is looked into; functions, classes and comprehensions are
    not. Whatever is nested a thousand deep, as a long sum is, can be read.
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
            case ast.AnnAssign(value=None):
                continue
            case (
                ast.Lambda() | ast.ListComp() | ast.SetComp() | ast.DictComp() | ast.GeneratorExp()
            ):
                continue
            case _:
                waiting += reversed(list(ast.iter_child_nodes(node)))
