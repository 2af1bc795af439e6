"""The top level of a Python file in pieces: what each binds and uses, and which of them some names need.

Works on texts and their syntax trees; nothing is run.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from stark.core.python import bindings


@dataclass(frozen=True)
class Piece:
    """One statement of a file's top level, or one name of an import there."""

    text: str
    tree: ast.stmt

    @property
    def binds(self) -> frozenset[str]:
        """The names that it gives a meaning at the top level."""
        return frozenset(_bound(self.tree))

    @property
    def uses(self) -> frozenset[str]:
        """The names of the file's top level, or of Python, that are read anywhere in it."""
        return frozenset(_read(self.tree))

    @property
    def is_import(self) -> bool:
        """Whether it is an import."""
        return isinstance(self.tree, ast.Import | ast.ImportFrom)

    @property
    def is_main(self) -> bool:
        """Whether it is what only runs when the file is the program."""
        return isinstance(self.tree, ast.If) and "__name__" in _read(self.tree.test)


def split(source: str) -> list[Piece]:
    """The file's statements, each with the comments right above it; of imports each name by itself. Raises SyntaxError."""
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
    """The pieces that these names need, directly or through others, and all that bind no name, in their order.

    A piece that is there twice is needed once.
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
    """The names that a part of the file reads and does not bind itself, as a function does its parameters and variables."""
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
    """What a part binds where it stands. An import from `__future__` is for the whole file, and named nowhere."""
    if isinstance(node, ast.ImportFrom) and node.module == "__future__":
        return
    yield from (name for name, _ in bindings(node))
