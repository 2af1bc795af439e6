"""Generates variants of a problem at other shapes, by changing an integer constant in its file.

The caller must run a variant's reference to see whether the variant is valid.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from stark.core.problem import Problem
from stark.core.python import parse_python


def variants(problem: Problem) -> Iterator[tuple[Problem, str]]:
    """Yield a variant per top-level integer constant, in file order, and the change as text, such as `N = 33`.

    By turns, a constant becomes about half and about twice as large: some arithmetic overflows only in longer sums or
    recurrences. 1 and 2 become 2 and 3. Few tile sizes divide the new value.
    """
    for place, (name, node, value) in enumerate(_sizes(parse_python(problem.source))):
        other = value + 1 if value <= 2 else value // 2 + 1 if place % 2 == 0 else 2 * value + 1
        yield _with_constant(problem, node, other), f"{name} = {other}"


def _sizes(tree: ast.Module) -> Iterator[tuple[str, ast.Constant, int]]:
    """The positive integer constants at the top level."""
    for statement in tree.body:
        match statement:
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Constant(value=value) as node):
                if type(value) is int and value > 0:
                    yield name, node, value


def _with_constant(problem: Problem, node: ast.Constant, value: int) -> Problem:
    """Replace one constant in its line, so that line numbers stay the same."""
    lines = problem.source.split("\n")  # as `ast` does; `splitlines` also splits at form feeds
    line = lines[node.lineno - 1].encode()
    changed = line[: node.col_offset] + str(value).encode() + line[node.end_col_offset :]
    lines[node.lineno - 1] = changed.decode()
    return problem.model_copy(update={"source": "\n".join(lines)})
