"""The signature of an original's forward as source, and the tests of arguments that are constants.

Standalone: needs torch and the standard library only, since it is copied into kernel files and packages.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable, Iterator
from inspect import Parameter
from typing import Any

from stark.deploy.contract import Contract

USED = frozenset({"type", "len", "list", "repr", "isinstance", "getattr", "self"})
"""Builtins that generated source uses."""


class Signature:
    """The parameters of an original's forward as source."""

    def __init__(self, function: Callable[..., Any], names: dict[str, Any]) -> None:
        """Defaults become globals in `names`."""
        self.signature = inspect.signature(function)
        parameters = list(self.signature.parameters.values())
        self.defaults = {each.name: _default(each) for each in parameters[1:]}
        self.keywords = next((p.name for p in parameters if p.kind is Parameter.VAR_KEYWORD), None)
        self.own = [each.name for each in parameters[1:] if each.kind is not Parameter.VAR_KEYWORD]
        if hidden := USED.intersection(self.own):
            raise LookupError(f"its forward calls an argument {min(hidden)}, which hides a builtin")
        written = [each.replace(annotation=Parameter.empty) for each in parameters]
        for place, each in enumerate(written):
            if each.default is not Parameter.empty:
                names[f"stark_default_{each.name}"] = each.default
                written[place] = each.replace(default=_Source(f"stark_default_{each.name}"))
        written[0] = written[0].replace(name="self")
        self.head = str(inspect.Signature(written))[1:-1]
        self.passed = ", ".join(map(_passed, parameters[1:]))
        pairs = [f"{name!r}: {name}" for name in self.own]
        self.values = f"{{{', '.join(pairs + ([f'**{self.keywords}'] if self.keywords else []))}}}"

    def expression(self, name: str) -> str:
        """The source of an argument's value. Raises LookupError if forward does not take it."""
        if name in self.own:
            return name
        if self.keywords is None:
            raise LookupError(f"its forward takes no {name}")
        return f"{self.keywords}[{name!r}]"

    def others(self, contract: Contract) -> Iterator[str]:
        """Tests of the arguments that are no inputs of the kernel."""
        named = {*contract.arguments, *contract.constants}
        if self.keywords is not None:
            keywords = sorted(named.difference(self.own))
            yield (
                f"{self.keywords}.keys() == {set(keywords)!r}"
                if keywords
                else f"not {self.keywords}"
            )
        for name in self.own:
            if name not in named:
                given = self.signature.parameters[name]
                star = given.kind is Parameter.VAR_POSITIONAL
                if given.default is Parameter.empty and not star:
                    raise LookupError(f"its forward needs {name}, which the kernel does not take")
                yield f"not {name}" if star else f"{name} is stark_default_{name}"
        for name, expected in contract.constants.items():
            yield constant_test(self.expression(name), expected)


class _Source:
    """A default that is written as this source."""

    def __init__(self, source: str) -> None:
        self._source = source

    def __repr__(self) -> str:
        return self._source


def _default(parameter: Parameter) -> Any:
    return () if parameter.kind is Parameter.VAR_POSITIONAL else parameter.default


def _passed(parameter: Parameter) -> str:
    name = parameter.name
    match parameter.kind:
        case Parameter.VAR_POSITIONAL:
            return f"*{name}"
        case Parameter.VAR_KEYWORD:
            return f"**{name}"
        case Parameter.KEYWORD_ONLY:
            return f"{name}={name}"
    return name


def constant_test(expression: str, expected: str) -> str:
    """A test that a value's repr is as expected, without making the repr if that is possible."""
    if expected in ("None", "True", "False"):
        return f"{expression} is {expected}"
    try:
        value = ast.literal_eval(expected)
    except (ValueError, SyntaxError):
        return f"repr({expression}) == {expected!r}"
    if type(value) in (int, str):
        return f"type({expression}) is {type(value).__name__} and {expression} == {expected}"
    return f"repr({expression}) == {expected!r}"
