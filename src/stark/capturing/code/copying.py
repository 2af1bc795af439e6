"""Prepares copied code for the captured file: no annotations, no foreign decorators, no logging, global names resolved."""

from __future__ import annotations

import ast
import logging
import sys
import types
from collections.abc import Mapping
from typing import Any

from torch import nn

from stark.capturing.calls.observing import Observed
from stark.capturing.cannot import CannotCapture
from stark.capturing.code.branches import Fixed, Fold, Prune, Shorten, asked, paths_of_self
from stark.capturing.code.definitions import IMPORTED, Definitions, free_names

KEPT_DECORATORS = {
    "staticmethod", "classmethod", "property", "dataclass", "dataclasses.dataclass", "functools.cached_property",
    "cached_property",
    "torch.no_grad", "torch.enable_grad", "torch.inference_mode", "torch.autocast", "torch.amp.autocast",
    "torch.cuda.amp.autocast", "triton.jit", "triton.autotune", "triton.heuristics", "functools.cache",
    "functools.lru_cache", "lru_cache", "cache", "once_differentiable", "enum.unique", "torch.amp.custom_fwd",
    "torch.amp.custom_bwd", "torch.autograd.function.once_differentiable",
}  # fmt: skip
DROPPED_DECORATORS = {
    "override", "typing.override", "torch.jit.ignore", "torch.jit.unused", "torch.jit.export", "torch._jit_internal.ignore",
    "torch.compiler.disable", "torch._dynamo.disable", "torch.fx.wrap",
    # transformers: documentation, deprecation warnings and registration with its hub of kernels
    "use_kernel_forward_from_hub", "use_kernel_func_from_hub", "use_kernelized_func", "deprecate_kwarg", "auto_docstring",
    # timm: registration with torch.fx
    "register_notrace_function", "register_notrace_module",
}  # fmt: skip
"""Decorators of these packages that do not change what a function computes. Others make capture by source fail."""

KNOWN_PACKAGES = {"typing", "torch", "transformers", "timm"}

LOGGING = {"warning_once", "warn", "warning", "info", "debug", "info_once"}


class Copier:
    """Adapts functions and classes to the captured file. Asks `definitions` for what they need."""

    def __init__(self, observed: Observed, prune: bool) -> None:
        self._observed, self._prune = observed, prune
        self.definitions = Definitions(self.adapt)
        self.reads: set[str] = set()
        """Names of attributes that the copied code reads, as attributes or as texts."""

        self.nested: dict[str, set[str]] = {}
        """For each attribute, the attributes that are read directly of it, as in `self.config.width`."""

        self.whole: set[str] = set()
        """Attributes that are used in other ways too, so that any of their attributes may be read."""

        self.tested: set[str] = set()
        """Names of attributes that only the tests of branches read that were left out."""

        self.asked: set[str] = set()
        """Names of attributes that code asks for by `getattr` or `hasattr` of other objects than `self`."""

        self.code: dict[str, str] = {}
        """Digests of methods by `package.module:name`."""

        self.dropped = 0
        """The number of branches that were left out because they did not run."""

    def adapt(self, tree: ast.AST, module: str) -> ast.AST:
        """A function, class or statement of a module that is no method of a captured module."""
        if isinstance(tree, ast.FunctionDef):
            return self.function(tree, module, None, {})
        if isinstance(tree, ast.ClassDef):
            tree = _ClassFields().visit(tree)
        return self._resolved(tree, module)

    def function(
        self,
        tree: ast.FunctionDef,
        module: str,
        owner: nn.Module | None,
        constants: Mapping[str, Any],
        changing: frozenset[str] = frozenset(),
        decisive: set[str] | None = None,
    ) -> ast.FunctionDef:
        """A function of `module`, or a method of `owner`, with decided branches folded.

        `changing` are attributes of `self` that may change during forward. Attributes that decided a branch are added
        to `decisive`.
        """
        space = vars(sys.modules[module])
        if any(isinstance(each, ast.Global | ast.Nonlocal) for each in ast.walk(tree)):
            raise CannotCapture(f"{tree.name} (line {tree.lineno}) assigns names outside of itself")
        fixed = Fixed(tree, owner, space, constants, changing)
        tree = Fold(fixed, self._placed).visit(tree)
        decisive = set() if decisive is None else decisive
        decisive |= fixed.used
        tests = list(fixed.decided)
        lines = self._observed.lines.get(
            getattr(sys.modules[module], "__file__", None) or "", set()
        )
        prune = Prune(lines)
        if self._prune and prune.applies_to(tree):
            tree = prune.visit(tree)
            self.dropped += len(prune.tests)
            tests += prune.tests
        for test in tests:
            decisive |= paths_of_self(test)
            self._note_asked(test)
            nodes = list(ast.walk(test))
            self.tested |= {each.attr for each in nodes if isinstance(each, ast.Attribute)}
            texts = (each.value for each in nodes if isinstance(each, ast.Constant))
            self.tested |= {value for value in texts if isinstance(value, str)}
        tree = Shorten().visit(_WithoutLogging(space).visit(tree))
        return self._resolved(tree, module)  # type: ignore[return-value]

    def _placed(self, value: Any) -> ast.expr | None:
        """A function found in a dispatch table, as an expression whose names are not resolved again."""
        text = self.definitions.expression(value)
        return None if text is None else _marked(ast.parse(text, mode="eval").body)

    def _resolved(self, tree: ast.AST, module: str) -> ast.AST:
        tree = _Plain(module).visit(tree)
        tree = _OfModules(module, self.definitions).visit(tree)
        names: dict[str, str] = {}
        space = vars(sys.modules[module])
        for name in free_names(tree):
            if name in ("self", "__class__", "super"):
                continue
            if name not in space:
                continue  # bound in a branch that was dropped, or in an enclosing class
            names[name] = self.definitions.need(name, module)
        for node in ast.walk(tree):
            if isinstance(node, ast.Name) and not hasattr(node, "placed"):
                node.id = names.get(node.id, node.id)
        self._note_asked(tree)
        self._note_read(tree)
        return tree

    def _note_asked(self, tree: ast.AST) -> None:
        paths = (path for node in ast.walk(tree) if (path := asked(node)) is not None)
        self.asked |= {path.attr for path in paths if not paths_of_self(path)}

    def _note_read(self, tree: ast.AST) -> None:
        inner: set[int] = set()  # a walk comes to outer nodes first
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
                self.reads.add(node.attr)
                if isinstance(node.value, ast.Attribute):
                    self.nested.setdefault(node.value.attr, set()).add(node.attr)
                    inner.add(id(node.value))
                if id(node) not in inner:
                    self.whole.add(node.attr)
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                self.reads.add(node.value)


