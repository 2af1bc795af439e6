"""Collects the methods that a module's forward needs, with `super()` resolved."""

from __future__ import annotations

import ast
import contextlib
import functools
import inspect
import textwrap
import types
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from stark.capturing.cannot import CannotCapture
from stark.capturing.code.branches import paths_of_self
from stark.capturing.code.copying import DROPPED_DECORATORS, KNOWN_PACKAGES, Copier
from stark.capturing.code.definitions import IMPORTED
from stark.capturing.described import code

HARMLESS_CALLS = {"GradientCheckpointingLayer"}
"""Classes whose `__call__` only adds what training uses."""

OF_PYTHON = tuple(str(Path(file).parent) for file in (torch.__file__, contextlib.__file__))
"""Where wrappers come from that appear as decorators in the source, such as `torch.no_grad()`."""

NOT_IN_FORWARD = {
    "__init__",
    "reset_parameters",
    "_reset_parameters",
    "__setstate__",
    "init_weights",
}
"""Methods that run when a module is made."""

SPECIAL = (
    "__call__",
    "__getattr__",
    "__getattribute__",
    "__setattr__",
    "_call_impl",
    "_wrapped_call_impl",
)


@dataclass(frozen=True)
class Methods:
    """The methods of one module that go into the captured file."""

    base: type[nn.Module]
    """The class of torch that the captured class derives from."""

    trees: dict[str, ast.FunctionDef]
    read: tuple[str, ...] = ()
    """Attributes of `self`, dotted if nested, that the code reads or that decided one of its branches."""


def torch_base(kind: type[nn.Module]) -> type[nn.Module]:
    """The nearest base in torch.nn; for a class of torch.nn itself, nn.Module, so that its code is copied."""
    for base in kind.__mro__[1:]:
        if getattr(nn, base.__name__, None) is base and issubclass(base, nn.Module):
            return base  # type: ignore[no-any-return]
    return nn.Module


def methods_of(module: nn.Module, copier: Copier, constants: Mapping[str, Any]) -> Methods:
    """Copy forward and every method that it needs. Raises CannotCapture with the class and the line."""
    kind, base = type(module), torch_base(type(module))
    _refuse_special(module, base)
    own = kind.__mro__[: kind.__mro__.index(base)]
    trees: dict[str, ast.FunctionDef] = {}
    read: set[str] = set()
    changing = frozenset(name for each in own for name in _assigned_by(each))
    waiting = [("forward", "forward", own)]
    while waiting:
        here, name, classes = waiting.pop(0)
        if here in trees:
            continue
        home = next((each for each in classes if name in vars(each)), None)
        if home is None:
            continue
        function = _function(vars(home)[name], f"{home.__name__}.{name}", module)
        if function is None:
            continue
        if (
            function.__module__.partition(".")[0] not in IMPORTED
            and "<" not in function.__qualname__
        ):
            copier.code[f"{function.__module__}:{function.__qualname__}"] = code(function)
        given = constants if here == "forward" else {}  # a base may get others
        tree = _tree(function, f"{home.__name__}.{name}")
        if not isinstance(vars(home)[name], staticmethod | classmethod):
            _name_self(tree)
        _SelfByName(own).visit(tree)
        after = own[own.index(home) + 1 :]
        supers = _Super(after)
        tree = copier.function(tree, function.__module__, module, given, changing, read)
        read |= paths_of_self(tree)
        tree = supers.visit(tree)
        tree.name = here
        trees[here] = tree
        copier.reads |= set(supers.needed)
        waiting += [(called, method, after) for called, method in supers.needed.items()]
        waiting += [(read, read, own) for read in _read_of_self(tree)]
    return Methods(base, trees, tuple(sorted(read)))


def _refuse_special(module: nn.Module, base: type[nn.Module]) -> None:
    kind = type(module)
    if "forward" in vars(module):
        raise CannotCapture(f"forward of a {kind.__name__} was replaced on the instance")
    for each in kind.__mro__[: kind.__mro__.index(base)]:
        for name in SPECIAL:
            if name in vars(each) and not (name == "__call__" and _is_harmless(each)):
                raise CannotCapture(f"{each.__name__} defines {name}")
    if getattr(module, "gradient_checkpointing", False) and module.training:
        raise CannotCapture(f"{kind.__name__} uses gradient checkpointing")


def _is_harmless(kind: type) -> bool:
    return kind.__name__ in HARMLESS_CALLS and kind.__module__.startswith("transformers.")


def _function(member: Any, where: str, module: nn.Module) -> types.FunctionType | None:
    """The function of a method or property; None for plain class attributes."""
    if isinstance(member, property):
        member = member.fget
    if isinstance(member, functools.cached_property):
        member = member.func
    if isinstance(member, staticmethod | classmethod):
        member = member.__func__
    if not callable(member):
        return None
    member = _dispatched(member, module)
    function = inspect.unwrap(member, stop=lambda layer: _check_wrapper(layer, where))
    if not isinstance(function, types.FunctionType):
        return None
    closure = set(function.__code__.co_freevars) - {"__class__"}
    if closure:
        raise CannotCapture(f"{where} is a closure over {', '.join(sorted(closure))}")
    return function


