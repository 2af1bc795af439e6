"""Collects the methods that a module's forward needs, with `super()` resolved."""

from __future__ import annotations

import ast
import inspect
import textwrap
import types
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torch import nn

from stark.capture.cannot import CannotCapture
from stark.capture.copying import Copier

HARMLESS_CALLS = {"GradientCheckpointingLayer"}
"""Classes whose `__call__` only adds what training uses."""

SPECIAL = ("__call__", "__getattr__", "__getattribute__", "__setattr__", "_call_impl", "_wrapped_call_impl")


@dataclass(frozen=True)
class Methods:
    """The methods of one module that go into the captured file."""

    base: type[nn.Module]
    """The class of torch that the captured class derives from."""

    trees: dict[str, ast.FunctionDef]


def torch_base(kind: type[nn.Module]) -> type[nn.Module]:
    """The nearest base in torch.nn; for a class of torch.nn itself, nn.Module, so that its code is copied."""
    for base in kind.__mro__[1:]:
        if getattr(nn, base.__name__, None) is base and issubclass(base, nn.Module):
            return base
    return nn.Module


def methods_of(module: nn.Module, copier: Copier, constants: Mapping[str, Any]) -> Methods:
    """Copy forward and every method that it needs. Raises CannotCapture with the class and the line."""
    kind, base = type(module), torch_base(type(module))
    _refuse_special(module, base)
    own = kind.__mro__[: kind.__mro__.index(base)]
    trees: dict[str, ast.FunctionDef] = {}
    waiting = [("forward", "forward", own)]
    while waiting:
        here, name, classes = waiting.pop(0)
        if here in trees:
            continue
        home = next((each for each in classes if name in vars(each)), None)
        if home is None:
            continue
        function = _function(vars(home)[name], f"{home.__name__}.{name}")
        if function is None:
            continue
        given = constants if name == "forward" else {}
        tree = _tree(function, f"{home.__name__}.{name}")
        _SelfByName(own).visit(tree)
        after = own[own.index(home) + 1 :]
        supers = _Super(after)
        tree = supers.visit(copier.function(tree, function.__module__, module, given))
        tree.name = here
        trees[here] = tree
        copier.reads |= set(supers.needed)
        waiting += [(called, method, after) for called, method in supers.needed.items()]
        waiting += [(read, read, own) for read in _read_of_self(tree)]
    return Methods(base, trees)


def _refuse_special(module: nn.Module, base: type[nn.Module]) -> None:
    kind = type(module)
    if "forward" in vars(module):
        raise CannotCapture(f"forward of a {kind.__name__} was replaced on the instance")
    for each in kind.__mro__[: kind.__mro__.index(base)]:
        for name in SPECIAL:
            if name in vars(each) and not (name == "__call__" and each.__name__ in HARMLESS_CALLS):
                raise CannotCapture(f"{each.__name__} defines {name}")
    if getattr(module, "gradient_checkpointing", False) and module.training:
        raise CannotCapture(f"{kind.__name__} uses gradient checkpointing")


def _function(member: Any, where: str) -> types.FunctionType | None:
    """The function of a method or property; None for plain class attributes."""
    if isinstance(member, property):
        member = member.fget
    if isinstance(member, staticmethod | classmethod):
        member = member.__func__
    if not callable(member):
        return None
    function = inspect.unwrap(member)
    if not isinstance(function, types.FunctionType):
        return None
    closure = set(function.__code__.co_freevars) - {"__class__"}
    if closure:
        raise CannotCapture(f"{where} is a closure over {', '.join(sorted(closure))}")
    return function


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
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in ("self", "cls")
    ]


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