def _marked(expression: ast.expr) -> ast.expr:
    for node in ast.walk(expression):
        if isinstance(node, ast.Name):
            node.placed = True  # type: ignore[attr-defined]
    return expression


class _Plain(ast.NodeTransformer):
    """Removes annotations and decorators without effect; raises CannotCapture for others."""

    def __init__(self, module: str) -> None:
        self._module = module

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.FunctionDef:
        """No annotations; only decorators of torch and Python."""
        node.returns = None
        if text := ast.get_docstring(node):
            node.body[0] = ast.Expr(ast.Constant(text.partition("\n")[0].strip()))
        node.decorator_list = [each for each in node.decorator_list if self._kept(each, node.name)]
        self.generic_visit(node)
        return node

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.ClassDef:
        """Only decorators of torch and Python."""
        node.decorator_list = [each for each in node.decorator_list if self._kept(each, node.name)]
        self.generic_visit(node)
        return node

    def visit_arg(self, node: ast.arg) -> ast.arg:
        """No annotation."""
        node.annotation = None
        return node

    def visit_AnnAssign(self, node: ast.AnnAssign) -> Any:
        """An assignment without its annotation, but for fields of a class."""
        self.generic_visit(node)
        if getattr(node, "is_field", False):
            return node
        if node.value is None:
            return None
        return ast.copy_location(ast.Assign([node.target], node.value), node)

    def _kept(self, decorator: ast.expr, function: str) -> bool:
        plain = ast.unparse(decorator.func if isinstance(decorator, ast.Call) else decorator)
        if plain in KEPT_DECORATORS or plain.rpartition(".")[2] in ("setter", "getter"):
            return True
        value = _dotted(ast.parse(plain, mode="eval").body, vars(sys.modules[self._module]))
        home = str(getattr(value, "__module__", "")).partition(".")[0]
        names = {plain, plain.rpartition(".")[2]}
        if names & DROPPED_DECORATORS and home in KNOWN_PACKAGES:
            return False
        raise CannotCapture(
            f"{function} (line {decorator.lineno} of {self._module}) is decorated by {plain}"
        )


class _ClassFields(ast.NodeTransformer):
    """Keeps the fields of dataclasses and named tuples, without the names in their annotations."""

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.ClassDef:
        """The fields of this class."""
        for statement in node.body:
            if isinstance(statement, ast.AnnAssign):
                statement.annotation = ast.Name("object", ast.Load())
                statement.is_field = True  # type: ignore[attr-defined]
        return node


class _OfModules(ast.NodeTransformer):
    """`ops.scale` becomes `scale`, where `ops` is a module of the user's package."""

    def __init__(self, module: str, definitions: Definitions) -> None:
        self._space, self._definitions = vars(sys.modules[module]), definitions

    def visit_Attribute(self, node: ast.Attribute) -> ast.expr:
        """An attribute of a module whose code is copied."""
        self.generic_visit(node)
        value = _dotted(node.value, self._space)
        _refuse_replaced(value, node.attr)
        if isinstance(value, types.ModuleType) and value.__name__.partition(".")[0] not in IMPORTED:
            if isinstance(vars(value).get(node.attr), types.ModuleType):
                return node
            name = self._definitions.need(node.attr, value.__name__)
            return _marked(ast.copy_location(ast.Name(name, ast.Load()), node))
        return node


def _refuse_replaced(module: Any, name: str) -> None:
    """Raise CannotCapture for a function of torch that another package replaced while the program ran."""
    if isinstance(module, types.ModuleType) and module.__name__.partition(".")[0] == "torch":
        value = vars(module).get(name)
        home = str(getattr(value, "__module__", "torch"))
        if isinstance(value, types.FunctionType) and home.partition(".")[0] not in IMPORTED:
            raise CannotCapture(f"{module.__name__}.{name} was replaced by a function of {home}")


def _dotted(node: ast.expr, space: Mapping[str, Any]) -> Any:
    """The value of a dotted name that begins at the module's top level; None for other expressions."""
    match node:
        case ast.Name(id=name):
            return space.get(name)
        case ast.Attribute(value=inner, attr=attribute):
            outer = _dotted(inner, space)
            return vars(outer).get(attribute) if isinstance(outer, types.ModuleType) else None
    return None


class _WithoutLogging(ast.NodeTransformer):
    """Drops statements that only log."""

    def __init__(self, space: Mapping[str, Any]) -> None:
        self._space = space

    def visit_Expr(self, node: ast.Expr) -> Any:
        """A call such as `logger.warning(...)`."""
        match node.value:
            case ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr=method)) if (
                method in LOGGING
            ):
                if isinstance(self._space.get(name), logging.Logger | logging.LoggerAdapter):
                    return None
        return node
