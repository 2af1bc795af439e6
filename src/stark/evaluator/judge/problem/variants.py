"""The same problem at other shapes: the integer constants at the top of its file, changed one at a time.

Whether a changed problem still makes sense is for the caller to find out by running its reference.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from stark.core.problem import Problem


@dataclass(frozen=True)
class Variant:
    """A problem with one constant changed, and the change in words."""

    problem: Problem
    change: str


def variants(problem: Problem) -> Iterator[Variant]:
    """One for each constant, in the order of the file; smaller, and no multiple of what kernels work in."""
    tree = ast.parse(problem.source)
    for statement in tree.body:
        match statement:
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Constant(value=value) as node):
                if type(value) is int and value > 0:
                    other = value // 2 + 1 if value > 2 else value + 1
                    yield Variant(_with(problem, node, other), f"{name} = {other}")


def _with(problem: Problem, node: ast.Constant, value: int) -> Problem:
    """The problem with one constant replaced where it stands, so that line numbers stay."""
    lines = problem.source.split("\n")  # as `ast` counts them: a form feed ends none
    line = lines[node.lineno - 1].encode()
    changed = line[: node.col_offset] + str(value).encode() + line[node.end_col_offset :]
    lines[node.lineno - 1] = changed.decode()
    return problem.model_copy(update={"source": "\n".join(lines)})
