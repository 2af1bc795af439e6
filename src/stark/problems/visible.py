"""Checks that a problem contains the code that the models are asked to replace."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator

from stark.core.errors import ProblemError
from stark.core.problem import Problem
from stark.core.python import parse_python

KNOWN = frozenset({"einops", "numpy", "torch"})
"""Packages whose functions a model knows well enough to replace calls of them."""


def check_visible(problem: Problem) -> None:
    """Raise ProblemError if the problem imports another package: a prompt would not show that package's code."""
    for name, line in _imports(problem.source):
        if name.partition(".")[0] not in KNOWN | sys.stdlib_module_names:
            raise ProblemError(
                f"{problem.name}, line {line}: the problem imports {name}, so the models would not see the code that they "
                "must replace; capture your module with stark.capture, which writes a self-contained problem, or copy "
                "that code into the file"
            )


def _imports(source: str) -> Iterator[tuple[str, int]]:
    """The full name and the line of every module that is imported anywhere in the source."""
    for node in ast.walk(parse_python(source)):
        match node:
            case ast.Import(names=names):
                yield from ((alias.name, node.lineno) for alias in names)
            case ast.ImportFrom(module=module, level=level):
                yield "." * level + (module or ""), node.lineno
