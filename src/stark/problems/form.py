"""Checks, without running it, that a source has KernelBench's format.

Anything that the syntax tree cannot decide (an imported base class, a list built in a loop) passes here and is
checked by the judge.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from stark.core.python import bindings, parse_python

WHAT_TO_ADD = {
    "Model": "a class `Model(nn.Module)` whose `forward` is the computation",
    "get_inputs": "a function `get_inputs()` that returns the list of forward's arguments",
    "get_init_inputs": "a function `get_init_inputs()` that returns the list of Model's arguments (`[]` for none)",
}

Function = ast.FunctionDef | ast.AsyncFunctionDef

_BLOCKS = ast.stmt | ast.excepthandler | ast.match_case


def form_fault(source: str) -> str | None:
    """The first reason why this source is not a problem, as one sentence, or None."""
    try:
        tree = parse_python(source)
    except SyntaxError as error:
        return f"line {error.lineno or 1}: {error.msg}."
    parts = dict(bindings(tree))
    for name, what in WHAT_TO_ADD.items():
        if name not in parts:
            return f"line {_last_line(tree)}: {name} is missing; add {what}."
    model, inputs, init_inputs = (parts[name] for name in WHAT_TO_ADD)
    if not isinstance(model, ast.ClassDef):
        return None
    return (
        _forward_fault(model)
        or _fit_fault(inputs, _method(model, "forward"))
        or _fit_fault(init_inputs, _method(model, "__init__"))
    )


def defines_any_part(source: str) -> bool:
    """Whether the source is meant as a problem: it defines a part of one, or cannot be parsed."""
    try:
        tree = parse_python(source)
    except SyntaxError:
        return True
    return any(name in WHAT_TO_ADD for name, _ in bindings(tree))


def _last_line(tree: ast.Module) -> int:
    return tree.body[-1].end_lineno or 1 if tree.body else 1


def _method(model: ast.ClassDef, name: str) -> Function | None:
    for statement in model.body:
        if isinstance(statement, Function) and statement.name == name:
            return statement
    return None


def _forward_fault(model: ast.ClassDef) -> str | None:
    """A `Model` whose base is nn.Module must define forward; other bases may define it."""
    if any(name == "forward" for part in model.body for name, _ in bindings(part)):
        return None
    if not all(ast.unparse(base).endswith("Module") for base in model.bases):
        return None
    return f"line {model.lineno}: class Model has no forward; add `def forward(self, ...)` with the computation."


def _fit_fault(source: ast.AST, target: Function | None) -> str | None:
    """Why `target` cannot take the arguments that `source` returns, or None."""
    if target is None or target.decorator_list or not isinstance(source, Function):
        return None
    given = _returned_count(source)
    parameters = [arg.arg for arg in (*target.args.posonlyargs, *target.args.args)][1:]
    least = len(parameters) - len(target.args.defaults)
    if given is None or (given >= least and (given <= len(parameters) or target.args.vararg)):
        return None
    names = f" ({', '.join(parameters)})" if parameters else ""
    takes = "at least " * bool(target.args.vararg) + f"{len(parameters)}{names}"
    if least < len(parameters) and not target.args.vararg:
        takes = f"{least} to {takes}"
    return (
        f"line {target.lineno}: {target.name} takes {takes}, "
        f"and {source.name} (line {source.lineno}) returns {given}; make them match."
    )


def _returned_count(function: Function) -> int | None:
    """The length of the list that a function returns, or None unless all its returns are literals of one length."""
    counts = {_literal_length(found.value) for found in _returns(function)}
    return counts.pop() if len(counts) == 1 else None


def _returns(node: ast.AST) -> Iterator[ast.Return]:
    """The return statements of a function, without those of nested functions."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Return):
            yield child
        elif isinstance(child, _BLOCKS) and not isinstance(child, Function | ast.ClassDef):
            yield from _returns(child)


def _literal_length(value: ast.expr | None) -> int | None:
    match value:
        case ast.List(elts=elements) | ast.Tuple(elts=elements):
            starred = any(isinstance(element, ast.Starred) for element in elements)
            return None if starred else len(elements)
    return None
