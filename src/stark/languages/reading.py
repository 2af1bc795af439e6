"""Finds the library functions that a parsed Python file uses."""

from __future__ import annotations

import ast


def names_used(tree: ast.Module) -> frozenset[str]:
    """Every dotted name that the file reads, with import aliases resolved; comments and strings do not count.

    After `from tvm_ffi import cpp as ffi`, the expression `ffi.load_inline` becomes `tvm_ffi.cpp.load_inline`.
    """
    aliases, stars = _imports(tree)
    names: set[str] = set()
    for node in ast.walk(tree):
        if dotted := _dotted(node):
            head, dot, rest = dotted.partition(".")
            names.add(aliases.get(head, head) + dot + rest)
            names.update(f"{module}.{dotted}" for module in stars)
    return frozenset(names)


def _imports(tree: ast.Module) -> tuple[dict[str, str], list[str]]:
    """The full name of each imported name, and the modules imported by `from module import *`."""
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
    """The dotted name that the expression reads, such as `a.b.c`, or None if it is another kind of expression."""
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
        return node.id
    if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
        value = _dotted(node.value)
        return f"{value}.{node.attr}" if value else None
    return None
