"""Selects the top-level statements of a Python file that are needed to define given names.

Used to turn the code that `torch.compile` generates into a candidate, which gets only those statements of the generated
file and of the problem's file that it needs. Works on the text and its syntax tree. Nothing is executed.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from stark.core.python import bindings


@dataclass(frozen=True)
class Piece:
    """One top-level statement. An import of several names is split into one piece per name."""

    text: str
    tree: ast.stmt

    @property
    def binds(self) -> frozenset[str]:
        """The names that it defines at the top level."""
        return frozenset(_bound(self.tree))

    @property
    def uses(self) -> frozenset[str]:
        """The global and built-in names that it reads anywhere."""
        return frozenset(_read(self.tree))

    @property
    def is_import(self) -> bool:
        """Whether it is an import."""
        return isinstance(self.tree, ast.Import | ast.ImportFrom)

    @property
    def is_main(self) -> bool:
        """Whether it is an `if __name__ == "__main__"` block."""
        return isinstance(self.tree, ast.If) and "__name__" in _read(self.tree.test)


def split(source: str) -> list[Piece]:
    """The file's statements, each with the comments directly above it. Splits imports by name.

    Raises SyntaxError.
    """
    lines = source.split("\n")
    pieces: list[Piece] = []
    for statement in ast.parse(source).body:
        begin = min(
            [statement.lineno, *(d.lineno for d in getattr(statement, "decorator_list", []))]
        )
        while begin > 1 and lines[begin - 2].startswith("#"):
            begin -= 1
        if isinstance(statement, ast.Import | ast.ImportFrom):
            pieces += _imports(statement)
        else:
            text = "\n".join(lines[begin - 1 : statement.end_lineno])
            pieces.append(Piece(text, statement))
    return pieces


def needed(pieces: Iterable[Piece], names: Iterable[str]) -> list[Piece]:
    """The pieces that these names need, directly or indirectly, and all pieces that define no name.

    Keeps their order. Drops duplicates.
    """
    there = list({piece.text: piece for piece in pieces}.values())
    wanted, kept = set(names), [not piece.binds for piece in there]
    wanted |= {name for piece in there if not piece.binds for name in piece.uses}
    grows = True
    while grows:
        grows = False
        for index, piece in enumerate(there):
            if not kept[index] and piece.binds & wanted:
                kept[index] = grows = True
                wanted |= piece.uses
    return [piece for piece, is_kept in zip(there, kept, strict=True) if is_kept]


def _imports(statement: ast.Import | ast.ImportFrom) -> Iterator[Piece]:
    for alias in statement.names:
        one = copy.copy(statement)
        one.names = [alias]
        yield Piece(ast.unparse(one), one)


def _read(tree: ast.AST) -> set[str]:
    """The names that a part of the file reads and does not bind itself.

    A function binds its parameters and local variables.
    """
    if isinstance(tree, ast.Name):
        return set() if isinstance(tree.ctx, ast.Store) else {tree.id}
    if isinstance(tree, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
        body = tree.body if isinstance(tree.body, list) else [tree.body]
        own = {part.arg for part in ast.walk(tree.args) if isinstance(part, ast.arg)}
        own |= {name for part in body for name in _bound(part)}
        own -= {
            name for part in ast.walk(tree) if isinstance(part, ast.Global) for name in part.names
        }
        outside = [part for part in ast.iter_child_nodes(tree) if part not in body]
        inside = {name for part in body for name in _read(part)} - own
        return inside | {name for part in outside for name in _read(part)}
    return {name for part in ast.iter_child_nodes(tree) for name in _read(part)}


def _bound(node: ast.AST) -> Iterator[str]:
    """The names that a node binds in its own scope. Imports from `__future__` are ignored."""
    if isinstance(node, ast.ImportFrom) and node.module == "__future__":
        return
    yield from (name for name, _ in bindings(node))
