"""Reads a parsed Python file for what it defines and which library functions it uses.

Works on the syntax tree only, so words in comments, docstrings and kernel sources mean nothing.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator


def binds(tree: ast.Module, name: str) -> bool:
    """Whether the file's top level defines `name`: by a class, an assignment or an import."""
    return any(name in _bound_by(statement) for statement in _top_level(tree.body))


def names_used(tree: ast.Module) -> frozenset[str]:
    """Every dotted name that is read anywhere, with import aliases written out.

    After `from tvm_ffi import cpp as ffi`, the expression `ffi.load_inline` is found as
    `tvm_ffi.cpp.load_inline`.
    """
    aliases, stars = _imports(tree)
    found: set[str] = set()
    for node in ast.walk(tree):
        dotted = _dotted(node)
        if dotted is not None:
            head, _, rest = dotted.partition(".")
            tail = f".{rest}" if rest else ""
            found.add(aliases.get(head, head) + tail)
            found.update(f"{module}.{dotted}" for module in stars)
    return frozenset(found)


def keyword_given(tree: ast.Module, keyword: str) -> bool:
    """Whether any call passes this keyword with something other than None or an empty literal."""
    return any(
        node.arg == keyword and not _is_empty(node.value)
        for node in ast.walk(tree)
        if isinstance(node, ast.keyword)
    )


def _top_level(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """The statements that run when the file is imported, those under `if`, `try` and `with` included."""
    for statement in body:
        yield statement
        if isinstance(statement, ast.If | ast.Try | ast.With):
            inner = [node for node in ast.iter_child_nodes(statement) if isinstance(node, ast.stmt)]
            yield from _top_level(inner)


def _bound_by(statement: ast.stmt) -> set[str]:
    match statement:
        case ast.ClassDef() | ast.FunctionDef():
            return {statement.name}
        case ast.Assign():
            return {target.id for target in statement.targets if isinstance(target, ast.Name)}
        case ast.Import() | ast.ImportFrom():
            return {alias.asname or alias.name for alias in statement.names}
    return set()


def _imports(tree: ast.Module) -> tuple[dict[str, str], list[str]]:
    """What each imported name stands for, and the modules that are imported whole by `*`."""
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
    """`a.b.c` for such an expression that is read, else None."""
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
        return node.id
    if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
        value = _dotted(node.value)
        return f"{value}.{node.attr}" if value else None
    return None


def _is_empty(value: ast.expr) -> bool:
    match value:
        case ast.Constant():
            return not value.value
        case ast.List() | ast.Tuple():
            return all(_is_empty(element) for element in value.elts)
    return False
