"""Finds the library functions that a parsed Python file uses.

Works on the syntax tree only: comments and docstrings do not count, and kernel sources only in `texts`.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator


def names_used(tree: ast.Module) -> frozenset[str]:
    """Every dotted name that the file reads, with import aliases resolved.

    After `from tvm_ffi import cpp as ffi`, the expression `ffi.load_inline` becomes `tvm_ffi.cpp.load_inline`.
    """
    return frozenset(name for _, name in _names(tree))


def uses(tree: ast.Module, names: Collection[str]) -> list[ast.Call | None]:
    """Every read of one of these dotted names: the call, or None if the name is not called there."""
    calls = {id(node.func): node for node in ast.walk(tree) if isinstance(node, ast.Call)}
    return [calls.get(id(node)) for node, name in _names(tree) if name in names]


def texts(tree: ast.Module) -> Iterator[str]:
    """Every string literal, kernel sources included, except docstrings."""
    docstrings = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Constant)
            and id(node) not in docstrings
            and isinstance(node.value, str)
        ):
            yield node.value


def keyword_given(tree: ast.Module, keyword: str) -> bool:
    """Whether any call passes this keyword with something other than None or an empty literal."""
    return any(
        node.arg == keyword and not is_empty(node.value)
        for node in ast.walk(tree)
        if isinstance(node, ast.keyword)
    )


def _names(tree: ast.Module) -> Iterator[tuple[ast.AST, str]]:
    """Every expression that is a dotted name, with each name that it may resolve to."""
    aliases, stars = _imports(tree)
    for node in ast.walk(tree):
        dotted = _dotted(node)
        if dotted is not None:
            head, _, rest = dotted.partition(".")
            tail = f".{rest}" if rest else ""
            yield node, aliases.get(head, head) + tail
            yield from ((node, f"{module}.{dotted}") for module in stars)


def _imports(tree: ast.Module) -> tuple[dict[str, str], list[str]]:
    """The full name of each imported name, and the modules imported by `*`."""
    aliases: dict[str, str] = {}
    stars: list[str] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            aliases.update((alias.asname, alias.name) for alias in node.names if alias.asname)
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            for alias in node.names:
                if alias.name == "*":
                    stars.append(node.module)
                else:
                    aliases[alias.asname or alias.name] = f"{node.module}.{alias.name}"
    return aliases, stars


def _dotted(node: ast.AST) -> str | None:
    """`a.b.c` if the expression reads such a name, else None."""
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
        return node.id
    if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
        value = _dotted(node.value)
        return f"{value}.{node.attr}" if value else None
    return None


def is_empty(value: ast.expr) -> bool:
    """Whether an expression is None, an empty literal, or a list of such."""
    match value:
        case ast.Constant():
            return not value.value
        case ast.List() | ast.Tuple():
            return all(is_empty(element) for element in value.elts)
    return False