def _check_wrapper(layer: Any, where: str) -> bool:
    """Raise CannotCapture for a wrapper that may change what a function computes. Returns False, to go on."""
    code = getattr(layer, "__code__", None)
    maker = code.co_qualname.partition(".")[0] if code else type(layer).__name__
    of_python = code is not None and code.co_filename.startswith(OF_PYTHON)
    home = getattr(layer, "__globals__", {}).get("__name__", "").partition(".")[0]
    harmless = maker in DROPPED_DECORATORS | HARMLESS_CALLS and home in KNOWN_PACKAGES
    if not of_python and not harmless:
        raise CannotCapture(f"{where} is wrapped by {maker}")
    return False


def _dispatched(member: Any, module: nn.Module) -> Any:
    """The function that transformers runs in the place of an experts module's forward; else `member` itself."""
    code = getattr(member, "__code__", None)
    if code is None or not code.co_qualname.startswith("use_experts_implementation."):
        return member
    inner = inspect.getclosurevars(member).nonlocals
    chosen = getattr(module.config, "_experts_implementation")  # noqa: B009
    return inner["experts_interface"].get(chosen, inner["original_forward"])


def _tree(function: types.FunctionType, where: str) -> ast.FunctionDef:
    try:
        lines, first = inspect.getsourcelines(function)
    except OSError:
        raise CannotCapture(f"there is no source of {where}") from None
    try:
        tree = ast.parse(textwrap.dedent("".join(lines))).body[0]
    except SyntaxError:
        tree = ast.Pass()
    if not isinstance(tree, ast.FunctionDef):
        raise CannotCapture(f"{where} is not a plain function (line {first})")
    return ast.increment_lineno(tree, first - 1)


def _read_of_self(tree: ast.AST) -> list[str]:
    """Attributes of `self` or `cls` that the code reads."""
    return [
        node.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Name)
        and node.value.id in ("self", "cls")
    ]


@functools.cache
def _assigned_by(kind: type) -> frozenset[str]:
    """Attributes of `self` that methods other than `__init__` assign, so that they may change during forward."""
    try:
        body = ast.parse(textwrap.dedent(inspect.getsource(kind))).body
    except (OSError, SyntaxError, TypeError):
        return frozenset()
    methods = [
        each
        for outer in body
        if isinstance(outer, ast.ClassDef)
        for each in outer.body
        if isinstance(each, ast.FunctionDef) and each.name not in NOT_IN_FORWARD
    ]
    return frozenset(
        node.attr
        for method in methods
        for node in ast.walk(method)
        if isinstance(node, ast.Attribute)
        and isinstance(node.ctx, ast.Store)
        and isinstance(node.value, ast.Name)
        and node.value.id == "self"
    )


def _name_self(tree: ast.FunctionDef) -> None:
    """Call the first parameter `self`."""
    first = [*tree.args.posonlyargs, *tree.args.args][0].arg
    for node in ast.walk(tree):
        if isinstance(node, ast.arg) and node.arg == first:
            node.arg = "self"
        elif isinstance(node, ast.Name) and node.id == first:
            node.id = "self"


class _SelfByName(ast.NodeTransformer):
    """`Block.helper(x)` becomes `self.helper(x)`, where `helper` is a static or class method."""

    def __init__(self, classes: tuple[type, ...]) -> None:
        self._classes = {each.__name__: each for each in classes}

    def visit_Attribute(self, node: ast.Attribute) -> ast.Attribute:
        """An attribute of one of the module's own classes."""
        self.generic_visit(node)
        if isinstance(node.value, ast.Name) and node.value.id in self._classes:
            member = inspect.getattr_static(self._classes[node.value.id], node.attr, None)
            if isinstance(member, staticmethod | classmethod) or not callable(member):
                node.value.id = "self"
        return node


class _Super(ast.NodeTransformer):
    """`super().forward(x)` becomes a call of the copied method, where the next class in line is not torch's."""

    def __init__(self, after: tuple[type, ...]) -> None:
        self._after = after
        self.needed: dict[str, str] = {}
        """For each new method, the name of the original in the classes after this one."""

    def visit_Attribute(self, node: ast.Attribute) -> ast.Attribute:
        """An attribute of `super()`."""
        self.generic_visit(node)
        match node.value:
            case ast.Call(func=ast.Name(id="super")):
                home = next((each for each in self._after if node.attr in vars(each)), None)
                if home is not None:
                    name = f"_{home.__name__.lower()}_{node.attr.strip('_')}"
                    self.needed[name] = node.attr
                    return ast.Attribute(ast.Name("self", ast.Load()), name, node.ctx)
        return node
