"""Drops branches that no recorded call went through.

This is exact only if control flow does not depend on the values of tensors: the caller ensures that (`source`).
"""

from __future__ import annotations

import ast
from typing import Any


class Prune(ast.NodeTransformer):
    """Drops `if` branches without a line that ran."""

    def __init__(self, lines: set[int]) -> None:
        self._lines = lines
        self.tests: list[ast.expr] = []
        """Tests of the branches that were dropped."""

    def applies_to(self, function: ast.FunctionDef) -> bool:
        """Whether the function was called at all; code that never ran is kept as it is."""
        return self._ran(function.body)

    def generic_visit(self, node: ast.AST) -> ast.AST:
        """In each list of statements, an `if` that always left makes the rest unreachable."""
        for name in ("body", "orelse", "finalbody"):
            if isinstance(body := getattr(node, name, None), list):
                setattr(node, name, self._shortened(body))
        return super().generic_visit(node)

    def visit_If(self, node: ast.If) -> Any:
        """Keep the parts that ran."""
        if _assigns(node.test):
            return self.generic_visit(node)
        body, orelse = self._ran(node.body), self._ran(node.orelse)
        if not body and not orelse and node.test.lineno not in self._lines:
            return node  # in a part of the function that did not run and was kept
        if body and (orelse or not node.orelse):
            return self.generic_visit(node)
        self.tests.append(node.test)
        return visited(self, self._shortened(node.body if body else node.orelse if orelse else []))

    def _shortened(self, body: list[ast.stmt]) -> list[ast.stmt]:
        for index, statement in enumerate(body):
            match statement:
                case ast.If(orelse=[], body=[*_, ast.Return() | ast.Raise()]) if (
                    self._ran(statement.body)
                    and body[index + 1 :]
                    and not self._ran(body[index + 1 :])
                    and not _assigns(statement.test)
                ):
                    self.tests.append(statement.test)
                    return [*body[:index], *self._shortened(statement.body)]
        return body

    def _ran(self, body: list[ast.stmt]) -> bool:
        return any(
            getattr(each, "lineno", None) in self._lines for part in body for each in ast.walk(part)
        )


def visited(transformer: ast.NodeTransformer, body: list[ast.stmt]) -> list[ast.stmt]:
    """The statements after the transformer has visited each."""
    made: list[ast.stmt] = []
    for statement in body:
        found = transformer.visit(statement)
        made += found if isinstance(found, list) else [found] if found else []
    return made


def _assigns(test: ast.expr) -> bool:
    return any(isinstance(each, ast.NamedExpr) for each in ast.walk(test))
