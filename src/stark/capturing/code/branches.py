"""Leaves out branches of a module's code: those that its attributes and constants decide, and those that no call took."""

from __future__ import annotations

import ast
import copy
import enum
import re
import types
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import nn
from torch.overrides import TorchFunctionMode

from stark.capturing.calls.observing import PRESENT, READING_METHODS
from stark.capturing.cannot import users_code
from stark.capturing.expressions.literals import is_plain

PURE = {isinstance, hasattr, getattr, len, bool, callable, issubclass}
"""Functions that a decision may call."""

NOT_CAPTURING = {
    torch.jit.is_scripting,  # type: ignore[attr-defined]
    torch.jit.is_tracing,  # type: ignore[attr-defined]
    torch.compiler.is_compiling,
    torch.compiler.is_dynamo_compiling,
    torch.compiler.is_exporting,
}
"""Questions whose answer is no where a captured module runs."""

LOOKUPS = {"get", "get_interface"}
"""Methods of dispatch tables."""


class Unknown(Exception):
    """An expression depends on more than fixed values."""


class _NoReading(TorchFunctionMode):
    """Raises Unknown where a decision reads a tensor, as in `not self.ready`: buffers change, and come with the state."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if getattr(func, "__name__", "") in READING_METHODS:
            raise Unknown
        return func(*args, **(kwargs or {}))


class Fixed:
    """Evaluates expressions of one method on what is fixed: `self`, module-level names and constant arguments."""

    def __init__(
        self,
        tree: ast.FunctionDef,
        owner: nn.Module | None,
        space: Mapping[str, Any],
        constants: Mapping[str, Any],
        changing: frozenset[str] = frozenset(),
    ) -> None:
        stored = names_stored(tree)
        parameters = {n.arg for n in ast.walk(tree) if isinstance(n, ast.arg)}
        self._constants = {n: v for n, v in constants.items() if n not in stored}
        self._unknown = (stored | parameters) - set(self._constants) - {"self"}
        self._space, self._owner = space, owner
        self.decided: list[ast.expr] = []
        """Expressions that were evaluated."""

        self.used: set[str] = set()
        """Attributes of `self`, dotted if nested, on which values depend."""

        self._changing = changing
        """Attributes of `self` that methods assign."""

    def value(self, expression: ast.expr) -> Any:
        """The value. Raises Unknown if it is not fixed."""
        for node in ast.walk(expression):
            self._check(node)
        names: dict[str, Any] = {**self._space, **self._constants}
        if self._owner is not None:
            names["self"] = self._owner
        self.used |= paths_of_self(expression)
        self.decided.append(expression)
        code = ast.Expression(copy.deepcopy(expression))
        with users_code("REASON", Unknown), _NoReading():
            return eval(compile(ast.fix_missing_locations(code), "<folding>", "eval"), names)

    def is_given(self, name: str) -> bool:
        """Whether an argument is never None."""
        return self._constants.get(name) is PRESENT

    def _check(self, node: ast.AST) -> None:
        match node:
            case ast.Attribute(value=ast.Name(id="self"), attr=attribute):
                fixed = attribute not in self._changing
            case ast.Name(id="self"):
                fixed = self._owner is not None
            case ast.Name(id=name):
                fixed = name not in self._unknown and self._constants.get(name) is not PRESENT
            case ast.Call(func=ast.Name(id="getattr" | "hasattr")) if asked(node) is None:
                fixed = False
            case ast.Call(func=function):
                fixed = self._is_pure(function)
            case ast.Await() | ast.Yield() | ast.YieldFrom() | ast.NamedExpr() | ast.Lambda():
                fixed = False
            case ast.ListComp() | ast.SetComp() | ast.DictComp() | ast.GeneratorExp():
                fixed = False
            case _:
                fixed = True
        if not fixed:
            raise Unknown

    def _is_pure(self, function: ast.expr) -> bool:
        called = self.value(function)
        if isinstance(called, types.MethodType):
            return isinstance(called.__self__, Mapping) and called.__name__ in LOOKUPS
        if isinstance(called, types.BuiltinMethodType) and isinstance(called.__self__, Mapping):
            return called.__name__ in LOOKUPS
        return (isinstance(called, types.BuiltinFunctionType | type) and called in PURE) or (
            isinstance(called, types.FunctionType) and called in NOT_CAPTURING
        )


def names_stored(tree: ast.AST) -> set[str]:
    """Names that the code assigns or deletes."""
    names = (node for node in ast.walk(tree) if isinstance(node, ast.Name))
    return {name.id for name in names if not isinstance(name.ctx, ast.Load)}


def paths_of_self(tree: ast.AST) -> set[str]:
    """Dotted paths such as `config.hidden_size`, for `self.config.hidden_size` and `getattr(self.config, "hidden_size")`."""
    nodes = (_Asked().visit(copy.deepcopy(each)) for each in ast.walk(tree) if _is_read(each))
    texts = (ast.unparse(node) for node in nodes)
    return {text[5:] for text in texts if re.fullmatch(r"self(\.\w+)+", text)}


def _is_read(node: ast.AST) -> bool:
    return isinstance(node, ast.Attribute) or asked(node) is not None


def asked(node: ast.AST) -> ast.Attribute | None:
    """`x.name`, for `getattr(x, "name")` and `hasattr(x, "name")`, with or without a default; None for other code."""
    match node:
        case ast.Call(
            func=ast.Name(id="getattr" | "hasattr"), args=[value, ast.Constant(value=str(name)), *_]
        ):
            return ast.Attribute(value, name, ast.Load())
    return None


class _Asked(ast.NodeTransformer):
    """`getattr` and `hasattr` become attributes."""

    def visit_Call(self, node: ast.Call) -> ast.AST:
        """One call."""
        self.generic_visit(node)
        return asked(node) or node


class Fold(ast.NodeTransformer):
    """Replaces decided branches by the branch taken, and lookups in dispatch tables by the function found."""

    def __init__(self, fixed: Fixed, place: Callable[[Any], ast.expr | None]) -> None:
        self._fixed = fixed
        self._place = place
        """The expression of a function in the captured file; None if it has none."""

    def visit_If(self, node: ast.If) -> Any:
        """A decided `if` becomes its body or its else part."""
        node.test = self._test(node.test)
        if isinstance(node.test, ast.Constant):
            return visited(self, node.body if node.test.value else node.orelse)
        return self.generic_visit(node)

    def visit_IfExp(self, node: ast.IfExp) -> Any:
        """A decided conditional expression becomes one side."""
        node.test = self._test(node.test)
        if isinstance(node.test, ast.Constant):
            return self.visit(node.body if node.test.value else node.orelse)
        return self.generic_visit(node)

    def visit_BoolOp(self, node: ast.BoolOp) -> Any:
        """`x or default` where x is decided."""
        self.generic_visit(node)
        kept = list(node.values)
        while len(kept) > 1:
            try:
                decided = self._truth(kept[0])
            except Unknown:
                break
            if decided is isinstance(node.op, ast.Or):
                return kept[0]
            kept.pop(0)
        return kept[0] if len(kept) == 1 else ast.copy_location(ast.BoolOp(node.op, kept), node)

    def visit_Call(self, node: ast.Call) -> Any:
        """A lookup in a table becomes the function found."""
        return self._looked_up(node)

    def visit_Subscript(self, node: ast.Subscript) -> Any:
        """A lookup in a table becomes the function found."""
        return self._looked_up(node) if isinstance(node.ctx, ast.Load) else self.generic_visit(node)

    def visit_Assert(self, node: ast.Assert) -> Any:
        """An assertion that holds goes."""
        node.test = self._test(node.test)
        return None if isinstance(node.test, ast.Constant) and node.test.value else node

    def _looked_up(self, node: ast.expr) -> ast.AST:
        try:
            value = self._fixed.value(node)
        except Unknown:
            return self.generic_visit(node)
        if isinstance(value, types.FunctionType | types.BuiltinFunctionType):
            return self._place(value) or self.generic_visit(node)
        if type(value) in (bool, str, type(None)) and isinstance(node, ast.Call):
            return ast.copy_location(ast.Constant(value), node)
        return self.generic_visit(node)

    def _test(self, test: ast.expr) -> ast.expr:
        """A test, as a constant if it is decided and without its decided parts otherwise."""
        try:
            return ast.copy_location(ast.Constant(self._truth(test)), test)
        except Unknown:
            pass
        match test:
            case ast.BoolOp(op=op, values=values):
                return self._parts(test, op, [self._test(each) for each in values])
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                inner = self._test(operand)
                if isinstance(inner, ast.Constant):
                    return ast.copy_location(ast.Constant(not inner.value), test)
                return ast.copy_location(ast.UnaryOp(ast.Not(), inner), test)
        return test

    @staticmethod
    def _parts(test: ast.expr, op: ast.boolop, parts: list[ast.expr]) -> ast.expr:
        ending = isinstance(op, ast.Or)
        kept: list[ast.expr] = []
        for part in parts:
            if not isinstance(part, ast.Constant):
                kept.append(part)
            elif bool(part.value) is ending:
                if not kept:
                    return ast.copy_location(ast.Constant(ending), test)
                kept.append(part)
                break
        if not kept:
            return ast.copy_location(ast.Constant(not ending), test)
        return kept[0] if len(kept) == 1 else ast.copy_location(ast.BoolOp(op, kept), test)

    def _truth(self, test: ast.expr) -> bool:
        match test:
            case ast.Compare(
                left=ast.Name(id=name),
                ops=[ast.Is() | ast.IsNot() as op],
                comparators=[ast.Constant(value=None)],
            ) if self._fixed.is_given(name):
                return isinstance(op, ast.IsNot)
        value = self._fixed.value(test)
        if not (
            is_plain(value)
            or isinstance(value, enum.Enum | types.FunctionType | nn.Module | Mapping)
        ):
            raise Unknown
        return bool(value)


class Shorten(ast.NodeTransformer):
    """Drops statements that cannot be reached, and fills bodies that became empty."""

    def generic_visit(self, node: ast.AST) -> ast.AST:
        """Every list of statements."""
        super().generic_visit(node)
        for name in ("body", "orelse", "finalbody"):
            body = getattr(node, name, None)
            if isinstance(body, list):
                ends = (ast.Return, ast.Raise, ast.Continue, ast.Break)
                last = next((i for i, s in enumerate(body) if isinstance(s, ends)), len(body))
                body[last + 1 :] = []
                if name == "body" and not body:
                    body.append(ast.Pass())
        return node


class Prune(ast.NodeTransformer):
    """Drops `if` branches without a line that ran.

    This is exact only if control flow does not depend on the values of tensors: the caller ensures that (`source`).
    """

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
        if _is_kept(node.test):
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
                    and not _is_kept(statement.test)
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


def _is_kept(test: ast.expr) -> bool:
    """Whether a test has an effect, or nobody knows which attributes it reads."""
    for node in ast.walk(test):
        match node:
            case ast.NamedExpr() | ast.Attribute(attr="__dict__"):
                return True
            case ast.Name(id="getattr" | "hasattr" | "vars") if not any(
                asked(call) is not None and call.func is node  # type: ignore[attr-defined]
                for call in ast.walk(test)
            ):
                return True
    return False
